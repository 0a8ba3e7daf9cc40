"""Compute vectors for files of texts: one vector per text, or one per word."""

import contextlib
import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bertsmith.base.core.progress import tell, warn
from bertsmith.base.core.settings import require
from bertsmith.base.processes.engines import LOCAL, is_cluster
from bertsmith.base.storage.outputs import TOKEN_FEATURES, require_output
from bertsmith.inference.vectors.changes import (
    ChangeSettings,
    VectorChange,
    fit_change,
    read_vectors,
    report_rows,
    require_finite,
    write_npy,
)
from bertsmith.inference.vectors.files import require_place
from bertsmith.inference.vectors.jobs import JobRecipe, VectorJob, VectorSummary, write_vectors
from bertsmith.inference.vectors.json_lines import SUFFIX, TokenLines, write_token_lines
from bertsmith.inference.vectors.loading import load_encoder
from bertsmith.inference.vectors.writers import SUFFIXES
from bertsmith.tasks.datasets.text_lines import TextLines
from bertsmith.tasks.metrics.vectors import VectorReport, describe, in_words, sample_rows
from bertsmith.text.documents.encodings import UTF_8, EncodingSettings


def embed_file(
    file: str,
    model: str | Path,
    out: str | Path,
    *,
    pooling: str | None = None,
    normalize: bool | None = None,
    layers: str = "last",
    max_length: int | None = None,
    prompt: str | None = None,
    dimensions: int | None = None,
    column: str | None = None,
    encoding: str = UTF_8,
    bad_bytes: str = "refuse",
    float16: bool = False,
    text: bool = False,
    resume: bool = False,
    replace: bool = False,
    device: str = "auto",
    precision: str = "fp32",
    products: str = "auto",
    engine: str = LOCAL,
) -> VectorSummary:
    """A summary of the vectors written to `out`, one per line of a file, in order.

    Args:
        file: one text per line, or .csv, .tsv, .jsonl, .parquet (also .gz, .zst), or "-" for stdin.
        model: anything that `load` accepts.
        out: .npy or .parquet.
        pooling, normalize, layers, max_length, prompt, dimensions, device, precision, products: as in
            `inference.vectors.loading.load_embedder`.
        column: the column of a table that holds the texts.
        encoding: of a text file without a byte order mark, such as "cp1252".
        bad_bytes: "refuse" refuses a file with bytes that are not valid UTF-8; "drop" drops and counts them.
        float16: write float16 instead of float32.
        text: add the texts to a .parquet file, next to the vectors.
        resume: resume writing `out`; the result is byte-identical to an uninterrupted job.
        replace: overwrite `out`.
        engine: "local", or "ray" or "ray://ADDRESS" for the workers of a cluster, which read the file and the model at
            the same paths and compute with as many threads; the result is byte-identical on equal processors.

    Raises:
        BertsmithError: file, model, options or place do not fit; the message says which.
    """
    out = Path(out)
    reading = EncodingSettings(encoding=encoding, bad_bytes=bad_bytes)
    _require_one(resume, replace)
    require(
        not text or out.suffix.lower() == ".parquet",
        expected="a .parquet output for --text",
        found=f"'{out}'",
        fix="leave out --text, or name a .parquet file",
    )
    require_place(out, inputs=[file], resume=resume, replace=replace)
    source = TextLines(file, column, reading)
    loading = {
        "pooling": pooling,
        "normalize": normalize,
        "layers": layers,
        "max_length": max_length,
        "prompt": prompt,
        "dimensions": dimensions,
        "device": device,
        "precision": precision,
        "products": products,
    }
    recipe = JobRecipe(model=str(model), loading=loading, text=text)
    job = recipe.job()
    if prefix := job.made_of.get("prompt"):
        tell(f"before every text: the prompt {prefix!r} of the model")
    return _written(job, recipe, source, out, engine, half=float16, resume=resume, replace=replace)


def embed_words_of_file(
    file: str,
    model: str | Path,
    out: str | Path,
    *,
    unit: str = "first",
    layers: str = "last",
    max_length: int | None = None,
    column: str | None = None,
    encoding: str = UTF_8,
    bad_bytes: str = "refuse",
    float16: bool = False,
    resume: bool = False,
    replace: bool = False,
    device: str = "auto",
    precision: str = "fp32",
    products: str = "auto",
    engine: str = LOCAL,
) -> VectorSummary:
    """A summary of the vectors written to `out`, one per word or piece, with its line and character offsets.

    Args:
        out: .npy, .parquet, or .jsonl: pieces in the format of the original extract_features.py, where a line
            `A ||| B` is a pair and each of the `layers` is listed; see `bertsmith.inference.vectors.json_lines`.
        unit: for words, the vector of the "first" piece or the "mean" of all pieces; or "pieces".
        layers: "last", "sum-last-4", "concat-last-4" and the like; see `layer_choice`.
        file, model, max_length, column, encoding, bad_bytes, float16, resume, replace: as in `embed_file`.
        device, precision, products, engine: as in `embed_file`.

    Raises:
        BertsmithError: file, model, options or place do not fit; the message says which.
    """
    out = Path(out)
    reading = EncodingSettings(encoding=encoding, bad_bytes=bad_bytes)
    _require_one(resume, replace)
    if out.suffix.lower() == SUFFIX:
        unfit = ((resume, "resuming"), (float16, "float16"), (unit == "mean", "means of words"))
        for is_set, aim in (*unfit, (is_cluster(engine), "a cluster")):
            require(
                not is_set,
                expected=f"a .npy or .parquet output for {aim}",
                found=f"'{out}'",
                fix="leave that out, or name another output",
            )
        require_output(out, TOKEN_FEATURES, inputs=[file], replace=replace)
        source = TextLines(file, column, reading)
        encoder, _ = load_encoder(model, pooled=False, device=device, precision=precision, products=products)
        return write_token_lines(
            TokenLines(encoder, layers=layers, max_length=max_length), source, out, replace=replace
        )
    require(
        out.suffix.lower() in SUFFIXES,
        expected=f"an output that ends in {', '.join(SUFFIXES)} or {SUFFIX}",
        found=f"'{out.name}'",
        fix="name another file",
    )
    require_place(out, inputs=[file], index=True, resume=resume, replace=replace)
    source = TextLines(file, column, reading)
    loading = {
        "layers": layers,
        "unit": unit,
        "max_length": max_length,
        "device": device,
        "precision": precision,
        "products": products,
    }
    recipe = JobRecipe(model=str(model), loading=loading, of_tokens=True)
    return _written(recipe.job(), recipe, source, out, engine, half=float16, resume=resume, replace=replace)


def _written(
    job: VectorJob, recipe: JobRecipe, source: TextLines, out: Path, engine: str, **options: bool
) -> VectorSummary:
    """The summary of a vector file that this process or a cluster wrote."""
    if not is_cluster(engine):
        return write_vectors(job, source, out, **options)
    require(
        not source.is_stdin,
        expected="a file, which the workers of a cluster open themselves",
        found="stdin",
        fix="write the texts to a file, or leave --engine out",
    )
    from bertsmith.inference.cluster.vectors import ClusterVectors

    with contextlib.closing(ClusterVectors(engine, recipe, job, source)) as spread:
        return write_vectors(spread, source, out, **options)


def _require_one(resume: bool, replace: bool) -> None:
    require(not (resume and replace), expected="--resume or --replace", found="both", fix="leave one out")


@dataclasses.dataclass(frozen=True, kw_only=True)
class ChangedVectors:
    """The distribution of vectors before and after a change.

    Attributes:
        before: of the vectors in the file.
        after: of the changed vectors; None if there was no change.
        warning: a problem with the change; empty if there is none.
    """

    before: VectorReport
    after: VectorReport | None
    warning: str

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {"before": self.before.to_dict(), "after": None if self.after is None else self.after.to_dict()}

    def rows(self) -> Sequence[Sequence[object]]:
        """The name and values of each statistic."""
        return report_rows(self.before, self.after)

    def lines(self) -> list[str]:
        """An interpretation of the statistics, as lines of text."""
        return list(in_words(self.after or self.before, may_praise=not self.warning))

    def draw(self, path: Path) -> None:
        """Writes a histogram of cosines of random pairs as .png, .svg or .html."""
        from bertsmith.inference.vectors.pictures import cosine_histogram, write_picture

        write_picture(path, cosine_histogram(self.before, self.after), "Cosines of random pairs")


def change_vectors(
    source: Path,
    settings: ChangeSettings,
    *,
    fit_on: Path | None = None,
    changes: Path | None = None,
    out: Path | None = None,
    save_changes: Path | None = None,
) -> ChangedVectors:
    """The distribution of the vectors in a file, before and after a change.

    Args:
        source: one vector per row, .npy or .parquet.
        settings: the changes to apply; the default is none.
        fit_on: the vectors to fit the changes on; by default those of `source`.
        changes: a file of saved changes, instead of `settings`.
        out: the .npy file for the changed vectors.
        save_changes: the file to save the changes to.
    """
    vectors = read_vectors(source)
    require_finite(vectors, f"'{source}'")
    change = None
    if changes is not None:
        change = VectorChange.load(changes)
    elif not settings.is_nothing:
        fitted_on = vectors if fit_on is None else read_vectors(fit_on)
        require_finite(fitted_on, f"'{fit_on or source}'")
        change = fit_change(fitted_on, settings)
    before = describe(vectors)
    if change is None:
        return ChangedVectors(before=before, after=None, warning="")
    if change.warning:
        warn(change.warning)
    after = describe(change.apply(vectors[sample_rows(len(vectors))]))
    if out is not None:
        write_npy(out, change.stream(vectors), (len(vectors), change.width))
    if save_changes is not None:
        change.save(save_changes)
    return ChangedVectors(before=before, after=after, warning=change.warning)
