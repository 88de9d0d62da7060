"""Gradients of composed graphs are compared with finite differences in float64."""

import numpy as np
import pytest

from .helpers import Tracer, tensor

CONV = {"strides": [1, 1], "padding": [1, 1, 1, 1], "dilations": [1, 1], "groups": 1}
LINEAR = {"activation": "linear", "activation_alpha": 0.0}
POOL = {"window": [2, 2], "strides": [2, 2], "padding": [0, 0, 0, 0]}


def dense_network(t, x, w1, b1, w2):
    hidden = t.tanh(t.add(t.matmul2(x, w1), b1))
    return t.sum(t.square(t.matmul2(hidden, w2)))


def residual(t, x, scale, shift):
    y = t.add(t.multiply(t.silu(x), scale), x)
    y = t.add(t.multiply(t.sigmoid(y), y), shift)
    return t.reduce_mean(t.multiply(y, y), axes=[], keepdims=False)


def convolution_network(t, x, kernel, bias):
    y = t.elu(t.add(t.conv2d(x, kernel, **CONV, **LINEAR), bias), alpha=0.7)
    y = t.avg_pool2d(y, **POOL)
    y = t.log_softmax(t.reshape(y, shape=[2, 18]), axis=-1)
    return t.sum(t.square(y))


def normalized(t, x, gamma, beta):
    y = t.all("batch_norm", x, gamma, beta, epsilon=1e-3)[0]
    return t.sum(t.multiply(t.softplus(y), t.exp(t.multiply(y, t.full([], -0.3, "float64")))))


def shapes(t, x, y):
    both = t.concatenate(t.transpose(x, permutation=[1, 0]), y, axis=0)
    part = t.slice(both, starts=[1, 0], sizes=[3, 2], strides=[2, 1])
    return t.sum(t.divide(t.square(part), t.add(t.exp(part), t.full([], 1.0, "float64"))))


CASES = {
    "dense": (dense_network, [(4, 3), (3, 5), (5,), (5, 2)]),
    "residual": (residual, [(6, 4), (4,), (6, 1)]),
    "convolution": (convolution_network, [(2, 6, 6, 2), (3, 3, 2, 2), (2,)]),
    "batch_norm": (normalized, [(5, 3), (3,), (3,)]),
    "shapes": (shapes, [(3, 4), (2, 3)]),
}


@pytest.mark.parametrize("optimize", [True, False])
@pytest.mark.parametrize("case", CASES)
def test_gradients_match_finite_differences(case, optimize):
    function, input_shapes = CASES[case]
    rng = np.random.default_rng(sum(map(ord, case)))
    arrays = [rng.normal(size=shape) for shape in input_shapes]
    t = Tracer()
    inputs = [t.input(shape, "float64") for shape in input_shapes]
    loss = function(t, *inputs)
    gradients = t.graph.gradients(loss, inputs)
    program = t.compile(loss, *gradients, optimize=optimize)

    def evaluate(at):
        program.run([tensor(array) for array in at])
        return [output.numpy().copy() for output in program.outputs()]

    _, *received = evaluate(arrays)
    for _ in range(3):
        direction = [rng.normal(size=shape) for shape in input_shapes]
        slope = sum(float(np.sum(g * d)) for g, d in zip(received, direction, strict=True))
        h = 1e-5
        ahead = evaluate([a + h * d for a, d in zip(arrays, direction, strict=True)])[0]
        behind = evaluate([a - h * d for a, d in zip(arrays, direction, strict=True)])[0]
        expected = float(ahead - behind) / (2 * h)
        # Central differences have a truncation error of order h^2 = 1e-10 and a rounding error of
        # order 1e-16 / h = 1e-11. The derivatives and losses that multiply them reach a few
        # hundred.
        assert slope == pytest.approx(expected, rel=1e-6, abs=1e-7)


def test_second_derivative():
    t = Tracer()
    x = t.input([], "float64")
    first = t.graph.gradients(t.exp(t.square(x)), [x])[0]
    second = t.graph.gradients(first, [x])[0]
    (value,) = t.run([second], [np.float64(0.5)])
    assert value == pytest.approx((2 + 4 * 0.25) * np.exp(0.25), rel=1e-12)


def test_gradient_with_respect_to_an_intermediate():
    t = Tracer()
    x = t.input([3])
    y = t.exp(x)
    loss = t.sum(t.square(y))
    (value,) = t.run([t.graph.gradients(loss, [y])[0]], [np.zeros(3, "float32")])
    np.testing.assert_array_equal(value, [2, 2, 2])


def test_unconnected_and_integer_inputs_have_none():
    t = Tracer()
    x, unused, labels = t.input([2, 3]), t.input([2]), t.input([2], "int32")
    losses = t.all("sparse_softmax_cross_entropy", x, labels, epsilon=0.0)[0]
    gradients = t.graph.gradients(t.sum(losses), [x, unused, labels])
    assert gradients[0].shape == (2, 3)
    assert gradients[1] is None and gradients[2] is None


def test_loss_must_be_a_scalar():
    t = Tracer()
    x = t.input([2])
    with pytest.raises(ValueError, match=r"floating scalar, but it is float32 \(2,\); reduce it"):
        t.graph.gradients(x, [x])
