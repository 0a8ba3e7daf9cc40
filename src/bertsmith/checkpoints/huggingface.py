"""Model folders in the layout of Hugging Face, read and written; with `bertsmith.json`, the model's passport.

What is written here loads in `transformers` with the same numbers and the same token ids, without this package.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from bertsmith.checkpoints.card import write_card
from bertsmith.checkpoints.metadata import check_labels, read_passport, write_passport
from bertsmith.checkpoints.model_folder import (
    ModelFolder,
    fit_vocabulary,
    parts_of,
    require_numbers,
)
from bertsmith.checkpoints.names import Match, from_huggingface, plain, to_huggingface, whole
from bertsmith.checkpoints.plan import POSITIONS, LoadingPlan, fixed_positions, plan_loading
from bertsmith.checkpoints.tokenizer_files import (
    SPECIAL_TOKENS,
    read_tokenizer,
    tokenizer_config,
    tokenizer_json,
)
from bertsmith.checkpoints.weights import MODEL_FOLDER, SAFETENSORS, read_weights, write_safetensors
from bertsmith.errors import CheckpointError, InputError
from bertsmith.files import atomic_folder, read_json, require_file, write_json
from bertsmith.model.config import BertConfig
from bertsmith.text.normalize import TextRules
from bertsmith.text.tokenizer import Tokenizer
from bertsmith.text.wordpiece import WordPieceTokenizer

CLASSIFIERS = {
    "tagging": "BertForTokenClassification",
    "choice": "BertForMultipleChoice",
    "regression": "BertForSequenceClassification",
}


def read_model_folder(
    path: Path | str, *, rules: TextRules | None = None, allow_unknown: bool = False, verify: bool = False
) -> ModelFolder:
    """The model in a Hugging Face folder, ours or another's.

    Args:
        rules: how its text is cut, in place of what the folder says.
        allow_unknown: leave out tensors whose names mean nothing here, and report them.
        verify: compare the files with the digests in `bertsmith.json`.

    Raises:
        InputError: a file is missing or unreadable.
        ConfigError: `config.json` describes no BERT that can be built here.
        CheckpointError: weights are damaged, missing, of another shape, or unknown.
        VocabularyError: the vocabulary is damaged or not that of the model.
    """
    folder = Path(path)
    source = f"'{folder}'"
    values = _read_config(folder)
    config = BertConfig.from_dict(values | {"is_causal": bool(values.get("is_causal") or values.get("is_decoder"))})
    info = read_passport(folder, verify=verify)
    tokenizer, notes = read_tokenizer(folder, info)
    if tokenizer is not None and rules is not None:
        tokenizer, notes = WordPieceTokenizer(tokenizer.vocabulary, rules), ["the text rules were given by the caller"]
    if tokenizer is not None:
        padding = fit_vocabulary(tokenizer.vocabulary, config, source)
        notes += [padding] if padding else []
    else:
        notes.append("no vocabulary in the folder")
    stored = read_weights(folder)
    shapes = {name: tuple(tensor.shape) for name, tensor in stored.items()}
    plan = plan_loading(
        shapes, from_huggingface, config, source, name_there=to_huggingface, allow_unknown=allow_unknown
    )
    _require_equal_copies(plan, stored, source)
    tensors = {ours: stored[name] for ours, (name, _) in plan.take.items()}
    require_numbers(tensors, source)
    info |= _declared(values, info)
    if "labels" not in info and (labels := _labels(values, tensors, source)):
        info["labels"] = labels
    return ModelFolder(
        path=folder,
        config=config,
        tensors=tensors,
        tokenizer=tokenizer,
        info=info,
        report=plan.report.with_notes(*notes),
    )


def write_model_folder(
    path: Path | str,
    *,
    config: BertConfig,
    tensors: Mapping[str, Tensor],
    tokenizer: Tokenizer | None,
    info: Mapping[str, Any] | None = None,
    replace: bool = False,
) -> None:
    """Writes a model as a folder that is whole or not there.

    Args:
        tensors: parameters by our name, with or without `bert.` in front of the encoder's.
        info: what else is known of the model, for `bertsmith.json`: `task`, `labels` (names in the order of the
            classifier's rows), scores, digests of the data.
        replace: write over an existing folder that holds a model.

    Raises:
        InputError: the folder exists and `replace` is not given, or it holds no model.
        CheckpointError: the tensors are not those of the configuration.
        VocabularyError: the tokenizer does not fit the configuration.
    """
    folder, info = Path(path), dict(info or {})
    ours = {whole(name): tensor for name, tensor in tensors.items()}
    plan_loading({name: tuple(tensor.shape) for name, tensor in ours.items()}, Match, config, "the model to be written")
    if tokenizer is not None:
        fit_vocabulary(tokenizer.vocabulary, config, "the model to be written")
    check_labels(info, ours)
    if config.position_embedding_type != "absolute":
        ours[POSITIONS] = fixed_positions(config, ours)
    architecture = architecture_of(parts_of(ours), info.get("task"))
    # transformers saves a bare encoder without the prefix.
    named = {
        plain(to_huggingface(name)) if architecture == "BertModel" else to_huggingface(name): tensor
        for name, tensor in ours.items()
    }
    with atomic_folder(folder, replace=MODEL_FOLDER if replace else False) as partial:
        dtype = str(ours["bert.embeddings.word.weight"].dtype).removeprefix("torch.")
        write_json(partial / "config.json", config_json(config, architecture, dtype, info))
        write_safetensors(partial / SAFETENSORS, named)
        if tokenizer is not None:
            tokenizer.vocabulary.save(partial / "vocab.txt")
            write_json(partial / "tokenizer.json", tokenizer_json(tokenizer))
            write_json(partial / "tokenizer_config.json", tokenizer_config(tokenizer, config.max_position_embeddings))
            write_json(partial / "special_tokens_map.json", SPECIAL_TOKENS)
        write_card(partial, config, ours, tokenizer, info, "transformers")
        write_passport(partial, tokenizer, info)


def config_json(config: BertConfig, architecture: str, dtype: str, info: Mapping[str, Any]) -> dict[str, Any]:
    """The content of `config.json`; `labels` of `info` become `id2label`."""
    values = {
        "architectures": [architecture],
        "model_type": "bert",
        **config.to_dict(),
        "is_decoder": config.is_causal,
        "dtype": dtype,
        "tie_word_embeddings": True,
    }
    # A single output needs its one name, or transformers builds two.
    labels = info.get("labels") or (["LABEL_0"] if info.get("task") == "regression" else None)
    if labels:
        values["id2label"] = {str(number): str(label) for number, label in enumerate(labels)}
        values["label2id"] = {str(label): number for number, label in enumerate(labels)}
    if info.get("task") == "regression":
        values["problem_type"] = "regression"
    elif info.get("task") == "classification":
        several = (info.get("spec") or {}).get("multi_label")
        values["problem_type"] = "multi_label_classification" if several else "single_label_classification"
    return values


def architecture_of(parts: tuple[str, ...], task: str | None) -> str:
    """The class of `transformers` that holds these parts.

    >>> architecture_of(("pooler", "mlm", "nsp"), None), architecture_of(("pooler", "classifier"), "choice")
    ('BertForPreTraining', 'BertForMultipleChoice')
    """
    if "classifier" in parts:
        without_pooler = "BertForSequenceClassification" if "pooler" in parts else "BertForTokenClassification"
        return CLASSIFIERS.get(task or "", without_pooler)
    if "span" in parts:
        return "BertForQuestionAnswering"
    if "mlm" in parts:
        return "BertForPreTraining" if "nsp" in parts else "BertForMaskedLM"
    return "BertForNextSentencePrediction" if "nsp" in parts else "BertModel"


def _read_config(folder: Path) -> dict[str, Any]:
    require_file(folder / "config.json", "the configuration of a model")
    values = read_json(folder / "config.json")
    if not isinstance(values, dict):
        raise InputError(
            expected=f"a JSON object in '{folder / 'config.json'}'", found=type(values).__name__, fix="restore the file"
        )
    return values


def _declared(values: dict[str, Any], info: Mapping[str, Any]) -> dict[str, str]:
    """What another tool says of its model's task: the class that holds it, and the kind of problem."""
    if "task" in info:
        return {}
    classes = values.get("architectures")
    found = {"problem_type": values.get("problem_type")}
    if isinstance(classes, list) and classes:
        found["architecture"] = classes[0]
    return {name: value for name, value in found.items() if isinstance(value, str)}


def _labels(values: dict[str, Any], tensors: Mapping[str, Tensor], source: str) -> list[str] | None:
    """The label names of another tool's classifier, in the order of its rows; None where it names none."""
    names = values.get("id2label")
    if not isinstance(names, dict) or "classifier.bias" not in tensors:
        return None
    rows = len(tensors["classifier.bias"])
    if set(names) != {str(number) for number in range(rows)}:
        raise CheckpointError(
            expected=f"{rows} labels in config.json of {source}, one for each row of the classifier",
            found=f"{len(names)}",
            fix="correct id2label",
        )
    return [str(names[str(number)]) for number in range(rows)]


def _require_equal_copies(plan: LoadingPlan, stored: Mapping[str, Tensor], source: str) -> None:
    untied = [copy for first, copy, _ in plan.copies if not torch.equal(stored[first], stored[copy])]
    if untied:
        raise CheckpointError(
            expected=f"the decoder tied to the word table in {source}",
            found=f"other values in {', '.join(untied)}",
            fix="use a model whose decoder shares the word table, as BERT's does",
        )
