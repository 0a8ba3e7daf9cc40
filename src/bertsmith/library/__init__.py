"""The handful of names for programmers: `load` a model and ask it, `finetune` one, `pretrain` one."""

from bertsmith.library.component import WordEncoder
from bertsmith.library.loading import load
from bertsmith.library.model import Model
from bertsmith.library.training import finetune, pretrain

__all__ = ["Model", "WordEncoder", "finetune", "load", "pretrain"]
