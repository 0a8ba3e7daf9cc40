"""Word sense disambiguation of tables, and the pairs to fine-tune a model of texts and glosses on."""

import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path

from bertsmith.app.library.prediction_tables import csv_row
from bertsmith.base.core.errors import InputError
from bertsmith.base.core.parameters import ComputeSettings
from bertsmith.base.core.progress import counted, short_repr, warn
from bertsmith.base.core.requests import path_or_none, takes
from bertsmith.base.storage.files import write_text
from bertsmith.inference.predictors.loading import load_predictor
from bertsmith.inference.predictors.pair_scorer import PairScorer
from bertsmith.inference.search.disambiguation import (
    Disambiguator,
    SenseAnswer,
    SenseScores,
    labelled_pairs,
    sense_scores,
    unknown_words,
)
from bertsmith.inference.search.request import DisambiguateRequest, GlossPairsRequest
from bertsmith.inference.search.sense_tables import read_glosses, read_words
from bertsmith.inference.vectors.loading import load_embedder
from bertsmith.text.tokenizers.normalize import TextRules


@dataclasses.dataclass(frozen=True)
class Disambiguated:
    """The senses of the words of a table.

    Attributes:
        answers: one per row, in order.
        scores: how many are right; None if that was not asked for.
    """

    answers: tuple[SenseAnswer, ...]
    scores: SenseScores | None

    __repr__ = short_repr

    def write(self, path: Path) -> None:
        """Writes the answers as JSON lines, each with the scores of all senses of the word."""
        write_text(path, "".join(json.dumps(each.to_dict(), ensure_ascii=False) + "\n" for each in self.answers))

    def lines(self) -> list[str]:
        """An answer on each line: id, lemma, sense, its score, and what it was chosen by."""
        return [
            "\t".join(
                (answer.word.id, answer.word.lemma, answer.sense, f"{answer.scores[answer.sense]:.4f}", answer.by)
                if answer.sense is not None
                else (answer.word.id, answer.word.lemma, "", "", "")
            )
            for answer in self.answers
        ]


@takes(DisambiguateRequest)
def disambiguate(request: DisambiguateRequest) -> Disambiguated:
    """The sense of each word of a table, by labelled examples of the word and by glosses of its senses.

    Examples decide where there are some of every sense that has a gloss, and together with the glosses otherwise. A
    word in neither has no sense, and a warning counts such words.

    Raises:
        InputError: a table lacks a column, or a row the word, its place or its sense.
        CheckpointError, ConfigError: a model or a setting does not fit.
    """
    compute = request.values(ComputeSettings)
    embedder = None if request.model is None else load_embedder(request.model, **compute)
    scorer = None if request.pair_model is None else PairScorer(load_predictor(request.pair_model, **compute))
    rules = TextRules() if embedder is None else embedder.encoder.tokenizer.rules
    words = read_words(Path(request.file), rules, gold=request.evaluate, encoding=request.encoding)
    examples, glosses = path_or_none(request.examples), path_or_none(request.glosses)
    disambiguator = Disambiguator(
        embedder,
        () if examples is None else read_words(examples, rules, gold=True, encoding=request.encoding),
        () if glosses is None else read_glosses(glosses, encoding=request.encoding),
        scorer,
        method=request.method,
        layers=request.layers,
        prior=request.prior,
    )
    known = {word.occurrence for word in disambiguator.examples}
    if request.evaluate and (same := sum(word.occurrence in known for word in words)):
        warn(
            f"labelled examples that are scored too, so the score is too high: "
            f"{same:,} of {counted(len(words), 'word')}"
        )
    answers = disambiguator.answers(words)
    if unknown := unknown_words(answers):
        warn(unknown)
    return Disambiguated(tuple(answers), sense_scores(answers) if request.evaluate else None)


@takes(GlossPairsRequest)
def gloss_pairs(request: GlossPairsRequest) -> list[tuple[str, str, str]]:
    """Pairs of text and gloss with the label yes or no, for `finetune` with the task classification.

    Of each labelled example there is a pair with each gloss of its word. Those whose sense has no gloss are left out,
    and a warning counts them.

    Raises:
        InputError: a table lacks a column, a row something it needs, or no example has a gloss of its sense.
    """
    words = read_words(Path(request.file), TextRules(), gold=True, encoding=request.encoding)
    pairs, without = labelled_pairs(words, read_glosses(Path(request.glosses), encoding=request.encoding))
    if not pairs:
        raise InputError(
            expected=f"glosses in '{request.glosses}' of the senses in '{request.file}'",
            found="none",
            fix="name the senses in both files alike",
        )
    if without:
        warn(f"{counted(without, 'example')} of {len(words):,} left out: their sense has no gloss")
    return pairs


def write_gloss_pairs(path: Path, pairs: Sequence[tuple[str, str, str]]) -> None:
    """Writes pairs as a CSV table with the columns text, pair and label."""
    write_text(path, "".join(map(csv_row, [("text", "pair", "label"), *pairs])))
