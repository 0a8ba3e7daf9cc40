"""A program whose processes evaluate together; see test_processes.py."""

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch

from bertsmith.checkpoints.assembly import load_for_task
from bertsmith.checkpoints.load import load_any
from bertsmith.encoding.forward import task_logits
from bertsmith.finetuning.settings import FinetuningSettings
from bertsmith.finetuning.workload import Finetuning
from bertsmith.model.config import BertConfig
from bertsmith.pretraining.settings import PretrainingDataSettings
from bertsmith.pretraining.workload import Pretraining
from bertsmith.processes.distributed import process_group, sum_over_ranks
from bertsmith.processes.sharding import divided
from bertsmith.runtime import Rank, Runtime
from bertsmith.tasks.kinds import task_for
from bertsmith.text.vocabulary import Vocabulary
from oracles.pretraining_oracle import MemoryDocuments
from tasks.task_samples import SPECS, TOKENIZER, examples_of

FP32 = Runtime(device="cpu", precision="fp32")
KINDS = ("single", "hierarchical", "tags")
VOCABULARY = Vocabulary(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *(f"w{number}" for number in range(5, 90))])


def documents(count: int, seed: int) -> MemoryDocuments:
    rng = np.random.default_rng(seed)
    return MemoryDocuments(
        [
            [rng.integers(5, 90, size=rng.integers(1, 15)).tolist() for _ in range(rng.integers(1, 9))]
            for _ in range(count)
        ]
    )


def pretraining(micro_tokens: int) -> Pretraining:
    from bertsmith.checkpoints.assembly import untrained

    config = BertConfig.named("tiny", vocab_size=len(VOCABULARY), max_position_embeddings=48)
    data = PretrainingDataSettings(max_length=24, seed=3)
    held_out = documents(40, seed=9)
    return Pretraining(
        untrained(config, 1), documents(12, seed=0), held_out, VOCABULARY, data, FP32, micro_tokens=micro_tokens
    )


def finetuning(base: Path, kind: str, micro_tokens: int) -> Finetuning:
    task, folder = task_for(SPECS[kind]), load_any(base)
    train, dev = examples_of(kind, 8), examples_of(kind, 40, seed=1)
    settings = FinetuningSettings(micro_tokens=micro_tokens)
    model = load_for_task(folder, task.head, keep_head=False, seed=2).model
    features = task.encode(train, TOKENIZER, training=True)
    return Finetuning(model, task, features, (dev, task.encode(dev, TOKENIZER)), TOKENIZER, settings, FP32, seed=1)


def evaluated(base: Path, rank: Rank) -> dict[str, Any]:
    """Figures, scores and logits of whole models; with several processes of divided ones too, and the passes of all."""
    found: dict[str, Any] = {}
    for share in ("whole", "divided") if rank.count > 1 else ("whole",):
        for name, micro_tokens in (("many parts", 100), ("one part", 10**6)):
            work: Any = pretraining(micro_tokens)
            model = divided(work.model, rank) if share == "divided" else work.model
            passes = []
            model.register_forward_pre_hook(lambda *_, passes=passes: passes.append(1))
            model.eval()
            found[f"{share} pretraining {name}"] = work.evaluate(model, rank)
            found[f"{share} passes {name}"] = int(sum_over_ranks(torch.tensor(len(passes)), rank))
        for kind in KINDS:
            work = finetuning(base, kind, 40)
            model = divided(work.model, rank) if share == "divided" else work.model
            model.eval()
            found[f"{share} {kind}"] = work.evaluate(model, rank)
            logits = task_logits(model, work.dev[1], FP32, 40, rank=rank)
            found[f"{share} logits of {kind}"] = logits.view(np.uint32).tolist()
    return found


def main(base: Path, out: Path) -> None:
    """Writes what each process returns."""
    torch.set_num_threads(1)
    rank = Rank.from_environment()
    with process_group(rank, torch.device("cpu")):
        text = json.dumps(evaluated(base, rank))
        (out / f"evaluated-{rank.index}-of-{rank.count}.json").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
