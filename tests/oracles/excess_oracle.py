"""The pieces of words by trying every end, and what one more or one fewer piece would change: slow and obvious."""

from collections.abc import Collection, Mapping


def cut(word: str, pieces: Collection[str]) -> list[str]:
    """The longest piece first, from left to right; [UNK] where nothing fits."""
    found: list[str] = []
    rest = word
    while rest:
        marked = "##" + rest if found else rest
        least = 3 if found else 1
        candidates = [marked[:end] for end in range(len(marked), least - 1, -1) if marked[:end] in pieces]
        if not candidates:
            return ["[UNK]"]
        rest = rest[len(candidates[0]) - (2 if found else 0) :]
        found.append(candidates[0])
    return found


def excess(counts: Mapping[str, int], pieces: Collection[str]) -> int:
    """The pieces beyond one for each word."""
    known = set(pieces)
    return sum(count * (len(cut(word, known)) - 1) for word, count in counts.items())


def unknown(counts: Mapping[str, int], pieces: Collection[str]) -> int:
    """The words that cannot be cut."""
    known = set(pieces)
    return sum(count for word, count in counts.items() if cut(word, known) == ["[UNK]"])
