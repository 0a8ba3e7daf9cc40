"""How the texts of a request are counted for each ability of a model."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bertsmith.app.library.model import Model

EMBED_IDS = "embed_ids"  # `embed` for texts that are sent as token ids

# What the library does not list among the abilities of a model.
OF_ALL = ("attention", "pieces")
# Truncated tokens are counted from the length of a row, or reported by an answer; for others, long texts are refused.
_CUT_BY_LENGTH = ("embed", "rerank")
_CUT_BY_ANSWER = ("next_sentence", "classify", "score", "choose", "tag", "answer", "generate")


def cut_by_answers(ability: str, answers: Sequence[Any]) -> int:
    """The truncated tokens of a request, if its answers report them."""
    return sum(answer.cut_tokens for answer in answers) if ability in _CUT_BY_ANSWER else 0


def characters(items: Sequence[Any]) -> int:
    """The total number of characters in some items."""
    return sum(
        len(item) if isinstance(item, str) else 1 if isinstance(item, int) else characters(item) for item in items
    )


def read_at_most(model: "Model", ability: str, lengths: Sequence[int]) -> int:
    """The tokens that a model reads of rows with these lengths; long texts read in windows are read in full."""
    longest = model.reads_at_most(ability)
    return sum(lengths if longest is None else (min(length, longest) for length in lengths))


def cut_by_length(model: "Model", ability: str, lengths: Sequence[Sequence[int]]) -> int:
    """The tokens of a request that will be truncated, if they can be counted from the lengths."""
    if ability not in _CUT_BY_LENGTH:
        return 0
    return sum(sum(of_item) - read_at_most(model, ability, of_item) for of_item in lengths)
