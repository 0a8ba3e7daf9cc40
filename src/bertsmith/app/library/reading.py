"""How a model reads what its methods receive: the pieces of each item, and the tokens that they count."""

import dataclasses
from collections.abc import Sequence
from typing import Any, cast

from bertsmith.app.library.abilities import EMBED_IDS, OF_TASKS, PIECES
from bertsmith.app.library.by_labels import BY_LABELS
from bertsmith.app.library.inputs import (
    Text,
    checked_sentences,
    checked_texts,
    examples_of,
    tagged_sentences,
    text_examples,
)
from bertsmith.inference.predictors.named_labels import asking
from bertsmith.inference.predictors.predictor import Predictor
from bertsmith.inference.vectors.embedder import Embedder
from bertsmith.inference.vectors.token_embedder import TokenEmbedder
from bertsmith.tasks.datasets.examples import QuestionExample, TextExample
from bertsmith.tasks.specs.settings import WINDOWED
from bertsmith.tasks.specs.tokenized import tokenized, tokens_of_rows
from bertsmith.text.tokenizers.encoded import Encoded
from bertsmith.text.tokenizers.tokenizer import SpecialTokens

Labels = Sequence[tuple[str, str]] | None  # names with descriptions, in place of those of the training
_IN_WINDOWS = ("tag", "answer", "extract", "features", "perplexity")


@dataclasses.dataclass(frozen=True, eq=False)
class WordReading:
    """How a model on words reads, which has no pieces: its tokens are words.

    Attributes:
        predictor: the model.
    """

    predictor: Predictor

    def read(
        self, items: Sequence[Any], ability: str, prompt: str | None, labels: Labels = None
    ) -> tuple[Sequence[Any], list[list[int]]]:
        """See `Model.read`."""
        asking(self.predictor, labels)
        examples = examples_of(ability, items)
        return examples, [[_words(example)] for example in examples]

    def tokens(self, texts: Sequence[Any], ability: str, prompt: str | None) -> list[int]:
        """See `Model.tokens`."""
        return [sum(words) for words in self.read(texts, ability, prompt)[1]]

    def specials(self, ability: str) -> SpecialTokens:
        """See `Model.reads_specials`."""
        return False

    def at_most(self, ability: str) -> int | None:
        """See `Model.reads_at_most`."""
        settings = self.predictor.task.spec.settings
        return None if ability in _IN_WINDOWS or settings.long_text in WINDOWED else settings.max_length


def _words(example: Any) -> int:
    """The number of words in the texts of an example."""
    texts = (example.question, example.context) if isinstance(example, QuestionExample) else example.texts
    return sum(len(text.split()) for text in texts)


@dataclasses.dataclass(frozen=True, eq=False)
class Reading:
    """How a model reads; the methods are those of `Model`.

    Attributes:
        predictor: the model with a task head, if it has one.
        embedder: its encoder, with its own pooling and prompt.
        abilities: of the model.
    """

    predictor: Predictor | None
    embedder: Embedder
    abilities: tuple[str, ...]

    def read(
        self, items: Sequence[Any], ability: str, prompt: str | None, labels: Labels = None
    ) -> tuple[Sequence[Any], list[list[int]]]:
        """See `Model.read`."""
        predictor = None if self.predictor is None else asking(self.predictor, labels)
        tokenizer = self.embedder.encoder.tokenizer
        template = tokenizer.template
        if ability == PIECES:
            specials = self.specials(PIECES)
            texts = [tokenizer.encode_with_offsets(text, special_tokens=specials) for text in checked_texts(items)]
            return texts, [[len(text) + template.num_special(1)] for text in texts]
        if ability == EMBED_IDS:
            examples: Sequence[Any] = [TextExample(id="", first="", pieces=Encoded.from_rows([row])) for row in items]
        else:
            examples = examples_of(ability, items)
            if predictor is not None and ability in (*OF_TASKS.values(), "rerank"):
                examples = predictor.tokenized(examples)
            else:
                examples = self._tokenized(examples, ability, prompt)
        if ability != "rerank" or predictor is not None:
            count = tokens_of_rows if predictor is None else predictor.task.tokens_of_rows
            return examples, [count(example, template) for example in examples]
        lengths = [(example.pieces.lengths + template.num_special(1)).tolist() for example in examples]
        return examples, [*lengths[:1], *(of_pair[1:] for of_pair in lengths[1:])]

    def tokens(self, texts: Sequence[Text | Sequence[str]], ability: str, prompt: str | None) -> list[int]:
        """See `Model.tokens`."""
        tokenizer = self.embedder.encoder.tokenizer
        if ability in ("tag", "features"):
            tagged = ability == "tag"
            sentences = [item.words for item in tagged_sentences(texts)] if tagged else checked_sentences(texts)
            words = tokenizer.encode_repeated_words([word for sentence in sentences for word in sentence])
            special = tokenizer.template.num_special(1)
            return [len(part.ids) + special for part in words.split(map(len, sentences))]
        examples = self._tokenized(text_examples(cast("Sequence[Text]", texts)), ability, prompt)
        return [sum(tokens_of_rows(example, tokenizer.template)) for example in examples]

    def specials(self, ability: str) -> SpecialTokens:
        """See `Model.reads_specials`."""
        shows = ability in (PIECES, "attention")
        if ability == "fill" or (shows and "fill" in self.abilities):
            return True
        return "own" if (shows or self._is_for_vectors(ability)) and self.embedder.special_tokens else False

    def at_most(self, ability: str) -> int | None:
        """See `Model.reads_at_most`."""
        if ability in _IN_WINDOWS:
            return None
        if self._is_for_vectors(ability) or self.predictor is None:
            return self.embedder.max_length
        settings = self.predictor.task.spec.settings
        return None if settings.long_text in WINDOWED else settings.max_length

    def _tokenized(self, examples: Sequence[Any], ability: str, prompt: str | None) -> Sequence[Any]:
        """Examples with their pieces; for vectors, with those of the prompt in front."""
        if isinstance(self.embedder, TokenEmbedder) and ability == "rerank":
            return self.embedder.tokenized(examples)
        prefix = self.embedder.varied(prompt=prompt).prompt if self._is_for_vectors(ability) else ""
        return tokenized(examples, self.embedder.encoder.tokenizer, (prefix, prefix), self.specials(ability))

    def _is_for_vectors(self, ability: str) -> bool:
        """Whether a method prepares texts as `embed` does."""
        return ability == "embed" or (ability in ("rerank", BY_LABELS) and self.predictor is None)


def reading_of(
    predictor: Predictor | None, embedder: Embedder | None, abilities: tuple[str, ...]
) -> Reading | WordReading:
    """How a model reads its inputs: as pieces, or without an encoder as words."""
    if embedder is not None:
        return Reading(predictor, embedder, abilities)
    assert predictor is not None, "a model"
    return WordReading(predictor)
