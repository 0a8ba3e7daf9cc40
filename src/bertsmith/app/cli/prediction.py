"""Commands for fine-tuned models: evaluation, int8, prediction, the table of GLUE."""

import contextlib
import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bertsmith.app.cli.options import (
    AlsoOption,
    DeviceOption,
    EngineOption,
    FormatOption,
    HeadOption,
    JsonOption,
    MapOption,
    PrecisionOption,
    ProductsOption,
    TunedOption,
    given,
    label_map,
    note,
    note_cut,
    own_head,
    print_json,
    say,
)
from bertsmith.app.cli.text import count_lines, encoding_settings, stdin_bytes, stdin_lines
from bertsmith.base.core.requests import AS_IT_IS, COPIED
from bertsmith.base.core.settings import require, require_other
from bertsmith.base.storage.addresses import address_of
from bertsmith.base.storage.uploads import is_staged, staged

if TYPE_CHECKING:
    from bertsmith.app.library.labelled import Evaluation, Int8Report
    from bertsmith.tasks.datasets.examples import Example
    from bertsmith.tasks.specs.task import Prediction


def evaluate_settings() -> Sequence[type]:
    """The settings classes whose fields are options of `evaluate`."""
    from bertsmith.tasks.specs.settings import ColumnSettings

    return (ColumnSettings,)


def evaluate(
    model: TunedOption,
    data: Annotated[
        Path, typer.Option(metavar="FILE", help="labelled examples, in a format of the model's task"), COPIED
    ],
    task: FormatOption = None,
    json: JsonOption = False,
    device: DeviceOption = "auto",
    precision: PrecisionOption = "fp32",
    products: ProductsOption = "auto",
    head: HeadOption = None,
    map_labels: MapOption = None,
    also: AlsoOption = None,
    **values: Any,
) -> None:
    """Print the official scores of a fine-tuned model on a labelled file.

    The 95% confidence interval of a proportion, such as accuracy, is exact (Clopper-Pearson). Those of other scores
    come from resampling the examples with replacement (2,000 draws), and are left out if all draws give the same score.
    A model from another tool does not record what it was trained on: name its task with --task to get the official
    scores.
    """
    from bertsmith.app.library.labelled import evaluate as evaluate_on

    found = evaluate_on(
        model,
        data,
        task=task,
        map_labels=label_map(map_labels),
        device=device,
        precision=precision,
        products=products,
        head=own_head(head),
        also=also or (),
        **given(values),
    )
    note_cut(found.cut_texts, found.cut_tokens)
    _print(found, json)


def quantize_settings() -> Sequence[type]:
    """The settings classes whose fields are options of `quantize`."""
    return evaluate_settings()


def quantize(
    model: TunedOption,
    data: Annotated[
        Path,
        typer.Option(
            metavar="FILE", help="examples that the model was not trained on: with labels, or for vectors also texts"
        ),
        COPIED,
    ],
    task: FormatOption = None,
    limit: Annotated[float, typer.Option(min=0, max=1, help="fraction of the fp32 score that int8 may lose")] = 0.004,
    json: JsonOption = False,
    head: HeadOption = None,
    map_labels: MapOption = None,
    **values: Any,
) -> None:
    """Measure what int8 costs a model, and record which layers to keep in higher precision.

    A fine-tuned model is measured by its official score. A model without a task head, such as a sentence encoder, is
    measured by the mean cosine of its vectors to those in fp32, or on labelled pairs by their score (--task similarity,
    sts-b, pairs or triplets). The weights do not change; the record is in the model's metadata, and other commands
    follow it with `--precision int8`. With at least 32 examples, it also fixes scales by calibration.
    """
    from bertsmith.app.library.labelled import quantize as measure

    names = label_map(map_labels)
    _print(measure(model, data, task=task, map_labels=names, limit=limit, head=own_head(head), **given(values)), json)


def predict_settings() -> Sequence[type]:
    """The settings classes whose fields are options of `predict`."""
    return (*evaluate_settings(), *encoding_settings())


def predict(
    model: TunedOption,
    engine: EngineOption = "local",
    data: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="instead of stdin: a table (.csv, .tsv, .jsonl, .parquet), or another file of the model's task; "
            "labels are not needed",
        ),
        COPIED,
    ] = None,
    test: Annotated[
        Path | None, typer.Option(metavar="FILE", help="instead of stdin: a GLUE test file, without labels"), COPIED
    ] = None,
    task: Annotated[
        str | None, typer.Option("--task", metavar="NAME", help="with --test: mnli-mm or ax for an MNLI model")
    ] = None,
    submission: Annotated[
        Path | None, typer.Option(metavar="DIR", help="with --test: write the file for GLUE's evaluation server there")
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="write to this file instead of printing: the objects of --json (.jsonl), or with --data the table "
            "with columns prediction and probability (.csv)",
        ),
        AS_IT_IS,
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="with a .jsonl file: resume an unfinished one; give the same lines again")
    ] = False,
    replace: Annotated[bool, typer.Option("--replace", help="overwrite the file of --out or --submission")] = False,
    json: JsonOption = False,
    device: DeviceOption = "auto",
    precision: PrecisionOption = "fp32",
    products: ProductsOption = "auto",
    head: HeadOption = None,
    also: AlsoOption = None,
    **values: Any,
) -> None:
    """Print the model's prediction, with probabilities, for each line of stdin, or each row of a table.

    A line is a text; tab-separated texts (a pair; question and context; context and endings); or a JSON object:
    {"text": ...}, {"text": ..., "pair": ...}, {"words": [...]}, {"question": ..., "context": ...},
    {"context": ..., "endings": [...]}. Every line gets one prediction, in order; an empty line is an empty text, or a
    sentence without words to tag. A pair, a question or a choice needs all its parts. With --out, the
    predictions for lines are kept in FILE.partial: --resume continues after Ctrl-C, a crash or a full disk. FILE may be
    an address such as s3://bucket/x.jsonl.
    """
    from bertsmith.app.library import lines, prediction_tables
    from bertsmith.tasks.datasets.examples import empty_texts_note, is_blank

    own = own_head(head)
    for name in given(values):
        option = f"--{name.replace('_', '-')}"
        if name == "bad_bytes" or (name == "encoding" and data is None):
            source = "--data" if data is not None else "--test"
            readable = "texts on stdin or --data" if name == "encoding" else "texts on stdin"
            require(
                data is None and test is None,
                expected=f"{readable} with {option}",
                found=source,
                fix="leave one of the two out",
            )
        else:
            require_other(data is not None, option, "--data")
    require(
        data is None or (test is None and engine == "local"),
        expected="a single source of texts with --data",
        found="--test" if test is not None else f"--engine {engine}, which predicts texts on stdin",
        fix="leave one of the two out",
    )
    require(
        test is None or not also,
        expected="texts on stdin for several models",
        found="--also with --test",
        fix="leave one of the two out",
    )
    require(
        test is None or engine == "local",
        expected="texts on stdin for a cluster",
        found=f"--engine {engine} with --test",
        fix="leave one of the two out",
    )
    require(
        out is None or test is None, expected="texts on stdin for --out", found="--test", fix="leave one of the two out"
    )
    require_other(not resume or (out is not None and data is None), "--resume", "--out, and texts on stdin")
    if test is None:
        for option, value in (("--submission", submission), ("--task", task)):
            require_other(value is None, option, "--test")
    is_complete = resume and out is not None and is_staged(out)
    held = contextlib.ExitStack()
    place = None if out is None else held.enter_context(staged(out, replace=replace))
    answered: Iterator[tuple[Example, Prediction]]
    if is_complete:
        note(f"the predictions in '{place}' are complete; those for the same lines are uploaded")
    if data is not None:
        options = {
            "device": device,
            "precision": precision,
            "products": products,
            "head": own,
            "also": also or (),
            **given(values),
        }
        if place is None:
            answered = prediction_tables.predict_file(model, data, **options)
        else:
            answered = prediction_tables.write_predictions(model, data, place, replace=replace, **options)
    elif test is None:
        total, typed = count_lines(stdin_bytes()), itertools.chain.from_iterable(stdin_lines(values))
        answered = lines.predict_lines(
            model,
            typed,
            total=total,
            device=device,
            precision=precision,
            products=products,
            head=own,
            also=also or (),
            engine=engine,
            out=place,
            resume=resume,
            replace=replace,
            uploaded=out is not None and address_of(out) is not None,
        )
    elif submission is not None:
        written = lines.write_submission(
            model,
            test,
            submission,
            task=task,
            device=device,
            precision=precision,
            products=products,
            head=own,
            replace=replace,
        )
        say(str(written))
        return
    else:
        answered = lines.predict_test(
            model, test, task=task, device=device, precision=precision, products=products, head=own
        )
    cut_texts = cut_tokens = empty = 0
    with held:
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
        note(empty_texts_note(empty))


def _print(found: "Evaluation | Int8Report", json: bool) -> None:
    """Writes a result to stdout, as one line of JSON or as text."""
    if json:
        print_json(found.to_dict())
        return
    for line in found.lines():
        say(line)


def glue(
    runs: Annotated[
        list[Path],
        typer.Argument(metavar="RUN...", help="fine-tuning runs on GLUE tasks, or outputs of `evaluate --json`"),
    ],
) -> None:
    """Print the scores of GLUE runs next to the published ones, with averages including and excluding WNLI."""
    from bertsmith.recipes.results.glue_table import glue_lines, read_scores

    for line in glue_lines(read_scores(runs)):
        say(line)
