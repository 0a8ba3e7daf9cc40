"""The tasks by name, each with its file format, labels, metrics and defaults.

=====================  ==============  ==========================================================================
name                   kind            files
=====================  ==============  ==========================================================================
cola ... wnli          as in GLUE      the official TSV files of the nine GLUE tasks
snli, xnli             classification  the official TSV and JSONL files, and the copies on the hub
squad, squad2          span            the official JSON of SQuAD 1.1 and 2.0, and questions as rows
swag, codah, choice    choice          SWAG's CSV, CODAH's TSV
ner, pos               tagging         words with tags, in columns, records or tables; ner also reads texts with marked
                                       spans; see `tasks.datasets.tagged_files`
nested-ner             entities        the same, and words with entities as spans of them; entities may share words
entities-by-name       as the name     the same; files may have different labels
classification         classification  tables with one or two texts and a label; see `tasks.datasets.tables`
multi-label            classification  the same; an example may have several labels or none
patents                classification  patents and their subclasses, as JSON lines of USPTO-2M or tables of claims
relations              classification  texts with two marked spans and the relation of the two, as JSON lines, or tables
                                       of texts in which @TYPE$ stands for each
regression             regression      as classification, with a number as the label
reranking              reranking       queries with candidates and their scores; see `tasks.datasets.scored_lists`
response-selection     selection,      conversations and replies; see `tasks.datasets.replies`
                       choice
similarity, pairs,     similarity      vectors: scored pairs, pairs with or without labels, triplets, single texts; see
triplets, texts                        `tasks.datasets.text_groups`
summarization,         generation      tables with a source text and the text to write; see `tasks.datasets.sequences`
response, translation,
parsing, text-to-text
extractive-            extraction      the same; a source may be a list of sentences, with labels of sentences; see
summarization                          `tasks.datasets.documents`
coreference            coreference     pronouns with candidates, in GAP's tables or as JSON lines; see
                                       `tasks.datasets.mentions`
spam, spam4,           classification  as classification, with the preset's labels; examples come with the package
sentiment, claim,
truth
=====================  ==============  ==========================================================================
"""

import dataclasses
from collections.abc import Sequence
from importlib import resources
from pathlib import Path
from typing import cast

from bertsmith.base.core.errors import ConfigError, InputError
from bertsmith.base.core.progress import warn
from bertsmith.base.core.settings import require, require_known
from bertsmith.models.heads.head_spec import LAMBDA, RERANKING
from bertsmith.tasks.datasets.examples import (
    ENTITIES_BY_NAME,
    FORMS,
    MARKED,
    NESTED_NER,
    DocumentExample,
    EntityExample,
    Example,
    SequenceExample,
    TaggedExample,
    TextExample,
    usual_sentences,
)
from bertsmith.tasks.datasets.glue import GLUE, NLI_LABELS
from bertsmith.tasks.datasets.glue import NLI_TITLES as NLI
from bertsmith.tasks.datasets.labels import class_labels, constituent_labels, scheme_of_names, tag_labels
from bertsmith.tasks.metrics.entities import OF_SPANS, overlap_of
from bertsmith.tasks.metrics.labels import AT_METRICS, CLASS_METRICS
from bertsmith.tasks.metrics.mentions import MENTION_METRICS
from bertsmith.tasks.metrics.numbers import NUMBER_METRICS
from bertsmith.tasks.metrics.ranking import RANK_METRICS, RANKING_METRICS
from bertsmith.tasks.metrics.rouge import ROUGE
from bertsmith.tasks.metrics.texts import BLEU, EXACT, OF_TEXTS, OF_TREES
from bertsmith.tasks.specs.settings import AUTO, USUAL_WORDS, VECTORS, TaskSettings
from bertsmith.tasks.specs.task import (
    BY_NAME,
    COREFERENCE,
    ENTITIES,
    EXTRACTION,
    GENERATION,
    TaskSpec,
    title_of,
)
from bertsmith.tasks.specs.vector_gold import LABELLED, PARTNERS, SCORES, TRIPLETS, vector_spec
from bertsmith.text.documents.encodings import UTF_8

# Labels in the order of the outputs.
PRESETS: dict[str, tuple[str, ...]] = {
    "spam": ("Spam", "Not Spam"),
    "spam4": ("Spam", "Not Spam", "Social", "Promotion"),
    "sentiment": ("negative", "positive"),
    "claim": ("Not Claim", "Claim"),
    "truth": ("False", "True"),
}
FIXED_LABELS = (*GLUE, *NLI, *PRESETS)
SEVERAL = ("multi-label", "patents")  # labels for a text
GENERAL = ("classification", *SEVERAL, "relations", "regression")
CHOICES = ("swag", "codah", "choice")
RANKED = ("response-selection",)  # candidates of which one is right
TAGS = ("ner", "pos")
QUESTIONS = ("squad", "squad2")
PARSING, TRANSLATION, SUMMARIZATION = "parsing", "translation", "summarization"
WRITTEN = (SUMMARIZATION, "response", TRANSLATION, PARSING, "text-to-text")  # texts that the model writes
EXTRACTED = ("extractive-summarization",)  # sentences of a text that the model chooses
TASK_NAMES = (
    *(*GLUE, *NLI, *QUESTIONS, *CHOICES, *RANKED, *TAGS, *MARKED, *GENERAL, RERANKING),
    *(*FORMS, *WRITTEN, *EXTRACTED, COREFERENCE),
    *PRESETS,
)
# Names of tasks in other libraries, with their names here.
_SYNONYMS = {
    "token-classification": TAGS,
    "question-answering": QUESTIONS,
    "qa": QUESTIONS,
    "generation": WRITTEN,
    "text2text-generation": WRITTEN,
    "seq2seq": WRITTEN,
    "conversational": ("response", *RANKED),
}
_MULTI_LABEL = ("micro_f1", "macro_f1", "subset_accuracy", *AT_METRICS)
_ENTITIES, _WORDS = ("precision", "recall", "f1", "accuracy"), ("accuracy",)
OF_LISTS = ("ndcg@10", "mrr@10", "map@100")
_ANSWERS, _ENDINGS = ("exact", "f1"), ("accuracy",)


def task_name(name: str) -> str:
    """The name as spelled in the table of tasks; case, dashes and underscores do not matter.

    >>> task_name("SST2"), task_name("STS_B")
    ('sst-2', 'sts-b')
    """
    result = known_task(name)
    if result is None:
        raise ConfigError.unknown("task", name, _SYNONYMS.get(name.lower(), TASK_NAMES))
    return result


def known_task(name: object) -> str | None:
    """The name as `task_name` returns it; None if there is no such task."""
    plain = {known.replace("-", ""): known for known in TASK_NAMES}
    return plain.get(str(name).lower().replace("-", "").replace("_", ""))


def kind_of(name: str) -> str:
    """The kind of a named task.

    >>> kind_of("sts-b"), kind_of("pos"), kind_of("spam")
    ('regression', 'tagging', 'classification')
    """
    for names, kind in (
        (QUESTIONS, "span"),
        (CHOICES, "choice"),
        (RANKED, "selection"),
        ((RERANKING,), RERANKING),
        (TAGS, "tagging"),
        ((NESTED_NER,), ENTITIES),
        ((ENTITIES_BY_NAME,), BY_NAME),
        (FORMS, "similarity"),
        (WRITTEN, GENERATION),
        (EXTRACTED, EXTRACTION),
        ((COREFERENCE,), COREFERENCE),
    ):
        if name in names:
            return kind
    is_number = not GLUE[name].labels if name in GLUE else name == "regression"
    return "regression" if is_number else "classification"


def bundled_examples(name: str) -> Path | None:
    """The file of a preset's examples that comes with the package; None for other tasks."""
    path = Path(str(resources.files("bertsmith.tasks.datasets") / "presets" / f"{name}.tsv"))
    return path if name in PRESETS and path.is_file() else None


def spec_for(
    name: str,
    examples: Sequence[Example],
    settings: TaskSettings | None = None,
    hierarchy: str | None = None,
    encoding: str = UTF_8,
) -> TaskSpec:
    """The spec of a task, with the labels of the training examples if the task does not fix them.

    Args:
        hierarchy: of the labels, see `ColumnSettings`; their ancestors become labels, too.
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
    if name in RANKED:
        ranks = tuple(RANK_METRICS)
        kind, reads = ("selection", "mean") if settings.scorer == VECTORS else ("choice", "pooler")
        return TaskSpec(kind=kind, name=name, metric=ranks[0], metrics=ranks, reads=reads, settings=settings)
    if name == RERANKING:
        return TaskSpec(
            kind=RERANKING,
            name=name,
            pair=True,
            metric=OF_LISTS[0],
            metrics=OF_LISTS,
            activation="sigmoid",
            objective=LAMBDA,
            settings=settings,
        )
    if name in TAGS:
        return _tagging_spec(name, cast("Sequence[TaggedExample]", examples), settings)
    if name in MARKED:
        return entities_spec(name, cast("Sequence[EntityExample]", examples), settings)
    if name in FORMS:
        return vector_spec(name, examples, settings)
    if name in WRITTEN:
        scores = {TRANSLATION: (BLEU, EXACT), PARSING: OF_TREES}.get(name, (*ROUGE, EXACT))
        metric = {TRANSLATION: BLEU, PARSING: "f1"}.get(name, "rougeL")
        labels = constituent_labels(cast("Sequence[SequenceExample]", examples)) if name == PARSING else ()
        return TaskSpec(kind=GENERATION, name=name, labels=labels, metric=metric, metrics=scores, settings=settings)
    if name in EXTRACTED:
        if not settings.sentences:
            usual_count = usual_sentences(cast("Sequence[DocumentExample]", examples))
            settings = dataclasses.replace(settings, sentences=usual_count)
        return TaskSpec(kind=EXTRACTION, name=name, metric="rougeL", metrics=ROUGE, settings=settings)
    if name == COREFERENCE:
        return TaskSpec(kind=COREFERENCE, name=name, metric="f1", metrics=MENTION_METRICS, settings=settings)
    texts = cast("Sequence[TextExample]", examples)
    pair = bool(texts) and texts[0].second is not None
    if name == "regression":
        numbers = ("pearson", "spearman", "mse")
        return TaskSpec(kind="regression", name=name, pair=pair, metric="pearson", metrics=numbers, settings=settings)
    labels = PRESETS.get(name) or class_labels(texts)
    several = name in SEVERAL
    metrics: tuple[str, ...] = ("micro_f1", "macro_f1", "subset_accuracy") if several else ("accuracy", "macro_f1")
    # With hundreds of labels, the scores of the most probable ones count too.
    metrics += AT_METRICS if name == "patents" else ()
    parents: tuple[str, ...] = ()
    if hierarchy is not None:
        from bertsmith.tasks.datasets.hierarchy import by_label, read_hierarchy

        labels, parents = by_label(labels, read_hierarchy(hierarchy, labels, encoding))
    return TaskSpec(
        kind="classification",
        name=name,
        labels=labels,
        pair=pair,
        multi_label=several,
        metric="micro_f1" if several else "accuracy",
        metrics=metrics,
        parents=parents,
        settings=settings,
    )


def entities_spec(name: str, sentences: Sequence[EntityExample], settings: TaskSettings) -> TaskSpec:
    """The spec of entities that may share words: labels, words of the longest one, and which may share words."""
    spans = [span for sentence in sentences for span in sentence.entities]
    if not spans:
        raise InputError(expected="entities in the training file", found="none", fix="annotate some")
    longest = max(span.end - span.start for span in spans)
    if name == ENTITIES_BY_NAME:  # labels that are named later may be of longer entities
        longest = USUAL_WORDS
    longest = settings.entity_words or longest
    overlap = settings.overlap if settings.overlap != AUTO else overlap_of(sentence.entities for sentence in sentences)
    return TaskSpec(
        kind=kind_of(name),
        name=name,
        labels=tuple(sorted({span.label for span in spans})),
        metric="f1",
        metrics=OF_SPANS,
        settings=dataclasses.replace(settings, entity_words=longest, overlap=overlap),
    )


def official_spec(name: str, spec: TaskSpec) -> TaskSpec:
    """The official spec of a task of GLUE, NLI or SQuAD for another tool's model with as many outputs; else `spec`.

    The maximum length remains the model's. Outputs named like the labels keep their order; otherwise they are
    assigned in the order of the task, with a warning on stderr.
    """
    if name in QUESTIONS:
        return spec_for(name, (), spec.settings)
    if name not in GLUE and name not in NLI:
        return spec
    official = spec_for(name, (), spec.settings)
    if len(official.labels) != len(spec.labels):
        return spec
    names = tuple(label.lower() for label in spec.labels)
    if sorted(names) == sorted(official.labels):
        return dataclasses.replace(official, labels=names)
    warn(f"the outputs {', '.join(spec.labels)} are taken as the labels {', '.join(official.labels)} of {name}")
    return official


def default_settings(name: str) -> TaskSettings:
    """The lengths used in the paper: 384 tokens with a stride of 128 for questions, 128 tokens otherwise.

    Pronouns have the texts of questions. Of texts to write, those that usual data sets need. The threshold of entities
    that may be inside one another is tuned; where the labels are in the row, it is longer.
    """
    if name == SUMMARIZATION:
        return TaskSettings(max_length=256, no_repeat_ngram=3, copy=True)
    if name in EXTRACTED:
        return TaskSettings(max_length=256, no_repeat_ngram=3)
    if name == RERANKING:
        return TaskSettings(max_length=256)
    if name == NESTED_NER:
        return TaskSettings(tune_threshold=True)
    if name == ENTITIES_BY_NAME:
        return TaskSettings(max_length=256)
    if name in RANKED:
        return TaskSettings(long_text="tail")  # the last turns say most about the reply
    if name in WRITTEN:
        return TaskSettings(max_target_length={PARSING: 256, TRANSLATION: 128}.get(name, 64), copy=True)
    return TaskSettings(max_length=384 if name in (*QUESTIONS, COREFERENCE) else 128)


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
    return {
        "span": "squad2" if spec.unanswerable else "squad",
        "tagging": "ner",
        EXTRACTION: EXTRACTED[0],
        ENTITIES: NESTED_NER,
        BY_NAME: ENTITIES_BY_NAME,
    }.get(spec.kind, spec.kind)


def require_kind(name: str, spec: TaskSpec) -> None:
    """Checks that a model can be scored on a task's files."""
    kind = kind_of(name)
    require(
        kind == spec.kind or name == spec.name,
        expected=f"a file for the model's task, {spec.title}",
        found=f"the format of {title_of(name, kind)}",
        fix="name a model for that task, or another --task",
    )


def metrics_of(spec: TaskSpec) -> tuple[str, ...]:
    """The scores by which a model of this task can be selected.

    >>> metrics_of(TaskSpec(kind="span", name="squad"))
    ('exact', 'f1')
    """
    if spec.kind == "classification":
        if spec.multi_label:
            return _MULTI_LABEL
        return tuple(name for name in CLASS_METRICS if name != "f1" or len(spec.labels) == 2)
    if spec.kind == "tagging":
        return _ENTITIES if spec.scheme else _WORDS
    if spec.kind == "similarity" or spec.ranks:
        return spec.metrics
    of_kind: dict[str, tuple[str, ...]] = {
        "regression": tuple(NUMBER_METRICS),
        # With unanswerable questions, epochs are compared by the F1 at their best threshold.
        "span": ("f1",) if spec.unanswerable else _ANSWERS,
        GENERATION: OF_TREES if spec.name == PARSING else OF_TEXTS,
        EXTRACTION: ROUGE,
        COREFERENCE: MENTION_METRICS,
        RERANKING: tuple(RANKING_METRICS),
        ENTITIES: OF_SPANS,
        BY_NAME: OF_SPANS,
    }
    return of_kind.get(spec.kind, _ENDINGS)


def require_metric(task: str, name: str) -> None:
    """Refuses a score that no examples of a named task have, before any are read."""
    broadest = (
        spec_for(task, ())
        if task in (*WRITTEN, *EXTRACTED, *RANKED)
        else TaskSpec(
            kind=kind_of(task),
            name=task,
            labels=("no", "yes"),
            multi_label=task in SEVERAL,
            scheme="any",
            unanswerable=task == "squad2",
            metrics=(*SCORES, *LABELLED, *PARTNERS, *TRIPLETS),
        )
    )
    with_metric(broadest, name)


def with_metric(spec: TaskSpec, name: str) -> TaskSpec:
    """The spec with another score for selection, which is computed with the others of the task."""
    known = metrics_of(spec)
    require_known(f"metric of {spec.name}:", name, known)
    metrics = spec.metrics if name in spec.metrics else (*spec.metrics, name)
    return dataclasses.replace(spec, metric=name, metrics=metrics)
