"""What belongs to a tape's block, at once and compiled, is the same as in TensorFlow."""

from __future__ import annotations

import numpy as np
import pytest

import kerascnn as keras
from kerascnn import ops

RUNS = pytest.mark.parametrize("run", [lambda f: f, keras.jit], ids=["at_once", "jit"])


def tensor(value):
    return ops.convert_to_tensor(np.float32(value))


def numbers(values):
    return [None if x is None else float(x) for x in values]


@RUNS
def test_what_was_computed_before_the_block_is_given(run):
    w = keras.Variable(3.0)

    def f():
        a = w * 2.0
        with keras.GradientTape() as tape:
            y = a * w
        return tape.gradient(y, w)

    assert float(run(f)()) == 6.0


def test_a_train_step_takes_the_same_gradient():
    class Own(keras.Model):
        def __init__(self):
            super().__init__()
            self.w = self.add_weight(shape=(), initializer=keras.initializers.Constant(3.0))

        def train_step(self, data):
            a = self.w * 2.0
            with keras.GradientTape() as tape:
                y = a * self.w
            return {"slope": tape.gradient(y, self.w), "all": keras.gradients(y, [self.w])[0]}

    model = Own()
    model.compile()
    logs = model.fit(np.ones((4, 1)), np.ones((4, 1)), verbose=0).history
    assert logs == {"slope": [6.0], "all": [12.0]}


@RUNS
def test_what_is_computed_after_the_block_is_not_recorded(run):
    w = keras.Variable(3.0)

    def f():
        with keras.GradientTape(persistent=True) as tape:
            y = w * w
        return [tape.gradient(y * 3.0, w), tape.gradient(y, w)]

    assert numbers(run(f)()) == [None, 6.0]


@RUNS
def test_reading_after_an_assignment_begins_anew_and_counts(run):
    w, frozen = keras.Variable(3.0), keras.Variable(1.0, trainable=False)

    def f():
        with keras.GradientTape(persistent=True) as tape:
            a = w + 2.0
            w.assign(a)
            frozen.assign(a)
            y, z = w * 4.0 + a, frozen * 5.0
        return [tape.gradient(y, w), tape.gradient(z, w), tape.gradient(z, frozen)]

    assert numbers(run(f)()) == [5.0, None, None]


@RUNS
def test_what_an_optimizer_did_is_no_part_of_the_next_gradient(run):
    w, v = keras.Variable(2.0), keras.Variable(5.0)
    optimizer = keras.optimizers.Adam(0.5)
    optimizer.build([w])

    def f():
        with keras.GradientTape() as first:
            loss = w * w * v
        optimizer.apply([first.gradient(loss, w)], [w])
        with keras.GradientTape() as second:
            loss = w * v
        return second.gradient(loss, [w, v])

    by_w, by_v = run(f)()
    assert (float(by_w), float(by_v)) == (5.0, float(w))
    # The length of Adam's first step is the rate.
    np.testing.assert_allclose(float(w), 1.5, rtol=1e-6)


@RUNS
def test_what_is_not_watched_has_no_gradient(run):
    x, w = tensor(3.0), keras.Variable(2.0)

    def f(x):
        with keras.GradientTape(persistent=True, watch_accessed_variables=False) as tape:
            y = x * w
            tape.watch(w)
            z = x * w
        assert tape.watched_variables() == (w,)
        return [tape.gradient(y, [x, w]), tape.gradient(z, [x, w])]

    found = run(f)(x)
    assert [numbers(pair) for pair in found] == [[None, None], [None, 3.0]]


@RUNS
def test_one_tape_after_another_may_watch_the_same_tensor_or_a_result(run):
    def f(x):
        with keras.GradientTape() as first:
            first.watch(x)
            y = x * x
        with keras.GradientTape() as second:
            second.watch([x, y])
            z = x * x * x + y
        return [first.gradient(y, x), *second.gradient(z, [x, y])]

    assert numbers(run(f)(tensor(3.0))) == [6.0, 27.0, 1.0]


@RUNS
def test_an_inner_tape_knows_only_its_own_readings_and_watches(run):
    w = keras.Variable(3.0)

    def f(x):
        with keras.GradientTape() as outer:
            outer.watch(x)
            a = w * 2.0
            with keras.GradientTape(persistent=True) as inner:
                y = a * w
                b = x * 4.0
                z = b * b
            slope = inner.gradient(y, w)
            unknown = inner.gradient(z, [x, b])
        return [slope, outer.gradient(slope, w), *unknown]

    assert numbers(run(f)(tensor(5.0))) == [6.0, 2.0, None, None]


@RUNS
def test_stop_recording_and_reset(run):
    w = keras.Variable(3.0)

    def f():
        with keras.GradientTape() as tape:
            y = w * 2.0
            tape.reset()
            z = w * w
            with tape.stop_recording():
                between = w * w
            z = z + between * w
        return [tape.gradient([y, z], w), y]

    assert numbers(run(f)()) == [6.0 + 9.0, 6.0]


@RUNS
def test_a_tape_that_is_not_persistent_is_used_once_and_ends_with_it(run):
    w = keras.Variable(3.0)

    def f():
        with keras.GradientTape() as tape:
            y = w * w
            slope = tape.gradient(y, w)
            with pytest.raises(ValueError, match="does not record"):
                tape.watch(w)
        with pytest.raises(ValueError, match="persistent=True"):
            tape.gradient(y, w)
        return slope

    assert float(run(f)()) == 6.0


@RUNS
def test_what_a_custom_gradient_keeps_has_derivatives(run):
    @keras.custom_gradient
    def cube(x):
        square = x * x
        return square * x, lambda upstream: upstream * 3.0 * square

    assert float(run(keras.grad(keras.grad(cube)))(tensor(2.0))) == 12.0


@RUNS
def test_gradients_inside_of_a_function_of_values_assigned_before(run):
    w = keras.Variable(3.0)

    def f(x):
        w.assign(w * x)
        return keras.grad(lambda v: v * w)(x)

    assert float(run(f)(tensor(2.0))) == 6.0


def test_all_readings_of_a_compiled_function_under_a_tape_count():
    w, frozen = keras.Variable(3.0), keras.Variable(2.0, trainable=False)

    @keras.jit
    def f(x):
        y = x * w
        w.assign(x + 1.0)
        return x * w * frozen + y

    x = tensor(5.0)
    with keras.GradientTape() as tape:
        tape.watch([x, frozen])
        y = f(x)
    # w was 3 and then 6, so the gradients are 6 * 2 + 3, 5 + 5 * 2, and 5 * 6.
    assert numbers(tape.gradient(y, [x, w, frozen])) == [15.0, 15.0, 30.0]


def test_a_tape_does_not_reach_into_or_out_of_a_function_that_is_compiled():
    w = keras.Variable(3.0)
    kept = []

    @keras.jit
    def f():
        with keras.GradientTape() as tape:
            y = w * w
        kept.append((tape, y))
        return y

    f()
    tape, y = kept[0]
    with pytest.raises(ValueError, match="inside of it"):
        tape.gradient(y, w)
    with keras.GradientTape() as tape:
        pass
    with pytest.raises(ValueError, match="began outside"):
        keras.jit(lambda: tape.gradient(w * 1.0, w))()
