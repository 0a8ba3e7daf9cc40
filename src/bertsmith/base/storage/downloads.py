"""Copies of files and folders at addresses, for what is read as a whole: vocabularies, models, labelled examples.

::

    CACHE/a3f0...-9c41.../NAME     digests of the address, and of the names, sizes and versions of the files there

A copy is complete or absent. What has changed at the address is another copy. The copies together are kept below a
limit: copies that were not used for the longest time go first. One that was used within the last hour stays, because
another process may be loading it.
"""

import contextlib
import hashlib
import json
import os
import shutil
import time
from pathlib import Path, PurePath

from bertsmith.base.core.errors import InputError, RunError
from bertsmith.base.core.progress import Progress
from bertsmith.base.storage.addresses import address_of, name_of
from bertsmith.base.storage.files import atomic_folder, sibling
from bertsmith.base.storage.locks import locked_file
from bertsmith.base.storage.remote import Found, find_files, open_address, require_host

CACHE = Path("~/.cache/bertsmith/copies")
CACHE_BYTES = 50 * 2**30
_LOADING_SECONDS = 3600  # a process has loaded a copy that long after it was asked for
_COPIED_BYTES = 2**22  # at a time


def local_copy(source: Path | str, *, cache: Path | None = None, limit: int = CACHE_BYTES) -> Path:
    """The local path of a copy of what is at an address, downloaded if there is none; a local path stays as it is."""
    require_host(source)
    address = address_of(source)
    if address is None:
        return Path(source)
    address = address.rstrip("/")
    files, _ = find_files(address)
    for name in (name_of(address), *(file.inside for file in files)):
        _require_inside(name, address)
    size = sum(file.size for file in files)
    if size > limit:
        raise InputError(
            expected=f"at most {limit:,} bytes at '{address}'",
            found=f"{size:,}",
            fix="copy it to this machine first",
        )
    cache = (cache or CACHE).expanduser()
    folder = cache / _key(address, files)
    copy = folder / name_of(address)
    with locked_file(folder, wait=True):
        if not _is_used_again(folder):
            _make_room(cache, limit - size)
            with atomic_folder(folder) as partial, Progress(f"downloading {copy.name}", size, "bytes") as progress:
                for file in files:
                    _download(file, partial / copy.name / file.inside, progress)
                os.utime(partial)  # used now, not when the download began
    return copy


def kept_copy(address: str, *, cache: Path | None = None) -> Path:
    """The path of the copy of what is at an address that was used last, without asking whether it has changed there."""
    address = address.rstrip("/")
    cache = (cache or CACHE).expanduser()
    copies = []
    for folder in cache.glob(f"{_digest(address)}-*"):
        with contextlib.suppress(FileNotFoundError):  # another process has deleted it
            copies.append((folder.stat().st_mtime, folder))
    for _, folder in sorted(copies, reverse=True):
        with locked_file(folder, wait=True):
            if _is_used_again(folder):
                return folder / name_of(address)
    raise InputError(
        expected=f"a copy of '{address}' in '{cache}'", found="none", fix="make it once with access to the address"
    )


def _require_inside(name: str, address: str) -> None:
    """Refuses the name of a file whose copy would be outside the cache; a storage accepts any name."""
    path = PurePath(name)
    if path.is_absolute() or ".." in path.parts:
        raise InputError(
            expected=f"names of files inside '{address}'",
            found=repr(name),
            fix="rename it there, or name another place",
        )


def _key(address: str, files: list[Found]) -> str:
    described = json.dumps([[file.address, file.size, file.version] for file in files])
    return f"{_digest(address)}-{_digest(described)}"


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def _is_used_again(folder: Path) -> bool:
    """Whether there is a copy, which then counts as just used."""
    try:
        os.utime(folder)
    except FileNotFoundError:
        return False
    return True


def _make_room(cache: Path, limit: int) -> None:
    """Deletes copies until they take at most `limit` bytes, the ones that were not used for the longest time first."""
    copies = []
    for path in cache.glob("[!.]*"):
        with contextlib.suppress(FileNotFoundError):  # another process has deleted it
            used = path.stat().st_mtime
            copies.append((used, path, sum(file.stat().st_size for file in path.rglob("*") if file.is_file())))
    left = sum(size for _, _, size in copies)
    before = time.time() - _LOADING_SECONDS
    for used, path, size in sorted(copies):
        if left > limit and used < before and _is_evicted(path, before):
            left -= size


def _is_evicted(folder: Path, before: float) -> bool:
    """Deletes a copy, unless another process is using it, or used it after a time in seconds since 1970."""
    aside = sibling(folder)
    try:
        with locked_file(folder):
            if folder.stat().st_mtime >= before:
                return False
            os.rename(folder, aside)  # a copy is complete or absent
    except (RunError, FileNotFoundError):
        return False
    shutil.rmtree(aside, ignore_errors=True)
    return True


def _download(file: Found, path: Path, progress: Progress) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with open_address(file.address) as source, open(path, "wb") as target:
        while data := source.read(_COPIED_BYTES):
            target.write(data)
            progress.advance(len(data))
    if path.stat().st_size != file.size:
        raise InputError(
            expected=f"{file.size:,} bytes at '{file.address}'",
            found=f"{path.stat().st_size:,}",
            fix="start again when nothing writes there",
        )
