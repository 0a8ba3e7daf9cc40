"""The base class of user-defined heads, and checks for what would break resuming or prediction.

Letters: R positions that are read, D width, K outputs of a head.
"""

import abc
import inspect
from typing import TYPE_CHECKING, Any

from torch import Tensor, nn

from bertsmith.base.core.errors import ConfigError

if TYPE_CHECKING:
    from bertsmith.models.parts.config import EncoderConfig


class OwnHead(nn.Module, abc.ABC):
    """A head that you write: subclass it, build your layers in `__init__`, return logits from `forward`.

    It replaces the linear layer of any kind of task; the task defines what the rows and columns of its logits mean. Its
    parameters are saved under `own_head.` next to the encoder's, learn at the full learning rate, and are
    initialized like all others: matrices from a truncated normal, biases to 0, layer norms to 1. Weight decay skips
    parameters with "norm" or "bias" in their names.

    The model applies dropout to the hidden states before the head receives them, with noise that is a function of seed,
    step and example. A head has no dropout of its own and no state besides its parameters, and treats each row by
    itself: then a resumed training gives the same bytes as an uninterrupted one, and a prediction does not depend on
    the other texts in its batch.

    Args:
        config: of the encoder; `config.hidden_size` is the width D of the input.
        outputs: K, the number of logits per position.
    """

    def __init__(self, config: "EncoderConfig", outputs: int) -> None:
        super().__init__()
        self.config, self.outputs = config, outputs

    @abc.abstractmethod
    def forward(self, hidden: Tensor) -> Tensor:
        """Logits [R, K] for the hidden states [R, D] at the positions that the task reads, pooled or not.

        Both have the type of the head's parameters, fp32.
        """


def require_own_head(cls: Any) -> type[OwnHead]:
    """The class, if a model can have it as its head."""
    if not (isinstance(cls, type) and issubclass(cls, OwnHead)):
        raise ConfigError(
            expected="a subclass of bertsmith.OwnHead as head",
            found=f"the class {cls.__name__}" if isinstance(cls, type) else f"an object, {cls!r}"[:80],
            fix="derive the class from bertsmith.OwnHead, and pass the class itself",
        )
    if inspect.isabstract(cls):
        raise ConfigError(
            expected="a head with a method `forward`",
            found=f"{cls.__name__} without one",
            fix="return logits [R, K] from forward(self, hidden)",
        )
    return cls


def new_own_head(cls: type[OwnHead], config: "EncoderConfig", outputs: int) -> OwnHead:
    """An instance of the user's head."""
    head, name = cls(config, outputs), cls.__name__
    if dropping := [module_name for module_name, module in head.named_modules() if _drops(module)]:
        raise ConfigError(
            expected=f"a head without dropout, so that a resumed training repeats: the model applies dropout to what "
            f"{name} receives",
            found=f"dropout in {', '.join(dropping)}",
            fix="remove it, and set the dropout of the model with --dropout",
        )
    parameters = {module_name for module_name, _ in head.named_parameters()}
    others = sorted({*head.state_dict(), *(module_name for module_name, _ in head.named_buffers())} - parameters)
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
