"""The accuracy cost of int8 for a fine-tuned model, and which layers must be kept in higher precision."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path

from bertsmith.checkpoints.metadata import KEPT_NOTE, METADATA
from bertsmith.checkpoints.model_folder import ModelFolder
from bertsmith.datasets.examples import Example
from bertsmith.errors import CheckpointError, ConfigError
from bertsmith.files import read_json, write_json
from bertsmith.inference.loading import load_predictor
from bertsmith.inference.predictor import Predictor
from bertsmith.model.heads import OwnHead
from bertsmith.runtime import choose_inference

LIMIT = 0.004  # fraction of the score that int8 may lose
# From none to nearly all; layers whose inputs have the widest range are kept first.
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
        kept: the linear layers kept in the type of the activations.
        score: the task's metric, from 0 to 1 (to 100 for questions).
    """

    kept: tuple[str, ...]
    score: float


def quantize(
    source: ModelFolder,
    examples: Sequence[Example],
    limit: float = LIMIT,
    head: type[OwnHead] | None = None,
) -> tuple[float, list[Quantization]]:
    """The task's score in fp32, and the int8 trials up to the first that loses at most `limit` of it.

    Args:
        source: a fine-tuned model.
        examples: examples with gold labels that the model was not trained on.
        limit: the fraction of the fp32 score that may be lost.
        head: as in `load_predictor`.

    Raises:
        ConfigError: this machine does not support int8.
        CheckpointError: no trial stays within the limit; the message shows the best one.
        InputError: a label is missing or unknown.
    """
    runtime = choose_inference("cpu", "int8")
    if runtime.precision != "int8":
        raise ConfigError(expected="a processor that supports int8", found="none", fix="quantize on another machine")
    exact = _score(load_predictor(source, device="cpu", precision="fp32", head=head), examples)
    trials: list[Quantization] = []
    for kept in LADDER:
        predictor = load_predictor(source, device="cpu", precision="int8", kept=kept, head=head)
        trials.append(Quantization(kept=kept, score=_score(predictor, examples)))
        if trials[-1].score >= exact - limit * abs(exact):
            return exact, trials
    best = max(trials, key=lambda trial: trial.score)
    raise CheckpointError(
        expected=f"an int8 model that loses at most {limit:.2%} of {exact:.4f}",
        found=f"{best.score:.4f} with {', '.join(best.kept) or 'nothing'} kept in higher precision",
        fix="use --precision bf16 or fp32, or allow more with --limit",
    )


def require_metadata(folder: Path) -> None:
    """Checks that a model folder has metadata to write into.

    Raises:
        CheckpointError: it has none.
    """
    if not (folder / METADATA).is_file():
        raise CheckpointError(
            expected=f"a model folder of bertsmith in '{folder}'",
            found=f"no {METADATA}",
            fix="write one with `bertsmith convert --to huggingface`",
        )


def note_kept_layers(folder: Path, metric: str, exact: float, trials: Sequence[Quantization]) -> None:
    """Writes the last trial and the measured scores into the metadata of a model folder.

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
