"""Prediction with a linear model on n-grams, or with counts of words, which need neither an encoder nor torch."""

from collections.abc import Callable, Sequence
from pathlib import Path

from bertsmith.baselines.n_grams import NGramModel
from bertsmith.baselines.word_model import WordModel, read_counted
from bertsmith.datasets.examples import Example
from bertsmith.inference.predictor import Predictor
from bertsmith.runtime import Runtime
from bertsmith.settings import require
from bertsmith.tasks.kinds import task_for
from bertsmith.tasks.task import Prediction


class NGramPredictor(Predictor):
    """A linear model on n-grams, or counts of words, with its task; it has no engine and no tokenizer.

    Args:
        model: the linear model, or the counts.
    """

    def __init__(self, model: NGramModel | WordModel) -> None:
        self.n_grams, self.task = model, task_for(model.spec)
        self.runtime = Runtime(device="cpu", precision="fp32")

    def _answers(self, examples: Sequence[Example], advance: Callable[[float], None] | None) -> Sequence[Prediction]:
        found = self.n_grams.predict(examples)
        if advance is not None:
            advance(1.0)
        return found

    def _require_readable(self, examples: Sequence[Example]) -> None:
        """Every text can be read."""


def n_gram_predictor(source: Path, *, device: str, precision: str, head: object = None) -> NGramPredictor:
    """The predictor of the folder of a linear model on n-grams, or of counts of words.

    Raises:
        ConfigError: another device or precision than the processor and fp32 are asked for, or a head.
        InputError: the folder is damaged.
    """
    for wrong, found in (
        (not (device == "auto" or device.startswith("cpu")), f"--device {device}"),
        (precision not in ("auto", "fp32"), f"--precision {precision}"),
        (head is not None, "--head"),
    ):
        require(
            not wrong,
            expected=f"fp32 on the processor for '{source}', a model without an encoder",
            found=found,
            fix="leave it out",
        )
    return NGramPredictor(read_counted(source))
