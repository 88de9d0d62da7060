"""What calls compute and move, according to the definitions of the ops."""

import math

import pytest

from kerascnn import _core


def described(op, specs, attributes=None):
    graph = _core.Graph()
    inputs = [graph.input(f"x{i}", list(shape), dtype) for i, (dtype, shape) in enumerate(specs)]
    outputs = graph.apply(op, inputs, attributes or {})
    (call,) = _core.Program.compile(graph, outputs, "cpu", optimize=False).describe()
    return call


def f32(*shape):
    return "float32", shape


def test_convolutions():
    x, w, y = f32(8, 13, 12, 3), f32(3, 5, 3, 7), f32(8, 10, 6, 7)
    geometry = {"strides": [1, 2], "padding": [0, 1, 2, 2], "dilations": [2, 1], "groups": 1}
    # There are (13 + 1 - 5) + 1 = 10 positions down and (12 + 4 - 5) // 2 + 1 = 6 across.
    flop = 2 * 8 * 10 * 6 * 3 * 5 * 3 * 7
    plain = {**geometry, "activation": "linear", "activation_alpha": 0.0}
    forward = described("conv2d", [x, w], plain)
    dgrad = described("conv2d_dgrad", [y, w], {**geometry, "input_shape": list(x[1])})
    wgrad = described("conv2d_wgrad", [x, y], {**geometry, "kernel_shape": list(w[1])})
    assert [call["flop"] for call in (forward, dgrad, wgrad)] == [flop] * 3
    moved = 4 * (8 * 13 * 12 * 3 + 3 * 5 * 3 * 7 + 8 * 10 * 6 * 7)
    assert [call["bytes"] for call in (forward, dgrad, wgrad)] == [moved] * 3
    assert forward["memory_bytes"] >= 4 * 8 * 10 * 6 * 7


def test_groups_have_fewer_operations():
    geometry = {"strides": [1, 1], "padding": [1, 1, 1, 1], "dilations": [1, 1], "groups": 2}
    plain = {**geometry, "activation": "linear", "activation_alpha": 0.0}
    call = described("conv2d", [f32(2, 5, 5, 4), f32(3, 3, 2, 6)], plain)
    assert call["flop"] == 2 * 2 * 5 * 5 * 9 * 2 * 6


@pytest.mark.parametrize("transpose_a", [False, True])
@pytest.mark.parametrize("transpose_b", [False, True])
def test_products(transpose_a, transpose_b):
    a, b = ((2, 5, 4) if transpose_a else (2, 4, 5)), ((2, 6, 5) if transpose_b else (2, 5, 6))
    attributes = {"transpose_a": transpose_a, "transpose_b": transpose_b}
    call = described("matmul", [f32(*a), f32(*b)], attributes)
    assert call["flop"] == 2 * 2 * 4 * 5 * 6
    assert call["bytes"] == 4 * (2 * 4 * 5 + 2 * 5 * 6 + 2 * 4 * 6)
    plain = {"activation": "linear", "activation_alpha": 0.0}
    assert described("dense", [f32(3, 4), f32(4, 7)], plain)["flop"] == 2 * 3 * 4 * 7


def test_elements_and_copies():
    assert described("add", [f32(3, 5), f32(5)])["flop"] == 15
    assert described("softmax", [f32(3, 5)], {"axis": -1})["flop"] == 5 * 15
    transposed = described("transpose", [f32(3, 5)], {"permutation": [1, 0]})
    assert (transposed["flop"], transposed["bytes"]) == (0, 2 * 4 * 15)
    summed = described("reduce_sum", [f32(3, 5)], {"axes": [0], "keepdims": False})
    assert summed["flop"] == 15


def test_a_batch_is_not_the_whole_data_set():
    specs = [("uint8", (1000, 4)), ("int32", (1000,)), ("int64", ())]
    call = described("take_batch", specs, {"batch_size": 8})
    assert (call["flop"], call["bytes"]) == (0, 2 * 8 * 4)


def test_every_op_has_a_cost_of_its_size():
    """The cost of a region is that of all its ops."""
    graph = _core.Graph()
    x = graph.input("x", [6, 7], "float32")
    y = graph.apply("tanh", graph.apply("exp", [x]))[0]
    z = graph.apply("multiply", [y, x])[0]
    (call,) = _core.Program.compile(graph, [z], "cpu").describe()
    assert call["op"] == "region"
    assert call["flop"] == 3 * math.prod((6, 7))
    assert call["bytes"] == 2 * 4 * 6 * 7
