"""Decompositions of matrices, and their gradients, are those of Keras or NumPy."""

import numpy as np
import pytest

import kerascnn
from kerascnn import ops
from kerascnn.tracing import Trace

from .comparing import as_numpy, check, close, fresh_numbers, keras, smooth, torch, whole

RNG = fresh_numbers(__name__)


def normal(*shape):
    return RNG.standard_normal(shape).astype("float32")


def regular(*shape):
    """Returns matrices whose smallest singular value is not small, so that few digits are lost."""
    u, _, v = np.linalg.svd(normal(*shape), full_matrices=False)
    values = RNG.uniform(0.8, 2.0, (*shape[:-2], 1, min(shape[-2:])))
    return np.ascontiguousarray((u * values) @ v).astype("float32")


def definite(*shape):
    x = regular(*shape).astype("float64")
    return (x @ np.swapaxes(x, -1, -2)).astype("float32")


def symmetrized(x):
    return x @ x.swapaxes(-1, -2)


SQUARE, ONE, BATCH = regular(5, 5), regular(1, 1), regular(2, 3, 4, 4)
# Gauss' elimination has to exchange rows here, or it divides by 0 or by little.
SHUFFLED = (np.eye(6)[[3, 0, 4, 5, 1, 2]] + 1e-4 * normal(6, 6)).astype("float32")
TRIANGULAR = (np.tril(normal(2, 5, 5), -1) + 2 * np.eye(5)).astype("float32")

CASES = {
    "cholesky": smooth(lambda o, x: o.cholesky(o.matmul(x, o.swapaxes(x, -1, -2))), BATCH),
    "cholesky of variances": smooth(lambda o, x: o.cholesky(x), definite(4, 4)),
    "cholesky upper": smooth(lambda o, x: o.cholesky(x, upper=True), definite(2, 5, 5)),
    "cholesky of one": smooth(lambda o, x: o.cholesky(x), definite(1, 1)),
    "cholesky_inverse": smooth(lambda o, x: o.cholesky_inverse(o.tril(x)), TRIANGULAR),
    "cholesky_inverse upper": smooth(
        lambda o, x: o.cholesky_inverse(o.triu(x), upper=True), TRIANGULAR[0].T.copy()
    ),
    "solve_triangular": smooth(
        lambda o, x, b: o.solve_triangular(x, b, lower=True), TRIANGULAR, normal(2, 5, 3)
    ),
    "solve_triangular upper": smooth(
        lambda o, x, b: o.solve_triangular(x, b), TRIANGULAR.swapaxes(1, 2).copy(), normal(2, 5, 1)
    ),
    "solve_triangular of a vector": smooth(
        lambda o, x, b: o.solve_triangular(x, b, True), TRIANGULAR[0], normal(5)
    ),
    **{
        f"{name} of {kind}": smooth(lambda o, x, name=name: getattr(o, name)(x), x)
        for name in ("det", "inv")
        for kind, x in (("one", SQUARE), ("1 x 1", ONE), ("many", BATCH), ("shuffled", SHUFFLED))
    },
    **{
        f"slogdet {i} of {kind}": (lambda o, x, i=i: o.slogdet(x)[i], (x,), i == 1)
        for i in (0, 1)
        for kind, x in (("one", SQUARE), ("many", BATCH), ("shuffled", SHUFFLED))
    },
    "logdet": smooth(lambda o, x: o.logdet(x), definite(3, 4, 4)),
    "logdet of a negative determinant": whole(
        lambda o, x: o.logdet(x), np.diag([1.0, -2.0]).astype("float32")
    ),
    "logdet of a singular matrix": whole(lambda o, x: o.logdet(x), np.zeros((3, 3), "float32")),
    "det of a singular matrix": whole(lambda o, x: o.det(x), np.ones((3, 3), "float32")),
    "solve": smooth(lambda o, a, b: o.solve(a, b), SQUARE, normal(5, 2)),
    "solve of many": smooth(lambda o, a, b: o.solve(a, b), BATCH, normal(2, 3, 4, 3)),
    "solve of a vector": smooth(lambda o, a, b: o.solve(a, b), SHUFFLED, normal(6)),
    "solve of vectors": smooth(lambda o, a, b: o.solve(a, b), BATCH, normal(2, 3, 4)),
    **{
        f"lu_factor {i} of {kind}": (lambda o, x, i=i: o.lu_factor(x)[i], (x,), i == 0)
        for i in (0, 1)
        for kind, x in (("one", SQUARE), ("many", BATCH), ("shuffled", SHUFFLED),
                        ("tall", regular(5, 3)), ("wide", regular(2, 3, 5)))
    },
    **{
        f"qr {i} of {kind}": smooth(lambda o, x, i=i: o.qr(x)[i], x)
        for i in (0, 1)
        for kind, x in (("one", SQUARE), ("many", BATCH), ("tall", regular(2, 5, 3)))
    },
    **{
        f"qr {i} {mode} of {kind}": whole(lambda o, x, i=i, mode=mode: o.qr(x, mode)[i], x)
        for i in (0, 1)
        for mode in ("reduced", "complete")
        for kind, x in (("wide", regular(3, 5)), ("tall", regular(5, 3)), ("1 x 1", -ONE),
                        ("a diagonal", np.diag([2.0, -1.0, 3.0]).astype("float32")))
    },
}  # fmt: skip

# Condition numbers are below 7 here, and eliminations have a few dozen roundings.
TOLERANCE = {"rtol": 1e-4, "atol": 2e-5}
GRADIENT_TOLERANCE = {"rtol": 1e-3, "atol": 2e-4}


@pytest.mark.parametrize("name", CASES)
def test_values_and_gradients(name, device):
    function, arrays, has_gradient = CASES[name]
    check(function, arrays, has_gradient, device, TOLERANCE, GRADIENT_TOLERANCE)


def test_float64_stays_exact(device):
    """The reference is NumPy in float64, also for ops in a compiled step."""
    x = regular(7, 7).astype("float64")
    compiled = compile_one(lambda v: [ops.inv(v), *ops.qr(v)], x, device)
    np.testing.assert_allclose(compiled[0], np.linalg.inv(x), atol=1e-12)
    np.testing.assert_allclose(compiled[1] @ compiled[2], x, atol=1e-12)
    np.testing.assert_allclose(compiled[1].T @ compiled[1], np.eye(7), atol=1e-12)


def compile_one(function, x, device):
    from kerascnn import _core

    with kerascnn.device(device), Trace(device) as trace:
        outputs = function(trace.graph.input("x", list(x.shape), x.dtype.name))
    program = _core.Program.compile(trace.graph, list(outputs), device, allow_tf32=False)
    program.run([_core.from_numpy(x, device)])
    return [np.array(y.numpy()) for y in program.outputs()]


def test_gradient_of_cholesky_by_differences():
    """The loss is a weighted sum in float64; the direction keeps the matrix symmetric."""
    x = definite(4, 4).astype("float64")
    weights, way = normal(4, 4).astype("float64"), normal(4, 4).astype("float64")
    way = way + way.T

    def total(x):
        return float((weights * np.linalg.cholesky(x)).sum())

    def gradient(v):
        from kerascnn import tracing

        loss = ops.sum(ops.cholesky(v) * weights)
        return tracing.current().graph.gradients(loss, [v])

    (found,) = compile_one(gradient, x, "cpu")
    step = 1e-5
    wanted = (total(x + step * way) - total(x - step * way)) / (2 * step)
    np.testing.assert_allclose((found * way).sum(), wanted, rtol=1e-6)


@pytest.mark.parametrize("shape", [(4, 4), (2, 5, 3), (3, 6)])
def test_singular_values(shape, device):
    # Chosen ones: none is small, whose inverse would have lost digits, and none is near a bound
    # below, 0.4 times the largest one or 1.0.
    u, _, v = np.linalg.svd(normal(*shape), full_matrices=False)
    chosen = np.array([2.0, 0.9, 0.5, 1.4], "float32")[: min(shape[-2:])]
    x = np.ascontiguousarray((u * chosen) @ v)
    with kerascnn.device(device):
        for full in (True, False):
            u, s, v = (part.numpy() for part in ops.svd(x, full_matrices=full))
            wanted = keras.ops.svd(x, full_matrices=full)
            assert [p.shape for p in (u, s, v)] == [tuple(p.shape) for p in wanted]
            close(s, as_numpy(wanted[1]), TOLERANCE)
            k = min(shape[-2:])
            close((u[..., :k] * s[..., None, :]) @ v[..., :k, :], x, TOLERANCE)
        close(ops.svd(x, compute_uv=False).numpy(), s, TOLERANCE)
        close(ops.pinv(x).numpy(), as_numpy(keras.ops.pinv(x)), TOLERANCE)
        close(ops.pinv(x, 0.4).numpy(), as_numpy(keras.ops.pinv(x, 0.4)), TOLERANCE)
        rank = ops.matrix_rank(x)
        assert rank.dtype == "int32"
        close(rank.numpy(), as_numpy(keras.ops.matrix_rank(x)), {"atol": 0})
        close(ops.matrix_rank(x, 1.0).numpy(), as_numpy(keras.ops.matrix_rank(x, 1.0)), {"atol": 0})
        for ord in (2, -2, "nuc"):
            for keepdims in (True, False):
                arguments = {"ord": ord, "axis": (-1, -2), "keepdims": keepdims}
                actual = ops.norm(x, **arguments).numpy()
                close(actual, as_numpy(keras.ops.norm(x, **arguments)), TOLERANCE)


def test_rank_of_dependent_rows():
    x = np.concatenate([SQUARE[:3], SQUARE[:3].sum(0, keepdims=True)])
    assert int(ops.matrix_rank(x)) == 3 == int(keras.ops.matrix_rank(x))


@pytest.mark.parametrize("shape", [(5, 5), (2, 3, 3)])
def test_eigenvalues(shape, device):
    x = symmetrized(normal(*shape))
    with kerascnn.device(device):
        values, vectors = (part.numpy() for part in ops.eigh(x))
    close(values, as_numpy(keras.ops.eigh(torch.tensor(x))[0]), TOLERANCE)
    close(x @ vectors, vectors * values[..., None, :], TOLERANCE)


@pytest.mark.parametrize("shape", [(5,), (5, 2)])
def test_least_squares(shape, device):
    a, b = regular(5, 3), normal(*shape)
    with kerascnn.device(device):
        close(ops.lstsq(a, b).numpy(), as_numpy(keras.ops.lstsq(a, b)), TOLERANCE)
        cut = ops.lstsq(a, b, rcond=0.7).numpy()
    close(cut, as_numpy(keras.ops.lstsq(a, b, rcond=0.7)), TOLERANCE)


def test_integers_and_half_precision():
    assert ops.inv([[2, 0], [0, 4]]).numpy().tolist() == [[0.5, 0.0], [0.0, 0.25]]
    assert ops.det(ops.cast(SQUARE, "bfloat16")).dtype == "float32"


HOST_ONLY = {
    "eigh": lambda o, x: o.eigh(x),
    "svd": lambda o, x: o.svd(x),
    "lstsq": lambda o, x: o.lstsq(x, np.ones(5, "float32")),
    "matrix_rank": lambda o, x: o.matrix_rank(x),
    "pinv": lambda o, x: o.pinv(x),
    "norm": lambda o, x: o.norm(x, "nuc"),
}


@pytest.mark.parametrize("name", HOST_ONLY)
def test_in_steps_the_error_says_what_to_do_instead(name):
    call = HOST_ONLY[name]
    with Trace("cpu") as trace:
        value = trace.graph.input("x", [5, 5], "float32")
        with pytest.raises(ValueError, match="pass what it gives to the step as an input"):
            call(ops, value)
        with pytest.raises(ValueError, match="Variable"):
            call(ops, kerascnn.Variable(SQUARE))
    with pytest.raises(ValueError, match="functional models"):
        call(ops, kerascnn.Input((5,), batch_size=5))


@pytest.mark.parametrize("name", ["inv", "svd"])
def test_what_is_known_is_a_constant_of_the_step(name, device):
    def known(v):
        part = getattr(ops, name)(SQUARE)
        return [v + (part[0] if name == "svd" else part)]

    wanted = getattr(np.linalg, name)(SQUARE)
    (found,) = compile_one(known, np.zeros((5, 5), "float32"), device)
    close(found, wanted[0] if name == "svd" else wanted, TOLERANCE)


def test_on_keras_tensors():
    x = kerascnn.Input((4, 4))
    assert ops.inv(x).shape == (None, 4, 4)
    assert ops.det(x).shape == (None,)
    q, r = ops.qr(kerascnn.Input((5, 3)))
    assert (q.shape, r.shape) == ((None, 5, 3), (None, 3, 3))
    model = kerascnn.Model(x, ops.solve(x, x))
    batch = regular(3, 4, 4)
    close(model.predict(batch, verbose=0), np.broadcast_to(np.eye(4), batch.shape), TOLERANCE)


ERRORS = {
    "one axis": lambda o: o.det(np.ones(3, "float32")),
    "no square": lambda o: o.inv(np.ones((3, 2), "float32")),
    "not definite": lambda o: o.cholesky(-np.eye(3, dtype="float32")),
    "mode": lambda o: o.qr(SQUARE, "full"),
    "right side of another length": lambda o: o.solve(SQUARE, np.ones((4, 2), "float32")),
    "norm": lambda o: o.norm(SQUARE, "no"),
}


@pytest.mark.parametrize("name", ERRORS)
def test_errors_are_those_of_keras(name):
    for package in (keras.ops, ops):
        with pytest.raises((ValueError, RuntimeError) if package is keras.ops else ValueError):
            ERRORS[name](package)


def test_singular_matrices():
    for call in (lambda: ops.inv(np.ones((3, 3))), lambda: ops.solve(np.zeros((2, 2)), [1.0, 2.0])):
        with pytest.raises(ValueError, match="singular"):
            call()


@pytest.mark.parametrize(
    ("subscripts", "shapes"),
    [
        ("ii->i", [(3, 3)]),
        ("ii", [(3, 3)]),
        ("iii->i", [(3, 3, 3)]),
        ("iji->j", [(3, 2, 3)]),
        ("...ii->...i", [(2, 3, 3)]),
        ("iij,jk->ik", [(3, 3, 2), (2, 4)]),
    ],
)
def test_einsum_takes_diagonals(subscripts, shapes, rng):
    arrays = [rng.normal(size=shape) for shape in shapes]
    expected = np.einsum(subscripts, *arrays)
    compiled = kerascnn.jit(lambda *tensors: ops.einsum(subscripts, *tensors))
    for function in (lambda *tensors: ops.einsum(subscripts, *tensors), compiled):
        result = function(*(ops.convert_to_tensor(x, "float64") for x in arrays))
        # float64 sums of at most six products
        np.testing.assert_allclose(result, expected, rtol=1e-12)


def test_einsum_of_a_diagonal_with_two_sizes():
    with pytest.raises(ValueError, match="'i' in 'ii' names axes of sizes 2 and 3"):
        ops.einsum("ii", np.ones((2, 3)))
