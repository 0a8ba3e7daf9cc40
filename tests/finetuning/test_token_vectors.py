"""Vectors of tokens: similarities, losses against sentence-transformers, training, folders, evaluation."""

import dataclasses
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

import bertsmith
from bertsmith.base.core.errors import BertsmithError, ConfigError
from bertsmith.inference.vectors.loading import load_token_embedder
from bertsmith.models.checkpoints import huggingface
from bertsmith.models.checkpoints.architectures import new_encoder
from bertsmith.models.checkpoints.load import load_any
from bertsmith.models.heads import token_similarities
from bertsmith.models.heads.encoder_with_head import EncoderForTask
from bertsmith.models.parts.batch import Batch, Read
from bertsmith.recipes.finetuning import base_model
from bertsmith.recipes.finetuning.baselines import LINES_FILE
from bertsmith.recipes.finetuning.settings import FinetuningSettings
from bertsmith.recipes.finetuning.vector_workload import VectorTraining
from bertsmith.tasks.datasets.examples import TextExample
from bertsmith.tasks.specs import similarity
from bertsmith.tasks.specs.kinds import task_for
from bertsmith.tasks.specs.task import Task, TaskSpec
from bertsmith.tasks.specs.vector_gold import vector_spec
from finetuning.cached_gradients import assert_cached_as_whole
from finetuning.test_sparse_vectors import prepared
from tasks.task_samples import BAD, CONFIG, GOOD, SETTINGS, examples_of, write_base_model
from training.interruptions import assert_resumes
from training.logs import assert_learns

TOKENS = FinetuningSettings(
    batch_size=16, epochs=1, precision="fp32", dropout=0.0, vectors="tokens", widths="12"
)  # fmt: skip
LENGTHS = ([3, 1, 4, 2], [2, 5, 1, 3], [4, 4, 2, 1])  # tokens of queries, of what belongs to them, and what does not


def token_task(name: str = "pairs", objective: str = "ranking") -> Task:
    spec = vector_spec(name, (), SETTINGS)
    return task_for(dataclasses.replace(spec, objective=objective, vectors="tokens", reads="mean", widths=(12,)))


def texts_of(lengths: list[int], seed: int) -> list[torch.Tensor]:
    draw = torch.Generator().manual_seed(seed)
    vectors = [torch.randn(length, 12, generator=draw, dtype=torch.float64) for length in lengths]
    return [torch.nn.functional.normalize(text, dim=1).requires_grad_() for text in vectors]


def padded(texts: list[torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
    mask = torch.zeros(len(texts), max(map(len, texts)), dtype=torch.bool)
    for row, text in enumerate(texts):
        mask[row, : len(text)] = True
    return torch.nn.utils.rnn.pad_sequence(texts, batch_first=True), mask


@pytest.mark.parametrize("most", [1, 30, 2**24])
def test_similarities_and_gradients_are_those_of_each_pair_alone(monkeypatch: pytest.MonkeyPatch, most: int) -> None:
    monkeypatch.setattr(token_similarities, "_MOST_PRODUCTS", most)
    queries, documents = texts_of(LENGTHS[0], 1), texts_of(LENGTHS[1], 2)
    ours = token_similarities.token_similarities(torch.cat(queries), LENGTHS[0], torch.cat(documents), LENGTHS[1])
    expected = torch.stack([torch.stack([(q @ d.T).amax(dim=1).mean() for d in documents]) for q in queries])
    torch.testing.assert_close(ours, expected)
    weights = torch.arange(16.0, dtype=torch.float64).view(4, 4)
    gradients = [torch.autograd.grad((each * weights).sum(), [*queries, *documents]) for each in (ours, expected)]
    for mine, theirs in zip(*gradients, strict=True):
        torch.testing.assert_close(mine, theirs)
    pairs = token_similarities.similarities_of_pairs(torch.cat(queries), LENGTHS[0], torch.cat(documents), LENGTHS[1])
    torch.testing.assert_close(pairs, expected.diagonal())


@pytest.mark.parametrize("objective", ["ranking", "margin"])
def test_losses_equal_those_of_sentence_transformers(objective: str) -> None:
    scoring = pytest.importorskip("sentence_transformers.multi_vector_encoder.scoring")
    columns = [texts_of(lengths, seed) for seed, lengths in enumerate(LENGTHS)]
    (queries, query_mask), *others = (padded([text.detach() for text in column]) for column in columns)
    if objective == "ranking":
        documents = [text for pair in zip(*columns[1:], strict=True) for text in pair]
        vectors, mask = padded([text.detach() for text in documents])
        scores = scoring.colbert_scores(
            queries, vectors.view(4, 2, -1, 12), query_mask, mask.view(4, 2, -1), length_normalize=True
        )
        expected = torch.nn.functional.cross_entropy(scores * 20, torch.arange(4) * 2)
        targets = torch.arange(12).view(4, 3)
    else:
        near, far = (
            scoring.colbert_scores_pairwise(queries, vectors, query_mask, mask, length_normalize=True)
            for vectors, mask in others
        )
        targets = torch.tensor([0.5, -0.1, 0.3, 0.0], dtype=torch.float64)
        expected = torch.nn.functional.mse_loss((near - far).double(), targets)
    units = [text.detach() for unit in zip(*columns, strict=True) for text in unit]
    loss = VectorTraining.loss_of(token_task("triplets", objective).spec, TOKENS)
    ours = loss.of(torch.cat(units), torch.full((4,), 3), targets, None, 4, list(map(len, units)))
    assert float(ours) == pytest.approx(float(expected), rel=1e-5)


def test_vectors_of_packed_rows_are_those_of_each_row_alone() -> None:
    model = EncoderForTask(new_encoder(CONFIG), token_task().head, seed=3).double()
    draw = np.random.default_rng(0)
    rows = [draw.integers(0, CONFIG.vocab_size, size=size) for size in (5, 1, 9, 3)]
    batch, places = Batch.from_rows(rows), np.array([0, 2, 5, 6, 8, 14, 15, 17])
    with torch.no_grad():
        packed = model(batch, read=Read.at(batch, places))
        alone = torch.cat([model(Batch.from_rows([row])) for row in rows])
    torch.testing.assert_close(packed, alone[places])
    torch.testing.assert_close(packed.norm(dim=1), torch.ones(len(places), dtype=torch.float64))
    assert packed.shape == (8, 12)


def test_cached_gradients_are_those_of_one_large_batch_with_dropout() -> None:
    gradients = assert_cached_as_whole(token_task(), "vectors of partners", TOKENS, micro_tokens=60)
    assert "token_projection.weight" in gradients


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run whose model was trained for vectors of tokens."""
    folder = tmp_path_factory.mktemp("run")
    job = prepared(write_base_model(folder / "base"), dataclasses.replace(TOKENS, batch_size=8, epochs=20))
    job.train_once(folder / "run", 1)
    return folder / "run"


def test_a_training_learns_and_writes_a_folder_of_late_interaction(run: Path) -> None:
    assert_learns(run, 0.9, steps=6)
    folder = load_any(run / "model")
    assert folder.metadata.spec is not None
    assert folder.metadata.spec["vectors"] == "tokens"
    embedder = load_token_embedder(run / "model", device="cpu")
    assert embedder.width == 12
    weight = folder.tensors["token_projection.weight"]
    np.testing.assert_array_equal(weight, embedder.recipe.weight)
    assert "rerank(" in (run / "model" / "README.md").read_text()


def test_baselines_of_one_vector_per_text_are_scored_and_prompts_are_those_of_sentence_transformers(
    tmp_path: Path,
) -> None:
    records = [
        {"anchor": f"{first} {second}", "positive": f"the {second} film {first} ."} for first in GOOD for second in BAD
    ]
    file = tmp_path / "pairs.jsonl"
    file.write_text("\n".join(map(json.dumps, records)), encoding="utf-8")
    bertsmith.finetune(
        write_base_model(tmp_path / "base"), "pairs", tmp_path / "run", train=file, dev=file, vectors="tokens",
        query_prompt="who ? ", seeds=1, epochs=1, precision="fp32",
    )  # fmt: skip
    lines = (tmp_path / "run" / LINES_FILE).read_text()
    assert "cosine of frozen vectors" in lines
    recipe = load_token_embedder(tmp_path / "run" / "model", device="cpu").recipe
    assert (recipe.queries.prefix, recipe.documents.prefix, recipe.weight.shape[0]) == ("who ? ", "", 128)


def test_an_adapter_has_the_projection_and_gives_the_vectors_of_the_merged_model(tmp_path: Path) -> None:
    settings = dataclasses.replace(TOKENS, lora_rank=2)
    prepared(write_base_model(tmp_path / "base"), settings).train_once(tmp_path / "run", 1)
    merged, adapter = (
        load_token_embedder(tmp_path / "run" / name, device="cpu").queries(["anna rome"]).vectors
        for name in ("model", "adapter")
    )
    np.testing.assert_allclose(adapter, merged, rtol=0, atol=1e-5)


def test_the_digests_of_a_model_cover_the_weights_of_its_projection(run: Path, tmp_path: Path) -> None:
    shutil.copytree(run / "model", tmp_path / "model")
    assert bertsmith.inspect_model(tmp_path / "model").digests == "verified"
    weights = tmp_path / "model" / "1_Dense" / "model.safetensors"
    content = bytearray(weights.read_bytes())
    content[-1] ^= 1
    weights.write_bytes(content)
    assert bertsmith.inspect_model(tmp_path / "model").altered == ("1_Dense/model.safetensors",)
    described = json.loads((tmp_path / "model" / "bertsmith.json").read_text())
    del described["digests"]["1_Dense/model.safetensors"]
    (tmp_path / "model" / "bertsmith.json").write_text(json.dumps(described))
    assert bertsmith.inspect_model(tmp_path / "model").altered == ("1_Dense/model.safetensors",)


@pytest.mark.parametrize("form", ["vectors", ["tokens"], 3])
def test_a_form_of_vectors_that_is_unknown_is_refused_in_one_line(form: object, run: Path, tmp_path: Path) -> None:
    shutil.copytree(run / "model", tmp_path / "model")
    described = json.loads((tmp_path / "model" / "bertsmith.json").read_text())
    described["spec"]["vectors"] = form
    (tmp_path / "model" / "bertsmith.json").write_text(json.dumps(described))
    with pytest.raises(ConfigError, match="unknown form of vectors"):
        load_any(tmp_path / "model")


@pytest.fixture(scope="module", params=["marked", "prompted"])
def expanded(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Path:
    """A run whose queries are filled up, with the markers of ColBERT or prompts in front of texts."""
    folder, patch = tmp_path_factory.mktemp("expanded"), pytest.MonkeyPatch()
    if request.param == "marked":  # by pieces that the small vocabulary has
        for module in (base_model, similarity, huggingface):
            patch.setattr(module, "MARKERS", ("##s", "##n"))
    records = [
        {"anchor": example.first, "positive": example.second} for example in examples_of("vectors of partners", 24)
    ]
    (folder / "pairs.jsonl").write_text("\n".join(map(json.dumps, records)), encoding="utf-8")
    options = {} if request.param == "marked" else {"query_prompt": "who ? "}
    bertsmith.finetune(
        write_base_model(folder / "base"), "pairs", folder / "run", train=folder / "pairs.jsonl",
        dev=folder / "pairs.jsonl", vectors="tokens", widths="12", query_length=9, seeds=1, epochs=1, precision="fp32",
        baselines=False, **options,
    )  # fmt: skip
    yield folder
    patch.undo()


@pytest.mark.usefixtures("quiet_transformers")
@pytest.mark.filterwarnings("ignore")
def test_expanded_queries_have_the_vectors_of_sentence_transformers_and_of_the_training(expanded: Path) -> None:
    library = pytest.importorskip("sentence_transformers")
    folder = expanded / "run" / "model"
    theirs, ours = library.MultiVectorEncoder(str(folder), device="cpu"), load_token_embedder(folder, device="cpu")
    texts = ["anna rome", "the film . ?", "good " * 40]
    queries, documents = ours.queries(texts), ours.documents(texts)
    assert queries.lengths.tolist() == [9, 9, 9]
    for matrix, of_side in (
        (queries, theirs.encode_query(texts, convert_to_numpy=True)),
        (documents, theirs.encode_document(texts, convert_to_numpy=True)),
    ):
        assert matrix.lengths.tolist() == list(map(len, of_side))
        np.testing.assert_allclose(matrix.vectors, np.concatenate(of_side), atol=1e-5)
    scores = bertsmith.evaluate(folder, expanded / "pairs.jsonl", device="cpu").scores
    reported = json.loads((expanded / "run" / "report.json").read_text())["scores"]
    assert scores == pytest.approx({name: score["mean"] for name, score in reported.items()})


def test_an_export_of_a_model_with_expanded_queries_is_refused_in_one_line(expanded: Path, tmp_path: Path) -> None:
    pytest.importorskip("onnx")
    bertsmith.convert(expanded / "run" / "model", tmp_path / "onnx", to="onnx")
    with pytest.raises(BertsmithError, match="a model in torch, to expand queries"):
        bertsmith.load(tmp_path / "onnx", device="cpu").rerank("anna ?", ["the film"])


def test_rows_of_expanded_queries_in_training_are_those_of_the_folder(expanded: Path) -> None:
    folder = load_any(expanded / "run" / "model")
    assert folder.metadata.spec is not None
    task, tokenizer = task_for(TaskSpec.from_dict(folder.metadata.spec, "the folder")), folder.require_tokenizer()
    examples = [TextExample(id=text, first=text, second="anna . ?") for text in ("the film " * 9, "film")]
    for training in (False, True):
        features = task.encode(examples, tokenizer, training=training)
        assert features.lengths.tolist()[::2] == [9, 9]
        assert (features.rows.cut_by_row > 0).tolist() == [True, False, False, False]
        assert features.unseen is not None
        assert (features.unseen > 0).tolist() == [False, False, True, False]
        filling = features.rows.row(2)[0][-int(features.unseen[2]) :]
        assert set(filling.tolist()) == {tokenizer.vocabulary.mask_id}
        assert features.read_per_row.tolist()[::2] == [9, 9], "tokens that fill a query up have vectors"


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"vectors": "dense", "query_length": 9}, "`query_length` needs `vectors=.tokens.`; add it"),
        ({"vectors": "tokens", "query_length": 3}, "a query length from 4 to 64, the maximum tokens per row; found 3"),
        ({"vectors": "tokens", "query_length": 99, "max_length": 32}, "from 4 to 32, .* found 99"),
    ],
)
def test_a_length_of_queries_that_does_not_fit_is_refused_in_one_line(
    tmp_path: Path, options: dict[str, object], expected: str
) -> None:
    (tmp_path / "pairs.jsonl").write_text('{"anchor": "anna", "positive": "rome"}\n' * 4, encoding="utf-8")
    with pytest.raises(ConfigError, match=expected):
        bertsmith.finetune(
            write_base_model(tmp_path / "base"), "pairs", tmp_path / "run", train=tmp_path / "pairs.jsonl",
            dev=tmp_path / "pairs.jsonl", seeds=1, epochs=1, **options,
        )  # fmt: skip


def test_a_training_that_is_killed_resumes_to_the_same_bytes(tmp_path: Path) -> None:
    settings = dataclasses.replace(TOKENS, batch_size=8, epochs=2, dropout=0.1, micro_tokens=60)
    assert_resumes(prepared(write_base_model(tmp_path / "base"), settings), tmp_path)


@pytest.mark.usefixtures("quiet_transformers")
@pytest.mark.filterwarnings("ignore")
def test_the_folder_gives_equal_vectors_in_sentence_transformers(run: Path) -> None:
    library = pytest.importorskip("sentence_transformers")
    theirs = library.MultiVectorEncoder(str(run / "model"), device="cpu")
    ours = load_token_embedder(run / "model", device="cpu")
    texts = ["anna rome", "the film . ?", "good " * 40]
    for matrix, of_side in (
        (ours.queries(texts), theirs.encode_query(texts, convert_to_numpy=True)),
        (ours.documents(texts), theirs.encode_document(texts, convert_to_numpy=True)),
    ):
        assert matrix.lengths.tolist() == list(map(len, of_side))
        np.testing.assert_allclose(matrix.vectors, np.concatenate(of_side), atol=1e-5)


def test_an_export_keeps_the_projection_and_gives_the_same_scores(run: Path, tmp_path: Path) -> None:
    pytest.importorskip("onnx")
    bertsmith.convert(run / "model", tmp_path / "onnx", to="onnx")
    passages = ["the film", "anna was in rome . ?"]
    scores = [
        bertsmith.load(path, device="cpu").rerank("anna ?", passages) for path in (run / "model", tmp_path / "onnx")
    ]
    assert scores[1] == pytest.approx(scores[0], rel=1e-4)


def test_evaluate_scores_the_folder_as_the_training_did(run: Path, tmp_path: Path) -> None:
    examples = examples_of("vectors of partners", 24)[16:]
    records = [{"anchor": example.first, "positive": example.second} for example in examples]
    (tmp_path / "dev.jsonl").write_text("\n".join(map(json.dumps, records)), encoding="utf-8")
    scores = bertsmith.evaluate(run / "model", tmp_path / "dev.jsonl", device="cpu").scores
    assert scores == pytest.approx(json.loads((run / "report.json").read_text())["scores"])
    with pytest.raises(BertsmithError, match="one vector per text, for clustering"):
        bertsmith.evaluate(run / "model", tmp_path / "dev.jsonl", task="clustering", device="cpu")


def test_a_model_with_vectors_of_tokens_is_trained_again_in_its_width(run: Path) -> None:
    again = prepared(str(run / "model"), dataclasses.replace(TOKENS, widths=None))
    model = again.started_model(1)
    np.testing.assert_array_equal(
        model.state_dict()["token_projection.weight"], load_any(run / "model").tensors["token_projection.weight"]
    )
    with pytest.raises(ConfigError, match="--widths 12, the width of the vectors of tokens that the model has"):
        prepared(str(run / "model"), dataclasses.replace(TOKENS, widths="16"))


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"widths": "16,8"}, "a number as --widths, for vectors of tokens; found '16,8'"),
        ({"reads": "max"}, "reads as mean with --vectors tokens; found max"),
        ({"vector_loss": "softmax"}, "vector_loss ranking for the task pairs with --vectors tokens; found softmax"),
    ],
)
def test_settings_that_do_not_fit_vectors_of_tokens_are_refused_in_one_line(
    settings: dict[str, str], expected: str, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match=expected):
        prepared(write_base_model(tmp_path / "base"), dataclasses.replace(TOKENS, **settings))
