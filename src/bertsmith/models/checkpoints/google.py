"""Google's BERT checkpoints, read and written without TensorFlow.

A folder holds `bert_config.json`, `vocab.txt` and a checkpoint of TensorFlow 1 (`bert_model.ckpt.index` and
`bert_model.ckpt.data-00000-of-00001`, or `model.ckpt-1000.*` of a run). Matrices of dense layers are stored there as
[in, out] and are transposed; values are never changed, so a round trip gives the same bytes.

Source of the names: the variable scopes of the original modeling.py, run_classifier.py and run_squad.py.
"""

import dataclasses
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from bertsmith.base.core.errors import CheckpointError, ConfigError, InputError
from bertsmith.base.core.settings import require
from bertsmith.base.storage.files import (
    atomic_folder,
    read_object,
    regular_bytes,
    require_file,
    write_json,
    write_text,
)
from bertsmith.models.checkpoints.card import write_card
from bertsmith.models.checkpoints.model_folder import (
    ModelFolder,
    fit_vocabulary,
    parts_of,
    require_numbers,
    tensors_to_write,
)
from bertsmith.models.checkpoints.plan import LoadingPlan, plan_loading
from bertsmith.models.checkpoints.transformers_folder import opening_of
from bertsmith.models.checkpoints.weights import MODEL_FOLDER
from bertsmith.models.encoders.bert import NAMES
from bertsmith.models.model_files.metadata import ModelMetadata, read_metadata, write_metadata
from bertsmith.models.model_files.tokenizer_files import guess_rules, read_rules
from bertsmith.models.parts.config import BertConfig, EncoderConfig
from bertsmith.models.parts.parameter_names import Match, Skip
from bertsmith.models.parts.part_names import BLOCKS, OWN_HEAD, READER, with_prefix
from bertsmith.models.tensorflow_files.tensor_bundle import TensorBundle, write_bundle
from bertsmith.text.tokenizers.normalize import TextRules
from bertsmith.text.tokenizers.tokenizer import Tokenizer
from bertsmith.text.tokenizers.vocabulary import Vocabulary
from bertsmith.text.tokenizers.wordpiece import WordPieceTokenizer

CONFIG, PREFIX = "bert_config.json", "bert_model.ckpt"
# The fields that the original code reads; others are written only if they differ from what it assumes.
FIELDS = (
    "attention_probs_dropout_prob",
    "hidden_act",
    "hidden_dropout_prob",
    "hidden_size",
    "initializer_range",
    "intermediate_size",
    "max_position_embeddings",
    "num_attention_heads",
    "num_hidden_layers",
    "type_vocab_size",
    "vocab_size",
)
_OBJECT_GRAPH = ("/.ATTRIBUTES/", "_CHECKPOINTABLE_OBJECT_GRAPH")
_BY_GOOGLE = {row.google: Match(row.ours, row.transposed) for row in NAMES.rows()}
_NUMBER = re.compile(r"(?<=^bert/encoder/layer_)(0|[1-9][0-9]{0,2})(?=/)")
_SLOTS = ("/adam_m", "/adam_v", "/Adam", "/Adam_1")
_COUNTERS = ("global_step", "beta1_power", "beta2_power")


def from_google(name: str) -> Match | Skip | None:
    """Our name for a variable of a Google checkpoint; None for an unknown one. The prefix `bert/` may be absent.

    >>> from_google("bert/encoder/layer_3/output/dense/kernel")
    Match(ours='bert.layers.3.output.weight', transposed=True, copy=False)
    >>> from_google("cls/squad/output_weights/adam_m")
    Skip(reason='optimizer state')
    >>> from_google("output_bias")
    Match(ours='classifier.bias', transposed=False, copy=False)
    """
    if name in _COUNTERS:
        return Skip("a counter of the optimizer")
    if name.endswith(_SLOTS):
        return Skip("optimizer state")
    full = f"bert/{name}" if name.startswith(("embeddings/", "encoder/", "pooler/")) else name
    number = _NUMBER.search(full)
    template = full if number is None else full[: number.start()] + "{i}" + full[number.end() :]
    match = None if "{i}" in full else _BY_GOOGLE.get(template)
    return None if match is None else match._replace(ours=match.ours.replace("{i}", number[0] if number else ""))


def to_google(ours: str) -> tuple[str, bool]:
    """The Google name of one of our parameters, and whether its matrix is stored transposed.

    >>> to_google("bert.layers.2.intermediate.weight")
    ('bert/encoder/layer_2/intermediate/dense/kernel', True)
    """
    row, number = NAMES.row_of(ours)
    return row.google.replace("{i}", number), row.transposed


@dataclasses.dataclass(frozen=True, kw_only=True)
class OptimizerState:
    """The moments of Google's optimizer (`adam_m`, `adam_v`) by our parameter name, and its global step, if any."""

    first: Mapping[str, Tensor]
    second: Mapping[str, Tensor]
    step: int | None = None


def read_google(
    source: Path | str,
    *,
    config: BertConfig | None = None,
    rules: TextRules | None = None,
    allow_unknown: bool = False,
    verify: bool = True,
) -> ModelFolder:
    """The model in a Google checkpoint.

    Args:
        source: the folder, a prefix such as `DIR/model.ckpt-1000`, or one of the checkpoint's files.
        rules: text rules; by default from the metadata, or else as in the original code, with the casing that fits
            the vocabulary.
    """
    bundle, config, plan = _open(source, config, allow_unknown)
    bundle.check_data()
    folder = bundle.prefix.parent
    metadata = read_metadata(folder)
    tokenizer, notes = _read_tokenizer(folder, config, rules, metadata)
    tensors = {ours: _from_disk(bundle, name, turned, verify) for ours, (name, turned) in plan.take.items()}
    require_numbers(tensors, f"'{bundle.prefix}'")
    return ModelFolder(
        path=folder,
        config=config,
        tensors=tensors,
        tokenizer=tokenizer,
        metadata=metadata,
        report=plan.report.with_notes(*notes),
    )


def read_optimizer(source: Path | str, *, config: BertConfig | None = None, verify: bool = True) -> OptimizerState:
    """The optimizer state in a checkpoint, transposed like the parameters; empty if it was stripped."""
    bundle, _, plan = _open(source, config, True)
    slots: dict[str, dict[str, Tensor]] = {"adam_m": {}, "adam_v": {}}
    for ours, (name, turned) in plan.take.items():
        for slot, values in slots.items():
            entry = bundle.entries.get(f"{name}/{slot}")
            if entry is None:
                continue
            if entry.shape != bundle.entries[name].shape:
                raise CheckpointError(
                    expected=f"{name}/{slot} with the shape of its parameter in '{bundle.prefix}'",
                    found=f"{list(entry.shape)} instead of {list(bundle.entries[name].shape)}",
                    fix="use the checkpoint that the training run wrote",
                )
            values[ours] = _from_disk(bundle, f"{name}/{slot}", turned, verify)
    step = None
    if "global_step" in bundle.entries and not bundle.entries["global_step"].shape:
        step = int(bundle.read("global_step", verify=verify))
    return OptimizerState(first=slots["adam_m"], second=slots["adam_v"], step=step)


def write_google(
    path: Path | str,
    *,
    config: EncoderConfig,
    tensors: Mapping[str, Tensor],
    tokenizer: Tokenizer | None,
    metadata: ModelMetadata | None = None,
    optimizer: OptimizerState | None = None,
    replace: bool = False,
) -> None:
    """Writes a model as a folder that Google's code reads: configuration, vocabulary, checkpoint, and our metadata."""
    folder, metadata = Path(path), metadata or ModelMetadata()
    _require_writable(config, tensors, tokenizer, metadata)
    assert isinstance(config, BertConfig)
    ours = tensors_to_write(config, NAMES, tensors, tokenizer, metadata)
    variables = dict(_to_disk(name, tensor) for name, tensor in ours.items())
    if optimizer is not None:
        for slot, moments in (("adam_m", optimizer.first), ("adam_v", optimizer.second)):
            variables |= dict(_to_disk(with_prefix(name), moment, f"/{slot}") for name, moment in moments.items())
        if optimizer.step is not None:
            variables["global_step"] = torch.tensor(optimizer.step, dtype=torch.int64)
    with atomic_folder(folder, replace=MODEL_FOLDER if replace else False) as partial:
        write_json(partial / CONFIG, google_config(config))
        if tokenizer is not None:
            tokenizer.vocabulary.save(partial / "vocab.txt")
        write_bundle(partial / PREFIX, variables)
        # The file that tf.train.latest_checkpoint looks for.
        write_text(partial / "checkpoint", f'model_checkpoint_path: "{PREFIX}"\n')
        opening = opening_of(config, NAMES, parts_of(ours, config), metadata)
        write_card(partial, config, ours, tokenizer, metadata, "tf", opening)
        write_metadata(partial, tokenizer, metadata)


def _require_writable(
    config: EncoderConfig, tensors: Mapping[str, Tensor], tokenizer: Tokenizer | None, metadata: ModelMetadata
) -> None:
    """Refuses a model that Google's code does not support."""

    def fits(condition: bool, expected: str, actual: str) -> None:
        require(condition, expected=expected, found=actual, fix="write a Hugging Face folder")

    fits(
        isinstance(config, BertConfig),
        "a BERT",
        f"model_type '{config.model_type}', which Google's code does not support",
    )
    fits(not config.is_causal, "a bidirectional model", "is_causal, which Google's code does not support")
    if isinstance(tokenizer, WordPieceTokenizer):
        fits(
            not tokenizer.vocabulary.whole,
            "a vocabulary of WordPieces alone, the only one that Google's code reads",
            f"added tokens such as {tokenizer.vocabulary.pieces[-1]!r}",
        )
        fits(
            not (tokenizer.rules.split_unspaced or tokenizer.rules.keeps_letter_marks),
            "text rules that Google's code has",
            "rules that split scripts without spaces or keep their marks (--rules unspaced)",
        )
    else:
        fits(
            tokenizer is None,
            "a model with WordPieces, the only ones that Google's code reads",
            "a tokenizer defined by its tokenizer.json",
        )
    if others := {OWN_HEAD, BLOCKS, READER} & set(parts_of(tensors, config)):
        raise ConfigError(
            expected="a model whose head Google's code supports",
            found=f"the user's head {metadata.own_head or 'of an unknown class'!r}"
            if OWN_HEAD in others
            else f"one that reads {metadata.reads}",
            fix="write a Hugging Face folder, which keeps it",
        )


def google_config(config: BertConfig) -> dict[str, Any]:
    """The content of `bert_config.json`: the original fields, and others that differ from their defaults."""
    values, usual = config.to_dict(), BertConfig().to_dict()
    departures = {name: value for name, value in values.items() if name not in FIELDS and value != usual[name]}
    return {name: values[name] for name in FIELDS} | departures


def find_prefix(source: Path | str) -> Path:
    """The prefix of a checkpoint, given its folder, the prefix itself, or one of its files.

    In a folder with several checkpoints this is the one named in its `checkpoint` file, or `bert_model.ckpt`.
    """
    source = Path(source)
    for ending in (".index", ".meta"):
        if source.name.endswith(ending):
            return source.with_name(source.name.removesuffix(ending))
    if ".data-" in source.name:
        return source.with_name(source.name.rpartition(".data-")[0])
    if not source.is_dir():
        return source
    prefixes = sorted(path.name.removesuffix(".index") for path in source.glob("*.index"))
    if not prefixes:
        raise InputError(
            expected=f"a checkpoint (.index and .data files) in '{source}'", found="none", fix="use another folder"
        )
    named = _latest(source / "checkpoint")
    if len(prefixes) == 1 or named in prefixes or PREFIX in prefixes:
        return source / (prefixes[0] if len(prefixes) == 1 else named if named in prefixes else PREFIX)
    raise InputError(
        expected=f"one checkpoint in '{source}'",
        found=", ".join(prefixes),
        fix=f"choose one, such as '{source / prefixes[-1]}'",
    )


def _latest(path: Path) -> str | None:
    """The name on the first line of a TensorFlow `checkpoint` file."""
    try:
        lines = regular_bytes(path).decode("utf-8").splitlines()
    except (OSError, UnicodeDecodeError):
        return None
    name, _, value = lines[0].partition(":") if lines else ("", "", "")
    return Path(value.strip().strip('"')).name if name == "model_checkpoint_path" else None


def _open(
    source: Path | str, config: BertConfig | None, allow_unknown: bool
) -> tuple[TensorBundle, BertConfig, LoadingPlan]:
    bundle = TensorBundle(find_prefix(source))
    if any(mark in name for name in bundle.entries for mark in _OBJECT_GRAPH):
        raise CheckpointError(
            expected=f"variable names such as bert/embeddings/word_embeddings in '{bundle.prefix}'",
            found="an object-graph checkpoint of TensorFlow 2, whose names are paths in the program that wrote it",
            fix="use the TensorFlow 1 checkpoint of the same model, or its Hugging Face folder",
        )
    if config is None:
        path = bundle.prefix.parent / CONFIG
        require_file(path, "the configuration of a Google checkpoint")
        config = BertConfig.from_dict(read_object(path))
    shapes = {name: entry.shape for name, entry in bundle.entries.items()}
    plan = plan_loading(
        shapes,
        from_google,
        config,
        NAMES,
        f"'{bundle.prefix}'",
        name_there=lambda ours: to_google(ours)[0],
        allow_unknown=allow_unknown,
        vectors_of_row=read_metadata(bundle.prefix.parent).vectors_of_row,
    )
    return bundle, config, plan


def _read_tokenizer(
    folder: Path, config: BertConfig, rules: TextRules | None, metadata: ModelMetadata
) -> tuple[Tokenizer | None, list[str]]:
    if not (folder / "vocab.txt").exists():
        return None, ["no vocab.txt next to the checkpoint"]
    vocabulary = Vocabulary.load(folder / "vocab.txt")
    padding = fit_vocabulary(vocabulary, config, f"'{folder}'")
    metadata.check_vocabulary(vocabulary, folder)
    notes = [padding] if padding else []
    if rules is None and metadata.text_rules is not None:
        rules, _ = read_rules(folder, vocabulary, metadata)
    elif rules is None:
        rules, guessed = guess_rules(vocabulary, "google")
        notes += guessed
    return WordPieceTokenizer(vocabulary, rules), notes


def _from_disk(bundle: TensorBundle, name: str, turned: bool, verify: bool) -> Tensor:
    values = bundle.read(name, verify=verify)
    return values.t().contiguous() if turned else values


def _to_disk(ours: str, tensor: Tensor, slot: str = "") -> tuple[str, Tensor]:
    name, turned = to_google(ours)
    return name + slot, tensor.t() if turned else tensor
