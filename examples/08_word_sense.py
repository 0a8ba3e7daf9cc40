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

import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from base_models import base_of_language, options

from bertsmith import quiet
from bertsmith.inference.predictors.loading import load_predictor
from bertsmith.recipes.finetuning.job import FinetuningJob
from bertsmith.recipes.finetuning.settings import FinetuningSettings, RecipeSettings
from bertsmith.tasks.datasets.examples import TextExample
from bertsmith.tasks.datasets.words import words_of
from bertsmith.tasks.encoding.frozen import FrozenEncoder
from bertsmith.tasks.encoding.loading import load_frozen_encoder
from bertsmith.tasks.specs.tagging import TaggingTask
from bertsmith.tasks.specs.task import TaskSettings, TaskSpec
from bertsmith.tasks.task_data.split import TaskData

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


def vectors(encoder: FrozenEncoder, sentences: Sequence[str], words: Sequence[str]) -> np.ndarray:
    """The normalized vector of one word in each sentence, in each layer: float32 [L + 1, S, D]."""
    cut = TaskSettings(max_length=40, long_text="windows")
    task = TaggingTask(TaskSpec(kind="tagging", name="words", labels=("O",), settings=cut))
    tagged = [words_of(text.lower()) for text in sentences]
    layers = encoder.choice(",".join(map(str, range(encoder.model.config.num_hidden_layers + 1))))
    found = encoder.hidden_states(task.encode(tagged, encoder.tokenizer), layers)  # [W, L + 1, D]
    starts = np.cumsum([0, *(len(one.words) for one in tagged[:-1])])
    places = [start + one.words.index(word) for start, one, word in zip(starts, tagged, words, strict=True)]
    return (found / np.linalg.norm(found, axis=-1, keepdims=True))[places].swapaxes(0, 1)


def main(
    folder: Path, model: str | None = None, compared: Sequence[str] = COMPARED, steps: int = 600, epochs: float = 10
) -> tuple[list[float], list[float], float]:
    """Prints and returns the accuracy by layer, the cosine by layer, and the accuracy by glosses."""
    recipe = RecipeSettings()
    if model is None:
        model = base_of_language(documents(1500, np.random.default_rng(1)), folder, steps)
        recipe = RecipeSettings(learning_rate=1e-3, bias_correction=True)
    encoder, rng = load_frozen_encoder(model), np.random.default_rng(2)

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
    def pairs(texts: Sequence[str]) -> list[TextExample]:
        return [
            TextExample(id=text, first=text, second=SENSES[other][1], label="yes" if other == sense else "no")
            for text, sense in zip(texts, gold, strict=True)
            for other in (sense - sense % 2, sense - sense % 2 + 1)
        ]

    cut = TaskSettings(max_length=40)
    spec = TaskSpec(kind="classification", name="glosses", labels=("no", "yes"), pair=True, settings=cut)
    settings = FinetuningSettings(epochs=epochs, batch_size=16, precision="fp32")
    job = FinetuningJob.prepare(model, spec, TaskData(train=pairs(labelled), dev=()), settings, recipe)
    job.train_once(folder / "glosses", seed=1)
    answers = load_predictor(folder / "glosses").predict(pairs(asked))
    fits = np.array([answer.probabilities[1] for answer in answers]).reshape(-1, 2)
    by_gloss = float((fits.argmax(1) == gold % 2).mean())
    print(f"by which gloss fits: {by_gloss:.0%}")
    return right, cosines, by_gloss


if __name__ == "__main__":
    parser = options(__doc__)
    parser.add_argument(
        "--compare", nargs=3, metavar=("WORD", "TEXT", "TEXT"), default=COMPARED, help="one word, two contexts"
    )
    given = parser.parse_args()
    if not all(given.compare[0] in words_of(text.lower()).words for text in given.compare[1:]):
        parser.error("--compare: WORD, in lower case, must occur in both texts")
    with tempfile.TemporaryDirectory() as temporary, quiet():
        main(Path(temporary), given.model, given.compare)
