"""The audit of tagged sentences: planted errors are found as entities, and corrected in the form of the file."""

import csv
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import bertsmith
from bertsmith.base.core.errors import ConfigError, InputError
from bertsmith.recipes.audit.run import Audit
from bertsmith.recipes.audit.tags import CORRECTED, TagsAudited
from bertsmith.tasks.datasets.examples import TaggedExample
from bertsmith.tasks.datasets.tagged_copies import tagged_copy
from bertsmith.tasks.datasets.tagged_files import read_tagged
from bertsmith.tasks.metrics.entities import convert_tags, entity_spans, scheme_errors
from bertsmith.tasks.metrics.label_errors import confident_labels, normalized_margins
from bertsmith.tasks.specs.task import TaskSpec
from tasks.task_samples import write_base_model
from written_files import file_with

NAMES = ("Ann", "Bob", "Eve", "Tom")
CITIES = (("New", "Oslo"), ("Old", "Bergen"), ("New", "Lima"), ("Old", "Cusco"))
ERRORS: Mapping[int, tuple[str, str, str]] = {  # by the number of the sentence: kind, label and suggestion
    7: ("missing entity", "Eve", "[Eve PER]"),
    20: ("spurious entity", "[by LOC]", "by"),
    33: ("wrong type", "[Bob LOC]", "[Bob PER]"),
    46: ("wrong boundary", "New [Lima LOC]", "[New Lima LOC]"),
}


def sentences() -> list[tuple[list[str], list[str]]]:
    """Words with their right tags."""
    rows = []
    for number in range(64):
        name, city = NAMES[number // 4 % 4], CITIES[number % 4]
        words = [name, "went", "to", *city, "by", f"train{number}"]
        rows.append((words, ["B-PER", "O", "O", "B-LOC", "I-LOC", "O", "O"]))
    return rows


def with_errors() -> list[tuple[list[str], list[str]]]:
    rows = sentences()
    for number, (position, tag) in {7: (0, "O"), 20: (5, "B-LOC"), 33: (0, "B-LOC"), 46: (3, "O")}.items():
        words, tags = rows[number]
        words[0] = {7: "Eve", 33: "Bob"}.get(number, words[0])
        tags[position] = tag
    rows[46] = (["Tom", "went", "to", "New", "Lima", "by", "train46"], ["B-PER", "O", "O", "O", "B-LOC", "O", "O"])
    return rows


def in_columns(rows: Sequence[tuple[Sequence[str], Sequence[str]]], scheme: str = "IOB2") -> str:
    parts = [zip(words, convert_tags(tags, "IOB2", scheme), strict=True) for words, tags in rows]
    return "\n".join("".join(f"{word} {word.lower()} {tag}\n" for word, tag in part) for part in parts)


def spans_of(words: Sequence[str], tags: Sequence[str]) -> list[dict[str, Any]]:
    starts = np.cumsum([0, *(len(word) + 1 for word in words)]).tolist()
    return [
        {"start": starts[start], "end": starts[end] - 1, "label": kind}
        for kind, start, end in entity_spans(tags, "IOB2")
    ]


def fixed(path: Path, folder: Path, task: str = "ner") -> Path:
    """The folder of a table with all corrections of its audit."""
    issues = bertsmith.audit_labels(path, folder / "out", task=task).folder / "issues.csv"
    return bertsmith.audit_labels(path, folder / "fixed", task=task, fix=issues).folder


@pytest.fixture(scope="module")
def audit(tmp_path_factory: pytest.TempPathFactory) -> Audit:
    folder = tmp_path_factory.mktemp("tags")
    path = file_with(folder / "table.conll", "-DOCSTART- -X- O\n\n# a comment of its own\n" + in_columns(with_errors()))
    return bertsmith.audit_labels(path, folder / "out", task="ner")


def test_planted_errors_are_first_with_what_is_wrong_and_the_suggestion(audit: Audit) -> None:
    first = {issue["row"] - 1: (issue["issue"], issue["label"], issue["suggested"]) for issue in audit.issues[:4]}
    assert first == ERRORS
    assert all(issue["probability"] < issue["probability_of_suggested"] for issue in audit.issues[:4])
    assert {issue["row"] - 1: issue["other"] for issue in audit.issues[:4]}[46] == "words 4 to 5"
    low, high = audit.report["interval"]
    assert 0 < low <= audit.report["errors"] <= high < 0.1
    assert audit.report["issues"] | dict.fromkeys(("wrong type", "wrong boundary"), 1) == audit.report["issues"]
    assert any("estimated share of wrong tags among the 448 words" in line for line in audit.lines())
    assert audit.lines()[0].startswith("64 sentences, each predicted by models fitted to about 51 others (5 folds)")


def test_the_corrected_file_has_the_lines_of_the_file_with_other_tags(audit: Audit) -> None:
    before = in_columns(with_errors())
    certain = (audit.folder / "corrected.conll").read_text(encoding="utf-8")
    table = audit.folder.parent / "table.conll"
    fixed = bertsmith.audit_labels(table, audit.folder.parent / "fixed", task="ner", fix=audit.folder / "issues.csv")
    corrected = (fixed.folder / "corrected.conll").read_text(encoding="utf-8")
    lines = zip(*(text.splitlines() for text in (table.read_text(encoding="utf-8"), certain, corrected)), strict=True)
    differ = [(line == other, other == last) for line, other, last in lines if line != last]
    assert all(sum(pair) == 1 for pair in differ), "each is corrected as suggested, or not at all"
    assert sum(is_right for _, is_right in differ) > 0
    parts = (text.split("\n\n") for text in (table.read_text(encoding="utf-8"), certain))
    changed = sum(sentence != other for sentence, other in zip(*parts, strict=True))
    assert audit.report["corrected"] == changed > 0
    assert any(line.startswith(f"{changed} sentence") and "changed in" in line for line in audit.lines())
    assert corrected == "-DOCSTART- -X- O\n\n# a comment of its own\n" + in_columns(_right())
    assert corrected.count("\n") == before.count("\n") + 3


def _right() -> list[tuple[list[str], list[str]]]:
    tags = sentences()[0][1]
    return [(words, tags) for words, _ in with_errors()]


def test_the_page_and_the_table_have_both_labelings(audit: Audit) -> None:
    page = (audit.folder / "report.html").read_text(encoding="utf-8")
    with open(audit.folder / "issues.csv", newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    for _, label, suggested in ERRORS.values():
        assert label in page
        assert suggested in page
        assert (label, suggested) in {(row["label"], row["suggested"]) for row in rows}
    assert "64 sentences" in page


@pytest.mark.parametrize("form", ["spans", "lists", "spaCy", "list of records", "tokens", "table", "studio"])
def test_a_corrected_file_has_the_form_of_the_file(form: str, tmp_path: Path) -> None:
    rows, right = with_errors(), _right()
    suffix, write = ".jsonl", lambda values: "".join(json.dumps(value) + "\n" for value in values)
    if form == "table":
        lines = [f"{number},{word},{tag}\n" for number, row in enumerate(rows) for word, tag in zip(*row, strict=True)]
        suffix, content = ".csv", "sentence,word,tag\n" + "".join(lines)
    elif form == "tokens":
        content = write({"note": n, "tokens": words, "ner_tags": tags} for n, (words, tags) in enumerate(rows))
    else:
        records = [
            {"note": n, "text": " ".join(words), "spans": spans_of(words, tags)} for n, (words, tags) in enumerate(rows)
        ]
        if form == "lists":
            records = [r | {"spans": [list(span.values()) for span in r["spans"]]} for r in records]
        if form == "spaCy":
            records = [[r["text"], {"entities": [list(span.values()) for span in r["spans"]]}] for r in records]
        if form == "studio":
            results = [[{"type": "labels", "value": s | {"labels": [s["label"]]}} for s in r["spans"]] for r in records]
            records = [
                {"data": {"text": r["text"]}, "annotations": [{"result": result}]}
                for r, result in zip(records, results, strict=True)
            ]
        content = write(records)
        if form in ("list of records", "studio"):
            suffix, content = ".json", json.dumps(records)
    path = file_with(tmp_path / f"table{suffix}", content)
    folder = fixed(path, tmp_path)
    copy = next(folder.glob("corrected.*"))
    assert copy.suffix == (".jsonl" if form == "studio" else suffix)
    again = read_tagged("ner", copy).examples
    assert [(list(e.words), list(e.tags)) for e in again] == [(list(words), tags) for words, tags in right]
    old, new = path.read_text(encoding="utf-8").splitlines(), copy.read_text(encoding="utf-8").splitlines()
    if suffix != ".json":
        assert sum(a != b for a, b in zip(old, new, strict=True)) == (4 if form != "table" else 5)
    if form == "list of records":
        assert [r["note"] for r in json.loads(copy.read_text(encoding="utf-8"))] == list(range(64))
    if form == "spaCy":
        assert json.loads(new[7])[1]["entities"][0] == [0, 3, "PER"]


@pytest.mark.parametrize("scheme", ["IOB1", "IOB2", "IOBES"])
def test_a_copy_with_random_entities_is_read_again_as_these(scheme: str, tmp_path: Path) -> None:
    draws = np.random.default_rng(5)

    def drawn(length: int) -> list[str]:
        tags = ["B-X", "I-X", "B-Y", "I-Y", "O"]
        return convert_tags([tags[n] for n in draws.integers(5, size=length)], "IOB2", scheme)

    rows = [([f"w{n}" for n in range(length)], drawn(length)) for length in draws.integers(1, 9, size=30).tolist()]
    lines = [
        "".join(f"{word}\tx\t{tag}\t{n}\n" for n, (word, tag) in enumerate(zip(*row, strict=True))) for row in rows
    ]
    path = file_with(tmp_path / "table.tsv.conll", "\n".join(lines))
    examples = read_tagged("ner", path, tag_column=2).examples
    wanted = [drawn(len(words)) for words, _ in rows]
    text, ending = tagged_copy(path, "ner", examples, wanted, tag_column=2)
    copy = file_with(tmp_path / f"copy{ending}", text)
    assert [list(example.tags) for example in read_tagged("ner", copy, tag_column=2).examples] == wanted
    assert [line.split("\t")[3:] for line in text.split("\n")] == [
        line.split("\t")[3:] for line in path.read_text().split("\n")
    ]


def test_a_file_of_bilou_keeps_its_letters(tmp_path: Path) -> None:
    letters = {"B": "B", "I": "I", "E": "L", "S": "U", "O": "O"}
    bilou = [
        (words, [letters[t[0]] + t[1:] for t in convert_tags(tags, "IOB2", "IOBES")]) for words, tags in with_errors()
    ]
    text = "\n".join("".join(f"{word} {tag}\n" for word, tag in zip(*row, strict=True)) for row in bilou)
    folder = fixed(file_with(tmp_path / "table.txt", text), tmp_path)
    corrected = (folder / "corrected.txt").read_text(encoding="utf-8").split("\n\n")
    assert corrected[7].splitlines()[0] == "Eve U-PER"
    assert corrected[46].splitlines()[3:5] == ["New B-LOC", "Lima L-LOC"]


def test_sentences_with_the_same_words_and_other_tags_are_listed(tmp_path: Path) -> None:
    rows = [*sentences(), (sentences()[5][0], ["O"] * 7)]
    path = file_with(tmp_path / "table.conll", in_columns(rows))
    issues = bertsmith.audit_labels(path, tmp_path / "out", task="ner", folds=3).issues
    same = [issue for issue in issues if issue["issue"] == "same text, other label"]
    assert [issue["row"] for issue in same] == [6, 65]
    assert same[1]["other"].startswith("[Bob PER] went to [Old Bergen LOC] by train5 (line 41 of")


def test_plain_tags_are_judged_word_by_word_and_a_model_predicts_next_to_the_words(tmp_path: Path) -> None:
    rows = [(words, ["NOUN", "VERB", "ADP", "ADJ", "NOUN", "ADP", "NOUN"]) for words, _ in sentences()]
    rows[9][1][1] = "NOUN"
    text = "\n".join("".join(f"{word} {tag}\n" for word, tag in zip(*row, strict=True)) for row in rows)
    path, base = file_with(tmp_path / "table.conll", text), write_base_model(tmp_path / "base")
    audit = bertsmith.audit_labels(path, tmp_path / "out", task="pos", model=base, folds=3, device="cpu")
    first = audit.issues[0]
    assert (first["row"], first["issue"], first["label"], first["suggested"]) == (
        10,
        "wrong label",
        "went/NOUN",
        "went/VERB",
    )
    assert list(audit.report["accuracy"]) == ["linear model on words", "linear model on frozen vectors"]
    assert "went VERB" in (audit.folder / "corrected.conll").read_text(encoding="utf-8").split("\n\n")[9]


def test_the_models_of_a_run_with_folds_predict_too_and_a_changed_table_is_refused(tmp_path: Path) -> None:
    path, base = file_with(tmp_path / "table.conll", in_columns(with_errors())), write_base_model(tmp_path / "base")
    run = tmp_path / "run"
    bertsmith.finetune(
        base, "ner", run, train=path, folds=2, epochs=1, seeds=1, device="cpu", baselines=False, keep="last"
    )
    audit = bertsmith.audit_labels(path, tmp_path / "out", task="ner", run=run, device="cpu")
    assert list(audit.report["accuracy"]) == ["fine-tuned model", "linear model on words"]
    lines = [json.loads(line) for line in (run / "out_of_fold.jsonl").read_text().splitlines()]
    hits = [a == b for line in lines for a, b in zip(line["gold"], line["prediction"]["tags"], strict=True)]
    assert audit.report["accuracy"]["fine-tuned model"] == pytest.approx(np.mean(hits), abs=0.02), (
        "it ignores the scheme"
    )
    rows = with_errors()
    rows[30][1][0] = "O"
    changed = file_with(tmp_path / "changed.conll", in_columns(rows))
    with pytest.raises(InputError, match="row 31 is the first that differs") as caught:
        bertsmith.audit_labels(changed, tmp_path / "other", task="ner", run=run)
    assert "\n" not in str(caught.value)


def test_every_change_makes_the_entities_those_of_the_suggestion(tmp_path: Path) -> None:
    """With random tags and probabilities, all findings corrected at once give the suggested entities where they are."""
    draws = np.random.default_rng(11)
    for scheme, labels in (("IOB1", ("O", "B-X", "I-X", "I-Y")), ("IOB2", ("O", "B-X", "B-Y", "I-X", "I-Y"))):
        for _ in range(20):
            lengths = draws.integers(1, 12, size=8).tolist()
            tags = draws.integers(len(labels), size=sum(lengths))
            chances = draws.dirichlet(np.full(len(labels), 0.3), size=len(tags))
            borders = np.cumsum([0, *lengths])
            examples = [
                TaggedExample(
                    id=str(n),
                    words=tuple(f"w{n}{k}" for k in range(length)),
                    tags=tuple(labels[tag] for tag in tags[borders[n] : borders[n + 1]]),
                )
                for n, length in enumerate(lengths)
            ]
            spec = TaskSpec(name="ner", kind="tagging", labels=labels, scheme=scheme)
            judged = np.ones(len(tags), dtype=bool)
            table = TagsAudited(spec=spec, sentences=examples, tags=tags, probabilities=chances, judged=judged)
            issues = table.issues(0.9, (), None)
            corrected = table.corrected(issues, -1.0)
            confident, margins, ranks = confident_labels(chances, tags), normalized_margins(chances, tags), []
            for finding in [issue for issue in issues if issue["issue"] in CORRECTED]:
                n = finding["row"] - 1
                pairs = list(enumerate(zip(examples[n].tags, table.suggested[n], strict=True)))[
                    slice(*finding["words"])
                ]
                differ = [borders[n] + word for word, (tag, other) in pairs if tag != other]
                assert any(confident[p] not in (-1, tags[p]) and margins[p] < 0 for p in differ)
                assert finding["probability"] == pytest.approx(chances[differ, tags[differ]].mean(), abs=1e-4)
                ranks.append(margins[differ].mean())
            assert ranks == sorted(ranks)
            for n, (example, new) in enumerate(zip(examples, corrected, strict=True)):
                findings = [i for i in issues if i["row"] == n + 1 and "words" in i and i["issue"] != "no clear label"]
                inside = {word for i in findings for word in range(*i["words"])}
                suggested = entity_spans(table.suggested[n], scheme)
                assert not scheme_errors(table.suggested[n], scheme)
                spans = [span for span in entity_spans(example.tags or (), scheme) if span[1] not in inside]
                spans += [span for span in suggested if span[1] in inside]
                assert sorted(entity_spans(new, scheme)) == sorted(spans)


@pytest.mark.parametrize(
    ("rows", "options", "error", "message"),
    [
        (sentences()[:3], {}, ConfigError, "at least 5 different examples"),
        (
            [(words, ["O"] * 7) for words, _ in sentences()],
            {},
            InputError,
            "at least two different tags in the table; found 'O'",
        ),
        (sentences(), {"next": 3}, ConfigError, "`next` needs `task"),
        (sentences(), {"run": "somewhere"}, InputError, "a finished run with `folds` in 'somewhere'"),
    ],
)
def test_what_cannot_be_audited_is_refused_in_one_line(
    rows: list[Any], options: dict[str, Any], error: type[Exception], message: str, tmp_path: Path
) -> None:
    path = file_with(tmp_path / "table.conll", in_columns(rows))
    with pytest.raises(error, match=message) as caught:
        bertsmith.audit_labels(path, tmp_path / "out", task="ner", **options)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "out").exists()


def test_a_span_outside_its_text_is_refused_and_ten_sentences_of_one_type_are_audited(tmp_path: Path) -> None:
    records = [{"text": f"{name} sings", "spans": [{"start": 0, "end": 3, "label": "PER"}]} for name in NAMES]
    with pytest.raises(InputError, match=r"spans of at least one of the 9 characters.*found 'PER' at 0 to 30"):
        bertsmith.audit_labels(
            [*records, {"text": "Ann sings", "spans": [{"start": 0, "end": 30, "label": "PER"}]}],
            tmp_path / "out",
            task="ner",
        )
    ten = [{"text": f"{r['text']} {n}", "spans": r["spans"]} for n in range(3) for r in records][:10]
    audit = bertsmith.audit_labels(ten, tmp_path / "out", task="ner")
    low, high = audit.report["interval"]
    assert audit.report["errors"] == low == 0.0 < high
    assert (audit.report["examples"], audit.report["labels"]) == (10, {"O": 20, "B-PER": 10})
