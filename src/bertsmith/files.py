"""Files that are whole or not there: atomic writes, JSON, digests.

A file is written beside its final place, flushed to the disk, then renamed over it. A crash or a full disk
leaves the previous file as it was.
"""

import contextlib
import hashlib
import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from bertsmith.errors import InputError

PARTIAL_SUFFIX = ".partial"


@contextlib.contextmanager
def atomic_file(path: Path) -> Iterator[IO[bytes]]:
    """Yields a binary file that becomes `path` when the block ends without an error.

    Raises:
        OSError: the disk is full or the folder cannot be written; `path` is as it was before.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.{os.getpid()}{PARTIAL_SUFFIX}")
    try:
        with open(partial, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(partial, path)
        _sync_folder(path.parent)
    finally:
        partial.unlink(missing_ok=True)


@contextlib.contextmanager
def atomic_folder(path: Path, *, replace: bool = False) -> Iterator[Path]:
    """Yields an empty folder that becomes `path` when the block ends without an error.

    Args:
        path: the final place. It must not exist, unless `replace` is given.
        replace: move an existing folder aside first and delete it afterwards.

    Raises:
        InputError: `path` exists and `replace` is not given.
    """
    if path.exists() and not replace:
        raise InputError(
            expected=f"no folder at '{path}'",
            found="one that exists",
            fix="name another folder or remove this one",
        )
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.{os.getpid()}{PARTIAL_SUFFIX}")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir()
    try:
        yield partial
        for file in partial.rglob("*"):
            if file.is_file():
                _sync_file(file)
        if path.exists():
            aside = path.with_name(f".{path.name}.{os.getpid()}.old{PARTIAL_SUFFIX}")
            os.rename(path, aside)
            os.rename(partial, path)
            shutil.rmtree(aside)
        else:
            os.rename(partial, path)
        _sync_folder(path.parent)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def remove_partials(folder: Path) -> None:
    """Removes what interrupted writes left in `folder`."""
    for leftover in folder.glob(f".*{PARTIAL_SUFFIX}"):
        if leftover.is_dir():
            shutil.rmtree(leftover)
        else:
            leftover.unlink()


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
        raise InputError(
            expected=f"a JSON file at '{path}'", found="no such file", fix="check the path"
        ) from None
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
