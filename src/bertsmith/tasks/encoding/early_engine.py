"""An engine that is there early, and gives way to another one, slower to load, once there is much to compute."""

from collections.abc import Callable
from typing import Any

from bertsmith.base.machine.runtime import ALONE, Rank
from bertsmith.tasks.encoding.engine import Engine
from bertsmith.tasks.encoding.row_encoder import Hooked, RowEncoder
from bertsmith.tasks.encoding.units import EncodedExamples, Logits, RowPart
from bertsmith.text.tokenizers.tokenizer import Tokenizer


class EarlyEngine(Engine):
    """Computes up to a number of tokens by one engine, and what follows by another one, which is loaded then.

    Rows that are computed together are computed by one of the two. It is for tasks and masks; no texts are
    continued by it.

    Args:
        early: the first engine.
        load: returns the other one, of the same model.
        tokens: that the first one computes at most.
    """

    def __init__(self, early: Engine, load: Callable[[], Engine], tokens: int) -> None:
        super().__init__(early.runtime)
        self._engine, self._load, self._left = early, load, tokens
        self._is_early = True

    def _for(self, tokens: int) -> Engine:
        """The engine that computes this many more tokens."""
        self._left -= tokens
        if self._is_early and self._left < 0:
            self._engine, self._is_early = self._load(), False
        return self._engine

    @property
    def model(self) -> Any:
        """What runs now."""
        return self._engine.model

    @property
    def hooked(self) -> tuple[Hooked, ...]:
        """See `Engine`; of the engine that runs now."""
        return self._engine.hooked

    @property
    def max_tokens(self) -> int:
        """See `Engine`."""
        return self._engine.max_tokens

    @property
    def predicts(self) -> str:
        """See `Engine`."""
        return self._engine.predicts

    @property
    def masked_lm_tokens(self) -> int:
        """See `Engine`."""
        return self._engine.masked_lm_tokens

    def width(self, head: str) -> int:
        """See `Engine`."""
        return self._engine.width(head)

    def compute(self, part: RowPart, head: str) -> Logits:
        """See `Engine`."""
        return self._for(int(part.lengths.sum())).compute(part, head)

    def encoder(self, tokenizer: Tokenizer, parts: tuple[str, ...] | None = None) -> RowEncoder:
        """See `Engine`."""
        return self._engine.encoder(tokenizer, parts)

    def logits(
        self,
        features: EncodedExamples,
        head: str,
        micro_tokens: int | None = None,
        advance: Callable[[float], None] | None = None,
        rank: Rank = ALONE,
    ) -> Logits:
        """See `Engine`."""
        return self._for(len(features.rows.token_ids)).logits(features, head, micro_tokens, advance, rank)
