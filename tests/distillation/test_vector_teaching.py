"""Distillation of text vectors on plain text: the loss, new and continued students, resumed runs, bad input."""

import dataclasses
import itertools
from pathlib import Path

import numpy as np
import pytest
import torch

import bertsmith
from bertsmith.app.library.distillation import distill_corpus
from bertsmith.base.core.errors import ConfigError, VocabularyError
from bertsmith.base.machine.runtime import choose
from bertsmith.inference.vectors.loading import load_embedder
from bertsmith.models.checkpoints.assembly import load_pretrained, save_pretrained
from bertsmith.models.checkpoints.load import load_any
from bertsmith.models.model_files.metadata import ModelMetadata
from bertsmith.recipes.distillation.settings import CorpusDistillationSettings
from bertsmith.recipes.distillation.vector_teaching import VectorTeaching, principal_directions
from bertsmith.text.corpus.shards import Corpus
from bertsmith.text.tokenizers.vocabulary import Vocabulary
from bertsmith.text.tokenizers.wordpiece import WordPieceTokenizer
from bertsmith.training.pretraining.settings import PretrainingDataSettings, PretrainingRunSettings
from bertsmith.training.pretraining.workload import Pretraining
from distillation.distillation_samples import assert_same_models
from tasks.task_samples import CONFIG, TOKENIZER, examples_of, untrained, write_base_model
from training.interruptions import killed_at_step
from training.logs import steps_of

FAST = {
    "method": "vectors",
    "steps": 6,
    "max_length": 32,
    "rows_per_step": 8,
    "precision": "fp32",
    "log_every": 1,
    "evaluation_rows": 4,
}


@pytest.fixture(scope="module")
def teacher(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A wider model with another vocabulary: the same pieces in another order."""
    folder = tmp_path_factory.mktemp("teacher") / "model"
    pieces = list(TOKENIZER.vocabulary.pieces)
    tokenizer = WordPieceTokenizer(Vocabulary([*pieces[:5], *reversed(pieces[5:])]), TOKENIZER.rules)
    config = dataclasses.replace(CONFIG, hidden_size=144, intermediate_size=160)
    metadata = ModelMetadata.from_dict({"task": "pretraining"})
    save_pretrained(str(folder), untrained(config, 3), tokenizer, metadata)
    return str(folder)


@pytest.fixture(scope="module")
def student(tmp_path_factory: pytest.TempPathFactory) -> str:
    return write_base_model(tmp_path_factory.mktemp("student") / "model", 5)


def test_the_loss_is_masked_lm_and_one_minus_the_cosine_of_the_whole_row(
    teacher: str, student: str, corpus: Path
) -> None:
    source, embedder = Corpus.open(corpus), load_embedder(teacher, precision="fp32")
    directions = principal_directions(embedder, source, 32, 1)
    model = load_pretrained(load_any(student)).model.double().eval()
    settings = CorpusDistillationSettings(method="vectors", mlm_weight=0.5, vector_weight=7.0)
    teaching = VectorTeaching(embedder, directions, source.tokenizer, settings, {}, is_new=False)
    data = PretrainingDataSettings(objective="mlm", max_length=32, dynamic=True)
    pieces, runtime = source.tokenizer.vocabulary, choose("cpu", "fp64")
    work = Pretraining(
        model,
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
    total, distances, masked, predictions, rows = 0.0, 0.0, 0.0, 0, 0
    theirs = bertsmith.load(teacher)
    for batch in batches:
        with torch.no_grad():
            total += work._taught(teaching, model, batch, None)[0].item()
            output = model(batch.batch, masked=batch.predicted_positions)
        masked += torch.nn.functional.cross_entropy(output.mlm_logits, batch.targets, reduction="sum").item()
        predictions += len(batch.targets)
        ids = batch.batch.token_ids.clone()
        ids[batch.predicted_positions] = batch.targets
        for begin, end in itertools.pairwise(np.cumsum((0, *batch.batch.lengths))):
            wanted = theirs.embed([source.tokenizer.decode(ids[begin:end].numpy())])[0] @ directions
            vector = output.hidden[begin:end].mean(dim=0).numpy()
            distances += 1 - float(vector @ wanted) / float(np.linalg.norm(vector) * np.linalg.norm(wanted))
            rows += 1
    assert total == pytest.approx(0.5 * masked / (predictions + 1e-5) + 7 * distances / rows, rel=1e-4)


def test_the_directions_keep_the_cosines_of_texts_better_than_any_others(teacher: str, corpus: Path) -> None:
    source, embedder = Corpus.open(corpus), load_embedder(teacher, precision="fp32")
    directions = principal_directions(embedder, source, 8, 1)
    assert directions.shape == (144, 8)
    np.testing.assert_allclose(directions.T @ directions, np.eye(8), atol=1e-5)
    vectors = embedder.embed([example.first for example in examples_of("single", 64, seed=9)])
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    kept = np.square(vectors @ directions).sum()
    others, _ = np.linalg.qr(np.random.default_rng(0).standard_normal((144, 8)))
    assert kept > 0.8 * len(vectors)
    assert kept > 5 * np.square(vectors @ others).sum()


def test_a_new_student_starts_with_the_vectors_of_its_pieces_and_learns_those_of_texts(
    teacher: str, corpus: Path, tmp_path: Path
) -> None:
    settings = {**FAST, "steps": 40, "student": "tiny", "dropout": 0.0}
    distill_corpus(teacher, corpus, tmp_path / "run", **settings)
    steps = steps_of(tmp_path / "run")
    for line in steps:
        assert line["loss"] == pytest.approx(2 * line["mlm_loss"] + 20 * line["vector_loss"], rel=1e-3)
    assert np.mean([line["vector_loss"] for line in steps[-5:]]) < 0.5 * steps[0]["vector_loss"]
    folder = load_any(tmp_path / "run/model")
    assert folder.metadata.training["teacher"] == "BERT, 2 layers, width 144, 4 attention heads, vectors by mean"
    assert folder.metadata.training["student"] == "new model of size tiny"
    assert (tmp_path / "run/model/modules.json").exists()
    assert "and in `sentence-transformers` with the same vectors" in (tmp_path / "run/model/README.md").read_text()
    texts = [example.first for example in examples_of("single", 32, seed=9)]
    directions = principal_directions(load_embedder(teacher), Corpus.open(corpus), 128, 1)
    wanted = bertsmith.load(teacher).embed(texts) @ directions
    loaded = bertsmith.load(tmp_path / "run/model")
    assert len(loaded.fill(["a [MASK] film"], top=3)[0][0]) == 3  # it keeps the masked-LM head
    vectors = loaded.embed(texts)
    cosines = (wanted * vectors).sum(axis=1) / np.linalg.norm(wanted, axis=1) / np.linalg.norm(vectors, axis=1)
    assert cosines.mean() > 0.8
    # A second training continues it, although another sample of texts gives other directions.
    others = principal_directions(load_embedder(teacher), Corpus.open(corpus), 128, 7)
    assert np.abs((directions * others).sum(axis=0)).min() < 0.9
    continued = {**FAST, "steps": 1, "student": str(tmp_path / "run/model"), "dropout": 0.0, "seed": 7}
    distill_corpus(teacher, corpus, tmp_path / "more", **continued)
    assert steps_of(tmp_path / "more")[0]["vector_loss"] < 0.1 * steps[0]["vector_loss"]


def test_the_directions_of_a_continued_student_are_turned_within_their_span(
    teacher: str, student: str, corpus: Path
) -> None:
    source, embedder = Corpus.open(corpus), load_embedder(teacher, precision="fp32")
    directions = principal_directions(embedder, source, 32, 1)
    turned = principal_directions(embedder, source, 32, 1, load_embedder(student, precision="fp32"))
    np.testing.assert_allclose(turned.T @ turned, np.eye(32), atol=1e-5)
    np.testing.assert_allclose(turned @ turned.T, directions @ directions.T, atol=1e-5)
    texts = [f"a film of {number} parts" for number in range(40)]
    students, teachers = bertsmith.load(student).embed(texts), embedder.embed(texts)
    assert (students * (teachers @ turned)).sum() > (students * (teachers @ directions)).sum()


def test_the_word_vectors_of_a_new_student_are_those_of_the_teacher_and_others_are_kept(
    teacher: str, student: str, corpus: Path
) -> None:
    source, embedder = Corpus.open(corpus), load_embedder(teacher, precision="fp32")
    directions = principal_directions(embedder, source, 32, 1)
    settings = CorpusDistillationSettings(method="vectors")
    for is_new in (True, False):
        model = load_pretrained(load_any(student)).model
        before = model.encoder.word_table.detach().clone()
        VectorTeaching(embedder, directions, TOKENIZER, settings, {}, is_new=is_new).initialize(model)
        table = model.encoder.word_table.detach()
        if not is_new:
            assert torch.equal(table, before)
            continue
        assert torch.equal(table[:5], before[:5])  # special pieces
        torch.testing.assert_close(table.norm(dim=1), before.norm(dim=1))
        pieces = TOKENIZER.vocabulary.pieces[5:]
        wanted = embedder.embed([piece.removeprefix("##") for piece in pieces]) @ directions
        cosines = torch.nn.functional.cosine_similarity(table[5:], torch.from_numpy(wanted))
        assert cosines.min() > 0.999


def test_rows_that_are_longer_than_the_teacher_reads_are_announced(
    student: str, corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = {**FAST, "steps": 1, "student": student}
    distill_corpus(student, corpus, tmp_path / "run", **settings)
    assert "and the teacher reads" not in capsys.readouterr().err
    short, config = tmp_path / "short", dataclasses.replace(CONFIG, max_position_embeddings=16)
    metadata = ModelMetadata.from_dict({"task": "pretraining"})
    save_pretrained(str(short), untrained(config, 6), TOKENIZER, metadata)
    with pytest.raises(ConfigError, match="the teacher: max_length of at most 16, the positions"):
        distill_corpus(short, corpus, tmp_path / "longer", **settings)
    of_recipe = {**settings, "student": "tiny"}
    del of_recipe["max_length"]
    with pytest.raises(ConfigError, match="a narrower `student`"):
        distill_corpus(short, corpus, tmp_path / "new", **of_recipe)
    assert "rows have up to 128 tokens, and the teacher reads 16" in capsys.readouterr().err


@pytest.mark.parametrize("of_size", [True, False])
def test_a_resumed_run_ends_with_the_same_bytes(
    of_size: bool, teacher: str, student: str, corpus: Path, tmp_path: Path
) -> None:
    settings = {**FAST, "student": "tiny" if of_size else student, "save_every": 2}
    distill_corpus(teacher, corpus, tmp_path / "straight", **settings)
    with killed_at_step(5):
        distill_corpus(teacher, corpus, tmp_path / "run", **settings)
    distill_corpus(teacher, corpus, tmp_path / "run", resume=True, **settings)
    assert_same_models(tmp_path / "straight", tmp_path / "run")


def test_layers_of_the_teacher_are_a_student_of_its_width(corpus: Path, student: str, tmp_path: Path) -> None:
    distill_corpus(student, corpus, tmp_path / "run", **{**FAST, "layers": "1"})
    config = load_any(tmp_path / "run/model").config
    assert (config.num_hidden_layers, config.hidden_size) == (1, 32)


def test_layers_of_a_teacher_with_another_vocabulary_are_refused(teacher: str, corpus: Path, tmp_path: Path) -> None:
    with pytest.raises(VocabularyError, match="a corpus made with the vocabulary of"):
        distill_corpus(teacher, corpus, tmp_path / "run", **FAST)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"student": "base"}, r"a student at most as wide as the vectors of its teacher \(144\)"),
        ({"vector_weight": 0.0}, "a loss against the teacher"),
        ({"student": "tiny", "objective": "nsp"}, "an objective that predicts masked pieces"),
        ({"student": "tiny", "size": "mini"}, "a student defined by `student` and `layers`"),
    ],
)
def test_settings_that_do_not_fit_are_one_line(
    changes: dict[str, object], message: str, teacher: str, corpus: Path, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match=message):
        distill_corpus(teacher, corpus, tmp_path / "run", **{**FAST, **changes})
    assert not (tmp_path / "run").exists()


def test_a_corpus_at_an_address_is_refused(teacher: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="a corpus in a folder"):
        distill_corpus(teacher, "memory://corpus", tmp_path / "run", **FAST)
    with pytest.raises(ConfigError, match="expected the host of an address"):
        distill_corpus(teacher, "hdfs:///corpus", tmp_path / "run", **FAST)
