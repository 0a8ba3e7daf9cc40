"""Texts with marked spans: every form of the same annotation gives the same words and tags."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bertsmith.base.core.errors import InputError
from bertsmith.tasks.datasets.marked_texts import MarkedSpan, tags_of_spans, words_of
from bertsmith.tasks.datasets.spans import has_spans, read_spans
from bertsmith.tasks.metrics.entities import entity_spans
from written_files import file_with

TEXT = "Ms. Ann Lee, of Oslo."
WORDS = ("Ms", ".", "Ann", "Lee", ",", "of", "Oslo", ".")
TAGS = ("O", "O", "B-PER", "I-PER", "O", "O", "B-LOC", "O")
SPANS = [{"start": 4, "end": 11, "label": "PER"}, {"start": 16, "end": 20, "label": "LOC"}]
TRIPLES = [[4, 11, "PER"], [16, 20, "LOC"]]


def result(start: int, end: int, label: str, /, **more: Any) -> dict[str, Any]:
    value = {"start": start, "end": end, "text": TEXT[start:end], "labels": [label]} | more
    return {"from_name": "label", "to_name": "text", "type": "labels", "value": value}


def annotation(*results: Any, **more: Any) -> dict[str, Any]:
    return {"id": 1, "was_cancelled": False, "ground_truth": False, "result": list(results), **more}


def task(*annotations: Any, text: str = TEXT, **more: Any) -> dict[str, Any]:
    return {"id": 7, "data": {"text": text}, "annotations": list(annotations), "predictions": [], **more}


BOTH = annotation(result(4, 11, "PER"), result(16, 20, "LOC"))


def write_lines(path: Path, *records: Any) -> Path:
    path.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")
    return path


def write_list(path: Path, *records: Any) -> Path:
    path.write_text(json.dumps(records, indent=1), encoding="utf-8")
    return path


@pytest.mark.parametrize(
    "record",
    [
        {"text": TEXT, "spans": SPANS},
        {
            "text": TEXT,
            "spans": [{**span, "text": TEXT[span["start"] : span["end"]]} for span in SPANS],
            "answer": "accept",
        },
        {"text": TEXT, "entities": SPANS[::-1]},
        {"text": TEXT, "entities": TRIPLES},
        {"id": 4, "text": TEXT, "label": TRIPLES},
        {"text": TEXT, "labels": TRIPLES, "spans": None},
        {
            "text": TEXT,
            "entities": [
                {"id": 1, "label": triple[2], "start_offset": triple[0], "end_offset": triple[1]} for triple in TRIPLES
            ],
            "relations": [],
        },
        [TEXT, {"entities": TRIPLES}],
        {"text": TEXT, "label": [result(4, 11, "PER")["value"], result(16, 20, "LOC")["value"]], "annotator": 1},
        task(BOTH),
        {**task(), "completions": [BOTH], "annotations": [BOTH]},
        {"data": {"text": TEXT}, "completions": [BOTH]},
        task(annotation(was_cancelled=True), BOTH),
        task(annotation(result(0, 2, "PER")), {**BOTH, "ground_truth": True}),
        task(BOTH, annotation(result(16, 20, "LOC"), result(4, 11, "PER"))),
    ],
)
@pytest.mark.parametrize("write", [write_lines, write_list])
def test_every_form_gives_the_same_sentence(record: Any, write: Any, tmp_path: Path) -> None:
    path = write(tmp_path / ("a.jsonl" if write is write_lines else "a.json"), record)
    assert has_spans(path)
    (example,) = read_spans(path).examples
    assert (example.words, example.tags) == (WORDS, TAGS)
    assert example.offsets == words_of(TEXT).offsets
    assert example.location.endswith(f" 1 of '{path}'")


def test_a_file_is_known_by_its_content_whatever_its_name(tmp_path: Path) -> None:
    lines = write_lines(tmp_path / "spans.txt", {"text": TEXT, "spans": SPANS}, {"text": "No one.", "spans": []})
    tasks = write_list(tmp_path / "export", task(BOTH), task(annotation()))
    for path in (lines, tasks):
        assert has_spans(path)
        assert [set(example.tags) for example in read_spans(path).examples] == [set(TAGS), {"O"}]
    columns = file_with(tmp_path / "words.conll", "[ O\nOslo B-LOC\n")
    assert not has_spans(columns)


def test_each_text_is_a_document_and_tags_may_have_another_scheme(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "a.jsonl", *[{"text": TEXT, "spans": SPANS}] * 2)
    examples = read_spans(path, scheme="IOBES").examples
    assert [example.document for example in examples] == [0, 1]
    assert examples[0].tags == ("O", "O", "B-PER", "E-PER", "O", "O", "S-LOC", "O")


def test_the_text_may_have_another_key(tmp_path: Path) -> None:
    path = write_list(tmp_path / "a.json", {"data": {"body": TEXT}, "annotations": [BOTH]})
    assert read_spans(path, text_column="body").examples[0].words == WORDS
    with pytest.raises(InputError, match=r"the key 'text' in record 1 of .*; found the keys 'body'; .*--text-column"):
        read_spans(path)


def test_a_span_that_cuts_a_word_is_widened_and_listed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write_lines(tmp_path / "a.jsonl", {"text": TEXT, "spans": SPANS}, {"text": TEXT, "label": [[5, 12, "PER"]]})
    first, second = read_spans(path).examples
    assert first.tags == TAGS
    assert second.tags == ("O", "O", "B-PER", "I-PER", "I-PER", "O", "O", "O")
    assert capsys.readouterr().err == (
        f"warning: '{path}': 1 span cut a word, widened to its ends\nwarning: line 2 of '{path}': 'PER' 'nn Lee,'\n"
    )


def test_white_space_at_the_ends_of_a_span_is_no_part_of_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write_lines(tmp_path / "a.jsonl", {"text": TEXT, "label": [[3, 11, "PER"], [15, 20, "LOC"]]})
    assert read_spans(path).examples[0].tags == TAGS
    assert capsys.readouterr().err == ""


def test_unlabelled_and_rejected_texts_are_skipped_with_their_reason(tmp_path: Path) -> None:
    records = [
        {"text": TEXT},
        {"text": TEXT, "spans": [], "answer": "reject"},
        {"text": " \n", "spans": []},
        task(),
        task(annotation(was_cancelled=True)),
        {"text": TEXT, "spans": SPANS},
    ]
    path = write_lines(tmp_path / "a.jsonl", *records)
    file = read_spans(path)
    assert len(file.examples) == 1
    assert [reason for _, reason in file.skipped] == [
        "no spans",
        "the answer 'reject' of the annotator",
        "a text without words",
        "no annotation",
        "only cancelled annotations",
    ]
    assert file.skipped[3][0] == f"line 4 of '{path}'"
    nothing = write_lines(tmp_path / "b.jsonl", *records[:3])
    with pytest.raises(InputError, match=r"texts with spans in .*; found 3 records without: no spans"):
        read_spans(nothing)


def test_without_gold_every_text_with_words_is_read_and_has_no_tags(tmp_path: Path) -> None:
    records = [
        {"text": TEXT},
        {"text": TEXT, "spans": SPANS, "answer": "reject"},
        {"text": " \n", "spans": []},
        {"text": None},
        task(),
        [TEXT, {"entities": [[0, 99, "PER"]]}],
    ]
    path = write_lines(tmp_path / "a.jsonl", *records)
    file = read_spans(path, gold=False)
    assert [(text.words, text.tags, text.document) for text in file.examples] == [(WORDS, None, n) for n in range(4)]
    assert file.examples[0].offsets == words_of(TEXT).offsets
    assert [(location[:6], reason) for location, reason in file.skipped] == [
        ("line 3", "a text without words"),
        ("line 4", "a text without words"),
    ]
    with pytest.raises(InputError, match="texts with words in"):
        read_spans(write_lines(tmp_path / "b.jsonl", *records[2:4]), gold=False)
    with pytest.raises(InputError, match="a text under the key 'text' in line 1"):
        read_spans(write_lines(tmp_path / "c.jsonl", {"body": TEXT}), gold=False)


def test_results_of_other_types_are_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    others = [{"type": "choices", "value": {"choices": ["good"]}}, {"type": "relation", "from_id": "a", "to_id": "b"}]
    path = write_list(tmp_path / "a.json", task(annotation(*BOTH["result"], *others, others[0])))
    assert read_spans(path).examples[0].tags == TAGS
    assert capsys.readouterr().err == (
        f"warning: '{path}': results of other types are not read: 2 choices, 1 relation\n"
    )


def test_an_emoji_is_one_character(tmp_path: Path) -> None:
    text = "💩 Oslo"
    right = write_lines(tmp_path / "a.jsonl", {"text": text, "spans": [{"start": 2, "end": 6, "label": "LOC"}]})
    assert read_spans(right).examples[0].tags == ("O", "B-LOC")
    code_units = {"start": 3, "end": 7, "label": "LOC", "text": "Oslo"}
    with pytest.raises(InputError, match=r"'Oslo' at 3 to 7 in line 1 of .*; found 'slo'; .*an emoji as one"):
        read_spans(write_lines(tmp_path / "b.jsonl", {"text": text, "spans": [code_units]}))


@pytest.mark.parametrize(
    ("record", "message"),
    [
        ({"text": TEXT, "spans": [{"start": 4, "end": 4, "label": "X"}]}, "at least one of the 21 char.*'X' at 4 to 4"),
        ({"text": TEXT, "label": [[16, 22, "X"]]}, "found 'X' at 16 to 22; correct or remove"),
        ({"text": TEXT, "label": [[-2, 3, "X"]]}, "found 'X' at -2 to 3"),
        ({"text": TEXT, "label": [[7, 8, "X"]]}, "a word in every span in line 2 of .*; found 'X' at 7 to 8, ' '"),
        (
            {"text": TEXT, "label": [[4, 11, "X"], [8, 20, "Y"]]},
            "share no word in .*; found 'X' at 4 to 11 and 'Y' at 8",
        ),
        ({"text": TEXT, "label": [[16, 18, "X"], [18, 20, "Y"]]}, "found 'X' at 16 to 18 and 'Y' at 18 to 20"),
        ({"text": TEXT, "label": [[0, 21, "X"], [4, 7, "Y"]]}, "found 'X' at 0 to 21 and 'Y' at 4 to 7"),
        ({"text": TEXT, "label": [[4, 11, "X"], [4, 11, "X"]]}, "remove one of the two"),
        ({"text": TEXT, "label": [[4, 11]]}, r"start, end and one label in line 2 of .*; found \[4, 11\]"),
        ({"text": TEXT, "label": [[4.0, 11, "X"]]}, "start, end and one label"),
        ({"text": TEXT, "label": [[True, 11, "X"]]}, "start, end and one label"),
        ({"text": TEXT, "label": [[4, 11, " "]]}, "start, end and one label"),
        ({"text": TEXT, "label": [[4, 11, "a\tb"]]}, "start, end and one label"),
        ({"text": TEXT, "spans": [{"start": 4, "label": "X"}]}, "start, end and one label"),
        ({"text": TEXT, "spans": ["Ann"]}, "start, end and one label"),
        ({"text": TEXT, "label": "PER"}, "a list of spans under 'label' in line 2 of .*--task classification"),
        ({"text": TEXT, "label": [], "spans": []}, "one list of spans in line 2 of .*; found 'spans' and 'label'"),
        ({"text": 4, "spans": []}, "a text under the key 'text' in line 2 of .*; found 4"),
        ({}, "a text under the key 'text' in line 2 of .*; found an empty record"),
        ([TEXT], "a record with a text and its spans in line 2 of"),
        (task(annotation(result(4, 11, "X", labels=["X", "Y"]))), "start, end and one label"),
        (task(annotation(result(4, 11, "X", labels=[]))), "start, end and one label"),
        (task(annotation(result(4, 11, "X", start="/p[1]"))), "start, end and one label"),
        (task(BOTH, annotation()), "one annotation of the task in line 2 of .*; found 2 that differ; mark one of them"),
        (task("none"), "annotations {...} in line 2"),
        ({"data": {"text": TEXT}, "annotations": 4}, "a list of annotations under 'annotations' in line 2"),
    ],
)
def test_what_cannot_be_read_is_named_with_its_line(record: Any, message: str, tmp_path: Path) -> None:
    path = write_lines(tmp_path / "a.jsonl", {"text": TEXT, "spans": SPANS}, record)
    with pytest.raises(InputError, match=message) as error:
        read_spans(path)
    assert f"line 2 of '{path}'" in str(error.value)


@given(st.text('ab ,."\t\n博\x01É', max_size=20), st.data())
def test_the_entities_of_the_tags_are_the_words_of_the_spans(text: str, data: st.DataObject) -> None:
    sentence = words_of(text)
    count = len(sentence.words)
    marks = sorted(data.draw(st.sets(st.integers(0, count), max_size=6)))
    pairs = list(zip(marks[::2], marks[1::2], strict=False))
    spans = [
        MarkedSpan(sentence.offsets[a][0], sentence.offsets[b - 1][1], data.draw(st.sampled_from("XY")))
        for a, b in pairs
    ]
    tags, widened = tags_of_spans(text, sentence, spans)
    expected = [(span.label, a, b) for span, (a, b) in zip(spans, pairs, strict=True)]
    assert entity_spans(tags, "IOB2") == expected
    assert widened == []
