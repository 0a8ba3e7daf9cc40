"""The configuration of an encoder, with the field names of the `config.json` that BERT was published with.

No torch is imported here, so that reading and checking a configuration and counting its parameters stay cheap.

Source: Devlin et al. (2018), section 3; `BertConfig` in the original modeling.py; the released small models.
"""

import dataclasses
import functools
from collections.abc import Mapping
from typing import Any, ClassVar, Self, get_args, get_type_hints

from bertsmith.base.core.errors import ConfigError
from bertsmith.base.core.registry import imported
from bertsmith.base.core.settings import help_field, require, require_known, require_number, require_value, to_dict

QUICK_GELU_RATE = 1.702
ACTIVATIONS = ("gelu", "gelu_new", "relu", "silu", "quick_gelu", "tanh", "linear")
# Other names of the same functions in `transformers`; some of them round differently in the last digits.
SAME_ACTIVATIONS = {
    "gelu_python": "gelu",
    "gelu_pytorch_tanh": "gelu_new",
    "gelu_python_tanh": "gelu_new",
    "gelu_accurate": "gelu_new",
    "gelu_fast": "gelu_new",
    "swish": "silu",
}
# See `EncoderConfig.fixed`; of every architecture.
_FIXED: Mapping[str, Any] = {"add_cross_attention": False, "pruned_heads": {}}
POSITIONS = ("absolute", "sinusoidal", "none")
# The linear layers of an encoder layer; `multiplier` is only in some that are gated.
LINEAR_LAYERS = ("query", "key", "value", "attention_output", "intermediate", "multiplier", "output")

# layers, width, heads, feed-forward width
NAMED_SIZES = {
    "tiny": (2, 128, 2, 512),
    "mini": (4, 256, 4, 1024),
    "small": (4, 512, 8, 2048),
    "medium": (8, 512, 8, 2048),
    "base": (12, 768, 12, 3072),
    "large": (24, 1024, 16, 4096),
    # the encoder of Vaswani et al. (2017), for comparison
    "transformer-2017": (6, 512, 8, 2048),
}


_ANY_LENGTH = 1_000_000  # tokens; a limit only for what allocates memory by it
_TYPE_WORDS = {int: "a whole number", float: "a number", bool: "true or false", str: "a text"}


@dataclasses.dataclass(frozen=True, kw_only=True)
class EncoderConfig:
    """The shape of a Transformer encoder; an architecture is a subclass."""

    model_type: ClassVar[str] = ""
    display_name: ClassVar[str] = ""
    # Fields with another name in the architecture's `config.json`, and fields that it does not have.
    json_names: ClassVar[Mapping[str, str]] = {}
    omitted: ClassVar[frozenset[str]] = frozenset()
    optional: ClassVar[frozenset[str]] = frozenset()  # counts that may be 0
    # Keys of `config.json` that change what other tools compute, with the one value that is followed here; none counts.
    fixed: ClassVar[Mapping[str, Any]] = {}
    # Values in place of our defaults for keys that a `config.json` does not have, as `transformers` has them.
    absent: ClassVar[Mapping[str, Any]] = {}
    pooler_activation: ClassVar[str] = "tanh"
    head_activation: ClassVar[str] = ""  # in the masked-LM head; by default that of the layers
    has_next_sentence: ClassVar[bool] = False
    has_pooler: ClassVar[bool] = True  # of its own; otherwise each head that needs one trains one
    can_pool: ClassVar[bool] = True  # without it, what reads the pooler reads the state of the row instead
    norms_embeddings: ClassVar[bool] = True
    scales_embeddings: ClassVar[bool] = False  # word vectors are multiplied by the square root of their width
    has_biases: ClassVar[bool] = True  # of linear layers and norms
    without_bias: ClassVar[frozenset[str]] = frozenset()  # linear layers of a layer that have none all the same
    centers_norms: ClassVar[bool] = True  # norms subtract the mean; otherwise they only divide, and have no bias
    has_equal_layers: ClassVar[bool] = True  # any layer can take the place of another one
    norms_first: ClassVar[bool] = False  # norms are in front of attention and the feed-forward network, not after them
    norms_last: ClassVar[bool] = False  # a norm follows the last layer
    is_gated: ClassVar[bool] = False  # the inner states are multiplied by as many other ones
    gates_apart: ClassVar[bool] = False  # a layer of its own computes these, instead of half of the inner layer
    drops_inner: ClassVar[bool] = False  # there is dropout on the inner states
    pools_tokens: ClassVar[bool] = False  # what reads single tokens, too, reads them through the pooler
    norms_pooler: ClassVar[bool] = False
    always_causal: ClassVar[bool] = False  # a language model, which reads from left to right only
    two_directions: ClassVar[bool] = False  # a forward and a backward language model
    is_recurrent: ClassVar[bool] = False  # its memory has the same size however much was read
    has_attention: ClassVar[bool] = True
    spells_pieces: ClassVar[bool] = False  # its input is how a WordPiece is spelled
    is_static: ClassVar[bool] = False  # the vector of a token does not depend on its neighbors
    names: ClassVar[str] = ""  # the table of parameter names that counts them, if the layers are not BERT's
    # Whether `transformers` has this architecture, and whether it can be written as an ONNX graph.
    in_transformers: ClassVar[bool] = True
    has_graph: ClassVar[bool] = True
    piece_head: ClassVar[str] = "transform"  # how it scores pieces, one of `models.PIECE_HEADS`
    # Layers, width, heads and feed-forward width of the named sizes.
    sizes: ClassVar[Mapping[str, tuple[int, int, int, int]]] = NAMED_SIZES

    vocab_size: int = help_field(30522, "pieces in the vocabulary")
    hidden_size: int = help_field(768, "width of the hidden states")
    num_hidden_layers: int = help_field(12, "encoder layers")
    num_attention_heads: int = help_field(12, "attention heads; must divide hidden_size")
    intermediate_size: int = help_field(3072, "width of the feed-forward network, usually 4 times hidden_size")
    hidden_act: str = help_field(
        "gelu",
        "activation: gelu (exact, erf), gelu_new (tanh approximation), relu, silu, quick_gelu, tanh or linear (none)",
    )
    hidden_dropout_prob: float = help_field(0.1, "dropout on the embeddings and on both residual branches")
    attention_probs_dropout_prob: float = help_field(0.1, "dropout on the attention probabilities")
    max_position_embeddings: int = help_field(512, "longest sequence, in tokens")
    type_vocab_size: int = help_field(2, "segments")
    initializer_range: float = help_field(0.02, "standard deviation of the truncated normal for initialization")
    classifier_dropout: float | None = help_field(
        None, "dropout before a classifier [that of the hidden states]; a span head of BERT has none"
    )
    layer_norm_eps: float = help_field(1e-12, "added to the variance inside the square root")
    pad_token_id: int = help_field(0, "id of [PAD]; only for other tools, because batches here have no padding")
    position_embedding_type: str = help_field("absolute", "position embeddings: absolute (learned), sinusoidal or none")
    is_causal: bool = help_field(False, "each token sees only the tokens to its left (the left-to-right model)")

    def __post_init__(self) -> None:
        if isinstance(self.hidden_act, str):
            object.__setattr__(self, "hidden_act", SAME_ACTIVATIONS.get(self.hidden_act, self.hidden_act))
        for name in (
            "vocab_size",
            "hidden_size",
            "num_hidden_layers",
            "num_attention_heads",
            "intermediate_size",
            "max_position_embeddings",
            "type_vocab_size",
        ):
            if name in self.omitted and name in ("type_vocab_size", "num_hidden_layers"):
                continue  # of which there may be none
            if name in self.optional and getattr(self, name) == 0:
                continue
            value = getattr(self, name)
            is_count = isinstance(value, int) and not isinstance(value, bool) and value > 0
            require_value(is_count, name, "a whole number above 0", value)
        self._require_types()
        require(
            self.max_tokens > 0,
            expected=f"max_position_embeddings above {self.first_position}, the position of the first token",
            found=self.max_position_embeddings,
            fix="raise it",
        )
        require(
            self.hidden_size % self.num_attention_heads == 0,
            expected="hidden_size divisible by num_attention_heads",
            found=f"{self.hidden_size} and {self.num_attention_heads}",
            fix="change one of them",
        )
        for name in (field.name for field in dataclasses.fields(self) if "dropout" in field.name):
            require_number(name, getattr(self, name), least=0, below=1)
        for name in ("initializer_range", "layer_norm_eps"):
            require_number(name, getattr(self, name), above=0, most=1)
        is_piece, limits = 0 <= self.pad_token_id < self.vocab_size, f"the id of one of {self.vocab_size} pieces"
        require_value(is_piece, "pad_token_id", limits, self.pad_token_id)
        for name, known in (("hidden_act", ACTIVATIONS), ("position_embedding_type", POSITIONS)):
            require_known(name, getattr(self, name), known)

    def _require_types(self) -> None:
        """Checks that every field has the type of its annotation, which JSON may not have."""
        hints = get_type_hints(type(self))
        for name in (field.name for field in dataclasses.fields(self)):
            value, kinds = getattr(self, name), get_args(hints[name]) or (hints[name],)
            fits = isinstance(value, (*kinds, int) if float in kinds else kinds)
            fits = fits and (bool in kinds or not isinstance(value, bool))
            require_value(fits, name, _TYPE_WORDS[kinds[0]], value)

    @property
    def head_size(self) -> int:
        """Width of one attention head."""
        return self.hidden_size // self.num_attention_heads

    @property
    def attention_maps(self) -> int:
        """The heads of all layers, each with a matrix of attention weights; 0 without attention."""
        return self.num_hidden_layers * self.num_attention_heads if self.has_attention else 0

    @functools.cached_property
    def embedding_width(self) -> int:
        """Width of the embeddings; if the hidden states have another, a projection follows."""
        return self.hidden_size

    @functools.cached_property
    def projects_embeddings(self) -> bool:
        """Whether a linear layer leads from the embeddings to the hidden states."""
        return self.embedding_width != self.hidden_size

    @property
    def num_distinct_layers(self) -> int:
        """The number of layers with parameters of their own; fewer than the layers if these share them."""
        return self.num_hidden_layers

    def parameters_of(self, layer: int) -> int:
        """The number of the distinct layer whose parameters a layer uses, both counted from 0."""
        return layer

    def window_of(self, layer: int) -> int | None:
        """How far a query of a layer, counted from 0, sees, in tokens on each side; None if it sees the whole row."""
        return None

    def rotary_base_of(self, layer: int) -> float | None:
        """The base of the rotary positions of a layer, counted from 0; None if it has none."""
        return None

    @property
    def rotary_factor(self) -> float:
        """What rotary positions are divided by."""
        return 1.0

    @property
    def key_width(self) -> int:
        """Width of keys and values; where it is smaller than that of queries, several heads share theirs."""
        return self.hidden_size

    @property
    def attended_dropout(self) -> float:
        """The dropout on the result of attention."""
        return self.hidden_dropout_prob

    @property
    def head_act(self) -> str:
        """The activation in the masked-LM head."""
        return self.head_activation or self.hidden_act

    @property
    def pooler_act(self) -> str:
        """The activation of the pooler."""
        return self.pooler_activation

    @property
    def pooled_dropout(self) -> float:
        """The dropout on what the pooler reads in the head of a task."""
        return 0.0

    @property
    def pools_mean(self) -> bool:
        """Whether the pooler reads the mean of all tokens of a row, instead of the position that represents it."""
        return False

    @property
    def pools_first(self) -> bool:
        """Whether that mean is of what the pooler makes of each token, instead of what the pooler reads."""
        return False

    @functools.cached_property
    def first_position(self) -> int:
        """The row of the position table for the first token of a row."""
        return 0

    @functools.cached_property
    def embedding_dropout(self) -> float:
        """The dropout on the embeddings."""
        return self.hidden_dropout_prob

    @functools.cached_property
    def max_tokens(self) -> int:
        """The maximum number of tokens in a row; without a field for it, nothing in the model limits it."""
        if "max_position_embeddings" in self.omitted:
            return _ANY_LENGTH
        return self.max_position_embeddings - self.first_position

    @property
    def axes(self) -> dict[str, int]:
        """The sizes that letters stand for in the shapes of `ParameterNames`."""
        return {
            "V": self.vocab_size,
            "P": self.max_position_embeddings,
            "S": self.type_vocab_size,
            "D": self.hidden_size,
            "E": self.embedding_width,
            "I": self.intermediate_size,
        }

    @property
    def shape_in_words(self) -> str:
        """Layers and widths, for people to read."""
        heads = f"{self.num_attention_heads} attention heads" if self.has_attention else "without attention"
        return f"{self.num_hidden_layers} layers, width {self.hidden_size}, {heads}"

    @property
    def reads_backward(self) -> bool:
        """Whether rows are read from right to left."""
        return False

    @classmethod
    def dropout_changes(cls, probability: float) -> dict[str, float | None]:
        """The fields that set the dropout of the encoder to this rate."""
        return dict.fromkeys(("hidden_dropout_prob", "attention_probs_dropout_prob"), probability)

    @classmethod
    def direction_changes(cls, *, backward: bool) -> dict[str, str]:
        """The fields that set the direction of reading; none if there is only one."""
        return {}

    def head_dropout(self, part: str, *, pooled: bool) -> float:
        """The dropout before a head; a span head of BERT has none."""
        if part == "span":
            return 0.0
        return self.hidden_dropout_prob if self.classifier_dropout is None else self.classifier_dropout

    @classmethod
    def named(cls, name: str, **changes: Any) -> Self:
        """The configuration of a named size; BERT's are tiny, mini, small, medium, base, large.

        >>> BertConfig.named("base").num_parameters()
        109482240
        >>> BertConfig.named("large").num_parameters()
        335141888
        """
        require(
            bool(cls.sizes),
            expected="an architecture with named sizes",
            found=cls.display_name,
            fix="describe the model with a config.json, or use another architecture",
        )
        if name not in cls.sizes:
            raise ConfigError.unknown("model size", name, cls.sizes)
        layers, width, heads, inner = cls.sizes[name]
        shape = {
            "num_hidden_layers": layers,
            "hidden_size": width,
            "num_attention_heads": heads,
            "intermediate_size": inner,
        }
        return cls(**{**shape, **changes})

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """The configuration in a `config.json`; keys of other tools are ignored."""
        require(
            isinstance(values, Mapping),
            expected="a JSON object with the fields of a configuration",
            found=type(values).__name__,
            fix="use the config.json of a model",
        )
        kind = values.get("model_type", cls.model_type)
        require(
            kind == cls.model_type,
            expected=f"model_type '{cls.model_type}'",
            found=repr(kind),
            fix=f"use the folder of a {cls.model_type} model",
        )
        for name, usual in {**_FIXED, **cls.fixed}.items():
            value = values.get(name)
            require(
                value is None or (value == usual and isinstance(value, bool) == isinstance(usual, bool)),
                expected=f"{name} {usual} in the configuration of a {cls.display_name}",
                found=repr(value)[:60],
                fix="use another model",
            )
        names = {cls.json_names.get(field.name, field.name): field.name for field in dataclasses.fields(cls)}
        taken = {
            names[key]: value
            for key, value in values.items()
            if key in names and value is not None and names[key] not in cls.omitted
        }
        taken = {**cls.absent, **taken}
        for name in ("vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size"):
            key = cls.json_names.get(name, name)
            require(
                name in taken or name in cls.omitted,
                expected=f"{key} in the configuration",
                found="no such key",
                fix="add it",
            )
        return cls(**taken)

    def to_dict(self) -> dict[str, Any]:
        """Plain values for `config.json`."""
        return {
            self.json_names.get(name, name): value for name, value in to_dict(self).items() if name not in self.omitted
        }

    def num_parameters(self, *, pooler: bool = True, heads: bool = False) -> int:
        """The number of parameters of the encoder, with its pooler and, on request, with the pre-training heads."""
        if self.names:
            table: Any = imported(self.names)
            return int(table.count(self, pooler=pooler, heads=heads))
        width, inner = self.hidden_size, self.intermediate_size
        positions = self.max_position_embeddings if self.position_embedding_type == "absolute" else 0
        norms = 2 if self.norms_embeddings else 0
        embeddings = (self.vocab_size + positions + self.type_vocab_size + norms) * width
        attention = 4 * (width * width + width) + 2 * width
        feed_forward = width * inner + inner + inner * width + width + 2 * width
        count = embeddings + self.num_hidden_layers * (attention + feed_forward)
        if pooler and self.can_pool:
            count += width * width + width
        if heads:
            count += width * width + width + 2 * width if self.piece_head == "transform" else 0
            count += 0 if self.piece_head == "tied" else self.vocab_size
            count += 2 * width + 2 if self.has_next_sentence else 0
        return count


@dataclasses.dataclass(frozen=True, kw_only=True)
class BertConfig(EncoderConfig):
    """The shape of a BERT encoder."""

    model_type: ClassVar[str] = "bert"
    display_name: ClassVar[str] = "BERT"
    has_next_sentence: ClassVar[bool] = True
