"""Questions as rows, as lists and in the files of SQuAD: the same questions."""

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from bertsmith.base.core.errors import InputError
from bertsmith.tasks.datasets.squad import read_squad

CONTEXT = "Ann sang in Oslo."


def squad(folder: Path, form: str) -> Path:
    answers = [{"text": "Oslo", "answer_start": 12}]
    question = {"id": "1", "question": "Where?", "answers": answers}
    nothing = {"id": "2", "question": "Why?", "answers": []}
    row = {"title": "t", "context": CONTEXT, "answers": {"text": ["Oslo"], "answer_start": [12]}}
    rows = [{**row, "id": "1", "question": "Where?"}, {**row, **nothing, "answers": {"text": [], "answer_start": []}}]
    paragraph = {"context": CONTEXT, "qas": [question, {**nothing, "is_impossible": True}]}
    contents = {
        "data.json": {"version": "2", "data": [{"title": "t", "paragraphs": [paragraph]}]},
        "articles.json": [{"title": "t", "paragraphs": [paragraph]}],
        "paragraphs.json": [paragraph],
        "rows.json": rows,
        "data-rows.json": {"data": rows},
        "lists.json": [{"context": CONTEXT, **question}, {"context": CONTEXT, **nothing}],
    }
    path = folder / form
    if form.endswith(("lines.json", ".jsonl")):
        path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    elif form.endswith(".parquet"):
        pq.write_table(pa.Table.from_pylist(rows), path)
    else:
        path.write_text(json.dumps(contents[form], indent=1), encoding="utf-8")
    return path


FORMS = ["articles.json", "paragraphs.json", "rows.json", "data-rows.json", "lists.json", "lines.json", "a.jsonl"]


@pytest.mark.parametrize("form", [*FORMS, "a.parquet"])
def test_questions_are_the_same_in_every_form(tmp_path: Path, form: str) -> None:
    def questions(path: Path) -> list[object]:
        examples = read_squad(path, gold=True, unanswerable=True).examples
        return [
            (example.id, example.question, example.context, example.answers, example.is_impossible)
            for example in examples
        ]

    wanted = questions(squad(tmp_path, "data.json"))
    assert len(wanted) == 2
    assert questions(squad(tmp_path, form)) == wanted
    if "rows" in form or "line" in form:
        answerable = read_squad(squad(tmp_path, form), training=True)
        assert [reason for _, reason in answerable.skipped] == ["no answer"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"answers": {"text": ["a", "b"], "answer_start": [1]}},
            "as many texts as starts of answers in line 1",
        ),
        ({"context": 4}, "the field 'context' of the SQuAD format in line 1"),
        ({"answers": {"text": [4], "answer_start": [0]}}, "the field 'text' of the SQuAD format"),
    ],
)
def test_a_row_of_a_question_that_does_not_fit_is_refused(tmp_path: Path, change, message: str) -> None:
    row = {"id": "1", "question": "Where?", "context": CONTEXT, "answers": {"text": ["Oslo"], "answer_start": [12]}}
    (tmp_path / "a.jsonl").write_text(json.dumps({**row, **change}), encoding="utf-8")
    with pytest.raises(InputError, match=message):
        read_squad(tmp_path / "a.jsonl", gold=True)
