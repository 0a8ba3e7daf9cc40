"""Answers of a model of visits: codes that subjects are likely to have, improbable visits, vectors of subjects."""

import dataclasses
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from bertsmith.base.core.progress import counted, warn
from bertsmith.base.core.requests import takes
from bertsmith.base.core.settings import require
from bertsmith.base.machine.runtime import choose
from bertsmith.base.storage.files import require_replaceable
from bertsmith.inference.word_vectors.word_vectors import WORD_VECTOR_FOLDER, WordVectors, save_word_vectors
from bertsmith.models.parts.batch import Batch
from bertsmith.recipes.codes.encoding import (
    NO_ROW,
    EncodedSubjects,
    Example,
    Ints,
    batch_of_rows,
    encode_subjects,
)
from bertsmith.recipes.codes.model_folder import CodesModel, read_codes_model
from bertsmith.recipes.codes.request import AnomaliesRequest, EmbedSubjectsRequest, PredictCodesRequest
from bertsmith.recipes.codes.tables import EventSettings, read_subjects
from bertsmith.recipes.codes.workload import scores_of
from bertsmith.text.codes.visits import Subject
from bertsmith.text.codes.vocabulary import Code

NOTHING_READ = "no codes that the model reads"
_TOGETHER = 64  # visits whose masked rows are computed together


@dataclasses.dataclass(frozen=True)
class PredictedCode:
    """A code with its probability."""

    code: str
    kind: str
    probability: float
    description: str = ""

    @staticmethod
    def of(code: Code, probability: float) -> "PredictedCode":
        """A code of a vocabulary."""
        return PredictedCode(code.name, code.kind, probability, code.description)


@dataclasses.dataclass(frozen=True)
class CodePrediction:
    """The codes that a subject is likely to have at its last visit, or at the next one.

    Attributes:
        time: of the last visit.
        codes: the most likely first.
        unknown_codes: how many codes of the subject the model does not know.
        unlike_training: what the model read that its training did not have, in words; empty if nothing.
    """

    subject: str
    time: str
    codes: tuple[PredictedCode, ...]
    unknown_codes: int
    unlike_training: str

    def to_dict(self) -> dict[str, Any]:
        """Plain values."""
        return dataclasses.asdict(self)


@dataclasses.dataclass(frozen=True)
class VisitSurprise:
    """How improbable a visit is.

    Attributes:
        surprise: the mean of -ln p over its codes, in nats; None if the model knows or can judge none of them.
        codes: with their probabilities, the least likely first.
        unknown_codes: how many codes of the visit the model does not know.
    """

    subject: str
    time: str
    surprise: float | None
    codes: tuple[PredictedCode, ...]
    unknown_codes: int

    def to_dict(self) -> dict[str, Any]:
        """Plain values."""
        return dataclasses.asdict(self)


class _Reader:
    """A model with subjects as it reads them."""

    def __init__(self, request: PredictCodesRequest | AnomaliesRequest | EmbedSubjectsRequest) -> None:
        self.codes: CodesModel = read_codes_model(request.model)
        self.device = choose(request.device, "fp32").torch_device
        self.model = self.codes.model.to(self.device)
        self.subjects: list[Subject] = read_subjects(request.events, request.part(EventSettings))[0]
        vocabulary, kinds = self.codes.vocabulary, self.codes.kinds
        read = {kind for subject in self.subjects for visit in subject.visits for kind, _ in visit.codes}
        require(
            not read.isdisjoint(kinds),
            expected=f"events of the kinds that the model reads, {' and '.join(kinds)}",
            found=f"only {', '.join(sorted(read)[:10])}",
            fix="name the column of the kinds with --kind-column, or use another model",
        )
        self.data: EncodedSubjects = encode_subjects(self.subjects, vocabulary, kinds, self.codes.labels)

    def chances(self, examples: Sequence[Example]) -> Any:
        """The probabilities [E, labels] of the codes that the model predicts for visits."""
        scores, _ = scores_of(self.model, self.data, examples, self.device, recommends=self.codes.recommends)
        return 1 / (1 + np.exp(-scores))


@takes(PredictCodesRequest)
def predict_codes(request: PredictCodesRequest) -> list[CodePrediction]:
    """The codes that each subject is likely to have, by a model of visits.

    A model that recommends predicts the wanted codes of the last visit, whatever wanted codes it has; another one those
    of the visit after the last.

    Raises:
        BertsmithError: there is no such model, or a row of the events is invalid.
    """
    reader = _Reader(request)
    codes, data = reader.codes, reader.data
    threshold = request.threshold
    if threshold is None:
        threshold = 0.0 if request.top else codes.threshold
    examples = [Example(number, len(rows) - int(codes.recommends)) for number, rows in enumerate(data.rows)]
    silent = [bool((_read_rows(codes, rows) == NO_ROW).all()) for rows in data.rows]
    able = [example for example, is_silent in zip(examples, silent, strict=True) if not is_silent]
    chances = iter(reader.chances(able) if able else ())
    predictions = []
    for subject, is_silent, unknown, rows in zip(reader.subjects, silent, data.unknown, data.rows, strict=True):
        of_subject = np.zeros(0) if is_silent else next(chances)
        order = np.argsort(-of_subject, kind="stable").tolist()
        kept = [label for label in order if of_subject[label] >= threshold][: request.top]
        best = tuple(PredictedCode.of(codes.label(label), float(of_subject[label])) for label in kept)
        unlike = _unlike_training(codes, rows)
        predictions.append(CodePrediction(subject.name, subject.visits[-1].time, best, unknown, unlike))
    return predictions


def _read_rows(codes: CodesModel, rows: Ints) -> Ints:
    """The rows of a subject that a prediction reads: all but those of the wanted codes of the last visit."""
    read = rows.copy()
    read[-1, 1:] = NO_ROW if codes.recommends else read[-1, 1:]
    return read


def _unlike_training(codes: CodesModel, rows: Ints) -> str:
    if (_read_rows(codes, rows) == NO_ROW).all():
        return NOTHING_READ
    if codes.recommends and rows[-1, 0] == NO_ROW:
        return f"no codes of the kind {codes.kinds[0]!r} at the last visit"
    if codes.recommends and not codes.first_visits and (rows[:-1] == NO_ROW).all():
        return "no earlier visits; with --first-visits a model learns from such visits too"
    return ""


@takes(AnomaliesRequest)
def find_anomalies(request: AnomaliesRequest) -> list[VisitSurprise]:
    """How improbable each visit of each subject is; with `top` the most improbable visits, by their `surprise`.

    The probability of a code is that of the prediction from the past, if the model predicts the code and there is a
    past; otherwise the mean of two, from its visit with this code masked and from the codes of the other kind, if the
    model was pre-trained.

    Raises:
        BertsmithError: there is no such model, or a row of the events is invalid.
    """
    reader = _Reader(request)
    visits = [Example(subject, visit) for subject, rows in enumerate(reader.data.rows) for visit in range(len(rows))]
    results = list(_surprises(reader, visits))
    if request.top is None:
        return results
    results.sort(key=lambda result: -1.0 if result.surprise is None else -result.surprise)
    return [result for result in results if result.surprise is not None][: request.top]


@takes(EmbedSubjectsRequest)
def embed_subjects(request: EmbedSubjectsRequest) -> WordVectors:
    """The vectors of subjects, also written to a folder: of each kind of codes the mean over the visits, side by side.

    The commands for word vectors read the folder, with the names of the subjects as words; `vectors neighbours` finds
    similar subjects.

    Raises:
        BertsmithError: there is no such model, or a row of the events is invalid.
    """
    require_replaceable(Path(request.out), WORD_VECTOR_FOLDER if request.replace else False)
    reader = _Reader(request)
    width, data = reader.model.config.hidden_size, reader.data
    vectors = np.zeros((len(data), len(reader.codes.kinds), width), dtype=np.float32)
    for number, rows in enumerate(data.rows):
        used = [row for row in rows.flatten().tolist() if row != NO_ROW]
        if used:
            batch, places = batch_of_rows(data, used, reader.device)
            with torch.no_grad():
                of_rows = reader.model.bert.vectors(batch).float().cpu().numpy()
            for kind in range(len(reader.codes.kinds)):
                of_kind = [places[row] for row in rows[:, kind].tolist() if row != NO_ROW]
                if of_kind:
                    vectors[number, kind] = of_rows[of_kind].mean(axis=0)
    about = {"model": str(request.model), "vectors": f"means over visits of {' and '.join(reader.codes.kinds)}"}
    if silent := sum(bool((rows == NO_ROW).all()) for rows in data.rows):
        warn(f"{counted(silent, 'subject')} with {NOTHING_READ}: vectors of zeros")
    if unknown := sum(data.unknown):
        warn(f"{counted(unknown, 'code')} not in the vocabulary of the model, read as unknown")
    names = [subject.name for subject in reader.subjects]
    result = WordVectors(words=names, vectors=vectors.reshape(len(data), -1), about=about)
    save_word_vectors(result, Path(request.out), replace=request.replace)
    return result


def _surprises(reader: _Reader, visits: Sequence[Example]) -> Iterator[VisitSurprise]:
    for start in range(0, len(visits), _TOGETHER):
        part = visits[start : start + _TOGETHER]
        chances: list[dict[int, list[float]]] = [{} for _ in part]  # of each visit and code, from each head
        if reader.codes.pretrained:
            _add_masked(reader, part, chances)
        _set_predicted(reader, part, chances)
        for (subject, visit), of_visit in zip(part, chances, strict=True):
            means = {id: float(np.mean(values)) for id, values in of_visit.items()}
            order = sorted(means, key=means.__getitem__)
            codes = reader.subjects[subject].visits[visit]
            of_kinds = [code for code in codes.codes if code[0] in reader.codes.kinds]
            unknown = sum(reader.codes.vocabulary.id(code) == reader.codes.vocabulary.unk_id for code in of_kinds)
            surprise = float(-np.mean(np.log([means[id] for id in order]))) if order else None
            predicted = tuple(PredictedCode.of(reader.codes.vocabulary.code(id), means[id]) for id in order)
            yield VisitSurprise(reader.subjects[subject].name, codes.time, surprise, predicted, unknown)


@torch.no_grad()
def _add_masked(reader: _Reader, visits: Sequence[Example], chances: list[dict[int, list[float]]]) -> None:
    """Adds the probability of each code from its visit with this code masked, and from the codes of each other kind."""
    codes, data, vocabulary = reader.codes, reader.data, reader.codes.vocabulary
    numbers = [{id: n for n, id in enumerate(vocabulary.ids_of_kind(kind).tolist())} for kind in codes.kinds]
    ids, asked = [], list[tuple[int, int, int, int]]()  # for each row: visit, its kind, and the kind and code asked for
    for position, (subject, visit) in enumerate(visits):
        rows = data.rows[subject][visit].tolist()
        for target, row in enumerate(rows):
            for index, code in enumerate(data.ids[row].tolist() if row != NO_ROW else ()):
                if code not in numbers[target]:
                    continue
                for source, other in enumerate(rows):
                    if other != NO_ROW:
                        of_row = data.ids[other].copy()
                        if source == target:
                            of_row[index] = vocabulary.mask_id
                        ids.append(of_row)
                        asked.append((position, source, target, code))
    if not ids:
        return
    order = sorted(range(len(ids)), key=lambda number: len(ids[number]))
    lengths = [len(ids[number]) for number in order]
    segments = np.repeat([asked[number][1] for number in order], lengths)
    batch = Batch.from_flat(np.concatenate([ids[number] for number in order]), segments, lengths, None, reader.device)
    vectors = reader.model.bert.vectors(batch)
    pairs = {(source, target) for _, source, target, _ in asked}
    for source, target in sorted(pairs):
        rows = [position for position, number in enumerate(order) if asked[number][1:3] == (source, target)]
        of_pair = reader.model.codes_of_visits(vectors[rows], source, target).double().sigmoid().cpu().numpy()
        for row, of_row in zip(rows, of_pair, strict=True):
            visit, _, _, code = asked[order[row]]
            chances[visit].setdefault(code, []).append(float(of_row[numbers[target][code]]))


def _set_predicted(reader: _Reader, visits: Sequence[Example], chances: list[dict[int, list[float]]]) -> None:
    """Sets the probability of each code that the model predicts from the past."""
    data, recommends = reader.data, reader.codes.recommends
    able = [
        position
        for position, (subject, visit) in enumerate(visits)
        if len(data.targets[subject][visit])
        and (data.rows[subject][:visit] != NO_ROW).any()
        and (not recommends or data.rows[subject][visit, 0] != NO_ROW)
    ]
    if not able:
        return
    for position, of_visit in zip(able, reader.chances([visits[position] for position in able]), strict=True):
        subject, visit = visits[position]
        for label in data.targets[subject][visit].tolist():
            chances[position][reader.codes.labels[label]] = [float(of_visit[label])]
