"""Labelled sentences from unlabelled text, whose label is their source, and the classifier that is trained on them.

For the documentation on this machine that is the package; for the user's text, the file or folder. Whole documents are
held out for dev where a source has several, so a classifier has to recognize the subject and cannot rely on sentences
next to those it was trained on. Pre-training may have read the dev sentences, without their labels.
"""

import contextlib
import itertools
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from bertsmith.app.demo.result import ClassifierResult, Interval
from bertsmith.base.core.errors import InputError
from bertsmith.base.core.progress import counted, duration, quiet, tell, warn
from bertsmith.base.core.randomness import generator
from bertsmith.base.storage.files import write_text
from bertsmith.models.checkpoints.load import load_any
from bertsmith.recipes.finetuning.recipes import resolved, settings_from, situation_of
from bertsmith.recipes.finetuning.run import finetune
from bertsmith.tasks.datasets.examples import TextExample
from bertsmith.tasks.specs.settings import TaskSettings
from bertsmith.tasks.specs.task import TaskSpec
from bertsmith.tasks.task_data.split import TaskData
from bertsmith.tasks.task_data.task_files import read_task
from bertsmith.text.documents.readers import ReadingSettings, read_documents
from bertsmith.text.documents.sources import Source, find_sources, shown
from bertsmith.text.tokenizers.tokenizer import Tokenizer

TRAIN_FILE, DEV_FILE = "train.tsv", "dev.tsv"
MOST_LABELS = 6
MOST_TRAIN, MOST_DEV = 400, 120  # sentences of a label
FEWEST_SENTENCES = 24  # of a label; smaller sources are left out
DEV_SHARE = 0.25
FEWEST_WORDS = 4  # of a sentence

_MOST_READ = 20_000  # sentences of a source of the user

Documents = Sequence[Sequence[str]]  # sentences of each document
MAX_LENGTH = 64  # tokens, as in the demo's pre-training
FINETUNING_SHARE = 0.6  # of the time, for the steps; the rest is loading, baselines and scoring
MOST_EPOCHS = 8
LEAST_EPOCHS = 0.5
METRIC = "accuracy"


def documents_by_source(texts: Sequence[Path], reading: ReadingSettings | None = None) -> dict[str, Documents]:
    """The documents of each of several files and folders, or of each entry of a single folder, by name.

    A source that cannot be read is left out; whatever else reads the texts reports it.
    """
    paths = [path for path in texts if str(path) != "-"]
    if len(paths) == 1 and paths[0].is_dir():
        files = [Path(source.name) for source in find_sources(paths) if isinstance(source, Source)]
        paths = list(dict.fromkeys(paths[0] / file.relative_to(paths[0]).parts[0] for file in files))
    documents: dict[str, Documents] = {}
    with quiet():
        for name, path in zip(_names(paths), paths, strict=True):
            with contextlib.suppress(InputError):
                documents[name] = list(_first_documents(path, reading))
    return documents


def write_labelled(documents: Mapping[str, Documents], folder: Path, seed: int) -> str:
    """Writes labelled sentences for training and dev; "" or, if nothing can be written, why.

    Sentences of fewer than FEWEST_WORDS words and sentences that several sources share are left out.
    """
    if len(documents) < 2:
        return "there is a single source of text, so sentences have no label; give --text several files or folders"
    sources_of: dict[str, set[str]] = {}
    for label, parts in documents.items():
        for sentence in itertools.chain.from_iterable(parts):
            sources_of.setdefault(_cell(sentence), set()).add(label)
    usable = {
        label: [
            list(dict.fromkeys(text for text in map(_cell, part) if _is_usable(text) and len(sources_of[text]) == 1))
            for part in parts
        ]
        for label, parts in documents.items()
    }
    sizes = {label: sum(map(len, parts)) for label, parts in usable.items()}
    largest = sorted((label for label in sizes if sizes[label] >= FEWEST_SENTENCES), key=lambda name: -sizes[name])
    if len(largest) < 2:
        return f"fewer than two sources have {FEWEST_SENTENCES} sentences of their own; give more text"
    train, dev = ["text\tlabel"], ["text\tlabel"]
    for label in sorted(largest[:MOST_LABELS]):
        rng = generator(seed, f"demo sentences of {label}")
        for lines, (sentences, most) in zip((train, dev), _split(usable[label], rng), strict=True):
            chosen = np.sort(rng.permutation(len(sentences))[:most])
            lines += [f"{sentences[number]}\t{_cell(label)}" for number in chosen.tolist()]
    write_text(folder / TRAIN_FILE, "\n".join(train) + "\n")
    write_text(folder / DEV_FILE, "\n".join(dev) + "\n")
    return ""


def keep_share(folder: Path, share: float) -> None:
    """Shortens the files of `write_labelled` to a share of the sentences of each label, evenly spread.

    Args:
        share: above 0, below 1; FEWEST_SENTENCES of a label are kept in any case.
    """
    for name in (TRAIN_FILE, DEV_FILE):
        header, *rows = (folder / name).read_text(encoding="utf-8").rstrip("\n").split("\n")
        kept = [header]
        for _, group in itertools.groupby(rows, key=lambda row: row.rsplit("\t", 1)[1]):
            of_label = list(group)
            count = min(len(of_label), max(FEWEST_SENTENCES, round(share * len(of_label))))
            kept += [of_label[number * len(of_label) // count] for number in range(count)]
        write_text(folder / name, "\n".join(kept) + "\n")


def _split(
    documents: Sequence[Sequence[str]], rng: np.random.Generator
) -> tuple[tuple[list[str], int], tuple[list[str], int]]:
    """The sentences for training and for dev, each with the number to draw; dev has whole documents or a whole end."""
    filled = [part for part in documents if part]
    if len(filled) == 1:
        border = round((1 - DEV_SHARE) * len(filled[0]))
        train, dev = list(filled[0][:border]), list(filled[0][border:])
    else:
        train, dev = [], []
        wanted = DEV_SHARE * sum(map(len, filled))
        # Small documents first, in random order among equal ones: one huge document would leave little to train on.
        order = rng.permutation(len(filled)).tolist()
        for number in sorted(order, key=lambda document: len(filled[document]) > wanted):
            (dev if len(dev) < wanted and len(filled[number]) <= wanted else train).extend(filled[number])
        if not dev:  # two documents, say, each larger than the share
            shortest = min(range(len(filled)), key=lambda number: len(filled[number]))
            dev = list(filled[shortest])
            train = [text for number, part in enumerate(filled) if number != shortest for text in part]
    return (train, MOST_TRAIN), (dev, MOST_DEV)


def _first_documents(path: Path, reading: ReadingSettings | None) -> Iterator[Sequence[str]]:
    """The documents of a source, up to about _MOST_READ sentences."""
    count = 0
    for document in read_documents([path], reading):
        yield document.sentences[: _MOST_READ - count]
        count += len(document.sentences)
        if count >= _MOST_READ:
            return


def _names(paths: Sequence[Path]) -> list[str]:
    """Short names of files and folders: without endings, unless two would be equal."""
    for names in ([_stem(path) for path in paths], [path.name for path in paths]):
        if all(names) and _distinct(names):
            return [shown(name) for name in names]
    return [shown(str(path)) for path in paths]


def _stem(path: Path) -> str:
    return path.name if path.is_dir() else path.name.split(".")[0]


def _distinct(names: Iterable[str]) -> bool:
    listed = list(names)
    return len(set(listed)) == len(listed)


def _cell(text: str) -> str:
    """A text that fits into a cell of a TSV file, which has neither tabs nor line breaks."""
    return " ".join(text.split())


def _is_usable(sentence: str) -> bool:
    return len(sentence.split()) >= FEWEST_WORDS


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
    options = {
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
        *settings_from(resolved("auto", situation, options)),
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
            (baseline["name"], baseline["scores"][METRIC], _interval(baseline["intervals"].get(METRIC)))
            for baseline in report.get("baselines", ())
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
