"""A fine-tuned model that answers: the task of its passport, read, cut and decoded as in training.

Letters: R positions that the head reads, K outputs of the head.
"""

import bisect
import dataclasses
import functools
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

from bertsmith.checkpoints.assembly import load_for_task
from bertsmith.checkpoints.load import load_any
from bertsmith.checkpoints.model_folder import ModelFolder
from bertsmith.datasets.blocks import characters_of, sized_blocks
from bertsmith.datasets.examples import Example
from bertsmith.encoding.forward import task_logits
from bertsmith.errors import BertsmithError, InputError
from bertsmith.model.heads import EncoderForTask, OwnHead
from bertsmith.model.prepared import prepare
from bertsmith.progress import Progress
from bertsmith.runtime import Runtime, choose_inference
from bertsmith.tasks.kinds import task_for
from bertsmith.tasks.spec_of_model import require_spec
from bertsmith.tasks.task import Prediction, Task
from bertsmith.text.tokenizer import Tokenizer

BLOCK = 1024  # examples that are read, sorted by length and answered together


class Predictor:
    """A fine-tuned model with its task.

    Args:
        model: encoder and head.
        task: what the outputs mean.
        tokenizer: of the model.
        runtime: device and precision.
    """

    def __init__(self, model: EncoderForTask, task: Task, tokenizer: Tokenizer, runtime: Runtime) -> None:
        self.model = model.to(runtime.torch_device).eval()
        self.task, self.tokenizer, self.runtime = task, tokenizer, runtime

    @staticmethod
    def load(
        source: str | Path | ModelFolder,
        *,
        device: str = "auto",
        precision: str = "fp32",
        kept: Sequence[str] | None = None,
        head: type[OwnHead] | None = None,
    ) -> "Predictor":
        """The predictor of a model folder, ours or one of `transformers`, or of a Google checkpoint with a head.

        Args:
            kept: with int8, the linear layers that stay higher; those that `bertsmith quantize` noted if not given.
            head: the class of the user's head with which the model was fine-tuned, if it was.

        Raises:
            CheckpointError: the model has no head of a task, or another one, or cannot be read.
            ConfigError: `head` is no class of a head.
        """
        folder = source if isinstance(source, ModelFolder) else load_any(source)
        spec = require_spec(folder)
        runtime = choose_inference(device, precision)
        runtime.tell()
        task = task_for(spec)
        loaded = load_for_task(folder, dataclasses.replace(task.head, own=head), keep_head=True)
        prepare(
            loaded.model.to(runtime.torch_device),
            runtime,
            folder.metadata.kept_layers(folder.path) if kept is None else kept,
        )
        return Predictor(loaded.model, task, loaded.tokenizer, runtime)

    def predict(self, examples: Sequence[Example], advance: Callable[[float], None] | None = None) -> list[Prediction]:
        """One prediction an example, in their order; gold labels, where there are any, are not looked at.

        Args:
            advance: as of `task_logits`.

        Raises:
            InputError: an example cannot be read by this task; the message names it.
        """
        if not examples:
            return []
        self.task.check(examples, gold=False)
        features = self.task.encode(examples, self.tokenizer)
        logits = task_logits(self.model, features, self.runtime, advance=advance)
        return list(self.task.decode(examples, features, logits, self.tokenizer))

    def stream(
        self, examples: Iterable[Example], block: int = BLOCK, total: int | None = None
    ) -> Iterator[tuple[Example, Prediction]]:
        """Each example with its prediction, in order, a block in memory at a time.

        Args:
            block: examples of a block at most; those of many characters have blocks of fewer.
            total: how many there are, for the time left; None where nobody knows.

        Raises:
            BertsmithError: what `examples` or `predict` raise, after all examples before it were answered.
        """
        errors: list[BertsmithError] = []

        def until_error() -> Iterator[Example]:
            try:
                yield from examples
            except BertsmithError as error:
                errors.append(error)

        def advance(size: int, share: float) -> None:
            progress.advance(share * size)

        with Progress("predicting", total, unit="texts", how=self.runtime.precision) as progress:
            for part in sized_blocks(until_error(), characters_of, block):
                try:
                    predictions = self.predict(part, functools.partial(advance, len(part)))
                except InputError as error:
                    errors.append(error)
                    part = part[: self._num_readable(part)]
                    predictions = self.predict(part, functools.partial(advance, len(part)))
                yield from zip(part, predictions, strict=True)
                if errors:
                    break
            if errors:
                raise errors[-1]

    def _num_readable(self, examples: Sequence[Example]) -> int:
        """How many examples stand before the first that cannot be read; one cannot."""

        def fails(count: int) -> bool:
            try:
                self.task.check(examples[:count], gold=False)
                self.task.encode(examples[:count], self.tokenizer)
            except InputError:
                return True
            return False

        return bisect.bisect_left(range(1, len(examples) + 1), True, key=fails)

    def evaluate(self, examples: Sequence[Example]) -> tuple[dict[str, float], list[Prediction]]:
        """The official scores of the task on labelled examples, and the predictions.

        Raises:
            InputError: a label is missing or unknown; the message names file and row.
        """
        self.task.check(examples, gold=True)
        predictions = self.predict(examples)
        return self.task.score(examples, predictions), predictions
