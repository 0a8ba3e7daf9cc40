"""The settings of an adaptation; nothing here needs torch."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

from bertsmith.base.core.errors import ConfigError
from bertsmith.base.core.requests import COPIED, Request, file_field, path_field
from bertsmith.base.core.settings import (
    AUTO,
    Help,
    help_field,
    require_known,
    require_limits,
    require_number,
    require_other,
)
from bertsmith.base.core.tables import File
from bertsmith.tasks.specs.named_tasks import task_name
from bertsmith.tasks.specs.settings import ColumnSettings
from bertsmith.text.documents.readers import ReadingSettings

KEEP, GRAFT, NEW = WAYS = ("keep", "graft", "new")
AS_IT_IS, ADAPTED, FROM_SCRATCH = "as-it-is", "adapted", "from-scratch"  # the arms of a task
MINUTES = 10.0
# A new model of the domain was the better start from a model that had read 5 million tokens, with 136,000 words of text
# (benchmarks/adaptation.py); how far beyond that it holds is not measured.
FEW_TOKENS = 10**7
ENOUGH_WORDS = 10**5


@dataclasses.dataclass(frozen=True, kw_only=True)
class AdaptationSettings:
    """How a model is adapted to the text of a domain."""

    vocabulary: str = help_field(
        AUTO,
        "keep: continue the pre-training (BioBERT's way); graft: first add words of the domain, whose vectors start "
        "from those of their pieces; new: train a new model of the same shape with a vocabulary of the domain "
        f"(SciBERT's way); auto: new if MODEL has read fewer than {FEW_TOKENS:,} tokens and the text has at least "
        f"{ENOUGH_WORDS:,} words, otherwise keep",
    )
    add: int = help_field(1000, "with graft: number of words to add", most=10**6)
    pieces: int | None = help_field(
        None, "with new: the size of the vocabulary [that of MODEL, or fewer if there is little text]", most=5 * 10**6
    )
    minutes: float | None = help_field(None, f"how long to train [{MINUTES:g}]", most=10**7)
    steps: int | None = help_field(None, "how long to train, in steps instead of minutes", most=10**9)
    max_length: int = help_field(128, "maximum tokens per row", most=10**6)
    learning_rate: float | None = help_field(None, "peak learning rate [that of the recipe of `pretrain`]", most=1.0)
    held_out: float = help_field(0.02, "fraction of the documents held out, on which the losses are measured")
    score_words: int = help_field(
        10_000, "words of held-out text, and of general text, on which the losses are measured", most=10**7
    )
    licence: str = help_field("", "licence of the adapted model, for its card, such as apache-2.0")
    seed: int = help_field(1, "seed of all random draws", most=2**63)
    device: str = help_field("auto", "auto, cpu, cuda or cuda:N")
    precision: str = help_field("auto", "auto, fp32 or bf16; auto is bf16 if the hardware supports it")
    shard: bool = help_field(
        False,
        "with several processes: each holds a part of parameters, gradients and moments, for a model that does not "
        "fit (FSDP2)",
    )

    def __post_init__(self) -> None:
        require_limits(self)
        require_known("vocabulary", self.vocabulary, (AUTO, *WAYS))
        if None not in (self.minutes, self.steps):
            raise ConfigError(expected="one of minutes and steps", found="both", fix="leave one out")
        for name in ("add", "pieces", "minutes", "steps", "max_length", "learning_rate", "score_words"):
            value = getattr(self, name)
            require_number(name, value, above=0)
        require_other(
            self.pieces is None or self.vocabulary == NEW,
            "--pieces",
            "--vocabulary new",
            "leave --pieces out" + ("; --add is the number of added words" if self.vocabulary == GRAFT else ""),
        )
        require_number("held_out", self.held_out, above=0, below=1)
        if "\n" in self.licence:
            raise ConfigError.must_be("licence", "one line, such as apache-2.0", self.licence)

    @property
    def budget(self) -> dict[str, Any]:
        """The budget as fields of `TrainSettings`."""
        return {"steps": self.steps} if self.steps is not None else {"minutes": self.minutes or MINUTES}


@dataclasses.dataclass(frozen=True)
class AdaptRequest(Request, AdaptationSettings, ReadingSettings, ColumnSettings):
    """A model, text of a domain, a task of the domain if there is one, and the settings of an adaptation."""

    model: Annotated[
        str | Path,
        Help("an encoder: folder, checkpoint, hub id, starter or minilm", flag="MODEL", path="the model", kind=str),
    ]
    texts: Annotated[
        Sequence[str | Path],
        Help(
            "domain text: .txt, .jsonl or .parquet (also .gz, .zst), or folders",
            flag="TEXT...",
            path="a text",
            address=COPIED,
            kind=list[Path],
        ),
    ]
    out: str | Path | None = path_field(
        "the run folder; the adapted model is saved in RUN/model/", "RUN", path="the run folder"
    )
    _: dataclasses.KW_ONLY
    general: Sequence[str | Path] = help_field(
        (),
        "other text, on which forgetting is measured; repeatable [the documentation on this machine]",
        metavar="TEXT",
        path=True,
        address=COPIED,
        kind=list[Path],
    )
    task: str | None = help_field(
        None, "a task of the domain, as in `finetune`; scored before and after", metavar="NAME"
    )
    train: File | None = file_field("with --task: the training file", table=True)
    dev: File | None = file_field("with --task: the dev file [a tenth of the training examples]", table=True)
    seeds: int | None = help_field(
        None, "with --task: fine-tunings of each model [as in `finetune`]", least=1, most=1000
    )
    from_scratch: bool = help_field(
        False,
        "with --task: also compare a new model of the same shape with a vocabulary of the domain, trained for the same "
        "time",
    )
    resume: bool = help_field(False, "resume RUN; give the same options again")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.task is not None:
            object.__setattr__(self, "task", task_name(self.task))

    def require_task(self) -> None:
        """Refuses options of a task without a task."""
        options = ("train", "dev", "seeds", "from_scratch", *self.values(ColumnSettings))
        named = [
            name
            for name in options
            if name in self.given and not any(getattr(self, name) is no for no in (None, False))
        ]
        if self.task is None and named:
            raise ConfigError.needs(f"--{named[0].replace('_', '-')}", "--task")
