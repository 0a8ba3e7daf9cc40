"""The training steps in the log of a run."""

from pathlib import Path
from typing import Any

import numpy as np

from bertsmith.base.storage.files import read_json_lines


def steps_of(run: Path) -> list[dict[str, Any]]:
    """The lines of the training steps, in order."""
    return [line for line in read_json_lines(run / "metrics.jsonl") if line["kind"] == "train"]


def losses_of(run: Path) -> list[float]:
    """The loss of each logged step."""
    return [step["loss"] for step in steps_of(run)]


def assert_learns(run: Path, share: float, steps: int = 4) -> None:
    """The mean loss of the last steps of a run is below a share of that of its first ones."""
    losses = losses_of(run)
    assert np.mean(losses[-steps:]) < share * np.mean(losses[:steps])
