"""The settings of distillation, on a task and on plain text: the student and the losses. No torch is loaded here."""

import dataclasses

from bertsmith.base.core.errors import ConfigError
from bertsmith.base.core.settings import (
    help_field,
    require_known,
    require_limits,
    require_number,
    require_other,
)
from bertsmith.models.model_files.metadata import VECTORS

DISTILBERT, TINYBERT = "distilbert", "tinybert"
METHODS = (DISTILBERT, TINYBERT, VECTORS)
LOSS = "a loss against the teacher with a weight above 0"
WITHOUT = "without-teacher"  # the folder of the same student without the teacher, in RUN


@dataclasses.dataclass(frozen=True, kw_only=True)
class DistillationSettings:
    """The settings of a distillation, apart from those of fine-tuning."""

    student: str = help_field(
        "layers",
        "the student: layers (some layers of the teacher), the size of a new model (tiny ... large, "
        "tinybert, or LAYERSxWIDTH, such as 4x312), bilstm, n-grams (a linear model), or a model "
        "folder or hub id with the teacher's vocabulary",
        path=True,
    )
    layers: str | None = help_field(
        None,
        "layers to take from the teacher: a number of them, from the lowest, or a list such as 1,3,6 [the lower half]",
    )
    temperature: float = help_field(2.0, "temperature of the soft targets, for teacher and student", most=1000)
    soft_weight: float = help_field(1.0, "weight of the loss on the teacher's logits")
    label_weight: float = help_field(
        0.5, "weight of the loss on labels; for a text without a label, the teacher's prediction is the label"
    )
    state_weight: float = help_field(
        0.0,
        "weight of the squared error of embeddings and hidden states, with a learned projection if the widths differ",
    )
    attention_weight: float = help_field(
        0.0, "weight of the squared error of attention scores; a new student takes the teacher's number of heads"
    )
    first_stage: float = help_field(
        0.0, "epochs of a first stage with only the losses on hidden states and attention, as in TinyBERT", most=10_000
    )
    augment: int = help_field(
        0,
        "number of augmented copies of each text, with words replaced by predictions of a masked LM or by "
        "their nearest neighbors",
        most=1000,
    )
    fill_with: str | None = help_field(
        None, "with --augment: the model whose masked-LM head fills in words [the teacher, if it has one]", path=True
    )
    word_vectors: str | None = help_field(
        None,
        "with --augment: word vectors, whose nearest neighbors replace words of several pieces "
        "[none: these words stay]",
        path=True,
    )

    def __post_init__(self) -> None:
        require_limits(self)
        require_number("temperature", self.temperature, above=0)
        for name in ("soft_weight", "label_weight", "state_weight", "attention_weight", "first_stage", "augment"):
            value = getattr(self, name)
            require_number(name, value, least=0)
        if max(self.soft_weight, self.state_weight, self.attention_weight) <= 0:
            fix = "raise soft_weight, or use `bertsmith finetune`, which has no teacher"
            raise ConfigError.needs("a distillation", LOSS, fix)
        for name in ("fill_with", "word_vectors"):
            require_other(getattr(self, name) is None or self.augment > 0, f"--{name.replace('_', '-')}", "--augment")

    @property
    def has_states(self) -> bool:
        """Whether a loss of the main stage compares hidden states or attention."""
        return self.state_weight > 0 or self.attention_weight > 0

    def of_first_stage(self) -> "DistillationSettings":
        """The settings of the first stage: states and attention alone, with weights of 1 unless they have others."""
        return dataclasses.replace(
            self,
            soft_weight=0.0,
            label_weight=0.0,
            state_weight=self.state_weight or 1.0,
            attention_weight=self.attention_weight or 1.0,
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class CorpusDistillationSettings:
    """The settings of a distillation on plain text, apart from those of pre-training."""

    method: str = help_field(
        DISTILBERT,
        "distilbert: soft targets, masked LM and cosine of hidden states, a student without segments and pooler; "
        "tinybert: embeddings, hidden states and attention scores; vectors: the vectors of texts that any encoder "
        "gives, and masked LM",
    )
    student: str = help_field(
        "layers",
        "the student: layers (some layers of the teacher); with tinybert also a size (tinybert, "
        "tiny ... large, LAYERSxWIDTH); with vectors a size from tiny to large, or a model folder or hub id",
        path=True,
    )
    layers: str | None = help_field(
        None, "layers to take from the teacher: a number of them, or a list such as 1,3,6 [half of them, evenly spaced]"
    )
    temperature: float = help_field(2.0, "distilbert: temperature of the soft targets", most=1000)
    soft_weight: float = help_field(5.0, "distilbert: weight of the soft targets at masked positions")
    mlm_weight: float = help_field(2.0, "distilbert, vectors: weight of the masked-LM loss")
    cosine_weight: float = help_field(1.0, "distilbert: weight of the cosine loss")
    state_weight: float = help_field(1.0, "tinybert: weight of the loss on embeddings and hidden states")
    attention_weight: float = help_field(1.0, "tinybert: weight of the loss on attention scores")
    vector_weight: float = help_field(
        20.0, "vectors: weight of the distance between the vectors of teacher and student, one minus their cosine"
    )

    def __post_init__(self) -> None:
        require_limits(self)
        require_known("method", self.method, METHODS)
        require_number("temperature", self.temperature, above=0)
        weights = [
            getattr(self, f"{name}_weight") for name in ("soft", "mlm", "cosine", "state", "attention", "vector")
        ]
        require_number("weights", min(weights), least=0)
        used = {
            DISTILBERT: (self.soft_weight, self.cosine_weight),
            TINYBERT: (self.state_weight, self.attention_weight),
            VECTORS: (self.vector_weight,),
        }
        if max(used[self.method]) <= 0:
            fix = "raise one, or use `bertsmith pretrain`, which has no teacher"
            raise ConfigError.needs(f"--method {self.method}", LOSS, fix)

    @property
    def is_distilbert(self) -> bool:
        """Whether the losses are those of DistilBERT."""
        return self.method == DISTILBERT

    @property
    def of_vectors(self) -> bool:
        """Whether the student learns the vectors of texts, from any encoder."""
        return self.method == VECTORS
