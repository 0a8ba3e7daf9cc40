"""Pre-training data the slow, obvious way: lists of tokens, one token cut at a time, one candidate at a time.

Follows the steps of the original `create_pretraining_data.py`. It shares no code with the package: random draws are
passed in, or computed with Python integers.
"""

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

Draw = Callable[[], float]
Coin = Callable[[str], bool]

WORD = 2**64 - 1
GOLDEN = 0x9E3779B97F4A7C15


@dataclass
class MemoryDocuments:
    """Documents as lists of sentences, with the accessors of a corpus."""

    sentences: list[list[list[int]]]
    reads: list[int] = field(default_factory=list)

    @property
    def num_documents(self) -> int:
        return len(self.sentences)

    @property
    def document_lengths(self) -> np.ndarray:
        return np.array([sum(map(len, document)) for document in self.sentences], dtype=np.int64)

    def prefetch(self, documents: np.ndarray) -> None:
        """There is nothing to fetch."""

    def document_tokens(self, index: int) -> np.ndarray:
        self.reads.append(index)
        return np.array([token for sentence in self.sentences[index] for token in sentence], dtype=np.uint16)

    def document_sentences(self, index: int) -> np.ndarray:
        return np.cumsum([0, *map(len, self.sentences[index])]).astype(np.int64)


def derived(seed: int, purpose: str, *index: int) -> int:
    """A 64-bit number from a digest of seed, purpose and index."""
    text = "/".join(map(str, [seed, purpose, *index]))
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=16).digest()[:8], "little")


def splitmix(state: int, number: int) -> int:
    """Output `number` (from 0) of splitmix64 from a state."""
    z = (state + (number + 1) * GOLDEN) & WORD
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & WORD
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & WORD
    return z ^ (z >> 31)


def finalized(z: int) -> int:
    return splitmix((z - GOLDEN) & WORD, 0)


def instance_key(seed: int, pass_number: int, document: int, ordinal: int) -> int:
    return splitmix(splitmix(derived(seed, "instance", pass_number), document), ordinal)


def counted(key: int, purpose: str, number: int) -> int:
    """Draw `number` of an instance for a purpose."""
    return splitmix(finalized(key ^ derived(0, purpose)), number)


def coins(key: int) -> Coin:
    """The coins that decide whether A or B loses its first token: the bits of the draws, highest first."""
    thrown = {"A": 0, "B": 0}

    def coin(part: str) -> bool:
        number = thrown[part]
        thrown[part] += 1
        return bool(counted(key, f"front of {part}", number // 64) >> (63 - number % 64) & 1)

    return coin


def truncate(first: list[int], second: list[int], room: int, coin: Coin) -> None:
    while len(first) + len(second) > room:
        part, name = (first, "A") if len(first) > len(second) else (second, "B")
        if coin(name):
            del part[0]
        else:
            part.pop()


def pairs_of_document(
    documents: Sequence[list[list[int]]],
    index: int,
    *,
    max_length: int,
    short_sequence_probability: float,
    draw: Draw,
    coins_of: Callable[[int], Coin],
) -> list[tuple[list[int], list[int], int]]:
    """(A, B, label) of each instance of a document; label 1 is a random next sentence."""
    document = documents[index]
    room = max_length - 3
    target = room
    if draw() < short_sequence_probability:
        target = 2 + int(draw() * (room - 1))
    instances: list[tuple[list[int], list[int], int]] = []
    chunk: list[list[int]] = []
    size = 0
    i = 0
    while i < len(document):
        chunk.append(document[i])
        size += len(document[i])
        if i == len(document) - 1 or size >= target:
            a_end = 1
            if len(chunk) >= 2:
                a_end = 1 + int(draw() * (len(chunk) - 1))
            first = [token for sentence in chunk[:a_end] for token in sentence]
            second: list[int] = []
            random_next = len(chunk) == 1 or draw() < 0.5
            if random_next:
                wanted = target - len(first)
                other = index
                for _ in range(10):
                    other = int(draw() * len(documents))
                    if other != index:
                        break
                start = int(draw() * len(documents[other]))
                for sentence in documents[other][start:]:
                    second.extend(sentence)
                    if len(second) >= wanted:
                        break
                i -= len(chunk) - a_end
            else:
                second = [token for sentence in chunk[a_end:] for token in sentence]
            truncate(first, second, room, coins_of(len(instances)))
            instances.append((first, second, int(random_next)))
            chunk, size = [], 0
        i += 1
    return instances


def masks_of_row(
    row: Sequence[int],
    pieces: Sequence[str],
    *,
    share: float,
    most: int,
    ways: tuple[float, float],
    whole_word: bool,
    key: int,
) -> tuple[list[int], list[int], list[int]]:
    """(row with masks, positions, original ids) of one row; `ways` are the fractions of [MASK] and of no change."""
    candidates: list[list[int]] = []
    for position, token in enumerate(row):
        if pieces[token] in ("[CLS]", "[SEP]"):
            continue
        if whole_word and candidates and pieces[token].startswith("##"):
            candidates[-1].append(position)
        else:
            candidates.append([position])
    candidates.sort(key=lambda candidate: counted(key, "mask order", candidate[0]))
    wanted = min(most, max(1, round(len(row) * share)))
    output, chosen = list(row), []
    for candidate in candidates:
        if len(chosen) + len(candidate) > wanted:
            continue
        for position in candidate:
            chosen.append(position)
            chance = (counted(key, "mask way", position) >> 11) / 2**53
            if chance < ways[0]:
                output[position] = pieces.index("[MASK]")
            elif chance >= ways[0] + ways[1]:
                output[position] = (counted(key, "mask piece", position) >> 32) * len(pieces) >> 32
    chosen.sort()
    return output, chosen, [row[position] for position in chosen]
