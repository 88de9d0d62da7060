"""Preprocessing layers infer the same shapes and pass masks on as in Keras."""

import itertools
import warnings

import numpy as np
import pytest

import kerascnn

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # Other packages may warn on import.
    keras = pytest.importorskip("keras")

pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")
both = pytest.mark.parametrize("module", [kerascnn, keras], ids=["here", "keras"])


@pytest.mark.parametrize("mode", ["int", "one_hot", "multi_hot", "count"])
@pytest.mark.parametrize("shape", [(4,), (4, 3), (2, 3, 1), (2, 1, 3), (2, 3, 4), (2, 3, 4, 5)])
def test_discretization(mode, shape, rng):
    x = rng.normal(size=shape)
    here, there = (
        module.layers.Discretization(bin_boundaries=[-0.5, 0.0, 1.0], output_mode=mode)
        for module in (kerascnn, keras)
    )
    result = here(x).numpy()
    np.testing.assert_array_equal(result, keras.ops.convert_to_numpy(there(x)))
    assert here.compute_output_shape(shape) == there.compute_output_shape(shape) == result.shape
    unknown = (None, *shape[1:])
    assert here.compute_output_shape(unknown) == there.compute_output_shape(unknown)
    if len(shape) > 1:
        assert here(kerascnn.Input(shape[1:])).shape == there(keras.Input(shape[1:])).shape


@pytest.mark.parametrize("data_format", ["channels_last", "channels_first"])
@pytest.mark.parametrize("padding", ["valid", "same"])
@pytest.mark.parametrize("mode", ["log", "stft", "imag"])
def test_spectrogram(mode, padding, data_format, rng):
    for expand_dims, samples, channels in itertools.product((False, True), (16, 37), (1, 3)):
        config = {"frame_length": 16, "frame_step": 4, "fft_length": 32}
        here, there = (
            module.layers.STFTSpectrogram(
                mode=mode,
                padding=padding,
                data_format=data_format,
                expand_dims=expand_dims,
                **config,
            )
            for module in (kerascnn, keras)
        )
        last = data_format == "channels_last"
        shape = (2, samples, channels) if last else (2, channels, samples)
        unknown = (None, None, channels) if last else (None, channels, None)
        said = here.compute_output_shape(shape)  # The layer is not built yet.
        assert said == there.compute_output_shape(shape)
        assert here.compute_output_shape(unknown) == there.compute_output_shape(unknown)
        assert here(rng.normal(size=shape).astype("float32")).shape == said


def test_a_signal_that_is_shorter_than_the_window(rng):
    layer = kerascnn.layers.STFTSpectrogram(frame_length=16, frame_step=4)
    message = "10 samples has no piece of frame_length=16"
    with pytest.raises(ValueError, match=message):
        layer.compute_output_shape((2, 10, 1))
    with pytest.raises(ValueError, match=message):
        layer(rng.normal(size=(2, 10, 1)).astype("float32"))
    with pytest.raises(ValueError, match=message):
        layer(kerascnn.Input((10, 1)))
    x = rng.normal(size=(2, 10, 1)).astype("float32")
    here, there = (
        module.layers.STFTSpectrogram("real", frame_length=16, frame_step=4, padding="same")
        for module in (kerascnn, keras)
    )
    # A result sums ten products of numbers near one.
    np.testing.assert_allclose(
        here(x).numpy(), keras.ops.convert_to_numpy(there(x)), rtol=1e-5, atol=1e-5
    )


def twice(module):
    class Twice(module.layers.Layer):
        def __init__(self):
            super().__init__()
            self.supports_masking = True
            self.saw_a_mask = False

        def call(self, x, mask=None):
            self.saw_a_mask = mask is not None
            if mask is None:
                return x * 2
            return x * 2 * module.ops.expand_dims(module.ops.cast(mask, x.dtype), -1)

    return Twice()


@both
@pytest.mark.filterwarnings("ignore:.*does not support masking:UserWarning")
@pytest.mark.parametrize("through", ["call", "__call__"])
def test_a_pipeline_hands_on_its_mask(module, through):
    layers = [twice(module), module.layers.Rescaling(3.0), twice(module)]
    pipeline = module.layers.Pipeline(layers)
    x = module.ops.convert_to_tensor(np.ones((1, 3, 2), "float32"))
    mask = module.ops.convert_to_tensor([[True, False, True]])
    result = getattr(pipeline, through)(x, mask=mask)
    expected = np.float32([12, 0, 12])[None, :, None] * np.ones(2, "float32")
    np.testing.assert_array_equal(module.ops.convert_to_numpy(result), expected)
    # After a layer whose result has no mask, later layers get none.
    kept = layers[1].supports_masking
    assert [layers[0].saw_a_mask, layers[2].saw_a_mask] == [True, kept]


@pytest.mark.parametrize(
    ("make", "numbers"),
    [
        (lambda: kerascnn.layers.CategoryEncoding(4, output_mode="one_hot"), [3, 2, 0, 1]),
        (lambda: kerascnn.layers.CategoryEncoding(4, output_mode="count"), [[0, 1], [2, 2]]),
        (lambda: kerascnn.layers.Discretization([0.0, 1.0]), [[-1.5, 1.0], [3.4, 0.5]]),
        (lambda: kerascnn.layers.Discretization([0.0, 1.0]), 0.5),
        (lambda: kerascnn.layers.Rescaling(2.0), [1, 2]),
        (lambda: kerascnn.layers.Normalization(mean=[1.0, 2.0], variance=[4.0, 1.0]), [[1.0, 6.0]]),
    ],
)
def test_numbers_in_lists_are_an_array(make, numbers):
    given, expected = make()(numbers), make()(np.array(numbers))
    assert given.dtype == expected.dtype
    np.testing.assert_array_equal(given, expected)


def test_numbers_in_lists_are_no_array_for_layers_that_learn():
    with pytest.raises(ValueError, match="must be called on tensors or arrays"):
        kerascnn.layers.Dense(2)([[1.0, 2.0]])
