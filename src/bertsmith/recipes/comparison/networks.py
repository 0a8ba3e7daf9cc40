"""The networks of a comparison: pre-trained on the text within the budget, untrained, or given."""

import dataclasses
import json
import shutil
from pathlib import Path
from typing import Any, ClassVar

from bertsmith.base.core.errors import ConfigError, InputError
from bertsmith.base.storage.files import digest_bytes, write_text
from bertsmith.models.checkpoints.architectures import ARCHITECTURES
from bertsmith.models.checkpoints.assembly import save_pretrained
from bertsmith.models.checkpoints.load import load_any, locate
from bertsmith.models.model_files.metadata import ModelMetadata
from bertsmith.recipes.comparison.bench import Bench
from bertsmith.recipes.comparison.sources import SEED, Kept, Made, Source
from bertsmith.tasks.specs.settings import ColumnSettings
from bertsmith.text.corpus.shards import Corpus
from bertsmith.training.loop.budget import BudgetError
from bertsmith.training.loop.run_folder import CONTINUED, SETTINGS_FILE, RunFolder
from bertsmith.training.loop.settings import TrainSettings
from bertsmith.training.pretraining.recipes import MOST_TRACKS, WINDOW, settings_from_recipe, size_for
from bertsmith.training.pretraining.run import new_model, pretrain
from bertsmith.training.pretraining.settings import AUTO_SIZE, PretrainingDataSettings, PretrainingRunSettings

EVALUATION_ROWS = 256
CONTINUED_SHARE = 0.1  # of the budget, for a second pre-training on the texts of the task

Recipe = tuple[PretrainingRunSettings, PretrainingDataSettings, TrainSettings]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Pretraining(Kept):
    """A network that is pre-trained on the text by the default recipe."""

    name: str
    architecture: str | None = None  # its architecture, None for that of BERT
    objective: str | None = None  # of the pre-training, None for that of the recipe

    def max_tokens(self) -> int:
        """See `Source.max_tokens`."""
        return ARCHITECTURES[self.architecture or "bert"].config().max_tokens

    def recipe(self, bench: Bench) -> Recipe:
        """The settings of the run, with the budget of the comparison."""
        budget = bench.budget
        size = size_for(budget.minutes) if budget.size == AUTO_SIZE else budget.size
        named = {
            "architecture": self.architecture,
            "objective": self.objective,
            "minutes": budget.minutes,
            "tokens": budget.tokens,
        }
        chosen = {name: value for name, value in named.items() if value is not None}
        fixed = {"size": size, "evaluation_rows": EVALUATION_ROWS, "device": bench.device, "seed": SEED}
        return settings_from_recipe({**chosen, **fixed})

    def make_in(self, bench: Bench, folder: Path) -> dict[str, float]:
        """See `Kept.make_in`.

        On a CPU, a budget in minutes counts processor time: the run finds the number of steps that fit into it, and
        changes it whenever steps turn out to be slower or faster (`training.budget`). On a GPU, whose time that is not,
        it counts wall-clock time.
        """
        is_resumed, by_processor = (folder / SETTINGS_FILE).is_file(), bench.counts_processor_time
        try:
            result = pretrain(
                bench.reading().corpus, folder, *self.recipe(bench), resume=is_resumed, by_processor=by_processor
            )
        except BudgetError as error:
            shutil.rmtree(folder, ignore_errors=True)
            raise ConfigError(
                expected=f"a time long enough for {self.name}",
                found=error.found,
                fix=f"allow more than {error.minutes:g} minutes with --minutes, or leave {self.name} out of --systems",
            ) from None
        except (ConfigError, InputError):
            if not is_resumed:
                shutil.rmtree(folder, ignore_errors=True)
            raise
        RunFolder.open(folder).clear()
        return {
            "processor_seconds": round(result.processor_seconds, 3),
            "seconds": round(result.seconds, 3),
            "tokens": result.tokens,
        }


@dataclasses.dataclass(frozen=True, kw_only=True)
class ContinuedOnTask(Kept):
    """A network that is first pre-trained on the text, and then on the texts of the task, without their labels.

    It gets CONTINUED_SHARE of the budget for the second part; the texts are those of all training examples.
    """

    name: str  # the beginning of the name of its folder, which ends with a digest of the texts
    base: Pretraining

    def max_tokens(self) -> int:
        """See `Source.max_tokens`."""
        return self.base.max_tokens()

    def folder(self, bench: Bench) -> Path:
        """See `Kept.folder`."""
        return bench.models / f"{self.name}-{_digest_of_texts(bench).rpartition(':')[2][:8]}"

    def result(self, folder: Path) -> Path:
        """See `Kept.result`."""
        from bertsmith.recipes.adaptation.task_text import continued_model

        return continued_model(folder).parent

    def record(self, bench: Bench) -> dict[str, Any]:
        """See `Kept.record`."""
        return {**self.base.record(bench), "name": self.name, "task_texts": _digest_of_texts(bench)}

    def make_in(self, bench: Bench, folder: Path) -> dict[str, float]:
        """See `Kept.make_in`; the costs are those of both pre-trainings, over all resumed parts."""
        from bertsmith.recipes.adaptation.task_text import TaskText, continue_pretraining, continued_costs, documents_of

        base, budget, resume = self.base.make(bench, SEED, folder), bench.budget, (folder / CONTINUED).is_dir()
        text = folder.with_name(f"{folder.name}.jsonl")
        documents = ({"text": "\n".join(document.sentences)} for document in documents_of(bench.data.train, str(text)))
        write_text(text, "".join(json.dumps(document, ensure_ascii=False) + "\n" for document in documents))
        minutes = None if budget.minutes is None else CONTINUED_SHARE * budget.minutes
        steps = None if budget.tokens is None else max(1, int(CONTINUED_SHARE * budget.tokens / (MOST_TRACKS * WINDOW)))
        try:
            continue_pretraining(
                base.path,
                folder,
                TaskText(
                    path=text,
                    task=bench.spec.name,
                    train=None,
                    columns=ColumnSettings(),
                    minutes=minutes,
                    steps=steps,
                ),
                device=bench.device,
                seed=SEED,
                resume=resume,
                by_processor=bench.counts_processor_time,
            )
        except (ConfigError, InputError) as error:
            shutil.rmtree(folder, ignore_errors=True)
            raise ConfigError(
                expected=f"texts and time enough for {self.name}, which gets {CONTINUED_SHARE:.0%} of the budget",
                found=error.found,
                fix="allow more with --minutes or --tokens, or leave systems on it out of --systems",
            ) from None
        finally:
            text.unlink()
        costs = continued_costs(folder)
        return {name: round(value + costs.get(name, 0), 3) for name, value in base.costs.items()}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Untrained(Source):
    """The network of a pre-training with random parameters, others for each seed."""

    like: Pretraining

    def max_tokens(self) -> int:
        """See `Source.max_tokens`."""
        return self.like.max_tokens()

    def make(self, bench: Bench, seed: int, scratch: Path) -> Made:
        """See `Source.make`."""
        path = scratch / "base"
        if not path.is_dir():
            folder = bench.reading().corpus
            corpus = Corpus.open(folder)
            run, data, _ = self.like.recipe(bench)
            metadata = ModelMetadata(
                task="pretraining",
                objective=data.objective,
                trained_on={"vocabulary": corpus.tokenizer.vocabulary.digest},
                steps=0,
                tokens=0,
            )
            save_pretrained(path, new_model(run, data, seed, corpus), corpus.tokenizer, metadata, trained=())
        return Made(path=str(path))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Given(Source):
    """A model that exists."""

    needs_text: ClassVar[bool] = False
    model: str  # a model folder, a run folder, a Google checkpoint, a hub id, or "starter"

    def max_tokens(self) -> int:
        """See `Source.max_tokens`."""
        return load_any(self.model).config.max_tokens

    def make(self, bench: Bench, seed: int, scratch: Path) -> Made:
        """See `Source.make`; a model of the hub is downloaded unless it is in the cache."""
        return Made(path=str(locate(self.model)[0]))


def _digest_of_texts(bench: Bench) -> str:
    """The digest of the texts of the training examples."""
    from bertsmith.recipes.adaptation.task_text import documents_of

    every = [document.sentences for document in documents_of(bench.data.train, "")]
    return digest_bytes(json.dumps(every).encode())
