"""Typed or piped lines as examples of a task: plain text, tab-separated parts, or JSON objects.

=====================  ====================================  =============================================
task                   a plain line                          a line of JSON
=====================  ====================================  =============================================
text                   the text                              {"text": ...}
pair                   text, tab, second text                {"text": ..., "pair": ...}
tagging, entities      the text, split into words            {"text": ...} or {"words": [...]}
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
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from bertsmith.base.core.errors import InputError
from bertsmith.base.core.progress import counted
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
from bertsmith.tasks.specs.task import BY_NAME, COREFERENCE, ENTITIES, EXTRACTION, GENERATION, TaskSpec

_SHOWN_KEYS = 5  # of a JSON line, in a message
_SEVERAL = ("endings", "candidates")  # fields that are lists of texts; in a plain line, all further parts


class _Form(NamedTuple):
    """The lines of a kind of task.

    Attributes:
        fields: of a JSON line, which the parts of a plain one become; none if plain lines are refused. A JSON line may
            also have an "id".
        example_of: the example with these values, a number and other fields.
        expected: the parts of a line; "" if any line is a text.
        fix: what to do where a plain line does not have them.
    """

    fields: tuple[str, ...]
    example_of: Callable[..., Example]
    expected: str = ""
    fix: str = "separate the parts with single tabs, or give JSON lines"


def example_of_line(spec: TaskSpec, line: str, number: int, where: str = "stdin", alone: bool = False) -> Example:
    """The example in a line, without gold.

    Args:
        line: the line without its line break; if it begins with `{`, it is JSON.
        alone: of a task that ranks, the line is a context without candidates.
    """
    location = f"line {number} of {where}"
    values = _record(line, location) if line.lstrip().startswith("{") else None
    if alone:
        values = {"context": line} if values is None else values
        return _without_candidates(values, line, id=str(number), location=location)
    form = _form_of(spec, several="\t" in line if values is None else "pair" in values)
    if values is None:
        values = _values_of(form, line, location)
    return form.example_of(values, number, id=str(values.get("id", number)), location=location)


def _form_of(spec: TaskSpec, *, several: bool) -> _Form:
    kind = "selection" if spec.ranks else spec.kind
    if kind in _FORMS:
        return _FORMS[kind]
    return _FORMS["pair" if (several if spec.pair is None else spec.pair) else "text"]


def _record(line: str, location: str) -> dict[str, Any]:
    values = parse_json(line, location)
    if not isinstance(values, dict):
        raise InputError(expected=f"a JSON object in {location}", found=brief(values), fix="correct the line")
    return {field: clean(value) if isinstance(value, str) else value for field, value in values.items()}


def _values_of(form: _Form, line: str, location: str) -> dict[str, Any]:
    """The parts of a plain line, by the names that they have in JSON."""
    if not form.fields:
        raise InputError.at(location, form.expected, brief(line), form.fix)
    parts, (first, *others) = line.split("\t"), form.fields
    is_list = any(field in _SEVERAL for field in others)
    if not others and (not form.expected or not line.strip()):
        return {first: line}
    if others and not line.strip(" \r"):
        raise InputError(expected=f"{form.expected}, in {location}", found="an empty line", fix="remove the line")
    if len(parts) < 3 if is_list else len(parts) != len(form.fields):
        raise InputError.at(location, f"{form.expected},", counted(len(parts), "part"), form.fix)
    return {first: parts[0], others[0]: parts[1:]} if is_list else dict(zip(form.fields, parts, strict=True))


def _text(values: Mapping[str, Any], number: int, *, location: str, **fields: Any) -> Example:
    text = _text_in(values, "text", location)
    if "pair" in values:
        raise InputError.at(location, "a single text, as the model reads it,", "a pair", "remove pair")
    return TextExample(first=text, location=location, **fields)


def _pair(values: Mapping[str, Any], number: int, *, location: str, **fields: Any) -> Example:
    first, second = (_text_in(values, field, location) for field in ("text", "pair"))
    return TextExample(first=first, second=second, location=location, **fields)


def _tagged(values: Mapping[str, Any], number: int, *, location: str, **fields: Any) -> Example:
    """The sentence as its own document: consecutive lines need not be related."""
    if "words" not in values:
        sentence = words_of(_text_in(values, "text", location), location=location, **fields)
        return dataclasses.replace(sentence, document=number)
    words = values["words"]
    if not _are_texts(words):
        raise InputError(expected=f"a list of words in {location}", found=brief(words), fix="correct the line")
    empty = next((index for index, word in enumerate(words, start=1) if not word.strip()), None)
    if empty is not None:
        raise InputError.at(
            location, "non-empty words", f"{words[empty - 1]!r} as word {empty} of {len(words)}", "remove the word"
        )
    return TaggedExample(words=tuple(map(clean, words)), document=number, location=location, **fields)


def _question(values: Mapping[str, Any], number: int, *, location: str, **fields: Any) -> Example:
    question, context = (_text_in(values, field, location) for field in ("question", "context"))
    return QuestionExample(question=question, context=context, location=location, **fields)


def _choice(values: Mapping[str, Any], number: int, *, location: str, **fields: Any) -> Example:
    context, endings = _text_in(values, "context", location), _texts_in(values, "endings", location)
    return ChoiceExample(context=context, endings=endings, location=location, **fields)


def _ranked(values: Mapping[str, Any], number: int, *, location: str, **fields: Any) -> Example:
    context = _context(values.get("context"))
    context = _text_in(values, "context", location) if context is None else context
    candidates = _texts_in(values, "endings" if "endings" in values else "candidates", location)
    return ChoiceExample(context=context, endings=candidates, location=location, **fields)


def _without_candidates(values: Mapping[str, Any], line: str, *, id: str, location: str) -> ChoiceExample:
    context = _context(values.get("context"))
    if context is None or not context.strip():
        raise InputError.at(location, "a context, as a line or as 'context' in JSON,", brief(line), "correct the line")
    return ChoiceExample(id=str(values.get("id", id)), context=context, endings=(), location=location)


def _source(values: Mapping[str, Any], number: int, *, location: str, **fields: Any) -> Example:
    return SequenceExample(source=_text_in(values, "source", location), location=location, **fields)


def _document(values: Mapping[str, Any], number: int, *, location: str, **fields: Any) -> Example:
    source: Any = values.get("source")
    texts = list(map(clean, source)) if _are_texts(source) else _text_in(values, "source", location)
    return document_of(texts, location=location, **fields)


def _mention(values: Mapping[str, Any], number: int, *, location: str, **fields: Any) -> Example:
    _text_in(values, "text", location)
    return mention_of(values, location, **fields)


def _context(value: Any) -> str | None:
    """A context, which may be a list of turns; None for anything else."""
    if _are_texts(value) and value:
        return "\n".join(map(clean, value))
    return clean(value) if isinstance(value, str) else None


def _are_texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(text, str) for text in value)


def _text_in(values: Mapping[str, Any], field: str, location: str) -> str:
    text: Any = values.get(field)
    if not isinstance(text, str):
        raise _wrong(values, field, "a text", location)
    return text


def _texts_in(values: Mapping[str, Any], field: str, location: str) -> tuple[str, ...]:
    texts: Any = values.get(field)
    if not _are_texts(texts) or len(texts) < 2:
        raise _wrong(values, field, "a list of at least two texts", location)
    return tuple(map(clean, texts))


def _wrong(values: Mapping[str, Any], field: str, kind: str, location: str) -> InputError:
    shown = [*map(brief, list(values)[:_SHOWN_KEYS]), *(["…"] if len(values) > _SHOWN_KEYS else [])]
    others = f", only {', '.join(shown)}" if values else ""
    return InputError(
        expected=f"{kind} as {field!r} in {location}",
        found=f"no such key{others}" if field not in values else brief(values[field]),
        fix=f"add {field!r}" if field not in values else "correct the line",
    )


_FORMS: Mapping[str, _Form] = {  # by the kind of task; of texts and pairs, by what the model reads
    "text": _Form(("text",), _text, "one text, without a tab"),
    "pair": _Form(("text", "pair"), _pair, "two texts with a tab between them"),
    "tagging": _Form(("text",), _tagged),
    ENTITIES: _Form(("text",), _tagged),
    BY_NAME: _Form(("text",), _tagged),
    "span": _Form(("question", "context"), _question, "a question, a tab and a context"),
    "choice": _Form(
        ("context", "endings"),
        _choice,
        "a context and at least two endings, with tabs between them",
        "write context<TAB>ending<TAB>ending",
    ),
    "selection": _Form(
        ("context", "candidates"),
        _ranked,
        "a context and at least two replies, with tabs between them",
        "write context<TAB>reply<TAB>reply, or give a list with --replies",
    ),
    GENERATION: _Form(("source",), _source),
    EXTRACTION: _Form(("source",), _document),
    COREFERENCE: _Form((), _mention, "a JSON object with a pronoun and candidates", f"write {RECORD}"),
}
