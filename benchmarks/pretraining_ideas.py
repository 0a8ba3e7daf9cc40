"""Ideas for the pre-training recipe that are not settings of the package, each patched into the default recipe.

    python benchmarks/pretraining_ideas.py CORPUS --steps 300 [--data DIR] [--ideas none,span masks]

Every idea trains the same shape with the same number of steps in one thread and is scored on the same held-out rows
with the same masks (15 %), as in `pretraining_recipe.py`; "none" is the recipe as it is. With --data it is also scored
by the accuracy of logistic regression on frozen mean vectors of SST-2 and TREC, the only score of replaced-token
detection, whose model has no trained masked-LM head. Ideas that help become settings; the others stay here, with their
results. Each run appends a line to results/NAME.jsonl; runs that are already there are skipped.

Sources: falling masks, Yang et al. (2023), "Learning Better Masking for Better Language Model Pre-training"; spans,
Joshi et al. (2020), "SpanBERT"; averages, Izmailov et al. (2018), "Averaging Weights Leads to Wider Optima"; scaled
residuals, Radford et al. (2019), "Language Models are Unsupervised Multitask Learners", section 2.3; replaced tokens,
Clark et al. (2020), "ELECTRA", section 3; z-loss, Chowdhery et al. (2022), "PaLM", section 5; masks that follow the
loss, Edman and Fraser (2025), "Mask and You Shall Receive"; causal steps, after Charpentier and Samuel (2024), "BERT or
GPT: why not both?", but with BERT's head, which predicts a piece at its own position; rotary positions and gated
feed-forward, Warner et al. (2024), "Smarter, Better, Faster, Longer".
"""

import argparse
import contextlib
import copy
import dataclasses
import math
import os
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any
from unittest import mock

os.environ["OMP_NUM_THREADS"] = "1"

import numpy as np
import torch
import torch.nn.functional as F
from harness import RESULTS, machine, machine_label
from learning_speed_report import append_line, read_lines
from model_scores import ProbeTask, probe_tasks
from pretraining_recipe import options_of
from torch import Tensor, nn

from bertsmith.app.library.training import pretrain
from bertsmith.base.core.progress import quiet
from bertsmith.base.core.randomness import generator
from bertsmith.models.checkpoints.assembly import save_pretrained, untrained
from bertsmith.models.heads.encoder_with_head import EncoderForPreTraining
from bertsmith.models.model_files.metadata import ModelMetadata
from bertsmith.models.parts import transformer
from bertsmith.models.parts.layers import initialize, linear
from bertsmith.text.corpus.shards import Corpus
from bertsmith.training.loop.trainer import Trainer
from bertsmith.training.pretraining import initialization, masking, run, workload
from bertsmith.training.pretraining.batch import PretrainingBatch
from bertsmith.training.pretraining.counted_draws import fold, purpose_keys
from bertsmith.training.pretraining.held_out_scores import HeldOutRows
from bertsmith.training.pretraining.stream import Documents, PretrainingStream
from bertsmith.training.pretraining.workload import Pretraining

Patch = contextlib.AbstractContextManager[Any]
AVERAGED = 0.2  # of the steps, the last ones
SPAN = 1 / 3.8  # probability that a span ends: the mean length of SpanBERT
ROW_TOKENS = 40  # of a row of the docstrings, about: the detection loss is a mean over the tokens of a step
Z_WEIGHT = 1e-4
RECENT = 0.9  # what a moving average of the losses of a piece keeps at each of its predictions
GENERATOR_WEIGHT, DETECTION_WEIGHT = 1.0, 50.0  # section 3.2 of ELECTRA


def falling_masks(highest: float, lowest: float, steps: int) -> Patch:
    """The share of masks falls linearly over the run."""
    plan, mask_rows, share = Pretraining.plan, masking.Masker.mask_rows, [highest]

    def planned(self: Pretraining, step: int, rank: int, world: int) -> Any:
        share[0] = highest + (lowest - highest) * step / steps
        return plan(self, step, rank, world)

    def masked(self: masking.Masker, *args: Any) -> Any:
        changed = copy.copy(self)
        changed.settings = dataclasses.replace(self.settings, masked_share=share[0], max_predictions=None)
        return mask_rows(changed, *args)

    stack = contextlib.ExitStack()
    stack.enter_context(mock.patch.object(Pretraining, "plan", planned))
    stack.enter_context(mock.patch.object(masking.Masker, "mask_rows", masked))
    return stack


def span_masks() -> Patch:
    """Runs of pieces of geometric length are masked together."""
    mask_rows = masking.Masker.mask_rows

    def masked(self: masking.Masker, token_ids: Any, lengths: Any, keys: Any) -> Any:
        # A unit of the masker is a word; here the "words" begin at random positions.
        rows = np.repeat(np.arange(len(lengths)), lengths)
        within = np.arange(len(token_ids)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
        chance = (fold(purpose_keys(keys, "span")[rows], within) >> np.uint64(11)) * 2.0**-53
        changed = copy.copy(self)
        changed.settings = dataclasses.replace(self.settings, whole_word=True)
        changed._continues = _ByPosition(chance >= SPAN, self._fixed[token_ids])
        return mask_rows(changed, token_ids, lengths, keys)

    return mock.patch.object(masking.Masker, "mask_rows", masked)


class _ByPosition:
    """Stands in for the table "is a continuation by piece": answers by position, for all candidates at once."""

    def __init__(self, continues: Any, is_fixed: Any) -> None:
        self.candidates = continues[~is_fixed]

    def __getitem__(self, pieces: Any) -> Any:
        assert len(pieces) == len(self.candidates)
        return self.candidates


def averaged(steps: int) -> Patch:
    """The parameters at the end are their mean over the last steps."""
    plans = Trainer.plans

    def patched(self: Trainer, upcoming: Any) -> Iterator[Any]:
        total: list[Tensor] = []
        parameters, count = list(self.workload.model.parameters()), 0
        with contextlib.closing(plans(self, upcoming)) as inner:
            for step, plan in inner:
                yield step, plan
                if step >= steps - round(AVERAGED * steps):
                    values = [parameter.detach().double() for parameter in parameters]
                    total = [a + b for a, b in zip(total, values, strict=True)] if total else values
                    count += 1
        with torch.no_grad():
            for parameter, value in zip(parameters, total, strict=True):
                parameter.copy_(value / count)

    return mock.patch.object(Trainer, "plans", patched)


def initialized(change: Callable[[EncoderForPreTraining], None]) -> Patch:
    """Changes the model after its initialization from the corpus."""
    original = run.initialize_from_corpus

    def patched(model: EncoderForPreTraining, *args: Any) -> None:
        original(model, *args)
        with torch.no_grad():
            change(model)

    return mock.patch.object(run, "initialize_from_corpus", patched)


def initialized_but_for(is_random: Callable[[str], bool]) -> Patch:
    """The initialization from the corpus, but for the parameters with some names, which stay random."""
    original = run.initialize_from_corpus

    def patched(model: EncoderForPreTraining, *args: Any) -> None:
        before = {name: value.clone() for name, value in model.state_dict().items() if is_random(name)}
        assert before, "parameters of these names"
        original(model, *args)
        model.load_state_dict(before, strict=False)

    return mock.patch.object(run, "initialize_from_corpus", patched)


def scaled_residuals(model: EncoderForPreTraining) -> None:
    """What a layer adds to its input starts smaller in a deep model."""
    layers = model.config.num_hidden_layers
    for name, parameter in model.named_parameters():
        if name.endswith(("attention_output.weight", ".output.weight")):
            parameter.div_(math.sqrt(2 * layers))


def smaller_start(model: EncoderForPreTraining) -> None:
    """The matrices of the layers start half as wide."""
    for name, parameter in model.named_parameters():
        if ".layers." in name and parameter.dim() == 2:
            parameter.div_(2)


def wider_start(model: EncoderForPreTraining) -> None:
    """The feed-forward matrices start three times as wide."""
    for name, parameter in model.named_parameters():
        if "intermediate" in name and name.endswith("weight"):
            parameter.mul_(3)


def untied(model: EncoderForPreTraining) -> None:
    """The decoder gets a table of its own, which starts as the word table."""
    table = nn.Parameter(model.encoder.word_table.detach().clone())
    model.mlm.register_parameter("table", table)
    forward = type(model.mlm).forward
    model.mlm.forward = lambda hidden, _: forward(model.mlm, hidden, model.mlm.table)  # type: ignore[method-assign]


def growing_steps() -> Patch:
    """The second phase has four times the rows per step of the first."""
    start = PretrainingStream.__init__

    def patched(self: PretrainingStream, *args: Any, rows_per_step: int = 256, **others: Any) -> None:
        is_second = args[1].max_length == LONG["long_length"]
        start(self, *args, rows_per_step=rows_per_step * (4 if is_second else 1), **others)

    return mock.patch.object(PretrainingStream, "__init__", patched)


class _Joined:
    """Documents of a corpus, several consecutive ones as one, so that rows hold more than one short document."""

    def __init__(self, documents: Documents, together: int) -> None:
        self.documents, self.together = documents, together
        self.num_documents = -(-documents.num_documents // together)
        starts = np.arange(0, documents.num_documents, together)
        self.document_lengths = np.add.reduceat(np.asarray(documents.document_lengths), starts)

    def _parts(self, index: int) -> range:
        first = index * self.together
        return range(first, min(first + self.together, self.documents.num_documents))

    def prefetch(self, documents: np.ndarray) -> None:
        """There is nothing to fetch."""

    def document_tokens(self, index: int) -> Any:
        """The tokens of all parts."""
        return np.concatenate([self.documents.document_tokens(part) for part in self._parts(index)])

    def document_sentences(self, index: int) -> Any:
        """The sentence starts of all parts, and the end."""
        edges, before = [np.zeros(1, dtype=np.int64)], 0
        for part in self._parts(index):
            sentences = self.documents.document_sentences(part)
            edges.append(sentences[1:] + before)
            before += int(sentences[-1])
        return np.concatenate(edges)


def joined(together: int) -> Patch:
    """Rows of several short documents."""
    start = Pretraining.__init__

    def patched(self: Pretraining, model: Any, documents: Documents, *args: Any, **others: Any) -> None:
        start(self, model, _Joined(documents, together), *args, **others)

    return mock.patch.object(Pretraining, "__init__", patched)


class _Generator(nn.Module):
    """The small masked language model that fills the gaps, and the layer that detects what it filled in."""

    def __init__(self, model: EncoderForPreTraining) -> None:
        super().__init__()
        config = model.config
        width = config.hidden_size // 4
        small = dataclasses.replace(config, hidden_size=width, intermediate_size=4 * width, num_attention_heads=2)
        self.filler = untrained(small, seed=1)
        self.detector = nn.Linear(config.hidden_size, 1)
        initialize(self.detector, config.initializer_range, 2)


def replaced_tokens(model: EncoderForPreTraining) -> None:
    """Replaced-token detection: the model tells for every position whether the generator changed it."""
    model.add_module("generator", _Generator(model))


def _detection_losses(
    self: Pretraining, model: Any, micro_batch: PretrainingBatch, noise: Any
) -> tuple[Tensor, dict[str, Tensor]]:
    generated: _Generator = model.generator
    batch, targets = micro_batch.batch, micro_batch.targets
    assert targets is not None
    logits = generated.filler(
        batch, read=micro_batch.read, masked=micro_batch.predicted, dtype=self.runtime.dtype
    ).mlm_logits
    loss = GENERATOR_WEIGHT * F.cross_entropy(logits.float(), targets, reduction="sum") / micro_batch.step_predictions
    draws = generator(self.data.seed, "replaced tokens", micro_batch.step, int(batch.row_ids[0]))
    drawn = torch.from_numpy(draws.random(logits.shape, dtype=np.float32)).clamp_min(1e-20)
    pieces = (logits.detach().float() - (-drawn.log()).log()).argmax(-1)  # the Gumbel way to draw
    assert micro_batch.predicted is not None
    places = micro_batch.read.positions[micro_batch.predicted]
    ids, truth = batch.token_ids.clone(), batch.token_ids.clone()
    truth[places] = targets
    ids[places] = pieces
    hidden = model.encoder(dataclasses.replace(batch, token_ids=ids), dtype=self.runtime.dtype)
    told = linear(hidden, generated.detector).float().squeeze(1)
    wrong = (ids != truth).float()
    detection = F.binary_cross_entropy_with_logits(told, wrong, reduction="sum") / (micro_batch.step_rows * ROW_TOKENS)
    loss = loss + DETECTION_WEIGHT * detection
    sums = {"mlm_nll": loss.detach(), "mlm_correct": torch.zeros(()), "mlm_count": torch.tensor(len(targets))}
    return loss, sums


def detection() -> Patch:
    """The model gets a generator, and the loss of ELECTRA."""
    stack = contextlib.ExitStack()
    stack.enter_context(initialized(replaced_tokens))
    stack.enter_context(mock.patch.object(workload.Pretraining, "_losses", _detection_losses))
    return stack


def z_loss() -> Patch:
    """The squared logarithm of the softmax's denominator joins the loss, so that logits do not drift."""
    likelihood = workload.negative_log_likelihood

    def patched(logits: Tensor, targets: Tensor, name: str, sums: dict[str, Tensor]) -> Tensor:
        return likelihood(logits, targets, name, sums) + Z_WEIGHT * logits.float().logsumexp(-1).square().sum()

    return mock.patch.object(workload, "negative_log_likelihood", patched)


def hard_pieces(power: float) -> Patch:
    """Pieces are masked the more often, the higher their loss was in recent steps, relative to the mean over all."""
    mask_rows, choose, likelihood = masking.Masker.mask_rows, masking._choose, workload.negative_log_likelihood
    losses: list[np.ndarray] = []  # [V], moving averages
    candidates: list[np.ndarray] = []  # the pieces that may be masked, in order

    def masked(self: masking.Masker, token_ids: Any, lengths: Any, keys: Any) -> Any:
        candidates[:] = [token_ids[~self._fixed[token_ids]]]
        return mask_rows(self, token_ids, lengths, keys)

    def chosen(rows: Any, sizes: Any, order: Any, wanted: Any) -> Any:
        if losses:
            # The smallest of exponential draws with these rates are a sample without replacement.
            rates = np.clip(losses[0][candidates[0]] / losses[0].mean(), 0.2, 5.0) ** power
            draws = -np.log1p(-(order >> np.uint64(11)) * 2.0**-53) / rates
            order = (draws / draws.max() * 2.0**62).astype(np.uint64)
        return choose(rows, sizes, order, wanted)

    def patched(logits: Tensor, targets: Tensor, name: str, sums: dict[str, Tensor]) -> Tensor:
        size = logits.shape[1]
        with torch.no_grad():
            each = F.cross_entropy(logits.float(), targets, reduction="none").double().numpy()
        counts = np.bincount(targets.numpy(), minlength=size)
        means = np.bincount(targets.numpy(), weights=each, minlength=size) / np.maximum(counts, 1)
        if not losses:
            losses.append(np.full(size, each.mean()))
        kept = RECENT**counts
        losses[0] = np.where(counts > 0, kept * losses[0] + (1 - kept) * means, losses[0])
        return likelihood(logits, targets, name, sums)

    stack = contextlib.ExitStack()
    stack.enter_context(mock.patch.object(masking.Masker, "mask_rows", masked))
    stack.enter_context(mock.patch.object(masking, "_choose", chosen))
    stack.enter_context(mock.patch.object(workload, "negative_log_likelihood", patched))
    return stack


def causal_steps(every: int) -> Patch:
    """In each step of that number, tokens attend only to the left: masked pieces are predicted from what is before."""
    attention, losses, is_causal = transformer.attention, workload.Pretraining._losses, [False]

    def attend(*args: Any, causal: bool, **others: Any) -> Any:
        return attention(*args, causal=causal or is_causal[0], **others)

    def patched(self: Pretraining, model: Any, batch: PretrainingBatch, *args: Any, **others: Any) -> Any:
        is_causal[0] = model.training and batch.step % every == every - 1
        try:
            return losses(self, model, batch, *args, **others)
        finally:
            is_causal[0] = False

    stack = contextlib.ExitStack()
    stack.enter_context(mock.patch.object(transformer, "attention", attend))
    stack.enter_context(mock.patch.object(workload.Pretraining, "_losses", patched))
    return stack


LONG: Mapping[str, Any] = {"max_length": 63, "long_length": 64, "long_share": 1 / 3}
IDEAS: Mapping[str, tuple[Callable[[int], Patch], Mapping[str, Any]]] = {
    "none": (lambda _: contextlib.nullcontext(), {}),
    "masks falling from 40 to 15 %": (lambda steps: falling_masks(0.4, 0.15, steps), {}),
    "masks falling from 50 to 20 %": (lambda steps: falling_masks(0.5, 0.2, steps), {}),
    "60 % of predictions masked, 30 % kept": (
        lambda _: contextlib.nullcontext(),
        {"mask_share": 0.6, "keep_share": 0.3, "random_share": 0.1},
    ),
    "40 % of pieces predicted, half of them masked": (
        lambda _: contextlib.nullcontext(),
        {"masked_share": 0.4, "mask_share": 0.5, "keep_share": 0.4, "random_share": 0.1},
    ),
    "span masks": (lambda _: span_masks(), {}),
    "mean of the last fifth": (averaged, {}),
    "mean of the last fifth, constant rate": (averaged, {"schedule": "constant"}),
    "frequencies alone": (lambda _: initialized_but_for(lambda name: name != "mlm.bias"), {}),
    "frequencies and neighbors": (lambda _: initialized_but_for(lambda name: "embeddings.word." in name), {}),
    "smaller start": (lambda _: initialized(smaller_start), {}),
    "frequencies and word vectors": (lambda _: mock.patch.object(initialization, "_attend_to_neighbors"), {}),
    "scaled residuals": (lambda _: initialized(scaled_residuals), {}),
    "wider feed-forward start": (lambda _: initialized(wider_start), {}),
    "a decoder of its own": (lambda _: initialized(untied), {}),
    "steps of 16, then 64 rows": (lambda _: growing_steps(), {**LONG, "rows_per_step": 16}),
    "rows of 32, then 64 tokens": (
        lambda _: contextlib.nullcontext(),
        {"max_length": 32, "long_length": 64, "long_share": 0.5},
    ),
    "four documents in a row, half the rows": (lambda _: joined(4), {"rows_per_step": 16}),
    "z-loss": (lambda _: z_loss(), {}),
    "masks that follow the loss of pieces": (lambda _: hard_pieces(1.0), {}),
    "masks that follow its root": (lambda _: hard_pieces(0.5), {}),
    "every 16th step causal": (lambda _: causal_steps(16), {}),
    "every second step causal": (lambda _: causal_steps(2), {}),
    "weight decay 0.1": (lambda _: contextlib.nullcontext(), {"weight_decay": 0.1}),
    "the network of ModernBERT": (lambda _: contextlib.nullcontext(), {"architecture": "modernbert"}),
    "replaced-token detection": (lambda _: detection(), {}),
}


class Kept:
    """Keeps the model of a training when its last step is done, and ends the training there."""

    def __init__(self) -> None:
        self.model: EncoderForPreTraining | None = None

    def patch(self) -> Patch:
        """While active, `pretrain` raises `Done` in place of writing the model."""
        plans = Trainer.plans

        def patched(trainer: Trainer, steps: Any) -> Iterator[Any]:
            with contextlib.closing(plans(trainer, steps)) as inner:
                yield from inner
            self.model = trainer.workload.model  # type: ignore[assignment]
            raise Done

        return mock.patch.object(Trainer, "plans", patched)


class Done(BaseException):
    """The last step is done."""


def run_idea(name: str, options: argparse.Namespace, rows: HeldOutRows, tasks: Mapping[str, ProbeTask]) -> Any:
    """The line of one run."""
    patch, changes = IDEAS[name]
    kept = Kept()
    settings: dict[str, Any] = {"size": options.size, "steps": options.steps, "max_length": options.length, **changes}
    quietly = {"evaluate_every": 10**6, "evaluate_at_start": False, "save_minutes": None, "evaluation_rows": 1}
    start = time.process_time()
    with tempfile.TemporaryDirectory() as folder, patch(options.steps), kept.patch(), contextlib.suppress(Done):
        pretrain(options.corpus, Path(folder) / "run", precision="fp32", seed=options.seed, **quietly, **settings)
    seconds = time.process_time() - start
    model = kept.model
    assert model is not None
    line: dict[str, Any] = {"idea": name, "size": options.size, "steps": options.steps, "seed": options.seed}
    if hasattr(model, "generator"):
        del model.generator
    else:
        scores = rows.scores(model)
        line |= {"loss": round(scores.loss, 4), "top5": round(scores.top, 4)}
    if tasks:
        line["probes"] = probes(model, Corpus.open(options.corpus), tasks)
    return {**line, "seconds": round(seconds, 1)}


def probes(model: EncoderForPreTraining, corpus: Corpus, tasks: Mapping[str, ProbeTask]) -> dict[str, float]:
    """The accuracy of logistic regression on the frozen vectors of a model, by task."""
    if hasattr(model.mlm, "table"):
        del model.mlm.table, model.mlm.forward
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model"
        save_pretrained(path, model, corpus.tokenizer, ModelMetadata.from_dict({"task": "none"}))
        return {name: task.accuracy(path) for name, task in tasks.items()}


def main() -> None:
    """Runs all ideas that have no line yet, and prints the table."""
    parser = options_of(__doc__.splitlines()[0], steps=300)
    parser.add_argument("--data", type=Path, help="folder with glue/SST-2 and cls/nltk/qc, for the probes")
    parser.add_argument("--ideas", type=lambda text: text.split(","), default=list(IDEAS))
    options = parser.parse_args()
    torch.set_num_threads(1)
    rows = HeldOutRows.of(Corpus.open(options.corpus), length=options.length, rows=512)
    tasks = {} if options.data is None else probe_tasks(options.data)
    out = RESULTS / f"pretraining_ideas_{machine_label(machine())}.jsonl"
    known = ("idea", "size", "steps", "seed")
    for name in options.ideas:
        mine = (name, options.size, options.steps, options.seed)
        if all(tuple(line[key] for key in known) != mine for line in read_lines(out)):
            with quiet():
                line = run_idea(name, options, rows, tasks)
            append_line(out, line)
            print(line, flush=True)


if __name__ == "__main__":
    main()
