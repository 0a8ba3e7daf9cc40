"""Gaps and next sentences of many texts at once: what `PretrainedPredictor` says of each, in batches.

Letters: N rows, M gaps, T tokens of a batch.

Rows are sorted by length and cut by tokens, so nothing is padded and memory is bounded whatever comes.
"""

from collections.abc import Iterator, Sequence

import numpy as np
import torch

from bertsmith.errors import InputError
from bertsmith.inference.pretrained import MASK, Continuation, Filling, PretrainedPredictor
from bertsmith.model.batch import Batch, Read, cut_by_tokens, rows_index
from bertsmith.tasks.features import Ints
from bertsmith.text.pack import PackedRows, pack_rows

MICRO_TOKENS = 4096
_GAP = 8  # tokens that a gap counts for: its logits are as many numbers as the vocabulary has pieces


@torch.inference_mode()
def fill_texts(predictor: PretrainedPredictor, texts: Sequence[str], top: int = 5) -> list[list[list[Filling]]]:
    """For each text, for each [MASK] in it, the `top` pieces, the likeliest first; see `PretrainedPredictor.fill`.

    Raises:
        InputError: a text has no [MASK], or is longer than the model reads; the message counts texts from 1.
    """
    assert not predictor.model.config.is_causal, "a model that was trained to fill masks"
    if not texts:
        return []
    vocabulary, limit = predictor.tokenizer.vocabulary, predictor.model.config.max_position_embeddings
    encoded = predictor.tokenizer.encode_batch(texts, special_tokens=True)
    if len(long := np.flatnonzero(encoded.lengths > limit - 2)):
        raise InputError(
            expected=f"at most {limit - 2} pieces in text {long[0] + 1}, what the model reads",
            found=f"{encoded.lengths[long[0]]}",
            fix="shorten the text",
        )
    rows = pack_rows(encoded, vocabulary=vocabulary, max_length=limit, model_limit=limit)
    is_gap = rows.token_ids == vocabulary.mask_id
    gaps_of_row = np.add.reduceat(is_gap.astype(np.int64), rows.offsets[:-1])
    if len(without := np.flatnonzero(gaps_of_row == 0)):
        text = texts[without[0]]
        raise InputError(
            expected=f"a {MASK} in text {without[0] + 1}",
            found=repr(text[:60]),
            fix=f"write {MASK} where a word is missing",
        )
    found: list[list[list[Filling]]] = [[] for _ in texts]
    for part, batch, index in _batches(predictor, rows, np.maximum(rows.lengths, _GAP * gaps_of_row)):
        gaps = np.flatnonzero(is_gap[index])
        masked = torch.arange(len(gaps), device=predictor.runtime.torch_device)
        output = predictor.model(batch, read=Read.at(batch, gaps), masked=masked, dtype=predictor.runtime.dtype)
        assert output.mlm_logits is not None
        chances = output.mlm_logits.float().softmax(-1).topk(min(top, len(vocabulary)))
        row_of_gap = np.repeat(part, gaps_of_row[part]).tolist()
        for row, ids, values in zip(row_of_gap, chances.indices.tolist(), chances.values.tolist(), strict=True):
            found[row].append([Filling(vocabulary.pieces[id], value) for id, value in zip(ids, values, strict=True)])
    return found


@torch.inference_mode()
def judge_pairs(predictor: PretrainedPredictor, pairs: Sequence[tuple[str, str]]) -> list[Continuation]:
    """How likely the second text of each pair follows its first; see `PretrainedPredictor.next_sentence`.

    Raises:
        InputError: a text is empty; the message counts pairs from 1.
    """
    if not pairs:
        return []
    for number, pair in enumerate(pairs, start=1):
        if not all(text.strip() for text in pair):
            raise InputError(expected=f"two texts in pair {number}", found="an empty one", fix="give both sentences")
    limit = predictor.model.config.max_position_embeddings
    firsts, seconds = zip(*pairs, strict=True)
    rows = pack_rows(
        predictor.tokenizer.encode_batch(firsts),
        predictor.tokenizer.encode_batch(seconds),
        vocabulary=predictor.tokenizer.vocabulary,
        max_length=limit,
        model_limit=limit,
    )
    chances = np.empty(len(pairs))
    for part, batch, _ in _batches(predictor, rows, rows.lengths):
        every = torch.arange(len(part), device=predictor.runtime.torch_device)
        output = predictor.model(batch, read=Read.first(batch), first=every, dtype=predictor.runtime.dtype)
        assert output.nsp_logits is not None
        chances[part] = output.nsp_logits.float().softmax(-1)[:, 0].cpu().numpy()
    return [
        Continuation(second, chance, cut)
        for second, chance, cut in zip(seconds, chances.tolist(), rows.cut_by_row.tolist(), strict=True)
    ]


def _batches(predictor: PretrainedPredictor, rows: PackedRows, costs: np.ndarray) -> Iterator[tuple[Ints, Batch, Ints]]:
    """Batches of rows: which rows, int64 [n], as the model reads them, and the places of their tokens, int64 [T].

    Args:
        costs: what each row counts for, [N].
    """
    order = np.argsort(rows.lengths, kind="stable")
    for part in cut_by_tokens(order, costs.astype(np.int64), MICRO_TOKENS):
        index = rows_index(rows.lengths.astype(np.int64), part)
        batch = Batch.from_flat(
            rows.token_ids[index],
            rows.segment_ids[index],
            rows.lengths[part],
            device=predictor.runtime.torch_device,
        )
        yield part, batch, index
