"""Settings as frozen dataclasses whose help lines feed the command line and the documentation.

A field's help is written next to the field and nowhere else. Unknown keys are rejected with the nearest known name.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any, TypeVar

from bertsmith.errors import ConfigError, nearest

Settings = TypeVar("Settings")


def help_field(default: Any = dataclasses.MISSING, help: str = "") -> Any:
    """A dataclass field with a help line; without a default the field is required."""
    return dataclasses.field(default=default, metadata={"help": help})


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
        ConfigError: a key is unknown, or a required one is missing.
    """
    fields = {field.name: field for field in _fields(cls)}
    for key in values:
        if key not in fields:
            raise ConfigError(expected=f"known settings in {where}", found=repr(key), fix=nearest(key, fields))
    missing = [
        name
        for name, field in fields.items()
        if name not in values and field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
    ]
    if missing:
        raise ConfigError(expected=f"{', '.join(missing)} in {where}", found="no such key", fix="add it")
    return cls(**{key: tuple(value) if isinstance(value, list) else value for key, value in values.items()})


def require(condition: bool, *, expected: str, found: object, fix: str) -> None:
    """Raises ConfigError with the three parts unless `condition` holds."""
    if not condition:
        raise ConfigError(expected=expected, found=str(found), fix=fix)


def _fields(settings: Any) -> tuple["dataclasses.Field[Any]", ...]:
    return dataclasses.fields(settings)
