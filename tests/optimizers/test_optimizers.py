"""Optimizer updates are compared with float64 NumPy, and their state is checked."""

import numpy as np
import pytest

import kerascnn as keras
from kerascnn import optimizers

# There are 25 updates in float32, each with about ten roundings of 6e-8.
RTOL, ATOL = 1e-5, 1e-6
STEPS = 25


def weights_and_gradients(seed=0):
    rng = np.random.default_rng(seed)
    shapes = [(3, 4), (4,), (), (2, 1, 5)]
    weights = [rng.normal(size=shape) for shape in shapes]
    gradients = [[rng.normal(size=shape) for shape in shapes] for _ in range(STEPS)]
    return weights, gradients


def run(optimizer, weights, gradients):
    variables = [keras.Variable(w.astype("float32")) for w in weights]
    for of_step in gradients:
        optimizer.apply([g.astype("float32") for g in of_step], variables)
    return [v.numpy() for v in variables]


@pytest.mark.parametrize(("momentum", "nesterov"), [(0.0, False), (0.9, False), (0.9, True)])
def test_sgd(momentum, nesterov):
    weights, gradients = weights_and_gradients()
    optimizer = optimizers.SGD(0.05, momentum=momentum, nesterov=nesterov)
    result = run(optimizer, weights, gradients)
    expected, speeds = [w.copy() for w in weights], [np.zeros_like(w) for w in weights]
    for of_step in gradients:
        for i, g in enumerate(of_step):
            speeds[i] = momentum * speeds[i] - 0.05 * g
            move = momentum * speeds[i] - 0.05 * g if nesterov else speeds[i]
            expected[i] = expected[i] + move
    for a, b in zip(result, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=RTOL, atol=ATOL)


def test_adam():
    weights, gradients = weights_and_gradients(1)
    optimizer = optimizers.Adam(0.02, beta_1=0.8, beta_2=0.99, epsilon=1e-3)
    result = run(optimizer, weights, gradients)
    expected = [w.copy() for w in weights]
    m, v = ([np.zeros_like(w) for w in weights] for _ in range(2))
    for step, of_step in enumerate(gradients, start=1):
        alpha = 0.02 * np.sqrt(1 - 0.99**step) / (1 - 0.8**step)
        for i, g in enumerate(of_step):
            m[i] += (g - m[i]) * 0.2
            v[i] += (g * g - v[i]) * 0.01
            expected[i] = expected[i] - alpha * m[i] / (np.sqrt(v[i]) + 1e-3)
    for a, b in zip(result, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=RTOL, atol=ATOL)
    assert int(optimizer.iterations.numpy()) == STEPS


def test_the_learning_rate_can_be_read_and_set():
    optimizer = optimizers.SGD(0.5)
    assert float(optimizer.learning_rate.numpy()) == 0.5
    optimizer.learning_rate = 0.25
    variable = keras.Variable([1.0])
    optimizer.apply([np.array([1.0], "float32")], [variable])
    assert variable.numpy()[0] == 0.75
    optimizer.learning_rate = np.float32(2.0)
    optimizer.apply([np.array([1.0], "float32")])
    assert variable.numpy()[0] == -1.25
    assert optimizer.get_config()["learning_rate"] == 2.0


def test_state_is_listed_and_counted():
    variables = [keras.Variable(np.zeros((2, 3))), keras.Variable([1.0])]
    adam = optimizers.Adam()
    adam.build(variables)
    assert [v.shape for v in adam.variables] == [(), (), (2, 3), (2, 3), (1,), (1,)]
    sgd = optimizers.SGD()
    sgd.build(variables)
    assert len(sgd.variables) == 2
    sgd.apply_gradients([(np.ones((2, 3), "float32"), variables[0])])
    assert int(sgd.iterations.numpy()) == 1
    assert variables[1].numpy()[0] == 1.0


@pytest.mark.parametrize(
    ("make", "part"),
    [
        (lambda: optimizers.SGD(1), "learning_rate=1 of type int"),
        (lambda: optimizers.SGD("fast"), "learning_rate='fast'"),
        (lambda: optimizers.SGD(momentum=2.0), "momentum=2.0"),
        (lambda: optimizers.SGD(momentum=1), "momentum=1"),
        (lambda: optimizers.get("adm"), "'adm'.*Did you mean.*'adam'"),
        (lambda: optimizers.Adam(learnin_rate=1.0), "Adam .*learnin_rate.*'learning_rate'"),
        (
            lambda: optimizers.LossScaleOptimizer(optimizers.Adam(), initial_scal=2.0),
            "LossScaleOptimizer .*'initial_scale'",
        ),
        (lambda: optimizers.get(7), "7"),
    ],
)
def test_wrong_arguments(make, part):
    with pytest.raises(ValueError, match=part):
        make()


def test_wrong_gradients():
    variable, other = keras.Variable([1.0]), keras.Variable([2.0])
    optimizer = optimizers.SGD(0.1)
    optimizer.build([variable])
    with pytest.raises(ValueError, match=r"one gradient for each of the 1 variables.*2 gradients"):
        optimizer.apply([np.ones(1), np.ones(1)])
    with pytest.raises(ValueError, match=r"built for other variables than .*new optimizer"):
        optimizer.apply([np.ones(1)], [other])
    with pytest.raises(ValueError, match="No gradient reaches"):
        optimizer.apply([None])
    both = optimizers.SGD(0.1)
    with pytest.warns(UserWarning, match="does not depend on variable"):
        both.apply([np.ones(1), None], [variable, other])
    optimizers.SGD(0.1).apply([])
    with pytest.raises(ValueError, match="does not know yet"):
        optimizers.SGD(0.1).apply([np.ones(1)])


@pytest.mark.parametrize("identifier", ["adam", "Adam", optimizers.Adam, {"class_name": "Adam"}])
def test_get_by_name(identifier):
    optimizer = optimizers.get(identifier)
    assert type(optimizer) is optimizers.Adam
    assert optimizer.get_config()["beta_1"] == 0.9


def test_configs_make_equal_optimizers():
    sgd = optimizers.SGD(0.5, momentum=0.75, nesterov=True, name="s")
    assert optimizers.SGD.from_config(sgd.get_config()).get_config() == sgd.get_config()


def newton_schulz(matrix, steps):
    """Muon's iterations in float64."""
    x = matrix / np.linalg.norm(matrix)
    for _ in range(steps):
        square = x @ x.T
        x = 3.4445 * x + (-4.775 * square + 2.0315 * square @ square) @ x
    return x


@pytest.mark.parametrize("shape", [(5, 7), (9, 4), (3, 6, 6), (2, 3, 8, 5), (1, 3)])
@pytest.mark.parametrize(("dtype", "tolerance"), [("float32", 1e-5), ("bfloat16", 0.15)])
def test_muon_orthogonalizes_many_matrices(rng, shape, dtype, tolerance):
    x = keras.ops.cast(rng.standard_normal(shape).astype("float32"), dtype)
    result = optimizers.Muon().zeropower_via_newtonschulz5(x, 3)
    assert result.shape == shape and result.dtype == dtype
    given = keras.ops.cast(x, "float32").numpy().astype("float64").reshape(-1, *shape[-2:])
    expected = np.stack([newton_schulz(matrix, 3) for matrix in given]).reshape(shape)
    # Each of nine products rounds, to 8 bits in bfloat16, and the following ones multiply what was
    # lost of small singular values by up to 3.4.
    error = keras.ops.cast(result, "float32").numpy() - expected
    norms = [np.linalg.norm(y, axis=(-2, -1)) for y in (error, expected)]
    assert np.all(norms[0] < tolerance * norms[1])


def test_muon_orthogonalizes_nothing_but_matrices():
    with pytest.raises(ValueError, match=r"at least 2 dimensions. Received: shape=\(3,\)"):
        optimizers.Muon().zeropower_via_newtonschulz5(keras.ops.ones((3,)), 3)


def test_muon_leaves_the_scale_to_a_subclass():
    class Unscaled(optimizers.Muon):
        def lr_adjust(self, x):
            return x

    gradient = np.diag([3.0, 2.0]).astype("float32")
    weights = [keras.Variable(np.zeros((2, 2), "float32")) for _ in range(2)]
    Unscaled(0.1, weight_decay=None).apply([gradient], weights[:1])
    optimizers.Muon(0.1, weight_decay=None).apply([gradient], weights[1:])
    scaled = weights[0].numpy() * np.sqrt(2) * 0.2
    np.testing.assert_allclose(weights[1].numpy(), scaled, rtol=RTOL)
