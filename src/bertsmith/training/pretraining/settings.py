"""The settings of pre-training: of the data (objective, lengths, masking), of a run, and of both together.

`request.PretrainRequest` has the parameters of `bertsmith pretrain`.
"""

import dataclasses
import math
from pathlib import Path

from bertsmith.base.core.requests import AS_IT_IS
from bertsmith.base.core.settings import (
    Help,
    help_field,
    require,
    require_known,
    require_limits,
    require_number,
    require_other,
    require_value,
)
from bertsmith.training.pretraining.masking import LONGEST
from bertsmith.training.pretraining.objectives import OBJECTIVES
from bertsmith.training.pretraining.segmented_words import LANGUAGES

AUTO_SIZE = "auto"  # the size that is chosen from the time budget
# What each does is in `initialization.py`, which needs torch.
INITIALIZATIONS = ("random", "corpus")


@dataclasses.dataclass(frozen=True, kw_only=True)
class PretrainingDataSettings:
    """How documents become masked rows; the defaults are the recipe of 2018.

    The default of `max_predictions` is the masked share of the longest row, rounded up: 20 at 128 tokens, 77 at 512,
    where 20, 76 and 80 are common. The default never removes a prediction: a row of 512 has round(76.8) = 77.
    """

    objective: str = help_field(
        "mlm+nsp",
        "; ".join(f"{name}: {objective.help}" for name, objective in OBJECTIVES.items())
        + "; auto: mlm, or what the architecture is made for",
    )
    max_length: int = help_field(
        128,
        "maximum tokens per row, special tokens included; for recurrent language models the usual "
        "length of a window (auto: 70)",
        most=10**6,
    )
    short_sequence_probability: float = help_field(0.1, "fraction of documents with a shorter, random row length")
    contiguous: bool = help_field(
        False,
        "rows of full length that cross sentence boundaries; only for objectives without pairs; "
        "auto: yes for a language model",
    )
    masked_share: float = help_field(0.15, "fraction of the tokens of a row to predict; auto: 0.3 for a new model")
    max_predictions: int | None = help_field(
        None, "maximum predictions per row [masked_share of the longest row, rounded up]"
    )
    mask_share: float = help_field(0.8, "fraction of the predicted tokens that become [MASK]")
    keep_share: float = help_field(0.1, "fraction of the predicted tokens that stay unchanged")
    random_share: float = help_field(0.1, "fraction of the predicted tokens that become a random piece")
    whole_word: bool = help_field(False, "mask all pieces of a word together")
    chinese_words: bool = help_field(
        False, "with whole_word: mask all characters of a Chinese word together; needs the extra chinese"
    )
    japanese_words: bool = help_field(
        False, "with whole_word: mask all pieces of a Japanese word together; needs the extra japanese"
    )
    thai_words: bool = help_field(
        False, "with whole_word: mask all pieces of a Thai word together, not of a phrase; needs the extra thai"
    )
    dynamic: bool = help_field(
        False, "draw new pairs and masks every epoch, instead of reusing dupe_factor duplicates; auto: yes"
    )
    dupe_factor: int = help_field(
        10, "duplicates of the data, each with its own pairs and masks; the epochs cycle through them", most=10_000
    )
    block_tokens: int = help_field(
        16_000_000, "tokens of consecutive documents that are shuffled together", most=10**10
    )
    seed: int = help_field(12345, "seed of all random draws", most=2**63)

    def __post_init__(self) -> None:
        """Validates the values."""
        require_limits(self)
        require_known("objective", self.objective, tuple(OBJECTIVES))
        require_number("max_length", self.max_length, least=5, most=LONGEST)
        for name in ("short_sequence_probability", "masked_share", "mask_share", "keep_share", "random_share"):
            require_number(name, getattr(self, name), least=0, most=1)
        require(
            self.masked_share > 0 or not self.masked,
            expected=f"masked_share above 0 for an objective with masks ({self.objective})",
            found=self.masked_share,
            fix="raise it, or choose an objective without masks: "
            + ", ".join(name for name, objective in OBJECTIVES.items() if not objective.masks),
        )
        require(
            not (self.contiguous and self.has_two_parts),
            expected="an objective whose rows have one part, for contiguous rows",
            found=self.objective,
            fix="use --objective mlm or left-to-right, or --no-contiguous",
        )
        shares = self.mask_share + self.keep_share + self.random_share
        is_one = math.isclose(shares, 1, abs_tol=1e-9)
        require_value(
            is_one, "mask_share + keep_share + random_share", "1", round(shares, 6), "change one of the three"
        )
        for name in self.segmented:
            require_other(self.whole_word, f"--{name.replace('_', '-')}", "--whole-word")
        for name in ("max_predictions", "dupe_factor", "block_tokens"):
            require_number(name, getattr(self, name), least=1)

    @property
    def pairs(self) -> bool:
        """Whether rows have two parts and a label."""
        return OBJECTIVES[self.objective].pairs

    @property
    def has_two_parts(self) -> bool:
        """Whether rows have two parts, as a pair or as a text and its copy."""
        return OBJECTIVES[self.objective].has_two_parts

    @property
    def masked(self) -> bool:
        """Whether rows are masked."""
        return OBJECTIVES[self.objective].masks

    @property
    def segmented(self) -> tuple[str, ...]:
        """The settings of the languages whose words a segmenter finds."""
        return tuple(name for name in LANGUAGES if getattr(self, name))

    @property
    def room(self) -> int:
        """The maximum tokens of text in a row: what `[CLS]` and one or two `[SEP]` leave."""
        return self.max_length - (3 if self.has_two_parts else 2)

    @property
    def most_predictions(self) -> int:
        """The maximum number of predictions in a row.

        >>> PretrainingDataSettings().most_predictions, PretrainingDataSettings(max_length=512).most_predictions
        (20, 77)
        """
        return self.max_predictions or math.ceil(self.masked_share * self.max_length)


@dataclasses.dataclass(frozen=True, kw_only=True)
class PretrainingRunSettings:
    """The settings of a pre-training run, apart from the data and the training loop."""

    recipe: str | None = help_field(
        None,
        "how to choose the settings that you leave out: auto (what learns most in the time) or 2018 (the paper; the "
        "defaults below) [auto; with --resume that of RUN]",
    )
    architecture: str | None = help_field(
        None, "architecture of a new model of --size, one of those in docs/architectures.md [bert]"
    )
    size: str | None = help_field(
        None,
        "model size: tiny, mini, small, medium, base or large; auto: chosen by --minutes and the cores of this machine",
    )
    heads: int | None = help_field(
        None,
        "attention heads of a --size; they must divide its width [that of the size, and with --recipe auto 8 or more]",
    )
    config: str | None = help_field(None, "a config.json that defines the architecture, instead of --size", path=True)
    init: str | None = help_field(
        None,
        "a model to continue from, instead of --size: folder, Google checkpoint, hub id, starter or minilm",
        path=True,
    )
    positions: str | None = help_field(
        None, "position embeddings of a new model: absolute (learned), sinusoidal or none [absolute]"
    )
    initialization: str | None = help_field(
        None,
        "initial values of a new model: random (2018), or corpus: piece frequencies, word vectors "
        "from co-occurrence counts in at most about 20 million tokens of the corpus, and heads that "
        "attend to neighbors [random; auto: corpus]",
    )
    dropout: float | None = help_field(
        None,
        "dropout of hidden states and attention; for an LSTM, the rate between its layers; its "
        "other rates scale with it [0.1 (LSTM: 0.3), or that of --config or --init; auto: 0 for a new "
        "model]",
    )
    rows_per_step: int = help_field(
        256,
        "rows per optimizer step, for recurrent language models tracks; auto: 32 for tiny, mini and "
        "--init, 64 for small, 128 for medium",
        most=10**6,
    )
    tokens_per_step: int | None = help_field(None, "tokens per optimizer step, instead of rows", most=10**9)
    long_length: int | None = help_field(None, "row length in the last part of the run; 512 in the paper", most=10**6)
    long_share: float = help_field(0.1, "fraction of the steps with long rows")
    layer_decay: float | None = help_field(
        None,
        "learning rate of each layer as a fraction of that of the layer above [1; auto: 0.3846 with an LSTM of --init]",
    )
    activation_penalty: float | None = help_field(
        None,
        "recurrent language models: weight of activation regularization (AR), the mean square of the "
        "output after dropout [2; auto: 0]",
    )
    change_penalty: float | None = help_field(
        None,
        "recurrent language models: weight of temporal activation regularization (TAR), the mean "
        "square change of the output between two tokens [1; auto: 0]",
    )
    micro_tokens: int | None = help_field(
        None,
        "maximum tokens per micro-batch; affects memory and speed, not the result [4096; on a GPU 16384]",
        most=2**24,
    )
    sampled_pieces: int | None = help_field(
        None,
        "for models of two directions: sampled softmax with this many negative pieces, drawn by "
        "their frequency; for large vocabularies",
        most=10**7,
    )
    compile: bool = help_field(
        False,
        "compile the layers of BERT with torch.compile, which takes a minute at first; needs Triton on a GPU and a C++ "
        "compiler on a CPU",
    )
    corpus_cache: str | None = help_field(
        None, "for a corpus at an address (s3://...): folder for its index [~/.cache/bertsmith/corpora]", path=True
    )
    cache_megabytes: int = help_field(
        256,
        "for a corpus at an address: megabytes of documents to keep in memory; affects speed, not the result",
        most=10**7,
    )
    evaluation_rows: int = help_field(512, "maximum held-out rows per evaluation", most=10**7)
    device: str = help_field("auto", "auto, cpu, cuda or cuda:N")
    precision: str = help_field("auto", "auto, fp32 or bf16; auto is bf16 if the hardware supports it")

    def __post_init__(self) -> None:
        require_limits(self)
        counts = (
            "rows_per_step",
            "tokens_per_step",
            "micro_tokens",
            "evaluation_rows",
            "long_length",
            "sampled_pieces",
        )
        for name in counts:
            require_number(name, getattr(self, name), above=0)
        require_number("long_share", self.long_share, above=0, below=1)
        require_number("layer_decay", self.layer_decay, above=0, most=1)
        for name in ("activation_penalty", "change_penalty"):
            require_number(name, getattr(self, name), least=0)
        require_number("dropout", self.dropout, least=0, below=1)
        sources = [name for name in ("size", "config", "init") if getattr(self, name) is not None]
        require(
            len(sources) == 1,
            expected="one of a model size, a config file and a model to continue from",
            found=" and ".join(sources) or "none",
            fix="give one of --size, --config and --init",
        )
        if self.initialization is not None:
            require_known("initialization", self.initialization, INITIALIZATIONS)
        require(
            self.initialization in (None, "random") or self.init is None,
            expected="a new model for an initialization from the corpus",
            found=f"'{self.init}' to continue from",
            fix="leave --initialization or --init out",
        )
        for name in ("architecture", "positions", "heads"):
            require_other(
                getattr(self, name) is None or self.size is not None,
                f"--{name.replace('_', '-')}",
                "--size",
                f"leave --{name} out; the model defines its own",
            )


CORPUS_FOLDER = Help("a folder that `bertsmith corpus` wrote", flag="CORPUS", path="the corpus", kind=Path)
CORPUS = dataclasses.replace(
    CORPUS_FOLDER, help="a folder that `bertsmith corpus` wrote, or its address", address=AS_IT_IS
)
