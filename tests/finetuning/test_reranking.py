"""Rerankers: losses against those of CrossEncoder, files of scored lists, training, and the folders it writes."""

import dataclasses
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import bertsmith
from bertsmith.app.library.finetuning import read_examples
from bertsmith.base.core.errors import BertsmithError, InputError
from bertsmith.base.machine.runtime import choose
from bertsmith.base.storage.files import read_json_lines
from bertsmith.inference.predictors.loading import load_predictor
from bertsmith.models.checkpoints.architectures import new_encoder
from bertsmith.models.heads.encoder_with_head import EncoderForTask
from bertsmith.models.heads.head_spec import LIST_OBJECTIVES, POINTWISE
from bertsmith.models.heads.list_losses import compared, list_losses
from bertsmith.recipes.finetuning.job import FinetuningJob
from bertsmith.recipes.finetuning.request import FinetuneRequest
from bertsmith.recipes.finetuning.settings import FinetuningSettings, RecipeSettings
from bertsmith.recipes.finetuning.workload import Finetuning
from bertsmith.recipes.results.scores import details
from bertsmith.recipes.sentence_encoders.teacher import taught
from bertsmith.tasks.datasets.examples import ListExample
from bertsmith.tasks.datasets.scored_lists import read_lists
from bertsmith.tasks.encoding.units import micro_batches
from bertsmith.tasks.metrics.ranking import value_of_list
from bertsmith.tasks.specs.kinds import task_for
from bertsmith.tasks.specs.named_tasks import spec_for
from bertsmith.tasks.task_data.split import TaskData
from bertsmith.tasks.task_data.task_files import read_task
from tasks.task_samples import CONFIG, PEOPLE, PLACES, SETTINGS, SPECS, TOKENIZER, examples_of, write_base_model
from training.logs import assert_learns
from written_files import file_with

SPEC = SPECS["lists"]
THEIRS = {
    "lambda": "LambdaLoss",
    "ranknet": "RankNetLoss",
    "listnet": "ListNetLoss",
    "margin": "MarginMSELoss",
    "pointwise": "BinaryCrossEntropyLoss",
}


def their_loss(objective: str, scores: Sequence[torch.Tensor], gold: Sequence[list[float]]) -> torch.Tensor:
    """The loss of sentence-transformers of a batch whose model gives these scores."""
    library = pytest.importorskip("sentence_transformers.cross_encoder")

    class Scores(library.CrossEncoder):  # type: ignore[misc, name-defined]
        """A model that looks the score of a pair up."""

        num_labels, device = 1, torch.device("cpu")

        def __init__(self) -> None:
            torch.nn.Module.__init__(self)

        def preprocess(self, pairs: Sequence[tuple[str, str]], **_: Any) -> dict[str, torch.Tensor]:
            return {"scores": torch.stack([scores[int(query)][int(text)] for query, text in pairs])}

        def forward(self, features: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
            return features

    loss = getattr(library.losses, THEIRS[objective])(Scores())
    queries, texts = [str(n) for n in range(len(gold))], [[str(n) for n in range(len(part))] for part in gold]
    if objective == "pointwise":
        pairs = [(query, text) for query, part in zip(queries, texts, strict=True) for text in part]
        flat = torch.tensor([value for part in gold for value in part])
        return loss([list(side) for side in zip(*pairs, strict=True)], flat)
    if objective == "margin":
        columns = [queries, *map(list, zip(*texts, strict=True))]
        return loss(columns, [torch.tensor(part) for part in gold])
    return loss([queries, texts], [torch.tensor(part) for part in gold])


@st.composite
def batches(draw: st.DrawFn) -> tuple[str, list[list[float]], int]:
    """A loss, the gold scores of some lists, and a seed for the scores."""
    objective, size = draw(st.sampled_from(LIST_OBJECTIVES)), draw(st.integers(2, 6))
    values = st.sampled_from([0.0, 0.25, 0.5, 1.0] if objective == POINTWISE else [-1.5, 0.0, 0.0, 1.0, 2.0, 3.5])
    sizes = st.just(size) if objective == "margin" else st.integers(1, size)
    lists = draw(st.lists(sizes.flatmap(lambda n: st.lists(values, min_size=n, max_size=n)), min_size=1, max_size=5))
    return objective, lists, draw(st.integers(0, 1000))


@settings(deadline=None)
@given(batch=batches())
def test_losses_and_gradients_equal_those_of_sentence_transformers(batch: tuple[str, list[list[float]], int]) -> None:
    objective, gold, seed = batch
    draw, widest = torch.Generator().manual_seed(seed), max(map(len, gold))
    scores = [(4 * torch.randn(len(part), generator=draw)).requires_grad_() for part in gold]
    padded = torch.stack([torch.nn.functional.pad(part, (0, widest - len(part))) for part in scores])
    exists = torch.tensor([[n < len(part) for n in range(widest)] for part in gold])
    targets = torch.tensor([part + [0.0] * (widest - len(part)) for part in gold])
    total = max(1, sum(compared(objective, part) for part in gold))
    ours = list_losses(objective, padded, targets, exists) / total
    theirs = their_loss(objective, scores, gold)
    torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-6)
    if not theirs.requires_grad:  # no two candidates to compare
        assert float(ours) == 0
        return
    pairs = zip(torch.autograd.grad(ours, scores), torch.autograd.grad(theirs, scores), strict=True)
    for mine, other in pairs:
        torch.testing.assert_close(mine, other, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("objective", LIST_OBJECTIVES)
def test_a_step_in_micro_batches_has_the_loss_of_the_whole(objective: str) -> None:
    task = task_for(dataclasses.replace(SPEC, objective=objective))
    features, result = task.encode(examples_of("lists", 9), TOKENIZER, training=True), []
    for tokens in (10_000, 40):
        model = EncoderForTask(new_encoder(CONFIG), task.head, seed=3).double()
        plain = FinetuningSettings(dropout=0.0)
        work = Finetuning(model, task, features, None, TOKENIZER, plain, choose("cpu", "fp64"), seed=5)
        batches = list(micro_batches(features, np.arange(9), micro_tokens=tokens, device="cpu"))
        model.eval()
        loss = sum(work.loss(model, batch)[0] for batch in batches)
        loss.backward()  # type: ignore[union-attr]
        result.append(
            (float(loss.detach()), {n: p.grad for n, p in model.named_parameters() if p.grad is not None}, len(batches))
        )
    (whole, gradients, parts), (cut, others, several) = result
    assert (parts, several > 3, whole > 0) == (1, True, True)
    assert cut == pytest.approx(whole, rel=1e-9)
    for name, gradient in gradients.items():
        torch.testing.assert_close(others[name], gradient, rtol=1e-6, atol=1e-9)


LISTED = [("who", ("anna", "rome"), (1.0, 0.0)), ("where", ("oslo", "carl", "bert"), (2.0, 0.5, 0.0))]


@pytest.mark.parametrize(
    ("name", "content", "expected"),
    [
        (
            "rows.tsv",
            "qid\tquery\tpassage\tscore\n1\twho\tanna\t1\n2\twhere\toslo\t2\n1\twho\trome\t0\n2\twhere\tcarl\t0.5\n"
            "2\twhere\tbert\t0\n",
            LISTED,
        ),
        (
            "lists.jsonl",
            [
                {"query": "who", "docs": ["anna", "rome"], "labels": [1, 0]},
                {"query": "where", "docs": ["oslo", "carl", "bert"], "labels": [2, 0.5, 0]},
            ],
            LISTED,
        ),
        (
            "tuples.csv",
            "anchor,positive,negative,negative_2\nwho,anna,rome,oslo\nwho,anna,rome,\n",
            [("who", ("anna", "rome", "oslo"), (1.0, 0.0, 0.0)), ("who", ("anna", "rome"), (1.0, 0.0))],
        ),
        (
            "margins.jsonl",
            [{"query": "who", "positive": "anna", "negative_1": "rome", "negative_2": "oslo", "label": [2.5, -1]}],
            [("who", ("anna", "rome", "oslo"), (0.0, -2.5, 1.0))],
        ),
        (
            "flags.jsonl",
            [{"query": "who", "pos": ["anna", "bert"], "neg": ["rome"], "pos_scores": [3, 2], "neg_scores": [-1]}],
            [("who", ("anna", "bert", "rome"), (3.0, 2.0, -1.0))],
        ),
        (
            "partners.tsv",
            "query\tanswer\nwho\tanna\nwho\tbert\nwho\tanna\n",
            [("who", ("anna", "bert"), (1.0, 1.0))],
        ),
    ],
)
def test_the_forms_of_files_become_lists(name: str, content: Any, expected: list[Any], tmp_path: Path) -> None:
    text = content if isinstance(content, str) else "".join(json.dumps(row) + "\n" for row in content)
    examples = read_lists(file_with(tmp_path / name, text)).examples
    lists = [(each.context, each.endings, each.scores) for each in examples if isinstance(each, ListExample)]
    assert lists == expected


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        ({"query": "who", "docs": ["anna", "rome"], "labels": [1]}, "2 candidates and 1 scores"),
        ({"query": "who", "docs": ["anna", "rome"], "labels": [1, "x"]}, "numbers in 'labels' in line 1"),
        ({"query": "who", "docs": ["anna", "rome"], "labels": [1, True]}, "numbers in 'labels' in line 1"),
        ({"query": "who", "docs": ["anna", "rome"], "labels": ""}, "numbers in 'labels' in line 1 .*found none"),
        ({"query": "who", "docs": ["anna", "anna"], "labels": [1, 0]}, "found 1 and 0 for 'anna'"),
        ({"query": "who", "docs": ["anna", " "], "labels": [1, 0]}, "texts in 'docs' in line 1 .*found an empty one"),
        ({"query": "who", "docs": ["anna", 3], "labels": [1, 0]}, "a list of texts"),
        ({"query": "who", "labels": [1, 0]}, "a column named 'positive' for the candidates"),
        ({"docs": ["anna"], "labels": [1]}, "a column named 'anchor' for the queries"),
        ({"query": "", "docs": ["anna", "rome"], "labels": [1, 0]}, "queries with candidates"),
        ({"query": "who", "docs": ["anna"], "labels": [1e999]}, "numbers in 'labels'"),
    ],
)
def test_what_is_no_list_is_refused_in_one_line(row: Mapping[str, object], expected: str, tmp_path: Path) -> None:
    with pytest.raises(BertsmithError, match=expected) as error:
        read_lists(file_with(tmp_path / "rows.jsonl", json.dumps(row) + "\n"))
    assert "\n" not in str(error.value)


def test_an_id_of_two_queries_is_refused(tmp_path: Path) -> None:
    path = file_with(tmp_path / "rows.tsv", "query_id\tquery\tpassage\tscore\n7\twho\tanna\t1\n7\twhere\trome\t0\n")
    with pytest.raises(BertsmithError, match=r"'who', the text of the query '7' in line 3 .*found 'where'"):
        read_lists(path)


def test_lists_of_a_query_are_held_out_together(tmp_path: Path) -> None:
    rows = [{"query": f"who {n % 5}", "positive": "anna", "negative": f"rome {n}"} for n in range(20)]
    path = file_with(tmp_path / "rows.jsonl", "".join(json.dumps(row) + "\n" for row in rows))
    spec, data = read_task("reranking", path, None)
    assert (spec.kind, spec.metric, spec.activation) == ("reranking", "ndcg@10", "sigmoid")
    held = {example.context for example in data.dev if isinstance(example, ListExample)}
    assert held
    assert not held & {example.context for example in data.train if isinstance(example, ListExample)}


def test_a_training_needs_candidates_that_differ() -> None:
    task = task_for(SPEC)
    example = ListExample(id="0", context="who", endings=("anna", "rome"), scores=(1.0, 1.0), location="line 1")
    with pytest.raises(InputError, match="candidates with different scores in a list"):
        task.check([example], gold=True, training=True)
    with pytest.raises(InputError, match="at least two candidates in line 1"):
        task.check([dataclasses.replace(example, endings=("anna",), scores=(1.0,))], gold=True, training=True)
    pointwise = task_for(dataclasses.replace(SPEC, objective="pointwise"))
    with pytest.raises(InputError, match="scores from 0 to 1, for --list-loss pointwise"):
        pointwise.check([dataclasses.replace(example, scores=(1.0, 2.0))], gold=True, training=True)


def test_equal_scores_are_ranked_last_and_scores_below_zero_are_counted_from_the_lowest() -> None:
    assert value_of_list("mrr@10", [0.3, 0.3, 0.3], [1, 0, 0]) == pytest.approx(1 / 3)
    assert value_of_list("ndcg@10", [3, 2, 1], [-1, -2, -3]) == 1
    assert value_of_list("ndcg@10", [1, 2, 3], [-1, -2, -3]) < 1  # type: ignore[operator]


def prepared(base: str, objective: str) -> FinetuningJob:
    examples = examples_of("lists", 40)
    data = TaskData(train=examples[:32], dev=examples[32:])
    chosen = FinetuningSettings(batch_size=8, epochs=4, precision="fp32", dropout=0.0, list_loss=objective)
    recipe = RecipeSettings(learning_rate=3e-3, bias_correction=True, log_every=1)
    return FinetuningJob.prepare(base, spec_for("reranking", examples, SETTINGS), data, chosen, recipe)


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> str:
    return write_base_model(tmp_path_factory.mktemp("base") / "model")


@pytest.fixture(scope="module")
def run(base: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("run") / "run"
    prepared(base, "lambda").train_once(path, seed=1)
    return path


def test_a_trained_reranker_ranks_and_its_loss_falls(run: Path) -> None:
    assert_learns(run, 0.6)
    report = json.loads((run / "report.json").read_text())
    assert report["scores"]["ndcg@10"] > 0.9
    scores, predictions = load_predictor(run / "model", device="cpu").evaluate(examples_of("lists", 40)[32:])
    assert scores == pytest.approx(report["scores"], abs=1e-6)
    assert len(predictions) == 8


@pytest.mark.usefixtures("quiet_transformers")
@pytest.mark.filterwarnings("ignore")
def test_the_folder_is_a_cross_encoder_with_equal_scores(run: Path) -> None:
    library = pytest.importorskip("sentence_transformers")
    model, pairs = bertsmith.load(run), [("who anna", "good anna"), ("who", "the film in rome")]
    theirs = library.CrossEncoder(str(run / "model"), device="cpu")
    ours = [prediction.value for prediction in model.score(pairs)]
    np.testing.assert_allclose(theirs.predict(pairs), ours, atol=1e-5)
    raw = [model.rerank(query, [text], raw_scores=True)[0] for query, text in pairs]
    np.testing.assert_allclose(theirs.predict(pairs, activation_fn=torch.nn.Identity()), raw, atol=1e-5)


def test_a_teacher_scores_the_candidates_of_lists(run: Path) -> None:
    examples = examples_of("lists", 3)
    name, scored = taught(run, "reranking", examples, device="cpu")
    model = bertsmith.load(run)
    assert name == "reranking"
    for example, before in zip(scored, examples, strict=True):
        assert isinstance(example, ListExample)
        assert isinstance(before, ListExample)
        expected = model.rerank(before.context, before.endings, raw_scores=True)
        np.testing.assert_allclose(example.scores, expected, atol=1e-5)


def test_negatives_that_are_mined_make_lists_of_pairs(base: str, tmp_path: Path) -> None:
    pairs = [{"query": f"who {name}", "passage": f"good {name}"} for name in (*PEOPLE, *PLACES)]
    train = file_with(tmp_path / "pairs.jsonl", "".join(json.dumps(row) + "\n" for row in pairs))
    more = file_with(tmp_path / "texts.txt", "bad plot\nthe film\n")
    request = FinetuneRequest(
        base, "reranking", tmp_path / "run", train=train, hard_negatives=2, miner=base, negatives_from=more,
        negative_margin=0.0, negative_ranks="1,40",
    )  # fmt: skip
    _, data, prepared = read_examples(request)
    lists = [example for example in data.train if isinstance(example, ListExample)]
    assert max(len(example.endings) for example in lists) == 3
    assert {example.scores for example in lists} <= {(1.0,), (1.0, 0.0), (1.0, 0.0, 0.0)}
    assert any(text in ("bad plot", "the film") for example in lists for text in example.endings)
    assert prepared["negative_ranks"] == "1,40"


def test_a_run_with_a_teacher_learns_margins_and_reports_lists(run: Path, base: str, tmp_path: Path) -> None:
    rows = [
        {"query": example.context, "docs": example.endings, "labels": example.scores}
        for example in examples_of("lists", 20)
        if isinstance(example, ListExample)
    ]
    path = file_with(tmp_path / "rows.jsonl", "".join(json.dumps(row) + "\n" for row in rows))
    options: dict[str, Any] = {"train": path, "seeds": 1, "epochs": 1, "recipe": "2018", "max_length": 32}
    result = bertsmith.finetune(base, "reranking", tmp_path / "run", teacher=run, dev=path, **options)
    assert json.loads((tmp_path / "run" / "model" / "bertsmith.json").read_text())["spec"]["objective"] == "margin"
    lines = list(read_json_lines(tmp_path / "run" / "predictions.jsonl"))
    assert "Lowest ndcg@10 of 20 lists" in details("reranking", {"metric": "ndcg@10"}, lines)
    assert set(result.report["scores"]) == {"ndcg@10", "mrr@10", "map@100"}
    words = bertsmith.load(tmp_path / "run" / "word-cosine")
    assert [each.text for each in words.choose([("anna film", ["rome", "anna"])])] == ["anna"]
    with pytest.raises(BertsmithError, match="a file for the model's task, response-selection"):
        bertsmith.evaluate(tmp_path / "run" / "word-cosine", path, task="reranking")
    with pytest.raises(BertsmithError, match="reranking"):
        bertsmith.finetune(base, "regression", tmp_path / "other", list_loss="margin", **options)
