"""How each ability of a model is asked with a list, and how its tokens are counted.

An item is what one answer is given for: a text, a pair, a question. Items of several requests go through a model
together where ability and options are the same.
"""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bertsmith.library.model import Model


@dataclasses.dataclass(frozen=True)
class Ability:
    """One thing that models do.

    Attributes:
        ask: the answers of a model to some items, with the options of the request; one an item.
        rows: the texts, pairs or lists of words that a model reads for each of all items of a request.
        cut: how it is known which tokens are not read: by the "length" of a row, by `cut_tokens` of the "answer", or ""
            where texts that are too long are refused.
    """

    ask: Callable[..., Sequence[Any]]
    rows: "Callable[[Model, Sequence[Any]], list[Sequence[Any]]]"
    cut: str = ""


def _each(model: "Model", items: Sequence[Any]) -> list[Sequence[Any]]:
    """Every item is a row."""
    return [(item,) for item in items]


def _method(name: str) -> Callable[..., Sequence[Any]]:
    """The method of a model that takes a list of items."""

    def ask(model: "Model", items: Sequence[Any], **options: Any) -> Sequence[Any]:
        answers: Sequence[Any] = getattr(model, name)(items, **options)
        return answers

    return ask


def _rerank(model: "Model", pairs: Sequence[tuple[str, str]], query: str) -> Sequence[float]:
    return model.rerank(query, [passage for _, passage in pairs])


def _look(model: "Model", items: Sequence[Any]) -> Sequence[dict[str, Any]]:
    pairs = [(item, None) if isinstance(item, str) else item for item in items]
    return [model.attention(text, pair).to_dict() for text, pair in pairs]


def _pieces(model: "Model", texts: Sequence[str]) -> Sequence[dict[str, Any]]:
    """The pieces, ids and characters of each text."""
    found = []
    for text in texts:
        pieces = model.tokenizer.encode_with_offsets(text, special_tokens=model.reads_specials())
        names = model.tokenizer.vocabulary.pieces
        ids = pieces.ids.tolist()
        offsets = [list(span) for span in zip(pieces.starts.tolist(), pieces.ends.tolist(), strict=True)]
        found.append({"pieces": [names[id] for id in ids], "ids": ids, "offsets": offsets})
    return found


def _endings(model: "Model", questions: Sequence[Any]) -> list[Sequence[Any]]:
    return [[(context, ending) for ending in endings] for context, endings in questions]


def _passages(model: "Model", pairs: Sequence[Any]) -> list[Sequence[Any]]:
    """Query and passage in one row; of a model without a task the query once, and the passages."""
    if model.task is not None:
        return _each(model, pairs)
    return [pair if number == 0 else pair[1:] for number, pair in enumerate(pairs)]


ABILITIES: Mapping[str, Ability] = {
    "fill": Ability(_method("fill"), _each),
    **{
        name: Ability(_method(name), _each, cut="answer")
        for name in ("next_sentence", "classify", "score", "tag", "answer")
    },
    "choose": Ability(_method("choose"), _endings, cut="answer"),
    "embed": Ability(_method("embed"), _each, cut="length"),
    "rerank": Ability(_rerank, _passages, cut="length"),
    "attention": Ability(_look, _each),
    "pieces": Ability(_pieces, _each),
}
# What every model does; the others are among the abilities that a model names.
OF_ALL = ("attention", "pieces")


def cut_by_answers(ability: str, answers: Sequence[Any]) -> int:
    """The tokens of a request that were not read, as far as its answers tell it."""
    return sum(answer.cut_tokens for answer in answers) if ABILITIES[ability].cut == "answer" else 0


def characters(items: Sequence[Any]) -> int:
    """The characters of some items."""
    return sum(len(item) if isinstance(item, str) else characters(item) for item in items)


def tokens_of(model: "Model", ability: str, items: Sequence[Any]) -> list[list[int]]:
    """For each item of a request the tokens of the rows that are read for it, before anything is cut."""
    rows = ABILITIES[ability].rows(model, items)
    read_by = "pieces" if ability in OF_ALL else ability
    lengths = iter(model.tokens([row for of_item in rows for row in of_item], read_by))
    return [[next(lengths) for _ in of_item] for of_item in rows]


def read_at_most(model: "Model", ability: str, lengths: Sequence[int]) -> int:
    """The tokens that a model reads of rows of some lengths; windows over long texts leave nothing out."""
    longest = model.reads_at_most(ability)
    return sum(lengths if longest is None else (min(length, longest) for length in lengths))


def cut_by_length(model: "Model", ability: str, lengths: Sequence[Sequence[int]]) -> int:
    """The tokens of a request that will not be read, as far as lengths tell it."""
    if ABILITIES[ability].cut != "length":
        return 0
    return sum(sum(of_item) - read_at_most(model, ability, of_item) for of_item in lengths)
