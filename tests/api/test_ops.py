"""`kerascnn.ops` is compared with NumPy: values, dtypes, shapes, and what is refused."""

import numpy as np
import pytest

import kerascnn as keras
from kerascnn import _core, ops
from kerascnn.tracing import Trace

A = np.arange(24, dtype="float32").reshape(2, 3, 4) - 7.5
I = np.array([[3, -2, 5], [0, 1, -4]], "int32")  # noqa: E741

# name: the call in kerascnn, the same in NumPy
CASES = {
    "add": (lambda o, a: o.add(a, 1), lambda a: a + 1),
    "floor_divide": (lambda o, a: o.floor_divide(a, 2.0), lambda a: a // 2),
    "mod": (lambda o, a: o.mod(a, 3.0), lambda a: np.mod(a, 3)),
    "power": (lambda o, a: o.power(a, 3), lambda a: a**3),
    "ceil": (lambda o, a: o.ceil(a), np.ceil),
    "round": (lambda o, a: o.round(a), np.round),
    "round to 1": (lambda o, a: o.round(a / 8, 1), lambda a: np.round(a / 8, 1)),
    "clip": (lambda o, a: o.clip(a, -1, 2.5), lambda a: np.clip(a, -1, 2.5)),
    "clip by array": (lambda o, a: o.clip(a, a * 0, a * 0 + 2), lambda a: np.clip(a, 0, 2)),
    "where": (lambda o, a: o.where(a > 0, a, -1.0), lambda a: np.where(a > 0, a, -1)),
    "sum": (lambda o, a: o.sum(a, axis=(0, -1)), lambda a: a.sum((0, 2))),
    "mean": (lambda o, a: o.mean(a, axis=1, keepdims=True), lambda a: a.mean(1, keepdims=True)),
    "var": (lambda o, a: o.var(a, axis=0), lambda a: a.var(0)),
    "std": (lambda o, a: o.std(a), lambda a: a.std()),
    "max": (lambda o, a: o.max(a, axis=1, initial=0.0), lambda a: a.max(1, initial=0)),
    "min": (lambda o, a: o.min(a), lambda a: a.min()),
    "argmax": (lambda o, a: o.argmax(a % 5.0, axis=-1), lambda a: np.argmax(a % 5, -1)),
    "argmax of all": (lambda o, a: o.argmax(a), lambda a: np.argmax(a)),
    "argmin": (lambda o, a: o.argmin(a % 5.0, axis=0), lambda a: np.argmin(a % 5, 0)),
    "all": (lambda o, a: o.all(a > -7.0, axis=2), lambda a: (a > -7).all(2)),
    "any": (lambda o, a: o.any(a > 15.0, axis=2), lambda a: (a > 15).any(2)),
    "count_nonzero": (
        lambda o, a: o.count_nonzero(o.floor(a / 4)),
        lambda a: np.asarray(np.count_nonzero(a // 4)),
    ),
    "reshape": (lambda o, a: o.reshape(a, (4, -1)), lambda a: a.reshape(4, -1)),
    "transpose": (lambda o, a: o.transpose(a), lambda a: a.T),
    "moveaxis": (lambda o, a: o.moveaxis(a, 0, -1), lambda a: np.moveaxis(a, 0, -1)),
    "swapaxes": (lambda o, a: o.swapaxes(a, 0, 2), lambda a: np.swapaxes(a, 0, 2)),
    "expand_dims": (lambda o, a: o.expand_dims(a, (0, -1)), lambda a: np.expand_dims(a, (0, -1))),
    "squeeze": (lambda o, a: o.squeeze(a[:1]), lambda a: a[:1].squeeze()),
    "stack": (lambda o, a: o.stack([a, a], axis=1), lambda a: np.stack([a, a], 1)),
    "split": (lambda o, a: o.split(a, [1, 3], axis=2)[1], lambda a: np.split(a, [1, 3], 2)[1]),
    "unstack": (lambda o, a: o.unstack(a, axis=1)[2], lambda a: a[:, 2]),
    "pad": (
        lambda o, a: o.pad(a, ((0, 1), (2, 0), (1, 1))),
        lambda a: np.pad(a, ((0, 1), (2, 0), (1, 1))),
    ),
    "pad with 3": (
        lambda o, a: o.pad(a, 1, constant_values=3.0),
        lambda a: np.pad(a, 1, constant_values=3),
    ),
    "flip": (lambda o, a: o.flip(a, axis=1), lambda a: np.flip(a, 1)),
    "take": (lambda o, a: o.take(a, [2, 0, -1], axis=1), lambda a: np.take(a, [2, 0, -1], 1)),
    "take of all": (lambda o, a: o.take(a, [5, 1]), lambda a: np.take(a, [5, 1])),
    "broadcast_to": (
        lambda o, a: o.broadcast_to(a[:, :1], (2, 3, 4)),
        lambda a: np.broadcast_to(a[:, :1], (2, 3, 4)),
    ),
    "item": (lambda o, a: a[1], lambda a: a[1]),
    "slices": (lambda o, a: a[:, ::2, -2:], lambda a: a[:, ::2, -2:]),
    "backwards": (lambda o, a: a[..., ::-1], lambda a: a[..., ::-1]),
    "new axis": (lambda o, a: a[:, None, 1, ..., 0], lambda a: a[:, None, 1, ..., 0]),
    "array index": (lambda o, a: a[:, np.array([1, 1, 0])], lambda a: a[:, [1, 1, 0]]),
    "matmul": (lambda o, a: o.matmul(a, o.transpose(a[0])), lambda a: a @ a[0].T),
    "matmul of batches": (lambda o, a: a @ o.swapaxes(a, 1, 2), lambda a: a @ a.swapaxes(1, 2)),
    "matmul with a vector": (lambda o, a: o.matmul(a, a[0, 0]), lambda a: a @ a[0, 0]),
    "norm": (lambda o, a: o.norm(a, axis=-1), lambda a: np.linalg.norm(a, axis=-1)),
    "logsumexp": (lambda o, a: o.logsumexp(a, axis=1), lambda a: np.log(np.exp(a).sum(1))),
    "softmax over two": (
        lambda o, a: o.softmax(a, axis=(0, 2)),
        lambda a: np.exp(a) / np.exp(a).sum((0, 2), keepdims=True),
    ),
    "reflected": (lambda o, a: 2 - (3 / (a + 0.25)), lambda a: 2 - 3 / (a + 0.25)),
    "isnan": (lambda o, a: o.isnan(o.log(a)), lambda a: a < 0),
    "isinf": (lambda o, a: o.isinf(o.divide(a, 0.0)), lambda a: a == a),
    "logic": (lambda o, a: (a > 0) & ~(a > 5), lambda a: (a > 0) & ~(a > 5)),
}


@pytest.mark.parametrize("name", CASES)
def test_values_eager_and_recorded(name, device):
    here, there = CASES[name]
    with keras.device(device):
        eager = here(ops, ops.convert_to_tensor(A))
        with Trace(device) as trace:
            x = trace.graph.input("x", list(A.shape), "float32")
            recorded = here(ops, x)
        program = _core.Program.compile(trace.graph, [recorded], device, allow_tf32=False)
        program.run([_core.from_numpy(A, device)])
        _core.synchronize(device)
    expected = there(A)
    for result in (eager, program.outputs()[0]):
        values = np.array(result.numpy())
        assert values.shape == expected.shape
        # The results have a few float32 roundings, of sums of at most 24 numbers below 20.
        np.testing.assert_allclose(values, expected, rtol=2e-6, atol=2e-6)


@pytest.mark.parametrize("name", CASES)
def test_shapes_of_keras_tensors(name):
    here, there = CASES[name]
    assert here(ops, keras.KerasTensor(A.shape)).shape == there(A).shape


def test_unknown_sizes_stay_unknown():
    x = keras.KerasTensor((None, 3, None))
    assert ops.sum(x, axis=1).shape == (None, None)
    assert ops.concatenate([x, x], axis=1).shape == (None, 6, None)
    assert ops.transpose(x).shape == (None, 3, None)
    assert ops.mean(x).shape == ()


@pytest.mark.parametrize(
    ("make", "dtype"),
    [
        (lambda: ops.add(I, 1), "int32"),
        (lambda: ops.add(I, 1.5), "float32"),
        (lambda: ops.divide(I, I), "float32"),
        (lambda: ops.mean(I), "float32"),
        (lambda: ops.sum(I.astype("uint8")), "int32"),
        (lambda: ops.sqrt(np.abs(I)), "float32"),
        (lambda: ops.multiply(I, I.astype("float64")), "float64"),
        (lambda: ops.add(I.astype("uint8"), I.astype("int8")), "int16"),
        (lambda: ops.add(A.astype("float16"), 2.0), "float16"),
        (lambda: ops.add(A, I.astype("int64")[0, 0]), "float32"),
        (lambda: ops.equal(I, I), "bool"),
        (lambda: ops.add(I > 0, I > 0), "bool"),
        (lambda: ops.multiply(I > 0, 2), "int32"),
        (lambda: ops.argmax(A), "int32"),
        (lambda: ops.convert_to_tensor([1, 2]), "int32"),
        (lambda: ops.convert_to_tensor([1.0, 2]), "float32"),
        (lambda: ops.convert_to_tensor([True]), "bool"),
        (lambda: ops.convert_to_tensor(np.zeros(2)), "float64"),
        (lambda: ops.one_hot(I[0] * 0, 2), "float32"),
        (lambda: ops.arange(3), "int32"),
        (lambda: ops.arange(3.0), "float32"),
    ],
)
def test_dtypes_meet_as_in_keras(make, dtype):
    assert make().dtype == dtype


@pytest.mark.parametrize(
    ("make", "error", "text"),
    [
        (lambda: ops.reshape(A, (5, 5)), ValueError, "24 elements"),
        (lambda: ops.sum(A, axis=3), ValueError, "axis 3"),
        (lambda: ops.squeeze(A, axis=1), ValueError, "size 3"),
        (lambda: ops.take(A, [3], axis=1), IndexError, "from -3 to 2"),
        (lambda: ops.convert_to_tensor(A)[:, 3], IndexError, "index 3"),
        (lambda: ops.convert_to_tensor(A)[0, 0, 0, 0], IndexError, "4 indices"),
        (lambda: ops.matmul(A, A), ValueError, r"\(2, 3, 4\), \(2, 3, 4\)"),
        (lambda: ops.split(A, 2, axis=1), ValueError, "2 equal parts"),
        (lambda: ops.transpose(A, (0, 0, 1)), ValueError, "each of the 3 axes"),
        (lambda: ops.convert_to_tensor("text"), TypeError, "text"),
        (lambda: ops.convert_to_tensor([[1], [1, 2]]), TypeError, "cannot be made a tensor"),
        (lambda: ops.cast(A, "complex64"), TypeError, "complex64"),
        (lambda: ops.conv(A, A), ValueError, "does not fit an input"),
        (lambda: ops.where(A > 0, 1.0), ValueError, "both x1 and x2"),
        (lambda: ops.sparse_categorical_crossentropy([1, 2], A[0]), ValueError, r"\(3,\)"),
        (lambda: ops.categorical_crossentropy(A[0], A), ValueError, "same shape"),
        (lambda: float(ops.convert_to_tensor(A)), ValueError, "one element"),
    ],
)
def test_refusals(make, error, text):
    with pytest.raises(error, match=text):
        make()


def test_symbolic_values_do_not_outlive_their_trace():
    with Trace("cpu") as trace:
        x = trace.graph.input("x", [2], "float32")
        with pytest.raises(TypeError, match="has no value yet"):
            bool(ops.sum(x) > 0)
    with pytest.raises(ValueError, match="after its trace had ended"):
        ops.add(x, 1)


def test_tensors_of_other_libraries(device):
    torch = pytest.importorskip("torch")
    with keras.device(device):
        x = ops.convert_to_tensor(torch.arange(6.0).reshape(2, 3))
        assert x.device == device
        np.testing.assert_array_equal(x.numpy(), np.arange(6.0).reshape(2, 3))
        assert ops.add(torch.ones(2), np.ones(2, "float32")).numpy().tolist() == [2.0, 2.0]


def test_tensors_are_python_values(device):
    with keras.device(device):
        x = ops.convert_to_tensor([[1.0, 2.0]])
        assert float(ops.sum(x)) == 3.0
        assert x.item if x.size == 1 else len(x) == 1
        assert [row.shape for row in x] == [(2,)]
        assert (np.ones((1, 2), "float32") + x).numpy().tolist() == [[2.0, 3.0]]
        assert x.astype("int32").dtype == "int32"
        assert bool(ops.all(x == x))
        assert len({x, x}) == 1
        assert device in repr(x)


def test_results_stay_with_the_tensor_that_they_are_made_from(cuda_device):
    """The default device makes no difference."""
    for here, default in (("cpu", cuda_device), (cuda_device, "cpu")):
        with keras.device(here):
            x, v = ops.ones((2,)), keras.Variable([1.0, 2.0])
            mean = keras.metrics.Mean()
        with keras.device(default):
            made = [ops.zeros_like(x), ops.ones_like(x), ops.full_like(x, 3)]
            made.append(ops.add(x, [1.0, 2.0]))
            v.assign_add(ops.ones((2,)))
            mean.update_state(x)
            made += [v.value, mean.result()]
        assert {tensor.device for tensor in made} == {here}
        assert v.numpy().tolist() == [2.0, 3.0]
        assert float(made[-1]) == 1.0


def test_eager_and_variable(device):
    with keras.device(device):
        v = keras.Variable(np.array([1.0, 2.0], "float32"), name="v")
        v.assign_add([1.0, 1.0])
        v.assign_sub(0.5 * v)
        assert (v + 1).numpy().tolist() == [2.0, 2.5]
        with pytest.raises(ValueError, match=r"'v' has shape \(2,\)"):
            v.assign([1.0, 2.0, 3.0])
        with pytest.raises(ValueError, match="needs a shape"):
            keras.Variable(lambda shape, dtype: np.zeros(shape))
        assert keras.Variable("ones", shape=(2,)).numpy().tolist() == [1.0, 1.0]
        assert keras.Variable(3).dtype == "int32"
        assert np.asarray(v).tolist() == [1.0, 1.5]
        # The assignment returns the assigned value, which does not change later.
        assigned, sum_ = v.assign([4, 5]), v.assign_add(1.0)
        assert (assigned.dtype, assigned.numpy().tolist()) == ("float32", [4.0, 5.0])
        assert sum_.numpy().tolist() == [5.0, 6.0]
        assert v.assign_sub([1.0, 1.0]).numpy().tolist() == np.asarray(v).tolist() == [4.0, 5.0]
