"""Folders with late interaction: vectors and scores equal those of `MultiVectorEncoder`, or the folder is refused."""

import json
import shutil
import string
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.numpy import load_file, save_file

from bertsmith.base.core.errors import BertsmithError, CheckpointError
from bertsmith.inference.vectors.loading import late_folder, load_embedder, load_token_embedder
from bertsmith.models.checkpoints.late_interaction import read_late_recipe
from bertsmith.tasks.metrics.token_vectors import max_sim
from checkpoints.test_module_stacks import change_file
from search.late_samples import SKIPPED, WEIGHT, write_late
from tasks.architecture_samples import write_peer
from tasks.task_samples import CONFIG, write_base_model

TEXTS = ["anna was in rome ?", "the plot . was awful", "a great film", "bert and carl in oslo . ? ?", "good " * 40, ""]
ABOUT, MASK = "config_sentence_transformers.json", "2_MultiVectorMask/config.json"
ROOM = 1e-4  # of unit vectors, and of scores for each vector of the query; both are fp32


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_late(tmp_path / "late")


@pytest.fixture(scope="module")
def bases(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Encoders of which some read masked tokens in ways of their own."""
    path = tmp_path_factory.mktemp("bases")
    pytest.importorskip("transformers")
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for kind in ("electra", "modernbert", "deberta-v2"):
            write_peer(path / kind, kind, "Model")
    return {kind: path / kind for kind in ("electra", "modernbert", "deberta-v2")}


@st.composite
def stacks(draw: st.DrawFn) -> dict[str, Any]:
    """What a folder of MultiVectorEncoder is made of."""
    some, lengths = st.booleans(), st.sampled_from([None, 9, 14])
    expansion = st.fixed_dictionaries(
        {"strategy": st.sampled_from(["fixed", "min"]), "attend": some, "length": st.sampled_from([8, 12])}
    )
    return {
        "base": draw(st.sampled_from(["electra", "electra", "modernbert", "deberta-v2"])),
        "expansion": draw(st.one_of(st.none(), expansion)),
        "query_length": draw(st.sampled_from([None, 12, 14])),
        "document_length": draw(lengths),
        "bias": draw(some),
        "residual": draw(some),
        "layers": draw(st.sampled_from([1, 1, 2])),
        "normalize": draw(some),
        "skipped": draw(st.sampled_from([None, ["."], ["?", ".", "no such piece"]])),
        "skipped_of": draw(st.sampled_from([None, "query", ["query", "document"]])),
        "prompts": draw(st.sampled_from([None, {"query": "who ? "}, {"passage": "film ", "document": "it "}])),
        "default": draw(st.sampled_from([None, None, "query"])),
        "mean": draw(some),
    }


def built(base: Path, stack: dict[str, Any], path: Path) -> Any:
    """The model of a stack, whose folder is written."""
    library = pytest.importorskip("sentence_transformers")
    from sentence_transformers.base.modules import Normalize, Transformer
    from sentence_transformers.base.modules.dense import Dense
    from sentence_transformers.multi_vector_encoder.modules import MultiVectorMask

    torch.manual_seed(3)
    encoder = Transformer(
        str(base),
        query_expansion=stack["expansion"],
        query_length=stack["query_length"],
        document_length=stack["document_length"],
    )
    widths, named = [CONFIG.hidden_size, 8, 8], {"module_input_name": "token_embeddings"}
    layers = [
        Dense(*widths[n : n + 2], bias=stack["bias"], activation_function=None, use_residual=stack["residual"], **named)
        for n in range(stack["layers"])
    ]
    mask = MultiVectorMask(skiplist_words=stack["skipped"], skiplist_tasks=stack["skipped_of"])
    parts = [encoder, *layers, mask, *([Normalize(**named)] if stack["normalize"] else [])]
    prompts = stack["prompts"]
    default = stack["default"] if prompts and stack["default"] in prompts else None
    model = library.MultiVectorEncoder(
        modules=parts, device="cpu", prompts=prompts, default_prompt_name=default,
        similarity_fn_name="meanmaxsim" if stack["mean"] else None,
    )  # fmt: skip
    model.save_pretrained(str(path))
    return library.MultiVectorEncoder(str(path), device="cpu")


@pytest.mark.usefixtures("quiet_transformers")
@pytest.mark.filterwarnings("ignore")
@settings(max_examples=max(8, settings.default.max_examples // 10))
@given(stack=stacks())
def test_vectors_and_scores_equal_those_of_the_library_or_are_refused(
    bases: dict[str, Path], stack: dict[str, Any]
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        try:
            theirs = built(bases[stack["base"]], stack, Path(folder))
        except ValueError:  # a length that contradicts another
            return
        ours = load_token_embedder(Path(folder), device="cpu")
        try:
            queries, documents = ours.queries(TEXTS), ours.documents(TEXTS)
        except CheckpointError:
            if stack["base"] != "deberta-v2":
                raise
            return
        expected = (
            theirs.encode_query(TEXTS, convert_to_numpy=True),
            theirs.encode_document(TEXTS, convert_to_numpy=True),
        )
        scores = theirs.similarity(*expected).numpy()
    for matrix, of_side in zip((queries, documents), expected, strict=True):
        assert matrix.lengths.tolist() == list(map(len, of_side))
        size = max(1.0, float(np.abs(matrix.vectors).max()))
        np.testing.assert_allclose(matrix.vectors, np.concatenate(of_side), rtol=0, atol=ROOM * size)
    room = ROOM * max(1.0, float(np.abs(scores).max()))
    np.testing.assert_allclose(max_sim(queries, documents, is_mean=stack["mean"]), scores, rtol=0, atol=room)


@pytest.mark.usefixtures("quiet_transformers")
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("attends", [False, True])
@pytest.mark.parametrize("marks", [False, True])
@pytest.mark.parametrize("prefixes", [("", ""), ("[MASK] ", "##s"), ("who ? ", "it ")])
def test_the_layout_of_pylate_is_read_as_that_library_reads_it(
    tmp_path: Path, prefixes: tuple[str, str], marks: bool, attends: bool
) -> None:
    library = pytest.importorskip("sentence_transformers")
    folder = write_late(tmp_path / "late", prefixes=prefixes, marks=marks)
    for key, value in (("do_query_expansion", True), ("attend_to_expansion_tokens", attends), ("query_length", 12)):
        change_file(folder / ABOUT, key, value, 0)
    ours, theirs = load_token_embedder(folder, device="cpu"), library.MultiVectorEncoder(str(folder), device="cpu")
    for matrix, of_side in (
        (ours.queries(TEXTS), theirs.encode_query(TEXTS, convert_to_numpy=True)),
        (ours.documents(TEXTS), theirs.encode_document(TEXTS, convert_to_numpy=True)),
    ):
        assert matrix.lengths.tolist() == list(map(len, of_side))
        np.testing.assert_allclose(matrix.vectors, np.concatenate(of_side), rtol=0, atol=ROOM)


@pytest.mark.usefixtures("quiet_transformers")
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "said",
    [
        {},
        {"query_maxlen": 12, "doc_maxlen": 9, "query_token_id": "##s", "attend_to_mask_tokens": True},
        {"query_token_id": "[MASK]", "doc_token_id": "##s", "mask_punctuation": False},
    ],
)
def test_the_layout_of_the_original_is_read_as_that_library_reads_it(tmp_path: Path, said: dict[str, Any]) -> None:
    library = pytest.importorskip("sentence_transformers")
    tmp_path = Path(write_base_model(tmp_path / "original", 4))
    change_file(tmp_path / "config.json", "architectures", ["HF_ColBERT"], 0)
    tensors = {name: tensor for name, tensor in load_file(tmp_path / "model.safetensors").items() if "cls." not in name}
    save_file({**tensors, "linear.weight": WEIGHT}, tmp_path / "model.safetensors", metadata={"format": "pt"})
    (tmp_path / "bertsmith.json").unlink()
    if said:
        (tmp_path / "artifact.metadata").write_text(json.dumps(said))
    ours, theirs = load_token_embedder(tmp_path, device="cpu"), library.MultiVectorEncoder(str(tmp_path), device="cpu")
    for matrix, of_side in (
        (ours.queries(TEXTS), theirs.encode_query(TEXTS, convert_to_numpy=True)),
        (ours.documents(TEXTS), theirs.encode_document(TEXTS, convert_to_numpy=True)),
    ):
        assert matrix.lengths.tolist() == list(map(len, of_side))
        np.testing.assert_allclose(matrix.vectors, np.concatenate(of_side), rtol=0, atol=ROOM)
    save_file(tensors, tmp_path / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(CheckpointError, match=r"the projection linear\.weight"):
        load_token_embedder(tmp_path, device="cpu")


def test_a_folder_of_ours_is_read_as_it_was_written(folder: Path) -> None:
    recipe = read_late_recipe(folder)
    np.testing.assert_array_equal(recipe.weight, WEIGHT)
    assert (recipe.skipped, recipe.expansion, recipe.normalizes) == (SKIPPED, None, True)
    embedder = load_token_embedder(folder, device="cpu")
    documents = embedder.documents(["the plot . ?", "a film"])
    assert documents.lengths.tolist() == [4, 4], "[CLS] the plot [SEP]"
    assert documents.vectors.shape == (8, len(WEIGHT))
    np.testing.assert_allclose(np.linalg.norm(documents.vectors, axis=1), 1, atol=1e-5)
    assert embedder.queries(["the plot . ?"]).lengths.tolist() == [6], "punctuation of queries is compared"


def test_tokens_that_fill_up_a_query_change_no_vector_of_its_tokens(folder: Path) -> None:
    """Packed rows of several lengths in one batch, with and without an expansion that nothing attends to."""
    plain = load_token_embedder(folder, device="cpu").queries(TEXTS[:4])
    change_file(folder / ABOUT, "do_query_expansion", True, 0)
    change_file(folder / ABOUT, "query_length", 16, 0)
    filled = load_token_embedder(folder, device="cpu").queries(TEXTS[:4])
    assert filled.lengths.tolist() == [16] * 4
    for expected, vectors in zip(plain, filled, strict=True):
        np.testing.assert_allclose(vectors[: len(expected)], expected, atol=1e-5)
    change_file(folder / ABOUT, "attend_to_expansion_tokens", True, 0)
    attended = load_token_embedder(folder, device="cpu").queries(TEXTS[:1])
    assert np.abs(attended.vectors[: plain.lengths[0]] - plain.vectors[: plain.lengths[0]]).max() > 1e-3


def test_such_a_folder_gives_no_single_vectors(folder: Path) -> None:
    assert late_folder(folder) == folder
    with pytest.raises(CheckpointError, match="one vector per text"):
        load_embedder(folder, device="cpu")


def _no_projection(folder: Path) -> None:
    modules = json.loads((folder / "modules.json").read_text())
    (folder / "modules.json").write_text(json.dumps(modules[:1]))


def _other_width(folder: Path) -> None:
    change_file(folder / "1_Dense/config.json", "in_features", 31, 0)


def _activation(folder: Path) -> None:
    change_file(folder / "1_Dense/config.json", "activation_function", "torch.nn.modules.activation.Tanh", 0)


def _pooling(folder: Path) -> None:
    modules = json.loads((folder / "modules.json").read_text())
    modules.append({"idx": 2, "path": "2_HierarchicalTokenPooling", "type": "sentence_transformers.a.TokenPooling"})
    (folder / "modules.json").write_text(json.dumps(modules))


@pytest.mark.parametrize(
    ("break_it", "found"),
    [
        (_no_projection, "a projection"),
        (_other_width, r"linear\.weight \[\d+, 31\]"),
        (_activation, "Tanh"),
        (_pooling, "TokenPooling"),
        (lambda folder: change_file(folder / ABOUT, "skiplist_words", "!", 0), "pieces to skip"),
        (lambda folder: change_file(folder / ABOUT, "query_length", "long", 0), "query_length"),
        (lambda folder: change_file(folder / ABOUT, "query_length", 4000, 0), "positions of the model"),
        (lambda folder: shutil.rmtree(folder / "1_Dense"), "1_Dense"),
    ],
)
def test_what_is_not_followed_is_refused_in_one_line(folder: Path, break_it: Any, found: str) -> None:
    break_it(folder)
    with pytest.raises(BertsmithError, match=found) as caught:
        load_token_embedder(folder, device="cpu")
    assert "\n" not in str(caught.value)


def test_a_projection_of_another_shape_needs_the_weights_of_its_residual(folder: Path) -> None:
    change_file(folder / "1_Dense/config.json", "use_residual", True, 0)
    with pytest.raises(CheckpointError, match=r"residual\.weight"):
        load_token_embedder(folder, device="cpu")


def test_punctuation_is_skipped_if_a_folder_of_pylate_does_not_say(folder: Path) -> None:
    change_file(folder / ABOUT, "skiplist_words", None, 0)
    assert read_late_recipe(folder).skipped == tuple(string.punctuation)
