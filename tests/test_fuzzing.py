"""A short run of the tools that look for requests and files that break the package; longer runs are by hand."""

import os
import subprocess
import sys
from pathlib import Path

import fuzz_files
import fuzz_requests
import pytest

from bertsmith.base.core.randomness import generator

TOOLS = Path(__file__).parent.parent / "tools"
LIGHT = (
    "vocab",
    "model vocab",
    "config",
    "modules",
    "tokenizer",
    "pipeline",
    "safetensors",
    "corpus",
    "shards",
    "npy",
    "parquet",
    "changes",
    "google",
    "word vectors txt",
    "word vectors bin",
    "word vectors glove",
    "text wiki_00",
    "text wiki_01",
    "text utf-16.txt",
    "text cp1252.txt",
)


def run(tool: str, out: Path, *arguments: object) -> str:
    """What a tool prints; it must find nothing."""
    command = [sys.executable, str(TOOLS / tool), "--out", str(out), *map(str, arguments)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(TOOLS.parent / "src")}
    result = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600, env=environment)
    assert result.returncode == 0, result.stdout + result.stderr
    assert not out.exists()
    return result.stdout


@pytest.mark.skipif(os.name != "posix", reason="signals of POSIX")
def test_no_request_breaks_the_server(tmp_path: Path) -> None:
    pytest.importorskip("uvicorn", reason="needs the extra serve")
    assert "120 cases, 0 findings" in run("fuzz_requests.py", tmp_path / "found", "--cases", 120, "--seed", 1)


@pytest.mark.skipif(os.name != "posix", reason="signals of POSIX")
def test_no_damaged_file_is_a_traceback(tmp_path: Path) -> None:
    said = run("fuzz_files.py", tmp_path / "found", "--cases", 160, "--seed", 1, "--kinds", *LIGHT)
    assert "160 cases, 0 findings" in said
    assert all(f"  {kind}: " in said for kind in LIGHT)


def test_a_case_is_a_function_of_its_seed_and_number() -> None:
    pytest.importorskip("fastapi", reason="needs the extra serve")
    cases = [fuzz_requests.case_of(1, number) for number in range(50)]
    assert cases == [fuzz_requests.case_of(1, number) for number in range(50)]
    assert cases != [fuzz_requests.case_of(2, number) for number in range(50)]
    content = b'{"a": [1, 2, 3]}\nsecond\n'
    damaged = [fuzz_files.damage(content, b"other", generator(0, "damage", number)) for number in range(50)]
    assert damaged == [fuzz_files.damage(content, b"other", generator(0, "damage", number)) for number in range(50)]
    assert sum(case != content for case in damaged) > 40


def test_what_is_not_one_line_is_a_finding() -> None:
    assert fuzz_files.run("sizes", "")[0] == "success"
    assert fuzz_files.run("tokenize --vocab absent.txt", "a\n")[0] == "refused"
    assert not fuzz_files.Outcome("", "", "refused", "", b"").is_finding
    assert fuzz_files.Outcome("", "", "ValueError", "Traceback", b"").is_finding
