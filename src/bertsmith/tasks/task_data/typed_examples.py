"""Typed or piped lines as examples of a task: plain text, tab-separated parts, or JSON objects.

=====================  ====================================  =============================================
task                   a plain line                          a line of JSON
=====================  ====================================  =============================================
text                   the text                              {"text": ...}
pair                   text, tab, second text                {"text": ..., "pair": ...}
tagging                the text, split into words            {"text": ...} or {"words": [...]}
span                   question, tab, context                {"question": ..., "context": ...}
choice                 context, tab, ending, tab, ending ... {"context": ..., "endings": [...]}
selection              context, tab, reply, tab, reply ...   {"context": ..., "candidates": [...]}; the context may be a
                                                             list of turns
text to write          the source                            {"source": ...}
sentences to choose    the source                            {"source": ...}, a text or a list of sentences
pronoun                (none)                                {"text": ..., "pronoun": [start, end],
                                                             "candidates": [[start, end], ...]}
=====================  ====================================  =============================================

An empty line is a valid text (like "" in the library) and a valid sentence without words, but not a valid pair,
question or choice.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any

from bertsmith.base.core.errors import InputError
from bertsmith.base.core.progress import counted
from bertsmith.models.parts.head_inputs import COREFERENCE, EXTRACTION
from bertsmith.tasks.datasets.examples import (
    ChoiceExample,
    Example,
    QuestionExample,
    SequenceExample,
    TaggedExample,
    TextExample,
    document_of,
)
from bertsmith.tasks.datasets.marked_texts import words_of
from bertsmith.tasks.datasets.mentions import RECORD, mention_of
from bertsmith.tasks.datasets.values import brief, clean, parse_json
from bertsmith.tasks.specs.task import GENERATION, TaskSpec

_SHOWN_KEYS = 5  # of a JSON line, in a message

# The fields of a JSON line; all may also have an "id".
_FIELDS: Mapping[str, tuple[str, ...]] = {
    "text": ("text",),
    "pair": ("text", "pair"),
    "tagging": ("text",),
    "span": ("question", "context"),
    "choice": ("context", "endings"),
    GENERATION: ("source",),
    EXTRACTION: ("source",),
    COREFERENCE: ("text",),
}
# The expected parts of a plain line, if it is more than one text.
_EXPECTED: Mapping[str, str] = {
    "pair": "two texts with a tab between them",
    "span": "a question, a tab and a context",
    "choice": "a context and at least two endings, with tabs between them",
}


def example_of_line(spec: TaskSpec, line: str, number: int, where: str = "stdin", alone: bool = False) -> Example:
    """The example in a line, without gold.

    Args:
        line: the line without its line break; if it begins with `{`, it is JSON.
        alone: of a task that ranks, the line is a context without candidates.
    """
    location = f"line {number} of {where}"
    if alone:
        return _without_candidates(line, number, location)
    if line.lstrip().startswith("{"):
        return _from_json(spec, line, number, location)
    parts = line.split("\t")
    shape = _shape(spec, several=len(parts) > 1)
    if shape == "text":
        if line.strip():
            _require_parts(parts, 1, "one text, without a tab", location)
        return TextExample(id=str(number), first=line, location=location)
    if shape == GENERATION:
        return SequenceExample(id=str(number), source=line, location=location)
    if shape == EXTRACTION:
        return document_of(line, id=str(number), location=location)
    if shape == COREFERENCE:
        raise InputError.at(location, "a JSON object with a pronoun and candidates", brief(line), f"write {RECORD}")
    if shape == "tagging":
        return _alone(words_of(line, id=str(number), location=location), number)
    if not line.strip(" \r"):
        raise InputError(expected=f"{_EXPECTED[shape]}, in {location}", found="an empty line", fix="remove the line")
    if shape == "choice":
        if len(parts) < 3:
            fix = f"write context<TAB>ending<TAB>ending{', or give a list with --replies' if spec.ranks else ''}"
            raise InputError.at(location, f"{_EXPECTED[shape]},", counted(len(parts), "part"), fix)
        return ChoiceExample(id=str(number), context=parts[0], endings=tuple(parts[1:]), location=location)
    if shape == "span":
        _require_parts(parts, 2, _EXPECTED[shape], location)
        return QuestionExample(id=str(number), question=parts[0], context=parts[1], location=location)
    _require_parts(parts, 2, _EXPECTED[shape], location)
    return TextExample(id=str(number), first=parts[0], second=parts[1], location=location)


def _without_candidates(line: str, number: int, location: str) -> ChoiceExample:
    values = parse_json(line, location) if line.lstrip().startswith("{") else {"context": line}
    context = _context(values.get("context") if isinstance(values, dict) else None)
    if context is None or not context.strip():
        raise InputError.at(location, "a context, as a line or as 'context' in JSON,", brief(line), "correct the line")
    name = str(values.get("id", number))
    return ChoiceExample(id=name, context=clean(context), endings=(), location=location)


def _context(value: object) -> str | None:
    """A context, which may be a list of turns; None for anything else."""
    if isinstance(value, list) and value and all(isinstance(turn, str) for turn in value):
        return "\n".join(value)
    return value if isinstance(value, str) else None


def _shape(spec: TaskSpec, *, several: bool) -> str:
    if spec.kind == "selection":
        return "choice"
    if spec.kind in _FIELDS:
        return spec.kind
    pair = several if spec.pair is None else spec.pair
    return "pair" if pair else "text"


def _alone(sentence: TaggedExample, number: int) -> TaggedExample:
    """The sentence as its own document: consecutive lines need not be related."""
    return dataclasses.replace(sentence, document=number)


def _require_parts(parts: list[str], count: int, expected: str, location: str) -> None:
    if len(parts) != count:
        raise InputError(
            expected=f"{expected}, in {location}",
            found=counted(len(parts), "part"),
            fix="separate the parts with single tabs, or give JSON lines",
        )


def _from_json(spec: TaskSpec, line: str, number: int, location: str) -> Example:
    values = parse_json(line, location)
    if not isinstance(values, dict):
        raise InputError(expected=f"a JSON object in {location}", found=brief(values), fix="correct the line")
    values = {field: clean(value) if isinstance(value, str) else value for field, value in values.items()}
    name = str(values.get("id", number))
    if spec.kind == "tagging" and "words" in values:
        words = values["words"]
        if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
            raise InputError(expected=f"a list of words in {location}", found=brief(words), fix="correct the line")
        empty = next((number for number, word in enumerate(words, start=1) if not word.strip()), None)
        if empty is not None:
            raise InputError.at(
                location, "non-empty words", f"{words[empty - 1]!r} as word {empty} of {len(words)}", "remove the word"
            )
        return TaggedExample(id=name, words=tuple(map(clean, words)), document=number, location=location)
    shape = _shape(spec, several="pair" in values)
    fields = _FIELDS[shape]
    if spec.ranks:
        context = _context(values.get("context"))
        values = values if context is None else {**values, "context": context}
        fields = ("context", "endings" if "endings" in values else "candidates")
    for field in fields:
        if not (shape == EXTRACTION and _are_texts(values.get(field))):
            _require_field(values, field, location)
    if shape == GENERATION:
        return SequenceExample(id=name, source=values["source"], location=location)
    if shape == COREFERENCE:
        return mention_of(values, location, id=name)
    if shape == EXTRACTION:
        source = values["source"]
        texts = source if isinstance(source, str) else list(map(clean, source))
        return document_of(texts, id=name, location=location)
    if shape == "tagging":
        return _alone(words_of(values["text"], id=name, location=location), number)
    if shape == "choice":
        return ChoiceExample(
            id=name, context=values["context"], endings=tuple(map(clean, values[fields[1]])), location=location
        )
    if shape == "span":
        return QuestionExample(id=name, question=values["question"], context=values["context"], location=location)
    second = values["pair"] if shape == "pair" else None
    if shape == "text" and "pair" in values:
        raise InputError.at(location, "a single text, as the model reads it,", "a pair", "remove pair")
    return TextExample(id=name, first=values["text"], second=second, location=location)


def _are_texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(text, str) for text in value)


def _require_field(values: Mapping[str, Any], field: str, location: str) -> None:
    value = values.get(field)
    is_list = field in ("endings", "candidates")
    if is_list:
        good = isinstance(value, list) and len(value) > 1 and _are_texts(value)
    else:
        good = isinstance(value, str)
    if not good:
        kind = "a list of at least two texts" if is_list else "a text"
        shown = [*map(brief, list(values)[:_SHOWN_KEYS]), *(["…"] if len(values) > _SHOWN_KEYS else [])]
        others = f", only {', '.join(shown)}" if values else ""
        raise InputError(
            expected=f"{kind} as {field!r} in {location}",
            found=f"no such key{others}" if field not in values else brief(value),
            fix=f"add {field!r}" if field not in values else "correct the line",
        )
