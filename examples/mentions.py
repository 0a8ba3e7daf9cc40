"""Pronouns with two candidates each: generated meetings in the village, and GAP files.

Source of GAP: Webster et al. (2018), "Mind the GAP: A balanced corpus of gendered ambiguous pronouns".
"""

import dataclasses
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from toy import PLACES

from bertsmith import WordPieceTokenizer
from bertsmith.models.parts.batch import Batch
from bertsmith.models.parts.config import BertConfig
from bertsmith.tasks.datasets.tables import read_table
from bertsmith.text.tokenizers.pack import MODEL_LIMIT, pack_rows

NEITHER = 2


@dataclasses.dataclass(frozen=True)
class Mentions:
    """A text with a pronoun and two names.

    Attributes:
        text: the text.
        spans: (start, end) of the pronoun and of the two candidates, in characters.
        answer: the candidate that the pronoun refers to, 0 or 1; or NEITHER.
    """

    text: str
    spans: tuple[tuple[int, int], ...]
    answer: int

    def words(self) -> tuple[str, ...]:
        """The pronoun and the candidates."""
        return tuple(self.text[start:end] for start, end in self.spans)

    def around(self, middle: str) -> str:
        """The text with `middle` in place of the pronoun."""
        start, end = self.spans[0]
        return self.text[:start] + middle + self.text[end:]


def meeting(rng: np.random.Generator) -> Mentions:
    """Two people meet, and then "she" does what the first, the second or someone else typically does."""
    places = rng.permutation(len(PLACES))
    people = [f"the {rng.choice(PLACES[place][0])}" for place in places[:2]]
    answer = int(rng.integers(len(PLACES)))
    verbs = PLACES[places[answer]][1]
    verb = str(rng.choice(list(verbs)))
    text = f"{people[0]} meets {people[1]} . then she {verb}s the {rng.choice(verbs[verb])} ."
    spans = [(start := text.index(words), start + len(words)) for words in ("she", *people)]
    return Mentions(text, tuple(spans), min(answer, NEITHER))


def told(meetings: Sequence[Mentions]) -> list[list[str]]:
    """The meetings as two-sentence documents for pre-training, with the name of the person if it is one of the two."""
    documents = []
    for one in meetings:
        text = one.text if one.answer == NEITHER else one.around(one.words()[1 + one.answer])
        documents.append([f"{part} ." for part in text.removesuffix(" .").split(" . ")])
    return documents


def read_gap(path: Path) -> list[Mentions]:
    """The texts of a GAP file."""
    found = []
    for row in read_table(path):
        values = row.values
        starts = [int(values[f"{name}-offset"]) for name in ("Pronoun", "A", "B")]
        ends = [start + len(values[name]) for start, name in zip(starts, ("Pronoun", "A", "B"), strict=True)]
        is_meant = [values[f"{name}-coref"] == "TRUE" for name in "AB"]
        answer = is_meant.index(True) if any(is_meant) else NEITHER
        found.append(Mentions(values["Text"], tuple(zip(starts, ends, strict=True)), answer))
    return found


def encoded(group: Sequence[Mentions], tokenizer: WordPieceTokenizer) -> tuple[Batch, torch.Tensor]:
    """The texts as a batch, and (start, end) of their spans in tokens, int64 [E, 3, 2]."""
    texts = [tokenizer.encode_with_offsets(one.text) for one in group]
    rows = pack_rows(
        [text.ids for text in texts], template=tokenizer.template, max_length=MODEL_LIMIT, truncation="error"
    )
    spans = [
        [(np.searchsorted(text.ends, start, "right"), np.searchsorted(text.starts, end)) for start, end in one.spans]
        for one, text in zip(group, texts, strict=True)
    ]
    places = torch.from_numpy(np.array(spans) + 1 + rows.offsets[:-1, None, None])  # after [CLS]
    return Batch.from_flat(rows.token_ids, rows.segment_ids, rows.lengths), places


def that_fit(group: Sequence[Mentions], tokenizer: WordPieceTokenizer, config: BertConfig) -> list[Mentions]:
    """The texts within the model's length limit, both with the pronoun and with a candidate in its place."""
    room = min(config.max_position_embeddings, MODEL_LIMIT) - 2
    return [one for one in group if all(len(tokenizer.encode(one.around(words))) <= room for words in one.words())]
