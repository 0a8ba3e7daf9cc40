"""Files that are whole or not there: atomic writes, JSON, digests.

A file is written beside its final place, flushed to the disk, then renamed over it. A crash or a full disk
leaves the previous file as it was. What a killed process left beside a place goes when that place is written again.
"""

import contextlib
import dataclasses
import hashlib
import json
import os
import re
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO, Any

from bertsmith.errors import CheckpointError, InputError

PARTIAL_SUFFIX = ".partial"
_POINTER = b"version https://git-lfs.github.com/"
# .NAME.PID.partial is being written; .NAME.PID.old.partial is what it replaces, until it is in its place.
_LEFTOVER = re.compile(r"\.(?P<name>.+)\.(?P<pid>\d{1,9})(?P<old>\.old)?\.partial", re.DOTALL)


@dataclasses.dataclass(frozen=True)
class FolderKind:
    """A kind of folder that may be replaced, and how it is known.

    Attributes:
        name: what to call it in errors, with its article.
        marks: sets of glob patterns; a folder is of this kind if it holds a file for every pattern of one set.
    """

    name: str
    marks: tuple[tuple[str, ...], ...]

    def fits(self, folder: Path) -> bool:
        """True if `folder` is of this kind, or empty."""
        if not any(folder.iterdir()):
            return True
        return any(all(any(folder.glob(pattern)) for pattern in patterns) for patterns in self.marks)


@contextlib.contextmanager
def atomic_file(path: Path) -> Iterator[IO[bytes]]:
    """Yields a binary file that becomes `path` when the block ends without an error.

    Raises:
        OSError: the disk is full or the folder cannot be written; `path` is as it was before.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    _remove_leftovers(path)
    partial = _beside(path)
    try:
        with _errors_that_name(path, partial):
            with open(partial, "wb") as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            os.replace(partial, path)
            _sync_folder(path.parent)
    finally:
        partial.unlink(missing_ok=True)


@contextlib.contextmanager
def atomic_folder(path: Path, *, replace: FolderKind | bool = False) -> Iterator[Path]:
    """Yields an empty folder that becomes `path` when the block ends without an error.

    Args:
        path: the final place. It must not exist, unless `replace` is given.
        replace: the kind of folder that the new one may take the place of. True is for places that only this package
            writes to, such as the inside of a run. The old folder is moved aside first and deleted at the end.

    Raises:
        InputError: there is something at `path` that may not be replaced.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    _remove_leftovers(path)
    _require_place(path, replace)
    partial, aside = _beside(path), _beside(path, ".old")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir()
    try:
        with _errors_that_name(path, partial):
            yield partial
            for entry in partial.rglob("*"):
                if entry.is_dir():
                    _sync_folder(entry)
                else:
                    _sync_file(entry)
            _sync_folder(partial)
            # Much time may have passed.
            _require_place(path, replace)
            if path.exists():
                _exchange(path, partial, aside)
            else:
                os.rename(partial, path)
            _sync_folder(path.parent)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def remove_partials(folder: Path) -> None:
    """Removes what interrupted writes left in `folder`, and puts back what they were about to replace."""
    for leftover in list(folder.iterdir()) if folder.is_dir() else ():
        if match := _LEFTOVER.fullmatch(leftover.name):
            _clear(leftover, folder / match["name"], is_old=bool(match["old"]))


def require_file(path: Path, what: str) -> None:
    """Returns if `path` is a file with content of its own.

    Raises:
        InputError: it is missing, is no file, is empty, or cannot be read.
        CheckpointError: it is the pointer that git-lfs leaves in place of a large file.
    """
    try:
        with open(path, "rb") as file:
            start = file.read(len(_POINTER))
    except OSError as error:
        raise InputError(
            expected=f"{what} at '{path}'", found=str(error.strerror).lower(), fix="check the path and its rights"
        ) from None
    if not start:
        raise InputError(expected=f"{what} at '{path}'", found="an empty file", fix="download or copy it again")
    if start == _POINTER:
        raise CheckpointError(
            expected=f"{what} at '{path}'",
            found="a git-lfs pointer, which only names the file",
            fix="fetch it with `git lfs pull`, or download the file itself",
        )


def require_file_place(path: Path) -> None:
    """Refuses a place where no file can be written, before work is spent on its content.

    Raises:
        InputError: there is a folder or a device at `path`, or the folder that it is in cannot be written to.
    """
    if path.exists() and not path.is_file():
        found = "a folder" if path.is_dir() else "something that is no regular file"
        raise InputError(expected=f"a place for a file at '{path}'", found=found, fix="name another one")
    above = next(parent for parent in path.absolute().parents if os.path.lexists(parent))
    if not above.is_dir() or not os.access(above, os.W_OK | os.X_OK):
        found = "a folder that is write-protected" if above.is_dir() else "a file"
        raise InputError(
            expected=f"a folder to write '{path}' to", found=f"{found} at '{above}'", fix="name another place"
        )


def require_outside(out: Path, inputs: Iterable[Path | str], *, fix: str = "name another folder") -> None:
    """Refuses an output that is one of the inputs or holds one, which replacing it would destroy.

    Raises:
        InputError: the message names the input.
    """
    place = out.resolve()
    for one in inputs:
        if Path(one).resolve().is_relative_to(place):
            raise InputError(expected=f"an output apart from the input '{one}'", found=f"'{out}'", fix=fix)


def write_text(path: Path, text: str) -> None:
    """Writes `text` as UTF-8, atomically."""
    with atomic_file(path) as file:
        file.write(text.encode("utf-8"))


def write_json(path: Path, value: Any) -> None:
    """Writes `value` as indented JSON, atomically."""
    write_text(path, json.dumps(value, indent=2, ensure_ascii=False) + "\n")


def read_json(path: Path) -> Any:
    """The value of a JSON file.

    Raises:
        InputError: the file is missing, unreadable or not JSON.
    """
    try:
        return json.loads(path.read_bytes().decode("utf-8"))
    except FileNotFoundError:
        raise InputError(expected=f"a JSON file at '{path}'", found="no such file", fix="check the path") from None
    except OSError as error:
        raise InputError(
            expected=f"a readable file at '{path}'", found=str(error.strerror), fix="check the path and its rights"
        ) from None
    except (ValueError, RecursionError) as error:
        raise InputError(
            expected=f"JSON in '{path}'", found=f"something else ({error})", fix="restore the file"
        ) from None


def append_json_line(path: Path, value: Any) -> None:
    """Appends `value` as one line of JSON."""
    with open(path, "ab") as file:
        file.write(json.dumps(value, ensure_ascii=False).encode("utf-8") + b"\n")


def read_json_lines(path: Path) -> list[Any]:
    """The values of a JSON-lines file; a last line that was cut off by a crash is left out."""
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


def digest_bytes(data: bytes) -> str:
    """`sha256:` and the hexadecimal SHA-256 of `data`."""
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def digest_file(path: Path) -> str:
    """`sha256:` and the hexadecimal SHA-256 of a file, read in pieces."""
    with open(path, "rb") as file:
        return f"sha256:{hashlib.file_digest(file, 'sha256').hexdigest()}"


def _beside(path: Path, ending: str = "") -> Path:
    return path.with_name(f".{path.name}.{os.getpid()}{ending}{PARTIAL_SUFFIX}")


def _require_place(path: Path, replace: FolderKind | bool) -> None:
    """Refuses a place that is taken by something other than what may be replaced."""
    if not os.path.lexists(path):
        return
    if path.is_symlink() or not path.is_dir():
        raise InputError(
            expected=f"a place for a folder at '{path}'",
            found="a link" if path.is_symlink() else "a file",
            fix="name another folder",
        )
    if not replace:
        raise InputError(
            expected=f"no folder at '{path}'", found="one that exists", fix="name another folder or remove this one"
        )
    if isinstance(replace, FolderKind) and not replace.fits(path):
        marks = " or ".join(" with ".join(patterns) for patterns in replace.marks)
        raise InputError(
            expected=f"{replace.name} at '{path}', as nothing else is replaced",
            found=f"a folder without {marks}",
            fix="name another folder, or remove this one yourself",
        )


def _exchange(path: Path, partial: Path, aside: Path) -> None:
    """Puts `partial` in the place of `path`, and what was there in the place of `partial`; or leaves both."""
    os.rename(path, aside)
    try:
        os.rename(partial, path)
    finally:
        if not os.path.lexists(path):
            os.rename(aside, path)
    _sync_folder(path.parent)
    # Under this name it is no longer what would be put back.
    os.rename(aside, partial)


@contextlib.contextmanager
def _errors_that_name(path: Path, partial: Path) -> Iterator[None]:
    """Lets errors of the system name the place that the user knows, and not the one beside it."""
    try:
        yield
    except OSError as error:
        named = str(error.filename or "")
        if named == str(partial) or named.startswith(f"{partial}{os.sep}"):
            error.filename, error.filename2 = str(path) + named[len(str(partial)) :], None
        raise


def _remove_leftovers(path: Path) -> None:
    """Removes what processes that are no more left beside `path` while they wrote it, or puts back what was there."""
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
    """True if there is such a process on this machine, other than this one, or if nobody can say."""
    if process == os.getpid():
        return False
    if os.name != "posix":
        return True  # there this call would end the process
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True


def _sync_file(path: Path) -> None:
    with open(path, "rb") as file:
        os.fsync(file.fileno())


def _sync_folder(path: Path) -> None:
    if os.name == "posix":
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
