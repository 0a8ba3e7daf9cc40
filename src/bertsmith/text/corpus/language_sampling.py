"""Language sampling of a corpus: documents are repeated or left out until each language has its share.

The training documents of a language are repeated, or a part of them is left out, until the language has its smoothed
share of the training tokens; their total stays the same. Held-out documents come from every language, in the
proportions of the text, and are never copies of training documents. All documents wait on disk until their number is
known. A draw depends on the seed and on the place of the language in the sorted list alone.
"""

import dataclasses
from array import array
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from bertsmith.base.core.randomness import generator
from bertsmith.text.corpus.encode import EncodedBlock
from bertsmith.text.corpus.hashing import DRAWS
from bertsmith.text.corpus.removal import WaitingDocuments
from bertsmith.text.corpus.shards import Corpus
from bertsmith.text.corpus.split import Write
from bertsmith.text.documents.languages import SamplingSettings, find_languages, no_text
from bertsmith.text.tokenizers.tokenizer import Tokenizer
from bertsmith.text.vocabularies.languages import smoothed_shares

Ints = npt.NDArray[np.int64]


@dataclasses.dataclass
class _Read:
    """The counts of a language as it was read: pieces, words between spaces, characters that are not space, [UNK]."""

    tokens: int = 0
    words: int = 0
    characters: int = 0
    unknown: int = 0


class LanguageSampler:
    """Collects the documents of all languages, then writes each language as often as its share demands."""

    def __init__(
        self,
        folder: Path,
        folders: Sequence[Path | str],
        tokenizer: Tokenizer,
        settings: SamplingSettings,
        held_out: float,
    ) -> None:
        self.settings, self.held_out = settings, held_out
        self._paths = find_languages(folders)[0]
        self._names = list(self._paths)
        self._read = {name: _Read() for name in self._names}
        self._language_of: dict[str, int] = {}  # by source
        self._waiting = WaitingDocuments(folder / "waiting-languages", tokenizer)
        self._languages = array("q")  # of each document

    def count(self, block: EncodedBlock) -> None:
        """Counts what was read, before any document of the block is added."""
        self._language_of[block.source] = self._names.index(block.language)
        read = self._read[block.language]
        read.tokens += sum(len(part.tokens) for part in block.parts)
        read.words += block.words
        read.characters += block.characters
        read.unknown += block.unknown

    def add(self, source: str, tokens: npt.NDArray[Any], lengths: npt.NDArray[Any], draw: int) -> None:
        """Adds a document; its draw decides whether it is held out."""
        self._languages.append(self._language_of[source])
        self._waiting.add(source, tokens, lengths, draw)

    def finish(self, write: Write, hold_out: Write) -> dict[str, Any]:
        """The record of the languages for the manifest, after passing every document to `write` or `hold_out`."""
        corpus = self._waiting.close()
        languages = np.array(self._languages, dtype=np.int64)
        draws = np.array(self._waiting.draws, dtype=np.uint64)
        split = _Split(corpus)
        chosen = [np.flatnonzero(languages == number) for number in range(len(self._names))]
        for name, documents in zip(self._names, chosen, strict=True):
            if not len(documents):
                raise no_text(name, self._paths[name])
            split.hold_out(documents, draws[documents], self.held_out)
        sizes = [split.training_tokens(documents) for documents in chosen]
        shares = smoothed_shares(sizes, self.settings.language_exponent)
        written = []
        for number, (documents, size, share) in enumerate(zip(chosen, sizes, shares, strict=True)):
            rng = generator(self.settings.language_seed, "language sample", number)
            written.append(split.sample(documents[rng.permutation(len(documents))], size, share * sum(sizes)))
        split.write(write, hold_out)
        self._waiting.remove()
        return {
            "exponent": float(self.settings.language_exponent),
            "seed": self.settings.language_seed,
            "by_name": {
                name: {
                    **dataclasses.asdict(self._read[name]),
                    "documents": len(documents),
                    "held_out_tokens": split.held_out_tokens(documents),
                    "training_tokens": size,
                    "sampled_tokens": tokens,
                    "share_of_text": size / sum(sizes),
                    "share": tokens / sum(written),
                }
                for name, documents, size, tokens in zip(self._names, chosen, sizes, written, strict=True)
            },
        }


def _next_below(draws: npt.NDArray[np.uint64]) -> np.uint64:
    """The largest draw but one; 0, which is below all others, if all are equal."""
    lower = draws[draws < draws.max()]
    return np.uint64(lower.max() if len(lower) else 0)


class _Split:
    """Which sentences of each waiting document are for training and how often, and which are held out.

    The first `training` sentences of a document are for training, the rest is held out. It is written `copies` times,
    and its first `further` sentences once more.
    """

    def __init__(self, corpus: Corpus) -> None:
        self.corpus = corpus
        self.training: Ints = corpus.sentence_counts.copy()
        self.copies: Ints = np.zeros_like(self.training)
        self.further: Ints = np.zeros_like(self.training)

    def hold_out(self, documents: Ints, draws: npt.NDArray[np.uint64], fraction: float) -> None:
        """Holds out the documents of a language with low draws, at least one but not all; of a single one, its end."""
        if not fraction:
            return
        if len(documents) == 1:
            count = int(self.training[documents[0]])
            self.training[documents] -= min(max(1, round(fraction * count)), count - 1)
            return
        # Copies have the same draw, so they are held out together.
        limit = max(np.uint64(int(fraction * DRAWS)), draws.min())
        self.training[documents[draws <= min(limit, _next_below(draws))]] = 0

    def training_tokens(self, documents: Ints) -> int:
        """The number of tokens for training in these documents."""
        return sum(self._tokens(document, int(self.training[document])) for document in documents.tolist())

    def held_out_tokens(self, documents: Ints) -> int:
        """The number of held-out tokens in these documents."""
        return int(self.corpus.document_lengths[documents].sum()) - self.training_tokens(documents)

    def sample(self, documents: Ints, size: int, wanted: float) -> int:
        """The number of tokens written of a language: all documents as often as they fit, then the first ones.

        The last one is cut after the sentence that ends nearest to the number wanted.
        """
        copies = int(wanted // size)
        self.copies[documents] = copies
        written, rest = copies * size, wanted - copies * size
        for document in documents.tolist():
            ends = self.corpus.document_sentences(document)[: self.training[document] + 1]
            if ends[-1] <= rest:
                count = len(ends) - 1
            else:
                count = int(np.argmin(np.abs(ends - rest)))
                # A language in a very small share keeps one sentence.
                count = max(count, int(not written))
            self.further[document] = count
            written += int(ends[count])
            rest -= int(ends[count])
            if count < len(ends) - 1:
                break
        return written

    def write(self, write: Write, hold_out: Write) -> None:
        """Passes the documents in order to `write`, as often as they are sampled, and to `hold_out`."""
        for document in range(self.corpus.num_documents):
            source, tokens = self.corpus.document_source(document), self.corpus.document_tokens(document)
            ends = self.corpus.document_sentences(document)
            lengths = np.diff(ends).astype(np.uint32)
            training = int(self.training[document])
            for count in [training] * int(self.copies[document]) + [int(self.further[document])]:
                if count:
                    write(source, tokens[: ends[count]], lengths[:count])
            if training < len(lengths):
                hold_out(source, tokens[ends[training] :], lengths[training:])

    def _tokens(self, document: int, sentences: int) -> int:
        return int(self.corpus.document_sentences(document)[sentences])
