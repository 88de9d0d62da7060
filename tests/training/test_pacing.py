"""How many steps run before Python looks up: the bound is a time, however many steps there are."""

import pytest

from kerascnn.training.pacing import LaunchQueue, Pacer


class Machine:
    """A clock, and steps that take time on it."""

    def __init__(self, device, per_step, per_slice=0.0):
        self.now = 0.0
        self.per_step = per_step
        self.per_slice = per_slice
        self.pacer = Pacer(device, lambda: self.now)

    def epoch(self, steps):
        """Runs an epoch whose last step has its own slice; returns the lengths of the slices."""
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
    # The first slice is as long as before; the next ones take the intended time.
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


class Gpu:
    """A simulated GPU: steps take time on its clock in turn, while the host launches more."""

    def __init__(self, per_step, per_launch):
        self.now = self.busy_until = 0.0
        self.per_step, self.per_launch = per_step, per_launch
        self.queue = LaunchQueue("cuda:0", lambda: self.now, self.fence)
        self.ahead = []

    def fence(self, device):
        gpu = self

        class Fence:
            at = 0.0

            def record(self):
                self.at = gpu.busy_until

            def wait(self):
                gpu.now = max(gpu.now, self.at)

        return Fence()

    def run(self, steps):
        for _ in range(steps):
            self.now += self.per_launch
            self.busy_until = max(self.busy_until, self.now) + self.per_step
            self.queue.launched()
            self.ahead.append((self.busy_until - self.now) / self.per_step)


def test_launches_of_small_steps_are_hidden_and_bounded():
    gpu = Gpu(per_step=5e-5, per_launch=4e-5)
    gpu.run(1000)
    # The device only waits in the first steps, before the time for a step is known.
    assert gpu.busy_until < 1000 * 5e-5 + 10 * 4e-5
    assert max(gpu.ahead) <= 33
    slow_host = Gpu(per_step=1e-5, per_launch=4e-5)
    slow_host.run(1000)
    assert slow_host.now < 1000 * 4e-5 + 1e-3


def test_long_steps_are_not_enqueued_far_ahead():
    """Ctrl-C takes effect within a few steps, or within a few hundredths of a second."""
    gpu = Gpu(per_step=0.2, per_launch=1e-4)
    gpu.run(50)
    assert max(gpu.ahead) <= 2.01
    gpu = Gpu(per_step=5e-3, per_launch=1e-4)
    gpu.run(200)
    assert max(gpu.ahead[20:]) * 5e-3 <= 0.05


def test_the_loss_is_looked_at_now_and_then():
    gpu = Gpu(per_step=5e-5, per_launch=4e-5)
    looks = []
    for _ in range(10_000):
        gpu.run(1)
        looks.append(gpu.queue.may_look())
    assert 3 <= sum(looks) <= 6  # All steps together take half a second.
    assert LaunchQueue("cpu").may_look() and LaunchQueue("cpu").may_look()
