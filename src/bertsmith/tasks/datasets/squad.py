"""Reader for question answering: JSON files in the format of SQuAD v1.1 and v2.0, and its questions as rows.

Rows are as in the data sets of Hugging Face, in JSON lines, a JSON list or Parquet: `id`, `context`, `question` and
`answers`, which is `{"text": [...], "answer_start": [...]}`. A list of SQuAD's articles or paragraphs is read, too.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from bertsmith.base.core.errors import InputError
from bertsmith.base.core.progress import counted, tell
from bertsmith.tasks.datasets.examples import Answer, ExampleFile, QuestionExample
from bertsmith.tasks.datasets.file_text import file_text, line_of, lines_of, quoted, suffix_of, warn_of_places
from bertsmith.tasks.datasets.parquet_records import parquet_records
from bertsmith.tasks.datasets.records import json_records
from bertsmith.tasks.datasets.values import brief, clean, parse_json
from bertsmith.text.documents.encodings import UTF_8
from bertsmith.text.documents.names import json_value

_FIXES: dict[object, str] = {bool: "write true or false", int: "write a whole number"}


def read_squad(
    path: Path, *, gold: bool = False, training: bool = False, unanswerable: bool = False, encoding: str = UTF_8
) -> ExampleFile:
    """The questions of a v1.1 or v2.0 file, with or without answers.

    An answer that is not at its offset is moved to the nearest occurrence of its text in the context. An answer that
    does not occur in the context still counts in scoring, as for the official scorer, which needs no offsets. The
    first of each kind are listed on stderr. A question with an empty text is skipped and listed.

    Args:
        gold: a question without an answer is skipped and listed, unless it is marked as impossible.
        training: as `gold`, and only one answer per question is kept, the first that occurs in its context. (BERT's
            original code only looks at the first answer.)
        unanswerable: in rows, which lack SQuAD's `is_impossible`, an empty list of answers means that there is none in
            the context.
    """
    examples: list[QuestionExample] = []
    skipped: list[tuple[str, str]] = []
    seen: set[str] = set()
    moved: list[tuple[str, str]] = []
    lost: list[tuple[str, str]] = []
    for context, record, where in _records(path, unanswerable=unanswerable, encoding=encoding):
        name = _name(record, where)
        question = clean(_field(record, "question", str, where))
        location = f"question {name!r} of {quoted(path)}"
        is_impossible = "is_impossible" in record and _field(record, "is_impossible", bool, location)
        answers: list[Answer] = []
        absent: list[str] = []
        for item in [] if is_impossible else _answers(record, location):
            if training and answers:
                break
            text = clean(_field(item, "text", str, location))
            start = None if item.get("answer_start") is None else _field(item, "answer_start", int, location)
            answer = _locate(context, text, start)
            if answer is None:
                absent.append(text)
                continue
            if answer.start != start:
                moved.append((location, f"{brief(text)} from {start} to {answer.start}"))
            answers.append(answer)
        kept = [] if training else [text for text in absent if text.strip()]
        if reason := _refusal(
            name in seen, question, context, [*answers, *kept], absent, is_impossible, gold or training
        ):
            skipped.append((location, reason))
            continue
        lost += [(location, brief(text)) for text in absent]
        seen.add(name)
        examples.append(
            QuestionExample(
                id=name,
                question=question,
                context=context,
                answers=tuple(answers),
                absent_answers=tuple(kept),
                is_impossible=is_impossible,
                location=location,
            )
        )
    file = quoted(path)
    warn_of_places(f"{counted(len(moved), 'answer')} in {file} not at the offset, moved to the nearest place", moved)
    use = "other answers are learned" if training else "they only count in scoring"
    warn_of_places(f"{counted(len(lost), 'answer')} in {file} not in the context; {use}", lost)
    such = f", such as {skipped[0][0]}: {skipped[0][1]}" if skipped else ""
    return ExampleFile.of(
        examples,
        skipped,
        expected=f"questions in {quoted(path)}",
        found=f"none usable, {len(skipped)} skipped{such}",
    )


def _refusal(
    is_double: bool,
    question: str,
    context: str,
    answers: Sequence[object],
    absent: Sequence[str],
    is_impossible: bool,
    gold: bool,
) -> str | None:
    """Why a question cannot be used; None if it can."""
    if is_double:
        return "a duplicate id"
    if not question.strip() or not context.strip():
        return "an empty question" if context.strip() else "an empty context"
    if not answers and absent:
        return "its answer does not occur in its context"
    if gold and not answers and not is_impossible:
        return "no answer"
    return None


def _records(path: Path, *, unanswerable: bool, encoding: str) -> Iterator[tuple[str, Mapping[str, Any], str]]:
    file = quoted(path)
    if suffix_of(path) == ".parquet":
        yield from _rows(file, parquet_records(path), unanswerable=unanswerable)
        return
    text = file_text(path, kind="a JSON file of questions", encoding=encoding)
    if suffix_of(path) == ".jsonl" or _starts_with_row(text):
        yield from _rows(file, json_records(path, text, lines=True), unanswerable=unanswerable)
        return
    if not text.lstrip().startswith(("{", "[")):
        raise InputError(
            expected=f"questions in {file}: the JSON of SQuAD, or rows with question and context (JSON lines, Parquet)",
            found=brief(text.strip()),
            fix="name such a file; `predict` also reads a question, a tab and a text on each line of stdin",
        )
    content = parse_json(text, file)
    items = content if isinstance(content, list) else _field(content, "data", list, file)
    if items and _is_row(items[0]):
        rows = ((line_of(path, number, "record"), item) for number, item in enumerate(items, start=1))
        yield from _rows(file, rows, unanswerable=unanswerable)
        return
    for a, article in enumerate(items):
        where = f"article {a} of {file}"
        is_paragraph = isinstance(content, list) and isinstance(article, dict) and "qas" in article
        for p, paragraph in enumerate([article] if is_paragraph else _field(article, "paragraphs", list, where)):
            where = f"paragraph {a} of {file}" if is_paragraph else f"paragraph {p} of article {a} of {file}"
            context = clean(_field(paragraph, "context", str, where))
            for q, record in enumerate(_field(paragraph, "qas", list, where)):
                yield context, record, f"question {q} of {where}"


def _starts_with_row(text: str) -> bool:
    try:
        return _is_row(json_value(lines_of(text.lstrip())[0]))
    except (ValueError, RecursionError):
        return False


def _is_row(value: Any) -> bool:
    return isinstance(value, dict) and "question" in value and "context" in value


def _rows(
    file: str, rows: Iterator[tuple[str, Any]], *, unanswerable: bool
) -> Iterator[tuple[str, Mapping[str, Any], str]]:
    for number, (location, row) in enumerate(rows):
        if not number:
            tell(f"{file}: read as rows of questions, with `id`, `context`, `question` and `answers`")
        context = clean(_field(row, "context", str, location))
        record = {"id": str(number), **{key: value for key, value in row.items() if value is not None}}
        answers = record.get("answers")
        if isinstance(answers, dict):
            texts, starts = answers.get("text", []), answers.get("answer_start")
            texts = [texts] if isinstance(texts, str) else texts
            starts = [starts] if isinstance(starts, int) else [None] * len(texts) if starts is None else starts
            if not isinstance(texts, list) or not isinstance(starts, list) or len(texts) != len(starts):
                raise InputError(
                    expected=f"as many texts as starts of answers in {location}",
                    found=brief(answers),
                    fix='write {"text": ["..."], "answer_start": [0]}',
                )
            answers = [{"text": text, "answer_start": start} for text, start in zip(texts, starts, strict=True)]
            record["answers"] = answers
        if unanswerable and answers == []:
            record.setdefault("is_impossible", True)
        yield context, record, location


def _answers(record: Mapping[str, Any], location: str) -> list[Any]:
    return _field(record, "answers", list, location) if "answers" in record else []


def _name(record: Any, where: str) -> str:
    """The id of a question, which becomes part of files that are UTF-8."""
    name = str(_field(record, "id", (str, int), where))
    if clean(name) != name:
        raise InputError(
            expected=f"an id of whole characters in {where}",
            found=f"{brief(name)}, which has half of a surrogate pair",
            fix="rename the question",
        )
    return name


def _field(value: Any, name: str, kind: type | tuple[type, ...], where: str) -> Any:
    """The value of a field of a record, which must be of this type; true and false are not numbers."""
    if not isinstance(value, dict):
        content = f"{brief(value)} instead of a record"
    elif name not in value:
        content = f"only {', '.join(map(brief, list(value)[:8])) or 'an empty record'}"
    elif not isinstance(value[name], kind) or (isinstance(value[name], bool) and kind is not bool):
        content = f"the value {brief(value[name])}"
    else:
        return value[name]
    raise InputError.at(
        where, f"the field {name!r} of the SQuAD format", content, _FIXES.get(kind, "name a file of questions")
    )


def _locate(context: str, text: str, start: int | None) -> Answer | None:
    """The answer at `start`, or else its nearest occurrence; None if it does not occur in the context."""
    if start is not None and start >= 0 and text.strip() and context.startswith(text, start):
        return Answer(text, start)
    words = text.split()
    if not words:
        return None
    # Overlapping occurrences are found, too, because a look-ahead consumes no characters.
    pattern = re.compile("(?=(" + r"\s+".join(map(re.escape, words)) + "))")
    wanted = 0 if start is None else start
    match = min(pattern.finditer(context), key=lambda match: abs(match.start() - wanted), default=None)
    return None if match is None else Answer(match[1], match.start())
