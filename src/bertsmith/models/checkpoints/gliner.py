"""Models of GLiNER as their authors publish them: `gliner_config.json`, weights, and perhaps a tokenizer.

Read are those whose one encoder reads labels and words together. Their heads score spans from first and last words
(span_mode markerV0 or marker), as in urchade/gliner_small, medium, large and multi, or each word as the first, the last
and any word of an entity (token_level). Others are refused by name. A folder without the tokenizer or the configuration
of its encoder names the model that has them.

Letters: E width of the head, H units of a word.

The layer of GLiNER on both words of a span, [H, 2E], is one of the first word and one of the last, as a rectifier is
all that follows their sum; what follows, [E, H], is applied to the label instead. Without that rectifier ("marker"),
there are two units for each number, of which one is its negative. At the token level, the layers on a word and on a
label are multiplied by the parts of the layer that follows them.

Source: `UniEncoderSpanModel`, `UniEncoderTokenModel` and `GLiNERConfig` of the package `gliner`.
"""

import dataclasses
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from bertsmith.base.core.errors import CheckpointError, ConfigError
from bertsmith.base.storage.files import read_object
from bertsmith.models.checkpoints.architectures import read_config, require_architecture
from bertsmith.models.checkpoints.model_folder import ModelFolder, fit_vocabulary, no_vocabulary, require_numbers
from bertsmith.models.checkpoints.plan import WORD_TABLE, plan_loading
from bertsmith.models.checkpoints.sentence_transformers import max_length_of
from bertsmith.models.checkpoints.special_pieces import with_added_pieces
from bertsmith.models.checkpoints.weights import read_weights
from bertsmith.models.encoders.deberta import DebertaConfig
from bertsmith.models.heads.head_spec import SpanShape
from bertsmith.models.heads.span_layers import span_layers
from bertsmith.models.model_files.metadata import GLINER_CONFIG, ModelMetadata
from bertsmith.models.model_files.tokenizer_files import with_rules, with_segments
from bertsmith.models.parts.config import EncoderConfig
from bertsmith.models.parts.part_names import READER
from bertsmith.text.tokenizers.normalize import TextRules
from bertsmith.text.tokenizers.tokenizer import Tokenizer

TOKEN_LEVEL = "token_level"
_KIND = "entities-by-name"
_OTHERWISE = "use it with the package gliner, or fine-tune an encoder with --task entities-by-name"
_ENCODERS = ("bert", "deberta-v2")
_ENCODER, _SPANS = "token_rep_layer.bert_layer.model.", "span_rep_layer.span_rep_layer"
_OUT = f"{_SPANS}.out_project"
_LAYERS = tuple(f"{_OUT}.{number}.{kind}" for number in (0, 3) for kind in ("weight", "bias"))
_LSTM = re.compile(r"rnn\.lstm\.((?:weight|bias)_[ih]h)_l([0-9]{1,2})(_reverse)?")
_HEAD = {
    "token_rep_layer.projection": f"{READER}.projection",
    f"{_SPANS}.project_start.0": f"{READER}.first.hidden",
    f"{_SPANS}.project_start.3": f"{READER}.first.output",
    f"{_SPANS}.project_end.0": f"{READER}.last.hidden",
    f"{_SPANS}.project_end.3": f"{READER}.last.output",
    "prompt_rep_layer.0": f"{READER}.label.hidden",
    "prompt_rep_layer.3": f"{READER}.label.output",
    "scorer.out_mlp.3": f"{READER}.scores",
}
_SCORER = tuple(
    f"scorer.{layer}.{kind}" for layer in ("proj_token", "proj_label", "out_mlp.0") for kind in ("weight", "bias")
)
_MOST_WORDS = 1000  # of an entity, and so of a row, at the token level
_LONGEST = 4096  # tokens of a row of an encoder whose positions have no limit
_FIRST_ADDED = "[FLERT]"  # which GLiNER adds to a vocabulary in front of its own two pieces
# What the models that are read have in their configuration; the first is what holds if nothing is said.
_READ: Mapping[str, tuple[Any, ...]] = {
    "model_type": (None, "gliner", "gliner_uni_encoder_span", "gliner_uni_encoder_token"),
    "span_mode": ("markerV0", "marker", TOKEN_LEVEL),
    "represent_spans": (False, None),
    "labels_encoder": (None, ""),
    "labels_decoder": (None, ""),
    "relations_layer": (None,),
    "subtoken_pooling": ("first",),
    "words_splitter_type": ("whitespace",),
    "fuse_layers": (False,),
    "post_fusion_schema": ("", None),
    "embed_ent_token": (True,),
    "span_encoder_config": (None,),
    "precomputed_prompts_mode": (None, False),
}
# Sizes and ids: what holds if nothing is said, the least and the most.
_SIZES: Mapping[str, tuple[int, int, int]] = {
    "hidden_size": (512, 2, 2**16),
    "max_width": (12, 1, 1000),
    "max_len": (384, 1, 10**6),
    "num_rnn_layers": (1, 0, 100),
    "class_token_index": (-1, -1, 10**9),
    "vocab_size": (-1, -1, 10**9),
}


def read_gliner(
    folder: Path,
    *,
    resolve: Callable[[str], Path],
    rules: TextRules | None = None,
    allow_unknown: bool = False,
) -> ModelFolder:
    """The model of GLiNER in a folder.

    Args:
        resolve: the local folder of the model that the encoder started as, given its name.
    """
    path, source = folder / GLINER_CONFIG, f"'{folder}'"
    values = read_object(path)
    sizes = _sizes(values, path)
    encoder, has_tokenizer = values.get("encoder_config"), (folder / "tokenizer_config.json").is_file()
    base = folder if encoder and has_tokenizer else resolve(_name_of_encoder(values, path))
    stored = _in_parts(read_weights(folder))
    shape = {"model_type": "deberta-v2", **encoder} if encoder else read_object(base / "config.json")
    if (kind := shape.get("model_type")) not in _ENCODERS:
        raise CheckpointError(
            expected=f"an encoder {' or '.join(_ENCODERS)} in '{path}'", found=repr(kind)[:60], fix=_OTHERWISE
        )
    architecture = require_architecture(kind)
    names = architecture.names
    table = stored.get(names.to_huggingface(WORD_TABLE).removeprefix(names.prefix))
    config = _without_limit(read_config(shape if table is None else {**shape, "vocab_size": len(table)}))
    files = folder if has_tokenizer else base
    tokenizer, notes = architecture.read_tokenizer(files, ModelMetadata())
    if tokenizer is None:
        raise no_vocabulary(files)
    if rules is not None:
        tokenizer, notes = with_rules(tokenizer, rules), ["the text rules were given by the caller"]
    tokenizer, marks = _with_marks(tokenizer, values, sizes, source)
    tokenizer = with_segments(tokenizer, config.type_vocab_size, files)
    padding = fit_vocabulary(tokenizer.vocabulary, config, source)
    longest = min(config.max_tokens, max_length_of(files, {}) or config.max_tokens)
    words, of_words = sizes["max_len"], values.get("span_mode") == TOKEN_LEVEL
    head = {
        "width": sizes["hidden_size"],
        "units": (2 if values.get("span_mode") == "marker" else 4) * sizes["hidden_size"],
        "lstm_layers": sizes["num_rnn_layers"],
        "label_id": marks[0],
        "labels": longest // 2 if of_words else 0,  # each has two pieces or more
    }
    _require_head(stored, config.hidden_size, SpanShape(**head), source)
    plan = plan_loading(
        {name: tuple(tensor.shape) for name, tensor in stored.items()},
        lambda name: names.from_huggingface(name, stored=stored),
        config,
        names,
        source,
        name_there=lambda ours: _ENCODER + names.to_huggingface(ours).removeprefix(names.prefix),
        allow_unknown=allow_unknown,
    )
    tensors = {ours: stored[name].contiguous() for ours, (name, _) in plan.take.items()}
    require_numbers(tensors, source)
    spec = {
        "kind": _KIND,
        "name": _KIND,
        "metric": "f1",
        "metrics": ["precision", "recall", "f1"],
        "gliner": {**head, "separator_id": marks[1], "words": min(words, _MOST_WORDS) if of_words else words},
        "settings": {
            "max_length": longest,
            "entity_words": min(words, _MOST_WORDS) if of_words else sizes["max_width"],
            "overlap": "none",
        },
    }
    return ModelFolder(
        path=folder,
        config=config,
        tensors=tensors,
        tokenizer=tokenizer,
        metadata=ModelMetadata(task=_KIND, spec=spec),
        report=plan.report.with_notes(*notes, *([padding] if padding else [])),
    )


def _sizes(values: Mapping[str, Any], path: Path) -> dict[str, int]:
    """The whole numbers in a configuration of GLiNER, if it is of a model that is read."""
    for name, known in _READ.items():
        if (value := values.get(name, known[0])) not in known:
            raise CheckpointError(
                expected=f"a model of GLiNER with {name} {' or '.join(map(repr, known))} in '{path}'",
                found=repr(value)[:60],
                fix=_OTHERWISE,
            )
    sizes = {name: values.get(name, usual) for name, (usual, _, _) in _SIZES.items()}
    for name, value in sizes.items():
        _, least, most = _SIZES[name]
        if type(value) is not int or not least <= value <= most:
            raise ConfigError.must_be(f"{name} in '{path}'", f"a whole number from {least} to {most}", value)
    if not isinstance(values.get("encoder_config") or {}, dict):
        raise ConfigError.must_be(f"encoder_config in '{path}'", "an object", values["encoder_config"])
    return sizes


def _name_of_encoder(values: Mapping[str, Any], path: Path) -> str:
    """The name of the model that the encoder started as, whose files the folder lacks."""
    name = values.get("model_name")
    if not isinstance(name, str):
        raise CheckpointError(
            expected=f"an encoder_config in '{path}' and tokenizer files next to it, or the model_name of its encoder",
            found=repr(name),
            fix="write the path or the id of that model there",
        )
    return name


def _with_marks(
    tokenizer: Tokenizer, values: Mapping[str, Any], sizes: Mapping[str, int], source: str
) -> tuple[Tokenizer, tuple[int, int]]:
    """The tokenizer with the pieces in front of labels and behind the last one, and their ids."""
    pieces = [str(values.get(name, usual)) for name, usual in (("ent_token", "<<ENT>>"), ("sep_token", "<<SEP>>"))]
    if -1 in (sizes["class_token_index"], sizes["vocab_size"]):
        tokenizer = with_added_pieces(tokenizer, [_FIRST_ADDED, *pieces])
    label, separator = (tokenizer.vocabulary.index.get(piece, -1) for piece in pieces)
    if min(label, separator) < 0 or sizes["class_token_index"] not in (-1, label):
        raise CheckpointError(
            expected=f"{' and '.join(pieces)} in the vocabulary of {source}, the first with the id of "
            f"class_token_index, {sizes['class_token_index']}",
            found=f"the ids {label} and {separator}",
            fix="copy the tokenizer files of the model",
        )
    return tokenizer, (label, separator)


def _require_head(stored: Mapping[str, Tensor], hidden_size: int, shape: SpanShape, source: str) -> None:
    """Checks that the parameters of the head are complete and have the right shapes."""
    with torch.device("meta"):
        layers = span_layers(hidden_size, shape).state_dict()
    wanted = {f"{READER}.{name}": list(tensor.shape) for name, tensor in layers.items()}
    present = {name: list(tensor.shape) for name, tensor in stored.items() if name.startswith(f"{READER}.")}
    wrong = [name for name in {**wanted, **present} if wanted.get(name) != present.get(name)]
    if wrong:
        name = wrong[0]
        raise CheckpointError(
            expected=f"{name} of shape {wanted[name]} in {source}" if name in wanted else f"no {name} in {source}",
            found=str(present.get(name, "none")),
            fix=f"check that {GLINER_CONFIG} and weights belong together",
        )


def _without_limit(config: EncoderConfig) -> EncoderConfig:
    """The configuration of an encoder that reads rows of any length, if it has no table of positions."""
    if not isinstance(config, DebertaConfig) or config.position_embedding_type != "none":
        return config
    longest = max(config.max_position_embeddings, _LONGEST)
    return dataclasses.replace(config, max_relative_positions=config.farthest, max_position_embeddings=longest)


def _in_parts(stored: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tensors by the names of the encoder alone, and by ours for the head."""
    result: dict[str, Tensor] = {}
    for name, tensor in stored.items():
        layer, _, kind = name.rpartition(".")
        if name.startswith(_ENCODER):
            result[name.removeprefix(_ENCODER)] = tensor
        elif match := _LSTM.fullmatch(name):
            plain, number, backward = match.groups()
            result[f"{READER}.lstm.{number}.{'left' if backward else 'right'}.{plain}_l0"] = tensor
        elif not layer.startswith(_OUT) and name not in _SCORER:
            result[f"{_HEAD[layer]}.{kind}" if layer in _HEAD else name] = tensor
    width = stored[_SCORER[0]].shape[-1] if _SCORER[0] in stored else 0
    wanted = [(2 * width, width), (2 * width,)] * 2 + [(4 * width, 3 * width), (4 * width,)]
    if width and [tuple(stored[name].shape) for name in _SCORER if name in stored] == wanted:
        return result | _of_words(*(stored[name] for name in _SCORER))
    weight, bias = f"{_OUT}.weight", f"{_OUT}.bias"
    shapes = {name: tuple(tensor.shape) for name, tensor in stored.items() if name.startswith(f"{_OUT}.")}
    if any(len(shapes[name]) != (2 if name.endswith("weight") else 1) for name in shapes):
        return result
    if weight in stored and bias in stored:  # "marker"
        both, to_label = _with_negatives(stored[weight]), torch.eye(len(stored[weight]))
        bias_of_last, weights = _with_negatives(stored[bias]), torch.cat([to_label, -to_label, 0 * to_label[:1]])
    elif all(name in stored for name in _LAYERS) and shapes[_LAYERS[2]][:1] == shapes[_LAYERS[3]]:
        both, bias_of_last, after, bias_after = (stored[name] for name in _LAYERS)
        weights = torch.cat([after.T, bias_after[None]])
    else:
        return result
    half = both.shape[1] // 2
    of_both = {
        "of_first.weight": both[:, :half],
        "of_last.weight": both[:, half:],
        "of_last.bias": bias_of_last,
        "weights.weight": weights,
    }
    return result | {f"{READER}.{name}": tensor for name, tensor in of_both.items()}


def _of_words(
    of_word: Tensor, bias_of_word: Tensor, of_label: Tensor, bias_of_label: Tensor, inner: Tensor, bias: Tensor
) -> dict[str, Tensor]:
    """The layers on words and labels, multiplied by their parts of the layer that follows."""
    width = of_word.shape[1]
    in_word, in_label, in_both = torch.split(inner, width, dim=1)
    layers = {
        "of_word.weight": torch.cat([in_word @ of_word[:width], of_word[width:]]),
        "of_word.bias": torch.cat([in_word @ bias_of_word[:width], bias_of_word[width:]]),
        "of_label.weight": torch.cat([in_label @ of_label[:width], of_label[width:]]),
        "of_label.bias": torch.cat([in_label @ bias_of_label[:width] + bias, bias_of_label[width:]]),
        "of_both.weight": in_both,
    }
    return {f"{READER}.{name}": tensor for name, tensor in layers.items()}


def _with_negatives(tensor: Tensor) -> Tensor:
    return torch.cat([tensor, -tensor])
