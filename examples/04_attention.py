"""The input of BERT and where it attends: the three id sequences of a pair, and attention weights as a table.

The input of a token is the sum of three vectors: its piece, its segment (0 for the first text, 1 for the second) and
its position. Each layer then computes a weighted sum over all tokens, including the token itself; the weights of a row
add up to 1. Sources: Devlin et al. (2018), section 3 and figure 2; Vaswani et al. (2017), section 3.2.
"""

import tempfile
from pathlib import Path

import numpy as np
import torch
from toy import corpus_of, fit, small_model, village

from bertsmith.models.parts.batch import Batch
from bertsmith.models.parts.encoder import Trace
from bertsmith.text.tokenizers.pack import pack_rows
from bertsmith.text.tokenizers.template import Template
from bertsmith.training.pretraining.settings import PretrainingDataSettings

FIRST, SECOND = "the gardeners [MASK] the roses .", "then they cut the hedge ."


def show_ids(pieces: list[str], batch: Batch) -> None:
    """Prints the ids that are looked up in the three embedding tables."""
    for name, row in (
        ("token", pieces),
        ("token id", batch.token_ids.tolist()),
        ("segment id", batch.segment_ids.tolist()),
        ("position", batch.positions.tolist()),
    ):
        print(f"{name:10} " + " ".join(f"{cell!s:>{len(piece)}}" for cell, piece in zip(row, pieces, strict=True)))


def show_weights(pieces: list[str], weights: torch.Tensor) -> None:
    """Prints the weights [queries, keys] in percent: rows attend to columns; a dot is less than 1%."""
    print(" " * 11 + "".join(f"{piece[:4]:>5}" for piece in pieces))
    for piece, row in zip(pieces, weights.tolist(), strict=True):
        print(f"{piece:>10} " + "".join(f"{weight:5.0%}" if weight >= 0.01 else "    ." for weight in row))


def main(steps: int = 600, documents: int = 1500) -> list[list[torch.Tensor]]:
    """Prints and returns the weights [heads, tokens, tokens] of each layer, for each row; there is only one."""
    with tempfile.TemporaryDirectory() as folder:
        corpus = corpus_of(village(documents, np.random.default_rng(1)), Path(folder) / "corpus")
        model = small_model(corpus, hidden_size=64, intermediate_size=256, initializer_range=0.1)
        fit(model, corpus, PretrainingDataSettings(max_length=24, dynamic=True), steps, learning_rate=1e-3)
        vocabulary, encode = corpus.vocabulary, corpus.tokenizer.encode
    parts = [[encode(text, special_tokens=True)] for text in (FIRST, SECOND)]
    packed = pack_rows(
        *parts, template=Template.bert(vocabulary.cls_id, vocabulary.sep_id), max_length=24, truncation="error"
    )
    batch = Batch.from_flat(packed.token_ids, packed.segment_ids, packed.lengths)
    pieces = [vocabulary.pieces[id] for id in packed.token_ids]
    show_ids(pieces, batch)

    trace = Trace(with_attentions=True)
    with torch.no_grad():
        hidden = model.encoder(batch, trace=trace)
        logits = model.mlm(hidden[packed.token_ids == vocabulary.mask_id], model.encoder.word_table)
    chance, best = logits.softmax(-1).max(-1)
    print(f"\n[MASK] is filled with '{vocabulary.pieces[best]}' ({float(chance):.0%}). It looks most at:")
    mask = pieces.index("[MASK]")
    layers = enumerate(trace.attentions, start=1)
    heads = {(layer, head): weights for layer, rows in layers for head, weights in enumerate(rows[0], start=1)}
    for (layer, head), weights in heads.items():
        order = weights[mask].argsort(descending=True)[:3].tolist()
        looked = ", ".join(f"{pieces[i]} (position {i}) {float(weights[mask, i]):.0%}" for i in order)
        print(f"  layer {layer}, head {head}: {looked}")
    sharpest = max(heads, key=lambda name: float(heads[name][mask].max()))
    print(f"\nAll weights of layer {sharpest[0]}, head {sharpest[1]}:")
    show_weights(pieces, heads[sharpest])
    return trace.attentions


if __name__ == "__main__":
    main()
