"""Settings as frozen dataclasses whose help lines feed the command line and the documentation.

A field's help is written next to the field and nowhere else. Unknown keys are rejected with the nearest known name.
"""

import dataclasses
import math
import numbers
import os
import types
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from bertsmith.base.core.errors import ConfigError, nearest

Settings = TypeVar("Settings")

AUTO, PAPER = "auto", "2018"
# The recipes of `pretrain` and `finetune`, which set what is not given; see docs/decisions/0020-default-recipes.md.
RECIPES = (AUTO, PAPER)

_SHOWN = 60  # characters of a value that a message shows


def help_field(default: Any = dataclasses.MISSING, help: str = "", *, most: float | None = None) -> Any:
    """A dataclass field with a help line; without a default the field is required.

    Args:
        most: the largest value that means anything, see `require_limits`; generous, since it only has to catch typing
            mistakes before they fill the memory.
    """
    return dataclasses.field(default=default, metadata={"help": help, "most": most})


def require_limits(settings: Any) -> None:
    """Checks that every number of a settings object is finite and at most the limit of its field.

    Raises:
        ConfigError: the message names the field.
    """
    for field in _fields(settings):
        value = getattr(settings, field.name)
        if isinstance(value, int | float) and not isinstance(value, bool):
            require_number(field.name, value, most=field.metadata.get("most"))


def require_number(name: str, value: float, *, least: float | None = None, most: float | None = None) -> None:
    """Checks that a number is finite and within limits, both included.

    Raises:
        ConfigError: the message names the number.
    """
    require(_is_number(value), expected=f"a number for {name}", found=f"{value!r}"[:_SHOWN], fix="give a number")
    require(
        isinstance(value, int) or math.isfinite(value), expected=f"a finite {name}", found=value, fix="give a number"
    )
    if least is not None:
        require(value >= least, expected=f"{name} of at least {least:,}", found=f"{value:,}", fix="raise it")
    if most is not None:
        require(value <= most, expected=f"{name} of at most {most:,}", found=f"{value:,}", fix="lower it")


def require_counts(**counts: int | None) -> None:
    """Checks that each count that is given is a whole number of at least 1; None means that it is not given.

    Raises:
        ConfigError: the message names the count.
    """
    for name, count in counts.items():
        if count is not None:
            whole = _fits(count, int)
            require(whole, expected=f"{name} as a whole number", found=f"{count!r}"[:_SHOWN], fix="correct it")
            require_number(name, count, least=1)


def help_lines(settings: type) -> dict[str, str]:
    """The help line of every field of a settings class, by field name."""
    return {field.name: field.metadata.get("help", "") for field in _fields(settings)}


def to_dict(settings: Any) -> dict[str, Any]:
    """The fields of a settings object as plain values for JSON."""
    return dataclasses.asdict(settings)


def from_dict(cls: type[Settings], values: Mapping[str, Any], where: str) -> Settings:
    """A settings object from plain values; lists become tuples.

    Args:
        values: field names and values, as `to_dict` returns them.
        where: where the values came from, for the error message, e.g. "RUN/settings.json".

    Raises:
        ConfigError: a key is unknown, a required one is missing, or a value has the wrong type.
    """
    if not isinstance(values, Mapping):
        raise ConfigError(expected=f"settings in {where}", found=f"{values!r}"[:_SHOWN], fix="restore the file")
    fields = {field.name: field for field in _fields(cls)}
    for key in values:
        if key not in fields:
            raise ConfigError(expected=f"known settings in {where}", found=repr(key), fix=nearest(key, fields))
        _require_type(f"{key} in {where}", values[key], fields[key].type)
    missing = [
        name
        for name, field in fields.items()
        if name not in values and field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
    ]
    if missing:
        raise ConfigError(expected=f"{', '.join(missing)} in {where}", found="no such key", fix="add it")
    return cls(**{key: tuple(value) if isinstance(value, list) else value for key, value in values.items()})


def split_settings(values: Mapping[str, Any], classes: Sequence[type]) -> dict[type, dict[str, Any]]:
    """The values for each settings class, by its field names; a path is given as text.

    Raises:
        ConfigError: no class has a field of that name, or the value has the wrong type.
    """
    values = {name: os.fspath(value) if isinstance(value, os.PathLike) else value for name, value in values.items()}
    kinds = {cls: {field.name: field.type for field in _fields(cls)} for cls in classes}
    known = {name: kind for fields in kinds.values() for name, kind in fields.items()}
    for name, value in values.items():
        if name not in known:
            raise ConfigError(expected="a known setting", found=repr(name), fix=nearest(name, known))
        _require_type(name, value, known[name])
    return {cls: {name: values[name] for name in fields if name in values} for cls, fields in kinds.items()}


def require_recipe(name: str, known: Sequence[str] = RECIPES) -> str:
    """The name of a recipe, checked.

    Args:
        known: the recipes that there are.

    Raises:
        ConfigError: there is no such recipe.
    """
    if name not in known:
        listed = f"{', '.join(known[:-1])} or {known[-1]}"
        raise ConfigError(expected=f"a recipe: {listed}", found=repr(name), fix=nearest(str(name), known))
    return name


def require(condition: bool, *, expected: str, found: object, fix: str) -> None:
    """Raises ConfigError with the three parts unless `condition` holds."""
    if not condition:
        raise ConfigError(expected=expected, found=str(found), fix=fix)


def is_finite(value: object) -> bool:
    """Whether a value, such as one from a file, is a finite number."""
    return _is_number(value) and math.isfinite(value)  # type: ignore[arg-type]


def require_labels(labels: Sequence[object], what: str) -> None:
    """Checks that labels are different texts.

    Raises:
        ConfigError: one is not; the message names it.
    """
    wrong = next((label for label in labels if not isinstance(label, str)), None)
    require(wrong is None, expected=f"texts as {what}", found=repr(wrong)[:_SHOWN], fix="restore the file")
    twice = next((label for label, count in Counter(labels).items() if count > 1), None)
    require(twice is None, expected=f"different names as {what}", found=f"{twice!r} twice"[:_SHOWN], fix="rename one")


def _require_type(name: str, value: Any, kind: Any) -> None:
    """Raises ConfigError unless a value can be that of a field with this annotation."""
    if not _fits(value, kind):
        raise ConfigError(expected=f"{name} to be {_in_words(kind)}", found=f"{value!r}"[:_SHOWN], fix="correct it")


def _is_number(value: object) -> bool:
    """Whether it is a number of Python or NumPy."""
    return isinstance(value, numbers.Real) and not isinstance(value, bool)


def _fits(value: Any, kind: Any) -> bool:
    """Whether a plain value can be that of a field with this annotation; True for annotations that are not plain."""
    if isinstance(kind, types.UnionType):
        return any(_fits(value, one) for one in kind.__args__)
    if kind is None or kind is types.NoneType:
        return value is None
    if kind is float:
        return isinstance(value, int | float) and not isinstance(value, bool)
    if kind in (int, str, bool):
        return type(value) is kind
    return True


def _in_words(kind: Any) -> str:
    return str(getattr(kind, "__name__", kind)).replace(" | ", " or ")


def _fields(settings: Any) -> tuple["dataclasses.Field[Any]", ...]:
    return dataclasses.fields(settings)
