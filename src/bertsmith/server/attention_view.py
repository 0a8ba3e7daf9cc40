"""Where a model looks: the attention of every head of every layer for one text or pair.

Letters: L layers, A heads, s tokens of the row.

The whole answer has L*A*s*s numbers, so rows are short; a longer text is refused, never cut.
"""

from typing import Any

import numpy as np
import torch

from bertsmith.errors import InputError
from bertsmith.library import Model
from bertsmith.model.batch import Batch
from bertsmith.model.encoder import Trace
from bertsmith.text.pack import pack_rows

MOST_TOKENS = 128
DIGITS = 4  # behind the point


@torch.inference_mode()
def attention_of(model: Model, text: str, pair: str | None = None) -> dict[str, Any]:
    """The pieces of the row [CLS] text [SEP] or [CLS] text [SEP] pair [SEP], and who looks at whom.

    In `attention[l][h][i][j]` head h of layer l, at piece i, looks at piece j; each row over j adds up to 1. [MASK] in
    a text is a mask where `Model.pieces` shows one.

    Args:
        model: any loaded model; only its encoder is run.
        text: of at most 128 tokens, with [CLS] and [SEP], or what the model reads if that is less.
        pair: a second text, in the same row.

    Returns:
        "pieces": s strings, "segments": s numbers (0 or 1), "layers": L, "heads": A, "attention": [L][A][s][s] with
        four digits behind the point.

    Raises:
        InputError: a text is empty, or there are too many tokens.
    """
    encoder = model.encoder
    texts = [text] if pair is None else [text, pair]
    for name, one in zip(("text", "pair"), texts, strict=False):
        if not one.strip():
            raise InputError(expected=f"a {name} to look at", found="an empty one", fix="write something")
    encoded = [encoder.tokenizer.encode(one, special_tokens=model.reads_specials()) for one in texts]
    limit = min(MOST_TOKENS, encoder.model.max_tokens)
    found = sum(map(len, encoded)) + encoder.tokenizer.template.num_special(len(texts))
    if found > limit:
        raise InputError(
            expected=f"at most {limit} tokens for the attention view, with [CLS] and [SEP]",
            found=f"{found}",
            fix="shorten the text",
        )
    vocabulary = encoder.tokenizer.vocabulary
    rows = pack_rows(
        [encoded[0]],
        None if pair is None else [encoded[1]],
        template=encoder.tokenizer.template,
        max_length=limit,
        model_limit=limit,
        truncation="error",
    )
    device, dtype = encoder.runtime.torch_device, encoder.runtime.dtype
    batch = Batch.from_flat(rows.token_ids, rows.segment_ids, rows.lengths, device=device)
    trace = Trace(with_attentions=True)
    encoder.model(batch, dtype=dtype, trace=trace)
    weights = torch.stack([layer[0] for layer in trace.attentions]).double().cpu().numpy()  # [L, A, s, s]
    return {
        "pieces": [vocabulary.pieces[id] for id in rows.token_ids.tolist()],
        "segments": rows.segment_ids.tolist(),
        "layers": weights.shape[0],
        "heads": weights.shape[1],
        "attention": np.round(weights, DIGITS).tolist(),
    }
