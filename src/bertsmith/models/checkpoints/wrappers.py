"""State dicts saved from inside a training wrapper, whose names have its prefix in front of the model's own.

`DistributedDataParallel` adds "module.", `torch.compile` adds "_orig_mod.", and a program that holds the model as an
attribute adds its name, such as "model." or "encoder.". The names are otherwise the model's.
"""

from collections.abc import Mapping
from typing import TypeVar

from bertsmith.models.parts.parameter_names import ParameterNames

_OF_TORCH = frozenset({"module", "_orig_mod"})  # at any depth, since parts of a model can be wrapped as well
Value = TypeVar("Value")


def without_wrappers(stored: Mapping[str, Value], names: ParameterNames) -> tuple[dict[str, Value], list[str]]:
    """The stored values by the names of the model itself, and a note if prefixes were removed.

    A prefix of an attribute is removed if all names have it and more names are known without it. Nothing is removed if
    two names would become the same.
    """
    originals = {".".join(part for part in name.split(".") if part not in _OF_TORCH): name for name in stored}
    if len(originals) < len(stored):
        return dict(stored), []
    while len({name.partition(".")[0] for name in originals}) == 1 and all("." in name for name in originals):
        shorter = {name.partition(".")[2]: original for name, original in originals.items()}
        if _known(shorter, names) <= _known(originals, names):
            break
        originals = shorter
    removed = sorted({original.removesuffix(name) for name, original in originals.items() if name != original})
    if not removed:
        return dict(stored), []
    prefix = removed[0] if len(removed) == 1 else ", ".join(f"{name}." for name in sorted(_OF_TORCH))
    return (
        {name: stored[original] for name, original in originals.items()},
        [f"names are read without the prefix {prefix!r} of a training wrapper"],
    )


def _known(originals: Mapping[str, str], names: ParameterNames) -> int:
    return sum(names.from_huggingface(name, stored=originals) is not None for name in originals)
