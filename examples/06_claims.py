"""Claim detection: the sentences of an article, ranked by the probability that each states a checkable claim.

The first arm is a fine-tuned model. The second follows Full Fact: sentence vectors of a frozen model, with logistic
regression on top. A score means "worth checking", never "true": the truth of a claim cannot be read off the sentence,
which is why people check. Source: Konstantinovskiy, Price, Babakar and Zubiaga (2018), "Towards automated
factchecking".
"""

import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from base_models import base_of_presets, options
from sklearn.linear_model import LogisticRegression

from bertsmith import quiet
from bertsmith.inference.predictors.loading import load_predictor
from bertsmith.recipes.finetuning.job import FinetuningJob
from bertsmith.recipes.finetuning.settings import FinetuningSettings, RecipeSettings
from bertsmith.tasks.baselines.probe import text_vectors
from bertsmith.tasks.datasets.examples import TextExample
from bertsmith.tasks.encoding.loading import load_frozen_encoder
from bertsmith.tasks.specs.classification import ClassificationTask
from bertsmith.tasks.specs.task import TaskSettings
from bertsmith.tasks.task_data.split import TaskData
from bertsmith.tasks.task_data.task_files import read_task
from bertsmith.text.documents.sentences import split_sentences

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
    settings = FinetuningSettings(epochs=10, batch_size=16, precision="fp32")
    recipe = RecipeSettings()
    if model is None:
        model = base_of_presets(("claim",), folder, steps)
        settings = FinetuningSettings(epochs=epochs, batch_size=16, dropout=0.2, precision="fp32", device="cpu")
        recipe = RecipeSettings(learning_rate=1e-3, bias_correction=True)
    spec, data = read_task("claim", None, None, settings=TaskSettings(max_length=64))
    sentences = [TextExample(id=text, first=text) for text in split_sentences(article)]

    # All parameters are trained.
    if claim_model is None:
        job = FinetuningJob.prepare(model, spec, TaskData(train=data.train, dev=()), settings, recipe)
        job.train_once(folder / "fine-tuned", seed=1)
        claim_model = str(folder / "fine-tuned")
    predictor = load_predictor(claim_model)
    is_claim = predictor.task.spec.labels.index("Claim")
    dev_scores, _ = predictor.evaluate(data.dev)
    found = {"fine-tuned": np.array([answer.probabilities[is_claim] for answer in predictor.predict(sentences)])}
    right = {"fine-tuned": dev_scores["accuracy"]}

    # Only the regression is trained, on the mean of the last hidden states of a sentence.
    task, encoder = ClassificationTask(spec), load_frozen_encoder(model)

    def vectors(examples: Sequence[TextExample]) -> np.ndarray:
        return text_vectors(encoder, task, examples, encoder.choice("last"))

    regression = LogisticRegression(max_iter=1000)
    regression.fit(vectors(data.train), [example.label == "Claim" for example in data.train])
    found["vectors"] = regression.predict_proba(vectors(sentences))[:, 1]
    right["vectors"] = regression.score(vectors(data.dev), [example.label == "Claim" for example in data.dev])

    print(f"{len(data.train)} sentences to learn from; of {len(data.dev)} others right:", end=" ")
    print(", ".join(f"{arm} {share:.0%}" for arm, share in right.items()))
    print("claim?  " + "  ".join(f"{arm:>10}" for arm in found))
    for place in np.argsort(-found["fine-tuned"]):
        shares = "  ".join(f"{values[place]:10.0%}" for values in found.values())
        print(f"        {shares}  {sentences[place].first}")
    return found


if __name__ == "__main__":
    parser = options(__doc__)
    parser.add_argument("--article", type=Path, metavar="FILE", help="a text file [a short built-in article]")
    parser.add_argument("--claim-model", metavar="DIR", help="a model fine-tuned for claims [one is fine-tuned here]")
    given = parser.parse_args()
    text = given.article.read_text(encoding="utf-8") if given.article else ARTICLE
    with tempfile.TemporaryDirectory() as temporary, quiet():
        main(Path(temporary), given.model, text, claim_model=given.claim_model)
