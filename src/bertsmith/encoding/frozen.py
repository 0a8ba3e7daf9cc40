"""A frozen encoder, which turns words and texts into vectors.

Letters: R positions that are read, W words of all sentences, E examples, N rows, T tokens, n chosen layers, D width of
the encoder.

Vectors are computed once, in evaluation mode and without gradients, and stored as fp32 on the CPU. Only the chosen
hidden states are kept; layers above the highest chosen one are not computed, and that one only where it is read. This
is the only place that turns rows into vectors.

Source: Devlin et al. (2019), section 5.3; extract_features.py of the original code.
"""

import functools
from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from bertsmith.encoding.units import EncodedExamples, Ints, TaskBatch, computed, rows_by_first, separate_rows
from bertsmith.errors import CheckpointError, ConfigError, nearest
from bertsmith.model.batch import Batch, Read
from bertsmith.model.encoder import Encoder, Trace
from bertsmith.model.heads import apart_of_rows, pair_of_rows
from bertsmith.model.layer_mix import LayerChoice, layer_choice
from bertsmith.model.our_names import APART, OF_TWO_TEXTS, PAIR, VECTORS_OF_PAIR
from bertsmith.progress import Progress, amount
from bertsmith.runtime import Runtime, memory_bytes
from bertsmith.settings import require
from bertsmith.text.pack import PackedRows
from bertsmith.text.tokenizer import Tokenizer

POOLINGS = ("mean", "cls", "pooler", "max")
_OF_ONE = ("cls", "pooler")  # read one position per row
MOST_MEMORY = 0.5  # maximum fraction of the machine's memory for vectors

Vectors = npt.NDArray[np.float32]


class FrozenEncoder:
    """An encoder whose parameters do not change.

    Args:
        model: the encoder; it is put into evaluation mode, without gradients.
        tokenizer: of the model.
        runtime: device and precision.
        base_digest: returns the digest of the model's parameters; called only when needed.
        micro_tokens: maximum tokens per micro-batch; None for a default that suits the device.
        has_pooler: whether the pooler was trained.
        kept: with int8, the linear layers that are kept in higher precision.
    """

    def __init__(
        self,
        model: Encoder,
        tokenizer: Tokenizer,
        runtime: Runtime,
        *,
        base_digest: Callable[[], str] | None = None,
        micro_tokens: int | None = None,
        has_pooler: bool = True,
        kept: Sequence[str] = (),
    ) -> None:
        self.has_pooler, self.kept = has_pooler, tuple(kept)
        self.model = model.to(runtime.torch_device).eval().requires_grad_(False)
        self.tokenizer, self.runtime = tokenizer, runtime
        self.micro_tokens = runtime.inference_tokens if micro_tokens is None else micro_tokens
        self._base_digest = base_digest

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
            **({"int8": [self.runtime.int8_bits, *self.kept]} if self.runtime.precision == "int8" else {}),
        }

    def choice(self, name: str) -> LayerChoice:
        """The choice of layers given by a name or by numbers; see `layer_choice`."""
        return layer_choice(name, self.model.num_layers)

    def hidden_states(self, features: EncodedExamples, choice: LayerChoice) -> Vectors:
        """The chosen hidden states at the positions that are read, float32 [R, n, D], in the order of the features.

        Raises:
            ConfigError: the vectors take too much memory.
        """
        width = (len(choice.layers), self.hidden_size)
        with self.progress(features.rows) as progress:
            return self._vectors(
                features, choice, lambda picked, _: picked.float(), width, "positions", progress=progress
            )

    def row_vectors(
        self, rows: PackedRows, choice: LayerChoice, pooling: str = "mean", progress: Progress | None = None
    ) -> Vectors:
        """One vector per row, float32 [N, width], in order; of a pair [N, 4 * width].

        Args:
            pooling: the "mean" over all tokens of the row, including [CLS] and [SEP]; the "max" over them; "cls": only
                the hidden state of [CLS] (of the last token in a left-to-right encoder); "pooler": the pooler on top of
                it; "pair" and "apart": for rows of two texts, `heads.pair_of_rows` and `heads.apart_of_rows`.
            progress: counts the rows that are done.

        Raises:
            ConfigError: the pooling is unknown or does not work with the layers, or the vectors take too much memory.
            CheckpointError: the pooler is requested but was never trained.
        """
        if pooling not in OF_TWO_TEXTS:
            self.require_pooling(pooling, choice)
        width = choice.width(self.hidden_size) * (VECTORS_OF_PAIR if pooling in OF_TWO_TEXTS else 1)
        features = rows_by_first(rows)
        # One position per row is read, so the positions of the features are the rows.
        return self._vectors(
            features,
            choice,
            lambda picked, batch: self._pooled(picked, choice, pooling, batch),
            (width,),
            "texts",
            reads=self._reads_rows if pooling in _OF_ONE else lambda _: None,
            apart=pooling == APART,
            progress=progress,
        )

    def token_vectors(self, rows: PackedRows, choice: LayerChoice, read: Ints | None = None) -> Vectors:
        """One vector per token, float32 [T, width], or [R, width] for the positions that are read.

        Args:
            read: int64 [R], flat positions, ascending, at least one in every row; None for all.

        Raises:
            ConfigError: the vectors take too much memory.
        """
        features = separate_rows(rows, read)
        width = (choice.width(self.hidden_size),)
        return self._vectors(features, choice, lambda picked, _: choice.join(picked.float()), width, "tokens")

    def progress(self, rows: PackedRows) -> Progress:
        """A progress bar for running these rows through the encoder."""
        return Progress("frozen encoder", total=len(rows), unit="rows")

    def require_pooling(self, pooling: str, choice: LayerChoice) -> None:
        """Checks that the pooling is known, works with the layers, and has the parameters it needs.

        Raises:
            ConfigError: it is unknown, or the pooler is requested for anything but the last layer.
            CheckpointError: the pooler is requested but was never trained.
        """
        if pooling not in POOLINGS:
            raise ConfigError(expected="a known pooling", found=repr(pooling), fix=nearest(pooling, POOLINGS))
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

    def _pooled(self, picked: Tensor, choice: LayerChoice, pooling: str, batch: Batch) -> Tensor:
        """Vectors [N, width] from chosen hidden states: [T, n, D], or [N, n, D] where one position per row was read."""
        if pooling == "pooler":
            return self.model.pool(choice.join(picked)).float()
        mixed = choice.join(picked.float())
        if pooling in _OF_ONE:
            return mixed
        if pooling == PAIR:
            return pair_of_rows(mixed, batch)
        if pooling == APART:
            return apart_of_rows(mixed, batch)
        return torch.segment_reduce(mixed, pooling, lengths=torch.tensor(batch.lengths, device=mixed.device))

    def _reads_rows(self, part: TaskBatch) -> Read:
        return self.model.read_of_rows(part.batch)

    @torch.inference_mode()
    def _vectors(
        self,
        features: EncodedExamples,
        choice: LayerChoice,
        finish: Callable[[Tensor, Batch], Tensor],
        width: tuple[int, ...],
        what: str,
        *,
        reads: Callable[[TaskBatch], Read | None] = lambda part: part.read,
        apart: bool = False,
        progress: Progress | None = None,
    ) -> Vectors:
        """The results of `finish` on the chosen hidden states, float32 [R, *width]; equal rows are computed once.

        Args:
            finish: returns [r, *width] for the hidden states [r, n, D] of a micro-batch and its rows.
            what: what R counts, for error messages.
            reads: returns the positions that `finish` receives, None for all tokens; by default those of the features.
            apart: the encoder reads `Batch.texts_apart` of the rows, every token of them.
            progress: counts the rows that are done.

        Raises:
            ConfigError: the vectors take too much memory.
        """
        size = _require_room((features.num_read, *width), what)
        depth = max(choice.layers)
        model = self.model.lower(depth)
        prunes = model.can_prune

        def compute(part: TaskBatch) -> Tensor:
            trace, read = Trace(), reads(part)
            sequences = part.batch.texts_apart.batch if apart else part.batch
            model(sequences, read=read if prunes else None, dtype=self.runtime.dtype, trace=trace)
            states = trace.hidden_states
            if read is not None:
                whole = states[:depth] if prunes else states
                states = [*(state[read.positions] for state in whole), *states[len(whole) :]]
            return finish(choice.pick(states), part.batch)

        def advance(share: float) -> None:
            if progress is not None:
                progress.advance(share * len(features.rows), f"{amount(size)}B of vectors")

        return computed(
            features,
            compute,
            width=width,
            micro_tokens=self.micro_tokens,
            device=self.runtime.device,
            advance=advance,
        )

    def require_positions(self, max_length: int) -> None:
        """Checks that the model can read rows of `max_length` tokens.

        Raises:
            ConfigError: it has fewer positions.
        """
        limit = self.model.max_tokens
        require(
            max_length <= limit,
            expected=f"max_length of at most {limit}, the positions of the model",
            found=max_length,
            fix="lower max_length",
        )


def _require_room(shape: tuple[int, ...], what: str) -> int:
    """The size of a float32 array in bytes.

    Raises:
        ConfigError: it would take more than `MOST_MEMORY` of the machine's memory.
    """
    size, memory = 4 * int(np.prod(shape, dtype=np.int64)), memory_bytes()
    require(
        not memory or size <= MOST_MEMORY * memory,
        expected=f"at most {amount(MOST_MEMORY * memory)}B of vectors, half of the memory",
        found=f"{amount(size)}B for {shape[0]:,} {what}",
        fix="choose fewer layers or fewer examples",
    )
    return size
