"""Windows over a text that is longer than the model can read: [CLS] question [SEP] part of the context [SEP].

Windows overlap, so most tokens of the context are in several. A token is scored in the window where it has the most
context on both sides.

Shapes: N windows, T tokens of all rows, C tokens of the context.

Source: `convert_examples_to_features` and `_check_is_max_context` in the original run_squad.py.
"""

import dataclasses

import numpy as np
import numpy.typing as npt

from bertsmith.base.core.settings import require, require_number
from bertsmith.text.tokenizers.encoded import Encoded
from bertsmith.text.tokenizers.pack import MODEL_LIMIT, PackedRows, pack_rows, room_for_text
from bertsmith.text.tokenizers.template import Template

MAX_QUESTION_TOKENS = 64


@dataclasses.dataclass(frozen=True)
class Windows:
    """N windows over one context, as rows.

    Args:
        rows: the N rows; a question that was cut is counted in every row.
        first_position: where the context starts in every row; token c of the context is at position
            `first_position + c - starts[n]` of row n.
        has_max_context: bool [T], true for a token of the context in the window with the most context for it; each
            token of the context is true exactly once.
    """

    rows: PackedRows
    starts: npt.NDArray[np.int64]
    ends: npt.NDArray[np.int64]
    first_position: int
    has_max_context: npt.NDArray[np.bool_]

    def __len__(self) -> int:
        return len(self.starts)


def windows(
    question_ids: npt.ArrayLike | None,
    context_ids: npt.ArrayLike,
    *,
    template: Template,
    max_length: int = 384,
    stride: int = 128,
    max_question: int = MAX_QUESTION_TOKENS,
    model_limit: int = MODEL_LIMIT,
) -> Windows:
    """Windows of at most `max_length` tokens that together cover every token of the context.

    Each window starts `stride` tokens after the previous one, or where that one ends if it is shorter than `stride`. An
    empty context has one window without context.

    Args:
        question_ids: ids of the question, of which at most `max_question` are kept; None for windows over a single
            text.
    """
    for name, value in (("stride", stride), ("max_question", max_question)):
        require_number(name, value, least=1)
    question = None if question_ids is None else np.asarray(question_ids, dtype=np.int32).reshape(-1)
    context = np.asarray(context_ids, dtype=np.int32).reshape(-1)
    room = room_for_text(max_length, template, texts=1 if question is None else 2, model_limit=model_limit)
    question_length = 0 if question is None else min(len(question), max_question)
    require(
        room > question_length,
        expected="room for context next to the question",
        found=f"max_length {max_length} with {question_length} tokens of question",
        fix="raise max_length or lower max_question",
    )
    starts, ends = _spans(len(context), room - question_length, stride)
    parts = Encoded.from_rows([context[start:end] for start, end in zip(starts, ends, strict=True)])
    if question is None:
        rows = pack_rows(parts, template=template, max_length=max_length, model_limit=model_limit)
        first_position = len(template.start)
    else:
        kept = Encoded.from_rows([question[:question_length]] * len(starts))
        rows = pack_rows(kept, parts, template=template, max_length=max_length, model_limit=model_limit)
        rows = dataclasses.replace(
            rows, cut_by_row=np.full(len(starts), len(question) - question_length, dtype=np.int32)
        )
        first_position = template.second_text(question_length)
    best = np.zeros(len(rows.token_ids), dtype=np.bool_)
    best[_best_window(starts, ends, rows.offsets[:-1] + first_position, len(context))] = True
    return Windows(rows, starts, ends, first_position, best)


def _spans(length: int, room: int, stride: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """The first token of each window over `length` tokens, and one past the last."""
    step = min(stride, room)
    count = 1 + max(0, -(-(length - room) // step))
    starts = np.arange(count, dtype=np.int64) * step
    return starts, np.minimum(starts + room, length)


def _best_window(
    starts: npt.NDArray[np.int64], ends: npt.NDArray[np.int64], positions: npt.NDArray[np.int64], length: int
) -> npt.NDArray[np.int64]:
    """The flat position of every context token in its best window, int64 [C]; ties go to the first window."""
    best_score = np.full(length, -1.0)
    best_position = np.zeros(length, dtype=np.int64)
    for start, end, position in zip(starts.tolist(), ends.tolist(), positions.tolist(), strict=True):
        token = np.arange(start, end)
        # The small term favors longer windows; the original code adds the same term.
        score = np.minimum(token - start, end - 1 - token) + 0.01 * (end - start)
        better = score > best_score[start:end]
        best_score[start:end][better] = score[better]
        best_position[start:end][better] = position + token[better] - start
    return best_position
