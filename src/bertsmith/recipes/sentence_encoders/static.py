"""Static vectors made from any encoder, with one pass over its vocabulary.

Letters: V pieces of the vocabulary, D width of the encoder, K width of the static vectors.

Each piece is read as a text of its own. Its vector is centered and turned to the directions of largest variance, of
which K are kept and made more alike: each is divided by the square root of its standard deviation. Frequent pieces say
little about a text, so their vectors are made shorter: by a / (a + p), where p is the share of the piece in a text or,
without one, by Zipf's law from its place in the vocabulary.

Source: Arora et al. (2017), "A Simple but Tough-to-Beat Baseline for Sentence Embeddings", section 3, for the weights;
Tulkens and van Dongen (2024), Model2Vec, for the pass over the vocabulary and the weights without text.
"""

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from bertsmith.base.core.errors import InputError
from bertsmith.base.core.progress import Progress, short_repr, tell
from bertsmith.base.core.requests import takes
from bertsmith.base.core.settings import require
from bertsmith.base.storage.files import require_outside
from bertsmith.inference.vectors.loading import load_embedder
from bertsmith.inference.vectors.request import StaticVectorsRequest
from bertsmith.models.checkpoints.huggingface import write_model_folder
from bertsmith.models.encoders.static import StaticConfig, special_ids
from bertsmith.models.heads.head_spec import COSINE
from bertsmith.models.model_files.metadata import SIMILARITY, ModelMetadata
from bertsmith.tasks.datasets.text_lines import TextLines
from bertsmith.tasks.metrics.vectors import principal_axes
from bertsmith.tasks.specs.settings import TaskSettings
from bertsmith.tasks.specs.vector_gold import vector_spec
from bertsmith.text.documents.encodings import EncodingSettings
from bertsmith.text.tokenizers.pack import pack_rows
from bertsmith.text.tokenizers.tokenizer import Tokenizer

WEIGHT_OF_TEXT, WEIGHT_OF_ZIPF = 1e-3, 1e-4  # a
WIDTH = 256
_OFFSET = 2.7  # of ranks in Zipf's law, as measured on English text (Mandelbrot)
_UNSEEN = 0.01  # occurrences that a piece counts that a text does not have
_BLOCK = 4096  # texts that are encoded at a time
_LENGTH = 512  # tokens of a row that a static model is said to read; it reads texts of any length

Floats = npt.NDArray[np.float64]


@dataclasses.dataclass(frozen=True, kw_only=True)
class StaticSummary:
    """What was made."""

    out: Path
    pieces: int  # V
    width: int  # K
    variance: float  # the share of the variance of the pieces' vectors in the directions that were kept
    texts: int  # texts whose pieces were counted; 0 without a text

    __repr__ = short_repr

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {**dataclasses.asdict(self), "out": str(self.out)}


@takes(StaticVectorsRequest)
def make_static_vectors(request: StaticVectorsRequest) -> StaticSummary:
    """Writes a folder of static vectors, which `embed`, `search`, `serve` and `finetune` read as any model.

    It also loads in sentence-transformers, as its `StaticEmbedding`, with the same vectors.

    Raises:
        BertsmithError: the model, the text or an option does not fit; the message says which.
    """
    out, text = Path(request.out), request.text
    require_outside(out, [str(source) for source in (request.model, text) if source is not None])
    embedder = load_embedder(request.model, layers=request.layers, device=request.device, precision=request.precision)
    embedder.require_pooled()
    tokenizer, width = embedder.encoder.tokenizer, embedder.width
    pieces = len(tokenizer.vocabulary)
    kept = min(WIDTH, width) if request.dimensions is None else request.dimensions
    require(
        kept <= width,
        expected=f"dimensions from 1 to {width}, the width of the model",
        found=kept,
        fix="choose a value in that range",
    )
    ids = np.arange(pieces, dtype=np.int32)
    rows = pack_rows(
        np.split(ids, pieces), template=tokenizer.template, max_length=tokenizer.template.num_special(1) + 1
    )
    with Progress("one pass over the vocabulary", total=pieces, unit="pieces", least=1.0) as progress:
        vectors = embedder.encoder.text_vectors(rows, embedder.choice, embedder.pooling, progress)
    frequencies, texts = _frequencies(tokenizer, request)
    weight = WEIGHT_OF_ZIPF if text is None else WEIGHT_OF_TEXT
    table, variance = principal(vectors.astype(np.float64), kept)
    table *= (weight / (weight + frequencies))[:, None]
    table[special_ids(tokenizer.vocabulary)] = 0
    spec = dataclasses.replace(vector_spec(SIMILARITY, (), TaskSettings(max_length=_LENGTH)), objective=COSINE)
    metadata = ModelMetadata(
        task=SIMILARITY,
        spec=spec.to_dict(),
        trained_on=dict(embedder.encoder.digests),
        training={
            "made_from": f"the vectors of {pieces:,} pieces, {kept} of {width} directions",
            "weights": "Zipf's law" if text is None else f"frequencies in {texts:,} texts",
        },
    )
    write_model_folder(
        out,
        config=StaticConfig(vocab_size=pieces, hidden_size=kept, pad_token_id=tokenizer.vocabulary.pad_id or 0),
        tensors={"embeddings.word.weight": torch.from_numpy(table.astype(np.float32))},
        tokenizer=tokenizer,
        metadata=metadata,
        replace=request.replace,
    )
    tell(f"{variance:.0%} of the variance of the pieces in {kept} of {width} directions")
    return StaticSummary(out=out, pieces=pieces, width=kept, variance=variance, texts=texts)


def principal(vectors: Floats, kept: int) -> tuple[Floats, float]:
    """The vectors [V, D] in their directions of largest variance [V, K], which are made more alike, and their share.

    Each direction is divided by the square root of its standard deviation: half of what whitening does.
    """
    centered = vectors - vectors.mean(axis=0)
    variances, directions = principal_axes(centered.T @ centered / len(centered))
    variances = np.maximum(variances, 0)
    turned = centered @ directions[:, :kept]
    scale = np.maximum(variances[:kept], 1e-12 * max(float(variances[0]), 1e-30)) ** 0.25
    return turned / scale, float(variances[:kept].sum() / max(float(variances.sum()), 1e-30))


def _frequencies(tokenizer: Tokenizer, request: StaticVectorsRequest) -> tuple[Floats, int]:
    """The share of each piece in a text, float64 [V], and the number of texts; without one by Zipf's law."""
    pieces = len(tokenizer.vocabulary)
    if request.text is None:
        frequencies = 1 / (np.arange(pieces) + _OFFSET)
        return frequencies / frequencies.sum(), 0
    counts, texts, block = np.zeros(pieces), 0, list[str]()

    def count() -> None:
        encoded = tokenizer.encode_batch(block)
        counts[:] += np.bincount(encoded.ids, minlength=pieces)
        block.clear()

    source = TextLines(request.text, request.column, request.part(EncodingSettings))
    for line in source:
        block.append(line)
        texts += 1
        if len(block) == _BLOCK:
            count()
    if block:
        count()
    source.tell_notes()
    if not counts.any():
        raise InputError(
            expected=f"texts in '{request.text}'", found="no piece of the vocabulary", fix="name another file"
        )
    return (counts + _UNSEEN) / (counts + _UNSEEN).sum(), texts
