"""Convolutional LSTMs have Keras' arguments, masks, states and gradients, and train alike."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import kerascnn

from ..comparing import keras
from ..parity import FEW, check_signature, plain
from .running import as_list, assert_close, make_pair, run_compiled, run_eagerly, run_keras
from .test_against_keras import make_mask

pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")

# Sums of up to a hundred float32 products are carried on by up to four steps and back.
TOLERANCE = 5e-5


@st.composite
def calls(draw, rank):
    last = draw(st.booleans())
    steps, channels = draw(st.integers(1, 4)), draw(st.integers(1, 3))
    sizes = tuple(draw(st.integers(4, 6 if rank < 3 else 5)) for _ in range(rank))
    shape = (draw(st.integers(1, 2)), steps, *((*sizes, channels) if last else (channels, *sizes)))
    strides = draw(st.integers(1, 2))
    arguments = {
        "filters": draw(st.integers(1, 3)),
        "kernel_size": tuple(draw(st.integers(1, 3)) for _ in range(rank)),
        "strides": strides,
        "dilation_rate": draw(st.integers(1, 2)) if strides == 1 and rank == 2 else 1,
        "padding": draw(st.sampled_from(["same", "valid"])),
        "data_format": "channels_last" if last else "channels_first",
        "use_bias": draw(st.booleans()),
        "return_sequences": draw(st.booleans()),
        "return_state": draw(st.booleans()),
        "go_backwards": draw(st.booleans()),
    }
    if arguments["dilation_rate"] == 2:
        arguments["padding"] = "same"
    mask = draw(st.sampled_from([None, None, "random", "right"]))
    return arguments, shape, mask, draw(st.booleans()), draw(st.integers(0, 999))


@pytest.mark.parametrize("rank", [1, 2, 3])
def test_values_and_gradients(rank, device):
    name = f"ConvLSTM{rank}D"

    @FEW
    @given(call=calls(rank))
    def check(call):
        arguments, shape, mask, has_states, seed = call
        rng = np.random.default_rng(seed)
        with kerascnn.device(device):
            here, there = make_pair(name, arguments, shape, rng)
        state_shape = here.cell.compute_output_shape((shape[0], *shape[2:]))[0]
        x = rng.uniform(-1, 1, shape).astype("float32")
        mask = make_mask(mask, shape[:2], rng)
        states = [rng.uniform(-1, 1, state_shape).astype("float32") for _ in range(2 * has_states)]
        shapes = here.compute_output_shape(shape)
        assert shapes == there.compute_output_shape(shape)
        shapes = shapes if here.return_state else [shapes]
        directions = [rng.uniform(0.5, 1.5, s).astype("float32") for s in shapes]
        expected = run_keras(there, x, states, mask, directions)
        for run in (run_eagerly, run_compiled):
            actual = run(here, x, states, mask, directions, device)
            assert_close(actual, expected, TOLERANCE, f"{run.__name__} of {name} {arguments}")

    check()


@pytest.mark.parametrize("rank", [1, 2, 3])
def test_descriptions(rank):
    name, sizes = f"ConvLSTM{rank}D", (7, 6, 5)[:rank]
    check_signature(name)
    for arguments in (
        {},
        {"padding": "same", "strides": 2, "return_sequences": True, "return_state": True},
        {"data_format": "channels_first", "dropout": 0.5, "seed": 3, "unit_forget_bias": False},
    ):
        here = getattr(kerascnn.layers, name)(4, 3, **arguments, name="a_layer")
        there = getattr(keras.layers, name)(4, 3, **arguments, name="a_layer")
        assert plain(here.get_config()) == plain(there.get_config())
        again = kerascnn.layers.deserialize(keras.layers.serialize(there))
        assert plain(again.get_config()) == plain(here.get_config())
        first = arguments.get("data_format") == "channels_first"
        image = (2, *sizes) if first else (*sizes, 2)
        for shape in ((None, None, *image), (3, 5, *image)):
            expected = there.compute_output_shape(shape)
            assert here.compute_output_shape(shape) == expected
            symbolic = as_list(again(kerascnn.Input(shape[1:], batch_size=shape[0])))
            wanted = list(expected) if here.return_state else [expected]
            assert [tuple(x.shape) for x in symbolic] == wanted
    with pytest.raises(ValueError, match="needs to know the size"):
        free = (None, *sizes[1:], 2)
        getattr(kerascnn.layers, name)(4, 3)(kerascnn.Input((5, *free)))


def test_a_few_steps_of_training(rng):
    """Two layers, one of them backwards, train on moving images with Keras' losses."""
    x = rng.random((16, 4, 8, 7, 2)).astype("float32")
    y = rng.integers(0, 3, 16)

    def make(k):
        model = k.Sequential(
            [
                k.Input((None, 8, 7, 2)),
                k.layers.ConvLSTM2D(4, 3, padding="same", return_sequences=True),
                k.layers.ConvLSTM2D(3, (3, 2), strides=2, go_backwards=True),
                k.layers.Flatten(),
                k.layers.Dense(3, activation="softmax"),
            ]
        )
        model.compile(k.optimizers.SGD(0.1, momentum=0.9), "sparse_categorical_crossentropy")
        return model

    here, there = make(kerascnn), make(keras)
    there.set_weights(here.get_weights())
    losses = [
        m.fit(x, y, batch_size=4, epochs=3, shuffle=False, verbose=0).history["loss"]
        for m in (here, there)
    ]
    # The tolerance covers twelve float32 steps of training.
    np.testing.assert_allclose(*losses, rtol=1e-4)
    np.testing.assert_allclose(
        here.predict(x, verbose=0), there.predict(x, verbose=0), rtol=0, atol=1e-4
    )


@pytest.mark.parametrize("compiled", [False, True])
def test_dropout_has_one_mask_for_all_steps(compiled, device):
    """Without a recurrent kernel and with all gates 1, equal images add the same in each step."""
    with kerascnn.device(device):
        layer = kerascnn.layers.ConvLSTM2D(
            3,
            1,
            activation=None,
            recurrent_activation=None,
            use_bias=True,
            unit_forget_bias=False,
            dropout=0.5,
            return_sequences=True,
        )
        x = kerascnn.ops.ones((2, 3, 4, 4, 2))
        layer.build(x.shape)
        kernel, recurrent, _ = layer.get_weights()
        # The kernels of all gates but the candidate are 0,
        kernel[..., [*range(3), *range(9, 12), *range(3, 6)]] = 0
        bias = np.repeat(np.array([1, 1, 0, 1], "float32"), 3)  # and their biases are 1.
        layer.set_weights([kernel, np.zeros_like(recurrent), bias])
        call = kerascnn.jit(layer) if compiled else layer
        y = call(x, training=True).numpy()
    for step in range(3):
        np.testing.assert_allclose(y[:, step], (step + 1) * y[:, 0], rtol=1e-5, atol=1e-6)
    assert np.abs(y - layer(x).numpy()).max() > 1e-3
