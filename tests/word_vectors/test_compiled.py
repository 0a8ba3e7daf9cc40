"""The compiled updates against slow obvious loops, one example after the other, and against NumPy in the same order."""

from types import SimpleNamespace

import numpy as np
import pytest

from bertsmith.base.core.errors import ConfigError, RunError, TrainingError
from bertsmith.base.core.progress import Progress
from bertsmith.inference.word_vectors import compiled as compiled_module
from bertsmith.inference.word_vectors import training
from bertsmith.inference.word_vectors.compiled import SOFTPLUS, compiled, has_compiler, train_entries, train_words
from bertsmith.inference.word_vectors.draws import NO_WORD, RandomWords, contexts_of, reaches
from bertsmith.inference.word_vectors.glove import GloVe
from bertsmith.inference.word_vectors.settings import COMPILED, NUMPY, WordVectorSettings
from bertsmith.inference.word_vectors.training import train_word_vectors
from bertsmith.inference.word_vectors.updates import LIMIT, SIGMOID, STEPS
from bertsmith.inference.word_vectors.word2vec import Word2Vec, noise_examples, tree_examples
from bertsmith.inference.word_vectors.word_stream import WordStream
from oracles.word_vector_oracle import glove_block, word2vec_block
from written_files import file_with

needs_compiler = pytest.mark.skipif(not has_compiler(), reason="Numba is not installed")
ENGINES = [NUMPY, pytest.param(COMPILED, marks=needs_compiler)]
COUNTS = np.array([40, 30, 20, 9, 5, 5, 2, 1], dtype=np.int64)
IDS = np.array([3, 1, 0, 2, NO_WORD, 7, NO_WORD, 0, 0, 6, 5, NO_WORD], dtype=np.int32)


def as_python(function):
    def run(*arguments):
        with np.errstate(over="ignore"):  # 64-bit words are meant to overflow
            return function(*arguments)

    return run


KINDS = [as_python, pytest.param(compiled, marks=needs_compiler)]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("method", ["skip-gram", "cbow"])
@pytest.mark.parametrize("outputs", [{}, {"hierarchical": True}, {"hierarchical": True, "negatives": 9}], ids=str)
@pytest.mark.parametrize(("scale", "tolerance"), [(0.3, 1e-6), (4.0, 1e-4)])
def test_examples_are_learned_in_order_as_in_the_obvious_loop(kind, method, outputs, scale, tolerance):
    settings = WordVectorSettings(method=method, width=6, **outputs).resolved()
    model = Word2Vec(COUNTS, settings)
    rng = np.random.default_rng(5)
    for table in model.tables.values():
        table[:] = scale * rng.standard_normal(table.shape)
    result = reaches(IDS, np.ones(len(COUNTS)), 2, np.random.default_rng(8))
    first, last, lowest = 0.05, 0.01, 0.02
    tables = {name: table.tolist() for name, table in model.tables.items()}
    inputs, wanted_loss, wanted_count = tables.pop("inputs"), 0.0, 0
    draws = RandomWords(11)
    for position, (center, line) in enumerate(zip(result.centers, contexts_of(result, 2), strict=True)):
        around = [int(word) for word in line if word != NO_WORD]
        rate = max(first + (last - first) * position / len(result.centers), lowest)
        for contexts in [around] if method == "cbow" else [[word] for word in around]:
            if not contexts:
                continue
            centers = np.array([center], dtype=np.int32)
            kinds = {}
            if model.paths is not None:
                kinds["nodes"] = tree_examples(centers, model.paths)
            if model.noise is not None:
                kinds["outputs"] = noise_examples(centers, model.noise, model.negatives, draws)
            listed = [
                (name, int(row), float(label), examples.skips_saturated)
                for name, examples in kinds.items()
                for row, label in zip(examples.outputs[0], examples.labels[0], strict=True)
                if row != NO_WORD
            ]
            inputs, tables, loss = word2vec_block(inputs, tables, [(contexts, listed)], rate)
            wanted_loss += loss
            wanted_count += len(listed)
    unused = np.empty((0, 0), dtype=np.float32)
    paths = model.paths or (np.empty((0, 0), dtype=np.int32), np.empty((0, 0), dtype=np.int8))
    limits, others = np.empty(0, dtype=np.uint32), np.empty(0, dtype=np.int32)
    if model.noise is not None:
        limits, others = model.noise.limits, model.noise.others
    before = model.tables["inputs"].copy()
    loss, count = kind(train_words)(
        model.tables["inputs"], model.tables.get("outputs", unused), model.tables.get("nodes", unused), *result,
        first, last, lowest, method == "cbow", model.negatives, limits, others, RandomWords(11).key, *paths,
        SIGMOID, SOFTPLUS,
    )  # fmt: skip
    assert count == wanted_count
    assert loss == pytest.approx(wanted_loss, abs=1e-5 * count, rel=1e-5 * scale)
    np.testing.assert_allclose(model.tables["inputs"], inputs, rtol=tolerance, atol=tolerance)
    for name, table in tables.items():
        np.testing.assert_allclose(model.tables[name], table, rtol=tolerance, atol=tolerance)
    assert np.abs(model.tables["inputs"] - before).max() > 1e-3


@pytest.mark.parametrize("kind", KINDS)
def test_entries_are_learned_in_order_as_in_the_obvious_loop(kind):
    rng = np.random.default_rng(4)
    tables = [rng.standard_normal((3, 5)).astype(np.float32) for _ in range(2)]
    tables[0] *= 60  # gradients beyond the limit
    tables += [1 + rng.random((3, 5), dtype=np.float32) for _ in range(2)]
    entries = [(0, 1, 200.0), (1, 0, 200.0), (1, 1, 1.0), (2, 0, 3.5), (0, 1, 0.5)]
    wanted, cost = [table.tolist() for table in tables], 0.0
    for entry in entries:
        wanted, loss = glove_block(*wanted, [entry], 0.05, 100.0, 0.75)
        cost += loss
    rows, columns = (np.array([entry[side] for entry in entries], dtype=np.int32) for side in (0, 1))
    counts = np.array([entry[2] for entry in entries], dtype=np.float32)
    weights = (np.minimum(counts / 100, 1) ** 0.75).astype(np.float32)
    result = kind(train_entries)(*tables, rows, columns, np.log(counts), weights, np.float32(0.05), np.float32(100))
    assert result == pytest.approx(cost, rel=1e-5)
    for table, lines in zip(tables, wanted, strict=True):
        np.testing.assert_allclose(table, lines, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("power", "wanted"), [(None, 0.75), (0.0, 0.0), (2.0, 2.0)])
def test_the_weights_of_glove_follow_the_power_up_to_the_maximum_count(power, wanted):
    settings = WordVectorSettings(method="glove", maximum_count=10.0, power=power).resolved()
    weights = GloVe._weights(SimpleNamespace(settings=settings), np.array([2.5, 10.0, 40.0], dtype=np.float32))
    np.testing.assert_allclose(weights, [0.25**wanted, 1.0, 1.0], rtol=1e-6)


def test_the_loss_is_read_from_its_table_with_little_error():
    scores = np.linspace(-LIMIT, LIMIT, 12_345)[:-1]
    points = (scores + LIMIT) * (STEPS / LIMIT / 2)
    below = points.astype(int)
    read = SOFTPLUS[below] + (SOFTPLUS[below + 1] - SOFTPLUS[below]) * (points - below)
    np.testing.assert_allclose(read, np.logaddexp(0, scores), atol=5e-6)


@pytest.fixture
def text(tmp_path):
    rng = np.random.default_rng(7)
    words = [f"w{number}" for number in range(30)]
    return file_with(tmp_path / "text.txt", "".join(" ".join(rng.choice(words, size=9)) + "\n" for _ in range(60)))


def heard(monkeypatch):
    """The lines that training tells, in a list that grows."""
    lines = []
    monkeypatch.setattr(training, "tell", lines.append)
    return lines


SMALL = {"form": "lines", "width": 16, "window": 3, "minimum_count": 1, "epochs": 2}


@needs_compiler
@pytest.mark.parametrize("method", ["skip-gram", "cbow"])
@pytest.mark.parametrize("hierarchical", [False, True])
def test_both_engines_learn_the_same_in_the_same_order(tmp_path, text, method, hierarchical):
    options = {**SMALL, "method": method, "hierarchical": hierarchical, "subsample": 0.05}
    ours = train_word_vectors([text], tmp_path / "a", **options, engine=COMPILED)
    plain = train_word_vectors([text], tmp_path / "b", **options, engine=NUMPY, block=1)
    np.testing.assert_allclose(ours.vectors, plain.vectors, atol=2e-4)
    np.testing.assert_allclose(ours.about["loss"], plain.about["loss"], rtol=1e-4)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("method", ["skip-gram", "glove"])
def test_an_engine_is_recorded_and_gives_equal_bytes(tmp_path, text, engine, method):
    for name in ("a", "b"):
        result = train_word_vectors([text], tmp_path / name, **SMALL, method=method, engine=engine)
        assert result.about["settings"]["engine"] == engine
        assert ("numba" in result.about["versions"]) == (engine == COMPILED)
    for name in ("vectors.safetensors", "bertsmith.json"):
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()


def test_without_numba_numpy_trains_and_one_line_says_so(tmp_path, text, monkeypatch):
    for module in (compiled_module, training):
        monkeypatch.setattr(module, "has_compiler", lambda: False)
    lines = heard(monkeypatch)
    result = train_word_vectors([text], tmp_path / "v", **SMALL)
    assert result.about["settings"]["engine"] == NUMPY
    assert sum("bertsmith[words]" in line for line in lines) == 1
    with pytest.raises(ConfigError, match=r"Numba.*bertsmith\[words\]"):
        train_word_vectors([text], tmp_path / "w", **SMALL, engine=COMPILED)
    with pytest.raises(ConfigError, match="Numba"):
        train_word_vectors([text], tmp_path / "w", **SMALL, threads=2)
    assert not (tmp_path / "w").exists()
    lines.clear()
    train_word_vectors([text], tmp_path / "x", **SMALL, engine=NUMPY)
    train_word_vectors([text], tmp_path / "y", **{**SMALL, "epochs": None}, method="ppmi")
    assert "bertsmith[words]" not in " ".join(lines), "nothing to install for what was asked for"


@needs_compiler
def test_a_run_is_resumed_by_the_engine_that_began_it(tmp_path, text, monkeypatch):
    def stop(path, tables, losses):
        plain(path, tables, losses)
        raise KeyboardInterrupt

    plain = training._write_state
    monkeypatch.setattr(training, "has_compiler", lambda: False)
    straight = train_word_vectors([text], tmp_path / "straight", **SMALL)
    monkeypatch.setattr(training, "_write_state", stop)
    with pytest.raises(KeyboardInterrupt):
        train_word_vectors([text], tmp_path / "v", **SMALL)
    monkeypatch.setattr(training, "_write_state", plain)
    monkeypatch.setattr(training, "has_compiler", lambda: True)
    with pytest.raises(RunError, match="same options"):
        train_word_vectors([text], tmp_path / "v", **SMALL, engine=COMPILED, resume=True)
    resumed = train_word_vectors([text], tmp_path / "v", **SMALL, resume=True)
    assert resumed.about["settings"]["engine"] == NUMPY
    np.testing.assert_array_equal(resumed.vectors, straight.vectors)


@needs_compiler
@pytest.mark.parametrize("method", ["skip-gram", "cbow", "glove"])
def test_several_threads_learn_about_the_same_and_a_line_says_that_it_is_not_repeatable(
    tmp_path, text, method, monkeypatch
):
    monkeypatch.setattr("bertsmith.inference.word_vectors.word_stream._CHUNK_WORDS", 100)
    monkeypatch.setattr("bertsmith.inference.word_vectors.glove._PART", 100)
    lines = heard(monkeypatch)
    alone = train_word_vectors([text], tmp_path / "one", **SMALL, method=method)
    assert "not repeatable" not in " ".join(lines)
    two = train_word_vectors([text], tmp_path / "two", **SMALL, method=method, threads=2)
    assert "not repeatable" in " ".join(lines)
    assert two.about["settings"]["threads"] == 2
    np.testing.assert_allclose(two.about["loss"], alone.about["loss"], rtol=0.02)


@needs_compiler
@pytest.mark.parametrize("threads", [1, 2])
def test_nan_in_a_table_is_noticed_and_not_trained_on(tmp_path, threads):
    IDS.tofile(tmp_path / "stream.i32")
    model = Word2Vec(COUNTS, WordVectorSettings(width=4, engine=COMPILED, threads=threads, subsample=0.0).resolved())
    model.tables["inputs"][:] = np.nan
    with pytest.raises(TrainingError, match="NaN"), Progress("training") as progress:
        model.train_epoch(WordStream(tmp_path / "stream.i32"), 0, progress)


def test_an_engine_that_does_not_fit_the_other_settings_is_refused():
    with pytest.raises(ConfigError, match="unknown engine 'compild'; did you mean 'compiled'"):
        WordVectorSettings(engine="compild")
    with pytest.raises(ConfigError, match=r"skip-gram or cbow \(both are Word2Vec\), .* not 'word2vec'"):
        WordVectorSettings(method="word2vec")
    with pytest.raises(ConfigError, match="block"):
        WordVectorSettings(engine=COMPILED, block=8)
    with pytest.raises(ConfigError, match="--threads needs --engine compiled; "):
        WordVectorSettings(engine=NUMPY, threads=2)
    with pytest.raises(ConfigError, match="trains nothing"):
        WordVectorSettings(method="ppmi", threads=2)
    with pytest.raises(ConfigError, match=r"memory must be .*above 0"):
        WordVectorSettings(method="glove", memory=0.0)
