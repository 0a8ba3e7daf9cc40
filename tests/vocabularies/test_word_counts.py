"""Word counts equal those of the plain normalizer for any blocks, threads and order."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bertsmith.text.tokenizers.normalize import TextRules, basic_tokens
from bertsmith.text.vocabularies import word_counts
from bertsmith.text.vocabularies.word_counts import SPREAD_UNIT, WordCounter, WordCounts, count_words
from text.vocabularies import all_rules, all_texts


@given(st.lists(all_texts, max_size=8), all_rules)
def test_the_counts_are_those_of_the_basic_tokens(texts: list[str], rules: TextRules) -> None:
    expected = Counter(token for text in texts for token in basic_tokens(text, rules))
    assert dict(count_words(texts, rules, threads=1)) == expected


def test_long_words_are_counted_too() -> None:
    texts = [f"{'a' * length} " * 3 for length in (1, 7, 8, 9, 16, 17, 31, 32, 33, 40, 300)]
    assert dict(count_words(texts)) == {text.split()[0]: 3 for text in texts}


def test_chunks_are_separated_by_white_space() -> None:
    texts = ["it's a  dog", "", "\n", "a\u00a0b\tc", "x" * 70, "y"]
    assert count_words(texts).chunks == 3 + 0 + 0 + 3 + 1 + 1


@pytest.mark.parametrize("threads", [1, 3])
def test_blocks_sources_and_threads_do_not_change_the_sums(monkeypatch: pytest.MonkeyPatch, threads: int) -> None:
    text = " ".join(f"word{number % 997} the" for number in range(60_000))
    whole = count_words([text], threads=1)
    monkeypatch.setattr(word_counts, "SOURCE_BYTES", 300_000)
    parted = count_words([text], threads=threads)
    assert (whole.num_sources, parted.num_sources) == (1, 2)
    assert dict(parted) == dict(whole)
    assert parted.chunks == whole.chunks == 120_000
    assert set(parted.sources.tolist()) == {2}


def test_repetitions_within_one_source_are_damped() -> None:
    counter = WordCounter()
    for text in ("name " * 100 + "word", "word", "word"):
        counter.add([text])
        counter.end_source()
    counts = counter.counts
    figures = {
        word: (int(counts.sources[position]), int(counts.spread[position])) for position, word in enumerate(counts)
    }
    assert figures == {"name": (1, round(SPREAD_UNIT * 100**0.6)), "word": (3, 3 * SPREAD_UNIT)}
    assert counts.total == 103


def test_two_spellings_of_one_word_are_one_word_of_a_source() -> None:
    counts = count_words(["Café cafe CAFÉ"])
    assert dict(counts) == {"cafe": 3}
    assert counts.sources.tolist() == [1]


def test_parts_add_up_to_the_whole() -> None:
    counter = WordCounter()
    parts = []
    for number in range(3):
        counter.add([f"the file {number}", "the end"])
        parts.append(counter.part())
    assert [dict(part) for part in parts] == [{"the": 2, "file": 1, str(n): 1, "end": 1} for n in range(3)]
    assert [(part.num_sources, part.chunks) for part in parts] == [(1, 5)] * 3
    whole, merged = counter.counts, WordCounts.merged(reversed(parts))
    assert dict(merged) == dict(whole)
    assert (merged.num_sources, merged.chunks) == (whole.num_sources, whole.chunks)
    for column in ("counts", "sources", "spread"):
        ours, theirs = (dict(zip(c.words, getattr(c, column).tolist(), strict=True)) for c in (merged, whole))
        assert ours == theirs
    assert dict(counter.part()) == {}


@given(st.lists(st.tuples(st.lists(st.sampled_from("abcdefgh"), max_size=12), st.booleans()), max_size=12))
def test_a_counter_with_a_limit_drops_rare_words_and_none_of_a_part(sources: list[tuple[list[str], bool]]) -> None:
    counter, parts, since = WordCounter(threads=1, most_words=3), [], Counter()
    for words, ends_part in sources:
        counter.add([" ".join(words)])
        counter.end_source()
        since.update(words)
        if ends_part:
            parts.append((counter.part(), since))
            since = Counter()
    counts, exact = counter.counts, Counter(word for words, _ in sources for word in words)
    assert counts.total + counter.dropped == exact.total()
    assert all(count <= exact[word] for word, count in counts.items())
    for part, words in parts:
        assert set(part) <= set(counts)
        assert all(part[word] == words[word] for word in part if len(words) <= 3)
        assert [counts.words[number] for number in part.places_in(counts)] == list(part)


def test_of_too_many_words_the_frequent_ones_are_kept() -> None:
    counter = WordCounter(most_words=100)
    for number in range(50):
        counter.add([" ".join(["often", "again", *(f"rare{number}x{other}" for other in range(40))])])
        counter.end_source()
    counts = counter.counts
    assert (counts["often"], counts["again"]) == (50, 50)
    assert len(counts) <= 102
    assert counter.dropped == 50 * 42 - counts.total > 0


def test_many_small_texts_are_one_source() -> None:
    counter = WordCounter()
    for _ in range(500):
        counter.add(["a small text"])
    assert counter.counts.num_sources == 1
    assert counter.counts["small"] == 500


def test_no_texts_have_no_words() -> None:
    counts = count_words([])
    assert (len(counts), counts.total, counts.chunks, counts.num_sources) == (0, 0, 0, 0)
    assert WordCounts.merged([]).total == 0
    with pytest.raises(KeyError):
        counts["a"]


def test_a_mapping_becomes_counts_of_one_source() -> None:
    counts = WordCounts.of({"b": 2, "a": 3, "": 5, "c": 0})
    assert dict(counts) == {"b": 2, "a": 3}
    assert counts.chunks == counts.total == 5
    assert counts.sources.tolist() == [1, 1]
    assert WordCounts.of(counts) is counts
    assert counts.counts.dtype == np.int64
