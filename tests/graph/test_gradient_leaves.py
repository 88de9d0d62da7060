"""Leaves of a differentiation: no gradient goes through what they were computed by."""

import numpy as np
import pytest

from kerascnn import _core


def test_no_gradient_goes_through_a_leaf_but_one_reaches_it(device):
    graph = _core.Graph()
    x = graph.input("x", [], "float32")
    (square,) = graph.apply("square", [x])
    (loss,) = graph.apply("multiply", [square, x])
    through = graph.gradients(loss, [x, square])
    around = graph.gradients(loss, [x, square], [square])
    program = _core.Program.compile(graph, [*through, *around], device)
    program.run([_core.from_numpy(np.float32(3.0), device)])
    # d(x^2 x)/dx is 3 x^2; with x^2 given it is x^2.
    assert [float(t.numpy()) for t in program.outputs()] == [27.0, 3.0, 9.0, 3.0]


def test_an_update_that_has_no_gradient_may_be_a_leaf():
    graph = _core.Graph()
    weight = graph.input("weight", [2], "float32")
    rate = graph.full([], "float32", 0.1)
    attributes = {"count": 1, "momentum": 0.0, "nesterov": False}
    (updated,) = graph.apply("sgd_update", [rate, weight, weight], attributes)
    (loss,) = graph.apply("reduce_sum", [updated], {"axes": [0], "keepdims": False})
    with pytest.raises(ValueError, match="sgd_update.*not differentiable"):
        graph.gradients(loss, [weight])
    own, before = graph.gradients(loss, [updated, weight], [updated])
    assert own is not None and before is None
