import dataclasses
import functools
from collections import Counter

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

from bertsmith.base.core.errors import ConfigError, CorpusError
from bertsmith.base.core.randomness import generator
from bertsmith.base.core.settings import field_help
from bertsmith.text.tokenizers.pack import pack_rows
from bertsmith.text.tokenizers.template import Template
from bertsmith.text.tokenizers.vocabulary import Vocabulary
from bertsmith.training.pretraining.counted_draws import instance_keys
from bertsmith.training.pretraining.objectives import OBJECTIVES
from bertsmith.training.pretraining.settings import PretrainingDataSettings
from bertsmith.training.pretraining.spans import (
    OPEN,
    Instances,
    random_ends,
    uniforms,
    walk_contiguous,
    walk_next_sentence,
    walk_sentence_order,
    walk_single,
)
from bertsmith.training.pretraining.stream import Cursor, InstancePlan, PretrainingStream, Rows
from oracles.pretraining_oracle import MemoryDocuments, coins, instance_key, pairs_of_document, truncate

VOCABULARY = Vocabulary(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *(f"w{number}" for number in range(5, 60_000))])
TEMPLATE = Template.bert(VOCABULARY.cls_id, VOCABULARY.sep_id)

# Lengths of the sentences of each document; an empty sentence and an empty document may occur.
SHAPES = st.lists(st.lists(st.integers(0, 12), max_size=8), min_size=1, max_size=6).filter(
    lambda shape: any(map(sum, shape))
)
EDGES = st.lists(st.integers(1, 9), min_size=1, max_size=25).map(lambda lengths: [0, *np.cumsum(lengths).tolist()])


def numbered(shape: list[list[int]]) -> MemoryDocuments:
    """Documents in which every token has its own id, so that it can be identified."""
    tokens = iter(range(5, 60_000))
    return MemoryDocuments([[[next(tokens) for _ in range(length)] for length in document] for document in shape])


def corpus(documents: int, sentences: int, seed: int = 0) -> MemoryDocuments:
    rng = np.random.default_rng(seed)
    return numbered([rng.integers(1, 25, size=rng.integers(1, sentences)).tolist() for _ in range(documents)])


def stream(documents: MemoryDocuments, **changes: object) -> PretrainingStream:
    steps = {name: changes.pop(name) for name in ("rows_per_step", "tokens_per_step") if name in changes}
    return PretrainingStream(documents, PretrainingDataSettings(**changes), VOCABULARY, **steps)


def as_bytes(rows: Rows) -> tuple[bytes, ...]:
    return tuple(getattr(rows, field.name).tobytes() for field in dataclasses.fields(rows))


def unpacked(rows: Rows) -> list[tuple[list[int], list[int], int]]:
    """(A, B, label) of each row, and checks that the row is [CLS] A [SEP] B [SEP] with the right segments."""
    parts, end = [], 0
    for length, label in zip(rows.lengths.tolist(), rows.labels.tolist(), strict=True):
        row, segments = rows.token_ids[end : end + length].tolist(), rows.segment_ids[end : end + length].tolist()
        end += length
        assert row[0] == VOCABULARY.cls_id
        assert row[-1] == VOCABULARY.sep_id
        border = row.index(VOCABULARY.sep_id) + 1
        assert segments == [0] * border + [1] * (length - border)
        parts.append((row[1 : border - 1], row[border:-1], label))
    assert end == len(rows.token_ids)
    return parts


def epoch_rows(source: PretrainingStream, epoch: int = 0) -> Rows:
    return source.materialise(source.take(Cursor(epoch), source.num_instances(epoch))[0])


@pytest.mark.parametrize("max_length", [5, 16, 64, 128])
@pytest.mark.parametrize("documents", [1, 2, 30])
def test_an_epoch_equals_that_of_the_obvious_generator_from_the_same_draws(documents: int, max_length: int) -> None:
    """Pairs, put-back, random next and truncation, token by token."""
    source = corpus(documents, 40, seed=documents)
    settings = PretrainingDataSettings(max_length=max_length, short_sequence_probability=0.3, seed=7)
    expected = []
    order = generator(7, "documents", 3).permutation(documents)
    for index in order.tolist():
        expected += pairs_of_document(
            source.sentences,
            index,
            max_length=max_length,
            short_sequence_probability=0.3,
            draw=uniforms(generator(7, "walk", 3, index)).__next__,
            coins_of=lambda ordinal, index=index: coins(instance_key(7, 3, index, ordinal)),
        )
    shuffle = generator(7, "shuffle", 3, 0).permutation(len(expected))
    result = unpacked(epoch_rows(PretrainingStream(source, settings, VOCABULARY), epoch=3))
    assert result == [expected[index] for index in shuffle]


@given(shape=SHAPES, objective=st.sampled_from([*OBJECTIVES]), max_length=st.integers(5, 40), seed=st.integers(0, 99))
def test_rows_of_any_corpus_fit_and_hold_consecutive_tokens(
    shape: list[list[int]], objective: str, max_length: int, seed: int
) -> None:
    """Also empty documents, empty sentences, one document, one sentence, one token, a huge sentence."""
    source = numbered(shape)
    smallest = OBJECTIVES[objective].shortest_document
    if source.document_lengths.max() < smallest:
        with pytest.raises(CorpusError, match="none with enough tokens"):
            stream(source, objective=objective)
        return
    made = stream(source, objective=objective, max_length=max_length, seed=seed)
    assert made.left_out == (source.document_lengths < smallest).sum()
    plan = made.take(Cursor(), made.num_instances(0))[0]
    rows = made.materialise(plan)
    assert (rows.lengths <= max_length).all()
    assert (plan.lengths == rows.lengths).all()
    for first, second, label in unpacked(rows):
        assert first == list(range(first[0], first[0] + len(first)))
        if objective == "autoencoder":
            assert (second, label) == (first, -1)
        elif made.settings.pairs:
            assert second == list(range(second[0], second[0] + len(second)))
            assert label in (0, 1)
        else:
            assert (second, label) == ([], -1)


@given(edges=EDGES, target=st.integers(2, 20), seed=st.integers(0, 999))
def test_put_back_loses_no_sentence(edges: list[int], target: int, seed: int) -> None:
    """A and the actual nexts together are the document, once and in order."""
    instances = Instances(3)
    walk_next_sentence(edges, target, 0, uniforms(np.random.default_rng(seed)).__next__, instances)
    end = 0
    for _, first, split, other, second, stop, label in np.array(instances.fields).reshape(-1, 7).tolist():
        assert first == end
        assert {first, split} <= set(edges)
        if label:
            assert (second, stop) == (OPEN, target - (split - first))
            assert other != 0
            end = split
        else:
            assert (other, second) == (0, split)
            assert stop in edges
            end = stop
    assert end == edges[-1]
    assert len(instances.openings) == sum(np.array(instances.fields).reshape(-1, 7)[:, 6])


@given(edges=EDGES.filter(lambda edges: edges[-1] > 1), target=st.integers(2, 20), seed=st.integers(0, 999))
def test_sentence_order_pairs_hold_the_document_once_and_swap_half(edges: list[int], target: int, seed: int) -> None:
    instances = Instances(3)
    walk_sentence_order(edges, target, 0, uniforms(np.random.default_rng(seed)).__next__, instances)
    end = 0
    for document, first, first_end, other, second, second_end, label in (
        np.array(instances.fields).reshape(-1, 7).tolist()
    ):
        if label:
            first, first_end, second, second_end = second, second_end, first, first_end
        assert (document, other, first, second) == (0, 0, end, first_end)
        assert first < first_end < second_end
        end = second_end
    assert end == edges[-1]


@given(edges=EDGES, target=st.integers(2, 20))
def test_single_rows_lose_nothing_and_cut_only_sentences_that_are_too_long(edges: list[int], target: int) -> None:
    instances = Instances(3)
    walk_single(edges, target, 0, uniforms(np.random.default_rng(0)).__next__, instances)
    rows = np.array(instances.fields).reshape(-1, 7)
    assert rows[:, 1].tolist() == [0, *rows[:-1, 2].tolist()]
    assert rows[-1, 2] == edges[-1]
    for first, end in rows[:, 1:3].tolist():
        assert 0 < end - first <= target
        assert end in edges or end - first == target
        following = [edge for edge in edges if edge > end]
        assert not following or following[0] - first > target


@given(edges=EDGES, target=st.integers(2, 20))
def test_contiguous_rows_lose_nothing_and_are_full(edges: list[int], target: int) -> None:
    instances = Instances(9)
    walk_contiguous(edges, target, 4, uniforms(np.random.default_rng(0)).__next__, instances)
    rows = np.array(instances.fields).reshape(-1, 7)
    assert rows[:, 1].tolist() == [0, *rows[:-1, 2].tolist()]
    assert rows[-1, 2] == edges[-1]
    assert (rows[:-1, 2] - rows[:-1, 1] == target).all()
    assert (rows[:, [0, 3, 6]] == [4, -1, -1]).all()


def test_contiguous_rows_run_on_over_the_borders_of_sentences_but_not_of_documents() -> None:
    documents = numbered([[3, 9, 4, 2], [5]])
    source = stream(documents, objective="left-to-right", contiguous=True, short_sequence_probability=0, max_length=7)
    rows = sorted(first for first, _, _ in unpacked(epoch_rows(source)))
    assert rows == [list(range(start, end)) for start, end in ((5, 10), (10, 15), (15, 20), (20, 23), (23, 28))]
    for name in ("mlm+nsp", "autoencoder"):
        with pytest.raises(ConfigError, match="rows have one part, for contiguous rows"):
            PretrainingDataSettings(objective=name, contiguous=True)


def test_sentence_order_is_swapped_half_of_the_time() -> None:
    labels = epoch_rows(stream(corpus(150, 40), objective="mlm+sop", max_length=32)).labels
    assert len(labels) > 1000
    assert abs(labels.sum() - len(labels) / 2) < 5 * 0.5 * np.sqrt(len(labels))


@given(lengths=st.tuples(st.integers(1, 60), st.integers(1, 60)), room=st.integers(2, 70))
def test_random_ends_cuts_as_much_from_each_part_as_packing_does(lengths: tuple[int, int], room: int) -> None:
    front, back = random_ends(np.array([lengths]), room, instance_keys(0, 0, np.array([1]), np.array([2])))
    assert (front >= 0).all()
    assert (back >= 0).all()
    packed = pack_rows(
        [np.full(lengths[0], 7)],
        [np.full(lengths[1], 8)],
        template=TEMPLATE,
        max_length=room + 3,
    )
    kept = (np.array(lengths) - front - back)[0].tolist()
    assert kept == [(packed.token_ids == 7).sum(), (packed.token_ids == 8).sum()]


@given(
    rows=st.lists(st.tuples(st.integers(0, 40), st.integers(0, 40)), min_size=1, max_size=6),
    room=st.integers(2, 60),
    seed=st.integers(0, 5),
)
def test_random_ends_are_cut_as_the_loop_cuts_them(rows: list[tuple[int, int]], room: int, seed: int) -> None:
    """Also if one of the parts is empty, as B is in rows of one part."""
    keys = instance_keys(seed, 0, np.arange(len(rows)), np.zeros(len(rows), dtype=np.int64))
    front, back = random_ends(np.array(rows), room, keys)
    for number, lengths in enumerate(rows):
        first, second = (list(range(length)) for length in lengths)
        truncate(first, second, room, coins(int(keys[number])))
        for part, kept in enumerate((first, second)):
            assert kept == list(range(front[number, part], lengths[part] - back[number, part]))


def test_truncation_takes_the_front_as_often_as_the_back() -> None:
    rows = 2000
    keys = instance_keys(0, 0, np.arange(rows), np.zeros(rows, dtype=np.int64))
    front, back = random_ends(np.full((rows, 2), 40), 60, keys)
    assert ((front + back) == 10).all()
    for part in (0, 1):
        assert abs(front[:, part].sum() - 5 * rows) < 5 * 0.5 * np.sqrt(10 * rows)
    # Heads of A say nothing about heads of B.
    assert abs(np.corrcoef(front.T)[0, 1]) < 5 / np.sqrt(rows)


@pytest.mark.parametrize("budget", [{"rows_per_step": 7}, {"tokens_per_step": 300}])
@pytest.mark.parametrize("objective", OBJECTIVES)
@pytest.mark.parametrize("dynamic", [False, True])
def test_a_step_is_the_same_in_any_order_of_calls_and_in_a_fresh_object(
    objective: str, budget: dict[str, int], dynamic: bool
) -> None:
    """The steps span several blocks and epochs; they do not depend on the state of the stream."""
    make = functools.partial(
        stream,
        corpus(25, 12),
        objective=objective,
        dynamic=dynamic,
        max_length=32,
        block_tokens=500,
        dupe_factor=2,
        **budget,
    )
    straight = make()
    assert straight.num_blocks(0) > 3
    # A row of the autoencoder holds half the text, so its epochs are longer.
    count = 120 if objective == "autoencoder" else 60
    steps = [as_bytes(straight.step_rows(step)) for step in range(count)]
    assert straight.cursor(count - 1).epoch > 1
    assert len(set(steps)) == count
    jumping = make()
    for step in np.random.default_rng(1).permutation(count).tolist():
        assert as_bytes(jumping.step_rows(step)) == steps[step]
    resumed = make()
    for step in (41, 42, 59, 40, 0):
        assert as_bytes(resumed.step_rows(step)) == steps[step]


@given(block_tokens=st.integers(1, 3000), step=st.integers(0, 30), tokens=st.booleans())
def test_steps_follow_one_another_without_a_gap(block_tokens: int, step: int, tokens: bool) -> None:
    budget = {"tokens_per_step": 200} if tokens else {"rows_per_step": 13}
    made = stream(corpus(10, 10), max_length=32, block_tokens=block_tokens, **budget)
    two = [made.plan_step(step), made.plan_step(step + 1)]
    together, following = made.take(made.cursor(step), len(two[0]) + len(two[1]))
    assert np.concatenate([two[0].keys, two[1].keys]).tolist() == together.keys.tolist()
    assert following == made.cursor(step + 2)
    if tokens:
        assert two[0].lengths.sum() <= 200 < two[0].lengths.sum() + two[1].lengths[0]
    else:
        assert [len(plan) for plan in two] == [13, 13]


def test_a_row_longer_than_the_token_budget_is_its_own_step() -> None:
    made = stream(corpus(10, 10), max_length=64, tokens_per_step=3)
    assert [len(made.plan_step(step)) for step in range(5)] == [1] * 5


def test_ranks_read_only_their_rows_and_together_the_whole_step() -> None:
    whole = stream(corpus(30, 20), rows_per_step=16)
    plan = whole.plan_step(3)
    expected = unpacked(whole.materialise(plan))
    for rank in range(4):
        fresh = corpus(30, 20)
        mine = stream(fresh, rows_per_step=16)
        part = mine.plan_step(3).select(np.arange(rank, 16, 4))
        assert fresh.reads == []
        assert unpacked(mine.materialise(part)) == expected[rank::4]
        assert len(fresh.reads) == 8


def test_blocks_change_the_order_of_instances_and_nothing_else() -> None:
    source = corpus(40, 20)
    epochs = [unpacked(epoch_rows(stream(source, max_length=48, block_tokens=size))) for size in (300, 10**9)]
    assert epochs[0] != epochs[1]
    assert sorted(epochs[0]) == sorted(epochs[1])


def test_static_data_repeats_after_dupe_factor_epochs_in_another_order() -> None:
    made = stream(corpus(30, 20), max_length=48, dupe_factor=3)
    first, second, fourth = (epoch_rows(made, epoch) for epoch in (0, 1, 3))
    assert sorted(first.keys.tolist()) == sorted(fourth.keys.tolist())
    assert sorted(unpacked(first)) == sorted(unpacked(fourth))
    assert unpacked(first) != unpacked(fourth)
    assert not set(first.keys.tolist()) & set(second.keys.tolist())
    dynamic = stream(corpus(30, 20), max_length=48, dupe_factor=3, dynamic=True)
    assert not set(first.keys.tolist()) & set(epoch_rows(dynamic, 3).keys.tolist())


def test_every_epoch_goes_through_every_document() -> None:
    made = stream(corpus(30, 5), max_length=32, block_tokens=200)
    for epoch in (0, 1):
        plan = made.take(Cursor(epoch), made.num_instances(epoch))[0]
        assert set(plan.documents[:, 0].tolist()) == set(range(30))


def test_random_next_comes_from_all_other_documents_evenly() -> None:
    made = stream(numbered([[6] * 30] * 8), max_length=16, dynamic=True)
    chosen: Counter[tuple[int, int]] = Counter()
    for epoch in range(40):
        plan = made.take(Cursor(epoch), made.num_instances(epoch))[0]
        chosen.update(map(tuple, plan.documents[plan.labels == 1].tolist()))
    total = chosen.total()
    assert total > 2000
    assert set(chosen) == {(a, b) for a in range(8) for b in range(8) if a != b}
    for count in chosen.values():
        assert abs(count - total / 56) < 5 * np.sqrt(total / 56)


def test_in_a_corpus_of_one_document_the_random_next_is_its_own_and_still_labelled_random() -> None:
    plan = stream(numbered([[6] * 50]), max_length=32).plan_step(0)
    assert set(plan.documents.ravel().tolist()) == {0}
    assert set(plan.labels.tolist()) == {0, 1}


def test_a_document_of_one_sentence_always_gets_a_random_next() -> None:
    """So the fraction of random nexts is above one half."""
    plan = stream(numbered([[4], [5], [900]]), max_length=32, rows_per_step=3).plan_step(0)
    assert plan.labels.tolist() == [1, 1, 1]
    assert (plan.documents[:, 0] != plan.documents[:, 1]).all()
    assert sorted(plan.documents[:, 0].tolist()) == [0, 1, 2]


def test_one_in_ten_document_passes_has_a_short_target() -> None:
    made = stream(numbered([[1] * 200] * 200), max_length=128, objective="mlm")
    plan = made.take(Cursor(), made.num_instances(0))[0]
    longest = np.zeros(200, dtype=np.int64)
    np.maximum.at(longest, plan.documents[:, 0], plan.lengths)
    short = (longest < 128).sum()
    assert abs(short - 20) < 5 * np.sqrt(200 * 0.1 * 0.9)


def test_an_instance_does_not_depend_on_how_many_sentences_other_documents_have() -> None:
    shape = [[5, 6, 7] * 5] * 4
    longer = [shape[0], shape[1], shape[2], [5, 6, 7] * 9]
    rows = [stream(numbered(each), max_length=24, objective="mlm+sop") for each in (shape, longer)]
    of_first = []
    for made in rows:
        plan = made.take(Cursor(), made.num_instances(0))[0]
        plan = plan.select(plan.documents[:, 0] == 0)
        of_first.append(plan.select(np.argsort(plan.keys)))
    for field in dataclasses.fields(InstancePlan):
        assert getattr(of_first[0], field.name).tolist() == getattr(of_first[1], field.name).tolist()


def test_a_corpus_without_text_is_refused() -> None:
    with pytest.raises(CorpusError, match="2 documents, none with enough tokens"):
        stream(numbered([[], [0]]))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"objective": "mlm-nsp"}, r"unknown objective 'mlm-nsp'; did you mean 'mlm\+nsp'"),
        ({"max_length": 4}, "max_length must be at least 5 and at most"),
        ({"masked_share": 1.5}, "masked_share must be at least 0 and at most 1"),
        ({"masked_share": 0}, r"masked_share above 0 for an objective with masks \(mlm\+nsp\); found 0; .* nsp"),
        ({"masked_share": 0.0, "objective": "mlm"}, r"masked_share above 0 .* \(mlm\)"),
        ({"masked_share": 0.0, "objective": "mlm+sop"}, r"masked_share above 0 .* \(mlm\+sop\)"),
        ({"masked_share": float("nan")}, "masked_share must be a finite number"),
        ({"mask_share": float("inf")}, "mask_share must be a finite number"),
        ({"max_length": float("nan")}, "max_length must be at most 1,000,000, not nan"),
        ({"dupe_factor": float("inf")}, "dupe_factor must be at most 10,000, not inf"),
        ({"max_predictions": float("inf")}, "max_predictions must be a finite number"),
        ({"seed": float("nan")}, "seed must be at most .*, not nan"),
        ({"mask_share": 0.9}, r"must be 1, not 1\.1"),
        ({"max_predictions": 0}, "max_predictions must be at least 1"),
        ({"dupe_factor": 0}, "dupe_factor must be at least 1"),
        ({"short_sequence_probability": float("nan")}, "short_sequence_probability must be a finite number"),
    ],
)
def test_invalid_settings_are_refused(changes: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        PretrainingDataSettings(**changes)


@pytest.mark.parametrize("objective", ["nsp", "left-to-right"])
def test_an_objective_without_masks_may_have_a_masked_share_of_zero(objective: str) -> None:
    assert not PretrainingDataSettings(objective=objective, masked_share=0).masked


def test_every_setting_has_a_help_line() -> None:
    assert all(field_help(field).help for field in dataclasses.fields(PretrainingDataSettings))
