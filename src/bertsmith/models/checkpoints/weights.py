"""The weight files of a Hugging Face folder: safetensors or `.bin`, whole or in shards; the digest of weights.

Nothing in a file is ever executed: a `.bin` is read with `weights_only=True`, and rejected if it contains anything but
tensors.
"""

import json
import pickle
import struct
import warnings
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

import numpy as np
import numpy.typing as npt
import safetensors

from bertsmith.base.core.errors import CheckpointError, InputError, some
from bertsmith.base.storage.files import FolderKind, atomic_file, digest_bytes, read_json, read_object, require_file
from bertsmith.base.storage.tensor_file import write_tensors
from bertsmith.models.model_files.metadata import BIN, SAFETENSORS, WEIGHT_FILES
from bertsmith.models.parts.parameter_names import ParameterNames

if TYPE_CHECKING:
    from torch import Tensor

# The files that identify a model folder, so that no other folder is ever overwritten by one.
MODEL_FOLDER = FolderKind(
    "a model",
    (
        ("bertsmith.json",),
        ("config.json", "*.safetensors"),
        ("config.json", "*.bin"),
        ("*.index", "*.data-*"),
    ),
)
ADAPTER = "adapter_config.json"  # of weights that are added to those of another folder, as those of LoRA
OTHER_TOOLS = ("tf_model.h5", "flax_model.msgpack", "model.onnx", "rust_model.ot")

# What torch.load raises for a damaged pickle or zip archive; with weights_only it cannot raise anything else.
_UNREADABLE = (
    pickle.UnpicklingError, zipfile.BadZipFile, struct.error, OSError, EOFError, RuntimeError, ValueError, KeyError,
    TypeError, AttributeError, IndexError, AssertionError, OverflowError, MemoryError,
)  # fmt: skip


_NUMPY_TYPES = {
    "F64": "f8", "F32": "f4", "F16": "f2", "I64": "i8", "I32": "i4", "I16": "i2", "I8": "i1", "U8": "u1", "BOOL": "?",
}  # fmt: skip


def read_weights(folder: Path, *, as_arrays: bool = False) -> "dict[str, Tensor]":
    """All tensors of a folder by their stored name, on the CPU, in their stored dtype.

    Args:
        as_arrays: they are arrays of NumPy, so that torch is not needed; only for safetensors, and without bf16.
    """
    path = weight_file(folder)
    if not path.name.endswith(".index.json"):
        return read_tensors(path, as_arrays)
    tensors: dict[str, Tensor] = {}
    wrong: list[str] = []
    for shard, names in _shards(path).items():
        try:
            read = read_tensors(folder / shard, as_arrays)
        except (CheckpointError, InputError) as error:
            wrong.append(f"{shard} ({error.found})")
            continue
        absent, extra = sorted(names - set(read)), sorted(set(read) - names)
        said = [
            f"{relation}: {some(listed)}" for relation, listed in (("lacks", absent), ("also has", extra)) if listed
        ]
        if said:
            wrong.append(f"{shard} ({'; '.join(said)})")
        elif not wrong:
            tensors |= read
    if wrong:
        raise CheckpointError(
            expected=f"'{folder}' to contain the files and tensors listed in '{path.name}'",
            found=some(wrong),
            fix="copy these files again",
        )
    return tensors


def weight_file(folder: Path) -> Path:
    """The weight file, or the index of the weight files, of a folder."""
    for name in WEIGHT_FILES:
        if (folder / name).exists():
            return folder / name
    other = [name for name in OTHER_TOOLS if (folder / name).exists()]
    raise InputError(
        expected=f"{SAFETENSORS} or {BIN} in '{folder}'",
        found=f"only {', '.join(other)}" if other else "neither",
        fix="convert the model with the tool that wrote it" if other else "use the folder of a model",
    )


def write_safetensors(path: Path, tensors: "Mapping[str, Tensor]") -> None:
    """Writes tensors, one after another; tensors that share memory are written separately.

    They may come from the file that is replaced, which are mapped from it as a rule.
    """
    try:
        with atomic_file(path) as file:
            write_tensors(file, tensors, metadata={"format": "pt"})
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from error


def digest_of_tensors(tensors: "Mapping[str, Tensor]") -> str:
    """`sha256:` and the hexadecimal SHA-256 of named tensors, independent of their order and device.

    Run folders record it, so it stays the same for the same names and bytes. Of tensors that are divided among
    processes it is the digest of the whole ones; all of the processes ask for it.
    """
    import torch

    from bertsmith.base.processes.sharding import own_rows, whole

    parts = []
    for name, tensor in sorted(tensors.items()):
        numbers = whole(own_rows(tensor.detach()), tensor).cpu().contiguous().reshape(-1).view(torch.uint8).numpy()
        parts.append(f"{name} {digest_bytes(numbers.tobytes())}")
    return digest_bytes("\n".join(parts).encode())


def adapter_error(folder: Path) -> CheckpointError:
    """The error for an adapter next to a model, of which it is unclear whether it was merged."""
    return CheckpointError(
        expected=f"a model or an adapter in '{folder}'",
        found=f"both: an adapter ({ADAPTER}) next to a config.json",
        fix="move the files of one of them to another folder",
    )


def base_of_adapter(folder: Path) -> str:
    """The name of the model that an adapter was trained on, as its `adapter_config.json` says."""
    base = read_object(folder / ADAPTER).get("base_model_name_or_path")
    if not isinstance(base, str) or not base or Path(base).resolve() == folder.resolve():
        raise CheckpointError(
            expected=f"the model of an adapter (base_model_name_or_path) in '{folder / ADAPTER}'",
            found=repr(base),
            fix="write the path or the id of its model there",
        )
    return base


def in_order(tensor: Any) -> "Tensor":
    """The tensor, or array of NumPy, with its rows one after another in memory."""
    result: Any = np.ascontiguousarray(tensor) if isinstance(tensor, np.ndarray) else tensor.contiguous()
    return cast("Tensor", result)


def zeros_like(tensor: Any, count: int) -> "Tensor":
    """Zeros in the type of a tensor or array of NumPy."""
    result: Any = np.zeros(count, tensor.dtype) if isinstance(tensor, np.ndarray) else tensor.new_zeros(count)
    return cast("Tensor", result)


def read_tensors(path: Path, as_arrays: bool = False) -> "dict[str, Tensor]":
    """The tensors of one file; see `read_weights`."""
    require_file(path, "model weights")
    if path.suffix == ".safetensors":
        try:
            if as_arrays:
                return _mapped(path)
            from safetensors.torch import load_file

            return load_file(path)
        except (safetensors.SafetensorError, ValueError, KeyError, OverflowError) as error:
            raise _damaged(path, error) from None
    import torch

    try:
        with warnings.catch_warnings():
            # Old files are read like new ones; for damaged ones the error says what a warning would say.
            warnings.simplefilter("ignore")
            content = torch.load(path, map_location="cpu", weights_only=True)
    except _UNREADABLE as error:
        raise _damaged(path, error) from None
    if not isinstance(content, dict) or not all(
        isinstance(name, str) and _is_plain(tensor) for name, tensor in content.items()
    ):
        raise CheckpointError(
            expected=f"only named tensors in '{path}'",
            found=_kinds(content),
            fix="save only the state_dict of the model",
        )
    return {name: tensor.detach() for name, tensor in content.items()}


def read_arrays(folder: Path, name: str | None = None) -> dict[str, npt.NDArray[np.float32]]:
    """The tensors of a folder with one file of weights, or the one of a name; only those of a `.bin` need torch."""
    path = weight_file(folder)
    is_mapped = path.suffix == ".safetensors"
    tensors: dict[str, Any] = {**read_tensors(path, as_arrays=is_mapped)}
    return {
        each: np.asarray(tensor if is_mapped else tensor.float().numpy(), np.float32)
        for each, tensor in tensors.items()
        if name in (None, each)
    }


def _mapped(path: Path) -> "dict[str, Tensor]":
    """The tensors of a file in safetensors as arrays of NumPy, which read the pages of it that are used."""
    with safetensors.safe_open(path, framework="numpy"):
        pass  # it checks the file
    content = np.memmap(path, dtype=np.uint8, mode="r")
    begin = 8 + int.from_bytes(content[:8].tobytes(), "little")
    header = json.loads(content[8:begin].tobytes())
    arrays: Any = {}
    for name, entry in header.items():
        if name != "__metadata__":
            first, end = entry["data_offsets"]
            kind = np.dtype(_NUMPY_TYPES[entry["dtype"]])
            arrays[name] = content[begin + first : begin + end].view(np.ndarray).view(kind).reshape(entry["shape"])
    return cast("dict[str, Tensor]", arrays)


def _is_plain(value: Any) -> bool:
    """True for a tensor whose values are all stored; a few bytes can claim to be a view of a huge tensor."""
    import torch

    if not isinstance(value, torch.Tensor) or value.layout != torch.strided or value.device.type != "cpu":
        return False
    return value.nbytes <= value.untyped_storage().nbytes()


def _shards(path: Path) -> dict[str, set[str]]:
    """The names of the tensors in each shard that an index lists."""
    index = read_json(path)
    places = index.get("weight_map") if isinstance(index, dict) else None
    if not isinstance(places, dict) or not places:
        raise CheckpointError(expected=f"a weight_map in '{path}'", found="none", fix="restore the file")
    shards: dict[str, set[str]] = {}
    for name, shard in places.items():
        # A file name that points outside the folder is an attack or a mistake.
        if (
            not isinstance(shard, str)
            or Path(shard).name != shard
            or Path(shard).suffix not in (".safetensors", ".bin")
        ):
            raise CheckpointError(
                expected=f"names of weight files in '{path}'", found=repr(shard), fix="restore the file"
            )
        shards.setdefault(shard, set()).add(name)
    return shards


def _kinds(content: Any) -> str:
    import torch

    def kinds() -> Iterator[str]:
        for name, value in content.items():
            if not isinstance(name, str) or not _is_plain(value):
                kind = "an expanded or sparse tensor" if isinstance(value, torch.Tensor) else type(value).__name__
                yield f"{name!r}: {kind}"

    return ", ".join(list(kinds())[:8]) if isinstance(content, dict) else type(content).__name__


def _damaged(path: Path, error: BaseException) -> CheckpointError:
    reason = (str(error).splitlines() or [""])[0][:160]
    return CheckpointError(
        expected=f"readable weights in '{path}'",
        found=f"a damaged file or one that contains more than tensors ({type(error).__name__}: {reason})",
        fix="copy or download it again",
    )


_OF_TORCH = frozenset({"module", "_orig_mod"})  # at any depth, since parts of a model can be wrapped as well
Value = TypeVar("Value")


def without_wrappers(stored: Mapping[str, Value], names: ParameterNames) -> tuple[dict[str, Value], list[str]]:
    """The stored values by the names of the model itself, and a note if prefixes were removed.

    `DistributedDataParallel` adds "module.", `torch.compile` "_orig_mod.", and a program that holds the model as an
    attribute its name, which is removed if all names have it and more names are known without it. Nothing is removed if
    two names would become the same.
    """
    originals = {".".join(part for part in name.split(".") if part not in _OF_TORCH): name for name in stored}
    if len(originals) < len(stored):
        return dict(stored), []
    while len({name.partition(".")[0] for name in originals}) == 1 and all("." in name for name in originals):
        shorter = {name.partition(".")[2]: original for name, original in originals.items()}
        if _known(shorter, names) <= _known(originals, names):
            break
        originals = shorter
    removed = sorted({original.removesuffix(name) for name, original in originals.items() if name != original})
    if not removed:
        return dict(stored), []
    prefix = removed[0] if len(removed) == 1 else ", ".join(f"{name}." for name in sorted(_OF_TORCH))
    return (
        {name: stored[original] for name, original in originals.items()},
        [f"names are read without the prefix {prefix!r} of a training wrapper"],
    )


def _known(originals: Mapping[str, str], names: ParameterNames) -> int:
    return sum(names.from_huggingface(name, stored=originals) is not None for name in originals)


def split_fused(stored: "Mapping[str, Tensor]", names: ParameterNames) -> "dict[str, Tensor]":
    """The tensors of a checkpoint, with a name for each layer of a fused one.

    The matrices of F layers of O outputs that are stored as one are [K, F*O], or [F*O, K] unless
    `ParameterNames.is_transposed`, their biases [F*O]. A tensor that cannot be split keeps its name.
    """
    result: dict[str, Tensor] = {}
    axis = -1 if names.is_transposed else 0
    for name, tensor in stored.items():
        layer, _, last = name.rpartition(".")
        parts = next((parts for end, parts in names.fused.items() if layer.endswith(end)), ())
        if parts and tensor.ndim and tensor.shape[axis] % len(parts) == 0:
            size = tensor.shape[axis] // len(parts)
            # Of a tensor or an array of NumPy, which have this in common.
            pieces = [
                tensor[..., first : first + size] if names.is_transposed else tensor[first : first + size]
                for first in range(0, size * len(parts), size)
            ]
            result |= {f"{layer}.{part}.{last}": piece for part, piece in zip(parts, pieces, strict=True)}
        else:
            result[name] = tensor
    return result


def join_fused(named: "Mapping[str, Tensor]", names: ParameterNames) -> "dict[str, Tensor]":
    """The tensors as Hugging Face stores them, from those with a name for each layer."""
    import torch

    result = dict(named)
    for end, parts in names.fused.items():
        first = f"{end}.{parts[0]}."
        for name in [name for name in named if first in name]:
            pieces = [result.pop(name.replace(first, f"{end}.{part}.")) for part in parts]
            result[name.replace(first, f"{end}.")] = torch.cat(pieces, dim=-1 if names.is_transposed else 0)
    return result
