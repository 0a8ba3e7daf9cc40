"""Several low-rank adapters on one prepared encoder: a pass may have rows of different ones.

The weights of the encoder exist once. Each linear layer that some adapter changes computes its own product for all
tokens, and adds B (A x) of the adapter of each token: the tokens of an adapter are gathered, and the results added
where they came from. Everything else, attention included, is computed for all rows together.

Letters: T tokens, N sequences, R positions that are read, K inputs and O outputs of a layer, r rank, D width.

Source: Hu et al. (2021), section 4.1; Chen et al. (2023), "Punica: Multi-Tenant LoRA Serving".
"""

import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextvars import copy_context
from typing import Any, NamedTuple, Self

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bertsmith.base.core.errors import BertsmithError
from bertsmith.base.machine.runtime import Runtime
from bertsmith.models.parts.batch import Batch, Read, rows_index
from bertsmith.models.parts.config import LINEAR_LAYERS
from bertsmith.models.parts.encoder import Encoder, Trace
from bertsmith.models.parts.layers import PreparedLinear, finished, linear
from bertsmith.models.parts.memory import Memory
from bertsmith.models.parts.noise import Noise
from bertsmith.models.parts.part_names import PREFIX
from bertsmith.models.parts.runs import copied
from bertsmith.models.parts.transformer import Mixed, Products, TransformerEncoder
from bertsmith.models.products.prepared import linear_layers, prepare

_MOST_CALLS = 32  # whose passes are joined
# The tokens of one adapter, int64, among all tokens of a pass; None if all are.
Segment = tuple[int, Tensor | None]


def can_adapt(encoder: Encoder, products: Products) -> bool:
    """Whether an encoder can compute rows of different adapters in one pass, and these products are of its layers."""
    if not isinstance(encoder, TransformerEncoder) or encoder.config.is_causal:
        return False
    names = (*linear_layers(encoder.config), *encoder.position_layers)
    known = {f"{PREFIX}layers.{number}.{name}.weight" for number in range(len(encoder.layers)) for name in names}
    return products.keys() <= known


class AdaptedProducts(PreparedLinear):
    """A linear layer, prepared or not, with the products of several adapters.

    Args:
        base: the layer.
        factors: A and B of each adapter, with the scale in B; None of one that does not change this layer.
        segments: the tokens of each adapter in this pass, by the number of tokens that the layer reads.
    """

    def __init__(
        self,
        base: nn.Linear | PreparedLinear,
        factors: Sequence[tuple[Tensor, Tensor] | None],
        segments: Mapping[int, Sequence[Segment]],
    ) -> None:
        super().__init__()
        self.base, self.factors, self.segments = base, factors, segments

    def forward(self, x: Tensor, then: str | None = None, plus: Tensor | None = None) -> Tensor:
        """The affine map [T, O] of [T, K]; see `PreparedLinear`."""
        mapped = linear(x, self.base, plus=plus)
        for adapter, tokens in self.segments[len(x)]:
            if (pair := self.factors[adapter]) is None:
                continue
            first, second = (part.to(x.dtype) for part in pair)
            if tokens is None:
                mapped += F.linear(F.linear(x, first), second).to(mapped.dtype)
            else:
                mapped.index_add_(0, tokens, F.linear(F.linear(x[tokens], first), second).to(mapped.dtype))
        return finished(mapped, then, None)


class Asked(NamedTuple):
    """A pass of one adapter: its number, and the arguments of `Encoder.forward`."""

    adapter: int
    depth: int
    batch: Batch
    read: Read | None
    dtype: torch.dtype | None
    trace: Trace | None

    @property
    def is_mixed(self) -> bool:
        """Whether other adapters may be in the same pass."""
        return self.batch.unseen is None and (self.trace is None or not self.trace.is_filled_by_layers)


class SharedEncoder:
    """One encoder with several adapters; its passes are computed one after another.

    Args:
        encoder: without heads; it is prepared, in place.
        products: of each adapter, such that `can_adapt` is true.
        runtime: device and precision.
        kept: with int8, the layers that are kept in higher precision.
    """

    def __init__(
        self, encoder: Encoder, products: Sequence[Products], runtime: Runtime, kept: Sequence[str] = ()
    ) -> None:
        assert isinstance(encoder, TransformerEncoder), "layers to adapt"
        self.encoder = encoder
        self._segments: dict[int, list[Segment]] = {}
        self._lock, self._local = threading.RLock(), threading.local()
        prepare(encoder.to(runtime.torch_device), runtime, kept, adapters=products)
        encoder.fast_path = None  # which calls no layers
        for number, layer in enumerate(encoder.layers):
            self._adapt(layer, f"{PREFIX}layers.{number}.", products, runtime)
        self._threads = ThreadPoolExecutor(_MOST_CALLS, thread_name_prefix="adapter")

    def view(self, adapter: int, pooler: nn.Linear | None) -> "AdaptedEncoder":
        """The encoder with one of its adapters, and the pooler of the adapter's model."""
        return AdaptedEncoder(self, self.encoder, adapter, pooler)

    def _adapt(self, layer: nn.Module, prefix: str, products: Sequence[Products], runtime: Runtime) -> None:
        """Puts the products of all adapters into a layer, in place."""
        for name, part in list(layer.named_children()):
            together = LINEAR_LAYERS[:3]
            names = together if name == "together" else (name,) if name in LINEAR_LAYERS else ()
            pairs = [[each.get(f"{prefix}{every}.weight") for every in names] for each in products]
            if any(pair is not None for of_adapter in pairs for pair in of_adapter):
                config = self.encoder.config
                outputs = [config.hidden_size, config.key_width, config.key_width][: len(names)]
                factors = [_joined(of_adapter, outputs, runtime) for of_adapter in pairs]
                assert isinstance(part, nn.Linear | PreparedLinear)
                setattr(layer, name, AdaptedProducts(part, factors, self._segments))

    def forward(self, asked: Asked) -> Tensor:
        """The last hidden states of a pass; in a call of `together`, they are computed with the passes of others."""
        meeting: _Meeting | None = getattr(self._local, "meeting", None)
        return self._computed([asked])[0] if meeting is None else meeting.wait_for(asked)

    def together(self, calls: Sequence[Callable[[], Any]]) -> list[Any]:
        """The results of several calls of models on this encoder, whose passes are joined wherever they meet.

        Each call runs in a thread of its own, but all passes are computed in this one. An error that a user can fix
        takes the place of the result; another one is raised when all calls have ended.
        """
        if len(calls) > _MOST_CALLS:
            return self.together(calls[:_MOST_CALLS]) + self.together(calls[_MOST_CALLS:])
        meeting = _Meeting(len(calls))

        def called(call: Callable[[], Any]) -> Any:
            self._local.meeting = meeting
            try:
                return call()
            except BertsmithError as error:
                return error
            finally:
                self._local.meeting = None
                meeting.leave()

        results = [self._threads.submit(copy_context().run, called, call) for call in calls]
        while waiting := meeting.gathered():
            for part in _mixed([asked for asked, _ in waiting]):
                asked, futures = zip(*(waiting[number] for number in part), strict=True)
                try:
                    for future, hidden in zip(futures, self._computed(asked), strict=True):
                        future.set_result(hidden)
                except BaseException as error:  # noqa: BLE001 - raised by each of the calls, and there by the caller
                    for future in futures:
                        if not future.done():
                            future.set_exception(error)
        wait(results)
        return [future.result() for future in results]

    @torch.inference_mode()
    def _computed(self, asked: Sequence[Asked]) -> list[Tensor]:
        """The last hidden states of each pass, all of which are computed in one."""
        with self._lock:
            joint = _Joint(asked)
            self._segments.clear()
            self._segments.update(joint.segments)
            first = asked[0]
            trace = first.trace if len(asked) == 1 else Trace() if any(each.trace for each in asked) else None
            encoder = self.encoder.lower(first.depth)
            encoder.mixed = joint.mixed
            hidden = encoder(joint.batch, read=joint.read, dtype=first.dtype, trace=trace)
        if len(asked) == 1:
            return [hidden]
        for number, each in enumerate(asked):
            if each.trace is not None:
                assert trace is not None
                states = [joint.apart(state, number) for state in trace.hidden_states]
                # Where others are not, all positions of a pass may be in its last states.
                each.trace.hidden_states.extend(states)
        return [joint.apart(hidden, number) for number in range(len(asked))]


def _joined(
    pairs: Sequence[tuple[Tensor, Tensor] | None], outputs: Sequence[int], runtime: Runtime
) -> tuple[Tensor, Tensor] | None:
    """A and B of layers that are computed as one, from those of each; None if there are none."""
    present = [pair for pair in pairs if pair is not None]
    if not present:
        return None
    first, second = torch.cat([pair[0] for pair in present]), present[0][1]
    if len(pairs) > 1:
        second = second.new_zeros(sum(outputs), len(first))
        row = column = 0
        for pair, count in zip(pairs, outputs, strict=True):
            if pair is not None:
                rank = len(pair[0])
                second[row : row + count, column : column + rank] = pair[1]
                column += rank
            row += count
    device, dtype = runtime.torch_device, runtime.dtype
    return first.to(device, dtype).contiguous(), second.to(device, dtype).contiguous()


def _mixed(asked: Sequence[Asked]) -> list[list[int]]:
    """The numbers of passes that can be one, for all passes that are waiting."""
    parts: dict[Any, list[int]] = {}
    for number, each in enumerate(asked):
        key = (each.depth, each.dtype) if each.is_mixed else number
        parts.setdefault(key, []).append(number)
    return list(parts.values())


class _Joint:
    """Several passes as one, with all rows sorted by length.

    Attributes:
        batch, read: of the pass.
        segments: see `AdaptedProducts`.
        mixed: the adapters of the rows.
    """

    def __init__(self, asked: Sequence[Asked]) -> None:
        first = asked[0]
        if len(asked) == 1:
            self.batch, self.read, self.mixed = first.batch, first.read, Mixed([first.adapter])
            tokens, positions = len(first.batch.token_ids), 0 if first.read is None else len(first.read.positions)
            self.segments: dict[int, list[Segment]] = {
                count: [(first.adapter, None)] for count in (tokens, positions) if count
            }
            return
        device = first.batch.token_ids.device
        lengths = np.concatenate([each.batch.lengths for each in asked])
        self._order = np.argsort(lengths, kind="stable")
        adapters = np.repeat([each.adapter for each in asked], [each.batch.num_rows for each in asked])[self._order]
        self._rows = np.split(np.argsort(self._order), np.cumsum([each.batch.num_rows for each in asked])[:-1])
        index = rows_index(lengths, self._order)
        ids, segment_ids = (
            np.concatenate([getattr(each.batch, name).cpu().numpy() for each in asked])[index]
            for name in ("token_ids", "segment_ids")
        )
        self._lengths = lengths[self._order]
        self.batch = Batch.from_flat(ids, segment_ids, self._lengths, device=device)
        self.read, self._counts = None, self._lengths
        if any(each.read is not None for each in asked):
            self.read = self._read_of(asked)
            self._counts = np.asarray(self.read.counts)
        self.segments = {}
        present, of_row = np.unique(adapters, return_inverse=True)
        self.mixed = Mixed(present.tolist(), copied(of_row, device) if len(present) > 1 else None)
        for counts in (self._lengths, self._counts):
            of_token = np.repeat(adapters, counts)
            self.segments[len(of_token)] = [
                (int(adapter), None if len(present) == 1 else copied(np.flatnonzero(of_token == adapter), device))
                for adapter in present
            ]

    def _read_of(self, asked: Sequence[Asked]) -> Read:
        """The positions that any of the passes reads, of all rows."""
        is_read = []
        for each in asked:
            mask = np.full(each.batch.num_tokens, each.read is None)
            if each.read is not None:
                mask[each.read.positions.cpu().numpy()] = True
            is_read.append(mask)
        lengths = np.concatenate([each.batch.lengths for each in asked])
        wanted = np.concatenate(is_read)[rows_index(lengths, self._order)]
        return Read.at(self.batch, np.flatnonzero(wanted))

    def apart(self, states: Tensor, number: int) -> Tensor:
        """The hidden states of one of the passes, from those of all tokens or of all positions that are read."""
        counts = self._lengths if len(states) == self.batch.num_tokens else self._counts
        return states[copied(rows_index(counts, self._rows[number]), states.device)]


class _Meeting:
    """The calls of `SharedEncoder.together`, whose threads wait until all others wait or have ended."""

    def __init__(self, count: int) -> None:
        self._left, self._waiting = count, list[tuple[Asked, "Future[Tensor]"]]()
        self._changed = threading.Condition()

    def wait_for(self, asked: Asked) -> Tensor:
        """The hidden states of a pass, which another thread computes."""
        future = Future[Tensor]()
        with self._changed:
            self._waiting.append((asked, future))
            self._changed.notify_all()
        return future.result()

    def leave(self) -> None:
        """Ends one of the calls."""
        with self._changed:
            self._left -= 1
            self._changed.notify_all()

    def gathered(self) -> list[tuple[Asked, "Future[Tensor]"]]:
        """The passes that the calls wait for, once none of them computes; none if all calls have ended."""
        with self._changed:
            self._changed.wait_for(lambda: len(self._waiting) == self._left)
            waiting, self._waiting = self._waiting, []
            return waiting


class AdaptedEncoder(Encoder):
    """A shared encoder with one of its adapters.

    Args:
        shared: computes the passes.
        base: the encoder, or its lower layers.
        adapter: the number of the adapter.
        pooler: of the adapter's model; None without one.
    """

    def __init__(self, shared: SharedEncoder, base: Encoder, adapter: int, pooler: nn.Linear | None) -> None:
        super().__init__()
        assert isinstance(base, TransformerEncoder), "a part of the shared encoder"
        self.shared_encoder, self.adapter, self.depth = shared, adapter, len(base.stack)
        self.base: Encoder = base
        self.config, self.layers = base.config, base.layers
        if pooler is not None:
            self.pooler = pooler

    @property
    def word_table(self) -> Tensor:
        """See `Encoder`."""
        return self.base.word_table

    @property
    def can_prune(self) -> bool:
        """See `Encoder`."""
        return self.base.can_prune

    def lower(self, depth: int) -> Self:
        """See `Encoder`."""
        if depth == self.num_layers:
            return self
        return type(self)(self.shared_encoder, self.base.lower(depth), self.adapter, getattr(self, "pooler", None))

    def forward(
        self,
        batch: Batch,
        *,
        read: Read | None = None,
        noise: Noise | None = None,
        dtype: torch.dtype | None = None,
        trace: Trace | None = None,
        memory: Memory | None = None,
    ) -> Tensor:
        """See `Encoder`."""
        assert noise is None, "an encoder that is not trained"
        assert memory is None, "a bidirectional encoder"
        return self.shared_encoder.forward(Asked(self.adapter, self.depth, batch, read, dtype, trace))
