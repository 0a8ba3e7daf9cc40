"""Vectors and predictions of a cluster are those of one process, and its errors too."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from bertsmith.app.library.lines import predict_lines
from bertsmith.app.library.vector_files import embed_file, embed_words_of_file
from bertsmith.base.core.errors import ConfigError, InputError, RunError
from bertsmith.inference.cluster import predictions, vectors
from bertsmith.inference.predictors import predictor
from bertsmith.inference.predictors.request import PredictRequest
from bertsmith.inference.vectors import jobs
from cli.test_predicting import write_model
from cluster.conftest import stream_here
from cluster.text_samples import digests
from tasks.task_samples import write_base_model


@pytest.fixture
def model(tmp_path: Path) -> str:
    return write_base_model(tmp_path / "model")


@pytest.fixture
def text(tmp_path: Path) -> str:
    lines = ["the film was good", "", "a boat", "the film " * 40, "good"] * 4
    (tmp_path / "lines.txt").write_text("\n".join(lines) + "\n")
    return str(tmp_path / "lines.txt")


@pytest.fixture(autouse=True)
def _small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    for cls in (jobs.TextVectors, jobs.TokenVectorsOfTexts):
        monkeypatch.setattr(cls, "block", 3)


@pytest.mark.parametrize(
    ("write", "name", "options"),
    [
        (embed_file, "x.npy", {"float16": True}),
        (embed_file, "x.parquet", {"text": True}),
        (embed_words_of_file, "x.npy", {"encoding": "cp1252"}),
        (embed_words_of_file, "x.parquet", {"unit": "pieces"}),
    ],
)
def test_a_vector_file_has_the_bytes_of_one_process(here, model, text, tmp_path, write: Any, name, options) -> None:
    if "encoding" in options:
        Path(text).write_bytes(Path(text).read_bytes().replace(b"boat", b"bo\xe4t"))
    alone = write(text, model, tmp_path / "one" / name, **options)
    many = write(text, model, tmp_path / "many" / name, engine=here, **options)
    assert digests(tmp_path / "many") == digests(tmp_path / "one")
    assert (many.counts, many.notes, many.rows) == (alone.counts, alone.notes, alone.rows)
    assert alone.counts["empty_texts"] == 4


def test_a_job_that_was_stopped_resumes_after_its_last_block(here, model, text, tmp_path, monkeypatch) -> None:
    embed_file(text, model, tmp_path / "one" / "x.npy")
    firsts: list[int] = []

    def stopping(engine: str, parts: Any, stage: Any) -> Any:
        firsts.append(json.loads(parts[0]["part"])["first"])
        for number, table in enumerate(stream_here(engine, parts, stage)):
            if number == 2 and len(firsts) == 1:
                raise KeyboardInterrupt
            yield table

    monkeypatch.setattr(vectors, "stream", stopping)
    with pytest.raises(KeyboardInterrupt):
        embed_file(text, model, tmp_path / "many" / "x.npy", engine=here)
    assert not (tmp_path / "many" / "x.npy").exists()
    embed_file(text, model, tmp_path / "many" / "x.npy", engine=here, resume=True)
    assert firsts == [0, 6]
    assert digests(tmp_path / "many") == digests(tmp_path / "one")


def test_a_worker_with_another_model_or_other_texts_is_found(here, model, text, tmp_path, monkeypatch) -> None:
    def with_another(engine: str, parts: Any, stage: Any) -> Any:
        shutil.rmtree(model)
        write_base_model(model, seed=5)
        yield from stream_here(engine, parts, stage)

    with monkeypatch.context() as patch:
        patch.setattr(vectors, "stream", with_another)
        with pytest.raises(RunError, match="another one at that path"):
            embed_file(text, model, tmp_path / "x.npy", engine=here)

    def with_fewer(engine: str, parts: Any, stage: Any) -> Any:
        (tmp_path / "lines.txt").write_text("the film\n")
        yield from stream_here(engine, parts, stage)

    def with_others(engine: str, parts: Any, stage: Any) -> Any:
        content = Path(text).read_text()
        Path(text).write_text(content.replace("film", "boat"))
        yield from stream_here(engine, parts, stage)

    with monkeypatch.context() as patch:
        patch.setattr(vectors, "stream", with_others)
        with pytest.raises(RunError, match=r"the same texts from text 1 of .*; found others on one of them"):
            embed_file(text, model, tmp_path / "z.npy", engine=here)
    monkeypatch.setattr(vectors, "stream", with_fewer)
    with pytest.raises(RunError, match=r"3 texts from text 1 of .* on every machine; found 1 from text 1"):
        embed_file(text, model, tmp_path / "y.npy", engine=here)


def test_what_a_cluster_cannot_do_is_refused(here, model, text, tmp_path) -> None:
    with pytest.raises(ConfigError, match="found stdin"):
        embed_file("-", model, tmp_path / "x.npy", engine=here)
    with pytest.raises(ConfigError, match=r"a .npy or .parquet output for a cluster"):
        embed_words_of_file(text, model, tmp_path / "x.jsonl", engine=here)


@pytest.mark.parametrize("kind", ["single", "tags"])
def test_predictions_are_those_of_one_process(here, tmp_path, monkeypatch, kind) -> None:
    monkeypatch.setattr(predictor.Predictor.stream, "__defaults__", (3, None))
    monkeypatch.setattr("bertsmith.inference.cluster.predictions.BLOCK", 3)
    model = write_model(tmp_path / "task", kind)
    lines = ["the film was good", "", "a boat", "the film", "good"] * 2
    alone = [(example.id, prediction.to_dict()) for example, prediction in predict_lines(PredictRequest(model), lines)]
    many = [
        (example.id, prediction.to_dict())
        for example, prediction in predict_lines(PredictRequest(model, engine=here), lines)
    ]
    assert many == alone
    assert len(alone) == len(lines)


def test_lines_are_read_only_as_far_as_they_are_predicted(here, tmp_path, monkeypatch) -> None:
    for name, value in (("BLOCK", 3), ("_READ_CHARACTERS", 1)):
        monkeypatch.setattr(f"bertsmith.inference.cluster.predictions.{name}", value)
    model, read = write_model(tmp_path / "task", "single"), []
    lines = (read.append(number) or "the film was good" for number in range(100))
    answered = predict_lines(PredictRequest(model, engine=here), lines)
    for _ in range(4):
        next(answered)
    assert len(read) < 12
    assert len(list(answered)) == 96


def test_predictions_of_another_model_are_refused(here, tmp_path, monkeypatch) -> None:
    model = write_model(tmp_path / "task", "single")

    def with_another(engine: str, parts: Any, stage: Any) -> Any:
        (Path(model) / "config.json").write_text((Path(model) / "config.json").read_text() + "\n")
        yield from stream_here(engine, parts, stage)

    monkeypatch.setattr(predictions, "stream", with_another)
    with pytest.raises(RunError, match="another one at that path"):
        list(predict_lines(PredictRequest(model, engine=here), ["good"]))


def test_an_invalid_line_ends_the_predictions_after_those_before_it(here, tmp_path) -> None:
    model = write_model(tmp_path / "task", "single")
    answered = predict_lines(PredictRequest(model, engine=here), ["good", '{"text": 3}', "bad"])
    assert next(answered)[0].id
    with pytest.raises(InputError, match="line 2"):
        next(answered)
