"""Stories about people who move and carry objects, with questions whose answers take one or two facts.

In the format of bAbI, with the numbers of the supporting facts; who does what is drawn, so that the share of right
answers that a guess reaches is that of the most frequent place.

Source: Weston et al. (2015), "Towards AI-Complete Question Answering", tasks 1 and 2.
"""

import numpy as np

from bertsmith.base.core.randomness import generator

PEOPLE = "Mary John Sandra Daniel".split()
PLACES = "kitchen garden bathroom office hallway bedroom".split()
OBJECTS = "football apple milk".split()
MOVES = ("went to", "moved to", "travelled to", "journeyed to", "went back to")
TAKES, DROPS = ("took", "got", "grabbed", "picked up"), ("dropped", "left", "put down", "discarded")


def one_fact(stories: int, seed: int) -> list[str]:
    """Lines of stories of ten moves, with a question about where a person is after every second one."""
    source, lines = generator(seed, "stories with one supporting fact"), []
    for _ in range(stories):
        number, places = 1, dict[str, tuple[str, int]]()
        for _ in range(5):
            for _ in range(2):
                person, place = _one_of(PEOPLE, source), _one_of(PLACES, source)
                lines.append(f"{number} {person} {_one_of(MOVES, source)} the {place}.")
                places[person] = place, number
                number += 1
            person = _one_of(list(places), source)
            lines.append(f"{number} Where is {person}? \t{places[person][0]}\t{places[person][1]}")
            number += 1
    return lines


def two_facts(stories: int, seed: int) -> list[str]:
    """Lines of stories of twelve events, with questions about where an object is that somebody holds or dropped.

    The facts that support an answer are where the object was taken, or dropped, and where its holder went then.
    """
    source, lines = generator(seed, "stories with two supporting facts"), []
    for _ in range(stories):
        number, places, held = 1, dict[str, tuple[str, int]](), dict[str, tuple[str, int]]()
        dropped = dict[str, tuple[str, int, int]]()
        asked = 0
        while asked < 4:
            for _ in range(3):
                person = _one_of(PEOPLE, source)
                free = [item for item in OBJECTS if item not in held and _is_here(item, person, places, dropped)]
                mine = [item for item in held if held[item][0] == person]
                draw = source.random()
                if person in places and free and draw < 0.35:
                    item = _one_of(free, source)
                    lines.append(f"{number} {person} {_one_of(TAKES, source)} the {item} there.")
                    held[item] = person, number
                    dropped.pop(item, None)
                elif mine and draw < 0.5:
                    item = _one_of(mine, source)
                    lines.append(f"{number} {person} {_one_of(DROPS, source)} the {item}.")
                    dropped[item] = places[person][0], number, places[person][1]
                    del held[item]
                else:
                    place = _one_of(PLACES, source)
                    lines.append(f"{number} {person} {_one_of(MOVES, source)} the {place}.")
                    places[person] = place, number
                number += 1
            known = [*held, *dropped]
            if known:
                item = _one_of(known, source)
                if item in held:
                    person, taken = held[item]
                    place, support = places[person][0], (taken, places[person][1])
                else:
                    place, *support = dropped[item]
                lines.append(f"{number} Where is the {item}? \t{place}\t{' '.join(map(str, support))}")
                number, asked = number + 1, asked + 1
    return lines


def _is_here(
    item: str, person: str, places: dict[str, tuple[str, int]], dropped: dict[str, tuple[str, int, int]]
) -> bool:
    """Whether a person may take an object: nobody has had it yet, or it was dropped where the person is."""
    return item not in dropped or (person in places and dropped[item][0] == places[person][0])


def _one_of(items: list[str] | tuple[str, ...], source: np.random.Generator) -> str:
    return items[int(source.integers(len(items)))]
