"""Small stories: people move between places; the answer is where a person went last."""

from pathlib import Path

import numpy as np

PEOPLE, LOCATIONS = "Mary John Ann".split(), "kitchen garden office".split()


def babi_lines(count: int, seed: int = 0) -> list[str]:
    """Stories of four moves with two questions each."""
    source, lines = np.random.default_rng(seed), []
    for _ in range(count):
        number, locations = 1, dict[str, tuple[str, int]]()
        for _ in range(2):
            for _ in range(2):
                person, location = str(source.choice(PEOPLE)), str(source.choice(LOCATIONS))
                lines.append(f"{number} {person} went to the {location}.")
                locations[person] = location, number
                number += 1
            person = str(source.choice(sorted(locations)))
            lines.append(f"{number} Where is {person}?\t{locations[person][0]}\t{locations[person][1]}")
            number += 1
    return lines


def write_stories(path: Path, count: int = 12, seed: int = 0) -> Path:
    """A file in the format of bAbI."""
    path.write_text("\n".join(babi_lines(count, seed)) + "\n", encoding="utf-8")
    return path
