"""The archives of a release, and the files by which others build, cite and report."""

import gzip
import io
import json
import re
import runpy
import shutil
import subprocess
import tarfile
import tomllib
from pathlib import Path

import benchmark_history
import pytest
import release
import yaml

from bertsmith.base.core.version import __version__
from bertsmith.text.documents import docstrings
from bertsmith.text.documents.readers import Document

ROOT = Path(__file__).parent.parent
GITHUB = ROOT / ".github"
WORKFLOWS = sorted((GITHUB / "workflows").glob("*.yml"))
in_a_clone = pytest.mark.skipif(
    shutil.which("git") is None
    or bool(subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, check=False, capture_output=True).returncode),
    reason="only a clone has commits",
)


def archive_of(files: dict[str, bytes], *, owner: str, time: int) -> bytes:
    written = io.BytesIO()
    with tarfile.open(fileobj=written, mode="w:gz") as archive:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size, member.uname, member.mtime, member.mode = len(content), owner, time, 0o600
            archive.addfile(member, io.BytesIO(content))
    return written.getvalue()


def test_an_archive_does_not_tell_who_built_it_and_when():
    files = {"b/x.py": b"x = 1\n", "a.txt": b"text"}
    first = release.without_owner(archive_of(files, owner="ann", time=10), 99)
    second = release.without_owner(archive_of(dict(reversed(files.items())), owner="bob", time=20), 99)
    assert first == second
    assert dict(release.members("x.tar.gz", first)) == {"a.txt": 4, "b/x.py": 6}
    assert b"ann" not in gzip.decompress(first)


@in_a_clone
def test_a_release_has_what_people_need_and_nothing_else():
    archives = release.built("here")
    wheel, source = sorted(archives, key=lambda name: name.endswith(".tar.gz"))
    assert wheel == f"bertsmith-{__version__}-py3-none-any.whl"
    of_wheel = {name for name, _ in release.members(wheel, archives[wheel])}
    assert {
        "bertsmith/starter/model.safetensors",
        "bertsmith/app/server/page/index.html",
        "bertsmith/py.typed",
    } <= of_wheel
    assert not [name for name in of_wheel if name.startswith(("tests", "tools", "benchmarks"))]
    of_source = {name.partition("/")[2] for name, _ in release.members(source, archives[source])}
    tracked = subprocess.run(["git", "ls-files"], cwd=ROOT, check=True, capture_output=True, text=True).stdout.split(
        "\n"
    )
    assert {name for name in tracked if name} - of_source <= {".gitignore", ".pre-commit-config.yaml"}
    assert len(archives[wheel]) < 20 * 2**20


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_workflows_run_what_people_run_and_may_write_nothing_else(path):
    workflow = yaml.safe_load(path.read_text(encoding="utf-8"))
    assert workflow["permissions"] == {"contents": "read"}
    targets = set(re.findall(r"^([a-z0-9-]+):.*## ", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    steps = [step for job in workflow["jobs"].values() for step in job["steps"]]
    assert all("timeout-minutes" in job for job in workflow["jobs"].values())
    for line in (line for step in steps for line in step.get("run", "").splitlines()):
        if line.startswith("make "):
            assert line.split()[1] in targets, line
        if line.startswith(".ci/"):
            assert (ROOT / line).is_file()


def test_a_page_shows_every_night_of_the_benchmarks(tmp_path):
    ratio = {"median": 4.0, "lowest": 3.5, "highest": 6.125, "rounds": 5}
    machine = {"processor": "Zen 4", "cores": 2}
    for day, cases in (("2026-11-27", {"a": ratio}), ("2026-11-28", {"a": ratio | {"median": 5.0}, "b": ratio})):
        (tmp_path / day).mkdir()
        result = {"benchmark": "some_speed_amd-zen-4", "machine": machine, "cases": cases, "other": {"median": 1}}
        (tmp_path / day / "some_speed.json").write_text(json.dumps(result))
    assert benchmark_history.page(tmp_path).splitlines()[4:] == [
        "## some_speed",
        "",
        "| day | processor | cases, a | cases, b |",
        "| --- | --- | --- | --- |",
        "| 2026-11-28 | Zen 4, 2 cores | 5.00 (3.50 to 6.12) | 4.00 (3.50 to 6.12) |",
        "| 2026-11-27 | Zen 4, 2 cores | 4.00 (3.50 to 6.12) |  |",
    ]


def test_benchmarks_without_data_read_docstrings(tmp_path, monkeypatch):
    documents = [Document(source=f"m{number}", sentences=["One sentence.", "Another."]) for number in range(100)]
    monkeypatch.setattr(docstrings, "docstring_documents", lambda: (document for document in documents))
    files = runpy.run_path(str(ROOT / "benchmarks/harness.py"))["docstring_files"](tmp_path, megabytes=0.001)
    assert len(files) == 20
    assert files[0].read_text() == "One sentence.\nAnother.\n\nOne sentence.\nAnother.\n\nOne sentence.\nAnother.\n"
    assert 1000 <= sum(len(file.read_text()) for file in files) < 1100, "it ends when there is enough"


def test_the_forms_of_issues_ask_for_what_is_needed():
    for path in sorted((GITHUB / "ISSUE_TEMPLATE").glob("[!c]*.yml")):
        form = yaml.safe_load(path.read_text(encoding="utf-8"))
        assert form["name"], path
        assert any(part.get("validations", {}).get("required") for part in form["body"]), path


def test_the_version_is_the_same_everywhere():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert project["version"] == citation["version"] == __version__
    assert project["license"] == citation["license"]
