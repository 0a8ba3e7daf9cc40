"""Sums of numbers by key in bounded memory, for counts of pairs.

What is added is sorted and summed in memory. Beyond a limit it is written to disk as a sorted run, and the runs are
merged at the end, as in cooccur.c of the original GloVe. The numbers are integers, so that the sums do not depend on
the limit.
"""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt

from bertsmith.text.corpus.hashing import first_places

Integers = npt.NDArray[np.int64]
_ENTRY = 16  # bytes of a key and its sum
_COPIES = 8  # of what is held, while it is sorted and summed
_MOST_RUNS = 64  # that are merged at once
_FEWEST = 64  # entries that are held, however small the limit is


class PairCounts:
    """Sums by key.

    Args:
        memory: limit of what is held in memory, in bytes.
    """

    def __init__(self, folder: Path, memory: float) -> None:
        self._folder = folder
        self._most = max(int(memory / (_ENTRY * _COPIES)), _FEWEST)  # entries
        self._held: list[tuple[Integers, Integers]] = []
        self._size = 0
        self._runs: list[Path] = []
        self._made = 0
        self.spilled = 0

    def add(self, keys: Integers, value: int) -> None:
        """Adds `value` to the sum of each key, once per occurrence."""
        step = max(self._most // 2, 1)
        for start in range(0, len(keys), step):
            different, times = np.unique(keys[start : start + step], return_counts=True)
            self._held.append((different, times.astype(np.int64) * value))
            self._size += len(different)
            if self._size > self._most:
                self._sum_held()
                if self._size > self._most // 2:
                    self._spill()

    def blocks(self) -> Iterator[tuple[Integers, Integers]]:
        """(keys, sums) in blocks, all keys rising, none twice; may be called again, until more is added."""
        self._sum_held()
        if not self._runs:
            yield from self._held
            return
        if self._size:
            self._spill()
        if len(self._runs) > 1:
            self._merge()
        yield from self._read(self._runs[0])

    def remove(self) -> None:
        """Removes the files."""
        for path in self._runs:
            path.unlink(missing_ok=True)

    def _sum_held(self) -> None:
        if len(self._held) > 1:
            self._held = [_summed(self._held)]
        self._size = sum(len(keys) for keys, _ in self._held)

    def _spill(self) -> None:
        self._sum_held()
        self._write(iter(self._held))
        self._held, self._size = [], 0
        self.spilled += 1
        if len(self._runs) == _MOST_RUNS:
            self._merge()

    def _merge(self) -> None:
        runs, self._runs = self._runs, []
        self._write(self._merged(runs))
        for path in runs:
            path.unlink()

    def _write(self, blocks: Iterator[tuple[Integers, Integers]]) -> None:
        path = self._folder / f"run{self._made}.i64"
        self._made += 1
        with open(path, "wb") as file:
            for keys, sums in blocks:
                file.write(np.stack([keys, sums], axis=1).astype("<i8").tobytes())
        self._runs.append(path)

    def _read(self, path: Path) -> Iterator[tuple[Integers, Integers]]:
        step = max(self._most // 2, 1)
        with open(path, "rb") as file:
            while len(entries := np.fromfile(file, dtype="<i8", count=2 * step)):
                yield entries[::2].astype(np.int64), entries[1::2].astype(np.int64)

    def _merged(self, runs: list[Path]) -> Iterator[tuple[Integers, Integers]]:
        """The sums of runs, in order: again and again up to the lowest of the last keys that were read of each run."""
        step = max(self._most // len(runs), 1)
        files = [np.memmap(path, dtype="<i8", mode="r").reshape(-1, 2) for path in runs]
        begins = [0] * len(files)
        while any(begin < len(file) for begin, file in zip(begins, files, strict=True)):
            parts = [np.array(file[begin : begin + step]) for begin, file in zip(begins, files, strict=True)]
            upto = min(int(part[-1, 0]) for part in parts if len(part))
            taken = [int(np.searchsorted(part[:, 0], upto, side="right")) for part in parts]
            begins = [begin + count for begin, count in zip(begins, taken, strict=True)]
            yield _summed([(part[:count, 0], part[:count, 1]) for part, count in zip(parts, taken, strict=True)])


def _summed(parts: list[tuple[Integers, Integers]]) -> tuple[Integers, Integers]:
    """The sums of all parts by key, keys rising."""
    keys, values = (np.concatenate([part[side] for part in parts]) for side in (0, 1))
    order = np.argsort(keys)
    keys, values = keys[order], values[order]
    starts = first_places(keys)
    return keys[starts], np.add.reduceat(values, starts) if len(starts) else values
