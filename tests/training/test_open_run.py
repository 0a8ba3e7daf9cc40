"""A run is opened once: its folder is new or started, its record is written or compared, its lock is held."""

import dataclasses
from pathlib import Path

import pytest

from bertsmith.base.core.errors import RunError
from bertsmith.base.core.requests import Request
from bertsmith.base.machine.runtime import Rank
from bertsmith.base.storage.files import read_json
from bertsmith.base.storage.locks import locked_folder
from bertsmith.training.loop.run import Run
from bertsmith.training.loop.run_folder import PREPARED


def started(path: Path, seed: int = 1, *, resume: bool = False, may_change: tuple[str, ...] = ()) -> None:
    with Run.open(path, resume=resume) as run:
        run.start({"run": {"seed": seed}}, {"text": "sha256:0"}, may_change=may_change)


def test_a_new_run_writes_its_record_and_a_resumed_one_has_it_before_it_starts(tmp_path: Path) -> None:
    with Run.open(tmp_path / "run") as run:
        assert not run.is_resumed
        assert run.before == {}
        assert not run.path.exists(), "what does not fit is refused before there is a folder"
        run.start({"run": {"seed": 1}})
    with Run.open(tmp_path / "run", resume=True) as run:
        assert run.is_resumed
        assert run.before["settings"] == {"run": {"seed": 1}}
        assert run.has(run.path / "settings.json")
        assert not run.has(run.path / "model")


def test_the_lock_is_held_until_the_end_of_the_block(tmp_path: Path) -> None:
    path = tmp_path / "run"
    with Run.open(path) as run:
        with run.locked():
            (path / "start").mkdir()  # as a recipe does before the run in the same folder
        with Run.open(path, besides=PREPARED) as inner:
            inner.start({})
            with pytest.raises(RunError, match="found process"), locked_folder(path):
                pass
    with locked_folder(path):
        pass


def test_a_run_inside_another_one_is_that_of_the_rank_it_receives(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    with Run.open(tmp_path / "trial", rank=Rank()) as trial:  # as a process that trains a whole trial
        trial.start({})
        assert trial.from_first_rank(trial.path.exists), "no other process takes part"


def test_a_used_folder_and_a_run_that_is_not_there_are_refused(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").touch()
    with pytest.raises(RunError, match="found a folder that is not empty; name another folder"):
        started(tmp_path)
    with pytest.raises(RunError, match=r"found no settings\.json; check the path"):
        started(tmp_path, resume=True)
    with (
        pytest.raises(RunError, match="found no continued; check the path"),
        Run.open(tmp_path, resume=True, parts=("continued", "settings.json")),
    ):
        pass
    with pytest.raises(RunError, match=r"found the file '.*mine\.txt'"):
        started(tmp_path / "mine.txt")


def test_a_resumed_run_has_the_settings_it_was_started_with_except_those_that_may_change(tmp_path: Path) -> None:
    path = tmp_path / "run"
    started(path)
    with pytest.raises(RunError, match="resume it with --resume or name another folder"):
        started(path)
    with pytest.raises(RunError, match=r"found run\.seed = 2 \(was 1\)"):
        started(path, 2, resume=True)
    started(path, 2, resume=True, may_change=("run.seed",))
    assert read_json(path / "settings.json")["settings"] == {"run": {"seed": 2}}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Asked(Request):
    """A request."""

    steps: int = 1


def test_a_run_that_is_refused_leaves_neither_its_request_nor_its_folder(tmp_path: Path) -> None:
    path = tmp_path / "run"
    for _ in range(2):  # the first attempt is not in the way of the next
        with Run.open(path) as run:
            run.start({}, request=Asked(steps=3))
            assert (path / "request.toml").read_text() == "steps = 3\n"
            run.folder.discard()
        assert not path.exists()
