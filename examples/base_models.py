"""Small base models, made in seconds, for the examples that fine-tune a model or look inside one.

They replace a model pre-trained on a large corpus. The examples that use them accept the folder of such a model with
`--model`; only then do their numbers say something about English.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

from toy import corpus_of, fit, small_model

from bertsmith import Corpus, Document, WordPieceTokenizer, build_corpus
from bertsmith.models.checkpoints.assembly import save_pretrained
from bertsmith.models.model_files.metadata import ModelMetadata
from bertsmith.tasks.specs.named_tasks import bundled_examples
from bertsmith.tasks.task_data.task_files import read_examples
from bertsmith.text.vocabularies.learn import learn_vocabulary
from bertsmith.text.vocabularies.word_counts import count_words
from bertsmith.training.pretraining.settings import PretrainingDataSettings


def base_of_presets(names: Sequence[str], folder: Path, steps: int = 300) -> str:
    """A model folder with 500 pieces and a masked language model, both learned from the example texts of presets."""
    files = [path for path in map(bundled_examples, names) if path]
    texts = [
        example.first for name, path in zip(names, files, strict=True) for example in read_examples(name, path).examples
    ]
    tokenizer = WordPieceTokenizer(learn_vocabulary(count_words(texts, threads=1), 500))
    documents = [Document(f"text {number}", [text]) for number, text in enumerate(texts)]
    build_corpus(documents, tokenizer, folder / "corpus", held_out=0.1, workers=1)
    return _pretrained(Corpus.open(folder / "corpus"), folder / "base", "mlm", steps)


def base_of_language(documents: list[list[str]], folder: Path, steps: int = 600, objective: str = "mlm+nsp") -> str:
    """A model folder with whole words as pieces, trained on masked words and, by default, next-sentence prediction."""
    return _pretrained(corpus_of(documents, folder / "corpus"), folder / "base", objective, steps)


def _pretrained(corpus: Corpus, folder: Path, objective: str, steps: int) -> str:
    model = small_model(corpus, hidden_size=64, intermediate_size=256, initializer_range=0.1)
    data = PretrainingDataSettings(objective=objective, max_length=40, dynamic=True)
    fit(model, corpus, data, steps, learning_rate=1e-3)
    trained = ("mlm",) if objective == "mlm" else ("pooler", "mlm", "nsp")
    save_pretrained(
        folder, model, corpus.tokenizer, ModelMetadata.from_dict({"made_by": "an example"}), trained=trained
    )
    return str(folder)


def options(about: str | None) -> argparse.ArgumentParser:
    """A parser with the options shared by the examples; an example may add its own."""
    parser = argparse.ArgumentParser(description=(about or "").split("\n")[0])
    parser.add_argument("--model", metavar="DIR", help="a pre-trained model [default: train a small one]")
    return parser
