"""Answers of models of texts with codes: missing words, what belongs together, what follows, vectors."""

import dataclasses
import itertools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from bertsmith.app.library.model import Model
from bertsmith.app.library.record_models import (
    SHOWN_CODES,
    ModelWithRecords,
    ReadRecord,
    RecordAbility,
    RecordModel,
    require_usual,
)
from bertsmith.base.core.errors import InputError
from bertsmith.base.core.progress import warn
from bertsmith.base.core.randomness import generator
from bertsmith.base.core.requests import takes
from bertsmith.base.core.settings import require
from bertsmith.base.storage.files import atomic_file
from bertsmith.base.storage.outputs import VECTORS, require_output
from bertsmith.inference.predictors.loading import load_pretraining_heads
from bertsmith.inference.predictors.pretraining_heads import Filling
from bertsmith.models.checkpoints.hub import model_name
from bertsmith.models.checkpoints.load import load_any
from bertsmith.recipes.video.reader import VideoReader
from bertsmith.recipes.video.request import (
    CodeFeaturesRequest,
    FillCodesRequest,
    MatchCodesRequest,
    NextCodesRequest,
)
from bertsmith.recipes.video.rows import NOTHING, Ids
from bertsmith.recipes.video.segments import Segment, codes_of, read_segments
from bertsmith.text.codes.visits import KIND

CANDIDATES = 50  # among which the right answer has to be found
RECALLS = (1, 5, 10)
_TOGETHER = 256  # gaps whose chances, of every piece, are in memory at once


@dataclasses.dataclass(frozen=True)
class CodesFilling:
    """The words in the gaps of a text, given codes.

    Attributes:
        gaps: for each gap the most likely words next to the codes, most likely first.
        alone: for each gap the most likely words without any codes: what the language alone says.
    """

    codes: tuple[str, ...]
    gaps: tuple[tuple[Filling, ...], ...]
    alone: tuple[tuple[Filling, ...], ...]

    def to_dict(self) -> dict[str, Any]:
        """Plain values."""
        return dataclasses.asdict(self)


@dataclasses.dataclass(frozen=True)
class CodesMatch:
    """A segment, and the probability that it belongs to the text or the codes that were asked for."""

    text: str
    codes: tuple[str, ...]
    subject: str
    probability: float

    def to_dict(self) -> dict[str, Any]:
        """Plain values."""
        return dataclasses.asdict(self)


@dataclasses.dataclass(frozen=True)
class CodesMatching:
    """How well a model tells which texts and codes belong together.

    Attributes:
        segments: those with a text and codes.
        candidates: the most among which a right answer has to be found.
        alignment_accuracy: on each segment and on its text with the codes of another one; chance is a half.
        codes_of_text: recall among the first 1, 5 and 10 of the candidates, and the mean reciprocal rank.
        text_of_codes: the same in the other direction.
        chance: both for an answer at random; a segment with fewer candidates is easier.
    """

    segments: int
    candidates: int
    alignment_accuracy: float
    codes_of_text: dict[str, float]
    text_of_codes: dict[str, float]
    chance: dict[str, float]

    def to_dict(self) -> dict[str, Any]:
        """Plain values."""
        return dataclasses.asdict(self)


@takes(FillCodesRequest)
def fill_codes(request: FillCodesRequest) -> list[CodesFilling]:
    """The words in the gaps of a text, for the codes given or for those of each segment of a table.

    Raises:
        BertsmithError: there is no such model, a code is unknown to it, or the text has no gap.
    """
    reader = VideoReader.load(request.model, request.device)
    if request.codes is not None:
        listed = [codes_of(request.codes)]
        ids = [reader.code_ids(listed[0])]
    else:
        known = _known(reader, _segments(request), needs_text=False)
        listed, ids = [segment.codes for segment, _, _ in known], [codes for _, _, codes in known]
    gaps = _fillings(reader, request.text, [NOTHING, *ids], request.top)
    return [CodesFilling(codes, of_row, gaps[0]) for codes, of_row in zip(listed, gaps[1:], strict=True)]


def _fillings(reader: VideoReader, text: str, codes: Sequence[Ids], top: int) -> list[tuple[tuple[Filling, ...], ...]]:
    """The words in each gap of a text next to each of some codes."""
    pieces = reader.tokenizer.vocabulary.pieces

    def best(of_row: npt.NDArray[np.float32]) -> tuple[tuple[Filling, ...], ...]:
        order = np.argsort(-of_row, axis=1, kind="stable")[:, :top]
        return tuple(
            tuple(Filling(pieces[id], float(of_gap[id])) for id in of_order.tolist())
            for of_gap, of_order in zip(of_row, order, strict=True)
        )

    together = max(1, _TOGETHER // reader.gaps(reader.text_with_gaps(text)))
    return [
        best(of_row)
        for start in range(0, len(codes), together)
        for of_row in reader.word_chances(text, codes[start : start + together])
    ]


@takes(MatchCodesRequest)
def match_codes(request: MatchCodesRequest) -> list[CodesMatch] | CodesMatching:
    """The segments that belong to a text or to codes, most likely first; without either, scores of the model on them.

    Raises:
        BertsmithError: there is no such model, a file is invalid, or a code is unknown to the model.
    """
    reader = VideoReader.load(request.model, request.device)
    known = _known(reader, _segments(request), needs_text=True)
    if request.text is None and request.codes is None:
        return _scores(reader, known)
    if request.text is not None:
        text = reader.text_ids(request.text)
        pairs = [(text, codes) for _, _, codes in known]
    else:
        codes = reader.code_ids(codes_of(request.codes or ""))
        pairs = [(text, codes) for _, text, _ in known]
    chances = reader.alignment(pairs, label="comparing")
    order = np.argsort(-chances, kind="stable")[: request.top].tolist()
    segments = [known[number][0] for number in order]
    return [
        CodesMatch(segment.text, segment.codes, segment.subject, float(chances[number]))
        for segment, number in zip(segments, order, strict=True)
    ]


@takes(NextCodesRequest)
def next_codes(request: NextCodesRequest) -> list[tuple[str, float]]:
    """The codes that are likely to follow codes, with their probabilities, most likely first.

    Raises:
        BertsmithError: there is no such model, or a code is unknown to it.
    """
    reader = VideoReader.load(request.model, request.device)
    text = reader.text_ids(request.text) if request.text else NOTHING
    (chances,) = reader.next_codes([(text, reader.code_ids(codes_of(request.codes)))])
    return _most_likely(reader, chances, request.top)


def _most_likely(reader: VideoReader, chances: npt.NDArray[np.float32], top: int) -> list[tuple[str, float]]:
    order = np.argsort(-chances, kind="stable")[:top].tolist()
    return [(reader.codes.names[number], float(chances[number])) for number in order]


@takes(CodeFeaturesRequest)
def code_features(request: CodeFeaturesRequest) -> tuple[int, int]:
    """The number of vectors written and their width: the mean state of the codes, and that of the gaps of a text.

    Raises:
        BertsmithError: there is no such model, a file is invalid, or the output is in the way.
    """
    out = Path(request.out)
    require_output(out, VECTORS[".npy"], inputs=[request.segments, request.events], replace=request.replace)
    reader = VideoReader.load(request.model, request.device)
    known = _known(reader, _segments(request), needs_text=False)
    vectors = reader.features(request.template, [codes for _, _, codes in known])
    with atomic_file(out) as file:
        np.save(file, vectors, allow_pickle=False)
    return len(vectors), vectors.shape[1]


_Known = tuple[Segment, Ids, Ids]


def _segments(request: Any) -> list[Segment]:
    return read_segments(request.segments, request.events, encoding=request.encoding, silent=False)


def _remarks_on_unknown(codes: int) -> list[str]:
    return [f"codes that the model does not know, left out: {codes:,}"] if codes else []


def _known(reader: VideoReader, segments: Sequence[Segment], *, needs_text: bool) -> list[_Known]:
    """The segments with codes that the model knows, and their ids; without those that lack what is needed."""
    known: list[_Known] = []
    unknown = 0
    for segment in segments:
        codes = reader.codes.ids(segment.codes)
        unknown += len(segment.codes) - len(codes)
        if len(codes) and (segment.text or not needs_text):
            text = reader.text_ids(segment.text, segment.location) if needs_text else NOTHING
            known.append((segment, text, codes))
    for remark in _remarks_on_unknown(unknown):
        warn(remark)
    if len(known) < len(segments):
        lacks = "a text or known codes" if needs_text else "known codes"
        warn(f"segments without {lacks}, left out: {len(segments) - len(known):,}")
    require(bool(known), expected="segments with codes of the model", found="none", fix="name others")
    return known


def _scores(reader: VideoReader, known: Sequence[_Known]) -> CodesMatching:
    """Alignment accuracy, and recall among candidates drawn at random, in both directions."""
    pairs: list[tuple[Ids, Ids]] = []
    counts: list[int] = []
    for number, (segment, text, codes) in enumerate(known):
        different = (
            other
            for other in generator(0, "candidates", number).permutation(len(known)).tolist()
            if known[other][0].text != segment.text and known[other][0].codes != segment.codes
        )
        others = list(itertools.islice(different, CANDIDATES - 1))
        pairs += [(text, codes), *((text, known[other][2]) for other in others)]
        pairs += [(text, codes), *((known[other][1], codes) for other in others)]
        counts.append(1 + len(others))
    require(
        min(counts) > 1,
        expected="segments with different texts and codes",
        found="some that have no other to be compared with",
        fix="name a table with more of them",
    )
    chances = np.split(reader.alignment(pairs, label="comparing"), np.cumsum(np.repeat(counts, 2))[:-1])
    right = [value for of_text in chances[::2] for value in (of_text[0] >= 0.5, of_text[1] < 0.5)]
    return CodesMatching(
        segments=len(known),
        candidates=max(counts),
        alignment_accuracy=float(np.mean(right)),
        codes_of_text=_recalls(chances[::2]),
        text_of_codes=_recalls(chances[1::2]),
        chance=_chance(counts),
    )


def _chance(counts: Sequence[int]) -> dict[str, float]:
    """The same for candidates in a random order."""
    recalls = {f"recall@{most}": float(np.mean([min(1, most / count) for count in counts])) for most in RECALLS}
    return {**recalls, "mrr": float(np.mean([(1 / np.arange(1, count + 1)).mean() for count in counts]))}


def _recalls(chances: Sequence[npt.NDArray[np.float32]]) -> dict[str, float]:
    # The right one is first; of several that are as probable it counts as the last.
    ranks = np.array([1 + int((of_row[1:] >= of_row[0]).sum()) for of_row in chances])
    recalls = {f"recall@{count}": float((ranks <= count).mean()) for count in RECALLS}
    return {**recalls, "mrr": float((1 / ranks).mean())}


class _Asked(NamedTuple):
    """A text and codes as a model reads them; `text` is as written, `missing` counts codes that were left out."""

    text: str
    codes: tuple[str, ...]
    text_ids: Ids
    code_ids: Ids
    missing: int


def served_texts_with_codes(path: Path | str, *, head: Any = None, **options: Any) -> ModelWithRecords:
    """A model of texts with codes that answers as the functions here do, without reading it each time.

    Args:
        options: the arguments of `load_pretraining_heads`.
    """
    require_usual(path, {"head": head}, {})
    folder = load_any(path)
    pretrained = load_pretraining_heads(folder, **options)
    reader = VideoReader(pretrained.model, pretrained.tokenizer, pretrained.runtime, folder.name)

    def read(record: Any, location: str, *, gaps: bool = False, strict: bool = True, masks: int = 0) -> ReadRecord:
        text, codes = record.get("text", ""), tuple(record.get("codes", ()))
        text_ids = reader.text_with_gaps(text, location) if gaps else reader.text_ids(text, location)
        code_ids = reader.code_ids(codes, location) if strict else reader.codes.ids(codes)
        if not len(code_ids):
            raise InputError.at(location, "codes of the model", "none that it knows", "name others")
        cut = max(0, len(code_ids) + masks - reader.room(text_ids))
        kept = code_ids[cut:] if masks else code_ids[: len(code_ids) - cut]
        tokens = reader.model.encoder.max_tokens - reader.room(text_ids) + len(code_ids) + masks
        return ReadRecord(_Asked(text, codes, text_ids, kept, len(codes) - len(code_ids)), tokens, cut)

    def reads(**options: Any) -> Callable[[Sequence[Any]], list[ReadRecord]]:
        return lambda records: [read(record, f"segment {n}", **options) for n, record in enumerate(records, start=1)]

    def read_pairs(records: Sequence[Any]) -> list[ReadRecord]:
        by_text = "text" in records[0]["query"]
        pairs = []
        for number, record in enumerate(records, start=1):
            whole = {**record["segment"], **record["query"]}
            if not whole.get("text", "").strip():
                raise InputError.at(f"segment {number}", "a text", "an empty one", "write it")
            pairs.append(read(whole, f"segment {number}" if by_text else "the codes", strict=not by_text))
        return pairs

    def fill(asked: Sequence[_Asked], top: int) -> list[CodesFilling]:
        answers: dict[int, CodesFilling] = {}
        for text in dict.fromkeys(segment.text for segment in asked):
            numbers = [number for number, segment in enumerate(asked) if segment.text == text]
            alone, *gaps = _fillings(reader, text, [NOTHING, *(asked[number].code_ids for number in numbers)], top)
            for number, of_row in zip(numbers, gaps, strict=True):
                answers[number] = CodesFilling(asked[number].codes, of_row, alone)
        return [answers[number] for number in range(len(asked))]

    def match(asked: Sequence[_Asked]) -> list[tuple[float, int]]:
        chances = reader.alignment([(pair.text_ids, pair.code_ids) for pair in asked])
        return [(float(chance), pair.missing) for chance, pair in zip(chances, asked, strict=True)]

    def remarks(answers: Sequence[tuple[float, int]]) -> list[str]:
        return _remarks_on_unknown(sum(missing for _, missing in answers))

    def follow(asked: Sequence[_Asked], top: int) -> list[list[tuple[str, float]]]:
        rows = [(segment.text_ids, segment.code_ids) for segment in asked]
        return [_most_likely(reader, chances, top) for chances in reader.next_codes(rows)]

    records = RecordModel(
        name=model_name(path),
        task="pretraining",
        table={
            "fill_codes": RecordAbility(reads(gaps=True), fill),
            "match_codes": RecordAbility(read_pairs, match, remarks),
            "next_codes": RecordAbility(reads(masks=1), follow),
        },
        hooked=pretrained.engine.hooked,
        device=str(reader.runtime.device),
        kinds={KIND: reader.codes.names[:SHOWN_CODES]},
        details=reader.codes.names,
    )
    return ModelWithRecords(Model(records.name, pretrained=pretrained, parts=folder.parts), records)
