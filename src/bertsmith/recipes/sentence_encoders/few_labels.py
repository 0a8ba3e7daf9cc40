"""SetFit: trains a sentence encoder on pairs made from few labels, then a linear layer on its vectors.

::

    RUN/continued/pairs/     the run that trains the vectors: pairs of one label are similar, others are not
    RUN/...                  the run of the layer, on the encoder from there, which stays as it is

Source: Tunstall et al. (2022), "Efficient Few-Shot Learning Without Prompts", section 3.1; R of the paper is 20.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bertsmith.base.core.errors import CheckpointError, ConfigError
from bertsmith.base.core.progress import tell
from bertsmith.base.core.randomness import generator
from bertsmith.base.core.settings import require
from bertsmith.models.checkpoints.model_folder import ModelFolder
from bertsmith.models.checkpoints.sentence_transformers import read_recipe
from bertsmith.recipes.finetuning.job import BaseModel
from bertsmith.recipes.finetuning.recipes import PAIRS_RUN, Situation
from bertsmith.recipes.finetuning.run import finetune
from bertsmith.recipes.finetuning.settings import SETFIT, FinetuningSettings, RecipeSettings
from bertsmith.tasks.datasets.examples import SIMILARITY, Example, TextExample
from bertsmith.tasks.datasets.labels import labels_of
from bertsmith.tasks.specs.task import TaskSpec
from bertsmith.tasks.specs.vector_gold import vector_spec
from bertsmith.tasks.task_data.split import TaskData
from bertsmith.training.loop.run_folder import SETTINGS_FILE

PAIRS_PER_TEXT = 20  # of the same label and of another one, R each
MOST_PAIRS = 20_000
FEW = 100  # labelled texts for a sentence encoder, up to which this is the recipe of a fine-tuning
# Settings of a training that do not change what it learns.
_PLAIN = {"device", "precision", "micro_tokens", "baselines", "seed"} | {
    "log_every",
    "save_every",
    "save_minutes",
    "track",
    "tensorboard",
}
_RATE_TIMES_WIDTH = 0.0154  # peak learning rate times width: 2e-5 for a width of 768
_BATCH = 16


def contrastive_pairs(examples: Sequence[TextExample], seed: int, per_text: int = PAIRS_PER_TEXT) -> list[TextExample]:
    """Scored pairs of labelled texts: each text with `per_text` of its label (1) and as many of others (0).

    With more than `MOST_PAIRS` pairs, each text has fewer. A text whose label no other has gets pairs with others only.
    """
    by_label: dict[str, list[int]] = {}
    for number, example in enumerate(examples):
        by_label.setdefault(labels_of(example)[0], []).append(number)
    if len(by_label) < 2:
        raise ConfigError.needs("the recipe setfit", "texts of several labels", "add texts with other labels")
    require(
        _has_similar_texts(examples),
        expected="a label with two different texts for the recipe setfit",
        found="one text of each label",
        fix="add texts, or use --recipe auto",
    )
    draw, pairs = generator(seed, "contrastive pairs"), list[TextExample]()
    each = max(1, min(per_text, MOST_PAIRS // (2 * len(examples))))
    for number, example in enumerate(examples):
        label = labels_of(example)[0]
        same = [other for other in by_label[label] if examples[other].first != example.first]
        others = [other for name, part in by_label.items() if name != label for other in part]
        for candidates, score in ((same, 1.0), (others, 0.0)):
            for other in draw.choice(candidates, each).tolist() if candidates else ():
                name, location = f"{number}-{len(pairs)}", example.location
                second = examples[other].first
                pairs.append(TextExample(id=name, first=example.first, second=second, label=score, location=location))
    return pairs


def is_default(
    spec: TaskSpec, examples: Sequence[Example], situation: Situation, folder: ModelFolder, options: Mapping[str, Any]
) -> bool:
    """Whether this recipe is the default: few labels for a sentence encoder, and no setting to the contrary."""
    fits = has_single_labels(spec) and situation.examples <= FEW and situation.is_well_trained
    plain = _PLAIN | {"keep"} if options.get("keep") == "auto" else _PLAIN
    if not fits or situation.own_head or situation.reads_windows or not plain.issuperset(options):
        return False
    texts = [example for example in examples if isinstance(example, TextExample)]
    can_pair = len({labels_of(text)[0] for text in texts}) > 1 and _has_similar_texts(texts)
    return can_pair and folder.config.has_attention and _is_encoder_of_means(folder)


def _has_similar_texts(examples: Sequence[TextExample]) -> bool:
    """Whether a label has two different texts, which a pair of similar texts needs."""
    different = {(labels_of(example)[0], example.first) for example in examples}
    return len(different) > len({label for label, _ in different})


def _is_encoder_of_means(folder: ModelFolder) -> bool:
    """Whether the folder is that of a sentence encoder whose vectors are the means over the tokens."""
    try:
        recipe = read_recipe(folder.path)
    except CheckpointError:  # it needs something that is not supported
        return False
    return recipe is not None and recipe.pooling == "mean"


def has_single_labels(spec: TaskSpec) -> bool:
    """Whether the task is a classification of single texts with one label each."""
    return spec.kind == "classification" and not spec.multi_label and spec.pair is False


def require_single_labels(spec: TaskSpec) -> None:
    """Checks that the recipe fits a task."""
    if not has_single_labels(spec):
        needed = f"a classification of single texts with one label each, not {spec.title}"
        raise ConfigError.needs("the recipe setfit", needed, "use another recipe")


def train_on_pairs(
    base: BaseModel,
    spec: TaskSpec,
    examples: Sequence[Example],
    out: Path,
    width: int,
    *,
    settings: Mapping[str, Any],
    seed: int,
    resume: bool,
) -> Path:
    """The model folder RUN/continued/pairs/model, trained on pairs of the examples."""
    texts = [example for example in examples if isinstance(example, TextExample)]
    pairs = contrastive_pairs(texts, seed)
    run = out / PAIRS_RUN
    tell(f"first, the vectors are trained on {len(pairs):,} pairs of {len(texts):,} texts")
    finetune(
        base,
        vector_spec(SIMILARITY, pairs, spec.settings),
        TaskData(train=pairs, dev=()),
        run,
        FinetuningSettings(batch_size=_BATCH, epochs=1.0, vector_loss="cosine", **settings),
        RecipeSettings(
            learning_rate=float(f"{_RATE_TIMES_WIDTH / width:.2g}"),
            schedule="hf_linear",
            bias_correction=True,
            keep="last",
            seed=seed,
        ),
        seeds=1,
        resume=resume and (run / SETTINGS_FILE).exists(),
        recipe_name=SETFIT,
    )
    return run / "model"
