"""The parameters of `bertsmith finetune`."""

import dataclasses
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from bertsmith.base.core.requests import Request, file_field
from bertsmith.base.core.settings import PAPER, Help, help_field, require, require_other, require_recipe
from bertsmith.base.core.tables import File, Table
from bertsmith.models.heads.head_spec import RERANKING
from bertsmith.recipes.finetuning.settings import (
    BAG_ALONE,
    FINETUNING_RECIPES,
    SETFIT,
    ULMFIT,
    FinetuningSettings,
    RecipeSettings,
    may_start_linear,
    require_agreement,
)
from bertsmith.tasks.datasets.examples import ENTITIES_BY_NAME, FORMS, PAIRS, TEXTS
from bertsmith.tasks.datasets.label_map import LabelMap
from bertsmith.tasks.specs.named_tasks import RANKED, kind_of, known_task, require_metric, task_name
from bertsmith.tasks.specs.settings import CROSS_ENCODER, ColumnSettings, SplitSettings, TaskSettings
from bertsmith.tasks.specs.task import OF_BAG

if TYPE_CHECKING:
    from bertsmith.models.heads.own_head import OwnHead

_DIGITS, _BOTH = 10, 2  # of a rank, at most; the number of ranks
# Settings that count where a bag of words alone is kept; some are those of the baselines.
_OF_BAG = {"keep", "refit", "seed", "class_weights", "baselines", "reads", "device", "precision", "micro_tokens"}


@dataclasses.dataclass(frozen=True)
class FinetuneRequest(Request, FinetuningSettings, RecipeSettings, TaskSettings, ColumnSettings, SplitSettings):
    """A base model, a task, its files, and the settings of a fine-tuning run."""

    aside: ClassVar[tuple[str, ...]] = (*Request.aside, "workers")

    source: Annotated[
        str | Path,
        Help(
            "model folder, checkpoint, hub id, starter or minilm",
            flag="--model",
            metavar="DIR",
            path="the model",
            kind=str,
        ),
    ]
    task: Annotated[
        str,
        Help(
            "a GLUE task (cola, sst-2, ... wnli), snli, xnli, squad, squad2, swag, codah, choice, ner, pos, "
            "classification, multi-label, patents, relations, regression, reranking, similarity, pairs, triplets, "
            "texts, response-selection, summarization, response, translation, parsing, text-to-text, "
            "extractive-summarization, coreference, nested-ner, entities-by-name, spam, spam4, sentiment, claim, truth",
            metavar="NAME",
        ),
    ]
    out: Annotated[
        str | Path,
        Help("the run folder; the final model is saved in RUN/model/", metavar="RUN", path="the run folder", kind=Path),
    ]
    _: dataclasses.KW_ONLY
    train: File | None = file_field(
        "labelled examples, such as a table (.csv, .tsv, .jsonl, .parquet, .xlsx) with columns text and label; presets "
        "come with their own",
        table=True,
    )
    dev: File | None = file_field("dev file [a tenth of --train]", table=True)
    also: Sequence[str | Path] = help_field(
        (),
        "another training file; repeatable. entities-by-name: its labels may be others. similarity, pairs, triplets, "
        "texts: in any of these forms, with a loss and a share of the steps, where --train has 1, such as "
        "FILE:cosent:2 [the loss of its form; shares by the number of examples]",
        metavar="FILE",
        path="also",
        kind=list[str],
    )
    labels: "str | Path | Mapping[str, str] | Table | None" = help_field(
        None,
        "entities-by-name: a table with columns name and description, of any of the labels, which the model then reads "
        "with them",
        library="entities-by-name: descriptions of labels by name, or a table with columns name and description",
        metavar="FILE",
        kind=str,
    )
    seeds: int | None = help_field(
        None,
        "seeds to train with [3 below 10,000 examples, else 1; 1 for tasks that write text, 2 with --keep auto below "
        "500 examples]",
        least=1,
        most=1000,
    )
    folds: int | None = help_field(
        None,
        "cross-validation: predict every training example by a model that is trained without it, in this many folds "
        "with equal shares of each label, or of whole groups (--group-column); the final model is trained on all "
        "examples, and the predictions are in RUN/out_of_fold.jsonl",
        least=2,
        most=1000,
    )
    workers: int = help_field(
        1,
        "with --folds: folds to train at the same time, each in a process of its own with as many threads as one alone "
        "(OMP_NUM_THREADS); the results are the same",
        least=1,
        most=1000,
    )
    search: bool = help_field(False, "first search learning rates, batch sizes and epochs (needs optuna)")
    trials: int = help_field(12, "with --search: settings to try", least=1, most=10_000)
    limit: int | None = help_field(
        None, "use only this many training examples, the same random sample each time", least=1
    )
    resume: bool = help_field(False, "resume RUN; give the same options again")
    head: "type[OwnHead] | None" = help_field(
        None,
        "your own head: a Python file, which is executed, and a subclass of bertsmith.OwnHead in it",
        library="your own head in place of the linear layer, a subclass of `OwnHead`; `load(out, head=...)` needs it "
        "again",
        metavar="FILE:CLASS",
        kind=str,
        no_setting=True,
    )
    map_labels: LabelMap | None = help_field(
        None,
        "rename a label in the files, such as 1=Claim (for entities: a type); repeatable",
        library='new names of the labels in the files, such as {"1": "Claim", "0": "Not Claim"}; every label of the '
        "files needs one, and the model stores the new names. For entities, of their types",
        flag="--map",
        metavar="LABEL=NAME",
        kind=list[str],
    )
    continue_on: File | None = file_field(
        "first continue pre-training on unlabelled text of the task: .txt, .jsonl, .parquet, a folder, or the "
        "training file itself",
        "TEXT",
        table=True,
    )
    continue_minutes: float | None = help_field(None, "with --continue-on: minutes of pre-training [2]")
    continue_steps: int | None = help_field(None, "with --continue-on: steps instead of minutes")
    recipe: str | None = help_field(
        None,
        "how to choose the settings that you leave out: auto (by training-set size, model and task), 2018 (the paper; "
        "the defaults below), ulmfit (layer by layer, for language models) or setfit (few labels: vectors trained on "
        "pairs of texts, then a linear layer) [auto; up to 100 texts for a sentence encoder, not starter: "
        "setfit; with --resume that of RUN]",
        metavar="NAME",
    )
    metric: str | None = help_field(
        None, "the score that selects the best model, such as macro_f1 [that of the task]", metavar="NAME"
    )
    teacher: str | Path | None = help_field(
        None,
        "similarity, pairs, triplets, reranking: a sentence encoder or a model of pairs whose scores replace the "
        "labels",
        metavar="DIR",
        path=True,
        kind=str,
    )
    hard_negatives: int = help_field(
        0,
        "pairs, response-selection and reranking: hard negatives to find for each pair or list, texts that a model "
        "mistakes for the one that belongs to the first text",
        least=0,
        most=100,
    )
    miner: str | Path | None = help_field(
        None,
        "with --hard-negatives: the model whose vectors find them [the base model, or that of the index]",
        metavar="DIR",
        path=True,
        kind=str,
    )
    negatives_from: File | None = file_field(
        "with --hard-negatives: texts that may be negatives, besides those of --train; also an index with dense "
        "vectors, which is searched",
        "TEXT|INDEX",
        table=True,
    )
    negative_ranks: str | None = help_field(
        None,
        "with --hard-negatives: how many of the most similar texts to skip, and the last rank to take, such as 10,50 "
        "[0 and 10 for each negative and 50]",
    )
    negative_margin: float = help_field(
        0.05,
        "with --hard-negatives: the share by which a negative must be less similar to the first text than the one that "
        "belongs to it, as more similar ones may belong to it, too",
        least=0,
        most=1,
    )
    weight_column: str | None = help_field(
        None,
        "classification and regression: column of the training file with the weight of each row in the loss, of which "
        "only the ratios count; rows of weight 0 are left out. Every score counts each row once",
        metavar="NAME",
    )
    negatives: int = help_field(
        3,
        "response-selection with --scorer cross-encoder: wrong replies to draw for each row of the training file",
        least=1,
        most=100,
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        # What is given is checked before a file is read, or a model, which may take minutes or the network.
        for name, value in (("model", self.source), ("run folder", self.out)):
            require(
                known_task(self.task) is not None or known_task(value) is None or os.path.exists(value),
                expected="the model, the task and the run folder in this order",
                found=f"{self.task!r} as the task and {str(value)!r} as the {name}",
                fix="swap them",
            )
        object.__setattr__(self, "task", task_name(self.task))
        if self.recipe is not None:
            require_recipe(self.recipe, FINETUNING_RECIPES)
        if self.metric is not None:
            require_metric(self.task, self.metric)
        require(
            not self.hard_negatives
            or self.task == RERANKING
            or (self.task in (PAIRS, *RANKED) and self.teacher is None),
            expected=f"the task {PAIRS} or {RANKED[0]} without a teacher, or {RERANKING}, for hard negatives",
            found=self.task if self.teacher is None else "--teacher",
            fix="leave --hard-negatives out",
        )
        require_other(self.list_loss is None or self.task == RERANKING, "--list-loss", f"--task {RERANKING}")
        require_other(
            "negatives" not in self.given or (self.task in RANKED and self.scorer == CROSS_ENCODER),
            "--negatives",
            f"--task {RANKED[0]} --scorer {CROSS_ENCODER}",
        )
        for name in ("miner", "negatives_from", "negative_ranks", "negative_margin"):
            option = f"--{name.replace('_', '-')}"
            require_other(name not in self.given or self.hard_negatives > 0, option, "--hard-negatives")
        if self.negative_ranks is not None:
            first, last = self.ranks_of_negatives or (0, 0)
            require(
                first + self.hard_negatives <= last,
                expected=f"two ranks at least {self.hard_negatives} apart as --negative-ranks, such as 10,50",
                found=repr(self.negative_ranks)[:60],
                fix="correct them",
            )
        for name, tasks in (("also", (ENTITIES_BY_NAME, *FORMS)), ("labels", (ENTITIES_BY_NAME,))):
            require_other(name not in self.given or self.task in tasks, f"--{name}", f"--task {' or '.join(tasks)}")
        require_other(not self.also or self.group_column is None, "--also", "no --group-column", "leave one out")
        require_other(self.workers == 1 or self.folds is not None, "--workers", "--folds")
        if self.folds is not None:
            self._require_folds()
        if "keep" in self.given and self.keep == BAG_ALONE:
            self._require_bag_alone()
        require_agreement(
            self.keep if "keep" in self.given or self.recipe in (PAPER, ULMFIT) else None,
            start=self._known_start(),
            refit=self.refit,
        )

    @property
    def ranks_of_negatives(self) -> tuple[int, int] | None:
        """How many of the most similar texts are skipped, and the last rank of a hard negative; None by default."""
        parts = [] if self.negative_ranks is None else self.negative_ranks.split(",")
        numbers = [int(part) for part in parts if part.strip().isdecimal() and len(part) < _DIGITS]
        return (numbers[0], numbers[1]) if len(numbers) == len(parts) == _BOTH else None

    def _require_folds(self) -> None:
        """Refuses options that cross-validation has no use for."""
        refused = {
            "--dev": (self.dev is not None, "score the model on that file afterwards, with `bertsmith evaluate`"),
            "--search": (self.search, "search first, then give the settings with the best score"),
            "--continue-on": (self.continue_on is not None, "continue first, and name RUN/continued/model as --model"),
            "--refit": (self.refit, "leave it out: the model is trained on all examples"),
            "--patience": (self.patience is not None, "leave it out: no fold chooses the step that is kept"),
            "--keep best": (self.keep == "best" and "keep" in self.given, "use --keep last or auto"),
            f"--task {TEXTS}": (self.task == TEXTS, "leave one of the two out"),
            "--head and --workers": (self.head is not None and self.workers > 1, "leave --workers out"),
        }
        for option, (is_given, fix) in refused.items():
            require(not is_given, expected="no such option with --folds", found=option, fix=fix)

    def _known_start(self) -> str | None:
        """How the new layer starts; None if that is not known before the model is."""
        if "start" in self.given or self.recipe in (PAPER, ULMFIT):
            return self.start
        chosen = {**self.values(FinetuningSettings), **self.values(RecipeSettings)}
        may = self.recipe == SETFIT or may_start_linear(kind_of(self.task), chosen, own_head=self.head is not None)
        return None if may else self.start

    @property
    def is_plain(self) -> bool:
        """Whether the trainings of the task are all there is, and of equal rows: no search, no pre-training."""
        before = (self.continue_on, self.continue_minutes, self.continue_steps)
        return not self.search and before == (None, None, None) and self.weight_column is None

    def require_setfit_alone(self) -> None:
        """Refuses options that the recipe setfit has no use for."""
        others = {**self._more_training, "--weight-column": self.weight_column}
        _require_none(others, "the recipe setfit by itself", "choose another --recipe")

    def _require_bag_alone(self) -> None:
        """Refuses options of trainings, and tasks, that a bag of words has no use for."""
        bag = f"--keep {BAG_ALONE}"
        require_other(kind_of(self.task) in OF_BAG, bag, f"a task of {' or '.join(OF_BAG)} of whole texts")
        settings = {field.name for part in (FinetuningSettings, RecipeSettings) for field in dataclasses.fields(part)}
        ignored = sorted(self.given & (settings - _OF_BAG))
        others = {**self._more_training, "--seeds": self.seeds, "--recipe": self.recipe}
        others |= {f"--{name.replace('_', '-')}": getattr(self, name) for name in ignored}
        _require_none(others, f"{bag}, which trains nothing,", "choose another --keep")

    @property
    def _more_training(self) -> Mapping[str, Any]:
        """The options of trainings that not every recipe has; None for those that were left out."""
        return {
            "--continue-on": self.continue_on,
            "--continue-minutes": self.continue_minutes,
            "--continue-steps": self.continue_steps,
            "--search": self.search or None,
            "--head": self.head,
        }


def _require_none(options: Mapping[str, Any], expected: str, other: str) -> None:
    """Refuses options that have a value.

    Args:
        other: what to do if they are not left out.
    """
    refused = [name for name, value in options.items() if value is not None]
    fix = f"leave {'it' if len(refused) == 1 else 'them'} out, or {other}"
    require(not refused, expected=expected, found=", ".join(refused), fix=fix)
