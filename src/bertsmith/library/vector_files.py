"""Files of texts to files of vectors: one for each text, or one for each word."""

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
    """What was written to `out`: a vector for each line of a file, in their order.

    Args:
        file: a text a line, or .csv, .tsv, .jsonl, .parquet (also .gz, .zst), or "-" for stdin.
        model: anything that `load` takes.
        out: .npy or .parquet.
        pooling, normalize, layers, max_length, device, precision: as of `Embedder.load`.
        column: of a table, with the texts.
        float16: numbers of half the size.
        text: in a .parquet file, put the texts next to the vectors.
        resume: resume with `out`, with the same bytes in the end.
        replace: write over `out`.

    Raises:
        BertsmithError: file, model, options or place do not fit; the message says which.
    """
    out = Path(out)
    _require_one(resume, replace)
    require(
        not text or out.suffix.lower() == ".parquet",
        expected="an output that ends in .parquet for --text",
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
    """What was written to `out`: a vector for each word or piece of a file, with its line and its characters.

    Args:
        unit: of a word the vector of its "first" piece, or the "mean" of all; or "pieces".
        layers: "last", "sum-last-4", "concat-last-4" and the like; see `layer_mix`.
        file, model, out, max_length, column, float16, resume, replace, device, precision: as of `embed_file`.

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
