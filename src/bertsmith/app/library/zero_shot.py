"""Classification of texts without labelled rows, by the names of the labels."""

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from bertsmith.app.library.inputs import text_examples, warn_cut
from bertsmith.app.library.prediction_tables import predict_file, write_predictions
from bertsmith.app.library.table_answers import predicted_table
from bertsmith.base.core.errors import InputError, nearest_path
from bertsmith.base.core.parameters import ComputeSettings
from bertsmith.base.core.progress import unseen
from bertsmith.base.core.requests import path_or_none, takes
from bertsmith.base.core.settings import require_other
from bertsmith.base.core.tables import has_rows
from bertsmith.inference.predictors.named_labels import named_labels
from bertsmith.inference.predictors.request import ClassifyRequest, PredictRequest
from bertsmith.inference.predictors.zero_shot import TEMPLATE, Entailment, LabelVectors, ZeroShotPredictor, load_scorer
from bertsmith.tasks.datasets.examples import Example, TextExample
from bertsmith.tasks.datasets.file_text import quoted, suffix_of
from bertsmith.tasks.datasets.tables import SUFFIXES, read_texts
from bertsmith.tasks.datasets.text_lines import TextLines
from bertsmith.tasks.specs.task import Prediction
from bertsmith.text.documents.encodings import EncodingSettings
from bertsmith.text.documents.sources import STDIN


@takes(ClassifyRequest)
def classify(request: ClassifyRequest) -> Any:
    """The label of each text, with the probabilities of all labels, by models that only know the names of the labels.

    For a table, in a file or in memory, the result is a table as of `Model.predict`; else a list of predictions, as of
    `Model.classify`.

    Raises:
        InputError: a text is empty, or a table lacks a column.
        ConfigError: the labels cannot be told apart by their names, or a setting does not fit.
        CheckpointError: a model is neither a sentence encoder nor one of entailment.
    """
    predictor, texts = requested_zero_shot(request), cast("Any", request.texts)
    if has_rows(texts) or _is_table_file(texts):
        options = {name: getattr(request, name) for name in {"text_column", "encoding"} & request.given}
        return predicted_table(predictor, texts, None, "texts", **options)
    if isinstance(texts, str | Path):
        return [prediction for _, prediction in predictor.stream(_lines(request))]
    predictions = predictor.predict(text_examples(texts), unseen)
    warn_cut(prediction.cut_tokens for prediction in predictions)
    return predictions


def classify_file(request: ClassifyRequest, out: Path | None, *, replace: bool) -> Iterator[tuple[Example, Prediction]]:
    """Each text of a file with its prediction; a table is also written with the new columns to `out`."""
    if out is None and not _is_table_file(request.texts):
        yield from requested_zero_shot(request).stream(_lines(request))
        return
    settings = {name: getattr(request, name) for name in {"text_column", "encoding"} & request.given}
    of_table = PredictRequest(request.model, data=str(request.texts), out=out, replace=replace, **settings)
    answer = predict_file if out is None else write_predictions
    yield from answer(of_table, lambda _: requested_zero_shot(request))


def requested_zero_shot(request: ClassifyRequest) -> ZeroShotPredictor:
    """The predictor of a request, calibrated if it says so."""
    texts = cast("Any", request.texts)
    if isinstance(texts, Mapping):
        raise InputError(
            expected="the texts first, then the labels", found="descriptions by name as the texts", fix="swap them"
        )
    is_file, is_table = isinstance(texts, str | Path), has_rows(texts) or _is_table_file(texts)
    require_other("text_column" not in request.given or is_file or is_table, "--text-column", "a table or a file")
    require_other("bad_bytes" not in request.given or (is_file and not is_table), "--bad-bytes", "a text file or stdin")
    if is_file and str(texts) != STDIN and not os.path.exists(texts):
        swapped = isinstance(request.labels, str | Path) and os.path.exists(request.labels)
        usual = "give the texts first, then the labels" if swapped else "check the path"
        fix = nearest_path(texts) or f"{usual}, or give texts as a list or on stdin"
        raise InputError.missing(texts, "file of texts", fix)
    labels = named_labels(request.labels, multi_label=request.multi_label, encoding=request.encoding)
    examples = None
    if (path := path_or_none(request.calibrate)) is not None:
        target: Any = "labels" if request.multi_label else "label"
        table = read_texts(path, label_column=request.label_column, target=target, encoding=request.encoding)
        examples = cast("Sequence[TextExample]", table.examples)
    options: dict[str, Any] = {"templates": request.template or (TEMPLATE,), "prompt": request.prompt}
    scorers = [
        load_scorer(source, labels, multi_label=request.multi_label, **options, **request.values(ComputeSettings))
        for source in (request.model, *request.also)
    ]
    for option, kind, model in (
        ("template", Entailment, "a model of entailment"),
        ("prompt", LabelVectors, "a sentence encoder"),
    ):
        is_used = any(isinstance(scorer, kind) for scorer in scorers)
        require_other(is_used or not getattr(request, option), f"--{option}", model)
    names = [label.name for label in labels]
    predictor = ZeroShotPredictor(scorers, names, multi_label=request.multi_label, threshold=request.threshold)
    if examples is not None:
        predictor.calibrate(examples, quoted(path or ""))
    return predictor


def _is_table_file(texts: Any) -> bool:
    return isinstance(texts, str | Path) and suffix_of(Path(texts)) in SUFFIXES


def _lines(request: ClassifyRequest) -> Iterator[Example]:
    """The lines of a text file, or of stdin, as examples."""
    source = str(request.texts)
    lines = TextLines(source, request.text_column, request.part(EncodingSettings), option="--text-column")
    name = "stdin" if lines.is_stdin else quoted(source)
    for number, text in enumerate(lines, start=1):
        yield TextExample(id=str(number), first=text, location=f"line {number + lines.blank_records:,} of {name}")
    lines.tell_notes()
