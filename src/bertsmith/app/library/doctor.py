"""What this installation has, what it lacks, and what would make it faster; nothing is changed or fetched."""

import dataclasses
import os
import platform
import shutil
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bertsmith.base.core.errors import InputError
from bertsmith.base.core.progress import counted
from bertsmith.base.core.version import __version__
from bertsmith.base.machine.processor import available_cores, for_mkl, for_onednn, processor_name
from bertsmith.base.machine.runtime import fast_precisions, memory_bytes
from bertsmith.models.checkpoints.packaged import PACKAGED, STARTER, packaged_folder

if TYPE_CHECKING:
    from packaging.requirements import Requirement

PACKAGE = "bertsmith"
# What each extra is for; see `pyproject.toml`.
EXTRAS: Mapping[str, str] = {
    "serve": "the server and its web page",
    "export": "ONNX files, and first answers without the import of torch",
    "index": "cells in large indexes, which make their search faster",
    "search": "the search for hyper-parameters",
    "tokenizers": "byte-level BPE and other tokenizers of published models",
    "words": "word vectors trained by compiled code, several times as fast",
    "minilm": "all-MiniLM-L6-v2, an encoder stronger than the starter",
    "tensorboard": "TensorBoard files of a training",
    "mlflow": "trainings in MLflow",
    "wandb": "trainings in Weights & Biases",
    "hdf5": "the published files of ELMo",
    "excel": "tables in .xlsx files",
    "chinese": "whole Chinese words for masks",
    "japanese": "whole Japanese words for masks",
    "thai": "whole Thai words for masks",
    "ray": "text and vectors on many machines",
    "remote": "addresses such as s3://",
}
FASTER = ("export", "index", "words")  # extras without which the same work takes longer
_CPU_BUILD = "https://download.pytorch.org/whl/cpu"
_CUDA_BUILD = "https://download.pytorch.org/whl/cu130"
_LEAST_MEMORY = 4 * 2**30  # for a training of MiniLM
_LEAST_DISK = 5 * 2**30
_QUICK_TYPER = "typer<0.29"  # later ones import pydantic for every command
_THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Finding:
    """One line of a checkup.

    Attributes:
        name: what was looked at.
        state: what is there.
        advice: what to do, where something is missing or could be faster; empty if there is nothing to do.
        is_wrong: whether the package cannot work like that.
    """

    name: str
    state: str
    advice: str = ""
    is_wrong: bool = False


@dataclasses.dataclass(frozen=True)
class Checkup:
    """What `examine` sees, in order."""

    findings: tuple[Finding, ...]

    @property
    def is_well(self) -> bool:
        """Whether nothing that the package needs is missing or too old."""
        return not any(finding.is_wrong for finding in self.findings)

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {"is_well": self.is_well, "findings": [dataclasses.asdict(finding) for finding in self.findings]}

    def lines(self) -> list[str]:
        """The checkup as lines of text: what is there, then what to do."""
        width = max(len(finding.name) for finding in self.findings)
        lines = [f"{finding.name:{width}}  {finding.state}" for finding in self.findings]
        advice = [f"- {finding.advice}" for finding in self.findings if finding.advice]
        return [*lines, *advice, "to install what is in brackets: pip install 'bertsmith[NAME]'"]


def examine() -> Checkup:
    """What is installed here, what is missing, and what would be faster; a second, without importing torch."""
    findings = [Finding(name="bertsmith", state=f"{__version__} in {Path(__file__).parents[2]}"), *_machine()]
    findings += [_torch(), *_requirements(), *_models(), _disk()]
    return Checkup(tuple(findings))


def _machine() -> Iterator[Finding]:
    yield Finding(name="Python", state=f"{platform.python_version()}, {sys.platform} {platform.machine()}")
    cores, total = available_cores(), os.cpu_count() or 1
    of_all = f" of {total}" if cores < total else ""
    limits = [name for name in (for_onednn().limit, for_mkl().limit) if name]
    limits += [f"{name}={os.environ[name]}" for name in ("ATEN_CPU_CAPABILITY",) if os.environ.get(name)]
    threads = [f"{name}={os.environ[name]}" for name in _THREADS if os.environ.get(name)]
    fast = [*fast_precisions("cpu"), *(["int8"] if for_onednn().int8_bits else [])]
    parts = [f"{processor_name()}, {counted(cores, 'core')}{of_all}", ", ".join(fast), *limits, *threads]
    names = " ".join(limit.partition("=")[0] for limit in limits)
    yield Finding(
        name="processor",
        state="; ".join(parts),
        advice=f"unset {names} to use all instructions of the processor" if limits else "",
    )
    if hasattr(os, "getloadavg") and (load := os.getloadavg()[0]) > 1.5 * cores:
        yield Finding(
            name="load",
            state=f"{load:.1f} processes for {counted(cores, 'core')}",
            advice="others are using the processor: wait for them"
            + ("" if threads else ", or set OMP_NUM_THREADS=1 for threads not to wait for each other"),
        )
    memory = memory_bytes()
    yield Finding(
        name="memory",
        state=f"{memory / 2**30:.1f} GiB" if memory else "unknown",
        advice="little memory for a training: use small --batch-size and --max-length"
        if 0 < memory < _LEAST_MEMORY
        else "",
    )


def _torch() -> Finding:
    from importlib.metadata import PackageNotFoundError, distribution

    try:
        installed = distribution("torch")
    except PackageNotFoundError:
        return Finding(
            name="torch",
            state="not installed: ONNX folders and model folders answer, nothing is trained",
            advice=f"to train: pip install torch --index-url {_CPU_BUILD}",
        )
    has_gpu = _has_gpu()
    needs_cuda = any(name.startswith(("nvidia-", "cuda-")) for name in installed.requires or ())
    for_cpu = "+cpu" in installed.version or not needs_cuda
    advice = ""
    if has_gpu and for_cpu:
        advice = f"a build of torch for the CPU, with a GPU here: pip install torch --index-url {_CUDA_BUILD}"
    elif not has_gpu and not for_cpu:
        advice = (
            "a build of torch for CUDA, several gigabytes, without a GPU here: pip uninstall torch, then pip install "
            f"torch --index-url {_CPU_BUILD}"
        )
    state = f"{installed.version}, for {'the CPU' if for_cpu else 'CUDA'}; {'a GPU' if has_gpu else 'no GPU'} here"
    return Finding(name="torch", state=state, advice=advice)


def _has_gpu() -> bool:
    return any(Path("/dev").glob("nvidia[0-9]*"))


def _requirements() -> Iterator[Finding]:
    """The packages that this one needs, and its extras."""
    from importlib.metadata import PackageNotFoundError, requires

    try:
        listed = requires(PACKAGE) or []
    except PackageNotFoundError:
        yield Finding(
            name="packages",
            state="unknown, since bertsmith is imported from a folder and not installed",
            advice="pip install . in its folder",
        )
        return
    from packaging.requirements import Requirement

    requirements = [Requirement(line) for line in listed]
    needed = [each for each in requirements if each.marker is None or each.marker.evaluate({"extra": ""})]
    if any(each.name == "torch" and _problem(each).startswith("no ") for each in needed):
        needed = [each for each in requirements if _belongs(each, "light")]
    wrong = [problem for each in needed if (problem := _problem(each))]
    yield Finding(
        name="packages",
        state="; ".join(wrong) or f"all {len(needed)} that are needed",
        advice=f"pip install {' '.join(_quoted(each) for each in needed if _problem(each))}" if wrong else "",
        is_wrong=bool(wrong),
    )
    if not wrong and (slower := _problem(Requirement(_QUICK_TYPER))):
        advice = f"for commands that start sooner: pip install '{_QUICK_TYPER}'"
        yield Finding(name="typer", state=f"{slower}: every command imports pydantic", advice=advice)
    for extra, purpose in EXTRAS.items():
        parts = [each for each in requirements if _belongs(each, extra)]
        if not parts:
            continue  # an earlier version is installed than the one that is imported
        missing = [problem for each in parts if (problem := _problem(each))]
        yield Finding(
            name=f"[{extra}]",
            state=f"{', '.join(missing)}, for {purpose}" if missing else "installed",
            advice=f"for {purpose}: pip install 'bertsmith[{extra}]'" if missing and extra in FASTER else "",
        )


def _belongs(requirement: "Requirement", extra: str) -> bool:
    return requirement.marker is not None and requirement.marker.evaluate({"extra": extra})


def _problem(requirement: "Requirement") -> str:
    """Why a requirement is not met; empty if it is."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        installed = version(requirement.name)
    except PackageNotFoundError:
        return f"no {requirement.name}"
    if requirement.specifier.contains(installed, prereleases=True):
        return ""
    return f"{requirement.name} {installed}, not {requirement.specifier}"


def _quoted(requirement: "Requirement") -> str:
    return f"'{requirement.name}{requirement.specifier}'"


def _models() -> Iterator[Finding]:
    for name in (STARTER, *PACKAGED):
        try:
            yield Finding(name=name, state=f"in {packaged_folder(name)}")
        except InputError as error:  # of others than the starter, the extra of the name says how to get them
            is_wrong = name == STARTER
            yield Finding(name=name, state=error.found, advice=error.fix if is_wrong else "", is_wrong=is_wrong)


def _disk() -> Finding:
    free = shutil.disk_usage(Path.cwd()).free
    return Finding(
        name="disk",
        state=f"{free / 2**30:.0f} GiB free in this folder",
        advice="little room for corpora and checkpoints: use another disk for --out" if free < _LEAST_DISK else "",
    )
