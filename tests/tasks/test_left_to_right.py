"""A left-to-right model: what reads a row as a whole reads its last token, the only one that sees all others."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest
import torch

from bertsmith.base.core.errors import CheckpointError
from bertsmith.base.machine.runtime import BATCH_TOLERANCE, choose
from bertsmith.inference.export.conversion import export
from bertsmith.inference.vectors.loading import load_embedder
from bertsmith.models.checkpoints.architectures import new_encoder
from bertsmith.models.checkpoints.assembly import save_pretrained, untrained
from bertsmith.models.heads.encoder_with_head import EncoderForTask
from bertsmith.models.model_files.metadata import ModelMetadata
from bertsmith.models.parts.batch import Batch
from bertsmith.models.parts.encoder import Encoder
from bertsmith.recipes.finetuning.job import FinetuningJob
from bertsmith.recipes.finetuning.settings import FinetuningSettings, RecipeSettings
from bertsmith.tasks.encoding.forward import task_logits
from bertsmith.tasks.specs.kinds import task_for
from bertsmith.tasks.task_data.split import TaskData
from model.examples import shake
from tasks.task_samples import CONFIG, OF_VECTORS, SPECS, TOKENIZER, examples_of

CAUSAL = dataclasses.replace(CONFIG, is_causal=True, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
HEADS = {name: task_for(spec).head for name, spec in SPECS.items()}
WHOLE_TEXTS = [name for name, head in HEADS.items() if head.pooled and not head.windows and name not in OF_VECTORS]


def pair_of(hidden: torch.Tensor, segments: np.ndarray) -> torch.Tensor:
    return compared(*(hidden[segments == number].mean(dim=0) for number in (0, 1)))


def concat_of(model: EncoderForTask, hidden: torch.Tensor) -> torch.Tensor:
    vectors = torch.cat([hidden[-1], hidden.amax(dim=0), hidden.mean(dim=0)])[None]
    blocks = model.get_submodule("blocks")
    x = torch.nn.functional.layer_norm(vectors, vectors.shape[1:], blocks.norm.weight, blocks.norm.bias)
    x = blocks.hidden(x).relu()
    return torch.nn.functional.layer_norm(x, (50,), blocks.hidden_norm.weight, blocks.hidden_norm.bias)


def apart_of(encoder: Encoder, ids: np.ndarray, segments: np.ndarray) -> torch.Tensor:
    texts = ids[segments == 0], np.concatenate([ids[:1], ids[segments == 1]])
    return compared(*(encoder(Batch.from_rows([text])).mean(dim=0) for text in texts))


def compared(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return torch.cat([a, b, (a - b).abs(), a * b])[None]


def causal_task(kind: str) -> EncoderForTask:
    model = EncoderForTask(new_encoder(CAUSAL), task_for(SPECS[kind]).head, seed=4).eval()
    shake(model)
    return model


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("causal") / "model"
    model = untrained(CAUSAL, seed=3)
    shake(model)
    save_pretrained(path, model, TOKENIZER, ModelMetadata.from_dict({"task": "pretraining"}), trained=("pooler", "mlm"))
    return path


def write_task(path: Path, kind: str) -> Path:
    spec, model = SPECS[kind], causal_task(kind)
    info = {"task": spec.kind, "labels": list(spec.labels), "spec": spec.to_dict()}
    save_pretrained(path, model, TOKENIZER, ModelMetadata.from_dict(info), trained=(task_for(spec).head.part, "pooler"))
    return path


@pytest.mark.parametrize("kind", WHOLE_TEXTS)
def test_the_logits_of_a_left_to_right_model_differ_between_texts(kind: str) -> None:
    features = task_for(SPECS[kind]).encode(examples_of(kind, 8), TOKENIZER)
    logits = task_logits(causal_task(kind), features, choose("cpu", "fp32"))
    assert len(np.unique(logits.round(4), axis=0)) > len(logits) / 2


@pytest.mark.parametrize("kind", WHOLE_TEXTS)
def test_each_row_of_a_left_to_right_model_gives_the_head_on_its_last_token_or_on_the_mean(kind: str) -> None:
    features = task_for(SPECS[kind]).encode(examples_of(kind, 8), TOKENIZER)
    model = causal_task(kind)
    logits = task_logits(model, features, choose("cpu", "fp32"))
    for number, logits_of_text in enumerate(logits):
        ids, segments = features.rows.row(number)
        with torch.inference_mode():
            hidden = model.encoder(Batch.from_flat(ids, segments, [len(ids)]))
            row = {
                "concat": lambda *_, states=hidden: concat_of(model, states),
                "pooler": lambda last, _: model.encoder.pool(last),
                "cls": lambda last, _: last,
                "mean": lambda _, mean: mean,
                "pair": lambda *_, states=hidden, texts=segments: pair_of(states, texts),
                "apart": lambda *_, row=(ids, segments): apart_of(model.encoder, *row),
            }[SPECS[kind].reads](hidden[-1:], hidden.mean(dim=0, keepdim=True))
            alone = model.output_layer(row)[0]
        np.testing.assert_allclose(logits_of_text, alone.numpy(), atol=BATCH_TOLERANCE)


@pytest.mark.parametrize(("causal", "position"), [(False, 0), (True, -1)])
def test_the_last_token_represents_a_row_only_where_attention_is_causal(causal: bool, position: int) -> None:
    encoder = new_encoder(dataclasses.replace(CONFIG, is_causal=causal))
    ids = np.arange(12)
    batch = Batch.from_flat(ids, np.zeros_like(ids), [5, 1, 6])
    read = encoder.read_of_rows(batch)
    assert read.positions.tolist() == [part[position] for part in ([*range(5)], [5], [*range(6, 12)])]
    assert read.counts == (1, 1, 1)


@pytest.mark.parametrize("kind", ["single", "number", "choice"])
def test_a_left_to_right_model_learns_a_small_task(kind: str, folder: Path, tmp_path: Path) -> None:
    data = TaskData(
        train=tuple(examples_of(kind, 128)), dev=tuple(examples_of(kind, 48, seed=1)), digests={}, held_out=False
    )
    settings = FinetuningSettings(epochs=12, batch_size=16, device="cpu", precision="fp32")
    job = FinetuningJob.prepare(folder, SPECS[kind], data, settings, RecipeSettings(learning_rate=2e-3, log_every=100))
    assert job.train_once(tmp_path / "run", 1).scores[SPECS[kind].metric] > 0.9


@pytest.mark.parametrize(("pooling", "layers"), [("cls", "last"), ("cls", "1"), ("pooler", "last")])
def test_a_vector_from_one_position_is_that_of_the_last_token(pooling: str, layers: str, folder: Path) -> None:
    texts = ["the good film was it", "anna", "", "a plot of rome in one film"]
    embedder = load_embedder(folder, pooling=pooling, layers=layers, device="cpu")
    vectors = embedder.embed(texts)
    assert len(np.unique(vectors.round(4), axis=0)) == len(texts)
    encoder = embedder.encoder.model.lower(max(embedder.choice.layers))
    vocabulary = TOKENIZER.vocabulary
    for text, vector in zip(texts, vectors, strict=True):
        ids = np.array([vocabulary.cls_id, *TOKENIZER.encode(text), vocabulary.sep_id])
        with torch.inference_mode():
            last = encoder(Batch.from_rows([ids]))[-1:]
            wanted = (encoder.pool(last) if pooling == "pooler" else last)[0]
        np.testing.assert_allclose(vector, wanted.numpy(), atol=BATCH_TOLERANCE)


@pytest.mark.parametrize("kind", ["single", "number", "choice"])
def test_transformers_reads_the_first_token_so_the_export_to_it_is_refused(kind: str, tmp_path: Path) -> None:
    model = write_task(tmp_path / "model", kind)
    with pytest.raises(
        CheckpointError,
        match=r"is not a model that `transformers` computes: it has a head on the last token of a row, .*; use it",
    ):
        export(model, tmp_path / "there", to="huggingface")
    assert not (tmp_path / "there").exists()
    assert "It does not load in `transformers`" in (model / "README.md").read_text()


def test_tags_of_a_left_to_right_model_are_exported(tmp_path: Path) -> None:
    spec = SPECS["tags"]
    info = {"task": spec.kind, "labels": list(spec.labels), "spec": spec.to_dict()}
    model = causal_task("tags")
    save_pretrained(tmp_path / "model", model, TOKENIZER, ModelMetadata.from_dict(info), trained=("classifier",))
    export(tmp_path / "model", tmp_path / "there", to="huggingface")
    assert "It also loads in `transformers`" in (tmp_path / "there" / "README.md").read_text()
