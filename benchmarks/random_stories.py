"""Stories about people who move and carry objects, with questions whose answers take one or two facts.

In the format of bAbI, with the numbers of the supporting facts; who does what is drawn, so that the share of right
answers that a guess reaches is that of the most frequent location.

Source: Weston et al. (2015), "Towards AI-Complete Question Answering", tasks 1 and 2.
"""

import numpy as np

from bertsmith.base.core.randomness import generator

PEOPLE = "Mary John Sandra Daniel".split()
LOCATIONS = "kitchen garden bathroom office hallway bedroom".split()
OBJECTS = "football apple milk".split()
MOVES = ("went to", "moved to", "travelled to", "journeyed to", "went back to")
TAKES, DROPS = ("took", "got", "grabbed", "picked up"), ("dropped", "left", "put down", "discarded")


def one_fact(stories: int, seed: int) -> list[str]:
    """Lines of stories of ten moves, with a question about where a person is after every second one."""
    source, lines = generator(seed, "stories with one supporting fact"), []
    for _ in range(stories):
        number, locations = 1, dict[str, tuple[str, int]]()
        for _ in range(5):
            for _ in range(2):
                person, location = _drawn(PEOPLE, source), _drawn(LOCATIONS, source)
                lines.append(f"{number} {person} {_drawn(MOVES, source)} the {location}.")
                locations[person] = location, number
                number += 1
            person = _drawn(list(locations), source)
            lines.append(f"{number} Where is {person}? \t{locations[person][0]}\t{locations[person][1]}")
            number += 1
    return lines


def two_facts(stories: int, seed: int) -> list[str]:
    """Lines of stories of twelve events, with questions about where an object is that a person holds or dropped.

    The facts that support an answer are where the object was taken, or dropped, and where its holder went then.
    """
    source, lines = generator(seed, "stories with two supporting facts"), []
    for _ in range(stories):
        number, locations, held = 1, dict[str, tuple[str, int]](), dict[str, tuple[str, int]]()
        dropped = dict[str, tuple[str, int, int]]()
        asked = 0
        while asked < 4:
            for _ in range(3):
                person = _drawn(PEOPLE, source)
                free = [item for item in OBJECTS if item not in held and _is_here(item, person, locations, dropped)]
                mine = [item for item in held if held[item][0] == person]
                draw = source.random()
                if person in locations and free and draw < 0.35:
                    item = _drawn(free, source)
                    lines.append(f"{number} {person} {_drawn(TAKES, source)} the {item} there.")
                    held[item] = person, number
                    dropped.pop(item, None)
                elif mine and draw < 0.5:
                    item = _drawn(mine, source)
                    lines.append(f"{number} {person} {_drawn(DROPS, source)} the {item}.")
                    dropped[item] = locations[person][0], number, locations[person][1]
                    del held[item]
                else:
                    location = _drawn(LOCATIONS, source)
                    lines.append(f"{number} {person} {_drawn(MOVES, source)} the {location}.")
                    locations[person] = location, number
                number += 1
            known = [*held, *dropped]
            if known:
                item = _drawn(known, source)
                if item in held:
                    person, taken = held[item]
                    location, support = locations[person][0], (taken, locations[person][1])
                else:
                    location, *support = dropped[item]
                lines.append(f"{number} Where is the {item}? \t{location}\t{' '.join(map(str, support))}")
                number, asked = number + 1, asked + 1
    return lines


def _is_here(
    item: str, person: str, locations: dict[str, tuple[str, int]], dropped: dict[str, tuple[str, int, int]]
) -> bool:
    """Whether a person may take an object: it was never dropped, or it was dropped where the person is."""
    return item not in dropped or (person in locations and dropped[item][0] == locations[person][0])


def _drawn(items: list[str] | tuple[str, ...], source: np.random.Generator) -> str:
    return items[int(source.integers(len(items)))]
