"""Continued pre-training on text of the task, before fine-tuning.

::

    RUN/continued/text.json   what was read, with digests, and the budget
    RUN/continued/corpus/     its token shards, made with the model's own tokenizer
    RUN/continued/run/        the pre-training run; fine-tuning starts from its model/
    RUN/continued/costs.json  the seconds, processor seconds and tokens of that run, over all resumed parts

The text has no labels. The objective is that of the model: masked LM, or the next piece if it reads left to right.

Source: Gururangan et al. (2020), "Don't stop pretraining", section 4 (task-adaptive pre-training).
"""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from bertsmith.base.core.errors import ConfigError, InputError, RunError
from bertsmith.base.core.progress import counted, tell, warn
from bertsmith.base.core.settings import require_number
from bertsmith.base.core.tables import table_name
from bertsmith.base.storage.files import digest_file, keep_record, read_json, write_json
from bertsmith.models.checkpoints.load import load_any
from bertsmith.models.checkpoints.model_folder import ModelFolder
from bertsmith.models.parts.config import EncoderConfig
from bertsmith.recipes.adaptation.further_pretraining import EVALUATION_ROWS, pretrain_on_text
from bertsmith.tasks.datasets.examples import (
    ChoiceExample,
    Example,
    MentionExample,
    QuestionExample,
    SequenceExample,
    TaggedExample,
    TripletExample,
)
from bertsmith.tasks.datasets.file_text import quoted
from bertsmith.tasks.specs.settings import ColumnSettings
from bertsmith.tasks.task_data.task_files import read_examples
from bertsmith.text.corpus.build import build_corpus
from bertsmith.text.corpus.shards import Corpus
from bertsmith.text.documents.readers import Document
from bertsmith.text.documents.sentences import split_sentences
from bertsmith.text.documents.sources import Source, find_sources
from bertsmith.training.loop.budget import BudgetError
from bertsmith.training.loop.run import Run
from bertsmith.training.loop.run_folder import CONTINUED, SETTINGS_FILE, RunFolder, is_run
from bertsmith.training.pretraining.recipes import MOST_TRACKS, WINDOW, objective_for

MINUTES = 2.0
ROW_LENGTH = 128
LEAST_WINDOWS = 4  # of each track of a recurrent model
HELD_OUT = 0.02
UNKNOWN_SHARE = 0.01  # of the tokens, above which a warning says that the vocabulary does not fit
TEXT_FILE, COSTS_FILE = "text.json", "costs.json"
_TABLES = (".csv", ".tsv")


@dataclasses.dataclass(frozen=True, kw_only=True)
class TaskText:
    """The text of a task, and how long pre-training continues on it.

    Args:
        path: .txt, .jsonl or .parquet (also .gz, .zst), a folder of them, a table in memory with a column of texts, or
            the training file itself, of which the texts of the examples are read.
        minutes: the budget; two minutes if no steps are given either.
    """

    path: Path
    task: str
    train: Path | None
    columns: ColumnSettings
    minutes: float | None = None
    steps: int | None = None

    def __post_init__(self) -> None:
        if None not in (self.minutes, self.steps):
            raise ConfigError(expected="one of continue_minutes and continue_steps", found="both", fix="leave one out")
        for name in ("minutes", "steps"):
            value = getattr(self, name)
            require_number(f"continue_{name}", value or 0, most=10**7)
            require_number(f"continue_{name}", value, above=0)

    @property
    def budget(self) -> dict[str, float]:
        """The budget as fields of `TrainSettings`."""
        return {"steps": self.steps} if self.steps is not None else {"minutes": self.minutes or MINUTES}

    @property
    def is_labelled(self) -> bool:
        """Whether the text is that of the training examples, also where one table in memory is both."""
        if self.train is None or not self.path.exists():
            return False
        are_tables = None not in (table_name(self.path), table_name(self.train))
        return self.path.samefile(self.train) or (are_tables and digest_file(self.path) == digest_file(self.train))

    def record(self) -> dict[str, Any]:
        """The digests of the files and the budget."""
        if not self.is_labelled and self.path.suffix.lower() in _TABLES:
            raise InputError(
                expected="text to continue on: .txt, .jsonl or .parquet, or the training file itself",
                found=f"the table '{self.path}'",
                fix="save its texts as lines of a .txt file",
            )
        files = [source.name for source in find_sources([self.path]) if isinstance(source, Source)]
        return {
            "read_as": f"examples of {self.task}" if self.is_labelled else "text",
            "digests": [digest_file(Path(name)) for name in files],
            **self.budget,
        }

    def texts(self) -> list[Path] | list[Document]:
        """What a corpus is built from: the path, or the texts of the training examples without their labels."""
        if not self.is_labelled:
            return [self.path]
        examples = read_examples(self.task, self.path, self.columns, training=True).examples
        return list(documents_of(examples, str(self.path)))


def continue_pretraining(
    source: str | Path,
    out: Path,
    text: TaskText,
    *,
    device: str = "auto",
    precision: str = "auto",
    seed: int = 1,
    resume: bool = False,
    by_processor: bool = False,
) -> Path:
    """The model folder RUN/continued/run/model, after the pre-training of a model has continued on text."""
    folder, model, record = load_any(source), continued_model(out), text.record()
    config, continued = folder.config, out / CONTINUED
    with Run.open(out, resume=resume, device=device, parts=(f"{CONTINUED}/{TEXT_FILE}", SETTINGS_FILE)) as run:
        run.on_first_rank(lambda: _require_text(run))
        with run.locked():
            if run.is_resumed:
                run.on_first_rank(lambda: _require_same(continued / TEXT_FILE, record))
            if run.from_first_rank(lambda: _is_finished(continued)):
                return model

            def settings() -> dict[str, Any]:
                return {
                    **text.budget,
                    "init": str(source),
                    "objective": objective_for(config),
                    "max_length": _row_length(config),
                    **_tracks(continued / "corpus", config),
                    "evaluation_rows": EVALUATION_ROWS,
                    "device": device,
                    "precision": precision,
                    "seed": seed,
                }

            try:
                result = pretrain_on_text(
                    continued,
                    run,
                    lambda: _build_corpus(folder, text, continued, record),
                    settings,
                    by_processor=by_processor,
                )
            except BudgetError as error:
                fix = f"allow more than {error.minutes:g} with --continue-minutes, or give --continue-steps instead"
                fix += ", in a new run" if run.is_resumed else ""
                raise ConfigError(expected=error.expected, found=error.found, fix=fix) from None
            costs = {name: getattr(result, name) for name in ("processor_seconds", "seconds", "tokens")}
            run.on_first_rank(lambda: write_json(continued / COSTS_FILE, costs))
            # What is left to do needs the model alone.
            run.on_first_rank(RunFolder.open(continued / "run").clear)
    return model


def continued_model(out: Path) -> Path:
    """The model folder in RUN that `continue_pretraining` writes."""
    return out / CONTINUED / "run" / "model"


def continued_costs(out: Path) -> dict[str, float]:
    """The costs that `continue_pretraining` recorded in RUN."""
    return dict(read_json(out / CONTINUED / COSTS_FILE))


def documents_of(examples: Sequence[Example], source: str) -> Iterator[Document]:
    """The texts of examples as documents, each text once: a document for each example, context or tagged document."""
    groups: dict[Any, list[str]] = {}
    for number, example in enumerate(examples):
        if isinstance(example, TaggedExample):
            groups.setdefault(example.document, []).append(" ".join(example.words))
        elif isinstance(example, QuestionExample):
            groups.setdefault(example.context, split_sentences(example.context)).append(example.question)
        elif isinstance(example, ChoiceExample):
            groups[number] = [line for part in (example.context, *example.endings) for line in split_sentences(part)]
        else:
            parts: tuple[str, ...]
            if isinstance(example, TripletExample | MentionExample):
                parts = example.texts
            elif isinstance(example, SequenceExample):
                parts = (example.source,)  # targets would be learned as texts that follow their sources
            else:
                parts = (example.first, example.second or "")
            groups[number] = [line for part in parts for line in split_sentences(part)]
    for sentences in dict.fromkeys(map(tuple, groups.values())):
        if sentences:
            yield Document(source, list(sentences))


def _is_finished(continued: Path) -> bool:
    """Whether the model is written, and its costs."""
    return (continued / "run" / "model").is_dir() and (continued / COSTS_FILE).is_file()


def _row_length(config: EncoderConfig) -> int:
    """The tokens of a row, or of a window of a recurrent model."""
    return min(WINDOW if config.is_recurrent else ROW_LENGTH, config.max_tokens)


def _build_corpus(folder: ModelFolder, text: TaskText, continued: Path, record: Mapping[str, Any]) -> None:
    """Writes what is read, and its corpus unless that is there."""
    continued.mkdir(parents=True, exist_ok=True)
    write_json(continued / TEXT_FILE, record)
    if not (continued / "corpus").is_dir():
        tokenizer = folder.require_tokenizer()
        build_corpus(text.texts(), tokenizer, continued / "corpus", held_out=HELD_OUT)
        _check_text(Corpus.open(continued / "corpus"), text.path, _row_length(folder.config))


def _tracks(corpus: Path, config: EncoderConfig) -> dict[str, int]:
    """Fewer tracks of a short text for a recurrent model, so that each has a few windows."""
    if not config.is_recurrent:
        return {}
    return {"rows_per_step": max(1, min(MOST_TRACKS, Corpus.open(corpus).num_tokens // (LEAST_WINDOWS * WINDOW)))}


def _check_text(corpus: Corpus, path: Path, longest: int) -> None:
    """Refuses text that is shorter than a row, and says how well the vocabulary fits it."""
    tokens = corpus.num_tokens + int(corpus.manifest["held_out"].get("tokens", 0))
    if tokens < longest:
        raise InputError(
            expected=f"text to continue on of at least {longest} tokens, one row, in {quoted(path)}",
            found=counted(tokens, "token"),
            fix="give more text, or leave --continue-on out",
        )
    unknown = int(corpus.token_counts()[corpus.vocabulary.unk_id]) / max(corpus.num_tokens, 1)
    words = max(int(corpus.manifest["read"]["words"]), 1)
    tell(
        f"continuing the pre-training on {counted(tokens, 'token')} of {quoted(path)}: {tokens / words:.2f} tokens for "
        f"each word, {unknown:.2%} of them [UNK]"
    )
    if unknown > UNKNOWN_SHARE:
        fit = "the vocabulary of the model does not fit this text"
        warn(f"{unknown:.1%} of the tokens of {quoted(path)} are [UNK]: {fit}")


def _require_text(run: Run) -> None:
    """Checks that a resumed run was started with text to continue on."""
    if is_run(run.path) and not (run.path / CONTINUED / TEXT_FILE).is_file():
        raise RunError(
            expected=f"the options that the run in '{run.path}' was started with",
            found="text to continue on, which it did not have",
            fix="leave --continue-on out or start a new run",
        )


def _require_same(path: Path, record: dict[str, Any]) -> None:
    """Checks that the text and the budget are those that were recorded."""
    if differing := keep_record(path, record):
        raise RunError(
            expected=f"the text and the budget that '{path.parent}' was started with",
            found=f"other {' and '.join(differing)}",
            fix="resume with the original ones or start a new run",
        )
