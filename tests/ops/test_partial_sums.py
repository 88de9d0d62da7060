"""Gradients that come as stacks of partial sums, and updates that add them up.

All numbers are small integers, so that products, sums in any order and updates are exact, even in
TF32. So results have to be equal, except those of libraries' kernels, which may transform their
inputs first.
"""

import numpy as np
import pytest

from kerascnn import _core

from . import fusions
from .reference import REFERENCES
from .reference_conv_pooling import conv2d_max_pool2d_wgrad

POOL = {"window": [2, 2], "pool_strides": [2, 2], "pool_padding": [0, 0, 0, 0]}
LINEAR = {"activation": "linear", "activation_alpha": 0.0}
WGRAD, POOLED = "conv2d_wgrad", "conv2d_max_pool2d_wgrad"


def convolution(kernel, padding=0, groups=1):
    return {
        "strides": [1, 1],
        "padding": [padding] * 4,
        "dilations": [1, 1],
        "groups": groups,
        "kernel_shape": list(kernel),
    }


# (op, input, attributes, dtype): these use own kernels of every kind, some with odd sizes.
CALLS = {
    "few channels": (WGRAD, (9, 28, 27, 1), convolution((5, 5, 1, 6)), "float32"),
    "tensor cores": (WGRAD, (32, 14, 14, 32), convolution((3, 3, 32, 32), 1), "float32"),
    "groups": (WGRAD, (3, 9, 11, 4), convolution((3, 3, 2, 6), 1, 2), "float32"),
    "depthwise": (WGRAD, (9, 13, 15, 6), convolution((3, 3, 1, 6), 1, 6), "float32"),
    "depthwise, 4x2": (WGRAD, (9, 13, 15, 6), convolution((4, 2, 1, 6), 1, 6), "float32"),
    "float64": (WGRAD, (5, 12, 13, 3), convolution((3, 2, 3, 5)), "float64"),
    "float16": (WGRAD, (4, 9, 8, 2), convolution((3, 3, 2, 4)), "float16"),
    "pooled, one channel": (POOLED, (64, 28, 28, 1), convolution((5, 5, 1, 32)), "float32"),
    "pooled, odd": (POOLED, (7, 13, 15, 3), convolution((3, 3, 3, 5), 1), "float32"),
    "pooled, tensor cores": (POOLED, (64, 12, 12, 32), convolution((5, 5, 32, 64)), "float32"),
    "pooled, in parts": (POOLED, (3, 14, 13, 6), convolution((3, 3, 6, 12), 1), "float32"),
    "pooled, float64": (POOLED, (2, 8, 9, 2), convolution((3, 3, 2, 4)), "float64"),
    "pooled, groups": (POOLED, (2, 8, 9, 4), convolution((3, 3, 2, 4), groups=2), "float32"),
}


LIBRARY = {"groups": 1e-5, "pooled, groups": 1e-5, "float16": 2.0**-10}  # relative errors


@pytest.fixture(autouse=True)
def with_tf32(monkeypatch):
    """TF32 is allowed, so that own kernels on tensor cores take part."""
    # The transforms of Winograd's algorithm round; test_cpu_winograd.py is about them.
    monkeypatch.setenv("KERASCNN_CPU_WINOGRAD", "0")
    before = _core.allow_tf32()
    _core.set_allow_tf32(True)
    yield
    _core.set_allow_tf32(before)


def assert_equal(actual, wanted, error=0.0):
    actual = np.asarray(actual, "float64")
    np.testing.assert_allclose(actual, wanted, rtol=0, atol=error * np.abs(wanted).max(initial=1.0))


def whole(rng, shape, dtype):
    return rng.integers(-2, 3, shape).astype(dtype)


def draw(name):
    """Returns the op, its inputs and attributes, and what its outputs have to be."""
    op, x_shape, attributes, dtype = CALLS[name]
    rng = np.random.default_rng(11)
    x = whole(rng, x_shape, dtype)
    kernel, padding = attributes["kernel_shape"], attributes["padding"][0]
    height, width = (x_shape[1 + i] + 2 * padding - kernel[i] + 1 for i in (0, 1))
    if op == WGRAD:
        inputs = [x, whole(rng, (x_shape[0], height, width, kernel[3]), dtype)]
    else:
        pooled = (x_shape[0], height // 2, width // 2, kernel[3])
        index = rng.integers(0, 4, pooled).astype("uint8")
        inputs = [x, whole(rng, pooled, dtype), whole(rng, pooled, dtype), index]
        attributes = {**attributes, **POOL, **LINEAR}
    wide = [a if a.dtype == np.uint8 else a.astype("float64") for a in inputs]
    reference = REFERENCES[op] if op == WGRAD else conv2d_max_pool2d_wgrad
    sums = reference(*wide, **attributes)
    return op, inputs, attributes, sums if isinstance(sums, tuple) else (sums,)


def train_step(name, optimizer, device, optimize=True):
    """Compiles a program that updates the parameters of the op, and a plain parameter."""
    op, inputs, attributes, sums = draw(name)
    dtype = inputs[0].dtype.name
    rng = np.random.default_rng(4)
    graph = _core.Graph()
    inputs = [*inputs, whole(rng, (3, 5), dtype)]
    arrays = [*sums, inputs[-1]]
    given = [graph.input("x", x.shape, x.dtype.name) for x in inputs]
    nodes = fusions.TRACE[op](fusions.Nodes(graph), inputs, *given[:-1], **attributes)
    gradients = [*nodes, given[-1]]
    slots = {"sgd": 1, "momentum": 2, "adam": 3}[optimizer]
    start = [np.abs(whole(rng, a.shape, dtype)) for _ in range(slots) for a in arrays]
    variables = [_core.Variable("v", _core.from_numpy(a, device)) for a in start]
    values = [graph.read(v) for v in variables]
    rate, count = graph.full([], "float32", 0.25), len(arrays)
    if optimizer == "adam":
        settings = {"count": count, "beta_1": 0.5, "beta_2": 0.75, "epsilon": 0.5}
        heads = [rate, graph.full([], "int64", 3)]
        scalars = [np.float64(0.25), np.int64(3)]
    else:
        momentum = 0.5 if slots == 2 else 0.0
        settings = {"count": count, "momentum": momentum, "nesterov": True}
        heads, scalars = [rate], [np.float64(0.25)]
    op = "adam_update" if optimizer == "adam" else "sgd_update"
    results = graph.apply(op, [*heads, *values[:count], *gradients, *values[count:]], settings)
    for v, result in zip(variables, results, strict=True):
        graph.assign(v, result)
    program = _core.Program.compile(graph, [], device, optimize=optimize, allow_tf32=True)
    wide = [a.astype("float64") for a in start]
    wanted = REFERENCES[op](*scalars, *wide[:count], *arrays, *wide[count:], **settings)
    return program, inputs, variables, wanted


def run(program, inputs, steps, device):
    program.run([_core.from_numpy(x, device) for x in inputs], steps)


# float16 parameters would be rounded, and their kernels make no stacks.
@pytest.mark.parametrize("optimizer", ["sgd", "momentum", "adam"])
@pytest.mark.parametrize("name", [name for name in CALLS if name != "float16"])
def test_an_update_adds_up_what_the_gradient_comes_in(name, optimizer, device):
    program, inputs, variables, wanted = train_step(name, optimizer, device)
    run(program, inputs, 1, device)
    received = [np.array(v.value.numpy()) for v in variables]
    for result, array in zip(received, wanted, strict=True):
        if optimizer == "adam":
            # Divisions and square roots are rounded about ten times.
            tolerance = 2.0**-20 if result.dtype == np.float32 else 2.0**-48
            np.testing.assert_allclose(result, array, rtol=tolerance, atol=tolerance)
        else:
            assert_equal(result, array, LIBRARY.get(name, 0.0))


@pytest.mark.parametrize("optimizer", ["sgd", "momentum", "adam"])
@pytest.mark.parametrize(
    "name", ["pooled, one channel", "pooled, tensor cores", "tensor cores", "depthwise"]
)
def test_the_same_bits_every_time(name, optimizer, device):
    results = []
    for _ in range(2):
        program, inputs, variables, _ = train_step(name, optimizer, device)
        thirds = [x if x.dtype == np.uint8 else x * np.float32(1 / 3) for x in inputs]
        run(program, thirds, 40, device)
        results.append([np.array(v.value.numpy()).tobytes() for v in variables])
    assert results[0] == results[1]


@pytest.mark.parametrize("name", [name for name in CALLS if "groups" not in name])
def test_kernels_that_make_partial_sums_leave_them_to_the_update(name, device):
    program, *_ = train_step(name, "sgd", device)
    calls = program.describe()
    stacks = [call["attributes"]["copies"] for call in calls if "copies" in call["attributes"]]
    if device == "cpu" or name == "float16":  # there are no such kernels
        assert not stacks
    else:
        assert len(stacks) == 1
    # The gradient that is an input is known before the other one.
    updates = [call["op"] for call in calls].count("sgd_update")
    assert updates == (1 if device == "cpu" else 2)
    plain, *_ = train_step(name, "sgd", device, optimize=False)
    assert all("copies" not in call["attributes"] for call in plain.describe())
