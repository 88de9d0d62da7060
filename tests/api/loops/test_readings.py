"""Each reading of a variable in a body is a value of its own, even after an assignment.

Run at once, a loop is Python's, and a tape's gradient for a variable is the sum over all readings
and goes no further than them. The node must give the same, whatever the body assigns before it
reads.
"""

import numpy as np
import pytest

import kerascnn as keras
from kerascnn import ops

from .checks import close, tensors

COUNT = 4


class Case:
    """A loss of an input and two variables, s (a number) and v (a row), which it may assign."""

    def __init__(self, rng):
        self.s = keras.Variable(rng.uniform(0.5, 1.5), dtype="float64", name="s")
        self.v = keras.Variable(rng.standard_normal(3), dtype="float64", name="v")

    def step(self, c, row):
        """Reads, assigns and reads again.

        It overwrites nothing that a gradient reads, so the gradient is also defined when run at
        once.
        """
        before = 3.0 * self.s
        self.s.assign(0.5 * self.s + ops.sum(row) + 0.1 * c)
        self.v.assign(ops.sin(row) + 0.2 * self.v)
        return c + before + 2.0 * self.s + ops.sum(5.0 * self.v), self.s + ops.sum(self.v)

    def scan(self, x):
        c, rows = ops.scan(self.step, ops.sum(x[0]), x)
        return c + ops.sum(rows) + 7.0 * self.s

    def scan_that_assigns_first(self, x):
        def step(c, row):
            self.v.assign(row * 1.0)
            return c + ops.sum(4.0 * self.v), ()

        return ops.scan(step, ops.zeros((), dtype=x.dtype), x)[0] + ops.sum(self.v)

    def while_loop(self, x):
        def body(i, c):
            return i + 1, self.step(c, ops.take(x, i, axis=0))[0]

        first = (0, ops.zeros((), dtype=x.dtype))
        return ops.while_loop(lambda i, _: i < 3, body, first, maximum_iterations=9)[1]

    def fori_loop(self, x):
        return ops.fori_loop(
            0, 3, lambda i, c: self.step(c, ops.take(x, i, axis=0))[1] + c, ops.sum(x[1])
        )

    def cond(self, x):
        def left():
            return self.step(self.s * 1.0, x[0])[0]

        def right():
            return 11.0 * self.s

        return sum(ops.cond(ops.sum(x) > sign * 1e9, left, right) for sign in (1, -1))

    def switch(self, x):
        branches = [
            lambda y: self.step(self.s * 1.0, y)[1],
            lambda y: 2.0 * self.s,
            lambda y: ops.sum(y),
        ]
        index = ops.cast(ops.sum(x) > -1e9, "int32")
        return sum(ops.switch(index + i, branches, x[0]) for i in (-1, 0, 1)) + self.s

    def nested(self, x):
        def outer(c, rows):
            inner, last = ops.scan(self.step, c, ops.stack([rows, rows * 2.0]))
            self.s.assign(0.5 * self.s)
            return ops.cond(ops.sum(rows) > -1e9, lambda: inner + 3.0 * self.s, lambda: c), ops.sum(
                last
            )

        c, sums = ops.scan(outer, ops.sum(x[0]), x)
        return c + ops.sum(sums) + self.s

    def remat_in_a_loop(self, x):
        return ops.scan(keras.remat(self.step), ops.sum(x[0]), x)[0]

    def loop_in_remat(self, x):
        return keras.remat(self.nested)(x) + 2.0 * self.s

    def remat_that_assigns(self, x):
        block = keras.remat(lambda x: self.step(ops.sum(x), x[0])[0])
        return block(x) + 3.0 * self.s + block(2.0 * x)

    def remat_that_assigns_first(self, x):
        def block(x):
            self.v.assign(x[0] * 2.0)
            return ops.sum(3.0 * self.v)

        return keras.remat(block)(x) + ops.sum(self.v)

    def remat_of_remat(self, x):
        inner = keras.remat(lambda x: self.step(ops.sum(x), x[0])[0])

        def outer(x):
            first = inner(x) + 2.0 * self.s
            self.s.assign(self.s * 3.0)
            return first + inner(x * 0.5) + self.s

        return keras.remat(outer)(x) + self.s


NAMES = [name for name in vars(Case) if not name.startswith("_") and name != "step"]


def with_gradients(loss, case):
    def run(x):
        with keras.GradientTape() as tape:
            tape.watch(x)
            y = loss(x)
        return y, tape.gradient(y, [case.s, case.v, x], unconnected_gradients="zero")

    return run


def results(run, case, x):
    """Returns the results and the variables' values after the run, and restores the variables."""
    first = [v.numpy() for v in (case.s, case.v)]
    found = [run(x), case.s.numpy(), case.v.numpy()]
    for variable, value in zip((case.s, case.v), first, strict=True):
        variable.assign(value)
    return found


@pytest.mark.parametrize("name", NAMES)
def test_compiled_is_what_runs_at_once(rng, device, name):
    with keras.device(device):
        case = Case(rng)
        (x,) = tensors(rng.standard_normal((COUNT, 3)))
        run = with_gradients(getattr(case, name), case)
        close(results(keras.jit(run), case, x), results(run, case, x))


@pytest.mark.parametrize("name", NAMES)
def test_a_compiled_function_under_a_tape(rng, device, name):
    with keras.device(device):
        case = Case(rng)
        (x,) = tensors(rng.standard_normal((COUNT, 3)))
        loss = getattr(case, name)
        compiled = with_gradients(keras.jit(loss), case)
        close(results(compiled, case, x), results(with_gradients(loss, case), case, x))


def test_against_numpy(rng, device):
    """s_i+1 is 2 s_i + 1 and the loss is the sum of all s_i, so each reading has the gradient 1."""
    with keras.device(device):
        s = keras.Variable(0.75, dtype="float64")

        def run():
            def step(c, _):
                s.assign(2.0 * s + 1.0)
                return c + s, ()

            with keras.GradientTape() as tape:
                total, _ = ops.scan(step, ops.zeros((), dtype="float64"), None, COUNT)
            return total, tape.gradient(total, s)

        total, gradient = keras.jit(run)()
        values = [0.75]
        for _ in range(COUNT):
            values.append(2.0 * values[-1] + 1.0)
        np.testing.assert_allclose(float(total), sum(values[1:]), rtol=1e-12)
        assert float(gradient) == COUNT
        assert float(s.value) == values[-1]


def test_second_derivatives(rng, device):
    """No assignment changes the values that are read, so derivatives are defined at once too."""
    with keras.device(device):
        v = keras.Variable(rng.standard_normal(3), dtype="float64")
        count = keras.Variable(0.0, dtype="float64", trainable=False)
        (x,) = tensors(rng.standard_normal((COUNT, 3)))

        def run(x):
            def step(c, row):
                count.assign_add(1.0)
                return c + ops.sum(ops.sin(v * row)) + 0.0 * count, ()

            with keras.GradientTape() as outer:
                with keras.GradientTape() as inner:
                    y = ops.scan(step, ops.zeros((), dtype=x.dtype), x)[0]
                slope = inner.gradient(y, v)
                total = ops.sum(slope * slope)
            return slope, outer.gradient(total, v)

        close(keras.jit(run)(x), run(x))


def test_a_tape_in_a_body(rng, device):
    """The tape follows the readings in its block, and each step may train."""
    with keras.device(device):
        w = keras.Variable(rng.standard_normal(3), dtype="float64")
        (x,) = tensors(rng.standard_normal((COUNT, 3)))

        def train(x):
            def step(_, row):
                with keras.GradientTape() as tape:
                    loss = ops.square(ops.sum(w * row) - 1.0)
                slope = tape.gradient(loss, w)
                w.assign_sub(0.1 * slope)
                return (), (loss, slope)

            return ops.scan(step, (), x)[1]

        first = w.numpy()
        compiled = keras.jit(train)(x)
        after = w.numpy()
        w.assign(first)
        close([*compiled, after], [*train(x), w.numpy()])
        assert np.abs(after - first).max() > 1e-3


def test_results_from_around_a_body(rng, device):
    """A branch or a step may return a value from outside."""

    def run(x, flag):
        chosen = ops.cond(flag, lambda: x, lambda: x * 2.0)
        last, rows = ops.scan(lambda c, row: (x[0], x), x[1], x)
        return chosen, last, rows

    with keras.device(device):
        (x,) = tensors(rng.standard_normal((COUNT, 3)))
        for flag in (True, False):
            flag = ops.convert_to_tensor(flag)
            close(keras.jit(run)(x, flag), run(x, flag))


def test_stateless_scopes_around_a_body(rng, device):
    """A loop assigns to the scope's values, and not to the variables."""
    with keras.device(device):
        case = Case(rng)
        (x, s, v) = tensors(rng.standard_normal((COUNT, 3)), np.array(2.0), rng.standard_normal(3))

        def run(x, s, v):
            with keras.StatelessScope([(case.s, s), (case.v, v)]) as scope:
                y = case.nested(x)
            return y, scope.get_current_value(case.s), scope.get_current_value(case.v)

        before = [case.s.numpy(), case.v.numpy()]
        close(keras.jit(run)(x, s, v), run(x, s, v))
        close([case.s.numpy(), case.v.numpy()], before)
