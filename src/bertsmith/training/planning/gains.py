"""What pre-training on text of a domain gained on tasks of it, by amounts of text and labels: measured, never a guess.

gains.tsv is written by benchmarks/own_text.py from its results.
"""

import csv
import dataclasses
import io
from collections.abc import Iterable, Sequence
from importlib import resources
from pathlib import Path

from bertsmith.base.core.progress import counted

FILE = Path(str(resources.files("bertsmith.training.planning") / "gains.tsv"))
NEW_MODEL = "new model"
LABELS = (100, 1000)
_FACTOR = 3.2  # between a text and the nearest one that was measured
# What was compared with fine-tuning the first of each pair, and the advice where it was better.
_WAYS = {
    "starter": ("the starter", "adapt it first"),
    "minilm": ("MiniLM", "adapt it first"),
    NEW_MODEL: ("the starter", "pre-train a new model"),
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Gain:
    """The accuracy of an adapted or new model minus that of the model as it is, after fine-tuning on the same labels.

    Attributes:
        arm: the model that was adapted, or a new one of the shape of the starter, which is compared with the starter.
        words: of the text, the mean over the domains.
        passes: over the text, the mean.
        rows: of all domains, on which both are scored.
        before, bag: the accuracies of the model as it is and of a bag of words.
        low, high: of the 95% interval of the difference over the rows.
    """

    arm: str
    megabytes: float
    words: int
    passes: float
    labels: int
    domains: int
    seeds: int
    rows: int
    before: float
    bag: float
    difference: float
    low: float
    high: float

    @property
    def advice(self) -> str:
        """What to do with this much text and this many labels."""
        model, instead = _WAYS[self.arm]
        return instead if self.low > 0 else f"fine-tune {model} as it is"

    @property
    def shown(self) -> str:
        """The gain in points of accuracy, and its interval."""
        points = [f"{100 * value:+.1f}" for value in (self.difference, self.low, self.high)]
        return f"{points[0]} ({points[1]} to {points[2]})"

    def line(self) -> str:
        """The advice and the gain that it rests on."""
        title = "a new model" if self.arm == NEW_MODEL else "adapting it"
        domains = counted(self.domains, "domain")
        return f"with {self.labels:,} labels, {self.advice} (expected gain of {title}: {self.shown}; {domains})"


def read_gains(file: Path = FILE) -> list[Gain]:
    """The measured gains."""
    types = {field.name: field.type for field in dataclasses.fields(Gain)}
    with file.open(encoding="utf-8", newline="") as stream:
        rows = list(csv.DictReader(stream, delimiter="\t"))
    return [Gain(**{name: types[name](value) for name, value in row.items()}) for row in rows]  # type: ignore[operator]


def table_text(gains: Iterable[Gain]) -> str:
    """The content of the file of these gains."""
    stream = io.StringIO(newline="")
    writer = csv.writer(stream, delimiter="\t", lineterminator="\n")
    writer.writerow([field.name for field in dataclasses.fields(Gain)])
    writer.writerows(dataclasses.astuple(gain) for gain in gains)
    return stream.getvalue()


def expected_gain(arm: str, words: int, gains: Sequence[Gain] | None = None) -> str | None:
    """Whether pre-training on text of that length is worth it, in a sentence; None where nothing near was measured.

    Args:
        arm: the name of the model to adapt, or `NEW_MODEL`.
        gains: all that are known; by default those of the package.
    """
    near = [
        gain
        for gain in (read_gains() if gains is None else gains)
        if gain.arm == arm and gain.labels in LABELS and 1 / _FACTOR <= words / gain.words <= _FACTOR
    ]
    if not near:
        return None
    nearest = min(near, key=lambda gain: max(words / gain.words, gain.words / words))
    lines = {gain.labels: gain.line() for gain in near if gain.megabytes == nearest.megabytes}
    advice = "; ".join(lines[labels] for labels in LABELS if labels in lines)
    return f"{advice}. Points of accuracy with 95% intervals, measured with {nearest.megabytes:g} MB of text"
