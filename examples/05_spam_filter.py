"""A spam filter learned from 72 mails, which gives the probability that a new mail is spam; then with four labels.

A linear layer with one row per label is added on top of the pooled [CLS] vector; a softmax turns its outputs into
probabilities, and all parameters are trained. More labels mean more rows; nothing else changes. The training mails come
with the package (`--task spam` and `--task spam4` on the command line). Source: Devlin et al. (2018), section 4.1.
"""

import tempfile
from pathlib import Path

from base_models import base_of_presets, options

from bertsmith import quiet
from bertsmith.inference.predictors.loading import load_predictor
from bertsmith.recipes.finetuning.job import FinetuningJob
from bertsmith.recipes.finetuning.opening import opening_lines
from bertsmith.recipes.finetuning.settings import FinetuningSettings, RecipeSettings
from bertsmith.tasks.datasets.examples import TextExample
from bertsmith.tasks.specs.task import TaskSettings
from bertsmith.tasks.task_data.split import TaskData
from bertsmith.tasks.task_data.task_files import read_task

MAILS = ("Buy these pills", "Win cash prizes", "Dear Mr. Atreides, please find attached...")
MORE_MAILS = ("Paul Atreides commented on your photo", "Spring sale: members save 20% on all shoes")


def percentages(line: str) -> str:
    """The probabilities in an output line of the predictor, as `75% Spam / 25% Not Spam`."""
    return line.split("\t")[1].replace(", ", " / ")


def main(folder: Path, model: str | None = None, steps: int = 300, epochs: float = 60) -> dict[str, list[str]]:
    """Prints the answers and returns the label of each mail, for each of the two filters."""
    settings = FinetuningSettings(epochs=10, batch_size=16, precision="fp32")
    recipe = RecipeSettings()  # the recipe of the paper
    if model is None:  # made from the mails; such a small model needs more epochs at a higher learning rate
        model = base_of_presets(("spam", "spam4"), folder, steps)
        settings = FinetuningSettings(epochs=epochs, batch_size=16, dropout=0.2, precision="fp32", device="cpu")
        recipe = RecipeSettings(learning_rate=1e-3, bias_correction=True)

    labels = {}
    for name, mails in (("spam", MAILS), ("spam4", (*MAILS, *MORE_MAILS))):
        spec, data = read_task(name, None, None, settings=TaskSettings(max_length=64))
        # The held-out mails are not used for any choice, so they give an unbiased estimate.
        job = FinetuningJob.prepare(model, spec, TaskData(train=data.train, dev=()), settings, recipe)
        print(opening_lines(job)[0])
        job.train_once(folder / name, seed=1)

        predictor = load_predictor(folder / name)
        scores, _ = predictor.evaluate(data.dev)
        print(f"{scores['accuracy']:.0%} of the {len(data.dev)} mails that were set aside are right")
        predictions = predictor.predict([TextExample(id=mail, first=mail) for mail in mails])
        for mail, prediction in zip(mails, predictions, strict=True):
            print(f"  {mail:45} {percentages(prediction.line())}")
        labels[name] = [prediction.label for prediction in predictions]
    return labels


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as temporary, quiet():
        main(Path(temporary), options(__doc__).parse_args().model)
