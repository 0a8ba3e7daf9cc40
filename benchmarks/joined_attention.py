"""Training steps on short texts of many lengths: runs of similar lengths joined, against one call for each length.

    python benchmarks/joined_attention.py [--sizes tiny,mini,small] [--precisions bf16,fp32] [--dropout 0.1]
        [--rounds 7]

A step is the forward and the backward pass of an encoder over about 1,400 tokens, in one thread: rows of 40 to 64
tokens, as in pre-training on sentences, or of 5 to 30, as in fine-tuning on short texts; the last layer computes 30% of
the positions, or the first one. `--dropout` is that of attention weights and of states. The unit is milliseconds of the
processor, the median over rounds in which the variants take turns; the ratio is that of runs apart to joined ones, with
the lowest and the highest of a round. A variant is the number of empty weights for which a call is saved
(`_WEIGHTS_OF_A_CALL` in `models/parts/runs.py`); 0 joins nothing. Before timing, the gradients of the word table are
compared.
"""

import argparse
import itertools
import os
import statistics
import time
from collections.abc import Callable, Sequence

os.environ["OMP_NUM_THREADS"] = "1"

import numpy as np
import torch
from harness import machine, machine_label, write_result

from bertsmith.models.checkpoints.assembly import untrained
from bertsmith.models.parts import runs
from bertsmith.models.parts.batch import Batch, Read
from bertsmith.models.parts.config import BertConfig
from bertsmith.models.parts.noise import noise_for

VOCABULARY, TOKENS = 4000, 1400
ROWS = {"sentences": (40, 64, 0.3), "short texts": (5, 30, 0.0)}  # shortest, longest, share of positions that are read
VARIANTS = (0, 2**14, 2**16, 2**18)
STEPS = 5  # of one measurement
MOST_ERROR = 0.05  # of the norm of a gradient


def batch_of(shortest: int, longest: int, share: float) -> tuple[Batch, Read]:
    """A batch in order of length, and the positions of it that are read."""
    draw = np.random.default_rng(7)
    count = 2 * TOKENS // (shortest + longest)
    lengths = np.sort(draw.integers(shortest, longest + 1, size=count))
    ids = draw.integers(VOCABULARY, size=int(lengths.sum()))
    firsts = np.cumsum(lengths) - lengths
    is_read = draw.random(len(ids)) < share
    is_read[firsts] = True
    batch = Batch.from_flat(ids, np.zeros_like(ids), lengths.tolist())
    return batch, Read.at(batch, np.flatnonzero(is_read))


def step_of(size: str, precision: str, dropout: float, batch: Batch, read: Read) -> Callable[[int], torch.Tensor]:
    """A training step, given a variant: the gradient of the word table."""
    rates = {"hidden_dropout_prob": dropout, "attention_probs_dropout_prob": dropout}
    config = BertConfig.named(size, vocab_size=VOCABULARY, **rates)
    dtype = {"bf16": torch.bfloat16, "fp32": torch.float32}[precision]
    encoder = untrained(config, seed=1).encoder

    def step(most: int) -> torch.Tensor:
        runs._WEIGHTS_OF_A_CALL = most or -1
        fresh = Batch.from_flat(batch.token_ids.numpy(), batch.segment_ids.numpy(), batch.lengths)
        encoder.zero_grad()
        noise = noise_for(1, 0, range(len(fresh.lengths)), torch.device("cpu")) if dropout else None
        hidden = encoder(fresh, read=Read.at(fresh, read.positions.numpy()), dtype=dtype, noise=noise)
        (hidden.float() * torch.linspace(-1, 1, hidden.numel()).view_as(hidden)).mean().backward()
        gradient = encoder.word_table.grad
        assert gradient is not None
        return gradient.clone()

    return step


def measured(step: Callable[[int], torch.Tensor], rounds: int) -> dict[int, list[float]]:
    """Milliseconds of the processor per step, for each variant and round."""
    seconds: dict[int, list[float]] = {variant: [] for variant in VARIANTS}
    for _ in range(rounds):
        for variant in VARIANTS:
            begin = time.process_time()
            for _ in range(STEPS):
                step(variant)
            seconds[variant].append(1000 * (time.process_time() - begin) / STEPS)
    return seconds


def main(arguments: Sequence[str] | None = None) -> None:
    """Measures all cases, and prints a line for each."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--sizes", default="tiny,mini,small")
    parser.add_argument("--precisions", default="bf16")
    parser.add_argument("--dropout", type=float, default=0.0)
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    cells = []
    for size, precision, name in itertools.product(options.sizes.split(","), options.precisions.split(","), ROWS):
        batch, read = batch_of(*ROWS[name])
        step = step_of(size, precision, options.dropout, batch, read)
        exact = step(0)
        for variant in VARIANTS[1:]:
            error = float((step(variant) - exact).norm() / exact.norm())
            assert error <= MOST_ERROR, (size, precision, name, variant, error)
        times = measured(step, options.rounds)
        cells.append({"size": size, "precision": precision, "rows": name, "milliseconds": {}, "ratio": {}})
        for variant, values in times.items():
            ratios = sorted(apart / joined for apart, joined in zip(times[0], values, strict=True))
            cells[-1]["milliseconds"][str(variant)] = round(statistics.median(values), 2)
            cells[-1]["ratio"][str(variant)] = [
                round(value, 3) for value in (statistics.median(ratios), ratios[0], ratios[-1])
            ]
        print(size, precision, name, cells[-1]["milliseconds"], cells[-1]["ratio"])
    described = machine()
    label = f"{machine_label(described)}_torch-{described['packages']['torch']}"
    settings = {"rounds": options.rounds, "tokens": TOKENS, "dropout": options.dropout, "unit": "milliseconds"}
    with_dropout = "_dropout" if options.dropout else ""
    write_result(
        f"joined_attention{with_dropout}_{label}", {"machine": described, "settings": settings, "cells": cells}
    )


if __name__ == "__main__":
    main()
