"""The settings of a memory network: its shape and its training, apart from the training loop."""

from dataclasses import dataclass

from bertsmith.base.core.settings import help_field, require_limits, require_number
from bertsmith.text.documents.encodings import UTF_8, require_encoding


@dataclass(frozen=True, kw_only=True)
class MemorySettings:
    """A new memory network and its training, apart from the training loop."""

    hops: int = help_field(3, "hops: how often the facts are read for one answer", most=100)
    width: int = help_field(50, "width of all vectors", most=10**5)
    facts: int = help_field(50, "facts that are read, the last ones of a story", most=10**5)
    position_weights: bool = help_field(True, "words are weighted by their position in the sentence")
    temporal: bool = help_field(True, "facts have vectors of their age: later ones can count more")
    age_noise: float = help_field(
        0.1, "in training, ages have gaps, as of up to this fraction of empty facts between the others"
    )
    linear_start: bool = help_field(
        True, "train without the softmax over facts until the held-out loss stops improving, or for half of the steps"
    )
    support_weight: float | None = help_field(
        None, "weight of a loss that points each hop to a supporting fact [0, or 1 if no story has an answer]"
    )
    minimum_count: int = help_field(1, "words that occur less often in the training stories are unknown", most=10**9)
    dev_share: float = help_field(0.1, "fraction of the stories held out, without --dev")
    epochs: int = help_field(60, "passes over the questions, without --steps, --tokens and --minutes", most=10**6)
    rows_per_step: int = help_field(32, "questions per optimizer step", most=10**6)
    starts: int = help_field(1, "trainings from different initial values; the one with the best held-out loss is kept")
    encoding: str = help_field(
        UTF_8,
        "encoding of the files of stories, such as cp1252; a byte order mark of UTF-8, UTF-16 or UTF-32 in a file has "
        "precedence",
    )
    device: str = help_field("auto", "auto, cpu, cuda or cuda:N")

    def __post_init__(self) -> None:
        require_limits(self)
        require_encoding(self.encoding)
        for name in ("hops", "width", "facts", "minimum_count", "epochs", "rows_per_step", "starts"):
            require_number(name, getattr(self, name), least=1)
        require_number("starts", self.starts, most=1000)
        require_number("age_noise", self.age_noise, least=0, most=10)
        require_number("dev_share", self.dev_share, above=0, below=1)
        require_number("support_weight", self.support_weight, least=0)
