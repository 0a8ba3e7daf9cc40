"""Draw docs/family.svg: the systems of this package and what they descend from, by year.

The year is that of the first paper. Within a year, systems are moved a little so that their
names fit. A line says that a system took its main idea, its layers or its parameters from the
one on its left. Parts of BERT and uses of it have other colors than models.

Usage: python tools/family_picture.py [FILE]
"""

import sys
from pathlib import Path
from typing import NamedTuple

from matplotlib.figure import Figure

from bertsmith.base.pages.charts import COLORS
from bertsmith.inference.vectors.pictures import write_picture

PICTURE = Path(__file__).parent.parent / "docs" / "family.svg"


MODEL, PART, USE = range(3)
_COLORS = (COLORS[0], COLORS[1], COLORS[2])


class Member(NamedTuple):
    """A system: its place in the picture, what it descends from, and its kind, which decides the color."""

    year: float
    lane: float
    parents: tuple[str, ...] = ()
    kind: int = MODEL


FAMILY = {
    "one-hot": Member(1954, 1),
    "TF-IDF": Member(1972, 0),
    "LSTM": Member(1997, 3),
    "BiLSTM": Member(2005, 6, ("LSTM",)),
    "WordPiece": Member(2012.4, 10, (), PART),
    "Word2Vec": Member(2013.3, 1, ("one-hot",)),
    "GloVe": Member(2014.8, 0, ("Word2Vec",)),
    "memory network": Member(2015.2, 10),
    "sequence autoencoder": Member(2015.8, 4, ("LSTM",)),
    "Transformer": Member(2017.4, 7),
    "AWD-LSTM": Member(2017.4, 3, ("LSTM",)),
    "ULMFiT": Member(2018.0, 4, ("AWD-LSTM", "sequence autoencoder")),
    "ELMo": Member(2017.9, 2, ("LSTM", "Word2Vec")),
    "BiLSTM+ELMo+Attn": Member(2017.9, 1, ("ELMo", "BiLSTM")),
    "GPT": Member(2018.3, 5.5, ("Transformer", "ULMFiT")),
    "masked LM": Member(2017.6, 8.1, (), PART),
    "next sentence": Member(2018.1, 9.1, (), PART),
    "BERT": Member(2018.8, 7, ("Transformer", "ELMo", "GPT", "WordPiece", "masked LM", "next sentence")),
    "code and models": Member(2019.7, -7, ("BERT",), USE),
    "spam classifier": Member(2019.7, -3, ("BERT",), USE),
    "claim detection": Member(2019.7, -4, ("BERT",), USE),
    "claims by vectors": Member(2019.7, -5, ("BERT",), USE),
    "features": Member(2019.7, -6, ("BERT",), USE),
    "Chinese BERT": Member(2019.6, 15, ("BERT",)),
    "VideoBERT": Member(2019.5, 14, ("BERT",)),
    "G-BERT": Member(2019.4, 13, ("BERT",)),
    "SciBERT": Member(2019.4, 12, ("BERT",)),
    "BioBERT": Member(2019.4, 11, ("BERT",)),
    "PatentBERT": Member(2019.5, 10, ("BERT",)),
    "DocBERT": Member(2019.5, 4, ("BERT", "BiLSTM")),
    "RoBERTa": Member(2019.5, 8, ("BERT",)),
    "Sentence-BERT": Member(2019.7, -1, ("BERT",)),
    "TinyBERT": Member(2019.7, 1, ("BERT",)),
    "ALBERT": Member(2019.7, 3, ("BERT",)),
    "DistilBERT": Member(2019.7, 2, ("BERT",)),
    "XLM-RoBERTa": Member(2019.9, 9, ("RoBERTa",)),
    "ELECTRA": Member(2020.2, 5, ("BERT",)),
    "MPNet": Member(2020.3, 6, ("BERT",)),
    "DeBERTa": Member(2020.5, 16, ("BERT",)),
    "SimCSE": Member(2021.3, 0, ("BERT",)),
    "SetFit": Member(2022.7, -1, ("Sentence-BERT",)),
    "static vectors": Member(2024.7, -2, ("Sentence-BERT",)),
    "ModernBERT": Member(2024.9, 7, ("BERT",)),
    "Nomic BERT": Member(2024.1, 17, ("BERT",)),
    "GTE": Member(2024.6, 18, ("BERT",)),
    "EuroBERT": Member(2025.2, 19, ("BERT",)),
}
_FIRST_YEAR = 2012  # older systems are drawn at the left edge, with their year
_TRUNKS = ("BERT", "Sentence-BERT")  # their descendants branch off a vertical line


def picture() -> Figure:
    """The systems as words, each at its year, with lines to what it descends from."""
    figure = Figure(figsize=(12.5, 10.2), layout="constrained")
    axes = figure.add_subplot()
    places = {name: (max(system.year, _FIRST_YEAR), system.lane) for name, system in FAMILY.items()}
    boxes = {}
    for name, system in FAMILY.items():
        x, y = places[name]
        label = name if system.year >= _FIRST_YEAR else f"{name} ({system.year:.0f})"
        box = {"boxstyle": "round,pad=0.3", "facecolor": "white", "edgecolor": _COLORS[system.kind]}
        text = axes.text(x, y, label, ha="center", va="center", color="black", bbox=box)
        boxes[name] = text.get_bbox_patch()
    for name, system in FAMILY.items():
        for parent in system.parents:
            is_branch = parent in _TRUNKS and places[parent][1] != system.lane
            line = {
                "arrowstyle": "->",
                "color": "#999999",
                "shrinkA": 0,
                "shrinkB": 1,
                "patchA": boxes[parent],
                "patchB": boxes[name],
                "connectionstyle": "angle,angleA=90,angleB=0,rad=4" if is_branch else "arc3",
            }
            axes.annotate("", places[name], places[parent], arrowprops=line)
    axes.set_xlim(_FIRST_YEAR - 0.8, 2025.9)
    axes.set_ylim(-7.6, 19.6)
    axes.set_yticks([])
    axes.set_xticks(range(_FIRST_YEAR + 1, 2026))
    axes.spines[["top", "right", "left"]].set_visible(False)
    return figure


def main() -> None:
    """Writes the picture."""
    write_picture(Path(sys.argv[1]) if len(sys.argv) > 1 else PICTURE, picture(), "The family of BERT")


if __name__ == "__main__":
    main()
