"""Answers of a model to the rows of a table, as a table of the same library."""

import dataclasses
from collections.abc import Sequence
from typing import Any, cast

from bertsmith.app.library.abilities import OF_TASKS
from bertsmith.app.library.inputs import warn_cut
from bertsmith.base.core.errors import InputError
from bertsmith.base.core.progress import said_once, unseen
from bertsmith.base.core.requests import as_list, parameters_named
from bertsmith.base.core.settings import require_known
from bertsmith.base.core.tables import File, as_file, has_rows, is_table, like, local_path
from bertsmith.inference.predictors.predictor import Predictor
from bertsmith.inference.predictors.request import SelectionSettings
from bertsmith.inference.predictors.selective import selective
from bertsmith.tasks.datasets.cells import PREDICTION
from bertsmith.tasks.datasets.examples import TEXTS, TextExample
from bertsmith.tasks.datasets.file_text import quoted
from bertsmith.tasks.datasets.glue import GLUE
from bertsmith.tasks.datasets.glue import NLI_TITLES as NLI
from bertsmith.tasks.datasets.tables import columns_of, read_table, text_columns
from bertsmith.tasks.specs.named_tasks import form_of
from bertsmith.tasks.specs.predictions import (
    AnswerPrediction,
    ChoicePrediction,
    EntitiesPrediction,
    ExtractPrediction,
    LabelPrediction,
    MentionPrediction,
    NumberPrediction,
    TagsPrediction,
    TextPrediction,
)
from bertsmith.tasks.specs.settings import ColumnSettings
from bertsmith.tasks.specs.task import EXTRACTION, GENERATION, SPANS, Prediction
from bertsmith.tasks.task_data.row_columns import locations_of
from bertsmith.tasks.task_data.task_files import columns_for, read_examples

PROBABILITY = "probability"


def predicted_table(
    predictor: Predictor,
    data: File,
    selection: SelectionSettings | None = None,
    parameter: str = "data",
    /,
    **options: Any,
) -> Any:
    """The columns prediction and probability for the rows of a table; see `Model.predict`.

    Args:
        selection: which rows are answered, and whether with sets.
        parameter: that of the table, for messages.
    """
    fields = dataclasses.fields(ColumnSettings)
    for option in options:
        require_known("option of predict:", option, [field.name for field in fields])
    columns, spec = ColumnSettings(**options), predictor.task.spec
    if selection is not None:
        if selection.calibrate is not None:
            labelled = as_file(selection.calibrate, "calibrate") if is_table(selection.calibrate) else None
            path = local_path(selection.calibrate) if labelled is None else labelled.path
            selection = dataclasses.replace(selection, calibrate=path)
        with parameters_named(fields):
            predictor = selective(predictor, selection, columns)
    if _is_empty(data, OF_TASKS[spec.kind]):
        return like(data if has_rows(data) else [], {name: [] for name in names_of(predictor)})
    table = as_file(data, parameter) if is_table(data) else None
    path = local_path(data) if table is None else table.path
    name = form_of(spec)
    name = spec.kind if name in GLUE or name in NLI else name  # those of official files have no names of columns
    with parameters_named(fields), said_once():  # the file is read twice
        rows = [row.location for row in read_table(path, encoding=columns.encoding)]
        columns = columns_for(spec.columns, path, columns, gold=False)
        examples = read_examples(name, path, columns, gold=False, scheme=spec.scheme).examples
    predictions = predictor.predict(examples, unseen)
    warn_cut(prediction.cut_tokens for prediction in predictions)
    values = [values_of(prediction, several=predictor.gives_several) for prediction in predictions]
    answers = dict(zip(locations_of(examples, path, rows), values, strict=True))
    return like(
        [] if table is None else data,
        {name: [answers.get(row, {}).get(name) for row in rows] for name in names_of(predictor)},
    )


def _is_empty(data: Any, method: str) -> bool:
    """Whether a value is a table in memory without rows; refuses a list of what another method of the model takes."""
    items = data if has_rows(data) else as_list(data)
    is_list = isinstance(items, list | tuple)
    if is_list and items and isinstance(items[0], str | list | tuple):
        raise InputError(
            expected="a table, such as a list of dicts, or a path, for predict",
            found=f"a list of {'texts' if isinstance(items[0], str) else 'lists'}",
            fix=f"call {method}(...) with it",
        )
    return not items if is_list else _is_empty_frame(items)


def _is_empty_frame(values: Any) -> bool:
    """Whether a value is a frame, or another table of a library, without rows."""
    return has_rows(values) and hasattr(values, "__len__") and len(values) == 0


def texts_of(values: Any) -> Any:
    """The texts of the rows of a table in memory; anything else as it is."""
    if not has_rows(values):
        return values
    if _is_empty_frame(values):
        return []
    table = as_file(values, "texts")
    columns = columns_of(table.path)
    try:
        is_pair = len(text_columns(table.path, columns)) > 1
    except InputError as error:
        fix = f"name one, as in embed(frame[{repr(columns[0]) if len(columns) == 1 else 'column'}])"
        raise InputError(expected=error.expected, found=error.found, fix=fix) from None
    if is_pair:
        raise InputError.at(quoted(table.path), "one column of texts", "two", "name one, as in embed(frame['text'])")
    read = read_examples(TEXTS, table.path, gold=False)
    for location, reason in read.skipped[:1]:
        raise InputError(expected=f"a text in {location}", found=reason, fix="fill it in, or leave the row out")
    return [example.first for example in cast("Sequence[TextExample]", read.examples)]


def names_of(predictor: Predictor) -> Sequence[str]:
    """The names of the values of its predictions; see `values_of`."""
    without = predictor.gives_several or predictor.task.spec.kind in (
        "regression",
        "reranking",
        "tagging",
        *SPANS,
        GENERATION,
        EXTRACTION,
    )
    return (PREDICTION,) if without else (PREDICTION, PROBABILITY)


def values_of(prediction: Prediction, *, several: bool) -> dict[str, Any]:
    """The answer of a prediction, None for no answer, and its probability if it has one.

    Args:
        several: of labels, the answer is a list.
    """
    if isinstance(prediction, NumberPrediction):
        return {PREDICTION: float(prediction.value)}
    if isinstance(prediction, TextPrediction | ExtractPrediction):
        return {PREDICTION: prediction.text}
    if isinstance(prediction, TagsPrediction):
        return {PREDICTION: list(prediction.tags)}
    if isinstance(prediction, EntitiesPrediction):
        return {PREDICTION: prediction.to_dict()["entities"]}
    if isinstance(prediction, ChoicePrediction):
        best = prediction.ranking[0][2] if prediction.ranking else prediction.probabilities[prediction.index]
        return {PREDICTION: prediction.text, PROBABILITY: best}
    if isinstance(prediction, MentionPrediction | AnswerPrediction):
        return {PREDICTION: prediction.text, PROBABILITY: prediction.probability}
    assert isinstance(prediction, LabelPrediction), "a prediction of a task"
    if several:
        return {PREDICTION: list(prediction.chosen)}
    return {PREDICTION: prediction.label or None, PROBABILITY: prediction.probability}
