"""The results of a comparison, from its cells: means and spreads, tests against the best, the system worth its cost."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from bertsmith.base.core.progress import duration
from bertsmith.models.model_files.weakness import LEVEL
from bertsmith.recipes.comparison.fitting import Cell, CellKey
from bertsmith.recipes.results.comparison import Lines, tested
from bertsmith.tasks.metrics.uncertainty import spread
from bertsmith.tasks.specs.task import TaskSpec

ReadLines = Callable[[CellKey], Lines]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Row:
    """A system with some number of labels."""

    system: str
    labels: int  # the training examples of each fit
    # mean, deviation: of the main score over the seeds; the standard deviation of one seed is 0
    mean: float
    deviation: float
    values: Sequence[float]
    seeds: Sequence[int]
    scores: Mapping[str, float]
    # the 95% interval of the first seed's main score over the dev examples; None if it has none
    interval: Sequence[float] | None
    is_best: bool = False
    # difference, low, high, p_value: the paired test of the mean over the seeds against that of the best, over the dev
    # examples and the seeds that both have; None for the best, and where there is a single dev example
    difference: float | None = None
    low: float | None = None
    high: float | None = None
    p_value: float | None = None
    making: float | None = None  # processor seconds of pre-training or of word vectors; None if it was not made here
    fitting: float = 0.0  # processor seconds of a fit, the mean over the seeds
    parameters: int = 0  # numbers that were learned
    milliseconds: float = 0.0  # for the answer to one text
    # how many words of the dev texts have no vector, and how many words there are; None where no word can be unknown
    unknown_words: Sequence[int] | None = None
    note: str = ""

    @property
    def processor_seconds(self) -> float:
        """All that it cost here: making and one fit."""
        return (self.making or 0.0) + self.fitting

    def cost(self) -> str:
        """The processor time in words."""
        seconds = self.processor_seconds
        return f"{seconds:.1f} s" if 1 <= seconds < 10 else duration(seconds)


def rows_of(cells: Sequence[Cell], spec: TaskSpec, systems: Sequence[str], lines: ReadLines) -> list[Row]:
    """A row for each number of labels, ascending, and system, in the given order, that has a score."""
    groups: dict[tuple[int, str], list[Cell]] = {}
    for cell in sorted(cells, key=lambda cell: cell.key.seed):
        if not cell.error and spec.metric in cell.scores:
            groups.setdefault((cell.key.labels, cell.key.system), []).append(cell)
    rows: list[Row] = []
    for labels in sorted({labels for labels, _ in groups}):
        table = [_row(groups[labels, name], spec.metric) for name in systems if (labels, name) in groups]
        best = max(table, key=lambda row: (row.mean, -row.processor_seconds), default=None)
        assert best is not None, "a number of labels that some cell has"
        of_best = _lines_by_seed(best, lines)
        rows += [_tested(row, best, spec, lines, of_best) for row in table]
    return rows


def verdicts(rows: Sequence[Row], metric: str) -> list[str]:
    """One sentence for each number of labels, most labels first: which step was worth it.

    That is the cheapest system that is not worse than the best by more than the spread: the difference of the means is
    at most the larger of both standard deviations over the seeds, or the paired test over the dev examples finds no
    difference.
    """
    every = sorted({row.labels for row in rows}, reverse=True)
    return [_verdict([row for row in rows if row.labels == labels], metric) for labels in every]


def _verdict(rows: Sequence[Row], metric: str) -> str:
    best = next(row for row in rows if row.is_best)
    by_cost = sorted(rows, key=lambda row: row.processor_seconds)
    worth = next(row for row in by_cost if is_level(row, best))
    score = f"{metric.replace('_', ' ')} {worth.mean:.4f}"
    margin = "the spread" if len(best.seeds) > 1 else "chance would explain"
    start = f"With {worth.labels:,} labels, {worth.system} was worth it ({score}, {worth.cost()} of processor time)"
    if len(rows) == 1:
        return f"{start}: it is the only system with a score."
    if worth is not best:
        return (
            f"{start}: the best, {best.system} ({best.mean:.4f}, {best.cost()}), is not better by more than {margin}."
        )
    cheaper = by_cost[: by_cost.index(worth)]
    if not cheaper:
        return f"{start}: it is both the best and the cheapest."
    next_best = max(cheaper, key=lambda row: row.mean)
    return (
        f"{start}: it is better than every cheaper system by more than {margin}, the best of which is "
        f"{next_best.system} ({next_best.mean:.4f}, {next_best.cost()})."
    )


def is_level(row: Row, best: Row) -> bool:
    """Whether a system is not worse than the best by more than the spread, see `verdicts`."""
    if row.is_best or best.mean - row.mean <= max(row.deviation, best.deviation):
        return True
    return row.p_value is not None and row.p_value >= LEVEL


def _row(cells: Sequence[Cell], metric: str) -> Row:
    """The row of the cells of one system and number of labels, by seed."""
    first, over = cells[0], spread([cell.scores[metric] for cell in cells])
    names = [name for name in first.scores if all(name in cell.scores for cell in cells)]
    return Row(
        system=first.key.system,
        labels=first.key.labels,
        mean=over.mean,
        deviation=over.deviation,
        values=over.values,
        seeds=[cell.key.seed for cell in cells],
        scores={name: spread([cell.scores[name] for cell in cells]).mean for name in names},
        interval=first.intervals.get(metric),
        making=first.making.get("processor_seconds"),
        fitting=spread([cell.costs["fit_processor_seconds"] for cell in cells]).mean,
        parameters=int(first.costs["parameters"]),
        milliseconds=first.costs["milliseconds"],
        unknown_words=first.unknown_words,
        note="; ".join(dict.fromkeys(f"{cell.note} (seed {cell.key.seed})" for cell in cells if cell.note)),
    )


def _lines_by_seed(row: Row, lines: ReadLines) -> dict[int, Lines]:
    return {seed: lines(CellKey(system=row.system, labels=row.labels, seed=seed)) for seed in row.seeds}


def _tested(row: Row, best: Row, spec: TaskSpec, lines: ReadLines, of_best: Mapping[int, Lines]) -> Row:
    """The row with its test against the best, on the seeds of both; a seed draws the same training examples for all."""
    if row is best:
        return dataclasses.replace(row, is_best=True)
    lines_of_row = _lines_by_seed(row, lines)
    seeds = [seed for seed in lines_of_row if seed in of_best]
    if not seeds:
        return row
    ours, theirs = ([each[seed] for seed in seeds] for each in (lines_of_row, of_best))
    test = tested(spec, ours, theirs)
    return dataclasses.replace(row, **{name: value for name, value in test.items() if name != "compared"})


def to_plain(row: Row) -> dict[str, Any]:
    """The row as plain values for JSON, with the processor time in total."""
    return {**dataclasses.asdict(row), "processor_seconds": round(row.processor_seconds, 3)}
