"""Gradient errors and processor time of a bf16 training step by the precision of the residual stream.

A pre-training step (masked LM over a batch of random ids) in fp32 is the reference. It is compared with four
ways to compute in bf16: products, residuals and norms in bf16 (as the package does in evaluation mode); PyTorch's
autocast; the residual stream in fp32 with products in bf16 (as the package does in training); and bf16 residuals whose
sums and norms are computed in fp32.

The error is |g - g_fp32| / |g_fp32| over all parameters together; time is processor seconds of a forward and backward
pass without dropout, the median of the rounds, taken in turns.

    python benchmarks/residual_precision.py --size small [--model DIR] [--tokens 2048] [--rounds 5]
"""

import argparse
import contextlib
import statistics
import time
from collections.abc import Callable, Iterator

import numpy as np
import torch
from torch import Tensor

from bertsmith.models.checkpoints.assembly import load_pretrained, untrained
from bertsmith.models.checkpoints.load import load_any
from bertsmith.models.heads.encoder_with_head import EncoderForPreTraining
from bertsmith.models.parts import transformer
from bertsmith.models.parts.attention import attention
from bertsmith.models.parts.batch import Batch, Read
from bertsmith.models.parts.config import BertConfig
from bertsmith.models.parts.layers import activation, linear, norm

BF16 = torch.bfloat16


def fp32_norms(layer: transformer.Layer, hidden: Tensor, batch: Batch, read: Read | None, *_: object) -> Tensor:
    """A layer with a bf16 input and output whose sums and norms are computed in fp32; without dropout."""
    asking = hidden if read is None else hidden[read.positions]
    context = _context(layer, asking, hidden, batch, read)
    attended = norm(asking.float() + linear(context, layer.attention_output), layer.attention_norm)
    inner = linear(attended.to(BF16), layer.intermediate, then=layer.config.hidden_act)
    return norm(attended + linear(inner, layer.output), layer.output_norm).to(BF16)


def _context(layer: transformer.Layer, asking: Tensor, hidden: Tensor, batch: Batch, read: Read | None) -> Tensor:
    query, key, value = linear(asking, layer.query), linear(hidden, layer.key), linear(hidden, layer.value)
    runs, places = (batch.runs, None) if read is None else (read.runs, batch.positions[read.positions])
    return attention(query, key, value, runs, heads=layer.config.num_attention_heads, query_positions=places)


def autocast_linear(x: Tensor, layer: torch.nn.Linear, then: str | None = None) -> Tensor:
    """The affine map with fp32 parameters, which autocast casts."""
    mapped = torch.nn.functional.linear(x, layer.weight, layer.bias)
    return mapped if then is None else activation(mapped, then)


@contextlib.contextmanager
def replaced(**changes: object) -> Iterator[None]:
    """Replaces attributes of the encoder layer or of its module for the duration of the block."""
    places = {name: transformer.Layer if name == "forward" else transformer for name in changes}
    before = {name: getattr(module, name) for name, module in places.items()}
    try:
        for name, value in changes.items():
            setattr(places[name], name, value)
        yield
    finally:
        for name, value in before.items():
            setattr(places[name], name, value)


@contextlib.contextmanager
def autocast() -> Iterator[None]:
    """PyTorch's autocast to bf16, with the encoder's products left to it."""
    with torch.autocast("cpu", BF16), replaced(linear=autocast_linear):
        yield


# The dtype of products, whether the encoder is in training mode, and what is replaced in it.
WAYS: dict[str, tuple[torch.dtype, bool, Callable[[], contextlib.AbstractContextManager[None]]]] = {
    "fp32": (torch.float32, True, contextlib.nullcontext),
    "bf16 residuals and norms": (BF16, False, contextlib.nullcontext),
    "autocast": (torch.float32, True, autocast),
    "fp32 residual stream": (BF16, True, contextlib.nullcontext),
    "bf16 residuals, fp32 sums and norms": (BF16, False, lambda: replaced(forward=fp32_norms)),
}


def step(model: EncoderForPreTraining, batch: Batch, read: Read, targets: Tensor, way: str) -> tuple[Tensor, float]:
    """The gradients of all parameters as one vector, and the processor seconds."""
    dtype, training, around = WAYS[way]
    model.train(training)
    model.zero_grad(set_to_none=True)
    start = time.process_time()
    with around():
        hidden = model.encoder(batch, read=read, dtype=dtype)
        logits = model.mlm(hidden, model.encoder.word_table)
        loss = torch.nn.functional.cross_entropy(logits.float(), targets)
    loss.backward()
    seconds = time.process_time() - start
    return torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None]), seconds


def main() -> None:
    """Prints a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--size", default="small", help="a new model of this size")
    parser.add_argument("--model", help="a model with masked-LM head instead")
    parser.add_argument("--tokens", type=int, default=2048)
    parser.add_argument("--length", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.model:
        model = load_pretrained(load_any(options.model)).model
    else:
        model = untrained(BertConfig.named(options.size), seed=1)
    rows, length = options.tokens // options.length, options.length
    draws = np.random.default_rng(0)
    ids = draws.integers(5, model.config.vocab_size, rows * length)
    batch = Batch.from_flat(ids, np.zeros_like(ids), [length] * rows)
    places = np.sort(draws.choice(length, (rows, round(0.15 * length)), replace=True).reshape(rows, -1), axis=1)
    positions = np.unique((places + np.arange(rows)[:, None] * length).ravel())
    read = Read.at(batch, positions)
    targets = torch.from_numpy(draws.integers(5, model.config.vocab_size, len(positions)))
    seconds: dict[str, list[float]] = {way: [] for way in WAYS}
    errors: dict[str, float] = {}
    exact, _ = step(model, batch, read, targets, "fp32")
    for _ in range(options.rounds):
        for way in WAYS:
            gradient, spent = step(model, batch, read, targets, way)
            seconds[way].append(spent)
            errors[way] = float((gradient - exact).norm() / exact.norm())
    print(f"{options.model or options.size}: {rows} rows of {length} tokens, {len(positions)} predicted")
    for way, spent in seconds.items():
        print(f"{way:38} error {errors[way]:8.3%}   {statistics.median(spent):7.3f} processor seconds")


if __name__ == "__main__":
    main()
