"""Copies and near-duplicates are found exactly, and texts that are merely similar are not."""

import itertools
import re
import unicodedata
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bertsmith.base.core.randomness import generator
from bertsmith.text.corpus import duplicates
from bertsmith.text.corpus.duplicates import exact_duplicates, minima, near_duplicates, word_shingles
from bertsmith.text.corpus.hashing import run_hashes
from bertsmith.text.corpus.removal import WaitingDocuments
from bertsmith.text.corpus.shards import Corpus
from bertsmith.text.corpus.text_words import words_of_text
from bertsmith.text.tokenizers.characters import HUGGINGFACE
from corpus.samples import WORDS, small_tokenizer

TOKENIZER = small_tokenizer()


def corpus_of(folder: Path, texts: list[list[str]]) -> Corpus:
    """Documents, each a list of sentences, that wait to be compared."""
    waiting = WaitingDocuments(folder, TOKENIZER, words=True)
    for number, sentences in enumerate(texts):
        encoded = TOKENIZER.encode_batch(sentences)
        words = words_of_text(sentences, lowercase=True)
        waiting.add(f"text {number}", encoded.ids.astype(np.uint16), encoded.lengths, 0, words=words)
    return waiting.close()


def drawn(words: int, *index: int) -> list[str]:
    return generator(7, "documents", *index).choice(WORDS, words).tolist()


def changed(words: list[str], share: float, *index: int) -> list[str]:
    """The words with this fraction of them replaced by a word that no other text has."""
    draw = generator(8, "changes", *index)
    places = draw.choice(len(words), round(share * len(words)), replace=False)
    return [f"x{position}" if position in places else word for position, word in enumerate(words)]


def shingles(words: list[str]) -> set[tuple[str, ...]]:
    return {tuple(words[start : start + 5]) for start in range(max(1, len(words) - 4))}


def test_nearly_all_planted_near_duplicates_are_found_and_nothing_else(tmp_path: Path) -> None:
    """1,000 documents of 100 words, each with a copy with one or two other words: a similarity of 0.90 or 0.81."""
    planted = [drawn(100, number) for number in range(1000)]
    copies = [changed(words, 0.01 * (1 + number % 2), number) for number, words in enumerate(planted)]
    others = [changed(drawn(100, number), 0.1, 5, number) for number in range(200)]
    every = [shingles(words) for words in [*planted, *copies]]
    near = [
        number
        for number in range(1000)
        if len(every[number] & every[1000 + number]) >= 0.8 * len(every[number] | every[1000 + number])
    ]
    texts = [[" ".join(words)] for words in [*planted, *others, *copies]]
    result = near_duplicates(corpus_of(tmp_path / "corpus", texts)).of
    assert len(near) > 900
    assert sum(int(result[1200 + number]) == number for number in near) >= 0.995 * len(near)
    assert {position - 1200 for position, of in enumerate(result) if of >= 0} <= set(near)


def test_planted_near_duplicates_are_those_that_the_definition_names(tmp_path: Path) -> None:
    """Against all pairs, compared as sets of strings: the first document of its kind is kept."""
    texts = []
    for number in range(25):
        words = drawn(40 + 10 * number, number)
        texts += [words, changed(words, 0.01, number), changed(words, 0.3, number), changed(words, 0.02, 99, number)]
    order = generator(9, "order").permutation(len(texts)).tolist()
    texts = [texts[index] for index in order]
    sets = [shingles(text) for text in texts]
    expected: dict[int, int] = {}
    for number, grams in enumerate(sets):
        for other in (earlier for earlier in range(number) if earlier not in expected):
            if len(grams & sets[other]) >= 0.8 * len(grams | sets[other]):
                expected[number] = other
                break
    result = near_duplicates(corpus_of(tmp_path / "corpus", [[" ".join(text)] for text in texts]))
    assert {index: int(of) for index, of in enumerate(result.of) if of >= 0} == expected
    assert 20 < len(expected) < 60
    for index, other in expected.items():
        exact = len(sets[index] & sets[other]) / len(sets[index] | sets[other])
        assert result.similarity[index] == pytest.approx(exact)


def test_copies_are_found_sentence_by_sentence(tmp_path: Path) -> None:
    first, second = ["The boat came home.", "It rained."], ["A new story."]
    corpus = corpus_of(tmp_path / "corpus", [first, second, first, ["The boat came home. It rained."], second, first])
    assert exact_duplicates(corpus).of.tolist() == [-1, -1, 0, -1, 1, 0]
    near = near_duplicates(corpus)
    assert near.of.tolist() == [-1, -1, 0, 0, 1, 0], "the same words with other sentence boundaries"
    assert near.exact.tolist() == [False, False, True, False, True, True]
    assert near.similarity.tolist() == [0, 0, 1, 1, 1, 1]


def test_short_documents_are_compared_as_a_whole(tmp_path: Path) -> None:
    texts = ["It rained.", "it  rained .", "It rained", "The boat came home.", "The boat was home."]
    result = near_duplicates(corpus_of(tmp_path / "corpus", [[text] for text in texts]))
    assert result.of.tolist() == [-1, 0, -1, -1, -1]


def test_a_copy_of_a_near_duplicate_names_a_document_that_is_kept(tmp_path: Path) -> None:
    words = drawn(300, 1)
    close = changed(words, 0.01, 1)
    result = near_duplicates(
        corpus_of(tmp_path / "corpus", [[" ".join(document)] for document in (words, close, close)])
    )
    assert result.of.tolist() == [-1, 0, 0]
    assert result.similarity[1] == result.similarity[2] < 1
    assert result.exact.tolist() == [False, False, True]


def test_copies_are_found_in_a_crowd_that_shares_its_hashes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(duplicates, "MOST_IN_BUCKET", 1)
    words = drawn(60, 3)
    similar = [changed(words, 0.05, number) for number in range(12)]
    result = near_duplicates(
        corpus_of(tmp_path / "corpus", [[" ".join(document)] for document in [*similar, *similar]])
    )
    assert (result.of[12:] >= 0).all()
    assert set(result.of[12:].tolist()) <= set(np.flatnonzero(result.of < 0).tolist())


def test_equal_minima_estimate_the_similarity() -> None:
    """Broder (1997): the probability that two sets have the same minimum is their Jaccard similarity."""
    first, second = np.arange(900, dtype=np.uint16), np.arange(300, 1200, dtype=np.uint16)  # 600 of 1,200 in common
    hashes = np.concatenate([run_hashes(ids, np.ones(900, dtype=np.int64)) for ids in (first, second)])
    result = minima(hashes, np.repeat([0, 1], 900), 2)
    assert result.shape == (duplicates.BANDS * duplicates.ROWS, 2)
    assert (result[:, 0] == result[:, 1]).mean() == pytest.approx(0.5, abs=0.15)


def test_minima_do_not_depend_on_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    draw = generator(1, "hashes")
    hashes = draw.integers(2**64, size=500, dtype=np.uint64)
    documents = np.sort(np.concatenate([np.arange(40), draw.integers(40, size=460)]))
    whole = minima(hashes, documents, 40)
    monkeypatch.setattr(duplicates, "_BLOCK", 7)
    assert np.array_equal(minima(hashes, documents, 40), whole)


def test_runs_of_words_stay_in_their_document() -> None:
    words, counts = words_of_text(["boats came home in it rained", "boat"], lowercase=True)
    assert counts.tolist() == [6, 1]
    hashes, documents = word_shingles(words, np.array([0, 6, 7]))
    assert documents.tolist() == [0, 0, 1]
    again, _ = words_of_text(["came home in it rained"], lowercase=True)
    assert word_shingles(again, np.array([0, 5]))[0].tolist() == [hashes[1]]


def plain_words(text: str, lowercase: bool) -> list[str]:
    """The words of a text, character by character."""
    words, joins = [], False
    for character in unicodedata.normalize("NFC", text.lower() if lowercase else text):
        alone = HUGGINGFACE.is_punctuation(character) or HUGGINGFACE.is_cjk(character)
        alone = alone or bool(
            re.match("[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3041-\u30ff\u31f0-\u31ff\uff66-\uff9f]", character)
        )
        if HUGGINGFACE.is_whitespace(character):
            joins = False
        elif alone or not joins:
            words.append(character)
            joins = not alone
        else:
            words[-1] += character
    return words or [""]


VARIANTS = (
    str,
    str.upper,
    str.swapcase,
    lambda text: unicodedata.normalize("NFD", text),
    lambda text: text.replace(" ", "\u3000\t"),
    lambda text: text.replace(" ", ""),
    lambda text: "".join(
        character for character in unicodedata.normalize("NFD", text) if not unicodedata.combining(character)
    ),
    lambda text: text[:-1],
)
TEXTS = (
    st.text(max_size=12) | st.text("a \u00e9e\u0301.猫犬กา\u3000A", max_size=12) | st.sampled_from(["résumé now", "猫"])
)


@given(st.lists(st.tuples(TEXTS, st.sampled_from(VARIANTS)), min_size=1, max_size=8), st.booleans())
def test_sentences_are_equal_if_and_only_if_their_words_are(parts: list, lowercase: bool) -> None:
    sentences = [variant for text, change in parts for variant in (text, change(text))]
    expected = [plain_words(sentence, lowercase) for sentence in sentences]
    words, counts = words_of_text(sentences, lowercase=lowercase)
    assert counts.tolist() == [len(words) for words in expected]
    number_of = {hash: word for word, hash in zip(itertools.chain(*expected), words.tolist(), strict=True)}
    assert len(number_of) == len(set(itertools.chain(*expected)))
    assert [number_of[hash] for hash in words.tolist()] == list(itertools.chain(*expected))
