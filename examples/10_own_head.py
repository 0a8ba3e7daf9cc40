"""A head of your own: two layers with a GELU between them, against the one linear layer that every task comes with.

A subclass of `bertsmith.OwnHead` builds its layers and returns logits; training, saving and prediction are those of any
other head. Both heads learn from half of the mails of `--task spam` and are asked about the other half, three times
with other first values. The linear head is the one of Devlin et al. (2018), section 4.1; RoBERTa's classifier has a
second layer, with tanh.
"""

import csv
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from base_models import base_of_presets, options
from torch import Tensor, nn

import bertsmith


class TwoLayers(bertsmith.OwnHead):
    """A hidden layer as wide as the encoder, GELU, and the layer that gives the logits."""

    def __init__(self, config: Any, outputs: int) -> None:
        super().__init__(config, outputs)
        self.hidden = nn.Linear(config.hidden_size, config.hidden_size)
        self.out = nn.Linear(config.hidden_size, outputs)

    def forward(self, hidden: Tensor) -> Tensor:
        """Logits [R, K] for the pooled [CLS] vectors [R, D], to which the model has applied dropout."""
        return self.out(nn.functional.gelu(self.hidden(hidden)))


HEADS = {"linear": None, "two layers": TwoLayers}


def main(
    folder: Path, model: str | None = None, steps: int = 300, epochs: float = 60, seeds: int = 3
) -> dict[str, list[float]]:
    """Prints the accuracy of both heads, and returns it for each seed."""
    settings = {"recipe": "2018", "epochs": 10.0}  # the recipe of the paper
    if model is None:  # made from the mails; such a small model needs more epochs at a higher learning rate
        model = base_of_presets(("spam",), folder, steps)
        settings |= {"epochs": float(epochs), "dropout": 0.2, "learning_rate": 1e-3, "bias_correction": True}

    _, data = bertsmith.read_task("spam", None, None)
    mails = [("text", "label"), *((mail.first, mail.label) for mail in (*data.train, *data.dev))]
    order = np.random.default_rng(1).permutation(range(1, len(mails))).tolist()
    half = len(order) // 2
    print(f"{half} mails to learn from, {len(order) - half} to ask")
    for name, chosen in (("learn.csv", order[:half]), ("ask.csv", order[half:])):
        with (folder / name).open("w", newline="", encoding="utf-8") as file:
            csv.writer(file).writerows(mails[number] for number in (0, *chosen))

    scores = {}
    for name, head in HEADS.items():
        # The last model is kept, so the mails to ask are not used for any choice.
        result = bertsmith.finetune(
            source=model,
            task="classification",
            train=folder / "learn.csv",
            dev=folder / "ask.csv",
            out=folder / name,
            head=head,
            seeds=seeds,
            keep="last",
            baselines=False,
            batch_size=16,
            max_length=64,
            precision="fp32",
            device="cpu",
            **settings,
        )
        scores[name] = [run.scores["accuracy"] for run in result.runs]
        shown = ", ".join(f"{score:.0%}" for score in scores[name])
        parameters = bertsmith.inspect_model(folder / name).sizes["parameters"]
        print(f"{name:10}  {parameters:7,} parameters  {np.mean(scores[name]):.0%} right ({shown})")
    return scores


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as temporary, bertsmith.quiet():
        main(Path(temporary), options(__doc__).parse_args().model)
