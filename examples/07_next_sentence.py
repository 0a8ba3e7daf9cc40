"""What comes next? The next-sentence head chooses among candidates; and what it does not learn.

The head gives the probability that a second text follows the first; of several candidates, the most likely is chosen.
In training, negative examples come from other documents, so the head learns which sentences belong together. It never
learns their order: two sentences of the same document often pass in reverse order, which is why ALBERT is trained on
sentence order instead. Sources: Devlin et al. (2018), section 3.1, task 2; Lan et al. (2020), "ALBERT", section 3.1.
"""

import tempfile
from pathlib import Path

import numpy as np
from base_models import base_of_language, options
from toy import PLACES, village

import bertsmith

FIRST = "the baker stirs the soup ."
CANDIDATES = (
    "then they slice the bread .",
    "then she slices the bread .",
    "then she rows the boat .",
    "then they mend the nets .",
)


def kind(sentence: str) -> tuple[int, bool]:
    """The place of a sentence that starts with "then", and whether it is about several people."""
    words = sentence.split()
    return next(
        number for number, (_, verbs) in enumerate(PLACES) if words[-2] in sum(verbs.values(), ())
    ), "they" in words


def main(folder: Path, model: str | None = None, steps: int = 600, stories: int = 100) -> tuple[str, float, float]:
    """Prints and returns the choice, its accuracy on new stories, and how often reversed pairs pass."""
    model = model or base_of_language(village(1500, np.random.default_rng(1)), folder, steps)
    loaded = bertsmith.load(model, device="cpu")

    answers = loaded.next_sentence([(FIRST, candidate) for candidate in CANDIDATES])
    print(FIRST)
    for answer in sorted(answers, key=lambda answer: -answer.probability):
        print(f"  {answer.probability:4.0%}  {answer.text}")
    chosen = max(answers, key=lambda answer: answer.probability).text

    rng, tales = np.random.default_rng(2), village(stories, np.random.default_rng(3))
    rows = []
    for first, second, *_ in tales:
        elsewhere = [other for _, other, *_ in tales if kind(other) != kind(second)]
        candidates = [second, *rng.choice(elsewhere, 3).tolist()]
        inside, *outside = loaded.next_sentence([(first, candidate) for candidate in candidates])
        turned = loaded.next_sentence([(second, first)])[0]
        rows.append([inside.probability, max(answer.probability for answer in outside), turned.probability])
    chances = np.array(rows)
    right, taken = float((chances[:, 0] > chances[:, 1]).mean()), (chances > 0.5).mean(0)
    print(f"{stories} new stories: the right one of four candidates is chosen in {right:.0%} (guessing: 25%)")
    print(f"above 50%: the true pair in {taken[0]:.0%}, reversed in {taken[2]:.0%},", end=" ")
    print(f"the best of three sentences of other stories in {taken[1]:.0%}")
    return chosen, right, float(taken[2])


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as temporary, bertsmith.quiet():
        main(Path(temporary), options(__doc__).parse_args().model)
