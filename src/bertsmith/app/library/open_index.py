"""An index that stays open: searched, and changed while it is searched, by requests to a server.

Letters: Q queries, D width.
"""

import contextlib
import dataclasses
import functools
import threading
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np

from bertsmith.app.library.index_models import (
    IndexTokens,
    differences,
    index_embedders,
    kind_in,
    rows_per_segment,
    search_by_kind,
)
from bertsmith.app.library.inputs import checked_texts
from bertsmith.app.library.model import Model
from bertsmith.app.library.reading import Reading
from bertsmith.app.library.record_models import ModelWithRecords, ReadRecord, RecordAbility, RecordModel
from bertsmith.app.library.search_results import search_results
from bertsmith.base.core.errors import BertsmithError, RunError
from bertsmith.base.core.progress import counted, quiet, warn
from bertsmith.base.core.settings import require
from bertsmith.base.storage.files import file_state
from bertsmith.inference.indexes import building
from bertsmith.inference.indexes.building import IndexChange
from bertsmith.inference.indexes.index import Index, Manifest
from bertsmith.inference.indexes.recipe import new_vectors
from bertsmith.inference.indexes.request import IndexRequest
from bertsmith.inference.indexes.rows import ID, TEXT
from bertsmith.inference.search.index import Vectors
from bertsmith.inference.search.passages import Record, TextSet, row_records
from bertsmith.inference.search.rankings import BY_RANKS, Ranking, best
from bertsmith.inference.search.request import DENSE, DEPTH, MANIFEST, SPARSE, TOKENS, VECTORS, WORDS, RetrievalRequest
from bertsmith.inference.search.retrieval import Retriever, TextSearch, VectorSearch, names_of
from bertsmith.inference.vectors.embedder import NO_PROMPT, Embedder
from bertsmith.inference.vectors.token_embedder import TokenEmbedder
from bertsmith.tasks.datasets.values import brief
from bertsmith.tasks.encoding.row_encoder import POOLINGS
from bertsmith.tasks.metrics.vectors import unit
from bertsmith.tasks.specs.tokenized import encoded_texts

SEARCH, ADD, REMOVE = "search", "add_texts", "remove_texts"  # abilities


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class RankedTexts:
    """The best texts of an index for a query; they are read from the disk when they are asked for.

    Attributes:
        query: its text; "" for a vector.
        index: as it was when it was searched.
        ranking: of this query alone.
        is_reranked: by vectors of tokens in the index.
    """

    query: str
    index: Index
    ranking: Ranking
    is_reranked: bool = False

    @property
    def size(self) -> int:
        """The bytes of the texts and their columns, in UTF-8."""
        rows = [row for row, _ in self.ranking.row(0)]
        cells = (column[row].as_buffer() for column in self.index.table.columns for row in rows)
        return sum(cell.size for cell in cells if cell is not None)

    @property
    def texts(self) -> list[str]:
        """The texts, best first."""
        return [self.index.texts[row] for row, _ in self.ranking.row(0)]

    def reranked(self, scores: Sequence[float], top: int) -> "RankedTexts":
        """The best of the texts by other scores, one for each."""
        places = self.ranking.places[:, : len(scores)]
        ranking = best(np.array([scores], dtype=np.float64).reshape(1, -1), top, places)
        return dataclasses.replace(self, ranking=ranking)

    def to_dict(self) -> dict[str, Any]:
        """The result as `search_passages` gives it, as plain values."""
        queries = TextSet(ids=("1",), texts=(self.query,))
        return search_results(_passages(self.index), queries, self.ranking)[0].to_dict()


@dataclasses.dataclass(frozen=True, kw_only=True)
class TextsChanged:
    """The numbers of an index after a request has changed it, and a sentence to read with them."""

    change: IndexChange
    note: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return self.change.to_dict()


class OpenIndex:
    """An index, and the models of its vectors.

    A change that another process makes is seen by the next search, but not an index of another model in its place.

    Args:
        folder: of the index.
        embedders: as `index_embedders` returns them, for all kinds.
    """

    def __init__(self, folder: Path, embedders: Mapping[str, Embedder]) -> None:
        self.folder, self._queries = folder, {kind: each.for_queries() for kind, each in embedders.items()}
        self._index = Index(folder)
        self._state = self._index.state
        self._passages = {kind: self._with_prompt(kind, each) for kind, each in embedders.items()}
        self._reads = _reading_kind(embedders)
        self._reading = Reading(None, self._queries[self._reads], ("embed",))
        self._writing = _writing(folder.resolve())
        self._compaction: threading.Thread | None = None

    def _with_prompt(self, kind: str, embedder: Embedder) -> Embedder:
        """The embedder for passages, with the prompt of those in the index."""
        prompt = self._index.manifest.vectors[kind].made_of.get("prompt", "")
        known = (name for name, text in embedder.prompts.items() if text == prompt)
        return embedder.varied(prompt=next(known, NO_PROMPT))

    def read_queries(self, items: Sequence[Any]) -> list[ReadRecord]:
        """Queries, texts or vectors, as the index reads them."""
        if items and not isinstance(items[0], str):
            dense = self._index.manifest.vectors.get(DENSE)
            require(
                dense is not None,
                expected="texts as queries of an index without dense vectors",
                found="vectors",
                fix="send texts",
            )
            width = 0 if dense is None else dense.width
            for number, vector in enumerate(items, start=1):
                require(
                    len(vector) == width,
                    expected=f"vectors of width {width:,}, as those of the index",
                    found=f"{len(vector):,} numbers in vector {number}",
                    fix="send vectors of the model of the index",
                )
            return [ReadRecord(content=vector, tokens=0) for vector in items]
        texts = checked_texts(items, "query")
        for number, text in enumerate(texts, start=1):
            require(
                bool(text.strip()), expected=f"a text as query {number}", found="an empty one", fix="give some text"
            )
        examples, lengths = self._reading.read(texts, "embed", None)
        return [self._read(example, length) for example, length in zip(examples, lengths, strict=True)]

    def search(
        self,
        queries: Sequence[Any],
        *,
        top: int,
        method: str = VECTORS,
        by: Sequence[str] = (),
        fuse: str = BY_RANKS,
        depth: int = DEPTH,
        where: Sequence[str] = (),
        exact: bool = False,
        reranker: Model | None = None,
    ) -> list[RankedTexts]:
        """The best texts for queries that `read_queries` has read.

        Vectors and texts may be mixed, unless there is a search by anything but dense vectors.

        Args:
            top, method, by, fuse, depth, where, exact: as in `search_passages`.
            reranker: re-ranks the best `depth` texts if the index has the vectors of tokens that it makes; otherwise
                these texts are returned as they are ranked.
        """
        index = self._fresh().narrowed(where, exact=exact)
        kinds = {name: kind_in(index, name) for name in by or names_of(method)}
        texts = ["" if isinstance(query, list) else query.first for query in queries]
        if others := [kind for kind in kinds.values() if kind != DENSE]:
            require(
                all(texts),
                expected=f"texts as queries of a search by {others[0]}",
                found="vectors",
                fix=f"send texts, or search by {VECTORS if index.manifest.kind == DENSE else DENSE}",
            )
        searches: dict[str, TextSearch] = {}
        for name, kind in kinds.items():
            if kind == WORDS:
                searches[name] = index.by_words(k1=RetrievalRequest.k1, b=RetrievalRequest.b)
            elif kind == DENSE:
                searches[name] = VectorSearch(index.by(kind), lambda _: self._vectors(queries))
            else:
                searches[name] = search_by_kind(index, kind, self._queries[kind])
        is_reranked = reranker is not None and _has_tokens_of(index, reranker)
        scorer = IndexTokens(index, cast("TokenEmbedder", self._queries[TOKENS])) if is_reranked else None
        retriever = Retriever(passages=_passages(index), searches=searches, scorer=scorer, depth=depth, fuse=fuse)
        ranking = retriever.rank(texts, list(kinds), top if is_reranked or reranker is None else depth)
        rows = range(len(queries))
        parts = [Ranking(places=ranking.places[row : row + 1], scores=ranking.scores[row : row + 1]) for row in rows]
        return [
            RankedTexts(query=text, index=index, ranking=part, is_reranked=is_reranked)
            for text, part in zip(texts, parts, strict=True)
        ]

    def _vectors(self, queries: Sequence[Any]) -> Vectors:
        """The normalized vectors of queries, float32 [Q, D]."""
        vectors = np.empty((len(queries), self._index.manifest.vectors[DENSE].width), np.float64)
        are_texts = [not isinstance(query, list) for query in queries]
        if texts := [query for query in queries if not isinstance(query, list)]:
            embedder = self._queries[DENSE]
            vectors[are_texts] = embedder.embed_encoded(encoded_texts(texts, embedder.encoder.tokenizer))[0]
        for number, query in enumerate(queries):
            if isinstance(query, list):
                vectors[number] = query
        return unit(vectors).astype(np.float32)

    def read_rows(self, items: Sequence[Sequence[Mapping[str, object]]]) -> list[ReadRecord]:
        """The rows of each request, as the records of a file."""
        return [self._read_rows(rows) for rows in items]

    def _read_rows(self, rows: Sequence[Mapping[str, object]]) -> ReadRecord:
        records = list(row_records(rows))
        first = next((number for number, record in enumerate(records, start=1) if record.is_numbered), None)
        require(first is None, expected="an id in every row", found=f"none in row {first}", fix='add "id": "a name"')
        passages = self._passages[self._reads]
        lengths = passages.encode([record.text for record in records]).lengths
        special = passages.encoder.tokenizer.template.num_special(1)
        return self._read(records, (lengths + special).tolist())

    def _read(self, content: Any, lengths: Sequence[int]) -> ReadRecord:
        """What was read, with the tokens of its texts."""
        cut = sum(max(0, length - self._queries[self._reads].max_length) for length in lengths)
        return ReadRecord(content=content, tokens=sum(lengths), cut_tokens=cut)

    def add(self, parts: Sequence[Sequence[Record]], *, change: int) -> list[TextsChanged]:
        """The numbers of the index after the rows of a request were added; a row replaces the one that has its id.

        Args:
            parts: the records of one request.
            change: a number of its own, so that no request is computed together with another.
        """
        (records,) = parts
        before = Manifest.read(self.folder)
        with self._changing():
            result = building.build_index(
                self.folder,
                records,
                {kind: new_vectors(self._passages[kind], about.model) for kind, about in before.vectors.items()},
                sources={},
                add=True,
                rows_per_segment=rows_per_segment(before.vectors, IndexRequest),
            )
        self._compact_in_background()
        names = {name for record in records for name in record.fields}
        columns = [name for name in names if name not in (ID, TEXT, *before.columns)]
        without = sum(not record.text for record in records)
        notes = [f"{counted(without, 'row')} without text skipped"] if without else []
        notes += [f"columns that the index does not have are left out: {_listed(columns)}"] if columns else []
        if absent := set(before.columns) - names:
            notes.append(f"columns of the index that the rows do not have stay empty: {_listed(absent)}")
        return [TextsChanged(change=result, note="; ".join(notes))]

    def read_ids(self, items: Sequence[Sequence[str]]) -> list[ReadRecord]:
        """The ids of each request."""
        return [ReadRecord(content=ids, tokens=len(ids)) for ids in items]

    def remove(self, parts: Sequence[Sequence[str]], *, change: int) -> list[TextsChanged]:
        """The numbers of the index after the rows with the ids of a request were removed; see `add`."""
        (ids,) = parts
        with self._changing():
            result = building.remove_rows(self.folder, ids)
        self._compact_in_background()
        return [TextsChanged(change=result)]

    def _compact_in_background(self) -> None:
        """Starts to join segments in another thread if that is due, and none are being joined.

        Requests are answered meanwhile; changes wait only for moments at the beginning and at the end. If the process
        ends, the index stays as it is.
        """
        if self._compaction is not None and self._compaction.is_alive():
            return
        if building.due_segments(Manifest.read(self.folder)):
            self._compaction = threading.Thread(target=self._compact, daemon=True, name=f"compaction of {self.folder}")
            self._compaction.start()

    def _compact(self) -> None:
        try:
            with quiet():
                building.compact_index(
                    self.folder,
                    rows_per_segment=rows_per_segment(Manifest.read(self.folder).vectors, IndexRequest),
                    chosen=building.due_segments,
                    exclusive=self._writing,
                )
        except (BertsmithError, OSError) as error:
            warn(f"'{self.folder}' was not compacted, and stays as it was: {error}")

    def _fresh(self) -> Index:
        """The index as it is on the disk, opened again if it was changed; as it was, if it is no longer there."""
        if file_state(self.folder / MANIFEST) not in (None, self._state):
            index = Index(self.folder, earlier=self._index)
            self._state = index.state
            other = [*(index.manifest.vectors.keys() ^ self._queries.keys())]
            if not other:
                other = [name for kind, each in self._queries.items() for name in differences(index, each, kind)]
            if other:
                warn(
                    f"'{self.folder}' was built again with another model ({', '.join(other)}); searches read the index "
                    "that was there before, until the models are loaded again"
                )
            else:
                self._index = index
        return self._index

    @contextlib.contextmanager
    def _changing(self) -> Iterator[None]:
        """A context in which what is warned of is not logged, and a full disk is an error of the request."""
        try:
            with self._writing, quiet(warnings=True):
                yield
        except OSError as error:
            raise RunError(
                expected="to write the change of the index",
                found=error.strerror or str(error),
                fix="nothing was changed; free some space, and send it again",
            ) from None


def open_index(
    folder: str | Path, name: str, models: Iterable[Model] = (), *, is_changed: bool = False, **settings: Any
) -> ModelWithRecords:
    """The model of an index, which also searches the index.

    Args:
        models: one of them is used if the vectors of the index are of it; otherwise the model that the index names.
        is_changed: it adds and removes texts, too.
        settings: of `ComputeSettings`.
    """
    path = Path(folder)
    index = Index(path)
    kinds = list(index.manifest.vectors)
    embedder = next((each for each in map(functools.partial(_as_in, index), models) if each is not None), None)
    if embedder is not None and not index.manifest.vectors[DENSE].made_of:
        warn(
            f"nothing says which model made the vectors of '{path}'; queries are read by the first served one of width "
            f"{embedder.width}"
        )
    served = {} if embedder is None else {DENSE: embedder}
    embedders = {**index_embedders(index, [kind for kind in kinds if kind not in served], [], settings), **served}
    texts = Model(name, embedder=embedders[_reading_kind(embedders)])
    opened = OpenIndex(path, embedders)
    table = {SEARCH: RecordAbility(opened.read_queries, opened.search)}
    if is_changed:
        table[ADD] = RecordAbility(opened.read_rows, opened.add, _notes)
        table[REMOVE] = RecordAbility(opened.read_ids, opened.remove, _notes)
    return ModelWithRecords(
        texts, RecordModel(name=name, task=SEARCH, table=table, hooked=texts.hooked, device=texts.device)
    )


@functools.cache
def _writing(folder: Path) -> threading.Lock:
    """The lock of the changes of a folder in this process; after a reload, an earlier index may be compacting."""
    return threading.Lock()


def _reading_kind(kinds: Container[str]) -> str:
    """The kind of vectors whose model reads the texts of a request."""
    return next(kind for kind in (DENSE, SPARSE, TOKENS) if kind in kinds)


def _as_in(index: Index, model: Model) -> Embedder | None:
    """The embedder of a model with the pooling of an index, if it makes the vectors of that index."""
    if DENSE not in index.manifest.vectors:
        return None
    made_of = index.manifest.vectors[DENSE].made_of
    if "embed" not in model.abilities or (made_of and "base" not in model.embedder.encoder.digests):
        return None
    embedder = model.embedder
    if made_of.get("pooling", embedder.pooling) in POOLINGS:
        embedder = embedder.varied(pooling=made_of.get("pooling"))
    if not (embedder.compares_units or embedder.is_sparse):
        return None
    return None if differences(index, embedder, DENSE) else embedder


def _has_tokens_of(index: Index, model: Model) -> bool:
    """Whether an index has the vectors of tokens that a model makes."""
    if not model.shows_pieces or TOKENS not in index.manifest.vectors:
        return False
    return isinstance(model.embedder, TokenEmbedder) and not differences(index, model.embedder, TOKENS)


def _passages(index: Index) -> TextSet:
    return TextSet(ids=index.ids, texts=index.texts, columns=index.columns)


def _notes(answers: Sequence[TextsChanged]) -> list[str]:
    return [answer.note for answer in answers if answer.note]


def _listed(names: Iterable[str]) -> str:
    return ", ".join(map(brief, sorted(names)))
