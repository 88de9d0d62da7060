"""Errors for wrong arguments and inputs name the layer, what it expected and what it received."""

import numpy as np
import pytest

import kerascnn as keras
from kerascnn import layers


def test_wrong_rank_names_layer_expected_and_received():
    layer = layers.Conv2D(4, 3, name="first")
    with pytest.raises(ValueError, match=r"'first'.*min_ndim=4, found ndim=3.*\(2, 28, 28\)"):
        layer(np.zeros((2, 28, 28), "float32"))


def test_other_channels_than_built_on():
    layer = layers.Conv2D(4, 3, name="first")
    layer.build((None, 8, 8, 3))
    with pytest.raises(ValueError, match=r"'first'.*axis -1 to have size 3, found 1"):
        layer(np.zeros((2, 8, 8, 1), "float32"))


def test_kernel_larger_than_the_image():
    layer = layers.Conv2D(4, 5, name="first")
    with pytest.raises(ValueError, match=r"'first'.*\(5, 5\).*only \(4, 4\)"):
        layer(np.zeros((2, 4, 4, 1), "float32"))
    with pytest.raises(ValueError, match="reaches over"):
        layers.Conv2D(4, 3, dilation_rate=3).compute_output_shape((None, 6, 6, 1))
    with pytest.raises(ValueError, match="MaxPooling2D"):
        layers.MaxPooling2D(3)(np.zeros((1, 2, 2, 1), "float32"))


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: layers.Conv2D(0, 3), "filters"),
        (lambda: layers.Conv2D(4, 0), "kernel_size"),
        (lambda: layers.Conv2D(4, (3, 3, 3)), "kernel_size"),
        (lambda: layers.Conv2D(4, 3, strides=0), "strides"),
        (lambda: layers.Conv2D(4, 3, padding="full"), "padding"),
        (lambda: layers.Conv2D(4, 3, groups=3), "multiple of `groups`"),
        (lambda: layers.Conv2D(4, 3, strides=2, dilation_rate=2), "dilation_rate"),
        (lambda: layers.Conv2D(4, 3, data_format="channels_middle"), "channels_middle"),
        (lambda: layers.Dense(-1), "units"),
        (lambda: layers.Dense(2.5), "units"),
        (lambda: layers.Dense(2, activation="rulu"), "Did you mean 'relu'"),
        (lambda: layers.Dense(2, kernel_initializer="glorot"), "glorot_uniform"),
        (lambda: layers.Dense(2, kernel_regularizer="l3"), "l2"),
        (lambda: layers.Dense(2, dtype="float31"), "float31"),
        (lambda: layers.Dense(2, unit=3), "does not have the argument"),
        (lambda: layers.Dense(2, name="a/b"), "without '/'"),
        (lambda: layers.Dropout(1.5), "rate"),
        (lambda: layers.Dropout(0.5, noise_shape=(0, 2)), "noise_shape"),
        (lambda: layers.ReLU(max_value=-1.0), "max_value"),
        (lambda: layers.ReLU(negative_slope=-1.0), "negative_slope"),
        (lambda: layers.Reshape((-1, -1)), "target_shape"),
        (lambda: keras.Input(28), "shape"),
        (lambda: keras.Input(), "shape"),
        (lambda: keras.Input((-3,)), "size"),
    ],
)
def test_bad_arguments(make, text):
    with pytest.raises(ValueError, match=text):
        make()


def test_layers_are_called_on_tensors_only():
    with pytest.raises(ValueError, match=r"'d'.*must be called on tensors"):
        layers.Dense(2, name="d")("text")
    with pytest.raises(ValueError, match="must be called on tensors"):
        layers.Dense(2)(layers.Dense(3))


def test_strings_and_objects_name_what_is_supported():
    for data in (np.array(["a", "b"]), np.array([object()]), np.array([1 + 2j])):
        with pytest.raises(TypeError, match="float32"):
            layers.Flatten()(data)


def test_merging_needs_a_list_that_fits():
    with pytest.raises(ValueError, match="list of tensors"):
        layers.Add()(np.zeros((2, 3), "float32"))
    with pytest.raises(ValueError, match=r"\(2, 3\), \(2, 4\)"):
        layers.Add()([np.zeros((2, 3), "float32"), np.zeros((2, 4), "float32")])
    with pytest.raises(ValueError, match="cannot be joined"):
        layers.Concatenate()([np.zeros((2, 3), "float32"), np.zeros((3, 3), "float32")])


def test_reshape_that_does_not_fit():
    with pytest.raises(ValueError, match=r"5 elements.*\(2, 3\)"):
        layers.Reshape((2, 3))(np.zeros((4, 5), "float32"))


def test_an_error_inside_call_names_the_layer():
    class Broken(layers.Layer):
        def call(self, inputs):
            return keras.ops.matmul(inputs, np.zeros((7, 2), "float32"))

    with pytest.raises(ValueError, match=r"matmul[\s\S]*layer 'odd' \(Broken\)[\s\S]*\(2, 3\)"):
        Broken(name="odd")(np.zeros((2, 3), "float32"))


def test_forgotten_super_init():
    class Forgetful(layers.Layer):
        def __init__(self):
            self.units = 3

    with pytest.raises(RuntimeError, match=r"super\(\).__init__\(\)"):
        Forgetful()(np.zeros((2, 3), "float32"))


def test_layer_without_call():
    with pytest.raises(NotImplementedError, match="call"):
        layers.Layer()(np.zeros((2, 3), "float32"))


def test_set_weights_changes_nothing_on_an_error():
    layer = layers.Dense(2, name="d")
    with pytest.raises(ValueError, match="not be built yet"):
        layer.set_weights([np.zeros((3, 2))])
    layer.build((None, 3))
    before = layer.get_weights()
    with pytest.raises(ValueError, match=r"list of 1 arrays.*2 weights"):
        layer.set_weights([np.zeros((3, 2))])
    with pytest.raises(ValueError, match=r"'d/bias' has shape \(2,\).*shape \(3,\)"):
        layer.set_weights([np.zeros((3, 2)), np.zeros(3)])
    for old, new in zip(before, layer.get_weights(), strict=True):
        np.testing.assert_array_equal(old, new)


def test_a_keras_tensor_has_no_value():
    x = keras.Input((3,))
    with pytest.raises(TypeError, match="has no value"):
        np.asarray(x)
    with pytest.raises(TypeError, match="has no value"):
        bool(x > 0)


def test_a_missing_gpu_is_an_error_with_the_reason():
    missing = "cuda:63"
    with pytest.raises(keras.DeviceError, match=rf"'{missing}'.*Usable here: cpu"):
        keras.device(missing)
    with pytest.raises(ValueError, match="not the name of a device"):
        keras.device("tpu")
    assert issubclass(keras.DeviceError, RuntimeError)


def test_a_name_in_place_of_the_shape_of_a_weight():
    with pytest.raises(ValueError, match=r"add_weight\(shape=..., name='kernel'\)"):
        layers.Layer().add_weight("kernel", (2, 3))


def test_a_call_without_a_return_or_with_other_things():
    class Nothing(keras.Layer):
        def call(self, x):
            x * 2

    class Number(keras.Layer):
        def call(self, x):
            return x, 3

    with pytest.raises(ValueError, match=r"\(Nothing\) must return tensors .* Is there a `return`"):
        Nothing()(keras.Input((4,)))
    with pytest.raises(ValueError, match=r"\(Number\) must return tensors .*Received: 3$"):
        Number()(keras.Input((4,)))


def test_lambda_of_no_function_and_sizes_that_are_no_numbers():
    with pytest.raises(ValueError, match="takes a function of a tensor.* function=3"):
        keras.layers.Lambda(3)
    with pytest.raises(ValueError, match=r"A size is None or an integer.*\(2, 'a'\)"):
        keras.Input((2, "a"))
