"""TimeDistributed with masks, and around recurrent layers."""

import numpy as np
import pytest

import kerascnn
from kerascnn import _core, layers
from kerascnn.tracing import Trace

from ..comparing import keras
from .running import assert_close

pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")


@pytest.mark.parametrize("compiled", [False, True])
def test_masks_go_to_the_layer_step_by_step(compiled, device, rng):
    """The inputs are documents (documents, sentences, words, features) with a mask of words."""
    x = rng.uniform(-1, 1, (2, 3, 5, 4)).astype("float32")
    mask = rng.random((2, 3, 5)) < 0.6
    with kerascnn.device(device):
        here = layers.TimeDistributed(layers.LSTM(6, name="inner"), name="outer")
        here.build(x.shape)
        there = keras.layers.TimeDistributed(keras.layers.LSTM(6, name="inner"), name="outer")
        there.build(x.shape)
        there.set_weights(here.get_weights())
        assert [w.path for w in here.weights] == [w.path for w in there.weights]
        call = kerascnn.jit(lambda x, m: here(x, mask=m)) if compiled else here
        actual = call(x, mask) if compiled else call(x, mask=mask)
    expected = there(x, mask=keras.ops.convert_to_tensor(mask))
    # A result has five steps of sums of ten float32 products.
    assert_close([actual.numpy()], [expected.detach().numpy()], 2e-6)
    unmasked = here(x).numpy()
    assert np.abs(unmasked - actual.numpy()).max() > 1e-3
    assert here.compute_output_shape((None, None, 5, 4)) == (None, None, 6)
    assert here.compute_mask(x, mask) is mask


def test_a_layer_that_takes_no_mask_is_not_given_one(rng):
    x = rng.random((2, 3, 4)).astype("float32")
    layer = layers.TimeDistributed(layers.Dense(2))
    np.testing.assert_array_equal(layer(x, mask=np.ones((2, 3), bool)).numpy(), layer(x).numpy())


def test_a_mask_of_other_steps_is_an_error(rng):
    layer = layers.TimeDistributed(layers.Dense(2))
    with pytest.raises(ValueError, match="first two sizes of the mask"):
        layer(np.ones((2, 3, 4), "float32"), mask=np.ones((2, 4), bool))


class Halved(layers.Layer):
    """A layer that the library does not know, so that it might use the whole batch at once."""

    def call(self, x, mask=None):
        if mask is not None:
            x = x * kerascnn.ops.cast(mask, x.dtype)[..., None]
        return x / kerascnn.ops.max(kerascnn.ops.abs(x))


def pair(make, shape):
    """Builds the layer that `make` gives here and in Keras, with the same weights."""
    here, there = make(kerascnn.layers, kerascnn), make(keras.layers, keras)
    here.build(shape)
    there.build(shape)
    there.set_weights(here.get_weights())
    return here, there


MAKERS = {
    "statistics": lambda layers, _: layers.TimeDistributed(layers.BatchNormalization()),
    "statistics, nested": lambda layers, _: layers.TimeDistributed(
        layers.TimeDistributed(layers.BatchNormalization(momentum=0.7))
    ),
    "statistics in a model": lambda layers, keras: layers.TimeDistributed(
        keras.Sequential([layers.Dense(3), layers.BatchNormalization(), layers.ReLU()])
    ),
    "all steps at once": lambda layers, keras: layers.TimeDistributed(
        keras.Sequential([layers.Conv1D(4, 2, activation="gelu"), layers.Flatten()])
    ),
    "at once, nested": lambda layers, _: layers.TimeDistributed(
        layers.TimeDistributed(layers.Dense(2, activation="softmax"))
    ),
}


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("name", MAKERS)
def test_steps_are_those_of_keras(name, training, device, rng):
    """Compares results, statistics after the call, and the compiled gradient by the input."""
    # Statistics over the three samples alone have deviations of at least 0.4.
    apart = np.broadcast_to(np.reshape([-0.75, 0.0, 0.75], (3, 1, 1, 1)), (3, 4, 5, 2))
    x = (rng.permuted(apart, axis=0) + rng.uniform(-0.25, 0.25, apart.shape)).astype("float32")
    with kerascnn.device(device):
        here, there = pair(MAKERS[name], x.shape)
        first = here.get_weights()
        (x_here,) = (kerascnn.ops.convert_to_tensor(x),)

        def run(x):
            with kerascnn.GradientTape() as tape:
                tape.watch(x)
                y = here(x, training=training)
                loss = kerascnn.ops.sum(kerascnn.ops.sin(y))
            return y, tape.gradient(loss, x)

        at_once = [*map(np.asarray, run(x_here)), *here.get_weights()]
        here.set_weights(first)
        compiled = [*map(np.asarray, kerascnn.jit(run)(x_here)), *here.get_weights()]
    x_there = keras.ops.convert_to_tensor(x).requires_grad_()
    y = there(x_there, training=training)
    y.sin().sum().backward()
    expected = [y.detach().numpy(), x_there.grad.numpy(), *there.get_weights()]
    # The gradient by the input is a difference of about ten terms, which are divided by the square
    # of a deviation: of a tenth where a random kernel makes it small, and with it the rounding of
    # 1e-7.
    assert_close(at_once, expected, 1e-4)
    assert_close(compiled, expected, 1e-4)


def test_layers_of_ones_own_go_step_by_step(device, rng):
    x = rng.uniform(-1, 1, (3, 4, 5, 2)).astype("float32")
    mask = rng.random((3, 4, 5)) < 0.6
    with kerascnn.device(device):
        layer = layers.TimeDistributed(Halved())
        compiled = kerascnn.jit(lambda x, m: layer(x, mask=m))(x, mask).numpy()
        at_once = layer(x, mask=mask).numpy()
    masked = x * mask[..., None]
    np.testing.assert_allclose(compiled, masked / np.abs(masked).max((0, 2, 3), keepdims=True))
    np.testing.assert_array_equal(compiled, at_once)


def test_dropout_differs_from_step_to_step(device):
    with kerascnn.device(device):
        layer = layers.TimeDistributed(layers.Dropout(0.5, seed=3))
        rows = kerascnn.jit(lambda x: layer(x, training=True))(np.ones((2, 6, 50), "float32"))
        assert len({tuple(row.ravel().tolist()) for row in np.swapaxes(rows.numpy(), 0, 1)}) == 6


def test_penalties_of_all_steps_count(device, rng):
    """Penalties of layers in an inner model count for all steps, and so does `add_loss`."""
    x = rng.uniform(-1, 1, (3, 4, 2)).astype("float32")

    def make(layers, keras):
        inner = keras.Sequential([layers.Dense(3, activity_regularizer="l2")])
        return layers.TimeDistributed(inner)

    with kerascnn.device(device):
        here, there = pair(make, x.shape)
        there(x)
        expected = sum(float(loss.detach()) for loss in there.losses)
        here(x)
        assert float(sum(here.losses)) == pytest.approx(expected, rel=1e-5)
        compiled = kerascnn.jit(lambda x: (here(x), sum(here.losses))[1])
        assert float(compiled(x)) == pytest.approx(expected, rel=1e-5)
        inputs = kerascnn.Input((4, 2))
        model = kerascnn.Model(inputs, here(inputs))
        model.compile("sgd", "mse")
        y = np.asarray(model(x))
        found = model.evaluate(x, y, batch_size=3, verbose=0)
        assert found == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize("layer", [layers.BatchNormalization, lambda: layers.Dense(3)])
def test_the_program_does_not_grow_with_the_sequence(layer):
    def size(steps):
        with kerascnn.device("cpu"):
            outer = layers.TimeDistributed(layer())
            outer.build((2, steps, 3))
        with Trace("cpu") as trace:
            x = trace.graph.input("x", [2, steps, 3], "float32")
            with kerascnn.GradientTape() as tape:
                tape.watch(x)
                loss = kerascnn.ops.sum(outer(x, training=True) ** 2)
            results = [loss, tape.gradient(loss, x)]
        program = _core.Program.compile(trace.graph, results, "cpu")
        return program.stats()["num_nodes_traced"], program.stats()["num_instructions"]

    assert size(1000) == size(5)
    assert max(size(1000)) < 60


def test_no_steps_are_an_error():
    with pytest.raises(ValueError, match="at least one step"):
        layers.TimeDistributed(layers.Dense(2))(np.ones((2, 0, 4), "float32"))
