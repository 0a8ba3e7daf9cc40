"""A model of texts with codes as a workload for the training loop: masked pieces, masked codes, and alignment.

The loss of a step is the cross-entropy of the masked positions, texts and codes alike, plus that of the alignment of
the rows with both, each divided by its count in the step. Misaligned rows are masked like all others, so that masks do
not tell them apart, but their masked positions do not count: they would teach that text and codes have nothing to do
with each other.

Letters: M predicted positions, N rows of a micro-batch.

Source: Sun et al. (2019), "VideoBERT", section 3.2.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bertsmith.base.machine.runtime import ALONE, Rank, Runtime
from bertsmith.models.heads.encoder_with_head import EncoderForPreTraining, PreTrainingOutput
from bertsmith.models.parts.noise import Noise, noise_for
from bertsmith.recipes.video.growth import CodePieces
from bertsmith.recipes.video.rows import (
    MISALIGNED,
    NO_LABEL,
    EncodedSegments,
    RowDrawer,
    VideoRow,
    held_out_rows,
    training_rows,
)
from bertsmith.recipes.video.settings import VideoSettings
from bertsmith.text.tokenizers.tokenizer import Tokenizer
from bertsmith.training.loop.lanes import count_lanes
from bertsmith.training.loop.workload import StepPlan, Workload
from bertsmith.training.pretraining.batch import PretrainingBatch
from bertsmith.training.pretraining.losses import negative_log_likelihood
from bertsmith.training.pretraining.masking import Masker
from bertsmith.training.pretraining.micro_batches import RowsWithTargets

TERMS = ("text", "codes", "alignment")


class VideoBatch(NamedTuple):
    """A micro-batch.

    Attributes:
        judged: int64 [n], the indices of the rows with a label.
        counted: bool [M], whether a masked position is in the loss.
        step_judged, step_counted: how many of them there are in the whole step.
    """

    batch: PretrainingBatch
    judged: Tensor
    counted: Tensor
    step_judged: int
    step_counted: int


class VideoTraining(Workload):
    """The workload that trains a model of texts with codes.

    Args:
        dev: segments for evaluation.
        seed: of all draws.
    """

    model: EncoderForPreTraining

    def __init__(
        self,
        model: EncoderForPreTraining,
        tokenizer: Tokenizer,
        codes: CodePieces,
        segments: EncodedSegments,
        dev: EncodedSegments,
        runtime: Runtime,
        settings: VideoSettings,
        seed: int,
    ) -> None:
        self.model, self.runtime, self.precision = model.to(runtime.torch_device), runtime, runtime.precision
        self.tokenizer, self.codes, self.settings, self.seed = tokenizer, codes, settings, seed
        self.lanes = count_lanes(self.model)
        self._drawer = RowDrawer(segments, settings, seed)
        self._held_out = held_out_rows(dev, settings.evaluation_rows, seed)
        self._find_targets = Masker(tokenizer.vocabulary, settings, fixed=[codes.first - 1]).mask_rows

    def recompute(self) -> None:
        """See `Encoder.recompute_layers`."""
        self.model.encoder.recompute_layers()

    def plan(self, step: int, rank: int, world: int) -> StepPlan:
        """The micro-batches of a step; a pure function of the step."""
        work = self._with_targets(self._drawer.step_rows(step), step)
        micro_batches = self._batches(work, self.lanes)
        tokens = int(work.rows.lengths.sum())
        return StepPlan(micro_batches=micro_batches, tokens=tokens, sequences=len(work.rows.lengths))

    def loss(self, model: nn.Module, micro_batch: VideoBatch) -> tuple[Tensor, dict[str, Tensor]]:
        """A micro-batch's contribution to the loss of its step, and sums for the log."""
        batch = micro_batch.batch
        return self._losses(
            model, micro_batch, noise_for(self.seed, batch.step, batch.batch.row_ids, self.runtime.torch_device)
        )

    def summarize(self, sums: Mapping[str, float]) -> dict[str, float]:
        """Loss in nats and accuracy of masked pieces, masked codes and alignment, and the sum of the losses."""
        figures: dict[str, float] = {"loss": 0.0}
        for term in TERMS:
            if count := sums.get(f"{term}_count"):
                figures |= {f"{term}_loss": sums[f"{term}_nll"] / count}
                figures |= {f"{term}_accuracy": sums[f"{term}_correct"] / count}
        predicted = sum(sums.get(f"{term}_count", 0) for term in ("text", "codes"))
        if predicted:
            figures["loss"] = sum(sums[f"{term}_nll"] for term in ("text", "codes")) / predicted
        figures["loss"] += figures.get("alignment_loss", 0.0)
        return figures

    def higher_is_better(self) -> dict[str, bool]:
        """The figures of `evaluate` that can select a model."""
        if not self._held_out:
            return {}
        return {"loss": False} | {
            f"{term}_{name}": up for term in TERMS for name, up in (("loss", False), ("accuracy", True))
        }

    @torch.no_grad()
    def evaluate(self, model: nn.Module, rank: Rank = ALONE) -> dict[str, float]:
        """The figures on held-out segments: of masked pieces and codes, of alignment on true and false pairs.

        `text_alone_loss` and `text_alone_accuracy` are of the same texts without codes, the baseline of the language.
        """
        sums: dict[str, dict[str, float]] = {}
        for name, rows in self._held_out.items():
            total = sums.setdefault(name, {})
            for micro_batch in self._batches(self._with_targets(rows, 0), 1):
                for key, figure in self._losses(model, micro_batch, None)[1].items():
                    total[key] = total.get(key, 0.0) + float(figure)
        if "aligned" not in sums:
            return {}
        both = dict(sums["aligned"])
        for key, value in sums.get("misaligned", {}).items():
            if key.startswith("alignment"):
                both[key] += value
        alone = self.summarize(sums["alone"])
        more = {f"text_alone_{name}": alone[f"text_{name}"] for name in ("loss", "accuracy") if f"text_{name}" in alone}
        return {**self.summarize(both), **more}

    def _with_targets(self, rows: Sequence[VideoRow], step: int) -> RowsWithTargets:
        limit = self.model.encoder.max_tokens
        flat = training_rows(rows, self.tokenizer, self.codes, min(self.settings.max_length, limit), limit)
        return RowsWithTargets(flat, self._find_targets, pairs=True, step=step)

    def _batches(self, work: RowsWithTargets, lanes: int) -> list[VideoBatch]:
        parts = work.cut(self.runtime.training_tokens, lanes=lanes)
        labels, per_row, device = work.rows.labels, work.targets.per_row, self.runtime.torch_device
        step_judged, step_counted = int((labels != NO_LABEL).sum()), int(per_row[labels != MISALIGNED].sum())
        batches = []
        for part, batch in zip(parts, work.batches(parts, self.runtime.device), strict=True):
            judged = torch.from_numpy(np.flatnonzero(labels[part] != NO_LABEL)).to(device)
            counted = torch.from_numpy(np.repeat(labels[part] != MISALIGNED, per_row[part])).to(device)
            batches.append(VideoBatch(batch, judged, counted, step_judged, step_counted))
        return batches

    def _losses(self, model: nn.Module, part: VideoBatch, noise: Noise | None) -> tuple[Tensor, dict[str, Tensor]]:
        batch = part.batch
        assert batch.first is not None and batch.labels is not None and batch.targets is not None  # noqa: PT018
        output: PreTrainingOutput = model(
            batch.batch,
            read=batch.read,
            masked=batch.predicted,
            first=batch.first[part.judged],
            noise=noise,
            dtype=self.runtime.dtype,
        )
        assert output.mlm_logits is not None and output.nsp_logits is not None  # noqa: PT018
        logits = output.mlm_logits.float() if self.precision != "fp64" else output.mlm_logits
        nll = F.cross_entropy(logits, batch.targets, reduction="none") * part.counted
        right = logits.detach().argmax(-1) == batch.targets
        is_code = batch.targets >= self.codes.first
        sums: dict[str, Tensor] = {}
        for term, chosen in (("text", part.counted & ~is_code), ("codes", part.counted & is_code)):
            sums[f"{term}_nll"] = (nll.detach() * chosen).sum()
            sums[f"{term}_correct"] = (right & chosen).sum()
            sums[f"{term}_count"] = chosen.sum()
        alignment = negative_log_likelihood(output.nsp_logits, batch.labels[part.judged], "alignment", sums)
        loss = nll.sum() / max(1, part.step_counted) + alignment / max(1, part.step_judged)
        return loss, sums
