"""The pieces of words by trying every end, and the effect of one more or one fewer piece: slow and obvious."""

from collections.abc import Collection, Mapping


def cut(word: str, pieces: Collection[str]) -> list[str]:
    """The pieces of a word, longest match first, from left to right; [UNK] if nothing matches."""
    result: list[str] = []
    rest = word
    while rest:
        marked = "##" + rest if result else rest
        least = 3 if result else 1
        candidates = [marked[:end] for end in range(len(marked), least - 1, -1) if marked[:end] in pieces]
        if not candidates:
            return ["[UNK]"]
        rest = rest[len(candidates[0]) - (2 if result else 0) :]
        result.append(candidates[0])
    return result


def excess(counts: Mapping[str, int], pieces: Collection[str]) -> int:
    """The number of pieces in excess of one per word."""
    known = set(pieces)
    return sum(count * (len(cut(word, known)) - 1) for word, count in counts.items())


def unknown(counts: Mapping[str, int], pieces: Collection[str]) -> int:
    """The number of words that cannot be split into pieces."""
    known = set(pieces)
    return sum(count for word, count in counts.items() if cut(word, known) == ["[UNK]"])
