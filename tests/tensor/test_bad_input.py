"""Misuse of tensors, views, capsules and tapes raises a clear error, and the process goes on."""

import numpy as np
import pytest

import kerascnn as keras
from kerascnn import _core, ops


def use_a_capsule_twice(x):
    capsule = x.__dlpack__()
    np.testing.assert_array_equal(keras.from_dlpack(capsule).numpy(), x.numpy())
    keras.from_dlpack(capsule)


def write_to_what_a_tape_needs(x):
    with keras.GradientTape() as tape:
        tape.watch(x)
        y = ops.square(x)
    view = x.numpy()
    if x.device != "cpu":
        pytest.skip("NumPy's arrays are copies of what is on a GPU")
    view[0] = 1.0
    assert tape.gradient(y, x) is not None


def write_through_an_item(x):
    x[0] = 1.0


def assign_before_the_gradient(x):
    v = keras.Variable(x)
    with keras.GradientTape() as tape:
        y = ops.square(v)
    v.assign(ops.zeros_like(x))
    tape.gradient(y, v)


def watch_integers(x):
    with keras.GradientTape() as tape:
        tape.watch(ops.cast(x, "int32"))


def take_the_gradient_of_integers(x):
    with keras.GradientTape() as tape:
        tape.watch(x)
        y = ops.cast(x, "int32")
    tape.gradient(y, x)


def broadcast_what_does_not_fit(x):
    x + ops.ones((5,))


def use_a_tape_after_release(x):
    with keras.GradientTape() as tape:
        tape.watch(x)
        y = ops.square(x)
    tape.gradient(y, x)
    tape.gradient(y, x)


def ask_for_a_view_of_another_shape(x):
    x.reshape((4,))


def copy_onto_other_shapes(x):
    _core.Variable("v", x).assign(ops.zeros((2,)))


def share_what_cannot_be_shared(x):
    keras.from_dlpack(np.zeros(3, "complex64"))


CASES = [
    (use_a_capsule_twice, ValueError, "every capsule can be used once"),
    (write_to_what_a_tape_needs, ValueError, "read-only"),
    (write_through_an_item, TypeError, "does not support item assignment. Use ops"),
    (assign_before_the_gradient, ValueError, "was written to after the call was recorded"),
    (watch_integers, TypeError, "gradients are taken by floating tensors only"),
    (take_the_gradient_of_integers, TypeError, "only floating tensors have gradients"),
    (broadcast_what_does_not_fit, ValueError, "can't be broadcast together"),
    (use_a_tape_after_release, ValueError, "takes gradients once"),
    (ask_for_a_view_of_another_shape, ValueError, r"can't take the shape \(4,\)"),
    (copy_onto_other_shapes, ValueError, "variable v is float32"),
    (share_what_cannot_be_shared, TypeError, "complex64 is not supported"),
]


@pytest.mark.parametrize(("misuse", "error", "text"), CASES, ids=[c[0].__name__ for c in CASES])
def test_misuse_is_a_clear_error(misuse, error, text, device, rng):
    values = rng.normal(size=3).astype("float32")
    with keras.device(device):
        x = _core.from_numpy(values, device)
        for _ in range(3):
            with pytest.raises(error, match=text):
                misuse(x)
        # The misuse has left nothing behind.
        np.testing.assert_array_equal(x.numpy(), values)
        np.testing.assert_allclose((x * 2.0).numpy(), values * 2)
        y = keras.grad(lambda t: ops.sum(t * t))(x)
        np.testing.assert_allclose(y.numpy(), 2 * values, rtol=1e-6)
