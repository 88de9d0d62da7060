"""Bidirectional gives what Keras' layer gives: modes, states, masks, another backward layer."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import kerascnn

from ..comparing import keras
from ..parity import FEW, check_signature, plain
from .running import as_list, assert_close, run_compiled, run_eagerly, run_keras, same_weights
from .test_against_keras import TOLERANCE, make_mask

pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")

MODES = ["concat", "sum", "mul", "ave", None]


def make(k, name, arguments, merge_mode, own_backward):
    layer = getattr(k.layers, name)(**arguments, name="inner")
    backward = None
    if own_backward:
        backward = k.layers.SimpleRNN(
            arguments["units"],
            activation="relu",
            go_backwards=True,
            return_sequences=arguments["return_sequences"],
            return_state=arguments["return_state"],
            name="other",
        )
    return k.layers.Bidirectional(
        layer, merge_mode=merge_mode, backward_layer=backward, name="a_layer"
    )


@st.composite
def calls(draw):
    name = draw(st.sampled_from(["SimpleRNN", "LSTM", "GRU"]))
    arguments = {
        "units": draw(st.integers(1, 4)),
        "return_sequences": draw(st.booleans()),
        "return_state": draw(st.booleans()),
    }
    own = draw(st.sampled_from([False, False, True]))
    mode = draw(st.sampled_from(MODES))
    shape = (draw(st.integers(1, 3)), draw(st.integers(1, 6)), draw(st.integers(1, 4)))
    mask = draw(st.sampled_from([None, "random", "right"]))
    return name, arguments, mode, own, shape, mask, draw(st.booleans()), draw(st.integers(0, 999))


def test_values_and_gradients(device):
    @FEW
    @given(call=calls())
    def check(call):
        name, arguments, mode, own, shape, mask, has_states, seed = call
        rng = np.random.default_rng(seed)
        with kerascnn.device(device):
            here = make(kerascnn, name, arguments, mode, own)
            here.build(shape)
        there = make(keras, name, arguments, mode, own)
        there.build(shape)
        same_weights(here, there, rng)
        x = rng.uniform(-1, 1, shape).astype("float32")
        mask = make_mask(mask, shape[:2], rng)
        forward = 2 if name == "LSTM" else 1
        count = forward + (1 if own else forward)
        has_states = has_states and count % 2 == 0
        sizes = (shape[0], arguments["units"])
        states = [rng.uniform(-1, 1, sizes).astype("float32") for _ in range(count * has_states)]
        outputs = here(x, initial_state=states or None, mask=mask)
        directions = [
            rng.uniform(0.5, 1.5, tuple(o.shape)).astype("float32") for o in as_list(outputs)
        ]
        expected = run_keras(there, x, states, mask, directions)
        for run in (run_eagerly, run_compiled):
            actual = run(here, x, states, mask, directions, device)
            assert_close(actual, expected, TOLERANCE, f"{run.__name__} of {name} {arguments}")

    check()


@pytest.mark.parametrize("own", [False, True])
@pytest.mark.parametrize("mode", MODES)
def test_descriptions(mode, own):
    for returns in ((False, False), (True, False), (True, True)):
        arguments = {"units": 3, "return_sequences": returns[0], "return_state": returns[1]}
        here, there = (make(k, "GRU", arguments, mode, own) for k in (kerascnn, keras))
        assert plain(kerascnn.layers.serialize(here)) == plain(keras.layers.serialize(there))
        for shape in ((None, None, 2), (4, 5, 2)):
            expected = plain(there.compute_output_shape(shape))
            assert plain(here.compute_output_shape(shape)) == expected
            symbolic = as_list(here(kerascnn.Input(shape[1:], batch_size=shape[0])))
            assert [list(x.shape) for x in symbolic] == (
                expected if isinstance(expected[0], list) else [expected]
            )
        again = type(here).from_config(here.get_config())
        config = plain(again.get_config())
        wanted = plain(here.get_config())
        assert config == wanted
        mask = object()
        assert here.compute_mask(None, mask) == there.compute_mask(None, mask)
        if not own:
            assert again.backward_layer.go_backwards and not again.forward_layer.go_backwards


def test_signature():
    check_signature("Bidirectional")


def test_weights_are_fresh_or_as_given(rng):
    layer = kerascnn.layers.LSTM(3)
    layer.build((2, 4, 5))
    both = kerascnn.layers.Bidirectional(layer)
    both.build((2, 4, 5))
    first = next(w for w in both.forward_layer.weights if w.name == "kernel")
    assert (first.numpy() != layer.cell.kernel.numpy()).any()
    weights = [rng.normal(size=w.shape).astype("float32") for w in both.weights]
    again = kerascnn.layers.Bidirectional(layer, weights=weights)
    again.build((2, 4, 5))
    for a, b in zip(again.get_weights(), weights, strict=True):
        np.testing.assert_array_equal(a, b)


def test_stateful(rng):
    x = rng.normal(size=(2, 4, 3)).astype("float32")
    layer = kerascnn.layers.Bidirectional(kerascnn.layers.GRU(3, stateful=True))
    first = layer(x).numpy()
    assert len(layer.states) == 2
    second = layer(x).numpy()
    assert np.abs(first - second).max() > 1e-4
    layer.reset_state()
    np.testing.assert_allclose(layer(x).numpy(), first, rtol=0, atol=1e-6)


def test_errors():
    layers = kerascnn.layers
    with pytest.raises(ValueError, match="goes around layers"):
        layers.Bidirectional(3)
    with pytest.raises(ValueError, match="goes around a recurrent layer"):
        layers.Bidirectional(layers.Dense(3))
    with pytest.raises(ValueError, match="merge_mode"):
        layers.Bidirectional(layers.GRU(3), merge_mode="difference")
    with pytest.raises(ValueError, match="one backwards"):
        layers.Bidirectional(layers.GRU(3), backward_layer=layers.GRU(3))
    with pytest.raises(ValueError, match="same `return_state`"):
        backward = layers.GRU(3, go_backwards=True, return_state=True)
        layers.Bidirectional(layers.GRU(3), backward_layer=backward)
    with pytest.raises(ValueError, match="odd number of states: 3"):
        states = [np.zeros((2, 3), "float32")] * 3
        layers.Bidirectional(layers.LSTM(3))(np.ones((2, 4, 3), "float32"), initial_state=states)
    with pytest.raises(AttributeError, match="not stateful"):
        layers.Bidirectional(layers.LSTM(3)).reset_state()
