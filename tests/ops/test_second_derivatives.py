"""Second derivatives of losses, pooling and normalization follow formulas in edge cases.

`test_tape_gradients.py` compares with differences, so its cases stay away from clips, ties and
kinks.
"""

from __future__ import annotations

import numpy as np
import pytest

from kerascnn import _core

from . import harness
from .reference import REFERENCES, windows

LOSSES = ("sparse_cross_entropy", "sparse_softmax_cross_entropy")
# A few dozen terms are rounded, by 1e-16 or 6e-8 each.
CLOSE = {"float64": 1e-11, "float32": 2e-5}


@pytest.fixture(autouse=True)
def exact_arithmetic():
    with harness.tf32_off():
        yield


def weighted(apply, values, weights):
    """Returns the weighted sum of a value; apply(op, inputs, attributes) runs the ops."""
    product = apply("multiply", [values, weights], {})[0]
    return apply("reduce_sum", [product], {"axes": [], "keepdims": False})[0]


def by_tapes(op, x, others, attributes, weights, along, device):
    """Returns the Hessian of sum(weights * op(x, *others)[0]) for x, times `along`."""
    x, weights, along, *others = harness.to_device([x, weights, along, *others], device)
    outer, inner = _core.Tape(False, True), _core.Tape(False, True)
    outer.start()
    outer.watch(x)
    inner.start()
    inner.watch(x)
    y = _core.apply(op, [x, *others], attributes)[0]
    loss = weighted(_core.apply, y, weights)
    inner.stop()
    (first,) = inner.gradients([loss], [None], [x])
    slope = weighted(_core.apply, first, along)
    outer.stop()
    return np.array(outer.gradients([slope], [None], [x])[0].numpy())


def by_program(op, x, others, attributes, weights, along, device):
    """Returns the same Hessian product from a compiled program."""
    graph = _core.Graph()
    arrays = [x, weights, along, *others]
    values = [graph.input(f"x{i}", a.shape, a.dtype.name) for i, a in enumerate(arrays)]
    y = graph.apply(op, [values[0], *values[3:]], attributes)[0]
    (first,) = graph.gradients(weighted(graph.apply, y, values[1]), [values[0]])
    (second,) = graph.gradients(weighted(graph.apply, first, values[2]), [values[0]])
    program = _core.Program.compile(graph, [second], device, allow_tf32=False)
    program.run(harness.to_device(arrays, device))
    return np.array(program.outputs()[0].numpy())


WAYS = {"at once": by_tapes, "program": by_program}


def closed_form(op, x, labels, epsilon, weights, along):
    """Goes row by row: 0 where the label's probability is clipped, NaN without such a label."""
    result = np.zeros_like(along)
    for i, label in enumerate(labels):
        if not 0 <= label < x.shape[1]:
            result[i] = np.nan
            continue
        if op == "sparse_cross_entropy":
            p = x[i] / x[i].sum()
            by_row = -along[i].sum() / x[i].sum() ** 2
            with np.errstate(divide="ignore"):
                by_label = along[i, label] / x[i, label] ** 2
            product = by_row + np.where(np.arange(x.shape[1]) == label, by_label, 0.0)
        else:
            e = np.exp(x[i] - x[i].max())
            p = e / e.sum()
            product = p * (along[i] - (p * along[i]).sum())
        if epsilon == 0 or epsilon <= p[label] <= 1 - epsilon:
            result[i] = weights[i] * product
    return result


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("dtype", CLOSE)
@pytest.mark.parametrize("op", LOSSES)
def test_rows_that_are_clipped_and_labels_that_are_none(op, dtype, way, device, rng):
    if op == "sparse_cross_entropy":
        x = np.array([[1, 0, 0], [1, 0, 0], [0.2, 0.3, 0.5], [0.7, 0.1, 0.4], [2, 3, 4.0]])
    else:
        x = np.array([[80, 0, 0], [80, 0, 0], [0.1, 0.2, 0.3], [1, -1, 0], [2, 3, 4.0]])
    x = x.astype(dtype)
    labels = np.array([0, 1, 2, 3, -1], "int32")
    weights = rng.standard_normal(5).astype(dtype)
    along = rng.standard_normal(x.shape).astype(dtype)
    found = WAYS[way](op, x, [labels], {"epsilon": 1e-7}, weights, along, device)
    wanted = closed_form(op, x.astype("float64"), labels, 1e-7, weights, along)
    assert not wanted[:2].any() and wanted[2].all() and np.isnan(wanted[3:]).all()
    harness.assert_close(found, wanted.astype("float64"), CLOSE[dtype], f"{op} {way}")


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("epsilon", [0.0, 1e-7])
@pytest.mark.parametrize("classes", [1, 2, 1000])
@pytest.mark.parametrize("op", LOSSES)
def test_probabilities_of_any_size(op, classes, epsilon, way, device, rng):
    """Probabilities go from about 1e-6 to nearly 1, where 1 / p bends too much for differences."""
    x = rng.uniform(-6, 6, (8, classes))
    x = np.exp(x) if op == "sparse_cross_entropy" else x
    labels = rng.integers(0, classes, 8)
    weights, along = rng.standard_normal(8), rng.standard_normal(x.shape)
    found = WAYS[way](op, x, [labels], {"epsilon": epsilon}, weights, along, device)
    wanted = closed_form(op, x, labels, epsilon, weights, along)
    harness.assert_close(found, wanted, 1e-9, f"{op} {way}")


POOLS = {
    "overlapping": ((2, 7, 6, 3), (3, 2), (2, 1), (1, 0, 0, 1)),
    "apart": ((1, 9, 11, 2), (2, 3), (4, 4), (0, 0, 0, 0)),
    "one_by_one": ((2, 3, 4, 5), (1, 1), (1, 1), (0, 0, 0, 0)),
    "numbers_beyond_a_byte": ((1, 20, 19, 2), (18, 17), (1, 1), (3, 0, 2, 4)),
    "no_sample": ((0, 4, 4, 2), (2, 2), (2, 2), (0, 0, 0, 0)),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("id", POOLS)
def test_max_pooling_takes_back_what_it_moved(id, way, device, rng):
    """Ties go to the first maximum, and so does a window with several NaN."""
    shape, window, strides, padding = POOLS[id]
    pool = {"window": list(window), "strides": list(strides), "padding": list(padding)}
    x = rng.integers(-2, 3, shape).astype("float64")
    x[rng.random(shape) < 0.05] = np.nan
    y, index = REFERENCES["max_pool2d"](x, **pool)
    g, upstream = rng.standard_normal(y.shape), rng.standard_normal(shape)
    padded = np.pad(upstream, ((0, 0), padding[:2], padding[2:], (0, 0)))
    wanted = np.zeros(y.shape)
    for i, j, rows, columns in windows(shape, window, strides, padding):
        wanted += np.where(index == i * window[1] + j, padded[:, rows, columns], 0.0)
    attributes = pool | {"input_shape": list(shape)}
    arrays = [g, index, upstream]
    if way == "program":
        graph = _core.Graph()
        values = [graph.input(f"x{i}", a.shape, a.dtype.name) for i, a in enumerate(arrays)]
        moved = graph.apply("max_pool2d_grad", values[:2], attributes)[0]
        gradients = graph.gradients(weighted(graph.apply, moved, values[2]), [values[0]])
        program = _core.Program.compile(graph, gradients, device)
        program.run(harness.to_device(arrays, device))
        found = program.outputs()[0]
    else:
        g, index, upstream = harness.to_device(arrays, device)
        tape = _core.Tape(False, True)
        tape.start()
        tape.watch(g)
        moved = _core.apply("max_pool2d_grad", [g, index], attributes)[0]
        loss = weighted(_core.apply, moved, upstream)
        tape.stop()
        (found,) = tape.gradients([loss], [None], [g])
    np.testing.assert_array_equal(np.array(found.numpy()), wanted)


def classifier(graph, x, kernel, bias, dense, labels):
    """Traces the loss of a convolution with bias, activation and pooling, and a dense layer."""

    def apply(op, inputs, **attributes):
        return graph.apply(op, inputs, attributes)[0]

    y = apply("conv2d", [x, kernel], strides=[1, 1], dilations=[1, 1], padding=[1, 1, 1, 1],
              groups=1, activation="linear", activation_alpha=0.0)  # fmt: skip
    y = apply("tanh", [apply("add", [y, bias])])
    y = apply("max_pool2d", [y], window=[2, 2], strides=[2, 2], padding=[0, 0, 0, 0])
    y = apply("reshape", [y], shape=[x.shape[0], dense.shape[0]])
    y = apply("matmul", [y, dense], transpose_a=False, transpose_b=False)
    losses = apply("sparse_cross_entropy", [apply("softmax", [y], axis=-1), labels], epsilon=1e-7)
    return apply("reduce_mean", [losses], axes=[], keepdims=False)


def test_passes_keep_second_derivatives(device, rng):
    """Passes change convolution, pooling and loss; results stay those of separate nodes."""
    shapes = [(16, 12, 10, 3), (3, 3, 3, 16), (16,), (6 * 5 * 16, 10)]
    arrays = [0.3 * rng.standard_normal(shape).astype("float32") for shape in shapes]
    arrays.append(rng.integers(0, 10, 16).astype("int32"))
    arrays += [rng.standard_normal(shape).astype("float32") for shape in shapes]
    graph = _core.Graph()
    values = [graph.input(f"x{i}", a.shape, a.dtype.name) for i, a in enumerate(arrays)]
    sources, along = values[:4], values[5:]
    loss = classifier(graph, *values[:5])
    first = graph.gradients(loss, sources)
    slopes = [weighted(graph.apply, g, v) for g, v in zip(first, along, strict=True)]
    total = slopes[0]
    for slope in slopes[1:]:
        total = graph.apply("add", [total, slope], {})[0]
    outputs = [loss, *first, *graph.gradients(total, sources)]
    results = []
    for optimize in (False, True):
        program = _core.Program.compile(graph, outputs, device, optimize=optimize, allow_tf32=False)
        program.run(harness.to_device(arrays, device))
        results.append([np.array(y.numpy()).astype("float64") for y in program.outputs()])
    for i, (plain, optimized) in enumerate(zip(*results, strict=True)):
        assert np.linalg.norm(plain) > 0
        # These are float32 sums of up to 2,000 terms, in another order.
        assert harness.relative_error(optimized, plain) < 1e-4, f"output {i}"
