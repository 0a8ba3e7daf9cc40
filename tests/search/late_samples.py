"""A tiny model of late interaction with random weights."""

from pathlib import Path

import numpy as np

from bertsmith.base.core.randomness import generator
from bertsmith.models.checkpoints.late_interaction import write_late_recipe
from tasks.task_samples import CONFIG, write_base_model

WEIGHT = generator(1, "projection").standard_normal((8, CONFIG.hidden_size)).astype(np.float32)
SKIPPED = (".", "?")


def write_late(path: Path, *, prefixes: tuple[str, str] = ("", ""), marks: bool = False, max_length: int = 32) -> Path:
    """The folder of that model, in the layout of PyLate."""
    write_base_model(path, 4)
    write_late_recipe(path, WEIGHT, prefixes=prefixes, marks=marks, max_length=max_length, skipped=SKIPPED)
    return path
