"""Products and convolutions of bfloat16 on a CPU, which units for tiles compute where it has some.

Elsewhere float32 kernels compute them; what is tested here holds for both.
"""

import os
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from kerascnn import _core

from .reference import REFERENCES

# A result is a sum in float32, which is rounded to 8 bits. With an activation it may be rounded
# before that too (relu, which changes nothing).
ROUNDING = 2.0**-8
# A sum of n products is off by less than n times this of the sum of their magnitudes.
SUM_ROUNDING = 2.0**-24


def narrow(array):
    """The nearest numbers of bfloat16, in float64."""
    return np.asarray(array).astype(ml_dtypes.bfloat16).astype(np.float64)


def run(op, inputs, attributes):
    tensors = [_core.from_numpy(a.astype(ml_dtypes.bfloat16), "cpu") for a in inputs]
    result = _core.apply(op, tensors, attributes)[0]
    assert str(result.dtype) == "bfloat16"
    return result.numpy().astype(np.float64)


def check(op, inputs, attributes, count, activation=None):
    """Compares with float64. `count` is how many products a sum has."""
    found = run(op, inputs, attributes)
    wanted = REFERENCES[op](*inputs, **attributes)
    linear = {**attributes, "activation": "linear"} if activation else attributes
    magnitude = REFERENCES[op](*map(np.abs, inputs), **linear)
    # Slopes of activations are at most 1.13 (gelu); functions of float32 add their own rounding.
    error = ROUNDING * np.abs(wanted) + 1.2 * (count + 8) * SUM_ROUNDING * magnitude
    assert (np.abs(found - wanted) <= error).all()


@pytest.mark.parametrize("transpose_b", [False, True])
@pytest.mark.parametrize("transpose_a", [False, True])
@pytest.mark.parametrize(
    "batch, m, k, n",
    [
        *((1, 37, 129, 65), (1, 8, 1025, 200), (1, 300, 40, 17), (5, 33, 64, 31)),
        # Sums that are cut into parts, and a gradient of wide weights over few rows.
        *((1, 48, 2051, 80), (1, 400, 1100, 300), (2, 129, 257, 66)),
    ],
)
def test_products(batch, m, k, n, transpose_a, transpose_b, rng):
    a, b = narrow(rng.normal(size=(batch, m, k))), narrow(rng.normal(size=(batch, k, n)))
    inputs = [
        np.swapaxes(array, 1, 2) if is_transposed else array
        for array, is_transposed in ((a, transpose_a), (b, transpose_b))
    ]
    if batch == 1:
        inputs = [array[0] for array in inputs]
    attributes = {"transpose_a": transpose_a, "transpose_b": transpose_b}
    found = run("matmul", [np.ascontiguousarray(array) for array in inputs], attributes)
    wanted, magnitude = (a @ b).reshape(found.shape), (abs(a) @ abs(b)).reshape(found.shape)
    assert (np.abs(found - wanted) <= ROUNDING * abs(wanted) + k * SUM_ROUNDING * magnitude).all()


@pytest.mark.parametrize("activation", ["linear", "relu", "gelu", "silu", "tanh"])
@pytest.mark.parametrize("with_bias", [False, True])
@pytest.mark.parametrize("rows, depth, units", [(7, 100, 33), (64, 512, 10), (200, 65, 300)])
def test_dense(rows, depth, units, with_bias, activation, rng):
    inputs = [narrow(rng.normal(size=(rows, depth))), narrow(rng.normal(size=(depth, units)))]
    inputs += [narrow(rng.normal(size=units))] if with_bias else []
    attributes = {"activation": activation, "activation_alpha": 0.0}
    check("dense", inputs, attributes, depth, activation)


# Images, height, width, channels, filters, kernel, strides, dilations, groups: rows of many and of
# few pixels, channels that fill no vector, single pixels, too few channels for tiles, columns of
# taps that meet padding alone, and rows of outputs that do.
CONVOLUTIONS = [
    (3, 17, 19, 32, 48, (3, 3), (1, 1), (1, 1), 1),
    (5, 4, 4, 64, 80, (3, 3), (1, 1), (1, 1), 1),
    (2, 7, 7, 40, 33, (3, 3), (1, 1), (1, 1), 1),
    (4, 15, 12, 19, 70, (1, 1), (1, 1), (1, 1), 1),
    (4, 15, 12, 24, 40, (1, 1), (2, 2), (1, 1), 1),
    (2, 13, 21, 17, 32, (5, 3), (2, 1), (1, 1), 1),
    (2, 20, 18, 32, 16, (3, 3), (1, 1), (2, 2), 1),
    (2, 11, 13, 64, 32, (3, 3), (1, 1), (1, 1), 2),
    (2, 12, 11, 3, 32, (3, 3), (1, 1), (1, 1), 1),
    (2, 9, 10, 32, 32, (3, 3), (1, 1), (1, 1), 32),
    (4, 5, 1, 16, 32, (5, 3), (2, 2), (1, 1), 1),
    (5, 3, 1, 128, 32, (3, 3), (2, 2), (1, 1), 1),
    (1, 8, 1, 128, 32, (7, 7), (2, 2), (1, 1), 1),
    (2, 8, 8, 16, 16, (2, 2), (1, 1), (16, 16), 1),
    (2, 1, 9, 16, 16, (4, 1), (1, 1), (3, 1), 1),
]


def geometry_of(case):
    images, height, width, channels, filters, kernel, strides, dilations, groups = case
    spans = [dilations[i] * (kernel[i] - 1) for i in range(2)]
    padding = [p for span in spans for p in ((span + 1) // 2, span // 2)]
    outputs = [
        (size + sum(padding[2 * i : 2 * i + 2]) - dilations[i] * (kernel[i] - 1) - 1) // strides[i]
        + 1
        for i, size in enumerate((height, width))
    ]
    attributes = {
        "strides": list(strides),
        "padding": padding,
        "dilations": list(dilations),
        "groups": groups,
    }
    shapes = [images, height, width, channels], [*kernel, channels // groups, filters]
    return *shapes, [images, *outputs, filters], attributes


@pytest.mark.parametrize("activation", ["linear", "relu", "gelu"])
@pytest.mark.parametrize("with_bias", [False, True])
@pytest.mark.parametrize("case", CONVOLUTIONS, ids=str)
def test_convolution(case, with_bias, activation, rng):
    images, kernel, _, geometry = geometry_of(case)
    inputs = [narrow(rng.normal(size=images)), narrow(rng.normal(size=kernel))]
    inputs += [narrow(rng.normal(size=kernel[-1]))] if with_bias else []
    attributes = {**geometry, "activation": activation, "activation_alpha": 0.0}
    check("conv2d", inputs, attributes, np.prod(kernel[:3]), activation)


@pytest.mark.parametrize("case", CONVOLUTIONS, ids=str)
def test_gradient_to_the_input(case, rng):
    images, kernel, outputs, geometry = geometry_of(case)
    inputs = [narrow(rng.normal(size=outputs)), narrow(rng.normal(size=kernel))]
    attributes = {**geometry, "input_shape": images}
    check("conv2d_dgrad", inputs, attributes, kernel[0] * kernel[1] * kernel[3])


@pytest.mark.parametrize("case", CONVOLUTIONS, ids=str)
def test_gradient_to_the_kernel(case, rng):
    images, kernel, outputs, geometry = geometry_of(case)
    inputs = [narrow(rng.normal(size=images)), narrow(rng.normal(size=outputs))]
    attributes = {**geometry, "kernel_shape": kernel}
    check("conv2d_wgrad", inputs, attributes, np.prod(outputs[:3]))


@pytest.mark.parametrize("case", CONVOLUTIONS, ids=str)
def test_nan_of_a_pixel_reaches_what_reads_it(case, rng):
    images, kernel, outputs, geometry = geometry_of(case)
    x, weights = rng.normal(size=images), rng.normal(size=kernel)
    attributes = {**geometry, "activation": "relu", "activation_alpha": 0.0}
    pixel = (images[0] - 1, images[1] // 4 * 2, images[2] // 4 * 2, 0)  # strides skip none of these
    x[pixel] = np.nan
    mark = np.zeros(images)
    mark[pixel] = 1.0
    linear = {**attributes, "activation": "linear"}
    reads = REFERENCES["conv2d"](mark, np.ones(kernel), **linear) > 0
    np.testing.assert_array_equal(np.isnan(run("conv2d", [x, weights], attributes)), reads)
    # A gradient to the kernel may carry it to all taps of its channel, and to no other.
    gradient = run(
        "conv2d_wgrad", [x, rng.normal(size=outputs)], {**geometry, "kernel_shape": kernel}
    )
    lost = np.isnan(gradient)
    of_channel = np.zeros(kernel, bool)
    of_channel[:, :, 0, : kernel[3] // case[-1]] = True
    assert lost[of_channel].any() == reads.any() and not lost[~of_channel].any()


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("op", ["softmax", "log_softmax"])
@pytest.mark.parametrize("length", [1, 3, 10, 200, 4096, 4099])
def test_softmax_of_16_bits(op, length, dtype, rng):
    kind = np.dtype(getattr(ml_dtypes, dtype, dtype))
    x = (4 * rng.normal(size=(5, length))).astype(kind)
    found = _core.apply(op, [_core.from_numpy(x, "cpu")], {"axis": 1})[0].numpy()
    shifted = x.astype(np.float64) - x.astype(np.float64).max(1, keepdims=True)
    wanted = shifted - np.log(np.exp(shifted).sum(1, keepdims=True))
    wanted = np.exp(wanted) if op == "softmax" else wanted
    # One rounding, and those of exponentials and sums in float32. A logarithm near 0 is what is
    # left of differences: four roundings of numbers as large as those.
    info = ml_dtypes.finfo(kind)
    largest = np.abs(shifted).max() + 1 + np.log(length)
    least = 4 * SUM_ROUNDING * largest if op == "log_softmax" else 0
    np.testing.assert_allclose(
        found.astype(np.float64), wanted, rtol=0.51 * info.eps, atol=max(least, info.tiny)
    )


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("overlap", [False, True])
def test_maxima_of_16_bits(overlap, dtype, rng):
    """Values and places are float32's, and overlapping windows add their gradients in float32."""
    kind = np.dtype(getattr(ml_dtypes, dtype, dtype))
    x = rng.normal(size=(2, 8, 10, 21)).astype(kind)
    attributes = {
        "window": [3, 3] if overlap else [2, 2],
        "strides": [2, 2],
        "padding": [1, 1, 1, 1] if overlap else [0] * 4,
    }
    results = [
        _core.apply("max_pool2d", [_core.from_numpy(array, "cpu")], attributes)
        for array in (x, x.astype(np.float32))
    ]
    (found, index), (wanted, wanted_index) = ([r.numpy() for r in pair] for pair in results)
    np.testing.assert_array_equal(found.astype(np.float32), wanted)
    np.testing.assert_array_equal(index, wanted_index)
    gy = rng.normal(size=found.shape).astype(kind)
    attributes["input_shape"] = list(x.shape)
    gradients = [
        _core.apply("max_pool2d_grad", [_core.from_numpy(g, "cpu"), results[0][1]], attributes)[0]
        for g in (gy, gy.astype(np.float32))
    ]
    narrowed, wide = (g.numpy() for g in gradients)
    np.testing.assert_array_equal(narrowed, wide.astype(kind))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_casts_in_regions_round_as_alone(dtype, rng):
    special = [np.nan, np.inf, -np.inf, 0.0, -0.0, 1e-40, 65519.9, 65520.0, 3.39e38]
    values = np.concatenate([rng.normal(size=70_001), special]).astype(np.float32)
    x = _core.from_numpy(values, "cpu")
    calls = [("cast", {"dtype": dtype}), ("negative", {}), ("relu", {})]
    graph, alone = _core.Graph(), x
    value = graph.input("x", values.shape, "float32")
    for op, attributes in calls:
        value, alone = (
            graph.apply(op, [value], attributes)[0],
            _core.apply(op, [alone], attributes)[0],
        )
    program = _core.Program.compile(graph, [value], "cpu")
    assert len(program.describe()) == 1
    program.run([x])
    found, wanted = (t.numpy().view(np.uint16) for t in (program.outputs()[0], alone))
    np.testing.assert_array_equal(found, wanted)


def has_units_for_tiles():
    info = Path("/proc/cpuinfo")
    limit = os.environ.get("ONEDNN_MAX_CPU_ISA", "ALL").upper()
    return info.exists() and " amx_bf16 " in info.read_text() and limit in ("ALL", "DEFAULT")


@pytest.mark.skipif(not has_units_for_tiles(), reason="the processor has no units for tiles (AMX)")
@pytest.mark.parametrize("case", CONVOLUTIONS[:6], ids=str)
def test_units_for_tiles_are_used(case):
    images, kernel, outputs, geometry = geometry_of(case)
    graph = _core.Graph()
    shapes = {"x": images, "w": kernel, "gy": outputs}
    x, w, gy = (graph.input(name, shape, "bfloat16") for name, shape in shapes.items())
    linear = {**geometry, "activation": "linear", "activation_alpha": 0.0}
    results = [
        *graph.apply("conv2d", [x, w], linear),
        *graph.apply("conv2d_dgrad", [gy, w], {**geometry, "input_shape": images}),
        *graph.apply("conv2d_wgrad", [x, gy], {**geometry, "kernel_shape": kernel}),
    ]
    calls = _core.Program.compile(graph, results, "cpu").describe()
    if not any("oneDNN" in call["kernel"] for call in calls):
        pytest.skip("built without oneDNN")
    assert all("amx" in call["kernel"] for call in calls), [call["kernel"] for call in calls]
