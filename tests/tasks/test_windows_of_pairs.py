"""Pairs of long texts in windows: what each row has, that nothing is left out, and how logits are pooled."""

import dataclasses

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from bertsmith.base.core.errors import ConfigError
from bertsmith.base.machine.runtime import choose
from bertsmith.models.heads.encoder_with_head import EncoderForTask
from bertsmith.models.parts.transformer import TransformerEncoder
from bertsmith.tasks.datasets.examples import TextExample
from bertsmith.tasks.encoding.forward import task_logits
from bertsmith.tasks.specs.kinds import task_for
from bertsmith.tasks.specs.settings import TaskSettings
from bertsmith.tasks.specs.whole_texts import encode_texts
from tasks.task_samples import CONFIG, PLAIN, SPECS, TOKENIZER

CPU = choose("cpu", "fp32")
WORDS = st.lists(st.sampled_from(PLAIN), max_size=14)
SEP = TOKENIZER.vocabulary.sep_id


def pair(first: list[str], second: list[str]) -> TextExample:
    return TextExample(id="1", first=" ".join(first), second=" ".join(second))


def halves(row: list[int]) -> tuple[list[int], list[int]]:
    """The pieces of both texts of a row."""
    middle = row.index(SEP)
    return row[1:middle], row[middle + 1 : -1]


def slow_windows(ids: list[int], room: int, stride: int) -> list[list[int]]:
    """The windows of a text, moved by a stride until its last token is in one."""
    if len(ids) <= room:
        return [ids]
    cut, start = [ids[:room]], 0
    while start + room < len(ids):
        start += min(stride, room)
        cut.append(ids[start : start + room])
    return cut


@given(WORDS, WORDS, st.integers(5, 16), st.integers(1, 9))
def test_every_row_has_a_window_of_both_texts_and_no_token_is_left_out(
    first: list[str], second: list[str], max_length: int, stride: int
) -> None:
    settings = TaskSettings(max_length=max_length, stride=stride, long_text="windows")
    rows, counts, of_first = encode_texts([pair(first, second)], TOKENIZER, settings)
    rows_of_halves = [halves(rows.row(number)[0].tolist()) for number in range(len(rows))]
    assert counts.tolist() == of_first.tolist() == [len(rows_of_halves)]
    assert rows.cut_tokens == 0
    ids = [TOKENIZER.encode(" ".join(words)).tolist() for words in (first, second)]
    room = max_length - 3
    if len(ids[0]) + len(ids[1]) <= room:
        assert rows_of_halves == [(ids[0], ids[1])]
        return
    if len(ids[0]) <= room // 2:
        rooms = (len(ids[0]), room - len(ids[0]))
    elif len(ids[1]) <= room - room // 2:
        rooms = (room - len(ids[1]), len(ids[1]))
    else:
        rooms = (room // 2, room - room // 2)
    wanted = [slow_windows(ids_of_text, room, stride) for ids_of_text, room in zip(ids, rooms, strict=True)]
    assert len(rows_of_halves) == max(map(len, wanted))
    for which in (0, 1):
        column = [parts[which] for parts in rows_of_halves]
        assert [window for index, window in enumerate(column) if not index or window != column[index - 1]] == [
            window for index, window in enumerate(wanted[which]) if not index or window != wanted[which][index - 1]
        ]


@torch.no_grad()
def test_the_logits_of_the_windows_of_a_pair_are_pooled() -> None:
    spec = SPECS["windows of a pair"]
    task = task_for(spec)
    model = EncoderForTask(TransformerEncoder(CONFIG, seed=None), task.head, seed=4).eval()
    long, short = pair(PLAIN[:4] * 3, PLAIN[1:4] * 2), pair(PLAIN[:2], PLAIN[:2])
    examples = [long, short, long]
    features = task.encode(examples, TOKENIZER)
    assert features.rows_per_unit.tolist()[1] == 1
    assert features.rows_per_unit.tolist()[0] > 2
    logits = task_logits(model, features, CPU)
    whole, _, again = task.decode(examples, features, logits, TOKENIZER)
    rows = logits[: features.rows_per_unit[0]].astype(np.float64)
    mean = torch.from_numpy(rows.mean(axis=0)).softmax(dim=0)
    assert whole.probabilities == pytest.approx(mean.tolist(), abs=1e-5)
    assert again.probabilities == pytest.approx(whole.probabilities, abs=1e-5)


def test_both_orders_and_too_short_rows_are_refused() -> None:
    settings, example = TaskSettings(max_length=8, long_text="windows"), pair(["a"], ["b"])
    with pytest.raises(ConfigError, match=r"pairs in one row, for both orders; found 'windows'.* leave --both-orders"):
        encode_texts([example], TOKENIZER, dataclasses.replace(settings, both_orders=True))
    with pytest.raises(ConfigError, match="max_length of at least 5 for windows over pairs; found 4"):
        encode_texts([example], TOKENIZER, dataclasses.replace(settings, max_length=4))
