"""Relations between two marked entities: the entities are replaced, and a model is fine-tuned on what is left."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import bertsmith
from bertsmith.app.library.prediction_tables import write_predictions
from bertsmith.base.core.errors import InputError
from bertsmith.inference.predictors.request import PredictRequest
from bertsmith.tasks.datasets.examples import TextExample
from bertsmith.tasks.datasets.marked_texts import MarkedSpan
from bertsmith.tasks.datasets.relations import anonymized, read_relations
from tasks.task_samples import write_base_model
from written_files import file_with

TEXT = "BRCA1 was found to cause breast cancer."
GENE, DISEASE = {"start": 0, "end": 5, "label": "GENE"}, {"start": 25, "end": 38, "label": "DISEASE"}
RECORD = {"id": "a", "text": TEXT, "spans": [GENE, DISEASE], "label": "causes"}


def write(path: Path, *records: Any) -> Path:
    path.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")
    return path


def only(path: Path, **options: Any) -> TextExample:
    (example,) = read_relations(path, **options).examples
    return example


@pytest.mark.parametrize(
    "record",
    [
        RECORD,
        {"id": "a", "text": TEXT, "entities": [[25, 38, "DISEASE"], [0, 5, "GENE"]], "relation": "causes"},
    ],
)
def test_every_form_of_a_record_gives_the_same_text(tmp_path: Path, record: Any) -> None:
    example = only(write(tmp_path / "one.jsonl", record))
    assert (example.id, example.first, example.label) == ("a", "@GENE$ was found to cause @DISEASE$.", "causes")
    (tmp_path / "list.json").write_text(json.dumps([record]), encoding="utf-8")
    assert only(tmp_path / "list.json").first == example.first


def test_a_label_may_be_missing_only_where_none_is_read(tmp_path: Path) -> None:
    path = write(tmp_path / "one.jsonl", {key: value for key, value in RECORD.items() if key != "label"})
    assert only(path, gold=False).label is None
    with pytest.raises(InputError, match=r"a relation under the key 'label' or 'relation' in .*line 1"):
        read_relations(path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"spans": [GENE]}, "expected two spans .* found 1"),
        ({"spans": None}, "expected two spans .* found 0"),
        ({"spans": [GENE, {**DISEASE, "start": 3}]}, "share no character"),
        ({"spans": [GENE, {**DISEASE, "end": 99}]}, "one past its last character"),
        ({"spans": [GENE, {**GENE, "end": 0}]}, "at least one of the 39 characters"),
        ({"spans": "GENE"}, "a list of spans"),
        ({"text": 3}, "a text under the key 'text'"),
    ],
)
def test_a_record_without_two_entities_is_one_line(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message) as error:
        read_relations(write(tmp_path / "one.jsonl", {**RECORD, **change}))
    assert "line 1" in str(error.value)


def test_a_table_is_marked_already(tmp_path: Path) -> None:
    table = file_with(tmp_path / "gad.tsv", "index\tsentence\tlabel\n0\t@GENE$ leads to @DISEASE$ .\t1\n")
    assert only(table).first == "@GENE$ leads to @DISEASE$ ."
    table.write_text("index\tsentence\tlabel\n0\tBRCA1 leads to cancer .\t1\n", encoding="utf-8")
    with pytest.raises(InputError, match=r"texts with marked entities, such as @GENE\$"):
        read_relations(table)


@given(st.text(max_size=8), st.text(max_size=8), st.text(max_size=8), st.permutations([0, 1]))
def test_the_text_around_the_entities_stays_as_it_is(before: str, between: str, after: str, order: list[int]) -> None:
    text = f"{before}one{between}other{after}"
    first = len(before)
    second = first + 3 + len(between)
    spans = [MarkedSpan(first, first + 3, "A B"), MarkedSpan(second, second + 5, "C")]
    result = anonymized(text, (spans[order[0]], spans[order[1]]))
    assert result == f"{before}@A-B${between}@C${after}"


def test_relations_are_learned_and_predicted_from_spans(tmp_path: Path) -> None:
    write_base_model(tmp_path / "base")
    records = []
    for number in range(24):
        verb, label = (("good", "causes"), ("bad", "none"))[number % 2]
        text = f"the film {verb} the movie"
        records.append({"text": text, "spans": [[0, 8, "GENE"], [len(text) - 9, len(text), "DISEASE"]], "label": label})
    train = write(tmp_path / "train.jsonl", *records)
    bertsmith.finetune(tmp_path / "base", "relations", tmp_path / "run", train=train, seeds=1, epochs=1.0, device="cpu")
    new = write(tmp_path / "new.jsonl", *({"text": record["text"], "spans": record["spans"]} for record in records[:3]))
    out = tmp_path / "answers.csv"
    answers = list(write_predictions(PredictRequest(tmp_path / "run" / "model", data=new, out=out, device="cpu")))
    texts = [example.first for example, _ in answers if isinstance(example, TextExample)]
    assert texts == ["@GENE$ good @DISEASE$", "@GENE$ bad @DISEASE$", "@GENE$ good @DISEASE$"]
    assert len(out.read_text(encoding="utf-8").splitlines()) == 4, "the head, and a row for each record"
