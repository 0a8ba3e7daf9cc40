"""scikit-learn estimators: a vectorizer of texts, and a classifier that `fit` fine-tunes.

Letters: E texts, K classes, D width of the vectors.

Both work in pipelines, cross-validation and hyper-parameter search: parameters are stored as given and checked by
`fit`, and nothing is loaded before that. X is a list, array or column of texts, or of pairs of texts.
"""

import dataclasses
import tempfile
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.base import BaseEstimator, ClassifierMixin, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils import Tags
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, column_or_1d

from bertsmith.app.library.inputs import (
    Text,
    checked_texts,
    silently,
    text_examples,
    warn_cut,
)
from bertsmith.base.core.errors import LabelError
from bertsmith.base.core.progress import counted, unseen
from bertsmith.base.core.requests import parameters_named
from bertsmith.base.core.settings import require_number, split_settings
from bertsmith.inference.predictors.loading import load_predictor
from bertsmith.inference.vectors.embedder import Embedder
from bertsmith.inference.vectors.loading import load_embedder
from bertsmith.inference.vectors.request import EmbedRequest
from bertsmith.models.checkpoints.load import load_any
from bertsmith.recipes.finetuning.base_model import require_lengths
from bertsmith.recipes.finetuning.recipes import resolved, situation_of
from bertsmith.recipes.finetuning.run import finetune
from bertsmith.recipes.finetuning.settings import FinetuningSettings, RecipeSettings
from bertsmith.tasks.baselines.bag_of_words import cut_words
from bertsmith.tasks.specs.predictions import LabelPrediction
from bertsmith.tasks.specs.settings import TaskSettings
from bertsmith.tasks.specs.task import TaskSpec
from bertsmith.tasks.specs.whole_texts import encode_texts
from bertsmith.tasks.task_data.row_columns import LARGEST_WEIGHT
from bertsmith.tasks.task_data.split import TaskData, split_dev

Vectors = npt.NDArray[np.float32]
Texts = Sequence[Text]
SETTINGS = (FinetuningSettings, RecipeSettings, TaskSettings)

# Shared by all vectorizers, because before `fit` an estimator has no attributes but its parameters.
_loading = threading.Lock()


class _OfTexts(BaseEstimator):  # type: ignore[misc]
    """Base class with the scikit-learn tags of both estimators."""

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.string = True
        tags.input_tags.one_d_array = True
        tags.input_tags.two_d_array = False
        return tags


class BertsmithVectorizer(ClassNamePrefixFeaturesOutMixin, TransformerMixin, _OfTexts):  # type: ignore[misc]
    """A vectorizer of texts with a frozen encoder; `transform` works without `fit`.

    Copies and pickles do not contain the model; it is loaded again from its source on first use.

    Args:
        model: a folder, run, Google checkpoint or hub id.
        pooling, normalize, layers, max_length, device, precision: as in `Embedder.load`.
    """

    def __init__(
        self,
        model: str | Path,
        *,
        pooling: str | None = None,
        normalize: bool | None = None,
        layers: str = "last",
        max_length: int | None = None,
        device: str = "auto",
        precision: str = "fp32",
    ) -> None:
        self.model, self.pooling, self.normalize, self.layers = model, pooling, normalize, layers
        self.max_length, self.device, self.precision = max_length, device, precision

    @parameters_named(dataclasses.fields(EmbedRequest))
    def fit(self, X: Sequence[str], y: object = None) -> "BertsmithVectorizer":
        """The vectorizer, with its model loaded; the texts are checked, but nothing is learned from them.

        Raises:
            InputError: X holds something else than texts.
            BertsmithError: the model cannot be loaded with these parameters.
        """
        checked_texts(X)
        self._load()
        return self

    @parameters_named(dataclasses.fields(EmbedRequest))
    def transform(self, X: Sequence[str]) -> Vectors:
        """One vector per text, float32 [E, D]; raises the same errors as `fit`.

        A text of more than `max_length` tokens is truncated at its end, with a `CutWarning`.
        """
        texts, embedder = checked_texts(X), self._load()
        vectors, cut = embedder.embed_counting(texts)
        warn_cut(cut.tolist())
        return vectors

    @property
    def _n_features_out(self) -> int:
        return self._load().width

    def _load(self) -> Embedder:
        wanted = self.get_params()
        with _loading:
            # Reload if the parameters have changed since the model was loaded.
            loaded: tuple[dict[str, Any], Embedder] | None = self.__dict__.get("_loaded")
            if loaded is None or loaded[0] != wanted:
                options = {name: value for name, value in wanted.items() if name != "model"}
                loaded = self._loaded = wanted, load_embedder(self.model, **options)
            return loaded[1]

    def __getstate__(self) -> dict[str, Any]:
        state: dict[str, Any] = super().__getstate__()
        return {name: value for name, value in state.items() if name != "_loaded"}

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.requires_fit = False
        tags.transformer_tags.preserves_dtype = []
        return tags


class BertsmithClassifier(ClassifierMixin, _OfTexts):  # type: ignore[misc]
    """A classifier of texts or pairs of texts, fine-tuned by `fit` as `bertsmith finetune` does.

    Args:
        model: the base model: folder, run, Google checkpoint or hub id.
        out: the run folder, which must be new for each `fit`; None uses a temporary one.
        epochs: passes over the training texts; None for that of the recipe, as in the two below.
        batch_size: texts per optimizer step.
        learning_rate: the peak learning rate.
        recipe: where other settings come from: "auto" or "2018", as in `bertsmith finetune`.
        max_length: maximum tokens per row.
        dev_share: fraction of the texts held out to choose the best epoch; 0 trains on all of them.
        seeds: number of trainings with different seeds; the best is kept.
        seed: the first seed.
        device: auto, cpu, cuda or cuda:N, for training and prediction.
        precision: for training; predictions are made in fp32.
        settings: other fields of FinetuningSettings, RecipeSettings and TaskSettings by name.
        verbose: show progress on stderr.

    Attributes:
        classes_: [K], sorted.
        predictor_: the fine-tuned model.
        report_: the contents of the run's report.json.
    """

    def __init__(
        self,
        model: str | Path,
        *,
        out: str | Path | None = None,
        epochs: float | None = None,
        batch_size: int | None = None,
        learning_rate: float | None = None,
        recipe: str = "auto",
        max_length: int = 128,
        dev_share: float = 0.1,
        seeds: int = 1,
        seed: int = 1,
        device: str = "auto",
        precision: str = "auto",
        settings: Mapping[str, Any] | None = None,
        verbose: bool = False,
    ) -> None:
        self.model, self.out, self.epochs, self.batch_size = model, out, epochs, batch_size
        self.learning_rate, self.recipe = learning_rate, recipe
        self.max_length, self.dev_share = max_length, dev_share
        self.seeds, self.seed, self.device, self.precision = seeds, seed, device, precision
        self.settings, self.verbose = settings, verbose

    @parameters_named([field for part in SETTINGS for field in dataclasses.fields(part)])
    def fit(self, X: Texts, y: Sequence[Any], sample_weight: Sequence[float] | None = None) -> "BertsmithClassifier":
        """The classifier, fine-tuned on texts X [E] with classes y [E].

        Texts of more than `max_length` tokens are truncated, with a `CutWarning` after the training.

        Args:
            sample_weight: of the texts in the loss, [E]; only the ratios count, and texts of weight 0 are left out.

        Raises:
            InputError: X is empty, or contains something other than texts.
            LabelError: y has another length, missing values, or fewer than two classes; or there is not a weight from
                0 to 1e6 for each text, one of them above 0.
            ValueError: y contains numbers that are not classes.
            BertsmithError: the model or a setting is invalid.
        """
        texts = text_examples(X)
        numbers = self._numbers(y, len(texts))
        names = _names(self.classes_)
        examples = [
            dataclasses.replace(text, label=names[number], weight=weight)
            for text, number, weight in zip(texts, numbers, _weights(sample_weight, len(texts)), strict=True)
            if weight
        ]
        require_number("dev_share", self.dev_share, least=0, below=1)
        train, dev = split_dev(examples, self.seed, self.dev_share) if self.dev_share else (examples, [])
        names_of = ("epochs", "batch_size", "learning_rate", "seed", "max_length", "device", "precision")
        named = {name: value for name in names_of if (value := getattr(self, name)) is not None}
        parts = split_settings({**named, **(self.settings or {})}, SETTINGS)
        with silently(not self.verbose):
            model = load_any(self.model)
        situation = situation_of(
            "classification", "classification", len(train), model, settings=TaskSettings(**parts[TaskSettings])
        )
        values = resolved(self.recipe, situation, {**parts[FinetuningSettings], **parts[RecipeSettings]})
        parts |= split_settings(values, [FinetuningSettings, RecipeSettings])
        spec = TaskSpec(
            kind="classification",
            name="classification",
            labels=tuple(names),
            pair=texts[0].second is not None,
            settings=TaskSettings(**parts[TaskSettings]),
        )
        require_lengths(spec, model, () if spec.settings.max_length == TaskSettings().max_length else {"max_length"})
        with tempfile.TemporaryDirectory(prefix="bertsmith-classifier-") as folder:
            out = Path(folder) / "run" if self.out is None else Path(self.out)
            with silently(not self.verbose):
                result = finetune(
                    model,
                    spec,
                    TaskData(train=train, dev=dev),
                    out,
                    FinetuningSettings(**parts[FinetuningSettings]),
                    RecipeSettings(**parts[RecipeSettings]),
                    seeds=self.seeds,
                    recipe_name=self.recipe,
                    source_name=str(self.model),
                )
            self.predictor_ = load_predictor(out / "model", device=self.device)
        self.report_ = dict(result.report)
        if self.predictor_.reads_pieces:
            rows, *_ = encode_texts(examples, self.predictor_.tokenizer, spec.settings)
            warn_cut(rows.cut_by_row.tolist())
        else:
            warn_cut(cut_words(example, spec.settings) for example in examples)
        return self

    def predict(self, X: Texts) -> npt.NDArray[Any]:
        """The most probable class of each text, [E].

        Raises:
            NotFittedError: `fit` was not called.
            InputError: X holds something else than texts.
        """
        chances = self.predict_proba(X)
        threshold = self.predictor_.task.spec.threshold
        chosen = chances.argmax(axis=1) if threshold is None else (chances[:, 1] >= threshold).astype(np.int64)
        return np.asarray(self.classes_[chosen])

    def predict_proba(self, X: Texts) -> npt.NDArray[np.float64]:
        """The probability of each class, float64 [E, K], in the order of `classes_`; raises like `predict`."""
        check_is_fitted(self)
        examples = text_examples(X)
        predictions = self.predictor_.predict(examples, unseen)
        answers = [prediction for prediction in predictions if isinstance(prediction, LabelPrediction)]
        warn_cut(answer.cut_tokens for answer in answers)
        rows = [answer.probabilities for answer in answers]
        return np.array(rows, dtype=np.float64).reshape(len(examples), len(self.classes_))

    def _numbers(self, y: Sequence[Any], count: int) -> npt.NDArray[np.int64]:
        """The index of each label in `classes_`, int64 [E]."""
        if y is None:
            raise LabelError(expected="a class for each text", found="no y", fix="give y")
        classes = column_or_1d(y, warn=True)
        # NaN and NaT are not equal to themselves, and pandas' NA has no answer to the question.
        is_value = [isinstance(label == label, bool | np.bool_) and bool(label == label) for label in classes.tolist()]
        missing = [row for row, label in enumerate(classes.tolist()) if label is None or not is_value[row]]
        if missing:
            raise LabelError(
                expected="a class for each text",
                found=f"{classes.tolist()[missing[0]]} for {counted(len(missing), 'text')}, the first for text "
                f"{missing[0] + 1}",
                fix="fill them in, or leave these texts out",
            )
        check_classification_targets(classes)
        if len(classes) != count:
            raise LabelError(expected=f"a class for each of {count} texts", found=str(len(classes)), fix="correct y")
        self.classes_, numbers = np.unique(classes, return_inverse=True)
        if len(self.classes_) < 2:
            number = "1 class" if len(self.classes_) else "none"
            raise LabelError(expected="at least two classes", found=number, fix="add texts of another class")
        return np.asarray(numbers, dtype=np.int64)


def _weights(weights: Sequence[float] | None, count: int) -> list[float]:
    """The weight of each text."""
    if weights is None:
        return [1.0] * count
    values = np.asarray(weights, dtype=np.float64)
    if values.shape != (count,) or not ((values >= 0) & (values <= LARGEST_WEIGHT)).all() or not values.any():
        raise LabelError(
            expected=f"a weight from 0 to {LARGEST_WEIGHT:g} for each of {count} texts, one of them above 0",
            found=repr(values.tolist())[:60],
            fix="correct sample_weight",
        )
    return [float(weight) for weight in values]


def _names(classes: npt.NDArray[Any]) -> list[str]:
    """The names of the classes in the model folder."""
    names = [str(value) for value in classes.tolist()]
    if len(set(names)) < len(names):
        raise LabelError(expected="classes with different names", found=str(names)[:60], fix="rename them")
    return names
