"""Dropout: how many zeros there are, which ones, and when they repeat."""

import numpy as np
import pytest

import kerascnn as keras
from kerascnn import _core, layers
from kerascnn.tracing import Trace

SHAPE = (64, 256)


def draw(layer, device, steps=1):
    """Runs a program for so many steps and returns its last output, and the program."""
    with Trace(device) as trace:
        x = trace.graph.input("x", list(SHAPE), "float32")
        y = layer(x, training=True)
    program = _core.Program.compile(trace.graph, [y], device)
    program.run([_core.from_numpy(np.ones(SHAPE, "float32"), device)], steps)
    _core.synchronize(device)
    return np.array(program.outputs()[0].numpy()), program


@pytest.mark.parametrize("rate", [0.1, 0.5, 0.9])
def test_share_of_zeros_and_scale_of_the_rest(rate, device):
    with keras.device(device):
        y = layers.Dropout(rate)(np.ones(SHAPE, "float32"), training=True).numpy()
    # The bound is six standard deviations of a binomial share.
    allowed = 6 * np.sqrt(rate * (1 - rate) / y.size)
    assert abs((y == 0).mean() - rate) < allowed
    np.testing.assert_allclose(y[y != 0], 1 / (1 - rate), rtol=1e-6)


def test_nothing_happens_outside_of_training(device):
    with keras.device(device):
        x = np.ones(SHAPE, "float32")
        np.testing.assert_array_equal(layers.Dropout(0.5)(x).numpy(), x)
        np.testing.assert_array_equal(layers.Dropout(0.0)(x, training=True).numpy(), x)


def test_layers_and_steps_never_share_numbers(device):
    with keras.device(device):
        two = keras.Sequential([keras.Input(SHAPE[1:]), layers.Dropout(0.5), layers.Dropout(0.5)])
        first, program = draw(two, device)
        # A shared mask would keep a half; different masks keep a quarter.
        assert abs((first != 0).mean() - 0.25) < 0.03
        program.run([_core.from_numpy(np.ones(SHAPE, "float32"), device)])
        _core.synchronize(device)
        assert (program.outputs()[0].numpy() != first).mean() > 0.2
        x = np.ones(SHAPE, "float32")
        layer = layers.Dropout(0.5)
        eager = [layer(x, training=True).numpy() for _ in range(2)]
        assert (eager[0] != eager[1]).mean() > 0.4


def test_a_seed_repeats_everything(device):
    with keras.device(device):
        layer = layers.Dropout(0.5)
        runs = []
        for _ in range(2):
            keras.utils.set_random_seed(3)
            eager = layer(np.ones(SHAPE, "float32"), training=True).numpy()
            runs.append((eager, draw(layer, device, steps=2)[0]))
        np.testing.assert_array_equal(runs[0][0], runs[1][0])
        np.testing.assert_array_equal(runs[0][1], runs[1][1])


def test_a_layer_with_a_seed_has_a_generator_of_its_own(device):
    with keras.device(device):
        x = np.ones(SHAPE, "float32")
        a, b = layers.Dropout(0.5, seed=1), layers.Dropout(0.5, seed=1)
        first = a(x, training=True).numpy()
        layers.Dropout(0.5)(x, training=True)
        np.testing.assert_array_equal(first, b(x, training=True).numpy())
        assert (a(x, training=True).numpy() != first).any()
        assert len(a.variables) == 1
        assert a.weights == []


def test_a_generator_goes_where_it_is_used(cuda_device):
    with keras.device("cpu"):
        layer = layers.Dropout(0.5, seed=1)
    x = np.ones(SHAPE, "float32")
    with keras.device(cuda_device):
        moved = [layer(x, training=True).numpy() for _ in range(2)]
    with keras.device("cpu"):
        stayed = layers.Dropout(0.5, seed=1)
        for drawn in moved:
            np.testing.assert_array_equal(drawn, stayed(x, training=True).numpy())


def test_a_generator_that_moves_while_it_is_recorded_goes_on_from_step_to_step(cuda_device):
    with keras.device("cpu"):
        layer = layers.Dropout(0.5, seed=1)
        stayed, _ = draw(layers.Dropout(0.5, seed=1), "cpu", steps=2)
    with keras.device(cuda_device):
        first, program = draw(layer, cuda_device)
        program.run([_core.from_numpy(np.ones(SHAPE, "float32"), cuda_device)])
        second = program.outputs()[0].numpy()
    assert (first != second).mean() > 0.4
    np.testing.assert_array_equal(second, stayed)


def test_noise_shape_shares_the_fate_along_an_axis(device):
    with keras.device(device):
        layer = layers.Dropout(0.5, noise_shape=(None, 1))
        y = layer(np.ones(SHAPE, "float32"), training=True).numpy()
    assert set(np.unique(y)) == {0.0, 2.0}
    assert (y == y[:, :1]).all()


def test_gradient_passes_where_the_values_passed(device):
    with keras.device(device):
        layer = layers.Dropout(0.5)
        with Trace(device) as trace:
            x = trace.graph.input("x", list(SHAPE), "float32")
            y = layer(x, training=True)
            (gradient,) = trace.graph.gradients(keras.ops.sum(y * y), [x])
        program = _core.Program.compile(trace.graph, [y, gradient], device)
        program.run([_core.from_numpy(np.ones(SHAPE, "float32"), device)])
        _core.synchronize(device)
        y, gradient = (t.numpy() for t in program.outputs())
    # The gradient is 2 y times the scale, which is 2.
    np.testing.assert_allclose(gradient, 4 * y, rtol=1e-6)
