"""Networks have Keras' layers and weights, and predict the same from the same files."""

import h5py
import numpy as np
import pytest

import kerascnn

from .networks import (
    OF_KERAS,
    SMALLEST,
    distance,
    here,
    images,
    prepared,
    randomize,
    small_image,
    there,
    with_weights,
)

keras = pytest.importorskip("keras")
pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")

# Float32 rounds each of hundreds of layers' sums, here and there in another order.
TOLERANCE = 1e-5


# One of each kind of end: a dense layer after pooling, or more of them, or convolutions.
ENDS = ("VGG16", "ResNet50", "MobileNet", "MobileNetV2", "MobileNetV3Small", "ConvNeXtTiny")


def pytest_generate_tests(metafunc):
    """All constructors with `--thorough`, which takes minutes, and else the smallest ones."""
    thorough = metafunc.config.getoption("--thorough")
    if "name" in metafunc.fixturenames:
        metafunc.parametrize("name", OF_KERAS if thorough else SMALLEST)
    if "whole" in metafunc.fixturenames:
        metafunc.parametrize("whole", OF_KERAS if thorough else ENDS)


def check_structure(ours, theirs):
    assert with_weights(ours) == with_weights(theirs)
    assert ours.count_params() == theirs.count_params()
    assert ours.input_shape == theirs.input_shape
    assert ours.output_shape == theirs.output_shape
    assert ours.name == theirs.name


def test_layers_weights_and_shapes(whole, request):
    # VGG's first dense layer has 100 million weights for images of the usual size.
    is_cut = whole.startswith("VGG") and not request.config.getoption("--thorough")
    arguments = {"input_shape": (32, 32, 3)} if is_cut else {}
    check_structure(here(whole, **arguments), there(keras, whole, **arguments))


def test_files_of_weights_both_ways(name, tmp_path, rng):
    """The smallest, and with `--thorough` all, without their classifier and for small images."""
    arguments = {"include_top": False, "pooling": "avg", "input_shape": small_image(name)}
    theirs = there(keras, name, **arguments)
    randomize(theirs, rng)
    theirs.save_weights(tmp_path / "theirs.weights.h5")
    ours = here(name, **arguments, weights=tmp_path / "theirs.weights.h5")
    check_structure(ours, theirs)
    x = prepared(name, images(small_image(name), rng))
    expected = theirs.predict(x, verbose=0)
    assert expected.std() > 1e-3  # images and features differ
    assert distance(ours.predict(x, verbose=0), expected) < TOLERANCE
    randomize(ours, rng)
    ours.save_weights(tmp_path / "ours.weights.h5")
    theirs.load_weights(tmp_path / "ours.weights.h5")
    expected = theirs.predict(x, verbose=0)
    assert distance(ours.predict(x, verbose=0), expected) < TOLERANCE


@pytest.mark.parametrize("network", ["MobileNet", "MobileNetV2", "MobileNetV3Small"])
def test_a_classifier_of_other_classes(network, tmp_path, rng):
    """MobileNets end with convolutions, others with a dense layer."""
    arguments = {"classes": 7, "input_shape": (48, 40, 3), "classifier_activation": None}
    theirs = there(keras, network, **arguments)
    randomize(theirs, rng)
    theirs.save_weights(tmp_path / "theirs.weights.h5")
    ours = here(network, **arguments, weights=str(tmp_path / "theirs.weights.h5"))
    assert ours.output_shape == theirs.output_shape == (None, 7)
    x = prepared(network, images((48, 40, 3), rng))
    expected = theirs.predict(x, verbose=0)
    assert distance(ours.predict(x, verbose=0), expected) < TOLERANCE


@pytest.mark.parametrize(
    ("network", "arguments"),
    [
        ("MobileNet", {"alpha": 0.25, "depth_multiplier": 2, "dropout": 0.5}),
        ("MobileNetV2", {"alpha": 0.35}),
        ("MobileNetV2", {"alpha": 1.3, "include_top": False}),
        ("MobileNetV3Small", {"alpha": 0.75, "minimalistic": True}),
        ("MobileNetV3Small", {"alpha": 1.25, "include_preprocessing": False}),
        ("MobileNetV3Large", {"minimalistic": True, "dropout_rate": 0.0}),
        ("EfficientNetV2B1", {"include_preprocessing": False, "include_top": False}),
        ("ConvNeXtTiny", {"include_preprocessing": False, "include_top": False}),
    ],
)
def test_arguments_of_one_family(network, arguments):
    ours, theirs = here(network, **arguments), there(keras, network, **arguments)
    assert with_weights(ours) == with_weights(theirs)
    assert ours.output_shape == theirs.output_shape


def test_weights_as_keras_publishes_them(tmp_path, rng):
    """These files are in the form of Keras 2: a group for each layer, in order."""
    from keras.src.legacy.saving import legacy_h5_format

    theirs = there(keras, "MobileNetV2", input_shape=(32, 32, 3))
    randomize(theirs, rng)
    with h5py.File(tmp_path / "published.h5", "w") as file:
        legacy_h5_format.save_weights_to_hdf5_group(file, theirs)
    ours = here("MobileNetV2", input_shape=(32, 32, 3), weights=tmp_path / "published.h5")
    x = prepared("MobileNetV2", images((32, 32, 3), rng))
    assert distance(ours.predict(x, verbose=0), theirs.predict(x, verbose=0)) < TOLERANCE


def test_a_whole_model_of_keras(tmp_path, rng):
    """This one has arithmetic between its layers."""
    shape = small_image("MobileNetV3Small")
    theirs = there(keras, "MobileNetV3Small", include_top=False, input_shape=shape)
    theirs.save(tmp_path / "theirs.keras")
    ours = kerascnn.saving.load_model(tmp_path / "theirs.keras")
    x = images(shape, rng)
    assert distance(ours.predict(x, verbose=0), theirs.predict(x, verbose=0)) < TOLERANCE


@pytest.mark.parametrize("direction", ["from_keras", "to_keras"])
def test_whole_models_with_the_layers_of_these_networks(direction, tmp_path, rng):
    """InceptionResNetV2 and ConvNeXt have a layer of their own each."""
    from keras.src.applications import convnext, inception_resnet_v2

    from kerascnn.applications import parts

    sides = {
        "from_keras": (keras, inception_resnet_v2.CustomScaleLayer, convnext.LayerScale),
        "to_keras": (kerascnn, parts.CustomScaleLayer, parts.LayerScale),
    }
    package, scale_layer, layer_scale = sides[direction]
    x = package.Input((4,))
    y = package.layers.Dense(4)(x)
    model = package.Model(x, layer_scale(0.3, 4)(scale_layer(0.2)([x, y])))
    model.save(tmp_path / "model.keras")
    if direction == "from_keras":
        other = kerascnn.saving.load_model(tmp_path / "model.keras")
    else:  # Keras registers neither of the two
        known = {"CustomScaleLayer": sides["from_keras"][1], "LayerScale": sides["from_keras"][2]}
        other = keras.saving.load_model(tmp_path / "model.keras", custom_objects=known)
    x = rng.normal(size=(3, 4)).astype("float32")
    assert distance(other.predict(x, verbose=0), model.predict(x, verbose=0)) < TOLERANCE


@pytest.mark.parametrize("data_format", ["channels_last", "channels_first"])
@pytest.mark.parametrize("mode", ["caffe", "tf", "torch"])
def test_preprocess_input(mode, data_format, rng):
    ours, theirs = (
        package.applications.imagenet_utils.preprocess_input for package in (kerascnn, keras)
    )
    shape = (3, 5, 7) if data_format == "channels_first" else (5, 7, 3)
    options = {"data_format": data_format, "mode": mode}
    for x in (
        rng.uniform(0, 255, shape).astype("float32"),
        rng.uniform(0, 255, (2, *shape)).astype("float32"),
        rng.uniform(0, 255, (2, *shape)),
        rng.integers(0, 256, (2, *shape), "uint8"),
    ):
        kept = x.copy()
        expected = theirs(x.copy(), **options)
        actual = ours(x, **options)
        np.testing.assert_array_equal(x, kept)
        assert actual.dtype == expected.dtype
        # Values up to 255 in float32, of which Keras subtracts and divides in another order.
        np.testing.assert_allclose(actual, expected, rtol=0, atol=2e-5)
        tensor = ours(kerascnn.ops.convert_to_tensor(x), **options)
        assert isinstance(tensor, kerascnn.Tensor)
        np.testing.assert_allclose(tensor.numpy(), expected, rtol=0, atol=2e-5)
        symbolic = kerascnn.Input(x.shape[1:], dtype=str(x.dtype))
        if x.ndim == 4:  # a batch
            model = kerascnn.Model(symbolic, ours(symbolic, **options))
            again = type(model).from_config(model.get_config())
            for one in (model, again):
                np.testing.assert_allclose(one.predict(x, verbose=0), expected, rtol=0, atol=2e-5)


def test_decode_predictions(tmp_path, monkeypatch, rng, class_index):
    """Keras reads the list from the place where this test puts it."""
    from keras.src.applications import imagenet_utils

    monkeypatch.setattr(imagenet_utils, "CLASS_INDEX", class_index)
    predictions = rng.normal(size=(3, 1000)).astype("float32")
    expected = keras.applications.imagenet_utils.decode_predictions(predictions, top=4)
    actual = kerascnn.applications.vgg16.decode_predictions(predictions, top=4)
    assert actual == [[(a, b, float(score)) for a, b, score in row] for row in expected]
