"""The tables of published results are consistent."""

import pytest

from bertsmith.recipes.results.published_scores import (
    CONLL2003_TABLE,
    GLUE_COLUMNS,
    GLUE_TABLE,
    GLUE_TRAIN_SIZES,
    HEADLINES,
    SQUAD1_TABLE,
    SQUAD2_TABLE,
    SWAG_TABLE,
    GlueRow,
    dev_scores,
    table_average,
)
from bertsmith.tasks.datasets.glue import GLUE, glue_average

# GLUE score from the server, with WNLI, and results in the order of `SMALL_MODEL_RESULTS`; release of March 2020.
SMALL_MODELS = {
    "tiny": (64.2, (0.0, 83.2, 81.1, 71.1, 74.3, 73.6, 62.2, 83.4, 70.2, 70.3, 81.5, 57.2, 62.3, 21.0)),
    "mini": (65.8, (0.0, 85.9, 81.1, 71.8, 75.4, 73.3, 66.4, 86.2, 74.8, 74.3, 84.1, 57.9, 62.3, 26.1)),
    "small": (71.2, (27.8, 89.7, 83.4, 76.2, 78.8, 77.0, 68.1, 87.0, 77.6, 77.0, 86.4, 61.8, 62.3, 28.6)),
    "medium": (73.5, (38.0, 89.6, 86.6, 81.6, 80.4, 78.4, 69.6, 87.9, 80.0, 79.1, 87.7, 62.2, 62.3, 30.5)),
}

SMALL_MODEL_RESULTS = (
    ("cola", "matthews"),
    ("sst-2", "accuracy"),
    ("mrpc", "f1"),
    ("mrpc", "accuracy"),
    ("sts-b", "pearson"),
    ("sts-b", "spearman"),
    ("qqp", "f1"),
    ("qqp", "accuracy"),
    ("mnli", "accuracy"),
    ("mnli-mm", "accuracy"),
    ("qnli", "accuracy"),
    ("rte", "accuracy"),
    ("wnli", "accuracy"),
    ("ax", "matthews"),
)


@pytest.mark.parametrize("row", GLUE_TABLE, ids=lambda row: row.system)
def test_the_average_of_a_row_is_the_mean_of_its_columns(row: GlueRow) -> None:
    """The printed ELMo baseline is 0.06 above the mean of its rounded columns."""
    assert len(row.scores) == len(GLUE_COLUMNS) == len(GLUE_TRAIN_SIZES) == 9
    assert table_average(row.scores) == pytest.approx(row.average, abs=0.06 if "ELMo" in row.system else 0.05)


def test_the_headlines_are_values_of_the_tables() -> None:
    large, gpt = GLUE_TABLE[-1].scores[0], GLUE_TABLE[2].scores[0]
    assert (large, round(large - gpt, 1)) == (HEADLINES["mnli"].score, HEADLINES["mnli"].gain)
    best = {"squad": (SQUAD1_TABLE, "#1 ensemble nlnet"), "squad2": (SQUAD2_TABLE, "#1 single MIR")}
    for task, (table, before) in best.items():
        rival = next(row for row in table if row.system.startswith(before))
        assert table[-1].test_f1 == HEADLINES[task].score
        assert round(table[-1].test_f1 - rival.test_f1, 1) == HEADLINES[task].gain


def test_entities_are_compared_with_conll_if_they_have_its_types() -> None:
    tags = ["O", *(f"{letter}-{kind}" for letter in "BI" for kind in ("PER", "LOC", "ORG", "MISC"))]
    assert {score.value for score in dev_scores("ner", tags)} == {0.964, 0.966}
    assert dev_scores("ner", tags[:-1])
    assert not dev_scores("ner", tags[:4])
    assert [score.value for score in dev_scores("squad2")] == [78.7, 81.9]
    assert not dev_scores("cola")


def test_the_glue_headline_is_the_leaderboards_and_not_the_tables() -> None:
    assert (HEADLINES["glue"].score, HEADLINES["glue"].gain) == (80.5, 7.7)
    assert HEADLINES["glue"].score < GLUE_TABLE[-1].average


def test_the_printed_sizes_are_those_of_the_readers_but_for_the_two_sets_that_grew_or_shrank() -> None:
    """QNLI is the first version in the table; MRPC's 3,668 are printed as 3.5k."""
    sizes = {"MNLI-m": "mnli", "QQP": "qqp", "SST-2": "sst-2", "CoLA": "cola", "STS-B": "sts-b", "RTE": "rte"}
    printed = dict(zip(GLUE_COLUMNS, GLUE_TRAIN_SIZES, strict=True))
    for column, key in sizes.items():
        size = float(printed[column][:-1]) * 1000
        assert abs(GLUE[key].train_size - size) < 1000, column
    assert (printed["QNLI"], printed["MRPC"]) == ("108k", "3.5k")


@pytest.mark.parametrize("name", SMALL_MODELS)
def test_the_glue_score_of_the_small_models_follows_from_their_results(name: str) -> None:
    published, results = SMALL_MODELS[name]
    scores: dict[str, dict[str, float]] = {}
    for (task, metric), value in zip(SMALL_MODEL_RESULTS, results, strict=True):
        scores.setdefault(task, {})[metric] = value
    # The printed score of tiny is 0.06 above that of its rounded results.
    assert glue_average(scores, with_wnli=True) == pytest.approx(published, abs=0.06)


def test_the_other_tables_are_as_printed() -> None:
    swag = {row.system: (row.dev, row.test) for row in SWAG_TABLE}
    assert swag["BERT large"] == (86.6, 86.3)
    assert swag["BERT base"] == (81.6, None)
    assert {row.system: row.test for row in CONLL2003_TABLE}["BERT base (fine-tuned)"] == 92.4
    single = next(row for row in SQUAD1_TABLE if row.system == "BERT large (single)")
    assert (single.dev_exact, single.dev_f1, single.test_f1) == (84.1, 90.9, None)
