"""Exports to other tools are run and compared with the source, and not written if outputs or scores differ."""

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers

from bertsmith.base.core.errors import CheckpointError, ConfigError, InputError
from bertsmith.base.storage.files import digest_file
from bertsmith.inference.export import conversion as export_module
from bertsmith.inference.export import readback as export_readback
from bertsmith.inference.export.check import compare, library_model, library_runner
from bertsmith.inference.export.conversion import export
from bertsmith.inference.export.record import METRIC_LIMIT, Comparison, Difference, require_equal
from bertsmith.inference.export.sample import DataFile, sample_for
from bertsmith.inference.predictors.loading import load_predictor
from bertsmith.models.checkpoints import google, rewriting
from bertsmith.models.checkpoints.assembly import save_pretrained, untrained
from bertsmith.models.checkpoints.load import load_any
from bertsmith.models.model_files.metadata import ModelMetadata
from bertsmith.models.parts.config import POSITIONS
from bertsmith.tasks.encoding.onnx_session import outputs_of
from bertsmith.tasks.task_data.spec_of_model import spec_of
from export.export_models import write_data, write_task
from tasks.task_samples import CONFIG, SPECS, TOKENIZER, WITH_GRAPH, examples_of, write_base_model

DATA = {"single": "dev.tsv", "tags": "dev.conll", "answer": "dev.json"}
RUNNERS = {
    "onnx": (export_module, "Session"),
    "huggingface": (export_readback, "transformers_runner"),
    "google": (export_readback, "library_runner"),
}


def record_of(folder: Path) -> dict:
    return json.loads((folder / "export.json").read_text(encoding="utf-8"))


def write_agreed(source: Path, path: Path, count: int) -> Path:
    """Examples labelled with the model's own answers, so that every changed answer lowers the score."""
    examples = examples_of("single", count)
    predictions = load_predictor(source).predict(examples)
    pairs = zip(examples, predictions, strict=True)
    return write_data(path, [dataclasses.replace(example, label=prediction.label) for example, prediction in pairs])


def change_answers(monkeypatch: pytest.MonkeyPatch, to: str, change: Callable[[np.ndarray], np.ndarray]) -> None:
    """Changes the logits of the other side with `change`."""
    if to == "onnx":
        pytest.importorskip("onnx", reason="needs the extra export")
        pytest.importorskip("onnxruntime", reason="needs the extra export")
    module, name = RUNNERS[to]
    make = getattr(module, name)

    def make_other(*arguments, **options):
        made = make(*arguments, **options)
        run, *rest = made if isinstance(made, tuple) else (made,)

        def other(inputs):
            return {output: change(values) for output, values in run(inputs).items()}

        return (other, *rest) if rest else other

    monkeypatch.setattr(module, name, make_other)


def test_a_head_with_a_hidden_layer_is_refused_in_googles_format(tmp_path: Path) -> None:
    write_task(tmp_path / "model", "on three vectors")
    with pytest.raises(ConfigError, match="found one that reads concat"):
        export(tmp_path / "model", tmp_path / "out", to="google")


@pytest.mark.parametrize("kind", [*(name for name in WITH_GRAPH if SPECS[name].reads != "concat"), None])
def test_every_kind_of_model_is_run_as_it_comes_back_from_google(kind: str | None, tmp_path: Path) -> None:
    source = tmp_path / "model"
    if kind is None:
        write_base_model(source, 4)
    else:
        write_task(source, kind)
    folder = load_any(source)
    _, lines = export(source, tmp_path / "out", to="google")
    record = record_of(tmp_path / "out")
    assert lines == [
        f"read back: {len(folder.tensors)} tensors equal bit for bit",
        "compared on sentences that come with bertsmith (96 rows) and on rows of odd lengths",
        next(line for line in lines if line.startswith("read back and run: ")),
    ]
    assert record["equal_tensors"] == len(folder.tensors)
    assert (record["sample"]["rows"], record["limits"]) == (96, {"largest": 1e-4})
    result = record["read_back"]["outputs"]
    assert list(result) == [output.name for output in outputs_of(kind and SPECS[kind].kind, folder.parts)]
    assert all(record["largest"] == 0 and record["values"] > 0 for record in result.values())
    assert spec_of(load_any(tmp_path / "out")) == (SPECS[kind] if kind else None)


@pytest.mark.parametrize("positions", POSITIONS)
def test_every_form_of_positions_comes_back_from_google(positions: str, tmp_path: Path) -> None:
    config = dataclasses.replace(CONFIG, position_embedding_type=positions, hidden_act="gelu_new")
    save_pretrained(
        tmp_path / "model", untrained(config, seed=4), TOKENIZER, ModelMetadata.from_dict({}), trained=("pooler",)
    )
    export(tmp_path / "model", tmp_path / "out", to="google", limit=0)
    assert record_of(tmp_path / "out")["limits"] == {"largest": 0}


def test_a_head_of_another_tool_comes_back_from_google(tmp_path: Path) -> None:
    """A tagger with a pooler looks like a classifier, but for the architecture that its config.json names."""
    write_task(tmp_path / "model", "tags")
    theirs = transformers.AutoModelForTokenClassification.from_pretrained(tmp_path / "model")
    theirs.save_pretrained(tmp_path / "theirs")
    TOKENIZER.vocabulary.save(tmp_path / "theirs" / "vocab.txt")
    export(tmp_path / "theirs", tmp_path / "out", to="google")
    back = spec_of(load_any(tmp_path / "out"))
    assert (back.kind, back.labels) == ("tagging", ("O", "B-PER", "B-LOC"))


@pytest.mark.parametrize(
    ("to", "record"), [("onnx", "files"), ("huggingface", "transformers"), ("google", "read_back")]
)
@pytest.mark.parametrize("kind", DATA)
def test_a_labelled_file_is_scored_on_both_sides(kind: str, to: str, record: str, tmp_path: Path) -> None:
    if to == "onnx":
        pytest.importorskip("onnxruntime", reason="needs the extra export")
    source = write_task(tmp_path / "model", kind)
    examples = examples_of(kind, 20)
    data = write_data(tmp_path / DATA[kind], examples)
    export(source, tmp_path / "out", to=to, data=data)
    values = record_of(tmp_path / "out")
    result = values[record]["model.onnx"] if to == "onnx" else values[record]
    scores, _ = load_predictor(source).evaluate(examples)
    expected = pytest.approx(scores[SPECS[kind].metric], abs=1e-9)
    assert result["metric"] == {
        "name": SPECS[kind].metric,
        "library": expected,
        "exported": expected,
        "loss": 0,
        "examples": 20,
        "changed": 0,
    }
    limits = result["limits"] if to == "onnx" else values["limits"]
    assert limits == {"largest": 1e-4, "metric_loss": METRIC_LIMIT, "ties": 1}
    assert values["sample"]["digest"] == digest_file(data)
    assert (values["sample"]["examples"], values["sample"]["task"]) == (20, SPECS[kind].name)


@pytest.mark.parametrize("to", RUNNERS)
def test_outputs_that_differ_are_not_written_unless_the_limit_allows_it(
    to: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = write_task(tmp_path / "model", "single")
    change_answers(monkeypatch, to, lambda logits: logits * np.float32(1.01))
    with pytest.raises(CheckpointError, match=r"expected logits of .* within 0\.0001 .* nothing was written") as caught:
        export(source, tmp_path / "out", to=to)
    str(caught.value)
    assert not (tmp_path / "out").exists()
    export(source, tmp_path / "out", to=to, limit=0.5)
    assert (tmp_path / "out" / "export.json").exists()


@pytest.mark.parametrize("to", RUNNERS)
def test_a_score_that_is_lost_is_not_written_whatever_the_limit_of_the_outputs(
    to: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = write_task(tmp_path / "model", "single")
    data = write_agreed(source, tmp_path / "dev.tsv", 20)
    change_answers(monkeypatch, to, lambda logits: logits[:, ::-1])
    with pytest.raises(CheckpointError) as caught:
        export(source, tmp_path / "out", to=to, data=data, limit=1000.0)
    words = str(caught.value)
    assert "at most 0.001 below the library's, or at most 1 changed answer" in words
    assert "found 0.0000, library 1.0000, answers changed: 20 of 20; nothing was written" in words
    assert not (tmp_path / "out").exists()
    change_answers(monkeypatch, to, lambda logits: logits[:, ::-1])
    export(source, tmp_path / "out", to=to, data=data, limit=1000.0)


def test_one_tie_is_allowed_and_two_are_held_to_the_limit_of_the_score() -> None:
    near = Difference(output="logits", values=8, largest=5e-5, mean=1e-5, spread=1.0)
    scored = Comparison(
        differences=(near,), metric="matthews", library=0.5, exported=0.4, loss=0.1, examples=12, changed=1
    )
    limits = {"largest": 1e-4, "metric_loss": METRIC_LIMIT, "ties": 1}
    assert require_equal(scored, "m") == limits
    with pytest.raises(CheckpointError, match=r"found 0\.4000, library 0\.5000, answers changed: 2 of 12;"):
        require_equal(dataclasses.replace(scored, changed=2), "m")
    many = dataclasses.replace(scored, loss=METRIC_LIMIT, examples=100_000, changed=90)
    assert require_equal(many, "m") == limits
    assert require_equal(dataclasses.replace(scored, changed=5, loss=-0.1), "m") == limits
    # Every number differs slightly, so there is no count of changed answers.
    number = dataclasses.replace(scored, metric="pearson", changed=None)
    with pytest.raises(CheckpointError, match=r"at most 0\.001 below the library's; found 0\.4000, library"):
        require_equal(number, "m")
    assert require_equal(dataclasses.replace(number, loss=0.0), "m") == {"largest": 1e-4, "metric_loss": METRIC_LIMIT}


@pytest.mark.parametrize("kind", DATA)
def test_answers_that_changed_are_counted_by_examples(kind: str, tmp_path: Path) -> None:
    folder = load_any(write_task(tmp_path / "model", kind))
    spec = spec_of(folder)
    file = DataFile(path=write_data(tmp_path / DATA[kind], examples_of(kind, 20)))
    model, outputs, sample = (
        library_model(folder, spec),
        outputs_of(spec.kind, folder.parts),
        sample_for(folder, spec, file),
    )
    run, calls = library_runner(model, outputs), []

    def other(inputs):
        result = run(inputs)
        calls.append(len(inputs["input_ids"]))
        # Batches of odd lengths come first, then the sample, in whose first batch one row is negated.
        if len(calls) == 4:
            for values in result.values():
                values[0] = -values[0]
        return result

    result = compare(folder, model, outputs, other, sample)
    assert sum(calls[3:]) == 20
    assert (result.examples, result.changed) == (20, 1)
    assert compare(folder, model, outputs, run, sample).changed == 0


def test_a_written_google_checkpoint_with_another_tensor_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = write_task(tmp_path / "model", "single")
    write = google.write_bundle

    def damaged(prefix, variables):
        name = "bert/encoder/layer_1/output/dense/bias"
        write(prefix, {**variables, name: variables[name] + torch.linspace(0, 0.01, len(variables[name]))})

    monkeypatch.setattr(google, "write_bundle", damaged)
    with pytest.raises(CheckpointError, match=r"found different values in bert\.layers\.1\.output\.bias; nothing"):
        export(source, tmp_path / "out", to="google")
    assert not (tmp_path / "out").exists()
    # The written model is the one that is run: without the comparison of tensors, the outputs reveal the difference.
    monkeypatch.setattr(export_readback, "_require_same", lambda folder, back: len(folder.tensors))
    with pytest.raises(CheckpointError, match=r"logits of the Google checkpoint within 0\.0001 of their spread"):
        export(source, tmp_path / "out", to="google")
    assert not (tmp_path / "out").exists()
    export(source, tmp_path / "out", to="google", limit=10.0)
    assert record_of(tmp_path / "out")["read_back"]["outputs"]["logits"]["largest"] > 1e-4
    assert [entry.name for entry in tmp_path.iterdir() if entry.name not in ("model", "out")] == []


def test_a_head_that_cannot_be_restored_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = write_task(tmp_path / "model", "tags")
    write = rewriting.write_google

    def without_task(path, *, metadata, **others):
        write(path, metadata=ModelMetadata(), **others)

    monkeypatch.setattr(rewriting, "write_google", without_task)
    with pytest.raises(CheckpointError) as caught:
        export(source, tmp_path / "out", to="google")
    assert (
        "found a tagging head (tagging: LABEL_0, LABEL_1, LABEL_2) instead of a ner head (tagging: O, B-PER, B-LOC)"
    ) in str(caught.value)
    assert not (tmp_path / "out").exists()


def test_a_google_checkpoint_without_a_vocabulary_is_not_run_and_that_is_said(tmp_path: Path) -> None:
    source = write_task(tmp_path / "model", "single")
    for file in ("vocab.txt", "tokenizer.json"):
        (source / file).unlink()
    _, lines = export(source, tmp_path / "out", to="google")
    assert lines[1:] == ["there is no vocabulary: nothing was run"]
    assert record_of(tmp_path / "out")["not_run"] == "there is no vocabulary"
    data = write_data(tmp_path / "dev.tsv", examples_of("single", 4))
    with pytest.raises(
        ConfigError, match=r"a vocabulary, to compare on .*dev\.tsv'; found that there is no vocabulary"
    ):
        export(source, tmp_path / "other", to="google", data=data)
    assert not (tmp_path / "other").exists()


def write_columns(path: Path, kind: str) -> tuple[Path, dict[str, Any], str]:
    """A file with non-standard column names or positions, and how to read it."""
    lines = []
    for example in examples_of(kind, 12):
        if kind == "tags":
            lines += [*(f"{tag} x {word}" for word, tag in zip(example.words, example.tags, strict=True)), ""]
        else:
            lines.append(
                json.dumps({"number": 1, "body": example.first, "other": example.second, "verdict": example.label})
            )
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    if kind == "tags":
        return path, {"word_column": 2, "tag_column": 0}, "ner"
    return path, {"text_column": "body", "pair_column": "other", "label_column": "verdict"}, "classification"


@pytest.mark.parametrize(("kind", "name"), [("pair", "dev.jsonl"), ("tags", "dev.conll")])
def test_the_columns_and_the_form_of_a_file_can_be_said(kind: str, name: str, tmp_path: Path) -> None:
    """The task of the model with pairs is mrpc, whose own files have other columns."""
    source = write_task(tmp_path / "model", kind)
    data, columns, task = write_columns(tmp_path / name, kind)
    with pytest.raises(InputError):
        export(source, tmp_path / "out", to="google", data=data)
    with pytest.raises(ConfigError, match="found the format of sts-b"):
        export(source, tmp_path / "out", to="google", data=data, task="STSB")
    assert not (tmp_path / "out").exists()
    export(source, tmp_path / "out", to="google", data=data, task=task, **columns)
    record = record_of(tmp_path / "out")
    scores, _ = load_predictor(source).evaluate(examples_of(kind, 12))
    assert record["read_back"]["metric"]["library"] == pytest.approx(scores[SPECS[kind].metric], abs=1e-9)
    assert record["sample"].items() >= {"task": task, "examples": 12, **columns}.items()


def test_a_model_without_a_task_reads_texts_and_no_columns(tmp_path: Path) -> None:
    write_base_model(tmp_path / "model", 4)
    (tmp_path / "texts.txt").write_text("anna was in rome .\n\nthe film\n", encoding="utf-8")
    _, lines = export(tmp_path / "model", tmp_path / "out", to="google", data=tmp_path / "texts.txt")
    assert lines[1].startswith("compared on texts.txt (2 rows)")
    with pytest.raises(ConfigError, match="`task`, `text_column` needs a model with a task head; omit it"):
        export(
            tmp_path / "model",
            tmp_path / "other",
            to="google",
            data=tmp_path / "texts.txt",
            task="sentiment",
            text_column="body",
        )
    assert not (tmp_path / "other").exists()
