"""Shared by the examples: sentences about a village, and the few lines that pre-train a small model on a small text."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

import bertsmith

SPECIAL_PIECES = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")  # in the order of published vocabularies
# Who works where, and what they do there with which things.
PLACES = (
    (("gardener", "neighbour"), {"water": ("roses", "herbs"), "cut": ("hedge", "grass")}),
    (("baker", "cook"), {"stir": ("soup", "sauce"), "slice": ("bread", "cake")}),
    (("sailor", "fisher"), {"row": ("boat", "raft"), "mend": ("nets", "sails")}),
)


def village(documents: int, rng: np.random.Generator) -> list[list[str]]:
    """Documents of four sentences about the same people in one place; verbs and pronouns agree with them in number."""
    return [_one_place(rng) for _ in range(documents)]


def _one_place(rng: np.random.Generator) -> list[str]:
    people, verbs = PLACES[rng.integers(len(PLACES))]
    several = bool(rng.integers(2))
    sentences = []
    for number in range(4):
        verb = str(rng.choice(list(verbs)))
        pronoun, noun, form = ("they", "s", verb) if several else ("she", "", f"{verb}s")
        subject = f"the {rng.choice(people)}{noun}" if number % 2 == 0 else f"then {pronoun}"
        sentences.append(f"{subject} {form} the {rng.choice(verbs[verb])} .")
    return sentences


def corpus_of(documents: list[list[str]], folder: Path, held_out: float = 0.1) -> Path:
    """A corpus folder made from documents (lists of sentences); its vocabulary is all their words."""
    words = sorted({word for sentences in documents for sentence in sentences for word in sentence.split()})
    tokenizer = bertsmith.WordPieceTokenizer(bertsmith.Vocabulary([*SPECIAL_PIECES, *words]))
    texts = [bertsmith.Document(f"document {number}", sentences) for number, sentences in enumerate(documents)]
    bertsmith.build_corpus(texts, tokenizer, folder, held_out=held_out, workers=1)
    return folder


def pretrain_small(
    corpus: Path, out: Path, steps: int, shape: Mapping[str, Any] | None = None, **settings: Any
) -> Mapping[str, float]:
    """The loss and the held-out scores of a model with two layers, pre-trained on 64 rows per step; `load` opens OUT.

    The loss is that of the last tenth of the training.

    The standard deviation of its initial parameters is ten times that of the paper: 0.02 suits a width of 768, and so
    few units would need a long time to grow from there.

    Args:
        shape: what differs from the model of width 32, by the names of `config.json`.
        settings: as in `bertsmith.pretrain`.
    """
    config = {
        "vocab_size": len(bertsmith.Corpus.open(corpus).vocabulary),
        "hidden_size": 32,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "intermediate_size": 128,
        "max_position_embeddings": 64,
        "initializer_range": 0.2,
        **(shape or {}),
    }
    file = out.with_name(f"{out.name}.json")
    file.write_text(json.dumps(config), encoding="utf-8")
    usual = {"recipe": "2018", "learning_rate": 2e-3, "warmup_share": 0.1, "dynamic": True, "dropout": 0.0}
    run = {"steps": steps, "rows_per_step": 64, "evaluate_every": steps, "log_every": max(1, steps // 10)}
    settings = {"config": file, "device": "cpu", "precision": "fp32", **usual, **run, **settings}
    return bertsmith.pretrain(corpus, out, **settings).metrics
