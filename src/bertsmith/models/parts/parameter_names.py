"""A table of parameter names (ours, Hugging Face's and Google's), shapes, and which matrices are stored transposed.

Axes: V vocabulary, P positions, S segments, D width, E width of the embeddings, I feed-forward width, K labels (any
number), and axes that only one architecture has (`EncoderConfig.axes`).
An architecture has one `ParameterNames`. No file is touched in this module.
"""

import dataclasses
import functools
import math
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from bertsmith.models.parts.head_inputs import HIDDEN_UNITS
from bertsmith.models.parts.part_names import BLOCKS, DECODER, OWN_HEAD, READER, part_of, with_prefix

if TYPE_CHECKING:
    from bertsmith.models.parts.config import EncoderConfig


class Row(NamedTuple):
    """One parameter under its three names; `{i}` is the number of a layer, from 0.

    `shape` is our shape: a letter for each axis (`EncoderConfig.axes`, and K for labels), or a digit for its size.
    `google` is empty if Google has no such model. `transposed` says that Google stores the matrix as [in, out], as do
    architectures with `is_transposed`.
    """

    ours: str
    huggingface: str
    shape: str
    google: str = ""
    transposed: bool = False


class Match(NamedTuple):
    """Our name for a stored name.

    `copy` is True for a second name of the same values: the decoder of the masked-LM head is the word table.
    """

    ours: str
    transposed: bool = False
    copy: bool = False


class Skip(NamedTuple):
    """The reason why a stored name is skipped on purpose."""

    reason: str


# The number of a layer: no sign, no leading zero, at most three digits.
_NUMBER = re.compile(r"\.(0|[1-9][0-9]{0,2})\.")
_OLD_NORM = {"LayerNorm.gamma": "LayerNorm.weight", "LayerNorm.beta": "LayerNorm.bias"}
_OF_NO_OTHER_LIBRARY = (OWN_HEAD, BLOCKS, READER, DECODER)  # parts that keep our names, and our layout, in every folder
# What their names begin with; `decoder.bias` of other libraries is an output layer.
_OURS = (
    *(f"{part}." for part in _OF_NO_OTHER_LIBRARY[:-1]),
    *(f"{DECODER}.{part}." for part in ("layers", "final_norm", "head", "copy")),
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class ParameterNames:
    """The names of the parameters of one architecture.

    Attributes:
        prefix: Hugging Face's prefix of the encoder's names, such as "bert."; a bare encoder is saved without it.
        class_prefix: the prefix of its class names in `transformers`, such as "Bert".
        parts: the parameters of the pooler and the heads; a checkpoint contains a part completely or not at all.
        copies: Hugging Face name of a second copy to our name of the parameter that it repeats.
        buffers: Hugging Face names, without the prefix, that are not parameters.
        variants: for a class of `transformers` (without its prefix), the names that differ there: ours to Hugging
            Face's.
        sizes: the sizes of further axes of the parameters in `layer`, given the number of a layer; for architectures
            whose layers differ.
        is_transposed: whether Hugging Face, too, stores the matrices of linear layers as [in, out].
        fused: the end of the Hugging Face name of layers that are stored as one, side by side, to what is added to the
            name of each of them here.
        starts_as: a parameter that a new head trains to the one that it starts as, where a checkpoint has that one
            instead; both by our name.
        without_bias: the Hugging Face name of the matrix of an output layer to the name that its bias would have, for
            layers that have none there; here it is zero.
        absent: whether a parameter (our name, with the number of its layer) does not exist in a model of this shape.
        unused: names in folders that are skipped on purpose, each with the reason.
        older_prefixes: of the encoder's names in older checkpoints.
        modules: the parts of names in folders to those of the modules of `transformers`, where these are others, with
            the layers of a fused one apart.
        classes: BERT's name of a class of `transformers` to the name here, without the prefix; the bare encoder for one
            that is not in it. None: the same names.
    """

    prefix: str
    class_prefix: str
    embeddings: tuple[Row, ...]
    layer: tuple[Row, ...]
    parts: Mapping[str, tuple[Row, ...]]
    copies: Mapping[str, str]
    buffers: Collection[str] = ("embeddings.position_ids", "embeddings.token_type_ids")
    variants: Mapping[str, Mapping[str, str]] = dataclasses.field(default_factory=dict)
    sizes: "Callable[[EncoderConfig, int], Mapping[str, int]] | None" = None
    is_transposed: bool = False
    fused: Mapping[str, tuple[str, ...]] = dataclasses.field(default_factory=dict)
    starts_as: Mapping[str, str] = dataclasses.field(default_factory=dict)
    without_bias: Mapping[str, str] = dataclasses.field(default_factory=dict)
    absent: "Callable[[EncoderConfig, str], bool] | None" = None
    unused: Mapping[str, str] = dataclasses.field(default_factory=dict)
    older_prefixes: tuple[str, ...] = ()
    modules: Mapping[str, str] = dataclasses.field(default_factory=dict)
    classes: Mapping[str, str] | None = None

    def rows(self) -> Iterator[Row]:
        """All rows of the table."""
        yield from (*self.embeddings, *self.layer, *(row for part in self.parts.values() for row in part))

    def from_huggingface(self, name: str, stored: Collection[str] = (), declared: str = "") -> Match | Skip | None:
        """Our name for a Hugging Face name; None for an unknown one. The prefix of the encoder may be absent.

        The names of modules of `transformers` are read as well.

        Args:
            stored: all names of the checkpoint, which identify the variant.
            declared: the class of `transformers` that the checkpoint names, which identifies a variant without names of
                its own.
        """
        if name.startswith(_OURS):
            return Match(name)
        for older in self.older_prefixes:
            name = self.prefix + name.removeprefix(older) if name.startswith(older) else name
        name = self.from_module(name)
        full = name if name.startswith(self.prefix) or not self._is_bare(name) else self.prefix + name
        if _split(full)[0].removeprefix(self.prefix) in self.buffers:
            return Skip("a buffer, not a parameter")
        if reason := self.unused.get(full):
            return Skip(reason)
        for old, new in _OLD_NORM.items():
            if full.endswith(old):
                full = full.removesuffix(old) + new
        for kind, names in self.variants.items():
            only_in_variant = set(names.values()) - self._by_huggingface.keys()
            if not only_in_variant & set(stored) and (only_in_variant or declared != self.class_prefix + kind):
                continue
            by_name = {theirs: ours for ours, theirs in names.items()}
            if full in by_name:
                return Match(by_name[full])
            if any(self._spelled(ours) == full for ours in names):
                return Skip("a part that the head of this model does not use")
        if full in self.copies:
            return Match(self.copies[full], copy=True)
        template, number = _split(full)
        ours = self._by_huggingface.get(template)
        if ours is None or "{i}" in full:
            return None
        return Match(ours.replace("{i}", number), self.is_transposed and self._by_ours[ours].transposed)

    @property
    def has_pooler(self) -> bool:
        """Whether the bare encoder has a pooler there."""
        return any(row.huggingface.startswith(self.prefix) for row in self.parts.get("pooler", ()))

    def transposes(self, ours: str) -> bool:
        """Whether Hugging Face stores the transpose of one of our parameters."""
        return self.is_transposed and part_of(ours) not in _OF_NO_OTHER_LIBRARY and self.row_of(ours)[0].transposed

    def class_named(self, kind: str) -> str:
        """The class of `transformers` for what BERT's classes call `kind`, such as "ForMaskedLM"."""
        return self.class_prefix + (kind if self.classes is None else self.classes.get(kind, "Model"))

    def to_huggingface(self, ours: str, architecture: str = "") -> str:
        """The Hugging Face name of one of our parameters.

        Args:
            architecture: the class of `transformers` that will read it; a bare encoder has no prefix.
        """
        full = with_prefix(ours)
        kind = architecture.removeprefix(self.class_prefix)
        result = self.variants.get(kind, {}).get(full) or self._spelled(full)
        return result.removeprefix(self.prefix) if kind == "Model" else result

    def required_shapes(self, config: "EncoderConfig") -> dict[str, tuple[int, ...]]:
        """The shapes of the parameters that every checkpoint must contain, by our name: embeddings and layers."""
        rows = [row for row in self.embeddings if row.shape[0] != "P" or config.position_embedding_type == "absolute"]
        shapes = {row.ours: _shape(row, config) for row in rows}
        for layer in range(config.num_distinct_layers):
            more = {} if self.sizes is None else self.sizes(config, layer)
            shapes |= {row.ours.replace("{i}", str(layer)): _shape(row, config, more=more) for row in self.layer}
        return {name: shape for name, shape in shapes.items() if self.absent is None or not self.absent(config, name)}

    def count(self, config: "EncoderConfig", *, pooler: bool, heads: bool) -> int:
        """The number of parameters of a model of this shape; see `EncoderConfig.num_parameters`."""
        parts = [part for part, is_there in (("pooler", pooler), ("mlm", heads)) if is_there]
        shapes = [*self.required_shapes(config).values()]
        shapes += [shape for part in parts for shape in self.part_shapes(part, config, 0).values()]
        return sum(map(math.prod, shapes))

    def part_shapes(
        self, part: str, config: "EncoderConfig", labels: int, vectors_of_row: int = 1
    ) -> dict[str, tuple[int, ...]]:
        """The shapes of the parameters of one part, by our name.

        Args:
            vectors_of_row: the number of concatenated vectors of the encoder's width that a classifier reads.
        """
        shapes = {row.ours: _shape(row, config, labels) for row in self.parts[part]}
        if "classifier.weight" in shapes:
            shapes["classifier.weight"] = (labels, config.hidden_size * vectors_of_row)
        return shapes

    def row_of(self, ours: str) -> tuple[Row, str]:
        """The row of one of our parameters, and the number of its layer."""
        full = with_prefix(ours)
        template, number = (full, "") if full in self._by_ours else _split(full)
        return self._by_ours[template], number

    def to_module(self, name: str) -> str:
        """The name of a module or parameter of `transformers`, from that in folders, with fused layers apart."""
        return _with_parts(name, self.modules)

    def from_module(self, name: str) -> str:
        """The name in folders, with fused layers apart, from that of a module or parameter of `transformers`."""
        return _with_parts(name, {module: part for part, module in self.modules.items()})

    @functools.cached_property
    def _by_ours(self) -> dict[str, Row]:
        return {row.ours: row for row in self.rows()}

    @functools.cached_property
    def _by_huggingface(self) -> dict[str, str]:
        return {row.huggingface: row.ours for row in self.rows()}

    def _spelled(self, ours: str) -> str:
        if part_of(ours) in _OF_NO_OTHER_LIBRARY:
            return ours
        row, number = self.row_of(ours)
        return row.huggingface.replace("{i}", number)

    def _is_bare(self, name: str) -> bool:
        starts = {row.huggingface.removeprefix(self.prefix).split(".")[0] for row in (*self.embeddings, *self.layer)}
        if self.has_pooler:
            starts.add("pooler")
        return name.split(".", maxsplit=1)[0] in starts


def block_shapes(width: int) -> dict[str, tuple[int, ...]]:
    """The shapes of the hidden layer of a head that reads vectors of this width, the same for all architectures."""
    norms = {"norm": width, "hidden_norm": HIDDEN_UNITS}
    shapes: dict[str, tuple[int, ...]] = {
        f"{BLOCKS}.{name}.{kind}": (size,) for name, size in norms.items() for kind in ("weight", "bias")
    }
    return shapes | {f"{BLOCKS}.hidden.weight": (HIDDEN_UNITS, width), f"{BLOCKS}.hidden.bias": (HIDDEN_UNITS,)}


def dense(ours: str, huggingface: str, shape: str, google: str = "") -> tuple[Row, Row]:
    """The rows of a linear layer."""
    return (
        Row(f"{ours}.weight", f"{huggingface}.weight", shape, google and f"{google}/kernel", True),
        Row(f"{ours}.bias", f"{huggingface}.bias", shape[0], google and f"{google}/bias"),
    )


def layer_norm(ours: str, huggingface: str, google: str = "", shape: str = "D") -> tuple[Row, Row]:
    """The rows of a layer norm."""
    return (
        Row(f"{ours}.weight", f"{huggingface}.weight", shape, google and f"{google}/gamma"),
        Row(f"{ours}.bias", f"{huggingface}.bias", shape, google and f"{google}/beta"),
    )


def output(ours: str, huggingface: str, shape: str, google: str | None = None) -> tuple[Row, Row]:
    """The rows of an output layer, whose matrix Google stores as [out, in]."""
    weight, bias = ("", "") if google is None else (f"{google}output_weights", f"{google}output_bias")
    return (
        Row(f"{ours}.weight", f"{huggingface}.weight", shape, weight),
        Row(f"{ours}.bias", f"{huggingface}.bias", shape[0], bias),
    )


def _with_parts(name: str, parts: Mapping[str, str]) -> str:
    """A name with parts of it replaced; not inside of a new part that is already there.

    >>> [_with_parts(name, {"layers": "encoder.layers"}) for name in ("layers.0.mlp", "encoder.layers.0")]
    ['encoder.layers.0.mlp', 'encoder.layers.0']
    >>> _with_parts("encoder.layers.0", {"encoder.layers": "layers"})
    'layers.0'
    """
    text = f".{name}."
    for old, new in parts.items():
        text = text if old in new and f".{new}." in text else text.replace(f".{old}.", f".{new}.")
    return text[1:-1]


def _split(name: str) -> tuple[str, str]:
    """The name with `{i}` in place of its layer number, and the number, which is "" if there is none."""
    match = _NUMBER.search(name)
    return (name, "") if match is None else (name[: match.start(1)] + "{i}" + name[match.end(1) :], match[1])


def _shape(
    row: Row, config: "EncoderConfig", labels: int = 0, more: Mapping[str, int] = MappingProxyType({})
) -> tuple[int, ...]:
    sizes = {**config.axes, "K": labels, **more}
    return tuple(int(axis) if axis.isdigit() else sizes[axis] for axis in row.shape)
