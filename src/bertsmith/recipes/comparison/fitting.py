"""Fitting the cells of a comparison: computes what is missing; a failed cell does not stop the others."""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from bertsmith.base.core.errors import BertsmithError
from bertsmith.base.core.progress import counted, quiet, tell, warn
from bertsmith.base.storage.files import digest_bytes
from bertsmith.recipes.comparison.bench import Bench
from bertsmith.recipes.comparison.cells import Cell, Place
from bertsmith.recipes.comparison.sources import Kept, Made, Source, digest_of
from bertsmith.recipes.results.resampling import Line, intervals
from bertsmith.tasks.datasets.examples import Example
from bertsmith.tasks.datasets.labels import warn_of_unlearned

if TYPE_CHECKING:
    from bertsmith.recipes.comparison.systems import System

TIMED = 20  # dev examples that are answered one by one


def fit_all(bench: Bench, out: Path, chosen: "Mapping[str, System]", counts: Sequence[int], seeds: int) -> None:
    """Makes what is missing and fits every cell that has no scores yet, in the order of labels, seeds and systems."""
    able = {name: system for name, system in chosen.items() if not system.why_not(bench.spec)}
    places = [
        Place(system=name, labels=count, seed=seed) for count in counts for seed in range(1, seeds + 1) for name in able
    ]
    cells = {place: Cell.read(out, place) for place in places}
    left = [place for place, cell in cells.items() if cell is None or cell.error]
    made: dict[Source, Made | BertsmithError] = {}
    for source in sources_of(able[place.system] for place in left):
        if isinstance(source, Kept):
            made[source] = _made(source, bench, 0, out)
    tell(f"{counted(len(places), 'cell')}: {counted(len(able), 'system')}, labels {', '.join(map(str, counts))}, "
         f"{counted(seeds, 'seed')}; {len(places) - len(left):,} done")  # fmt: skip
    if bench.spec.kind in ("classification", "tagging"):
        for labels, seed in dict.fromkeys((place.labels, place.seed) for place in left):
            warn_of_unlearned(bench.spec.labels, bench.train(labels, seed), bench.data.dev)
    for place in left:
        system, scratch = able[place.system], place.path(out)
        base = None
        if system.source is not None:
            base = made.get(system.source) or _made(system.source, bench, place.seed, scratch)
        cell, lines = _cell(bench, place, system, base, scratch)
        cell.write(out, lines)
        metric = bench.spec.metric
        reached = f"failed: {cell.error}" if cell.error else (
            f"{metric.replace('_', ' ')} {cell.scores[metric]:.4f}, {cell.costs['fit_processor_seconds']:.1f} s"
        )  # fmt: skip
        (warn if cell.error else tell)(f"{place.name}: {reached}")


def _made(source: Source, bench: Bench, seed: int, scratch: Path) -> Made | BertsmithError:
    try:
        return source.make(bench, seed, scratch)
    except BertsmithError as error:
        return error


def _cell(
    bench: Bench, place: Place, system: "System", made: Made | BertsmithError | None, scratch: Path
) -> tuple[Cell, Sequence[Line]]:
    """The cell, with its predictions, or with the reason why there are none."""
    if isinstance(made, BertsmithError):
        return Cell(place=place, error=str(made)), ()
    train, spec = bench.train(place.labels, place.seed), bench.spec
    processor, wall = time.process_time(), time.monotonic()
    try:
        with quiet():
            fitted = system.fit(bench, made, train, place.seed, scratch)
    except BertsmithError as error:
        return Cell(place=place, error=str(error)), ()
    processor, wall = time.process_time() - processor, time.monotonic() - wall
    with quiet():
        latency = milliseconds(fitted.answer, bench.data.dev, bench.clock)
    provenance = {
        "settings": dict(fitted.settings),
        "train": digest_bytes("\n".join(example.id for example in train).encode()),
        "base": "" if made is None else made.path,
        "base_digest": "" if made is None else digest_of(made),
    }
    cell = Cell(
        place=place,
        scores=dict(fitted.scores),
        intervals=intervals(spec.kind, [spec.metric], fitted.lines, spec.scheme),
        costs={
            "fit_processor_seconds": round(processor, 3),
            "fit_seconds": round(wall, 3),
            "parameters": fitted.parameters,
            "milliseconds": round(latency, 4),
        },
        making={} if made is None else dict(made.costs),
        provenance=provenance,
        note=fitted.note,
        unknown_words=fitted.unknown_words,
    )
    return cell, fitted.lines


def milliseconds(
    answer: Callable[[Sequence[Example]], Any], examples: Sequence[Example], clock: Callable[[], float]
) -> float:
    """The median time for the answer to one example, after a first one that is not counted."""
    times = []
    answer(examples[:1])
    for example in examples[:TIMED]:
        start = clock()
        answer([example])
        times.append(clock() - start)
    return 1000 * float(np.median(times))


def sources_of(systems: "Iterable[System]") -> list[Source]:
    """What systems are built on, each once."""
    return list(dict.fromkeys(system.source for system in systems if system.source is not None))
