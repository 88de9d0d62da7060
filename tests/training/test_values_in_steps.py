"""Python, NumPy and other libraries may ask for values that a recorded step does not have."""

import contextlib
import math

import numpy as np
import pytest

import kerascnn as keras
from kerascnn import layers, ops
from kerascnn.symbolic.no_value import NoValueError

torch = pytest.importorskip("torch")

ASKING = {
    "if": lambda x: 1 if ops.max(x) > 1 else 2,
    "and": lambda x: ops.max(x) > 0 and ops.min(x) > 0,
    "float": lambda x: float(ops.max(x)),
    "int": lambda x: int(ops.max(x)),
    "math": lambda x: math.exp(ops.max(x)),
    "for": lambda x: [row * 2 for row in x],
    "unpacking": lambda x: (lambda a, b: a)(*x),
    "in": lambda x: 3.0 in x,
    "range": lambda x: range(ops.cast(ops.max(x), "int32")),
    "an index": lambda x: [1, 2][ops.cast(ops.max(x), "int32")],
    "max": lambda x: max(ops.max(x), 0.0),
    "format": lambda x: f"{ops.max(x):.3f}",
    "np.exp": lambda x: np.exp(x),
    "np.mean": lambda x: np.mean(x),
    "np.sum": lambda x: np.sum(x),
    "np.concatenate": lambda x: np.concatenate([x, x]),
    "np.asarray": lambda x: np.asarray(x),
    "np.float32": lambda x: np.float32(ops.max(x)),
    "np.from_dlpack": lambda x: np.from_dlpack(x),
    "numpy()": lambda x: x.numpy(),
    "item()": lambda x: ops.max(x).item(),
    "torch.relu": lambda x: torch.relu(x),
    "torch.cat": lambda x: torch.cat([x, x]),
    "torch.tensor": lambda x: torch.tensor(x),
    "torch.from_dlpack": lambda x: torch.from_dlpack(x),
}


class Asking(layers.Layer):
    def __init__(self, function):
        super().__init__(name="asks")
        self.function = function

    def call(self, x):
        self.function(x)
        return x


class Model(keras.Model):
    def __init__(self, function):
        super().__init__()
        self.first, self.last = layers.Dense(3), Asking(function)

    def call(self, x):
        return self.last(self.first(x))


X, Y = np.ones((4, 2), "float32"), np.ones((4, 3), "float32")


@pytest.mark.parametrize("what", ASKING)
def test_the_error_names_the_line_the_layer_and_the_ways_out(what):
    model = Model(ASKING[what])
    model.compile("sgd", "mse")
    with pytest.raises(NoValueError) as caught:
        model.fit(X, Y, verbose=0)
    text = str(caught.value)
    line = ASKING[what].__code__.co_firstlineno
    assert f'File "{__file__}", line {line}' in text
    assert "'asks' (Asking)" in text
    assert "run_eagerly=True" in text
    assert what == "format" or "keras.ops" in text


@pytest.mark.parametrize("what", ASKING)
def test_the_same_works_with_values(what):
    if what in ("unpacking", "an index"):
        pytest.skip("asks for other numbers")
    # NumPy's DLPack cannot read a GPU's memory.
    with keras.device("cpu") if what == "np.from_dlpack" else contextlib.nullcontext():
        model = Model(ASKING[what])
        model.compile("sgd", "mse", run_eagerly=True)
        model.fit(X, Y, verbose=0)


@pytest.mark.parametrize("what", ASKING)
def test_tensors_of_models_say_so_too(what):
    with pytest.raises(NoValueError, match="while a model is put together") as caught:
        ASKING[what](keras.Input((3,)))
    assert __file__ in str(caught.value)


def test_arrays_of_others_may_come_first(rng):
    array = rng.normal(size=(3,)).astype("float32")
    rows = rng.normal(size=(5, 5)).astype("float32")

    def call(x):
        x = array + x * np.float32(2)
        x = torch.from_numpy(array) * x
        return torch.from_numpy(rows) @ (rows @ x) * len(x)

    x = rng.normal(size=(5, 3)).astype("float32")
    expected = rows @ (rows @ (array * (array + 2 * x))) * 5
    np.testing.assert_allclose(keras.jit(call)(x), expected, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(call(ops.convert_to_tensor(x)), expected, rtol=1e-4, atol=1e-4)


def test_numpy_takes_tensors_and_variables(rng):
    array = rng.normal(size=(4,)).astype("float32")
    for x in (ops.convert_to_tensor(array), keras.Variable(array)):
        assert type(np.exp(x)) is np.ndarray
        np.testing.assert_array_equal(np.exp(x), np.exp(array))
        np.testing.assert_array_equal(np.add.reduce(x), np.add.reduce(array))
        assert ops.is_tensor(array + x)


def test_a_variable_gives_no_value_to_a_step_that_is_recorded():
    # A step that was recorded with the value would keep it forever.
    for ask in (lambda v: v.numpy(), np.asarray, float, torch.from_dlpack, lambda v: v.tolist()):
        scale = keras.Variable(2.0)
        scaled = keras.jit(lambda x, ask=ask, scale=scale: x * ask(scale))
        with pytest.raises(NoValueError, match="no value yet"):
            scaled(X)
    assert "2.0" in keras.jit(lambda x: repr(scale))(X)


def test_layers_that_ask_for_values_can_be_part_of_models(rng):
    class Counting(layers.Layer):
        def build(self, shape):
            self.calls = self.add_weight((), "zeros", trainable=False)

        def call(self, x):
            self.calls.assign_add(1.0)
            x = x + keras.random.normal(x.shape)
            if ops.max(x) > 100:
                x = x / 100
            return ops.concatenate([x, x], -1)

    keras.utils.set_random_seed(4)
    keras.random.uniform((1,))
    state = keras.seed_generators.global_state().numpy()
    inputs, counting = keras.Input((3,)), Counting()
    hidden = counting(inputs)
    assert hidden.shape == (None, 6)
    # Inferring shapes leaves no side effects.
    assert float(counting.calls) == 0
    np.testing.assert_array_equal(keras.seed_generators.global_state().numpy(), state)
    model = keras.Model(inputs, layers.Dense(1)(hidden))
    model.compile("sgd", "mse", run_eagerly=True)
    model.fit(rng.normal(size=(4, 3)), np.ones((4, 1)), batch_size=2, verbose=0)
    assert float(counting.calls) == 2
    model.compile("sgd", "mse")
    with pytest.raises(NoValueError, match="`if ops.max"):
        model.fit(rng.normal(size=(4, 3)), np.ones((4, 1)), batch_size=2, verbose=0)


def test_tapes_know_the_gradients_of_pytorch(rng):
    x = keras.Variable(rng.normal(size=(3, 5)).astype("float32"))
    weights = rng.normal(size=(3, 5)).astype("float32")

    def slope(gelu):
        with keras.GradientTape() as tape:
            y = ops.sum(gelu(x * 2.0) * weights)
        return np.asarray(tape.gradient(y, x))

    expected = slope(lambda z: ops.gelu(z, approximate=False))
    np.testing.assert_allclose(slope(torch.nn.functional.gelu), expected, rtol=1e-4, atol=1e-6)
    # One result is a tuple, and no gradient is asked of the other.
    with keras.GradientTape() as tape:
        values, indices = torch.max(x * weights, dim=1)
        y = ops.sum(values)
    chosen = np.zeros((3, 5), "float32")
    rows = np.arange(3)
    chosen[rows, np.asarray(indices)] = weights[rows, np.asarray(indices)]
    np.testing.assert_allclose(tape.gradient(y, x), chosen, rtol=1e-6)


def test_pytorch_can_be_part_of_a_layer_that_is_trained(rng):
    class Torch(layers.Layer):
        def call(self, x):
            return torch.nn.functional.silu(x)

    x, y = rng.normal(size=(8, 3)).astype("float32"), rng.normal(size=(8, 1)).astype("float32")

    def train(last, run_eagerly):
        keras.utils.set_random_seed(1)
        model = keras.Sequential([keras.Input((3,)), layers.Dense(4), last, layers.Dense(1)])
        model.compile("adam", "mse", run_eagerly=run_eagerly)
        model.fit(x, y, batch_size=3, epochs=2, verbose=0)
        return model.get_weights()

    expected = train(layers.Activation("silu"), False)
    for a, e in zip(train(Torch(), True), expected, strict=True):
        np.testing.assert_allclose(a, e, rtol=1e-4, atol=1e-5)


def causal_mask(batch_size, length):
    """Makes a mask as Keras' examples do: the counts of `tile` are a tensor."""
    rows, columns = ops.arange(length)[:, None], ops.arange(length)
    mask = ops.reshape(ops.cast(rows >= columns, "int32"), (1, length, length))
    ones = ops.convert_to_tensor([1, 1])
    return ops.tile(mask, ops.concatenate([ops.expand_dims(batch_size, -1), ones], 0))


class CausalMean(layers.Layer):
    """Computes the mean of all elements so far, for sequences of any length."""

    def call(self, x):
        batch_size, length, _ = ops.shape(x)
        mask = ops.cast(causal_mask(batch_size, length), x.dtype)
        return ops.matmul(mask / ops.sum(mask, -1, keepdims=True), x)


def test_values_made_of_constants_are_known_while_a_step_is_recorded(rng, device):
    with keras.device(device):
        inputs = keras.Input((None, 3))
        model = keras.Model(inputs, layers.Dense(2)(CausalMean()(inputs)))
        x, y = rng.normal(size=(10, 5, 3)), rng.normal(size=(10, 5, 2))
        model.compile("sgd", "mse")
        model.fit(x, y, batch_size=4, verbose=0)
        kernel, bias = model.get_weights()
        means = np.cumsum(x, 1) / np.arange(1, 6)[:, None]
        found = model.predict(x, batch_size=4, verbose=0)
    np.testing.assert_allclose(found, means @ kernel + bias, rtol=1e-2, atol=1e-2)


KNOWN = {
    "int": lambda n: int(n[0]) == 4,
    "float": lambda n: float(n[1]) == 2.0,
    "if": lambda n: bool(n[0] > 3) and not n[1] > 3,
    "range": lambda n: len(range(n[0])) == 4,
    "for": lambda n: [int(i) for i in n] == [4, 2],
    "np.asarray": lambda n: np.asarray(n).tolist() == [4, 2],
    "reshape": lambda n: ops.reshape(ops.ones((8,)), n).shape == (4, 2),
}


def recorded(ask):
    """Returns the results of `ask` in a compiled function, on an input, a variable and a draw."""
    variable = keras.Variable(np.array([4, 2]), dtype="int32")
    found = []

    @keras.jit
    def compiled(x):
        draw = keras.random.randint((2,), 0, 9)
        sizes = ops.stack([ops.add(3, 1), ops.size(ops.ones((2,)))])
        found.append(ask({"input": x, "variable": variable + 0, "draw": draw, "sizes": sizes}))
        return x

    compiled(np.array([4, 2], "int32"))
    return found[0]


@pytest.mark.parametrize("what", KNOWN)
def test_only_what_is_made_of_constants_is_known(what):
    assert recorded(lambda given: KNOWN[what](given["sizes"]))
    for unknown in ("input", "variable", "draw"):
        with pytest.raises(NoValueError):
            recorded(lambda given, unknown=unknown: KNOWN[what](given[unknown]))
        with pytest.raises(NoValueError):
            recorded(lambda given, unknown=unknown: KNOWN[what](given["sizes"] + given[unknown]))
