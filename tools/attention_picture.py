"""Draw docs/attention.svg: all forms of attention here on the same sentence.

The first three pictures are those of LSTM translators that learned for a minute to write sentences of random words
backward, with the scores dot, general and concat: what each word that is written looks at. The fourth is the scaled dot
product of the words' vectors in the starter with each other, without any parameters, and the fifth is the
self-attention of the starter in the head of its last layer that looks least at special tokens.

Usage: python tools/attention_picture.py [FILE]
"""

import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from matplotlib.figure import Figure

import bertsmith
from bertsmith.base.core.progress import quiet
from bertsmith.base.core.randomness import generator
from bertsmith.inference.vectors.pictures import write_picture
from bertsmith.models.encoders.lstm_encoder_decoder import LstmEncoderDecoder
from bertsmith.models.parts.batch import Batch
from bertsmith.models.parts.head_inputs import SCORES
from bertsmith.models.parts.scored_attention import attend, scaled_dot
from bertsmith.recipes.translation.model_folder import read_translation_model
from bertsmith.recipes.translation.pairs import rows_of
from bertsmith.text.tokenizers.vocabulary import SPECIAL_PIECES

PICTURE = Path(__file__).parent.parent / "docs" / "attention.svg"
SENTENCE = "the old gardener mended the broken gate"
OTHER_WORDS = "a sailor painted every long letter near this green boat".split()
PAIRS, LONGEST = 2000, 9


class Weights(NamedTuple):
    """The weights [rows, columns] of a form of attention, and its words."""

    title: str
    rows: Sequence[str]
    columns: Sequence[str]
    weights: np.ndarray


def learned(score: str, steps: int) -> Weights:
    """The attention of a translator with that score that learned to write a sentence backward."""
    words = sorted({*SENTENCE.split(), *OTHER_WORDS})
    source = generator(1, "sentences of random words")
    sentences = [source.choice(words, source.integers(2, LONGEST + 1)).tolist() for _ in range(PAIRS)]
    with tempfile.TemporaryDirectory() as folder, quiet():
        root = Path(folder)
        lines = "".join(f"{' '.join(sentence)}\t{' '.join(sentence[::-1])}\n" for sentence in sentences)
        (root / "pairs.tsv").write_text(lines, encoding="utf-8")
        (root / "vocab.txt").write_text("\n".join([*SPECIAL_PIECES, *words]) + "\n", encoding="utf-8")
        bertsmith.train_translation(
            root / "pairs.tsv", root / "run", architecture="lstm", score=score, vocab=str(root / "vocab.txt"),
            rows_per_step=32, dropout=0.0, label_smoothing=0.0, steps=steps, device="cpu", precision="fp32",
        )  # fmt: skip
        model, tokenizer = read_translation_model(root / "run")
    assert isinstance(model, LstmEncoderDecoder)
    backward = " ".join(SENTENCE.split()[::-1])
    read, written = (Batch.from_rows([row]) for row in rows_of([SENTENCE, backward], tokenizer))
    (weights,) = model.alignments(read, written)
    count = len(SENTENCE.split())
    # The row of a token is what was looked at for the next one; special tokens of the source are left out.
    return Weights(score, backward.split(), SENTENCE.split(), weights[:count, 1 : count + 1].numpy())


def of_states(model: bertsmith.Model) -> Weights:
    """The scaled dot product of the vectors of the words with each other."""
    words = SENTENCE.split()
    (states,) = model.features([words])
    _, weights = attend(states, states, states, scaled_dot)
    return Weights("scaled dot, of the starter's vectors", words, words, weights.numpy())


def of_head(model: bertsmith.Model) -> Weights:
    """The self-attention of a head."""
    attention = model.attention(SENTENCE)
    kept = ~np.array(attention.special)
    heads = np.asarray(attention.weights)[-1][:, kept][:, :, kept]
    best = int(heads.sum(axis=(1, 2)).argmax())
    pieces = [piece for piece, is_kept in zip(attention.pieces, kept, strict=True) if is_kept]
    return Weights(f"self-attention, head {best + 1} of the last layer", pieces, pieces, heads[best])


def forms(steps: int = 300) -> list[Weights]:
    """All forms of attention on the sentence."""
    model = bertsmith.load("starter", device="cpu")
    return [*(learned(score, steps) for score in SCORES), of_states(model), of_head(model)]


def picture(drawn: Sequence[Weights]) -> Figure:
    """A table of cells for each form, darker where the weight is higher."""
    figure = Figure(figsize=(9.6, 6.8), layout="constrained")
    for number, form in enumerate(drawn, start=1):
        axes = figure.add_subplot(2, 3, number)
        axes.pcolormesh(form.weights, cmap="Blues", vmin=0, vmax=1)
        axes.invert_yaxis()
        axes.set_title(form.title, fontsize=9)
        axes.set_xticks(np.arange(len(form.columns)) + 0.5, form.columns, rotation=90, fontsize=8)
        axes.set_yticks(np.arange(len(form.rows)) + 0.5, form.rows, fontsize=8)
    return figure


def main() -> None:
    """Writes the picture."""
    torch.set_num_threads(1)
    path = Path(sys.argv[1]) if len(sys.argv) > 1 else PICTURE
    write_picture(path, picture(forms()), "Forms of attention")


if __name__ == "__main__":
    main()
