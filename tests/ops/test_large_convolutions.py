"""Convolutions that are large enough for cuDNN, with numbers whose sums are exact in every dtype.

The result is the reference's, whichever kernel runs and in whatever order it adds, even with TF32.
"""

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from kerascnn import _core

from .reference import REFERENCES

# (images, kernel, stride, groups): each has more than 2^24 products, and the rules for GPUs choose
# between kernels there.
SHAPES = [
    ((64, 14, 14, 32), (3, 3, 32, 64), 1, 1),
    ((22, 14, 15, 32), (3, 3, 32, 64), 1, 1),
    ((40, 16, 13, 16), (3, 3, 16, 24), 1, 1),
    ((16, 15, 17, 96), (1, 1, 96, 132), 1, 1),
    ((11, 15, 17, 96), (1, 1, 96, 136), 1, 1),
    ((32, 19, 16, 64), (3, 3, 64, 128), 2, 1),
    ((20, 24, 24, 3), (3, 3, 3, 64), 1, 1),
    # On a GPU, a kernel for first layers takes these: one and several groups of filters, few taps,
    # rows that are no whole number of what a warp takes.
    ((96, 32, 31, 3), (3, 3, 3, 64), 1, 1),
    ((160, 65, 62, 3), (3, 3, 3, 32), 2, 1),
    ((150, 33, 37, 1), (3, 3, 1, 96), 1, 1),
    ((53, 44, 41, 1), (5, 5, 1, 64), 1, 1),
    ((210, 53, 29, 8), (2, 2, 8, 128), 2, 1),
    # The same with more taps: one and several groups of filters, patches that begin at odd places.
    ((64, 37, 35, 3), (7, 7, 3, 64), 2, 1),
    ((40, 41, 47, 3), (5, 5, 3, 32), 1, 1),
    ((23, 31, 45, 8), (3, 3, 8, 96), 1, 1),
    ((110, 57, 61, 1), (7, 7, 1, 128), 2, 1),
    ((12, 29, 33, 5), (6, 6, 5, 160), 1, 1),
    ((48, 32, 48, 3), (16, 16, 3, 96), 16, 1),
    ((8, 95, 96, 8), (11, 11, 8, 8), 1, 1),  # patches in several pieces
    ((64, 28, 28, 48), (3, 3, 1, 48), 1, 48),
    ((24, 35, 30, 144), (5, 5, 1, 144), 2, 144),
    ((9, 19, 22, 96), (7, 7, 1, 96), 1, 96),
]


@pytest.fixture(autouse=True)
def direct_convolutions(monkeypatch):
    # The transforms of Winograd's algorithm round; test_cpu_winograd.py is about them.
    monkeypatch.setenv("KERASCNN_CPU_WINOGRAD", "0")


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("op", ["conv2d", "conv2d_dgrad", "conv2d_wgrad"])
@pytest.mark.parametrize("images, kernel, stride, groups", SHAPES)
def test_large_convolutions_are_exact(op, images, kernel, stride, groups, dtype, device, rng):
    padding = kernel[0] // 2
    height, width = ((images[i] + 2 * padding - kernel[i - 1]) // stride + 1 for i in (1, 2))
    outputs = (images[0], height, width, kernel[3])

    def numbers(*shape):
        return rng.integers(-8, 9, shape) / 8

    geometry: dict[str, Any] = {
        "strides": [stride] * 2,
        "padding": [padding] * 4,
        "dilations": [1, 1],
        "groups": groups,
    }
    if op == "conv2d":
        inputs = [numbers(*images), numbers(*kernel), numbers(kernel[3])]
        attributes = {**geometry, "activation": "relu", "activation_alpha": 0.0}
    elif op == "conv2d_dgrad":
        inputs = [numbers(*outputs), numbers(*kernel)]
        attributes = {**geometry, "input_shape": list(images)}
    else:
        inputs = [numbers(*images), numbers(*outputs)]
        attributes = {**geometry, "kernel_shape": list(kernel)}
    wanted = REFERENCES[op](*inputs, **attributes)
    narrow = np.dtype(getattr(ml_dtypes, dtype, dtype))
    tensors = [_core.from_numpy(a.astype("float32"), device) for a in inputs]
    if dtype != "float32":
        tensors = [_core.apply("cast", [t], {"dtype": dtype})[0] for t in tensors]
    result = _core.apply(op, tensors, attributes)[0]
    found = _core.apply("cast", [result], {"dtype": "float32"})[0].numpy()
    if dtype != "float32":
        # The sum is rounded once, and once more where a separate kernel adds the bias.
        part = (2 if op == "conv2d" else 1) * float(ml_dtypes.finfo(narrow).eps)
    else:
        # The numbers are multiples of 1/64 below 2^18. cuDNN may transform them first (Winograd) by
        # matrices that contain thirds, of which TF32 keeps ten bits.
        part = 0 if device == "cpu" else 2**-10
    np.testing.assert_allclose(found, wanted, rtol=0, atol=part * np.abs(wanted).max())


# (images, kernel, strides, padding, dilations): each has more than 2^27 products.
FIRST_LAYERS = {
    "square": ((30, 60, 58, 3), (7, 7, 3, 64), [2, 2], [3, 3, 3, 3], [1, 1]),
    "uneven": ((33, 55, 43, 4), (3, 8, 4, 64), [2, 1], [0, 2, 3, 0], [1, 1]),
    "dilated_rows": ((50, 51, 62, 2), (5, 5, 2, 96), [1, 3], [2, 2, 2, 2], [2, 1]),
    "dilated": ((20, 51, 62, 2), (5, 5, 2, 64), [1, 1], [4, 4, 4, 4], [2, 2]),
    "long_rows": ((3, 31, 1031, 3), (5, 5, 3, 32), [1, 1], [2, 2, 2, 2], [1, 1]),
    "few_taps": ((30, 60, 58, 3), (3, 3, 3, 64), [1, 1], [1, 0, 0, 1], [1, 1]),
}


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize("op", ["conv2d", "conv2d_relu", "conv2d_wgrad"])
@pytest.mark.parametrize("name", FIRST_LAYERS)
def test_first_layers(name, op, dtype, device, rng):
    """NaN and infinity in a pixel get into the results that read it, and nowhere else."""
    images, kernel, strides, padding, dilations = FIRST_LAYERS[name]
    height, width = (
        (images[i + 1] + padding[2 * i] + padding[2 * i + 1] - dilations[i] * (kernel[i] - 1) - 1)
        // strides[i]
        + 1
        for i in (0, 1)
    )
    outputs = (images[0], height, width, kernel[3])
    assert np.prod(outputs) * np.prod(kernel[:3]) > 2**27
    if device == "cpu":  # which has no kernel for many
        images, outputs = (2, *images[1:]), (2, *outputs[1:])
    other = outputs if op == "conv2d_wgrad" else kernel
    inputs = [rng.integers(-8, 9, shape) / 8 for shape in (images, other)]
    if op == "conv2d_relu":
        inputs.append(rng.integers(-8, 9, kernel[3]))
    # The last pixel is in as few patches as any.
    inputs[0][0, 20, 20, 0], inputs[0][1, -1, -1, -1] = np.nan, np.inf
    attributes: dict[str, Any] = {
        "strides": strides,
        "padding": padding,
        "dilations": dilations,
        "groups": 1,
    }
    if op == "conv2d_wgrad":
        attributes["kernel_shape"] = list(kernel)
    else:
        activation = "relu" if op == "conv2d_relu" else "linear"
        attributes |= {"activation": activation, "activation_alpha": 0.0}
    with np.errstate(invalid="ignore"):  # zero times infinity
        wanted = REFERENCES[op.removesuffix("_relu")](*inputs, **attributes)
    narrow = np.dtype(getattr(ml_dtypes, dtype, dtype))
    tensors = [_core.from_numpy(a.astype(narrow), device) for a in inputs]
    result = _core.apply(op.removesuffix("_relu"), tensors, attributes)[0]
    found = _core.apply("cast", [result], {"dtype": "float32"})[0].numpy()
    assert 0 < np.isnan(wanted).sum() < wanted.size
    finite = np.isfinite(wanted)
    np.testing.assert_array_equal(np.isfinite(found), finite)
    # Sums are exact in float32, and rounded once or, where another kernel adds the bias, twice.
    # What cuDNN may transform is as above.
    part = 2 * float(ml_dtypes.finfo(narrow).eps)
    if dtype == "float32":
        part = 0 if device == "cpu" else 2**-10
    largest = np.abs(wanted[finite]).max()
    np.testing.assert_allclose(found[finite], wanted[finite], rtol=0, atol=part * largest)


# (images, filters, strides, padding): each has 2^29 products and more. Hopper has a kernel for
# these gradients that takes the pixels of a rectangle, or of some whole images, at a time: there
# are sizes that it cuts without a rest, and rests of rows, columns and images.
WIDE_GRADIENTS = {
    "whole": ((30, 16, 32, 64), 64, [1, 1], [1, 1, 1, 1]),
    "columns": ((15, 33, 31, 64), 64, [1, 1], [1, 1, 1, 1]),
    "no_padding": ((9, 37, 53, 64), 64, [1, 1], [0, 0, 0, 0]),
    "images": ((67, 4, 4, 256), 256, [1, 1], [1, 1, 1, 1]),
    "small": ((41, 7, 7, 128), 256, [1, 1], [1, 1, 1, 1]),
    "rows": ((31, 13, 12, 128), 128, [1, 1], [1, 1, 1, 1]),
    "one_side": ((23, 14, 28, 128), 64, [1, 1], [2, 0, 0, 2]),
    "stride": ((34, 30, 29, 64), 128, [2, 2], [1, 1, 1, 1]),
    "stride_one_side": ((30, 32, 32, 128), 64, [2, 2], [0, 1, 0, 1]),
    "uneven_strides": ((30, 21, 48, 64), 64, [1, 2], [1, 1, 1, 1]),
}


@pytest.mark.parametrize("name", WIDE_GRADIENTS)
def test_kernel_gradients_of_many_channels(name, device, rng):
    """NaN in a pixel gets into the taps that read it, and nowhere else."""
    images, filters, strides, padding = WIDE_GRADIENTS[name]
    height, width = (
        (images[i + 1] + padding[2 * i] + padding[2 * i + 1] - 3) // strides[i] + 1 for i in (0, 1)
    )
    outputs = (images[0], height, width, filters)
    assert np.prod(outputs) * 9 * images[3] >= 2**29
    inputs = [rng.integers(-8, 9, shape) / 8 for shape in (images, outputs)]
    # The last pixel of an image is in as few patches as any.
    inputs[0][images[0] // 2, -1, -1, 5] = np.nan
    attributes: dict[str, Any] = {
        "strides": strides,
        "padding": padding,
        "dilations": [1, 1],
        "groups": 1,
        "kernel_shape": [3, 3, images[3], filters],
    }
    wanted = REFERENCES["conv2d_wgrad"](*inputs, **attributes)
    tensors = [_core.from_numpy(a.astype("float32"), device) for a in inputs]
    found = _core.apply("conv2d_wgrad", tensors, attributes)[0].numpy()
    assert 0 < np.isnan(wanted).sum() <= 9 * filters
    part = 0 if device == "cpu" else 2**-10  # as above
    largest = np.nanmax(np.abs(wanted))
    np.testing.assert_allclose(found, wanted, rtol=0, atol=part * largest)


# (images, filters, kernel, padding): each has 2^29 products and more. In 16 bits Hopper has a
# kernel that sums over up to 64 channels, forward and to the input's gradient. It takes rectangles
# of pixels, for two warpgroups each: some sizes are cut without a rest, and there are rests of
# rows, of columns and of filters, and images that are one rectangle across and several.
FEW_CHANNELS = {
    "whole": ((16, 32, 32, 64), 64, (3, 3), [1, 1, 1, 1]),
    "rows": ((9, 57, 33, 64), 64, (3, 3), [1, 1, 1, 1]),
    "columns": ((3, 33, 157, 64), 64, (3, 3), [1, 1, 1, 1]),
    "no_padding": ((7, 50, 48, 64), 64, (3, 3), [0, 0, 0, 0]),
    "wide_padding": ((7, 44, 47, 64), 64, (3, 3), [2, 2, 2, 2]),
    "one_side": ((11, 29, 54, 64), 64, (3, 3), [2, 0, 0, 2]),
    "fewer": ((9, 56, 40, 56), 64, (3, 3), [1, 1, 1, 1]),
    "more_filters": ((13, 31, 32, 64), 136, (3, 3), [1, 1, 1, 1]),
    "fewer_filters": ((17, 32, 31, 64), 56, (3, 3), [1, 1, 1, 1]),
    "two_taps": ((31, 35, 34, 64), 64, (2, 2), [0, 1, 0, 1]),
    "row_of_taps": ((31, 28, 57, 64), 64, (1, 5), [0, 0, 2, 2]),
    "column_of_taps": ((31, 57, 28, 64), 64, (5, 1), [2, 2, 0, 0]),
}


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize("op", ["conv2d", "conv2d_relu", "conv2d_dgrad"])
@pytest.mark.parametrize("name", FEW_CHANNELS)
def test_convolutions_of_few_channels(name, op, dtype, device, rng):
    """NaN in a pixel gets into the results that read it, and nowhere else."""
    images, filters, kernel, padding = FEW_CHANNELS[name]
    height, width = (
        images[i + 1] + padding[2 * i] + padding[2 * i + 1] - kernel[i] + 1 for i in (0, 1)
    )
    weights = (*kernel, images[3], filters)
    assert images[0] * height * width * np.prod(weights) >= 2**29
    if device == "cpu":  # which has no kernel for many
        images = (2, *images[1:])
    given = (images[0], height, width, filters) if op == "conv2d_dgrad" else images
    inputs = [rng.integers(-8, 9, shape) / 8 for shape in (given, weights)]
    if op == "conv2d_relu":
        inputs.append(rng.integers(-8, 9, filters))
    inputs[0][1, 7, -1, 5] = inputs[0][1, -1, 3, -1] = np.nan
    attributes: dict[str, Any] = {
        "strides": [1, 1],
        "padding": padding,
        "dilations": [1, 1],
        "groups": 1,
    }
    if op == "conv2d_dgrad":
        attributes["input_shape"] = list(images)
    else:
        activation = "relu" if op == "conv2d_relu" else "linear"
        attributes |= {"activation": activation, "activation_alpha": 0.0}
    op = op.removesuffix("_relu")
    wanted = REFERENCES[op](*inputs, **attributes)
    narrow = np.dtype(getattr(ml_dtypes, dtype, dtype))
    tensors = [_core.from_numpy(a.astype(narrow), device) for a in inputs]
    found = _core.apply(op, tensors, attributes)[0].numpy().astype(np.float64)
    assert 0 < np.isnan(wanted).sum() <= 2 * np.prod(kernel) * wanted.shape[3]
    # The sums are exact and are rounded once, or twice where a separate kernel adds the bias.
    part = 2 * float(ml_dtypes.finfo(narrow).eps)
    np.testing.assert_allclose(found, wanted, rtol=0, atol=part * np.nanmax(np.abs(wanted)))


@pytest.mark.parametrize("op", ["conv2d", "conv2d_dgrad"])
@pytest.mark.parametrize("name", FEW_CHANNELS)
def test_hopper_takes_the_kernel_of_few_channels(name, op, cuda_device):
    (description,) = [d for n, _, d in _core.list_devices() if n == cuda_device]
    if "9.0" not in description:
        pytest.skip(f"{description}: other kernels than on compute capability 9.0")
    images, filters, kernel, padding = FEW_CHANNELS[name]
    attributes: dict[str, Any] = {
        "strides": [1, 1],
        "padding": padding,
        "dilations": [1, 1],
        "groups": 1,
    }
    given = images
    if op == "conv2d_dgrad":
        attributes["input_shape"] = list(images)
        height, width = (
            images[i + 1] + padding[2 * i] + padding[2 * i + 1] - kernel[i] + 1 for i in (0, 1)
        )
        given = (images[0], height, width, filters)
    else:
        attributes |= {"activation": "linear", "activation_alpha": 0.0}
    graph = _core.Graph()
    x = graph.input("x", given, "bfloat16")
    weights = graph.input("kernel", (*kernel, images[3], filters), "bfloat16")
    outputs = graph.apply(op, [x, weights], attributes)
    (call,) = _core.Program.compile(graph, outputs, cuda_device).describe()
    is_many = op == "conv2d_dgrad" and filters > 64  # channels that are summed
    assert (call["kernel"] == "kerascnn conv2d_warpgroups") != is_many


# Results of 2^22 elements and more: GPUs may use engines there that end with bias and activation.
LARGE_RESULTS = {
    "three_rows": ((17, 64, 61, 8), (3, 3, 8, 64), 1),
    "pointwise": ((21, 41, 43, 136), (1, 1, 136, 136), 1),
    "downsampling": ((33, 63, 62, 16), (2, 2, 16, 160), 2),
    "first_layer": ((43, 64, 61, 3), (3, 3, 3, 32), 1),
    "odd_filters": ((31, 62, 63, 16), (3, 3, 16, 35), 1),
    "one_filter": ((257, 128, 129, 3), (1, 1, 3, 1), 1),
}


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize("activation", ["linear", "relu", "leaky_relu"])
@pytest.mark.parametrize("has_bias", [True, False])
@pytest.mark.parametrize("name", LARGE_RESULTS)
def test_bias_and_activation_of_large_results(name, has_bias, activation, dtype, device, rng):
    """NaN, in one image, stays NaN."""
    images, kernel, stride = LARGE_RESULTS[name]
    if device == "cpu":  # It takes the same kernels for five images.
        images = (5, *images[1:])
    padding = kernel[0] // 2 if stride == 1 else 0
    inputs = [rng.integers(-4, 5, shape) / 4 for shape in (images, kernel)]
    inputs[0][1, 5, 7, 0] = np.nan
    if has_bias:
        inputs.append(rng.integers(-4, 5, kernel[3]) / 4)
    attributes: dict[str, Any] = {
        "strides": [stride] * 2,
        "padding": [padding] * 4,
        "dilations": [1, 1],
        "groups": 1,
        "activation": activation,
        "activation_alpha": 0.25 if activation == "leaky_relu" else 0.0,
    }
    wanted = REFERENCES["conv2d"](*inputs, **attributes)
    narrow = np.dtype(getattr(ml_dtypes, dtype, dtype))
    tensors = [_core.from_numpy(a.astype(narrow), device) for a in inputs]
    found = _core.apply("conv2d", tensors, attributes)[0].numpy().astype(np.float64)
    assert np.isnan(found).any()
    # As above: the sum is rounded once or twice, in float32 not at all but by Winograd's matrices.
    part = 2 * float(ml_dtypes.finfo(narrow).eps)
    if dtype == "float32":
        part = 0 if device == "cpu" else 2**-10
    np.testing.assert_allclose(found, wanted, rtol=0, atol=part * np.nanmax(np.abs(wanted)))


# 1x1 kernels with more than 2^26 products and an activation that cuDNN does not have: GPUs have a
# kernel that takes 128 rows and columns and 32 or 64 channels at a time; there are rests of each.
POINTWISE = {
    "few_channels": ((37, 45, 43, 16), 96),
    "few_filters": ((13, 64, 61, 24), 72),
    "two_slices": ((23, 31, 29, 40), 240),
    "many_filters": ((11, 14, 13, 192), 1160),
    "many_channels": ((9, 17, 19, 328), 136),
}


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize("activation", ["clipped_relu", "silu", "gelu"])
@pytest.mark.parametrize("name", POINTWISE)
def test_pointwise_convolutions_with_an_activation(name, activation, dtype, device, rng):
    """NaN in a pixel gets into its own results and nowhere else."""
    images, filters = POINTWISE[name]
    assert np.prod(images) * filters > 2**26
    if device == "cpu":  # which has no kernel for many
        images = (2, *images[1:])
    has_bias = name != "few_filters"
    inputs = [rng.integers(-4, 5, shape) / 4 for shape in (images, (1, 1, images[3], filters))]
    inputs[0][1, 5, 7, 0] = np.nan
    if has_bias:
        inputs.append(rng.integers(-4, 5, filters) / 4)
    attributes: dict[str, Any] = {
        "strides": [1, 1],
        "padding": [0] * 4,
        "dilations": [1, 1],
        "groups": 1,
        "activation": activation,
        "activation_alpha": 6.0 if activation == "clipped_relu" else 0.0,
    }
    with np.errstate(invalid="ignore"):
        wanted = REFERENCES["conv2d"](*inputs, **attributes)
    narrow = np.dtype(getattr(ml_dtypes, dtype, dtype))
    tensors = [_core.from_numpy(a.astype(narrow), device) for a in inputs]
    found = _core.apply("conv2d", tensors, attributes)[0].numpy().astype(np.float64)
    assert np.isnan(wanted).sum() == filters
    # The sums are exact. Each result is rounded once or twice, and in float32 exp, a sum and a
    # quotient make errors of a few units in the last place.
    part = (16 if dtype == "float32" else 2) * float(ml_dtypes.finfo(narrow).eps)
    np.testing.assert_allclose(found, wanted, rtol=0, atol=part * np.nanmax(np.abs(wanted)))
