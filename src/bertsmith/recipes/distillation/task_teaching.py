"""Distillation on a task: soft targets, labels, and optionally hidden states and attention.

Source: Hinton, Vinyals and Dean (2015), "Distilling the Knowledge in a Neural Network", section 2; Jiao et al. (2020),
"TinyBERT", section 3.1.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from bertsmith.base.core.errors import ConfigError
from bertsmith.base.processes.sharding import divide_part
from bertsmith.models.checkpoints.model_folder import ModelFolder
from bertsmith.models.heads.encoder_with_head import EncoderForTask
from bertsmith.models.parts.encoder import Encoder, Trace
from bertsmith.models.parts.layers import ScaledLinear, initialize
from bertsmith.models.parts.part_names import PROJECTION
from bertsmith.recipes.distillation.losses import attention_loss, layer_map, state_loss
from bertsmith.recipes.distillation.settings import DistillationSettings
from bertsmith.recipes.finetuning.workload import mean_of_units
from bertsmith.tasks.encoding.units import Logits, TaskBatch
from bertsmith.tasks.specs.task import with_loss
from bertsmith.training.loop.teaching import Teaching

if TYPE_CHECKING:
    from bertsmith.recipes.finetuning.job import FinetuningJob

_LOSS = "a loss of states or attention"
_LEAVE_OUT = "leave --state-weight, --attention-weight and --first-stage out"


class TaskTeaching(Teaching):
    """The loss of a student on a task: w_s soft targets + w_l labels + w_h states + w_a attention.

    Args:
        logits: of the teacher, float32 [R, K].
        encoder: that of the teacher, on the device of the job; needed for states and attention.
    """

    def __init__(
        self,
        job: "FinetuningJob",
        logits: Logits,
        settings: DistillationSettings,
        digests: Mapping[str, str],
        origin: Mapping[str, Any],
        encoder: Encoder | None = None,
    ) -> None:
        assert len(logits) == job.train.num_read, "logits of the rows of the job"
        self._job, self._settings, self.digests = job, settings, digests
        names = ("temperature", "soft_weight", "label_weight", "state_weight", "attention_weight")
        self.record = {name: getattr(settings, name) for name in names}
        self.origin = {**origin, **self.record}
        self._task = with_loss(job.task)
        self._logits = torch.from_numpy(logits).to(job.runtime.torch_device)
        self.needs_states = settings.has_states
        self._encoder = encoder if self.needs_states else None
        self._pairs: tuple[tuple[int, int], ...] = ()
        if self.needs_states:
            assert encoder is not None, "the teacher, whose states are compared"
            self._pairs = state_pairs(job, encoder, settings)

    def prepare(self, model: nn.Module, seed: int) -> None:
        """Adds the projection, if states of another width are compared."""
        if not self._settings.state_weight:
            return
        assert isinstance(model, EncoderForTask)
        assert self._encoder is not None
        add_projection(model, self._encoder.width, seed)

    def new_trace(self) -> Trace | None:
        """A trace with hidden states, and with queries and keys if attention is compared."""
        return Trace(with_queries=self._settings.attention_weight > 0) if self.needs_states else None

    def loss(
        self, model: nn.Module, micro_batch: Any, output: Any, trace: Any, workload_loss: Tensor
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """See `Teaching.loss`; the output is the logits [r, K]."""
        assert isinstance(micro_batch, TaskBatch)
        settings, job = self._settings, self._job
        wanted = self._logits[torch.from_numpy(micro_batch.chosen).to(self._logits.device)]
        soft = self._task.soft_loss(output, wanted, micro_batch, settings.temperature)
        loss = settings.label_weight * workload_loss + settings.soft_weight * soft / micro_batch.step_targets
        sums = {"soft": soft.detach(), "taught_units": torch.tensor(micro_batch.num_units, device=soft.device)}
        if trace is None:
            return loss, sums
        assert self._encoder is not None
        batch, theirs = micro_batch.batch, Trace(with_queries=trace.with_queries)
        with torch.no_grad():
            self._encoder(batch, dtype=job.runtime.dtype, trace=theirs)
        parts: dict[str, Tensor] = {}
        if settings.state_weight:
            projection = getattr(model, PROJECTION, None)
            of_rows = state_loss(trace.hidden_states, theirs.hidden_states, self._pairs, batch.lengths, projection)
            parts["states"] = settings.state_weight * mean_of_units(of_rows, micro_batch).sum()
        if settings.attention_weight:
            heads = self._encoder.config.num_attention_heads
            of_rows = attention_loss(trace.queries, theirs.queries, self._pairs, batch.runs, heads)
            parts["attention"] = settings.attention_weight * mean_of_units(of_rows, micro_batch).sum()
        for name, part in parts.items():
            loss = loss + part / job.settings.batch_size
            sums[name] = part.detach()
        return loss, sums

    def figures(self, sums: Mapping[str, float]) -> dict[str, float]:
        """The losses against the teacher for each example: soft targets unweighted, the others with their weights."""
        count = sums.get("taught_units", 0.0)
        names = [name for name in ("soft", "states", "attention") if name in sums]
        return {f"{name}_loss": sums[name] / count for name in names} if count else {}


def state_pairs(job: "FinetuningJob", teacher: Encoder, settings: DistillationSettings) -> tuple[tuple[int, int], ...]:
    """The hidden states that are compared, after checking that student and teacher have comparable ones."""
    if job.head.reads_apart or job.settings.freeze == "body":
        needed = "a student that reads whole rows, with layers to train"
        raise ConfigError.needs(_LOSS, needed, "use --reads pair or mean, and no --freeze body")
    return comparable(job.folder.config, teacher.config, attention=settings.attention_weight > 0)


def comparable(student: Any, teacher: Any, *, attention: bool) -> tuple[tuple[int, int], ...]:
    """The layer map of two configurations, after checking the heads where attention is compared."""
    if not (student.has_attention and teacher.has_attention):
        needed = f"two Transformers, not a {student.display_name} and a {teacher.display_name}"
        raise ConfigError.needs(_LOSS, needed, _LEAVE_OUT)
    if student.is_causal or teacher.is_causal:
        raise ConfigError.needs(_LOSS, "bidirectional models", _LEAVE_OUT)
    ours, theirs = student.num_attention_heads, teacher.num_attention_heads
    if attention and ours != theirs:
        fix = f"choose a width that {theirs} heads divide, or leave the loss of attention out"
        raise ConfigError.must_be("heads of the student", f"{theirs}, the attention heads of its teacher", ours, fix)
    return layer_map(student.num_hidden_layers, teacher.num_hidden_layers)


def add_projection(model: nn.Module, width: int, seed: int) -> None:
    """Adds a linear layer from the width of a model to that of its teacher, unless they are equal."""
    inputs = model.config.hidden_size  # type: ignore[union-attr]
    if inputs == width:
        return
    assert isinstance(inputs, int)
    model.add_module(PROJECTION, ScaledLinear(inputs, width))
    initialize(model, 0.02, seed, {f"{PROJECTION}.weight", f"{PROJECTION}.bias"})
    divide_part(model, model.get_submodule(PROJECTION))


def summary_of(teacher: ModelFolder | Encoder) -> str:
    """The teacher in words, for metadata that may travel: no path."""
    return f"{teacher.config.display_name}, {teacher.config.shape_in_words}"
