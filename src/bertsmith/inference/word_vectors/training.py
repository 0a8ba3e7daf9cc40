"""Training word vectors from text files: the words, the stream, the epochs, the folder.

While vectors are made for V, the folder V.training has what a run needs to resume: its settings, the words, the stream
of their numbers or the counts of their neighbors, and the tables after the last complete epoch. It is removed when V is
in place.
"""

import dataclasses
import functools
import importlib.metadata
import json
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from bertsmith.base.core.errors import ConfigError, InputError, RunError
from bertsmith.base.core.progress import Progress, counted, tell
from bertsmith.base.core.randomness import generator
from bertsmith.base.core.requests import parameters_named
from bertsmith.base.core.settings import to_dict
from bertsmith.base.storage.files import (
    atomic_file,
    keep_record,
    read_json,
    remove_partials,
    require_outside,
    write_json,
    write_text,
)
from bertsmith.base.storage.locks import LOCK_FILE, locked_folder
from bertsmith.inference.word_vectors.compiled import INSTALL, has_compiler
from bertsmith.inference.word_vectors.glove import GloVe
from bertsmith.inference.word_vectors.settings import (
    AUTO,
    COMPILED,
    GLOVE,
    NUMPY,
    PPMI,
    TrainVectorsRequest,
    WordVectorSettings,
)
from bertsmith.inference.word_vectors.word2vec import Word2Vec
from bertsmith.inference.word_vectors.word_stream import (
    WordList,
    WordStream,
    choose_words,
    readable_texts,
    with_gaps,
    write_stream,
)
from bertsmith.inference.word_vectors.word_vectors import (
    WORD_VECTOR_FOLDER,
    WordVectors,
    load_folder,
    save_word_vectors,
)
from bertsmith.text.corpus.cooccurrence import PpmiOfCounts, count_neighbors, reduced
from bertsmith.text.corpus.pair_counts import PairCounts
from bertsmith.text.corpus.pairs import PairFiles, has_pairs, write_pairs
from bertsmith.text.documents.encodings import UTF_8
from bertsmith.text.documents.readers import ReadingSettings
from bertsmith.text.tokenizers.normalize import TextRules
from bertsmith.training.loop.callbacks import warn_of_uncalled

_SETTINGS, _WORDS, _STREAM, _STATE = "settings.json", "words.txt", "stream.i32", "state.safetensors"
_COUNTS = "counts"  # a folder: sorted runs of counts, and afterwards the pairs of GloVe
_READY = "ready.json"  # the last file of the preparation: counts of the words, and what was left out


@parameters_named(dataclasses.fields(TrainVectorsRequest))
def train_word_vectors(
    texts: Sequence[str | Path],
    out: str | Path,
    settings: WordVectorSettings | None = None,
    *,
    form: str = "auto",
    column: str = "",
    encoding: str = UTF_8,
    bad_bytes: str = "refuse",
    resume: bool = False,
    replace: bool = False,
    on_epoch: Callable[[int], None] | None = None,
    **changes: Any,
) -> WordVectors:
    """Word vectors trained on text files, also written to the folder `out`.

    Args:
        texts: files (.txt, .jsonl, .parquet, also .gz and .zst) and folders; "-" is stdin.
        out: the folder to write.
        settings: how to train; by default skip-gram with the settings of the original program.
        form: layout of .txt files, see `ReadingSettings`.
        column: the text column of .jsonl and .parquet files, if it has no common name.
        encoding, bad_bytes: see `EncodingSettings`.
        resume: resume a stopped run with the same settings; the result is the same, byte for byte.
        replace: replace an existing folder of word vectors, and an unfinished run.
        on_epoch: receives the number of complete epochs before each epoch; for a caller that measures time.
        changes: single settings, instead of those in `settings`.

    Raises:
        ConfigError: a setting is out of range or does not belong to the method.
        InputError: a file is missing, empty or damaged, there are too few words, or `out` is taken.
        RunError: there is an unfinished run that is neither resumed nor replaced, or one with other settings.
    """
    warn_of_uncalled("the training of word vectors")
    settings = dataclasses.replace(settings or WordVectorSettings(), **changes).resolved()
    out, reading = Path(out), ReadingSettings(form=form, column=column, encoding=encoding, bad_bytes=bad_bytes)
    folder = Path(f"{out.absolute()}.training")
    require_outside(out, texts)
    settings = _with_engine(settings, folder / _SETTINGS if resume else None)
    made_of = _record(settings, texts, reading)
    if resume and not replace and out.exists() and not folder.exists():
        return _finished(out, made_of)
    _require_free(out, replace=replace)
    with locked_folder(folder):
        _start(folder, made_of, resume=resume, replace=replace)
        try:
            words = _prepared(texts, reading, settings, folder)
        except InputError:
            _empty(folder)  # there is nothing to resume
            raise
        vectors, losses = _trained(words, settings, folder, on_epoch)
        about = {"text_words": words.text_words, "notes": words.notes, "loss": losses, "versions": _versions(settings)}
        result = WordVectors(
            words=words.words,
            vectors=vectors,
            counts=words.counts,
            lowercase=not settings.cased,
            about={**made_of, **about},
        )
        save_word_vectors(result, out, replace=replace)
        _empty(folder)
    shutil.rmtree(folder, ignore_errors=True)
    return result


def _record(settings: WordVectorSettings, texts: Sequence[str | Path], reading: ReadingSettings) -> dict[str, Any]:
    """What the vectors are made of."""
    record = {
        "settings": to_dict(settings), "texts": [str(text) for text in texts],
        "form": reading.form, "column": reading.column,
    }  # fmt: skip
    if (reading.encoding, reading.bad_bytes) != (UTF_8, "refuse"):
        record |= {"encoding": reading.encoding, "bad_bytes": reading.bad_bytes}
    return record


def _require_free(out: Path, *, replace: bool) -> None:
    """Checks, before any work, that the vectors may be written."""
    if out.exists() and not replace:
        raise InputError(
            expected=f"no folder at '{out}'", found="one that exists", fix="choose another, or add --replace"
        )
    if out.exists() and not (out.is_dir() and WORD_VECTOR_FOLDER.fits(out)):
        raise InputError(
            expected=f"word vectors or nothing at '{out}'", found="something else", fix="choose another folder"
        )


def _with_engine(settings: WordVectorSettings, before: Path | None) -> WordVectorSettings:
    """The settings with an engine that is installed: that of the run that is resumed, or compiled code if possible.

    Args:
        before: the settings of the run that is resumed.
    """
    if settings.method == PPMI:
        return settings
    engine = settings.engine
    if engine == AUTO and before is not None and before.exists():
        engine = read_json(before).get("settings", {}).get("engine", AUTO)
    if engine == AUTO:
        is_block = (settings.block or 1) > 1
        engine = COMPILED if (has_compiler() or settings.threads > 1) and not is_block else NUMPY
        if engine == NUMPY and not is_block:
            tell(f"NumPy trains the vectors; {INSTALL} installs a compiler, which makes it several times as fast")
    if engine == COMPILED and not has_compiler():
        raise ConfigError(
            expected="Numba, for the engine compiled", found="no such package", fix=f"{INSTALL}, or use --engine numpy"
        )
    if settings.threads > 1:
        tell(f"{settings.threads} threads share the vectors, so the result is not repeatable; with one thread it is")
    return dataclasses.replace(settings, engine=engine)


def _versions(settings: WordVectorSettings) -> dict[str, str]:
    names = ("numpy", "scipy", "numba") if settings.engine == COMPILED else ("numpy", "scipy")
    return {name: importlib.metadata.version(name) for name in names}


def _finished(out: Path, made_of: dict[str, Any]) -> WordVectors:
    """The result of a run that is resumed although it is complete."""
    result = load_folder(out)
    if any(result.about.get(key) != value for key, value in made_of.items()):
        raise _other_run(out)
    return result


def _start(folder: Path, made_of: dict[str, Any], *, resume: bool, replace: bool) -> None:
    """Starts or resumes the run in its folder: what is in it is of this run, or removed."""
    remove_partials(folder)
    is_started = (folder / _SETTINGS).exists()
    if is_started and not (resume or replace):
        raise RunError(
            expected=f"no unfinished run in '{folder}'", found="one", fix="add --resume, or --replace to start again"
        )
    if not is_started and any(path.name != LOCK_FILE for path in folder.iterdir()):
        raise RunError(expected=f"a run in '{folder}'", found="other files", fix="move them away")
    if not (is_started and resume):
        _empty(folder)
    if keep_record(folder / _SETTINGS, made_of):
        raise _other_run(folder)


def _prepared(
    texts: Sequence[str | Path], reading: ReadingSettings, settings: WordVectorSettings, folder: Path
) -> WordList:
    """The vocabulary; afterwards the folder has the stream of the words."""
    if (folder / _READY).exists():
        ready = read_json(folder / _READY)
        known = (folder / _WORDS).read_text(encoding="utf-8").removesuffix("\n").split("\n")
        return WordList(known, np.array(ready["counts"], dtype=np.int64), ready["text_words"], ready["notes"])
    rules = TextRules(lowercase=not settings.cased)
    files = readable_texts([Path(text) for text in texts], folder)
    words = choose_words(files, reading, rules, minimum_count=settings.minimum_count, most_words=settings.most_words)
    write_stream(files, reading, rules, words, folder / _STREAM)
    write_text(folder / _WORDS, "".join(f"{word}\n" for word in words.words))
    ready = {"counts": words.counts.tolist(), "text_words": words.text_words, "notes": words.notes}
    write_json(folder / _READY, ready)
    return words


def _trained(
    words: WordList, settings: WordVectorSettings, folder: Path, on_epoch: Callable[[int], None] | None
) -> tuple[npt.NDArray[np.float32], list[float]]:
    """(the vectors, float32 [V, D], the mean loss of each epoch)."""
    known = int(words.counts.sum())
    tell(
        f"{counted(len(words.words), 'word')} with a vector; they make up {known / words.text_words:.1%} of "
        f"{counted(words.text_words, 'word')} of text"
    )
    stream = WordStream(folder / _STREAM)
    if settings.method == PPMI:
        return _reduced(stream, words, settings, folder / _COUNTS), []
    model: Word2Vec | GloVe
    if settings.method == GLOVE:
        model = GloVe(_pairs(stream, words, settings, folder / _COUNTS), len(words.words), settings)
        train_epoch, unit, total = model.train_epoch, "pairs", model.pairs.total
    else:
        model = Word2Vec(words.counts, settings)
        train_epoch, unit, total = functools.partial(model.train_epoch, stream), "words", known
    losses = _read_state(folder / _STATE, model.tables)
    done = len(losses)
    assert settings.epochs is not None
    with Progress(settings.method, settings.epochs * total, unit, done=done * total) as progress:
        for epoch in range(done, settings.epochs):
            if on_epoch is not None:
                on_epoch(epoch)
            losses.append(train_epoch(epoch, progress))
            _write_state(folder / _STATE, model.tables, losses)
    return model.vectors, losses


def _reduced(
    stream: WordStream, words: WordList, settings: WordVectorSettings, folder: Path
) -> npt.NDArray[np.float32]:
    """The vectors of PPMI, float32 [V, D]."""
    assert settings.width is not None
    counts = _neighbors(stream, words, settings, folder)
    matrix = PpmiOfCounts(counts, len(words.words), memory=settings.memory * 1e6)
    vectors = reduced(matrix, settings.width, generator(settings.seed, "word vectors"))
    counts.remove()
    return vectors


def _pairs(stream: WordStream, words: WordList, settings: WordVectorSettings, folder: Path) -> PairFiles:
    """The pairs of words that GloVe learns from, in files."""
    if not has_pairs(folder):
        counts = _neighbors(stream, words, settings, folder)
        write_pairs(counts, len(words.words), settings.seed, folder)
        counts.remove()
    return PairFiles(folder)


def _neighbors(stream: WordStream, words: WordList, settings: WordVectorSettings, folder: Path) -> PairCounts:
    """How often words occur near each other; `folder` is emptied, and keeps what exceeds the memory."""
    assert settings.window is not None
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    counts = PairCounts(folder, settings.memory * 1e6)
    with Progress("counting neighbors", len(stream.ids), "words") as progress:
        for ids in stream.chunks():
            count_neighbors(
                with_gaps(ids, settings.window), len(words.words), counts,
                window=settings.window, by_distance=settings.method == GLOVE,
            )  # fmt: skip
            progress.advance(len(ids))
    return counts


def _write_state(path: Path, tables: dict[str, npt.NDArray[np.float32]], losses: list[float]) -> None:
    with atomic_file(path) as file:
        file.write(save(tables, metadata={"losses": json.dumps(losses)}))


def _read_state(path: Path, tables: dict[str, npt.NDArray[np.float32]]) -> list[float]:
    """The losses of the complete epochs; `tables` receive the values after them, in place."""
    if not path.exists():
        return []
    try:
        with safe_open(path, framework="numpy") as file:
            losses: list[float] = json.loads((file.metadata() or {})["losses"])
            for name, table in tables.items():
                table[:] = file.get_tensor(name)
    except (SafetensorError, KeyError, ValueError) as error:
        raise RunError(
            expected=f"the state of a run in '{path}'", found=str(error), fix="start again with --replace"
        ) from None
    return losses


def _empty(folder: Path) -> None:
    """Removes the files of a run, its settings last, so that what is left by a crash is still known as a run."""
    shutil.rmtree(folder / _COUNTS, ignore_errors=True)
    for name in (_READY, _STATE, _STREAM, _WORDS, "stdin.txt", _SETTINGS):
        (folder / name).unlink(missing_ok=True)


def _other_run(folder: Path) -> RunError:
    return RunError(
        expected=f"the settings and texts of the run in '{folder}'",
        found="others",
        fix="give the same options again, or start again with --replace",
    )
