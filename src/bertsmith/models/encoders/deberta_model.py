"""The encoder of DeBERTa: BERT's layers with products of contents and distances in attention, a convolution in some.

Its configuration and the names of its parameters are in `deberta.py`.

Letters: T tokens, R positions that are read, D width, n sequences of one run, A heads, d head width, r queries and s
keys of a sequence, P tokens of the longest one, U rows of the table of distances that a batch needs, G adapters.
"""

import dataclasses
import functools
import math
from collections.abc import Sequence
from types import MappingProxyType

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bertsmith.base.core.errors import ConfigError
from bertsmith.models.encoders.deberta import DebertaConfig, distances_of
from bertsmith.models.parts.attention import Bias
from bertsmith.models.parts.batch import Read
from bertsmith.models.parts.encoder import Encoder
from bertsmith.models.parts.layers import Embedding, PreparedLinear, activation, initialize, linear, norm
from bertsmith.models.parts.noise import dropped
from bertsmith.models.parts.part_names import PREFIX
from bertsmith.models.parts.runs import Run, copied
from bertsmith.models.parts.transformer import Layer, Mixed, Pass, Products, SourceAttention, TransformerEncoder


@dataclasses.dataclass(frozen=True, kw_only=True)
class DebertaPass(Pass):
    """What the layers of a DeBERTa share.

    Attributes:
        table: the vectors of all distances, after their norm, [2 * span, D].
        rows: the rows of the table that the batch needs.
        row_of: which of these a distance has, int64 [2P - 1]; see `Distances`.
        mixed: the adapters of the rows of the batch; None without several.
    """

    table: Tensor
    rows: slice
    row_of: Tensor
    mixed: Mixed | None = None


class DebertaLayer(Layer):
    """A layer of BERT whose scores include products of contents and distances.

    Attributes:
        fixed: the keys and queries of all distances, [G, 2 * span, D] each, once prepared.
    """

    config: DebertaConfig

    def __init__(self, config: DebertaConfig, number: int) -> None:
        super().__init__(config)
        width = config.hidden_size
        if config.has_projection("c2p"):
            self.position_key = nn.Linear(width, width)
        if config.has_projection("p2c"):
            self.position_query = nn.Linear(width, width)
        self.is_convolved = number == 0 and config.conv_kernel_size > 0
        if self.is_convolved:
            self.convolution = nn.Conv1d(width, width, config.conv_kernel_size, padding=config.conv_kernel_size // 2)
            self.convolution_norm = nn.LayerNorm(width, eps=config.layer_norm_eps)
        self.fixed: tuple[Tensor | None, Tensor | None] | None = None

    def forward(self, hidden: Tensor, shared: Pass, read: Read | None, name: str) -> Tensor:
        """See `Layer.forward`; the first layer may add a convolution of its input to its result."""
        states = super().forward(hidden, shared, read, name)
        if not self.is_convolved:
            return states
        config, counts = self.config, shared.batch.lengths if read is None else read.counts
        local = self.convolved(hidden.to(shared.dtype), shared)
        local = dropped(
            local if read is None else local[read.positions], shared.noise, config.hidden_dropout_prob, counts
        )
        return norm(states + activation(local, config.conv_act).to(states.dtype), self.convolution_norm)

    def convolved(self, hidden: Tensor, shared: Pass) -> Tensor:
        """The convolution [T, D] of the states of each sequence, with zeros around it."""
        weight, bias = self.convolution.weight.to(hidden.dtype), self.convolution.bias
        assert bias is not None, "the convolution has a bias"
        parts = []
        for run in shared.batch.runs:
            states = hidden[run.token : run.token + run.rows * run.length].view(run.rows, run.length, -1)
            local = F.conv1d(states.transpose(1, 2), weight, bias.to(hidden.dtype), padding=weight.shape[2] // 2)
            parts.append(local.transpose(1, 2).reshape(-1, hidden.shape[1]))
        return torch.cat(parts)

    def placed(self, query: Tensor, key: Tensor, shared: Pass, read: Read | None) -> tuple[Tensor, Tensor]:
        """Queries and keys; the root of the number of terms divides all scores."""
        terms = 1 + len(self.config.terms)
        return (query if terms == 1 else query * terms**-0.5), key

    def score_bias(self, shared: Pass, name: str) -> Bias | None:
        """The products of contents and distances, of each run."""
        if not isinstance(shared, DebertaPass):
            return None
        keys, queries = self.fixed or self.of_distances(self._dropped(shared, name), shared.dtype)
        heads, scale, mixed = self.config.num_attention_heads, self.config.head_size**-0.5, shared.mixed

        def by_head(vectors: Tensor | None, scale: float) -> Tensor | None:
            if vectors is None:
                return None
            if mixed is not None:
                vectors = vectors[mixed.adapters]
            vectors = vectors[..., shared.rows, :] * scale  # [U, D], or [G, U, D] once prepared
            return vectors.reshape(-1, heads, self.config.head_size).permute(1, 2, 0)

        # The queries of contents are divided by the root of the number of terms, those of distances are not yet.
        of_queries = scale / math.sqrt(1 + len(self.config.terms))
        first_of = (
            None if mixed is None or mixed.of_row is None else mixed.of_row * (shared.rows.stop - shared.rows.start)
        )
        return functools.partial(_scores, by_head(keys, scale), by_head(queries, of_queries), shared.row_of, first_of)

    def of_distances(
        self, table: Tensor, dtype: torch.dtype, products: Products = MappingProxyType({}), prefix: str = ""
    ) -> tuple[Tensor | None, Tensor | None]:
        """The keys and queries of distances, [2 * span, D] each, or None if no term has them.

        Args:
            products: what an adapter adds to the weights, whose names begin with `prefix`.
        """
        config, table = self.config, table.to(dtype)
        keys, queries = ("key", "query") if config.share_att_key else ("position_key", "position_query")

        def mapped(term: str, name: str) -> Tensor | None:
            if term not in config.terms:
                return None
            layer = self.get_submodule(name)
            assert isinstance(layer, nn.Linear | PreparedLinear)
            vectors = linear(table, layer)
            if (pair := products.get(f"{prefix}{name}.weight")) is not None:
                first, second = (part.to(table) for part in pair)
                vectors = vectors + F.linear(F.linear(table, first), second)
            return vectors

        return mapped("c2p", keys), mapped("p2c", queries)

    def _dropped(self, shared: DebertaPass, name: str) -> Tensor:
        """The vectors of distances after dropout, which is the same for all rows of a step."""
        table, probability = shared.table, self.config.hidden_dropout_prob
        if shared.noise is None or not probability:
            return table
        keep = shared.noise.keep_in_step(probability, f"distances in layer {name}", table.numel(), table.dtype)
        return table * keep.view_as(table) / (1 - probability)


def _scores(
    keys: Tensor | None,
    queries: Tensor | None,
    row_of: Tensor,
    first_of: Tensor | None,
    query: Tensor,
    key: Tensor,
    distances: Tensor,
    run: Run,
) -> Tensor:
    """The numbers that are added to the scores of a run, [n, A, r, s].

    Args:
        keys: of distances, divided by the scale of the scores, [A, d, U]; with several adapters [A, d, G * U].
        queries: the same, of distances.
        first_of: the first of the U rows that a sequence of the batch reads, int64 [N]; None without several adapters.
        query: [n, A, r, d].
        key: [n, A, s, d].
        distances: the position of each key minus that of each query, int64 [n or 1, r, s].
    """
    rows = row_of[distances + row_of.shape[0] // 2].unsqueeze(1)  # [n or 1, 1, r, s]
    if first_of is not None:
        rows = rows + first_of[run.row : run.row + run.rows].view(-1, 1, 1, 1)
    rows = rows.expand(*query.shape[:3], key.shape[2])
    total: Tensor | None = None
    if keys is not None:
        total = (query @ keys).gather(3, rows)
    if queries is not None:
        of_keys = (key @ queries).transpose(2, 3).gather(2, rows)
        total = of_keys if total is None else total + of_keys
    assert total is not None, "a term"
    return total


class DebertaDecoderLayer(SourceAttention, DebertaLayer):
    """The same for a decoder, without the convolution, which would read the tokens that follow."""

    def __init__(self, config: DebertaConfig, number: int) -> None:
        if config.conv_kernel_size:
            raise ConfigError(
                expected="an encoder without a convolution, to add a decoder",
                found=f"conv_kernel_size {config.conv_kernel_size}",
                fix="use another model",
            )
        super().__init__(config, number)
        self.add_source_attention()


class DebertaModel(TransformerEncoder):
    """Word embeddings, layers that read distances, a pooler for heads of whole texts."""

    config: DebertaConfig
    position_layers = ("position_key", "position_query")

    def __init__(self, config: DebertaConfig, *, seed: int | None = 0) -> None:
        super().__init__(config, seed=None)
        if config.relative_attention:
            self.embeddings.distance = Embedding(2 * config.span, config.hidden_size)
        if config.norm_rel_ebd == "layer_norm":
            self.embeddings.distance_norm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)
        if seed is not None:
            initialize(self, config.initializer_range, seed)

    def require_unseen(self) -> None:
        """See `Encoder.require_unseen`: there, a token that is left out attends to nothing itself, either."""
        Encoder.require_unseen(self)

    def new_layer(self, number: int) -> Layer:
        """See `TransformerEncoder`."""
        return DebertaLayer(self.config, number)

    def new_decoder_layer(self, number: int) -> Layer:
        """See `TransformerEncoder.new_decoder_layer`."""
        return DebertaDecoderLayer(self.config, number)

    def shared(self, basis: Pass) -> Pass:
        """The vectors of distances and the rows that the batch needs, once for all layers."""
        config = self.config
        if not config.reads_distances:
            return basis
        longest = max(basis.batch.lengths) if basis.earlier is None else basis.earlier.longest
        distances = distances_of(config, longest)
        fields = {field.name: getattr(basis, field.name) for field in dataclasses.fields(basis)}
        return DebertaPass(
            **fields,
            table=self.table_of_distances(),
            rows=slice(distances.first, distances.end),
            row_of=copied(distances.rows, self.word_table.device),
            mixed=self.mixed,
        )

    def table_of_distances(self) -> Tensor:
        """The vectors of all distances, after their norm, [2 * span, D]."""
        table = self.embeddings.get_submodule("distance").get_parameter("weight")
        if self.config.norm_rel_ebd == "none":
            return table
        after = self.embeddings.get_submodule("distance_norm")
        assert isinstance(after, nn.LayerNorm)
        return norm(table, after)

    @torch.no_grad()
    def fix_positions(self, dtype: torch.dtype, adapters: Sequence[Products] = ({},)) -> None:
        """See `TransformerEncoder.fix_positions`: the keys and queries of distances in each layer."""
        if not self.config.reads_distances:
            return
        table = self.table_of_distances()
        for number, layer in enumerate(self.layers):
            assert isinstance(layer, DebertaLayer)
            prefix = f"{PREFIX}layers.{number}."
            pairs = [layer.of_distances(table, table.dtype, products, prefix) for products in adapters]
            keys, queries = (
                torch.stack(present).to(dtype) if (present := [part for part in parts if part is not None]) else None
                for parts in zip(*pairs, strict=True)
            )
            layer.fixed = keys, queries
