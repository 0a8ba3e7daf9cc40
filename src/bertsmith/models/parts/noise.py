"""Dropout noise, passed to the model as an argument.

A model drops nothing unless it receives noise. On the CPU the noise of a sequence is a function of (seed, step, row):
it does not depend on how a step is split into micro-batches, on ranks, or on restarts. On a GPU, where the fused
attention kernel draws its own noise, it is a function of (seed, step, first row of the micro-batch).
"""

import copy
from collections.abc import Sequence
from typing import Protocol

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from bertsmith.base.core.randomness import derive, generator


class Noise(Protocol):
    """The source of random bits for dropout."""

    def keep(self, probability: float, sizes: Sequence[int], dtype: torch.dtype) -> Tensor:
        """1 where an element is kept, 0 where it is dropped: [sum(sizes)], `sizes[i]` elements for row i."""
        ...

    def keep_in_step(self, probability: float, name: str, size: int, dtype: torch.dtype) -> Tensor:
        """1 where an element is kept, [size], the same for all rows of the step; dropout of weights has a name."""
        ...


def dropped(x: Tensor, noise: Noise | None, probability: float, counts: Sequence[int]) -> Tensor:
    """`x` [T, W] after dropout; the elements that are kept make up for the others."""
    if noise is None or not probability:
        return x
    keep = noise.keep(probability, [count * x.shape[1] for count in counts], x.dtype)
    return x * keep.view_as(x) * (1 / (1 - probability))


class RowNoise:
    """Noise per sequence, for the CPU.

    Each draw has 16 bits, so probabilities are accurate to 1/65536. Each row has one generator, which serves the
    dropout layers in the order of the forward pass.
    """

    def __init__(self, seed: int, step: int, row_ids: Sequence[int]) -> None:
        self._generators = [generator(seed, "dropout", step, row) for row in row_ids]
        self._seed, self._step = seed, step

    def keep(self, probability: float, sizes: Sequence[int], dtype: torch.dtype) -> Tensor:
        """See `Noise.keep`; the elements of a row depend on that row alone."""
        bits = np.empty(sum(sizes), dtype=np.uint16)
        start = 0
        for source, size in zip(self._generators, sizes, strict=True):
            bits[start : start + size] = _words(source, size)
            start += size
        return _kept(bits, probability, dtype)

    def keep_in_step(self, probability: float, name: str, size: int, dtype: torch.dtype) -> Tensor:
        """See `Noise.keep_in_step`; a function of (seed, step, name)."""
        return _kept(_words(generator(self._seed, f"dropout of {name}", self._step), size), probability, dtype)


class NoiseOfTexts:
    """The noise of rows for the sequences of their texts, which share the generator of the row, first text first."""

    def __init__(self, noise: Noise, places: Sequence[int]) -> None:
        self._noise, self._places = noise, places

    def keep(self, probability: float, sizes: Sequence[int], dtype: torch.dtype) -> Tensor:
        """See `Noise.keep`; the elements of a sequence depend on its row alone."""
        in_rows = [sizes[sequence] for sequence in self._places]
        of_rows = [first + second for first, second in zip(in_rows[::2], in_rows[1::2], strict=True)]
        parts = self._noise.keep(probability, of_rows, dtype).split_with_sizes(in_rows)
        return torch.cat([parts[number] for number in np.argsort(self._places)])

    def keep_in_step(self, probability: float, name: str, size: int, dtype: torch.dtype) -> Tensor:
        """See `Noise.keep_in_step`."""
        return self._noise.keep_in_step(probability, name, size, dtype)


class NoiseOfSome:
    """The noise of a batch for some of its rows."""

    def __init__(self, noise: Noise, rows: Sequence[int], total: int) -> None:
        self._noise, self._rows, self._total = noise, rows, total

    def keep(self, probability: float, sizes: Sequence[int], dtype: torch.dtype) -> Tensor:
        """See `Noise.keep`; the rows are ascending."""
        of_all = [0] * self._total
        for row, size in zip(self._rows, sizes, strict=True):
            of_all[row] = size
        return self._noise.keep(probability, of_all, dtype)

    def keep_in_step(self, probability: float, name: str, size: int, dtype: torch.dtype) -> Tensor:
        """See `Noise.keep_in_step`."""
        return self._noise.keep_in_step(probability, name, size, dtype)


class DeviceNoise:
    """Noise per micro-batch, for CUDA; also seeds the device's default generator, which the attention kernel uses."""

    def __init__(self, seed: int, step: int, row_ids: Sequence[int], device: torch.device) -> None:
        self._generator = torch.Generator(device)
        self._generator.manual_seed(derive(seed, "dropout", step, row_ids[0]) >> 1)
        self._device, self._seed, self._step = device, seed, step
        with torch.cuda.device(device):
            torch.cuda.manual_seed(derive(seed, "attention dropout", step, row_ids[0]) >> 1)

    def __deepcopy__(self, _: object) -> "DeviceNoise":
        """Noise that draws what this one will draw, without changing it; the generator of the kernel stays shared."""
        copied = copy.copy(self)
        copied._generator = self._generator.clone_state()
        return copied

    def keep(self, probability: float, sizes: Sequence[int], dtype: torch.dtype) -> Tensor:
        """See `Noise.keep`."""
        kept = torch.empty(sum(sizes), dtype=dtype, device=self._device)
        return kept.bernoulli_(1 - probability, generator=self._generator)

    def keep_in_step(self, probability: float, name: str, size: int, dtype: torch.dtype) -> Tensor:
        """See `Noise.keep_in_step`; a function of (seed, step, name)."""
        drawn = torch.Generator(self._device)
        drawn.manual_seed(derive(self._seed, f"dropout of {name}", self._step) >> 1)
        return torch.empty(size, dtype=dtype, device=self._device).bernoulli_(1 - probability, generator=drawn)


def _words(source: np.random.Generator, size: int) -> npt.NDArray[np.uint16]:
    """`size` words of 16 random bits."""
    return source.bit_generator.random_raw(-(-size // 4)).view(np.uint16)[:size]


def _kept(bits: npt.NDArray[np.uint16], probability: float, dtype: torch.dtype) -> Tensor:
    """1 where 16 random bits keep an element, 0 where they drop it."""
    # Compared as signed numbers, because torch cannot compare unsigned ones; the threshold is shifted to match.
    threshold = round(probability * 2**16) - 2**15
    return torch.from_numpy(bits.view(np.int16)).ge(threshold).to(dtype)


def noise_for(seed: int, step: int, row_ids: Sequence[int], device: torch.device) -> Noise:
    """The noise for the rows of a micro-batch on a device."""
    return RowNoise(seed, step, row_ids) if device.type == "cpu" else DeviceNoise(seed, step, row_ids, device)
