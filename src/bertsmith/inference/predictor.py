"""A fine-tuned model that answers: the task of its passport, read, cut and decoded as in training.

Letters: R positions that the head reads, K outputs of the head.
"""

import itertools
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from bertsmith.checkpoints.load import load_any
from bertsmith.checkpoints.model_folder import ModelFolder
from bertsmith.checkpoints.pretrained import load_for_task
from bertsmith.errors import CheckpointError
from bertsmith.model.heads import BertForTask
from bertsmith.progress import warn
from bertsmith.runtime import Runtime, choose
from bertsmith.tasks.examples import Example
from bertsmith.tasks.finetuning import task_logits
from bertsmith.tasks.kinds import task_for
from bertsmith.tasks.model_spec import spec_of
from bertsmith.tasks.task import Prediction, Task
from bertsmith.text.wordpiece import Tokenizer

BLOCK = 1024  # examples that are read, sorted by length and answered together


class Predictor:
    """A fine-tuned model with its task.

    Args:
        model: encoder and head.
        task: what the outputs mean.
        tokenizer: of the model.
        runtime: device and precision.
    """

    def __init__(self, model: BertForTask, task: Task, tokenizer: Tokenizer, runtime: Runtime) -> None:
        self.model = model.to(runtime.torch_device).eval()
        self.task, self.tokenizer, self.runtime = task, tokenizer, runtime

    @staticmethod
    def load(source: str | Path | ModelFolder, *, device: str = "auto", precision: str = "fp32") -> "Predictor":
        """The predictor of a model folder, ours or one of `transformers`, or of a Google checkpoint with a head.

        Raises:
            CheckpointError: the model has no head of a task, or cannot be read.
        """
        folder = source if isinstance(source, ModelFolder) else load_any(source)
        spec = spec_of(folder)
        if spec is None:
            raise CheckpointError(
                expected=f"a fine-tuned model in '{folder.path}'",
                found="one without the head of a task" + (f" ({', '.join(folder.parts)})" if folder.parts else ""),
                fix="fine-tune it first (bertsmith finetune)",
            )
        runtime = choose(device, precision)
        if runtime.note:
            warn(runtime.note)
        task = task_for(spec)
        loaded = load_for_task(folder, task.head, keep_head=True)
        return Predictor(loaded.model, task, loaded.tokenizer, runtime)

    def predict(self, examples: Sequence[Example]) -> list[Prediction]:
        """One prediction an example, in their order; gold labels, where there are any, are not looked at.

        Raises:
            InputError: an example cannot be read by this task; the message names it.
        """
        if not examples:
            return []
        self.task.check(examples, gold=False)
        features = self.task.encode(examples, self.tokenizer)
        logits = task_logits(self.model, features, self.runtime)
        return list(self.task.decode(examples, features, logits, self.tokenizer))

    def stream(self, examples: Iterable[Example], block: int = BLOCK) -> Iterator[tuple[Example, Prediction]]:
        """Each example with its prediction, in order, a block in memory at a time."""
        source = iter(examples)
        while part := list(itertools.islice(source, block)):
            yield from zip(part, self.predict(part), strict=True)

    def evaluate(self, examples: Sequence[Example]) -> tuple[dict[str, float], list[Prediction]]:
        """The official scores of the task on labelled examples, and the predictions.

        Raises:
            InputError: a label is missing or unknown; the message names file and row.
        """
        self.task.check(examples, gold=True)
        predictions = self.predict(examples)
        return self.task.score(examples, predictions), predictions
