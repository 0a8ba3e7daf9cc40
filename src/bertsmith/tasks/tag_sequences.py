"""The best sequence of tags that a scheme allows: an I-PER after an O, say, is never an answer.

Letters: W words of all sentences, E sentences, G sentences of a group, L words of the longest of them, K tags.

The best sequence has the largest sum of the words' scores. Where the best tags of the words form an allowed sequence,
they are it, so only the other sentences are searched, by dynamic programming over their words.

Source: Viterbi (1967), "Error bounds for convolutional codes", with transitions that are either free or forbidden.
"""

import numpy as np
import numpy.typing as npt

from bertsmith.encoding.units import Ints

Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]

_GROUP_VALUES = 2**22  # pairs of tags that are compared at once, over the sentences of a group


def best_sequences(scores: Floats, borders: Ints, follows: Bools) -> tuple[Ints, Ints]:
    """The tag of each word, int64 [W], and the sentences without any allowed sequence, in ascending order.

    A sentence has none if the tags themselves do not admit one of its length; its words then get their best tags.

    Args:
        scores: [W, K], such as the logarithms of probabilities; finite.
        borders: [E + 1], the first word of each sentence, and the number of words.
        follows: [K + 1, K + 1], whether a tag may follow another one; K is an end. See `metrics.entities`.
    """
    tags = np.asarray(scores.argmax(axis=-1), dtype=np.int64)
    broken = _broken(tags, borders, follows)
    lengths = np.diff(borders)[broken]
    order = np.argsort(-lengths, kind="stable")
    size = max(1, _GROUP_VALUES // scores.shape[1] ** 2)
    without: list[int] = []
    for first in range(0, len(order), size):
        group = order[first : first + size]
        begins = borders[broken[group]]
        places, found, exists = _search(scores, begins, lengths[group], follows)
        tags[places[np.repeat(exists, lengths[group])]] = found[np.repeat(exists, lengths[group])]
        without += broken[group][~exists].tolist()
    return tags, np.array(sorted(without), dtype=np.int64)


def _broken(tags: Ints, borders: Ints, follows: Bools) -> Ints:
    """The sentences with a forbidden pair of neighbours, int64, ascending."""
    lengths = np.diff(borders)
    sentences = np.repeat(np.arange(len(lengths)), lengths)
    end = len(follows) - 1
    before = np.append(end, tags[:-1])[: len(tags)]
    before[borders[:-1][lengths > 0]] = end
    lasts = borders[1:][lengths > 0] - 1
    is_bad = ~follows[before, tags]
    is_bad[lasts] |= ~follows[tags[lasts], end]
    return np.unique(sentences[is_bad])


def _search(scores: Floats, begins: Ints, lengths: Ints, follows: Bools) -> tuple[Ints, Ints, Bools]:
    """The words of G sentences, their tags in the best allowed sequence, and whether a sentence has one, bool [G].

    Words are in the order of the sentences. The tags of a sentence without a sequence mean nothing.

    Args:
        begins: [G], the first word of each sentence.
        lengths: [G], descending; at least 1.
    """
    end = len(follows) - 1
    cost = np.where(follows, 0.0, -np.inf)
    totals = scores[begins] + cost[end, :end]  # [G, K], of the best sequence up to a word that ends in a tag
    origins: list[Ints] = []  # [sentences that reach the word, K], the tag before
    for word in range(1, int(lengths[0])):
        count = int(np.searchsorted(-lengths, -word))  # lengths above `word`
        pairs = totals[:count, :, None] + cost[:end, :end]  # [count, K, K]
        origins.append(pairs.argmax(axis=1))
        totals[:count] = pairs.max(axis=1) + scores[begins[:count] + word]
    totals += cost[:end, end]
    tag = totals.argmax(axis=-1)
    exists = np.isfinite(totals.max(axis=-1))
    starts = np.cumsum(lengths) - lengths
    found = np.empty(int(lengths.sum()), dtype=np.int64)
    for word in range(int(lengths[0]) - 1, 0, -1):
        count = len(origins[word - 1])
        found[starts[:count] + word] = tag[:count]
        tag[:count] = origins[word - 1][np.arange(count), tag[:count]]
    found[starts] = tag
    places = np.repeat(begins - starts, lengths) + np.arange(len(found))
    return places, found, exists
