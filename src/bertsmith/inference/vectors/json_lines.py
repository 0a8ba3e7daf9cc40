"""Vectors of pieces as JSON lines, one object per text or pair, in the format of the original extract_features.py.

A line `A ||| B` is a pair: both texts are in one row, with segments 0 and 1. As in the original, all tokens of the row
are written, [CLS] and [SEP] included, and what does not fit into a row is truncated:

    {"linex_index": 0, "features": [{"token": "[CLS]", "layers": [{"index": -1, "values": [0.1, ...]}, ...]}, ...]}

Letters: N rows, T tokens of all rows, n chosen layers, D width of the encoder.

Source: `read_examples`, `convert_examples_to_features` and `main` of extract_features.py.
"""

import json
import re
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bertsmith.base.core.errors import InputError
from bertsmith.base.core.progress import Progress, amount
from bertsmith.base.core.settings import require
from bertsmith.base.storage.files import atomic_file
from bertsmith.base.storage.outputs import TOKEN_FEATURES, require_output
from bertsmith.inference.vectors.jobs import VectorSummary
from bertsmith.inference.vectors.token_features import CHUNK_BYTES
from bertsmith.models.parts.layer_choice import LayerChoice
from bertsmith.tasks.datasets.blocks import text_blocks
from bertsmith.tasks.datasets.text_lines import TextLines
from bertsmith.tasks.encoding.row_encoder import RowEncoder
from bertsmith.text.tokenizers.pack import pack_rows, truncation_note

SUFFIX = ".jsonl"
DIGITS = 6  # after the decimal point

_PAIR = re.compile(r"(.*) \|\|\| (.*)", re.DOTALL)


class TokenLines:
    """Rows of tokens with their vectors, for JSON.

    Args:
        layers: hidden states that are listed, not summed; see `layer_choice`.

    Attributes:
        tokens: the number of tokens written, over all calls.
        cut_texts, cut_tokens: the number of truncated texts and pairs, and the tokens they lost in total.
    """

    def __init__(self, encoder: RowEncoder, *, layers: str = "last", max_length: int | None = None) -> None:
        self.encoder, self.choice = encoder, _listed(encoder.choice(layers))
        limit = encoder.model.max_tokens
        self.max_length = limit if max_length is None else max_length
        encoder.require_positions(self.max_length)
        self.width = self.choice.width(encoder.hidden_size)
        # The original counts layers from the end, where -1 is the last; its 0 is the first layer, not the embeddings.
        self._indices = [layer - encoder.model.num_layers - 1 for layer in self.choice.layers]
        self.block = max(1, CHUNK_BYTES // (4 * self.width * self.max_length))  # texts computed together
        self.tokens = self.cut_texts = self.cut_tokens = 0

    def read(self, texts: Sequence[str], first: int = 0) -> list[dict[str, Any]]:
        """One object per text or pair, in order; `first` is the number of the first text."""
        parts = [_PAIR.fullmatch(text.strip()) for text in texts]
        rows: dict[int, list[dict[str, Any]]] = {}
        for is_pair in (False, True):
            places = [number for number, part in enumerate(parts) if (part is not None) == is_pair]
            if is_pair:
                split = [part.groups() for part in parts if part is not None]
                firsts, seconds = [first for first, _ in split], [other for _, other in split]
                rows |= zip(places, self._rows(firsts, seconds), strict=True)
            else:
                rows |= zip(places, self._rows([texts[number] for number in places], None), strict=True)
        return [{"linex_index": first + number, "features": rows[number]} for number in range(len(texts))]

    def _rows(self, firsts: Sequence[str], seconds: Sequence[str] | None) -> Iterator[list[dict[str, Any]]]:
        if not firsts:
            return
        tokenizer = self.encoder.tokenizer
        rows = pack_rows(
            tokenizer.encode_batch(firsts),
            None if seconds is None else tokenizer.encode_batch(seconds),
            template=tokenizer.template,
            max_length=self.max_length,
        )
        self.tokens += len(rows.token_ids)
        self.cut_texts += rows.truncated
        self.cut_tokens += rows.cut_tokens
        vectors = self.encoder.token_vectors(rows, self.choice).reshape(
            -1, len(self._indices), self.encoder.hidden_size
        )
        values = np.round(vectors.astype(np.float64), DIGITS)  # [T, n, D]
        pieces = tokenizer.vocabulary.pieces
        for begin, end in zip(rows.offsets[:-1].tolist(), rows.offsets[1:].tolist(), strict=True):
            yield [
                {
                    "token": pieces[token],
                    "layers": [
                        {"index": index, "values": numbers}
                        for index, numbers in zip(self._indices, values[position].tolist(), strict=True)
                    ],
                }
                for position, token in enumerate(rows.token_ids[begin:end].tolist(), start=begin)
            ]


def write_token_lines(lines: TokenLines, source: TextLines, out: Path, *, replace: bool = False) -> VectorSummary:
    """Writes one line of JSON for each text of a file; the file appears when it is complete.

    Args:
        out: the caller has checked that it may be written, before the model was loaded; see `require_output`.
    """
    started, done = time.monotonic(), 0
    how = lines.encoder.runtime.precision
    with atomic_file(out) as file, Progress(out.name, None, unit="texts", how=how) as progress:
        for block in text_blocks(source, lines.block):
            for line in lines.read(block, done):
                file.write(f"{json.dumps(line, ensure_ascii=False)}\n".encode())
            done += len(block)
            progress.advance(len(block), f"vectors: {amount(lines.tokens)}")
        if not done:
            raise InputError(expected=f"texts in '{source.path}'", found="none", fix="name a file with texts")
        # The work may have taken hours, so check again.
        require_output(out, TOKEN_FEATURES, inputs=[source.path], replace=replace)
    notes = source.notes()
    if lines.cut_texts:
        notes.append(truncation_note("texts", lines.max_length, lines.cut_texts, lines.cut_tokens))
    return VectorSummary(
        out=out,
        texts=done,
        rows=lines.tokens,
        width=lines.width,
        counts={"cut_texts": lines.cut_texts, "cut_tokens": lines.cut_tokens},
        notes=tuple(notes),
        seconds=time.monotonic() - started,
    )


def _listed(choice: LayerChoice) -> LayerChoice:
    require(
        not choice.is_sum,
        expected="layers that are listed one by one in JSON lines, such as -1,-2,-3,-4",
        found=repr(choice.name),
        fix="list them, or write .npy or .parquet",
    )
    return choice
