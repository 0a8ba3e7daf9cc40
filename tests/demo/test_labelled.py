"""Labelled sentences: the label is the source, and dev sentences come from other documents than those of training."""

from pathlib import Path

import pytest

from bertsmith.app.demo.labelled import (
    DEV_FILE,
    FEWEST_SENTENCES,
    MOST_DEV,
    MOST_LABELS,
    MOST_TRAIN,
    TRAIN_FILE,
    documents_by_source,
    keep_share,
    write_labelled,
)
from bertsmith.tasks.task_data.task_files import read_task


def documents(name: str, count: int, sentences: int = 10) -> list[list[str]]:
    return [[f"{name} in document {document} says thing {n} ." for n in range(sentences)] for document in range(count)]


def read(folder: Path) -> tuple[list[tuple[str, str]], list[tuple[str, str]]]:
    _, data = read_task("classification", folder / TRAIN_FILE, folder / DEV_FILE)
    train, dev = ([(example.first, example.label) for example in part] for part in (data.train, data.dev))
    return train, dev


def test_the_largest_sources_are_kept_and_dev_has_documents_of_its_own(tmp_path):
    sizes = {f"source {n}": 3 + 10 * n for n in range(8)}
    assert write_labelled({name: documents(name, size) for name, size in sizes.items()}, tmp_path, seed=1) == ""
    train, dev = read(tmp_path)
    largest = {f"source {n}" for n in range(8 - MOST_LABELS, 8)}
    assert {label for _, label in train} == {label for _, label in dev} == largest
    assert all(text.startswith(f"{label} in") for text, label in train + dev)
    of_train, of_dev = ({text.split(" says")[0] for text, _ in part} for part in (train, dev))
    assert of_train.isdisjoint(of_dev)
    counts = [label for _, label in train].count("source 7"), [label for _, label in dev].count("source 7")
    assert counts == (MOST_TRAIN, MOST_DEV)


@pytest.mark.parametrize("parts", [[60], [30, 30], [50, 2, 2], [1, 200]])
def test_every_division_into_documents_leaves_sentences_for_both(tmp_path, parts):
    made = [[f"document {n} says thing {k} ." for k in range(size)] for n, size in enumerate(parts)]
    assert write_labelled({"a": made, "b": documents("b", 5)}, tmp_path, seed=1) == ""
    train, dev = read(tmp_path)
    of_train, of_dev = ({text for text, label in part if label == "a"} for part in (train, dev))
    assert len(of_train) >= len(of_dev) > 0
    assert of_train.isdisjoint(of_dev)


def test_shared_and_short_sentences_have_no_label(tmp_path):
    both = [["this sentence is in both .", "too short"]]
    made = {name: documents(name, 4) + both for name in ("a", "b")}
    assert write_labelled(made, tmp_path, seed=1) == ""
    texts = {text for part in read(tmp_path) for text, _ in part}
    assert len(texts) == 80
    assert texts.isdisjoint(both[0])


def test_a_reason_says_why_there_are_no_labels(tmp_path):
    assert "a single source" in write_labelled({"a": documents("a", 9)}, tmp_path, seed=1)
    small = {"a": documents("a", 9), "b": documents("b", 1, sentences=FEWEST_SENTENCES - 1)}
    assert "fewer than two sources" in write_labelled(small, tmp_path, seed=1)
    assert list(tmp_path.iterdir()) == []


def test_sources_are_the_texts_or_the_entries_of_a_single_folder(tmp_path):
    (tmp_path / "books" / "poems").mkdir(parents=True)
    for name in ("a.txt", "b.txt.gz", "poems/one.txt", "poems/two.txt", ".hidden.txt", "notes.py"):
        (tmp_path / "books" / name).write_text("This is a line.\nThis is another one.\n", encoding="utf-8")
    result = documents_by_source([tmp_path / "books"])
    assert list(result) == ["a", "poems"], "b.txt.gz is not a gzip file"
    assert len(result["poems"]) == 2
    assert list(documents_by_source([tmp_path / "books" / "a.txt", tmp_path / "books"])) == ["a", "books"]
    twins = [tmp_path / "books" / "poems" / "one.txt", tmp_path / "one.txt"]
    twins[1].write_text("This is a line.\n", encoding="utf-8")
    assert list(documents_by_source(twins)) == [str(twin) for twin in twins]


def test_a_share_of_the_sentences_is_spread_over_each_label_and_no_label_gets_too_few(tmp_path):
    sources = {"large": documents("large", 40), "small": documents("small", 8)}
    assert write_labelled(sources, tmp_path, seed=1) == ""
    before = read(tmp_path)
    keep_share(tmp_path, 0.25)
    after = read(tmp_path)
    for old, new in zip(before, after, strict=True):
        counts = [[label for _, label in part].count(name) for part in (old, new) for name in ("large", "small")]
        assert counts[2:] == [min(count, max(FEWEST_SENTENCES, round(0.25 * count))) for count in counts[:2]]
        assert [pair for pair in old if pair in new] == new, "in the same order"
    large = [text for text, label in before[0] if label == "large"]
    assert large.index([text for text, label in after[0] if label == "large"][-1]) > 0.9 * len(large)


def test_tabs_and_line_breaks_do_not_break_the_table(tmp_path):
    odd = [[f"number {n}\tof\u2028the {name} text\x85here ." for n in range(30)] for name in "ab"]
    assert write_labelled({"a\tb": odd[:1], "c": odd[1:]}, tmp_path, seed=1) == ""
    train, dev = read(tmp_path)
    assert {label for _, label in train + dev} == {"a b", "c"}
    assert all(text.startswith("number ") and text.endswith("text here .") for text, _ in train + dev)
