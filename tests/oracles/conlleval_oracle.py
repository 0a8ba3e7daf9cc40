"""Entity scores by the rules of conlleval: word by word, with a flag for "inside an entity that is correct so far".

The rules are written as in the scorer, one for each pair of letters, including those for E and S that its users added.
"""

import collections
from collections.abc import Sequence

ENDS = {("B", "B"), ("B", "S"), ("B", "O"), ("I", "B"), ("I", "S"), ("I", "O")}
STARTS = {("E", "E"), ("E", "I"), ("S", "E"), ("S", "I"), ("O", "E"), ("O", "I")}

Tag = tuple[str, str]


def split(tag: str) -> Tag:
    """The letter and the type of a tag."""
    if "-" not in tag:
        return tag, ""
    dash = tag.index("-")
    return tag[:dash], tag[dash + 1 :]


def end_of_chunk(before: Tag, now: Tag) -> bool:
    """Whether an entity ended with the previous word."""
    if before[0] in ("E", "S", "[", "]"):
        return True
    if (before[0], now[0]) in ENDS:
        return True
    return before[0] not in ("O", ".") and before[1] != now[1]


def start_of_chunk(before: Tag, now: Tag) -> bool:
    """Whether an entity starts with this word."""
    if now[0] in ("B", "S", "[", "]"):
        return True
    if (before[0], now[0]) in STARTS:
        return True
    return now[0] not in ("O", ".") and before[1] != now[1]


def scores(gold: Sequence[Sequence[str]], predicted: Sequence[Sequence[str]]) -> dict[str, float]:
    """Precision, recall, F1 and tag accuracy as fractions, and the first three for each type."""
    right: dict[str, int] = collections.defaultdict(int)
    asked: dict[str, int] = collections.defaultdict(int)
    predicted_counts: dict[str, int] = collections.defaultdict(int)
    words = equal = 0
    inside = False
    gold_before, given_before = ("O", ""), ("O", "")
    for sentence in range(len(gold)):
        rows = [*zip(gold[sentence], predicted[sentence], strict=True), ("O", "O")]
        for number, (gold_tag, given_tag) in enumerate(rows):
            gold_now, given_now = split(gold_tag), split(given_tag)
            if inside:
                gold_ends, given_ends = end_of_chunk(gold_before, gold_now), end_of_chunk(given_before, given_now)
                if gold_ends and given_ends and gold_before[1] == given_before[1]:
                    inside = False
                    right[gold_before[1]] += 1
                elif gold_ends != given_ends or gold_now[1] != given_now[1]:
                    inside = False
            gold_starts, given_starts = start_of_chunk(gold_before, gold_now), start_of_chunk(given_before, given_now)
            if gold_starts and given_starts and gold_now[1] == given_now[1]:
                inside = True
            asked[gold_now[1]] += gold_starts
            predicted_counts[given_now[1]] += given_starts
            if number < len(rows) - 1:
                words += 1
                equal += gold_tag == given_tag
            gold_before, given_before = gold_now, given_now
    result = _three("", sum(right.values()), sum(asked.values()), sum(predicted_counts.values()))
    result["accuracy"] = equal / words
    for kind in {kind for counts in (asked, predicted_counts) for kind, count in counts.items() if count and kind}:
        result.update(_three(kind + "_", right[kind], asked[kind], predicted_counts[kind]))
    return result


def _three(prefix: str, right: int, asked: int, num_predicted: int) -> dict[str, float]:
    precision = recall = f1 = 0.0
    if num_predicted > 0:
        precision = right / num_predicted
    if asked > 0:
        recall = right / asked
    if precision + recall > 0:
        f1 = 2 * precision * recall / (precision + recall)
    return {prefix + "precision": precision, prefix + "recall": recall, prefix + "f1": f1}
