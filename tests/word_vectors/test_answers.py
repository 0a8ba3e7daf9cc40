"""Neighbors, analogies and similarities against cosines computed by hand, and what is counted as left out."""

import numpy as np
import pytest

from bertsmith.base.core.errors import InputError
from bertsmith.base.core.progress import recorded_warnings
from bertsmith.inference.word_vectors.answers import (
    analogy,
    neighbors,
    score_analogies,
    score_similarities,
    similarity,
)
from bertsmith.inference.word_vectors.training import train_word_vectors
from bertsmith.inference.word_vectors.word_vectors import WordVectors
from bertsmith.training.loop.callbacks import Callback, callbacks
from written_files import file_with

RNG = np.random.default_rng(2)
WORDS = [f"w{number}" for number in range(50)]
VECTORS = WordVectors(words=WORDS, vectors=RNG.standard_normal((50, 8)).astype(np.float32))
# Pairs of a city and its country, which differ by the same vector.
PAIRS = WordVectors(
    words=["cairo", "egypt", "stockholm", "sweden", "oslo", "norway", "had", "has"],
    vectors=np.array(
        [
            [1, 0, 0, 0],
            [1, 0, 0, 1],
            [0, 1, 0, 0],
            [0, 1, 0, 1],
            [0, 0, 1, 0],
            [0, 0, 1, 1],
            [1, 1, 1, 0],
            [1, 1, -1, 0],
        ],
        dtype=np.float32,
    ),
    lowercase=True,
)


def cosine(a, b):
    return a @ b / np.linalg.norm(a) / np.linalg.norm(b)


def test_neighbors_are_the_words_with_the_highest_cosine_without_the_word_itself():
    result = neighbors(VECTORS, "w7", 5)
    cosines = {word: cosine(VECTORS.vector("w7"), VECTORS.vector(word)) for word in WORDS if word != "w7"}
    assert [neighbor.word for neighbor in result] == sorted(cosines, key=cosines.__getitem__, reverse=True)[:5]
    assert result[0].cosine == pytest.approx(max(cosines.values()), abs=1e-6)
    assert len(neighbors(VECTORS, "w7", 1000)) == 49
    assert similarity(VECTORS, "w7", result[0].word) == pytest.approx(result[0].cosine, abs=1e-6)


def test_an_analogy_excludes_its_three_words():
    assert analogy(PAIRS, "Stockholm", "Sweden", "Cairo")[0].word == "egypt"
    words = {neighbor.word for neighbor in analogy(PAIRS, "stockholm", "sweden", "cairo", count=20)}
    assert words == set(PAIRS.words) - {"stockholm", "sweden", "cairo"}
    assert {neighbor.word for neighbor in analogy(PAIRS, "cairo", "cairo", "oslo", 20, most_frequent=4)} == {
        "egypt", "stockholm", "sweden",
    }  # fmt: skip


def test_an_unknown_word_is_an_error_that_names_a_close_one():
    with pytest.raises(InputError, match="found 'Cairro'; did you mean 'cairo'"):
        similarity(PAIRS, "Cairro", "egypt")


def test_analogies_are_scored_by_section_and_unknown_words_are_counted(tmp_path):
    path = tmp_path / "questions.txt"
    path.write_text(
        ": capitals\nCairo Egypt Stockholm Sweden\nCairo Egypt Oslo Norway\nCairo Egypt Paris France\n"
        ": verbs\ncairo egypt had has\n\n",
        encoding="utf-8",
    )
    result = [(score.name, score.correct, score.asked, score.left_out) for score in score_analogies(PAIRS, path)]
    assert result == [("capitals", 2, 2, 1), ("verbs", 0, 1, 0), ("total", 2, 3, 1)]
    few = score_analogies(PAIRS, path, most_frequent=4)
    assert [(score.asked, score.left_out) for score in few] == [(1, 2), (0, 1), (1, 3)]
    assert few[1].accuracy is None
    path.write_text("cairo egypt paris france\ncairo egypt rome italy\n", encoding="utf-8")
    with pytest.raises(InputError, match=r"vectors of all four words of a question in .*; found none for 2 questions"):
        score_analogies(PAIRS, path)
    path.write_text("one two three\n", encoding="utf-8")
    with pytest.raises(InputError, match="four words in line 1"):
        score_analogies(PAIRS, path)


@pytest.mark.parametrize("separator", ["\t", ",", " "])
def test_similarities_are_ranked_and_pairs_with_unknown_words_counted(tmp_path, separator):
    rows = [("Word 1", "Word 2", "Human"), ("w1", "w2", "9"), ("w3", "w4", "5.5"), ("w5", "w6", "1"), ("w7", "no", "2")]
    if separator == " ":
        rows[0] = ("word1", "word2", "score")
    path = file_with(tmp_path / "pairs.txt", "".join(separator.join(row) + "\n" for row in rows))
    result = score_similarities(VECTORS, path)
    cosines = [similarity(VECTORS, a, b) for a, b, _ in rows[1:4]]
    gold_ranks, ranks = np.array([2, 1, 0]), np.argsort(np.argsort(cosines))
    assert result.spearman == pytest.approx(np.corrcoef(gold_ranks, ranks)[0, 1])
    assert (result.pairs, result.left_out) == (3, 1)


def test_planted_analogies_are_learned_from_text(tmp_path):
    """A kind of surroundings per pair and one per side: capital and country, past and present tense."""
    rng = np.random.default_rng(0)
    pairs = [("cairo", "egypt"), ("stockholm", "sweden"), ("had", "has"), ("was", "is"), ("oslo", "norway")]
    lines = []
    for _ in range(12_000):
        pair = rng.integers(len(pairs))
        side = rng.integers(2)
        around = [f"about{pair}x{rng.integers(4)}" for _ in range(2)] + [
            f"side{side}x{rng.integers(4)}" for _ in range(2)
        ]
        rng.shuffle(around)
        lines.append(" ".join([*around[:2], pairs[pair][side], *around[2:]]))
    (tmp_path / "t.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    with callbacks(Callback()), recorded_warnings() as warnings:
        result = train_word_vectors(
            [tmp_path / "t.txt"], tmp_path / "v", form="lines", method="ppmi", width=16, window=4
        )
    assert "callbacks are not called by the training of word vectors" in warnings
    asked = right = 0
    for a, b in pairs:
        for c, d in pairs:
            if a != c:
                asked += 1
                right += analogy(result, a, b, c)[0].word == d
    assert right / asked > 0.9
    questions = tmp_path / "questions.txt"
    questions.write_text(": capitals\nStockholm Sweden Cairo Egypt\n: verbs\nhad has was is\n", encoding="utf-8")
    scores = {score.name: (score.correct, score.asked, score.left_out) for score in score_analogies(result, questions)}
    assert scores == {"capitals": (1, 1, 0), "verbs": (1, 1, 0), "total": (2, 2, 0)}
    assert result.vector("cairo") is not None
    np.testing.assert_array_equal(result.vector("Was"), result.vector("was"))
