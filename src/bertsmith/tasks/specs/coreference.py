"""Coreference: which of several names in a text a pronoun refers to, or none of them.

Letters: E texts (one unit and one row each), M mentions of a text (the pronoun, then its candidates), C candidates of
the text with the most, R pieces that are read, K = 2 W + 2 outputs of each piece.

The encoder reads a text once. A linear layer on the states of the pieces of the mentions gives each of them a query
and a key of W numbers, a score as a candidate, and a score for "none"; those of a mention are the means over its
pieces. The score of a candidate is the product of the pronoun's query and its key, divided by the root of W, plus its
own score; that of "none" is the pronoun's. A softmax over candidates and "none" gives the probabilities.

Sources: Lee et al. (2017), "End-to-end Neural Coreference Resolution", section 3, for scores of mentions and of pairs;
Dozat and Manning (2017), "Deep Biaffine Attention for Neural Dependency Parsing", section 2.2, for the scores of pairs.
"""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import numpy.typing as npt

from bertsmith.base.core.errors import ConfigError, InputError
from bertsmith.tasks.datasets.examples import NEITHER, Example, MentionExample
from bertsmith.tasks.datasets.mentions import require_mentions
from bertsmith.tasks.encoding.units import PER_UNIT, EncodedExamples, Ints, Logits
from bertsmith.tasks.metrics.mentions import mention_scores
from bertsmith.tasks.specs.predictions import Candidate, MentionPrediction
from bertsmith.tasks.specs.task import BEFORE, CLOSEST, COREFERENCE, FIRST_CANDIDATE, TaskWithLoss
from bertsmith.text.tokenizers.encoded import Encoded, Pieces, offsets_of
from bertsmith.text.tokenizers.pack import pack_rows, room_for_text
from bertsmith.text.tokenizers.tokenizer import Tokenizer

if TYPE_CHECKING:
    from torch import Tensor

    from bertsmith.models.heads.head_spec import Head
    from bertsmith.tasks.encoding.units import TaskBatch

_WIDTH = 64  # W
_SPANS = "spans"  # int64 [E, 1 + C, 2], of each mention its first piece and one past its last, among those of its row


class CoreferenceTask(TaskWithLoss):
    """Finds the candidate that a pronoun refers to."""

    kind = COREFERENCE
    baselines = (BEFORE, FIRST_CANDIDATE, CLOSEST)
    settings_used = frozenset({"long_text"})

    @property
    def head(self) -> "Head":
        """A linear layer on the states of the pieces of all mentions."""
        return self.head_on_tokens("classifier", 2 * _WIDTH + 2)

    def check(self, examples: Sequence[Example], *, gold: bool, training: bool = False) -> None:
        """Checks the spans of pronouns and candidates and, with `gold`, that there is an answer; see `Task.check`."""
        if self.spec.settings.long_text not in ("longest_first", "error"):
            limits = "longest_first, which keeps the mentions in the row, or error"
            raise ConfigError.must_be("long_text of coreference", limits, self.spec.settings.long_text)
        for example in _mentions(examples):
            require_mentions(example)
            if gold and (example.label is None or not NEITHER <= example.label < len(example.candidates)):
                raise InputError(
                    expected=f"the number of a candidate, or none, in {example.location}",
                    found="no answer" if example.label is None else str(example.label),
                    fix="add the answer",
                )

    def tokenized(
        self, examples: Sequence[Any], tokenizer: Tokenizer, known: dict[str, Encoded] | None = None
    ) -> Sequence[Any]:
        """The texts with their pieces and the characters of these; see `Task.tokenized`."""
        return [
            dataclasses.replace(example, pieces=example.pieces or tokenizer.encode_with_offsets(example.text))
            for example in examples
        ]

    def encode(self, examples: Sequence[Example], tokenizer: Tokenizer, *, training: bool = False) -> EncodedExamples:
        """One row per text; see `Task.encode`.

        Of a text that is too long, the row has the mentions and what is around them, the same number of tokens on both
        sides as far as the text has them; the others are counted as truncated.
        """
        settings, mentions = self.spec.settings, _mentions(examples)
        room = room_for_text(settings.max_length, tokenizer.template, texts=1)
        ids, cut, spans = [], [], []
        for example in mentions:
            pieces = example.pieces or tokenizer.encode_with_offsets(example.text)
            of_example = _pieces_of(example, pieces)
            begin, end = _window(example, of_example, len(pieces), room, refuses=settings.long_text == "error")
            ids.append(pieces.ids[begin:end])
            cut.append(len(pieces) - (end - begin))
            spans.append(of_example - begin)
        rows = pack_rows(
            Encoded.from_rows(ids), template=tokenizer.template, max_length=settings.max_length, truncation="error"
        )
        rows = dataclasses.replace(rows, cut_by_row=np.array(cut, dtype=np.int32))
        start, read, widest = len(tokenizer.template.start), [], max(map(len, spans), default=1)
        local = np.full((len(spans), widest, 2), -1, dtype=np.int64)
        for number, of_example in enumerate(spans):
            places = np.unique(np.concatenate([np.arange(*span) for span in of_example]))
            local[number, : len(of_example)] = np.searchsorted(places, of_example)
            read.append(places + start + rows.offsets[number])
        labels = np.array([example.label for example in mentions if example.label is not None], dtype=np.int64)
        has_gold = len(labels) == len(mentions) and len(mentions) > 0
        return EncodedExamples(
            rows=rows,
            rows_per_unit=np.ones(len(rows), dtype=np.int64),
            example_of_row=np.arange(len(rows)),
            read=np.concatenate(read).astype(np.int64) if read else np.zeros(0, dtype=np.int64),
            targets=np.concatenate([labels[:, None], local.reshape(len(local), -1)], axis=1) if has_gold else None,
            targets_per=PER_UNIT,
            extra={_SPANS: local},
        )

    def loss(self, logits: "Tensor", batch: "TaskBatch") -> "tuple[Tensor, dict[str, Tensor]]":
        """Cross-entropy over the candidates and "none" of each text; see `TaskWithLoss.loss`."""
        import torch
        import torch.nn.functional as F

        assert batch.targets is not None, "the texts have answers"
        exact = logits if logits.dtype == torch.float64 else logits.float()
        scores = _scores_of_units(exact, batch, -torch.inf)
        wanted = batch.targets[:, 0]
        wanted = torch.where(wanted == NEITHER, scores.shape[1] - 1, wanted)
        nll = F.cross_entropy(scores, wanted, reduction="sum")
        correct = (scores.detach().argmax(-1) == wanted).sum()
        return nll, {"nll": nll.detach(), "correct": correct, "count": torch.tensor(len(wanted), device=logits.device)}

    def soft_loss(self, logits: "Tensor", wanted: "Tensor", batch: "TaskBatch", temperature: float) -> "Tensor":
        """The divergence over the candidates and "none" of each text; see `TaskWithLoss.soft_loss`."""
        from bertsmith.tasks.specs.soft_targets import NOWHERE, divergence, exact

        scores, gold = (_scores_of_units(exact(outputs), batch, NOWHERE) for outputs in (logits, wanted))
        return divergence(scores, gold, temperature).sum()

    def decode(
        self, examples: Sequence[Example], features: EncodedExamples, logits: Logits, tokenizer: Tokenizer
    ) -> list[MentionPrediction]:
        """The most probable candidate, or "none"; see `Task.decode`."""
        predictions = []
        spans, begins = cast("Ints", features.extra[_SPANS]), features.read_offsets[:-1]
        for example, of_example, begin, cut in zip(
            _mentions(examples), spans, begins.tolist(), features.rows.cut_by_row.tolist(), strict=True
        ):
            borders = begin + of_example[: len(example.mentions)]
            means = np.stack([logits[first:past].astype(np.float64).mean(axis=0) for first, past in borders.tolist()])
            scores = _scores(means[None])[0]
            chances = np.exp(scores - scores.max())
            predictions.append(_prediction(example, (chances / chances.sum()).tolist(), cut))
        return predictions

    def answers_by_rule(self, name: str, examples: Sequence[Example]) -> list[MentionPrediction] | None:
        """The candidate of each text by a rule; see `Task.answers_by_rule`."""
        if name not in _RULES:
            return None
        answers = []
        for example in _mentions(examples):
            distances = _RULES[name](example)
            chosen = min(range(len(distances)), key=distances.__getitem__)
            answers.append(_prediction(example, [float(n == chosen) for n in range(len(distances) + 1)], 0))
        return answers

    def golds(self, examples: Sequence[Example]) -> list[Mapping[str, Any]]:
        """Of each pronoun the number and the text of its candidate; None and "" for none of them."""
        golds: list[Mapping[str, Any]] = []
        for example in _mentions(examples):
            index = _index(example)
            text = "" if index is None else example.within(example.candidates[index])
            golds.append({"index": index, "text": text})
        return golds

    def score(self, examples: Sequence[Example], predictions: Sequence[MentionPrediction]) -> dict[str, float]:
        """The scores of GAP, see `mention_scores`."""
        pairs = [(_index(gold), answer.index) for gold, answer in zip(_mentions(examples), predictions, strict=True)]
        return mention_scores(pairs, [answer.pronoun[0] for answer in predictions])

    def example_scores(
        self, examples: Sequence[Example], predictions: Sequence[MentionPrediction]
    ) -> npt.NDArray[np.float64]:
        """1 if the answer is right, else 0, float64 [E]."""
        pairs = zip(_mentions(examples), predictions, strict=True)
        return np.array([_index(example) == answer.index for example, answer in pairs], dtype=np.float64)

    def is_collapsed(self, predictions: Sequence[MentionPrediction], examples: Sequence[Example]) -> bool:
        """Whether the same number is the answer to every pronoun although the gold numbers differ."""
        gold = {_index(example) for example in _mentions(examples)}
        return len(gold) > 1 and len({answer.index for answer in predictions}) == 1


def _mentions(examples: Sequence[Example]) -> list[MentionExample]:
    mentions = [example for example in examples if isinstance(example, MentionExample)]
    assert len(mentions) == len(examples), "coreference takes pronouns with candidates"
    return mentions


def _index(example: MentionExample) -> int | None:
    """The number of the right candidate; None for none of them."""
    assert example.label is not None, "pronouns with an answer"
    return None if example.label == NEITHER else example.label


def _pieces_of(example: MentionExample, pieces: Pieces) -> Ints:
    """The first piece of each mention and one past its last, int64 [M, 2]."""
    spans = np.array(example.mentions, dtype=np.int64)
    first = np.searchsorted(pieces.ends, spans[:, 0], side="right")
    past = np.searchsorted(pieces.starts, spans[:, 1])
    lost = np.flatnonzero(past <= first)
    if len(lost):
        words = example.within(example.mentions[int(lost[0])])
        raise InputError.at(example.location, "mentions with pieces", f"none of {words[:40]!r}", "correct its span")
    return np.stack([first, past], axis=1).astype(np.int64)


def _window(example: MentionExample, spans: Ints, count: int, room: int, *, refuses: bool) -> tuple[int, int]:
    """The pieces (begin, end) of a text of `count` that a row has: all, or `room` of them around the mentions."""
    low, high = int(spans[:, 0].min()), int(spans[:, 1].max())
    if high - low > room or (refuses and count > room):
        reason = f"{count} in all" if refuses else f"{high - low} from the first mention to the last"
        raise InputError.at(
            example.location,
            f"at most {room} tokens{'' if refuses else ' with the pronoun and all candidates'}",
            reason,
            "raise max_length, shorten the text or remove the row",
        )
    begin = max(0, min(low - (room - (high - low)) // 2, count - room))
    return begin, min(count, begin + room)


def _scores(means: Any) -> Any:
    """The scores [E, C + 1] of candidates and of "none", from outputs [E, 1 + C, K] of mentions; arrays or tensors."""
    pronoun, candidates = means[:, 0], means[:, 1:]
    query, keys = pronoun[:, None, :_WIDTH], candidates[..., _WIDTH : 2 * _WIDTH]
    scores = (query * keys).sum(-1) / _WIDTH**0.5 + candidates[..., -2]
    none = pronoun[:, -1:]
    if isinstance(means, np.ndarray):
        return np.concatenate([scores, none], axis=1)
    import torch

    return torch.cat([scores, none], dim=1)


def _scores_of_units(logits: "Tensor", batch: "TaskBatch", missing: float) -> "Tensor":
    """The scores [units, C + 1] of the candidates of each unit and, last, of "none", from the logits [r, K]."""
    import torch

    from bertsmith.models.heads.row_vectors import pool_rows

    assert batch.targets is not None, "the targets say where the mentions are"
    assert batch.read is not None, "the pieces of mentions are read"
    spans = batch.targets[:, 1:].reshape(batch.num_units, -1, 2).cpu().numpy()  # [units, 1 + C, 2]
    begins = np.empty(batch.num_units, dtype=np.int64)
    begins[batch.unit_of_row.cpu().numpy()] = offsets_of(batch.read.counts)[:-1]
    exists = spans[..., 0] >= 0
    borders = (spans + begins[:, None, None])[exists]  # [mentions, 2]
    places = np.concatenate([np.arange(*border) for border in borders])
    of_mentions = pool_rows(logits[torch.from_numpy(places).to(logits.device)], tuple(np.diff(borders)[:, 0].tolist()))
    means = logits.new_zeros((*exists.shape, logits.shape[1]))
    there = torch.from_numpy(exists).to(logits.device)
    scores = _scores(means.index_put(there.nonzero(as_tuple=True), of_mentions))
    is_missing = torch.cat([~there[:, 1:], torch.zeros_like(there[:, :1])], dim=1)
    return cast("Tensor", scores.masked_fill(is_missing, missing))


def _prediction(example: MentionExample, chances: Sequence[float], cut_tokens: int) -> MentionPrediction:
    """The prediction with these probabilities of the candidates and, last, of "none"."""
    best = max(range(len(chances)), key=chances.__getitem__)
    candidates = zip(example.candidates, chances[:-1], strict=True)
    return MentionPrediction(
        index=None if best == len(chances) - 1 else best,
        pronoun=(example.within(example.pronoun), *example.pronoun),
        candidates=tuple(
            Candidate(text=example.within(span), start=span[0], end=span[1], probability=chance)
            for span, chance in candidates
        ),
        none_probability=chances[-1],
        cut_tokens=cut_tokens,
    )


def _distances(example: MentionExample) -> list[tuple[int, int]]:
    """Of each candidate whether it follows the pronoun, and the characters between the two."""
    start, end = example.pronoun
    return [(int(first >= end), first - end if first >= end else start - past) for first, past in example.candidates]


# What a baseline minimizes over the candidates of a pronoun.
_RULES: Mapping[str, Callable[[MentionExample], Sequence[Any]]] = {
    BEFORE: _distances,
    FIRST_CANDIDATE: lambda example: example.candidates,
    CLOSEST: lambda example: [distance for _, distance in _distances(example)],
}
