"""How a folder with late interaction (ColBERT) computes the vectors of the tokens of a text.

Such a folder lists an encoder, a projection (`Dense`), which tokens are compared (`MultiVectorMask`) and a
normalization. Three layouts are read: that of `MultiVectorEncoder` in sentence-transformers, that of PyLate, whose
settings are all in one file, and that of the original ColBERT, whose projection is among the weights of the encoder.
PyLate's is written, which the first two load. What would change the vectors and is not followed here is refused.

Letters: D width of the encoder, K width of the vectors.

Source: Khattab and Zaharia (2020), "ColBERT", section 3.2; `MultiVectorEncoder` of sentence-transformers; `ColBERT` of
PyLate.
"""

import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from safetensors.numpy import save

from bertsmith.base.core.errors import CheckpointError
from bertsmith.base.storage.files import atomic_file, digest_bytes, read_object, write_json
from bertsmith.models.checkpoints.sentence_transformers import (
    ABOUT,
    DOCUMENT,
    DOCUMENT_PROMPTS,
    ENCODER_SETTINGS,
    LATE_INTERACTION,
    MODULES,
    MULTI_VECTOR,
    PYLATE,
    QUERY,
    VECTORS_TASK,
    about_of,
    count_in,
    encoder_settings,
    flag_in,
    inside,
    lowercases_texts,
    max_length_of,
    modules_of,
    prompts_of,
    require_usual,
)
from bertsmith.models.checkpoints.vector_layers import IDENTITY, read_dense
from bertsmith.models.checkpoints.weights import read_arrays
from bertsmith.models.model_files.metadata import SAFETENSORS
from bertsmith.models.parts.head_inputs import SKIPPED_PIECES

Matrix = npt.NDArray[np.float32]
ORIGINAL, ORIGINAL_WEIGHT = "HF_ColBERT", "linear.weight"  # the class that a folder of the original names
_ORIGINAL_SETTINGS = "artifact.metadata"
_FOLDER = "1_Dense"
_TOKENS = "token_embeddings"
_LINEAR = "torch.nn.modules.linear.Identity"
_TEXT_SETTINGS = ("query_length", "document_length", "query_expansion")
_QUERY_LENGTH, _DOCUMENT_LENGTH = 32, 180  # of a folder of PyLate that does not say
_SCORES = ("maxsim", "meanmaxsim", "MaxSim")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Expansion:
    """How short queries are filled up.

    Attributes:
        length: the tokens of a query that is filled up, special tokens included.
        cuts: whether longer queries are cut to this length.
        attends: whether the other tokens attend to those that fill it up.
        piece: the piece that fills it up; "" for the mask.
    """

    length: int
    cuts: bool = True
    attends: bool = False
    piece: str = ""


@dataclasses.dataclass(frozen=True, kw_only=True)
class TextSide:
    """How queries, or documents, are read.

    Attributes:
        prefix: a text in front of each of them.
        marker: the beginning of it which, whole or its first word, is one piece if the vocabulary has it.
        max_length: maximum tokens, special tokens included; None for what the encoder reads.
        skips: whether tokens of the skip list have no vector.
    """

    prefix: str = ""
    marker: str = ""
    max_length: int | None = None
    skips: bool = False


@dataclasses.dataclass(frozen=True, kw_only=True)
class LateRecipe:
    """How a folder computes the vectors of tokens, and scores a document by them.

    Attributes:
        encoder: the folder with the weights of the encoder.
        weight: the projection, float32 [K, D].
        bias: float32 [K]; None for none.
        normalizes: whether each vector has length 1.
        is_mean: whether a score is divided by the number of vectors of its query.
        skipped: pieces that are not compared.
        lowercase: texts are lower-cased, whatever the encoder's tokenizer says.
    """

    encoder: Path
    weight: Matrix
    bias: Matrix | None = None
    queries: TextSide = TextSide()
    documents: TextSide = TextSide()
    expansion: Expansion | None = None
    skipped: tuple[str, ...] = ()
    normalizes: bool = True
    is_mean: bool = False
    lowercase: bool = False

    @property
    def digest(self) -> str:
        """That of all that its vectors depend on besides the encoder."""
        arrays = [np.asarray(each, dtype=np.float32).tobytes() for each in (self.weight, self.bias) if each is not None]
        others = dataclasses.replace(self, encoder=Path(), weight=np.empty(0, np.float32), bias=None)
        return digest_bytes(b"".join([*arrays, json.dumps(dataclasses.asdict(others), default=str).encode()]))


def is_late_interaction(folder: Path) -> bool:
    """Whether a folder has a model with late interaction."""
    if (folder / MODULES).exists():
        return about_of(folder).get("model_type") in LATE_INTERACTION
    return _is_original(folder)


def read_late_recipe(folder: Path) -> LateRecipe:
    """The recipe of a folder with late interaction."""
    if not (folder / MODULES).exists() and _is_original(folder):
        return _original_recipe(folder)
    about, (folders, layers) = about_of(folder), _modules(folder)
    is_pylate, mask = about.get("model_type") == PYLATE, folders.get("MultiVectorMask")
    weight, bias = _projection(layers)
    encoder = folders["Transformer"]
    said = encoder_settings(encoder, VECTORS_TASK, also=_TEXT_SETTINGS)
    if "Normalize" in folders:
        path = folders["Normalize"] / "config.json"
        require_usual(path, read_object(path), dict.fromkeys(("module_input_name", "module_output_name"), _TOKENS))
    if (score := about.get("similarity_fn_name") or _SCORES[0]) not in _SCORES and not is_pylate:
        raise _unsupported(folder, f"similarity_fn_name {score!r}"[:60])
    path, limit = (folder / ABOUT if is_pylate else encoder / ENCODER_SETTINGS), max_length_of(encoder, said)
    said, words, tasks = _pylate_settings(path, about) if is_pylate else (said, *_skipped(mask))
    if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
        raise CheckpointError(
            expected=f"a list of pieces to skip in '{folder}'", found=repr(words)[:60], fix="correct it"
        )
    expansion = _expansion(path, said.get("query_expansion"))
    if expansion is not None and not is_pylate and mask is None:
        raise _unsupported(folder, "an expansion of queries without a MultiVectorMask, which is not compared")
    longest = count_in(path, said, "query_length") or limit
    if expansion is not None:
        longest = expansion.length if expansion.cuts else longest and max(longest, expansion.length)
    queries, documents = _prefixes(folder, about, is_pylate=is_pylate)
    return LateRecipe(
        encoder=encoder,
        weight=weight,
        bias=bias,
        queries=dataclasses.replace(queries, max_length=longest, skips=QUERY in tasks),
        documents=dataclasses.replace(
            documents, max_length=count_in(path, said, "document_length") or limit, skips=DOCUMENT in tasks
        ),
        expansion=expansion,
        skipped=tuple(words),
        normalizes=is_pylate or "Normalize" in folders,
        is_mean=score == "meanmaxsim",
        lowercase=lowercases_texts(encoder, encoder_settings(encoder, None)),
    )


def _modules(folder: Path) -> tuple[dict[str, Path], list[Path]]:
    """The folders of the modules, by their kinds, and those of the projections in their order."""
    modules = modules_of(folder)
    kinds = [str(module.get("type", "")) for module in modules]
    if wrong := next((kind for kind in kinds if not kind.startswith(("sentence_transformers.", "pylate."))), None):
        raise _unsupported(folder, f"{wrong!r}"[:100])
    names = [kind.rsplit(".", 1)[-1] for kind in kinds]
    folders = [inside(folder, str(module.get("path", ""))) for module in modules]
    layers = [path for name, path in zip(names, folders, strict=True) if name == "Dense"]
    if not layers:
        raise CheckpointError(
            expected=f"a projection (Dense) in '{folder / MODULES}'",
            found=", ".join(names),
            fix="restore the folder, or fine-tune a model with --vectors tokens",
        )
    order = [name for name in names if name not in ("MultiVectorMask", "Dropout")]
    if order not in (head := ["Transformer", *["Dense"] * len(layers)], [*head, "Normalize"]):
        raise _unsupported(folder, ", ".join(names))
    return dict(zip(names, folders, strict=True)), layers


def _pylate_settings(path: Path, about: Mapping[str, Any]) -> tuple[dict[str, Any], Any, list[str]]:
    """What a folder of PyLate says of lengths and expansion, the pieces that it skips, and in which kinds of texts."""
    said: dict[str, Any] = {
        "query_length": about.get("query_length") or _QUERY_LENGTH,
        "document_length": about.get("document_length") or _DOCUMENT_LENGTH,
    }
    if flag_in(path, dict(about), "do_query_expansion", default=True):
        attends = flag_in(path, dict(about), "attend_to_expansion_tokens", default=False)
        said["query_expansion"] = {"strategy": "fixed", "attend": attends, "length": said["query_length"]}
    words = about.get("skiplist_words")
    return said, [*SKIPPED_PIECES] if words is None else words, [DOCUMENT]


def _prefixes(folder: Path, about: Mapping[str, Any], *, is_pylate: bool) -> tuple[TextSide, TextSide]:
    """The texts in front of queries and of documents, in PyLate after their markers."""
    path = folder / ABOUT
    default, prompts = prompts_of(path, {**about, "prompts": _without_null(about.get("prompts"))})
    of_documents = next((prompts[name] for name in DOCUMENT_PROMPTS if name in prompts), default)
    markers = [_marker(path, about, f"{kind}_prefix") if is_pylate else "" for kind in (QUERY, DOCUMENT)]
    queries, documents = (
        TextSide(prefix=marker + text.removeprefix(marker), marker=marker)
        for marker, text in zip(markers, (prompts.get(QUERY, default), of_documents), strict=True)
    )
    return queries, documents


def _is_original(folder: Path) -> bool:
    """Whether a folder is one of the original ColBERT."""
    classes = read_object(folder / "config.json").get("architectures")
    return isinstance(classes, list) and ORIGINAL in classes


def _original_recipe(folder: Path) -> LateRecipe:
    """The recipe of a folder of the original ColBERT, as `MultiVectorEncoder` reads it."""
    path = folder / _ORIGINAL_SETTINGS
    said = read_object(path)
    weight = read_arrays(folder, ORIGINAL_WEIGHT).get(ORIGINAL_WEIGHT)
    if weight is None:
        raise CheckpointError(
            expected=f"the projection {ORIGINAL_WEIGHT} in '{folder}'", found="none", fix="download the folder again"
        )
    markers = [
        (_marker(path, said, name) or default) + " "
        for name, default in (("query_token_id", "[unused0]"), ("doc_token_id", "[unused1]"))
    ]
    length = count_in(path, said, "query_maxlen") or _QUERY_LENGTH
    skips = flag_in(path, said, "mask_punctuation", default=True)
    return LateRecipe(
        encoder=folder,
        weight=np.ascontiguousarray(weight, np.float32),
        queries=TextSide(prefix=markers[0], marker=markers[0], max_length=length),
        documents=TextSide(
            prefix=markers[1],
            marker=markers[1],
            max_length=count_in(path, said, "doc_maxlen") or max_length_of(folder, {}),
            skips=skips,
        ),
        expansion=Expansion(length=length, attends=flag_in(path, said, "attend_to_mask_tokens", default=False)),
        skipped=SKIPPED_PIECES if skips else (),
    )


def write_late_recipe(
    folder: Path,
    weight: Matrix,
    *,
    prefixes: tuple[str, str],
    marks: bool = False,
    max_length: int,
    skipped: tuple[str, ...],
    query_length: int = 0,
    lacks_pooler: bool = False,
) -> None:
    """Writes the files that make a model folder one of PyLate, which `MultiVectorEncoder` loads as well.

    Args:
        prefixes: texts in front of queries and of documents.
        marks: whether these are pieces of the vocabulary, which PyLate knows; it has no other texts by default.
        skipped: pieces of documents that are not compared.
        query_length: tokens that queries are cut to and filled up to with the mask; 0: queries as they are.
        lacks_pooler: the encoder of `transformers` would have a pooler, but the folder has none.
    """
    kinds = [("", "sentence_transformers.models.Transformer"), (_FOLDER, "pylate.models.Dense.Dense")]
    modules = [
        {"idx": number, "name": str(number), "path": path, "type": kind} for number, (path, kind) in enumerate(kinds)
    ]
    write_json(folder / MODULES, modules)
    without = {"model_args": {"add_pooling_layer": False}} if lacks_pooler else {}
    write_json(folder / ENCODER_SETTINGS, {"max_seq_length": max_length, "do_lower_case": False, **without})
    write_json(
        folder / ABOUT,
        {
            "model_type": PYLATE,
            "prompts": {} if marks else dict(zip((QUERY, DOCUMENT), prefixes, strict=True)),
            "default_prompt_name": None,
            "similarity_fn_name": "MaxSim",
            "query_prefix": prefixes[0] if marks else "",
            "document_prefix": prefixes[1] if marks else "",
            "query_length": query_length or max_length,
            "document_length": max_length,
            "attend_to_expansion_tokens": False,
            "do_query_expansion": query_length > 0,
            "skiplist_words": [*skipped],
        },
    )
    (folder / _FOLDER).mkdir(exist_ok=True)
    outputs, inputs = weight.shape
    about = {"in_features": inputs, "out_features": outputs, "bias": False, "activation_function": _LINEAR}
    write_json(folder / _FOLDER / "config.json", about)
    with atomic_file(folder / _FOLDER / SAFETENSORS) as file:
        file.write(save({"linear.weight": np.ascontiguousarray(weight, np.float32)}, metadata={"format": "pt"}))


def _projection(folders: list[Path]) -> tuple[Matrix, Matrix | None]:
    """The product of linear layers, float32 [K, D], and its bias; layers without anything between them are one."""
    weight, bias = None, None
    for folder in folders:
        dense = read_dense(folder, _TOKENS, read_arrays)
        if dense.activation != IDENTITY:
            raise _unsupported(folder, f"a Dense with {dense.activation}")
        layer, added = dense.weight, dense.bias
        if dense.residual is not None:
            layer = layer + dense.residual
        if weight is not None and layer.shape[1] != len(weight):
            raise CheckpointError(
                expected=f"a Dense of {len(weight)} inputs in '{folder}'",
                found=str(layer.shape[1]),
                fix="download it again",
            )
        weight, bias = (
            (layer, added)
            if weight is None
            else (layer @ weight, added if bias is None else layer @ bias + (0 if added is None else added))
        )
    assert weight is not None, "a projection"
    return np.ascontiguousarray(weight), bias


def _skipped(folder: Path | None) -> tuple[Any, list[str]]:
    """The pieces that a `MultiVectorMask` skips, and the kinds of texts, "query" and "document", of which it does."""
    if folder is None:
        return [], []
    path = folder / "config.json"
    said = read_object(path)
    require_usual(
        path, {key: said[key] for key in said if not key.startswith("skiplist_")}, {"keep_only_token_ids": None}
    )
    tasks = said.get("skiplist_tasks") or [DOCUMENT]
    tasks = [tasks] if isinstance(tasks, str) else tasks
    if not isinstance(tasks, list) or not {*map(str, tasks)} <= {QUERY, DOCUMENT}:
        raise CheckpointError(
            expected=f"{QUERY} or {DOCUMENT} as skiplist_tasks in '{path}'", found=repr(tasks)[:60], fix="correct it"
        )
    return said.get("skiplist_words") or [], tasks


def _expansion(path: Path, said: Any) -> Expansion | None:
    if said is None:
        return None
    values = said if isinstance(said, dict) else {"strategy": said}
    require_usual(path, {key: None for key in values if key not in ("strategy", "length", "attend", "token")}, {})
    strategy, piece = values.get("strategy"), values.get("token") or ""
    length = count_in(path, values, "length")
    if strategy not in ("fixed", "min") or length is None or not isinstance(piece, str):
        raise CheckpointError(
            expected=f"strategy fixed or min with a length as query_expansion in '{path}'",
            found=repr(said)[:80],
            fix="correct it, or write null",
        )
    attends = flag_in(path, values, "attend", default=False)
    return Expansion(length=length, cuts=strategy == "fixed", attends=attends, piece=piece)


def _marker(path: Path, about: Mapping[str, Any], name: str) -> str:
    value = about.get(name)
    if value is not None and not isinstance(value, str):
        raise CheckpointError(expected=f"a text as {name} in '{path}'", found=repr(value)[:60], fix="correct it")
    return value or ""


def _without_null(prompts: Any) -> Any:
    return {name: text for name, text in prompts.items() if text is not None} if isinstance(prompts, dict) else prompts


def _unsupported(folder: Path, found: str) -> CheckpointError:
    return CheckpointError(
        expected=f"an encoder, linear projections, a mask and a normalization in '{folder / MODULES}'",
        found=found,
        fix=f"use the model with sentence-transformers ({MULTI_VECTOR})",
    )
