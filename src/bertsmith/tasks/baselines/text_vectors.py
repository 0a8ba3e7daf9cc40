"""Vectors of texts from a frozen encoder, features of pairs of them, and a linear model on the cosine of a pair.

::

    FOLDER/n-grams.json   the task, and under "cosine" weight [K] and bias [K]
    FOLDER/encoder/       a model folder: the encoder, with which nothing was trained

Letters: E examples, D width of a vector, K outputs.

Source: Reimers and Gurevych (2019), "Sentence-BERT: Sentence Embeddings using Siamese BERT-Networks", section 3.
"""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import cast

import numpy as np

from bertsmith.base.core.errors import InputError
from bertsmith.base.storage.files import misfit, read_json, write_json
from bertsmith.models.model_files.metadata import NGRAM_TERMS
from bertsmith.models.parts.layer_choice import LayerChoice
from bertsmith.tasks.baselines.linear import LinearModel, Vectors
from bertsmith.tasks.baselines.n_grams import FIX, decoded
from bertsmith.tasks.datasets.examples import Example, TextExample
from bertsmith.tasks.encoding.frozen import FrozenEncoder
from bertsmith.tasks.specs.kinds import task_for
from bertsmith.tasks.specs.task import OF_BAG, Prediction, Task, TaskSpec
from bertsmith.tasks.specs.whole_texts import pooled_logits
from bertsmith.text.tokenizers.encoded import Encoded

_SHAPE = {"spec": dict, "cosine": {"weight": [float], "bias": [float]}}


def text_vectors(
    encoder: FrozenEncoder,
    task: Task,
    examples: Sequence[Example],
    choice: LayerChoice,
    pooling: str = "mean",
) -> Vectors:
    """One vector per text, float32 [E, width], encoded as the task encodes texts; layers are summed unweighted.

    Args:
        pooling: one of `encoding.frozen.POOLINGS`. Windows of one text are averaged.
    """
    encoder.require_positions(task.spec.settings.max_length)
    features = task.encode(examples, encoder.tokenizer)
    with encoder.progress(features.rows) as progress:
        vectors = encoder.row_vectors(features.rows, choice, pooling, progress)
    return pooled_logits(vectors, features, "mean")


def pair_features(first: Vectors, second: Vectors) -> Vectors:
    """Both vectors of each pair, their absolute difference and their product, float32 [E, 4 D].

    Source: Conneau et al., "Supervised Learning of Universal Sentence Representations" (2017), section 3.1.
    """
    return np.concatenate([first, second, np.abs(first - second), first * second], axis=1)


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class TextCosine:
    """A linear model on one number, the cosine of two texts that are encoded separately."""

    spec: TaskSpec
    linear: LinearModel  # weight [K, 1] and bias [K]
    encoder: FrozenEncoder

    def predict(self, examples: Sequence[Example]) -> Sequence[Prediction]:
        """One prediction per pair; its `cut_tokens` count both texts."""
        if not examples:
            return []
        single, sides = _sides(self.encoder, self.spec, examples)
        outputs = self.linear.outputs(cosines_of_pairs(*_vectors(self.encoder, single, sides)))
        cut = np.zeros(len(examples), dtype=np.int32)
        for side in sides:
            features = single.encode(side, self.encoder.tokenizer)
            cut += np.add.reduceat(features.rows.cut_by_row, features.first_rows)
        return decoded(task_for(self.spec), examples, outputs, cut)

    @staticmethod
    def read(folder: Path, encoder: FrozenEncoder) -> "TextCosine":
        """The model in a folder."""
        file = folder / NGRAM_TERMS
        values = read_json(file)
        if wrong := misfit(values, _SHAPE):
            raise InputError(expected=f"a linear model on a cosine in '{file}'", found=wrong, fix=FIX)
        spec = TaskSpec.from_dict(values["spec"], str(file))
        weight, bias = (np.array(values["cosine"][part], dtype=np.float32) for part in ("weight", "bias"))
        outputs = max(1, len(spec.labels))
        if spec.kind not in OF_BAG or not len(weight) == len(bias) == outputs or not np.isfinite([weight, bias]).all():
            raise InputError(
                expected=f"{outputs} finite weights and biases of a task of {' or '.join(OF_BAG)} in '{file}'",
                found=f"{len(weight)} and {len(bias)} of {spec.kind}",
                fix=FIX,
            )
        linear = LinearModel(weight=weight[:, None], bias=bias, penalty=0.0)
        return TextCosine(spec=spec, linear=linear, encoder=encoder)


def write_text_cosine(folder: Path, spec: TaskSpec, linear: LinearModel) -> None:
    """Writes the file of the linear model; the encoder has to be there already, so that both are complete."""
    numbers = {"weight": linear.weight[:, 0].tolist(), "bias": linear.bias.tolist()}
    write_json(folder / NGRAM_TERMS, {"spec": spec.to_dict(), "cosine": numbers})


def vectors_of_pairs(encoder: FrozenEncoder, spec: TaskSpec, pairs: Sequence[Example]) -> tuple[Vectors, Vectors]:
    """The vectors of the first and of the second texts, float32 [E, D] each; every text is encoded by itself."""
    return _vectors(encoder, *_sides(encoder, spec, pairs))


def cosines_of_pairs(first: Vectors, second: Vectors) -> Vectors:
    """float32 [E, 1]."""
    lengths = np.linalg.norm(first, axis=1) * np.linalg.norm(second, axis=1)
    return np.asarray((first * second).sum(axis=1) / np.maximum(lengths, 1e-12), dtype=np.float32)[:, None]


def _vectors(encoder: FrozenEncoder, single: Task, sides: Sequence[Sequence[Example]]) -> tuple[Vectors, Vectors]:
    first, second = (text_vectors(encoder, single, side, encoder.choice("last")) for side in sides)
    return first, second


def _sides(
    encoder: FrozenEncoder, spec: TaskSpec, examples: Sequence[Example]
) -> tuple[Task, list[Sequence[TextExample]]]:
    """The task of single texts, and the first and the second texts with their pieces."""
    pairs = cast("Sequence[TextExample]", examples)
    firsts = [dataclasses.replace(pair, second=None, pieces=None) for pair in pairs]
    seconds = [dataclasses.replace(pair, first=pair.second or "", second=None, pieces=None) for pair in pairs]
    single, known = task_for(dataclasses.replace(spec, pair=False, reads="mean")), dict[str, Encoded]()
    return single, [single.tokenized(side, encoder.tokenizer, known) for side in (firsts, seconds)]
