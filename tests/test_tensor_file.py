"""Files of tensors that are written one after another have the bytes of the library."""

import io

import pytest
import safetensors.torch
import torch

from bertsmith.base.storage.tensor_file import order_of, write_tensors


def written(tensors: dict[str, torch.Tensor], **options: object) -> bytes:
    file = io.BytesIO()
    write_tensors(file, tensors, **options)
    return file.getvalue()


@pytest.mark.parametrize("metadata", [None, {"format": "pt"}])
def test_the_bytes_are_those_of_the_library(metadata: dict[str, str] | None) -> None:
    tensors = {
        "b.weight": torch.arange(6.0).view(2, 3),
        "a": torch.tensor(7),
        "halves": torch.ones(3, dtype=torch.bfloat16),
        'ä "quoted"': torch.zeros(0, 4),
        "wide": torch.rand(2, 2, dtype=torch.float64),
    }
    assert written(tensors, metadata=metadata) == safetensors.torch.save(tensors, metadata=metadata)
    assert written({}) == safetensors.torch.save({})


def test_each_tensor_is_asked_for_when_it_is_written() -> None:
    tensors = {"b": torch.ones(2), "a": torch.zeros(3), "n": torch.tensor([1])}
    assert order_of(tensors) == ["n", "a", "b"]
    file, asked = io.BytesIO(), []

    def values():
        for name in order_of(tensors):
            asked.append((name, file.tell()))
            yield tensors[name]

    write_tensors(file, {name: tensor.to("meta") for name, tensor in tensors.items()}, values())
    start = asked[0][1]
    assert asked == [("n", start), ("a", start + 8), ("b", start + 20)]
    assert file.getvalue() == safetensors.torch.save(tensors)
    assert torch.equal(safetensors.torch.load(file.getvalue())["a"], torch.zeros(3))
