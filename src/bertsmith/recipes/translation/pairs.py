"""Pairs of texts: one pair a line, the source, a tab, the target."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from bertsmith.base.core.errors import InputError
from bertsmith.base.core.progress import counted, warn
from bertsmith.tasks.datasets.sequences import pair_lines
from bertsmith.text.documents.encodings import UTF_8
from bertsmith.text.tokenizers.encoded import Ids
from bertsmith.text.tokenizers.tokenizer import Tokenizer

Pair = tuple[str, str]


@dataclasses.dataclass(frozen=True)
class EncodedPairs:
    """Pairs as ids, with the special tokens of a row around each text.

    Attributes:
        sources, targets: int32 arrays, one for each text.
    """

    sources: tuple[Ids, ...]
    targets: tuple[Ids, ...]

    def __len__(self) -> int:
        return len(self.sources)

    def lengths(self) -> npt.NDArray[np.int64]:
        """The tokens of each pair, both texts together, int64 [pairs]."""
        both = zip(self.sources, self.targets, strict=True)
        return np.array([len(source) + len(target) for source, target in both], dtype=np.int64)


def read_pairs(path: Path, encoding: str = UTF_8) -> list[Pair]:
    """The pairs of a file, which may be compressed.

    Args:
        encoding: of a file without a byte order mark.
    """
    return [(source, target) for _, source, target in pair_lines(path, encoding)]


def encode_pairs(pairs: Sequence[Pair], tokenizer: Tokenizer, max_length: int, name: str) -> EncodedPairs:
    """The pairs whose texts have at most that many tokens; how many were left out is written to stderr.

    Args:
        name: of the file, for messages.
    """
    sources, targets = (rows_of([pair[side] for pair in pairs], tokenizer) for side in (0, 1))
    kept = [
        number
        for number, both in enumerate(zip(sources, targets, strict=True))
        if max(len(both[0]), len(both[1])) <= max_length
    ]
    if not kept:
        raise InputError(
            expected=f"pairs of texts of at most {max_length} tokens in '{name}'",
            found=f"{counted(len(pairs), 'pair')}, all longer",
            fix="raise max_length",
        )
    if left := len(pairs) - len(kept):
        warn(
            f"{name}: {counted(left, 'pair')} of {len(pairs):,} left out, with more than {max_length} tokens on a side"
        )
    return EncodedPairs(tuple(sources[number] for number in kept), tuple(targets[number] for number in kept))


def rows_of(texts: Sequence[str], tokenizer: Tokenizer) -> list[Ids]:
    """The ids of each text between the special tokens of a row."""
    encoded, template = tokenizer.encode_batch(texts), tokenizer.template
    start, end = (np.array(part, dtype=np.int32) for part in (template.start, template.end))
    return [np.concatenate([start, ids, end]) for ids in np.split(encoded.ids, encoded.offsets[1:-1])] if texts else []
