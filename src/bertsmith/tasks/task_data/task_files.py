"""The examples of a named task from its files, with dev examples, the labels of the training set, and warnings."""

import dataclasses
import hashlib
import shlex
from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar, cast

from bertsmith.base.core.errors import InputError
from bertsmith.base.core.progress import counted, tell, warn
from bertsmith.base.core.randomness import generator
from bertsmith.base.core.registry import Registry
from bertsmith.base.core.settings import require, require_other
from bertsmith.base.core.tables import table_name
from bertsmith.base.storage.files import digest_file
from bertsmith.models.heads.head_spec import RERANKING
from bertsmith.tasks.datasets.cells import plain_name
from bertsmith.tasks.datasets.drawn_replies import FEWEST, with_drawn
from bertsmith.tasks.datasets.examples import (
    ENTITIES_BY_NAME,
    FORMS,
    MARKED,
    PAIRS,
    TEXTS,
    ChoiceExample,
    EntityExample,
    Example,
    ExampleFile,
    MentionExample,
    TaggedExample,
    TextExample,
)
from bertsmith.tasks.datasets.file_text import quoted, suffix_of, warn_of_places
from bertsmith.tasks.datasets.glue import GLUE, WNLI_WARNING
from bertsmith.tasks.datasets.glue import NLI_TITLES as NLI
from bertsmith.tasks.datasets.label_map import LabelMap, renamed
from bertsmith.tasks.datasets.label_spelling import in_scheme, with_one_spelling
from bertsmith.tasks.datasets.labels import labels_of, warn_of_held_out, warn_of_single, warn_of_unlearned
from bertsmith.tasks.datasets.tables import SUFFIXES, columns_of, read_elsewhere
from bertsmith.tasks.datasets.values import brief
from bertsmith.tasks.specs.named_tasks import (
    CHOICES,
    EXTRACTED,
    PRESETS,
    QUESTIONS,
    RANKED,
    SEVERAL,
    TAGS,
    WRITTEN,
    bundled_examples,
    kind_of,
    spec_for,
    task_name,
)
from bertsmith.tasks.specs.settings import CANDIDATES, ColumnSettings, TaskSettings
from bertsmith.tasks.specs.task import COREFERENCE, ENTITIES, SPANS, TaskSpec
from bertsmith.tasks.specs.vector_gold import metrics_of_examples
from bertsmith.tasks.task_data.row_columns import groups_of, weighted
from bertsmith.tasks.task_data.split import Fold, TaskData, check_folds, fold_numbers, inputs_of, split_dev

_READERS = Registry[Callable[..., ExampleFile]](
    {
        "glue": "tasks.datasets.glue:read_glue",
        "nli": "tasks.datasets.nli:read_nli",
        "questions": "tasks.datasets.squad:read_squad",
        "choices": "tasks.datasets.choice:read_choices",
        "groups": "tasks.datasets.text_groups:read_groups",
        "lists": "tasks.datasets.scored_lists:read_lists",
        "documents": "tasks.datasets.documents:read_documents",
        "mentions": "tasks.datasets.mentions:read_mentions",
        "replies": "tasks.datasets.replies:read_replies",
        "sequences": "tasks.datasets.sequences:read_sequences",
        "patents": "tasks.datasets.patents:read_patents",
        "relations": "tasks.datasets.relations:read_relations",
        "tags": "tasks.datasets.tagged_files:read_tagged",
        "texts": "tasks.datasets.tables:read_texts",
    }
)
Drawn = TypeVar("Drawn")
TEXT_OPTIONS, LABEL_OPTION = ("text_column", "pair_column"), "label_column"
_MOST_REASONS = 3  # reasons for skipping rows that are counted by themselves


def read_examples(
    name: str,
    path: Path,
    columns: ColumnSettings | None = None,
    *,
    gold: bool = True,
    training: bool = False,
    scheme: str = "",
    map_labels: LabelMap | None = None,
    known: Sequence[str] = (),
    ones: int | None = None,
) -> ExampleFile:
    """The examples of a task in a file; skipped rows are listed on stderr.

    Args:
        scheme: of the tags that marked spans are read as; by default IOB2.
        map_labels: new names of the labels, or of the types of entities; every label of the file must have one.
        known: the labels of the task or model, whose spelling the labels of the file get.
    """
    columns = columns or ColumnSettings()
    encoding = columns.encoding
    if map_labels:
        _require_mappable(name)
    require_other(
        columns.language is None or name == "xnli", "--language", "--task xnli", "use it, or leave --language out"
    )
    require_other(columns.candidates == CANDIDATES or name in RANKED, "--candidates", f"--task {RANKED[0]}")
    require_other(
        columns.hierarchy is None or name in SEVERAL,
        "--hierarchy",
        "a task of several labels, multi-label or patents",
        "leave --hierarchy out",
    )
    named = {"text_column": columns.text_column, "label_column": columns.label_column, "encoding": encoding}
    if name in GLUE:
        if name == "wnli" and not training:
            warn(WNLI_WARNING)
        example_file = _READERS["glue"](GLUE[name], path, labelled=gold, encoding=encoding)
    elif name in NLI:
        example_file = _READERS["nli"](name, path, language=columns.language, encoding=encoding)
    elif name in QUESTIONS:
        unanswerable = name == "squad2"
        example_file = _READERS["questions"](
            path, gold=gold, training=training, unanswerable=unanswerable, encoding=encoding
        )
    elif name in CHOICES:
        example_file = _READERS["choices"](path, labelled=gold, encoding=encoding)
    elif name in RANKED:
        options = {"training": training, "candidates": columns.candidates}
        example_file = _READERS["replies"](path, gold=gold, **options, **named)
    elif name == RERANKING:
        example_file = _READERS["lists"](path, pair_column=columns.pair_column, gold=gold, **named)
    elif name in FORMS:
        example_file = _READERS["groups"](name, path, pair_column=columns.pair_column, gold=gold, **named)
    elif name in WRITTEN:
        example_file = _READERS["sequences"](path, gold=gold, **named)
    elif name in EXTRACTED:
        example_file = _READERS["documents"](path, gold=gold, training=training, **named)
    elif name == COREFERENCE:
        example_file = _READERS["mentions"](path, gold=gold, encoding=encoding)
    elif name == "patents":
        example_file = _READERS["patents"](path, gold=gold, encoding=encoding)
    elif name == "relations":
        example_file = _READERS["relations"](path, gold=gold, **named)
    elif name in (*TAGS, *MARKED):
        words = {"word_column": columns.word_column, "tag_column": columns.tag_column}
        example_file = _READERS["tags"](name, path, scheme=scheme, gold=gold, **words, **named)
    else:
        target = {"multi-label": "labels", "regression": "number"}.get(name, "label") if gold else None
        rows = {"pair_column": columns.pair_column, "skip_unlabelled": columns.skip_unlabelled}
        example_file = _READERS["texts"](path, target=target, ones=ones, **rows, **named)
    if example_file.skipped:
        warn_of_places(_skipped(path, example_file.skipped), example_file.skipped)
    if not example_file.examples:
        raise InputError(expected=f"examples of {name} in {quoted(path)}", found="none", fix="name another file")
    examples: Sequence[Example] = example_file.examples
    if name == "ner":
        examples = in_scheme(examples, scheme, known)
    if name not in GLUE and name not in NLI:
        spelled = known or PRESETS.get(name, ())
        examples = with_one_spelling(examples, map_labels if map_labels and name != "ner" else spelled)
    if map_labels:
        examples = renamed(examples, map_labels, types=name == "ner", complete=training)
    if name == ENTITIES_BY_NAME and gold:
        labels = tuple(sorted({label for example in examples for label in labels_of(example)}))
        examples = [
            dataclasses.replace(example, labels=labels) if isinstance(example, EntityExample) else example
            for example in examples
        ]
    return dataclasses.replace(example_file, examples=tuple(examples))


def named_columns(columns: ColumnSettings) -> dict[str, str]:
    """`TaskSpec.columns` of a training: the columns that are named, by their options."""
    options = {option: getattr(columns, option) for option in (*TEXT_OPTIONS, LABEL_OPTION)}
    return {option: name for option, name in options.items() if name is not None}


def columns_for(
    trained: Mapping[str, str], path: Path, columns: ColumnSettings | None = None, *, gold: bool = True
) -> ColumnSettings:
    """The columns to read of a file for a model: where none is named, those named in training, if the table has them.

    Capital letters, and hyphens or spaces in place of underscores, make no difference if one column alone has the name.

    Args:
        trained: `TaskSpec.columns` of the model.
        columns: those that are named; the column of the label is chosen apart from those of the texts.
        gold: labels are read.
    """
    columns = columns or ColumnSettings()
    texts = () if columns.text_column or columns.pair_column else TEXT_OPTIONS
    label = (LABEL_OPTION,) if gold and columns.label_column is None else ()
    wanted = [{option: trained[option] for option in options if option in trained} for options in (texts, label)]
    if not any(wanted) or suffix_of(path) not in SUFFIXES:
        return columns
    try:
        names = columns_of(path, encoding=columns.encoding)
    except InputError:
        return columns  # the reader of the task says what is wrong
    chosen: dict[str, Any] = {}
    for options in wanted:
        there = {option: _column_in(names, name) for option, name in options.items()}
        chosen |= there if all(there.values()) else {}
    if chosen:
        shown = " ".join(f"--{option.replace('_', '-')} {shlex.quote(name)}" for option, name in chosen.items())
        tell(f"{quoted(path)}: read with {shown}, as in training")
    return dataclasses.replace(columns, **chosen)


def _column_in(names: Sequence[str], wanted: str) -> str:
    """The column of a table with that name, or the columns that it names, separated by commas; "" if one is missing."""
    if wanted in names:
        return wanted
    alike = [name for name in names if plain_name(name) == plain_name(wanted)]
    if len(alike) == 1:
        return alike[0]
    parts = [_column_in(names, part.strip()) for part in wanted.split(",")] if "," in wanted else []
    return ",".join(parts) if all(parts) else ""


def _require_mappable(name: str) -> None:
    """Checks that the files of a task have labels of the user's, which can get new names."""
    has_labels = kind_of(name) in ("classification", "tagging", *SPANS) or name == "pairs"
    require(
        has_labels and name not in GLUE and name not in NLI,
        expected="a task whose labels can be mapped",
        found=f"{name}, whose labels are those of its official files" if has_labels else f"{name}, which has no labels",
        fix="use --task classification" if has_labels else "omit --map",
    )


def _skipped(path: Path, skipped: Sequence[tuple[str, str]]) -> str:
    """How many rows of a file were skipped, and how many for which reason if there are several reasons."""
    name = path if table_name(path) is None else quoted(path)
    rows = f"{name}: {counted(len(skipped), 'row')} skipped"
    reasons = Counter(reason for _, reason in skipped).most_common()
    if len(reasons) < 2:
        return rows
    return f"{rows}: " + "; ".join(f"{count:,} with {reason}" for reason, count in reasons[:_MOST_REASONS])


def read_task(
    name: str,
    train: Path | None,
    dev: Path | None,
    *,
    columns: ColumnSettings | None = None,
    settings: TaskSettings | None = None,
    limit: int | None = None,
    map_labels: LabelMap | None = None,
    group_column: str | None = None,
    weight_column: str | None = None,
    by_label: bool = False,
    fold: tuple[int, int] | None = None,
    also: Sequence[Path] = (),
) -> tuple[TaskSpec, TaskData]:
    """The spec and data of a task, read from its files.

    Args:
        name: a task, as in `finetune`.
        train: the training file; if not given, the preset's own examples.
        dev: the dev file; without one, about a tenth of the training examples is held out.
        columns, settings: which columns are read, and how rows are made; stored with the model.
        limit: train on this many randomly chosen examples only; the choice is the same every time, in file order.
        map_labels: new names of the labels in the files.
        group_column: the column of a group; the dev examples that are held out are those of whole groups.
        weight_column: the column with the weights of training examples of a classification or regression.
        by_label: for a classification: hold out dev examples of each label that has two examples or more.
        fold: the number of a fold, which becomes the dev examples, and how many folds there are; number 0 is none of
            them: all examples are for training. With a single fold, the caller deals them out.
        also: further training files, whose labels may be others.

    Raises:
        BertsmithError: the task is unknown, or a file is missing or invalid; the message says which.
    """
    name = task_name(name)
    train = train or bundled_examples(name)
    require(train is not None, expected="a training file", found="none", fix="name it with --train")
    assert train is not None
    # A map of labels is for all files together.
    with read_elsewhere(group_column, weight_column):
        train_file = read_examples(name, train, columns, training=not also, map_labels=map_labels)
    everything = train_file.examples
    digests = {"train": digest_of(train)}
    for number, path in enumerate(also, start=1):
        everything = (*everything, *read_examples(name, path, columns, map_labels=map_labels).examples)
        digests[f"also {number}"] = digest_of(path)
    chosen = columns or ColumnSettings()
    # Labels come from the whole file: one that the sample happens to miss is still a label of the task.
    spec = spec_for(name, everything, settings, chosen.hierarchy, chosen.encoding)
    spec = dataclasses.replace(spec, columns=named_columns(chosen))
    if spec.settings.document_context and spec.kind in ("tagging", ENTITIES):
        from bertsmith.tasks.specs.sentence_windows import with_surroundings

        everything = tuple(with_surroundings(cast("Sequence[TaggedExample]", everything)))
    if weight_column is not None:
        everything = weighted(everything, train, weight_column, spec.kind, encoding=chosen.encoding)
    groups: Sequence[str] | None = groups_of(everything, train, group_column, dev, encoding=chosen.encoding)
    examples, groups = drawn(everything, limit), groups and drawn(groups, limit)
    if dev is None and name == TEXTS:
        require_other(groups is None, "--group-column", "a task with dev examples", "leave it out")
        data = TaskData(train=examples, dev=(), digests=digests)  # single texts have no gold
    elif fold is not None and not fold[0]:
        if fold[1] > 1:
            check_folds(examples, fold[1], groups)
        data = TaskData(train=examples, dev=(), digests=digests)
    elif dev is None:
        by_label = by_label and spec.kind == "classification"
        part = None
        if fold is None:
            kept, held = split_dev(examples, seed=0, by_label=by_label or name == PAIRS, groups=groups)
        else:
            part, kept, held = _split_fold(examples, *fold, groups)
        if spec.ranks:
            choices = cast("Sequence[ChoiceExample]", held)
            short = any(len(example.endings) < FEWEST for example in choices)
            held = list(with_drawn(choices, chosen.candidates - 1)) if short else held
        in_groups = groups is not None
        data = TaskData(train=kept, dev=held, digests=digests, held_out=True, in_groups=in_groups, by_label=by_label)
        data = dataclasses.replace(data, fold=part)
    else:
        form = name
        if name in FORMS:
            from bertsmith.tasks.datasets.text_groups import form_of_file

            form = form_of_file(dev, encoding=chosen.encoding)
        others = read_examples(
            form,
            dev,
            columns,
            scheme=spec.scheme,
            map_labels=map_labels if form == name else None,
            known=spec.labels if form == name else (),
            ones=train_file.ones,
        ).examples
        digests["dev"] = digest_of(dev)
        if digests["dev"] == digests["train"]:
            warn("the dev examples are the training examples; their scores say nothing about other texts")
        data = TaskData(train=examples, dev=others, digests=digests)
    scored = data.dev if fold is None else examples
    if spec.kind == "similarity" and scored:
        metrics = metrics_of_examples(scored)
        if not metrics:
            reason = "its examples are single texts"
            raise InputError.is_not(str(dev), "a dev file", reason, "give scored pairs, pairs or triplets")
        spec = dataclasses.replace(spec, metric=metrics[0], metrics=metrics)
    if spec.kind == "classification":
        texts = cast("Sequence[TextExample]", examples)
        warn_of_single(texts, held_out=data.held_out, can_map=name not in GLUE and name not in NLI)
        if data.held_out and fold is None:
            warn_of_held_out(cast("Sequence[TextExample]", data.train), cast("Sequence[TextExample]", data.dev))
    if spec.kind in ("classification", "tagging", *SPANS):
        # Parents are learned from their children.
        named = [label for label in spec.labels if label not in spec.parents]
        warn_of_unlearned(named, *((data.train, data.dev) if fold is None else (examples, ())))
    # That all dev examples are training examples was said above.
    is_same = digests.get("dev") == digests["train"]
    warnings = data_warnings(data.train, () if is_same else data.dev)
    for warning in warnings:
        warn(warning)
    return spec, dataclasses.replace(data, warnings=warnings)


def _split_fold(
    examples: Sequence[Example], number: int, count: int, groups: Sequence[str] | None
) -> tuple[Fold, list[Example], list[Example]]:
    """A fold, the training examples without it, and its examples."""
    numbers = fold_numbers(examples, count, seed=0, groups=groups)
    rows = [row for row, other in enumerate(numbers) if other == number]
    kept = [example for example, other in zip(examples, numbers, strict=True) if other != number]
    return Fold(number=number, count=count, rows=rows), kept, [examples[row] for row in rows]


def digest_of(path: Path) -> str:
    """The digest of a file, or of the names and the contents of all files in a folder."""
    if not path.is_dir():
        return digest_file(path)
    files = sorted(file for file in path.rglob("*") if file.is_file())
    lines = [f"{file.relative_to(path).as_posix()} {digest_file(file)}\n" for file in files]
    return f"sha256:{hashlib.sha256(''.join(lines).encode('utf-8', 'surrogateescape')).hexdigest()}"


def drawn(examples: Sequence[Drawn], limit: int | None) -> Sequence[Drawn]:
    """At most `limit` examples, or what belongs to them, drawn without replacement, in their original order."""
    if limit is None or limit >= len(examples):
        return examples
    chosen = generator(0, "limited examples").choice(len(examples), limit, replace=False)
    return [examples[number] for number in sorted(chosen.tolist())]


def data_warnings(train: Sequence[Example], dev: Sequence[Example]) -> tuple[str, ...]:
    """Warnings about the examples of a task, one sentence each, with counts and a case of each kind.

    >>> first, second = TextExample(id="0", first="a", label="x"), TextExample(id="1", first="a", label="y")
    >>> data_warnings([first, second], [])
    ("1 text of the training examples has different labels: 'x' in  and 'y' in  for 'a'",)
    """
    result = []
    seen = {inputs_of(example): example for example in reversed(train)}
    shared = [example for example in dev if inputs_of(example) in seen]
    if shared:
        first = shared[0]
        result.append(
            f"{len(shared):,} of {counted(len(dev), 'dev example')} {'is' if len(shared) == 1 else 'are'} also among "
            f"the training examples, the first in {first.location} (as in {seen[inputs_of(first)].location}): scores "
            "on what was learned say little about other texts"
        )
    for examples, part in ((train, "training"), (dev, "dev")):
        golds: dict[Hashable, Example] = {}
        differing: dict[Hashable, tuple[Example, Example]] = {}
        for example in examples:
            if _gold(example) is None:
                continue
            other = golds.setdefault(inputs_of(example), example)
            if _gold(other) != _gold(example):
                differing.setdefault(inputs_of(example), (other, example))
        if differing:
            other, example = next(iter(differing.values()))
            result.append(
                f"{counted(len(differing), 'text')} of the {part} examples {'has' if len(differing) == 1 else 'have'} "
                f"different labels: {brief(_gold(other))} in {other.location} and {brief(_gold(example))} in "
                f"{example.location} for {brief(inputs_of(example))}"
            )
    return tuple(result)


def _gold(example: Example) -> Hashable:
    """The label of an example; None if it has none, or more than one is right."""
    if isinstance(example, EntityExample):
        return tuple(map(tuple, example.entities))  # as they are shown
    if isinstance(example, TaggedExample):
        return example.tags
    if isinstance(example, TextExample):
        return tuple(sorted(example.label)) if isinstance(example.label, tuple) else example.label
    return example.label if isinstance(example, ChoiceExample | MentionExample) else None
