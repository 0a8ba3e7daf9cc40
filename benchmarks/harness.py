"""Shared by all benchmarks: interleaved rounds, ratios with their range, machine description, result file.

All sides run alternately in one process, A B A B ..., so that other load on the machine affects both. Ratios are
computed per round, from two adjacent measurements.
"""

import contextlib
import gc
import importlib.metadata
import os
import platform
import re
import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from bertsmith.base.storage.files import read_json, write_json

RESULTS = Path(__file__).parent / "results"
# Variables that limit oneDNN, the kernels of PyTorch, MKL and CTranslate2 to some instructions of the processor.
LIMITS = ("ONEDNN_MAX_CPU_ISA", "ATEN_CPU_CAPABILITY", "MKL_ENABLE_INSTRUCTIONS", "CT2_FORCE_CPU_ISA")
PACKAGES = ("bertsmith", "torch", "numpy", "pyarrow", "tokenizers", "transformers", "safetensors")


def interleave(
    sides: dict[str, Callable[[], Any]], rounds: int, *, clock: Callable[[], float] = time.perf_counter
) -> dict[str, list[float]]:
    """Seconds of every side in each round; the sides take turns, and rotate in who starts.

    Args:
        clock: `time.process_time` counts processor seconds, of all threads.
    """
    seconds: dict[str, list[float]] = {name: [] for name in sides}
    names = list(sides)
    for number in range(rounds):
        for name in names[number % len(names) :] + names[: number % len(names)]:
            gc.collect()
            start = clock()
            result = sides[name]()
            seconds[name].append(clock() - start)
            del result
        print("  round", number + 1, {name: round(times[-1], 3) for name, times in seconds.items()}, flush=True)
    return seconds


def ratio_summary(ours: Sequence[float], peer: Sequence[float]) -> dict[str, float]:
    """The speed-up of ours: median, lowest and highest over the rounds."""
    ratios = [theirs / our_time for our_time, theirs in zip(ours, peer, strict=True)]
    return {
        "median": round(statistics.median(ratios), 3),
        "lowest": round(min(ratios), 3),
        "highest": round(max(ratios), 3),
        "rounds": len(ratios),
    }


def spread(values: Sequence[float]) -> dict[str, float]:
    """Median, lowest and highest of `values`, in their unit."""
    return {
        "median": round(statistics.median(values), 4),
        "lowest": round(min(values), 4),
        "highest": round(max(values), 4),
    }


def machine() -> dict[str, Any]:
    """The processor, the cores available to this process, the load, Python and package versions."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return {
        "processor": _processor(),
        "cores": cores,
        "memory_gb": _memory_gb(),
        "load_average": round(os.getloadavg()[0], 2) if hasattr(os, "getloadavg") else None,
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "packages": {name: version for name in PACKAGES if (version := _version(name))},
        **({"limits": limits} if (limits := instruction_limits()) else {}),
    }


def instruction_limits() -> dict[str, str]:
    """The variables that limit libraries to some instructions of the processor, and their values."""
    return {name: os.environ[name] for name in LIMITS if os.environ.get(name)}


def write_result(name: str, payload: dict[str, Any]) -> Path:
    """Writes `payload` and the date to `results/NAME.json`, prints and returns the path."""
    path = RESULTS / f"{name}.json"
    write_json(path, {"benchmark": name, "day": time.strftime("%Y-%m-%d"), **payload})
    print(f"written: {path}")
    return path


def docstring_files(folder: Path, megabytes: float = 20.0) -> list[Path]:
    """Twenty files of about the megabytes in all: docstrings of the installed packages, English that is everywhere."""
    from bertsmith.text.documents.docstrings import docstring_documents

    texts: list[list[str]] = [[] for _ in range(20)]
    left = megabytes * 1e6
    with contextlib.closing(docstring_documents()) as documents:
        for number, document in enumerate(documents):
            texts[number % len(texts)].append("\n".join([*document.sentences, ""]))
            left -= sum(len(sentence.encode()) + 1 for sentence in document.sentences)
            if left <= 0:
                break
    files = [folder / f"docstrings-{number:02d}.txt" for number in range(len(texts))]
    for file, parts in zip(files, texts, strict=True):
        file.write_text("\n".join(parts), encoding="utf-8")
    return files


def begun(benchmark: str, out: str | None = None) -> tuple[dict[str, Any], str, dict[str, Any]]:
    """(the machine, the name of the result, the cells in it, if there are any, that earlier calls measured).

    Args:
        out: the name to use; by default it is made of the machine and the version of torch.
    """
    described = machine()
    name = out or f"{benchmark}_{machine_label(described)}_torch-{described['packages']['torch']}"
    path = RESULTS / f"{name}.json"
    return described, name, read_json(path).get("cells", {}) if path.exists() else {}


def machine_label(described: dict[str, Any]) -> str:
    """A short machine name for file names, such as `amd-epyc-2-cores`, with the first limit of its instructions."""
    limit = next(iter(described.get("limits", {}).values()), "")
    name = f"{described['processor']} {described['cores']} cores {limit}"
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")


def _processor() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        text = cpuinfo.read_text()
        name, family, model = (
            re.search(rf"^{field}\s*:\s*(.+)$", text, re.MULTILINE) for field in ("model name", "cpu family", "model")
        )
        if name is not None:
            numbers = f" family {family[1]} model {model[1]}" if family and model else ""
            return f"{name[1].strip()}{numbers}"
    return platform.processor() or platform.machine()


def _memory_gb() -> float | None:
    if not hasattr(os, "sysconf"):
        return None
    return round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9, 1)


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None
