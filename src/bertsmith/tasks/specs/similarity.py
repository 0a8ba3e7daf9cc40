"""Sentence encoders: vectors of texts whose cosine measures how similar they are, or whether they belong together.

Letters: U units, E examples, R rows, D width of the vectors.

An example is a pair, a triplet or a single text. Its texts are rows of their own, one after another, so no text sees
another. The logits of this kind are the vectors of the rows, and a prediction is the vectors of an example's texts.

What the loss compares depends on the objective of the spec:

- cosine, cosent: the cosine of a pair and its score;
- ranking: which text of the step belongs to the first one; the others of the step do not;
- softmax, infersent: the label of a pair, from both vectors and their difference, and with infersent their product;
- triplet, margin: the distances of a text to one that belongs to it and to one that does not.

Sources: Reimers and Gurevych (2019), "Sentence-BERT", section 3; Conneau et al. (2017), "Supervised Learning of
Universal Sentence Representations from Natural Language Inference Data", section 3.1, for infersent; Henderson et al.
(2017), "Efficient Natural Language Response Suggestion for Smart Reply", section 4.4, for ranking; Gao et al. (2021),
"SimCSE", for single texts, which are read twice with different dropout.
"""

import dataclasses
import functools
from collections.abc import Iterable, Sequence
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from bertsmith.base.core.errors import InputError
from bertsmith.models.heads.head_spec import (
    AROUND_QUERY,
    COSENT,
    COSINE,
    INFERSENT,
    MARGIN,
    OF_QUERY,
    RANKING,
    TRIPLET,
    WITH_LAYER,
    Head,
    PieceWeights,
)
from bertsmith.models.heads.vector_forms import BY_COSINE, VECTOR_FORMS, VectorForm
from bertsmith.models.parts.head_inputs import MARKERS, SKIPPED_PIECES
from bertsmith.tasks.datasets.examples import TEXTS, Example, TextExample, TripletExample, texts_of_group
from bertsmith.tasks.encoding.units import PER_UNIT, EncodedExamples, Ints, Logits
from bertsmith.tasks.metrics.numbers import pearson, spearman
from bertsmith.tasks.metrics.similarity import best_pair_accuracy, pair_average_precision, ranks_by, ranks_of_partners
from bertsmith.tasks.metrics.token_vectors import TokenMatrix, max_sim
from bertsmith.tasks.specs.predictions import SimilarityPrediction
from bertsmith.tasks.specs.task import FROZEN_COSINE, WORDS_COSINE, Task
from bertsmith.tasks.specs.vector_gold import (
    AGAINST,
    LABELLED,
    NO_TEXT,
    PARTNERS,
    SCORES,
    TRIPLETS,
    label_together,
    metrics_of_examples,
)
from bertsmith.text.tokenizers.pack import PackedRows, filled_rows, pack_rows
from bertsmith.text.tokenizers.template import Template
from bertsmith.text.tokenizers.tokenizer import Tokenizer
from bertsmith.text.tokenizers.vocabulary import Vocabulary

_COLLAPSED = 0.9999  # length of the mean of unit vectors, from which all texts have the same vector
_DEEPEST = 10  # ranks that count in mrr@10

Floats = npt.NDArray[np.float64]


class SimilarityTask(Task):
    """Scores the vectors of texts; what trains them is in `recipes.finetuning.vector_workload`."""

    kind = "similarity"
    baselines = (WORDS_COSINE, FROZEN_COSINE)
    settings_used = frozenset({"query_prompt", "passage_prompt", "query_length"})

    @property
    def _form(self) -> VectorForm:
        return VECTOR_FORMS[self.spec.vectors]

    @property
    def head(self) -> Head:
        """No layer: the vector of a row is the result. Objectives with labels have a layer in training only.

        Vectors of tokens have a projection.
        """
        spec = self.spec
        if self._form.of_tokens:
            return Head(part="classifier", outputs=0, pooled=False, is_vector=True, token_width=spec.widths[0])
        outputs = len(spec.labels) if spec.objective in WITH_LAYER else 0
        return Head(
            part="classifier",
            outputs=outputs,
            pooled=True,
            reads=spec.reads,
            is_vector=True,
            pieces=PieceWeights(has_query_table=self._form.has_query_table) if self._form.of_pieces else None,
            has_product=spec.objective == INFERSENT,
        )

    def check(self, examples: Sequence[Example], *, gold: bool, training: bool = False) -> None:
        """Checks that there are texts, and in training all that the objective compares; see `Task.check`."""
        metrics = metrics_of_examples(examples) if examples else ()
        for example in examples:
            texts = texts_of_group(example)
            if gold and not training and (metrics == () or len(texts) < 2):
                raise InputError.at(_place(example), "two texts", str(len(texts)), "correct the row")
            if gold and not training and (metrics_of_examples([example]) != metrics or self._lacks_gold(example)):
                raise InputError.at(
                    _place(example),
                    "the kind of example of the first row, with its gold",
                    "another, or none",
                    "correct it",
                )
            for text in texts:
                if gold and not text.strip():
                    raise InputError.at(_place(example), "a text", "an empty one", "fill it or remove the row")
        if training:
            self._check_objective(examples)

    def _lacks_gold(self, example: Example) -> bool:
        return (
            isinstance(example, TextExample)
            and example.label is None
            and self.spec.metrics[:1] in (SCORES[:1], LABELLED[:1])
        )

    def _check_objective(self, examples: Sequence[Example]) -> None:
        objective, first = self.spec.objective, examples[0]
        label = first.label if isinstance(first, TextExample) else None
        if objective in (COSINE, COSENT):
            if not isinstance(label, float):
                raise InputError(
                    expected=f"a number in {_place(first)}, for --vector-loss {objective}",
                    found=repr(label) if label is not None else "none",
                    fix="use --task similarity with scored pairs, or --vector-loss ranking",
                )
            gold = {cast("TextExample", example).label for example in examples}
            if len(gold) < 2:
                raise InputError(
                    expected="different scores in the training examples",
                    found=f"{label:g} in each",
                    fix="add pairs that are more or less similar, or use --task pairs",
                )
        elif objective in WITH_LAYER and not isinstance(label, str):
            raise InputError(
                expected=f"a label in {_place(first)}, for --vector-loss {objective}", found="none", fix="use ranking"
            )
        elif objective in (TRIPLET, MARGIN) and not isinstance(first, TripletExample):
            raise InputError.at(
                _place(first), f"a triplet for --vector-loss {objective}", "another example", "use --task triplets"
            )

    def encode(self, examples: Sequence[Example], tokenizer: Tokenizer, *, training: bool = False) -> EncodedExamples:
        """One row per text and, except for labelled pairs in training, one unit per example; see `Task.encode`.

        In training by ranking, pairs whose label says that they do not belong together are not units: their second text
        joins the units of its first one, if there are any, as a text that does not belong.
        """
        groups = _Groups.of(self.spec.objective if training else "", examples, self.spec.name == TEXTS)
        counts = np.array([len(texts) for texts in groups.texts], dtype=np.int64)
        is_first = np.zeros(int(counts.sum()), dtype=np.bool_)
        is_first[np.cumsum(counts) - counts] = True
        rows, unseen = self._rows([text for texts in groups.texts for text in texts], is_first, tokenizer)
        read = rows.offsets[:-1]
        if self._form.has_query_table:
            rows = with_marked_queries(rows, is_first, tokenizer.template)
        if self._form.of_tokens:
            skipped = np.isin(rows.token_ids, skipped_ids(tokenizer.vocabulary))
            read = np.flatnonzero(np.repeat(is_first, rows.lengths) | ~skipped)
        return EncodedExamples(
            rows=rows,
            rows_per_unit=counts,
            example_of_row=np.repeat(np.array(groups.numbers, dtype=np.int64), counts),
            read=read,
            targets=self._targets(groups) if training else None,
            targets_per=PER_UNIT,
            unseen=unseen,
        )

    def _rows(
        self, texts: Sequence[str], is_first: npt.NDArray[np.bool_], tokenizer: Tokenizer
    ) -> tuple[PackedRows, Ints | None]:
        """The rows of texts, and of expanded queries how many tokens at their ends are not attended to, int64 [N].

        They are those of `Embedder`, so that vectors in training, of `embed` and of the server are the same.

        Args:
            is_first: bool [N], of the first texts of the examples, the queries.
        """
        settings, index = self.spec.settings, tokenizer.vocabulary.index
        prompts = (settings.query_prompt, settings.passage_prompt)
        is_marked = self._form.of_tokens and prompts == MARKERS and set(MARKERS) <= index.keys()
        prefixes = ("", "") if is_marked else prompts
        prefixed = [prefixes[not first] + text for first, text in zip(is_first.tolist(), texts, strict=True)]
        encoded = tokenizer.encode_batch(prefixed, special_tokens="own")
        if is_marked:
            encoded = encoded.after(np.where(is_first, *(index[marker] for marker in MARKERS)))
        pack = functools.partial(pack_rows, template=tokenizer.template, max_length=settings.max_length)
        if not (self._form.of_tokens and settings.query_length):
            return pack(encoded), None
        room = settings.query_length - tokenizer.template.num_special(1)
        shorter = encoded.shortened(np.where(is_first, room, encoded.lengths))
        rows = pack(shorter)
        cut = rows.cut_by_row + (encoded.lengths - shorter.lengths).astype(np.int32)
        filled = np.where(is_first, settings.query_length, 0)
        return filled_rows(dataclasses.replace(rows, cut_by_row=cut), filled, tokenizer.vocabulary.mask_id)

    def _targets(self, groups: "_Groups") -> npt.NDArray[np.generic]:
        """The texts that the objective compares, by unit.

        Scores as float32 [U], scaled so that the largest one is 1; labels as int64 [U]; or the ids of the texts of the
        unit, int64 [U, texts], equal for equal texts.
        """
        objective = self.spec.objective
        if objective in (COSINE, COSENT):
            scores = np.array(groups.labels, dtype=np.float32)
            return np.asarray(scores / max(float(np.abs(scores).max()), 1e-12))
        if objective == MARGIN:
            return np.array(groups.labels, dtype=np.float32)
        if objective in WITH_LAYER:
            number = {label: index for index, label in enumerate(self.spec.labels)}
            return np.array([number[label] for label in groups.labels], dtype=np.int64)
        ids: dict[str, int] = {}
        result = np.full((len(groups.texts), max(map(len, groups.texts))), NO_TEXT, dtype=np.int64)
        for row, texts in zip(result, groups.texts, strict=True):
            row[: len(texts)] = [ids.setdefault(text.strip(), len(ids)) for text in texts]
        return result

    def decode(
        self, examples: Sequence[Example], features: EncodedExamples, logits: Logits, tokenizer: Tokenizer
    ) -> list[SimilarityPrediction]:
        """The vectors of each example; see `Task.decode`."""
        if self._form.of_tokens:
            return token_predictions(logits, features.read_per_row, features.rows_per_unit, features.rows.cut_by_row)
        cut = features.rows.cut_by_row
        return SimilarityPrediction.of_each(logits, features.rows_per_unit, cut, self.spec.similarity)

    def score(self, examples: Sequence[Example], predictions: Sequence[SimilarityPrediction]) -> dict[str, float]:
        """The scores that fit the examples; with widths, also the scores of the first numbers of the vectors."""
        widths = self.spec.widths if self._form.has_widths else ()
        return similarity_scores(examples, predictions, widths, self.spec.similarity)

    def example_scores(
        self, examples: Sequence[Example], predictions: Sequence[SimilarityPrediction]
    ) -> npt.NDArray[np.float64]:
        """1 or 0: the text that belongs is the nearest one of a triplet, or of all pairs; else the cosine, [E]."""
        metrics = metrics_of_examples(examples)
        if metrics == TRIPLETS:
            return np.array([float(prediction.value > max(prediction.others)) for prediction in predictions])
        if metrics == PARTNERS:
            ranks = _partner_ranks(examples, predictions, self.spec.similarity)
            return np.asarray(ranks == 1, dtype=np.float64)
        return np.array([prediction.value for prediction in predictions])

    def is_collapsed(self, predictions: Sequence[SimilarityPrediction], examples: Sequence[Example]) -> bool:
        """Whether all texts have the same direction."""
        vectors = np.concatenate([prediction.vectors for prediction in predictions]).astype(np.float64)
        lengths = np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-30)
        different = {text for example in examples for text in texts_of_group(example)}
        return len(different) > 1 and float(np.linalg.norm((vectors / lengths).mean(axis=0))) > _COLLAPSED


def with_marked_queries(rows: PackedRows, is_query: npt.NDArray[np.bool_], template: Template) -> PackedRows:
    """The rows with the segments of queries, see `piece_weights.QueryTable`, in those that are queries."""
    segments = rows.segment_ids.copy()
    for begin, end in zip(rows.offsets[:-1][is_query].tolist(), rows.offsets[1:][is_query].tolist(), strict=True):
        segments[begin:end] = AROUND_QUERY
        segments[begin + len(template.start) : end - len(template.end)] = OF_QUERY
    return PackedRows(rows.token_ids, segments, rows.lengths, rows.cut_by_row)


def skipped_ids(vocabulary: Vocabulary) -> Ints:
    """The ids of the pieces of texts that have no vector where tokens have one: punctuation."""
    return np.array(
        [number for number, piece in enumerate(vocabulary.pieces) if piece in SKIPPED_PIECES], dtype=np.int64
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Groups:
    """The units of some examples."""

    # of each unit; the first is compared with the others, and the second belongs to it
    texts: Sequence[tuple[str, ...]]
    labels: Sequence[Any]
    numbers: Sequence[int]

    @staticmethod
    def of(objective: str, examples: Sequence[Example], twice: bool) -> "_Groups":
        """The units for an objective; "" for one unit per example."""
        texts = [texts_of_group(example) for example in examples]
        labels = [getattr(example, "label", getattr(example, "margin", None)) for example in examples]
        numbers = list(range(len(texts)))
        if objective and twice:
            texts = [group * 2 if len(group) == 1 else group for group in texts]
        if objective != RANKING or not isinstance(labels[0], str):
            return _Groups(texts=texts, labels=labels, numbers=numbers)
        named = [str(label) for label in labels]
        together, several = label_together(named), len(set(named)) > 2
        against: dict[str, list[str]] = {}
        for group, label in zip(texts, named, strict=True):
            # With two labels, the other one; with more, the opposite alone.
            if label != together and (not several or label.lower() in AGAINST):
                against.setdefault(group[0], []).append(group[1])
        kept = [number for number in numbers if named[number] == together]
        joined = [(*texts[number], *against.get(texts[number][0], ())) for number in kept]
        return _Groups(texts=joined, labels=[None] * len(kept), numbers=kept)


def token_predictions(
    vectors: npt.NDArray[np.float32], lengths: Ints, texts_per_example: Ints, cut: npt.NDArray[np.integer]
) -> list[SimilarityPrediction]:
    """The predictions for examples whose texts have vectors of tokens, [T, K] in all.

    Args:
        lengths: the vectors of each text.
        cut: the tokens that each text lost.
    """
    if not len(texts_per_example):
        return []
    starts = np.cumsum(texts_per_example) - texts_per_example
    ends, lost = np.cumsum(np.add.reduceat(lengths, starts)), np.add.reduceat(cut, starts).tolist()
    parts = zip(np.split(vectors, ends[:-1]), np.split(lengths, starts[1:]), lost, strict=True)
    return [SimilarityPrediction.of_tokens(*part) for part in parts]


def similarity_scores(
    examples: Sequence[Example],
    predictions: Sequence[SimilarityPrediction],
    widths: Sequence[int] = (),
    similarity: str = BY_COSINE,
) -> dict[str, float]:
    """The scores by name, of the vectors of each example's texts.

    Args:
        widths: also score the first numbers of the vectors, under names such as `spearman@64`.
        similarity: how vectors are compared, see `metrics.vectors.similarities`.
    """
    result = _scores(examples, predictions, similarity)
    for width in widths:
        shorter = [
            SimilarityPrediction.of(prediction.vectors[:, :width], similarity=similarity) for prediction in predictions
        ]
        part = _scores(examples, shorter, similarity)
        result |= {f"{name}@{width}": value for name, value in part.items()}
    return result


def _scores(
    examples: Sequence[Example], predictions: Sequence[SimilarityPrediction], similarity: str
) -> dict[str, float]:
    metrics = metrics_of_examples(examples)
    if not metrics:
        return {}
    if metrics == TRIPLETS:
        right = [prediction.value > max(prediction.others) for prediction in predictions]
        return {TRIPLETS[0]: float(np.mean(right))}
    if metrics == PARTNERS:
        ranks = _partner_ranks(examples, predictions, similarity)
        return {
            "recall@1": float((ranks == 1).mean()),
            "mrr@10": float(np.where(ranks <= _DEEPEST, 1 / ranks, 0.0).mean()),
        }
    values = np.array([prediction.value for prediction in predictions])
    gold = [cast("TextExample", example).label for example in examples]
    if metrics == SCORES:
        return {"spearman": spearman(cast("Floats", gold), values), "pearson": pearson(cast("Floats", gold), values)}
    together = label_together(cast("Iterable[str]", gold))
    belongs = [label == together for label in gold]
    return {
        "average_precision": pair_average_precision(belongs, values),
        "accuracy": best_pair_accuracy(belongs, values),
    }


def _partner_ranks(
    examples: Sequence[Example], predictions: Sequence[SimilarityPrediction], similarity: str
) -> npt.NDArray[np.int64]:
    names = [texts_of_group(example)[1] for example in examples]
    lengths = [prediction.lengths for prediction in predictions if prediction.lengths is not None]
    if not lengths:
        first, second = (np.stack([prediction.vectors[side] for prediction in predictions]) for side in (0, 1))
        return ranks_of_partners(first, second, names, similarity)
    texts = TokenMatrix(np.concatenate([each.vectors for each in predictions]), np.concatenate(lengths))
    firsts = np.cumsum([0, *map(len, lengths)])[:-1]
    seconds = texts.select(firsts + 1)
    return ranks_by(lambda part: max_sim(texts.select(firsts[part]), seconds), names)


def _place(example: Example) -> str:
    return str(getattr(example, "location", "")) or "an example"
