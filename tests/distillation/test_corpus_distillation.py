"""General distillation through the loop of pre-training: losses, folders, resumed runs, bad input."""

import itertools
from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy
import torch
import transformers

from bertsmith.app.library.distillation import distill_corpus
from bertsmith.base.core.errors import CheckpointError, ConfigError, VocabularyError
from bertsmith.base.core.requests import from_file
from bertsmith.base.machine.runtime import choose
from bertsmith.base.storage.files import read_json
from bertsmith.models.checkpoints.assembly import load_pretrained
from bertsmith.models.checkpoints.load import load_any
from bertsmith.models.parts.batch import Batch
from bertsmith.recipes.distillation.corpus_teaching import CorpusTeaching
from bertsmith.recipes.distillation.request import DistillCorpusRequest
from bertsmith.recipes.distillation.settings import CorpusDistillationSettings
from bertsmith.recipes.distillation.students import as_distilbert, student_of
from bertsmith.text.corpus.build import build_corpus
from bertsmith.text.corpus.shards import Corpus
from bertsmith.training.pretraining.settings import PretrainingDataSettings, PretrainingRunSettings
from bertsmith.training.pretraining.workload import Pretraining
from distillation.distillation_samples import assert_same_models, write_teacher
from oracles.distillation_oracle import cosine_of_row, soft_targets
from tasks.task_samples import TOKENIZER, write_base_model
from training.interruptions import killed_at_step
from training.logs import steps_of

FAST = {"steps": 6, "max_length": 32, "rows_per_step": 8, "precision": "fp32", "log_every": 1, "evaluation_rows": 4}


@pytest.fixture(scope="module")
def teacher(tmp_path_factory: pytest.TempPathFactory) -> str:
    return write_base_model(tmp_path_factory.mktemp("teacher") / "model")


def test_the_loss_of_distilbert_is_that_of_the_formulas(teacher: str, corpus: Path) -> None:
    source, runtime = Corpus.open(corpus), choose("cpu", "fp64")
    student = as_distilbert(student_of(load_any(teacher), layers="1", spread=True).folder)
    mine, theirs = (load_pretrained(source).model.double().eval() for source in (student, load_any(teacher)))
    data = PretrainingDataSettings(objective="mlm", max_length=32, dynamic=True)
    settings = CorpusDistillationSettings(temperature=3.0)
    teaching = CorpusTeaching(theirs, student.config, settings, "digest", {}, torch.float64)
    pieces = source.tokenizer.vocabulary
    work = Pretraining(
        mine,
        source,
        None,
        pieces,
        data,
        runtime,
        PretrainingRunSettings(size="tiny", rows_per_step=6, micro_tokens=40),
        teaching=teaching,
    )
    batches = work.plan(0, 0, 1).micro_batches
    assert len(batches) > 1
    with torch.no_grad():
        parts = [teaching_loss(work, batch) for batch in batches]
    total = sum(part.item() for part, _ in parts)
    soft, masked, cosine, predictions, rows = 0.0, 0.0, 0.0, 0, 0
    for batch in batches:
        where = batch.predicted_positions
        with torch.no_grad():
            ours, wanted = (model(batch.batch, masked=where) for model in (mine, theirs))
        for a, b, gold in zip(ours.mlm_logits.numpy(), wanted.mlm_logits.numpy(), batch.targets.tolist(), strict=True):
            soft += soft_targets(a, b, 3.0)
            masked -= float(np.log(np.exp(a[gold] - a.max()) / np.exp(a - a.max()).sum()))
            predictions += 1
        borders = np.cumsum((0, *batch.batch.lengths))
        for begin, end in itertools.pairwise(borders):
            cosine += cosine_of_row(ours.hidden[begin:end].numpy(), wanted.hidden[begin:end].numpy())
            rows += 1
    wanted_total = 5 * soft / predictions + 2 * masked / (predictions + 1e-5) + cosine / rows
    assert total == pytest.approx(wanted_total, rel=1e-5)


def teaching_loss(work: Pretraining, batch: object) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    """The loss without dropout."""
    return work._taught(work.teaching, work.model, batch, None)


def test_a_distilbert_is_taught_and_loads_elsewhere_with_equal_numbers(
    teacher: str, corpus: Path, tmp_path: Path
) -> None:
    distill_corpus(teacher, corpus, tmp_path / "run", layers="1", **FAST)
    assert from_file(DistillCorpusRequest, tmp_path / "run/request.toml")["layers"] == "1"
    steps = steps_of(tmp_path / "run")
    for line in steps:
        terms = 5 * line["soft_loss"] + 2 * line["mlm_loss"] + line["cosine_loss"]
        assert line["loss"] == pytest.approx(terms, rel=1e-3)
    folder = load_any(tmp_path / "run/model")
    assert folder.config.model_type == "distilbert"
    assert folder.parts == ("mlm",)
    assert folder.metadata.training["teacher"] == "BERT, 2 layers, width 32, 4 attention heads"
    peer = transformers.DistilBertForMaskedLM.from_pretrained(tmp_path / "run/model").eval()
    with torch.no_grad():
        wanted = peer(input_ids=torch.tensor([[2, 7, 8, 9, 3]])).logits[0]
    batch = Batch.from_flat(np.array([2, 7, 8, 9, 3]), np.zeros(5, np.int64), [5])
    result = load_pretrained(folder).model.eval()(batch, masked=torch.arange(5)).mlm_logits
    torch.testing.assert_close(result, wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    "options", [{"layers": "1"}, {"method": "tinybert", "student": "1x16", "attention_weight": 0.0}]
)
def test_a_resumed_run_ends_with_the_same_bytes(
    options: dict[str, object], teacher: str, corpus: Path, tmp_path: Path
) -> None:
    settings = {**FAST, **options, "save_every": 2}
    distill_corpus(teacher, corpus, tmp_path / "straight", **settings)
    with killed_at_step(5):
        distill_corpus(teacher, corpus, tmp_path / "run", **settings)
    saved = safetensors.numpy.load_file(max((tmp_path / "run/checkpoints").glob("step-*")) / "model.safetensors")
    assert ("projection.weight" in saved) == ("student" in options)
    distill_corpus(teacher, corpus, tmp_path / "run", resume=True, **settings)
    assert_same_models(tmp_path / "straight", tmp_path / "run")


def test_tinybert_brings_states_closer(teacher: str, corpus: Path, tmp_path: Path) -> None:
    options = {**FAST, "steps": 30, "method": "tinybert", "layers": "1", "learning_rate": 3e-3, "dropout": 0.0}
    distill_corpus(teacher, corpus, tmp_path / "run", **options)
    steps = steps_of(tmp_path / "run")
    for name in ("states_loss", "attention_loss"):
        values = [line[name] for line in steps]
        assert np.mean(values[-5:]) < 0.9 * np.mean(values[:5]), name
    assert all(line["loss"] == pytest.approx(line["states_loss"] + line["attention_loss"], rel=1e-3) for line in steps)
    assert "teacher" in read_json(tmp_path / "run/settings.json")["digests"]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"method": "tinybert", "student": "1x18"}, "attention heads of its teacher"),
        ({"method": "other"}, "unknown method"),
        ({"student": "1x16"}, "a student of the teacher's layers"),
        ({"objective": "mlm+nsp"}, "an objective without pairs"),
        ({"init": "starter"}, "`init`"),
        ({"layers": "3"}, "1 to 2 layers"),
        ({"soft_weight": 0.0, "cosine_weight": 0.0}, "a loss against the teacher"),
    ],
)
def test_settings_that_do_not_fit_are_one_line(
    changes: dict[str, object], message: str, teacher: str, corpus: Path, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match=message):
        distill_corpus(teacher, corpus, tmp_path / "run", **{**FAST, **changes})


def test_a_teacher_without_a_head_for_pieces_and_a_corpus_of_other_pieces_are_refused(
    corpus: Path, teacher: str, tmp_path: Path
) -> None:
    tuned = write_teacher(tmp_path, "single")
    with pytest.raises(CheckpointError, match="a masked-LM head in the teacher"):
        distill_corpus(tuned, corpus, tmp_path / "run", **FAST)
    pieces = type(TOKENIZER.vocabulary)([*TOKENIZER.vocabulary.pieces, "##z"])
    (tmp_path / "text.txt").write_text("the film was great\n" * 40, encoding="utf-8")
    build_corpus([tmp_path / "text.txt"], type(TOKENIZER)(pieces), tmp_path / "other")
    with pytest.raises(VocabularyError, match=f"a corpus made with the vocabulary of '{teacher}'; found"):
        distill_corpus(teacher, tmp_path / "other", tmp_path / "run", layers="1", **FAST)
    assert not (tmp_path / "run").exists()
