"""Commands for sequences of codes: events of subjects as a vocabulary and visits, models of them, predictions."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bertsmith.app.cli.options import JsonOption, note, print_json, print_table, say
from bertsmith.base.core.progress import counted, shown_p
from bertsmith.base.core.requests import call

if TYPE_CHECKING:
    from bertsmith.recipes.codes.request import (
        AnomaliesRequest,
        BuildCodesRequest,
        EmbedSubjectsRequest,
        PredictCodesRequest,
        TrainCodesRequest,
    )


def build(request: "BuildCodesRequest", json: JsonOption = False) -> None:
    """Build a folder of codes from tables of events: a vocabulary, the visits of each subject, and perhaps a tree.

    Prints the subjects, their visits, and the codes of each kind. Events of a subject at one time form a visit.
    """
    from bertsmith.recipes.codes.folder import build_codes

    summary = call(build_codes, request)
    if json:
        print_json(summary)
    else:
        say(*_lines(summary), f"folder: {request.out}")


def _lines(summary: Mapping[str, Any]) -> Iterator[str]:
    """The summary of a folder of codes, a line per kind of codes."""
    once = summary["subjects_with_one_visit"]
    yield f"{counted(summary['subjects'], 'subject')}, {once:,} with one visit; {counted(summary['visits'], 'visit')}"
    for kind, numbers in summary["kinds"].items():
        line = f"{kind}: {counted(numbers['codes'], 'code')}, {numbers['occurrences']:,} times in visits"
        if numbers["dropped_codes"]:
            line += f"; {numbers['dropped_codes']:,} too rare, {numbers['dropped_occurrences']:,} times"
        if numbers["outside_the_tree"]:
            line += f"; {numbers['outside_the_tree']:,} not in the tree"
        yield line
    if summary["tree_nodes"]:
        nodes = counted(summary["tree_nodes"], "node")
        yield f"tree: {nodes}, the codes of the vocabulary that are in it and their ancestors"


def train(request: "TrainCodesRequest", json: JsonOption = False) -> None:
    """Train a model of visits (G-BERT) that recommends codes of a visit, or predicts those of the next one.

    With --given and --wanted, such as diagnosis and medication, it recommends codes of one kind from those of the other
    and from the past. A part of the subjects is held out: the scores are theirs, next to those of simple baselines.
    Ctrl-C finishes the step, writes a checkpoint and exits with code 130; --resume continues from there.
    """
    from bertsmith.recipes.codes.run import train_codes

    results = call(train_codes, request).results
    if json:
        print_json(results)
        return
    print_table(
        ["system", "Jaccard", "PR-AUC", "F1", "95% of F1"],
        [
            [name, *(f"{of[key]['value']:.3f}" for key in ("jaccard", "pr_auc", "f1")), _interval(of["f1"])]
            for name, of in results["systems"].items()
        ],
    )
    say(f"{counted(results['visits'], 'visit')} of {counted(results['subjects'], 'held-out subject')}")
    if missing := results.get("codes_not_in_training"):
        note(f"{counted(missing, 'code')} in visits of these subjects that no training visit has; not in the scores")
    if "best_baseline" in results:
        test = results["against_best_baseline"]["f1"]
        say(
            f"F1 minus that of the best baseline ({results['best_baseline']}): {test['difference']:+.3f} "
            f"({_interval(test)}), p {shown_p(test['p_value'])}"
        )
    say(f"model: {Path(request.out) / 'model'}")


def _interval(numbers: Mapping[str, float]) -> str:
    return f"{numbers['low']:.3f} to {numbers['high']:.3f}"


def predict(request: "PredictCodesRequest", json: JsonOption = False) -> None:
    """Predict the codes of each subject: of its last visit, or of the next one, as the model was trained.

    Prints a line per code: subject, code, kind, probability and description.
    """
    from bertsmith.app.library.codes import NOTHING_READ, predict_codes, remarks

    predictions = call(predict_codes, request)
    for prediction in predictions:
        if json:
            print_json(prediction.to_dict())
            continue
        for code in prediction.codes:
            say(
                "\t".join(
                    (prediction.subject, code.code, code.kind, f"{code.probability:.4f}", code.description)
                ).rstrip()
            )
    for remark in remarks(predictions):
        note(remark)
    silent = [prediction for prediction in predictions if not prediction.codes]
    if none := sum(prediction.unlike_training != NOTHING_READ for prediction in silent):
        fix = "--top without --threshold" if request.threshold is not None else "--top"
        note(f"no code is likely enough for {counted(none, 'subject')}; {fix} shows the most likely ones")


def anomalies(request: "AnomaliesRequest", json: JsonOption = False) -> None:
    """Print how improbable each visit is, by what the model expects of the subject.

    A line per visit: subject, time, surprise (the mean of -ln p over its codes) and the least likely code. With --json
    the probability of every code.
    """
    from bertsmith.app.library.codes import find_anomalies, remarks

    results = call(find_anomalies, request)
    for result in results:
        if json:
            print_json(result.to_dict())
        else:
            surprise = "-" if result.surprise is None else f"{result.surprise:.4f}"
            say("\t".join((result.subject, result.time, surprise, result.codes[0].code if result.codes else "-")))
    for remark in remarks(results):
        note(remark)


def embed(request: "EmbedSubjectsRequest") -> None:
    """Write a vector per subject to a folder of vectors; `vectors neighbours` then finds similar subjects."""
    from bertsmith.app.library.codes import embed_subjects

    vectors = call(embed_subjects, request)
    say(f"{counted(len(vectors.words), 'vector')} of width {vectors.width:,}: {request.out}")
