"""ONNX graphs from the outside: their inputs and outputs, padded batches, and a session that runs one; without torch.

Letters: B sequences of a padded batch, S tokens of the longest one, N rows, T tokens, R sentences, r positions
that are read in some rows, K outputs.

Inputs and outputs have the names used by `transformers`. Values at padding are not defined. The graph of a head on
sentences, which `transformers` lacks, has two more inputs: which sentence each token belongs to, and which text each
sentence. Sentences are numbered from 0 in a batch, and in a text in their order.
"""

import importlib
import os
import sys
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from bertsmith.base.core.errors import CheckpointError, ConfigError
from bertsmith.base.machine.processor import available_cores, hardware
from bertsmith.models.parts.head_inputs import OF_TWO_TEXTS
from bertsmith.tasks.encoding.units import Ints, RowPart
from bertsmith.text.tokenizers.encoded import offsets_of, places_of
from bertsmith.text.tokenizers.pack import PackedRows

INPUTS = ("input_ids", "attention_mask", "token_type_ids")
SENTENCES, TEXTS = OF_SENTENCES = ("sentence_ids", "text_ids")
PER_SEQUENCE, PER_TOKEN, PER_ENDING, PER_SENTENCE = "sequence", "token", "ending", "sentence of a text"
# What one row of the logits of a kind of task describes; of the others it is a sequence.
_LOGITS_PER = {
    "tagging": PER_TOKEN,
    "coreference": PER_TOKEN,
    "entities": PER_TOKEN,
    "entities-by-name": PER_TOKEN,
    "choice": PER_ENDING,
    "extraction": PER_SENTENCE,
}

# On the processor, onnxruntime takes about five times as long for this fused sum and norm as for the two by themselves.
SLOW_FUSIONS = ("SkipLayerNormFusion",)

_ONNX_FLOAT = 1  # its number of fp32

Array = npt.NDArray[np.float32]
Flags = npt.NDArray[np.bool_]
Outputs = dict[str, Array]
Runner = Callable[[dict[str, Ints]], Outputs]


class Segmented(Protocol):
    """What says how many segments a model has: its configuration, or the shape of an export."""

    @property
    def type_vocab_size(self) -> int:
        """The number of segments."""


class Output(NamedTuple):
    """An output of a graph: its name, and what one row of it describes."""

    name: str
    per: str


def inputs_of(config: Segmented, reads: str = "pooler") -> tuple[str, ...]:
    """The inputs of a graph; a model with fewer than two segments has no segment ids, unless its head reads pairs."""
    return INPUTS if config.type_vocab_size > 1 or reads in OF_TWO_TEXTS else INPUTS[:2]


def outputs_of(kind: str | None, parts: Collection[str]) -> tuple[Output, ...]:
    """The outputs of a graph, with the names used by `transformers`.

    Args:
        kind: the kind of task; None for a pre-trained model or a bare encoder.
        parts: the parts beyond embeddings and layers that exist.

    >>> [output.name for output in outputs_of(None, ["pooler", "mlm"])]
    ['logits', 'last_hidden_state', 'pooler_output']
    """
    if kind == "span":
        return (Output("start_logits", PER_TOKEN), Output("end_logits", PER_TOKEN))
    if kind is not None:
        return (Output("logits", _LOGITS_PER.get(kind, PER_SEQUENCE)),)
    outputs = [Output("logits", PER_TOKEN)] if "mlm" in parts else []
    if "nsp" in parts and "pooler" in parts:
        outputs.append(Output("seq_relationship_logits" if outputs else "logits", PER_SEQUENCE))
    outputs.append(Output("last_hidden_state", PER_TOKEN))
    return (*outputs, Output("pooler_output", PER_SEQUENCE)) if "pooler" in parts else tuple(outputs)


def package(name: str, purpose: str = "for --to onnx", extra: str = "export") -> Any:
    """The imported module of a package of an extra.

    Args:
        purpose: what it is needed for, for the message.
    """
    try:
        return importlib.import_module(name)
    except ImportError:
        packages = "the packages onnx and onnxruntime" if extra == "export" else f"the package {name}"
        raise ConfigError(
            expected=f"{packages}, {purpose}",
            found=f"no {name}",
            fix=f"install them (pip install 'bertsmith[{extra}]')" if extra == "export" else f"pip install {name}",
        ) from None


def padded(rows: PackedRows, chosen: Ints, pad_id: int) -> tuple[dict[str, Ints], Flags]:
    """The chosen rows as padded inputs, int64 [B, S] each, and a mask of real tokens, bool [B, S]."""
    lengths = rows.lengths[chosen]
    real = np.arange(lengths.max()) < lengths[:, None]
    index = places_of(rows.offsets[chosen], lengths.astype(np.int64))
    ids, segments = np.full(real.shape, pad_id, dtype=np.int64), np.zeros(real.shape, dtype=np.int64)
    ids[real], segments[real] = rows.token_ids[index], rows.segment_ids[index]
    return dict(zip(INPUTS, (ids, real.astype(np.int64), segments), strict=True)), real


def padded_part(part: RowPart, per: str, pad_id: int) -> tuple[dict[str, Ints], Flags]:
    """The inputs for some rows of encoded examples, and the mask of real tokens; see `padded`.

    Args:
        per: of the outputs. Outputs per sentence take `OF_SENTENCES`, int64 [B, S] and [R], for rows that ascend.
    """
    inputs, real = padded(part.features.rows, part.rows, pad_id)
    if per == PER_SENTENCE:
        assert np.all(np.diff(part.rows) > 0), "the sentences of a text are numbered in their order"
        of_row, units = part.features.read_per_row[part.rows], part.features.rows_per_unit
        lengths = np.diff(np.append(places_of_read(part), real.sum()))
        sentences = np.zeros(real.shape, dtype=np.int64)
        sentences[real] = np.repeat(np.arange(len(lengths)), lengths)
        inputs[SENTENCES] = sentences
        inputs[TEXTS] = np.repeat(np.repeat(np.arange(len(units)), units)[part.rows], of_row)
    return inputs, real


def places_of_read(part: RowPart) -> Ints:
    """The positions that are read in some rows, among the tokens of these rows, int64 [r]."""
    features = part.features
    if features.read is None:
        return np.arange(int(part.lengths.sum()))
    moved = offsets_of(part.lengths)[:-1] - features.rows.offsets[part.rows]
    return features.read[part.chosen] + np.repeat(moved, features.read_per_row[part.rows])


def unpadded(values: Array, per: str, real: Flags) -> Array:
    """Padded values without the padding, one row per token, sequence, ending or sentence."""
    if per == PER_TOKEN:
        return values[real]
    return values.reshape(-1, 1) if per == PER_ENDING else values


class BuiltGraph(NamedTuple):
    """A graph that is in no file.

    Attributes:
        path: of the weights that it was built from.
        message: the model as bytes, without the numbers of its large arrays.
        arrays: these, by name; sessions compute with them, and do not copy them.
    """

    path: Path
    message: bytes
    arrays: Mapping[str, npt.NDArray[Any]]


class Session:
    """A session of ONNX Runtime on the processor, for one graph. It may be used from several threads.

    Args:
        graph: the file of the graph, or a graph in memory.
        threads: how many compute together; None for `num_threads()`.
    """

    def __init__(self, graph: Path | BuiltGraph, threads: int | None = None) -> None:
        onnxruntime = package("onnxruntime", "which runs ONNX graphs", extra="light")
        # onnxruntime has one exception class per status code, without a common base.
        names_there = vars(onnxruntime.capi.onnxruntime_pybind11_state).values()
        self._failures: tuple[type[Exception], ...] = tuple(
            value for value in names_there if isinstance(value, type) and issubclass(value, Exception)
        )
        self._path, content = (graph.path, graph.message) if isinstance(graph, BuiltGraph) else (graph, str(graph))
        self._version = onnxruntime.__version__
        self._threads = num_threads() if threads is None else threads
        self._process = os.getpid()
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = self._threads
        options.log_severity_level = 3  # errors
        if isinstance(graph, BuiltGraph):
            of_numpy = onnxruntime.OrtValue.ortvalue_from_numpy_with_onnx_type
            values = [of_numpy(array, _ONNX_FLOAT) for array in graph.arrays.values()]
            self._shared = graph.arrays, values  # which have to live as long as the session
            options.add_external_initializers(list(graph.arrays), values)  # which copies them for as long as it loads
            for name, value in zip(graph.arrays, values, strict=True):
                options.add_initializer(name, value)
        try:
            self._session = onnxruntime.InferenceSession(
                content, options, providers=["CPUExecutionProvider"], disabled_optimizers=SLOW_FUSIONS
            )
        except self._failures as error:
            raise self._refusal(error) from None
        self._names = [output.name for output in self._session.get_outputs()]
        self._asked = [node.name for node in self._session.get_inputs()]
        # Otherwise the heads that are not asked for are computed, too.
        self._run_options = onnxruntime.RunOptions()
        self._run_options.only_execute_path_to_fetches = True

    def width(self, name: str) -> int:
        """The size of the last axis of an output, where the graph fixes it."""
        shape = next(output.shape for output in self._session.get_outputs() if output.name == name)
        return int(shape[-1])

    def run(self, inputs: Mapping[str, Ints], names: Sequence[str]) -> Outputs:
        """Some outputs by name, for inputs by name."""
        if self._threads > 1 and self._process != os.getpid():  # it would wait for threads that are not here
            raise ConfigError(
                expected=f"the process that loaded {self._path.name}",
                found="a child that was forked from it",
                fix="load the model in the child, or start it by multiprocessing's 'spawn'",
            )
        try:
            values = self._session.run(list(names), {name: inputs[name] for name in self._asked}, self._run_options)
        except self._failures as error:
            raise self._refusal(error) from None
        return dict(zip(names, values, strict=True))

    def __call__(self, inputs: Mapping[str, Ints]) -> Outputs:
        """All outputs by name; raises as `run`."""
        return self.run(inputs, self._names)

    def _refusal(self, error: BaseException) -> CheckpointError:
        return CheckpointError(
            expected=f"{self._path.name} to run in onnxruntime {self._version}",
            found=str(error)[:300],
            fix="export the model again, or try another version of onnxruntime",
        )


class Hooks:
    """Functions that are called in front of every forward pass, as `torch.nn.Module` has them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._hooks: list[Callable[..., None]] = []

    def add(self, hook: Callable[..., None]) -> "Hook":
        """Calls `hook` in front of every pass until `remove()` of what is returned is called."""
        with self._lock:
            self._hooks = [*self._hooks, hook]
        return Hook(self, hook)

    def remove(self, hook: Callable[..., None]) -> None:
        """Calls `hook` no longer."""
        with self._lock:
            self._hooks = [other for other in self._hooks if other is not hook]

    def call(self) -> None:
        """Calls all of them, in order."""
        for hook in self._hooks:
            hook()


class Hook(NamedTuple):
    """A function that was added to `Hooks`."""

    hooks: Hooks
    function: Callable[..., None]

    def remove(self) -> None:
        """Calls the function no longer."""
        self.hooks.remove(self.function)


def needs_reduced_range() -> bool:
    """Whether this processor adds two uint8 x int8 products in 16 bits, where large sums saturate.

    This is the case on x86 without VNNI. If unknown, the answer is yes, which costs one bit.
    """
    return hardware().int8_bits != 8


def num_threads() -> int:
    """The threads of a computation: those of torch if it is imported, else `OMP_NUM_THREADS`, else one per core."""
    torch = sys.modules.get("torch")
    if torch is not None:
        return int(torch.get_num_threads())
    wanted = os.environ.get("OMP_NUM_THREADS", "")
    return int(wanted) if wanted.isdecimal() and int(wanted) else available_cores()
