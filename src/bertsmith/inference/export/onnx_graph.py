"""The ONNX graph of a model, built node by node from its parameters, which are tensors or arrays of NumPy.

Letters: B sequences, S tokens of the longest one, C endings of a choice, R sentences, D width, K labels, V vocabulary.

Batches are padded here, because other tools pass padded batches: `attention_mask` says which tokens are real, and the
other positions, all on the right, do not affect them. Inputs and outputs have the names used by `transformers`.
If only one position of a sequence is read ([CLS], or the last token of a left-to-right model with a task), the last
layer computes nothing else, as in the library. The encoder is in `onnx_encoder.py`; here are the heads. The inputs of a
head on sentences are those of `onnx_session.padded_part`.

Source: the operators of ONNX; `EncoderForTask` and `EncoderForPreTraining` of `models/heads/encoder_with_head.py`.
"""

import math
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

import numpy as np

from bertsmith.inference.export.onnx_encoder import LOWEST, GraphEncoder, Nodes, plain
from bertsmith.inference.export.onnx_message import BOOL, DOUBLE, FLOAT, INTEGER, Graph, Node, Value
from bertsmith.models.checkpoints.model_folder import parts_of
from bertsmith.models.parts.config import EncoderConfig
from bertsmith.models.parts.head_inputs import APART, BLOCKS_EPSILON, CONCAT, OF_TWO_TEXTS
from bertsmith.models.parts.part_names import BLOCKS, READER
from bertsmith.tasks.encoding.onnx_session import (
    INPUTS,
    PER_SENTENCE,
    PER_TOKEN,
    SENTENCES,
    TEXTS,
    Output,
    inputs_of,
    outputs_of,
)

if TYPE_CHECKING:
    from torch import Tensor


def graph_of(
    config: EncoderConfig,
    tensors: "Mapping[str, Tensor]",
    kind: str | None,
    *,
    reads: str = "pooler",
    tied: bool = True,
    in_memory: bool = False,
) -> Graph:
    """The graph of a model in fp32, with axes named batch, sequence and choices.

    Args:
        tensors: parameters by our name, of torch or NumPy.
        kind: the kind of task of the head; None for a pre-trained model or a bare encoder.
        reads: what the head reads; see `TaskSpec.reads`.
        tied: whether the decoder of the masked-LM head is the word table, stored once; otherwise it is stored as a
            separate matrix, which can then be quantized.
        in_memory: for a session of this process alone. Weights stay as they are stored, [O, K], for an operator of ONNX
            Runtime; others know only [K, O], and a transposed copy costs as much as the rest of the graph.
    """
    parts = parts_of(tensors, config)
    outputs = outputs_of(kind, parts)
    graph = Nodes(config, tensors, in_memory=in_memory)
    results = _Heads(graph).forward(kind, outputs, tied=tied, reads=reads)
    outer = ["batch", "choices"] if kind == "choice" else ["batch"]
    width = config.hidden_size
    widths = {"last_hidden_state": [width], "pooler_output": [width], "seq_relationship_logits": [2]}
    if kind is None:
        widths["logits"] = [config.vocab_size if "mlm" in parts else 2]
    elif kind not in ("span", "choice"):
        widths["logits"] = [len(tensors["classifier.bias"])]
    inputs = {name: [*outer, "sequence"] for name in inputs_of(config, reads)}
    if outputs[0].per == PER_SENTENCE:
        inputs |= {SENTENCES: [*outer, "sequence"], TEXTS: ["sentences"]}
    values = []
    for output in outputs:
        axes = {PER_TOKEN: [*outer, "sequence"], PER_SENTENCE: ["sentences"]}.get(output.per, outer)
        graph.nodes.append(Node("Identity", [results[output.name]], [output.name], {}))
        values.append(Value(output.name, FLOAT, [*axes, *widths.get(output.name, [])]))
    return Graph(
        name=config.model_type,
        nodes=graph.nodes,
        inputs=[Value(name, INTEGER, axes) for name, axes in inputs.items()],
        outputs=values,
        arrays=graph.arrays,
    )


class _Heads:
    """The heads of a model in a graph, and what they read."""

    def __init__(self, nodes: Nodes) -> None:
        self.nodes, self.config, self.tensors = nodes, nodes.config, nodes.tensors

    def forward(self, kind: str | None, outputs: Collection[Output], *, tied: bool, reads: str) -> dict[str, str]:
        """The values of the outputs, by name; `reads` is what the head of a task on whole rows reads."""
        inputs = list(inputs_of(self.config, reads))
        if kind == "choice":
            shape = self.nodes.node(
                "Concat", self.nodes.integers(-1), self.nodes.node("Shape", inputs[0], start=2, end=3), axis=0
            )
            inputs = [self.nodes.node("Reshape", name, shape) for name in inputs]  # [B * C, S]
        (ids, mask), segments = inputs[:2], inputs[2] if len(inputs) > 2 else None
        of_tokens = all(output.per == PER_TOKEN for output in outputs)
        of_sentences = all(output.per == PER_SENTENCE for output in outputs)
        reads_all = reads in ("mean", CONCAT, *OF_TWO_TEXTS) or (reads == "pooler" and self.config.pools_mean)
        reads_one = not reads_all and all(output.per not in (PER_TOKEN, PER_SENTENCE) for output in outputs)
        # Without a task, the pooler and its head stay on [CLS] whatever the attention, as in transformers.
        last_token = self.last_token(mask) if kind is not None and reads_one and self.config.is_causal else None
        positions = None
        if reads == APART and kind is not None:
            assert segments is not None, "an input of the graph"
            ids, mask, positions = self.texts_apart(ids, mask, segments)  # [2B, S] each
            segments = None
        encoder = GraphEncoder(self.nodes, ids, mask, positions)
        segments_below = segments if self.config.type_vocab_size > 1 else None
        hidden = encoder.hidden(segments_below, reads_one=reads_one, last_token=last_token)  # [B, S or 1, D]
        result = {"last_hidden_state": hidden}
        if of_sentences:
            hidden = self.of_sentences(hidden, mask)  # [R, D]
        if kind is not None and (of_tokens or of_sentences) and self.config.pools_tokens:
            hidden = self.pool(hidden)
        if kind == "span":
            both = self.nodes.dense(hidden, "span")  # [B, S, 2]
            for column, name in enumerate(("start_logits", "end_logits")):
                result[name] = self.nodes.node("Gather", both, self.nodes.scalar(column), axis=2)
        elif kind is not None and of_sentences:
            result["logits"] = self.nodes.dense(self.among_sentences(hidden), "classifier")
        elif kind is not None and of_tokens:
            result["logits"] = self.nodes.dense(hidden, "classifier")
        elif kind is not None:
            read = self.of_rows(hidden, mask, segments, reads)
            result["logits"] = self.nodes.dense(self.blocks(read) if reads == CONCAT else read, "classifier")
        else:
            names = {output.name for output in outputs}
            if "pooler_output" in names:
                result["pooler_output"] = self.pool(self.first_token(hidden))
            if "nsp.weight" in self.tensors and "pooler_output" in names:
                name = "seq_relationship_logits" if "seq_relationship_logits" in names else "logits"
                result[name] = self.nodes.dense(result["pooler_output"], "nsp")
            if "mlm" in parts_of(self.tensors, self.config):
                result["logits"] = self.vocabulary_logits(hidden, tied=tied)
        if kind == "choice":
            shape = self.nodes.node("Shape", INPUTS[0], start=0, end=2)
            result["logits"] = self.nodes.node("Reshape", result["logits"], shape)  # [B, C]
        return result

    def texts_apart(self, ids: str, mask: str, segments: str) -> tuple[str, str, str]:
        """Ids, mask and positions, [2B, S] each, of all first texts and then all second ones.

        A sequence keeps the row of both texts; the mask covers the other one. Positions count the tokens that are left.

        Source: `Batch.texts_apart` of `models/parts/batch.py`.
        """
        places = self.nodes.places(ids)
        is_first = self.nodes.node("Equal", places, self.nodes.scalar(0))  # [S]
        second = self.nodes.node("Where", is_first, self.nodes.scalar(0), self.nodes.node("Mul", mask, segments))
        with_first = self.nodes.node("Where", is_first, mask, second)
        both = self.nodes.node("Concat", self.nodes.node("Sub", mask, second), with_first, axis=0)
        before = self.nodes.node("Sub", self.nodes.node("CumSum", both, self.nodes.scalar(1)), self.nodes.integers(1))
        return self.nodes.node("Concat", ids, ids, axis=0), both, before

    def last_token(self, mask: str) -> str:
        """The position of the last real token of each sequence, [B, 1, 1]."""
        count = self.nodes.node("ReduceSum", mask, self.nodes.integers(1), keepdims=1)  # [B, 1]
        return self.nodes.node(
            "Sub", self.nodes.node("Unsqueeze", count, self.nodes.integers(2)), self.nodes.integers(1)
        )

    def of_rows(self, hidden: str, mask: str, segments: str | None, reads: str) -> str:
        """The input of the head of a task on whole rows: of real tokens or of one position, [B, D], or several such.

        Source: `pool_rows`, `pair_of_rows` and `apart_of_rows` of `models/heads/row_vectors.py`, `concat_of_rows` of
        `models/heads/head_blocks.py`.
        """
        if reads == "pooler":
            if self.config.pools_first:
                return self.mean(self.pool(hidden), self.real(mask))
            pools_mean = self.config.pools_mean
            return self.pool(self.mean(hidden, self.real(mask)) if pools_mean else self.first_token(hidden))
        if reads == "cls":
            return self.first_token(hidden)
        real = self.real(mask)
        if reads == CONCAT:
            if self.config.is_causal:
                vector = self.nodes.node("GatherND", hidden, self.last_token(mask), batch_dims=1)
                vector = self.nodes.node("Squeeze", vector, self.nodes.integers(1))
            else:
                vector = self.first_token(hidden)
            is_real = self.nodes.node("Cast", self.nodes.node("Unsqueeze", mask, self.nodes.integers(2)), to=BOOL)
            seen = self.nodes.node("Where", is_real, hidden, self.nodes.real("lowest", LOWEST))
            largest = self.nodes.node("ReduceMax", seen, self.nodes.integers(1), keepdims=0)
            return self.nodes.node("Concat", vector, largest, self.mean(hidden, real), axis=1)  # [B, 3D]
        if reads not in OF_TWO_TEXTS:
            return self.mean(hidden, real)
        if reads == APART:
            shape = self.nodes.integers(2, -1, self.config.hidden_size)
            means = self.nodes.node("Reshape", self.mean(hidden, real), shape)  # [2, B, D]
            return self.compared(
                *(self.nodes.node("Gather", means, self.nodes.scalar(text), axis=0) for text in (0, 1))
            )
        assert segments is not None, "an input of the graph"
        second = self.nodes.node("Mul", real, self.nodes.node("Cast", segments, to=FLOAT))
        return self.compared(self.mean(hidden, self.nodes.node("Sub", real, second)), self.mean(hidden, second))

    def of_sentences(self, hidden: str, mask: str) -> str:
        """The means [R, D] of the hidden states of the tokens of each sentence."""
        node, nodes = self.nodes.node, self.nodes
        count = node("Shape", TEXTS)  # [1], R
        sentences = node("Reshape", node("Mul", SENTENCES, mask), nodes.integers(-1, 1))  # [B * S, 1]
        real = node("Reshape", self.real(mask), nodes.integers(-1, 1))
        states = node("Mul", node("Reshape", hidden, nodes.integers(-1, self.config.hidden_size)), real)
        shape = node("Concat", count, nodes.integers(self.config.hidden_size), axis=0)
        total, tokens = (
            node("ScatterND", node("Expand", nodes.real("zero", 0.0), size), sentences, values, reduction="add")
            for size, values in ((shape, states), (node("Concat", count, nodes.integers(1), axis=0), real))
        )
        return node("Div", total, node("Max", tokens, nodes.real("one", 1.0)))

    def among_sentences(self, vectors: str) -> str:
        """The vectors [R, D] of sentences after the layers over all sentences of their text, if there are such layers.

        Source: `SentenceLayers` of `models/heads/window_reader.py`.
        """
        names = [name for name in self.tensors if name.startswith(f"{READER}.layers.")]
        if not names:
            return vectors
        from bertsmith.models.heads.window_reader import layer_config

        node, nodes = self.nodes.node, self.nodes
        width = self.config.hidden_size
        same = node("Equal", *(node("Unsqueeze", TEXTS, nodes.integers(axis)) for axis in (1, 0)))  # [R, R]
        before = node("Trilu", node("Cast", same, to=INTEGER), nodes.scalar(-1), upper=0)
        places = node("ReduceSum", before, nodes.integers(1), keepdims=1)  # [R, 1], in their text
        # Odd columns are cosines. Angles are computed in fp64, as in the library.
        columns = np.arange(width)
        rates = nodes.array("rates of sentences", np.exp(columns // 2 * 2 * (-math.log(10000.0) / width)))
        phases = nodes.array("phases of sentences", columns % 2 * (math.pi / 2))
        angles = node("Add", node("Mul", node("Cast", places, to=DOUBLE), rates), phases)
        table = node("Cast", node("Sin", angles), to=FLOAT)
        states = node("Unsqueeze", node("Add", vectors, table), nodes.integers(0))  # [1, R, D]
        layers = GraphEncoder(nodes.with_config(layer_config(width)), SENTENCES, TEXTS)
        bias = layers.masked(node("Unsqueeze", same, nodes.integers(0, 1)))  # [1, 1, R, R]
        for number in range(1 + max(int(name.split(".")[2]) for name in names)):
            states = layers.layer(f"{READER}.layers.{number}", states, bias, asking=states, turns=(None, None))
        return node("Squeeze", states, nodes.integers(0))

    def blocks(self, vectors: str) -> str:
        """The hidden units [B, 50] of a head with a hidden layer.

        Source: `HeadBlocks` of `models/heads/head_blocks.py`.
        """
        x = self.nodes.norm(vectors, f"{BLOCKS}.norm", BLOCKS_EPSILON)
        x = self.nodes.node("Relu", self.nodes.dense(x, f"{BLOCKS}.hidden"))
        return self.nodes.norm(x, f"{BLOCKS}.hidden_norm", BLOCKS_EPSILON)

    def compared(self, a: str, b: str) -> str:
        """[a, b, |a - b|, a * b], [B, 4D]."""
        difference = self.nodes.node("Abs", self.nodes.node("Sub", a, b))
        return self.nodes.node("Concat", a, b, difference, self.nodes.node("Mul", a, b), axis=1)

    def mean(self, hidden: str, weights: str) -> str:
        """The mean [B, D] of the hidden states whose weight [B, S] is 1, the others having 0; of none it is 0."""
        weighted = self.nodes.node("Mul", hidden, self.nodes.node("Unsqueeze", weights, self.nodes.integers(2)))
        count = self.nodes.node("ReduceSum", weights, self.nodes.integers(1), keepdims=1)
        total = self.nodes.node("ReduceSum", weighted, self.nodes.integers(1), keepdims=0)
        return self.nodes.node("Div", total, self.nodes.node("Max", count, self.nodes.real("one", 1.0)))

    def first_token(self, hidden: str) -> str:
        """The hidden states [B, D] of the first position of each sequence, or of the only one that was computed."""
        return self.nodes.node("Gather", hidden, self.nodes.scalar(0), axis=1)

    def real(self, mask: str) -> str:
        """1.0 for real tokens, else 0.0, [B, S]."""
        return self.nodes.node("Cast", mask, to=FLOAT)

    def pool(self, states: str) -> str:
        """The pooled output for some hidden states, of the same shape.

        Source: `Encoder.pool` of `models/parts/encoder.py`.
        """
        if not self.config.can_pool:
            return states
        pooled = self.nodes.activation(self.nodes.dense(states, "bert.pooler"), self.config.pooler_act)
        return self.nodes.norm(pooled, "bert.pooler.norm") if self.config.norms_pooler else pooled

    def vocabulary_logits(self, hidden: str, *, tied: bool) -> str:
        """Logits [B, S, V]."""
        kind = self.config.piece_head
        if kind == "transform":
            changed = self.nodes.activation(self.nodes.dense(hidden, "mlm.transform"), self.config.head_act)
            hidden = self.nodes.norm(changed, "mlm.norm")
        if kind == "untied":
            return self.nodes.dense(hidden, "mlm.output")
        table = "bert.embeddings.word.weight"
        if tied and not self.nodes.in_memory:
            turned = self.nodes.node("Transpose", self.nodes.parameter(table), perm=[1, 0])
            scores = self.nodes.node("MatMul", hidden, turned)
        else:
            scores = self.nodes.product(hidden, table if tied else "mlm.decoder.weight", plain(self.tensors[table]))
        return scores if kind == "tied" else self.nodes.node("Add", scores, self.nodes.parameter("mlm.bias"))
