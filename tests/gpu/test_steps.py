"""A step on a device: losses and gradients against the CPU in fp64, in every precision, with every attention.

The tolerances are relative errors of a whole gradient, ||found - exact|| / ||exact||.
"""

import numpy as np
import pytest
import torch
import torch.distributed as dist

from bertsmith.base.machine.runtime import Rank, Runtime, fast_precisions
from bertsmith.base.processes.sharding import Division, divide, is_part, own_rows
from bertsmith.models.checkpoints.architectures import new_encoder
from bertsmith.models.heads.encoder_with_head import EncoderForPreTraining
from bertsmith.models.parts.attention import attention
from bertsmith.models.parts.batch import Batch
from bertsmith.models.parts.config import BertConfig
from bertsmith.models.products.compiled import compile_layers
from bertsmith.training.loop.guard import StopRequest
from bertsmith.training.loop.settings import TrainSettings
from bertsmith.training.loop.trainer import Trainer
from bertsmith.training.pretraining.settings import PretrainingDataSettings, PretrainingRunSettings
from bertsmith.training.pretraining.workload import Pretraining
from gpu.conftest import VOCABULARY
from oracles.padded_bert import pad, padded_peer
from oracles.pretraining_oracle import MemoryDocuments
from training.whole_steps import whole_step

# fp32 sums in another order; bf16 and fp16 have 8 and 11 bits.
TOLERANCE = {"fp32": 1e-4, "bf16": 3e-2, "fp16": 1e-2}
HEADS, WIDTH = 4, 8


def documents() -> MemoryDocuments:
    rng = np.random.default_rng(0)
    drawn = [
        [rng.integers(5, 90, size=rng.integers(2, 15)).tolist() for _ in range(rng.integers(2, 9))] for _ in range(30)
    ]
    return MemoryDocuments(drawn)


def task(device: str, precision: str, dropout: float = 0.0, **changes) -> Pretraining:
    config = BertConfig(
        vocab_size=len(VOCABULARY),
        hidden_size=HEADS * WIDTH,
        num_hidden_layers=2,
        num_attention_heads=HEADS,
        intermediate_size=64,
        hidden_dropout_prob=dropout,
        attention_probs_dropout_prob=dropout,
    )
    model = EncoderForPreTraining(new_encoder(config), seed=1)
    model = model.double() if precision == "fp64" else model
    data = PretrainingDataSettings(max_length=40, seed=3, **changes)
    runtime = Runtime(device=device, precision=precision)
    return Pretraining(
        model,
        documents(),
        None,
        VOCABULARY,
        data,
        runtime,
        PretrainingRunSettings(size="tiny", rows_per_step=24, micro_tokens=300),
    )


def loss_and_gradient(work: Pretraining) -> tuple[float, torch.Tensor]:
    """The loss of a step, and its gradient as one vector in fp64."""
    loss, _, gradients = whole_step(work, 0)
    return loss, torch.cat([gradients[name].double().cpu().ravel() for name in sorted(gradients)])


def precisions(device: str) -> list[str]:
    return [precision for precision in fast_precisions(device) if precision in TOLERANCE]


def test_a_model_that_is_divided_has_the_gradients_of_a_whole_one(device, tmp_path):
    expected = loss_and_gradient(task(device, "fp32"))
    work = task(device, "fp32")
    values = {name: parameter.detach().clone() for name, parameter in work.model.named_parameters()}
    kind = "cpu:gloo,cuda:nccl" if device == "cuda" else "gloo"
    dist.init_process_group(kind, init_method=f"file://{tmp_path / 'store'}", rank=0, world_size=1)
    try:
        divide(work.model.to("meta"), Division(Rank(), torch.device(device)), values.__getitem__)
        loss, _, gradients = whole_step(work, 0)
        assert all(map(is_part, gradients.values()))
        gradient = torch.cat([own_rows(gradients[name]).double().cpu().ravel() for name in sorted(gradients)])
    finally:
        dist.destroy_process_group()
    assert loss == pytest.approx(expected[0], rel=TOLERANCE["fp32"])
    assert (gradient - expected[1]).norm() / expected[1].norm() < TOLERANCE["fp32"]


@pytest.mark.parametrize("objective", ["mlm", "mlm+nsp", "left-to-right"])
def test_losses_and_gradients_are_those_of_the_cpu(device, objective):
    exact_loss, exact = loss_and_gradient(task("cpu", "fp64", objective=objective))
    for precision in precisions(device):
        loss, gradient = loss_and_gradient(task(device, precision, objective=objective))
        assert loss == pytest.approx(exact_loss, rel=TOLERANCE[precision]), precision
        assert (gradient - exact).norm() / exact.norm() < TOLERANCE[precision], precision


def test_packed_equals_padded(device):
    work = task(device, "fp32")
    batch = work.plan(0, 0, 1).micro_batches[0].batch
    peer = padded_peer(work.model.cpu()).to(device).eval()
    work.model.to(device)
    with torch.no_grad():
        ours = work.model.encoder(batch)
        ids, segments, mask = (
            part.to(device)
            for part in pad(
                Batch.from_flat(batch.token_ids.cpu().numpy(), batch.segment_ids.cpu().numpy(), batch.lengths)
            )
        )
        theirs = peer.bert(ids, attention_mask=mask, token_type_ids=segments).last_hidden_state[mask.bool()]
    torch.testing.assert_close(ours, theirs, atol=1e-4, rtol=1e-4)


def test_dropout_of_a_step_is_the_same_whenever_it_is_computed(device):
    for precision in precisions(device):
        (first, first_gradient), (second, two) = (
            loss_and_gradient(task(device, precision, dropout=0.2)) for _ in range(2)
        )
        assert first == pytest.approx(second, rel=1e-6), precision
        assert (first_gradient - two).norm() / first_gradient.norm() < 1e-5, precision
        assert first != pytest.approx(loss_and_gradient(task(device, precision))[0], rel=1e-6)


@pytest.mark.filterwarnings("ignore")
def test_compiled_layers_compute_the_same(device):
    torch._dynamo.reset()
    for precision in precisions(device):
        expected, exact = loss_and_gradient(task(device, precision, dropout=0.1))
        work = task(device, precision, dropout=0.1)
        work.lanes = 1
        compile_layers(work.model.encoder, device, backend="inductor" if device == "cuda" else "aot_eager")
        loss, gradient = loss_and_gradient(work)
        assert loss == pytest.approx(expected, rel=TOLERANCE[precision]), precision
        assert (gradient - exact).norm() / exact.norm() < TOLERANCE[precision], precision
    torch._dynamo.reset()


@pytest.mark.parametrize(("causal", "window"), [(False, None), (True, None), (False, 3)])
def test_attention_is_that_of_the_cpu_in_fp64(device, causal, window):
    lengths = [5, 5, 17, 40, 1]
    ids = np.zeros(sum(lengths), dtype=np.int64)
    source = torch.Generator().manual_seed(1)
    inputs = torch.randn((3, len(ids), HEADS * WIDTH), generator=source)
    how = {"heads": HEADS, "causal": causal, "window": window}
    exact = attention(*inputs.double(), Batch.from_flat(ids, ids, lengths).runs, **how)
    runs = Batch.from_flat(ids, ids, lengths, None, device).runs
    for precision in precisions(device):
        dtype = Runtime(device=device, precision=precision).dtype
        result = attention(*inputs.to(device, dtype), runs, **how).double().cpu()
        assert (result - exact).norm() / exact.norm() < TOLERANCE[precision], precision


@pytest.mark.parametrize("optimizer", ["adam", "lamb", "muon"])
def test_updates_are_those_of_the_cpu(device, optimizer):
    trained = []
    for where in ("cpu", device):
        work = task(where, "fp32")
        trainer = Trainer(work, TrainSettings(steps=3, optimizer=optimizer), Rank(), StopRequest())
        before = torch.cat([p.detach().double().cpu().ravel() for p in work.model.parameters()])
        for step in range(3):
            trainer.apply(trainer.gradient(step, work.plan(step, 0, 1)), 1e-3)
        trained.append(torch.cat([p.detach().double().cpu().ravel() for p in work.model.parameters()]) - before)
    # Muon computes its updates in bf16 where the hardware has it.
    most = 5e-2 if optimizer == "muon" else 2e-2
    assert (trained[1] - trained[0]).norm() / trained[0].norm() < most
