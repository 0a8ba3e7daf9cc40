"""Answers of a model of visits: codes that subjects are likely to have, improbable visits, vectors of subjects."""

import dataclasses
import functools
import itertools
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from bertsmith.app.library.record_models import FP32, SHOWN_CODES, ReadRecord, RecordAbility, RecordModel, require_usual
from bertsmith.base.core.finite import require_finite
from bertsmith.base.core.progress import counted, warn
from bertsmith.base.core.requests import takes
from bertsmith.base.core.settings import require
from bertsmith.base.machine.runtime import choose
from bertsmith.base.storage.files import require_replaceable
from bertsmith.inference.predictors.loading import said_weak
from bertsmith.inference.word_vectors.word_vectors import WORD_VECTOR_FOLDER, WordVectors, save_word_vectors
from bertsmith.models.checkpoints.hub import model_name
from bertsmith.models.parts.batch import Batch
from bertsmith.recipes.codes.encoding import (
    NO_ROW,
    EncodedSubjects,
    Example,
    Ints,
    batch_of_rows,
    encode_subjects,
)
from bertsmith.recipes.codes.model_folder import TASK, CodesModel, read_codes_model
from bertsmith.recipes.codes.request import AnomaliesRequest, EmbedSubjectsRequest, PredictCodesRequest
from bertsmith.recipes.codes.tables import EventSettings, read_subjects
from bertsmith.recipes.codes.workload import scores_of
from bertsmith.tasks.datasets.blocks import sized_blocks
from bertsmith.text.codes.visits import Subject, Visit, all_codes, nested_subject
from bertsmith.text.codes.vocabulary import Code

NOTHING_READ = "no codes that the model reads"
_TOGETHER, _CODES_TOGETHER = 64, 100_000  # visits whose masked rows are computed together, and codes of these rows


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


@dataclasses.dataclass(frozen=True, eq=False)
class SubjectVector:
    """The vector of a subject, and how many of its codes the model does not know."""

    subject: str
    vector: npt.NDArray[np.float32]
    unknown_codes: int

    def to_dict(self) -> dict[str, Any]:
        """Plain values."""
        return {"subject": self.subject, "vector": self.vector.tolist(), "unknown_codes": self.unknown_codes}


def remarks(answers: "Sequence[CodePrediction | VisitSurprise | SubjectVector]") -> list[str]:
    """Sentences to read with answers: on unknown codes, and on subjects that are unlike those of the training."""
    unknown = sum(answer.unknown_codes for answer in answers)
    reasons = Counter(answer.unlike_training for answer in answers if isinstance(answer, CodePrediction))
    zeros = sum(isinstance(answer, SubjectVector) and not answer.vector.any() for answer in answers)
    return [
        *([f"{counted(unknown, 'code')} not in the vocabulary of the model, read as unknown"] if unknown else []),
        *(f"{counted(subjects, 'subject')} with {reason}" for reason, subjects in reasons.items() if reason),
        *([f"{counted(zeros, 'subject')} with {NOTHING_READ}: vectors of zeros"] if zeros else []),
    ]


class _Reader:
    """A model with subjects as it reads them."""

    def __init__(self, codes: CodesModel, device: torch.device, subjects: Sequence[Subject]) -> None:
        self.codes, self.device, self.model, self.subjects = codes, device, codes.model, subjects
        self.data: EncodedSubjects = encode_subjects(subjects, codes.vocabulary, codes.kinds, codes.labels)

    @staticmethod
    def of(request: PredictCodesRequest | AnomaliesRequest | EmbedSubjectsRequest) -> "_Reader":
        """The model and the subjects that a request names."""
        codes, device = _loaded(request.model, request.device)
        subjects = read_subjects(request.events, request.part(EventSettings))[0]
        _require_kinds(codes, subjects, "name the column of the kinds with --kind-column, or use another model")
        return _Reader(codes, device, subjects)

    def chances(self, examples: Sequence[Example]) -> Any:
        """The probabilities [E, labels] of the codes that the model predicts for visits."""
        scores, _ = scores_of(self.model, self.data, examples, self.device, recommends=self.codes.recommends)
        require_finite(scores, lambda index: examples[index].subject)
        return 1 / (1 + np.exp(-scores))


def _loaded(model: str | Path, device: str) -> tuple[CodesModel, torch.device]:
    codes, chosen = read_codes_model(model), choose(device, "fp32").torch_device
    codes.model.to(chosen)
    return codes, chosen


def _require_kinds(codes: CodesModel, subjects: Sequence[Subject], fix: str) -> None:
    read = {kind for kind, _ in all_codes(subjects)}
    require(
        not read.isdisjoint(codes.kinds),
        expected=f"events of the kinds that the model reads, {' and '.join(codes.kinds)}",
        found=f"only {', '.join(sorted(read)[:10])}" if read else "none",
        fix=fix,
    )


@takes(PredictCodesRequest)
def predict_codes(request: PredictCodesRequest) -> list[CodePrediction]:
    """The codes that each subject is likely to have, by a model of visits.

    A model that recommends predicts the wanted codes of the last visit, whatever wanted codes it has; another one those
    of the visit after the last.

    Raises:
        BertsmithError: there is no such model, or a row of the events is invalid.
    """
    reader = _Reader.of(request)
    said_weak(reader.codes, request.model)
    return _predictions(reader, request.top, request.threshold)


def _predictions(reader: _Reader, top: int | None, threshold: float | None) -> list[CodePrediction]:
    codes, data = reader.codes, reader.data
    if threshold is None:
        threshold = 0.0 if top else codes.threshold
    examples = [Example(number, len(rows) - int(codes.recommends)) for number, rows in enumerate(data.rows)]
    silent = [bool((_read_rows(codes, rows) == NO_ROW).all()) for rows in data.rows]
    able = [example for example, is_silent in zip(examples, silent, strict=True) if not is_silent]
    chances = iter(reader.chances(able) if able else ())
    predictions = []
    for subject, is_silent, unknown, rows in zip(reader.subjects, silent, data.unknown, data.rows, strict=True):
        of_subject = np.zeros(0) if is_silent else next(chances)
        order = np.argsort(-of_subject, kind="stable").tolist()
        kept = [label for label in order if of_subject[label] >= threshold][:top]
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
    results = list(_surprises(_Reader.of(request)))
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
    reader = _Reader.of(request)
    answers = _vectors(reader)
    about = {"model": str(request.model), "vectors": f"means over visits of {' and '.join(reader.codes.kinds)}"}
    for sentence in remarks(answers):
        warn(sentence)
    vectors = np.stack([answer.vector for answer in answers])
    result = WordVectors(words=[answer.subject for answer in answers], vectors=vectors, about=about)
    save_word_vectors(result, Path(request.out), replace=request.replace)
    return result


def _vectors(reader: _Reader) -> list[SubjectVector]:
    """The vectors of subjects, each float32 [kinds x D]."""
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
    require_finite(vectors, lambda index: index)
    return [
        SubjectVector(subject.name, vector.reshape(-1), unknown)
        for subject, vector, unknown in zip(reader.subjects, vectors, data.unknown, strict=True)
    ]


def _surprises(reader: _Reader) -> Iterator[VisitSurprise]:
    """The visits of all subjects, in order."""
    visits = [Example(subject, visit) for subject, rows in enumerate(reader.data.rows) for visit in range(len(rows))]

    def cost(example: Example) -> int:
        return _masked_codes(reader.codes, reader.subjects[example.subject].visits[example.visit])

    for part in sized_blocks(visits, cost, _TOGETHER, _CODES_TOGETHER):
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


def _masked_codes(codes: CodesModel, visit: Visit) -> int:
    """The codes that are read to judge those of a visit: its rows, each as often as it has codes if they are masked."""
    lengths = _lengths(codes, visit)
    return sum(lengths) * (sum(lengths) - len(lengths)) if codes.pretrained else sum(lengths)


def _lengths(codes: CodesModel, visit: Visit) -> list[int]:
    """The lengths of the rows of a visit, at least."""
    counts = Counter(kind for kind, _ in visit.codes)
    return [1 + counts[kind] for kind in codes.kinds if counts[kind]]


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
        require_finite(of_pair, lambda index, rows=rows: visits[asked[order[rows[index]]][0]].subject)  # type: ignore[misc]
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


def served_codes(path: Path | str, *, device: str = "auto", **options: Any) -> RecordModel:
    """A model of visits that answers about subjects as the functions here do, without reading it each time."""
    require_usual(path, options, FP32)
    codes, chosen = _loaded(path, device)
    said_weak(codes, path)

    def read(records: Sequence[Any], tokens_of_visit: Callable[[CodesModel, Visit], int]) -> list[ReadRecord]:
        numbered = enumerate(records, start=1)
        subjects = [
            nested_subject({"subject": str(number), **record}, f"subject {number}") for number, record in numbered
        ]
        _require_kinds(codes, subjects, "name the kinds of the codes")
        return [
            ReadRecord(subject, sum(tokens_of_visit(codes, visit) for visit in subject.visits)) for subject in subjects
        ]

    def predictions(subjects: Sequence[Subject], **options: Any) -> list[CodePrediction]:
        return _predictions(_Reader(codes, chosen, subjects), **options)

    def anomalies(subjects: Sequence[Subject]) -> list[list[VisitSurprise]]:
        surprises = _surprises(_Reader(codes, chosen, subjects))
        return [list(itertools.islice(surprises, len(subject.visits))) for subject in subjects]

    def vectors(subjects: Sequence[Subject]) -> list[SubjectVector]:
        return _vectors(_Reader(codes, chosen, subjects))

    once = functools.partial(read, tokens_of_visit=lambda codes, visit: sum(_lengths(codes, visit)))
    masked = functools.partial(read, tokens_of_visit=_masked_codes)
    known = [codes.vocabulary.code(id) for kind in codes.kinds for id in codes.vocabulary.ids_of_kind(kind).tolist()]
    return RecordModel(
        name=model_name(path),
        task=TASK,
        table={
            "predict_codes": RecordAbility(once, predictions, remarks),
            "find_anomalies": RecordAbility(masked, anomalies, remarks),
            "embed_subjects": RecordAbility(once, vectors, remarks),
        },
        hooked=(codes.model.bert,),
        device=str(chosen),
        weakness=codes.weakness,
        labels=tuple(codes.label(number).name for number in range(len(codes.labels))),
        kinds={kind: [code.name for code in known if code.kind == kind][:SHOWN_CODES] for kind in codes.kinds},
        details=tuple(code.kind + code.description for code in known),
        width=len(codes.kinds) * codes.model.config.hidden_size,
    )
