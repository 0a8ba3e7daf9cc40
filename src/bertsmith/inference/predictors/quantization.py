"""The accuracy cost of int8 for a model: scales fixed by calibration, layers kept in higher precision."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from torch import nn

from bertsmith.base.core.errors import CheckpointError, ConfigError, InputError
from bertsmith.base.core.progress import quiet
from bertsmith.base.machine.runtime import choose_inference
from bertsmith.inference.predictors.loading import load_predictor
from bertsmith.inference.predictors.predictor import Predictor
from bertsmith.inference.predictors.request import INT8_LOSS
from bertsmith.models.checkpoints.int8_scales import write_scales
from bertsmith.models.checkpoints.load import load_any
from bertsmith.models.checkpoints.model_folder import ModelFolder
from bertsmith.models.heads.own_head import OwnHead
from bertsmith.models.model_files.metadata import KEPT_NOTE, update_metadata
from bertsmith.models.products.calibration import observe, observed_scales
from bertsmith.models.products.int8_linear import InputScale
from bertsmith.models.products.prepared import require_transformer
from bertsmith.tasks.datasets.examples import Example

Read = TypeVar("Read")

# Examples that fix the scales. With fewer than the least, an input that is rarely large may not have shown its range.
LEAST_CALIBRATION, MOST_CALIBRATION = 32, 256
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
        fixed: whether the scales of the inputs were fixed by calibration; otherwise each token has its own.
        cosine: of a model of vectors, the mean cosine of its vectors to those in fp32.
    """

    kept: tuple[str, ...]
    score: float
    fixed: bool = False
    cosine: float | None = None


@dataclasses.dataclass(frozen=True)
class Calibration:
    """The scales of a model's inputs, measured on examples.

    Attributes:
        scales: by the name of the layer.
        rows: the number of examples.
    """

    scales: Mapping[str, InputScale]
    rows: int


def quantize(
    source: ModelFolder,
    examples: Sequence[Example],
    limit: float = INT8_LOSS,
    head: type[OwnHead] | None = None,
    calibration: Calibration | None = None,
) -> tuple[float, list[Quantization]]:
    """The task's score in fp32, and the int8 trials up to the first that loses at most `limit` of it.

    With a calibration, the trials of the fastest kind come first: with its scales, while nothing or only the layer that
    loses most is kept.

    Args:
        source: a fine-tuned model.
        examples: examples with gold labels that the model was not trained on.
        limit: the fraction of the fp32 score that may be lost.
        head: as in `load_predictor`.
        calibration: from `calibrate`; None for one scale per token in all trials.
    """
    require_int8()
    exact = _score(load_predictor(source, device="cpu", precision="fp32", head=head), examples)

    def measure(kept: tuple[str, ...], scales: Mapping[str, InputScale] | None) -> Quantization:
        predictor = load_predictor(source, device="cpu", precision="int8", kept=kept, scales=scales, head=head)
        return Quantization(kept=kept, score=_score(predictor, examples), fixed=scales is not None)

    return exact, trials_within(limit, exact, measure, calibration)


def require_int8() -> None:
    """Checks that this machine computes int8."""
    runtime = choose_inference("cpu", "int8")
    if runtime.precision != "int8":
        raise ConfigError(
            expected="a processor, and a version of torch, that support int8",
            found=runtime.note,
            fix="quantize on another machine",
        )


def trials_within(
    limit: float,
    exact: float,
    measure: Callable[[tuple[str, ...], Mapping[str, InputScale] | None], Quantization],
    calibration: Calibration | None,
) -> list[Quantization]:
    """The int8 trials up to the first that loses at most `limit` of the score in fp32; see `quantize`.

    Args:
        exact: the score in fp32.
        measure: the trial with some layers kept in higher precision, and with fixed scales or None.
    """
    steps: list[tuple[tuple[str, ...], Mapping[str, InputScale] | None]] = [(kept, None) for kept in LADDER]
    if calibration is not None:
        steps = [*((kept, calibration.scales) for kept in LADDER[:2]), *steps]
    trials: list[Quantization] = []
    for kept, scales in steps:
        trials.append(measure(kept, scales))
        if trials[-1].score >= exact - limit * abs(exact):
            return trials
    best = max(trials, key=lambda trial: trial.score)
    raise CheckpointError(
        expected=f"an int8 model that loses at most {limit:.2%} of {exact:.4f}",
        found=f"{best.score:.4f} with {', '.join(best.kept) or 'nothing'} kept in higher precision",
        fix="use --precision bf16 or fp32, or allow more with --limit",
    )


def calibrate(source: ModelFolder, examples: Sequence[Example], head: type[OwnHead] | None = None) -> Calibration:
    """The scales of a model's inputs, measured on the first `MOST_CALIBRATION` examples."""
    # First, so that a model that cannot be loaded is refused without a word on the examples.
    with quiet():  # the user did not ask for plain products
        predictor = load_predictor(source, device="cpu", precision="fp32", products="plain", head=head)
    return calibrated(predictor.model, predictor.predict, examples)


def calibrated(model: nn.Module, read: Callable[[Sequence[Read]], object], texts: Sequence[Read]) -> Calibration:
    """The scales of the inputs of a model in fp32 while it reads its first `MOST_CALIBRATION` texts or examples.

    Args:
        model: contains the encoder, whose layers are replaced.
        read: has the model read texts or examples.
    """
    require_transformer(model)
    if len(texts) < LEAST_CALIBRATION:
        raise InputError(
            expected=f"at least {LEAST_CALIBRATION} examples to fix the scales of int8",
            found=str(len(texts)),
            fix="name a file with more examples",
        )
    observe(model)
    chosen = texts[:MOST_CALIBRATION]
    read(chosen)
    return Calibration(observed_scales(model), len(chosen))


def note_kept_layers(
    folder: Path,
    metric: str,
    exact: float,
    trials: Sequence[Quantization],
    calibration: Calibration | None = None,
) -> None:
    """Writes the last trial and the measured scores into the metadata of a model folder, and its scales next to it.

    Args:
        calibration: of the trials with fixed scales.
    """
    note = {
        "kept": list(trials[-1].kept),
        "weight_bits": choose_inference("cpu", "int8").int8_bits,
        "metric": metric,
        "fp32": exact,
        "trials": [
            {name: value for name, value in dataclasses.asdict(trial).items() if value is not None} for trial in trials
        ],
    }
    if trials[-1].fixed:
        assert calibration is not None
        note["scales"] = write_scales(load_any(folder), calibration.scales, calibration.rows)
    update_metadata(folder, {KEPT_NOTE: note})


def _score(predictor: Predictor, examples: Sequence[Example]) -> float:
    scores, _ = predictor.evaluate(examples)
    return float(scores[predictor.task.selection_metric])
