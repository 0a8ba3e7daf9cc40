"""The baselines of a run for display: their names, the printed lines, and the rows of the report.

Everything is computed from the content of report.json.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from bertsmith.base.core.progress import counted
from bertsmith.models.model_files.weakness import LEVEL
from bertsmith.models.parts.head_inputs import APART
from bertsmith.recipes.results.comparison import clause_of
from bertsmith.recipes.results.finished_run import AVERAGE, BAG_FOLDER, START, kept_name, kept_scores
from bertsmith.tasks.specs.task import (
    BAG,
    CEILINGS,
    COSINE,
    FROZEN_COSINE,
    OVERLAP,
    PAIRS,
    PLURAL,
    SEEN,
    TAGS,
    VECTORS,
    WORDS_COSINE,
)

MODEL = "fine-tuned model"
LINEAR_FOLDER = "linear"
# Of a run: the folders of the baselines that are always saved, ready to predict.
SAVED = {
    BAG: BAG_FOLDER,
    TAGS: "frequent-tags",
    OVERLAP: "word-overlap",
    SEEN: "seen-entities",
    WORDS_COSINE: "word-cosine",
}
# Of those with the encoder of the base model, which are saved if they are better than the fine-tuned model.
SAVED_IF_BETTER = {
    VECTORS: LINEAR_FOLDER,
    PAIRS: LINEAR_FOLDER,
    COSINE: "text-cosine",
    FROZEN_COSINE: "before-training",
}

# What to do where one of these is better. The names in braces are of `_given`; none repeats what a training was given.
_OFFERS = {
    BAG: "a bag of words is enough for these examples: `--keep bag` keeps one{auto}",
    PAIRS: "vectors of single texts are enough for these pairs: {apart}`bertsmith embed`, and a linear model on top",
    COSINE: "vectors of single texts are enough for these pairs: {apart}{similarity}`bertsmith embed`, and their "
    "cosine",
    WORDS_COSINE: "words are enough for these texts: `bertsmith search --method tf-idf` or bm25, without a model",
    FROZEN_COSINE: "this training made the vectors worse: try {lower}more examples, or `bertsmith embed` with the base "
    "model",
    TAGS: "words without their context say as much: try {longer}more sentences, or a model that was pre-trained longer",
    SEEN: "a list of the entities of the training examples says as much: try {longer}more sentences, or a model that "
    "was pre-trained longer",
    OVERLAP: "shared words say as much: try {longer}a model that was first fine-tuned on a larger set of such examples "
    "(--task {larger}), or one that was pre-trained longer",
}
_MEAN_OF_A_TIE = "; the two differ by no more than noise: predict with their mean"  # see benchmarks/unseen_tasks.py
FEW_DEV = 10  # dev examples below which scores say nothing
_FEWEST_DEV_EXAMPLES = 100  # dev examples; with fewer, nearly everything is a tie
_OTHERWISE = "try {longer}another learning rate{than} or a model that was pre-trained longer"


def lines_of_baselines(report: Mapping[str, Any], run: str = "RUN") -> list[str]:
    """The lines that the command prints: each baseline with its main score, what ties, and whether one is better."""
    metric, lines = report["metric"], []
    for baseline in report.get("baselines", ()):
        if metric not in baseline["scores"]:
            continue
        between = baseline["intervals"].get(metric)
        interval = f" (95% interval {between[0]:.4f} to {between[1]:.4f})" if between else ""
        part = 0 < baseline["train_examples"] < report["train_examples"]  # none, if it does not learn
        share = f", on {baseline['train_examples']:,} of the training examples" if part else ""
        if report.get("cross_validation") and baseline["train_examples"]:
            share = ", fitted to the other folds"
        took = counted(max(1, round(baseline["seconds"])), "second")
        role = "ceiling" if baseline["name"] in CEILINGS else "baseline"
        lines.append(f"{role}, {baseline['name']}: {metric} {baseline['scores'][metric]:.4f}{interval}{share}; {took}")
    return [*lines, *lines_of_others(report), *mean_line(report, run), *_tie(report), *better_line(report, run)]


def lines_of_others(report: Mapping[str, Any]) -> list[str]:
    """The lines on what was compared with the model that is kept: an average with its score, or each with a test."""
    if choice := report.get("choice"):
        return lines_of_choice(choice)
    average, metric = report.get(AVERAGE), report["metric"]
    if average is None or report["best"] == AVERAGE or metric not in average["scores"]:
        return []
    why = f"{report['best']} is better by more than noise"
    why = "it gives one answer to every example" if average["collapsed"] else why
    of = counted(average["parts"], "training")
    return [f"the average of {of} is not kept: {metric} {average['scores'][metric]:.4f}; {why}"]


def lines_of_choice(choice: Sequence[Mapping[str, Any]]) -> list[str]:
    """A line on each model that was compared with the one that is kept, with the paired test."""
    return [
        f"{other['name']} is not kept: {other['metric']} {other['score']:.4f} against {other['of_model']:.4f}"
        f"{clause_of(other, other['metric'])}"
        for other in choice
    ]


def mean_line(report: Mapping[str, Any], run: str = "RUN") -> list[str]:
    """The line on the mean of the fine-tuned model and the bag of words, with its command; empty without one."""
    metric, averaged = report["metric"], report.get("with_bag_of_words", {})
    if metric not in averaged:
        return []
    said = f"the fine-tuned model averaged with the bag of words: {metric} {averaged[metric]:.4f}"
    both = f"--model {run}/model --also {run}/{BAG_FOLDER}"
    better = report.get("better_mean")
    if better:
        said += f", higher than either (the {better['name']}: {better['score']:.4f}){clause_of(better, metric)}"
        return [f"{said}; use the mean: `bertsmith predict {both}`"]
    return [f"{said} (`bertsmith predict {both}`)" + (_MEAN_OF_A_TIE if _ties_with_bag(report) else "")]


def better_line(report: Mapping[str, Any], run: str = "RUN") -> list[str]:
    """The line on the baseline that scores higher than the fine-tuned model; empty if none does."""
    better = report.get("better_baseline")
    return [verdict(better, run, report)] if better else []


def _ties_with_bag(report: Mapping[str, Any]) -> bool:
    """Whether enough dev examples do not tell the bag of words from the best training, whichever of the two is ahead.

    Never if all trainings collapsed: a model that gives one answer adds nothing to a mean.
    """
    if report.get("dev_examples", 0) < _FEWEST_DEV_EXAMPLES or all(
        run.get("collapsed", False) for run in report["runs"]
    ):
        return False
    better = report.get("better_baseline", {})
    return BAG in _tied(report) or (better.get("name") == BAG and better.get("p_value", 1.0) >= LEVEL)


def _tie(report: Mapping[str, Any]) -> list[str]:
    """The line that names trainings and baselines that are no better, but within the interval of the best training."""
    tied = _tied(report)
    if not tied:
        return []
    named = ", ".join(f"{name} ({score:.4f})" for name, score in tied.items())
    # With few dev examples, the line on the scores has said so.
    more = "; more dev examples would tell them apart" if report.get("dev_examples", FEW_DEV) >= FEW_DEV else ""
    return [f"tied with {kept_name(report)}, within its interval: {named}{more}"]


def _tied(report: Mapping[str, Any]) -> Mapping[str, float]:
    """The scores of trainings and baselines that are no better, but within the interval of the best training."""
    metric = report["metric"]
    if metric not in report.get("intervals", {}):
        return {}
    trainings = {run["folder"]: run["scores"].get(metric) for run in report["runs"]}
    systems = {
        system["name"]: system["scores"].get(metric)
        for system in report.get("baselines", ())
        if system["name"] not in CEILINGS and SAVED.get(system["name"]) != report["best"]
    }
    trainings.pop(report["best"], None)
    best, low = kept_scores(report).get(metric), report["intervals"][metric][0]
    return {name: score for name, score in (trainings | systems).items() if score is not None and low <= score <= best}


def verdict(better: Mapping[str, Any], run: str = "RUN", report: Mapping[str, Any] | None = None) -> str:
    """One line: which baseline scores higher than the fine-tuned model, by more than noise or not, and what to do.

    The advice leaves out what the training was given.
    """
    # A single example has no test, and shows no more than a higher score.
    verbs = ("are better", "score higher") if better["name"] in PLURAL else ("is better", "scores higher")
    relation = verbs[better.get("p_value", 1.0) >= LEVEL]
    model = "the bag of words" if (report or {}).get("best") == BAG_FOLDER else f"the {MODEL}"
    said = f"the {better['name']} {relation} than {model}: {better['metric']} {better['score']:.4f} against "
    said += f"{better['of_model']:.4f}{clause_of(better, better['metric'])}"
    if "folder" in better:
        said += f"; it is saved as a model, {run}/{better['folder']}"
    if better["name"] == VECTORS and _was_moved(report or {}):
        said += "; the training started from it and made it worse: try {lower}more epochs".format(
            **_given(report or {})
        )
    if better.get("folder") in (BAG_FOLDER, LINEAR_FOLDER):
        return said
    if (report or {}).get("best") == BAG_FOLDER:
        return f"{said}; use --keep auto, which trains and keeps the best"
    return f"{said}; {_OFFERS.get(better['name'], _OTHERWISE).format(**_given(report or {}))}"


def _was_moved(report: Mapping[str, Any]) -> bool:
    """Whether the model that is kept started from a linear model on its vectors and was trained on."""
    return report.get("settings", {}).get("start") == "linear" and report.get("best") not in (START, BAG_FOLDER)


def _given(report: Mapping[str, Any]) -> dict[str, str]:
    """The parts of `_OFFERS` that depend on the task and on what the training was given."""
    kind, settings = report.get("kind", ""), report.get("settings", {})
    epochs, rate = settings.get("epochs"), settings.get("learning_rate")
    no_apart = settings.get("reads") == APART or settings.get("has_segments") is False
    return {
        "apart": "" if no_apart else f"`bertsmith finetune --reads {APART}`, or ",
        "similarity": "`bertsmith finetune --task similarity`, or " if kind == "regression" else "",
        "longer": "more epochs, " if epochs is None else f"`--epochs {2 * epochs:g}`, ",
        "lower": "a lower learning rate, " if rate is None else f"`--learning-rate {rate / 2:g}`, ",
        "than": "" if rate is None else f" than {rate:g}",
        "auto": "" if report.get("choice") else ", `--keep auto` whichever model is better",
        "larger": "swag" if kind == "choice" else "squad",
    }


def rows_of_baselines(report: Mapping[str, Any], names: Sequence[str]) -> list[list[str]]:
    """The rows of a table of the baselines: name, each score with its interval, training examples, seconds."""
    rows = []
    for baseline in report.get("baselines", ()):
        cells = []
        for name in names:
            between = baseline["intervals"].get(name)
            value = f"{baseline['scores'][name]:.4f}" if name in baseline["scores"] else ""
            cells.append(f"{value} ({between[0]:.4f} to {between[1]:.4f})" if between else value)
        rows.append([baseline["name"], *cells, f"{baseline['train_examples']:,}", f"{baseline['seconds']:.1f}"])
    return rows
