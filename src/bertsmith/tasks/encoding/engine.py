"""What computes a model: an engine turns encoded rows into logits, and gives the encoder that turns them into vectors.

There are two: torch (`forward.TorchEngine`), and a session of ONNX Runtime (`onnx_engine.OnnxEngine`), which needs no
torch. Tokenizer, tasks, decoding, library and server are the same for both.

Letters: N rows, R positions that are read, r those of some rows, K outputs of a head, V vocabulary.
"""

import abc
import functools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from bertsmith.base.core.progress import Progress, unseen
from bertsmith.base.machine.runtime import ALONE, Rank, Runtime
from bertsmith.tasks.encoding.passes import Parallel, computed
from bertsmith.tasks.encoding.row_encoder import Hooked, RowEncoder
from bertsmith.tasks.encoding.units import EncodedExamples, Logits, RowPart, separate_rows
from bertsmith.text.tokenizers.encoded import Ids
from bertsmith.text.tokenizers.pack import PackedRows
from bertsmith.text.tokenizers.tokenizer import Tokenizer

if TYPE_CHECKING:
    from bertsmith.models.parts.memory import Memory

# The heads of a model: of its task, or of pre-training.
TASK, MASKED_LM, NEXT_SENTENCE = "task", "masked_lm", "next_sentence"
BACKWARD_LM = "backward_lm"  # the backward half of a head of pieces in both directions
MASKED, NEXT, PREVIOUS = "masked", "next", "previous"


class Engine(abc.ABC):
    """Computes the logits of one model.

    Args:
        runtime: device and precision.
    """

    def __init__(self, runtime: Runtime) -> None:
        self.runtime = runtime

    @property
    @abc.abstractmethod
    def model(self) -> Any:
        """What runs."""

    @property
    @abc.abstractmethod
    def hooked(self) -> tuple[Hooked, ...]:
        """What is called again and again: the encoder and, of a model that writes, its decoder, once for each piece."""

    @property
    @abc.abstractmethod
    def max_tokens(self) -> int:
        """The maximum number of tokens in a row, special tokens included."""

    @property
    @abc.abstractmethod
    def predicts(self) -> str:
        """Which pieces the head of pieces predicts: those that are `MASKED`, the `NEXT` one, or the `PREVIOUS` one."""

    @property
    def directions(self) -> tuple[str, ...]:
        """`NEXT`, `PREVIOUS` or both, which a language model predicts from one side each; nothing of another model."""
        return () if self.predicts == MASKED else (self.predicts,)

    @property
    def masked_lm_tokens(self) -> int:
        """The most tokens to compute together for logits over the vocabulary."""
        return self.runtime.inference_tokens

    @abc.abstractmethod
    def width(self, head: str) -> int:
        """K, the outputs of a head: `TASK`, `MASKED_LM`, `BACKWARD_LM` or `NEXT_SENTENCE`."""

    @abc.abstractmethod
    def compute(self, part: RowPart, head: str) -> Logits:
        """The logits of a head for some rows, float32 [r, K], at the positions that are read.

        Heads that read one vector per row give one row of logits for each row.
        """

    def parallel(self, head: str) -> Parallel | None:
        """How batches of many rows are computed at the same time; None if one by one is as fast.

        Args:
            head: as in `width`.
        """
        return None

    def new_memory(self) -> "Memory | None":
        """The memory of nothing, with which `next_logits` reads on from what it has read; None if it cannot."""
        return None

    def next_logits(self, rows: Sequence[Ids], memory: "Memory | None" = None) -> Logits:
        """The logits of the piece after each row of tokens, of a model that reads backward before it, float32 [N, V].

        Args:
            rows: at least one token each.
            memory: what was read in front of these rows, which afterwards includes them; see `new_memory`.

        Raises:
            NotFiniteError: without a memory, if the model computed no finite numbers for a row.
        """
        assert memory is None, "an engine without a memory"
        lengths = np.array([len(row) for row in rows], dtype=np.int32)
        tokens = np.concatenate(rows).astype(np.int32)
        packed = PackedRows(tokens, np.zeros_like(tokens), lengths, np.zeros_like(lengths))
        ends = np.cumsum(lengths, dtype=np.int64)
        read = ends - lengths if self.predicts == PREVIOUS else ends - 1
        return self.logits(separate_rows(packed, read), MASKED_LM, self.masked_lm_tokens, unseen)

    @abc.abstractmethod
    def encoder(self, tokenizer: Tokenizer, parts: tuple[str, ...] | None = None) -> RowEncoder:
        """The encoder below the heads, with the same weights.

        Args:
            parts: the trained parts of a pre-trained model; None for a model with a task head.
        """

    def logits(
        self,
        features: EncodedExamples,
        head: str,
        micro_tokens: int | None = None,
        advance: Callable[[float], None] | None = None,
        rank: Rank = ALONE,
    ) -> Logits:
        """The logits of all positions that the head reads, float32 [R, K], in the order of the features.

        A head that writes gives what `Writing.as_numbers` makes of its answers instead.

        This is the one forward pass of evaluation and prediction; equal rows are computed once.

        Args:
            micro_tokens: maximum tokens to compute together; None for a default that suits the device.
            advance: receives the fraction of rows done since its last call, for a progress bar that covers more work;
                without it these rows get their own progress bar.
            rank: this process among those that share the work, see `computed`.

        Raises:
            NotFiniteError: the model computed no finite numbers for an example.
        """
        if advance is None:
            rows = len(features.rows)
            with Progress("evaluating", total=rows, unit="rows", least=1.0) as progress:
                return self.logits(features, head, micro_tokens, lambda share: progress.advance(share * rows), rank)
        return computed(
            features,
            functools.partial(self.compute, head=head),
            width=(self.width(head) if features.writing is None else features.writing.width,),
            micro_tokens=self.runtime.inference_tokens if micro_tokens is None else micro_tokens,
            advance=advance,
            rank=rank,
            parallel=self.parallel(head) if micro_tokens is None else None,
        )
