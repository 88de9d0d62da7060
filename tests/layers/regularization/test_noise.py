"""Layers of noise: its size, its distribution and when it repeats; none outside training."""

import numpy as np
import pytest

import kerascnn
from kerascnn import _core, layers
from kerascnn.tracing import Trace

from ..comparing import keras
from ..parity import check_signature, plain

pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")

FLAT = (64, 256)
MAKES = {
    "GaussianNoise": (lambda m, **k: m.GaussianNoise(0.5, **k), FLAT),
    "GaussianDropout": (lambda m, **k: m.GaussianDropout(0.4, **k), FLAT),
    "AlphaDropout": (lambda m, **k: m.AlphaDropout(0.3, **k), FLAT),
    "SpatialDropout1D": (lambda m, **k: m.SpatialDropout1D(0.5, **k), (64, 3, 64)),
    "SpatialDropout2D": (lambda m, **k: m.SpatialDropout2D(0.5, **k), (64, 3, 2, 64)),
    "SpatialDropout3D": (lambda m, **k: m.SpatialDropout3D(0.5, **k), (64, 3, 2, 2, 64)),
}


def run(layer, x, device):
    """Returns the outputs of two training steps of one program."""
    with Trace(device) as trace:
        value = trace.graph.input("x", list(x.shape), "float32")
        y = layer(value, training=True)
    program = _core.Program.compile(trace.graph, [y], device)
    results = []
    for _ in range(2):
        program.run([_core.from_numpy(x, device)])
        _core.synchronize(device)
        results.append(np.array(program.outputs()[0].numpy()))
    return results


@pytest.mark.parametrize("name", MAKES)
def test_nothing_happens_outside_of_training(name, device, rng):
    make, shape = MAKES[name]
    x = rng.standard_normal(shape).astype("float32")
    with kerascnn.device(device):
        layer = make(layers)
        np.testing.assert_array_equal(layer(x).numpy(), x)
        np.testing.assert_array_equal(layer(x, training=False).numpy(), x)
        assert layer(kerascnn.Input(shape[1:])).shape == (None, *shape[1:])


@pytest.mark.parametrize("name", MAKES)
def test_seeds_repeat_and_steps_do_not(name, device):
    make, shape = MAKES[name]
    x = np.ones(shape, "float32")
    with kerascnn.device(device):
        first, second = run(make(layers, seed=3), x, device)
        again, _ = run(make(layers, seed=3), x, device)
        np.testing.assert_array_equal(first, again)
        assert (first != second).mean() > 0.2
        kerascnn.utils.set_random_seed(5)
        eager = make(layers)(x, training=True).numpy()
        kerascnn.utils.set_random_seed(5)
        np.testing.assert_array_equal(make(layers)(x, training=True).numpy(), eager)
        layer = make(layers, seed=1)
        assert len(layer.variables) == 1
        assert layer.weights == []


# A bound is six standard deviations of the mean, or of the standard deviation, of the draws.
@pytest.mark.parametrize("name", ["GaussianNoise", "GaussianDropout"])
def test_mean_and_spread_of_normal_noise(name, device):
    make, shape = MAKES[name]
    x = np.full(shape, 2.0, "float32")
    with kerascnn.device(device):
        y = run(make(layers), x, device)[0]
    spread = 0.5 if name == "GaussianNoise" else 2.0 * np.sqrt(0.4 / 0.6)
    assert abs(y.mean() - 2.0) < 6 * spread / np.sqrt(y.size)
    assert abs(y.std() - spread) < 6 * spread / np.sqrt(2 * y.size)


def test_alpha_dropout_keeps_mean_and_variance(device, rng):
    x = rng.standard_normal((256, 256)).astype("float32")
    with kerascnn.device(device):
        y = run(layers.AlphaDropout(0.3), x, device)[0]
    assert abs(y.mean()) < 6 / 256
    assert abs(y.std() - 1) < 0.03
    # Dropped values are selu's lowest value after the affine function.
    lowest = -1.6732632423543772 * 1.0507009873554805
    factor = (0.7 * (1 + 0.3 * lowest**2)) ** -0.5
    dropped = np.isclose(y, factor * lowest - factor * lowest * 0.3, atol=1e-6)
    assert abs(dropped.mean() - 0.3) < 6 * np.sqrt(0.3 * 0.7 / y.size)
    np.testing.assert_allclose(
        y[~dropped], (factor * x - factor * lowest * 0.3)[~dropped], atol=1e-5
    )


def test_alpha_dropout_shares_the_fate_along_an_axis(device):
    with kerascnn.device(device):
        y = layers.AlphaDropout(0.5, noise_shape=(None, 1))(np.ones(FLAT), training=True).numpy()
    assert (y == y[:, :1]).all()
    assert len(np.unique(y)) == 2


@pytest.mark.parametrize("data_format", ["channels_last", "channels_first"])
@pytest.mark.parametrize("rank", [1, 2, 3])
def test_whole_channels_are_dropped(rank, data_format, device):
    name = f"SpatialDropout{rank}D"
    arguments = {} if rank == 1 else {"data_format": data_format}
    last = rank == 1 or data_format == "channels_last"
    sizes = [3, 2, 4][:rank]
    shape = (64, *sizes, 32) if last else (64, 32, *sizes)
    with kerascnn.device(device):
        layer = getattr(layers, name)(0.25, **arguments)
        y = run(layer, np.ones(shape, "float32"), device)[0]
    y = y if last else np.moveaxis(y, 1, -1)
    channels = y.reshape(64, -1, 32)
    assert (channels == channels[:, :1]).all()
    kept = channels[:, 0]
    np.testing.assert_allclose(kept[kept != 0], 1 / 0.75, rtol=1e-6)
    assert abs((kept == 0).mean() - 0.25) < 6 * np.sqrt(0.25 * 0.75 / kept.size)


@pytest.mark.parametrize("name", MAKES)
@pytest.mark.parametrize("seed", [None, 7])
def test_configurations_are_those_of_keras(name, seed):
    make, _ = MAKES[name]
    here, there = make(layers, seed=seed, name="a"), make(keras.layers, seed=seed, name="a")
    assert plain(here.get_config()) == plain(there.get_config())
    assert plain(layers.serialize(here)) == plain(keras.layers.serialize(there))
    again = layers.deserialize(layers.serialize(here))
    assert plain(again.get_config()) == plain(here.get_config())
    check_signature(name)


@pytest.mark.parametrize("name", MAKES)
@pytest.mark.parametrize("strength", [-0.1, 1.5])
def test_strengths_out_of_range_are_refused(name, strength):
    with pytest.raises(ValueError, match="from 0 to 1"):
        getattr(layers, name)(strength)
    with pytest.raises(ValueError):
        getattr(keras.layers, name)(strength)


@pytest.mark.parametrize("name", [n for n in MAKES if n.startswith("Spatial")])
def test_inputs_of_another_rank_are_refused(name):
    with pytest.raises(ValueError, match="expected ndim"):
        getattr(layers, name)(0.5)(np.ones((2, 3), "float32"))


def test_activity_regularization_adds_keras_penalty(device, rng):
    x = rng.standard_normal((4, 5)).astype("float32")
    with kerascnn.device(device):
        here = layers.ActivityRegularization(l1=0.3, l2=0.2, name="a")
        np.testing.assert_array_equal(here(x).numpy(), x)
        (loss,) = here.losses
        actual = loss.numpy().item()
    there = keras.layers.ActivityRegularization(l1=0.3, l2=0.2, name="a")
    there(x)
    expected = keras.ops.convert_to_numpy(there.losses[0]).item()
    assert actual == pytest.approx(expected, rel=1e-5)
    assert plain(here.get_config()) == plain(there.get_config())
    again = layers.deserialize(layers.serialize(here))
    assert plain(again.get_config()) == plain(here.get_config())
    check_signature("ActivityRegularization")
