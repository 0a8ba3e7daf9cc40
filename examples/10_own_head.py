"""A head of your own: two layers with a GELU between them, against the one linear layer that every task comes with.

A subclass of `bertsmith.OwnHead` builds its layers and returns logits; training, saving and prediction are those of any
other head. Both heads learn from half of the mails of `--task spam` and are asked about the other half, three times
with other first values. The linear head is the one of Devlin et al. (2018), section 4.1; RoBERTa's classifier has a
second layer, with tanh.
"""

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from base_models import base_of_presets, options
from torch import Tensor, nn

import bertsmith
from bertsmith.inference.predictors.loading import load_predictor
from bertsmith.recipes.finetuning.job import FinetuningJob
from bertsmith.recipes.finetuning.settings import FinetuningSettings, RecipeSettings
from bertsmith.tasks.specs.task import TaskSettings
from bertsmith.tasks.task_data.split import TaskData, split_dev


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
    settings = FinetuningSettings(epochs=10, batch_size=16, precision="fp32")
    recipe = RecipeSettings()  # that of the paper
    if model is None:  # made of the mails themselves; so small a model wants more epochs, at a higher rate
        model = base_of_presets(("spam",), folder, steps)
        settings = FinetuningSettings(epochs=epochs, batch_size=16, dropout=0.2, precision="fp32", device="cpu")
        recipe = RecipeSettings(learning_rate=1e-3, bias_correction=True)

    spec, data = bertsmith.read_task("spam", None, None, settings=TaskSettings(max_length=64))
    learned, asked = split_dev([*data.train, *data.dev], 1, 0.5)
    print(f"{len(learned)} mails to learn from, {len(asked)} to ask")
    scores: dict[str, list[float]] = {}
    for name, head in HEADS.items():
        job = FinetuningJob.prepare(model, spec, TaskData(train=learned, dev=()), settings, recipe, head)
        for seed in range(1, seeds + 1):
            job.train_once(folder / f"{name}-{seed}", seed)
            predictor = load_predictor(folder / f"{name}-{seed}", head=head)
            scores.setdefault(name, []).append(predictor.evaluate(asked)[0]["accuracy"])
        parameters = sum(parameter.numel() for parameter in predictor.model.output_layer.parameters())
        shown = ", ".join(f"{score:.0%}" for score in scores[name])
        print(f"{name:10}  {parameters:6,} parameters  {np.mean(scores[name]):.0%} right ({shown})")
    return scores


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as temporary, bertsmith.quiet():
        main(Path(temporary), options(__doc__).parse_args().model)
