"""What much text takes before a pre-training: the time of `vocab` and `corpus`, and the disk of the corpus.

Both are measured on the first megabytes of the text. Words that are met for the first time take longer, and become rare
in more text, so the rates are rather too low, and far too low for a short text; the shards are not written, which takes
a few percent more.
"""

import dataclasses
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from bertsmith.base.core.errors import InputError
from bertsmith.base.core.progress import counted, duration
from bertsmith.base.core.settings import require
from bertsmith.base.machine.processor import available_cores
from bertsmith.text.corpus.encode import EncodedBlock, default_workers, encode_blocks
from bertsmith.text.corpus.shards import Corpus
from bertsmith.text.documents.parsing import TextBlock, parse_lines
from bertsmith.text.documents.readers import ReadingSettings, read_blocks
from bertsmith.text.documents.sources import STDIN, total_bytes
from bertsmith.text.documents.words import by_lines
from bertsmith.text.vocabularies.word_counts import WordCounter

_MEASURED_BYTES = 8 << 20


@dataclasses.dataclass(frozen=True, kw_only=True)
class TextPlan:
    """The cost of a vocabulary and a corpus of some text on this machine.

    Attributes:
        vocabulary_rate: bytes per second of `vocab`, which uses all cores.
        corpus_rate: bytes per second of one process of `corpus`.
        workers: the processes of `corpus`.
        measured_bytes: of the text that the rates were measured on.
        corpus_bytes: of the shards on disk.
    """

    bytes: float
    tokens: int
    vocabulary_rate: float
    corpus_rate: float
    workers: int
    corpus_bytes: float
    measured_bytes: int

    @property
    def seconds(self) -> dict[str, float]:
        """The seconds of each command; the processes of `corpus` are taken to share the cores evenly."""
        return {"vocab": self.bytes / self.vocabulary_rate, "corpus": self.bytes / (self.corpus_rate * self.workers)}

    @property
    def notes(self) -> list[str]:
        """What to know about the rates: they are rough if a short text is planned for as a part of much more."""
        if self.measured_bytes >= min(_MEASURED_BYTES, self.bytes):
            return []
        return [
            f"the rates of vocab and corpus were measured on {self.measured_bytes / 1e3:,.0f} kB, all that --text has; "
            f"on less than {_MEASURED_BYTES / 1e6:.0f} MB they are rough, since the first words take much longer than "
            "later ones: plan with more of the text"
        ]

    def lines(self) -> list[str]:
        """The plan for people to read."""
        seconds, processes = self.seconds, counted(self.workers, "process", "processes")
        return [
            f"vocab: {duration(seconds['vocab'])} for {self.bytes / 1e9:,.4g} GB of text at "
            f"{self.vocabulary_rate / 1e6:.3g} MB/s",
            f"corpus: {duration(seconds['corpus'])} at {self.corpus_rate * self.workers / 1e6:.3g} MB/s with "
            f"{processes}, {self.corpus_bytes / 1e9:,.4g} GB on disk",
        ]

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {**vars(self), "seconds": self.seconds}


def plan_text(text: Path, gigabytes: float | None, corpus: Corpus) -> TextPlan:
    """The cost of this much text like that of a file or folder, with the tokenizer and shards of a corpus.

    Args:
        gigabytes: None for as much as there is.

    Raises:
        InputError: there is no text.
        ConfigError: the text is longer than what is planned for.
    """
    if str(text) == STDIN:
        raise InputError(expected="a file or folder to plan for", found="stdin", fix="save the text to a file")
    present = total_bytes([text]) or 0
    planned = present if gigabytes is None else gigabytes * 1e9
    require(
        gigabytes is None or gigabytes >= present / 1e9,
        expected=f"--gigabytes of at least {present / 1e9}, the size of '{text}'",
        found=gigabytes,
        fix="leave it out to plan for this text, or name a part of the text",
    )
    started = time.monotonic()
    counter, read = WordCounter(corpus.rules), 0
    for block in _first(read_blocks([text], by_lines(None))):
        counter.add(parse_lines(block)[0])
        read += block.read_bytes
    counter.end_source()
    counted_at = time.monotonic()
    tokens = encoded_bytes = 0
    for item in encode_blocks(_first(read_blocks([text], ReadingSettings())), corpus.tokenizer, workers=1):
        if isinstance(item, EncodedBlock):
            tokens += sum(len(part.tokens) for part in item.parts)
            encoded_bytes += item.read_bytes
    encoded_at = time.monotonic()
    if not tokens:
        raise InputError(expected=f"text in '{text}'", found="none in its first megabytes", fix="name other text")
    stored = sum(shard["bytes"] for shard in corpus.manifest["shards"]) / max(corpus.num_tokens, 1)
    planned_tokens = max(1, round(tokens * planned / encoded_bytes))
    return TextPlan(
        bytes=planned,
        tokens=planned_tokens,
        vocabulary_rate=read / max(counted_at - started, 1e-9),
        corpus_rate=encoded_bytes / max(encoded_at - counted_at, 1e-9),
        workers=min(available_cores(), default_workers(int(planned))),
        corpus_bytes=stored * planned_tokens,
        measured_bytes=encoded_bytes,
    )


def _first(items: Iterable[Any]) -> Iterator[TextBlock]:
    """The first blocks of text, about `_MEASURED_BYTES` of it, or of Parquet the first row groups."""
    size = 0
    for item in items:
        if isinstance(item, TextBlock):
            # A row group is read with its first block; the others are of the same bytes.
            if size >= _MEASURED_BYTES and item.read_bytes:
                return
            size += item.read_bytes
            yield item
