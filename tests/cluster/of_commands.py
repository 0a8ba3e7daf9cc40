"""A program that runs a command on a cluster and kills itself in the middle; see test_commands.py."""

import contextlib
import json
import os
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from bertsmith.app.cli.app import main
from bertsmith.app.library import lines
from bertsmith.inference.cluster import corpus, engine, kept, predictions, vectors, words
from bertsmith.inference.predictors import resumable_predictions
from bertsmith.inference.predictors.predictor import Predictor
from bertsmith.inference.vectors import jobs
from cluster.conftest import stream_here

Patch = Callable[[Any, str, Any], None]


def cut_small(patch: Patch) -> None:
    """Has commands compute blocks of three lines, pass each of them on by itself, and keep it."""
    patch(kept, "KEPT_BYTES", 1)
    patch(engine, "_STREAMED_BYTES", 1)
    for cls in (jobs.TextVectors, jobs.TokenVectorsOfTexts):
        patch(cls, "block", 3)
    patch(Predictor.stream, "__defaults__", (3, None))
    for module in (predictions, lines):
        patch(module, "BLOCK", 3)
    patch(resumable_predictions, "_SAVED_LINES", 1)


def watch(patch: Patch, address: str, log: Path, stop: int | None = None) -> None:
    """Has commands write the place of each result that arrives to a file, one a line, and one for a block of vectors.

    Args:
        address: of the cluster; empty for workers in this process.
        stop: the number of results after which this process is killed, before it has the next one.
    """
    real = engine.stream if address else stream_here

    def stream(*arguments: Any) -> Iterator[Any]:
        for number, table in enumerate(real(*arguments)):
            if number == stop:
                os.kill(os.getpid(), signal.SIGKILL)
            with open(log, "a", encoding="utf-8") as file:
                file.writelines(json.dumps(place_of(row)) + "\n" for row in table.to_pylist() if row.get("ends", True))
            yield table

    for module in (corpus, predictions, vectors, words):
        patch(module, "stream", stream)
    if not address:
        patch(predictions, "held", lambda engine: contextlib.nullcontext())


def place_of(row: dict[str, Any]) -> list[Any]:
    """Which part of the input a result belongs to."""
    if "source" in row:
        return [row["source"], row["item"]]
    return [int(row["first"])] if "first" in row else [json.loads(row["record"])["file"]["name"]]


if __name__ == "__main__":
    cut_small(setattr)
    watch(setattr, sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]))
    sys.argv[1:4] = []
    main()
