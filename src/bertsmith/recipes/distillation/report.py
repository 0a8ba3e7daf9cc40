"""The result of a distillation: teacher, student, and the same student without the teacher, in one table.

::

    RUN/distillation.json   rows of the table, with scores, intervals, sizes and times

The systems of a table take turns, so that other programs on the machine slow all of them alike, and the time is that of
the processor, of all threads, which they do not add to.
"""

import dataclasses
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bertsmith.base.core.errors import ConfigError
from bertsmith.base.core.progress import quiet, short_repr
from bertsmith.base.machine.runtime import choose_inference
from bertsmith.base.storage.files import write_json
from bertsmith.inference.predictors.loading import load_predictor
from bertsmith.inference.predictors.predictor import Predictor
from bertsmith.models.checkpoints.load import load_any, locate
from bertsmith.models.checkpoints.model_folder import ModelFolder
from bertsmith.recipes.distillation.settings import WITHOUT
from bertsmith.recipes.results.finished_run import MODEL_FOLDER
from bertsmith.recipes.results.resampling import intervals, scored_lines
from bertsmith.tasks.datasets.examples import Example
from bertsmith.tasks.metrics.uncertainty import spread
from bertsmith.tasks.specs.kinds import task_for
from bertsmith.tasks.specs.task import Prediction, TaskSpec

if TYPE_CHECKING:
    from bertsmith.recipes.distillation.run import Taught
    from bertsmith.recipes.finetuning.run import FinetuningResult


BATCH = 32  # examples of a batch
ROUNDS = 5
LEAST_SECONDS = 0.02  # of a measurement: shorter ones are repeated within it
PRECISIONS = ("fp32", "int8")
Ask = Callable[[int], Any]  # answers that many examples
RESULT_FILE = "distillation.json"
TEACHER, STUDENT, WITHOUT_TEACHER = "teacher", "student", "student without teacher"


NO_SCORE = {"score": None, "low": None, "high": None, "deviation": None, "seeds": 1}


def cost_of(folder: ModelFolder, milliseconds: Mapping[str, Any]) -> dict[str, Any]:
    """What a model costs: "parameters", the numbers in it, "bytes" of its weights on disk, and "milliseconds".

    Args:
        milliseconds: see `milliseconds_of`; empty if none were measured.
    """
    parameters = sum(tensor.numel() for tensor in folder.tensors.values())
    return {"parameters": parameters, "bytes": weight_bytes(folder.path), "milliseconds": milliseconds}


def weight_bytes(folder: Path) -> int:
    """The bytes of the weights of a model, in all their files."""
    source, _ = locate(folder)
    names = ("*.safetensors", "*.bin", "*.data-*")
    return sum(path.stat().st_size for name in names for path in source.glob(name))


def milliseconds_of(
    systems: Mapping[str, Callable[[str], Ask]], count: int, rounds: int = ROUNDS
) -> dict[str, dict[str, dict[str, float] | None]]:
    """For each system and precision the milliseconds for an example, alone and in a batch: medians over the rounds.

    Args:
        systems: for each one, a function that loads it in a precision; it raises ConfigError if that is not possible.
    """
    result: dict[str, dict[str, dict[str, float] | None]] = {name: {} for name in systems}
    for precision in PRECISIONS:
        loaded: dict[str, Ask] = {}
        for name, load in systems.items():
            result[name][precision] = None
            if precision != "int8" or choose_inference("cpu", "int8").precision == "int8":
                try:
                    with quiet():
                        loaded[name] = load(precision)
                except ConfigError:
                    continue  # an LSTM or a linear model has no int8
        for case, size in (("one", 1), ("batch", min(BATCH, count))):
            for name, median in medians_of({name: repeated(ask, size) for name, ask in loaded.items()}, rounds).items():
                result[name][precision] = {**(result[name][precision] or {}), case: round(median / size * 1000, 4)}
    return result


def repeated(ask: Ask, size: int) -> Callable[[], float]:
    """Measures a call, after warming up: processor seconds of one, repeated if it is short."""
    ask(size)
    start = time.process_time()
    ask(size)
    times = max(1, round(LEAST_SECONDS / max(time.process_time() - start, 1e-4)))

    def measure() -> float:
        start = time.process_time()
        for _ in range(times):
            ask(size)
        return (time.process_time() - start) / times

    return measure


def medians_of(sides: Mapping[str, Callable[[], float]], rounds: int = ROUNDS) -> dict[str, float]:
    """The median of each measurement, by its name; they take turns."""
    seconds: dict[str, list[float]] = {name: [] for name in sides}
    for _ in range(rounds):
        for name, measure in sides.items():
            seconds[name].append(measure())
    return {name: statistics.median(values) for name, values in seconds.items()}


def table_of(rows: Sequence[Mapping[str, Any]], metric: str) -> tuple[list[str], list[list[object]]]:
    """Header and rows of the table of a distillation, for display; the first row is the teacher.

    Args:
        rows: "name", "cost" (see `cost_of`, or None), "score", "low" and "high" (or None) of each system.
    """
    header = [
        "system", "parameters", "bytes", f"{metric}", "95% interval", "of the teacher", "ms, one", "ms, batch",
        "times as fast", "int8 one", "int8 batch",
    ]  # fmt: skip
    first, lines = rows[0], []
    for row in rows:
        cost = row["cost"]
        score, best = row["score"], first["score"]
        share = f"{100 * score / best:.1f}%" if score is not None and best else None
        between = None if row.get("low") is None else f"{row['low']:.4f} to {row['high']:.4f}"
        cells: list[object] = [row["name"], None, None, None if score is None else f"{score:.4f}", between, share]
        if cost is None:
            lines.append([*cells, None, None, None, None, None])
            continue
        cells[1:3] = [cost["parameters"], cost["bytes"]]
        exact, small = (cost["milliseconds"].get(name) or {} for name in PRECISIONS)
        before = (first["cost"]["milliseconds"].get("fp32") or {}) if first["cost"] else {}
        faster = f"{before['one'] / exact['one']:.1f}" if exact.get("one") and before.get("one") else None
        lines.append([*cells, exact.get("one"), exact.get("batch"), faster, small.get("one"), small.get("batch")])
    return header, lines


@dataclasses.dataclass(frozen=True, kw_only=True)
class DistillationReport:
    """What a distillation came to."""

    metric: str
    # for each system "name", "about", "score", "low", "high", "deviation" and "seeds" (None or 1 where there is one
    # model), and "cost"; the teacher first
    rows: Sequence[Mapping[str, Any]]
    path: Path

    __repr__ = short_repr

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {"metric": self.metric, "rows": [dict(row) for row in self.rows]}

    def table(self) -> tuple[list[str], list[list[object]]]:
        """Header and rows of the table, for display."""
        return table_of(self.rows, self.metric)

    def lines(self) -> list[str]:
        """What the table says, in words: how much of the teacher's score is kept, and what the teacher added."""
        by_name = {str(row["name"]): row for row in self.rows}
        first, mine, alone = (by_name.get(name) for name in (TEACHER, STUDENT, WITHOUT_TEACHER))
        assert first is not None, "every table has a teacher"
        if mine is None or mine["score"] is None or first["score"] is None:
            return ["no dev examples, so there are no scores"]
        if first["score"] <= 0:
            return [f"the teacher's {self.metric} is {first['score']:.4f}: there is nothing to keep of it"]
        parts, costs = [f"the student keeps {mine['score'] / first['score']:.1%} of the teacher's {self.metric}"], []
        if first["cost"] and mine["cost"]:
            costs.append(f"{first['cost']['parameters'] / mine['cost']['parameters']:.1f} times smaller")
            before, after = (row["cost"]["milliseconds"].get("fp32") for row in (first, mine))
            if before and after:
                costs.append(f"{before['one'] / after['one']:.1f} times as fast on one text")
                costs.append(f"{before['batch'] / after['batch']:.1f} in a batch")
        lines = ["; ".join([*parts, ", ".join(costs)]) if costs else parts[0]]
        if alone is not None and alone["score"] is not None:
            gain = mine["score"] - alone["score"]
            deviations = [row["deviation"] for row in (mine, alone) if row["deviation"] is not None]
            noise = max(deviations, default=0.0)
            how = f"{'more than' if abs(gain) > noise else 'within'} the spread over the seeds ({noise:.4f})"
            how = how if deviations else "with one seed each, which says little"
            lines.append(f"against the same student without the teacher: {gain:+.4f}, {how}")
        return lines


def report_of(taught: "Taught", out: Path, *, times: bool = True) -> DistillationReport:
    """The report of a distillation, written to RUN/distillation.json."""
    systems: dict[str, tuple[ModelFolder, str]] = {TEACHER: (taught.teacher, "")}
    systems[STUDENT] = (load_any(out / MODEL_FOLDER), taught.student.about)
    results: dict[str, FinetuningResult] = {STUDENT: taught.result}
    if taught.without is not None:
        systems[WITHOUT_TEACHER] = (load_any(out / WITHOUT / MODEL_FOLDER), taught.student.about)
        results[WITHOUT_TEACHER] = taught.without
    examples = [*taught.data.dev, *taught.data.train][:256]
    waits: Mapping[str, Any] = {}
    if times:
        # The two students have the same shape.
        waits = milliseconds_of(
            {name: loader_of(systems[name][0], examples) for name in (TEACHER, STUDENT)}, len(examples)
        )
    rows = []
    for name, (folder, about) in systems.items():
        dev = taught.data.dev
        scores = (
            _of_runs(results[name], taught.spec) if name in results else scores_of_teacher(folder, taught.spec, dev)
        )
        cost = cost_of(folder, waits.get(STUDENT if name == WITHOUT_TEACHER else name, {}))
        rows.append({"name": name, "about": about, **scores, "cost": cost})
    report = DistillationReport(metric=taught.spec.metric, rows=rows, path=out)
    write_json(out / RESULT_FILE, report.to_dict())
    return report


def loader_of(folder: ModelFolder, examples: Sequence[Example]) -> Callable[[str], Ask]:
    """A function that loads a model in a precision, and returns one that answers that many of the examples."""

    def load(precision: str) -> Ask:
        predictor = load_predictor(folder, device="cpu", precision=precision)
        return lambda count: predictor.predict(examples[:count])

    return load


def scores_of_teacher(folder: ModelFolder, spec: TaskSpec, dev: Sequence[Example]) -> dict[str, Any]:
    """The teacher's score on the dev examples, by the metric of the student's task."""
    if not dev:
        return NO_SCORE
    with quiet():
        loaded = load_predictor(folder, device="cpu", precision="fp32")
    return scored(loaded, spec, dev)


def scored(predictor: Predictor, spec: TaskSpec, examples: Sequence[Example]) -> dict[str, Any]:
    """The score of a model on labelled examples, with its interval, as a row of the table has it."""
    return scores_of(predictor.predict(examples), spec, examples)


def scores_of(predictions: Sequence[Prediction], spec: TaskSpec, examples: Sequence[Example]) -> dict[str, Any]:
    """The score of predictions for labelled examples, as a row of the table has it."""
    task = task_for(spec)
    scores, lines = scored_lines(task, examples, predictions)
    low, high = intervals(spec.kind, scores, lines, spec.scheme).get(spec.metric, (None, None))
    return {"score": scores[spec.metric], "low": low, "high": high, "deviation": None, "seeds": 1}


def _of_runs(result: "FinetuningResult", spec: TaskSpec) -> dict[str, Any]:
    """The mean over the seeds of a run, with the interval of its best model."""
    scores = [run.scores.get(spec.metric) for run in result.runs]
    known = [value for value in scores if value is not None]
    if not known:
        return {**NO_SCORE, "seeds": len(scores)}
    over = spread(known)
    low, high = result.report.get("intervals", {}).get(spec.metric, (None, None))
    deviation = over.deviation if len(known) > 1 else None
    return {"score": over.mean, "low": low, "high": high, "deviation": deviation, "seeds": len(known)}
