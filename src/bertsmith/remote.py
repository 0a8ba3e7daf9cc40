"""Files and folders at addresses such as `s3://bucket/texts`, read and written with fsspec.

Paths on local disks never go through this module. An output is first made on a local disk and then uploaded, its last
file (the manifest) only when all others are complete: a reader never takes half of it for the whole.

Credentials and endpoints are those of the packages that fsspec uses; for S3 the variables and files of AWS.
"""

import contextlib
import dataclasses
import hashlib
import importlib.util
import io
import os
import re
import secrets
import shutil
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import IO, Any

from bertsmith.errors import BertsmithError, ConfigError, InputError, RunError

_WITH_FOLDERS = ("hdfs", "file")
SCHEMES = ("s3", "s3a", "gs", "gcs", "abfs", "az", "hdfs", "memory", "file")
# A path object has only one slash left of the two.
_ADDRESS = re.compile(rf"(?P<scheme>{'|'.join(SCHEMES)}):/+(?P<rest>.*)", re.DOTALL)
_BUFFER = 2**20


@dataclasses.dataclass(frozen=True)
class Found:
    """A file at an address, and its size in bytes."""

    address: str
    size: int


def address_of(path: Path | str) -> str | None:
    """The address that a path is; None if it is a path on a local disk.

    >>> address_of("s3://bucket/a.txt"), address_of(Path("s3://bucket/a.txt")), address_of("file:///tmp/a.txt")
    ('s3://bucket/a.txt', 's3://bucket/a.txt', 'file:///tmp/a.txt')
    >>> address_of("texts/a.txt")

    Raises:
        ConfigError: the address has no host, but needs one.
    """
    found = _ADDRESS.fullmatch(str(path))
    if found is None:
        return None
    if str(path).startswith("hdfs:///"):
        raise ConfigError(
            expected="the host of an address, hdfs://HOST/...", found=f"'{path}'", fix="name the host of the name node"
        )
    return f"{found['scheme']}://{'/' if found['scheme'] == 'file' else ''}{found['rest']}"


def find_files(address: str) -> tuple[list[Found], bool]:
    """(the files at an address, those of a folder in the order of their names; whether it is a folder).

    Raises:
        InputError: there is nothing at the address.
        RunError: it does not answer, or there are no credentials for it.
    """
    with _in_words(address):
        system, path = _system(address)
        system.invalidate_cache()
        scheme = address.partition("://")[0]
        if system.isfile(path):
            return [Found(address, int(system.size(path)))], False
        found = system.find(path, detail=True)
        if not found:
            # Listing nothing says nothing; asking for the place itself says why.
            system.ls(path)
            raise FileNotFoundError("nothing there")
        files = [(f"{scheme}://{name.removeprefix(f'{scheme}://')}", int(one["size"])) for name, one in found.items()]
        return [Found(*one) for one in sorted(files)], True


def open_any(name: str) -> IO[bytes]:
    """A file on a local disk or at an address, to be read.

    Raises:
        OSError: a file on a local disk cannot be opened.
        BertsmithError: as for `open_address`.
    """
    return open(name, "rb") if (address := address_of(name)) is None else open_address(address)


def open_address(address: str) -> IO[bytes]:
    """A file at an address, to be read; it can seek.

    Raises:
        InputError: there is no such file.
        RunError: the address does not answer, or there are no credentials for it; also while it is read.
    """
    with _in_words(address):
        system, path = _system(address)
        return io.BufferedReader(_RemoteFile(address, system.open(path, "rb")), _BUFFER)


def read_ranges(ranges: Sequence[tuple[str, int, int]]) -> list[bytes]:
    """The bytes of each range (address, begin, end), all of one storage; several are read at a time where it can.

    Raises:
        InputError: there is no such file, or it is shorter.
        RunError: the address does not answer, or there are no credentials for it.
    """
    first = ranges[0][0]
    with _in_words(first):
        system, _ = _system(first)
        paths = [str(system._strip_protocol(address)) for address, _, _ in ranges]
        begins, ends = [begin for _, begin, _ in ranges], [end for _, _, end in ranges]
        found = system.cat_ranges(paths, begins, ends, on_error="raise")
    for (address, begin, end), data in zip(ranges, found, strict=True):
        if len(data) != end - begin:
            raise InputError(
                expected=f"{end:,} bytes at '{address}'", found=f"{begin + len(data):,}", fix="restore the file"
            )
    return [bytes(data) for data in found]


@contextlib.contextmanager
def staged(out: Path, *, last: str = "", replace: bool = False, inputs: Iterable[Path | str] = ()) -> Iterator[Path]:
    """Yields the local path at which to make an output: `out` itself, or one whose content is uploaded to an address.

    What is made for an address `.../NAME` is in the folder `NAME.DIGEST.staged` in the current folder, with a digest of
    the address: NAME itself, and the files next to it. The folder is deleted after the upload, and kept if the block or
    the upload fails. What a failed upload left at the address is replaced by the next one.

    Args:
        last: for a folder, the file in it that says that it is complete.
        replace: what is at the address may be replaced.
        inputs: what is read; none of it may be inside a folder that is replaced.

    Raises:
        InputError: there is something at the address, or it cannot be written.
        RunError: the address does not answer, there are no credentials, or the upload fails.
    """
    address = address_of(out)
    if address is None:
        yield out
        return
    address = address.rstrip("/")
    for one in inputs:
        if f"{address_of(one) or ''}/".startswith(f"{address}/"):
            raise InputError(
                expected=f"an output apart from the input '{one}'", found=f"'{address}'", fix="choose another address"
            )
    place = _staging(address)
    is_partial = is_staged(out, last)
    _require_place(address, last, replace=replace, is_partial=is_partial)
    yield place
    try:
        if last:
            _upload_folder(place, address, last, is_partial=is_partial)
        else:
            made = [one for one in sorted(place.parent.iterdir()) if one.is_file() and not _is_temporary(one)]
            for file in [*(one for one in made if one != place), place]:
                _upload(file, f"{address.rsplit('/', 1)[0]}/{file.name}")
    except BertsmithError as error:
        raise RunError(
            expected=error.expected, found=error.found, fix=f"{error.fix}; the complete output is kept in '{place}'"
        ) from None
    shutil.rmtree(place.parent)


def is_staged(out: Path, last: str) -> bool:
    """Whether a folder for an address is complete on a local disk, because its upload failed.

    Args:
        last: the file in it that says that it is complete.
    """
    address = address_of(out)
    return address is not None and bool(last) and (_staging(address.rstrip("/")) / last).is_file()


def _staging(address: str) -> Path:
    name = address.rsplit("/", 1)[-1]
    # Outputs of the same name at other addresses, and folders of the user, have other names.
    return Path(f"{name}.{hashlib.sha256(address.encode('utf-8', 'surrogatepass')).hexdigest()[:12]}.staged") / name


def _is_temporary(path: Path) -> bool:
    return path.name.startswith(".") or ".partial" in path.name


def _require_place(address: str, last: str, *, replace: bool, is_partial: bool) -> None:
    """Refuses an address that is taken, or that cannot be written, before any work is done.

    Args:
        is_partial: other files there are those of an upload that failed.
    """
    with _in_words(address, "write"):
        system, path = _system(address)
        system.invalidate_cache()
        if system.exists(f"{path}/{last}" if last else path) and not replace:
            raise InputError(
                expected=f"nothing at '{address}'", found="an existing output", fix="choose another, or use --replace"
            )
        if (
            last
            and not is_partial
            and not system.exists(f"{path}/{last}")
            and system.exists(path)
            and system.find(path)
        ):
            raise InputError(
                expected=f"an empty place at '{address}', or an output with '{last}'",
                found="other files",
                fix="remove them, or choose another address",
            )
        # Permission may be limited to the names that begin with that of the output.
        probe = f"{path}{'/' if last else '.'}{secrets.token_hex(8)}.probe"
        _make_folder(system, probe.rsplit("/", 1)[0], address)
        system.pipe_file(probe, b"")
        system.rm_file(probe)


def _upload_folder(folder: Path, address: str, last: str, *, is_partial: bool) -> None:
    """Uploads a folder, its file `last` at the end; what is replaced loses that file first.

    Args:
        is_partial: as for `_require_place`; those files are removed.
    """
    files = sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())
    with _in_words(address, "write"):
        system, path = _system(address)
        is_replaced = system.exists(f"{path}/{last}")
        if is_replaced:
            system.rm_file(f"{path}/{last}")
        if (is_replaced or is_partial) and system.find(path):
            system.rm(path, recursive=True)
    for name in [*(name for name in files if name != last), last]:
        _upload(folder / name, f"{address}/{name}")


def _upload(file: Path, address: str) -> None:
    """Uploads a file; at the address it is complete or absent.

    Object stores show a file when it is complete. Elsewhere it is uploaded under another name first.
    """
    with _in_words(address, "write"):
        system, path = _system(address)
        if _make_folder(system, path.rsplit("/", 1)[0], address):
            system.put_file(str(file), f"{path}.partial")
            system.mv(f"{path}.partial", path)
        else:
            system.put_file(str(file), path)
        size = int(system.info(path)["size"])
    if size != file.stat().st_size:
        raise RunError(
            expected=f"{file.stat().st_size:,} bytes at '{address}'", found=f"{size:,}", fix="check the storage"
        )


def _make_folder(system: Any, path: str, address: str) -> bool:
    """Whether the file system of an address has folders; then this one is made. Object stores have none."""
    has_folders = address.partition("://")[0] in _WITH_FOLDERS
    if has_folders:
        system.makedirs(path, exist_ok=True)
    return has_folders


class _RemoteFile(io.RawIOBase):
    """A file at an address whose errors name the address."""

    def __init__(self, address: str, file: Any) -> None:
        super().__init__()
        self._address, self._file = address, file

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        with _in_words(self._address):
            data = self._file.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        return int(self._file.seek(offset, whence))

    def tell(self) -> int:
        return int(self._file.tell())

    def close(self) -> None:
        if not self.closed:
            self._file.close()
        super().close()


def _system(address: str) -> tuple[Any, str]:
    """(the file system of an address, the path in it).

    Raises:
        ConfigError: a package is missing.
    """
    if importlib.util.find_spec("fsspec") is None:
        raise ConfigError(
            expected=f"the package fsspec for '{address}'",
            found="none",
            fix="install it: pip install 'bertsmith[remote]'",
        )
    from fsspec.core import url_to_fs

    try:
        system, path = url_to_fs(address)
    except ImportError as error:
        raise ConfigError(
            expected=f"the package that reads '{address}'",
            found="none",
            fix=f"{str(error).splitlines()[0]}; for s3: pip install 'bertsmith[remote]'",
        ) from None
    return system, str(path)


def _errors() -> tuple[type[BaseException], ...]:
    """What file systems raise: errors of the system, and those of the packages that are loaded."""
    result: list[type[BaseException]] = [OSError, ValueError]
    for module, name in (
        ("botocore.exceptions", "BotoCoreError"),
        ("aiohttp", "ClientError"),
        ("gcsfs.retry", "HttpError"),
        ("google.auth.exceptions", "GoogleAuthError"),
        ("azure.core.exceptions", "AzureError"),
    ):
        if hasattr(sys.modules.get(module), name):
            result.append(getattr(sys.modules[module], name))
    return tuple(result)


@contextlib.contextmanager
def _in_words(address: str, what: str = "read") -> Iterator[None]:
    """Turns what a file system raises into one line that names the address."""
    try:
        yield
    except _errors() as error:
        raise _error(address, what, error) from None


def _error(address: str, what: str, error: BaseException) -> BertsmithError:
    name, said = type(error).__name__, " ".join(str(error).split())[:200]
    if "Credential" in name or "credential" in said.lower() or "TokenRetrieval" in name:
        return RunError(
            expected=f"credentials for '{address}'",
            found="none" if "Unable to locate" in said or "NoCredentials" in name else said,
            fix="set them, for s3 AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or name a profile in AWS_PROFILE",
        )
    if isinstance(error, PermissionError):
        return InputError(
            expected=f"permission to {what} '{address}'",
            found=said or "access denied",
            fix="ask for it, or name another",
        )
    if isinstance(error, FileNotFoundError):
        found = "no such bucket" if "bucket" in said.lower() else "nothing there"
        return InputError(expected=f"a file or folder at '{address}'", found=found, fix="check the address")
    if isinstance(error, ConnectionError | TimeoutError) or "Connect" in name or "Timeout" in name:
        return RunError(
            expected=f"an answer from '{address}'", found=f"none ({said})", fix="check the address and the network"
        )
    return RunError(expected=f"to {what} '{address}'", found=f"{name}: {said}", fix="check the address and the storage")
