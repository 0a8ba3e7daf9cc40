"""The networks of a comparison: pre-trained on the text within the budget, untrained, or given."""

import dataclasses
import shutil
from pathlib import Path
from typing import ClassVar

from bertsmith.checkpoints.assembly import save_pretrained
from bertsmith.checkpoints.load import locate
from bertsmith.comparison.bench import Bench
from bertsmith.comparison.sources import SEED, Kept, Made, Source
from bertsmith.corpus.shards import Corpus
from bertsmith.errors import ConfigError, InputError
from bertsmith.model_files.metadata import ModelMetadata
from bertsmith.pretraining.recipes import AUTO_SIZE, settings_from_recipe, size_for
from bertsmith.pretraining.run import new_model, pretrain
from bertsmith.pretraining.settings import PretrainingDataSettings, PretrainingRunSettings
from bertsmith.runtime import choose
from bertsmith.training.budget import BudgetError
from bertsmith.training.run_folder import SETTINGS_FILE, RunFolder
from bertsmith.training.settings import TrainSettings

EVALUATION_ROWS = 256

Recipe = tuple[PretrainingRunSettings, PretrainingDataSettings, TrainSettings]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Pretraining(Kept):
    """A network that is pre-trained on the text by the default recipe.

    Attributes:
        name: the name of its folder.
        architecture: its architecture, None for that of BERT.
        objective: of the pre-training, None for that of the recipe.
    """

    name: str
    architecture: str | None = None
    objective: str | None = None

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
        given = {name: value for name, value in named.items() if value is not None}
        fixed = {"size": size, "evaluation_rows": EVALUATION_ROWS, "device": bench.device, "seed": SEED}
        return settings_from_recipe({**given, **fixed})

    def make_in(self, bench: Bench, place: Path) -> dict[str, float]:
        """See `Kept.make_in`.

        On a CPU, a budget in minutes counts processor time: the run finds the number of steps that fit into it, and
        changes it whenever steps turn out to be slower or faster (`training.budget`). On a GPU, whose time that is not,
        it counts wall-clock time.
        """
        is_resumed, by_processor = (place / SETTINGS_FILE).is_file(), choose(bench.device).device == "cpu"
        try:
            result = pretrain(
                bench.reading().corpus, place, *self.recipe(bench), resume=is_resumed, by_processor=by_processor
            )
        except BudgetError as error:
            shutil.rmtree(place, ignore_errors=True)
            raise ConfigError(
                expected=f"a time long enough for {self.name}",
                found=error.found,
                fix=f"allow more than {error.minutes:g} minutes with --minutes, or leave {self.name} out of --systems",
            ) from None
        except (ConfigError, InputError):
            if not is_resumed:
                shutil.rmtree(place, ignore_errors=True)
            raise
        RunFolder.open(place).clear()
        return {
            "processor_seconds": round(result.processor_seconds, 3),
            "seconds": round(result.seconds, 3),
            "tokens": result.tokens,
        }


@dataclasses.dataclass(frozen=True, kw_only=True)
class Untrained(Source):
    """The network of a pre-training with random parameters, others for each seed.

    Attributes:
        like: the pre-training.
    """

    like: Pretraining

    def make(self, bench: Bench, seed: int, scratch: Path) -> Made:
        """See `Source.make`."""
        place = scratch / "base"
        if not place.is_dir():
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
            save_pretrained(place, new_model(run, data, seed, corpus), corpus.tokenizer, metadata, trained=())
        return Made(path=str(place))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Given(Source):
    """A model that exists.

    Attributes:
        model: a model folder, a run folder, a Google checkpoint, a hub id, or "starter".
    """

    needs_text: ClassVar[bool] = False
    model: str

    def make(self, bench: Bench, seed: int, scratch: Path) -> Made:
        """See `Source.make`; a model of the hub is downloaded unless it is in the cache."""
        return Made(path=str(locate(self.model)[0]))
