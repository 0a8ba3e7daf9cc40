"""The forward pass of evaluation and prediction in torch: from encoded examples to logits in the same order."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, cast

import numpy as np
import torch

from bertsmith.base.machine.runtime import ALONE, Rank, Runtime
from bertsmith.base.processes.sharding import is_divided
from bertsmith.models.heads.encoder_with_head import EncoderForPreTraining, EncoderForTask
from bertsmith.models.parts.batch import Batch, Read
from bertsmith.tasks.encoding.engine import (
    BACKWARD_LM,
    MASKED,
    MASKED_LM,
    NEXT,
    NEXT_SENTENCE,
    PREVIOUS,
    TASK,
    Engine,
)
from bertsmith.tasks.encoding.frozen import FrozenEncoder
from bertsmith.tasks.encoding.units import EncodedExamples, Logits, RowPart
from bertsmith.tasks.encoding.writing import Writing
from bertsmith.text.tokenizers.encoded import Ids
from bertsmith.text.tokenizers.tokenizer import Tokenizer

if TYPE_CHECKING:
    from bertsmith.models.parts.memory import Memory

Model = EncoderForTask | EncoderForPreTraining


class TorchEngine(Engine):
    """A model in torch.

    Args:
        model: an encoder with the head of a task, or with those of pre-training.
        runtime: device and precision.
    """

    def __init__(self, model: Model, runtime: Runtime) -> None:
        super().__init__(runtime)
        self._model = model.to(runtime.torch_device)
        # What a divided model gathers in inference mode could not be trained afterwards.
        self._without_gradients = torch.no_grad if is_divided(model) else torch.inference_mode

    @property
    def model(self) -> Model:
        """The encoder with its heads."""
        return self._model

    @property
    def hooked(self) -> tuple[torch.nn.Module, ...]:
        """See `Engine`."""
        return self._model.hooked

    @property
    def max_tokens(self) -> int:
        """See `Engine`."""
        return self._model.encoder.max_tokens

    @property
    def predicts(self) -> str:
        """See `Engine`; of a model that reads in two directions, what its forward half predicts."""
        config = self._model.config
        if config.reads_backward:
            return PREVIOUS
        return NEXT if config.is_causal or config.two_directions else MASKED

    @property
    def directions(self) -> tuple[str, ...]:
        """See `Engine`."""
        return (NEXT, PREVIOUS) if self._model.config.two_directions else super().directions

    def width(self, head: str) -> int:
        """See `Engine`."""
        if head == TASK:
            return cast("EncoderForTask", self._model).outputs
        pieces = self._model.config.vocab_size
        return {MASKED_LM: pieces, BACKWARD_LM: pieces, NEXT_SENTENCE: 2}[head]

    def compute(self, part: RowPart, head: str) -> Logits:
        """See `Engine`."""
        model, dtype = self._model, self.runtime.dtype
        with self._without_gradients():
            if part.features.writing is not None:
                return self._written(part, part.features.writing)
            gathered = part.gather(self.runtime.device)
            if isinstance(model, EncoderForTask):
                assert head == TASK, head
                logits = model(gathered.batch, read=gathered.read, dtype=dtype)
            else:
                # Only what the head reads is in the last hidden states.
                every = torch.arange(len(part.chosen), device=self.runtime.torch_device)
                positions, name = {
                    MASKED_LM: ("masked", "mlm_logits"),
                    BACKWARD_LM: ("backward", "backward_logits"),
                    NEXT_SENTENCE: ("first", "nsp_logits"),
                }[head]
                logits = getattr(model(gathered.batch, read=gathered.read, dtype=dtype, **{positions: every}), name)
            return cast("Logits", logits.float().cpu().numpy())

    def _written(self, part: RowPart, writing: Writing) -> Logits:
        """The answers of a head that writes for some rows, as numbers, [n, width]."""
        from bertsmith.tasks.encoding.generation import write_texts

        rows = [part.features.rows.row(number)[0] for number in part.rows.tolist()]
        model, device = cast("EncoderForTask", self._model), self.runtime.device
        limits = [min(writing.longest, self.max_tokens - 1)] * len(rows)
        guides = part.features.guides
        texts = write_texts(
            model,
            rows,
            limits,
            writing,
            guides=None if guides is None else [guides[number] for number in part.rows.tolist()],
            device=device,
            dtype=self.runtime.dtype,
        )
        return np.stack([writing.as_numbers(answers) for answers in texts])

    def new_memory(self) -> "Memory | None":
        """See `Engine`."""
        from bertsmith.models.parts.memory import Memory

        return None if self.predicts == MASKED else Memory()

    @torch.inference_mode()
    def next_logits(self, rows: Sequence[Ids], memory: "Memory | None" = None) -> Logits:
        """See `Engine`."""
        if memory is None:
            return super().next_logits(rows)
        model = self._model
        assert isinstance(model, EncoderForPreTraining), "a model with a head for pieces"
        batch = Batch.from_rows(rows, device=self.runtime.device)
        every = torch.arange(len(rows), device=self.runtime.torch_device)
        dtype = self.runtime.dtype
        output = model(batch, read=Read.last(batch), masked=every, dtype=dtype, memory=memory)
        return cast("Logits", output.mlm_logits.float().cpu().numpy())

    def encoder(self, tokenizer: Tokenizer, parts: tuple[str, ...] | None = None) -> FrozenEncoder:
        """See `Engine`."""
        has_pooler = cast("EncoderForTask", self._model).head.on_pooler if parts is None else "pooler" in parts
        return FrozenEncoder(self._model.encoder, tokenizer, self.runtime, has_pooler=has_pooler)


def task_logits(
    model: EncoderForTask,
    features: EncodedExamples,
    runtime: Runtime,
    micro_tokens: int | None = None,
    advance: Callable[[float], None] | None = None,
    rank: Rank = ALONE,
) -> Logits:
    """The logits of all positions that the head of a model in torch reads; see `Engine.logits`."""
    return TorchEngine(model, runtime).logits(features, TASK, micro_tokens, advance, rank)
