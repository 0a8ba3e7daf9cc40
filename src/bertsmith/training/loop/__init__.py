"""Training of any model: optimizers, schedules, the training loop, run folders, distributed training.

This package knows nothing about BERT or text. Importing it loads nothing heavy: the names in `_LAZY` import their
modules on first use, so the settings can be read, for instance for the help of a command, without torch.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bertsmith.base.processes.distributed import process_group
    from bertsmith.training.loop.loop import TrainResult, WriteModel, train
    from bertsmith.training.loop.optimizer import BertAdam, Lamb, Optimizer, parameter_groups
    from bertsmith.training.loop.run_folder import RunFolder
    from bertsmith.training.loop.schedule import learning_rate
    from bertsmith.training.loop.settings import TrainSettings
    from bertsmith.training.loop.workload import StepPlan, Workload

_LAZY = {
    "BertAdam": "bertsmith.training.loop.optimizer",
    "Lamb": "bertsmith.training.loop.optimizer",
    "Optimizer": "bertsmith.training.loop.optimizer",
    "RunFolder": "bertsmith.training.loop.run_folder",
    "StepPlan": "bertsmith.training.loop.workload",
    "TrainResult": "bertsmith.training.loop.loop",
    "TrainSettings": "bertsmith.training.loop.settings",
    "Workload": "bertsmith.training.loop.workload",
    "WriteModel": "bertsmith.training.loop.loop",
    "learning_rate": "bertsmith.training.loop.schedule",
    "parameter_groups": "bertsmith.training.loop.optimizer",
    "process_group": "bertsmith.base.processes.distributed",
    "train": "bertsmith.training.loop.loop",
}

__all__ = [
    "BertAdam",
    "Lamb",
    "Optimizer",
    "RunFolder",
    "StepPlan",
    "TrainResult",
    "TrainSettings",
    "Workload",
    "WriteModel",
    "learning_rate",
    "parameter_groups",
    "process_group",
    "train",
]


def __getattr__(name: str) -> Any:
    """The object `name`; its module is imported on first use."""
    if name not in _LAZY:
        raise AttributeError(f"module 'bertsmith.training.loop' has no attribute {name!r}")
    value = globals()[name] = getattr(importlib.import_module(_LAZY[name]), name)
    return value
