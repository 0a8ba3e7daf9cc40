"""Many adapters on one served encoder: memory and throughput, against merged weights for each.

    python benchmarks/served_adapters.py --data DIR [--adapters 8] [--rank 8] [--texts 512] [--rounds 5]

Three servers run next to each other and take turns: one adapter with merged weights; all adapters, each with merged
weights; all adapters on one encoder, which a batch may mix. 64 clients send one text each and name the adapters in
turn ("mixed"), or all name the first one, then all the second one ("one at a time"). The adapters are classifiers of
six labels on queries and values, with random numbers: what they answer does not matter for time or memory. Before
timing, the probabilities of both servers of all adapters are compared.

Time is processor seconds of the servers, clients not counted. Memory is the resident memory of a server after the
same texts, and what each further adapter adds to it.
"""

import argparse
import asyncio
import contextlib
import json
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import torch
from encode_texts import LONG, SHORT, packaged_model, read_pools
from harness import interleave, machine, machine_label, ratio_summary, spread, write_result
from server_process import Process, Reply, ask_all, request_bytes, served

from bertsmith.base.core.progress import quiet
from bertsmith.models.checkpoints.adapters import groups_of_targets, write_adapter
from bertsmith.models.checkpoints.assembly import load_for_task, save_pretrained
from bertsmith.models.checkpoints.load import load_any
from bertsmith.models.model_files.metadata import ModelMetadata
from bertsmith.models.parts.low_rank import add_adapters, merge_adapters
from bertsmith.tasks.specs.kinds import task_for
from bertsmith.tasks.specs.task import TaskSpec

CLIENTS = 64
LABELS = ("a", "b", "c", "d", "e", "f")
MIXES = {"short": SHORT, "long": LONG}
BOUND = 1e-4  # largest difference of two probabilities in fp32
SCALE = 2.0


def write(base: Path, folder: Path, rank: int, seed: int) -> None:
    """Writes an adapter of random numbers to `folder/adapter`, and its merged model to `folder/model`."""
    spec = TaskSpec(kind="classification", name="classification", labels=LABELS)
    source, head = load_any(base), task_for(spec).head
    model = load_for_task(source, head, keep_head=False, seed=seed).model.eval()
    groups = groups_of_targets(source.config, None)
    add_adapters(model, groups, rank, SCALE, seed)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "lora_B" in name:
                parameter.add_(0.01 * torch.randn(parameter.shape, generator=generator))
    factors = merge_adapters(model, groups)
    metadata = ModelMetadata(task=spec.kind, labels=spec.labels, spec=spec.to_dict())
    trained = (head.saved_part, "pooler")
    save_pretrained(folder / "model", model, source.require_tokenizer(), metadata, trained=trained)
    write_adapter(folder / "adapter", load_any(folder / "model"), factors, SCALE, source)


def requests_of(texts: Sequence[str], names: Sequence[str]) -> list[bytes]:
    """A request for each text, which names one of the adapters."""
    pairs = zip(texts, names, strict=True)
    return [request_bytes("/predict", {"model": name, "texts": [text]}) for text, name in pairs]


def probabilities(replies: Sequence[Reply]) -> np.ndarray:
    """The probabilities in the replies, [E, K]."""
    assert {reply.status for reply in replies} == {200}, {reply.status for reply in replies}
    answers = [json.loads(reply.body)["predictions"][0]["probabilities"] for reply in replies]
    return np.array([[answer[label] for label in LABELS] for answer in answers])


def measured(servers: dict[str, Process], texts: Sequence[str], count: int, rounds: int) -> dict[str, Any]:
    """Texts per processor second of each server and order of requests, and how their times compare."""
    in_turn = [f"a{number % count}" for number in range(len(texts))]
    mixed, sorted_ = requests_of(texts, in_turn), requests_of(texts, sorted(in_turn))
    first = requests_of(texts, ["a0"] * len(texts))
    sides = {
        "one, merged": lambda: asyncio.run(ask_all(servers["one, merged"], first, CLIENTS)),
        "merged, mixed": lambda: asyncio.run(ask_all(servers["merged"], mixed, CLIENTS)),
        "merged, one at a time": lambda: asyncio.run(ask_all(servers["merged"], sorted_, CLIENTS)),
        "shared, mixed": lambda: asyncio.run(ask_all(servers["shared"], mixed, CLIENTS)),
        "shared, one at a time": lambda: asyncio.run(ask_all(servers["shared"], sorted_, CLIENTS)),
    }
    answers = {name: probabilities(side()) for name, side in sides.items()}
    difference = float(np.abs(answers["merged, mixed"] - answers["shared, mixed"]).max())
    assert difference <= BOUND, f"the probabilities differ by {difference}"
    seconds = interleave(sides, rounds, clock=lambda: sum(server.seconds_worked() for server in servers.values()))
    return {
        "largest_difference": difference,
        "texts_per_processor_second": {
            name: spread([len(texts) / value for value in values]) for name, values in seconds.items()
        },
        "speed_of_shared_mixed_by_that_of": {
            name: ratio_summary(seconds["shared, mixed"], seconds[name]) for name in seconds if name != "shared, mixed"
        },
    }


def main() -> None:
    """Measures, prints and writes the result."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--data", type=Path, required=True, help="folder with glue/ and squad/")
    parser.add_argument("--model", type=Path, default=packaged_model(), help="the base [the packaged 6-layer model]")
    parser.add_argument("--adapters", type=int, default=8)
    parser.add_argument("--rank", type=int, default=8)
    parser.add_argument("--texts", type=int, default=512, help="short texts; a quarter as many long ones")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    pools, about = read_pools(options.data), machine()
    with tempfile.TemporaryDirectory() as work, contextlib.ExitStack() as running, quiet():
        folder = Path(work)
        for number in range(options.adapters):
            write(options.model, folder / f"a{number}", options.rank, number)
        merged = [f"a{number}={folder / f'a{number}' / 'model'}" for number in range(options.adapters)]
        adapters = [f"a{number}={folder / f'a{number}' / 'adapter'}" for number in range(options.adapters)]
        sources = {"one, merged": merged[:1], "merged": merged, "shared, two": adapters[:2], "shared": adapters}
        servers = {name: running.enter_context(served(each, threads=1)) for name, each in sources.items()}
        memory = {}
        for name, server in servers.items():
            rows = [text for each in MIXES.values() for text in pools.texts[each][: options.texts // 4]]
            in_turn = [f"a{number % len(sources[name])}" for number in range(len(rows))]
            asyncio.run(ask_all(server, requests_of(rows, in_turn), CLIENTS))
            memory[name] = round(server.resident_mb())
        more = options.adapters - 1
        each = {
            "merged": round((memory["merged"] - memory["one, merged"]) / more, 1),
            "shared": round((memory["shared"] - memory["shared, two"]) / (more - 1), 1),
        }
        print(memory, each, flush=True)
        cases = {}
        for mix, rows in MIXES.items():
            texts = pools.texts[rows][: options.texts // (1 if mix == "short" else 4)]
            cases[mix] = measured(servers, texts, options.adapters, options.rounds)
            print(mix, json.dumps(cases[mix], indent=1), flush=True)
    settings = {"clients": CLIENTS, "adapters": options.adapters, "rank": options.rank, "rounds": options.rounds}
    out = f"served_adapters_{machine_label(about)}_torch-{about['packages']['torch']}"
    result = {"machine": about, **settings, "resident_mb": memory, "mb_of_each_further_adapter": each, "cases": cases}
    write_result(out, result)


if __name__ == "__main__":
    main()
