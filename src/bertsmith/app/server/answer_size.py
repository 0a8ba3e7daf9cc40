"""Upper bounds on the memory of a request's answers, known before anything is computed.

A reply can be thousands of times as large as its request: a text of one letter has a vector of 768 numbers, and a row
of 128 tokens has two million attention weights. Each function here belongs to one route. The constants cover the answer
as an object, and its JSON twice, while the parts are joined.
"""

import dataclasses
import functools
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from bertsmith.app.server.refusal import json_bytes

if TYPE_CHECKING:
    from bertsmith.app.library.model import Model
    from bertsmith.app.library.open_index import RankedTexts

_ITEM = 640  # bytes of an answer, without what is counted separately
_RANKED = 32  # the number of a row and its score
_ESCAPED = 16  # a byte of a text, as up to 4 bytes of an object, and up to 6 characters in JSON, twice
_NUMBER = 48  # float32, and up to 22 characters, twice
_PACKED = 16  # float32 in base64
_CANDIDATE = 512  # a piece with its probability, under two keys
_LABEL = 192
_NAMED = 240  # a label that may be among those predicted
_SHARE = 128  # a text or a number of a list, as an object, and in JSON twice
_CODE = 832  # a code with its probability, as an object, and in JSON twice
_WORD = 960  # a word with its tag, and an entity around it
_ENTITY = 1280  # an entity that may be inside another one, as an object and as a candidate, and in JSON twice
_PIECE = 384
_WEIGHT = 24  # float64, and up to 7 characters, twice
_WRITTEN = 128  # a piece of a text that was written, as an object, and in JSON twice
_SPAN = 768  # an answer, under two keys
_KEPT = 384  # an answer that is computed, as an object

# Candidates that are computed for each question: those of the largest n_best of a request, and no answer.
MOST_CANDIDATES = 101


MOST_TOKENS = 128  # of a row whose attention is shown
MASK = "[MASK]"  # understood by every model


@dataclasses.dataclass(frozen=True)
class AnswerSize:
    """An upper bound for the bytes that the answers of a request take.

    Attributes:
        fixed: bytes that do not depend on the tokens.
        per_token: bytes for each token of the request.
        most_tokens: tokens that count; None for all.
        fix: what the client can do if it is too much.
    """

    fixed: int
    per_token: int = 0
    most_tokens: int | None = None
    fix: str = "split it"

    def of(self, tokens: int) -> int:
        """The bytes for a request with that many tokens."""
        counted = tokens if self.most_tokens is None else min(tokens, self.most_tokens)
        return self.fixed + self.per_token * counted


def vectors(model: "Model", count: int, *, packed: bool) -> AnswerSize:
    """The size of vectors, one per text."""
    fix = "split it" if packed else "split it, or ask for the encoding_format base64"
    return AnswerSize(count * (_ITEM + model.width * (_PACKED if packed else _NUMBER)), fix=fix)


def scores(model: "Model", count: int, texts: Sequence[str] = ()) -> AnswerSize:
    """The size of scores, of the vectors that were compared, and of the texts that are repeated."""
    return AnswerSize(count * (_ITEM + 4 * model.width) + 3 * _json_of(texts))


def rankings(count: int, top: int) -> AnswerSize:
    """The size of the places of texts in an index, for each query."""
    return AnswerSize(count * (_ITEM + top * _RANKED), fix="lower top, or split it")


def found_texts(answers: "Sequence[RankedTexts]") -> AnswerSize:
    """The size of texts of an index with their columns, which are read while they are serialized."""
    places = sum(len(answer.ranking.places[0]) for answer in answers)
    return AnswerSize(places * _ITEM + _ESCAPED * sum(answer.size for answer in answers), fix="lower top, or split it")


def labels(model: "Model", count: int) -> AnswerSize:
    """The size of labels with the probabilities of all labels."""
    return AnswerSize(count * (_ITEM + _of_all(model.labels)))


def of_labels(names: Sequence[str], count: int) -> AnswerSize:
    """The size of labels that the request names, with the probabilities of all."""
    return AnswerSize(count * (_ITEM + sum(_NAMED + 4 * _json(name) for name in names)))


def texts(model: "Model", count: int, answers: int | None = None, longest: int | None = None) -> AnswerSize:
    """The size of texts that are written; the best one for a source is shown under two keys.

    Args:
        answers, longest: the texts for each source and their most pieces; by default those of the model.
    """
    pieces = model.max_written
    if answers or longest:
        pieces = (answers or model.max_texts) * (longest or model.max_written // model.max_texts)
    return AnswerSize(count * (_ITEM + 2 * pieces * _WRITTEN), fix="lower answers or max_target_length, or split it")


def extracts(texts: Sequence[Any]) -> AnswerSize:
    """The size of chosen sentences, which may be all; a sentence is shown under two keys and has at least one token."""
    return AnswerSize(len(texts) * _ITEM + 2 * _json_of(texts), _SPAN + _NUMBER)


def mentions(pronouns: Sequence[Mapping[str, Any]]) -> AnswerSize:
    """The size of pronouns with their candidates, each of which is a part of the text; the answer is shown twice."""
    each = (4 + 2 * len(pronoun["candidates"]) for pronoun in pronouns)
    texts = sum((2 + len(pronoun["candidates"])) * _json(pronoun["text"]) for pronoun in pronouns)
    return AnswerSize(len(pronouns) * _ITEM + sum(each) * _LABEL + 3 * texts)


def endings(questions: Sequence[tuple[str, Sequence[str]]]) -> AnswerSize:
    """The size of the best endings."""
    return AnswerSize(sum(_ITEM + sum(_LABEL + 3 * _json(ending) for ending in endings) for _, endings in questions))


def words(model: "Model", texts: Sequence[Any], named: Sequence[str] = (), overlap: str | None = None) -> AnswerSize:
    """The size of the tags and entities of words; a word has at least one token.

    Args:
        named: the labels that the request names.
        overlap: which entities may share words, if the request says so.
    """
    longest = max(map(_json, (*model.labels, *named)), default=0)
    most, words_of_longest, share_words = model.max_entities
    if most:
        share_words = share_words if overlap is None else overlap != "none"
        texts_of_entities = 3 * (most * words_of_longest if share_words else 1) * _json_of(texts)
        return AnswerSize(len(texts) * _ITEM + texts_of_entities, _WORD + most * (_ENTITY + 4 * longest))
    return AnswerSize(len(texts) * _ITEM + 3 * _json_of(texts), _WORD + 4 * longest)


def answers(model: "Model", questions: Sequence[tuple[str, str]], n_best: int) -> AnswerSize:
    """The size of answers; each of them may be a whole context, those that are kept as well as those that are shown."""
    kept = min(model.max_answers + 1, MOST_CANDIDATES)  # no answer may follow the candidates
    shown = min(n_best, kept)
    objects, contexts = kept * _KEPT + shown * _SPAN, kept + 2 * (2 * shown + 1)
    result = sum(_ITEM + objects + contexts * _json(context) for _, context in questions)
    return AnswerSize(result, fix="lower n_best, or split it")


def candidates(model: "Model", texts: Sequence[str], top: int) -> AnswerSize:
    """The size of the candidates of all masks."""
    spellings = {MASK, model.tokenizer.vocabulary.special.mask or MASK}
    masks = sum(text.count(spelling) for text in texts for spelling in spellings)
    pieces = masks * min(top, len(model.tokenizer.vocabulary)) * _CANDIDATE
    return AnswerSize(pieces + len(texts) * _ITEM + 3 * _json_of(texts), fix="lower top, or split it")


def completions(model: "Model", texts: Sequence[str], top: int, tokens: int) -> AnswerSize:
    """The size of the next pieces of texts and of their continuations."""
    each = _ITEM + (min(top, len(model.tokenizer.vocabulary)) + tokens) * _CANDIDATE
    return AnswerSize(len(texts) * each + 3 * _json_of(texts), fix="lower top or tokens, or split it")


def predicted(count: int) -> AnswerSize:
    """The size of the perplexities of texts, one per text."""
    return AnswerSize(count * 2 * _ITEM)


def pieces(texts: Sequence[str]) -> AnswerSize:
    """The size of pieces with their ids and offsets."""
    return AnswerSize(len(texts) * _ITEM, _PIECE)


def weights(model: "Model") -> AnswerSize:
    """The size of the attention weights of a row; longer rows than it can show are refused."""
    per_token = model.attention_maps * MOST_TOKENS * _WEIGHT + _PIECE
    return AnswerSize(_ITEM, per_token, MOST_TOKENS)


def echoes(texts: Iterable[Any], count: int) -> AnswerSize:
    """The size of answers that repeat their texts, or have none."""
    return AnswerSize(count * _ITEM + 3 * _json_of(texts))


def codes_of_subjects(model: Any, subjects: Sequence[Mapping[str, Any]], top: int | None) -> AnswerSize:
    """The size of the codes that are predicted for subjects: `top` of the labels of a model, or all of them."""
    count = min(top or len(model.labels), len(model.labels))
    each = _ITEM + count * (_CODE + 3 * _longest(model.labels) + 3 * _longest(model.details))
    return AnswerSize(len(subjects) * each + 3 * _json_of(subjects), fix="lower top, or split it")


def codes_of_visits(model: Any, subjects: Sequence[Mapping[str, Any]]) -> AnswerSize:
    """The size of the visits of subjects with their codes."""
    size = 0
    for subject in subjects:
        visits = subject["visits"]
        codes = sum(map(len, map(_codes, visits)))
        size += len(visits) * (_ITEM + 3 * _json(subject.get("subject", ""))) + 3 * _json_of([subject])
        size += codes * (_CODE + 3 * _longest(model.details))
    return AnswerSize(size)


def vectors_of_subjects(model: Any, subjects: Sequence[Mapping[str, Any]]) -> AnswerSize:
    """The size of a vector for each subject."""
    return AnswerSize(len(subjects) * (_ITEM + model.width * _NUMBER) + 3 * _json_of(subjects))


def stories(model: Any, records: Sequence[Mapping[str, Any]]) -> AnswerSize:
    """The size of answers about stories, which repeat their facts, with a weight for each fact that is read."""
    each = _ITEM + 3 * _longest(model.labels) + model.numbers * _SHARE
    return AnswerSize(
        len(records) * each + sum(len(record["facts"]) for record in records) * _SHARE + 3 * _json_of(records)
    )


def fillings(model: Any, segments: Sequence[Mapping[str, Any]], top: int) -> AnswerSize:
    """The size of the candidates of all masks, next to codes and without them; the codes are repeated."""
    size = 2 * candidates(model, [segment.get("text", "") for segment in segments], top).fixed
    codes = sum(len(segment.get("codes", ())) for segment in segments)
    return AnswerSize(size + 3 * _json_of(segments) + codes * _SHARE, fix="lower top, or split it")


def next_codes(model: Any, count: int, top: int) -> AnswerSize:
    """The size of the codes that may follow."""
    each = _ITEM + min(top, len(model.details)) * (2 * _LABEL + 3 * _longest(model.details))
    return AnswerSize(count * each, fix="lower top, or split it")


def _codes(visit: Mapping[str, Any]) -> list[Any]:
    codes = visit["codes"]
    return [code for of_kind in codes.values() for code in of_kind] if isinstance(codes, Mapping) else codes


@functools.cache
def _longest(texts: tuple[str, ...]) -> int:
    return max(map(_json, texts), default=0)


@functools.cache
def _of_all(labels: tuple[str, ...]) -> int:
    return sum(_LABEL + 3 * _json(label) for label in labels)


def _json(text: str) -> int:
    return len(json_bytes(text))


def _json_of(items: Iterable[Any]) -> int:
    """The bytes of all texts in some items; of a record, those of its values."""
    values = items.values() if isinstance(items, Mapping) else items
    return sum(_json(item) if isinstance(item, str) else _json_of(item) for item in values)
