"""BERT from raw text to a pre-trained model.

Importing the package loads nothing heavy; the names of `_LAZY` import their room when they are first used. The other
rooms (`bertsmith.text`, `bertsmith.corpus`, `bertsmith.model`, ...) are imported by name. What is public is listed in
docs/library.md and held by a test.
"""

import importlib
from typing import TYPE_CHECKING, Any

from bertsmith.errors import (
    BertsmithError,
    CheckpointError,
    ConfigError,
    CorpusError,
    CutWarning,
    InputError,
    RunError,
    TrainingError,
    VocabularyError,
)

if TYPE_CHECKING:
    from bertsmith.library import Model, WordEncoder, finetune, load, pretrain
    from bertsmith.library.estimators import BertsmithClassifier, BertsmithVectorizer
    from bertsmith.model.heads import OwnHead

__version__ = "0.1.0"

_LAZY = {
    "BertsmithClassifier": "bertsmith.library.estimators",
    "BertsmithVectorizer": "bertsmith.library.estimators",
    "Model": "bertsmith.library",
    "OwnHead": "bertsmith.model.heads",
    "WordEncoder": "bertsmith.library",
    "finetune": "bertsmith.library",
    "load": "bertsmith.library",
    "pretrain": "bertsmith.library",
}

__all__ = [
    "BertsmithClassifier",
    "BertsmithError",
    "BertsmithVectorizer",
    "CheckpointError",
    "ConfigError",
    "CorpusError",
    "CutWarning",
    "InputError",
    "Model",
    "OwnHead",
    "RunError",
    "TrainingError",
    "VocabularyError",
    "WordEncoder",
    "__version__",
    "finetune",
    "load",
    "pretrain",
]


def __getattr__(name: str) -> Any:
    """A name of the library, whose room is imported at its first use."""
    if name not in _LAZY:
        raise AttributeError(f"module 'bertsmith' has no attribute {name!r}")
    value = globals()[name] = getattr(importlib.import_module(_LAZY[name]), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
