"""Builds a head that a user wrote, and refuses what would make a resumed training or a prediction differ."""

from typing import TYPE_CHECKING

from torch import nn

from bertsmith.errors import ConfigError

if TYPE_CHECKING:
    from bertsmith.model.config import EncoderConfig
    from bertsmith.model.heads import OwnHead


def new_own_head(cls: "type[OwnHead]", config: "EncoderConfig", outputs: int) -> "OwnHead":
    """An instance of the user's head.

    Raises:
        ConfigError: it has dropout of its own, no parameters, or state besides them.
    """
    head, name = cls(config, outputs), cls.__name__
    if dropping := [place for place, module in head.named_modules() if _drops(module)]:
        raise ConfigError(
            expected=f"a head without dropout, so that a resumed training repeats: the model applies dropout to what "
            f"{name} receives",
            found=f"dropout in {', '.join(dropping)}",
            fix="remove it, and set the dropout of the model with --dropout (in Python dropout=0.1)",
        )
    parameters = {place for place, _ in head.named_parameters()}
    others = sorted({*head.state_dict(), *(place for place, _ in head.named_buffers())} - parameters)
    if others or not parameters:
        raise ConfigError(
            expected=f"parameters in {name}, each under one name, and no other state",
            found=", ".join(others) or "none",
            fix="remove buffers, batch norms and tied parameters" if others else "build its layers in `__init__`",
        )
    return head


def _drops(module: nn.Module) -> bool:
    """Whether a layer of torch applies dropout in training: the dropout layers, recurrent ones, attention."""
    if isinstance(module, nn.modules.dropout._DropoutNd):
        return module.p > 0
    probability = getattr(module, "dropout", 0.0)
    return isinstance(probability, float) and probability > 0
