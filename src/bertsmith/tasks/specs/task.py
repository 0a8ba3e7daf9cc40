"""The interface of a fine-tuning task: encoding, head, loss, decoding and metrics.

A task holds no training code and no file formats. It is fully described by its `TaskSpec`, which is stored in the
model's metadata, so training, evaluation, prediction and serving encode, truncate and decode identically.

Encoding and decoding work on arrays, without torch; only the head and the loss import it, on first use.
"""

import abc
import dataclasses
import functools
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import numpy.typing as npt

from bertsmith.base.core.errors import ConfigError
from bertsmith.base.core.settings import from_dict, is_finite, require, require_known, require_labels, to_dict
from bertsmith.models.heads.head_spec import RERANKING, Head, SpanShape
from bertsmith.models.heads.vector_forms import DENSE, VECTOR_FORMS
from bertsmith.models.parts.head_inputs import (
    ATTENTION,
    BILSTM,
    CONCAT,
    MAX,
    OF_TWO_TEXTS,
    READER_CELLS,
    READERS,
    READS,
)
from bertsmith.tasks.datasets.examples import ENTITIES_BY_NAME, Example
from bertsmith.tasks.encoding.units import EncodedExamples, Logits
from bertsmith.tasks.metrics.ranking import RANK_METRICS
from bertsmith.tasks.specs.settings import HIERARCHICAL, OF_ENTITIES, OF_EXTRACTS, OF_RANKING, OF_WRITING, TaskSettings
from bertsmith.tasks.specs.tokenized import tokenized, tokens_of_rows
from bertsmith.text.tokenizers.encoded import Encoded
from bertsmith.text.tokenizers.template import Template
from bertsmith.text.tokenizers.tokenizer import Tokenizer

if TYPE_CHECKING:
    from torch import Tensor

    from bertsmith.tasks.encoding.units import TaskBatch


# Kinds of task whose answers are: texts that the model writes, sentences of a text, the name that a pronoun refers to,
# entities that may be inside one another, the same with labels that a caller may name.
GENERATION, EXTRACTION, COREFERENCE, ENTITIES = "generation", "extraction", "coreference", "entities"
BY_NAME = ENTITIES_BY_NAME
SPANS = (ENTITIES, BY_NAME)  # the kinds whose answers are any spans of words
CHOOSING = ("choice", "selection")  # the kinds that choose one of several candidates
_STORED_BY = {
    GENERATION: OF_WRITING,
    EXTRACTION: OF_EXTRACTS,
    ENTITIES: OF_ENTITIES,
    BY_NAME: OF_ENTITIES,
}  # settings that other kinds do not store

# Baselines by their names, see `Task.baselines`.
BAG, VECTORS = "bag of words", "linear model on frozen vectors"
PAIRS, COSINE = "linear model on the vectors of both texts", "cosine of the vectors of both texts"
OF_TEXTS = (BAG, VECTORS, PAIRS, COSINE)  # of tasks on whole texts; the last two of pairs alone
OF_BAG = ("classification", "regression")  # kinds of task of a bag of words
WORDS_COSINE, FROZEN_COSINE = "cosine of TF-IDF vectors of words", "cosine of frozen vectors, before training"
TAGS, OVERLAP = "most frequent tag of each word", "word overlap"
SEEN = "entities of the training examples"
FIRST, NEAREST, CENTRAL = "first words", "nearest target", "central sentences"
WRITTEN = (FIRST, NEAREST, CENTRAL)
LEAD, ORACLE = "first sentences", "oracle sentences"
CHOSEN = (LEAD, CENTRAL, ORACLE)
RIGHT_BRANCHING = "right-branching trees"
BEFORE, FIRST_CANDIDATE, CLOSEST = "nearest candidate before", "first candidate", "nearest candidate"
PLURAL = (FIRST, CENTRAL, LEAD, RIGHT_BRANCHING, SEEN)  # of the names, those in the plural
CEILINGS = (ORACLE,)  # they know the gold: shown with the baselines, and compared with nothing


def title_of(name: str, kind: str) -> str:
    """The name of a task, with its kind if that is another word.

    >>> title_of("cola", "classification"), title_of("regression", "regression")
    ('cola (classification)', 'regression')
    """
    return name if name == kind else f"{name} ({kind})"


@dataclasses.dataclass(frozen=True, kw_only=True)
class GlinerShape(SpanShape):
    """The head and the rows of a model of GLiNER.

    Attributes:
        separator_id: the piece between labels and words.
        words: the most words of a row.
    """

    separator_id: int
    words: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class TaskSpec:
    """A complete description of a task; plain values, stored in `bertsmith.json`."""

    # classification, regression, reranking, choice, selection, tagging, span, similarity, generation, extraction,
    # coreference, entities or entities-by-name; selects the class
    kind: str
    name: str
    # names of the outputs in the order of the head's rows; empty for regression, choice and span
    labels: tuple[str, ...] = ()
    # of each label the name of its parent among the labels, "" if it has none; empty without a hierarchy. A label is
    # gold or predicted only together with its parents
    parents: tuple[str, ...] = ()
    # of entities by name, what each label means, "" if nothing is said; empty without any
    descriptions: tuple[str, ...] = ()
    pair: bool | None = False  # examples have a text B; None: unknown, for models of other tools
    multi_label: bool = False  # an example may have several labels, or none
    metric: str = "accuracy"  # the score used for model selection; higher is better
    metrics: tuple[str, ...] = ("accuracy",)  # all scores to compute, by their names in `metrics.labels`
    scheme: str = ""  # of the tags: IOB1, IOB2, IOBES, or "" for tags without a scheme (part of speech)
    unanswerable: bool = False  # a question may have no answer in its context
    # for multi-label tasks, the probability from which a label is predicted; with two labels of which one is predicted,
    # that from which it is the second; for entities, that from which a span is one; for SQuAD 2.0, the null threshold
    threshold: float | None = None
    # for multi-label tasks, one for each label, instead of `threshold`; empty if all have the same
    thresholds: tuple[float, ...] = ()
    temperature: float = 1.0  # logits are divided by it before the softmax; fitted on dev data on request
    # what the head of a task on whole rows reads, one of `head_inputs.READS`; of one on tokens, "bilstm" or a
    # value that is ignored
    reads: str = "pooler"
    bilstm_cells: int = READER_CELLS  # of a head with a BiLSTM, the cells of each direction; ignored by others
    bilstm_layers: str = ""  # the hidden states that it reads, as in `layer_choice`; "" for the learned mix of all
    normalize_layers: bool = False  # whether it brings each of them to mean 0 and variance 1 first
    activation: str = ""  # of a number, what is computed from the output of the head: "" (nothing) or "sigmoid"
    prompt: str = ""  # a prefix for the first text of each example
    # the loss of a task of vectors, see `tasks.specs.similarity`, or of lists, see `heads.list_losses`
    objective: str = ""
    vectors: str = DENSE  # of a task of vectors, their form, one of `vector_forms.VECTOR_FORMS`
    # of a task of vectors, how many of their first numbers were trained to be vectors of their own
    widths: tuple[int, ...] = ()
    decoder_layers: int = 0  # of texts to write; 0 for as many as the encoder has
    shares_layers: bool = False  # of texts to write, whether the decoder's layers are the encoder's
    gliner: GlinerShape | None = None  # of entities by name, if the model is one of GLiNER
    # the columns of the training table that were named, by the option without dashes, such as text_column
    columns: Mapping[str, str] = dataclasses.field(default_factory=dict, hash=False)
    settings: TaskSettings = dataclasses.field(default_factory=TaskSettings)

    def __post_init__(self) -> None:
        if self.reads not in READS:
            raise ConfigError.unknown("value of reads", self.reads, READS)
        require_known("vectors", self.vectors, VECTOR_FORMS)
        if self.settings.long_text in HIERARCHICAL and self.reads in (*OF_TWO_TEXTS, CONCAT, *READERS):
            limits = "pooler, cls or mean for a hierarchical long_text"
            raise ConfigError.must_be("reads", limits, self.reads, "use --reads mean")
        if self.reads == MAX and self.kind in ("classification", "regression", RERANKING, "choice"):
            raise ConfigError(
                expected=f"a task of vectors of texts, for a head that reads {MAX!r}",
                found=self.title,
                fix=f"use --reads {CONCAT}, which has the maximum too, or mean",
            )
        if (
            self.reads in (*OF_TWO_TEXTS, ATTENTION)
            and self.kind in ("classification", "regression")
            and self.pair is not True
        ):
            raise ConfigError(
                expected=f"examples of two texts each, for a head that reads {self.reads!r}",
                found=f"{self.title} of single texts",
                fix="give pairs, or use --reads mean",
            )

        require_labels(self.labels, f"the labels of {self.title}")
        require(
            is_finite(self.temperature) and self.temperature > 0,
            expected="a temperature above 0",
            found=repr(self.temperature)[:60],
            fix="correct `temperature` in bertsmith.json, or remove it",
        )
        highest = math.inf if self.kind == "span" else 1  # of SQuAD 2.0, it is compared with scores
        for threshold in (*self.thresholds, *(() if self.threshold is None else (self.threshold,))):
            require(
                is_finite(threshold) and (highest > 1 or 0 <= threshold <= highest),
                expected="thresholds from 0 to 1" if highest == 1 else "a finite threshold",
                found=repr(threshold)[:60],
                fix="correct the thresholds in bertsmith.json, or remove them",
            )
        if len(self.parents) not in (0, len(self.labels)):
            limits = f"one parent for each of the {len(self.labels)} labels"
            raise ConfigError.must_be("parents in bertsmith.json", limits, len(self.parents), "correct them")
        if len(self.descriptions) not in (0, len(self.labels)):
            limits = f"one description for each of the {len(self.labels)} labels"
            raise ConfigError.must_be("descriptions in bertsmith.json", limits, len(self.descriptions), "correct them")
        if len(self.thresholds) not in (0, len(self.labels)):
            raise ConfigError(
                expected=f"one threshold for each of the {len(self.labels)} labels",
                found=str(len(self.thresholds)),
                fix="correct `thresholds` in bertsmith.json, or remove it",
            )

    @property
    def title(self) -> str:
        """The name, with the kind if that is another word, for messages."""
        return title_of(self.name, self.kind)

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        values = to_dict(self)
        if self.reads not in READERS:
            del values["bilstm_cells"]
        for name in ("bilstm_layers", "normalize_layers"):
            if self.reads not in READERS or not values[name]:
                del values[name]
        has_vectors = self.objective and self.kind != RERANKING
        if not self.objective:
            del values["objective"]
        if not has_vectors:
            del values["widths"]
        if self.vectors == DENSE:  # as models of earlier versions
            del values["vectors"]
        if not has_vectors or self.ranks:
            del values["settings"]["query_prompt"], values["settings"]["passage_prompt"]
        if not self.settings.query_length:
            del values["settings"]["query_length"]
        for name in (
            "activation",
            "prompt",
            "parents",
            "thresholds",
            "decoder_layers",
            "shares_layers",
            "descriptions",
            "gliner",
            "columns",
        ):
            if not values[name]:
                del values[name]
        if not self.settings.label_thresholds:
            del values["settings"]["label_thresholds"]
        stored = {*_STORED_BY.get(self.kind, ()), *(OF_RANKING if self.ranks else ())}
        for name in {*OF_WRITING, *OF_EXTRACTS, *OF_RANKING, *OF_ENTITIES} - stored:
            del values["settings"][name]
        return values

    @property
    def similarity(self) -> str:
        """How the vectors of two texts are compared, see `vector_forms.SCALES`."""
        return VECTOR_FORMS[self.vectors].similarity_for(self.objective)

    @property
    def ranks(self) -> bool:
        """Whether it ranks candidates, and is scored by the rank of the right one."""
        return self.metric in RANK_METRICS and self.kind in CHOOSING

    @property
    def has_two_texts(self) -> bool:
        """Whether every row has two texts: pairs, or a context and an ending."""
        return self.kind == "choice" or self.pair is True

    @functools.cached_property
    def needs_segments(self) -> bool:
        """Whether the head has to tell the two texts of a row apart."""
        return self.reads in OF_TWO_TEXTS or (self.reads in READERS and self.has_two_texts)

    @staticmethod
    def from_dict(values: Mapping[str, Any], where: str) -> "TaskSpec":
        """The spec stored in a model's metadata."""
        parts: dict[str, Any] = {"settings": from_dict(TaskSettings, values.get("settings", {}), where)}
        if values.get("gliner") is not None:
            parts["gliner"] = from_dict(GlinerShape, values["gliner"], where)
        plain = {name: value for name, value in values.items() if name not in ("settings", "gliner")}
        return dataclasses.replace(from_dict(TaskSpec, plain, where), **parts)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Prediction(abc.ABC):
    """A task's prediction for one example."""

    cut_tokens: int = 0  # tokens of the example that were truncated

    @abc.abstractmethod
    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""

    @abc.abstractmethod
    def line(self) -> str:
        """One human-readable line, without a line break."""

    @property
    def outcome(self) -> str | float:
        """What is predicted, without probabilities: a number, or else by default the line."""
        return self.line()

    @property
    def confidence(self) -> float | None:
        """The probability of the outcome; None (the default) if the model gives none."""
        return None


class Task(abc.ABC):
    """One kind of task; all methods depend only on the spec, the seed and their arguments."""

    kind: ClassVar[str]
    seed: int = 0  # of what is drawn for training examples
    # The fields of `TaskSettings` that this kind uses, besides max_length.
    settings_used: ClassVar[frozenset[str]]
    # Whether the steps of an epoch are counted by examples although windows are trained separately.
    epochs_count_examples: ClassVar[bool] = False
    # Of entities that may share words: the most for each word, words of the longest, whether they do unless asked.
    max_entities: tuple[int, int, bool] = (0, 0, False)
    weighs_examples: ClassVar[bool] = False  # whether its loss knows weights of examples

    def __init__(self, spec: TaskSpec) -> None:
        assert spec.kind == self.kind, f"a spec of {spec.kind} for {self.kind}"
        self.spec = spec

    @property
    def settings_of_answers(self) -> tuple[str, ...]:
        """Those of `settings_used` that only say which answers are given, so that a caller may choose them."""
        return ()

    @property
    @abc.abstractmethod
    def baselines(self) -> tuple[str, ...]:
        """The names of its baselines, in the order in which they are shown."""

    @property
    @abc.abstractmethod
    def head(self) -> Head:
        """The layer on top of the encoder."""

    @abc.abstractmethod
    def check(self, examples: Sequence[Example], *, gold: bool, training: bool = False) -> None:
        """Checks that every example can be encoded.

        Args:
            gold: the examples must have labels; unknown labels cause a warning and count as errors.
            training: the examples are for training, so their labels must be known.
        """

    def tokenized(
        self, examples: Sequence[Any], tokenizer: Tokenizer, known: dict[str, Encoded] | None = None
    ) -> Sequence[Any]:
        """The examples with the pieces of their texts, which `encode` takes as they are; see `specs.tokenized`."""
        return tokenized(examples, tokenizer, (self.spec.prompt, ""), known=known)

    def tokens_of_rows(self, example: Any, template: Template) -> list[int]:
        """The tokens of each row that a tokenized example would fill without a limit; see `specs.tokenized`."""
        return tokens_of_rows(example, template)

    @abc.abstractmethod
    def encode(self, examples: Sequence[Example], tokenizer: Tokenizer, *, training: bool = False) -> EncodedExamples:
        """The examples as rows, with targets if they have labels."""

    @abc.abstractmethod
    def decode(
        self, examples: Sequence[Example], features: EncodedExamples, logits: Logits, tokenizer: Tokenizer
    ) -> Sequence[Prediction]:
        """One prediction per example, in the same order.

        Args:
            logits: float32 [R, K], at all positions that the head reads, in the order of the features.
        """

    @abc.abstractmethod
    def score(self, examples: Sequence[Example], predictions: Sequence[Any]) -> dict[str, float]:
        """The official scores, as fractions or coefficients (SQuAD: percent, as its scorer prints)."""

    @abc.abstractmethod
    def example_scores(self, examples: Sequence[Example], predictions: Sequence[Any]) -> npt.NDArray[np.float64]:
        """Each example's contribution to the main score: 0 or 1, F1 or negative squared error; float64 [E]."""

    def golds(self, examples: Sequence[Example]) -> list[Any]:
        """The right answers to labelled examples, plain values for JSON: labels, tags or numbers."""
        return [getattr(example, "label", getattr(example, "tags", None)) for example in examples]

    def of_vectors(self) -> "Task":
        """The task that compares vectors of the same texts, whose cosines are a baseline; by default this one."""
        return self

    @abc.abstractmethod
    def is_collapsed(self, predictions: Sequence[Any], examples: Sequence[Example]) -> bool:
        """Whether the model gives the same answer to every example although the gold labels differ."""

    def ignored_settings(self) -> list[str]:
        """The names of settings that were changed but have no effect on this task."""
        plain, used = TaskSettings(), self.settings_used | {"max_length"}
        names = (field.name for field in dataclasses.fields(TaskSettings))
        return [
            name for name in names if name not in used and getattr(self.spec.settings, name) != getattr(plain, name)
        ]

    def why_ignored(self, name: str) -> str:
        """Why a setting among the ignored ones has no effect."""
        return f"it has no effect on {self.spec.title}"

    def answer_without_model(self, example: Example) -> Prediction | None:
        """The prediction for an example with nothing for the model to read; None (the default) for all others."""
        return None

    def answers_by_rule(self, name: str, examples: Sequence[Example]) -> Sequence[Prediction] | None:
        """The predictions of a baseline that learns nothing, by its name; None (the default) for all others."""
        return None

    def averaged(self, predictions: Sequence[Sequence[Any]]) -> Sequence[Prediction] | None:
        """The mean of the predictions of several models of this task; None (the default) for a task without a mean."""
        return None

    @property
    def selection_metric(self) -> str:
        """The score by which the best epoch is selected."""
        return self.spec.metric

    def tuned(self, examples: Sequence[Example], predictions: Sequence[Any]) -> TaskSpec:
        """The spec with values fitted on dev data after training, such as a threshold; unchanged by default."""
        return self.spec

    def cross_fitted(self, examples: Sequence[Example], predictions: Sequence[Any]) -> Sequence[Any] | None:
        """The predictions with values fitted as in `tuned`, but for each fold of the examples on the other folds.

        No example is scored with values that were fitted to it. None (the default) if a task fits
        nothing that changes its answers, or only values whose score its metric takes to be fitted, such as SQuAD 2.0.
        """
        return None

    def weighted(self, targets: npt.NDArray[np.generic], named: Mapping[str, float] | None = None) -> "Task":
        """The task with a loss in which all labels of the training examples weigh the same in total.

        Args:
            named: the weight of an example of each label instead, in proportion to each other; 1 for other labels.
        """
        raise ConfigError.needs("--class-weights", "a task of one label for each example", "use --class-weights none")

    def log_sums(self, sums: Mapping[str, float]) -> dict[str, float]:
        """The values of a training log line, from the sums of `loss`."""
        count = sums.get("count", 0.0)
        return {"accuracy": sums["correct"] / count} if count and "correct" in sums else {}

    def head_on_rows(self, outputs: int) -> Head:
        """A linear layer with `outputs` numbers on a vector of each row."""
        return Head(
            part="classifier",
            outputs=outputs,
            pooled=True,
            reads=self.spec.reads,
            is_pair=self.spec.has_two_texts,
            windows=HIERARCHICAL.get(self.spec.settings.long_text, ""),
            **self._bilstm(),
        )

    def head_on_tokens(self, part: str, outputs: int) -> Head:
        """A linear layer on the hidden states of the tokens, or on the states of a BiLSTM over them."""
        if self.spec.reads != BILSTM:
            return Head(part=part, outputs=outputs, pooled=False)
        return Head(part=part, outputs=outputs, pooled=False, reads=BILSTM, **self._bilstm())

    def _bilstm(self) -> dict[str, Any]:
        spec = self.spec
        return {"cells": spec.bilstm_cells, "layers": spec.bilstm_layers, "normalized": spec.normalize_layers}


class TaskWithLoss(Task):
    """A kind of task whose logits have a loss for each target; one of vectors compares the texts of a step instead."""

    @abc.abstractmethod
    def loss(self, logits: "Tensor", batch: "TaskBatch") -> "tuple[Tensor, dict[str, Tensor]]":
        """The loss summed over the targets of a micro-batch, in fp32, and sums for the log.

        Args:
            logits: [r, K], at the positions that the head reads.
        """

    @abc.abstractmethod
    def soft_loss(self, logits: "Tensor", wanted: "Tensor", batch: "TaskBatch", temperature: float) -> "Tensor":
        """The loss against the logits of a teacher, summed over the targets of a micro-batch, in at least fp32.

        Args:
            logits: [r, K], at the positions that the head reads.
            wanted: the teacher's, [r, K].
            temperature: of both distributions; numbers have none.
        """


def with_loss(task: Task) -> TaskWithLoss:
    """The task, for what reads its loss."""
    if not isinstance(task, TaskWithLoss):
        raise ConfigError(
            expected="a task whose logits are compared with labels or numbers",
            found=f"{task.spec.title}, which compares vectors",
            fix="name a model of another kind of task",
        )
    return task
