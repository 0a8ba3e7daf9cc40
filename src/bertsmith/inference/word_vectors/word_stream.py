"""Text as a file of word numbers, so that training reads any amount of text in bounded memory.

Text is read twice: once to count its words and choose the vocabulary, once to write the numbers of its words. Words
are basic tokens (`text/tokenizers/normalize.py`); words outside the vocabulary are dropped, as in the original
programs, so that windows reach over them. A window does not reach into another sentence (a line, in files with a
sentence per line).
"""

import shutil
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from bertsmith.base.core.errors import InputError
from bertsmith.base.core.progress import Progress, counted
from bertsmith.base.storage.files import atomic_file
from bertsmith.base.storage.outputs import STDIN
from bertsmith.inference.word_vectors.draws import NO_WORD, Ids, Integers
from bertsmith.text.documents.readers import ReadingSettings, ReadReport, read_documents
from bertsmith.text.documents.sources import total_bytes
from bertsmith.text.tokenizers.normalize import TextRules
from bertsmith.text.tokenizers.vocabulary import SPECIAL_PIECES, Vocabulary
from bertsmith.text.tokenizers.wordpiece import WordPieceTokenizer
from bertsmith.text.vocabularies.word_counts import WordCounter

_BATCH_CHARACTERS = 2**22
_CHUNK_WORDS = 2**16  # of a chunk, about: it ends at the end of a sentence


class WordList(NamedTuple):
    """The vocabulary: the words by falling count, and by the alphabet among equal counts."""

    words: list[str]  # V words
    counts: Integers  # int64 [V]
    text_words: int  # the words of the text, those outside the vocabulary included
    notes: list[str]  # what was left out of the files, one sentence each


class WordStream:
    """The words of a text by number, in order, in a file of int32 with -1 after each sentence."""

    def __init__(self, path: Path) -> None:
        self.ids: npt.NDArray[np.int32] = np.memmap(path, dtype="<i4", mode="r")

    def chunks(self) -> Iterator[Ids]:
        """The stream in chunks of whole sentences, always the same ones."""
        start, size = 0, len(self.ids)
        while start < size:
            end = min(start + _CHUNK_WORDS, size)
            while end < size and self.ids[end - 1] != NO_WORD:
                ends = np.flatnonzero(self.ids[end : end + _CHUNK_WORDS] == NO_WORD)
                end = min(end + (int(ends[0]) + 1 if len(ends) else _CHUNK_WORDS), size)
            yield np.array(self.ids[start:end])
            start = end


def with_gaps(ids: Ids, window: int) -> Ids:
    """A chunk with `window` places of no word after each sentence, for counting neighbors."""
    return np.repeat(ids, np.where(ids == NO_WORD, window, 1))


def readable_texts(texts: Sequence[Path], folder: Path) -> list[Path]:
    """The texts as files that can be read twice: stdin (`-`) is copied into `folder`."""
    result = []
    for text in texts:
        if str(text) == STDIN:
            text = folder / "stdin.txt"
            with open(text, "wb") as copy:
                shutil.copyfileobj(sys.stdin.buffer, copy)
        result.append(text)
    return result


def choose_words(
    texts: Sequence[Path], reading: ReadingSettings, rules: TextRules, *, minimum_count: int, most_words: int = 0
) -> WordList:
    """The words that occur at least `minimum_count` times, or the `most_words` most frequent ones of them."""
    counter, report = WordCounter(rules), ReadReport()
    with Progress("counting words", total_bytes(texts) or None, "bytes") as progress:
        done = 0
        for sentences in _batches(texts, reading, report):
            counter.add(sentences)
            progress.advance(report.bytes - done)
            done = report.bytes
    counts = counter.counts
    longest = rules.max_word_characters
    chosen = [(-count, word) for word, count in counts.items() if count >= minimum_count and len(word) <= longest]
    chosen.sort()
    chosen = chosen[: most_words or None]
    if len(chosen) < 2:
        raise InputError(
            expected=f"at least two words that occur {minimum_count:,} times or more",
            found=f"{counted(len(chosen), 'word')} among {counted(counts.total, 'word')} of text",
            fix="give more text, or lower --minimum-count",
        )
    numbers = np.array([-count for count, _ in chosen], dtype=np.int64)
    return WordList([word for _, word in chosen], numbers, counts.total, report.notes)


def write_stream(texts: Sequence[Path], reading: ReadingSettings, rules: TextRules, words: WordList, to: Path) -> None:
    """Writes the numbers of the words of `texts`, see `WordStream`."""
    # With whole words as pieces and no continuations, WordPiece finds a word or nothing.
    tokenizer = WordPieceTokenizer(Vocabulary([*SPECIAL_PIECES, *words.words]), rules)
    first, unknown = len(SPECIAL_PIECES), tokenizer.vocabulary.unk_id
    total = int(words.counts.sum())
    with atomic_file(to) as file, Progress("numbering words", total, "words") as progress:
        for sentences in _batches(texts, reading, ReadReport()):
            encoded = tokenizer.encode_batch(sentences)
            ends = np.insert(encoded.ids, encoded.offsets[1:], NO_WORD)
            ends = ends[ends != unknown]
            ends = np.where(ends == NO_WORD, NO_WORD, ends - first).astype("<i4")
            # A sentence without known words leaves only its end, after another end.
            is_empty = (ends == NO_WORD) & (np.concatenate([[NO_WORD], ends[:-1]]) == NO_WORD)
            kept = ends[~is_empty]
            file.write(kept.tobytes())
            progress.advance(int((kept != NO_WORD).sum()))


def _batches(texts: Sequence[Path], reading: ReadingSettings, report: ReadReport) -> Iterator[list[str]]:
    """The sentences of all documents, in batches."""
    sentences: list[str] = []
    held = 0
    for document in read_documents(texts, reading, report=report):
        for sentence in document.sentences:
            sentences.append(sentence)
            held += len(sentence)
            if held >= _BATCH_CHARACTERS:
                yield sentences
                sentences, held = [], 0
    if sentences:
        yield sentences
