"""Ctrl-C at any moment of a command: exit code 130, and no traceback."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(os.name != "posix", reason="signals of POSIX")

# If the tests run in the background, SIGINT is ignored, and child processes inherit that.
PROGRAM = """
import signal
signal.signal(signal.SIGINT, signal.default_int_handler)
from bertsmith.app.cli.entry import main
print("started", flush=True)
main()
"""
MOMENTS = (0.05, 0.15, 0.3, 0.8, 1.5)  # seconds after the start, most of them during imports


def interrupted(*typed: object, after: float, program: str = PROGRAM) -> tuple[int, str]:
    """The exit code and stderr of a command that receives SIGINT some seconds after its start."""
    process = subprocess.Popen(
        [sys.executable, "-c", program, *map(str, typed)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stdout.readline() == "started\n"
    time.sleep(after)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=120)
    return process.returncode, err


@pytest.mark.parametrize("after", MOMENTS)
def test_a_command_that_imports_much_ends_at_once(model: Path, tmp_path: Path, after: float) -> None:
    # It waits for lines on stdin, so it is still there whenever the signal comes.
    code, err = interrupted("fill", "--model", model, "-", after=after)
    assert (code, "Traceback" in err) == (130, False), err


@pytest.mark.parametrize("after", MOMENTS)
def test_a_server_that_starts_ends_too(model: Path, after: float) -> None:
    code, err = interrupted("serve", "--model", model, "--port", 0, after=after)
    assert (code, "Traceback" in err) == (130, False), err


def test_an_import_that_swallows_the_exception_does_not_keep_the_command_alive(tmp_path: Path) -> None:
    (tmp_path / "greedy.py").write_text(
        "import os, signal\ntry:\n    os.kill(os.getpid(), signal.SIGINT)\n    [x for x in range(10**6)]\n"
        "except BaseException:\n    pass\n"
    )
    program = (
        PROGRAM.removesuffix("main()\n")
        + f"import bertsmith.app.cli.app, sys\nsys.path.insert(0, {str(tmp_path)!r})\n"
        + "def run():\n    import greedy\n    print('survived', flush=True)\nbertsmith.app.cli.app.main = run\nmain()\n"
    )
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (result.returncode, result.stdout, result.stderr) == (130, "started\n", "")


@pytest.mark.parametrize("where", ["__del__", "the end of the process"])
def test_ctrl_c_where_python_would_only_report_it_ends_the_command(where: str) -> None:
    send = "import os, signal; os.kill(os.getpid(), signal.SIGINT); [x for x in range(10**6)]"
    body = {
        "__del__": f"class Last:\n    def __del__(self):\n        {send}\ndef run():\n    Last()\n    input()\n",
        "the end of the process": f"import atexit\n@atexit.register\ndef last():\n    {send}\ndef run(): pass\n",
    }[where]
    program = (
        PROGRAM.removesuffix("main()\n")
        + f"import bertsmith.app.cli.app\n{body}bertsmith.app.cli.app.main = run\nmain()\n"
    )
    result = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False, input="\n", timeout=120
    )
    assert (result.returncode, result.stderr) == (130, "")


def test_an_ignored_signal_stays_ignored(vocabulary: Path) -> None:
    program = PROGRAM.replace("signal.default_int_handler", "signal.SIG_IGN")
    process = subprocess.Popen(
        [sys.executable, "-c", program, "tokenize", "--vocab", str(vocabulary)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stdout.readline() == "started\n"
    process.send_signal(signal.SIGINT)
    assert process.communicate("the man\n", timeout=120) == ("the man\n", "")
    assert process.returncode == 0
