"""The networks of a comparison: pre-trained on the text within the budget, untrained, or given.

::

    MODELS/NAME/            the run folder of a pre-training, see `sources`
    MODELS/NAME.plan.json   while it runs: the steps that fit into the time
"""

import dataclasses
import shutil
import time
from pathlib import Path
from typing import Any, ClassVar

from bertsmith.checkpoints.assembly import save_pretrained
from bertsmith.checkpoints.load import locate
from bertsmith.comparison.bench import Bench, too_short
from bertsmith.comparison.sources import SEED, Kept, Made, Source
from bertsmith.corpus.shards import Corpus
from bertsmith.errors import ConfigError, InputError
from bertsmith.files import read_json, write_json
from bertsmith.model_files.metadata import ModelMetadata
from bertsmith.pretraining.recipes import AUTO_SIZE, settings_from_recipe, size_for
from bertsmith.pretraining.run import new_model, pretrain
from bertsmith.pretraining.settings import PretrainingDataSettings, PretrainingRunSettings
from bertsmith.progress import quiet
from bertsmith.runtime import choose
from bertsmith.training.budget import BudgetError
from bertsmith.training.run_folder import SETTINGS_FILE, RunFolder
from bertsmith.training.settings import TrainSettings

EVALUATION_ROWS = 256
_TRIAL_STEPS, _EVALUATIONS = 7, 5  # of a pre-training: steps that are timed, and evaluations during the run

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

    def recipe(self, bench: Bench, **budget: int) -> Recipe:
        """The settings of the run.

        Args:
            budget: a budget in steps, and how often the network is evaluated; by default the budget of the comparison.
        """
        budget_settings = bench.budget
        own: dict[str, Any] = budget or {"minutes": budget_settings.minutes, "tokens": budget_settings.tokens}
        named = {"architecture": self.architecture, "objective": self.objective, **own}
        size = size_for(budget_settings.minutes) if budget_settings.size == AUTO_SIZE else budget_settings.size
        given = {name: value for name, value in named.items() if value is not None}
        fixed = {"size": size, "evaluation_rows": EVALUATION_ROWS, "device": bench.device, "seed": SEED}
        return settings_from_recipe({**given, **fixed})

    def make_in(self, bench: Bench, place: Path) -> dict[str, float]:
        """See `Kept.make_in`.

        On a CPU, steps are timed first, in processor time, which a busy machine does not change much; on a GPU, whose
        time that is not, the run has its minutes.
        """
        plan = place.with_name(f"{place.name}.plan.json")
        planned: dict[str, Any] = {"processor_seconds": 0.0, "budget": {}}
        if bench.budget.minutes is not None and choose(bench.device).device == "cpu":
            if not plan.is_file():
                write_json(plan, self._planned(bench, place))
            planned = read_json(plan)
        is_resumed = (place / SETTINGS_FILE).is_file()
        processor, wall = time.process_time(), time.monotonic()
        try:
            result = pretrain(
                bench.reading().corpus, place, *self.recipe(bench, **planned["budget"]), resume=is_resumed
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
        processor, wall = time.process_time() - processor, time.monotonic() - wall
        RunFolder.open(place).clear()
        plan.unlink(missing_ok=True)
        # Of a resumed run, the processor time of the earlier part is not known: it is taken to be used as in this one.
        processor *= max(result.seconds / max(wall, 1e-9), 1.0) if is_resumed else 1.0
        return {
            "processor_seconds": round(planned["processor_seconds"] + processor, 3),
            "seconds": round(result.seconds, 3),
            "tokens": result.tokens,
        }

    def _planned(self, bench: Bench, place: Path) -> dict[str, Any]:
        """The budget in steps that fits into the processor time, and the processor seconds of finding it.

        Raises:
            ConfigError: not even a step fits.
        """
        trial, marks = place.with_name(f"{place.name}.trial"), list[float]()
        shutil.rmtree(trial, ignore_errors=True)
        corpus, start = bench.reading().corpus, time.process_time()
        try:
            with quiet():
                recipe = self.recipe(bench, steps=_TRIAL_STEPS, evaluate_every=_TRIAL_STEPS - 1)
                pretrain(corpus, trial, *recipe, on_evaluation=lambda *_: marks.append(time.process_time()))
        finally:
            shutil.rmtree(trial, ignore_errors=True)
        end = time.process_time()
        # Evaluated before the first step, before the last one, and after it.
        first, second, third = marks
        step = max(((second - first) - (third - second)) / (_TRIAL_STEPS - 2), 1e-4)
        evaluation = max(third - second - step, 0.0)
        around = (first - start) + (end - third) + _EVALUATIONS * evaluation
        steps = int((bench.budget.processor_seconds - (end - start) - around) / step)
        if steps < 1:
            raise too_short(self.name, bench.budget, (end - start) + around + step, "a trial followed by a single step")
        return {
            "processor_seconds": round(end - start, 3),
            "budget": {"steps": steps, "evaluate_every": -(-steps // _EVALUATIONS)},
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
