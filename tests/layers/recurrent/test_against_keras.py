"""SimpleRNN, LSTM and GRU give Keras' numbers for random arguments, shapes, states and masks."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import kerascnn

from ..comparing import keras
from ..parity import FEW, check_signature, plain
from .running import as_list, assert_close, make_pair, run_compiled, run_eagerly, run_keras

pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")

NAMES = ["SimpleRNN", "LSTM", "GRU"]
PUBLIC = [*NAMES, "SimpleRNNCell", "LSTMCell", "GRUCell", "RNN", "StackedRNNCells"]
# Keras sums float32 in another order. Up to seven steps carry on the rounding (6e-8) of sums of at
# most a dozen products, and the gradients go back through the same steps.
TOLERANCE = 2e-5


@st.composite
def configurations(draw, name):
    arguments = {
        "units": draw(st.integers(1, 6)),
        "activation": draw(st.sampled_from(["tanh", "tanh", "relu", None])),
        "use_bias": draw(st.booleans()),
        "return_sequences": draw(st.booleans()),
        "return_state": draw(st.booleans()),
        "go_backwards": draw(st.booleans()),
        "unroll": draw(st.booleans()),
    }
    if name != "SimpleRNN":
        gates = st.sampled_from(["sigmoid", "sigmoid", "hard_sigmoid"])
        arguments["recurrent_activation"] = draw(gates)
    if name == "GRU":
        arguments["reset_after"] = draw(st.booleans())
    arguments["zero_output_for_mask"] = draw(st.booleans())
    return arguments


@st.composite
def calls(draw, name):
    shape = (draw(st.integers(1, 4)), draw(st.integers(1, 7)), draw(st.integers(1, 5)))
    mask = draw(st.sampled_from([None, "random", "first", "right"]))
    return draw(configurations(name)), shape, mask, draw(st.booleans()), draw(st.integers(0, 999))


def make_mask(kind, shape, rng):
    """Returns a mask whose steps count anywhere, not at the beginning, or not at the end."""
    if kind is None:
        return None
    if kind == "random":
        return rng.random(shape) < 0.6
    lengths = rng.integers(0, shape[1] + 1, (shape[0], 1))
    steps = np.arange(shape[1])
    return steps >= lengths if kind == "first" else steps < lengths


@pytest.mark.parametrize("name", NAMES)
def test_values_and_gradients(name, device):
    @FEW
    @given(call=calls(name))
    def check(call):
        arguments, shape, mask, has_states, seed = call
        if mask is not None:
            # Keras on PyTorch fails to unroll backwards with a mask.
            arguments = {**arguments, "unroll": False}
        rng = np.random.default_rng(seed)
        with kerascnn.device(device):
            here, there = make_pair(name, arguments, shape, rng)
        x = rng.uniform(-1, 1, shape).astype("float32")
        mask = make_mask(mask, shape[:2], rng)
        sizes = (shape[0], arguments["units"])
        count = 2 if name == "LSTM" else 1
        states = [rng.uniform(-1, 1, sizes).astype("float32") for _ in range(count * has_states)]
        expected_shapes = here.compute_output_shape(shape)
        expected_shapes = expected_shapes if here.return_state else [expected_shapes]
        directions = [rng.uniform(0.5, 1.5, s).astype("float32") for s in expected_shapes]
        expected = run_keras(there, x, states, mask, directions)
        for run in (run_eagerly, run_compiled):
            actual = run(here, x, states, mask, directions, device)
            assert_close(actual, expected, TOLERANCE, f"{run.__name__} of {name} {arguments}")

    check()


@pytest.mark.parametrize("name", NAMES)
def test_descriptions(name):
    @FEW
    @given(arguments=configurations(name), seed=st.sampled_from([None, 3]))
    def check(arguments, seed):
        arguments = {**arguments, "dropout": 0.25, "kernel_regularizer": "l2"}
        here = getattr(kerascnn.layers, name)(**arguments, seed=seed, name="a_layer")
        there = getattr(keras.layers, name)(**arguments, seed=seed, name="a_layer")
        config = plain(here.get_config())
        wanted = plain(there.get_config())
        if name == "SimpleRNN" and seed is not None:
            wanted["seed"] = seed  # Keras leaves the seed out.
        assert config == wanted
        assert plain(type(here).from_config(here.get_config()).get_config()) == config
        there_again = type(there).from_config(here.get_config())
        assert plain(there_again.get_config()) == plain(there.get_config())
        for given_shape in ((4, 7, 3), (None, None, 3), (None, 7, 3)):
            expected = there.compute_output_shape(given_shape)
            assert here.compute_output_shape(given_shape) == expected
            if arguments["unroll"] and given_shape[1] is None:
                continue
            layer = type(here).from_config(here.get_config())
            symbolic = layer(kerascnn.Input(given_shape[1:], batch_size=given_shape[0]))
            shapes = [tuple(x.shape) for x in as_list(symbolic)]
            assert shapes == (list(expected) if here.return_state else [expected])
        mask = object()
        assert here.compute_mask(None, mask) == there.compute_mask(None, mask)
        there.build((2, 7, 3))
        here.build((2, 7, 3))
        serialized = plain(keras.layers.serialize(there))
        serialized["config"] = config
        assert plain(kerascnn.layers.serialize(here)) == serialized
        assert plain(kerascnn.layers.deserialize(serialized).get_config()) == config

    check()


@pytest.mark.parametrize("name", PUBLIC)
def test_signatures(name):
    check_signature(name)


CELLS = ["SimpleRNNCell", "LSTMCell", "GRUCell"]


@pytest.mark.parametrize("nested", [True, False])
@pytest.mark.parametrize("name", CELLS)
def test_cells_by_themselves(name, nested, device, rng):
    """A cell does one step, with its states in a list or, if there is only one, without it."""
    if name == "LSTMCell" and not nested:
        pytest.skip("it has two states")
    with kerascnn.device(device):
        here, there = make_pair(name, {"units": 4}, (3, 5), rng)
        assert plain(here.get_config()) == plain(there.get_config())
        x = rng.uniform(-1, 1, (3, 5)).astype("float32")
        states = [rng.uniform(-1, 1, (3, 4)).astype("float32") for _ in as_list(here.state_size)]
        given_states = states if nested else states[0]
        output, after = here(x, given_states)
        expected, expected_after = there(x, given_states)
        assert isinstance(after, list) == isinstance(expected_after, list) == nested
        actual = [output.numpy(), *(s.numpy() for s in as_list(after))]
        wanted = [t.detach().numpy() for t in (expected, *as_list(expected_after))]
        assert_close(actual, wanted, TOLERANCE, name)
        initial = here.get_initial_state(batch_size=6)
        assert [s.shape for s in initial] == [(6, 4)] * len(states)


@pytest.mark.parametrize("mask", [None, "random"])
def test_stacked_cells(mask, device, rng):
    """Cells that run one after another in each step equal Keras', and layers one after another."""

    def make(k):
        cells = [k.layers.LSTMCell(4), k.layers.GRUCell(3), k.layers.SimpleRNNCell(5)]
        return k.layers.RNN(cells, return_sequences=True, return_state=True, name="stack")

    shape = (3, 6, 2)
    with kerascnn.device(device):
        here, there = make(kerascnn), make(keras)
        here.build(shape)
        there.build(shape)
        x = rng.uniform(-1, 1, shape).astype("float32")
        for a, b in zip(here.cell.cells, there.cell.cells, strict=True):
            a.set_weights([rng.uniform(-0.8, 0.8, w.shape).astype("float32") for w in a.weights])
            b.set_weights(a.get_weights())
        mask = make_mask(mask, shape[:2], rng)
        ours = here(x, mask=mask)
        theirs = there(x, mask=None if mask is None else keras.ops.convert_to_tensor(mask))
    ours, theirs = keras.tree.flatten(ours), keras.tree.flatten(theirs)
    assert len(ours) == len(theirs) == 5
    assert_close([a.numpy() for a in ours], [b.detach().numpy() for b in theirs], TOLERANCE)
    assert here.compute_output_shape((None, None, 2)) == there.compute_output_shape((None, None, 2))
    configs = [k.layers.serialize(layer) for k, layer in ((kerascnn, here), (keras, there))]
    cells = [plain(c["config"]["cell"]["config"]["cells"]) for c in configs]
    for a, b in zip(*cells, strict=True):
        a["config"].pop("name"), b["config"].pop("name")
        assert a == b
    again = kerascnn.layers.deserialize(configs[1])
    assert [type(cell).__name__ for cell in again.cell.cells] == [c["class_name"] for c in cells[1]]
