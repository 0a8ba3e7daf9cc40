"""The picture of GELU next to ReLU shows the model's activation, and the page that shows it exists."""

from pathlib import Path

import gelu_picture
import numpy as np
import torch

from bertsmith.models.parts.layers import activation

PAGE = Path(__file__).parents[2] / "docs" / "how-bert-works.md"


def test_the_dots_of_the_picture_lie_on_gelu() -> None:
    x = np.linspace(-3, 3, 25)
    exact = activation(torch.from_numpy(x), "gelu").numpy()
    spread = np.abs(x) * 0.5 / gelu_picture.DRAWS**0.5  # at most: the standard deviation of the mean
    assert (np.abs(gelu_picture.random_map(x) - exact) <= 4.5 * spread).all()
    assert np.abs(gelu_picture.random_map(x) - np.maximum(x, 0)).max() > 0.1, "the dots are not ReLU"


def test_the_picture_is_drawn_and_shown(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr("sys.argv", ["gelu_picture.py", str(tmp_path / "gelu.svg")])
    gelu_picture.main()
    drawn = (tmp_path / "gelu.svg").read_text(encoding="utf-8")
    committed = gelu_picture.PICTURE.read_text(encoding="utf-8")
    for text in ("ReLU", "GELU", "mean of 2,000 draws"):
        assert text in drawn
        assert text in committed
    assert f"]({gelu_picture.PICTURE.name})" in PAGE.read_text(encoding="utf-8")
