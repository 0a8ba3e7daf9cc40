"""Rows as a model reads them, such as [CLS] A [SEP] or [CLS] A [SEP] B [SEP], with segments, truncation and windows.

This is the only place that adds special tokens, sets segment ids and truncates long texts. The `Template` of the
tokenizer says which special tokens surround the texts. Rows follow one another in flat arrays, without padding; cut
tokens are counted.

Shapes: N rows, T tokens of all rows.

Source: Devlin et al. (2018), section 3; `convert_single_example` and `_truncate_seq_pair` in the original
run_classifier.py; Sun et al. (2019), section 5.3.1 (head and tail).
"""

import dataclasses
import functools
import itertools
from collections.abc import Hashable, Sequence
from typing import Literal, get_args

import numpy as np
import numpy.typing as npt

from bertsmith.base.core.errors import ConfigError, InputError
from bertsmith.base.core.progress import counted
from bertsmith.base.core.settings import require
from bertsmith.text.tokenizers.encoded import Encoded, Ids, offsets_of, places_of
from bertsmith.text.tokenizers.template import Template

Truncation = Literal["longest_first", "halves", "head", "tail", "head_tail", "error"]
TRUNCATIONS: tuple[str, ...] = get_args(Truncation)
MODEL_LIMIT = 512
# Sun et al. keep the first 128 and the last 382 of 510 tokens.
_HEAD_SHARE = (128, 510)

Counts = npt.NDArray[np.int64]


@dataclasses.dataclass(frozen=True)
class PackedRows:
    """N rows in flat arrays of T tokens.

    Args:
        token_ids: int32 [T], with [CLS] and [SEP].
        segment_ids: int32 [T]: 0 from [CLS] to the first [SEP], 1 for the second text and its [SEP].
        cut_by_row: int32 [N], the tokens that each row lost.
    """

    token_ids: Ids
    segment_ids: Ids
    lengths: Ids
    cut_by_row: Ids

    def __len__(self) -> int:
        return len(self.lengths)

    @functools.cached_property
    def offsets(self) -> Counts:
        """The start of each row, int64 [N + 1]; row i is `token_ids[offsets[i]:offsets[i + 1]]`."""
        return offsets_of(self.lengths)

    @property
    def truncated(self) -> int:
        """The number of rows that lost tokens."""
        return int(np.count_nonzero(self.cut_by_row))

    @property
    def cut_tokens(self) -> int:
        """The number of tokens that were cut, summed over all rows."""
        return int(self.cut_by_row.sum())

    def row(self, index: int) -> tuple[Ids, Ids]:
        """(token_ids, segment_ids) of row `index`, as views."""
        begin, end = self.offsets[index], self.offsets[index + 1]
        return self.token_ids[begin:end], self.segment_ids[begin:end]

    def select(self, rows: Counts) -> "PackedRows":
        """Some of the rows, in the given order; `rows` are their indices, int64 [n].

        >>> rows = PackedRows(np.array([2, 7, 3]), np.zeros(3, int), np.array([2, 1]), np.zeros(2, int))
        >>> rows.select(np.array([1, 0])).token_ids.tolist()
        [3, 2, 7]
        """
        lengths = self.lengths[rows]
        places = places_of(self.offsets[rows], lengths.astype(np.int64))
        return PackedRows(self.token_ids[places], self.segment_ids[places], lengths, self.cut_by_row[rows])

    def distinct(self, also: Sequence[Hashable] | None = None) -> tuple["PackedRows", Counts]:
        """The distinct rows, each once, and the index of each row among them, int64 [N].

        Rows with the same tokens and segments are equal, however many tokens were cut from them; `cut_by_row` is that
        of the first.

        Args:
            also: what else is the same of equal rows, one for each.

        >>> rows = PackedRows(np.array([2, 7, 2, 2, 7]), np.zeros(5, int), np.array([2, 1, 2]), np.zeros(3, int))
        >>> different, number_of_row = rows.distinct()
        >>> different.token_ids.tolist(), number_of_row.tolist()
        ([2, 7, 2], [0, 1, 0])
        """
        tokens = np.stack([self.token_ids, self.segment_ids], axis=1)
        numbers: dict[Hashable, int] = {}
        spans = itertools.pairwise(self.offsets.tolist())
        keys = [tokens[begin:end].tobytes() for begin, end in spans]
        number_of_row = [
            numbers.setdefault(key, len(numbers)) for key in (keys if also is None else zip(keys, also, strict=True))
        ]
        if len(numbers) == len(self):
            return self, np.arange(len(self))
        return self.select(np.unique(number_of_row, return_index=True)[1]), np.array(number_of_row, dtype=np.int64)


def pack_rows(
    first: Encoded | Sequence[npt.ArrayLike],
    second: Encoded | Sequence[npt.ArrayLike] | None = None,
    *,
    template: Template,
    max_length: int,
    truncation: Truncation = "longest_first",
    model_limit: int = MODEL_LIMIT,
) -> PackedRows:
    """The rows [CLS] first [SEP], or [CLS] first [SEP] second [SEP], of at most `max_length` tokens.

    In a pair, the longer text loses tokens until the pair fits (`pair_cuts`). Which tokens are cut:

    - `longest_first`, `head`: the last ones, as in the paper's code.
    - `halves`: the last ones, as in `transformers`: a token that is left over is kept of the longer text.
    - `tail`: the first ones.
    - `head_tail`: those in the middle; of 510 tokens the first 128 are kept, and the same proportion of other lengths.
    - `error`: none; a text that is too long raises an error.

    Args:
        model_limit: positions of the model that will read the rows; `max_length` may not exceed it.

    >>> template = Template(start=(2,), between=(3,), end=(3,))
    >>> rows = pack_rows([[7, 8, 9, 7]], [[5, 6]], template=template, max_length=8)
    >>> rows.token_ids.tolist(), rows.segment_ids.tolist(), rows.cut_tokens
    ([2, 7, 8, 9, 3, 5, 6, 3], [0, 0, 0, 0, 0, 1, 1, 1], 1)
    """
    texts = [
        part if isinstance(part, Encoded) else Encoded.from_rows(part) for part in (first, second) if part is not None
    ]
    assert len({len(text) for text in texts}) == 1, "as many second texts as first ones"
    room = room_for_text(max_length, template, texts=len(texts), model_limit=model_limit)
    if truncation not in TRUNCATIONS:
        raise ConfigError(expected=f"a truncation of {TRUNCATIONS}", found=repr(truncation), fix="use one of them")
    lengths = [text.lengths for text in texts]
    if second is None:
        cuts = [np.maximum(lengths[0] - room, 0)]
    else:
        cuts = [*(pair_halves if truncation == "halves" else pair_cuts)(lengths[0], lengths[1], room)]
    kept = [length - cut for length, cut in zip(lengths, cuts, strict=True)]
    cut_by_row = np.sum(cuts, axis=0)
    if truncation == "error" and cut_by_row.any():
        row = int(np.argmax(cut_by_row > 0))
        raise InputError(
            expected=f"at most {room} tokens of text in a row",
            found=f"{sum(int(length[row]) for length in lengths)} in row {row}",
            fix="shorten the text, raise max_length or choose a truncation",
        )
    return _assemble(texts, kept, cuts, truncation, template, cut_by_row)


def filled_rows(rows: PackedRows, lengths: Counts | int, fill: int) -> tuple[PackedRows, Counts]:
    """Rows that are filled with a piece, in segment 0, up to a length, and how many tokens each got, int64 [N].

    Args:
        lengths: int64 [N], or the same for all.

    >>> rows = PackedRows(np.array([2, 7, 3]), np.zeros(3, int), np.array([2, 1]), np.zeros(2, int))
    >>> filled, added = filled_rows(rows, 2, 9)
    >>> filled.token_ids.tolist(), added.tolist()
    ([2, 7, 3, 9], [0, 1])
    """
    added = np.maximum(lengths - rows.lengths.astype(np.int64), 0)
    ends = np.repeat(rows.offsets[1:], added)
    token_ids = np.insert(rows.token_ids, ends, np.int32(fill))
    filled = (rows.lengths + added).astype(rows.lengths.dtype)
    return PackedRows(token_ids, np.insert(rows.segment_ids, ends, np.int32(0)), filled, rows.cut_by_row), added


def require_positions(
    max_length: int, limit: int, *, name: str = "max_length", fix: str = "longer texts are cut or read in windows"
) -> None:
    """Raises ConfigError if rows of `max_length` tokens have more tokens than a model has positions.

    Args:
        name: the setting, for the message.
        fix: what happens to longer texts then, or can.
    """
    require(
        max_length <= limit,
        expected=f"{name} of at most {limit}, the positions of the model",
        found=max_length,
        fix=f"lower it; {fix}",
    )


@functools.cache
def room_for_text(max_length: int, template: Template, *, texts: int, model_limit: int = MODEL_LIMIT) -> int:
    """The number of text tokens that fit into `max_length` next to the special tokens of the template.

    >>> room_for_text(128, Template(start=(2,), between=(3,), end=(3,)), texts=2)
    125
    """
    require_positions(max_length, model_limit)
    special = template.num_special(texts)
    room = max_length - special
    if room < texts:
        raise ConfigError(
            expected=f"max_length of at least {special + texts} for {'one text' if texts == 1 else 'two texts'}",
            found=str(max_length),
            fix="raise max_length",
        )
    return room


def pair_cuts(first: Counts, second: Counts, room: int) -> tuple[Counts, Counts]:
    """How many tokens the first and the second text of each pair must lose to fit into `room`, int64 [N] each.

    Tokens are cut one at a time from the longer text, or from the second if both are equally long, as in
    `_truncate_seq_pair` of run_classifier.py and `truncate_seq_pair` of create_pretraining_data.py. So only the longer
    text shrinks until both have the same length; then they take turns, starting with the second.

    >>> pair_cuts(np.array([9, 2, 3]), np.array([3, 4, 3]), 5)
    (array([6, 0, 0]), array([1, 1, 1]))
    """
    excess = np.maximum(first + second - room, 0)
    from_first = np.clip(first - second, 0, excess)
    from_second = np.clip(second - first, 0, excess)
    turns = excess - from_first - from_second
    return from_first + turns // 2, from_second + (turns + 1) // 2


def pair_halves(first: Counts, second: Counts, room: int) -> tuple[Counts, Counts]:
    """As `pair_cuts`, but of two long texts the longer one, or the second, keeps a token more where `room` is odd.

    Source: `truncate_encodings` of the library tokenizers, with `LongestFirst`.

    >>> pair_halves(np.array([9, 2, 3]), np.array([3, 4, 3]), 5)
    (array([6, 0, 1]), array([1, 1, 0]))
    """
    shorter = np.minimum(np.minimum(first, second), room // 2)
    longer = room - shorter
    kept_of_first = np.where(first > second, longer, shorter)
    fits = first + second <= room
    cut_of_first = np.where(fits, 0, np.maximum(first - kept_of_first, 0))
    return cut_of_first, np.where(fits, 0, np.maximum(second - (room - kept_of_first), 0))


def _assemble(
    texts: list[Encoded],
    kept: list[Counts],
    cuts: list[Counts],
    truncation: str,
    template: Template,
    cut_by_row: Counts,
) -> PackedRows:
    lengths = np.sum(kept, axis=0) + template.num_special(len(texts))
    offsets = offsets_of(lengths)
    token_ids = np.empty(int(offsets[-1]), dtype=np.int32)
    segment_ids = np.zeros(len(token_ids), dtype=np.int32)
    begin = offsets[:-1].copy()

    def add_special(ids: tuple[int, ...], segment: int) -> None:
        for id in ids:
            token_ids[begin] = id
            segment_ids[begin] = segment
            begin[:] += 1

    add_special(template.start, 0)
    for number, (text, keep, cut) in enumerate(zip(texts, kept, cuts, strict=True)):
        segment = template.second_segment if number else 0
        within = offsets_of(keep)
        step = np.arange(int(within[-1])) - np.repeat(within[:-1], keep)
        source = np.repeat(text.offsets[:-1], keep) + step
        if truncation == "tail":
            source += np.repeat(cut, keep)
        elif truncation == "head_tail":
            head, of_tokens = _HEAD_SHARE
            front = np.where(cut > 0, keep * head // of_tokens, keep)
            source += np.where(step >= np.repeat(front, keep), np.repeat(cut, keep), 0)
        target = np.repeat(begin, keep) + step
        token_ids[target] = text.ids[source]
        segment_ids[target] = segment
        begin += keep
        add_special(template.end if number == len(texts) - 1 else template.between, segment)
    return PackedRows(token_ids, segment_ids, lengths.astype(np.int32), cut_by_row.astype(np.int32))


def truncation_note(kind: str, longest: int, texts: int, tokens: int) -> str:
    """A message about truncated texts.

    >>> truncation_note("queries", 64, 2, 1200)
    'queries longer than 64 tokens, truncated: 2, 1,200 tokens cut in total'
    """
    return f"{kind} longer than {longest} tokens, truncated: {texts:,}, {counted(tokens, 'token')} cut in total"
