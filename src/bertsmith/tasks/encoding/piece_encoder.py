"""An encoder whose vector of a row has a weight for each piece of the vocabulary: a sparse vector, as in SPLADE.

Letters: N rows, V vocabulary.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from bertsmith.base.core.errors import ConfigError
from bertsmith.base.core.progress import Progress, unseen
from bertsmith.base.core.settings import require
from bertsmith.base.machine.runtime import Runtime, choose_inference
from bertsmith.base.storage.files import digest_file
from bertsmith.models.checkpoints.assembly import load_for_task
from bertsmith.models.checkpoints.int8_scales import recorded_int8
from bertsmith.models.checkpoints.model_folder import ModelFolder
from bertsmith.models.checkpoints.sentence_transformers import max_length_of
from bertsmith.models.checkpoints.weights import digest_of_tensors, read_weights
from bertsmith.models.heads.encoder_with_head import EncoderForTask
from bertsmith.models.heads.head_spec import Head, PieceWeights
from bertsmith.models.model_files.tokenizer_files import read_tokenizer_file
from bertsmith.models.parts.layer_choice import LayerChoice
from bertsmith.models.products.prepared import prepare
from bertsmith.tasks.encoding.engine import TASK
from bertsmith.tasks.encoding.forward import TorchEngine
from bertsmith.tasks.encoding.frozen import FrozenEncoder
from bertsmith.tasks.encoding.row_encoder import Hooked, RowEncoder, Vectors
from bertsmith.tasks.encoding.units import Ints, rows_by_first
from bertsmith.text.tokenizers.pack import PackedRows
from bertsmith.text.tokenizers.tokenizer import Tokenizer


class PieceEncoder(RowEncoder):
    """The encoder with its masked-LM head.

    Args:
        engine: a model whose head has `pieces`.
        below: the same encoder without the head, for vectors of tokens.
        most_active: how many of the largest weights of each row are kept; None for all.
        queries: what reads queries in its place; None for itself.
    """

    def __init__(
        self,
        engine: TorchEngine,
        below: FrozenEncoder,
        most_active: int | None = None,
        queries: "QueryWeights | None" = None,
    ) -> None:
        super().__init__(below.tokenizer, below.runtime, base_digest=below._base_digest, has_pooler=False)
        self._engine, self._below, self.most_active, self._queries = engine, below, most_active, queries
        self.model = _Shown(below.model, engine.width(TASK), below.model.num_layers, below.model.max_tokens)

    @property
    def is_sparse(self) -> bool:
        """See `RowEncoder`."""
        return True

    @property
    def of_queries(self) -> RowEncoder | None:
        """See `RowEncoder`."""
        return self._queries

    @property
    def attention_maps(self) -> int:
        """See `RowEncoder`."""
        return self._below.attention_maps

    @property
    def complete(self) -> RowEncoder:
        """See `RowEncoder`."""
        return self._below

    @property
    def _how(self) -> PieceWeights:
        model = self._engine.model
        assert isinstance(model, EncoderForTask), "a model with a task head"
        assert model.head.pieces is not None, "a head of pieces"
        return model.head.pieces

    def settings(self, choice: LayerChoice) -> dict[str, object]:
        """See `RowEncoder`."""
        most = {} if self.most_active is None else {"most_active": self.most_active}
        return {**self._below.settings(choice), "activation": self._how.activation, **most}

    def require_pooling(self, pooling: str, choice: LayerChoice) -> None:
        """Checks that pooling and layers are those of the model, as there is no other way to these vectors."""
        if pooling != self._how.pooling or choice.layers != (self.model.num_layers,):
            raise ConfigError(
                expected=f"pooling {self._how.pooling} of the last layer, as the model has sparse vectors",
                found=f"pooling {pooling} of layers {choice.name}",
                fix="leave them out, or choose a model of dense vectors",
            )

    def row_vectors(
        self, rows: PackedRows, choice: LayerChoice, pooling: str = "mean", progress: Progress | None = None
    ) -> Vectors:
        """The weights of the pieces for each row, float32 [N, V]; see `RowEncoder`."""
        advance = unseen if progress is None else (lambda share: progress.advance(share * len(rows)))
        weights = self._engine.logits(rows_by_first(rows), TASK, advance=advance)
        return _largest(weights, self.most_active)

    def token_vectors(
        self, rows: PackedRows, choice: LayerChoice, read: Ints | None = None, unseen: Ints | None = None
    ) -> Vectors:
        """See `RowEncoder`; of the hidden states."""
        return self._below.token_vectors(rows, choice, read, unseen)


class QueryWeights(RowEncoder):
    """Weights of the pieces that a row has, special tokens aside, without any encoder.

    Args:
        weights: of each piece, float32 [V].
        max_length: tokens of a row, special ones aside.
    """

    def __init__(
        self, weights: Vectors, tokenizer: Tokenizer, runtime: Runtime, max_length: int, most_active: int | None = None
    ) -> None:
        super().__init__(tokenizer, runtime, has_pooler=False)
        self._weights, self._most_active = weights, most_active
        self.model = _Shown(torch.nn.Module(), len(weights), 1, max_length + tokenizer.template.num_special(1))

    @property
    def is_sparse(self) -> bool:
        """See `RowEncoder`."""
        return True

    def row_vectors(
        self, rows: PackedRows, choice: LayerChoice, pooling: str = "mean", progress: Progress | None = None
    ) -> Vectors:
        """The weights of the pieces for each row, float32 [N, V]; see `RowEncoder`."""
        template, result = self.tokenizer.template, np.zeros((len(rows), len(self._weights)), dtype=np.float32)
        for row, weights in enumerate(result):
            ids = rows.row(row)[0]
            pieces = ids[len(template.start) : len(ids) - len(template.end)]
            weights[pieces] = self._weights[pieces]
        return _largest(result, self._most_active)

    def token_vectors(
        self, rows: PackedRows, choice: LayerChoice, read: Ints | None = None, unseen: Ints | None = None
    ) -> Vectors:
        """Nothing, as there are no hidden states."""
        raise AssertionError("queries have no hidden states")


def _largest(weights: Vectors, most: int | None) -> Vectors:
    """The weights [N, V], all but the largest of each row set to 0."""
    if most is not None and most < weights.shape[1]:
        np.put_along_axis(weights, np.argpartition(-np.abs(weights), most, axis=1)[:, most:], 0.0, axis=1)
    return weights


class _Shown(NamedTuple):
    """What an encoder runs, with the width of its vectors."""

    below: Hooked
    width: int
    num_layers: int
    max_tokens: int

    def register_forward_pre_hook(self, hook: Callable[..., None]) -> Any:
        """See `Hooked`."""
        return self.below.register_forward_pre_hook(hook)


def load_piece_encoder(
    folder: ModelFolder,
    pieces: PieceWeights,
    *,
    most_active: int | None = None,
    queries: Path | None = None,
    device: str = "auto",
    precision: str = "fp32",
    products: str = "auto",
) -> PieceEncoder:
    """The encoder of a model folder with a masked-LM head; see `load_frozen_encoder`.

    Args:
        queries: the folder with the weights of the pieces of queries; None if the encoder reads them, too.
    """
    head = Head(part="classifier", outputs=0, pooled=True, reads="max", is_vector=True, pieces=pieces)
    loaded = load_for_task(folder, head, keep_head=True, parameters="mapped")
    runtime = choose_inference(device, precision, products)
    runtime.tell()
    weights = folder.path / "model.safetensors"
    digest = digest_file(weights) if weights.is_file() else digest_of_tensors(folder.tensors)
    kept, scales, _ = recorded_int8(folder, runtime)
    prepare(loaded.model.to(runtime.torch_device), runtime, kept, scales)
    below = FrozenEncoder(
        loaded.model.encoder, loaded.tokenizer, runtime, base_digest=lambda: digest, has_pooler=False, kept=kept
    )
    reader = (
        None if queries is None else _query_weights(queries, below, len(loaded.model.encoder.word_table), most_active)
    )
    return PieceEncoder(TorchEngine(loaded.model, runtime), below, most_active, reader)


def _query_weights(folder: Path, encoder: FrozenEncoder, pieces: int, most_active: int | None) -> QueryWeights:
    ours, theirs = encoder.tokenizer, read_tokenizer_file(folder)
    require(
        (ours.vocabulary.digest, ours.settings) == (theirs.vocabulary.digest, theirs.settings),
        expected=f"the tokenizer of the encoder in '{folder}'",
        found="another",
        fix="use the model with sentence-transformers",
    )
    weights = read_weights(folder).get("weight")
    require(
        weights is not None and weights.shape == (pieces,),
        expected=f"{pieces:,} weights of pieces in '{folder}'",
        found="none" if weights is None else f"shape {list(weights.shape)}",
        fix="download the model again",
    )
    assert weights is not None
    most = max_length_of(folder, {}) or encoder.model.max_tokens
    return QueryWeights(weights.float().numpy(), ours, encoder.runtime, most, most_active)
