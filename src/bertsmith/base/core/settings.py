"""Settings as frozen dataclasses whose help lines feed the command line and the documentation.

A field's help is written next to the field and nowhere else. Unknown keys are rejected with the nearest known name.
"""

import dataclasses
import math
import numbers
import os
import types
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, TypeVar, get_args, get_origin

from bertsmith.base.core.errors import ConfigError, brief_repr

Settings = TypeVar("Settings")

AUTO, PAPER = "auto", "2018"
# The recipes of `pretrain` and `finetune`, which set what is not given; see docs/decisions/0020-default-recipes.md.
RECIPES = (AUTO, PAPER)

_KINDS = {int: "a whole number", float: "a number", str: "a text", bool: "true or false", Path: "a path"}


@dataclasses.dataclass(frozen=True)
class Help:
    """What the command line, settings files and docs say about a field.

    Attributes:
        help: one line.
        least, most: limits, both included; the largest value is generous, since it only has to catch typing mistakes
            before they fill the memory. With `least` the command line checks them too.
        above, below: limits that are not included.
        choices: the values that it can have.
        flag: the option, where it is not the name of the field; without hyphens, the name of a positional argument.
        metavar: how the value is shown.
        kind: the type on the command line, where it is not that of the field.
        path: the value is a path; a text says how messages call it.
        address: what happens to an address, see `requests.COPIED`; by default it is refused.
        table: the value may also be a table in memory, of which the request has the path of a file with its rows.
        library: the help in the library, where that takes another value.
        no_setting: no setting of a file, such as a Python class.
        in_library_only: neither an option of the command line nor a setting of a file.
        required: the command line requires it, although the library has a default.
    """

    help: str = ""
    _: dataclasses.KW_ONLY
    least: float | None = None
    most: float | None = None
    above: float | None = None
    below: float | None = None
    choices: Sequence[str] = ()
    flag: str | None = None
    metavar: str | None = None
    kind: Any = None
    path: str | bool = False
    address: str | None = None
    table: bool = False
    library: str | None = None
    no_setting: bool = False
    in_library_only: bool = False
    required: bool = False


def help_field(default: Any, help: str, **about: Any) -> Any:
    """A dataclass field with its default and a help line; `about` are the other attributes of `Help`."""
    return dataclasses.field(default=default, metadata={"about": Help(help=help, **about)})


def field_help(field: "dataclasses.Field[Any]") -> Help:
    """The help of a field; that of a field without a default is in its annotation."""
    marks = (field.metadata.get("about"), *getattr(field.type, "__metadata__", ()))
    return next((mark for mark in marks if isinstance(mark, Help)), Help(help=field.metadata.get("help", "")))


def require_limits(settings: Any) -> None:
    """Checks that every number of a settings object is finite, and that its values are those its fields allow."""
    for field in _fields(settings):
        require_allowed(field, getattr(settings, field.name))


def require_allowed(field: "dataclasses.Field[Any]", value: Any) -> None:
    """Checks that a value of a field is a finite number within its limits or one of its choices, if it has those."""
    about = field_help(field)
    if _is_number(value) or about.least is not None:
        limits = {name: getattr(about, name) for name in ("least", "most", "above", "below")}
        require_number(field.name, value, **limits)
    if about.choices and value is not None:
        require_known(about.flag or field.name, value, about.choices)


def require_number(
    name: str,
    value: float | None,
    *,
    least: float | None = None,
    most: float | None = None,
    above: float | None = None,
    below: float | None = None,
) -> None:
    """Checks that a number is finite and within limits, `least` and `most` included; None means that it is not set."""
    if value is None:
        return
    if not _is_number(value):
        raise ConfigError.must_be(name, "a number", value)
    is_finite = isinstance(value, int) or math.isfinite(value)
    if not (
        is_finite
        and (least is None or value >= least)
        and (above is None or value > above)
        and (most is None or value <= most)
        and (below is None or value < below)
    ):
        bounds = {"at least": least, "above": above, "at most": most, "below": below}
        limits = " and ".join(f"{word} {bound:,}" for word, bound in bounds.items() if bound is not None)
        finite = "" if is_finite or not (most is None and below is None) else "a finite number "
        raise ConfigError.must_be(name, f"{finite}{limits}".strip(), value)


def require_counts(**counts: int | None) -> None:
    """Checks that each count is a whole number of at least 1; None means that it is not set."""
    for name, count in counts.items():
        if count is not None and not _fits(count, int):
            raise ConfigError.must_be(name, "a whole number", count)
        require_number(name, count, least=1)


def require_known(kind: str, name: object, known: Collection[str]) -> None:
    """Checks that a name is among the known ones of its kind."""
    if name not in known:
        raise ConfigError.unknown(kind, name, known)


def to_dict(settings: Any) -> dict[str, Any]:
    """The fields of a settings object as plain values for JSON."""
    return dataclasses.asdict(settings)


def from_dict(cls: type[Settings], values: Mapping[str, Any], where: str) -> Settings:
    """A settings object from plain values; lists become tuples."""
    if not isinstance(values, Mapping):
        raise ConfigError(expected=f"settings in {where}", found=brief_repr(values), fix="restore the file")
    fields = {field.name: field for field in _fields(cls)}
    for key in values:
        if key not in fields:
            raise ConfigError.unknown(f"setting in {where}:", key, fields)
        require_type(f"{key} in {where}", values[key], fields[key].type)
    missing = [
        name
        for name, field in fields.items()
        if name not in values and field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
    ]
    if missing:
        raise ConfigError(expected=f"{', '.join(missing)} in {where}", found="no such key", fix="add it")
    return cls(**{key: tuple(value) if isinstance(value, list) else value for key, value in values.items()})


def split_settings(values: Mapping[str, Any], classes: Sequence[type]) -> dict[type, dict[str, Any]]:
    """The values for each settings class, by its field names; a path is given as text."""
    values = {name: os.fspath(value) if isinstance(value, os.PathLike) else value for name, value in values.items()}
    kinds = {cls: {field.name: field.type for field in _fields(cls)} for cls in classes}
    known = {name: kind for fields in kinds.values() for name, kind in fields.items()}
    for name, value in values.items():
        if name not in known:
            raise ConfigError.unknown("setting", name, known)
        require_type(name, value, known[name])
    return {cls: {name: values[name] for name in fields if name in values} for cls, fields in kinds.items()}


def require_recipe(name: str, known: Sequence[str] = RECIPES) -> str:
    """The name of a recipe, checked."""
    require_known("recipe", name, known)
    return name


def require(condition: bool, *, expected: str, found: object, fix: str) -> None:
    """Raises ConfigError with the three parts unless `condition` holds."""
    if not condition:
        raise ConfigError(expected=expected, found=str(found), fix=fix)


def require_other(condition: bool, option: str, other: str, fix: str = "") -> None:
    """Raises ConfigError unless `condition` holds: an option needs another one."""
    if not condition:
        raise ConfigError.needs(option, other, fix)


def require_value(condition: bool, name: str, limits: str, value: object, fix: str = "") -> None:
    """Raises ConfigError unless `condition` holds: a value must be another one."""
    if not condition:
        raise ConfigError.must_be(name, limits, value, fix)


def is_finite(value: object) -> bool:
    """Whether a value, such as one from a file, is a finite number."""
    return _is_number(value) and math.isfinite(value)  # type: ignore[arg-type]


def require_labels(labels: Sequence[object], role: str) -> None:
    """Checks that labels are different texts."""
    wrong = next((label for label in labels if not isinstance(label, str)), None)
    require(wrong is None, expected=f"texts as {role}", found=brief_repr(wrong), fix="restore the file")
    twice = next((label for label, count in Counter(labels).items() if count > 1), None)
    require(twice is None, expected=f"different names as {role}", found=f"{brief_repr(twice)} twice", fix="rename one")


def require_type(name: str, value: Any, kind: Any) -> None:
    """Raises ConfigError unless a value can be that of a field with this annotation."""
    if not _fits(value, kind):
        raise ConfigError.must_be(name, _in_words(kind), value)


def _is_number(value: object) -> bool:
    """Whether a value is a number of Python or NumPy."""
    return isinstance(value, numbers.Real) and not isinstance(value, bool)


def _fits(value: Any, kind: Any) -> bool:
    """Whether a plain value can be that of a field with this annotation; True for annotations that are not plain."""
    if get_origin(kind) is Annotated:
        return _fits(value, get_args(kind)[0])
    if isinstance(kind, types.UnionType):
        return any(_fits(value, member) for member in kind.__args__)
    if get_origin(kind) is Sequence:
        return isinstance(value, list | tuple) and all(_fits(item, *get_args(kind)) for item in value)
    if get_origin(kind) is Mapping:
        members = get_args(kind)
        return isinstance(value, Mapping) and all(all(map(_fits, item, members)) for item in value.items())
    if kind is Path:
        return isinstance(value, os.PathLike)
    if kind is None or kind is types.NoneType:
        return value is None
    if kind is float:
        return isinstance(value, int | float) and not isinstance(value, bool)
    if kind is str:
        return isinstance(value, str)  # NumPy's texts too
    if kind in (int, bool):
        return type(value) is kind
    return True


def _in_words(kind: Any) -> str:
    """What a value can be, in words.

    >>> _in_words(int | str | None), _in_words(Sequence[str])
    ('a whole number or a text', 'a list, each item a text')
    """
    if get_origin(kind) is Annotated:
        return _in_words(get_args(kind)[0])
    if isinstance(kind, types.UnionType):
        return " or ".join(_in_words(member) for member in kind.__args__ if member is not types.NoneType)
    if get_origin(kind) is Sequence:
        return f"a list, each item {_in_words(*get_args(kind))}"
    if get_origin(kind) is Mapping:
        return "a map from {} to {}".format(*map(_in_words, get_args(kind)))
    return _KINDS.get(kind, getattr(kind, "__name__", str(kind)))


def _fields(settings: Any) -> tuple["dataclasses.Field[Any]", ...]:
    return dataclasses.fields(settings)


def flat(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested settings flattened to dotted names, with tuples as lists, as in JSON."""
    leaves: dict[str, Any] = {}
    for key, value in values.items():
        if isinstance(value, Mapping):
            leaves |= flat(value, f"{prefix}{key}.")
        else:
            leaves[f"{prefix}{key}"] = list(value) if isinstance(value, tuple) else value
    return leaves
