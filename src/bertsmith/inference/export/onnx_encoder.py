"""The nodes of an ONNX graph, and the encoder in it: embeddings, positions inside attention, layers.

Letters: B sequences, S tokens of the longest one, P tokens of the longest sequence that the model reads, D width, A
heads, d head width, Q queries: S, or 1 where one position is read; U rows of the table of distances of a DeBERTa.

Source: `TransformerEncoder` of `models/parts/transformer.py` and the layers of `encoders/`, which this follows line by
line. Two things differ, because batches are padded: the positions of each token are the same in all sequences, unless
texts are read apart, and a window is a mask on the products of all queries and keys.
"""

import copy
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from bertsmith.base.core.errors import ConfigError
from bertsmith.inference.export.onnx_message import BOOL, FLOAT, FUSED_PRODUCT, Array, Node
from bertsmith.models.checkpoints.plan import POSITIONS, fixed_positions
from bertsmith.models.encoders.deberta import DebertaConfig, distances_of, needs_logarithms_of_torch
from bertsmith.models.encoders.mpnet import ranges_of
from bertsmith.models.parts.config import QUICK_GELU_RATE, EncoderConfig

if TYPE_CHECKING:
    from torch import Tensor

LOWEST = float(np.finfo(np.float32).min)
RELATIVE = "bert.embeddings.relative.weight"

Turn = tuple[str, str]  # cosines and sines, [S, d / 2], or [B, 1, S, d / 2] if sequences have positions of their own


class Nodes:
    """A graph under construction.

    Args:
        in_memory: see `onnx_graph.graph_of`.
    """

    def __init__(self, config: EncoderConfig, tensors: "Mapping[str, Tensor]", *, in_memory: bool = False) -> None:
        self.config, self.tensors, self.in_memory = config, tensors, in_memory
        self.nodes: list[Node] = []
        self.arrays: dict[str, Array] = {}

    def with_config(self, config: EncoderConfig) -> "Nodes":
        """The same graph, for layers of another shape."""
        nodes = copy.copy(self)
        nodes.config = config
        return nodes

    def node(self, operator: str, *inputs: str, **attributes: Any) -> str:
        """The name of the value of a new node."""
        name = f"{operator}_{len(self.nodes)}"
        self.nodes.append(Node(operator, inputs, [name], attributes))
        return name

    def halves(self, x: str) -> tuple[str, str]:
        """The two halves of the last axis."""
        name = f"Split_{len(self.nodes)}"
        both = f"{name}_first", f"{name}_second"
        self.nodes.append(Node("Split", [x], both, {"axis": -1, "num_outputs": 2}))
        return both

    def first(self, x: str, *, axis: int) -> str:
        """The first entry along an axis, which is kept with size 1."""
        return self.node("Slice", x, self.integers(0), self.integers(1), self.integers(axis))

    def places(self, ids: str) -> str:
        """0, 1, 2 ... for the tokens of the longest sequence, [S]."""
        length = self.node("Squeeze", self.node("Shape", ids, start=1, end=2))
        return self.node("Range", self.scalar(0), length, self.scalar(1))

    def activation(self, x: str, name: str) -> str:
        """The values of the activation of this name, one of `config.ACTIVATIONS`, at `x`."""
        if name == "linear":
            return x
        if name in ("relu", "tanh"):
            return self.node(name.capitalize(), x)
        if name in ("silu", "quick_gelu"):
            inner = x if name == "silu" else self.node("Mul", x, self.real("rate of quick_gelu", QUICK_GELU_RATE))
            return self.node("Mul", x, self.node("Sigmoid", inner))
        return self.node("Gelu", x, approximate="none" if name == "gelu" else "tanh")

    def dense(self, x: str, name: str) -> str:
        """The affine map of a layer, which may have no bias."""
        product = self.product(x, f"{name}.weight", plain(self.tensors[f"{name}.weight"]))
        return self.node("Add", product, self.parameter(f"{name}.bias")) if self.has(f"{name}.bias") else product

    def product(self, x: str, name: str, weights: npt.NDArray[np.float32]) -> str:
        """The product of the last axis and the transposed weights [O, K]."""
        if self.in_memory:
            return self.node(FUSED_PRODUCT, x, self.array(name, weights), transB=1)
        return self.node("MatMul", x, self.array(name, weights.T))

    def norm(self, x: str, name: str, epsilon: float | None = None) -> str:
        """A norm over the last axis; it may have no bias. `epsilon` comes from the configuration by default."""
        epsilon = self.config.layer_norm_eps if epsilon is None else epsilon
        if not (self.config.centers_norms or self.has(f"{name}.bias")):
            square = self.node("ReduceMean", self.node("Mul", x, x), self.integers(-1), keepdims=1)
            root = self.node("Sqrt", self.node("Add", square, self.real(f"epsilon {epsilon}", epsilon)))
            return self.node("Mul", self.node("Div", x, root), self.parameter(f"{name}.weight"))
        parameters = [
            self.parameter(parameter) for parameter in (f"{name}.weight", f"{name}.bias") if self.has(parameter)
        ]
        return self.node("LayerNormalization", x, *parameters, axis=-1, epsilon=epsilon)

    def has(self, name: str) -> bool:
        """Whether the model has one of our parameters."""
        return name in self.tensors

    def parameter(self, name: str) -> str:
        """One of our parameters, unchanged."""
        return self.array(name, plain(self.tensors[name]))

    def integers(self, *values: int) -> str:
        """A list of integers."""
        return self.array(f"integers {' '.join(map(str, values))}", np.array(values, dtype=np.int64))

    def scalar(self, value: int) -> str:
        """A single integer."""
        return self.array(f"integer {value}", np.array(value, dtype=np.int64))

    def real(self, name: str, value: float) -> str:
        """A single number in fp32."""
        return self.array(name, np.array(value, dtype=np.float32))

    def array(self, name: str, values: npt.NDArray[np.generic]) -> str:
        """A constant; equal names refer to the same constant."""
        # Not ascontiguousarray, which would add an axis to a single number.
        self.arrays.setdefault(name, np.asarray(values, order="C"))
        return name


def plain(tensor: "Tensor | npt.NDArray[Any]") -> npt.NDArray[np.float32]:
    """The numbers of a tensor, or array of NumPy, in fp32."""
    if not isinstance(tensor, np.ndarray):
        tensor = tensor.detach().float().cpu().numpy()
    return tensor.astype(np.float32, copy=False)


def needs_library_tables(config: EncoderConfig) -> bool:
    """Whether the graph holds sines or logarithms that torch computes: those of other libraries differ in last bits."""
    if isinstance(config, DebertaConfig):
        return needs_logarithms_of_torch(config)
    has_rotary = any(config.rotary_base_of(layer) is not None for layer in range(config.num_hidden_layers))
    return has_rotary or config.position_embedding_type == "sinusoidal"


class GraphEncoder:
    """The values that the layers of an encoder share, and the nodes that compute its hidden states.

    Args:
        ids: of the tokens, [B, S].
        mask: 1 for real tokens, [B, S].
        positions: of the tokens in their sequence, [B, S]; None: 0, 1, 2 ...
    """

    def __init__(self, nodes: Nodes, ids: str, mask: str, positions: str | None = None) -> None:
        self.nodes, self.config = nodes, nodes.config
        self.ids, self.mask, self.positions = ids, mask, positions
        self._between: str | None = None
        self._biases: dict[int | None, str] = {}
        self._turns: dict[float, Turn] = {}
        self._rows_of_distances: str | None = None

    def hidden(self, segments: str | None, *, reads_one: bool, last_token: str | None) -> str:
        """The last hidden states: [B, S, D], or [B, 1, D] where one position of a sequence is read.

        Args:
            segments: of the tokens; None: all 0.
            reads_one: the last layer computes nothing but the position that represents a sequence.
            last_token: that position, [B, 1, 1]; None: the first one.
        """
        config, nodes = self.config, self.nodes
        hidden = self.embeddings(segments)  # [B, S, D]
        for number in range(config.num_hidden_layers):
            bias, turn = self.bias(config.window_of(number)), self.turn(config.rotary_base_of(number))
            asking, turn_of_asking = hidden, turn
            if reads_one and number == config.num_hidden_layers - 1:
                assert turn is None or last_token is None, "a left-to-right encoder has no rotary positions"
                asking, bias = self.asking(hidden, bias, last_token)  # [B, 1, D]
                turn_of_asking = turn and (nodes.first(turn[0], axis=-2), nodes.first(turn[1], axis=-2))
            name = f"bert.layers.{config.parameters_of(number)}"
            states = self.layer(name, hidden, bias, asking=asking, turns=(turn_of_asking, turn))
            hidden = self.convolved(name, states, hidden, is_one=asking != hidden)
        return nodes.norm(hidden, "bert.final_norm") if config.norms_last else hidden

    def embeddings(self, segments: str | None) -> str:
        """The input representation [B, S, D]; see `hidden`."""
        nodes, config = self.nodes, self.config
        total = nodes.node("Gather", nodes.parameter("bert.embeddings.word.weight"), self.ids)
        if config.type_vocab_size:
            table = nodes.parameter("bert.embeddings.segment.weight")
            if segments is not None:
                table = nodes.node("Gather", table, segments)
            elif config.type_vocab_size > 1:
                table = nodes.first(table, axis=0)
            total = nodes.node("Add", total, table)  # a single row is added to all tokens
        if config.position_embedding_type != "none":
            if config.position_embedding_type == "absolute":
                table = nodes.parameter(POSITIONS)
            else:
                table = nodes.array(POSITIONS, plain(fixed_positions(config, nodes.tensors)))
            total = nodes.node("Add", total, self.rows_of_positions(table, config.first_position))
        hidden = nodes.norm(total, "bert.embeddings.norm") if config.norms_embeddings else total
        return nodes.dense(hidden, "bert.embeddings.projection") if config.projects_embeddings else hidden

    def rows_of_positions(self, table: str, first_row: int = 0) -> str:
        """The rows of a table [P, ...] for the positions of the tokens: [S, ...], or [B, S, ...].

        More tokens than the table has rows give a sum or product of unequal shapes, which the graph refuses.
        """
        nodes = self.nodes
        first, length = nodes.integers(first_row), nodes.node("Shape", self.ids, start=1, end=2)
        end = nodes.node("Add", length, first) if first_row else length
        rows = nodes.node("Slice", table, first, end, nodes.integers(0))
        return rows if self.positions is None else nodes.node("Gather", rows, self.positions)

    def turn(self, base: float | None) -> Turn | None:
        """The turns of rotary positions with this base, once for all layers; None without a base.

        The tables come from the library: angles of thousands are only equal if they are computed alike.
        """
        if base is None:
            return None
        if base not in self._turns:
            import torch

            from bertsmith.models.parts.layers import turn_of

            nodes, positions = self.nodes, torch.arange(self.config.max_tokens)
            both = []
            turn = turn_of(positions, base, self.config.head_size, self.config.rotary_factor)
            for name, table in turn._asdict().items():
                rows = self.rows_of_positions(nodes.array(f"rotary {name} {base}", plain(table)))
                both.append(rows if self.positions is None else nodes.node("Unsqueeze", rows, nodes.integers(1)))
            self._turns[base] = (both[0], both[1])
        return self._turns[base]

    def turned(self, x: str, turn: Turn | None) -> str:
        """Queries or keys [B, A, Q, d], turned by their positions."""
        if turn is None:
            return x
        node, (cosines, sines), (first, second) = self.nodes.node, turn, self.nodes.halves(x)
        left = node("Sub", node("Mul", first, cosines), node("Mul", second, sines))
        right = node("Add", node("Mul", second, cosines), node("Mul", first, sines))
        return node("Concat", left, right, axis=-1)

    def bias(self, window: int | None) -> str:
        """The bias of the scores, once for all layers: the lowest number where a key may not be seen, else 0.

        Encoders with relative positions have their bias in place of 0. [B, 1 or A, 1 or S, S].
        """
        if window not in self._biases:
            nodes = self.nodes
            seen = self.real_keys()
            if self.config.is_causal:
                places = nodes.places(self.ids)
                keys = nodes.node("Unsqueeze", places, nodes.integers(0))
                queries = nodes.node("Unsqueeze", places, nodes.integers(1))
                seen = nodes.node("And", seen, nodes.node("LessOrEqual", keys, queries))
            if window is not None:
                apart = nodes.node("Unsqueeze", nodes.node("Abs", self.distances()), nodes.integers(1))
                seen = nodes.node("And", seen, nodes.node("LessOrEqual", apart, nodes.scalar(window)))
            self._biases[window] = self.masked(seen, self.relative() if nodes.has(RELATIVE) else None)
        return self._biases[window]

    def distances(self) -> str:
        """The position of each key minus the position of each query, [1 or B, S, S]."""
        nodes = self.nodes
        if self._between is None:
            positions = self.positions or nodes.node("Unsqueeze", nodes.places(self.ids), nodes.integers(0))
            keys, queries = (nodes.node("Unsqueeze", positions, nodes.integers(axis)) for axis in (1, 2))
            self._between = nodes.node("Sub", keys, queries)
        return self._between

    def relative(self) -> str:
        """The bias by distance, [1 or B, A, S, S]."""
        nodes, longest = self.nodes, self.config.max_tokens
        biases = plain(nodes.tensors[RELATIVE])[ranges_of(longest)].T  # [A, 2P - 1]
        length = nodes.node("Shape", self.ids, start=1, end=2)
        ends = [
            nodes.node(operator, nodes.integers(longest + more), length) for operator, more in (("Sub", 0), ("Add", -1))
        ]
        table = nodes.node("Slice", nodes.array("relative positions", biases), *ends, nodes.integers(1))  # [A, 2S - 1]
        places = nodes.node("Add", self.distances(), nodes.node("Sub", length, nodes.integers(1)))
        return nodes.node("Transpose", nodes.node("Gather", table, places, axis=1), perm=[1, 0, 2, 3])

    def real_keys(self) -> str:
        """Whether a key is a real token, [B, 1, 1, S]."""
        nodes = self.nodes
        return nodes.node("Cast", nodes.node("Unsqueeze", self.mask, nodes.integers(1, 2)), to=BOOL)

    def masked(self, seen: str, bias: str | None = None) -> str:
        """The bias where a key is seen, 0 if there is none, and else the lowest number."""
        nodes = self.nodes
        return nodes.node("Where", seen, bias or nodes.real("zero", 0.0), nodes.real("lowest", LOWEST))

    def asking(self, hidden: str, bias: str, last_token: str | None) -> tuple[str, str]:
        """The hidden state [B, 1, D] of the position that represents a sequence, and the bias of its scores."""
        nodes, config = self.nodes, self.config
        if last_token is not None:
            return nodes.node("GatherND", hidden, last_token, batch_dims=1), self.masked(self.real_keys())
        last = config.num_hidden_layers - 1
        by_query = config.is_causal or config.window_of(last) is not None or nodes.has(RELATIVE)
        return nodes.first(hidden, axis=1), nodes.first(bias, axis=2) if by_query else bias

    def layer(self, name: str, hidden: str, bias: str, *, asking: str, turns: tuple[Turn | None, Turn | None]) -> str:
        """The next hidden states [B, Q, D] of the `asking` ones."""
        nodes, config = self.nodes, self.config
        reading, read = asking, hidden
        # No norm is in front of the first attention of some, because one follows the embeddings.
        if config.norms_first and nodes.has(f"{name}.attention_norm.weight"):
            read = nodes.norm(hidden, f"{name}.attention_norm")
            reading = read if asking == hidden else nodes.norm(asking, f"{name}.attention_norm")
        context = self.attend(name, read, bias, asking=reading, turns=turns)
        attended = nodes.node("Add", asking, nodes.dense(context, f"{name}.attention_output"))
        if config.norms_first:
            inner = self.inner(name, nodes.norm(attended, f"{name}.output_norm"))
            return nodes.node("Add", attended, nodes.dense(inner, f"{name}.output"))
        attended = nodes.norm(attended, f"{name}.attention_norm")
        inner = self.inner(name, attended)
        return nodes.norm(nodes.node("Add", attended, nodes.dense(inner, f"{name}.output")), f"{name}.output_norm")

    def inner(self, name: str, x: str) -> str:
        """The inner states of the feed-forward network."""
        inner = self.nodes.dense(x, f"{name}.intermediate")
        if not self.config.is_gated:
            return self.nodes.activation(inner, self.config.hidden_act)
        opened, gate = (
            (inner, self.nodes.dense(x, f"{name}.multiplier")) if self.config.gates_apart else self.nodes.halves(inner)
        )
        return self.nodes.node("Mul", self.nodes.activation(opened, self.config.hidden_act), gate)

    def attend(self, name: str, hidden: str, bias: str, *, asking: str, turns: tuple[Turn | None, Turn | None]) -> str:
        """The context vectors [B, Q, D]; see `layer`."""
        nodes, size = self.nodes, self.config.head_size
        query, key, value = (
            nodes.node("Reshape", nodes.dense(source, f"{name}.{part}"), nodes.integers(0, 0, -1, size))
            for source, part in ((asking, "query"), (hidden, "key"), (hidden, "value"))
        )
        if (shared := self.config.hidden_size // self.config.key_width) > 1:  # of several heads of queries in a row
            heads = nodes.integers(*(head // shared for head in range(self.config.num_attention_heads)))
            key, value = (nodes.node("Gather", x, heads, axis=2) for x in (key, value))
        query = self.turned(nodes.node("Transpose", query, perm=[0, 2, 1, 3]), turns[0])  # [B, A, Q, d]
        if turns[1] is not None:
            key = self.turned(nodes.node("Transpose", key, perm=[0, 2, 1, 3]), turns[1])
        key = nodes.node("Transpose", key, perm=[0, 2, 3, 1] if turns[1] is None else [0, 1, 3, 2])  # [B, A, d, S]
        value = nodes.node("Transpose", value, perm=[0, 2, 1, 3])
        config = self.config
        terms = 1 + (len(config.terms) if isinstance(config, DebertaConfig) else 0)
        query = nodes.node("Mul", query, nodes.real(f"scale of {size}", (size * terms) ** -0.5))
        scores = nodes.node("MatMul", query, key)
        if isinstance(config, DebertaConfig) and config.reads_distances:
            scores = self.with_distances(config, name, query, key, scores, is_one=asking != hidden)
        scores = nodes.node("Add", scores, bias)
        context = nodes.node("MatMul", nodes.node("Softmax", scores, axis=-1), value)
        context = nodes.node("Transpose", context, perm=[0, 2, 1, 3])
        return nodes.node("Reshape", context, nodes.integers(0, 0, self.config.hidden_size))

    def with_distances(
        self, config: DebertaConfig, name: str, query: str, key: str, scores: str, *, is_one: bool
    ) -> str:
        """The scores [B, A, Q, S] of a DeBERTa, to which the products of contents and distances are added.

        Args:
            query: [B, A, Q, d], divided by the scale of the scores.
            key: [B, A, d, S].
            is_one: the first token of a sequence alone is a query.
        """
        nodes, distances = self.nodes, distances_of(config, config.max_tokens)
        if self._rows_of_distances is None:
            places = nodes.node("Add", self.distances(), nodes.scalar(config.max_tokens - 1))
            rows = nodes.node("Gather", nodes.array("rows of distances", distances.rows), places)
            self._rows_of_distances = nodes.node("Unsqueeze", rows, nodes.integers(1))  # [1 or B, 1, S, S]
        rows = nodes.first(self._rows_of_distances, axis=2) if is_one else self._rows_of_distances
        rows = nodes.node("Expand", rows, nodes.node("Shape", scores))
        table = plain(nodes.tensors["bert.embeddings.distance.weight"]).astype(np.float64)
        if config.norm_rel_ebd != "none":
            weight, bias = (
                plain(nodes.tensors[f"bert.embeddings.distance_norm.{part}"]) for part in ("weight", "bias")
            )
            table = table - table.mean(1, keepdims=True)
            table = table / np.sqrt((table**2).mean(1, keepdims=True) + config.layer_norm_eps) * weight + bias
        table = table[distances.first : distances.end]
        size, shared = config.head_size, config.share_att_key
        if "c2p" in config.terms:
            keys = self._by_head(table, f"{name}.key" if shared else f"{name}.position_key")  # [A, d, U]
            # Not the array itself, whose third axis the quantization of onnxruntime does not expect.
            stored = nodes.node("Identity", nodes.array(f"{name} keys of distances", keys))
            products = nodes.node("MatMul", query, stored)
            scores = nodes.node("Add", scores, nodes.node("GatherElements", products, rows, axis=3))
        if "p2c" in config.terms:
            queries = self._by_head(table, f"{name}.query" if shared else f"{name}.position_query")
            queries = (queries * (size * (1 + len(config.terms))) ** -0.5).transpose(0, 2, 1)  # [A, U, d]
            products = nodes.node("MatMul", nodes.array(f"{name} queries of distances", queries), key)  # [B, A, U, S]
            scores = nodes.node("Add", scores, nodes.node("GatherElements", products, rows, axis=2))
        return scores

    def _by_head(self, table: npt.NDArray[np.float64], name: str) -> npt.NDArray[np.float32]:
        """What a layer makes of the vectors of distances [U, D], by head: [A, d, U]."""
        weight, bias = (plain(self.nodes.tensors[f"{name}.{part}"]) for part in ("weight", "bias"))
        mapped = (table @ weight.T + bias).astype(np.float32)
        return mapped.reshape(len(table), self.config.num_attention_heads, -1).transpose(1, 2, 0)

    def convolved(self, name: str, states: str, hidden: str, *, is_one: bool) -> str:
        """The states [B, Q, D] after a layer, with the convolution of its input [B, S, D] if it has one."""
        nodes, config = self.nodes, self.config
        if not (isinstance(config, DebertaConfig) and nodes.has(f"{name}.convolution.weight")):
            return states
        if self.positions is not None:
            raise ConfigError(
                expected="an encoder without a convolution for an ONNX graph that reads texts apart",
                found=config.display_name,
                fix="use it with bertsmith",
            )
        real = nodes.node("Unsqueeze", nodes.node("Cast", self.mask, to=FLOAT), nodes.integers(2))
        source = nodes.node("Transpose", nodes.node("Mul", hidden, real), perm=[0, 2, 1])
        half = config.conv_kernel_size // 2
        parameters = (nodes.parameter(f"{name}.convolution.{part}") for part in ("weight", "bias"))
        local = nodes.node("Transpose", nodes.node("Conv", source, *parameters, pads=[half, half]), perm=[0, 2, 1])
        local = nodes.activation(nodes.first(local, axis=1) if is_one else local, config.conv_act)
        return nodes.norm(nodes.node("Add", states, local), f"{name}.convolution_norm")
