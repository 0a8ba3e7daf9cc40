"""Builds the wheel and the source distribution of the last commit, twice, and tries the wheel in empty environments.

    python tools/release.py [--out dist] [--python python3.11 --python python3.13] [--with pip uv pipx]
                            [--constraint constraints.txt]

Only what is committed is built: the files of HEAD, in two folders of different names. Both must give the same bytes;
times in the archives are those of the commit, and the members of the source distribution have no owner. `twine check
--strict` reads their metadata. Then pip, uv and pipx each install the wheel, for each Python that is named, into an
environment of its own, and the commands of SMOKE run in an empty folder, outside the repository. A tool that is not
there is skipped, with a line that says so. OUT gets the archives, SHA256SUMS, and CONTENTS with the size of every file
in them.
"""

import argparse
import gzip
import hashlib
import io
import itertools
import os
import shlex
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).parent.parent
BUILD = "import sys, setuptools.build_meta as backend; print(backend.build_{kind}(sys.argv[1]))"
# What an installed wheel must be able to do, without a network: lines of a shell, and what they print.
SMOKE = (
    ("bertsmith --version", "VERSION"),
    ("bertsmith doctor", "starter"),
    ('bertsmith fill --model starter "She opened the [MASK]." --top 1', ""),
    (r"(echo text,label; printf 'win a prize now,spam\nsee you at noon,ham\n%.0s' 1 2 3 4 5 6) > mails.csv", ""),
    (
        "bertsmith finetune --model starter --task classification --train mails.csv --epochs 1 --seeds 1 --out run",
        "model: run/model",
    ),
    ("echo 'see you' | bertsmith predict --model run/model", "ham"),
    ("bertsmith embed mails.csv --model starter --out mails.npy && test -s mails.npy", ""),
)


TOOLS = ("pip", "uv", "pipx")


class ReleaseError(Exception):
    """What stands in the way of a release, in one line."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Builds, checks, tries and writes a release."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--out", type=Path, default=ROOT / "dist")
    parser.add_argument("--python", action="append", default=[], help="a Python that installs the wheel; repeatable")
    parser.add_argument("--with", dest="tools", nargs="+", choices=TOOLS, default=TOOLS, help="what installs it")
    parser.add_argument("--constraint", type=Path, help="versions for the environments; by default the newest")
    options = parser.parse_args(arguments)
    try:
        archives = reproduced()
        check_metadata(archives)
        for python, tool in itertools.product(options.python, options.tools):
            smoke_test(archives, tool, python, options.constraint)
        write(options.out, archives)
    except ReleaseError as error:
        sys.exit(f"release: {error}")


def reproduced() -> dict[str, bytes]:
    """The archives of the last commit by name, built twice.

    Raises:
        ReleaseError: there are changes that are not committed, or the second build differs.
    """
    if changes := _output("git", "status", "--porcelain"):
        raise ReleaseError(f"expected a clean working tree; found {changes.splitlines()[0].strip()}; commit it")
    first, second = (built(name) for name in ("first", "a second, of another length"))
    if different := [name for name in first if first[name] != second.get(name)]:
        raise ReleaseError(f"expected the same bytes twice; found others in {', '.join(different)}")
    return first


def built(name: str) -> dict[str, bytes]:
    """The archives, built in a folder of that name."""
    time = _output("git", "log", "-1", "--format=%ct")
    with tempfile.TemporaryDirectory() as folder:
        source, out = Path(folder) / name, Path(folder) / "out"
        source.mkdir()
        out.mkdir()
        files = subprocess.run(["git", "archive", "HEAD"], cwd=ROOT, check=True, capture_output=True).stdout
        with tarfile.open(fileobj=io.BytesIO(files)) as archive:
            archive.extractall(source, filter="data")
        for kind in ("wheel", "sdist"):
            command = [sys.executable, "-c", BUILD.format(kind=kind), str(out)]
            environment = {**os.environ, "SOURCE_DATE_EPOCH": time, "PYTHONHASHSEED": "0"}
            environment.pop("PYTHONPATH", None)
            built = subprocess.run(command, cwd=source, env=environment, capture_output=True, text=True, check=False)
            if built.returncode:
                raise ReleaseError(f"the {kind} was not built: {_last_line(built.stderr)}")
        return {
            path.name: without_owner(path.read_bytes(), int(time))
            if path.name.endswith(".tar.gz")
            else path.read_bytes()
            for path in sorted(out.iterdir())
        }


def without_owner(archive: bytes, time: int) -> bytes:
    """A .tar.gz with the same files in order of their names, of no owner and one time.

    setuptools writes the owner and the times of the machine that builds.
    """
    written = io.BytesIO()
    with tarfile.open(fileobj=io.BytesIO(archive)) as source, tarfile.open(fileobj=written, mode="w") as target:
        for member in sorted(source.getmembers(), key=lambda member: member.name):
            is_script = member.isdir() or member.mode & 0o100
            kept = member.replace(
                mtime=time, uid=0, gid=0, uname="", gname="", mode=0o755 if is_script else 0o644, deep=False
            )
            kept.pax_headers = {}
            target.addfile(kept, source.extractfile(member) if member.isfile() else None)
    return gzip.compress(written.getvalue(), mtime=time)


def check_metadata(archives: Mapping[str, bytes]) -> None:
    """What `twine check --strict` has to say about the archives."""
    with tempfile.TemporaryDirectory() as folder:
        paths = [_saved(Path(folder) / name, content) for name, content in archives.items()]
        command = [sys.executable, "-m", "twine", "check", "--strict", *map(str, paths)]
        checked = subprocess.run(command, capture_output=True, text=True, check=False)
    if checked.returncode:
        raise ReleaseError(f"twine check: {_last_line(checked.stdout + checked.stderr)}")


def smoke_test(archives: Mapping[str, bytes], tool: str, python: str, constraint: Path | None) -> None:
    """Installs the wheel with a tool for a Python, and runs the commands of SMOKE far from the repository."""
    program = python if tool == "pip" else program_of(tool)
    if program is None:
        print(f"{tool}: skipped, because there is none; pip install {tool}", flush=True)
        return
    with tempfile.TemporaryDirectory() as folder:
        wheel = next(name for name in archives if name.endswith(".whl"))
        path = _saved(Path(folder) / wheel, archives[wheel])
        binaries = install(tool, program, path, python, constraint)
        run_smoke(binaries, wheel.split("-")[1])
        version = tried([python, "--version"], Path(folder)).strip()
    print(f"{tool}, {version}: {len(SMOKE)} commands of the installed wheel", flush=True)


def program_of(tool: str) -> str | None:
    """The path of a tool, next to this Python or where the shell looks; None if there is none."""
    return shutil.which(tool, path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")


def install(tool: str, program: str, wheel: Path, python: str, constraint: Path | None) -> Path:
    """The folder with the commands of a wheel, which a tool installs into an empty environment next to it."""
    folder = wheel.parent
    home, binaries = folder / "environment", folder / "environment/bin"
    limits = ["--constraint", str(constraint.resolve())] if constraint is not None else []
    if tool == "pip":
        tried([program, "-m", "venv", str(home)], folder)
        tried([str(binaries / "python"), "-m", "pip", "install", "--quiet", *limits, str(wheel)], folder)
    elif tool == "uv":
        command = [program, "tool", "install", "--quiet", "--python", python, *limits, str(wheel)]
        tried(command, folder, UV_TOOL_DIR=str(home), UV_TOOL_BIN_DIR=str(binaries))
    else:
        command = [program, "install", "--quiet", "--python", python, f"--pip-args={shlex.join(limits)}", str(wheel)]
        tried(command, folder, PIPX_HOME=str(home), PIPX_BIN_DIR=str(binaries), PIPX_MAN_DIR=str(home / "man"))
    return binaries


def run_smoke(binaries: Path, version: str) -> None:
    """Runs the commands of SMOKE, of which those of an installation are in `binaries`, in an empty folder.

    Raises:
        ReleaseError: one of them fails, or does not print what it should.
    """
    with tempfile.TemporaryDirectory() as work:
        for line, expected in SMOKE:
            printed = tried(["sh", "-c", line], Path(work), PATH=f"{binaries}{os.pathsep}{os.environ['PATH']}")
            expected = expected.replace("VERSION", version)
            if expected not in printed:
                raise ReleaseError(f"{line}: expected {expected!r}; found {_last_line(printed)}")


def write(out: Path, archives: Mapping[str, bytes]) -> None:
    """Writes the archives, their digests, and the list of their files."""
    out.mkdir(parents=True, exist_ok=True)
    lines, sums = list[str](), list[str]()
    for name, content in archives.items():
        _saved(out / name, content)
        sums.append(f"{hashlib.sha256(content).hexdigest()}  {name}\n")
        lines.append(f"{name}: {len(content):,} bytes\n")
        lines += [f"{size:>12,}  {member}\n" for member, size in members(name, content)]
        print(f"{out / name}: {len(content):,} bytes")
    (out / "SHA256SUMS").write_text("".join(sums), encoding="utf-8")
    (out / "CONTENTS").write_text("".join(lines), encoding="utf-8")


def members(name: str, content: bytes) -> Iterable[tuple[str, int]]:
    """The files in an archive, with their sizes."""
    if name.endswith(".whl"):
        with zipfile.ZipFile(io.BytesIO(content)) as wheel:
            return [(member.filename, member.file_size) for member in wheel.infolist()]
    with tarfile.open(fileobj=io.BytesIO(content)) as source:
        return [(member.name, member.size) for member in source.getmembers() if member.isfile()]


def _saved(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path


def _output(*command: str) -> str:
    return subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout.strip()


def tried(command: Sequence[str], folder: Path, **environment: str) -> str:
    """What a command prints; it sees nothing of the repository."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "VIRTUAL_ENV"))}
    done = subprocess.run(command, cwd=folder, env={**kept, **environment}, capture_output=True, text=True, check=False)
    if done.returncode:
        raise ReleaseError(f"{' '.join(command)[:200]}: {_last_line(done.stderr or done.stdout)}")
    return done.stdout


def _last_line(text: str) -> str:
    return (text.strip().splitlines() or ["nothing"])[-1][:300]


if __name__ == "__main__":
    main()
