"""Pre-training as a task: steps of masked rows in, losses and scores out.

Letters: T tokens, N rows of a micro-batch, M predicted positions, R positions that are read, V vocabulary.

A step is a fixed list of rows, the same on every rank. It is sorted by length, dealt out to the ranks, and cut into
micro-batches by tokens. Losses are divided by the counts of the whole step, so micro-batches and ranks add up to the
same gradient however the step is cut.

Source: Devlin et al. (2018), section 3.1 and appendix A; `model_fn_builder` in the original run_pretraining.py.
"""

import dataclasses
from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bertsmith.corpus.checks import entropy
from bertsmith.errors import ConfigError
from bertsmith.model.batch import Batch, Read, cut_by_tokens, rows_index
from bertsmith.model.heads import EncoderForPreTraining, PreTrainingOutput
from bertsmith.model.noise import noise_for
from bertsmith.model.parameter_names import part_of
from bertsmith.pretraining.masking import Masker
from bertsmith.pretraining.settings import PretrainingDataSettings
from bertsmith.pretraining.stream import Cursor, Documents, InstancePlan, PretrainingStream, Rows
from bertsmith.progress import Progress, counted
from bertsmith.runtime import Runtime
from bertsmith.text.vocabulary import Vocabulary
from bertsmith.training.workload import StepPlan

# Added to the number of predictions, as the original does so that a batch without any divides by something.
MASK_COUNT_EPSILON = 1e-5


@dataclasses.dataclass(frozen=True, kw_only=True)
class PretrainingBatch:
    """A micro-batch with what is to be predicted in it.

    Attributes:
        batch: the rows as the model reads them.
        read: the positions that a head reads.
        predicted: int64 [M], rows of the last hidden states that the masked-LM head takes; None without such a loss.
        originals: int64 [M], the pieces that stood there.
        first: int64 [N], rows of the last hidden states that are [CLS]; None without a pair loss.
        labels: int64 [N], 0 for an actual next, 1 for a random one.
        step: the step, counted from 0.
        step_predictions: predictions in the whole step.
        step_rows: rows in the whole step.
    """

    batch: Batch
    read: Read
    predicted: Tensor | None
    originals: Tensor | None
    first: Tensor | None
    labels: Tensor | None
    step: int
    step_predictions: int
    step_rows: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class Phase:
    """A stretch of the run with one row length.

    Attributes:
        stream: the rows.
        masker: their masks.
        share: the share of the steps that belongs to this phase.
    """

    stream: PretrainingStream
    masker: Masker
    share: float


class PretrainingTask:
    """What the training loop is given to pre-train a BERT.

    Args:
        model: the model with both heads.
        documents: the corpus.
        held_out: documents for evaluation, or None.
        vocabulary: that of the corpus.
        data: how documents become rows.
        runtime: device and precision.
        rows_per_step: rows of an optimizer step.
        tokens_per_step: a token budget instead.
        long_length: the row length of a last phase, or None for one length throughout.
        long_share: the share of the steps in that phase; the paper has 0.1.
        micro_tokens: most tokens worked on at once.
        evaluation_rows: most held-out rows that an evaluation reads.
        unigram: int64 [V], how often each piece occurs in the corpus; gives the line that knows only frequencies.
    """

    def __init__(
        self,
        model: EncoderForPreTraining,
        documents: Documents,
        held_out: Documents | None,
        vocabulary: Vocabulary,
        data: PretrainingDataSettings,
        runtime: Runtime,
        *,
        rows_per_step: int = 256,
        tokens_per_step: int | None = None,
        long_length: int | None = None,
        long_share: float = 0.1,
        micro_tokens: int = 4096,
        evaluation_rows: int = 512,
        unigram: npt.NDArray[np.int64] | None = None,
    ) -> None:
        self.model = model.to(runtime.torch_device)
        self.data, self.runtime, self.micro_tokens = data, runtime, micro_tokens
        self.unigram_entropy = None if unigram is None else entropy(unigram)
        self._total_steps: int | None = None
        _freeze_unused(self.model, data)
        lengths = [(data.max_length, 1.0 if long_length is None else 1 - long_share)]
        if long_length is not None:
            lengths.append((long_length, long_share))
        self._phases = []
        for length, share in lengths:
            changed = dataclasses.replace(
                data, max_length=length, max_predictions=None if length != data.max_length else data.max_predictions
            )
            # A long row has as many tokens as several short ones: the step keeps its rows, as in the paper.
            stream = PretrainingStream(
                documents, changed, vocabulary, rows_per_step=rows_per_step, tokens_per_step=tokens_per_step
            )
            self._phases.append(Phase(stream=stream, masker=Masker(vocabulary, changed), share=share))
        self._evaluations: list[tuple[str, PretrainingStream]] = []
        self._held_out_unigram: float | None = None
        if held_out is not None and held_out.num_documents:
            if unigram is not None:
                self._held_out_unigram = _unigram_loss(unigram, held_out)
            for phase, prefix in zip(self._phases, ("", "long_"), strict=False):
                fixed = dataclasses.replace(phase.stream.settings, dupe_factor=1, dynamic=False)
                self._evaluations.append((prefix, PretrainingStream(held_out, fixed, vocabulary)))
        self._evaluation_rows = evaluation_rows

    @property
    def trained_parts(self) -> tuple[str, ...]:
        """The parts beside the encoder that the objective trains."""
        return trained_parts(self.data)

    def rate_factor(self, name: str) -> float:
        """1: all parameters share one rate."""
        return 1.0

    def fix_steps(self, total: int) -> None:
        """Takes the number of steps of the run, on which the start of the long rows depends."""
        self._total_steps = total

    def plan(self, step: int, rank: int, world: int) -> StepPlan:
        """The micro-batches of a rank in a step; a pure function of the step."""
        phase, number = self._phase(step)
        rows = phase.stream.step_rows(number)
        micro_batches = self._micro_batches(rows, phase.masker, step, rank, world)
        return StepPlan(micro_batches=micro_batches, tokens=int(rows.lengths.sum()), sequences=len(rows.lengths))

    def loss(self, model: nn.Module, micro_batch: PretrainingBatch) -> tuple[Tensor, dict[str, Tensor]]:
        """The part of the step's loss that a micro-batch has, and sums for the log."""
        rows = micro_batch.batch.row_ids
        noise = noise_for(self.data.seed, micro_batch.step, rows, self.runtime.torch_device)
        output = model(
            micro_batch.batch,
            read=micro_batch.read,
            masked=micro_batch.predicted,
            first=micro_batch.first,
            noise=noise,
            dtype=self.runtime.dtype,
        )
        return _losses(output, micro_batch)

    def summarize(self, sums: Mapping[str, float]) -> dict[str, float]:
        """The numbers of a log line from the sums of a step or an evaluation; nats for losses."""
        line: dict[str, float] = {"loss": 0.0}
        for name in ("mlm", "nsp"):
            if sums.get(f"{name}_count"):
                line[f"{name}_loss"] = sums[f"{name}_nll"] / sums[f"{name}_count"]
                line[f"{name}_accuracy"] = sums[f"{name}_correct"] / sums[f"{name}_count"]
                line["loss"] += line[f"{name}_loss"]
        if self.unigram_entropy is not None:
            line["unigram_entropy"] = self.unigram_entropy
        return line

    @torch.no_grad()
    def evaluate(self, model: nn.Module) -> dict[str, float]:
        """Loss, accuracy and perplexity on the held-out rows, nothing dropped; empty without held-out documents.

        The names of the figures on the long rows of a last phase begin with `long_`.
        """
        line: dict[str, float] = {}
        for prefix, stream in self._evaluations:
            figures = self.summarize(self._sums(model, stream))
            if "mlm_loss" in figures:
                figures["mlm_perplexity"] = float(np.exp(figures["mlm_loss"]))
            if self._held_out_unigram is not None:
                figures["unigram_entropy"] = self._held_out_unigram
            line |= {f"{prefix}{name}": value for name, value in figures.items()}
        return line

    def _sums(self, model: nn.Module, stream: PretrainingStream) -> dict[str, float]:
        """The sums over the first rows of a held-out stream."""
        rows = stream.materialise(self._evaluation_plan(stream))
        sums: dict[str, float] = {}
        with Progress("evaluating", total=len(rows.lengths), unit="rows") as progress:
            for micro_batch in self._micro_batches(rows, Masker(stream.vocabulary, stream.settings), 0, 0, 1):
                output = model(
                    micro_batch.batch,
                    read=micro_batch.read,
                    masked=micro_batch.predicted,
                    first=micro_batch.first,
                    dtype=self.runtime.dtype,
                )
                for name, value in _losses(output, micro_batch)[1].items():
                    sums[name] = sums.get(name, 0.0) + float(value)
                progress.advance(micro_batch.batch.num_rows)
        return sums

    def _phase(self, step: int) -> tuple[Phase, int]:
        """The phase of a step, and the step's number in it."""
        if len(self._phases) == 1:
            return self._phases[0], step
        assert self._total_steps is not None, "the loop says how many steps there are"
        border = round(self._phases[0].share * self._total_steps)
        return (self._phases[0], step) if step < border else (self._phases[1], step - border)

    def _evaluation_plan(self, stream: PretrainingStream) -> InstancePlan:
        return stream.take(Cursor(), min(self._evaluation_rows, stream.num_instances(0)))[0]

    def _micro_batches(self, rows: Rows, masker: Masker, step: int, rank: int, world: int) -> list[PretrainingBatch]:
        """The rows of a rank, masked, sorted by length and cut by tokens."""
        token_ids, positions, originals, per_row = _targets(rows, masker, self.data)
        read_counts = per_row + self.data.pairs
        order = np.lexsort((read_counts, rows.lengths))
        # With whole words a row may end up without a prediction; where no pair loss reads it, nothing does.
        order = order[read_counts[order] > 0][rank::world]
        if not len(order):
            raise ConfigError(
                expected=f"rows with something to predict for each of {world} processes in every step",
                found=f"{counted(len(rows.lengths), 'row')} in step {step}",
                fix="use larger steps, fewer processes or a larger masked share",
            )
        position_ends = np.cumsum(per_row)
        starts = np.cumsum(rows.lengths) - rows.lengths
        batches = []
        for part in cut_by_tokens(order, rows.lengths, self.micro_tokens):
            index = rows_index(rows.lengths, part)
            batch = Batch.from_flat(
                token_ids[index], rows.segment_ids[index], rows.lengths[part], part, self.runtime.device
            )
            # Where the predicted positions of these rows went in the new flat row.
            chosen = rows_index(per_row, part)
            new_starts = np.cumsum(rows.lengths[part]) - rows.lengths[part]
            moved = positions[chosen] + np.repeat(new_starts - starts[part], per_row[part])
            firsts = new_starts if self.data.pairs else new_starts[:0]
            read = np.sort(np.concatenate([moved, firsts]))
            predicts = bool(position_ends[-1])
            batches.append(
                PretrainingBatch(
                    batch=batch,
                    read=Read.at(batch, read),
                    predicted=self._tensor(np.searchsorted(read, moved)) if predicts else None,
                    originals=self._tensor(originals[chosen]) if predicts else None,
                    first=self._tensor(np.searchsorted(read, firsts)) if self.data.pairs else None,
                    labels=self._tensor(rows.labels[part]) if self.data.pairs else None,
                    step=step,
                    step_predictions=int(per_row.sum()),
                    step_rows=len(rows.lengths),
                )
            )
        return batches

    def _tensor(self, values: npt.NDArray[np.integer]) -> Tensor:
        return torch.from_numpy(np.ascontiguousarray(values, dtype=np.int64)).to(self.runtime.torch_device)


def _unigram_loss(counts: npt.NDArray[np.int64], documents: Documents) -> float:
    """The loss in nats, on other documents, of a model that knows only how often pieces occurred in its corpus.

    Each count is one higher than it was, so that a piece that never occurred is not impossible.
    """
    seen = np.zeros(len(counts), dtype=np.int64)
    for document in range(documents.num_documents):
        seen += np.bincount(documents.document_tokens(document), minlength=len(counts))
    shares = (counts + 1) / (counts + 1).sum()
    return float(-(seen * np.log(shares)).sum() / seen.sum())


def _targets(
    rows: Rows, masker: Masker, data: PretrainingDataSettings
) -> tuple[npt.NDArray[np.integer], npt.NDArray[np.int64], npt.NDArray[np.integer], npt.NDArray[np.int64]]:
    """What the model reads [T], the predicted flat positions [M], what belongs there [M], how many a row has [N]."""
    if data.masked:
        masked = masker.mask_rows(rows.token_ids, rows.lengths, rows.keys)
        return masked.token_ids, masked.positions, masked.original_ids, masked.per_row
    if data.objective == "left-to-right":
        last = np.cumsum(rows.lengths) - 1
        positions = np.delete(np.arange(len(rows.token_ids)), last)
        return rows.token_ids, positions, rows.token_ids[positions + 1], rows.lengths - 1
    return rows.token_ids, np.zeros(0, np.int64), rows.token_ids[:0], np.zeros_like(rows.lengths)


def _losses(output: PreTrainingOutput, batch: PretrainingBatch) -> tuple[Tensor, dict[str, Tensor]]:
    loss = torch.zeros((), device=batch.batch.token_ids.device)
    sums: dict[str, Tensor] = {}
    if output.mlm_logits is not None:
        assert batch.originals is not None
        nll = _negative_log_likelihood(output.mlm_logits, batch.originals, "mlm", sums)
        loss = loss + nll / (batch.step_predictions + MASK_COUNT_EPSILON)
    if output.nsp_logits is not None:
        assert batch.labels is not None
        nll = _negative_log_likelihood(output.nsp_logits, batch.labels, "nsp", sums)
        loss = loss + nll / batch.step_rows
    return loss, sums


def _negative_log_likelihood(logits: Tensor, targets: Tensor, name: str, sums: dict[str, Tensor]) -> Tensor:
    """The summed loss in nats, computed in fp32 at least; adds it, the count and the hits to `sums`."""
    exact = logits if logits.dtype == torch.float64 else logits.float()
    nll = F.cross_entropy(exact, targets, reduction="sum")
    sums[f"{name}_nll"] = nll.detach()
    sums[f"{name}_correct"] = (logits.detach().argmax(-1) == targets).sum()
    sums[f"{name}_count"] = torch.tensor(len(targets), device=targets.device)
    return nll


def trained_parts(data: PretrainingDataSettings) -> tuple[str, ...]:
    """The parts next to the encoder that an objective trains."""
    pair_parts = ("pooler", "nsp") if data.pairs else ()
    return pair_parts if data.objective == "nsp" else ("mlm", *pair_parts)


def _freeze_unused(model: EncoderForPreTraining, data: PretrainingDataSettings) -> None:
    """Takes the parameters that the objective does not reach out of training."""
    model.requires_grad_(True)
    unused = {"pooler", "mlm", "nsp"} - set(trained_parts(data))
    for name, parameter in model.named_parameters():
        if part_of(name) in unused:
            parameter.requires_grad_(False)
