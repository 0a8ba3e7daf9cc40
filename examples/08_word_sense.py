"""Which bank? The vector of a word depends on its sentence, and its nearest labelled neighbor gives the sense.

Three notions are easily confused, because in each of them words and meanings do not match one to one:

* *Ambiguity*: one form with several meanings, either unrelated (homonymy: the bat that flies, the bat that hits) or
  related (polysemy: the spring as a season, the spring as a source). A property of the language.
* *Word sense disambiguation*: deciding which meaning is intended in a sentence. A task, the one of this example.
* *Coreference*: several expressions for the same person or thing (the baker ... she). Nearly the opposite: not one word
  with two meanings, but two words with one referent, whatever their form. See 09_coreference.py.

Another way to find the sense is to ask for each dictionary gloss whether it fits the sentence, as a text pair.
Sources: Devlin et al. (2018), section 5.3, for the vectors; Huang et al. (2019), "GlossBERT", for the pairs.
"""

import re
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from base_models import base_of_language, options

from bertsmith import Model, finetune, load, quiet

# The word, a gloss of one of its two senses, and who does what with which things in that sense.
SENSES = (
    ("bank", "a house for coins and money", ("clerk", "cashier"), ("counts", "saves"), ("coins", "bills", "notes")),
    ("bank", "the land beside the water", ("fisher", "swimmer"), ("feeds", "watches"), ("ducks", "swans", "fish")),
    ("bat", "an animal that flies by night", ("owl", "moth"), ("leaves", "circles"), ("caves", "barns", "trees")),
    ("bat", "a club for hitting balls", ("player", "captain"), ("throws", "drops"), ("balls", "gloves", "helmets")),
    ("spring", "the season before summer", ("farmer", "gardener"), ("plants", "sows"), ("tulips", "beans", "peas")),
    ("spring", "a coil of metal wire", ("mechanic", "engineer"), ("oils", "repairs"), ("wheels", "locks", "clocks")),
)
FORMS = ("the {who} {does} {what} and thinks of the {word} .", "with the {word} in mind the {who} {does} {what} .")
COMPARED = ("bank", "the clerk counts coins and thinks of the bank .", "with the bank in mind the fisher feeds ducks .")


def sentence(sense: int, rng: np.random.Generator, part: slice = slice(None)) -> str:
    """A sentence in which the word has this sense, with some of the words that go with it."""
    word, _, *others = SENSES[sense]
    who, does, what = (rng.choice(words[part]) for words in others)
    return rng.choice(FORMS).format(who=who, does=does, what=what, word=word)


def documents(count: int, rng: np.random.Generator) -> list[list[str]]:
    """Documents that each use one sense and mention its gloss; there are no labels."""
    picked = rng.integers(len(SENSES), size=count).tolist()
    return [[sentence(number, rng), f"it is {SENSES[number][1]} .", sentence(number, rng)] for number in picked]


def words_of(text: str) -> list[str]:
    """The words and punctuation marks of a text, in lower case."""
    return re.findall(r"\w+|[^\w\s]", text.lower())


def vectors(model: Model, sentences: Sequence[str], words: Sequence[str]) -> np.ndarray:
    """The normalized vector of one word in each sentence, in each layer: float32 [L + 1, S, D]."""
    split = [words_of(text) for text in sentences]
    positions = [tokens.index(word) for tokens, word in zip(split, words, strict=True)]
    count = len(model.attention(sentences[0]).weights)
    layers = [model.features(split, layers=str(layer)) for layer in range(count + 1)]
    picked = np.array([[rows[n].numpy() for rows, n in zip(layer, positions, strict=True)] for layer in layers])
    return picked / np.linalg.norm(picked, axis=-1, keepdims=True)


def main(
    folder: Path, model: str | None = None, compared: Sequence[str] = COMPARED, steps: int = 600, epochs: float = 10
) -> tuple[list[float], list[float], float]:
    """Prints and returns the accuracy by layer, the cosine by layer, and the accuracy by glosses."""
    settings = {"recipe": "2018", "epochs": float(epochs)}  # the recipe of the paper
    if model is None:
        model = base_of_language(documents(1500, np.random.default_rng(1)), folder, steps)
        settings |= {"learning_rate": 1e-3, "bias_correction": True}
    encoder, rng = load(model, device="cpu"), np.random.default_rng(2)

    # Questions and labelled sentences share no words except the ambiguous one.
    gold = np.repeat(np.arange(len(SENSES)), 8)
    labelled, asked = ([sentence(sense, rng, part) for sense in gold] for part in (slice(0, 1), slice(1, None)))
    words = [SENSES[sense][0] for sense in gold]
    known, new = (vectors(encoder, sentences, words) for sentences in (labelled, asked))
    same_word = np.array(words)[:, None] == np.array(words)
    nearest = np.where(same_word, new @ known.swapaxes(1, 2), -2).argmax(-1)  # [L + 1, S], by cosine
    right = (gold[nearest] == gold).mean(-1).tolist()
    word, *contexts = compared
    cosines = [float(one[0] @ one[1]) for one in vectors(encoder, contexts, [word, word])]
    print(f"the same '{word}'?\n  {contexts[0]}\n  {contexts[1]}")
    print("layer  cosine of the two  sense of new sentences right (guessing: 50%)")
    for layer, (cosine, share) in enumerate(zip(cosines, right, strict=True)):
        print(f"{layer:5}  {cosine:17.2f}  {share:.0%}")

    # The other way: does this gloss fit? Of the two glosses of a word, the more probable one gives its sense.
    def pairs(texts: Sequence[str], file: Path) -> list[tuple[str, str]]:
        rows = [
            (text, SENSES[other][1], "yes" if other == sense else "no")
            for text, sense in zip(texts, gold, strict=True)
            for other in (sense - sense % 2, sense - sense % 2 + 1)
        ]
        file.write_text("\n".join(map("\t".join, [("text", "pair", "label"), *rows])) + "\n", encoding="utf-8")
        return [(text, gloss) for text, gloss, _ in rows]

    folder.mkdir(parents=True, exist_ok=True)
    pairs(labelled, folder / "labelled.tsv")
    questions = pairs(asked, folder / "asked.tsv")
    # The last model is kept, so the questions are not used for any choice.
    finetune(
        source=model,
        task="classification",
        out=folder / "glosses",
        train=folder / "labelled.tsv",
        dev=folder / "asked.tsv",
        seeds=1,
        keep="last",
        baselines=False,
        batch_size=16,
        max_length=40,
        precision="fp32",
        device="cpu",
        **settings,
    )
    answers = load(folder / "glosses", device="cpu").classify(questions)
    yes = answers[0].labels.index("yes")
    fits = np.array([answer.probabilities[yes] for answer in answers]).reshape(-1, 2)
    by_gloss = float((fits.argmax(1) == gold % 2).mean())
    print(f"by which gloss fits: {by_gloss:.0%}")
    return right, cosines, by_gloss


if __name__ == "__main__":
    parser = options(__doc__)
    parser.add_argument(
        "--compare", nargs=3, metavar=("WORD", "TEXT", "TEXT"), default=COMPARED, help="one word, two contexts"
    )
    given = parser.parse_args()
    if not all(given.compare[0] in words_of(text) for text in given.compare[1:]):
        parser.error("--compare: WORD, in lower case, must occur in both texts")
    with tempfile.TemporaryDirectory() as temporary, quiet():
        main(Path(temporary), given.model, given.compare)
