"""TensorFlow's V2 checkpoint format ("tensor bundle"), read and written without TensorFlow.

`PREFIX.index` is a sorted table from variable name to dtype, shape, shard, offset, size and checksum; the values are in
`PREFIX.data-00000-of-00001`, or in several shards. The files are not trusted: every count, length, offset and shape is
checked against the others and against the files before memory is allocated, and every tensor against its checksum.

Source: tensor_bundle.proto, tensor_shape.proto and tensor_bundle.cc of TensorFlow (core/protobuf, core/util).
"""

import dataclasses
import math
import os
import struct
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from bertsmith.base.core.errors import CheckpointError, InputError
from bertsmith.base.storage.files import atomic_file, require_file
from bertsmith.models.tensorflow_files import wire
from bertsmith.models.tensorflow_files.crc32c import crc32c, mask
from bertsmith.models.tensorflow_files.sorted_table import read_table, write_table
from bertsmith.models.tensorflow_files.wire import BYTES, FIXED32, WireError, expect_bytes, expect_number, number_field

DTYPES = {
    1: torch.float32,
    2: torch.float64,
    3: torch.int32,
    4: torch.uint8,
    5: torch.int16,
    6: torch.int8,
    9: torch.int64,
    14: torch.bfloat16,
    17: torch.uint16,
    19: torch.float16,
    22: torch.uint32,
    23: torch.uint64,
}
# Listed so that a checkpoint with such a variable can be opened; the variable itself, not plain numbers, is not read.
OTHER_DTYPES = {7: "string", 8: "complex64", 10: "bool", 18: "complex128", 20: "resource", 21: "variant"}
NUMBERS = {dtype: number for number, dtype in DTYPES.items()}

MOST_INDEX_BYTES = 16 * 2**20
MOST_SHARDS = 10_000
MOST_AXES = 32
_VERSION = 1


@dataclasses.dataclass(frozen=True)
class BundleEntry:
    """The location of one variable.

    Attributes:
        dtype: None for a type in `OTHER_DTYPES`.
        offset: bytes from the start of the shard.
        size: bytes.
        checksum: the masked CRC-32C of these bytes.
    """

    dtype: torch.dtype | None
    kind: str
    shape: tuple[int, ...]
    shard: int
    offset: int
    size: int
    checksum: int


class TensorBundle:
    """An open checkpoint; values are read on demand.

    Args:
        prefix: the path without `.index`.
    """

    def __init__(self, prefix: Path | str) -> None:
        self.prefix = Path(prefix)
        path = index_path(self.prefix)
        require_file(path, "the index of a TensorFlow checkpoint")
        if path.stat().st_size > MOST_INDEX_BYTES:
            raise _unsound(path, f"{path.stat().st_size} bytes, far more than any index has")
        try:
            self.num_shards, self.entries = _read_index(path.read_bytes())
        except OSError as error:
            raise InputError(
                expected=f"a readable file at '{path}'", found=str(error.strerror), fix="check its permissions"
            ) from None
        except WireError as error:
            raise _unsound(path, str(error)) from None

    def shard_path(self, shard: int) -> Path:
        """The data file of a shard."""
        return self.prefix.with_name(f"{self.prefix.name}.data-{shard:05d}-of-{self.num_shards:05d}")

    def check_data(self) -> None:
        """Checks that the data files are as long as the index requires."""
        ends: dict[int, int] = {}
        for entry in self.entries.values():
            ends[entry.shard] = max(ends.get(entry.shard, 0), entry.offset + entry.size)
        for shard, end in sorted(ends.items()):
            path = self.shard_path(shard)
            if not end:
                continue
            _require_data(path)
            if path.stat().st_size < end:
                raise CheckpointError(
                    expected=f"at least {end} bytes in '{path}', as recorded in the index",
                    found=str(path.stat().st_size),
                    fix="download or copy it again",
                )

    def read(self, name: str, *, verify: bool = True) -> Tensor:
        """The values of a variable, on the CPU, in its stored dtype and shape."""
        entry = self.entries[name]
        path = self.shard_path(entry.shard)
        if entry.dtype is None:
            raise CheckpointError(
                expected=f"numbers in {name} of '{self.prefix}'", found=f"type {entry.kind}", fix="leave it out"
            )
        if not entry.size:
            return torch.empty(entry.shape, dtype=entry.dtype)
        _require_data(path)
        try:
            with open(path, "rb") as file:
                left = os.fstat(file.fileno()).st_size - entry.offset
                # Memory is allocated only once the file is known to be long enough.
                values = np.empty(entry.size if left >= entry.size else 0, dtype=np.uint8)
                file.seek(entry.offset)
                count = file.readinto(values.data)
        except OSError as error:
            raise InputError(
                expected=f"a readable file at '{path}'", found=str(error.strerror), fix="check the disk"
            ) from None
        if count != entry.size:
            raise CheckpointError(
                expected=f"{entry.size} bytes of {name} at {entry.offset} in '{path}'",
                found=f"a file that ends {entry.size - max(left, 0)} bytes too early",
                fix="download or copy it again",
            )
        if verify and mask(crc32c(values)) != entry.checksum:
            raise CheckpointError(
                expected=f"{name} in '{path}' as it was written",
                found="values that do not match their checksum",
                fix="download or copy the file again",
            )
        return torch.from_numpy(values).view(entry.dtype).reshape(entry.shape)


def index_path(prefix: Path) -> Path:
    """The index file of a checkpoint.

    >>> index_path(Path("model.ckpt-1000")).name
    'model.ckpt-1000.index'
    """
    return prefix.with_name(f"{prefix.name}.index")


def write_bundle(prefix: Path | str, tensors: Mapping[str, Tensor], *, num_shards: int = 1) -> None:
    """Writes a checkpoint that TensorFlow can read: data files first, the index last.

    Args:
        num_shards: the number of data files; variables are distributed round-robin.
    """
    prefix = Path(prefix)
    order = sorted(tensors, key=lambda name: name.encode())
    entries: dict[str, bytes] = {}
    for shard in range(num_shards):
        path = prefix.with_name(f"{prefix.name}.data-{shard:05d}-of-{num_shards:05d}")
        with atomic_file(path) as file:
            offset = 0
            for name in order[shard::num_shards]:
                tensor = tensors[name].detach().cpu().contiguous()
                if tensor.dtype not in NUMBERS:
                    raise CheckpointError(
                        expected=f"{name} in a dtype of TensorFlow checkpoints",
                        found=str(tensor.dtype),
                        fix="convert it to float32",
                    )
                values = tensor.reshape(-1).view(torch.uint8).numpy() if tensor.numel() else np.empty(0, np.uint8)
                file.write(values.data)
                checksum = mask(crc32c(values))
                entry = BundleEntry(tensor.dtype, "", tuple(tensor.shape), shard, offset, len(values), checksum)
                entries[name] = _encode_entry(entry)
                offset += len(values)
    header = number_field(1, num_shards) + wire.field(3, BYTES, number_field(1, _VERSION))
    with atomic_file(index_path(prefix)) as file:
        file.write(write_table([(b"", header), *((name.encode(), entries[name]) for name in order)]))


def _read_index(data: bytes) -> tuple[int, dict[str, BundleEntry]]:
    table = read_table(data)
    if b"" not in table:
        raise WireError("no header")
    num_shards = _decode_header(table.pop(b""))
    entries: dict[str, BundleEntry] = {}
    for key, value in table.items():
        if key.startswith(b"\0"):
            raise WireError("a partitioned variable, whose parts are stored separately; save it whole")
        try:
            name = key.decode("utf-8")
        except UnicodeDecodeError:
            raise WireError(f"the variable name {key!r}, which is not UTF-8") from None
        if not name.isprintable():
            raise WireError(f"the variable name {name!r}")
        try:
            entries[name] = _decode_entry(value, num_shards)
        except WireError as error:
            raise WireError(f"{error} in the entry of {name}") from None
    _require_apart(entries)
    return num_shards, entries


def _require_apart(entries: Mapping[str, BundleEntry]) -> None:
    """Raises WireError if variables share bytes, so that a small file cannot claim to contain a lot of data."""
    last_shard, end, last = 0, 0, ""
    occupied = [(entry.shard, entry.offset, name) for name, entry in entries.items() if entry.size]
    for shard, offset, name in sorted(occupied):
        if shard == last_shard and offset < end:
            raise WireError(f"{last} and {name} in the same bytes")
        last_shard, end, last = shard, offset + entries[name].size, name


def _decode_header(data: bytes) -> int:
    num_shards = 0
    for number, _, value in wire.fields(data):
        if number == 1:
            num_shards = expect_number(value, "the number of shards")
        elif number == 2 and value != 0:
            raise WireError("big-endian numbers")
        elif number == 3:
            for inner, _, version in wire.fields(expect_bytes(value, "the version")):
                if inner == 2 and expect_number(version, "a version") > _VERSION:
                    raise WireError(f"a newer format, version {version!r}")
    if not 1 <= num_shards <= MOST_SHARDS:
        raise WireError(f"{num_shards} shards")
    return num_shards


def _decode_entry(data: bytes, num_shards: int) -> BundleEntry:
    numbers = {1: 0, 3: 0, 4: 0, 5: 0, 6: 0}
    shape: tuple[int, ...] = ()
    for number, _, value in wire.fields(data):
        if number in numbers:
            numbers[number] = expect_number(value, "a number")
        elif number == 2:
            shape = tuple(_decode_shape(expect_bytes(value, "a shape")))
        elif number == 7:
            raise WireError("a partitioned variable, whose parts are stored separately; save it whole,")
    kind, shard, offset, size, checksum = numbers.values()
    if kind not in DTYPES and kind not in OTHER_DTYPES:
        raise WireError(f"the unknown type {kind}")
    if shard >= num_shards:
        raise WireError(f"shard {shard} of {num_shards}")
    if max(offset, size, offset + size) >= 1 << 63 or checksum >= 1 << 32:
        raise WireError(f"{size} bytes at {offset}")
    dtype = DTYPES.get(kind)
    # Axes of length 0 must not hide absurd lengths of other axes.
    if math.prod(max(length, 1) for length in shape) >= 1 << 60:
        raise WireError(f"the shape {list(shape)}")
    if dtype is not None and math.prod(shape) * dtype.itemsize != size:
        raise WireError(f"{size} bytes for shape {list(shape)} of {dtype.itemsize} bytes each")
    word = OTHER_DTYPES.get(kind) or str(dtype).removeprefix("torch.")
    return BundleEntry(dtype, word, shape, shard, offset, size, checksum)


def _decode_shape(data: bytes) -> Iterator[int]:
    for axes, (number, _, value) in enumerate(wire.fields(data)):
        if number == 3 and value:
            raise WireError("an unknown shape")
        if number == 2:
            length = 0
            for inner, _, size in wire.fields(expect_bytes(value, "an axis")):
                length = expect_number(size, "a length") if inner == 1 else length
            if length >= 1 << 63 or axes >= MOST_AXES:
                raise WireError(f"an axis of {length}, or more than {MOST_AXES} axes")
            yield length


def _encode_entry(entry: BundleEntry) -> bytes:
    assert entry.dtype is not None
    axes = b"".join(wire.field(2, BYTES, number_field(1, length)) for length in entry.shape)
    return (
        number_field(1, NUMBERS[entry.dtype])
        + wire.field(2, BYTES, axes)
        + number_field(3, entry.shard)
        + number_field(4, entry.offset)
        + number_field(5, entry.size)
        + wire.field(6, FIXED32, struct.pack("<I", entry.checksum))
    )


def _require_data(path: Path) -> None:
    if not path.exists():
        raise InputError(
            expected=f"the data file '{path}' next to the index",
            found="no such file",
            fix="download it from where the checkpoint was published; the index alone contains no values",
        )
    require_file(path, "the data file of a TensorFlow checkpoint")


def _unsound(path: Path, problem: str) -> CheckpointError:
    return CheckpointError(
        expected=f"the index of a TensorFlow checkpoint (V2) in '{path}'",
        found=problem,
        fix="download or copy the checkpoint again",
    )
