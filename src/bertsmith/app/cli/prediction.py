"""Commands for fine-tuned models: evaluation, int8, prediction, the table of GLUE."""

import contextlib
import itertools
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bertsmith.app.cli.options import JsonOption, ReplaceOutOption, note, note_cut, print_json, say, show
from bertsmith.app.cli.text import count_lines, stdin_bytes, stdin_lines
from bertsmith.base.core.requests import call
from bertsmith.base.storage.addresses import address_of
from bertsmith.base.storage.uploads import is_staged, staged

if TYPE_CHECKING:
    from bertsmith.inference.predictors.request import (
        ClassifyRequest,
        EvaluateRequest,
        PredictRequest,
        QuantizeRequest,
    )
    from bertsmith.recipes.results.published_scores import GlueRequest

TableOption = Annotated[
    Path | None,
    typer.Option("--out", metavar="FILE", help="write the table with columns prediction and probability there: .csv"),
]


def evaluate(request: "EvaluateRequest", json: JsonOption = False) -> None:
    """Print the official scores of a fine-tuned model on a labelled file.

    The 95% confidence interval of a proportion, such as accuracy, is exact (Clopper-Pearson). Those of other scores
    come from resampling the examples with replacement (2,000 draws), and are left out if all draws give the same score.
    A model from another tool does not record what it was trained on: name its task with --task to get the official
    scores. With --task retrieval, searches of an index, or by several models and words, are compared by what they find:
    each kind, each pair of kinds, and all, with --rerank also re-ranked; the last line says which search to take.
    """
    from bertsmith.app.library.labelled import evaluate as evaluate_on

    evaluation = call(evaluate_on, request)
    note_cut(evaluation.cut_texts, evaluation.cut_tokens)
    show(evaluation, json)


def quantize(request: "QuantizeRequest", json: JsonOption = False) -> None:
    """Measure what int8 costs a model, and record which layers to keep in higher precision.

    A fine-tuned model is measured by its official score. A model without a task head, such as a sentence encoder, is
    measured by the mean cosine of its vectors to those in fp32, or on labelled pairs by their score (--task similarity,
    sts-b, pairs or triplets). The weights do not change; the record is in the model's metadata, and other commands
    follow it with `--precision int8`. With at least 32 examples, it also fixes scales by calibration.
    """
    from bertsmith.app.library.labelled import quantize as measure

    show(call(measure, request), json)


def predict(request: "PredictRequest", json: JsonOption = False) -> None:
    """Print the model's prediction, with probabilities, for each line of stdin, or each row of a table.

    A line is a text; tab-separated texts (a pair; question and context; context and endings, or replies); or a JSON
    object: {"text": ...}, {"text": ..., "pair": ...}, {"words": [...]}, {"question": ..., "context": ...}, {"context":
    ..., "endings": [...]}, {"context": ..., "candidates": [...]}, {"source": ...}, {"text": ..., "pronoun": [20, 23],
    "candidates": [[0, 4], [11, 15]]}. Every line gets one prediction, in order; an empty line is an empty text, or
    a sentence without words to tag. A pair, a question or a choice needs all its parts. With --out, the predictions for
    lines are kept in FILE.partial: --resume continues after Ctrl-C, a crash or a full disk. FILE may be an address such
    as s3://bucket/x.jsonl. With --calibrate, a text can get no answer, or several labels.
    """
    from bertsmith.app.library import lines, prediction_tables
    from bertsmith.models.model_files.metadata import n_gram_folder
    from bertsmith.tasks.datasets.examples import empty_texts_note, is_blank

    if request.submission is not None:
        say(str(lines.write_submission(request)))
        return
    out = None if request.out is None else Path(request.out)
    is_complete = request.resume and out is not None and is_staged(out)
    cut_texts = cut_tokens = empty = 0
    with contextlib.nullcontext() if out is None else staged(out, replace=request.replace) as path:
        if is_complete:
            note(f"the predictions in '{path}' are complete; those for the same lines are uploaded")
        if path is not None:
            request = request.replaced(out=path)
        if request.test is not None:
            answered = lines.predict_test(request)
        elif request.data is None:
            total = count_lines(stdin_bytes())
            typed = itertools.chain.from_iterable(stdin_lines(request))
            uploaded = out is not None and address_of(out) is not None
            answered = lines.predict_lines(request, typed, total=total, uploaded=uploaded)
        elif path is None:
            answered = prediction_tables.predict_file(request)
        else:
            answered = prediction_tables.write_predictions(request)
        for example, prediction in answered:
            cut_texts += prediction.cut_tokens > 0
            cut_tokens += prediction.cut_tokens
            empty += is_blank(example)
            if out is not None:
                continue
            if json:
                print_json({"id": example.id, **prediction.to_dict()})
            else:
                say(prediction.line())
    note_cut(cut_texts, cut_tokens)
    if out is not None:
        say(address_of(out) or str(out))
    if empty:
        note(empty_texts_note(empty, of_words=n_gram_folder(request.model) is not None))


def classify(
    request: "ClassifyRequest",
    out: TableOption = None,
    replace: ReplaceOutOption = False,
    json: JsonOption = False,
) -> None:
    """Print the label of each text, by the names of the labels alone: no labelled rows are needed.

    A sentence encoder compares each text with the names, their descriptions and examples, if there are any. A model of
    entailment reads it with a sentence that has the name in it. Both kinds can be combined with --also. The
    probabilities are rough until --calibrate fits them to labelled texts.
    """
    from bertsmith.app.library.zero_shot import classify_file

    cut_texts = cut_tokens = 0
    for example, prediction in classify_file(request, out, replace=replace):
        cut_texts += prediction.cut_tokens > 0
        cut_tokens += prediction.cut_tokens
        if out is None and json:
            print_json({"id": example.id, **prediction.to_dict()})
        elif out is None:
            say(prediction.line())
    note_cut(cut_texts, cut_tokens)
    if out is not None:
        say(str(out))


def glue(request: "GlueRequest") -> None:
    """Print the scores of GLUE runs next to the published ones, with averages including and excluding WNLI."""
    from bertsmith.recipes.results.published_scores import glue_lines, read_scores

    say(*glue_lines(read_scores(request.runs)))
