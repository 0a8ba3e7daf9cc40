"""Classification by labels that the caller names, with a loaded model: its part of `Model`, which keeps their vectors.

Letters: K labels.
"""

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from bertsmith.app.library.inputs import checked_text, text_examples, warn_cut
from bertsmith.base.core.requests import parameters_named
from bertsmith.base.core.settings import require, require_number, require_type
from bertsmith.inference.predictors.named_labels import labels_of_pairs, pairs_of_labels
from bertsmith.inference.predictors.predictor import Predictor
from bertsmith.inference.predictors.request import ClassifyRequest, require_templates
from bertsmith.inference.vectors.embedder import Embedder

if TYPE_CHECKING:
    from bertsmith.inference.predictors.zero_shot import Scorer
    from bertsmith.tasks.specs.predictions import LabelPrediction

BY_LABELS = "classify_by_labels"
Names = Sequence[str] | Mapping[str, str]  # of labels, or their descriptions by name
# The names of labels with their descriptions, whether a text may have several of them, and templates.
Question = tuple[tuple[tuple[str, str], ...], bool, tuple[str, ...]]
_LABEL_SETS = 8  # whose pieces and vectors are kept


class LabelReader:
    """A model that chooses among labels that it was not trained on.

    Args:
        name: of the model, for messages.
        predictor: the model of entailment; None for an encoder.
        embedder: the encoder, with its own pooling and prompt.
    """

    def __init__(self, name: str, predictor: Predictor | None, embedder: Embedder) -> None:
        self._name, self._predictor, self._embedder = name, predictor, embedder
        self._scorer = functools.lru_cache(_LABEL_SETS)(self._new_scorer)

    def classify(
        self,
        texts: Sequence[str],
        labels: Names,
        *,
        multi_label: bool = False,
        threshold: float | None = None,
        template: Sequence[str] = (),
    ) -> "list[LabelPrediction]":
        """The prediction of each text; see `Model.classify_by_labels`."""
        require_type("template", template, Sequence[str])
        require_type("multi_label", multi_label, bool)
        question = (pairs_of_labels(labels), multi_label, tuple(template))
        answers = self.compute(self.read(texts, question)[0], question, threshold)
        warn_cut(answer.cut_tokens for answer in answers)
        return list(answers)

    def read(self, texts: Sequence[str], question: Question) -> tuple[Sequence[Any], list[list[int]]]:
        """See `Model.read`; the tokens of labels that are read alone count with the first text."""
        scorer = self._scorer(question)
        examples = scorer.tokenized(text_examples(texts))
        lengths = [scorer.tokens_of_rows(example) for example in examples]
        if lengths:
            lengths[0] += scorer.tokens_of_labels
        return examples, lengths

    def compute(
        self, examples: Sequence[Any], question: Question, threshold: float | None = None
    ) -> "Sequence[LabelPrediction]":
        """See `Model.compute`."""
        from bertsmith.inference.predictors.zero_shot import ZeroShotPredictor

        require_number("threshold", threshold, least=0, most=1)
        labels, multi_label, _ = question
        names = [name for name, _ in labels]
        predictor = ZeroShotPredictor([self._scorer(question)], names, multi_label=multi_label, threshold=threshold)
        return predictor.predict(examples)  # type: ignore[return-value]

    def _new_scorer(self, question: Question) -> "Scorer":
        from bertsmith.inference.predictors.zero_shot import TEMPLATE, Entailment, LabelVectors

        pairs, multi_label, templates = question
        for number, pair in enumerate(pairs, start=1):
            for text in pair:
                checked_text(text, f"label {number}")
        with parameters_named(dataclasses.fields(ClassifyRequest)):
            labels = labels_of_pairs(pairs, multi_label=multi_label)
        require_templates(templates)
        if self._predictor is None:
            require(
                not templates,
                expected="a model of entailment for a template",
                found=f"'{self._name}', an encoder",
                fix="leave the template out",
            )
            return LabelVectors(self._embedder, labels, multi_label=multi_label)
        templates = templates or (TEMPLATE,)
        return Entailment(self._predictor, labels, source=self._name, templates=templates, multi_label=multi_label)
