"""Write the tables of encoding speed and latency in benchmarks/README.md; with --check, fail if they are out of date.

A comment in the page, `<!-- table of RESULT -->`, names a result file of `encode_speed.py` or `latency.py` without its
suffix; the lines up to `<!-- end of table -->` are generated. Every such result needs a table.

One rule for all ratios: the seconds of a peer over ours, round by round, from one interleaved run; the table shows the
median and, in brackets, the lowest and highest. A peer that was measured in two settings counts with the faster one,
and the best peer of a line is the fastest, both by median. Our ONNX folder is compared with the best peer in the same
way; for the first vector, whose result has no single rounds, by the median.
"""

import json
import re
import statistics
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

BENCHMARKS = Path(__file__).parent.parent / "benchmarks"
PAGE, RESULTS = BENCHMARKS / "README.md", BENCHMARKS / "results"
BLOCK = re.compile(r"<!-- table of (\S+) -->\n.*?<!-- end of table -->", re.DOTALL)
ENCODE, DEFAULTS, LATENCY = "encode_speed_", "encode_speed_defaults_", "latency_"
OURS, FOLDER = "ours", "ours-onnx"
# The other engines of a result and their columns; those that begin with "ours" are not peers.
COLUMNS = {
    "ours-torch": "ours, torch imported",
    "ours-plain": "ours, plain",
    FOLDER: "ours, ONNX folder",
    "ctranslate2": "CTranslate2",
    "onnxruntime": "ONNX Runtime",
    "openvino": "OpenVINO",
    "sentence-transformers": "sentence-transformers",
    "transformers": "transformers",
}
MODELS = {"minilm": "MiniLM", "base": "BERT-base"}
PRECISIONS = ("fp32", "bf16", "int8")
ABSENT = "-"


class Line(NamedTuple):
    """One line of a table.

    Attributes:
        case: what was measured.
        medians: seconds, by engine.
        rounds: seconds of each round, by engine; empty if they are not in the result.
        ratios: how many times as fast ours is (median, lowest, highest), by every other engine.
        ours: the cell of ours.
        others: the cells of the other engines.
    """

    case: str
    medians: dict[str, float]
    rounds: dict[str, list[float]]
    ratios: dict[str, dict[str, float]]
    ours: str
    others: dict[str, str]

    @property
    def against(self) -> str:
        """Ours against the best peer."""
        best = best_peer(self.medians)
        if best is None:
            return ABSENT
        ratio = self.ratios[best]
        return f"{ratio['median']:.2f} ({ratio['lowest']:.2f} to {ratio['highest']:.2f})"

    @property
    def folder_against(self) -> str:
        """Our ONNX folder against the best peer."""
        best = best_peer(self.medians)
        if best is None or FOLDER not in self.medians:
            return ABSENT
        if not self.rounds:
            return f"{self.medians[best] / self.medians[FOLDER]:.2f}"
        ratios = [theirs / ours for ours, theirs in zip(self.rounds[FOLDER], self.rounds[best], strict=True)]
        return f"{statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})"


def best_peer(medians: dict[str, float]) -> str | None:
    """The engine with the fewest seconds among those that are not ours; None if there is no other."""
    return min((name for name in medians if not name.startswith(OURS)), key=lambda name: medians[name], default=None)


def fastest_settings(medians: dict[str, float], setting: str | None = None) -> dict[str, str]:
    """The system of each engine that counts, such as "openvino fp32 best".

    Args:
        medians: seconds, by system.
        setting: the only one that counts, if given; ours has none.
    """
    fastest: dict[str, str] = {}
    for system in sorted(medians, key=lambda name: medians[name]):
        engine, _, *ran = system.split(" ")
        if setting is None or not ran or ran == [setting]:
            fastest.setdefault(engine, system)
    return fastest


def speed_lines(result: dict[str, Any], setting: str | None) -> Iterator[Line]:
    """The lines of a result of `encode_speed.py`: tokens per second, and ratios."""
    for title, case in _in_order(result["cases"]):
        every = {system: statistics.median(values) for system, values in case["seconds"].items()}
        systems = fastest_settings(every, setting)
        if OURS in systems:
            medians = {engine: every[system] for engine, system in systems.items()}
            rounds = {engine: case["seconds"][system] for engine, system in systems.items()}
            ratios = _others(case["times_as_fast"], systems)
            cells = {engine: f"{ratio['median']:.2f}" for engine, ratio in ratios.items()}
            yield Line(_title(title), medians, rounds, ratios, f"{case['real_tokens'] / medians[OURS]:,.0f}", cells)


def latency_lines(result: dict[str, Any]) -> Iterator[Line]:
    """The lines of a result of `latency.py`: milliseconds of a row, then seconds to the first vector."""
    for title, case in _in_order(result["one_row"]):
        rounds = {system: [value / case["rows"] for value in values] for system, values in case["seconds"].items()}
        every = {system: statistics.median(values) for system, values in rounds.items()}
        lines = _timed(_title(title, "1 row of 32"), every, rounds, case.get("times_as_fast", {}), "{:,.1f} ms", 1000)
        yield from lines
    kind = "seconds_worked" if _threads(result) == 1 else "seconds"
    for title, case in _in_order(result["cold_start"]):
        every = {system: seconds["median"] for system, seconds in case[kind].items()}
        yield from _timed(_title(title, "first vector"), every, {}, case["times_as_soon"], "{:.2f} s")


def _timed(
    case: str,
    every: dict[str, float],
    rounds: dict[str, list[float]],
    ratios: dict[str, Any],
    shown: str,
    units: int = 1,
) -> Iterator[Line]:
    systems = fastest_settings(every)
    if OURS in systems:
        medians = {engine: every[system] for engine, system in systems.items()}
        cells = {engine: shown.format(units * seconds) for engine, seconds in medians.items()}
        by_round = {engine: rounds[system] for engine, system in systems.items()} if rounds else {}
        yield Line(case, medians, by_round, _others(ratios, systems), cells.pop(OURS), cells)


def _others(ratios: dict[str, Any], systems: dict[str, str]) -> dict[str, Any]:
    return {engine: ratios[system] for engine, system in systems.items() if engine != OURS}


def table(name: str) -> str:
    """The table of a result, and a line that says where and when it was measured.

    Args:
        name: of the result file, without its suffix.
    """
    result = json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))
    setting = "default" if name.startswith(DEFAULTS) else None
    lines = list(latency_lines(result) if name.startswith(LATENCY) else speed_lines(result, setting))
    columns = {engine: title for engine, title in COLUMNS.items() if any(engine in line.others for line in lines)}
    ours = "ours" if name.startswith(LATENCY) else "ours, tokens per second"
    head = ["case", ours, *columns.values(), "against the best peer"]
    head += ["ONNX folder against the best peer"] if FOLDER in columns else []
    rows = [head, ["---"] * len(head)]
    for line in lines:
        cells = [line.case, line.ours, *(line.others.get(engine, ABSENT) for engine in columns), line.against]
        rows.append([*cells, line.folder_against] if FOLDER in columns else cells)
    return "\n".join([_where(result, columns), "", *(f"| {' | '.join(row)} |" for row in rows), ""])


def page(text: str) -> str:
    """The page with its tables generated again.

    Raises:
        SystemExit: a result has no table, or a table no result.
    """
    named = BLOCK.findall(text)
    measured = sorted(path.stem for path in RESULTS.glob("*.json") if path.name.startswith((ENCODE, LATENCY)))
    if sorted(named) != measured:
        differing = ", ".join(sorted(set(named) ^ set(measured))) or "the same table twice"
        sys.exit(
            "expected one table in benchmarks/README.md for each result of encode_speed.py and latency.py; found a "
            f"difference: {differing}; add or remove <!-- table of RESULT --> and <!-- end of table -->"
        )
    return BLOCK.sub(lambda match: f"<!-- table of {match[1]} -->\n{table(match[1])}\n<!-- end of table -->", text)


def _in_order(cases: dict[str, Any]) -> list[tuple[str, Any]]:
    """Cases by model, then by texts, then by precision."""
    texts = list(dict.fromkeys(title.split(", ")[1] for title in cases))

    def rank(item: tuple[str, Any]) -> tuple[int, int, int]:
        model, *middle, precision = item[0].split(", ")
        return list(MODELS).index(model), texts.index(middle[0]) if middle else 0, PRECISIONS.index(precision)

    return sorted(cases.items(), key=rank)


def _title(title: str, case: str | None = None) -> str:
    model, *middle, precision = title.split(", ")
    return ", ".join([MODELS[model], *([case] if case else middle), precision])


def _threads(result: dict[str, Any]) -> int:
    return int(next(iter((result.get("cases") or result["one_row"]).values()))["threads"])


def _where(result: dict[str, Any], engines: Iterable[str]) -> str:
    cases = (result.get("cases") or result["one_row"]).values()
    days = sorted({case.get("day", result["day"]) for case in cases})
    rounds = sorted({case.get("rounds", result.get("rounds")) for case in cases}, reverse=True)
    machine, threads = result["machine"], _threads(result)
    clock = "one thread, processor seconds" if threads == 1 else f"{threads} threads, seconds on the clock"
    versions = {title: machine["packages"].get(engine) for engine, title in COLUMNS.items() if engine in engines}
    starts = [
        ratio["rounds"] for case in result.get("cold_start", {}).values() for ratio in case["times_as_soon"].values()
    ]
    counts = " or ".join(map(str, rounds)) + (f" rounds, {max(starts)} of first vectors" if starts else " rounds")
    listed = ", ".join(f"{title} {version}" for title, version in versions.items() if version)
    limited = "".join(f", {name}={value}" for name, value in machine.get("limits", {}).items())
    return (
        f"{machine['processor']}{limited}, {clock}, {counts}, {' and '.join(days)}; torch "
        f"{machine['packages']['torch']}, {listed}:"
    )


def main() -> None:
    """Writes or checks the tables."""
    text = PAGE.read_text(encoding="utf-8")
    made = page(text)
    if "--check" not in sys.argv[1:]:
        PAGE.write_text(made, encoding="utf-8")
    elif made != text:
        sys.exit("expected up-to-date tables in benchmarks/README.md; found others; run python tools/speed_table.py")


if __name__ == "__main__":
    main()
