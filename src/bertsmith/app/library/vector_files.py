"""Compute vectors for files of texts: one vector per text, or one per word."""

import contextlib
import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bertsmith.base.core.progress import tell, warn
from bertsmith.base.core.requests import takes
from bertsmith.base.core.settings import require
from bertsmith.base.processes.engines import is_cluster
from bertsmith.base.storage.outputs import TOKEN_FEATURES, require_output
from bertsmith.inference.vectors.changes import (
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
from bertsmith.inference.vectors.loading import load_embedder, load_encoder, load_token_features
from bertsmith.inference.vectors.request import (
    ChangeSettings,
    EmbedRequest,
    FeaturesRequest,
    VectorFileRequest,
    VectorsRequest,
)
from bertsmith.inference.vectors.writers import SUFFIXES
from bertsmith.tasks.datasets.text_lines import TextLines
from bertsmith.tasks.metrics.vectors import VectorReport, describe, in_words, sample_rows
from bertsmith.text.documents.encodings import EncodingSettings


@takes(EmbedRequest)
def embed_file(request: EmbedRequest) -> VectorSummary:
    """A summary of the vectors written to `out`, one per line of a file, in order.

    The workers of a cluster read the file and the model at the same paths and compute with as many threads; the result
    is byte-identical on equal processors.

    Raises:
        BertsmithError: file, model, options or place do not fit; the message says which.
    """
    source = _source(request, index=False)
    recipe = JobRecipe(model=str(request.model), loading=request.arguments(load_embedder), text=request.text)
    job = recipe.job(None if is_cluster(request.engine) else source.plain_bytes)
    require(
        not (job.is_sparse and is_cluster(request.engine)),
        expected="--engine local for sparse vectors",
        found=request.engine,
        fix="leave --engine out",
    )
    if prefix := job.made_of.get("prompt"):
        tell(f"before every text: the prompt {prefix!r} of the model")
    return _written(job, recipe, source, request)


@takes(FeaturesRequest)
def embed_words_of_file(request: FeaturesRequest) -> VectorSummary:
    """A summary of the vectors written to `out`, one per word or piece, with its line and character offsets.

    A .jsonl file has pieces in the format of the original extract_features.py, where a line `A ||| B` is a pair and
    each of the `layers` is listed; see `bertsmith.inference.vectors.json_lines`.

    Raises:
        BertsmithError: file, model, options or place do not fit; the message says which.
    """
    out = Path(request.out)
    if out.suffix.lower() != SUFFIX:
        require(
            out.suffix.lower() in SUFFIXES,
            expected=f"an output that ends in {', '.join(SUFFIXES)} or {SUFFIX}",
            found=f"'{out.name}'",
            fix="name another file",
        )
        source = _source(request, index=True)
        recipe = JobRecipe(model=str(request.model), loading=request.arguments(load_token_features), of_tokens=True)
        return _written(recipe.job(), recipe, source, request)
    for is_set, aim in (
        (request.resume, "resuming"),
        (request.float16, "float16"),
        (request.unit == "mean", "means of words"),
        (is_cluster(request.engine), "a cluster"),
    ):
        require(
            not is_set,
            expected=f"a .npy or .parquet output for {aim}",
            found=f"'{out}'",
            fix="leave that out, or name another output",
        )
    require_output(out, TOKEN_FEATURES, inputs=[request.file], replace=request.replace)
    source = TextLines(request.file, request.column, request.part(EncodingSettings))
    encoder, _ = load_encoder(request.model, pooled=False, **request.arguments(load_encoder))
    lines = TokenLines(encoder, layers=request.layers, max_length=request.max_length)
    return write_token_lines(lines, source, out, replace=request.replace)


def _source(request: VectorFileRequest, *, index: bool) -> TextLines:
    """The texts of a file, once it is clear that the output may be written."""
    require_place(
        Path(request.out), inputs=[str(request.file)], index=index, resume=request.resume, replace=request.replace
    )
    return TextLines(request.file, request.column, request.part(EncodingSettings))


def _written(job: VectorJob, recipe: JobRecipe, source: TextLines, request: VectorFileRequest) -> VectorSummary:
    """The summary of a vector file that this process or a cluster wrote."""
    with contextlib.ExitStack() as stack:
        if is_cluster(request.engine):
            require(
                not source.is_stdin,
                expected="a file, which the workers of a cluster open themselves",
                found="stdin",
                fix="write the texts to a file, or leave --engine out",
            )
            from bertsmith.inference.cluster.vectors import ClusterVectors

            job = stack.enter_context(contextlib.closing(ClusterVectors(request.engine, recipe, job, source)))
        return write_vectors(
            job,
            source,
            Path(request.out),
            half=request.float16,
            resume=request.resume,
            replace=request.replace,
        )


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


def change_vectors(request: VectorsRequest) -> ChangedVectors:
    """The distribution of the vectors in a file, before and after a change; writes what the request asks for."""
    vectors = read_vectors(Path(request.source))
    require_finite(vectors, f"'{request.source}'")
    change, settings = None, request.part(ChangeSettings)
    if request.changes is not None:
        change = VectorChange.load(Path(request.changes))
    elif not settings.is_nothing:
        fitted_on = vectors if request.fit_on is None else read_vectors(Path(request.fit_on))
        require_finite(fitted_on, f"'{request.fit_on or request.source}'")
        change = fit_change(fitted_on, settings)
    before = describe(vectors)
    if change is None:
        return ChangedVectors(before=before, after=None, warning="")
    if change.warning:
        warn(change.warning)
    after = describe(change.apply(vectors[sample_rows(len(vectors))]))
    if request.out is not None:
        write_npy(Path(request.out), change.stream(vectors), (len(vectors), change.width))
    if request.save_changes is not None:
        change.save(Path(request.save_changes))
    return ChangedVectors(before=before, after=after, warning=change.warning)
