"""Claim detection: the sentences of an article, ranked by the probability that each states a checkable claim.

The first arm is a fine-tuned model. The second follows Full Fact: sentence vectors of a frozen model, with logistic
regression on top. A score means "worth checking", never "true": the truth of a claim cannot be read off the sentence,
which is why people check. Source: Konstantinovskiy, Price, Babakar and Zubiaga (2018), "Towards automated
factchecking".
"""

import tempfile
from pathlib import Path

import numpy as np
from base_models import base_of_presets, options
from sklearn.linear_model import LogisticRegression

from bertsmith import finetune, load, quiet, read_task, split_sentences

ARTICLE = """\
Good morning, and thank you all for coming. The mayor spoke for an hour on Tuesday. "Bus fares have risen by 12 percent
since 2019," she said. Do we really want to go on like this? I believe that we can do better. The city spent 3 million
on the new bridge last year. Dr. Osei, who sat in the first row, shook his head. Let me be honest with you. More than
half of all households own no car. We will never give up!"""


def main(
    folder: Path,
    model: str | None = None,
    article: str = ARTICLE,
    steps: int = 300,
    epochs: float = 40,
    claim_model: str | None = None,
) -> dict[str, np.ndarray]:
    """Prints the ranking and returns the probability that each sentence is a claim, float64 [S], by arm.

    With `claim_model`, a model already fine-tuned for claims, nothing is fine-tuned.
    """
    settings = {"recipe": "2018", "epochs": 10.0}  # the recipe of the paper
    if model is None:
        model = base_of_presets(("claim",), folder, steps)
        settings |= {"epochs": float(epochs), "dropout": 0.2, "learning_rate": 1e-3, "bias_correction": True}
    _, data = read_task("claim", None, None)
    sentences = split_sentences(article)
    known, new = ([example.first for example in part] for part in (data.train, data.dev))
    truth, gold = (np.array([example.label == "Claim" for example in part]) for part in (data.train, data.dev))

    # All parameters are trained.
    if claim_model is None:
        claim_model = str(folder / "fine-tuned")
        finetune(
            source=model,
            task="claim",
            out=claim_model,
            seeds=1,
            keep="last",
            baselines=False,
            batch_size=16,
            max_length=64,
            precision="fp32",
            device="cpu",
            **settings,
        )
    tuned = load(claim_model, device="cpu")
    claim = tuned.labels.index("Claim")
    chances = {"fine-tuned": np.array([answer.probabilities[claim] for answer in tuned.classify(sentences)])}
    right = {"fine-tuned": np.mean(gold == [answer.label == "Claim" for answer in tuned.classify(new)])}

    # Only the regression is trained, on the mean of the last hidden states of a sentence.
    frozen = load(model, device="cpu")
    regression = LogisticRegression(max_iter=1000).fit(frozen.embed(known), truth)
    chances["vectors"] = regression.predict_proba(frozen.embed(sentences))[:, 1]
    right["vectors"] = regression.score(frozen.embed(new), gold)

    print(f"{len(known)} sentences to learn from; of {len(new)} others right:", end=" ")
    print(", ".join(f"{arm} {share:.0%}" for arm, share in right.items()))
    print("claim?  " + "  ".join(f"{arm:>10}" for arm in chances))
    for number in np.argsort(-chances["fine-tuned"]):
        shares = "  ".join(f"{values[number]:10.0%}" for values in chances.values())
        print(f"        {shares}  {sentences[number]}")
    return chances


if __name__ == "__main__":
    parser = options(__doc__)
    parser.add_argument("--article", type=Path, metavar="FILE", help="a text file [a short built-in article]")
    parser.add_argument("--claim-model", metavar="DIR", help="a model fine-tuned for claims [one is fine-tuned here]")
    arguments = parser.parse_args()
    text = arguments.article.read_text(encoding="utf-8") if arguments.article else ARTICLE
    with tempfile.TemporaryDirectory() as temporary, quiet():
        main(Path(temporary), arguments.model, text, claim_model=arguments.claim_model)
