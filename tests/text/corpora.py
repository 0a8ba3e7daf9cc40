"""Small corpora shared by the tests of vocabularies."""

from collections import Counter

import numpy as np

_STEMS = (
    "tweet walk talk jump look play work call help need start turn show open close follow report answer order visit "
    "learn listen offer point rain sleep speak stand watch paint print plant train clean count cross doubt dream"
)
_DRUGS = (
    "xanax xarelto xalatan xalkori xaracoll xadago xatmep tenax pinax minax zonax lonax donnax venax rynax corex "
    "lasix paxil zocor lipitor plavix"
)
_COMMON = "the and of to in he she it was his her with for that on as at by not but they from this have"


def english() -> Counter[str]:
    """Verbs in four forms, names of medicines, and the words around them."""
    counts = Counter({word: 2000 // rank for rank, word in enumerate(_COMMON.split(), start=2)})
    for position, stem in enumerate(_STEMS.split()):
        for form, share in (("", 60), ("ing", 45), ("s", 40), ("ed", 30)):
            counts[stem + form] += share + 40 * (stem == "tweet") - position // 2
    for position, drug in enumerate(_DRUGS.split()):
        counts[drug] += 40 * (drug == "xanax") + 30 - position // 2
    return counts


def random_words(seed: int, number: int = 600) -> Counter[str]:
    """Words made of random syllables, so that they share beginnings, middles and ends."""
    generator = np.random.default_rng(seed)
    syllables = [
        "".join(generator.choice(list("aeioubcdfgklmnprst"), size=generator.integers(1, 4))) for _ in range(40)
    ]
    counts: Counter[str] = Counter()
    for rank in range(1, number + 1):
        chosen = generator.choice(syllables, size=generator.integers(1, 5))
        counts["".join(chosen)] += int(3000 / rank) + 1
    return counts


def sources_of_names(num_sources: int = 12) -> list[str]:
    """Texts that share their common words; each often repeats a name of its own."""
    common = " ".join(f"{word} " * 20 for word in ("sailing", "boating", "rowing", "sailor", "boat", "the"))
    names = ["gwendolen", "barnaby", "thaddeus", "philomena", "cornelius", "hortensia"]
    return [f"{common} {f'{name}{number * 7919} ' * 50}" for number, name in enumerate(names * (num_sources // 6), 1)]
