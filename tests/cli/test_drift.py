"""Drift of texts: what differs is found, what does not is not; pieces, lengths and predictions of a model."""

import csv
import itertools
import json
from pathlib import Path

import numpy as np
import pytest

import bertsmith
from bertsmith.base.core.errors import BertsmithError, CutWarning
from bertsmith.base.core.randomness import generator
from checkpoints.sparse_folder import write_sparse
from cli.test_predicting import write_model
from search.late_samples import write_late
from tasks.task_samples import WORDS, write_base_model

KNOWN, OTHER = WORDS[:8], ("zzz", "qqq", *WORDS[8:14])


def texts_of(words: tuple[str, ...] | list[str], seed: int, count: int = 60) -> list[str]:
    draw = generator(seed, "texts")
    return [" ".join(draw.choice(list(words), size=8).tolist()) for _ in range(count)]


def write(path: Path, texts: list[str]) -> Path:
    path.write_text("".join(f"{text}\n" for text in texts))
    return path


def test_texts_of_another_source_differ_and_the_least_alike_come_first(run, tmp_path: Path) -> None:
    train = write(tmp_path / "train.txt", texts_of(KNOWN, 1))
    later = write(tmp_path / "later.txt", [*texts_of(KNOWN, 2, 30), *texts_of(OTHER, 3, 30)])
    run("drift", train, later, "--out", tmp_path / "out").succeeds("the later texts differ from the training texts")
    report = json.loads((tmp_path / "out" / "drift.json").read_text())
    assert report["test"]["differ"]
    assert "vectors" not in report
    assert (report["training"]["texts"], report["later"]["words"]) == (60, 8.0)
    with open(tmp_path / "out" / "unlike.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    first, shares = rows[:25], [float(row["share"]) for row in rows]
    assert shares == sorted(shares, reverse=True)
    assert (len(rows), shares[0]) == (60, 1.0)
    assert all("zzz" in row["text"] or set(row["text"].split()) & set(OTHER) for row in first)
    assert "Drift of texts" in (tmp_path / "out" / "report.html").read_text()


def test_texts_of_the_same_source_do_not(tmp_path: Path) -> None:
    rows = [[{"text": text} for text in texts_of(KNOWN, seed)] for seed in (4, 5)]
    result = bertsmith.drift(*rows)
    assert not result.report["test"]["differ"]
    assert result.lines()[0].startswith("no difference beyond noise")


def test_words_that_are_not_counted_favor_neither_side(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of words of which each text has others, only some are counted."""
    monkeypatch.setattr("bertsmith.tasks.baselines.bag_of_words.MOST_TERMS", 300)
    words = ["".join(letters) for letters in itertools.product("abcdefghij", "abcdefgh", "abcdefgh", "xy")]
    words = [words[number] for number in generator(1, "words").permutation(len(words)).tolist()]
    texts = [" ".join(words[8 * number : 8 * number + 8]) for number in range(80)]
    rows = [[{"text": text} for text in part] for part in (texts[:20], texts[20:])]
    assert not bertsmith.drift(*rows).report["test"]["differ"]


@pytest.mark.parametrize("kind", ["single", "number", "encoder"])
def test_a_model_says_what_it_reads_and_predicts(kind: str, tmp_path: Path) -> None:
    model = Path(write_base_model(tmp_path / "m")) if kind == "encoder" else write_model(tmp_path / "m", kind)
    before, later = texts_of(KNOWN, 1, 30), [f"{text} " * 12 for text in texts_of(("zzz", *KNOWN), 2, 30)]
    train, texts = write(tmp_path / "train.txt", before), write(tmp_path / "later.txt", later)
    report = bertsmith.drift(train, texts, model=model, device="cpu").report
    loaded = bertsmith.load(model, device="cpu")
    unknown = [sum(pieces.count("[UNK]") for pieces in loaded.pieces(part)) for part in (before, later)]
    assert report["training"]["unknown"] == pytest.approx(unknown[0] / sum(map(len, loaded.pieces(before))))
    assert report["later"]["unknown"] == pytest.approx(unknown[1] / sum(map(len, loaded.pieces(later))))
    assert report["later"]["unknown"] > report["training"]["unknown"]
    assert report["later"]["tokens"] == pytest.approx(np.mean(loaded.tokens(later)))
    assert (report["training"]["cut"], report["later"]["cut"]) == (0.0, 1.0)
    assert ("vectors" in report) == (kind == "encoder")
    if kind == "single":
        with pytest.warns(CutWarning):
            answers = loaded.classify(later)
        assert report["later"]["confidence"] == pytest.approx(np.mean([each.probability for each in answers]))
        shares = {label: sum(each.label == label for each in answers) / 30 for label in loaded.labels}
        assert {label: both[1] for label, both in report["labels"].items()} == pytest.approx(
            {label: shares[label] for label in report["labels"]}
        )
    elif kind == "number":
        with pytest.warns(CutWarning):
            assert report["later"]["mean"] == pytest.approx(np.mean([each.value for each in loaded.score(later)]))


def test_few_texts_are_refused(tmp_path: Path) -> None:
    with pytest.raises(BertsmithError, match="at least 20 different later texts; found 3"):
        bertsmith.drift(
            [{"text": text} for text in texts_of(KNOWN, 1)], [{"text": "a b"}, {"text": "c"}, {"text": "d"}]
        )
    with pytest.raises(BertsmithError, match="at least 20 different later texts; found 1"):
        bertsmith.drift([{"text": text} for text in texts_of(KNOWN, 1)], [{"text": "a b"}] * 40)


def test_vectors_of_a_model_are_tested_and_order_the_later_texts(tmp_path: Path) -> None:
    model = Path(write_base_model(tmp_path / "m"))
    later = [*texts_of(KNOWN, 2, 30), *texts_of(OTHER, 3, 30)]
    result = bertsmith.drift(
        *([{"text": text} for text in part] for part in (texts_of(KNOWN, 1), later)), model=model, device="cpu"
    )
    assert result.report["vectors"]["differ"]
    assert "by the mean of the vectors, p = 0.00" in result.lines()[1]
    assert np.mean([row["text"] in later[30:] for row in result.unlike[:30]]) > 0.9
    bare = bertsmith.drift(*([{"text": text} for text in part] for part in (texts_of(KNOWN, 1), later)))
    assert bare.report["test"] == result.report["test"]


@pytest.mark.parametrize("kind", ["sparse", "tokens"])
def test_models_of_other_vectors_are_taken_too(kind: str, tmp_path: Path) -> None:
    model = (write_sparse if kind == "sparse" else write_late)(tmp_path / "m")
    rows = [[{"text": text} for text in part] for part in (texts_of(KNOWN, 1, 30), texts_of(OTHER, 3, 30))]
    result = bertsmith.drift(*rows, model=model, device="cpu")
    assert result.report["test"]["differ"]
    assert result.report["vectors"]["differ"]
    assert result.report["later"]["tokens"] >= 10  # the words and special tokens
