"""Groups of examples: a dev set that is split off a training file has whole groups."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

import bertsmith
from bertsmith.base.core.errors import BertsmithError, ConfigError, RunError
from bertsmith.models.checkpoints.load import load_any
from bertsmith.recipes.distillation.transfer_set import Sources, read_sources
from bertsmith.recipes.finetuning.job import FinetuningJob
from bertsmith.recipes.finetuning.opening import opening_lines
from bertsmith.recipes.finetuning.settings import FinetuningSettings, RecipeSettings
from bertsmith.tasks.datasets.examples import TextExample
from bertsmith.tasks.task_data.split import split_dev
from bertsmith.tasks.task_data.task_files import read_task
from tasks.task_samples import examples_of, write_base_model
from written_files import file_with


def table(path: Path, count: int = 40, patients: int = 8) -> Path:
    rows = [
        {"text": f"{text.first} {number}", "label": text.label, "patient": f"p{number // 2 % patients}"}
        for number, text in enumerate(examples_of("single", count))
    ]
    pd.DataFrame(rows).to_csv(path, index=False)
    return path


@given(groups=st.lists(st.integers(0, 9), min_size=2, max_size=60).filter(lambda names: len(set(names)) > 1))
def test_no_group_is_in_both_parts(groups: list[int]) -> None:
    texts = [TextExample(id=str(number), first=str(number)) for number in range(len(groups))]
    kept, held = split_dev(texts, seed=0, groups=list(map(str, groups)))
    names = [{groups[int(text.id)] for text in part} for part in (kept, held)]
    assert kept
    assert held
    assert not names[0] & names[1]
    assert sorted(int(text.id) for text in (*kept, *held)) == list(range(len(groups)))
    assert len(held) <= max(1, round(len(groups) / 10), min(Counter(groups).values()))


def test_groups_do_not_change_a_split_without_them() -> None:
    texts = examples_of("single", 50)
    assert split_dev(texts, seed=0) == split_dev(texts, seed=0, groups=[str(number) for number in range(50)])


def test_examples_of_one_group_are_all_trained_on_or_all_held_out(tmp_path: Path) -> None:
    path = table(tmp_path / "rows.csv")
    patients = dict(pd.read_csv(path)[["text", "patient"]].itertuples(index=False))
    for limit in (None, 30):
        _, data = read_task("classification", path, None, group_column="patient", limit=limit)
        of_train, of_dev = ({patients[text.first] for text in part} for part in (data.train, data.dev))
        assert of_dev
        assert not of_train & of_dev
        assert data.held_out
        assert len(data.train) + len(data.dev) == (limit or 40)
    _, plain = read_task("classification", path, None)
    of_train, of_dev = ({patients[text.first] for text in part} for part in (plain.train, plain.dev))
    assert of_train & of_dev  # otherwise this table would show nothing


def test_the_column_of_the_groups_is_not_said_to_be_unread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("bertsmith.base.core.progress._silent", 0)
    path = file_with(tmp_path / "rows.csv", "text,label,patient,date\n" + "a,x,1,2\nb,y,2,2\nc,x,3,2\nd,y,4,2\n" * 5)
    read_task("classification", path, None, group_column="patient")
    assert "not read: column 'date'" in capsys.readouterr().err
    read_task("classification", path, None)
    assert "not read: columns 'patient', 'date'" in capsys.readouterr().err


def test_words_with_tags_have_groups_too(tmp_path: Path) -> None:
    rows = [{"tokens": ["anna", f"w{n}"], "ner_tags": ["B-PER", "O"], "author": str(n % 5)} for n in range(30)]
    path = file_with(tmp_path / "rows.jsonl", "".join(json.dumps(row) + "\n" for row in rows))
    _, data = read_task("ner", path, None, group_column="author")
    of_train, of_dev = ({int(text.words[1][1:]) % 5 for text in part} for part in (data.train, data.dev))
    assert len(of_dev) == 1
    assert not of_train & of_dev


def test_questions_have_groups_too_and_may_be_limited(tmp_path: Path) -> None:
    answers = {"text": ["anna"], "answer_start": [0]}
    rows = [
        {"id": str(n), "question": f"who {n} ?", "context": f"anna was in {n % 7} .", "answers": answers, "town": n % 7}
        for n in range(30)
    ]
    path = file_with(tmp_path / "rows.jsonl", "".join(json.dumps(row) + "\n" for row in rows))
    for limit in (None, 20):
        _, data = read_task("squad", path, None, group_column="town", limit=limit)
        of_train, of_dev = ({int(example.id) % 7 for example in part} for part in (data.train, data.dev))
        assert of_dev
        assert not of_train & of_dev
        assert len(data.train) + len(data.dev) == (limit or 30)


def test_the_opening_line_says_what_is_held_out(tmp_path: Path) -> None:
    base = load_any(write_base_model(tmp_path / "base"))
    path = table(tmp_path / "rows.csv", patients=4)  # ten rows each
    for column, line in (
        ("patient", "no dev file: 10 training examples of whole groups held out"),
        (None, "no dev file: a tenth of the training examples is held out"),
    ):
        spec, data = read_task("classification", path, None, group_column=column)
        job = FinetuningJob.prepare(base, spec, data, FinetuningSettings(device="cpu"), RecipeSettings())
        assert line in opening_lines(job)


def test_a_run_records_the_column_and_is_resumed_with_it_alone(tmp_path: Path) -> None:
    base, frame = write_base_model(tmp_path / "base"), pd.read_csv(table(tmp_path / "rows.csv"))
    options: dict[str, Any] = {"train": frame, "seeds": 1, "epochs": 1, "max_length": 32, "device": "cpu"}
    bertsmith.finetune(base, "classification", tmp_path / "run", group_column="patient", **options)
    assert json.loads((tmp_path / "run" / "settings.json").read_text())["settings"]["group_column"] == "patient"
    with pytest.raises(RunError, match="group_column = None"):
        bertsmith.finetune(base, "classification", tmp_path / "run", resume=True, **options)


def test_groups_that_cannot_be_are_refused_in_a_line(tmp_path: Path) -> None:
    path = table(tmp_path / "rows.csv")
    single = table(tmp_path / "one.csv", patients=1)
    of_labels = pd.read_csv(path).assign(patient=lambda rows: rows["label"])
    of_labels.to_csv(tmp_path / "labels.csv", index=False)
    pd.read_csv(path).assign(patient=lambda rows: rows["patient"].mask(rows.index == 4)).to_csv(tmp_path / "gap.csv")
    (tmp_path / "lines.conll").write_text("anna B-PER\nwas O\n\n" * 4)
    for train, options, message in (
        (path, {"group_column": "patent"}, "expected the column 'patent' in .*found columns .*"),
        (path, {"group_column": "patient", "dev": path}, "from the training file, for --group-column; found --dev"),
        (single, {"group_column": "patient"}, "expected groups of examples of which one .*; found 1 group"),
        (
            tmp_path / "labels.csv",
            {"group_column": "patient"},
            "each label being left in another; found 2 groups; labels in one group alone: '",
        ),
        (tmp_path / "gap.csv", {"group_column": "patient"}, "a group in column 'patient'.* line 6 of .*"),
    ):
        dev = options.pop("dev", None)
        with pytest.raises(BertsmithError, match=message):
            read_task("classification", train, dev, **options)
    with pytest.raises(BertsmithError, match=r"expected a table"):
        read_task("ner", tmp_path / "lines.conll", None, group_column="patient")
    with pytest.raises(ConfigError, match="--group-column needs a task with dev examples"):
        read_task("texts", path, None, group_column="patient")


def test_labels_of_one_fold_are_named_and_refused_if_all_are(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [{"text": f"text {n}", "label": "abc"[n % 3], "site": f"s{n % 3}"} for n in range(30)]
    pd.DataFrame(rows).to_csv(tmp_path / "labels.csv", index=False)
    pd.DataFrame([*rows, {"text": "more", "label": "a", "site": "s1"}]).to_csv(tmp_path / "some.csv", index=False)
    message = (
        "a label with examples in several folds, for --folds 3; found labels in one fold alone: 'a', 'b', 'c'; put"
    )
    with pytest.raises(ConfigError, match=message):
        read_task("classification", tmp_path / "labels.csv", None, group_column="site", fold=(0, 3))
    capsys.readouterr()
    read_task("classification", tmp_path / "some.csv", None, group_column="site", fold=(0, 3))
    assert capsys.readouterr().err == (
        "warning: labels in one fold alone, whose examples are predicted by a model that never saw them: 'b', 'c'; "
        "put examples with them in several groups\n"
    )
    read_task("classification", tmp_path / "some.csv", None, fold=(0, 3))
    assert not capsys.readouterr().err


def test_comparisons_and_students_hold_out_whole_groups_too(tmp_path: Path) -> None:
    path = table(tmp_path / "rows.csv", patients=4)  # ten rows each
    options: dict[str, Any] = {"systems": ["one-hot"], "seeds": 1, "device": "cpu", "group_column": "patient"}
    report = bertsmith.compare_systems(path, tmp_path / "report", **options).report
    assert (report["train_examples"], report["dev_examples"]) == (30, 10)
    with pytest.raises(RunError, match="group_column = None"):
        bertsmith.compare_systems(path, tmp_path / "report", resume=True, device="cpu")
    base = write_base_model(tmp_path / "base")
    teacher = tmp_path / "teacher"
    bertsmith.finetune(base, "classification", teacher, train=path, seeds=1, epochs=1, max_length=32, device="cpu")
    _, data, _ = read_sources(load_any(teacher / "model"), Sources(train=path, group_column="patient"))
    assert (len(data.train), len(data.dev)) == (30, 10)
    patients = dict(pd.read_csv(path)[["text", "patient"]].itertuples(index=False))
    assert len({patients[text.first] for text in data.dev}) == 1
    with pytest.raises(ConfigError, match="--group-column needs --train"):
        read_sources(load_any(teacher / "model"), Sources(unlabelled=path, group_column="patient"))
