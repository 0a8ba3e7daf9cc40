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

Every message is one line with three parts: what was expected, what was found, how to fix it. The five usual shapes have
constructors that say it in one sentence: `missing`, `unknown`, `must_be`, `needs` and `is_not`. Bugs of our
own are `assert` statements, never part of this tree.
"""

import difflib
import numbers
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Self

_SHOWN = 60  # characters of a value that a message shows
_LISTED = 24  # the most names that a message lists
_CLOSE = 0.8  # minimum similarity of a name in a path that may have been meant, from 0 to 1


class BertsmithError(Exception):
    r"""A mistake that the user can fix; its message is one line.

    >>> raise InputError(expected="a text file", found="'a.bin', which is binary", fix="name a .txt file")
    Traceback (most recent call last):
    ...
    bertsmith.base.core.errors.InputError: expected a text file; found 'a.bin', which is binary; name a .txt file
    >>> str(InputError(expected="a name", found="one\nof two lines", fix="join them"))
    'expected a name; found one of two lines; join them'
    """

    def __init__(self, *, expected: str, found: str, fix: str, sentence: str = "") -> None:
        self.expected, self.found, self.fix, self.sentence = expected, found, fix, sentence
        super().__init__(" ".join((sentence or f"expected {expected}; found {found}; {fix}").split()))

    def reword(self, reworded: Callable[[str], str]) -> None:
        """Changes the wording of the message and of its parts, such as the names of options in it."""
        for name in ("expected", "found", "fix", "sentence"):
            setattr(self, name, reworded(getattr(self, name)))
        self.args = tuple(reworded(part) if isinstance(part, str) else part for part in self.args)

    @classmethod
    def missing(cls, path: object, kind: str, fix: str) -> Self:
        """Nothing at a path.

        >>> InputError.missing("my-txt", "file or folder", "check the path")
        InputError("there is no file or folder 'my-txt'; check the path")
        """
        sentence = f"there is no {kind} '{path}'; {fix}"
        return cls(expected=f"a {kind} '{path}'", found="nothing there", fix=fix, sentence=sentence)

    @classmethod
    def unknown(cls, kind: str, name: object, known: Iterable[str]) -> Self:
        """A name that is not among the known ones; the fix is the nearest of them.

        >>> ConfigError.unknown("recipe", "2019", ["auto", "2018"])
        ConfigError("unknown recipe '2019'; did you mean '2018'?")
        """
        shown, fix = brief_repr(name), nearest(name, known)
        return cls(expected=f"a known {kind}", found=shown, fix=fix, sentence=f"unknown {kind} {shown}; {fix}")

    @classmethod
    def must_be(cls, name: str, limits: str, value: object, fix: str = "") -> Self:
        """A number out of range, or a value of another type.

        >>> ConfigError.must_be("epochs", "at least 1", 0)
        ConfigError('epochs must be at least 1, not 0')
        """
        is_number = isinstance(value, numbers.Real) and not isinstance(value, bool)
        shown = f"{value:,}" if is_number else brief_repr(value)
        sentence = f"{name} must be {limits}, not {shown}"
        sentence += f"; {fix}" if fix else ""
        return cls(expected=f"{name} {limits}", found=shown, fix=fix or "give another value", sentence=sentence)

    @classmethod
    def needs(cls, option: str, other: str, fix: str = "") -> Self:
        """A setting that does nothing without another one.

        >>> ConfigError.needs("--patience", "--keep best")
        ConfigError('--patience needs --keep best; add it, or leave --patience out')
        """
        fix = fix or f"add it, or leave {option} out"
        return cls(expected=f"{other} with {option}", found="none", fix=fix, sentence=f"{option} needs {other}; {fix}")

    @classmethod
    def is_not(cls, path: object, kind: str, reason: str, fix: str) -> Self:
        """A file that is not what its use takes it for.

        >>> InputError.is_not("a.txt", "a text file", "it is binary", "name another file")
        InputError("'a.txt' is not a text file: it is binary; name another file")
        """
        sentence = f"'{path}' is not {kind}: {reason}; {fix}"
        return cls(expected=f"{kind} at '{path}'", found=reason, fix=fix, sentence=sentence)

    @classmethod
    def at(cls, location: str, expected: str, found: str, fix: str) -> Self:
        """What a line, a record or a file contains in place of what is expected there.

        >>> InputError.at("line 3 of 'a.tsv'", "a label", "an empty cell", "fill it in")
        InputError("expected a label in line 3 of 'a.tsv'; found an empty cell; fill it in")
        """
        return cls(expected=f"{expected} in {location}", found=found, fix=fix)

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
        location: what the message calls that text; by default it is counted from 1.
    """

    def __init__(self, index: int, location: str = "") -> None:
        self.index = index
        super().__init__(
            expected=f"numbers from the model for {location or f'text {index + 1}'}",
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


def brief_repr(value: object) -> str:
    """The `repr` of a value in a message, cut after 60 characters."""
    return repr(value)[:_SHOWN]


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
    """The fix for an unknown `name`, of whatever type: the nearest known name, or all of them, or of many the nearest.

    >>> nearest("lerning_rate", ["learning_rate", "steps"])
    "did you mean 'learning_rate'?"
    >>> nearest("x", ["steps", "batch"])
    "use one of 'batch', 'steps'"
    >>> nearest("x", ["steps"])
    "use 'steps'"
    """
    names = every = sorted(known)
    close = difflib.get_close_matches(str(name), names, n=1)
    if close:
        return f"did you mean {close[0]!r}?"
    if len(names) > _LISTED:
        names = difflib.get_close_matches(str(name), names, n=5, cutoff=0.0)
        return f"the nearest of {len(every)} are {', '.join(map(repr, names))}"
    return f"use {'one of ' if len(names) > 1 else ''}{', '.join(map(repr, names))}"


def nearest_path(path: Path | str, *, folders: bool = False) -> str:
    """A question that names an existing path with similar parts; empty if there is none, or if `path` exists.

    Args:
        folders: only folders count.
    """
    folder = Path(Path(path).anchor)
    for part in Path(path).relative_to(folder).parts:
        try:
            if not (folder / part).exists():
                names = [child.name for child in folder.iterdir() if child.is_dir() or (not folders and child.exists())]
                part = (difflib.get_close_matches(part, names, n=1, cutoff=_CLOSE) or [""])[0]
        except OSError:
            return ""
        if not part:
            return ""
        folder /= part
    return "" if folder == Path(path) else f"did you mean '{folder}'?"
