"""Evaluate a fine-tuned model on labelled examples: its official scores, and the cost of int8."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np

from bertsmith.app.library.inputs import warn_cut
from bertsmith.base.core.errors import InputError, nearest_path
from bertsmith.base.core.parameters import ComputeSettings
from bertsmith.base.core.progress import counted, short_repr, warn
from bertsmith.base.core.requests import takes
from bertsmith.base.core.settings import require
from bertsmith.base.core.tables import local_path
from bertsmith.inference.predictors import quantization
from bertsmith.inference.predictors.ensemble import load_ensemble
from bertsmith.inference.predictors.quantization import Calibration, Quantization
from bertsmith.inference.predictors.request import RETRIEVAL, EvaluateRequest, QuantizeRequest
from bertsmith.inference.search.comparison import SearchComparison
from bertsmith.inference.search.request import ScoreSearchesRequest, is_index
from bertsmith.inference.vectors.loading import late_folder, load_embedder, load_token_embedder
from bertsmith.models.checkpoints.load import load_any
from bertsmith.models.checkpoints.sentence_transformers import read_recipe
from bertsmith.models.model_files.metadata import METADATA, SIMILARITY, n_gram_folder, read_metadata, require_metadata
from bertsmith.recipes.finetuning.run import is_count
from bertsmith.recipes.results.resampling import example_lines, intervals
from bertsmith.recipes.sentence_encoders.evaluation import CLUSTERING, score_clusters, score_vectors
from bertsmith.recipes.sentence_encoders.quantization import COSINE, calibrate_vectors, quantize_vectors, texts_of
from bertsmith.tasks.datasets.examples import FORMS, PAIRS, TEXTS, Example, TextExample
from bertsmith.tasks.datasets.labels import labels_of
from bertsmith.tasks.datasets.text_groups import form_of_file
from bertsmith.tasks.metrics.selective import Selection, selections
from bertsmith.tasks.specs.kinds import task_for
from bertsmith.tasks.specs.named_tasks import task_name
from bertsmith.tasks.specs.predictions import LabelPrediction
from bertsmith.tasks.specs.settings import ColumnSettings, TaskSettings
from bertsmith.tasks.specs.task import Prediction, TaskSpec
from bertsmith.tasks.specs.vector_gold import vector_spec
from bertsmith.tasks.task_data.labelled_examples import labelled_of, read_labelled, warn_of_training_file
from bertsmith.tasks.task_data.spec_of_model import spec_of_head
from bertsmith.tasks.task_data.task_files import read_examples

_SHOWN = (0.8, 0.5)  # shares of the examples, the most certain ones, whose accuracy is printed


@dataclasses.dataclass(frozen=True, kw_only=True)
class Evaluation:
    """The official scores of a model on labelled examples.

    Attributes:
        task: the name of the task, such as "cola".
        precision: in which the model was computed.
        products: how its linear layers were computed, see `load`; "auto" if only one way exists.
        scores: by name; fractions, coefficients, or (SQuAD) percentages; also the counts that a scorer returns.
        intervals: the 95% confidence interval of each score that has one: exact for proportions such as accuracy,
            from the bootstrap for others; see `results.resampling.intervals`.
        cut_texts, cut_tokens: number of truncated examples, and the tokens they lost in total.
        selections: of a model of one label, the accuracy of the most certain examples, fewest first.
    """

    task: str
    examples: int
    precision: str
    products: str
    scores: Mapping[str, float]
    intervals: Mapping[str, Sequence[float]]
    cut_texts: int
    cut_tokens: int
    selections: Sequence[Selection] = ()

    __repr__ = short_repr

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON; "selections" are left out if there are none."""
        values = dataclasses.asdict(self)
        del values["selections"]
        return {
            **values,
            "scores": dict(self.scores),
            "intervals": {name: list(ends) for name, ends in self.intervals.items()},
            **({"selections": [each.to_dict() for each in self.selections]} if self.selections else {}),
        }

    def lines(self) -> list[str]:
        """The scores with their confidence intervals, as lines of text."""
        how = "" if self.products == "auto" else f" ({self.products} products)"
        lines = [f"{self.task}: {counted(self.examples, 'example')}, {self.precision}{how}"]
        for metric, score in self.scores.items():
            if is_count(metric):
                continue
            low, high = self.intervals.get(metric, (None, None))
            between = "" if low is None else f" (95% interval {low:.4f} to {high:.4f})"
            lines.append(f"{metric}: {score:.4f}{between}")
        for share in _SHOWN:
            for selection in [each for each in self.selections if each.answered <= share][-1:]:
                low, high = selection.interval
                lines.append(
                    f"accuracy of the most certain {selection.answered:.0%}: {selection.accuracy:.4f} (95% interval "
                    f"{low:.4f} to {high:.4f}), from a probability of {selection.threshold:.4f} on"
                )
        return lines


@dataclasses.dataclass(frozen=True, kw_only=True)
class RetrievalEvaluation(Evaluation):
    """The scores of searches on queries; `scores` and `intervals` are those of the best one.

    Attributes:
        comparison: of all of them.
    """

    comparison: SearchComparison

    __repr__ = short_repr

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        values = super().to_dict()
        return {**values, "comparison": self.comparison.to_dict()}

    def lines(self) -> list[str]:
        """See `SearchComparison.lines`."""
        return self.comparison.lines()


@takes(EvaluateRequest)
def evaluate(request: EvaluateRequest) -> Evaluation:
    """The official scores of a fine-tuned model on a labelled file, with their confidence intervals.

    A model from another tool does not record what it was trained on, so the official scores need the name of the task.
    With the task similarity, pairs or triplets, or clustering for labelled texts, the vectors of any model are scored.
    With the task retrieval, an index or models of vectors are compared by what they find for queries: each kind of
    vectors, words, each pair of these, and all.

    Raises:
        BertsmithError: the model has no task head, or the file is invalid; the message says which.
    """
    if request.task == RETRIEVAL:
        return _evaluate_searches(request)
    model, data, columns = request.model, local_path(request.data), request.part(ColumnSettings)
    words = n_gram_folder(model)
    if words is None and _gives_vectors(model, request.task):
        return _evaluate_vectors(request)
    folder = None if words is not None else load_any(model)
    predictor = load_ensemble([folder or words or model, *request.also], **request.arguments(load_ensemble))
    if folder is None:
        metadata = read_metadata(words or Path(model))
        labelled = labelled_of(predictor.task.spec, data, request.task, columns, request.map_labels)
    else:
        metadata = folder.metadata
        labelled = read_labelled(folder, data, request.task, columns, request.map_labels)
    warn_of_training_file(metadata, data)
    name, spec, examples = labelled
    predictor.task = task_for(spec)
    scores, predictions = predictor.evaluate(examples)
    texts, tokens = warn_cut(prediction.cut_tokens for prediction in predictions)
    shown = [metric for metric in scores if not is_count(metric)]
    return Evaluation(
        task=name,
        examples=len(examples),
        precision=predictor.runtime.precision,
        products=predictor.runtime.products,
        scores=scores,
        intervals=intervals(spec.kind, shown, list(example_lines(predictor.task, examples, predictions)), spec.scheme),
        cut_texts=texts,
        cut_tokens=tokens,
        selections=_selections(spec, examples, predictions),
    )


def _selections(spec: TaskSpec, examples: Sequence[Example], predictions: Sequence[Prediction]) -> Sequence[Selection]:
    """The accuracy of the most certain examples; none for other tasks than labels of which a text has one."""
    if spec.kind != "classification" or spec.multi_label:
        return ()
    answers = cast("Sequence[LabelPrediction]", predictions)
    return selections(
        np.array([answer.probability for answer in answers]),
        np.array([(answer.label,) == labels_of(gold) for answer, gold in zip(answers, examples, strict=True)]),
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Int8Report:
    """The cost of int8 for a model, as a change of its score.

    Attributes:
        metric: the score that is measured.
        fp32: the score in fp32.
        trials: first those with fixed scales, then those with one scale per token; each keeps more layers in higher
            precision than the one before of its kind; the last one is used.
        path: the metadata file that records the layers.
    """

    metric: str
    fp32: float
    trials: Sequence[Quantization]
    path: Path

    __repr__ = short_repr

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        last = self.trials[-1]
        return {
            "metric": self.metric,
            "fp32": self.fp32,
            "int8": last.score,
            "kept": list(last.kept),
            "fixed": last.fixed,
            **({} if last.cosine is None else {"cosine": last.cosine}),
        }

    def lines(self) -> list[str]:
        """The scores of all trials, as lines of text."""
        lines = [f"{self.metric} in fp32: {self.fp32:.4f}"]
        for trial in self.trials:
            kept = f", {' and '.join(trial.kept)} kept in higher precision" if trial.kept else ""
            scales = " with fixed scales" if trial.fixed else ""
            cosine = ""
            if trial.cosine is not None and self.metric != COSINE:
                cosine = f" (mean cosine of the vectors to fp32: {trial.cosine:.4f})"
            lines.append(f"{self.metric} in int8{scales}{kept}: {trial.score:.4f}{cosine}")
        return [*lines, f"recorded in {self.path}; use it with --precision int8"]


@takes(QuantizeRequest)
def quantize(request: QuantizeRequest) -> Int8Report:
    """The cost of int8 for a model; records in its metadata which layers to keep in higher precision.

    The first examples also fix the scales of the inputs, which are written next to the metadata if the score stays
    within the limit with them. The weights do not change; loading with precision "int8" then uses what was recorded.

    The score of a fine-tuned model is that of its task. A model without a task head gives vectors, such as a sentence
    encoder: their mean cosine to those in fp32 is measured, and on labelled pairs and triplets also what `evaluate`
    would measure first, such as Spearman's correlation on scored pairs; the limit then holds for that. The default task
    is then scored pairs or triplets if the columns are theirs, otherwise texts, one per line.

    Raises:
        ConfigError: this machine does not support int8, or the limit is not a fraction.
        CheckpointError: no trial stayed within the limit, or the model has no metadata.
        InputError: the file is invalid, or vectors of a hub id are to be quantized.
    """
    recipe = read_recipe(Path(request.model))
    folder = load_any(request.model if recipe is None else recipe.encoder)
    if spec_of_head(folder) is None or _gives_vectors(request.model, request.task):
        require(request.head is None, expected="no head, for vectors", found="--head", fix="omit --head")
        metric, exact, trials, calibration = _quantize_vectors(request)
    else:
        require_metadata(folder.path)
        _, spec, examples = read_labelled(
            folder, local_path(request.data), request.task, request.part(ColumnSettings), request.map_labels
        )
        calibration = _calibration(lambda: quantization.calibrate(folder, examples, request.head))
        exact, trials = quantization.quantize(folder, examples, request.limit, request.head, calibration)
        warn_of_training_file(folder.metadata, local_path(request.data))
        metric = task_for(spec).selection_metric
    quantization.note_kept_layers(folder.path, metric, exact, trials, calibration)
    return Int8Report(metric=metric, fp32=exact, trials=trials, path=folder.path / METADATA)


def _quantize_vectors(request: QuantizeRequest) -> tuple[str, float, Sequence[Quantization], Calibration | None]:
    """The metric of a model's vectors, its value in fp32, the trials of int8, and the scales."""
    if not Path(request.model).is_dir():
        raise InputError(
            expected="the folder of a model, to record in it what int8 costs",
            found=f"'{request.model}'",
            fix="write one with `bertsmith convert --to huggingface`",
        )
    if request.task is None:
        form = form_of_file(local_path(request.data), encoding=request.encoding)
        name = TEXTS if form == PAIRS else form
    else:
        name = task_name(request.task)
    examples = _examples(request, name)
    texts = texts_of(examples)
    calibration = _calibration(lambda: calibrate_vectors(request.model, texts))
    return *quantize_vectors(request.model, examples, request.limit, calibration), calibration


def _examples(request: EvaluateRequest | QuantizeRequest, task: str) -> Sequence[Example]:
    """The examples of a file in the format of a task."""
    columns = request.part(ColumnSettings)
    return read_examples(task, local_path(request.data), columns, map_labels=request.map_labels).examples


def _calibration(measure: Callable[[], Calibration]) -> Calibration | None:
    """The scales of a model's inputs; None, with a warning, if there are too few examples."""
    try:
        return measure()
    except InputError as error:
        warn(f"{error}; each token has its own scale, which is slower")
        return None


def _gives_vectors(model: str | Path, task: str | None) -> bool:
    """Whether the vectors of a model are scored: the task is one of vectors, or the model was trained for one."""
    if task is not None:
        return task == CLUSTERING or task_name(task) in FORMS
    if late_folder(model) is not None:
        return True
    if not (Path(model).exists() and read_recipe(Path(model)) is not None):
        return False
    spec = read_metadata(Path(model)).spec
    return spec is not None and spec.get("kind") == SIMILARITY


def _evaluate_searches(request: EvaluateRequest) -> RetrievalEvaluation:
    """The scores of searches for the queries of a file, or of a folder as in BEIR."""
    from bertsmith.app.library.retrieval import compare_searches

    data, judgements = local_path(request.data), request.judgements
    queries, passages = data, Path(request.model)
    is_indexed = is_index(request.model)
    if data.is_dir():
        queries, judgements = data / "queries.jsonl", judgements or data / "qrels" / "test.tsv"
        passages = passages if is_indexed else data / "corpus.jsonl"
    require(
        judgements is not None and (is_indexed or data.is_dir()),
        expected="a folder with queries.jsonl, qrels/test.tsv and corpus.jsonl as the data",
        found=f"'{data}'",
        fix="name such a folder, or for an index a file of queries with --judgements",
    )
    assert judgements is not None, "there are some"
    for path in (queries, passages, Path(judgements)):
        if not path.exists():
            fix = nearest_path(path) or ("name another folder, or add it" if path.parent == data else "check the path")
            raise InputError(expected=f"a file '{path}'", found="nothing there", fix=fix)
    comparison = compare_searches(
        ScoreSearchesRequest(
            passages=passages,
            queries=queries,
            judgements=judgements,
            model=None if is_indexed else request.model,
            **{name: getattr(request, name) for name in ("also", "rerank", "depth", "fuse") if name in request.given},
            **request.values(ComputeSettings),
        )
    )
    best = comparison.mixtures[0]
    return RetrievalEvaluation(
        task=RETRIEVAL,
        examples=comparison.queries,
        precision=request.precision,
        products=request.products,
        scores=best.scores,
        intervals=best.intervals,
        cut_texts=0,
        cut_tokens=0,
        comparison=comparison,
    )


def _evaluate_vectors(request: EvaluateRequest) -> Evaluation:
    """The scores of the vectors of a model on a file of pairs or triplets, or of texts with labels."""
    model, data, task = request.model, local_path(request.data), request.task
    if task != CLUSTERING:
        task = form_of_file(data, encoding=request.encoding) if task is None else task_name(task)
    late = late_folder(model)
    require(
        late is None or task != CLUSTERING,
        expected="a model that gives one vector per text, for clustering",
        found="one that gives vectors of tokens",
        fix="score it on pairs or triplets, or name another model",
    )
    examples = _examples(request, "classification" if task == CLUSTERING else task)
    if late is None:
        embedder = load_embedder(model, sparse=True, **request.arguments(load_embedder))
    else:
        embedder = load_token_embedder(late, **request.arguments(load_token_embedder))
    lines: list[Mapping[str, Any]] = []
    if task == CLUSTERING:
        scores, cut = score_clusters(embedder, cast("Sequence[TextExample]", examples))
    else:
        metadata = read_metadata(load_any(model).path)
        warn_of_training_file(metadata, data)
        spec = metadata.spec or {}
        scores, predictions = score_vectors(embedder, examples, spec.get("widths", ()) if late is None else ())
        cut = [prediction.cut_tokens for prediction in predictions]
        judge = task_for(vector_spec(task, examples, TaskSettings()))
        lines = list(example_lines(judge, examples, predictions))
    texts, tokens = warn_cut(cut)
    return Evaluation(
        task=task,
        examples=len(examples),
        precision=embedder.encoder.runtime.precision,
        products=embedder.encoder.runtime.products,
        scores=scores,
        intervals=intervals(SIMILARITY, scores, lines),
        cut_texts=texts,
        cut_tokens=tokens,
    )
