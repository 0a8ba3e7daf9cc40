"""Reads and writes model folders in Hugging Face's layout, with the metadata in `bertsmith.json`.

A folder written here loads in `transformers` with the same numbers and the same token ids, without this package.
"""

import dataclasses
import functools
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from bertsmith.checkpoints.architectures import architecture_of, read_config
from bertsmith.checkpoints.card import write_card
from bertsmith.checkpoints.fused_layers import join_fused, split_fused
from bertsmith.checkpoints.hub import shown
from bertsmith.checkpoints.model_folder import (
    ModelFolder,
    fit_vocabulary,
    parts_of,
    require_numbers,
)
from bertsmith.checkpoints.plan import POSITIONS, LoadingPlan, fixed_positions, plan_loading
from bertsmith.checkpoints.sentence_transformers import DOCUMENT, QUERY, write_recipe
from bertsmith.checkpoints.weights import MODEL_FOLDER, read_weights, write_safetensors
from bertsmith.errors import CheckpointError, InputError
from bertsmith.files import atomic_folder, read_json, require_file, write_json
from bertsmith.model.config import EncoderConfig
from bertsmith.model.our_names import READER, whole
from bertsmith.model.parameter_names import Match, ParameterNames
from bertsmith.model_files.metadata import (
    SAFETENSORS,
    SIMILARITY,
    WHOLE_ROWS,
    ModelMetadata,
    read_metadata,
    write_metadata,
)
from bertsmith.model_files.tokenizer_files import with_rules, with_segments
from bertsmith.model_files.tokenizer_writing import write_tokenizer
from bertsmith.text.normalize import TextRules
from bertsmith.text.tokenizer import Tokenizer

# The class of `transformers` for a classifier, by kind of task and without the prefix of the architecture.
_CLASSIFIERS = {
    "tagging": "ForTokenClassification",
    "choice": "ForMultipleChoice",
    "regression": "ForSequenceClassification",
}


def read_model_folder(
    path: Path | str, *, rules: TextRules | None = None, allow_unknown: bool = False, verify: bool = False
) -> ModelFolder:
    """The model in a Hugging Face folder, written by bertsmith or by other tools.

    Args:
        rules: text rules to use instead of those of the folder.
        allow_unknown: skip tensors with unknown names, and report them.
        verify: compare the files with the digests in `bertsmith.json`.

    Raises:
        InputError: a file is missing or unreadable.
        ConfigError: `config.json` does not describe a model that can be built here.
        CheckpointError: weights are damaged, missing, of another shape, or unknown.
        VocabularyError: the vocabulary is damaged or does not belong to the model.
    """
    folder = Path(path)
    source = f"'{shown(folder)}'"
    values = _read_config(folder)
    config = read_config(values | {"is_causal": bool(values.get("is_causal") or values.get("is_decoder"))})
    architecture = architecture_of(config)
    metadata = read_metadata(folder, verify=verify)
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
        tokenizer = with_segments(tokenizer, config.type_vocab_size)
    names = architecture.names
    stored = split_fused(read_weights(folder), names)
    for name, bias in names.without_bias.items():
        if name in stored and bias not in stored:
            stored[bias] = stored[name].new_zeros(len(stored[name]))
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
    _require_equal_copies(plan, stored, source)
    tensors = {
        ours: stored[name].T.contiguous() if transposed else stored[name].contiguous()
        for ours, (name, transposed) in plan.take.items()
    }
    require_numbers(tensors, source)
    if metadata.task is None:
        architecture_named, problem_type = _declared(values)
        metadata = dataclasses.replace(metadata, architecture=architecture_named, problem_type=problem_type)
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
    tensors: Mapping[str, Tensor],
    tokenizer: Tokenizer | None,
    metadata: ModelMetadata | None = None,
    replace: bool = False,
) -> None:
    """Writes a model folder atomically: it is either complete or absent.

    Args:
        tensors: parameters by our name, with or without the prefix `bert.` of the encoder.
        metadata: further information on the model, for `bertsmith.json`.
        replace: overwrite an existing folder that contains a model.

    Raises:
        InputError: the folder exists and `replace` is not given, or it does not contain a model.
        CheckpointError: the tensors do not match the configuration.
        VocabularyError: the tokenizer does not fit the configuration.
    """
    folder, metadata = Path(path), metadata or ModelMetadata()
    names = architecture_of(config).names
    ours = {whole(name): tensor for name, tensor in tensors.items()}
    shapes = {name: tuple(tensor.shape) for name, tensor in ours.items()}
    plan_loading(shapes, Match, config, names, "the model to be written", vectors_of_row=metadata.vectors_of_row)
    if tokenizer is not None:
        fit_vocabulary(tokenizer.vocabulary, config, "the model to be written")
    metadata.check_labels(ours)
    if config.position_embedding_type != "absolute" and any(row.ours == POSITIONS for row in names.embeddings):
        ours[POSITIONS] = fixed_positions(config, ours)
    architecture = class_of(names, parts_of(ours, config), metadata.task, metadata.reads)
    named = {
        names.to_huggingface(name, architecture): tensor.T if names.transposes(name) else tensor
        for name, tensor in ours.items()
    }
    with atomic_folder(folder, replace=MODEL_FOLDER if replace else False) as partial:
        dtype = str(next(iter(ours.values())).dtype).removeprefix("torch.")
        write_json(partial / "config.json", config_json(config, architecture, dtype, metadata))
        write_safetensors(partial / SAFETENSORS, join_fused(named, names))
        if tokenizer is not None:
            write_tokenizer(partial, tokenizer, config)
        write_card(partial, config, ours, tokenizer, metadata, "transformers")
        if metadata.gives_vectors:
            settings = (metadata.spec or {}).get("settings") or {}
            write_recipe(
                partial,
                width=config.hidden_size,
                pooling=metadata.reads if metadata.task == SIMILARITY else "mean",
                max_length=min(int(settings.get("max_length", config.max_tokens)), config.max_tokens),
                is_static=config.is_static,
                prompts={QUERY: settings.get("query_prompt", ""), DOCUMENT: settings.get("passage_prompt", "")},
            )
        write_metadata(partial, tokenizer, metadata)


def config_json(config: EncoderConfig, architecture: str, dtype: str, metadata: ModelMetadata) -> dict[str, Any]:
    """The content of `config.json`; the labels become `id2label`."""
    values = {
        **({"architectures": [architecture]} if config.in_transformers else {}),
        "model_type": config.model_type,
        **config.to_dict(),
        "is_decoder": config.is_causal,
        "dtype": dtype,
        "tie_word_embeddings": not config.two_directions,
    }
    # A single output needs one label, or transformers builds two outputs.
    labels = metadata.labels or (("LABEL_0",) if metadata.task == "regression" else ())
    if labels:
        values["id2label"] = {str(number): label for number, label in enumerate(labels)}
        values["label2id"] = {label: number for number, label in enumerate(labels)}
    if metadata.task == "regression":
        values["problem_type"] = "regression"
    elif metadata.task == "classification":
        values["problem_type"] = (
            "multi_label_classification" if metadata.several_labels else "single_label_classification"
        )
    return values


def class_of(names: ParameterNames, parts: tuple[str, ...], task: str | None, reads: str = "pooler") -> str:
    """The class of `transformers` with these parts.

    Args:
        reads: what the head of a task on whole rows reads, one of `our_names.READS`.

    >>> from bertsmith.encoders.bert import NAMES
    >>> class_of(NAMES, ("pooler", "mlm", "nsp"), None), class_of(NAMES, ("pooler", "classifier"), "choice")
    ('BertForPreTraining', 'BertForMultipleChoice')
    >>> class_of(NAMES, ("classifier",), "classification", "mean")
    'BertModel'
    """
    kind = "Model"
    if READER in parts or ("classifier" in parts and reads != "pooler" and task in WHOLE_ROWS):
        pass  # it reads a vector that no classifier of transformers reads: an encoder, with the layer as extra tensors
    elif "classifier" in parts:
        kind = _CLASSIFIERS.get(
            task or "", "ForSequenceClassification" if "pooler" in parts else _CLASSIFIERS["tagging"]
        )
    elif "span" in parts:
        kind = "ForQuestionAnswering"
    elif "mlm" in parts:
        kind = "ForPreTraining" if "nsp" in parts else "ForMaskedLM"
    elif "nsp" in parts:
        kind = "ForNextSentencePrediction"
    return names.class_named(kind)


def _read_config(folder: Path) -> dict[str, Any]:
    require_file(folder / "config.json", "the configuration of a model")
    values = read_json(folder / "config.json")
    if not isinstance(values, dict):
        raise InputError(
            expected=f"a JSON object in '{folder / 'config.json'}'", found=type(values).__name__, fix="restore the file"
        )
    return values


def _declared(values: dict[str, Any]) -> tuple[str | None, str | None]:
    """What another tool says about the task of its model: its class, and the kind of problem."""
    classes, problem = values.get("architectures"), values.get("problem_type")
    first = classes[0] if isinstance(classes, list) and classes else None
    return first if isinstance(first, str) else None, problem if isinstance(problem, str) else None


def _labels(values: dict[str, Any], tensors: Mapping[str, Tensor], source: str) -> tuple[str, ...]:
    """The labels of another tool's classifier, in the order of its rows; empty if it has none."""
    names = values.get("id2label")
    if not isinstance(names, dict) or "classifier.bias" not in tensors:
        return ()
    rows = len(tensors["classifier.bias"])
    if set(names) != {str(number) for number in range(rows)}:
        raise CheckpointError(
            expected=f"{rows} labels in config.json of {source}, one for each row of the classifier",
            found=f"{len(names)}",
            fix="correct id2label",
        )
    return tuple(str(names[str(number)]) for number in range(rows))


def _require_equal_copies(plan: LoadingPlan, stored: Mapping[str, Tensor], source: str) -> None:
    untied = [copy for first, copy, _ in plan.copies if not torch.equal(stored[first], stored[copy])]
    if untied:
        raise CheckpointError(
            expected=f"a decoder tied to the word table in {source}",
            found=f"different values in {', '.join(untied)}",
            fix="use a model whose decoder shares the word table, as BERT's does",
        )
