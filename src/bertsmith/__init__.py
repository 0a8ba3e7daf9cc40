"""BERT from raw text to a served model.

Learn a vocabulary, build a corpus, pre-train and fine-tune; then compute vectors, search passages, export to other
formats and serve models over HTTP.

Importing the package loads nothing heavy: the names in `_LAZY` import their modules on first use. The names in
`__all__` are public and documented in docs/library.md; a test keeps the two in sync. Everything else may change.
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
    LabelError,
    NotFiniteError,
    RunError,
    TrainingError,
    VocabularyError,
)

if TYPE_CHECKING:
    from bertsmith.adaptation.run import adapt
    from bertsmith.comparison.run import compare_systems
    from bertsmith.corpus.build import build_corpus
    from bertsmith.corpus.checks import check_corpus
    from bertsmith.corpus.shards import Corpus
    from bertsmith.demo.run import run_demo
    from bertsmith.heads.own_head import OwnHead
    from bertsmith.library.component import WordEncoder
    from bertsmith.library.distillation import distill, distill_corpus
    from bertsmith.library.documents import ask_document, rank_sentences
    from bertsmith.library.estimators import BertsmithClassifier, BertsmithVectorizer
    from bertsmith.library.formats import convert
    from bertsmith.library.inspection import inspect_model
    from bertsmith.library.labelled import evaluate, quantize
    from bertsmith.library.loading import load
    from bertsmith.library.model import Model
    from bertsmith.library.retrieval import score_searches, search_passages
    from bertsmith.library.training import finetune, pretrain, write_report
    from bertsmith.library.translation import train_translation, translate
    from bertsmith.library.vector_files import embed_file, embed_words_of_file
    from bertsmith.library.vocabulary import learn_vocabulary
    from bertsmith.library.word_senses import compare_contexts, find_senses
    from bertsmith.planning.run import plan_pretraining
    from bertsmith.progress import quiet
    from bertsmith.text.normalize import TextRules
    from bertsmith.text.vocabulary import Vocabulary
    from bertsmith.text.wordpiece import WordPieceTokenizer


__version__ = "0.1.0"

_LAZY = {
    "BertsmithClassifier": "bertsmith.library.estimators",
    "BertsmithVectorizer": "bertsmith.library.estimators",
    "Corpus": "bertsmith.corpus.shards",
    "Model": "bertsmith.library.model",
    "OwnHead": "bertsmith.heads.own_head",
    "TextRules": "bertsmith.text.normalize",
    "Vocabulary": "bertsmith.text.vocabulary",
    "WordEncoder": "bertsmith.library.component",
    "WordPieceTokenizer": "bertsmith.text.wordpiece",
    "adapt": "bertsmith.adaptation.run",
    "ask_document": "bertsmith.library.documents",
    "build_corpus": "bertsmith.corpus.build",
    "check_corpus": "bertsmith.corpus.checks",
    "compare_contexts": "bertsmith.library.word_senses",
    "compare_systems": "bertsmith.comparison.run",
    "convert": "bertsmith.library.formats",
    "distill": "bertsmith.library.distillation",
    "distill_corpus": "bertsmith.library.distillation",
    "embed_file": "bertsmith.library.vector_files",
    "embed_words_of_file": "bertsmith.library.vector_files",
    "evaluate": "bertsmith.library.labelled",
    "find_senses": "bertsmith.library.word_senses",
    "finetune": "bertsmith.library.training",
    "inspect_model": "bertsmith.library.inspection",
    "learn_vocabulary": "bertsmith.library.vocabulary",
    "load": "bertsmith.library.loading",
    "make_static_vectors": "bertsmith.sentence_encoders.static",
    "plan_pretraining": "bertsmith.planning.run",
    "pretrain": "bertsmith.library.training",
    "quantize": "bertsmith.library.labelled",
    "quiet": "bertsmith.progress",
    "rank_sentences": "bertsmith.library.documents",
    "run_demo": "bertsmith.demo.run",
    "score_searches": "bertsmith.library.retrieval",
    "search_passages": "bertsmith.library.retrieval",
    "train_translation": "bertsmith.library.translation",
    "translate": "bertsmith.library.translation",
    "write_report": "bertsmith.library.training",
}

__all__ = [
    "BertsmithClassifier",
    "BertsmithError",
    "BertsmithVectorizer",
    "CheckpointError",
    "ConfigError",
    "Corpus",
    "CorpusError",
    "CutWarning",
    "InputError",
    "LabelError",
    "Model",
    "NotFiniteError",
    "OwnHead",
    "RunError",
    "TextRules",
    "TrainingError",
    "Vocabulary",
    "VocabularyError",
    "WordEncoder",
    "WordPieceTokenizer",
    "__version__",
    "adapt",
    "ask_document",
    "build_corpus",
    "check_corpus",
    "compare_contexts",
    "compare_systems",
    "convert",
    "distill",
    "distill_corpus",
    "embed_file",
    "embed_words_of_file",
    "evaluate",
    "find_senses",
    "finetune",
    "inspect_model",
    "learn_vocabulary",
    "load",
    "make_static_vectors",
    "plan_pretraining",
    "pretrain",
    "quantize",
    "quiet",
    "rank_sentences",
    "run_demo",
    "score_searches",
    "search_passages",
    "train_translation",
    "translate",
    "write_report",
]


def __getattr__(name: str) -> Any:
    """The public object `name`; its module is imported on first use."""
    if name not in _LAZY:
        raise AttributeError(f"module 'bertsmith' has no attribute {name!r}")
    value = globals()[name] = getattr(importlib.import_module(_LAZY[name]), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
