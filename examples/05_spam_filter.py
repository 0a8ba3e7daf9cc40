"""A spam filter learned from 72 mails, which gives the probability that a new mail is spam; then with four labels.

A linear layer with one row per label is added on top of the pooled [CLS] vector; a softmax turns its outputs into
probabilities, and all parameters are trained. More labels mean more rows; nothing else changes. The training mails come
with the package (`--task spam` and `--task spam4` on the command line). Source: Devlin et al. (2018), section 4.1.
"""

import tempfile
from pathlib import Path

from base_models import base_of_presets, options

from bertsmith import finetune, load, quiet

MAILS = ("Buy these pills", "Win cash prizes", "Dear Mr. Atreides, please find attached...")
MORE_MAILS = ("Paul Atreides commented on your photo", "Spring sale: members save 20% on all shoes")


def percentages(line: str) -> str:
    """The probabilities in an output line of the predictor, as `75% Spam / 25% Not Spam`."""
    return line.split("\t")[1].replace(", ", " / ")


def main(folder: Path, model: str | None = None, steps: int = 300, epochs: float = 60) -> dict[str, list[str]]:
    """Prints the answers and returns the label of each mail, for each of the two filters."""
    settings = {"recipe": "2018", "epochs": 10.0}  # the recipe of the paper
    if model is None:  # made from the mails; such a small model needs more epochs at a higher learning rate
        model = base_of_presets(("spam", "spam4"), folder, steps)
        settings |= {"epochs": float(epochs), "dropout": 0.2, "learning_rate": 1e-3, "bias_correction": True}

    labels = {}
    for name, mails in (("spam", MAILS), ("spam4", (*MAILS, *MORE_MAILS))):
        # The last model is kept: the mails that are set aside are not used for any choice, so their score is unbiased.
        result = finetune(
            source=model,
            task=name,
            out=folder / name,
            seeds=1,
            keep="last",
            baselines=False,
            batch_size=16,
            max_length=64,
            precision="fp32",
            device="cpu",
            **settings,
        )
        report = result.report
        print(f"{name}: {report['train_examples']} mails to learn from, {len(result.spec.labels)} labels")
        accuracy = result.runs[0].scores["accuracy"]
        print(f"{accuracy:.0%} of the {report['dev_examples']} mails that were set aside are right")
        predictions = load(folder / name).classify(mails)
        for mail, prediction in zip(mails, predictions, strict=True):
            print(f"  {mail:45} {percentages(prediction.line())}")
        labels[name] = [prediction.label for prediction in predictions]
    return labels


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as temporary, quiet():
        main(Path(temporary), options(__doc__).parse_args().model)
