"""Locks on what a command writes over time, so that two processes never write the same run folder or growing file.

A lock is `flock` on a small file, `.lock` in a folder or `.NAME.lock` next to a file, which contains the id of the
process. The system releases it when the process ends, however it ends, so a lock file left behind by a killed process
blocks no one. Where there is no `flock` (Windows, some network disks), a warning says that nothing is locked.
"""

import contextlib
import os
import re
import socket
from collections.abc import Iterator
from pathlib import Path

from bertsmith.errors import RunError
from bertsmith.progress import warn

try:
    import fcntl
except ImportError:  # not POSIX
    fcntl = None  # type: ignore[assignment]

LOCK_FILE = ".lock"
# A lock, or what an interrupted atomic write left: see `files`.
_TRACE = re.compile(r"\.lock|\..+\.\d{1,9}\.partial", re.DOTALL)


def is_unused(folder: Path) -> bool:
    """True if a folder contains nothing but locks and the partial files of interrupted writes."""
    return all(_TRACE.fullmatch(entry.name) for entry in folder.iterdir())


@contextlib.contextmanager
def locked_folder(path: Path, *, create: bool = True) -> Iterator[None]:
    """Holds the lock of a folder during the block; a folder that is made for it and stays empty is removed again.

    Args:
        create: make the folder if it does not exist. Otherwise nothing is locked, and the caller refuses it.

    Raises:
        RunError: another process holds the lock, or `path` is a file or cannot be written.
    """
    if path.exists() and not path.is_dir():
        raise RunError(expected="a folder for the run", found=f"the file '{path}'", fix="name another folder")
    if not path.exists() and not create:
        yield
        return
    is_new = not path.exists()
    try:
        path.mkdir(parents=True, exist_ok=True)
        with _lock(path / LOCK_FILE, path):
            yield
    finally:
        if is_new:
            with contextlib.suppress(OSError):  # it is in use
                path.rmdir()


@contextlib.contextmanager
def locked_file(path: Path) -> Iterator[None]:
    """Holds the lock of a file that grows, or is about to be written, during the block.

    Raises:
        RunError: another process holds the lock.
    """
    place = Path(os.path.realpath(path))
    place.parent.mkdir(parents=True, exist_ok=True)
    with _lock(place.with_name(f".{place.name}.lock"), path):
        yield


@contextlib.contextmanager
def _lock(lock: Path, path: Path) -> Iterator[None]:
    try:
        descriptor = _acquire(lock, path)
    except OSError as error:
        raise RunError(
            expected=f"a writable folder '{lock.parent}'",
            found=error.strerror or str(error),
            fix="free some space or name another folder",
        ) from None
    try:
        yield
    finally:
        # Removed while it is still held: whoever opened it meanwhile notices that it is gone, and opens a new one.
        if _is_open(descriptor, lock):
            lock.unlink(missing_ok=True)
        os.close(descriptor)


def _acquire(lock: Path, path: Path) -> int:
    """The descriptor of the lock file, locked and with the id of this process in it."""
    while True:
        descriptor = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            _flock(descriptor, path)
            if _is_open(descriptor, lock):
                os.ftruncate(descriptor, 0)
                os.pwrite(descriptor, f"{os.getpid()} {socket.gethostname()}\n".encode(), 0)
                return descriptor
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)


def _flock(descriptor: int, path: Path) -> None:
    """Locks the open file, or warns that this is not possible here.

    Raises:
        RunError: another process holds it.
    """
    reason = "this system has no flock"
    if fcntl is not None:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(descriptor, 300, 0).decode(errors="replace").split()
            process = f"process {holder[0]}" if holder else "another one"
            if holder[1:] and holder[1] != socket.gethostname():
                process += f" on {holder[1]}"
            raise RunError(
                expected=f"no other process that writes '{path}'",
                found=process,
                fix="wait until it ends, or name another output",
            ) from None
        except OSError as error:
            reason = error.strerror or str(error)
        else:
            return
    warn(f"'{path}' is not locked ({reason}); do not let a second process write it")


def _is_open(descriptor: int, lock: Path) -> bool:
    """Whether the path still names the open file."""
    with contextlib.suppress(FileNotFoundError):
        return os.path.samestat(os.fstat(descriptor), os.stat(lock))
    return False
