"""Resizing, cropping and padding give Keras' pixels."""

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import kerascnn
from kerascnn import layers, ops
from kerascnn.ops import resampling

from .helpers import compiled, few, keras, relative_error, to_numpy

pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")

sizes = st.integers(1, 24)


def pixels(rng, shape, dtype):
    return rng.uniform(0, 255, shape).astype(dtype)


def check_pixels(actual, expected, dtype):
    """Keras' positions are float32: 1e-7 of a few dozen pixels, times the contrast."""
    expected = to_numpy(expected)
    assert str(actual.dtype) == dtype == str(expected.dtype)
    assert actual.shape == expected.shape
    difference = np.abs(actual.astype("float64") - expected.astype("float64"))
    if dtype == "float16":
        # The bound is a unit in the last place of numbers up to 255, and cubic results go beyond
        # them.
        assert difference.max() <= 0.25
    elif dtype.startswith("float"):
        assert difference.max() < 2e-3
    else:
        # A value halfway between two integers may be rounded to either one.
        assert difference.max() <= 1
        assert (difference > 0).mean() < 0.15


@few
@given(
    height=sizes,
    width=sizes,
    new=st.tuples(sizes, sizes),
    interpolation=st.sampled_from(["nearest", "bilinear", "bicubic"]),
    antialias=st.booleans(),
    dtype=st.sampled_from(["float32", "float64", "float16", "uint8", "int16", "int32"]),
    aspect=st.sampled_from([None, "crop_to_aspect_ratio", "pad_to_aspect_ratio"]),
    first=st.booleans(),
    single=st.booleans(),
    seed=st.integers(0, 1000),
)
def test_resize(
    height, width, new, interpolation, antialias, dtype, aspect, first, single, seed, device
):
    seen = (height, width)
    if aspect == "crop_to_aspect_ratio":
        seen = resampling.crop_box(height, width, *new)[2:]
    # With antialiasing, PyTorch 2.13 repeats the first pixel where a side is or becomes one pixel.
    assume(not antialias or 1 not in (*seen, *new))
    shape = (3, height, width) if first else (height, width, 3)
    if not single:
        shape = (2, *shape)
    images = pixels(np.random.default_rng(seed), shape, dtype)
    arguments = {
        "size": new,
        "interpolation": interpolation,
        "antialias": antialias,
        "data_format": "channels_first" if first else "channels_last",
    }
    if aspect is not None:
        arguments[aspect] = True
        arguments["fill_value"] = 7.0
    actual = compiled(lambda x: ops.image.resize(x, **arguments), [images], device)
    check_pixels(actual, keras.ops.image.resize(images, **arguments), dtype)


@pytest.mark.parametrize("size", [(9, 20), (30, 5), (4, 3)])
@pytest.mark.parametrize("antialias", [False, True])
@pytest.mark.parametrize("method", ["lanczos3", "lanczos5"])
def test_lanczos(method, antialias, size, device, rng):
    """Keras' PyTorch backend only has this method under another name."""
    images = pixels(rng, (2, 17, 13, 3), "float32")
    arguments = {"interpolation": method, "antialias": antialias}
    actual = compiled(lambda x: ops.image.resize(x, size, **arguments), [images], device)
    scale = np.array([size[0] / 17, size[1] / 13], "float32")
    expected = keras.ops.image.scale_and_translate(
        images, (2, *size, 3), scale, np.zeros(2, "float32"), (1, 2), method, antialias=antialias
    )
    check_pixels(actual, expected, "float32")


def test_float64_is_computed_as_such(device):
    x = np.linspace(0, 1, 12).reshape(1, 12, 1, 1)
    with kerascnn.device(device):
        y = ops.image.resize(x, (24, 1)).numpy().ravel()
    # The line stays straight between the centers of the first and the last pixel.
    np.testing.assert_allclose(np.diff(y[1:-1]), np.diff(y[1:-1])[0], rtol=1e-12)


@pytest.mark.parametrize("first", [False, True])
@pytest.mark.parametrize("dtype", ["uint8", "float32"])
@pytest.mark.parametrize("name", ["Resizing", "CenterCrop"])
def test_layers(name, dtype, first, device, rng):
    data_format = "channels_first" if first else "channels_last"
    for height, width in [(5, 4), (8, 12), (9, 11), (20, 6), (7, 30)]:
        for training in (False, True):
            shape = (2, 3, 9, 11) if first else (2, 9, 11, 3)
            images = pixels(rng, shape, dtype)
            here = getattr(layers, name)(height, width, data_format=data_format)
            there = getattr(keras.layers, name)(height, width, data_format=data_format)
            call = lambda x, layer=here, t=training: layer(x, training=t)  # noqa: E731
            actual = compiled(call, [images], device)
            expected = there(images, training=training)
            check_pixels(actual, expected, str(to_numpy(expected).dtype))
            assert here.compute_output_shape(shape) == actual.shape
            single = np.array(here(images[0], training=training).numpy())
            np.testing.assert_allclose(single, actual[0], atol=1e-3)


def test_symbolic_resizing_knows_its_dtype():
    for dtype in ("uint8", "float32"):
        symbolic = layers.Resizing(6, 7)(kerascnn.Input((None, None, 3), dtype=dtype))
        assert symbolic.shape == (None, 6, 7, 3)
        assert symbolic.dtype == dtype
    assert layers.CenterCrop(6, 7)(kerascnn.Input((9, 9, 3), dtype="uint8")).dtype == "float32"


def test_masks_take_the_nearest_pixel(rng):
    images, masks = pixels(rng, (2, 9, 11, 3), "float32"), rng.integers(0, 5, (2, 9, 11, 1))
    masks = masks.astype("int32")
    data = {"images": images, "segmentation_masks": masks, "labels": np.arange(2)}
    actual = layers.Resizing(6, 5)(data)
    expected = keras.layers.Resizing(6, 5)(dict(data))
    for key in data:
        assert relative_error(actual[key].numpy(), to_numpy(expected[key])) < 1e-6
    with pytest.raises(ValueError, match="specify a bounding box format"):
        layers.Resizing(6, 5)({"images": images, "bounding_boxes": masks})


@pytest.mark.parametrize("function", ["pad_images", "crop_images"])
@pytest.mark.parametrize("first", [False, True])
def test_pad_and_crop(function, first, device, rng):
    kind = "padding" if function == "pad_images" else "cropping"
    shape = (2, 3, 9, 11) if first else (2, 9, 11, 3)
    images = pixels(rng, shape, "float32")
    data_format = "channels_first" if first else "channels_last"
    target = (14, 15) if function == "pad_images" else (4, 5)
    for arguments in (
        {f"top_{kind}": 1, f"bottom_{kind}": 2, f"left_{kind}": 3, f"right_{kind}": 0},
        {
            f"top_{kind}": 1,
            f"left_{kind}": 2,
            "target_height": target[0],
            "target_width": target[1],
        },
        {
            f"bottom_{kind}": 1,
            f"right_{kind}": 2,
            "target_height": target[0],
            "target_width": target[1],
        },
    ):
        arguments["data_format"] = data_format
        call = lambda x, a=arguments: getattr(ops.image, function)(x, **a)  # noqa: E731
        actual = compiled(call, [images], device)
        expected = getattr(keras.ops.image, function)(images, **arguments)
        np.testing.assert_array_equal(actual, to_numpy(expected))


@pytest.mark.parametrize("dtype", ["float32", "uint8"])
@pytest.mark.parametrize("channels", [1, 3])
def test_grayscale(channels, dtype, device, rng):
    for shape, data_format in (
        ((2, 5, 4, channels), "channels_last"),
        ((channels, 5, 4), "channels_first"),
    ):
        images = pixels(rng, shape, dtype)
        call = lambda x, f=data_format: ops.image.rgb_to_grayscale(x, f)  # noqa: E731
        actual = compiled(call, [images], device)
        expected = to_numpy(keras.ops.image.rgb_to_grayscale(images, data_format))
        assert actual.dtype == expected.dtype
        # Values are truncated to integers, so rounding decides between two neighbours.
        if dtype == "uint8":
            assert np.abs(actual.astype(int) - expected).max() <= 1
        else:
            assert relative_error(actual, expected) < 1e-6


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda o, x: o.resize(x, (3, 3), "cubic"), "Expected of one"),
        (lambda o, x: o.resize(x, (3, 3, 3)), "tuple of 2 integers"),
        (lambda o, x: o.resize(x[0, 0], (3, 3)), "Invalid images rank"),
        (lambda o, x: o.resize(x, (3, 3), fill_mode="wrap"), "Only `'constant'`"),
        (
            lambda o, x: o.resize(x, (3, 3), crop_to_aspect_ratio=True, pad_to_aspect_ratio=True),
            "Only one of",
        ),
        (lambda o, x: o.pad_images(x, 1, 1, 1), "exactly two"),
        (lambda o, x: o.pad_images(x, 1, 1, target_height=3, target_width=3), ">= 0"),
        (lambda o, x: o.crop_images(x, 1, 1, bottom_cropping=5, right_cropping=1), ">= 0"),
        (lambda o, x: o.rgb_to_grayscale(x[..., :2]), "Invalid channel size"),
        (lambda o, x: o.affine_transform(x, np.zeros((1, 8), "float32"), "cubic"), "interpolation"),
        (
            lambda o, x: o.affine_transform(x, np.zeros((1, 8), "float32"), fill_mode="x"),
            "fill_mode",
        ),
        (lambda o, x: o.affine_transform(x, np.zeros((1, 1, 8), "float32")), "Invalid transform"),
    ],
)
def test_errors_are_those_of_keras(call, words):
    x = np.zeros((1, 5, 5, 3), "float32")
    with pytest.raises(ValueError) as theirs:
        call(keras.ops.image, x)
    with pytest.raises(ValueError, match=words) as ours:
        call(ops.image, x)
    assert words in str(theirs.value)
    assert type(ours.value) is type(theirs.value)


def test_a_part_that_is_not_there():
    """Keras' PyTorch backend silently returns a smaller image."""
    with pytest.raises(ValueError, match="bottom_cropping must be >= 0"):
        ops.image.crop_images(np.zeros((5, 5, 1)), 1, 1, target_height=5, target_width=4)


def test_layers_refuse_what_they_cannot_do():
    with pytest.raises(ValueError, match="Expected of one"):
        layers.Resizing(4, 4, interpolation="cubic")
    with pytest.raises(ValueError, match="Only one of"):
        layers.Resizing(4, 4, crop_to_aspect_ratio=True, pad_to_aspect_ratio=True)
    with pytest.raises(ValueError, match="rank 3"):
        layers.Resizing(4, 4)(np.zeros((4, 4), "float32"))
    with pytest.raises(ValueError, match="format of boxes"):
        layers.CenterCrop(4, 4, bounding_box_format="corners")


_BY_TAPS = [
    ((9, 20), "bilinear"),
    ((34, 7), "bilinear"),
    ((34, 26), "bicubic"),
    ((5, 40), "lanczos3"),
    ((40, 4), "lanczos5"),
    ((30, 5), "nearest"),
]


@pytest.mark.parametrize(("size", "method"), _BY_TAPS)
@pytest.mark.parametrize("channels", [1, 3, 8])
def test_pixels_are_those_of_photographs(channels, size, method, device, rng):
    """Bit for bit: the same weights in the same order, with the same roundings, on every device."""
    images = rng.integers(0, 256, (2, 17, 13, channels), "uint8")
    by_taps = lambda i: resampling.resize_array(i, size, method)  # noqa: E731
    expected = np.stack([by_taps(image) for image in images])
    plain = lambda x: ops.image.resize(x, size, method)  # noqa: E731
    np.testing.assert_array_equal(compiled(plain, [images.astype("float32")], device), expected)
    found = compiled(plain, [images], device)
    np.testing.assert_array_equal(found, np.rint(expected).clip(0, 255).astype("uint8"))


@pytest.mark.parametrize("antialias", [False, True])
@pytest.mark.parametrize("method", resampling.METHODS)
def test_weights_are_those_of_files(method, antialias):
    """The core computes them for tensors, and NumPy for photographs."""
    for old, new in [(1, 5), (5, 1), (7, 11), (11, 7), (6, 12), (50, 3), (3, 50), (8, 8)]:
        x = np.eye(old).reshape(1, old, 1, old)
        found = ops.image.resize(x, (new, 1), method, antialias).numpy()[0, :, 0]
        wanted = resampling.weights(old, new, method, antialias)
        np.testing.assert_allclose(found, wanted if old != new else np.eye(old), atol=1e-14)


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "float64"])
@pytest.mark.parametrize("first", [False, True])
@pytest.mark.parametrize("method", ["bilinear", "nearest", "bicubic"])
def test_gradients_are_those_of_the_weights(method, first, dtype, device, rng):
    """The gradient is the transposed product with the weights of rows and columns."""
    (height, width), size = (7, 9), (12, 5)
    rows = resampling.weights(height, size[0], method)
    columns = resampling.weights(width, size[1], method)
    x = rng.normal(size=(2, 3, height, width))
    gradient = rng.normal(size=(2, 3, *size))
    with kerascnn.device(device):
        as_tensor = lambda a: ops.convert_to_tensor(  # noqa: E731
            a if first else a.transpose(0, 2, 3, 1), dtype
        )
        variable, upstream = as_tensor(x), as_tensor(gradient)
        data_format = "channels_first" if first else "channels_last"
        with kerascnn.GradientTape() as tape:
            tape.watch(variable)
            y = ops.image.resize(variable, size, method, data_format=data_format)
            loss = ops.sum(ops.cast(y * upstream, "float64"))
        found = ops.cast(tape.gradient(loss, variable), "float64").numpy()
        given = ops.cast(upstream, "float64").numpy()
    if not first:
        found, given = found.transpose(0, 3, 1, 2), given.transpose(0, 3, 1, 2)
    wanted = np.einsum("nchw,hi,wj->ncij", given, rows, columns)
    bound = {"float16": 1e-3, "bfloat16": 8e-3, "float32": 1e-6, "float64": 1e-14}[dtype]
    assert relative_error(found, wanted) < bound


def test_sizes_that_are_none_are_refused():
    with pytest.raises(ValueError, match="resize2d"):
        ops.image.resize(np.zeros((1, 4, 4, 1), "float32"), (0, 3))
    with pytest.raises(ValueError, match="resize2d: heights and widths must be from 1"):
        ops.image.resize(np.zeros((1, 0, 4, 1), "float32"), (2, 3))
