"""The parameters of the commands for features as words, and for texts with codes (VideoBERT).

==================  ===================================================================================
codes cluster       arrays of feature vectors to a tree of centers, whose leaves are words
codes assign        such a tree and arrays of feature vectors to a table of events
codes train-video   segments with text and codes to a BERT that reads both
codes fill          such a model, codes and a text with [MASK] to the words that are missing
codes match         such a model and segments to how well texts and codes belong together
codes next          such a model and codes to the codes that are likely to follow
codes features      such a model and segments to a file with a vector of each
==================  ===================================================================================
"""

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, ClassVar

from bertsmith.base.core.parameters import DEVICE, optional
from bertsmith.base.core.requests import Request, path_field
from bertsmith.base.core.settings import Help, help_field, require, require_other
from bertsmith.recipes.video.settings import VideoSettings
from bertsmith.text.documents.encodings import TableEncoding
from bertsmith.training.loop.run_request import input_field, out_field, require_input, resume_field, training_of
from bertsmith.training.loop.settings import TrainSettings

FEATURES = Help(
    ".npy files of feature vectors, rows x numbers, one for each sequence; or their folder",
    flag="FEATURES...",
    path="the features",
    kind=list[Path],
)
SEQUENCES = Help(
    "the sequences in a single file: a table with subject, start and stop, which are row numbers from 0",
    metavar="FILE",
    path="the table of sequences",
    kind=Path,
)
VIDEO_MODEL = Help("a model of `bertsmith codes train-video`", metavar="DIR", path="the model", kind=Path)
SEGMENTS = Help(
    "a table with text and codes, and perhaps subject, in order; or with start and stop, and --events",
    metavar="FILE",
    flag="SEGMENTS",
    path="the segments",
    kind=Path,
)
CODES = Help("codes, separated by spaces", metavar="CODES")
TOP = Help("number of answers", least=1, most=10**6)
_EVENTS = "events of segments with a start and a stop: a table with subject, time and code"
FEATURE_TEMPLATE = "now let's [MASK] the [MASK] to the [MASK], and then [MASK] the [MASK]."


@dataclasses.dataclass(frozen=True)
class ClusterRequest(Request):
    """Arrays of feature vectors, and the shape of the tree that divides them."""

    features: Annotated[Sequence[Path | str], FEATURES]
    out: Annotated[Path | str, Help("the file of words, .safetensors", metavar="FILE", path="the file", kind=Path)]
    _: dataclasses.KW_ONLY
    sequences: str | Path | None = optional(None, SEQUENCES)
    depth: int = help_field(4, "levels of the tree", least=1, most=32)
    branching: int = help_field(12, "the most centers of a node", least=2, most=10**4)
    points: int = help_field(1_000_000, "learn from at most this many vectors, drawn at random", least=1, most=10**9)
    seed: int = help_field(1, "seed of all random draws", least=0, most=2**63)
    replace: bool = help_field(False, "overwrite an existing file")


@dataclasses.dataclass(frozen=True)
class AssignRequest(Request):
    """Words that were learned, and arrays of feature vectors to name with them."""

    words: Annotated[Path | str, Help("a file of `bertsmith codes cluster`", metavar="WORDS", path="words", kind=Path)]
    features: Annotated[Sequence[Path | str], FEATURES]
    out: Annotated[
        Path | str,
        Help("the table of events, .csv, with subject, time and code", metavar="FILE", path="the file", kind=Path),
    ]
    _: dataclasses.KW_ONLY
    sequences: str | Path | None = optional(None, SEQUENCES)
    seconds: float = help_field(1.5, "time from one vector to the next; 1.5 seconds in the paper", most=10**9)
    replace: bool = help_field(False, "overwrite an existing file")

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.seconds > 0, expected="seconds above 0", found=self.seconds, fix="give the time between vectors")


@dataclasses.dataclass(frozen=True)
class TrainVideoRequest(Request, VideoSettings, TrainSettings):
    """Segments of text with codes, the BERT to start from, and the settings of the training."""

    completed: ClassVar[tuple[type, ...]] = (TrainSettings,)
    usual: ClassVar[Mapping[str, Any]] = {
        "schedule": "hf_linear",
        "learning_rate": 3e-4,
        "warmup_share": 0.1,
        "bias_correction": True,
        "log_every": 50,
    }

    segments: str | Path | None = input_field("segments", SEGMENTS.help, "those")
    out: str | Path = out_field()
    _: dataclasses.KW_ONLY
    init: str | Path = help_field("starter", "the BERT to start from", metavar="DIR", path="the model", kind=str)
    events: str | Path | None = path_field(_EVENTS)
    words: str | Path | None = path_field("the centers of the codes: a file of `bertsmith codes cluster`")
    dev: str | Path | None = path_field("further segments, for evaluation [a tenth of the subjects, held out]")
    resume: bool = resume_field()

    def __post_init__(self) -> None:
        super().__post_init__()
        require_input(self, "segments", "codes train-video")
        self.training(10**6)  # checks what was given

    def training(self, segments: int) -> TrainSettings:
        """The settings of the training on that many segments: what was given, and a recipe for the rest.

        The paper's learning rate of 1e-5 is for half a million steps of BERT-large.
        """
        settings = self.part(VideoSettings)
        return training_of(self, settings.epochs * -(-segments // settings.rows_per_step))


@dataclasses.dataclass(frozen=True)
class FillCodesRequest(Request, TableEncoding):
    """A model of texts with codes, a text with gaps, and the codes of its moment."""

    model: Annotated[str | Path, VIDEO_MODEL]
    text: Annotated[str, Help("a text with [MASK] for each missing word", flag="TEXT")]
    _: dataclasses.KW_ONLY
    codes: str | None = optional(None, CODES)
    segments: str | Path | None = optional(None, dataclasses.replace(SEGMENTS, flag=None))
    events: str | Path | None = path_field(_EVENTS)
    top: int = optional(5, TOP)
    device: str = optional("auto", DEVICE)

    def __post_init__(self) -> None:
        super().__post_init__()
        _require_either(self, "codes")


@dataclasses.dataclass(frozen=True)
class MatchCodesRequest(Request, TableEncoding):
    """A model of texts with codes, and segments whose texts and codes are compared."""

    model: Annotated[str | Path, VIDEO_MODEL]
    segments: Annotated[str | Path, SEGMENTS]
    _: dataclasses.KW_ONLY
    events: str | Path | None = path_field(_EVENTS)
    text: str | None = help_field(None, "find the segments whose codes belong to this text")
    codes: str | None = help_field(None, "find the segments whose text belongs to these codes, separated by spaces")
    top: int = optional(5, TOP)
    device: str = optional("auto", DEVICE)

    def __post_init__(self) -> None:
        super().__post_init__()
        require(
            self.text is None or self.codes is None,
            expected="a text or codes",
            found="both",
            fix="leave one of them out",
        )
        require(self.text is None or bool(self.text.strip()), expected="a text", found="an empty one", fix="write it")


@dataclasses.dataclass(frozen=True)
class NextCodesRequest(Request):
    """A model of texts with codes, and codes to continue."""

    model: Annotated[str | Path, VIDEO_MODEL]
    codes: Annotated[str, dataclasses.replace(CODES, flag="CODES")]
    _: dataclasses.KW_ONLY
    text: str = help_field("", "what is said at that moment")
    top: int = optional(5, TOP)
    device: str = optional("auto", DEVICE)


@dataclasses.dataclass(frozen=True)
class CodeFeaturesRequest(Request, TableEncoding):
    """A model of texts with codes, segments, and the file for a vector of each."""

    model: Annotated[str | Path, VIDEO_MODEL]
    segments: Annotated[str | Path, SEGMENTS]
    out: Annotated[Path | str, Help("the vectors, .npy", metavar="FILE", path="the file", kind=Path)]
    _: dataclasses.KW_ONLY
    events: str | Path | None = path_field(_EVENTS)
    template: str = help_field(FEATURE_TEMPLATE, "the text with [MASK] that is read with the codes of each segment")
    replace: bool = help_field(False, "overwrite an existing file")
    device: str = optional("auto", DEVICE)


def _require_either(request: Any, name: str) -> None:
    require(
        (getattr(request, name) is None) != (request.segments is None),
        expected=f"{name} or --segments",
        found="both" if request.segments is not None else "neither",
        fix="give one of them",
    )
    for option in ("events", "encoding"):
        require_other(option not in request.given or request.segments is not None, f"--{option}", "--segments")
