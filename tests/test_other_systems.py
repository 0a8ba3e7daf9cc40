"""What macOS and Windows lack is used with a guard. Neither runs here: they are imitated, for this package alone."""

import ast
import functools
import json
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import mypy
import pytest

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "bertsmith"
STUBS = Path(mypy.__file__).parent / "typeshed" / "stdlib"
SYSTEMS = ("win32", "darwin")
# Every use of a name that one of the systems lacks, and what guards it there.
GUARDED = {
    "app/library/doctor.py: os.getloadavg": "hasattr",
    "app/server/connections.py: resource": "os.name; without it a process has no such limit",
    "app/server/process.py: signal.SIGHUP": "hasattr; POST /reload does the same",
    "app/server/process.py: socket.TCP_USER_TIMEOUT": "hasattr; the limit of --write-seconds is the server's own there",
    "base/machine/allocator.py: os.sysconf": "read after /proc, so never without it",
    "base/machine/processor.py: os.sched_getaffinity": "hasattr; os.cpu_count",
    "base/machine/runtime.py: os.register_at_fork": "hasattr; there is no fork",
    "base/machine/runtime.py: os.sysconf": "AttributeError; memory is unknown",
    "base/storage/locks.py: fcntl": "ImportError; a warning says that nothing is locked",
    "base/storage/locks.py: os.pread": "fcntl, without which no lock is opened",
    "base/storage/locks.py: os.pwrite": "the same",
}


def is_true(test: ast.expr, system: str) -> bool:
    """The value of a condition of a stub on a system; of one that asks for neither system nor version, True."""
    match test:
        case ast.BoolOp(op=ast.And()):
            return all(is_true(value, system) for value in test.values)
        case ast.BoolOp():
            return any(is_true(value, system) for value in test.values)
        case ast.UnaryOp(op=ast.Not()):
            return not is_true(test.operand, system)
        case ast.Compare(left=left, ops=[operator], comparators=[ast.Constant(value=name)]):
            assert ast.unparse(left) == "sys.platform"
            return (system == name) == isinstance(operator, ast.Eq)
        case ast.Compare(left=left):
            assert ast.unparse(left) == "sys.version_info"
            return bool(eval(ast.unparse(test)))
    return True


def defined(statements: list[ast.stmt], system: str) -> set[str]:
    """The names that a stub defines on a system."""
    names: set[str] = set()
    for statement in statements:
        match statement:
            case ast.If():
                names |= defined(statement.body if is_true(statement.test, system) else statement.orelse, system)
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                names.add(statement.name)
            case ast.AnnAssign(target=ast.Name(id=name)):
                names.add(name)
            case ast.Assign():
                names |= {target.id for target in statement.targets if isinstance(target, ast.Name)}
            case ast.Import() | ast.ImportFrom():
                names |= {alias.asname or alias.name for alias in statement.names}
    return names


@functools.cache
def lacking(module: str, system: str) -> frozenset[str]:
    """What a module of Python has on Linux and not on another system, by the stubs of mypy."""
    path = STUBS / module.replace(".", "/")
    path = path / "__init__.pyi" if path.is_dir() else path.with_suffix(".pyi")
    if not path.is_file():
        return frozenset()
    statements = ast.parse(path.read_text(encoding="utf-8")).body
    return frozenset(defined(statements, "linux") - defined(statements, system))


def uses(source: str) -> set[str]:
    """What a program uses that one of the systems lacks: names with their modules, or a module that has none there."""
    tree = ast.parse(source)
    modules, pairs = dict[str, str](), list[tuple[str, str]]()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            modules |= {alias.asname or alias.name: alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            pairs += [(node.module, alias.name) for alias in node.names]
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and ast.unparse(node.value) in modules:
            pairs.append((modules[ast.unparse(node.value)], node.attr))
    return {
        module if module in MODULES["win32"] else f"{module}.{name}"
        for module, name in pairs
        for system in SYSTEMS
        if name in lacking(module, system)
    }


# Modules of which nothing is left.
MODULES = {"win32": ("fcntl", "grp", "pty", "pwd", "resource", "syslog", "termios", "tty"), "darwin": ()}


def test_what_another_system_lacks_is_known() -> None:
    assert {"sched_getaffinity", "fork", "getloadavg", "pread", "O_NOFOLLOW"} <= lacking("os", "win32")
    assert "sched_getaffinity" in lacking("os", "darwin")
    assert "fork" not in lacking("os", "darwin")
    program = "import os, signal as s\nfrom fcntl import flock\nos.fork()\nos.replace\ns.SIGKILL\n"
    assert uses(program) == {"os.fork", "signal.SIGKILL", "fcntl"}


def test_every_use_of_what_another_system_lacks_has_a_guard() -> None:
    used = {
        f"{path.relative_to(SOURCE).as_posix()}: {name}"
        for path in SOURCE.rglob("*.py")
        for name in uses(path.read_text(encoding="utf-8"))
    }
    assert used == set(GUARDED)


def test_text_files_have_the_same_bytes_on_each_system() -> None:
    """Python ends lines as the system does, unless a file is opened with `newline`."""
    opened = [
        f"{path.relative_to(SOURCE)}:{node.lineno}"
        for path in SOURCE.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_bytes()))
        if isinstance(node, ast.Call)
        and writes_text(node)
        and not {keyword.arg for keyword in node.keywords} & {"newline", "closefd"}
    ]
    assert opened == []


def writes_text(call: ast.Call) -> bool:
    match call:
        case ast.Call(func=ast.Name(id="open"), args=[_, ast.Constant(value=mode)]):
            return "b" not in mode and mode != "r"
        case ast.Call(func=ast.Attribute(attr="open"), args=[ast.Constant(value=str(mode))]):
            return mode[:1] in ("w", "a", "x") and "b" not in mode
        case ast.Call(func=ast.Attribute(attr="write_text"), keywords=keywords):
            return bool(keywords)
    return False


PROGRAM = """
import contextlib, importlib, os, pkgutil, sys
import bertsmith
for module in pkgutil.walk_packages(bertsmith.__path__, "bertsmith."):
    importlib.import_module(module.name)
from pathlib import Path
from bertsmith.app.cli.app import main
from bertsmith.app.server.connections import raise_descriptor_limit
from bertsmith.app.server.process import _listener
from bertsmith.app.server.settings import ServerSettings
from bertsmith.base.machine.allocator import KeptMemory
from bertsmith.base.machine.runtime import memory_bytes
from bertsmith.base.storage.locks import locked_file, locked_folder
from bertsmith.tasks.encoding.onnx_session import num_threads

def run(*arguments):
    sys.argv = ["bertsmith", *arguments]
    try:
        main()
    except SystemExit as end:
        assert not end.code, end.code

torch_module = sys.modules.pop("torch")
assert num_threads() >= 1
sys.modules["torch"] = torch_module
with KeptMemory() as memory:
    memory.check()
memory_bytes()
raise_descriptor_limit(100_000_000 if os.name == "nt" else 10)
_listener("127.0.0.1", 0, ServerSettings()).close()
Path("mails.csv").write_text("text,label\\n" + "win a prize now,spam\\nsee you at noon,ham\\n" * 6)
if os.name == "nt":  # once is enough for what takes seconds
    run("finetune", "--model", "starter", "--task", "classification", "--train", "mails.csv",
        "--epochs", "1", "--seeds", "1", "--out", "run")
run("embed", "mails.csv", "--model", "starter", "--out", "mails.npy")
run("index", "mails.csv", "--model", "starter", "--out", "index")
run("doctor")
with locked_folder(Path("another")), locked_file(Path("file")):
    locks = sorted(str(path) for path in Path().rglob("*.lock"))
print("locks:", *locks)
"""


@pytest.mark.parametrize("system", SYSTEMS)
def test_a_run_vectors_and_an_index_are_written_without_what_another_system_lacks(system: str, tmp_path: Path) -> None:
    names = defaultdict(list)
    for module in ("os", "signal", "socket", "ctypes"):
        names[module] = sorted(lacking(module, system))
    asked = {"system": system, "names": names, "modules": MODULES[system], "program": PROGRAM}
    command = [sys.executable, "-W", "ignore", str(ROOT / "tests/on_another_system.py")]
    result = subprocess.run(command, cwd=tmp_path, input=json.dumps(asked), capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr[-3000:]
    assert result.stdout.splitlines()[-1].split()[1:] == ([] if system == "win32" else [".file.lock", "another/.lock"])
    assert ("is not locked (this system has no flock)" in result.stderr) == (system == "win32")
    assert (tmp_path / "run/model/model.safetensors").is_file() == (system == "win32")
    assert (tmp_path / "mails.npy").is_file()
