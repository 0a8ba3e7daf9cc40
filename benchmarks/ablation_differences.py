"""The difference of two arms of an ablation, and how certain it is.

It is tested in two ways: over the dev examples, once for each seed; and over seeds and dev examples together, which
says whether other pre-trainings and other examples would show it, too.

A tag is read at the first piece of its word. A model that reads from left to right has not seen the other pieces of the
word there, so that tags are compared once more on the words that are a single piece.
"""

import dataclasses
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from bertsmith.base.core.randomness import generator
from bertsmith.recipes.comparison.fitting import Cell, CellKey, lines_of
from bertsmith.recipes.results.comparison import paired
from bertsmith.recipes.results.resampling import DRAWS, Line, ScoreRows, score_rows
from bertsmith.tasks.specs.task import TaskSpec

Pair = Sequence[Sequence[Line]]  # the predictions of both arms
IsPiece = Callable[[str], bool]


def against(
    first: str, cells: Sequence[Cell], theirs: Mapping[CellKey, Cell], folder: Path, spec: TaskSpec, is_piece: IsPiece
) -> dict[str, Any]:
    """How the scores of an arm differ from those of another one, as plain values.

    Args:
        first: the name of the other arm.
        cells: the cells of the arm.
        theirs: those of the other arm.
        folder: where the cells of the task are.
        is_piece: whether a word is a single piece.

    Returns:
        "differences" and "p_values", of a paired test over the dev examples, of each seed; "difference" and "interval"
        over seeds and dev examples, for scores that can be computed from any of them; and "one_piece", the same of the
        accuracy of tags of words of a single piece.
    """
    differences, p_values, pairs = [], [], list[Pair]()
    for cell in cells:
        other = theirs.get(dataclasses.replace(cell.key, system=first))
        if other is None:
            continue
        differences.append(round(cell.scores[spec.metric] - other.scores[spec.metric], 4))
        pairs.append([lines_of(folder, cell.key), lines_of(folder, other.key)])
        _, test = paired(spec.kind, spec.metric, spec.scheme, pairs[-1][:1], pairs[-1][1:])
        p_values.append(round(test.p_value, 4))
    result = {"against": first, "differences": differences, "p_values": p_values}
    result |= _certain(pairs, spec.kind, spec.metric, spec.scheme)
    if spec.kind == "tagging":
        short = [[[of_one_piece(line, is_piece) for line in lines] for lines in pair] for pair in pairs]
        result["one_piece"] = _certain(short, spec.kind, "accuracy", "")
    return result


def _certain(pairs: Sequence[Pair], kind: str, metric: str, scheme: str) -> dict[str, Any]:
    rows = [[score_rows(kind, metric, lines, scheme) for lines in pair] for pair in pairs]
    known = [[values for values in pair if values is not None] for pair in rows]
    if not known or any(len(pair) < 2 for pair in known):
        return {}
    difference, low, high = over_seeds_and_rows(known)
    return {"difference": round(difference, 4), "interval": [round(low, 4), round(high, 4)]}


def of_one_piece(line: Line, is_piece: IsPiece) -> Line:
    """The prediction for a sentence without the words that are several pieces.

    >>> line = {"gold": ["NN", "VB"], "prediction": {"words": ["dogs", "bark"], "tags": ["NN", "NN"]}}
    >>> of_one_piece(line, lambda word: word == "bark")
    {'gold': ['VB'], 'prediction': {'tags': ['NN']}}
    """
    kept = [number for number, word in enumerate(line["prediction"]["words"]) if is_piece(word)]
    gold, tags = line["gold"], line["prediction"]["tags"]
    return {
        "gold": [gold[number] for number in kept],
        "prediction": {"tags": [tags[number] for number in kept]},
    }


def over_seeds_and_rows(pairs: Sequence[Sequence[ScoreRows]], draws: int = DRAWS) -> tuple[float, float, float]:
    """The mean difference of two arms over seeds, and the 95 % interval of the bootstrap over seeds and dev examples.

    Each draw takes as many seeds as there are, with replacement, and as many examples, the same ones for all seeds and
    both arms. With three seeds an interval is rough: one draw in nine has the same seed three times.

    Args:
        pairs: for each seed, the values of the examples in both arms.

    >>> ours, theirs = (ScoreRows(rows=np.full(4, value)) for value in (0.75, 0.5))
    >>> over_seeds_and_rows([(ours, theirs)] * 3)
    (0.25, 0.25, 0.25)
    """
    draw, (first, _) = generator(0, "seeds and rows"), pairs[0]
    examples = len(first.rows)

    def difference(seed: int, chosen: npt.NDArray[np.int64]) -> float:
        ours, theirs = (
            float((np.mean if values.statistic is None else values.statistic)(values.rows[chosen]))
            for values in pairs[seed]
        )
        return (ours - theirs) * first.unit

    observed = float(np.mean([difference(seed, np.arange(examples)) for seed in range(len(pairs))]))
    means = np.empty(draws)
    for number in range(draws):
        chosen, seeds = draw.integers(examples, size=examples), draw.integers(len(pairs), size=len(pairs))
        times = Counter(seeds.tolist())
        means[number] = sum(count * difference(seed, chosen) for seed, count in times.items()) / len(pairs)
    low, high = np.quantile(means, [0.025, 0.975]).tolist()
    return observed, low, high
