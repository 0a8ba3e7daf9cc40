"""A model that does not always answer with one label: with none below a threshold, or with a set of labels."""

import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import cast

import numpy as np
import numpy.typing as npt

from bertsmith.base.core.errors import ConfigError
from bertsmith.base.core.progress import counted, quiet, tell
from bertsmith.base.core.requests import path_or_none
from bertsmith.base.core.settings import require
from bertsmith.inference.predictors.predictor import Predictor
from bertsmith.inference.predictors.request import SelectionSettings
from bertsmith.models.model_files.metadata import read_metadata
from bertsmith.models.model_files.thresholds import promises, save_threshold, saved_thresholds
from bertsmith.tasks.datasets.examples import Example, TextExample
from bertsmith.tasks.datasets.file_text import quoted
from bertsmith.tasks.datasets.labels import labels_of
from bertsmith.tasks.metrics.selective import (
    Selection,
    coverage_interval,
    label_sets,
    selection_for,
    selections,
    set_threshold,
)
from bertsmith.tasks.specs.predictions import LabelPrediction
from bertsmith.tasks.specs.settings import ColumnSettings
from bertsmith.tasks.specs.task import Prediction
from bertsmith.tasks.task_data.labelled_examples import labelled_of


class SelectivePredictor(Predictor):
    """A predictor of one label whose answers depend on a threshold on probabilities.

    Args:
        predictor: of one label for each text.
        threshold: the probability from which the most likely label is an answer, or any label is in a set.
        sets: whether answers are sets of labels.
    """

    def __init__(self, predictor: Predictor, threshold: float, *, sets: bool) -> None:
        self.task, self.runtime, self.weakness = predictor.task, predictor.runtime, predictor.weakness
        self.reads_pieces = predictor.reads_pieces
        self._predictor, self._threshold, self._sets = predictor, threshold, sets

    @property
    def gives_several(self) -> bool:
        """See `Predictor.gives_several`."""
        return self._sets

    def predict(self, examples: Sequence[Example], advance: Callable[[float], None] | None = None) -> list[Prediction]:
        """One prediction per example, in order; see `Predictor.predict`."""
        predictions = cast("list[LabelPrediction]", self._predictor.predict(examples, advance))
        return [self._selected(prediction) for prediction in predictions]

    def _selected(self, prediction: LabelPrediction) -> Prediction:
        if not self._sets:
            is_certain = prediction.probability >= self._threshold
            return prediction if is_certain else dataclasses.replace(prediction, label="", chosen=())
        [members] = label_sets(np.array([prediction.probabilities]), self._threshold)
        ranked = np.argsort(-np.array(prediction.probabilities), kind="stable").tolist()
        chosen = tuple(prediction.labels[number] for number in ranked if members[number])
        return dataclasses.replace(prediction, label=chosen[0], chosen=chosen)

    def _require_readable(self, examples: Sequence[Example]) -> None:
        self._predictor._require_readable(examples)


def selective(predictor: Predictor, settings: SelectionSettings, columns: ColumnSettings | None = None) -> Predictor:
    """The predictor with a threshold that is fitted to labelled texts or saved ones; itself if no share is asked for.

    Args:
        columns: of the table of labelled texts.

    Raises:
        ConfigError: the model does not give each text one label, or nothing is saved to fit a threshold to.
        CheckpointError: its folder has no metadata to save the threshold in.
        InputError: the texts are too few, or too hard.
    """
    calibrate, is_of_sets = path_or_none(settings.calibrate), settings.coverage is not None
    if not settings.promise:
        return predictor
    precision = predictor.runtime.precision
    if calibrate is None:
        return SelectivePredictor(predictor, _saved(predictor, settings), sets=is_of_sets)
    scores, chances = _scores(predictor, calibrate, columns)
    threshold = scores.threshold(settings)
    _tell(scores, chances, threshold, settings)
    if settings.save_threshold:
        require(
            predictor.folder is not None,
            expected="one model in a folder, for --save-threshold",
            found="another one",
            fix="leave it out",
        )
        values = {
            **settings.promise,
            "threshold": threshold,
            "precision": precision,
            "examples": len(scores.gold),
            "curve": tuple((each.threshold, each.num_answered, each.num_right) for each in scores.curve),
            "gold": scores.gold,
        }
        saved_all = save_threshold(cast("Path", predictor.folder), **values)
        predictor.thresholds[:] = [each for each in saved_all if each.precision == precision]
    return SelectivePredictor(predictor, threshold, sets=is_of_sets)


@dataclasses.dataclass(frozen=True)
class _Scores:
    """The scores of labelled texts, to which a threshold for any share can be fitted.

    Attributes:
        name: of the texts, for messages.
        curve: all `selections` of them.
        gold: the probability of the label of each text, rising, -1 if the model does not know the label.
    """

    name: str
    curve: tuple[Selection, ...]
    gold: tuple[float, ...]

    def threshold(self, settings: SelectionSettings) -> float:
        """The threshold for the share that is asked for.

        Raises:
            InputError: the texts are too few, or too hard.
            ConfigError: the model does not know enough of their labels.
        """
        if settings.accuracy is not None:
            return selection_for(self.curve, settings.accuracy).threshold
        assert settings.coverage is not None, "one of the two"
        threshold = set_threshold(np.array(self.gold), settings.coverage)
        require(
            threshold >= 0,
            expected=f"texts with labels that the model knows in {self.name}, at least {settings.coverage:g} of them",
            found=f"{counted(sum(chance < 0 for chance in self.gold), 'text')} of {len(self.gold):,} with others",
            fix="correct the labels, or train with examples of them",
        )
        return threshold


def _saved(predictor: Predictor, settings: SelectionSettings) -> float:
    """The threshold that is saved for a share, or fitted to the saved scores of labelled texts."""
    entries, precision, folder = predictor.thresholds, predictor.runtime.precision, predictor.folder
    for entry in entries:
        if entry.promise == settings.promise:
            return entry.threshold
    for entry in entries:
        if entry.gold:
            steps = (
                (threshold, entry.examples, int(answered), int(right)) for threshold, answered, right in entry.curve
            )
            return _Scores("the saved scores", tuple(Selection(*step) for step in steps), tuple(entry.gold)).threshold(
                settings
            )
    [(name, share)] = settings.promise.items()
    with quiet():  # that they are of another model was said before
        every = () if folder is None else saved_thresholds(folder, read_metadata(folder))
    of_others = [f"{promises([entry])} in {entry.precision}" for entry in every if entry.precision != precision]
    raise ConfigError(
        expected=f"a model with a saved threshold for {name} {share:g} in {precision}",
        found=", ".join([promises(entries), *of_others] if entries or not of_others else of_others),
        fix=f"save one in {precision}: `bertsmith predict --calibrate FILE --save-threshold`",
    )


def _scores(
    predictor: Predictor, calibrate: Path, columns: ColumnSettings | None
) -> tuple[_Scores, npt.NDArray[np.float64]]:
    """The scores of labelled texts, and the probabilities of all labels; see `selective`."""
    spec = predictor.task.spec
    require(
        spec.kind == "classification" and not spec.multi_label,
        expected="a model that gives each text one label, for --calibrate",
        found=f"one of {'several labels' if spec.multi_label else spec.title}",
        fix="leave --calibrate out, or name another model",
    )
    examples = labelled_of(spec, calibrate, None, columns).examples
    predictor.task.check(examples, gold=True)
    predictions = cast("list[LabelPrediction]", predictor.predict(examples))
    gold = [labels_of(cast("TextExample", example))[0] for example in examples]
    confidence = np.array([prediction.probability for prediction in predictions])
    right = np.array([prediction.label == label for prediction, label in zip(predictions, gold, strict=True)])
    number = {label: index for index, label in enumerate(spec.labels)}
    chances = np.array([prediction.probabilities for prediction in predictions])
    # A label that the model does not know has no probability, and is in no set.
    golds = (float(row[number[label]]) if label in number else -1.0 for row, label in zip(chances, gold, strict=True))
    return _Scores(quoted(calibrate), tuple(selections(confidence, right)), tuple(sorted(golds))), chances


def _tell(scores: _Scores, chances: npt.NDArray[np.float64], threshold: float, settings: SelectionSettings) -> None:
    """Says what a threshold is worth on the labelled texts, and on others."""
    about = f"{scores.name}: {counted(len(scores.gold), 'labelled text')}"
    if settings.accuracy is not None:
        selection = next(each for each in scores.curve if each.threshold == threshold)
        tell(
            f"{about}; answers from a probability of {threshold:.4f} on: {selection.answered:.0%} of the texts, "
            f"{selection.accuracy:.1%} of them right; for others at least {settings.accuracy:.1%}, with 95% confidence"
        )
        return
    assert settings.coverage is not None, "one of the two"
    low, high = coverage_interval(len(scores.gold), settings.coverage)
    size = label_sets(chances, threshold).sum(axis=1).mean()
    tell(
        f"{about}; sets have the labels from a probability of {threshold:.4f} on, {size:.2f} on average; "
        f"{low:.1%} to {high:.1%} of the sets for other texts contain the right one (95% interval)"
    )
