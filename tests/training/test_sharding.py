"""Models that are divided among processes train, resume and end like whole ones, and a faulty process is named."""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from bertsmith.base.core.errors import ConfigError
from bertsmith.base.machine.runtime import Rank
from bertsmith.base.storage.files import read_json_lines
from bertsmith.training.loop.loop import TIMES
from bertsmith.training.loop.parts import Parts, save_tensors
from training.launched import launched
from training.of_processes import Work, copied_until, trained

PROGRAM = Path(__file__).with_name("of_processes.py")


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str]]:
    """The folder that two processes write, and what they say."""
    out = tmp_path_factory.mktemp("two")
    return out, launched(PROGRAM, 2, out)


def lines_of(run: Path, kind: str = "train") -> list[dict[str, float]]:
    return [
        {name: value for name, value in line.items() if name not in TIMES}
        for line in read_json_lines(run / "metrics.jsonl")
        if line["kind"] == kind
    ]


def assert_same_curve(actual: Path, expected: Path) -> None:
    for kind in ("train", "evaluation"):
        lines, other = lines_of(actual, kind), lines_of(expected, kind)
        assert [line["step"] for line in lines] == [line["step"] for line in other]
        for name in ("loss", "gradient_norm") if kind == "train" else ("held_out_loss",):
            assert [line[name] for line in lines] == pytest.approx([line[name] for line in other], rel=1e-4)
    models = [load_file(run / "model" / "model.safetensors") for run in (actual, expected)]
    assert models[0].keys() == models[1].keys()
    for name, tensor in models[0].items():
        torch.testing.assert_close(tensor, models[1][name], rtol=1e-4, atol=1e-5)


@pytest.fixture(scope="module")
def whole_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The runs of one process, whose models are whole."""
    out = tmp_path_factory.mktemp("one")
    for optimizer in ("adam", "lamb", "muon"):
        trained(out / optimizer, Rank(), Work(), optimizer=optimizer)
    return out


@pytest.mark.parametrize("optimizer", ["adam", "lamb", "muon"])
def test_a_divided_model_has_the_curve_and_the_end_of_a_whole_one(
    two: tuple[Path, list[str]], whole_run: Path, optimizer: str
) -> None:
    """With accumulation, another number of micro-batches in each process, held-out values and the best model kept."""
    assert_same_curve(two[0] / optimizer, whole_run / optimizer)
    checkpoint = two[0] / optimizer / "checkpoints" / "step-00000020"
    parts = sorted(path.name for path in checkpoint.iterdir())
    assert parts[:2] == ["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"]
    halves = [load_file(checkpoint / name) for name in parts[:2]]
    assert [len(half["layers.0.weight"]) for half in halves] == [4, 3], "no process wrote a whole matrix"


def test_the_same_number_of_processes_resumes_to_the_same_bytes(two: tuple[Path, list[str]]) -> None:
    straight, resumed = two[0] / "adam", two[0] / "resumed"
    assert lines_of(resumed) == lines_of(straight)
    for name in ("checkpoints/step-00000020", "model"):
        for file in (straight / name).glob("*.safetensors"):
            assert (resumed / name / file.name).read_bytes() == file.read_bytes(), file


@pytest.mark.parametrize("processes", [1, 4])
def test_another_number_of_processes_resumes_with_the_same_curve(
    two: tuple[Path, list[str]], tmp_path: Path, processes: int
) -> None:
    for optimizer in ("adam", "lamb", "muon"):
        copied_until(two[0] / optimizer, 10, tmp_path / optimizer)
    if processes == 1:
        for optimizer in ("adam", "lamb", "muon"):
            trained(tmp_path / optimizer, Rank(), Work(), resume=True, optimizer=optimizer)
    else:
        launched(PROGRAM, processes, tmp_path, "resume")
    for optimizer in ("adam", "lamb", "muon"):
        assert_same_curve(tmp_path / optimizer, two[0] / optimizer)


def test_the_process_whose_loss_is_not_finite_is_named(two: tuple[Path, list[str]]) -> None:
    assert (
        two[1][0].count(
            "step 4 was skipped, because its loss or gradient is not finite (loss nan, gradient norm nan in process 1)"
        )
        == 1
    )
    assert "was skipped" not in two[1][1], "process 0 speaks for all"


def test_the_process_that_the_others_wait_for_is_named_with_the_seconds_of_each(two: tuple[Path, list[str]]) -> None:
    assert two[1][0].count("the others wait for process 1, which is slow: ") == 1
    seconds = [
        line["seconds"]
        for line in read_json_lines(two[0] / "troubled" / "metrics.jsonl")
        if "processes" in line["kind"]
    ]
    assert len(seconds) == 2, "once for each line of the log"
    assert seconds[0][1] > seconds[0][0]


def test_processes_that_differ_are_refused_in_one_line_before_the_first_step(two: tuple[Path, list[str]]) -> None:
    for index in range(2):
        settings, data, other, code, *_ = (two[0] / f"lines-{index}.txt").read_text(encoding="utf-8").splitlines()
        assert "the same train.seed in all processes; found 0 in process 0, 1 in process 1" in settings
        assert "the same digest of corpus in all processes; found sha256:0 in process 0, sha256:1 in process 1" in data
        assert "the same code in all processes; found code 0 in process 0, code 1 in process 1" in code
        assert ("no settings.json" in other) if index else ("an error in process 1: expected a run in" in other)
    assert not (two[0] / "seeds").exists()
    assert not (two[0] / "data").exists()


def test_a_disk_that_is_full_for_one_process_ends_all_and_leaves_the_checkpoint_before(
    two: tuple[Path, list[str]],
) -> None:
    lines = [(two[0] / f"lines-{index}.txt").read_text(encoding="utf-8").splitlines()[-1] for index in range(2)]
    assert "an error in process 1: expected space for 'model-00002-of-00002.safetensors' of a checkpoint" in lines[0]
    assert "found No space left on device" in lines[1]
    assert [path.name for path in (two[0] / "full" / "checkpoints").iterdir()] == ["step-00000005"]


def test_a_disk_that_is_full_for_process_0_ends_all_in_one_line(two: tuple[Path, list[str]]) -> None:
    """When a checkpoint is begun, when it gets its name, and when the best model is written."""
    lines = [(two[0] / f"lines-{index}.txt").read_text(encoding="utf-8").splitlines()[4:7] for index in range(2)]
    for output, line in zip(("a checkpoint", "a checkpoint", "the best model"), lines[0], strict=True):
        assert f"expected space for {output} in '" in line
        assert "found No space left on device; free some space and resume" in line
    assert all("found an error there, so process 1 stops too" in line for line in lines[1])
    assert len(lines[1]) == 3
    for name in ("folder", "rename"):
        assert [path.name for path in (two[0] / name / "checkpoints").iterdir()] == ["step-00000005"]


def test_rows_in_parts_are_read_as_a_whole(tmp_path: Path) -> None:
    matrix = torch.arange(12.0).view(6, 2)
    save_tensors({"m": matrix[:4], "s": torch.tensor(3)}, tmp_path / "a")
    save_tensors({"m": matrix[4:]}, tmp_path / "b")
    parts = Parts([tmp_path / "a", tmp_path / "b"])
    assert parts.shapes == {"m": (6, 2), "s": ()}
    tensors = {"m": torch.zeros(6, 2), "s": torch.tensor(0)}
    parts.copy_to(tensors)
    assert torch.equal(tensors["m"], matrix)
    assert int(tensors["s"]) == 3


def test_a_damaged_part_is_set_aside_like_any_checkpoint(
    two: tuple[Path, list[str]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    copied_until(two[0] / "adam", 10, tmp_path / "run")
    part = tmp_path / "run" / "checkpoints" / "step-00000010" / "optimizer-00002-of-00002.safetensors"
    part.write_bytes(part.read_bytes()[:-1] + b"?")
    trained(tmp_path / "run", Rank(), Work(), resume=True)
    assert "optimizer-00002-of-00002.safetensors" in capsys.readouterr().err
    assert (tmp_path / "run" / "checkpoints" / "damaged-step-00000010").is_dir()
    assert_same_curve(tmp_path / "run", two[0] / "adam")


def test_a_model_without_layers_cannot_compute_them_again(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="leave activation_checkpointing out"):
        trained(tmp_path / "run", Rank(), Work(), activation_checkpointing=True)


def test_no_part_of_a_checkpoint_is_pickled(two: tuple[Path, list[str]]) -> None:
    written = {path.suffix for path in (two[0] / "adam").rglob("*") if path.is_file()}
    assert written == {".json", ".jsonl", ".safetensors"}
    state = json.loads((two[0] / "adam" / "checkpoints" / "step-00000020" / "state.json").read_text(encoding="utf-8"))
    assert len(state["digests"]) == 4
