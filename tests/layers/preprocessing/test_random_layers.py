"""Random layers: their draws, and that Keras gives the same images for the same draws."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import kerascnn
from kerascnn import layers, ops

from .cases import CASES, CONSTANT, IDS, LAST_ONLY, VALUES_ONLY
from .helpers import (
    compiled,
    equal_nearly_everywhere,
    few,
    keras,
    relative_error,
    to_keras,
    to_numpy,
)

pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")


def pair(name, arguments, first):
    data_format = "channels_first" if first else "channels_last"
    here = getattr(layers, name)(**arguments, seed=2, data_format=data_format)
    there = getattr(keras.layers, name)(**arguments, seed=2, data_format=data_format)
    return here, there


def images_of(rng, first, dtype="float32", batch=5):
    shape = (batch, 3, 11, 13) if first else (batch, 11, 13, 3)
    return rng.uniform(0, 255, shape).astype(dtype)


@pytest.mark.parametrize("first", [False, True], ids=["last", "first"])
@pytest.mark.parametrize(("name", "arguments"), CASES, ids=IDS)
def test_the_same_transformation_gives_the_same_images(name, arguments, first, device, rng):
    """One program draws and applies the changes here; Keras applies the same changes again."""
    if first and arguments.get("fill_value") == LAST_ONLY["fill_value"]:
        arguments = {**arguments, "fill_value": 4}
    here, there = pair(name, arguments, first)
    images = images_of(rng, first)

    def call(x):
        transformation = here.get_random_transformation(x, training=True)
        return here.transform_images(x, transformation, training=True), transformation

    actual, transformation = compiled(call, [images], device)
    # Keras' brightness changes its input in place.
    fresh = keras.ops.convert_to_tensor(images.copy())
    expected = to_numpy(there.transform_images(fresh, to_keras(transformation), training=True))
    if arguments.get("interpolation") == "nearest":
        equal_nearly_everywhere(actual, expected)
    else:
        # Pixel positions have an error of 1e-6 pixels.
        assert relative_error(actual, expected) < 2e-5
    assert here.compute_output_shape(images.shape) == actual.shape
    if name != "RandomCrop":
        assert (actual != images).any()


@pytest.mark.parametrize(("name", "arguments"), CASES, ids=IDS)
def test_outside_of_training_nothing_happens(name, arguments, device, rng):
    here, there = pair(name, arguments, False)
    for dtype in ("float32", "uint8"):
        images = images_of(rng, False, dtype)
        for x in (images, images[0]):
            actual = compiled(lambda x: here(x, training=False), [x], device)
            assert actual.dtype == (dtype if name == "RandomGrayscale" else "float32")
            np.testing.assert_array_equal(actual, x)
            np.testing.assert_array_equal(actual, to_numpy(there(x.copy(), training=False)))


@pytest.mark.parametrize(("name", "arguments"), CASES, ids=IDS)
def test_integers_are_computed_in_floating_point(name, arguments, device, rng):
    """The same draws give the same numbers for both dtypes."""
    images = images_of(rng, False, "uint8")
    arguments = {**arguments, "seed": 3}
    with kerascnn.device(device):
        whole = getattr(layers, name)(**arguments)(images, training=True).numpy()
        again = getattr(layers, name)(**arguments)(images.astype("float32"), training=True).numpy()
    if name == "RandomGrayscale":  # This layer keeps the integer dtype and truncates.
        assert whole.dtype == np.uint8
        np.testing.assert_array_equal(whole, again.astype("uint8"))
    else:
        assert whole.dtype == np.float32
        np.testing.assert_array_equal(whole, again)


@pytest.mark.parametrize(("name", "arguments"), CASES, ids=IDS)
def test_one_image_without_a_batch(name, arguments, device, rng):
    images = images_of(rng, False, batch=1)
    arguments = {**arguments, "seed": 3}
    with kerascnn.device(device):
        batch = getattr(layers, name)(**arguments)(images, training=True).numpy()
        one = getattr(layers, name)(**arguments)(images[0], training=True).numpy()
    np.testing.assert_allclose(one, batch[0], rtol=1e-5, atol=1e-3)


@pytest.mark.parametrize(("name", "arguments"), CASES, ids=IDS)
def test_configuration_is_that_of_keras(name, arguments):
    arguments = {**arguments, "seed": 5, "name": "a_layer"}
    here = getattr(layers, name)(**arguments)
    there = getattr(keras.layers, name)(**arguments)
    assert plain(here.get_config()) == plain(there.get_config())
    assert plain(type(here).from_config(here.get_config()).get_config()) == plain(here.get_config())
    serialized = json.loads(json.dumps(plain(layers.serialize(here))))
    assert serialized["class_name"] == name
    assert plain(layers.deserialize(serialized).get_config()) == plain(here.get_config())
    shape = (None, 11, 13, 3)
    assert here.compute_output_shape(shape) == tuple(there.compute_output_shape(shape))


def plain(config):
    return json.loads(json.dumps(config))


@few
@given(
    fill_mode=st.sampled_from(ops.image.FILL_MODES),
    interpolation=st.sampled_from(["nearest", "bilinear"]),
    dtype=st.sampled_from(["float32", "uint8", "float64", "float16"]),
    shared=st.booleans(),
    first=st.booleans(),
    sizes=st.tuples(st.integers(2, 12), st.integers(2, 12)),
    seed=st.integers(0, 1000),
)
def test_affine_transform(fill_mode, interpolation, dtype, shared, first, sizes, seed, device):
    rng = np.random.default_rng(seed)
    shape = (2, 3, *sizes) if first else (2, *sizes, 3)
    images = rng.uniform(0, 255, shape).astype(dtype)
    matrices = rng.normal(0, 1, (1 if shared else 2, 8)).astype("float32")
    matrices[:, [2, 5]] *= 10
    matrices[:, 6:] = 0
    options = {
        "interpolation": interpolation,
        "fill_mode": fill_mode,
        "fill_value": 7.5,
        "data_format": "channels_first" if first else "channels_last",
    }
    call = lambda x, t: ops.image.affine_transform(x, t, **options)  # noqa: E731
    actual = compiled(call, [images, matrices], device)
    repeated = np.repeat(matrices, 2, 0) if shared else matrices
    other = keras.ops.convert_to_tensor(repeated.copy())
    expected = to_numpy(keras.ops.image.affine_transform(images, other, **options))
    assert actual.dtype == expected.dtype
    difference = np.abs(actual.astype("float64") - expected.astype("float64"))
    if interpolation == "nearest":
        equal_nearly_everywhere(actual.astype("float64"), expected.astype("float64"))
    elif dtype == "uint8":
        # A value halfway between two integers may be rounded to either one.
        assert difference.max() <= 1
    else:
        # Positions of up to 100 pixels are float32, times a contrast of 255.
        assert difference.max() < (0.25 if dtype == "float16" else 2e-2)


def test_rotation_matrices_are_those_of_keras(device):
    angles = np.linspace(-360, 360, 97).astype("float32")
    from kerascnn.layers.preprocessing.random_affine import _rotation

    actual = compiled(lambda a: ops.concatenate(_rotation(a, 20, 31), 1), [angles], device)
    zero, one = keras.ops.zeros(97), keras.ops.ones(97)
    expected = keras.layers.RandomRotation(0.5)._compute_affine_matrix(
        0.5, 0.5, keras.ops.convert_to_tensor(angles), zero, zero, one, zero, zero, 20, 31
    )
    # Coefficients are as large as 30.
    np.testing.assert_allclose(actual, to_numpy(expected)[:, :6], atol=1e-5)
    quarter = actual[[48 + 12, 48 - 12, 48 + 24]]  # These rotations are by 90, -90 and 180 degrees.
    np.testing.assert_array_equal(quarter[:, 0], [0, 0, -1])
    np.testing.assert_array_equal(quarter[:, 3], [1, -1, 0])


def test_share_of_flips(device):
    images = np.zeros((4000, 1, 2, 1), "float32")
    images[:, :, 1] = 1
    with kerascnn.device(device):
        y = layers.RandomFlip("horizontal")(images, training=True).numpy()
    # The bound is six standard deviations of a binomial share.
    assert abs(y[:, 0, 0, 0].mean() - 0.5) < 6 * 0.5 / np.sqrt(4000)


RANGES = [
    ("RandomTranslation", (0.5, (-0.25, 0.75)), "translations", [(-3.25, 9.75), (-5.5, 5.5)]),
    ("RandomZoom", ((-0.5, 0.25), 0.1), "height_zoom", [(0.5, 1.25)]),
    ("RandomZoom", ((-0.5, 0.25), 0.1), "width_zoom", [(0.9, 1.1)]),
    ("RandomRotation", (0.25,), "angle", [(-90, 90)]),
    ("RandomContrast", ((0.3, 0.8),), "contrast_factor", [(0.7, 1.8)]),
    ("RandomContrast", (0.5,), "contrast_factor", [(1.0, 1.5)]),
    ("RandomBrightness", (0.2,), "rgb_delta", [(-51, 51)]),
    ("RandomShear", (0.5, 0.25), "shear_factor", [(-0.5, 0.5), (-0.25, 0.25)]),
    ("RandomColorDegeneration", (0.5,), "factor", [(-0.5, 0.5)]),
    ("RandomSharpness", (0.5,), "factor", [(0, 0.5)]),
    ("RandomHue", (0.5,), "factor", [(-0.25, 0.25)]),
    ("Solarization", (0.5, (0.2, 0.8)), "additions", [(0, 127.5)]),
    ("Solarization", (0.5, (0.2, 0.8)), "thresholds", [(0.2, 204)]),
    ("RandomPerspective", (1.0, 0.5), "end_points", [(0, 0)] * 2 + [(9, 15), (0, 0)]),
]


@pytest.mark.parametrize(("name", "arguments", "key", "bounds"), RANGES)
def test_drawn_numbers_fill_their_range(name, arguments, key, bounds, device):
    images = np.zeros((3000, 11, 13, 1), "uint8")
    with kerascnn.device(device):
        layer = getattr(layers, name)(*arguments)
        drawn = layer.get_random_transformation(ops.convert_to_tensor(images))[key].numpy()
    drawn = drawn.reshape(3000, -1)
    for column, (low, high) in zip(drawn.T, bounds, strict=False):
        span = high - low
        if span == 0:
            assert (column == low).all()
            continue
        assert low - 1e-4 * span <= column.min() < low + 0.01 * span
        assert high - 0.01 * span < column.max() <= high + 1e-4 * span
        # The bound is six standard deviations of the mean of uniform draws.
        assert abs(column.mean() - (low + high) / 2) < 6 * span / np.sqrt(12 * 3000)


def test_zoom_without_a_width_keeps_the_proportions():
    drawn = layers.RandomZoom(0.5).get_random_transformation(np.zeros((8, 4, 4, 1), "float32"))
    np.testing.assert_array_equal(drawn["height_zoom"].numpy(), drawn["width_zoom"].numpy())
    assert len(np.unique(drawn["height_zoom"].numpy())) == 8


def test_crops_reach_every_place(device):
    image = np.arange(36.0).reshape(1, 6, 6, 1).astype("float32")
    with kerascnn.device(device):
        layer = layers.RandomCrop(4, 3)
        corners = {float(layer(image, training=True).numpy()[0, 0, 0, 0]) for _ in range(300)}
    # There are 3 by 4 places, each of which is missed with probability (11/12)^300, 5e-12.
    assert corners == {6.0 * y + x for y in range(3) for x in range(4)}


def test_erased_share_of_images_and_size_of_rectangles(device):
    images = np.zeros((3000, 16, 16, 1), "float32")
    with kerascnn.device(device):
        layer = layers.RandomErasing(0.5, scale=(0.25, 0.25), fill_value=1)
        y = layer(images, training=True).numpy()
    erased = y.sum((1, 2, 3))
    # A rectangle has half of each side: 8 rows and columns, or 7 or 9 by rounding.
    assert set(np.unique(erased)) <= {0.0, 56.0, 63.0, 64.0, 72.0, 81.0}
    # The probability is drawn from 0 to 0.5 for each image, so it is 0.25 on average.
    assert abs((erased > 0).mean() - 0.25) < 6 * np.sqrt(0.25 * 0.75 / 3000)


@pytest.mark.parametrize(("name", "arguments"), CASES, ids=IDS)
def test_seeds(name, arguments, device, rng):
    images = images_of(rng, False)
    with kerascnn.device(device):
        make = lambda **seed: getattr(layers, name)(**arguments, **seed)  # noqa: E731
        a, b = make(seed=7), make(seed=7)
        first = a(images, training=True).numpy()
        np.testing.assert_array_equal(first, b(images, training=True).numpy())
        later = [a(images, training=True).numpy() for _ in range(8)]
        is_drawn = name != "RandomCrop" or (arguments["width"], arguments["height"]) == (7, 5)
        if is_drawn and (name, arguments) not in CONSTANT:
            assert any((x != first).any() for x in later)
        assert len(a.variables) == 1
        assert a.weights == []
        runs = []
        for _ in range(2):
            kerascnn.utils.set_random_seed(3)
            runs.append(make()(images, training=True).numpy())
        np.testing.assert_array_equal(*runs)


def test_each_step_of_a_program_draws_anew(device, rng):
    images = images_of(rng, False)
    layer = layers.RandomBrightness(0.5, seed=1)
    drawn = [
        compiled(lambda x: layer.get_random_transformation(x)["rgb_delta"], [images], device, steps)
        for steps in (1, 1, 2)
    ]
    assert all((a != b).all() for a, b in [(drawn[0], drawn[1]), (drawn[1], drawn[2])])
    assert len(np.unique(drawn[0])) == len(images)


def test_a_model_prepares_images_in_its_steps(device, rng):
    """fit augments and predict does not; uint8 images stay uint8 until they are on the device."""
    images = rng.integers(0, 256, (16, 12, 12, 3), dtype=np.uint8)
    labels = rng.integers(0, 2, 16)
    with kerascnn.device(device):
        augmentation = layers.Pipeline(
            [
                layers.RandomFlip("horizontal"),
                layers.RandomRotation(0.1),
                layers.RandomTranslation(0.1, 0.1),
                layers.RandomZoom(0.1),
                layers.RandomContrast(0.2),
                layers.RandomBrightness(0.2),
                layers.RandomErasing(0.5),
            ]
        )
        model = kerascnn.Sequential(
            [
                kerascnn.Input((12, 12, 3), dtype="uint8"),
                layers.Resizing(10, 10),
                augmentation,
                layers.Rescaling(1 / 255),
                layers.Flatten(),
                layers.Dense(2),
            ]
        )
        loss = kerascnn.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile("adam", loss)
        history = model.fit(images, labels, batch_size=8, epochs=2, verbose=0)
        assert np.isfinite(history.history["loss"]).all()
        first, again = (model.predict(images, verbose=0) for _ in range(2))
        np.testing.assert_array_equal(first, again)
        kept = [model.layers[0], *model.layers[2:]]
        plain_part = kerascnn.Sequential([kerascnn.Input((12, 12, 3), dtype="uint8"), *kept])
        expected = plain_part.predict(images, verbose=0)
        np.testing.assert_allclose(first, expected, rtol=1e-5, atol=1e-5)


def test_masks_follow_their_images(device, rng):
    """A mask that equals its image still does afterwards."""
    masks = rng.integers(0, 9, (4, 11, 13, 3)).astype("int32")
    data = {"images": masks.astype("float32"), "segmentation_masks": masks, "labels": np.arange(4)}
    with kerascnn.device(device):
        for name, arguments in CASES:
            arguments = {k: v for k, v in arguments.items() if k != "fill_value"}
            layer = getattr(layers, name)(**arguments)
            if hasattr(layer, "interpolation"):
                layer.interpolation = "nearest"
            result = layer(data, training=True)
            np.testing.assert_array_equal(result["labels"].numpy(), np.arange(4))
            shape = result["images"].shape
            assert result["segmentation_masks"].shape == shape
            if name in VALUES_ONLY:
                np.testing.assert_array_equal(result["segmentation_masks"].numpy(), masks)
            elif shape == masks.shape:
                np.testing.assert_array_equal(
                    result["segmentation_masks"].numpy(), result["images"].numpy()
                )


@pytest.mark.parametrize(
    ("name", "arguments", "error"),
    [
        ("RandomTranslation", {"height_factor": 1.5, "width_factor": 0}, ValueError),
        ("RandomTranslation", {"height_factor": 0, "width_factor": (0, 1, 2)}, ValueError),
        ("RandomTranslation", {"height_factor": "a", "width_factor": 0}, ValueError),
        ("RandomTranslation", {"height_factor": 0, "width_factor": None}, ValueError),
        (
            "RandomTranslation",
            {"height_factor": 0, "width_factor": 0, "fill_mode": "mirror"},
            NotImplementedError,
        ),
        ("RandomZoom", {"height_factor": -1.0}, ValueError),
        ("RandomZoom", {"height_factor": 0, "interpolation": "x"}, NotImplementedError),
        ("RandomRotation", {"factor": 1.5}, ValueError),
        ("RandomRotation", {"factor": 0.1, "fill_mode": "x"}, NotImplementedError),
        ("RandomContrast", {"factor": -0.1}, ValueError),
        ("RandomContrast", {"factor": (1.5, 2)}, ValueError),
        ("RandomBrightness", {"factor": (1, 2, 3)}, ValueError),
        ("RandomBrightness", {"factor": 0.1, "value_range": 255}, ValueError),
        ("RandomErasing", {"factor": 1.2}, ValueError),
        ("RandomErasing", {"scale": (2, 3)}, ValueError),
        ("RandomShear", {"x_factor": 1.5}, ValueError),
        ("RandomShear", {"y_factor": -0.5}, ValueError),
        ("RandomShear", {"y_factor": (0, 1, 1)}, ValueError),
        ("RandomShear", {"fill_mode": "mirror"}, NotImplementedError),
        ("RandomPerspective", {"scale": 1.5}, ValueError),
        ("RandomPerspective", {"factor": -1}, ValueError),
        ("RandomPerspective", {"interpolation": "bicubic"}, NotImplementedError),
        ("RandomColorDegeneration", {"factor": 2}, ValueError),
        ("RandomColorDegeneration", {"factor": 0.5, "value_range": 255}, ValueError),
        ("RandomGrayscale", {"factor": 1.1}, ValueError),
        ("RandomInvert", {"factor": -0.1}, ValueError),
        ("RandomHue", {"factor": -0.1}, ValueError),
        ("RandomSaturation", {"factor": 1.1}, ValueError),
        ("RandomSaturation", {"factor": 0.5, "value_range": (0, 1, 2)}, ValueError),
        ("RandomSharpness", {"factor": "a"}, ValueError),
        ("RandomGaussianBlur", {"kernel_size": 4}, ValueError),
        ("RandomGaussianBlur", {"kernel_size": (3, 3, 3)}, ValueError),
        ("RandomGaussianBlur", {"sigma": 1.5}, ValueError),
        ("RandomPosterization", {"factor": 9}, ValueError),
        ("RandomPosterization", {"factor": 0}, ValueError),
        ("Solarization", {"addition_factor": 1.5}, ValueError),
        ("Solarization", {"threshold_factor": (0, 0.5, 1)}, ValueError),
        ("Solarization", {"value_range": 255}, ValueError),
        ("AutoContrast", {"value_range": 255}, ValueError),
        ("RandomElasticTransform", {"factor": -1}, ValueError),
        ("RandomElasticTransform", {"scale": 1.5}, ValueError),
        ("RandomElasticTransform", {"fill_mode": "x"}, NotImplementedError),
        ("RandomElasticTransform", {"interpolation": "x"}, NotImplementedError),
        ("CutMix", {"factor": 1.5}, ValueError),
        ("RandAugment", {"factor": 1.5}, ValueError),
        ("RandAugment", {"interpolation": "bicubic"}, NotImplementedError),
        ("AugMix", {"factor": (2, 3)}, ValueError),
    ],
)
def test_errors_are_those_of_keras(name, arguments, error):
    for package in (keras.layers, layers):
        with pytest.raises(error):
            getattr(package, name)(**arguments)


def test_more_errors():
    with pytest.raises(ValueError, match="`mode` must be"):
        layers.RandomFlip("diagonal")
    # Keras lacks the attribute with this message.
    with pytest.raises(ValueError, match="value_range"):
        layers.Equalization(value_range=(0, 1, 2))
    with pytest.raises(ValueError, match="fill_value"):
        layers.RandomErasing(fill_value=(1, 2))
    with pytest.raises(ValueError, match="rank 3 \\(single image\\) or 4"):
        layers.RandomFlip()(np.zeros((3, 3), "float32"))
