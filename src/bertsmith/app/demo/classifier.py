"""A small classifier on top of the demo's model, which predicts the source of a sentence."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from bertsmith.app.demo.labelled import DEV_FILE, TRAIN_FILE, keep_share
from bertsmith.app.demo.result import ClassifierResult, Interval
from bertsmith.base.core.progress import counted, duration, tell, warn
from bertsmith.models.checkpoints.load import load_any
from bertsmith.recipes.finetuning.recipes import resolved, settings_from, situation_of
from bertsmith.recipes.finetuning.run import finetune
from bertsmith.tasks.datasets.examples import TextExample
from bertsmith.tasks.specs.settings import TaskSettings
from bertsmith.tasks.specs.task import TaskSpec
from bertsmith.tasks.task_data.split import TaskData
from bertsmith.tasks.task_data.task_files import read_task
from bertsmith.text.tokenizers.tokenizer import Tokenizer

MAX_LENGTH = 64  # tokens, as in the demo's pre-training
FINETUNING_SHARE = 0.6  # of the time, for the steps; the rest is loading, baselines and scoring
MOST_EPOCHS = 8
LEAST_EPOCHS = 0.5
METRIC = "accuracy"


def train_classifier(
    base: Path, labelled: Path, out: Path, *, seconds: float, tokens_per_second: float, seed: int
) -> ClassifierResult:
    """The result of fine-tuning a model on labelled sentences for about `seconds`.

    If not even LEAST_EPOCHS of the sentences fit into that time, both files of `labelled` are shortened. What takes
    long in spite of that (many labels, a machine that has just become slower, a training that collapses and is
    restarted) is not cut off.

    Args:
        seconds: for loading, the baselines, the training and the scores together.
        tokens_per_second: how fast the model was pre-trained, from which the number of steps follows.
    """
    folder = load_any(base)
    tokenizer = folder.tokenizer
    assert tokenizer is not None, "the demo's model has its vocabulary"
    spec, data, train = _read(labelled)
    tell(f"training a classifier of {counted(len(spec.labels), 'label')}, planned for {duration(seconds)}")
    fitting = FINETUNING_SHARE * seconds * tokens_per_second
    epochs = fitting / _tokens(tokenizer, train)
    if epochs < LEAST_EPOCHS:
        before = len(train)
        keep_share(labelled, epochs / LEAST_EPOCHS)
        spec, data, train = _read(labelled)
        if len(train) < before:
            warn(f"the time left is too short for {before:,} labelled sentences, so {len(train):,} are used")
        epochs = fitting / _tokens(tokenizer, train)
    dev = [example for example in data.dev if isinstance(example, TextExample)]
    given = {
        "epochs": round(min(MOST_EPOCHS, max(LEAST_EPOCHS, epochs)), 3),
        "seed": seed,
        "save_minutes": None,
        "refit": False,  # the time is spent
    }
    situation = situation_of(spec.name, spec.kind, len(train), folder)
    result = finetune(
        folder,
        spec,
        data,
        out,
        *settings_from(resolved("auto", situation, given)),
        seeds=1,
        recipe_name="auto",
        source_name=str(base),
    )
    report = result.report
    most_frequent = Counter(example.label for example in train).most_common(1)[0][0]
    return ClassifierResult(
        model=out / "model",
        labels=spec.labels,
        accuracy=result.runs[result.best].scores[METRIC],
        interval=_interval(report["intervals"].get(METRIC)),
        num_dev=len(dev),
        most_frequent=sum(example.label == most_frequent for example in dev) / len(dev),
        baselines=[
            (one["name"], one["scores"][METRIC], _interval(one["intervals"].get(METRIC)))
            for one in report.get("baselines", ())
        ],
    )


def _read(labelled: Path) -> tuple[TaskSpec, TaskData, list[TextExample]]:
    """The task, its examples, and those for training."""
    settings = TaskSettings(max_length=MAX_LENGTH)
    spec, data = read_task("classification", labelled / TRAIN_FILE, labelled / DEV_FILE, settings=settings)
    return spec, data, [example for example in data.train if isinstance(example, TextExample)]


def _tokens(tokenizer: Tokenizer, train: Sequence[TextExample]) -> float:
    """The tokens of an epoch."""
    lengths = tokenizer.encode_batch([example.first for example in train]).lengths + 2
    return float(lengths.clip(max=MAX_LENGTH).sum())


def _interval(ends: Sequence[float] | None) -> Interval | None:
    return None if ends is None else (ends[0], ends[1])
