"""Speed on a GPU in real tokens/s: pre-training of BERT-base and BERT-large, embeddings with six layers.

    python benchmarks/gpu_speed.py [--device cuda] [--line base|large|embed] [--rounds 5] [--size base] [--rows 256]

Three lines of README.md, each with its result file:

* base: a step of masked language modelling on rows of 128 tokens, packed, bf16; ours as it is and compiled, against
  the step of transformers with torch.compile, scaled dot-product attention and bf16 autocast, in the same run. All
  sides have the same weights, rows and masks, dropout 0.1 and fused AdamW; losses without dropout are compared first.
* large: our step at the lengths of the packed Wikipedia of MLPerf: 254 tokens on average, 23.5 % of them of 512.
* embed: mean vectors of rows of natural length with a model of 6 layers and width 384.

Every step ends with the number that the host waits for. Warm-up, compilation included, is not timed. `--device cpu`
with a small `--size` runs the same code where there is no GPU; its result is written only with `--write`. There,
`--backend aot_eager` runs `torch.compile` without generating code, which takes minutes.
"""

import argparse
import importlib.util
import os
from collections.abc import Callable
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import numpy as np
import torch
from harness import interleave, machine, machine_label, ratio_summary, spread, write_result
from random_documents import PIECES, RATE, our_step, published_shape
from torch import Tensor

from bertsmith.base.core.progress import quiet
from bertsmith.base.machine.runtime import Runtime, choose
from bertsmith.models.checkpoints.architectures import new_encoder
from bertsmith.models.encoders.bert import NAMES
from bertsmith.models.heads.encoder_with_head import EncoderForPreTraining
from bertsmith.models.parts.config import BertConfig
from bertsmith.models.products.compiled import compile_layers
from bertsmith.tasks.encoding.frozen import FrozenEncoder
from bertsmith.text.tokenizers.normalize import TextRules
from bertsmith.text.tokenizers.pack import PackedRows
from bertsmith.text.tokenizers.wordpiece import WordPieceTokenizer
from bertsmith.training.loop.devices import peak_of_device
from bertsmith.training.loop.optimizer import BertAdam
from bertsmith.training.pretraining.settings import PretrainingDataSettings, PretrainingRunSettings
from bertsmith.training.pretraining.workload import Pretraining

LINES = ("base", "large", "embed")
MOST_LOSS_DIFFERENCE = 0.02  # in bf16, of a loss of about 10
WARM_UP = 3
VOCABULARY = published_shape()
SIX_LAYERS = {"hidden_size": 384, "num_hidden_layers": 6, "num_attention_heads": 12, "intermediate_size": 1536}


class SentenceRows:
    """Documents of one sentence of random pieces each, so that a row has the wanted number of tokens.

    Args:
        lengths: tokens of the rows, [CLS] and [SEP] included.
    """

    def __init__(self, lengths: np.ndarray) -> None:
        rng = np.random.default_rng(0)
        self._tokens = [rng.integers(999, PIECES, size=length - 2).astype(np.uint16) for length in lengths]

    @property
    def num_documents(self) -> int:
        """As the protocol says."""
        return len(self._tokens)

    @property
    def document_lengths(self) -> np.ndarray:
        """As the protocol says."""
        return np.array([len(tokens) for tokens in self._tokens])

    def prefetch(self, documents: np.ndarray) -> None:
        """There is nothing to fetch."""

    def document_tokens(self, index: int) -> np.ndarray:
        """As the protocol says."""
        return self._tokens[index]

    def document_sentences(self, index: int) -> np.ndarray:
        """As the protocol says."""
        return np.array([0, len(self._tokens[index])])


def packed_lengths(rows: int) -> np.ndarray:
    """Lengths as in the Wikipedia of MLPerf: 23.5 % of 512 tokens, the others even from 5 to 345; mean 254.

    Source: Krell et al. (2021), "Efficient Sequence Packing without Cross-contamination", section 2.
    """
    rng = np.random.default_rng(1)
    lengths = rng.integers(5, 346, size=rows)
    lengths[: round(0.235 * rows)] = 512
    return lengths


def natural_lengths(rows: int) -> np.ndarray:
    """Lengths of sentences and paragraphs: log-normal with median 30, from 5 to 256."""
    drawn = np.random.default_rng(2).lognormal(np.log(30), 0.8, size=rows)
    return np.clip(np.ceil(drawn), 5, 256).astype(np.int64)


def task_of(
    config: BertConfig, lengths: np.ndarray, runtime: Runtime, weights: dict[str, Tensor], micro_tokens: int | None
) -> Pretraining:
    """Our workload on these rows."""
    model = EncoderForPreTraining(new_encoder(config))
    model.load_state_dict(weights)
    data = PretrainingDataSettings(
        objective="mlm", max_length=int(lengths.max()), short_sequence_probability=0.0, seed=1
    )
    micro_tokens = micro_tokens or runtime.training_tokens
    rows = SentenceRows(lengths)
    task = Pretraining(
        model,
        rows,
        None,
        VOCABULARY,
        data,
        runtime,
        PretrainingRunSettings(size="tiny", rows_per_step=len(lengths), micro_tokens=micro_tokens),
    )
    task.lanes = 1
    return task


def peer_of(config: BertConfig, weights: dict[str, Tensor], device: str) -> Any:
    """The model of transformers with our weights."""
    from transformers import BertConfig as PeerConfig
    from transformers import BertForMaskedLM

    peer = BertForMaskedLM(PeerConfig(**config.to_dict(), attn_implementation="sdpa"))
    state = {NAMES.to_huggingface(name): tensor for name, tensor in weights.items()}
    peer.load_state_dict(state, strict=False)
    peer.tie_weights()
    return peer.to(device).train()


def peer_inputs(task: Pretraining) -> list[dict[str, Tensor]]:
    """The micro-batches of our step as rows for transformers, which all have one length."""
    inputs = []
    for part in task.plan(0, 0, 1).micro_batches:
        rows = part.batch.num_rows
        labels = torch.full_like(part.batch.token_ids, -100)
        labels[part.predicted_positions] = part.targets
        inputs.append({"input_ids": part.batch.token_ids.view(rows, -1), "labels": labels.view(rows, -1)})
    return inputs


def peer_step(peer: Any, task: Pretraining, backend: str | None) -> Callable[[], float]:
    """A function that runs a step of transformers on the rows of our step, and returns its loss.

    Args:
        backend: of `torch.compile`; None: the model is not compiled.
    """
    device = task.runtime.torch_device.type
    inputs = peer_inputs(task)
    predictions = sum(int((part["labels"] >= 0).sum()) for part in inputs)
    optimizer = torch.optim.AdamW(peer.parameters(), lr=RATE, eps=1e-6, weight_decay=0.01, fused=True)
    model = peer if backend is None else torch.compile(peer, backend=backend)

    def step() -> float:
        optimizer.zero_grad(set_to_none=True)
        total = torch.zeros((), device=device)
        for part in inputs:
            with torch.autocast(device, torch.bfloat16, enabled=task.runtime.precision == "bf16"):
                loss = model(**part).loss * (int((part["labels"] >= 0).sum()) / predictions)
            loss.backward()
            total += loss.detach()
        torch.nn.utils.clip_grad_norm_(peer.parameters(), 1.0)
        optimizer.step()
        return float(total)

    return step


def weights_of(config: BertConfig) -> dict[str, Tensor]:
    """Initial weights; without the head for pairs, which no side trains here."""
    return {name: tensor.clone() for name, tensor in EncoderForPreTraining(new_encoder(config)).state_dict().items()}


def without_dropout(config: BertConfig) -> BertConfig:
    """The shape without dropout."""
    return BertConfig(**{**config.to_dict(), **config.dropout_changes(0.0)})


def compare_losses(config: BertConfig, lengths: np.ndarray, runtime: Runtime, weights: dict[str, Tensor]) -> dict:
    """The losses of both sides without dropout, which have to agree."""
    plain = without_dropout(config)
    task = task_of(plain, lengths, runtime, weights, None)
    peer = peer_of(plain, weights, runtime.device)
    losses = {"ours": 0.0, "transformers": 0.0}
    with torch.no_grad():
        parts = task.plan(0, 0, 1).micro_batches
        losses["ours"] = sum(float(task.loss(task.model, part)[0]) for part in parts)
        inputs = peer_inputs(task)
        predictions = sum(int((part["labels"] >= 0).sum()) for part in inputs)
        for part in inputs:
            with torch.autocast(runtime.torch_device.type, torch.bfloat16, enabled=runtime.precision == "bf16"):
                losses["transformers"] += float(peer(**part).loss) * int((part["labels"] >= 0).sum()) / predictions
    assert abs(losses["ours"] - losses["transformers"]) < MOST_LOSS_DIFFERENCE, losses
    return losses


def timed(sides: dict[str, Callable[[], Any]], rounds: int) -> dict[str, list[float]]:
    """Seconds of every side in each round, after a warm-up."""
    for side in sides.values():
        for _ in range(WARM_UP):
            side()
    return interleave(sides, rounds=rounds)


def train_line(arguments: argparse.Namespace, runtime: Runtime, *, with_peer: bool) -> dict[str, Any]:
    """The result of a line of pre-training."""
    size = arguments.size or ("base" if with_peer else "large")
    lengths = np.full(arguments.rows, 128) if with_peer else packed_lengths(arguments.rows)
    config = BertConfig.named(size, vocab_size=PIECES)
    weights = weights_of(config)
    result: dict[str, Any] = {"size": size, "rows": arguments.rows, "mean_length": round(float(lengths.mean()), 1)}
    if with_peer and not arguments.without_peer:
        result["losses_without_dropout"] = compare_losses(config, lengths, runtime, weights)
    sides: dict[str, Callable[[], Any]] = {}
    tasks = []
    for name in ("ours", "ours compiled"):
        task = task_of(config, lengths, runtime, weights, arguments.micro_tokens)
        if name == "ours compiled":
            if arguments.eager:
                continue
            compile_layers(task.model.encoder, runtime.device, arguments.backend)
        sides[name] = our_step(task, BertAdam(task.model, bias_correction=True))
        tasks.append(task)
    if with_peer and not arguments.without_peer:
        peer = peer_of(config, weights, runtime.device)
        sides["transformers" if arguments.eager else "transformers compiled"] = peer_step(
            peer, tasks[0], None if arguments.eager else arguments.backend
        )
    plan = tasks[0].plan(0, 0, 1)
    seconds = timed(sides, arguments.rounds)
    peak = peak_of_device(runtime.torch_device, runtime.precision)
    work = tasks[0].operations(plan)
    result |= {
        "micro_batches": len(plan.micro_batches),
        "real_tokens": plan.tokens,
        "tflop_per_step": round(work / 1e12, 4),
        "tokens_per_second": {
            name: spread([plan.tokens / elapsed for elapsed in times]) for name, times in seconds.items()
        },
        "utilization": {
            name: None if peak is None else round(work / float(np.median(times)) / peak, 4)
            for name, times in seconds.items()
        },
        "seconds": seconds,
    }
    if runtime.device != "cpu":
        result["most_memory_gib"] = round(torch.cuda.max_memory_allocated() / 2**30, 2)
    best = min((name for name in seconds if name.startswith("ours")), key=lambda name: float(np.median(seconds[name])))
    result["ratios"] = {
        f"{best} against {name}": ratio_summary(seconds[best], seconds[name]) for name in seconds if name != best
    }
    return result


def embed_line(arguments: argparse.Namespace, runtime: Runtime) -> dict[str, Any]:
    """The result of the line of embeddings, for several numbers of tokens per batch."""
    shape = SIX_LAYERS if arguments.size is None else {}
    config = BertConfig.named(arguments.size or "tiny", vocab_size=PIECES, **shape)
    lengths = natural_lengths(arguments.rows * 64)
    tokens = np.random.default_rng(3).integers(999, PIECES, size=lengths.sum()).astype(np.int32)
    counts = lengths.astype(np.int32)
    rows = PackedRows(tokens, 0 * tokens, counts, 0 * counts)
    tokenizer = WordPieceTokenizer(VOCABULARY, TextRules())
    sides: dict[str, Callable[[], Any]] = {}
    for batch_tokens in (4096, runtime.inference_tokens, 65536):
        encoder = FrozenEncoder(new_encoder(config), tokenizer, runtime, micro_tokens=batch_tokens)
        choice = encoder.choice("last")
        sides[f"{batch_tokens} tokens per batch"] = lambda encoder=encoder, choice=choice: encoder.row_vectors(
            rows, choice, "mean"
        )
    seconds = timed(sides, arguments.rounds)
    return {
        "layers": config.num_hidden_layers,
        "width": config.hidden_size,
        "rows": len(rows),
        "real_tokens": int(lengths.sum()),
        "tokens_per_second": {
            n: spread([int(lengths.sum()) / elapsed for elapsed in times]) for n, times in seconds.items()
        },
        "seconds": seconds,
    }


def main(command_line: list[str] | None = None) -> dict[str, Any]:
    """Runs the lines and writes their results, which it also returns."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--precision", default="bf16")
    parser.add_argument("--line", choices=LINES, action="append", help="one of the lines [all]")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--size", help="another size of the model, to try the script")
    parser.add_argument("--rows", type=int, default=256, help="rows per step [256]; embeddings take 64 times as many")
    parser.add_argument("--micro-tokens", type=int, help="tokens per micro-batch [as `pretrain`]")
    parser.add_argument("--eager", action="store_true", help="compile neither side")
    parser.add_argument(
        "--backend",
        default="inductor",
        help="of torch.compile [inductor]; aot_eager generates no code, to try the script in seconds",
    )
    parser.add_argument("--without-peer", action="store_true", help="measure ours alone; transformers is not needed")
    parser.add_argument("--write", action="store_true", help="write the result of a CPU, too")
    arguments = parser.parse_args(command_line)
    if not arguments.without_peer and importlib.util.find_spec("transformers") is None:
        parser.error("transformers is not installed; add --without-peer to measure ours alone")
    runtime = choose(arguments.device, arguments.precision)
    described = machine()
    label = machine_label(described)
    if runtime.device != "cpu":
        described["gpu"] = torch.cuda.get_device_name(runtime.torch_device)
        label = described["gpu"].lower().replace(" ", "-")
    results = {}
    for line in arguments.line or LINES:
        print(line, flush=True)
        with quiet():
            result = (
                embed_line(arguments, runtime)
                if line == "embed"
                else train_line(arguments, runtime, with_peer=line == "base")
            )
        backend = None if arguments.eager else arguments.backend
        result |= {"device": runtime.device, "precision": runtime.precision, "backend": backend}
        print(f"  {result['tokens_per_second']}, utilization {result.get('utilization')}", flush=True)
        results[line] = result
        if runtime.device != "cpu" or arguments.write:
            name = f"gpu_speed_{line}_{label}_torch-{described['packages']['torch']}"
            write_result(name, {"machine": described, **result})
    return results


if __name__ == "__main__":
    main()
