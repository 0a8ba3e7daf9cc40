"""Commands that compare vectors: search passages, and find the senses of a word."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bertsmith.app.cli.options import (
    DeviceOption,
    EncodingOption,
    JsonOption,
    ModelOption,
    PrecisionOption,
    ProductsOption,
    ReplaceOutOption,
    given,
    note,
    print_json,
    print_table,
    say,
)
from bertsmith.app.cli.usage import Refused
from bertsmith.base.core.settings import require, require_known
from bertsmith.base.storage.outputs import PASSAGE_VECTORS, PICTURES, require_output

if TYPE_CHECKING:
    from bertsmith.inference.search.retrieval import SearchScores

_SHOWN = 100  # characters of a text in a line for people

WordArgument = Annotated[str, typer.Argument(metavar="WORD", help="a word or a sequence of words")]
LayersOption = Annotated[
    str, typer.Option(help="last, second-to-last, sum-last-4, ..., or numbers such as -1,-2 (concatenated)")
]
SeedOption = Annotated[int, typer.Option(help="random seed")]
PictureOption = Annotated[
    Path | None, typer.Option("--out", metavar="FILE", help="save a picture: .png, .svg or .html")
]


def search(
    passages: Annotated[
        Path,
        typer.Argument(metavar="PASSAGES", help="one passage per line; .jsonl, .csv, .tsv, .parquet; TREC; a folder"),
    ],
    model: Annotated[
        str | None,
        typer.Option("--model", metavar="DIR", help="model for the vectors; not needed to search by words alone"),
    ] = None,
    query: Annotated[list[str] | None, typer.Option("--query", help="the query; repeatable")] = None,
    queries: Annotated[
        Path | None, typer.Option(metavar="FILE", help="a file of queries, in any format of PASSAGES")
    ] = None,
    top: Annotated[int | None, typer.Option(min=1, help="passages per query [10]")] = None,
    method: Annotated[
        str | None, typer.Option(metavar="NAME", help="vectors, bm25, tf-idf, one-hot or hybrid [vectors]")
    ] = None,
    bm25: Annotated[bool, typer.Option("--bm25", help="search by words instead of vectors")] = False,
    hybrid: Annotated[bool, typer.Option("--hybrid", help="search by both and fuse the ranks")] = False,
    rerank: Annotated[
        str | None,
        typer.Option(metavar="DIR", help="re-rank the best --depth passages with a fine-tuned model of pairs"),
    ] = None,
    depth: Annotated[int | None, typer.Option(min=1, help="passages to fuse or re-rank [100]")] = None,
    index: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="store the passage vectors there and reuse them in later searches"),
    ] = None,
    changes: Annotated[
        Path | None, typer.Option(metavar="FILE", help="apply changes saved by `vectors --save-changes` to all vectors")
    ] = None,
    approximate: Annotated[
        bool,
        typer.Option(
            "--approximate", help="approximate search with a graph index, for millions of passages (needs usearch)"
        ),
    ] = False,
    judgements: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="score the search, and BM25 for comparison: `query 0 passage gain` lines"),
    ] = None,
    judged_by: Annotated[
        str | None, typer.Option(metavar="ids|places", help="how judgements refer to queries [ids if they match]")
    ] = None,
    bm25_words: Annotated[
        str, typer.Option(help="terms of a search by words: words, or pieces of the model's vocabulary")
    ] = "words",
    k1: Annotated[float, typer.Option(help="BM25: how much repeated words count")] = 0.9,
    b: Annotated[float, typer.Option(help="BM25: how much passage length counts, 0 to 1")] = 0.4,
    text_column: Annotated[str | None, typer.Option(help="column with the text, if it has no common name")] = None,
    query_column: Annotated[str | None, typer.Option(help="the same for the file of queries")] = None,
    encoding: EncodingOption = "utf-8",
    pooling: Annotated[str | None, typer.Option(help="mean, cls, pooler or max [the model's setting]")] = None,
    query_prompt: Annotated[
        str | None, typer.Option(metavar="NAME|none", help="the model's prompt for queries [query]")
    ] = None,
    passage_prompt: Annotated[
        str | None,
        typer.Option(metavar="NAME|none", help="the model's prompt for passages [document, passage or corpus]"),
    ] = None,
    json: JsonOption = False,
    device: DeviceOption = "auto",
    precision: PrecisionOption = "fp32",
    products: ProductsOption = "auto",
) -> None:
    """Search passages by vectors, by words (BM25, TF-IDF, one-hot) or by both, and print the best for each query.

    Vectors are compared by cosine, with every passage unless --approximate. With --judgements the searches are scored
    side by side (of those by words alone, only that of --method): nDCG@10 (linear gains), recall, mean
    reciprocal rank and mean average precision, on the best 100 passages, or on the best --depth after re-ranking.
    """
    from bertsmith.app.library import retrieval
    from bertsmith.inference.search.settings import BY_WORDS, DEPTH, HYBRID, SYSTEMS, VECTORS, WORDS_ALONE

    if bool(query) == (queries is not None):
        fix = "leave one of them out" if query else ""
        raise Refused(f"expected either --query or --queries; found {'both' if query else 'neither'}", fix)
    if bm25 + hybrid + (method is not None) > 1:
        raise Refused("expected one of --bm25, --hybrid and --method; found several", "leave the others out")
    method = BY_WORDS if bm25 else HYBRID if hybrid else method or VECTORS
    require_known("method", method, SYSTEMS)
    bm25, hybrid, alone = method == BY_WORDS, method == HYBRID, method in WORDS_ALONE
    by = f"with --{'' if bm25 else 'method '}{method}"
    if any(not one.strip() for one in query or ()):
        raise Refused("expected some text for --query; found none")
    if model is None and (not alone or bm25_words == "pieces"):
        alternative = "or --method bm25, tf-idf or one-hot to search by words alone"
        raise Refused("expected --model with a search by vectors; found none", f"give it, {alternative}")
    if judgements is not None and queries is None:
        raise Refused("expected --queries with --judgements; found --query", "judge the queries of a file")
    require(
        bm25_words in ("words", "pieces"),
        expected="words or pieces as --bm25-words",
        found=repr(bm25_words),
        fix="use one of the two",
    )
    scored, again, pieces = judgements is not None, rerank is not None, bm25_words == "pieces"
    _refuse_idle(by, alone, index=index, changes=changes, approximate=approximate, pooling=pooling)
    _refuse_idle(by, alone, query_prompt=query_prompt, passage_prompt=passage_prompt)
    _refuse_idle(f"{by} by words", alone and not pieces, model=model)
    _refuse_idle("with --judgements", scored, top=top)
    _refuse_idle("with --judgements, where all searches are scored", scored and not again, hybrid=hybrid)
    _refuse_idle("without --hybrid or --rerank", not (hybrid or again or (scored and not alone)), depth=depth)
    by_bm25 = bm25 or hybrid or (scored and not alone)
    _refuse_idle("where BM25 is not used", not by_bm25, k1=k1 != 0.9, b=b != 0.4)
    _refuse_idle("where BM25 is not used", not (by_bm25 or alone), bm25_words=pieces)
    _refuse_idle("without --judgements", not scored, judged_by=judged_by)
    _refuse_idle("without --queries", queries is None, query_column=query_column)
    if index is not None:
        read = (passages, queries, judgements, changes)
        require_output(index, PASSAGE_VECTORS, inputs=read, may_exist=True)
    top, depth = top or 10, depth or DEPTH
    if top > depth and (hybrid or again) and not scored:
        raise Refused(f"--top {top} is more than the {depth} passages that are fused or re-ranked", "raise --depth")
    settings: dict[str, Any] = {
        "model": model,
        "system": method,
        "rerank": rerank,
        "depth": depth,
        "index": index,
        "changes": changes,
        "approximate": approximate,
        "bm25_words": bm25_words,
        "k1": k1,
        "b": b,
        "text_column": text_column,
        "query_column": query_column,
        "encoding": encoding,
        "pooling": pooling,
        "query_prompt": query_prompt,
        "passage_prompt": passage_prompt,
        "device": device,
        "precision": precision,
        "products": products,
    }
    questions = query or [] if queries is None else queries
    if judgements is not None:
        scores = retrieval.score_searches(passages, questions, judgements, judged_by=judged_by, **settings)
        _print_scores(scores, json)
        return
    for result in (results := retrieval.search_passages(passages, questions, top=top, **settings)):
        if json:
            print_json(result.to_dict())
            continue
        if len(results) > 1:
            say(f"{result.id}: {_short(result.query)}")
        for hit in result.passages:
            say(f"{hit.rank:3}  {hit.score:.4f}  {hit.id}  {_short(hit.text)}")
        if not result.passages:
            note("no passage shares a word with the query")


def senses(
    word: WordArgument,
    text: Annotated[Path, typer.Argument(metavar="FILE", help=".txt, .jsonl or .parquet, or a folder of them")],
    model: ModelOption,
    clusters: Annotated[
        str, typer.Option(metavar="K|auto", help="number of groups; auto: by the silhouette, 1 to 6")
    ] = "auto",
    method: Annotated[str, typer.Option(help="k-means or agglomerative")] = "k-means",
    layers: LayersOption = "last",
    most: Annotated[int, typer.Option(min=2, help="maximum number of occurrences to use")] = 2000,
    contexts: Annotated[int, typer.Option(min=1, help="contexts to print per group")] = 3,
    beside: Annotated[str | None, typer.Option(metavar="WORD", help="compare each group with another word")] = None,
    out: PictureOption = None,
    replace: ReplaceOutOption = False,
    seed: SeedOption = 0,
    json: JsonOption = False,
    device: DeviceOption = "auto",
    precision: PrecisionOption = "fp32",
    products: ProductsOption = "auto",
    **values: Any,
) -> None:
    """Cluster the occurrences of a word in a text by their vectors, to find its senses.

    Groups that are far apart suggest several senses. The contexts nearest to the center of each group are printed.
    """
    from bertsmith.app.library.word_senses import find_senses
    from bertsmith.inference.vectors.pictures import require_picture

    if not (clusters == "auto" or clusters.isdecimal()):
        raise Refused(f"expected a number or auto for --clusters; found {clusters!r}", "use one of the two")
    if out is not None:
        require_picture(out)
        require_output(out, PICTURES[out.suffix.lower()], inputs=[text], replace=replace)
    found = find_senses(
        word,
        text,
        model,
        clusters=None if clusters == "auto" else int(clusters),
        method=method,
        layers=layers,
        most=most,
        contexts=contexts,
        beside=beside,
        seed=seed,
        device=device,
        precision=precision,
        products=products,
        **given(values),
    )
    if json:
        print_json(found.to_dict())
    else:
        for line in found.lines():
            say(line)
    if out is not None:
        found.draw(out)
        note(f"picture: {out}")


def contexts(
    word: WordArgument,
    first: Annotated[str, typer.Argument(metavar="A", help="a sentence with the word")],
    second: Annotated[str, typer.Argument(metavar="B", help="another sentence with the word")],
    model: ModelOption,
    text: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="print the nearest contexts of a text: .txt, .jsonl, .parquet, or a folder"),
    ] = None,
    vectors: Annotated[
        Path | None, typer.Option(metavar="V", help="compare with vectors without context, see `vectors train`")
    ] = None,
    top: Annotated[
        int | None,
        typer.Option(min=1, help="with --text: contexts to print for each sentence; with --vectors: nearest words [3]"),
    ] = None,
    layers: LayersOption = "last",
    most: Annotated[
        int | None, typer.Option(min=1, help="with --text: maximum number of occurrences to use [2000]")
    ] = None,
    seed: SeedOption = 0,
    json: JsonOption = False,
    device: DeviceOption = "auto",
    precision: PrecisionOption = "fp32",
    products: ProductsOption = "auto",
    **values: Any,
) -> None:
    """Compare a word in two sentences: the cosine of its vectors, and the contexts nearest to each.

    A static vector is the same in every sentence, so its cosine is 1 and its nearest contexts are the same; the vectors
    of the model depend on the sentence. Static are the row in the table of word embeddings, and the vector in V.
    """
    from bertsmith.app.library.word_senses import compare_contexts

    _refuse_idle("without --text", text is None, most=most, **values)
    _refuse_idle("without --text or --vectors", text is None and vectors is None, top=top)
    found = compare_contexts(
        word,
        first,
        second,
        model,
        text=text,
        vectors=vectors,
        top=top or 3,
        layers=layers,
        most=most or 2000,
        seed=seed,
        device=device,
        precision=precision,
        products=products,
        **given(values),
    )
    if json:
        print_json(found.to_dict())
        return
    for line in found.lines():
        say(line)


def _refuse_idle(when: str, applies: bool, **options: Any) -> None:
    """Returns if no option was given that has no effect.

    Raises:
        Refused: such options were given; the message names them.
    """
    options_given = [f"--{name.replace('_', '-')}" for name, value in options.items() if value not in (None, False)]
    if applies and options_given:
        verb, those = ("has", "it") if len(options_given) == 1 else ("have", "them")
        raise Refused(f"{', '.join(options_given)} {verb} no effect {when}", f"leave {those} out")


def _print_scores(scored: "Mapping[str, SearchScores]", json: bool) -> None:
    """Prints the scores of all searches as a table."""
    if json:
        print_json({name: found.to_dict() for name, found in scored.items()})
        return
    first = next(iter(scored.values()))
    print_table(("search", *first.scores), [(name, *found.scores.values()) for name, found in scored.items()])
    say(f"queries: {first.num_queries:,}; passages: {first.num_passages:,}")


def _short(text: str) -> str:
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 1]}…"
