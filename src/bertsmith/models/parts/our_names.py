"""Our own names of parameters, the same for every architecture, of attention scores, and of losses of vectors.

The names of the encoder begin with `bert.` in every model with heads, because run folders and optimizer states have
recorded them so since the first version. The rest of a name says which part of the model it belongs to.
"""

from bertsmith.base.core.errors import ConfigError

PREFIX = "bert."  # of the encoder's names
OWN_HEAD = "own_head"  # the part of a head that the user wrote
# What a head of whole rows reads: the pooler on top of the position that represents the row (`Encoder.read_of_rows`),
# the hidden state of that position, the mean of the last hidden states over all tokens, special ones included, or for
# rows of two texts four vectors that compare the means of both, which the encoder reads together in one row ("pair",
# `row_vectors.pair_of_rows`) or each by itself ("apart", `row_vectors.apart_of_rows`), or that position, the maximum
# and the mean over all tokens, with a hidden layer on top ("concat", `head_blocks.py`), or what a BiLSTM makes of all
# hidden states, with attention between two texts or without ("bilstm-attention", "bilstm", `sentence_reader.py`). The
# maximum over all tokens alone ("max") is for vectors of texts, which have no layer on top.
PAIR, APART, CONCAT = "pair", "apart", "concat"
OF_TWO_TEXTS = (PAIR, APART)
BILSTM, ATTENTION = "bilstm", "bilstm-attention"
READERS = (BILSTM, ATTENTION)
MAX = "max"
READS = ("pooler", "cls", "mean", *OF_TWO_TEXTS, CONCAT, *READERS, MAX)
VECTORS_OF_PAIR = 4
VECTORS_OF_ROW = {PAIR: VECTORS_OF_PAIR, APART: VECTORS_OF_PAIR, CONCAT: 3}  # of the encoder's width; else one
BLOCKS = "blocks"  # the hidden layer of a head that reads "concat"
HIDDEN_UNITS = 50
READER = "reader"  # what is between the encoder and the output layer of a head with a BiLSTM
READER_UNITS, READER_CELLS = 512, 1500
PROJECTION = "projection"  # from a student's width to its teacher's: trained with a model, and never stored with it
SCORES = ("dot", "general", "concat")  # of attention with any score, `scored_attention.py`
# What a loss of the vectors of texts compares; see `tasks.specs.similarity` for what each of them needs.
OBJECTIVES = ("cosine", "cosent", "ranking", "softmax", "infersent", "triplet", "margin")
COSINE, COSENT, RANKING, SOFTMAX, INFERSENT, TRIPLET, MARGIN = OBJECTIVES
WITH_LAYER = (SOFTMAX, INFERSENT)  # whose labels a layer predicts that is left out of the model
NO_TEXT = -1  # the id of a text that a unit does not have
PARTS = ("pooler", "mlm", "nsp", "classifier", "span", BLOCKS, READER, OWN_HEAD, PROJECTION)


def whole(ours: str) -> str:
    """Our name with the prefix of the encoder, whether it was there or not.

    >>> whole("layers.0.query.bias"), whole("bert.pooler.bias"), whole("mlm.bias")
    ('bert.layers.0.query.bias', 'bert.pooler.bias', 'mlm.bias')
    """
    return PREFIX + ours if ours.startswith(("embeddings.", "layers.", "final_norm.", "pooler.")) else ours


def plain(ours: str) -> str:
    """Our name without the prefix of the encoder, as the encoder alone has it.

    >>> plain("bert.layers.0.query.bias")
    'layers.0.query.bias'
    """
    return ours.removeprefix(PREFIX)


def part_of(ours: str) -> str | None:
    """The part that a parameter belongs to; None for embeddings and layers.

    >>> part_of("bert.pooler.bias"), part_of("mlm.norm.weight"), part_of("bert.embeddings.norm.weight")
    ('pooler', 'mlm', None)
    """
    first = plain(ours).split(".")[0]
    return first if first in PARTS else None


def require_score(name: str) -> str:
    """The name of an attention score, checked."""
    if name not in SCORES:
        raise ConfigError.unknown("score", name, SCORES)
    return name
