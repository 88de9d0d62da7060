"""Optimized programs give what unoptimized ones give, with fewer instructions."""

import ml_dtypes
import numpy as np
import pytest

from . import helpers
from .helpers import Tracer, tensor, variable

CONV = {"strides": [1, 1], "padding": [0, 0, 0, 0], "dilations": [1, 1], "groups": 1}
LINEAR = {"activation": "linear", "activation_alpha": 0.0}
POOL = {"window": [2, 2], "strides": [2, 2], "padding": [0, 0, 0, 0]}


def train_step(optimize):
    """Traces one step of a small classifier with metrics, as `fit` does."""
    rng = np.random.default_rng(3)
    weights = [
        variable("kernel_1", 0.3 * rng.normal(size=(3, 3, 1, 4))),
        variable("bias_1", np.zeros(4)),
        variable("kernel_2", 0.2 * rng.normal(size=(36, 10))),
        variable("bias_2", np.zeros(10)),
    ]
    rate, hits = variable("rate", 0.1), variable("hits", 0.0)
    t = Tracer()
    images, labels = t.input([16, 8, 8, 1], "uint8"), t.input([16], "int32")
    kernel_1, bias_1, kernel_2, bias_2 = values = [t.graph.read(w) for w in weights]
    x = t.multiply(t.cast(images, dtype="float32"), t.full([], 1 / 255))
    x = t.relu(t.add(t.conv2d(x, kernel_1, **CONV, **LINEAR), bias_1))
    x = t.reshape(t.max_pool2d(x, **POOL), shape=[16, 36])
    p = t.softmax(t.add(t.matmul2(x, kernel_2), bias_2), axis=-1)
    losses = t.sparse_cross_entropy(p, labels, epsilon=1e-7)
    loss = t.reduce_mean(losses, axes=[], keepdims=False)
    gradients = t.graph.gradients(loss, values)
    updated = t.all(
        "sgd_update", t.graph.read(rate), *values, *gradients, count=4, momentum=0.0, nesterov=False
    )
    for weight, value in zip(weights, updated, strict=True):
        t.graph.assign(weight, value)
    right = t.cast(t.equal(t.argmax(p, axis=-1), labels), dtype="float32")
    t.graph.assign(hits, t.add(t.graph.read(hits), t.sum(right)))
    data = [
        tensor(rng.integers(0, 256, size=(16, 8, 8, 1)), "uint8"),
        tensor(rng.integers(0, 10, size=16), "int32"),
    ]
    return t.compile(loss, optimize=optimize), data, [*weights, hits]


def test_casts_to_a_wider_dtype_and_back_fall_away():
    """Those to a narrower one round, so they stay."""
    values = tensor(np.random.default_rng(0).normal(size=(5, 7)), "float32")
    t = Tracer()
    x = t.input([5, 7], "float32")
    wide = t.cast(t.cast(x, dtype="float64"), dtype="float32")
    narrow = t.cast(t.cast(x, dtype="bfloat16"), dtype="float32")
    other = t.cast(t.cast(t.cast(x, dtype="bfloat16"), dtype="float32"), dtype="float16")
    program = t.compile(wide, narrow, other)
    assert "float64" not in program.to_string()
    program.run([values])
    found = [output.numpy() for output in program.outputs()]
    np.testing.assert_array_equal(found[0], values.numpy())
    rounded = values.numpy().astype(ml_dtypes.bfloat16)
    np.testing.assert_array_equal(found[1], rounded.astype("float32"))
    np.testing.assert_array_equal(found[2], rounded.astype("float16"))


def test_a_training_step_gets_short():
    program, *_ = train_step(optimize=True)
    plain, *_ = train_step(optimize=False)
    assert plain.stats()["num_instructions"] >= 29
    lines = [line.split(":")[0] for line in program.to_string().splitlines()]
    # A device may have kernels that join the convolution with its pooling.
    joins = "conv2d_max_pool2d" in lines
    forward = ["conv2d_max_pool2d"] if joins else ["conv2d", "max_pool2d"]
    backward = (
        ["conv2d_max_pool2d_wgrad"]
        if joins
        else ["relu_grad", "max_pool2d_grad", "reduce_sum", "conv2d_wgrad"]
    )
    # It may also have a kernel that counts how often the classifier is right.
    counts = "count_matches" in lines
    hits = ["count_matches"] if counts else ["argmax", "equal+cast", "reduce_sum"]
    # A third kernel may join the dense layer with the loss and the gradient of the layer's input.
    has_head = "dense_sparse_softmax_cross_entropy_dgrad" in lines
    head = (
        ["dense_sparse_softmax_cross_entropy_dgrad", "reduce_mean", "reduce_sum", "matmul"]
        if has_head
        else [
            "dense",
            "sparse_softmax_cross_entropy",  # this kernel gives its gradient too
            "reduce_mean",
            "reduce_sum",
            "matmul",
            "matmul",
        ]
    )
    # Where kernels run side by side, gradients that are known later get an update of their own.
    # After the kernel with the head all gradients are known at once.
    updates = ["sgd_update"] * (1 if has_head or helpers.current_device == "cpu" else 2)
    # Nobody asked for the gradient of the images, so no kernel computes it.
    assert lines == [
        "cast+multiply",
        *forward,
        *head,
        *backward,
        *updates,
        *hits,
        "add",
    ]


def test_a_training_step_learns_the_same():
    results = []
    for optimize in (True, False):
        program, data, variables = train_step(optimize)
        losses = []
        for _ in range(20):
            program.run(data)
            losses.append(float(program.outputs()[0].numpy()))
        results.append((losses, [v.value.numpy().copy() for v in variables]))
    (losses, variables), (plain_losses, plain_variables) = results
    assert losses[-1] < 0.8 * losses[0]
    # Epilogues and the fused loss round in another order. That is 1e-7 in float32 and grows over 20
    # steps.
    np.testing.assert_allclose(losses, plain_losses, rtol=2e-5)
    for received, expected in zip(variables, plain_variables, strict=True):
        np.testing.assert_allclose(received, expected, rtol=2e-4, atol=2e-5)


def test_the_same_program_gives_the_same_bits():
    runs = []
    for _ in range(2):
        program, data, variables = train_step(optimize=True)
        program.run(data, 10)
        runs.append([v.value.numpy().tobytes() for v in variables])
    assert runs[0] == runs[1]


UNARY = ["tanh", "sigmoid", "relu", "exp", "negative", "square", "softplus", "silu", "absolute"]
BINARY = ["add", "subtract", "multiply", "maximum", "minimum"]


@pytest.mark.parametrize("seed", range(40))
def test_random_element_graphs_keep_their_bits(seed):
    rng = np.random.default_rng(seed)
    t = Tracer()
    dtype = ["float32", "float64", "float16", "bfloat16"][seed % 4]
    shapes = [(3, 5), (5,), (3, 1), ()]
    raw = [t.input(shape) for shape in shapes]
    values = [t.cast(x, dtype=dtype) for x in raw]
    wide = []
    for _ in range(30):
        if rng.random() < 0.4:
            value = t.all(rng.choice(UNARY), values[rng.integers(len(values))])[0]
        elif rng.random() < 0.2:
            a, b = (values[i] for i in rng.integers(len(values), size=2))
            value = t.where(t.less(a, b), t.tanh(a), t.full([], 0.5, dtype))
        else:
            a, b = (values[i] for i in rng.integers(len(values), size=2))
            value = t.tanh(t.all(rng.choice(BINARY), a, b)[0])
        values.append(value)
        wide.append(value)
    outputs = [t.cast(wide[i], dtype="float64") for i in (5, 17, 28, 29)]
    inputs = [rng.normal(size=shape).astype("float32") for shape in shapes]
    optimized = t.run(outputs, inputs, optimize=True)
    plain = t.run(outputs, inputs, optimize=False)
    for received, expected in zip(optimized, plain, strict=True):
        np.testing.assert_array_equal(received, expected)


@pytest.mark.parametrize("dtype", ["bool", "uint8", "int8", "int16", "int32", "int64"])
@pytest.mark.parametrize("shape", [(300, 7), (7,), (300, 1), ()])
@pytest.mark.parametrize("is_read_twice", [True, False])
def test_integers_become_floats(dtype, shape, is_read_twice, rng):
    """The cast reads the input itself, even where other nodes need the integers."""
    t = Tracer()
    x, scale = t.input(shape, dtype), t.input((300, 7))
    y = t.multiply(t.cast(x, dtype="float32"), scale)
    if is_read_twice:
        y = t.where(t.equal(x, t.full([], 1, dtype)), scale, y)
    limits = (0, 2) if dtype == "bool" else (np.iinfo(dtype).min, np.iinfo(dtype).max)
    # float32 cannot hold large integers exactly, so they are rounded.
    integers = rng.integers(*limits, shape, np.int64).astype(dtype)
    inputs = [integers, rng.normal(size=(300, 7)).astype("float32")]
    (received,) = t.run([y], inputs, optimize=True)
    wanted = integers.astype("float32") * inputs[1]
    if is_read_twice:
        wanted = np.where(np.broadcast_to(integers == 1, wanted.shape), inputs[1], wanted)
    np.testing.assert_array_equal(received, wanted)
