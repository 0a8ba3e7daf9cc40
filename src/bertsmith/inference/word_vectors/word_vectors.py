"""Words and their vectors as one object, and its folder.

V words, D width.

A folder has `vectors.safetensors` (float32 [V, D] and, if they are known, the counts of the words), `words.txt` (a word
per line, in the order of the rows), `bertsmith.json` (how they were made) and a card, `README.md`.
"""

import dataclasses
import functools
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file

from bertsmith.base.core.errors import InputError, nearest
from bertsmith.base.core.finite import first_not_finite
from bertsmith.base.core.progress import counted, short_repr
from bertsmith.base.storage.files import FolderKind, atomic_folder, digest_file, misfit, read_json
from bertsmith.tasks.metrics.vectors import unit
from bertsmith.text.tokenizers.normalize import TextRules, basic_tokens

VECTORS_FILE, WORDS_FILE, ABOUT_FILE, CARD_FILE = "vectors.safetensors", "words.txt", "bertsmith.json", "README.md"
WORD_VECTOR_FOLDER = FolderKind("word vectors", ((VECTORS_FILE, WORDS_FILE, ABOUT_FILE),))
KIND = "word vectors"
_ABOUT = {"kind": str, "cased?": bool, "digests": {"*": str}}

Floats = npt.NDArray[np.float32]


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class WordVectors:
    """Words with a vector each, most frequent word first if the counts are known."""

    words: Sequence[str]  # V different words
    vectors: Floats  # float32 [V, D], finite
    counts: npt.NDArray[np.int64] | None = None  # int64 [V], how often each occurred; None if unknown
    lowercase: bool = False  # words are looked up without capitals and accents; otherwise as they are
    about: dict[str, Any] = dataclasses.field(default_factory=dict)  # how the vectors were made, for JSON

    __repr__ = short_repr

    def __post_init__(self) -> None:
        assert self.vectors.dtype == np.float32
        assert self.vectors.shape == (len(self.words), self.vectors.shape[1])
        if len(self.index) < len(self.words):
            seen: set[str] = set()
            twice = next(word for word in self.words if word in seen or seen.add(word))  # type: ignore[func-returns-value]
            raise InputError(
                expected="each word once", found=f"{twice!r} twice", fix="remove one of its vectors, or train again"
            )
        if (row := first_not_finite(self.vectors)) is not None:
            raise InputError(
                expected="finite numbers in all vectors",
                found=f"NaN or infinity for {self.words[row]!r}",
                fix="remove this word, or train with a lower learning rate",
            )

    @property
    def width(self) -> int:
        """D."""
        return int(self.vectors.shape[1])

    @functools.cached_property
    def index(self) -> dict[str, int]:
        """The row of each word."""
        return {word: row for row, word in enumerate(self.words)}

    @functools.cached_property
    def units(self) -> Floats:
        """The vectors normalized to length 1, float32 [V, D]; a vector of length 0 stays 0."""
        return unit(self.vectors)

    def spelled(self, word: str) -> str:
        """The word as the vocabulary would spell it: without capitals and accents, if it has none."""
        return "".join(basic_tokens(word, TextRules())) if self.lowercase else word

    def row(self, word: str) -> int | None:
        """The row of a word; None if it has no vector."""
        return self.index.get(self.spelled(word))

    def vector(self, word: str) -> Floats:
        """The vector of a word, float32 [D]; the same in every context."""
        vector: Floats = self.vectors[self.rows([word])[0]]
        return vector

    def rows(self, words: Sequence[str]) -> list[int]:
        """The rows of words."""
        result = []
        for word in words:
            row = self.row(word)
            if row is None:
                spelled = self.spelled(word)
                raise InputError(
                    expected=f"a word among the {counted(len(self.words), 'word')} with a vector",
                    found=repr(word),
                    fix=_suggestion(spelled, self.words),
                )
            result.append(row)
        return result


def save_word_vectors(vectors: WordVectors, path: Path | str, *, replace: bool = False) -> None:
    """Writes a folder of word vectors, atomically."""
    with atomic_folder(Path(path), replace=WORD_VECTOR_FOLDER if replace else False) as folder:
        tensors: dict[str, npt.NDArray[Any]] = {"vectors": np.ascontiguousarray(vectors.vectors)}
        if vectors.counts is not None:
            tensors["counts"] = np.ascontiguousarray(vectors.counts, dtype=np.int64)
        save_file(tensors, folder / VECTORS_FILE)
        if wrong := next((word for word in vectors.words if not word or "\n" in word or "\r" in word), None):
            raise InputError(expected="words without line ends", found=repr(wrong), fix="remove this word")
        (folder / WORDS_FILE).write_bytes("".join(f"{word}\n" for word in vectors.words).encode("utf-8"))
        about = {
            "kind": KIND,
            "words": len(vectors.words),
            "width": vectors.width,
            "cased": not vectors.lowercase,
            **{key: value for key, value in vectors.about.items() if key != "digests"},
            "digests": {name: digest_file(folder / name) for name in (VECTORS_FILE, WORDS_FILE)},
        }
        (folder / ABOUT_FILE).write_text(
            json.dumps(about, indent=2, ensure_ascii=False) + "\n", encoding="utf-8", newline="\n"
        )
        (folder / CARD_FILE).write_text(card(about, vectors.words), encoding="utf-8", newline="\n")


def is_word_vector_folder(path: Path) -> bool:
    """Whether a folder looks like one that `save_word_vectors` wrote."""
    return (path / ABOUT_FILE).is_file() and (path / WORDS_FILE).is_file()


def load_folder(path: Path) -> WordVectors:
    """The word vectors of a folder."""
    about = read_json(path / ABOUT_FILE)
    problem = misfit(about, _ABOUT) or ("" if about["kind"] == KIND else f"kind = {about['kind']!r}")
    if problem:
        raise InputError(
            expected=f"word vectors in '{path}'", found=problem, fix="name a folder that `vectors train` wrote"
        )
    try:
        tensors = load_file(path / VECTORS_FILE)
        text = (path / WORDS_FILE).read_bytes().decode("utf-8")
    except (OSError, SafetensorError, UnicodeDecodeError) as error:
        raise _damaged(path, str(error)) from None
    words = text.removesuffix("\n").split("\n")
    vectors, counts = tensors.get("vectors"), tensors.get("counts")
    if vectors is None or vectors.ndim != 2 or vectors.dtype != np.float32:
        raise _damaged(path, f"no float32 table of vectors in {VECTORS_FILE}")
    if len(words) != len(vectors):
        raise _damaged(path, f"{counted(len(words), 'word')} and {counted(len(vectors), 'vector')}")
    if counts is not None and (counts.shape != (len(words),) or counts.dtype != np.int64):
        raise _damaged(path, f"counts of another shape in {VECTORS_FILE}")
    return WordVectors(words=words, vectors=vectors, counts=counts, lowercase=not about.get("cased", True), about=about)


def card(about: dict[str, Any], words: Sequence[str]) -> str:
    """The text of README.md: what the vectors are, and how to use them."""
    settings = about.get("settings", {})
    lines = [
        "# Word vectors",
        "",
        f"{about['words']:,} words, {about['width']:,} numbers each"
        + (f", by {settings['method']}" if "method" in settings else "")
        + ". A word has one vector, whatever its context.",
        "",
        f"The most frequent words: {', '.join(f'`{word}`' for word in words[:10])}.",
        "",
        "```console",
        "$ bertsmith vectors neighbours FOLDER WORD",
        "$ bertsmith vectors convert FOLDER --to text --out vectors.txt",
        "```",
        "",
    ]
    if settings:
        lines += ["| setting | value |", "|---|---|"]
        lines += [f"| {name.replace('_', ' ')} | {value} |" for name, value in settings.items() if value is not None]
        lines.append("")
    if about.get("loss"):
        lines += [f"Mean loss of the last epoch: {about['loss'][-1]:.4f}.", ""]
    return "\n".join(lines)


def _suggestion(word: str, words: Sequence[str]) -> str:
    if len(words) <= 50_000:
        fix = nearest(word, words)
        if fix.startswith("did you mean"):
            return fix
    return "name another word; words that occurred rarely were left out"


def _damaged(path: Path, found: str) -> InputError:
    return InputError(expected=f"word vectors in '{path}'", found=found, fix="restore the folder, or train again")
