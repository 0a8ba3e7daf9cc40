"""The corpus checks find the problems of a corpus, and give no advice on a healthy one."""

import gzip
import json
import math
import re
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bertsmith.base.core.errors import CorpusError, InputError
from bertsmith.text.corpus import hashing
from bertsmith.text.corpus.build import CorpusSettings, build_corpus
from bertsmith.text.corpus.checks import CorpusReport, check_corpus
from bertsmith.text.corpus.frequencies import entropy
from bertsmith.text.corpus.shards import Corpus
from bertsmith.text.tokenizers.normalize import TextRules
from bertsmith.text.tokenizers.tokenizer import Tokenizer
from bertsmith.text.tokenizers.wordpiece import WordPieceTokenizer
from corpus.samples import small_tokenizer, small_vocabulary
from written_files import file_with

NOTHING_HELD_OUT = CorpusSettings(held_out=0, form="lines")
# Every piece of the small vocabulary occurs, no sentence occurs twice, no two documents share a sentence.
HEALTHY = (
    "The boat came home, and nobody was in it.\n"
    "A new story rained: quick brown foxes jump over 0123456789!\n"
    "\n"
    "Why does the lazy dog vex us? It was 'home'.\n"
    '"Nobody" came in the new boat (it rained).\n'
)


def check(folder: Path, text: str, *files: Path, tokenizer: Tokenizer | None = None, **options: int) -> CorpusReport:
    path = file_with(folder / "text.txt", text)
    build_corpus([path], tokenizer or small_tokenizer(), folder / "corpus", **vars(NOTHING_HELD_OUT), replace=True)
    return check_corpus(folder / "corpus", files, **options)


def test_a_healthy_corpus_gets_no_advice(tmp_path: Path) -> None:
    report = check(tmp_path, HEALTHY)
    assert report.advice() == []
    assert (report.documents, report.sentences, report.repeated_sentences, report.repeats) == (2, 4, 0, ())
    assert sum(report.sentence_lengths) == 4
    assert report.words == 37


def test_repeated_lines_and_documents_are_found(tmp_path: Path) -> None:
    """The cause of many losses that stay near 7."""
    report = check(tmp_path, HEALTHY + "\n" + "It rained.\n" * 6 + "\n" + "A new story.\nIt rained.\n\n" * 3)
    assert (report.repeated_sentences, report.repeats) == (8 + 2, (("it rained .", 9), ("a new story .", 3)))
    assert (report.documents, report.repeated_documents) == (6, 2)
    assert any("repeated" in line for line in report.advice())
    assert any("occur more than once; remove the copies with --remove-duplicates" in line for line in report.advice())
    assert any("--remove-boilerplate" in line for line in report.advice())
    assert "    9 times: it rained ." in report.lines()


def test_a_document_with_other_sentence_boundaries_is_not_a_repeat(tmp_path: Path) -> None:
    report = check(tmp_path, "It rained.\nIt rained.\n\nIt rained. It rained.\n")
    assert report.repeated_documents == 0


def test_repeats_in_a_very_large_corpus_are_estimated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory must stay bounded, so every sentence is counted with all its copies or not at all."""
    monkeypatch.setattr(hashing, "MOST_COUNTED", 64)
    report = check(tmp_path, "".join(f"The boat {number % 400} came home.\n" for number in range(800)))
    assert report.counted_one_in == 16
    assert 160 <= report.repeated_sentences <= 640
    assert report.repeated_sentences % 16 == 0
    assert all(count == 2 for _, count in report.repeats)
    assert "estimated from one sentence in 16" in report.lines()[2]


def test_documents_of_one_sentence_are_found(tmp_path: Path) -> None:
    report = check(tmp_path, HEALTHY.replace("\n", "\n\n"))
    assert report.one_sentence_documents == 4
    assert any("most documents are a single sentence" in line for line in report.advice())


def test_one_document_without_boundaries_is_found(tmp_path: Path) -> None:
    report = check(tmp_path, HEALTHY.replace("\n\n", "\n"))
    assert [line for line in report.advice() if "there is only one document" in line]


def test_advice_on_documents_names_what_is_left_to_do(tmp_path: Path) -> None:
    def advice(text: str, form: str) -> str:
        path = file_with(tmp_path / "text.txt", text)
        settings = CorpusSettings(held_out=0, form=form)
        build_corpus([path], small_tokenizer(), tmp_path / "corpus", **vars(settings), replace=True)
        return " ".join(check_corpus(tmp_path / "corpus").advice())

    prose = "The boat came home. Nobody was in it.\n\nA new story. It rained.\n"
    assert "if its blank lines divide documents, read it with --form texts" in advice(prose, "auto")
    assert "blank lines" not in advice(prose, "texts")
    assert "Put blank lines between documents, or add text" in advice(prose.replace("\n\n", "\n"), "lines")
    marked = f"<doc id='1'>\n{prose}</doc>\n"
    assert "blank lines" not in advice(marked, "auto")
    assert "come from the same text. Add text" in advice(marked, "auto")
    long = "boat " * 600
    assert "Read it with --form prose" in advice(long, "lines")
    assert "--form prose" not in advice(f"{long}\n\nboat.\n\nhome.\n\nboat.", "prose")


def test_sentences_are_counted_by_their_length(tmp_path: Path) -> None:
    lengths = [1, 2, 3, 4, 7, 8, 512, 600]
    report = check(tmp_path, "\n".join("boat " * length for length in lengths))
    assert report.sentence_lengths == (1, 2, 2, 1, 0, 0, 0, 0, 0, 2)
    assert any("longer than 512 tokens" in line for line in report.advice())
    histogram = report.lines()[report.lines().index("tokens in a sentence:") + 1 :][:10]
    assert histogram[1].split() == ["2-3", "2", "#" * 40]


def test_short_lines_are_found(tmp_path: Path) -> None:
    assert any("shorter than 4 tokens" in line for line in check(tmp_path, "boat\nhome\n\nstory\nnew\n").advice())


def test_unknown_tokens_are_counted(tmp_path: Path) -> None:
    report = check(tmp_path, HEALTHY + "他 他 他 boat\n")
    assert report.unknown_tokens == 3
    assert any("the vocabulary does not fit" in line for line in report.advice())


def test_the_unigram_entropy_is_the_loss_of_token_frequencies(tmp_path: Path) -> None:
    report = check(tmp_path, "boat boat home story\n")
    assert report.unigram_entropy == pytest.approx(1.5 * math.log(2))
    counts = Corpus.open(tmp_path / "corpus").token_counts()
    pieces = small_vocabulary().pieces
    assert {pieces[id]: counts[id] for id in np.flatnonzero(counts)} == {"boat": 2, "home": 1, "story": 1}
    assert (len(counts), counts.dtype) == (len(pieces), np.int64)
    assert report.unused_pieces == len(small_vocabulary()) - 3
    assert any("more than half of the vocabulary never occurs" in line for line in report.advice())


@given(st.lists(st.integers(0, 50), min_size=1, max_size=30).filter(any))
def test_entropy_matches_its_definition(counts: list[int]) -> None:
    total = sum(counts)
    assert entropy(np.array(counts)) == pytest.approx(-sum(c / total * math.log(c / total) for c in counts if c))


def test_a_model_with_another_vocabulary_size_is_reported(tmp_path: Path) -> None:
    size = len(small_vocabulary())
    assert check(tmp_path, HEALTHY, model_vocabulary=size).advice() == []
    assert any(
        f"9 pieces and that of the corpus {size};" in line
        for line in check(tmp_path, HEALTHY, model_vocabulary=9).advice()
    )


def test_a_lowercase_vocabulary_with_cased_rules_is_reported(tmp_path: Path) -> None:
    cased = WordPieceTokenizer(small_vocabulary(), TextRules(lowercase=False))
    assert any("hardly any capital letters" in line for line in check(tmp_path, HEALTHY, tokenizer=cased).advice())


def test_losses_in_reading_are_reported_again(tmp_path: Path) -> None:
    file_with(tmp_path / "in" / "a.txt", HEALTHY.encode() + b"\xff\n")
    file_with(tmp_path / "in" / "b.png", b"\x00")
    build_corpus([tmp_path / "in"], small_tokenizer(), tmp_path / "corpus", held_out=0, bad_bytes="drop")
    advice = check_corpus(tmp_path / "corpus").advice()
    assert [line.split(";")[0] for line in advice] == [
        "bytes that were not UTF-8 and were dropped: 1",
        "files that were skipped: 1",
    ]


LONG = "Nobody was in the new boat when it came home in the story, it rained and it rained."
EVALUATION = {
    "test.tsv": f"1\tx\t{LONG}\n2\ty\tThe boat was never seen in the story, and nobody came home.\n",
    "test.txt": f"The boat was never seen in the story, and nobody came home.\n{LONG}\n",
    "test.json": json.dumps(
        {"data": [{"q": LONG, "n": 1}, "The boat was never seen in the story, and nobody came home."]}
    ),
    "test.jsonl": f'{{"a": "{LONG}"}}\n\n["The boat was never seen in the story, and nobody came home."]\n',
}


@pytest.mark.parametrize("name", EVALUATION)
def test_sentences_of_an_evaluation_file_are_found_in_the_corpus(tmp_path: Path, name: str) -> None:
    report = check(tmp_path, f"{HEALTHY}\n{LONG}\n", file_with(tmp_path / name, EVALUATION[name]))
    (overlap,) = report.overlaps
    assert (overlap.sentences, overlap.known_sentences) == (2, 1)
    assert 0 < overlap.known_grams < overlap.grams
    assert any(f"the corpus contains parts of '{tmp_path / name}', so" in line for line in report.advice())
    assert any(
        line.startswith(f"of '{tmp_path / name}', the corpus contains 1 of 2 (50.00 %)") for line in report.lines()
    )


def test_compressed_and_parquet_evaluation_files_are_read(tmp_path: Path) -> None:
    packed = file_with(tmp_path / "t.txt.gz", gzip.compress(EVALUATION["test.txt"].encode()))
    pq.write_table(pa.table({"x": [1, 2], "y": EVALUATION["test.txt"].splitlines()}), tmp_path / "t.parquet")
    report = check(tmp_path, f"{HEALTHY}\n{LONG}\n", packed, tmp_path / "t.parquet")
    first, second = report.overlaps
    assert (first.sentences, first.known_sentences) == (second.sentences, second.known_sentences) == (2, 1)


def test_part_of_a_sentence_is_found_by_its_runs_of_tokens(tmp_path: Path) -> None:
    report = check(tmp_path, f"{HEALTHY}\nWhy, {LONG}\n", file_with(tmp_path / "t.txt", f"{LONG}\n"))
    (overlap,) = report.overlaps
    assert (overlap.known_sentences, overlap.known_grams) == (0, overlap.grams)
    assert overlap.share == 1.0


def test_runs_of_tokens_do_not_cross_documents(tmp_path: Path) -> None:
    words = ["nobody was in the boat", "it came home in a new story"]
    evaluation = file_with(tmp_path / "t.txt", " , ".join(words))
    apart = check(tmp_path, f"{words[0]} ,\n\n{words[1]}", evaluation).overlaps[0]
    together = check(tmp_path, f"{words[0]} ,\n{words[1]}", evaluation).overlaps[0]
    assert (apart.grams, apart.known_grams, together.known_grams) == (1, 0, 1)


def test_a_held_out_fraction_far_from_the_requested_one_is_reported_with_a_fix(tmp_path: Path) -> None:
    """Whole documents are drawn: of four documents, one hundredth becomes a whole one; a quarter can be met."""
    documents = [f"The boat came home {'again ' * number}.\nNobody was in it {number} ." for number in range(4)]
    path = file_with(tmp_path / "text.txt", "\n\n".join(documents))
    for share, is_far in ((0.01, True), (0.25, False), (0, False)):
        settings = CorpusSettings(held_out=share, form="lines")
        manifest = build_corpus([path], small_tokenizer(), tmp_path / "corpus", **vars(settings), replace=True)
        report, kept = check_corpus(tmp_path / "corpus"), manifest["held_out"]
        line = next(line for line in report.lines() if line.startswith("held out: "))
        if share:
            reached = f"{kept['tokens']:,} of {manifest['tokens'] + kept['tokens']:,} ("
            assert f"held out: {kept['documents']} of 4 (" in line
            assert reached in line
            assert line.endswith(f"requested: {100 * share:g} %")
        else:
            assert line == "held out: nothing, as requested"
        assert any("try another --held-out" in advice for advice in report.advice()) == is_far
    build_corpus([path], small_tokenizer(), tmp_path / "whole", held_out=0.25, form="lines")
    assert "held out: these are the held-out documents" in check_corpus(tmp_path / "whole" / "held_out").lines()


def test_nearly_all_of_the_text_held_out_is_not_written_with_an_exponent(tmp_path: Path) -> None:
    path = file_with(tmp_path / "text.txt", "The boat.\n" + "The boat came home . " * 300)
    build_corpus([path], small_tokenizer(), tmp_path / "corpus", held_out=0.01, form="lines")
    advice = " ".join(check_corpus(tmp_path / "corpus").advice())
    assert "99.8 % of the text is held out instead of the requested 1 %" in advice


def test_held_out_text_in_the_corpus_is_found_too(tmp_path: Path) -> None:
    stories = [f"Nobody was in boat number {number} when it came home in the rain.\n{LONG}\n" for number in range(9)]
    build_corpus([file_with(tmp_path / "a.txt", "\n".join(stories))], small_tokenizer(), tmp_path / "corpus")
    (overlap,) = check_corpus(tmp_path / "corpus").overlaps
    assert (overlap.name, overlap.sentences, overlap.known_sentences) == ("held_out", 2, 1)


@pytest.mark.parametrize(
    ("name", "data"), [("a.json", b"{"), ("a.txt", b"\x00"), ("a.parquet", b"PAR1"), ("a.jsonl", b"x")]
)
def test_an_evaluation_file_without_text_is_refused(tmp_path: Path, name: str, data: bytes) -> None:
    path = file_with(tmp_path / name, data)
    with pytest.raises(InputError, match=re.escape(f"expected an evaluation file at '{path}'; found ")):
        check(tmp_path, HEALTHY, path)


def test_a_damaged_corpus_is_not_examined(tmp_path: Path) -> None:
    check(tmp_path, HEALTHY)
    shard = tmp_path / "corpus" / "shard-00000.arrow"
    data = bytearray(shard.read_bytes())
    data[len(data) // 2] ^= 1
    file_with(shard, bytes(data))
    with pytest.raises(CorpusError, match="it was altered"):
        check_corpus(tmp_path / "corpus")


def test_damage_to_the_held_out_documents_is_found_too(tmp_path: Path) -> None:
    path = file_with(tmp_path / "a.txt", HEALTHY)
    build_corpus([path], small_tokenizer(), tmp_path / "corpus", held_out=0.5)
    shard = tmp_path / "corpus" / "held_out" / "shard-00000.arrow"
    data = bytearray(shard.read_bytes())
    data[data.index(b"a.txt")] ^= 1
    file_with(shard, bytes(data))
    with pytest.raises(CorpusError, match=r"held_out.*it was altered"):
        check_corpus(tmp_path / "corpus")
    assert check_corpus(tmp_path / "corpus", verify=False).held_out_documents == 1
    assert Corpus.open(tmp_path / "corpus", verify=True).held_out() is not None


def test_the_report_can_be_written_as_json(tmp_path: Path) -> None:
    report = check(tmp_path, HEALTHY)
    values = json.loads(json.dumps(report.to_dict()))
    assert values["documents"] == 2
    assert values["advice"] == []
    assert values["unigram_entropy"] == report.unigram_entropy


def test_sentences_with_unknown_pieces_are_neither_repeats_nor_known(tmp_path: Path) -> None:
    """Their ids are equal though their words are not; the report says how many are not compared."""
    known = "the boat came home in a new story"
    texts = [f"the {word} came home in a new story , nobody was in it , it rained" for word in ("猫", "犬", "鳥")]
    evaluation = file_with(tmp_path / "test.txt", "\n".join([texts[0].replace("猫", "魚"), known]))
    report = check(tmp_path, "\n\n".join([*texts, known, known]), evaluation)
    assert (report.repeated_sentences, report.unknown_sentences) == (1, 3)
    assert report.repeated_documents == 3, "few of the pieces of the first three are unknown"
    assert check(tmp_path, "\n\n".join(["猫 it", "犬 鳥 it", "鳥 鳥 it", known])).repeated_documents == 0
    assert "    not compared, because of unknown tokens: 3 sentences" in report.lines()
    (overlap,) = report.overlaps
    assert (overlap.sentences, overlap.known_sentences, overlap.unknown_sentences) == (1, 1, 1)
    # Of "came home ... rained" alone there are runs of 13 tokens that the corpus has.
    assert (overlap.grams, overlap.known_grams) == (2, 2)
