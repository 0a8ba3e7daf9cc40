"""The cost of a model: parameters, bytes on disk, and processor time per example, alone and in a batch.

The systems of a table take turns, so that other programs on the machine slow all of them alike, and the time is that of
the processor, of all threads, which they do not add to.
"""

import dataclasses
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from bertsmith.base.core.errors import ConfigError
from bertsmith.base.core.progress import quiet
from bertsmith.base.machine.runtime import choose_inference
from bertsmith.models.checkpoints.load import locate

BATCH = 32  # examples of a batch
ROUNDS = 5
LEAST_SECONDS = 0.02  # of a measurement: shorter ones are repeated within it
PRECISIONS = ("fp32", "int8")
Ask = Callable[[int], Any]  # answers that many examples


@dataclasses.dataclass(frozen=True, kw_only=True)
class Cost:
    """What a model costs."""

    parameters: int  # the numbers in it, of a linear model its weights
    bytes: int  # of its weights on disk
    # processor milliseconds for each example, by precision ("fp32", "int8") and then by "one" (a single example) and
    # "batch"; None where the model cannot be computed so
    milliseconds: Mapping[str, Mapping[str, float] | None]

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return dataclasses.asdict(self)


def weight_bytes(folder: Path) -> int:
    """The bytes of the weights of a model, in all their files."""
    place, _ = locate(folder)
    names = ("*.safetensors", "*.bin", "*.data-*")
    return sum(path.stat().st_size for name in names for path in place.glob(name))


def milliseconds_of(
    systems: Mapping[str, Callable[[str], Ask]], count: int, rounds: int = ROUNDS
) -> dict[str, dict[str, dict[str, float] | None]]:
    """For each system and precision the milliseconds for an example, alone and in a batch: medians over the rounds.

    Args:
        systems: for each one, a function that loads it in a precision; it raises ConfigError if that is not possible.
        count: examples that there are; a batch has at most `BATCH` of them.
        rounds: how often the systems take turns.
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
            for name, median in _medians({name: _repeated(ask, size) for name, ask in loaded.items()}, rounds).items():
                result[name][precision] = {**(result[name][precision] or {}), case: round(median / size * 1000, 4)}
    return result


def _repeated(ask: Ask, size: int) -> Callable[[], float]:
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


def _medians(sides: Mapping[str, Callable[[], float]], rounds: int) -> dict[str, float]:
    seconds: dict[str, list[float]] = {name: [] for name in sides}
    for _ in range(rounds):
        for name, measure in sides.items():
            seconds[name].append(measure())
    return {name: statistics.median(values) for name, values in seconds.items()}


def table_of(rows: Sequence[Mapping[str, Any]], metric: str) -> tuple[list[str], list[list[object]]]:
    """Header and rows of the table of a distillation, for display; the first row is the teacher.

    Args:
        rows: "name", "cost" (of `Cost.to_dict`, or None), "score", "low" and "high" (or None) of each system.
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
