"""Loops and choices of a compiled function, which are nodes: against the same at once and unrolled.

At once a loop is Python's, and its gradient the tape's, so both sides share no code with the nodes
but the ops of a step.
"""

import numpy as np
import pytest

import kerascnn as keras
from kerascnn import _core, ops, trees
from kerascnn.tracing import Trace

# float64: a step has some ten roundings, a test some ten steps and sums of some hundred terms.
CLOSE = {"rtol": 1e-10, "atol": 1e-11}


@pytest.fixture(autouse=True)
def nodes_on_every_device(monkeypatch):
    monkeypatch.setenv("KERASCNN_CUDA_BODIES", "1")


def close(actual, expected, **tolerance):
    actual, expected = trees.flatten(actual), trees.flatten(expected)
    assert len(actual) == len(expected)
    for a, b in zip(actual, expected, strict=True):
        assert (a is None) == (b is None)
        if a is None:
            continue
        a, b = ops.convert_to_numpy(a), ops.convert_to_numpy(b)
        assert a.dtype == b.dtype and a.shape == b.shape
        np.testing.assert_allclose(a.astype("float64"), b.astype("float64"), **(tolerance or CLOSE))


def tensors(*arrays):
    return [ops.convert_to_tensor(a) for a in arrays]


def gradients(function, order=1):
    """The function's loss and what a tape says of it, once or of the gradients again."""

    def call(*inputs):
        inputs = list(inputs)
        if order == 1:
            with keras.GradientTape() as tape:
                tape.watch(inputs)
                loss = function(*inputs)
            return loss, tape.gradient(loss, inputs, unconnected_gradients="zero")
        with keras.GradientTape() as tape:
            tape.watch(inputs)
            loss, found = gradients(function, order - 1)(*inputs)
            total = sum(ops.sum(ops.square(g)) for g in found)
        return loss, tape.gradient(total, inputs, unconnected_gradients="zero")

    return call


def check(function, *arrays, orders=(1, 2), device="cpu"):
    """The node against the same at once: results, and gradients of these orders."""
    with keras.device(device):
        inputs = tensors(*arrays)
        close(keras.jit(function)(*inputs), function(*inputs))
        for order in orders:
            wanted = gradients(function, order)(*inputs)
            close(keras.jit(gradients(function, order))(*inputs), wanted)


def traced(function, *arrays, device="cpu", optimize=True):
    """The program of a function of these arrays."""
    with Trace(device) as trace:
        values = [trace.graph.input(f"x{i}", x.shape, x.dtype.name) for i, x in enumerate(arrays)]
        results = [ops.convert_to_tensor(r) for r in trees.flatten(function(*values))]
    return _core.Program.compile(trace.graph, results, device, optimize=optimize)


@pytest.fixture
def data(rng):
    return {
        "w": 0.5 * rng.standard_normal((4, 4)),
        "x": rng.standard_normal((7, 3, 4)),
        "h": rng.standard_normal((3, 4)),
    }


def recurrent(reverse=False, **options):
    def loss(w, x, h):
        def step(h, row):
            h = ops.tanh(h @ w + row)
            return h, ops.sin(2.0 * h)

        last, rows = ops.scan(step, h, x, reverse=reverse, **options)
        weights = ops.cast(ops.arange(1, rows.shape[0] + 1), rows.dtype)
        return ops.sum(last * last) + ops.sum(rows * ops.reshape(weights, (-1, 1, 1)))

    return loss


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
        # The same roundings in the same order.
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
        scale = ops.sum(w * w)  # read by the inner loop only

        def outer(h, rows):
            twice = h * 2.0  # of the outer step, read by the inner one

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


def test_a_condition_must_not_assign(rng):
    seen = keras.Variable(0.0)

    def goes_on(v):
        seen.assign_add(1.0)
        return ops.sum(v) < 9.0

    with pytest.raises(ValueError, match="the condition assigns variables"):
        keras.jit(lambda x: ops.while_loop(goes_on, lambda v: v * 2.0, x))(np.ones(3))


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
    """Seen by ops that note their calls."""
    calls = []

    def noting(name):
        def run(x):
            calls.append(name)
            return x * 1.0

        return ops.custom_op(f"noted_{name}", cpu=run)

    left, right = noting("left"), noting("right")
    choose = keras.jit(lambda p, x: ops.cond(p, lambda: left(x), lambda: right(x)))
    with keras.device("cpu"):  # where ops of NumPy run
        for flag, name in ((True, "left"), (False, "right"), (True, "left")):
            calls.clear()
            choose(np.array(flag), np.ones(3, "float32"))
            assert calls == [name]


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
        # A compiled function under a tape has a program for its gradient.
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
    """The gradient computes a step again, in `remat` the whole loop: with the same draws."""
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


class TestLongScan:
    LENGTH = 10_000

    def gradient(self, length):
        x = np.zeros((length, 2, 3), "float32")
        w = np.zeros((3, 3), "float32")
        return traced(gradients(recurrent()), w, x, x[0])

    def test_the_program_does_not_grow_with_the_length(self):
        short, long = self.gradient(20), self.gradient(self.LENGTH)
        assert long.stats()["num_instructions"] == short.stats()["num_instructions"]
        assert long.stats()["num_nodes_traced"] == short.stats()["num_nodes_traced"]
        assert "10000 steps" in long.to_string()

    def test_memory_is_that_of_the_carries_and_rows(self):
        """Of each step: the carry, the row that it gives and the gradients of both rows."""
        stats = self.gradient(self.LENGTH).stats()
        row = 2 * 3 * 4
        assert stats["arena_bytes"] <= 6 * self.LENGTH * row + 100_000

    def test_nothing_is_allocated_by_a_run(self, device):
        def total(x):
            return ops.scan(lambda c, v: (ops.tanh(c @ ops.transpose(v) + v), None), x[0], x)[0]

        x = np.zeros((50, 3, 3), "float32")
        program = traced(total, x, device=device)
        inputs = [_core.from_numpy(x, device)]
        program.run(inputs)
        before = _core.memory_stats(device)["num_allocations"]
        program.run(inputs, 3)
        _core.synchronize(device)
        assert _core.memory_stats(device)["num_allocations"] == before


def test_without_optimization(data):
    arrays = list(data.values())
    program = traced(gradients(recurrent()), *arrays, optimize=False)
    program.run([_core.from_numpy(x, "cpu") for x in arrays])
    close([y.numpy() for y in program.outputs()], gradients(recurrent())(*tensors(*arrays)))


class Accumulating(keras.layers.Layer):
    """h = tanh(h w + x) over axis 1, with a count of its steps."""

    def build(self, shape):
        self.kernel = self.add_weight((shape[-1], shape[-1]), name="kernel")
        self.steps = self.add_weight((), initializer="zeros", trainable=False, name="steps")

    def call(self, x):
        def step(h, row):
            self.steps.assign_add(1.0)
            return ops.tanh(h @ self.kernel + row), None

        return ops.scan(step, ops.zeros_like(x[:, 0]), ops.swapaxes(x, 0, 1))[0]


def test_fit_through_a_layer(rng, device):
    x, y = rng.standard_normal((24, 5, 3)).astype("float32"), rng.standard_normal((24, 1))
    with keras.device(device):
        keras.utils.set_random_seed(1)
        inputs = keras.Input((5, 3))
        layer = Accumulating()
        model = keras.Model(inputs, keras.layers.Dense(1)(layer(inputs)))
        model.compile(keras.optimizers.SGD(0.05), "mse")
        before = layer.kernel.numpy()
        losses = model.fit(x, y, batch_size=8, epochs=8, verbose=0, shuffle=False).history["loss"]
        assert losses[-1] < losses[0]
        assert np.abs(layer.kernel.numpy() - before).max() > 1e-4
        assert float(layer.steps.numpy()) == 8 * 3 * 5
        outputs = model.predict(x, verbose=0)
        h = np.zeros((24, 3))
        for i in range(5):
            h = np.tanh(h @ layer.kernel.numpy() + x[:, i])
        dense = model.layers[-1]
        wanted = h @ dense.kernel.numpy() + dense.bias.numpy()
        np.testing.assert_allclose(outputs, wanted, rtol=1e-4, atol=1e-5)


def test_functional_models(rng, device):
    x = rng.standard_normal((4, 5, 3)).astype("float32")
    with keras.device(device):
        inputs = keras.Input(batch_shape=(4, 5, 3))
        rows = ops.swapaxes(inputs, 0, 1)
        last, sums = ops.scan(lambda c, v: (ops.sin(c) + v, ops.sum(v, axis=-1)), rows[0], rows)
        mapped = ops.map(lambda v: v * 2.0, rows)
        looped = ops.fori_loop(0, 3, lambda i, v: v * 0.5 + 1.0, last)
        chosen = ops.switch(1, [lambda v: v, lambda v: v - 1.0], looped)
        ended = ops.while_loop(
            lambda v: ops.max(v) < 9.0, lambda v: v + 5.0, chosen, maximum_iterations=4
        )
        model = keras.Model(inputs, [last, ops.swapaxes(sums, 0, 1), mapped[1], ended])
        found = model.predict(x, verbose=0, batch_size=4)
    c = x[:, 0]
    for i in range(5):
        c = np.sin(c) + x[:, i]
    v = c
    for _ in range(3):
        v = v * 0.5 + 1.0
    v = v - 1.0
    for _ in range(4):
        v = v + 5.0 if v.max() < 9.0 else v
    for actual, wanted in zip(found, [c, x.sum(-1), x[:, 1] * 2.0, v], strict=True):
        np.testing.assert_allclose(actual, wanted, rtol=1e-5, atol=1e-5)


def test_profiles_name_the_loop():
    program = traced(recurrent(), np.zeros((3, 3)), np.zeros((9, 2, 3)), np.zeros((2, 3)))
    (row,) = [row for row in program.describe() if row["op"] == "loop"]
    assert "9 steps of [" in row["kernel"] and "tanh" in row["kernel"]
    # Two operations for each term of the product in each of 9 steps.
    assert row["flop"] >= 9 * 2 * 2 * 3 * 3


def random_program(rng):
    """A loop of random ops over two carries, with what it is given."""
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
