"""The unlabelled rows whose labels would teach a model most, in files that annotation tools read.

::

    DIR/next.csv     row, location, text, an empty label, the suggested one and its probability
    DIR/next.json    tasks of Label Studio, with the suggestion as a prediction
    DIR/next.jsonl   records of doccano, with the suggestion in a field of its own

The rows with the smallest margin between the two most likely labels come first. One that is nearly equal to a row
before it, by the cosine of their vectors, comes after all others.

Letters: U rows, K labels, D columns, N chosen rows.

Source: Scheffer, Decomain and Wrobel (2001), "Active Hidden Markov Models for Information Extraction", for the margin.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from bertsmith.base.storage.files import write_csv, write_json, write_text
from bertsmith.tasks.datasets.examples import TextExample
from bertsmith.tasks.metrics.label_errors import Floats

NEXT_TABLE, NEXT_TASKS, NEXT_RECORDS = "next.csv", "next.json", "next.jsonl"
_ALIKE = 0.95  # cosine from which two rows are nearly equal
_SYSTEM = "bertsmith audit"  # the version of a model, in Label Studio


def most_informative(probabilities: Floats, vectors: Any, count: int) -> list[int]:
    """The numbers of the rows to label next, at most `count`, the most informative first.

    Args:
        probabilities: [U, K], of a model that was fitted to the labelled rows.
        vectors: [U, D], sparse or dense; they are scaled to length 1.

    >>> chances = np.array([[0.9, 0.1], [0.5, 0.5], [0.5, 0.5], [0.6, 0.4]])
    >>> most_informative(chances, np.array([[1.0, 0.0], [1.0, 0.0], [1.0, 0.0], [0.0, 1.0]]), 3)
    [1, 3, 2]
    """
    highest = np.partition(probabilities, -2, axis=1)[:, -2:]
    units = _of_length_1(vectors)
    chosen, alike = list[int](), list[int]()
    for row in np.argsort(highest[:, 1] - highest[:, 0], kind="stable").tolist():
        if len(chosen) == count:
            break
        is_alike = bool(chosen) and (units[chosen] @ units[[row]].T).max() >= _ALIKE
        (alike if is_alike else chosen).append(row)
    return [*chosen, *alike][:count]


def _of_length_1(vectors: Any) -> Any:
    squares = vectors.multiply(vectors) if sp.issparse(vectors) else vectors**2
    lengths = np.sqrt(np.asarray(squares.sum(axis=1), dtype=np.float64)).reshape(-1, 1)
    scales = 1 / np.maximum(lengths, np.finfo(np.float32).tiny)
    return sp.csr_array(vectors.multiply(scales)) if sp.issparse(vectors) else vectors * scales


def write_next(folder: Path, rows: Sequence[TextExample], labels: Sequence[str], probabilities: Floats) -> None:
    """Writes the rows for a spreadsheet, for Label Studio and for doccano.

    Args:
        probabilities: of the rows, [N, K].
    """
    names = ("text", "pair")[: len(rows[0].texts)]
    best = probabilities.argmax(axis=1).tolist()
    suggested = [
        (labels[number], round(float(row[number]), 4)) for row, number in zip(probabilities, best, strict=True)
    ]
    texts: list[dict[str, Any]] = [dict(zip(names, row.texts, strict=True)) for row in rows]
    header = ["location", *names, "label", "suggested", "probability"]
    table = [
        [row.location, *row.texts, "", label, chance] for row, (label, chance) in zip(rows, suggested, strict=True)
    ]
    write_csv(folder / NEXT_TABLE, [header, *table])
    tasks = [
        {
            "data": text | {"location": row.location},
            "predictions": [
                {
                    "model_version": _SYSTEM,
                    "score": chance,
                    "result": [
                        {"from_name": "label", "to_name": "text", "type": "choices", "value": {"choices": [label]}}
                    ],
                }
            ],
        }
        for row, text, (label, chance) in zip(rows, texts, suggested, strict=True)
    ]
    write_json(folder / NEXT_TASKS, tasks)
    records: list[dict[str, Any]] = [
        {**text, "label": [], "location": row.location, "suggested": label, "probability": chance}
        for row, text, (label, chance) in zip(rows, texts, suggested, strict=True)
    ]
    lines = [json.dumps(record, ensure_ascii=False) + "\n" for record in records]
    write_text(folder / NEXT_RECORDS, "".join(lines))
