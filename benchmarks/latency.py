"""Latency: one text of 32 tokens on a warm system, and the time from process start to the first vector.

    python benchmarks/latency.py --data DIR [--models minilm,base] [--precisions fp32,bf16,int8] [--rounds 7] [--cold 5]

Warm: systems, settings, checks and interleaving are those of `encode_speed.py`. A round sends 20 single texts to each
system, and the result is milliseconds per text. A peer's best setting is its fastest configuration.

Cold: each system is the shortest script that a user would write for one text, tokenizer included: imports, loading,
tokenizing, encoding. Its vector is compared with ours in fp32. The scripts take turns, each in its own process, with
their files already in the page cache. Models are converted beforehand. Both wall-clock and CPU time are recorded.
`ours` is `bertsmith.load`, which in fp32 builds the graph of the model folder and does not import torch; `ours-torch`
imports it first. `ours-onnx` answers from our own export and does not import torch either.

Models and precisions may be run one by one: the result file keeps the others.
"""

import argparse
import os
import resource
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from encode_peers import PEERS, OnnxRuntime, OpenVino, Ours, OursOnnx, versions
from encode_speed import MODELS, MOST_DIFFERENCE, add_shared_options, benches, cosine, table
from encode_systems import System, UnavailableError, Vectors
from encode_texts import Case, Pools, read_pools, rows_of
from harness import RESULTS, machine, machine_label, ratio_summary, spread, write_result
from peer_models import ModelFiles

from bertsmith.base.core.progress import quiet
from bertsmith.base.storage.files import read_json
from bertsmith.inference.vectors.loading import load_embedder
from bertsmith.models.checkpoints.load import load_any
from bertsmith.text.tokenizers.tokenizer import Tokenizer

LENGTH, ASKED = 32, 20
IN_TORCH = "ours-torch"  # a first vector of ours in a program that imports torch itself
TEXT = "the film is a charming and often affecting journey through the lives of people who never meet"
# The script of a cold start; its arguments are folder, converted model, pooling, precision, threads and text.
BEGIN = "import sys; folder, path, pooling, precision, threads, text = sys.argv[1:]; threads = int(threads)\n"
TORCH_BEGIN = "import torch; torch.set_num_threads(threads); dtype = {'fp32': torch.float32, 'bf16': torch.bfloat16}\n"
WITH_TOKENIZER = """
import numpy as np
from tokenizers import Tokenizer
tokenizer = Tokenizer.from_file(folder + "/tokenizer.json")
tokenizer.no_padding()
tokenizer.no_truncation()
ids = np.array([tokenizer.encode(text).ids])
inputs = {"input_ids": ids, "attention_mask": np.ones_like(ids), "token_type_ids": np.zeros_like(ids)}
"""
SCRIPTS = {
    "ours": """
import bertsmith
model = bertsmith.load(path, device="cpu", precision=precision)
vector = model.embed([text], pooling=pooling, normalize=False)[0]
""",
    "ours-torch": """
import torch
from bertsmith.inference.vectors.loading import load_embedder
embedder = load_embedder(path, pooling=pooling, normalize=False, device="cpu", precision=precision)
vector = embedder.embed([text])[0]
""",
    "ours-plain": """
from bertsmith.inference.vectors.loading import load_embedder
embedder = load_embedder(
    folder, pooling=pooling, normalize=False, device="cpu", precision=precision, products="plain"
)
vector = embedder.embed([text])[0]
""",
    "ours-onnx": """
from bertsmith.inference.vectors.loading import load_embedder
embedder = load_embedder(path, pooling=pooling, normalize=False, device="cpu", precision=precision)
vector = embedder.embed([text])[0]
assert "torch" not in sys.modules
""",
    "transformers": TORCH_BEGIN
    + """
from transformers import AutoModel, AutoTokenizer
tokenizer, model = AutoTokenizer.from_pretrained(folder), AutoModel.from_pretrained(folder, dtype=dtype[precision])
with torch.inference_mode():
    states = model(**tokenizer([text], return_tensors="pt")).last_hidden_state[0]
vector = states[0] if pooling == "cls" else states.mean(0)
""",
    "sentence-transformers": TORCH_BEGIN
    + """
from sentence_transformers import SentenceTransformer
from sentence_transformers.models import Pooling, Transformer
encoder = Transformer(folder, model_kwargs={"dtype": dtype[precision]})
model = SentenceTransformer(modules=[encoder, Pooling(encoder.get_embedding_dimension(), pooling)], device="cpu")
vector = model.encode([text])[0]
""",
    "onnxruntime": WITH_TOKENIZER
    + """
import onnxruntime
options = onnxruntime.SessionOptions()
options.intra_op_num_threads = threads
vector = onnxruntime.InferenceSession(path, options).run(None, inputs)[0][0]
""",
    "openvino": WITH_TOKENIZER
    + """
import openvino
hint = "bf16" if precision == "bf16" else "f32"
settings = {"INFERENCE_PRECISION_HINT": hint, "INFERENCE_NUM_THREADS": threads}
vector = openvino.Core().compile_model(path, "CPU", settings)(inputs)[0][0]
""",
    "ctranslate2": WITH_TOKENIZER
    + """
import ctranslate2
kind = {"fp32": "float32", "bf16": "bfloat16", "int8": "int8"}[precision]
encoder = ctranslate2.Encoder(path, compute_type=kind, intra_threads=threads)
states = np.array(encoder.forward_batch(ids.tolist()).last_hidden_state)[0]
vector = states[0] if pooling == "cls" else states.mean(0)
""",
}


# The script writes the bytes of its vector to stdout, for comparison with the others.
END = """
import numpy
sys.stdout.buffer.write(numpy.asarray(vector, dtype=numpy.float32).tobytes())
"""


def row_case(pools: Pools, tokenizer: Tokenizer) -> Case:
    """Single rows of 32 tokens, cut from the longest texts."""
    rows = rows_of(list(pools.texts.values())[-1], tokenizer)
    long = [row for row in rows if len(row) >= LENGTH][:ASKED]
    assert len(long) == ASKED, "enough texts of 32 tokens"
    for row in long:
        row[LENGTH - 1] = tokenizer.vocabulary.sep_id
    return Case(f"1 row of {LENGTH}", [[row[:LENGTH]] for row in long], fixed=True)


def converted(kind: type[System], files: ModelFiles, precision: str) -> Path:
    """The file that a peer's script reads in addition to the folder."""
    if kind is Ours and precision == "int8":
        return files.ours_int8()
    if kind is OursOnnx:
        return files.ours_onnx()
    if kind is OnnxRuntime:
        return files.onnx_int8(careful=True) if precision == "int8" else files.onnx()
    if kind is OpenVino:
        return files.openvino_int8() if precision == "int8" else files.onnx()
    return files.ctranslate2() if kind.engine == "ctranslate2" else files.folder


def cold_starts(files: ModelFiles, precision: str, warm: dict[str, Any], options: argparse.Namespace) -> dict[str, Any]:
    """Seconds from process start to the first vector, for every system that ran warm, and the ratios."""
    asked: list[type[System]] = [Ours, *PEERS]
    commands, checks, left_out = {}, {}, {}
    reference = load_embedder(files.folder, pooling=files.pooling, normalize=False, device="cpu").embed([TEXT])
    scripts = [(kind.engine, kind) for kind in asked]
    scripts.insert(1, (IN_TORCH, Ours))
    for engine, kind in scripts:
        name = f"{engine} {precision}"
        if not any(system.startswith(f"{kind.engine} {precision}") for system in warm["systems"]):
            continue
        values = (files.folder, converted(kind, files, precision), files.pooling, precision, options.threads, TEXT)
        command = [sys.executable, "-W", "ignore", "-c", BEGIN + SCRIPTS[engine] + END, *map(str, values)]
        try:
            # This first run also fills the page cache and writes compiled modules.
            checks[name] = _check(_answer_of(command, options.threads).vector, reference, precision, options.bound)
            commands[name] = command
        except UnavailableError as reason:
            left_out[name] = str(reason)
    clock: dict[str, list[float]] = {name: [] for name in commands}
    worked: dict[str, list[float]] = {name: [] for name in commands}
    for _ in range(options.cold):
        for name, command in commands.items():
            answer = _answer_of(command, options.threads)
            clock[name].append(answer.seconds)
            worked[name].append(answer.worked)
    ours, chosen = f"{Ours.engine} {precision}", worked if options.threads == 1 else clock
    peers = [name for name in chosen if name != ours and ours in chosen]
    return {
        "seconds": {name: spread(values) for name, values in clock.items()},
        "seconds_worked": {name: spread(values) for name, values in worked.items()},
        "times_as_soon": {name: ratio_summary(chosen[ours], chosen[name]) for name in peers},
        "checks": checks,
        "left_out": left_out,
    }


def cold_table(result: dict[str, Any]) -> str:
    """A table of the systems by seconds, fastest first."""
    lines = [f"  {'':36}{'seconds':>10}{'worked':>10}  ours is x times as soon"]
    for name, seconds in sorted(result["seconds"].items(), key=lambda item: item[1]["median"]):
        ratio = result["times_as_soon"].get(name)
        line = f"  {name:36}{seconds['median']:10.2f}{result['seconds_worked'][name]['median']:10.2f}"
        lines.append(line + (f"  {ratio['median']:.2f}" if ratio else ""))
    return "\n".join(lines)


class Answer(NamedTuple):
    """The result of a process that computed one vector.

    Attributes:
        vector: float32 [1, width].
        seconds: wall-clock time.
        worked: CPU time in seconds.
    """

    vector: Vectors
    seconds: float
    worked: float


def _answer_of(command: list[str], threads: int) -> Answer:
    """Runs the process and returns its answer.

    Raises:
        UnavailableError: it failed; the message is the last line of its stderr.
    """
    environment = {**os.environ, "OMP_NUM_THREADS": str(threads), "HF_HUB_OFFLINE": "1"}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)  # installed packages are compiled, so ours has to be
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    start = time.perf_counter()
    done = subprocess.run(command, env=environment, capture_output=True, check=False)
    seconds = time.perf_counter() - start
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode:
        raise UnavailableError((done.stderr.decode(errors="replace").strip().splitlines() or ["it failed"])[-1])
    worked = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Answer(np.frombuffer(done.stdout, dtype=np.float32)[None], seconds, worked)


def _check(vector: Vectors, reference: Vectors, precision: str, bound: float) -> dict[str, float]:
    """The deviation of the vector [1, width] from ours in fp32.

    Raises:
        UnavailableError: the deviation exceeds the bounds of `encode_speed.py`.
    """
    if vector.shape != reference.shape:
        raise UnavailableError(f"gave {vector.shape[1]} numbers where {reference.shape[1]} were expected")
    difference, likeness = float(np.abs(vector - reference).max()), float(cosine(vector, reference)[0])
    if (precision == "fp32" and not difference <= MOST_DIFFERENCE) or not likeness >= bound:
        raise UnavailableError(f"its vector differs from ours by {difference:.1e}, with a cosine of {likeness:.4f}")
    return {"largest_difference": float(f"{difference:.2g}"), "cosine": round(likeness, 5)}


def main() -> None:
    """Measures warm and cold latency, prints tables and writes the result."""
    options = _options()
    torch.set_num_threads(options.threads)
    described = machine()
    described["packages"] |= versions(PEERS)
    pools = read_pools(options.data)
    threads = f"{options.threads}-thread{'s' * (options.threads > 1)}"
    name = options.out or f"latency_{machine_label(described)}_{threads}_torch-{described['packages']['torch']}"
    path = RESULTS / f"{name}.json"
    before = read_json(path) if path.exists() else {"one_row": {}, "cold_start": {}}
    warm: dict[str, Any] = before["one_row"]
    cold: dict[str, Any] = before["cold_start"]
    with quiet():
        for model, bench, _ in benches(options, pools, options.threads):
            tokenizer = load_any(bench.files.folder).tokenizer
            assert tokenizer is not None
            case = row_case(pools, tokenizer)
            for precision in options.precisions.split(","):
                title = f"{model}, {precision}"
                result = bench.case(case, precision)
                result["milliseconds"] = {
                    name: round(1000 * statistics.median(values) / case.rows, 3)
                    for name, values in result["seconds"].items()
                }
                print(f"{title}, {case.name}\n{table(result)}\n  milliseconds: {result['milliseconds']}", flush=True)
                warm[title] = result
                if options.cold:
                    cold[title] = cold_starts(bench.files, precision, result, options)
                    print(f"{title}, from the start of a process\n{cold_table(cold[title])}", flush=True)
                result |= {"day": time.strftime("%Y-%m-%d"), "rounds": options.rounds}
                write_result(
                    name, {"machine": described, "rounds": options.rounds, "one_row": warm, "cold_start": cold}
                )
            del bench


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_shared_options(parser, models=",".join(MODELS), rounds=7)
    parser.add_argument("--cold", type=int, default=5, help="cold starts per system; 0 for none [5]")
    return parser.parse_args()


if __name__ == "__main__":
    main()
