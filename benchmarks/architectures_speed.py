"""Encoding on the processor: the architectures that other people bring, against `transformers`.

    python benchmarks/architectures_speed.py [--rounds 3] [--layers 3] [--lengths 128 512 1024 8192]

Models of width 768 with random weights, three layers (of ModernBERT one with global and two with local attention, about
its usual ratio), fp32, one thread, processor seconds. Rows have lengths from half of the given length up to it, but for
a single row of 8,192 tokens. `transformers` gets them sorted by length and padded to the longest of a batch, with its
fused attention where the architecture has it, in the best of its batch sizes. The mean of the last hidden states is the
vector of a row; vectors are compared before the clock starts. The sides take turns.

Of ModernBERT there is a third side: ours with the products of all queries and keys and a mask in local layers, instead
of blocks. A cell that is in the result file already is not measured again.
"""

import argparse
import json
import os
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from unittest import mock

os.environ["OMP_NUM_THREADS"] = "1"

import numpy as np
import torch
import transformers
from harness import RESULTS, interleave, machine, machine_label, ratio_summary, spread, write_result

from bertsmith.base.core.randomness import generator
from bertsmith.base.machine.runtime import choose_inference
from bertsmith.models.checkpoints.assembly import load_pretrained
from bertsmith.models.checkpoints.huggingface import read_model_folder
from bertsmith.models.heads.row_vectors import pool_rows
from bertsmith.models.parts import attention
from bertsmith.models.parts.batch import Batch, cut_by_tokens
from bertsmith.models.products.prepared import prepare

VOCABULARY = 30000
ROWS = {128: 32, 512: 8, 1024: 4, 8192: 1}
CELLS = (
    ("modernbert", 128),
    ("modernbert", 512),
    ("modernbert", 1024),
    ("modernbert", 8192),
    ("electra", 128),
    ("albert", 128),
    ("xlm-roberta", 128),
    ("mpnet", 128),
    ("electra", 512),
    ("albert", 512),
    ("xlm-roberta", 512),
    ("mpnet", 512),
)
BATCHES = (1, 8, 32)
MICRO_TOKENS = 2048  # of our batches; a longer row is a batch of its own
ROOM = 1e-4

Rows = list[np.ndarray]


def peer_of(kind: str, layers: int) -> transformers.PreTrainedModel:
    """A model of `transformers` with random weights."""
    shape = {
        "vocab_size": VOCABULARY,
        "hidden_size": 768,
        "num_hidden_layers": layers,
        "num_attention_heads": 12,
        "pad_token_id": 1 if kind in ("xlm-roberta", "mpnet") else 0,
    }
    fields = {
        "modernbert": {"intermediate_size": 1152, "max_position_embeddings": 8192},
        "electra": {"intermediate_size": 3072, "embedding_size": 128},
        "albert": {"intermediate_size": 3072, "embedding_size": 128},
    }.get(kind, {"intermediate_size": 3072, "max_position_embeddings": 514, "type_vocab_size": 1})
    torch.manual_seed(0)
    config = transformers.AutoConfig.for_model(kind, **shape, **fields)
    fused = {} if kind == "mpnet" else {"attn_implementation": "sdpa"}
    return transformers.AutoModel.from_config(config, **fused).eval()


def rows_of(length: int) -> Rows:
    """Random rows of a length or, if there are several, of lengths from half of it."""
    source = generator(1, "rows", length)
    count = ROWS[length]
    lengths = [length] if count == 1 else source.integers(length // 2, length + 1, count)
    return [source.integers(10, VOCABULARY, size) for size in lengths]


def theirs(model: transformers.PreTrainedModel, rows: Rows, batch: int) -> torch.Tensor:
    """The vectors of the rows, sorted and padded."""
    vectors = torch.empty(len(rows), model.config.hidden_size)
    order = np.argsort([len(row) for row in rows], kind="stable")
    for part in np.split(order, range(batch, len(order), batch)):
        ids = [torch.from_numpy(rows[index]) for index in part]
        padded = torch.nn.utils.rnn.pad_sequence(ids, batch_first=True, padding_value=model.config.pad_token_id)
        mask = torch.arange(padded.shape[1]) < torch.tensor([len(row) for row in ids])[:, None]
        hidden = model(input_ids=padded, attention_mask=mask.long()).last_hidden_state
        vectors[part] = (hidden * mask.unsqueeze(2)).sum(1) / mask.sum(1, keepdim=True)
    return vectors


def ours(model: torch.nn.Module, rows: Rows) -> torch.Tensor:
    """The vectors of the rows, sorted, without padding."""
    lengths = np.array([len(row) for row in rows])
    order = np.argsort(lengths, kind="stable")
    vectors = torch.empty(len(rows), model.config.hidden_size)
    for part in cut_by_tokens(order, lengths, MICRO_TOKENS):
        flat = np.concatenate([rows[index] for index in part])
        batch = Batch.from_flat(flat, np.zeros_like(flat), lengths[part])
        vectors[part] = pool_rows(model(batch), batch.lengths)
    return vectors


def best_batch(model: transformers.PreTrainedModel, rows: Rows) -> int:
    """The batch size that takes the peer the least time."""
    seconds = {}
    for size in [size for size in BATCHES if size <= len(rows)]:
        start = time.process_time()
        theirs(model, rows, size)
        seconds[size] = time.process_time() - start
    return min(seconds, key=seconds.__getitem__)


def measured(kind: str, length: int, layers: int, rounds: int) -> dict[str, Any]:
    """One cell: the times of all sides, and the ratios."""
    peer, rows = peer_of(kind, layers), rows_of(length)
    with tempfile.TemporaryDirectory() as folder:
        peer.save_pretrained(folder)
        encoder = load_pretrained(read_model_folder(Path(folder))).model.encoder.eval()
    runtime = choose_inference("cpu", "fp32")
    prepare(encoder, runtime)
    batch = 1 if len(rows) == 1 else best_batch(peer, rows)
    expected, actual = theirs(peer, rows, batch), ours(encoder, rows)
    difference = float((expected - actual).abs().max())
    assert difference < ROOM, f"vectors differ by {difference}"
    sides: dict[str, Callable[[], Any]] = {
        "ours": lambda: ours(encoder, rows),
        "transformers": lambda: theirs(peer, rows, batch),
    }
    if kind == "modernbert" and length > 128:

        def masked() -> torch.Tensor:
            with mock.patch.object(attention, "is_blocked", return_value=False):
                return ours(encoder, rows)

        assert float((masked() - actual).abs().max()) < ROOM, "blocks change nothing"
        sides["ours with masks"] = masked
    seconds = interleave(sides, rounds, clock=time.process_time)
    tokens = sum(map(len, rows))
    return {
        "architecture": kind,
        "length": length,
        "rows": len(rows),
        "tokens": tokens,
        "batch_of_transformers": batch,
        "products": runtime.products,
        "largest_difference": difference,
        "tokens_per_second": {name: spread([tokens / elapsed for elapsed in times]) for name, times in seconds.items()},
        "times_as_fast": {
            name: ratio_summary(seconds["ours"], times) for name, times in seconds.items() if name != "ours"
        },
        "seconds": seconds,
    }


@torch.inference_mode()
def main(arguments: Sequence[str] | None = None) -> None:
    """Measures the cells that are not in the result file, and writes each as it is done."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--layers", type=int, default=3)
    parser.add_argument("--lengths", type=int, nargs="+", choices=tuple(ROWS), default=list(ROWS))
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    described = machine()
    name = f"architectures_speed_{machine_label(described)}_torch-{torch.__version__}"
    path = RESULTS / f"{name}.json"
    cells = json.loads(path.read_text())["cells"] if path.exists() else []
    for kind, length in CELLS:
        done = any((cell["architecture"], cell["length"]) == (kind, length) for cell in cells)
        if done or length not in options.lengths:
            continue
        print(kind, length, flush=True)
        cells.append(measured(kind, length, options.layers, options.rounds))
        print("  ", cells[-1]["times_as_fast"], flush=True)
        write_result(name, {"machine": described, "layers": options.layers, "threads": 1, "cells": cells})


if __name__ == "__main__":
    main()
