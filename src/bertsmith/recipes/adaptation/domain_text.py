"""The text of a domain: its words, its held-out documents, and its files.

The text is read once before anything is built from it. The documents that are held out here are those that
`build_corpus` holds out of the same files, whatever the vocabulary.
"""

import dataclasses
import itertools
from collections.abc import Iterable, Sequence
from pathlib import Path

from bertsmith.base.core.progress import Progress
from bertsmith.base.storage.files import digest_file
from bertsmith.text.corpus.hashing import DRAWS, draw_of, sentence_key
from bertsmith.text.documents.docstrings import docstring_documents
from bertsmith.text.documents.readers import Document, ReadingSettings, ReadReport, read_documents
from bertsmith.text.documents.sources import Source, find_sources, total_bytes
from bertsmith.text.tokenizers.normalize import TextRules, basic_tokens
from bertsmith.text.vocabularies.word_counts import WordCounter, WordCounts

GENERAL = "documentation on this machine"


@dataclasses.dataclass(frozen=True, kw_only=True)
class DomainText:
    """What a text says about a domain."""

    documents: int  # all documents, those that are held out included
    words: int  # basic tokens of the documents to train on, and of those that are kept for scoring
    training: WordCounts  # the word counts of the documents to train on
    # the sentences of each held-out document, in the order of the text, up to the requested number
    held_out: tuple[tuple[str, ...], ...]
    held_out_words: WordCounts  # the word counts of these sentences
    digests: dict[str, str]  # of the files, by name
    notes: tuple[str, ...]  # what was left out of the files, one sentence each


def read_domain(
    paths: Sequence[Path], rules: TextRules, reading: ReadingSettings, *, held_out: float, most_words: int
) -> DomainText:
    """The words and the held-out documents of a text.

    Args:
        most_words: of held-out documents to keep, in words between white space.
    """
    report, counter = ReadReport(), WordCounter(rules)
    kept, room, documents = list[tuple[str, ...]](), most_words, 0
    lowest, spared = DRAWS, list[str]()
    with Progress("reading the text of the domain", total_bytes(paths), "bytes") as progress:
        for document in read_documents(paths, reading, report=report):
            documents += 1
            draw = draw_of(sum(map(sentence_key, document.sentences)))
            if draw >= held_out * DRAWS:
                counter.add(document.sentences)
            elif room > 0:
                kept.append(_beginning(document.sentences, room))
                room -= _size(kept[-1])
            if not kept and draw < lowest:
                lowest, spared = draw, document.sentences
            progress.advance(report.bytes - progress.done)
        progress.advance(report.bytes - progress.done)
    words = counter.counts.total
    if not kept and (ending := _spared(spared, held_out, documents)):
        kept.append(_beginning(ending, most_words))
    elif kept:
        words += sum(len(basic_tokens(sentence, rules)) for document in kept for sentence in document)
    counted = WordCounter(rules)
    counted.add(itertools.chain.from_iterable(kept))
    return DomainText(
        documents=documents,
        words=words,
        training=counter.counts,
        held_out=tuple(kept),
        held_out_words=counted.counts,
        digests={file.shown: digest_file(Path(file.name)) for file in find_sources(paths) if isinstance(file, Source)},
        notes=tuple(report.notes),
    )


def general_text(paths: Sequence[Path], reading: ReadingSettings, *, most_words: int) -> tuple[tuple[str, ...], ...]:
    """The sentences of documents of general text, about `most_words` words between white space in all."""
    documents: Iterable[Document] = read_documents(paths, reading) if paths else docstring_documents(workers=1)
    kept, room = list[tuple[str, ...]](), most_words
    for document in documents:
        kept.append(_beginning(document.sentences, room))
        room -= _size(kept[-1])
        if room <= 0:
            break
    return tuple(kept)


def _spared(sentences: Sequence[str], share: float, documents: int) -> Sequence[str]:
    """What `build_corpus` holds out if no draw is low enough: the document of the lowest, or its end if it is alone."""
    if documents != 1:
        return sentences
    count = len(sentences)
    return sentences[count - min(max(1, round(share * count)), count - 1) :] if count > 1 else ()


def _beginning(sentences: Sequence[str], most_words: int) -> tuple[str, ...]:
    """The first sentences of a document with about that number of words, at least one sentence."""
    ends = itertools.accumulate(map(_words, sentences))
    count = 1 + sum(1 for _ in itertools.takewhile(lambda end: end < most_words, ends))
    return tuple(sentences[:count])


def _size(sentences: Iterable[str]) -> int:
    return sum(map(_words, sentences))


def _words(sentence: str) -> int:
    return len(sentence.split())
