"""Co-occurrence counts as files in random order, so that GloVe trains on any number of them in bounded memory.

Entries are dealt out to files at random, and each file is shuffled when it is read. An entry has 12 bytes: the numbers
of the word and the context as int32, and the count as float32, little endian; a pair of two words is two entries.

E entries.
"""

from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from bertsmith.base.core.randomness import generator, mix
from bertsmith.base.storage.files import read_json, write_json
from bertsmith.text.corpus.cooccurrence import neighbor_blocks
from bertsmith.text.corpus.pair_counts import PairCounts

Ids = npt.NDArray[np.int32]
Floats = npt.NDArray[np.float32]
_RECORD = np.dtype([("word", "<i4"), ("context", "<i4"), ("count", "<f4")])
_PER_FILE = 2**20  # entries, about
_READY = "ready.json"


class Entries(NamedTuple):
    """Counts that are not 0: of row `words[e]` and column `contexts[e]`, int32 [E] and float32 [E]."""

    words: Ids
    contexts: Ids
    counts: Floats

    def part(self, start: int, end: int) -> "Entries":
        """Some of them."""
        return Entries(self.words[start:end], self.contexts[start:end], self.counts[start:end])


class PairFiles:
    """The entries of a table of counts."""

    def __init__(self, folder: Path) -> None:
        ready = read_json(folder / _READY)
        self._folder = folder
        self.total, self.most, self.files = int(ready["entries"]), int(ready["most"]), int(ready["files"])

    def shuffled(self, number: int, rng: np.random.Generator) -> Entries:
        """The entries of a file, in random order."""
        path = _path(self._folder, number)
        records = np.fromfile(path, dtype=_RECORD) if path.exists() else np.empty(0, dtype=_RECORD)
        records = records[rng.permutation(len(records))]
        return Entries(*(np.ascontiguousarray(records[name]) for name in ("word", "context", "count")))


def has_pairs(folder: Path) -> bool:
    """Whether `write_pairs` finished there."""
    return (folder / _READY).exists()


def write_pairs(counts: PairCounts, size: int, seed: int, folder: Path) -> None:
    """Writes the entries of both halves of a table of counts [V, V], in a random order that the seed decides."""
    half, diagonal = 0, 0
    per_row = np.zeros(size, dtype=np.int64)
    for low, high, _ in neighbor_blocks(counts, size):
        per_row += np.bincount(low, minlength=size) + np.bincount(high[low != high], minlength=size)
        half += len(low)
        diagonal += int((low == high).sum())
    total = 2 * half - diagonal
    files = -(-total // _PER_FILE)
    key = generator(seed, "pairs").integers(2**63, dtype=np.uint64)
    for low, high, values in neighbor_blocks(counts, size):
        # Both entries of a pair are adjacent, so that their order does not depend on the blocks.
        each = np.repeat(np.arange(len(low)), np.where(low == high, 1, 2))
        is_other = np.concatenate([[False], each[1:] == each[:-1]])
        records = np.empty(len(each), dtype=_RECORD)
        records["word"] = np.where(is_other, high[each], low[each])
        records["context"] = np.where(is_other, low[each], high[each])
        records["count"] = values[each]
        cells = records["word"].astype(np.uint64) * np.uint64(size) + records["context"].astype(np.uint64)
        chosen = (mix(cells ^ key) % np.uint64(files)).astype(np.int64)
        order = np.argsort(chosen, kind="stable")
        ends = np.cumsum(np.bincount(chosen, minlength=files))
        records = records[order]
        for number, (start, end) in enumerate(zip([0, *ends[:-1].tolist()], ends.tolist(), strict=True)):
            if end > start:
                with open(_path(folder, number), "ab") as file:
                    file.write(records[start:end].tobytes())
    write_json(folder / _READY, {"entries": total, "most": int(per_row.max(initial=0)), "files": files})


def _path(folder: Path, number: int) -> Path:
    return folder / f"pairs{number}.bin"
