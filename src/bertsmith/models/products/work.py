"""The arithmetic that a Transformer needs: floating-point operations of its matrix products, by part.

Letters: T tokens of a batch, R positions that its last layer computes, s and r tokens and queries of a sequence,
M predicted positions, D width, I inner width, V vocabulary, L layers.

A product of [a, b] and [b, c] counts 2abc. Only products count (not norms, activations, softmax, or the optimizer),
and only those that are needed: the last layer computes queries, attention output and feed-forward for R positions, and
the head M positions. What a step leaves out is not work, so leaving it out cannot raise the utilization of a device.
A backward pass needs twice the products of the forward pass, one for the inputs and one for the weights.

For BERT, a forward pass is 2 (4 D^2 + 2 D I) per token and layer, 4 D sum(r s) per layer, 2 (D^2 + D V) per prediction.

Source: Kaplan et al. (2020), "Scaling Laws for Neural Language Models", section 2.1; Chowdhery et al. (2022), "PaLM",
appendix B, for the utilization.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from torch import nn

from bertsmith.models.parts.encoder import Encoder
from bertsmith.models.parts.transformer import TransformerEncoder

PASSES = 3  # of a training step, in forward passes: one forward, and twice its products backward


@dataclass(frozen=True, kw_only=True)
class Work:
    """Floating-point operations by part."""

    layers: float = 0.0
    attention: float = 0.0
    head: float = 0.0

    @property
    def total(self) -> float:
        """Of all parts."""
        return self.layers + self.attention + self.head

    def __add__(self, other: "Work") -> "Work":
        """The work of both."""
        return Work(
            layers=self.layers + other.layers, attention=self.attention + other.attention, head=self.head + other.head
        )

    def times(self, factor: float) -> "Work":
        """That number of times this work."""
        return Work(layers=self.layers * factor, attention=self.attention * factor, head=self.head * factor)


def forward_work(
    encoder: Encoder,
    head: nn.Module | None,
    lengths: npt.NDArray[np.integer],
    queries: npt.NDArray[np.integer],
    predictions: int,
) -> Work | None:
    """The work of a forward pass; None for an encoder that is not a Transformer."""
    if not isinstance(encoder, TransformerEncoder):
        return None
    tokens, read = int(lengths.sum()), int(queries.sum())
    layers = attention = 0.0
    if encoder.config.projects_embeddings:
        layers += 2 * tokens * encoder.config.hidden_size * encoder.config.embedding_width
    for number, layer in enumerate(encoder.stack, start=1):
        is_last = number == len(encoder.stack)
        asking = read if is_last else tokens
        of_queries = (layer.query, layer.attention_output, layer.intermediate, layer.output)
        layers += 2 * asking * sum(part.weight.numel() for part in of_queries)
        layers += 2 * asking * layer.multiplier.weight.numel() if encoder.config.gates_apart else 0
        layers += 2 * tokens * (layer.key.weight.numel() + layer.value.weight.numel())
        seen = lengths if layer.window is None else np.minimum(lengths, 2 * layer.window + 1)
        attention += 4 * encoder.config.hidden_size * float(((queries if is_last else lengths) * seen).sum())
    per_prediction = 0
    if head is not None and predictions:
        per_prediction = 0 if encoder.config.piece_head == "untied" else encoder.word_table.numel()
        per_prediction += sum(part.numel() for part in head.parameters() if part.dim() == 2)
    return Work(layers=layers, attention=attention, head=2 * predictions * per_prediction)
