"""The ONNX graph of a model, built node by node from its parameters.

Letters: B sequences, S tokens of the longest one, C endings of a choice, D width, A heads, d head width, K labels,
V vocabulary.

Batches are padded here, because other tools pass padded batches: `attention_mask` says which tokens are real, and the
other positions, all on the right, do not affect them. Inputs and outputs have the names used by `transformers`.
Parameters keep our names; matrices are stored as [in, out], so that products need no transpose. If only one position of
a sequence is read ([CLS], or the last token of a left-to-right model with a task), the last layer computes nothing
else, as in the library.

Source: the operators of ONNX; `TransformerEncoder` of `model/transformer.py`, which this follows line by line.
"""

from collections.abc import Collection, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
from torch import Tensor

import bertsmith
from bertsmith.checkpoints.model_folder import parts_of
from bertsmith.checkpoints.plan import POSITIONS, fixed_positions
from bertsmith.encoding.onnx_session import INPUTS, PER_TOKEN, Output, inputs_of, outputs_of, package
from bertsmith.heads.head_blocks import HeadBlocks
from bertsmith.model.config import EncoderConfig
from bertsmith.model.our_names import APART, BLOCKS, CONCAT, OF_TWO_TEXTS

# LayerNormalization needs 17, Gelu 20; onnxruntime reads 20 since 1.17. See docs/decisions/0012-onnx-graph.md.
OPSET = 20
LOWEST = float(np.finfo(np.float32).min)


def build_graph(
    config: EncoderConfig,
    tensors: Mapping[str, Tensor],
    kind: str | None,
    *,
    reads: str = "pooler",
    tied: bool = True,
    opset: int = OPSET,
) -> Any:
    """The model as an `onnx.ModelProto`, in fp32, with axes named batch, sequence and choices.

    Args:
        tensors: parameters by our name, those of the encoder prefixed with `bert.`.
        kind: the kind of task of the head; None for a pre-trained model or a bare encoder.
        reads: what the head of a task on whole rows reads, one of `our_names.READS`.
        tied: whether the decoder of the masked-LM head is the word table, stored once; otherwise it is stored as a
            separate matrix, which can then be quantised.

    Raises:
        ConfigError: onnx is not installed.
    """
    onnx = package("onnx")
    parts = parts_of(tensors, config)
    outputs = outputs_of(kind, parts)
    graph = _Graph(onnx, config, tensors)
    found = graph.forward(kind, outputs, tied=tied, reads=reads)
    outer = ["batch", "choices"] if kind == "choice" else ["batch"]
    integer, real = onnx.TensorProto.INT64, onnx.TensorProto.FLOAT
    value = onnx.helper.make_tensor_value_info
    width = config.hidden_size
    widths = {"last_hidden_state": [width], "pooler_output": [width], "seq_relationship_logits": [2]}
    if kind is None:
        widths["logits"] = [config.vocab_size if "mlm" in parts else 2]
    elif kind not in ("span", "choice"):
        widths["logits"] = [len(tensors["classifier.bias"])]
    infos = []
    for output in outputs:
        axes = [*outer, "sequence"] if output.per == PER_TOKEN else outer
        graph.nodes.append(onnx.helper.make_node("Identity", [found[output.name]], [output.name], name=output.name))
        infos.append(value(output.name, real, [*axes, *widths.get(output.name, [])]))
    proto = onnx.helper.make_graph(
        graph.nodes,
        config.model_type,
        [value(name, integer, [*outer, "sequence"]) for name in inputs_of(config, reads)],
        infos,
        [onnx.numpy_helper.from_array(array, name) for name, array in graph.arrays.items()],
    )
    versions = [onnx.helper.make_opsetid("", opset)]
    return onnx.helper.make_model(
        proto,
        opset_imports=versions,
        ir_version=onnx.helper.find_min_ir_version_for(versions),
        producer_name="bertsmith",
        producer_version=bertsmith.__version__,
    )


class _Graph:
    """A graph under construction: its nodes and arrays; values are referred to by name."""

    def __init__(self, onnx: Any, config: EncoderConfig, tensors: Mapping[str, Tensor]) -> None:
        self.onnx, self.config, self.tensors = onnx, config, tensors
        self.nodes: list[Any] = []
        self.arrays: dict[str, npt.NDArray[np.generic]] = {}

    def forward(self, kind: str | None, outputs: Collection[Output], *, tied: bool, reads: str) -> dict[str, str]:
        """The values of the outputs, by name; `reads` is what the head of a task on whole rows reads."""
        inputs = list(inputs_of(self.config, reads))
        if kind == "choice":
            shape = self.node("Concat", self.integers(-1), self.node("Shape", inputs[0], start=2, end=3), axis=0)
            inputs = [self.node("Reshape", name, shape) for name in inputs]  # [B * C, S]
        (ids, mask), segments = inputs[:2], inputs[2] if len(inputs) > 2 else None
        pooled = reads not in ("mean", CONCAT, *OF_TWO_TEXTS) and all(output.per != PER_TOKEN for output in outputs)
        # Without a task, the pooler and its head stay on [CLS] whatever the attention, as in transformers.
        last_token = self.last_token(mask) if kind is not None and pooled and self.config.is_causal else None
        positions = None
        if reads == APART and kind is not None:
            assert segments is not None, "an input of the graph"
            ids, mask, positions = self.texts_apart(ids, mask, segments)  # [2B, S] each
            segments = None
        hidden = self.embeddings(ids, segments if self.config.type_vocab_size > 1 else None, positions)  # [B, S, D]
        bias = self.bias(ids, mask)
        for number in range(self.config.num_hidden_layers):
            last = number == self.config.num_hidden_layers - 1
            name = f"bert.layers.{self.config.parameters_of(number)}"
            if pooled and last:
                asking, seen = self.asking(hidden, bias, mask, last_token)  # [B, 1, D]
                hidden = self.layer(name, hidden, seen, asking=asking)
            else:
                hidden = self.layer(name, hidden, bias, asking=hidden)
        result = {"last_hidden_state": hidden}
        if kind == "span":
            both = self.dense(hidden, "span")  # [B, S, 2]
            for column, name in enumerate(("start_logits", "end_logits")):
                result[name] = self.node("Gather", both, self.scalar(column), axis=2)
        elif kind == "tagging":
            result["logits"] = self.dense(hidden, "classifier")
        elif kind is not None:
            read = self.of_rows(hidden, mask, segments, reads)
            result["logits"] = self.dense(self.blocks(read) if reads == CONCAT else read, "classifier")
        else:
            names = {output.name for output in outputs}
            if "pooler_output" in names:
                result["pooler_output"] = self.pooled(hidden)
            if "nsp.weight" in self.tensors and "pooler_output" in names:
                name = "seq_relationship_logits" if "seq_relationship_logits" in names else "logits"
                result[name] = self.dense(result["pooler_output"], "nsp")
            if "mlm" in parts_of(self.tensors, self.config):
                result["logits"] = self.vocabulary_logits(hidden, tied=tied)
        if kind == "choice":
            shape = self.node("Shape", INPUTS[0], start=0, end=2)
            result["logits"] = self.node("Reshape", result["logits"], shape)  # [B, C]
        return result

    def texts_apart(self, ids: str, mask: str, segments: str) -> tuple[str, str, str]:
        """Ids, mask and positions, [2B, S] each, of all first texts and then all second ones.

        A sequence keeps the row of both texts; the mask covers the other one. Positions count the tokens that are left.

        Source: `Batch.texts_apart` of `model/batch.py`.
        """
        length = self.node("Squeeze", self.node("Shape", ids, start=1, end=2))
        places = self.node("Range", self.scalar(0), length, self.scalar(1))
        is_first = self.node("Equal", places, self.scalar(0))  # [S]
        second = self.node("Where", is_first, self.scalar(0), self.node("Mul", mask, segments))
        with_first = self.node("Where", is_first, mask, second)
        both = self.node("Concat", self.node("Sub", mask, second), with_first, axis=0)
        before = self.node("Sub", self.node("CumSum", both, self.scalar(1)), self.integers(1))
        return self.node("Concat", ids, ids, axis=0), both, before

    def embeddings(self, ids: str, segments: str | None, positions: str | None = None) -> str:
        """The input representation [B, S, D].

        Args:
            segments: of the tokens; None: all 0.
            positions: of the tokens; None: 0, 1, 2 ...
        """
        total = self.node("Gather", self.parameter("bert.embeddings.word.weight"), ids)
        if self.config.type_vocab_size:
            table = self.parameter("bert.embeddings.segment.weight")
            if segments is not None:
                table = self.node("Gather", table, segments)
            elif self.config.type_vocab_size > 1:
                table = self.first(table, axis=0)
            total = self.node("Add", total, table)  # a single row is added to all tokens
        if self.config.position_embedding_type != "none":
            if self.config.position_embedding_type == "absolute":
                table = self.parameter(POSITIONS)
            else:
                table = self.array(POSITIONS, fixed_positions(self.config, self.tensors).float().numpy())
            first, length = self.integers(self.config.first_position), self.node("Shape", ids, start=1, end=2)
            end = self.node("Add", length, first) if self.config.first_position else length
            table = self.node("Slice", table, first, end, self.integers(0))
            total = self.node("Add", total, table if positions is None else self.node("Gather", table, positions))
        hidden = self.norm(total, "bert.embeddings.norm") if self.config.norms_embeddings else total
        return self.dense(hidden, "bert.embeddings.projection") if self.config.projects_embeddings else hidden

    def bias(self, ids: str, mask: str) -> str:
        """The mask added to the scores: 0 where a key may be seen, else the lowest number; [B, 1, 1 or S, S]."""
        seen = self.real_keys(mask)
        if self.config.is_causal:
            length = self.node("Squeeze", self.node("Shape", ids, start=1, end=2))
            places = self.node("Range", self.scalar(0), length, self.scalar(1))
            keys = self.node("Unsqueeze", places, self.integers(0))
            queries = self.node("Unsqueeze", places, self.integers(1))
            seen = self.node("And", seen, self.node("LessOrEqual", keys, queries))
        return self.mask_bias(seen)

    def real_keys(self, mask: str) -> str:
        """Whether a key is a real token, [B, 1, 1, S]."""
        return self.node("Cast", self.node("Unsqueeze", mask, self.integers(1, 2)), to=self.onnx.TensorProto.BOOL)

    def mask_bias(self, seen: str) -> str:
        """0 where a key is seen, else the lowest number."""
        return self.node("Where", seen, self.real("zero", 0.0), self.real("lowest", LOWEST))

    def last_token(self, mask: str) -> str:
        """The position of the last real token of each sequence, [B, 1, 1]."""
        count = self.node("ReduceSum", mask, self.integers(1), keepdims=1)  # [B, 1]
        return self.node("Sub", self.node("Unsqueeze", count, self.integers(2)), self.integers(1))

    def asking(self, hidden: str, bias: str, mask: str, last_token: str | None) -> tuple[str, str]:
        """The hidden state [B, 1, D] of the position that represents a sequence, and the mask of what it sees."""
        if last_token is not None:
            return self.node("GatherND", hidden, last_token, batch_dims=1), self.mask_bias(self.real_keys(mask))
        return self.first(hidden, axis=1), self.first(bias, axis=2) if self.config.is_causal else bias

    def layer(self, name: str, hidden: str, bias: str, *, asking: str) -> str:
        """The next hidden states of the `asking` ones: [B, S, D], or [B, 1, D] where one position is read."""
        config = self.config
        size = config.head_size
        query, key, value = (
            self.node("Reshape", self.dense(source, f"{name}.{part}"), self.integers(0, 0, -1, size))
            for source, part in ((asking, "query"), (hidden, "key"), (hidden, "value"))
        )
        query = self.node("Transpose", query, perm=[0, 2, 1, 3])  # [B, A, S, d]
        key = self.node("Transpose", key, perm=[0, 2, 3, 1])  # [B, A, d, S]
        value = self.node("Transpose", value, perm=[0, 2, 1, 3])
        query = self.node("Mul", query, self.real("scale", size**-0.5))
        scores = self.node("Add", self.node("MatMul", query, key), bias)
        context = self.node("MatMul", self.node("Softmax", scores, axis=-1), value)
        context = self.node("Transpose", context, perm=[0, 2, 1, 3])
        context = self.node("Reshape", context, self.integers(0, 0, config.hidden_size))
        attended = self.node("Add", asking, self.dense(context, f"{name}.attention_output"))
        attended = self.norm(attended, f"{name}.attention_norm")
        inner = self.activation(self.dense(attended, f"{name}.intermediate"), config.hidden_act)
        return self.norm(self.node("Add", attended, self.dense(inner, f"{name}.output")), f"{name}.output_norm")

    def of_rows(self, hidden: str, mask: str, segments: str | None, reads: str) -> str:
        """What the head of a task on whole rows reads: of real tokens or of one position, [B, D], or several such.

        Source: `mean_of_rows`, `pair_of_rows` and `apart_of_rows` of `heads/row_vectors.py`, `concat_of_rows` of
        `heads/head_blocks.py`.
        """
        if reads == "pooler":
            return self.pooled(hidden)
        if reads == "cls":
            return self.node("Gather", hidden, self.scalar(0), axis=1)
        real = self.node("Cast", mask, to=self.onnx.TensorProto.FLOAT)  # [B, S]
        if reads == CONCAT:
            if self.config.is_causal:
                one = self.node("GatherND", hidden, self.last_token(mask), batch_dims=1)
                one = self.node("Squeeze", one, self.integers(1))
            else:
                one = self.node("Gather", hidden, self.scalar(0), axis=1)
            is_real = self.node("Cast", self.node("Unsqueeze", mask, self.integers(2)), to=self.onnx.TensorProto.BOOL)
            seen = self.node("Where", is_real, hidden, self.real("lowest", LOWEST))
            largest = self.node("ReduceMax", seen, self.integers(1), keepdims=0)
            return self.node("Concat", one, largest, self.mean(hidden, real), axis=1)  # [B, 3D]
        if reads not in OF_TWO_TEXTS:
            return self.mean(hidden, real)
        if reads == APART:
            shape = self.integers(2, -1, self.config.hidden_size)
            means = self.node("Reshape", self.mean(hidden, real), shape)  # [2, B, D]
            return self.compared(*(self.node("Gather", means, self.scalar(text), axis=0) for text in (0, 1)))
        assert segments is not None, "an input of the graph"
        second = self.node("Mul", real, self.node("Cast", segments, to=self.onnx.TensorProto.FLOAT))
        return self.compared(self.mean(hidden, self.node("Sub", real, second)), self.mean(hidden, second))

    def blocks(self, vectors: str) -> str:
        """The hidden units [B, 50] of a head with a hidden layer.

        Source: `HeadBlocks` of `heads/head_blocks.py`.
        """
        x = self.norm(vectors, f"{BLOCKS}.norm", HeadBlocks.epsilon)
        x = self.node("Relu", self.dense(x, f"{BLOCKS}.hidden"))
        return self.norm(x, f"{BLOCKS}.hidden_norm", HeadBlocks.epsilon)

    def compared(self, a: str, b: str) -> str:
        """[a, b, |a - b|, a * b], [B, 4D]."""
        difference = self.node("Abs", self.node("Sub", a, b))
        return self.node("Concat", a, b, difference, self.node("Mul", a, b), axis=1)

    def mean(self, hidden: str, weights: str) -> str:
        """The mean [B, D] of the hidden states whose weight [B, S] is 1, the others having 0; of none it is 0."""
        weighted = self.node("Mul", hidden, self.node("Unsqueeze", weights, self.integers(2)))
        count = self.node("ReduceSum", weights, self.integers(1), keepdims=1)
        total = self.node("ReduceSum", weighted, self.integers(1), keepdims=0)
        return self.node("Div", total, self.node("Max", count, self.real("one", 1.0)))

    def pooled(self, hidden: str) -> str:
        """The pooled output [B, D]."""
        first = self.node("Gather", hidden, self.scalar(0), axis=1)
        if not self.config.can_pool:
            return first
        pooled = self.dense(first, "bert.pooler")
        if self.config.pooler_activation == "tanh":
            return self.node("Tanh", pooled)
        return self.activation(pooled, self.config.pooler_activation)

    def vocabulary_logits(self, hidden: str, *, tied: bool) -> str:
        """Logits [B, S, V]."""
        kind = self.config.piece_head
        if kind == "transform":
            changed = self.activation(self.dense(hidden, "mlm.transform"), self.config.head_act)
            hidden = self.norm(changed, "mlm.norm")
        if tied:
            table = self.node("Transpose", self.parameter("bert.embeddings.word.weight"), perm=[1, 0])
        else:
            table = self.array("mlm.decoder.weight", _plain(self.tensors["bert.embeddings.word.weight"]).T)
        scores = self.node("MatMul", hidden, table)
        return scores if kind == "tied" else self.node("Add", scores, self.parameter("mlm.bias"))

    def activation(self, x: str, name: str) -> str:
        """GELU in one of its two forms, or ReLU."""
        if name == "relu":
            return self.node("Relu", x)
        return self.node("Gelu", x, approximate="none" if name == "gelu" else "tanh")

    def dense(self, x: str, name: str) -> str:
        """The affine map of a layer."""
        weight = self.array(f"{name}.weight", _plain(self.tensors[f"{name}.weight"]).T)
        return self.node("Add", self.node("MatMul", x, weight), self.parameter(f"{name}.bias"))

    def norm(self, x: str, name: str, epsilon: float | None = None) -> str:
        """Layer norm over the last axis; `epsilon` is that of the configuration if not given."""
        epsilon = self.config.layer_norm_eps if epsilon is None else epsilon
        scale, shift = self.parameter(f"{name}.weight"), self.parameter(f"{name}.bias")
        return self.node("LayerNormalization", x, scale, shift, axis=-1, epsilon=epsilon)

    def first(self, x: str, *, axis: int) -> str:
        """The first entry along an axis, which is kept with size 1."""
        return self.node("Slice", x, self.integers(0), self.integers(1), self.integers(axis))

    def node(self, operator: str, *inputs: str, **attributes: Any) -> str:
        """The name of the value of a new node."""
        name = f"{operator}_{len(self.nodes)}"
        self.nodes.append(self.onnx.helper.make_node(operator, list(inputs), [name], name=name, **attributes))
        return name

    def parameter(self, name: str) -> str:
        """One of our parameters, unchanged."""
        return self.array(name, _plain(self.tensors[name]))

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


def _plain(tensor: Tensor) -> npt.NDArray[np.float32]:
    result: npt.NDArray[np.float32] = tensor.detach().float().cpu().numpy()
    return result
