"""What dev examples say about a trained model: scores, values that are fitted to them, and whether it collapsed."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from bertsmith.encoding.forward import task_logits
from bertsmith.heads.models import EncoderForTask
from bertsmith.runtime import Rank, Runtime, choose
from bertsmith.tasks.kinds import task_for
from bertsmith.tasks.task import Prediction, TaskSpec

if TYPE_CHECKING:
    from bertsmith.finetuning.training import FinetuningJob

_JUDGED = 200  # training examples that a collapse must show on, where dev examples are few


class Judged(NamedTuple):
    """What dev examples say about a model.

    Attributes:
        spec: the spec of the task, with the values that are fitted to dev examples.
        scores: of the dev examples; empty without any.
        collapsed: whether the model gives the same answer to every example.
        predictions: for the dev examples; None without any.
    """

    spec: TaskSpec
    scores: Mapping[str, float]
    collapsed: bool
    predictions: Sequence[Prediction] | None


def judge(job: "FinetuningJob", model: EncoderForTask, rank: Rank) -> Judged:
    """What the dev examples of a job say about a model; without any, only whether it collapsed.

    Args:
        rank: this process among those that hold the model together.
    """
    model.eval()
    # In fp32, like evaluation and prediction, so that they reproduce what is fitted and reported here.
    exact = choose(job.runtime.device, "fp32")
    if job.dev is None:
        return Judged(job.task.spec, {}, not job.head.is_vector and _is_one_answer(job, model, exact, rank), None)
    logits = task_logits(model, job.dev, exact, job.settings.micro_tokens, rank=rank)
    predictions = job.task.decode(job.data.dev, job.dev, logits, job.tokenizer)
    spec = job.task.tuned(job.data.dev, predictions)
    if spec != job.task.spec:
        predictions = task_for(spec).decode(job.data.dev, job.dev, logits, job.tokenizer)
    predictions = task_for(spec).cross_fitted(job.data.dev, predictions) or predictions
    scores = {name: float(value) for name, value in job.task.score(job.data.dev, predictions).items()}
    collapsed = job.task.is_collapsed(predictions, job.data.dev)
    if collapsed and job.keep == "last":
        # Few dev examples may all deserve the same answer; the training examples hardly do.
        collapsed = _is_one_answer(job, model, exact, rank)
    return Judged(spec, scores, collapsed, predictions)


def _is_one_answer(job: "FinetuningJob", model: EncoderForTask, runtime: Runtime, rank: Rank) -> bool:
    """Whether the model gives the same answer to all of the first training examples."""
    examples = job.data.train[:_JUDGED]
    features = job.task.encode(examples, job.tokenizer)
    logits = task_logits(model, features, runtime, job.settings.micro_tokens, rank=rank)
    return job.task.is_collapsed(job.task.decode(examples, features, logits, job.tokenizer), examples)
