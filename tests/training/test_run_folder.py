"""The content of a run folder, and what happens if it is damaged, on a full disk, or belongs to another run."""

import errno
import json
import resource
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest
import torch

from bertsmith.base.core.errors import CheckpointError, InputError, RunError, TrainingError
from bertsmith.base.core.settings import to_dict
from bertsmith.base.storage.files import read_json, write_json
from bertsmith.training.loop import checkpoint as checkpoint_module
from bertsmith.training.loop.checkpoint import checkpoint_steps
from bertsmith.training.loop.run_folder import RunFolder
from training.test_loop import same_parameters, untimed
from training.toy import ToyWorkload, environment, toy_run, toy_settings

TOY = Path(__file__).with_name("toy.py")


def test_a_new_run_records_settings_versions_machine_and_digests(tmp_path):
    settings = {"train": to_dict(toy_settings()), "model": {"layers": 2}}
    RunFolder.create(tmp_path / "run", settings, {"corpus": "sha256:12"})
    record = json.loads((tmp_path / "run" / "settings.json").read_text())
    assert record["settings"] == settings
    assert record["digests"] == {"corpus": "sha256:12"}
    assert record["versions"]["torch"] == metadata.version("torch")
    assert record["machine"]["threads"] >= 1


def test_a_build_that_only_the_module_names_is_not_another_version(tmp_path, monkeypatch, capsys):
    """Some builds of torch call themselves 2.15.0+cu132 while pip knows them as 2.15.0."""
    RunFolder.create(tmp_path, {})
    monkeypatch.setattr(torch, "__version__", f"{torch.__version__.split('+')[0]}+cu132")
    run = RunFolder.resume(tmp_path, {})
    assert run.record["versions"]["torch"] == metadata.version("torch")
    assert "other versions" not in capsys.readouterr().err


def test_a_run_in_its_place_is_not_overwritten(tmp_path):
    RunFolder.create(tmp_path, {"train": {}})
    with pytest.raises(RunError, match="found a run; resume it with --resume or name another folder"):
        RunFolder.create(tmp_path, {"train": {}})


def test_a_folder_with_other_things_or_a_file_is_refused(tmp_path):
    (tmp_path / "letter.txt").write_text("dear")
    with pytest.raises(RunError, match=r"a folder that is not empty; name another folder"):
        RunFolder.create(tmp_path, {})
    with pytest.raises(RunError, match=r"found the file '.*letter\.txt'"):
        RunFolder.create(tmp_path / "letter.txt", {})
    with pytest.raises(RunError, match=r"a writable folder '.*'"):
        RunFolder.create(tmp_path / "letter.txt" / "run", {})


def test_an_empty_folder_is_a_new_run(tmp_path):
    assert RunFolder.create(tmp_path, {}).resolved == {}


def test_a_run_that_is_not_there_cannot_be_resumed(tmp_path):
    with pytest.raises(RunError, match=r"found no settings\.json"):
        RunFolder.resume(tmp_path, {})
    (tmp_path / "settings.json").write_text("[]")
    with pytest.raises(RunError, match=r"found the content = \[\] in settings\.json"):
        RunFolder.resume(tmp_path, {})
    (tmp_path / "settings.json").write_text("{")
    with pytest.raises(InputError, match="restore the file"):
        RunFolder.resume(tmp_path, {})


def test_resuming_with_other_settings_names_each_of_them(tmp_path):
    old = {"train": to_dict(toy_settings()), "model": {"layers": 2, "shape": (1, 2)}}
    RunFolder.create(tmp_path, old, {"corpus": "sha256:1"})
    RunFolder.resume(tmp_path, old, {"corpus": "sha256:1"})
    new = {"train": to_dict(toy_settings(learning_rate=0.5)), "model": {"layers": 3, "shape": (1, 2)}}
    with pytest.raises(RunError) as caught:
        RunFolder.resume(tmp_path, new, {"corpus": "sha256:2"})
    assert caught.value.found == (
        "model.layers = 3 (was 2); train.learning_rate = 0.5 (was 0.01); digest of corpus = 'sha256:2' (was 'sha256:1')"
    )


def test_intervals_may_change_on_resuming(tmp_path):
    RunFolder.create(tmp_path, {"train": to_dict(toy_settings())})
    run = RunFolder.resume(tmp_path, {"train": to_dict(toy_settings(log_every=3, save_every=1, keep_checkpoints=9))})
    assert RunFolder.open(tmp_path).record["settings"]["train"]["log_every"] == 3
    assert run.record["settings"]["train"]["keep_checkpoints"] == 9


def test_resuming_with_another_version_is_reported(tmp_path, capsys):
    run = RunFolder.create(tmp_path, {})
    run.record["versions"]["torch"] = "1.0"
    run.resolve({})
    RunFolder.resume(tmp_path, {})
    assert f"torch {metadata.version('torch')} (was 1.0)" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["model.safetensors", "optimizer.safetensors", "state.json"])
@pytest.mark.parametrize("harm", ["cut", "flip", "remove"])
def test_a_damaged_checkpoint_falls_back_to_the_one_before(tmp_path, capsys, name, harm):
    straight, first, resumed = ToyWorkload(), ToyWorkload(), ToyWorkload()
    toy_run(tmp_path / "straight", straight)
    run = tmp_path / "run"
    toy_run(run, first, save_every=6, keep_checkpoints=9)
    for step in (18, 20):
        path = run / "checkpoints" / f"step-{step:08d}" / name
        data = path.read_bytes()
        path.unlink()
        if harm == "cut":
            path.write_bytes(data[: len(data) // 2])
        elif harm == "flip":
            path.write_bytes(data[:-9] + bytes([data[-9] ^ 64]) + data[-8:])
    toy_run(run, resumed, resume=True, save_every=6, keep_checkpoints=9)
    assert same_parameters(straight, resumed)
    assert checkpoint_steps(run / "checkpoints") == [6, 12, 18, 20]
    assert sorted(entry.name for entry in (run / "checkpoints").glob("damaged-*")) == [
        "damaged-step-00000018",
        "damaged-step-00000020",
    ]
    assert untimed(RunFolder.open(run).metrics()) == untimed(RunFolder.open(tmp_path / "straight").metrics())
    lines = capsys.readouterr().err.splitlines()
    assert [line.split(":")[1].strip() for line in lines] == [
        "the checkpoint of step 20 cannot be used",
        "the checkpoint of step 18 cannot be used",
    ]


@pytest.mark.parametrize(
    ("name", "value"),
    [("step", "20"), ("sequences", 1.5), ("seconds", None), ("guard", {"mean": []}), ("pending", [1])],
)
def test_a_checkpoint_with_a_value_of_another_type_is_damaged(tmp_path, capsys, name, value):
    straight, resumed = ToyWorkload(), ToyWorkload()
    toy_run(tmp_path / "straight", straight)
    toy_run(tmp_path / "run", ToyWorkload(), save_every=6, keep_checkpoints=9)
    path = tmp_path / "run" / "checkpoints" / "step-00000020" / "state.json"
    write_json(path, {**read_json(path), name: value})
    toy_run(tmp_path / "run", resumed, resume=True, save_every=6, keep_checkpoints=9)
    assert same_parameters(straight, resumed)
    assert "the checkpoint of step 20 cannot be used" in capsys.readouterr().err


@pytest.mark.parametrize(
    "wrong",
    [
        {"resolved": {"steps": " "}},
        {"resolved": {"steps": 20}},
        {"resolved": {"steps": 20, "evaluate_every": 2, "more": "x"}},
        {"resolved": 3},
        {"machine": "?"},
        {"digests": 1},
    ],
)
def test_a_run_with_a_damaged_record_is_refused(tmp_path, wrong):
    toy_run(tmp_path / "run", ToyWorkload())
    path = tmp_path / "run" / "settings.json"
    write_json(path, {**read_json(path), **wrong})
    with pytest.raises(RunError, match=r"a run in '.*'; found .* in settings.json"):
        RunFolder.open(tmp_path / "run")


@pytest.mark.parametrize("line", ['{"kind": "train", "loss": 1.0}', '{"step": "3"}', "7"])
def test_a_damaged_line_of_the_log_is_refused(tmp_path, line):
    toy_run(tmp_path / "run", ToyWorkload())
    with open(tmp_path / "run" / "metrics.jsonl", "a", encoding="utf-8") as file:
        file.write(f"{line}\n")
    message = r"(no step|step = |the content = 7)"
    with pytest.raises(RunError, match=rf"the log of a run in .*metrics\.jsonl.; found {message}"):
        RunFolder.open(tmp_path / "run").cut_metrics(3)


def test_a_run_whose_checkpoints_are_all_damaged_is_refused(tmp_path, capsys):
    toy_run(tmp_path, ToyWorkload())
    (tmp_path / "checkpoints" / "step-00000020" / "model.safetensors").write_bytes(b"")
    with pytest.raises(CheckpointError, match="found 1 unusable"):
        toy_run(tmp_path, ToyWorkload(), resume=True)
    assert checkpoint_steps(tmp_path / "checkpoints") == [20]


def test_a_checkpoint_of_another_model_is_refused(tmp_path, capsys):
    toy_run(tmp_path, ToyWorkload())
    with pytest.raises(CheckpointError, match=r"first\.weight' of the model with shape \(9, 4\)|the oldest: \(8, 4\)"):
        toy_run(tmp_path, ToyWorkload(width=9), resume=True)


def test_a_disk_that_is_full_while_saving_leaves_the_checkpoint_before(tmp_path, monkeypatch):
    write = checkpoint_module.save_tensors

    def full(tensors, path, rank):
        if path.name == "optimizer.safetensors" and "step-00000010" in str(path):
            path.write_bytes(b"half")
            raise OSError(errno.ENOSPC, "No space left on device")
        write(tensors, path, rank)

    monkeypatch.setattr(checkpoint_module, "save_tensors", full)
    with pytest.raises(TrainingError) as caught:
        toy_run(tmp_path, ToyWorkload(), save_every=5)
    assert caught.value.found == "No space left on device"
    assert "the checkpoint of step 5 is intact" in caught.value.fix
    assert [entry.name for entry in (tmp_path / "checkpoints").iterdir()] == ["step-00000005"]
    monkeypatch.setattr(checkpoint_module, "save_tensors", write)
    straight, resumed = ToyWorkload(), ToyWorkload()
    toy_run(tmp_path, resumed, resume=True, save_every=5)
    toy_run(tmp_path / "straight", straight)
    assert same_parameters(straight, resumed)


def test_a_disk_that_is_full_for_the_log_is_one_line(tmp_path, monkeypatch):
    def full(path, value):
        raise OSError(errno.ENOSPC, "No space left on device")

    run = RunFolder.create(tmp_path, {})
    monkeypatch.setattr("bertsmith.training.loop.run_folder.append_json_line", full)
    with pytest.raises(TrainingError, match=r"space for the log .* found No space left on device; free some space"):
        run.log({"step": 1})


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        ("bertsmith.training.loop.run_folder.sync_file", "space for the log in '.*'"),
        ("shutil.rmtree", "to remove '.*step-00000005', which is no longer needed"),
    ],
)
def test_a_disk_that_fails_around_a_checkpoint_is_one_line_and_the_run_resumes(
    tmp_path, monkeypatch, function, expected
):
    """When the log is made to survive a power cut, and when an older checkpoint is removed."""
    settings = {"save_every": 5, "keep_checkpoints": 1}

    def fail(path, ignore_errors=False):
        if not ignore_errors:
            raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as broken:
        broken.setattr(function, fail)
        with pytest.raises(TrainingError, match=f"expected {expected}; found No space left on device; free some space"):
            toy_run(tmp_path / "run", ToyWorkload(), **settings)
    straight, resumed = ToyWorkload(), ToyWorkload()
    toy_run(tmp_path / "run", resumed, resume=True, **settings)
    toy_run(tmp_path / "straight", straight, **settings)
    assert same_parameters(straight, resumed)


def test_a_best_model_that_cannot_be_removed_is_one_line(tmp_path, monkeypatch):
    def fail(path):
        raise OSError(errno.EROFS, "Read-only file system")

    run = RunFolder.create(tmp_path, {})
    (tmp_path / "best-00000005.safetensors").touch()
    monkeypatch.setattr("pathlib.Path.unlink", fail)
    with pytest.raises(TrainingError, match=r"to remove '.*best-00000005\.safetensors'.* found Read-only file system"):
        run.forget_best()


def test_a_file_size_limit_of_the_system_ends_a_run_with_one_line(tmp_path):
    """A real write that fails halfway: no file may exceed 64 KiB, and the model is larger."""
    program = [sys.executable, str(TOY), str(tmp_path / "run"), "--width", "4000", "--steps", "6"]
    result = subprocess.run(
        program,
        capture_output=True,
        text=True,
        check=False,
        env=environment(),
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (65536, resource.RLIM_INFINITY)),
    )
    assert result.returncode == 1
    assert result.stderr.startswith("error: expected space for a checkpoint")
    assert "File too large" in result.stderr
    assert "there is no earlier checkpoint" in result.stderr
    assert list((tmp_path / "run" / "checkpoints").iterdir()) == []


def test_the_log_is_cut_back_with_a_last_line_that_was_cut_off(tmp_path):
    run = RunFolder.create(tmp_path, {})
    for step in (1, 2, 3):
        run.log({"kind": "train", "step": step, "text": "é"})
    with open(tmp_path / "metrics.jsonl", "ab") as file:
        file.write(b'{"kind": "tr')
    run.cut_metrics(2)
    assert (tmp_path / "metrics.jsonl").read_text(encoding="utf-8").splitlines() == [
        '{"kind": "train", "step": 1, "text": "é"}',
        '{"kind": "train", "step": 2, "text": "é"}',
    ]
    assert run.metrics("evaluation") == []


def test_a_checkpoint_that_was_half_removed_at_a_kill_is_removed_at_the_next_start(tmp_path):
    toy_run(tmp_path, ToyWorkload(), save_every=5)
    for name in (".step-00000005.4194000.partial", ".step-00000010.4194000.partial"):
        (tmp_path / "checkpoints" / name).mkdir()
        (tmp_path / "checkpoints" / name / "model.safetensors").write_bytes(b"half")
    toy_run(tmp_path, ToyWorkload(), resume=True, save_every=5)
    assert [path.name for path in (tmp_path / "checkpoints").iterdir() if path.name.startswith(".")] == []
