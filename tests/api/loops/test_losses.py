"""Losses that layers add in the bodies of loops and choices."""

import numpy as np
import pytest

import kerascnn as keras
from kerascnn import ops

from .checks import close, tensors


class Penalized(keras.layers.Layer):
    """Adds the sum of the squares of its result as a loss of this call."""

    def build(self, _):
        self.scale = self.add_weight((), initializer="ones", name="scale")

    def call(self, x):
        x = x * self.scale
        self.add_loss(ops.sum(ops.square(x)))
        return x


class Case(keras.layers.Layer):
    """Contains a case's layers. Code that calls them itself sees only the last call's losses."""

    def __init__(self, name):
        super().__init__(dtype="float64")
        self.part = getattr(self, name)
        self.first = Penalized(dtype="float64", name="first")
        self.second = Penalized(dtype="float64", name="second")
        for layer in (self.first, self.second):
            layer.build(None)

    def call(self, x):
        return self.part(x)

    def scan(self, x):
        # The carry begins as an integer, so the step is recorded twice, but its losses count once.
        return ops.scan(lambda c, row: (c + ops.sum(self.first(row)), self.second(row)), 0, x)[0]

    def fori_loop(self, x):
        return ops.fori_loop(0, 3, lambda i, v: self.first(ops.sin(v)), x)

    def while_loop(self, x):
        return ops.while_loop(
            lambda v: ops.max(ops.abs(v)) < 40.0,
            lambda v: self.first(2.0 * v),
            x,
            maximum_iterations=12,
        )

    def cond(self, x):
        sign = ops.sum(x) * 0.0 + 1.0
        return sum(
            ops.cond(sign * side > 0.0, lambda: self.first(x), lambda: self.second(2.0 * x))
            for side in (1.0, -1.0, -2.0)
        )

    def nested(self, x):
        def step(c, row):
            row = ops.cond(ops.sum(row) > 0.0, lambda: self.first(row), lambda: row)
            return ops.fori_loop(0, 2, lambda i, v: self.second(ops.sin(v)), c + row), None

        return ops.scan(step, ops.zeros_like(x[0]), x)[0]


NAMES = ["scan", "fori_loop", "while_loop", "cond", "nested"]


@pytest.mark.parametrize("name", NAMES)
def test_losses_of_all_steps_count(rng, device, name):
    """The losses are summed for each layer, and so are their gradients, compiled and at once."""
    with keras.device(device):
        case = Case(name)
        (x,) = tensors(rng.standard_normal((4, 3)))
        weights = [case.first.scale, case.second.scale]

        def run(x):
            with keras.GradientTape() as tape:
                tape.watch(x)
                result = case(x)
                losses = [*case.first.losses, *case.second.losses]
                total = sum(losses) + ops.sum(result)
            sums = [sum(layer.losses) + 0.0 * total for layer in (case.first, case.second)]
            return sums, tape.gradient(total, [x, *weights], unconnected_gradients="zero")

        close(keras.jit(run)(x), run(x))


def test_a_loop_without_a_limit_is_an_error():
    layer = Penalized()

    def run(x):
        return ops.while_loop(lambda v: ops.sum(v) < 9.0, layer, x)

    with pytest.raises(ValueError, match="give it by `maximum_iterations`"):
        keras.jit(run)(np.ones(3))


def test_scopes_collect_them(rng):
    case = Case("nested")
    (x,) = tensors(rng.standard_normal((4, 3)))

    def run(x):
        with keras.StatelessScope(collect_losses=True) as scope:
            case(x)
        return sum(scope.losses)

    close(keras.jit(run)(x), run(x))
    assert float(run(x)) > 0.0


def test_fit_minimizes_them(rng, device):
    x = rng.uniform(0.5, 1.0, (16, 5, 3)).astype("float32")
    with keras.device(device):
        layer = Penalized()

        class Model(keras.Model):
            def call(self, x):
                rows = ops.swapaxes(x, 0, 1)
                return ops.scan(lambda c, row: (c + layer(row), None), rows[0] * 0.0, rows)[0]

        model = Model()
        model.penalized = layer
        layer.build(None)
        model.compile(keras.optimizers.SGD(1e-4), loss=None)
        history = model.fit(x, np.zeros((16, 3)), batch_size=16, epochs=3, verbose=0).history
        squares = float(np.sum(np.square(x.astype("float64"))))
        scale, expected = 1.0, []
        for _ in range(3):
            expected.append(scale**2 * squares)
            scale -= 1e-4 * 2.0 * scale * squares
        np.testing.assert_allclose(history["loss"], expected, rtol=1e-5)
        assert float(layer.scale.numpy()) == pytest.approx(scale, rel=1e-5)
