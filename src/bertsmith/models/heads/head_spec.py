"""The description of a task head: its outputs, which hidden states it reads, and what it learns if these are vectors.

Letters: D width, K outputs of a head.
"""

import dataclasses
import functools
from typing import TYPE_CHECKING

from bertsmith.base.core.errors import ConfigError
from bertsmith.base.core.settings import require_number
from bertsmith.models.parts.head_inputs import (
    APART,
    BILSTM,
    CONCAT,
    MAX,
    OF_TWO_TEXTS,
    READER_CELLS,
    READERS,
    READS,
    VECTORS_OF_ROW,
)
from bertsmith.models.parts.part_names import DECODER, OWN_HEAD

if TYPE_CHECKING:
    from bertsmith.models.heads.own_head import OwnHead
    from bertsmith.models.parts.config import EncoderConfig

# The losses of a head whose vector is the result, see `vector_losses.py`.
OBJECTIVES = ("cosine", "cosent", "ranking", "softmax", "infersent", "triplet", "margin")
COSINE, COSENT, RANKING, SOFTMAX, INFERSENT, TRIPLET, MARGIN = OBJECTIVES
WITH_LAYER = (SOFTMAX, INFERSENT)  # whose labels a layer predicts that is left out of the model
RERANKING = "reranking"  # the kind of task whose head scores the candidates of lists
# Those of a head that scores the candidates of a list, see `list_losses.py`.
LAMBDA, RANKNET, LISTNET, POINTWISE = "lambda", "ranknet", "listnet", "pointwise"
LIST_OBJECTIVES = (LAMBDA, RANKNET, LISTNET, MARGIN, POINTWISE)

SUM = "sum"
PIECE_POOLINGS = (MAX, SUM)
RELU, LOG_RELU = PIECE_ACTIVATIONS = ("relu", "log1p_relu")  # the second has one logarithm more


# The segments of the tokens of a query that no encoder reads: of special tokens, and of those that count.
AROUND_QUERY, OF_QUERY = 2, 3


@dataclasses.dataclass(frozen=True, kw_only=True)
class PieceWeights:
    """How the logits at the tokens of a row become the weights of pieces, see `piece_weights.py`.

    Attributes:
        has_query_table: whether queries are rows of another kind, whose pieces have learned weights without the
            encoder, see `QueryTable`.
    """

    pooling: str = MAX
    activation: str = RELU
    has_query_table: bool = False


@dataclasses.dataclass(frozen=True, kw_only=True)
class SpanShape:
    """The shape of a head that scores spans, or words, for labels in the row, see `span_layers.py`.

    Attributes:
        width: of its vectors of words and labels; a linear layer is in front if the encoder has another one.
        units: H, the numbers that a word gives as the first one of a span, and as the last one; if words are scored,
            those that a word and a label give together.
        lstm_layers: of the BiLSTM over the words; 0 for none.
        label_id: the piece in front of each label.
        labels: the most labels of a row whose words are scored; 0 if spans are.
    """

    width: int
    units: int
    lstm_layers: int
    label_id: int
    labels: int = 0

    def __post_init__(self) -> None:
        for name, least in (("width", 2), ("units", 2), ("lstm_layers", 0), ("label_id", 0), ("labels", 0)):
            require_number(name, getattr(self, name), least=least)

    @property
    def outputs(self) -> int:
        """The numbers that the head gives for each position: 2H, or three for each label."""
        return 3 * self.labels if self.labels else 2 * self.units


@dataclasses.dataclass(frozen=True, kw_only=True)
class Head:
    """The head of a fine-tuned model: one linear layer, or a head that the user wrote.

    Attributes:
        outputs: K, the number of logits per position.
        pooled: whether it reads one vector per row instead of the hidden states at chosen positions.
        reads: what that vector is, one of `head_inputs.READS`; of a head that is not pooled, "bilstm" or
            "pooler", which is ignored.
        is_pair: whether a row has two texts; asked only by a head with a BiLSTM.
        is_vector: whether that vector is the result itself. `outputs` is then of a layer on the vectors of two
            rows and their difference, which only training has; 0 for none.
        pieces: how that vector, a weight for each piece of the vocabulary, is made of the logits of the masked-LM head;
            None for a vector of the encoder's width.
        token_width: of a vector for each token in place of one for each row, scaled to length 1, from a projection of
            the hidden states; 0 for none.
        has_product: whether that layer also reads their product.
        cells: of that BiLSTM, in each direction.
        layers: the hidden states that it reads, a name or numbers as in `layer_choice`; "" for the learned mix of all.
        normalized: whether each of them is first brought to mean 0 and variance 1.
        windows: what reads the vectors of all windows of a text together, one of `window_reader.WINDOW_READERS`; "" if
            each row is read by itself.
        of_sentences: whether it reads a vector of each sentence of a text, the mean from each position that is read to
            the next.
        sentence_layers: of such a head, the Transformer layers over all sentences of a text.
        layers_of_decoder: of a head that writes a text, the number of its layers; 0 for as many as the encoder has.
        shares_layers: whether these are layers of the encoder.
        copies: whether it can copy pieces of the source, see `copying.py`.
        spans: of a head that scores spans for labels in the row, its shape.
    """

    part: str
    outputs: int
    pooled: bool
    reads: str = "pooler"
    own: "type[OwnHead] | None" = None
    is_pair: bool = False
    is_vector: bool = False
    pieces: PieceWeights | None = None
    token_width: int = 0
    has_product: bool = False
    cells: int = READER_CELLS
    layers: str = ""
    normalized: bool = False
    windows: str = ""
    of_sentences: bool = False
    sentence_layers: int = 0
    layers_of_decoder: int = 0
    shares_layers: bool = False
    copies: bool = False
    spans: SpanShape | None = None

    def __post_init__(self) -> None:
        assert self.reads in (READS if self.pooled else ("pooler", BILSTM)), self.reads
        if self.own is not None:
            from bertsmith.models.heads.own_head import require_own_head

            require_own_head(self.own)
            if self.is_vector:
                raise ConfigError(
                    expected="a task with a layer on top, for a head of your own",
                    found="one that trains vectors",
                    fix="leave your head out",
                )
            if self.is_decoder:
                raise ConfigError(
                    expected="a task with a layer on top, for a head of your own",
                    found="one that writes texts",
                    fix="leave your head out",
                )
            if self.sentence_layers:
                raise ConfigError(
                    expected="a head of your own that reads each sentence by itself",
                    found="layers over the sentences, which are a head themselves",
                    fix="use --sentence-layers 0",
                )
            if self.windows:
                raise ConfigError(
                    expected="a head of your own that reads one row of each text",
                    found="--long-text hierarchical, which is a head itself",
                    fix="use --long-text windows",
                )
            if self.has_reader:
                raise ConfigError(
                    expected="a head of your own that reads vectors of the encoder (pooler, cls or mean)",
                    found=f"{self.reads!r}, which is a head itself",
                    fix="use --reads mean, or leave your head out",
                )
            if self.pooled and self.reads in VECTORS_OF_ROW:
                raise ConfigError(
                    expected="a head of your own that reads vectors of the encoder's width (pooler, cls or mean)",
                    found=f"{self.reads!r}, {VECTORS_OF_ROW[self.reads]} times as wide",
                    fix="use --reads mean, or leave your head out",
                )

    @functools.cached_property
    def is_decoder(self) -> bool:
        """Whether it writes a text, piece by piece, instead of giving logits for a row or its tokens."""
        return self.part == DECODER

    @functools.cached_property
    def on_pooler(self) -> bool:
        """Whether it reads the output of the encoder's pooler."""
        return self.pooled and self.reads == "pooler"

    def uses_pooler(self, config: "EncoderConfig") -> bool:
        """Whether the pooler of an encoder of this shape is below it, and so trained with it."""
        of_tokens = not (self.pooled or self.has_reader or self.is_decoder or self.is_vector)
        return self.on_pooler or (of_tokens and config.pools_tokens)

    @functools.cached_property
    def reads_all(self) -> bool:
        """Whether it reads every token of a row, so that the last layer computes all of them."""
        return self.pooled and self.reads in ("mean", MAX, CONCAT, *OF_TWO_TEXTS, *READERS)

    @functools.cached_property
    def reads_pairs(self) -> bool:
        """Whether it compares the two texts of a row."""
        return self.pooled and self.reads in OF_TWO_TEXTS

    @functools.cached_property
    def reads_apart(self) -> bool:
        """Whether it compares two texts that the encoder reads as sequences of their own."""
        return self.pooled and (self.reads == APART or (self.has_reader and self.is_pair))

    @functools.cached_property
    def has_blocks(self) -> bool:
        """Whether a hidden layer is in front of the output layer."""
        return self.pooled and self.reads == CONCAT

    @functools.cached_property
    def has_reader(self) -> bool:
        """Whether a BiLSTM reads hidden states in front of the output layer."""
        return self.reads in READERS

    def width(self, hidden_size: int) -> int:
        """The width of what it reads, for an encoder of width `hidden_size`."""
        if self.is_vector:
            return (3 + self.has_product) * hidden_size
        return hidden_size * (VECTORS_OF_ROW.get(self.reads, 1) if self.pooled else 1)

    @functools.cached_property
    def saved_part(self) -> str:
        """The part of a checkpoint that contains its parameters."""
        return self.part if self.own is None else OWN_HEAD
