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
    some = st.booleans
    file = draw(st.sampled_from(list(KEYS)))
    return {
        "pooling": draw(st.one_of(st.sampled_from(["mean", "cls", "max"]), st.sampled_from(POOLINGS))),
        "include_prompt": draw(st.sampled_from([True, True, False])),
        "max_length": draw(st.sampled_from([None, 6, 12])),
        "lowercase": draw(some()),
        "prompt": draw(st.sampled_from(["", "", "film : "])),
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
    parts = [encoder, modules.Pooling(WIDTH, stack["pooling"], include_prompt=stack["include_prompt"])]
    for name in stack["more"]:
        kind = getattr(modules, name)
        arguments = {"LayerNorm": (WIDTH,), "Dense": (WIDTH, WIDTH)}.get(name, ())
        parts.append(kind(*arguments))
    prompts = {"prompts": {"p": stack["prompt"]}, "default_prompt_name": "p"} if stack["prompt"] else {}
    model = library.SentenceTransformer(modules=parts, device="cpu", truncate_dim=stack["truncate"], **prompts)
    model.save_pretrained(str(path))
    if stack["lowercase"]:  # which that library does not write
        change_file(path / "sentence_bert_config.json", "do_lower_case", True, 0)
    if stack["change"] is not None:
        name, key, value, index = stack["change"]
        change_file(path / name, key, value, index)


def change_file(file: Path, key: str, value: object, index: int) -> None:
    """Sets a key of a JSON file, of the object at `index` where it has a list of them."""
    content = json.loads(file.read_text()) if file.exists() else {}
    (content[index % len(content)] if isinstance(content, list) else content)[key] = value
    file.write_text(json.dumps(content))


def theirs(path: Path) -> np.ndarray | None:
    """The vectors of that library; None if it cannot read the folder."""
    try:
        return np.asarray(library.SentenceTransformer(str(path), device="cpu").encode(TEXTS, show_progress_bar=False))
    except Exception:  # noqa: BLE001 - whatever that library raises
        return None


@pytest.mark.usefixtures("quiet_transformers")
@pytest.mark.filterwarnings("ignore")
@settings(max_examples=max(10, settings.default.max_examples // 10))
@given(stack=stacks())
def test_vectors_equal_those_of_the_library_or_are_refused(base: Path, stack: dict[str, Any]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder)
        built(base, stack, path)
        try:
            ours = load_embedder(path, device="cpu").embed(TEXTS)
        except BertsmithError:
            return
        expected = theirs(path)
    if expected is not None:
        assert ours.shape == expected.shape
        np.testing.assert_allclose(ours, expected, rtol=0, atol=1e-5)


@pytest.mark.usefixtures("quiet_transformers")
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("truncate", [None, 7, 99])
@pytest.mark.parametrize("more", [[], ["Normalize"], ["Dropout", "Normalize"]])
def test_the_usual_stacks_are_not_refused(base: Path, tmp_path: Path, more: list[str], truncate: int | None) -> None:
    stack = {"pooling": "mean", "include_prompt": True, "max_length": 12, "lowercase": True, "prompt": "film : "}
    built(base, {**stack, "truncate": truncate, "more": more, "change": None}, tmp_path)
    np.testing.assert_allclose(load_embedder(tmp_path, device="cpu").embed(TEXTS), theirs(tmp_path), rtol=0, atol=1e-5)


@pytest.mark.usefixtures("quiet_transformers")
@pytest.mark.filterwarnings("ignore")
def test_numbers_cut_by_the_user_are_scaled_afterwards(base: Path, tmp_path: Path) -> None:
    stack = {"pooling": "mean", "include_prompt": True, "max_length": 12, "lowercase": False, "prompt": ""}
    built(base, {**stack, "truncate": 7, "more": ["Normalize"], "change": None}, tmp_path)
    cut, whole = load_embedder(tmp_path, device="cpu"), load_embedder(tmp_path, device="cpu", dimensions=7)
    assert (np.linalg.norm(cut.embed(TEXTS), axis=1) < 0.99).all()
    np.testing.assert_allclose(np.linalg.norm(whole.embed(TEXTS), axis=1), 1, atol=1e-5)
    np.testing.assert_allclose(np.linalg.norm(cut.varied(normalize=True).embed(TEXTS), axis=1), 1, atol=1e-5)


def test_a_pipe_in_place_of_the_modules_is_refused(base: Path, tmp_path: Path) -> None:
    shutil.copytree(base, tmp_path, dirs_exist_ok=True)
    os.mkfifo(tmp_path / "modules.json")
    with pytest.raises(BertsmithError, match=r"regular file at '.*modules.json'; found a device or a pipe"):
        load_embedder(tmp_path, device="cpu")
