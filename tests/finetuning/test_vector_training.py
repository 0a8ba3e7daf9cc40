"""Losses of vectors against plain loops and sentence-transformers, and gradients of large batches in small memory."""

import dataclasses

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from bertsmith.datasets.examples import TextExample, TripletExample
from bertsmith.encoding.units import micro_batches
from bertsmith.errors import BertsmithError, ConfigError, InputError
from bertsmith.finetuning.settings import FinetuningSettings, RecipeSettings
from bertsmith.finetuning.training import FinetuningJob
from bertsmith.finetuning.vector_workload import VectorTraining
from bertsmith.heads.models import EncoderForTask
from bertsmith.heads.vector_losses import VectorLoss
from bertsmith.runtime import choose
from bertsmith.tasks.data import TaskData
from bertsmith.tasks.kinds import task_for
from bertsmith.tasks.similarity import vector_spec
from bertsmith.tasks.task import TaskSpec
from bertsmith.training.workload import StepPlan
from encoders.test_bert import new_encoder
from tasks.task_samples import CONFIG, SETTINGS, TOKENIZER, examples_of, write_base_model
