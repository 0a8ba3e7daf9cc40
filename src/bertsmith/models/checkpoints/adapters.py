"""Reads and writes low-rank adapters (LoRA) in the format of `peft`: a small folder next to the model it belongs to.

::

    ADAPTER/adapter_config.json         rank, scale, the names of the layers, the name of the model
    ADAPTER/adapter_model.safetensors   A and B of each layer; the whole of the head that was trained with them
    ADAPTER/bertsmith.json              task, labels, scores, digests; absent in adapters of other tools
    ADAPTER/modules.json ...            of a model that gives vectors: how, as sentence-transformers has it

A model with an adapter is a model folder as any other: the products are added to its weights, and the head of the
adapter takes the place of its own. Layers that Hugging Face stores as one have one A.

Source: Hu et al. (2021), section 4.1; `LoraConfig` and `get_peft_model_state_dict` of `peft`.
"""

import dataclasses
import math
import re
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from bertsmith.base.core.errors import CheckpointError, ConfigError, some
from bertsmith.base.core.settings import require
from bertsmith.base.storage.files import FolderKind, atomic_folder, read_object, require_file, write_json
from bertsmith.models.checkpoints.architectures import architecture_of
from bertsmith.models.checkpoints.hub import is_hub_id, model_name
from bertsmith.models.checkpoints.huggingface import PROJECTION, write_recipe_of
from bertsmith.models.checkpoints.late_interaction import read_late_recipe
from bertsmith.models.checkpoints.model_folder import ModelFolder, require_numbers
from bertsmith.models.checkpoints.packaged import packaged_name
from bertsmith.models.checkpoints.special_pieces import with_special_pieces
from bertsmith.models.checkpoints.transformers_folder import opening_of
from bertsmith.models.checkpoints.weights import (
    ADAPTER,
    digest_of_tensors,
    read_tensors,
    split_fused,
    write_safetensors,
)
from bertsmith.models.heads.vector_forms import form_of
from bertsmith.models.model_files.metadata import METADATA, ModelMetadata, read_metadata, write_metadata
from bertsmith.models.parts.config import EncoderConfig
from bertsmith.models.parts.parameter_names import Match, ParameterNames
from bertsmith.models.parts.part_names import part_of

if TYPE_CHECKING:
    from torch import Tensor

    from bertsmith.models.parts.low_rank import Factors, Group

ADAPTER_FOLDER = FolderKind("an adapter", ((ADAPTER,),))
ALL_LINEAR = "all-linear"  # as in peft: every linear layer of the encoder's layers
_WEIGHTS, _BIN = "adapter_model.safetensors", "adapter_model.bin"
_PREFIX, _LETTERS = "base_model.model.", (".lora_A.weight", ".lora_B.weight")
_ENCODER = "encoder"  # in bertsmith.json: the digest of the encoder that the adapter was trained on
_TASK_TYPES = {
    "ForSequenceClassification": "SEQ_CLS",
    "ForTokenClassification": "TOKEN_CLS",
    "ForQuestionAnswering": "QUESTION_ANS",
}
# Settings of peft that do not change what a trained adapter computes.
_WITHOUT_EFFECT = {
    "auto_mapping", "base_model_name_or_path", "ensure_weight_tying", "exclude_modules", "fan_in_fan_out",
    "inference_mode", "init_lora_weights", "layers_pattern", "layers_to_transform", "lora_alpha", "lora_dropout",
    "megatron_core", "modules_to_save", "peft_type", "peft_version", "qalora_group_size", "r", "revision",
    "target_modules", "task_type", "use_rslora",
}  # fmt: skip
# Initial values of peft that leave the weights of the model as they are.
_PLAIN_STARTS = (True, False, None, "gaussian", "eva", "orthogonal")

_NONE: tuple[Any, ...] = (None, [], "")  # values of peft that say nothing


def groups_of_targets(config: EncoderConfig, targets: Collection[str] | None) -> "list[Group]":
    """The layers of an encoder that adapters are added to, by our name; those that are stored as one are one group.

    Args:
        targets: their names in Hugging Face folders, or how these end, as in peft; "all-linear" for all of them; by
            default queries and values, as peft has it for BERT.

    Raises:
        ConfigError: a name is that of no layer, or also that of the pooler or a head.
    """
    names = architecture_of(config).names
    numbers = range(config.num_distinct_layers)
    modules: dict[str, list[str]] = {}  # the layers of each module of Hugging Face, with `{i}` in their names
    for row in names.layer:
        name = row.ours.replace("{i}", "1")
        if len(row.shape) == 2 and not (names.absent and names.absent(config, name)):
            modules.setdefault(_module(row.huggingface, names), []).append(row.ours.removesuffix(".weight"))
    require(
        any(ours[0].endswith(".query") for ours in modules.values()),
        expected="an encoder with Transformer layers, for low-rank adapters",
        found=config.display_name,
        fix="leave --lora-rank out",
    )
    if targets is None:
        targets = [name for name, ours in modules.items() if ours[0].endswith((".query", ".value"))]
    elif ALL_LINEAR in targets:
        targets = list(modules)
    known = sorted({name.partition("{i}.")[2] for name in modules})
    others = {_module(row.huggingface, names) for rows in names.parts.values() for row in rows if len(row.shape) == 2}
    for target in targets:
        if not any(_ends(name, target) for name in modules):
            raise ConfigError(
                expected=f"names of linear layers as lora_targets: {ALL_LINEAR}, or some of {', '.join(known)}",
                found=repr(target),
                fix="correct --lora-targets",
            )
        if clash := sorted(name for name in others if _ends(name, target)):
            raise ConfigError(
                expected="names of the encoder's layers alone as lora_targets",
                found=f"{target!r}, which also names {some(clash)}",
                fix=f"write more of the name: {some([name for name in known if _ends(name, target)])}",
            )
    chosen = [ours for name, ours in modules.items() if any(_ends(name, target) for target in targets)]
    return [tuple(name.replace("{i}", str(number)) for name in ours) for number in numbers for ours in chosen]


def write_adapter(
    path: Path, model: ModelFolder, factors: "Factors", scale: float, base: ModelFolder, *, replace: bool = False
) -> None:
    """Writes an adapter atomically, with the heads of the model that it was merged into.

    Args:
        model: the merged model.
        scale: the factor on the products.
        base: the model that the adapter was trained on.
    """
    names = architecture_of(model.config).names
    opening = opening_of(model.config, names, model.parts, model.metadata)
    kind, targets = opening.tensors_of, set()
    tensors: dict[str, Tensor] = {}
    for group, pair in factors.items():
        matrix = f"{group[0]}.weight"
        targets.add(_module(names.row_of(matrix)[0].huggingface, names).partition("{i}.")[2])
        module = _PREFIX + _module(names.to_huggingface(matrix, kind), names)
        tensors |= {module + letter: part for letter, part in zip(_LETTERS, pair, strict=True)}
    heads = {
        names.to_module(names.to_huggingface(name, kind)): tensor.T if names.transposes(name) else tensor
        for name, tensor in model.tensors.items()
        if part_of(name) is not None and name != PROJECTION  # which has a file of its own
    }
    rank = len(next(iter(factors.values()))[0])
    is_there = bool(heads) and kind != names.class_named("Model")  # in a class of transformers
    values = {
        "peft_type": "LORA",
        "task_type": _TASK_TYPES.get(kind.removeprefix(names.class_prefix)) if is_there else "FEATURE_EXTRACTION",
        "base_model_name_or_path": _name_of(base.path),
        "r": rank,
        "lora_alpha": _whole(scale * rank),
        "lora_dropout": 0.0,
        "target_modules": sorted(targets),
        "modules_to_save": sorted({name.removeprefix(names.prefix).split(".")[0] for name in heads})
        if is_there
        else None,
        "fan_in_fan_out": names.is_transposed,
        "bias": "none",
        "inference_mode": True,
        "init_lora_weights": True,
    }
    metadata = dataclasses.replace(model.metadata, other={**model.metadata.other, _ENCODER: _digest(base)})
    with atomic_folder(path, replace=ADAPTER_FOLDER if replace else False) as partial:
        write_json(partial / ADAPTER, values)
        write_safetensors(partial / _WEIGHTS, {**tensors, **{_PREFIX + name: part for name, part in heads.items()}})
        if metadata.gives_vectors:
            lacks_pooler, projection = "bert.pooler.weight" not in model.tensors, model.tensors.get(PROJECTION)
            write_recipe_of(partial, model.config, metadata, lacks_pooler=lacks_pooler, projection=projection)
        write_metadata(partial, model.tokenizer, metadata)


def read_factors(path: Path, groups: "Sequence[Group]", config: EncoderConfig) -> "Factors":
    """A and B of some layers, from an adapter of a model of this shape that was written here."""
    names, (pairs, _) = architecture_of(config).names, _pairs(_tensors(path), path)
    of_encoder = {module.removeprefix(names.prefix): pair for module, pair in pairs.items()}
    kind = names.class_named("Model")
    return {group: of_encoder[_module(names.to_huggingface(f"{group[0]}.weight", kind), names)] for group in groups}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Adapter:
    """An adapter next to its model.

    Attributes:
        folder: the model with the heads and the task of the adapter; the weights of its encoder are unchanged.
        scale: of the products.
        products: A [r, K] and B [O, r], whose product is added to a weight, by the name of the weight.
    """

    folder: ModelFolder
    scale: float
    products: "dict[str, tuple[Tensor, Tensor]]"


def with_adapter(base: ModelFolder, path: Path) -> ModelFolder:
    """A model with the adapter of a folder merged into it, and with the task of the adapter; see `read_adapter`."""
    adapter = read_adapter(base, path)
    tensors = dict(adapter.folder.tensors)
    for name, (first, second) in adapter.products.items():
        weight = tensors[name]
        tensors[name] = (weight.float() + adapter.scale * (second @ first)).to(weight.dtype)
    return dataclasses.replace(adapter.folder, tensors=tensors)


def read_adapter(base: ModelFolder, path: Path) -> Adapter:
    """The adapter of a folder, for a model.

    Raises:
        CheckpointError: the adapter is damaged, is no LoRA, has settings that are not read here, or is one of another
            encoder.
    """
    require_file(path / ADAPTER, "the settings of an adapter")
    values, is_ours = read_object(path / ADAPTER), (path / METADATA).exists()
    _require_plain(values, path)
    metadata = read_metadata(path) if is_ours else base.metadata
    if is_ours:
        base = with_special_pieces(base) if metadata.task is not None else base
        _require_encoder(base, metadata, path)
    config, architecture = base.config, architecture_of(base.config)
    names, source = architecture.names, f"the adapter '{path}'"
    pairs, others = _pairs(_tensors(path), path)
    _require_targets(values, pairs, path)
    scale = _scale(values, pairs, path)
    stored = {*others, *(f"{module}.weight" for module in pairs)}
    ending = next((ending for ending, kind in _TASK_TYPES.items() if kind == values.get("task_type")), "Model")
    declared = names.class_named(ending)
    tensors, products, wrong = dict(base.tensors), {}, []
    for module, (first, second) in pairs.items():
        laid = {names.from_module(f"{module}.weight"): second.T if names.is_transposed else second}
        for name, part in (split_fused(laid, names) if names.fused else laid).items():
            match = names.from_huggingface(name, stored, declared)
            ours = match.ours if isinstance(match, Match) else ""
            part = part.T if names.is_transposed else part
            if ours not in tensors or part_of(ours) is not None or tensors[ours].shape != (len(part), first.shape[1]):
                wrong.append(module)
                continue
            products[ours] = first.float(), part.float()
    heads = {}
    for name, tensor in others.items():
        match = names.from_huggingface(name, stored, declared)
        if not isinstance(match, Match) or part_of(match.ours) is None:
            wrong.append(name)
            continue
        heads[match.ours] = (tensor.T if match.transposed else tensor).contiguous()
    if is_ours and form_of(metadata.spec).of_tokens:
        heads[PROJECTION] = torch.tensor(read_late_recipe(path).weight)
    if wrong or not pairs:
        raise CheckpointError(
            expected=f"an adapter of {_described(config)}, as '{base.name}' is one",
            found=f"one of other layers or sizes: {some(wrong)}" if wrong else "one without layers",
            fix="name the model that the adapter was trained on",
        )
    require_numbers(
        {**heads, **{f"{module}.{n}": part for module, pair in pairs.items() for n, part in enumerate(pair)}}, source
    )
    if {part_of(name) for name in heads} - {"pooler"}:
        tensors = {name: tensor for name, tensor in tensors.items() if part_of(name) in (None, "pooler")}
        # There a new head starts with what the class of the base model has under the same name.
        tensors |= {name: base.tensors[other] for name, other in names.starts_as.items() if other in base.tensors}
    tensors |= heads
    if not is_ours and ending != "Model":
        metadata = _foreign(metadata, declared, tensors)
    folder = dataclasses.replace(base, path=path, tensors=tensors, metadata=metadata)
    return Adapter(folder=folder, scale=scale, products=products)


def _tensors(path: Path) -> "dict[str, Tensor]":
    """The tensors of an adapter, by the names of the model it was trained on."""
    file = next((path / name for name in (_WEIGHTS, _BIN) if (path / name).exists()), path / _WEIGHTS)
    tensors = read_tensors(file)
    strange = [name for name in tensors if not name.startswith(_PREFIX)]
    if strange:
        raise CheckpointError(
            expected=f"names that begin with {_PREFIX} in '{file}'",
            found=some(strange),
            fix="save the adapter with peft (save_pretrained)",
        )
    return {name.removeprefix(_PREFIX).replace(".modules_to_save.", "."): part for name, part in tensors.items()}


def _pairs(tensors: "Mapping[str, Tensor]", path: Path) -> "tuple[dict[str, tuple[Tensor, Tensor]], dict[str, Tensor]]":
    """A and B of each layer, by its name, and the other tensors of an adapter."""
    first, second = ({n.removesuffix(end): t for n, t in tensors.items() if n.endswith(end)} for end in _LETTERS)
    others = {name: tensor for name, tensor in tensors.items() if not name.endswith(_LETTERS)}
    wrong = [name for name in others if "lora_" in name or ".base_layer." in name]
    wrong += sorted(first.keys() ^ second.keys())
    wrong += [
        name
        for name in first.keys() & second.keys()
        if first[name].ndim != 2 or second[name].ndim != 2 or len(first[name]) != second[name].shape[1]
    ]
    if wrong:
        raise CheckpointError(
            expected=f"matrices lora_A [r, inputs] and lora_B [outputs, r] of each layer in '{path}'",
            found=some(wrong),
            fix="merge it with the tool that trained it (merge_and_unload of peft)",
        )
    return {name: (first[name], second[name]) for name in first}, others


def _require_plain(values: Mapping[str, Any], path: Path) -> None:
    """Refuses kinds and settings of peft that compute something else than W + scale * B A."""
    refused = {} if values.get("peft_type") == "LORA" else {"peft_type": values.get("peft_type")}
    refused |= {
        name: value
        for name, value in values.items()
        if name not in _WITHOUT_EFFECT and value and not (name == "bias" and value == "none")
    }
    start = values.get("init_lora_weights")
    refused |= {} if start in _PLAIN_STARTS else {"init_lora_weights": start}
    if refused:
        raise CheckpointError(
            expected=f"an adapter of peft_type LORA without further settings in '{path}'",
            found=some([f"{name} {value!r}"[:60] for name, value in refused.items()]),
            fix="merge it with the tool that trained it (merge_and_unload of peft)",
        )


def _require_targets(values: Mapping[str, Any], modules: Collection[str], path: Path) -> None:
    """Refuses settings that do not name all layers of the weights: peft would leave the others out."""
    targets = values.get("target_modules")
    limits = ("layers_to_transform", "layers_pattern")
    by_number = {name: values[name] for name in limits if values.get(name) not in _NONE}
    names = ["target_modules", *by_number]
    try:
        others = [module for module in modules if not _is_target(module, targets, **by_number)]
    except (re.error, TypeError):
        others = [*modules]
    if others:
        raise CheckpointError(
            expected=f"{' and '.join(names)} that name the layers of the weights in '{path / ADAPTER}'",
            found=f"{', '.join(str(value)[:60] for value in (targets, *by_number.values()))}, without {some(others)}",
            fix="copy the adapter again",
        )


def _is_target(module: str, targets: Any, layers_to_transform: Any = None, layers_pattern: Any = None) -> bool:
    """Whether the settings of an adapter name a layer; numbers of layers limit a list of targets alone, as in peft."""
    numbers = layers_to_transform
    if layers_pattern is not None and numbers is None:
        return False  # peft refuses a pattern without numbers
    if targets in (None, ALL_LINEAR):
        return numbers is None
    if isinstance(targets, str):
        return numbers is None and re.fullmatch(targets, module) is not None
    if numbers is None or module in targets:
        return any(_ends(module, target) for target in targets)
    patterns = [layers_pattern] if isinstance(layers_pattern, str) else layers_pattern or ["[^.]*"]
    matches = (re.match(rf".*\.{pattern}\.(\d+)\.", module) for pattern in patterns)
    number = next((int(match[1]) for match in matches if match), None)
    chosen = [numbers] if isinstance(numbers, int) else numbers
    return number in chosen and any(_ends(module, target) for target in targets)


def _scale(values: Mapping[str, Any], pairs: "Mapping[str, tuple[Tensor, Tensor]]", path: Path) -> float:
    """The factor on the products, from rank and alpha."""
    rank, alpha = values.get("r"), values.get("lora_alpha")
    ranks = {len(first) for first, _ in pairs.values()}
    if (
        not isinstance(rank, int)
        or not isinstance(alpha, int | float)
        or not (rank > 0 and math.isfinite(alpha))
        or ranks - {rank}
    ):
        raise CheckpointError(
            expected=f"r and lora_alpha as numbers in '{path / ADAPTER}', and r rows in each lora_A",
            found=f"r {rank!r}, lora_alpha {alpha!r}, rows {', '.join(map(str, sorted(ranks)))}",
            fix="copy the adapter again",
        )
    return alpha / (math.sqrt(rank) if values.get("use_rslora") else rank)


def _require_encoder(base: ModelFolder, metadata: ModelMetadata, path: Path) -> None:
    """Checks that a model has the weights and the vocabulary that an adapter was trained on."""
    recorded = metadata.other.get(_ENCODER)
    if recorded is not None and recorded != _digest(base):
        raise CheckpointError(
            expected=f"the encoder that the adapter '{path}' was trained on",
            found=f"other weights in '{base.name}'",
            fix="name that model, or train an adapter for this one",
        )
    if base.tokenizer is not None:
        metadata.check_vocabulary(base.tokenizer.vocabulary, path)


def _digest(base: ModelFolder) -> str:
    """The digest of the embeddings and layers of a model."""
    return digest_of_tensors({name: tensor for name, tensor in base.tensors.items() if part_of(name) is None})


def _foreign(metadata: ModelMetadata, declared: str, tensors: "Mapping[str, Tensor]") -> ModelMetadata:
    """The metadata of a model whose head is that of an adapter of another tool, which names no labels."""
    rows = len(tensors.get("classifier.bias", ()))
    labels = metadata.labels if len(metadata.labels) == rows else tuple(f"LABEL_{row}" for row in range(rows))
    return ModelMetadata(architecture=declared, labels=labels)


def _described(config: EncoderConfig) -> str:
    return f"{config.display_name} with {config.num_hidden_layers} layers of width {config.hidden_size}"


def _name_of(path: Path) -> str:
    """What finds a model again: an id of the hub, the name of a model in a package, or an absolute path."""
    name = model_name(path)
    return name if is_hub_id(name) or name == packaged_name(path) else str(path.absolute())


def _module(huggingface: str, names: ParameterNames) -> str:
    """The module of `transformers` that holds a matrix, from the name of the matrix in folders."""
    layer = names.to_module(huggingface.removesuffix(".weight"))
    end = next((end for end in names.fused if layer.rpartition(".")[0].endswith(end)), None)
    return layer if end is None else layer.rpartition(".")[0]


def _ends(name: str, target: str) -> bool:
    """Whether a target names a layer, as in peft."""
    return f".{name}".endswith(f".{target}")


def _whole(number: float) -> float:
    """The same number, without a fraction that it does not have."""
    return int(number) if float(number).is_integer() else number
