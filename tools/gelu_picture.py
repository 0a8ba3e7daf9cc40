"""Draw docs/gelu.svg: GELU next to ReLU, with the mean of the random map that GELU is the expectation of.

The values come from the activation of the model. Each dot is the mean over draws of x, kept with probability Phi(x) and
else replaced by zero, where Phi is the distribution function of the standard normal distribution.

Source: Hendrycks and Gimpel (2016), "Gaussian Error Linear Units".

Usage: python tools/gelu_picture.py [FILE]
"""

import sys
from pathlib import Path

import numpy as np
import torch
from matplotlib.figure import Figure

from bertsmith.base.core.randomness import generator
from bertsmith.base.pages.charts import COLORS
from bertsmith.inference.vectors.pictures import write_picture
from bertsmith.models.parts.layers import activation

PICTURE = Path(__file__).parent.parent / "docs" / "gelu.svg"
DRAWS = 2000  # per dot


def random_map(x: np.ndarray, draws: int = DRAWS) -> np.ndarray:
    """The mean of `draws` of the random zero-one map at each x: x itself where a normal draw is below x, else 0."""
    normal = generator(0, "gelu").standard_normal((draws, len(x)))
    return np.where(normal < x, x, 0.0).mean(axis=0)


def picture() -> Figure:
    """The two activations from -3 to 3, and the means of the random map."""
    x, few = torch.linspace(-3, 3, 241, dtype=torch.float64), np.linspace(-3, 3, 25)
    figure = Figure(figsize=(6.4, 3.6), layout="constrained")
    axes = figure.add_subplot()
    axes.plot(x, activation(x, "relu"), color=COLORS[1], linestyle=(0, (5, 4)), label="ReLU")
    axes.plot(x, activation(x, "gelu"), color=COLORS[0], linewidth=2, label="GELU")
    label = f"mean of {DRAWS:,} draws: x with probability Phi(x), else 0"
    axes.plot(few, random_map(few), color=COLORS[2], linestyle="none", marker="o", markersize=3.5, label=label)
    axes.grid(alpha=0.2)
    axes.spines[["top", "right"]].set_visible(False)
    axes.set_xlabel("x")
    axes.legend(frameon=False)
    return figure


def main() -> None:
    """Writes the picture."""
    write_picture(Path(sys.argv[1]) if len(sys.argv) > 1 else PICTURE, picture(), "GELU and ReLU")


if __name__ == "__main__":
    main()
