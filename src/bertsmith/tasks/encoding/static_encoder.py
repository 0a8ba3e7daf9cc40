"""An encoder that is a table of vectors of pieces in another tool's layout; nothing here needs torch.

Letters: N rows, T tokens of all rows, D width.
"""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from bertsmith.base.core.errors import ConfigError
from bertsmith.base.core.progress import Progress
from bertsmith.base.machine.runtime import Runtime
from bertsmith.base.storage.files import digest_file
from bertsmith.models.checkpoints.static_folder import StaticFolder
from bertsmith.models.checkpoints.weights import weight_file
from bertsmith.models.parts.layer_choice import LayerChoice
from bertsmith.tasks.encoding.onnx_session import Hooks
from bertsmith.tasks.encoding.row_encoder import RowEncoder, Vectors
from bertsmith.tasks.encoding.units import Ints
from bertsmith.text.tokenizers.encoded import offsets_of
from bertsmith.text.tokenizers.pack import PackedRows

_ANY_LENGTH = 2**31 - 1  # tokens
_SUMMED_AT_ONCE = 2**24  # numbers


class StaticEncoder(RowEncoder):
    """The table, whose vectors of rows are means; of a row without pieces it is 0.

    Args:
        folder: the table with its tokenizer.
    """

    def __init__(self, folder: StaticFolder) -> None:
        digest = functools.partial(digest_file, weight_file(folder.path))
        super().__init__(
            folder.tokenizer, Runtime(device="cpu", precision="fp32"), base_digest=digest, has_pooler=False
        )
        self._folder, self._hooks = folder, Hooks()
        limit = _ANY_LENGTH if folder.max_tokens is None else folder.max_tokens
        self.model = _Shown(self._hooks, folder.vectors.shape[1], 0, limit)

    @property
    def is_torch(self) -> bool:
        """Torch plays no part."""
        return False

    def require_pooling(self, pooling: str, choice: LayerChoice) -> None:
        """Checks that the pooling is the mean, the only one that leaves out a piece."""
        if pooling != "mean":
            raise ConfigError(
                expected="pooling mean of static vectors of another tool", found=pooling, fix="leave it out"
            )

    def row_vectors(
        self, rows: PackedRows, choice: LayerChoice, pooling: str = "mean", progress: Progress | None = None
    ) -> Vectors:
        """See `RowEncoder`."""
        self.require_pooling(pooling, choice)
        self._hooks.call()
        table, width = self._folder.vectors, self.model.width
        means = np.zeros((len(rows), width), np.float32)
        counted = rows.token_ids != (-1 if self._folder.ignored is None else self._folder.ignored)
        ids, lengths = rows.token_ids[counted], np.zeros(len(rows), np.int64)
        np.add.at(lengths, np.repeat(np.arange(len(rows)), rows.lengths)[counted], 1)
        filled, offsets = np.flatnonzero(lengths), offsets_of(lengths)
        blocks = offsets[filled] * width // _SUMMED_AT_ONCE
        for block in np.unique(blocks):
            part = filled[blocks == block]
            first, end = offsets[part[0]], offsets[part[-1] + 1]
            sums = np.add.reduceat(table[ids[first:end]], offsets[part] - first)
            means[part] = sums / lengths[part, None].astype(np.float32)
        if progress is not None:
            progress.advance(len(rows))
        return means

    def token_vectors(
        self, rows: PackedRows, choice: LayerChoice, read: Ints | None = None, unseen: Ints | None = None
    ) -> Vectors:
        """See `RowEncoder`."""
        return self._folder.vectors[rows.token_ids if read is None else rows.token_ids[read]]


class _Shown(NamedTuple):
    """What an encoder runs, with the width of its vectors."""

    hooks: Hooks
    width: int
    num_layers: int
    max_tokens: int

    def register_forward_pre_hook(self, hook: Callable[..., None]) -> Any:
        """See `Hooked`."""
        return self.hooks.add(hook)
