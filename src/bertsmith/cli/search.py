"""Commands that compare vectors: search passages, look at the senses of a word."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bertsmith.cli.options import (
    DeviceOption,
    JsonOption,
    ModelOption,
    PrecisionOption,
    print_json,
    print_table,
    require_new,
)
from bertsmith.files import require_file_place, require_outside
from bertsmith.progress import counted
from bertsmith.settings import require

if TYPE_CHECKING:
    from bertsmith.search.passages import Judgements, TextSet
    from bertsmith.search.rankings import Ranking
    from bertsmith.search.retrieval import Retriever

_SHOWN = 100  # characters of a text in a line for people
_AROUND = 60  # characters on both sides of a word

PictureOption = Annotated[Path | None, typer.Option("--out", metavar="FILE", help="draw it: .png, .svg or .html")]


def search(
    passages: Annotated[
        Path, typer.Argument(metavar="PASSAGES", help="text, one a line; .jsonl, .csv, .tsv, .parquet; or TREC")
    ],
    model: Annotated[
        str | None, typer.Option("--model", metavar="DIR", help="makes the vectors; not needed with --bm25")
    ] = None,
    query: Annotated[list[str] | None, typer.Option("--query", help="what is searched; may be given again")] = None,
    queries: Annotated[Path | None, typer.Option(metavar="FILE", help="a file of queries, as of passages")] = None,
    top: Annotated[int | None, typer.Option(min=1, help="passages for each query [10]")] = None,
    bm25: Annotated[bool, typer.Option("--bm25", help="search by words instead of vectors")] = False,
    hybrid: Annotated[bool, typer.Option("--hybrid", help="search by both and fuse the ranks")] = False,
    rerank: Annotated[
        str | None, typer.Option(metavar="DIR", help="a fine-tuned model of pairs reads the best --depth again")
    ] = None,
    depth: Annotated[int | None, typer.Option(min=1, help="passages that are fused or read again [100]")] = None,
    index: Annotated[
        Path | None, typer.Option(metavar="FILE", help="keep the vectors of the passages there for the next search")
    ] = None,
    changes: Annotated[
        Path | None, typer.Option(metavar="FILE", help="change all vectors as `vectors --save-changes` kept it there")
    ] = None,
    approximate: Annotated[
        bool, typer.Option("--approximate", help="search by a graph, for millions of passages (needs usearch)")
    ] = False,
    judgements: Annotated[
        Path | None, typer.Option(metavar="FILE", help="score the search, beside BM25: `query 0 passage gain` lines")
    ] = None,
    judged_by: Annotated[
        str | None, typer.Option(metavar="ids|places", help="what judgements call the queries by [ids if they match]")
    ] = None,
    bm25_words: Annotated[
        str, typer.Option(help="what the words of BM25 are: words, or pieces of the model's vocabulary")
    ] = "words",
    k1: Annotated[float, typer.Option(help="of BM25: how much it counts that a word comes again")] = 0.9,
    b: Annotated[float, typer.Option(help="of BM25: how much the length of a passage counts, 0 to 1")] = 0.4,
    text_column: Annotated[str | None, typer.Option(help="column of the text, where it has no usual name")] = None,
    query_column: Annotated[str | None, typer.Option(help="the same of the file of queries")] = None,
    pooling: Annotated[str | None, typer.Option(help="mean, cls, pooler or max [what the model says]")] = None,
    json: JsonOption = False,
    device: DeviceOption = "auto",
    precision: PrecisionOption = "fp32",
) -> None:
    """Search passages by vectors, by words (BM25) or by both, and print the best for each query.

    Vectors are compared by cosine, with every passage unless --approximate. With --judgements the searches are scored
    side by side, by words alone with --bm25: nDCG@10 (linear gains), recall, the mean reciprocal rank and the mean
    average precision. The best 100 passages count, of what is read again the best --depth.
    """
    from bertsmith.search.index import tell_crowded
    from bertsmith.search.passages import TextSet, judgements_for, read_judgements, read_text_set
    from bertsmith.search.retrieval import BY_WORDS, DEPTH, HYBRID, VECTORS

    if bool(query) == (queries is not None):
        raise typer.BadParameter("give --query or --queries")
    if bm25 and hybrid:
        raise typer.BadParameter("only one of --bm25 and --hybrid may be given")
    if any(not one.strip() for one in query or ()):
        raise typer.BadParameter("--query is empty; say what is searched")
    if model is None and (not bm25 or bm25_words == "pieces"):
        raise typer.BadParameter("give --model, or --bm25 to search by words alone")
    if judgements is not None and queries is None:
        raise typer.BadParameter("--judgements goes with --queries")
    require(
        bm25_words in ("words", "pieces"),
        expected="words or pieces as --bm25-words",
        found=repr(bm25_words),
        fix="use one of the two",
    )
    scored, again, pieces = judgements is not None, rerank is not None, bm25_words == "pieces"
    _refuse_idle("with --bm25", bm25, index=index, changes=changes, approximate=approximate, pooling=pooling)
    _refuse_idle("with --bm25 by words", bm25 and not pieces, model=model)
    _refuse_idle("with --judgements", scored, top=top)
    _refuse_idle("with --judgements, where all searches are scored", scored and not again, hybrid=hybrid)
    _refuse_idle("without --hybrid or --rerank", not (hybrid or again or (scored and not bm25)), depth=depth)
    by_words = bm25 or hybrid or scored
    _refuse_idle("where BM25 is not used", not by_words, bm25_words=pieces, k1=k1 != 0.9, b=b != 0.4)
    _refuse_idle("without --judgements", not scored, judged_by=judged_by)
    _refuse_idle("without --queries", queries is None, query_column=query_column)
    if index is not None:
        others = [one for one in (passages, queries, judgements, changes, model, rerank) if one is not None]
        require_outside(index, others, fix="name another file for the index")
        require_file_place(index)
    top, depth = top or 10, depth or DEPTH
    if top > depth and (hybrid or again) and not scored:
        raise typer.BadParameter(f"--top {top} is more than the {depth} that are fused or read again; raise --depth")
    system = BY_WORDS if bm25 else HYBRID if hybrid else VECTORS
    asked = (
        read_text_set(queries, what="queries", text_column=query_column, option="--query-column")
        if queries is not None
        else TextSet(ids=tuple(str(number) for number in range(1, len(query or ()) + 1)), texts=tuple(query or ()))
    )
    judged = judgements_for(read_judgements(judgements), asked, judged_by) if judgements is not None else None
    retriever = _retriever(
        read_text_set(passages, text_column=text_column),
        model=model,
        needs_words=by_words,
        needs_vectors=not bm25,
        pieces=pieces,
        k1=k1,
        b=b,
        rerank=rerank,
        depth=depth,
        index=index,
        changes=changes,
        approximate=approximate,
        pooling=pooling,
        device=device,
        precision=precision,
    )
    if retriever.index is not None and not hybrid:
        tell_crowded(retriever.index, is_changed=changes is not None)
    if judged is not None:
        _print_scores(retriever, asked, judged, system, json)
        return
    _print_hits(retriever, asked, retriever.rank(asked.texts, system, top), json)


def senses(
    word: Annotated[str, typer.Argument(metavar="WORD", help="a word, or several that follow one another")],
    text: Annotated[Path, typer.Argument(metavar="FILE", help=".txt, .jsonl or .parquet, or a folder of them")],
    model: ModelOption,
    clusters: Annotated[str, typer.Option(metavar="K|auto", help="groups; auto: by the silhouette, 1 to 6")] = "auto",
    method: Annotated[str, typer.Option(help="k-means or agglomerative")] = "k-means",
    layers: Annotated[
        str, typer.Option(help="last, second-to-last, sum-last-4, ..., or numbers (side by side): -1,-2")
    ] = "last",
    most: Annotated[int, typer.Option(min=2, help="occurrences that are looked at, at most")] = 2000,
    contexts: Annotated[int, typer.Option(min=1, help="contexts that are printed of each group")] = 3,
    beside: Annotated[str | None, typer.Option(metavar="WORD", help="compare each group with another word")] = None,
    out: PictureOption = None,
    replace: Annotated[bool, typer.Option("--replace", help="write over what --out names")] = False,
    seed: Annotated[int, typer.Option(help="of the draws")] = 0,
    json: JsonOption = False,
    device: DeviceOption = "auto",
    precision: PrecisionOption = "fp32",
) -> None:
    """Sort the places where a word stands in a text into groups, by what the model makes of it there.

    Groups that are far apart hint at several senses. Printed are the contexts nearest to the centre of each group.
    """
    from bertsmith.encoding.frozen import FrozenEncoder
    from bertsmith.metrics.vectors import unit
    from bertsmith.reports.pictures import require_picture, scatter, write_picture
    from bertsmith.search.senses import find_words, group_senses, occurrence_vectors, read_sentences

    if not (clusters == "auto" or clusters.isdecimal()):
        raise typer.BadParameter("--clusters is a number or auto")
    if out is not None:
        require_picture(out)
        require_new(out, [text], replace)
    encoder = FrozenEncoder.load(model, device=device, precision=precision)
    wanted = [word] if beside is None else [word, beside]
    found, *rest = find_words(read_sentences(text), wanted, encoder.tokenizer.rules, most=most, seed=seed)
    others = rest[0] if rest else []
    vectors = occurrence_vectors(encoder, found, layers)
    number = None if clusters == "auto" else int(clusters)
    result = group_senses(found, vectors, clusters=number, method=method, seed=seed)
    other_vectors = occurrence_vectors(encoder, others, layers) if others else vectors[:0]
    near = (result.centres @ unit(other_vectors.astype("float64")).mean(axis=0)).tolist() if others else None
    groups = [
        {
            "occurrences": int((result.groups == group).sum()),
            "contexts": [one.context(_AROUND) for one in result.central(group, contexts)],
            **({} if near is None else {"beside": near[group]}),
        }
        for group in range(len(result.centres))
    ]
    if json:
        print_json({"word": word, "occurrences": len(found), "silhouettes": result.silhouettes, "groups": groups})
    else:
        tried = ", ".join(f"{number}: {value:.2f}" for number, value in result.silhouettes.items())
        typer.echo(
            f"{word}: {counted(len(found), 'occurrence')}, {counted(len(groups), 'group')}"
            + (f" (silhouette of {tried})" if tried else "")
        )
        for group, about in enumerate(groups, start=1):
            close = "" if near is None else f", mean cosine with {beside!r} {about['beside']:.2f}"
            typer.echo(f"group {group}: {counted(about['occurrences'], 'occurrence')}{close}")
            for context in about["contexts"]:
                typer.echo(f"  {context['left']}[{context['word']}]{context['right']}")
    if out is not None:
        from bertsmith.reports.html import section, table
        from bertsmith.search.senses import plane_beside

        names = [f"{word}, group {group + 1} ({about['occurrences']:,})" for group, about in enumerate(groups)]
        points, shown, colours = result.points, result.shown, result.groups
        if others:
            points, shown, colours = plane_beside(result, vectors, other_vectors)
            names.append(f"{beside} ({len(others):,})")
        below = "".join(
            section(name, table([[f"{one['left']}[{one['word']}]{one['right']}"] for one in about["contexts"]]))
            for name, about in zip(names, groups, strict=False)
        )
        write_picture(out, scatter(points, colours, names, shown), f"Senses of {word}", below)
        typer.echo(f"picture: {out}", err=True)


def _retriever(
    passages: "TextSet",
    *,
    model: str | None,
    needs_words: bool,
    needs_vectors: bool,
    pieces: bool,
    k1: float,
    b: float,
    rerank: str | None,
    depth: int,
    index: Path | None,
    changes: Path | None,
    approximate: bool,
    pooling: str | None,
    device: str,
    precision: str,
) -> "Retriever":
    """The ways to search that are needed."""
    from bertsmith.inference.pair_scorer import PairScorer
    from bertsmith.inference.predictor import Predictor
    from bertsmith.progress import tell, warn
    from bertsmith.search.bm25 import BM25, Words
    from bertsmith.search.index import index_passages
    from bertsmith.search.retrieval import Retriever
    from bertsmith.vectors.changes import VectorChange
    from bertsmith.vectors.embedder import Embedder

    change = None if changes is None else VectorChange.load(changes)
    if change is not None and change.warning:
        warn(change.warning)
    embedder = None
    if model is not None and (needs_vectors or pieces):
        embedder = Embedder.load(model, pooling=pooling, device=device, precision=precision)
    words = Words(embedder.encoder.tokenizer if pieces and embedder is not None else None)
    scorer = None
    if rerank is not None:
        scorer = PairScorer(Predictor.load(rerank, device=device, precision=precision))
        tell(f"re-ranked by {f'the probability of {scorer.label!r}' if scorer.label else 'the number it predicts'}")
    made = None
    if needs_vectors and embedder is not None:
        made = index_passages(passages.texts, embedder, change=change, path=index, approximate=approximate)
    return Retriever(
        passages=passages,
        bm25=BM25(passages.texts, words=words, k1=k1, b=b) if needs_words else None,
        embedder=embedder,
        index=made,
        change=change,
        scorer=scorer,
        depth=depth,
    )


def _refuse_idle(when: str, applies: bool, **options: Any) -> None:
    """Refuses options that were given and do nothing.

    Raises:
        BadParameter: the message names them.
    """
    given = [f"--{name.replace('_', '-')}" for name, value in options.items() if value not in (None, False)]
    if applies and given:
        verb = "does" if len(given) == 1 else "do"
        raise typer.BadParameter(f"{', '.join(given)} {verb} nothing {when}; leave that out")


def _print_hits(retriever: "Retriever", queries: "TextSet", ranking: "Ranking", json: bool) -> None:
    for number, (id, text) in enumerate(zip(queries.ids, queries.texts, strict=True)):
        hits = [
            {
                "rank": rank,
                "id": retriever.passages.ids[place],
                "score": score,
                "text": retriever.passages.texts[place],
            }
            for rank, (place, score) in enumerate(ranking.row(number), start=1)
        ]
        if json:
            print_json({"id": id, "query": text, "passages": hits})
            continue
        if len(queries) > 1:
            typer.echo(f"{id}: {_short(text)}")
        for hit in hits:
            typer.echo(f"{hit['rank']:3}  {hit['score']:.4f}  {hit['id']}  {_short(str(hit['text']))}")
        if not hits:
            typer.echo("no passage shares a word with the query", err=True)


def _print_scores(retriever: "Retriever", queries: "TextSet", judged: "Judgements", system: str, json: bool) -> None:
    """Every search that can be made, side by side."""
    from bertsmith.search.retrieval import score_search, tell_unjudged

    tell_unjudged(queries, retriever.passages, judged)
    rankings = retriever.side_by_side(queries.texts, system)
    scored = {name: score_search(ranking, queries, retriever.passages, judged) for name, ranking in rankings.items()}
    if json:
        print_json({name: {"queries": found.num_queries, **found.scores} for name, found in scored.items()})
        return
    metrics = list(next(iter(scored.values())).scores)
    print_table(("search", *metrics), [(name, *found.scores.values()) for name, found in scored.items()])
    typer.echo(f"queries: {next(iter(scored.values())).num_queries:,}; passages: {len(retriever.passages):,}")


def _short(text: str) -> str:
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 1]}…"
