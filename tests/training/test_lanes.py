"""Micro-batches side by side give the bytes of micro-batches one after another, whichever thread is done first."""

import threading

import pytest
import torch

from bertsmith.training.loop.lanes import LEAST_TOKENS, Lanes, count_lanes, lanes_for
from bertsmith.training.loop.run_folder import RunFolder
from training.test_loop import same_parameters, untimed
from training.toy import ToyModel, ToyWorkload, toy_run


class _LanesWorkload(ToyWorkload):
    """Micro-batches of two rows without dropout; `hold` delays the first micro-batch of a step until the others ran."""

    def __init__(self, lanes: int, hold: bool = False) -> None:
        super().__init__(dropout=False, micro_batch=2)
        self.lanes, self.hold = lanes, hold
        self.seen: list[str] = []
        self.others = threading.Semaphore(0)

    def loss(self, model, micro_batch):
        self.seen.append(threading.current_thread().name)
        if self.hold and torch.equal(micro_batch[0][0], self.plan(0, 0, 1).micro_batches[0][0][0]):
            assert self.others.acquire(timeout=120)
        result = super().loss(model, micro_batch)
        self.others.release()
        return result


@pytest.mark.parametrize(("lanes", "hold"), [(2, False), (3, False), (4, False), (2, True), (4, True)])
def test_lanes_give_the_bytes_of_micro_batches_one_after_another(tmp_path, lanes, hold):
    straight, side_by_side = _LanesWorkload(1), _LanesWorkload(lanes, hold)
    toy_run(tmp_path / "straight", straight)
    toy_run(tmp_path / "lanes", side_by_side)
    assert same_parameters(straight, side_by_side)
    lines = [untimed(RunFolder.open(tmp_path / name).metrics()) for name in ("straight", "lanes")]
    assert lines[0] == lines[1]
    assert len(set(side_by_side.seen)) > 1
    assert all(name.startswith("bertsmith-lane") for name in side_by_side.seen)


def test_at_most_one_micro_batch_per_lane_is_in_progress():
    model, running, most = ToyModel(), [], []
    lock = threading.Lock()

    def loss(number):
        with lock:
            running.append(number)
            most.append(len(running))
        value = model(torch.ones(2, 4)).sum() * number
        with lock:
            running.remove(number)
        return value, {}

    parameters = list(model.parameters())
    values = [float(value) for value, _ in Lanes(2).losses(loss, range(1, 20), parameters)]
    assert len(values) == 19
    assert max(most) <= 2


def test_an_error_in_a_lane_is_the_error_of_the_step():
    def loss(number):
        raise ValueError(f"micro-batch {number}")

    with pytest.raises(ValueError, match="micro-batch 0"):
        list(Lanes(2).losses(loss, range(5), [torch.nn.Parameter(torch.ones(1))]))


@pytest.fixture
def four_threads():
    torch.set_num_threads(4)


def test_lanes_share_the_threads_and_leave_those_of_others_alone(four_threads):
    seen, model = [], ToyModel()

    def loss(_):
        seen.append(torch.get_num_threads())
        return model(torch.ones(2, 4)).sum(), {}

    list(Lanes(2).losses(loss, range(6), list(model.parameters())))
    assert set(seen) == {2}
    later = []
    thread = threading.Thread(target=lambda: later.append(torch.get_num_threads()))
    thread.start()
    thread.join()
    assert torch.get_num_threads() == later[0] == 4


def test_a_thread_is_a_lane_unless_the_model_is_too_large_or_on_another_device(four_threads, monkeypatch):
    assert count_lanes(ToyModel()) == 4
    assert count_lanes(ToyModel().to("meta")) == 1
    monkeypatch.setattr("bertsmith.training.loop.lanes.MOST_PARAMETERS", 10)
    assert count_lanes(ToyModel()) == 1
    torch.set_num_threads(1)
    monkeypatch.undo()
    assert count_lanes(ToyModel()) == 1


def test_a_lane_has_enough_tokens_to_be_worth_its_thread():
    assert [lanes_for(tokens * LEAST_TOKENS, 4) for tokens in (0, 1, 2, 3, 4, 9)] == [1, 1, 2, 3, 4, 4]
