"""BERT from raw text to a pre-trained model.

Importing the package loads nothing heavy; import the room you need (`bertsmith.text`, `bertsmith.corpus`,
`bertsmith.model`, ...). What is public there is listed in docs/library.md and held by a test.
"""

from bertsmith.errors import (
    BertsmithError,
    CheckpointError,
    ConfigError,
    CorpusError,
    InputError,
    RunError,
    TrainingError,
    VocabularyError,
)

__version__ = "0.1.0"

__all__ = [
    "BertsmithError",
    "CheckpointError",
    "ConfigError",
    "CorpusError",
    "InputError",
    "RunError",
    "TrainingError",
    "VocabularyError",
    "__version__",
]
