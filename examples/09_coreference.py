"""Who is "she"? Two ways to decide which of two candidates a pronoun refers to: fine-tuning, and masking.

The task `coreference` trains scores of pronoun and candidate, and of "neither", together with the encoder. The other
way needs no labels: the pronoun is masked, and the candidate that is more probable there is chosen, as for Winograd
schemas. Sources: Lee et al. (2017), "End-to-end neural coreference resolution", for scores of pairs; Levesque et al.
(2012), "The Winograd schema challenge"; Kocijan et al. (2019), "A surprisingly robust trick for the Winograd schema
challenge", for masking; Webster et al. (2018), "Mind the GAP", for the files of `--gap`.
"""

import json
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from base_models import base_of_language, options
from toy import PLACES

from bertsmith import Model, evaluate, finetune, load, quiet

NEITHER = 2


def meeting(rng: np.random.Generator) -> dict[str, Any]:
    """Two people meet, and then "she" does what the first, the second or someone else typically does."""
    places = rng.permutation(len(PLACES))
    people = [f"the {rng.choice(PLACES[index][0])}" for index in places[:2]]
    answer = int(rng.integers(len(PLACES)))
    verbs = PLACES[places[answer]][1]
    verb = str(rng.choice(list(verbs)))
    text = f"{people[0]} meets {people[1]} . then she {verb}s the {rng.choice(verbs[verb])} ."
    start = text.index(" she ") + 1  # there is another "she" in "fisher"
    candidates = [[begin := text.index(person), begin + len(person)] for person in people]
    return {
        "text": text,
        "pronoun": [start, start + len("she")],
        "candidates": candidates,
        "answer": None if answer == NEITHER else answer,
    }


def around(record: dict[str, Any], words: str) -> str:
    """The text of a meeting with some words in place of the pronoun."""
    start, end = record["pronoun"]
    return record["text"][:start] + words + record["text"][end:]


def documents_of(records: Sequence[dict[str, Any]]) -> list[list[str]]:
    """The meetings as two-sentence documents for pre-training, with the name of the person if it is one of the two."""
    documents = []
    for record in records:
        answer = record["answer"]
        words = "she" if answer is None else record["text"][slice(*record["candidates"][answer])]
        documents.append([f"{part} ." for part in around(record, words).removesuffix(" .").split(" . ")])
    return documents


def by_masks(model: Model, record: dict[str, Any]) -> int:
    """The candidate whose noun is more probable in place of the pronoun: "the [MASK]"."""
    nouns = [record["text"][slice(*span)].removeprefix("the ") for span in record["candidates"]]
    (gap,) = model.fill([around(record, "the [MASK]")], top=1000)[0]
    chances = {piece.piece: piece.probability for piece in gap}
    return int(np.argmax([chances.get(noun, 0.0) for noun in nouns]))


def written(records: Sequence[dict[str, Any]], path: Path) -> Path:
    """The file of some meetings, a line of JSON each."""
    path.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")
    return path


def main(
    folder: Path, model: str | None = None, gap: Sequence[Path] = (), steps: int = 400, epochs: int = 6
) -> tuple[float, float | None]:
    """Prints and returns the accuracy of the scores, and that of masking on texts where a candidate is meant."""
    rng, rate, length = np.random.default_rng(1), 3e-5, 384
    meetings = [meeting(rng) for _ in range(3000)]
    different = list({record["text"]: record for record in meetings}.values())
    learn, asked = different[:200], different[200:]
    if model is None:
        model = base_of_language(
            documents_of([record for record in meetings if record not in asked]), folder, steps, "mlm"
        )
        rate, length = 1e-3, 40
    train, dev = gap or (written(part, folder / f"{name}.jsonl") for name, part in (("learn", learn), ("asked", asked)))
    masks_right = None
    if not gap:
        print(f"{len(learn)} texts to learn from, {len(asked)} others to ask")
        base = load(model)
        answered = [record for record in asked if record["answer"] is not None]
        masks_right = float(np.mean([by_masks(base, record) == record["answer"] for record in answered]))
    settings = {"epochs": epochs, "learning_rate": rate, "batch_size": 16, "max_length": length}
    result = finetune(model, "coreference", folder / "run", train=train, dev=dev, seeds=1, **settings)
    scores = evaluate(folder / "run", dev).scores
    if not gap:
        answers = load(folder / "run").resolve([{**record, "answer": None} for record in asked[:3]])
        for record, answer in zip(asked[:3], answers, strict=True):
            print(f"  {record['text'][:90]}  {answer.pronoun[0]} = {answer.text or 'neither'}")
    print(f"fine-tuned: {scores['accuracy']:.0%} of the answers right, F1 of the pairs {scores['f1']:.1%}")
    for system in result.report["baselines"]:
        print(f"{system['name']}: {system['scores']['accuracy']:.0%}, F1 {system['scores']['f1']:.1%}")
    if masks_right is not None:
        print(f"masks: {masks_right:.0%} of two candidates right (guessing: 50%)")
    return scores["accuracy"], masks_right


if __name__ == "__main__":
    parser = options(__doc__)
    parser.add_argument("--gap", nargs=2, type=Path, default=(), metavar=("TRAIN", "TEST"), help="two GAP files")
    arguments = parser.parse_args()
    if arguments.gap and not arguments.model:
        parser.error("GAP texts are English: name an English model with --model")
    with tempfile.TemporaryDirectory() as temporary, quiet():
        main(Path(temporary), arguments.model, arguments.gap)
