"""Word vectors in the formats of other tools: the text and binary format of Word2Vec, and the text of GloVe.

Word2Vec: a first line `V D`; then in text `word v1 .. vD` per line; in binary the word, a space, D float32 (little
endian) and perhaps a line end. GloVe: the lines alone. fastText's `.vec` is the text of Word2Vec. A word may contain
spaces, as some of the published ones do: its vector is the last D numbers of the line. Without a first line, D is what
most of the first lines have. All may be compressed with gzip (`.gz`).

V words, D width.

Source: word2vec.c (the end of `TrainModel`), glove.c (`save_params`), gensim's `KeyedVectors.load_word2vec_format`.
"""

import codecs
import gzip
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import IO, NoReturn

import numpy as np

from bertsmith.base.core.errors import InputError
from bertsmith.base.core.progress import Progress, counted
from bertsmith.base.core.settings import require
from bertsmith.base.storage.files import atomic_file, require_file
from bertsmith.inference.word_vectors.word_vectors import Floats, WordVectors, load_folder

TEXT, BINARY = FORMATS = ("text", "binary")
_HEADER = re.compile(rb"(?:\xef\xbb\xbf)?[ \t]*(\d{1,10})[ \t]+(\d{1,5})[ \t]*\r?\n")
_CONTROLS = re.compile(rb"[\x00-\x08\x0b\x0c\x0e-\x1f]")
_MAGIC = {
    b"\xba\x16\x4f\x2f": "a model of fastText (.bin); use its vectors as text (.vec)",
    b"\x80": "a pickle, such as gensim's own format; save it with save_word2vec_format",
    b"\x1f\x8b": "gzip data; name the file .gz",
    b"PK\x03\x04": "a zip archive; unpack it",
}
_LONGEST_LINE = 1 << 22  # bytes
_HEAD = 1 << 16
_MOST_NUMBERS = 1 << 34  # of all vectors, 64 GiB


def load_word_vectors(path: Path | str, *, lowercase: bool = False) -> WordVectors:
    """The word vectors of a folder or file; the format is recognized by the content.

    Args:
        path: a folder of word vectors, or a file in the format of Word2Vec or GloVe, also .gz.
        lowercase: words are looked up without capitals and accents; a folder knows that itself.
    """
    path = Path(path)
    if path.is_dir():
        return load_folder(path)
    require_file(path, "word vectors")
    try:
        with _opened(path) as file:
            head = file.read(_HEAD)
        if meaning := next((meaning for magic, meaning in _MAGIC.items() if head.startswith(magic)), None):
            _refuse(path, meaning)
        header = _HEADER.match(head)
        with _opened(path) as file:
            if header is None:
                words, vectors = _read_lines(file, path, None, _width_of(head, path))
            else:
                count, width = int(header[1]), int(header[2])
                _require_header(path, count, width)
                file.readline()
                if _is_text(head[header.end() :], width):
                    words, vectors = _read_lines(file, path, count, width)
                else:
                    words, vectors = _read_binary(file, path, count, width)
    except (EOFError, gzip.BadGzipFile) as error:
        _refuse(path, str(error))
    try:
        return WordVectors(words=words, vectors=vectors, lowercase=lowercase)
    except InputError as error:
        raise InputError(expected=f"{error.expected} in '{path}'", found=error.found, fix=error.fix) from None


def write_word_vectors(vectors: WordVectors, path: Path | str, to: str) -> None:
    """Writes word vectors to a file, atomically, so that other tools read the same numbers.

    Args:
        to: text or binary, the formats of Word2Vec.
    """
    require(to in FORMATS, expected=f"a format, one of {', '.join(FORMATS)}", found=repr(to), fix="choose one of them")
    if wrong := next((word for word in vectors.words if not word or re.search(r"\s", word)), None):
        raise InputError(
            expected="words without white space, which these formats cannot hold",
            found=repr(wrong),
            fix="remove this word",
        )
    with atomic_file(Path(path)) as file:
        file.write(f"{len(vectors.words)} {vectors.width}\n".encode())
        for word, vector in zip(vectors.words, vectors.vectors, strict=True):
            if to == BINARY:
                file.write(word.encode("utf-8") + b" " + vector.astype("<f4").tobytes() + b"\n")
            else:
                # The shortest decimals from which the same float32 is read.
                file.write(f"{word} {' '.join(map(str, vector))}\n".encode())


def _opened(path: Path) -> IO[bytes]:
    return gzip.open(path) if path.suffix == ".gz" else open(path, "rb")  # type: ignore[return-value]


def _require_header(path: Path, count: int, width: int) -> None:
    if not (count and width and count * width <= _MOST_NUMBERS):
        _refuse(path, f"a first line with {counted(count, 'word')} of {counted(width, 'number')}")


def _is_text(start: bytes, width: int) -> bool:
    """Whether the bytes after the header are text: the first line ends in numbers, or none are control characters."""
    return _has_numbers(start.split(b"\n", 1)[0], width) or _CONTROLS.search(start) is None


def _has_numbers(line: bytes, width: int) -> bool:
    """Whether a line is a word and that many numbers; of a line that is cut off, whether it begins so."""
    parts = line.rstrip(b" \r\n").rsplit(b" ", width)
    try:
        # The last number may be cut off, so that it ends in an "e" or "-".
        [float(part) for part in parts[1 : width if len(line) > _HEAD // 2 else None]]
    except ValueError:
        return False
    return len(parts) == width + 1 or (len(parts) > 1 and len(line) > _HEAD // 2)


def _width_of(head: bytes, path: Path) -> int:
    """The width of vectors without a header: that of most of the first lines, of several such the largest."""
    lines = head.removeprefix(codecs.BOM_UTF8).split(b"\n")
    filled = [stripped for stripped in (line.rstrip(b" \r") for line in lines[:-1] or lines) if stripped]
    if not filled:
        _refuse(path, "no line with numbers at its beginning")
    counts = Counter(line.count(b" ") for line in filled)
    width = max(counts, key=lambda number: (counts[number], number))
    if not width:
        _refuse(
            path, "tabs instead of spaces" if b"\t" in filled[0] else f"{filled[0][:40]!r} and no numbers in line 1"
        )
    return width


def _read_lines(file: IO[bytes], path: Path, count: int | None, width: int) -> tuple[list[str], Floats]:
    """The words and vectors of lines; `count` is that of the header, if there is one."""
    words: list[str] = []
    blocks: list[Floats] = []
    rows: list[Floats] = []
    with Progress("reading vectors", count, "words") as progress:
        for number, line in _lines(file, path, first=1 if count is None else 2):
            if number == 1:
                line = line.removeprefix(codecs.BOM_UTF8)
            word, *numbers = line.rsplit(b" ", width)
            if not word.strip(b" "):
                _refuse(path, f"no word before the numbers of line {number:,}")
            if word.endswith(b" "):
                _refuse(path, f"two spaces after the word in line {number:,}")
            if b"\t" in word:
                _refuse(path, f"a tab in line {number:,}, where spaces separate the word from its numbers")
            if len(numbers) != width:
                _refuse(path, f"{counted(line.count(b' '), 'number')} in line {number:,} instead of {width:,}")
            try:
                with np.errstate(over="ignore"):  # refused below as infinity
                    rows.append(np.array([float(part) for part in numbers], dtype=np.float32))
            except ValueError:
                _refuse(path, f"line {number:,}, which has something else than {width:,} numbers after the word")
            if not np.isfinite(rows[-1]).all():
                _refuse(path, f"NaN or infinity for {_decoded(word, path, f'line {number:,}')!r} in line {number:,}")
            if len(rows) == 4096:
                blocks.append(np.stack(rows))
                rows = []
            words.append(_decoded(word, path, f"line {number:,}"))
            progress.advance()
    if rows:
        blocks.append(np.stack(rows))
    if not words or (count is not None and len(words) != count):
        _refuse(path, f"{counted(len(words), 'word')}" + ("" if count is None else f" instead of {count:,}"))
    return words, np.concatenate(blocks)


def _lines(file: IO[bytes], path: Path, first: int) -> Iterator[tuple[int, bytes]]:
    number = first
    while line := file.readline(_LONGEST_LINE):
        if len(line) == _LONGEST_LINE:
            _refuse(path, f"a line of more than {_LONGEST_LINE:,} bytes, line {number:,}")
        if stripped := line.rstrip(b" \r\n"):
            yield number, stripped
        number += 1


def _read_binary(file: IO[bytes], path: Path, count: int, width: int) -> tuple[list[str], Floats]:
    words: list[str] = []
    blocks: list[Floats] = []
    rows: list[bytes] = []
    with Progress("reading vectors", count, "words") as progress:
        for number in range(1, count + 1):
            letters = bytearray()
            while (letter := file.read(1)) not in (b" ", b""):
                if letter != b"\n" or letters:
                    letters += letter
                if len(letters) > _HEAD:
                    _refuse(path, f"a word of more than {_HEAD:,} bytes, word {number:,}")
            row = file.read(4 * width)
            if len(row) < 4 * width:
                _refuse(path, f"{number - 1:,} of {counted(count, 'word')}: it is cut short")
            words.append(_decoded(bytes(letters), path, f"word {number:,}"))
            rows.append(row)
            if len(rows) == 4096:
                blocks.append(_numbers(rows, width))
                rows = []
            progress.advance()
        if file.read().strip(b"\n"):
            _refuse(path, f"more than {counted(count, 'word')}, the number in its first line")
    return words, np.concatenate([*blocks, _numbers(rows, width)])


def _numbers(rows: list[bytes], width: int) -> Floats:
    return np.frombuffer(b"".join(rows), dtype="<f4").astype(np.float32).reshape(-1, width)


def _decoded(word: bytes, path: Path, location: str) -> str:
    try:
        text = word.decode("utf-8")
    except UnicodeDecodeError:
        _refuse(path, f"a word that is not UTF-8, in {location}: {word[:40]!r}")
    if not text:
        _refuse(path, f"no word before the vector in {location}")
    return text


def _refuse(path: Path, found: str) -> NoReturn:
    raise InputError(
        expected=f"word vectors in '{path}', in the format of Word2Vec or GloVe",
        found=found,
        fix="write them in one of these formats, or download the file again",
    )
