"""Why masks: a bidirectional model that predicts words while it can see them learns only to copy.

Through attention, every state of a bidirectional model sees every word, also the one to be predicted. The loss falls to
zero, yet the model never had to understand a context, so its states are useless. A left-to-right twin predicts each
next word, which it cannot see, but half of every context is hidden from it. Masking removes the word itself and leaves
both sides visible. Source: Devlin et al. (2018), sections 1 and 3.1.
"""

import tempfile
from pathlib import Path

import numpy as np
from toy import corpus_of, pretrain_small

import bertsmith

# Two kinds of things. Some nouns can be either; only the adjective, verb and place around them reveal which.
NOUNS = (("horse", "cat", "goat", "bird"), ("lamp", "cart", "pump", "clock"))
BOTH_KINDS = ("crane", "mouse", "bat", "ram")
CLUES = (
    (("hungry", "furry", "tame", "sleepy"), ("rusty", "wooden", "broken", "costly")),
    (("grazes", "bites", "drinks", "naps"), ("rattles", "tilts", "creaks", "rolls")),
    (("stable", "nest", "meadow", "kennel"), ("workshop", "garage", "factory", "depot")),
)
NEUTRAL = ("very", "stays", "road")  # instead of a clue
NOUN, PLACE = 3, 7  # words of "one <adjective> old <noun> <verb> near the <place> ."
# The settings of `pretrain`. Without masks, words are predicted as in the masked model, but stay visible.
MODELS = {
    "untrained": {"objective": "mlm", "learning_rate": 1e-9},
    "masked": {"objective": "mlm"},
    "left-to-right": {"objective": "left-to-right"},
    "both sides, no masks": {"objective": "mlm", "mask_share": 0.0, "keep_share": 1.0, "random_share": 0.0},
}


def sentence(kind: int, shown: np.ndarray, noun: str, known: slice, rng: np.random.Generator) -> str:
    """A sentence about a noun, with the `shown` ones of three clues to its kind; clue words are drawn from `known`."""
    words = [rng.choice(CLUES[i][kind][known]) if shown[i] else NEUTRAL[i] for i in range(3)]
    return f"one {words[0]} old {noun} {words[1]} near the {words[2]} ."


def hidden_loss(model: bertsmith.Model, texts: list[str]) -> float:
    """The loss in nats for the word of place in each sentence when it is hidden: masked, or still to come."""
    words, everything = [text.split() for text in texts], len(model.tokenizer.vocabulary)
    before = [" ".join(sentence[:PLACE]) for sentence in words]
    if "fill" in model.abilities:
        guesses = [masks[0] for masks in model.fill([f"{text} [MASK] ." for text in before], top=everything)]
    else:
        guesses = [answer.next for answer in model.complete(before, top=everything)]
    chances = [{guess.piece: guess.probability for guess in each} for each in guesses]
    return -float(np.mean([np.log(each[word[PLACE]]) for each, word in zip(chances, words, strict=True)]))


def kind_known(model: bertsmith.Model, clue: int, rng: np.random.Generator) -> float:
    """How often the state of an ambiguous noun is closer to the mean of its kind, with one clue in the sentence.

    The means are computed on sentences with half of the clue words, the test uses the other half.
    """

    def nouns(kind: int, known: slice) -> np.ndarray:
        texts = [sentence(kind, np.arange(3) == clue, str(rng.choice(BOTH_KINDS)), known, rng) for _ in range(200)]
        return np.stack([vectors[NOUN].numpy() for vectors in model.features([text.split() for text in texts])])

    means = np.stack([nouns(kind, slice(0, 2)).mean(0) for kind in (0, 1)])
    distances = [np.linalg.norm(nouns(kind, slice(2, 4))[:, None] - means, axis=-1) for kind in (0, 1)]
    return float(np.mean([distance.argmin(1) == kind for kind, distance in enumerate(distances)]))


def main(steps: int = 400, sentences: int = 6500) -> dict[str, tuple[float, ...]]:
    """Prints and returns, for each model, its loss, its loss for a hidden word, and what its states know."""
    rng = np.random.default_rng(1)
    kinds, shown = rng.integers(2, size=sentences), rng.random((sentences, 3)) < 0.9
    nouns = [str(rng.choice(NOUNS[k] if rng.random() < 0.5 else BOTH_KINDS)) for k in kinds]
    texts = [sentence(k, s, n, slice(4), rng) for k, s, n in zip(kinds, shown, nouns, strict=True)]
    results = {}
    print("                          own loss   loss, word hidden   kind known: clue left   clue right")
    with tempfile.TemporaryDirectory() as folder, bertsmith.quiet():
        corpus = corpus_of([[text] for text in texts[500:]], Path(folder) / "corpus")
        for name, settings in MODELS.items():
            run, steps_of_run = Path(folder) / name, 1 if name == "untrained" else steps
            scores = pretrain_small(
                corpus, run, steps_of_run, max_length=16, short_sequence_probability=0.0, **settings
            )
            model = bertsmith.load(run, device="cpu")
            known = (kind_known(model, clue, np.random.default_rng(2)) for clue in (0, 2))
            results[name] = (scores["loss"], hidden_loss(model, texts[:500]), *known)
            print("{:24}  {:8.3f}   {:17.3f}   {:21.0%}   {:10.0%}".format(name, *results[name]), flush=True)
    return results


if __name__ == "__main__":
    main()
