"""exported = trained, for every head: the same logits in `transformers`, and theirs here; Google's checkpoints too."""

from pathlib import Path

import numpy as np
import pytest
import torch
import transformers

from bertsmith.base.core.errors import CheckpointError
from bertsmith.base.machine.runtime import choose
from bertsmith.inference.predictors.loading import load_predictor
from bertsmith.models.checkpoints.architectures import new_encoder
from bertsmith.models.checkpoints.assembly import save_pretrained
from bertsmith.models.checkpoints.rewriting import convert
from bertsmith.models.heads.encoder_with_head import EncoderForTask
from bertsmith.models.model_files.metadata import ModelMetadata
from bertsmith.tasks.encoding.forward import task_logits
from bertsmith.tasks.encoding.units import EncodedExamples
from bertsmith.tasks.specs.kinds import task_for
from tasks.architecture_samples import (
    WITH_HEADS,
    WITH_OWN_TOKENIZER,
    config_of,
    peer_tokenizer,
    tokenizer_of,
    write_byte_level,
)
from tasks.task_samples import SPECS, TOKENIZER, examples_of

CLASSES = {
    "classification": transformers.AutoModelForSequenceClassification,
    "regression": transformers.AutoModelForSequenceClassification,
    "choice": transformers.AutoModelForMultipleChoice,
    "tagging": transformers.AutoModelForTokenClassification,
    "span": transformers.AutoModelForQuestionAnswering,
}
KINDS = ["single", "pair", "several labels", "number", "choice", "tags", "answer"]


EVERY = pytest.mark.parametrize("kind", KINDS)
EVERY_ARCHITECTURE = pytest.mark.parametrize("architecture", WITH_HEADS)


def write_model(path: Path, kind: str, architecture: str = "bert", seed: int = 4) -> EncoderForTask:
    spec = SPECS[kind]
    task = task_for(spec)
    model = EncoderForTask(new_encoder(config_of(architecture)), task.head, seed=seed)
    info = {"task": spec.kind, "labels": list(spec.labels), "spec": spec.to_dict()}
    save_pretrained(
        path,
        model,
        tokenizer_of(architecture),
        ModelMetadata.from_dict(info),
        trained=(task.head.part, *(["pooler"] if task.head.uses_pooler(model.config) else [])),
    )
    return model.eval()


@torch.no_grad()
def peer_logits(model: torch.nn.Module, features: EncodedExamples, kind: str) -> np.ndarray:
    """The logits of `transformers`, row by row, at the positions that our head reads."""
    model.eval()
    result = []
    for row in range(len(features.rows)):
        token_ids, segment_ids = (torch.from_numpy(part.astype(np.int64))[None] for part in features.rows.row(row))
        if kind == "choice":
            token_ids, segment_ids = token_ids[None], segment_ids[None]
        segments = {"token_type_ids": segment_ids} if getattr(model.config, "type_vocab_size", 0) > 1 else {}
        output = model(input_ids=token_ids, **segments)
        if kind == "answer":
            result.append(torch.stack([output.start_logits[0], output.end_logits[0]], -1).numpy())
        elif kind == "tags":
            begin = features.rows.offsets[row]
            inside = features.read[(features.read >= begin) & (features.read < features.rows.offsets[row + 1])] - begin
            result.append(output.logits[0].numpy()[inside])
        else:
            result.append(output.logits.numpy())
    return np.concatenate(result)


@EVERY_ARCHITECTURE
@EVERY
def test_our_model_gives_the_same_logits_in_transformers(kind: str, architecture: str, tmp_path: Path) -> None:
    model = write_model(tmp_path / "ours", kind, architecture)
    features = task_for(SPECS[kind]).encode(examples_of(kind, 6), tokenizer_of(architecture))
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


@EVERY_ARCHITECTURE
@EVERY
def test_a_transformers_model_makes_predictions_here(kind: str, architecture: str, tmp_path: Path) -> None:
    spec = SPECS[kind]
    write_model(tmp_path / "ours", kind, architecture)
    theirs = CLASSES[spec.kind].from_pretrained(tmp_path / "ours", attn_implementation="eager")
    theirs.save_pretrained(tmp_path / "theirs")
    if architecture == "roberta":
        write_byte_level(tmp_path / "theirs")
    elif architecture in WITH_OWN_TOKENIZER:
        peer_tokenizer(architecture).save_pretrained(tmp_path / "theirs")
    else:
        TOKENIZER.vocabulary.save(tmp_path / "theirs" / "vocab.txt")
    predictor = load_predictor(tmp_path / "theirs")
    assert predictor.task.spec.kind == spec.kind
    assert predictor.task.spec.labels == spec.labels
    assert predictor.task.spec.multi_label == spec.multi_label
    examples = examples_of(kind, 6)
    mine = load_predictor(tmp_path / "ours").predict(examples)
    for answer, other in zip(mine, predictor.predict(examples), strict=True):
        for name in ("label", "value", "index", "tags", "text"):
            assert answer.to_dict().get(name) == other.to_dict().get(name)


@pytest.mark.parametrize("kind", ["single", "answer"])
def test_a_fine_tuned_model_survives_a_round_trip_through_googles_format(kind: str, tmp_path: Path) -> None:
    write_model(tmp_path / "ours", kind)
    convert(tmp_path / "ours", tmp_path / "google", to="google")
    examples = examples_of(kind, 6)
    there = load_predictor(tmp_path / "google").predict(examples)
    assert [answer.to_dict() for answer in there] == [
        prediction.to_dict() for prediction in load_predictor(tmp_path / "ours").predict(examples)
    ]


def test_a_google_checkpoint_without_our_metadata_still_makes_predictions(tmp_path: Path) -> None:
    write_model(tmp_path / "ours", "single")
    convert(tmp_path / "ours", tmp_path / "google", to="google")
    (tmp_path / "google" / "bertsmith.json").unlink()
    predictor = load_predictor(tmp_path / "google")
    assert predictor.task.spec.labels == ("LABEL_0", "LABEL_1")
    assert len(predictor.predict(examples_of("single", 3))) == 3


def test_a_model_without_a_task_head_is_refused(tmp_path: Path) -> None:
    from tasks.task_samples import write_base_model

    with pytest.raises(CheckpointError, match="fine-tune it first"):
        load_predictor(write_base_model(tmp_path / "base"))
