"""Arrays in .npy files: those that several threads read at once, and those that are filled in any order."""

import threading
from pathlib import Path
from typing import IO, Any, Literal

import numpy as np
import numpy.typing as npt

# NumPy parses the header as Python, and in Python 3.11 two threads that do so at once may get a SystemError.
_parsing = threading.Lock()


def load_array(path: str | Path, mode: Literal["r", "r+"] | None = "r") -> npt.NDArray[Any]:
    """The array of a .npy file, memory-mapped.

    Args:
        mode: "r+" to write to it as well; None to read all of it into memory.

    Raises:
        OSError, ValueError, EOFError: the file is missing or damaged.
    """
    with _parsing:
        array: npt.NDArray[Any] = np.load(path, mmap_mode=mode, allow_pickle=False)
    return array


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
