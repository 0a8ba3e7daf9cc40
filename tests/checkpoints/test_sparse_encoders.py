"""Folders of SparseEncoder: vectors equal those of that library, in both directions, or the folder is refused."""

import json
import shutil
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import save_file

from bertsmith import load
from bertsmith.base.core.errors import BertsmithError, CheckpointError, ConfigError
from bertsmith.inference.vectors.loading import load_embedder
from bertsmith.models.checkpoints.assembly import load_pretrained
from bertsmith.models.checkpoints.load import load_any
from bertsmith.models.parts.batch import Batch
from checkpoints.sparse_folder import write_sparse
from tasks.architecture_samples import write_peer
from tasks.task_samples import TOKENIZER

TEXTS = ["the film", "Good Naïve FILM , the best of the year . and the film of the year again", "", "film"]
ODD = (None, True, False, 0, 1, 7, -1, 0.5, "x", "max", "sum", "relu", [], {}, {"text": {}})
KEYS: dict[str, tuple[str, ...]] = {
    "modules.json": ("type", "path", "kwargs"),
    "1_SpladePooling/config.json": (
        "pooling_strategy", "activation_function", "embedding_dimension", "chunk_size", "word_embedding_dimension",
        "new",
    ),
    "sentence_bert_config.json": (
        "max_seq_length", "do_lower_case", "transformer_task", "modality_config", "module_output_name", "model_args",
        "new",
    ),
    "config_sentence_transformers.json": (
        "prompts", "default_prompt_name", "similarity_fn_name", "max_active_dims", "model_type", "new",
    ),
}  # fmt: skip


def change(file: Path, **values: object) -> None:
    file.write_text(json.dumps({**json.loads(file.read_text()), **values}))


def weights_of(folder: Path, texts: list[str]) -> np.ndarray:
    model = load_pretrained(load_any(folder)).model
    special, rows = TOKENIZER.vocabulary, []
    for text in texts:
        ids = np.array([special.cls_id, *TOKENIZER.encode(text)[:10], special.sep_id])
        with torch.no_grad():
            hidden = model.encoder(Batch.from_rows([ids]))
            rows.append(model.mlm(hidden, model.encoder.word_table).relu().log1p().amax(dim=0).numpy())
    return np.stack(rows)


def test_a_folder_of_ours_gives_weights_of_pieces(tmp_path: Path) -> None:
    folder = write_sparse(tmp_path / "model")
    embedder = load_embedder(folder, device="cpu", sparse=True)
    sparse, cut = embedder.embed_sparse(TEXTS)
    np.testing.assert_allclose(sparse.toarray(), weights_of(folder, TEXTS), atol=1e-5)
    assert (embedder.similarity, sparse.shape[1], cut.tolist()[0]) == ("dot", len(TOKENIZER.vocabulary), 0)
    assert embedder.for_queries().prompt == "who "
    np.testing.assert_array_equal(embedder.embed(TEXTS), sparse.toarray())


def test_only_the_largest_weights_are_kept_where_the_folder_says_so(tmp_path: Path) -> None:
    folder = write_sparse(tmp_path / "model")
    every = load_embedder(folder, device="cpu", sparse=True).embed(TEXTS)
    change(folder / "config_sentence_transformers.json", max_active_dims=3)
    kept = load_embedder(folder, device="cpu", sparse=True).embed(TEXTS)
    for row, largest in zip(every, kept, strict=True):
        np.testing.assert_allclose(np.sort(largest)[-3:], np.sort(row)[-3:], atol=1e-6)
        assert (largest > 0).sum() <= 3


@pytest.mark.parametrize(
    ("file", "values", "expected"),
    [
        ("1_SpladePooling/config.json", {"pooling_strategy": "mean"}, "max or sum as pooling_strategy"),
        ("1_SpladePooling/config.json", {"activation_function": "gelu"}, "relu or log1p_relu as activation_function"),
        ("1_SpladePooling/config.json", {"new": 1}, "no new in"),
        ("config_sentence_transformers.json", {"similarity_fn_name": "euclidean"}, "cosine or dot"),
        ("config_sentence_transformers.json", {"similarity_fn_name": ["dot"]}, "cosine or dot"),
        ("config_sentence_transformers.json", {"similarity_fn_name": "meanmaxsim"}, "cosine or dot as"),
        ("config_sentence_transformers.json", {"max_active_dims": 0}, "a whole number above 0 as max_active_dims"),
    ],
)
def test_what_is_not_followed_is_refused_by_name(
    file: str, values: dict[str, object], expected: str, tmp_path: Path
) -> None:
    folder = write_sparse(tmp_path / "model")
    change(folder / file, **values)
    with pytest.raises(CheckpointError, match=expected):
        load_embedder(folder, device="cpu", sparse=True)


@pytest.mark.parametrize(
    ("kinds", "expected"),
    [
        (["MLMTransformer"], "a SpladePooling in .*found MLMTransformer"),
        (["Transformer", "SpladePooling"], "without the task fill-mask"),
        (["Transformer", "Pooling", "SparseAutoEncoder"], "found Transformer, Pooling, SparseAutoEncoder"),
    ],
)
def test_other_modules_are_refused_by_name(kinds: list[str], expected: str, tmp_path: Path) -> None:
    folder = write_sparse(tmp_path / "model")
    paths = ["", "1_SpladePooling", "1_SpladePooling"]
    modules = [
        {"type": f"sentence_transformers.sparse_encoder.models.{kind}", "path": path}
        for kind, path in zip(kinds, paths, strict=False)
    ]
    (folder / "modules.json").write_text(json.dumps(modules))
    with pytest.raises(CheckpointError, match=expected):
        load_embedder(folder, device="cpu", sparse=True)


def routed(path: Path, **parameters: object) -> tuple[Path, np.ndarray]:
    """A folder whose queries have a weight for each of their pieces, and these weights."""
    of_documents, of_queries = path / "document_0_MLMTransformer", path / "query_0_SparseStaticEmbedding"
    path.mkdir()
    write_sparse(of_documents)
    shutil.rmtree(path / "document_0_MLMTransformer-base")
    of_queries.mkdir()
    for name in ("tokenizer.json", "tokenizer_config.json", "vocab.txt", "special_tokens_map.json"):
        if (of_documents / name).exists():
            shutil.copy(of_documents / name, of_queries / name)
    weights = torch.rand(len(TOKENIZER.vocabulary), generator=torch.Generator().manual_seed(0))
    save_file({"weight": weights}, of_queries / "model.safetensors")
    (of_queries / "config.json").write_text(json.dumps({"frozen": True}))
    shutil.move(of_documents / "1_SpladePooling", path / "document_1_SpladePooling")
    (of_documents / "modules.json").unlink()
    shutil.move(of_documents / "config_sentence_transformers.json", path / "config_sentence_transformers.json")
    package = "sentence_transformers.sparse_encoder.models"
    names = ["query_0_SparseStaticEmbedding", "document_0_MLMTransformer", "document_1_SpladePooling"]
    routes = {
        "types": {name: f"{package}.{name.rsplit('_', 1)[-1]}" for name in names},
        "structure": {"query": names[:1], "document": names[1:]},
        "parameters": {"default_route": "document", "allow_empty_key": True, **parameters},
    }
    (path / "router_config.json").write_text(json.dumps(routes))
    router = [{"idx": 0, "name": "0", "type": "sentence_transformers.models.Router", "path": ""}]
    (path / "modules.json").write_text(json.dumps(router))
    return path, weights.numpy()


def test_queries_may_have_weights_of_their_pieces_alone(tmp_path: Path) -> None:
    folder, weights = routed(tmp_path / "model")
    embedder = load_embedder(folder, device="cpu", sparse=True)
    vectors = embedder.for_queries().embed(TEXTS)
    for text, row in zip(TEXTS, vectors, strict=True):
        pieces = np.unique(TOKENIZER.encode(f"who {text}"))[:12]  # with the prompt of queries
        assert set(np.flatnonzero(row).tolist()) <= {*pieces.tolist(), *TOKENIZER.encode(text).tolist()}
        np.testing.assert_array_equal(row[np.flatnonzero(row)], weights[np.flatnonzero(row)])
    assert np.flatnonzero(vectors[3]).tolist() == sorted(TOKENIZER.encode("who film").tolist())
    of_documents = weights_of(folder / "document_0_MLMTransformer", TEXTS)
    np.testing.assert_allclose(embedder.for_passages().embed(TEXTS), of_documents, atol=1e-5)
    with pytest.raises(BertsmithError, match="found one with weights for the pieces of queries; use it with `search`"):
        load(folder, device="cpu").rerank("film", TEXTS[:2])


def test_other_routes_are_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"default_route 'document' in .*found 'query'"):
        load_embedder(routed(tmp_path / "queries", default_route="query")[0], device="cpu", sparse=True)
    folder, _ = routed(tmp_path / "routes")
    change(folder / "router_config.json", structure={"query": ["document_1_SpladePooling"], "document": []})
    with pytest.raises(CheckpointError, match="a SparseStaticEmbedding for queries and other modules for documents"):
        load_embedder(folder, device="cpu", sparse=True)
    for damage in ({"structure": {"query": 3}}, {"types": ["query"]}, {"structure": {"query": [1]}}):
        change(folder / "router_config.json", **damage)
        with pytest.raises(CheckpointError, match="expected routes in"):
            load_embedder(folder, device="cpu", sparse=True)
    folder, _ = routed(tmp_path / "weights")
    save_file({"weight": torch.ones(3)}, folder / "query_0_SparseStaticEmbedding" / "model.safetensors")
    with pytest.raises(BertsmithError, match=r"weights of pieces in .*; found shape \[3\]"):
        load_embedder(folder, device="cpu", sparse=True)


def test_another_pooling_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="pooling max of the last layer, as the model has sparse vectors; found"):
        load_embedder(write_sparse(tmp_path / "model"), pooling="mean", device="cpu", sparse=True)


@pytest.fixture(scope="module")
def library() -> Any:
    """The owner of these folders."""
    return pytest.importorskip("sentence_transformers", reason="needs the extra dev: sentence-transformers")


def theirs(library: Any, path: Path, **options: Any) -> np.ndarray:
    model = library.SparseEncoder(str(path), device="cpu", **options)
    return np.asarray(model.encode(TEXTS, convert_to_sparse_tensor=False, show_progress_bar=False))


@pytest.mark.usefixtures("quiet_transformers")
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("architecture", ["bert", "distilbert", "modernbert", "roberta", "electra", "mpnet"])
def test_that_library_reads_our_folders_with_equal_vectors(architecture: str, library: Any, tmp_path: Path) -> None:
    folder = write_sparse(tmp_path / "model", architecture)
    ours = load_embedder(folder, device="cpu", sparse=True).embed(TEXTS)
    np.testing.assert_allclose(theirs(library, folder), ours, rtol=0, atol=1e-5)


@pytest.mark.usefixtures("quiet_transformers")
@pytest.mark.filterwarnings("ignore")
def test_that_library_has_the_same_vectors_of_both_routes(library: Any, tmp_path: Path) -> None:
    folder, _ = routed(tmp_path / "model")
    model, ours = library.SparseEncoder(str(folder), device="cpu"), load_embedder(folder, device="cpu", sparse=True)
    for embedder, encode in ((ours.for_queries(), model.encode_query), (ours.for_passages(), model.encode_document)):
        theirs = encode(TEXTS, convert_to_sparse_tensor=False, show_progress_bar=False)
        np.testing.assert_allclose(embedder.embed(TEXTS), np.asarray(theirs), rtol=0, atol=1e-5)


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The folder of an encoder with its masked-LM head."""
    path = tmp_path_factory.mktemp("base")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        write_peer(path, "distilbert", "ForMaskedLM")
        yield path


@st.composite
def stacks(draw: st.DrawFn) -> dict[str, Any]:
    """What the modules are made of, and what is changed afterwards."""
    file = draw(st.sampled_from(list(KEYS)))
    changed = st.tuples(st.just(file), st.sampled_from(KEYS[file]), st.sampled_from(ODD), st.integers(0, 1))
    return {
        "is_old": draw(st.booleans()),
        "pooling": draw(st.sampled_from(["max", "sum"])),
        "activation": draw(st.sampled_from(["relu", "log1p_relu"])),
        "chunk": draw(st.sampled_from([None, 1, 5])),
        "length": draw(st.sampled_from([None, 6, 12])),
        "prompt": draw(st.sampled_from(["", "", "film : "])),
        "most": draw(st.sampled_from([None, None, 1, 4, 999])),
        "similarity": draw(st.sampled_from([None, "dot", "cosine", "euclidean"])),
        "change": draw(st.one_of(st.none(), st.none(), changed)),
    }


@pytest.mark.usefixtures("quiet_transformers")
@pytest.mark.filterwarnings("ignore")
@settings(max_examples=max(10, settings.default.max_examples // 10), deadline=None)
@given(stack=stacks())
def test_their_vectors_equal_ours_or_the_folder_is_refused(library: Any, base: Path, stack: dict[str, Any]) -> None:
    parts = __import__("sentence_transformers.sparse_encoder.modules", fromlist=["modules"])
    if stack["is_old"]:
        encoder = parts.MLMTransformer(str(base), max_seq_length=stack["length"])
    else:
        encoder = parts.Transformer(str(base), max_seq_length=stack["length"], transformer_task="fill-mask")
    pooling = parts.SpladePooling(stack["pooling"], stack["activation"], chunk_size=stack["chunk"])
    prompts = {"prompts": {"p": stack["prompt"]}, "default_prompt_name": "p"} if stack["prompt"] else {}
    model = library.SparseEncoder(
        modules=[encoder, pooling], device="cpu", max_active_dims=stack["most"],
        similarity_fn_name=stack["similarity"], **prompts,
    )  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder)
        model.save_pretrained(str(path))
        if stack["change"] is not None:
            name, key, value, index = stack["change"]
            content = json.loads((path / name).read_text())
            (content[index] if isinstance(content, list) else content)[key] = value
            (path / name).write_text(json.dumps(content))
        try:
            ours = load_embedder(path, device="cpu", sparse=True).embed(TEXTS)
        except BertsmithError:
            # Of the usual settings, only a similarity that a search by products does not have.
            assert stack["change"] is not None or stack["similarity"] == "euclidean"
            return
        try:
            expected = theirs(library, path)
        except Exception:  # noqa: BLE001 - whatever that library raises
            return
    if stack["most"] is None or stack["change"] is not None:
        np.testing.assert_allclose(ours, expected, rtol=0, atol=1e-5)
    else:  # of equal weights, either may be kept
        np.testing.assert_allclose(np.sort(ours), np.sort(expected), rtol=0, atol=1e-5)
