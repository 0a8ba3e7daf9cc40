"""Time and memory of BERT-large on this machine: one pre-training step, and one answer to a question.

    python benchmarks/large_model.py [--rows 8] [--rounds 3] [--precision fp32]

The step: `--rows` full rows of 128 tokens (masked language model and next sentence), forward and backward with dropout
0.1, clipping, and Adam with decoupled weight decay. The answer: a question of 10 tokens over a context that fills one
window of 384. Weights are random, which changes neither time nor memory. Each part runs in a process of its own, so the
peak of memory is its own, with Python and torch included. The first round warms up and is not counted.
"""

import argparse
import json
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

from harness import machine, machine_label, spread, write_result
from random_documents import PIECES, RandomDocuments, our_step, published_shape

from bertsmith.base.core.progress import quiet
from bertsmith.base.machine.runtime import choose, choose_inference
from bertsmith.inference.predictors.predictor import Predictor
from bertsmith.models.checkpoints.architectures import new_encoder
from bertsmith.models.heads.encoder_with_head import EncoderForPreTraining, EncoderForTask
from bertsmith.models.parts.config import BertConfig
from bertsmith.tasks.datasets.examples import QuestionExample
from bertsmith.tasks.specs.kinds import task_for
from bertsmith.tasks.specs.task import TaskSettings, TaskSpec
from bertsmith.text.tokenizers.wordpiece import WordPieceTokenizer
from bertsmith.training.loop.optimizer import BertAdam
from bertsmith.training.pretraining.settings import PretrainingDataSettings, PretrainingRunSettings
from bertsmith.training.pretraining.workload import Pretraining

ROW, WINDOW, QUESTION = 128, 384, 10  # tokens
PARTS = ("step", "answer")


def one_step(size: str, rows: int, precision: str) -> tuple[Callable[[], Any], int, int]:
    """A function that runs a training step; the tokens it reads, and the parameters of the encoder."""
    model = EncoderForPreTraining(new_encoder(BertConfig.named(size, vocab_size=PIECES)))
    data = PretrainingDataSettings(max_length=ROW, short_sequence_probability=0.0, seed=1)
    documents, runtime = RandomDocuments(200, 200, 18), choose("cpu", precision)
    task = Pretraining(
        model,
        documents,
        None,
        published_shape(),
        data,
        runtime,
        PretrainingRunSettings(size="tiny", rows_per_step=rows),
    )
    encoder = sum(parameter.numel() for parameter in model.encoder.parameters())
    return our_step(task, BertAdam(model)), rows * ROW, encoder


def one_answer(size: str, precision: str) -> tuple[Callable[[], Any], int, int]:
    """A function that answers a question; the tokens it reads, and the parameters of the encoder."""
    settings = TaskSettings(max_length=WINDOW)
    task = task_for(TaskSpec(kind="span", name="squad", metric="f1", metrics=("exact", "f1"), settings=settings))
    model = EncoderForTask(new_encoder(BertConfig.named(size, vocab_size=PIECES)), task.head, seed=0)
    predictor = Predictor(model, task, WordPieceTokenizer(published_shape()), choose_inference("cpu", precision))
    words = [f"p{2000 + number}" for number in range(WINDOW - 3)]
    question, context = " ".join(words[:QUESTION]), " ".join(words[QUESTION:])
    example = QuestionExample(id="1", question=question, context=context)
    encoder = sum(parameter.numel() for parameter in model.encoder.parameters())
    return lambda: predictor.predict([example]), WINDOW, encoder


def measure(part: str, options: argparse.Namespace) -> dict[str, Any]:
    """The seconds of each counted round of a part, and the peak of memory in this process."""
    started = time.perf_counter()
    if part == "step":
        run, tokens, parameters = one_step(options.size, options.rows, options.precision)
    else:
        run, tokens, parameters = one_answer(options.size, options.precision)
    built, seconds = time.perf_counter() - started, []
    for _ in range(options.rounds + 1):
        started = time.perf_counter()
        with quiet():
            run()
        seconds.append(time.perf_counter() - started)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss  # KiB on Linux
    return {
        "encoder_parameters": parameters,
        "tokens": tokens,
        "seconds_to_build": round(built, 3),
        "seconds": spread(seconds[1:]),
        "peak_memory_gib": round(peak / 2**20, 2),
    }


def main() -> None:
    """Runs both parts and writes the result; with --part, runs one and prints it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", default="large")
    parser.add_argument("--rows", type=int, default=8, help="rows per step [8]")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--precision", default="fp32")
    parser.add_argument("--part", choices=PARTS, help="run only this part and print it")
    options = parser.parse_args()
    if options.part:
        print(json.dumps(measure(options.part, options)))
        return
    results = {}
    for part in PARTS:
        ran = subprocess.run([sys.executable, *sys.argv, "--part", part], check=True, stdout=subprocess.PIPE, text=True)
        results[part] = json.loads(ran.stdout.splitlines()[-1])
        print(f"{part}: {results[part]}", flush=True)
    described = machine()
    name = f"{options.size}_model_{machine_label(described)}_{options.precision}"
    name += f"_torch-{described['packages']['torch']}"
    settings = {"size": options.size, "rows": options.rows, "rounds": options.rounds, "precision": options.precision}
    write_result(name, {"machine": described, "settings": settings, "parts": results})


if __name__ == "__main__":
    main()
