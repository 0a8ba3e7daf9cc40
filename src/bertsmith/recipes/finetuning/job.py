"""A fine-tuning job: a task and its examples, encoded once and trained repeatedly with different settings.

::

    TRAINING/                what every run folder holds: settings.json, metrics.jsonl
    TRAINING/report.json     the scores of its best epoch
    TRAINING/predictions.jsonl   that model's predictions on the dev examples, next to the gold labels
    TRAINING/model/          that model
    TRAINING/adapter/        with an adapter (LoRA): the adapter alone; the model is the base model with it
"""

import copy
import dataclasses
import functools
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from bertsmith.base.core.errors import ConfigError
from bertsmith.base.core.progress import recorded_warnings, warn
from bertsmith.base.core.settings import require, to_dict
from bertsmith.base.machine.runtime import Rank, Runtime, choose
from bertsmith.base.processes.distributed import result_of_first_rank
from bertsmith.base.processes.sharding import Division, whole_parameters
from bertsmith.base.storage.files import digest_bytes, read_json, write_json, write_text
from bertsmith.models.checkpoints.adapters import groups_of_targets, write_adapter
from bertsmith.models.checkpoints.assembly import Parameters, TaskModel, load_for_task, save_pretrained
from bertsmith.models.checkpoints.hub import model_name
from bertsmith.models.checkpoints.load import load_any
from bertsmith.models.checkpoints.model_folder import ModelFolder
from bertsmith.models.checkpoints.special_pieces import with_special_pieces
from bertsmith.models.checkpoints.weights import digest_of_tensors
from bertsmith.models.heads.encoder_with_head import EncoderForTask
from bertsmith.models.heads.head_spec import Head
from bertsmith.models.heads.own_head import OwnHead
from bertsmith.models.model_files.metadata import BEST_EVALUATION, ModelMetadata
from bertsmith.models.parts.low_rank import Factors, Group, add_adapters, merge_adapters
from bertsmith.models.parts.part_names import QUERY_TABLE, TOKEN_PROJECTION
from bertsmith.recipes.finetuning.base_model import (
    loading_options,
    require_base,
    require_divisible,
    spec_of_job,
)
from bertsmith.recipes.finetuning.settings import KEPT, FinetuningSettings, RecipeSettings, require_agreement
from bertsmith.recipes.finetuning.sources import sources_of
from bertsmith.recipes.finetuning.workload import Finetuning
from bertsmith.recipes.results.finished_run import (
    ADAPTER_FOLDER,
    MODEL_FOLDER,
    PREDICTIONS_FILE,
    REPORT_FILE,
    SeedResult,
)
from bertsmith.recipes.results.resampling import example_lines
from bertsmith.tasks.datasets.examples import Example
from bertsmith.tasks.encoding.forward import task_logits
from bertsmith.tasks.encoding.frozen import SharedEncoder
from bertsmith.tasks.encoding.units import EncodedExamples
from bertsmith.tasks.specs.kinds import task_for
from bertsmith.tasks.specs.task import Prediction, Task, TaskSpec
from bertsmith.tasks.task_data.split import TaskData
from bertsmith.training.loop.checkpoint import take_whole
from bertsmith.training.loop.guard import divergence_in_words
from bertsmith.training.loop.loop import train
from bertsmith.training.loop.run import Run
from bertsmith.training.loop.run_folder import PREPARED, RunFolder, is_run
from bertsmith.training.loop.settings import TrainSettings

if TYPE_CHECKING:
    from bertsmith.tasks.baselines.linear import LinearModel
    from bertsmith.training.loop.teaching import Teaching

BaseModel: TypeAlias = "Path | str | ModelFolder | FinetuningJob"

_JUDGED = 200  # training examples that a collapse must show on, where dev examples are few
# Settings that do not change a training, so a resumed run may have others.
WITHOUT_EFFECT = ("run.baselines", "run.merge", "run.refit")


class Judged(NamedTuple):
    """What dev examples say about a model.

    Attributes:
        spec: the spec of the task, with the values that are fitted to dev examples.
        scores: of the dev examples; empty without any.
        collapsed: whether the model gives the same answer to every example.
        predictions: for the dev examples; None without any.
    """

    spec: TaskSpec
    scores: Mapping[str, float]
    collapsed: bool
    predictions: Sequence[Prediction] | None


class FinetuningJob:
    """A base model, a task and its examples, ready to be trained; made by `prepare`.

    Attributes:
        task: the task, its rows no longer than the model reads.
        untrained: the model folder from which baselines take frozen vectors, which must not have seen the labels.
        base_name: the name of the base model, as it was before its pre-training was continued.
        head: the head of the task, or the user's in its place.
        epoch_units: the units that count as one epoch: those of the training set, or its examples if the task counts
            them.
        sources: of several training files, the encoded examples of each, the first of which are `train`.
        frozen: the base model for linear models on its vectors, which are fitted before the training.
        adapted: the layers that an adapter is trained for; empty without one.
        teaching: a teacher to learn from, see `taught_by`; None by default.
        recipe: its learning rate and the like.
        training: the settings of the training loop, derived from the epochs.
    """

    def __init__(
        self,
        folder: ModelFolder,
        task: Task,
        data: TaskData,
        encoded: tuple[EncodedExamples, EncodedExamples | None],
        settings: FinetuningSettings,
        recipe: RecipeSettings,
        runtime: Runtime,
        head: Head,
        frozen: SharedEncoder,
    ) -> None:
        assert folder.tokenizer is not None, "load_for_task checks this"
        self.folder, self.task, self.data, self.head = folder, task, data, head
        self.untrained, self.base_name = folder, model_name(folder.path)
        self.train, self.dev = encoded
        self.sources = sources_of(folder, task, self.train, data.sources, settings) if data.sources else []
        self.epoch_units = len(data.train) if task.epochs_count_examples else len(self.train)
        self.epoch_units += sum(len(source.features) for source in self.sources[1:])
        self.frozen = frozen
        self.teaching: Teaching | None = None
        self.tokenizer, self.runtime = folder.tokenizer, runtime
        self._linear_starts: list[LinearModel] = []  # at most one, for this job and all copies with other settings
        self.adapted = _adapted_layers(folder, settings, head)
        self._set(settings, recipe)

    @staticmethod
    def prepare(
        source: "BaseModel",
        spec: TaskSpec,
        data: TaskData,
        settings: FinetuningSettings,
        recipe: RecipeSettings,
        own_head: type[OwnHead] | None = None,
    ) -> "FinetuningJob":
        """The job, with all examples checked and encoded.

        Args:
            source: the base model, or a job of the same examples, which only gets the settings.
            own_head: the user's head, in place of the linear layer.

        Raises:
            BertsmithError: model, examples or settings do not fit; the message says which.
        """
        if isinstance(source, FinetuningJob):
            return source.with_settings(settings, recipe)
        folder = with_special_pieces(source if isinstance(source, ModelFolder) else load_any(source))
        runtime = choose(settings.device, settings.precision)
        runtime.tell()
        task = task_for(spec_of_job(spec, folder, settings))
        task.seed = recipe.seed
        if settings.start == KEPT:
            settings = dataclasses.replace(settings, reads=task.spec.reads)
        require_base(folder, settings, pooled=task.head.pooled)
        for name in task.ignored_settings():
            warn(f"{name} is ignored: {task.why_ignored(name)}")
        head = dataclasses.replace(task.head, own=own_head)
        tokenizer = load_for_task(folder, head, parameters="meta", **loading_options(folder, settings)).tokenizer
        with recorded_warnings() as warnings:
            # A held-out dev set comes from the training file, so its labels must be known.
            task.check([*data.train, *data.dev] if data.held_out else data.train, gold=True, training=True)
            if not data.held_out:
                task.check(data.dev, gold=True)
        data = dataclasses.replace(data, warnings=(*data.warnings, *warnings))
        train_features = task.encode(data.train, tokenizer, training=True)
        if not len(train_features):
            raise ConfigError(
                expected="examples in the training data", found="none", fix="name a file with labelled examples"
            )
        encoded = (train_features, task.encode(data.dev, tokenizer) if data.dev else None)
        return FinetuningJob._on(folder, task, data, encoded, settings, recipe, runtime, own_head)

    @staticmethod
    def _on(
        folder: ModelFolder,
        task: Task,
        data: TaskData,
        encoded: tuple[EncodedExamples, EncodedExamples | None],
        settings: FinetuningSettings,
        recipe: RecipeSettings,
        runtime: Runtime,
        own_head: type[OwnHead] | None,
    ) -> "FinetuningJob":
        """The job of encoded examples; decides what depends on the weights of the base model."""
        train_features, frozen = encoded[0], SharedEncoder(folder=folder, device=runtime.device)
        if task.head.pooled and not task.head.is_vector and settings.reads is not None:
            from bertsmith.recipes.finetuning.linear_start import read_by_head

            reads = read_by_head(settings.reads, frozen, task, train_features, own_head)
            settings = dataclasses.replace(settings, reads=reads)
            task = task_for(dataclasses.replace(task.spec, reads=reads))
        head = dataclasses.replace(task.head, own=own_head)
        if settings.class_weights != "none":
            assert train_features.targets is not None, "training examples have labels"
            named = settings.class_weights
            task = task.weighted(train_features.targets, None if isinstance(named, str) else named)
        if settings.start == "linear":
            from bertsmith.recipes.finetuning.linear_start import require_linear

            require_linear(task, settings, own_head)
        return FinetuningJob(folder, task, data, encoded, settings, recipe, runtime, head, frozen)

    def with_settings(self, settings: FinetuningSettings, recipe: RecipeSettings) -> "FinetuningJob":
        """A job with the same examples and other settings; device, precision and what the head reads stay the same."""
        changed = copy.copy(self)
        changed._set(dataclasses.replace(settings, reads=self.settings.reads), recipe)
        return changed

    def taught_by(self, teaching: "Teaching") -> "FinetuningJob":
        """The job with a teacher, whose loss takes the place of that of the task."""
        assert not self.settings.language_model_loss, "one loss next to that of the task"
        changed = copy.copy(self)
        changed.teaching = teaching
        return changed

    def on_base(self, folder: ModelFolder, chosen: FinetuningSettings, recipe: RecipeSettings) -> "FinetuningJob":
        """A job with the same encoded examples on a base model with the same tokenizer.

        Args:
            chosen: what the head reads and how it starts; a probe runs on the new model.
        """
        theirs, ours = folder.require_tokenizer(), self.tokenizer
        assert (theirs.vocabulary.digest, theirs.settings) == (ours.vocabulary.digest, ours.settings), "the same pieces"
        assert folder.config.max_tokens == self.folder.config.max_tokens, "the same rows"
        settings = dataclasses.replace(self.settings, reads=chosen.reads, start=chosen.start)
        encoded = (self.train, self.dev)
        job = FinetuningJob._on(folder, self.task, self.data, encoded, settings, recipe, self.runtime, self.head.own)
        job.base_name = self.base_name
        return job

    @property
    def trains_on_all(self) -> bool:
        """Whether it is trained again on all labelled examples once it has been scored."""
        return self.settings.refit and self.data.held_out and bool(self.data.dev) and self.teaching is None

    def on_all_examples(self) -> "FinetuningJob":
        """The job with its dev examples as training examples, and so without scores; all else stays as it is."""
        every = [*self.data.train, *self.data.dev]
        data = TaskData(train=every, dev=(), digests=self.data.digests, sources=self.data.sources)
        encoded = (self.task.encode(data.train, self.tokenizer, training=True), None)
        settings = (self.settings, self.recipe, self.runtime)
        changed = FinetuningJob(self.folder, self.task, data, encoded, *settings, self.head, self.frozen)
        changed.untrained, changed.base_name = self.untrained, self.base_name
        return changed

    def _set(self, settings: FinetuningSettings, recipe: RecipeSettings) -> None:
        units = max(len(self.train), self.epoch_units)
        if settings.batch_size > units:
            warn(f"batch size reduced from {settings.batch_size} to {units}: there are only {units} training examples")
            settings = dataclasses.replace(settings, batch_size=units)
        require_agreement(recipe.keep, start=settings.start, refit=settings.refit)
        self.settings, self.recipe, self.keep = settings, recipe, recipe.keep
        self.training: TrainSettings = recipe.training(
            steps=settings.steps(self.epoch_units),
            epoch=round(self.epoch_units / settings.batch_size),
            keep_best=self.task.selection_metric if self.dev is not None else None,
        )

    def first_model(
        self, *, seed: int = 0, division: Division | None = None, parameters: Parameters = "own"
    ) -> TaskModel:
        """The base model with a new head, before the first step; see `load_for_task`."""
        options = loading_options(self.folder, self.settings)
        return load_for_task(self.folder, self.head, seed=seed, division=division, parameters=parameters, **options)

    def started_model(self, seed: int, division: Division | None = None) -> EncoderForTask:
        """The model that a training with a seed starts from."""
        model = self.first_model(seed=seed, division=division).model
        if self.settings.start == "linear":
            with whole_parameters(model, f"{self.head.saved_part}."):
                self.linear_start.copy_to(model.output_layer)
        self.frozen.encoder = None  # frees its memory before the first step
        return model

    def division(self, rank: Rank) -> Division | None:
        """How the model is divided among processes, see `require_divisible`; None if each of them holds all of it."""
        if self.training.shard and rank.count > 1:
            require_divisible(self.head, self.settings)
            return Division(rank, self.runtime.torch_device)
        return None

    def record(self) -> dict[str, Any]:
        """The job's entries in settings.json, without the columns of tables: what was read of them has a digest."""
        return {
            "task": "finetuning",
            "spec": dataclasses.replace(self.task.spec, columns={}).to_dict(),
            "run": to_dict(self.settings),
            "train": to_dict(self.training),
            "runtime": {"device": self.runtime.device.split(":")[0], "precision": self.runtime.precision},
            **({} if self.head.own is None else {"head": self.head.own.__name__}),
            **({"sources": self._record_of_sources} if self.sources else {}),
            **({} if self.teaching is None else {"teaching": dict(self.teaching.record)}),
        }

    @property
    def _record_of_sources(self) -> list[dict[str, Any]]:
        return [
            {"name": each.name, "loss": each.spec.objective, "examples": len(each.features), "share": each.share}
            for each in self.sources
        ]

    def digests(self) -> dict[str, str]:
        """The digests of the files, the vocabulary, the base model's weights, and the encoded training and dev rows."""
        taught = {} if self.teaching is None else self.teaching.digests
        return {**self.data.digests, "vocabulary": self.tokenizer.vocabulary.digest, **self._computed_digests, **taught}

    @functools.cached_property
    def _computed_digests(self) -> dict[str, str]:
        digests = {"base": digest_of_tensors(self.folder.tensors)}
        others = [(f"also_{number}", source.features) for number, source in enumerate(self.sources[1:], start=1)]
        for split, features in (("train", self.train), ("dev", self.dev), *others):
            if features is not None:
                gold = b"" if features.targets is None else features.targets.tobytes()
                gold += b"" if features.weights is None else features.weights.tobytes()
                digests[f"{split}_rows"] = digest_bytes(features.rows.token_ids.tobytes() + gold)
        return digests

    @property
    def linear_start(self) -> "LinearModel":
        """The linear model that the new layer starts from, fitted once for all seeds and all trials of a search."""
        if not self._linear_starts:
            from bertsmith.recipes.finetuning.linear_start import LinearStart

            pooling = self.task.spec.settings.pooling
            start = LinearStart(self.frozen, self.train, self.head.outputs, pooling)
            self._linear_starts.append(start.layer(self.head))
        return self._linear_starts[0]

    def train_once(
        self,
        path: Path,
        seed: int,
        on_scores: Callable[[Mapping[str, float]], None] | None = None,
        *,
        resume: bool = False,
        rate_share: float = 1.0,
        label: str = "training",
        rank: Rank | None = None,
    ) -> SeedResult:
        """Trains with one seed in the run folder `path`, resumes that training, or returns its earlier result.

        Args:
            on_scores: receives the dev scores of every evaluation; may raise to end the training.
            resume: the folder may already hold this training.
            rate_share: the peak learning rate as a fraction of that of the job.
            label: what its progress is called.
            rank: this process among those that share every step of the training; by default it trains alone.

        Raises:
            BertsmithError: as `train`; RunError if the folder is not empty and `resume` is not set.
        """
        rank = rank or Rank()
        if resume and (finished := result_of_first_rank(lambda: self._finished(path), rank)):
            return SeedResult(**finished)
        training = dataclasses.replace(self.training, seed=seed, learning_rate=self.training.learning_rate * rate_share)
        is_started = result_of_first_rank(lambda: resume and is_run(path), rank)
        with Run.open(path, resume=is_started, besides=PREPARED, rank=rank) as run:
            run.start({**self.record(), "train": to_dict(training)}, self.digests(), may_change=WITHOUT_EFFECT)
            workload = self._workload(seed, on_scores, rank)
            with divergence_in_words(self.runtime.precision):
                outcome = train(workload, training, run.folder, rank=rank, label=label)
                factors = merge_adapters(workload.model, self.adapted)
                judged = self.judge(workload.model, rank)
            result = SeedResult(
                seed=seed,
                scores=judged.scores,
                collapsed=judged.collapsed,
                best_step=outcome.best_step or outcome.steps,
                steps=outcome.steps,
                seconds=round(outcome.seconds, 3),
                tokens=outcome.tokens,
                learning_rate=training.learning_rate,
            )
            take_whole(workload.model, path, rank)
            return SeedResult(
                **run.from_first_rank(lambda: self._finish(run.folder, workload.model, judged, result, factors))
            )

    def _workload(self, seed: int, on_scores: Callable[[Mapping[str, float]], None] | None, rank: Rank) -> Finetuning:
        """The workload of a training with a seed."""
        work: Callable[..., Finetuning] = Finetuning
        if self.head.is_vector:
            from bertsmith.recipes.finetuning.vector_workload import VectorTraining

            work = functools.partial(VectorTraining, sources=self.sources)
        model = self.started_model(seed, self.division(rank))
        if self.settings.lora_rank is not None:
            add_adapters(model, self.adapted, self.settings.lora_rank, self.settings.lora_scale, seed)
        return work(
            model,
            self.task,
            self.train,
            None if self.dev is None else (self.data.dev, self.dev),
            self.tokenizer,
            self.settings,
            self.runtime,
            seed=seed,
            on_scores=on_scores,
            teaching=self.teaching,
        )

    def _finish(
        self, run: RunFolder, model: EncoderForTask, judged: Judged, result: SeedResult, factors: Factors
    ) -> dict[str, Any]:
        """The result, after the predictions and the model were written, and the report, which says that all is done."""
        self.write_predictions(run.path / PREDICTIONS_FILE, judged.predictions)
        self.write_model(run.path / MODEL_FOLDER, model, judged.spec, result)
        if factors:
            self.write_adapter(run.path, factors)
        write_json(run.path / REPORT_FILE, dataclasses.asdict(result))
        run.clear()
        return dataclasses.asdict(result)

    def judge(self, model: EncoderForTask, rank: Rank) -> Judged:
        """What the dev examples say about a model; without any, only whether it collapsed.

        Args:
            rank: this process among those that hold the model together.
        """
        model.eval()
        # In fp32, like evaluation and prediction, so that they reproduce what is fitted and reported here.
        exact = choose(self.runtime.device, "fp32")
        if self.dev is None:
            collapsed = not self.head.is_vector and self._is_one_answer(model, exact, rank)
            return Judged(self.task.spec, {}, collapsed, None)
        dev, logits = self.dev, task_logits(model, self.dev, exact, self.settings.micro_tokens, rank=rank)
        return self.judged(
            lambda task: task.decode(self.data.dev, dev, logits, self.tokenizer),
            lambda: self._is_one_answer(model, exact, rank),
        )

    def judged(self, predict: Callable[[Task], Sequence[Prediction]], is_one_answer: Callable[[], bool]) -> Judged:
        """What the dev examples say about a model.

        Args:
            predict: its predictions on them, with the fitted values of a task.
            is_one_answer: whether it gives the same answer to all of the first training examples.
        """
        if self.dev is None:
            return Judged(self.task.spec, {}, is_one_answer(), None)
        predictions = predict(self.task)
        spec = self.task.tuned(self.data.dev, predictions)
        if spec != self.task.spec:
            predictions = predict(task_for(spec))
        predictions = task_for(spec).cross_fitted(self.data.dev, predictions) or predictions
        scores = {name: float(value) for name, value in self.task.score(self.data.dev, predictions).items()}
        collapsed = self.task.is_collapsed(predictions, self.data.dev)
        if collapsed and self.keep != "best":
            # Few dev examples may all deserve the same answer; the training examples hardly do.
            collapsed = is_one_answer()
        return Judged(spec, scores, collapsed, predictions)

    @property
    def first_examples(self) -> Sequence[Example]:
        """The training examples that a collapse must show on, where dev examples are few."""
        return self.data.train[:_JUDGED]

    def _is_one_answer(self, model: EncoderForTask, runtime: Runtime, rank: Rank) -> bool:
        """Whether the model gives the same answer to all of the first training examples."""
        examples = self.first_examples
        features = self.task.encode(examples, self.tokenizer)
        logits = task_logits(model, features, runtime, self.settings.micro_tokens, rank=rank)
        return self.task.is_collapsed(self.task.decode(examples, features, logits, self.tokenizer), examples)

    @staticmethod
    def _finished(path: Path) -> dict[str, Any]:
        """The result of a training that is finished; empty if it is not."""
        if not (path / REPORT_FILE).is_file():
            return {}
        RunFolder.open(path).clear()  # a kill may have come before that
        return dict(read_json(path / REPORT_FILE))

    def _texts_of_training(self) -> dict[str, float]:
        """The mean tokens of a training row, and the shares of unknown pieces and of truncated rows."""
        rows, unknown = self.train.rows, self.tokenizer.vocabulary.unk_id
        return {
            "tokens": round(len(rows.token_ids) / len(rows), 2),
            "unknown": round(float((rows.token_ids == unknown).mean()), 6),
            "cut": round(rows.truncated / len(rows), 6),
        }

    def write_model(
        self,
        folder: Path,
        weights: EncoderForTask | ModelFolder | Path,
        spec: TaskSpec,
        result: SeedResult,
        origin: Mapping[str, Any] | None = None,
        baseline: Mapping[str, Any] | None = None,
    ) -> None:
        """Writes a model folder with the task in its metadata.

        Args:
            weights: the model, or the model folder of a training of this job, whose file of weights is linked.
            baseline: the best baseline on the same dev examples, with its score.
            origin: what else the metadata says of its training, or says in place of what this training says.
        """
        linked = weights if isinstance(weights, Path) else None
        model = self.first_model(parameters="meta").model if isinstance(weights, Path) else weights
        training = self.training
        chooses_step = training.keep_best is not None and (training.evaluate_every or 0) < (training.steps or 0)
        metadata = ModelMetadata(
            task=spec.kind,
            labels=spec.labels,
            spec=spec.to_dict(),
            own_head=None if self.head.own is None else self.head.own.__name__,
            trained_on=self.digests(),
            training={
                "base_model": self.base_name,
                "examples": len(self.data.train),
                "dev_examples": len(self.data.dev),
                "epochs": self.settings.epochs,
                "batch_size": self.settings.batch_size,
                "learning_rate": result.learning_rate or training.learning_rate,
                "seed": result.seed,
                "steps": result.steps,
                "best_step": result.best_step,
                **({"kept": BEST_EVALUATION} if chooses_step else {}),
                "tokens": result.tokens,
                "texts": self._texts_of_training(),
                **({"collapsed": True} if result.collapsed else {}),
                **({"sources": self._record_of_sources} if self.sources else {}),
                **({} if self.teaching is None else self.teaching.origin),
                **(origin or {}),
            },
            steps=self.folder.metadata.steps,
            tokens=self.folder.metadata.tokens,
            continued_from=self.folder.metadata.continued_from,
            scores=dict(result.scores),
            baseline=baseline,
        )
        trained = (self.head.saved_part, *(("pooler",) if self.head.uses_pooler(model.config) else ()))
        if self.head.is_vector:
            of_pieces = () if self.head.pieces is None else ("mlm", QUERY_TABLE)
            trained = (TOKEN_PROJECTION,) if self.head.token_width else of_pieces
        save_pretrained(
            folder,
            model,
            self.tokenizer,
            metadata,
            trained=trained,
            replace=True,
            weights_of=linked,
        )

    def write_adapter(self, run: Path, factors: Factors) -> None:
        """Writes the adapter next to the model folder in a run that it was merged into."""
        model, scale = load_any(run / MODEL_FOLDER), self.settings.lora_scale
        write_adapter(run / ADAPTER_FOLDER, model, factors, scale, self.folder, replace=True)

    def write_predictions(self, path: Path, predictions: Sequence[Prediction] | None) -> None:
        """Writes predictions on the dev examples next to their gold labels; nothing for None."""
        if predictions is not None:
            lines = example_lines(self.task, self.data.dev, predictions)
            write_text(path, "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines))


def _adapted_layers(folder: ModelFolder, settings: FinetuningSettings, head: Head) -> list[Group]:
    """The layers that get an adapter; empty without one.

    Raises:
        ConfigError: there is no such layer, or the head shares layers with the encoder.
    """
    if settings.lora_rank is None:
        return []
    require(
        not head.is_decoder,
        expected="a task without a decoder, which would be larger than any adapter, for --lora-rank",
        found="a task of texts to write",
        fix="leave it out",
    )
    targets = None if settings.lora_targets is None else [part.strip() for part in settings.lora_targets.split(",")]
    return groups_of_targets(folder.config, targets)
