"""Texts that are passed on while they are written, part by part; together the parts are the whole text.

A further piece may change the end of a text that is decoded from its pieces: bytes become a character, or a space in
front of a full stop goes. So a part is passed on once no further piece can change it.
"""

import dataclasses
from collections.abc import Callable, Sequence

from bertsmith.base.core.settings import require
from bertsmith.inference.predictors.predictor import Predictor
from bertsmith.tasks.datasets.examples import Example
from bertsmith.tasks.encoding.engine import TASK
from bertsmith.tasks.specs.predictions import TextPrediction
from bertsmith.tasks.specs.task import GENERATION, Prediction

OnText = Callable[[str], None]
_INCOMPLETE = "\ufffd"  # bytes that are not a character yet


class TextStream:
    """A text that grows, and the parts of it that were passed on.

    Args:
        on_text: receives each part.
        unsettled: how many of the last characters may change, see `Tokenizer`.

    >>> parts = []
    >>> stream = TextStream(parts.append, unsettled=4)
    >>> stream.grow("it is n"), stream.grow("it isn't far"), stream.end("it isn't far.")
    (None, None, None)
    >>> parts
    ['it ', "isn't", ' far.']
    """

    def __init__(self, on_text: OnText, unsettled: int) -> None:
        self._on_text, self._unsettled, self._sent = on_text, unsettled, ""

    def grow(self, text: str) -> None:
        """Passes on what cannot change any more of the text so far."""
        settled = text[: max(0, len(text) - self._unsettled)].rstrip(_INCOMPLETE)
        if len(settled) > len(self._sent) and settled.startswith(self._sent):
            self._on_text(settled[len(self._sent) :])
            self._sent = settled

    def end(self, text: str) -> None:
        """Passes on the rest of the whole text."""
        assert text.startswith(self._sent), "what was passed on is the beginning of the text"
        if rest := text[len(self._sent) :]:
            self._on_text(rest)


class StreamingPredictor(Predictor):
    """A predictor that passes on the text for a single source while it writes it, by greedy search.

    Args:
        predictor: a model that writes texts.
        on_text: receives each part of the text; a tree in brackets, which is only complete at its end, is one part.
    """

    def __init__(self, predictor: Predictor, on_text: OnText) -> None:
        settings = predictor.task.spec.settings
        require(
            predictor.task.spec.kind == GENERATION and settings.beam == settings.answers == 1,
            expected="a model that writes texts, with beam 1 and answers 1, for a text part by part",
            found=f"{predictor.task.spec.title} with beam {settings.beam} and answers {settings.answers}",
            fix="add beam=1, answers=1, or leave on_text out",
        )
        super().__init__(predictor.engine, predictor.task, predictor.tokenizer, predictor.runtime)
        self.weakness, self._on_text = predictor.weakness, on_text

    def _answers(self, examples: Sequence[Example], advance: Callable[[float], None] | None) -> Sequence[Prediction]:
        """The text of the example; see `Predictor.predict`."""
        require_single(examples)
        stream = TextStream(self._on_text, self.tokenizer.unsettled)
        features = self.task.encode(examples, self.tokenizer)
        if features.guides is None:
            assert features.writing is not None, "sources have a way to write"

            def hear(ids: Sequence[int]) -> None:
                stream.grow(self.tokenizer.decode(ids))

            features = dataclasses.replace(features, writing=dataclasses.replace(features.writing, on_pieces=hear))
        logits = self.engine.logits(features, TASK, advance=advance)
        predictions = self.task.decode(examples, features, logits, self.tokenizer)
        assert isinstance(predictions[0], TextPrediction)
        stream.end(predictions[0].text)
        return predictions


def require_single(texts: Sequence[object]) -> None:
    """Checks that there is one text, since the parts of several could not be told apart."""
    require(len(texts) == 1, expected="one text with on_text", found=f"{len(texts):,}", fix="give them one by one")
