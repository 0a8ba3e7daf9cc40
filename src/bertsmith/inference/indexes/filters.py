"""Conditions on the columns of an index, such as `year >= 2020` or `language = en`.

All values of an index are texts. Two numbers are compared as numbers, so that `price = 100` finds 100.00, and anything
else as text, upper and lower case apart, which puts ISO dates in order. A missing value is an empty text; it is neither
less nor greater than any value.
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
_ORDER = ("<", "<=", ">", ">=")
_FORM = re.compile(
    r"\s*(?P<column>[^!<>=]+?)\s*(?P<sign>!=|<=|>=|=|<|>)\s*"
    r"""(?:'(?P<single>[^']*)'|"(?P<double>[^"]*)"|(?P<plain>[^!<>='"]*?))\s*"""
)
_NUMBER = r"^\s*[+-]?(\d{1,40}(\.\d{0,40})?|\.\d{1,40})([eE][+-]?\d{1,2})?\s*$"


@dataclasses.dataclass(frozen=True)
class Condition:
    """A comparison of a column with a value; `sign` is one of = != < <= > >=."""

    column: str
    sign: str
    value: str

    def mask(self, table: pa.Table) -> npt.NDArray[np.bool_]:
        """The rows of a table that match, bool [n]."""
        column, compare = pc.fill_null(table[self.column], ""), _COMPARED[self.sign]
        matches = compare(column, pa.scalar(self.value, column.type))
        if self.sign in _ORDER:
            matches = pc.and_(matches, pc.not_equal(column, ""))
        if re.match(_NUMBER, self.value):
            is_number = pc.match_substring_regex(column, _NUMBER)
            numbers = pc.cast(pc.utf8_trim_whitespace(pc.if_else(is_number, column, None)), pa.float64())
            matches = pc.if_else(is_number, compare(numbers, float(self.value)), matches)
        return np.asarray(matches.to_numpy(zero_copy_only=False), dtype=bool)


def conditions(texts: Sequence[str], columns: Sequence[str]) -> list[Condition]:
    """The conditions that texts describe.

    >>> conditions(["year >= 2020", "place = 'New York'"], ["id", "year", "place"])
    [Condition(column='year', sign='>=', value='2020'), Condition(column='place', sign='=', value='New York')]

    Args:
        columns: the columns that there are.
    """
    result = []
    for text in texts:
        match = _FORM.fullmatch(text)
        value = "" if match is None else match[match.lastgroup or ""]  # quoted or not
        if match is None or (match["sign"] in _ORDER and not value):
            raise ConfigError(
                expected="a condition such as 'year >= 2020' or 'language = en'",
                found=repr(text),
                fix="compare a column with a value by =, !=, <, <=, > or >=; each condition by itself",
            )
        if match["column"] not in columns:
            raise ConfigError.unknown("column of the index", match["column"], columns)
        result.append(Condition(match["column"], match["sign"], value))
    return result
