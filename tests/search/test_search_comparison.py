"""Mixtures of searches compared on queries with judgements."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pytest

from bertsmith import build_index, evaluate
from bertsmith.app.library.labelled import RetrievalEvaluation
from bertsmith.base.core.errors import BertsmithError
from bertsmith.inference.search.comparison import SearchComparison, compare_rankings
from bertsmith.inference.search.passages import TextSet
from bertsmith.inference.search.rankings import best
from bertsmith.tasks.metrics.uncertainty import bootstrap_interval
from search.late_samples import write_late
from tasks.task_samples import write_base_model
from written_files import file_of_records

TEXTS = ("anna was in rome", "the plot was awful", "a great film", "bert was in oslo", "good plot and great film")
QUERIES = {"q1": "who was in rome", "q2": "great film", "q3": "oslo", "q4": "of no judgement"}
GAINS = {"q1": {"t0": 1.0}, "q2": {"t2": 2.0, "t4": 1.0}, "q3": {"t3": 1.0}}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return Path(write_base_model(tmp_path_factory.mktemp("model") / "model", 4))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder as in BEIR."""
    folder = tmp_path / "beir"
    (folder / "qrels").mkdir(parents=True)
    file_of_records(
        folder / "corpus.jsonl", [{"_id": f"t{n}", "title": "", "text": text} for n, text in enumerate(TEXTS)]
    )
    file_of_records(folder / "queries.jsonl", [{"_id": id, "text": text} for id, text in QUERIES.items()])
    lines = [f"{query}\t{passage}\t{gain:g}" for query, gains in GAINS.items() for passage, gain in gains.items()]
    (folder / "qrels" / "test.tsv").write_text("\n".join(["query-id\tcorpus-id\tscore", *lines]) + "\n")
    return folder


def comparison_of(evaluation: object) -> SearchComparison:
    assert isinstance(evaluation, RetrievalEvaluation)
    return evaluation.comparison


def test_a_folder_and_its_index_are_compared_by_all_mixtures(folder: Path, model: Path, tmp_path: Path) -> None:
    late = write_late(tmp_path / "late")
    evaluation = evaluate(model, folder, task="retrieval", also=[late], device="cpu")
    of_file = comparison_of(evaluation)
    assert (of_file.queries, of_file.passages) == (3, 5)
    names = {each.name for each in of_file.mixtures}
    assert names == {
        "dense", "tokens", "words", "dense + tokens", "dense + words", "tokens + words", "dense + tokens + words",
    }  # fmt: skip
    build_index(folder / "corpus.jsonl", tmp_path / "index", model=model, also=[late])
    reranked = evaluate(tmp_path / "index", folder, task="retrieval", rerank=late, depth=2, device="cpu")
    of_index = comparison_of(reranked)
    assert {each.name for each in of_index.mixtures} == names | {f"{name}, re-ranked" for name in names}
    words = [next(each for each in some.mixtures if each.name == "words") for some in (of_file, of_index)]
    assert words[0].scores == words[1].scores
    assert evaluation.scores == of_file.mixtures[0].scores
    assert json.loads(json.dumps(evaluation.to_dict()))["comparison"]["choice"] == of_file.choice.name
    assert evaluation.lines()[-1].startswith(f"take {of_file.choice.name}: ")


def comparison(places: Mapping[tuple[str, ...], Sequence[int]], queries: int = 40) -> SearchComparison:
    """The comparison of rankings that put the one relevant passage of each query at some places, by turns."""
    rankings = {}
    for kinds, ranks in places.items():
        order = np.array([[5.0, 4.0, 3.0, 2.0, 1.0]] * queries)
        passages = np.array([[*np.roll(np.arange(5), ranks[number % len(ranks)])] for number in range(queries)])
        rankings[kinds, False] = best(order, 5, passages)
    ids = [str(number) for number in range(queries)]
    judged = {id: {"p0": 1.0} for id in ids}
    names = [f"p{number}" for number in range(5)]
    return compare_rankings(rankings, TextSet(ids=ids, texts=ids), TextSet(ids=names, texts=names), judged)


def test_differences_are_paired_and_the_simplest_search_that_may_be_best_is_taken() -> None:
    result = comparison({("dense",): [0, 1], ("words",): [3], ("dense", "words"): [0, 1, 0, 0]})
    first, *others = result.mixtures
    assert (first.name, first.behind, first.behind_interval) == ("dense + words", 0, (0, 0))
    by_name = {each.name: each for each in others}
    less = np.array([0, 0, 0, 1 - 1 / np.log2(3)] * 10)
    assert by_name["dense"].behind == pytest.approx(less.mean())
    assert by_name["dense"].behind_interval == pytest.approx(bootstrap_interval(less))
    assert by_name["words"].behind_interval[0] > by_name["dense"].behind_interval[0] > 0
    assert result.choice is first
    few = comparison({("dense",): [0] * 39 + [1], ("dense", "words"): [0]})
    assert (few.mixtures[0].name, few.choice.name) == ("dense + words", "dense")
    assert few.lines()[-1] == "take dense: not surely worse than the best, and simpler"
    assert few.lines()[0] == "40 queries, 5 passages"
    assert "depend mostly on chance" in comparison({("dense",): [0]}, queries=24).lines()[0]


def test_what_does_not_fit_is_refused(folder: Path, model: Path) -> None:
    no_gain, elsewhere = folder / "no-gain.txt", folder / "elsewhere.txt"
    no_gain.write_text("q1 0 t0 0\n")
    elsewhere.write_text("q1 0 7 1\n")
    for data, options, message in (
        (folder / "queries.jsonl", {"task": "retrieval"}, "a folder with queries.jsonl"),
        (folder, {"task": "retrieval", "judgements": folder / "none"}, "a file '.*none'"),
        (folder, {"task": "pairs", "rerank": model}, "`rerank` needs"),
        (folder, {"task": "retrieval", "judgements": no_gain}, "judgements with a relevant passage"),
        (folder, {"task": "retrieval", "judgements": elsewhere}, "found none, as '7' is not; judge .*, such as 't0'"),
    ):
        with pytest.raises(BertsmithError, match=message):
            evaluate(model, data, **options)
