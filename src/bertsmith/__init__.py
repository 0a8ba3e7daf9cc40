"""BERT from raw text to a served model.

Learn a vocabulary, build a corpus, pre-train and fine-tune; then compute vectors, search passages, export to other
formats and serve models over HTTP.

Importing the package loads nothing heavy: the names in `_LAZY` import their modules on first use. The names in
`__all__` are public and documented in docs/library.md; a test keeps the two in sync. Everything else may change.
"""

import importlib
from typing import TYPE_CHECKING, Any

from bertsmith.base.core.errors import (
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
from bertsmith.base.core.version import __version__

if TYPE_CHECKING:
    from bertsmith.app.demo.run import run_demo
    from bertsmith.app.library.codes import embed_subjects, find_anomalies, predict_codes
    from bertsmith.app.library.component import WordEncoder
    from bertsmith.app.library.disambiguation import disambiguate, gloss_pairs
    from bertsmith.app.library.distillation import distill, distill_corpus
    from bertsmith.app.library.documents import ask_document, rank_sentences
    from bertsmith.app.library.drift import drift
    from bertsmith.app.library.estimators import BertsmithClassifier, BertsmithVectorizer
    from bertsmith.app.library.finetuning import finetune
    from bertsmith.app.library.formats import convert
    from bertsmith.app.library.indexes import (
        build_index,
        compact_index,
        export_index,
        join_indexes,
        remove_from_index,
    )
    from bertsmith.app.library.inspection import inspect_model
    from bertsmith.app.library.labelled import evaluate, quantize
    from bertsmith.app.library.loading import load
    from bertsmith.app.library.memory import answer_from_memory
    from bertsmith.app.library.model import Model
    from bertsmith.app.library.publishing import push_to_hub
    from bertsmith.app.library.retrieval import score_searches, search_passages
    from bertsmith.app.library.training import pretrain, write_report
    from bertsmith.app.library.translation import translate
    from bertsmith.app.library.upgrade import upgrade
    from bertsmith.app.library.vector_files import embed_file, embed_words_of_file
    from bertsmith.app.library.video import code_features, fill_codes, match_codes, next_codes
    from bertsmith.app.library.vocabulary import learn_vocabulary
    from bertsmith.app.library.word_senses import compare_contexts, find_senses
    from bertsmith.app.library.zero_shot import classify
    from bertsmith.base.core.progress import quiet
    from bertsmith.inference.word_vectors.answers import analogy, neighbors
    from bertsmith.inference.word_vectors.training import train_word_vectors
    from bertsmith.models.heads.own_head import OwnHead
    from bertsmith.recipes.adaptation.run import adapt
    from bertsmith.recipes.audit.run import audit_labels
    from bertsmith.recipes.codes.folder import build_codes
    from bertsmith.recipes.codes.run import train_codes
    from bertsmith.recipes.comparison.run import compare_systems
    from bertsmith.recipes.memory.run import train_memory
    from bertsmith.recipes.translation.run import train_translation
    from bertsmith.recipes.video.features import assign_words, cluster_features
    from bertsmith.recipes.video.run import train_video
    from bertsmith.tasks.task_data.task_files import read_task
    from bertsmith.text.corpus.build import build_corpus
    from bertsmith.text.corpus.checks import check_corpus
    from bertsmith.text.corpus.shards import Corpus
    from bertsmith.text.documents.readers import Document
    from bertsmith.text.documents.sentences import split_sentences
    from bertsmith.text.tokenizers.normalize import TextRules
    from bertsmith.text.tokenizers.vocabulary import Vocabulary
    from bertsmith.text.tokenizers.wordpiece import WordPieceTokenizer
    from bertsmith.training.loop.callbacks import Callback, StopTraining, TrainingStart, callbacks
    from bertsmith.training.planning.run import plan_pretraining


_LAZY = {
    "BertsmithClassifier": "bertsmith.app.library.estimators",
    "BertsmithVectorizer": "bertsmith.app.library.estimators",
    "Callback": "bertsmith.training.loop.callbacks",
    "Corpus": "bertsmith.text.corpus.shards",
    "Document": "bertsmith.text.documents.readers",
    "Model": "bertsmith.app.library.model",
    "OwnHead": "bertsmith.models.heads.own_head",
    "StopTraining": "bertsmith.training.loop.callbacks",
    "TextRules": "bertsmith.text.tokenizers.normalize",
    "TrainingStart": "bertsmith.training.loop.callbacks",
    "Vocabulary": "bertsmith.text.tokenizers.vocabulary",
    "WordEncoder": "bertsmith.app.library.component",
    "WordPieceTokenizer": "bertsmith.text.tokenizers.wordpiece",
    "adapt": "bertsmith.recipes.adaptation.run",
    "analogy": "bertsmith.inference.word_vectors.answers",
    "answer_from_memory": "bertsmith.app.library.memory",
    "ask_document": "bertsmith.app.library.documents",
    "assign_words": "bertsmith.recipes.video.features",
    "audit_labels": "bertsmith.recipes.audit.run",
    "build_codes": "bertsmith.recipes.codes.folder",
    "build_index": "bertsmith.app.library.indexes",
    "build_corpus": "bertsmith.text.corpus.build",
    "callbacks": "bertsmith.training.loop.callbacks",
    "check_corpus": "bertsmith.text.corpus.checks",
    "classify": "bertsmith.app.library.zero_shot",
    "cluster_features": "bertsmith.recipes.video.features",
    "code_features": "bertsmith.app.library.video",
    "compact_index": "bertsmith.app.library.indexes",
    "compare_contexts": "bertsmith.app.library.word_senses",
    "compare_systems": "bertsmith.recipes.comparison.run",
    "convert": "bertsmith.app.library.formats",
    "disambiguate": "bertsmith.app.library.disambiguation",
    "distill": "bertsmith.app.library.distillation",
    "distill_corpus": "bertsmith.app.library.distillation",
    "drift": "bertsmith.app.library.drift",
    "embed_file": "bertsmith.app.library.vector_files",
    "embed_subjects": "bertsmith.app.library.codes",
    "embed_words_of_file": "bertsmith.app.library.vector_files",
    "evaluate": "bertsmith.app.library.labelled",
    "export_index": "bertsmith.app.library.indexes",
    "find_anomalies": "bertsmith.app.library.codes",
    "fill_codes": "bertsmith.app.library.video",
    "find_senses": "bertsmith.app.library.word_senses",
    "finetune": "bertsmith.app.library.finetuning",
    "gloss_pairs": "bertsmith.app.library.disambiguation",
    "inspect_model": "bertsmith.app.library.inspection",
    "join_indexes": "bertsmith.app.library.indexes",
    "learn_vocabulary": "bertsmith.app.library.vocabulary",
    "load": "bertsmith.app.library.loading",
    "make_static_vectors": "bertsmith.recipes.sentence_encoders.static",
    "match_codes": "bertsmith.app.library.video",
    "neighbors": "bertsmith.inference.word_vectors.answers",
    "next_codes": "bertsmith.app.library.video",
    "plan_pretraining": "bertsmith.training.planning.run",
    "pretrain": "bertsmith.app.library.training",
    "predict_codes": "bertsmith.app.library.codes",
    "push_to_hub": "bertsmith.app.library.publishing",
    "quantize": "bertsmith.app.library.labelled",
    "quiet": "bertsmith.base.core.progress",
    "rank_sentences": "bertsmith.app.library.documents",
    "read_task": "bertsmith.tasks.task_data.task_files",
    "remove_from_index": "bertsmith.app.library.indexes",
    "run_demo": "bertsmith.app.demo.run",
    "score_searches": "bertsmith.app.library.retrieval",
    "search_passages": "bertsmith.app.library.retrieval",
    "split_sentences": "bertsmith.text.documents.sentences",
    "train_codes": "bertsmith.recipes.codes.run",
    "train_memory": "bertsmith.recipes.memory.run",
    "train_translation": "bertsmith.recipes.translation.run",
    "train_video": "bertsmith.recipes.video.run",
    "train_word_vectors": "bertsmith.inference.word_vectors.training",
    "translate": "bertsmith.app.library.translation",
    "upgrade": "bertsmith.app.library.upgrade",
    "write_report": "bertsmith.app.library.training",
}

__all__ = [
    "BertsmithClassifier",
    "BertsmithError",
    "BertsmithVectorizer",
    "Callback",
    "CheckpointError",
    "ConfigError",
    "Corpus",
    "CorpusError",
    "CutWarning",
    "Document",
    "InputError",
    "LabelError",
    "Model",
    "NotFiniteError",
    "OwnHead",
    "RunError",
    "StopTraining",
    "TextRules",
    "TrainingError",
    "TrainingStart",
    "Vocabulary",
    "VocabularyError",
    "WordEncoder",
    "WordPieceTokenizer",
    "__version__",
    "adapt",
    "analogy",
    "answer_from_memory",
    "ask_document",
    "assign_words",
    "audit_labels",
    "build_codes",
    "build_corpus",
    "build_index",
    "callbacks",
    "check_corpus",
    "classify",
    "cluster_features",
    "code_features",
    "compact_index",
    "compare_contexts",
    "compare_systems",
    "convert",
    "disambiguate",
    "distill",
    "distill_corpus",
    "drift",
    "embed_file",
    "embed_subjects",
    "embed_words_of_file",
    "evaluate",
    "export_index",
    "fill_codes",
    "find_anomalies",
    "find_senses",
    "finetune",
    "gloss_pairs",
    "inspect_model",
    "join_indexes",
    "learn_vocabulary",
    "load",
    "make_static_vectors",
    "match_codes",
    "neighbors",
    "next_codes",
    "plan_pretraining",
    "predict_codes",
    "pretrain",
    "push_to_hub",
    "quantize",
    "quiet",
    "rank_sentences",
    "read_task",
    "remove_from_index",
    "run_demo",
    "score_searches",
    "search_passages",
    "split_sentences",
    "train_codes",
    "train_memory",
    "train_translation",
    "train_video",
    "train_word_vectors",
    "translate",
    "upgrade",
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
