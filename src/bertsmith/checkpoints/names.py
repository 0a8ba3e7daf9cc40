"""One table of parameter names: ours, Hugging Face's, Google's; the shapes; which matrices are stored transposed.

Axes: V vocabulary, P positions, S segments, D width, I feed-forward width, K labels (any number).
Our names of the encoder begin with `bert.` here, as in a model with heads; `plain` and `whole` take the prefix
off and put it on. No file is touched in this module.

Source: the variable scopes of the original modeling.py, run_classifier.py and run_squad.py; the module names of
Hugging Face's BERT.
"""

import re
from collections.abc import Iterator
from typing import NamedTuple

from bertsmith.model.config import BertConfig

PREFIX = "bert."


class Row(NamedTuple):
    """One parameter in three languages; `{i}` is the number of a layer, from 0.

    `shape` is ours, as letters. `transposed` says that Google stores the matrix as [in, out].
    """

    ours: str
    huggingface: str
    google: str
    shape: str
    transposed: bool


class Match(NamedTuple):
    """What a foreign name means here.

    `copy` is True for a second name of the same values: the decoder of the masked-LM head is the word table.
    """

    ours: str
    transposed: bool = False
    copy: bool = False


class Skip(NamedTuple):
    """Why a foreign name is left out on purpose."""

    reason: str


def _dense(ours: str, huggingface: str, google: str, shape: str) -> list[Row]:
    return [
        Row(f"{ours}.weight", f"{huggingface}.weight", f"{google}/kernel", shape, True),
        Row(f"{ours}.bias", f"{huggingface}.bias", f"{google}/bias", shape[0], False),
    ]


def _norm(ours: str, huggingface: str, google: str) -> list[Row]:
    return [
        Row(f"{ours}.weight", f"{huggingface}.weight", f"{google}/gamma", "D", False),
        Row(f"{ours}.bias", f"{huggingface}.bias", f"{google}/beta", "D", False),
    ]


def _output(ours: str, huggingface: str, google: str, shape: str) -> list[Row]:
    """A layer that Google made by hand and stores as [out, in]."""
    return [
        Row(f"{ours}.weight", f"{huggingface}.weight", f"{google}output_weights", shape, False),
        Row(f"{ours}.bias", f"{huggingface}.bias", f"{google}output_bias", shape[0], False),
    ]


_E, _H, _G = "bert.embeddings", "bert.embeddings", "bert/embeddings"
EMBEDDINGS = [
    Row(f"{_E}.word.weight", f"{_H}.word_embeddings.weight", f"{_G}/word_embeddings", "VD", False),
    Row(f"{_E}.position.weight", f"{_H}.position_embeddings.weight", f"{_G}/position_embeddings", "PD", False),
    Row(f"{_E}.segment.weight", f"{_H}.token_type_embeddings.weight", f"{_G}/token_type_embeddings", "SD", False),
    *_norm(f"{_E}.norm", f"{_H}.LayerNorm", f"{_G}/LayerNorm"),
]
_L, _H, _G = "bert.layers.{i}", "bert.encoder.layer.{i}", "bert/encoder/layer_{i}"
LAYER = [
    *_dense(f"{_L}.query", f"{_H}.attention.self.query", f"{_G}/attention/self/query", "DD"),
    *_dense(f"{_L}.key", f"{_H}.attention.self.key", f"{_G}/attention/self/key", "DD"),
    *_dense(f"{_L}.value", f"{_H}.attention.self.value", f"{_G}/attention/self/value", "DD"),
    *_dense(f"{_L}.attention_output", f"{_H}.attention.output.dense", f"{_G}/attention/output/dense", "DD"),
    *_norm(f"{_L}.attention_norm", f"{_H}.attention.output.LayerNorm", f"{_G}/attention/output/LayerNorm"),
    *_dense(f"{_L}.intermediate", f"{_H}.intermediate.dense", f"{_G}/intermediate/dense", "ID"),
    *_dense(f"{_L}.output", f"{_H}.output.dense", f"{_G}/output/dense", "DI"),
    *_norm(f"{_L}.output_norm", f"{_H}.output.LayerNorm", f"{_G}/output/LayerNorm"),
]
# Parts that a checkpoint has or has not, but never by halves.
_C, _G = "cls.predictions", "cls/predictions"
PARTS: dict[str, list[Row]] = {
    "pooler": _dense("bert.pooler", "bert.pooler.dense", "bert/pooler/dense", "DD"),
    "mlm": [
        *_dense("mlm.transform", f"{_C}.transform.dense", f"{_G}/transform/dense", "DD"),
        *_norm("mlm.norm", f"{_C}.transform.LayerNorm", f"{_G}/transform/LayerNorm"),
        Row("mlm.bias", f"{_C}.bias", f"{_G}/output_bias", "V", False),
    ],
    "nsp": _output("nsp", "cls.seq_relationship", "cls/seq_relationship/", "2D"),
    "classifier": _output("classifier", "classifier", "", "KD"),
    "span": _output("span", "qa_outputs", "cls/squad/", "2D"),
}
ROWS = [*EMBEDDINGS, *LAYER, *(row for part in PARTS.values() for row in part)]

_BY_OURS = {row.ours: row for row in ROWS}
_BY_HUGGINGFACE = {row.huggingface: Match(row.ours) for row in ROWS} | {
    "cls.predictions.decoder.weight": Match("bert.embeddings.word.weight", copy=True),
    "cls.predictions.decoder.bias": Match("mlm.bias", copy=True),
}
_BY_GOOGLE = {row.google: Match(row.ours, row.transposed) for row in ROWS}

_OLD_NORM = {"LayerNorm.gamma": "LayerNorm.weight", "LayerNorm.beta": "LayerNorm.bias"}
_BUFFERS = ("embeddings.position_ids", "embeddings.token_type_ids")
_SLOTS = ("/adam_m", "/adam_v", "/Adam", "/Adam_1")
_COUNTERS = ("global_step", "beta1_power", "beta2_power")

# The number of a layer, written as a person writes it: no sign, no leading zero, no fourth digit.
_NUMBER = {
    "ours": re.compile(r"(?<=^bert\.layers\.)(0|[1-9][0-9]{0,2})(?=\.)"),
    "huggingface": re.compile(r"(?<=^bert\.encoder\.layer\.)(0|[1-9][0-9]{0,2})(?=\.)"),
    "google": re.compile(r"(?<=^bert/encoder/layer_)(0|[1-9][0-9]{0,2})(?=/)"),
}


def whole(ours: str) -> str:
    """Our name with the prefix of the encoder, whether it stood there or not.

    >>> whole("layers.0.query.bias"), whole("bert.pooler.bias"), whole("mlm.bias")
    ('bert.layers.0.query.bias', 'bert.pooler.bias', 'mlm.bias')
    """
    return PREFIX + ours if ours.startswith(("embeddings.", "layers.", "pooler.")) else ours


def plain(ours: str) -> str:
    """Our name without the prefix of the encoder, as `BertModel` alone has it.

    >>> plain("bert.layers.0.query.bias")
    'layers.0.query.bias'
    """
    return ours.removeprefix(PREFIX)


def from_huggingface(name: str) -> Match | Skip | None:
    """What a Hugging Face name means; None for an unknown one. The prefix `bert.` may be absent.

    >>> from_huggingface("encoder.layer.11.attention.output.LayerNorm.gamma")
    Match(ours='bert.layers.11.attention_norm.weight', transposed=False, copy=False)
    >>> from_huggingface("bert.embeddings.position_ids")
    Skip(reason='a buffer, not a parameter')
    >>> from_huggingface("bert.encoder.layer.01.output.dense.bias")
    """
    full = PREFIX + name if name.startswith(("embeddings.", "encoder.", "pooler.")) else name
    if plain(full) in _BUFFERS:
        return Skip("a buffer, not a parameter")
    for old, new in _OLD_NORM.items():
        if full.endswith(old):
            full = full.removesuffix(old) + new
    return _look_up(full, "huggingface", _BY_HUGGINGFACE)


def from_google(name: str) -> Match | Skip | None:
    """What a variable of a Google checkpoint means; None for an unknown one. The prefix `bert/` may be absent.

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
    return _look_up(full, "google", _BY_GOOGLE)


def to_huggingface(ours: str) -> str:
    """The Hugging Face name of one of our parameters.

    >>> to_huggingface("layers.2.intermediate.bias")
    'bert.encoder.layer.2.intermediate.dense.bias'

    Raises:
        KeyError: the name is none of ours.
    """
    row, number = _row(ours)
    return row.huggingface.replace("{i}", number)


def to_google(ours: str) -> tuple[str, bool]:
    """The Google name of one of our parameters, and whether its matrix is stored transposed.

    >>> to_google("bert.layers.2.intermediate.weight")
    ('bert/encoder/layer_2/intermediate/dense/kernel', True)

    Raises:
        KeyError: the name is none of ours.
    """
    row, number = _row(ours)
    return row.google.replace("{i}", number), row.transposed


def required_shapes(config: BertConfig) -> dict[str, tuple[int, ...]]:
    """The parameters that every checkpoint of this shape holds, by our name: embeddings and layers."""
    rows = [row for row in EMBEDDINGS if row.shape != "PD" or config.position_embedding_type == "absolute"]
    shapes = {row.ours: _shape(row, config) for row in rows}
    for layer in range(config.num_hidden_layers):
        shapes |= {row.ours.replace("{i}", str(layer)): _shape(row, config) for row in LAYER}
    return shapes


def part_shapes(part: str, config: BertConfig, labels: int) -> dict[str, tuple[int, ...]]:
    """The parameters of one of `PARTS`, by our name; `labels` is the height of a classifier."""
    return {row.ours: _shape(row, config, labels) for row in PARTS[part]}


def part_of(ours: str) -> str | None:
    """The part that a parameter belongs to; None for embeddings and layers.

    >>> part_of("bert.pooler.bias"), part_of("mlm.norm.weight"), part_of("bert.embeddings.norm.weight")
    ('pooler', 'mlm', None)
    """
    first = plain(ours).split(".")[0]
    return first if first in PARTS else None


def every_name(config: BertConfig) -> Iterator[tuple[str, str, str]]:
    """All parameters of a shape with all heads, as (ours, Hugging Face, Google)."""
    every = [*required_shapes(config), *(row.ours for part in PARTS.values() for row in part)]
    for ours in every:
        yield ours, to_huggingface(ours), to_google(ours)[0]


def _shape(row: Row, config: BertConfig, labels: int = 0) -> tuple[int, ...]:
    sizes = {
        "V": config.vocab_size,
        "P": config.max_position_embeddings,
        "S": config.type_vocab_size,
        "D": config.hidden_size,
        "I": config.intermediate_size,
        "K": labels,
        "2": 2,
    }
    return tuple(sizes[axis] for axis in row.shape)


def _look_up(name: str, language: str, table: dict[str, Match]) -> Match | None:
    number = _NUMBER[language].search(name)
    template = name if number is None else name[: number.start()] + "{i}" + name[number.end() :]
    if "{i}" in name or (match := table.get(template)) is None:
        return None
    return match._replace(ours=match.ours.replace("{i}", number[0] if number else ""))


def _row(ours: str) -> tuple[Row, str]:
    full = whole(ours)
    number = _NUMBER["ours"].search(full)
    template = full if number is None else full[: number.start()] + "{i}" + full[number.end() :]
    return _BY_OURS[template], number[0] if number else ""
