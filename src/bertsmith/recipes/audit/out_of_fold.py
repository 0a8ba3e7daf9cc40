"""Probabilities of labels by models that were not fitted to the row: a linear model on each kind of features.

Letters: E labelled examples, U others, D columns, K labels, S systems. Of a tagging, the examples are words.
"""

import dataclasses
import itertools
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence, Set
from pathlib import Path
from typing import Any

import numpy as np

from bertsmith.base.core.errors import InputError
from bertsmith.base.core.progress import Progress, counted
from bertsmith.base.storage.files import read_json, read_json_lines
from bertsmith.inference.predictors.loading import load_predictor
from bertsmith.models.checkpoints.model_folder import ModelFolder
from bertsmith.recipes.audit.entities import Scored
from bertsmith.recipes.results.baseline_lines import MODEL
from bertsmith.recipes.results.finished_run import BAG_FOLDER, MODEL_FOLDER, OUT_OF_FOLD, REPORT_FILE, START, named
from bertsmith.recipes.results.resampling import texts_of
from bertsmith.tasks.baselines.bag_of_words import BagOfWords
from bertsmith.tasks.baselines.linear import PENALTIES, PENALTIES_OF_BAGS, fit_for
from bertsmith.tasks.baselines.word_columns import word_columns
from bertsmith.tasks.baselines.word_model import counted_entities, known_entities, runs_of_words
from bertsmith.tasks.datasets.examples import EntityExample, Example, TaggedExample, TextExample, WordSpan
from bertsmith.tasks.datasets.labels import listed
from bertsmith.tasks.datasets.values import brief, brief_apart
from bertsmith.tasks.encoding.engine import TASK
from bertsmith.tasks.encoding.loading import load_frozen_encoder
from bertsmith.tasks.metrics.calibration import softmax
from bertsmith.tasks.metrics.label_errors import Floats, Ints
from bertsmith.tasks.specs.kinds import task_for
from bertsmith.tasks.specs.nested_entities import LOWEST
from bertsmith.tasks.specs.settings import TaskSettings
from bertsmith.tasks.specs.task import BAG, VECTORS, TaskSpec
from bertsmith.training.loop.run_folder import FOLDS

WORDS = "linear model on words"
TAGGING = "tagging"  # the kind of task
_PENALTY_OF_WORDS = (1.0,)  # of columns that are 0 or 1
_WHOLE = 10**6  # words of a text that the bag of words reads, more than any has
_LONG = 100  # words of a text on average, from which runs of letters would take most of the time
_UNSEEN = 1.0  # occurrences as no entity that are added to those of a run of words


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Features:
    """What a linear model reads of labelled examples, and of others after them."""

    name: str  # of the model in the report
    inputs: Any  # [E + U, D], sparse or dense
    penalties: Sequence[float]

    def out_of_fold(
        self,
        spec: TaskSpec,
        labels: Ints,
        folds: Ints,
        seed: int,
        *,
        order: Ints | None = None,
        share: float = 1.0,
    ) -> Floats:
        """The probabilities of the labelled examples, [E, K], each by a model fitted to the other folds.

        Args:
            labels: [E], or 0 and 1 for each of several labels, [E, K].
            share: of these, the part that is fitted to, the first by `order`.
        """
        order = np.arange(len(labels)) if order is None else order
        probabilities = np.zeros((len(labels), len(spec.labels)))
        numbers = np.unique(folds).tolist()
        with Progress(self.name, len(numbers), "folds") as progress:
            for number in numbers:
                train, held = order[folds[order] != number], np.flatnonzero(folds == number)
                train = np.sort(train[: max(1, round(share * len(train)))])
                probabilities[held] = self._fitted(spec, labels, train, held, seed)
                progress.advance(1)
        return probabilities

    def of_others(self, spec: TaskSpec, labels: Ints, seed: int) -> Floats:
        """The probabilities of the other examples, [U, K], by a model fitted to all labelled ones."""
        others = np.arange(len(labels), self.inputs.shape[0])
        return self._fitted(spec, labels, np.arange(len(labels)), others, seed)

    def _fitted(self, spec: TaskSpec, labels: Ints, train: Ints, wanted: Ints, seed: int) -> Floats:
        options = {"score": None} if spec.kind == TAGGING else {}  # its metric is not one of words
        linear = fit_for(spec, self.inputs[train], labels[train], seed=seed, penalties=self.penalties, **options)
        outputs = linear.outputs(self.inputs[wanted]).astype(np.float64)
        return 1 / (1 + np.exp(-outputs)) if labels.ndim == 2 else softmax(outputs)


def bag_features(spec: TaskSpec, examples: Sequence[TextExample]) -> Features:
    """The words of whole texts, and runs of letters of short ones; which are counted depends on no label."""
    words = sum(len(text.split()) for example in examples for text in example.texts)
    is_long = words > _LONG * len(examples)
    bag = BagOfWords(examples, TaskSettings(max_length=_WHOLE), len(spec.labels), letters=not is_long)
    return Features(name=BAG, inputs=bag.columns(examples), penalties=PENALTIES_OF_BAGS)


def word_features(sentences: Sequence[TaggedExample]) -> Features:
    """What words are like, and the words next to them, which depends on no tag."""
    return Features(name=WORDS, inputs=word_columns(sentences), penalties=_PENALTY_OF_WORDS)


def vector_features(spec: TaskSpec, examples: Sequence[Example], folder: ModelFolder, device: str) -> Features:
    """The vectors of a frozen encoder: of texts, or of the words of a tagging."""
    from bertsmith.tasks.baselines.text_vectors import text_vectors

    encoder, task = load_frozen_encoder(folder, device=device), task_for(spec)
    last = encoder.choice("last")
    if spec.kind == TAGGING:
        encoder.require_positions(spec.settings.max_length)
        vectors = encoder.hidden_states(task.encode(examples, encoder.tokenizer), last)[:, 0]
    else:
        vectors = text_vectors(encoder, task, examples, last)
    return Features(name=VECTORS, inputs=vectors, penalties=PENALTIES)


def of_run(run: Path, spec: TaskSpec, examples: Sequence[Example], device: str) -> dict[str, Floats]:
    """The probabilities of a run with folds for the same examples, [E, K], by the name of the model that it kept.

    Those of a tagging are computed by the model of each fold, as the lines of the run have the best tags alone.

    Raises:
        InputError: the run has no folds, or they are of other examples.
    """
    if spec.kind == TAGGING:
        return {MODEL: _of_fold_models(run, spec, examples, device)}
    lines = _lines_of(run, examples)
    chances = [line["prediction"]["probabilities"] for line in lines]
    best = (read_json(run / REPORT_FILE) if (run / REPORT_FILE).is_file() else {}).get("best")
    name = BAG if best == BAG_FOLDER else named(START, 0) if best == START else MODEL
    return {name: np.array([[chance[label] for label in spec.labels] for chance in chances], dtype=np.float64)}


def _lines_of(run: Path, examples: Sequence[Example]) -> list[Any]:
    """The out-of-fold predictions of a run, which are those of the same examples."""
    path = run / OUT_OF_FOLD
    if not path.is_file():
        raise InputError(
            expected=f"a finished run with --folds in '{run}'", found=f"no {OUT_OF_FOLD}", fix="name another run"
        )
    lines = list(read_json_lines(path))
    _require_same(path, lines, examples)
    return lines


def listed_spans(sentences: Sequence[EntityExample], folds: Ints, longest: int) -> list[Scored]:
    """The probabilities of the spans of each sentence that are entities in other folds, by how often they are one.

    Entities of the sentence that are none there have a low probability if their words occur there, the lower the more
    often.
    """
    result: list[Scored] = [{}] * len(sentences)
    for number in np.unique(folds).tolist():
        train = [sentences[row] for row in np.flatnonzero(folds != number).tolist()]
        held = np.flatnonzero(folds == number).tolist()
        texts = {" ".join(sentences[row].words[slice(*span[:2])]) for row in held for span in sentences[row].entities}
        runs = (text for sentence in train for *_, text in runs_of_words(sentence.words, longest))
        counts, occurrences = counted_entities(train), Counter(text for text in runs if text in texts)
        for row in held:
            sentence, scored = sentences[row], dict(known_entities(counts, sentences[row], longest, unseen=_UNSEEN))
            for span in sentence.entities:
                if count := occurrences[" ".join(sentence.words[slice(*span[:2])])]:
                    scored.setdefault(span, _UNSEEN / 2 / (count + _UNSEEN))
            result[row] = {
                span: chance for span, chance in scored.items() if chance >= LOWEST or span in sentence.entities
            }
    return result


def spans_of_run(
    run: Path, spec: TaskSpec, sentences: Sequence[EntityExample], wanted: Sequence[Set[WordSpan]], device: str
) -> list[Scored]:
    """The probabilities of the spans of each sentence that the model of its fold in a run takes for possible entities.

    Args:
        wanted: spans of each sentence that are among them in any case.

    Raises:
        InputError: see `of_run`; or the models read shorter entities than the table has.
    """
    result: list[Scored] = [{}] * len(sentences)
    for rows, predictor in _fold_models(run, spec, sentences, device):
        words, longest = predictor.task.spec.settings.entity_words, spec.settings.entity_words
        if words < longest:
            raise InputError(
                expected=f"models in '{run}' that find entities of {counted(longest, 'word')}, as the table has",
                found=f"entities of at most {words}",
                fix="train them without --entity-words",
            )
        of_fold = [sentences[row] for row in rows]
        logits = predictor.engine.logits(predictor.task.encode(of_fold, predictor.tokenizer), TASK)
        spans = predictor.task.probable_spans(of_fold, logits, [wanted[row] for row in rows])
        for row, scored in zip(rows, spans, strict=True):
            result[row] = dict(scored)
    return result


def _of_fold_models(run: Path, spec: TaskSpec, examples: Sequence[Example], device: str) -> Floats:
    """The probabilities of the tags of words, [E, K], each by the model of its fold in a run."""
    parts: list[Floats] = [np.zeros((0, len(spec.labels)))] * len(examples)
    for rows, predictor in _fold_models(run, spec, examples, device):
        sentences = [examples[row] for row in rows]
        logits = predictor.engine.logits(predictor.task.encode(sentences, predictor.tokenizer), TASK)
        chances = softmax(logits.astype(np.float64) / predictor.task.spec.temperature)
        cuts = np.cumsum([len(example.texts) for example in sentences])[:-1]  # type: ignore[union-attr]
        for row, part in zip(rows, np.split(chances, cuts), strict=True):
            parts[row] = part
    return np.concatenate(parts)


def _fold_models(
    run: Path, spec: TaskSpec, examples: Sequence[Example], device: str
) -> Iterator[tuple[list[int], Any]]:
    """The rows of each fold of a run for the same examples, with its model."""
    folds = [line["fold"] for line in _lines_of(run, examples)]
    for fold in sorted(set(folds)):
        folder = run / FOLDS / str(fold) / MODEL_FOLDER
        predictor: Any = load_predictor(folder, device=device)
        if predictor.task.spec.labels != spec.labels:
            raise InputError(
                expected=f"the labels of the table in '{folder}': {listed(map(brief, spec.labels))}",
                found=listed(map(brief, predictor.task.spec.labels)),
                fix="name the table that the run was trained on, as it was then",
            )
        yield [row for row, other in enumerate(folds) if other == fold], predictor


def _require_same(path: Path, lines: Sequence[Mapping[str, Any]], examples: Sequence[Example]) -> None:
    """Refuses the lines of a run for other examples, and names the first that differs."""
    for number, (line, example) in enumerate(itertools.zip_longest(lines, examples), start=1):
        theirs = (line["prediction"].get("words") or line["texts"], line["gold"]) if line else None
        ours = _content(example) if example else None
        if theirs != ours:
            shown = brief_apart(*("" if row is None else " | ".join(row[0]) for row in (theirs, ours)))
            golds = brief_apart(*(None if row is None else row[1] for row in (theirs, ours)))
            there, here = (
                "no row" if row is None else f"{text} with the label {gold}"
                for row, text, gold in zip((theirs, ours), shown, golds, strict=True)
            )
            raise InputError(
                expected=f"the rows of '{path}' ({counted(len(lines), 'row')}), in this order",
                found=f"{counted(len(examples), 'row')}, of which row {number} is the first that differs: {here}, in "
                f"place of {there}",
                fix="name the table that the run was trained on, as it was then",
            )


def _content(example: Example) -> tuple[list[str], Any]:
    """The texts or the words of an example, and its gold, as the line of a run has them."""
    if isinstance(example, EntityExample):
        return list(example.words), [list(span) for span in example.entities]
    if isinstance(example, TaggedExample):
        return list(example.words), list(example.tags or ())
    label = example.label  # type: ignore[union-attr]
    return texts_of(example), list(label) if isinstance(label, tuple) else label
