"""Blocks, rearranged axes, divisors, what NumPy computes on the host, and `vectorize`."""

import numpy as np
import pytest

import kerascnn
from kerascnn import ops
from kerascnn.tracing import Trace

from .comparing import as_numpy, check, close, fresh_numbers, keras, smooth, torch, whole

RNG = fresh_numbers(__name__)
IMAGES = RNG.standard_normal((2, 3, 7, 6)).astype("float32")
MANY = RNG.standard_normal((2, 6, 8, 3)).astype("float32")
V = RNG.standard_normal(6).astype("float32")
A = RNG.standard_normal((3, 4)).astype("float32")
SMALL = RNG.integers(-40, 41, (6, 5)).astype("int32")
LARGE = RNG.integers(-(2**31), 2**31, (5, 7)).astype("int32")
BYTES = RNG.integers(0, 256, (6, 5)).astype("uint8")
LONG = RNG.integers(-(2**62), 2**62, (5, 7))
# Neighbouring Fibonacci numbers need the most steps of Euclid's algorithm.
SLOW = np.array([[1134903170, 7540113804746346429]])
SLOWEST = np.array([[1836311903, 4660046610375530309]])
WINDOWS = [
    ((3, 2), 1, 0, 1),
    (2, 1, 0, 2),
    ((2, 3), (2, 1), (1, 2), (1, 2)),
    (3, 2, 2, 3),
]

CASES = {
    **{
        f"unfold {arguments}": smooth(lambda o, x, a=arguments: o.unfold(x, *a), IMAGES)
        for arguments in WINDOWS
    },
    **{
        f"fold {arguments}": smooth(
            lambda o, x, a=arguments: o.fold(x, (7, 6), *a),
            RNG.standard_normal(ops.unfold(IMAGES, *arguments).shape).astype("float32"),
        )
        for arguments in WINDOWS
    },
    "fold of a square": smooth(lambda o, x: o.fold(x, 4, 2, stride=2), MANY[:, :4, :4, 0]),
    **{
        f"rearrange {pattern}": smooth(
            lambda o, x, p=pattern, s=sizes: o.rearrange(x, p, **s), MANY
        )
        for pattern, sizes in (
            ("b h w c -> b c h w", {}),
            ("b h w c -> (b h) w c", {}),
            ("b h w c->h (b w) c", {}),
            ("b (h1 h) (w1 w) c -> (b h1 w1) h w c", {"h1": 2, "w1": 4}),
            ("b (h h1) (w w1) c -> b h w (c h1 w1)", {"h1": 3, "w1": 2}),
            ("b (h h1) w c -> (h1 c) (b h) w", {"h": 2, "h1": 3}),
        )
    },
    **{
        f"{name} of {kind}": whole(lambda o, x, y, name=name: getattr(o, name)(x, y), x, y)
        for name in ("gcd", "lcm")
        for kind, x, y in (
            ("small", SMALL, SMALL[::-1].copy()),
            ("bytes", BYTES, BYTES[::-1].copy() // 16),
            ("broadcast", SMALL, SMALL[0]),
        )
    },
    "gcd of large": whole(lambda o, x, y: o.gcd(x, y), LARGE, LARGE[::-1].copy()),
    "gcd of 64 bits": whole(lambda o, x, y: o.gcd(x, y), LONG, LONG[::-1].copy()),
    "gcd of Fibonacci numbers": whole(lambda o, x, y: o.gcd(x, y), SLOWEST, SLOW),
    "i0": smooth(lambda o, x: o.i0(x), RNG.uniform(-9, 9, (5, 20)).astype("float32")),
    "i0 near 0": smooth(lambda o, x: o.i0(x), np.array([0.0, 1e-20, -0.01, 8.0], "float32")),
    "i0 of float64": smooth(lambda o, x: o.i0(x), RNG.uniform(-30, 30, (5, 20))),
    "i0 of integers": whole(lambda o, x: o.i0(x), np.arange(-3, 12, dtype="int32")),
}  # fmt: skip

# For x near 8, exp multiplies the relative error of a float32 x by 8.
TOLERANCE = {"rtol": 2e-6, "atol": 1e-6}


@pytest.mark.parametrize("name", CASES)
def test_values_and_gradients(name, device):
    function, arrays, has_gradient = CASES[name]
    check(function, arrays, has_gradient, device, TOLERANCE, {"rtol": 2e-5, "atol": 1e-5})


def test_i0_over_the_whole_range():
    """The reference is NumPy in float64."""
    x = np.concatenate([np.linspace(0, 20, 2001), np.geomspace(20, 700, 100)])
    np.testing.assert_allclose(ops.i0(-x).numpy(), np.i0(x), rtol=2e-14)
    half = ops.i0(ops.cast([0.5, 3.0], "bfloat16"))
    assert half.dtype == "bfloat16"
    close(ops.cast(half, "float32").numpy(), np.i0([0.5, 3.0]), {"rtol": 2**-8})


@pytest.mark.parametrize("name", ["int8", "int16", "int32", "int64", "uint8"])
def test_divisors_of_every_integer_type(name):
    limits = np.iinfo(name)
    x = RNG.integers(max(limits.min, -(2**60)), min(limits.max, 2**60), 200).astype(name)
    y = RNG.permutation(x)
    assert ops.gcd(x, y).dtype == name
    np.testing.assert_array_equal(ops.gcd(x, y).numpy(), np.gcd(x, y))


def test_divisors_of_other_numbers_are_refused():
    for function in (ops.gcd, ops.lcm):
        with pytest.raises(TypeError, match="integers"):
            function(1.0, 2.0)


@pytest.mark.parametrize("x", [SMALL % 3, A * (A > 0), np.array([0, 3, 0, 1]), np.zeros((2, 2))])
def test_nonzero(x, device):
    with kerascnn.device(device):
        actual = ops.nonzero(x)
        assert actual.dtype == "int32" and str(actual.device) == device
        np.testing.assert_array_equal(actual.numpy(), as_numpy(keras.ops.nonzero(x)))
        np.testing.assert_array_equal(ops.where(x > 0).numpy(), as_numpy(keras.ops.where(x > 0)))


@pytest.mark.parametrize("size", [None, 2, 9])
@pytest.mark.parametrize("axis", [None, 0, 1])
def test_unique(axis, size, device):
    x = RNG.integers(0, 3, (5, 2)).astype("int32")
    arguments = {"axis": axis, "size": size, "fill_value": 7}
    flags = {"return_index": True, "return_inverse": True, "return_counts": True}
    with kerascnn.device(device):
        values, index, inverse, counts = ops.unique(x, **flags, **arguments)
        np.testing.assert_array_equal(ops.unique(x, **arguments).numpy(), values.numpy())
    wanted = keras.ops.unique(x, return_inverse=True, return_counts=True, **arguments)
    for actual, other in zip((values, inverse, counts), wanted, strict=True):
        np.testing.assert_array_equal(actual.numpy(), as_numpy(other))
    assert {part.dtype for part in (index, inverse, counts)} == {"int32"}
    slices = x.ravel() if axis is None else np.moveaxis(x, axis, 0)
    known = np.unique(x, axis=axis, return_index=True)[1]
    first = index.numpy()[: len(known)]
    np.testing.assert_array_equal(first, known[: len(first)])
    assert (index.numpy()[len(known) :] == 1).all() and len(slices) > max(first)


def test_unique_keeps_each_nan():
    assert ops.unique([float("nan"), 1.0, float("nan")]).shape == (3,)


@pytest.mark.parametrize("name", ["float32", "float64", "float16", "bfloat16"])
def test_nextafter(name):
    """The result is the next number of the dtype, and no number lies between."""
    x = ops.cast(np.array([1.0, -1.0, 0.0, 2.0, 5.0]), name)
    y = ops.cast(np.array([2.0, 3.0, 1.0, -7.0, 5.0]), name)
    after = ops.nextafter(x, y)
    assert after.dtype == name
    bits = {"float64": "int64", "float32": "int32"}.get(name, "int16")
    steps = ops.view(after, bits).numpy().astype("int64") - ops.view(x, bits).numpy()
    assert steps.tolist() == [1, -1, 1, -1, 0]
    kind = getattr(torch, name)
    wanted = torch.nextafter(
        *(torch.tensor(ops.cast(v, "float64").numpy()).to(kind) for v in (x, y))
    )
    np.testing.assert_array_equal(ops.cast(after, "float64").numpy(), wanted.double().numpy())


@pytest.mark.parametrize(
    ("array", "dtype"),
    [(A, "int32"), (A, "uint8"), (BYTES[:, :4].copy(), "float32"), (V, None), (LONG, "float64")],
)
def test_view(array, dtype, device):
    wanted = as_numpy(keras.ops.view(array, dtype) if dtype else torch.tensor(array))
    with kerascnn.device(device):
        actual = ops.view(array, dtype).numpy()
    assert actual.dtype == wanted.dtype and actual.tobytes() == wanted.tobytes()
    assert actual.shape == wanted.shape


def test_views_that_do_not_fit():
    for x, dtype in ((BYTES, "int32"), (np.float32(1.0), "uint8")):
        with pytest.raises(ValueError, match="Cannot view"):
            ops.view(x, dtype)


HOST_ONLY = {
    "nonzero": lambda x: ops.nonzero(x),
    "where": lambda x: ops.where(x),
    "unique": lambda x: ops.unique(x),
    "nextafter": lambda x: ops.nextafter(x, 1.0),
    "view": lambda x: ops.view(x, "int32"),
}


@pytest.mark.parametrize("name", HOST_ONLY)
def test_in_steps_the_error_says_what_to_do_instead(name):
    with Trace("cpu") as trace:
        value = trace.graph.input("x", [3], "float32")
        with pytest.raises(ValueError, match="pass what it gives to the step as an input"):
            HOST_ONLY[name](value)
        # Known values become constants.
        assert HOST_ONLY[name](np.ones(3, "float32")).shape
    with pytest.raises(ValueError, match="functional models"):
        HOST_ONLY[name](kerascnn.Input((3,)))


VECTORIZED = {
    "scalars": (lambda o: o.vectorize(lambda a, b: a * b + 1.0), (A, A[0])),
    "one axis of each": (lambda o: o.vectorize(o.dot, signature="(n),(n)->()"), (A, A[:1])),
    "matrices": (
        lambda o: o.vectorize(o.matmul, signature="(n,k),(k)->(n)"), (MANY, MANY[0, 0, :3, 0])
    ),
    "a whole argument": (
        lambda o: o.vectorize(lambda a: o.sum(a * a), signature="(n,m)->()"), (A,)
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", VECTORIZED)
def test_vectorize(name, device):
    make, arrays = VECTORIZED[name]
    check(lambda o, *x: make(o)(*x), arrays, True, device)


def test_vectorize_several_results_and_arguments_left_out():
    def function(a, b, *, scale):
        return a + b, a * scale

    total, scaled = ops.vectorize(function, excluded={1})(V, 2, scale=3.0)
    close(total.numpy(), V + 2, TOLERANCE)
    close(scaled.numpy(), V * 3, TOLERANCE)
    for call in (
        lambda: ops.vectorize(3),
        lambda: ops.vectorize(abs, signature="n->n"),
        lambda: ops.vectorize(ops.dot, signature="(n),(n)->()")(V, V[:2]),
        lambda: ops.vectorize(ops.dot, signature="(n),(n)->()")(V),
    ):
        with pytest.raises(ValueError, match=r"vectorize|callable"):
            call()


@pytest.mark.parametrize(
    ("pattern", "sizes"),
    [
        ("b h w -> b w h", {}),
        ("b h w c -> b h w", {}),
        ("b (h p) w c -> b h w (p c)", {}),
        ("b (h p) w c -> b h w (p c)", {"p": 4}),
        ("b h w c", {}),
        ("b h w b -> b h w b", {}),
        ("b [h] w c -> b h w c", {}),
    ],
)
def test_patterns_that_do_not_fit(pattern, sizes):
    with pytest.raises(ValueError, match="rearrange"):
        ops.rearrange(MANY, pattern, **sizes)


def test_blocks_that_do_not_fit():
    for call in (
        lambda o: o.unfold(o.convert_to_tensor(A), 2),
        lambda o: o.fold(o.convert_to_tensor(A), 2, 2),
        lambda o: o.unfold(o.convert_to_tensor(IMAGES), 9),
        lambda o: o.fold(o.convert_to_tensor(MANY[:, :, :, 0]), 4, 2),
    ):
        with pytest.raises(ValueError):
            call(ops)
        with pytest.raises((ValueError, RuntimeError)):
            call(keras.ops)


def test_on_keras_tensors():
    x = kerascnn.Input((3, 8, 6))
    columns = ops.unfold(x, 2, stride=2)
    assert columns.shape == (None, 12, 12)
    assert ops.fold(columns, (8, 6), 2, stride=2).shape == (None, 3, 8, 6)
    assert ops.rearrange(x, "b c (h p) w -> b (c p) h w", p=2).shape == (None, 6, 4, 6)
    assert ops.i0(x).shape == (None, 3, 8, 6)


@pytest.mark.parametrize("shape", [(0,), (0, 3), (3, 0), (2, 0, 3)])
@pytest.mark.parametrize("axis", [None, 0, -1])
@pytest.mark.parametrize("keepdims", [False, True])
@pytest.mark.parametrize("name", ["all", "any"])
def test_all_and_any_of_nothing(name, shape, axis, keepdims):
    expected = getattr(np, name)(np.empty(shape), axis=axis, keepdims=keepdims)
    actual = getattr(ops, name)(np.empty(shape, "float32"), axis=axis, keepdims=keepdims)
    assert actual.dtype == "bool" and tuple(actual.shape) == expected.shape
    np.testing.assert_array_equal(actual.numpy(), expected)
    compiled = kerascnn.jit(lambda x: getattr(ops, name)(x, axis=axis, keepdims=keepdims))
    np.testing.assert_array_equal(
        compiled(ops.convert_to_tensor(np.empty(shape, "float32"))).numpy(), expected
    )


def test_wide_numbers_keep_their_digits():
    exact = 2**53 - 1
    assert ops.convert_to_tensor(exact, dtype="int64").item() == exact
    assert ops.convert_to_tensor(2.0**24 + 1, dtype="float64").item() == 2**24 + 1
    assert ops.cast([0.1, 1 / 3], "float64").tolist() == [0.1, 1 / 3]
    assert ops.convert_to_tensor([[exact]], dtype="int64").tolist() == [[exact]]
    assert ops.convert_to_tensor(2.7, dtype="int64").item() == 2
