"""Reader for queries with candidates that have scores, in the forms that training data of rerankers has.

=====================================  ================================================================================
columns                                a row is
=====================================  ================================================================================
query, passage, score                  a candidate of the query; rows with the same query (or `query_id`) are a list
query, passages, scores                a list; both cells hold as many values
query, positive, negative, negative_2  a list; every cell holds a text or a list of texts. A positive has the score 1, a
                                       negative 0, unless there is a column of scores: one for each candidate, or, as of
                                       margins, how far each negative is below the positive
=====================================  ================================================================================

Without scores, the passages of the first form are those that belong to their query.

Sources of the column names: `labeled-pair`, `labeled-list`, `n-tuple` and `triplet` of sentence-transformers; `pos`,
`neg`, `pos_scores` and `neg_scores` of FlagEmbedding.
"""

import dataclasses
import math
from collections.abc import Iterable, Sequence
from pathlib import Path

from bertsmith.base.core.errors import InputError
from bertsmith.base.core.progress import tell
from bertsmith.tasks.datasets.cells import (
    ID_COLUMNS,
    LABEL_COLUMNS,
    NUMBER_COLUMNS,
    Row,
    first_known,
    plain_name,
    show_columns,
)
from bertsmith.tasks.datasets.examples import ExampleFile, ListExample
from bertsmith.tasks.datasets.file_text import quoted
from bertsmith.tasks.datasets.label_cells import gold_of_cell
from bertsmith.tasks.datasets.sequences import column_of, is_list, parse_texts
from bertsmith.tasks.datasets.tables import read_table, read_texts
from bertsmith.tasks.datasets.text_groups import ANCHORS, NEGATIVES
from bertsmith.tasks.datasets.values import brief, parse_json
from bertsmith.text.documents.encodings import UTF_8

# In order of preference.
_POSITIVES = "positive positives pos".split()
_CANDIDATES = "passage passages document documents docs doc candidates answer text2 sentence2".split()
_SCORES = list(dict.fromkeys(["scores", "labels", *NUMBER_COLUMNS, *LABEL_COLUMNS]))
_OF_SIDES = ("pos_scores", "neg_scores")
_QUERY_IDS = "query_id qid question_id".split()
_DIFFER = "as many scores as candidates, or one for each negative"


def read_lists(
    path: Path,
    *,
    text_column: str | None = None,
    pair_column: str | None = None,
    label_column: str | None = None,
    gold: bool = True,
    encoding: str = UTF_8,
) -> ExampleFile:
    """The lists of a file, or without `gold` its pairs.

    Of equal candidates of a list, the first one counts; one with two scores is refused. Rows without a query or a
    candidate are skipped and listed.

    Args:
        text_column, pair_column, label_column: the columns of queries, candidates (or positives) and scores; if None,
            guessed from common names.
    """
    if not gold:
        return read_texts(path, text_column=text_column, pair_column=pair_column, target=None, encoding=encoding)
    rows = list(read_table(path, encoding=encoding))
    if not rows:
        raise InputError(expected=f"rows in {quoted(path)}", found="none", fix="name a file that holds examples")
    columns = _Columns.of(path, rows[0], text_column, pair_column, label_column)
    lists: dict[str, list[tuple[Row, dict[str, float]]]] = {}
    skipped: list[tuple[str, str]] = []
    for number, row in enumerate(rows):
        query = row.cell(columns.query).strip()
        scores = columns.scored(row) if query else {}
        if not scores:
            skipped.append((row.location, f"empty text in column {columns.candidates if query else columns.query!r}"))
            continue
        of_query = row.values.get(columns.query_id, "") if columns.query_id else ""
        lists.setdefault(f"row {number}" if columns.has_lists else of_query or query, []).append((row, scores))
    examples = []
    for number, parts in enumerate(lists.values()):
        row, scores = parts[0][0], dict[str, float]()
        for part, of_part in parts:
            if part.cell(columns.query).strip() != row.cell(columns.query).strip():
                text = f"{brief(row.cell(columns.query))}, the text of the query {brief(row.values[columns.query_id])}"
                other = brief(part.cell(columns.query))
                raise InputError.at(part.location, text, other, "give each query an id of its own")
            _add(scores, of_part.items(), part.location)
        name = row.values.get(columns.id, "") if columns.id else ""
        examples.append(
            ListExample(
                id=name or str(number),
                context=row.cell(columns.query).strip(),
                endings=tuple(scores),
                scores=tuple(scores.values()),
                location=row.location,
            )
        )
    return ExampleFile.of(examples, skipped, expected=f"queries with candidates in {quoted(path)}")


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Columns:
    """The columns of a file, by what they hold; "" for none."""

    query: str
    candidates: str  # or positives, if there are negatives
    negatives: Sequence[str]
    scores: str
    of_sides: Sequence[str]  # the scores of positives and of negatives; empty without these
    query_id: str
    id: str
    has_positives: bool
    has_lists: bool  # whether a row is a list

    @staticmethod
    def of(path: Path, row: Row, text: str | None, pair: str | None, label: str | None) -> "_Columns":
        """Those of a file with this first row, some of which were named."""
        columns = list(row.values)
        query = column_of(path, columns, text, list(ANCHORS), "the queries", "--text-column")
        named = {plain_name(name): name for name in columns if name != query}
        negatives = [name for plain, name in named.items() if plain.startswith(NEGATIVES) and plain not in _OF_SIDES]
        known = [*_POSITIVES, *_CANDIDATES]
        candidates = column_of(path, columns, pair, known, "the candidates", "--pair-column", query)
        has_positives = bool(negatives) or plain_name(candidates) in _POSITIVES
        others = {plain: name for plain, name in named.items() if name not in (candidates, *negatives)}
        of_sides = [others[name] for name in _OF_SIDES if name in others] if has_positives else []
        scores = first_known(others, _SCORES) or ""
        if label is not None:
            scores = column_of(path, columns, label, [], "the scores", "--label-column", query)
        result = _Columns(
            query=query,
            candidates=candidates,
            negatives=negatives,
            scores="" if len(of_sides) == len(_OF_SIDES) else scores,
            of_sides=of_sides if len(of_sides) == len(_OF_SIDES) else (),
            query_id=first_known(others, _QUERY_IDS) or "",
            id=first_known(others, ID_COLUMNS) or "",
            has_positives=has_positives,
            has_lists=has_positives or is_list(row.cell(candidates)),
        )
        used = [query, candidates, *negatives, result.scores, *result.of_sides, result.query_id, result.id]
        unread = [name for name in columns if name not in used]
        gold = f"scores from {' and '.join(map(repr, result.of_sides or [result.scores]))}"
        texts = ", ".join(map(repr, [candidates, *negatives]))
        tell(
            f"{quoted(path)}: queries from {query!r}, candidates from {texts}, "
            + (gold if result.scores or result.of_sides else "no scores: those that belong to their query have 1")
            + (f"; not read: {show_columns(unread)}" if unread else "")
        )
        return result

    def scored(self, row: Row) -> dict[str, float]:
        """The candidates of a row with their scores."""
        first = _texts(row, self.candidates)
        others = [text for name in self.negatives for text in _texts(row, name)]
        if self.of_sides:
            scores = [number for name in self.of_sides for number in _numbers(row, name)]
        else:
            scores = _numbers(row, self.scores) if self.scores else [1.0] * len(first) + [0.0] * len(others)
        if others and len(first) == 1 and len(scores) == len(others):  # margins
            scores = [0.0, *(-margin for margin in scores)]
        texts = [*first, *others]
        if len(scores) != len(texts):
            counts = f"{len(texts):,} candidates and {len(scores):,} scores"
            raise InputError.at(
                row.location, _DIFFER if others else "as many scores as candidates", counts, "correct it"
            )
        result: dict[str, float] = {}
        _add(result, zip(texts, scores, strict=True), row.location)
        return result


def _add(scores: dict[str, float], more: Iterable[tuple[str, float]], location: str) -> None:
    """Adds candidates with their scores to others."""
    for text, score in more:
        if scores.setdefault(text, score) != score:
            both = f"{scores[text]:g} and {score:g} for {brief(text)}"
            raise InputError.at(location, "one score of a candidate of a query", both, "remove one of them")


def _texts(row: Row, column: str) -> list[str]:
    """The texts in a cell, one or those of a list."""
    cell = row.cell(column).strip()
    texts = [text.strip() for text in parse_texts(cell, column, row.location)] if is_list(cell) else [cell]
    if not all(texts) and len(texts) > 1:
        raise InputError.at(row.location, f"texts in {column!r}", "an empty one", "remove it, with its score")
    return [text for text in texts if text]


def _numbers(row: Row, column: str) -> list[float]:
    """The numbers in a cell, one or those of a list."""
    cell = row.cell(column).strip()
    values = parse_json(cell, row.location) if cell.startswith("[") else [gold_of_cell(cell, row.location, "number")]
    plain = [value for value in values if isinstance(value, int | float) and not isinstance(value, bool)]
    numbers = [float(value) for value in plain if math.isfinite(value)]
    if len(numbers) < len(values):
        raise InputError.at(row.location, f"numbers in {column!r}", brief(cell) if cell else "none", "correct it")
    return numbers
