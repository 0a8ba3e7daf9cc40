"""A result shows itself in one short line in a session of Python."""

import dataclasses
import inspect
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import bertsmith
from bertsmith.app.library.labelled import Evaluation
from bertsmith.base.core.progress import short_repr
from bertsmith.inference.word_vectors.word_vectors import WordVectors
from bertsmith.recipes.audit.run import Audit
from bertsmith.training.loop.result import TrainResult

FUNCTIONS = [getattr(bertsmith, name) for name in bertsmith.__all__ if inspect.isfunction(getattr(bertsmith, name))]
RETURNED = {inspect.signature(function).return_annotation for function in FUNCTIONS}
RESULTS = sorted((kind for kind in RETURNED if dataclasses.is_dataclass(kind)), key=str)


@pytest.mark.parametrize("kind", RESULTS, ids=lambda kind: kind.__name__)
def test_every_class_of_results_has_a_short_repr(kind: Any) -> None:
    assert len(RESULTS) > 20
    assert "__repr__" in vars(kind)
    assert kind.__repr__ is short_repr or kind.__repr__.__module__ == kind.__module__, "its own, or that of all"
    assert not hasattr(kind.__repr__, "__wrapped__"), "not that of a dataclass, which has all values"


def test_a_result_shows_its_first_lines(tmp_path: Path) -> None:
    evaluation = Evaluation(
        task="spam", examples=1200, precision="fp32", products="auto", scores={"accuracy": 0.9}, cut_texts=0,
        intervals={"accuracy": (0.88, 0.92)}, cut_tokens=0,
    )  # fmt: skip
    assert repr(evaluation) == (
        "<Evaluation: spam: 1,200 examples, fp32; accuracy: 0.9000 (95% interval 0.8800 to 0.9200)>"
    )
    issues = [{"row": row, "text": "a text " * 50} for row in range(1000)]
    report: dict[str, Any] = {
        "examples": 1000, "interval": (0.1, 0.2), "errors": 0.15, "issues": {"wrong label": 1000}, "overlaps": [],
        "accuracy": {"bag of words": 0.8}, "folds": 5, "run": False,
    }  # fmt: skip
    shown = repr(Audit(report=report, issues=issues, folder=tmp_path / "absent"))
    assert shown.startswith("<Audit: 1,000 examples, each predicted")
    assert len(shown) < 200
    corrections = Audit(report={"corrections": 2}, issues=(), folder=tmp_path / "absent")
    assert repr(corrections).startswith("<Audit: 2 corrections in "), "whether or not the folder is there"


def test_a_result_without_lines_shows_its_values_and_its_sizes() -> None:
    vectors = WordVectors(words=["a", "b"], vectors=np.zeros((2, 50), dtype=np.float32))
    assert repr(vectors) == "<WordVectors: words 2; vectors 2 x 50; lowercase False; about 0>"
    result = TrainResult(
        steps=1000, tokens=2_000_000, sequences=5, seconds=1.25, processor_seconds=2.0, skipped=0, spikes=0,
        metrics={"loss": 1.0}, kept_step=1000, kept_tokens=1, scores={},
    )  # fmt: skip
    assert repr(result).startswith("<TrainResult: steps 1,000; tokens 2,000,000; sequences 5; seconds 1.25; ")
    assert "\n" not in repr(result)
