"""Functions of `kerascnn.ops.image` have Keras' values, gradients, dtypes and errors."""

import numpy as np
import pytest

import kerascnn
from kerascnn import ops

from .comparing import as_numpy, check, close, fresh_numbers, keras, smooth, torch, whole

RNG = fresh_numbers(__name__)
FORMATS = ("channels_last", "channels_first")

# These are sums of a few dozen float32 products, in another order.
SUMS = {"rtol": 2e-5, "atol": 2e-5}


def images(*shape, low=0.0, high=1.0):
    return RNG.uniform(low, high, shape).astype("float32")


def in_format(x, data_format):
    return np.ascontiguousarray(np.moveaxis(x, -1, -3)) if data_format == FORMATS[1] else x


BATCH = images(2, 7, 9, 3)
SINGLE = images(8, 5, 3)
POINTS = np.array([[0, 0], [0, 6], [8, 0], [8, 6]], "float32")
OTHERS = POINTS + RNG.uniform(-1.5, 1.5, (2, 4, 2)).astype("float32")
PLACES = RNG.uniform(-9, 18, (2, 4, 5)).astype("float32")
INSIDE = RNG.uniform(0.5, 5.5, (2, 4, 5)).astype("float32")
VOLUMES = images(2, 5, 6, 7, 2)


def both(name, function, array, case=smooth):
    """Makes the case in both data formats; `function` gets the format as its last argument."""
    return {
        f"{name} {f}": case(lambda o, x, f=f: function(o.image, x, f), in_format(array, f))
        for f in FORMATS
    }


CASES = {
    **both("rgb_to_hsv", lambda o, x, f: o.rgb_to_hsv(x, f), BATCH),
    **both("hsv_to_rgb", lambda o, x, f: o.hsv_to_rgb(x, f), BATCH),
    **both("rgb_to_hsv of one", lambda o, x, f: o.rgb_to_hsv(x, f), SINGLE),
    **both("hsv_to_rgb of one", lambda o, x, f: o.hsv_to_rgb(x * 3 - 1, f), SINGLE),
    **both("gaussian_blur", lambda o, x, f: o.gaussian_blur(x, data_format=f), BATCH),
    **both(
        "gaussian_blur wide", lambda o, x, f: o.gaussian_blur(x, (5, 5), (0.8, 2.0), f), SINGLE
    ),
    "gaussian_blur with a sigma of the step": smooth(
        lambda o, x, s: o.image.gaussian_blur(x, (3, 3), s, "channels_last"),
        BATCH, np.array([0.7, 1.9], "float32"),
    ),
    **both("sobel_edges", lambda o, x, f: o.sobel_edges(x, f), BATCH),
    **both("extract_patches", lambda o, x, f: o.extract_patches(x, 3, data_format=f), BATCH),
    **both(
        "extract_patches of one",
        lambda o, x, f: o.extract_patches(x, (3, 2), (1, 2), data_format=f),
        SINGLE,
    ),
    **both(
        "extract_patches same",
        lambda o, x, f: o.extract_patches(x, (3, 2), 2, padding="same", data_format=f),
        BATCH,
    ),
    **both(
        "extract_patches dilated",
        lambda o, x, f: o.extract_patches(x, (2, 3), 1, 2, data_format=f),
        BATCH,
    ),
    "extract_patches 3 sizes": smooth(lambda o, x: o.image.extract_patches(x, (2, 3, 2)), VOLUMES),
    "extract_patches_3d": smooth(
        lambda o, x: o.image.extract_patches_3d(x, (2, 3, 2), (1, 2, 3), padding="same"), VOLUMES
    ),
    "extract_patches_3d first": smooth(
        lambda o, x: o.image.extract_patches_3d(x, 2, data_format="channels_first"),
        VOLUMES.transpose(0, 4, 1, 2, 3).copy(),
    ),
    "extract_patches_3d of one": smooth(
        lambda o, x: o.image.extract_patches_3d(x, (2, 2, 3)), VOLUMES[0]
    ),
    **{
        f"map_coordinates {order} {mode}": whole(
            lambda o, x, p, order=order, mode=mode: o.image.map_coordinates(x, p, order, mode, 0.5),
            BATCH[0, :, :, 0], PLACES,
        )
        for order in (0, 1) for mode in ops.image.FILL_MODES
    },
    "map_coordinates inside": smooth(
        lambda o, x, p: o.image.map_coordinates(x, p, 1), BATCH[0, :, :, 0], INSIDE
    ),
    "map_coordinates of a vector": smooth(
        lambda o, x, p: o.image.map_coordinates(x, [p], 1), SINGLE[0, :, 0], INSIDE[0] / 2
    ),
    "map_coordinates of three axes": smooth(
        lambda o, x, p, q: o.image.map_coordinates(x, [p[0], p[1], q], 1, "nearest"),
        SINGLE, INSIDE, INSIDE[0] / 3,
    ),
    "map_coordinates of integers": whole(
        lambda o, x, p: o.image.map_coordinates(x, p, 1, "wrap"),
        RNG.integers(-99, 99, (7, 9)).astype("int32"), np.round(PLACES),
    ),
    **{
        f"scale_and_translate {method} {antialias}": smooth(
            lambda o, x, s, t, m=method, a=antialias: o.image.scale_and_translate(
                x, (2, 5, 12, 3), s, t, (1, 2), m, a
            ),
            BATCH, np.array([0.6, 1.7], "float32"), np.array([0.3, -1.2], "float32"),
        )
        for method in ("linear", "cubic") for antialias in (True, False)
    },
    **{
        f"scale_and_translate {method}": whole(
            lambda o, x, s, t, m=method: o.image.scale_and_translate(
                x, (8, 9, 3), s, t, (-2,), m
            ),
            SINGLE, np.array([0.4], "float32"), np.array([1.0], "float32"),
        )
        for method in ("trilinear", "bicubic", "lanczos3", "lanczos5")
    },
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_values_and_gradients(name, device):
    function, arrays, has_gradient = CASES[name]
    check(function, arrays, has_gradient, device, SUMS, {"rtol": 2e-4, "atol": 1e-4})


@pytest.mark.parametrize("data_format", FORMATS)
@pytest.mark.parametrize("shape", [(2, 13, 17, 3), (14, 12, 1)])
def test_ssim(shape, data_format, device):
    """Variances are differences of squares, so they lose some digits."""
    a = images(*shape)
    b = np.clip(a + RNG.normal(0, 0.1, shape), 0, 1).astype("float32")
    arrays = [in_format(x, data_format) for x in (a, b)]
    check(
        lambda o, x, y: o.image.ssim(x, y, 1.0, 7, 1.2, data_format=data_format),
        arrays, True, device, {"atol": 1e-4}, {"atol": 3e-4},
    )  # fmt: skip


def test_ssim_of_images_of_little_contrast(device):
    """The reference is the definition in float64; float32 keeps most digits of variances."""
    a = 0.9 + 0.01 * images(1, 20, 19, 2)
    b = (a + RNG.normal(0, 0.002, a.shape)).astype("float32")
    bell = np.exp(-0.5 * ((np.arange(11) - 5) / 1.5) ** 2)
    weights = np.outer(bell, bell) / bell.sum() ** 2

    def windows(x):
        return np.lib.stride_tricks.sliding_window_view(x[0].astype("float64"), (11, 11), (0, 1))

    def mean(x):
        return (x * weights).sum((-2, -1), keepdims=True)

    x, y = windows(a), windows(b)
    mx, my, c1, c2 = mean(x), mean(y), 0.01**2, 0.03**2
    vx, vy, cov = mean((x - mx) ** 2), mean((y - my) ** 2), mean((x - mx) * (y - my))
    wanted = (2 * mx * my + c1) * (2 * cov + c2) / ((mx**2 + my**2 + c1) * (vx + vy + c2))
    with kerascnn.device(device):
        close(ops.image.ssim(a, b).numpy(), [wanted.mean()], {"atol": 1e-6})


def test_ssim_of_eight_bits_and_of_itself(device):
    with kerascnn.device(device):
        x = images(2, 16, 15, 3, high=255.0)
        y = images(2, 16, 15, 3, high=255.0)
        wanted = keras.ops.image.ssim(x, y, 255.0, k1=0.02, k2=0.01)
        close(ops.image.ssim(x, y, 255.0, k1=0.02, k2=0.01).numpy(), wanted, {"atol": 1e-4})
        close(ops.image.ssim(x, x, 255.0).numpy(), np.ones(2), {"atol": 1e-4})
        assert ops.image.ssim(x.astype("uint8"), x.astype("uint8")).dtype == "uint8"


@pytest.mark.parametrize("interpolation", ["nearest", "bilinear"])
@pytest.mark.parametrize("data_format", FORMATS)
def test_perspective_transform(interpolation, data_format, device):
    """Keras gets positions from a float32 system, so one may fall into the next pixel."""
    x = in_format(BATCH, data_format)

    def call(o, x, start, end):
        return o.image.perspective_transform(
            x, start, end, interpolation, 0.25, data_format=data_format
        )

    start = np.stack([POINTS, POINTS])
    wanted = as_numpy(call(keras.ops, x, start, OTHERS))
    with kerascnn.device(device):
        actual = call(ops, x, start, OTHERS).numpy()
    assert actual.shape == wanted.shape
    assert (np.abs(actual - wanted) > 1e-4).mean() < (0.02 if interpolation == "nearest" else 0.005)


def test_perspective_transform_brings_the_points_where_they_should_be(device):
    """The pixel at an end point is the one at its start point, also where both share points."""
    end = np.array([[1, 1], [0, 5], [7, 2], [8, 6]], "float32")
    with kerascnn.device(device):
        moved = ops.image.perspective_transform(BATCH, POINTS, end).numpy()
    for (x, y), (u, v) in zip(POINTS.astype(int), end.astype(int), strict=True):
        np.testing.assert_allclose(moved[:, v, u], BATCH[:, y, x], atol=1e-4)


def test_gradients_of_perspective_transform(device):
    single = BATCH[0]
    check(
        lambda o, x, s, e: o.image.perspective_transform(x, s, e),
        [single, POINTS * 0.8 + 0.5, POINTS + np.array([[0.3], [-0.2], [0.1], [0.4]], "float32")],
        True, device, {"atol": 1e-4}, {"rtol": 1e-3, "atol": 5e-3},
    )  # fmt: skip


@pytest.mark.parametrize("name", ["uint8", "int16", "float16", "bfloat16", "float32"])
def test_dtypes_stay(name):
    x = ops.cast(images(2, 8, 9, 3, high=200.0), name)
    other = torch.tensor(ops.cast(x, "float32").numpy()).to(getattr(torch, name))
    end = POINTS + 1
    for function in (
        lambda o, x: o.image.extract_patches(x, 2),
        lambda o, x: o.image.map_coordinates(x[0, :, :, 0], PLACES, 1, "reflect"),
        lambda o, x: o.image.map_coordinates(x[0, :, :, 0], PLACES, 0),
        lambda o, x: o.image.perspective_transform(x, POINTS, end),
    ):
        if "int" in name and function(ops, x).shape[-1] == 12:
            continue  # Keras extracts patches by convolution, and PyTorch has none of integers
        actual, wanted = function(ops, x), function(keras.ops, other)
        assert actual.dtype == name and wanted.dtype == getattr(torch, name)
        # The difference may be a unit in the last place of 200, or half a pixel rounded the other
        # way.
        unit = {"bfloat16": 1.0, "float16": 0.125, "float32": 1e-3}.get(name, 1.0)
        actual, wanted = ops.cast(actual, "float32").numpy(), wanted.float().numpy()
        assert (np.abs(actual - wanted) > unit).mean() < 0.01


@pytest.mark.parametrize("name", ["float16", "bfloat16", "float64"])
@pytest.mark.parametrize("function", ["rgb_to_hsv", "hsv_to_rgb", "gaussian_blur", "sobel_edges"])
def test_floating_dtypes(function, name):
    x = ops.cast(BATCH, name)
    other = torch.tensor(ops.cast(x, "float64").numpy()).to(getattr(torch, name))
    arguments = {"sigma": torch.tensor([1.0, 1.0]).to(other.dtype)} if "blur" in function else {}
    wanted = getattr(keras.ops.image, function)(other, data_format=FORMATS[0], **arguments)
    actual = getattr(ops.image, function)(x)
    assert actual.dtype == name
    # Hues are quotients of differences of rounded numbers; six sectors and sums add to the error.
    unit = {"float16": 2e-2, "bfloat16": 0.15, "float64": 1e-6}[name]
    close(ops.cast(actual, "float64").numpy(), wanted.double().numpy(), {"atol": unit})


def test_integers_are_blurred_and_rounded():
    x = RNG.integers(0, 256, (2, 6, 7, 3)).astype("uint8")
    wanted = keras.ops.image.gaussian_blur(x.astype("float32"), data_format=FORMATS[0])
    actual = ops.image.gaussian_blur(x)
    assert actual.dtype == "uint8"
    assert np.abs(actual.numpy() - as_numpy(wanted)).max() <= 0.5 + 1e-4
    assert ops.image.sobel_edges(x).dtype == "float32"


def test_integers_are_scaled_and_rounded(device):
    """Ties are rounded either way where the last bits of the weights differ."""
    x = RNG.integers(0, 256, (9, 4)).astype("uint8")
    arguments = ((21, 4), [2.3], [0.4], (0,), "cubic")
    wanted = as_numpy(keras.ops.image.scale_and_translate(x, *arguments))
    with kerascnn.device(device):
        actual = ops.image.scale_and_translate(x, *arguments).numpy()
    assert actual.dtype == "uint8" == wanted.dtype
    difference = np.abs(actual.astype(int) - wanted)
    assert difference.max() <= 1 and (difference > 0).mean() < 0.1


@pytest.mark.parametrize("size", [(3, 5), (4, 2), (1, 7)])
def test_blur_with_a_window_that_is_no_square(size, device):
    """The size has the width first, as with JAX, and padding is "same". NumPy computes the sums."""
    sigma = (1.5, 0.7)
    width, height = (
        np.exp(-0.5 * ((np.arange(n) - (n - 1) / 2) / s) ** 2)
        for n, s in zip(size, sigma, strict=True)
    )
    weights = np.outer(height / height.sum(), width / width.sum())
    before = [(n - 1) // 2 for n in weights.shape]
    padded = np.pad(
        BATCH.astype("float64"),
        ((0, 0), *((b, n - 1 - b) for b, n in zip(before, weights.shape, strict=True)), (0, 0)),
    )
    wanted = sum(
        weights[i, j] * padded[:, i : i + 7, j : j + 9]
        for i in range(weights.shape[0])
        for j in range(weights.shape[1])
    )
    with kerascnn.device(device):
        close(ops.image.gaussian_blur(BATCH, size, sigma).numpy(), wanted, SUMS)


@pytest.mark.parametrize("data_format", FORMATS)
def test_elastic_transform(data_format, device):
    """The result is what Keras' blur and `map_coordinates` compute from the same noise."""
    x = in_format(BATCH, data_format)
    with kerascnn.device(device):
        noise = kerascnn.random.normal((2, 7, 9, 2), 0.0, 1.5, seed=5).numpy()
        call = lambda **k: ops.image.elastic_transform(x, 4.0, 1.5, seed=5, **k).numpy()  # noqa: E731
        actual = call(data_format=data_format)
        np.testing.assert_array_equal(actual, call(data_format=data_format))
        others = ops.image.elastic_transform(x, 4.0, 1.5, data_format=data_format).numpy()
    moves = 4.0 * as_numpy(
        keras.ops.image.gaussian_blur(noise, (9, 9), (1.5, 1.5), data_format=FORMATS[0])
    )
    assert np.abs(moves).max() > 0.3 and np.abs(actual - others).max() > 0.01
    rows, columns = np.mgrid[:7, :9].astype("float32")
    places = [rows + moves[..., 1], columns + moves[..., 0]]
    wanted = np.stack([
        as_numpy(keras.ops.image.map_coordinates(
            BATCH[i, :, :, c], [p[i] for p in places], 1, "reflect"
        ))
        for i in range(2) for c in range(3)
    ])  # fmt: skip
    wanted = wanted.reshape(2, 3, 7, 9)
    wanted = wanted if data_format == FORMATS[1] else wanted.transpose(0, 2, 3, 1)
    np.testing.assert_allclose(actual, wanted, atol=1e-4)


def test_each_step_is_distorted_anew(device):
    from kerascnn import _core
    from kerascnn.tracing import Trace

    with kerascnn.device(device):
        with Trace(device) as trace:
            value = trace.graph.input("x", [1, 9, 8, 1], "float32")
            moved = ops.image.elastic_transform(value, 10.0, 1.0, interpolation="nearest")
        program = _core.Program.compile(trace.graph, [moved], device)
        x = _core.from_numpy(np.arange(72, dtype="float32").reshape(1, 9, 8, 1), device)
        program.run([x])
        first = np.array(program.outputs()[0].numpy())
        program.run([x])
        second = np.array(program.outputs()[0].numpy())
    assert (first != second).any() and set(first.ravel()) <= set(range(72))


def test_on_keras_tensors():
    x = kerascnn.Input((8, 9, 3))
    assert ops.image.gaussian_blur(x).shape == (None, 8, 9, 3)
    assert ops.image.sobel_edges(x).shape == (None, 8, 9, 3, 2)
    assert ops.image.extract_patches(x, 3).shape == (None, 2, 3, 27)
    assert ops.image.rgb_to_hsv(x).shape == (None, 8, 9, 3)
    y = ops.image.hsv_to_rgb(ops.image.gaussian_blur(x, (5, 5)))
    model = kerascnn.Model(x, y)
    batch = images(3, 8, 9, 3)
    wanted = ops.image.hsv_to_rgb(ops.image.gaussian_blur(batch, (5, 5))).numpy()
    np.testing.assert_allclose(model.predict(batch, verbose=0), wanted, atol=1e-5)


ERRORS = {
    "hsv of integers": (ValueError, lambda o: o.rgb_to_hsv(np.zeros((4, 4, 3), "uint8"))),
    "rgb of integers": (ValueError, lambda o: o.hsv_to_rgb(np.zeros((4, 4, 3), "uint8"))),
    "hsv of two axes": (ValueError, lambda o: o.rgb_to_hsv(np.zeros((4, 3), "float32"))),
    "blur of two axes": (ValueError, lambda o: o.gaussian_blur(np.zeros((4, 3), "float32"))),
    "order 2": (
        NotImplementedError,
        lambda o: o.map_coordinates(np.zeros(3, "float32"), np.zeros((1, 2), "float32"), 2),
    ),
    "coordinates of other axes": (
        ValueError,
        lambda o: o.map_coordinates(np.zeros((3, 3), "float32"), np.zeros((1, 2), "float32"), 1),
    ),
    "fill mode": (
        ValueError,
        lambda o: o.map_coordinates(np.zeros(3, "float32"), np.zeros((1, 2), "float32"), 1, "no"),
    ),
    "method": (
        ValueError,
        lambda o: o.scale_and_translate(
            BATCH, BATCH.shape, np.ones(1, "float32"), np.ones(1, "float32"), (1,), "area"
        ),
    ),
    "points": (ValueError, lambda o: o.perspective_transform(BATCH, POINTS[:3], POINTS[:3])),
    "points of two shapes": (ValueError, lambda o: o.perspective_transform(BATCH, POINTS, OTHERS)),
    "interpolation": (
        ValueError,
        lambda o: o.perspective_transform(BATCH, POINTS, POINTS, "bicubic"),
    ),
    "elastic mode": (ValueError, lambda o: o.elastic_transform(BATCH, fill_mode="no")),
    "patch of four sizes": (ValueError, lambda o: o.extract_patches(BATCH, (1, 2, 3, 4))),
    "patch of text": (TypeError, lambda o: o.extract_patches(BATCH, "3")),
    "volume of two sizes": (TypeError, lambda o: o.extract_patches_3d(VOLUMES, (1, 2))),
    "similarity of two axes": (ValueError, lambda o: o.ssim(BATCH[0, 0], BATCH[0, 0])),
}


@pytest.mark.parametrize("name", ERRORS)
def test_errors_are_those_of_keras(name):
    kind, call = ERRORS[name]
    for package in (keras.ops.image, ops.image):
        with pytest.raises(kind):
            call(package)
