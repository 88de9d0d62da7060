"""What recurrent layers do besides numbers: states, dropout, masks, custom cells, errors."""

import numpy as np
import pytest

import kerascnn
from kerascnn import layers, ops

from ..comparing import keras
from .running import assert_close

pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")

NAMES = ["SimpleRNN", "LSTM", "GRU"]


def numpy(tensors):
    return [t.numpy() for t in (tensors if isinstance(tensors, (list, tuple)) else [tensors])]


# Stateful layers ---------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_a_stateful_layer_goes_on_where_it_was(name, device, rng):
    x = rng.normal(size=(3, 8, 2)).astype("float32")
    with kerascnn.device(device):
        stateful = getattr(layers, name)(4, stateful=True, return_sequences=True)
        stateful.build((3, 4, 2))
        whole = getattr(layers, name)(4, return_sequences=True)
        whole.build(x.shape)
        whole.set_weights(stateful.get_weights())  # The states do not count as weights.
        assert len(stateful.weights) == len(whole.weights) == 3
        expected = whole(x).numpy()
        for _ in range(2):
            parts = [stateful(x[:, :4]).numpy(), stateful(x[:, 4:]).numpy()]
            np.testing.assert_allclose(np.concatenate(parts, 1), expected, rtol=0, atol=1e-6)
            stateful.reset_state()
            assert all((v.numpy() == 0).all() for v in stateful.states)


@pytest.mark.parametrize("run_eagerly", [False, True])
def test_stateful_training_is_that_of_keras(run_eagerly, rng):
    """The batches are parts of longer sequences: states go from batch to batch, also in `fit`."""
    x = rng.normal(size=(12, 5, 3)).astype("float32")
    y = rng.normal(size=(12, 2)).astype("float32")

    def make(k):
        model = k.Sequential(
            [
                k.Input(batch_shape=(4, 5, 3)),
                # Keras on PyTorch trains stateful layers in its general loop only.
                k.layers.LSTM(6, stateful=True, return_sequences=True, use_cudnn=False),
                k.layers.GRU(5, stateful=True, use_cudnn=False),
                k.layers.Dense(2),
            ]
        )
        model.compile(k.optimizers.SGD(0.1), "mse", run_eagerly=run_eagerly)
        return model

    here, there = make(kerascnn), make(keras)
    there.set_weights(here.get_weights())
    histories = []
    for model in (here, there):
        fitted = model.fit(x, y, batch_size=4, epochs=3, shuffle=False, verbose=0)
        histories.append(fitted.history["loss"])
        predicted = model.predict(x[:4], batch_size=4, verbose=0)
        again = model.predict(x[:4], batch_size=4, verbose=0)
        assert np.abs(predicted - again).max() > 1e-6  # The states have changed in between.
        for layer in model.layers[:2]:
            layer.reset_state()
        histories[-1] = histories[-1] + predicted.ravel().tolist()
    # The tolerance covers nine float32 steps of training.
    np.testing.assert_allclose(histories[0], histories[1], rtol=2e-4, atol=2e-5)


@pytest.mark.parametrize("name", NAMES)
def test_gradients_of_a_stateful_layer_at_once(name, device, rng):
    """The gradients see the states from the start of the call, which its end overwrites."""
    x = rng.normal(size=(3, 4, 2)).astype("float32")
    with kerascnn.device(device):
        stateful = getattr(layers, name)(5, stateful=True)
        first = stateful(x)
        plain = getattr(layers, name)(5)
        plain.build(x.shape)
        plain.set_weights(stateful.get_weights())
        states = [ops.copy(v) for v in stateful.states]
        gradients = []
        for layer, given in ((stateful, None), (plain, states)):
            with kerascnn.GradientTape() as tape:
                loss = ops.sum(ops.square(layer(x, initial_state=given)))
            gradients.append(numpy(tape.gradient(loss, layer.trainable_weights)))
        assert np.abs(first.numpy() - stateful(x).numpy()).max() > 1e-4
    assert_close(*gradients, 1e-5)


def test_errors_of_stateful_layers():
    with pytest.raises(ValueError, match="needs to know the batch size"):
        layers.LSTM(3, stateful=True)(kerascnn.Input((5, 2)))
    layer = layers.GRU(3, stateful=True)
    layer(np.ones((4, 5, 2), "float32"))
    with pytest.raises(ValueError, match="Expected batch size: 4\n- Received batch size: 3"):
        layer(np.ones((3, 5, 2), "float32"))


# Dropout -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("implementation", [1, 2])
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("compiled", [False, True])
def test_dropout_has_one_mask_for_all_steps(name, implementation, compiled, device):
    """Only the input kernel is not zero, so equal inputs give equal gates in all steps."""
    kwargs = {} if name == "SimpleRNN" else {"implementation": implementation}
    with kerascnn.device(device):
        layer = getattr(layers, name)(
            6, activation=None, return_sequences=True, dropout=0.5, seed=1, use_bias=False, **kwargs
        )
        x = ops.ones((5, 4, 3))
        layer.build(x.shape)
        kernel, recurrent = layer.get_weights()
        layer.set_weights([kernel, np.zeros_like(recurrent)])
        call = kerascnn.jit(layer) if compiled else layer
        first, second = (call(x, training=True).numpy() for _ in range(2))
        plain = layer(x).numpy()
    if name == "SimpleRNN":
        np.testing.assert_allclose(first, first[:, :1] + 0 * first, rtol=0, atol=1e-6)
    else:  # with the same gates in all steps, each change is the one before times a gate
        change = np.diff(np.concatenate([0 * first[:, :1], first], 1), axis=1)
        np.testing.assert_allclose(
            change[:, 1:-1] ** 2, change[:, :-2] * change[:, 2:], rtol=1e-4, atol=1e-6
        )
    assert np.abs(first - second).max() > 1e-3  # Each call draws another mask.
    assert np.abs(first - plain).max() > 1e-3


@pytest.mark.parametrize("name", NAMES)
def test_recurrent_dropout_keeps_what_is_expected(name, device):
    """Elements of a state are dropped with probability p; the others are divided by 1 - p."""
    with kerascnn.device(device):
        cell = getattr(layers, f"{name}Cell")(2000, recurrent_dropout=0.25, dropout=0.5, seed=3)
        state = ops.ones((1, 2000))
        masks = cell.get_recurrent_dropout_mask(state)
        count = {"SimpleRNN": 1, "LSTM": 4, "GRU": 3}[name]
        masks = masks if isinstance(masks, list) else [masks]
        assert len(masks) == count
        for mask in masks:
            values, counts = np.unique(mask.numpy(), return_counts=True)
            np.testing.assert_allclose(values, [0, 4 / 3], rtol=1e-6)
            # The bound is six standard deviations of 2000 draws.
            assert abs(counts[0] / 2000 - 0.25) < 6 * np.sqrt(0.25 * 0.75 / 2000)
        assert cell.get_recurrent_dropout_mask(state) is not None
        same = cell.get_recurrent_dropout_mask(state)
        same = same if isinstance(same, list) else [same]
        assert all(a is b for a, b in zip(same, masks, strict=True))
        cell.reset_recurrent_dropout_mask()
        other = cell.get_recurrent_dropout_mask(state)
        other = other if isinstance(other, list) else [other]
        assert (other[0].numpy() != masks[0].numpy()).any()


@pytest.mark.parametrize("name", NAMES)
def test_a_loop_of_ones_own_is_the_layer_with_the_same_masks(name, device, rng):
    """A cell that is called step by step in training keeps its masks until they are reset."""
    with kerascnn.device(device):
        x = ops.convert_to_tensor(rng.normal(size=(3, 6, 4)).astype("float32"))

        def make():
            cell = getattr(layers, f"{name}Cell")(5, dropout=0.4, recurrent_dropout=0.3, seed=11)
            cell.build((3, 4))
            return cell

        cell, other = make(), make()
        other.set_weights(cell.get_weights())
        layer = layers.RNN(other, return_sequences=True)
        states = cell.get_initial_state(3)
        outputs = []
        for t in range(6):
            output, states = cell(x[:, t], states, training=True)
            outputs.append(output.numpy())
        expected = layer(x, training=True).numpy()
        np.testing.assert_allclose(np.stack(outputs, 1), expected, rtol=0, atol=2e-6)


def test_masks_of_a_compiled_call_are_not_used_afterwards(device):
    with kerascnn.device(device):
        cell = layers.LSTMCell(3, dropout=0.5)
        x, states = ops.ones((2, 4)), [ops.zeros((2, 3))] * 2
        cell(x, states)
        kerascnn.jit(lambda a: cell(a, states, training=True)[0])(x)
        assert np.isfinite(cell(x, states, training=True)[0].numpy()).all()


@pytest.mark.parametrize("compiled", [False, True])
def test_dropout_in_stacked_cells(compiled, device):
    with kerascnn.device(device):
        cells = [
            layers.LSTMCell(4, dropout=0.5, recurrent_dropout=0.5),
            layers.GRUCell(3, dropout=0.5),
        ]
        layer = layers.RNN(cells)
        x = ops.ones((2, 5, 6))
        layer(x)
        call = kerascnn.jit(layer) if compiled else layer
        first, second = (call(x, training=True).numpy() for _ in range(2))
        assert (first != second).any()
        np.testing.assert_array_equal(layer(x).numpy(), layer(x).numpy())


# Custom cells -----------------------------------------------------------------------------------


def own_cell(k):
    @k.saving.register_keras_serializable("recurrent_tests")
    class Cell(k.layers.Layer):
        """Has two states of different sizes, and an output of a third size."""

        def __init__(self, units, **kwargs):
            super().__init__(**kwargs)
            self.units = units
            self.state_size = [units, 2 * units]
            self.output_size = 3 * units

        def build(self, input_shape):
            self.kernel = self.add_weight(
                shape=(input_shape[-1], self.units), initializer="ones", name="kernel"
            )

        def call(self, inputs, states):
            first, second = states
            first = k.ops.tanh(k.ops.matmul(inputs, self.kernel) + first)
            second = 0.5 * second + k.ops.concatenate([first, first], -1)
            return k.ops.concatenate([first, second], -1), [first, second]

        def get_config(self):
            return {**super().get_config(), "units": self.units}

    return Cell


@pytest.mark.parametrize("mask", [False, True])
def test_a_cell_of_ones_own(mask, device, rng):
    x = rng.normal(size=(3, 6, 4)).astype("float32")
    mask = rng.random((3, 6)) < 0.5 if mask else None
    results = []
    for k in (kerascnn, keras):
        cell = own_cell(k)(2)
        layer = k.layers.RNN(cell, return_sequences=True, return_state=True)
        with kerascnn.device(device):
            given = mask if mask is None or k is kerascnn else k.ops.convert_to_tensor(mask)
            outputs = layer(x, mask=given)
        assert layer.compute_output_shape((None, None, 4)) == (
            (None, None, 6),
            (None, 2),
            (None, 4),
        )
        results.append([np.asarray(o.numpy() if k is kerascnn else o.detach()) for o in outputs])
    assert_close(*results, 1e-6)


def test_a_cell_of_ones_own_in_a_configuration(rng):
    cell = own_cell(kerascnn)(2)
    layer = layers.RNN([cell, layers.GRUCell(3)], return_sequences=True)
    x = rng.normal(size=(3, 6, 4)).astype("float32")
    expected = layer(x).numpy()
    again = layers.deserialize(layers.serialize(layer))
    assert type(again.cell.cells[0]) is type(cell)
    again(x)
    again.set_weights(layer.get_weights())
    np.testing.assert_array_equal(again(x).numpy(), expected)


def test_a_cell_that_is_no_layer(rng):
    class Sum:
        state_size = 3

        def call(self, inputs, states):
            total = states[0] + inputs
            return total, total  # A single state needs no list.

    x = rng.normal(size=(2, 5, 3)).astype("float32")
    outputs, state = layers.RNN(Sum(), return_sequences=True, return_state=True)(x)
    np.testing.assert_allclose(outputs.numpy(), np.cumsum(x, 1), rtol=0, atol=1e-6)
    np.testing.assert_allclose(state.numpy(), x.sum(1), rtol=0, atol=1e-6)


def test_an_overridden_call_of_a_cell_is_used():
    class Doubled(layers.LSTMCell):
        def call(self, inputs, states, training=False):
            output, states = super().call(inputs, states, training)
            return 2.0 * output, states

    x = np.ones((2, 3, 4), "float32")
    layer = layers.RNN(Doubled(5))
    doubled = layer(x).numpy()
    plain = layers.LSTM(5)
    plain.build(x.shape)
    plain.set_weights(layer.get_weights())
    np.testing.assert_allclose(doubled, 2 * plain(x).numpy(), rtol=0, atol=1e-6)


# Models ------------------------------------------------------------------------------------------


def encoder_decoder(k):
    source, target = k.Input((None, 3)), k.Input((None, 2))
    _, hidden, carry = k.layers.LSTM(5, return_state=True, name="encoder")(source)
    decoded = k.layers.LSTM(5, return_sequences=True, name="decoder")(
        target, initial_state=[hidden, carry]
    )
    gru = k.layers.GRU(5, name="second")(decoded, initial_state=hidden)
    model = k.Model([source, target], [k.layers.Dense(4)(decoded), gru])
    model.compile(k.optimizers.Adam(0.01), ["mse", "mse"])
    return model


def test_states_from_layer_to_layer(rng):
    """An encoder's states start its decoder; sequences of several lengths come in turn."""
    here, there = encoder_decoder(kerascnn), encoder_decoder(keras)
    assert [tuple(x.shape) for x in here.outputs] == [(None, None, 4), (None, 5)]
    there.set_weights(here.get_weights())
    for lengths in ((6, 4), (3, 7), (6, 4)):
        x = [
            rng.normal(size=(4, n, c)).astype("float32")
            for n, c in zip(lengths, (3, 2), strict=True)
        ]
        y = [
            rng.normal(size=(4, lengths[1], 4)).astype("float32"),
            rng.normal(size=(4, 5)).astype("float32"),
        ]
        for a, b in zip(here.predict(x, verbose=0), there.predict(x, verbose=0), strict=True):
            np.testing.assert_allclose(a, b, rtol=0, atol=2e-5)
        losses = [m.train_on_batch(x, y) for m in (here, there)]
        # Adam divides by the roots of tiny squares, so a step of 0.01 may differ in its fourth
        # digit.
        np.testing.assert_allclose(losses[0], losses[1], rtol=1e-4)
    config = here.get_config()
    again = kerascnn.Model.from_config(config)
    again.set_weights(here.get_weights())
    for a, b in zip(again.predict(x, verbose=0), here.predict(x, verbose=0), strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("name", NAMES)
def test_half_precision(name, rng):
    """A layer computes in float16 from float32 weights; outputs and states are float16."""
    x = rng.uniform(-1, 1, (3, 5, 4)).astype("float32")
    layer = getattr(layers, name)(6, return_state=True, dtype="mixed_float16")
    outputs = layer(x)
    assert {o.dtype for o in outputs} == {"float16"}
    assert {w.dtype for w in layer.weights} == {"float32"}
    wide = getattr(layers, name)(6, return_state=True)
    wide.build(x.shape)
    wide.set_weights(layer.get_weights())
    # There are five steps, each a sum of ten numbers below 1 rounded at 5e-4.
    assert_close(numpy(outputs), numpy(wide(x)), 2e-2)
    symbolic = getattr(layers, name)(6, dtype="mixed_float16")(kerascnn.Input((None, 4)))
    assert symbolic.dtype == "float16"


def test_regularizers_and_constraints_of_the_cell(rng):
    layer = layers.LSTM(
        3, kernel_regularizer="l2", recurrent_regularizer="l1", kernel_constraint="non_neg"
    )
    layer.build((2, 4, 5))
    assert len(layer.losses) == 2
    assert layer.cell.kernel.constraint is not None
    layer = layers.GRU(3, activity_regularizer=kerascnn.regularizers.L2(0.5))
    y = layer(rng.normal(size=(2, 4, 5)).astype("float32")).numpy()
    np.testing.assert_allclose(float(layer.losses[0]), 0.5 * (y**2).sum() / 2, rtol=1e-5)


# Errors ------------------------------------------------------------------------------------------


def test_errors():
    with pytest.raises(ValueError, match="positive integer"):
        layers.LSTM(0)
    with pytest.raises(ValueError, match="use_cudnn"):
        layers.GRU(3, use_cudnn="never")
    with pytest.raises(ValueError, match="`call`"):
        layers.RNN(3)

    class NoSize:
        def call(self, inputs, states):
            return inputs, states

    with pytest.raises(ValueError, match="state_size"):
        layers.RNN([NoSize()])
    with pytest.raises(ValueError, match="ndim=3"):
        layers.LSTM(3)(np.ones((2, 4), "float32"))
    x = np.ones((2, 4, 3), "float32")
    with pytest.raises(ValueError, match="batch, 4"):
        layers.LSTM(3)(x, mask=np.ones((2, 5), bool))
    with pytest.raises(ValueError, match="has 2 states"):
        layers.LSTM(3)(x, initial_state=[np.ones((2, 3), "float32")])
    with pytest.raises(ValueError, match="cannot unroll"):
        layers.LSTM(3, unroll=True)(kerascnn.Input((None, 2)))
    with pytest.raises(ValueError, match="at least one time step"):
        layers.LSTM(3)(np.ones((2, 0, 3), "float32"))

    class Forgetful(layers.LSTMCell):
        def call(self, inputs, states, training=False):
            output, states = super().call(inputs, states)
            return output, states[:1]

    with pytest.raises(ValueError, match="given 2 state tensors and returned 1"):
        layers.RNN(Forgetful(3))(x)


# Compiled steps ----------------------------------------------------------------------------------


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("dropout", [0.0, 0.5])
def test_the_loop_is_one_node_however_long_it_is(masked, dropout):
    """A long sequence has as many nodes in the graph as a short one, but `unroll` has more."""
    from kerascnn.tracing import Trace

    def nodes(steps, **arguments):
        cells = [layers.LSTMCell(3, recurrent_dropout=dropout), layers.GRUCell(2, dropout=dropout)]
        layer = layers.RNN(cells, **arguments)
        layer.build((2, steps, 4))
        with Trace("cpu", scratch=True) as trace:
            x = trace.graph.input("x", [2, steps, 4], "float32")
            mask = trace.graph.input("mask", [2, steps], "bool") if masked else None
            layer(x, mask=mask, training=True)
            return trace.graph.num_nodes

    assert nodes(4) == nodes(40)
    assert nodes(40, unroll=True) > nodes(40) + 100
