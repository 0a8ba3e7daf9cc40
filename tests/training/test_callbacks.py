"""Callbacks of a program, and trackers whose numbers are read back through the packages of their owners."""

import importlib
import sys
import time
from pathlib import Path
from typing import ClassVar
from unittest import mock

import pytest

import bertsmith
from bertsmith.base.core.errors import ConfigError, TrainingError
from bertsmith.base.core.progress import recorded_warnings
from bertsmith.base.storage.files import read_json, write_json
from bertsmith.training.loop import trackers
from bertsmith.training.loop.run_folder import RunFolder
from training.interruptions import assert_same_files, killed_at_step
from training.toy import ToyWorkload, toy_run

WEIGHTS = "checkpoints/step-00000020/model.safetensors"
# Names of Python and of other packages that the packages of trackers still use.
OLD_NAMES = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")


@pytest.fixture(scope="module")
def plain(tmp_path_factory) -> Path:
    """A run without callbacks."""
    path = tmp_path_factory.mktemp("plain")
    toy_run(path, ToyWorkload())
    return path


class Recorder(bertsmith.Callback):
    def __init__(self) -> None:
        self.calls = []

    def on_start(self, start):
        self.calls.append(("start", start.folder.name, start.step, start.steps))

    def on_log(self, step, values):
        self.calls.append(("log", step, values))

    def on_evaluation(self, step, values):
        self.calls.append(("evaluation", step, values))

    def on_end(self, result):
        self.calls.append(("end", result and result.steps))

    def on_spike(self, step, values):
        self.calls.append(("spike", step, values))


class Stops(Recorder):
    def on_log(self, step, values):
        super().on_log(step, values)
        if step == 5:
            raise bertsmith.StopTraining


class Fails(bertsmith.Callback):
    def __init__(self, hook: str) -> None:
        setattr(self, hook, self.fails)

    def fails(self, *arguments):
        raise ZeroDivisionError("by zero")


def logged(run: Path) -> dict[str, list[tuple[int, float]]]:
    """The numbers of metrics.jsonl by the names that trackers have for them."""
    numbers: dict[str, list[tuple[int, float]]] = {}
    for line in RunFolder.open(run).metrics():
        for name, value in line.items():
            if isinstance(value, int | float) and name != "step":
                numbers.setdefault(f"{line['kind']}/{name}", []).append((line["step"], value))
    return numbers


def test_a_callback_is_called_with_each_line_of_the_log(plain, tmp_path):
    with bertsmith.callbacks(recorder := Recorder()):
        toy_run(tmp_path / "run", ToyWorkload())
    toy_run(tmp_path / "after", ToyWorkload())
    assert recorder.calls[0] == ("start", "run", 0, 20)
    assert recorder.calls[-1] == ("end", 20)
    lines = RunFolder.open(tmp_path / "run").metrics()
    kinds = {"log": "train", "evaluation": "evaluation", "spike": "spike"}
    assert [{"kind": kinds[hook], "step": step, **values} for hook, step, values in recorder.calls[1:-1]] == lines
    assert_same_files(plain, tmp_path / "run", WEIGHTS)


def test_a_function_of_the_library_that_trains_calls_them(tmp_path):
    """Pre-training, for all of them: the context reaches the one loop, whichever function calls it."""
    (tmp_path / "text.txt").write_text("one two three.\nfour five six.\n\n" * 40, encoding="utf-8")
    learned = bertsmith.learn_vocabulary([tmp_path / "text.txt"], 60)
    bertsmith.build_corpus([tmp_path / "text.txt"], learned.tokenizer, tmp_path / "corpus")
    settings = {"size": "tiny", "rows_per_step": 2, "max_length": 16, "steps": 2, "device": "cpu"}
    with bertsmith.callbacks(recorder := Recorder()):
        bertsmith.pretrain(tmp_path / "corpus", tmp_path / "run", **settings)
    assert [call[0] for call in recorder.calls if call[0] in ("start", "end")] == ["start", "end"]
    recorder.on_start = mock.Mock(side_effect=bertsmith.StopTraining)
    with bertsmith.callbacks(recorder):
        assert bertsmith.pretrain(tmp_path / "corpus", tmp_path / "other", **settings).steps == 0
    assert bertsmith.load(tmp_path / "other") is not None


def test_a_callback_may_end_the_training_with_an_evaluation(tmp_path):
    with bertsmith.callbacks(stops := Stops()):
        result = toy_run(tmp_path, ToyWorkload())
    assert (result.steps, result.stopped_early) == (5, True)
    assert [call[1] for call in stops.calls if call[0] == "evaluation"] == [0, 5]
    assert stops.calls[-1] == ("end", 5)
    assert "held_out_loss" in result.scores


@pytest.mark.parametrize("hook", ["on_start", "on_evaluation"])
def test_a_training_may_end_before_its_first_step(tmp_path, hook):
    stops = bertsmith.Callback()
    setattr(stops, hook, mock.Mock(side_effect=bertsmith.StopTraining))
    with bertsmith.callbacks(stops):
        result = toy_run(tmp_path, ToyWorkload())
    assert (result.steps, result.stopped_early) == (0, True)
    assert "held_out_loss" in result.scores
    assert toy_run(tmp_path, ToyWorkload(), resume=True).steps == 20


@pytest.mark.parametrize("hook", ["on_start", "on_log", "on_evaluation", "on_end"])
def test_a_callback_that_raises_ends_the_training_in_one_line_and_it_resumes_to_the_same_bytes(plain, tmp_path, hook):
    with bertsmith.callbacks(Fails(hook), recorder := Recorder()), pytest.raises(TrainingError) as caught:
        toy_run(tmp_path / "run", ToyWorkload(), save_every=8)
    assert f"{hook} of the callback Fails to return; found ZeroDivisionError: by zero" in str(caught.value)
    assert "\n" not in str(caught.value)
    assert [call[0] for call in recorder.calls if call[0] == "end"] == ([] if hook == "on_start" else ["end"])
    toy_run(tmp_path / "run", ToyWorkload(), resume=True, save_every=8)
    assert_same_files(plain, tmp_path / "run", WEIGHTS)


@pytest.mark.parametrize("error", [ZeroDivisionError("by zero"), TrainingError(expected="a", found="b", fix="c")])
def test_callbacks_hear_of_the_end_of_a_training_that_fails(tmp_path, error):
    fails = bertsmith.Callback()
    fails.on_end = mock.Mock(side_effect=error)
    both = bertsmith.callbacks(fails, recorder := Recorder())
    with recorded_warnings() as warnings, both, pytest.raises(TrainingError, match="NaN or infinity in 5 steps"):
        toy_run(tmp_path, ToyWorkload(broken=tuple(range(3, 9))))
    assert recorder.calls[-1] == ("end", None)
    assert warnings[-1] == f"the callback Callback raised {type(error).__name__}: {error} in on_end"


def test_a_jump_of_the_loss_is_passed_on_and_sent(tmp_path, notebook):
    with bertsmith.callbacks(recorder := Recorder()):
        toy_run(tmp_path, ToyWorkload(jumps=(70,), dropout=False), steps=80, track="mlflow")
    (spike,) = RunFolder.open(tmp_path).metrics("spike")
    assert [
        {"kind": kind, "step": step, **values} for kind, step, values in recorder.calls[1:-1] if kind == "spike"
    ] == [spike]
    assert [point for point in notebook.kept["0"][:-1] if point[0].startswith("spike/")] == [
        ("spike/spike_loss", 71, spike["spike_loss"]),
        ("spike/usual_loss", 71, spike["usual_loss"]),
    ]


class Notebook(trackers.Tracker):
    """A tracker that keeps what it receives in memory, by the name of the training."""

    kept: ClassVar[dict[str, list]] = {}
    fails_at: ClassVar[int | None] = None

    def open(self, settings, earlier):
        self.id = earlier or f"{len(self.kept)}"
        self.kept.setdefault(self.id, [])
        return self.id

    def add(self, step, values):
        if step == self.fails_at:
            raise OSError("the tracker is away")
        self.kept[self.id] += [(name, step, value) for name, value in values.items()]

    def close(self, *, is_finished):
        self.kept[self.id].append(is_finished)


@pytest.fixture
def notebook(monkeypatch):
    monkeypatch.setitem(trackers._KINDS, "mlflow", Notebook)
    monkeypatch.setattr(Notebook, "kept", {})
    monkeypatch.setattr(Notebook, "fails_at", None)
    return Notebook


def test_a_resumed_run_is_the_same_run_of_its_tracker_without_steps_twice(tmp_path, notebook):
    with killed_at_step(13):
        toy_run(tmp_path, ToyWorkload(), track="mlflow", save_every=5)
    toy_run(tmp_path, ToyWorkload(), resume=True, track="mlflow", save_every=5)
    assert list(notebook.kept) == ["0"]
    points = [point[:2] for point in notebook.kept["0"] if isinstance(point, tuple)]
    assert sorted(points) == sorted((name, step) for name, pairs in logged(tmp_path).items() for step, _ in pairs)
    assert [point for point in notebook.kept["0"] if not isinstance(point, tuple)] == [False, True]


def test_a_tracker_that_joins_a_run_later_receives_its_earlier_lines(tmp_path, notebook):
    with killed_at_step(13):
        toy_run(tmp_path, ToyWorkload(), save_every=5)
    toy_run(tmp_path, ToyWorkload(), resume=True, track="mlflow:elsewhere", save_every=5)
    assert {step for _, step, _ in notebook.kept["0"][:-1]} == set(range(21))


def test_a_tracker_that_fails_is_left_out_of_the_rest_and_the_model_is_the_same(plain, tmp_path, notebook):
    notebook.fails_at = 4
    with recorded_warnings() as warnings:
        toy_run(tmp_path / "run", ToyWorkload(), track="mlflow")
    assert {point[1] for point in notebook.kept["0"]} == {0, 1, 2, 3}
    assert warnings == [
        "Notebook receives nothing more of this training, because its package raised OSError: the tracker is away"
    ]
    assert_same_files(plain, tmp_path / "run", WEIGHTS)


def test_a_tracker_that_cannot_start_is_refused_before_the_first_step(tmp_path, notebook, monkeypatch):
    monkeypatch.setattr(Notebook, "open", lambda *arguments: 1 / 0)
    with pytest.raises(ConfigError, match=r"Notebook to open a run; found ZeroDivisionError: .*omit --track"):
        toy_run(tmp_path / "run", ToyWorkload(), track="mlflow")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("named", "message"),
    [
        ("tensorbord", "unknown tracker 'tensorbord'; did you mean 'tensorboard'?"),
        ("tensorboard:here", "track must be tensorboard, whose files are in RUN/tensorboard, not 'tensorboard:here'"),
        (
            "mlflow:https://me:secret@tracker.test",
            "expected the address of mlflow without a name or password, because settings are written to files; found "
            "one with an @; set it in the environment, as mlflow describes, and use `--track mlflow`",
        ),
    ],
)
def test_another_name_or_place_is_refused(tmp_path, named, message):
    with pytest.raises(ConfigError) as caught:
        toy_run(tmp_path, ToyWorkload(), track=named)
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("name", "module"), [("tensorboard", "torch.utils.tensorboard"), ("mlflow", "mlflow"), ("wandb", "wandb")]
)
def test_a_missing_package_is_named(tmp_path, monkeypatch, name, module):
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ConfigError, match=rf"the package {name}, .*pip install 'bertsmith\[{name}\]'"):
        toy_run(tmp_path, ToyWorkload(), track=name)


def interrupted(plain: Path, path: Path, **options: object) -> dict[str, list[tuple[int, float]]]:
    """The log of a tracked run that was killed after a checkpoint and resumed; its model is that of a plain one."""
    with killed_at_step(13):
        toy_run(path / "run", ToyWorkload(), save_every=5, **options)
    toy_run(path / "run", ToyWorkload(), resume=True, save_every=5, **options)
    assert_same_files(plain, path / "run", WEIGHTS)
    return logged(path / "run")


def assert_equal_points(tracked: dict[str, list[tuple[int, float]]], log: dict[str, list[tuple[int, float]]]) -> None:
    """The points of a tracker are those of the log; times of steps that were computed again are the first ones."""
    assert {name: [step for step, _ in points] for name, points in tracked.items()} == {
        name: [step for step, _ in points] for name, points in log.items()
    }
    for name, points in log.items():
        if name.rpartition("/")[2] not in ("seconds", "time_left", "tokens_per_second"):
            values = [[value for _, value in pairs] for pairs in (tracked[name], points)]
            assert values[0] == pytest.approx(values[1], rel=1e-6), name


@OLD_NAMES
@pytest.mark.parametrize("options", [{"track": "tensorboard"}, {"tensorboard": True}])
def test_tensorboard_reads_every_number_once(plain, tmp_path, options):
    pytest.importorskip("tensorboard")
    log = interrupted(plain, tmp_path, **options)
    assert_equal_points(tensorboard_points(tmp_path / "run"), log)


def tensorboard_points(run: Path) -> dict[str, list[tuple[int, float]]]:
    """The points that TensorBoard shows of a run."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(run / "tensorboard"), size_guidance={"scalars": 0}).Reload()
    return {tag: [(event.step, event.value) for event in events.Scalars(tag)] for tag in events.Tags()["scalars"]}


@OLD_NAMES
def test_tensorboard_reads_every_number_of_a_run_of_an_older_version_once(tmp_path):
    pytest.importorskip("tensorboard")
    run = tmp_path / "run"
    with killed_at_step(13):
        toy_run(run, ToyWorkload(), save_every=5, tensorboard=True)
    record = read_json(run / "settings.json")
    del record["tracked"]
    write_json(run / "settings.json", record)
    toy_run(run, ToyWorkload(), resume=True, save_every=5, tensorboard=True)
    assert_equal_points(tensorboard_points(run), logged(run))


@OLD_NAMES
def test_mlflow_reads_every_number_once_and_the_settings(plain, tmp_path):
    mlflow = pytest.importorskip("mlflow")
    pytest.importorskip("sqlalchemy")
    store = f"sqlite:///{tmp_path / 'mlflow.db'}"
    log = interrupted(plain, tmp_path, track=f"mlflow:{store}")
    client = mlflow.MlflowClient(tracking_uri=store)
    (run,) = client.search_runs([client.get_experiment_by_name("bertsmith").experiment_id])
    history = {name: client.get_metric_history(run.info.run_id, name) for name in run.data.metrics}
    assert_equal_points({name: [(p.step, p.value) for p in points] for name, points in history.items()}, log)
    assert (run.info.status, run.info.run_name) == ("FINISHED", f"{tmp_path.name}/run")
    assert run.data.params["train.learning_rate"] == "0.01"


@OLD_NAMES
def test_the_offline_files_of_wandb_have_every_number_once_and_one_run(plain, tmp_path):
    pytest.importorskip("wandb")
    log = interrupted(plain, tmp_path, track="wandb")
    files = sorted((tmp_path / "run" / "wandb").glob("offline-run-*/run-*.wandb"))
    assert len(files) == 2
    assert len({file.name for file in files}) == 1, "one id"
    ends = time.monotonic() + 120
    while not all(any(record.HasField("exit") for record in wandb_records(file)) for file in files):
        assert time.monotonic() < ends  # the service of W&B writes on after `finish` has returned
        time.sleep(0.01)
    tracked: dict[str, list[tuple[int, float]]] = {}
    for record in (record for file in files for record in wandb_records(file)):
        row = {item.key or "/".join(item.nested_key): float(item.value_json) for item in record.history.item}
        for name, value in row.items():
            if not name.startswith("_"):
                tracked.setdefault(name, []).append((int(row["_step"]), value))
    assert_equal_points(tracked, log)


def wandb_records(file: Path):
    """The records of an offline file: in blocks of 32 KB, each part after its checksum, length and kind."""
    record = importlib.import_module("wandb.proto.wandb_internal_pb2").Record
    content, position, parts = file.read_bytes(), 7, b""
    while position + 7 <= len(content):
        left = 32768 - position % 32768
        if left < 7:
            position += left
            continue
        length, kind = int.from_bytes(content[position + 4 : position + 6], "little"), content[position + 6]
        if position + 7 + length > len(content):
            return  # it is still being written
        parts += content[position + 7 : position + 7 + length]
        position += 7 + length
        if kind in (1, 4):  # whole, or the last part
            yield record.FromString(parts)
            parts = b""
