"""Vectors of the tokens of queries and documents, from a model with late interaction.

Letters: N texts, T vectors of all of them, K their width.

Source: Khattab and Zaharia (2020), "ColBERT: Efficient and Effective Passage Search via Contextualized Late Interaction
over BERT", section 3.2.
"""

import dataclasses
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from bertsmith.base.core.errors import CheckpointError, InputError
from bertsmith.base.core.settings import require
from bertsmith.inference.vectors.embedder import Embedder
from bertsmith.models.checkpoints.late_interaction import LateRecipe, TextSide
from bertsmith.tasks.datasets.examples import TextExample
from bertsmith.tasks.encoding.row_encoder import RowEncoder
from bertsmith.tasks.encoding.units import Ints
from bertsmith.tasks.metrics.token_vectors import TokenMatrix
from bertsmith.tasks.metrics.vectors import unit
from bertsmith.text.tokenizers.encoded import Encoded
from bertsmith.text.tokenizers.pack import filled_rows, pack_rows, require_positions

Vectors = npt.NDArray[np.float32]


class TokenEmbedder(Embedder):
    """An encoder with a projection, which gives the tokens of queries and of documents vectors that are compared.

    Args:
        encoder: of the tokens.
        recipe: how texts are read, and what is computed from the encoder's vectors.
    """

    def __init__(self, encoder: RowEncoder, recipe: LateRecipe) -> None:
        limit = encoder.model.max_tokens
        for side in (recipe.queries, recipe.documents):
            require_positions(side.max_length or limit, limit)
        super().__init__(encoder, max_length=recipe.documents.max_length, special_tokens=True)
        self.recipe = recipe
        require(
            recipe.weight.shape[1] == encoder.hidden_size,
            expected=f"a projection of {encoder.hidden_size} inputs, the width of the encoder",
            found=f"{recipe.weight.shape[1]}",
            fix="download the model again",
        )
        self.width = len(recipe.weight)
        numbers = {piece: number for number, piece in enumerate(encoder.tokenizer.vocabulary.pieces)}
        self._skipped = np.array(sorted(numbers[word] for word in recipe.skipped if word in numbers), dtype=np.int64)
        template = encoder.tokenizer.template
        if {*template.start, *template.end} <= set(self._skipped.tolist()):
            raise CheckpointError(
                expected="a vector for each text", found="special tokens that are skipped", fix="take them off the list"
            )
        self._fill = 0
        if recipe.expansion is not None:
            piece, vocabulary = recipe.expansion.piece, encoder.tokenizer.vocabulary
            fill = numbers.get(piece) if piece else vocabulary.mask_id
            if fill is None:
                raise CheckpointError(
                    expected="a piece of the vocabulary to expand queries", found=repr(piece), fix="correct the folder"
                )
            self._fill = fill
        self._markers = {side: self._marker(side) for side in (recipe.queries, recipe.documents)}

    @property
    def has_vectors(self) -> bool:
        """See `Embedder`."""
        return False

    def varied(
        self, *, pooling: str | None = None, normalize: bool | None = None, prompt: str | None = None
    ) -> Embedder:
        """This embedder, of whose vectors nothing is pooled."""
        return self

    @property
    def settings(self) -> dict[str, object]:
        """See `Embedder`."""
        return {**super().settings, "late": self.recipe.digest}

    def most(self, side: TextSide) -> int:
        """The maximum tokens of a query or a document, special tokens included."""
        return side.max_length or self.encoder.model.max_tokens

    def queries(self, texts: Sequence[str]) -> TokenMatrix:
        """The vectors of queries."""
        return self.of_encoded(self.encode_side(texts, self.recipe.queries), self.recipe.queries)[0]

    def documents(self, texts: Sequence[str]) -> TokenMatrix:
        """The vectors of documents."""
        return self.of_encoded(self.encode_side(texts, self.recipe.documents), self.recipe.documents)[0]

    def encode_side(self, texts: Sequence[str], side: TextSide) -> Encoded:
        """The pieces of queries or documents, prefix included, without [CLS] and [SEP], before truncation."""
        marker, rest = self._markers[side]
        encoded = self.encoder.tokenizer.encode_batch([rest + text for text in texts], special_tokens="own")
        if marker is None:
            return encoded
        return encoded.after(np.full(len(encoded), marker))

    def of_encoded(self, encoded: Encoded, side: TextSide) -> tuple[TokenMatrix, Ints]:
        """The vectors of texts that are encoded, prefix included, and the tokens truncated from each, int64 [N]."""
        if not len(encoded):
            return TokenMatrix(np.empty((0, self.width), np.float32), np.empty(0, np.int64)), np.empty(0, np.int64)
        rows = pack_rows(
            encoded,
            template=self.encoder.tokenizer.template,
            max_length=self.most(side),
            model_limit=self.encoder.model.max_tokens,
        )
        self.cut_texts += rows.truncated
        self.cut_tokens += rows.cut_tokens
        cut, unseen = rows.cut_by_row.astype(np.int64), None
        expansion = self.recipe.expansion
        if expansion is not None and side is self.recipe.queries:
            rows, added = filled_rows(rows, expansion.length, self._fill)
            unseen = None if expansion.attends or not added.any() else added
        read, lengths = None, rows.lengths.astype(np.int64)
        if side.skips and len(self._skipped):
            kept = ~np.isin(rows.token_ids, self._skipped)
            read, lengths = np.flatnonzero(kept), np.add.reduceat(kept.astype(np.int64), rows.offsets[:-1])
        states = self.encoder.token_vectors(rows, self.choice, read, unseen)
        vectors = states @ self.recipe.weight.T
        if self.recipe.bias is not None:
            vectors += self.recipe.bias
        return TokenMatrix(unit(vectors) if self.recipe.normalizes else vectors, lengths), cut

    def tokenized(self, pairs: Sequence[TextExample]) -> list[TextExample]:
        """Pairs of query and document with their pieces, each text encoded once.

        Raises:
            InputError: a query is longer than the model reads.
        """
        sides = (self.recipe.queries, self.recipe.documents)
        texts = [list(dict.fromkeys(pair.texts[number] for pair in pairs)) for number in (0, 1)]
        known = [
            dict(zip(of_side, self.encode_side(of_side, side).split([1] * len(of_side)), strict=True))
            for of_side, side in zip(texts, sides, strict=True)
        ]
        for text, pieces in known[0].items():
            tokens = len(pieces.ids) + self.encoder.tokenizer.template.num_special(1)
            if tokens > self.most(sides[0]):
                raise InputError(
                    expected=f"a query of at most {self.most(sides[0])} tokens",
                    found=f"{tokens:,} in {text[:40]!r}",
                    fix="shorten it",
                )
        return [
            dataclasses.replace(
                pair, pieces=Encoded.joined([of_side[text] for of_side, text in zip(known, pair.texts, strict=True)])
            )
            for pair in pairs
        ]

    def _marker(self, side: TextSide) -> tuple[int | None, str]:
        """The id of the piece in front of each text, None for none, and the rest of the prefix."""
        tokenizer = self.encoder.tokenizer
        pieces, words = tokenizer.vocabulary.pieces, side.marker.split(None, 1)[:1]
        marker = next((name for name in (side.marker, *words) if name in pieces), None)
        if marker is None or tokenizer.encode(marker, special_tokens="own").tolist() == [pieces.index(marker)]:
            return None, side.prefix
        return pieces.index(marker), side.prefix.removeprefix(marker)
