import numpy as np
import pytest

from bertsmith.text.tokenizers.vocabulary import Vocabulary
from bertsmith.training.pretraining.objectives import OBJECTIVES
from bertsmith.training.pretraining.rates import RatesReport, measure_rates
from bertsmith.training.pretraining.settings import PretrainingDataSettings
from bertsmith.training.pretraining.stream import PretrainingStream
from oracles.pretraining_oracle import MemoryDocuments

PIECES = [f"{'##' if number % 4 == 0 else ''}w{number}" for number in range(400)]
VOCABULARY = Vocabulary(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *PIECES])


def documents(number: int) -> MemoryDocuments:
    rng = np.random.default_rng(5)
    return MemoryDocuments(
        [
            [rng.integers(5, len(VOCABULARY), size=length).tolist() for length in rng.geometric(1 / 15, size=40)]
            for _ in range(number)
        ]
    )


def rates(rows: int, **changes: object) -> RatesReport:
    return measure_rates(PretrainingStream(documents(60), PretrainingDataSettings(**changes), VOCABULARY), rows)


def close(part: int, whole: int, share: float) -> bool:
    return abs(part - whole * share) < 5 * np.sqrt(whole * share * (1 - share))


def test_ten_thousand_rows_match_the_recipe() -> None:
    """15 % as rounding allows, 80/10/10, at least half random nexts, nothing special or too long."""
    report = rates(10_000)
    assert report.rows == 10_000 == sum(report.length_counts)
    lengths = np.repeat(np.arange(129), report.length_counts)
    assert report.tokens == lengths.sum()
    assert report.predicted == sum(max(1, round(0.15 * length)) for length in lengths.tolist())
    assert abs(report.predicted / report.tokens - 0.15) < 0.004
    size = len(VOCABULARY)
    assert close(report.masked, report.predicted, 0.8 + 0.1 / size)
    assert close(report.kept, report.predicted, 0.1 + 0.1 / size)
    assert close(report.replaced, report.predicted, 0.1 - 0.2 / size)
    assert report.masked + report.kept + report.replaced == report.predicted
    assert (report.special_predicted, report.rows_without_predictions) == (0, 0)
    assert report.positive + report.negative == 10_000
    assert 0.5 < report.positive / 10_000 < 0.6
    assert report.truncated_tokens > report.truncated_rows > 5_000
    assert report.length_counts[128] > 5_000


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_the_table_of_each_objective_has_its_lines(objective: str) -> None:
    """Left-to-right rows have neither masks nor pairs."""
    report = rates(50, objective=objective, max_length=32)
    table = "\n".join(report.lines())
    assert ("predicted positions" in table) == objective.startswith("mlm")
    assert ("random next" in table) == objective.endswith("nsp")
    assert ("swapped pairs" in table) == (objective == "mlm+sop")
    assert (report.positive + report.negative) == (50 if objective.endswith(("nsp", "sop")) else 0)
    assert "rows measured                        50" in table


def test_measuring_in_parts_gives_the_same_as_in_one_part(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = rates(300, max_length=32)
    monkeypatch.setattr("bertsmith.training.pretraining.rates._AT_ONCE", 70)
    assert rates(300, max_length=32) == whole


def test_documents_too_short_for_a_row_are_counted() -> None:
    source = documents(2)
    source.sentences += [[], [[7]]]
    stream = PretrainingStream(source, PretrainingDataSettings(objective="mlm+sop"), VOCABULARY)
    assert measure_rates(stream, 10).left_out_documents == 2
