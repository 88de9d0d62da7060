"""Programs tell about their kernel calls and how long these take."""

import numpy as np
import pytest

from .helpers import Tracer, tensor, variable


def counting_program(optimize=False):
    """Adds x to a total and one to a counter. The output is tanh of the old total times x."""
    t = Tracer()
    total, counter = variable("total", [1.0, 2.0]), variable("counter", 0, "int64")
    x = t.input([2])
    old = t.graph.read(total)
    t.graph.assign(total, t.add(old, x))
    t.graph.assign(counter, t.add(t.graph.read(counter), t.full([], 1, "int64")))
    w = t.matmul2(t.reshape(old, shape=[1, 2]), t.reshape(x, shape=[2, 1]))
    return t.compile(t.tanh(w), optimize=optimize), total, counter


def test_describes_each_kernel_call():
    program, _, _ = counting_program()
    calls = program.describe()
    assert len(calls) == program.stats()["num_instructions"]
    lines = program.to_string().splitlines()
    assert [f"{call['label']}: {call['kernel']}" for call in calls] == [
        line.split(" -> ")[0] for line in lines
    ]
    (product,) = (call for call in calls if call["op"] == "matmul")
    assert product["inputs"] == [("float32", (1, 2)), ("float32", (2, 1))]
    assert product["outputs"] == [("float32", (1, 1))]
    assert product["attributes"] == {"transpose_a": False, "transpose_b": False}


def test_outputs_that_nobody_reads_are_left_out():
    t = Tracer()
    x = t.input([1, 4, 4, 3])
    window = {"window": [2, 2], "strides": [2, 2], "padding": [0] * 4}
    values, positions = t.all("max_pool2d", x, **window)
    (alone,) = t.compile(values).describe()
    (both,) = t.compile(values, positions).describe()
    assert alone["outputs"] == [("float32", (1, 2, 2, 3))]
    assert both["outputs"] == [("float32", (1, 2, 2, 3)), ("uint8", (1, 2, 2, 3))]


def test_dependencies_of_a_step_and_of_several():
    program, _, _ = counting_program()
    calls = program.describe()
    once, twice = program.dependencies(), program.dependencies(2)
    assert (len(once), len(twice)) == (len(calls), 2 * len(calls))
    assert twice[: len(calls)] == once
    assert all(before < i for i, waits in enumerate(twice) for before in waits)
    names = [call["op"] for call in calls]
    # tanh waits for the product, and the product of the second step waits for the first step's
    # total.
    assert once[names.index("tanh")] == [names.index("matmul")]
    assert any(before < len(calls) for before in twice[len(calls) + names.index("matmul")])
    with pytest.raises(ValueError, match="repeats must be at least 1"):
        program.dependencies(0)
    most = 2**20 // len(calls)
    for repeats in (most + 1, 2**31, 2**63 - 1):  # lists for all of these would take all memory
        with pytest.raises(ValueError, match=f"repeats must be at most {most} for a step of"):
            program.dependencies(repeats)
    assert len(program.dependencies(most)) == most * len(calls)


@pytest.mark.parametrize("optimize", [True, False])
def test_times_leave_variables_as_they_were(optimize):
    program, total, counter = counting_program(optimize)
    inputs = [tensor([1, 10], "float32")]
    program.run(inputs)
    rows = program.time_instructions(inputs, passes=3, repeats=5)
    assert np.shape(rows) == (3, program.stats()["num_instructions"])
    assert np.all(np.asarray(rows) > 0)
    np.testing.assert_array_equal(total.value.numpy(), [2, 12])
    assert counter.value.numpy() == 1
    program.run(inputs)
    np.testing.assert_array_equal(total.value.numpy(), [3, 22])
    np.testing.assert_allclose(
        program.outputs()[0].numpy(), np.tanh(np.float32([[122]])), rtol=1e-6
    )


def test_what_times_need():
    program, _, _ = counting_program()
    inputs = [tensor([1, 10], "float32")]
    for passes, repeats in ((0, 1), (1, 0)):
        with pytest.raises(ValueError, match=f"at least 1, received {passes} and {repeats}"):
            program.time_instructions(inputs, passes, repeats)
    with pytest.raises(ValueError, match="expected 1 inputs, received 0"):
        program.time_instructions([], 1, 1)
