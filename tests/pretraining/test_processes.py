"""Several processes evaluate together, with the numbers of one."""

from pathlib import Path
from typing import Any

import pytest

from bertsmith.files import read_json
from bertsmith.runtime import ALONE
from pretraining.of_processes import KINDS, evaluated
from tasks.task_samples import write_base_model
from training.launched import launched

PROGRAM = Path(__file__).with_name("of_processes.py")


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("processes")
    write_base_model(place / "base")
    return place


@pytest.fixture(scope="module")
def alone(place: Path) -> dict[str, Any]:
    return evaluated(place / "base", ALONE)


@pytest.mark.parametrize("processes", [2, 4])
def test_processes_that_evaluate_together_have_the_bytes_of_one_and_share_the_work(
    place: Path, alone: dict[str, Any], processes: int
) -> None:
    """Whole models and divided ones; in as many passes as one process, which only the last round fills up."""
    launched(PROGRAM, processes, place / "base", place)
    found = [read_json(place / f"evaluated-{index}-of-{processes}.json") for index in range(processes)]
    assert all(one == found[0] for one in found)
    for share in ("whole", "divided"):
        assert found[0][f"{share} pretraining many parts"] == alone["whole pretraining many parts"]
        passes = alone["whole passes many parts"]
        assert processes < passes <= found[0][f"{share} passes many parts"] < passes + processes
        # One part is cut for all processes, so sums have another order.
        few = found[0][f"{share} pretraining one part"]
        assert few == pytest.approx(alone["whole pretraining one part"], rel=1e-5)
        assert (alone["whole passes one part"], found[0][f"{share} passes one part"]) == (1, processes)
        for kind in KINDS:
            assert found[0][f"{share} {kind}"] == alone[f"whole {kind}"]
            assert found[0][f"{share} logits of {kind}"] == alone[f"whole logits of {kind}"]
