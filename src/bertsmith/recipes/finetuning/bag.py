"""The bag of words of a job: a linear model on words and runs of letters, fitted to its training examples in seconds.

It is a baseline, and with `keep` auto or bag it may be the model that is kept: judged by the same dev examples, with
thresholds and a temperature fitted to them like those of any other model, and written as a model folder.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import numpy.typing as npt

from bertsmith.base.core.randomness import generator
from bertsmith.models.model_files.metadata import NGRAM_TERMS, ModelMetadata
from bertsmith.recipes.results.finished_run import SeedResult
from bertsmith.tasks.baselines.bag_of_words import words_read
from bertsmith.tasks.baselines.n_grams import NGramModel
from bertsmith.tasks.datasets.examples import TextExample
from bertsmith.tasks.encoding.units import Ints
from bertsmith.tasks.specs.task import BAG

if TYPE_CHECKING:
    from bertsmith.recipes.finetuning.job import FinetuningJob, Judged
    from bertsmith.tasks.baselines.word_model import WordModel

MOST_EXAMPLES = 5_000  # training examples of a system; of more, a random sample
MOST_WORDS_OF_BAG = 500_000  # a bag of words may have more examples, as counting and fitting them is fast


def has_bag(job: "FinetuningJob") -> bool:
    """Whether the task of a job is one of a bag of words."""
    return BAG in job.task.baselines


def bag_of(job: "FinetuningJob") -> tuple[NGramModel, int]:
    """The bag of words of the training examples of a job, and the number of those that it is fitted to."""
    examples = cast("Sequence[TextExample]", job.data.train)
    chosen = sample_of(job)
    if len(chosen) < len(examples):
        words = [words_read(text, job.task.spec.settings) for text in examples]
        more = up_to(MOST_WORDS_OF_BAG, words, "examples of a bag of words", job.training.seed)
        chosen = max(chosen, more, key=len)
    targets = job.train.targets
    assert targets is not None, "training examples have gold"
    texts = [examples[number] for number in chosen.tolist()]
    weights = _weights(job, targets, chosen)
    model = NGramModel.fitted(job.task.spec, texts, targets[chosen], seed=job.training.seed, weights=weights)
    return model, len(chosen)


def saved_bag(job: "FinetuningJob", folder: Path) -> NGramModel:
    """The bag of words that the baselines of a run left in its folder, or a new one if there is none."""
    return NGramModel.read(folder) if (folder / NGRAM_TERMS).is_file() else bag_of(job)[0]


def judged_bag(job: "FinetuningJob", model: NGramModel) -> "Judged":
    """What the dev examples say about a bag of words; its spec has the values that are fitted to them."""

    def is_one_answer() -> bool:
        examples = job.first_examples
        return job.task.is_collapsed(model.predict(examples), examples)

    return job.judged(lambda task: model.of_task(task.spec).predict(job.data.dev), is_one_answer)


def metadata_of_words(
    job: "FinetuningJob",
    model: "NGramModel | WordModel",
    scores: Mapping[str, float],
    examples: int | None = None,
    *,
    origin: Mapping[str, Any] | None = None,
    baseline: Mapping[str, Any] | None = None,
) -> ModelMetadata:
    """The metadata of a model on words that was fitted to training examples of a job.

    Args:
        scores: on the dev examples.
        examples: how many training examples it was fitted to; by default those of the job.
        origin, baseline: as in `FinetuningJob.write_model`.
    """
    return ModelMetadata(
        task=model.spec.kind,
        labels=model.spec.labels,
        spec=model.spec.to_dict(),
        trained_on=job.data.digests,
        training={
            "examples": len(job.data.train) if examples is None else examples,
            "dev_examples": len(job.data.dev),
            "seed": job.training.seed,
            **(origin or {}),
        },
        scores=dict(scores),
        baseline=baseline,
    )


def result_of_bag(job: "FinetuningJob") -> SeedResult:
    """The cost of a bag of words, which reads no tokens and takes no steps."""
    return SeedResult(seed=job.training.seed, scores={}, collapsed=False, best_step=0, steps=0, seconds=0.0, tokens=0)


def sample_of(job: "FinetuningJob") -> Ints:
    """The numbers of at most `MOST_EXAMPLES` training examples, ascending."""
    count = len(job.data.train)
    if count <= MOST_EXAMPLES:
        return np.arange(count)
    drawn = generator(job.training.seed, "examples of cheap systems").choice(count, MOST_EXAMPLES, replace=False)
    return np.sort(drawn)


def up_to(most: int, words: Sequence[int], name: str, seed: int) -> Ints:
    """The numbers of random training examples, ascending: all with at most `most` words in all, at least one.

    Args:
        words: of each example.
        name: of the draw.
    """
    order = generator(seed, name).permutation(len(words))
    count = int(np.searchsorted(np.cumsum(np.asarray(words)[order]), most, side="right"))
    return np.sort(order[: max(1, count)])


def _weights(job: "FinetuningJob", targets: npt.NDArray[np.generic], chosen: Ints) -> npt.NDArray[np.float32] | None:
    """The weights of examples in the loss, with mean 1: their own, times those of their labels; None for equal ones."""
    of_labels = getattr(job.task, "class_weights", None)
    weights = None if job.train.weights is None else job.train.weights[chosen]
    if of_labels is not None and targets.ndim == 1:
        of_examples = of_labels[targets[chosen].astype(np.int64)]
        weights = of_examples if weights is None else weights * of_examples
    return None if weights is None else (weights / weights.mean()).astype(np.float32)
