"""Prediction with a baseline: a linear model on n-grams, or counts of words, without an encoder and without torch.

A linear model on the cosine of two texts has an encoder of its own.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bertsmith.base.core.progress import quiet
from bertsmith.base.core.settings import require
from bertsmith.base.machine.runtime import Runtime, require_torch
from bertsmith.inference.predictors.predictor import Predictor
from bertsmith.models.model_files.metadata import NGRAM_ENCODER, read_metadata
from bertsmith.tasks.baselines.n_grams import NGramModel
from bertsmith.tasks.baselines.word_model import WordModel, read_counted
from bertsmith.tasks.datasets.examples import Example
from bertsmith.tasks.specs.kinds import task_for
from bertsmith.tasks.specs.task import Prediction
from bertsmith.text.tokenizers.encoded import Encoded

if TYPE_CHECKING:
    from bertsmith.tasks.baselines.text_vectors import TextCosine


class NGramPredictor(Predictor):
    """A linear model on n-grams or on a cosine, or counts of words, with its task; it has no engine and no tokenizer.

    Args:
        model: the linear model, or the counts.
        runtime: device and precision of its encoder.
    """

    reads_pieces = False

    def __init__(
        self,
        model: "NGramModel | WordModel | TextCosine",
        runtime: Runtime | None = None,
    ) -> None:
        self.n_grams, self.task = model, task_for(model.spec)
        self.runtime = runtime or Runtime(device="cpu", precision="fp32")

    def tokenized(self, examples: Sequence[Any], known: dict[str, Encoded] | None = None) -> Sequence[Any]:
        """The examples as they are: they are not rows of pieces."""
        return examples

    def _answers(self, examples: Sequence[Example], advance: Callable[[float], None] | None) -> Sequence[Prediction]:
        if advance is None:
            return self.n_grams.predict(examples)
        with quiet():  # the caller shows the progress
            predictions = self.n_grams.predict(examples)
        advance(1.0)
        return predictions

    def _require_readable(self, examples: Sequence[Example]) -> None:
        """Every text can be read."""


def n_gram_predictor(
    source: Path, *, device: str, precision: str, products: str, head: object = None
) -> NGramPredictor:
    """The predictor of the folder of a baseline: of a linear model on n-grams or on a cosine, or of counts of words."""
    require(
        head is None, expected=f"no head of your own with '{source}', a baseline", found="--head", fix="leave it out"
    )
    if (source / NGRAM_ENCODER).is_dir():
        require_torch(source)
        from bertsmith.tasks.baselines.text_vectors import TextCosine
        from bertsmith.tasks.encoding.loading import load_frozen_encoder

        encoder = load_frozen_encoder(source / NGRAM_ENCODER, device=device, precision=precision, products=products)
        return NGramPredictor(TextCosine.read(source, encoder), runtime=encoder.runtime)
    for wrong, option in (
        (not (device == "auto" or device.startswith("cpu")), f"--device {device}"),
        (precision not in ("auto", "fp32"), f"--precision {precision}"),
    ):
        require(
            not wrong,
            expected=f"fp32 on the processor for '{source}', a model without an encoder",
            found=option,
            fix="leave it out",
        )
    predictor = NGramPredictor(read_counted(source))
    predictor.describe(source, read_metadata(source))
    return predictor
