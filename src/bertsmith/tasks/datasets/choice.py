"""Reader for multiple choice: SWAG, CODAH, and tables of the same shape with any number of endings.

SWAG is a table with the columns `sent1`, `sent2`, `ending0` and so on, and `label`. Text A is `sent1`; text B is
`sent2` and an ending, separated by a space, as in BERT's paper, section 4.4. CODAH is a TSV file without a header; its
columns are the category, the context, the endings and the number of the correct ending.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from bertsmith.base.core.errors import InputError
from bertsmith.base.core.progress import counted
from bertsmith.tasks.datasets.cells import Row, show_columns, tsv_rows
from bertsmith.tasks.datasets.examples import ChoiceExample, ExampleFile
from bertsmith.tasks.datasets.file_text import file_text, line_of, lines_of, quoted, suffix_of
from bertsmith.tasks.datasets.tables import read_table
from bertsmith.tasks.datasets.values import brief, clean, looks_like_json, parse_json
from bertsmith.text.documents.encodings import UTF_8

CONTEXT_COLUMNS = ("sent1", "startphrase", "context", "prompt", "question")
FEWEST_ENDINGS = 2
LONGEST_NUMBER = 9  # digits of the number of an ending; Python refuses to read numbers of thousands of digits

_ENDING = re.compile(r"ending_?(\d+)")
_CODAH_OTHERS = 3  # category, context and label


def read_choices(path: Path, *, labelled: bool = True, encoding: str = UTF_8) -> ExampleFile:
    """The questions of a file; a question with an empty ending is skipped and listed.

    A `.tsv` file without an ending column in its first line is read as CODAH.
    """
    examples, skipped = [], []
    for number, (location, context, start, endings, label) in enumerate(
        _questions(path, labelled=labelled, encoding=encoding)
    ):
        if len(endings) < FEWEST_ENDINGS:
            raise InputError.at(
                location, f"at least {FEWEST_ENDINGS} endings", str(len(endings)), "add the missing endings"
            )
        if not all(ending.strip() for ending in endings):
            skipped.append((location, "an empty ending"))
            continue
        examples.append(
            ChoiceExample(
                id=str(number),
                context=context,
                endings=tuple(f"{start} {ending}" if start else ending for ending in endings),
                label=_gold(label, len(endings), location) if labelled else None,
                location=location,
            )
        )
    return ExampleFile.of(
        examples,
        skipped,
        expected=f"questions in {quoted(path)}",
        found=f"{counted(len(skipped), 'row')}, each with an empty ending",
    )


Question = tuple[str, str, str, Sequence[str], str]
"""Place, context, common beginning of the endings, endings, label."""


def _questions(path: Path, *, labelled: bool, encoding: str) -> Iterator[Question]:
    if suffix_of(path) == ".tsv":
        text = file_text(path, kind="a TSV table of questions", encoding=encoding)
        if not looks_like_json(text) and not _ENDING.search(text.split("\n", 1)[0]):
            yield from _codah(path, text)
            return
    for row in read_table(path, encoding=encoding):
        yield (row.location, "", "", ("", ""), "") if row.is_empty else _swag(row, labelled=labelled)


def _codah(path: Path, text: str) -> Iterator[Question]:
    count = 0
    for line, cells in tsv_rows(lines_of(text)):
        if cells == [""]:
            continue
        location = line_of(path, line)
        count = count or len(cells)
        if len(cells) != count or count < _CODAH_OTHERS + FEWEST_ENDINGS:
            raise InputError(
                expected=f"category, context, at least {FEWEST_ENDINGS} endings and a label, the same number of "
                f"columns on every line, in {location}",
                found=counted(len(cells), "column"),
                fix="name a multiple-choice file, or add a header with ending0, ending1 and so on",
            )
        yield location, cells[1], "", cells[2:-1], cells[-1]


def _swag(row: Row, *, labelled: bool) -> Question:
    values = row.values
    context = next((name for name in CONTEXT_COLUMNS if name in values), None)
    numbered = sorted((int(match[1]), name) for name in values if (match := _ENDING.fullmatch(name)))
    missing = [
        part
        for part, is_there in (
            (f"the context ({', '.join(CONTEXT_COLUMNS)})", context is not None),
            ("the endings (ending0, ending1, ...)", bool(numbered) or "endings" in values),
            ("label", not labelled or "label" in values),
        )
        if not is_there
    ]
    if missing or context is None:
        raise InputError(
            expected=f"columns for {' and '.join(missing)} in {row.location}",
            found=show_columns(values),
            fix="rename the columns, or name a multiple-choice file",
        )
    # SWAG's `startphrase` is the first sentence followed by the beginning of the second.
    start = values.get("sent2", "").strip() if context == "sent1" else ""
    return row.location, values[context], start, _endings(values, numbered, row.location), values.get("label", "")


def _endings(values: Mapping[str, str], numbered: Sequence[tuple[int, str]], location: str) -> list[str]:
    if numbered:
        return [values[name] for _, name in numbered]
    endings = parse_json(values["endings"], location)
    if not isinstance(endings, list) or not all(isinstance(ending, str) for ending in endings):
        raise InputError.at(location, "a list of texts as endings", brief(values["endings"]), 'write ["...", "..."]')
    return [clean(ending) for ending in endings]


def _gold(label: str, num_endings: int, location: str) -> int:
    label = label.strip()
    if not (label.isascii() and label.isdigit() and len(label) <= LONGEST_NUMBER) or int(label) >= num_endings:
        raise InputError(
            expected=f"the number of an ending, 0 to {num_endings - 1}, as label in {location}",
            found=brief(label),
            fix="number the endings from 0",
        )
    return int(label)
