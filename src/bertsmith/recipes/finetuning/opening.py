"""The lines that a fine-tuning prints before it starts: examples, steps, new parameters, settings."""

from typing import TYPE_CHECKING

from bertsmith.base.core.progress import counted
from bertsmith.models.parts.part_names import QUERY_TABLE
from bertsmith.recipes.finetuning.settings import ENCODER, KEPT, SHARED
from bertsmith.recipes.results.finished_run import named
from bertsmith.tasks.specs.task import BY_NAME

if TYPE_CHECKING:
    from bertsmith.recipes.finetuning.job import FinetuningJob


_FEWEST_STEPS = 10  # with fewer, most of them are warm-up


def opening_lines(job: "FinetuningJob") -> list[str]:
    """What a user should know before training starts."""
    base = job.first_model(parameters="meta")
    added = base.model.num_head_parameters
    unread = {job.head.saved_part} if job.head.uses_pooler(job.folder.config) else {job.head.saved_part, "pooler"}
    missing = [part for part in base.new_parts if part not in (*unread, QUERY_TABLE)]
    assert job.training.steps is not None, "a budget in steps"
    examples = f"{len(job.data.train):,} training and {counted(len(job.data.dev), 'dev example')}"
    steps = counted(job.training.steps, "step")
    before = job.folder.metadata.spec
    is_kept = job.settings.start == KEPT
    top = f"the model's own head of {added:,} parameters" if is_kept else f"{added:,} new parameters on top"
    if job.head.is_decoder and not is_kept:
        copied = {
            ENCODER: ", most of them copied from the encoder",
            SHARED: ", whose layers are those of the encoder",
        }.get(job.settings.decoder_start, "")
        top = f"a decoder of {added:,} parameters on top{copied}"
    lines = [
        f"{job.task.spec.name}: {examples}, {steps}; {top}"
        + (
            f", in place of the base model's head for {before.get('name', 'another task')}"
            if before and not is_kept
            else ""
        )
        + (f"; missing from the base model, so randomly initialized: {', '.join(missing)}" if missing else "")
    ]
    shares = sum(source.share for source in job.sources)
    steps_of = [job.training.steps * source.share / shares for source in job.sources]
    lines += [
        f"{source.name}: {counted(len(source.features), 'example')}, loss {source.spec.objective}, "
        f"{source.share / shares:.0%} of the steps"
        + (", less than one, so it may not be read: raise its share" if steps_of[number] < 1 else "")
        for number, source in enumerate(job.sources)
    ]
    if job.training.steps < _FEWEST_STEPS and job.settings.freeze != "body":
        is_linear = job.settings.start == "linear"
        effect = "can make the model worse than its linear start" if is_linear else "can hardly change the model"
        lines.append(f"only {steps}, which {effect}; train for more epochs or with smaller batches")
    lines += cut_lines(job)
    windows, of_epoch = len(job.train), job.epoch_units
    if windows > of_epoch:
        as_there = "" if job.task.spec.kind == BY_NAME else "as in the paper's code, "
        lines.append(
            f"{windows:,} windows for {counted(of_epoch, 'example')}; {as_there}an epoch has as many windows as there "
            f"are examples, {of_epoch / windows:.0%} of them"
        )
    return [*lines, *_held_out(job)]


def lines_without_training(job: "FinetuningJob", name: str) -> list[str]:
    """What is said before a model is made without any training.

    Args:
        name: of the model, see `merging.Kept`.
    """
    examples = counted(len(job.data.train), "example")
    return [f"{job.task.spec.name}: {examples}; {named(name, 0)}, without any training", *_held_out(job)]


def _held_out(job: "FinetuningJob") -> list[str]:
    """Which training examples are held out; nothing if there is a dev file."""
    if job.data.held_out:
        held = "a tenth of the training examples is held out"
        if job.data.fold is not None:
            return [f"{job.data.fold}: {counted(len(job.data.dev), 'example')} to predict"]
        if job.data.in_groups:
            held = f"{counted(len(job.data.dev), 'training example')} of whole groups held out"
        elif job.data.by_label:
            held = f"{counted(len(job.data.dev), 'training example')} held out, about a tenth of each label"
        return [f"no dev file: {held if job.data.dev else 'no label has an example to spare for scores'}"]
    return []


def cut_lines(job: "FinetuningJob") -> list[str]:
    """How many rows of the training and of the dev examples were truncated; nothing for none."""
    lines = []
    for split, features in (("train", job.train), ("dev", job.dev)):
        if features is not None and features.rows.truncated:
            cut = f"{features.rows.truncated:,} of {counted(len(features.rows), 'row')} cut"
            lines.append(f"{split}: {cut}, {counted(features.rows.cut_tokens, 'token')} in all")
    return lines


def options_of(job: "FinetuningJob") -> str:
    """The settings that a recipe decides, as options of the command."""
    settings, rates = job.settings, job.training
    values: dict[str, object] = {"reads": job.task.spec.reads} if job.head.pooled or job.head.has_reader else {}
    start = {"decoder-start": settings.decoder_start, "decoder-rate": f"{settings.decoder_rate:g}"}
    values |= start if job.head.is_decoder else {"start": settings.start}
    values |= {"freeze": settings.freeze, "epochs": f"{settings.epochs:g}", "batch-size": settings.batch_size}
    values |= {"learning-rate": f"{rates.learning_rate:g}", "schedule": rates.schedule, "keep": job.keep}
    if settings.language_model_loss:
        values["language-model-loss"] = f"{settings.language_model_loss:g}"
    return " ".join(f"--{name} {value}" for name, value in values.items())
