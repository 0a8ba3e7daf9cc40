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
    """The weights of the sources of a corpus; a source without one has the weight 1."""

    def __init__(self, weights: Mapping[str, float]) -> None:
        for text, weight in weights.items():
            require_number(f"weight of '{text}'", weight, least=0, most=MOST)
        self.sources = [WeightedSource(text, float(weight)) for text, weight in weights.items()]
        self.others = WeightedSource("others", 1.0)
        self._known: dict[str, WeightedSource] = {}
        self._with_documents: set[str] = set()  # texts, even if their documents are held out

    def hold_out(self, source: str) -> None:
        """Notes that there is a held-out document of a file."""
        self._with_documents.add(self._of(source).text)

    def copies(self, source: str, tokens: int, draw: int) -> int:
        """How often a training document is written; counts it."""
        weighted = self._of(source)
        certain = int(weighted.weight)
        count = certain + (draw_of(draw) < (weighted.weight - certain) * DRAWS)
        self._with_documents.add(weighted.text)
        weighted.documents += 1
        weighted.written += count
        weighted.tokens += count * tokens
        return count

    def check(self) -> None:
        """Checks that every source has a document, and one of them was written."""
        for source in self.sources:
            if source.text not in self._with_documents:
                raise ConfigError(
                    expected=f"documents from '{source.text}', which has a weight",
                    found="none",
                    fix="name a file or folder of the texts, as it is named there",
                )
        sources = (*self.sources, self.others)
        if any(source.documents for source in sources) and not any(source.written for source in sources):
            raise ConfigError(
                expected="at least one training document that is written, with weights",
                found=f"none of {counted(sum(source.documents for source in sources), 'document')}",
                fix="raise a weight",
            )

    def record(self) -> list[dict[str, Any]]:
        """Each source with its weight and its counts, as plain values for the manifest."""
        others = [self.others] if self.others.documents else []
        return [dataclasses.asdict(source) for source in (*self.sources, *others)]

    def _of(self, source: str) -> WeightedSource:
        """The source that a file belongs to: the deepest one that is the file or contains it."""
        if source not in self._known:
            path = Path(source)
            fitting = [weighted for weighted in self.sources if Path(weighted.text) in (path, *path.parents)]
            self._known[source] = max(fitting, key=lambda weighted: len(Path(weighted.text).parts), default=self.others)
        return self._known[source]


def weight_lines(record: list[dict[str, Any]], total: int) -> list[str]:
    """Lines of the report with the documents and tokens of each source; `total` is the tokens of the corpus."""
    return [
        f"source '{source['text']}', weight {source['weight']:g}: {counted(source['documents'], 'training document')}, "
        f"{source['written']:,} written, {counted(source['tokens'], 'token')} "
        f"({100 * source['tokens'] / max(total, 1):.1f} % of the corpus)"
        for source in record
    ]
