"""Sparse vectors: weights of pieces against sentence-transformers, their losses and regularizer, and their training."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest
import torch

from bertsmith.base.core.errors import ConfigError
from bertsmith.base.machine.runtime import choose
from bertsmith.inference.vectors.loading import load_embedder
from bertsmith.models.checkpoints.architectures import new_encoder
from bertsmith.models.checkpoints.load import load_any
from bertsmith.models.heads import piece_weights
from bertsmith.models.heads.encoder_with_head import EncoderForTask
from bertsmith.models.parts.batch import Batch
from bertsmith.recipes.finetuning.baselines import baselines_of
from bertsmith.recipes.finetuning.cheaper import write_linear
from bertsmith.recipes.finetuning.job import FinetuningJob
from bertsmith.recipes.finetuning.settings import FinetuningSettings, RecipeSettings
from bertsmith.recipes.finetuning.vector_workload import VectorTraining
from bertsmith.recipes.sentence_encoders.evaluation import score_vectors
from bertsmith.tasks.datasets.examples import TextExample
from bertsmith.tasks.encoding.units import RowPart
from bertsmith.tasks.specs.kinds import task_for
from bertsmith.tasks.specs.task import FROZEN_COSINE, Task, TaskSpec
from bertsmith.tasks.specs.vector_gold import vector_spec
from bertsmith.tasks.task_data.split import TaskData
from finetuning.cached_gradients import assert_cached_as_whole
from tasks.architecture_samples import write_base_model as write_base_of
from tasks.task_samples import CONFIG, SETTINGS, SPECS, TOKENIZER, examples_of, write_base_model
from training.interruptions import assert_resumes
from training.logs import assert_learns

FREE = "inference-free"
SPARSE = FinetuningSettings(batch_size=16, epochs=1, precision="fp32", dropout=0.0, vectors="sparse")


def sparse_task(name: str = "pairs", objective: str = "ranking", vectors: str = "sparse") -> Task:
    spec = vector_spec(name, (), SETTINGS)
    return task_for(dataclasses.replace(spec, objective=objective, vectors=vectors, reads="max"))


def prepared(base: str, settings: FinetuningSettings, spec: TaskSpec | None = None) -> FinetuningJob:
    examples = examples_of("vectors of partners", 24)
    data = TaskData(train=examples[:16], dev=examples[16:])
    recipe = RecipeSettings(learning_rate=3e-3, bias_correction=True, log_every=1)
    return FinetuningJob.prepare(base, spec or vector_spec("pairs", examples, SETTINGS), data, settings, recipe)


def test_weights_of_packed_rows_are_the_largest_saturated_logits_of_each_row_alone() -> None:
    model = EncoderForTask(new_encoder(CONFIG), sparse_task().head, seed=3).double()
    draw = np.random.default_rng(0)
    rows = [draw.integers(0, CONFIG.vocab_size, size=size) for size in (5, 1, 9, 3)]
    with torch.no_grad():
        packed = model(Batch.from_rows(rows))
        for row, weights in zip(rows, packed, strict=True):
            logits = model.mlm(model.encoder(Batch.from_rows([row])), model.encoder.word_table)
            torch.testing.assert_close(weights, logits.relu().log1p().max(dim=0).values)
    assert packed.shape == (4, CONFIG.vocab_size)
    assert 0 < int((packed > 0).sum()) < packed.numel()


def test_cached_gradients_are_those_of_one_large_batch_with_dropout(monkeypatch: pytest.MonkeyPatch) -> None:
    def compute_few() -> None:  # logits at a time; before, those of all rows at once
        monkeypatch.setattr(piece_weights, "_MOST_LOGITS", 20 * CONFIG.vocab_size)

    assert_cached_as_whole(sparse_task(), "vectors of partners", SPARSE, micro_tokens=60, before_cut=compute_few)


def test_cached_gradients_of_queries_without_an_encoder_are_those_of_one_large_batch() -> None:
    gradients = assert_cached_as_whole(sparse_task(vectors=FREE), "vectors of partners", SPARSE, micro_tokens=60)
    assert float(gradients["query_table.weight"].abs().max()) > 1e-3


def test_queries_without_an_encoder_have_the_weights_and_gradients_of_sentence_transformers() -> None:
    modules = pytest.importorskip("sentence_transformers.sparse_encoder.modules")
    task, examples = sparse_task(vectors=FREE), examples_of("vectors of partners", 5)
    features = task.encode(examples, TOKENIZER)
    model = EncoderForTask(new_encoder(CONFIG), task.head, seed=3)
    assert float(model.query_table.weight.detach().min()) == 1
    draw = torch.Generator().manual_seed(0)
    model.query_table.weight.data.copy_(torch.rand(CONFIG.vocab_size, generator=draw))
    batch = RowPart(features=features, rows=np.arange(10)).gather("cpu").batch
    vectors = model(batch)
    static = modules.SparseStaticEmbedding.__new__(modules.SparseStaticEmbedding)
    torch.nn.Module.__init__(static)
    static.weight, static.num_dimensions = torch.nn.Parameter(model.query_table.weight.detach()), CONFIG.vocab_size
    factors = torch.rand(5, CONFIG.vocab_size, generator=draw)
    ids = [
        torch.tensor(TOKENIZER.encode(example.first)).long() for example in examples if isinstance(example, TextExample)
    ]
    padded = torch.nn.utils.rnn.pad_sequence(ids, batch_first=True)
    mask = torch.nn.utils.rnn.pad_sequence([torch.ones_like(part) for part in ids], batch_first=True)
    theirs = static({"input_ids": padded, "attention_mask": mask})["sentence_embedding"]
    torch.testing.assert_close(vectors[::2], theirs)
    (theirs * factors).sum().backward()
    (gradient,) = torch.autograd.grad((vectors[::2] * factors).sum(), [model.query_table.weight])
    torch.testing.assert_close(gradient, static.weight.grad)
    plain = EncoderForTask(new_encoder(CONFIG), sparse_task().head, seed=3)
    with torch.no_grad():
        torch.testing.assert_close(vectors[1::2], plain(batch.select(range(1, 10, 2))))


@pytest.mark.usefixtures("quiet_transformers")
@pytest.mark.filterwarnings("ignore")
def test_a_folder_of_queries_without_an_encoder_is_a_router_of_that_library_with_equal_vectors(tmp_path: Path) -> None:
    library = pytest.importorskip("sentence_transformers")
    free = dataclasses.replace(SPARSE, batch_size=8, epochs=4, vectors=FREE)
    spec = vector_spec(
        "pairs", examples_of("vectors of partners", 4), dataclasses.replace(SETTINGS, query_prompt="who ")
    )
    job = prepared(write_base_model(tmp_path / "base"), free, spec)
    result = job.train_once(tmp_path / "run", 1)
    texts = ["anna rome", "the film in one " * 12, "good"]
    for folder in (tmp_path / "run" / "model", tmp_path / "linked"):
        if not folder.exists():
            job.write_model(folder, tmp_path / "run" / "model", job.task.spec, result)
        ours = load_embedder(folder, device="cpu", sparse=True)
        theirs = library.SparseEncoder(str(folder), device="cpu")
        for embedder, encode in (
            (ours.for_queries(), theirs.encode_query),
            (ours.for_passages(), theirs.encode_document),
        ):
            expected = encode(texts, convert_to_sparse_tensor=False, show_progress_bar=False)
            np.testing.assert_allclose(embedder.embed(texts), np.asarray(expected), rtol=0, atol=1e-5)
        assert score_vectors(ours, job.data.dev)[0] == pytest.approx(result.scores, abs=1e-6)
    weights = load_any(tmp_path / "run" / "model").tensors["query_table.weight"]
    assert float(weights.std()) > 0.1
    again = prepared(str(tmp_path / "run" / "model"), free, spec).started_model(1)
    torch.testing.assert_close(again.query_table.weight, weights)


@pytest.mark.parametrize(("objective", "texts"), [("ranking", 3), ("margin", 3), ("cosent", 2), ("cosine", 2)])
def test_losses_equal_those_of_sentence_transformers(objective: str, texts: int) -> None:
    losses = pytest.importorskip("sentence_transformers.sparse_encoder.losses")
    make = {
        "ranking": losses.SparseMultipleNegativesRankingLoss,
        "margin": losses.SparseMarginMSELoss,
        "cosent": losses.SparseCoSENTLoss,
        "cosine": losses.SparseCosineSimilarityLoss,
    }[objective]
    draw = torch.Generator().manual_seed(0)
    vectors = torch.rand(6 * texts, 12, generator=draw, dtype=torch.float64)
    scores = torch.rand(6, generator=draw, dtype=torch.float64)
    columns = [vectors[position::texts] for position in range(texts)]
    theirs = make(model=torch.nn.Identity()).compute_loss_from_embeddings(columns, scores)
    plain = dataclasses.replace(SPARSE, query_flops=0.0, passage_flops=0.0)
    task = sparse_task("triplets" if texts == 3 else "similarity", objective)
    targets = torch.arange(6 * texts).view(6, texts) if objective == "ranking" else scores
    arguments = (vectors, torch.full((6,), texts), targets, None, 6)
    ours = VectorTraining.loss_of(task.spec, plain).of(*arguments)
    assert float(ours) == pytest.approx(float(theirs))
    regularized = VectorTraining.loss_of(task.spec, dataclasses.replace(SPARSE, query_flops=0.3, passage_flops=0.7))
    regularizer = losses.FlopsLoss(torch.nn.Identity()).compute_loss_from_embeddings
    growing = 0.3 * regularizer(columns[0]) + 0.7 * regularizer(torch.cat(columns[1:]))
    assert float(regularized.regularizer(*arguments[:2])) == pytest.approx(float(growing))


def test_a_training_of_sparse_vectors_learns_and_keeps_the_masked_lm_head(tmp_path: Path) -> None:
    job = prepared(write_base_model(tmp_path / "base"), dataclasses.replace(SPARSE, batch_size=8, epochs=20))
    result = job.train_once(tmp_path / "run", 1)
    assert_learns(tmp_path / "run", 0.9, steps=6)
    assert set(result.scores) == {"recall@1", "mrr@10"}
    folder = load_any(tmp_path / "run" / "model")
    assert "mlm" in folder.parts
    assert folder.metadata.spec is not None
    assert folder.metadata.spec["vectors"] == "sparse"


@pytest.mark.parametrize("vectors", ["sparse", FREE])
def test_a_training_that_is_killed_resumes_to_the_same_bytes(vectors: str, tmp_path: Path) -> None:
    settings = dataclasses.replace(SPARSE, batch_size=8, epochs=2, dropout=0.1, micro_tokens=60, vectors=vectors)
    assert_resumes(prepared(write_base_model(tmp_path / "base"), settings), tmp_path)


def test_the_regularizer_grows_with_the_square_of_the_steps_in_the_first_third() -> None:
    task = sparse_task()
    features = task.encode(examples_of("vectors of partners", 20), TOKENIZER, training=True)
    model = EncoderForTask(new_encoder(CONFIG), task.head, seed=3)
    work = VectorTraining(model, task, features, None, TOKENIZER, SPARSE, choose("cpu", "fp32"), seed=5)
    work.fix_steps(30)
    assert [work.share_of_flops(step) for step in (0, 5, 10, 29)] == [0.0, 0.25, 1.0, 1.0]


def test_weights_have_the_gradients_of_all_logits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the largest logits are computed with a graph; the others have no gradient."""
    monkeypatch.setattr(piece_weights, "_MOST_PRODUCTS", 7)
    model = EncoderForTask(new_encoder(CONFIG), sparse_task().head, seed=3).double()
    draw = np.random.default_rng(0)
    batch = Batch.from_rows([draw.integers(0, CONFIG.vocab_size, size=size) for size in (5, 1, 9)])
    weights = model(batch)
    factors = torch.rand(weights.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    (weights * factors).sum().backward()
    ours = {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}
    model.zero_grad(set_to_none=True)
    rows = model.mlm(model.encoder(batch), model.encoder.word_table).split(list(batch.lengths))
    ((torch.stack([row.relu().log1p().amax(dim=0) for row in rows])) * factors).sum().backward()
    theirs = {name: p.grad for name, p in model.named_parameters() if p.grad is not None}
    assert ours.keys() == theirs.keys()
    for name, gradient in theirs.items():
        torch.testing.assert_close(ours[name], gradient)


def test_logits_that_are_no_numbers_make_weights_that_are_none() -> None:
    model = EncoderForTask(new_encoder(CONFIG), sparse_task().head, seed=3)
    batch = Batch.from_rows([np.array([1, 7, 2])])
    with torch.no_grad():
        model.mlm.bias[9] = torch.nan
        assert model(batch)[0, 9].isnan()
    assert model(batch)[0, 9].isnan(), "in training, where the loss then says so"


@pytest.mark.parametrize(("vectors", "widths"), [("dense", "16"), ("sparse", None), (FREE, None), ("tokens", "12")])
def test_the_baseline_of_frozen_vectors_is_the_cosine_of_means_whatever_the_form(
    vectors: str, widths: str | None, tmp_path: Path
) -> None:
    job = prepared(write_base_model(tmp_path / "base"), dataclasses.replace(SPARSE, vectors=vectors, widths=widths))
    (tmp_path / "run").mkdir()
    (result,) = (
        system
        for system in baselines_of(job, tmp_path / "run", resume=False).results
        if system["name"] == FROZEN_COSINE
    )
    write_linear(job, None, result, tmp_path / "model")
    embedder = load_embedder(tmp_path / "model", device="cpu")
    assert (embedder.pooling, embedder.similarity) == ("mean", "cosine")
    assert score_vectors(embedder, job.data.dev)[0] == pytest.approx(result["scores"])


def test_dense_vectors_are_not_named_in_metadata() -> None:
    assert "vectors" not in vector_spec("pairs", (), SETTINGS).to_dict()


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"widths": "16"}, "--vectors dense for --widths; found sparse"),
        ({"vectors": FREE, "lora_rank": 2}, "a training without an adapter, for --vectors inference-free"),
        ({"reads": "mean"}, "reads as max with --vectors sparse; found mean"),
        ({"vector_loss": "softmax"}, "vector_loss ranking for the task pairs with --vectors sparse; found softmax"),
    ],
)
def test_settings_that_do_not_fit_sparse_vectors_are_refused_in_one_line(
    settings: dict[str, str], expected: str, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match=expected):
        prepared(write_base_model(tmp_path / "base"), dataclasses.replace(SPARSE, **settings))


def test_sparse_vectors_are_refused_for_other_tasks_and_for_models_without_their_head(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="for --vectors, --vector-loss and --widths; found sentiment"):
        prepared(write_base_model(tmp_path / "base"), SPARSE, SPECS["single"])
    for architecture in ("openai-gpt", "elmo"):
        base = write_base_of(tmp_path / architecture, architecture)
        with pytest.raises(ConfigError, match="an encoder in both directions with its masked-LM head"):
            prepared(base, SPARSE)
    with pytest.raises(ConfigError, match="did you mean 'sparse'"):
        dataclasses.replace(SPARSE, vectors="spares")
