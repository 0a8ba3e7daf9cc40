"""Visits as rows of ids, and what a model of visits reads of subjects: their past visits and the current one.

A visit has one row per kind of codes, `[CLS]` and the codes of that kind in the order of their ids; a visit without
codes of a kind has no row of it. Codes that the vocabulary does not have are one `[UNK]`.
"""

import dataclasses
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from bertsmith.models.encoders.g_bert import History
from bertsmith.models.parts.batch import Batch
from bertsmith.text.codes.visits import Subject
from bertsmith.text.codes.vocabulary import CodeVocabulary

Ints = npt.NDArray[np.int64]
NO_ROW = -1


class Example(NamedTuple):
    """A visit whose codes are predicted: the number of its subject, and its own; the next one is behind the last."""

    subject: int
    visit: int


@dataclasses.dataclass(frozen=True, eq=False)
class EncodedSubjects:
    """The visits of subjects as rows.

    Attributes:
        ids: the ids of each row, `[CLS]` first.
        kinds: int64 [rows], the number of the kind of each row.
        rows: of each subject int64 [visits, kinds], the row of each visit and kind; `NO_ROW` if there is none.
        targets: of each subject and visit the numbers of the labels that it has.
        unknown: of each subject, how many codes of these kinds the vocabulary does not have.
    """

    ids: Sequence[Ints]
    kinds: Ints
    rows: Sequence[Ints]
    targets: Sequence[Sequence[Ints]]
    unknown: Sequence[int]

    def __len__(self) -> int:
        return len(self.rows)


def encode_subjects(
    subjects: Sequence[Subject], vocabulary: CodeVocabulary, kinds: Sequence[str], labels: Sequence[int]
) -> EncodedSubjects:
    """The subjects as rows.

    Args:
        kinds: those that the model reads.
        labels: the ids of the codes that it predicts.
    """
    numbers = {label: number for number, label in enumerate(labels)}
    ids, kinds_of_rows, rows, targets, unknown = list[Ints](), [], [], [], []
    for subject in subjects:
        of_subject = np.full((len(subject.visits), len(kinds)), NO_ROW, dtype=np.int64)
        of_visits, missing = [], 0
        for visit_number, visit in enumerate(subject.visits):
            numbers_of_visit = [numbers[id] for id in vocabulary.ids(visit.codes).tolist() if id in numbers]
            of_visits.append(np.array(sorted(numbers_of_visit), dtype=np.int64))
            for kind_number, kind in enumerate(kinds):
                codes = vocabulary.ids(visit.of_kind(kind))
                missing += int((codes == vocabulary.unk_id).sum())
                if len(codes):
                    of_subject[visit_number, kind_number] = len(ids)
                    kinds_of_rows.append(kind_number)
                    ids.append(np.concatenate([[vocabulary.cls_id], np.unique(codes)]))
        rows.append(of_subject)
        targets.append(of_visits)
        unknown.append(missing)
    return EncodedSubjects(ids, np.array(kinds_of_rows, dtype=np.int64), rows, targets, unknown)


def examples_of(data: EncodedSubjects, subject: int, *, recommends: bool, first_visits: bool) -> list[Example]:
    """The visits of a subject from which the model learns and is scored: those with labels and something to read."""
    rows, examples = data.rows[subject], []
    for visit, targets in enumerate(data.targets[subject]):
        reads_past = bool((rows[:visit] != NO_ROW).any())
        reads_current = bool(rows[visit, 0] != NO_ROW)
        is_read = reads_current and (reads_past or first_visits) if recommends else reads_past
        if len(targets) and is_read:
            examples.append(Example(subject, visit))
    return examples


class RecommendationBatch(NamedTuple):
    """Examples ready for the model; `targets` is 1 where an example has a label, [E, labels]."""

    step: int
    visits: Batch
    kinds: Tensor
    history: History
    targets: Tensor


def batch_of_rows(data: EncodedSubjects, rows: Iterable[int], device: torch.device) -> tuple[Batch, dict[int, int]]:
    """Rows as a batch, the shortest first, and the position of each; the noise of a row depends on its number."""
    order = sorted(set(rows), key=lambda row: (len(data.ids[row]), row))
    lengths = [len(data.ids[row]) for row in order]
    segments = np.repeat(data.kinds[order], lengths)
    batch = Batch.from_flat(np.concatenate([data.ids[row] for row in order]), segments, lengths, order, device)
    return batch, {row: position for position, row in enumerate(order)}


def batch_of_examples(
    data: EncodedSubjects,
    examples: Sequence[Example],
    device: torch.device,
    *,
    recommends: bool,
    labels: int,
    step: int = 0,
) -> RecommendationBatch:
    """Examples as a batch; each row is computed once, however many examples read it."""
    num_kinds = data.rows[0].shape[1]
    past: list[list[list[int]]] = [[] for _ in range(num_kinds)]
    current = []
    for subject, visit in examples:
        rows = data.rows[subject]
        for kind in range(num_kinds):
            past[kind].append([row for row in rows[:visit, kind].tolist() if row != NO_ROW])
        now = visit if recommends else visit - 1
        current.append(int(rows[now, 0]) if 0 <= now < len(rows) else NO_ROW)
    used = {row for of_kind in past for of_example in of_kind for row in of_example}
    used |= {row for row in current if row != NO_ROW}
    batch, places = batch_of_rows(data, used, device)
    history = History(
        past=[[[places[row] for row in of_example] for of_example in of_kind] for of_kind in past],
        current=torch.tensor([places.get(row, NO_ROW) for row in current], device=device),
    )
    kinds = torch.from_numpy(data.kinds[list(places)]).to(device)
    targets = torch.zeros(len(examples), labels)
    for number, (subject, visit) in enumerate(examples):
        if visit < len(data.targets[subject]):
            targets[number, torch.from_numpy(data.targets[subject][visit])] = 1
    return RecommendationBatch(step, batch, kinds, history, targets.to(device))
