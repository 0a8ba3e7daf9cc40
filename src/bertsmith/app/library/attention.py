"""Attention weights of every head and layer of an encoder, for one text or pair.

Letters: L layers, A heads, s tokens of the row.

The result has L*A*s*s numbers, so rows are limited to 128 tokens; a longer text is an error, never truncated.
"""

import dataclasses
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from bertsmith.base.core.errors import InputError
from bertsmith.base.core.finite import require_finite
from bertsmith.models.parts.batch import Batch
from bertsmith.models.parts.encoder import Trace
from bertsmith.tasks.datasets.examples import TextExample
from bertsmith.tasks.encoding.frozen import FrozenEncoder
from bertsmith.tasks.specs.tokenized import encoded_texts, tokens_of_rows
from bertsmith.text.tokenizers.pack import pack_rows

MOST_TOKENS = 128
DIGITS = 4  # after the decimal point, in JSON


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Attention:
    """The tokens of the row [CLS] text [SEP], or [CLS] text [SEP] pair [SEP], and their attention weights.

    Attributes:
        pieces: s pieces.
        segments: s segment ids: 0 for the text, 1 for the pair.
        special: whether each piece is a special token.
        weights: float64 [L, A, s, s]; `weights[l, h, i, j]` is the attention from piece i to piece j in head h of
            layer l. Each row over j sums to 1.
    """

    pieces: tuple[str, ...]
    segments: tuple[int, ...]
    special: tuple[bool, ...]
    weights: npt.NDArray[np.float64]

    def to_dict(self) -> dict[str, Any]:
        """The values to write as JSON: the weights as lists [L][A][s][s], rounded to four decimal places."""
        return {**self.shape(), "attention": list(self.layers())}

    def shape(self) -> dict[str, Any]:
        """The values of `to_dict` without the weights."""
        return {
            "pieces": list(self.pieces),
            "segments": list(self.segments),
            "special": list(self.special),
            "layers": self.weights.shape[0],
            "heads": self.weights.shape[1],
        }

    def layers(self) -> Iterator[Any]:
        """The weights of `to_dict`, layer by layer: as lists, they take eight times as much memory."""
        return (np.round(layer, DIGITS).tolist() for layer in self.weights)


@torch.inference_mode()
def attention_of(encoder: FrozenEncoder, example: TextExample) -> Attention:
    """The attention weights of an encoder over a text or pair.

    Args:
        example: tokenized, at most 128 tokens, [CLS] and [SEP] included, or the model's limit if that is less.

    Raises:
        InputError: a text is empty, or there are too many tokens.
        NotFiniteError: the weights are not finite.
    """
    for name, text in zip(("text", "pair"), example.texts, strict=False):
        if not text.strip():
            raise InputError(expected=f"a non-empty {name}", found="an empty one", fix="give some text")
    limit = min(MOST_TOKENS, encoder.model.max_tokens)
    (tokens,) = tokens_of_rows(example, encoder.tokenizer.template)
    if tokens > limit:
        raise InputError(
            expected=f"at most {limit} tokens for the attention view, [CLS] and [SEP] included",
            found=f"{tokens}",
            fix="shorten the text",
        )
    vocabulary = encoder.tokenizer.vocabulary
    rows = pack_rows(
        *(encoded_texts([example], encoder.tokenizer).split([1] * len(example.texts))),
        template=encoder.tokenizer.template,
        max_length=limit,
        model_limit=limit,
        truncation="error",
    )
    device, dtype = encoder.runtime.torch_device, encoder.runtime.dtype
    batch = Batch.from_flat(rows.token_ids, rows.segment_ids, rows.lengths, device=device)
    trace = Trace(with_attentions=True)
    encoder.model(batch, dtype=dtype, trace=trace)
    weights = torch.stack([layer[0] for layer in trace.attentions]).double().cpu().numpy()
    require_finite(weights, lambda layer: 0)
    return Attention(
        pieces=tuple(vocabulary.pieces[id] for id in rows.token_ids.tolist()),
        segments=tuple(rows.segment_ids.tolist()),
        special=tuple(id in vocabulary.special_ids for id in rows.token_ids.tolist()),
        weights=weights,
    )
