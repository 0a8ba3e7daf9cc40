"""Encoding with freed memory kept for the next layer, as it is by default, against the C library's own way.

    python benchmarks/encoding_memory.py --model DIR [--precision int8] [--passes 12] [--rounds 5]

Both sides are `load_embedder` and its encoder in one thread; one without `keep_freed_memory` (`allocator.py`). They
take turns, each time in a new process, since the C library does not forget. Rows are random ids of three kinds: 32
tokens each, 128 each, and 5 to 60. The vectors have to be equal. Seconds are those of the processor for a pass.
"""

import argparse
import functools
import json
import os
import subprocess
import sys
import time
from unittest import mock

os.environ["OMP_NUM_THREADS"] = "1"

import numpy as np
import torch
from harness import interleave, machine, machine_label, ratio_summary, spread, write_result

from bertsmith.base.core.progress import quiet
from bertsmith.base.storage.files import digest_bytes
from bertsmith.inference.vectors.loading import load_embedder
from bertsmith.models.products import prepared
from bertsmith.text.tokenizers.pack import PackedRows

SIDES = ("kept", "glibc")


def lengths_of_cases() -> dict[str, list[int]]:
    """The lengths of the rows of each case."""
    mixed = np.random.default_rng(0).integers(5, 61, 96)
    return {"48 rows of 32": [32] * 48, "16 rows of 128": [128] * 16, "96 rows of 5 to 60": mixed.tolist()}


def encode_once(model: str, precision: str, side: str, passes: int) -> None:
    """Encodes in this process, and prints seconds of a pass and digest of the vectors for each case, as JSON."""
    torch.set_num_threads(1)
    if side == "glibc":
        mock.patch.object(prepared, "keep_freed_memory").start()
    with quiet():
        embedder = load_embedder(model, pooling="mean", normalize=False, device="cpu", precision=precision)
    generator, results = np.random.default_rng(1), {}
    for name, lengths in lengths_of_cases().items():
        ids = generator.integers(0, len(embedder.encoder.tokenizer.vocabulary), sum(lengths)).astype(np.int32)
        rows = PackedRows(ids, np.zeros_like(ids), np.array(lengths, np.int32), np.zeros(len(lengths), np.int32))
        for _ in range(4):  # `torch.jit` takes over after some calls
            vectors = embedder.encoder.row_vectors(rows, embedder.choice, "mean")
        start = time.process_time()
        for _ in range(passes):
            embedder.encoder.row_vectors(rows, embedder.choice, "mean")
        results[name] = (time.process_time() - start) / passes, digest_bytes(vectors.tobytes())
    print(json.dumps(results))


def main() -> None:
    """Measures every case and writes the result."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True, help="folder of a model; for int8, one that `quantize` wrote")
    parser.add_argument("--precision", default="int8")
    parser.add_argument("--passes", type=int, default=12)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--once", choices=SIDES, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.once:
        encode_once(options.model, options.precision, options.once, options.passes)
        return
    measured: dict[str, list[dict[str, tuple[float, str]]]] = {side: [] for side in SIDES}

    def run(side: str) -> None:
        done = subprocess.run([sys.executable, *sys.argv, "--once", side], check=True, capture_output=True, text=True)
        measured[side].append(json.loads(done.stdout))

    interleave({side: functools.partial(run, side) for side in SIDES}, options.rounds)
    cells = {}
    for case in lengths_of_cases():
        assert len({line[case][1] for lines in measured.values() for line in lines}) == 1, "equal vectors"
        seconds = {side: [line[case][0] for line in lines] for side, lines in measured.items()}
        cells[case] = {
            "times as fast": ratio_summary(seconds["kept"], seconds["glibc"]),
            "seconds of a pass": {side: spread(values) for side, values in seconds.items()},
        }
        print(case, cells[case], flush=True)
    described = machine()
    name = f"encoding_memory_{options.precision}_{machine_label(described)}_torch-{described['packages']['torch']}"
    settings = {"precision": options.precision, "passes": options.passes, "threads": 1}
    write_result(name, {"machine": described, "settings": settings, "cases": cells})


if __name__ == "__main__":
    main()
