"""Thresholds on probabilities that were fitted to labelled texts, in the metadata of a model.

::

    "selections": [{"coverage": 0.9, "threshold": 0.31, "precision": "fp32", "examples": 200, "model": "sha256:...",
                    "curve": [[0.97, 10, 10], ...], "gold": [0.99, ...]}]

They hold for one model in one precision: those of other weights, or of another temperature, are not used. The entry
that was written last has what a threshold for any other share is fitted to.
"""

import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bertsmith.base.core.errors import ConfigError
from bertsmith.base.core.progress import warn
from bertsmith.base.core.settings import from_dict, require, require_number
from bertsmith.base.storage.files import digest_bytes
from bertsmith.models.model_files.metadata import (
    CARD,
    METADATA,
    ModelMetadata,
    digests_of_model,
    read_metadata,
    require_metadata,
    update_metadata,
)

SELECTIONS = "selections"  # in bertsmith.json


@dataclasses.dataclass(frozen=True, kw_only=True)
class SavedThreshold:
    """A threshold for answers of which a share is right, or for sets of which a share contains the right label.

    Attributes:
        accuracy, coverage: the share that was asked for; one of the two is None.
        precision: in which the probabilities were computed.
        examples: number of labelled texts.
        model: the digest of what its probabilities depend on.
        curve: for each threshold that is tried, how many of these texts are answered, and how many of the answers are
            right, fewest first; empty if a later entry has it.
        gold: the probability of the label of each text, rising, -1 if the model does not know the label; or empty.
    """

    accuracy: float | None = None
    coverage: float | None = None
    threshold: float
    precision: str
    examples: int
    model: str
    curve: Sequence[Sequence[float]] = ()
    gold: Sequence[float] = ()

    @property
    def promise(self) -> dict[str, float]:
        """What was asked for, by the name of the option."""
        values = {"accuracy": self.accuracy, "coverage": self.coverage}
        return {name: value for name, value in values.items() if value is not None}


def saved_thresholds(folder: Path, metadata: ModelMetadata) -> tuple[SavedThreshold, ...]:
    """The thresholds in the metadata of a folder; a warning says if they are of another model.

    Raises:
        ConfigError: an entry is damaged.
    """
    values = metadata.other.get(SELECTIONS)
    if not values:
        return ()
    where = f"{SELECTIONS} in '{folder / METADATA}'"
    if not isinstance(values, list) or not all(isinstance(value, dict) for value in values):
        raise ConfigError(expected=f"a list of objects as {where}", found=repr(values)[:80], fix="restore the file")
    entries = [from_dict(SavedThreshold, value, where) for value in values]
    for entry in entries:
        for share in (*entry.promise.values(), entry.threshold):
            require_number(f"a share of {where}", share, least=0, most=1)
        require(
            _is_sound(entry),
            expected=f"counts and probabilities of {entry.examples:,} texts in {where}",
            found="others",
            fix="calibrate the model again, with --save-threshold",
        )
    digest = _digest(folder, metadata)
    valid = tuple(entry for entry in entries if entry.model == digest)
    if len(valid) < len(entries):
        warn(f"the thresholds in '{folder / METADATA}' are of another model, and not used; calibrate this one")
    return valid


def save_threshold(folder: Path, **values: Any) -> tuple[SavedThreshold, ...]:
    """All thresholds of a model after another one is written into its metadata, in place of one for the same share.

    Args:
        values: those of `SavedThreshold`, without the digest.

    Raises:
        CheckpointError: the folder has no metadata.
    """
    require_metadata(folder)
    metadata = read_metadata(folder)
    added = SavedThreshold(**values, model=_digest(folder, metadata))
    kept = [
        dataclasses.replace(entry, curve=(), gold=()) if entry.precision == added.precision else entry
        for entry in saved_thresholds(folder, metadata)
        if (entry.promise, entry.precision) != (added.promise, added.precision)
    ]
    entries = (*kept, added)
    update_metadata(folder, {SELECTIONS: [_plain(entry) for entry in entries]})
    return entries


def _plain(entry: SavedThreshold) -> dict[str, Any]:
    return {name: value for name, value in dataclasses.asdict(entry).items() if value not in (None, ())}


def _is_sound(entry: SavedThreshold) -> bool:
    """Whether the curve and the probabilities can be those of its number of texts."""
    if not (entry.curve or entry.gold):
        return True
    if not all(len(step) == 3 and 0 <= step[0] <= 1 and 0 <= step[2] <= step[1] for step in entry.curve):
        return False
    answered = [step[1] for step in entry.curve]
    return (
        answered == sorted({*answered} - {0})
        and answered[-1:] == [len(entry.gold)] == [entry.examples]
        and all(-1 <= chance <= 1 for chance in entry.gold)
    )


def _digest(folder: Path, metadata: ModelMetadata) -> str:
    """Of all files but the metadata and the card, and of the task in the metadata, with its temperature."""
    files = {name: digest for name, digest in digests_of_model(folder).items() if name not in (METADATA, CARD)}
    return digest_bytes(json.dumps([files, metadata.spec], sort_keys=True).encode())


def promises(entries: Sequence[SavedThreshold]) -> str:
    """What thresholds were asked for, in words; "none" if there are none.

    >>> promises([SavedThreshold(coverage=0.9, threshold=0.3, precision="fp32", examples=9, model="")])
    'coverage 0.9'
    """
    shown = [f"{name} {share:g}" for entry in entries for name, share in entry.promise.items()]
    return ", ".join(shown) or "none"
