"""Pre-training steps: the same losses and gradients as the padded reference, however a step is cut."""

import dataclasses

import numpy as np
import pytest
import torch

from bertsmith.base.machine.runtime import Runtime
from bertsmith.models.checkpoints.architectures import new_encoder
from bertsmith.models.heads.encoder_with_head import EncoderForPreTraining
from bertsmith.models.parts.config import BertConfig
from bertsmith.text.tokenizers.vocabulary import Vocabulary
from bertsmith.training.loop.lanes import LEAST_TOKENS
from bertsmith.training.loop.pace import Pace
from bertsmith.training.pretraining.objectives import OBJECTIVES, PIECES, Objective
from bertsmith.training.pretraining.settings import PretrainingDataSettings, PretrainingRunSettings
from bertsmith.training.pretraining.spans import walk_sentence_order
from bertsmith.training.pretraining.targets import next_pieces
from bertsmith.training.pretraining.workload import Pretraining
from oracles.padded_bert import padded_peer, peer_name
from oracles.pretraining_oracle import MemoryDocuments
from pretraining.of_processes import documents
from training.whole_steps import assert_same_gradients, assert_same_step, whole_step

VOCABULARY = Vocabulary(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *(f"w{number}" for number in range(5, 90))])
EXACT = Runtime(device="cpu", precision="fp64")


def task(
    *, dropout: float = 0.0, rows: int = 16, held_out: bool = True, run: dict[str, object] | None = None, **data: object
) -> Pretraining:
    settings = PretrainingDataSettings(**{"max_length": 24, "seed": 3, **data})
    config = BertConfig(
        vocab_size=len(VOCABULARY),
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=48,
        max_position_embeddings=48,
        hidden_dropout_prob=dropout,
        attention_probs_dropout_prob=dropout,
        is_causal=OBJECTIVES[settings.objective].is_causal,
    )
    model = EncoderForPreTraining(new_encoder(config), seed=1).double()
    return Pretraining(
        model,
        documents(),
        documents(4, seed=9) if held_out else None,
        VOCABULARY,
        settings,
        EXACT,
        PretrainingRunSettings(**{"size": "tiny", "rows_per_step": rows, "micro_tokens": 10_000, **(run or {})}),
    )


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_the_gradient_of_a_step_is_the_same_however_it_is_split(objective):
    """Micro-batches and ranks affect only memory and speed, even with dropout."""
    whole = whole_step(task(dropout=0.2, objective=objective), 2)
    for micro_tokens, ranks in ((60, 1), (1, 1), (10_000, 2), (70, 3)):
        cut = whole_step(task(dropout=0.2, objective=objective, run={"micro_tokens": micro_tokens}), 2, ranks)
        assert_same_step(cut, whole, atol=1e-12, rtol=1e-5)


def test_a_step_has_the_losses_and_gradients_of_the_padded_reference():
    """Masks, next sentence and their summed loss, computed by transformers on padded rows."""
    work = task(run={"micro_tokens": 100})
    loss, sums, gradients = whole_step(work, 1)
    peer = padded_peer(work.model)
    rows = work._phases[0].stream.step_rows(1)
    masked = work._phases[0].find_targets(rows.token_ids, rows.lengths, rows.keys)
    shape = (len(rows.lengths), int(rows.lengths.max()))
    real = torch.from_numpy(np.arange(shape[1]) < rows.lengths[:, None])
    token_ids, segments = torch.zeros(shape, dtype=torch.long), torch.zeros(shape, dtype=torch.long)
    targets = torch.full(shape, -100)
    flat_targets = torch.full((len(rows.token_ids),), -100)
    flat_targets[masked.positions] = torch.from_numpy(masked.target_ids.astype(np.int64))
    token_ids[real] = torch.from_numpy(masked.token_ids.astype(np.int64))
    segments[real] = torch.from_numpy(rows.segment_ids.astype(np.int64))
    targets[real] = flat_targets
    expected = peer(
        input_ids=token_ids,
        token_type_ids=segments,
        attention_mask=real.long(),
        labels=targets,
        next_sentence_label=torch.from_numpy(rows.labels),
    )
    expected.loss.backward()
    # The reference divides by the number of predictions, the original code by that number plus 1e-5.
    assert loss == pytest.approx(expected.loss.item(), rel=2e-6)
    assert sums["mlm_count"] == len(masked.positions)
    assert sums["nsp_count"] == len(rows.lengths)
    peer_gradients = {name: value.grad for name, value in peer.named_parameters()}
    for name, gradient in gradients.items():
        assert torch.allclose(gradient, peer_gradients[peer_name(name)], atol=1e-6), name


@pytest.mark.parametrize("objective", [name for name, objective in OBJECTIVES.items() if not objective.two_directions])
def test_each_objective_trains_the_parts_it_names_and_no_others(objective):
    """One switch."""
    work = task(objective=objective)
    _, sums, gradients = whole_step(work, 0)
    trained = {name.split(".")[0] if not name.startswith("bert.pooler") else "pooler" for name in gradients} - {"bert"}
    assert trained == set(work.objective.trained_parts)
    assert ("nsp_count" in sums) == ("nsp" in trained)
    assert ("mlm_count" in sums or "lm_count" in sums) == ("mlm" in trained)
    assert ("mlm_count" in sums) == work.objective.masks, "the loss of a language model is called so"
    line = work.summarize(sums)
    assert line["loss"] == pytest.approx(sum(line.get(f"{name}_loss", 0) for name in ("mlm", "lm", "nsp")))


def test_a_new_objective_is_one_entry(monkeypatch):
    """Rows of two parts in which every position predicts the next, and no label of the pair."""
    new = Objective(
        name="next-in-pairs",
        help="two segments, every position predicts the next",
        walk=walk_sentence_order,
        shortest_document=2,
        positive_pairs="swapped pairs",
        find_targets=lambda vocabulary, settings: next_pieces,
        is_causal=True,
        terms=(PIECES,),
    )
    monkeypatch.setitem(OBJECTIVES, new.name, new)
    work = task(objective=new.name)
    total, sums, gradients = whole_step(work, 0)
    plan = work.plan(0, 0, 1)
    assert all(micro_batch.first is None for micro_batch in plan.micro_batches)
    assert all(1 in micro_batch.batch.segment_ids for micro_batch in plan.micro_batches)
    assert sums["mlm_count"] == plan.tokens - plan.sequences
    assert work.summarize(sums)["loss"] == pytest.approx(total)
    assert not any(name.startswith(("nsp", "bert.pooler")) for name in gradients)
    assert "mlm_perplexity" in work.evaluate(work.model)


def test_left_to_right_predicts_every_next_piece():
    """Each position except the last predicts the next piece."""
    work = task(objective="left-to-right")
    plan = work.plan(0, 0, 1)
    for micro_batch in plan.micro_batches:
        start = 0
        read = micro_batch.read.positions[micro_batch.predicted]
        assert len(read) == micro_batch.batch.num_tokens - micro_batch.batch.num_rows
        assert torch.equal(micro_batch.targets, micro_batch.batch.token_ids[read + 1])
        for length in micro_batch.batch.lengths:
            start += length
            assert start - 1 not in read


def test_evaluation_reads_the_held_out_rows_without_dropout():
    work = task(dropout=0.5)
    first, second = work.evaluate(work.model), work.evaluate(work.model)
    assert first == second
    assert first["mlm_perplexity"] == pytest.approx(np.exp(first["mlm_loss"]))
    assert 0 <= first["nsp_accuracy"] <= 1
    assert first["mlm_loss"] == pytest.approx(np.log(len(VOCABULARY)), rel=0.05), "an untrained model knows nothing"


def test_the_long_rows_come_at_the_end_of_the_run():
    work = task(max_length=16, rows=8, held_out=False, run={"long_length": 40, "long_share": 0.25})
    work.fix_steps(8)
    longest = [max(max(m.batch.lengths) for m in work.plan(step, 0, 1).micro_batches) for step in range(8)]
    assert all(length <= 16 for length in longest[:6])
    assert max(longest[6:]) > 16
    assert work.evaluate(work.model) == {}


def test_the_long_rows_start_as_far_through_a_run_with_fewer_steps():
    """They also remain the same rows: those from the start of their stream."""
    work = task(max_length=16, rows=8, held_out=False, run={"long_length": 40, "long_share": 0.25})
    work.fix_steps(40)
    first_long = work.plan(30, 0, 1)
    work.change_pace(Pace(40, ((10, 22),)))
    longest = [max(max(m.batch.lengths) for m in work.plan(step, 0, 1).micro_batches) for step in (17, 18)]
    assert longest[0] <= 16 < longest[1]
    assert work.plan(18, 0, 1).tokens == first_long.tokens
    work.change_pace(Pace(40, ((35, 37),)))
    assert work.plan(30, 0, 1).tokens == first_long.tokens, "steps that were made keep their rows"


def test_a_step_is_cut_for_as_many_lanes_as_there_are_threads():
    """With one thread nothing changes; with more, the loss and the gradients are the same up to rounding."""
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        single = task(dropout=0.3)
        torch.set_num_threads(3)
        three = task(dropout=0.3)
    finally:
        torch.set_num_threads(threads)
    assert (single.lanes, three.lanes) == (1, 3)
    three.model.load_state_dict(single.model.state_dict())
    plans = [each.plan(0, 0, 1) for each in (single, three)]
    assert [len(plan.micro_batches) for plan in plans] == [1, min(3, plans[0].tokens // LEAST_TOKENS)]
    assert len(plans[1].micro_batches) > 1
    (loss, _, gradients), (same_loss, _, same_gradients) = whole_step(single, 0), whole_step(three, 0)
    assert loss == pytest.approx(same_loss)
    assert_same_gradients(gradients, same_gradients)


def test_steps_may_be_budgets_of_tokens():
    work = task(rows=8, held_out=False, run={"tokens_per_step": 100})
    for step in range(5):
        plan = work.plan(step, 0, 1)
        assert 100 - 24 < plan.tokens <= 100
        assert plan.tokens == sum(m.batch.num_tokens for m in plan.micro_batches)


def test_a_repeated_step_is_memorized():
    """The loss of both objectives falls on one repeated step."""
    work = task(objective="mlm+nsp")
    optimizer = torch.optim.Adam(work.model.parameters(), lr=3e-3)
    losses = []
    for _ in range(40):
        optimizer.zero_grad()
        loss = sum(work.loss(work.model, m)[0] for m in work.plan(0, 0, 1).micro_batches)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.5 * losses[0]


def test_a_plan_is_a_pure_function_of_the_step():
    first, other = task(), task()
    for step in (3, 0, 3, 1):
        a, b = first.plan(step, 0, 1), other.plan(step, 0, 1)
        assert a.tokens == b.tokens
        for x, y in zip(a.micro_batches, b.micro_batches, strict=True):
            assert torch.equal(x.batch.token_ids, y.batch.token_ids)
            assert x.batch.row_ids == y.batch.row_ids
            assert torch.equal(x.targets, y.targets)


def test_rows_without_a_prediction_are_dropped_if_nothing_reads_them():
    """With whole words, a row may have no word that fits."""
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *(f"##p{n}" for n in range(40)), "a"]
    vocabulary = Vocabulary(pieces)
    long_word = MemoryDocuments([[[45, *range(5, 20)]], [[45], [45], [45, 45]]])
    data = PretrainingDataSettings(max_length=24, objective="mlm", whole_word=True, seed=3)
    config = dataclasses.replace(task().model.config, vocab_size=len(pieces))
    work = Pretraining(
        EncoderForPreTraining(new_encoder(config)).double(),
        long_word,
        None,
        vocabulary,
        data,
        EXACT,
        PretrainingRunSettings(size="tiny", rows_per_step=4),
    )
    loss, sums, _ = whole_step(work, 0)
    assert np.isfinite(loss)
    assert 0 < sums["mlm_count"] < 4
