"""A self-contained HTML report of one pre-training run, or a comparison of several."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from bertsmith.base.core.progress import amount, counted, duration
from bertsmith.base.pages import html
from bertsmith.base.pages.charts import COLORS
from bertsmith.training.loop.curves import (
    HELD_OUT,
    Level,
    LoggedRun,
    curve,
    last_values,
    read_logged_run,
    words,
)
from bertsmith.training.loop.evaluations import PREFIX
from bertsmith.training.loop.log import TIMES
from bertsmith.training.loop.result import TrainResult

LEVELS = (
    Level(
        name="unigram_entropy",
        charts=("mlm_loss", "lm_loss", "loss"),
        text="unigram entropy: the best possible with word frequencies alone",
    ),
)

# Plotted after losses and accuracies, with (unit, whether the axis starts at 0).
OTHER_CHARTS = {
    "learning_rate": ("learning rate", True),
    "tokens_per_second": ("tokens per second", True),
    "utilization": ("share of the peak of the GPU (model FLOPs utilization)", True),
    "gradient_norm": ("gradient norm before clipping", True),
}


@dataclass(frozen=True, kw_only=True)
class Samples:
    """A table of examples for the report, such as filled masks."""

    title: str
    header: Sequence[str] = ()
    rows: Sequence[Sequence[str]] = ()


def write_report(
    runs: Path | Sequence[Path],
    *,
    out: Path | None = None,
    title: str = "Training report",
    samples: Sequence[Samples] = (),
) -> Path:
    """The path of the written page: `out`, or the default of `html.page_place`.

    Args:
        runs: one run folder, or several to compare; several are plotted over tokens, to compare them at equal work.
    """
    paths = [runs] if isinstance(runs, Path) else list(runs)
    shown = [
        read_logged_run(path, name, COLORS[i % len(COLORS)])
        for i, (path, name) in enumerate(zip(paths, html.run_names(paths), strict=True))
    ]
    return html.write_page(out or html.page_place(paths), title, *_parts(shown, samples))


def _parts(shown: Sequence[LoggedRun], samples: Sequence[Samples]) -> list[str]:
    names = list(dict.fromkeys(key for run in shown for line in run.train for key in line))
    losses = sorted(
        (n for n in names if n.endswith("loss")), key=lambda n: (n not in ("mlm_loss", "lm_loss"), n != "loss", n)
    )
    accuracies = [n for n in names if n.endswith("accuracy")]
    charts = [
        curve(name, words(name) + (", nats" if name in losses else ""), shown, levels=LEVELS)
        for name in losses + accuracies
    ]
    charts += [
        curve(name, unit, shown, levels=LEVELS, from_zero=zero)
        for name, (unit, zero) in OTHER_CHARTS.items()
        if name in names
    ]
    labels = [run.name for run in shown]
    return [
        *(_summary(run, len(shown) > 1) for run in shown),
        html.figures(charts),
        html.runs_table("Last values", [last_values(run) for run in shown], labels),
        *(html.section(sample.title, html.table(sample.rows, sample.header)) for sample in samples),
        html.record_tables([run.folder.record for run in shown], labels),
    ]


def _summary(run: LoggedRun, named: bool) -> str:
    last, settings = run.train[-1], run.folder.resolved
    total = settings.get("steps", last["step"])
    parts = [
        counted(total, "step") if last["step"] == total else f"{last['step']:,} of {total:,} steps",
        f"{amount(last.get('tokens', 0))} tokens",
        duration(last.get("seconds", 0.0)),
    ]
    for name in ("mlm_loss", "lm_loss", "loss"):
        held_out = [line[HELD_OUT + name] for line in run.evaluation if HELD_OUT + name in line]
        if held_out:
            parts.append(f"held-out {words(name)} {held_out[-1]:.3f}")
            level = [
                line[HELD_OUT + "unigram_entropy"] for line in run.evaluation if HELD_OUT + "unigram_entropy" in line
            ]
            if level:
                parts.append(f"word frequencies alone {level[-1]:.3f}")
            break
    parts.append(f"{counted(run.events, 'step')} skipped or spiked" if run.events else "no skipped steps or spikes")
    return html.summary(parts, name=run.name if named else "", color=run.color)


# Values of a log line that are not scores.
_OF_THE_WORK = ("tokens", "sequences", "gradient_norm", "learning_rate", "skipped", *TIMES)


def summary_lines(result: TrainResult) -> list[str]:
    """The lines that the command prints: the work, the scores of the last logged steps, and those on held-out rows."""
    speed = result.metrics.get("tokens_per_second")
    work = f"{counted(result.steps, 'step')}, {counted(result.tokens, 'token')} in {duration(result.seconds)}"
    lines = [work + (f", {speed:,.0f} tokens/s at the end" if speed else "")]
    last = {name: value for name, value in result.metrics.items() if not name.startswith(PREFIX)}
    held_out = {name.removeprefix(PREFIX): value for name, value in result.scores.items()}
    kept = "" if result.best_step is None else f", after step {result.best_step:,}, the best"
    for title, values in (("last training steps", last), (f"held out{kept}", held_out)):
        if shown := _in_words(values):
            lines.append(f"{title}: {shown}")
    return lines


def _in_words(values: Mapping[str, float]) -> str:
    """The scores among the values of a log line; a sum of losses is left out if it has a single term."""
    shown = []
    for name, value in values.items():
        of_rows = name.removesuffix("loss")
        terms = [term for term in values if term.startswith(of_rows) and term.endswith("_loss") and term != name]
        is_repeated = name.endswith("loss") and any(values[term] == value for term in terms)
        if name not in _OF_THE_WORK and not is_repeated:
            shown.append(f"{name.replace('unigram_entropy', 'loss of token frequencies alone')} {value:.4g}")
    return ", ".join(shown)
