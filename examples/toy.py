"""Shared by the examples: sentences about a village, and the few lines that train a small model on a small text."""

import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from bertsmith import Corpus, Document, Vocabulary, WordPieceTokenizer, build_corpus, quiet
from bertsmith.base.machine.runtime import choose
from bertsmith.models.checkpoints.architectures import new_encoder
from bertsmith.models.heads.encoder_with_head import EncoderForPreTraining
from bertsmith.models.parts.config import BertConfig
from bertsmith.training.loop.loop import train
from bertsmith.training.loop.run_folder import RunFolder
from bertsmith.training.loop.settings import TrainSettings
from bertsmith.training.pretraining.settings import PretrainingDataSettings, PretrainingRunSettings
from bertsmith.training.pretraining.workload import Pretraining

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


def corpus_of(documents: list[list[str]], folder: Path, held_out: float = 0.1) -> Corpus:
    """A corpus folder made from documents (lists of sentences); its vocabulary is all their words."""
    words = sorted({word for sentences in documents for sentence in sentences for word in sentence.split()})
    given = [Document(f"document {number}", sentences) for number, sentences in enumerate(documents)]
    with quiet():
        tokenizer = WordPieceTokenizer(Vocabulary([*SPECIAL_PIECES, *words]))
        build_corpus(given, tokenizer, folder, held_out=held_out, workers=1)
    return Corpus.open(folder)


def small_model(corpus: Corpus, seed: int = 1, **changes: Any) -> EncoderForPreTraining:
    """An untrained model with two layers of width 32 for the words of a corpus.

    The standard deviation of its initial parameters is ten times that of the paper: 0.02 suits a width of 768, and so
    few units would need a long time to grow from there.
    """
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 128}
    more = {
        "initializer_range": 0.2,
        "max_position_embeddings": 64,
        "hidden_dropout_prob": 0.0,
        "attention_probs_dropout_prob": 0.0,
    }
    return EncoderForPreTraining(
        new_encoder(BertConfig(vocab_size=len(corpus.vocabulary), **{**sizes, **more, **changes})), seed=seed
    )


def fit(
    model: EncoderForPreTraining, corpus: Corpus, data: PretrainingDataSettings, steps: int, learning_rate: float = 2e-3
) -> dict[str, float]:
    """The scores on held-out documents after training `model` in place for `steps` steps of 64 rows."""
    run = PretrainingRunSettings(size="tiny", rows_per_step=64)  # the size is not used: the model is given
    task = Pretraining(model, corpus, corpus.held_out(), corpus.vocabulary, data, choose("cpu", "fp32"), run)
    settings = TrainSettings(
        steps=steps, learning_rate=learning_rate, warmup_share=0.1, evaluate_every=steps, log_every=steps
    )
    with quiet(), tempfile.TemporaryDirectory() as folder:
        result = train(task, settings, RunFolder.prepare(Path(folder) / "run", {}, {}))
    return {name: value for name, value in result.metrics.items() if name.startswith("held_out_")}
