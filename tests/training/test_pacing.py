"""How many steps run before Python looks up: a bound in time, whatever the number of steps."""

import pytest

from kerascnn.training.pacing import Pacer


class Machine:
    """A clock, and steps that take time on it."""

    def __init__(self, device, per_step, per_slice=0.0):
        self.now = 0.0
        self.per_step = per_step
        self.per_slice = per_slice
        self.pacer = Pacer(device, lambda: self.now)

    def epoch(self, steps):
        """Runs an epoch whose last step is a slice of its own; the slices' lengths."""
        slices = []
        for limit in (steps - 1, 1):
            while limit:
                count = min(limit, self.pacer.next_slice())
                self.now += self.per_slice + count * self.per_step
                self.pacer.finished(count)
                slices.append(count)
                limit -= count
        return slices


@pytest.mark.parametrize("steps", [100, 1005, 9001])
def test_short_epochs_on_a_gpu_are_one_slice_and_the_last_batch(steps):
    machine = Machine("cuda:0", per_step=5e-5, per_slice=5e-3)
    assert machine.epoch(steps)[:2] == [1, 8]
    machine.epoch(steps)
    for _ in range(3):
        assert machine.epoch(steps) == [steps - 1, 1]


@pytest.mark.parametrize("device, seconds", [("cpu", 0.15), ("cuda:0", 1.0)])
def test_long_epochs_are_slices_of_a_bounded_time(device, seconds):
    machine = Machine(device, per_step=0.01)
    machine.epoch(2000)
    slices = machine.epoch(2000)
    assert max(slices) * machine.per_step <= 1.01 * seconds
    assert len(slices) <= 2000 * machine.per_step / seconds + 2


def test_steps_that_become_slower_get_shorter_slices():
    machine = Machine("cpu", per_step=1e-4)
    machine.epoch(5000)
    machine.per_step = 1e-2
    slices = machine.epoch(5000)
    # One slice is as long as before, the next ones take the time they should.
    assert slices[0] == 1500
    assert set(slices[1:-2]) == {15}


def test_a_pause_of_the_machine_is_forgotten():
    machine = Machine("cpu", per_step=1e-3)
    machine.epoch(1000)
    machine.pacer.next_slice()
    machine.now += 60.0
    machine.pacer.finished(150)
    assert machine.epoch(1000)[0] == 1
    assert machine.epoch(1000)[0] == 150
