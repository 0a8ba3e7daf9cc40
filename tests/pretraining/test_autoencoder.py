"""The sequence autoencoder: rows that hold a text twice, of which the copy is predicted, and a model that learns it."""

from pathlib import Path

import numpy as np
import pytest

from bertsmith.base.storage.files import write_json
from bertsmith.inference.predictors.loading import load_predictor
from bertsmith.models.checkpoints.assembly import load_pretrained
from bertsmith.models.checkpoints.load import load_any
from bertsmith.recipes.finetuning.run import finetune
from bertsmith.recipes.finetuning.settings import FinetuningSettings, RecipeSettings
from bertsmith.tasks.datasets.examples import TextExample
from bertsmith.tasks.task_data.split import TaskData
from bertsmith.text.tokenizers.vocabulary import SPECIAL_PIECES, Vocabulary
from bertsmith.text.tokenizers.wordpiece import WordPieceTokenizer
from bertsmith.training.pretraining.recipes import settings_from_recipe
from bertsmith.training.pretraining.run import pretrain
from bertsmith.training.pretraining.settings import PretrainingDataSettings
from bertsmith.training.pretraining.stream import Cursor, PretrainingStream
from bertsmith.training.pretraining.targets import second_copies
from corpus.samples import write_corpus
from oracles.pretraining_oracle import MemoryDocuments
from tasks.task_samples import SPECS

WORDS = "red green blue big small cat dog bird".split()
VOCABULARY = Vocabulary([*SPECIAL_PIECES, *WORDS])
CLS, SEP = VOCABULARY.cls_id, VOCABULARY.sep_id


def documents(seed: int = 0) -> MemoryDocuments:
    rng = np.random.default_rng(seed)
    return MemoryDocuments(
        [
            [rng.integers(5, len(VOCABULARY), size=rng.integers(1, 30)).tolist() for _ in range(rng.integers(1, 6))]
            for _ in range(30)
        ]
    )


@pytest.mark.parametrize("length", [5, 6, 17, 64])
def test_every_row_is_a_text_and_its_copy_and_no_token_is_lost(length):
    texts = documents()
    data = PretrainingDataSettings(objective="autoencoder", max_length=length, short_sequence_probability=0.3)
    stream = PretrainingStream(texts, data, VOCABULARY)
    rows = stream.materialise(stream.take(Cursor(), stream.num_instances(0))[0])
    result = second_copies(rows.token_ids, rows.lengths, rows.keys)
    ends = np.cumsum(rows.lengths)
    seen, predicted = [], []
    for row in np.split(rows.token_ids, ends[:-1]):
        half = (len(row) - 3) // 2
        text = row[1 : half + 1].tolist()
        assert row.tolist() == [CLS, *text, SEP, *text, SEP]
        assert 1 <= half <= (length - 3) // 2
        seen += text
        predicted += [*text, SEP]
    assert result.target_ids.tolist() == predicted
    assert (result.token_ids[result.positions + 1] == result.target_ids).all()
    assert result.per_row.sum() == len(result.positions)
    every = np.concatenate([texts.document_tokens(number) for number in range(texts.num_documents)])
    assert np.bincount(seen).tolist() == np.bincount(every).tolist()


@pytest.fixture(scope="module")
def trained(tmp_path_factory) -> Path:
    """One layer of LSTM, as in the paper."""
    folder = tmp_path_factory.mktemp("autoencoder")
    rng = np.random.default_rng(0)
    texts = ["\n".join(" ".join(rng.choice(WORDS, 2)) for _ in range(8)) for _ in range(60)]
    corpus = write_corpus(folder, texts, WordPieceTokenizer(VOCABULARY))
    rates = dict.fromkeys(("output", "hidden", "input", "embedding", "weight"), 0.0)
    shape = {"model_type": "awd-lstm", "vocab_size": len(VOCABULARY), "hidden_size": 48, "num_hidden_layers": 1}
    write_json(folder / "one.json", {**shape, "cells": 48, **{f"{name}_dropout_prob": 0.0 for name in rates}})
    settings = {"config": str(folder / "one.json"), "objective": "autoencoder", "max_length": 7, "rows_per_step": 32}
    settings |= {"steps": 250, "learning_rate": 1e-2, "device": "cpu", "precision": "fp32"}
    result = pretrain(corpus, folder / "run", *settings_from_recipe(settings))
    # Words are drawn at random, so only the copy in front of them tells what comes.
    assert result.scores["held_out_lm_accuracy"] > 0.6
    return folder / "run"


def test_it_learns_to_remember_texts_and_keeps_its_shape(trained):
    loaded = load_pretrained(load_any(trained))
    assert loaded.metadata.objective == "autoencoder"
    assert loaded.model.config.num_hidden_layers == 1


def test_it_is_the_start_of_a_classifier(trained, tmp_path):
    examples = [
        TextExample(
            id=str(number), first=f"{word} {other}", label="positive" if word == "red" else "negative", location=""
        )
        for number, (word, other) in enumerate((word, other) for word in ("red", "blue") for other in WORDS)
    ]
    data = TaskData(train=examples, dev=examples)
    settings = FinetuningSettings(batch_size=8, epochs=10, precision="fp32", baselines=False)
    recipe = RecipeSettings(learning_rate=1e-2, bias_correction=True)
    finetune(str(trained / "model"), SPECS["on the mean"], data, tmp_path / "run", settings, recipe, seeds=1)
    scores, _ = load_predictor(tmp_path / "run" / "model").evaluate(examples)
    assert scores["accuracy"] > 0.9
