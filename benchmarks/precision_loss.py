"""Cost of lower precision: the official metric of fine-tuned models in fp32, bf16 and int8.

    python benchmarks/precision_loss.py --pair MODEL DEV [--pair MODEL DEV ...] [--calibrate-on FILE ...]

MODEL is a fine-tuned model folder, DEV a labelled file of its task; line 5 of README.md uses SST-2, MRPC, STS-B and
SQuAD. The loss is the difference from the metric in fp32, absolute and in percent. `int8` has one scale per token;
`int8-fixed` has scales fixed on the first examples of a file of the same task, such as the training file, with
--calibrate-on once for every pair. A precision that this processor does not support is left out; the result says why.
"""

import argparse
import itertools
import statistics
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from harness import machine, machine_label, write_result

from bertsmith.base.core.errors import ConfigError
from bertsmith.base.core.progress import quiet
from bertsmith.inference.predictors.loading import load_predictor
from bertsmith.inference.predictors.quantization import calibrate
from bertsmith.models.checkpoints.load import load_any
from bertsmith.models.products.int8_linear import InputScale
from bertsmith.tasks.datasets.examples import Example
from bertsmith.tasks.task_data.spec_of_model import spec_of
from bertsmith.tasks.task_data.task_files import read_examples

FIXED = "int8-fixed"
PRECISIONS = ("fp32", "bf16", "int8", FIXED)


def scored(
    folder: Path, examples: list[Example], precision: str, scales: Mapping[str, InputScale] | None
) -> dict[str, Any]:
    """The scores in one precision, the seconds and the precision that ran; or the reason why there are none.

    Args:
        scales: of `int8-fixed`; None if they were not calibrated.
    """
    wanted, fixed_scales = precision.removesuffix("-fixed"), scales if precision == FIXED else None
    if precision == FIXED and scales is None:
        return {"left_out": "no file to calibrate on"}
    try:
        predictor = load_predictor(folder, device="cpu", precision=wanted, kept=(), scales=fixed_scales)
    except ConfigError as error:
        return {"left_out": str(error)}
    if predictor.runtime.precision != wanted:
        return {"left_out": predictor.runtime.note}
    start = time.perf_counter()
    scores, _ = predictor.evaluate(examples)
    return {"scores": scores, "seconds": round(time.perf_counter() - start, 1)}


def compared(folder: Path, path: Path, calibration: Path | None, options: argparse.Namespace) -> dict[str, Any]:
    """The results of one model on its file in every precision, with scales fixed on another file."""
    spec = spec_of(load_any(folder))
    if spec is None:
        raise SystemExit(f"{folder}: expected a model with a task head, as written by bertsmith finetune")
    name = options.task or spec.name
    examples, scales = list(read_examples(name, path).examples)[: options.limit], None
    result: dict[str, Any] = {"task": spec.name, "metric": spec.metric, "file": path.name, "examples": len(examples)}
    if calibration is not None:
        fixed = calibrate(load_any(folder), read_examples(name, calibration).examples)
        result["calibrated_on"], scales = f"{fixed.rows} rows of {calibration.name}", fixed.scales
    result["precisions"] = runs = {}
    for precision in options.precisions.split(","):
        runs[precision] = run = scored(folder, examples, precision, scales)
        if "scores" in run and "scores" in runs.get("fp32", {}):
            full = runs["fp32"]["scores"][spec.metric]
            lost = full - run["scores"][spec.metric]
            run["loss"] = round(lost, 5)
            run["loss_percent"] = round(100 * lost / abs(full), 3) if full else None
        print(f"{spec.name} ({folder.name}), {precision}: {run}", flush=True)
    return result


def main() -> None:
    """Scores every pair, prints the mean loss and writes the result."""
    options = _options()
    described = machine()
    with quiet():
        files = itertools.zip_longest(options.pair, options.calibrate_on or ())
        pairs = [compared(Path(folder), Path(path), file, options) for (folder, path), file in files]
    means = {}
    for precision in options.precisions.split(","):
        losses = [pair["precisions"][precision].get("loss_percent") for pair in pairs]
        known = [loss for loss in losses if loss is not None]
        if known:
            means[precision] = {"mean": round(statistics.mean(known), 3), "highest": max(known)}
    print(f"loss in percent of fp32: {means}")
    name = options.out or f"precision_loss_{machine_label(described)}_torch-{torch.__version__.split('+')[0]}"
    write_result(name, {"machine": described, "loss_percent": means, "models": pairs})


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pair", nargs=2, action="append", required=True, metavar=("MODEL", "DEV"))
    parser.add_argument("--calibrate-on", action="append", type=Path, metavar="FILE", help="of the pair in its place")
    parser.add_argument("--task", help="name of the task, for models from other tools")
    parser.add_argument("--precisions", default=",".join(PRECISIONS))
    parser.add_argument("--limit", type=int, help="score the first N examples [all]")
    parser.add_argument("--out", help="name of the result file")
    return parser.parse_args()


if __name__ == "__main__":
    main()
