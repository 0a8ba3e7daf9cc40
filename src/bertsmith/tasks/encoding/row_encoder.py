"""What turns rows into vectors, and what all such encoders share; nothing here needs torch.

Letters: R positions that are read, N rows, T tokens, D width of the encoder.
"""

import abc
import functools
import math
from collections.abc import Callable
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from bertsmith.base.core.errors import CheckpointError, ConfigError
from bertsmith.base.core.progress import Progress, amount
from bertsmith.base.core.settings import require
from bertsmith.base.machine.runtime import Runtime, memory_bytes
from bertsmith.models.heads.poolings import LAST, PARTS, joined, parts_of, pooled_tokens
from bertsmith.models.parts.layer_choice import LayerChoice, layer_choice
from bertsmith.tasks.encoding.passes import Parallel, computed
from bertsmith.tasks.encoding.units import EncodedExamples, Ints, RowPart
from bertsmith.text.tokenizers.pack import PackedRows, require_positions
from bertsmith.text.tokenizers.tokenizer import Tokenizer

POOLINGS = ("mean", "cls", "pooler", "max")
OF_ONE = ("cls", "pooler")  # read one position per row
MOST_MEMORY = 0.5  # maximum fraction of the machine's memory for vectors
_POOLED_AT_ONCE = 2**24  # numbers of the vectors of tokens that are pooled together

Vectors = npt.NDArray[np.float32]


class Hooked(Protocol):
    """What computes passes: those of an encoder, or the steps of a decoder."""

    def register_forward_pre_hook(self, hook: Callable[..., None]) -> Any:
        """Calls `hook` in front of every pass, until `remove()` of what is returned is called."""


class LayeredModel(Hooked, Protocol):
    """What an encoder runs: a model in torch, or a session of ONNX Runtime."""

    @property
    def width(self) -> int:
        """D."""

    @property
    def num_layers(self) -> int:
        """L."""

    @property
    def max_tokens(self) -> int:
        """The maximum number of tokens in a row, special tokens included."""


class RowEncoder(abc.ABC):
    """An encoder whose parameters do not change, with its tokenizer.

    Args:
        tokenizer: of the model.
        runtime: device and precision.
        base_digest: returns the digest of the model's parameters; called only when needed.
        has_pooler: whether the pooler was trained.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        runtime: Runtime,
        *,
        base_digest: Callable[[], str] | None = None,
        has_pooler: bool = True,
    ) -> None:
        self.tokenizer, self.runtime, self.has_pooler = tokenizer, runtime, has_pooler
        self._base_digest = base_digest

    model: LayeredModel  # what computes the hidden states

    @property
    def has_vectors(self) -> bool:
        """Whether it gives hidden states."""
        return True

    @property
    def is_sparse(self) -> bool:
        """Whether the vector of a row has a weight for each piece of the vocabulary, nearly all of them 0."""
        return False

    @property
    def of_queries(self) -> "RowEncoder | None":
        """What reads queries in place of this encoder, which then reads passages alone; None for itself."""
        return None

    @property
    def reads_last(self) -> bool:
        """Whether the position that represents a row is the last one, as in a left-to-right model."""
        return False

    @property
    def is_torch(self) -> bool:
        """Whether torch runs it: then words get their vectors as tensors."""
        return True

    @property
    def attention_maps(self) -> int:
        """The heads of all layers whose attention weights it shows; 0 if it shows none."""
        return 0

    @property
    def complete(self) -> "RowEncoder":
        """The encoder with all layers and attention weights that there are of this model."""
        return self

    @property
    def hooked(self) -> tuple[Hooked, ...]:
        """What is called in front of every pass; see `Engine`."""
        return (self.model,)

    @property
    def hidden_size(self) -> int:
        """D."""
        return self.model.width

    @functools.cached_property
    def digests(self) -> dict[str, str]:
        """The digests of the vocabulary and of the model, by name."""
        base = {} if self._base_digest is None else {"base": self._base_digest()}
        return {"vocabulary": self.tokenizer.vocabulary.digest, **base}

    def settings(self, choice: LayerChoice) -> dict[str, object]:
        """Everything besides the rows that determines vectors of these layers, for JSON."""
        return {
            **{"vocabulary" if name == "vocabulary" else "model": digest for name, digest in self.digests.items()},
            "rules": self.tokenizer.settings,
            "layers": [*choice.layers],
            "sum": choice.is_sum,
            "precision": self.runtime.precision,
            # Not where they are chosen automatically: another machine may choose others.
            **({"products": self.runtime.products} if self.runtime.products_given else {}),
        }

    def choice(self, name: str) -> LayerChoice:
        """The choice of layers given by a name or by numbers; see `layer_choice`."""
        return layer_choice(name, self.model.num_layers)

    @abc.abstractmethod
    def row_vectors(
        self, rows: PackedRows, choice: LayerChoice, pooling: str = "mean", progress: Progress | None = None
    ) -> Vectors:
        """One vector per row, float32 [N, width], in order.

        Args:
            pooling: the "mean" over all tokens of the row, including [CLS] and [SEP]; the "max" over them; "cls": only
                the hidden state of [CLS] (of the last token in a left-to-right encoder); "pooler": the pooler on top of
                it.
            progress: counts the rows that are done.
        """

    def text_vectors(
        self,
        rows: PackedRows,
        choice: LayerChoice,
        pooling: str = "mean",
        progress: Progress | None = None,
        skipped: int = 0,
    ) -> Vectors:
        """One vector per row, float32 [N, width], in order, by any pooling of `require_pooling`.

        Args:
            progress: counts the rows that are done.
            skipped: how many tokens at the start of each row are not pooled.
        """
        parts, lengths = parts_of(pooling), rows.lengths.astype(np.int64)
        if not skipped and (pooling in POOLINGS or not parts):
            return self.row_vectors(rows, choice, pooling, progress)
        if parts == (LAST,):  # the only tokens that the last layer has to give
            last = self.token_vectors(rows, choice, rows.offsets[1:] - 1)
            if progress is not None:
                progress.advance(len(rows))
            return np.asarray(last * (lengths > skipped)[:, None], np.float32)
        blocks, vectors = rows.offsets[:-1] * self.text_width(choice, "mean") // _POOLED_AT_ONCE, []
        for block in np.unique(blocks):
            part = rows.select(np.flatnonzero(blocks == block))
            vectors.append(pooled_tokens(self.token_vectors(part, choice), lengths[blocks == block], parts, skipped))
            if progress is not None:
                progress.advance(len(part))
        return np.concatenate(vectors)

    def text_width(self, choice: LayerChoice, pooling: str) -> int:
        """The width of the vectors of rows."""
        return choice.width(self.hidden_size) * max(len(parts_of(pooling)), 1)

    @abc.abstractmethod
    def token_vectors(
        self, rows: PackedRows, choice: LayerChoice, read: Ints | None = None, unseen: Ints | None = None
    ) -> Vectors:
        """One vector per token, float32 [T, width], or [R, width] for the positions that are read.

        Args:
            read: int64 [R], flat positions, ascending, at least one in every row; None for all.
            unseen: int64 [N], how many tokens at the end of each row no token attends to; None for none.
        """

    def _collect(
        self,
        features: EncodedExamples,
        compute: Callable[[RowPart], Vectors],
        width: tuple[int, ...],
        unit: str,
        *,
        micro_tokens: int,
        progress: Progress | None,
        parallel: Parallel | None = None,
    ) -> Vectors:
        """The vectors of all positions that are read, float32 [R, *width]; equal rows are computed once.

        Args:
            compute: returns [r, *width] for some rows.
            unit: what R counts, for error messages.
            micro_tokens: maximum tokens (or one row) to compute together.
            progress: counts the rows that are done.
            parallel: how batches of many rows are computed at the same time; None if one by one is as fast.
        """
        count = features.num_read
        size, memory = 4 * math.prod((count, *width)), memory_bytes()  # float32
        if memory and size > MOST_MEMORY * memory:
            raise ConfigError(
                expected=f"at most {amount(MOST_MEMORY * memory)}B of vectors, half of the memory",
                found=f"{amount(size)}B for {count:,} {unit}",
                fix="choose fewer layers or fewer examples",
            )

        def advance(share: float) -> None:
            if progress is not None:
                progress.advance(share * len(features.rows), f"{amount(size)}B of vectors")

        return computed(features, compute, width=width, micro_tokens=micro_tokens, advance=advance, parallel=parallel)

    def progress(self, rows: PackedRows) -> Progress:
        """A progress bar for running these rows through the encoder."""
        return Progress("frozen encoder", total=len(rows), unit="rows", least=1.0)

    def require_pooling(self, pooling: str, choice: LayerChoice) -> None:
        """Checks that the pooling is known, works with the layers, and has the parameters it needs."""
        if pooling not in POOLINGS and not parts_of(pooling):
            raise ConfigError.unknown("pooling", pooling, [*POOLINGS, *PARTS, joined(["cls", "mean"])])
        if pooling != "pooler":
            return
        require(
            choice.layers == (self.model.num_layers,),
            expected="the last layer for the pooler",
            found=repr(choice.name),
            fix="choose layers 'last', or another pooling",
        )
        if not self.has_pooler:
            raise CheckpointError(
                expected="a model with a trained pooler",
                found="one without",
                fix="choose pooling mean, cls or max, or another model",
            )

    def require_positions(self, max_length: int) -> None:
        """Checks that the model can read rows of `max_length` tokens."""
        require_positions(max_length, self.model.max_tokens)
