"""Behaviour and output of a run, on a tiny workload."""

import math
import os
import signal
import threading

import pytest
import safetensors
import torch

from bertsmith.base.core import progress
from bertsmith.base.core.errors import ConfigError, TrainingError
from bertsmith.base.core.progress import tell
from bertsmith.base.core.randomness import derive
from bertsmith.base.core.settings import to_dict
from bertsmith.base.machine.runtime import Rank
from bertsmith.training.loop.callbacks import Callback, callbacks
from bertsmith.training.loop.checkpoint import checkpoint_steps, model_tensors
from bertsmith.training.loop.guard import StopRequest
from bertsmith.training.loop.loop import TIMES, train
from bertsmith.training.loop.run_folder import RunFolder
from bertsmith.training.loop.trainer import Trainer
from training.toy import ROWS, ToyWorkload, toy_run, toy_settings


def same_parameters(a: ToyWorkload, b: ToyWorkload) -> bool:
    x, y = model_tensors(a.model), model_tensors(b.model)
    return x.keys() == y.keys() and all(torch.equal(x[name], y[name]) for name in x)


def untimed(lines):
    return [{name: value for name, value in line.items() if name not in TIMES} for line in lines]


def test_the_loss_falls_and_the_log_tells_of_every_step(tmp_path):
    workload = ToyWorkload(dropout=False)
    result = toy_run(tmp_path, workload, steps=60, learning_rate=0.05, warmup_steps=6)
    lines = RunFolder.open(tmp_path).metrics("train")
    assert [line["step"] for line in lines] == list(range(1, 61))
    assert lines[-1]["loss"] < 0.5 * lines[0]["loss"]
    assert lines[-1]["loss"] == pytest.approx(lines[-1]["mean_square"])
    wanted = {"tokens", "loss", "learning_rate", "gradient_norm", "tokens_per_second", "seconds", "time_left"}
    assert all(wanted <= line.keys() for line in lines)
    assert lines[0]["learning_rate"] == 0.0
    assert lines[-1]["tokens"] == result.tokens == 60 * 4 * ROWS
    assert result.sequences == 60 * ROWS
    assert result.metrics["held_out_loss"] < 1
    assert workload.told == [60]


def test_a_line_of_several_steps_holds_their_mean(tmp_path):
    toy_run(tmp_path / "one", ToyWorkload())
    toy_run(tmp_path / "many", ToyWorkload(), log_every=8)
    single = [line["loss"] for line in RunFolder.open(tmp_path / "one").metrics("train")]
    lines = RunFolder.open(tmp_path / "many").metrics("train")
    assert [line["step"] for line in lines] == [8, 16, 20]
    means = [sum(single[a:b]) / (b - a) for a, b in ((0, 8), (8, 16), (16, 20))]
    assert [line["loss"] for line in lines] == pytest.approx(means, rel=1e-12)


def test_the_cut_into_micro_batches_changes_nothing_but_rounding(tmp_path):
    """A step of 8 rows is the same in micro-batches of 8, 3 or 1."""
    whole, *cut = (ToyWorkload(dropout=False, micro_batch=size) for size in (8, 3, 1))
    toy_run(tmp_path / "whole", whole)
    for workload in cut:
        toy_run(tmp_path / str(workload.micro_batch), workload)
        for name, tensor in model_tensors(whole.model).items():
            torch.testing.assert_close(tensor, model_tensors(workload.model)[name], rtol=1e-4, atol=1e-5)


def test_the_same_settings_give_the_same_run(tmp_path):
    first, second = ToyWorkload(), ToyWorkload()
    toy_run(tmp_path / "first", first)
    torch.rand(100)
    toy_run(tmp_path / "second", second)
    assert same_parameters(first, second)
    lines = [untimed(RunFolder.open(tmp_path / name).metrics()) for name in ("first", "second")]
    assert lines[0] == lines[1]


def test_training_leaves_the_generator_of_the_caller_alone(tmp_path):
    workload = ToyWorkload()
    before = torch.get_rng_state()
    toy_run(tmp_path, workload)
    assert torch.equal(torch.get_rng_state(), before)


def test_evaluation_happens_at_the_start_at_the_interval_and_at_the_end(tmp_path):
    toy_run(tmp_path, ToyWorkload())
    lines = RunFolder.open(tmp_path).metrics("evaluation")
    assert [line["step"] for line in lines] == [0, 7, 14, 20]
    assert all("held_out_loss" in line for line in lines)


def test_evaluation_happens_ten_times_where_no_interval_is_given(tmp_path):
    toy_run(tmp_path, ToyWorkload(), evaluate_every=None)
    lines = RunFolder.open(tmp_path).metrics("evaluation")
    assert [line["step"] for line in lines] == list(range(0, 21, 2))


def test_only_the_last_checkpoints_are_kept(tmp_path):
    toy_run(tmp_path, ToyWorkload(), keep_checkpoints=3, save_every=4)
    assert checkpoint_steps(tmp_path / "checkpoints") == [12, 16, 20]


def test_time_alone_can_ask_for_a_checkpoint(tmp_path):
    toy_run(tmp_path, ToyWorkload(), steps=4, save_every=None, save_minutes=1e-9, keep_checkpoints=9)
    assert checkpoint_steps(tmp_path / "checkpoints") == [1, 2, 3, 4]


def test_the_model_is_written_by_the_caller_at_the_end(tmp_path):
    settings, calls = toy_settings(), []
    run = RunFolder.create(tmp_path, {"train": to_dict(settings)})
    result = train(ToyWorkload(), settings, run, write_model=lambda folder, result: calls.append((folder, result)))
    assert calls == [(tmp_path / "model", result)]


@pytest.mark.parametrize("error", [OSError(28, "No space left"), safetensors.SafetensorError("No space left")])
def test_a_disk_that_is_full_for_the_model_keeps_the_last_checkpoint(tmp_path, error):
    def full(folder, result):
        raise error

    settings = toy_settings()
    run = RunFolder.create(tmp_path, {"train": to_dict(settings)})
    with pytest.raises(TrainingError, match=r"space for the model .* found No space left; free some space and resume"):
        train(ToyWorkload(), settings, run, write_model=full)
    assert run.last_step() == 20
    results = []
    train(ToyWorkload(), settings, RunFolder.open(tmp_path), write_model=lambda folder, result: results.append(result))
    assert [result.steps for result in results] == [20]


def test_a_step_that_is_not_a_number_is_not_applied(tmp_path, capsys):
    workload = ToyWorkload(broken=(7,))
    result = toy_run(tmp_path, workload)
    run = RunFolder.open(tmp_path)
    assert (result.skipped, result.steps) == (1, 20)
    assert [line["step"] for line in run.metrics("skipped")] == [8]
    assert "loss" not in run.metrics("train")[7]
    assert all(bool(tensor.isfinite().all()) for tensor in model_tensors(workload.model).values())
    said = capsys.readouterr().err
    assert "step 8 was skipped, because its loss or gradient is not finite (loss nan, gradient norm" in said
    assert "); after 5 such steps in a row the training stops" in said


def test_several_steps_in_a_row_that_are_not_numbers_end_the_run(tmp_path, capsys):
    with pytest.raises(TrainingError) as caught:
        toy_run(tmp_path, ToyWorkload(broken=tuple(range(11, 20))), skip_limit=3, save_every=5)
    assert "NaN or infinity in 3 steps in a row, up to step 14 (loss nan" in caught.value.found
    assert (
        caught.value.fix
        == "lower the learning rate, and start a new run; the last checkpoint, of step 10, was written before them"
    )


def test_a_jump_of_the_loss_is_reported_and_recorded(tmp_path, capsys):
    result = toy_run(tmp_path, ToyWorkload(jumps=(70,), dropout=False), steps=80)
    (line,) = RunFolder.open(tmp_path).metrics("spike")
    assert result.spikes == 1
    assert line["step"] == 71
    assert line["spike_loss"] > 10 * line["usual_loss"]
    assert "the loss jumped" in capsys.readouterr().err


def test_an_error_in_the_plan_of_a_later_step_ends_the_run_as_it_is(tmp_path):
    class Fails(ToyWorkload):
        def plan(self, step, rank, world):
            if step == 3:
                raise ConfigError(expected="a", found="b", fix="c")
            return super().plan(step, rank, world)

    with pytest.raises(ConfigError, match="expected a; found b; c"):
        toy_run(tmp_path, Fails())
    assert [line["step"] for line in RunFolder.open(tmp_path).metrics("train")] == [1, 2, 3]
    # Threads of other tests in this process are not the loop's.
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("bertsmith-plan")]


def test_the_next_step_is_planned_while_this_one_is_computed(tmp_path):
    class Meets(ToyWorkload):
        planned = threading.Event()
        met: list[bool]

        def plan(self, step, rank, world):
            if step == 1:
                self.planned.set()
            return super().plan(step, rank, world)

        def loss(self, model, micro_batch):
            self.met = [*getattr(self, "met", []), self.planned.wait(timeout=120)]
            return super().loss(model, micro_batch)

    workload = Meets()
    toy_run(tmp_path, workload, steps=2)
    assert workload.met == [True, True]


def test_a_step_without_work_is_refused(tmp_path):
    class Idle(ToyWorkload):
        def plan(self, step, rank, world):
            return super().plan(step, ROWS, ROWS + 1)

    with pytest.raises(ConfigError, match="found none for process 0 in step 0"):
        toy_run(tmp_path, Idle())


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_stopped_run_finishes_its_step_saves_and_goes_on_as_if_nothing_had_been(tmp_path, number, capsys):
    class Stopped(ToyWorkload):
        def loss(self, model, micro_batch):
            if self.model.training and len(os.listdir(tmp_path / "stopped")) and self.countdown():
                os.kill(os.getpid(), number)
            return super().loss(model, micro_batch)

        def countdown(self):
            self.calls = getattr(self, "calls", 0) + 1
            return self.calls == 9

    straight, stopped, resumed = ToyWorkload(), Stopped(), ToyWorkload()
    toy_run(tmp_path / "straight", straight)
    with pytest.raises(KeyboardInterrupt):
        toy_run(tmp_path / "stopped", stopped, save_every=5)
    assert checkpoint_steps(tmp_path / "stopped" / "checkpoints") == [5, 9]
    toy_run(tmp_path / "stopped", resumed, resume=True)
    assert same_parameters(straight, resumed)
    lines = [untimed(RunFolder.open(tmp_path / name).metrics()) for name in ("straight", "stopped")]
    assert lines[0] == lines[1]


def test_the_optimizer_can_be_lamb_with_another_schedule(tmp_path):
    workload = ToyWorkload(dropout=False)
    toy_run(tmp_path, workload, optimizer="lamb", schedule="hf_linear", bias_correction=True, steps=60)
    lines = RunFolder.open(tmp_path).metrics("train")
    assert lines[-1]["loss"] < 0.9 * lines[0]["loss"]
    assert max(line["learning_rate"] for line in lines) == 0.01


@pytest.mark.parametrize(("rate", "wanted"), [(None, 0.02), (0.05, 0.05)])
def test_muon_has_a_rate_of_its_own_for_matrices(rate, wanted):
    settings = toy_settings(optimizer="muon", muon_rate=rate, learning_rate=0.01)
    assert Trainer(ToyWorkload(), settings, Rank(), StopRequest()).optimizer.matrix_rate == pytest.approx(wanted / 0.01)


class ScriptedWorkload(ToyWorkload):
    """A workload whose evaluations return the given values in order, the last of which may be an interruption; `seen`
    keeps the parameters at each evaluation."""

    def __init__(self, *values):
        super().__init__()
        self.values, self.seen = iter(values), []

    def evaluate(self, model, rank):
        value = next(self.values)
        if value is None:
            raise KeyboardInterrupt
        self.seen.append(model_tensors(model)["first.weight"].clone())
        return {"score": value}

    def higher_is_better(self):
        return {"score": True, "loss": False}


class FallingWorkload(ScriptedWorkload):
    """As `ScriptedWorkload`, with a value that should be low."""

    def evaluate(self, model, rank):
        return {"loss": super().evaluate(model, rank)["score"]}


def test_the_best_model_is_kept_when_patience_runs_out_and_after_a_resume(tmp_path):
    settings = toy_settings(evaluate_every=2, evaluate_at_start=False, save_every=2, keep_best="score", patience=2)
    written = {}

    def go(name, workload, *, resume=False):
        run = RunFolder.prepare(tmp_path / name, {"train": to_dict(settings)}, resume=resume)
        return train(
            workload,
            settings,
            run,
            write_model=lambda folder, _: written.update({name: model_tensors(workload.model)["first.weight"].clone()}),
        )

    straight = ScriptedWorkload(1.0, 3.0, 2.0, 2.0)
    result = go("straight", straight)
    assert (result.steps, result.best_step, result.stopped_early) == (8, 4, True)
    assert torch.equal(written["straight"], straight.seen[1])
    assert not torch.equal(straight.seen[1], straight.seen[3])
    with pytest.raises(KeyboardInterrupt):
        go("stopped", ScriptedWorkload(1.0, 3.0, None))
    resumed = go("stopped", ScriptedWorkload(2.0, 2.0), resume=True)
    assert (resumed.steps, resumed.best_step, resumed.stopped_early) == (8, 4, True)
    assert torch.equal(written["stopped"], written["straight"])
    again = go("stopped", ScriptedWorkload(), resume=True)
    assert (again.steps, again.best_step) == (8, 4)
    assert torch.equal(written["stopped"], written["straight"])


def test_a_value_that_should_be_low_keeps_the_model_with_the_lowest_one(tmp_path):
    settings = toy_settings(steps=8, evaluate_every=2, evaluate_at_start=False, keep_best="loss")
    workload, written = FallingWorkload(3.0, 1.0, math.nan, 2.0), []
    result = train(
        workload,
        settings,
        RunFolder.create(tmp_path / "run", {"train": to_dict(settings)}),
        write_model=lambda *_: written.append(model_tensors(workload.model)["first.weight"].clone()),
    )
    assert (result.steps, result.best_step, result.kept_step) == (8, 4, 4)
    assert result.scores == {"held_out_loss": 1.0}
    assert (result.tokens, result.kept_tokens) == (8 * 32, 4 * 32)
    assert torch.equal(written[0], workload.seen[1])


def test_patience_ends_a_run_whose_loss_no_longer_falls(tmp_path):
    workload = FallingWorkload(3.0, 1.0, 2.0, 2.0)
    result = toy_run(
        tmp_path / "run", workload, evaluate_every=2, evaluate_at_start=False, keep_best="loss", patience=2
    )
    assert (result.steps, result.best_step, result.stopped_early) == (8, 4, True)


def test_a_value_to_keep_the_best_by_must_be_known(tmp_path):
    with pytest.raises(ConfigError, match="found 'los'; did you mean 'loss'"):
        toy_run(tmp_path / "run", ScriptedWorkload(), keep_best="los")
    assert not (tmp_path / "run").exists()
    with pytest.raises(ConfigError, match="found 'loss'; evaluate on held-out data, or omit keep_best"):
        toy_run(tmp_path / "run", ToyWorkload(), keep_best="loss")


def test_a_run_whose_steps_were_all_skipped_fails_and_writes_no_model(tmp_path):
    settings, written = toy_settings(steps=3), []
    run = RunFolder.create(tmp_path / "run", {"train": to_dict(settings)})
    with pytest.raises(TrainingError, match=r"expected steps with a finite loss.* found 3 steps, all skipped.*; lower"):
        train(ToyWorkload(broken=(0, 1, 2)), settings, run, write_model=lambda *_: written.append(1))
    assert not written


def test_a_run_that_ends_with_parameters_that_are_not_finite_fails(tmp_path):
    class Overflowing(ToyWorkload):
        def evaluate(self, model, rank):
            model.first.weight.fill_(math.inf)
            return {}

    with pytest.raises(TrainingError, match=r"NaN or infinite values in 1 tensor, such as first\.weight; lower"):
        toy_run(tmp_path / "run", Overflowing(), steps=2, evaluate_every=2, evaluate_at_start=False)


@pytest.mark.parametrize("step", [1, 6])
def test_sigterm_ends_a_step_with_its_micro_batch_and_the_resumed_run_is_the_straight_one(tmp_path, step):
    """A step of a large model takes minutes, and a cluster kills a process soon after SIGTERM."""
    toy_run(tmp_path / "straight", ToyWorkload(micro_batch=4))
    stopped, seen = ToyWorkload(micro_batch=4), []
    loss = stopped.loss

    def stop_in_the_first_micro_batch(model, micro_batch):
        seen.append(None)
        if len(seen) == (step - 1) * ROWS // 4 + 1:
            os.kill(os.getpid(), signal.SIGTERM)
        return loss(model, micro_batch)

    stopped.loss = stop_in_the_first_micro_batch
    with pytest.raises(KeyboardInterrupt):
        toy_run(tmp_path / "run", stopped)
    assert len(seen) == (step - 1) * ROWS // 4 + 1, "no further micro-batch"
    assert RunFolder.open(tmp_path / "run").last_step() == (step - 1 or None)
    toy_run(tmp_path / "run", ToyWorkload(micro_batch=4), resume=True)
    lines = [untimed(RunFolder.open(tmp_path / name).metrics()) for name in ("straight", "run")]
    assert lines[0] == lines[1]
    models = [
        (tmp_path / name / "checkpoints" / "step-00000020" / "model.safetensors").read_bytes()
        for name in ("straight", "run")
    ]
    assert models[0] == models[1]


def test_each_evaluation_is_passed_on_after_its_log_line_and_changes_nothing(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(progress, "_silent", 0)
    plain = ToyWorkload()
    toy_run(tmp_path / "plain", plain)
    seen = []

    class Note(Callback):
        def on_evaluation(self, step, values):
            line = RunFolder.open(tmp_path / "watched").metrics("evaluation")[-1]
            assert line == {"kind": "evaluation", "step": step, **values}
            seen.append(step)
            tell(f"evaluated at {step}")  # not silenced, unlike the evaluation itself

    watched = ToyWorkload()
    with callbacks(Note()):
        toy_run(tmp_path / "watched", watched)
    lines = [RunFolder.open(tmp_path / name).metrics() for name in ("plain", "watched")]
    assert seen == [line["step"] for line in lines[0] if line["kind"] == "evaluation"]
    assert len(seen) > 2
    assert untimed(lines[0]) == untimed(lines[1])
    assert same_parameters(plain, watched)
    said = capsys.readouterr().err
    assert all(f"evaluated at {step}\n" in said for step in seen)


def test_torchs_global_generator_is_that_of_the_step(tmp_path):
    seen = []

    class Watched(ToyWorkload):
        def loss(self, model, micro_batch):
            seen.append(torch.initial_seed())
            return super().loss(model, micro_batch)

    toy_run(tmp_path, Watched(), steps=3)
    assert seen == [derive(toy_settings().seed, "step", step, 0) for step in range(3)]
