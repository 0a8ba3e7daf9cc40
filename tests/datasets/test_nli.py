"""SNLI and XNLI: official files and copies, and pairs without a gold label."""

import json
import re
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from bertsmith.base.core.errors import InputError
from bertsmith.tasks.datasets.nli import read_nli
from written_files import file_with

# Header lines in the style of the official files of SNLI and XNLI.
OFFICIAL = (
    "gold_label sentence1_binary_parse sentence2_binary_parse sentence1_parse sentence2_parse sentence1 sentence2 "
    "captionID pairID label1 label2 label3 label4 label5"
)
XNLI = (
    "language gold_label sentence1_binary_parse sentence2_binary_parse sentence1_parse sentence2_parse sentence1 "
    "sentence2 promptID pairID genre label1 label2 label3 label4 label5 sentence1_tokenized sentence2_tokenized match"
)
PAIRS = [("A man sings.", "A man\tis loud."), ("A dog runs.", "A cat sleeps."), ("Two girls.", "They are sisters.")]
GOLD = ["entailment", "contradiction", "neutral"]


def official(path: Path, labels: list[str]) -> Path:
    """A file like snli_1.0_dev.txt, in which some pairs have one label instead of five."""
    rows = [OFFICIAL.split()]
    for number, (label, (first, second)) in enumerate(zip(labels, PAIRS, strict=True)):
        texts = [first, second.replace("\t", " ")]
        rows.append(
            [
                label,
                "( a )",
                "( b )",
                "(ROOT a)",
                "(ROOT b)",
                *texts,
                f"{number}.jpg",
                f"{number}.jpg#1",
                label,
                *[""] * 4,
            ]
        )
    path.write_text("\n".join("\t".join(row) for row in rows) + "\n", encoding="utf-8")
    return path


def records(labels: list[object], names: tuple[str, str, str]) -> list[dict[str, object]]:
    return [dict(zip(names, (*pair, label), strict=True)) for pair, label in zip(PAIRS, labels, strict=True)]


@pytest.mark.parametrize("name", ["snli_1.0_dev.txt", "snli_1.0_dev.tsv", "snli_1.0_dev.txt.gz"])
def test_the_official_text_file_is_read(name: str, tmp_path: Path) -> None:
    path = official(tmp_path / name.removesuffix(".gz"), GOLD)
    if name.endswith(".gz"):
        import gzip

        packed = file_with(tmp_path / name, gzip.compress(path.read_bytes()))
        path = packed
    result = read_nli("snli", path)
    assert [example.label for example in result.examples] == GOLD
    assert [example.id for example in result.examples] == ["0.jpg#1", "1.jpg#1", "2.jpg#1"]
    assert (result.examples[1].first, result.examples[1].second) == PAIRS[1]
    assert result.skipped == ()


@pytest.mark.parametrize(
    ("names", "labels"),
    [
        (("sentence1", "sentence2", "gold_label"), GOLD),
        (("sentence1", "sentence2", "label"), GOLD),
        (("premise", "hypothesis", "label"), [0, 2, 1]),
        (("premise", "hypothesis", "label"), GOLD),
        (("premise", "hypo", "label"), ["entailment", "contradictory", "neutral"]),
    ],
)
def test_copies_and_translations_are_read(names: tuple[str, str, str], labels: list[object], tmp_path: Path) -> None:
    lines, table = tmp_path / "a.jsonl", tmp_path / "a.parquet"
    rows = records(labels, names)
    lines.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    pq.write_table(pa.Table.from_pylist(rows), table)
    for path in (lines, table):
        assert [(example.first, example.second, example.label) for example in read_nli("xnli", path).examples] == [
            (*pair, gold) for pair, gold in zip(PAIRS, GOLD, strict=True)
        ]


def test_a_pair_without_a_gold_label_is_skipped_and_listed(tmp_path: Path) -> None:
    path = official(tmp_path / "snli.txt", ["-", "neutral", "-"])
    result = read_nli("snli", path)
    assert [example.label for example in result.examples] == ["neutral"]
    reason = "the label '-', on which the annotators did not agree"
    assert result.skipped == ((f"line 2 of '{path}'", reason), (f"line 4 of '{path}'", reason))
    copy = tmp_path / "copy.jsonl"
    rows = records([-1, 0, 2], ("premise", "hypothesis", "label"))
    copy.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    result = read_nli("snli", copy)
    assert [example.label for example in result.examples] == ["entailment", "contradiction"]
    assert result.skipped == ((f"line 1 of '{copy}'", "the label '-1', which means none"),)
    with pytest.raises(InputError, match=r"pairs with a gold label in .*; found 3 rows without"):
        read_nli("snli", official(tmp_path / "test.txt", ["-", "-", "-"]))


def test_one_language_is_read_or_all_of_them(tmp_path: Path) -> None:
    path = tmp_path / "xnli.dev.tsv"
    rows = [("de", "neutral"), ("en", "entailment"), ("de", "-"), ("de", "contradiction")]
    text = "".join(f"{language}\t{label}\tEin Satz.\tNoch einer.\n" for language, label in rows)
    path.write_text("language\tgold_label\tsentence1\tsentence2\n" + text, encoding="utf-8")
    assert [example.label for example in read_nli("xnli", path).examples] == ["neutral", "entailment", "contradiction"]
    german = read_nli("xnli", path, language="de")
    assert [example.label for example in german.examples] == ["neutral", "contradiction"]
    assert len(german.skipped) == 1
    with pytest.raises(
        InputError, match=re.escape(f"of the language 'fr' in '{path}'; found the languages de, en; use")
    ):
        read_nli("xnli", path, language="fr")
    with pytest.raises(InputError, match="found no column 'language'; omit --language"):
        read_nli("xnli", official(tmp_path / "a.txt", GOLD), language="de")


def test_the_official_files_of_xnli_are_read_and_translations_have_ids_of_their_own(tmp_path: Path) -> None:
    header = XNLI.split()
    rows = []
    for language in ("de", "en"):
        for number, (label, (first, second)) in enumerate(zip(GOLD, PAIRS, strict=True)):
            values = dict.fromkeys(header, "") | {
                "language": language,
                "gold_label": label,
                "sentence1": f'"{first}',  # an open quote is an ordinary character
                "sentence2": second.replace("\t", " "),
                "pairID": str(number),
                "match": "True",
            }
            rows.append(values)
    table, lines = tmp_path / "xnli.dev.tsv", tmp_path / "xnli.dev.jsonl"
    cells = [header, *(list(row.values()) for row in rows)]
    table.write_text("".join("\t".join(row) + "\n" for row in cells), encoding="utf-8")
    records = [{**row, "annotator_labels": [row["gold_label"]] * 5} for row in rows]
    lines.write_text("".join(json.dumps(row) + "\n" for row in records), encoding="utf-8")
    for path in (table, lines):
        result = read_nli("xnli", path).examples
        assert [example.id for example in result] == ["de-0", "de-1", "de-2", "en-0", "en-1", "en-2"]
        assert [example.label for example in result] == GOLD * 2
        assert result[0].first == f'"{PAIRS[0][0]}'
        assert [example.id for example in read_nli("xnli", path, language="en").examples] == ["0", "1", "2"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (
            "sentence1\tsentence2\tlabel\na\tb\tmaybe\n",
            "a label of SNLI in line 2 of .*, one of contradiction, .*'maybe'",
        ),
        ("sentence1\tsentence2\tlabel\na\tb\t\n", "a label of SNLI in line 2 of .*; found ''"),
        ("text\tlabel\na\tneutral\n", "the columns sentence1, sentence2, gold_label of SNLI in .*'text', 'label'"),
        ("sentence1\tsentence2\tlabel\n\tb\tneutral\n", "found 1 row without"),
        ('premise\thypothesis\tlabel\n{"ar": "x"}\tb\t1\n', "one language per row in line 2"),
    ],
)
def test_other_files_are_refused(content: str, message: str, tmp_path: Path) -> None:
    path = file_with(tmp_path / "a.tsv", content)
    with pytest.raises(InputError, match=message):
        read_nli("snli", path)


def test_the_validation_file_of_snli_is_read(real_data: Path) -> None:
    result = read_nli("snli", real_data / "nli" / "snli_val.tsv")
    assert len(result.examples) + len(result.skipped) == 1000
    assert {example.label for example in result.examples} == set(GOLD)
