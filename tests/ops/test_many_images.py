"""Convolutions with pooling run on batches so large that GPUs use other kernels for them."""

from __future__ import annotations

import numpy as np
import pytest

from kerascnn import _core

from . import fusions, harness
from .case import few_values
from .reference_conv_pooling import conv2d_max_pool2d

OP = "conv2d_max_pool2d"
SAME_3X3, SAME_5X5, VALID = (1, 1, 1, 1), (2, 2, 2, 2), (0, 0, 0, 0)
# (images, kernel, padding): on a GPU of 132 multiprocessors each of these is at least 3 pieces of
# work per multiprocessor. A piece is several small images, the last piece with fewer, or a band of
# rows of a large image, the last band with fewer rows.
LAYERS = {
    "second_layer_same": ((451, 14, 14, 32), (3, 3, 32, 64), SAME_3X3),
    "second_layer_valid": ((403, 13, 13, 32), (3, 3, 32, 64), VALID),
    "two_images": ((801, 12, 12, 6), (5, 5, 6, 16), VALID),
    "odd_channels": ((1203, 8, 9, 10), (3, 3, 10, 20), SAME_3X3),
    "one_cell": ((3301, 6, 6, 8), (5, 5, 8, 4), VALID),
    "three_tiles": ((411, 9, 15, 18), (3, 3, 18, 72), (1, 0, 2, 1)),
    "bands": ((140, 30, 22, 16), (3, 3, 16, 24), SAME_3X3),
    "bands_of_a_row": ((14, 60, 60, 40), (3, 3, 40, 72), SAME_3X3),
    "first_layer": ((801, 28, 28, 1), (3, 3, 1, 32), SAME_3X3),
    "first_layer_valid": ((402, 28, 28, 1), (3, 3, 1, 18), VALID),
    "lenet_1": ((407, 28, 27, 1), (5, 5, 1, 6), SAME_5X5),
    "odd_filters": ((1203, 9, 10, 2), (3, 3, 2, 7), (0, 2, 1, 0)),
    "two_channels": ((405, 7, 6, 2), (5, 5, 2, 3), SAME_5X5),
    "rgb": ((417, 10, 12, 3), (3, 3, 3, 40), SAME_3X3),
    "rgb_five_rows": ((399, 9, 9, 3), (5, 5, 3, 5), SAME_5X5),
    "large_first_layer": ((134, 86, 70, 1), (3, 3, 1, 4), SAME_3X3),
    "five_rows": ((413, 13, 14, 12), (5, 5, 12, 36), SAME_5X5),
}


@pytest.fixture(autouse=True)
def allow_tf32(monkeypatch):
    # The transforms of Winograd's algorithm round; test_cpu_winograd.py is about them.
    monkeypatch.setenv("KERASCNN_CPU_WINOGRAD", "0")
    with harness.tf32_off():  # it restores the setting
        _core.set_allow_tf32(True)
        yield


def attributes(padding, activation="relu"):
    return {
        "strides": [1, 1],
        "padding": list(padding),
        "dilations": [1, 1],
        "groups": 1,
        "window": [2, 2],
        "pool_strides": [2, 2],
        "pool_padding": [0, 0, 0, 0],
        "activation": activation,
        "activation_alpha": 0.25,
    }


def exact_inputs(rng, images, kernel, bias=True):
    """Draws inputs whose products and sums are small multiples of 1/8: TF32 adds them exactly."""
    inputs = [few_values(rng, *images), few_values(rng, *kernel) / 8]
    return [*inputs, few_values(rng, kernel[3]) / 8] if bias else inputs


def run(inputs, values, device):
    return fusions.call(OP, [x.astype(np.float32) for x in inputs], values, device)


def check(inputs, values, device):
    wanted = conv2d_max_pool2d(*inputs, **values)
    for result, expected in zip(run(inputs, values, device), wanted, strict=True):
        np.testing.assert_array_equal(result, expected)


@pytest.mark.parametrize("name", LAYERS)
def test_forward(name, device, rng):
    images, kernel, padding = LAYERS[name]
    check(exact_inputs(rng, images, kernel), attributes(padding), device)


@pytest.mark.parametrize("activation", ["linear", "leaky_relu"])
@pytest.mark.parametrize("name", ["odd_channels", "odd_filters"])
def test_other_activations_without_bias(name, activation, device, rng):
    images, kernel, padding = LAYERS[name]
    inputs = exact_inputs(rng, images, kernel, bias=False)
    check(inputs, attributes(padding, activation), device)


def test_rounded_factors(device, rng):
    """TF32 cannot hold these numbers, and results are as near as its rounding of factors allows."""
    images, kernel, padding = LAYERS["second_layer_same"]
    inputs = [rng.standard_normal(images), rng.standard_normal(kernel)]
    inputs = [x.astype(np.float32).astype(np.float64) for x in inputs]
    values = attributes(padding, "linear")
    y = run(inputs, values, device)[0].astype(np.float64)
    wanted = conv2d_max_pool2d(*inputs, **values)[0]
    # There are 288 products, each with a relative error below 2^-10 in 68 of 100 cases. Neither
    # maxima nor the mean over all results make the error larger.
    assert np.sqrt(np.mean((y - wanted) ** 2)) <= 2.0**-10 * np.sqrt(288)
    # If factors were truncated, this would be about 2^-10 of the results.
    assert abs(np.mean(y - wanted)) <= 2.0**-13 * np.mean(np.abs(wanted))


def test_the_same_bits_in_every_run_and_place(device, rng):
    images, kernel, padding = LAYERS["second_layer_valid"]
    x = rng.standard_normal(images)
    inputs = [np.concatenate([x, x[::-1]]), rng.standard_normal(kernel)]
    values = attributes(padding)
    first = run(inputs, values, device)
    for y in first:
        np.testing.assert_array_equal(y[: len(x)], y[len(x) :][::-1])
    for _ in range(3):
        for again, before in zip(run(inputs, values, device), first, strict=True):
            np.testing.assert_array_equal(again, before)


@pytest.mark.parametrize("activation", ["relu", "linear", "leaky_relu"])
@pytest.mark.parametrize("name", ["two_images", "bands", "odd_filters", "rgb", "lenet_1"])
def test_values_alone(name, activation, device, rng):
    """Nobody reads the positions of the maxima here, as in prediction."""
    images, kernel, padding = LAYERS[name]
    inputs = exact_inputs(rng, images, kernel)
    values = attributes(padding, activation)
    arrays = [x.astype(np.float32) for x in inputs]
    program = fusions.compile_nodes(OP, arrays, values, device, optimize=True, num_outputs=1)
    wanted = conv2d_max_pool2d(*inputs, **values)[0]
    np.testing.assert_array_equal(fusions.run(program, arrays, device)[0], wanted)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_what_is_not_finite_stays_in_its_windows(value, device, rng):
    images, kernel, padding = LAYERS["two_images"]
    inputs = exact_inputs(rng, images, kernel)
    inputs[1] = np.abs(inputs[1]) + 1 / 8  # infinity must not meet zero
    values = attributes(padding)
    clean = run(inputs, values, device)[0]
    inputs[0][800, 11, 11, 5] = value
    y = run(inputs, values, device)[0]
    assert not np.isfinite(y[800, 3, 3]).any()
    is_same = y == clean
    assert not is_same[800, 3, 3].any()
    is_same[800, 3, 3] = True
    assert is_same.all()


@pytest.mark.parametrize("name", LAYERS)
def test_hopper_takes_the_kernel_for_many_images(name, cuda_device):
    (description,) = [d for n, _, d in _core.list_devices() if n == cuda_device]
    if "9.0" not in description:
        pytest.skip(f"{description}: other kernels than on compute capability 9.0")
    images, kernel, padding = LAYERS[name]
    arrays = [np.zeros(images, np.float32), np.zeros(kernel, np.float32)]
    values = attributes(padding)
    program = fusions.compile_nodes(OP, arrays, values, cuda_device, optimize=True, num_outputs=1)
    (call,) = program.describe()
    few = "small_" if images[3] < 4 else ""
    assert call["kernel"] == f"kerascnn conv2d_max_pool2d_{few}many"
