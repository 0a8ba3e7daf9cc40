"""A small classifier on top of the demo's model: which source a sentence comes from."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from bertsmith.checkpoints.load import load_any
from bertsmith.datasets.examples import TextExample
from bertsmith.demo.labelled import DEV_FILE, TRAIN_FILE
from bertsmith.demo.result import ClassifierResult, Interval
from bertsmith.finetuning.recipes import resolved, situation_of
from bertsmith.finetuning.run import finetune
from bertsmith.finetuning.settings import FinetuningSettings, RecipeSettings
from bertsmith.settings import split_settings
from bertsmith.tasks.named_tasks import read_task
from bertsmith.tasks.settings import TaskSettings

MAX_LENGTH = 64  # tokens, as in the demo's pre-training
MOST_EPOCHS = 8
LEAST_EPOCHS = 0.5
METRIC = "accuracy"


def train_classifier(
    base: Path, labelled: Path, out: Path, *, seconds: float, tokens_per_second: float, seed: int
) -> ClassifierResult:
    """The result of fine-tuning a model on labelled sentences for about `seconds`.

    Args:
        base: the folder of the pre-trained model.
        labelled: the folder with TRAIN_FILE and DEV_FILE.
        out: a new run folder.
        tokens_per_second: how fast the model was pre-trained, from which the number of steps follows.
    """
    settings = TaskSettings(max_length=MAX_LENGTH)
    spec, data = read_task("classification", labelled / TRAIN_FILE, labelled / DEV_FILE, settings=settings)
    train = [example for example in data.train if isinstance(example, TextExample)]
    dev = [example for example in data.dev if isinstance(example, TextExample)]
    folder = load_any(base)
    tokenizer = folder.tokenizer
    assert tokenizer is not None, "the demo's model has its vocabulary"
    lengths = tokenizer.encode_batch([example.first for example in train]).lengths + 2
    epochs = seconds * tokens_per_second / float(lengths.clip(max=MAX_LENGTH).sum())
    given = {
        "epochs": round(min(MOST_EPOCHS, max(LEAST_EPOCHS, epochs)), 3),
        "seed": seed,
        "save_minutes": None,
    }
    situation = situation_of(spec.name, spec.kind, len(train), folder)
    parts = split_settings(resolved("auto", situation, given), [FinetuningSettings, RecipeSettings])
    result = finetune(
        folder,
        spec,
        data,
        out,
        FinetuningSettings(**parts[FinetuningSettings]),
        RecipeSettings(**parts[RecipeSettings]),
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


def _interval(ends: Sequence[float] | None) -> Interval | None:
    return None if ends is None else (ends[0], ends[1])
