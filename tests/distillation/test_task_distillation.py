"""Task distillation from files to a model: every kind of task, stored logits, resumed runs, bad input."""

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy
import torch

from bertsmith.app.library.distillation import distill
from bertsmith.base.core.errors import BertsmithError, CheckpointError, ConfigError, InputError, RunError
from bertsmith.base.core.requests import from_file
from bertsmith.base.machine.runtime import choose
from bertsmith.base.storage.files import read_json
from bertsmith.inference.predictors.loading import load_predictor
from bertsmith.models.checkpoints.assembly import load_for_task, save_pretrained, untrained
from bertsmith.models.checkpoints.load import load_any
from bertsmith.models.model_files.metadata import ModelMetadata
from bertsmith.recipes.distillation import logits as stored
from bertsmith.recipes.distillation.report import DistillationReport
from bertsmith.recipes.distillation.request import DistillRequest
from bertsmith.recipes.distillation.settings import DistillationSettings
from bertsmith.recipes.distillation.transfer_set import Lesson
from bertsmith.recipes.sentence_encoders.static import make_static_vectors
from bertsmith.tasks.encoding.forward import task_logits
from bertsmith.tasks.specs.kinds import task_for
from distillation.distillation_samples import (
    KINDS,
    QUICK,
    WINDOWS,
    assert_same_models,
    tensors_of,
    write_examples,
    write_teacher,
)
from tasks.task_samples import CONFIG, SPECS, TOKENIZER, examples_of, write_base_model
from training.interruptions import killed_at_step
from training.logs import steps_of
from written_files import file_with

FAST = {"times": False, "seeds": 1, "without_teacher": False, **QUICK}


@pytest.fixture(scope="module")
def teachers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return {kind: write_teacher(tmp_path_factory.mktemp("teacher"), kind) for kind in KINDS}


@pytest.fixture
def teacher(teachers: dict[str, Path]) -> Path:
    return teachers["single"]


@pytest.mark.parametrize("student", ["layers", "bilstm"])
@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_task_has_students(kind: str, student: str, teachers: dict[str, Path], tmp_path: Path) -> None:
    train, dev = (write_examples(tmp_path / name, kind, count, seed) for name, count, seed in
                  (("train", 16, 3), ("dev", 8, 4)))  # fmt: skip
    more = write_examples(tmp_path / "more", kind, 8, 5)
    report = distill(
        teachers[kind], tmp_path / "run", train=train, dev=dev, unlabelled=more, student=student,
        **({"layers": "1"} if student == "layers" else {}), **FAST,
    )  # fmt: skip
    predictor = load_predictor(tmp_path / "run" / "model")
    assert predictor.task.spec.kind == SPECS[kind].kind
    assert predictor.task.spec.labels == SPECS[kind].labels
    assert len(predictor.predict(examples_of(kind, 4))) == 4
    assert [row["name"] for row in report.rows] == ["teacher", "student"]
    assert all(np.isfinite(step["soft_loss"]) for step in steps_of(tmp_path / "run/seed-1"))


@pytest.mark.parametrize("kind", WINDOWS)
def test_stored_logits_of_long_texts_are_those_of_the_teacher(
    kind: str, teachers: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stored, "BLOCK", 5)
    folder = load_any(teachers[kind])
    task = task_for(SPECS[kind])
    model = load_for_task(folder, task.head, keep_head=True).model.eval()
    features = task.encode(examples_of(kind, 12, 3), TOKENIZER)
    assert len(features.rows) > 2 * 5
    runtime = choose("cpu", "fp32")
    expected = task_logits(model, features, runtime)
    result = stored.stored_logits(tmp_path / "logits", model, "digest", features, runtime, 512)
    np.testing.assert_allclose(result, expected, atol=1e-5)
    again = stored.stored_logits(tmp_path / "logits", model, "digest", features, runtime, 512)
    np.testing.assert_array_equal(again, result)


def test_soft_targets_alone_make_the_student_answer_like_its_teacher(tmp_path: Path) -> None:
    teacher = write_teacher(tmp_path, "single", epochs=15)
    train = write_examples(tmp_path / "train", "single", 48, 3)
    logits = tmp_path / "logits"
    weights = {"label_weight": 0.0, "layers": "2", "dropout": 0.0, "temperature": 1.0, "logits": logits}
    errors = []
    for epochs in (0.2, 25.0):
        run = tmp_path / f"run-{epochs:g}"
        distill(teacher, run, train=train, dev=train, **{**FAST, **weights, "epochs": epochs, "start": "random"})
        result = [load_predictor(model).predict(examples_of("single", 48, 3)) for model in (teacher, run / "model")]
        gaps = [abs(a.probabilities[0] - b.probabilities[0]) for a, b in zip(*result, strict=True)]
        errors.append(float(np.mean(gaps)))
    assert errors[1] < 0.3 * errors[0]


def test_stored_logits_are_those_of_the_teacher_and_are_read_again(
    teacher: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, task = load_any(teacher), task_for(SPECS["tags"])
    model = load_for_task(folder, task.head, keep_head=False, seed=3).model.eval()
    features, runtime = task.encode(examples_of("tags", 12), TOKENIZER), choose("cpu", "fp32")
    wanted = task_logits(model, features, runtime)
    monkeypatch.setattr(stored, "BLOCK", 5)
    arguments = (tmp_path / "logits", model, "digest", features, runtime, 64)
    np.testing.assert_allclose(stored.stored_logits(*arguments), wanted, rtol=1e-5, atol=1e-6)
    blocks = sorted((tmp_path / "logits").glob("block-*"))
    assert len(blocks) == 3
    calls = []
    monkeypatch.setattr(
        stored, "task_logits", lambda *arguments: calls.append(len(arguments[1])) or task_logits(*arguments)
    )
    again = stored.stored_logits(*arguments)
    assert calls == []
    blocks[1].unlink()  # as if it had been interrupted
    assert np.array_equal(stored.stored_logits(*arguments), again)
    assert calls == [5]
    blocks[2].write_bytes(blocks[2].read_bytes()[:40])
    with pytest.raises(InputError, match="block-00002"):
        stored.stored_logits(*arguments)


def test_logits_of_other_examples_or_of_another_teacher_are_refused(teachers: dict[str, Path], tmp_path: Path) -> None:
    train, other = (write_examples(tmp_path / str(seed), "single", 16, seed) for seed in (3, 4))
    logits = tmp_path / "logits"
    distill(teachers["single"], tmp_path / "a", train=train, dev=other, logits=logits, layers="1", **FAST)
    with pytest.raises(InputError, match="found those of other examples"):
        distill(teachers["single"], tmp_path / "b", train=other, dev=train, logits=logits, layers="1", **FAST)
    second = write_teacher(tmp_path / "second", "single", epochs=2)
    with pytest.raises(InputError, match="found those of another teacher"):
        distill(second, tmp_path / "b", train=train, dev=other, logits=logits, layers="1", **FAST)


@pytest.mark.parametrize("student", ["1x16", "layers"])
def test_a_resumed_run_ends_with_the_same_bytes(student: str, teacher: Path, tmp_path: Path) -> None:
    """With hidden states of another width, so that the projection is part of the checkpoint."""
    train, dev = (write_examples(tmp_path / str(seed), "single", 24, seed) for seed in (3, 4))
    options = {
        **FAST, "student": student, "state_weight": 1.0, "attention_weight": 1.0,
        "first_stage": 0.0, "save_every": 2, "layers": "1" if student == "layers" else None,
    }  # fmt: skip
    distill(teacher, tmp_path / "straight", train=train, dev=dev, **options)
    with killed_at_step(6):
        distill(teacher, tmp_path / "run", train=train, dev=dev, **options)
    (folder,) = (tmp_path / "run").glob("seed-*")
    checkpoint = safetensors.numpy.load_file(max(folder.glob("checkpoints/step-*")) / "model.safetensors")
    assert ("projection.weight" in checkpoint) == (student == "1x16")
    distill(teacher, tmp_path / "run", train=train, dev=dev, resume=True, **options)
    assert_same_models(tmp_path / "straight", tmp_path / "run")


def test_a_first_stage_learns_states_and_the_second_starts_from_it(teacher: Path, tmp_path: Path) -> None:
    train, dev = (write_examples(tmp_path / str(seed), "single", 24, seed) for seed in (3, 4))
    options = {**FAST, "layers": "1", "first_stage": 6.0, "log_every": 1, "dropout": 0.0}
    distill(teacher, tmp_path / "run", train=train, dev=dev, **options)
    lines = (tmp_path / "run/first-stage/seed-1/metrics.jsonl").read_text().splitlines()
    states = [line["states_loss"] for line in map(json.loads, lines) if line["kind"] == "train"]
    assert np.mean(states[-3:]) < 0.8 * np.mean(states[:3])
    started = read_json(tmp_path / "run/settings.json")["digests"]["base"]
    assert started != read_json(tmp_path / "run/first-stage/settings.json")["digests"]["base"]


def test_the_table_has_costs_scores_and_the_student_without_its_teacher(teacher: Path, tmp_path: Path) -> None:
    train, dev = (write_examples(tmp_path / str(seed), "single", 24, seed) for seed in (3, 4))
    options = {**FAST, "seeds": 2, "times": True, "without_teacher": None}  # as by default with few labels
    report = distill(teacher, tmp_path / "run", train=train, dev=dev, layers="1", **options)
    rows = {row["name"]: row for row in report.rows}
    assert from_file(DistillRequest, tmp_path / "run/request.toml")["layers"] == "1"
    assert list(rows) == ["teacher", "student", "student without teacher"]
    sizes = {name: row["cost"]["parameters"] for name, row in rows.items()}
    assert sizes["student"] == sizes["student without teacher"] < sizes["teacher"]
    assert rows["student"]["cost"]["bytes"] == (tmp_path / "run/model/model.safetensors").stat().st_size
    assert rows["student"]["cost"]["milliseconds"]["fp32"].keys() == {"one", "batch"}
    assert rows["student"]["seeds"] == 2
    assert read_json(tmp_path / "run/distillation.json")["rows"][0]["score"] == rows["teacher"]["score"]
    places = ("settings.json", "without-teacher/settings.json")
    starts = [read_json(tmp_path / "run" / run)["digests"]["base"] for run in places]
    assert starts[0] == starts[1]
    header, cells = report.table()
    assert len(cells) == 3
    assert all(len(row) == len(header) for row in cells)
    assert "of the teacher's accuracy" in report.lines()[0]
    card = (tmp_path / "run/model/README.md").read_text()
    assert "teacher: BERT, 2 layers, width 32" in card
    assert "student: layer 1 of the teacher" in card


def test_texts_without_labels_get_the_answers_of_the_teacher(teacher: Path, tmp_path: Path) -> None:
    dev, text = write_examples(tmp_path / "dev", "single", 8, 4), tmp_path / "more.txt"
    texts = [example.first for example in examples_of("single", 12, 6)]
    text.write_text("\n".join([*texts, "", " "]) + "\n", encoding="utf-8")
    coded = file_with(tmp_path / "coded.txt", text.read_bytes() + "a café\n".encode("cp1252"))
    with pytest.raises(InputError, match=r'byte 0xe9 in line 15, not UTF-8; .*as in `encoding="cp1252"`$'):
        distill(teacher, tmp_path / "run", dev=dev, unlabelled=coded, layers="1", **FAST)
    distill(teacher, tmp_path / "run", dev=dev, unlabelled=coded, layers="1", encoding="cp1252", **FAST)
    assert read_json(tmp_path / "run/report.json")["train_examples"] == 13
    with pytest.raises(ConfigError, match="`without_teacher=True` needs labelled examples, with `train`"):
        distill(teacher, tmp_path / "other", dev=dev, unlabelled=text, **{**FAST, "without_teacher": True})
    with pytest.raises(ConfigError, match="examples to learn from"):
        distill(teacher, tmp_path / "other", dev=dev, **FAST)


def test_changed_copies_leave_stop_words_and_are_the_same_each_time(teacher: Path, tmp_path: Path) -> None:
    train = write_examples(tmp_path / "train", "single", 8, 3)
    base = teacher.parent.parent / "base"
    for name in ("a", "b"):
        distill(teacher, tmp_path / name, train=train, dev=train, layers="1", augment=2, fill_with=str(base), **FAST)
    first, second = tensors_of(tmp_path / "a"), tensors_of(tmp_path / "b")
    assert all(np.array_equal(first[name], second[name]) for name in first)
    assert read_json(tmp_path / "a/report.json")["train_examples"] > 16
    with pytest.raises(CheckpointError, match="a masked-LM head"):
        distill(teacher, tmp_path / "c", train=train, dev=train, layers="1", augment=2, **FAST)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"student": "1x18", "attention_weight": 1.0}, "attention heads of its teacher"),
        ({"student": "bilstm", "state_weight": 1.0}, "two Transformers"),
        ({"student": "3x32", "state_weight": 1.0}, "divides the 2 of its teacher"),
        ({"soft_weight": 0.0}, "a loss against the teacher"),
        ({"temperature": 0.0}, "temperature must be above 0"),
        ({"fill_with": "starter"}, "`fill_with` needs `augment`"),
        ({"layers": "5"}, "1 to 2 layers"),
        ({"label_weight": -1.0}, "label_weight must be at least 0"),
        ({"recipe": "setfit"}, "unknown recipe"),
        ({"color": 1}, "unknown setting"),
    ],
)
def test_settings_that_do_not_fit_are_one_line_and_leave_nothing(
    changes: dict[str, object], message: str, teacher: Path, tmp_path: Path
) -> None:
    train = write_examples(tmp_path / "train", "single", 16, 3)
    with pytest.raises(ConfigError, match=message):
        distill(teacher, tmp_path / "run", train=train, dev=train, unlabelled=train, **{**FAST, **changes})
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("student", ["layers", "n-grams"])
def test_what_is_refused_after_the_teacher_has_answered_leaves_no_logits(
    student: str, teacher: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    train = write_examples(tmp_path / "train", "single", 16, 3)
    files = {"train": train, "dev": train, "unlabelled": train}
    options = {"student": student, **(FAST if student == "layers" else {"times": False})}

    def refuses(*arguments: object) -> object:
        assert (tmp_path / "run" / "teacher" / "unlabelled" / "block-00000.safetensors").is_file()
        raise ConfigError(expected="other examples", found="these", fix="change them")

    monkeypatch.setattr(Lesson, "logits_of", refuses)
    with pytest.raises(ConfigError, match="other examples"):
        distill(teacher, tmp_path / "run", **files, **options)
    assert not (tmp_path / "run").exists()
    monkeypatch.undo()
    distill(teacher, tmp_path / "run", **files, **options)


def test_an_unknown_label_is_refused_before_the_teacher_answers(
    teacher: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    train = file_with(tmp_path / "train.tsv", "text\tlabel\na b\tno such label\nb a\tanother\n")
    monkeypatch.setattr(Lesson, "logits", lambda *arguments: pytest.fail("the teacher was asked"))
    with pytest.raises(InputError, match="no such label"):
        distill(teacher, tmp_path / "run", train=train, dev=train, unlabelled=train, **FAST)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("of_teacher", "of_student", "line"),
    [(0.0, 0.5, "accuracy is 0.0000: there is nothing to keep"), (0.8, None, "no dev examples"), (0.8, 0.4, "50.0%")],
)
def test_the_report_says_what_is_kept_of_the_score_of_the_teacher(
    of_teacher: float, of_student: float | None, line: str, tmp_path: Path
) -> None:
    scores = (("teacher", of_teacher), ("student", of_student))
    rows = [{"name": name, "score": score, "deviation": None, "cost": None} for name, score in scores]
    assert line in DistillationReport(metric="accuracy", rows=rows, path=tmp_path).lines()[0]


def test_a_teacher_without_a_task_another_task_and_a_used_folder_are_refused(teacher: Path, tmp_path: Path) -> None:
    train = write_examples(tmp_path / "train", "single", 16, 3)
    base = write_base_model(tmp_path / "base")
    with pytest.raises(CheckpointError, match="a fine-tuned model"):
        distill(base, tmp_path / "run", train=train, **FAST)
    make_static_vectors(base, tmp_path / "static")
    with pytest.raises(BertsmithError, match=r"found the sentence encoder .*finetune --model STUDENT --task pairs"):
        distill(tmp_path / "static", tmp_path / "run", train=train, **FAST)
    with pytest.raises(BertsmithError, match="format of ner"):
        distill(teacher, tmp_path / "run", train=write_examples(tmp_path / "tags", "tags", 4, 1), task="ner", **FAST)
    with pytest.raises(RunError, match="no such folder"):
        distill(teacher, tmp_path / "none", train=train, resume=True, **FAST)
    (tmp_path / "used").mkdir()
    (tmp_path / "used" / "file").write_text("mine")
    with pytest.raises(RunError, match="a new folder"):
        distill(teacher, tmp_path / "used", train=train, **FAST)
    assert (tmp_path / "used" / "file").read_text() == "mine"


def test_another_vocabulary_is_refused_before_anything_is_computed(teacher: Path, tmp_path: Path) -> None:
    train = write_examples(tmp_path / "train", "single", 16, 3)
    config = dataclasses.replace(CONFIG, vocab_size=len(TOKENIZER.vocabulary))
    pieces = type(TOKENIZER.vocabulary)([*TOKENIZER.vocabulary.pieces[:-1], "##z"])
    save_pretrained(tmp_path / "other", untrained(config, 0), type(TOKENIZER)(pieces), ModelMetadata())
    with pytest.raises(BertsmithError, match="vocabulary and the text rules of its teacher"):
        distill(teacher, tmp_path / "run", train=train, student=str(tmp_path / "other"), **FAST)
    assert not (tmp_path / "run").exists()


def test_the_settings_of_a_first_stage_have_no_prediction() -> None:
    first = DistillationSettings(first_stage=2.0, attention_weight=0.5).of_first_stage()
    assert (first.soft_weight, first.label_weight, first.state_weight, first.attention_weight) == (0, 0, 1.0, 0.5)
    assert not torch.is_grad_enabled() or first.has_states
