"""Texts and pairs as rows, for every task that reads whole texts: truncated, or in windows whose logits are pooled.

Letters: E examples (units), N rows, T tokens, K outputs.
"""

import functools
import itertools
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from bertsmith.base.core.errors import ConfigError, InputError
from bertsmith.base.core.progress import counted
from bertsmith.base.core.settings import require
from bertsmith.tasks.datasets.examples import Example, TextExample
from bertsmith.tasks.encoding.units import PER_UNIT, EncodedExamples, Ints, Logits
from bertsmith.tasks.specs.settings import HIERARCHICAL, WINDOWED, TaskSettings
from bertsmith.tasks.specs.tokenized import encoded_texts
from bertsmith.text.tokenizers.encoded import Encoded
from bertsmith.text.tokenizers.pack import PackedRows, pack_rows
from bertsmith.text.tokenizers.tokenizer import Tokenizer
from bertsmith.text.tokenizers.windows import windows

if TYPE_CHECKING:
    from torch import Tensor

    from bertsmith.tasks.encoding.units import TaskBatch
    from bertsmith.tasks.specs.task import TaskSpec

NO_ORDER = "each example has a single text"  # why reading both orders has no effect


def check_texts(examples: Sequence[Example], *, pair: bool | None, gold: bool) -> None:
    """Checks that every example has its text, and a second one if the task reads pairs.

    Args:
        gold: the examples are for training or scoring; for prediction, a text may be empty.
    """
    for example in examples:
        assert isinstance(example, TextExample), "this task takes text examples"
        wanted = examples[0].second is not None if pair is None else pair  # type: ignore[union-attr]
        if (example.second is not None) != wanted:
            raise InputError(
                expected=f"{'a pair of texts' if wanted else 'a single text'} in {example.location}",
                found="one text" if wanted else "two",
                fix="give pairs, or name both columns of the file"
                if wanted
                else "give one text each, as this task reads",
            )
        if gold and (not example.first.strip() or (wanted and not (example.second or "").strip())):
            raise InputError.at(example.location, "a text", "an empty one", "fill it or remove the row")


def require_segments(spec: "TaskSpec", tokenizer: Tokenizer) -> None:
    """Checks that a head that reads pairs can tell the two texts of a row apart."""
    if spec.needs_segments and not tokenizer.template.has_segments:
        reader = f"a head that reads {spec.reads!r}"
        needed = "a model whose rows have a segment for each text, not segment 0 for both as in RoBERTa"
        raise ConfigError.needs(reader, needed, "use --reads mean, or another model")


def encode_units(
    spec: "TaskSpec",
    examples: Sequence[TextExample],
    targets: npt.NDArray[np.generic] | None,
    tokenizer: Tokenizer,
    *,
    training: bool = False,
) -> EncodedExamples:
    """One unit per example, with its target and, for `training`, its weight."""
    if spec.needs_segments:
        require_segments(spec, tokenizer)
    rows, per_unit, of_first = encode_texts(examples, tokenizer, spec.settings, spec.prompt)
    return EncodedExamples(
        rows=rows,
        rows_per_unit=per_unit,
        example_of_row=np.repeat(np.arange(len(per_unit)), per_unit),
        read=rows.offsets[:-1],
        targets=targets,
        targets_per=PER_UNIT,
        weights=weights_of(examples) if training else None,
        windows_of_first=of_first if spec.settings.long_text in HIERARCHICAL else None,
    )


def weights_of(examples: Sequence[TextExample]) -> npt.NDArray[np.float32] | None:
    """The weights of examples divided by their mean, float32 [E]; None if all are equal."""
    weights = np.array([example.weight for example in examples])
    return (weights / weights.mean()).astype(np.float32) if len(set(weights.tolist())) > 1 else None


def encode_texts(
    examples: Sequence[TextExample], tokenizer: Tokenizer, settings: TaskSettings, prompt: str = ""
) -> tuple[PackedRows, Ints, Ints]:
    """The rows of all examples, all pairs or all single texts, the number of rows of each, and of its first text.

    Numbers are int64 [E]. Where a row has both texts of a pair, it is one of the first. With `windows`, each row of a
    pair has a window of both texts. With `hierarchical`, the windows of the first text of a pair are followed by those
    of the second.

    With `both_orders`, a pair has two rows, the second one with its texts swapped. The sum of what an output layer
    makes of both is what it makes of the sum of both states, with its bias counted once for each.

    Source: Radford et al. (2018), section 3.3, for both orders.
    """
    pair = bool(examples) and examples[0].second is not None
    first, second = encoded_texts(examples, tokenizer, (prompt, "")), None
    if pair:
        firsts = 2 * np.arange(len(examples))
        first, second = first.select(firsts), first.select(firsts + 1)
    if settings.long_text == "error":
        _refuse_long(examples, first, second, tokenizer, settings.max_length)
    if settings.long_text not in WINDOWED:
        packed = functools.partial(
            pack_rows,
            template=tokenizer.template,
            max_length=settings.max_length,
            truncation=settings.long_text,  # type: ignore[arg-type]
            model_limit=settings.max_length,
        )
        rows = packed(first, second)
        if second is None or not settings.both_orders:
            ones = np.ones(len(examples), dtype=np.int64)
            return rows, ones, ones
        twos = np.full(len(examples), 2, dtype=np.int64)
        return _interleaved(rows, packed(second, first)), twos, twos
    if second is None:
        rows, counts = _rows_in_windows(first, tokenizer, settings)
        return rows, counts, counts
    if settings.both_orders:
        raise ConfigError(
            expected="pairs in one row, for both orders",
            found=f"{settings.long_text!r}, whose windows are pooled or read together",
            fix="leave --both-orders out",
        )
    if settings.long_text in HIERARCHICAL:
        return _rows_of_pairs(first, second, tokenizer, settings)
    rows, counts = _rows_with_two_windows(first, second, tokenizer, settings)
    return rows, counts, counts


def _rows_of_pairs(
    first: Encoded, second: Encoded, tokenizer: Tokenizer, settings: TaskSettings
) -> tuple[PackedRows, Ints, Ints]:
    """The windows of both texts of each pair, each in a row of its own; see `encode_texts`."""
    (ours, counts), (theirs, others) = (_rows_in_windows(texts, tokenizer, settings) for texts in (first, second))
    fields = [(getattr(ours, name), getattr(theirs, name)) for name in ("token_ids", "segment_ids", "lengths")]
    tokens, segments, lengths = (np.concatenate(both) for both in fields)
    rows = PackedRows(tokens, segments, lengths, np.concatenate([ours.cut_by_row, theirs.cut_by_row]))
    owner = np.concatenate([np.repeat(np.arange(len(rows_of)), rows_of) for rows_of in (counts, others)])
    return rows.select(np.argsort(owner, kind="stable")), counts + others, counts


def _interleaved(rows: PackedRows, swapped: PackedRows) -> PackedRows:
    """The rows of pairs, each followed by the one in the other order, whose truncated tokens are the same ones."""
    fields = [(getattr(rows, name), getattr(swapped, name)) for name in ("token_ids", "segment_ids", "lengths")]
    tokens, segments, lengths = (np.concatenate(both) for both in fields)
    cut = np.concatenate([rows.cut_by_row, np.zeros_like(swapped.cut_by_row)])
    order = np.arange(2 * len(rows)).reshape(2, -1).T.ravel()
    return PackedRows(tokens, segments, lengths, cut).select(order)


def _refuse_long(
    examples: Sequence[TextExample], first: Encoded, second: Encoded | None, tokenizer: Tokenizer, most: int
) -> None:
    lengths = first.lengths + tokenizer.template.num_special(1 if second is None else 2)
    lengths = lengths if second is None else lengths + second.lengths
    too_long = np.flatnonzero(lengths > most)
    if len(too_long):
        number = int(too_long[0])
        more = f", the first of {counted(len(too_long), 'such example')}" if len(too_long) > 1 else ""
        raise InputError(
            expected=f"at most {most} tokens in {examples[number].location}, special tokens included",
            found=f"{lengths[number]}{more}",
            fix="shorten the text, raise max_length or choose another long_text",
        )


def _rows_in_windows(texts: Encoded, tokenizer: Tokenizer, settings: TaskSettings) -> tuple[PackedRows, Ints]:
    """The windows of each text, one if it fits, and their number per text."""
    room = settings.max_length - tokenizer.template.num_special(1)
    cut = [_windows_of(ids, room, tokenizer, settings) for ids in texts]
    counts = np.array([len(windows) for windows in cut], dtype=np.int64)
    parts = list(itertools.chain.from_iterable(cut))
    return pack_rows(parts, template=tokenizer.template, max_length=settings.max_length), counts


def _rows_with_two_windows(
    first: Encoded, second: Encoded, tokenizer: Tokenizer, settings: TaskSettings
) -> tuple[PackedRows, Ints]:
    """The rows of each pair, with a window of each text in every row, and their number per pair.

    A text that is shorter than half of the room is whole in every row, and the windows of the other one take the rest;
    two longer texts have half of the room each. The text with fewer windows repeats them, so that windows at about the
    same place in both texts share a row.
    """
    special = tokenizer.template.num_special(2)
    room = settings.max_length - special
    require(
        room > 1,
        expected=f"max_length of at least {special + 2} for windows over pairs",
        found=settings.max_length,
        fix="raise max_length",
    )
    parts: tuple[list[np.ndarray], list[np.ndarray]] = ([], [])
    counts = np.ones(len(first), dtype=np.int64)
    for number, pair in enumerate(zip(first, second, strict=True)):
        lengths = [len(ids) for ids in pair]
        ours = min(lengths[0], max(room // 2, room - lengths[1]))
        rooms = (ours, room - ours)
        cut = [_windows_of(ids, share, tokenizer, settings) for ids, share in zip(pair, rooms, strict=True)]
        counts[number] = count = max(map(len, cut))
        for chosen, some in zip(parts, cut, strict=True):
            chosen += [some[row * len(some) // count] for row in range(count)]
    rows = pack_rows(parts[0], parts[1], template=tokenizer.template, max_length=settings.max_length)
    return rows, counts


def _windows_of(
    ids: npt.NDArray[np.int32], room: int, tokenizer: Tokenizer, settings: TaskSettings
) -> list[npt.NDArray[np.int32]]:
    """The windows of a text, of at most `room` tokens; a text that fits is its only one."""
    if len(ids) <= room:
        return [ids]
    template = tokenizer.template
    longest = room + template.num_special(1)
    cut = windows(None, ids, template=template, max_length=longest, stride=settings.stride)
    return [ids[start:end] for start, end in zip(cut.starts, cut.ends, strict=True)]


def pooled_units(logits: "Tensor", batch: "TaskBatch", pooling: str) -> "Tensor":
    """The logits [E, K] of the units of a micro-batch, pooled from the logits of their rows [N, K]."""
    if batch.num_units == logits.shape[0]:
        # One row per unit, but not in the same order.
        return logits[batch.unit_of_row.argsort()]
    index = batch.unit_of_row[:, None].expand_as(logits)
    empty = logits.new_zeros(batch.num_units, logits.shape[1])
    kind = {"mean": "mean", "max": "amax", "sum": "sum"}[pooling]
    return empty.scatter_reduce(0, index, logits, reduce=kind, include_self=False)


def pooled_logits(logits: Logits, features: EncodedExamples, pooling: str) -> Logits:
    """The logits [E, K] of all units, pooled from the logits of their rows [N, K] in the order of the features."""
    if len(features) == len(logits):
        return logits
    if pooling == "max":
        return np.asarray(np.maximum.reduceat(logits, features.first_rows), dtype=np.float32)
    sums = np.add.reduceat(logits, features.first_rows)
    if pooling == "sum":
        return np.asarray(sums, dtype=np.float32)
    return np.asarray(sums / features.rows_per_unit[:, None], dtype=np.float32)
