"""Our own names of parameters, the same for every architecture, of attention scores, and of losses of vectors.

The names of the encoder begin with `bert.` in every model with heads, because run folders and optimizer states have
recorded them so since the first version. The rest of a name says which part of the model it belongs to.
"""

from bertsmith.base.core.errors import ConfigError

PREFIX = "bert."  # of the encoder's names
OWN_HEAD = "own_head"  # the part of a head that the user wrote
# The input of a head on whole rows.
PAIR = "pair"  # a comparison of the means of two texts that the encoder reads together, `row_vectors.pair_of_rows`
APART = "apart"  # the same of two texts that the encoder reads one by one, `row_vectors.apart_of_rows`
CONCAT = "concat"  # the position that represents the row, the maximum and the mean of all tokens, `head_blocks.py`
BILSTM = "bilstm"  # a BiLSTM over all hidden states, `sentence_reader.py`
ATTENTION = "bilstm-attention"  # the same, with attention between two texts
MAX = "max"  # the maximum over all tokens; for vectors of texts, which have no layer on top
OF_TWO_TEXTS = (PAIR, APART)
READERS = (BILSTM, ATTENTION)
READS = (
    "pooler",  # the pooler on top of the position that represents the row, `Encoder.read_of_rows`
    "cls",  # the hidden state of that position
    "mean",  # the mean of the last hidden states over all tokens, special ones included
    *OF_TWO_TEXTS,
    CONCAT,
    *READERS,
    MAX,
)
VECTORS_OF_PAIR = 4
VECTORS_OF_ROW = {PAIR: VECTORS_OF_PAIR, APART: VECTORS_OF_PAIR, CONCAT: 3}  # of the encoder's width; else one
BLOCKS = "blocks"  # the hidden layer of a head that reads "concat"
HIDDEN_UNITS = 50
READER = "reader"  # what is between the encoder and the output layer of a head with a BiLSTM
READER_UNITS, READER_CELLS = 512, 1500
DECODER = "decoder"  # a head that writes a text, `models/heads/decoder.py`
EXTRACTION = "extraction"  # the kind of task whose head reads the sentences of a text
COREFERENCE = "coreference"  # that whose head reads a pronoun and the names that it may refer to
# What of a model of these kinds nothing else computes.
ONLY_HERE = {EXTRACTION: "a head on the sentences of a text", COREFERENCE: "scores of pairs of mentions in a text"}
PROJECTION = "projection"  # from a student's width to its teacher's: trained with a model, and never stored with it
SCORES = ("dot", "general", "concat")  # of attention with any score, `scored_attention.py`
# What a loss of the vectors of texts compares; see `tasks.specs.similarity` for what each of them needs.
OBJECTIVES = ("cosine", "cosent", "ranking", "softmax", "infersent", "triplet", "margin")
COSINE, COSENT, RANKING, SOFTMAX, INFERSENT, TRIPLET, MARGIN = OBJECTIVES
WITH_LAYER = (SOFTMAX, INFERSENT)  # whose labels a layer predicts that is left out of the model
NO_TEXT = -1  # the id of a text that a unit does not have
PARTS = ("pooler", "mlm", "nsp", "classifier", "span", BLOCKS, READER, DECODER, OWN_HEAD, PROJECTION)


def with_prefix(ours: str) -> str:
    """Our name with the prefix of the encoder, whether it was there or not.

    >>> with_prefix("layers.0.query.bias"), with_prefix("bert.pooler.bias"), with_prefix("mlm.bias")
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
