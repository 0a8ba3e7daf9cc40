"""Weight files: safetensors and .bin, whole and in shards; nothing in them is ever executed."""

import errno
import json
import os
import pickle
import resource
import stat

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.torch import save_file

from bertsmith.base.core.errors import BertsmithError, CheckpointError, InputError
from bertsmith.models.checkpoints import weights
from bertsmith.models.checkpoints.weights import read_weights, write_safetensors
from written_files import file_with

TENSORS = {"a": torch.arange(6.0).reshape(2, 3), "b": torch.ones(3, dtype=torch.float16)}


def same(tensors: dict[str, torch.Tensor]) -> bool:
    return set(tensors) == set(TENSORS) and all(torch.equal(tensors[name], TENSORS[name]) for name in TENSORS)


def test_every_kind_of_file_gives_the_same_tensors(tmp_path):
    for number, write in enumerate(
        (
            lambda folder: save_file(TENSORS, folder / "model.safetensors"),
            lambda folder: torch.save(TENSORS, folder / "pytorch_model.bin"),
            lambda folder: torch.save(TENSORS, folder / "pytorch_model.bin", _use_new_zipfile_serialization=False),
        )
    ):
        folder = tmp_path / str(number)
        folder.mkdir()
        write(folder)
        assert same(read_weights(folder))


@pytest.mark.parametrize("ending", ["safetensors", "bin"])
def test_shards_are_combined(tmp_path, ending):
    whole = {"safetensors": "model.safetensors", "bin": "pytorch_model.bin"}[ending]
    places = {}
    for name, tensor in TENSORS.items():
        places[name] = f"part-{name}.{ending}"
        (save_file if ending == "safetensors" else torch.save)({name: tensor}, tmp_path / places[name])
    index = file_with(tmp_path / f"{whole}.index.json", json.dumps({"metadata": {}, "weight_map": places}))
    assert same(read_weights(tmp_path))
    index.write_text(json.dumps({"weight_map": {**places, "c": places["a"]}}))
    with pytest.raises(CheckpointError, match=rf"part-a.{ending} \(lacks: c\)"):
        read_weights(tmp_path)
    index.write_text(json.dumps({"weight_map": {"b": places["a"]}}))
    with pytest.raises(CheckpointError, match=rf"part-a.{ending} \(lacks: b; also has: a\)"):
        read_weights(tmp_path)
    index.write_text(json.dumps({"weight_map": {"a": f"absent.{ending}"}}))
    with pytest.raises(CheckpointError, match="no such file"):
        read_weights(tmp_path)


def test_wrong_shards_are_listed_at_once_and_of_many_tensors_some(tmp_path):
    save_file({"a": TENSORS["a"]}, tmp_path / "good.safetensors")
    (tmp_path / "cut.safetensors").write_bytes(b"1234")
    save_file({"z": TENSORS["a"]}, tmp_path / "other.safetensors")
    lost = [f"lost{number}" for number in range(12)]
    places = {"a": "good", "b": "cut", "c": "absent", **dict.fromkeys(lost, "other")}
    index = {"weight_map": {name: f"{shard}.safetensors" for name, shard in places.items()}}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(CheckpointError) as caught:
        read_weights(tmp_path)
    words = (
        "cut.safetensors (a damaged file",
        "absent.safetensors (no such file or directory)",
        "also has: z",
        *sorted(lost)[:3],
        "and 9 more",
    )
    assert all(word in str(caught.value) for word in words)
    assert "good.safetensors" not in str(caught.value)


@pytest.mark.parametrize(
    "index",
    [[], {}, {"weight_map": {}}, {"weight_map": 3}, {"weight_map": {"a": 3}}, {"weight_map": {"a": "../x.bin"}},
     {"weight_map": {"a": "/etc/x.bin"}}, {"weight_map": {"a": "config.json"}}],
)  # fmt: skip
def test_an_invalid_index_is_refused(tmp_path, index):
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(CheckpointError):
        read_weights(tmp_path)


class Bomb:
    """The content of a malicious pickle: a function call chosen by an attacker."""

    def __init__(self, mark: str) -> None:
        self.mark = mark

    def __reduce__(self):
        return (os.mkdir, (self.mark,))


@pytest.mark.parametrize("bare", [True, False])
def test_a_pickle_is_never_executed(tmp_path, bare):
    mark = tmp_path / "exploded"
    content = {"a": Bomb(str(mark))}
    if bare:
        (tmp_path / "pytorch_model.bin").write_bytes(pickle.dumps(content))
    else:
        torch.save(content, tmp_path / "pytorch_model.bin")
    with pytest.raises(CheckpointError, match="damaged file or one that contains more than tensors"):
        read_weights(tmp_path)
    assert not mark.exists()


@pytest.mark.parametrize(
    "content",
    [
        {"a": torch.ones(2), "epoch": 3},
        [torch.ones(2)],
        {3: torch.ones(2)},
        {"a": torch.ones(1).expand(10**6, 10**6)},
        {"a": torch.sparse_coo_tensor([[0], [0]], [1.0], (10**6, 10**6), check_invariants=True)},
        {"a": torch.empty(3, device="meta")},
    ],
    ids=str,
)
def test_anything_but_named_tensors_is_refused(tmp_path, content):
    torch.save(content, tmp_path / "pytorch_model.bin")
    with pytest.raises(CheckpointError, match="only named tensors"):
        read_weights(tmp_path)


@pytest.mark.parametrize("name", ["model.safetensors", "pytorch_model.bin"])
@given(cut=st.integers(0, 2000), flips=st.lists(st.tuples(st.integers(0, 2000), st.integers(1, 255)), max_size=3))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60)
def test_damaged_files_are_one_error(tmp_path, name, cut, flips):
    path = tmp_path / name
    if name.endswith("bin"):
        torch.save(TENSORS, path)
    else:
        save_file(TENSORS, path)
    data = bytearray(path.read_bytes())
    for position, change in flips:
        data[position % len(data)] ^= change
    path.write_bytes(data[: len(data) - cut] if cut < len(data) else b"")
    try:
        tensors = read_weights(tmp_path)
    except BertsmithError as error:
        tensors = {}
        assert "\n" not in str(error)  # noqa: PT017
    assert all(isinstance(tensor, torch.Tensor) for tensor in tensors.values())


def test_files_of_other_tools_are_named(tmp_path):
    with pytest.raises(InputError, match="found neither"):
        read_weights(tmp_path)
    (tmp_path / "tf_model.h5").touch()
    with pytest.raises(InputError, match=r"only tf_model.h5"):
        read_weights(tmp_path)


def test_a_weight_file_has_the_usual_permissions(tmp_path):
    before = os.umask(0o027)
    try:
        write_safetensors(tmp_path / "model.safetensors", TENSORS)
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "model.safetensors").stat().st_mode) == 0o640


def test_a_failed_write_raises_a_system_error_that_names_the_file(tmp_path):
    path = tmp_path / "model.safetensors"
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, limits[1]))
    try:
        with pytest.raises(OSError, match="File too large") as caught:
            write_safetensors(path, {"a": torch.zeros(10_000)})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert (caught.value.errno, caught.value.filename) == (errno.EFBIG, str(path))


def test_a_full_disk_is_said_to_be_full_and_leaves_the_file_as_it_was(tmp_path, monkeypatch):
    path = tmp_path / "model.safetensors"
    write_safetensors(path, TENSORS)
    before = path.read_bytes()

    def fill(*_, **__):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(weights, "write_tensors", fill)
    with pytest.raises(OSError, match="No space left on device") as caught:
        write_safetensors(path, {"a": torch.zeros(3)})
    assert (caught.value.errno, caught.value.filename) == (errno.ENOSPC, str(path))
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_weights_may_replace_the_file_that_they_are_mapped_from(tmp_path):
    write_safetensors(tmp_path / "model.safetensors", TENSORS)
    mapped = read_weights(tmp_path)
    write_safetensors(tmp_path / "model.safetensors", mapped)
    assert all(torch.equal(tensor, TENSORS[name]) for name, tensor in mapped.items())
    assert all(torch.equal(tensor, TENSORS[name]) for name, tensor in read_weights(tmp_path).items())


def test_tensors_that_share_memory_are_written_separately(tmp_path):
    flat = torch.arange(10.0)
    tensors = {"a": flat[:4], "b": flat[4:].view(2, 3).t(), "c": flat, "d": flat}
    write_safetensors(tmp_path / "model.safetensors", tensors)
    read = read_weights(tmp_path)
    assert all(torch.equal(read[name], tensor) for name, tensor in tensors.items())
    assert (tmp_path / "model.safetensors").stat().st_size < 600
