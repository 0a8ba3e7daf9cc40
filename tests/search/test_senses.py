"""Senses of a word: its occurrences, their vectors, and their groups."""

from collections.abc import Iterable

import numpy as np
import pytest

from bertsmith.base.core.errors import ConfigError, InputError
from bertsmith.base.core.randomness import generator
from bertsmith.base.machine.runtime import choose
from bertsmith.inference.search.senses import (
    Occurrence,
    find_words,
    group_senses,
    occurrence_vectors,
    plane,
)
from bertsmith.models.parts.batch import Batch
from bertsmith.models.parts.encoder import Trace
from bertsmith.models.parts.transformer import TransformerEncoder
from bertsmith.tasks.encoding.frozen import FrozenEncoder
from bertsmith.text.tokenizers.normalize import TextRules
from bertsmith.text.tokenizers.pack import pack_rows
from tasks.task_samples import CONFIG, TOKENIZER

UNCASED, CASED = TextRules(), TextRules(lowercase=False)


@pytest.fixture(scope="module")
def encoder() -> FrozenEncoder:
    return FrozenEncoder(TransformerEncoder(CONFIG, seed=2), TOKENIZER, choose("cpu", "fp32"))


def find_occurrences(sentences: Iterable[str], word: str, rules: TextRules, **options: int) -> list[Occurrence]:
    return find_words(sentences, [word], rules, **options)[0]


def found_words(sentences: list[str], word: str, rules: TextRules = UNCASED) -> list[str]:
    return [
        occurrence.sentence[occurrence.start : occurrence.end]
        for occurrence in find_occurrences(sentences, word, rules)
    ]


def test_whole_words_are_found_by_the_rules_of_the_tokenizer() -> None:
    sentences = ["The Bank, a bank; banks.", "embankment", "BÁNK's", "the  bank"]
    assert found_words(sentences, "bank") == ["Bank", "bank", "BÁNK", "bank"]
    assert found_words(sentences, "bank", CASED) == ["bank", "bank"]
    assert found_words(["a new  york new year new york"], "New York") == ["new  york", "new york"]


def test_a_word_that_does_not_occur_is_reported_with_near_spellings() -> None:
    with pytest.raises(InputError, match="similar spellings in the text: bank") as error:
        find_occurrences(["the bank was shut"], "bnak", UNCASED)
    assert "'bnak'" in str(error.value)
    with pytest.raises(InputError, match="name a word of the text"):
        find_occurrences(["the bank"], "xylophone", UNCASED)
    with pytest.raises(InputError, match="expected a word"):
        find_occurrences(["the bank"], " ", UNCASED)


def test_of_many_occurrences_a_random_part_is_taken_in_order() -> None:
    sentences = [f"a {number}" for number in range(50)]
    result = find_occurrences(sentences, "a", UNCASED, most=10)
    numbers = [int(occurrence.sentence.split()[1]) for occurrence in result]
    assert len(numbers) == 10
    assert numbers == sorted(numbers)
    assert result == find_occurrences(sentences, "a", UNCASED, most=10)
    assert result != find_occurrences(sentences, "a", UNCASED, most=10, seed=1)


def test_each_occurrence_is_equally_likely_to_be_taken() -> None:
    counts = np.zeros(12)
    for seed in range(600):
        for occurrence in find_occurrences((f"a {number}" for number in range(12)), "a", UNCASED, most=3, seed=seed):
            counts[int(occurrence.sentence.split()[1])] += 1
    assert counts.sum() == 1800
    assert np.abs(counts / 600 - 0.25).max() < 0.08, "4.5 standard deviations"


def test_several_words_are_found_in_one_pass() -> None:
    sentences = ["the bank of a river", "a bank", "the river"]
    result = find_words(iter(sentences), ["bank", "river"], UNCASED)
    assert result == [find_occurrences(sentences, word, UNCASED) for word in ("bank", "river")]


@pytest.mark.parametrize(("layers", "numbers"), [("last", [2]), ("sum-all", [1, 2]), ("0", [0])])
def test_a_vector_is_the_mean_of_the_pieces_of_the_word(
    encoder: FrozenEncoder, layers: str, numbers: list[int]
) -> None:
    sentences = ["anna was in rome", "a film of the films and films in rome", "films"]
    result = find_occurrences(sentences, "films", UNCASED)
    assert [occurrence.start for occurrence in result] == [14, 24, 0]
    vectors = occurrence_vectors(encoder, result, layers)
    pieces = [[5, 6], [8, 9], [1, 2]]  # of the row, behind [CLS]: "films" is film and ##s
    for occurrence, places, vector in zip(result, pieces, vectors, strict=True):
        ids = TOKENIZER.encode(occurrence.sentence)
        rows = pack_rows([ids], template=TOKENIZER.template, max_length=64)
        trace = Trace()
        encoder.model(Batch.from_flat(rows.token_ids, rows.segment_ids, rows.lengths), trace=trace)
        mixed = sum(trace.hidden_states[number] for number in numbers)
        assert np.allclose(vector, mixed[places].mean(dim=0).numpy(), atol=1e-5)


def test_of_a_long_sentence_the_part_around_the_word_is_read(encoder: FrozenEncoder) -> None:
    start, end = "the " * 100, " was" * 100
    for sentence in (f"{start}rome{end}", f"rome{end}{end}", f"{start}{start}rome"):
        (occurrences,) = find_occurrences([sentence], "rome", UNCASED)
        words = sentence.split()
        index = words.index("rome")
        first = max(0, min(index - 31, len(words) - 62))
        (short,) = find_occurrences([" ".join(words[first : first + 62])], "rome", UNCASED)
        assert np.array_equal(occurrence_vectors(encoder, [occurrences]), occurrence_vectors(encoder, [short]))


def clouds(*sizes: int) -> tuple[list[Occurrence], np.ndarray]:
    """Clusters of vectors, one around each of as many axes, and a sentence per vector."""
    source = generator(0, "clouds")
    vectors = np.concatenate(
        [np.eye(8)[axis] + 0.05 * source.standard_normal((size, 8)) for axis, size in enumerate(sizes)]
    )
    names = [f"{axis} {number}" for axis, size in enumerate(sizes) for number in range(size)]
    return [Occurrence(sentence=name, start=0, end=1) for name in names], vectors.astype(np.float32)


@pytest.mark.parametrize("method", ["k-means", "agglomerative"])
def test_groups_that_are_apart_are_found_the_largest_first(method: str) -> None:
    occurrences, vectors = clouds(5, 20, 9)
    result = group_senses(occurrences, vectors, method=method)
    assert result.groups.tolist() == [2] * 5 + [0] * 20 + [1] * 9
    assert max(result.silhouettes, key=result.silhouettes.__getitem__) == 3
    assert np.allclose(result.centers, np.eye(8)[[1, 2, 0]], atol=0.1)
    assert result.closeness.min() > 0.9
    nearest = occurrences[5 + int(np.argmax(result.closeness[5:25]))]
    assert result.central(0, 1) == [nearest]
    assert len(result.central(2, 99)) == 5


def test_without_a_division_there_is_one_group() -> None:
    vectors = generator(0, "one cloud").standard_normal((60, 16)).astype(np.float32) + 3
    occurrences, _ = clouds(60)
    result = group_senses(occurrences, vectors)
    assert set(result.groups.tolist()) == {0}
    assert set(result.silhouettes) == {2, 3, 4, 5, 6}


def test_few_or_equal_occurrences_are_grouped_too() -> None:
    for size in (1, 2, 3):
        occurrences, vectors = clouds(size)
        assert group_senses(occurrences, vectors).groups.tolist() == [0] * size
    occurrences, _ = clouds(5)
    same = group_senses(occurrences, np.ones((5, 8), np.float32))
    assert same.groups.tolist() == [0] * 5
    assert same.silhouettes == {}
    assert not same.points.any()


def test_the_number_of_groups_may_be_given() -> None:
    occurrences, vectors = clouds(6, 6)
    assert len(group_senses(occurrences, vectors, clusters=4).centers) == 4
    assert len(group_senses(occurrences, vectors, clusters=1).centers) == 1
    for wrong in ({"clusters": 13}, {"clusters": 0}, {"method": "k-meas"}):
        with pytest.raises(ConfigError):
            group_senses(occurrences, vectors, **wrong)


def test_a_sentence_with_the_word_twice_is_shown_once() -> None:
    twice = [Occurrence(sentence="s", start=position, end=position + 1) for position in range(4)]
    result = group_senses(twice, clouds(4)[1], clusters=1)
    assert len(result.central(0, 4)) == 1


def test_the_plane_keeps_distances_of_flat_points() -> None:
    flat = np.array([[0.0, 0, 0], [3, 0, 4], [0, 2, 0]])
    points, shown = plane(flat)
    assert shown == pytest.approx(1)
    for number in range(3):
        for other in range(3):
            assert np.linalg.norm(points[number] - points[other]) == pytest.approx(
                np.linalg.norm(flat[number] - flat[other])
            )
