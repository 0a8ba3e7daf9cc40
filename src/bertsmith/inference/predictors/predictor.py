"""Prediction with a fine-tuned model, which encodes and decodes as its metadata says, as in training.

Letters: R positions that the head reads, K outputs of the head.
"""

import bisect
import copy
import dataclasses
import functools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bertsmith.base.core.errors import BertsmithError, ConfigError, InputError, NotFiniteError
from bertsmith.base.core.progress import Progress
from bertsmith.base.core.settings import from_dict, is_finite, require, require_number, to_dict
from bertsmith.base.machine.runtime import Runtime
from bertsmith.models.model_files.metadata import ModelMetadata
from bertsmith.models.model_files.thresholds import SavedThreshold, saved_thresholds
from bertsmith.models.model_files.weakness import weakness_of
from bertsmith.tasks.datasets.blocks import characters_of, sized_blocks
from bertsmith.tasks.datasets.examples import Example
from bertsmith.tasks.encoding.engine import TASK, Engine
from bertsmith.tasks.specs.kinds import task_for
from bertsmith.tasks.specs.settings import TaskSettings
from bertsmith.tasks.specs.task import Prediction, Task
from bertsmith.text.tokenizers.encoded import Encoded
from bertsmith.text.tokenizers.tokenizer import Tokenizer

if TYPE_CHECKING:
    from bertsmith.models.heads.encoder_with_head import EncoderForPreTraining, EncoderForTask

BLOCK = 1024  # examples that are read, sorted by length and predicted together


def engine_of(model: "EncoderForTask | EncoderForPreTraining | Engine", runtime: Runtime) -> Engine:
    """The engine itself, or one that runs a model of torch."""
    if isinstance(model, Engine):
        return model
    from bertsmith.tasks.encoding.forward import TorchEngine

    return TorchEngine(model.eval(), runtime)


class Predictor:
    """A fine-tuned model with its task.

    Args:
        model: encoder and head in torch, or the engine that computes them.
        task: the meaning of the outputs.
        tokenizer: the model's tokenizer.
        runtime: device and precision.

    Attributes:
        weakness: what its own dev examples say against its answers; "" if nothing.
        folder: its model folder, if it has one.
        thresholds: those that are saved there for its precision, see `selective`.
        reads_pieces: whether it has a tokenizer and an encoder, unlike a model on words.
    """

    weakness = ""
    folder: Path | None = None
    reads_pieces = True

    def __init__(self, model: "EncoderForTask | Engine", task: Task, tokenizer: Tokenizer, runtime: Runtime) -> None:
        self.engine = engine_of(model, runtime)
        self.task, self.tokenizer, self.runtime = task, tokenizer, runtime
        longest = self.engine.max_tokens
        if task.spec.settings.max_length > longest:
            raise ConfigError(
                expected=f"a max_length of at most {longest:,}, the positions of the model",
                found=f"{task.spec.settings.max_length:,} for {task.spec.title}",
                fix="lower it in bertsmith.json, or restore the file",
            )

    def describe(self, folder: Path, metadata: ModelMetadata) -> None:
        """Sets what the metadata of its folder says of its answers."""
        self.folder, self.weakness = folder, weakness_of(metadata)
        recorded = metadata.training.get("texts")
        texts = {
            **(recorded if isinstance(recorded, Mapping) else {}),
            "confidence": metadata.training.get("confidence"),
        }
        self.training_texts.update({name: value for name, value in texts.items() if is_finite(value)})
        saved = saved_thresholds(folder, metadata)
        self.thresholds[:] = [each for each in saved if each.precision == self.runtime.precision]

    @functools.cached_property
    def training_texts(self) -> dict[str, float]:
        """What its folder says of the training texts, and of the "confidence" on dev texts; see `texts_of_training`."""
        return {}

    @functools.cached_property
    def thresholds(self) -> list[SavedThreshold]:
        """See `Predictor`."""
        return []

    @property
    def gives_several(self) -> bool:
        """Whether a prediction has any number of labels."""
        return self.task.spec.multi_label

    @property
    def model(self) -> Any:
        """What the engine runs; in torch, an `EncoderForTask`."""
        return self.engine.model

    def tokenized(self, examples: Sequence[Any], known: dict[str, Encoded] | None = None) -> Sequence[Any]:
        """The examples with the pieces of their texts; see `Task.tokenized`."""
        return self.task.tokenized(examples, self.tokenizer, known)

    def predict(self, examples: Sequence[Example], advance: Callable[[float], None] | None = None) -> list[Prediction]:
        """One prediction per example, in order; gold labels are ignored.

        Args:
            advance: as in `Engine.logits`.

        Raises:
            InputError: an example does not fit this task; the message names it.
            NotFiniteError: the model computed no finite numbers for an example; the message names the first.
        """
        known = [self.task.answer_without_model(example) for example in examples]
        numbers = [number for number, answer in enumerate(known) if answer is None]
        asked = [examples[number] for number in numbers]
        if not asked:
            return [answer for answer in known if answer is not None]
        self.task.check(asked, gold=False)
        try:
            answers = iter(self._answers(asked, advance))
        except NotFiniteError as error:
            raise NotFiniteError(numbers[error.index], getattr(asked[error.index], "location", "")) from None
        return [next(answers) if answer is None else answer for answer in known]

    def _answers(self, examples: Sequence[Example], advance: Callable[[float], None] | None) -> Sequence[Prediction]:
        """What the model answers; see `predict`."""
        features = self.task.encode(examples, self.tokenizer)
        logits = self.engine.logits(features, TASK, advance=advance)
        return self.task.decode(examples, features, logits, self.tokenizer)

    def stream(
        self, examples: Iterable[Example], block: int = BLOCK, total: int | None = None
    ) -> Iterator[tuple[Example, Prediction]]:
        """Each example with its prediction, in order, with one block in memory at a time.

        Args:
            block: the maximum number of examples per block; blocks of long examples have fewer.
            total: the number of examples, to estimate the time left; None if unknown.
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
                except (InputError, NotFiniteError) as error:
                    errors.append(error)
                    count = error.index if isinstance(error, NotFiniteError) else self._num_readable(part)
                    part = part[:count]
                    predictions = self.predict(part, functools.partial(advance, len(part)))
                yield from zip(part, predictions, strict=True)
                if errors:
                    break
            if errors:
                raise errors[-1]

    def _num_readable(self, examples: Sequence[Example]) -> int:
        """The number of examples before the first invalid one; one of them is invalid."""

        def fails(count: int) -> bool:
            part = [example for example in examples[:count] if self.task.answer_without_model(example) is None]
            try:
                self.task.check(part, gold=False)
                self._require_readable(part)
            except InputError:
                return True
            return False

        return bisect.bisect_left(range(1, len(examples) + 1), True, key=fails)

    def _require_readable(self, examples: Sequence[Example]) -> None:
        """Raises InputError if the text of an example cannot be read by the model."""
        self.task.encode(examples, self.tokenizer)

    def evaluate(self, examples: Sequence[Example]) -> tuple[dict[str, float], list[Prediction]]:
        """The official scores of the task on labelled examples, and the predictions."""
        self.task.check(examples, gold=True)
        predictions = self.predict(examples)
        return self.task.score(examples, predictions), predictions


def answering(predictor: Predictor, **settings: Any) -> Predictor:
    """A predictor with other settings of its answers, such as `beam`; those that are not given stay as they are stored.

    Raises:
        ConfigError: the answers of such a model do not have this setting, or its value is out of range.
    """
    if not settings:
        return predictor
    spec, known = predictor.task.spec, predictor.task.settings_of_answers
    for name in settings:
        require(
            name in known,
            expected=f"a model whose answers have the setting {name}",
            found=f"one of {spec.title}",
            fix=f"its settings are {', '.join(known)}" if known else "leave it out",
        )
    changed = from_dict(TaskSettings, {**to_dict(spec.settings), **settings}, f"the settings of {spec.title}")
    if "max_target_length" in settings:  # the first position is that of [CLS]
        require_number("max_target_length", changed.max_target_length, most=predictor.engine.max_tokens - 1)
    result = copy.copy(predictor)
    result.task = task_for(dataclasses.replace(spec, settings=changed))
    return result
