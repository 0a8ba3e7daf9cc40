"""What computes early, and gives way to what is slower to load, once there is much to compute."""

import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar

from bertsmith.base.core.errors import CheckpointError
from bertsmith.base.core.progress import Progress
from bertsmith.base.machine.runtime import ALONE, Rank, require_torch
from bertsmith.base.storage.files import FileState, file_state
from bertsmith.models.parts.layer_choice import LayerChoice
from bertsmith.tasks.encoding.engine import Engine
from bertsmith.tasks.encoding.onnx_session import Hook, Hooks
from bertsmith.tasks.encoding.row_encoder import Hooked, RowEncoder, Vectors
from bertsmith.tasks.encoding.units import EncodedExamples, Ints, Logits, RowPart
from bertsmith.text.tokenizers.pack import PackedRows
from bertsmith.text.tokenizers.tokenizer import Tokenizer

Computing = TypeVar("Computing", Engine, RowEncoder)


class Later(NamedTuple):
    """What is known of the second of two before it is loaded.

    Attributes:
        tokens: for fewer in all, it is not worth loading.
        small: computed together, so few do not count: the first one is as fast.
        is_there: whether it can be loaded.
        attention_maps: see `RowEncoder`.
        weights: the file of the weights of both.
        state: of this file when the first one read it.
    """

    tokens: int
    small: int
    is_there: bool
    attention_maps: int
    weights: Path
    state: FileState

    @property
    def has_same_weights(self) -> bool:
        """Whether the file is the one that the first one read."""
        return file_state(self.weights) == self.state


class Early(Generic[Computing]):
    """The first of two that compute the same, or the second one, which is loaded once there is much to compute.

    It may be used from several threads. A forked child, which lacks the threads of the first one, loads the second one.
    Where the file of the weights has changed since, the first one computes whatever it can.

    Args:
        early: the first one.
        load: returns the second one.
        later: when it is loaded.

    Attributes:
        now: which of them computes.
        is_early: whether it is the first one.
    """

    def __init__(self, early: Computing, load: Callable[[], Computing], later: Later) -> None:
        self.later, self._left = later, later.tokens
        self._load: Callable[[], Computing] = load
        self._kept: tuple[Computing, ...] = ()
        self._lock, self._process, self._hooks = threading.Lock(), os.getpid(), Hooks()
        self.is_early = True
        self.now: Computing = self._hooked(early)

    def compute(self, tokens: int) -> Computing:
        """The one that computes this many more tokens together."""
        with self._lock:
            if self.is_early:
                self._left -= tokens if tokens > self.later.small else 0
                is_forked = self._process != os.getpid()
                if self.later.is_there and (self._left < 0 or is_forked) and self.later.has_same_weights:
                    self._give_way()
            return self.now

    def late(self) -> Computing:
        """The second one.

        Raises:
            ConfigError: torch, which it needs, is not installed.
            CheckpointError: the weights have changed.
        """
        with self._lock:
            if self.is_early:
                require_torch(self.later.weights.parent)
                if not self.later.has_same_weights:
                    raise CheckpointError(
                        expected=f"the weights in '{self.later.weights.parent}' as when the model was loaded",
                        found="others",
                        fix="load the model again",
                    )
                self._give_way()
            return self.now

    def _give_way(self) -> None:
        late = self._hooked(self._load())
        if self._process != os.getpid():
            self._kept = (self.now,)  # freed, it would wait for its threads
        self.now, self.is_early = late, False

    def register_forward_pre_hook(self, hook: Callable[..., None]) -> Hook:
        """Calls `hook` in front of every forward pass of either; see `row_encoder.Hooked`."""
        return self._hooks.add(hook)

    def _hooked(self, computing: Computing) -> Computing:
        for part in computing.hooked:
            part.register_forward_pre_hook(lambda *_: self._hooks.call())
        return computing


class EarlyEngine(Engine):
    """Computes by one engine, and what follows by another one, which is loaded then.

    Rows that are computed together are computed by one of the two. It is for tasks and masks; no texts are
    continued by it.

    Args:
        early: the first engine.
        load: returns the other one, of the same model.
        later: when it is loaded.
    """

    def __init__(self, early: Engine, load: Callable[[], Engine], later: Later) -> None:
        super().__init__(early.runtime)
        self._work = Early(early, load, later)

    @property
    def model(self) -> Any:
        """What runs now."""
        return self._work.now.model

    @property
    def hooked(self) -> tuple[Hooked, ...]:
        """See `Engine`."""
        return (self._work,)

    @property
    def max_tokens(self) -> int:
        """See `Engine`."""
        return self._work.now.max_tokens

    @property
    def predicts(self) -> str:
        """See `Engine`."""
        return self._work.now.predicts

    @property
    def masked_lm_tokens(self) -> int:
        """See `Engine`."""
        return self._work.now.masked_lm_tokens

    def width(self, head: str) -> int:
        """See `Engine`."""
        return self._work.now.width(head)

    def compute(self, part: RowPart, head: str) -> Logits:
        """See `Engine`."""
        return self._work.compute(int(part.lengths.sum())).compute(part, head)

    def encoder(self, tokenizer: Tokenizer, parts: tuple[str, ...] | None = None) -> RowEncoder:
        """See `Engine`."""
        return EarlyEncoder(self._work, lambda engine: engine.encoder(tokenizer, parts))

    def logits(
        self,
        features: EncodedExamples,
        head: str,
        micro_tokens: int | None = None,
        advance: Callable[[float], None] | None = None,
        rank: Rank = ALONE,
    ) -> Logits:
        """See `Engine`."""
        engine = self._work.compute(len(features.rows.token_ids))
        return engine.logits(features, head, micro_tokens, advance, rank)


class _Shown(NamedTuple):
    """What an early encoder runs, as far as it is known without loading the second one."""

    work: Early[Any]
    width: int
    num_layers: int
    max_tokens: int

    def register_forward_pre_hook(self, hook: Callable[..., None]) -> Hook:
        """See `Hooked`."""
        return self.work.register_forward_pre_hook(hook)


class EarlyEncoder(RowEncoder):
    """The vectors of rows by one encoder, and what follows, or only the second one has, by another one.

    Args:
        work: the two, or what has them.
        encoder_of: returns the encoder of one of the two.
    """

    def __init__(self, work: Early[Any], encoder_of: Callable[[Any], RowEncoder]) -> None:
        self._work, self._encoder_of = work, encoder_of
        early = encoder_of(work.now)
        self._last = work.now, early
        super().__init__(early.tokenizer, early.runtime, base_digest=early._base_digest, has_pooler=early.has_pooler)
        self._has_vectors, model = early.has_vectors, early.model
        self.model = _Shown(work, model.width, model.num_layers, model.max_tokens)

    @property
    def hooked(self) -> tuple[Hooked, ...]:
        """See `RowEncoder`."""
        return (self._work,)

    @property
    def has_vectors(self) -> bool:
        """See `RowEncoder`."""
        return self._has_vectors or self.is_torch

    @property
    def is_torch(self) -> bool:
        """Whether the second one can be loaded."""
        return self._work.later.is_there

    @property
    def attention_maps(self) -> int:
        """See `RowEncoder`."""
        return self._work.later.attention_maps if self.is_torch else 0

    @property
    def complete(self) -> RowEncoder:
        """The second encoder, if it can be loaded."""
        return self._of(self._work.late()) if self.is_torch else self

    def _of(self, computing: Any) -> RowEncoder:
        last, encoder = self._last
        if last is not computing:
            encoder = self._encoder_of(computing)
            self._last = computing, encoder  # the earlier one is freed
        return encoder

    def require_pooling(self, pooling: str, choice: LayerChoice) -> None:
        """See `RowEncoder`."""
        if pooling == "pooler" and not self._has_vectors:
            self._of(self._work.late()).require_pooling(pooling, choice)
        else:
            super().require_pooling(pooling, choice)

    def row_vectors(
        self, rows: PackedRows, choice: LayerChoice, pooling: str = "mean", progress: Progress | None = None
    ) -> Vectors:
        """See `RowEncoder`."""
        return self._encoder_for(rows, choice).row_vectors(rows, choice, pooling, progress)

    def token_vectors(
        self, rows: PackedRows, choice: LayerChoice, read: Ints | None = None, unseen: Ints | None = None
    ) -> Vectors:
        """See `RowEncoder`."""
        encoder = self._encoder_for(rows, choice) if unseen is None else self._of(self._work.late())
        return encoder.token_vectors(rows, choice, read, unseen)

    def _encoder_for(self, rows: PackedRows, choice: LayerChoice) -> RowEncoder:
        """The one that computes the vectors of these layers for some rows."""
        encoder = self._of(self._work.compute(len(rows.token_ids)))
        if not encoder.has_vectors or choice.layers != (self.model.num_layers,):
            encoder = self._of(self._work.late())
        return encoder
