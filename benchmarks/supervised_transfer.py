"""Vectors of sentences that learned from labelled pairs (InferSent, Sentence-BERT) against those that only read text.

    python benchmarks/supervised_transfer.py --data DIR --words FOLDER [--words FOLDER] [--model MODEL] [--most 20000]

Arms, all frozen afterwards: means of word vectors, for each --words; a BiLSTM with random weights on the last of them;
the same BiLSTM, trained to tell entailment, contradiction and neutral apart on pairs of MNLI, its word vectors fixed:
with the mean over the tokens and [u, v, |u - v|], as Sentence-BERT, and with the maximum and [u, v, |u - v|, u * v], as
InferSent; the means of MODEL's last layer, as they are and
after the same training (Sentence-BERT); and TF-IDF. Scores: Spearman correlations of dot products and of cosines with
the gold scores of the STS benchmark, without training on them, and a linear model on the vectors of --labels examples
of each task. A seed is another order and start of the training, and another sample of labels.

Every score is a file in WORK, so that a stopped run resumes.

Source: Conneau et al. (2017), "Supervised Learning of Universal Sentence Representations from Natural Language
Inference Data"; Reimers and Gurevych (2019), "Sentence-BERT", tables 1 and 5; Wieting and Kiela (2019), "No Training
Required", for the random BiLSTM.
"""

import argparse
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import torch
from finetuning_recipes import drawn, examples_of
from harness import machine, machine_label, write_result
from sklearn.feature_extraction.text import TfidfVectorizer
from transfer_matrix import NOTHING

import bertsmith
from bertsmith.base.core.progress import quiet
from bertsmith.base.storage.files import read_json, write_json
from bertsmith.inference.vectors.loading import load_embedder
from bertsmith.inference.word_vectors.word_vectors import WordVectors, load_folder
from bertsmith.models.checkpoints.assembly import save_pretrained, untrained
from bertsmith.models.encoders.bilstm import BiLstmConfig
from bertsmith.models.model_files.metadata import ModelMetadata
from bertsmith.recipes.comparison.linear import CountedColumns, Features, Texts, TextVectors, WordMeans, fit_on_features
from bertsmith.tasks.datasets.examples import TextExample
from bertsmith.tasks.metrics.numbers import spearman
from bertsmith.tasks.metrics.uncertainty import spread
from bertsmith.tasks.metrics.vectors import cosines
from bertsmith.tasks.specs.kinds import task_for
from bertsmith.tasks.specs.named_tasks import default_settings, spec_for
from bertsmith.tasks.specs.settings import TaskSettings
from bertsmith.text.tokenizers.normalize import TextRules
from bertsmith.text.tokenizers.vocabulary import SPECIAL_PIECES, Vocabulary
from bertsmith.text.tokenizers.wordpiece import WordPieceTokenizer

TASKS = {
    "trec": ("classification", "trec", "cls/nltk/qc/train.txt", "cls/nltk/qc/test.txt"),
    "sst-2": ("sst-2", "sst-2", "glue/SST-2/train.tsv", "glue/SST-2/dev.tsv"),
    "mrpc": ("mrpc", "mrpc", "glue/MRPC/train.tsv", "glue/MRPC/dev.tsv"),
}
MOST_SCORED = 1000
PAIRS = "pairs of MNLI"
Vectors = Callable[[Sequence[str]], Any]


class Counted:
    """TF-IDF of words, fitted to the texts that are compared."""

    def __call__(self, texts: Sequence[str]) -> Any:
        """float32 [E, words], rows of length 1."""
        return TfidfVectorizer().fit_transform(texts).toarray().astype(np.float32)


def bilstm(words: WordVectors, folder: Path, seed: int) -> Path:
    """A folder with a random BiLSTM over word vectors, whose pieces are the words; others are [UNK], the mean vector.

    The vectors get a standard deviation of 1, as far as they have one.
    """
    if folder.is_dir():
        return folder
    vocabulary = Vocabulary([*SPECIAL_PIECES, *(word for word in words.words if word not in SPECIAL_PIECES)])
    tokenizer = WordPieceTokenizer(vocabulary, TextRules(lowercase=words.lowercase))
    config = BiLstmConfig(vocab_size=len(vocabulary), hidden_size=words.width, num_hidden_layers=1)
    model = untrained(config, seed, vocabulary)
    rows = [words.index.get(piece, -1) for piece in vocabulary.pieces]
    table = np.concatenate([words.vectors, words.vectors.mean(axis=0, keepdims=True)])[rows] / words.vectors.std()
    with torch.no_grad():
        model.encoder.word_table.copy_(torch.from_numpy(table))
    save_pretrained(folder, model, tokenizer, ModelMetadata(task="pretraining", steps=0, tokens=0), trained=())
    return folder


def trained(
    model: Path | str, options: argparse.Namespace, run: Path, seed: int, loss: str = "softmax", reads: str = "mean"
) -> Path:
    """The run of a model after the training on labelled pairs.

    Args:
        loss: softmax or infersent.
        reads: what the vector of a text is.
    """
    if (run / "model").is_dir():
        return run
    is_recurrent = str(model) != options.model
    nli = options.data / "nli"
    with quiet():
        bertsmith.finetune(
            model, "pairs", run, train=nli / "mnli_train.tsv", dev=nli / "snli_val.tsv",
            limit=options.most, vector_loss=loss, reads=reads, epochs=options.epochs, batch_size=64, max_length=64,
            learning_rate=1e-3 if is_recurrent else options.rate, freeze="embeddings" if is_recurrent else "nothing",
            keep="last", baselines=False, precision="fp32", seeds=1, seed=seed, resume=run.is_dir(),
        )  # fmt: skip
    return run


def vectors_of(source: Path | str) -> Vectors:
    """What embeds texts with the mean of the last layer, or as the folder says."""
    embedder = load_embedder(source, device="cpu")
    return lambda texts: embedder.embed(list(texts))


def arms(options: argparse.Namespace) -> dict[str, Callable[[int], Vectors]]:
    """For each arm, its vectors with a seed."""
    work = options.work
    words = {path.name: path for path in options.words}
    last = load_folder(options.words[-1])

    def start(seed: int) -> Path:
        return bilstm(last, work / f"bilstm-{seed}", seed)

    name = f"BiLSTM on {options.words[-1].name}"
    bert = options.model
    return {
        "TF-IDF": lambda seed: Counted(),
        **{f"mean of {name}": lambda seed, at=at: WordMeans(at, TaskSettings()) for name, at in words.items()},  # type: ignore[misc]
        f"{name}, {NOTHING}": lambda seed: vectors_of(start(seed)),
        f"{name}, {PAIRS}": lambda seed: vectors_of(trained(start(seed), options, work / f"infersent-{seed}", seed)),
        f"{name}, maxima, {PAIRS}": lambda seed: vectors_of(
            trained(start(seed), options, work / f"maxima-{seed}", seed, "infersent", "max")
        ),
        **(
            {
                f"BERT, {NOTHING}": lambda seed: vectors_of(bert),
                f"BERT, {PAIRS}": lambda seed: vectors_of(trained(bert, options, work / f"sentence-bert-{seed}", seed)),
            }
            if bert is not None
            else {}
        ),
    }


def similarity(vectors: Vectors, data: Path) -> dict[str, float]:
    """Spearman correlations on the dev pairs of the STS benchmark, and the mean cosine of texts of different pairs."""
    pairs = [
        example for example in examples_of("sts-b", data / "glue/STS-B/dev.tsv") if isinstance(example, TextExample)
    ]
    gold = [float(str(pair.label)) for pair in pairs]
    both = np.asarray(vectors([*(pair.first for pair in pairs), *(pair.second or "" for pair in pairs)]))
    first, second = both[: len(pairs)], both[len(pairs) :]
    return {
        "dot": spearman(gold, np.einsum("ed,ed->e", first, second)),
        "cosine": spearman(gold, cosines(first, second)),
        "other_cosine": float(cosines(first, np.roll(second, 1, axis=0)).mean()),
    }


def linear(vectors: Vectors, task: str, options: argparse.Namespace, seed: int) -> float:
    """The score of a linear model on the vectors of a task."""
    kind, name, *files = TASKS[task]
    pool, scored = (examples_of(name, options.data / file) for file in files)
    spec = spec_for(kind, pool, default_settings(kind))
    train: Texts = drawn(pool, options.labels, [seed, options.labels])  # type: ignore[assignment]
    dev: Texts = drawn(scored, MOST_SCORED, [0])  # type: ignore[assignment]
    counted = isinstance(vectors, Counted)
    features: Features = CountedColumns(train, spec, one_hot=False) if counted else _Kept(vectors)
    return fit_on_features(task_for(spec), features, train, dev, seed).scores[spec.metric]


class _Kept(TextVectors):
    """Vectors as `comparison.linear` reads them."""

    def __init__(self, vectors: Vectors) -> None:
        self._vectors = vectors

    def __call__(self, texts: Sequence[str]) -> Any:
        return np.asarray(self._vectors(texts), dtype=np.float32)


def main(arguments: Sequence[str] | None = None) -> Mapping[str, Any]:
    """Measures what is missing and writes the result; returns it."""
    options = _options(arguments)
    torch.set_num_threads(1)
    rows: dict[str, Any] = {}
    for arm, make in arms(options).items():
        cells: dict[str, list[float]] = {}
        for seed in range(1, options.seeds + 1):
            path = options.work / "cells" / f"{arm} {seed}.json".replace(" ", "-")
            if not path.is_file():
                vectors = make(seed)
                scores = similarity(vectors, options.data)
                scores |= {task: linear(vectors, task, options, seed) for task in options.tasks}
                path.parent.mkdir(parents=True, exist_ok=True)
                write_json(path, scores)
                print(arm, seed, {name: round(score, 3) for name, score in scores.items()}, flush=True)
            for name, score in read_json(path).items():
                cells.setdefault(name, []).append(score)
        rows[arm] = {name: _row(scores) for name, scores in cells.items()}
    about = machine()
    settings = {name: getattr(options, name) for name in ("most", "epochs", "rate", "labels", "seeds")}
    name = f"supervised_transfer_{machine_label(about)}_torch-{torch.__version__}"
    values = {"machine": about, "settings": settings, "rows": rows}
    write_result(options.out or name, values)
    return values


def _row(scores: Sequence[float]) -> dict[str, Any]:
    over_seeds = spread(scores)
    values = {"mean": over_seeds.mean, "deviation": over_seeds.deviation}
    return {**{name: round(value, 4) for name, value in values.items()}, "seeds": [round(score, 4) for score in scores]}


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--data", type=Path, required=True, help="the data folder")
    parser.add_argument("--words", type=Path, action="append", required=True, help="a folder of word vectors")
    parser.add_argument("--model", help="a BERT that was pre-trained on text only [no such arms]")
    parser.add_argument("--work", type=Path, required=True, help="the folder of models and scores")
    parser.add_argument("--most", type=int, default=20_000, help="pairs of MNLI")
    parser.add_argument("--epochs", type=float, default=3.0)
    parser.add_argument("--rate", type=float, default=2e-4, help="of the BERT")
    parser.add_argument("--labels", type=int, default=1000)
    parser.add_argument("--tasks", nargs="*", default=list(TASKS), choices=list(TASKS))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--out", help="the result, without its ending [in results/]")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    main()
