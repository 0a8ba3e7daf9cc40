"""Training of any model: optimizers, schedules, the training loop, run folders, distributed training.

This package knows nothing about BERT or text.
"""

from bertsmith.training.distributed import process_group
from bertsmith.training.loop import TrainResult, WriteModel, train
from bertsmith.training.optimizer import BertAdam, Lamb, Optimizer, parameter_groups
from bertsmith.training.run_folder import RunFolder
from bertsmith.training.schedule import learning_rate
from bertsmith.training.settings import TrainSettings
from bertsmith.training.workload import StepPlan, Workload

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
