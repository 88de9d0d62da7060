"""Products that do the transposes beside them, on a CPU as a program of large tensors has them."""

from __future__ import annotations

import numpy as np
import pytest

import kerascnn as keras

from .helpers import Tracer, tensor

pytestmark = pytest.mark.usefixtures("on_cpu")


def run(t, outputs, arrays, optimize=True):
    program = t.compile(*outputs, optimize=optimize)
    program.run([tensor(array) for array in arrays])
    return [np.array(output.numpy()) for output in program.outputs()], program


def checked(t, outputs, arrays):
    """The permutations of the transposes that are left."""
    got, program = run(t, outputs, arrays)
    expected, _ = run(t, outputs, arrays, optimize=False)
    for a, b in zip(got, expected, strict=True):
        # Sums of up to 40 products of numbers of size 1, in two orders.
        np.testing.assert_allclose(a, b, atol=40 * 2.0**-23 * 4)
    return [
        each["attributes"]["permutation"]
        for each in program.describe()
        if each["op"] == "transpose"
    ]


def normal(rng, *shapes):
    return [rng.standard_normal(shape).astype("float32") for shape in shapes]


@pytest.mark.parametrize("transpose_b", [False, True])
@pytest.mark.parametrize("reshaped", [False, True])
def test_keys_are_read_in_rows(rng, regions, reshaped, transpose_b):
    """(b, t, h, d) to (b, h, d, t) tears rows of d apart; the product may do that."""
    b, time, h, d = 2, 7, 3, 5
    t = Tracer()
    keys = t.transpose(t.input((b, time, h, d)), permutation=[0, 2, 3, 1])
    q = t.input((b, h, 4, time if transpose_b else d), name="q")
    if reshaped:
        keys = t.reshape(keys, shape=[b * h, d, time])
        q = t.reshape(q, shape=[b * h, 4, time if transpose_b else d])
    y = t.matmul(q, keys, transpose_a=False, transpose_b=transpose_b)
    arrays = normal(rng, (b, time, h, d), (b, h, 4, time if transpose_b else d))
    assert checked(t, [y], arrays) == [[0, 2, 1, 3]]


@pytest.mark.parametrize("flags", [(a, b) for a in (False, True) for b in (False, True)])
@pytest.mark.parametrize("reshaped", [False, True])
def test_their_gradient_is_stored_in_rows(rng, regions, reshaped, flags):
    b, time, h, d = 2, 7, 3, 5
    t = Tracer()
    lead = (b * h,) if reshaped else (b, h)
    shapes = [
        (*lead, 4, d) if flags[0] else (*lead, d, 4),
        (*lead, time, 4) if flags[1] else (*lead, 4, time),
    ]
    y = t.matmul(
        t.input(shapes[0]), t.input(shapes[1], name="k"), transpose_a=flags[0], transpose_b=flags[1]
    )
    if reshaped:
        y = t.reshape(y, shape=[b, h, d, time])
    y = t.transpose(y, permutation=[0, 3, 1, 2])
    assert checked(t, [y], normal(rng, *shapes)) == [[0, 2, 1, 3]]


def test_one_product_does_both(rng, regions):
    t = Tracer()
    x = t.transpose(t.input((2, 3, 4, 5)), permutation=[0, 2, 3, 1])  # (2, 4, 5, 3)
    y = t.matmul2(x, t.input((2, 4, 3, 6), name="w"))  # (2, 4, 5, 6)
    y = t.transpose(y, permutation=[0, 3, 1, 2])
    left = checked(t, [y], normal(rng, (2, 3, 4, 5), (2, 4, 3, 6)))
    assert left == [[0, 2, 1, 3], [0, 2, 1, 3]]


def test_squares_of_one_value(rng, regions):
    t = Tracer()
    x = t.transpose(t.input((2, 4, 3, 4)), permutation=[0, 2, 3, 1])  # (2, 3, 4, 4)
    y = t.matmul(x, x, transpose_a=True, transpose_b=False)
    assert checked(t, [y], normal(rng, (2, 4, 3, 4))) == [[0, 2, 1, 3]]


def test_only_two_axes_change_places(rng, regions):
    """Then nothing is left to transpose."""
    t = Tracer()
    x = t.transpose(t.input((3, 4, 5)), permutation=[0, 2, 1])
    y = t.matmul2(t.input((3, 6, 5), name="a"), x)
    assert checked(t, [y], normal(rng, (3, 4, 5), (3, 6, 5))) == []


def test_other_readers_keep_the_transpose(rng, regions):
    t = Tracer()
    x = t.transpose(t.input((2, 3, 4, 5)), permutation=[0, 2, 3, 1])
    y = t.matmul2(x, t.input((2, 4, 3, 6), name="w"))
    arrays = normal(rng, (2, 3, 4, 5), (2, 4, 3, 6))
    assert checked(t, [y, t.relu(x)], arrays) == [[0, 2, 3, 1]]
    assert checked(t, [y, x], arrays) == [[0, 2, 3, 1]]


def test_a_product_with_other_readers_keeps_its_form(rng, regions):
    t = Tracer()
    y = t.matmul2(t.input((2, 3, 4, 5)), t.input((2, 3, 5, 6), name="w"))
    arrays = normal(rng, (2, 3, 4, 5), (2, 3, 5, 6))
    assert checked(t, [t.transpose(y, permutation=[0, 3, 1, 2]), y], arrays) == [[0, 3, 1, 2]]


def test_small_programs_stay_as_they_are(rng):
    t = Tracer()
    x = t.transpose(t.input((2, 3, 4, 5)), permutation=[0, 2, 3, 1])
    y = t.matmul2(x, t.input((2, 4, 3, 6), name="w"))
    assert checked(t, [y], normal(rng, (2, 3, 4, 5), (2, 4, 3, 6))) == [[0, 2, 3, 1]]


def attention_losses(dtype):
    keras.utils.set_random_seed(11)
    inputs = keras.Input((6, 16))
    attention = keras.layers.MultiHeadAttention(2, 8, dtype=dtype)
    x = attention(inputs, inputs, use_causal_mask=True)
    x = keras.layers.GlobalAveragePooling1D()(keras.layers.Add()([x, inputs]))
    model = keras.Model(inputs, keras.layers.Dense(3, dtype="float32")(x))
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.SGD(0.1), loss)
    rng = np.random.default_rng(5)
    x, y = rng.normal(size=(32, 6, 16)).astype("float32"), rng.integers(0, 3, 32)
    history = model.fit(x, y, batch_size=8, epochs=3, shuffle=False, verbose=0)
    return history.history["loss"], model.get_weights()


@pytest.mark.parametrize("dtype", ["float32", "mixed_bfloat16"])
def test_attention_learns_the_same(monkeypatch, dtype):
    losses, weights = attention_losses(dtype)
    monkeypatch.setenv("KERASCNN_CPU_REGIONS", "1")
    own_losses, own_weights = attention_losses(dtype)
    # Twelve steps whose sums are in another order; of 16 bits some are rounded to a neighbour.
    tolerance = 2.0**-7 if dtype == "mixed_bfloat16" else 2.0**-17
    np.testing.assert_allclose(own_losses, losses, rtol=tolerance)
    for a, b in zip(own_weights, weights, strict=True):
        np.testing.assert_allclose(a, b, atol=tolerance * max(1.0, np.abs(b).max()))
