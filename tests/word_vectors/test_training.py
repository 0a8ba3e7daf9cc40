"""Word vectors from files: what is learned, and that a stopped run resumes to the same bytes."""

import numpy as np
import pytest

from bertsmith.base.core.errors import InputError, RunError
from bertsmith.inference.word_vectors.training import train_word_vectors
from bertsmith.inference.word_vectors.word2vec import Word2Vec
from bertsmith.inference.word_vectors.word_vectors import load_folder
from bertsmith.text.corpus.pair_counts import PairCounts
from written_files import file_with

SMALL = {"width": 16, "window": 3, "minimum_count": 1, "epochs": 3}


@pytest.fixture
def text(tmp_path):
    rng = np.random.default_rng(7)
    words = [f"w{number}" for number in range(30)]
    lines = [" ".join(rng.choice(words, size=9)) for _ in range(200)]
    return file_with(tmp_path / "text.txt", "\n".join(lines) + "\n")


@pytest.mark.parametrize("method", ["skip-gram", "cbow", "glove", "ppmi"])
def test_equal_seeds_give_equal_vectors_and_other_seeds_others(tmp_path, text, method):
    values = {key: value for key, value in SMALL.items() if (key, method) != ("epochs", "ppmi")}
    first, again, other = (
        train_word_vectors([text], tmp_path / f"v{number}", form="lines", method=method, seed=seed, **values)
        for number, seed in enumerate((1, 1, 2))
    )
    np.testing.assert_array_equal(first.vectors, again.vectors)
    assert not np.array_equal(first.vectors, other.vectors)
    for name in ("vectors.safetensors", "words.txt", "README.md"):
        assert (tmp_path / "v0" / name).read_bytes() == (tmp_path / "v1" / name).read_bytes()
    assert not (tmp_path / "v0.training").exists()
    np.testing.assert_array_equal(load_folder(tmp_path / "v0").vectors, first.vectors)


@pytest.mark.parametrize("changes", [{}, {"method": "cbow", "hierarchical": True}, {"method": "glove"}])
def test_a_stopped_run_resumes_to_the_same_bytes(tmp_path, text, monkeypatch, changes):
    train_word_vectors([text], tmp_path / "straight", form="lines", **SMALL, **changes)
    import bertsmith.inference.word_vectors.training as training

    plain = training._write_state

    def stop(path, tables, losses):
        plain(path, tables, losses)
        if len(losses) == 2:
            raise KeyboardInterrupt

    monkeypatch.setattr(training, "_write_state", stop)
    with pytest.raises(KeyboardInterrupt):
        train_word_vectors([text], tmp_path / "resumed", form="lines", **SMALL, **changes)
    assert not (tmp_path / "resumed").exists()
    monkeypatch.setattr(training, "_write_state", plain)
    with pytest.raises(RunError, match="add `resume=True`"):
        train_word_vectors([text], tmp_path / "resumed", form="lines", **SMALL, **changes)
    with pytest.raises(RunError, match="same options"):
        train_word_vectors([text], tmp_path / "resumed", form="lines", **SMALL, **changes, seed=5, resume=True)
    train_word_vectors([text], tmp_path / "resumed", form="lines", **SMALL, **changes, resume=True)
    names = {path.name for path in (tmp_path / "straight").iterdir()}
    assert names == {"vectors.safetensors", "words.txt", "bertsmith.json", "README.md"}
    for name in names:
        assert (tmp_path / "straight" / name).read_bytes() == (tmp_path / "resumed" / name).read_bytes()


def test_an_existing_folder_is_kept_unless_it_is_to_be_replaced(tmp_path, text):
    train_word_vectors([text], tmp_path / "v", form="lines", **SMALL)
    before = (tmp_path / "v" / "vectors.safetensors").read_bytes()
    with pytest.raises(InputError, match="one that exists"):
        train_word_vectors([text], tmp_path / "v", form="lines", **SMALL, seed=2)
    assert (tmp_path / "v" / "vectors.safetensors").read_bytes() == before
    train_word_vectors([text], tmp_path / "v", form="lines", **SMALL, seed=2, replace=True)
    assert (tmp_path / "v" / "vectors.safetensors").read_bytes() != before


def planted(tmp_path):
    """Two kinds of words in two kinds of surroundings, which one word in ten confuses."""
    rng = np.random.default_rng(3)
    kinds = [
        (["cat", "dog", "cow"], [f"barn{n}" for n in range(8)]),
        (["tea", "milk", "beer"], [f"cup{n}" for n in range(8)]),
    ]
    lines = []
    for _ in range(500):
        kind = rng.integers(2)
        names, around = kinds[kind]
        others = kinds[1 - kind][1]
        line = [str(rng.choice(others if rng.random() < 0.1 else around)) for _ in range(4)]
        line.insert(int(rng.integers(5)), str(rng.choice(names)))
        lines.append(" ".join(line))
    return file_with(tmp_path / "planted.txt", "\n".join(lines) + "\n")


@pytest.mark.parametrize(
    "changes",
    [
        {"method": "skip-gram"},
        {"method": "skip-gram", "hierarchical": True},
        {"method": "cbow"},
        {"method": "cbow", "hierarchical": True},
        {"method": "skip-gram", "hierarchical": True, "negatives": 3},
        {"method": "glove", "epochs": 40, "maximum_count": 10.0},
        {"method": "ppmi"},
    ],
    ids=str,
)
@pytest.mark.parametrize("engine", ["numpy", "auto"])
def test_related_words_are_nearer_than_unrelated_ones(tmp_path, changes, engine):
    if changes["method"] in ("skip-gram", "cbow"):  # every word is frequent here
        changes = {**changes, "subsample": 0.0, "epochs": 20, "learning_rate": 0.1}
    if changes["method"] != "ppmi":
        is_block = engine == "numpy" and changes["method"] != "glove"
        changes = {**changes, "engine": engine, **({"block": 16} if is_block else {})}
    result = train_word_vectors(
        [planted(tmp_path)], tmp_path / "v", form="lines", width=12, window=4, minimum_count=1, **changes
    )
    animals, drinks = (result.units[result.rows(words)] for words in (["cat", "dog", "cow"], ["tea", "milk", "beer"]))
    within = min((side @ side.T).min() for side in (animals, drinks))
    between = (animals @ drinks.T).max()
    assert within > between + 0.1, (within, between)
    losses = result.about["loss"]
    assert not losses or losses[-1] < losses[0]


def test_an_epoch_in_chunks_is_the_same_however_often_it_is_read(tmp_path, text, monkeypatch):
    assert Word2Vec.train_epoch  # the class under test
    monkeypatch.setattr("bertsmith.inference.word_vectors.word_stream._CHUNK_WORDS", 50)
    first = train_word_vectors([text], tmp_path / "a", form="lines", **SMALL)
    again = train_word_vectors([text], tmp_path / "b", form="lines", **SMALL)
    np.testing.assert_array_equal(first.vectors, again.vectors)


def test_too_few_words_are_refused(tmp_path):
    (tmp_path / "t.txt").write_text("one two three\n", encoding="utf-8")
    with pytest.raises(InputError, match="at least two words that occur 5 times"):
        train_word_vectors([tmp_path / "t.txt"], tmp_path / "v")
    assert [path.name for path in tmp_path.iterdir() if "v" in path.name] == []


@pytest.mark.parametrize("method", ["glove", "ppmi"])
def test_vectors_do_not_depend_on_the_memory_for_counting(tmp_path, text, monkeypatch, method):
    monkeypatch.setattr("bertsmith.text.corpus.pairs._PER_FILE", 150)
    spilled = []
    plain = PairCounts.remove
    monkeypatch.setattr(PairCounts, "remove", lambda counts: (spilled.append(counts.spilled), plain(counts)))
    options = {key: value for key, value in SMALL.items() if (key, method) != ("epochs", "ppmi")}
    result = [
        train_word_vectors([text], tmp_path / str(memory), form="lines", method=method, memory=memory, **options)
        for memory in (0.01, 1000.0)
    ]
    assert spilled[0] > 1
    assert spilled[1] == 0
    np.testing.assert_array_equal(result[0].vectors, result[1].vectors)


def test_text_in_another_encoding_has_its_letters(tmp_path):
    (tmp_path / "a.txt").write_bytes("café über\n".encode("cp1252") * 20)
    options = {"method": "ppmi", "width": 2, "minimum_count": 1, "cased": True}
    with pytest.raises(InputError, match="found the byte 0xe9 in line 1, not UTF-8"):
        train_word_vectors([tmp_path / "a.txt"], tmp_path / "v", **options)
    result = train_word_vectors([tmp_path / "a.txt"], tmp_path / "v", encoding="cp1252", **options)
    assert sorted(result.words) == ["café", "über"]
    assert result.about["encoding"] == "cp1252"
