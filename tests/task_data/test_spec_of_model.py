"""The task of models from other tools, from their configuration."""

from pathlib import Path

import pytest

from bertsmith.models.checkpoints.architectures import new_encoder
from bertsmith.models.checkpoints.assembly import save_pretrained
from bertsmith.models.checkpoints.load import load_any
from bertsmith.models.heads.encoder_with_head import EncoderForTask
from bertsmith.models.model_files.metadata import ModelMetadata
from bertsmith.tasks.specs.kinds import task_for
from bertsmith.tasks.specs.named_tasks import official_spec
from bertsmith.tasks.specs.task import TaskSpec
from bertsmith.tasks.task_data.spec_of_model import require_spec
from tasks.task_samples import CONFIG, TOKENIZER


def foreign_spec(path: Path, kind: str, labels: tuple[str, ...]) -> TaskSpec:
    """The spec of a model without our metadata."""
    task = task_for(TaskSpec(kind=kind, name=kind, labels=labels))
    parts = (task.head.part, *(["pooler"] if task.head.pooled else []))
    save_pretrained(
        path,
        EncoderForTask(new_encoder(CONFIG), task.head, seed=0),
        TOKENIZER,
        ModelMetadata.from_dict({"labels": list(labels)}),
        trained=parts,
    )
    (path / "bertsmith.json").unlink()
    return require_spec(load_any(path))


@pytest.mark.parametrize(
    ("labels", "scheme", "metric"),
    [
        (("O", "B-PER", "I-PER"), "IOB2", "f1"),
        (("O", "B-PER", "E-PER"), "IOBES", "f1"),
        (("NOUN", "VERB"), "", "accuracy"),
        (("LABEL_0", "LABEL_1"), "", "accuracy"),
    ],
)
def test_tags_without_a_scheme_are_scored_by_their_accuracy(
    tmp_path: Path, labels: tuple[str, ...], scheme: str, metric: str
) -> None:
    spec = foreign_spec(tmp_path / "model", "tagging", labels)
    assert (spec.labels, spec.scheme, spec.metric, spec.metrics) == (labels, scheme, metric, (metric,))


def test_the_official_spec_keeps_the_order_of_outputs_named_like_the_labels(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    named = foreign_spec(tmp_path / "named", "classification", ("ENTAILMENT", "NEUTRAL", "CONTRADICTION"))
    official = official_spec("mnli", named)
    assert official.labels == ("entailment", "neutral", "contradiction")
    assert (official.pair, official.metrics) == (True, ("accuracy",))
    assert official.settings.max_length == CONFIG.max_position_embeddings
    assert capsys.readouterr().err == ""
    unnamed = foreign_spec(tmp_path / "unnamed", "classification", ("LABEL_0", "LABEL_1", "LABEL_2"))
    assert official_spec("mnli", unnamed).labels == ("contradiction", "entailment", "neutral")
    assert capsys.readouterr().err == (
        "warning: the outputs LABEL_0, LABEL_1, LABEL_2 are taken as the labels contradiction, entailment, neutral "
        "of mnli\n"
    )
    assert official_spec("cola", unnamed) == unnamed
    assert official_spec("classification", unnamed) == unnamed
