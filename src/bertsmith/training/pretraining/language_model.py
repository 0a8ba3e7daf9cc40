"""Training of recurrent language models on contiguous text: their state is carried from step to step.

Letters: B tracks of a direction, T tokens of a micro-batch, M predicted positions, D width.

A step is a window of every track; in a model of two directions, B tracks are read from left to right, and B others of
the same text from right to left. Each track begins with the state in which the step before left it, without gradients
(truncated backpropagation through time). Checkpoints hold the state like parameters and moments.

Source: Merity, Keskar and Socher (2018), "Regularizing and Optimizing LSTM Language Models", sections 4 and 5; main.py
of their code. For two directions: `BidirectionalLMDataset` and `train` of the code of ELMo (allenai/bilm-tf), where the
words of each sentence are reversed instead of the whole text.
"""

import dataclasses
import threading
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from bertsmith.base.core.errors import CheckpointError
from bertsmith.base.core.progress import Progress
from bertsmith.base.core.settings import require
from bertsmith.base.machine.runtime import ALONE, Rank, Runtime
from bertsmith.models.heads.encoder_with_head import EncoderForPreTraining, PreTrainingOutput
from bertsmith.models.heads.sampled_softmax import PieceSample
from bertsmith.models.parts.batch import Batch, cut_by_tokens
from bertsmith.models.parts.encoder import Trace
from bertsmith.models.parts.memory import Memory
from bertsmith.models.parts.noise import noise_for
from bertsmith.models.parts.runs import copied
from bertsmith.text.tokenizers.vocabulary import Vocabulary
from bertsmith.training.loop.lanes import lanes_for
from bertsmith.training.loop.workload import StepPlan
from bertsmith.training.pretraining.losses import CorpusWorkload, negative_log_likelihood
from bertsmith.training.pretraining.objectives import PREVIOUS, LossTerm
from bertsmith.training.pretraining.settings import PretrainingDataSettings, PretrainingRunSettings
from bertsmith.training.pretraining.stream import Documents
from bertsmith.training.pretraining.token_tracks import TokenTracks, Windows

_HELD_OUT_TRACKS = 8
# The weights of the penalties on the output and on its changes in the code of Merity et al.
_ACTIVATION_PENALTY, _CHANGE_PENALTY = 2.0, 1.0


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrackBatch:
    """A window of some tracks of one direction with its targets.

    Attributes:
        term: the term of the loss, which says the direction.
        batch: the tokens, a row for each track; `row_ids` are the numbers of the tracks, of the second direction
            after the first.
        predicted: int64 [M], the positions that are predicted.
        targets: int64 [M], the gold pieces there.
        step_predictions: predictions in the whole step, of this direction.
    """

    term: LossTerm
    batch: Batch
    predicted: Tensor
    targets: Tensor
    step: int
    step_predictions: int
    step_tracks: int


class LanguageModeling(CorpusWorkload):
    """The workload that trains a recurrent language model; for its arguments see `Pretraining`."""

    def __init__(
        self,
        model: EncoderForPreTraining,
        documents: Documents,
        held_out: Documents | None,
        vocabulary: Vocabulary,
        data: PretrainingDataSettings,
        runtime: Runtime,
        run: PretrainingRunSettings,
        *,
        unigram: npt.NDArray[np.int64] | None = None,
    ) -> None:
        for name in ("tokens_per_step", "long_length"):
            require(
                getattr(run, name) is None,
                expected=f"no {name} for tracks of contiguous text",
                found=getattr(run, name),
                fix="leave it out; --rows-per-step is the number of tracks, --max-length that of tokens in a window",
            )
        super().__init__(model, held_out, vocabulary, data, runtime, run, unigram)
        usual = (0.0, 0.0) if self.objective.two_directions else (_ACTIVATION_PENALTY, _CHANGE_PENALTY)
        self.activation_penalty = usual[0] if run.activation_penalty is None else run.activation_penalty
        self.change_penalty = usual[1] if run.change_penalty is None else run.change_penalty
        # Those of ELMo are equally long: a window is 20 tokens in its code.
        self.windows = Windows(base=data.max_length, seed=data.seed, varied=not self.objective.two_directions)
        directions = [self._is_backward(term) for term in self.objective.terms]
        self.texts = tuple(
            TokenTracks(documents, vocabulary, tracks=run.rows_per_step, shortest=data.max_length, backward=backward)
            for backward in directions
        )
        self._held_out: tuple[TokenTracks, ...] = ()
        if held_out is not None and held_out.num_documents:
            tokens = int(np.asarray(held_out.document_lengths).sum())
            tracks = max(1, min(_HELD_OUT_TRACKS, tokens // data.max_length))
            self._held_out = tuple(
                TokenTracks(held_out, vocabulary, tracks=tracks, shortest=1, backward=backward)
                for backward in directions
            )
        # The state before a step, by step: only that of the last one and of the one after it.
        self._states: dict[int, dict[str, Tensor]] = {}
        self._changing = threading.Lock()

    def step_rate(self, step: int) -> float:
        """The length of the window of a step as a fraction of the base length."""
        return self.windows.length(step) / self.windows.base

    def carried(self, step: int) -> Mapping[str, Tensor]:
        """The state of all tracks before a step, [tracks, width] each, the second direction last; at first empty."""
        return self._states.get(step, {})

    def carry(self, step: int, tensors: Mapping[str, Tensor]) -> None:
        """Continues from the state before a step."""
        if step and {tensor.shape[0] for tensor in tensors.values()} != {self._num_tracks}:
            raise CheckpointError(
                expected=f"the state of {self._num_tracks} tracks in the checkpoint of step {step}",
                found="that of another run" if tensors else "none",
                fix="use the checkpoint of this run, or start a new one",
            )
        moved = {name: tensor.to(self.runtime.torch_device) for name, tensor in tensors.items()}
        self._states = {step: moved} if moved else {}

    @property
    def has_even_steps(self) -> bool:
        """Yes: windows are as long on average throughout the run."""
        return True

    def plan(self, step: int, rank: int, world: int) -> StepPlan:
        """The windows of a step, a pure function of it; the tokens of two directions count once."""
        assert world == 1, "the state of a track belongs to one process"
        length, start = self.windows.length(step), self.windows.start(step)
        batches = [
            batch
            for number in range(len(self.texts))
            for batch in self._micro_batches(self.texts, number, step, start, length, self.lanes)
        ]
        tracks = self.run.rows_per_step
        return StepPlan(micro_batches=batches, tokens=tracks * length, sequences=tracks)

    def loss(self, model: nn.Module, micro_batch: TrackBatch) -> tuple[Tensor, dict[str, Tensor]]:
        """A micro-batch's contribution to the loss of its step, with the penalties, and sums for the log."""
        step, tracks = micro_batch.step, micro_batch.batch.row_ids
        noise = noise_for(self.data.seed, step, tracks, self.runtime.torch_device)
        memory, trace = self._memory(step, micro_batch), Trace()
        sample = None if self._sampler is None else self._sampler.of_step(step)
        output: PreTrainingOutput = model(
            micro_batch.batch,
            **_asked(micro_batch),
            sample=sample,
            noise=noise,
            dtype=self.runtime.dtype,
            trace=trace,
            memory=memory,
        )
        self._keep(step + 1, tracks, memory)
        sums: dict[str, Tensor] = {}
        loss = self._nll(output, micro_batch, sums, sample)
        length, all_tracks = micro_batch.batch.lengths[0], micro_batch.step_tracks
        width = self.model.encoder.width
        if self.activation_penalty:
            share = self.activation_penalty / (all_tracks * length * width)
            loss = loss + output.hidden.float().square().sum() * share
        if self.change_penalty:
            states = trace.hidden_states[-1].float().view(len(tracks), length, width)
            share = self.change_penalty / (all_tracks * (length - 1) * width)
            loss = loss + states.diff(dim=1).square().sum() * share
        return loss, sums

    def higher_is_better(self) -> dict[str, bool]:
        """The figures of `evaluate` that can select a model; none without held-out documents."""
        return self.objective.higher_is_better if self._held_out else {}

    @torch.no_grad()
    def evaluate(self, model: nn.Module, rank: Rank = ALONE) -> dict[str, float]:
        """Loss, accuracy and perplexity on held-out text, read in order without dropout; empty without any."""
        if not self._held_out:
            return {}
        sums: dict[str, float] = {}
        text = self._held_out[0]
        most = self.run.evaluation_rows * self.data.max_length
        per_track = max(1, min(text.num_tokens, most) // text.num_tracks)
        with Progress("evaluating", total=per_track * len(self._held_out), unit="tokens") as progress:
            for number, term in enumerate(self.objective.terms):
                memory = Memory(backward=self._is_backward(term))
                for start in range(0, per_track, self.data.max_length):
                    length = min(self.data.max_length, per_track - start)
                    (batch,) = self._micro_batches(self._held_out, number, 0, start, length, 1, together=True)
                    output = model(batch.batch, **_asked(batch), dtype=self.runtime.dtype, memory=memory)
                    of_window: dict[str, Tensor] = {}
                    self._nll(output, batch, of_window, None)
                    for name, value in of_window.items():
                        sums[name] = sums.get(name, 0.0) + float(value)
                    progress.advance(length)
        return self.held_out_figures(sums)

    @property
    def _num_tracks(self) -> int:
        """The tracks of all directions."""
        return self.run.rows_per_step * len(self.texts)

    def _is_backward(self, term: LossTerm) -> bool:
        """Whether the tracks of a term are read from right to left."""
        return self.objective.is_backward or term is PREVIOUS

    def _nll(
        self, output: PreTrainingOutput, batch: TrackBatch, sums: dict[str, Tensor], sample: PieceSample | None
    ) -> Tensor:
        logits = batch.term.logits(output)
        assert logits is not None
        targets = batch.targets if sample is None else torch.zeros_like(batch.targets)  # the first of its logits
        total = negative_log_likelihood(logits, targets, batch.term.name, sums)
        return total / max(1, batch.step_predictions)

    def _memory(self, step: int, batch: TrackBatch) -> Memory:
        """The state of some tracks before a step; an empty one at the start, and in trial steps of another place."""
        state, backward = self._states.get(step), self._is_backward(batch.term)
        if not state:
            return Memory(backward=backward)
        lengths = (self.windows.start(step),) * self._num_tracks
        return Memory(state, lengths, backward).of_rows(batch.batch.row_ids)

    def _keep(self, step: int, tracks: tuple[int, ...], memory: Memory) -> None:
        """Keeps the state of some tracks before the next step; a track whose state is not finite begins again."""
        rows = torch.tensor(tracks, device=self.runtime.torch_device)
        with self._changing:
            self._states = {number: state for number, state in self._states.items() if number in (step - 1, step)}
            state = self._states.setdefault(step, {})
            for name, tensor in memory.tensors.items():
                if name not in state:
                    state[name] = tensor.new_zeros(self._num_tracks, tensor.shape[1])
                finite = tensor.isfinite().all(dim=1, keepdim=True)
                state[name][rows] = torch.where(finite, tensor, 0.0)

    def _micro_batches(
        self,
        texts: Sequence[TokenTracks],
        number: int,
        step: int,
        start: int,
        length: int,
        parts: int,
        *,
        together: bool = False,
    ) -> list[TrackBatch]:
        """The windows of all tracks of one of the directions, split by tokens, or all `together`."""
        text = texts[number]
        tokens, targets = text.window(start, length)
        is_open = text.is_open(targets)
        tracks, count = len(tokens), int(is_open.sum())
        lengths = np.full(tracks, length, dtype=np.int64)
        all_tracks = np.arange(tracks)
        cuts = [all_tracks]
        if not together:
            cuts = cut_by_tokens(all_tracks, lengths, self.micro_tokens, lanes_for(tracks * length, parts))
        batches = []
        for part in cuts:
            flat, predicted = tokens[part].ravel(), np.flatnonzero(is_open[part].ravel())
            names = part + number * tracks
            batches.append(
                TrackBatch(
                    term=self.objective.terms[number],
                    batch=Batch.from_flat(flat, np.zeros_like(flat), lengths[part], names, self.runtime.device),
                    predicted=self._tensor(predicted),
                    targets=self._tensor(targets[part].ravel()[predicted]),
                    step=step,
                    step_predictions=count,
                    step_tracks=tracks,
                )
            )
        return batches

    def _tensor(self, values: npt.NDArray[np.integer]) -> Tensor:
        return copied(values.astype(np.int64, copy=False), self.runtime.device)


def _asked(batch: TrackBatch) -> dict[str, Any]:
    """The arguments of the model that ask for the predictions of a micro-batch."""
    if batch.term is PREVIOUS:
        return {"backward": batch.predicted, "targets": (None, batch.targets)}
    return {"masked": batch.predicted, "targets": (batch.targets, None)}
