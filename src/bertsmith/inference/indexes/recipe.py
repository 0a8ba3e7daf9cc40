"""How the vectors of an index are made of texts: by which models, and with which settings."""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from bertsmith.base.core.errors import ConfigError
from bertsmith.base.core.progress import tell
from bertsmith.inference.indexes.parts import NewVectors
from bertsmith.inference.indexes.segment import VectorsRecord
from bertsmith.inference.indexes.token_vectors import BITS
from bertsmith.inference.search.index import as_compared, kind_of, maker_of
from bertsmith.inference.search.request import named
from bertsmith.inference.search.token_codes import TokenCoder
from bertsmith.inference.search.token_search import coder_of
from bertsmith.inference.vectors.embedder import Embedder
from bertsmith.inference.vectors.jobs import TextVectors
from bertsmith.inference.vectors.loading import late_folder, load_embedder, load_token_embedder
from bertsmith.inference.vectors.token_embedder import TokenEmbedder
from bertsmith.inference.vectors.writers import Columns


class PassageVectors(TextVectors):
    """The vectors of the texts of an index; sparse ones as they are compared."""

    def vectors(self, texts: Sequence[str], first: int) -> Iterator[tuple[Any, Columns]]:
        """See `VectorJob`."""
        for vectors, columns in super().vectors(texts, first):
            yield as_compared(vectors, self.embedder) if self.is_sparse else vectors, columns


class PassageTokens(TextVectors):
    """The vectors of the tokens of the texts of an index, see `TokenMatrix`."""

    embedder: TokenEmbedder

    def vectors(self, texts: Sequence[str], first: int) -> Iterator[tuple[Any, Columns]]:
        """See `VectorJob`."""
        yield self.embedder.documents(texts), {}

    def coder(self, texts: Sequence[str]) -> TokenCoder:
        """The coder for vectors of texts like these."""
        return coder_of(texts, self.embedder, BITS)


@dataclasses.dataclass(frozen=True, kw_only=True)
class VectorsRecipe:
    """What the vectors of an index are made with.

    Attributes:
        models: anything that `load` accepts, each of another kind of vectors.
        loading: arguments of `load_embedder`.
        of_tokens: arguments of `load_token_embedder`.
        prompt: the name of the prompt for passages, see `Embedder.for_passages`.
    """

    models: Sequence[str | Path]
    loading: Mapping[str, Any]
    of_tokens: Mapping[str, Any]
    prompt: str | None

    def vectors(self) -> dict[str, NewVectors]:
        """The vectors of all models, which are loaded, by kind."""
        vectors = dict[str, NewVectors]()
        for model in self.models:
            embedder = self.embedder(model)
            if (kind := kind_of(embedder)) in vectors:
                raise ConfigError(
                    expected=f"one model of {named(kind)}",
                    found=f"'{vectors[kind].record.model}' and '{model}'",
                    fix="build an index for each",
                )
            vectors[kind] = new_vectors(embedder, model)
            if embedder.prompt:
                tell(f"prompt of the model for passages: {embedder.prompt!r}")
        return vectors

    def embedder(self, model: str | Path) -> Embedder:
        """A model for passages."""
        if (late := late_folder(model)) is not None:
            return load_token_embedder(late, **self.of_tokens)
        embedder = load_embedder(model, sparse=True, **self.loading)
        embedder.require_units("an index on disk")
        return embedder.for_passages(self.prompt)


def new_vectors(embedder: Embedder, model: str | Path) -> NewVectors:
    """The vectors that an embedder makes for an index, of a model that is named so."""
    job = (PassageTokens if isinstance(embedder, TokenEmbedder) else PassageVectors)(embedder)
    record = VectorsRecord(model=str(model), made_of=made_of_index(embedder), width=job.width)
    return NewVectors(job=job, record=record)


def made_of_index(embedder: Embedder) -> dict[str, Any]:
    """What the vectors of an index depend on, for its manifest; precisions do not differ enough to matter."""
    return {name: value for name, value in maker_of(embedder).items() if name != "precision"}
