"""Commands for corpora: build one from text, and check one."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from bertsmith.app.cli.options import JsonOption, note, say, show
from bertsmith.app.cli.text import tokenizer_from
from bertsmith.base.core.settings import require_other
from bertsmith.base.storage.files import require_outside
from bertsmith.base.storage.uploads import is_staged, staged

if TYPE_CHECKING:
    from bertsmith.text.corpus.request import CheckRequest, CorpusRequest


def corpus(request: "CorpusRequest") -> None:
    """Build a corpus of token shards from text, with a report of the corpus checks.

    TEXT and DIR may be addresses such as s3://bucket/texts. With --engine ray, the workers of a cluster read and encode
    the text, and finished work is kept in DIR.partial: --resume continues after Ctrl-C, a crash or a full disk.
    """
    from bertsmith.base.processes.engines import is_cluster
    from bertsmith.text.corpus.build import build_corpus
    from bertsmith.text.corpus.checks import check_corpus
    from bertsmith.text.corpus.manifest import MANIFEST
    from bertsmith.text.corpus.request import CorpusSettings
    from bertsmith.text.documents.languages import SamplingSettings

    out, replace, resume = Path(request.out), request.replace, request.resume
    require_outside(out, [path for path in (request.vocab, request.model, *request.evaluation) if path is not None])
    tokenizer = tokenizer_from(request.vocab, request.model, request.cased, request.rules)
    on_cluster = is_cluster(request.engine)
    is_made = resume and not replace and is_staged(out, MANIFEST)
    require_other(on_cluster or is_made or not resume, "--resume", "--engine ray")
    with staged(out, last=MANIFEST, replace=replace, inputs=request.texts) as folder:
        options: dict[str, Any] = {"workers": request.workers, "weights": request.weights, "replace": replace}
        if is_made:
            note(f"the corpus in '{folder}' is complete; it is uploaded")
        elif on_cluster:
            from bertsmith.inference.cluster.corpus import build_corpus_on

            settings, sampling = request.part(CorpusSettings), request.part(SamplingSettings)
            options |= {"settings": settings, "sampling": sampling, "resume": resume}
            build_corpus_on(request.engine, request.texts, tokenizer, folder, **options)
        else:
            options |= request.values(CorpusSettings) | request.values(SamplingSettings)
            build_corpus(request.texts, tokenizer, folder, **options)
        say(*check_corpus(folder, request.evaluation).lines())


def check(request: "CheckRequest", json: JsonOption = False) -> None:
    """Check a corpus: duplicates, single-sentence documents, unknown pieces, overlap with evaluation texts, entropy."""
    from bertsmith.base.core.requests import call
    from bertsmith.text.corpus.checks import check_corpus

    report = call(check_corpus, request)
    show(report, json)
