"""Fine-tuning steps match `transformers`: the same weights, rows and optimizer give the same parameters.

Ours uses flat rows in micro-batches; the peer uses padded batches, torch's AdamW and the example scripts' schedule.
"""

from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
import transformers

from bertsmith.base.machine.runtime import Rank, choose
from bertsmith.models.checkpoints.architectures import architecture_of, new_encoder
from bertsmith.models.checkpoints.assembly import save_pretrained
from bertsmith.models.heads.encoder_with_head import EncoderForTask
from bertsmith.models.model_files.metadata import ModelMetadata
from bertsmith.recipes.finetuning.settings import FinetuningSettings
from bertsmith.recipes.finetuning.workload import Finetuning
from bertsmith.tasks.encoding.units import EncodedExamples
from bertsmith.tasks.specs.kinds import task_for
from bertsmith.training.loop.guard import StopRequest
from bertsmith.training.loop.schedule import hf_linear
from bertsmith.training.loop.settings import TrainSettings
from bertsmith.training.loop.trainer import Trainer
from tasks.architecture_samples import WITH_HEADS, config_of, tokenizer_of
from tasks.task_samples import SPECS, examples_of
from tasks.test_interchange import CLASSES

STEPS, RATE, IGNORED = 8, 1e-3, -100
ROOM = 5e-5  # of a parameter, which moves by up to 8e-3; losses are in fp32, and Adam amplifies small gradients


def padded(features: EncodedExamples, units: list[int], kind: str) -> dict[str, torch.Tensor]:
    """A batch of these units as input for `transformers`."""
    rows = [
        row
        for unit in units
        for row in range(features.first_rows[unit], features.first_rows[unit] + features.rows_per_unit[unit])
    ]
    width = max(int(features.rows.lengths[row]) for row in rows)
    shape = (len(rows), width)
    batch = {
        "input_ids": torch.zeros(shape, dtype=torch.int64),
        "token_type_ids": torch.zeros(shape, dtype=torch.int64),
        "attention_mask": torch.zeros(shape, dtype=torch.int64),
    }
    for position, row in enumerate(rows):
        token_ids, segment_ids = (torch.from_numpy(part.astype("int64")) for part in features.rows.row(row))
        batch["input_ids"][position, : len(token_ids)] = token_ids
        batch["token_type_ids"][position, : len(token_ids)] = segment_ids
        batch["attention_mask"][position, : len(token_ids)] = 1
    targets = torch.from_numpy(features.targets)
    if kind == "answer":
        batch["start_positions"], batch["end_positions"] = targets[rows].unbind(1)
    elif kind == "tags":
        labels = torch.full(shape, IGNORED)
        for position, row in enumerate(rows):
            begin, end = features.rows.offsets[row], features.rows.offsets[row + 1]
            chosen = (features.read >= begin) & (features.read < end)
            labels[position, torch.from_numpy(features.read[chosen] - begin)] = targets[torch.from_numpy(chosen)]
        batch["labels"] = labels
    else:
        labels = targets[units]
        batch["labels"] = labels.double() if labels.is_floating_point() else labels
    if kind == "choice":
        for name in ("input_ids", "token_type_ids", "attention_mask"):
            batch[name] = batch[name].view(len(units), -1, width)
    return batch


def loss_of(peer: torch.nn.Module, batch: dict[str, torch.Tensor]) -> torch.Tensor:
    """The loss of `transformers`; an answer is looked for among real tokens, where it lets padding compete."""
    result = peer(**batch)
    if "start_positions" not in batch:
        return result.loss
    real = batch["attention_mask"].bool()
    sides = ((result.start_logits, batch["start_positions"]), (result.end_logits, batch["end_positions"]))
    return sum(F.cross_entropy(logits.masked_fill(~real, -torch.inf), places) for logits, places in sides) / 2


# ModernBERT is left out: a window of padding alone is NaN in the peer, which joins matrices that are apart here.
@pytest.mark.parametrize("architecture", [name for name in WITH_HEADS if name != "modernbert"])
@pytest.mark.parametrize("kind", ["single", "pair", "several labels", "number", "choice", "tags", "answer"])
def test_some_steps_end_in_the_parameters_of_the_peer(kind: str, architecture: str, tmp_path: Path) -> None:
    spec, tokenizer = SPECS[kind], tokenizer_of(architecture)
    task = task_for(spec)
    config = config_of(architecture, dropout=0.0)
    model = EncoderForTask(new_encoder(config), task.head, seed=6)
    info = {"task": spec.kind, "labels": list(spec.labels), "spec": spec.to_dict()}
    parts = (task.head.part, *(["pooler"] if task.head.pooled else []))
    save_pretrained(tmp_path / "start", model, tokenizer, ModelMetadata.from_dict(info), trained=parts)
    peer = CLASSES[spec.kind].from_pretrained(tmp_path / "start", attn_implementation="eager").double().train()
    for module in peer.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0  # in front of a head, which some configurations name by themselves

    features = task.encode(examples_of(kind, 40), tokenizer, training=True)
    settings = FinetuningSettings(batch_size=8, micro_tokens=60)
    runtime = choose("cpu", "fp64")
    work = Finetuning(model.double(), task, features, None, tokenizer, settings, runtime, seed=9)
    training = TrainSettings(steps=STEPS, bias_correction=True, weight_decay=0.0, epsilon=1e-8, warmup_share=0.0)
    trained = [parameter for parameter in peer.parameters() if parameter.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=RATE, weight_decay=0.0, eps=1e-8)
    schedule = transformers.get_linear_schedule_with_warmup(optimizer, 0, STEPS)
    with StopRequest() as stop:
        trainer = Trainer(work, training, Rank(), stop)
        for step in range(STEPS):
            outcome = trainer.gradient(step, work.plan(step, 0, 1))
            trainer.apply(outcome, hf_linear(step, peak=RATE, warmup=0, total=STEPS))
            batch = padded(features, work.units_of_step(step).tolist(), kind)
            if config.type_vocab_size < 2:
                del batch["token_type_ids"]
            loss = loss_of(peer, batch)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(trained, 1.0)
            optimizer.step()
            schedule.step()
            optimizer.zero_grad()
            assert outcome.loss == pytest.approx(float(loss.detach()), rel=1e-5)
    theirs, names = dict(peer.named_parameters()), architecture_of(config).names
    for name, parameter in work.model.named_parameters():
        if parameter.requires_grad:
            there = theirs[names.to_huggingface(name, type(peer).__name__)]
            torch.testing.assert_close(parameter, there, rtol=0, atol=ROOM, msg=name)
