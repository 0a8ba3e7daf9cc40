"""The settings of a translation model: its shape and training, and beam search; torch is not imported."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from bertsmith.base.core.settings import (
    help_field,
    require,
    require_known,
    require_limits,
    require_number,
)
from bertsmith.models.checkpoints.architectures import ENCODER_DECODERS
from bertsmith.models.parts.head_inputs import require_score
from bertsmith.text.documents.encodings import UTF_8, require_encoding

if TYPE_CHECKING:
    from bertsmith.models.parts.config import EncoderConfig

ARCHITECTURES = ("transformer", "lstm")


@dataclass(frozen=True, kw_only=True)
class TranslationSettings:
    """A new translation model and its training, apart from the training loop."""

    architecture: str | None = help_field(
        None, "architecture: transformer, or lstm (recurrent, with attention) [transformer]"
    )
    score: str | None = help_field(None, "attention score of an lstm: dot, general or concat [general]")
    size: str = help_field(
        "tiny",
        "model size: tiny, mini, small, base or big; those of the papers are base and big, of an lstm only big",
    )
    vocab: str | None = help_field(
        None, "a vocab.txt of WordPieces for both sides [learned from both sides of the pairs]", path=True
    )
    pieces: int = help_field(8000, "size of a vocabulary that is learned, in pieces", most=10**6)
    max_length: int = help_field(
        128, "maximum tokens of a text, special tokens included; pairs with a longer one are left out", most=10**5
    )
    rows_per_step: int = help_field(64, "pairs per optimizer step", most=10**6)
    dropout: float = help_field(
        0.1, "dropout on the embeddings, and on the residual branches or the outputs of the lstm layers"
    )
    label_smoothing: float = help_field(
        0.1, "label smoothing: fraction of the target probability that is spread evenly over all pieces"
    )
    positions: str | None = help_field(
        None, "position embeddings of a transformer: sinusoidal, absolute (learned) or none [sinusoidal]"
    )
    encoding: str = help_field(
        UTF_8,
        "encoding of the files of pairs, such as cp1252; a byte order mark of UTF-8, UTF-16 or UTF-32 in a file has "
        "precedence",
    )
    micro_tokens: int = help_field(
        4096, "maximum tokens per micro-batch, both sides; affects memory and speed, not the result", most=2**24
    )
    evaluation_pairs: int = help_field(200, "maximum pairs of the dev file per evaluation", most=10**6)
    device: str = help_field("auto", "auto, cpu, cuda or cuda:N")
    precision: str = help_field("auto", "auto, fp32 or bf16; auto is bf16 if the hardware supports it")

    def __post_init__(self) -> None:
        require_limits(self)
        require_encoding(self.encoding)
        for name in ("rows_per_step", "micro_tokens", "evaluation_pairs"):
            value = getattr(self, name)
            require_number(name, value, above=0)
        for name in ("dropout", "label_smoothing"):
            value = getattr(self, name)
            require_number(name, value, least=0, below=1)
        require_number("max_length", self.max_length, least=3)

        kind = self.kind
        require_known("architecture", kind, ARCHITECTURES)
        if self.score is not None:
            require_score(self.score)
        for name, owner in (("score", "lstm"), ("positions", "transformer")):
            value = getattr(self, name)
            require(
                value is None or kind == owner,
                expected=f"no {name} for the architecture '{kind}'",
                found=repr(value),
                fix=f"leave it out, or use the architecture '{owner}'",
            )

    @property
    def kind(self) -> str:
        """The architecture, or the default one."""
        return ARCHITECTURES[0] if self.architecture is None else self.architecture

    def config(self, pieces: int) -> "EncoderConfig":
        """The shape of the model with a vocabulary of that many pieces."""
        architecture = ENCODER_DECODERS[self.kind]
        fields: dict[str, Any] = {"score": "general" if self.score is None else self.score}
        if self.kind == "transformer":
            fields = {
                "position_embedding_type": "sinusoidal" if self.positions is None else self.positions,
                "max_position_embeddings": max(512, 2 * self.max_length),
            }
        shape = architecture.named(self.size, vocab_size=pieces)
        return architecture.named(
            self.size,
            vocab_size=pieces,
            hidden_dropout_prob=self.dropout,
            initializer_range=round(shape.hidden_size**-0.5, 6),
            **fields,
        )


@dataclass(frozen=True, kw_only=True)
class SearchSettings:
    """How a translation is searched."""

    beam: int = help_field(4, "beam width; 1: greedy search", most=1000)
    length_penalty: float = help_field(
        0.6,
        "length penalty: the log probability is divided by ((5 + pieces) / 6) to this power; 0 "
        "prefers short translations",
    )
    longer: int = help_field(50, "maximum pieces of a translation beyond those of its source", most=10**5)

    def __post_init__(self) -> None:
        require_limits(self)
        require_number("beam", self.beam, least=1)
        require_number("longer", self.longer, least=0)
        require_number("length penalty", self.length_penalty, least=0)
