"""GradientTape: what it records, what it returns, and what it refuses."""

from __future__ import annotations

import gc
import threading
import weakref

import numpy as np
import pytest

import kerascnn as keras
from kerascnn import _core, ops


def tensor(values, dtype="float32"):
    return ops.convert_to_tensor(np.asarray(values, dtype))


def test_a_variable_is_watched_when_it_is_read():
    w = keras.Variable([1.0, 2.0], name="w")
    frozen = keras.Variable([1.0, 2.0], trainable=False)
    with keras.GradientTape() as tape:
        y = ops.sum(w * w + frozen)
    assert tape.watched_variables() == (w,)
    gradients = tape.gradient(y, {"w": w, "frozen": [frozen]})
    assert gradients["w"].numpy().tolist() == [2.0, 4.0]
    assert gradients["frozen"] == [None]


def test_without_watch_accessed_variables_only_what_is_asked_for_is_watched():
    a, b = keras.Variable(2.0), keras.Variable(3.0)
    with keras.GradientTape(watch_accessed_variables=False) as tape:
        tape.watch(a)
        y = a * b
    assert float(tape.gradient(y, a)) == 3.0
    assert tape.watched_variables() == (a,)


def test_a_frozen_variable_can_be_watched():
    w = keras.Variable(3.0, trainable=False)
    with keras.GradientTape() as tape:
        tape.watch(w)
        y = w * w
    assert float(tape.gradient(y, w)) == 6.0


def test_several_paths_add_up_and_several_targets_too():
    x = tensor([1.0, 2.0])
    with keras.GradientTape(persistent=True) as tape:
        tape.watch(x)
        a = x * x
        b = a * x + a
    np.testing.assert_allclose(tape.gradient(b, x).numpy(), [5.0, 16.0], rtol=1e-6)
    np.testing.assert_allclose(tape.gradient([a, b], x).numpy(), [7.0, 20.0], rtol=1e-6)
    np.testing.assert_allclose(tape.gradient(b, a).numpy(), [2.0, 3.0], rtol=1e-6)


def test_output_gradients_weight_the_elements():
    x = tensor([1.0, 2.0, 3.0])
    with keras.GradientTape() as tape:
        tape.watch(x)
        y = x * x
    gradient = tape.gradient(y, x, output_gradients=np.array([1.0, 0.0, -1.0], "float32"))
    assert gradient.numpy().tolist() == [2.0, 0.0, -6.0]


def test_unconnected_sources_are_none_or_zeros():
    x, other = tensor([1.0, 2.0]), tensor([[1.0, 2.0]])
    with keras.GradientTape(persistent=True) as tape:
        tape.watch([x, other])
        y = ops.sum(x)
    assert tape.gradient(y, other) is None
    zeros = tape.gradient(y, other, unconnected_gradients="zero")
    assert zeros.numpy().tolist() == [[0.0, 0.0]]
    with pytest.raises(ValueError, match="'none' or 'zero'"):
        tape.gradient(y, x, unconnected_gradients="nothing")


def test_stop_gradient_and_stop_recording():
    x = tensor(3.0)
    with keras.GradientTape() as tape:
        tape.watch(x)
        y = x * keras.stop_gradient(x)
        with tape.stop_recording():
            z = x * x
        y = y + z + x
    assert float(tape.gradient(y, x)) == 4.0


def test_another_tape_in_stop_recording_keeps_what_is_watched():
    """The outer tape does not record y, but it records the inner tape's gradient, which reads b."""
    a, b = tensor([0.1, 0.2]), tensor([0.3, 0.4])
    with keras.GradientTape() as outer:
        outer.watch(b)
        with outer.stop_recording(), keras.GradientTape() as inner:
            inner.watch(a)
            y = a * b
        z = ops.sin(inner.gradient(y, a))
    np.testing.assert_allclose(outer.gradient(z, b), np.cos([0.3, 0.4]), rtol=1e-6)


def test_stop_recording_keeps_what_variables_stand_for():
    w = keras.Variable(3.0)
    with keras.GradientTape() as tape:
        y = w * 2.0
        with tape.stop_recording():
            w * 5.0
        y = y + w
    assert float(tape.gradient(y, w)) == 3.0


def test_reset_forgets():
    w = keras.Variable(3.0)
    with keras.GradientTape() as tape:
        y = w * w
        tape.reset()
        z = w * 2.0
    assert tape.watched_variables() == (w,)
    assert float(tape.gradient([z], w)) == 2.0
    assert float(y) == 9.0


def test_derivatives_of_higher_order():
    x = tensor(2.0)
    with keras.GradientTape() as t1:
        t1.watch(x)
        with keras.GradientTape() as t2:
            t2.watch(x)
            with keras.GradientTape() as t3:
                t3.watch(x)
                y = x * x * x * x
            first = t3.gradient(y, x)
        second = t2.gradient(first, x)
    assert (float(first), float(second), float(t1.gradient(second, x))) == (32.0, 48.0, 48.0)


def test_a_persistent_tape_differentiates_its_own_gradients():
    x = tensor(2.0)
    with keras.GradientTape(persistent=True) as tape:
        tape.watch(x)
        y = x * x * x
        slope = tape.gradient(y, x)
    assert float(tape.gradient(slope, x)) == 12.0
    assert float(tape.gradient(y, x)) == 12.0


def test_an_inner_tape_leaves_the_outer_one_what_it_needs():
    w = keras.Variable(3.0)
    with keras.GradientTape() as outer:
        with keras.GradientTape() as inner:
            y = ops.exp(w * 1.0)
        inner.gradient(y, w)
    np.testing.assert_allclose(float(outer.gradient(y, w)), np.exp(3.0), rtol=1e-6)


def test_lists_of_tensors():
    w = keras.Variable(2.0)
    for run in (lambda f: f, keras.jit):

        def f():
            with keras.GradientTape() as tape:
                y = ops.sum(ops.multiply([w * w, w, 5.0], [1.0, 10.0, 100.0]))
            return tape.gradient(y, w)

        assert float(run(f)()) == 14.0


def test_jacobian():
    x = tensor([1.0, 2.0, 3.0])
    with keras.GradientTape(persistent=True) as tape:
        tape.watch(x)
        y = ops.stack([x[0] * x[1], x[1] * x[2]])
    found = tape.jacobian(y, x)
    assert found.numpy().tolist() == [[2.0, 1.0, 0.0], [0.0, 3.0, 2.0]]
    with keras.GradientTape() as once:
        once.watch(x)
        y = x * x
    with pytest.raises(ValueError, match="persistent=True"):
        once.jacobian(y, x)


def test_a_chain_of_100000_ops_is_differentiated_and_destroyed():
    x = tensor(1.0)
    with keras.GradientTape() as tape:
        tape.watch(x)
        y = x
        for _ in range(100_000):
            y = y + 1.0
    assert float(tape.gradient(y, x)) == 1.0
    del y, tape


def test_what_a_step_carries_on_does_not_keep_the_steps_before():
    x = tensor(1.0)
    before = _core.memory_stats(x.device)["allocated"]
    for _ in range(200):
        with keras.GradientTape() as tape:
            tape.watch(x)
            y = ops.exp(x * 0.5)
            gradient = tape.gradient(y, x)
        x = y * 0.1 + gradient
    assert _core.memory_stats(x.device)["allocated"] <= before + 16 * 256


def test_memory_of_10000_steps_is_flat(settled_memory):
    w, data = keras.Variable(np.ones((8, 8), "float32")), tensor(np.ones((4, 8)))
    optimizer = keras.optimizers.SGD(1e-6)

    def step():
        with keras.GradientTape() as tape:
            loss = ops.mean(ops.tanh(data @ w))
        optimizer.apply([tape.gradient(loss, w)], [w])

    step()
    gc.collect()
    before = _core.memory_stats(w.device)
    for _ in range(10_000):
        step()
    after = _core.memory_stats(w.device)
    assert after["allocated"] == before["allocated"]
    assert after["cached"] == before["cached"]


def test_tensors_in_a_reference_cycle_are_released():
    class Holder:
        pass

    holder = Holder()
    with keras.GradientTape() as tape:
        holder.x = tensor(np.ones(1000))
        tape.watch(holder.x)
        holder.y = ops.exp(holder.x)
        holder.view = ops.reshape(holder.y, (10, 100))
    holder.tape, holder.self = tape, holder
    gone = weakref.ref(holder.y)
    del holder, tape
    gc.collect()
    assert gone() is None


def test_values_that_no_gradient_needs_are_let_go():
    x = tensor(np.ones(1 << 16))
    device = x.device
    with keras.GradientTape() as tape:
        tape.watch(x)
        before = _core.memory_stats(device)["allocated"]
        y = x
        for _ in range(20):
            y = y + 1.0  # only the shape of y is needed
        after = _core.memory_stats(device)["allocated"]
    assert after - before <= 2 * y.nbytes
    assert tape.gradient(y, x).numpy().min() == 1.0


def test_other_threads_are_not_recorded():
    w = keras.Variable(2.0)
    found = []

    def work():
        with keras.device(w.device):
            found.append(_core.is_recording())
            with keras.GradientTape() as tape:
                y = w * w
            found.append(float(tape.gradient(y, w)))

    with keras.GradientTape() as tape:
        y = w * 3.0
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
    assert found == [False, 4.0]
    assert float(tape.gradient(y, w)) == 3.0


class TestErrors:
    def test_a_tape_is_used_twice(self):
        x = tensor(1.0)
        with keras.GradientTape() as tape:
            tape.watch(x)
            y = x * x
        tape.gradient(y, x)
        with pytest.raises(ValueError, match="persistent=True"):
            tape.gradient(y, x)

    def test_what_was_released_is_asked_for_by_another_tape(self):
        x = tensor(2.0)
        with keras.GradientTape() as tape:
            tape.watch(x)
            y = x * x
        tape.gradient(y, x)
        with keras.GradientTape() as later:
            z = y * 3.0
        assert later.gradient(z, x) is None  # earlier calls are not part of this tape

    def test_integers(self):
        with keras.GradientTape(persistent=True) as tape:
            with pytest.raises(TypeError, match="watch: the tensor is int32"):
                tape.watch(tensor([1, 2], "int32"))
            x = tensor(2.0)
            tape.watch(x)
            y = ops.cast(x * 2.0, "int32")
        with pytest.raises(TypeError, match="target is int32.*cast"):
            tape.gradient(y, x)
        with pytest.raises(TypeError, match="source is int32"):
            tape.gradient(x * 1.0, y)

    def test_an_op_without_a_gradient_is_named(self):
        x = tensor([3.0, 1.0])
        attributes = {"count": 1, "momentum": 0.0, "nesterov": False}
        with keras.GradientTape() as tape:
            tape.watch(x)
            y = _core.apply("sgd_update", [tensor(0.1), x, x], attributes)[0]
        with pytest.raises(ValueError, match='op "sgd_update" is not differentiable'):
            tape.gradient(y, x)

    def test_a_function_of_the_host_is_named(self):
        x = tensor([[2.0, 0.0], [0.0, 3.0]])
        with keras.GradientTape(persistent=True) as tape:
            tape.watch(x)
            values = ops.svd(x, compute_uv=False)
            y = ops.sum(values) + ops.sum(x)
            z = ops.sum(keras.stop_gradient(values)) + ops.sum(x)
        with pytest.raises(ValueError, match='"svd" is not differentiable.*host'):
            tape.gradient(y, x)
        assert tape.gradient(z, x).numpy().tolist() == [[1.0, 1.0], [1.0, 1.0]]

    def test_an_assignment_to_what_a_gradient_needs(self):
        w = keras.Variable([1.0, 2.0], name="weights")
        with keras.GradientTape() as tape:
            y = w * w
            w.assign([5.0, 5.0])
        with pytest.raises(ValueError, match="gradient of multiply.*written to after.*copy"):
            tape.gradient(y, w)

    def test_an_assignment_to_what_no_gradient_needs_is_fine(self):
        w = keras.Variable([1.0, 2.0])
        with keras.GradientTape() as tape:
            y = w + 1.0
            w.assign([5.0, 5.0])
        assert tape.gradient(y, w).numpy().tolist() == [1.0, 1.0]

    def test_a_compiled_step_that_overwrites_counts_too(self):
        w = keras.Variable([1.0, 2.0])
        step = keras.jit(lambda: w.assign(w * 2.0))
        with keras.GradientTape() as tape:
            y = w * w
        step()
        with pytest.raises(ValueError, match="written to after"):
            tape.gradient(y, w)

    def test_shapes_that_do_not_broadcast(self):
        with pytest.raises(ValueError, match=r"add: shapes \(2,\) and \(3,\) can't be broadcast"):
            tensor([1.0, 2.0]) + tensor([1.0, 2.0, 3.0])

    def test_devices_mixed(self, cuda_device):
        a, b = _core.zeros([2], "float32", "cpu"), _core.zeros([2], "float32", cuda_device)
        with pytest.raises(keras.DeviceError, match="all inputs must be on one device"):
            _core.apply("add", [a, b], {})

    def test_watching_outside_of_the_block_and_what_is_no_tensor(self):
        with keras.GradientTape() as tape, pytest.raises(TypeError, match="convert_to_tensor"):
            tape.watch(np.ones(3))
        with pytest.raises(ValueError, match="does not record"):
            tape.watch(tensor(1.0))
        with pytest.raises(ValueError, match="its block has ended"), tape.stop_recording():
            pass

    def test_entering_twice(self):
        with keras.GradientTape() as tape, pytest.raises(ValueError, match="in use"), tape:
            pass

    def test_an_output_gradient_of_another_shape(self):
        x = tensor([1.0, 2.0])
        with keras.GradientTape() as tape:
            tape.watch(x)
            y = x * x
        with pytest.raises(ValueError, match=r"output gradient of target 0 must be float32 \(2,\)"):
            tape.gradient(y, x, output_gradients=tensor([1.0, 2.0, 3.0]))

    def test_targets_and_sources_that_are_no_tensors(self):
        x = tensor(1.0)
        with keras.GradientTape(persistent=True) as tape:
            tape.watch(x)
            y = x * x
        with pytest.raises(TypeError, match="target must be a tensor"):
            tape.gradient(1.0, x)
        with pytest.raises(TypeError, match="source must be a tensor or a variable"):
            tape.gradient(y, "x")
