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

import json
import re
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from base_models import base_of_language, options

from bertsmith import compare_contexts, disambiguate, finetune, gloss_pairs, load, quiet

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
    who, does, noun = (rng.choice(words[part]) for words in others)
    return rng.choice(FORMS).format(who=who, does=does, what=noun, word=word)


def documents(count: int, rng: np.random.Generator) -> list[list[str]]:
    """Documents that each use one sense and mention its gloss; there are no labels."""
    picked = rng.integers(len(SENSES), size=count).tolist()
    return [[sentence(number, rng), f"it is {SENSES[number][1]} .", sentence(number, rng)] for number in picked]


def table(file: Path, rows: Sequence[dict[str, str]]) -> Path:
    """The file, with these rows as JSON lines."""
    file.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return file


def main(
    folder: Path, model: str | None = None, compared: Sequence[str] = COMPARED, steps: int = 600, epochs: float = 10
) -> tuple[list[float], list[float], float]:
    """Prints and returns the accuracy by layer, the cosine by layer, and the accuracy by glosses."""
    settings = {"recipe": "2018", "epochs": float(epochs)}  # the recipe of the paper
    if model is None:
        model = base_of_language(documents(1500, np.random.default_rng(1)), folder, steps)
        settings |= {"learning_rate": 1e-3, "bias_correction": True}
    rng = np.random.default_rng(2)
    folder.mkdir(parents=True, exist_ok=True)

    # Questions and labelled sentences share no words except the ambiguous one.
    gold = np.repeat(np.arange(len(SENSES)), 8).tolist()
    labelled, asked = (
        table(
            folder / name,
            [
                {"lemma": SENSES[sense][0], "sense": SENSES[sense][1], "text": sentence(sense, rng, part)}
                for sense in gold
            ],
        )
        for name, part in (("labelled.jsonl", slice(0, 1)), ("asked.jsonl", slice(1, None)))
    )
    encoder = {"model": model, "device": "cpu"}
    word, *contexts = compared
    right, cosines = [], []
    print(f"the same '{word}'?\n  {contexts[0]}\n  {contexts[1]}")
    print("layer  cosine of the two  sense of new sentences right (guessing: 50%)")
    for layer in range(len(load(model, device="cpu").attention(contexts[0]).weights) + 1):
        cosines.append(compare_contexts(word, *contexts, layers=str(layer), **encoder).cosine)
        scores = disambiguate(
            asked, examples=labelled, method="nearest", layers=str(layer), evaluate=True, **encoder
        ).scores
        right.append(scores.f1)
        print(f"{layer:5}  {cosines[-1]:17.2f}  {right[-1]:.0%}")

    # The other way: does this gloss fit? Of the two glosses of a word, the more probable one gives its sense.
    glosses = table(
        folder / "glosses.jsonl", [{"lemma": word, "sense": gloss, "gloss": gloss} for word, gloss, *_ in SENSES]
    )
    pairs = {
        file: table(
            file.with_suffix(".pairs.jsonl"),
            [dict(zip(("text", "pair", "label"), row, strict=True)) for row in gloss_pairs(file, glosses)],
        )
        for file in (labelled, asked)
    }
    # The last model is kept, so the questions are not used for any choice.
    finetune(
        source=model,
        task="classification",
        out=folder / "glosses",
        train=pairs[labelled],
        dev=pairs[asked],
        seeds=1,
        keep="last",
        baselines=False,
        batch_size=16,
        max_length=40,
        precision="fp32",
        device="cpu",
        **settings,
    )
    by_gloss = disambiguate(
        asked, glosses=glosses, pair_model=folder / "glosses", evaluate=True, device="cpu"
    ).scores.f1
    print(f"by which gloss fits: {by_gloss:.0%}")
    return right, cosines, by_gloss


if __name__ == "__main__":
    parser = options(__doc__)
    parser.add_argument(
        "--compare", nargs=3, metavar=("WORD", "TEXT", "TEXT"), default=COMPARED, help="one word, two contexts"
    )
    arguments = parser.parse_args()
    if not all(arguments.compare[0] in re.findall(r"\w+", text.lower()) for text in arguments.compare[1:]):
        parser.error("--compare: WORD, in lower case, must occur in both texts")
    with tempfile.TemporaryDirectory() as temporary, quiet():
        main(Path(temporary), arguments.model, arguments.compare)
