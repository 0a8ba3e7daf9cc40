"""Word vectors as a frozen layer of another PyTorch model.

Letters: N sentences, W words in the longest one, D width of the vectors.
"""

from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor, nn

from bertsmith.app.library.inputs import checked_sentences, silently
from bertsmith.app.library.model import Model
from bertsmith.base.core.settings import require
from bertsmith.inference.vectors.loading import load_token_features
from bertsmith.inference.vectors.token_features import TokenFeatures


class WordEncoder(nn.Module):
    """A frozen layer that maps a batch of words to word-aligned vectors.

    Each word gets one vector, however many pieces it has, and sentences of any length are read in full. The encoder is
    not part of `parameters()` or `state_dict()`, so a model with this layer stays small when it is saved, and no
    optimizer updates the encoder.

    Args:
        model: a loaded model, or anything that `load` accepts.
        layers: "last", "sum-last-4", "concat-last-4" and the like; see `layer_choice`.
        unit: the vector of a word's "first" piece, or the "mean" of its pieces.
        device, precision: as in `load`, if `model` is not loaded yet. The vectors are returned on the device that the
            layer was moved to with `.to(...)`, wherever the encoder runs.

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
            features = load_token_features(model, layers=layers, unit=unit, device=device, precision=precision)
        # The tuple keeps torch from registering the encoder as a submodule.
        self._features = (features,)
        self.width = self._features[0].width
        self.register_buffer("device_mark", torch.empty(0), persistent=False)

    def forward(self, sentences: Sequence[Sequence[str]]) -> tuple[Tensor, Tensor]:
        """The vectors, float32 [N, W, D], padded with zeros, and a mask of the words, bool [N, W].

        Args:
            sentences: lists of words; may be empty.

        Raises:
            InputError: `sentences` has another type.
        """
        words = checked_sentences(sentences)
        with silently():
            sentence_vectors = self._features[0].word_vectors(words)
        longest = max((len(vectors) for vectors in sentence_vectors), default=0)
        padded = torch.zeros(len(sentence_vectors), longest, self.width)
        mask = torch.zeros(len(sentence_vectors), longest, dtype=torch.bool)
        for row, vectors in enumerate(sentence_vectors):
            padded[row, : len(vectors)] = vectors
            mask[row, : len(vectors)] = True
        return padded.to(self.device_mark.device), mask.to(self.device_mark.device)
