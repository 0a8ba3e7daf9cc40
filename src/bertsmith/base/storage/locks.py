"""Locks on run folders and growing files, so that two processes never write the same one.

A lock is `flock` on a small file, `.lock` in a folder or `.NAME.lock` next to a file, which contains the id of the
process. The system releases it when the process ends, however it ends, so a lock file left behind by a killed process
blocks no one. Where there is no `flock` (Windows, some network disks), a warning says that nothing is locked.
"""

import contextlib
import os
import re
import socket
import stat
from collections.abc import Collection, Iterator
from pathlib import Path

from bertsmith.base.core.errors import RunError
from bertsmith.base.core.progress import warn
from bertsmith.base.storage.files import require_local

try:
    import fcntl
except ImportError:  # not POSIX
    fcntl = None  # type: ignore[assignment]

LOCK_FILE = ".lock"
# A lock, or what an interrupted atomic write left: see `files`.
_TRACE = re.compile(r"\.lock|\..+\.\d{1,9}\.partial", re.DOTALL)
# What a run leaves in its folder before it has a result: its settings or those of a seed, text to continue on, the
# teacher's logits, folds.
_OF_A_RUN = ("settings.json", "*/settings.json", "continued/*", "teacher/*", "folds/*")
_HOLDER = re.compile(rb"([0-9]+) (\S*)\n")  # what a lock contains: process and host
# A link is not followed, and a named pipe does not block. Windows, which has neither flag, opens no lock.
_OPEN = os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)


def is_unused(folder: Path, besides: Collection[str] = ()) -> bool:
    """True if a folder contains nothing but locks and the partial files of interrupted writes."""
    return all(entry.name in besides or _TRACE.fullmatch(entry.name) for entry in folder.iterdir())


def require_no_file(path: Path) -> None:
    """Checks that no file is in the place of a run folder."""
    require_local(path, "a run folder")
    if path.exists() and not path.is_dir():
        raise RunError(expected="a folder for the run", found=f"the file '{path}'", fix="name another folder")


def require_unused(folder: Path, fix: str, besides: Collection[str] = ()) -> None:
    """Refuses a folder with files in it, for a command that writes a new one."""
    if folder.is_dir() and not is_unused(folder, besides):
        raise RunError(expected=f"a new folder '{folder}'", found="one that is not empty", fix=fix)


def require_new_run(folder: Path, besides: Collection[str] = ()) -> None:
    """Refuses a file, or a folder with files in it, for a new run, and says to resume only what is a run."""
    require_no_file(folder)
    if folder.is_dir() and not is_unused(folder, besides):
        is_run = any(next(folder.glob(trace), None) for trace in _OF_A_RUN)
        raise RunError(
            expected=f"a new folder '{folder}'",
            found="a run" if (folder / _OF_A_RUN[0]).exists() else "a folder that is not empty",
            fix=f"{'resume it with --resume or ' if is_run else ''}name another folder",
        )


def require_new_or_started(
    folder: Path, *, resume: bool, parts: Collection[str] = ("",), besides: Collection[str] = ()
) -> None:
    """Checks that a resumed run has been started before, and that any other is new.

    Args:
        parts: entries of which the folder of a started run has one; by default the folder is enough.
    """
    if not resume:
        require_new_run(folder, besides)
    elif not any((folder / part).exists() for part in parts):
        raise RunError(
            expected=f"a run in '{folder}'",
            found=f"no {next(iter(parts)) or 'such folder'}",
            fix="check the path, or leave out --resume if the run was stopped before it began",
        )


@contextlib.contextmanager
def locked_folder(path: Path, *, create: bool = True) -> Iterator[None]:
    """Holds the lock of a folder during the block, and removes a folder that is empty at the end and was not before.

    So a folder that is made for the lock and stays empty is removed, and so is the folder of a run that the block
    discarded; an empty folder of the user is kept.

    Args:
        create: make the folder if it does not exist. Otherwise nothing is locked, and the caller refuses it.
    """
    require_no_file(path)
    if not path.exists() and not create:
        yield
        return
    is_kept = path.exists()
    try:
        path.mkdir(parents=True, exist_ok=True)
        with _lock(path / LOCK_FILE, path):
            is_kept = is_kept and is_unused(path)
            yield
    finally:
        if not is_kept:
            with contextlib.suppress(OSError):  # it is not empty, or in use
                path.rmdir()


@contextlib.contextmanager
def locked_file(path: Path, *, wait: bool = False) -> Iterator[None]:
    """Holds the lock of a file that grows, or is about to be written, during the block."""
    require_local(path)
    target = Path(os.path.realpath(path))
    target.parent.mkdir(parents=True, exist_ok=True)
    with _lock(target.with_name(f".{target.name}.lock"), path, wait=wait):
        yield


@contextlib.contextmanager
def _lock(lock: Path, path: Path, *, wait: bool = False) -> Iterator[None]:
    if not _has_flock():
        _warn_of_no_lock(path, "this system has no flock")
        yield
        return
    try:
        descriptor = _acquire(lock, path, wait=wait)
    except OSError as error:
        raise RunError(
            expected=f"a writable folder '{lock.parent}'",
            found=error.strerror or str(error),
            fix="free some space or name another folder",
        ) from None
    try:
        yield
    finally:
        # Removed while it is still held: a process that opened it in the meantime sees that it is gone and creates a
        # new one.
        if _is_open(descriptor, lock):
            lock.unlink(missing_ok=True)
        os.close(descriptor)


def _acquire(lock: Path, path: Path, *, wait: bool) -> int:
    """The descriptor of the lock file, locked and with the id of this process in it."""
    while True:
        descriptor = _open(lock)
        try:
            _require_ours(descriptor, lock)
            _flock(descriptor, path, wait=wait)
            if _is_open(descriptor, lock):
                os.ftruncate(descriptor, 0)
                os.pwrite(descriptor, f"{os.getpid()} {socket.gethostname()}\n".encode(), 0)
                return descriptor
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)


def _open(lock: Path) -> int:
    try:
        return os.open(lock, _OPEN, 0o644)
    except OSError:
        if os.path.lexists(lock):
            _require_regular(os.lstat(lock).st_mode, lock)
        raise


def _require_ours(descriptor: int, lock: Path) -> None:
    """Refuses what is not a lock, which would be overwritten and removed."""
    _require_regular(os.fstat(descriptor).st_mode, lock)
    content = os.pread(descriptor, 300, 0)
    if content and not _HOLDER.fullmatch(content):
        raise _foreign(lock, "a file of another program")


def _require_regular(mode: int, lock: Path) -> None:
    if not stat.S_ISREG(mode):
        kinds = {stat.S_IFLNK: "a link", stat.S_IFDIR: "a folder", stat.S_IFIFO: "a named pipe"}
        raise _foreign(lock, kinds.get(stat.S_IFMT(mode), "a special file"))


def _foreign(lock: Path, content: str) -> RunError:
    return RunError(
        expected=f"a lock of bertsmith or nothing at '{lock}'",
        found=content,
        fix="move it away, or name another output",
    )


def _has_flock() -> bool:
    return fcntl is not None


def _flock(descriptor: int, path: Path, *, wait: bool) -> None:
    """Locks the open file, or warns that this is not possible here."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except BlockingIOError:
        process = "another one"
        if holder := _HOLDER.fullmatch(os.pread(descriptor, 300, 0)):
            number, host = (part.decode(errors="replace") for part in holder.groups())
            process = f"process {number}" + (f" on {host}" if host not in ("", socket.gethostname()) else "")
        raise RunError(
            expected=f"no other process that writes '{path}'",
            found=process,
            fix="wait until it ends, or name another output",
        ) from None
    except OSError as error:
        _warn_of_no_lock(path, error.strerror or str(error))


def _warn_of_no_lock(path: Path, reason: str) -> None:
    warn(f"'{path}' is not locked ({reason}); do not let a second process write it")


def _is_open(descriptor: int, lock: Path) -> bool:
    with contextlib.suppress(FileNotFoundError):
        return os.path.samestat(os.fstat(descriptor), os.lstat(lock))
    return False
