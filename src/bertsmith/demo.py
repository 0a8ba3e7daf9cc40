"""The whole pipeline on text that is already on the machine, from documentation to a model that predicts masked words.

The default text is the docstrings of the Python standard library and of the installed packages, which are read but
never executed: 10 to 20 MB of real English. The demo folder contains what the individual commands would write::

    DEMO/text/docstrings.txt   one sentence per line, a blank line between modules (absent if the user provides text)
    DEMO/vocab.txt             the learned vocabulary
    DEMO/corpus/               token shards, with some documents held out
    DEMO/run/                  settings, log, checkpoints, model
    DEMO/report.html           curves, predictions for masked words, next sentences
"""

import contextlib
import dataclasses
import math
import shutil
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from bertsmith.corpus.build import CorpusSettings, build_corpus
from bertsmith.corpus.docstrings import docstring_documents
from bertsmith.corpus.shards import Corpus
from bertsmith.corpus.words import count_files
from bertsmith.errors import ConfigError, InputError
from bertsmith.files import atomic_file
from bertsmith.inference.loading import load_pretraining_heads
from bertsmith.inference.pretraining_heads import PretrainedPredictor
from bertsmith.locks import LOCK_FILE, locked_folder, require_unused
from bertsmith.pretraining.report import Samples, write_report
from bertsmith.pretraining.run import pretrain
from bertsmith.pretraining.settings import PretrainingDataSettings, PretrainingRunSettings
from bertsmith.progress import Progress, warn
from bertsmith.randomness import generator
from bertsmith.settings import require_number
from bertsmith.text.normalize import TextRules
from bertsmith.text.vocabulary import MASK
from bertsmith.text.wordpiece import WordPieceTokenizer
from bertsmith.training.budget import BudgetError
from bertsmith.training.loop import TrainResult
from bertsmith.training.settings import TrainSettings
from bertsmith.vocabularies.learn import learn_vocabulary

VOCABULARY_SIZE = 8000
READING_SHARE = 0.25  # of the minutes: reading the documentation on this machine stops there
TRAINING_SHARE = 0.5  # of the minutes, if what comes before takes so long that less is left
LEAST_TRAINING_SHARE = 0.1  # of the minutes, however long it takes
LATEST_SHARE = 1.1  # of the minutes: training that was given more time than is left is planned to end there
CLOSING_SECONDS = 8.0  # reserved for the predictions and the report
SHORTEST_MINUTES, LONGEST_MINUTES = 0.5, 10**7


@dataclasses.dataclass(frozen=True, kw_only=True)
class Gap:
    """A held-out sentence with one piece masked.

    Attributes:
        text: the sentence with [MASK] in it.
        hidden: the masked piece.
        guesses: the predictions of the model with their probabilities, most likely first.
    """

    text: str
    hidden: str
    guesses: tuple[tuple[str, float], ...]


@dataclasses.dataclass(frozen=True, kw_only=True)
class DemoResult:
    """The result of the demo.

    Attributes:
        report: the HTML page with all results.
        model: the model folder.
        unigram_entropy: the loss in nats of a model that only knows token frequencies.
        held_out_loss: the masked-LM loss in nats on held-out documents.
        gaps: masked held-out sentences with the predictions of the model.
        seconds: the duration of the whole demo.
    """

    report: Path
    model: Path
    unigram_entropy: float
    held_out_loss: float
    gaps: Sequence[Gap]
    seconds: float

    def lines(self) -> list[str]:
        """The lines that the command prints."""
        lines = [
            f"masked-LM loss on held-out text: {self.held_out_loss:.2f} nats; "
            f"a model that only knows token frequencies: {self.unigram_entropy:.2f}",
        ]
        if self.held_out_loss >= self.unigram_entropy:
            lines.append("the model does not beat token frequencies yet; give it more --minutes or a less busy machine")
        for gap in self.gaps[:6]:
            guesses = ", ".join(f"{piece} {chance:.0%}" for piece, chance in gap.guesses[:3])
            lines.append(f"  {gap.text}\n    masked: {gap.hidden}; predicted: {guesses}")
        return [*lines, f"model: {self.model}", f"report: {self.report}"]


def run_demo(out: Path, *, minutes: float = 5.0, texts: Sequence[Path] = (), seed: int = 1) -> DemoResult:
    """The result of learning a vocabulary, building a corpus, pre-training and reporting, in about `minutes`.

    On a machine that is busy or becomes busy, less documentation is read and fewer steps are made, so that the demo
    ends within 1.25 times the minutes; the user's own text is always read as a whole. The text that was read and the
    steps are in the folder, to repeat the run. If the minutes are too few for a single step, or the texts are too
    short, nothing is left in the folder.

    Args:
        out: a new folder.
        texts: files or folders of the user's own text; if empty, the documentation on this machine is used.

    Raises:
        RunError: the folder exists and is not empty.
        ConfigError: the time is too short or infinite.
        InputError: the texts cannot be read or are too short.
    """
    started = time.monotonic()
    if not SHORTEST_MINUTES <= minutes < math.inf:
        raise ConfigError(
            expected=f"a finite number of minutes, at least {SHORTEST_MINUTES}",
            found=f"{minutes:g}",
            fix="change --minutes",
        )
    require_number("minutes", minutes, most=LONGEST_MINUTES)
    require_unused(out, "choose another with --out")
    with locked_folder(out):
        with _nothing_left(out):
            result = _build_and_train(out, texts, minutes, started, seed)
        gaps, samples = _samples(out / "run" / "model", Corpus.open(out / "corpus"), seed)
        report = write_report(out / "run", out=out / "report.html", title="Bertsmith demo", samples=samples)
    return DemoResult(
        report=report,
        model=out / "run" / "model",
        unigram_entropy=result.metrics["held_out_unigram_entropy"],
        held_out_loss=result.metrics["held_out_mlm_loss"],
        gaps=gaps,
        seconds=time.monotonic() - started,
    )


@contextlib.contextmanager
def _nothing_left(out: Path) -> Iterator[None]:
    """Removes what the block wrote to a new or empty folder, if it raises an error about the user's input."""
    try:
        yield
    except (ConfigError, InputError):
        for path in out.iterdir() if out.exists() else ():
            if path.name == LOCK_FILE:
                continue
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink()
        raise


def _build_and_train(out: Path, texts: Sequence[Path], minutes: float, started: float, seed: int) -> TrainResult:
    """The result of all steps up to the model, within `minutes` from `started`."""
    sources = list(texts) or [
        _write_docstrings(out / "text" / "docstrings.txt", until=started + READING_SHARE * minutes * 60)
    ]
    counts = count_files(sources, TextRules())
    tokenizer = WordPieceTokenizer(learn_vocabulary(counts.total, VOCABULARY_SIZE), TextRules())
    tokenizer.vocabulary.save(out / "vocab.txt")
    build_corpus(sources, tokenizer, out / "corpus", settings=CorpusSettings(held_out=0.02))
    if Corpus.open(out / "corpus").held_out() is None:
        raise InputError(
            expected="texts with several sentences, so that some can be held out for evaluation",
            found="a single sentence",
            fix="give more text",
        )
    used = (time.monotonic() - started + CLOSING_SECONDS) / 60
    left = max(
        minutes - used, min(TRAINING_SHARE * minutes, LATEST_SHARE * minutes - used), LEAST_TRAINING_SHARE * minutes
    )
    try:
        return _train(out, left, seed)
    except BudgetError as error:
        raise ConfigError(
            expected=f"a demo of {minutes:g} minutes to leave time for training",
            found=error.found,
            fix=f"set --minutes to more than {math.ceil((error.minutes + used) * 10) / 10:g}",
        ) from None


def _write_docstrings(path: Path, until: float) -> Path:
    """Writes the documentation on this machine, one sentence per line and a blank line between documents.

    Args:
        until: the time on the monotonic clock at which reading stops.
    """
    with (
        atomic_file(path) as file,
        Progress("reading docstrings", unit="modules") as progress,
        contextlib.closing(docstring_documents()) as documents,
    ):
        for document in documents:
            file.write("\n".join([*document.sentences, "", ""]).encode("utf-8"))
            progress.advance()
            if time.monotonic() >= until:
                warn("reading took longer than planned, so the demo uses the part of the documentation read so far")
                break
    return path


def _train(out: Path, minutes: float, seed: int) -> TrainResult:
    """The result of training for some minutes, with settings that suit a small model and a short time.

    They are not the recipe of 2018: more masks, a high learning rate, short rows, no dropout, a lower beta2.
    """
    return pretrain(
        out / "corpus",
        out / "run",
        PretrainingRunSettings(size="tiny", dropout=0.0, rows_per_step=32, evaluation_rows=256),
        PretrainingDataSettings(max_length=64, masked_share=0.3, dynamic=True, seed=seed),
        TrainSettings(minutes=minutes, learning_rate=3e-3, beta2=0.98, warmup_share=0.2, seed=seed, save_minutes=None),
    )


def _samples(model: Path, corpus: Corpus, seed: int) -> tuple[list[Gap], list[Samples]]:
    """Masked held-out sentences, and true and random next sentences, for the report."""
    predictor = load_pretraining_heads(str(model))
    held_out = corpus.held_out() or corpus
    gaps = [_gap(predictor, ids, place) for ids, place in _hidden_words(held_out, seed, 20)]
    filled = Samples(
        title="Held-out sentences with one word masked",
        header=("sentence", "masked", "predicted"),
        rows=[
            (gap.text, gap.hidden, ", ".join(f"{piece} {chance:.0%}" for piece, chance in gap.guesses)) for gap in gaps
        ],
    )
    following = Samples(
        title="Does B follow A?",
        header=("A", "B", "truth", "probability that B follows"),
        rows=_following(predictor, held_out, seed, 10),
    )
    return gaps, [filled, following]


def _hidden_words(corpus: Corpus, seed: int, count: int) -> list[tuple[np.ndarray, int]]:
    """Sentences of 8 to 30 pieces, as ids, each with the position of a word that is one alphabetic piece."""
    pieces = corpus.vocabulary.pieces
    rng = generator(seed, "demo gaps")
    found: list[tuple[np.ndarray, int]] = []
    for document in rng.permutation(corpus.num_documents).tolist():
        edges = corpus.document_sentences(document)
        for sentence in rng.permutation(len(edges) - 1).tolist()[:2]:
            ids = np.asarray(corpus.document_tokens(document)[edges[sentence] : edges[sentence + 1]], dtype=np.int64)
            words = [pieces[id] for id in ids.tolist()] + [""]
            places = [
                place
                for place in range(len(ids))
                if len(words[place]) > 2 and words[place].isalpha() and not words[place + 1].startswith("##")
            ]
            if 8 <= len(ids) <= 30 and places:
                found.append((ids, int(rng.choice(places))))
        if len(found) >= count:
            break
    return found[:count]


def _gap(predictor: PretrainedPredictor, ids: np.ndarray, place: int) -> Gap:
    tokenizer = predictor.tokenizer
    hidden = tokenizer.vocabulary.pieces[ids[place]]
    masked = ids.copy()
    masked[place] = tokenizer.vocabulary.mask_id
    before, after = tokenizer.decode(masked[:place]), tokenizer.decode(masked[place + 1 :])
    text = f"{before} {MASK} {after}".strip()
    guesses = tuple((guess.piece, guess.probability) for guess in predictor.fill(text, top=5)[0])
    return Gap(text=text, hidden=hidden, guesses=guesses)


def _following(predictor: PretrainedPredictor, corpus: Corpus, seed: int, count: int) -> list[tuple[str, ...]]:
    """Table rows of two adjacent sentences, and of two from random documents."""
    rng = generator(seed, "demo pairs")
    several = np.flatnonzero(corpus.sentence_counts >= 2)
    rows: list[tuple[str, ...]] = []
    for number, document in enumerate(rng.permutation(several).tolist()[:count]):
        first = int(rng.integers(corpus.sentence_counts[document] - 1))
        follows = number % 2 == 0
        other = document if follows else int(rng.integers(corpus.num_documents))
        second = first + 1 if follows else int(rng.integers(corpus.sentence_counts[other]))
        a, b = _sentence(predictor, corpus, document, first), _sentence(predictor, corpus, other, second)
        if a and b:
            chance = predictor.next_sentence(a, [b])[0].probability
            rows.append((a, b, "follows" if follows else "random", f"{chance:.0%}"))
    return rows


def _sentence(predictor: PretrainedPredictor, corpus: Corpus, document: int, sentence: int) -> str:
    edges = corpus.document_sentences(document)
    return predictor.tokenizer.decode(corpus.document_tokens(document)[edges[sentence] : edges[sentence + 1]])
