"""Initializes a new encoder from counts in a corpus, before its first step.

A randomly initialized encoder has to learn three things in a short run that counting gives in seconds: how often each
piece occurs, which pieces occur near each other, and that the words right next to a gap matter most. So

* the bias of the masked-LM head is the logarithm of each piece's share of the corpus: the first predictions are the
  unigram model's instead of uniform ones;
* the word table holds vectors from co-occurrence statistics (`corpus.cooccurrence`);
* the position table holds sines and cosines, and in the first two layers some heads have queries and keys that use
  them to attend to a fixed neighbor: the token before, the one after, and so on.

D width, H heads, W width of a head, V pieces.

Source: log frequencies as bias: Karpathy, "A Recipe for Training Neural Networks" (2019). Word vectors: Kim (2014) and
others, with trained ones. Heads that start at a fixed offset: Cordonnier, Loukas and Jaggi (2020), and d'Ascoli et al.
(2021), "ConViT", on images; Trockman and Kolter (2023), "Mimetic initialization of self-attention layers".
"""

import math

import numpy as np
import torch

from bertsmith.base.core.progress import tell
from bertsmith.base.core.randomness import generator
from bertsmith.base.processes.sharding import whole_parameters
from bertsmith.models.heads.encoder_with_head import EncoderForPreTraining
from bertsmith.models.heads.piece_heads import MaskedLMHead
from bertsmith.models.parts.part_names import PREFIX
from bertsmith.models.parts.transformer import Layer, TransformerEncoder
from bertsmith.text.corpus.cooccurrence import cooccurrences, ppmi, reduced
from bertsmith.text.corpus.shards import Corpus

WORD_SCALE = 0.1  # root mean square of the entries of the word table
# The same next to fixed sines and cosines, whose root mean square is 0.7: smaller words drown in them, and larger ones
# hide the order. With 0.1, 0.3 and 0.7, tiny models have held-out losses of 5.71, 5.53 and 5.52 nats after 150 steps;
# fine-tuned, they tell shuffled sentences from others in 66, 87 and 63 % of the cases (two seeds).
SCALE_WITH_SINES = 0.3
POSITION_SCALE = 1.0  # length of a position vector, as a fraction of that of a word vector
SHARPNESS = 0.8  # of the neighbor heads: the length of each row of their queries and keys
FASTEST, SLOWEST = math.pi / 2, math.pi / 64  # radians per token of the sines and cosines
# The neighbor of each head: of all heads (at most eight) in the first layer, and of half of them in the second.
NEIGHBORS = (-1, 1, -2, 2, -3, 3, -4, 4)
_CHANGED = ("mlm.", f"{PREFIX}embeddings.", f"{PREFIX}layers.0.", f"{PREFIX}layers.1.")  # the names of what is set


@torch.no_grad()
def initialize_from_corpus(model: EncoderForPreTraining, corpus: Corpus, seed: int) -> None:
    """Sets the bias, the word table, the position table and the neighbor heads of a new model.

    Parameters that the corpus says nothing about keep their random initialization, as do vectors of pieces that never
    occur. Without learned positions, or with a projection above them, there are no neighbor heads. Next to
    fixed sines the vectors are larger, and the norm of the masked-LM head, which is multiplied with them, is
    smaller in return.
    """
    with whole_parameters(model, *_CHANGED):
        _initialize(model, corpus, seed)


def _initialize(model: EncoderForPreTraining, corpus: Corpus, seed: int) -> None:
    counts = corpus.token_counts().astype(np.float64) + 1
    if model.config.piece_head not in ("tied", "untied"):  # which have no bias
        model.mlm.get_parameter("bias").copy_(torch.from_numpy(np.log(counts / counts.sum())))
    if model.config.two_directions:  # the vectors of its pieces are computed, and each direction reads the other way
        tell("initialized from the corpus: piece frequencies")
        return
    table = model.encoder.word_table
    width = table.shape[1]
    reduced_vectors = reduced(ppmi(cooccurrences(corpus)), width, generator(seed, "word vectors"))
    is_fixed = model.config.position_embedding_type == "sinusoidal"
    scale = SCALE_WITH_SINES if is_fixed else WORD_SCALE
    vectors = torch.from_numpy(reduced_vectors).mul_(scale * math.sqrt(width)).to(table.device)
    if is_fixed and isinstance(model.mlm, MaskedLMHead):
        model.mlm.norm.weight.mul_(WORD_SCALE / scale)  # the first scores of the pieces stay as small
    is_known = vectors.abs().sum(dim=1, keepdim=True) > 0
    table.copy_(torch.where(is_known, vectors, table))
    has_table = model.config.position_embedding_type == "absolute" and not model.config.projects_embeddings
    if has_table and isinstance(model.encoder, TransformerEncoder):
        _attend_to_neighbors(model, seed)
        tell("initialized from the corpus: word vectors, piece frequencies, heads that attend to neighbors")
    else:
        tell("initialized from the corpus: word vectors and piece frequencies")


def _attend_to_neighbors(model: EncoderForPreTraining, seed: int) -> None:
    """Sets the position table, and in some heads queries and keys so that each token attends to a fixed neighbor.

    A position p is the vector of sin(w p) and cos(w p) for W / 2 rates w, in directions of its own. The query of a
    head with offset k turns it by w k, so its product with the key of position q is the sum of cos(w (p + k - q)),
    which is largest at q = p + k.
    """
    encoder = model.encoder
    assert isinstance(encoder, TransformerEncoder)
    config = encoder.config
    width, heads = config.hidden_size, config.num_attention_heads
    of_head = width // heads
    half = of_head // 2
    if half == 0:
        return
    drawn = generator(seed, "position directions").standard_normal((width, width))
    directions = torch.from_numpy(np.linalg.qr(drawn)[0]).float()[: 2 * half]  # orthonormal, [2 half, D]
    directions = directions - directions.mean(dim=1, keepdim=True)  # the norm after the sum removes the mean
    of_sines, of_cosines = directions[:half], directions[half:]
    rates = FASTEST * (SLOWEST / FASTEST) ** (torch.arange(half) / max(1, half - 1))
    table = encoder.embeddings.position.weight
    angles = torch.arange(table.shape[0])[:, None] * rates
    positions = angles.sin() @ of_sines + angles.cos() @ of_cosines
    length = encoder.word_table.norm(dim=1).mean().cpu() * POSITION_SCALE
    table.copy_(positions * (length / math.sqrt(half)))
    # A left-to-right model sees nothing on its right.
    offsets = [-distance for distance in range(1, len(NEIGHBORS) + 1)] if config.is_causal else NEIGHBORS
    for number, layer in enumerate(encoder.layers[:2]):
        assert isinstance(layer, Layer)
        for head, offset in enumerate(offsets[: heads if number == 0 else heads // 2]):
            turned_sine, turned_cosine = (rates * offset).sin()[:, None], (rates * offset).cos()[:, None]
            rows = slice(head * of_head, head * of_head + 2 * half)  # of an odd width, the last row stays
            query = torch.cat(
                [
                    turned_cosine * of_sines + turned_sine * of_cosines,
                    turned_cosine * of_cosines - turned_sine * of_sines,
                ]
            )
            layer.query.weight[rows].copy_(query * SHARPNESS)
            layer.key.weight[rows].copy_(torch.cat([of_sines, of_cosines]) * SHARPNESS)
