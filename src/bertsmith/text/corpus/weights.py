"""Weights of sources: how often the documents of a text are in a corpus.

A weight of 2 writes each document twice, one of 0.5 every second document, drawn by its content, and 2.5 both: twice,
and every second document once more. Held-out documents are written once, and what is removed as a duplicate is removed
before. So a corpus is larger or smaller than its text, and everything that reads one reads sources in these shares.
"""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bertsmith.base.core.errors import ConfigError
from bertsmith.base.core.progress import counted
from bertsmith.base.core.settings import require_number
from bertsmith.text.corpus.hashing import DRAWS, draw_of

MOST = 1000.0


@dataclasses.dataclass
class WeightedSource:
    """A text with a weight, and what a corpus has of it.

    Attributes:
        text: the file or folder, as it was named.
        weight: how often each of its documents is written.
        documents: the training documents that were read.
        written: the training documents that were written, copies included.
        tokens: the tokens of these.
    """

    text: str
    weight: float
    documents: int = 0
    written: int = 0
    tokens: int = 0


class Weights:
    """The weights of the sources of a corpus; a source without one has the weight 1.

    Args:
        weights: weights by file or folder.
    """

    def __init__(self, weights: Mapping[str, float]) -> None:
        for text, weight in weights.items():
            require_number(f"weight of '{text}'", weight, least=0, most=MOST)
        self.sources = [WeightedSource(text, float(weight)) for text, weight in weights.items()]
        self.others = WeightedSource("others", 1.0)
        self._known: dict[str, WeightedSource] = {}
        self._found: set[str] = set()  # texts with a document, even if it is held out

    def hold_out(self, source: str) -> None:
        """Notes that there is a held-out document of a file."""
        self._found.add(self._of(source).text)

    def copies(self, source: str, tokens: int, draw: int) -> int:
        """How often a training document is written; counts it.

        Args:
            source: the file that it is from.
            tokens: its tokens.
            draw: the draw of its content, from `draw_of`.
        """
        found = self._of(source)
        whole = int(found.weight)
        count = whole + (draw_of(draw) < (found.weight - whole) * DRAWS)
        self._found.add(found.text)
        found.documents += 1
        found.written += count
        found.tokens += count * tokens
        return count

    def check(self) -> None:
        """Returns if every source has a document, and one of them was written."""
        for one in self.sources:
            if one.text not in self._found:
                raise ConfigError(
                    expected=f"documents from '{one.text}', which has a weight",
                    found="none",
                    fix="name a file or folder of the texts, as it is named there",
                )
        every = (*self.sources, self.others)
        if any(one.documents for one in every) and not any(one.written for one in every):
            raise ConfigError(
                expected="at least one training document that is written, with weights",
                found=f"none of {counted(sum(one.documents for one in every), 'document')}",
                fix="raise a weight",
            )

    def record(self) -> list[dict[str, Any]]:
        """Each source with its weight and its counts, as plain values for the manifest."""
        others = [self.others] if self.others.documents else []
        return [dataclasses.asdict(one) for one in (*self.sources, *others)]

    def _of(self, source: str) -> WeightedSource:
        """The source that a file belongs to: the deepest one that is the file or contains it."""
        if source not in self._known:
            path = Path(source)
            fitting = [one for one in self.sources if path == Path(one.text) or Path(one.text) in path.parents]
            self._known[source] = max(fitting, key=lambda one: len(Path(one.text).parts), default=self.others)
        return self._known[source]


def weight_lines(record: list[dict[str, Any]], total: int) -> list[str]:
    """What a corpus has of each source, as lines of its report.

    Args:
        record: from the manifest.
        total: the tokens of the corpus.
    """
    return [
        f"source '{one['text']}', weight {one['weight']:g}: {counted(one['documents'], 'training document')}, "
        f"{one['written']:,} written, {counted(one['tokens'], 'token')} "
        f"({100 * one['tokens'] / max(total, 1):.1f} % of the corpus)"
        for one in record
    ]
