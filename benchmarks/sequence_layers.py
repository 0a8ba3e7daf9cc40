"""Layers that read a sequence, compared: LSTM, convolution, self-attention.

    python benchmarks/sequence_layers.py speed [--seeds 3]
    python benchmarks/sequence_layers.py depth [--seeds 3] [--depths 1 30] [--into NAME]
    python benchmarks/sequence_layers.py recall [--seeds 3] [--longest-gap 500] [--width 64] [--into NAME]
    python benchmarks/sequence_layers.py nested [--seeds 3] [--into NAME]

All have the same width and, but for the LSTM's gates, about the same number of parameters, and read the same token ids.

speed: tokens per second of the processor, forward and backward, by the length of the sequences, one thread, in turns.
depth: 1 to 30 layers that learn to say which token stood three places before; the norm of the gradient of the first
    layer, divided by that of the last one, at the start, and the loss at the end. LSTM with and without residuals,
    convolution with residuals, Transformer layers with the norm after the residual sum, as in BERT, and the same with a
    learning rate that rises until the last step, or with the norm in front of attention and the feed-forward network.
recall: two layers read a symbol, a gap of noise, and a mark at which the symbol is asked for; the share of right
    answers (chance is 1/16) after equal numbers of steps, and the seconds of the processor.
nested: 1 to 8 layers that read nested expressions of truth values, operators behind their operands, and are asked at
    each operator for the value of its expression: the share of right answers by the height of the expression (1: both
    operands are truth values), next to that of the more frequent value.

The results of depth, recall and nested are written after each measurement, and what a result of the same settings
already has is not run again.

Source of the questions: Vaswani et al. (2017), section 4; the copying task of Hochreiter and Schmidhuber (1997);
Xiong et al. (2020), "On Layer Normalization in the Transformer Architecture".
"""

import argparse
import functools
import itertools
import os
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, ClassVar

os.environ["OMP_NUM_THREADS"] = "1"

import numpy as np
import torch
import torch.nn.functional as F
from harness import RESULTS, machine, machine_label, write_result
from torch import Tensor, nn

from bertsmith.base.core.randomness import generator
from bertsmith.base.storage.files import read_json
from bertsmith.models.parts.batch import Batch, Read
from bertsmith.models.parts.config import BertConfig
from bertsmith.models.parts.layers import initialize, linear, norm
from bertsmith.models.parts.lstm_layer import LstmLayer
from bertsmith.models.parts.transformer import Layer, Pass, TransformerEncoder, joined
from bertsmith.training.loop.optimizer import BertAdam, clip, global_norm

SYMBOLS, VOCABULARY = 16, 32  # the symbols to recall; the others are noise and the mark
MARK = VOCABULARY - 1
KERNEL = 3  # tokens that a convolution reads: one on each side
LENGTHS = (64, 128, 256, 512, 1024, 2048)
TOKENS = 4096  # of a batch for speed
DEPTHS = (1, 2, 4, 8, 16, 30)
DEPTH_STEPS, WARMUP = 300, 50  # of a training for depth; of it, with a rising learning rate
ROWS = 16  # of a training step
GAPS = (10, 30, 100, 300, 500)
HEIGHT, NESTED_DEPTHS, NESTED_STEPS = 4, (1, 2, 4, 8), 2000  # of nested expressions, and the layers and steps for them
OPERATORS = (np.logical_and, np.logical_or, np.logical_xor)
LEAST_SECONDS = 0.3  # of one measurement


def spread(values: Sequence[float]) -> dict[str, float]:
    """Median, lowest and highest, to three digits: a gradient may be tiny."""
    summary = {"median": statistics.median(values), "lowest": min(values), "highest": max(values)}
    return {name: float(f"{value:.3g}") for name, value in summary.items()}


class Lstm(nn.Module):
    """Layers of LSTM from left to right; with residuals, each adds to what it read."""

    def __init__(self, width: int, depth: int, *, residual: bool = False) -> None:
        super().__init__()
        self.word = nn.Embedding(VOCABULARY, width)
        self.layers = nn.ModuleList(LstmLayer(width, width) for _ in range(depth))
        self.residual = residual

    def forward(self, batch: Batch) -> Tensor:
        """The last hidden states [T, D]."""
        hidden: Tensor = self.word(batch.token_ids)
        for layer in self.layers:
            read = layer(hidden, batch.lengths)[0]
            hidden = hidden + read if self.residual else read
        return hidden


class Convolution(nn.Module):
    """Layers of convolution over neighbors, with ReLU and residuals, each norm after the sum as in BERT."""

    def __init__(self, width: int, depth: int) -> None:
        super().__init__()
        self.word = nn.Embedding(VOCABULARY, width)
        self.layers = nn.ModuleList(nn.Conv1d(width, 4 * width, KERNEL, padding=KERNEL // 2) for _ in range(depth))
        self.down = nn.ModuleList(nn.Linear(4 * width, width) for _ in range(depth))
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(depth))

    def forward(self, batch: Batch) -> Tensor:
        """The last hidden states [T, D]; all sequences have the same length."""
        rows = batch.num_rows
        hidden: Tensor = self.word(batch.token_ids)
        for layer, down, last in zip(self.layers, self.down, self.norms, strict=True):
            inner = layer(hidden.view(rows, -1, hidden.shape[1]).transpose(1, 2)).transpose(1, 2).flatten(0, 1)
            hidden = last(hidden + down(F.relu(inner)))
        return hidden


class PreNormConfig(BertConfig):
    """The shape of a BERT whose norms are in front; one more follows the last layer."""

    norms_first: ClassVar[bool] = True
    norms_last: ClassVar[bool] = True


class PreNormLayer(Layer):
    """BERT's layer, which reads the residual stream through a norm and adds to it without one."""

    def forward(self, hidden: Tensor, shared: Pass, read: Read | None, name: str) -> Tensor:
        """The next hidden states [T, D]; every position is read."""
        normed = norm(hidden, self.attention_norm)
        context = self.attend(normed, normed, shared, None, name)
        attended = joined(hidden, context, self.attention_output, None, 0.0)
        inner = linear(norm(attended, self.output_norm), self.intermediate, then=self.config.hidden_act)
        return joined(attended, inner, self.output, None, 0.0)


class PreNormModel(TransformerEncoder):
    """A BERT of such layers."""

    def new_layer(self, number: int) -> Layer:
        """See `TransformerEncoder`."""
        return PreNormLayer(self.config)


def attention(width: int, depth: int, *, norms_first: bool = False) -> nn.Module:
    """BERT's layers, which read to both sides."""
    config = (PreNormConfig if norms_first else BertConfig)(
        vocab_size=VOCABULARY, hidden_size=width, num_hidden_layers=depth, num_attention_heads=max(1, width // 32),
        intermediate_size=4 * width, max_position_embeddings=max(LENGTHS), hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0, type_vocab_size=1,
    )  # fmt: skip
    return (PreNormModel if norms_first else TransformerEncoder)(config, seed=None)


KINDS: dict[str, Callable[[int, int], nn.Module]] = {
    "LSTM": Lstm,
    "LSTM with residuals": lambda width, depth: Lstm(width, depth, residual=True),
    "convolution": Convolution,
    "self-attention": attention,
    "self-attention, slow warm-up": attention,
    "self-attention, norm first": lambda width, depth: attention(width, depth, norms_first=True),
}
WARMUPS = {"self-attention, slow warm-up": DEPTH_STEPS}


def build(kind: str, width: int, depth: int, seed: int) -> nn.Module:
    """Layers and an output layer, with parameters that are a function of the seed."""
    model = nn.ModuleDict({"body": KINDS[kind](width, depth), "output": nn.Linear(width, SYMBOLS)})
    initialize(model, 1 / np.sqrt(2 * width), seed)
    return model


def layers_of(model: nn.Module) -> list[nn.Module]:
    """The layers from the bottom to the top."""
    return list(model["body"].layers)  # type: ignore[index,union-attr,arg-type]


def batch_of(rows: Any) -> Batch:
    """A batch of token ids [N, s]."""
    return Batch.from_flat(rows.reshape(-1), np.zeros(rows.size, np.int64), [rows.shape[1]] * len(rows))


def speed(seeds: int) -> dict[str, Any]:
    """Tokens per second of two layers, forward and backward, by length."""
    width, depth = 256, 2
    result: dict[str, Any] = {
        "width": width,
        "layers": depth,
        "tokens_of_a_batch": TOKENS,
        "parameters": {},
        "tokens_per_second": {},
    }
    kinds = ("LSTM", "convolution", "self-attention")
    models = {kind: build(kind, width, depth, 1) for kind in kinds}
    for kind, model in models.items():
        result["parameters"][kind] = sum(parameter.numel() for parameter in model["body"].layers.parameters())
    for length in LENGTHS:
        source = generator(1, "speed", length)
        batch = batch_of(source.integers(0, VOCABULARY, (TOKENS // length, length)))
        rates: dict[str, list[float]] = {kind: [] for kind in kinds}
        for _ in range(max(3, seeds)):
            for kind, model in models.items():
                rates[kind].append(_tokens_per_second(model, batch))
        result["tokens_per_second"][length] = {kind: spread(values) for kind, values in rates.items()}
        print(length, {kind: round(statistics.median(values)) for kind, values in rates.items()}, flush=True)
    return result


def _tokens_per_second(model: nn.Module, batch: Batch) -> float:
    def call() -> None:
        model["body"](batch).square().mean().backward()  # type: ignore[index]

    call()
    start, calls = time.process_time(), 0
    while time.process_time() - start < LEAST_SECONDS:
        call()
        calls += 1
    return calls * batch.num_tokens / (time.process_time() - start)


def depth(seeds: int, depths: Sequence[int], name: str, about: dict[str, Any]) -> None:
    """Writes the gradient at the first layer, and what was learned, by depth, to the result of this name."""
    width, length, steps = 64, 32, DEPTH_STEPS
    result = earlier(
        name, {"width": width, "length": length, "steps": steps, "chance": round(np.log(SYMBOLS), 3)}, seeds
    )
    for kind in KINDS:
        for layers in depths:
            if str(layers) in result.get(kind, {}):
                continue
            ratios, losses = [], []
            for seed in range(1, seeds + 1):
                model = build(kind, width, layers, seed)
                example = functools.partial(_earlier_tokens, length, seed)
                curve = train(model, example, steps, WARMUPS.get(kind, WARMUP))
                ratios.append(next(curve))
                losses.append(list(curve)[-1])
            result.setdefault(kind, {})[str(layers)] = {
                "gradient_first_to_last": spread(ratios),
                "loss": spread(losses),
            }
            print(kind, layers, result[kind][str(layers)], flush=True)
            write_result(name, {"machine": about, "seeds": seeds, **result})


def recall(seeds: int, longest: int, width: int, name: str, about: dict[str, Any]) -> None:
    """Writes the share of symbols that are recalled over a gap, gap by gap, to the result of this name."""
    layers, steps = 2, 400
    result = earlier(name, {"width": width, "layers": layers, "steps": steps, "chance": 1 / SYMBOLS}, seeds)
    for gap in (gap for gap in GAPS if gap <= longest):
        for kind in ("LSTM", "convolution", "self-attention"):
            if str(gap) in result.get(kind, {}):
                continue
            shares, seconds = [], []
            for seed in range(1, seeds + 1):
                model, start = build(kind, width, layers, seed), time.process_time()
                list(train(model, functools.partial(_with_gap, gap, seed), steps, WARMUP))
                seconds.append(time.process_time() - start)
                batch, places, gold = _with_gap(gap, seed, -1)
                with torch.no_grad():
                    guessed = model["output"](model["body"](batch)[places]).argmax(-1)
                shares.append(float((guessed == gold).float().mean()))
            result.setdefault(kind, {})[str(gap)] = {"right": spread(shares), "seconds": spread(seconds)}
            print(kind, gap, result[kind][str(gap)], flush=True)
            write_result(name, {"machine": about, "seeds": seeds, **result})


def nested(seeds: int, name: str, about: dict[str, Any]) -> None:
    """Writes the share of right values by layers and by the height of expressions to the result of this name."""
    width = 64
    result = earlier(name, {"width": width, "height": HEIGHT, "steps": NESTED_STEPS}, seeds)
    for layers, kind in itertools.product(NESTED_DEPTHS, ("LSTM", "LSTM with residuals", "self-attention, norm first")):
        if str(layers) in result.get(kind, {}):
            continue
        shares, often, seconds = [], [], []
        for seed in range(1, seeds + 1):
            model, start = build(kind, width, layers, seed), time.process_time()
            list(train(model, functools.partial(_nested, seed), NESTED_STEPS, WARMUP))
            seconds.append(time.process_time() - start)
            batch, places, gold = _nested(seed, -1)
            with torch.no_grad():
                guessed = model["output"](model["body"](batch)[places]).argmax(-1)
            heights = torch.tensor(_heights()).repeat(batch.num_rows)
            of_height = [heights == height for height in range(1, HEIGHT + 1)]
            shares.append([float((guessed == gold)[which].float().mean()) for which in of_height])
            means = [float(gold[which].float().mean()) for which in of_height]
            often.append([max(mean, 1 - mean) for mean in means])
        result["more frequent value"] = dict(enumerate(map(spread, zip(*often, strict=True)), 1))
        result.setdefault(kind, {})[str(layers)] = {
            "right": dict(enumerate(map(spread, zip(*shares, strict=True)), 1)),
            "seconds": spread(seconds),
        }
        print(kind, layers, result[kind][str(layers)], flush=True)
        write_result(name, {"machine": about, "seeds": seeds, **result})


def earlier(name: str, settings: dict[str, Any], seeds: int) -> dict[str, Any]:
    """The settings, with what earlier runs of the same settings and seeds have measured, and on which machines."""
    path = RESULTS / f"{name}.json"
    before = read_json(path) if path.is_file() else {}
    if {**settings, "seeds": seeds}.items() <= before.items():
        kept = {key: value for key, value in before.items() if key not in ("benchmark", "day", "machine", "seeds")}
        return {**kept, "earlier_machines": [*kept.get("earlier_machines", ()), before["machine"]]}
    return settings


Example = tuple[Batch, Tensor, Tensor]


def _earlier_tokens(length: int, seed: int, step: int) -> Example:
    """Random symbols; each position after the third is asked for the symbol three places before."""
    rows = generator(seed, "earlier tokens", step).integers(0, SYMBOLS, (ROWS, length))
    places = np.arange(rows.size).reshape(rows.shape)[:, 3:].reshape(-1)
    return batch_of(rows), torch.from_numpy(places), torch.from_numpy(rows[:, :-3].reshape(-1))


def _with_gap(gap: int, seed: int, step: int) -> Example:
    """A symbol, a gap of noise, a mark; more sequences for the test, whose step is -1."""
    source = generator(seed, f"gap {gap}", step if step >= 0 else 10**6)
    rows = source.integers(SYMBOLS, MARK, (ROWS if step >= 0 else 256, gap + 2))
    rows[:, 0], rows[:, -1] = source.integers(0, SYMBOLS, len(rows)), MARK
    last = np.arange(1, len(rows) + 1) * (gap + 2) - 1
    return batch_of(rows), torch.from_numpy(last), torch.from_numpy(rows[:, 0].copy())


def _heights() -> list[int]:
    """The heights of the expressions that end in a row, in the order of their operators."""
    heights = list[int]()
    for height in range(1, HEIGHT + 1):
        heights = [*heights, *heights, height]
    return heights


def _nested(seed: int, step: int) -> Example:
    """Complete expressions with operators behind their operands; more of them for the test, whose step is -1."""
    source = generator(seed, "nested expressions", step if step >= 0 else 10**6)
    count = ROWS if step >= 0 else 256
    # Of each expression: its tokens, and the values of the expressions in it, its own last.
    parts = [(values[:, None], values[:, None]) for values in source.integers(0, 2, (2**HEIGHT, count))]
    for height in range(1, HEIGHT + 1):
        joined_parts = []
        for left, right in zip(parts[::2], parts[1::2], strict=True):
            drawn = source.integers(0, len(OPERATORS), count)
            value = np.choose(drawn, [operator(left[1][:, -1], right[1][:, -1]) for operator in OPERATORS])
            inner = [left[1], right[1]] if height > 1 else []
            joined_parts.append(
                (
                    np.column_stack([left[0], right[0], SYMBOLS + drawn]),
                    np.column_stack([*inner, value.astype(np.int64)]),
                )
            )
        parts = joined_parts
    rows, values = parts[0]
    places = np.flatnonzero(rows >= SYMBOLS)
    return batch_of(rows), torch.from_numpy(places), torch.from_numpy(values.reshape(-1))


def train(model: nn.Module, example: Callable[[int], Example], steps: int, warmup: int) -> Iterator[float]:
    """Trains a model with Adam; yields the ratio of gradients before the first step, then the loss of every step.

    Args:
        warmup: steps in which the learning rate rises.
    """
    optimizer = BertAdam(model, weight_decay=0.0, betas=(0.9, 0.98), bias_correction=True)
    for step in range(steps):
        batch, places, gold = example(step)
        model.zero_grad()
        loss = F.cross_entropy(model["output"](model["body"](batch)[places]), gold)  # type: ignore[index]
        loss.backward()
        if step == 0:
            yield _first_to_last(layers_of(model))
        clip(optimizer.gradients(), float(global_norm(optimizer.gradients())), 1.0)
        optimizer.step(1e-3 * min(1.0, (step + 1) / warmup))
        yield loss.item()


def _first_to_last(layers: Sequence[nn.Module]) -> float:
    """The norm of the gradient of the first layer, divided by that of the last one."""
    first, last = (
        float(global_norm([parameter.grad for parameter in layer.parameters() if parameter.grad is not None]))
        for layer in (layers[0], layers[-1])
    )
    return first / last


def main() -> None:
    """Runs one of the comparisons and writes its result."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=("speed", "depth", "recall", "nested"))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--depths", type=int, nargs="+", choices=DEPTHS, default=DEPTHS, help="layers, of depth")
    parser.add_argument("--longest-gap", type=int, default=max(GAPS))
    parser.add_argument("--width", type=int, default=64, help="of recall")
    parser.add_argument("--into", metavar="NAME", help="the result that is continued [that of this machine]")
    options = parser.parse_args()
    torch.set_num_threads(1)
    about = machine()
    seeds = options.seeds
    suffix = options.what if options.width == 64 else f"{options.what}_width-{options.width}"
    name = options.into or f"sequence_layers_{suffix}_{machine_label(about)}_torch-{torch.__version__}"
    if options.what == "recall":
        recall(seeds, options.longest_gap, options.width, name, about)
    elif options.what == "nested":
        nested(seeds, name, about)
    elif options.what == "depth":
        depth(seeds, options.depths, name, about)
    else:
        write_result(name, {"machine": about, "seeds": seeds, **speed(seeds)})


if __name__ == "__main__":
    main()
