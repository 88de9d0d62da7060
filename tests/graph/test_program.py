"""Compiled programs have the right state and memory, and check their inputs."""

import numpy as np
import pytest

from kerascnn import _core

from .helpers import Tracer, memory, num_allocations, tensor, variable

both = pytest.mark.parametrize("optimize", [True, False])


@both
def test_state_carries_from_step_to_step(optimize):
    t = Tracer()
    total = variable("total", [1.0, 2.0])
    x = t.input([2])
    t.graph.assign(total, t.add(t.graph.read(total), x))
    program = t.compile(optimize=optimize)
    program.run([tensor([1, 10], "float32")])
    program.run([tensor([1, 10], "float32")], 4)
    np.testing.assert_array_equal(total.value.numpy(), [6, 52])


@both
def test_outputs_see_the_value_before_or_after_the_update(optimize):
    t = Tracer()
    v = variable("v", [1.0])
    old = t.graph.read(v)
    t.graph.assign(v, t.add(old, t.full([1], 1.0)))
    program = t.compile(old, t.graph.read(v), optimize=optimize)
    program.run([], 3)
    assert [float(output.numpy()[0]) for output in program.outputs()] == [3.0, 4.0]
    assert v.value.numpy()[0] == 4.0


@both
def test_two_variables_swap(optimize):
    t = Tracer()
    a, b = variable("a", [1.0, 2.0]), variable("b", [3.0, 4.0])
    old_a, old_b = t.graph.read(a), t.graph.read(b)
    t.graph.assign(a, old_b)
    t.graph.assign(b, old_a)
    program = t.compile(optimize=optimize)
    program.run([])
    np.testing.assert_array_equal(a.value.numpy(), [3, 4])
    np.testing.assert_array_equal(b.value.numpy(), [1, 2])
    program.run([], 4)
    np.testing.assert_array_equal(a.value.numpy(), [3, 4])


@both
def test_three_variables_rotate_while_one_is_updated(optimize):
    t = Tracer()
    a, b, c = (variable(name, [value]) for name, value in zip("abc", (1.0, 2.0, 3.0), strict=True))
    old = [t.graph.read(v) for v in (a, b, c)]
    t.graph.assign(a, old[1])
    t.graph.assign(b, old[2])
    t.graph.assign(c, t.add(old[0], old[2]))
    program = t.compile(optimize=optimize)
    program.run([], 2)
    expected = [1.0, 2.0, 3.0]
    for _ in range(2):
        expected = [expected[1], expected[2], expected[0] + expected[2]]
    assert [float(v.value.numpy()[0]) for v in (a, b, c)] == expected


@both
def test_assigning_an_input_a_constant_and_another_variable(optimize):
    t = Tracer()
    from_input, from_constant, from_variable, source = (
        variable(name, [0.0, 0.0]) for name in ("i", "c", "v", "s")
    )
    source.assign(tensor([7, 8], "float32"))
    t.graph.assign(from_input, t.input([2]))
    t.graph.assign(from_constant, t.graph.constant(tensor([5, 6], "float32")))
    t.graph.assign(from_variable, t.graph.read(source))
    t.compile(optimize=optimize).run([tensor([3, 4], "float32")])
    np.testing.assert_array_equal(from_input.value.numpy(), [3, 4])
    np.testing.assert_array_equal(from_constant.value.numpy(), [5, 6])
    np.testing.assert_array_equal(from_variable.value.numpy(), [7, 8])


@both
def test_last_assignment_wins_and_one_value_goes_to_two_variables(optimize):
    t = Tracer()
    a, b = variable("a", [1.0]), variable("b", [1.0])
    value = t.exp(t.input([1]))
    t.graph.assign(a, t.full([1], 100.0))
    t.graph.assign(a, value)
    t.graph.assign(b, value)
    program = t.compile(value, optimize=optimize)
    program.run([tensor([0], "float32")])
    assert a.value.numpy()[0] == b.value.numpy()[0] == program.outputs()[0].numpy()[0] == 1.0


@both
def test_variable_assigned_through_a_view(optimize):
    t = Tracer()
    v = variable("v", [[1.0, 2.0], [3.0, 4.0]])
    flat = t.reshape(t.graph.read(v), shape=[4])
    t.graph.assign(v, t.reshape(t.square(flat), shape=[2, 2]))
    t.compile(optimize=optimize).run([])
    np.testing.assert_array_equal(v.value.numpy(), [[1, 4], [9, 16]])


@both
def test_updates_that_are_no_element_ops_do_not_overwrite_what_they_read(optimize):
    t = Tracer()
    rng = np.random.default_rng(0)
    matrix = rng.normal(size=(8, 8)).astype("float32")
    v = variable("v", matrix)
    t.graph.assign(v, t.matmul2(t.graph.read(v), t.graph.read(v)))
    t.compile(optimize=optimize).run([])
    # Each element is a float32 sum of 8 products.
    np.testing.assert_allclose(v.value.numpy(), matrix @ matrix, rtol=1e-5, atol=1e-5)


def test_outputs_do_not_change_with_the_variable():
    t = Tracer()
    v = variable("v", [1.0])
    new = t.add(t.graph.read(v), t.full([1], 1.0))
    t.graph.assign(v, new)
    program = t.compile(new)
    program.run([])
    v.assign(tensor([50], "float32"))
    assert program.outputs()[0].numpy()[0] == 2.0


def test_the_variable_keeps_its_memory():
    t = Tracer()
    v = variable("v", np.zeros(1000))
    view = v.value
    t.graph.assign(v, t.add(t.graph.read(v), t.full([1000], 1.0)))
    program = t.compile()
    program.run([])
    assert view.numpy()[999] == 1.0
    # The sum is computed in the variable's memory by one instruction.
    assert program.stats()["arena_bytes"] == 0 and program.stats()["num_instructions"] == 1


def test_nothing_is_allocated_after_the_first_run():
    t = Tracer()
    w = variable("w", np.ones((16, 4)))
    x = t.input([8, 16])
    loss = t.sum(t.square(t.matmul2(x, t.graph.read(w))))
    (gradient,) = t.graph.gradients(loss, [t.graph.read(w)])
    t.graph.assign(w, t.subtract(t.graph.read(w), t.multiply(gradient, t.full([], 1e-4))))
    program = t.compile(loss)
    data = tensor(np.ones((8, 16)), "float32")
    program.run([data])
    before = num_allocations()
    for _ in range(10):
        program.run([data])
    program.run([data], 100)
    assert num_allocations() == before


def test_alternating_inputs_allocate_nothing_either():
    t = Tracer()
    program = t.compile(t.negative(t.input([4])))
    data = [tensor(np.full(4, i), "float32") for i in range(3)]
    for array in data:
        program.run([array])
    before = num_allocations()
    for i in (2, 0, 1, 1, 0, 2):
        program.run([data[i]])
        assert program.outputs()[0].numpy()[0] == -i
    assert num_allocations() == before


def test_its_own_output_can_be_an_input():
    t = Tracer()
    x = t.input([256])
    program = t.compile(t.add(t.add(x, t.full([256], 1.0)), x))
    program.run([tensor(np.ones(256), "float32")])
    for _ in range(3):
        program.run(program.outputs())
    assert set(program.outputs()[0].numpy()) == {31.0}


def test_the_memory_of_an_updated_variable_can_be_an_input():
    t = Tracer()
    v = variable("v", np.ones(8))
    x = t.input([8])
    updated = t.add(t.graph.read(v), t.full([8], 1.0))
    t.graph.assign(v, updated)
    late = t.multiply(t.reduce_sum(updated, axes=[0], keepdims=True), x)
    program = t.compile(late)
    program.run([v.value])
    # x reads what the variable held when the run began.
    np.testing.assert_array_equal(program.outputs()[0].numpy(), np.full(8, 16.0))


def test_inputs_need_not_be_contiguous(device):
    if device != "cpu":
        pytest.skip("strided tensors come from other libraries' arrays, here NumPy's")
    t = Tracer()
    program = t.compile(t.exp(t.input([3, 2])))
    array = np.arange(6, dtype="float32").reshape(2, 3)
    program.run([_core.from_dlpack(array.T)])
    np.testing.assert_allclose(program.outputs()[0].numpy(), np.exp(array.T), rtol=1e-6)


def test_zero_sized_values():
    t = Tracer()
    x = t.input([0, 4])
    program = t.compile(t.exp(x), t.sum(x))
    program.run([tensor(np.zeros((0, 4)), "float32")])
    assert program.outputs()[0].shape == (0, 4)
    assert program.outputs()[1].numpy() == 0.0


def test_zero_steps_change_nothing():
    t = Tracer()
    v = variable("v", [1.0])
    t.graph.assign(v, t.full([1], 2.0))
    program = t.compile()
    program.run([], 0)
    assert v.value.numpy()[0] == 1.0
    with pytest.raises(ValueError, match="steps must not be negative, received -1"):
        program.run([], -1)


def test_unread_optional_outputs_take_no_memory():
    t = Tracer()
    x = t.input([1, 64, 64, 1])
    pooled = t.max_pool2d(x, window=[2, 2], strides=[2, 2], padding=[0, 0, 0, 0])
    stats = t.compile(pooled).stats()
    assert stats["arena_bytes"] == 32 * 32 * 4 * stats["num_arenas"]


def test_memory_is_reused():
    """In a chain only two values live at a time: the one that is read, and its result."""
    t = Tracer()
    x = t.input([64, 64])
    # It needs a result of its own, joins no other kernel and has no workspace.
    permute = {"permutation": [1, 0]}
    for _ in range(10):
        x = t.exp(t.transpose(x, **permute))
    stats = t.compile(x).stats()
    assert stats["num_instructions"] == 20
    assert stats["least_arena_bytes"] <= 2 * 64 * 64 * 4


def test_workspaces_are_shared():
    """Many products need as much memory for workspaces as two do, plus one value."""

    def arena_bytes(products):
        t = Tracer()
        x = t.input([64, 64])
        for _ in range(products):
            x = t.matmul2(x, x)
        return t.compile(x).stats()["least_arena_bytes"]

    assert arena_bytes(20) <= arena_bytes(2) + 64 * 64 * 4


@pytest.mark.parametrize(
    "inputs, expected",
    [
        ([], "expected 1 inputs, received 0"),
        (
            [np.zeros((3, 2), "float32")],
            r'input "x" must be float32 \(2, 3\), received float32 \(3, 2\)',
        ),
        ([np.zeros((2, 3))], r"received float64 \(2, 3\)"),
    ],
)
def test_wrong_inputs_are_named(inputs, expected):
    t = Tracer()
    program = t.compile(t.exp(t.input([2, 3])))
    with pytest.raises(ValueError, match=expected):
        program.run([tensor(array) for array in inputs])


def test_compiling_for_an_unknown_device_names_it():
    t = Tracer()
    with pytest.raises(ValueError, match="tpu"):
        _core.Program.compile(t.graph, [t.exp(t.input([1]))], "tpu")


def test_too_large_programs_leave_nothing_behind(settled_memory):
    t = Tracer()
    x = t.input([1 << 24])
    # 2^24 x 2^20 floats are 64 TiB.
    big = t.broadcast_to(t.reshape(x, shape=[1 << 24, 1]), shape=[1 << 24, 1 << 20])
    total = t.sum(t.softmax(big, axis=-1))
    before = memory("allocated")
    with pytest.raises(_core.OutOfMemoryError) as error:
        t.compile(total)
    assert error.value.requested >= 1 << 46
    assert memory("allocated") == before
    small = Tracer()
    assert small.run([small.exp(small.input([1]))], [np.zeros(1, "float32")])[0][0] == 1.0


def test_programs_outlive_their_graph_and_results_their_program():
    t = Tracer()
    program = t.compile(t.exp(t.input([4])))
    del t
    program.run([tensor(np.zeros(4), "float32")])
    output = program.outputs()[0]
    del program
    np.testing.assert_array_equal(output.numpy(), np.ones(4))


def test_text_has_one_line_per_instruction():
    t = Tracer()
    t.graph.push_scope("layer_1")
    y = t.softmax(t.input([2, 3]), axis=-1)
    t.graph.pop_scope()
    lines = t.compile(y).to_string().splitlines()
    assert len(lines) == 1
    assert lines[0].startswith("softmax (layer_1): ")
    assert lines[0].endswith("-> float32 (2, 3)")
