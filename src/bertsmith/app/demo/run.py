"""`bertsmith demo` as a function: the whole pipeline on text that is already on the machine.

The default text is the docstrings of the Python standard library and of the installed packages, which are read but
never executed: 10 to 20 MB of real English. The demo folder contains what the individual commands would write::

    DEMO/text/docstrings.txt   one sentence per line, a blank line between modules (absent if the user provides text)
    DEMO/vocab.txt             the learned vocabulary
    DEMO/corpus/               token shards, with some documents held out
    DEMO/run/                  settings, log, checkpoints, model
    DEMO/labelled/*.tsv        sentences labelled with their source, for training and dev (if there are several)
    DEMO/classifier/           the fine-tuning on them: report, predictions, model
    DEMO/report.html           the curve while the model trains; at the end curves, predictions, scores
"""

import contextlib
import dataclasses
import math
import shutil
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from bertsmith.app.demo.labelled import Documents, documents_by_source, train_classifier, write_labelled
from bertsmith.app.demo.result import ClassifierResult, DemoResult, Gap, LiveCurve, tables
from bertsmith.app.library.request import DemoRequest
from bertsmith.base.core.errors import ConfigError, InputError
from bertsmith.base.core.progress import Progress, duration, said_once, tell, warn
from bertsmith.base.core.randomness import generator
from bertsmith.base.core.requests import takes
from bertsmith.base.core.settings import require_number, require_other, to_dict
from bertsmith.base.storage.files import atomic_file
from bertsmith.base.storage.locks import LOCK_FILE, locked_folder, require_unused
from bertsmith.inference.predictors.loading import load_pretraining_heads
from bertsmith.inference.predictors.pretraining_heads import PretrainedPredictor
from bertsmith.text.corpus.build import build_corpus
from bertsmith.text.corpus.shards import Corpus
from bertsmith.text.documents.docstrings import docstring_documents
from bertsmith.text.documents.encodings import EncodingSettings
from bertsmith.text.documents.readers import ReadingSettings
from bertsmith.text.documents.words import count_files
from bertsmith.text.tokenizers.normalize import TextRules
from bertsmith.text.tokenizers.vocabulary import MASK
from bertsmith.text.tokenizers.wordpiece import WordPieceTokenizer
from bertsmith.text.vocabularies.learn import learn_vocabulary
from bertsmith.training.loop.budget import BudgetError
from bertsmith.training.loop.callbacks import callbacks
from bertsmith.training.loop.loop import TrainResult
from bertsmith.training.pretraining.held_out_scores import HeldOutRows
from bertsmith.training.pretraining.ngram_baseline import CountedScores, NgramBaseline
from bertsmith.training.pretraining.recipes import settings_from_recipe
from bertsmith.training.pretraining.report import write_report
from bertsmith.training.pretraining.run import pretrain

VOCABULARY_SIZE = 8000
ROW_LENGTH = 64  # tokens
SCORED_ROWS = 512  # held-out rows whose masked pieces are scored at the end: some thousands of pieces
TITLE = "Bertsmith demo"

# Shares of the minutes. Training gets what the others leave, about 0.65 on two idle cores.
READING_SHARE = 0.1  # reading the documentation on this machine stops there, if enough was read
LATEST_READING_SHARE = 0.25  # it stops there, however little was read
CLASSIFIER_SHARE = 0.1  # the classifier at the end
LEAST_CLASSIFIER_SHARE = 0.02  # the classifier, if the minutes are nearly used up
TRAINING_SHARE = 0.5  # training, if what comes before takes so long that less is left
LEAST_TRAINING_SHARE = 0.1  # training, however long that takes
LATE_SHARE = 1.25  # a demo that took longer says so
LATEST_SHARE = 1.1  # training that was given more time than is left is planned to end there
ENOUGH_CHARACTERS = 2_000_000  # of documentation
CLOSING_SECONDS = 8.0  # reserved for the predictions and the report
SHORTEST_MINUTES, LONGEST_MINUTES = 0.5, 10**7


@takes(DemoRequest)
@said_once()
def run_demo(request: DemoRequest) -> DemoResult:
    """The result of the whole pipeline, from learning a vocabulary to the report, in about `minutes`.

    On a machine that is busy or becomes busy, less documentation is read, fewer steps are made and the classifier gets
    fewer sentences, for the demo to end within LATE_SHARE times the minutes; a line says so if it does not. The user's
    own text is always read as a whole. The text that was read, the steps and the sentences are in the folder, to repeat
    the run. If the minutes are too few for a single step, or the texts are too short, nothing is left in the folder.

    Raises:
        RunError: the folder exists and is not empty.
        ConfigError: the time is too short or infinite, or an encoding is given without texts.
        InputError: the texts cannot be read or are too short.
    """
    out, minutes, seed = Path(request.out), request.minutes, request.seed
    texts = [Path(text) for text in request.texts]
    started = time.monotonic()
    require_number("minutes", minutes, least=SHORTEST_MINUTES, most=LONGEST_MINUTES)
    require_unused(out, "choose another with --out")
    reading = request.part(EncodingSettings)
    require_other(bool(texts) or reading == EncodingSettings(), "a choice of --encoding or --bad-bytes", "--text")
    with locked_folder(out):
        with _nothing_left(out):
            prepared = _prepare(out, texts, reading, minutes, started, seed)
            trained = _train_in_time(out, minutes, time.monotonic() - started, prepared, seed)
        classifier = None
        if not prepared.no_classifier:
            classifier = _classifier(out, minutes, time.monotonic() - started, trained, seed)
        result = _finish(out, prepared, classifier, started, seed)
    if result.seconds > LATE_SHARE * minutes * 60:
        warn(f"the demo took {duration(result.seconds)}, longer than planned, because this machine is slow or busy")
    return result


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


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Prepared:
    """What exists before training."""

    rows: HeldOutRows  # the held-out rows that are scored
    counted: tuple[CountedScores, CountedScores]  # the scores of the unigram and of the bigram model on them
    no_classifier: str  # why there are no labelled sentences; empty if there are


def _prepare(
    out: Path, texts: Sequence[Path], reading: EncodingSettings, minutes: float, started: float, seed: int
) -> _Prepared:
    """Vocabulary, corpus, labelled sentences and the scores of the counting models."""
    chosen = ReadingSettings(**to_dict(reading))
    if texts:
        sources, by_label = list(texts), documents_by_source(texts, chosen)
    else:
        sources = [out / "text" / "docstrings.txt"]
        ends = [started + share * minutes * 60 for share in (READING_SHARE, LATEST_READING_SHARE)]
        by_label = _write_docstrings(sources[0], until=ends[0], latest=ends[1])
    counts = count_files(sources, TextRules(), chosen)
    tokenizer = WordPieceTokenizer(learn_vocabulary(counts.total, VOCABULARY_SIZE), TextRules())
    tokenizer.vocabulary.save(out / "vocab.txt")
    build_corpus(sources, tokenizer, out / "corpus", held_out=0.02, **to_dict(chosen))
    corpus = Corpus.open(out / "corpus")
    if corpus.held_out() is None:
        raise InputError(
            expected="texts with several sentences, so that some can be held out for evaluation",
            found="a single sentence",
            fix="give more text",
        )
    if reason := write_labelled(by_label, out / "labelled", seed):
        tell(f"no classifier: {reason}")
    rows = HeldOutRows.of(corpus, length=ROW_LENGTH, rows=SCORED_ROWS)
    counted = rows.counted_scores(NgramBaseline.of(corpus, len(corpus.vocabulary), corpus.vocabulary.spare_ids))
    return _Prepared(rows=rows, counted=counted, no_classifier=reason)


def _write_docstrings(path: Path, until: float, latest: float) -> dict[str, Documents]:
    """Writes the documentation on this machine, one sentence per line and a blank line between documents.

    Args:
        until: the time on the monotonic clock at which reading stops, if ENOUGH_CHARACTERS were read.

    Returns:
        The documents of each package, by its name.
    """
    by_package: dict[str, list[Sequence[str]]] = {}
    characters = 0
    with (
        atomic_file(path) as file,
        Progress("reading docstrings", unit="modules") as progress,
        contextlib.closing(docstring_documents()) as documents,
    ):
        for document in documents:
            file.write("\n".join([*document.sentences, "", ""]).encode("utf-8"))
            by_package.setdefault(document.source.split(".")[0], []).append(document.sentences)
            progress.advance()
            characters += sum(map(len, document.sentences))
            if time.monotonic() >= (until if characters >= ENOUGH_CHARACTERS else latest):
                warn("reading took longer than planned, so the demo uses the part of the documentation read so far")
                break
    return dict(by_package)


def _train_in_time(out: Path, minutes: float, elapsed: float, prepared: _Prepared, seed: int) -> TrainResult:
    """The result of training for the part of the minutes that is left to it."""
    used = (elapsed + CLOSING_SECONDS) / 60
    after = 0.0 if prepared.no_classifier else CLASSIFIER_SHARE * minutes
    left = max(
        minutes - used - after,
        min(TRAINING_SHARE * minutes, LATEST_SHARE * minutes - used),
        LEAST_TRAINING_SHARE * minutes,
    )
    try:
        return _train(out, left, seed)
    except BudgetError as error:
        raise ConfigError(
            expected=f"a demo of {minutes:g} minutes to leave time for training",
            found=error.found,
            fix=f"set --minutes to more than {math.ceil((error.minutes + used + after) * 10) / 10:g}",
        ) from None


def _train(out: Path, minutes: float, seed: int) -> TrainResult:
    """The result of training for some minutes by the default recipe, with short rows."""
    settings = settings_from_recipe(
        {
            "size": "tiny",
            "max_length": ROW_LENGTH,
            "minutes": minutes,
            "evaluation_rows": 256,
            "save_minutes": None,
            "seed": seed,
        }
    )
    with callbacks(LiveCurve(out / "report.html", TITLE)):
        return pretrain(out / "corpus", out / "run", *settings)


def _classifier(out: Path, minutes: float, elapsed: float, trained: TrainResult, seed: int) -> ClassifierResult:
    """The classifier, trained in its share of the minutes, or in less if they are nearly used up."""
    left = LATEST_SHARE * minutes * 60 - elapsed - CLOSING_SECONDS
    seconds = max(LEAST_CLASSIFIER_SHARE * minutes * 60, min(CLASSIFIER_SHARE * minutes * 60, left))
    return train_classifier(
        out / "run" / "model",
        out / "labelled",
        out / "classifier",
        seconds=seconds,
        tokens_per_second=trained.tokens / trained.seconds,
        seed=seed,
    )


def _finish(
    out: Path, prepared: _Prepared, classifier: ClassifierResult | None, started: float, seed: int
) -> DemoResult:
    """The scores of the model, and the report with all results."""
    model = out / "run" / "model"
    predictor = load_pretraining_heads(str(model), device="cpu")
    held_out = Corpus.open(out / "corpus").held_out()
    assert held_out is not None, "checked before training"
    gaps = [_gap(predictor, ids, position) for ids, position in _hidden_words(held_out, seed, 20)]
    scores, (unigram, bigram) = prepared.rows.scores(predictor.model), prepared.counted
    num_masked, no_classifier = prepared.rows.num_masked, prepared.no_classifier
    shown = tables(scores, prepared.counted, num_masked, gaps, classifier, no_classifier)
    return DemoResult(
        report=write_report(out / "run", out=out / "report.html", title=TITLE, samples=shown),
        model=model,
        num_masked=num_masked,
        held_out_loss=scores.loss,
        unigram_entropy=unigram.loss,
        bigram_loss=bigram.loss,
        top_five=scores.top,
        unigram_top_five=unigram.top,
        bigram_top_five=bigram.top,
        gaps=gaps,
        classifier=classifier,
        no_classifier=no_classifier,
        seconds=time.monotonic() - started,
    )


def _hidden_words(corpus: Corpus, seed: int, count: int) -> list[tuple[np.ndarray, int]]:
    """Sentences of 8 to 30 pieces, as ids, each with the position of a word that is one alphabetic piece."""
    pieces = corpus.vocabulary.pieces
    rng = generator(seed, "demo gaps")
    sentences: list[tuple[np.ndarray, int]] = []
    for document in rng.permutation(corpus.num_documents).tolist():
        edges = corpus.document_sentences(document)
        for sentence in rng.permutation(len(edges) - 1).tolist()[:2]:
            ids = np.asarray(corpus.document_tokens(document)[edges[sentence] : edges[sentence + 1]], dtype=np.int64)
            words = [pieces[id] for id in ids.tolist()] + [""]
            positions = [
                position
                for position in range(len(ids))
                if len(words[position]) > 2 and words[position].isalpha() and not words[position + 1].startswith("##")
            ]
            if 8 <= len(ids) <= 30 and positions:
                sentences.append((ids, int(rng.choice(positions))))
        if len(sentences) >= count:
            break
    return sentences[:count]


def _gap(predictor: PretrainedPredictor, ids: np.ndarray, position: int) -> Gap:
    tokenizer = predictor.tokenizer
    hidden = tokenizer.vocabulary.pieces[ids[position]]
    masked = ids.copy()
    masked[position] = tokenizer.vocabulary.mask_id
    before, after = tokenizer.decode(masked[:position]), tokenizer.decode(masked[position + 1 :])
    text = f"{before} {MASK} {after}".strip()
    guesses = tuple((guess.piece, guess.probability) for guess in predictor.fill(text, top=5)[0])
    return Gap(text=text, hidden=hidden, guesses=guesses)
