"""Variables, random numbers and custom gradients in loops and choices of a compiled function."""

import numpy as np
import pytest

import kerascnn as keras
from kerascnn import ops

from .checks import close, gradients, tensors


def test_a_condition_must_not_assign(rng):
    seen = keras.Variable(0.0)

    def goes_on(v):
        seen.assign_add(1.0)
        return ops.sum(v) < 9.0

    with pytest.raises(ValueError, match="the condition assigns variables"):
        keras.jit(lambda x: ops.while_loop(goes_on, lambda v: v * 2.0, x))(np.ones(3))


def test_variables_are_carried(device, rng):
    x = rng.standard_normal((5, 3)).astype("float32")
    with keras.device(device):
        total = keras.Variable(np.zeros(3, "float32"), name="total")
        count = keras.Variable(0, dtype="int32", name="count")
        weight = keras.Variable(np.full(3, 2.0, "float32"), name="weight")

        def run(x):
            before = total.value

            def step(c, row):
                total.assign_add(row * weight)
                count.assign_add(1)
                return c + ops.sum(before), total.value

            return ops.scan(step, 0.0, x), total.value, count.value

        (sums, rows), last, number = keras.jit(run)(x)
        close(rows, np.cumsum(2 * x, 0, dtype="float32"), rtol=1e-5, atol=1e-5)
        close([last, total.value], [rows.numpy()[-1]] * 2, rtol=0, atol=0)
        assert float(sums) == 0.0
        assert int(number) == int(count.numpy()) == 5


def test_variables_of_one_branch(device):
    with keras.device(device):
        v, w = keras.Variable(1.0), keras.Variable(10.0)

        def run(p):
            def left():
                v.assign(v + 1.0)

            def right():
                w.assign(w * v)

            return ops.cond(p, left, right)

        step = keras.jit(run)
        assert step(np.array(True)) is None
        assert (float(v.value), float(w.value)) == (2.0, 10.0)
        step(np.array(False))
        assert (float(v.value), float(w.value)) == (2.0, 20.0)


def test_gradients_by_variables(rng, device):
    x = rng.standard_normal((6, 3))
    with keras.device(device):
        w = keras.Variable(rng.standard_normal(3), dtype="float64")

        def run(x):
            with keras.GradientTape() as tape:
                y = ops.sum(ops.scan(lambda c, v: (ops.sin(c * w) + v, c), x[0], x)[1])
            return tape.gradient(y, w)

        close(keras.jit(run)(*tensors(x)), run(*tensors(x)))
        # A compiled function under a tape has a separate program for its gradient.
        forward = keras.jit(
            lambda x: ops.sum(ops.scan(lambda c, v: (ops.sin(c * w) + v, c), x[0], x)[1])
        )
        with keras.GradientTape() as tape:
            y = forward(*tensors(x))
        close(tape.gradient(y, w), run(*tensors(x)))


def test_random_numbers_are_fresh_in_each_step(device):
    with keras.device(device):
        seed = keras.random.SeedGenerator(7)

        def draw():
            def step(c, _):
                return c, keras.random.uniform((4,), seed=seed)

            before = keras.random.uniform((4,), seed=seed)
            rows = ops.scan(step, 0.0, None, 5)[1]
            return ops.concatenate([before[None], rows, keras.random.uniform((1, 4), seed=seed)])

        draw = keras.jit(draw)
        numbers = np.concatenate([draw().numpy(), draw().numpy()])
        assert len(np.unique(numbers)) == numbers.size


@pytest.mark.parametrize("wrapped", [False, True])
def test_dropout_drops_the_same_in_the_gradient(device, wrapped):
    """The gradient computes a step (`remat` the whole loop) again, and draws the same numbers."""
    x = np.ones((6, 50), "float32")
    with keras.device(device):
        seed = keras.random.SeedGenerator(3)

        def loss(x):
            rows = ops.scan(
                lambda c, v: (c, keras.random.dropout(v * 2.0, 0.5, seed=seed)), 0.0, x
            )[1]
            return rows

        function = keras.remat(loss) if wrapped else loss

        def both(x):
            with keras.GradientTape() as tape:
                tape.watch(x)
                rows = function(x)
                total = ops.sum(rows)
            return rows, tape.gradient(total, x)

        rows, slope = keras.jit(both)(*tensors(x))
        close(rows, slope)
        assert len({tuple(row) for row in rows.numpy().tolist()}) == 6


def test_custom_gradients_hold_in_a_loop(rng, device):
    x = rng.standard_normal((5, 3))

    def loss(x):
        factor = ops.sum(x)

        @keras.custom_gradient
        def doubled(v):
            return v * v, lambda upstream: upstream * v * 5.0 * factor

        return ops.sum(ops.scan(lambda c, v: (doubled(c) * 0.3 + v, c), x[0], x)[1])

    with keras.device(device):
        inputs = tensors(x)
        close(keras.jit(gradients(loss))(*inputs), gradients(loss)(*inputs))


def test_remat_in_a_loop(rng, device):
    x, w = rng.standard_normal((5, 3)), rng.standard_normal(3)

    def loss(x, w):
        block = keras.remat(lambda c, v: ops.sin(c * w) + v)
        return ops.sum(ops.scan(lambda c, v: (block(c, v), c), x[0], x)[1])

    with keras.device(device):
        inputs = tensors(x, w)
        close(keras.jit(gradients(loss))(*inputs)[1][0], gradients(loss)(*inputs)[1][0])
