"""Distillation from a pre-trained teacher on plain text: the losses of DistilBERT and of TinyBERT.

DistilBERT: 5 T^2 KL of the pieces at masked positions, 2 masked LM, 1 cosine of the last hidden states, T = 2.
TinyBERT: squared errors of embeddings, hidden states and attention scores, with no prediction at all. Losses of states
are means over the tokens of a row, then over the rows of a step.

Source: Sanh et al. (2019), "DistilBERT, a distilled version of BERT", section 2, and the command line in the README of
the released code; Jiao et al. (2020), "TinyBERT", sections 3.1 and 3.2.
"""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from bertsmith.base.core.settings import require, to_dict
from bertsmith.models.heads.encoder_with_head import EncoderForPreTraining, PreTrainingOutput
from bertsmith.models.parts.config import EncoderConfig
from bertsmith.models.parts.encoder import Trace
from bertsmith.models.parts.part_names import PROJECTION
from bertsmith.recipes.distillation.losses import attention_loss, cosine_loss, state_loss
from bertsmith.recipes.distillation.settings import CorpusDistillationSettings
from bertsmith.recipes.distillation.task_teaching import add_projection, comparable
from bertsmith.tasks.specs.soft_targets import divergence
from bertsmith.training.loop.teaching import Teaching
from bertsmith.training.pretraining.batch import PretrainingBatch


class CorpusTeaching(Teaching):
    """The loss of a student on plain text.

    Args:
        teacher: the teacher with its masked-LM head, on the device, in evaluation mode.
        dtype: of the teacher's products.
    """

    needs_states = True

    def __init__(
        self,
        teacher: EncoderForPreTraining,
        student: EncoderConfig,
        settings: CorpusDistillationSettings,
        digest: str,
        origin: Mapping[str, Any],
        dtype: torch.dtype,
    ) -> None:
        self._teacher, self._settings, self._dtype = teacher, settings, dtype
        self.record, self.digests = to_dict(settings), {"teacher": digest}
        self.origin = {**origin, "method": settings.method}
        self.trains_own = settings.is_distilbert and settings.mlm_weight + settings.soft_weight > 0
        config = teacher.config
        self._pairs: tuple[tuple[int, int], ...] = ()
        if not settings.is_distilbert:
            self._pairs = comparable(student, config, attention=settings.attention_weight > 0)
        elif settings.cosine_weight:
            require(
                student.hidden_size == config.hidden_size,
                expected=f"a student as wide as its teacher ({config.hidden_size}), to compare their states by cosine",
                found=f"a width of {student.hidden_size}",
                fix="use --student layers or --method tinybert",
            )

    def prepare(self, model: nn.Module, seed: int) -> None:
        """Adds the projection, if states of another width are compared."""
        if self._pairs and self._settings.state_weight:
            add_projection(model, self._teacher.encoder.width, seed)

    def new_trace(self) -> Trace | None:
        """What TinyBERT compares; the last hidden states of DistilBERT are in the output of the model."""
        return None if self._settings.is_distilbert else Trace(with_queries=self._settings.attention_weight > 0)

    def loss(
        self, model: nn.Module, micro_batch: Any, output: Any, trace: Any, workload_loss: Tensor
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """See `Teaching.loss`."""
        assert isinstance(micro_batch, PretrainingBatch)
        assert isinstance(output, PreTrainingOutput)
        if trace is None:
            loss, parts = self._distilbert(micro_batch, output, workload_loss)
        else:
            loss, parts = self._tinybert(model, micro_batch, trace, workload_loss)
        rows = torch.tensor(micro_batch.batch.num_rows, device=loss.device)
        return loss, {**{name: part.detach() for name, part in parts.items()}, "taught_rows": rows}

    def _distilbert(
        self, batch: PretrainingBatch, output: PreTrainingOutput, workload_loss: Tensor
    ) -> tuple[Tensor, dict[str, Tensor]]:
        settings, lengths = self._settings, batch.batch.lengths
        with torch.no_grad():
            theirs = self._teacher(batch.batch, masked=batch.predicted_positions, dtype=self._dtype)
        loss, parts = settings.mlm_weight * workload_loss, dict[str, Tensor]()
        if settings.soft_weight:
            assert output.mlm_logits is not None
            soft = divergence(output.mlm_logits, theirs.mlm_logits, settings.temperature).sum()
            loss = loss + settings.soft_weight * soft / max(1, batch.step_predictions)
            parts |= {"soft": soft, "soft_count": torch.tensor(len(theirs.mlm_logits), device=soft.device)}
        if settings.cosine_weight:
            cosine = cosine_loss(output.hidden, theirs.hidden, lengths).sum()
            loss = loss + settings.cosine_weight * cosine / batch.step_rows
            parts["cosine"] = cosine
        return loss, parts

    def _tinybert(
        self, model: nn.Module, batch: PretrainingBatch, trace: Trace, workload_loss: Tensor
    ) -> tuple[Tensor, dict[str, Tensor]]:
        settings, rows = self._settings, batch.batch
        theirs = Trace(with_queries=trace.with_queries)
        with torch.no_grad():
            self._teacher.encoder(rows, dtype=self._dtype, trace=theirs)
        loss, parts = 0.0 * workload_loss, dict[str, Tensor]()
        if settings.state_weight:
            projection = getattr(model, PROJECTION, None)
            states = state_loss(trace.hidden_states, theirs.hidden_states, self._pairs, rows.lengths, projection)
            parts["states"] = states.sum()
            loss = loss + settings.state_weight * parts["states"] / batch.step_rows
        if settings.attention_weight:
            heads = self._teacher.config.num_attention_heads
            parts["attention"] = attention_loss(trace.queries, theirs.queries, self._pairs, rows.runs, heads).sum()
            loss = loss + settings.attention_weight * parts["attention"] / batch.step_rows
        return loss, parts

    def figures(self, sums: Mapping[str, float]) -> dict[str, float]:
        """The losses against the teacher without their weights: soft targets per prediction, others per row."""
        rows, means = sums.get("taught_rows", 0.0), {}
        if not rows:
            return {}
        if sums.get("soft_count"):
            means["soft_loss"] = sums["soft"] / sums["soft_count"]
        return means | {f"{name}_loss": sums[name] / rows for name in ("cosine", "states", "attention") if name in sums}
