"""Reader for pairs of a source text and the texts to write: tables with two columns, or lines with a tab.

Any table has the columns `source` and `target`, or others of the usual names; `tables.py` says which formats there are.
A cell may hold several targets as a list in JSON, each of which counts as right; a training reads the first. A `.tsv`
file may have no header: a source, a tab and a target on each line. The sources of a JSON file of SQuAD are its
questions with their passages, the targets their answers.
"""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from bertsmith.base.core.errors import InputError
from bertsmith.base.core.progress import counted, tell
from bertsmith.tasks.datasets.cells import (
    ID_COLUMNS,
    Row,
    first_known,
    missing_column,
    plain_name,
    show_columns,
)
from bertsmith.tasks.datasets.examples import ExampleFile, QuestionExample, SequenceExample
from bertsmith.tasks.datasets.file_text import file_text, line_of, lines_of, quoted, suffix_of
from bertsmith.tasks.datasets.squad import read_squad
from bertsmith.tasks.datasets.tables import read_table
from bertsmith.tasks.datasets.values import brief, clean, looks_like_json, parse_json
from bertsmith.text.documents.encodings import UTF_8
from bertsmith.text.documents.names import json_value

# In order of preference.
SOURCE_COLUMNS = (
    "source src input text document article dialogue body content sentence question prompt context query".split()
)
TARGET_COLUMNS = (
    "target targets tgt output summary highlights subject tldr response reply answer translation tree parse headline "
    "title".split()
)


def read_sequences(
    path: Path,
    *,
    text_column: str | None = None,
    label_column: str | None = None,
    gold: bool = True,
    encoding: str = UTF_8,
    marks: Sequence[str] = (),
    example_of: Callable[..., SequenceExample | str] = SequenceExample,
) -> ExampleFile:
    """The examples of a file; a row without a source, or without a target, is skipped and listed.

    Args:
        text_column, label_column: the columns of sources and targets; if None, guessed from common names.
        gold: every example has a target; if False, targets are not read and may be missing.
        marks: the usual names of a column that says what is right in the source. A file with gold may have it in place
            of targets; its cell is an argument `marks` of `example_of`.
        example_of: the example with these fields, or why the row is skipped.
    """
    if text_column is None and label_column is None and _is_of_questions(path, encoding):
        return _read_questions(path, gold=gold, encoding=encoding, example_of=example_of)
    if text_column is None and label_column is None and _is_plain(path, encoding):
        examples = [
            (location, example_of(id=str(number), source=source, targets=(target,) if gold else (), location=location))
            for number, (location, source, target) in enumerate(pair_lines(path, encoding))
        ]
        skipped = [(location, reason) for location, reason in examples if isinstance(reason, str)]
        kept = [example for _, example in examples if not isinstance(example, str)]
        return ExampleFile.of(kept, skipped, expected=f"pairs of texts in {quoted(path)}")
    rows = list(read_table(path, encoding=encoding))
    if not rows:
        raise InputError(expected=f"rows in {quoted(path)}", found="none", fix="name a file that holds examples")
    columns = list(rows[0].values)
    source = column_of(path, columns, text_column, SOURCE_COLUMNS, "the texts", "--text-column")
    others = [name for name in columns if name != source]
    mark = next((name for name in others if gold and plain_name(name) in marks and name != label_column), "")
    has_target = gold and not (mark and label_column is None and _known(others, TARGET_COLUMNS) is None)
    target = ""
    if has_target:
        target = column_of(path, columns, label_column, TARGET_COLUMNS, "the targets", "--label-column", source)
    id_column = next((name for name in others if plain_name(name) in ID_COLUMNS and name != target), "")
    unread = [name for name in others if name not in (target, id_column, mark)]
    if unread or (source, target or "target") != ("source", "target"):
        aim = f", targets from {target!r}" if target else ""
        aim += f", right sentences from {mark!r}" if mark else ""
        tell(
            f"{quoted(path)}: sources from {source!r}{aim}" + (f"; not read: {show_columns(unread)}" if unread else "")
        )
    kept, skipped = [], []
    for number, row in enumerate(rows):
        text = row.cell(source)
        targets = texts_in(row, target) if target else ()
        if not text.strip() or (target and not targets):
            name = target if text.strip() else source
            skipped.append((row.location, f"no text in column {name!r}"))
            continue
        name = row.values.get(id_column, "") or str(number)
        marked = {"marks": row.cell(mark)} if mark else {}
        example = example_of(id=name, source=text, targets=targets, location=row.location, **marked)
        if isinstance(example, str):
            skipped.append((row.location, example))
        else:
            kept.append(example)
    return ExampleFile.of(
        kept,
        skipped,
        expected=f"rows with a source{' and a target' if gold else ''} in {quoted(path)}",
        found=f"{counted(len(skipped), 'row')}, none of them{f': {skipped[0][1]} in the first' if skipped else ''}",
    )


def source_of_question(question: str, passage: str) -> str:
    """The source of a model that writes answers to questions from passages.

    >>> source_of_question("Who came?", "Ann came.")
    'question: Who came? passage: Ann came.'
    """
    return f"question: {question} passage: {passage}"


def _is_of_questions(path: Path, encoding: str) -> bool:
    """Whether a file is one of SQuAD."""
    if suffix_of(path) != ".json" or not path.is_file():
        return False
    text = file_text(path, kind="a table", encoding=encoding)
    return text.lstrip().startswith("{") and '"paragraphs"' in text and '"qas"' in text


def _read_questions(
    path: Path, *, gold: bool, encoding: str, example_of: Callable[..., SequenceExample | str]
) -> ExampleFile:
    """The questions of a file of SQuAD as sources, with all their answers; those without one are skipped and listed."""
    tell(f"{quoted(path)}: sources are questions with their passages, targets their answers")
    questions = read_squad(path, gold=gold, encoding=encoding)
    kept, skipped = [], list(questions.skipped)
    for example in questions.examples:
        assert isinstance(example, QuestionExample)
        texts = [*(answer.text for answer in example.answers), *example.absent_answers]
        if gold and not texts:
            skipped.append((example.location, "no answer in its passage"))
            continue
        pair = example_of(
            id=example.id,
            source=source_of_question(example.question, example.context),
            targets=tuple(dict.fromkeys(texts)) if gold else (),
            is_answer=True,
            location=example.location,
        )
        if isinstance(pair, str):
            skipped.append((example.location, pair))
        else:
            kept.append(pair)
    return ExampleFile.of(kept, skipped, expected=f"questions with an answer in {quoted(path)}")


def pair_lines(path: Path, encoding: str = UTF_8) -> Iterator[tuple[str, str, str]]:
    """The place, the source and the target of each line of a file of pairs, which may be compressed.

    Args:
        encoding: of a file without a byte order mark.
    """
    for number, line in enumerate(lines_of(file_text(path, kind="pairs of texts", encoding=encoding)), start=1):
        cells = [cell.strip() for cell in line.split("\t")]
        if len(cells) != 2 or not all(cells):
            raise InputError(
                expected=f"a text, a tab and another text in {line_of(path, number)}",
                found=f"{counted(len(cells), 'cell')}: {brief(line)}",
                fix="fix this line, or remove it",
            )
        yield line_of(path, number), cells[0], cells[1]


def _is_plain(path: Path, encoding: str) -> bool:
    """Whether a file has lines of two texts instead of a table with a header."""
    if suffix_of(path) not in (".tsv", ".txt", "") or not path.is_file():
        return False
    text = file_text(path, kind="pairs of texts", encoding=encoding)
    cells = text.split("\n", 1)[0].split("\t")
    known = {*SOURCE_COLUMNS, *TARGET_COLUMNS, *ID_COLUMNS}
    return len(cells) == 2 and not looks_like_json(text) and not any(plain_name(cell) in known for cell in cells)


def column_of(
    path: Path, columns: list[str], named: str | None, known: list[str], content: str, option: str, source: str = ""
) -> str:
    """The column that was named, or the first one with a usual name; never that of the `source`."""
    others = [name for name in columns if name != source]
    if named is not None:
        if named not in others:
            raise missing_column(named, quoted(path), others)
        return named
    column = _known(others, known)
    if column is None:
        raise InputError(
            expected=f"a column named {known[0]!r} for {content} in {quoted(path)}",
            found=show_columns(columns),
            fix=f"rename it, or name it with {option}",
        )
    return column


def _known(columns: Sequence[str], known: Sequence[str]) -> str | None:
    """The column with the first of the known names."""
    return first_known({plain_name(name): name for name in columns}, known)


def texts_in(row: Row, column: str) -> tuple[str, ...]:
    """The texts in a cell: one, or those of a list in JSON."""
    cell = row.cell(column).strip()
    if not is_list(cell):
        return (cell,) if cell else ()
    return tuple(text for text in parse_texts(cell, column, row.location) if text.strip())


def is_list(cell: str) -> bool:
    """Whether a cell is a list in JSON, or begins like one of texts.

    >>> is_list('["a", "b"]'), is_list("[1, 2]"), is_list("[]"), is_list("[1] says so"), is_list("[sic]")
    (True, True, True, False, False)
    """
    text = cell.strip()
    if text.startswith('["'):
        return True
    try:
        return text.startswith("[") and isinstance(json_value(text), list)
    except (ValueError, RecursionError):
        return False


def parse_texts(cell: str, column: str, location: str) -> list[str]:
    """The texts of a list in JSON."""
    texts = parse_json(cell, location)
    if not all(isinstance(text, str) for text in texts):
        raise InputError(
            expected=f"a text, or a list of texts, as {column!r} in {location}",
            found=brief(cell),
            fix='write ["...", "..."]',
        )
    return list(map(clean, texts))
