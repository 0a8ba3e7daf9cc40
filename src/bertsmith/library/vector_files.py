"""Compute vectors for files of texts: one vector per text, or one per word."""

from pathlib import Path

from bertsmith.datasets.text_lines import TextLines
from bertsmith.settings import require
from bertsmith.vectors.files import require_place
from bertsmith.vectors.jobs import TextVectors, TokenVectorsOfTexts, VectorSummary, write_vectors
from bertsmith.vectors.loading import load_embedder, load_token_features


def embed_file(
    file: str,
    model: str | Path,
    out: str | Path,
    *,
    pooling: str | None = None,
    normalize: bool | None = None,
    layers: str = "last",
    max_length: int | None = None,
    column: str | None = None,
    float16: bool = False,
    text: bool = False,
    resume: bool = False,
    replace: bool = False,
    device: str = "auto",
    precision: str = "fp32",
) -> VectorSummary:
    """A summary of the vectors written to `out`, one per line of a file, in order.

    Args:
        file: one text per line, or .csv, .tsv, .jsonl, .parquet (also .gz, .zst), or "-" for stdin.
        model: anything that `load` accepts.
        out: .npy or .parquet.
        pooling, normalize, layers, max_length, device, precision: as in `Embedder.load`.
        column: the column of a table that holds the texts.
        float16: write float16 instead of float32.
        text: add the texts to a .parquet file, next to the vectors.
        resume: resume writing `out`; the result is byte-identical to an uninterrupted job.
        replace: overwrite `out`.

    Raises:
        BertsmithError: file, model, options or place do not fit; the message says which.
    """
    out = Path(out)
    _require_one(resume, replace)
    require(
        not text or out.suffix.lower() == ".parquet",
        expected="a .parquet output for --text",
        found=f"'{out}'",
        fix="leave out --text, or name a .parquet file",
    )
    require_place(out, resume=resume, replace=replace)
    source = TextLines(file, column)
    embedder = load_embedder(
        model,
        pooling=pooling,
        normalize=normalize,
        layers=layers,
        max_length=max_length,
        device=device,
        precision=precision,
    )
    return write_vectors(TextVectors(embedder, text=text), source, out, half=float16, resume=resume, replace=replace)


def embed_words_of_file(
    file: str,
    model: str | Path,
    out: str | Path,
    *,
    unit: str = "first",
    layers: str = "last",
    max_length: int | None = None,
    column: str | None = None,
    float16: bool = False,
    resume: bool = False,
    replace: bool = False,
    device: str = "auto",
    precision: str = "fp32",
) -> VectorSummary:
    """A summary of the vectors written to `out`, one per word or piece, with its line and character offsets.

    Args:
        unit: for words, the vector of the "first" piece or the "mean" of all pieces; or "pieces".
        layers: "last", "sum-last-4", "concat-last-4" and the like; see `layer_mix`.
        file, model, out, max_length, column, float16, resume, replace, device, precision: as in `embed_file`.

    Raises:
        BertsmithError: file, model, options or place do not fit; the message says which.
    """
    out = Path(out)
    _require_one(resume, replace)
    require_place(out, resume=resume, replace=replace)
    source = TextLines(file, column)
    features = load_token_features(
        model, layers=layers, unit=unit, max_length=max_length, device=device, precision=precision
    )
    return write_vectors(TokenVectorsOfTexts(features), source, out, half=float16, resume=resume, replace=replace)


def _require_one(resume: bool, replace: bool) -> None:
    require(not (resume and replace), expected="--resume or --replace", found="both", fix="leave one out")
