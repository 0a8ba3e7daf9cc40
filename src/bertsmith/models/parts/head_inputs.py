"""The inputs of heads, by name: how the states of an encoder become what a head reads; and the scores of attention."""

import string

from bertsmith.base.core.errors import ConfigError

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
SKIPPED_PIECES = tuple(string.punctuation)  # of texts, where each token has a vector; these have none
MARKERS = ("[unused0]", "[unused1]")  # pieces in front of queries and of documents, as in the original ColBERT
VECTORS_OF_PAIR = 4
VECTORS_OF_ROW = {PAIR: VECTORS_OF_PAIR, APART: VECTORS_OF_PAIR, CONCAT: 3}  # of the encoder's width; else one
HIDDEN_UNITS, BLOCKS_EPSILON = 50, 1e-5  # of a head that reads "concat"; the latter of its norms
READER_UNITS, READER_CELLS = 512, 1500  # of a head with a BiLSTM
SCORES = ("dot", "general", "concat")  # of attention with any score, `scored_attention.py`


def require_score(name: str) -> str:
    """The name of an attention score, checked."""
    if name not in SCORES:
        raise ConfigError.unknown("score", name, SCORES)
    return name
