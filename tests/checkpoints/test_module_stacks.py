"""Generated folders of sentence-transformers: their vectors equal those of that library, or the folder is refused."""

import json
import logging
import os
import shutil
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bertsmith.base.core.errors import BertsmithError
from bertsmith.inference.vectors.loading import load_embedder
from tasks.architecture_samples import write_peer

library = pytest.importorskip("sentence_transformers", reason="needs the extra dev: sentence-transformers")
modules = pytest.importorskip("sentence_transformers.sentence_transformer.modules")

TEXTS = ["the film", "Good Naïve FILM , the best of the year . and the film of the year again", "", "film"]
WIDTH = 32
POOLINGS = ("cls", "max", "mean", "mean_sqrt_len_tokens", "weightedmean", "lasttoken")
OLD_ENDINGS = ("_token", "_tokens", "_tokens", "", "_tokens", "")  # of their names in the form of version 5
USUAL: dict[str, Any] = {
    "pooling": "mean", "named_as_before": False, "include_prompt": True, "max_length": 12, "lowercase": False,
    "prompts": {}, "default": None, "truncate": None, "more": [], "change": None,
}  # fmt: skip
ODD = (None, True, False, 0, 1, 7, -1, 0.5, "x", "cls", "max", [], ["mean"], ["cls", "max"], {}, {"x": 1}, {"text": {}})
KEYS: dict[str, tuple[str, ...]] = {
    "modules.json": ("type", "path", "kwargs"),
    "1_Pooling/config.json": (
        "pooling_mode", "include_prompt", "embedding_dimension", "pooling_mode_max_tokens", "pooling_mode_cls_token",
        "new",
    ),
    "sentence_bert_config.json": (
        "max_seq_length", "do_lower_case", "transformer_task", "modality_config", "module_output_name", "unpad_inputs",
        "processing_kwargs", "query_length", "document_length", "query_expansion", "model_args", "tokenizer_args",
        "config_kwargs", "tokenizer_name_or_path", "new",
    ),
    "config_sentence_transformers.json": (
        "prompts", "default_prompt_name", "similarity_fn_name", "truncate_dim", "model_type", "activation_fn", "new",
    ),
}  # fmt: skip


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The folder of an encoder."""
    path = tmp_path_factory.mktemp("base")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        write_peer(path, "electra", "Model")
        yield path
    logging.getLogger("transformers").handlers.clear()


@st.composite
def stacks(draw: st.DrawFn) -> dict[str, Any]:
    """What the modules are made of, and what is changed afterwards."""
    some, file = st.booleans, draw(st.sampled_from(list(KEYS)))
    prompts = draw(st.sampled_from([{}, {"p": "film : "}, {"query": "the film of ", "document": "", "p": "year"}]))
    return {
        "pooling": draw(
            st.one_of(st.sampled_from(POOLINGS), st.lists(st.sampled_from(POOLINGS), min_size=1, max_size=3))
        ),
        "named_as_before": draw(some()),
        "include_prompt": draw(some()),
        "max_length": draw(st.sampled_from([None, 9, 12])),
        "lowercase": draw(some()),
        "prompts": prompts,
        "default": draw(st.sampled_from([None, *prompts])),
        "truncate": draw(st.sampled_from([None, 1, 7, 32, 99])),
        "more": draw(
            st.lists(st.sampled_from(["Normalize", "Normalize", "Dropout", "LayerNorm", "Dense"]), max_size=2)
        ),
        "change": draw(
            st.one_of(
                st.none(),
                st.tuples(st.just(file), st.sampled_from(KEYS[file]), st.sampled_from(ODD), st.integers(0, 2)),
            )
        ),
    }


def built(base: Path, stack: dict[str, Any], path: Path) -> None:
    """Writes the folder of a stack."""
    encoder = modules.Transformer(str(base), max_seq_length=stack["max_length"], do_lower_case=stack["lowercase"])
    pooling = modules.Pooling(WIDTH, stack["pooling"], include_prompt=stack["include_prompt"])
    parts, width = [encoder, pooling], pooling.get_embedding_dimension()
    for name in stack["more"]:
        kind = getattr(modules, name)
        arguments = {"LayerNorm": (width,), "Dense": (width, 20)}.get(name, ())
        parts.append(kind(*arguments))
        width = 20 if name == "Dense" else width
    model = library.SentenceTransformer(
        modules=parts, device="cpu", truncate_dim=stack["truncate"], prompts=stack["prompts"],
        default_prompt_name=stack["default"],
    )  # fmt: skip
    model.save_pretrained(str(path))
    if stack["lowercase"]:  # which that library does not write
        change_file(path / "sentence_bert_config.json", "do_lower_case", True, 0)
    if stack["named_as_before"]:
        name_as_before(path / "1_Pooling" / "config.json")
    if stack["change"] is not None:
        name, key, value, index = stack["change"]
        change_file(path / name, key, value, index)


def name_as_before(file: Path) -> None:
    """Writes the pooling as version 5 of that library did, if its order is that of the names."""
    said = json.loads(file.read_text())
    mode = said.pop("pooling_mode")
    modes = [mode] if isinstance(mode, str) else mode
    if modes == [name for name in POOLINGS if name in modes]:
        names = [f"pooling_mode_{name}{ending}" for name, ending in zip(POOLINGS, OLD_ENDINGS, strict=True)]
        flags = {old: name in modes for old, name in zip(names, POOLINGS, strict=True)}
        file.write_text(json.dumps({"word_embedding_dimension": WIDTH, **flags, **said}))


def change_file(file: Path, key: str, value: object, index: int) -> None:
    """Sets a key of a JSON file, of the object at `index` where it has a list of them."""
    content = json.loads(file.read_text()) if file.exists() else {}
    (content[index % len(content)] if isinstance(content, list) else content)[key] = value
    file.write_text(json.dumps(content))


def theirs(path: Path) -> list[np.ndarray] | None:
    """The vectors of that library, of texts, queries and documents; None if it cannot read the folder."""
    try:
        model = library.SentenceTransformer(str(path), device="cpu")
        ways = (model.encode, model.encode_query, model.encode_document)
        return [np.asarray(encode(TEXTS, show_progress_bar=False)) for encode in ways]
    except Exception:  # noqa: BLE001 - whatever that library raises
        return None


def ours(path: Path) -> list[np.ndarray]:
    """The same by this package."""
    embedder = load_embedder(path, device="cpu")
    return [each.embed(TEXTS) for each in (embedder, embedder.for_queries(), embedder.for_passages())]


def assert_same(vectors: list[np.ndarray], expected: list[np.ndarray]) -> None:
    for one_way, other in zip(vectors, expected, strict=True):
        assert one_way.shape == other.shape
        np.testing.assert_allclose(one_way, other, rtol=0, atol=1e-5 * max(1.0, float(np.abs(other).max())))


@pytest.mark.usefixtures("quiet_transformers")
@pytest.mark.filterwarnings("ignore")
@settings(max_examples=max(10, settings.default.max_examples // 10))
@given(stack=stacks())
def test_vectors_equal_those_of_the_library_or_are_refused(base: Path, stack: dict[str, Any]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder)
        built(base, stack, path)
        try:
            vectors = ours(path)
        except BertsmithError:
            if stack["change"] is None:
                order = [name for name in stack["more"] if name != "Dropout"]
                assert "Normalize" in order[:-1], "only a Normalize in front of other layers is refused"
            return
        expected = theirs(path)
    if expected is not None:
        assert_same(vectors, expected)


@pytest.mark.usefixtures("quiet_transformers")
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("truncate", [None, 7, 99])
@pytest.mark.parametrize("more", [[], ["Normalize"], ["Dropout", "Normalize"]])
def test_the_usual_stacks_are_not_refused(base: Path, tmp_path: Path, more: list[str], truncate: int | None) -> None:
    prompts = {"prompts": {"p": "film : "}, "default": "p"}
    built(base, {**USUAL, "lowercase": True, **prompts, "truncate": truncate, "more": more}, tmp_path)
    expected = theirs(tmp_path)
    assert expected is not None
    assert_same(ours(tmp_path), expected)


@pytest.mark.usefixtures("quiet_transformers")
@pytest.mark.filterwarnings("ignore")
def test_numbers_cut_by_the_user_are_scaled_afterwards(base: Path, tmp_path: Path) -> None:
    built(base, {**USUAL, "truncate": 7, "more": ["Normalize"]}, tmp_path)
    cut, whole = load_embedder(tmp_path, device="cpu"), load_embedder(tmp_path, device="cpu", dimensions=7)
    assert (np.linalg.norm(cut.embed(TEXTS), axis=1) < 0.99).all()
    np.testing.assert_allclose(np.linalg.norm(whole.embed(TEXTS), axis=1), 1, atol=1e-5)
    np.testing.assert_allclose(np.linalg.norm(cut.varied(normalize=True).embed(TEXTS), axis=1), 1, atol=1e-5)


def test_a_pipe_in_place_of_the_modules_is_refused(base: Path, tmp_path: Path) -> None:
    shutil.copytree(base, tmp_path, dirs_exist_ok=True)
    os.mkfifo(tmp_path / "modules.json")
    with pytest.raises(BertsmithError, match=r"regular file at '.*modules.json'; found a device or a pipe"):
        load_embedder(tmp_path, device="cpu")
