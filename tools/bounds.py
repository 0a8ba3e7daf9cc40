"""Tries the lowest and the newest versions of what the package depends on, each in an environment of its own.

    python tools/bounds.py [lowest] [newest] [--python python3.11] [--keep torch==2.13.0 ...]

uv chooses the versions: with `lowest` the lowest that pyproject.toml allows of each package that it names (those that
they need in turn are the newest), with `newest` the newest of all. Extras that people use are installed too. Then the
commands of `tools/release.py` run in an empty folder, a server answers, and TESTS run with the code of this working
tree. --keep holds a package at one version in both environments. The variables of uv apply, such as
UV_TORCH_BACKEND=cpu and UV_FIND_LINKS.
"""

import argparse
import itertools
import json
import subprocess
import sys
import tempfile
import tomllib
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import release

ROOT = Path(__file__).parent.parent
RESOLUTIONS = {"lowest": "lowest-direct", "newest": "highest"}
# minilm is one version; light and release are no dependencies of the code; dev has the tools of its developers.
LEFT_OUT = ("dev", "light", "minilm", "release")
# A small part of the suite that touches each package, without the libraries that answers are compared with.
TESTS = (
    "cli/test_app.py", "cli/test_starter_commands.py", "cluster/test_engine.py", "documents", "indexes/test_indexes.py",
    "test_downloads.py", "test_estimators.py", "test_files.py", "test_requests.py", "training/test_callbacks.py",
    "word_vectors",
)  # fmt: skip
RUNNERS = ("httpx", "hypothesis", "pytest", "pytest-timeout", "pyyaml")


def main(arguments: Sequence[str] | None = None) -> None:
    """Tries each set of versions that is asked for."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("bounds", nargs="*", default=list(RESOLUTIONS), help="lowest, newest; by default both")
    parser.add_argument("--python", default=f"{sys.version_info[0]}.{sys.version_info[1]}")
    parser.add_argument("--keep", nargs="+", default=[], metavar="NAME==VERSION")
    options = parser.parse_args(arguments)
    if unknown := set(options.bounds) - set(RESOLUTIONS):
        sys.exit(f"bounds: expected lowest or newest; found {', '.join(sorted(unknown))}")
    uv = release.program_of("uv")
    if uv is None:
        sys.exit("bounds: expected uv, which chooses the versions; found none; pip install uv")
    try:
        wheels = {name: content for name, content in release.built("bounds").items() if name.endswith(".whl")}
        for bound in options.bounds:
            try_bound(uv, bound, options.python, options.keep, wheels)
    except release.ReleaseError as error:
        sys.exit(f"bounds: {error}")


def try_bound(uv: str, bound: str, python: str, keep: Sequence[str], wheels: Mapping[str, bytes]) -> None:
    """Installs versions and the wheel of the last commit, and runs commands and tests.

    Raises:
        ReleaseError: versions cannot be chosen or installed, or a command or a test fails.
    """
    with tempfile.TemporaryDirectory() as folder:
        environment, versions = Path(folder) / "environment", Path(folder) / "versions.txt"
        kept = Path(folder) / "kept.txt"
        kept.write_text("\n".join(keep), encoding="utf-8")
        options = [word for name in extras() for word in ("--extra", name)]
        choice = [uv, "pip", "compile", "--quiet", "--no-header", "--no-annotate", "--python-version", python]
        choice += ["--resolution", RESOLUTIONS[bound], "--override", str(kept), "--output-file", str(versions)]
        release.tried([*choice, *options, str(ROOT / "pyproject.toml")], ROOT)
        release.tried([uv, "venv", "--quiet", "--python", python, str(environment)], ROOT)
        install = [uv, "pip", "install", "--quiet", "--python", str(environment / "bin/python")]
        release.tried([*install, "--requirement", str(versions), *RUNNERS], ROOT)
        for name, content in wheels.items():
            (Path(folder) / name).write_bytes(content)
            release.tried([*install, "--no-deps", str(Path(folder) / name)], ROOT)
            release.run_smoke(environment / "bin", name.split("-")[1])
            ask_server(environment / "bin")
        print(f"{bound}: {', '.join(direct_versions(versions.read_text(encoding='utf-8')))}", flush=True)
        tests = [str(ROOT / "tests" / name) for name in TESTS]
        command = [str(environment / "bin/python"), "-m", "pytest", "-q", "-p", "no:cacheprovider"]
        # What an old version warns about, such as the packages that it imports, is not for this code to change.
        command += ["-o", "filterwarnings=ignore", *tests] if bound == "lowest" else tests
        if subprocess.run(command, cwd=ROOT, check=False).returncode:
            raise release.ReleaseError(f"tests fail with the {bound} versions")


def ask_server(binaries: Path) -> None:
    """Starts the server on the starter, and asks it to fill a mask.

    Raises:
        ReleaseError: it does not start, or does not answer.
    """
    command = [str(binaries / "bertsmith"), "serve", "--model", "starter", "--port", "0"]
    with subprocess.Popen(command, cwd=binaries, stderr=subprocess.PIPE, text=True) as server:
        assert server.stderr is not None
        try:
            said = server.stderr.readline()
            address = said.strip().rpartition(" ")[2]
            if not address.startswith("http://"):
                raise release.ReleaseError(f"bertsmith serve: expected its address; found {said.strip()!r}")
            asked = json.dumps({"texts": ["She opened the [MASK]."]}).encode()
            request = urllib.request.Request(f"{address}/fill", asked, {"content-type": "application/json"})
            with urllib.request.urlopen(request, timeout=60) as reply:
                if "door" not in reply.read().decode():
                    raise release.ReleaseError("bertsmith serve: expected a door among the words for the mask")
        except OSError as error:
            raise release.ReleaseError(f"bertsmith serve: {error}") from None
        finally:
            server.terminate()


def direct_versions(versions: str) -> list[str]:
    r"""Of a list of versions, those of the packages that pyproject.toml names.

    >>> direct_versions("numpy==2.0.0\nsix==1.17.0\ntorch==2.13.0+cpu\n")
    ['numpy==2.0.0', 'torch==2.13.0+cpu']
    """
    lines = [*project()["dependencies"], *itertools.chain.from_iterable(extras().values())]
    named = {line.partition("[")[0].partition(">")[0].partition("=")[0].replace("_", "-").lower() for line in lines}
    return [line for line in versions.split() if line.partition("==")[0] in named]


def extras() -> dict[str, list[str]]:
    """The extras that add something to the code, with the packages that they name."""
    return {name: lines for name, lines in project()["optional-dependencies"].items() if name not in LEFT_OUT}


def project() -> dict[str, Any]:
    """The table `project` of pyproject.toml."""
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


if __name__ == "__main__":
    main()
