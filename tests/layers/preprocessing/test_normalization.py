"""Normalization learns and applies what Keras' layer does; Pipeline and Rescaling hand data on."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import kerascnn
from kerascnn import layers

from .helpers import compiled, few, keras, relative_error, to_numpy

pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")


@few
@given(
    shape=st.sampled_from([(12,), (12, 3), (12, 4, 3), (12, 4, 5, 3)]),
    data=st.data(),
    invert=st.booleans(),
    dtype=st.sampled_from(["float32", "uint8", "int32", "float64"]),
    form=st.sampled_from(["array", "tensor", "list", "generator", "pairs"]),
    seed=st.integers(0, 100),
)
def test_adapt(shape, data, invert, dtype, form, seed, device):
    axes = data.draw(
        st.one_of(st.none(), st.sampled_from([-1, 0]), st.just(tuple(range(1, len(shape)))))
    )
    if axes in (0, ()) or len(shape) == 1:
        axes = None
    values = np.random.default_rng(seed).uniform(0, 200, shape).astype(dtype)
    there = keras.layers.Normalization(axes, invert=invert)
    there.adapt(values)
    with kerascnn.device(device):
        here = layers.Normalization(axes, invert=invert)
        batches = [values[:5], values[5:10], values[10:]]
        given_as = {
            "array": values,
            "tensor": kerascnn.ops.convert_to_tensor(values),
            "list": batches,
            "generator": (b for b in batches),
            "pairs": [(b, np.zeros(len(b))) for b in batches],
        }[form]
        here.adapt(given_as)
        for own, other in zip(here.weights[:2], there.weights[:2], strict=True):
            # NumPy sums in the dtype of the data, such as float32.
            np.testing.assert_allclose(own.numpy(), to_numpy(other), rtol=1e-4)
            assert own.name == other.name
        actual = here(values).numpy()
        np.testing.assert_allclose(here.mean.numpy(), to_numpy(there.mean), rtol=1e-4)
    expected = to_numpy(there(values))
    assert actual.dtype == expected.dtype
    assert relative_error(actual, expected) < 1e-4
    in_a_program = compiled(here, [values], device)
    np.testing.assert_allclose(in_a_program, actual, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("invert", [False, True])
@pytest.mark.parametrize(
    ("axis", "mean", "variance"),
    [
        (None, 2.0, 9.0),
        (-1, 2.0, 9.0),
        (-1, [1.0, 2.0, 3.0], [1.0, 4.0, 0.0]),
        ((1, 3), [[1.0, 2.0, 3.0]] * 4, [[1.0, 4.0, 9.0]] * 4),
        ((1, 3), [1.0, 2.0, 3.0], [1.0, 4.0, 9.0]),
        (1, np.arange(4.0), np.arange(4.0) + 1),
    ],
)
def test_given_statistics(axis, mean, variance, invert, device, rng):
    values = rng.uniform(0, 9, (2, 4, 5, 3)).astype("float32")
    arguments = {"axis": axis, "mean": mean, "variance": variance, "invert": invert}
    there = keras.layers.Normalization(**arguments, name="n")
    here = layers.Normalization(**arguments, name="n")
    actual = compiled(here, [values], device)
    assert relative_error(actual, to_numpy(there(values))) < 1e-6
    assert here.weights == []
    assert json.dumps(here.get_config()) and plain(here.get_config()) == plain(there.get_config())
    again = layers.Normalization.from_config(here.get_config())
    np.testing.assert_array_equal(again(values).numpy(), here(values).numpy())
    np.testing.assert_allclose(here.variance.numpy(), to_numpy(there.variance))


def plain(config):
    return json.loads(json.dumps(config))


def test_a_program_sees_what_is_learned_later(device, rng):
    """Keras computes with constants from `adapt`; here each step reads the weights."""
    values = rng.uniform(0, 9, (8, 3)).astype("float32")
    with kerascnn.device(device):
        layer = layers.Normalization()
        layer.adapt(values + 5)
        model = kerascnn.Sequential([kerascnn.Input((3,)), layer])
        model.predict(values, verbose=0)
        layer.adapt(values)
        normal = model.predict(values, verbose=0)
        copy = layers.Normalization()
        copy.build((None, 3))
        copy.set_weights(layer.get_weights())
        np.testing.assert_allclose(copy(values).numpy(), normal, rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(normal.mean(0), 0, atol=1e-5)
    np.testing.assert_allclose(normal.std(0), 1, atol=1e-5)


def test_large_arrays_are_looked_at_in_pieces(monkeypatch, rng):
    values = rng.integers(0, 256, (50, 6, 6, 3), dtype=np.uint8)
    monkeypatch.setattr("kerascnn.layers.preprocessing.normalization._PIECE", 6 * 6 * 3 * 7)
    layer = layers.Normalization()
    layer.adapt(values)
    np.testing.assert_allclose(layer.weights[0].numpy(), values.mean((0, 1, 2)), rtol=1e-6)
    np.testing.assert_allclose(layer.weights[1].numpy(), values.var((0, 1, 2)), rtol=1e-6)


class Indexed:
    """Gives batches by index, as a PyDataset does."""

    def __len__(self):
        return 3

    def __getitem__(self, index):
        return np.full((2, 2), float(index)), np.zeros(2)


def test_adapt_to_batches_by_index():
    layer = layers.Normalization(axis=None)
    layer.adapt(Indexed())
    assert float(layer.weights[0].numpy()) == 1.0
    np.testing.assert_allclose(layer.weights[1].numpy(), 2 / 3, rtol=1e-6)


def test_errors():
    for package in (keras.layers, layers):
        make = package.Normalization
        with pytest.raises(ValueError, match="both `mean` and `variance`"):
            make(mean=1.0)
        with pytest.raises(ValueError, match="same shape"):
            make(mean=[1.0], variance=[1.0, 2.0])
        with pytest.raises(ValueError, match="rank of `mean`"):
            make(axis=None, mean=[1.0], variance=[1.0])
        with pytest.raises(ValueError, match="range \\[-ndim, ndim\\)"):
            make(axis=3).build((None, 2))
        with pytest.raises(ValueError, match="must have a known shape"):
            make(axis=0).build((None, 2))
        layer = make()
        layer.adapt(np.zeros((2, 3)))
        with pytest.raises(ValueError, match="incompatible shape"):
            layer.adapt(np.zeros((2, 4)))
    # Without TensorFlow, Keras' `adapt` only takes arrays.
    with pytest.raises(ValueError, match="empty iterable"):
        layers.Normalization().adapt([])
    with pytest.raises(TypeError, match="Unsupported data type"):
        layers.Normalization().adapt(3)
    with pytest.raises(ValueError, match="nothing to adapt"):
        layers.Normalization(mean=1.0, variance=1.0).adapt(np.zeros((2, 3)))


def test_pipeline(device, rng):
    values = rng.uniform(0, 255, (2, 6, 6, 3)).astype("float32")
    with kerascnn.device(device):
        here = layers.Pipeline(
            [layers.Rescaling(0.5), layers.CenterCrop(4, 4), layers.RandomFlip(seed=1)], name="p"
        )
        there = keras.layers.Pipeline(
            [keras.layers.Rescaling(0.5), keras.layers.CenterCrop(4, 4)], name="p"
        )
        actual = here(values, training=False).numpy()
        assert relative_error(actual, to_numpy(there(values, training=False))) < 1e-6
        assert [type(x).__name__ for x in here.layers] == ["Rescaling", "CenterCrop", "RandomFlip"]
        config = json.loads(json.dumps(layers.serialize(here)))
        again = layers.deserialize(config)
        np.testing.assert_array_equal(again(values, training=False).numpy(), actual)
        assert again.name == "p"
        assert set(here.get_config()) == set(there.get_config())
        symbolic = here(kerascnn.Input((6, 6, 3)))
        assert symbolic.shape == (None, 4, 4, 3)
        assert here.compute_output_shape((None, 6, 6, 3)) == (None, 4, 4, 3)
    with pytest.raises(ValueError, match="must contain a `layers` key"):
        layers.Pipeline.from_config({"name": "p"})


def test_rescaling_by_channel(device, rng):
    values = rng.integers(0, 256, (2, 3, 4, 3), dtype=np.uint8)
    arguments = {"scale": [0.5, 1.0, 2.0], "offset": np.array([1.0, 2.0, 3.0])}
    here, there = layers.Rescaling(**arguments), keras.layers.Rescaling(**arguments)
    actual = compiled(here, [values], device)
    assert relative_error(actual, to_numpy(there(values))) < 1e-6
    before = keras.config.image_data_format(), kerascnn.config.image_data_format()
    try:
        keras.config.set_image_data_format("channels_first")
        kerascnn.config.set_image_data_format("channels_first")
        first = np.moveaxis(values, -1, 1)
        actual = compiled(here, [first], device)
        arguments["offset"] = 1.0
        here, there = layers.Rescaling(**arguments), keras.layers.Rescaling(**arguments)
        actual = compiled(here, [first], device)
        assert relative_error(actual, to_numpy(there(first))) < 1e-6
    finally:
        keras.config.set_image_data_format(before[0])
        kerascnn.config.set_image_data_format(before[1])
