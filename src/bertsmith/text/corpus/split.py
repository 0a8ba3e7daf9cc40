"""The split of a corpus into training and held-out documents."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy.typing as npt

from bertsmith.base.core.progress import counted
from bertsmith.base.core.settings import require
from bertsmith.text.corpus.hashing import DRAWS
from bertsmith.text.corpus.manifest import HELD_OUT
from bertsmith.text.corpus.shards import ShardWriter, read_shard
from bertsmith.text.corpus.weights import Weights

Write = Callable[[str, npt.NDArray[Any], npt.NDArray[Any]], object]


class SplitWriter:
    """Writes each document to the training or to the held-out side, depending on its content."""

    def __init__(
        self, folder: Path, pieces: int, *, share: float, shard_bytes: int, weights: Weights | None = None
    ) -> None:
        self.folder, self.pieces, self.share, self._weights = folder, pieces, share, weights
        self.training = ShardWriter(folder, pieces, shard_bytes=shard_bytes)
        self.held_out = ShardWriter(folder / HELD_OUT, pieces, shard_bytes=shard_bytes)
        # The lowest draw so far, whose document would be held out first, and where that document was written.
        self._lowest: tuple[int, tuple[int, int]] | None = None

    def close(self) -> None:
        """Writes the last shards of both sides."""
        self.training.close()
        self.held_out.close()

    @property
    def writers(self) -> tuple[Write, Write]:
        """Two functions that write a document to the training side and to the held-out side, whatever its content."""
        return self.training.add, self.held_out.add

    @property
    def is_empty(self) -> bool:
        """Whether no document was written, as far as the shards are closed."""
        return not self.training.shards and not self.held_out.shards

    def write(self, source: str, tokens: npt.NDArray[Any], lengths: npt.NDArray[Any], draw: int) -> None:
        """Writes a document to the training or held-out side, by its content, and copies of it by its weight."""
        is_held_out = draw < self.share * DRAWS
        writer = self.held_out if is_held_out else self.training
        copies = 1
        if self._weights is not None and is_held_out:
            self._weights.hold_out(source)
        elif self._weights is not None:
            copies = self._weights.copies(source, len(tokens), draw)
        for _ in range(copies):
            location = writer.add(source, tokens, lengths)
        if copies and (self._lowest is None or draw < self._lowest[0]):
            self._lowest = draw, location

    def balance(self) -> str:
        """A description of the split, after making sure that neither side is empty."""
        if not self.share:
            return "nothing is held out"
        if self.training.shards and self.held_out.shards:
            return "documents by the hash of their content"
        # Copies of a document that is moved would stay on the training side.
        require(
            self._weights is None,
            expected="enough documents for both sides of the split by content, with weights",
            found="none to hold out" if self.training.shards else "none for training",
            fix=f"{'raise' if self.training.shards else 'lower'} --held-out, or leave --weight out",
        )
        if not self.training.shards:
            self._swap()
        assert self._lowest is not None
        totals = self.training.totals()
        if totals["documents"] > 1:
            self._move(self._lowest[1], 0)
            return "one document, the one with the lowest content hash"
        if totals["sentences"] > 1:
            moved = min(max(1, round(self.share * totals["sentences"])), totals["sentences"] - 1)
            self._move(self._lowest[1], totals["sentences"] - moved)
            return f"the last {counted(moved, 'sentence')} of the only document"
        return "nothing: the corpus is a single sentence"

    def _swap(self) -> None:
        """Turns the held-out side into the training side, because every document was drawn for it."""
        for shard in self.held_out.shards:
            (self.held_out.folder / shard["file"]).rename(self.training.folder / shard["file"])
        self.training.shards, self.held_out.shards = self.held_out.shards, self.training.shards

    def _move(self, location: tuple[int, int], stays: int) -> None:
        """Moves the document at `location` on the training side, from sentence `stays` on, to the held-out side."""
        entry = self.training.shards[location[0]]
        path = self.folder / entry["file"]
        again = ShardWriter(self.folder / "again", self.pieces, shard_bytes=2**62)
        row = 0
        for batch in read_shard(path):
            for number, source in enumerate(batch.sources.to_pylist()):
                tokens = batch.tokens[batch.token_offsets[number] : batch.token_offsets[number + 1]]
                lengths = batch.sentence_lengths[batch.sentence_offsets[number] : batch.sentence_offsets[number + 1]]
                if row == location[1]:
                    cut = int(lengths[:stays].sum())
                    self.held_out.add(source, tokens[cut:], lengths[stays:])
                    tokens, lengths = tokens[:cut], lengths[:stays]
                if len(lengths):
                    again.add(source, tokens, lengths)
                row += 1
        again.close()
        self.held_out.close()
        path.unlink()
        for shard in again.shards:
            (again.folder / shard["file"]).rename(path)
        self.training.shards[location[0] : location[0] + 1] = [
            shard | {"file": entry["file"]} for shard in again.shards
        ]
        again.folder.rmdir()
