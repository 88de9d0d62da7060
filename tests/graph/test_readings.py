"""Gradients end at readings of variables, and a tape marks which part of a graph it recorded."""

import numpy as np
import pytest

from kerascnn import _core

NEVER = 2**31 - 1


def number(value, device):
    return _core.from_numpy(np.float32(value), device)


def run(graph, outputs, inputs, device):
    program = _core.Program.compile(graph, outputs, device)
    program.run([number(x, device) for x in inputs])
    return [float(t.numpy()) for t in program.outputs()]


def test_each_reading_is_a_value_of_its_own_that_gradients_end_at(device):
    graph = _core.Graph()
    variable = _core.Variable("w", number(3.0, device))
    first = graph.reading(variable)
    (square,) = graph.apply("square", [first])
    graph.assign(variable, square)
    second = graph.reading(variable)
    (loss,) = graph.apply("multiply", [second, first])
    by_first, by_second, by_square = graph.gradients(loss, [first, second, square])
    assert by_square is None
    assert graph.variable_of(second) is variable and graph.variable_of(square) is None
    assert run(graph, [loss, by_first, by_second], [], device) == [27.0, 9.0, 3.0]
    assert float(variable.value.numpy()) == 9.0


def test_a_reading_that_is_assigned_back_is_no_assignment():
    graph = _core.Graph()
    variable = _core.Variable("w", number(3.0, "cpu"))
    graph.assign(variable, graph.reading(variable))
    assert "assign" not in graph.to_string()


def test_an_update_that_has_no_gradient_ends_at_the_next_reading():
    graph = _core.Graph()
    variable = _core.Variable("w", _core.zeros([2], "float32", "cpu"))
    rate = graph.full([], "float32", 0.1)
    attributes = {"count": 1, "momentum": 0.0, "nesterov": False}
    weight = graph.reading(variable)
    (updated,) = graph.apply("sgd_update", [rate, weight, weight], attributes)
    axes = {"axes": [0], "keepdims": False}
    (through,) = graph.apply("reduce_sum", [updated], axes)
    with pytest.raises(ValueError, match="sgd_update.*not differentiable"):
        graph.gradients(through, [weight])
    graph.assign(variable, updated)
    again = graph.reading(variable)
    (loss,) = graph.apply("reduce_sum", [again], axes)
    before, own = graph.gradients(loss, [weight, again])
    assert own is not None and before is None


def test_a_tape_has_spans_and_what_it_watched_since(device):
    graph = _core.Graph()
    x = graph.input("x", [], "float32")
    start = graph.num_values
    (a,) = graph.apply("multiply", [x, x])
    middle = graph.num_values
    (b,) = graph.apply("multiply", [a, x])
    end = graph.num_values

    def gradients(sources, spans, watched):
        return graph.gradients_of([b], [None], sources, spans, watched)

    everything = [(start, NEVER)]
    (through,) = gradients([[x]], everything, [(x, start)])  # 3 x^2
    (late,) = gradients([[x]], everything, [(x, middle)])  # only the second call counts: a
    (inside,) = gradients([[x]], [(middle, end)], [(x, start)])  # the result is the same
    (both,) = gradients([[x, a]], [(middle, end)], [(x, start), (a, middle)])  # a + x
    assert gradients([[x]], everything, []) == [None]  # x is not watched
    assert gradients([[x]], [(start, middle)], [(x, start)]) == [None]  # b was not recorded
    found = run(graph, [through, late, inside, both], [3.0], device)
    assert found == [27.0, 9.0, 9.0, 12.0]
