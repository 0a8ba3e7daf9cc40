"""Classification of a text or a pair of texts: single-label or multi-label.

Letters: E examples (one unit each), N rows, K labels.

An example is one row. With `long_text = "windows"` it can be several, whose logits are pooled into one prediction.

Source: Devlin et al. (2018), section 4.1; `create_model` in the original run_classifier.py.
"""

import dataclasses
import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar, cast

import numpy as np
import numpy.typing as npt

from bertsmith.base.core.errors import InputError
from bertsmith.base.core.progress import counted, warn
from bertsmith.base.core.settings import require_known
from bertsmith.tasks.datasets.examples import Example, TextExample
from bertsmith.tasks.datasets.labels import check_known, labels_of
from bertsmith.tasks.encoding.units import EncodedExamples, Logits
from bertsmith.tasks.metrics.calibration import (
    FEWEST_GOLD,
    HIGHEST_TEMPERATURE,
    LOWEST_TEMPERATURE,
    all_but_one_fold,
    best_label_threshold,
    best_threshold,
    best_thresholds_of_labels,
    fit_temperature,
    softmax,
)
from bertsmith.tasks.metrics.labels import AT_METRICS, CLASS_METRICS, multi_label_scores, scores_at
from bertsmith.tasks.specs.named_tasks import FIXED_LABELS
from bertsmith.tasks.specs.predictions import LabelPrediction
from bertsmith.tasks.specs.task import OF_TEXTS, TaskSpec, TaskWithLoss
from bertsmith.tasks.specs.whole_texts import (
    NO_ORDER,
    check_texts,
    encode_units,
    pooled_logits,
    pooled_units,
)
from bertsmith.text.tokenizers.tokenizer import Tokenizer

if TYPE_CHECKING:
    from torch import Tensor

    from bertsmith.models.heads.head_spec import Head
    from bertsmith.tasks.encoding.units import TaskBatch

DEFAULT_THRESHOLD = 0.5
Values = TypeVar("Values", bound=np.generic)


class ClassificationTask(TaskWithLoss):
    """Predicts one or several of the spec's labels for each text or pair."""

    kind = "classification"
    baselines = OF_TEXTS
    settings_used = frozenset(
        {"long_text", "stride", "pooling", "calibrate", "tune_threshold", "label_thresholds", "both_orders"}
    )
    weighs_examples = True
    class_weights: npt.NDArray[np.float32] | None = None  # [K], of the loss in training

    @property
    def head(self) -> "Head":
        """A linear layer with one output per label on the vector of a row."""
        return self.head_on_rows(len(self.spec.labels))

    def check(self, examples: Sequence[Example], *, gold: bool, training: bool = False) -> None:
        """Checks that texts and labels are present and, with `training`, that labels are known; see `Task.check`."""
        check_texts(examples, pair=self.spec.pair, gold=gold)
        if gold:
            for example in examples:
                assert isinstance(example, TextExample)
                if example.label is None:
                    raise InputError.at(example.location, "a label", "none", "label or remove the row")
                if not self.spec.multi_label and len(labels_of(example)) != 1:
                    raise InputError.at(example.location, "one label", str(len(labels_of(example))), "correct the row")
            fixed = self.spec.name if self.spec.name in FIXED_LABELS else ""
            check_known(examples, self.spec.labels, training=training, fixed=fixed)

    def encode(self, examples: Sequence[Example], tokenizer: Tokenizer, *, training: bool = False) -> EncodedExamples:
        """One unit per example; see `Task.encode`."""
        texts = cast("Sequence[TextExample]", examples)
        return encode_units(self.spec, texts, self.targets(texts), tokenizer, training=training)

    def targets(self, examples: Sequence[TextExample]) -> npt.NDArray[np.generic] | None:
        """int64 [E], or float32 [E, K] for multi-label tasks; None without known gold labels."""
        number = {label: index for index, label in enumerate(self.spec.labels)}
        known = (e.label is not None and all(name in number for name in labels_of(e)) for e in examples)
        if not examples or not all(known):
            return None
        if not self.spec.multi_label:
            return np.array([number[labels_of(example)[0]] for example in examples], dtype=np.int64)
        targets = np.zeros((len(examples), len(number)), dtype=np.float32)
        for row, example in enumerate(examples):
            targets[row, [number[name] for name in labels_of(example)]] = 1
        return with_parents(targets, self.spec.labels, self.spec.parents)

    def loss(self, logits: "Tensor", batch: "TaskBatch") -> "tuple[Tensor, dict[str, Tensor]]":
        """Cross-entropy; for multi-label tasks, binary cross-entropy averaged over labels. See `TaskWithLoss.loss`."""
        import torch
        import torch.nn.functional as F

        assert batch.targets is not None
        scores = pooled_units(logits.float(), batch, self.spec.settings.pooling)  # [E, K]
        if self.spec.multi_label:
            losses = F.binary_cross_entropy_with_logits(scores, batch.targets, reduction="none").mean(-1)
            loss = batch.weighted(losses)
            correct = ((scores > 0) == (batch.targets > 0)).all(-1).sum()
        else:
            weights = None if self.class_weights is None else torch.from_numpy(self.class_weights).to(scores.device)
            if batch.weights is None:
                loss = F.cross_entropy(scores, batch.targets, weight=weights, reduction="sum")
            else:
                loss = batch.weighted(F.cross_entropy(scores, batch.targets, weight=weights, reduction="none"))
            correct = (scores.detach().argmax(-1) == batch.targets).sum()
        count = torch.tensor(batch.num_units, device=logits.device)
        return loss, {"nll": loss.detach(), "correct": correct, "count": count}

    def soft_loss(self, logits: "Tensor", wanted: "Tensor", batch: "TaskBatch", temperature: float) -> "Tensor":
        """The divergence of each example, the mean over the labels if it has several. See `TaskWithLoss.soft_loss`."""
        from bertsmith.tasks.specs.soft_targets import binary_divergence, divergence, exact

        pooling = self.spec.settings.pooling
        scores, gold = (pooled_units(exact(outputs), batch, pooling) for outputs in (logits, wanted))  # [E, K]
        if self.spec.multi_label:
            return binary_divergence(scores, gold, temperature).mean(-1).sum()
        return divergence(scores, gold, temperature).sum()

    def decode(
        self, examples: Sequence[Example], features: EncodedExamples, logits: Logits, tokenizer: Tokenizer
    ) -> list[LabelPrediction]:
        """One `LabelPrediction` per example; see `Task.decode`."""
        chances = self.probabilities(pooled_logits(logits, features, self.spec.settings.pooling))
        cut = np.add.reduceat(features.rows.cut_by_row, features.first_rows) if len(features) else ()
        return self.decided(chances, list(cut))

    def averaged(self, predictions: Sequence[Sequence[LabelPrediction]]) -> list[LabelPrediction]:
        """The predictions for the mean of the probabilities of several models; see `Task.averaged`."""
        chances = np.mean([[prediction.probabilities for prediction in of_model] for of_model in predictions], axis=0)
        return self.decided(
            chances, [max(prediction.cut_tokens for prediction in same) for same in zip(*predictions, strict=True)]
        )

    def decided(self, chances: npt.NDArray[np.float64], cut: Sequence[int]) -> list[LabelPrediction]:
        """The predictions for probabilities [E, K], with the truncated tokens of each example."""
        labels = self.spec.labels
        decides = self.spec.threshold is not None and _has_two_sides(self.spec)
        predictions = []
        for row, above, lost in zip(chances, _above_thresholds(self.spec, chances), cut, strict=True):
            best = int(above[1]) if decides else int(row.argmax())
            several = tuple(labels[index] for index in np.flatnonzero(above))
            predictions.append(
                LabelPrediction(
                    label=labels[best],
                    probability=float(row[best]),
                    probabilities=tuple(row.tolist()),
                    labels=labels,
                    chosen=several if self.spec.multi_label else (labels[best],),
                    cut_tokens=int(lost),
                )
            )
        return predictions

    def probabilities(self, logits: npt.NDArray[np.floating]) -> npt.NDArray[np.float64]:
        """float64 [E, K] from logits [E, K], scaled by the temperature of the spec."""
        scaled = logits.astype(np.float64) / self.spec.temperature
        if self.spec.multi_label:
            return with_parents(np.asarray(1 / (1 + np.exp(-scaled))), self.spec.labels, self.spec.parents)
        return softmax(scaled)

    def score(self, examples: Sequence[Example], predictions: Sequence[LabelPrediction]) -> dict[str, float]:
        """The metrics of the spec; for multi-label tasks, micro and macro F1 and subset accuracy."""
        if self.spec.multi_label:
            labels = self._with_unknown(examples)
            gold = self._gold_matrix(examples, labels)
            scores = multi_label_scores(gold, label_matrix((prediction.chosen for prediction in predictions), labels))
            if any(name in AT_METRICS for name in self.spec.metrics):
                chances = np.zeros(gold.shape)
                chances[:, : len(self.spec.labels)] = [prediction.probabilities for prediction in predictions]
                scores |= scores_at(gold, chances)
            return scores
        gold_numbers, predicted = self.numbers(examples, predictions)
        return {name: CLASS_METRICS[name](gold_numbers, predicted) for name in self.spec.metrics}

    def _gold_matrix(self, examples: Sequence[Example], labels: Sequence[str]) -> npt.NDArray[np.bool_]:
        """Whether each example has each label, parents included, bool [E, K]."""
        return with_parents(label_matrix(map(labels_of, examples), labels), labels, self.spec.parents)

    def golds(self, examples: Sequence[Example]) -> list[Any]:
        """See `Task.golds`; several labels include their parents, after the labels of the example."""
        if not self.spec.multi_label:
            return super().golds(examples)
        labels = self._with_unknown(examples)
        closed = [list(itertools.compress(labels, row)) for row in self._gold_matrix(examples, labels)]
        both = zip(map(labels_of, examples), closed, strict=True)
        return [list(dict.fromkeys([*named, *all_names])) for named, all_names in both]

    def numbers(
        self, examples: Sequence[Example], predictions: Sequence[LabelPrediction]
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """The gold and the predicted label indices, int64 [E] each; single-label only.

        A gold label that the spec does not have gets an index after the known ones, which is never predicted.
        """
        number = {label: index for index, label in enumerate(self._with_unknown(examples))}
        gold = [number[labels_of(example)[0]] for example in examples]
        return np.array(gold, dtype=np.int64), np.array([number[p.label] for p in predictions], dtype=np.int64)

    def _with_unknown(self, examples: Sequence[Example]) -> tuple[str, ...]:
        """The labels of the spec, followed by the labels that only the examples have."""
        gold = {name for example in examples for name in labels_of(example)}
        return (*self.spec.labels, *sorted(gold - set(self.spec.labels)))

    def example_scores(
        self, examples: Sequence[Example], predictions: Sequence[LabelPrediction]
    ) -> npt.NDArray[np.float64]:
        """1 if exactly the gold labels are predicted, else 0, float64 [E]."""
        pairs = zip(examples, predictions, strict=True)
        if not self.spec.parents:
            return np.array(
                [set(labels_of(example)) == set(prediction.chosen) for example, prediction in pairs], dtype=np.float64
            )
        labels = self._with_unknown(examples)
        chosen = label_matrix((prediction.chosen for prediction in predictions), labels)
        return np.asarray((self._gold_matrix(examples, labels) == chosen).all(axis=1), dtype=np.float64)

    def ignored_settings(self) -> list[str]:
        """The ignored settings of `Task`, plus what this number of labels has no use for."""
        ignored, settings = super().ignored_settings(), self.spec.settings
        ignored += ["calibrate"] if self.spec.multi_label and settings.calibrate else []
        ignored += ["label_thresholds"] if settings.label_thresholds and not self.spec.multi_label else []
        ignored += ["both_orders"] if settings.both_orders and self.spec.pair is False else []
        decides = self.spec.multi_label or _has_two_sides(self.spec)
        return [*ignored, "tune_threshold"] if settings.tune_threshold and not decides else ignored

    def why_ignored(self, name: str) -> str:
        """Why a setting has no effect; see `Task.why_ignored`."""
        if name == "tune_threshold":
            return f"the threshold decides between two labels, and this task has {len(self.spec.labels)}"
        if name == "label_thresholds":
            return "it needs texts with several labels each, and here a text has one"
        if name == "both_orders":
            return NO_ORDER
        if name == "calibrate":
            return "it needs one label for each text, and a text can have several"
        return super().why_ignored(name)

    def tuned(self, examples: Sequence[Example], predictions: Sequence[LabelPrediction]) -> TaskSpec:
        """The spec with values fitted to the dev examples: a temperature if `calibrate` is set, then a threshold.

        The temperature maximizes the likelihood of the dev labels; it is unchanged if there is no optimum: all answers
        are correct, or they are no better than chance. The threshold, with `tune_threshold`, maximizes the metric; with
        `label_thresholds`, each label gets one, see `best_thresholds_of_labels`.
        """
        spec = self._calibrated(examples, predictions) if self.spec.settings.calibrate else self.spec
        if _tunes_labels(spec):
            asked = self._gold_matrix(examples, spec.labels)
            few = int((asked.sum(axis=0) < FEWEST_GOLD).sum())
            if few and spec.settings.label_thresholds:
                num_labels = counted(len(spec.labels), "label")
                warn(f"{few} of {num_labels} have fewer than {FEWEST_GOLD} dev examples and share one threshold")
            fitted = self._fitted_to(asked, _chances(predictions))
            if spec.settings.label_thresholds and not fitted.thresholds:
                warn("label_thresholds has no effect: with the parents of the chosen labels, one threshold is better")
            return fitted
        if not (spec.settings.tune_threshold and _has_two_sides(spec)):
            return spec
        gold, _ = self.numbers(examples, predictions)
        # Temperatures keep the order, but thresholds are compared with the probabilities that a reader sees.
        probabilities = np.array([prediction.probabilities[1] for prediction in predictions])
        if spec.temperature != self.spec.temperature:
            odds = np.log(np.clip(probabilities, 1e-300, 1)) - np.log(np.clip(1 - probabilities, 1e-300, 1))
            probabilities = 1 / (1 + np.exp(-odds * self.spec.temperature / spec.temperature))
        return dataclasses.replace(spec, threshold=best_threshold(gold, probabilities, CLASS_METRICS[spec.metric]))

    def cross_fitted(
        self, examples: Sequence[Example], predictions: Sequence[LabelPrediction]
    ) -> list[LabelPrediction] | None:
        """The predictions with a threshold that was fitted to the other folds; see `Task.cross_fitted`."""
        spec = self.spec
        if _tunes_labels(spec):
            return self._cross_fitted_labels(examples, predictions)
        if not (spec.settings.tune_threshold and _has_two_sides(spec)):
            return None
        gold, _ = self.numbers(examples, predictions)
        probabilities = np.array([prediction.probabilities[1] for prediction in predictions])
        result = list(predictions)
        for others in all_but_one_fold(len(gold)):
            fitted = DEFAULT_THRESHOLD
            if others.any():
                fitted = best_threshold(gold[others], probabilities[others], CLASS_METRICS[spec.metric])
            for index in np.flatnonzero(~others).tolist():
                label = spec.labels[int(probabilities[index] >= fitted)]
                chance = predictions[index].probabilities[spec.labels.index(label)]
                changed = {"label": label, "probability": chance, "chosen": (label,)}
                result[index] = dataclasses.replace(predictions[index], **changed)  # type: ignore[arg-type]
        return result

    def _cross_fitted_labels(
        self, examples: Sequence[Example], predictions: Sequence[LabelPrediction]
    ) -> list[LabelPrediction]:
        """The predictions of several labels with thresholds that were fitted to the other folds."""
        gold, chances = self._gold_matrix(examples, self.spec.labels), _chances(predictions)
        result = list(predictions)
        for others in all_but_one_fold(len(gold)):
            fitted = dataclasses.replace(self.spec, threshold=None, thresholds=())
            if others.any():
                fitted = self._fitted_to(gold[others], chances[others])
            above = _above_thresholds(fitted, chances)
            for index in np.flatnonzero(~others).tolist():
                chosen = tuple(self.spec.labels[column] for column in np.flatnonzero(above[index]))
                result[index] = dataclasses.replace(predictions[index], chosen=chosen)
        return result

    def _fitted_to(self, gold: npt.NDArray[np.bool_], chances: npt.NDArray[np.float64]) -> TaskSpec:
        """The spec with the threshold, or the thresholds, for gold labels bool [E, K] and probabilities [E, K]."""
        common = best_label_threshold(gold, chances, self._thresholded)
        fitted = dataclasses.replace(self.spec, threshold=common, thresholds=())
        if not self.spec.settings.label_thresholds:
            return fitted
        thresholds = best_thresholds_of_labels(gold, chances, common, macro=self.spec.metric == "macro_f1")
        of_labels = dataclasses.replace(fitted, thresholds=thresholds)
        if not self.spec.parents:
            return of_labels
        # The search leaves out the parents of chosen labels, so its result can be worse than the common threshold.
        scores = [self._thresholded(gold, _above_thresholds(spec, chances)) for spec in (fitted, of_labels)]
        return fitted if scores[0] > scores[1] else of_labels

    def _thresholded(self, gold: npt.ArrayLike, predicted: npt.ArrayLike) -> float:
        """The score of several labels for which a threshold is fitted: the metric of the spec, or else micro F1."""
        scores = multi_label_scores(gold, predicted)
        return scores.get(self.spec.metric, scores["micro_f1"])

    def weighted(
        self, targets: npt.NDArray[np.generic], named: Mapping[str, float] | None = None
    ) -> "ClassificationTask":
        """The task with weights of its labels, whose mean over examples is 1; see `Task.weighted`."""
        if self.spec.multi_label:
            super().weighted(targets, named)
        counts = np.bincount(np.asarray(targets, dtype=np.int64), minlength=len(self.spec.labels))
        weights = np.zeros(len(counts), dtype=np.float32)
        if named is None:
            weights[counts > 0] = len(targets) / ((counts > 0).sum() * counts[counts > 0])
        else:
            for label in named:
                require_known("label of --class-weights", label, self.spec.labels)
            asked = np.array([named.get(label, 1.0) for label in self.spec.labels])
            weights[:] = asked * (len(targets) / (asked * counts).sum())
        task = ClassificationTask(self.spec)
        task.class_weights = weights
        return task

    def _calibrated(self, examples: Sequence[Example], predictions: Sequence[LabelPrediction]) -> TaskSpec:
        if self.spec.multi_label:
            return self.spec
        gold, predicted = self.numbers(examples, predictions)
        # Softmax of log-probabilities gives the same as softmax of the logits, here at temperature 1.
        chances = np.array([prediction.probabilities for prediction in predictions])
        logits = np.log(np.maximum(chances, np.finfo(np.float64).tiny)) * self.spec.temperature
        known = gold < len(self.spec.labels)  # unknown labels have no predicted probability
        temperature = fit_temperature(logits[known], gold[known])
        if temperature in (LOWEST_TEMPERATURE, HIGHEST_TEMPERATURE):
            right = int((gold == predicted).sum())
            warn(f"calibrate has no effect: no temperature fits, {right:,} of {len(gold):,} dev examples are correct")
            return self.spec
        return dataclasses.replace(self.spec, temperature=temperature)

    def is_collapsed(self, predictions: Sequence[LabelPrediction], examples: Sequence[Example]) -> bool:
        """Whether every text gets the same labels although the gold labels differ."""
        gold = {labels_of(example) for example in examples}
        return len(gold) > 1 and len({prediction.chosen for prediction in predictions}) == 1


def _has_two_sides(spec: TaskSpec) -> bool:
    """Whether a text has one of two labels, so that a threshold decides between them."""
    return not spec.multi_label and len(spec.labels) == 2


def _tunes_labels(spec: TaskSpec) -> bool:
    return spec.multi_label and (spec.settings.tune_threshold or spec.settings.label_thresholds)


def _above_thresholds(spec: TaskSpec, chances: npt.NDArray[np.float64]) -> npt.NDArray[np.bool_]:
    """Whether each label is at or above its threshold, or a label below it in the hierarchy is, bool [E, K]."""
    threshold = DEFAULT_THRESHOLD if spec.threshold is None else spec.threshold
    above = chances >= np.array(spec.thresholds or threshold)
    return with_parents(above, spec.labels, spec.parents) if spec.parents else above


def _chances(predictions: Sequence[LabelPrediction]) -> npt.NDArray[np.float64]:
    """The probabilities of all labels, float64 [E, K]."""
    return np.array([prediction.probabilities for prediction in predictions], dtype=np.float64)


def label_matrix(names: Iterable[Sequence[str]], labels: Sequence[str]) -> npt.NDArray[np.bool_]:
    """Whether each example has each label, bool [E, K]; names that are not labels are left out.

    >>> label_matrix([("b",), ("a", "x")], ("a", "b")).astype(int).tolist()
    [[0, 1], [1, 0]]
    """
    number = {label: column for column, label in enumerate(labels)}
    columns = [[number[name] for name in row if name in number] for row in names]
    result = np.zeros((len(columns), len(labels)), dtype=np.bool_)
    rows = np.repeat(np.arange(len(columns)), [len(row) for row in columns])
    result[rows, [column for row in columns for column in row]] = True
    return result


def with_parents(values: npt.NDArray[Values], labels: Sequence[str], parents: Sequence[str]) -> npt.NDArray[Values]:
    """Values of labels [E, K] in which each label has at least the highest value of its children.

    So a text that has a label has its parents, and a probability is not higher than a parent's.

    Args:
        labels: K names; labels that are not in `parents` have no parent.
        parents: the name of the parent of each label, "" if it has none; empty without a hierarchy.

    >>> with_parents(np.array([[0.1, 0.7, 0.2]]), ("a", "b", "c"), ("", "a", "b")).tolist()
    [[0.7, 0.7, 0.2]]
    """
    if not any(parents):
        return values
    number = {label: column for column, label in enumerate(labels)}
    above = [number[name] if name else -1 for name in parents]
    result = values.copy()
    # The deepest labels first, so that a value reaches the top.
    for column in sorted(range(len(above)), key=lambda column: -_depth(column, above)):
        if above[column] >= 0:
            np.maximum(result[:, above[column]], result[:, column], out=result[:, above[column]])
    return result


def _depth(column: int, above: Sequence[int]) -> int:
    count = 0
    while (column := above[column]) >= 0:
        count += 1
    return count
