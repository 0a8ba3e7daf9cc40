"""Similar pairs and opposites: a probe finds what the cosine does not show, and nothing where nothing is."""

import numpy as np
import pytest

from bertsmith.base.core.errors import InputError
from bertsmith.inference.word_vectors.opposites import relation, score_opposites
from bertsmith.inference.word_vectors.word_vectors import WordVectors
from written_files import file_with


def planted(tmp_path, *, is_known):
    """Pairs of which the opposites differ in the first number and the others in the second, or by chance."""
    rng = np.random.default_rng(3)
    words, rows, lines = [], [], []
    for number in range(120):
        is_opposite = number % 2 == 1
        base = rng.standard_normal(20)
        base[:2] = 0
        apart = int(not is_opposite) if is_known else int(rng.integers(2))
        for sign in (1, -1):
            row = base.copy()
            row[apart] = 2 * sign
            words.append(f"w{number}{'a' if sign > 0 else 'b'}")
            rows.append(row)
        lines.append(f"w{number}a\tw{number}b\t{'opposite' if is_opposite else 'similar'}")
    path = tmp_path / "pairs.txt"
    path.write_text(
        "# pairs\n" + "\n".join([*lines, "w1a missing similar"]).replace("\t", " ") + "\n", encoding="utf-8"
    )
    return WordVectors(words=words, vectors=np.array(rows, dtype=np.float32)), path


def test_a_probe_finds_what_the_cosine_does_not_show(tmp_path):
    vectors, path = planted(tmp_path, is_known=True)
    score = score_opposites(vectors, path)
    assert (score.similar, score.opposite, score.left_out) == (60, 60, 1)
    assert 0.3 < score.by_cosine < 0.7
    assert score.by_probe > 0.95
    units = vectors.units
    assert score.cosine_of_similar == pytest.approx(
        np.mean([units[position] @ units[position + 1] for position in range(0, 240, 4)]), abs=1e-5
    )
    assert relation(vectors, path, "w1a", "w1b").opposite > 0.5 > relation(vectors, path, "w0a", "w0b").opposite
    first, other = relation(vectors, path, "w1a", "w1b"), relation(vectors, path, "w1b", "w1a")
    assert first == other, "the order of the words does not matter"


def test_a_probe_finds_nothing_where_nothing_is(tmp_path):
    vectors, path = planted(tmp_path, is_known=False)
    assert 0.3 < score_opposites(vectors, path).by_probe < 0.7


def test_the_words_of_tested_pairs_are_kept_out_of_training(tmp_path):
    """Random vectors: a probe that sees the words of a test would know that all pairs with `hub` are opposites."""
    rng = np.random.default_rng(1)
    words = [f"w{number}" for number in range(80)]
    vectors = WordVectors(words=words, vectors=rng.standard_normal((80, 6)).astype(np.float32))
    chains = [f"w0 w{number} opposite" for number in range(1, 20)] + [
        f"w20 w{number} similar" for number in range(21, 40)
    ]
    path = file_with(tmp_path / "pairs.txt", "\n".join(chains) + "\n")
    assert score_opposites(vectors, path).by_probe is None, "with one group of each kind nothing is left to learn from"
    path.write_text("\n".join([*chains, "w40 w41 similar", "w42 w43 opposite"]) + "\n", encoding="utf-8")
    assert score_opposites(vectors, path).by_probe < 0.9


@pytest.mark.parametrize("line", ["a b", "a b other", "a b c similar", "a b similr"])
def test_a_line_of_another_form_is_refused(tmp_path, line):
    vectors = WordVectors(words=["a", "b"], vectors=np.eye(2, dtype=np.float32))
    path = file_with(tmp_path / "pairs.txt", f"a b similar\n{line}\n")
    with pytest.raises(InputError, match="line 2"):
        score_opposites(vectors, path)


def test_pairs_of_one_label_are_not_enough(tmp_path):
    vectors, path = planted(tmp_path, is_known=True)
    path.write_text("w0a w0b similar\nw2a w2b similar\nw1a w1b opposite\n", encoding="utf-8")
    with pytest.raises(InputError, match="1 opposite pair"):
        score_opposites(vectors, path)
    path.write_text("w0a w0b similar\nw2a w2b similar\nw1a w1b opposite\nw3a w3b opposite\n", encoding="utf-8")
    with pytest.raises(InputError, match="without 'w1a' and 'w0b'"):
        relation(vectors, path, "w1a", "w0b")
