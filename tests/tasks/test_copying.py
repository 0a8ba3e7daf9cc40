"""Copying from the source: a mixture of two distributions, the same in any batch, that writes words never seen."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest
import torch

import bertsmith
from bertsmith.models.checkpoints.assembly import load_for_task
from bertsmith.models.checkpoints.load import load_any
from bertsmith.models.heads.copying import Copying
from bertsmith.models.heads.encoder_with_head import EncoderForTask
from bertsmith.models.parts.batch import Batch
from bertsmith.models.parts.encoder import Encoder
from bertsmith.models.parts.memory import Memory
from bertsmith.models.parts.source import SourceStates
from bertsmith.models.parts.transformer import TransformerEncoder
from bertsmith.tasks.encoding.generation import write_texts
from bertsmith.tasks.encoding.writing import Writing
from bertsmith.tasks.specs.kinds import task_for
from bertsmith.tasks.specs.named_tasks import WRITTEN, default_settings
from bertsmith.tasks.specs.task import TaskSpec
from server.models import write_task_model
from tasks.architecture_samples import encoder_of
from tasks.task_samples import CONFIG, SPECS, TOKENIZER

KIND = "text to write"
SPEC = dataclasses.replace(SPECS[KIND], settings=dataclasses.replace(SPECS[KIND].settings, copy=True))
CLS, SEP, WORD = TOKENIZER.vocabulary.cls_id, TOKENIZER.vocabulary.sep_id, 5
WRITING = Writing(start=CLS, end=SEP, pieces=len(TOKENIZER.vocabulary), never=(0, 1, CLS, 4), longest=6)
SOURCES = ([2, 7, 8, 7, 9, 7, 3], [2, 5, 3], [2, 6, 6, 3], [2, 9, 8, 3])
TARGETS = ([2, 7, 8], [2, 5, 9, 9, 9], [2, 6], [2, 6])


def model_of(encoder: Encoder | None = None, seed: int = 3) -> EncoderForTask:
    """A model whose random weights are large, so that its texts differ."""
    model = EncoderForTask(encoder or encoder_of("bert"), task_for(SPEC).head, seed=seed).double().eval()
    drawn = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=drawn, dtype=torch.float64) * 0.2)
    return model


def batch_of(rows: tuple[list[int], ...]) -> Batch:
    return Batch.from_rows([np.array(row) for row in rows])


def reference(
    copying: Copying, logits: torch.Tensor, hidden: torch.Tensor, states: torch.Tensor, ids: list[int]
) -> torch.Tensor:
    """The probabilities as in the paper, for one text."""
    gate = torch.sigmoid(copying.gate(hidden))
    scores = copying.query(hidden) @ copying.key(states).T / hidden.shape[1] ** 0.5
    shares = torch.zeros_like(logits).index_add(1, torch.tensor(ids), scores.softmax(1))
    return gate * logits.softmax(1) + (1 - gate) * shares


def test_the_softmax_is_the_mixture_and_its_gradients_are_those_of_the_mixture() -> None:
    drawn = torch.Generator().manual_seed(0)
    copying = Copying(8).double()
    counts, lengths = tuple(map(len, TARGETS)), tuple(map(len, SOURCES))
    tensors = [
        torch.randn(rows, width, generator=drawn, dtype=torch.float64, requires_grad=True)
        for rows, width in ((sum(counts), 30), (sum(counts), 8), (sum(lengths), 8))
    ]
    logits, hidden, states = tensors
    ids = torch.tensor([id for row in SOURCES for id in row])
    mixed = copying(logits * 9, hidden, SourceStates(states, lengths, pieces=ids), counts)
    parts = zip(logits.split(counts), hidden.split(counts), states.split(lengths), SOURCES, strict=True)
    expected = torch.cat([reference(copying, first * 9, *rest) for first, *rest in parts])
    torch.testing.assert_close(mixed.softmax(1), expected)
    torch.testing.assert_close(expected.sum(1), torch.ones(sum(counts), dtype=torch.float64))
    gold, wanted = torch.arange(sum(counts)) % 9, [*tensors, *copying.parameters()]
    losses = torch.nn.functional.cross_entropy(mixed, gold), -expected.log()[range(len(gold)), gold].mean()
    for ours, theirs in zip(*(torch.autograd.grad(loss, wanted, retain_graph=True) for loss in losses), strict=True):
        torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@torch.no_grad()
def test_in_half_precision_only_the_inputs_are_rounded(dtype: torch.dtype) -> None:
    drawn = torch.Generator().manual_seed(0)
    copying = Copying(8)
    states, hidden, logits = (torch.randn(7, width, generator=drawn) for width in (8, 8, 30))
    (ids,) = (torch.tensor(row) for row in SOURCES[:1])
    mixed = copying(logits.to(dtype), hidden.to(dtype), SourceStates(states.to(dtype), (7,), pieces=ids), (7,))
    assert mixed.dtype == torch.float32
    torch.testing.assert_close(mixed.softmax(1).sum(1), torch.ones(7))
    torch.testing.assert_close(
        mixed.softmax(1), reference(copying, logits, hidden, states, ids.tolist()), atol=0.02, rtol=0
    )


@torch.no_grad()
def test_piece_by_piece_and_alone_give_the_logits_of_one_pass() -> None:
    model = model_of()
    source = model.encode(batch_of(SOURCES[:2]))
    targets = ([5, 6, 7, 8], [6, 5, 9, 9])
    whole = model.decode(batch_of(targets), source).view(2, 4, -1)
    memory = Memory()
    for step in range(4):
        logits = model.decode(batch_of(tuple(row[step : step + 1] for row in targets)), source, memory=memory)
        torch.testing.assert_close(logits, whole[:, step], rtol=1e-9, atol=1e-9)
    for number in range(2):
        alone = model(batch_of((SOURCES[number],)), target=batch_of((targets[number],)))
        torch.testing.assert_close(alone, whole[number], rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("beam", [1, 3])
def test_a_text_is_the_same_alone_and_in_any_batch(beam: int) -> None:
    model, rows = model_of(), [np.array(row) for row in SOURCES]
    writing = dataclasses.replace(WRITING, beam=beam, answers=beam, length_penalty=0.6)
    together = write_texts(model, rows, [6] * len(rows), writing)
    for row, texts in zip(rows, together, strict=True):
        (alone,) = write_texts(model, [row], [6], writing)
        assert [text.ids for text in alone] == [text.ids for text in texts]
        np.testing.assert_allclose([text.score for text in alone], [text.score for text in texts], rtol=1e-9)


def copies_learned(copy: bool) -> float:
    """The share of unseen words that a model writes after it has learned to repeat the second word of a text."""
    config = dataclasses.replace(CONFIG, vocab_size=85, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
    head = dataclasses.replace(task_for(SPEC).head, copies=copy)
    model = EncoderForTask(TransformerEncoder(config), head, seed=0)
    draw, optimizer = np.random.default_rng(0), torch.optim.Adam(model.parameters(), 3e-3)

    def sources(least: int, most: int, count: int) -> list[list[int]]:
        return [[CLS, *row, SEP] for row in draw.integers(least, most, (count, 4)).tolist()]

    for _ in range(120):
        rows = sources(WORD, 45, 32)
        logits = model(batch_of(tuple(rows)), target=batch_of(tuple([CLS, row[2]] for row in rows)))
        gold = torch.tensor([id for row in rows for id in (row[2], SEP)])
        loss = torch.nn.functional.cross_entropy(logits, gold)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    rows = sources(45, 85, 64)
    written = write_texts(
        model.eval(), [np.array(row) for row in rows], [4] * 64, dataclasses.replace(WRITING, pieces=85)
    )
    return float(np.mean([text.ids == (row[2],) for (text,), row in zip(written, rows, strict=True)]))


def test_words_that_no_example_has_are_copied_and_without_copying_are_not_written() -> None:
    assert copies_learned(copy=True) > 0.8
    assert copies_learned(copy=False) < 0.1


def test_whether_a_model_copies_is_stored_with_it_and_tasks_of_earlier_models_do_not(tmp_path: Path) -> None:
    folder = write_task_model(tmp_path / "model", SPEC)
    tensors = load_any(folder).tensors
    names = {name for name in tensors if name.startswith("decoder.copy.")}
    assert names == {
        f"decoder.copy.{layer}.{kind}" for layer in ("query", "key", "gate") for kind in ("weight", "bias")
    }
    model = load_for_task(load_any(folder), task_for(SPEC).head, keep_head=True).model
    assert torch.equal(model.state_dict()["decoder.copy.gate.weight"], tensors["decoder.copy.gate.weight"])
    stored = SPEC.to_dict()
    assert TaskSpec.from_dict(stored, "a model") == SPEC
    del stored["settings"]["copy"]
    assert not TaskSpec.from_dict(stored, "a model").settings.copy
    assert all(default_settings(name).copy for name in WRITTEN)
    assert "copy" not in SPECS["single"].to_dict()["settings"]


@pytest.mark.parametrize("precision", ["int8", "bf16"])
def test_a_model_that_copies_writes_in_every_precision(precision: str, tmp_path: Path) -> None:
    folder = write_task_model(tmp_path / "model", SPEC)
    answers = bertsmith.load(folder, device="cpu", precision=precision).generate(["anna rome", "oslo"])
    assert all(np.isfinite(answer.score) and answer.score < 0 for answer in answers)


def test_the_attention_starts_as_the_dot_product_of_the_states() -> None:
    copying = EncoderForTask(encoder_of("bert"), task_for(SPEC).head).output_layer.get_submodule("copy")
    for layer in (copying.query, copying.key):
        assert torch.equal(layer.weight, torch.eye(len(layer.weight)))
        assert not layer.bias.any()
