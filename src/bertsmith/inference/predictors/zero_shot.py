"""Classification of texts by labels that are only named, with models that were not trained on them.

Letters: E texts, K labels, D width of a vector.

Two kinds of model do it. A sentence encoder compares the vector of a text with that of each label, the mean of the
vectors of its name, its description and its examples; if there are examples, a linear model on all these vectors
decides as much, and alone for several labels. A model of entailment reads each text with a sentence that says that it
has the label. The log-probabilities of several models are averaged.

Source: Yin, Hay and Roth (2019), "Benchmarking Zero-shot Text Classification", for entailment.
"""

import abc
import dataclasses
import functools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from bertsmith.base.core.errors import CheckpointError, InputError, NotFiniteError
from bertsmith.base.core.progress import counted, tell, warn
from bertsmith.base.core.settings import require
from bertsmith.base.machine.runtime import Runtime
from bertsmith.inference.predictors.loading import load_predictor, said_weak
from bertsmith.inference.predictors.named_labels import NONE, NamedLabel
from bertsmith.inference.predictors.pair_scorer import entailed_label
from bertsmith.inference.predictors.predictor import Predictor
from bertsmith.inference.vectors.embedder import Embedder
from bertsmith.models.checkpoints.load import load_any
from bertsmith.models.checkpoints.model_folder import ModelFolder
from bertsmith.models.checkpoints.onnx_folder import is_onnx_folder
from bertsmith.models.checkpoints.sentence_transformers import read_recipe
from bertsmith.models.model_files.metadata import SIMILARITY, n_gram_folder, read_metadata
from bertsmith.tasks.baselines.linear import LinearModel, fit_linear
from bertsmith.tasks.datasets.examples import Example, TextExample, is_blank
from bertsmith.tasks.datasets.labels import labels_of
from bertsmith.tasks.encoding.engine import TASK
from bertsmith.tasks.encoding.row_encoder import Vectors
from bertsmith.tasks.metrics.calibration import HIGHEST_TEMPERATURE, LOWEST_TEMPERATURE, fit_temperature, softmax
from bertsmith.tasks.metrics.vectors import unit
from bertsmith.tasks.specs.classification import ClassificationTask, label_matrix
from bertsmith.tasks.specs.predictions import LabelPrediction
from bertsmith.tasks.specs.task import Prediction, TaskSpec
from bertsmith.tasks.specs.tokenized import tokenized, tokens_of_rows
from bertsmith.tasks.specs.whole_texts import pooled_logits
from bertsmith.tasks.task_data.spec_of_model import spec_of
from bertsmith.text.tokenizers.encoded import Encoded
from bertsmith.text.tokenizers.tokenizer import Tokenizer

TEMPLATE = "This example is {}."  # of transformers' pipeline
SLOT = "{}"
_CONTRADICTION = "contradict"  # what the name of the label begins with
_TEMPERATURE = 0.07  # of cosines; chosen on the data of benchmarks/zero_shot.py
_UNRELATED = 0.3  # a text has a label that is alone from this cosine on
_MOST_PAIRS = 4096  # of texts and labels that are read together
_LEAST = 1e-12  # probability
_TRIED = [number / 100 for number in range(100)]  # thresholds

Scores = npt.NDArray[np.float64]


class Scorer(abc.ABC):
    """A model that scores labels.

    Attributes:
        tokenizer, runtime: of the model.
    """

    tokenizer: Tokenizer
    runtime: Runtime

    @abc.abstractmethod
    def tokenized(self, texts: Sequence[TextExample]) -> list[TextExample]:
        """The texts with their pieces, which `scores` takes as they are."""

    @abc.abstractmethod
    def tokens_of_rows(self, text: TextExample) -> list[int]:
        """The tokens of each row that a tokenized text would fill without a limit."""

    @property
    def tokens_of_labels(self) -> list[int]:
        """The tokens of each row of labels alone that `scores` has yet to read."""
        return []

    @abc.abstractmethod
    def scores(self, texts: Sequence[TextExample]) -> tuple[Scores, Sequence[int]]:
        """Logits of the labels of each text, of one label or of several, [E, K], and its truncated tokens."""


class LabelVectors(Scorer):
    """A sentence encoder, with a vector for each label.

    Args:
        multi_label: the scores are log-odds of each label, not logits of one.
    """

    def __init__(self, embedder: Embedder, labels: Sequence[NamedLabel], *, multi_label: bool) -> None:
        self._embedder, self._multi_label = embedder, multi_label
        self.tokenizer, self.runtime = embedder.encoder.tokenizer, embedder.encoder.runtime
        texts = [(label.in_words, label.description, *label.examples) for label in labels]
        self._owners = np.repeat(np.arange(len(labels)), [sum(map(bool, of_label)) for of_label in texts])
        self._labels, self._has_examples = labels, any(label.examples for label in labels)
        self._encoded = embedder.encode([text for of_label in texts for text in of_label if text])

    @functools.cached_property
    def _of_labels(self) -> tuple[Vectors, LinearModel | None]:
        """The vector of each label, [K, D], and the linear model, if there are examples."""
        try:
            vectors, count = unit(self._embedder.embed_encoded(self._encoded)[0]), len(self._labels)
        except NotFiniteError as error:
            raise InputError(
                expected=f"numbers from the model for the label {self._labels[self._owners[error.index]].name!r}",
                found="NaN or infinity",
                fix="name another one, or use another model",
            ) from None
        means = unit(np.stack([vectors[self._owners == number].mean(axis=0) for number in range(count)]))
        if not self._has_examples:
            return means, None
        golds: Any = np.eye(count, dtype=np.float32)[self._owners] if self._multi_label else self._owners
        return means, fit_linear(vectors, golds, num_outputs=count)

    def tokenized(self, texts: Sequence[TextExample]) -> list[TextExample]:
        """See `Scorer.tokenized`."""
        prompt = self._embedder.prompt
        return tokenized(texts, self.tokenizer, (prompt, prompt), "own" if self._embedder.special_tokens else False)

    def tokens_of_rows(self, text: TextExample) -> list[int]:
        """See `Scorer.tokens_of_rows`."""
        return tokens_of_rows(text, self.tokenizer.template)

    @property
    def tokens_of_labels(self) -> list[int]:
        """See `Scorer.tokens_of_labels`."""
        is_read = "_of_labels" in vars(self)
        return [] if is_read else (self._encoded.lengths + self.tokenizer.template.num_special(1)).tolist()

    def scores(self, texts: Sequence[TextExample]) -> tuple[Scores, Sequence[int]]:
        """See `Scorer.scores`."""
        of_labels, linear = self._of_labels
        pieces = [text.pieces for text in texts if text.pieces is not None]
        has_pieces = len(pieces) == len(texts)
        encoded = Encoded.joined(pieces) if has_pieces else self._embedder.encode([text.first for text in texts])
        vectors, cut = self._embedder.embed_encoded(encoded)
        vectors = unit(vectors)
        # Not a matrix product, whose last digits depend on how many texts there are.
        cosines = np.stack([(vectors * vector).sum(axis=1) for vector in of_labels], axis=1)
        # A text may have several labels: those that are nearer to it than the labels are on average.
        usual = cosines.mean(axis=1, keepdims=True) + _TEMPERATURE if len(of_labels) > 1 else _UNRELATED
        near = (cosines.astype(np.float64) - usual) / _TEMPERATURE
        if linear is None:
            return near, cut.tolist()
        outputs = linear.outputs(vectors[:, None])[:, 0].astype(np.float64)  # row by row, as above
        return (outputs if self._multi_label else averaged([near, outputs], multi_label=False)), cut.tolist()


class Entailment(Scorer):
    """A model of pairs that says whether the second text follows from the first.

    The scores equal those of the pipeline zero-shot-classification of transformers: for one label, the logits of
    entailment; for several, the log-odds of entailment against contradiction. Those of several templates are averaged.
    Of a label with a description, this is in the slot, not the name.

    Args:
        source: the model as the user named it.
        templates: sentences with a slot, {}.
    """

    def __init__(
        self,
        predictor: Predictor,
        labels: Sequence[NamedLabel],
        *,
        source: object,
        templates: Sequence[str],
        multi_label: bool,
    ) -> None:
        spec = predictor.task.spec
        names = [label.lower() for label in spec.labels]
        entailed = entailed_label(spec)
        if entailed is None or not predictor.reads_pieces:
            shown = f"with the labels {', '.join(spec.labels[:5])}" if spec.labels else f"for {spec.title}"
            shown = shown if predictor.reads_pieces else f"on words alone {shown}"
            raise CheckpointError(
                expected="a sentence encoder, or a model of pairs with a label that begins with 'entail'",
                found=f"'{source}', a model {shown}",
                fix="name another model, such as starter; or call `predict`, if it knows these labels",
            )
        with_examples = next((label.name for label in labels if label.examples), None)
        require(
            with_examples is None,
            expected="labels without examples, which a model of entailment does not use",
            found=f"some of {with_examples!r}",
            fix="leave them out, or name a sentence encoder",
        )
        against = next((number for number, name in enumerate(names) if name.startswith(_CONTRADICTION)), None)
        self._columns = (entailed, (len(names) - 1 if entailed == 0 else 0) if against is None else against)
        self._predictor, self._multi_label = predictor, multi_label
        self.tokenizer, self.runtime = predictor.tokenizer, predictor.runtime
        self._sentences = [
            template.replace(SLOT, label.description or label.name) for label in labels for template in templates
        ]
        self._templates = len(templates)
        self._pieces = self.tokenizer.encode_batch(self._sentences).split([1] * len(self._sentences))

    def tokenized(self, texts: Sequence[TextExample]) -> list[TextExample]:
        """See `Scorer.tokenized`."""
        return list(self._predictor.tokenized(texts))

    def tokens_of_rows(self, text: TextExample) -> list[int]:
        """See `Scorer.tokens_of_rows`."""
        task, template = self._predictor.task, self.tokenizer.template
        return [tokens for pair in self._pairs([text]) for tokens in task.tokens_of_rows(pair, template)]

    def _pairs(self, texts: Sequence[TextExample]) -> list[TextExample]:
        """Each of the tokenized texts with each sentence about a label."""
        return [
            dataclasses.replace(text, second=sentence, pieces=Encoded.joined([cast("Encoded", text.pieces), pieces]))
            for text in texts
            for sentence, pieces in zip(self._sentences, self._pieces, strict=True)
        ]

    def scores(self, texts: Sequence[TextExample]) -> tuple[Scores, Sequence[int]]:
        """See `Scorer.scores`."""
        count, parts, cut = max(1, _MOST_PAIRS // len(self._sentences)), [], list[int]()
        for start in range(0, len(texts), count):
            try:
                values, lost = self._scores(texts[start : start + count])
            except NotFiniteError as error:  # of a pair
                raise NotFiniteError(start + error.index // len(self._sentences), "") from None
            parts.append(values)
            cut += lost
        return np.concatenate(parts), cut

    def _scores(self, texts: Sequence[TextExample]) -> tuple[Scores, list[int]]:
        task, width = self._predictor.task, len(self._sentences)
        known = all(text.pieces is not None for text in texts)
        features = task.encode(self._pairs(texts if known else self.tokenized(texts)), self.tokenizer)
        raw = self._predictor.engine.logits(features, TASK)
        logits = pooled_logits(raw, features, task.spec.settings.pooling)[:, self._columns].astype(np.float64)
        values = logits[:, 0] - logits[:, 1] if self._multi_label else logits[:, 0]
        cut = np.add.reduceat(features.rows.cut_by_row, features.first_rows).reshape(-1, width).max(axis=1)
        return values.reshape(len(texts), -1, self._templates).mean(axis=2), cut.tolist()


class ZeroShotPredictor(Predictor):
    """One or several models that choose among named labels.

    Args:
        labels: their names.
        threshold: for one label, the lowest probability of an answer that is not `NONE`; for several, that from which a
            label is predicted. None: 0, and 0.5.
    """

    task: ClassificationTask

    def __init__(
        self, scorers: Sequence[Scorer], labels: Sequence[str], *, multi_label: bool, threshold: float | None
    ) -> None:
        self._scorers, self._threshold = scorers, threshold
        self.tokenizer, self.runtime = scorers[0].tokenizer, scorers[0].runtime
        spec = TaskSpec(
            kind="classification",
            name="multi-label" if multi_label else "classification",
            labels=tuple(labels),
            multi_label=multi_label,
            threshold=threshold if multi_label else None,
        )
        self.task = ClassificationTask(spec)
        self._scale, self._shift = 1.0, 0.0  # of log-odds, fitted by `calibrate`

    def _answers(self, examples: Sequence[Example], advance: Callable[[float], None] | None) -> Sequence[Prediction]:
        self._require_readable(examples)
        scores, cut = self._scores(examples)
        predictions = self.task.decided(self.task.probabilities(scores), cut)
        if advance is not None:
            advance(1.0)
        if self.task.spec.multi_label or not self._threshold:
            return predictions
        return [self._or_none(prediction, self._threshold) for prediction in predictions]

    def _require_readable(self, examples: Sequence[Example]) -> None:
        for example in examples:
            if is_blank(example):
                location = getattr(example, "location", "")
                raise InputError.at(location, "a text", "an empty one", "leave it out")

    def _scores(self, examples: Sequence[Any]) -> tuple[Scores, Sequence[int]]:
        several = [scorer.scores(examples) for scorer in self._scorers]
        cut = np.max([lost for _, lost in several], axis=0).tolist()
        scores = averaged([values for values, _ in several], multi_label=self.task.spec.multi_label)
        return self._scale * scores + self._shift, cut

    def _or_none(self, prediction: LabelPrediction, threshold: float) -> LabelPrediction:
        if prediction.probability >= threshold:
            return prediction
        return dataclasses.replace(prediction, label=NONE, chosen=(NONE,))

    def calibrate(self, examples: Sequence[TextExample], source: str) -> None:
        """Fits the probabilities to labelled texts, by their likelihood, and the threshold, if none was given.

        For one label, a temperature; for several, the slope and the offset of the log-odds. For one label, the
        threshold is the one with most right answers, if there are texts with the label `NONE`.

        Args:
            source: of the examples, for messages.
        """
        spec, known = self.task.spec, {*self.task.spec.labels, NONE}
        for example in examples:
            unknown = [label for label in labels_of(example) if label not in known]
            if unknown:
                raise InputError.at(
                    example.location, "one of the named labels", repr(unknown[0]), "name it or correct it"
                )
        self._require_readable(examples)
        scores, _ = self._scores(examples)
        if spec.multi_label:
            gold = label_matrix(map(labels_of, examples), spec.labels).reshape(-1)
            require(
                0 < gold.sum() < len(gold),
                expected=f"texts with and without some label in {source}",
                found="only one kind",
                fix="add others",
            )
            line = fit_linear(
                scores.reshape(-1, 1).astype(np.float32), gold.astype(np.int64), num_outputs=2, penalties=(1.0,)
            )
            scale, shift = (float(values[1] - values[0]) for values in (line.weight[:, 0], line.bias))
            if scale <= 0:
                warn(f"{source}: scores are no higher for the right labels; the probabilities are not calibrated")
                return
            self._scale, self._shift = scale, shift
            tell(f"calibrated on {counted(len(examples), 'text')}: log-odds x {self._scale:.3f} + {self._shift:.3f}")
            return
        number = {label: index for index, label in enumerate(spec.labels)}
        golds = np.array([number.get(labels_of(example)[0], -1) for example in examples])
        rows = golds >= 0
        temperature = fit_temperature(scores[rows], golds[rows]) if rows.any() else 1.0
        if temperature in (LOWEST_TEMPERATURE, HIGHEST_TEMPERATURE):
            warn(f"{source}: no temperature fits; the probabilities are not calibrated")
            temperature = 1.0
        self.task = ClassificationTask(dataclasses.replace(spec, temperature=temperature))
        probabilities = self.task.probabilities(scores)
        best, highest = probabilities.argmax(axis=1), probabilities.max(axis=1)

        def right_above(threshold: float) -> float:
            return float((np.where(highest >= threshold, best, -1) == golds).mean())

        if self._threshold is None and not rows.all():
            self._threshold = max(_TRIED, key=right_above)
        above = f", threshold {self._threshold:.2f}" if self._threshold else ""
        tell(
            f"calibrated on {counted(len(examples), 'text')}: temperature {temperature:.3f}{above}; "
            f"{right_above(self._threshold or 0.0):.1%} of them are answered correctly"
        )


def averaged(scores: Sequence[Scores], *, multi_label: bool) -> Scores:
    """The mean of log-odds, or of the log-probabilities of one label; a single one as it is."""
    if len(scores) == 1:
        return scores[0]
    if multi_label:
        return np.asarray(np.mean(scores, axis=0))
    return np.asarray(np.mean([np.log(np.maximum(softmax(values), _LEAST)) for values in scores], axis=0))


def load_scorer(
    source: str | Path,
    labels: Sequence[NamedLabel],
    *,
    templates: Sequence[str],
    prompt: str | None,
    multi_label: bool,
    **compute: Any,
) -> Scorer:
    """The scorer of a model: that of entailment for a model with a task head, else that of vectors.

    Raises:
        CheckpointError: the model is neither.
    """
    if (model := _with_task(source)) is not None:
        predictor = said_weak(load_predictor(model, **compute), source)
        return Entailment(predictor, labels, source=source, templates=templates, multi_label=multi_label)
    from bertsmith.inference.vectors.loading import load_embedder

    return LabelVectors(load_embedder(source, prompt=prompt, **compute), labels, multi_label=multi_label)


def _with_task(source: str | Path) -> str | Path | ModelFolder | None:
    """A model that was fine-tuned for a task that is not one of vectors, opened if that had to be; None for others."""
    if read_recipe(Path(source)) is not None:
        return None
    if n_gram_folder(source) is not None:
        return source
    if is_onnx_folder(source):
        spec = read_metadata(Path(source)).spec
        return None if spec is None or spec.get("kind") == SIMILARITY else source
    folder = load_any(source)
    task = None if read_recipe(folder.path) is not None else spec_of(folder)
    return None if task is None or task.kind == SIMILARITY else folder
