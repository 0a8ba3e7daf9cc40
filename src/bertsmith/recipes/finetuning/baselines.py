"""Baselines on the training and dev examples of a task, for comparison with the fine-tuned model.

::

    RUN/baselines.json         name, scores, intervals and seconds of each system
    RUN/baselines.jsonl        their predictions on the dev examples: the lines of predictions.jsonl and "baseline"
    RUN/baselines.safetensors  weight and bias of the linear models on frozen vectors, if the task has some
    RUN/bag-of-words/          the linear model on a bag of words, if the task has one, ready to predict; so are the
                               counts of words in RUN/frequent-tags/, RUN/seen-entities/, RUN/word-overlap/ and
                               RUN/word-cosine/

Letters: E examples, W words, D width of a vector, K outputs.

Nothing here changes a training: the base model is frozen, and all draws have their own generators.
"""

import dataclasses
import functools
import json
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import numpy.typing as npt
import safetensors
import safetensors.numpy

from bertsmith.base.core.errors import InputError
from bertsmith.base.core.progress import Progress, said_once
from bertsmith.base.storage.files import atomic_file, misfit, read_json, read_json_lines, write_json, write_text
from bertsmith.models.heads.vector_forms import DENSE
from bertsmith.recipes.finetuning.bag import bag_of, metadata_of_words, sample_of, up_to
from bertsmith.recipes.finetuning.job import FinetuningJob
from bertsmith.recipes.results.baseline_lines import SAVED
from bertsmith.recipes.results.resampling import Line, intervals, scored_lines
from bertsmith.tasks.baselines.linear import LinearModel, Vectors, fit_for, fit_linear
from bertsmith.tasks.baselines.n_grams import NGramModel
from bertsmith.tasks.baselines.text_vectors import cosines_of_pairs, pair_features, text_vectors, vectors_of_pairs
from bertsmith.tasks.baselines.word_model import write_words_folder
from bertsmith.tasks.baselines.written import chosen_by, written_by
from bertsmith.tasks.datasets.examples import DocumentExample, Example, SequenceExample, TaggedExample, TextExample
from bertsmith.tasks.encoding.frozen import FrozenEncoder
from bertsmith.tasks.encoding.loading import load_frozen_encoder, loaded
from bertsmith.tasks.encoding.units import Ints, Logits
from bertsmith.tasks.specs.kinds import task_for
from bertsmith.tasks.specs.predictions import ExtractPrediction, TextPrediction
from bertsmith.tasks.specs.task import (
    BAG,
    CEILINGS,
    CHOSEN,
    COSINE,
    FROZEN_COSINE,
    OF_TEXTS,
    PAIRS,
    SEEN,
    TAGS,
    VECTORS,
    WORDS_COSINE,
    Prediction,
)
from bertsmith.tasks.specs.vector_gold import metrics_of_examples

if TYPE_CHECKING:
    from bertsmith.tasks.baselines.word_model import WordModel

RESULTS_FILE, LINES_FILE, WEIGHTS_FILE = "baselines.json", "baselines.jsonl", "baselines.safetensors"
MOST_TAGGED_WORDS = 20_000  # whose frozen vectors a linear model is fitted to

# Of a linear model: its tensors, and what their names begin with in the file of all of them.
_PARTS = ("weight", "bias", "penalty")
_PREFIXES = {VECTORS: "", PAIRS: f"{PAIRS}: ", COSINE: f"{COSINE}: "}
_RESULTS = [{"name": str, "scores": {"*": float}, "intervals": dict, "seconds": float, "train_examples": int}]
_FIX = f"remove the file {RESULTS_FILE} of the run, and resume"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Baselines:
    """The baselines of a run.

    Attributes:
        results: for each system "name", "scores", "intervals", "seconds" and "train_examples", plain values for JSON.
        lines: the lines of each system's predictions, by its name.
        linear: the linear models on frozen vectors that can be saved as a model, by the names of their systems.
        models: the models without an encoder, by the names of their systems; none after reading.

    What is computed has the same values as what is read, so that a resumed run ends as if it had not stopped.
    """

    results: Sequence[Mapping[str, Any]] = ()
    lines: Mapping[str, Sequence[Line]] = dataclasses.field(default_factory=dict)
    linear: Mapping[str, LinearModel] = dataclasses.field(default_factory=dict)
    models: "Mapping[str, NGramModel | WordModel]" = dataclasses.field(default_factory=dict)

    @staticmethod
    def read(run: Path) -> "Baselines | None":
        """The systems that an earlier call of `write` left in a run folder; None if it did not get that far.

        Raises:
            InputError: a file is damaged.
        """
        if not (run / RESULTS_FILE).is_file():
            return None
        results, every = read_json(run / RESULTS_FILE), list(read_json_lines(run / LINES_FILE))
        for name, content, shape in ((RESULTS_FILE, results, _RESULTS), (LINES_FILE, every, [{"baseline": str}])):
            if fault := misfit(content, shape):
                raise InputError(expected=f"baselines in '{run / name}'", found=fault, fix=_FIX)
        lines: dict[str, list[Line]] = {}
        for line in every:
            lines.setdefault(line.pop("baseline"), []).append(line)
        linear = _read_linear(run / WEIGHTS_FILE) if (run / WEIGHTS_FILE).is_file() else {}
        return Baselines(results=results, lines=lines, linear=linear)

    def write(self, run: Path, job: FinetuningJob) -> None:
        """Writes the files; baselines.json comes last, so that all are complete once it exists.

        Args:
            job: whose examples they were fitted to.
        """
        if self.linear:
            tensors = {
                _PREFIXES[name] + part: np.asarray(getattr(model, part))
                for name, model in self.linear.items()
                for part in _PARTS
            }
            with atomic_file(run / WEIGHTS_FILE) as file:
                file.write(safetensors.numpy.save(tensors))
        for result in self.results:
            if (model := self.models.get(result["name"])) is not None:
                metadata = metadata_of_words(job, model, result["scores"], result["train_examples"])
                write_words_folder(run / SAVED[result["name"]], model, metadata)
        lines = ({"baseline": name, **line} for name, part in self.lines.items() for line in part)
        write_text(run / LINES_FILE, "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines))
        write_json(run / RESULTS_FILE, list(self.results))


def baselines_of(job: FinetuningJob, run: Path, *, resume: bool) -> Baselines:
    """The baselines of a job, computed and written to the run folder, or read from there.

    Without dev examples, there are none.

    Args:
        resume: they may already be in the folder.

    Raises:
        BertsmithError: the base model cannot encode the texts, or a file of the folder is damaged.
    """
    if job.dev is None or not job.settings.baselines:
        return Baselines()
    result = Baselines.read(run) if resume else None
    if result is None:
        result = _Computation(job).run()
        result.write(run, job)
    return result


class _Computation:
    """The systems of one job, which share the vectors of its texts."""

    def __init__(self, job: FinetuningJob) -> None:
        assert job.dev is not None, "systems are scored on dev examples"
        self.job, self.dev = job, job.data.dev
        # Shorter vectors (Matryoshka), and those of pieces or tokens, are what the training is for.
        spec = dataclasses.replace(job.task.spec, widths=(), vectors=DENSE)
        self.task, self._features = job.task, job.dev
        if spec != job.task.spec:
            self.task = task_for(spec)
            self._features = self.task.encode(self.dev, job.tokenizer)
        self._seed, self._chosen = job.training.seed, sample_of(job)
        self.train = self._examples(self._chosen)
        self._linear: dict[str, LinearModel] = {}
        self._models: dict[str, NGramModel | WordModel] = {}
        self._counts = {FROZEN_COSINE: 0}  # training examples of the systems that do not have `train`

    def run(self) -> Baselines:
        """All systems of the task, in the order in which they are shown."""
        results, lines, systems = [], {}, self._systems()
        with Progress("baselines", len(systems), "systems") as progress:
            for name in systems:
                result, lines[name] = self._scored(name)
                results.append(result)
                progress.advance(1, name)
        return Baselines(results=results, lines=lines, linear=self._linear, models=self._models)

    def _scored(self, name: str) -> tuple[dict[str, Any], list[Line]]:
        """The entry of a system in the results, and the lines of its predictions."""
        start = time.perf_counter()
        predictions = self._predictions(name)
        seconds = time.perf_counter() - start
        scores, lines = scored_lines(self.task, self.dev, predictions)
        result = {
            "name": name,
            "scores": scores,
            "intervals": intervals(self.task.kind, scores, lines, self.task.spec.scheme),
            "seconds": round(seconds, 3),
            "train_examples": self._counts.get(name, len(self.train)),
        }
        return result, lines

    def _systems(self) -> list[str]:
        """The names of the baselines of the task, as far as its examples have them."""
        missing: tuple[str, ...] = ()
        if self.task.baselines == OF_TEXTS and self.train[0].second is None:  # type: ignore[union-attr]
            missing = (PAIRS, COSINE)
        if WORDS_COSINE in self.task.baselines and not metrics_of_examples(self.dev):
            missing = self.task.baselines
        return [name for name in self.task.baselines if name not in missing]

    def _predictions(self, name: str) -> Sequence[Prediction]:
        by_rule = self.task.answers_by_rule(name, self.dev)
        if by_rule is not None:
            self._counts[name] = 0
            return by_rule
        on_vectors = self._vectors if self.task.head.pooled else self._word_vectors
        fits = {BAG: self._bag, VECTORS: on_vectors, FROZEN_COSINE: self._frozen_cosine}
        of_pairs = {PAIRS: pair_features, COSINE: cosines_of_pairs}
        if name in fits:
            return fits[name]()
        if name in of_pairs:
            return self._of_pairs(name, of_pairs[name])
        if self.task.baselines == CHOSEN:
            return self._chosen_sentences(name)
        return self._words(name) if name in SAVED else self._written(name)

    def _examples(self, numbers: Ints) -> list[Example]:
        return [self.job.data.train[number] for number in numbers.tolist()]

    def _words(self, name: str) -> Sequence[Prediction]:
        from bertsmith.tasks.baselines.word_model import WordModel

        train = self.job.data.train if name in (TAGS, SEEN) else self.train
        self._counts[name] = len(train)
        self._models[name] = WordModel.fitted(self.task.of_vectors().spec, train)
        return self._models[name].predict(self.dev)

    def _written(self, name: str) -> Sequence[Prediction]:
        train, dev = (cast("Sequence[SequenceExample]", part) for part in (self.job.data.train, self.dev))
        self._counts[name] = len(train)
        pairs = [(example.source, example.targets) for example in train]
        texts = written_by(name, pairs, [example.source for example in dev])
        return [TextPrediction(text=text, score=0.0, answers=((text, 0.0),)) for text in texts]

    def _chosen_sentences(self, name: str) -> Sequence[Prediction]:
        """Chosen sentences have the score 1, others 0."""
        train, dev = (cast("Sequence[DocumentExample]", part) for part in (self.job.data.train, self.dev))
        self._counts[name] = 0 if name in CEILINGS else len(train)
        chosen = chosen_by(name, train, dev, self.task.spec.settings.sentences)
        return [
            ExtractPrediction.of(document, numbers, tuple(float(n in numbers) for n in range(len(document.sentences))))
            for document, numbers in zip(dev, chosen, strict=True)
        ]

    def _word_vectors(self) -> Sequence[Prediction]:
        """A linear model on the frozen vectors of words, each read in its sentence."""
        sentences = cast("Sequence[TaggedExample]", self.job.data.train)
        lengths = [len(sentence.words) for sentence in sentences]
        chosen = self._examples(up_to(MOST_TAGGED_WORDS, lengths, "sentences of a linear model", self._seed))
        self._counts[VECTORS] = len(chosen)
        train, last = self.task.encode(chosen, self.job.tokenizer), self._encoder.choice("last")
        assert train.targets is not None, "training examples have gold"
        vectors, dev = (self._encoder.hidden_states(part, last)[:, 0] for part in (train, self._features))  # [W, D]
        linear = fit_linear(vectors, train.targets, num_outputs=len(self.task.spec.labels), seed=self._seed)
        if not self.job.folder.config.pools_tokens:
            self._linear[VECTORS] = linear
        return self._decoded(linear.outputs(dev))

    def _bag(self) -> Sequence[Prediction]:
        model, self._counts[BAG] = bag_of(self.job)
        self._models[BAG] = model
        return self._of_units(model.linear.outputs(model.bag.rows(cast("Sequence[TextExample]", self.dev))))

    def _vectors(self) -> Sequence[Prediction]:
        last = self._encoder.choice("last")
        train, dev = (text_vectors(self._encoder, self.task, part, last) for part in (self.train, self.dev))
        self._linear[VECTORS] = self._fit(train)
        return self._of_units(self._linear[VECTORS].outputs(dev))

    def _of_pairs(self, name: str, columns: Callable[[Vectors, Vectors], Vectors]) -> Sequence[Prediction]:
        train, dev = (columns(*vectors) for vectors in self._apart)
        linear, rows = self._fit(train), self._features.rows
        # As a model, one on both vectors reads rows of two texts, which must be all of both.
        has_rows = self.job.tokenizer.template.has_segments and len(rows) == len(self.dev) and not rows.truncated
        if has_rows or name == COSINE:
            self._linear[name] = linear
        return self._of_units(linear.outputs(dev))

    def _frozen_cosine(self) -> Sequence[Prediction]:
        task, tokenizer = self.task.of_vectors(), self.job.tokenizer
        features = self._features if task is self.task else task.encode(self.dev, tokenizer)
        with self._encoder.progress(features.rows) as progress:
            vectors = self._encoder.row_vectors(features.rows, self._encoder.choice("last"), "mean", progress)
        return task.decode(self.dev, features, vectors, tokenizer)

    @property
    def _targets(self) -> npt.NDArray[np.generic]:
        targets = self.job.train.targets
        assert targets is not None, "training examples have gold"
        return targets

    def _fit(self, inputs: Any) -> LinearModel:
        return fit_for(self.task.spec, inputs, self._targets[self._chosen], seed=self._seed)

    def _of_units(self, outputs: Logits) -> Sequence[Prediction]:
        """The task's predictions from outputs [E, K]; all windows of a long text get those of the text."""
        return self._decoded(np.repeat(outputs, self._features.rows_per_unit, axis=0))

    def _decoded(self, logits: Logits) -> Sequence[Prediction]:
        return self.task.decode(self.dev, self._features, logits, self.job.tokenizer)

    @functools.cached_property
    def _encoder(self) -> FrozenEncoder:
        job = self.job
        # After continued pre-training on the labels, `untrained` is another model.
        if job.untrained is job.folder:
            return loaded(job.frozen)
        with said_once():
            return load_frozen_encoder(job.untrained, device=job.runtime.device)

    @functools.cached_property
    def _apart(self) -> tuple[tuple[Vectors, Vectors], tuple[Vectors, Vectors]]:
        """The vectors of the first and of the second texts of the training and of the dev examples."""
        train, dev = (vectors_of_pairs(self._encoder, self.task.spec, part) for part in (self.train, self.dev))
        return train, dev


def _read_linear(path: Path) -> dict[str, LinearModel]:
    try:
        tensors = safetensors.numpy.load_file(path)
        models = {}
        for name, prefix in _PREFIXES.items():
            if f"{prefix}weight" not in tensors:
                continue
            weight, bias, penalty = (tensors[prefix + part] for part in _PARTS)
            models[name] = LinearModel(weight=weight, bias=bias, penalty=float(penalty))
        if not models:
            raise KeyError("weight")
        return models
    except (safetensors.SafetensorError, KeyError) as error:
        raise InputError(expected=f"weight, bias and penalty in '{path}'", found=str(error)[:80], fix=_FIX) from error
