"""The most likely sequence of tags that a scheme allows: never an I-PER after an O, for example.

Letters: W words of all sentences, E sentences, G sentences that are searched, K tags, C sets of tags.

The best sequence has the largest sum of the words' scores. Where the best tags of the words form an allowed sequence,
they are it, so only the other sentences are searched, by dynamic programming over their words. Most tags may follow the
same tags, so the best predecessor is found once for each set of tags that may precede some tag.

Source: Viterbi (1967), "Error bounds for convolutional codes", with transitions that are either free or forbidden.
"""

import numpy as np
import numpy.typing as npt

from bertsmith.tasks.encoding.units import Ints

Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]


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
    if not len(broken):
        return tags, broken
    lengths = np.diff(borders)[broken]
    order = np.argsort(-lengths, kind="stable")
    broken, lengths = broken[order], lengths[order]
    repaired, exists = _search(scores, borders[broken], lengths, follows)
    begins = np.cumsum(lengths) - lengths
    places = np.repeat(borders[broken] - begins, lengths) + np.arange(len(repaired))
    is_found = np.repeat(exists, lengths)
    tags[places[is_found]] = repaired[is_found]
    return tags, np.sort(broken[~exists])


def _broken(tags: Ints, borders: Ints, follows: Bools) -> Ints:
    """The sentences with a forbidden pair of neighbors, int64, ascending."""
    lengths = np.diff(borders)
    sentences = np.repeat(np.arange(len(lengths)), lengths)
    end = len(follows) - 1
    before = np.append(end, tags[:-1])[: len(tags)]
    before[borders[:-1][lengths > 0]] = end
    lasts = borders[1:][lengths > 0] - 1
    is_bad = ~follows[before, tags]
    is_bad[lasts] |= ~follows[tags[lasts], end]
    return np.unique(sentences[is_bad])


def _search(scores: Floats, begins: Ints, lengths: Ints, follows: Bools) -> tuple[Ints, Bools]:
    """The tags of G sentences in their best allowed sequences, one after another, and whether there is one, bool [G].

    Args:
        begins: [G], the first word of each sentence.
        lengths: [G], descending; at least 1.
    """
    end = len(follows) - 1
    columns, set_of_tag = np.unique(follows[:end, :end], axis=1, return_inverse=True)  # [K, C]
    set_of_tag = set_of_tag.reshape(-1)
    sets = [np.flatnonzero(column) for column in columns.T]
    totals = np.where(follows[end, :end], scores[begins], -np.inf)  # [G, K], of the best sequence that ends in the tag
    origins: list[Ints] = []  # [sentences that reach the word, C], the best tag before
    for word in range(1, int(lengths[0])):
        count = int(np.searchsorted(-lengths, -word))  # lengths above `word`
        origin, best = np.zeros((count, len(sets)), dtype=np.int64), np.full((count, len(sets)), -np.inf)
        for number, members in enumerate(sets):
            if len(members):
                among = totals[:count, members]
                chosen = among.argmax(axis=1)
                origin[:, number] = members[chosen]
                best[:, number] = among[np.arange(count), chosen]
        origins.append(origin)
        totals[:count] = best[:, set_of_tag] + scores[begins[:count] + word]
    totals[:, ~follows[:end, end]] = -np.inf
    tag = totals.argmax(axis=-1)
    exists = np.isfinite(totals.max(axis=-1))
    starts = np.cumsum(lengths) - lengths
    result = np.empty(int(lengths.sum()), dtype=np.int64)
    for word in range(int(lengths[0]) - 1, 0, -1):
        origin = origins[word - 1]
        count = len(origin)
        result[starts[:count] + word] = tag[:count]
        tag[:count] = origin[np.arange(count), set_of_tag[tag[:count]]]
    result[starts] = tag
    return result, exists
