"""A frozen encoder, which turns words and texts into vectors.

Letters: R positions that are read, W words of all sentences, E examples, N rows, T tokens, n chosen layers, D width of
the encoder.

Vectors are computed once, in evaluation mode and without gradients, and stored as fp32 on the CPU. Only the chosen
hidden states are kept; layers above the highest chosen one are not computed, and that one only where it is read.

Source: Devlin et al. (2019), section 5.3; extract_features.py of the original code.
"""

import dataclasses
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from bertsmith.base.core.progress import Progress
from bertsmith.base.machine.runtime import Runtime
from bertsmith.base.storage.files import digest_bytes
from bertsmith.models.heads.row_vectors import apart_of_rows, pair_of_rows, pooler_of_rows
from bertsmith.models.parts.batch import Batch, GatheredRows, Read
from bertsmith.models.parts.encoder import Encoder, Trace
from bertsmith.models.parts.head_inputs import APART, OF_TWO_TEXTS, PAIR, VECTORS_OF_PAIR
from bertsmith.models.parts.layer_choice import LayerChoice, choice_of_widths
from bertsmith.tasks.encoding.row_encoder import OF_ONE, RowEncoder
from bertsmith.tasks.encoding.units import EncodedExamples, Ints, Logits, RowPart, rows_by_first, separate_rows
from bertsmith.text.tokenizers.pack import PackedRows
from bertsmith.text.tokenizers.tokenizer import Tokenizer

if TYPE_CHECKING:
    from bertsmith.models.checkpoints.model_folder import ModelFolder

Vectors = npt.NDArray[np.float32]
MOST_REMEMBERED = 2**28  # bytes of vectors


class FrozenEncoder(RowEncoder):
    """An encoder in torch whose parameters do not change.

    Args:
        model: the encoder; it is put into evaluation mode, without gradients.
        tokenizer: of the model.
        runtime: device and precision.
        base_digest: returns the digest of the model's parameters; called only when needed.
        micro_tokens: maximum tokens per micro-batch; None for a default that suits the device.
        has_pooler: whether the pooler was trained.
        kept: with int8, the linear layers that are kept in higher precision.
        remembers: whether vectors of the same rows are computed once, as long as `MOST_REMEMBERED` bytes hold them.
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
        remembers: bool = False,
    ) -> None:
        super().__init__(tokenizer, runtime, base_digest=base_digest, has_pooler=has_pooler)
        self.kept = tuple(kept)
        self.model: Encoder = model.to(runtime.torch_device).eval().requires_grad_(False)
        self.micro_tokens = runtime.inference_tokens if micro_tokens is None else micro_tokens
        self._remembered: dict[tuple[str, LayerChoice, str], Vectors] | None = {} if remembers else None

    @property
    def reads_last(self) -> bool:
        """Whether the position that represents a row is the last one."""
        return self.model.config.is_causal

    @property
    def attention_maps(self) -> int:
        """See `RowEncoder`."""
        return self.model.config.attention_maps

    def choice(self, name: str) -> LayerChoice:
        """The choice of layers given by a name or by numbers; see `layer_choice`."""
        return choice_of_widths(super().choice(name).name, self.model.widths)

    def settings(self, choice: LayerChoice) -> dict[str, object]:
        """See `RowEncoder`."""
        int8 = {"int8": [self.runtime.int8_bits, *self.kept]} if self.runtime.precision == "int8" else {}
        return {**super().settings(choice), **int8}

    def hidden_states(self, features: EncodedExamples, choice: LayerChoice) -> Vectors:
        """The chosen hidden states at the positions that are read, float32 [R, n, D], in the order of the features."""
        width = (len(choice.layers), self.hidden_size)
        with self.progress(features.rows) as progress:
            return self._vectors(
                features, choice, lambda picked, _: picked.float(), width, "positions", progress=progress
            )

    def row_vectors(
        self, rows: PackedRows, choice: LayerChoice, pooling: str = "mean", progress: Progress | None = None
    ) -> Vectors:
        """See `RowEncoder`; also of a pair, [N, 4 * width].

        Args:
            pooling: also "pair" and "apart": for rows of two texts, `row_vectors.pair_of_rows` and `apart_of_rows`.
        """
        if self._remembered is None:
            return self._row_vectors(rows, choice, pooling, progress)
        numbers = (rows.token_ids, rows.segment_ids, rows.lengths)
        key = (digest_bytes(b"".join(part.tobytes() for part in numbers)), choice, pooling)
        if (known := self._remembered.get(key)) is not None:
            if progress is not None:
                progress.advance(len(rows))
            return known
        vectors = self._row_vectors(rows, choice, pooling, progress)
        vectors.flags.writeable = False
        if vectors.nbytes + sum(part.nbytes for part in self._remembered.values()) <= MOST_REMEMBERED:
            self._remembered[key] = vectors
        return vectors

    def _row_vectors(self, rows: PackedRows, choice: LayerChoice, pooling: str, progress: Progress | None) -> Vectors:
        if pooling not in OF_TWO_TEXTS:
            self.require_pooling(pooling, choice)
        width = choice.width(self.hidden_size) * (VECTORS_OF_PAIR if pooling in OF_TWO_TEXTS else 1)
        reads_one = pooling == "cls" or (pooling == "pooler" and not self.model.config.pools_mean)
        features = rows_by_first(rows)
        # One position per row is read, so the positions of the features are the rows.
        return self._vectors(
            features,
            choice,
            lambda picked, batch: self._pooled(picked, choice, pooling, batch),
            (width,),
            "texts",
            reads=lambda part: self.model.read_of_rows(part.batch) if reads_one else None,
            apart=pooling == APART,
            progress=progress,
        )

    def token_vectors(
        self, rows: PackedRows, choice: LayerChoice, read: Ints | None = None, unseen: Ints | None = None
    ) -> Vectors:
        """See `RowEncoder`."""
        if unseen is not None:
            self.model.require_unseen()
        features = separate_rows(rows, read, unseen)
        width = (choice.width(self.hidden_size),)
        return self._vectors(features, choice, lambda picked, _: choice.join(picked.float()), width, "tokens")

    def _pooled(self, picked: Tensor, choice: LayerChoice, pooling: str, batch: Batch) -> Tensor:
        """Vectors [N, width] from chosen hidden states: [T, n, D], or [N, n, D] where one position per row was read."""
        if pooling == "pooler":
            joined = choice.join(picked)
            if self.model.config.pools_mean:
                return pooler_of_rows(self.model, joined, batch.lengths).float()
            return self.model.pool(joined).float()
        mixed = choice.join(picked.float())
        if pooling in OF_ONE:
            return mixed
        if pooling == PAIR:
            return pair_of_rows(mixed, batch)
        if pooling == APART:
            return apart_of_rows(mixed, batch)
        if pooling == "mean" and batch.num_rows == 1:
            return mixed.mean(dim=0, keepdim=True)
        return torch.segment_reduce(mixed, pooling, lengths=torch.tensor(batch.lengths, device=mixed.device))

    @torch.inference_mode()
    def _vectors(
        self,
        features: EncodedExamples,
        choice: LayerChoice,
        finish: Callable[[Tensor, Batch], Tensor],
        width: tuple[int, ...],
        unit: str,
        *,
        reads: Callable[[GatheredRows], Read | None] = lambda part: part.read,
        apart: bool = False,
        progress: Progress | None = None,
    ) -> Vectors:
        """The results of `finish` on the chosen hidden states, float32 [R, *width]; equal rows are computed once.

        Args:
            finish: returns [r, *width] for the hidden states [r, n, D] of a micro-batch and its rows.
            unit: what R counts, for error messages.
            reads: returns the positions that `finish` receives, None for all tokens; by default those of the features.
            apart: the encoder reads `Batch.texts_apart` of the rows, every token of them.
            progress: counts the rows that are done.
        """
        depth = max(choice.layers)
        model = self.model.lower(depth)
        prunes = model.can_prune

        def compute(part: RowPart) -> Logits:
            gathered = part.gather(self.runtime.device)
            trace, read = Trace(), reads(gathered)
            sequences = gathered.batch.texts_apart.batch if apart else gathered.batch
            model(sequences, read=read if prunes else None, dtype=self.runtime.dtype, trace=trace)
            states = trace.hidden_states
            if read is not None:
                whole = states[:depth] if prunes else states
                states = [*(read.pick(state) for state in whole), *states[len(whole) :]]
            vectors: Logits = finish(choice.pick(states), gathered.batch).float().cpu().numpy()
            return vectors

        return self._collect(features, compute, width, unit, micro_tokens=self.micro_tokens, progress=progress)


@dataclasses.dataclass(kw_only=True)
class SharedEncoder:
    """The frozen encoder of a model folder in fp32, for several users; see `loading.loaded`.

    Attributes:
        folder: the model.
        device: where the encoder runs.
        encoder: None before the first use, and after the last one to free its memory.
    """

    folder: "ModelFolder"
    device: str
    encoder: FrozenEncoder | None = None
