"""A model exported to ONNX as an engine: its logits and its vectors, by ONNX Runtime and without torch.

Letters: N rows, T tokens, R positions that are read; n, t and r those of some rows; K outputs of a head, D width of the
encoder.

A graph has what its export computes: the logits of a task, or those of the pre-training heads and the last hidden
states. In fp32, rows are sorted by length and padded; in int8, every row is a batch. What the export differs from the
library in is measured when it is written, and recorded in its `export.json`.
"""

import copy
import dataclasses
import functools
from collections.abc import Callable
from typing import Any, cast

import numpy as np

from bertsmith.base.core.errors import CheckpointError, ConfigError
from bertsmith.base.core.progress import Progress
from bertsmith.base.core.settings import require
from bertsmith.base.machine.runtime import Runtime
from bertsmith.base.storage.files import digest_file
from bertsmith.models.checkpoints.onnx_folder import OnnxFolder
from bertsmith.models.model_files.metadata import OF_VECTORS
from bertsmith.models.parts.layer_choice import LayerChoice
from bertsmith.tasks.encoding.engine import MASKED, NEXT, NEXT_SENTENCE, TASK, Engine
from bertsmith.tasks.encoding.onnx_session import (
    PER_SENTENCE,
    PER_TOKEN,
    BuiltGraph,
    Hooks,
    Output,
    Session,
    needs_reduced_range,
    num_threads,
    outputs_of,
    padded_part,
    places_of_read,
    unpadded,
)
from bertsmith.tasks.encoding.passes import Parallel
from bertsmith.tasks.encoding.row_encoder import OF_ONE, RowEncoder, Vectors
from bertsmith.tasks.encoding.units import EncodedExamples, Ints, Logits, RowPart, rows_by_first, separate_rows
from bertsmith.text.tokenizers.encoded import offsets_of
from bertsmith.text.tokenizers.pack import PackedRows
from bertsmith.text.tokenizers.tokenizer import Tokenizer

LOGIT_BYTES = 2**27  # of a padded batch of logits over the vocabulary, at most
HIDDEN, POOLED = "last_hidden_state", "pooler_output"
_TOKENS_PER_THREAD, _MOST_TOKENS = 256, 1536
# With this many tokens in a call, loading the graph a second time, with one thread, pays for itself.
_MANY_TOKENS, _MANY_TOKENS_INT8 = 2**15, 2**11


@dataclasses.dataclass(frozen=True, kw_only=True)
class OnnxRuntime(Runtime):
    """A graph on the processor, in ONNX Runtime."""

    @property
    def inference_tokens(self) -> int:
        """Tokens per batch at inference.

        In a larger batch, more padding is computed, and its states leave the caches. In int8, every row is a batch by
        itself: the activations of a batch share one scale, so that the answer would depend on the other rows.
        """
        return 1 if self.precision == "int8" else min(_TOKENS_PER_THREAD * num_threads(), _MOST_TOKENS)


class OnnxModel:
    """The graph of an export, and what is known of it.

    Args:
        folder: the export.
        precision: auto, fp32 or int8.
        built: its graph in fp32, if it is in no file.

    Attributes:
        path: the file of the graph, or of the weights that it was built from.
        precision: as given.
        parts: the parts beyond embeddings and layers that were exported.
        kind: of the task whose head the graph has; None if the graph is an encoder, with or without pre-training heads.
        pooling: of such an encoder, how a task makes vectors of its states; None without such a task.
    """

    def __init__(self, folder: OnnxFolder, precision: str, built: BuiltGraph | None = None) -> None:
        self._graph = built or folder.graph(precision)
        self.path = built.path if built else folder.graph(precision)
        self.shape, self.parts = folder.shape, folder.shape.parts
        self.precision = precision
        spec = folder.metadata.spec or {}
        is_encoder = spec.get("kind") in (None, *OF_VECTORS)
        self.kind = None if is_encoder else str(spec["kind"])
        self.pooling = folder.metadata.reads if spec and is_encoder else None
        self.outputs = {output.name: output for output in outputs_of(self.kind, self.parts)}
        self.session = Session(self._graph)
        self._hooks = Hooks()

    @functools.cached_property
    def on_one_thread(self) -> "OnnxModel":
        """The same graph, loaded again, for parts that are computed at the same time by one thread each.

        It calls no hooks, because these belong to the thread that waits; see `call_hooks`. It takes the memory of the
        weights once more, until the model is freed.
        """
        model = copy.copy(self)
        model.session, model._hooks = Session(self._graph, threads=1), Hooks()
        return model

    @property
    def is_loaded_twice(self) -> bool:
        """Whether `on_one_thread` is there."""
        return "on_one_thread" in vars(self)

    def call_hooks(self) -> None:
        """Calls what was registered to be called in front of every forward pass."""
        self._hooks.call()

    @property
    def width(self) -> int:
        """D."""
        return self.shape.hidden_size

    @property
    def num_layers(self) -> int:
        """L."""
        return self.shape.num_hidden_layers

    @property
    def max_tokens(self) -> int:
        """The maximum number of tokens in a row, special tokens included."""
        return self.shape.max_tokens

    def register_forward_pre_hook(self, hook: Callable[..., None]) -> Any:
        """Calls `hook` in front of every forward pass; see `row_encoder.LayeredModel`."""
        return self._hooks.add(hook)

    def outputs_for(self, head: str) -> tuple[Output, ...]:
        """The outputs of the graph that hold the logits of a head."""
        if self.kind is not None:
            return tuple(self.outputs.values())
        name = "seq_relationship_logits" if head == NEXT_SENTENCE and "mlm" in self.parts else "logits"
        return (self.outputs[name],)

    def run(self, part: RowPart, outputs: tuple[Output, ...]) -> list[Logits]:
        """Outputs of the graph for some rows, of each [t, K] for tokens, [n, K] for rows, or [r, K] for sentences."""
        self._hooks.call()
        inputs, real = padded_part(part, outputs[0].per, self.shape.pad_token_id)
        if self.kind == "choice":  # every row is an ending by itself: the softmax over endings comes after it
            inputs = {name: array[:, None] for name, array in inputs.items()}
        values = self.session.run(inputs, [output.name for output in outputs])
        return [unpadded(values[output.name], output.per, real) for output in outputs]


class OnnxEngine(Engine):
    """A model exported to ONNX, run by ONNX Runtime.

    Args:
        folder: the export.
        device: "auto" or "cpu".
        precision: auto, fp32 or int8.
        products: "auto"; ONNX Runtime alone decides how they are computed.
        built: see `OnnxModel`.
    """

    def __init__(
        self,
        folder: OnnxFolder,
        *,
        device: str = "auto",
        precision: str = "fp32",
        products: str = "auto",
        built: BuiltGraph | None = None,
    ) -> None:
        if device not in ("auto", "cpu"):
            raise ConfigError(
                expected="the processor, for an ONNX folder", found=f"--device {device}", fix="use --device cpu"
            )
        if products != "auto":
            raise ConfigError(
                expected="products auto, for an ONNX folder", found=repr(products), fix="omit the choice of products"
            )
        self._model = OnnxModel(folder, precision, built)
        super().__init__(_runtime(folder, precision))
        self.runtime.tell()

    @property
    def model(self) -> OnnxModel:
        """The graph."""
        return self._model

    @property
    def hooked(self) -> tuple[OnnxModel]:
        """See `Engine`."""
        return (self._model,)

    @property
    def max_tokens(self) -> int:
        """See `Engine`."""
        return self._model.max_tokens

    @property
    def predicts(self) -> str:
        """See `Engine`."""
        return NEXT if self._model.shape.is_causal else MASKED

    @property
    def masked_lm_tokens(self) -> int:
        """See `Engine`; the graph computes logits over the vocabulary for every token."""
        return min(self.runtime.inference_tokens, max(LOGIT_BYTES // (4 * self._model.shape.vocab_size), 1))

    def width(self, head: str) -> int:
        """See `Engine`."""
        if head == TASK and self._model.pooling is not None:
            return self._model.width
        outputs = self._model.outputs_for(head)
        is_one_number = len(outputs) > 1 or self._model.kind == "choice"
        return len(outputs) if is_one_number else self._model.session.width(outputs[0].name)

    def compute(self, part: RowPart, head: str) -> Logits:
        """See `Engine`."""
        return self._compute(head)(self._model, part)

    def parallel(self, head: str) -> Parallel | None:
        """See `Engine`."""
        return _parallel(self._model, self._compute(head))

    def _compute(self, head: str) -> Callable[[OnnxModel, RowPart], Logits]:
        """What computes the logits of a head for some rows, or the vectors that are the result of a task."""
        if head == TASK and self._model.pooling is not None:
            return functools.partial(_pooled, pooling=self._model.pooling)
        return functools.partial(_logits, head=head)

    def encoder(self, tokenizer: Tokenizer, parts: tuple[str, ...] | None = None) -> "OnnxEncoder":
        """See `Engine`."""
        return OnnxEncoder(self._model, tokenizer, self.runtime)


class OnnxEncoder(RowEncoder):
    """The last hidden states of an exported model without a task head.

    Args:
        model: the graph.
        tokenizer: of the model.
        runtime: device and precision.
    """

    def __init__(self, model: OnnxModel, tokenizer: Tokenizer, runtime: Runtime) -> None:
        # In a left-to-right graph the pooler reads the first token, in the library the last one.
        has_pooler = POOLED in model.outputs and not model.shape.is_causal
        digest = functools.partial(digest_file, model.path)
        super().__init__(tokenizer, runtime, base_digest=digest, has_pooler=has_pooler)
        self.model: OnnxModel = model

    @property
    def has_vectors(self) -> bool:
        """Whether the graph gives hidden states; one with a task head gives only its logits."""
        return HIDDEN in self.model.outputs

    @property
    def is_torch(self) -> bool:
        """ONNX Runtime runs it."""
        return False

    def choice(self, name: str) -> LayerChoice:
        """The choice of the last layer, by its name or number."""
        choice = super().choice(name)
        require(
            choice.layers == (self.model.num_layers,),
            expected="layers 'last' for an ONNX folder, whose graph gives no others",
            found=repr(name),
            fix="use the model it was exported from",
        )
        return choice

    def row_vectors(
        self, rows: PackedRows, choice: LayerChoice, pooling: str = "mean", progress: Progress | None = None
    ) -> Vectors:
        """See `RowEncoder`."""
        self.require_pooling(pooling, choice)
        features = rows_by_first(rows)
        return self._vectors(features, functools.partial(_pooled, pooling=pooling), "texts", progress)

    def token_vectors(
        self, rows: PackedRows, choice: LayerChoice, read: Ints | None = None, unseen: Ints | None = None
    ) -> Vectors:
        """See `RowEncoder`."""
        if unseen is not None:
            raise CheckpointError(
                expected="a model in torch, to expand queries with tokens that no token attends to",
                found="an ONNX export",
                fix="use the model it was exported from",
            )
        return self._vectors(separate_rows(rows, read), _of_tokens, "tokens", None)

    def _vectors(
        self,
        features: EncodedExamples,
        compute: Callable[[OnnxModel, RowPart], Vectors],
        unit: str,
        progress: Progress | None,
    ) -> Vectors:
        """The vectors of all positions that are read, float32 [R, D]; equal rows are computed once.

        Args:
            unit: what R counts, for error messages.
        """
        if not self.has_vectors:
            raise CheckpointError(
                expected=f"an encoder, for vectors, in '{self.model.path.parent}'",
                found=f"an export with the head for {self.model.kind}, which gives only its outputs",
                fix="use the model it was exported from",
            )
        return self._collect(
            features,
            functools.partial(compute, self.model),
            (self.hidden_size,),
            unit,
            micro_tokens=self.runtime.inference_tokens,
            progress=progress,
            parallel=_parallel(self.model, compute),
        )


def _logits(model: OnnxModel, part: RowPart, head: str) -> Logits:
    """The logits of a head for some rows, float32 [r, K]."""
    outputs = model.outputs_for(head)
    if outputs[0].per == PER_SENTENCE:
        in_order = RowPart(features=part.features, rows=np.sort(part.rows))
        return model.run(in_order, outputs)[0][np.searchsorted(in_order.chosen, part.chosen)]
    values = model.run(part, outputs)
    logits = values[0] if len(values) == 1 else np.stack(values, axis=-1)
    return logits[places_of_read(part)] if outputs[0].per == PER_TOKEN else logits


def _of_tokens(model: OnnxModel, part: RowPart) -> Vectors:
    """The last hidden states of the positions that are read in some rows, [r, D]."""
    return _hidden(model, part)[places_of_read(part)]


def _hidden(model: OnnxModel, part: RowPart) -> Vectors:
    """The last hidden states of some rows, [t, D]."""
    return model.run(part, (model.outputs[HIDDEN],))[0]


def _pooled(model: OnnxModel, part: RowPart, pooling: str) -> Vectors:
    """One vector for each of some rows, [n, D]."""
    if pooling == "pooler":
        return model.run(part, (model.outputs[POOLED],))[0]
    hidden, starts = _hidden(model, part), offsets_of(part.lengths)
    if pooling in OF_ONE:
        return hidden[starts[1:] - 1 if model.shape.is_causal else starts[:-1]]
    if pooling == "max":
        return cast("Vectors", np.maximum.reduceat(hidden, starts[:-1]))
    return cast("Vectors", np.add.reduceat(hidden, starts[:-1]) / part.lengths[:, None].astype(np.float32))


def _parallel(model: OnnxModel, compute: Callable[[OnnxModel, RowPart], Vectors]) -> Parallel | None:
    """How many rows are computed at the same time; None with a single thread.

    Args:
        compute: returns the results for some rows, by some model.
    """
    threads, is_int8 = num_threads(), model.precision == "int8"
    if threads == 1:
        return None
    pays = _MANY_TOKENS_INT8 if is_int8 else _MANY_TOKENS
    return Parallel(
        workers=threads,
        tokens=1 if is_int8 else _TOKENS_PER_THREAD,
        min_tokens=threads * _TOKENS_PER_THREAD if model.is_loaded_twice else pays,
        new_compute=lambda: functools.partial(compute, model.on_one_thread),
        before_each=model.call_hooks,
    )


def _runtime(folder: OnnxFolder, precision: str) -> Runtime:
    """Where the graph runs, with a note if the processor adds products of its int8 weights in too few bits."""
    bits = folder.shape.int8_bits
    if precision != "int8":
        return OnnxRuntime(device="cpu", precision="fp32")
    note = (
        f"this CPU has no VNNI and may saturate sums of the {bits}-bit weights in '{folder.path}'; export it again here"
    )
    return OnnxRuntime(
        device="cpu", precision="int8", int8_bits=bits, note=note if bits > 7 and needs_reduced_range() else ""
    )
