"""The URLs of documents that wait until all are known, and which documents have the URL of an earlier one.

Memory: 28 bytes for each document, and less than 100 while they are compared. The URLs themselves are in a file.
"""

import hashlib
import json
from array import array
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from bertsmith.text.corpus.duplicates import Duplicates, equal_documents, first_equal
from bertsmith.text.corpus.shards import Corpus
from bertsmith.text.documents.urls import normalized_url

_WRITTEN_TOGETHER = 2**14  # URLs
_KEY_BYTES = 16  # among 10^9 URLs, two have the same key with a probability of 10^-21


class DocumentUrl(NamedTuple):
    """The URL of a document, the number of the document as it was read, and of the part of it if it was cut."""

    text: str = ""
    number: int = 0
    part: int = 0


class DocumentUrls:
    """The URLs of documents, in their order."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._texts: list[str] = []
        # For each document: the two halves of the key of its normalized URL, 0 without a URL, its number and its part.
        self._keys, self._numbers, self._parts = array("Q"), array("q"), array("I")

    def add(self, url: DocumentUrl) -> None:
        """Appends the URL of the next document; numbers rise, and so do the parts of a document."""
        text = normalized_url(url.text)
        key = hashlib.blake2b(text.encode("utf-8"), digest_size=_KEY_BYTES).digest() if text else bytes(_KEY_BYTES)
        self._keys.frombytes(key)
        self._numbers.append(url.number)
        self._parts.append(url.part)
        self._texts.append(url.text)
        if len(self._texts) >= _WRITTEN_TOGETHER:
            self._write()

    def __iter__(self) -> Iterator[DocumentUrl]:
        """All URLs in order."""
        self._write()
        with open(self.path, encoding="ascii") as lines:
            for line, number, part in zip(lines, self._numbers, self._parts, strict=True):
                yield DocumentUrl(json.loads(line), number, part)

    @property
    def num_without_url(self) -> int:
        """The number of documents that have none."""
        return int(len(self._numbers) - np.count_nonzero(self._has_url))

    def duplicates(self, corpus: Corpus) -> Duplicates:
        """The documents whose normalized URL an earlier one has; their similarity is 1 for copies, or else 0.

        Each part of a document that was cut repeats the same part of the earlier one, or if that has fewer parts, its
        last one.
        """
        numbers, parts = np.array(self._numbers), np.array(self._parts)
        first_of = first_equal(*np.ascontiguousarray(self._halves.T))
        repeats = self._has_url & (numbers[first_of] != numbers)
        of = np.where(repeats, first_of, -1)
        exact = np.zeros(len(of), dtype=bool)
        for document in np.flatnonzero(repeats).tolist():
            first = int(of[document])
            end = int(np.searchsorted(numbers, numbers[first], side="right"))
            before = int(np.searchsorted(parts[first:end], parts[document], side="right")) - 1
            of[document] = first + max(before, 0)
            exact[document] = equal_documents(corpus, document, int(of[document]))
        return Duplicates(of, exact.astype(np.float64), exact)

    @property
    def _halves(self) -> npt.NDArray[np.uint64]:
        """The keys, uint64 [D, 2]."""
        return np.array(self._keys, dtype=np.uint64).reshape(-1, 2)

    @property
    def _has_url(self) -> npt.NDArray[np.bool_]:
        halves = self._halves
        return (halves[:, 0] | halves[:, 1]) > 0

    def _write(self) -> None:
        with open(self.path, "a", encoding="ascii", newline="\n") as file:
            file.writelines(json.dumps(text) + "\n" for text in self._texts)
        self._texts.clear()
