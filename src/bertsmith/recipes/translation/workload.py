"""Translation as a workload for the training loop.

Letters: T target tokens of a micro-batch, V vocabulary.

A step is a fixed list of pairs, a function of (seed, step): each epoch has an order of its own. Losses are divided by
the target pieces of the whole step, so the gradient is the same however the step is split.

Source: Vaswani et al. (2017), section 5; Szegedy et al. (2016), "Rethinking the Inception Architecture", section 7, for
label smoothing.
"""

import dataclasses
import functools
from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bertsmith.base.core.progress import Progress
from bertsmith.base.core.randomness import generator
from bertsmith.base.machine.runtime import ALONE, Rank, Runtime
from bertsmith.models.parts.batch import Batch, cut_by_tokens
from bertsmith.models.parts.encoder_decoder import EncoderDecoder
from bertsmith.models.parts.noise import noise_for
from bertsmith.recipes.translation.decoding import translate
from bertsmith.recipes.translation.pairs import EncodedPairs, Pair
from bertsmith.recipes.translation.settings import SearchSettings, TranslationSettings
from bertsmith.tasks.metrics.bleu import corpus_bleu
from bertsmith.text.tokenizers.tokenizer import Tokenizer
from bertsmith.training.loop.workload import StepPlan, Workload
from bertsmith.training.pretraining.losses import negative_log_likelihood

_TERM = "piece"


@dataclasses.dataclass(frozen=True, kw_only=True)
class PairBatch:
    """A micro-batch of pairs.

    Attributes:
        source: the source texts.
        target: the target texts without their last token; `row_ids` are the positions of the pairs in the step.
        gold: int64 [T], the token that follows each.
        step: the step, counted from 0.
        step_targets: target pieces in the whole step.
    """

    source: Batch
    target: Batch
    gold: Tensor
    step: int
    step_targets: int


class TranslationTraining(Workload):
    """The workload that trains an encoder-decoder on pairs.

    Args:
        dev: pairs for evaluation with their ids, or None.
        tokenizer: of both sides.
        seed: of the order of the pairs and of dropout.
    """

    model: EncoderDecoder

    def __init__(
        self,
        model: EncoderDecoder,
        pairs: EncodedPairs,
        dev: tuple[Sequence[Pair], EncodedPairs] | None,
        tokenizer: Tokenizer,
        runtime: Runtime,
        settings: TranslationSettings,
        seed: int,
    ) -> None:
        self.model = model.to(runtime.torch_device)
        self.pairs, self.dev, self.tokenizer = pairs, dev, tokenizer
        self.runtime, self.settings, self.seed = runtime, settings, seed
        self.precision = runtime.precision
        self._order = functools.lru_cache(maxsize=2)(self._order_of_epoch)

    def plan(self, step: int, rank: int, world: int) -> StepPlan:
        """The pairs of a rank in a step; a pure function of the step."""
        size = self.settings.rows_per_step
        places = np.arange(step * size, (step + 1) * size)
        epochs, within = np.divmod(places, len(self.pairs))
        rows = [int(self._order(int(epoch))[index]) for epoch, index in zip(epochs, within, strict=True)]
        batches = self._micro_batches(self.pairs, rows, step, rank, world)
        tokens = sum(len(self.pairs.sources[row]) + len(self.pairs.targets[row]) for row in rows)
        return StepPlan(micro_batches=batches, tokens=tokens, sequences=size)

    def loss(self, model: nn.Module, micro_batch: PairBatch) -> tuple[Tensor, dict[str, Tensor]]:
        """A micro-batch's contribution to the loss of its step, with smoothed labels, and sums for the log without."""
        batch = micro_batch.target
        noise = noise_for(self.seed, micro_batch.step, batch.row_ids, self.runtime.torch_device)
        logits = model(micro_batch.source, batch, noise=noise, dtype=self.runtime.dtype)
        sums: dict[str, Tensor] = {}
        total = negative_log_likelihood(logits, micro_batch.gold, _TERM, sums)
        if smoothing := self.settings.label_smoothing:
            exact = logits if logits.dtype == torch.float64 else logits.float()
            total = F.cross_entropy(exact, micro_batch.gold, reduction="sum", label_smoothing=smoothing)
        return total / micro_batch.step_targets, sums

    def summarize(self, sums: Mapping[str, float]) -> dict[str, float]:
        """Loss in nats for each target piece, without the smoothing, and the share of pieces that are right."""
        count = sums[f"{_TERM}_count"]
        return {"loss": sums[f"{_TERM}_nll"] / count, "accuracy": sums[f"{_TERM}_correct"] / count}

    def higher_is_better(self) -> dict[str, bool]:
        """The figures of `evaluate` that can select a model; none without dev pairs."""
        return {} if self.dev is None else {"loss": False, "accuracy": True, "perplexity": False, "bleu": True}

    @property
    def scored_pairs(self) -> int:
        """The number of dev pairs that `evaluate` reads, the first ones of the file."""
        return 0 if self.dev is None else min(self.settings.evaluation_pairs, len(self.dev[1]))

    @torch.no_grad()
    def evaluate(self, model: nn.Module, rank: Rank = ALONE) -> dict[str, float]:
        """Loss, accuracy and perplexity on dev pairs given the right pieces before, and BLEU of greedy translations."""
        if self.dev is None:
            return {}
        texts, pairs = self.dev
        rows = list(range(self.scored_pairs))
        sums: dict[str, float] = {}
        with Progress("evaluating", total=len(rows), unit="pairs") as progress:
            for batch in self._micro_batches(pairs, rows, 0, 0, 1):
                totals: dict[str, Tensor] = {}
                logits = model(batch.source, batch.target, dtype=self.runtime.dtype)
                negative_log_likelihood(logits, batch.gold, _TERM, totals)
                for name, value in totals.items():
                    sums[name] = sums.get(name, 0.0) + float(value)
                progress.advance(batch.target.num_rows)
        figures = self.summarize(sums)
        figures["perplexity"] = float(np.exp(figures["loss"]))
        chosen = texts[: len(rows)]
        return figures | {
            "bleu": bleu_of(self.model, self.tokenizer, chosen, SearchSettings(beam=1), self.runtime.dtype)
        }

    def _order_of_epoch(self, epoch: int) -> npt.NDArray[np.int64]:
        return generator(self.seed, "order of pairs", epoch).permutation(len(self.pairs))

    def _micro_batches(
        self, pairs: EncodedPairs, rows: Sequence[int], step: int, rank: int, world: int
    ) -> list[PairBatch]:
        """The pairs of a rank, sorted by length and split by tokens."""
        sources, targets = [pairs.sources[row] for row in rows], [pairs.targets[row] for row in rows]
        lengths = np.array([(len(source), len(target)) for source, target in zip(sources, targets, strict=True)])
        order = np.lexsort((lengths[:, 0], lengths[:, 1]))[rank::world]
        batches, device = [], self.runtime.torch_device
        for part in cut_by_tokens(order, lengths.sum(axis=1), self.settings.micro_tokens):
            chosen = part.tolist()
            gold = np.concatenate([targets[row][1:] for row in chosen])
            batches.append(
                PairBatch(
                    source=Batch.from_rows([sources[row] for row in chosen], chosen, device),
                    target=Batch.from_rows([targets[row][:-1] for row in chosen], chosen, device),
                    gold=torch.from_numpy(gold.astype(np.int64)).to(device),
                    step=step,
                    step_targets=int(lengths[:, 1].sum()) - len(rows),
                )
            )
        return batches


def bleu_of(
    model: EncoderDecoder,
    tokenizer: Tokenizer,
    pairs: Sequence[Pair],
    settings: SearchSettings,
    dtype: torch.dtype | None = None,
) -> float:
    """BLEU of the translations of pairs; see `corpus_bleu`."""
    translations = translate(model, tokenizer, [source for source, _ in pairs], settings, dtype=dtype)
    return corpus_bleu([translation.text for translation in translations], [[target] for _, target in pairs])
