"""`bertsmith doctor`: what is installed, what is missing, what would be faster."""

import importlib.metadata
import json
import tomllib
from pathlib import Path
from types import SimpleNamespace

import pytest

from bertsmith.app.library import doctor
from bertsmith.app.library.doctor import EXTRAS, Finding, examine
from bertsmith.base.core.version import __version__
from bertsmith.models.checkpoints import packaged

PROJECT = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text(encoding="utf-8"))["project"]


@pytest.fixture
def installed(monkeypatch):
    """Versions by package, all that is installed; those that bertsmith asks for, to begin with."""
    versions = {"bertsmith": __version__, "torch": "2.13.0+cpu"}
    extras = PROJECT["optional-dependencies"]
    lines = [*PROJECT["dependencies"]]
    lines += [f'{line}; extra == "{name}"' for name, parts in extras.items() if name != "dev" for line in parts]
    needs = {"bertsmith": lines, "torch": []}

    def version(name):
        if name not in versions:
            raise importlib.metadata.PackageNotFoundError(name)
        return versions[name]

    def distribution(name):
        return SimpleNamespace(version=version(name), requires=needs.get(name, []))

    monkeypatch.setattr(importlib.metadata, "version", version)
    monkeypatch.setattr(importlib.metadata, "distribution", distribution)
    monkeypatch.setattr(importlib.metadata, "requires", lambda name: distribution(name).requires)
    for line in PROJECT["dependencies"]:
        name, _, least = line.partition(">=")
        versions.setdefault(name, least.partition(",")[0])
    return SimpleNamespace(versions=versions, needs=needs)


def state(name: str) -> Finding:
    return next(finding for finding in examine().findings if finding.name == name)


def test_a_whole_installation_is_well(run):
    result = run("doctor").succeeds()
    assert f"{__version__} in " in result.out
    report = json.loads(run("doctor", "--json").out)
    assert report["is_well"]
    assert {"processor", "memory", "torch", "packages", "starter", "minilm", "disk"} <= {
        finding["name"] for finding in report["findings"]
    }


def test_every_extra_that_people_install_has_a_purpose():
    assert EXTRAS.keys() == PROJECT["optional-dependencies"].keys() - {"dev", "light", "release"}


def test_extras_that_are_missing_are_listed_with_what_they_are_for(installed, run):
    assert state("packages").state == f"all {len(PROJECT['dependencies'])} that are needed"
    assert state("[excel]").state == "no openpyxl, for tables in .xlsx files"
    assert state("[index]").advice == f"for {EXTRAS['index']}: pip install 'bertsmith[index]'"
    installed.versions["openpyxl"] = "3.1.5"
    assert state("[excel]").state == "installed"
    run("doctor").succeeds()


def test_a_typer_that_slows_the_start_of_commands_is_named(installed):
    installed.versions["typer"] = "0.28.0"
    assert not [finding for finding in examine().findings if finding.name == "typer"]
    installed.versions["typer"] = "0.29.2"
    assert state("typer").advice == "for commands that start sooner: pip install 'typer<0.29'"


def test_an_installation_without_its_starter_is_not_well(monkeypatch, tmp_path, run):
    monkeypatch.setattr(packaged, "_STARTER_FOLDER", tmp_path)
    assert state("starter").is_wrong
    assert state("starter").advice.startswith("install bertsmith again")
    run("fill", "--model", "starter", "the [MASK] .").refuses(
        "expected the starter in this installation of bertsmith; found no"
    )


def test_a_needed_package_that_is_missing_or_too_old_is_an_error(installed, run):
    installed.versions["numpy"] = "1.26.0"
    del installed.versions["rich"]
    assert state("packages").state == "numpy 1.26.0, not >=2.0; no rich"
    assert state("packages").advice == "pip install 'numpy>=2.0' 'rich>=13'"
    assert run("doctor").code == 1


def test_an_installation_without_torch_needs_less(installed):
    for name in ("torch", "scipy", "scikit-learn"):
        del installed.versions[name]
    installed.versions["onnxruntime"] = "1.20"
    assert not state("packages").is_wrong
    assert "pip install torch" in state("torch").advice
    del installed.versions["onnxruntime"]
    assert state("packages").state == "no onnxruntime"


@pytest.mark.parametrize(
    ("version", "needs", "has_gpu", "advice"),
    [
        ("2.13.0+cpu", [], False, ""),
        ("2.13.0+cpu", [], True, "with a GPU here: pip install torch"),
        ("2.13.0", ["nvidia-cudnn-cu13==9; platform_system == 'Linux'"], False, "without a GPU here"),
        ("2.13.0", ["nvidia-cudnn-cu13==9; platform_system == 'Linux'"], True, ""),
        ("2.13.0", ["numpy"], False, ""),
    ],
)
def test_the_build_of_torch_suits_the_machine(version, needs, has_gpu, advice, installed, monkeypatch):
    installed.versions["torch"], installed.needs["torch"] = version, needs
    monkeypatch.setattr(doctor, "_has_gpu", lambda: has_gpu)
    assert advice in state("torch").advice
    assert bool(advice) == bool(state("torch").advice)


def test_a_variable_that_takes_instructions_away_is_named(monkeypatch):
    monkeypatch.setenv("ATEN_CPU_CAPABILITY", "default")
    assert "ATEN_CPU_CAPABILITY=default" in state("processor").state
    assert state("processor").advice.startswith("unset ATEN_CPU_CAPABILITY")


def test_a_package_that_is_only_imported_says_so(installed):
    del installed.versions["bertsmith"]
    assert "not installed" in state("packages").state


def test_advice_about_a_busy_machine_leaves_out_what_is_set_already(monkeypatch):
    monkeypatch.setattr(doctor.os, "getloadavg", lambda: (1000.0, 0.0, 0.0), raising=False)
    monkeypatch.delenv("MKL_NUM_THREADS", raising=False)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    assert state("load").advice == "others are using the processor: wait for them"
    monkeypatch.delenv("OMP_NUM_THREADS")
    assert "set OMP_NUM_THREADS=1" in state("load").advice
