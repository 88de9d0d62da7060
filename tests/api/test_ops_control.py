"""Choices and loops over tensors, and what the array functions refuse."""

import numpy as np
import pytest

import kerascnn as keras
from kerascnn import _core, ops
from kerascnn.tracing import Trace


def compiled(function, *arrays, device="cpu"):
    """Returns what a traced step computes."""
    with Trace(device) as trace:
        values = [trace.graph.input(f"x{i}", x.shape, x.dtype.name) for i, x in enumerate(arrays)]
        result = function(*values)
        results = [
            ops.convert_to_tensor(r) for r in (result if isinstance(result, tuple) else [result])
        ]
    program = _core.Program.compile(trace.graph, results, device, allow_tf32=False)
    program.run([_core.from_numpy(x, device) for x in arrays])
    return [np.array(t.numpy()) for t in program.outputs()]


X = np.array([1.0, -2.0, 3.0], "float32")
TRUE, FALSE = np.array(True), np.array(False)


def test_cond(device):
    def choose(p, x):
        return ops.cond(p, lambda: x + 1, lambda: x * 2)

    with keras.device(device):
        for p, wanted in ((TRUE, X + 1), (FALSE, X * 2)):
            assert (
                choose(ops.convert_to_tensor(p), ops.array(X)).numpy().tolist() == wanted.tolist()
            )
            assert compiled(choose, p, X, device=device)[0].tolist() == wanted.tolist()


def test_cond_at_once_calls_one_side_only():
    called = []
    ops.cond(True, lambda: called.append(1), lambda: called.append(2))
    assert called == [1]


def test_cond_of_a_keras_tensor_is_a_node():
    x = keras.Input((3,))
    y = ops.cond(ops.sum(x) > 0, lambda: x + 1.0, lambda: x * 2.0)
    model = keras.Model(x, y)
    assert model.predict(np.array([[1.0, 2, 3]]), verbose=0).tolist() == [[2.0, 3.0, 4.0]]
    assert model.predict(np.array([[-1.0, -2, -3]]), verbose=0).tolist() == [[-2.0, -4.0, -6.0]]


def test_switch(device):
    branches = [lambda x: x + 1, lambda x: x * 2, lambda x: x - 3]
    wanted = {-4: X + 1, 0: X + 1, 1: X * 2, 2: X - 3, 9: X - 3}
    with keras.device(device):
        for index, expected in wanted.items():
            assert ops.switch(index, branches, ops.array(X)).numpy().tolist() == expected.tolist()
            traced = compiled(
                lambda i, x: ops.switch(i, branches, x), np.array(index, "int32"), X, device=device
            )
            assert traced[0].tolist() == expected.tolist()


def test_while_loop(device):
    def double(x):
        return ops.while_loop(
            lambda i, v: ops.sum(v) < 100.0,
            lambda i, v: (i + 1, v * 2.0),
            (ops.convert_to_tensor(0), x),
            maximum_iterations=12,
        )

    with keras.device(device):
        count, values = double(X)
        assert int(count) == 6
        assert values.numpy().tolist() == (X * 64).tolist()
        traced = compiled(double, X, device=device)
        assert int(traced[0]) == 6
        assert traced[1].tolist() == (X * 64).tolist()


def test_while_loop_with_and_without_a_limit():
    def grow(x):
        return ops.while_loop(lambda v: True, lambda v: v + 1.0, x, maximum_iterations=3)

    assert compiled(grow, X)[0].tolist() == (X + 3).tolist()
    doubled = compiled(
        lambda x: ops.while_loop(lambda v: ops.sum(v) < 9.0, lambda v: v * 2.0, x), X
    )
    assert doubled[0].tolist() == (X * 8).tolist()


def test_scan_over_nested_tensors():
    pairs = {"a": np.arange(3.0), "b": np.arange(3.0) * 10}
    carry, results = ops.scan(
        lambda c, x: (c + x["a"], {"sum": x["a"] + x["b"]}), np.float64(0.0), pairs, reverse=True
    )
    assert float(carry) == 3.0
    assert results["sum"].numpy().tolist() == [0.0, 11.0, 22.0]
    carry, results = ops.scan(lambda c, _: (c + 1, None), 0, length=4)
    assert int(carry) == 4
    assert results.numpy().tolist() == [0] * 4


def test_associative_scan_of_pairs():
    def compose(first, second):  # the pair (a, b) stands for x -> a x + b
        return first[0] * second[0], second[0] * first[1] + second[1]

    a, b = np.array([2.0, 3.0, 0.5, 1.0]), np.array([1.0, 0.0, 2.0, -1.0])
    scales, shifts = ops.associative_scan(compose, (a, b))
    x, wanted = 5.0, []
    for scale, shift in zip(a, b, strict=True):
        x = scale * x + shift
        wanted.append(x)
    np.testing.assert_allclose(scales.numpy() * 5.0 + shifts.numpy(), wanted)


def test_slices_at_places_known_in_the_step(device):
    data = np.arange(20, dtype="float32").reshape(4, 5)
    start = np.array([1, 3], "int32")
    part = compiled(lambda s, x: ops.slice(x, s, (2, 2)), start, data, device=device)[0]
    assert part.tolist() == data[1:3, 3:5].tolist()
    new = compiled(
        lambda s, x: ops.slice_update(x, s, ops.zeros((2, 2))), start, data, device=device
    )[0]
    data[1:3, 3:5] = 0
    assert new.tolist() == data.tolist()


def test_segments_and_scatter_leave_out_what_is_outside():
    ids = np.array([0, -1, 7, 1])
    assert ops.segment_sum(np.arange(4), ids, 2).numpy().tolist() == [0, 3]
    assert ops.segment_max(np.arange(4.0), ids, 3).numpy().tolist() == [0.0, 3.0, -np.inf]
    assert ops.scatter([[5], [-1]], [1.0, 2.0], (3,)).numpy().tolist() == [0.0, 0.0, 2.0]


def test_the_last_update_of_a_place_stays():
    updated = ops.scatter_update(np.zeros(3), [[1], [1]], [4.0, 5.0])
    assert updated.numpy().tolist() == [0.0, 5.0, 0.0]


def test_equal_elements_are_sorted_stably():
    x = np.array([1, 0, 1, 0, 1])
    assert ops.argsort(x).numpy().tolist() == [1, 3, 0, 2, 4]
    assert ops.top_k(x, 3).indices.numpy().tolist() == [0, 2, 4]


def test_stop_gradient_in_training():
    x = keras.Input((2,))
    y = keras.layers.Dense(1, use_bias=False, kernel_initializer="ones")(ops.stop_gradient(x) * 1.0)
    model = keras.Model(x, y)
    assert model.predict(np.ones((1, 2)), verbose=0).tolist() == [[2.0]]


@pytest.mark.parametrize(
    ("make", "error", "text"),
    [
        (lambda: ops.top_k(X, 4), ValueError, "k=4"),
        (lambda: ops.take_along_axis(X, X, 0), TypeError, "indices are integers"),
        (lambda: ops.take_along_axis(X, [[0]], 0), ValueError, "same number of axes"),
        (lambda: ops.searchsorted([[1.0]], X), ValueError, "1-D sorted"),
        (lambda: ops.quantile(X, 0.5, method="best"), ValueError, "Invalid method"),
        (lambda: ops.bitwise_and(X, X), TypeError, "bits are those of integers"),
        (lambda: ops.ldexp(X, X), TypeError, "exponents are integers"),
        (lambda: ops.select([], []), ValueError, "of one length"),
        (lambda: ops.tril(X), ValueError, "2 axes"),
        (lambda: ops.diag(np.ones((1, 1, 1))), ValueError, "1 or 2 axes"),
        (lambda: ops.rot90(np.ones((2, 2)), axes=(0, 0)), ValueError, "two different axes"),
        (lambda: ops.meshgrid(X, indexing="yx"), ValueError, "'xy' or 'ij'"),
        (lambda: ops.depth_to_space(np.ones((1, 2, 2, 3)), 2), ValueError, "divide by 4"),
        (lambda: ops.space_to_depth(np.ones((1, 3, 2, 3)), 2), ValueError, "height"),
        (lambda: ops.tensordot(X, np.ones((2, 2)), 1), ValueError, r"\(3,\), \(2, 2\)"),
        (lambda: ops.cross(np.ones(4), np.ones(4)), ValueError, "2 or 3 elements"),
        (lambda: ops.cdist(X, X), ValueError, "rank >= 2"),
        (lambda: ops.norm(np.ones((2, 2)), 3, (0, 1)), ValueError, "not available for 2 axes"),
        (lambda: ops.dot_product_attention(X, X, X), ValueError, "4D inputs"),
        (lambda: ops.average(X, weights=[1.0]), ValueError, "`weights`"),
        (lambda: ops.bincount(X), TypeError, "integers"),
        (lambda: ops.bincount([1], sparse=True), ValueError, "sparse"),
        (lambda: ops.correlate(X, X, "all"), ValueError, "'full', 'valid'"),
        (lambda: ops.multi_hot([1]), ValueError, "`num_classes`"),
        (lambda: ops.extract_sequences(X, 4, 1), ValueError, "fit the last axis"),
        (lambda: ops.psnr(X, X[:1], 1.0), ValueError, "must match for PSNR"),
        (lambda: ops.scatter_update(X, [[0]], [1.0], "mean"), ValueError, "Invalid reduction"),
        (lambda: ops.scatter([[0.5]], [1.0], (2,)), ValueError, "integers of shape"),
        (lambda: ops.slice(X, (0,), (4,)), ValueError, "does not fit"),
        (lambda: ops.segment_sum(X, [0, 1]), ValueError, "`segment_ids`"),
        (lambda: ops.cond(True, 1, 2), TypeError, "two functions"),
        (lambda: ops.scan(1, 0, X), TypeError, "callable"),
        (lambda: ops.scan(lambda c, x: (c, x), 0), ValueError, "no `xs`"),
        (lambda: ops.linspace(0, 1, -1), ValueError, "not be negative"),
        (lambda: ops.diff(X, -1), ValueError, "not be negative"),
        (lambda: ops.bartlett("five"), TypeError, "length of a window"),
    ],
)
def test_refusals(make, error, text):
    with pytest.raises(error, match=text):
        make()


def test_what_a_step_must_know_is_said():
    ids = np.array([0, 1], "int32")
    with pytest.raises(ValueError, match="num_segments"):
        compiled(lambda i: ops.segment_sum(i, i), ids)
    with pytest.raises(ValueError, match="minlength"):
        compiled(ops.bincount, ids)
    assert compiled(lambda i: ops.bincount(i, minlength=3), ids)[0].tolist() == [1, 1, 0]
