"""Learning a vocabulary."""

import os
import random
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from bertsmith.base.core.errors import VocabularyError
from bertsmith.text.tokenizers.normalize import TextRules
from bertsmith.text.tokenizers.vocabulary import SPECIAL_PIECES
from bertsmith.text.tokenizers.wordpiece import WordPieceTokenizer
from bertsmith.text.vocabularies.bpe import learn_byte_pairs
from bertsmith.text.vocabularies.learn import CHARACTER_SHARE, LEAST_SOURCES, learn_vocabulary
from bertsmith.text.vocabularies.word_counts import WordCounter, WordCounts, count_words
from oracles.excess_oracle import excess, unknown
from text.corpora import english, random_words, sources_of_names
from written_files import file_with

JAPANESE = (
    "東京都に住んでいます。東京は大きい町です。京都へ行きました。カタカナとひらがな。"
    "タクシーでホテルへ行きます。ホテルのレストランで食べました。食べます。飲みました。飲みます。"
)
KOREAN = "나는 학교에 갑니다. 학교에서 공부합니다. 친구는 집에 갑니다. 집에서 공부했습니다. 나는 친구와 갑니다."


def test_tweeting_and_xanax_are_split_as_on_the_slides() -> None:
    """In a corpus where the words are frequent, with a size that leaves no room for the whole words."""
    tokenizer = WordPieceTokenizer(learn_vocabulary(english(), 108))
    assert tokenizer.tokenize("tweeting xanax") == ["tweet", "##ing", "xa", "##nax"]


@pytest.mark.parametrize("size", [48, 77, 130, 250, 1000])
def test_the_size_is_kept_exactly(size: int) -> None:
    """Even if the corpus cannot fill it."""
    vocabulary = learn_vocabulary(english(), size)
    assert len(vocabulary) == len(set(vocabulary.pieces)) == size


def test_fewer_pieces_are_needed_as_the_vocabulary_grows() -> None:
    counts = random_words(5)
    excesses = [excess(counts, learn_vocabulary(counts, size).pieces) for size in (60, 80, 120, 200, 400)]
    assert excesses == sorted(excesses, reverse=True)
    assert len(set(excesses)) == len(excesses)
    assert excesses[-1] == 0 or excesses[-1] < excesses[0] / 10


def test_learned_pieces_beat_random_ones_and_the_most_frequent_words() -> None:
    counts = random_words(6)
    learned = learn_vocabulary(counts, 150).pieces
    characters = [piece for piece in learned if len(piece.removeprefix("##")) == 1]
    room = 150 - len(SPECIAL_PIECES) - len(characters)
    words = [word for word, _ in counts.most_common(room)]
    assert excess(counts, learned) < 0.8 * excess(counts, [*characters, *words])
    every = sorted({f"{'##' * (begin > 0)}{word[begin:end]}" for word in counts
                    for begin in range(len(word)) for end in range(begin + 2, len(word) + 1)})  # fmt: skip
    for seed in range(3):
        pieces = random.Random(seed).sample(every, room)
        assert excess(counts, learned) < 0.5 * excess(counts, [*characters, *pieces])


def test_no_word_of_the_corpus_is_unknown() -> None:
    counts = random_words(7)
    assert unknown(counts, learn_vocabulary(counts, 60).pieces) == 0


def test_the_order_is_special_spare_characters_then_pieces_by_use() -> None:
    counts = {"singing": 9, "sing": 8, "wing": 2, "winging": 1}
    assert learn_vocabulary(counts, 15, unused=2).pieces == (
        *SPECIAL_PIECES, "[unused0]", "[unused1]", "s", "w", "##g", "##i", "##n", "singing", "sing", "wing",
    )  # fmt: skip


def test_a_corpus_that_cannot_fill_the_size_is_topped_up_with_spare_pieces() -> None:
    pieces = learn_vocabulary({"ab": 3, "a": 2}, 12).pieces
    assert pieces == (*SPECIAL_PIECES, "[unused0]", "[unused1]", "[unused2]", "[unused3]", "a", "##b", "ab")


def test_the_order_of_the_counts_does_not_matter() -> None:
    counts = random_words(8)
    shuffled = list(counts.items())
    random.Random(1).shuffle(shuffled)
    assert learn_vocabulary(dict(shuffled), 120) == learn_vocabulary(counts, 120)


def test_neither_hash_seed_nor_threads_nor_the_order_of_files_matter(tmp_path: Path) -> None:
    texts = sources_of_names()
    program = (
        "import json, sys\n"
        "from bertsmith.text.vocabularies.learn import learn_vocabulary\n"
        "from bertsmith.text.vocabularies.word_counts import WordCounter\n"
        "texts, threads = json.load(open(sys.argv[1])), int(sys.argv[2])\n"
        "counter = WordCounter(threads=threads)\n"
        "for text in texts[:: int(sys.argv[3])]:\n"
        "    counter.add([text])\n"
        "    counter.end_source()\n"
        "print(learn_vocabulary(counter.counts, 60).digest)\n"
    )
    path = file_with(tmp_path / "texts.json", __import__("json").dumps(texts))
    digests = {
        subprocess.run(
            [sys.executable, "-c", program, str(path), threads, step],
            env=os.environ | {"PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join(sys.path)},
            capture_output=True, text=True, check=True,
        ).stdout
        for seed, threads, step in (("1", "1", "1"), ("2", "2", "-1"))
    }  # fmt: skip
    assert len(digests) == 1


def test_japanese_and_korean_are_supported() -> None:
    for text in (JAPANESE, KOREAN):
        counter = WordCounter(TextRules())
        counter.add([text] * 3)
        vocabulary = learn_vocabulary(counter.counts, 150)
        tokenizer = WordPieceTokenizer(vocabulary)
        pieces = tokenizer.tokenize(text)
        assert "[UNK]" not in pieces
        assert len(vocabulary) == 150
        longer = [piece for piece in pieces if len(piece.removeprefix("##")) > 1]
        assert len(longer) > len(pieces) / 10
        assert tokenizer.decode(tokenizer.encode(text)).replace(" ", "") == "".join(
            piece.removeprefix("##") for piece in pieces
        )


def test_too_little_room_for_the_characters_is_refused_with_the_required_size() -> None:
    with pytest.raises(VocabularyError) as caught:
        learn_vocabulary(english(), 20)
    assert str(caught.value).startswith("expected room for the 43 characters")
    needed = int(caught.value.fix.split()[3].rstrip(","))
    assert len(learn_vocabulary(english(), needed)) == needed
    with pytest.raises(VocabularyError, match="room for the 43 characters"):
        learn_vocabulary(english(), needed - 1)


@pytest.mark.parametrize("counts", [{}, {"a": 0}, {"\ud800": 3}])
def test_counts_without_a_usable_word_are_refused(counts: dict[str, int]) -> None:
    with pytest.raises(VocabularyError, match="expected words to learn a vocabulary from; found none"):
        learn_vocabulary(counts, 100)


@pytest.mark.parametrize("learn", [learn_vocabulary, learn_byte_pairs])
def test_words_that_are_too_long_are_named_as_the_reason(learn: Callable) -> None:
    with pytest.raises(
        VocabularyError, match=r"words of at most 100 characters .*; found only longer ones, 2 different words"
    ):
        learn({"ก" * 101: 5, "x" * 150: 1}, 100)
    notes: list[str] = []
    learn({"ก" * 101: 1, "x": 3}, 100, notes=notes)
    assert notes == [
        "words of more than 100 characters, which are [UNK]: 1 (25.00% of all words), 1 different; "
        "put spaces between words; for scripts without spaces, such as Thai, use --rules unspaced"
    ]


def test_rare_characters_are_left_out_if_they_would_take_most_of_the_room() -> None:
    counts = Counter(english())
    rare = [chr(code) for code in range(0x3041, 0x3041 + 80)]
    counts.update(dict.fromkeys(rare, 1))
    common = 10_000_000
    counts["the"] += common
    pieces = set(learn_vocabulary(counts, 105).pieces)
    characters = [piece for piece in pieces if len(piece.removeprefix("##")) == 1]
    assert len(characters) == int(CHARACTER_SHARE * 100)
    assert [character for character in rare if character in pieces] == rare[: len(set(rare) & pieces)]
    assert set(rare) <= set(learn_vocabulary(counts, 300).pieces)


def test_every_character_is_a_piece_with_full_coverage_whatever_room_that_takes() -> None:
    counts = Counter(english())
    rare = {chr(code) for code in range(0xAC00, 0xAC00 + 80)}
    counts.update(dict.fromkeys(rare, 1))
    counts["the"] += 10_000_000
    assert not rare <= set(learn_vocabulary(counts, 200).pieces)
    assert rare <= set(learn_vocabulary(counts, 200, character_coverage=1.0).pieces)
    with pytest.raises(VocabularyError, match=r"characters that make up 100.00% of the text; found 100 pieces"):
        learn_vocabulary(counts, 100, character_coverage=1.0)


def test_a_name_repeated_in_only_one_source_is_not_a_piece() -> None:
    texts = sources_of_names()
    counter = WordCounter()
    for text in texts:
        counter.add([text])
        counter.end_source()
    counts = counter.counts
    assert counts.num_sources == len(texts) >= LEAST_SOURCES
    knowing = learn_vocabulary(counts, 90).pieces
    unknowing = learn_vocabulary(dict(counts), 90).pieces
    names = {word for word in counts if any(c.isdigit() for c in word)}
    assert not names & set(knowing)
    assert names & set(unknowing)
    assert {"sailing", "rowing", "sailor"} <= set(knowing)


def test_the_number_of_words_to_learn_from_can_be_limited() -> None:
    counts = {"walking": 50, "talking": 40, "zebra": 5}
    pieces = learn_vocabulary(counts, 40, max_words=2).pieces
    assert "walking" in pieces
    assert "zebra" not in pieces


def test_characters_are_learned_from_all_words_and_the_cut_is_on_record() -> None:
    """Words of one weight are sampled evenly, so that no first letter is preferred."""
    counts = {f"{number:04x}": 2 for number in range(0, 2**16, 16)} | {"zebra": 2}
    notes: list[str] = []
    vocabulary = learn_vocabulary(counts, 400, max_words=100, character_coverage=1.0, notes=notes)
    assert unknown(counts, vocabulary.pieces) == 0
    assert notes == [
        "distinct words from which longer pieces are learned: 100 of 4,097, which are 2.4% of all words of the text; "
        "single characters come from all"
    ]
    longer = {piece[0] for piece in vocabulary.pieces if len(piece) > 1 and piece.isalnum()}
    assert longer == set("0123456789abcdef")


@settings(max_examples=60)
@given(
    st.dictionaries(st.text(min_size=1, max_size=6), st.integers(1, 3), min_size=1, max_size=30),
    st.integers(1, 30),
    st.sampled_from([TextRules(), TextRules(lowercase=False)]),
)
def test_every_character_of_a_text_is_known_however_few_words_are_learned_from(
    texts: dict[str, int], most: int, rules: TextRules
) -> None:
    counts = count_words([text for text, count in texts.items() for _ in range(count)], rules)
    assume(len(counts))
    vocabulary = learn_vocabulary(counts, 600, max_words=most, character_coverage=1.0)
    ids = WordPieceTokenizer(vocabulary, rules).encode_batch(list(texts)).ids
    assert vocabulary.unk_id not in ids


def test_counts_of_few_sources_are_used_as_they_are() -> None:
    counter = WordCounter()
    counter.add(sources_of_names()[:3])
    assert counter.counts.num_sources < LEAST_SOURCES
    assert learn_vocabulary(counter.counts, 80) == learn_vocabulary(dict(counter.counts), 80)


@settings(max_examples=40)
@given(
    st.dictionaries(st.text("abcあ한é", min_size=1, max_size=8), st.integers(1, 50), min_size=1, max_size=30),
    st.integers(20, 60),
)
def test_any_counts_give_a_vocabulary_that_covers_every_word(counts: dict[str, int], size: int) -> None:
    vocabulary = learn_vocabulary(counts, size)
    assert len(vocabulary) == size
    assert unknown(counts, vocabulary.pieces) == 0
    assert learn_vocabulary(WordCounts.of(counts), size) == vocabulary
