"""What a pre-trained network knows without any training on labels: likelihoods of texts, and senses of words.

Letters: P pieces, V vocabulary.

A model that reads from left to right gives each text a likelihood. For a masked model, its place is taken by the sum
over the pieces of the log probability of each when it is masked, and with it the later pieces of its word, which would
give it away.

Sources: Salazar et al., "Masked Language Model Scoring" (2020), for the pseudo-log-likelihood; Kauf and Ivanova, "A
Better Way to Do Masked Language Model Scoring" (2023), for the rest of the word.
"""

import dataclasses
import itertools
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import cast

import numpy as np
import numpy.typing as npt
from ablation_words import WordExample

from bertsmith.base.core.progress import unseen
from bertsmith.inference.predictors.loading import load_pretraining_heads
from bertsmith.inference.predictors.perplexity import perplexities
from bertsmith.inference.search.disambiguation import Disambiguator
from bertsmith.inference.search.request import CENTROID
from bertsmith.inference.search.sense_tables import WordInText
from bertsmith.inference.search.senses import Occurrence
from bertsmith.inference.vectors.loading import load_embedder
from bertsmith.models.checkpoints.load import load_any
from bertsmith.recipes.comparison.bench import Bench
from bertsmith.recipes.comparison.linear import Fitted
from bertsmith.recipes.comparison.sources import Made
from bertsmith.recipes.comparison.systems import System
from bertsmith.recipes.results.resampling import scored_lines
from bertsmith.tasks.datasets.examples import ChoiceExample, Example, named_texts
from bertsmith.tasks.encoding.engine import MASKED, MASKED_LM, Engine
from bertsmith.tasks.encoding.units import separate_rows
from bertsmith.tasks.specs.predictions import ChoicePrediction, LabelPrediction
from bertsmith.text.tokenizers.encoded import Encoded
from bertsmith.text.tokenizers.pack import pack_rows
from bertsmith.text.tokenizers.tokenizer import Tokenizer

TEXTS = 250  # whose logits are in memory together

Floats = npt.NDArray[np.float64]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Likeliest(System):
    """Chooses the ending with which the text is most likely.

    Attributes:
        left_only: of a context and the first word of the ending alone, for a model that reads from left to right.
        whole: by all words, for a masked model, which else compares the first words of the endings alone.
    """

    left_only: bool = False
    whole: bool = False

    def fit(self, bench: Bench, made: Made | None, train: Sequence[Example], seed: int, scratch: Path) -> Fitted:
        """See `System.fit`; nothing is fitted."""
        assert made is not None, "a network has a source"
        heads = load_pretraining_heads(made.path, needs=["mlm"], device=bench.device)

        def answer(examples: Sequence[Example]) -> list[ChoicePrediction]:
            return self._answers(heads.engine, heads.tokenizer, cast("Sequence[ChoiceExample]", examples))

        scores, lines = scored_lines(bench.task, bench.data.dev, answer(bench.data.dev))
        return Fitted(lines=lines, scores=scores, answer=answer, parameters=_parameters(made))

    def _answers(
        self, engine: Engine, tokenizer: Tokenizer, examples: Sequence[ChoiceExample]
    ) -> list[ChoicePrediction]:
        if engine.predicts == MASKED:
            asked = [(example.context, ending) for example in examples for ending in example.endings]
            if self.whole:
                asked = [("", f"{context} {ending}".strip()) for context, ending in asked]
            scores = masked_scores(engine, tokenizer, asked)
        else:
            texts = [
                f"{example.context} {ending.split()[0] if self.left_only else ending}".strip()
                for example in examples
                for ending in example.endings
            ]
            scores = np.array([-each.nll for each in perplexities(engine, tokenizer, named_texts(texts))])
        counts = [len(example.endings) for example in examples]
        return [
            _choice(example, candidates)
            for example, candidates in zip(examples, np.split(scores, np.cumsum(counts)[:-1]), strict=True)
        ]


@dataclasses.dataclass(frozen=True, kw_only=True)
class NearestSense(System):
    """The sense whose centroid, of the vectors of the word in the training examples, is nearest."""

    def fit(self, bench: Bench, made: Made | None, train: Sequence[Example], seed: int, scratch: Path) -> Fitted:
        """See `System.fit`."""
        assert made is not None, "a network has a source"
        known = [_in_text(example) for example in cast("Sequence[WordExample]", train)]
        by = Disambiguator(load_embedder(made.path, pooling="mean", device=bench.device), known, method=CENTROID)
        labels = bench.spec.labels

        def answer(examples: Sequence[Example]) -> list[LabelPrediction]:
            answers = by.answers([_in_text(example) for example in cast("Sequence[WordExample]", examples)])
            return [_label(labels, each.sense or labels[0]) for each in answers]

        scores, lines = scored_lines(bench.task, bench.data.dev, answer(bench.data.dev))
        return Fitted(lines=lines, scores=scores, answer=answer, parameters=_parameters(made))


@dataclasses.dataclass(frozen=True, kw_only=True)
class MostFrequentSense(System):
    """The sense that the word has most often in the training examples, whatever its text is."""

    def fit(self, bench: Bench, made: Made | None, train: Sequence[Example], seed: int, scratch: Path) -> Fitted:
        """See `System.fit`."""
        labels, counts = bench.spec.labels, dict[str, Counter[str]]()
        for example in cast("Sequence[WordExample]", train):
            counts.setdefault(example.word, Counter())[str(example.label)] += 1

        def answer(examples: Sequence[Example]) -> list[LabelPrediction]:
            words = [example.word for example in cast("Sequence[WordExample]", examples)]
            return [_label(labels, max(counts[word], key=counts[word].__getitem__)) for word in words]

        scores, lines = scored_lines(bench.task, bench.data.dev, answer(bench.data.dev))
        return Fitted(lines=lines, scores=scores, answer=answer, parameters=0)


def masked_scores(engine: Engine, tokenizer: Tokenizer, texts: Sequence[tuple[str, str]]) -> Floats:
    """The pseudo-log-likelihood of texts in nats: of a context and an ending, that of the ending's first word alone.

    Args:
        texts: context and ending; without a context, all words of the ending count.
    """
    scores = np.zeros(len(texts))
    for start in range(0, len(texts), TEXTS):
        part = texts[start : start + TEXTS]
        scores[start : start + TEXTS] = _scores_of(engine, tokenizer, part)
    return scores


def _scores_of(engine: Engine, tokenizer: Tokenizer, texts: Sequence[tuple[str, str]]) -> Floats:
    """The scores of some texts; every piece that counts has a row in which it is masked."""
    contexts, endings = (tokenizer.encode_batch([pair[side] for pair in texts]) for side in (0, 1))
    rows, golds, places, of_text = list[npt.ArrayLike](), list[int](), list[int](), list[int]()
    for number, (before, after) in enumerate(zip(contexts, endings, strict=True)):
        ids = np.concatenate([before, after])
        edges = [*np.flatnonzero(tokenizer.starts_of_words(ids)).tolist(), len(ids)]
        for start, end in itertools.pairwise(edge for edge in edges if edge >= len(before)):
            for hidden in range(start, end):
                row = ids.copy()
                row[hidden:end] = tokenizer.vocabulary.mask_id
                rows.append(row)
                golds.append(int(ids[hidden]))
                places.append(hidden)
                of_text.append(number)
            if len(before):
                break
    packed = pack_rows(
        Encoded.from_rows(rows),
        template=tokenizer.template,
        max_length=engine.max_tokens,
        truncation="error",
        model_limit=engine.max_tokens,
    )
    read = packed.offsets[:-1] + len(tokenizer.template.start) + np.array(places, dtype=np.int64)
    logits = engine.logits(separate_rows(packed, read), MASKED_LM, engine.masked_lm_tokens, unseen)
    logits = logits[:, : len(tokenizer.vocabulary)].astype(np.float64)
    likely = logits[np.arange(len(golds)), golds] - np.logaddexp.reduce(logits, axis=1)
    return np.bincount(np.array(of_text), weights=likely, minlength=len(texts))


def _choice(example: ChoiceExample, scores: Floats) -> ChoicePrediction:
    likely = np.exp(scores - np.logaddexp.reduce(scores))
    best = int(scores.argmax())
    return ChoicePrediction(index=best, probabilities=tuple(likely.tolist()), text=example.endings[best], cut_tokens=0)


def _label(labels: Sequence[str], chosen: str) -> LabelPrediction:
    chances = tuple(float(label == chosen) for label in labels)
    return LabelPrediction(
        label=chosen, probability=1.0, probabilities=chances, labels=tuple(labels), chosen=(chosen,), cut_tokens=0
    )


def _in_text(example: WordExample) -> WordInText:
    occurrence = Occurrence(sentence=example.first, start=example.start, end=example.end)
    return WordInText(
        id=example.id,
        lemma=example.word,
        occurrence=occurrence,
        senses=(str(example.label),),
        location=example.location,
    )


def _parameters(made: Made) -> int:
    return sum(tensor.numel() for tensor in load_any(made.path).tensors.values())
