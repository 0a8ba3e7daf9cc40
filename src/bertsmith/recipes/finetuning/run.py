"""Fine-tuning on examples: one training for each seed, and the best of them, or their average, as a model folder.

`bertsmith finetune`, which also reads the files and chooses the settings, is `finetune` in `app/library/finetuning.py`.

::

    RUN/settings.json        settings, machine, versions, digests of the inputs
    RUN/seed-1/ ...          one training for each seed (see training); seed-1-again-1 where seed 1 collapsed
    RUN/all/seed-1/ ...      the same trainings on all examples, where some had been held out
    RUN/average/             predictions of the average of their weights; those of their start in RUN/start/
    RUN/report.json          scores of every seed, their mean and spread, the best
    RUN/predictions.jsonl    the predictions of the model that is kept on the dev examples, next to the gold labels
    RUN/model/               the model that is kept: the best one, the average, the start, or the bag of words
    RUN/adapter/             of a model with an adapter (LoRA), the adapter alone
    RUN/baselines.json ...   baselines on the same examples (see baselines)
    RUN/folds/ ...           a run for each fold of the examples, for scores without dev examples (see folds)
"""

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bertsmith.base.core.progress import counted, duration, tell, warn
from bertsmith.base.core.randomness import derive
from bertsmith.base.core.requests import Request
from bertsmith.base.machine.runtime import Rank
from bertsmith.base.storage.files import write_json, write_text
from bertsmith.models.checkpoints.model_folder import ModelFolder
from bertsmith.models.heads.own_head import OwnHead
from bertsmith.recipes.finetuning.bag import metadata_of_words
from bertsmith.recipes.finetuning.job import WITHOUT_EFFECT, BaseModel, FinetuningJob
from bertsmith.recipes.finetuning.merging import (
    Kept,
    Refit,
    Trained,
    adapter_of,
    best_of,
    kept_of,
    models_in_report,
    origin_of,
    refitted,
)
from bertsmith.recipes.finetuning.opening import cut_lines, lines_without_training, opening_lines, options_of
from bertsmith.recipes.finetuning.recipes import FEW_EXAMPLES
from bertsmith.recipes.finetuning.settings import BAG_ALONE, FinetuningSettings, RecipeSettings, against_collapse
from bertsmith.recipes.results.baseline_lines import FEW_DEV, lines_of_baselines
from bertsmith.recipes.results.finished_run import (
    BAG_FOLDER,
    COUNTS,
    MODEL_FOLDER,
    PREDICTIONS_FILE,
    REPORT_FILE,
    WITHOUT_TRAINING,
    SeedResult,
    kept_name,
    kept_scores,
    warning_lines,
)
from bertsmith.recipes.results.resampling import intervals
from bertsmith.tasks.baselines.n_grams import NGramModel
from bertsmith.tasks.baselines.word_model import write_words_folder
from bertsmith.tasks.metrics.uncertainty import spread
from bertsmith.tasks.specs.task import TaskSpec
from bertsmith.tasks.task_data.split import TaskData
from bertsmith.training.loop.run import Run
from bertsmith.training.loop.run_folder import PREPARED, SETTINGS_FILE, RunFolder

if TYPE_CHECKING:
    from bertsmith.recipes.finetuning.baselines import Baselines
    from bertsmith.recipes.finetuning.folds import CrossValidation

ALL_FOLDER = "all"  # in RUN: the trainings on all examples
SMALL_SET = 10_000  # below this number of training examples, several seeds are trained
SEEDS_OF_SMALL_SET = 3
SEEDS_OF_QUICK_SET = 2  # with `keep` auto below 500 examples
RESTARTS = 2  # of a seed whose model collapsed
RATE_AFTER_COLLAPSE = 0.5  # learning rate of a restart, as a fraction of the rate of the start that collapsed
LONG = 60  # seconds, above which the time that is left is said between trainings
_SEED_LIMIT = 2**31  # upper limit for the seeds of restarts


@dataclasses.dataclass(frozen=True, kw_only=True)
class FinetuningResult:
    """The results of all seeds.

    Attributes:
        spec: the best model's spec, including its fitted values.
        runs: one result per seed.
        best: the index in `runs` of the model that was kept.
        report: the content of report.json.
        folder: the run folder.
        trials: the trials of the tuning, best first; empty without tuning.
    """

    spec: TaskSpec
    runs: Sequence[SeedResult]
    best: int
    report: Mapping[str, Any]
    folder: Path
    trials: Sequence[Mapping[str, Any]] = ()

    def __repr__(self) -> str:
        score = kept_scores(self.report).get(self.spec.metric)
        shown = "without dev examples" if score is None else f"{self.spec.metric} {score:.4f}"
        return f"<FinetuningResult: {self.spec.name}, {shown}, {counted(len(self.runs), 'seed')}>"

    def _repr_html_(self) -> str:
        """A table of the seeds and their scores, and the curves of their trainings, for a notebook."""
        from bertsmith.base.pages.html import cell, note, table, words
        from bertsmith.recipes.results.report import curves_of_run

        names = list(kept_scores(self.report))
        rows = [
            [f"{run.seed}{' (best)' if number == self.best else ''}", *(cell(run.scores.get(name)) for name in names)]
            for number, run in enumerate(self.runs)
        ]
        title = note(f"{self.spec.title}: {counted(len(self.runs), 'seed')}")
        drawn = curves_of_run(self.folder) if self.folder.is_dir() else ""
        return title + table(rows, ["seed", *map(words, names)]) + drawn


def finetune(
    source: BaseModel,
    spec: TaskSpec,
    data: TaskData,
    out: Path | str,
    settings: FinetuningSettings | None = None,
    recipe: RecipeSettings | None = None,
    *,
    seeds: int | None = None,
    resume: bool = False,
    head: type[OwnHead] | None = None,
    recipe_name: str = "2018",
    source_name: str | None = None,
    prepared_by: Mapping[str, Any] | None = None,
    request: Request | None = None,
    label: str = "training",
    validation: "CrossValidation | None" = None,
) -> FinetuningResult:
    """Fine-tunes the model of `source` once per seed and writes RUN/model and RUN/report.json.

    Several processes of `torchrun` train whole seeds each if there are at least as many seeds as processes, with the
    results of one process; otherwise, or if the recipe divides the model among them, they share every step. All of them
    return the result.

    Args:
        source: the base model: folder, Google checkpoint, run folder or hub id, or as it was read; or a job of the same
            examples, which is not prepared again.
        spec: the task.
        data: its examples.
        out: the run folder; new, unless `resume`.
        settings: epochs, batch size and the like.
        recipe: learning rate and schedule.
        seeds: the number of trainings, and of those on all examples that follow, if any; None for `usual_seeds`, of
            which one alone is scored where scores decide nothing, unless it collapses. With `keep` bag nothing is
            trained.
        resume: resume the run in `out`, which must have the same settings and inputs.
        head: the user's head, in place of the linear layer.
        recipe_name: the recipe that the settings come from, for the record.
        source_name: the base model as the user named it, for the record.
        prepared_by: settings that made the examples what they are, by name, for the record.
        request: what the user asked for, kept in the run folder.
        label: what its progress is called.
        validation: the results of the folds, on rank 0, for the report of a run without dev examples.

    Raises:
        BertsmithError: model, data, settings or run folder do not fit; the message says which.
        KeyboardInterrupt: interrupted; a checkpoint was written.
    """
    from bertsmith.recipes.finetuning.baselines import baselines_of

    settings, recipe = settings or FinetuningSettings(), recipe or RecipeSettings()
    with Run.open(out, resume=resume, device=settings.device, besides=PREPARED) as run:
        job = run.on_every_rank(lambda: FinetuningJob.prepare(source, spec, data, settings, recipe, head))
        count = seeds or usual_seeds(len(job.data.train), job.keep, writes=job.head.is_decoder)
        whole_seeds = 1 < run.rank.count <= count and job.division(run.rank) is None
        names = {"model": source_name or str(job.folder.path), "recipe": recipe_name, **(prepared_by or {})}
        may_change = ("model", "teacher", "recipe", *WITHOUT_EFFECT)  # the content of models and rows has digests
        run.start({**job.record(), **names, "seeds": count}, job.digests(), may_change=may_change, request=request)
        # What is kept without any training: the bag of words, or what the folds decided for.
        untrained = BAG_FOLDER if job.keep == BAG_ALONE else run.from_first_rank(lambda: validation and validation.name)
        trains = not untrained
        settings_line = f"settings of recipe {recipe_name}, and those given: {options_of(job)}"
        for line in (*opening_lines(job), settings_line) if trains else lines_without_training(job, untrained):
            tell(line)
        if run.rank.count > 1 and trains:
            tell(_who_trains(count, run.rank, whole_seeds=whole_seeds))
        baselines = run.on_first_rank(
            lambda: validation.baselines if validation else baselines_of(job, run.path, resume=run.is_resumed)
        )

        scored = (1 if seeds is None and _scores_decide_nothing(job) else count) if trains else 0
        more = count if trains and job.trains_on_all else 0
        results = _train_seeds(job, run.path, range(scored), run, label, whole_seeds=whole_seeds, more=more)
        if 0 < scored < count and run.from_first_rank(lambda: results[0][1].collapsed):
            scored, others = count, range(scored, count)  # of which those that did not collapse are averaged
            results += _train_seeds(job, run.path, others, run, label, whole_seeds=whole_seeds, more=more)
        parts = results if scored == count else results * count  # a single one stands for all
        kept = run.on_first_rank(lambda: (validation.kept if validation else kept_of)(job, parts, run.path))
        refit: Refit | None = None
        if job.trains_on_all:
            on_all, folder = job.on_all_examples(), run.path / ALL_FOLDER
            numbers = run.from_first_rank(lambda: [] if kept is None else list(kept.parts))
            name = "again on all examples"
            refit = on_all, _train_seeds(on_all, folder, numbers, run, name, whole_seeds=whole_seeds)

        result = run.on_first_rank(lambda: _finish(job, run.folder, results, kept, refit, baselines, validation))
        return result if result is not None and run.rank.count == 1 else _on_every_rank(result, run)


def usual_seeds(examples: int, keep: str, *, writes: bool) -> int:
    """The number of trainings: three of a small set, for their average; two of a very small one with `keep` auto.

    Args:
        examples: the number of training examples.
        writes: whether the model writes texts, of which there is one training.
    """
    if examples >= SMALL_SET or writes:
        return 1
    return SEEDS_OF_QUICK_SET if keep == "auto" and examples < FEW_EXAMPLES else SEEDS_OF_SMALL_SET


def _scores_decide_nothing(job: FinetuningJob) -> bool:
    """Whether the average of trainings on all examples is the model, whatever those on a part of them score."""
    return job.trains_on_all and job.settings.merge == "average" and job.keep != "auto"


def _train_seeds(
    job: FinetuningJob, out: Path, numbers: Sequence[int], run: Run, name: str, *, whole_seeds: bool, more: int = 0
) -> list[Trained]:
    """The trainings with some of the seeds; on other ranks than 0, those that this rank takes part in.

    Args:
        numbers: which seeds, counted from 0.
        name: how the name of a training begins.
        whole_seeds: whether each process trains whole seeds by itself.
        more: the trainings that follow these, for the time that is left.
    """
    comma = "," if " " in name else ""  # of more than one word
    labels = {
        job.training.seed + number: f"{name}{comma} {position} of {len(numbers)}, seed {job.training.seed + number}"
        if len(numbers) > 1
        else name
        for position, number in enumerate(numbers, start=1)
    }
    train, seeds = functools.partial(_train_seed, job, out), list(labels)
    if not whole_seeds:
        results = []
        for trained, seed in enumerate(seeds, start=1):
            results.append(train(seed, run.is_resumed, labels[seed], run.rank))
            left = len(seeds) - trained + more
            if left and (seconds := results[-1][1].seconds * left) >= LONG:
                tell(f"about {duration(seconds)} left for {counted(left, 'more training')}")
        return results
    seeds_here = seeds[run.rank.index :: run.rank.count]
    results = run.on_every_rank(lambda: [train(seed, run.is_resumed, labels[seed], Rank()) for seed in seeds_here])
    # Those of other processes are finished: to resume them is to read their results.
    return [train(seed, True, labels[seed], Rank()) for seed in seeds] if run.rank.index == 0 else results


def _who_trains(count: int, rank: Rank, *, whole_seeds: bool) -> str:
    """What each of several processes does, in a sentence."""
    if whole_seeds:
        return f"{rank.count} processes train {count} seeds, each whole seeds by itself"
    why = "the model is divided among them" if rank.count <= count else "there are fewer seeds than processes"
    return f"{rank.count} processes share every step, because {why}"


def _on_every_rank(result: FinetuningResult | None, run: Run) -> FinetuningResult:
    """The result of rank 0, on every rank."""

    def as_plain() -> dict[str, Any]:
        assert result is not None, "rank 0 has it"
        runs = [dataclasses.asdict(seed_result) for seed_result in result.runs]
        return {"spec": result.spec.to_dict(), "runs": runs, "best": result.best, "report": dict(result.report)}

    received = run.from_first_rank(as_plain)
    spec = TaskSpec.from_dict(received["spec"], "process 0")
    runs = [SeedResult(**values) for values in received["runs"]]
    return FinetuningResult(spec=spec, runs=runs, best=received["best"], report=received["report"], folder=run.path)


def _train_seed(job: FinetuningJob, out: Path, seed: int, resume: bool, label: str, rank: Rank) -> Trained:
    """The folder of the training with a seed, its result, and how often it collapsed and was restarted.

    A restart has another seed and half the learning rate. If all starts collapse, the one with the best score is kept.
    """
    collapsed: list[tuple[Path, SeedResult]] = []
    rate = job.training.learning_rate
    for restart in range(RESTARTS + 1):
        path = out / (f"seed-{seed}-again-{restart}" if restart else f"seed-{seed}")
        drawn = derive(seed, "after a collapse", restart) % _SEED_LIMIT if restart else seed
        share, name = RATE_AFTER_COLLAPSE**restart, f"{label}, start {restart + 1}" if restart else label
        result = job.train_once(path, drawn, resume=resume, rate_share=share, label=name, rank=rank)
        if not result.collapsed:
            return path, result, restart
        collapsed.append((path, result))
        if restart < RESTARTS:
            which = f"seed {seed}{f', start {restart + 1},' if restart else ''}"
            rate *= RATE_AFTER_COLLAPSE
            warn(
                f"{which} collapsed: one answer for every example; restarting with another seed and half the "
                f"learning rate, {rate:g}"
            )
    path, result = collapsed[best_of(job, [result for _, result in collapsed])]
    return path, result, RESTARTS


def _finish(
    job: FinetuningJob,
    run: RunFolder,
    trained: Sequence[Trained],
    kept: Kept | None,
    refit: "Refit | None",
    baselines: "Baselines | None",
    validation: "CrossValidation | None",
) -> FinetuningResult:
    """Writes the model that is kept, and report.json.

    Args:
        kept, baselines: of rank 0, which alone finishes a run.
        refit: the trainings on all examples that the model is made of; None if it is made of those that were scored.
    """
    from bertsmith.recipes.finetuning.cheaper import best_baseline, is_better, with_bag_of_words

    assert kept is not None, "rank 0 has it"
    assert baselines is not None, "rank 0 computed them"
    metric = job.task.spec.metric
    trained = trained or [(run.path / kept.name, kept.result, 0)]
    results = [result for _, result, _ in trained]
    best = best_of(job, results)
    spec, lines = kept.spec, kept.lines
    final = None if refit is None else refitted(kept, refit)
    written_job, weights, result = final or (job, kept.weights, kept.result)
    all_results = [*results, *(result_on_all for _, result_on_all, _ in (refit[1] if refit else ()))]
    baseline = best_baseline(job, baselines, kept.result.scores, lines, run.path, kept.name)
    origin = origin_of(job, kept, written_job, all_results)
    origin |= _confidence(lines)
    if validation is not None:
        origin |= {"dev_examples": len(lines), "folds": len(validation.folds)}
    if isinstance(weights, NGramModel):
        bag = weights.of_task(spec)
        of_words = metadata_of_words(written_job, bag, result.scores, origin=origin, baseline=baseline)
        write_words_folder(run.model, bag, of_words)
    else:
        written_job.write_model(run.model, weights, spec, result, origin, baseline)
        if job.adapted and (factors := adapter_of(kept, trained, None if final is None else refit, job)) is not None:
            written_job.write_adapter(run.path, factors)
    if kept.predictions.is_file() and validation is None:
        write_text(run.path / PREDICTIONS_FILE, kept.predictions.read_text(encoding="utf-8"))
    seconds = sum(result.seconds for result in results)
    report = {
        "task": spec.name,
        "kind": spec.kind,
        "metric": metric,
        "warnings": [*job.data.warnings, *cut_lines(job)],
        "train_examples": len(job.data.train),
        "dev_examples": len(job.data.dev),
        "held_out": job.data.held_out,
        "scores": {
            name: dataclasses.asdict(spread([result.scores[name] for result in results])) for name in results[0].scores
        },
        "intervals": intervals(spec.kind, kept.result.scores, lines, spec.scheme),
        "temperature": spec.temperature,
        "threshold": spec.threshold,
        "settings": _settings_tried(job, spec, results),
        **({"thresholds": dict(zip(spec.labels, spec.thresholds, strict=True))} if spec.thresholds else {}),
        "best": kept.name,
        **models_in_report(job, kept),
        **({} if validation is None else validation.in_report()),
        **({} if final is None else {"trained_on_all": len(written_job.data.train)}),
        **(
            {}
            if refit is None
            else {"refit_runs": [dataclasses.asdict(result_on_all) for _, result_on_all, _ in refit[1]]}
        ),
        "collapsed": sum(restarts + result.collapsed for _, result, restarts in trained),
        "seconds": round(seconds, 3),
        "tokens_per_second": round(sum(result.tokens for result in results) / max(seconds, 1e-9), 1),
        "pretraining": _pretraining_cost(job.folder),
        "baselines": list(baselines.results),
        "runs": [{"folder": path.name, **dataclasses.asdict(result)} for path, result, _ in trained],
    }
    if all(result.collapsed for result in results):
        report["advice"] = (
            "give more examples"
            if job.keep == BAG_ALONE
            else against_collapse(
                learning_rate=job.training.learning_rate * RATE_AFTER_COLLAPSE**RESTARTS,
                epochs=job.settings.epochs,
                bias_correction=job.training.bias_correction,
            )
        )
    report |= with_bag_of_words(job, spec, baselines, kept.result.scores, lines, run.path, kept.name)
    if is_better(baseline):
        report["better_baseline"] = baseline
    write_json(run.path / REPORT_FILE, report)
    return FinetuningResult(spec=spec, runs=results, best=best, report=report, folder=run.path)


def _confidence(lines: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """The mean "confidence" of the predictions for dev examples; empty if they have no probabilities by label."""
    chances = [line["prediction"].get("probabilities") for line in lines]
    highest = [max(each.values()) for each in chances if isinstance(each, Mapping) and each]
    return {"confidence": round(sum(highest) / len(highest), 4)} if highest else {}


def _settings_tried(job: FinetuningJob, spec: TaskSpec, results: Sequence[SeedResult]) -> dict[str, Any]:
    """The settings that advice should not repeat; `calibrate` is None where it has no effect."""
    rates = [result.learning_rate or job.training.learning_rate for result in results]
    single = spec.kind == "classification" and not spec.multi_label
    return {
        "epochs": job.settings.epochs,
        "learning_rate": min(rates),
        "start": job.settings.start,
        "reads": spec.reads if job.task.head.pooled else None,
        "has_segments": job.tokenizer.template.has_segments,
        "calibrate": spec.settings.calibrate if single else None,
    }


def _pretraining_cost(base: ModelFolder) -> dict[str, float]:
    """What the pre-training of a base model cost: "steps" and "tokens", and "seconds" if its run is here.

    A cost that is not recorded is left out.
    """
    metadata, folder = base.metadata, base.path
    cost: dict[str, float] = {
        name: value
        for name, value in (("steps", metadata.steps), ("tokens", metadata.tokens))
        if isinstance(value, int)
    }
    if metadata.task == "pretraining" and folder.name == MODEL_FOLDER and (folder.parent / SETTINGS_FILE).is_file():
        seconds = [line.get("seconds") for line in RunFolder.open(folder.parent).metrics("train")]
        if seconds and isinstance(seconds[-1], int | float):
            cost["seconds"] = round(seconds[-1], 3)
    return cost


def is_count(name: str) -> bool:
    """Whether a value reported with the scores is a number of questions.

    >>> is_count("has_ans_total"), is_count("has_ans_f1")
    (True, False)
    """
    return name in COUNTS or name.endswith("_total")


def summary_lines(report: Mapping[str, Any], run: str = "RUN") -> list[str]:
    """The lines that the command prints: each score as mean and spread over the seeds, and the best training.

    The best score comes with its confidence interval over resampled dev examples.

    Args:
        report: the content of report.json.
        run: the run folder, as the lines name it.
    """
    lines = []
    folds = report.get("cross_validation")
    of_folds = f", mean of {counted(len(folds['folds']), 'fold')}" if folds else ""
    for name, score in report["scores"].items():
        if is_count(name):
            continue
        values = ", ".join(f"{value:.4f}" for value in score["values"])
        several = f" ± {score['deviation']:.4f} ({values})" if len(score["values"]) > 1 else ""
        lines.append(f"{name}{of_folds}: {score['mean']:.4f}{several}")
    if report["collapsed"]:
        lines.append(f"trainings that collapsed to one answer: {report['collapsed']}")
    if all(run["collapsed"] for run in report["runs"]):
        lines.append(f"this model gives the same answer to every example; {report['advice']}")
    dev = report.get("dev_examples")
    if dev is not None and 0 < dev < FEW_DEV:
        few = f"scores on {counted(dev, 'dev example')} depend mostly on chance"
        # --folds is refused with --dev.
        lines.append(f"{few}; give more with --dev" + (", or score all with --folds" if report.get("held_out") else ""))
    metric, kept = report["metric"], kept_name(report)
    if metric in report["intervals"]:
        score, (low, high) = kept_scores(report)[metric], report["intervals"][metric]
        over = (
            f"{folds['examples']:,} examples, each predicted by a training on the other folds"
            if folds
            else "the dev examples"
        )
        kept += f", {score:.4f} (95% interval {low:.4f} to {high:.4f}, over {over})"
    how = "kept" if folds or report["best"] in WITHOUT_TRAINING else f"best by {metric}"
    speed = f"; {report['tokens_per_second']:,.0f} tokens/s" if report["tokens_per_second"] else ""
    lines.append(f"{how}: {kept}{speed}")
    if "trained_on_all" in report:  # missing where there is a dev file
        lines.append(f"the model that is written was trained again, on all {report['trained_on_all']:,} examples")
    return [*lines, *lines_of_baselines(report, run), *warning_lines(report)]
