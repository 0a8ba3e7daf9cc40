"""A linear model on words and runs of letters, with the task that it answers: a folder that needs no encoder.

::

    FOLDER/n-grams.safetensors   weight [K, D] and bias [K]
    FOLDER/n-grams.json          the terms, the labels, the settings

Letters: E examples, D columns, K outputs.
"""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import safetensors.numpy

from bertsmith.base.core.errors import InputError
from bertsmith.base.storage.files import atomic_file, misfit, read_json, write_json
from bertsmith.models.model_files.metadata import METADATA, NGRAM_TERMS, NGRAM_WEIGHTS, read_metadata
from bertsmith.tasks.baselines.bag_of_words import BagOfWords, cut_words, misfit_of_terms
from bertsmith.tasks.baselines.linear import PENALTIES_OF_BAGS, LinearModel, fit_for
from bertsmith.tasks.datasets.examples import Example, TextExample
from bertsmith.tasks.encoding.units import PER_UNIT, EncodedExamples, Logits
from bertsmith.tasks.specs.kinds import task_for
from bertsmith.tasks.specs.task import OF_BAG, Prediction, TaskSpec
from bertsmith.text.tokenizers.pack import PackedRows

FIX = "make it again with the command that wrote it"
_SHAPE = {"spec": dict, "bag": {"pair": bool, "spaces": [{"terms": list, "rarity": list}], "settings": dict}}


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class NGramModel:
    """A linear model on the n-grams of texts, for a task on texts or pairs of texts."""

    spec: TaskSpec
    bag: BagOfWords
    linear: LinearModel

    @classmethod
    def fitted(
        cls, spec: TaskSpec, texts: Sequence[TextExample], targets: npt.NDArray[np.generic], **options: Any
    ) -> "NGramModel":
        """The model that is fitted to targets of training texts; see `fit_for` for the options."""
        bag = BagOfWords(texts, spec.settings, max(1, len(spec.labels)))
        linear = fit_for(spec, bag.columns(texts), targets, penalties=PENALTIES_OF_BAGS, **options)
        return cls(spec=spec, bag=bag, linear=linear).of_task(spec)

    def predict(self, examples: Sequence[Example]) -> Sequence[Prediction]:
        """One prediction per example; its `cut_tokens` are the words that were cut."""
        texts = cast("Sequence[TextExample]", examples)
        outputs = self.linear.outputs(self.bag.rows(texts)) if texts else np.zeros((0, 1), np.float32)
        cut = np.array([cut_words(text, self.spec.settings) for text in texts], dtype=np.int32)
        return decoded(task_for(self.spec), examples, outputs, cut)

    def of_task(self, spec: TaskSpec) -> "NGramModel":
        """The same model with other values of its task, such as thresholds."""
        return dataclasses.replace(self, spec=dataclasses.replace(spec, reads="mean"))

    @property
    def about(self) -> tuple[str, ...]:
        """What it reads and what it computes from that, in sentences."""
        kinds = " and ".join(f"{len(space):,} {name}" for name, space in self.bag.terms.items())
        return (
            f"A linear model on the TF-IDF weights of {kinds}; {self.parameters:,} parameters.",
            f"Text: lower-cased; of a text, up to {self.spec.settings.max_length:,} words are read.",
        )

    @property
    def parameters(self) -> int:
        """The numbers in weight and bias."""
        return self.linear.weight.size + self.linear.bias.size

    def write(self, folder: Path) -> None:
        """Writes the two files; the terms come last, so that both are complete once they exist."""
        with atomic_file(folder / NGRAM_WEIGHTS) as file:
            file.write(safetensors.numpy.save({"weight": self.linear.weight, "bias": self.linear.bias}))
        write_json(folder / NGRAM_TERMS, {"spec": self.spec.to_dict(), "bag": self.bag.state()})

    @classmethod
    def read(cls, folder: Path) -> "NGramModel":
        """The model in a folder."""
        path = folder / NGRAM_TERMS
        state = read_json(path)
        if wrong := misfit(state, _SHAPE) or misfit_of_terms(state["bag"]["spaces"]):
            raise InputError(expected=f"terms in '{path}'", found=wrong, fix=FIX)
        spec, bag = spec_of_words(folder, state["spec"]), BagOfWords.restored(state["bag"], str(path))
        if spec.kind not in OF_BAG:
            raise InputError(expected=f"{' or '.join(OF_BAG)} in '{path}'", found=spec.kind, fix=FIX)
        outputs, path = max(1, len(spec.labels)), folder / NGRAM_WEIGHTS
        try:
            tensors = safetensors.numpy.load_file(path)
            linear = LinearModel(weight=tensors["weight"], bias=tensors["bias"], penalty=0.0)
        except (safetensors.SafetensorError, KeyError, OSError) as error:
            raise InputError(expected=f"weight and bias in '{path}'", found=str(error)[:80], fix=FIX) from None
        shapes = (outputs, bag.num_columns), (outputs,)
        both = (linear.weight, linear.bias)
        if tuple(tensor.shape for tensor in both) != shapes or not all(np.isfinite(tensor).all() for tensor in both):
            raise InputError(
                expected=f"finite numbers of the shapes {shapes[0]} and {shapes[1]} in '{path}'",
                found=f"{linear.weight.shape} and {linear.bias.shape}"
                + ("" if all(np.isfinite(tensor).all() for tensor in both) else ", NaN or infinite"),
                fix=FIX,
            )
        return cls(spec=spec, bag=bag, linear=linear)


def spec_of_words(folder: Path, stored: dict[str, Any]) -> TaskSpec:
    """The task of a model on words: that of its metadata, where thresholds may be changed, or of a folder without it.

    Args:
        stored: the task that is stored with its terms.
    """
    spec = read_metadata(folder).spec
    return TaskSpec.from_dict(spec or stored, str(folder / (METADATA if spec else NGRAM_TERMS)))


def decoded(
    task: Any, examples: Sequence[Example], outputs: Logits, cut: Any = None, rows_per_unit: Any = None
) -> list[Any]:
    """The predictions of a task from outputs that no rows of tokens were read for.

    Args:
        cut: the words that each row lost, int32; None for none.
        rows_per_unit: the rows of each example, int64 [E]; None for one.
    """
    rows_per_unit = np.ones(len(examples), dtype=np.int64) if rows_per_unit is None else rows_per_unit
    count = int(rows_per_unit.sum())
    ones, zeros = np.ones(count, dtype=np.int32), np.zeros(count, dtype=np.int32)
    rows = EncodedExamples(
        rows=PackedRows(zeros, zeros, ones, zeros if cut is None else cut),
        rows_per_unit=rows_per_unit,
        example_of_row=np.repeat(np.arange(len(rows_per_unit), dtype=np.int64), rows_per_unit),
        read=np.arange(count, dtype=np.int64),
        targets=None,
        targets_per=PER_UNIT,
    )
    return list(task.decode(examples, rows, outputs, None))
