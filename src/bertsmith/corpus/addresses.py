"""The URLs of documents that wait until all are known, and which documents have the URL of an earlier one.

Memory: 24 bytes for each document, and less than 100 while they are compared. The URLs themselves are in a file.
"""

import hashlib
import json
from array import array
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from bertsmith.corpus.duplicates import Duplicates, equal_documents, first_equal
from bertsmith.corpus.shards import Corpus
from bertsmith.documents.urls import normalized_url

_WRITTEN_TOGETHER = 2**14  # URLs
_KEY_BYTES = 16  # among 10^9 URLs, two have the same key with a probability of 10^-21


class Address(NamedTuple):
    """The URL of a document, and the number of the document as it was read: parts of one that was cut share both."""

    url: str = ""
    number: int = 0


class Addresses:
    """The addresses of documents, in their order.

    Args:
        path: a new file for the URLs, one as a JSON string on each line.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._urls: list[str] = []
        # For each document: the two halves of the key of its normalized URL, 0 without a URL, and its number.
        self._keys, self._numbers = array("Q"), array("q")

    def add(self, address: Address) -> None:
        """Appends the address of the next document."""
        url = normalized_url(address.url)
        key = hashlib.blake2b(url.encode("utf-8"), digest_size=_KEY_BYTES).digest() if url else bytes(_KEY_BYTES)
        self._keys.frombytes(key)
        self._numbers.append(address.number)
        self._urls.append(address.url)
        if len(self._urls) >= _WRITTEN_TOGETHER:
            self._write()

    def __iter__(self) -> Iterator[Address]:
        """All addresses in order."""
        self._write()
        with open(self.path, encoding="ascii") as lines:
            for line, number in zip(lines, self._numbers, strict=True):
                yield Address(json.loads(line), number)

    @property
    def num_without_url(self) -> int:
        """The number of documents that have none."""
        return int(len(self._numbers) - np.count_nonzero(self._has_url))

    def duplicates(self, corpus: Corpus) -> Duplicates:
        """The documents whose normalized URL an earlier one has; their similarity is 1 for copies, or else 0."""
        numbers = np.array(self._numbers)
        first_of = first_equal(*np.ascontiguousarray(self._halves.T))
        repeats = self._has_url & (numbers[first_of] != numbers)
        of = np.where(repeats, first_of, -1)
        exact = np.zeros(len(of), dtype=bool)
        for document in np.flatnonzero(repeats).tolist():
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
        with open(self.path, "a", encoding="ascii") as file:
            file.writelines(json.dumps(url) + "\n" for url in self._urls)
        self._urls.clear()
