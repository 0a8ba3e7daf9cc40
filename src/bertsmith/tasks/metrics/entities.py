"""Entities from the tags of words, their scores as computed by conlleval, and the tagging schemes.

A tag is `O` (outside), or a letter, a hyphen and the entity type, such as `B-PER`; a letter alone is an entity without
a type.

    IOB1   I inside; B only for the first word of an entity directly after one of the same type
    IOB2   B for the first word of every entity, I for the others
    IOBES  B first, I inside, E last, S single word; `[` and `]` are equivalent to S

Any sequence is accepted, even an invalid one: there is a boundary between two words if either is outside, the types
differ, the first one closes (E, S) or the second one opens (B, S). The words between two boundaries are an entity.

Source: `startOfChunk` and `endOfChunk` of conlleval, the official scorer of CoNLL-2000 to CoNLL-2003.
"""

import collections
import functools
import itertools
from collections.abc import Hashable, Iterable, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from bertsmith.base.core.errors import InputError
from bertsmith.base.core.settings import require_known

OF_SPANS = ("precision", "recall", "f1")
SCHEMES = ("IOB1", "IOB2", "IOBES")

Span = tuple[str, int, int]

_SINGLE = frozenset("S[]")
_CLOSES = _SINGLE | {"E", "O"}
_OPENS = _SINGLE | {"B", "O"}
_LETTERS = {"IOB1": frozenset("OBI"), "IOB2": frozenset("OBI"), "IOBES": frozenset("OBIE") | _SINGLE}


def entity_spans(tags: Sequence[str], scheme: str) -> list[Span]:
    """The entities of a sentence from left to right: type, first word, one past the last word.

    >>> entity_spans("B-PER I-PER O I-LOC".split(), "IOB2")
    [('PER', 0, 2), ('LOC', 3, 4)]
    """
    _require_scheme(scheme)
    parts = []
    for position, tag in enumerate(tags):
        part = _split(tag, scheme)
        if part is None:
            letters = (letter for letter in "OBIES" if letter in _LETTERS[scheme])
            examples = [letter if letter == "O" else f"{letter}-PER" for letter in letters]
            raise InputError(
                expected=f"tags of {scheme}: {', '.join(examples)}",
                found=f"{tag!r} for word {position}",
                fix="use the scheme of the tags, or fix the tag",
            )
        parts.append(part)
    return _spans(parts)


def entity_scores(gold: Sequence[Sequence[str]], predicted: Sequence[Sequence[str]], scheme: str) -> dict[str, float]:
    """The scores of conlleval as fractions: `precision`, `recall` and `f1` of entities, `accuracy` of tags.

    An entity is correct if its type and both its ends are. Each type also has its own `precision`, `recall` and `f1`,
    under names such as `PER_f1`; entities without a type count only in the overall scores. Undefined ratios are 0.
    """
    _require_same_words(gold, predicted)
    right, in_gold, in_predicted = (collections.Counter[str]() for _ in range(3))
    for gold_tags, predicted_tags in zip(gold, predicted, strict=True):
        gold_spans, predicted_spans = entity_spans(gold_tags, scheme), entity_spans(predicted_tags, scheme)
        in_gold.update(kind for kind, _, _ in gold_spans)
        in_predicted.update(kind for kind, _, _ in predicted_spans)
        right.update(kind for kind, _, _ in set(gold_spans) & set(predicted_spans))
    num_tags = sum(map(len, gold))
    equal_tags = sum(
        first == second for pair in zip(gold, predicted, strict=True) for first, second in zip(*pair, strict=True)
    )
    scores = _ratios("", right.total(), in_gold.total(), in_predicted.total()) | {"accuracy": equal_tags / num_tags}
    for kind in sorted(set(in_gold) | set(in_predicted)):
        if kind:
            scores |= _ratios(f"{kind}_", right[kind], in_gold[kind], in_predicted[kind])
    return scores


def span_scores(counts: npt.ArrayLike) -> dict[str, float]:
    """Precision, recall and F1 of entities, from how many are right, in the gold and predicted."""
    right, in_gold, in_predicted = np.asarray(counts).tolist()
    return _ratios("", right, in_gold, in_predicted)


def counts_of_spans(pairs: Iterable[tuple[Iterable[Hashable], Iterable[Hashable]]]) -> npt.NDArray[np.int64]:
    """Of each sentence the entities that are right, in the gold and predicted, int64 [E, 3], from both of its sets."""
    sets = [(set(gold), set(predicted)) for gold, predicted in pairs]
    counts = [(len(gold & predicted), len(gold), len(predicted)) for gold, predicted in sets]
    return np.array(counts, dtype=np.int64).reshape(-1, 3)


def share_words(first: tuple[int, int, str], second: tuple[int, int, str], allowed: str = "none") -> bool:
    """Whether two spans have words in common although these may be `nested` only, or have `none` in common.

    >>> share_words((0, 3, "ORG"), (2, 4, "LOC"), "nested"), share_words((0, 3, "ORG"), (2, 3, "LOC"), "nested")
    (True, False)
    """
    (start, end, _), (begin, past, _) = first, second
    if start >= past or begin >= end:
        return False
    is_nested = (start <= begin and past <= end) or (begin <= start and end <= past)
    return allowed == "none" or not is_nested


def overlap_of(sentences: Iterable[Sequence[tuple[int, int, str]]]) -> str:
    """Which spans of the same sentence share words: `none`, `nested` (of two, one is inside the other) or `any`."""
    pairs = [pair for spans in sentences for pair in itertools.combinations(spans, 2) if share_words(*pair)]
    return "none" if not pairs else "any" if any(share_words(*pair, "nested") for pair in pairs) else "nested"


def convert_tags(tags: Sequence[str], source: str, target: str) -> list[str]:
    """The same entities in the tags of another scheme; the result is well formed even if the input is not.

    >>> convert_tags("I-PER I-PER B-PER O".split(), "IOB1", "IOBES")
    ['B-PER', 'E-PER', 'S-PER', 'O']
    """
    _require_scheme(target)
    return scheme_tags(entity_spans(tags, source), len(tags), target)


def scheme_errors(tags: Sequence[str], scheme: str) -> list[tuple[int, str]]:
    """The words of a sentence whose tag violates the scheme, as pairs of position and error.

    >>> scheme_errors("O I-PER I-PER".split(), "IOB2")
    [(1, "expected 'B-PER'; found 'I-PER'")]
    """
    _require_scheme(scheme)
    parts = [_split(tag, scheme) for tag in tags]
    right = scheme_tags(_spans([part or ("O", "") for part in parts]), len(tags), scheme)
    unknown = f"expected a tag of {scheme}"
    return [
        (position, f"{unknown if part is None else f'expected {asked!r}'}; found {tag!r}")
        for position, (tag, part, asked) in enumerate(zip(tags, parts, right, strict=True))
        if tag != asked
    ]


@functools.lru_cache(maxsize=16)
def following_tags(labels: tuple[str, ...], scheme: str) -> npt.NDArray[np.bool_]:
    """Whether a tag may follow another one, bool [K + 1, K + 1]: row and column K are the ends of the sentence.

    A sequence has no forbidden pair if and only if it has no `scheme_errors`, except that `[` and `]` count
    as the S that they are equivalent to.

    >>> following_tags(("O", "B-PER", "I-PER"), "IOB2").astype(int).tolist()
    [[1, 1, 0, 1], [1, 1, 1, 1], [1, 1, 1, 1], [1, 1, 0, 1]]

    Args:
        labels: K tags; one that is not part of the scheme counts as outside.
    """
    _require_scheme(scheme)
    outside = ("O", "")
    parts = [*(_split(label, scheme) or outside for label in labels), outside]  # in every scheme, an end is as an O
    numbers = {kind: number for number, kind in enumerate(dict.fromkeys(kind for _, kind in parts))}
    kinds = np.array([numbers[kind] for _, kind in parts])
    is_same = kinds[:, None] == kinds[None, :]

    def are(letters: str) -> npt.NDArray[np.bool_]:
        return np.array([letter in letters for letter, _ in parts], dtype=np.bool_)

    if scheme == "IOBES":
        is_open, continues = are("BI")[:, None], are("IE")[None, :]
        result = (is_open == continues) & (~is_open | is_same)
    else:
        needs_entity = are("B" if scheme == "IOB1" else "I")[None, :]
        result = ~needs_entity | (are("BI")[:, None] & is_same)
    result = np.asarray(result, dtype=np.bool_)
    result.flags.writeable = False  # the cache returns the same array to all
    return result


def rename_types(tags: Sequence[str], names: Mapping[str, str]) -> list[str]:
    """The tags with the types of their entities renamed; the entities stay, even if two neighbors get one name.

    >>> rename_types("I-PER I-ORG O".split(), {"PER": "Name", "ORG": "Name"})
    ['I-Name', 'B-Name', 'O']
    """
    renamed: list[str] = []
    before = ("O", "")
    for tag in tags:
        letter, hyphen, kind = tag.partition("-")
        name = names[kind] if hyphen else kind
        touches = before[0] not in _CLOSES and before[1] != kind
        if touches and hyphen and names.get(before[1]) == name:
            letter = {"I": "B", "E": "S"}.get(letter, letter)
        renamed.append(f"{letter}{hyphen}{name}")
        before = tag[0], kind
    return renamed


def scheme_of(sentences: Iterable[Sequence[str]]) -> str:
    """The scheme that the tags of a file appear to follow; "" if they follow none, such as part-of-speech tags.

    A letter E or S means IOBES. Of IOB1 and IOB2 the one with fewer errors is chosen, IOB2 if they are tied.
    """
    # Sentences with the same tags have the same errors, and most sentences of a file repeat the tags of others.
    counts = collections.Counter(tuple(tags) for tags in sentences)
    letters = set()
    for tag in {tag for tags in counts for tag in tags}:
        part = _split(tag, "IOBES")
        if part is None:
            return ""
        letters.add(part[0])
    if letters - _LETTERS["IOB2"]:
        return "IOBES"
    errors = {
        scheme: sum(count * len(scheme_errors(tags, scheme)) for tags, count in counts.items())
        for scheme in ("IOB2", "IOB1")
    }
    return min(errors, key=errors.__getitem__)


def _split(tag: str, scheme: str) -> tuple[str, str] | None:
    """The letter and the type of a tag; None if the scheme has no such letter."""
    letter, hyphen, kind = tag.partition("-")
    known = letter in _LETTERS[scheme] and not (letter == "O" and hyphen)
    return (letter, kind) if known else None


def _spans(parts: Sequence[tuple[str, str]]) -> list[Span]:
    spans = []
    start = 0
    for position, (letter, kind) in enumerate(parts):
        after, kind_after = parts[position + 1] if position + 1 < len(parts) else ("O", "")
        if letter in _CLOSES or after in _OPENS or kind != kind_after:
            if letter != "O":
                spans.append((kind, start, position + 1))
            start = position + 1
    return spans


def scheme_tags(spans: Sequence[Span], length: int, scheme: str) -> list[str]:
    """The well-formed tags of a sentence of this many words, which are unique.

    Args:
        spans: its entities from left to right, without common words; see `entity_spans`.
    """
    tags = ["O"] * length
    before = ("", -1)
    for kind, start, end in spans:
        letters = ["I"] * (end - start)
        if scheme != "IOB1" or before == (kind, start):
            letters[0] = "B"
        if scheme == "IOBES":
            letters[-1] = "E" if len(letters) > 1 else "S"
        tags[start:end] = [f"{letter}-{kind}" if kind else letter for letter in letters]
        before = (kind, end)
    return tags


def _ratios(prefix: str, right: int, in_gold: int, in_predicted: int) -> dict[str, float]:
    precision = right / in_predicted if in_predicted else 0.0
    recall = right / in_gold if in_gold else 0.0
    f1 = 2 * precision * recall / (precision + recall) if right else 0.0
    return {f"{prefix}precision": precision, f"{prefix}recall": recall, f"{prefix}f1": f1}


def _require_scheme(scheme: str) -> None:
    require_known("scheme", scheme, SCHEMES)


def _require_same_words(gold: Sequence[Sequence[str]], predicted: Sequence[Sequence[str]]) -> None:
    fix = "predict the same file that is scored"
    if len(gold) != len(predicted) or not any(gold):
        raise InputError(
            expected="as many predicted sentences as gold sentences, with words",
            found=f"{len(gold)} gold and {len(predicted)} predicted",
            fix=fix,
        )
    for number, (first, second) in enumerate(zip(gold, predicted, strict=True)):
        if len(first) != len(second):
            raise InputError(expected=f"{len(first)} tags for sentence {number}", found=f"{len(second)}", fix=fix)
