"""What int8 costs a fine-tuned model, measured on labelled examples, and which layers must stay higher for it."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path

from bertsmith.checkpoints.metadata import KEPT_NOTE, METADATA
from bertsmith.checkpoints.model_folder import ModelFolder
from bertsmith.datasets.examples import Example
from bertsmith.errors import CheckpointError, ConfigError
from bertsmith.files import read_json, write_json
from bertsmith.inference.predictor import Predictor
from bertsmith.model.heads import OwnHead
from bertsmith.runtime import choose_inference

LIMIT = 0.004  # share of the score that int8 may cost
# From none to nearly all: the products whose inputs spread widest are given back first.
LADDER = (
    (),
    ("output",),
    ("output", "attention_output"),
    ("output", "attention_output", "intermediate"),
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Quantization:
    """A trial of int8.

    Attributes:
        kept: the linear layers that stay in the type of the activations.
        score: of the task's metric, from 0 to 1 (to 100 for questions).
    """

    kept: tuple[str, ...]
    score: float


def quantize(
    source: ModelFolder,
    examples: Sequence[Example],
    limit: float = LIMIT,
    head: type[OwnHead] | None = None,
) -> tuple[float, list[Quantization]]:
    """The task's score in fp32, and the trials of int8 up to the first that loses at most `limit` of it.

    Args:
        source: a fine-tuned model.
        examples: with gold labels; not those that it was trained on.
        limit: the share of the fp32 score that may be lost.
        head: as of `Predictor.load`.

    Raises:
        ConfigError: this machine does not compute int8.
        CheckpointError: no trial kept the score; the message has the best one.
        InputError: a label is missing or unknown.
    """
    runtime = choose_inference("cpu", "int8")
    if runtime.precision != "int8":
        raise ConfigError(expected="a processor that multiplies int8", found="none", fix="quantize on another machine")
    exact = _score(Predictor.load(source, device="cpu", precision="fp32", head=head), examples)
    trials: list[Quantization] = []
    for kept in LADDER:
        predictor = Predictor.load(source, device="cpu", precision="int8", kept=kept, head=head)
        trials.append(Quantization(kept=kept, score=_score(predictor, examples)))
        if trials[-1].score >= exact - limit * abs(exact):
            return exact, trials
    best = max(trials, key=lambda trial: trial.score)
    raise CheckpointError(
        expected=f"an int8 model that loses at most {limit:.2%} of {exact:.4f}",
        found=f"{best.score:.4f} with {', '.join(best.kept) or 'nothing'} kept higher",
        fix="use --precision bf16 or fp32, or allow more with --limit",
    )


def require_metadata(folder: Path) -> None:
    """Returns if there is metadata to write into.

    Raises:
        CheckpointError: there is none.
    """
    if not (folder / METADATA).is_file():
        raise CheckpointError(
            expected=f"a model folder of bertsmith in '{folder}'",
            found=f"no {METADATA}",
            fix="write one with `bertsmith convert --to huggingface`",
        )


def note_kept_layers(folder: Path, metric: str, exact: float, trials: Sequence[Quantization]) -> None:
    """Writes the last trial into the metadata of a model folder, with what was measured.

    Raises:
        CheckpointError: the folder has no metadata.
    """
    require_metadata(folder)
    note = {
        "kept": list(trials[-1].kept),
        "weight_bits": choose_inference("cpu", "int8").int8_bits,
        "metric": metric,
        "fp32": exact,
        "trials": [dataclasses.asdict(trial) for trial in trials],
    }
    path = folder / METADATA
    write_json(path, read_json(path) | {KEPT_NOTE: note})


def _score(predictor: Predictor, examples: Sequence[Example]) -> float:
    scores, _ = predictor.evaluate(examples)
    return float(scores[predictor.task.selection_metric])
