"""Reads and writes model folders in Hugging Face's layout, with the metadata in `bertsmith.json`.

A folder written here loads in `transformers` with the same numbers and the same token ids, without this package, or is
refused there; `transformers_folder.py` decides which.
"""

import dataclasses
import functools
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from bertsmith.base.core.errors import CheckpointError, some
from bertsmith.base.storage.files import atomic_folder, link_file, read_object, require_file, write_json
from bertsmith.models.checkpoints.architectures import architecture_of, read_config
from bertsmith.models.checkpoints.card import write_card
from bertsmith.models.checkpoints.cross_encoders import read_scoring
from bertsmith.models.checkpoints.hub import shown
from bertsmith.models.checkpoints.late_interaction import ORIGINAL, ORIGINAL_WEIGHT, read_late_recipe, write_late_recipe
from bertsmith.models.checkpoints.model_folder import (
    ModelFolder,
    fit_vocabulary,
    parts_of,
    require_numbers,
    tensors_to_write,
)
from bertsmith.models.checkpoints.plan import WORD_TABLE, LoadingPlan, plan_loading
from bertsmith.models.checkpoints.sentence_transformers import DOCUMENT, QUERIES_FOLDER, QUERY, write_recipe
from bertsmith.models.checkpoints.transformers_folder import config_of_folder, longest_of, opening_of, write_code
from bertsmith.models.checkpoints.weights import (
    ADAPTER,
    MODEL_FOLDER,
    adapter_error,
    in_order,
    join_fused,
    read_weights,
    split_fused,
    without_wrappers,
    write_safetensors,
    zeros_like,
)
from bertsmith.models.heads.vector_forms import form_of
from bertsmith.models.model_files.metadata import (
    METADATA,
    SAFETENSORS,
    SIMILARITY,
    ModelMetadata,
    read_metadata,
    write_metadata,
)
from bertsmith.models.model_files.static_layouts import has_table
from bertsmith.models.model_files.tokenizer_files import lowercased, with_rules, with_segments
from bertsmith.models.model_files.tokenizer_writing import write_tokenizer
from bertsmith.models.parts.config import EncoderConfig
from bertsmith.models.parts.head_inputs import MARKERS, OF_TWO_TEXTS, SKIPPED_PIECES
from bertsmith.models.parts.parameter_names import ParameterNames
from bertsmith.models.parts.part_names import QUERY_TABLE, TOKEN_PROJECTION
from bertsmith.text.tokenizers.normalize import TextRules
from bertsmith.text.tokenizers.tokenizer import Tokenizer

if TYPE_CHECKING:
    from torch import Tensor

PROJECTION, OF_QUERIES = f"{TOKEN_PROJECTION}.weight", f"{QUERY_TABLE}.weight"


def read_model_folder(
    path: Path | str,
    *,
    rules: TextRules | None = None,
    allow_unknown: bool = False,
    verify: bool = False,
    as_arrays: bool = False,
) -> ModelFolder:
    """The model in a Hugging Face folder, written by bertsmith or by other tools.

    Args:
        as_arrays: see `read_weights`.
    """
    folder = Path(path)
    source = f"'{shown(folder)}'"
    values = _read_config(folder)
    metadata = read_metadata(folder, verify=verify)
    is_ours = (folder / METADATA).exists()  # other tools know is_decoder alone
    config = read_config(
        values | {"is_causal": bool(values.get("is_decoder") or (is_ours and values.get("is_causal")))}
    )
    architecture = architecture_of(config)
    tokenizer, notes = architecture.read_tokenizer(folder, metadata)
    if tokenizer is not None and rules is not None:
        tokenizer, notes = with_rules(tokenizer, rules), ["the text rules were given by the caller"]
    if tokenizer is not None:
        padding = fit_vocabulary(tokenizer.vocabulary, config, source)
        metadata.check_vocabulary(tokenizer.vocabulary, folder)
        notes += [padding] if padding else []
    else:
        notes.append("no vocabulary in the folder")
    if tokenizer is not None:
        tokenizer = with_segments(tokenizer, config.type_vocab_size, folder)
    names = architecture.names
    stored_weights = read_weights(folder, as_arrays=as_arrays)
    if _declared(values)[0] == ORIGINAL:  # whose projection is read with the recipe
        stored_weights.pop(ORIGINAL_WEIGHT, None)
    weights, unwrapped = without_wrappers(stored_weights, names)
    notes += unwrapped
    stored = split_fused(weights, names) if names.fused else weights
    for name, bias in names.without_bias.items():
        if name in stored and bias not in stored:
            stored[bias] = zeros_like(stored[name], len(stored[name]))
    shapes = {name: tuple(tensor.shape) for name, tensor in stored.items()}
    plan = plan_loading(
        shapes,
        functools.partial(names.from_huggingface, stored=shapes, declared=_declared(values)[0] or ""),
        config,
        names,
        source,
        name_there=names.to_huggingface,
        allow_unknown=allow_unknown,
        vectors_of_row=metadata.vectors_of_row,
    )
    _require_tied(values, plan, stored, names, source)
    if config.is_causal and not (is_ours or config.always_causal):
        _require_no_first(values, source)
    tensors = {
        ours: in_order(stored[name].T if transposed else stored[name]) for ours, (name, transposed) in plan.take.items()
    }
    if form_of(metadata.spec).of_tokens:
        weight: Any = read_late_recipe(folder).weight
        if not as_arrays:
            import torch

            weight = torch.tensor(weight)
        tensors[PROJECTION] = weight
    if form_of(metadata.spec).has_query_table:
        of_queries = read_weights(folder / QUERIES_FOLDER, as_arrays=as_arrays)
        tensors |= {f"{QUERY_TABLE}.{name}": weights for name, weights in of_queries.items() if name == "weight"}
    require_numbers(tensors, source)
    if metadata.task is None:
        architecture_named, problem_type = _declared(values)
        scoring = metadata.scoring or read_scoring(folder, values)
        metadata = dataclasses.replace(
            metadata,
            architecture=architecture_named,
            problem_type=problem_type or metadata.problem_type,
            scoring=scoring,
        )
        if scoring is not None and "activation" in scoring:
            first = f", with the prompt {prompt!r} before each first text" if (prompt := scoring.get("prompt")) else ""
            notes.append(
                "a CrossEncoder of sentence-transformers: scores are those of its predict(), of several labels with "
                f"apply_softmax{first}"
            )
        if tokenizer is not None and (scoring or {}).get("lowercase"):
            tokenizer = lowercased(tokenizer)
    if not metadata.labels:
        metadata = dataclasses.replace(metadata, labels=_labels(values, tensors, source))
    return ModelFolder(
        path=folder,
        config=config,
        tensors=tensors,
        tokenizer=tokenizer,
        metadata=metadata,
        report=plan.report.with_notes(*notes),
    )


def write_model_folder(
    path: Path | str,
    *,
    config: EncoderConfig,
    tensors: "Mapping[str, Tensor]",
    tokenizer: Tokenizer | None,
    metadata: ModelMetadata | None = None,
    replace: bool = False,
    weights_of: Path | None = None,
) -> None:
    """Writes a model folder atomically: it is either complete or absent.

    Args:
        tensors: parameters by our name, with or without the prefix `bert.` of the encoder.
        weights_of: a model folder with the same weights, whose file is linked; the tensors may be on the meta device.
    """
    folder, metadata = Path(path), metadata or ModelMetadata()
    names = architecture_of(config).names
    projection: Any = tensors.get(PROJECTION)  # of vectors of tokens, which has a file of its own
    queries: Any = tensors.get(OF_QUERIES)  # and those of the pieces of queries
    tensors = {name: tensor for name, tensor in tensors.items() if name not in (PROJECTION, OF_QUERIES)}
    ours = tensors_to_write(config, names, tensors, tokenizer, metadata)
    opening = opening_of(config, names, parts_of(ours, config), metadata)
    named = {
        names.to_huggingface(name, opening.tensors_of): tensor.T if names.transposes(name) else tensor
        for name, tensor in ours.items()
    }
    if opening.needs_code and names.modules:  # which transformers translates in folders of its own classes alone
        named = {names.to_module(name): tensor for name, tensor in named.items()}
    named = join_fused(named, names) if names.fused else named
    with atomic_folder(folder, replace=MODEL_FOLDER if replace else False) as partial:
        outputs = len(ours.get("classifier.bias", ours.get("span.bias", ())))
        stored = str(next(iter(ours.values())).dtype).removeprefix("torch.")
        write_json(partial / "config.json", config_of_folder(config, opening, metadata, stored, outputs))
        if opening.needs_code:
            write_code(partial, config, names)
        known: dict[str, str] = {}
        if weights_of is None:
            write_safetensors(partial / SAFETENSORS, named)
        else:
            link_file(weights_of / SAFETENSORS, partial / SAFETENSORS)
            digests = read_object(weights_of / METADATA).get("digests", {})
            known = {name: digest for name, digest in digests.items() if name == SAFETENSORS}
        if tokenizer is not None:
            write_tokenizer(partial, tokenizer, config, longest_of(config, metadata), metadata.reads in OF_TWO_TEXTS)
        write_card(partial, config, ours, tokenizer, metadata, "transformers", opening)
        if metadata.gives_vectors:
            if projection is not None and weights_of is not None:
                projection = read_late_recipe(weights_of).weight
            lacks_pooler = "bert.pooler.weight" not in ours
            write_recipe_of(partial, config, metadata, lacks_pooler=lacks_pooler, projection=projection)
            if form_of(metadata.spec).has_query_table:
                if weights_of is not None:
                    queries = read_weights(weights_of / QUERIES_FOLDER)["weight"]
                _write_queries(partial / QUERIES_FOLDER, queries, config, tokenizer, longest_of(config, metadata))
        write_metadata(partial, tokenizer, metadata, known)


def _write_queries(
    folder: Path, weights: "Tensor", config: EncoderConfig, tokenizer: Tokenizer | None, max_length: int
) -> None:
    """Writes what reads queries without an encoder, whose rows have no special tokens."""
    assert tokenizer is not None, "a model with a vocabulary"
    folder.mkdir()
    write_safetensors(folder / SAFETENSORS, {"weight": weights})
    write_json(folder / "config.json", {"frozen": False})
    write_tokenizer(folder, tokenizer, config, max_length - tokenizer.template.num_special(1))


def write_recipe_of(
    folder: Path, config: EncoderConfig, metadata: ModelMetadata, *, lacks_pooler: bool, projection: Any = None
) -> None:
    """Writes the files of sentence-transformers for a model that gives vectors.

    Args:
        projection: of vectors of tokens, [K, D], a tensor or an array.
    """
    spec = metadata.spec or {}
    settings, form = spec.get("settings") or {}, form_of(spec)
    lacks_pooler = lacks_pooler and architecture_of(config).names.has_pooler
    prompts = (settings.get("query_prompt", ""), settings.get("passage_prompt", ""))
    if form.of_tokens:
        write_late_recipe(
            folder,
            np.asarray(projection, dtype=np.float32),
            prefixes=prompts,
            marks=prompts == MARKERS,
            query_length=settings.get("query_length", 0),
            max_length=longest_of(config, metadata),
            skipped=SKIPPED_PIECES,
            lacks_pooler=lacks_pooler,
        )
        return
    write_recipe(
        folder,
        width=config.hidden_size,
        pooling=metadata.reads if metadata.task == SIMILARITY else "mean",
        similarity=form.similarity_for(str(spec.get("objective"))),
        of_pieces=form.of_pieces,
        has_query_table=form.has_query_table,
        max_length=longest_of(config, metadata),
        lacks_pooler=lacks_pooler,
        is_static=config.is_static,
        prompts=dict(zip((QUERY, DOCUMENT), prompts, strict=True)),
    )


def _read_config(folder: Path) -> dict[str, Any]:
    if has_table(folder):
        raise CheckpointError(
            expected=f"an encoder in '{shown(folder)}'",
            found="a table of static vectors of Model2Vec or sentence-transformers",
            fix="use it with embed, search, index, classify or serve, or name another model",
        )
    require_file(folder / "config.json", "the configuration of a model")
    values = read_object(folder / "config.json")
    quantization = values.get("quantization_config") or ((folder / "quantize_config.json").exists() and "GPTQ")
    if quantization:
        method = quantization.get("quant_method") if isinstance(quantization, dict) else quantization
        raise CheckpointError(
            expected=f"weights that are not quantized in '{shown(folder)}'",
            found=f"a quantization by {method or 'another tool'}"[:60],
            fix="use the model from before it",
        )
    if (folder / ADAPTER).exists():
        raise adapter_error(folder)
    return values


def _declared(values: dict[str, Any]) -> tuple[str | None, str | None]:
    """The task of another tool's model as the tool declares it: its class, and the kind of problem."""
    classes, problem = values.get("architectures"), values.get("problem_type")
    first = classes[0] if isinstance(classes, list) and classes else None
    return first if isinstance(first, str) else None, problem if isinstance(problem, str) else None


def _labels(values: dict[str, Any], tensors: "Mapping[str, Tensor]", source: str) -> tuple[str, ...]:
    """The labels of another tool's classifier, in the order of its rows; empty if it has none."""
    names, (declared, _) = values.get("id2label"), _declared(values)
    if not isinstance(names, dict) or "classifier.bias" not in tensors or (declared or "").endswith("MultipleChoice"):
        return ()
    rows = len(tensors["classifier.bias"])
    if values.get("num_labels") not in (None, rows):
        raise CheckpointError(
            expected=f"num_labels {rows} in config.json of {source}, the rows of the classifier",
            found=repr(values["num_labels"])[:60],
            fix="correct num_labels, or remove it",
        )
    if set(names) != {str(number) for number in range(rows)}:
        raise CheckpointError(
            expected=f"labels 0 to {rows - 1} as id2label in config.json of {source}, the rows of the classifier",
            found=", ".join(sorted(names)[:8]) + (" ..." if len(names) > 8 else ""),
            fix="correct id2label",
        )
    if wrong := [name for name in names.values() if not isinstance(name, str | int) or isinstance(name, bool)]:
        raise CheckpointError(
            expected=f"names as id2label in config.json of {source}", found=repr(wrong[0])[:60], fix="correct id2label"
        )
    return tuple(str(names[str(number)]) for number in range(rows))


def _require_no_first(values: dict[str, Any], source: str) -> None:
    """Checks that no head of another tool's left-to-right model reads the first token; here it would read the last."""
    if (declared := _declared(values)[0] or "").endswith(("SequenceClassification", "MultipleChoice")):
        raise CheckpointError(
            expected=f"a model that reads in both directions (is_decoder) below the {declared} in {source}",
            found="a left-to-right one, whose first token has seen no other",
            fix="use it with transformers, or another model",
        )


def _require_tied(
    values: dict[str, Any], plan: LoadingPlan, stored: "Mapping[str, Tensor]", names: ParameterNames, source: str
) -> None:
    """Checks that the decoder of the masked-LM head is the word table, or there is no such head."""
    untied = [copy for first, copy, _ in plan.copies if not bool((stored[first] == stored[copy]).all())]
    if untied:
        raise CheckpointError(
            expected=f"a decoder tied to the word table in {source}",
            found=f"different values in {some(untied)}",
            fix="use a model whose decoder shares the word table, as BERT's does",
        )
    decoders = {name for name, ours in names.copies.items() if ours == WORD_TABLE}
    has_head = any(ours.startswith("mlm.") for ours in plan.take) or (_declared(values)[0] or "").endswith(
        "LMHeadModel"
    )
    is_stored = any(ours == WORD_TABLE for _, _, ours in plan.copies)
    if values.get("tie_word_embeddings") is False and decoders and has_head and not is_stored:
        raise CheckpointError(
            expected=f"a decoder next to the word table in {source}, as tie_word_embeddings false says",
            found=f"no {min(decoders)}",
            fix="restore it, or write true if the decoder is the word table",
        )
