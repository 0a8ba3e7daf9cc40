"""Whole runs on a device: resumed = straight, exported = trained, one text = many texts, and the log.

What the tokenizer does is the same on every device, so the fifth equality is not repeated here.
"""

from pathlib import Path

import numpy as np
import pytest
import torch

import bertsmith
from bertsmith.models.checkpoints.architectures import new_encoder
from bertsmith.models.heads.encoder_with_head import EncoderForPreTraining
from bertsmith.models.parts.config import BertConfig
from bertsmith.text.corpus.shards import Corpus
from bertsmith.training.loop.devices import peak_of_device
from bertsmith.training.loop.run_folder import RunFolder
from bertsmith.training.pretraining.initialization import initialize_from_corpus
from training.interruptions import killed_at_evaluation

RUN = {
    "size": "tiny", "max_length": 32, "rows_per_step": 16, "micro_tokens": 200, "evaluation_rows": 16, "dropout": 0.1,
    "initialization": "random", "optimizer": "adam", "learning_rate": 1e-3, "evaluate_every": 3, "save_every": 3,
    "log_every": 1,
}  # fmt: skip
# Kernels of a GPU add in an order that may differ between runs; on the CPU, the bytes are the same.
MOST_DIFFERENCE = {"cpu": 0.0, "cuda": 2e-3}
TEXTS = ["w5 w6 w7", "w8", "w9 w10 w11 w12 w13 w14 w15", "w16 w17"]


def weights(run: Path) -> torch.Tensor:
    model = bertsmith.load(run / "model", device="cpu")
    return torch.cat([parameter.detach().double().ravel() for parameter in model.encoder.model.parameters()])


@pytest.fixture(scope="module")
def trained(corpus, device, tmp_path_factory) -> Path:
    run = tmp_path_factory.mktemp("trained") / "run"
    with bertsmith.quiet():
        bertsmith.pretrain(corpus, run, **RUN, device=device, precision="fp32", steps=6)
    return run


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_a_resumed_run_ends_as_a_straight_one(corpus, device, tmp_path, precision):
    settings = {**RUN, "device": device, "precision": precision, "steps": 6}
    bertsmith.pretrain(corpus, tmp_path / "straight", **settings)

    with killed_at_evaluation(3):
        bertsmith.pretrain(corpus, tmp_path / "resumed", **settings)
    assert RunFolder.open(tmp_path / "resumed").last_step() == 3
    bertsmith.pretrain(corpus, tmp_path / "resumed", resume=True)
    straight, resumed = weights(tmp_path / "straight"), weights(tmp_path / "resumed")
    most = MOST_DIFFERENCE[device] * (10 if precision == "bf16" else 1)
    assert (straight - resumed).norm() / straight.norm() <= most
    losses = [
        [line["loss"] for line in RunFolder.open(tmp_path / name).metrics("train")] for name in ("straight", "resumed")
    ]
    assert losses[1] == pytest.approx(losses[0], rel=max(most, 1e-12))


def test_what_a_device_computes_is_what_the_cpu_computes(trained, device):
    here, there = (bertsmith.load(trained, device=where, precision="fp32") for where in ("cpu", device))
    np.testing.assert_allclose(there.embed(TEXTS), here.embed(TEXTS), atol=1e-4)


def test_a_text_has_the_same_vector_alone_and_among_others(trained, device):
    model = bertsmith.load(trained, device=device, precision="fp32")
    together = model.embed(TEXTS)
    alone = np.concatenate([model.embed([text]) for text in TEXTS])
    np.testing.assert_allclose(together, alone, atol=1e-4)


def test_exported_equals_trained(trained, device):
    from transformers import BertModel

    model = bertsmith.load(trained, device=device, precision="fp32")
    peer = BertModel.from_pretrained(trained / "model").to(device).eval()
    ids = torch.tensor([[2, 5, 6, 7, 3]], device=device)
    with torch.no_grad():
        theirs = peer(ids).last_hidden_state.mean(1).cpu().numpy()
    np.testing.assert_allclose(model.embed(["w5 w6 w7"]), theirs, atol=1e-4)


def test_the_log_has_the_utilization_of_a_known_gpu(trained, device):
    lines = RunFolder.open(trained).metrics("train")
    peak = peak_of_device(torch.device(device), "fp32")
    assert all(("utilization" in line) == (peak is not None) for line in lines)


def test_a_start_from_the_corpus_is_that_of_the_cpu(corpus, device):
    """Word vectors, frequencies and neighbor heads are computed on the CPU and copied to the device."""
    source = Corpus.open(corpus, verify=False)
    config = BertConfig.named("tiny", vocab_size=len(source.tokenizer.vocabulary))
    here, there = (EncoderForPreTraining(new_encoder(config), seed=1) for _ in range(2))
    there = there.to(device)
    initialize_from_corpus(here, source, seed=1)
    initialize_from_corpus(there, source, seed=1)
    torch.testing.assert_close(there.cpu().state_dict(), here.state_dict(), rtol=0, atol=1e-6)


def test_fine_tuning_runs_and_its_model_answers(trained, device, tmp_path):
    rows = [f"{'good' if number % 2 else 'bad'}\tw{5 + number % 2 * 20} w{6 + number}" for number in range(40)]
    (tmp_path / "train.tsv").write_text("label\ttext\n" + "\n".join(rows) + "\n", encoding="utf-8")
    bertsmith.finetune(
        trained, "classification", tmp_path / "tuned", train=tmp_path / "train.tsv", seeds=1, epochs=2, device=device
    )
    answers = bertsmith.load(tmp_path / "tuned", device=device).classify(["w5 w6", "w25 w7"])
    assert {answer.label for answer in answers} <= {"good", "bad"}
