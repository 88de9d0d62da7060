"""Loops in programs and models: their size, memory and profiles, `fit`, functional models."""

import numpy as np

import kerascnn as keras
from kerascnn import _core, ops

from .checks import close, gradients, recurrent, tensors, traced


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
        """Each step needs the carry, the row that it gives, and the gradients of both rows."""
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
    """Computes h = tanh(h w + x) over axis 1, and counts its steps."""

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
    # A term of the product takes two operations, and there are 9 steps.
    assert row["flop"] >= 9 * 2 * 2 * 3 * 3
