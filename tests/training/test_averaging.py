"""NT-ASGD: when it begins to average, that the average is evaluated and saved, and that resumed = straight."""

import copy

import pytest
import torch

from bertsmith.base.core.errors import ConfigError
from bertsmith.training.loop.checkpoint import model_tensors
from training.toy import ToyWorkload, toy_run

SGD = {"optimizer": "nt-asgd", "schedule": "constant", "warmup_share": 0.0, "weight_decay": 0.1, "learning_rate": 0.05}
# Evaluated every second step; the value after step 18 is the first that is worse than one more than five before it.
LOSSES = [9.0, 5.0, 4.0, 3.0, 3.0, 3.0, 3.0, 3.0, 3.0, 3.5, 3.0, 2.0, 2.0, 2.0, 2.0, 2.0, 2.0]


class Scripted(ToyWorkload):
    """Evaluations with given values, which keep the parameters that they saw."""

    before = 0  # evaluations of the run that this one resumes

    def __init__(self) -> None:
        super().__init__(dropout=False)
        self.seen: list[dict[str, torch.Tensor]] = []
        self.steps: list[dict[str, torch.Tensor]] = []

    def higher_is_better(self):
        return {"loss": False}

    def loss(self, model, micro_batch):
        self.steps.append(copy.deepcopy(model_tensors(model)))
        return super().loss(model, micro_batch)

    def evaluate(self, model, rank):
        self.seen.append(copy.deepcopy(model_tensors(model)))
        return {"loss": LOSSES[len(self.seen) - 1 + self.before]}


def test_the_mean_of_the_steps_since_the_trigger_is_evaluated_and_saved_and_the_steps_go_on(tmp_path):
    workload = Scripted()
    toy_run(tmp_path / "run", workload, steps=26, evaluate_every=2, **SGD)
    plain = Scripted()
    toy_run(tmp_path / "plain", plain, steps=18, evaluate_every=2, **SGD)
    name = "first.weight"
    assert torch.equal(workload.seen[9][name], plain.seen[9][name]), "nothing is averaged before"
    # `steps[k]` has the parameters after k updates.
    assert torch.equal(workload.seen[9][name], workload.steps[18][name])
    for number, last in ((10, 20), (11, 22)):
        mean = torch.stack([workload.steps[step][name] for step in range(19, last + 1)]).mean(0)
        torch.testing.assert_close(workload.seen[number][name], mean)
        assert not torch.equal(workload.seen[number][name], workload.steps[last][name])
    assert torch.equal(workload.model.first.weight, workload.seen[-1][name]), "the average is what is left"


def test_each_step_is_plain_sgd(tmp_path):
    workload = Scripted()
    toy_run(tmp_path / "run", workload, steps=3, evaluate_every=2, clip_norm=1e9, **SGD)
    model = ToyWorkload(dropout=False).model
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for step in range(3):
        for batch in workload.plan(step, 0, 1).micro_batches:
            (((model(batch[0]) - batch[1]) ** 2).sum() / 8).backward()
        with torch.no_grad():
            for parameter_name, parameter in model.named_parameters():
                if "norm" not in parameter_name and "bias" not in parameter_name:
                    parameter.mul_(1 - 0.05 * 0.1)
        optimizer.step()
        optimizer.zero_grad()
    torch.testing.assert_close(model.first.weight, workload.model.first.weight)


@pytest.mark.parametrize("stopped", [12, 18, 22])
def test_a_resumed_run_is_the_straight_one_before_at_and_after_the_trigger(tmp_path, stopped):
    class StoppedError(Exception):
        pass

    straight = Scripted()
    toy_run(tmp_path / "straight", straight, steps=26, evaluate_every=2, save_every=2, **SGD)

    class Killed(Scripted):
        def loss(self, model, micro_batch):
            if len(self.steps) == stopped + 1:
                raise StoppedError
            return super().loss(model, micro_batch)

    first = Killed()
    with pytest.raises(StoppedError):
        toy_run(tmp_path / "run", first, steps=26, evaluate_every=2, save_every=2, **SGD)
    resumed = Scripted()
    resumed.before = len(first.seen)
    toy_run(tmp_path / "run", resumed, resume=True, steps=26, evaluate_every=2, save_every=2, **SGD)
    for name, tensor in model_tensors(straight.model).items():
        assert torch.equal(tensor, model_tensors(resumed.model)[name]), name


def test_the_best_model_is_the_average_that_was_evaluated(tmp_path):
    workload = Scripted()
    result = toy_run(tmp_path / "run", workload, steps=26, evaluate_every=2, keep_best="loss", **SGD)
    assert result.best_step == 22
    assert torch.equal(workload.model.first.weight, workload.seen[11]["first.weight"])


def test_it_needs_a_held_out_loss_to_go_by(tmp_path):
    with pytest.raises(
        ConfigError, match="a held-out loss, from which nt-asgd sees when to average; found no held-out"
    ):
        toy_run(tmp_path / "run", ToyWorkload(), **SGD)
