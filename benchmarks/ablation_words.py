"""Tasks in which a word is understood by what is on both of its sides: tags, senses, gaps, minimal pairs, order.

Tags of parts of speech and base phrases are those of the Treebank sample: documents 1 to 160 train, the others score.
Senses are those of CoarseWSD-20, each word with at most AROUND words on each side. Minimal pairs are those of BLiMP.

Gaps are made from text that no model has read. A gap has two candidates, one of them written; what is on its left
allows both, and what is on its right decides, see `GAPS`. Both candidates are right equally often, so that a constant
answer is right half of the time.
"""

import dataclasses
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from bertsmith.base.core.randomness import generator
from bertsmith.base.storage.files import read_json_lines
from bertsmith.tasks.datasets.examples import ChoiceExample, TaggedExample, TextExample

AROUND = 12  # words on each side of one whose sense is asked for, so that rows are as long as in pre-training
TRAINING_DOCUMENTS = 160  # of the Treebank sample
GAP_WORDS = (6, 25)  # of a sentence with a gap
MOST_GAPS = 250  # of a candidate
# For each kind of gap: the words of which one has to be in front of it, any if there are none, and its candidates.
GAPS: Mapping[str, tuple[tuple[str, ...], tuple[str, str]]] = {
    "article": ((), ("a", "an")),
    "determiner": ((), ("this", "these")),
    "amount": ((), ("much", "many")),
    "there was": (("there",), ("was", "were")),
    "there is": (("there",), ("is", "are")),
    "there has": (("there",), ("has", "have")),
}
_COMPARES = ("as", "more", "less")  # after "much" and "many", as in "as much as", nothing is counted

Examples = tuple[Sequence[ChoiceExample], Sequence[ChoiceExample]]


@dataclasses.dataclass(frozen=True, kw_only=True)
class WordExample(TextExample):
    """A word in a text; the label is its sense."""

    word: str
    start: int  # the first character of the word
    end: int  # one past its last character


def tagged(path: Path, kind: str) -> tuple[list[TaggedExample], list[TaggedExample]]:
    """Sentences of the Treebank sample with a tag for each word: training examples, and those that score.

    Args:
        kind: "pos", or "chunks": the phrases that have no phrases in them, as tags that begin and continue them.
    """
    parts: tuple[list[TaggedExample], list[TaggedExample]] = ([], [])
    for row in read_json_lines(path):
        document = int(row["doc"].rpartition("_")[2])
        tags = row["pos"] if kind == "pos" else base_phrases(len(row["tokens"]), row["spans"])
        name = f"{row['doc']}:{row['sent']}"
        example = TaggedExample(id=name, words=tuple(row["tokens"]), tags=tuple(tags), location=name)
        parts[document > TRAINING_DOCUMENTS].append(example)
    return parts


def base_phrases(words: int, spans: Sequence[tuple[int, int, str]]) -> list[str]:
    """A tag for each word: B- and I- with the label of a phrase that has no smaller phrase in it, or O.

    >>> base_phrases(5, [(0, 5, "S"), (0, 2, "NP-SBJ"), (2, 5, "VP"), (3, 5, "NP")])
    ['B-NP', 'I-NP', 'O', 'B-NP', 'I-NP']
    """
    tags = ["O"] * words
    for start, end, label in reversed(spans):  # of equal ones the outer one, which is first
        if any(start <= first and last <= end and last - first < end - start for first, last, _ in spans):
            continue
        name = re.split(r"[-=|]", label)[0]
        tags[start:end] = [f"B-{name}", *[f"I-{name}"] * (end - start - 1)]
    return tags


def senses(path: Path) -> list[WordExample]:
    """The words of a file of CoarseWSD-20 with their senses."""
    examples = []
    for number, row in enumerate(read_json_lines(path), start=1):
        words, index = row["text"].split(), row["index"]
        before = " ".join(words[max(0, index - AROUND) : index])
        start = len(before) + bool(before)
        text = " ".join([*([before] if before else []), *words[index : index + AROUND + 1]])
        examples.append(
            WordExample(
                id=str(number),
                first=text,
                label=row["sense_name"],
                location=f"row {number}",
                word=row["word"],
                start=start,
                end=start + len(words[index]),
            )
        )
    return examples


def gaps(sentences: Sequence[str], seed: int) -> Examples:
    """Gaps in sentences, as choices of the rest of the sentence: the first few, and all of them."""
    written: dict[str, tuple[list[ChoiceExample], list[ChoiceExample]]] = {kind: ([], []) for kind in GAPS}
    for number, sentence in enumerate(sentences):
        words = sentence.split()
        if not GAP_WORDS[0] <= len(words) <= GAP_WORDS[1]:
            continue
        for kind, index, label in _gaps_in(words):
            rest = words[index + 1 :]
            endings = tuple(" ".join([candidate, *rest]) for candidate in GAPS[kind][1])
            name = f"{kind}/{number}/{index}"
            example = ChoiceExample(
                id=name, context=" ".join(words[:index]), endings=endings, label=label, location=name
            )
            written[kind][label].append(example)
    chosen = []
    for kind, both in written.items():
        count = min(MOST_GAPS, *map(len, both))
        for label, examples in enumerate(both):
            order = generator(seed, f"gaps: {kind} {label}").permutation(len(examples))[:count]
            chosen += [examples[number] for number in order.tolist()]
    return chosen[:8], chosen


def _gaps_in(words: Sequence[str]) -> Iterator[tuple[str, int, int]]:
    """(kind, index, number of the candidate that is written) of each word of a sentence that decides nothing itself."""
    lower = [word.lower() for word in words]
    for index in range(1, len(words) - 2):
        follows = lower[index + 1]
        for kind, (before, candidates) in GAPS.items():
            if lower[index] not in candidates or (before and lower[index - 1] not in before) or not follows.isalpha():
                continue
            if kind == "amount" and follows in _COMPARES:
                continue
            yield kind, index, candidates.index(lower[index])


def minimal_pairs(folder: Path) -> Examples:
    """The pairs of all files of BLiMP: a sentence that is acceptable and one that is not; the first few, and all."""
    examples = []
    for path in sorted(folder.glob("*.jsonl")):
        for number, row in enumerate(read_json_lines(path)):
            label = number % 2
            pair = (row["sentence_good"], row["sentence_bad"])
            name = f"{row['linguistics_term']}/{row['UID']}/{row['pairID']}"
            examples.append(
                ChoiceExample(id=name, context="", endings=pair[:: 1 - 2 * label], label=label, location=name)
            )
    return examples[:8], examples


def sentence_order(chapters: Sequence[Sequence[str]], seed: int) -> list[TextExample]:
    """Neighboring sentences, in order or swapped."""
    draw, examples = generator(seed, "sentence order"), list[TextExample]()
    for chapter in chapters:
        for first, second in zip(chapter[::2], chapter[1::2], strict=False):
            swapped = bool(draw.integers(2))
            pair = (second, first) if swapped else (first, second)
            label = "swapped" if swapped else "in order"
            examples.append(TextExample(id=str(len(examples)), first=pair[0], second=pair[1], label=label))
    return examples


def responses(path: Path, seed: int) -> list[TextExample]:
    """What was said last in a dialogue, with the response, or with that of another dialogue of the file."""
    draw, rows = generator(seed, f"responses of {path.name}"), read_json_lines(path)
    examples = []
    for row in rows:
        true = bool(draw.integers(2))
        response = row["response"] if true else rows[int(draw.integers(len(rows)))]["response"]
        label = "responds" if true else "elsewhere"
        examples.append(TextExample(id=row["id"], first=row["context"][-1], second=response, label=label))
    return examples
