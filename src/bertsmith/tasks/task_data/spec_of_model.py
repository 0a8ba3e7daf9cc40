"""The task of a model folder, from its metadata or from another tool's configuration."""

from collections.abc import Sequence

from bertsmith.base.core.errors import CheckpointError
from bertsmith.base.core.settings import require
from bertsmith.models.checkpoints.cross_encoders import DEFAULT
from bertsmith.models.checkpoints.model_folder import ModelFolder
from bertsmith.models.model_files.metadata import OF_VECTORS, ModelMetadata
from bertsmith.tasks.specs.regression import SIGMOID
from bertsmith.tasks.specs.settings import TaskSettings
from bertsmith.tasks.specs.task import TaskSpec

# By the suffix of the class name in `transformers`.
_KINDS = {
    "ForSequenceClassification": "classification",
    "ForTokenClassification": "tagging",
    "ForMultipleChoice": "choice",
    "ForQuestionAnswering": "span",
}

# What a model answers as it was pre-trained, by its objective.
_OF_OBJECTIVES = {"text+codes": "ask it with `bertsmith codes fill`, `match` or `next`, or "}


def spec_of(folder: ModelFolder) -> TaskSpec | None:
    """The spec of the task that a model was fine-tuned for; None if it has no task head.

    A model from another tool has no spec. Its kind follows from the architecture and its labels from `config.json`;
    rows are as long as the model reads. A single output is a number if `problem_type` says so, else a probability, as
    in the pipelines of `transformers`; a CrossEncoder of sentence-transformers says what it computes from its outputs.
    Whether a classifier expects pairs is unknown, so it accepts both. The names of tags do not tell IOB1 from IOB2, so
    only the sequences of IOBES are constrained.
    """
    metadata = folder.metadata
    pairs = metadata.scoring or {}
    if metadata.spec is not None:
        return TaskSpec.from_dict(metadata.spec, f"{folder.path}/bertsmith.json")
    kind = _kind(folder)
    if kind is None:
        return None
    labels = metadata.labels
    if not labels and kind in ("classification", "tagging"):
        labels = tuple(f"LABEL_{number}" for number in range(len(folder.tensors["classifier.bias"])))
    _require_answerable(folder, kind, labels)
    usual = folder.config.max_tokens if "activation" in pairs else 384 if kind == "span" else 512
    longest = min(folder.config.max_tokens, pairs.get("max_length") or usual)
    several = kind == "classification" and (
        metadata.problem_type == "multi_label_classification" or pairs.get("activation") == SIGMOID
    )
    scheme = _scheme(labels) if kind == "tagging" else ""
    metrics = {"regression": ("pearson", "spearman"), "span": ("f1",)}.get(kind, ("accuracy",))
    if scheme:
        metrics = ("f1",)
    if several:
        metrics = ("subset_accuracy", "macro_f1", "micro_f1")
    return TaskSpec(
        kind=kind,
        name="multi-label" if several else kind,
        pair=None if kind in ("classification", "regression") else False,
        labels=labels if kind in ("classification", "tagging") else (),
        multi_label=several,
        activation=_activation(metadata) if kind == "regression" else "",
        prompt=pairs.get("prompt") or "",
        metric=metrics[-1],
        metrics=metrics,
        scheme=scheme,
        settings=TaskSettings(
            max_length=longest,
            long_text="halves" if kind in ("classification", "regression") else "longest_first",
            constrained_tags=scheme != "IOB2",
        ),
    )


def spec_of_head(folder: ModelFolder) -> TaskSpec | None:
    """The spec of the task whose head is in a folder; None without a head, as in a model of vectors."""
    spec = spec_of(folder)
    return None if spec is None or spec.kind in OF_VECTORS else spec


def require_spec(folder: ModelFolder) -> TaskSpec:
    """The spec of a fine-tuned model."""
    spec = spec_of(folder)
    if spec is None:
        raise CheckpointError(
            expected=f"a fine-tuned model in '{folder.name}'",
            found="one without a task head" + (f" ({', '.join(folder.parts)})" if folder.parts else ""),
            fix=_OF_OBJECTIVES.get(folder.metadata.objective or "", "") + "fine-tune it first (bertsmith finetune)",
        )
    return spec


def _kind(folder: ModelFolder) -> str | None:
    """The kind, from the architecture, or from the parameters if the checkpoint names no architecture."""
    name = folder.metadata.architecture or ""
    kind = next((kind for ending, kind in _KINDS.items() if name.endswith(ending)), None)
    if kind is None and "span" in folder.parts:
        kind = "span"
    if kind is None and "classifier" in folder.parts:
        kind = "classification" if "pooler" in folder.parts else "tagging"
    if kind == "classification" and len(folder.tensors["classifier.bias"]) == 1:
        return "regression"
    return kind


def _activation(metadata: ModelMetadata) -> str:
    """The function of a single output: none for a regression, else the sigmoid, as their owners do."""
    recorded = (metadata.scoring or {}).get("activation")
    if recorded is None:
        return "" if metadata.problem_type == "regression" else SIGMOID
    return SIGMOID if recorded == DEFAULT else str(recorded)


def _require_answerable(folder: ModelFolder, kind: str, labels: Sequence[str]) -> None:
    """Checks that the answers of a model of another tool are labels with different names, or one number."""
    problem = folder.metadata.problem_type
    if kind == "classification":
        require(
            problem != "regression",
            expected=f"one output for a regression (problem_type) in '{folder.name}'",
            found=f"{len(labels)} outputs",
            fix='write "problem_type": "single_label_classification" if they are classes, or use the model with '
            "transformers",
        )
    if kind == "regression":
        activation = _activation(folder.metadata)
        require(
            problem != "single_label_classification" and activation in ("", SIGMOID),
            expected=f"several outputs for one label of several (problem_type, activation) in '{folder.name}'",
            found="one output",
            fix='write "problem_type": "regression" if it is a number',
        )
    repeated = next((label for label in labels if list(labels).count(label) > 1), None)
    require(
        repeated is None,
        expected=f"different names of labels (id2label) in '{folder.name}'",
        found=f"{repeated!r} more than once",
        fix="correct id2label in config.json",
    )


def _scheme(labels: tuple[str, ...]) -> str:
    """The tag scheme implied by the label names; empty if tags have no scheme."""
    prefixes = {label.split("-", 1)[0] for label in labels if "-" in label}
    if not prefixes or not prefixes <= set("BIESO"):
        return ""
    return "IOBES" if prefixes & {"E", "S"} else "IOB2"
