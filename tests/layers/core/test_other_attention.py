"""Attention, AdditiveAttention, GroupQueryAttention and ReversibleEmbedding equal Keras'."""

import numpy as np
import pytest

import kerascnn
from kerascnn import layers

from ..comparing import keras, relative_error
from ..parity import check_signature, plain

pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")

# A result has a few dozen products and a softmax in float32.
CLOSE = 2e-5


def make_pair(name, arguments, shapes, rng):
    """Builds the layer and Keras' layer with the same random weights."""
    pair = [getattr(m.layers, name)(**arguments, name="a") for m in (kerascnn, keras)]
    for layer in pair:
        layer.build(*shapes)
    here, there = pair
    assert [w.path for w in here.weights] == [w.path for w in there.weights]
    values = [rng.uniform(-1, 1, w.shape).astype("float32") for w in there.weights]
    for layer in pair:
        layer.set_weights(values)
    return here, there


def check_equal(actual, expected):
    pairs = (
        zip(actual, expected, strict=True) if isinstance(expected, tuple) else [(actual, expected)]
    )
    for a, e in pairs:
        assert relative_error(a.numpy(), keras.ops.convert_to_numpy(e)) < CLOSE


def check_descriptions(here, there):
    assert plain(here.get_config()) == plain(there.get_config())
    assert plain(layers.serialize(here)) == plain(keras.layers.serialize(there))
    again = layers.deserialize(keras.layers.serialize(there))
    assert type(again) is type(here)
    assert plain(again.get_config()) == plain(there.get_config())


ATTENTION = [
    ("Attention", {}),
    ("Attention", {"use_scale": True}),
    ("Attention", {"score_mode": "concat"}),
    ("Attention", {"score_mode": "concat", "use_scale": True, "dropout": 0.3, "seed": 4}),
    ("AdditiveAttention", {}),
    ("AdditiveAttention", {"use_scale": False, "dropout": 0.3}),
]


@pytest.mark.parametrize(("name", "arguments"), ATTENTION)
@pytest.mark.parametrize("count", [2, 3])
def test_attention_without_projections(name, arguments, count, device, rng):
    shapes = [(2, 3, 4), (2, 5, 4), (2, 5, 4)][:count]
    xs = [rng.uniform(-1, 1, shape).astype("float32") for shape in shapes]
    query_mask = np.array([[1, 1, 0], [1, 1, 1]], bool)
    value_mask = np.array([[1, 1, 1, 0, 0], [1, 0, 1, 1, 1]], bool)
    with kerascnn.device(device):
        here, there = make_pair(name, arguments, [shapes], rng)
        check_descriptions(here, there)
        for masks in (None, [query_mask, value_mask], [None, value_mask], [query_mask, None]):
            for further in ({}, {"use_causal_mask": True, "return_attention_scores": True}):
                given = masks and [
                    None if m is None else keras.ops.convert_to_tensor(m) for m in masks
                ]
                expected = there(
                    [keras.ops.convert_to_tensor(x) for x in xs], mask=given, **further
                )
                check_equal(here(xs, mask=masks, **further), expected)
        symbolic = here(
            [kerascnn.Input(shape[1:]) for shape in shapes], return_attention_scores=True
        )
    assert [x.shape for x in symbolic] == [(None, 3, 4), (None, 3, 5)]
    assert here.compute_output_shape(shapes) == tuple(there.compute_output_shape(shapes))
    check_signature(name)


@pytest.mark.parametrize(
    ("name", "arguments"), [("Attention", {"score_mode": "concat"}), ("AdditiveAttention", {})]
)
def test_dropped_scores(name, arguments, device):
    query, value = np.ones((40, 10, 2), "float32"), np.ones((40, 10, 2), "float32")
    with kerascnn.device(device):
        layer = getattr(layers, name)(**arguments, dropout=0.25, seed=3)
        outputs, shares = layer([query, value], training=True, return_attention_scores=True)
        again = getattr(layers, name)(**arguments, dropout=0.25, seed=3)(
            [query, value], training=True
        )
        kept = layer([query, value], training=False).numpy()
    shares = shares.numpy()
    # The share of 4000 draws has a standard deviation of 0.7%; 3% are more than four of them.
    assert np.mean(shares == 0) == pytest.approx(0.25, abs=0.03)
    np.testing.assert_allclose(shares[shares > 0], 0.1 / 0.75, rtol=1e-5)
    np.testing.assert_array_equal(outputs.numpy(), again.numpy())
    np.testing.assert_allclose(kept, 1, rtol=1e-6)


GROUPED = [
    {"head_dim": 3, "num_query_heads": 4, "num_key_value_heads": 2},
    {"head_dim": 2, "num_query_heads": 3, "num_key_value_heads": 1, "use_bias": False},
    {"head_dim": 3, "num_query_heads": 2, "num_key_value_heads": 2, "sliding_window": 2},
    {"head_dim": 3, "num_query_heads": 4, "num_key_value_heads": 2, "use_gate": True, "seed": 2},
]


@pytest.mark.parametrize("arguments", GROUPED)
@pytest.mark.parametrize("with_key", [False, True])
def test_grouped_queries(arguments, with_key, device, rng):
    shapes = [(2, 4, 6), (2, 5, 6), (2, 5, 3)][: 3 if with_key else 2]
    xs = [rng.uniform(-1, 1, shape).astype("float32") for shape in shapes]
    counts = np.array([[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]], bool)
    pairs = rng.random((2, 4, 5)) > 0.3
    near = np.abs(np.arange(4)[:, None] - np.arange(5)) < 1
    pairs |= near  # No query is without a key.
    with kerascnn.device(device):
        here, there = make_pair("GroupQueryAttention", arguments, shapes, rng)
        check_descriptions(here, there)
        for further in (
            {},
            {"use_causal_mask": True},
            {"return_attention_scores": True},
            {"attention_mask": pairs, "return_attention_scores": True, "use_causal_mask": True},
            {"value_mask": counts} if "sliding_window" not in arguments else {},
        ):
            given = {
                k: keras.ops.convert_to_tensor(v) if k.endswith("mask") and v is not True else v
                for k, v in further.items()
            }
            check_equal(here(*xs, **further), there(*xs, **given))
        symbolic = here(*(kerascnn.Input(shape[1:]) for shape in shapes))
    assert symbolic.shape == (None, 4, 6)
    check_signature("GroupQueryAttention")


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("further", [{}, {"logit_soft_cap": 0.5, "reverse_dtype": "float64"}])
def test_embeddings_both_ways(tied, further, device, rng):
    arguments = {"input_dim": 9, "output_dim": 4, "tie_weights": tied, **further}
    numbers = rng.integers(0, 9, (2, 3)).astype("int32")
    vectors = rng.standard_normal((2, 3, 4)).astype("float32")
    with kerascnn.device(device):
        here, there = make_pair("ReversibleEmbedding", arguments, [(2, 3)], rng)
        check_descriptions(here, there)
        check_equal(here(numbers), there(numbers))
        expected = there(vectors, reverse=True)
        actual = here(vectors, reverse=True)
        check_equal(actual, expected)
        assert actual.dtype == further.get("reverse_dtype", "float32")
        symbolic = here(kerascnn.Input((3, 4)), reverse=True)
    assert symbolic.shape == (None, 3, 9)
    assert here.compute_output_shape((2, 3, 4), reverse=True) == (2, 3, 9)
    assert here.compute_output_shape((2, 3)) == (2, 3, 4)
    check_signature("ReversibleEmbedding")


def network(m):
    x = m.Input((6, 4))
    y = m.layers.GroupQueryAttention(2, 4, 2, name="grouped")(x, x)
    y = m.layers.Attention(use_scale=True)([y, x])
    y = m.layers.AdditiveAttention()([y, x])
    model = m.Model(x, m.layers.Dense(2)(y))
    model.compile(m.optimizers.SGD(0.1), "mse")
    return model


@pytest.mark.parametrize(("writer", "reader"), [(kerascnn, keras), (keras, kerascnn)])
def test_models_go_on_after_the_way_through_a_file(writer, reader, tmp_path, rng):
    pytest.importorskip("h5py")
    x = rng.standard_normal((4, 6, 4)).astype("float32")
    y = rng.standard_normal((4, 6, 2)).astype("float32")
    model = network(writer)
    model.save(tmp_path / "model.keras")
    model.save_weights(tmp_path / "model.weights.h5")
    other = reader.saving.load_model(tmp_path / "model.keras")
    third = network(reader)
    third.load_weights(tmp_path / "model.weights.h5")
    options = {"epochs": 3, "shuffle": False, "verbose": 0}
    losses = [m.fit(x, y, **options).history["loss"] for m in (model, other, third)]
    # The tolerance covers three float32 steps of training.
    np.testing.assert_allclose(losses[1], losses[0], rtol=1e-4)
    np.testing.assert_allclose(losses[2], losses[0], rtol=1e-4)


@pytest.mark.parametrize("arguments", [{"tie_weights": False}, {"lora_rank": 2}])
def test_reversible_embeddings_in_files(arguments, tmp_path, rng):
    pytest.importorskip("h5py")
    numbers = rng.integers(0, 9, (2, 3)).astype("int32")

    def make(m):
        x = m.Input((3,), dtype="int32")
        layer = m.layers.ReversibleEmbedding(9, 4, **arguments)
        return m.Model(x, layer(layer(x), reverse=True))

    for writer, reader in ((kerascnn, keras), (keras, kerascnn)):
        model = make(writer)
        model.save(tmp_path / "model.keras")
        other = reader.saving.load_model(tmp_path / "model.keras")
        expected = np.asarray(model.predict(numbers, verbose=0))
        assert relative_error(other.predict(numbers, verbose=0), expected) < CLOSE


@pytest.mark.parametrize("name", ["Attention", "AdditiveAttention"])
def test_inputs_that_are_no_list_of_two_or_three(name, rng):
    x = rng.random((2, 3, 4)).astype("float32")
    for module in (kerascnn, keras):
        layer = getattr(module.layers, name)
        for inputs in (x, [x], [x] * 4, (x, x)):
            with pytest.raises(ValueError, match="list"):
                layer()(inputs)
        for mask in (x[..., 0] > 0, [None]):
            with pytest.raises(ValueError, match="mask"):
                layer()([x, x], mask=mask)
    with pytest.raises(ValueError, match="score_mode"):
        layers.Attention(score_mode="product")


def test_sizes_that_do_not_fit():
    for module in (kerascnn.layers, keras.layers):
        with pytest.raises(ValueError, match="num_query_heads"):
            module.GroupQueryAttention(2, 3, 2)
        with pytest.raises(ValueError, match="sliding_window"):
            module.GroupQueryAttention(2, 2, 2, sliding_window=0)
        for shapes in (((2, 3, 4), (2, 5, 6)), ((2, 3, 4), (2, 5, 4), (2, 6, 4))):
            with pytest.raises(ValueError, match="query_shape|value_shape"):
                module.GroupQueryAttention(2, 2, 2).compute_output_shape(*shapes)
        with pytest.raises(ValueError):
            module.ReversibleEmbedding(0, 3)
    with pytest.raises(ValueError, match="head_dim"):
        layers.GroupQueryAttention(0, 2, 2)
    with pytest.raises(ValueError, match="flash_attention"):
        layers.GroupQueryAttention(2, 2, 2, flash_attention=True)
