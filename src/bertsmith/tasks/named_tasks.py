"""The tasks by name, each with its file format, labels, metrics and defaults.

=====================  ==============  ==========================================================================
name                   kind            files
=====================  ==============  ==========================================================================
cola ... wnli          as in GLUE      the official TSV files of the nine GLUE tasks
snli, xnli             classification  the official TSV and JSONL files, and the copies on the hub
squad, squad2          span            the official JSON of SQuAD 1.1 and 2.0
swag, codah, choice    choice          SWAG's CSV, CODAH's TSV
ner, pos               tagging         columns, one word per line, a blank line between sentences; ner also reads
                                       texts with marked spans, as JSON lines or from Label Studio
classification         classification  CSV, TSV, JSONL, Parquet with one or two texts and a label
multi-label            classification  the same; an example may have several labels or none
regression             regression      the same with a number as the label
similarity, pairs,     similarity      vectors: scored pairs, pairs with or without labels, triplets, single texts; see
triplets, texts                        `datasets.text_groups`
spam, spam4,           classification  the same with the preset's labels; examples come with the package
sentiment, claim,
truth
=====================  ==============  ==========================================================================
"""

import dataclasses
from collections import Counter
from collections.abc import Sequence
from importlib import resources
from pathlib import Path
from typing import cast

from bertsmith.datasets.choice import read_choices
from bertsmith.datasets.conll import read_conll
from bertsmith.datasets.examples import FORMS, TEXTS, Example, ExampleFile, TaggedExample, TextExample
from bertsmith.datasets.file_text import warn_of_places
from bertsmith.datasets.glue import GLUE, WNLI_WARNING, read_glue
from bertsmith.datasets.label_map import LabelMap, renamed
from bertsmith.datasets.labels import class_labels, scheme_of_names, tag_labels, warn_of_single, warn_of_unlearned
from bertsmith.datasets.nli import LABELS as NLI_LABELS
from bertsmith.datasets.nli import TITLES as NLI
from bertsmith.datasets.nli import read_nli
from bertsmith.datasets.spans import has_spans, read_spans
from bertsmith.datasets.squad import read_squad
from bertsmith.datasets.tables import read_texts
from bertsmith.datasets.text_groups import form_of_file, read_groups
from bertsmith.errors import InputError, nearest
from bertsmith.files import digest_file
from bertsmith.progress import counted, warn
from bertsmith.randomness import generator
from bertsmith.settings import require
from bertsmith.tasks.data import TaskData, split_dev
from bertsmith.tasks.settings import ColumnSettings, TaskSettings
from bertsmith.tasks.similarity import metrics_of_examples, vector_spec
from bertsmith.tasks.surroundings import with_surroundings
from bertsmith.tasks.task import TaskSpec, title_of

# Labels in the order of the outputs.
PRESETS: dict[str, tuple[str, ...]] = {
    "spam": ("Spam", "Not Spam"),
    "spam4": ("Spam", "Not Spam", "Social", "Promotion"),
    "sentiment": ("negative", "positive"),
    "claim": ("Not Claim", "Claim"),
    "truth": ("False", "True"),
}
FIXED_LABELS = (*GLUE, *NLI, *PRESETS)
GENERAL = ("classification", "multi-label", "regression")
CHOICES = ("swag", "codah", "choice")
TAGS = ("ner", "pos")
QUESTIONS = ("squad", "squad2")
_MOST_REASONS = 3  # reasons for skipping rows that are counted by themselves
TASK_NAMES = (*GLUE, *NLI, *QUESTIONS, *CHOICES, *TAGS, *GENERAL, *FORMS, *PRESETS)


def task_name(name: str) -> str:
    """The name as spelled in the table of tasks; case, dashes and underscores do not matter.

    >>> task_name("SST2"), task_name("STS_B")
    ('sst-2', 'sts-b')

    Raises:
        ConfigError: there is no such task.
    """
    plain = {known.replace("-", ""): known for known in TASK_NAMES}
    found = plain.get(name.lower().replace("-", "").replace("_", ""))
    require(found is not None, expected="a known task", found=repr(name), fix=nearest(name.lower(), TASK_NAMES))
    return cast("str", found)


def kind_of(name: str) -> str:
    """The kind of a named task.

    >>> kind_of("sts-b"), kind_of("pos"), kind_of("spam")
    ('regression', 'tagging', 'classification')
    """
    for names, kind in ((QUESTIONS, "span"), (CHOICES, "choice"), (TAGS, "tagging"), (FORMS, "similarity")):
        if name in names:
            return kind
    is_number = not GLUE[name].labels if name in GLUE else name == "regression"
    return "regression" if is_number else "classification"


def bundled_examples(name: str) -> Path | None:
    """The file of a preset's examples that comes with the package; None for other tasks."""
    path = Path(str(resources.files("bertsmith.datasets") / "presets" / f"{name}.tsv"))
    return path if name in PRESETS and path.is_file() else None


def read_examples(
    name: str,
    path: Path,
    columns: ColumnSettings | None = None,
    *,
    gold: bool = True,
    training: bool = False,
    scheme: str = "",
    map_labels: LabelMap | None = None,
) -> ExampleFile:
    """The examples of a task in a file; skipped rows are listed on stderr.

    Args:
        name: the name of a task.
        gold: labels are required; otherwise they are not read.
        training: read as training data (only the first answer to a question is kept).
        scheme: of the tags that marked spans are read as; by default IOB2.
        map_labels: new names of the labels, or of the types of entities; every label of the file must have one.

    Raises:
        InputError: the file is not for this task, or a row is invalid; the message names file and row.
        ConfigError: labels are mapped although the task has none or fixes them, or a language is given to another task.
    """
    columns = columns or ColumnSettings()
    _require_mappable(name, map_labels)
    require(
        columns.language is None or name == "xnli",
        expected="the task xnli with a language",
        found=name,
        fix="omit --language, or use --task xnli",
    )
    if name in GLUE:
        if name == "wnli" and not training:
            warn(WNLI_WARNING)
        found = read_glue(GLUE[name], path, labelled=gold)
    elif name in NLI:
        found = read_nli(name, path, language=columns.language)
    elif name in QUESTIONS:
        found = read_squad(path, gold=gold, training=training)
    elif name in CHOICES:
        found = read_choices(path, labelled=gold)
    elif name == "ner" and has_spans(path):
        require(
            (columns.word_column, columns.tag_column) == (0, -1),
            expected=f"columns of words and tags in '{path}'",
            found="JSON, which has none",
            fix="omit --word-column and --tag-column",
        )
        found = read_spans(path, text_column=columns.text_column, scheme=scheme or "IOB2")
    elif name in FORMS:
        found = read_groups(
            name,
            path,
            text_column=columns.text_column,
            pair_column=columns.pair_column,
            label_column=columns.label_column,
            gold=gold,
        )
    elif name in TAGS:
        found = read_conll(path, word_column=columns.word_column, tag_column=columns.tag_column)
    else:
        target = {"multi-label": "labels", "regression": "number"}.get(name, "label") if gold else None
        found = read_texts(
            path,
            text_column=columns.text_column,
            pair_column=columns.pair_column,
            label_column=columns.label_column,
            target=target,  # type: ignore[arg-type]
        )
    warn_of_places(_skipped(path, found.skipped), found.skipped)
    if not found.examples:
        raise InputError(expected=f"examples of {name} in '{path}'", found="none", fix="name another file")
    if not map_labels:
        return found
    new = renamed(found.examples, map_labels, types=name == "ner", complete=training)
    return dataclasses.replace(found, examples=tuple(new))


def _require_mappable(name: str, map_labels: LabelMap | None) -> None:
    """Checks that the labels of a task can be mapped, if a map is given."""
    has_labels = kind_of(name) in ("classification", "tagging") or name == "pairs"
    require(
        not map_labels or (has_labels and name not in GLUE and name not in NLI),
        expected="a task whose labels can be mapped",
        found=f"{name}, whose labels are those of its official files" if has_labels else f"{name}, which has no labels",
        fix="use --task classification" if has_labels else "omit --map",
    )


def _skipped(path: Path, skipped: Sequence[tuple[str, str]]) -> str:
    """How many rows of a file were skipped, and how many for which reason if there are several reasons."""
    rows = f"{path}: {counted(len(skipped), 'row')} skipped"
    reasons = Counter(reason for _, reason in skipped).most_common()
    if len(reasons) < 2:
        return rows
    return f"{rows}: " + "; ".join(f"{count:,} with {reason}" for reason, count in reasons[:_MOST_REASONS])


def spec_for(name: str, examples: Sequence[Example], settings: TaskSettings | None = None) -> TaskSpec:
    """The spec of a task, with the labels of the training examples if the task does not fix them.

    Raises:
        InputError: there is only one label, or too many to be classes.
    """
    settings = settings or default_settings(name)
    if name in GLUE:
        glue = GLUE[name]
        return TaskSpec(
            kind=kind_of(name),
            name=name,
            labels=glue.labels,
            pair=glue.pair,
            metric=glue.metric,
            metrics=glue.metrics,
            settings=settings,
        )
    if name in NLI:
        return TaskSpec(kind="classification", name=name, labels=NLI_LABELS, pair=True, settings=settings)
    if name in QUESTIONS:
        return TaskSpec(
            kind="span",
            name=name,
            unanswerable=name == "squad2",
            metric="f1",
            metrics=("exact", "f1"),
            settings=settings,
        )
    if name in CHOICES:
        return TaskSpec(kind="choice", name=name, settings=settings)
    if name in TAGS:
        return _tagging_spec(name, cast("Sequence[TaggedExample]", examples), settings)
    if name in FORMS:
        return vector_spec(name, examples, settings)
    texts = cast("Sequence[TextExample]", examples)
    pair = bool(texts) and texts[0].second is not None
    if name == "regression":
        metrics = ("pearson", "spearman", "mse")
        return TaskSpec(kind="regression", name=name, pair=pair, metric="pearson", metrics=metrics, settings=settings)
    labels = PRESETS.get(name) or class_labels(texts)
    several = name == "multi-label"
    return TaskSpec(
        kind="classification",
        name=name,
        labels=labels,
        pair=pair,
        multi_label=several,
        metric="micro_f1" if several else "accuracy",
        metrics=("micro_f1", "macro_f1", "subset_accuracy") if several else ("accuracy", "macro_f1"),
        settings=settings,
    )


def official_spec(name: str, spec: TaskSpec) -> TaskSpec:
    """The official spec of a task of GLUE, NLI or SQuAD for another tool's model with as many outputs; else `spec`.

    The maximum length remains that of the model. Outputs named like the labels keep their order; otherwise they are
    assigned in the order of the task, with a warning on stderr.
    """
    if name in QUESTIONS:
        return spec_for(name, (), spec.settings)
    if name not in GLUE and name not in NLI:
        return spec
    official = spec_for(name, (), spec.settings)
    if len(official.labels) != len(spec.labels):
        return spec
    own = tuple(label.lower() for label in spec.labels)
    if sorted(own) == sorted(official.labels):
        return dataclasses.replace(official, labels=own)
    warn(f"the outputs {', '.join(spec.labels)} are taken as the labels {', '.join(official.labels)} of {name}")
    return official


def default_settings(name: str) -> TaskSettings:
    """The lengths used in the paper: 384 tokens with a stride of 128 for questions, 128 tokens otherwise."""
    return TaskSettings(max_length=384 if name in QUESTIONS else 128)


def read_task(
    name: str,
    train: Path | None,
    dev: Path | None,
    *,
    columns: ColumnSettings | None = None,
    settings: TaskSettings | None = None,
    limit: int | None = None,
    map_labels: LabelMap | None = None,
) -> tuple[TaskSpec, TaskData]:
    """The spec and data of a task, read from its files.

    Args:
        train: the training file; if not given, the preset's own examples.
        dev: the dev file; without one, a tenth of the training examples is held out.
        limit: train on this many randomly chosen examples only; the choice is the same every time, in file order.
        map_labels: see `read_examples`.

    Raises:
        InputError: a file is not for this task, or has labels that the training file lacks.
        ConfigError: there is no training file.
    """
    name = task_name(name)
    train = train or bundled_examples(name)
    require(train is not None, expected="a training file", found="none", fix="name it with --train")
    assert train is not None
    everything = read_examples(name, train, columns, training=True, map_labels=map_labels).examples
    digests = {"train": digest_file(train)}
    # Labels come from the whole file: one that the sample happens to miss is still a label of the task.
    spec = spec_for(name, everything, settings)
    if spec.settings.document_context and spec.kind == "tagging":
        everything = tuple(with_surroundings(cast("Sequence[TaggedExample]", everything)))
    examples = _drawn(everything, limit)
    if dev is None and name == TEXTS:
        data = TaskData(train=examples, dev=(), digests=digests)  # single texts have no gold
    elif dev is None:
        kept, held = split_dev(examples, seed=0)
        data = TaskData(train=kept, dev=held, digests=digests, held_out=True)
    else:
        digests["dev"] = digest_file(dev)
        if digests["dev"] == digests["train"]:
            warn("the dev examples are the training examples; their scores say nothing about other texts")
        form = form_of_file(dev) if name in FORMS else name
        others = read_examples(
            form, dev, columns, scheme=spec.scheme, map_labels=map_labels if form == name else None
        ).examples
        data = TaskData(train=examples, dev=others, digests=digests)
    if spec.kind == "similarity" and data.dev:
        metrics = metrics_of_examples(data.dev)
        require(
            bool(metrics),
            expected="dev examples of two texts or more",
            found=f"single texts in '{dev}'",
            fix="give scored pairs, pairs or triplets",
        )
        spec = dataclasses.replace(spec, metric=metrics[0], metrics=metrics)
    if spec.kind == "classification":
        texts = cast("Sequence[TextExample]", examples)
        warn_of_single(texts, held_out=data.held_out, can_map=name not in GLUE and name not in NLI)
    if spec.kind in ("classification", "tagging"):
        warn_of_unlearned(spec.labels, data.train, data.dev)
    return spec, data


def _drawn(examples: Sequence[Example], limit: int | None) -> Sequence[Example]:
    """At most `limit` examples, drawn without replacement, in their original order."""
    if limit is None or limit >= len(examples):
        return examples
    chosen = generator(0, "limited examples").choice(len(examples), limit, replace=False)
    return [examples[number] for number in sorted(chosen.tolist())]


def _tagging_spec(name: str, sentences: Sequence[TaggedExample], settings: TaskSettings) -> TaskSpec:
    labels = tag_labels(sentences)
    scheme = "" if name == "pos" else scheme_of_names(sentences)
    metrics = ("precision", "recall", "f1", "accuracy") if scheme else ("accuracy",)
    return TaskSpec(
        kind="tagging",
        name=name,
        labels=labels,
        scheme=scheme,
        metric="f1" if scheme else "accuracy",
        metrics=metrics,
        settings=settings,
    )


def form_of(spec: TaskSpec) -> str:
    """The named task whose file format a model reads: its own, or the generic one of its kind."""
    if spec.name in TASK_NAMES:
        return spec.name
    if spec.multi_label:
        return "multi-label"
    return {"span": "squad2" if spec.unanswerable else "squad", "tagging": "ner"}.get(spec.kind, spec.kind)


def require_kind(name: str, spec: TaskSpec) -> None:
    """Checks that a model can be scored on a task's files.

    Raises:
        ConfigError: the model is for another kind of task.
    """
    kind = kind_of(name)
    require(
        kind == spec.kind,
        expected=f"a file for the model's task, {spec.title}",
        found=f"the format of {title_of(name, kind)}",
        fix="name a model for that task, or another --task",
    )
