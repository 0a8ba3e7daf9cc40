"""Training of any model: optimizers, schedules, the training loop, run folders, distributed training.

This package knows nothing about BERT or text. Importing it loads nothing heavy: the names in `_LAZY` import their
modules on first use, so the settings can be read, for instance for the help of a command, without torch.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bertsmith.processes.distributed import process_group
    from bertsmith.training.loop import TrainResult, WriteModel, train
    from bertsmith.training.optimizer import BertAdam, Lamb, Optimizer, parameter_groups
    from bertsmith.training.run_folder import RunFolder
    from bertsmith.training.schedule import learning_rate
    from bertsmith.training.settings import TrainSettings
    from bertsmith.training.workload import StepPlan, Workload

_LAZY = {
    "BertAdam": "bertsmith.training.optimizer",
    "Lamb": "bertsmith.training.optimizer",
    "Optimizer": "bertsmith.training.optimizer",
    "RunFolder": "bertsmith.training.run_folder",
    "StepPlan": "bertsmith.training.workload",
    "TrainResult": "bertsmith.training.loop",
    "TrainSettings": "bertsmith.training.settings",
    "Workload": "bertsmith.training.workload",
    "WriteModel": "bertsmith.training.loop",
    "learning_rate": "bertsmith.training.schedule",
    "parameter_groups": "bertsmith.training.optimizer",
    "process_group": "bertsmith.processes.distributed",
    "train": "bertsmith.training.loop",
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
        raise AttributeError(f"module 'bertsmith.training' has no attribute {name!r}")
    value = globals()[name] = getattr(importlib.import_module(_LAZY[name]), name)
    return value
