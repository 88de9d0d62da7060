"""Loops and choices of a compiled function are nodes; they are compared with the same code at once.

Run at once, a loop is Python's, and a tape takes its gradient. So both sides share no code except
the ops of a step.
"""

import numpy as np
import pytest

import kerascnn as keras
from kerascnn import ops, trees

from .checks import check, close, gradients, recurrent, tensors


@pytest.mark.parametrize("reverse", [False, True])
def test_scan_and_its_gradients(data, device, reverse):
    check(recurrent(reverse), *data.values(), device=device)


def test_scan_against_numpy(data):
    w, x, h = data.values()
    last, rows = keras.jit(lambda w, x, h: ops.scan(lambda c, r: (ops.tanh(c @ w + r),) * 2, h, x))(
        *tensors(w, x, h)
    )
    wanted = []
    for row in x:
        h = np.tanh(h @ w + row)
        wanted.append(h)
    close([last, rows], [h, np.stack(wanted)])


def test_scan_equals_its_unrolled_self(data):
    inputs = tensors(*data.values())
    close(
        keras.jit(gradients(recurrent()))(*inputs),
        keras.jit(gradients(recurrent(unroll=True)))(*inputs),
    )


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "bfloat16"])
def test_dtypes(rng, device, dtype):
    x = rng.uniform(-1, 1, (5, 3)).astype("float32")

    def total(x):
        x = ops.cast(x, dtype)
        return ops.scan(lambda c, row: (c * 0.5 + row, c), x[0], x)

    with keras.device(device):
        inputs = tensors(x)
        # Both round the same numbers in the same order.
        close(keras.jit(total)(*inputs), total(*inputs), rtol=1e-6, atol=0)


def test_integers_and_bools(rng, device):
    x = rng.integers(0, 9, (6, 4)).astype("int32")

    def count(x):
        def step(c, row):
            total, seen = c
            return (total + row, ops.logical_or(seen, row > 6)), total

        return ops.scan(step, (ops.zeros_like(x[0]), x[0] > 99), x)

    with keras.device(device):
        close(keras.jit(count)(*tensors(x)), count(*tensors(x)))


def test_a_carry_takes_the_dtype_that_a_step_gives_it():
    total, sums = keras.jit(lambda x: ops.scan(lambda c, v: (c + v, c + v), 0, x))(
        np.arange(4, dtype="float32")
    )
    assert total.dtype == "float32"
    assert sums.numpy().tolist() == [0.0, 1.0, 3.0, 6.0]


def test_a_carry_that_changes_its_shape_is_an_error(rng):
    x = ops.convert_to_tensor(rng.standard_normal((4, 3)))
    with pytest.raises(
        ValueError, match=r"scan: value 0 .* shape \(\), and a step makes it \(3,\)"
    ):
        keras.jit(lambda x: ops.scan(lambda c, v: (c + v, c), 0.0, x))(x)
    with pytest.raises(ValueError, match="as many carries as it takes"):
        keras.jit(lambda x: ops.scan(lambda c, v: ((), v), (x[0], x[0]), x))(x)


def test_no_steps(device):
    x = np.zeros((0, 3))
    with keras.device(device):
        carry, rows = keras.jit(lambda x: ops.scan(lambda c, v: (c + v, c), ops.ones(3), x))(x)
    assert carry.numpy().tolist() == [1.0, 1.0, 1.0]
    assert rows is None


def test_nested_structures_and_no_results(rng):
    x = {"a": rng.standard_normal(5), "b": rng.standard_normal((5, 2))}

    def both(x):
        def step(c, v):
            return {"n": c["n"] + 1, "s": c["s"] + v["a"] * v["b"]}, (v["a"], {"c": c["s"]})

        first = {"n": ops.convert_to_tensor(0), "s": ops.zeros_like(x["b"][0])}
        return ops.scan(step, first, x), ops.scan(lambda c, v: (c + v["a"], None), 0.0, x)

    inputs = trees.map_structure(ops.convert_to_tensor, x)
    close(keras.jit(both)(inputs), both(inputs))


def test_loops_in_loops_with_captures(rng, device):
    w, x = 0.4 * rng.standard_normal((3, 3)), rng.standard_normal((5, 4, 3))

    def loss(w, x):
        scale = ops.sum(w * w)  # only the inner loop reads this

        def outer(h, rows):
            twice = h * 2.0  # the outer step computes this, and the inner one reads it

            def inner(c, row):
                return ops.tanh(c @ w + row * scale + twice), ops.sum(c) * scale

            last, sums = ops.scan(inner, h, rows)
            return last, ops.sum(sums) + ops.map(lambda r: ops.sin(r) @ w, rows)[0]

        h, found = ops.scan(outer, x[0, 0], x)
        return ops.sum(h) + ops.sum(ops.square(found))

    check(loss, w, x, device=device)


def test_while_loop_and_its_gradients(rng, device):
    x, w = rng.uniform(0.5, 1.0, 4), rng.uniform(1.5, 1.9, 4)

    def loss(x, w):
        count, y = ops.while_loop(
            lambda i, v: ops.max(v) < 30.0,
            lambda i, v: (i + 1, v * w + ops.sin(v)),
            (ops.convert_to_tensor(0), x),
            maximum_iterations=20,
        )
        return ops.sum(y * y) * ops.cast(count, y.dtype)

    check(loss, x, w, device=device)

    def unlimited(x):
        return ops.sum(ops.while_loop(lambda v: ops.max(v) < 30.0, lambda v: v * 1.7, x))

    with keras.device(device):
        close(keras.jit(unlimited)(*tensors(x)), unlimited(*tensors(x)))
        with pytest.raises(ValueError, match="without maximum_iterations is not differentiable"):
            keras.jit(gradients(unlimited))(*tensors(x))


def test_fori_loop(rng, device):
    x = rng.standard_normal((6, 3))

    def known(x):
        return ops.sum(ops.fori_loop(1, 5, lambda i, v: ops.sin(v) + ops.take(x, i, axis=0), x[0]))

    check(known, x, device=device)
    with keras.device(device):
        limits = tensors(np.int32(2), np.int32(6))

        def unknown(lower, upper, x):
            return ops.fori_loop(lower, upper, lambda i, v: v + ops.take(x, i - 2, axis=0), x[0])

        close(keras.jit(unknown)(*limits, *tensors(x)), unknown(*limits, *tensors(x)))


@pytest.mark.parametrize("index", [0, 1, 2])
def test_switch_and_its_gradients(rng, device, index):
    x, w = rng.standard_normal((3, 4)), rng.standard_normal((4, 4))
    chosen = np.int32(index)

    def loss(x, w, chosen):
        y = ops.switch(
            chosen,
            [lambda v: v @ w, lambda v: ops.sin(v) * 2.0, lambda v: ops.zeros_like(v)],
            x,
        )
        return ops.sum(y * y * y)

    def of(chosen):
        return lambda x, w: loss(x, w, chosen)

    with keras.device(device):
        inputs, place = tensors(x, w), ops.convert_to_tensor(chosen)
        node = keras.jit(lambda x, w, place: gradients(of(place))(x, w))(*inputs, place)
        close(node, gradients(of(index))(*inputs))


def test_cond_in_a_loop_over_a_loop(rng, device):
    x = rng.standard_normal((8, 3))

    def loss(x):
        def step(c, row):
            kept = ops.cond(
                ops.sum(row) > 0.0,
                lambda: ops.fori_loop(0, 3, lambda i, v: ops.sin(v) + row, c),
                lambda: c * 0.5,
            )
            return kept, ops.sum(kept)

        return ops.sum(ops.scan(step, x[0], x)[1])

    check(loss, x, device=device)


def test_branches_must_be_alike():
    flag = np.array(True)
    with pytest.raises(ValueError, match="cond: all branches must return the same structure"):
        keras.jit(lambda p: ops.cond(p, lambda: (1.0, 2.0), lambda: 1.0))(flag)
    with pytest.raises(ValueError, match="same shapes and dtypes"):
        keras.jit(lambda p: ops.cond(p, lambda: ops.ones(3), lambda: ops.ones(2)))(flag)
    one = keras.jit(lambda p: ops.cond(p, lambda: 1, lambda: 2.5))
    assert [float(one(np.array(p))) for p in (True, False)] == [1.0, 2.5]


def test_one_side_runs():
    """The ops note their calls, which shows which side ran."""
    calls = []

    def noting(name):
        def run(x):
            calls.append(name)
            return x * 1.0

        return ops.custom_op(f"noted_{name}", cpu=run)

    left, right = noting("left"), noting("right")
    choose = keras.jit(lambda p, x: ops.cond(p, lambda: left(x), lambda: right(x)))
    with keras.device("cpu"):  # ops written in NumPy run there
        for flag, name in ((True, "left"), (False, "right"), (True, "left")):
            calls.clear()
            choose(np.array(flag), np.ones(3, "float32"))
            assert calls == [name]


def random_program(rng):
    """Makes a loop of random ops over two carries, and its arguments."""
    picks = rng.integers(0, 6, 6)
    others = rng.integers(0, 4, (6, 2))

    def loss(a, b, x, w):
        def step(carry, row):
            values = [*carry, row, w]
            for pick, (i, j) in zip(picks, others, strict=True):
                left, right = values[int(i)], values[int(j)]
                values.append(
                    [
                        lambda p, q: ops.sin(p) + q,
                        lambda p, q: ops.tanh(p * q),
                        lambda p, q: ops.maximum(p, q) * 0.5,
                        lambda p, q: ops.cond(ops.sum(p) > 0.0, lambda: p - q, lambda: q * 0.3),
                        lambda p, q: ops.fori_loop(0, 2, lambda i, v: ops.sin(v) + p, q),
                        lambda p, q: p * ops.mean(q),
                    ][pick](left, right)
                )
            return (ops.tanh(values[-1]), values[-2] * 0.5), values[-3]

        (a, b), rows = ops.scan(step, (a, b), x)
        return ops.sum(a * b) + ops.sum(rows)

    shapes = [(3,), (3,), (5, 3), (3,)]
    return loss, [rng.standard_normal(shape) for shape in shapes]


@pytest.mark.parametrize("number", range(8))
def test_random_programs(rng, number):
    loss, arrays = random_program(rng)
    check(loss, *arrays, orders=(1,))
