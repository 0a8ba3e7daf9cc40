"""How the server calls each ability of a model with a list of items, as `Model.read` has read and counted them.

An item is what gets one answer: a text, a pair, a question. Items of different requests are batched together if their
ability and options are the same.
"""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bertsmith.app.library.attention import Attention
    from bertsmith.app.library.model import Model


EMBED_IDS = "embed_ids"  # the ability to embed texts that are sent as token ids
# What the library does not list among the abilities of a model.
OF_ALL = ("attention", "pieces")


@dataclasses.dataclass(frozen=True)
class Ability:
    """Something that models can do.

    Attributes:
        ask: takes a model, items that were read and the options of the request; returns one answer per item.
        cut: how truncated tokens are counted: from the "length" of a row, from `cut_tokens` of the "answer", or ""
            if texts that are too long are refused.
    """

    ask: Callable[..., Sequence[Any]]
    cut: str = ""


def _method(name: str) -> Callable[..., Sequence[Any]]:
    """A function that calls the method of that name with a list of items."""

    def ask(model: "Model", items: Sequence[Any], **options: Any) -> Sequence[Any]:
        answers: Sequence[Any] = getattr(model, name)(items, **options)
        return answers

    return ask


def _rerank(model: "Model", pairs: Sequence[Any], query: str) -> Sequence[Any]:
    """The scores and vectors of passages; only those with the same `query` are in one batch."""
    return model.rerank_read(pairs)


def _look(model: "Model", items: Sequence[Any]) -> "Sequence[Attention]":
    pairs = [(item, None) if isinstance(item, str) else item for item in items]
    return [model.attention(text, pair) for text, pair in pairs]


def _pieces(model: "Model", texts: Sequence[str]) -> Sequence[dict[str, Any]]:
    """The pieces, ids and character offsets of each text, and which pieces are special."""
    result = []
    for text in texts:
        pieces = model.tokenizer.encode_with_offsets(text, special_tokens=model.reads_specials())
        names = model.tokenizer.vocabulary.pieces
        ids = pieces.ids.tolist()
        offsets = [list(span) for span in zip(pieces.starts.tolist(), pieces.ends.tolist(), strict=True)]
        special = [id in model.tokenizer.vocabulary.special_ids for id in ids]
        result.append({"pieces": [names[id] for id in ids], "ids": ids, "offsets": offsets, "special": special})
    return result


ABILITIES: Mapping[str, Ability] = {
    **{name: Ability(_method(name)) for name in ("fill", "complete", "perplexity")},
    **{
        name: Ability(_method(name), cut="answer")
        for name in ("next_sentence", "classify", "score", "choose", "tag", "answer", "generate")
    },
    "embed": Ability(_method("embed_read"), cut="length"),
    EMBED_IDS: Ability(_method("embed_read")),
    "rerank": Ability(_rerank, cut="length"),
    "attention": Ability(_look),
    "pieces": Ability(_pieces),
}


def cut_by_answers(ability: str, answers: Sequence[Any]) -> int:
    """The truncated tokens of a request, if its answers report them."""
    return sum(answer.cut_tokens for answer in answers) if ABILITIES[ability].cut == "answer" else 0


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
    if ABILITIES[ability].cut != "length":
        return 0
    return sum(sum(of_item) - read_at_most(model, ability, of_item) for of_item in lengths)
