"""Atomic writes of files and folders, JSON, digests.

A file is written under a temporary name next to its destination, flushed to disk, then renamed. After a crash or on a
full disk the previous file is intact. Whatever a killed process left behind is removed when the same path is written
again.
"""

import contextlib
import csv
import dataclasses
import hashlib
import io
import json
import os
import re
import shutil
import stat
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

from bertsmith.base.core.errors import CheckpointError, InputError, reason_of
from bertsmith.base.storage.addresses import address_of

FORMAT = 1  # of the files that describe models, runs, corpora and vectors; see `require_format`
PARTIAL_SUFFIX = ".partial"
_POINTER = b"version https://git-lfs.github.com/"
# .NAME.PID.partial is being written; .NAME.PID.old.partial is what it replaces, kept until the new one is in place.
_LEFTOVER = re.compile(r"\.(?P<name>.+)\.(?P<pid>\d{1,9})(?P<old>\.old)?\.partial", re.DOTALL)


@dataclasses.dataclass(frozen=True)
class FolderKind:
    """A kind of folder that may be replaced, and how to recognize it.

    Attributes:
        name: its name in error messages, with the article.
        marks: sets of glob patterns; a folder is of this kind if every pattern of one set matches a file in it.
    """

    name: str
    marks: tuple[tuple[str, ...], ...]

    def fits(self, folder: Path) -> bool:
        """True if `folder` is of this kind, or empty."""
        if not any(folder.iterdir()):
            return True
        return any(all(any(folder.glob(pattern)) for pattern in patterns) for patterns in self.marks)


def require_local(path: Path | str, kind: str = "an output") -> None:
    """Refuses an address where only a path on this machine is read or written."""
    address = address_of(path)
    if address is not None:
        raise InputError(
            expected=f"{kind} on this machine",
            found=f"the address '{address}'",
            fix="name a local path, and copy the files with the tools of the storage",
        )


@contextlib.contextmanager
def atomic_file(path: Path) -> Iterator[IO[bytes]]:
    """Yields a binary file that becomes `path` if the block ends without an error."""
    require_local(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    _remove_leftovers(path)
    partial = sibling(path)
    in_folder = _LEFTOVER.fullmatch(path.parent.name)  # of `atomic_folder`, which syncs all files at its end
    try:
        with _errors_that_name(path, partial):
            # "x" neither follows a link nor opens what another process has put there.
            with open(partial, "xb") as file:
                yield file
                file.flush()
                if not in_folder:
                    os.fsync(file.fileno())
            os.replace(partial, path)
            if not in_folder:
                _sync_folder(path.parent)
    finally:
        partial.unlink(missing_ok=True)


@contextlib.contextmanager
def atomic_folder(path: Path, *, replace: FolderKind | bool = False) -> Iterator[Path]:
    """Yields an empty folder that becomes `path` if the block ends without an error.

    Args:
        replace: the kind of folder that may be replaced. True is for paths that only this package writes, such as
            those inside a run folder. The old folder is moved aside first and deleted at the end.
    """
    require_local(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    _remove_leftovers(path)
    require_replaceable(path, replace)
    partial, aside = sibling(path), sibling(path, ".old")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir()
    try:
        with _errors_that_name(path, partial):
            yield partial
            for entry in partial.rglob("*"):
                if entry.is_dir():
                    _sync_folder(entry)
                else:
                    sync_file(entry)
            _sync_folder(partial)
            # The block may have taken hours, so check again.
            require_replaceable(path, replace)
            if path.exists():
                _exchange(path, partial, aside)
            else:
                os.rename(partial, path)
            _sync_folder(path.parent)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def link_file(source: Path, path: Path) -> None:
    """Makes `path` a second name of a file, or a copy of it where the storage has no such names.

    The two stay apart when one of them is written again: `atomic_file` replaces a file and never changes its content.
    """
    require_file(source, "a file to link")
    try:
        os.link(os.path.realpath(source), path)  # of a link the file, as a link may be relative
    except OSError:
        shutil.copyfile(source, path)


def remove_partials(folder: Path) -> None:
    """Removes what interrupted writes left in `folder`, and restores what they were about to replace."""
    for leftover in list(folder.iterdir()) if folder.is_dir() else ():
        if match := _LEFTOVER.fullmatch(leftover.name):
            _clear(leftover, folder / match["name"], is_old=bool(match["old"]))


def require_file(path: Path, kind: str) -> None:
    """Checks that `path` is a readable, non-empty file."""
    require_local(path, kind)
    try:
        _require_regular(path)
        with open(path, "rb") as file:
            start = file.read(len(_POINTER))
    except OSError as error:
        raise InputError(
            expected=f"{kind} at '{path}'", found=str(error.strerror).lower(), fix="check the path and its permissions"
        ) from None
    if not start:
        raise InputError(expected=f"{kind} at '{path}'", found="an empty file", fix="download or copy it again")
    if start == _POINTER:
        raise CheckpointError(
            expected=f"{kind} at '{path}'",
            found="a git-lfs pointer instead of the file itself",
            fix="run `git lfs pull`, or download the file",
        )


def require_file_place(path: Path) -> None:
    """Checks that a file can be written to `path`, before any work goes into its content."""
    require_local(path)
    if path.exists() and not path.is_file():
        obstacle = "a folder" if path.is_dir() else "a device or other special file"
        raise InputError(expected=f"a regular file or nothing at '{path}'", found=obstacle, fix="choose another path")
    above = next(parent for parent in path.absolute().parents if os.path.lexists(parent))
    if not above.is_dir() or not os.access(above, os.W_OK | os.X_OK):
        obstacle = "a write-protected folder" if above.is_dir() else "a file"
        raise InputError(
            expected=f"a writable folder for '{path}'", found=f"{obstacle} at '{above}'", fix="choose another path"
        )


def require_outside(out: Path, inputs: Iterable[Path | str], *, fix: str = "choose another folder") -> None:
    """Checks that the output neither is nor contains an input, which would be destroyed if it were replaced."""
    # Unlike Path.resolve, this accepts a link to itself, which is refused where it is read.
    target = os.path.realpath(out)
    for path in inputs:
        if Path(os.path.realpath(path)).is_relative_to(target):
            raise InputError(expected=f"an output apart from the input '{path}'", found=f"'{out}'", fix=fix)


def write_text(path: Path, text: str) -> None:
    """Writes `text` as UTF-8, atomically."""
    with atomic_file(path) as file:
        file.write(text.encode("utf-8"))


def write_csv(path: Path, rows: Iterable[Sequence[Any]], *, mark: bool = False) -> None:
    """Writes rows of cells, the header first, as CSV, atomically.

    Args:
        mark: begin with a byte order mark, without which some spreadsheets read UTF-8 as another encoding.
    """
    stream = io.StringIO(newline="")
    csv.writer(stream, lineterminator="\n").writerows(rows)
    write_text(path, ("\ufeff" if mark else "") + stream.getvalue())


def write_json(path: Path, value: Any) -> None:
    """Writes `value` as indented JSON, atomically."""
    write_text(path, json.dumps(value, indent=2, ensure_ascii=False) + "\n")


def read_json(path: Path) -> Any:
    """The value of a JSON file."""
    require_local(path, "a JSON file")
    try:
        return json.loads(regular_bytes(path).decode("utf-8"))
    except FileNotFoundError:
        raise InputError(expected=f"a JSON file at '{path}'", found="no such file", fix="check the path") from None
    except OSError as error:
        raise InputError(
            expected=f"a readable file at '{path}'", found=reason_of(error), fix="check the path and its permissions"
        ) from None
    except (ValueError, RecursionError) as error:
        raise InputError(
            expected=f"JSON in '{path}'", found=f"invalid JSON ({error})", fix="restore the file"
        ) from None


def read_object(path: Path) -> dict[str, Any]:
    """The object in a JSON file; an empty one if there is no file."""
    if not path.exists():
        return {}
    value = read_json(path)
    if not isinstance(value, dict):
        raise InputError(expected=f"a JSON object in '{path}'", found=type(value).__name__, fix="restore the file")
    return value


def keep_record(path: Path, record: Mapping[str, Any]) -> list[str]:
    """The names of the values that differ between a record and the one in the file, which is written if there is none.

    The record of a folder says what the work in it is made of, so that only the same work is resumed.
    """
    if not path.exists():
        write_json(path, dict(record))
        return []
    read, new = read_json(path), json.loads(json.dumps(dict(record)))
    before = read if isinstance(read, dict) else {}
    return [name for name in {**before, **new} if before.get(name) != new.get(name)]


def regular_bytes(path: Path) -> bytes:
    """The content of a file."""
    _require_regular(path)
    return path.read_bytes()


def _require_regular(path: Path) -> None:
    """Refuses what would never end or never begin, such as a device or a named pipe."""
    if not path.is_dir() and not stat.S_ISREG(os.stat(path).st_mode):
        raise InputError(
            expected=f"a regular file at '{path}'", found="a device or a pipe", fix="copy its content into a file"
        )


def append_json_line(path: Path, value: Any) -> None:
    """Appends `value` as one line of JSON."""
    with open(path, "ab") as file:
        file.write(json.dumps(value, ensure_ascii=False).encode("utf-8") + b"\n")


def read_json_lines(path: Path) -> list[Any]:
    """The values of a JSON Lines file; a last line that a crash cut off is skipped."""
    lines = path.read_bytes().split(b"\n")
    values = []
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            values.append(json.loads(line))
        except ValueError:
            if number == len(lines):
                break
            raise InputError(
                expected=f"JSON in line {number} of '{path}'", found=repr(line[:40]), fix="restore the file"
            ) from None
    return values


def misfit(value: Any, shape: Any, name: str = "") -> str:
    """The first difference between a JSON value and a shape, in words; "" if there is none.

    Args:
        shape: a type; a list with the shape of each element; or a dictionary of keys with the shapes of their values.
            A key that ends in "?" may be absent, and the key "*" stands for every key that is not named.
        name: where the value is in its file, for the message.

    >>> shape = {"rows": int, "shards": [{"file": str}], "note?": str}
    >>> misfit({"rows": 3, "shards": [{"file": "a"}], "more": 1}, shape)
    ''
    >>> misfit({"rows": 3, "shards": [{}]}, shape), misfit({"rows": "3", "shards": []}, shape)
    ('no shards.0.file', 'rows = "3"')
    """
    kind: Any = type(shape) if isinstance(shape, dict | list) else float | int if shape is float else shape
    if not isinstance(value, kind) or (isinstance(value, bool) and shape is not bool):
        return f"{name or 'the content'} = {json.dumps(value)[:60]}"
    if isinstance(shape, list):
        parts = [(str(number), element, shape[0]) for number, element in enumerate(value)]
    elif isinstance(shape, dict):
        known = {key.removesuffix("?"): inner for key, inner in shape.items() if key != "*"}
        if absent := [key for key in shape if key != "*" and not key.endswith("?") and key not in value]:
            return f"no {name}{'.' if name else ''}{absent[0]}"
        others = {key: shape["*"] for key in value if key not in known} if "*" in shape else {}
        parts = [(key, value[key], inner) for key, inner in {**known, **others}.items() if key in value]
    else:
        return ""
    misfits = (misfit(element, inner, f"{name}{'.' if name else ''}{key}") for key, element, inner in parts)
    return next(filter(None, misfits), "")


def require_format(record: Mapping[str, Any], path: Path, key: str = "format") -> None:
    """Refuses a file of this package that was written in another format than `FORMAT`.

    Args:
        record: the content of the file, or its metadata; without a number it is read as format 1.
    """
    number = str(record.get(key, FORMAT))
    if number != str(FORMAT):
        raise InputError(
            expected=f"format version {FORMAT} in '{path}'",
            found=f"version {number}",
            fix="read it with the version of bertsmith that wrote it",
        )


def digest_bytes(data: bytes) -> str:
    """`sha256:` followed by the hexadecimal SHA-256 of `data`."""
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def digest_file(path: Path) -> str:
    """`sha256:` followed by the hexadecimal SHA-256 of a file, which is read in chunks."""
    with open(path, "rb") as file:
        return f"sha256:{hashlib.file_digest(file, 'sha256').hexdigest()}"


FileState = tuple[int, int, int] | None


def file_state(path: Path) -> FileState:
    """The size of a file in bytes, its time of modification in nanoseconds and its inode; None if it is not there.

    The inode tells a file from another of the same size that replaces it at once: clocks of file systems are coarse.
    """
    try:
        state = path.stat()
    except OSError:
        return None
    return state.st_size, state.st_mtime_ns, state.st_ino


def sibling(path: Path, ending: str = "") -> Path:
    """A temporary name in the folder of a path, of this process, which marks what is unfinished."""
    return path.with_name(f".{path.name}.{os.getpid()}{ending}{PARTIAL_SUFFIX}")


def require_replaceable(path: Path, replace: FolderKind | bool) -> None:
    """Checks that a folder can be written at a path; see `atomic_folder`."""
    if not os.path.lexists(path):
        return
    if path.is_symlink() or not path.is_dir():
        raise InputError(
            expected=f"a folder or nothing at '{path}'",
            found="a link" if path.is_symlink() else "a file",
            fix="choose another folder",
        )
    if not replace:
        raise InputError(
            expected=f"no folder at '{path}'", found="one that exists", fix="choose another folder, or add --replace"
        )
    if isinstance(replace, FolderKind) and not replace.fits(path):
        marks = " or ".join(" with ".join(patterns) for patterns in replace.marks)
        raise InputError(
            expected=f"{replace.name} at '{path}', since nothing else is replaced",
            found=f"a folder without {marks}",
            fix="choose another folder, or remove this one yourself",
        )


def _exchange(path: Path, partial: Path, aside: Path) -> None:
    """Swaps `path` and `partial`; on failure both stay as they are."""
    os.rename(path, aside)
    try:
        os.rename(partial, path)
    finally:
        if not os.path.lexists(path):
            os.rename(aside, path)
    _sync_folder(path.parent)
    # Under this name it is deleted and no longer restored.
    os.rename(aside, partial)


@contextlib.contextmanager
def _errors_that_name(path: Path, partial: Path) -> Iterator[None]:
    """Makes OS errors name `path`, which the user knows, instead of `partial`."""
    try:
        yield
    except OSError as error:
        named = str(error.filename or "")
        if named == str(partial) or named.startswith(f"{partial}{os.sep}"):
            error.filename, error.filename2 = str(path) + named[len(str(partial)) :], None
        raise


def _remove_leftovers(path: Path) -> None:
    """Removes what dead processes left next to `path`, or restores what they had moved aside."""
    for leftover in list(path.parent.iterdir()):
        match = _LEFTOVER.fullmatch(leftover.name)
        if match and match["name"] == path.name and not _is_running(int(match["pid"])):
            _clear(leftover, path, is_old=bool(match["old"]))


def _clear(leftover: Path, path: Path, *, is_old: bool) -> None:
    if is_old and not os.path.lexists(path):
        os.rename(leftover, path)
    elif leftover.is_dir() and not leftover.is_symlink():
        shutil.rmtree(leftover, ignore_errors=True)
    else:
        leftover.unlink(missing_ok=True)


def _is_running(process: int) -> bool:
    """True if another process on this machine has this id, or if that cannot be determined."""
    if process == os.getpid():
        return False
    if os.name != "posix":
        return True  # on Windows, os.kill would terminate the process
    try:
        os.kill(process, 0)
    except OSError as error:
        return not isinstance(error, ProcessLookupError)
    return True


def sync_file(path: Path) -> None:
    """Makes the system write a file to its disk, so that it survives a power cut."""
    with open(path, "rb" if os.name == "posix" else "r+b") as file:  # Windows syncs only what may be written
        os.fsync(file.fileno())


def _sync_folder(path: Path) -> None:
    if os.name == "posix":
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
