"""Which hidden states of a frozen encoder represent a token, and how several are combined into one vector.

Letters: T tokens, L layers, n chosen layers, D width of the encoder.

Hidden state 0 is the embeddings, hidden state L is the last layer's; negative numbers count from the end. A choice
can be made without torch.

Source: Devlin et al. (2019), section 5.3 and table 7; Peters et al. (2018), section 3.2, for the sum that includes the
embeddings.
"""

import dataclasses
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from bertsmith.base.core.errors import ConfigError, nearest
from bertsmith.base.core.settings import require

if TYPE_CHECKING:
    from torch import Tensor

# In the order of the paper's table: the hidden states, and whether they are summed; None for the embeddings and all
# layers, none for all layers.
_NAMED: dict[str, tuple[tuple[int, ...] | None, bool]] = {
    "embeddings": ((0,), False),
    "second-to-last": ((-2,), False),
    "last": ((-1,), False),
    "sum-last-4": ((-4, -3, -2, -1), True),
    "concat-last-4": ((-4, -3, -2, -1), False),
    "sum-all": ((), True),
    "sum-with-embeddings": (None, True),
}
CHOICES = tuple(_NAMED)
_NUMBERS = re.compile(r"\s*-?\d+\s*(,\s*-?\d+\s*)*", re.ASCII)


@dataclasses.dataclass(frozen=True, kw_only=True)
class LayerChoice:
    """Some of the L+1 hidden states, summed or concatenated; created by `layer_choice`.

    Attributes:
        layers: their numbers, from 0 (embeddings) to L, in the order of concatenation.
        is_sum: whether they are summed; otherwise they are concatenated.
    """

    name: str
    layers: tuple[int, ...]
    is_sum: bool = False

    def width(self, hidden_size: int) -> int:
        """The width of a token's vector, for an encoder of width `hidden_size`."""
        return hidden_size if self.is_sum else hidden_size * len(self.layers)

    def pick(self, hidden_states: "Sequence[Tensor]") -> "Tensor":
        """The chosen hidden states [T, n, D] out of all L+1 [T, D]."""
        if len(self.layers) == 1:
            return hidden_states[self.layers[0]].unsqueeze(1)
        import torch

        return torch.stack([hidden_states[layer] for layer in self.layers], dim=1)

    def join(self, picked: "Tensor") -> "Tensor":
        """The vectors [T, width] from chosen hidden states [T, n, D]: their sum or concatenation."""
        return picked.sum(dim=1) if self.is_sum else picked.flatten(1)

    def mix(self, hidden_states: "Sequence[Tensor]") -> "Tensor":
        """The vectors [T, width] from all L+1 hidden states [T, D]."""
        return self.join(self.pick(hidden_states))


def layer_choice(name: str, num_layers: int) -> LayerChoice:
    """The layers given by a name, or by comma-separated numbers (concatenated), for an encoder of L layers.

    Args:
        name: one of `CHOICES`, or numbers from -L-1 to L such as "-1,-2".

    >>> layer_choice("concat-last-4", 12).layers, layer_choice("sum-all", 3).layers, layer_choice("-1, 0", 3).layers
    ((9, 10, 11, 12), (1, 2, 3), (3, 0))
    >>> layer_choice("concat-last-4", 12).width(768)
    3072
    """
    if not isinstance(name, str) or not (name in _NAMED or _NUMBERS.fullmatch(name)):
        raise ConfigError(
            expected="a known choice of layers, or comma-separated layer numbers",
            found=repr(name),
            fix=nearest(name, CHOICES),
        )
    if name in _NAMED:
        named, is_sum = _NAMED[name]
        numbers = tuple(range(num_layers + 1)) if named is None else named
        deepest = -min(numbers, default=0)
        require(
            deepest <= max(num_layers, 1),  # static vectors, without layers, are the last ones
            expected=f"an encoder of at least {deepest} layers for '{name}'",
            found=str(num_layers),
            fix="list the layers by their numbers, such as -1,-2",
        )
        numbers = numbers or tuple(range(1, num_layers + 1)) or (0,)
    else:
        numbers, is_sum = tuple(int(number) for number in name.split(",")), False
    layers = tuple(number + num_layers + 1 if number < 0 else number for number in numbers)
    for number, layer in zip(numbers, layers, strict=True):
        require(
            0 <= layer <= num_layers,
            expected=f"layers from {-num_layers - 1} to {num_layers}, where 0 is the embeddings",
            found=str(number),
            fix="list only layers that the model has",
        )
    require(len(set(layers)) == len(layers), expected="each layer once", found=repr(name), fix="list each layer once")
    return LayerChoice(name=name, layers=layers, is_sum=is_sum)


def choice_of_widths(name: str, widths: Sequence[int]) -> LayerChoice:
    """The choice of layers of an encoder with hidden states of these widths [L+1]; see `layer_choice`.

    Args:
        name: as in `layer_choice`; "" for the sum of all hidden states that have the width of the last one.
    """
    usable = tuple(layer for layer, width in enumerate(widths) if width == widths[-1])
    if not name:
        return LayerChoice(name=name, layers=usable, is_sum=True)
    choice = layer_choice(name, len(widths) - 1)
    require(
        set(choice.layers) <= set(usable),
        expected=f"layers of width {widths[-1]}: {', '.join(map(str, usable))}",
        found=f"{name}, with widths {', '.join(str(widths[layer]) for layer in choice.layers)}",
        fix="list such layers by their numbers",
    )
    return choice
