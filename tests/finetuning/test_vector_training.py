"""Losses of vectors against plain loops and sentence-transformers, and gradients of large batches in small memory."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from bertsmith import load
from bertsmith.base.core.errors import ConfigError, InputError
from bertsmith.models.checkpoints.load import load_any
from bertsmith.models.heads.vector_losses import VectorLoss
from bertsmith.models.parts.batch import Batch
from bertsmith.recipes.finetuning.job import FinetuningJob
from bertsmith.recipes.finetuning.settings import FinetuningSettings, RecipeSettings
from bertsmith.tasks.datasets.examples import Example, TextExample, TripletExample
from bertsmith.tasks.encoding.loading import load_frozen_encoder
from bertsmith.tasks.specs.kinds import task_for
from bertsmith.tasks.specs.vector_gold import vector_spec
from bertsmith.tasks.task_data.split import TaskData
from finetuning.cached_gradients import assert_cached_as_whole
from tasks.architecture_samples import write_base_model as write_base_of
from tasks.task_samples import SETTINGS, SPECS, TOKENIZER, examples_of, write_base_model
from training.logs import assert_learns

PRECISE = FinetuningSettings(batch_size=16, epochs=1, precision="fp32", dropout=0.0)


def pair(first: str, second: str | None, label: str | float | None = None) -> TextExample:
    return TextExample(id="1", first=first, second=second, label=label, location="line 1 of 'pairs'")


def vectors_of(units: int, texts: int, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    draw = torch.Generator().manual_seed(seed)
    return torch.randn(units * texts, 6, generator=draw, dtype=torch.float64), torch.full((units,), texts)


@pytest.mark.parametrize(
    ("kind", "objective"),
    [("vectors of partners", "ranking"), ("vectors of triplets", "ranking"), ("scored vectors", "cosent")],
)
def test_cached_gradients_are_those_of_one_large_batch_with_dropout(kind: str, objective: str) -> None:
    spec = dataclasses.replace(
        vector_spec("pairs", (), SETTINGS), objective=objective, widths=(16, 8) if objective == "ranking" else ()
    )
    assert_cached_as_whole(task_for(spec), kind, PRECISE, micro_tokens=30)


def test_ranking_is_the_cross_entropy_of_the_partner_among_all_others_of_the_step() -> None:
    vectors, counts = vectors_of(5, 3)
    ids = torch.arange(15).view(5, 3)
    unit = F.normalize(vectors, dim=1).view(5, 3, -1)
    losses = []
    for row in range(5):
        scores = [20 * float(unit[row, 0] @ unit[other, side]) for other in range(5) for side in (1, 2)]
        losses.append(np.logaddexp.reduce(scores) - scores[2 * row])
    result = VectorLoss(objective="ranking").of(vectors, counts, ids, None, 5)
    assert float(result) == pytest.approx(np.mean(losses))


def test_ranking_leaves_out_equal_texts_and_other_partners_of_an_equal_text() -> None:
    vectors, counts = vectors_of(3, 2)
    loss = VectorLoss(objective="ranking", scale=5.0)
    # Units 0 and 1 have the same first text; unit 2 has the second text of unit 0.
    ids = torch.tensor([[0, 1], [0, 2], [3, 1]])
    unit = F.normalize(vectors, dim=1).view(3, 2, -1)
    scores = 5 * (unit[:, 0] @ unit[:, 1].T)
    allowed = torch.tensor([[1, 0, 0], [0, 1, 0], [0, 1, 1]], dtype=torch.bool)
    # Unit 1 may not take text 1 either: it belongs to the same first text.
    expected = F.cross_entropy(scores.masked_fill(~allowed, -torch.inf), torch.arange(3))
    assert float(loss.of(vectors, counts, ids, None, 3)) == pytest.approx(float(expected))


@pytest.mark.parametrize("name", ["cosine", "cosent", "ranking", "triplet"])
def test_losses_equal_those_of_sentence_transformers(name: str) -> None:
    losses = pytest.importorskip("sentence_transformers.losses")
    kinds = {
        "cosine": (losses.CosineSimilarityLoss, 2),
        "cosent": (losses.CoSENTLoss, 2),
        "ranking": (losses.MultipleNegativesRankingLoss, 3),
        "triplet": (losses.TripletLoss, 3),
    }
    make, texts = kinds[name]
    vectors, counts = vectors_of(6, texts)
    scores = torch.rand(6, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    # Their losses call the model on each column of texts; this one has the vectors already.
    columns = [{"sentence_embedding": vectors[position::texts]} for position in range(texts)]
    theirs = make(model=torch.nn.Identity(), **({"triplet_margin": 1.0} if name == "triplet" else {}))
    expected = theirs(columns, scores)
    targets = torch.arange(6 * texts).view(6, texts) if name in ("ranking", "triplet") else scores
    assert float(VectorLoss(objective=name).of(vectors, counts, targets, None, 6)) == pytest.approx(float(expected))


def test_softmax_reads_both_vectors_and_their_difference() -> None:
    vectors, counts = vectors_of(4, 2)
    layer = torch.nn.Linear(18, 3).double()
    labels = torch.tensor([0, 2, 1, 1])
    first, second = vectors[::2], vectors[1::2]
    expected = F.cross_entropy(layer(torch.cat([first, second, (first - second).abs()], dim=1)), labels)
    result = VectorLoss(objective="softmax").of(vectors, counts, labels, layer, 4)
    torch.testing.assert_close(result, expected)


def test_infersent_reads_the_product_too() -> None:
    vectors, counts = vectors_of(4, 2)
    layer = torch.nn.Linear(24, 3).double()
    labels = torch.tensor([0, 2, 1, 1])
    rows = []
    for first, second in zip(vectors[::2], vectors[1::2], strict=True):
        rows.append(torch.cat([first, second, (first - second).abs(), first * second]))
    expected = F.cross_entropy(layer(torch.stack(rows)), labels)
    result = VectorLoss(objective="infersent").of(vectors, counts, labels, layer, 4)
    torch.testing.assert_close(result, expected)
    narrow = VectorLoss(objective="infersent").of(vectors[:, :2], counts, labels, layer, 4)
    cut = vectors.clone()
    cut[:, 2:] = 0
    torch.testing.assert_close(narrow, VectorLoss(objective="infersent").of(cut, counts, labels, layer, 4))


@pytest.mark.parametrize("architecture", ["bert", "bilstm"])
def test_infersent_learns_labels_of_pairs_from_maxima_over_the_tokens(architecture: str, tmp_path: Path) -> None:
    """The trained layer is not saved; the folder says that the vector of a text is a maximum, and `load` reads that."""
    base = write_base_of(tmp_path / "base", architecture)
    words = "good fine great bad poor awful anna bert carl rome oslo lima".split()
    examples: list[Example] = [
        pair(f"{word} film", f"the {other}", "entailment" if word == other else "neutral")
        for number, word in enumerate(words)
        for other in (word, words[number - 1])
    ]
    settings = dataclasses.replace(
        PRECISE, batch_size=8, epochs=20, reads="max", vector_loss="infersent", baselines=False
    )
    spec, data = vector_spec("pairs", examples, SETTINGS), TaskData(train=examples, dev=())
    recipe = RecipeSettings(learning_rate=3e-3, bias_correction=True, log_every=1)
    job = FinetuningJob.prepare(base, spec, data, settings, recipe)
    assert job.first_model(seed=1).model.output_layer.in_features == 4 * 32
    job.train_once(tmp_path / "run", 1)
    assert_learns(tmp_path / "run", 0.7, steps=6)
    folder = tmp_path / "run" / "model"
    assert not any(name.startswith("classifier") for name in load_any(folder).tensors)
    model, frozen = load(folder, device="cpu"), load_frozen_encoder(folder, device="cpu")
    texts = ["good film", "the awful plot of anna"]
    for text, vector in zip(texts, model.embed(texts), strict=True):
        special = TOKENIZER.vocabulary
        row = np.array([special.cls_id, *TOKENIZER.encode(text), special.sep_id])
        with torch.no_grad():
            hidden = frozen.model(Batch.from_rows([row]))
        np.testing.assert_allclose(vector, hidden.max(dim=0).values.numpy(), atol=1e-5)


def test_a_maximum_is_for_vectors_alone() -> None:
    with pytest.raises(ConfigError, match="a task of vectors of texts, for a head that reads 'max'; found sentiment"):
        dataclasses.replace(SPECS["single"], reads="max")


def test_with_widths_the_loss_is_the_mean_over_the_whole_and_the_first_numbers() -> None:
    vectors, counts = vectors_of(4, 2)
    scores = torch.rand(4, dtype=torch.float64)
    parts = [VectorLoss(objective="cosine").of(vectors[:, :n], counts, scores, None, 4) for n in (6, 3, 2)]
    result = VectorLoss(objective="cosine", widths=(3, 2)).of(vectors, counts, scores, None, 4)
    assert float(result) == pytest.approx(float(torch.stack(parts).mean()))


def test_labelled_pairs_become_units_with_their_contradictions() -> None:
    examples: list[Example] = [
        pair("a film", "good", "entailment"),
        pair("a film", "bad", "contradiction"),
        pair("a film", "plot", "neutral"),
        pair("rome", "oslo", "contradiction"),
    ]
    task = task_for(dataclasses.replace(vector_spec("pairs", examples, SETTINGS), objective="ranking"))
    features = task.encode(examples, TOKENIZER, training=True)
    assert features.rows_per_unit.tolist() == [3]
    assert [len(task.encode(examples, TOKENIZER)), features.example_of_row.tolist()] == [4, [0, 0, 0]]


def test_single_texts_are_read_twice_in_training_alone() -> None:
    examples: list[Example] = [pair("a film", None), pair("rome", None)]
    task = task_for(dataclasses.replace(vector_spec("texts", examples, SETTINGS), objective="ranking"))
    features = task.encode(examples, TOKENIZER, training=True)
    assert features.rows_per_unit.tolist() == [2, 2]
    assert (features.rows.row(0)[0] == features.rows.row(1)[0]).all()
    assert task.encode(examples, TOKENIZER).rows_per_unit.tolist() == [1, 1]


def test_dropout_moves_single_texts_apart_and_their_training_changes_the_model(tmp_path: object) -> None:
    base = write_base_model(f"{tmp_path}/base")
    words = "good fine great bad poor awful anna bert carl rome oslo lima".split()
    texts: list[Example] = [pair(f"{word} film", None) for word in words]
    settings = dataclasses.replace(PRECISE, batch_size=6, dropout=0.3, epochs=2)
    data = TaskData(train=texts, dev=())
    job = FinetuningJob.prepare(base, vector_spec("texts", texts, SETTINGS), data, settings, RecipeSettings())
    result = job.train_once(tmp_path / "run", 1)
    assert (result.steps, result.scores) == (4, {})


def test_prompts_are_in_front_of_first_and_other_texts() -> None:
    settings = dataclasses.replace(SETTINGS, query_prompt="who ", passage_prompt="where ")
    task = task_for(dataclasses.replace(vector_spec("pairs", (), settings), objective="ranking"))
    features = task.encode([pair("film", "plot")], TOKENIZER)
    pieces = TOKENIZER.vocabulary.pieces
    rows = [[pieces[number] for number in features.rows.row(row)[0]] for row in (0, 1)]
    assert rows == [["[CLS]", "who", "film", "[SEP]"], ["[CLS]", "where", "plot", "[SEP]"]]


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"widths": "10"}, "widths that divide the model's 32"),
        ({"widths": "64"}, "widths that divide the model's 32"),
        ({"widths": "32"}, "widths that divide the model's 32"),
        ({"widths": "a"}, "widths that divide the model's 32"),
        ({"vector_loss": "cosine"}, "vector_loss ranking or softmax or infersent for the task pairs"),
        ({"vector_loss": "softmax"}, "pairs with different labels"),
        ({"reads": "pooler"}, "reads as mean"),
        ({"freeze": "body"}, "a body that is trained"),
    ],
)
def test_settings_that_do_not_fit_vectors_are_refused_in_one_line(
    settings: dict[str, str], expected: str, tmp_path: object
) -> None:
    base, examples = write_base_model(f"{tmp_path}/base"), examples_of("vectors of partners", 8)
    chosen = dataclasses.replace(PRECISE, **settings)
    spec, data = vector_spec("pairs", examples, SETTINGS), TaskData(train=examples, dev=())
    with pytest.raises(ConfigError, match=expected):
        FinetuningJob.prepare(base, spec, data, chosen, RecipeSettings())


@pytest.mark.parametrize(
    ("name", "objective", "examples", "expected"),
    [
        ("similarity", "cosine", [pair("a", "b", 2.0), pair("a", "c", 2.0)], "different scores"),
        ("similarity", "cosine", [pair("a", "b")], "a number"),
        ("pairs", "ranking", [pair("a", "b", "contradiction"), pair("a", "c", "neutral")], "belong together"),
        ("triplets", "triplet", [pair("a", "b")], "a triplet"),
        ("triplets", "ranking", [TripletExample(id="1", texts=("a", " ", "b"), location="line 1")], "a text in line 1"),
    ],
)
def test_examples_that_teach_nothing_are_refused_in_one_line(
    name: str, objective: str, examples: list[Example], expected: str
) -> None:
    task = task_for(dataclasses.replace(vector_spec(name, examples, SETTINGS), objective=objective))

    def prepare() -> None:
        task.check(examples, gold=True, training=True)
        task.encode(examples, TOKENIZER, training=True)

    with pytest.raises(InputError, match=expected):
        prepare()


def test_losses_of_vectors_are_refused_for_other_tasks(tmp_path: object) -> None:
    from tasks.task_samples import SPECS

    base, examples = write_base_model(f"{tmp_path}/base"), examples_of("single", 8)
    chosen, data = dataclasses.replace(PRECISE, vector_loss="cosine"), TaskData(train=examples, dev=())
    with pytest.raises(ConfigError, match="for --vectors, --vector-loss and --widths"):
        FinetuningJob.prepare(base, SPECS["single"], data, chosen, RecipeSettings())
