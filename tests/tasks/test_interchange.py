"""exported = trained, for every head: the same logits in `transformers`, and theirs here; Google's checkpoints too."""

from pathlib import Path

import numpy as np
import pytest
import torch
import transformers

from bertsmith.checkpoints.architectures import new_encoder
from bertsmith.checkpoints.assembly import save_pretrained
from bertsmith.checkpoints.load import convert
from bertsmith.checkpoints.metadata import ModelMetadata
from bertsmith.encoding.forward import task_logits
from bertsmith.encoding.units import Features
from bertsmith.errors import CheckpointError
from bertsmith.inference.predictor import Predictor
from bertsmith.model.heads import EncoderForTask
from bertsmith.runtime import choose
from bertsmith.tasks.kinds import task_for
from tasks.task_samples import CONFIG, SPECS, TOKENIZER, examples_of

CLASSES = {
    "classification": transformers.AutoModelForSequenceClassification,
    "regression": transformers.AutoModelForSequenceClassification,
    "choice": transformers.AutoModelForMultipleChoice,
    "tagging": transformers.AutoModelForTokenClassification,
    "span": transformers.AutoModelForQuestionAnswering,
}
KINDS = ["single", "pair", "several labels", "number", "choice", "tags", "answer"]


def write_model(path: Path, kind: str, seed: int = 4) -> EncoderForTask:
    spec = SPECS[kind]
    task = task_for(spec)
    model = EncoderForTask(new_encoder(CONFIG), task.head, seed=seed)
    info = {"task": spec.kind, "labels": list(spec.labels), "spec": spec.to_dict()}
    save_pretrained(
        path,
        model,
        TOKENIZER,
        ModelMetadata.from_dict(info),
        trained=(task.head.part, *(["pooler"] if task.head.pooled else [])),
    )
    return model.eval()


@torch.no_grad()
def peer_logits(model: torch.nn.Module, features: Features, kind: str) -> np.ndarray:
    """The logits of `transformers`, row by row, at the positions that our head reads."""
    model.eval()
    found = []
    for row in range(len(features.rows)):
        token_ids, segment_ids = (torch.from_numpy(part.astype(np.int64))[None] for part in features.rows.row(row))
        if kind == "choice":
            token_ids, segment_ids = token_ids[None], segment_ids[None]
        output = model(input_ids=token_ids, token_type_ids=segment_ids)
        if kind == "answer":
            found.append(torch.stack([output.start_logits[0], output.end_logits[0]], -1).numpy())
        elif kind == "tags":
            begin = features.rows.offsets[row]
            inside = features.read[(features.read >= begin) & (features.read < features.rows.offsets[row + 1])] - begin
            found.append(output.logits[0].numpy()[inside])
        else:
            found.append(output.logits.numpy())
    return np.concatenate(found)


@pytest.mark.parametrize("kind", KINDS)
def test_our_model_gives_the_same_logits_in_transformers(kind: str, tmp_path: Path) -> None:
    model = write_model(tmp_path / "ours", kind)
    features = task_for(SPECS[kind]).encode(examples_of(kind, 6), TOKENIZER)
    ours = task_logits(model, features, choose("cpu", "fp32"))
    theirs = CLASSES[SPECS[kind].kind].from_pretrained(tmp_path / "ours", attn_implementation="eager")
    np.testing.assert_allclose(ours, peer_logits(theirs, features, kind), rtol=1e-4, atol=2e-5)
    if SPECS[kind].labels:
        assert list(theirs.config.id2label.values()) == list(SPECS[kind].labels)
    if kind in ("single", "several labels", "number"):
        problem = {
            "single": "single_label_classification",
            "several labels": "multi_label_classification",
            "number": "regression",
        }
        assert theirs.config.problem_type == problem[kind]


@pytest.mark.parametrize("kind", KINDS)
def test_a_transformers_model_makes_predictions_here(kind: str, tmp_path: Path) -> None:
    spec = SPECS[kind]
    write_model(tmp_path / "ours", kind)
    theirs = CLASSES[spec.kind].from_pretrained(tmp_path / "ours", attn_implementation="eager")
    theirs.save_pretrained(tmp_path / "theirs")
    TOKENIZER.vocabulary.save(tmp_path / "theirs" / "vocab.txt")
    predictor = Predictor.load(tmp_path / "theirs")
    assert predictor.task.spec.kind == spec.kind
    assert predictor.task.spec.labels == spec.labels
    assert predictor.task.spec.multi_label == spec.multi_label
    examples = examples_of(kind, 6)
    mine = Predictor.load(tmp_path / "ours").predict(examples)
    for one, other in zip(mine, predictor.predict(examples), strict=True):
        for name in ("label", "value", "index", "tags", "text"):
            assert one.to_dict().get(name) == other.to_dict().get(name)


@pytest.mark.parametrize("kind", ["single", "answer"])
def test_a_fine_tuned_model_survives_a_round_trip_through_googles_format(kind: str, tmp_path: Path) -> None:
    write_model(tmp_path / "ours", kind)
    convert(tmp_path / "ours", tmp_path / "google", to="google")
    examples = examples_of(kind, 6)
    there = Predictor.load(tmp_path / "google").predict(examples)
    assert [one.to_dict() for one in there] == [
        one.to_dict() for one in Predictor.load(tmp_path / "ours").predict(examples)
    ]


def test_a_google_checkpoint_without_our_metadata_still_makes_predictions(tmp_path: Path) -> None:
    write_model(tmp_path / "ours", "single")
    convert(tmp_path / "ours", tmp_path / "google", to="google")
    (tmp_path / "google" / "bertsmith.json").unlink()
    predictor = Predictor.load(tmp_path / "google")
    assert predictor.task.spec.labels == ("LABEL_0", "LABEL_1")
    assert len(predictor.predict(examples_of("single", 3))) == 3


def test_a_model_without_a_task_head_is_refused(tmp_path: Path) -> None:
    from tasks.task_samples import write_base_model

    with pytest.raises(CheckpointError, match="fine-tune it first"):
        Predictor.load(write_base_model(tmp_path / "base"))
