"""Speed of a pre-training step of BERT-base on CPU in real tokens/s, ours against transformers (line 6 of README.md).

    python benchmarks/pretraining_step.py [--rounds 5] [--rows 32] [--size base]

All sides start from the same weights and rows (masked language model and next sentence), run forward and backward with
dropout 0.1, clip the gradient to norm 1 and make a step of Adam with decoupled weight decay. There are two cases: full
rows of 128 tokens, and rows of natural length (mean about 40), which the peer pads to the longest. The peer runs in
fp32 and under bf16 autocast, and the latter also compiled (`torch.compile`), where there is a C++ compiler; compiling
is not timed. Before timing, the losses without dropout are compared. With one thread, CPU time is measured.
"""

import argparse
import dataclasses
import os
import shutil
import time
from collections.abc import Callable

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import numpy as np
import torch
from harness import interleave, machine, machine_label, ratio_summary, write_result
from random_documents import PIECES, RATE, RandomDocuments, our_step, published_shape
from torch import Tensor
from transformers import BertConfig as PeerConfig
from transformers import BertForPreTraining as PeerModel

from bertsmith.base.machine.runtime import Runtime, choose
from bertsmith.models.checkpoints.architectures import new_encoder
from bertsmith.models.encoders.bert import NAMES
from bertsmith.models.heads.encoder_with_head import EncoderForPreTraining
from bertsmith.models.parts.config import BertConfig
from bertsmith.training.loop.optimizer import BertAdam
from bertsmith.training.pretraining.masking import Masker
from bertsmith.training.pretraining.settings import PretrainingDataSettings, PretrainingRunSettings
from bertsmith.training.pretraining.stream import PretrainingStream, Rows
from bertsmith.training.pretraining.targets import Targets
from bertsmith.training.pretraining.workload import Pretraining

DATA = PretrainingDataSettings(max_length=128, short_sequence_probability=0.0, seed=1)


CASES = {
    "full rows of 128": RandomDocuments(200, 200, 18),
    # Two sentences per document, like a corpus of messages or reviews.
    "rows of natural length": RandomDocuments(4000, 2, 12),
}


VOCABULARY = published_shape()
SHAPE = ("hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size")
# The peer's sides: under bf16 autocast or not, compiled or not.
PEERS = {
    "transformers fp32": (False, False),
    "transformers bf16 autocast": (True, False),
    "transformers bf16 autocast compiled": (True, True),
}


def padded(rows: Rows, masked: Targets) -> dict[str, Tensor]:
    """The same rows as inputs for transformers, padded to the longest."""
    shape = (len(rows.lengths), int(rows.lengths.max()))
    real = torch.from_numpy(np.arange(shape[1]) < rows.lengths[:, None])
    flat_labels = torch.full((len(rows.token_ids),), -100)
    flat_labels[masked.positions] = torch.from_numpy(masked.target_ids.astype(np.int64))
    inputs = {"input_ids": masked.token_ids, "token_type_ids": rows.segment_ids, "labels": flat_labels.numpy()}
    out = {"attention_mask": real.long(), "next_sentence_label": torch.from_numpy(rows.labels)}
    for name, flat in inputs.items():
        table = torch.full(shape, -100 if name == "labels" else 0)
        table[real] = torch.from_numpy(flat.astype(np.int64))
        out[name] = table
    return out


def peer_step(peer: PeerModel, inputs: dict[str, Tensor], bf16: bool, is_compiled: bool) -> Callable[[], float]:
    """A function that runs a step as in a transformers training script, and returns its loss."""
    forward = torch.compile(peer) if is_compiled else peer
    decayed = [p for n, p in peer.named_parameters() if "bias" not in n and "norm" not in n.lower()]
    rest = [p for n, p in peer.named_parameters() if "bias" in n or "norm" in n.lower()]
    groups = [{"params": decayed, "weight_decay": 0.01}, {"params": rest, "weight_decay": 0.0}]
    # Fused, the choice of the transformers Trainer.
    optimizer = torch.optim.AdamW(groups, lr=RATE, eps=1e-6, fused=True)

    def step() -> float:
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cpu", torch.bfloat16, enabled=bf16):
            loss = forward(**inputs).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(peer.parameters(), 1.0)
        optimizer.step()
        return float(loss.detach())

    return step


def peer_of(model: EncoderForPreTraining) -> PeerModel:
    """The peer with our weights."""
    config = model.encoder.config
    peer = PeerModel(PeerConfig(**{name: getattr(config, name) for name in SHAPE}))
    state = {NAMES.to_huggingface(name): tensor for name, tensor in model.state_dict().items()}
    _, unexpected = peer.load_state_dict(state, strict=False)
    assert not unexpected
    peer.tie_weights()
    return peer


def losses_without_dropout(case: str, config: BertConfig, weights: dict[str, Tensor], rows: int) -> dict[str, float]:
    """The losses of both sides on the same weights and rows, in fp32."""
    config = dataclasses.replace(config, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
    model = EncoderForPreTraining(new_encoder(config))
    model.load_state_dict(weights)
    task = task_of(case, model, rows, Runtime(device="cpu", precision="fp32"))
    peer = peer_of(model).eval()
    with torch.no_grad():
        ours = sum(float(task.loss(model, part)[0]) for part in task.plan(0, 0, 1).micro_batches)
        return {"ours": ours, "transformers": float(peer(**padded(*rows_of(case, rows))).loss)}


def task_of(case: str, model: EncoderForPreTraining, rows: int, runtime: Runtime) -> Pretraining:
    """The task of a case."""
    return Pretraining(
        model, CASES[case], None, VOCABULARY, DATA, runtime, PretrainingRunSettings(size="tiny", rows_per_step=rows)
    )


def rows_of(case: str, number: int) -> tuple[Rows, Targets]:
    """The rows of the timed step, and their masks."""
    rows = PretrainingStream(CASES[case], DATA, VOCABULARY, rows_per_step=number).step_rows(0)
    return rows, Masker(VOCABULARY, DATA).mask_rows(rows.token_ids, rows.lengths, rows.keys)


def main() -> None:
    """Runs both cases and writes the result."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--rows", type=int, default=32, help="rows per step [32]")
    parser.add_argument("--size", default="base", help="of the model; a small one tries the script [base]")
    arguments = parser.parse_args()
    runtime, config = choose(), BertConfig.named(arguments.size, vocab_size=PIECES)
    clock = time.process_time if torch.get_num_threads() == 1 else time.perf_counter
    compiles = any(map(shutil.which, ("g++", "clang++")))
    results = {}
    for case in CASES:
        model = EncoderForPreTraining(new_encoder(config))
        weights = {name: tensor.clone() for name, tensor in model.state_dict().items()}
        losses = losses_without_dropout(case, config, weights, arguments.rows)
        assert abs(losses["ours"] - losses["transformers"]) < 1e-3, losses
        task = task_of(case, model, arguments.rows, runtime)
        rows, masked = rows_of(case, arguments.rows)
        tokens = int(rows.lengths.sum())
        inputs = padded(rows, masked)
        steps = {f"ours {runtime.precision}": our_step(task, BertAdam(model))}
        for name, (bf16, is_compiled) in PEERS.items():
            if compiles or not is_compiled:
                steps[name] = peer_step(peer_of(model), inputs, bf16, is_compiled)
        if compiles:
            steps["transformers bf16 autocast compiled"]()  # the compilation
        print(f"{case}: {arguments.rows} rows, {tokens} real tokens, {inputs['input_ids'].numel()} padded; {losses}")
        seconds = interleave(steps, rounds=arguments.rounds, clock=clock)
        ours, *peers = seconds
        results[case] = {
            "rows": arguments.rows,
            "real_tokens": tokens,
            "padded_tokens": inputs["input_ids"].numel(),
            "losses_without_dropout": losses,
            "tokens_per_second": {name: round(tokens / float(np.median(times)), 1) for name, times in seconds.items()},
            "ratios": {peer: ratio_summary(seconds[ours], seconds[peer]) for peer in peers},
            "seconds": seconds,
        }
        for name, rate in results[case]["tokens_per_second"].items():
            print(f"  {name}: {rate:.0f} real tokens/s")
        print(f"  {results[case]['ratios']}")
        del model, task, steps
    described = machine()
    size = "" if arguments.size == "base" else f"{arguments.size}_"
    name = f"pretraining_step_{size}{machine_label(described)}_torch-{described['packages']['torch']}"
    about = {"machine": described, "size": arguments.size, "threads": torch.get_num_threads()}
    about["seconds_of"] = "the processor" if clock is time.process_time else "the clock"
    write_result(name, {**about, "cases": results})


if __name__ == "__main__":
    main()
