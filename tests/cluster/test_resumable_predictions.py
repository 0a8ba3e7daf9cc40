"""Predictions in a file: those of an undisturbed run, however often it is stopped, here and on a cluster."""

import itertools
import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from bertsmith.app.library.lines import predict_lines
from bertsmith.base.core.errors import InputError, RunError
from bertsmith.inference.predictors import resumable_predictions
from bertsmith.inference.predictors.predictor import Predictor
from bertsmith.inference.predictors.request import PredictRequest
from bertsmith.inference.predictors.resumable_predictions import kept_predictions
from cli.test_predicting import write_model
from training.interruptions import interrupted

LINES = ["the film was good", "", "a boat", "the film", "good", "bad", "the plot", "in one"] * 2


@pytest.fixture(params=["local", "ray"])
def engine(request: pytest.FixtureRequest) -> str:
    return request.param if request.param == "local" else request.getfixturevalue("here")


@pytest.fixture(autouse=True)
def _small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Predictor.stream, "__defaults__", (3, None))
    for module in ("inference.cluster.predictions", "app.library.lines"):
        monkeypatch.setattr(f"bertsmith.{module}.BLOCK", 3)
    monkeypatch.setattr(resumable_predictions, "_SAVED_LINES", 4)


def written(model: Path, out: Path, engine: str, lines: Iterable[str] = LINES, **options: bool) -> Iterator[Any]:
    return predict_lines(PredictRequest(model, engine=engine, out=out, **options), lines)


def test_a_file_that_was_stopped_anywhere_ends_with_the_bytes_of_an_undisturbed_one(
    engine, tmp_path, monkeypatch
) -> None:
    model = write_model(tmp_path / "task", "single")
    assert len(list(written(model, tmp_path / "one.jsonl", "local"))) == len(LINES)
    expected = [
        {"id": example.id, **prediction.to_dict()}
        for example, prediction in predict_lines(PredictRequest(model), LINES)
    ]
    assert [json.loads(line) for line in (tmp_path / "one.jsonl").read_text().splitlines()] == expected
    out, computed, real = tmp_path / "many.jsonl", [], Predictor.predict
    monkeypatch.setattr(
        Predictor, "predict", lambda self, part, advance=None: computed.extend(part) or real(self, part, advance)
    )
    for stop in (5, 2, 6):
        answered = written(model, out, engine, resume=True)
        assert len(list(itertools.islice(answered, stop))) == stop
        answered.close()
    with open(out.with_name("many.jsonl.partial"), "ab") as file:
        file.write(b'{"id": "half')
    assert len(list(written(model, out, engine, resume=True))) == len(LINES) - 13
    assert out.read_bytes() == (tmp_path / "one.jsonl").read_bytes()
    assert {path.name for path in tmp_path.iterdir() if "many" in path.name} <= {"many.jsonl", ".many.jsonl.lock"}
    assert len(computed) < 2 * len(LINES), "blocks that are done are not computed again"


def test_an_unfinished_file_is_neither_lost_nor_mixed_with_another(engine, tmp_path) -> None:
    model, out = write_model(tmp_path / "task", "single"), tmp_path / "many.jsonl"
    answered = written(model, out, engine)
    list(itertools.islice(answered, 5))
    answered.close()
    for lines, options, message in (
        (LINES, {}, "no unfinished predictions in '.*'; found some; resume with --resume"),
        (["others", *LINES], {"resume": True}, "the 5 lines that '.*' has predictions for, first; found others"),
        (LINES[:4], {"resume": True}, "found only 4"),
    ):
        with pytest.raises(RunError, match=message):
            list(written(model, out, engine, lines, **options))
    with pytest.raises(RunError, match="the models and options that the predictions in"):
        list(kept_predictions(out, LINES, lambda texts, done: iter(()), {"model": "another"}, resume=True))
    assert len(list(written(model, out, engine, replace=True))) == len(LINES)
    with pytest.raises(InputError, match="overwrite it with --replace"):
        list(written(model, out, engine))


def test_an_invalid_line_keeps_the_predictions_before_it(engine, tmp_path) -> None:
    model, out = write_model(tmp_path / "task", "single"), tmp_path / "many.jsonl"
    with pytest.raises(InputError, match="line 5"):
        list(written(model, out, engine, [*LINES[:4], '{"text": 3}']))
    assert len(list(written(model, out, engine, resume=True))) == len(LINES) - 4
    assert out.read_text().count("\n") == len(LINES)


def test_an_interruption_between_writing_and_counting_writes_no_line_twice(tmp_path) -> None:
    model, out = write_model(tmp_path / "task", "single"), tmp_path / "many.jsonl"
    list(written(model, tmp_path / "one.jsonl", "local"))
    with interrupted(resumable_predictions._Unfinished, "add", lambda unfinished, *_: unfinished._counted[0] == 6):
        list(written(model, out, "local"))
    assert len(list(written(model, out, "local", resume=True))) == len(LINES) - 6
    assert out.read_bytes() == (tmp_path / "one.jsonl").read_bytes()


def test_a_kill_between_the_last_two_steps_leaves_nothing_in_the_way(tmp_path, monkeypatch) -> None:
    model, out = write_model(tmp_path / "task", "single"), tmp_path / "many.jsonl"
    with monkeypatch.context() as patched:
        patched.setattr(Path, "unlink", lambda path, missing_ok=False: None)
        list(written(model, out, "local"))
    state = out.with_name("many.jsonl.partial.json")
    assert state.exists()
    complete = out.read_bytes()
    out.rename(tmp_path / "kept.jsonl")
    assert len(list(written(model, out, "local", resume=True))) == len(LINES)
    assert out.read_bytes() == complete
    assert not state.exists()
