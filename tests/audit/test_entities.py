"""The audit of entities that share words: planted errors are found, and corrected in the form of the file."""

import csv
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import bertsmith
from bertsmith.base.core.errors import BertsmithError, ConfigError, InputError
from bertsmith.recipes.audit.entities import LISTED, EntitiesAudited
from bertsmith.recipes.audit.run import Audit
from bertsmith.recipes.audit.tags import CORRECTED
from bertsmith.tasks.datasets.examples import EntityExample, TaggedExample, WordSpan
from bertsmith.tasks.datasets.tagged_copies import tagged_copy
from bertsmith.tasks.datasets.tagged_files import read_tagged
from bertsmith.tasks.metrics.label_errors import confident_labels, normalized_margins
from bertsmith.tasks.specs.task import TaskSpec
from tasks.task_samples import write_base_model
from written_files import file_with

PEOPLE, PLACES = ("Anna", "Carla", "David", "Emma"), ("Oslo", "Rome", "Lima", "Paris")
ERRORS: Mapping[int, tuple[str, str, str]] = {  # by the number of the sentence: kind, label and suggestion
    7: ("missing entity", "Lima", "[Lima LOC]"),
    20: ("spurious entity", "[went LOC]", "went"),
    33: ("wrong type", "[Carla LOC]", "[Carla PER]"),
    46: ("wrong boundary", "Rome [University ORG]", "[Rome University ORG]"),
}

Entities = list[tuple[int, int, str]]


def sentences() -> list[tuple[list[str], Entities]]:
    """Words with their right entities."""
    rows = []
    for n in range(64):
        words = f"{PEOPLE[n % 4]} of {PLACES[n // 4 % 4]} University went to {PLACES[n // 16 % 4]} on day{n} .".split()
        rows.append((words, [(0, 1, "PER"), (2, 3, "LOC"), (2, 4, "ORG"), (6, 7, "LOC")]))
    return rows


def with_errors() -> list[tuple[list[str], Entities]]:
    rows = sentences()
    rows[7][0][6], rows[33][0][0], rows[46][0][2] = "Lima", "Carla", "Rome"
    rows[7][1].remove((6, 7, "LOC"))
    rows[20][1].append((4, 5, "LOC"))
    rows[33][1][0] = (0, 1, "LOC")
    rows[46][1][2] = (3, 4, "ORG")
    return rows


def _right() -> list[tuple[list[str], Entities]]:
    return [(words, sentences()[0][1]) for words, _ in with_errors()]


def lines_of(rows: Sequence[tuple[Sequence[str], Entities]], form: str = "lists") -> str:
    records = []
    for n, (words, entities) in enumerate(rows):
        starts = np.cumsum([0, *(len(word) + 1 for word in words)]).tolist()
        values: dict[str, Any] = {"note": n, "tokens": words, "entities": entities}
        if form == "objects":
            values["entities"] = [{"start": start, "end": end, "type": label} for start, end, label in entities]
        if form == "gliner":
            values = {"tokenized_text": words, "ner": [[start, end - 1, label] for start, end, label in entities]}
        if form == "text":
            spans = [{"start": starts[start], "end": starts[end] - 1, "label": label} for start, end, label in entities]
            values = {"note": n, "text": " ".join(words), "spans": spans}
        records.append(json.dumps(values) + "\n")
    return "".join(records)


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return file_with(tmp_path_factory.mktemp("entities") / "table.jsonl", lines_of(with_errors()))


@pytest.fixture(scope="module")
def audit(table: Path) -> Audit:
    return bertsmith.audit_labels(table, table.parent / "out", task="nested-ner")


def test_planted_errors_are_first_with_what_is_wrong_and_the_suggestion(audit: Audit) -> None:
    first = {issue["row"] - 1: (issue["issue"], issue["label"], issue["suggested"]) for issue in audit.issues[:4]}
    assert first == ERRORS
    assert {issue["row"] - 1: issue["other"] for issue in audit.issues[:4]}[46] == "words 3 to 4"
    assert [issue for issue in audit.issues if issue["issue"] in CORRECTED] == list(audit.issues[:4])
    low, high = audit.report["interval"]
    assert audit.report["errors"] == pytest.approx(6 / 259)  # with the three that are missing
    assert 0 <= low <= audit.report["errors"] <= high < 0.1
    assert audit.report["labels"] == {"LOC": 129, "ORG": 64, "PER": 63}
    assert audit.report["issues"] | dict.fromkeys(CORRECTED[1:-1], 1) == audit.report["issues"]
    assert any("estimated share of wrong entities among the 256 of the file" in line for line in audit.lines())
    page = (audit.folder / "report.html").read_text(encoding="utf-8")
    assert "[Rome University ORG]" in page
    assert "64 sentences" in page


@pytest.mark.parametrize("form", ["lists", "objects", "gliner", "text"])
def test_the_corrected_file_has_the_records_of_the_file_with_other_entities(form: str, tmp_path: Path) -> None:
    path = file_with(tmp_path / "table.jsonl", lines_of(with_errors(), form))
    issues = bertsmith.audit_labels(path, tmp_path / "out", task="nested-ner").folder / "issues.csv"
    folder = bertsmith.audit_labels(path, tmp_path / "fixed", task="nested-ner", fix=issues).folder
    old, new = path.read_text().splitlines(), (folder / "corrected.jsonl").read_text().splitlines()
    assert [n for n, (line, other) in enumerate(zip(old, new, strict=True)) if line != other] == sorted(ERRORS)
    again = read_tagged("nested-ner", folder / "corrected.jsonl").examples
    assert [(list(e.words), list(e.entities)) for e in again] == [(words, sorted(spans)) for words, spans in _right()]  # type: ignore[union-attr]
    if form in ("objects", "text"):
        (key,) = {"entities", "spans"} & json.loads(new[7]).keys()
        assert len({frozenset(entity) for entity in json.loads(new[7])[key]}) == 1, "new ones have the keys of others"


def test_only_what_is_almost_certain_is_corrected_without_being_asked(audit: Audit, table: Path) -> None:
    gains = [issue["probability_of_suggested"] - issue["probability"] for issue in audit.issues[:4]]
    before, after = (path.read_text().splitlines() for path in (table, audit.folder / "corrected.jsonl"))
    assert sum(a != b for a, b in zip(before, after, strict=True)) == audit.report["corrected"]
    assert audit.report["corrected"] == sum(gain >= 0.99 for gain in gains)


def test_tags_stay_tags_until_entities_share_words(tmp_path: Path) -> None:
    text = "Ann B-PER\nof O\nOslo B-LOC\n\nBob S-PER\n"
    path = file_with(tmp_path / "table.conll", text)
    first, second = read_tagged("nested-ner", path).examples
    assert isinstance(first, EntityExample)
    flat = [(WordSpan(0, 1, "PER"), WordSpan(1, 3, "LOC")), (WordSpan(0, 1, "LOC"),)]
    copy, ending = tagged_copy(path, "nested-ner", [first, second], flat)
    assert (copy, ending) == ("Ann S-PER\nof B-LOC\nOslo E-LOC\n\nBob S-LOC\n", ".conll")
    nested = [(WordSpan(0, 3, "ORG"), WordSpan(2, 3, "LOC")), (WordSpan(0, 1, "PER"),)]
    copy, ending = tagged_copy(path, "nested-ner", [first, second], nested)
    again = read_tagged("nested-ner", file_with(tmp_path / f"copy{ending}", copy)).examples
    assert [example.entities for example in again] == nested  # type: ignore[union-attr]


@pytest.mark.parametrize("form", ["lists", "objects", "gliner", "text", "brat"])
def test_a_copy_with_random_entities_is_read_again_as_these(form: str, tmp_path: Path) -> None:
    draws = np.random.default_rng(7)

    def drawn(count: int) -> Entities:
        starts = draws.integers(count, size=draws.integers(4)).tolist()
        ends = [int(draws.integers(start + 1, count + 1)) for start in starts]
        return sorted({(start, end, "XY"[draws.integers(2)]) for start, end in zip(starts, ends, strict=True)})

    counts = draws.integers(1, 8, size=30).tolist()
    rows = [([f"w{n}" for n in range(count)], drawn(count)) for count in counts]
    rows[0] = (rows[0][0], [(0, 1, "X")])
    if form == "brat":
        path = tmp_path / "brat"
        for n, (words, entities) in enumerate(rows):
            (record,) = map(json.loads, lines_of([(words, entities)], "text").splitlines())
            file_with(path / f"{n:02}.txt", record["text"])
            marks = enumerate(record["spans"], start=1)
            file_with(
                path / f"{n:02}.ann",
                "".join(
                    f"T{k}\t{s['label']} {s['start']} {s['end']}\t{record['text'][s['start'] : s['end']]}\n"
                    for k, s in marks
                ),
            )
    else:
        path = file_with(tmp_path / "table.jsonl", lines_of(rows, form))
    examples: Any = read_tagged("nested-ner", path).examples
    wanted = [tuple(WordSpan(*span) for span in drawn(len(words))) for words, _ in rows]
    text, ending = tagged_copy(path, "nested-ner", examples, wanted)
    again: Any = read_tagged("nested-ner", file_with(tmp_path / f"copy{ending}", text)).examples
    assert [example.entities for example in again] == wanted
    unchanged, _ = tagged_copy(path, "nested-ner", examples, [example.entities for example in examples])
    assert form == "brat" or [json.loads(line) for line in unchanged.splitlines()] == [
        json.loads(line) for line in path.read_text().splitlines()
    ]


def test_the_models_of_a_run_with_folds_score_the_spans_and_a_changed_table_is_refused(
    table: Path, tmp_path: Path
) -> None:
    base, run = write_base_model(tmp_path / "base"), tmp_path / "run"
    bertsmith.finetune(
        base, "nested-ner", run, train=table, folds=2, epochs=3, learning_rate=3e-3, seeds=1, device="cpu",
        baselines=False, keep="last",
    )  # fmt: skip
    audit = bertsmith.audit_labels(table, tmp_path / "out", task="nested-ner", run=run, device="cpu")
    assert list(audit.report["f1"]) == ["entities of other folds", "fine-tuned model"]
    assert sum(audit.report["weights"].values()) == pytest.approx(1.0)
    lines = [json.loads(line) for line in (run / "out_of_fold.jsonl").read_text().splitlines()]
    for line, example in zip(lines, read_tagged("nested-ner", table).examples, strict=True):
        assert line["gold"] == [list(span) for span in example.entities]  # type: ignore[union-attr]
    rows = with_errors()
    rows[30][1].pop()
    changed = file_with(tmp_path / "changed.jsonl", lines_of(rows))
    with pytest.raises(InputError, match="row 31 is the first that differs") as caught:
        bertsmith.audit_labels(changed, tmp_path / "other", task="nested-ner", run=run)
    assert "\n" not in str(caught.value)


def test_corrections_make_the_most_likely_entities_of_the_gold_ones() -> None:
    """With random entities and probabilities, all findings corrected at once give the suggested entities they name."""
    draws, labels = np.random.default_rng(11), ("A", "B", "C")
    for _ in range(30):
        examples, systems = [], []
        for n in range(8):
            words, spans = tuple(f"w{n}{k}" for k in range(draws.integers(1, 6))), []
            for start in range(len(words)):
                for end in range(start + 1, len(words) + 1):
                    spans += [WordSpan(start, end, label) for label in labels if draws.random() < 0.2]
            gold = [span for span in spans if draws.random() < 0.5]
            examples.append(EntityExample.of(TaggedExample(id=str(n), words=words), gold))
            systems.append({span: float(draws.random()) for span in spans})
        spec = TaskSpec(name="nested-ner", kind="entities", labels=labels)
        table = EntitiesAudited(spec=spec, sentences=examples, systems={"x": systems}, judged=np.ones(3, dtype=bool))
        issues = table.issues(0.9)
        corrected, ranks = table.corrected(issues, -1.0), []
        for n, (example, new) in enumerate(zip(examples, corrected, strict=True)):
            findings = [i["spans"] for i in issues if i["row"] == n + 1 and i["issue"] in CORRECTED]
            removed, added = ({span for change in findings for span in change[side]} for side in (0, 1))
            assert removed <= {*example.entities} - table.suggested[n]
            assert added <= table.suggested[n] - {*example.entities}
            assert {*new} == {*example.entities} - removed | added
        answers = np.stack([1 - table.chances, table.chances], axis=1)
        margins = dict(zip(table.pairs, normalized_margins(answers, table.has), strict=True))
        for issue in (issue for issue in issues if issue["issue"] in CORRECTED):
            pairs, is_sure = [(issue["row"] - 1, span) for part in issue["spans"] for span in part], False
            for pair in pairs:
                part = np.array([span.label == pair[1].label for _, span in table.pairs])
                sure = confident_labels(answers[part], table.has[part])
                number = [other for other, kept in zip(table.pairs, part, strict=True) if kept].index(pair)
                is_sure |= sure[number] == 1 - table.has[part][number] and margins[pair] < 0
            assert is_sure
            ranks.append(np.mean([margins[pair] for pair in pairs]))
        assert ranks == sorted(ranks)


def test_the_score_of_a_list_counts_what_it_names_and_no_words_that_it_does_not_know() -> None:
    span = WordSpan(0, 1, "A")
    examples = [EntityExample.of(TaggedExample(id=str(n), words=(f"w{n}",)), [span]) for n in range(2)]
    spec = TaskSpec(name="nested-ner", kind="entities", labels=("A",))
    systems = {LISTED: [{span: 0.5}, {}]}  # the words of the first sentence were counted once, as an entity
    table = EntitiesAudited(spec=spec, sentences=examples, systems=systems, judged=np.ones(1, dtype=bool))
    assert table.chances.tolist() == [0.5, 0.5]
    assert table.report([], 0)["f1"] == {LISTED: pytest.approx(2 / 3)}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"change": "1 PER"}, 'entities as {"remove"'),
        ({"change": '{"remove": [], "add": []}'}, 'entities as {"remove"'),
        ({"change": '{"remove": [], "add": [[0, 40, "LOC"]]}'}, 'entities as {"remove"'),
        ({"change": '{"remove": [], "add": [[6, 7, "TOWN"]]}'}, "a label of the table, 'LOC', 'ORG', 'PER'"),
        ({"change": '{"remove": [[6, 7, "LOC"]], "add": []}', "label": "[Lima LOC]"}, "the label of row 8|entities of"),
        ({"text": "another text"}, "the text of row 8 of the table"),
    ],
)
def test_a_correction_that_does_not_fit_is_refused_in_one_line(
    change: dict[str, str], message: str, audit: Audit, table: Path, tmp_path: Path
) -> None:
    with open(audit.folder / "issues.csv", newline="", encoding="utf-8") as file:
        (row,) = [row for row in csv.DictReader(file) if row["row"] == "8"]
    with open(tmp_path / "issues.csv", "w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(row))
        writer.writeheader()
        writer.writerow(row | change)
    with pytest.raises(InputError, match=message) as caught:
        bertsmith.audit_labels(table, tmp_path / "out", task="nested-ner", fix=tmp_path / "issues.csv")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"task": "nre"}, "unknown task 'nre'; did you mean 'ner'"),
        ({"task": "sst-2"}, "multi-label, ner, pos or nested-ner, the tasks that can be audited"),
        ({"task": "nested-ner", "model": "starter"}, "name a run with folds by `run`, whose models score spans"),
        ({"task": "nested-ner", "next": 3}, "`next` needs `task"),
        ({"task": "nested-ner", "run": "somewhere"}, "a finished run with `folds` in 'somewhere'"),
    ],
)
def test_what_cannot_be_audited_is_refused_in_one_line(
    options: dict[str, Any], message: str, table: Path, tmp_path: Path
) -> None:
    with pytest.raises(BertsmithError, match=message) as caught:
        bertsmith.audit_labels(table, tmp_path / "out", **options)
    assert isinstance(caught.value, ConfigError | InputError)
    assert "\n" not in str(caught.value)
