"""All candidate pieces of a vocabulary, where they occur, and what each would save or cost.

A candidate is a substring that begins a word, or one that continues a word (`##`), and occurs often enough. A substring
that is always followed by the same letter, such as ##abilit before y, is left out: the longer piece can replace it
everywhere. Single characters are always candidates.

All counts assume the rule by which words are split later: the longest piece first, from left to right.

Shapes: W rows of words; S spots, one for every character of every row and one after each row; C candidates; O
occurrences, a candidate at a spot. Rows are sorted by decreasing length and spots by their distance to the end of the
word (spot of row r at distance d: `first_spot[d] + r`). The spots at one distance are therefore contiguous, costs are
computed in a few whole-array steps, and the spots after the words are 0 to W - 1.
"""

import dataclasses
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from bertsmith.text.tokenizers.vocabulary import CONTINUATION

Flags = npt.NDArray[np.bool_]
Integers = npt.NDArray[np.int64]
Indices = npt.NDArray[np.int32]
Weights = npt.NDArray[np.float64]

# Maximum length of a piece in characters; of the words in English novels, one in a million is longer.
LONGEST_PIECE = 24
# Keys are numbered with a table instead of by sorting if the table has at most this many entries plus 16 per key.
_LARGEST_TABLE = 1 << 21


class Cut(NamedTuple):
    """The segmentation of all words into chosen candidates.

    Args:
        chosen: int64, the occurrences of chosen candidates, sorted by spot and then by length.
        rank: int64 [S], the position in `chosen` of the longest one at each spot.
        pieces: int32 [S], the number of pieces from each spot to the end of its word.
        visited: int64, the spots at which a piece begins.
    """

    chosen: Integers
    rank: Integers
    pieces: Indices
    visited: Integers


@dataclasses.dataclass(frozen=True)
class Candidates:
    """Candidates and their occurrences; made by `find_candidates`.

    Args:
        position: int64 [C], the position in `text` of one occurrence of each candidate.
        length: int32 [C], its number of letters.
        is_inner: bool [C], whether it continues a word.
        num_characters: the number of single characters, which are the first candidates.
        first_row_spot: int32 [W], the spot at which each row begins.
        first_spot: int64 [longest + 2], the first spot at each distance to the end of the word.
        weight: float64 [S], the weight of the row of each spot; whole numbers.
        at: int32 [O], the spot of each occurrence, ascending; shorter candidates first.
        candidate: int32 [O], the candidate of each occurrence.
        behind: int32 [O], the spot after each occurrence.
    """

    text: str
    position: Integers
    length: Indices
    is_inner: Flags
    num_characters: int
    first_row_spot: Indices
    first_spot: Integers
    weight: Weights
    at: Indices
    candidate: Indices
    behind: Indices

    def __len__(self) -> int:
        return len(self.position)

    def piece(self, candidate: int) -> str:
        """A candidate as it is written in a vocabulary."""
        letters = self.text[self.position[candidate] : self.position[candidate] + self.length[candidate]]
        return CONTINUATION + letters if self.is_inner[candidate] else letters

    def cut(self, is_chosen: Flags) -> Cut:
        """The segmentation of all words by the chosen candidates, bool [C], which must include all characters."""
        num_rows, num_spots = len(self.first_row_spot), len(self.weight)
        chosen = np.flatnonzero(is_chosen.take(self.candidate))
        spots = self.at[chosen]
        rank = np.zeros(num_spots, dtype=np.int64)
        rank[num_rows:] = np.append(np.flatnonzero(spots[1:] != spots[:-1]), len(spots) - 1)
        following = np.zeros(num_spots, dtype=np.int32)
        following[num_rows:] = self.behind[chosen[rank[num_rows:]]]
        pieces = np.zeros(num_spots, dtype=np.int32)
        for begin, end in zip(self.first_spot[1:-1].tolist(), self.first_spot[2:].tolist(), strict=True):
            np.add(pieces[following[begin:end]], 1, out=pieces[begin:end])
        visited, current = [], self.first_row_spot
        while len(current):
            visited.append(current)
            current = following[current]
            current = current[current >= num_rows]
        return Cut(chosen, rank, pieces, np.concatenate(visited))

    def uses(self, cut: Cut) -> Weights:
        """The weighted number of uses of each candidate, float64 [C]."""
        used = self.candidate[cut.chosen[cut.rank[cut.visited]]]
        return self._sums(used, self.weight[cut.visited])

    def losses(self, cut: Cut) -> Weights:
        """The weighted number of pieces that dropping each candidate alone would add, float64 [C].

        It may be negative: the longest piece is not always the best. It is infinite for single characters, which cannot
        be dropped. A second use in the same word is counted as if the first one remained.
        """
        rank = cut.rank[cut.visited]
        used = self.candidate[cut.chosen[rank]]
        is_longer = used >= self.num_characters
        spots, rank, used = cut.visited[is_longer], rank[is_longer], used[is_longer]
        # At each spot there is a single character, so the occurrence before the longest one is at the same spot.
        otherwise = 1 + cut.pieces[self.behind[cut.chosen[rank - 1]]]
        losses = self._sums(used, (otherwise - cut.pieces[spots]) * self.weight[spots])
        losses[: self.num_characters] = np.inf
        return losses

    def gains(self, cut: Cut) -> Weights:
        """The weighted number of pieces that adding each candidate alone would save, float64 [C].

        The values of candidates that are already chosen are meaningless.
        """
        longest = np.full(len(self.weight), len(self.at), dtype=np.int64)
        longest[cut.visited] = cut.chosen[cut.rank[cut.visited]]
        longer = np.flatnonzero(np.arange(len(self.at)) > longest[self.at])
        spots = self.at[longer]
        saved = cut.pieces[spots] - 1 - cut.pieces[self.behind[longer]]
        return self._sums(self.candidate[longer], saved * self.weight[spots])

    def _sums(self, candidates: Indices, values: Weights) -> Weights:
        return np.bincount(candidates, values, minlength=len(self)).astype(np.float64, copy=False)


def find_candidates(words: Sequence[str], weights: Integers, is_stranger: Flags, *, least_weight: int) -> Candidates:
    """The candidates of some words.

    Args:
        is_stranger: bool [W], whether a word represents the unseen words of new text: its substrings are candidates
            only if they also occur elsewhere.
        least_weight: the minimum total weight of the occurrences of a candidate.
    """
    lengths = np.fromiter(map(len, words), np.int64, len(words))
    order = np.argsort(-lengths, kind="stable")
    layout = _Layout([words[row] for row in order.tolist()], lengths[order], weights[order], is_stranger[order])
    levels = [_characters(layout)]
    longest = min(LONGEST_PIECE, int(lengths[order[0]]))
    for length in range(2, longest + 1):
        levels.append(_longer(layout, length, levels[-1], least_weight))
    return _table(layout, levels)


def numbered(keys: Integers) -> tuple[Integers, Integers]:
    """(the distinct keys in ascending order, the position of each key among them); keys must not be negative."""
    size = int(keys.max(initial=0)) + 1
    if size > _LARGEST_TABLE + 16 * len(keys):
        different, places = np.unique(keys, return_inverse=True)
        return different, places
    is_there = np.zeros(size, dtype=np.bool_)
    is_there[keys] = True
    different = np.flatnonzero(is_there)
    table = np.zeros(size, dtype=np.int32)
    table[different] = np.arange(len(different), dtype=np.int32)
    return different, table[keys].astype(np.int64)


class _Layout:
    """The spots of rows of words sorted by decreasing length."""

    def __init__(self, words: Sequence[str], lengths: Integers, weights: Integers, is_stranger: Flags) -> None:
        longest = int(lengths[0])
        rows_with = np.searchsorted(-lengths, -np.arange(longest + 1), side="right")
        self.first_spot = np.concatenate([[0], np.cumsum(rows_with)])
        self.row = np.concatenate([np.arange(count, dtype=np.int32) for count in rows_with.tolist()])
        self.distance = np.repeat(np.arange(longest + 1, dtype=np.int32), rows_with)
        self.first_row_spot = (self.first_spot[lengths] + np.arange(len(words))).astype(np.int32)
        self.is_inner = np.ones(len(self.row), dtype=np.bool_)
        self.is_inner[self.first_row_spot] = False
        self.text = "".join(words)
        self.position = np.cumsum(lengths)[self.row] - self.distance
        self.weight = weights.astype(np.float64)[self.row]
        self.is_stranger = is_stranger[self.row]
        self.real_spots = np.arange(len(words), len(self.row))
        codes = np.frombuffer(self.text.encode("utf-32-le"), dtype="<u4").astype(np.int64)
        self.alphabet, characters = numbered(codes)
        self.character = np.zeros(len(self.row), dtype=np.int64)
        self.character[self.real_spots] = characters[self.position[self.real_spots]]

    def behind(self, spots: Integers, lengths: int | Indices) -> Integers:
        """The spots `lengths` characters further on."""
        behind: Integers = self.first_spot[self.distance[spots] - lengths] + self.row[spots]
        return behind


@dataclasses.dataclass
class _Level:
    """The n candidates of one length and where they occur.

    `occurrences` int64 [n] is the number of spots, `sample` int64 [n] is the first of them, `is_kept` bool [n] is false
    for candidates always followed by the same letter. Occurrence k is candidate `candidates[k]`, below n, at
    `spots[k]`.
    """

    occurrences: Integers
    sample: Integers
    is_kept: Flags
    spots: Integers
    candidates: Integers


def _level(spots: Integers, candidates: Integers, count: int) -> _Level:
    sample = np.zeros(count, dtype=np.int64)
    sample[candidates[::-1]] = spots[::-1]
    occurrences = np.bincount(candidates, minlength=count)
    return _Level(occurrences, sample, np.ones(count, dtype=np.bool_), spots, candidates)


def _characters(layout: _Layout) -> _Level:
    spots = layout.real_spots
    different, candidates = numbered(layout.character[spots] + len(layout.alphabet) * layout.is_inner[spots])
    return _level(spots, candidates, len(different))


def _longer(layout: _Layout, length: int, shorter: _Level, least_weight: int) -> _Level:
    """The candidates with one more letter; marks the `shorter` ones that are always followed by the same letter."""
    begin = np.searchsorted(shorter.spots, layout.first_spot[length])
    spots, parents = shorter.spots[begin:], shorter.candidates[begin:]
    letters = layout.character[layout.behind(spots, length - 1)]
    different, candidates = numbered(parents * len(layout.alphabet) + letters)
    level = _level(spots, candidates, len(different))
    is_frequent = np.bincount(candidates, layout.weight[spots], minlength=len(different)) >= least_weight
    # A substring that occurs only once, in a stranger, is not a candidate.
    is_frequent &= (level.occurrences > 1) | ~layout.is_stranger[level.sample]
    parents = different[is_frequent] // len(layout.alphabet)
    if length > 2:
        shorter.is_kept[parents[level.occurrences[is_frequent] == shorter.occurrences[parents]]] = False
    number = np.cumsum(is_frequent) - 1
    chosen = is_frequent[candidates]
    return _level(spots[chosen], number[candidates[chosen]], int(is_frequent.sum()))


def _table(layout: _Layout, levels: list[_Level]) -> Candidates:
    """The levels merged, sorted by spot."""
    counts = np.zeros(len(layout.row), dtype=np.int64)
    kept = []
    first = 0
    for level in levels:
        number = np.cumsum(level.is_kept) - 1 + first
        first += int(level.is_kept.sum())
        chosen = level.is_kept[level.candidates]
        kept.append((level.spots[chosen], number[level.candidates[chosen]].astype(np.int32)))
        counts[level.spots[chosen]] += 1
    at = np.repeat(np.arange(len(counts), dtype=np.int32), counts)
    candidate = np.empty(len(at), dtype=np.int32)
    behind = np.empty(len(at), dtype=np.int32)
    free = np.cumsum(counts) - counts
    for length, (spots, candidates) in enumerate(kept, start=1):
        places = free[spots]
        free[spots] += 1
        candidate[places] = candidates
        behind[places] = layout.behind(spots, length)
    sample = np.concatenate([level.sample[level.is_kept] for level in levels])
    lengths = [np.full(int(level.is_kept.sum()), length) for length, level in enumerate(levels, start=1)]
    return Candidates(
        text=layout.text,
        position=layout.position[sample],
        length=np.concatenate(lengths).astype(np.int32),
        is_inner=layout.is_inner[sample],
        num_characters=len(levels[0].sample),
        first_row_spot=layout.first_row_spot,
        first_spot=layout.first_spot,
        weight=layout.weight,
        at=at,
        candidate=candidate,
        behind=behind,
    )
