"""A program whose processes evaluate together, and hold a model together from its first values on."""

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch

from allocations import peak_of_allocations
from bertsmith.base.machine.runtime import Rank, Runtime
from bertsmith.base.processes.distributed import process_group, sum_over_ranks
from bertsmith.base.processes.sharding import Division, own_rows
from bertsmith.models.checkpoints.assembly import load_for_task, load_pretrained, untrained
from bertsmith.models.checkpoints.load import load_any
from bertsmith.models.checkpoints.weights import digest_of_tensors
from bertsmith.models.parts.config import BertConfig
from bertsmith.recipes.finetuning.settings import FinetuningSettings
from bertsmith.recipes.finetuning.workload import Finetuning
from bertsmith.tasks.encoding.forward import task_logits
from bertsmith.tasks.specs.kinds import task_for
from bertsmith.text.tokenizers.vocabulary import Vocabulary
from bertsmith.training.loop.settings import TrainSettings
from bertsmith.training.loop.trainer import OPTIMIZERS
from bertsmith.training.pretraining.run import pretrain
from bertsmith.training.pretraining.settings import (
    PretrainingDataSettings,
    PretrainingRunSettings,
)
from bertsmith.training.pretraining.workload import Pretraining
from oracles.pretraining_oracle import MemoryDocuments
from tasks.task_samples import SPECS, TOKENIZER, examples_of

FP32 = Runtime(device="cpu", precision="fp32")
KINDS = ("single", "hierarchical", "tags")
VOCABULARY = Vocabulary(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *(f"w{number}" for number in range(5, 90))])
CONFIG = BertConfig.named("tiny", vocab_size=len(VOCABULARY), max_position_embeddings=48, num_hidden_layers=6)


def documents(count: int = 12, seed: int = 0) -> MemoryDocuments:
    rng = np.random.default_rng(seed)
    return MemoryDocuments(
        [
            [rng.integers(5, 90, size=rng.integers(1, 15)).tolist() for _ in range(rng.integers(1, 9))]
            for _ in range(count)
        ]
    )


def pretraining(micro_tokens: int, division: Division | None) -> Pretraining:
    data = PretrainingDataSettings(max_length=24, seed=3)
    held_out = documents(40, seed=9)
    model = untrained(CONFIG, 1, division=division)
    return Pretraining(
        model,
        documents(12, seed=0),
        held_out,
        VOCABULARY,
        data,
        FP32,
        PretrainingRunSettings(size="tiny", micro_tokens=micro_tokens),
    )


def finetuning(base: Path, kind: str, micro_tokens: int, division: Division | None) -> Finetuning:
    task, folder = task_for(SPECS[kind]), load_any(base)
    train, dev = examples_of(kind, 8), examples_of(kind, 40, seed=1)
    settings = FinetuningSettings(micro_tokens=micro_tokens)
    model = load_for_task(folder, task.head, keep_head=False, seed=2, division=division).model
    features = task.encode(train, TOKENIZER, training=True)
    return Finetuning(model, task, features, (dev, task.encode(dev, TOKENIZER)), TOKENIZER, settings, FP32, seed=1)


def evaluated(base: Path, rank: Rank) -> dict[str, Any]:
    """Figures, scores and logits of whole models; with several processes of divided ones too, and the passes of all."""
    values: dict[str, Any] = {}
    for share in ("whole", "divided") if rank.count > 1 else ("whole",):
        division = Division(rank, torch.device("cpu")) if share == "divided" else None
        for name, micro_tokens in (("many parts", 100), ("one part", 10**6)):
            work: Any = pretraining(micro_tokens, division)
            model = work.model
            passes = []
            model.register_forward_pre_hook(lambda *_, passes=passes: passes.append(1))
            model.eval()
            values[f"{share} pretraining {name}"] = work.evaluate(model, rank)
            values[f"{share} passes {name}"] = int(sum_over_ranks(torch.tensor(len(passes)), rank))
        for kind in KINDS:
            work = finetuning(base, kind, 40, division)
            model = work.model.eval()
            values[f"{share} {kind}"] = work.evaluate(model, rank)
            logits = task_logits(model, work.dev[1], FP32, 40, rank=rank)
            values[f"{share} logits of {kind}"] = logits.view(np.uint32).tolist()
    return values


def first_values(base: Path, rank: Rank) -> dict[str, Any]:
    """Digests of models before their first step, and the numbers that this process holds of one."""
    division = Division(rank, torch.device("cpu")) if rank.count > 1 else None
    new = pretraining(100, division).model
    read = load_pretrained(load_any(base), seed=3, division=division).model
    moments = OPTIMIZERS["muon"](new).state_tensors().values()
    return {
        "new": digest_of_tensors(new.state_dict()),
        "read": digest_of_tensors(read.state_dict()),
        "held": sum(4 * own_rows(parameter).numel() for parameter in new.parameters()),
        "moments": sum(4 * own_rows(moment).numel() for moment in moments),
        "allocated": allocated(division),
    }


def allocated(division: Division | None) -> int:
    """The bytes that PyTorch allocates for a micro-batch of a step that has begun, at the peak.

    The least of a few, because the thread that exchanges tensors frees some of them late when the machine is busy.
    """
    work = pretraining(48, division)
    micro_batch = work.plan(0, 0, 1).micro_batches[0]

    def micro_step() -> None:
        work.loss(work.model, micro_batch)[0].backward()

    return min(peak_of_allocations(micro_step) for _ in range(5))


def trained(corpus: Path, out: Path, rank: Rank) -> None:
    """Two runs, which start from the corpus and from the model of the first one; divided, if there are processes."""
    for name, start in (
        ("new", {"size": "tiny", "initialization": "corpus"}),
        ("continued", {"init": str(out / "new" / "model")}),
    ):
        settings = PretrainingRunSettings(
            rows_per_step=8, evaluation_rows=16, micro_tokens=64, device="cpu", precision="fp32", **start
        )
        training = TrainSettings(
            steps=4, log_every=1, save_every=2, evaluate_every=2, keep_best="loss", shard=rank.count > 1
        )
        pretrain(corpus, out / name, settings, PretrainingDataSettings(max_length=32), training)


def main(base: Path, out: Path) -> None:
    """Writes what each process returns, and the runs."""
    torch.set_num_threads(1)
    rank = Rank.from_environment()
    with process_group(rank, torch.device("cpu")):
        if rank.count == 2:
            trained(base.parent / "corpus", out / "two", rank)
        text = json.dumps({**evaluated(base, rank), **first_values(base, rank)})
        (out / f"evaluated-{rank.index}-of-{rank.count}.json").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
