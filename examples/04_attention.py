"""The input of BERT and where it attends: the three id sequences of a pair, and attention weights as a table.

The input of a token is the sum of three vectors: its piece, its segment (0 for the first text, 1 for the second) and
its position. Each layer then computes a weighted sum over all tokens, including the token itself; the weights of a row
add up to 1. Sources: Devlin et al. (2018), section 3 and figure 2; Vaswani et al. (2017), section 3.2.
"""

import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from toy import corpus_of, pretrain_small, village

import bertsmith

FIRST, SECOND = "the gardeners [MASK] the roses .", "then they cut the hedge ."


def show_ids(pieces: Sequence[str], ids: Sequence[int], segments: Sequence[int]) -> None:
    """Prints the ids that are looked up in the three embedding tables."""
    rows = {"token": pieces, "token id": ids, "segment id": segments, "position": range(len(pieces))}
    for name, row in rows.items():
        print(f"{name:10} " + " ".join(f"{cell!s:>{len(piece)}}" for cell, piece in zip(row, pieces, strict=True)))


def show_weights(pieces: Sequence[str], weights: np.ndarray) -> None:
    """Prints the weights [queries, keys] in percent: rows attend to columns; a dot is less than 1%."""
    print(" " * 11 + "".join(f"{piece[:4]:>5}" for piece in pieces))
    for piece, row in zip(pieces, weights.tolist(), strict=True):
        print(f"{piece:>10} " + "".join(f"{weight:5.0%}" if weight >= 0.01 else "    ." for weight in row))


def main(steps: int = 600, documents: int = 1500) -> np.ndarray:
    """Prints and returns the attention weights [layers, heads, tokens, tokens] of the pair."""
    shape = {"hidden_size": 64, "intermediate_size": 256, "initializer_range": 0.1}
    with tempfile.TemporaryDirectory() as folder, bertsmith.quiet():
        corpus = corpus_of(village(documents, np.random.default_rng(1)), Path(folder) / "corpus")
        pretrain_small(corpus, Path(folder) / "run", steps, shape, max_length=24, learning_rate=1e-3)
        model = bertsmith.load(Path(folder) / "run", device="cpu")
    attention = model.attention(FIRST, SECOND)
    pieces, weights = attention.pieces, attention.weights
    show_ids(pieces, [model.tokenizer.vocabulary.index[piece] for piece in pieces], attention.segments)

    best = model.fill([FIRST], top=1)[0][0][0]
    print(f"\n[MASK] of the first text is filled with '{best.piece}' ({best.probability:.0%}). It looks most at:")
    mask = pieces.index("[MASK]")
    for layer, head in np.ndindex(weights.shape[:2]):
        of_mask = weights[layer, head, mask]
        order = (-of_mask).argsort()[:3]
        looked = ", ".join(f"{pieces[i]} (position {i}) {of_mask[i]:.0%}" for i in order)
        print(f"  layer {layer + 1}, head {head + 1}: {looked}")
    layer, head = np.unravel_index(weights[:, :, mask].max(-1).argmax(), weights.shape[:2])
    print(f"\nAll weights of layer {layer + 1}, head {head + 1}:")
    show_weights(pieces, weights[layer, head])
    return weights


if __name__ == "__main__":
    main()
