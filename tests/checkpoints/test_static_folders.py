"""Generated tables of static vectors: the vectors are those of the tool that wrote the folder, or it is refused."""

import copy
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.numpy import load_file, save_file

from bertsmith import load
from bertsmith.base.core.errors import BertsmithError, CheckpointError
from bertsmith.inference.vectors.embedder import Embedder
from bertsmith.inference.vectors.loading import load_embedder
from bertsmith.models.checkpoints.load import load_any

tokenizers = pytest.importorskip("tokenizers", reason="needs the extra tokenizers")
WIDTH = 5
LINES = ["the film was good", "Anna saw the best film of the year , again", "[CLS] naïve 電影 unseen", "good"]
TEXTS = [*LINES, "", "zzz", "the film of anna " * 40, "[UNK] good [SEP]", "x" * 90 + " good"]
TRAINERS = {
    "WordPiece": "WordPieceTrainer", "BPE": "BpeTrainer", "Unigram": "UnigramTrainer", "WordLevel": "WordLevelTrainer",
}  # fmt: skip
SPECIALS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]


def tokenizer_of(kind: str, *, lowercase: bool, specials: bool) -> Any:
    """A tokenizer that is trained on a few lines."""
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors, trainers

    named = SPECIALS if specials else ["[UNK]"]
    unknown = {} if kind in ("BPE", "Unigram") else {"unk_token": "[UNK]"}
    trained = Tokenizer(getattr(models, kind)(**unknown))
    trained.normalizer = normalizers.BertNormalizer(lowercase=lowercase)
    trained.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    about: dict[str, Any] = {"special_tokens": named, "show_progress": False}
    if kind == "Unigram":
        about |= {"unk_token": "[UNK]"}
    if kind != "WordLevel":
        about["vocab_size"] = 90
    trained.train_from_iterator(LINES * 3, getattr(trainers, TRAINERS[kind])(**about))
    if specials:
        ends = [(name, trained.token_to_id(name)) for name in ("[CLS]", "[SEP]")]
        trained.post_processor = processors.TemplateProcessing(single="[CLS] $A [SEP]", special_tokens=ends)
    return trained


@st.composite
def tables(draw: st.DrawFn) -> dict[str, Any]:
    """What a folder is made of."""
    some = st.booleans
    return {
        "kind": draw(st.sampled_from([*TRAINERS])),
        "lowercase": draw(some()),
        "specials": draw(some()),
        "dtype": draw(st.sampled_from(["float32", "float16", "float64"])),
        "mapping": draw(some()),
        "weights": draw(some()),
        "normalize": draw(some()),
        "max_length": draw(st.sampled_from([None, 2, 7, 512])),
        "prompt": draw(st.sampled_from(["", "film : "])),
        "seed": draw(st.integers(0, 99)),
    }


def arrays_of(table: dict[str, Any], pieces: int) -> dict[str, np.ndarray]:
    """The tensors of a table, by their names in Model2Vec."""
    random = np.random.default_rng(table["seed"])
    rows = 11 if table["mapping"] else pieces
    arrays = {"embeddings": random.normal(size=(rows, WIDTH)).astype(table["dtype"])}
    if table["mapping"]:
        arrays["mapping"] = random.integers(0, rows, pieces)
    if table["weights"]:
        arrays["weights"] = random.uniform(0.1, 1, pieces)
    return arrays


def assert_equal(embedder: Embedder, expected: np.ndarray, dtype: str = "float32") -> None:
    vectors = embedder.embed(TEXTS)
    assert vectors.dtype == np.float32
    np.testing.assert_allclose(vectors, expected, atol=2e-3 if dtype == "float16" else 1e-5)


@settings(max_examples=max(10, settings.default.max_examples // 10))
@given(table=tables())
def test_vectors_of_model2vec_equal_its_definition(table: dict[str, Any], tmp_path_factory: Any) -> None:
    """Next to the package itself, which `test_vectors_equal_those_of_model2vec` needs."""
    folder, expected = tmp_path_factory.mktemp("table"), np.zeros((len(TEXTS), WIDTH))
    tokenizer = tokenizer_of(table["kind"], lowercase=table["lowercase"], specials=table["specials"])
    arrays = arrays_of(table, tokenizer.get_vocab_size())
    write_model2vec(folder, tokenizer, arrays, table)
    known = arrays["embeddings"].astype(float)
    known = known[arrays["mapping"]] if table["mapping"] else known
    known = known * arrays["weights"][:, None] if table["weights"] else known
    most, unknown = table["max_length"], tokenizer.token_to_id("[UNK]") if table["kind"] != "BPE" else None
    median = int(np.median([len(piece) for piece in tokenizer.get_vocab()]))
    for row, text in enumerate(TEXTS):
        ids = tokenizer.encode(text if most is None else text[: most * median], add_special_tokens=False).ids
        ids = [id for id in ids[:most] if id != unknown]
        expected[row] = known[ids].mean(axis=0) if ids else 0
    if table["normalize"]:
        expected /= np.maximum(np.linalg.norm(expected, axis=1, keepdims=True), 1e-32)
    assert_equal(load_embedder(folder), expected)


def write_model2vec(folder: Path, tokenizer: Any, arrays: dict[str, np.ndarray], table: dict[str, Any]) -> None:
    """Writes what `StaticModel.save_pretrained` does."""
    save_file(arrays, folder / "model.safetensors")
    written = copy.deepcopy(tokenizer)
    if table["max_length"] is not None:
        written.enable_truncation(table["max_length"])
    written.save(str(folder / "tokenizer.json"))
    about = {"normalize": table["normalize"], "max_length": table["max_length"], "embedding_dtype": table["dtype"]}
    (folder / "config.json").write_text(json.dumps(about))
    modules = [{"idx": 0, "name": "0", "path": ".", "type": "sentence_transformers.models.StaticEmbedding"}]
    (folder / "modules.json").write_text(json.dumps(modules))


@pytest.mark.filterwarnings("ignore")
@settings(max_examples=max(10, settings.default.max_examples // 10))
@given(table=tables())
def test_vectors_equal_those_of_model2vec(table: dict[str, Any], tmp_path_factory: Any) -> None:
    static_model = pytest.importorskip("model2vec", reason="needs the package model2vec").StaticModel
    folder = tmp_path_factory.mktemp("table")
    tokenizer = tokenizer_of(table["kind"], lowercase=table["lowercase"], specials=table["specials"])
    arrays = arrays_of(table, tokenizer.get_vocab_size())
    static_model(
        arrays["embeddings"], tokenizer, normalize=table["normalize"], weights=arrays.get("weights"),
        token_mapping=arrays.get("mapping"), max_length=table["max_length"],
    ).save_pretrained(folder)  # fmt: skip
    assert_equal(load_embedder(folder), static_model.from_pretrained(folder).encode(TEXTS), table["dtype"])


@pytest.mark.usefixtures("quiet_transformers")
@pytest.mark.filterwarnings("ignore")
@settings(max_examples=max(10, settings.default.max_examples // 10))
@given(table=tables())
def test_vectors_equal_those_of_sentence_transformers(table: dict[str, Any], tmp_path_factory: Any) -> None:
    library = pytest.importorskip("sentence_transformers", reason="needs the extra dev: sentence-transformers")
    modules = pytest.importorskip("sentence_transformers.sentence_transformer.modules")
    folder = tmp_path_factory.mktemp("table")
    tokenizer = tokenizer_of(table["kind"], lowercase=table["lowercase"], specials=table["specials"])
    if table["max_length"] is not None:
        tokenizer.enable_truncation(table["max_length"])
    weights = arrays_of({**table, "mapping": False}, tokenizer.get_vocab_size())["embeddings"].astype(np.float32)
    parts = [modules.StaticEmbedding(tokenizer, embedding_weights=weights)]
    parts += [modules.Normalize()] if table["normalize"] else []
    prompts = {"prompts": {"p": table["prompt"]}, "default_prompt_name": "p"} if table["prompt"] else {}
    library.SentenceTransformer(modules=parts, device="cpu", **prompts).save_pretrained(str(folder))
    expected = library.SentenceTransformer(str(folder), device="cpu").encode(TEXTS, show_progress_bar=False)
    assert_equal(load_embedder(folder), expected)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    table = {"seed": 1, "mapping": False, "weights": False, "dtype": "float32", "normalize": False, "max_length": None}
    tokenizer = tokenizer_of("WordPiece", lowercase=True, specials=True)
    write_model2vec(tmp_path, tokenizer, arrays_of(table, tokenizer.get_vocab_size()), table)
    return tmp_path


def test_such_a_folder_is_a_model(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model, embedder = load(folder), load_embedder(folder)
    np.testing.assert_array_equal(model.embed(TEXTS), embedder.embed(TEXTS))
    assert (model.width, model.embed_length) == (WIDTH, 2**31 - 1)
    assert max(model.rerank("the film", ["good", "the film"])) == pytest.approx(1.0)
    with pytest.raises(CheckpointError, match=r"expected an encoder in .*found a table of static vectors of Model2Vec"):
        load_any(folder)
    said = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**said, "max_length": 3}))
    load_embedder(folder).embed(TEXTS)
    assert "characters, truncated as in Model2Vec: " in capsys.readouterr().err


def _tensors(folder: Path, **changed: Any) -> None:
    tensors = {**load_file(folder / "model.safetensors"), **changed}
    save_file({name: tensor for name, tensor in tensors.items() if tensor is not None}, folder / "model.safetensors")


@pytest.mark.parametrize(
    ("break_it", "message"),
    [
        (lambda folder: _tensors(folder, embeddings=np.ones((3, 2))), "a vector, .*for each of the .* found 3 vectors"),
        (lambda folder: _tensors(folder, weights=np.ones(3)), r"weights of shape \[3\]"),
        (lambda folder: _tensors(folder, mapping=np.array([99])), "rows 0 to .* as mapping"),
        (lambda folder: _tensors(folder, embeddings=np.full((90, 2), np.nan)), "NaN or infinity"),
        (lambda folder: (folder / "config.json").write_text('{"max_length": "x"}'), "max_length"),
        (lambda folder: (folder / "config.json").write_text('{"normalize": 1}'), "true or false as normalize"),
        (lambda folder: (folder / "tokenizer.json").write_text("{}"), "a model with its pieces"),
    ],
)
def test_a_damaged_folder_is_refused_in_one_line(folder: Path, break_it: Any, message: str) -> None:
    break_it(folder)
    with pytest.raises(BertsmithError, match=message) as caught:
        load_embedder(folder)
    assert "\n" not in str(caught.value)


def test_other_poolings_and_layers_are_refused(folder: Path) -> None:
    with pytest.raises(BertsmithError, match="pooling mean of static vectors"):
        load_embedder(folder, pooling="max")
    with pytest.raises(BertsmithError, match="layer"):
        load_embedder(folder, layers="-3")
    (folder / "model.safetensors").unlink()
    (folder / "config.json").write_text('{"model_type": "model2vec"}')
    with pytest.raises(BertsmithError, match=r"model\.safetensors"):
        load_embedder(folder)
