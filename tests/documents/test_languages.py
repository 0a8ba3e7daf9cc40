"""Text by language: found, sampled by share, held out, reported."""

import json
from pathlib import Path

import pytest

from bertsmith.base.core.errors import ConfigError, InputError
from bertsmith.text.corpus.build import CorpusSettings, build_corpus
from bertsmith.text.corpus.checks import check_corpus
from bertsmith.text.corpus.shards import Corpus
from bertsmith.text.documents.languages import SamplingSettings, count_languages, find_languages
from bertsmith.text.documents.readers import Document
from bertsmith.text.tokenizers.normalize import TextRules
from bertsmith.text.vocabularies.languages import smoothed_shares
from corpus.samples import small_tokenizer
from written_files import file_with

TOKENIZER = small_tokenizer()
SENTENCE = 6  # tokens of each


def write_language(path: Path, documents: int, letter: str) -> None:
    """Documents of three sentences, each of them different."""
    texts = [
        "".join(f"the {letter} {number % 10} {number // 10} {position} .\n" for position in range(3))
        for number in range(documents)
    ]
    file_with(path, "\n".join(texts))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A large language in a file, a smaller one in a folder with two files, and a file that is not text."""
    write_language(tmp_path / "text" / "xx.txt", 90, "x")
    write_language(tmp_path / "text" / "yy" / "one.txt", 5, "y")
    write_language(tmp_path / "text" / "yy" / "two.txt", 4, "z")
    file_with(tmp_path / "text" / "README.md", "about")
    return tmp_path / "text"


def build(folder: Path, out: Path, held_out: float = 0.0, workers: int = 1, **sampling) -> dict:
    return build_corpus(
        [folder],
        TOKENIZER,
        out,
        form="lines",
        held_out=held_out,
        languages=True,
        **sampling,
        workers=workers,
    )


def texts(corpus: Corpus | None) -> list[str]:
    return [corpus.tokenizer.decode(corpus.document_tokens(number)) for number in range(corpus.num_documents)]


def of_small(texts: list[str]) -> list[str]:
    return [text for text in texts if " x " not in text]


def content(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def test_each_entry_of_a_folder_is_a_language(folder: Path) -> None:
    languages, skipped = find_languages([folder])
    assert {name: [path.name for path in paths] for name, paths in languages.items()} == {
        "xx": ["xx.txt"],
        "yy": ["yy"],
    }
    assert [(Path(entry.name).name, entry.reason) for entry in skipped] == [("README.md", "unknown extension")]
    assert list(find_languages([folder, folder])[0]["xx"]) == 2 * [folder / "xx.txt"]


@pytest.mark.parametrize("exponent", [1.0, 0.7, 0.5, 0.0])
def test_the_shares_of_the_tokens_are_smoothed_to_a_sentence(folder: Path, tmp_path: Path, exponent: float) -> None:
    manifest = build(folder, tmp_path / "out", language_exponent=exponent)
    record = manifest["languages"]["by_name"]
    total = sum(language["training_tokens"] for language in record.values())
    assert total == 99 * 3 * SENTENCE
    shares = smoothed_shares([language["training_tokens"] for language in record.values()], exponent)
    for language, share in zip(record.values(), shares, strict=True):
        assert abs(language["sampled_tokens"] - share * total) <= SENTENCE / 2 + 1e-6
        assert language["share_of_text"] == language["training_tokens"] / total
    corpus = Corpus.open(tmp_path / "out", verify=True)
    small = of_small(texts(corpus))
    assert sum(len(text.split()) for text in small) == record["yy"]["sampled_tokens"]
    assert corpus.num_tokens == sum(language["sampled_tokens"] for language in record.values())
    assert not list((tmp_path / "out").glob("waiting*"))


def test_a_small_language_is_repeated_whole_before_any_document_is_used_again(folder: Path, tmp_path: Path) -> None:
    build(folder, tmp_path / "out", language_exponent=0.0)
    small = of_small(texts(Corpus.open(tmp_path / "out")))
    counts = {text: small.count(text) for text in small if len(text.split()) == 3 * SENTENCE}
    assert len(counts) == 9
    assert max(counts.values()) - min(counts.values()) <= 1
    assert min(counts.values()) == 5, "49.5 documents' worth of tokens from 9 documents"


def test_the_draw_depends_on_the_seed_alone(folder: Path, tmp_path: Path) -> None:
    for name, workers, seed in (("a", 1, 1), ("b", 2, 1), ("c", 1, 2)):
        build(folder, tmp_path / name, workers=workers, language_exponent=0.5, language_seed=seed)
    assert content(tmp_path / "a") == content(tmp_path / "b")
    assert sorted(texts(Corpus.open(tmp_path / "a"))) != sorted(texts(Corpus.open(tmp_path / "c")))


def test_each_language_is_held_out_and_never_also_trained_on(folder: Path, tmp_path: Path) -> None:
    manifest = build(folder, tmp_path / "out", held_out=0.1, language_exponent=0.0)
    corpus = Corpus.open(tmp_path / "out")
    held_out = texts(corpus.held_out())
    assert of_small(held_out)
    assert len(of_small(held_out)) < len(held_out) < 30
    assert not set(held_out) & set(texts(corpus))
    assert len(held_out) == len(set(held_out)), "held-out documents are not repeated"
    assert sum(language["held_out_tokens"] for language in manifest["languages"]["by_name"].values()) == sum(
        len(text.split()) for text in held_out
    )


def test_of_a_single_document_the_end_is_held_out(tmp_path: Path) -> None:
    write_language(tmp_path / "text" / "xx.txt", 40, "x")
    write_language(tmp_path / "text" / "yy.txt", 1, "y")
    build(tmp_path / "text", tmp_path / "out", held_out=0.1, language_exponent=0.0)
    corpus = Corpus.open(tmp_path / "out")
    assert of_small(texts(corpus.held_out())) == ["the y 0 0 2 ."]
    assert set(of_small(texts(corpus))) <= {"the y 0 0 0 . the y 0 0 1 .", "the y 0 0 0 ."}


def test_copies_within_a_language_are_held_out_together(folder: Path, tmp_path: Path) -> None:
    write_language(folder / "yy" / "copy.txt", 5, "y")
    file_with(tmp_path / "same" / "xx.txt", "the boat .\n\nthe boat .\n")
    build(folder, tmp_path / "out", held_out=0.01, language_exponent=1.0)
    corpus = Corpus.open(tmp_path / "out")
    held_out = of_small(texts(corpus.held_out()))
    assert held_out
    assert not set(held_out) & set(texts(corpus))
    build(tmp_path / "same", tmp_path / "out-of-copies", held_out=0.01)
    assert Corpus.open(tmp_path / "out-of-copies").held_out() is None


def test_duplicates_are_removed_before_languages_are_sampled(folder: Path, tmp_path: Path) -> None:
    file_with(folder / "yy" / "three.txt", (folder / "yy" / "one.txt").read_bytes())
    settings = CorpusSettings(form="lines", held_out=0.0, remove_duplicates="exact")
    sampling = SamplingSettings(languages=True, language_exponent=1.0)
    manifest = build_corpus([folder], TOKENIZER, tmp_path / "out", **vars(settings), **vars(sampling), workers=1)
    assert manifest["languages"]["by_name"]["yy"]["documents"] == 9
    assert manifest["removed"]["duplicates"]["documents"] == 5


def test_the_report_has_a_line_for_each_language_and_warns_of_unknown_text(tmp_path: Path) -> None:
    write_language(tmp_path / "text" / "xx.txt", 40, "x")
    file_with(tmp_path / "text" / "th.txt", "ประเทศไทย สวยงาม\n\nไทยสวยงามมากกว่าที่คิดไว้ในใจเสมอ\n")
    build(tmp_path / "text", tmp_path / "out", language_exponent=0.7)
    report = check_corpus(tmp_path / "out")
    rows = {
        line.split()[0]: line.split()
        for line in report.lines()
        if line.startswith("    ") and line.split()[0] in ("xx", "th")
    }
    assert rows["xx"][-4:] == ["1.000", "0.750", "0.00", "%"]
    assert rows["th"][-4:] == ["-", "0.062", "100.00", "%"], "two phrases and a sentence, 48 characters"
    warned = [line for line in report.advice() if "does not cover" in line]
    assert len(warned) == 1
    assert "'th': 100.0 %" in warned[0]
    inputs = [json.loads(line) for line in (tmp_path / "out" / "inputs.jsonl").read_text().splitlines()]
    assert [entry["language"] for entry in inputs] == ["th", "xx"]


def test_many_repetitions_are_worth_a_warning_and_copies_are_not(folder: Path, tmp_path: Path) -> None:
    write_language(folder / "yy" / "one.txt", 1, "y")
    (folder / "yy" / "two.txt").unlink()
    build(folder, tmp_path / "out", language_exponent=0.0)
    advice = check_corpus(tmp_path / "out").advice()
    assert any("'yy' is repeated 45 times" in line for line in advice)
    assert not any("occur more than once" in line for line in advice)


def test_words_are_counted_by_language(folder: Path) -> None:
    counts, notes = count_languages([folder], TextRules())
    assert (counts["xx"]["x"], counts["yy"]["y"], counts["yy"]["z"]) == (270, 15, 12)
    assert notes == [f"unusable files in the folders, skipped: 1 ({folder / 'README.md'}: unknown extension)"]


def test_wrong_input_is_refused_in_one_line(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"a folder or file for each language .with `languages=True`.*xx\.txt"):
        build(folder / "xx.txt", tmp_path / "out")
    with pytest.raises(InputError, match=r"with `languages=True`.*'-'"):
        build_corpus(["-"], TOKENIZER, tmp_path / "out", languages=True)
    (tmp_path / "none").mkdir()
    with pytest.raises(InputError, match="found none"):
        build(tmp_path / "none", tmp_path / "out")
    with pytest.raises(ConfigError, match="documents that have already been read"):
        build_corpus([Document("x", ["the boat ."])], TOKENIZER, tmp_path / "out", languages=True)
    with pytest.raises(ConfigError, match="exponent between 0 and 1; found 2"):
        SamplingSettings(language_exponent=2)
    with pytest.raises(ConfigError, match="--language-exponent needs --languages"):
        SamplingSettings(language_exponent=0.5)
    with pytest.raises(ConfigError, match="--language-seed needs --languages"):
        SamplingSettings(language_seed=5)
    with pytest.raises(ConfigError, match="documents that end with their file"):
        build_corpus(
            [folder],
            TOKENIZER,
            tmp_path / "out",
            files_continue=True,
            languages=True,
        )
    file_with(folder / "zz.txt", "\n \n")
    with pytest.raises(InputError, match="text of the language 'zz'"):
        build(folder, tmp_path / "out")
    with pytest.raises(InputError, match="text of the language 'zz'"):
        count_languages([folder], TextRules())
    assert not (tmp_path / "out").exists()
