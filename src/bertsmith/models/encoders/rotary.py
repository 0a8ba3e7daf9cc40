"""Configuration and parameter names that encoders with rotary positions and gated feed-forward networks share.

Source: Su et al. (2021), "RoFormer: Enhanced Transformer with Rotary Position Embedding"; Shazeer (2020), "GLU Variants
Improve Transformer".
"""

import dataclasses
from collections.abc import Mapping
from typing import Any, ClassVar, Self

from bertsmith.base.core.errors import ConfigError
from bertsmith.base.core.settings import help_field, require, require_number
from bertsmith.models.parts.config import LINEAR_LAYERS, EncoderConfig
from bertsmith.models.parts.parameter_names import Row

# The classes of `transformers` with BERT's names; it has none for choices and for questions.
CLASSES = {name: name for name in ("ForMaskedLM", "ForSequenceClassification", "ForTokenClassification")}
_SHAPES = dict(zip(LINEAR_LAYERS, ("DD", "CD", "CD", "DD", "ID", "ID", "DI"), strict=True))


@dataclasses.dataclass(frozen=True, kw_only=True)
class RotaryConfig(EncoderConfig):
    """The shape of an encoder whose layers all have the same rotary positions, and gates."""

    has_pooler: ClassVar[bool] = False
    is_gated: ClassVar[bool] = True
    gates_apart: ClassVar[bool] = True
    fixed: ClassVar[Mapping[str, Any]] = {"partial_rotary_factor": None}
    omitted: ClassVar[frozenset[str]] = frozenset({"position_embedding_type", "is_causal", "rope_factor"})

    position_embedding_type: str = help_field(
        "none", "positions: none in the embeddings, as they turn queries and keys"
    )
    rope_theta: float = help_field(10000.0, "base of the rotary positions")
    rope_factor: float = help_field(1.0, "what rotary positions are divided by")

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("rope_theta", "rope_factor"):
            require_number(name, getattr(self, name), above=0)
        require(
            self.head_size % 2 == 0,
            expected="heads of an even width, for rotary positions",
            found=self.head_size,
            fix="change hidden_size or num_attention_heads",
        )

    def rotary_base_of(self, layer: int) -> float:
        """See `EncoderConfig`."""
        return self.rope_theta

    @property
    def rotary_factor(self) -> float:
        """See `EncoderConfig`."""
        return self.rope_factor

    @property
    def axes(self) -> dict[str, int]:
        """See `EncoderConfig`; C width of keys and values."""
        return super().axes | {"C": self.key_width}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """The configuration in a `config.json`, with the fields of `transformers` 4 or 5."""
        values = dict(values)
        rope = values.get("rope_scaling") or values.get("rope_parameters") or {}
        scaled = ("linear", *cls.rope_kinds())
        kind = rope.get("rope_type", rope.get("type", "default")) if isinstance(rope, Mapping) else None
        known = {"rope_type", "type", "rope_theta", *(("factor",) if kind in scaled else ())}
        if kind not in ("default", *scaled) or set(rope) - known or (kind in scaled and rope.get("factor") is None):
            raise ConfigError(
                expected=f"rotary positions of a {cls.display_name}: a rope_theta, and a rope_type default, or "
                f"{' or '.join(scaled)} with a factor",
                found=repr(rope)[:80],
                fix="use another model",
            )
        if rope.get("rope_theta") is not None:
            values["rope_theta"] = rope["rope_theta"]
        result = super().from_dict(values)
        if values.get("head_dim") not in (None, result.head_size):
            raise ConfigError(
                expected=f"head_dim {result.head_size}, the hidden size divided by the heads",
                found=repr(values["head_dim"])[:60],
                fix="use another model",
            )
        if kind == "default":
            return result
        require_number("factor", rope["factor"], above=0)
        theta, divisor = cls.scaled(kind, rope["factor"], result)
        return dataclasses.replace(result, rope_theta=theta, rope_factor=divisor)

    @classmethod
    def rope_kinds(cls) -> tuple[str, ...]:
        """The kinds of scaled positions that only this architecture has."""
        return ()

    @classmethod
    def scaled(cls, kind: str, factor: float, config: Self) -> tuple[float, float]:
        """The base of the rotary positions of a configuration, scaled by a factor, and what they are divided by."""
        return config.rope_theta, float(factor)

    def to_dict(self) -> dict[str, Any]:
        """Plain values for `config.json`."""
        values = super().to_dict()
        if self.rope_factor != 1:
            scaled = {"rope_type": "linear", "rope_theta": self.rope_theta, "factor": self.rope_factor}
            values["rope_parameters"] = scaled
        return values


def layer_rows(
    config: type[EncoderConfig], layer: str, parts: Mapping[str, str], norms: tuple[str, str]
) -> tuple[Row, ...]:
    """The parameters of one layer.

    Args:
        layer: Hugging Face's name of a layer, with `{i}` for its number.
        parts: its name of each linear layer, by ours.
        norms: its names of the norms of attention and of the feed-forward network.
    """
    rows = []
    for ours, theirs in parts.items():
        kinds = {"weight": _SHAPES[ours]} | ({} if ours in config.without_bias else {"bias": _SHAPES[ours][0]})
        rows += [Row(f"bert.layers.{{i}}.{ours}.{kind}", f"{layer}.{theirs}.{kind}", kinds[kind]) for kind in kinds]
    for ours, theirs in zip(("attention_norm", "output_norm"), norms, strict=True):
        for kind in ("weight", "bias") if config.centers_norms else ("weight",):
            rows.append(Row(f"bert.layers.{{i}}.{ours}.{kind}", f"{layer}.{theirs}.{kind}", "D"))
    return tuple(rows)
