"""A linear start of two texts: when it favors their similarity, and what it then contains."""

import dataclasses
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch

from bertsmith.base.core.randomness import generator
from bertsmith.models.checkpoints.load import load_any
from bertsmith.models.heads.row_vectors import compared
from bertsmith.recipes.finetuning.job import FinetuningJob
from bertsmith.recipes.finetuning.linear_start import (
    MOST_PROBED,
    LinearStart,
    fitted,
    held_out_losses,
    similarity_directions,
)
from bertsmith.recipes.finetuning.settings import FinetuningSettings, RecipeSettings
from bertsmith.tasks.datasets.examples import Example, TextExample
from bertsmith.tasks.encoding.forward import task_logits
from bertsmith.tasks.encoding.frozen import SharedEncoder
from bertsmith.tasks.encoding.loading import load_frozen_encoder
from bertsmith.tasks.specs.task import TaskSpec
from bertsmith.tasks.task_data.split import TaskData
from tasks.task_samples import BAD, GOOD, PEOPLE, PLACES, SETTINGS
from training.interruptions import assert_resumes

Vectors = npt.NDArray[np.float32]
WIDTH = 24
LIKENESS = TaskSpec(
    kind="regression",
    name="likeness",
    metric="pearson",
    metrics=("pearson",),
    pair=True,
    reads="apart",
    settings=SETTINGS,
)


def pairs(count: int, seed: int = 1) -> tuple[Vectors, Vectors, Vectors]:
    """Vectors of pairs [E, 4D], how similar both are by the sum of centered products, and a part of the first, [E]."""
    draw = generator(seed, "pairs")
    first = draw.normal(size=(count, WIDTH)) + 3.0
    nearness = draw.uniform(0, 1, (count, 1))
    second = 3.0 + nearness * (first - 3.0) + (1 - nearness) * draw.normal(size=(count, WIDTH))
    both = torch.from_numpy(np.stack([first, second], axis=1).astype(np.float32))
    similar = ((first - 3.0) * (second - 3.0)).sum(axis=1)
    return compared(both).numpy(), similar.astype(np.float32), first[:, 0].astype(np.float32)


def examples(count: int, seed: int = 1) -> list[Example]:
    """Pairs of texts of six words, with the number of words that both have in common."""
    draw, words = generator(seed, "likeness"), [*GOOD, *BAD, *PEOPLE, *PLACES]
    examples: list[Example] = []
    for number in range(count):
        same, chosen = int(draw.integers(0, 7)), draw.permutation(words)[:12].tolist()
        first, second = chosen[:6], [*chosen[:same], *chosen[6 : 12 - same]]
        location = f"line {number + 1}"
        examples.append(
            TextExample(
                id=str(number), first=" ".join(first), second=" ".join(second), label=float(same), location=location
            )
        )
    return examples


def likeness(base: str, count: int = 60) -> FinetuningJob:
    settings = FinetuningSettings(start="linear", reads="apart", precision="fp32", batch_size=8, epochs=0.5)
    data = TaskData(train=examples(count), dev=examples(20, seed=2))
    return FinetuningJob.prepare(base, LIKENESS, data, settings, RecipeSettings())


def test_the_directions_give_similarities_of_both_texts() -> None:
    vectors, _, _ = pairs(50)
    first, second = (vectors[:, part * WIDTH : (part + 1) * WIDTH].astype(np.float64) for part in (0, 1))
    both = np.concatenate([first, second])
    mean, spread = both.mean(axis=0), both.std(axis=0)
    away, other, apart = first - mean, second - mean, np.abs(first - second)
    projected = vectors.astype(np.float64) @ similarity_directions(vectors).T
    wanted = [away * other, away * other / spread**2, -apart, -apart / spread]
    for column, sums in enumerate(wanted):
        expected = sums.sum(axis=1)
        constant = projected[:, column] - expected  # which the bias takes up
        np.testing.assert_allclose(constant, constant.mean(), atol=1e-3 * np.abs(expected).max())


def test_directions_of_numbers_that_do_not_differ_are_finite() -> None:
    vectors, _, _ = pairs(10)
    for constant in (0.0, 2.0):
        still = vectors.reshape(10, 4, WIDTH).copy()
        still[:, :2, 0], still[:, 2, 0], still[:, 3, 0] = constant, 0, constant**2
        assert np.isfinite(similarity_directions(still.reshape(10, -1))).all()
    assert np.isfinite(similarity_directions(np.zeros((4, 8), dtype=np.float32))).all()


def test_the_strictest_model_that_favors_similarity_is_a_model_of_the_similarities_alone() -> None:
    vectors, similar, _ = pairs(200)
    strict = fitted(vectors, similar, 1, 1, favors=True, penalty=1e6)
    sums = vectors.astype(np.float64) @ similarity_directions(vectors).T.astype(np.float64)
    sums = (sums - sums.mean(axis=0)) / sums.std(axis=0)
    level = similar.mean()
    weights = np.linalg.solve(sums.T @ sums + 100.0 * np.eye(4), sums.T @ (similar - level))  # 1e6 / 10,000
    np.testing.assert_allclose(strict.outputs(vectors)[:, 0], sums @ weights + level, atol=0.05 * similar.std())


def test_few_labels_of_similar_texts_are_predicted_better() -> None:
    for targets in (lambda similar: similar, lambda similar: (similar > np.median(similar)).astype(np.int64)):
        (vectors, similar, _), (unseen, wanted, _) = pairs(40), pairs(300, seed=2)
        outputs = 1 if targets(similar).dtype == np.float32 else 2
        plain, favoring = (
            fitted(vectors, targets(similar), outputs, 1, favors=favors).outputs(unseen)[:, -1]
            for favors in (False, True)
        )
        assert np.corrcoef(favoring, wanted)[0, 1] > np.corrcoef(plain, wanted)[0, 1] + 0.05


def test_the_start_favors_similarity_unless_held_out_folds_speak_against_it(base: str) -> None:
    start = LinearStart(SharedEncoder(folder=load_any(base), device="cpu"), likeness(base).train, 1)
    vectors, similar, other = pairs(60)
    chosen = []
    for targets in (similar, other, generator(3, "no reason").normal(size=60).astype(np.float32)):
        plain, favoring = (held_out_losses(vectors, targets, 1, 1, favors=favors) for favors in (False, True))
        losses, favors = start._better(vectors, targets, "apart", 1)
        np.testing.assert_array_equal(losses, favoring if favors else plain)
        error = (favoring - plain).std() / np.sqrt(60)
        assert losses.mean() <= plain.mean() + error  # never clearly worse than the model that favors nothing
        chosen.append(favors)
        assert favors == start._favors_similarity(vectors, targets, "apart", 1)
        assert not start._better(vectors, targets, "mean", 1)[1]
        assert not start._favors_similarity(vectors[:5], targets[:5], "apart", 1)  # too few to compare
    assert chosen[:2] == [True, False]
    assert len(vectors) < MOST_PROBED


def test_before_the_first_step_the_layer_is_the_model_that_favors_similarity(base: str, tmp_path: Path) -> None:
    job = likeness(base)
    frozen = load_frozen_encoder(base, device="cpu")
    vectors = frozen.row_vectors(job.train.rows, frozen.choice("last"), "apart")
    start = LinearStart(job.frozen, job.train, 1)
    assert start._favors_similarity(vectors, job.train.targets, "apart", 1)
    expected = fitted(vectors, job.train.targets, 1, 1, favors=True, least_spread=0.1)
    np.testing.assert_array_equal(job.linear_start.weight, expected.weight)
    np.testing.assert_array_equal(likeness(base).linear_start.weight, expected.weight)  # every time
    model = job.first_model(seed=1).model.eval()
    job.linear_start.copy_to(model.output_layer)
    of_dev = frozen.row_vectors(job.dev.rows, frozen.choice("last"), "apart")
    np.testing.assert_allclose(task_logits(model, job.dev, job.runtime), expected.outputs(of_dev), rtol=1e-4, atol=1e-4)


def test_a_killed_training_from_similarity_resumes_to_the_same_bytes(base: str, tmp_path: Path) -> None:
    recipe = RecipeSettings(learning_rate=1e-3, save_every=3)
    job = likeness(base).with_settings(dataclasses.replace(likeness(base).settings, epochs=2.0), recipe)
    again = likeness(base).with_settings(job.settings, recipe)  # another process would fit it again
    assert_resumes(job, tmp_path, again)


def test_the_head_reads_texts_apart_unless_another_model_is_clearly_better(base: str) -> None:
    class Told(LinearStart):
        """Vectors of which those of texts apart hold their similarity, and the [CLS] the targets and noise."""

        noise, targets = 0.0, np.zeros(0, dtype=np.float32)

        def _vectors(self, units, reads):
            draw = generator(4, reads)
            if reads == "apart":
                return pairs(len(self.features))[0][units]
            columns = draw.normal(size=(len(units), 4)).astype(np.float32)
            if reads == "cls":
                columns[:, 0] = self.targets[units] + self.noise * draw.normal(size=len(units))
            return columns

    features = likeness(base).train
    similar = pairs(len(features))[1]
    similar = (similar - similar.mean()) / similar.std()
    told = Told(SharedEncoder(folder=load_any(base), device="cpu"), dataclasses.replace(features, targets=similar), 1)
    told.targets = similar
    choices = []
    for told.noise in (0.0, 2.0):
        choices.append(told.best_reads())
    assert choices == ["cls", "apart"]
