"""Files and folders at addresses such as `s3://bucket/texts`, read with fsspec; `uploads` writes them.

Paths on local disks never go through this module.

Credentials and endpoints come from the packages that fsspec uses; for S3 the variables and files of AWS.
"""

import contextlib
import dataclasses
import importlib.util
import io
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

from bertsmith.base.core.errors import BertsmithError, ConfigError, InputError, RunError
from bertsmith.base.storage.addresses import lacks_host, lacks_name, scheme_of

_BUFFER = 2**20


@dataclasses.dataclass(frozen=True)
class Found:
    """A file at an address.

    Attributes:
        size: in bytes.
        version: what changes with its content, as the storage says; empty if it does not say.
        inside: its path in the folder that was asked for; empty if it was asked for itself.
    """

    address: str
    size: int
    version: str = ""
    inside: str = ""


def require_host(path: Path | str) -> None:
    """Refuses an address that names no host, but needs one."""
    if lacks_host(str(path)):
        raise ConfigError(
            expected="the host of an address, hdfs://HOST/...", found=f"'{path}'", fix="name the host of the name node"
        )


def find_files(address: str) -> tuple[list[Found], bool]:
    """(the files at an address, in the order of their names for a folder; whether it is a folder)."""
    with errors_in_words(address):
        system, path = file_system(address)
        system.invalidate_cache()
        scheme = scheme_of(address)
        if system.isfile(path):
            info = system.info(path)
            return [Found(address, int(info["size"]), _version(info))], False
        infos = system.find(path, detail=True)
        if not infos:
            # Listing nothing says nothing; asking for the place itself says why.
            system.ls(path)
            raise FileNotFoundError("nothing there")
        files = [
            Found(
                f"{scheme}://{name.removeprefix(f'{scheme}://')}",
                int(info["size"]),
                _version(info),
                name.removeprefix(path).strip("/"),
            )
            for name, info in infos.items()
        ]
        return sorted(files, key=lambda file: file.address), True


def _version(info: Mapping[str, Any]) -> str:
    """The digest or the time of a file, whichever a storage has."""
    names = ("ETag", "etag", "md5Hash", "mtime", "LastModified", "created")
    return next((f"{name} {info[name]}" for name in names if info.get(name)), "")


def open_address(address: str) -> IO[bytes]:
    """A file at an address, to be read; it can seek."""
    if lacks_name(address):
        raise InputError(
            expected=f"the address of a file, {scheme_of(address)}://BUCKET/NAME",
            found=f"'{address}'",
            fix="add the name of the file",
        )
    with errors_in_words(address):
        system, path = file_system(address)
        return io.BufferedReader(_RemoteFile(address, system.open(path, "rb")), _BUFFER)


def read_ranges(ranges: Sequence[tuple[str, int, int]]) -> list[bytes]:
    """The bytes of each range (address, begin, end), all of one storage; several are read at a time where it can."""
    first = ranges[0][0]
    with errors_in_words(first):
        system, _ = file_system(first)
        paths = [str(system._strip_protocol(address)) for address, _, _ in ranges]
        begins, ends = [begin for _, begin, _ in ranges], [end for _, _, end in ranges]
        contents = system.cat_ranges(paths, begins, ends, on_error="raise")
    for (address, begin, end), data in zip(ranges, contents, strict=True):
        if len(data) != end - begin:
            raise InputError(
                expected=f"{end:,} bytes at '{address}'", found=f"{begin + len(data):,}", fix="restore the file"
            )
    return [bytes(data) for data in contents]


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
        with errors_in_words(self._address):
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


def file_system(address: str) -> tuple[Any, str]:
    """(the file system of an address, the path in it)."""
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
    """The errors that file systems raise: the system's, and those of loaded packages."""
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
def errors_in_words(address: str, action: str = "read") -> Iterator[None]:
    """Turns what a file system raises into one line that names the address."""
    try:
        yield
    except _errors() as error:
        raise _error(address, action, error) from None


def _error(address: str, action: str, error: BaseException) -> BertsmithError:
    name, said = type(error).__name__, " ".join(str(error).split())[:200]
    if "Credential" in name or "credential" in said.lower() or "TokenRetrieval" in name:
        return RunError(
            expected=f"credentials for '{address}'",
            found="none" if "Unable to locate" in said or "NoCredentials" in name else said,
            fix="set them, for s3 AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or name a profile in AWS_PROFILE",
        )
    if isinstance(error, PermissionError):
        return InputError(
            expected=f"permission to {action} '{address}'",
            found=said or "access denied",
            fix="ask for it, or name another",
        )
    if isinstance(error, FileNotFoundError):
        reason = "no such bucket" if "bucket" in said.lower() else "nothing there"
        return InputError(expected=f"a file or folder at '{address}'", found=reason, fix="check the address")
    if isinstance(error, ConnectionError | TimeoutError) or "Connect" in name or "Timeout" in name:
        return RunError(
            expected=f"an answer from '{address}'", found=f"none ({said})", fix="check the address and the network"
        )
    return RunError(
        expected=f"to {action} '{address}'", found=f"{name}: {said}", fix="check the address and the storage"
    )
