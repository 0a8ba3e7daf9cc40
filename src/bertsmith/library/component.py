"""The vectors of words as a layer of somebody else's model.

Letters: N sentences, W words of the longest one, D width of the vectors.
"""

from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor, nn

from bertsmith.library.inputs import checked_sentences, silently
from bertsmith.library.model import Model
from bertsmith.settings import require
from bertsmith.vectors.token_features import TokenFeatures


class WordEncoder(nn.Module):
    """A batch of words in, word-aligned vectors out: a layer that does not learn.

    One vector comes out for each word, whatever pieces it is made of, and a sentence of any length is read whole. The
    encoder below is no part of `parameters()` or `state_dict()`, so a model that has this layer stays small when it
    is saved, and no optimizer touches the encoder.

    Args:
        model: a loaded model, or what `load` takes.
        layers: "last", "sum-last-4", "concat-last-4" and the like; see `layer_mix`.
        unit: a word's "first" piece, or the "mean" of its pieces.
        device, precision: as of `load`, where `model` is not loaded yet. The vectors come out where the layer is moved
            to with `.to(...)`, wherever the encoder runs.

    Attributes:
        width: D.

    Raises:
        ConfigError: the layers or the unit are unknown.
    """

    device_mark: Tensor

    def __init__(
        self,
        model: Model | str | Path,
        *,
        layers: str = "last",
        unit: str = "first",
        device: str = "auto",
        precision: str = "fp32",
    ) -> None:
        super().__init__()
        require(unit != "pieces", expected="words as the unit", found="pieces", fix="choose first or mean")
        if isinstance(model, Model):
            features = TokenFeatures(model.encoder, layers=layers, unit=unit)
        else:
            features = TokenFeatures.load(model, layers=layers, unit=unit, device=device, precision=precision)
        # Inside a tuple torch does not take the encoder for a part of this module.
        self._features = (features,)
        self.width = self._features[0].width
        self.register_buffer("device_mark", torch.empty(0), persistent=False)

    def forward(self, sentences: Sequence[Sequence[str]]) -> tuple[Tensor, Tensor]:
        """The vectors float32 [N, W, D], zeros behind the end of a sentence, and bool [N, W], where words are.

        Args:
            sentences: lists of words; may be empty.

        Raises:
            InputError: something else is there.
        """
        words = checked_sentences(sentences)
        with silently():
            found = self._features[0].word_vectors(words)
        longest = max((len(vectors) for vectors in found), default=0)
        padded = torch.zeros(len(found), longest, self.width)
        mask = torch.zeros(len(found), longest, dtype=torch.bool)
        for row, vectors in enumerate(found):
            padded[row, : len(vectors)] = vectors
            mask[row, : len(vectors)] = True
        return padded.to(self.device_mark.device), mask.to(self.device_mark.device)
