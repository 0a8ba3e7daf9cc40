"""TensorFlow's V2 checkpoints are read back as written, and invalid ones are refused with one error."""

import dataclasses
import os
import re
import struct
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bertsmith.base.core.errors import BertsmithError, CheckpointError, InputError
from bertsmith.models.tensorflow_files import tensor_bundle, wire
from bertsmith.models.tensorflow_files.sorted_table import read_table, write_table
from bertsmith.models.tensorflow_files.tensor_bundle import DTYPES, BundleEntry, TensorBundle, index_path, write_bundle
from bertsmith.models.tensorflow_files.wire import BYTES, number_field
from written_files import file_with

HEADER = number_field(1, 1) + wire.field(3, BYTES, number_field(1, 1))
SHARED_FOLDER = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])


def write_index(prefix: Path, entries: dict[str, bytes], header: bytes = HEADER) -> None:
    items = sorted({b"": header, **{name.encode(): value for name, value in entries.items()}}.items())
    index_path(prefix).write_bytes(write_table(items))


def entry(**changes: object) -> bytes:
    """The entry of four float32 numbers at the start of the first shard, with some fields changed."""
    sound = BundleEntry(torch.float32, "", (4,), 0, 0, 16, 0)
    return tensor_bundle._encode_entry(dataclasses.replace(sound, **changes))


@pytest.fixture
def prefix(tmp_path: Path) -> Path:
    """A valid checkpoint with a few variables."""
    generator = torch.Generator().manual_seed(0)
    tensors = {f"bert/layer_{i}/kernel": torch.randn(3, 4 + i, generator=generator) for i in range(5)}
    tensors |= {"global_step": torch.tensor(20), "empty": torch.zeros(0, 3), "output_bias": torch.ones(2)}
    write_bundle(tmp_path / "model.ckpt", tensors)
    return tmp_path / "model.ckpt"


@given(
    names=st.lists(st.text(alphabet="abcdefgh/_0", min_size=1, max_size=9), unique=True, min_size=1, max_size=8),
    shards=st.integers(1, 3),
    data=st.data(),
)
@SHARED_FOLDER
def test_tensors_of_every_type_and_shape_are_read_back_bit_by_bit(tmp_path, names, shards, data):
    dtypes = list(DTYPES.values())
    tensors = {}
    for name in names:
        shape = data.draw(st.lists(st.integers(0, 4), max_size=3))
        dtype = data.draw(st.sampled_from(dtypes))
        size = torch.Size(shape).numel() * dtype.itemsize
        raw = torch.tensor(list(data.draw(st.binary(min_size=size, max_size=size))), dtype=torch.uint8)
        tensors[name] = raw.view(dtype).reshape(shape) if size else torch.empty(shape, dtype=dtype)
    write_bundle(tmp_path / "x", tensors, num_shards=shards)
    bundle = TensorBundle(tmp_path / "x")
    bundle.check_data()
    assert list(bundle.entries) == sorted(tensors)
    for name, tensor in tensors.items():
        back = bundle.read(name)
        assert (back.dtype, back.shape) == (tensor.dtype, tensor.shape)
        if tensor.numel():
            assert torch.equal(back.reshape(-1).view(torch.uint8), tensor.reshape(-1).view(torch.uint8))


def test_the_header_and_the_first_entry_equal_those_of_tensorflow(tmp_path):
    """The first bytes of a real index: header, then `bert/embeddings/LayerNorm/beta` of width 4."""
    write_bundle(tmp_path / "x", {"bert/embeddings/LayerNorm/beta": torch.zeros(4)})
    data = index_path(tmp_path / "x").read_bytes()
    assert data[:9] == bytes.fromhex("00000608011a020801")
    start = (
        bytes.fromhex("001e0f")
        + b"bert/embeddings/LayerNorm/beta"
        + bytes.fromhex("08011204120208042810 35".replace(" ", ""))
    )
    assert data[9 : 9 + len(start)] == start


def test_a_transposed_tensor_is_written_as_it_reads(tmp_path):
    tensor = torch.arange(6.0).reshape(2, 3).t()
    write_bundle(tmp_path / "x", {"a": tensor})
    assert torch.equal(TensorBundle(tmp_path / "x").read("a"), tensor)


def test_a_dtype_that_the_format_does_not_support_is_refused(tmp_path):
    with pytest.raises(CheckpointError, match=r"float8"):
        write_bundle(tmp_path / "x", {"a": torch.zeros(2).to(torch.float8_e4m3fn)})


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (entry(shape=(5,)), "16 bytes for shape [5]"),
        (entry(size=20), "20 bytes for shape [4]"),
        (entry(shape=(2**62, 2**62)), "the shape"),
        (entry(shape=(0, 2**62), size=0), "the shape"),
        (entry(shape=(1,) * 40, size=4), "more than 32 axes"),
        (entry(shard=1), "shard 1 of 1"),
        (entry(offset=2**63), "bytes at 9223372036854775808"),
        (entry() + number_field(1, 77), "unknown type 77"),
        (entry() + wire.field(7, BYTES, b""), "partitioned variable"),
        (entry() + wire.field(2, BYTES, number_field(3, 1)), "unknown shape"),
        (entry() + wire.field(5, BYTES, b"16"), "bytes instead of a number"),
        (entry() + number_field(2, 3), "a number instead of a shape"),
        (entry()[:-1], "where 3 are left"),
        (b"", "unknown type 0"),
    ],
)
def test_an_invalid_entry_is_refused_when_the_index_is_read(tmp_path, value, reason):
    (tmp_path / "x.data-00000-of-00001").write_bytes(bytes(16))
    write_index(tmp_path / "x", {"v": value})
    with pytest.raises(CheckpointError, match=re.escape(reason)) as caught:
        TensorBundle(tmp_path / "x")
    assert "entry of v" in str(caught.value)


@pytest.mark.parametrize(
    ("header", "reason"),
    [
        (b"", "0 shards"),
        (number_field(1, 2**40), "1099511627776 shards"),
        (HEADER + number_field(2, 1), "big-endian"),
        (HEADER + wire.field(3, BYTES, number_field(2, 2)), "newer format"),
        (b"\x0f", "kind 7"),
    ],
)
def test_an_invalid_header_is_refused(tmp_path, header, reason):
    write_index(tmp_path / "x", {"v": entry()}, header)
    with pytest.raises(CheckpointError, match=reason):
        TensorBundle(tmp_path / "x")


def test_an_index_without_a_header_is_refused(tmp_path):
    index_path(tmp_path / "x").write_bytes(write_table([(b"v", entry())]))
    with pytest.raises(CheckpointError, match="no header"):
        TensorBundle(tmp_path / "x")


def test_variables_that_share_bytes_are_refused(tmp_path):
    """A small file must not claim to contain a lot of data."""
    write_index(tmp_path / "x", {"a": entry(), "b": entry(offset=12)})
    with pytest.raises(CheckpointError, match="a and b in the same bytes"):
        TensorBundle(tmp_path / "x")


@pytest.mark.parametrize("name", ["a\nb", "a\x1b[2J", "\u202eabc"])
def test_a_name_with_control_characters_is_refused(tmp_path, name):
    write_index(tmp_path / "x", {name: entry()})
    with pytest.raises(CheckpointError, match="the variable name") as caught:
        TensorBundle(tmp_path / "x")
    assert str(caught.value).isprintable()


def test_names_that_are_not_text_or_name_part_of_a_variable_are_refused(tmp_path):
    for key, reason in ((b"\xff\xfe", "not UTF-8"), (b"\0part", "partitioned")):
        index_path(tmp_path / "x").write_bytes(write_table([(b"", HEADER), (key, entry())]))
        with pytest.raises(CheckpointError, match=reason):
            TensorBundle(tmp_path / "x")


def test_non_numeric_types_are_listed_but_not_read(tmp_path):
    write_index(tmp_path / "x", {"s": number_field(1, 7) + wire.field(2, BYTES, b"") + number_field(5, 3)})
    bundle = TensorBundle(tmp_path / "x")
    assert bundle.entries["s"].kind == "string"
    with pytest.raises(CheckpointError, match="type string"):
        bundle.read("s")


def test_a_missing_data_file_is_named(prefix):
    data = prefix.with_name("model.ckpt.data-00000-of-00001")
    data.unlink()
    for ask in (TensorBundle(prefix).check_data, lambda: TensorBundle(prefix).read("output_bias")):
        with pytest.raises(InputError, match="data-00000-of-00001' next to the index; found no such file"):
            ask()


def test_a_git_lfs_pointer_is_recognized(prefix):
    pointer = b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1\n"
    file_with(prefix.with_name("model.ckpt.data-00000-of-00001"), pointer)
    with pytest.raises(CheckpointError, match="git-lfs pointer"):
        TensorBundle(prefix).check_data()
    index_path(prefix).write_bytes(pointer)
    with pytest.raises(CheckpointError, match="git-lfs pointer"):
        TensorBundle(prefix)


def test_a_short_data_file_is_refused_before_memory_is_allocated(tmp_path):
    huge = 2**50
    write_index(tmp_path / "x", {"v": entry(shape=(huge // 4,), size=huge)})
    (tmp_path / "x.data-00000-of-00001").write_bytes(bytes(100))
    bundle = TensorBundle(tmp_path / "x")
    with pytest.raises(CheckpointError, match=f"at least {huge} bytes"):
        bundle.check_data()
    with pytest.raises(CheckpointError, match="too early"):
        bundle.read("v")


def test_missing_empty_and_oversized_indexes_are_refused(tmp_path):
    with pytest.raises(InputError, match="no such file"):
        TensorBundle(tmp_path / "x")
    index_path(tmp_path / "x").touch()
    with pytest.raises(InputError, match="an empty file"):
        TensorBundle(tmp_path / "x")
    with open(index_path(tmp_path / "x"), "wb") as file:
        file.truncate(2**34)
    with pytest.raises(CheckpointError, match="far more than any index has"):
        TensorBundle(tmp_path / "x")


@pytest.mark.skipif(os.geteuid() == 0, reason="root can read every file")
def test_an_unreadable_index_is_refused(prefix):
    index_path(prefix).chmod(0)
    with pytest.raises(InputError, match="permission denied"):
        TensorBundle(prefix)


def test_every_flipped_byte_of_the_values_is_detected(prefix):
    data = prefix.with_name("model.ckpt.data-00000-of-00001")
    sound = data.read_bytes()
    bundle = TensorBundle(prefix)
    for position in range(len(sound)):
        data.write_bytes(sound[:position] + bytes([sound[position] ^ 0x10]) + sound[position + 1 :])
        damaged = []
        for name in bundle.entries:
            try:
                bundle.read(name)
            except CheckpointError:
                damaged.append(name)
        assert len(damaged) == 1
    data.write_bytes(bytes(len(sound)))
    assert bundle.read("output_bias", verify=False).tolist() == [0, 0]


def read_all(prefix: Path) -> int:
    bundle = TensorBundle(prefix)
    bundle.check_data()
    return sum(bundle.read(name).numel() for name in bundle.entries)


@given(places=st.lists(st.tuples(st.integers(0, 10**6), st.integers(1, 255)), min_size=1, max_size=4))
@SHARED_FOLDER
def test_a_damaged_index_is_one_error(prefix, places):
    """Flipped bytes anywhere are caught by a checksum or a limit, and never raise another exception."""
    path = index_path(prefix)
    sound = path.read_bytes()
    data = bytearray(sound)
    for position, change in places:
        data[position % len(data)] ^= change
    path.write_bytes(data)
    try:
        if data != sound:
            with pytest.raises(BertsmithError):
                read_all(prefix)
    finally:
        path.write_bytes(sound)


@given(
    which=st.integers(0, 8), position=st.integers(0, 10**6), change=st.integers(1, 255), extra=st.binary(max_size=12)
)
@settings(parent=SHARED_FOLDER, max_examples=400)
def test_hostile_entries_with_correct_checksums_are_read_or_refused(prefix, which, position, change, extra):
    """An attacker can compute checksums too: entries are altered, then written with correct checksums."""
    path = index_path(prefix)
    sound = path.read_bytes()
    table = read_table(sound)
    key = list(table)[which]
    value = bytearray(table[key] + extra)
    value[position % len(value)] ^= change
    path.write_bytes(write_table(sorted({**table, key: bytes(value)}.items())))
    try:
        count, refusal = read_all(prefix), ""
    except BertsmithError as error:
        count, refusal = 0, str(error)
    path.write_bytes(sound)
    assert refusal.isprintable()
    assert count < 200


@given(st.binary(max_size=120))
@SHARED_FOLDER
def test_random_bytes_are_not_a_checkpoint(tmp_path, data):
    index_path(tmp_path / "x").write_bytes(data + struct.pack("<Q", 0xDB4775248B80FB57))
    with pytest.raises(CheckpointError):
        TensorBundle(tmp_path / "x")


def test_real_indexes_are_reproduced_byte_by_byte(real_data, tmp_path):
    """Three indexes that TensorFlow wrote: 139, 142 and 206 variables."""
    counts = []
    for name in ("keras-bert-test_checkpoint", "google-bert-medium-index-only", "google-chinese-base-index-only"):
        source = real_data / "checkpoints" / name / "bert_model.ckpt"
        bundle = TensorBundle(source)
        entries = {name: tensor_bundle._encode_entry(entry) for name, entry in bundle.entries.items()}
        write_index(tmp_path / "x", entries)
        assert index_path(tmp_path / "x").read_bytes() == index_path(source).read_bytes()
        counts.append(len(entries))
    assert counts == [139, 142, 206]
    source = real_data / "checkpoints" / "keras-bert-test_checkpoint" / "bert_model.ckpt"
    bundle = TensorBundle(source)
    write_bundle(tmp_path / "y", {name: bundle.read(name) for name in bundle.entries})
    for ending in (".index", ".data-00000-of-00001"):
        assert Path(f"{tmp_path / 'y'}{ending}").read_bytes() == Path(f"{source}{ending}").read_bytes()
