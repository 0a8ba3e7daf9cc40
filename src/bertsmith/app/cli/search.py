"""Commands that compare vectors: search passages, and find the senses of a word."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bertsmith.app.cli.options import JsonOption, ReplaceOutOption, note, print_json, print_table, say, show
from bertsmith.app.cli.usage import Refused
from bertsmith.base.core.progress import counted
from bertsmith.base.core.requests import Request, call
from bertsmith.base.storage.outputs import PASSAGE_VECTORS, PICTURES, require_output

if TYPE_CHECKING:
    from bertsmith.inference.search.request import (
        ContextsRequest,
        DisambiguateRequest,
        GlossPairsRequest,
        SearchRequest,
        SensesRequest,
    )
    from bertsmith.inference.search.retrieval import SearchScores

_SHOWN = 100  # characters of a text in a line for people

AnswersOption = Annotated[
    Path | None, typer.Option("--out", metavar="FILE", help="write the answers there: .jsonl, one row per line")
]
PictureOption = Annotated[
    Path | None, typer.Option("--out", metavar="FILE", help="save a picture: .png, .svg or .html")
]


def search(request: "SearchRequest", json: JsonOption = False) -> None:
    """Search passages by vectors, by words (BM25, TF-IDF, one-hot) or by both, and print the best for each query.

    With --by, the vectors of several kinds in an index, or those of several models, are searched together.
    Vectors are compared by cosine, with every passage unless --approximate; in an index that `bertsmith index` built,
    with those of the nearest cells, see its --recall. With --judgements, searches by vectors, by BM25 and by both are
    scored side by side (with --method bm25, tf-idf or one-hot, only that one): nDCG@10 (linear gains), recall, mean
    reciprocal rank and mean average precision, on the best 100 passages, or on the best --depth after re-ranking.
    """
    from bertsmith.app.library import retrieval
    from bertsmith.inference.search.request import BY_WORDS, HYBRID, VECTORS, WORDS, WORDS_ALONE, kinds_of

    methods = {"--bm25": request.bm25, "--hybrid": request.hybrid, "--method": "system" in request.given}
    if len(several := [name for name, is_given in {**methods, "--by": request.by}.items() if is_given]) > 1:
        listed = " and ".join(several)
        raise Refused(f"expected one of --bm25, --hybrid, --method and --by; found {listed}", "keep one of them")
    if "by" in request.given and not request.by:
        raise Refused(
            "expected kinds of search with --by, such as dense,words; found none", "name some, or leave it out"
        )
    method = BY_WORDS if request.bm25 else HYBRID if request.hybrid else request.system
    if kinds := kinds_of(request):
        method = BY_WORDS if kinds == (WORDS,) else HYBRID if len(kinds) > 1 else VECTORS
    _require_fit(request, method)
    scored, questions = request.judgements is not None, request.query or request.queries
    function: Any = retrieval.score_searches if scored else retrieval.search_passages
    system = {} if request.by else {"system": method}
    results = function(**{**request.arguments(function), "queries": questions, **system})
    if scored:
        _print_scores(results, json)
        return
    for result in results:
        if json:
            print_json(result.to_dict())
            continue
        if len(results) > 1:
            say(f"{result.id}: {_short(result.query)}")
        for hit in result.passages:
            say(f"{hit.rank:3}  {hit.score:.4f}  {hit.id}  {_short(hit.text)}")
        if not result.passages:
            by_words = "no passage shares a word with the query" + (
                " and meets the conditions" if request.where else ""
            )
            by_vectors = "no text meets the conditions" if request.where else "the index has no texts"
            note(by_words if method in WORDS_ALONE else by_vectors)


def _require_fit(request: "SearchRequest", method: str) -> None:
    """Refuses options that do not fit each other."""
    from bertsmith.inference.search.request import (
        BY_WORDS,
        HYBRID,
        WORDS,
        WORDS_ALONE,
        is_index,
        kinds_of,
        require_passages,
    )

    if bool(request.query) == (request.queries is not None):
        fix = "leave one of them out" if request.query else ""
        raise Refused(f"expected either --query or --queries; found {'both' if request.query else 'neither'}", fix)
    require_passages(request)
    if any(not query.strip() for query in request.query):
        raise Refused("expected some text for --query; found none")
    kinds = kinds_of(request)
    alone, pieces = method in WORDS_ALONE, request.bm25_words == "pieces"
    if request.model is None and (not alone or pieces) and not is_index(request.passages):
        alternative = "or --method bm25, tf-idf or one-hot to search by words alone"
        raise Refused("expected --model with a search by vectors; found none", f"give it, {alternative}")
    if request.judgements is not None and request.queries is None:
        raise Refused("expected --queries with --judgements; found --query", "judge the queries of a file")
    scored, again = request.judgements is not None, request.rerank is not None
    by = f"with --by {','.join(kinds)}" if kinds else f"with --{'' if method == BY_WORDS else 'method '}{method}"
    if alone:
        _refuse_idle(request, by, "index", "changes", "approximate", "pooling")
        _refuse_idle(request, by, "query_prompt", "passage_prompt")
        if not pieces:
            _refuse_idle(request, f"{by} by words", "model")
    if scored:
        _refuse_idle(request, "with --judgements", "top")
        if not again:
            _refuse_idle(request, "with --judgements, where all searches are scored", "hybrid")
    else:
        _refuse_idle(request, "without --judgements", "judged_by")
    if not (method == HYBRID or again or (scored and not alone)):
        _refuse_idle(request, "without --hybrid, --rerank or several kinds in --by", "depth")
    if not (method == HYBRID or (scored and not alone)):
        _refuse_idle(request, "without --hybrid or several kinds in --by", "fuse")
    if not (method in (BY_WORDS, HYBRID) or (scored and not alone)) or (kinds and WORDS not in kinds):
        _refuse_idle(request, "where BM25 is not used", "k1", "b", *(() if alone else ("bm25_words",)))
    if request.queries is None:
        _refuse_idle(request, "without --queries", "query_column")
    if request.index is not None:
        read = (request.passages, request.queries, request.judgements, request.changes)
        require_output(Path(request.index), PASSAGE_VECTORS, inputs=read, may_exist=True)
    if request.top > request.depth and (method == HYBRID or again) and not scored:
        raise Refused(
            f"--top {request.top} is more than the {request.depth} passages that are fused or re-ranked",
            "raise --depth",
        )


def senses(
    request: "SensesRequest", out: PictureOption = None, replace: ReplaceOutOption = False, json: JsonOption = False
) -> None:
    """Cluster the occurrences of a word in a text by their vectors, to find its senses.

    Groups that are far apart suggest several senses. The contexts nearest to the center of each group are printed.
    """
    from bertsmith.app.library.word_senses import find_senses
    from bertsmith.inference.vectors.pictures import require_picture

    if out is not None:
        require_picture(out)
        require_output(out, PICTURES[out.suffix.lower()], inputs=[request.text], replace=replace)
    result = call(find_senses, request)
    show(result, json)
    if out is not None:
        result.draw(out)
        note(f"picture: {out}")


def contexts(request: "ContextsRequest", json: JsonOption = False) -> None:
    """Compare a word in two sentences: the cosine of its vectors, and the contexts nearest to each.

    A static vector is the same in every sentence, so its cosine is 1 and its nearest contexts are the same; the vectors
    of the model depend on the sentence. Static are the row in the table of word embeddings, and the vector in V.
    """
    from bertsmith.app.library.word_senses import compare_contexts

    if request.text is None:
        _refuse_idle(request, "without --text", "most", "encoding", "bad_bytes")
        if request.vectors is None:
            _refuse_idle(request, "without --text or --vectors", "top")
    show(call(compare_contexts, request), json)


def disambiguate(
    request: "DisambiguateRequest",
    out: AnswersOption = None,
    replace: ReplaceOutOption = False,
    json: JsonOption = False,
) -> None:
    """Choose the sense of a word in each text of a table, by labelled examples of the word and glosses of its senses.

    Prints id, lemma, sense, its score, and what it was chosen by; nothing for words whose senses are not known, which a
    warning counts. With --evaluate it prints the scores instead. --out has the scores of all senses of each word.
    """
    from bertsmith.app.library.disambiguation import disambiguate as answers_of
    from bertsmith.base.storage.outputs import PREDICTIONS

    if out is not None:
        require_output(out, PREDICTIONS, inputs=[request.file, request.examples, request.glosses], replace=replace)
    result = call(answers_of, request)
    if out is not None:
        result.write(out)
        note(f"answers: {out}")
    if result.scores is not None:
        show(result.scores, json)
    elif out is None and json:
        for answer in result.answers:
            print_json(answer.to_dict())
    elif out is None:
        say(*result.lines())


def gloss_pairs(
    request: "GlossPairsRequest",
    out: Annotated[Path, typer.Option("--out", metavar="FILE", help="the table: .csv")],
    replace: ReplaceOutOption = False,
) -> None:
    """Write pairs of text and gloss with the label yes or no, to fine-tune a model on that `disambiguate` can use.

    Of each labelled example there is a pair with each gloss of its word; train with `finetune --task classification`.
    """
    from bertsmith.app.library.disambiguation import gloss_pairs as pairs_of
    from bertsmith.app.library.disambiguation import write_gloss_pairs
    from bertsmith.base.storage.outputs import GLOSS_PAIRS

    require_output(out, GLOSS_PAIRS, inputs=[request.file, request.glosses], replace=replace)
    pairs = call(pairs_of, request)
    write_gloss_pairs(out, pairs)
    right = sum(label == "yes" for *_, label in pairs)
    say(f"{out}: {counted(len(pairs), 'pair')}, {right:,} of them yes")


def _refuse_idle(request: Request, when: str, *names: str) -> None:
    """Refuses options that were given though they have no effect."""
    idle = [f"--{name.replace('_', '-')}" for name in names if name in request.given]
    if idle:
        verb, those = ("has", "it") if len(idle) == 1 else ("have", "them")
        raise Refused(f"{', '.join(idle)} {verb} no effect {when}", f"leave {those} out")


def _print_scores(scored: "Mapping[str, SearchScores]", json: bool) -> None:
    """Prints the scores of all searches as a table."""
    if json:
        print_json({name: scores.to_dict() for name, scores in scored.items()})
        return
    first = next(iter(scored.values()))
    print_table(("search", *first.scores), [(name, *scores.scores.values()) for name, scores in scored.items()])
    say(f"queries: {first.num_queries:,}; passages: {first.num_passages:,}")


def _short(text: str) -> str:
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 1]}…"
