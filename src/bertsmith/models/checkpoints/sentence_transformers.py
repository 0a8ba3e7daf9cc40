"""How a sentence-transformers folder computes the vector of a text: pooling, length, normalization, prompts.

Such a folder lists its modules in `modules.json`: an encoder, a pooling, often a normalization. Both forms of the
pooling configuration are read, the old (`pooling_mode_mean_tokens: true`) and the new (`pooling_mode: "mean"`); the old
one, which every version of that library reads, is written. A module, or a setting of one, that would change the vectors
and is not followed here is refused by name.

Source: Reimers and Gurevych (2019), "Sentence-BERT", section 3; `Pooling` and `Transformer` of sentence-transformers.
"""

import dataclasses
import math
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from bertsmith.base.core.errors import CheckpointError, nearest
from bertsmith.base.storage.files import read_json, read_object, write_json
from bertsmith.models.checkpoints.vector_layers import LAYERS, VectorLayer, read_layers
from bertsmith.models.heads.head_spec import PIECE_ACTIVATIONS, PIECE_POOLINGS, RELU, PieceWeights
from bertsmith.models.heads.poolings import PARTS, joined
from bertsmith.models.heads.vector_forms import BY_COSINE, BY_PRODUCT, OF_DENSE_VECTORS
from bertsmith.models.model_files.static_layouts import is_model2vec, normalizes_tables
from bertsmith.models.parts.head_inputs import MAX

MODULES = "modules.json"
ABOUT = "config_sentence_transformers.json"
_LIBRARY = "sentence_transformers."  # the modules of others are code that is not run here
ENCODER_SETTINGS = "sentence_bert_config.json"
ARGUMENTS = "model_args"  # in those settings, what `transformers` receives when it loads the encoder
# Other names of that file; the first one that has settings counts.
_OLD_ENCODER_SETTINGS = tuple(
    f"sentence_{name}_config.json" for name in ("roberta", "distilbert", "camembert", "albert", "xlm-roberta", "xlnet")
)
_ENCODERS = ("Transformer", "MLMTransformer")  # the second one gives the logits of the masked-LM head
# Settings of a SpladePooling that change no number.
_PIECE_SIZES = ("chunk_size", "embedding_dimension", "word_embedding_dimension")
_WITHOUT_EFFECT = ("Dropout",)  # modules that only training has
# Settings of modules, by their kind, with the only value that is followed.
_USUAL: Mapping[str, Mapping[str, Any]] = {
    "Transformer": {
        "processing_kwargs": {},
        "query_length": None,
        "document_length": None,
        "query_expansion": None,
        "tokenizer_name_or_path": None,
        **{f"{of}_{kind}": {} for of in ("model", "tokenizer", "config", "processor") for kind in ("args", "kwargs")},
    },
    "Normalize": {"module_input_name": "sentence_embedding", "module_output_name": "sentence_embedding"},
}
# What the encoder of a folder gives, by its task there: the name of the model's output, and that of the module's.
_OUTPUTS = {
    "feature-extraction": ("last_hidden_state", "token_embeddings"),
    "sequence-classification": ("logits", "scores"),
    "fill-mask": ("logits", "token_embeddings"),
}
VECTORS_TASK, PAIRS_TASK, PIECES_TASK = _OUTPUTS
_FOLLOWED = ("max_seq_length", "do_lower_case", "unpad_inputs", "modality_config")  # unpad_inputs changes no number
_ROUTES, _OF_QUERIES, QUERIES_FOLDER = "router_config.json", "SparseStaticEmbedding", "query_0_SparseStaticEmbedding"
_POOLING_FOLDER, _SPLADE_FOLDER = "1_Pooling", "1_SpladePooling"
# Names of prompts, as `encode_query` and `encode_document` of that library look for them.
QUERY, DOCUMENT = "query", "document"
DOCUMENT_PROMPTS = (DOCUMENT, "passage", "corpus")
SENTENCE_TRANSFORMER, CROSS_ENCODER, SPARSE_ENCODER = "SentenceTransformer", "CrossEncoder", "SparseEncoder"
MULTI_VECTOR, PYLATE = LATE_INTERACTION = ("MultiVectorEncoder", "ColBERT")  # see `late_interaction.py`
_FOLDER_POOLINGS = ("mean", "cls", "max")
_OLD_NAMES = dict(
    zip(
        (
            "pooling_mode_cls_token",
            "pooling_mode_max_tokens",
            "pooling_mode_mean_tokens",
            "pooling_mode_mean_sqrt_len_tokens",
            "pooling_mode_weightedmean_tokens",
            "pooling_mode_lasttoken",
        ),
        PARTS,
        strict=True,
    )
)
_POOLING_KEYS = (
    *_OLD_NAMES, "pooling_mode", "include_prompt", "embedding_dimension", "word_embedding_dimension"
)  # fmt: skip


@dataclasses.dataclass(frozen=True, kw_only=True)
class SentenceRecipe:
    """How a sentence-transformers folder computes its vectors.

    Attributes:
        encoder: the folder with the weights: the folder itself, or one inside it.
        layers: those between the pooling and the normalization.
        max_length: maximum tokens per row, including [CLS] and [SEP]; None if not specified.
        lowercase: texts are lower-cased, whatever the encoder's tokenizer says.
        prompt: a prefix for every text.
        prompts: all prompts by their names, such as `query` and `document`.
        pools_prompt: whether the tokens of the prompt are part of the pooling.
        dimensions: how many of the first numbers of each vector are kept, after the normalization; None for all.
        pieces: how the vectors, weights of pieces, are made of the logits of the masked-LM head (`SparseEncoder`); None
            for vectors of the encoder's width.
        most_active: how many of the largest weights of each vector are kept; None for all.
        similarity: how two vectors are compared, one of `vector_forms.OF_DENSE_VECTORS`.
        queries: the folder with a weight for each piece of a query, which no encoder then reads; None without one.
        is_table: the encoder is a table of vectors of pieces in another tool's layout, see `static_folder.py`.
    """

    encoder: Path
    pooling: str = "mean"
    normalize: bool = False
    layers: Sequence[VectorLayer] = ()
    max_length: int | None = None
    lowercase: bool = False
    prompt: str = ""
    prompts: Mapping[str, str] = dataclasses.field(default_factory=dict)
    pools_prompt: bool = True
    dimensions: int | None = None
    pieces: PieceWeights | None = None
    most_active: int | None = None
    similarity: str = BY_COSINE
    queries: Path | None = None
    is_table: bool = False


def read_recipe(folder: Path, *, pooled: bool = True, layers: bool = False) -> SentenceRecipe | None:
    """The recipe of a folder, or None if it is not a sentence-transformers folder that gives vectors.

    Args:
        pooled: False: read only the encoder and how it reads texts, whatever the folder does with its vectors.
        layers: the caller applies the layers that follow the pooling; otherwise a folder with such is refused.
    """
    if is_model2vec(folder):
        return SentenceRecipe(encoder=folder, is_table=True, normalize=normalizes_tables(folder))
    if not (folder / MODULES).exists() or is_cross_encoder(folder):
        return None
    if pooled and about_of(folder).get("model_type") == SPARSE_ENCODER:
        return _sparse_recipe(folder)
    if pooled and about_of(folder).get("model_type") in LATE_INTERACTION:
        raise CheckpointError(
            expected=f"a model that gives one vector per text in '{folder}'",
            found="one that gives vectors of tokens (late interaction)",
            fix="use it with `search` (--model or --rerank) and `serve`, or take vectors of tokens (`features`)",
        )
    encoder, pooling, normalize, includes_prompt, kinds = folder, "", False, True, []
    further: list[tuple[str, Path]] = []
    for module in modules_of(folder):
        kind, module_folder = _kind(folder, module, pooled=pooled), inside(folder, str(module.get("path", "")))
        kinds.append(kind)
        if kind in _ENCODERS:
            encoder = module_folder
        elif kind == "StaticEmbedding":
            encoder, pooling = module_folder, "mean"
        elif not pooled:
            continue
        elif kind == "Pooling":
            pooling, includes_prompt = _pooling(module_folder / "config.json")
        elif kind == "Normalize":
            require_usual(module_folder / "config.json", read_object(module_folder / "config.json"), _USUAL[kind])
            normalize = True
        elif layers and kind in LAYERS:
            further.append((kind, module_folder))
        elif kind not in _WITHOUT_EFFECT:
            raise CheckpointError(
                expected=f"an encoder, a pooling and a normalization in '{folder / MODULES}'",
                found=f"a module {kind}, which is not supported",
                fix="name a model without it, or only the folder of its encoder",
            )
    said = encoder_settings(encoder, VECTORS_TASK if pooled else None)
    is_table = kinds[0] == "StaticEmbedding" and not (encoder / "config.json").exists()
    if not pooled:
        return SentenceRecipe(
            encoder=encoder,
            max_length=max_length_of(encoder, said),
            lowercase=lowercases_texts(encoder, said),
            is_table=is_table,
        )
    if not pooling:
        raise CheckpointError(
            expected=f"a pooling in '{folder / MODULES}'", found="none", fix="name only the folder of the encoder"
        )
    order = [kind for kind in kinds if kind not in _WITHOUT_EFFECT]
    first = ["StaticEmbedding"] if kinds[0] == "StaticEmbedding" else ["Transformer", "Pooling"]
    if order != [*first, *(kind for kind, _ in further), *["Normalize"] * normalize]:
        raise CheckpointError(
            expected=f"{', '.join(first)}, its layers and at most one Normalize in this order in '{folder / MODULES}'",
            found=", ".join(kinds),
            fix="name only the folder of the encoder, or another model",
        )
    about = about_of(folder)
    similarity = about.get("similarity_fn_name")
    prompt, prompts = prompts_of(folder / ABOUT, about)
    return SentenceRecipe(
        encoder=encoder,
        pooling=pooling,
        normalize=normalize,
        layers=read_layers(further),
        max_length=max_length_of(encoder, said),
        lowercase=lowercases_texts(encoder, said),
        prompt=prompt,
        prompts=prompts,
        pools_prompt=includes_prompt,
        dimensions=count_in(folder / ABOUT, about, "truncate_dim"),
        similarity=BY_COSINE if similarity not in OF_DENSE_VECTORS else str(similarity),  # as there
        is_table=is_table,
    )


def _sparse_recipe(folder: Path) -> SentenceRecipe:
    """The recipe of a folder whose vectors are weights of pieces."""
    modules, queries = modules_of(folder), None
    if [_kind(folder, module, pooled=True) for module in modules] == ["Router"]:
        modules, queries = _routes(inside(folder, str(modules[0].get("path", ""))))
    kinds = [_kind(folder, module, pooled=True) for module in modules]
    encoder, pooling = (inside(folder, str(module.get("path", ""))) for module in (modules[0], modules[-1]))
    said = encoder_settings(encoder, PIECES_TASK) if kinds[0] in _ENCODERS else {}
    # A plain encoder has hidden states in place of logits, unless its settings say otherwise.
    reads_logits = kinds[0] != _ENCODERS[0] or said.get("transformer_task") == PIECES_TASK
    if kinds not in ([kind, "SpladePooling"] for kind in _ENCODERS) or not reads_logits:
        raise CheckpointError(
            expected=f"a masked-LM encoder and a SpladePooling in '{folder / MODULES}'",
            found=", ".join(kinds) + ("" if reads_logits else f" without the task {PIECES_TASK}"),
            fix=f"use it as a {SPARSE_ENCODER} of sentence-transformers, or name another model",
        )
    path = pooling / "config.json"
    values = {name: value for name, value in read_object(path).items() if name not in _PIECE_SIZES}
    how = {"pooling_strategy": MAX, "activation_function": RELU, **values}
    require_usual(path, values, {name: how[name] for name in ("pooling_strategy", "activation_function")})
    for name, known in (("pooling_strategy", PIECE_POOLINGS), ("activation_function", PIECE_ACTIVATIONS)):
        if how[name] not in known:
            raise CheckpointError(
                expected=f"{' or '.join(known)} as {name} in '{path}'", found=repr(how[name])[:60], fix="correct it"
            )
    about = about_of(folder)
    prompt, prompts = prompts_of(folder / ABOUT, about)
    similarity = about.get("similarity_fn_name") or BY_PRODUCT
    if similarity not in (BY_COSINE, BY_PRODUCT):
        raise CheckpointError(
            expected=f"{BY_COSINE} or {BY_PRODUCT} as similarity_fn_name in '{folder / ABOUT}'",
            found=repr(similarity)[:60],
            fix="name one of these, or another model",
        )
    return SentenceRecipe(
        encoder=encoder,
        pooling=str(how["pooling_strategy"]),
        max_length=max_length_of(encoder, said),
        lowercase=lowercases_texts(encoder, said),
        prompt=prompt,
        prompts=prompts,
        pieces=PieceWeights(pooling=how["pooling_strategy"], activation=how["activation_function"]),
        most_active=count_in(folder / ABOUT, about, "max_active_dims"),
        similarity=str(similarity),
        queries=queries,
    )


def _routes(folder: Path) -> tuple[list[dict[str, Any]], Path]:
    """The modules for documents of a folder that reads queries in another way, and the folder of what reads these."""
    path = folder / _ROUTES
    values = read_object(path)
    types, routes, options = (values.get(name) or {} for name in ("types", "structure", "parameters"))
    if not all(isinstance(part, dict) for part in (types, routes, options)) or not all(
        isinstance(names, list) and all(isinstance(name, str) for name in names) for names in routes.values()
    ):
        raise CheckpointError(expected=f"routes in '{path}'", found="something else", fix="download the folder again")
    require_usual(path, options, {"default_route": DOCUMENT, "allow_empty_key": True, "route_mappings": {}})
    kinds = {name: str(kind).rsplit(".", 1)[-1] for name, kind in types.items()}
    of_queries = [kinds.get(name) for name in routes.get(QUERY, ())]
    if set(routes) != {QUERY, DOCUMENT} or of_queries != [_OF_QUERIES] or not routes[DOCUMENT]:
        raise CheckpointError(
            expected=f"a {_OF_QUERIES} for queries and other modules for documents in '{path}'",
            found=", ".join(f"{route}: {names}" for route, names in routes.items())[:100] or "no routes",
            fix=f"use it as a {SPARSE_ENCODER} of sentence-transformers, or name another model",
        )
    queries = inside(folder, str(routes[QUERY][0]))
    said = read_object(queries / "config.json")
    require_usual(queries / "config.json", {name: value for name, value in said.items() if name != "frozen"}, {})
    return [{"type": types.get(name), "path": str(name)} for name in routes[DOCUMENT]], queries


def is_cross_encoder(folder: Path) -> bool:
    """Whether a folder has a CrossEncoder, whose modules score pairs; see `cross_encoders.py`."""
    kind = about_of(folder).get("model_type")
    if isinstance(kind, str):
        return kind == CROSS_ENCODER
    # Without a kind, the first module says what it was saved for.
    return read_object(folder / ENCODER_SETTINGS).get("transformer_task") == PAIRS_TASK


def about_of(folder: Path) -> dict[str, Any]:
    """The settings of the model as a whole."""
    about = read_object(folder / ABOUT)
    kind = about.get("model_type", SENTENCE_TRANSFORMER)
    if kind not in (SENTENCE_TRANSFORMER, CROSS_ENCODER, SPARSE_ENCODER, *LATE_INTERACTION):
        raise CheckpointError(
            expected=f"a {SENTENCE_TRANSFORMER}, {CROSS_ENCODER}, {SPARSE_ENCODER} or {MULTI_VECTOR} in '{folder}'",
            found=f"model_type {kind!r}"[:60],
            fix="use it with sentence-transformers, or only the folder of its encoder",
        )
    return about


def encoder_settings(encoder: Path, task: str | None, also: Collection[str] = ()) -> dict[str, Any]:
    """How a folder has its encoder read texts; empty if it says nothing.

    Args:
        task: what the encoder is for; None to check nothing.
        also: further settings that the caller follows.
    """
    names = (ENCODER_SETTINGS, *_OLD_ENCODER_SETTINGS)
    path, said = next(
        ((path, said) for path in (encoder / name for name in names) if (said := read_object(path))),
        (encoder / ENCODER_SETTINGS, {}),
    )
    if task is None:
        return said
    theirs, ours = _OUTPUTS[task]
    changing = {key: _without_trust(value) for key, value in said.items() if key not in (*_FOLLOWED, *also)}
    require_usual(path, changing, {**_USUAL["Transformer"], "transformer_task": task, "module_output_name": ours})
    modalities = said.get("modality_config") or {"text": {"method": "forward", "method_output_name": theirs}}
    text = modalities.get("text", "none") if isinstance(modalities, dict) else modalities
    require_usual(path, {"text": text}, {"text": {"method": "forward", "method_output_name": theirs}})
    return said


def require_usual(path: Path, said: Mapping[str, Any], usual: Mapping[str, Any]) -> None:
    """Checks that each setting has the usual value, or none."""
    for key, value in said.items():
        if key not in usual or value not in (None, usual[key]):
            raise CheckpointError(
                expected=f"{key} {_in_words(usual[key])} in '{path}'" if key in usual else f"no {key} in '{path}'",
                found=repr(value)[:60],
                fix="use the model with sentence-transformers, or only the folder of its encoder",
            )


def _in_words(value: Any) -> str:
    return "absent" if value in (None, {}) else repr(value)[:80]


def _without_trust(value: Any) -> Any:
    """The arguments without the permission to run code, which no file can give, and a pooler that plays no part."""
    if not isinstance(value, dict):
        return value
    return {key: argument for key, argument in value.items() if key not in ("trust_remote_code", "add_pooling_layer")}


def _kind(folder: Path, module: Mapping[str, Any], *, pooled: bool) -> str:
    """The kind of a module, such as "Pooling"."""
    name = str(module.get("type", ""))
    is_foreign = not name.startswith(_LIBRARY) and (pooled or name.endswith(".Transformer"))
    if is_foreign or (pooled and module.get("kwargs")):
        raise CheckpointError(
            expected=f"modules of sentence-transformers without kwargs in '{folder / MODULES}'",
            found=f"{name!r}"[:100] + (f" with kwargs {module['kwargs']!r}"[:60] if module.get("kwargs") else ""),
            fix="use the model with that library, or only the folder of its encoder",
        )
    return name.rsplit(".", 1)[-1]


def modules_of(folder: Path) -> list[dict[str, Any]]:
    """The modules that a folder lists, in their order."""
    modules = read_json(folder / MODULES)
    if not isinstance(modules, list) or not all(isinstance(module, dict) for module in modules) or not modules:
        raise CheckpointError(
            expected=f"a list of modules in '{folder / MODULES}'", found="something else", fix="download it again"
        )
    return modules


def inside(folder: Path, path: str) -> Path:
    """The folder of a module, which must be inside the model's folder."""
    module = folder / path
    if not module.resolve().is_relative_to(folder.resolve()):
        raise CheckpointError(
            expected=f"modules inside '{folder}'", found=f"one at {path!r}", fix="download the model again"
        )
    return module


def _pooling(path: Path) -> tuple[str, bool]:
    """The pooling of a `1_Pooling/config.json`, in the old or new form, and whether the prompt is pooled too."""
    said = read_json(path)
    if not isinstance(said, dict):
        raise CheckpointError(expected=f"settings in '{path}'", found="something else", fix="download it again")
    require_usual(path, {key: value for key, value in said.items() if key not in _POOLING_KEYS}, {})
    named = said.get("pooling_mode", [name for key, name in _OLD_NAMES.items() if said.get(key)] or "mean")
    names = named if isinstance(named, list) else [named]
    if not names or not all(isinstance(name, str) and name in PARTS for name in names):
        raise CheckpointError(
            expected=f"poolings among {', '.join(PARTS)} in '{path}'",
            found=" and ".join(map(str, names)) or "none",
            fix="name only the folder of the encoder, with a --pooling, or another model",
        )
    includes_prompt = flag_in(path, said, "include_prompt", default="include_prompt" not in said)  # null: false there
    return joined(names), includes_prompt


def flag_in(path: Path, said: dict[str, Any], name: str, *, default: bool) -> bool:
    """A setting that is true or false; null counts as absent."""
    value = said.get(name)
    if value is not None and not isinstance(value, bool):
        raise CheckpointError(expected=f"true or false as {name} in '{path}'", found=repr(value), fix="correct it")
    return default if value is None else value


def lowercases_texts(encoder: Path, said: dict[str, Any]) -> bool:
    """Whether texts are lower-cased, whatever the tokenizer says."""
    return flag_in(encoder / ENCODER_SETTINGS, said, "do_lower_case", default=False)


def max_length_of(encoder: Path, said: dict[str, Any]) -> int | None:
    """The `max_seq_length`; if not specified, the tokenizer's limit."""
    longest = count_in(encoder / ENCODER_SETTINGS, said, "max_seq_length")
    if longest is not None:
        return longest
    limit = read_object(encoder / "tokenizer_config.json").get("model_max_length")
    return int(limit) if isinstance(limit, int | float) and 0 < limit < math.inf else None


def count_in(path: Path, said: Mapping[str, Any], name: str) -> int | None:
    """A setting that is a whole number above 0; None if it is absent or null."""
    value = said.get(name)
    if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value < 1):
        raise CheckpointError(
            expected=f"a whole number above 0 as {name} in '{path}'", found=repr(value)[:60], fix="correct it"
        )
    return value


def prompts_of(path: Path, about: Mapping[str, Any]) -> tuple[str, dict[str, str]]:
    """The default prompt, a prefix for every text, and all prompts by name."""
    name, prompts = about.get("default_prompt_name"), about.get("prompts")
    prompts = {} if prompts is None else prompts
    if not isinstance(prompts, dict) or not all(isinstance(text, str) for text in prompts.values()):
        wrong = (
            next((text for text in prompts.values() if not isinstance(text, str)), "")
            if isinstance(prompts, dict)
            else prompts
        )
        raise CheckpointError(
            expected=f"texts by their names as prompts in '{path}'",
            found=repr(wrong)[:60],
            fix='write {"query": "a text", "document": "a text"}',
        )
    if name is not None and not (isinstance(name, str) and name in prompts):
        raise CheckpointError(
            expected=f"the name of a prompt as default_prompt_name in '{path}'",
            found=repr(name)[:60],
            fix=nearest(str(name), prompts) if prompts else "write null, or add the prompt",
        )
    return prompts.get(name, "") if name is not None else "", dict(prompts)


def write_recipe(
    folder: Path,
    *,
    width: int,
    pooling: str,
    max_length: int,
    prompts: Mapping[str, str],
    similarity: str = "cosine",
    of_pieces: bool = False,
    has_query_table: bool = False,
    lacks_pooler: bool = False,
    is_static: bool = False,
) -> None:
    """Writes the files that make a model folder one of sentence-transformers.

    Args:
        prompts: by their names; empty ones are left out.
        similarity: how two vectors are compared.
        of_pieces: the vectors are weights of pieces, pooled from the logits of the masked-LM head (`SparseEncoder`).
        has_query_table: what reads queries is in `QUERIES_FOLDER`.
        lacks_pooler: the encoder of `transformers` would have a pooler, but the folder has none.
        is_static: the encoder has one vector per piece. Its means are scaled to length 1, because that library does not
            count special pieces.
    """
    assert pooling in _FOLDER_POOLINGS, pooling
    kinds = [("", "Transformer"), (_POOLING_FOLDER, "Pooling")]
    if is_static:
        kinds = [("", "StaticEmbedding"), ("1_Normalize", "Normalize")]
    if of_pieces:
        kinds = [("", "MLMTransformer"), (_SPLADE_FOLDER, "SpladePooling")]
    package = f"{_LIBRARY}sparse_encoder.models" if of_pieces else f"{_LIBRARY}models"
    modules = [
        {"idx": number, "name": str(number), "path": path, "type": f"{package}.{kind}"}
        for number, (path, kind) in enumerate(kinds)
    ]
    if has_query_table:
        types = {**{module["path"]: module["type"] for module in modules}, QUERIES_FOLDER: f"{package}.{_OF_QUERIES}"}
        routes = {QUERY: [QUERIES_FOLDER], DOCUMENT: [module["path"] for module in modules]}
        options = {"default_route": DOCUMENT, "allow_empty_key": True}
        write_json(folder / _ROUTES, {"types": types, "structure": routes, "parameters": options})
        modules = [{"idx": 0, "name": "0", "path": "", "type": f"{_LIBRARY}models.Router"}]
    write_json(folder / MODULES, modules)
    if not is_static:
        without = {ARGUMENTS: {"add_pooling_layer": False}} if lacks_pooler and not of_pieces else {}
        write_json(folder / ENCODER_SETTINGS, {"max_seq_length": max_length, "do_lower_case": False, **without})
    filled = {name: text for name, text in prompts.items() if text}
    kind = {"model_type": SPARSE_ENCODER} if of_pieces else {}
    about = {**kind, "prompts": filled, "default_prompt_name": None, "similarity_fn_name": similarity}
    write_json(folder / ABOUT, about)
    if is_static:
        return
    if of_pieces:
        (folder / _SPLADE_FOLDER).mkdir(exist_ok=True)
        write_json(folder / _SPLADE_FOLDER / "config.json", {"pooling_strategy": pooling, "activation_function": RELU})
        return
    (folder / _POOLING_FOLDER).mkdir(exist_ok=True)
    modes = {name: mode == pooling for name, mode in _OLD_NAMES.items()}
    write_json(
        folder / _POOLING_FOLDER / "config.json", {"word_embedding_dimension": width, **modes, "include_prompt": True}
    )
