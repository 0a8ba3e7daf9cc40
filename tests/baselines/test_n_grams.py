"""The folder of a linear model on n-grams: what is damaged in it is named, in one line, and nothing is predicted."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.numpy

from bertsmith.base.core.errors import BertsmithError
from bertsmith.models.model_files.metadata import NGRAM_TERMS, NGRAM_WEIGHTS
from bertsmith.tasks.baselines.bag_of_words import BagOfWords
from bertsmith.tasks.baselines.linear import LinearModel
from bertsmith.tasks.baselines.n_grams import NGramModel
from bertsmith.tasks.datasets.examples import TextExample
from bertsmith.tasks.specs.settings import TaskSettings
from bertsmith.tasks.specs.task import TaskSpec

EXAMPLES = [TextExample(id=text, first=text, second=None) for text in ("good film", "bad film")]


def write(folder: Path) -> int:
    """Writes a model of two labels; returns the number of its columns."""
    bag = BagOfWords(EXAMPLES, TaskSettings(), 2)
    weight = np.arange(2 * bag.num_columns, dtype=np.float32).reshape(2, -1)
    linear = LinearModel(weight=weight, bias=np.zeros(2, np.float32), penalty=0.0)
    spec = TaskSpec(kind="classification", name="mood", labels=("a", "b"))
    NGramModel(spec=spec, bag=bag, linear=linear).write(folder)
    assert NGramModel.read(folder).predict(EXAMPLES) == NGramModel(spec=spec, bag=bag, linear=linear).predict(EXAMPLES)
    return bag.num_columns


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda terms: terms["bag"]["settings"].update(nonsense=1), "nonsense"),
        (lambda terms: terms["bag"]["settings"].update(max_length="x"), "max_length"),
        (lambda terms: terms["bag"]["spaces"].clear(), "0 kinds of terms"),
        (lambda terms: terms["bag"]["spaces"][0].pop("terms"), r"no bag\.spaces\.0\.terms"),
        (lambda terms: terms["bag"]["spaces"][0]["rarity"].pop(), "5 different terms with 4 frequencies"),
        (lambda terms: terms["bag"]["spaces"][0]["rarity"].__setitem__(0, float("nan")), "not finite"),
        (lambda terms: terms["bag"]["spaces"][0]["terms"].__setitem__(0, ["x"]), "of another type"),
        (lambda terms: terms["bag"].update(pair=True), "shapes"),
        (lambda terms: terms["spec"].update(kind="tagging"), "found tagging"),
        (lambda terms: terms["spec"].update(labels=["a", "b", "c"]), "shapes"),
    ],
)
def test_damaged_terms_are_refused(change: Callable[[Any], object], message: str, tmp_path: Path) -> None:
    write(tmp_path)
    terms = json.loads((tmp_path / NGRAM_TERMS).read_text())
    change(terms)
    (tmp_path / NGRAM_TERMS).write_text(json.dumps(terms))
    with pytest.raises(BertsmithError, match=message):
        NGramModel.read(tmp_path)


@pytest.mark.parametrize(("outputs", "less", "value"), [(2, 3, 0.0), (3, 0, 0.0), (2, 0, np.nan), (2, 0, np.inf)])
def test_weights_of_other_shapes_or_not_finite_are_refused(
    outputs: int, less: int, value: float, tmp_path: Path
) -> None:
    columns = write(tmp_path)
    weight = np.full((outputs, columns - less), value, np.float32)
    damaged = safetensors.numpy.save({"weight": weight, "bias": np.zeros(outputs, np.float32)})
    (tmp_path / NGRAM_WEIGHTS).write_bytes(damaged)
    with pytest.raises(BertsmithError, match="expected finite numbers of the shapes"):
        NGramModel.read(tmp_path)
