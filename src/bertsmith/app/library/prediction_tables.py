"""Models applied to a file of examples without labels, and the answers as new columns of the table that was read."""

import csv
import io
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from bertsmith.app.library.table_answers import PROBABILITY, values_of
from bertsmith.base.core.errors import InputError
from bertsmith.base.core.progress import said_once, tell
from bertsmith.base.core.settings import require
from bertsmith.base.storage.files import atomic_file
from bertsmith.base.storage.outputs import PREDICTION_TABLE, require_output
from bertsmith.inference.predictors.ensemble import requested_predictor
from bertsmith.inference.predictors.predictor import Predictor
from bertsmith.inference.predictors.request import PredictRequest
from bertsmith.tasks.datasets.cells import PREDICTION
from bertsmith.tasks.datasets.examples import Example
from bertsmith.tasks.datasets.file_text import line_of, suffix_of, unpacked
from bertsmith.tasks.datasets.glue import GLUE
from bertsmith.tasks.datasets.glue import NLI_TITLES as NLI
from bertsmith.tasks.datasets.tables import SUFFIXES, read_table
from bertsmith.tasks.specs.named_tasks import form_of
from bertsmith.tasks.specs.predictions import (
    AnswerPrediction,
    ChoicePrediction,
    EntitiesPrediction,
    TagsPrediction,
)
from bertsmith.tasks.specs.settings import ColumnSettings
from bertsmith.tasks.specs.task import Prediction
from bertsmith.tasks.task_data.task_files import columns_for, read_examples
from bertsmith.text.documents.encodings import UTF_8, encoding_of


def predict_file(
    request: PredictRequest, load: Callable[[PredictRequest], Predictor] = requested_predictor
) -> Iterator[tuple[Example, Prediction]]:
    """Each example of a file with its prediction; labels are not read, and rows without text are skipped and listed.

    Args:
        load: the predictor; called once the request is checked.
    """
    predictor = load(request)
    examples = _examples(predictor, request)
    yield from predictor.stream(iter(examples), total=len(examples))


def write_predictions(
    request: PredictRequest, load: Callable[[PredictRequest], Predictor] = requested_predictor
) -> Iterator[tuple[Example, Prediction]]:
    """As `predict_file`; once all are answered, the table is written with the new columns prediction and probability.

    Every row of the table is written, in its order and with all its columns; a row without text has empty new cells. Of
    a CSV file all else stays as it is: separator, quotes, blank lines, line ends, byte order mark. The prediction of
    several labels is separated by `|`; it and a number have no probability. That of a text without an answer is empty.
    """
    data, out = Path(request.data or ""), Path(request.out or "")
    require_output(out, PREDICTION_TABLE, inputs=[data], replace=request.replace)
    require(
        suffix_of(data) in SUFFIXES,
        expected=f"a table with --out, a file that ends in {', '.join(SUFFIXES)}",
        found=f"'{data}'",
        fix="print the predictions, without --out",
    )
    predictor = load(request)
    name = form_of(predictor.task.spec)
    require(
        name not in GLUE and name not in NLI,
        expected="a model whose task is read from tables of any columns, with --out",
        found=f"one of {name}",
        fix="print the predictions, without --out, or use --test with --submission",
    )
    with said_once():  # the file is read twice
        rows = list(read_table(data, encoding=request.encoding))
        names = list(dict.fromkeys(name for row in rows for name in row.values))
        for name in (PREDICTION, PROBABILITY):
            require(
                name not in names, expected=f"no column {name!r} in '{data}'", found="one", fix="rename that column"
            )
        answers: dict[str, Mapping[str, str]] = {}
        examples = _examples(predictor, request)
        require(
            {row.location for row in rows}.issuperset(example.location for example in examples),
            expected=f"a first line with the names of the columns in '{data}', with --out",
            found="lines of texts alone",
            fix="add one, such as source, a tab and target; or print the predictions, without --out",
        )
        for example, prediction in predictor.stream(iter(examples), total=len(examples)):
            answers[example.location] = _cells(prediction, several=predictor.gives_several)
            yield example, prediction
    added = list(dict.fromkeys(name for cells in answers.values() for name in cells))
    if suffix_of(data) == ".csv":
        content = _with_cells(data, names, added, answers, request.encoding)
    else:
        table = [csv_row([*names, *added])]
        for row in rows:
            cells = {**row.values, **answers.get(row.location, {})}
            table.append(csv_row([cells.get(name, "") for name in (*names, *added)]))
        content = "".join(table).encode()
    with atomic_file(out) as file:
        file.write(content)


def _examples(predictor: Predictor, request: PredictRequest) -> Sequence[Example]:
    """The examples of the file, without labels."""
    spec, path = predictor.task.spec, Path(request.data or "")
    columns = columns_for(spec.columns, path, request.part(ColumnSettings), gold=False)
    return read_examples(form_of(spec), path, columns, gold=False, scheme=spec.scheme).examples


def _with_cells(
    data: Path, names: Sequence[str], added: Sequence[str], answers: Mapping[str, Mapping[str, str]], encoding: str
) -> bytes:
    """The bytes of a CSV file with new cells at the end of each row, and all else as it was.

    Args:
        names: its columns.
        added: the new ones.
        answers: the new cells of a row by its place; a row without any has empty ones.
        encoding: of a file without a byte order mark.
    """
    with unpacked(data) as file:
        raw = file.read()
    encoding = encoding_of(raw[:4], encoding)
    if encoding in ("utf-16", "utf-32"):
        encoding += "-be" if raw.startswith((b"\xfe\xff", b"\0\0\xfe\xff")) else "-le"  # leaves the mark in the text
    text = raw.decode(encoding)
    mark = "\ufeff" if text.startswith("\ufeff") else ""
    lines = list(io.StringIO(text.removeprefix(mark), newline=""))
    separator = next(sign for sign in ",;\t" if _names(lines, sign) == list(names))
    reader = csv.reader(lines, delimiter=separator, strict=True)
    parts, done = [mark], 0
    for cells in reader:
        row, row_place, done = "".join(lines[done : reader.line_num]), line_of(data, done + 1), reader.line_num
        if cells or len(names) == 1:
            content = row.rstrip("\r\n")  # a line end of the last cell has a quote behind it
            cells_of_row = answers.get(row_place, {})
            more = [cells_of_row.get(name, "") for name in added] if len(parts) > 1 else added
            row = content + separator + csv_row(more, separator).removesuffix("\n") + row[len(content) :]
        parts.append(row)
    if encoding != UTF_8:
        tell(f"the predictions are written in {encoding}, as '{data}' is")
    try:
        return "".join(parts).encode(encoding)
    except UnicodeEncodeError as error:
        raise InputError(
            expected=f"predictions in {encoding}, the encoding of '{data}'",
            found=repr(error.object[error.start : error.end]),
            fix="save the table as UTF-8",
        ) from None


def _names(lines: Sequence[str], separator: str) -> list[str]:
    """The names in the first row of a CSV file."""
    return [name.strip() for name in next(csv.reader(lines, delimiter=separator))]


def csv_row(cells: Sequence[str], separator: str = ",") -> str:
    r"""A row of a CSV file. A cell with any line end is quoted; `csv` quotes only the one that it writes itself.

    >>> csv_row(["a\rb", "c\nd", "e"])
    '"a\rb","c\nd",e\n'
    """
    stream = io.StringIO(newline="")
    csv.writer(stream, delimiter=separator, lineterminator="\r\n").writerow(cells)
    return stream.getvalue().removesuffix("\r\n") + "\n"


def _cells(prediction: Prediction, *, several: bool) -> Mapping[str, str]:
    """The new cells of a row."""
    values = values_of(prediction, several=several)
    is_cell = isinstance(prediction, ChoicePrediction) and prediction.ranking
    require(
        bool(is_cell)
        or not isinstance(prediction, ChoicePrediction | TagsPrediction | EntitiesPrediction | AnswerPrediction),
        expected="a model that answers with labels, numbers or texts, with --out",
        found="one with other answers",
        fix="print the predictions, without --out; --json has all of them",
    )
    answer = "" if values[PREDICTION] is None else values[PREDICTION]
    text = f"{answer:.6g}" if isinstance(answer, float) else "|".join(answer) if isinstance(answer, list) else answer
    probability = {PROBABILITY: f"{values[PROBABILITY]:.4f}"} if PROBABILITY in values else {}
    return {PREDICTION: text, **probability}
