"""Arrays in .npy files: those that several threads read at once, and those that are filled in any order."""

import contextlib
import os
import struct
import threading
import tokenize
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, Any, Literal

import numpy as np
import numpy.typing as npt

# NumPy parses the header as Python, and in Python 3.11 two threads that do so at once may get a SystemError.
_parsing = threading.Lock()
_NAME_LENGTH = 26  # where the header of an entry of a zip file has the length of its name


def load_array(path: str | Path, mode: Literal["r", "r+"] | None = "r") -> npt.NDArray[Any]:
    """The array of a .npy file, memory-mapped.

    Args:
        mode: "r+" to write to it as well; None to read all of it into memory.

    Raises:
        OSError, ValueError, EOFError: the file is missing or damaged.
    """
    with _header_is_parsed():
        array: npt.NDArray[Any] = np.load(path, mmap_mode=mode, allow_pickle=False)
    return array


@contextlib.contextmanager
def _header_is_parsed() -> Iterator[None]:
    """A context that one thread is in at a time, and in which a header that is no Python is a ValueError."""
    try:
        with _parsing:
            yield
    except (SyntaxError, tokenize.TokenError) as error:
        raise ValueError(f"a damaged header ({error})") from None


def mapped_arrays(path: Path, names: Sequence[str]) -> list[npt.NDArray[Any]]:
    """Arrays of a .npz file that is not compressed, memory-mapped.

    Raises:
        OSError, ValueError: the file is missing or damaged, or has other arrays.
    """
    arrays: list[npt.NDArray[Any]] = []
    try:
        with zipfile.ZipFile(path) as archive, open(path, "rb") as file:
            for name in names:
                entry = archive.getinfo(f"{name}.npy")
                if entry.compress_type != zipfile.ZIP_STORED:
                    raise ValueError(f"{name} is compressed")
                file.seek(entry.header_offset + _NAME_LENGTH)
                lengths = struct.unpack("<HH", file.read(4))  # of the name and of more about the entry, which follow
                file.seek(sum(lengths), os.SEEK_CUR)
                with _header_is_parsed():
                    np.lib.format.read_magic(file)
                    shape, _, dtype = np.lib.format.read_array_header_1_0(file)
                if dtype.hasobject:
                    raise ValueError(f"{name} has Python objects")
                if not np.prod(shape):
                    arrays.append(np.empty(shape, dtype))
                    continue
                arrays.append(np.memmap(path, dtype, "r", file.tell(), shape))
    except (KeyError, struct.error, zipfile.BadZipFile) as error:
        raise ValueError(str(error)) from None
    return arrays


def allocated_array(file: IO[bytes], dtype: np.dtype[Any], count: int) -> np.memmap[Any, Any]:
    """A memory-mapped array to be filled, whose .npy file is on the disk as a whole.

    To write to a mapped hole on a full disk would end the process.

    Args:
        file: empty, and open for writing.
        count: of numbers.
    """
    header = {"descr": dtype.str, "fortran_order": False, "shape": (count,)}
    np.lib.format.write_array_header_1_0(file, header)
    left = count * dtype.itemsize
    while left:
        left -= file.write(bytes(min(left, 2**24)))
    file.flush()
    array = load_array(file.name, "r+")
    assert isinstance(array, np.memmap), "mapped"
    return array
