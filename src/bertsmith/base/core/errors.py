"""The errors a user can fix, as one tree.

::

    BertsmithError
    ├── InputError         an input file or text that is missing, empty, binary or unreadable
    │   └── LabelError     labels that no classifier can learn from
    ├── ConfigError        a setting that is invalid or unknown
    ├── VocabularyError    a vocabulary that is incomplete, has duplicate pieces, or is the wrong one
    ├── CorpusError        a corpus folder that is damaged or does not match its use
    ├── CheckpointError    model weights that are damaged, missing or of the wrong shape
    │   └── NotFiniteError a model that computes NaN or infinity instead of numbers
    ├── RunError           a run folder that exists, is missing, or was created with other settings
    └── TrainingError      training that cannot continue: NaN, disk full

Every message is one line with three parts: what was expected, what was found, how to fix it. Bugs of our own
are `assert` statements, never part of this tree.
"""

import difflib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

_CLOSE = 0.8  # minimum similarity of a name in a path that may have been meant, from 0 to 1


class BertsmithError(Exception):
    """A mistake that the user can fix; its message is one line.

    >>> raise InputError(expected="a text file", found="'a.bin', which is binary", fix="name a .txt file")
    Traceback (most recent call last):
    ...
    bertsmith.base.core.errors.InputError: expected a text file; found 'a.bin', which is binary; name a .txt file
    """

    def __init__(self, *, expected: str, found: str, fix: str) -> None:
        self.expected, self.found, self.fix = expected, found, fix
        super().__init__(" ".join(f"expected {expected}; found {found}; {fix}".split()))

    def __reduce__(self) -> tuple[Any, ...]:
        # How processes pass an exception on. By default the constructor would be called, without its keyword arguments.
        return _again, (type(self), *self.args), vars(self)


def _again(kind: type[BertsmithError], *arguments: Any) -> BertsmithError:
    return kind.__new__(kind, *arguments)


class InputError(BertsmithError):
    """An input file or text is missing, empty, binary or unreadable."""


class LabelError(InputError, ValueError):
    """Labels that no classifier can learn from; also a ValueError, as scikit-learn expects."""


class ConfigError(BertsmithError):
    """A setting is invalid or unknown."""


class VocabularyError(BertsmithError):
    """A vocabulary is incomplete, contains a piece twice, or is not the one required."""


class CorpusError(BertsmithError):
    """A corpus folder is damaged or does not match its use."""


class CheckpointError(BertsmithError):
    """Model weights are damaged, missing, or do not match the shape of the model."""


class NotFiniteError(CheckpointError):
    """A model computed NaN or infinity, so there is no answer.

    Args:
        index: of the text that it was computed for, counted from 0.
        place: what the message calls that text; by default it is counted from 1.
    """

    def __init__(self, index: int, place: str = "") -> None:
        self.index = index
        super().__init__(
            expected=f"numbers from the model for {place or f'text {index + 1}'}",
            found="NaN or infinity",
            fix="use --precision fp32; if that fails too, the weights are damaged: use another model",
        )


class RunError(BertsmithError):
    """A run folder already exists, is missing, or was created with other settings."""


class TrainingError(BertsmithError):
    """Training cannot continue."""


class CutWarning(UserWarning):
    """Texts exceeded the maximum length of a model and were truncated; the results cover the tokens that were kept.

    Python's warning filters apply: each location in a program reports the same counts once, and
    `warnings.simplefilter("error", CutWarning)` turns the warning into an error.
    """


def reason_of(error: OSError) -> str:
    """What the operating system found in place of a file, as a part of a message.

    >>> reason_of(FileNotFoundError(2, "No such file or directory"))
    'nothing there'
    >>> reason_of(PermissionError(13, "Permission denied"))
    'permission denied'
    """
    return "nothing there" if isinstance(error, FileNotFoundError) else str(error.strerror or error).lower()


def some(items: Sequence[str], joint: str = ", ", most: int = 4) -> str:
    """The items on one line; of many of them the first three, and the number of the others.

    >>> some(["a", "b"]), some(["no a", "no b", "no c", "no d", "no e"], joint="; ")
    ('a, b', 'no a; no b; no c; and 2 more')
    """
    if len(items) <= most:
        return joint.join(items)
    return joint.join([*items[: most - 1], f"and {len(items) - most + 1:,} more"])


def nearest(name: object, known: Iterable[str]) -> str:
    """The fix for an unknown `name`, of whatever type: the nearest known name, or all of them.

    >>> nearest("lerning_rate", ["learning_rate", "steps"])
    "did you mean 'learning_rate'?"
    >>> nearest("x", ["steps", "batch"])
    "use one of 'batch', 'steps'"
    >>> nearest("x", ["steps"])
    "use 'steps'"
    """
    names = sorted(known)
    close = difflib.get_close_matches(str(name), names, n=1)
    if close:
        return f"did you mean {close[0]!r}?"
    return f"use {'one of ' if len(names) > 1 else ''}{', '.join(map(repr, names))}"


def nearest_path(path: Path | str, *, folders: bool = False) -> str:
    """A question that names an existing path with similar parts; empty if there is none.

    Args:
        folders: only folders count.
    """
    found = Path(Path(path).anchor)
    for part in Path(path).relative_to(found).parts:
        if not (found / part).exists():
            try:
                names = [one.name for one in found.iterdir() if one.is_dir() or (not folders and one.exists())]
            except OSError:
                return ""
            part = (difflib.get_close_matches(part, names, n=1, cutoff=_CLOSE) or [""])[0]
        if not part:
            return ""
        found /= part
    return f"did you mean '{found}'?"
