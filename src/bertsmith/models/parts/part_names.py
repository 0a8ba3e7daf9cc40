"""Our own names of parameters, the same for every architecture, and of the parts of a model that they belong to.

The names of the encoder begin with `bert.` in every model with heads, because run folders and optimizer states have
recorded them so since the first version. The rest of a name says which part of the model it belongs to.
"""

PREFIX = "bert."  # of the encoder's names
OWN_HEAD = "own_head"  # the part of a head that the user wrote
BLOCKS = "blocks"  # the hidden layer of a head that reads "concat"
READER = "reader"  # what is between the encoder and the output layer of a head with a BiLSTM
DECODER = "decoder"  # a head that writes a text, `models/heads/decoder.py`
PROJECTION = "projection"  # from a student's width to its teacher's: trained with a model, and never stored with it
TOKEN_PROJECTION = "token_projection"  # from an encoder's width to that of the vectors of tokens
QUERY_TABLE = "query_table"  # the weights of the pieces of queries, which no encoder reads
PARTS = (
    *("pooler", "mlm", "nsp", "classifier", "span", BLOCKS, READER, DECODER, OWN_HEAD, PROJECTION, TOKEN_PROJECTION),
    QUERY_TABLE,
)


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
