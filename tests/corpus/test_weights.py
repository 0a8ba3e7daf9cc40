"""Weights of sources: how often documents are in a corpus, and what the manifest and the report say."""

from pathlib import Path

import pytest

from bertsmith.base.core.errors import ConfigError
from bertsmith.text.corpus.build import build_corpus
from bertsmith.text.corpus.checks import check_corpus
from bertsmith.text.corpus.shards import Corpus
from corpus.samples import small_tokenizer
from written_files import file_with

LETTERS = "bcdefghijklmnopqrstuvwxyz"


def texts(folder: Path, count: int = 400) -> list[Path]:
    """Two files of different documents of one sentence each."""
    files = []
    for name in ("boat", "home"):
        numbers = (f"the {name} {LETTERS[n % 25]}{LETTERS[n // 25 % 25]} ." for n in range(count))
        files.append(file_with(folder / "texts" / name / f"{name}.txt", "\n\n".join(numbers) + "\n"))
    return files


def counts(folder: Path, held_out: float, **weights: float) -> tuple[dict[str, list[str]], dict]:
    """The documents of each file in a corpus, and the manifest."""
    files = texts(folder)
    by_name = {str(file): weights[file.stem] for file in files if file.stem in weights}
    tokenizer = small_tokenizer()
    manifest = build_corpus(
        [folder / "texts"], tokenizer, folder / "corpus", held_out=held_out, weights=by_name,
        replace=True,
    )  # fmt: skip
    corpus = Corpus.open(folder / "corpus")
    result: dict[str, list[str]] = {"boat": [], "home": []}
    for number in range(corpus.num_documents):
        result[Path(corpus.document_source(number)).stem].append(tokenizer.decode(corpus.document_tokens(number)))
    return result, manifest


def test_documents_are_written_as_often_as_their_weight_says(tmp_path: Path) -> None:
    plain, manifest = counts(tmp_path, 0.1)
    assert "sources" not in manifest
    result, manifest = counts(tmp_path, 0.1, boat=2.5, home=0.25)
    assert set(result["boat"]) == set(plain["boat"]), "what is held out does not change"
    times = {sentence: result["boat"].count(sentence) for sentence in plain["boat"]}
    assert set(times.values()) == {2, 3}
    assert sum(times.values()) / len(times) == pytest.approx(2.5, abs=0.1)
    assert set(result["home"]) <= set(plain["home"])
    assert len(result["home"]) == len(set(result["home"]))
    assert len(result["home"]) / len(plain["home"]) == pytest.approx(0.25, abs=0.08)
    boat, home = manifest["sources"]
    assert (boat["weight"], boat["documents"], boat["written"]) == (2.5, len(plain["boat"]), len(result["boat"]))
    assert boat["tokens"] + home["tokens"] == manifest["tokens"]


def test_a_weight_of_zero_leaves_a_source_out_and_one_changes_nothing(tmp_path: Path) -> None:
    plain, _ = counts(tmp_path, 0.0)
    same, _ = counts(tmp_path, 0.0, boat=1)
    assert same == plain
    result, _ = counts(tmp_path, 0.0, home=0)
    assert result == {"boat": plain["boat"], "home": []}


def test_the_report_has_the_shares_and_no_advice_on_copies(tmp_path: Path) -> None:
    folder = texts(tmp_path)[0].parent
    build_corpus([tmp_path / "texts"], small_tokenizer(), tmp_path / "corpus", weights={str(folder): 3}, held_out=0)
    report = check_corpus(tmp_path / "corpus")
    assert report.repeated_documents == 800
    assert not any("occur more than once" in line for line in report.advice())
    lines = [line for line in report.lines() if line.startswith("source ")]
    assert lines[0] == (
        f"source '{folder}', weight 3: 400 training documents, 1,200 written, {report.sources[0]['tokens']:,} tokens "
        "(75.0 % of the corpus)"
    )
    assert lines[1].startswith("source 'others', weight 1: 400 training documents, 400 written")


def test_a_weight_without_a_source_and_a_negative_one_are_refused(tmp_path: Path) -> None:
    files = texts(tmp_path, 4)
    for weights, match in (({"nothing": 2.0}, "documents from 'nothing'"), ({str(files[0]): -1.0}, "weight of")):
        with pytest.raises(ConfigError, match=match):
            build_corpus(files, small_tokenizer(), tmp_path / "corpus", weights=weights, held_out=0)
        assert not (tmp_path / "corpus").exists()


def test_too_few_documents_for_both_sides_are_refused_with_weights(tmp_path: Path) -> None:
    files = texts(tmp_path, 2)
    for held_out, match in (
        (0.001, "found none to hold out; raise `held_out`"),
        (0.999, "found none for training; lower `held_out`"),
    ):
        with pytest.raises(ConfigError, match=match):
            build_corpus(files, small_tokenizer(), tmp_path / "corpus", weights={str(files[0]): 2.0}, held_out=held_out)


def test_a_source_whose_documents_are_all_held_out_has_its_weight(tmp_path: Path) -> None:
    files = texts(tmp_path, 40)
    short = file_with(tmp_path / "one.txt", "the boat home .\n")
    manifests = [
        build_corpus(
            [*files, short],
            small_tokenizer(),
            tmp_path / "corpus",
            weights={str(short): 3},
            held_out=held_out,
            replace=True,
        )
        for held_out in (0.0, 0.9)
    ]
    assert [manifest["sources"][0]["documents"] for manifest in manifests] == [1, 0]


@pytest.mark.parametrize("held_out", [0.0, 0.1])
def test_weights_that_leave_everything_out_are_refused(held_out: float, tmp_path: Path) -> None:
    files = texts(tmp_path, 40)
    with pytest.raises(ConfigError, match=r"at least one training document .*; found none of \d+ documents; raise a"):
        build_corpus(
            files, small_tokenizer(), tmp_path / "corpus", weights=dict.fromkeys(map(str, files), 0), held_out=held_out
        )
