"""Conditions on the columns of an index, such as `year >= 2020` or `language = en`.

All values of an index are texts. `<`, `<=`, `>` and `>=` compare numbers if the condition names one (values that are no
numbers do not match), and otherwise texts, which puts ISO dates in order; `=` and `!=` compare texts.
"""

import dataclasses
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from bertsmith.base.core.errors import ConfigError

_COMPARED: Mapping[str, Callable[[Any, Any], Any]] = {
    "!=": pc.not_equal,
    "<=": pc.less_equal,
    ">=": pc.greater_equal,
    "=": pc.equal,
    "<": pc.less,
    ">": pc.greater,
}
_FORM = re.compile(r"\s*(?P<column>[^!<>=]+?)\s*(?P<sign>!=|<=|>=|=|<|>)(?![<>=])\s*(?P<value>.*?)\s*", re.DOTALL)
_NUMBER = r"^\s*[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?\s*$"


@dataclasses.dataclass(frozen=True)
class Condition:
    """A comparison of a column with a value; `sign` is one of = != < <= > >=."""

    column: str
    sign: str
    value: str

    def mask(self, table: pa.Table) -> npt.NDArray[np.bool_]:
        """The rows of a table that match, bool [n]; a missing value matches `!=` alone."""
        column, compare = table[self.column], _COMPARED[self.sign]
        if self.sign in ("=", "!="):
            matches = compare(column, pa.scalar(self.value, column.type))
        elif re.match(_NUMBER, self.value):
            numbers = pc.if_else(pc.match_substring_regex(column, _NUMBER), column, None)
            matches = compare(pc.cast(pc.utf8_trim_whitespace(numbers), pa.float64()), float(self.value))
        else:
            matches = compare(column, pa.scalar(self.value, column.type))
        return np.asarray(pc.fill_null(matches, self.sign == "!=").to_numpy(zero_copy_only=False), dtype=bool)


def conditions(texts: Sequence[str], columns: Sequence[str]) -> list[Condition]:
    """The conditions that texts describe.

    >>> conditions(["year >= 2020"], ["id", "year"])
    [Condition(column='year', sign='>=', value='2020')]

    Args:
        columns: the columns that there are.
    """
    result = []
    for text in texts:
        match = _FORM.fullmatch(text)
        if match is None:
            raise ConfigError(
                expected="a condition such as 'year >= 2020' or 'language = en'",
                found=repr(text),
                fix="compare a column with a value by =, !=, <, <=, > or >=",
            )
        if match["column"] not in columns:
            raise ConfigError.unknown("column of the index", match["column"], columns)
        result.append(Condition(match["column"], match["sign"], match["value"]))
    return result
