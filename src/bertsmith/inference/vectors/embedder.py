"""One vector per text, from a frozen encoder.

Letters: E texts, D width of the encoder.

A text is read as [CLS] text [SEP]. Equal rows of a block are computed once. The rows of a block are sorted by length
and encoded in flat micro-batches, without padding. A sentence-transformers folder defines how its texts are read and
pooled, and its vectors are the same as in that library.

Source: Reimers and Gurevych (2019), "Sentence-BERT", section 3.
"""

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from bertsmith.base.core.errors import nearest
from bertsmith.base.core.settings import require, require_number
from bertsmith.models.checkpoints.sentence_transformers import DOCUMENT_PROMPTS, QUERY
from bertsmith.models.checkpoints.vector_layers import VectorLayer
from bertsmith.models.heads.vector_forms import BY_COSINE, BY_PRODUCT
from bertsmith.tasks.encoding.row_encoder import RowEncoder, Vectors
from bertsmith.tasks.encoding.units import Ints
from bertsmith.tasks.metrics.vectors import unit
from bertsmith.text.tokenizers.encoded import Encoded
from bertsmith.text.tokenizers.pack import pack_rows, require_positions

if TYPE_CHECKING:
    import scipy.sparse as sp

EitherVectors: TypeAlias = "Vectors | sp.csr_matrix"
NO_PROMPT = "none"
BLOCK = 1024  # texts that are sorted by length and computed together
_FEWEST_TEXTS, _MOST_WEIGHTS = 16, 2**24  # of those with sparse vectors


class Embedder:
    """An encoder with a pooling.

    Args:
        pooling: "mean" over all tokens of the row, [CLS] and [SEP] among them; "max" over them; "cls", the vector of
            [CLS] (in a left-to-right model, of the last token); "pooler", the layer on top of it; or parts of
            `poolings.PARTS`, joined by "+", whose vectors are concatenated.
        max_length: maximum tokens per row; longer texts lose their end, and are counted. None: what the model reads.
        dimensions: how many of the first numbers of each vector are kept; None for all. For models that were trained
            for it (Matryoshka).
        pools_prompt: False: the tokens of the prompt, [CLS] included, are left out of the pooling.
        similarity: how two vectors are compared, one of `vector_forms.OF_DENSE_VECTORS`.
        further: layers that the pooled vectors pass through; only with those of the last layer.
        cuts_last: vectors are scaled to length 1 before the other numbers are left out, as sentence-transformers does.
        special_tokens: `[SEP]` and the other special pieces in a text are encoded as such.

    Attributes:
        cut_texts: how many of them were longer than `max_length`.
        cut_tokens: the tokens they lost.
        empty_texts: how many had no token of their own; their vector is that of [CLS] [SEP], or of the prompt.
    """

    def __init__(
        self,
        encoder: RowEncoder,
        *,
        pooling: str = "mean",
        normalize: bool = False,
        layers: str = "last",
        max_length: int | None = None,
        prompt: str = "",
        special_tokens: bool = False,
        prompts: Mapping[str, str] | None = None,
        pools_prompt: bool = True,
        dimensions: int | None = None,
        cuts_last: bool = False,
        similarity: str = BY_COSINE,
        further: Sequence[VectorLayer] = (),
    ) -> None:
        self.encoder, self.pooling, self.normalize = encoder, pooling, normalize
        self.layers, self.choice, self.similarity = layers, encoder.choice(layers), similarity
        encoder.require_pooling(pooling, self.choice)
        limit = encoder.model.max_tokens
        self.max_length = limit if max_length is None else max_length
        shortest = encoder.tokenizer.template.num_special(1) + 1
        windows = "longer texts lose their end: embed their parts, or take vectors of tokens (`bertsmith features`)"
        require_positions(self.max_length, limit, fix=windows)
        require_number("max_length", self.max_length, least=shortest)
        self.prompt, self.special_tokens = prompt, special_tokens
        self.prompts, self.pools_prompt = dict(prompts or {}), pools_prompt
        self._unpooled = 0 if pools_prompt or not prompt else self._prompt_tokens()
        require(
            not self._unpooled or pooling != "pooler",
            expected="a pooling that leaves out the prompt, as the folder says",
            found=pooling,
            fix=f"choose another one, or the prompt {NO_PROMPT}",
        )
        require(
            self._unpooled < self.max_length,
            expected=f"a prompt of less than {self.max_length} tokens, as it is left out of the pooling",
            found=self._unpooled,
            fix=f"raise the maximum length, or choose the prompt {NO_PROMPT}",
        )
        self.width, self.further = encoder.text_width(self.choice, pooling), tuple(further)
        if further:
            require(
                self.width == further[0].inputs,
                expected=f"vectors of width {further[0].inputs}, for the layers after the pooling",
                found=self.width,
                fix="choose layers 'last', or name only the folder of the encoder",
            )
            self.width = further[-1].width
        self.dimensions, self.cuts_last = dimensions, cuts_last
        if dimensions is not None:
            require(
                0 < dimensions <= self.width,
                expected=f"dimensions from 1 to {self.width}, the width of the vectors",
                found=dimensions,
                fix="choose a value in that range",
            )
            self.width = dimensions
        self.texts = self.cut_texts = self.cut_tokens = self.empty_texts = 0

    def _prompt_tokens(self) -> int:
        """The tokens of the prompt as a row of its own, but not a special one at its end."""
        template, encoded = self.encoder.tokenizer.template, self.encode([""])
        ids = [*template.start, *encoded.ids.tolist(), *template.end][: self.max_length]
        return len(ids) - (ids[-1] in self.encoder.tokenizer.vocabulary.special_ids)

    @property
    def has_vectors(self) -> bool:
        """Whether it gives each text a vector."""
        return self.encoder.has_vectors

    def varied(
        self, *, pooling: str | None = None, normalize: bool | None = None, prompt: str | None = None
    ) -> "Embedder":
        """An embedder with other settings and counts of its own; None keeps a setting."""
        known = (*self.prompts, NO_PROMPT)
        require(
            prompt is None or prompt in known,
            expected="a prompt of the model",
            found=repr(prompt),
            fix=nearest(prompt or "", known),
        )
        return Embedder(
            self.encoder,
            pooling=self.pooling if pooling is None else pooling,
            normalize=self.normalize if normalize is None else normalize,
            layers=self.layers,
            max_length=self.max_length,
            prompt=self.prompt if prompt is None else self.prompts.get(prompt, ""),
            special_tokens=self.special_tokens,
            prompts=self.prompts,
            pools_prompt=self.pools_prompt,
            dimensions=self.dimensions,
            cuts_last=self.cuts_last and normalize is None,
            similarity=self.similarity,
            further=self.further,
        )

    def for_queries(self, prompt: str | None = None) -> "Embedder":
        """The embedder with its prompt for queries, or with the one named, see `varied`."""
        varied = self.varied(prompt=prompt or self._first([QUERY]))
        if (reader := self.encoder.of_queries) is not None:
            varied.encoder, varied.max_length = reader, reader.model.max_tokens
        return varied

    def for_passages(self, prompt: str | None = None) -> "Embedder":
        """The embedder with its prompt for passages, or with the one named, see `varied`."""
        return self.varied(prompt=prompt or self._first(DOCUMENT_PROMPTS))

    def _first(self, names: Sequence[str]) -> str | None:
        return next((name for name in names if name in self.prompts), None)

    @property
    def settings(self) -> dict[str, object]:
        """The settings that the vectors depend on, for JSON."""
        return {
            **self.encoder.settings(self.choice),
            "pooling": self.pooling,
            "normalize": self.normalize,
            "max_length": self.max_length,
            "prompt": self.prompt,
            "special_tokens": self.special_tokens,
            **({"pools_prompt": False} if self._unpooled else {}),
            **({} if self.dimensions is None else {"dimensions": self.dimensions}),
            **({"cuts_last": True} if self.cuts_last else {}),
            **({"further": [layer.digest for layer in self.further]} if self.further else {}),
        }

    def embed(self, texts: Sequence[str]) -> Vectors:
        """One vector per text, float32 [E, width], in order."""
        return self.embed_counting(texts)[0]

    def encode(self, texts: Sequence[str]) -> Encoded:
        """The pieces of each text, including the prompt, without [CLS] and [SEP], before truncation."""
        return self.encoder.tokenizer.encode_batch(
            [self.prompt + text for text in texts] if self.prompt else list(texts),
            special_tokens="own" if self.special_tokens else False,
        )

    def embed_counting(self, texts: Sequence[str]) -> tuple[Vectors, Ints]:
        """One vector per text, float32 [E, width], and the number of tokens truncated from each, int64 [E]."""
        if self.prompt:  # has tokens, also before an empty text
            self.empty_texts += sum(not text.strip() for text in texts)
        return self.embed_encoded(self.encode(texts))

    def embed_encoded(self, encoded: Encoded) -> tuple[Vectors, Ints]:
        """The same for texts that are encoded already, prompt included."""
        if not len(encoded):
            return np.empty((0, self.width), dtype=np.float32), np.empty(0, dtype=np.int64)
        encoder = self.encoder
        rows = pack_rows(
            encoded,
            template=encoder.tokenizer.template,
            max_length=self.max_length,
            model_limit=encoder.model.max_tokens,
        )
        self.texts += len(encoded)
        self.cut_texts += rows.truncated
        self.cut_tokens += rows.cut_tokens
        self.empty_texts += int(np.count_nonzero(encoded.lengths == 0))
        vectors = encoder.text_vectors(rows, self.choice, self.pooling, skipped=self._unpooled)
        for layer in self.further:
            vectors = layer.apply(vectors)
        if self.normalize and self.cuts_last:
            vectors = unit(vectors)
        vectors = vectors[:, : self.width]
        return (unit(vectors) if self.normalize and not self.cuts_last else vectors), rows.cut_by_row.astype(np.int64)

    def require_pooled(self) -> None:
        """Refuses a model with layers after the pooling, where the pooled vectors themselves are used."""
        require(
            not self.further,
            expected="a model whose vectors are those of its pooling",
            found=f"{len(self.further)} layers after it",
            fix="name another model, or only the folder of its encoder",
        )

    @property
    def is_sparse(self) -> bool:
        """Whether a vector has a weight for each piece of the vocabulary, nearly all of them 0."""
        return self.encoder.is_sparse

    @property
    def compares_units(self) -> bool:
        """Whether the similarity of two texts is the product of their vectors of length 1, not of those as they are."""
        is_unit = self.normalize and not self.cuts_last
        return self.similarity == BY_COSINE or (self.similarity == BY_PRODUCT and is_unit)

    def require_units(self, use: str) -> None:
        """Refuses a model of dense vectors that does not compare by the cosine, where nothing else is computed."""
        require(
            self.compares_units or self.is_sparse,
            expected=f"a model whose vectors are compared by the cosine, for {use}",
            found=f"similarity_fn_name {self.similarity}",
            fix="search the texts themselves, exactly, or name another model",
        )

    def embed_either(self, texts: Sequence[str]) -> tuple[EitherVectors, Ints]:
        """The same as `embed_counting`, with a sparse matrix if vectors are sparse."""
        return self.embed_sparse(texts) if self.is_sparse else self.embed_counting(texts)

    def embed_sparse(
        self, texts: Sequence[str], advance: Callable[[int], None] | None = None
    ) -> "tuple[sp.csr_matrix, Ints]":
        """The vectors of texts, float32 [E, width], without their zeros, and the tokens truncated from each.

        They are computed for some texts at a time.

        Args:
            advance: receives the number of texts done since its last call.
        """
        import scipy.sparse as sp

        size = max(_FEWEST_TEXTS, min(BLOCK, _MOST_WEIGHTS // self.width))
        parts, cuts = [sp.csr_matrix((0, self.width), dtype=np.float32)], [np.empty(0, dtype=np.int64)]
        for start in range(0, len(texts), size):
            vectors, cut = self.embed_counting(texts[start : start + size])
            parts.append(sp.csr_matrix(vectors))
            cuts.append(cut)
            if advance is not None:
                advance(len(cut))
        return sp.vstack(parts, format="csr"), np.concatenate(cuts)

    def stream(self, texts: Iterable[str], block: int = BLOCK) -> Iterator[Vectors]:
        """The vectors of any number of texts, float32 [e, width] per block of texts, in order."""
        source = iter(texts)
        while part := list(itertools.islice(source, block)):
            yield self.embed(part)
