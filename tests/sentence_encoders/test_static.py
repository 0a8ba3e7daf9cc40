"""Static vectors: their table, their folder, and the same vectors in sentence-transformers."""

import json
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

import bertsmith
from bertsmith.base.core.errors import ConfigError, InputError
from bertsmith.recipes.sentence_encoders.static import principal
from tasks.task_samples import TOKENIZER, write_base_model
from written_files import file_with

TEXTS = ["the good film", "rome [SEP] oslo", "", "unknown words only", "a plot " * 200]


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> str:
    return write_base_model(tmp_path_factory.mktemp("base") / "model")


def test_directions_of_largest_variance_come_first_and_are_half_whitened() -> None:
    draw = np.random.default_rng(0)
    vectors = draw.normal(size=(200, 3)) @ np.diag([16.0, 4.0, 1.0]) + 5
    table, share = principal(vectors, 2)
    assert table.std(axis=0) == pytest.approx(np.sqrt(np.sort(vectors.std(axis=0))[::-1][:2]), rel=0.05)
    assert share == pytest.approx(272 / 273, abs=0.01)


def test_the_vector_of_a_text_is_the_direction_of_the_sum_of_its_pieces(base: str, tmp_path: Path) -> None:
    made = bertsmith.make_static_vectors(base, tmp_path / "static", dimensions=8)
    table = load_file(tmp_path / "static" / "model.safetensors")["embedding.weight"]
    assert table.shape == (len(TOKENIZER.vocabulary), 8) == (made.pieces, made.width)
    assert not table[:5].any()  # special pieces
    total = table[TOKENIZER.encode("the good film")].sum(axis=0)
    result = bertsmith.load(tmp_path / "static").embed(TEXTS)
    np.testing.assert_allclose(result[0], total / np.linalg.norm(total), atol=1e-6)
    assert not result[2:4].any()
    assert np.isfinite(result).all()


def test_frequent_pieces_weigh_less_and_a_text_decides_which_those_are(base: str, tmp_path: Path) -> None:
    text = file_with(tmp_path / "text.txt", "the the the the film\n" * 50)
    tables = {}
    for name, text_option in (("zipf", None), ("text", str(text))):
        bertsmith.make_static_vectors(base, tmp_path / name, text=text_option)
        tables[name] = load_file(tmp_path / name / "model.safetensors")["embedding.weight"]
    the, rome = (TOKENIZER.vocabulary.pieces.index(word) for word in ("the", "rome"))
    ratio = {name: np.linalg.norm(table[the]) / np.linalg.norm(table[rome]) for name, table in tables.items()}
    assert ratio["text"] < 0.2 * ratio["zipf"]


def test_it_loads_in_sentence_transformers_with_equal_vectors(base: str, tmp_path: Path) -> None:
    library = pytest.importorskip("sentence_transformers")
    bertsmith.make_static_vectors(base, tmp_path / "static")
    theirs = library.SentenceTransformer(str(tmp_path / "static"), device="cpu").encode(TEXTS)
    np.testing.assert_allclose(bertsmith.load(tmp_path / "static").embed(TEXTS), theirs, atol=1e-6)


def test_the_same_model_gives_the_same_bytes(base: str, tmp_path: Path) -> None:
    for name in ("one", "two"):
        bertsmith.make_static_vectors(base, tmp_path / name)
    assert (tmp_path / "one/model.safetensors").read_bytes() == (tmp_path / "two/model.safetensors").read_bytes()


def test_static_vectors_are_trained_like_any_encoder_and_special_pieces_stay_without(base: str, tmp_path: Path) -> None:
    bertsmith.make_static_vectors(base, tmp_path / "static", dimensions=16)
    rows = [("the good film", "a fine film", 1), ("rome", "oslo", 0), ("anna", "bert", 0), ("good", "great", 1)]
    file = tmp_path / "pairs.jsonl"
    lines = [json.dumps({"text1": a, "text2": b, "score": score}) for a, b, score in rows]
    file.write_text("\n".join(lines), encoding="utf-8")
    bertsmith.finetune(
        tmp_path / "static", "similarity", tmp_path / "run", train=file, dev=file, seeds=1, epochs=8,
        learning_rate=0.05, baselines=False,
    )  # fmt: skip
    before, after = (
        load_file(model / "model.safetensors")["embedding.weight"]
        for model in (tmp_path / "static", tmp_path / "run" / "model")
    )
    assert not after[:5].any()
    assert np.abs(after - before).max() > 0.01
    assert bertsmith.evaluate(tmp_path / "run" / "model", file).scores["spearman"] > 0.8


@pytest.mark.parametrize(
    ("dimensions", "message"), [(0, "dimensions must be at least 1, not 0"), (33, "dimensions from 1 to 32")]
)
def test_more_dimensions_than_the_model_has_are_refused(
    dimensions: int, message: str, base: str, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match=message):
        bertsmith.make_static_vectors(base, tmp_path / "static", dimensions=dimensions)
    assert not (tmp_path / "static").exists()


def test_a_text_without_pieces_is_refused(base: str, tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text("\n\n", encoding="utf-8")
    with pytest.raises(InputError, match="no piece of the vocabulary"):
        bertsmith.make_static_vectors(base, tmp_path / "static", text=str(tmp_path / "text.txt"))


def test_a_column_without_a_text_is_refused(base: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="`column` needs `text`"):
        bertsmith.make_static_vectors(base, tmp_path / "static", column="body")
    assert not (tmp_path / "static").exists()
