"""Outputs at addresses such as `s3://bucket/corpus`.

An output is first made on a local disk and then uploaded, its last file (the manifest) only when all others are
complete: a reader never takes half of it for the whole.
"""

import contextlib
import hashlib
import secrets
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from bertsmith.base.core.errors import BertsmithError, InputError, RunError
from bertsmith.base.storage.addresses import address_of, lacks_name, name_of, scheme_of
from bertsmith.base.storage.remote import errors_in_words, file_system

_WITH_FOLDERS = ("hdfs", "file")


@contextlib.contextmanager
def staged(out: Path, *, last: str = "", replace: bool = False, inputs: Iterable[Path | str] = ()) -> Iterator[Path]:
    """Yields the local path at which to make an output: `out` itself, or one whose content is uploaded to an address.

    What is made for an address `.../NAME` is in the folder `NAME.DIGEST.staged` in the current folder, with a digest of
    the address: NAME itself, and the files next to it. The folder is deleted after the upload, and kept if the block or
    the upload fails. What a failed upload left at the address is replaced by the next one.

    Args:
        last: for a folder, the file in it that says that it is complete.
    """
    address = address_of(out)
    if address is None:
        yield out
        return
    address = address.rstrip("/")
    if lacks_name(address):
        raise InputError(
            expected=f"an address with a name after the bucket, {scheme_of(address)}://BUCKET/NAME",
            found=f"'{address}'",
            fix="add the name of the output",
        )
    for source in inputs:
        if f"{address_of(source) or ''}/".startswith(f"{address}/"):
            raise InputError(
                expected=f"an output apart from the input '{source}'",
                found=f"'{address}'",
                fix="choose another address",
            )
    staged_path = _staging(address)
    is_partial = is_staged(out, last)
    _require_place(address, last, replace=replace, is_partial=is_partial)
    yield staged_path
    try:
        if last:
            _upload_folder(staged_path, address, last, is_partial=is_partial)
        else:
            names = sorted(staged_path.parent.glob("[!.]*"))
            made = [path for path in names if path.is_file() and ".partial" not in path.name]
            for file in [*(path for path in made if path != staged_path), staged_path]:
                _upload(file, f"{address.rsplit('/', 1)[0]}/{file.name}")
    except BertsmithError as error:
        raise RunError(
            expected=error.expected,
            found=error.found,
            fix=f"{error.fix}; the complete output is kept in '{staged_path}'",
        ) from None
    shutil.rmtree(staged_path.parent)


def is_staged(out: Path, last: str = "") -> bool:
    """Whether a file or a folder for an address is complete on a local disk, because its upload failed."""
    address = address_of(out)
    return address is not None and (_staging(address.rstrip("/")) / last).is_file()


def _staging(address: str) -> Path:
    name = name_of(address)
    # Outputs of the same name at other addresses, and folders of the user, have other names.
    return Path(f"{name}.{hashlib.sha256(address.encode('utf-8', 'surrogatepass')).hexdigest()[:12]}.staged") / name


def _require_place(address: str, last: str, *, replace: bool, is_partial: bool) -> None:
    """Refuses an address that is taken, or that cannot be written, before any work is done."""
    with errors_in_words(address, "write"):
        system, path = file_system(address)
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
        # Permission may be limited to names that begin with the output's.
        probe = f"{path}{'/' if last else '.'}{secrets.token_hex(8)}.probe"
        _make_folder(system, probe.rsplit("/", 1)[0], address)
        system.pipe_file(probe, b"")
        system.rm_file(probe)


def _upload_folder(folder: Path, address: str, last: str, *, is_partial: bool) -> None:
    """Uploads a folder, its file `last` at the end; what is replaced loses that file first."""
    files = sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())
    with errors_in_words(address, "write"):
        system, path = file_system(address)
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
    with errors_in_words(address, "write"):
        system, path = file_system(address)
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
    has_folders = scheme_of(address) in _WITH_FOLDERS
    if has_folders:
        system.makedirs(path, exist_ok=True)
    return has_folders
