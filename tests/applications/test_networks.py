"""Networks on their own: sizes, ends, arguments that don't fit, files, and those Keras lacks."""

import numpy as np
import pytest

import kerascnn
from kerascnn import applications

from .networks import ALL, FAMILIES, OWN, SMALLEST, distance, here, images, randomize, small_image


def test_every_constructor_is_in_the_package_and_in_its_module():
    assert len(ALL) == 47
    for families in (FAMILIES, OWN):
        for module, names in families.items():
            for name in names.split():
                function = getattr(applications, name)
                assert getattr(getattr(applications, module), name) is function
                assert function.__module__ == f"kerascnn.applications.{module}"
    assert applications.resnet50.ResNet50 is applications.ResNet50


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        # What torchvision, the authors and timm count.
        ("ResNet18", 11_689_512),
        ("ResNet34", 21_797_672),
        ("WideResNet28_10", 36_479_194),
        ("ViTTi16", 5_717_416),
        ("ViTS16", 22_050_664),
    ],
)
def test_numbers_of_parameters_of_those_that_keras_lacks(name, parameters):
    network = here(name)
    assert sum(np.prod(weight.shape) for weight in network.trainable_weights) == parameters


@pytest.mark.parametrize("name", ["ResNet18", "ViTTi16"])
def test_against_the_same_network_in_pytorch(name, rng):
    """The convolutions of ResNet-18 pad as PyTorch's, the transformer's blocks are as PyTorch's."""
    torch = pytest.importorskip("torch")
    from . import in_torch

    shape = (48, 32, 3) if name == "ViTTi16" else (33, 36, 3)
    network = here(name, input_shape=shape, classes=5, classifier_activation=None)
    randomize(network, rng)
    x = rng.normal(size=(2, *shape)).astype("float32")
    with torch.no_grad():
        expected = getattr(in_torch, name.lower())(network, torch.from_numpy(x)).numpy()
    assert distance(network.predict(x, verbose=0), expected) < 1e-5


@pytest.mark.parametrize("name", ["ResNet18", "ViTTi16"])
@pytest.mark.parametrize("pooling", [None, "avg", "max"])
def test_ends_without_a_classifier(name, pooling, rng):
    shape = small_image(name)
    network = here(name, include_top=False, input_shape=shape)
    if pooling is None:
        expected = {"ViTTi16": (None, 7, 192), "ResNet18": (None, 2, 2, 512)}
        assert network.output_shape == expected[name]
        return
    pooled = here(name, include_top=False, input_shape=shape, pooling=pooling)
    pooled.set_weights(network.get_weights())
    x = images(shape, rng) / 255
    features = network.predict(x, verbose=0)
    if name == "ViTTi16":
        features = features[:, 1:]  # without the token of the class
    places = features.reshape(2, -1, features.shape[-1])
    expected = places.mean(1) if pooling == "avg" else places.max(1)
    assert distance(pooled.predict(x, verbose=0), expected) < 1e-5


@pytest.mark.parametrize("name", ["VGG16", "ResNet50V2", "MobileNet", "EfficientNetB0"])
def test_images_of_any_size_without_a_classifier(name, rng):
    network = here(name, include_top=False)
    assert network.input_shape == (None, None, None, 3)
    one, other = (network.predict(images(s, rng), verbose=0) for s in ((64, 64, 3), (96, 64, 3)))
    assert one.shape[1:3] == (2, 2) and other.shape[1:3] == (3, 2)


@pytest.mark.parametrize("name", [*SMALLEST, "ResNet18", "ViTTi16"])
def test_configurations(name):
    """A network is the same after `from_config`."""
    network = here(name, include_top=False, input_shape=small_image(name))
    config = network.get_config()
    again = type(network).from_config(config)
    assert again.get_config() == config
    assert [w.shape for w in again.weights] == [w.shape for w in network.weights]


@pytest.mark.parametrize("name", ["MobileNetV3Small", "ViTTi16"])
def test_files_of_whole_models(name, tmp_path, rng):
    network = here(name, include_top=False, input_shape=small_image(name))
    randomize(network, rng)
    network.save(tmp_path / "network.keras")
    again = kerascnn.saving.load_model(tmp_path / "network.keras")
    x = images(small_image(name), rng)
    np.testing.assert_array_equal(again.predict(x, verbose=0), network.predict(x, verbose=0))


def test_a_network_on_top_of_others(rng):
    image = kerascnn.Input((40, 40, 1))
    gray = kerascnn.layers.Concatenate()([image] * 3)
    network = here("MobileNetV2", input_tensor=gray, include_top=False, pooling="max", alpha=0.35)
    assert network.inputs[0] is image
    assert network.predict(images((40, 40, 1), rng), verbose=0).shape == (2, 1280)


def test_training_moves_the_weights(rng):
    network = here("MobileNetV3Small", input_shape=(32, 32, 3), classes=2, alpha=0.35)
    before = [w.numpy().copy() for w in network.trainable_weights]
    network.compile("sgd", "sparse_categorical_crossentropy")
    network.fit(images((32, 32, 3), rng, 4), np.array([0, 1, 0, 1]), batch_size=4, verbose=0)
    pairs = zip(before, network.trainable_weights, strict=True)
    assert sum(not np.array_equal(a, b.numpy()) for a, b in pairs) > 100


def test_channels_first(rng):
    last = here("MobileNet", input_shape=(36, 40, 3), classes=3, alpha=0.25)
    randomize(last, rng)
    kerascnn.config.set_image_data_format("channels_first")
    first = here("MobileNet", input_shape=(3, 36, 40), classes=3, alpha=0.25)
    assert first.input_shape == (None, 3, 36, 40)
    first.set_weights(last.get_weights())
    x = images((36, 40, 3), rng) / 255
    ours = first.predict(np.moveaxis(x, 3, 1), verbose=0)
    assert distance(ours, last.predict(x, verbose=0)) < 1e-5


@pytest.mark.parametrize("name", ["DenseNet121", "NASNetMobile", "ConvNeXtTiny", "ViTTi16"])
def test_networks_that_need_their_channels_last_say_so(name):
    kerascnn.config.set_image_data_format("channels_first")
    with pytest.raises(
        ValueError, match=r"channels last.*set_image_data_format\('channels_last'\)"
    ):
        here(name)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"weights": "imagenot"}, "weights='imagenot', and there is no such file"),
        ({"weights": "imagenet", "classes": 10}, "1000 classes.*include_top=False.*classes=10"),
        ({"input_shape": (31, 64, 3)}, r"at least 32 x 32 pixels.*\(31, 64, 3\)"),
        ({"input_shape": (64, 64)}, r"such as \(224, 224, 3\).*\(64, 64\)"),
        ({"input_shape": (None, 64, 3)}, r"no unknown sizes.*\(None, 64, 3\)"),
        ({"weights": "imagenet", "input_shape": (64, 64, 3)}, r"is \(224, 224, 3\)"),
        (
            {"weights": "imagenet", "include_top": False, "input_shape": (64, 64, 1)},
            r"images with 3 channels.*\(64, 64, 1\)",
        ),
        ({"include_top": False, "pooling": "mean"}, "'avg', 'max' or None.*'mean'"),
        ({"input_tensor": np.zeros((1, 64, 64, 3))}, "keras.Input.*ndarray"),
    ],
)
@pytest.mark.parametrize("name", ["ResNet50", "MobileNetV2", "EfficientNetB3"])
def test_arguments_that_do_not_fit(name, arguments, message):
    message = message.replace("224", "300") if name == "EfficientNetB3" else message
    with pytest.raises(ValueError, match=message):
        getattr(applications, name)(**{"weights": None} | arguments)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: applications.InceptionV3(None, input_shape=(74, 75, 3)), "75 x 75"),
        (lambda: applications.Xception(weights=None, input_shape=(70, 75, 3)), "71 x 71"),
        (lambda: applications.ResNet18(weights="imagenet"), "publishes no weights.*weights=None"),
        (lambda: applications.ViTB16(weights="imagenet"), "publishes no weights.*weights=None"),
        (lambda: applications.ViTTi16(input_shape=(40, 48, 3)), "multiples of 16.*40, 48, 3"),
        (lambda: applications.MobileNet(alpha=0.3), "alpha in .*0.25.*alpha=0.3"),
        (lambda: applications.MobileNetV2(alpha=0.3), "alpha in .*0.35.*alpha=0.3"),
        (lambda: applications.MobileNetV3Small(alpha=0.5), "alpha=1.0.*alpha=0.5"),
        (
            lambda: applications.VGG16(
                weights=None, input_tensor=kerascnn.Input((64, 64, 3)), input_shape=(48, 64, 3)
            ),
            "not the shape of `input_tensor`.*48.*64",
        ),
        (
            lambda: applications.VGG16(weights=None, input_tensor=kerascnn.Input((64,))),
            "with 4 axes.*64",
        ),
    ],
)
def test_what_one_family_refuses(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_weights_were_trained_with_softmax(tmp_path):
    network = here("MobileNetV2", alpha=0.35, input_shape=(32, 32, 3))
    network.save_weights(tmp_path / "own.weights.h5")
    path = tmp_path / "own.weights.h5"
    for activation in ("softmax", None):
        here(
            "MobileNetV2",
            alpha=0.35,
            input_shape=(32, 32, 3),
            weights=path,
            classifier_activation=activation,
        )
    with pytest.raises(ValueError, match="softmax.*'relu'"):
        here("MobileNetV2", weights=path, classifier_activation="relu")


def test_unusual_channels_are_warned_of():
    with pytest.warns(UserWarning, match="1 or 3 channels.*with 4 channels"):
        network = here("MobileNetV2", alpha=0.35, input_shape=(32, 32, 4), include_top=False)
    assert network.input_shape == (None, 32, 32, 4)
