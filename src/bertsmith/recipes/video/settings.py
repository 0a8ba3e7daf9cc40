"""The settings of a model of texts with codes: its rows and its training, apart from the training loop."""

import math
from dataclasses import dataclass

from bertsmith.base.core.settings import help_field, require_limits, require_number, require_value
from bertsmith.text.documents.encodings import UTF_8, require_encoding
from bertsmith.training.pretraining.masking import LONGEST


@dataclass(frozen=True, kw_only=True)
class VideoSettings:
    """A BERT that learns codes, such as visual words, with the texts of the same moment."""

    freeze: bool = help_field(True, "with --words: the rows of codes keep the values of their centers")
    text_only: float = help_field(1 / 3, "fraction of the rows that are the text of a segment alone")
    codes_only: float = help_field(1 / 3, "fraction of the rows that are the codes of a segment alone")
    misaligned: float = help_field(0.5, "fraction of the rows with both whose codes are of another segment")
    join: float = help_field(0.5, "fraction of the segments that are joined with the next one of their subject")
    subsample: int = help_field(5, "codes are sub-sampled at a rate drawn from 1 to this number", most=1000)
    max_length: int = help_field(128, "maximum tokens per row, codes and special tokens included", most=LONGEST)
    masked_share: float = help_field(0.15, "fraction of the tokens of a row to predict")
    mask_share: float = help_field(0.8, "fraction of the predicted tokens that become [MASK]")
    keep_share: float = help_field(0.1, "fraction of the predicted tokens that stay unchanged; the rest become random")
    minimum_count: int = help_field(1, "codes that occur less often in the training segments are left out", most=10**9)
    dev_share: float = help_field(0.1, "fraction of the subjects held out, without --dev")
    epochs: int = help_field(10, "passes over the segments, without --steps, --tokens and --minutes", most=10**6)
    rows_per_step: int = help_field(32, "segments per optimizer step", most=10**6)
    evaluation_rows: int = help_field(1000, "held-out segments that are read at each evaluation", most=10**7)
    encoding: str = help_field(
        UTF_8,
        "encoding of the tables, such as cp1252; a byte order mark of UTF-8, UTF-16 or UTF-32 in a file has precedence",
    )
    device: str = help_field("auto", "auto, cpu, cuda or cuda:N")
    precision: str = help_field("fp32", "auto, fp32, bf16 or fp64")

    def __post_init__(self) -> None:
        require_limits(self)
        require_encoding(self.encoding)
        for name in ("subsample", "minimum_count", "epochs", "rows_per_step", "evaluation_rows"):
            require_number(name, getattr(self, name), least=1)
        require_number("max_length", self.max_length, least=5)
        for name in ("text_only", "codes_only", "misaligned", "join", "mask_share", "keep_share"):
            require_number(name, getattr(self, name), least=0, most=1)
        require_number("masked_share", self.masked_share, above=0, most=1)
        require_number("dev_share", self.dev_share, above=0, below=1)
        for first, second in (("text_only", "codes_only"), ("mask_share", "keep_share")):
            total = getattr(self, first) + getattr(self, second)
            require_value(total <= 1 + 1e-9, f"{first} + {second}", "at most 1", total)

    @property
    def most_predictions(self) -> int:
        """The maximum number of predictions in a row."""
        return math.ceil(self.masked_share * self.max_length)

    @property
    def whole_word(self) -> bool:
        """Single pieces are masked."""
        return False

    @property
    def segmented(self) -> tuple[str, ...]:
        """No language whose words a segmenter finds."""
        return ()
