"""The errors a user can fix, as one tree.

::

    BertsmithError
    ├── InputError         a file or text that was given: missing, empty, binary, unreadable
    ├── ConfigError        a setting that is impossible or unknown
    ├── VocabularyError    a vocabulary that is incomplete, doubled, or the wrong one
    ├── CorpusError        a corpus folder that is damaged or does not fit
    ├── CheckpointError    model weights that are damaged, missing or of another shape
    ├── RunError           a run folder that exists, is absent, or belongs to other settings
    └── TrainingError      training that cannot go on: not a number, no room on the disk

Every error is one line with three parts: what was expected, what was found, what to do. Our own mistakes
are `assert` statements, never part of this tree.
"""

import difflib
from collections.abc import Iterable


class BertsmithError(Exception):
    """A mistake that the user can mend; its text is one line.

    >>> raise InputError(expected="a text file", found="'a.bin', which is binary", fix="name a .txt file")
    Traceback (most recent call last):
    ...
    bertsmith.errors.InputError: expected a text file; found 'a.bin', which is binary; name a .txt file
    """

    def __init__(self, *, expected: str, found: str, fix: str) -> None:
        self.expected, self.found, self.fix = expected, found, fix
        super().__init__(" ".join(f"expected {expected}; found {found}; {fix}".split()))


class InputError(BertsmithError):
    """A file or text that was given is missing, empty, binary or unreadable."""


class ConfigError(BertsmithError):
    """A setting is impossible or unknown."""


class VocabularyError(BertsmithError):
    """A vocabulary is incomplete, holds a piece twice, or is not the one that is needed."""


class CorpusError(BertsmithError):
    """A corpus folder is damaged or does not fit what it is used for."""


class CheckpointError(BertsmithError):
    """Model weights are damaged, missing, or of another shape than the model."""


class RunError(BertsmithError):
    """A run folder exists already, is absent, or was made with other settings."""


class TrainingError(BertsmithError):
    """Training cannot go on."""


class CutWarning(UserWarning):
    """Texts were longer than a model reads and lost tokens; what was asked for was done with the rest.

    Python's filters of warnings apply: each place in a program tells the same counts once, and
    `warnings.simplefilter("error", CutWarning)` makes it an error.
    """


def nearest(name: str, known: Iterable[str]) -> str:
    """What to do about an unknown `name`: the nearest known one, or all of them.

    >>> nearest("lerning_rate", ["learning_rate", "steps"])
    "did you mean 'learning_rate'?"
    >>> nearest("x", ["steps", "batch"])
    "use one of 'batch', 'steps'"
    """
    names = sorted(known)
    close = difflib.get_close_matches(name, names, n=1)
    return f"did you mean {close[0]!r}?" if close else f"use one of {', '.join(map(repr, names))}"
