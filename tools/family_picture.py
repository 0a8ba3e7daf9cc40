"""Draw docs/family.svg: the systems of this package and those they descend from, by year.

The year is that of the first paper. A line says that a system took its main idea, its layers or its parameters from the
one on its left. Systems that are not in the package are grey.

Usage: python tools/family_picture.py [FILE]
"""

import sys
from pathlib import Path
from typing import NamedTuple

from matplotlib.figure import Figure

from bertsmith.reports.charts import COLORS
from bertsmith.reports.pictures import write_picture

PICTURE = Path(__file__).parent.parent / "docs" / "family.svg"


class Member(NamedTuple):
    """A system: its place in the picture, what it descends from, and whether the package has it."""

    year: float
    lane: float
    parents: tuple[str, ...] = ()
    ours: bool = True


FAMILY = {
    "TF-IDF": Member(1972, 0),
    "LSTM": Member(1997, 3),
    "Word2Vec": Member(2013, 1),
    "GloVe": Member(2014, 0, ("Word2Vec",)),
    "sequence autoencoder": Member(2015, 4, ("LSTM",)),
    "BiLSTM": Member(2005, 2, ("LSTM",)),
    "Transformer": Member(2017, 6, (), False),
    "AWD-LSTM": Member(2017, 3, ("LSTM",)),
    "ULMFiT": Member(2018, 4, ("AWD-LSTM", "sequence autoencoder")),
    "ELMo": Member(2018, 2, ("BiLSTM", "Word2Vec")),
    "GPT": Member(2018, 5, ("Transformer", "ULMFiT")),
    "BERT": Member(2018.8, 6, ("Transformer", "ELMo", "GPT")),
    "Sentence-BERT": Member(2019.7, 5, ("BERT",)),
    "DistilBERT": Member(2019.8, 6, ("BERT",)),
    "TinyBERT": Member(2019.7, 7, ("BERT",)),
    "RoBERTa": Member(2019.5, 8, ("BERT",)),
    "XLM-RoBERTa": Member(2019.9, 9, ("RoBERTa",)),
    "ALBERT": Member(2019.7, 10, ("BERT",)),
    "ELECTRA": Member(2020.2, 11, ("BERT",)),
    "MPNet": Member(2020.3, 12, ("BERT",)),
    "PatentBERT": Member(2019.5, 13, ("BERT",)),
    "DocBERT": Member(2019.3, 14, ("BERT",)),
    "SciBERT": Member(2019.2, 15, ("BERT",)),
    "BioBERT": Member(2019.1, 16, ("BERT",)),
    "SimCSE": Member(2021.3, 5, ("Sentence-BERT",)),
    "SetFit": Member(2022.7, 5, ("SimCSE",)),
    "ModernBERT": Member(2024.9, 8, ("RoBERTa",)),
    "static vectors": Member(2024.8, 3, ("Sentence-BERT", "GloVe")),
}
_FIRST_YEAR = 2012  # older systems are drawn at the left edge, with their year


def picture() -> Figure:
    """The systems as words, each at its year, with lines to what it descends from."""
    figure = Figure(figsize=(11.6, 7.6), layout="constrained")
    axes = figure.add_subplot()
    places = {name: (max(one.year, _FIRST_YEAR), one.lane) for name, one in FAMILY.items()}
    for name, one in FAMILY.items():
        for parent in one.parents:
            axes.annotate(
                "", places[name], places[parent], arrowprops={"arrowstyle": "->", "color": "#999999", "shrinkB": 12}
            )
    for name, one in FAMILY.items():
        x, y = places[name]
        label = name if one.year >= _FIRST_YEAR else f"{name} ({one.year:.0f})"
        box = {"boxstyle": "round,pad=0.3", "facecolor": "white", "edgecolor": COLORS[0] if one.ours else "#bbbbbb"}
        axes.text(x, y, label, ha="center", va="center", color="black" if one.ours else "#777777", bbox=box)
    axes.set_xlim(_FIRST_YEAR - 0.8, 2025.8)
    axes.set_ylim(-0.7, 16.7)
    axes.set_yticks([])
    axes.set_xticks(range(_FIRST_YEAR + 1, 2026))
    axes.spines[["top", "right", "left"]].set_visible(False)
    return figure


def main() -> None:
    """Writes the picture."""
    write_picture(Path(sys.argv[1]) if len(sys.argv) > 1 else PICTURE, picture(), "The family of BERT")


if __name__ == "__main__":
    main()
