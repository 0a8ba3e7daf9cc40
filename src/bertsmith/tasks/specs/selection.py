"""Selection by vectors: a context and each candidate are read alone, and the cosines of their vectors rank candidates.

Letters: E examples, R rows, N candidates of all examples, D width of the vectors.

Candidates that many contexts share are computed once, so a long list of replies is cheap. The same task with rows of
context and candidate together is `choice.py`, a cross-encoder.

Source: Henderson et al. (2017), "Efficient Natural Language Response Suggestion for Smart Reply", section 4.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from bertsmith.models.heads.head_spec import Head
from bertsmith.tasks.datasets.drawn_replies import same
from bertsmith.tasks.datasets.examples import ChoiceExample, Example
from bertsmith.tasks.encoding.units import PER_UNIT, EncodedExamples, Logits
from bertsmith.tasks.metrics.vectors import cosines
from bertsmith.tasks.specs.candidates import ChoosingTask, choices_of, require_whole_texts, rows_in_order
from bertsmith.tasks.specs.predictions import ChoicePrediction
from bertsmith.tasks.specs.tokenized import encoded_texts, tokenized
from bertsmith.tasks.specs.vector_gold import NO_TEXT
from bertsmith.text.tokenizers.encoded import Encoded
from bertsmith.text.tokenizers.pack import pack_rows
from bertsmith.text.tokenizers.template import Template
from bertsmith.text.tokenizers.tokenizer import Tokenizer

SCALE = 20.0  # of cosines in front of the softmax, as in training by default


class SelectionTask(ChoosingTask):
    """Ranks candidates by vectors; what trains them is in `recipes.finetuning.vector_workload`."""

    kind = "selection"
    settings_used = frozenset({"long_text", "scorer"})
    fewest_in_training = 1  # the replies of the other examples of a step are wrong ones

    @property
    def head(self) -> Head:
        """No layer: the vector of a row is the result."""
        return Head(part="classifier", outputs=0, pooled=True, reads=self.spec.reads, is_vector=True)

    def tokenized(
        self, examples: Sequence[Any], tokenizer: Tokenizer, known: dict[str, Encoded] | None = None
    ) -> Sequence[Any]:
        """The examples with the pieces of their texts, as `Embedder` reads them; see `Task.tokenized`."""
        return tokenized(examples, tokenizer, special_tokens="own", known=known)

    def tokens_of_rows(self, example: Any, template: Template) -> list[int]:
        """Those of the context and of each candidate, which are rows of their own; see `Task.tokens_of_rows`."""
        return list((example.pieces.lengths + template.num_special(1)).tolist())

    def encode(self, examples: Sequence[Example], tokenizer: Tokenizer, *, training: bool = False) -> EncodedExamples:
        """One unit per example, one row per text: the context, then the candidates; see `Task.encode`.

        Of a context that is too long, `long_text` says what is cut; of a candidate, its end. In training, the right
        candidate is the first one.
        """
        settings = self.spec.settings
        require_whole_texts(self.spec)
        choices = [_right_first(example) for example in choices_of(examples)] if training else choices_of(examples)
        encoded = encoded_texts(choices, tokenizer, special_tokens="own")
        counts = np.array([1 + len(example.endings) for example in choices], dtype=np.int64)
        first = np.cumsum(counts) - counts
        others = np.delete(np.arange(len(encoded)), first)
        limits: Any = {"template": tokenizer.template, "max_length": settings.max_length}
        cut: Any = settings.long_text
        packed = [
            pack_rows(encoded.select(first), truncation=cut, **limits),
            pack_rows(encoded.select(others), **limits),
        ]
        rows = rows_in_order(packed, [first, others])
        return EncodedExamples(
            rows=rows,
            rows_per_unit=counts,
            example_of_row=np.repeat(np.arange(len(choices)), counts),
            read=rows.offsets[:-1],
            targets=_ids(choices) if training else None,
            targets_per=PER_UNIT,
        )

    def decode(
        self, examples: Sequence[Example], features: EncodedExamples, logits: Logits, tokenizer: Tokenizer
    ) -> list[ChoicePrediction]:
        """One `ChoicePrediction` per example, from vectors, float32 [R, D]; see `Task.decode`."""
        if not len(features):
            return []
        counts = features.rows_per_unit
        first = np.cumsum(counts) - counts
        candidates = np.delete(np.arange(len(logits)), first)
        scores = cosines(logits[np.repeat(first, counts - 1)], logits[candidates])
        return self.predictions(examples, SCALE * scores, np.add.reduceat(features.rows.cut_by_row, first))


def _right_first(example: ChoiceExample) -> ChoiceExample:
    right = example.label or 0
    endings = (example.endings[right], *example.endings[:right], *example.endings[right + 1 :])
    return ChoiceExample(id=example.id, context=example.context, endings=endings, label=0, location=example.location)


def _ids(choices: Sequence[ChoiceExample]) -> np.ndarray:
    """The ids of the texts of each unit, int64 [E, texts], the same for equal texts; see `heads.vector_losses`."""
    ids: dict[str, int] = {}
    result = np.full((len(choices), max(1 + len(example.endings) for example in choices)), NO_TEXT, dtype=np.int64)
    for row, example in zip(result, choices, strict=True):
        row[: len(example.texts)] = [ids.setdefault(same(text), len(ids)) for text in example.texts]
    return result
