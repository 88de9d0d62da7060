"""MultiHeadAttention gives what Keras' layer gives."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import kerascnn
from kerascnn import layers

from ..comparing import keras, relative_error
from ..parity import FEW, check_signature, plain

pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")


def make_pair(arguments, shapes, rng):
    here = layers.MultiHeadAttention(**arguments, name="a")
    there = keras.layers.MultiHeadAttention(**arguments, name="a")
    for layer in (here, there):
        layer.build(*shapes)
    assert [w.path for w in here.weights] == [w.path for w in there.weights]
    assert [w.shape for w in here.weights] == [tuple(w.shape) for w in there.weights]
    values = [rng.uniform(-1, 1, w.shape).astype("float32") for w in here.weights]
    here.set_weights(values)
    there.set_weights(values)
    return here, there


@st.composite
def calls(draw):
    """Draws arguments, shapes of query, value and key, and further arguments of the call."""
    axes = draw(st.sampled_from([None, None, (1,), (2,), (1, 2)]))
    between = 1 if axes is None else 2
    t, s = ([draw(st.integers(2, 4)) for _ in range(between)] for _ in range(2))
    if between == 2 and len(axes) == 1:  # Both inputs have the same size along the other axis.
        other = 2 if axes == (1,) else 1
        s[other - 1] = t[other - 1]
    query = (2, *t, draw(st.integers(2, 4)))
    value = (2, *s, draw(st.integers(2, 4)))
    key = (2, *s, draw(st.integers(2, 4))) if draw(st.booleans()) else None
    arguments = {
        "num_heads": draw(st.integers(1, 3)),
        "key_dim": draw(st.integers(1, 3)),
        "value_dim": draw(st.sampled_from([None, 2])),
        "use_bias": draw(st.booleans()),
        "output_shape": draw(st.sampled_from([None, 3, (2, 3)])),
        "attention_axes": axes,
        "use_gate": draw(st.booleans()),
    }
    further = {}
    if between == 1:
        further["use_causal_mask"] = draw(st.booleans())
        arguments["sliding_window"] = draw(st.sampled_from([None, None, 2]))
    further["return_attention_scores"] = draw(st.booleans())
    return arguments, [query, value] + ([key] if key else []), further


def test_values_are_those_of_keras(device):
    @FEW
    @given(call=calls(), seed=st.integers(0, 2**16), masked=st.booleans())
    def check(call, seed, masked):
        arguments, shapes, further = call
        rng = np.random.default_rng(seed)
        xs = [rng.uniform(-1, 1, shape).astype("float32") for shape in shapes]
        if masked and arguments["attention_axes"] is None:
            mask = rng.random((2, shapes[0][1], shapes[1][1])) > 0.3
            mask[..., 0] = True  # No query is without a key.
            further = {**further, "attention_mask": mask}
        with kerascnn.device(device):
            here, there = make_pair(arguments, shapes, rng)
            actual = here(*xs, **further)
            symbolic = here(*(kerascnn.Input(shape[1:]) for shape in shapes))
        expected = there(*xs, **further)
        scores = further["return_attention_scores"]
        pairs = zip(actual, expected, strict=True) if scores else [(actual, expected)]
        for a, e in pairs:
            e = keras.ops.convert_to_numpy(e)
            # Where a window hides all keys from a query, the scores are zero here. Some versions of
            # PyTorch give NaN or equal scores.
            known = np.isfinite(e)
            assert a.shape == e.shape
            assert relative_error(a.numpy()[known], e[known]) < 2e-5
        assert symbolic.shape == (None, *tuple(there.compute_output_shape(*shapes))[1:])
        assert plain(here.get_config()) == plain(there.get_config())
        again = layers.MultiHeadAttention.from_config(here.get_config())
        assert plain(again.get_config()) == plain(here.get_config())

    check()
    check_signature("MultiHeadAttention")


def test_masks_of_what_counts(device, rng):
    shapes = [(2, 3, 4), (2, 5, 4)]
    xs = [rng.uniform(-1, 1, shape).astype("float32") for shape in shapes]
    mask = np.array([[1, 1, 1, 0, 0], [1, 0, 1, 1, 1]], bool)
    with kerascnn.device(device):
        here, there = make_pair({"num_heads": 2, "key_dim": 3}, shapes, rng)
        for name in ("value_mask", "key_mask"):
            actual = here(*xs, **{name: mask}).numpy()
            given_mask = {name: keras.ops.convert_to_tensor(mask)}
            expected = keras.ops.convert_to_numpy(there(*xs, **given_mask))
            assert relative_error(actual, expected) < 2e-5


def test_gradients_and_training_in_a_model(device, rng):
    """One SGD step on a small transformer block changes the weights as in Keras."""

    def make(m):
        x = m.Input((4, 6))
        y = m.layers.MultiHeadAttention(2, 3, name="attention")(x, x)
        y = m.layers.LayerNormalization(name="norm")(m.layers.Add()([x, y]))
        y = m.layers.Dense(3, name="out")(m.layers.Flatten()(y))
        model = m.Model(x, y)
        model.compile(m.optimizers.SGD(0.1), "mse")
        return model

    x = rng.uniform(-1, 1, (8, 4, 6)).astype("float32")
    y = rng.uniform(-1, 1, (8, 3)).astype("float32")
    with kerascnn.device(device):
        here, there = make(kerascnn), make(keras)
        values = [rng.uniform(-0.5, 0.5, w.shape).astype("float32") for w in here.weights]
        here.set_weights(values)
        there.set_weights(values)
        for model in (here, there):
            model.fit(x, y, batch_size=4, epochs=2, shuffle=False, verbose=0)
        # The tolerance covers four float32 steps through a normalization.
        for own, other in zip(here.get_weights(), there.get_weights(), strict=True):
            assert relative_error(own, other) < 1e-4


def test_dropout_of_scores_is_for_training_only(device, rng):
    x = rng.uniform(-1, 1, (2, 6, 4)).astype("float32")
    with kerascnn.device(device):
        layer = layers.MultiHeadAttention(2, 3, dropout=0.5, seed=1)
        still = layer(x, x).numpy()
        np.testing.assert_array_equal(still, layer(x, x).numpy())
        assert (layer(x, x, training=True).numpy() != still).any()


@pytest.mark.parametrize(
    "arguments",
    [
        {"num_heads": 0, "key_dim": 2},
        {"num_heads": 2, "key_dim": 0},
        {"num_heads": 2, "key_dim": 2, "value_dim": -1},
        {"num_heads": 2, "key_dim": 2, "sliding_window": 0},
        {"num_heads": 2, "key_dim": 2, "attention_axes": "1"},
    ],
)
def test_arguments_that_keras_refuses(arguments):
    for module in (layers, keras.layers):
        with pytest.raises(ValueError):
            module.MultiHeadAttention(**arguments)


def test_keys_and_values_of_different_length_are_refused():
    for module in (layers, keras.layers):
        with pytest.raises(ValueError):
            module.MultiHeadAttention(2, 2).build((2, 3, 4), (2, 5, 4), (2, 6, 4))


def with_learned_scale(library):
    """A subclass that computes attention itself, with what Keras' layer has for that."""

    class Scaled(library.layers.MultiHeadAttention):
        def _compute_attention(
            self,
            query,
            key,
            value,
            attention_mask=None,
            training=None,
            return_attention_scores=False,
        ):
            query = query * self._inverse_sqrt_key_dim * 1.5
            scores = library.ops.einsum(self._dot_product_equation, key, query)
            scores = self._masked_softmax(scores, attention_mask)
            shares = self._dropout_layer(scores, training=training)
            return library.ops.einsum(self._combine_equation, shares, value), scores

    return Scaled


@pytest.mark.parametrize("axes", [None, (1, 2)])
def test_attention_of_ones_own_is_computed_with_keras_helpers(device, rng, axes):
    between = (4,) if axes is None else (2, 3)
    query, value = (2, *between, 5), (2, *between[:-1], 3, 5)
    arguments = {"num_heads": 2, "key_dim": 3, "attention_axes": axes, "dropout": 0.5}
    here, there = (with_learned_scale(library)(**arguments) for library in (kerascnn, keras))
    for layer in (here, there):
        layer.build(query, value)
    values = [rng.uniform(-1, 1, w.shape).astype("float32") for w in here.weights]
    here.set_weights(values)
    there.set_weights(values)
    q, v = (rng.uniform(-1, 1, shape).astype("float32") for shape in (query, value))
    mask = rng.integers(0, 2, (2, *between, *between[:-1], 3)).astype(bool)
    mask[..., 0] = True
    with kerascnn.device(device):
        found = here(q, v, attention_mask=mask, return_attention_scores=True)
    expected = there(q, v, attention_mask=mask, return_attention_scores=True)
    for a, b in zip(found, expected, strict=True):
        assert relative_error(plain(a), keras.ops.convert_to_numpy(b)) < 1e-5
