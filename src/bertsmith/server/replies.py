"""What models answer, as plain values for JSON."""

import base64
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from bertsmith.inference.pretraining_heads import Continuation, Filling
from bertsmith.tasks.choice import ChoicePrediction
from bertsmith.tasks.classification import LabelPrediction
from bertsmith.tasks.regression import NumberPrediction
from bertsmith.tasks.span import AnswerPrediction
from bertsmith.tasks.tagging import TagsPrediction

_UNIT = 1e-3  # how far a vector's length may be from 1 to count as normalized


def prediction(found: LabelPrediction | NumberPrediction | ChoicePrediction) -> dict[str, Any]:
    """What a task says of a text, or of a question with endings; how much was cut stands in the usage."""
    return {name: value for name, value in found.to_dict().items() if name != "cut_tokens"}


def tags(found: TagsPrediction) -> dict[str, Any]:
    """Entities and words, with their characters where a text was given."""
    places = [(None, None)] * len(found.words) if found.offsets is None else found.offsets
    return {
        "entities": [
            {
                "type": entity.type,
                "text": entity.text,
                "begin": None if entity.characters is None else entity.characters[0],
                "end": None if entity.characters is None else entity.characters[1],
                "words": [entity.start, entity.end],
                "probability": min(found.probabilities[entity.start : entity.end]),
            }
            for entity in found.entities
        ],
        "words": [
            {"text": word, "begin": begin, "end": end, "tag": tag, "probability": chance}
            for word, (begin, end), tag, chance in zip(
                found.words, places, found.tags, found.probabilities, strict=True
            )
        ],
    }


def answers(found: AnswerPrediction, n_best: int) -> dict[str, Any]:
    """The answers, and where a question may have none the probability of that."""
    given = [
        {"text": text, "begin": begin, "end": end, "probability": chance}
        for text, begin, end, chance in found.n_best
        if text
    ]
    none = [chance for text, _, _, chance in found.n_best if not text]
    shown: dict[str, Any] = {"answers": given[:n_best], "has_answer": found.has_answer}
    if found.null_score_diff is not None and none:
        shown["no_answer_probability"] = none[0]
    return shown


def gaps(found: Sequence[Sequence[Filling]]) -> dict[str, Any]:
    """The candidates for each gap."""
    return {
        "gaps": [[{"piece": filling.piece, "probability": filling.probability} for filling in gap] for gap in found]
    }


def follows(found: Continuation) -> dict[str, Any]:
    """How likely the second text follows."""
    return {"probability": found.probability}


def ranked(scores: Sequence[float], top: int | None) -> list[dict[str, Any]]:
    """The passages, the best first; equal ones in their order."""
    order = sorted(range(len(scores)), key=lambda index: -scores[index])
    return [{"index": index, "score": scores[index]} for index in order[:top]]


def embeddings(
    vectors: Iterable[npt.NDArray[np.float32]], encoding: str, dimensions: int | None
) -> Iterator[dict[str, Any]]:
    """Vectors in OpenAI's form; shortened ones have length 1 again where the whole ones have."""
    for index, whole in enumerate(vectors):
        vector = whole if dimensions is None else _shortened(whole, dimensions)
        value: Any = (
            base64.b64encode(vector.astype("<f4").tobytes()).decode() if encoding == "base64" else vector.tolist()
        )
        yield {"object": "embedding", "index": index, "embedding": value}


def _shortened(vector: npt.NDArray[np.float32], dimensions: int) -> npt.NDArray[np.float32]:
    is_unit = abs(float(np.linalg.norm(vector)) - 1) < _UNIT
    short = vector[:dimensions]
    length = float(np.linalg.norm(short))
    return short / np.float32(length) if is_unit and length > 0 else short
