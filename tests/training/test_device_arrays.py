"""Data that is on the device already never goes through the host.

The code asks an array whether it is on a GPU. Here arrays in the CPU's memory answer yes too, so
that the same code runs without a GPU.
"""

import numpy as np
import pytest

import kerascnn as keras
from kerascnn import _core, interchange
from kerascnn.training import device_arrays
from kerascnn.training.feed import Feed

SIZE = 50  # This is no multiple of the batch size.


@pytest.fixture
def on_device(device, monkeypatch):
    """Gives a function that copies an array to the device as a tensor that counts as on a GPU."""
    if device == "cpu":
        monkeypatch.setattr(
            interchange, "is_on_gpu", lambda x: isinstance(x, (_core.Tensor, Sharing))
        )
    with keras.device(device):
        yield lambda array: _core.from_numpy(array, device)


class Sharing:
    """An array of a library that only knows DLPack."""

    def __init__(self, tensor):
        self.tensor = tensor
        self.requests = 0

    def __dlpack__(self, **arguments):
        self.requests += 1
        return self.tensor.__dlpack__(**arguments)

    def __dlpack_device__(self):
        return self.tensor.__dlpack_device__()

    def __array__(self, *args, **kwargs):
        raise AssertionError("was brought to the host")


@pytest.fixture
def data(rng):
    return rng.normal(size=(SIZE, 6)).astype("float32"), rng.integers(0, 3, SIZE)


def small_model(seed=3, **kwargs):
    keras.utils.set_random_seed(seed)
    model = keras.Sequential([keras.layers.Dense(8, activation="tanh"), keras.layers.Dense(3)])
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.SGD(0.1), loss, metrics=["accuracy"], **kwargs)
    return model


def no_host_copies(monkeypatch):
    """From here on, copying a tensor to the host, or an array to the device, is an error."""

    def copied(*args, **kwargs):
        raise AssertionError("data went through the host")

    monkeypatch.setattr(device_arrays.DeviceArray, "__array__", copied)
    monkeypatch.setattr(_core, "from_numpy", copied)


def test_fit_evaluate_and_predict_give_what_arrays_give(on_device, data):
    x, y = data
    keys = {"batch_size": 8, "verbose": 0}
    results = []
    for wrap in (lambda a: a, on_device, lambda a: Sharing(on_device(a))):
        model = small_model()
        history = model.fit(
            wrap(x), wrap(y), epochs=2, validation_data=(wrap(x[:20]), wrap(y[:20])), **keys
        ).history
        results.append(
            (
                history,
                model.evaluate(wrap(x), wrap(y), **keys),
                model.predict(wrap(x), **keys),
                model.train_on_batch(wrap(x[:8]), wrap(y[:8])),
                model.test_on_batch(wrap(x[:8]), wrap(y[:8])),
                model.predict_on_batch(wrap(x[:5])),
            )
        )
    for other in results[1:]:
        assert other[0] == results[0][0] and other[1] == results[0][1]
        np.testing.assert_array_equal(other[2], results[0][2])
        assert other[3:5] == results[0][3:5]
        np.testing.assert_array_equal(other[5], results[0][5])


def test_a_pass_reads_the_memory_itself(on_device, data, monkeypatch):
    x, y = data
    read = []
    upload = Feed._upload

    def noting(self):
        upload(self)
        read.append([address(tensor) for tensor in self._tensors])

    monkeypatch.setattr(Feed, "_upload", noting)
    given = on_device(x), on_device(y.astype("int32"))
    model = small_model()
    model.fit(*given, epochs=1, batch_size=8, verbose=0)
    assert read == [[address(t) for t in given]]


def address(tensor):
    if tensor.device == "cpu":
        return tensor.numpy().__array_interface__["data"][0]
    return tensor.__cuda_array_interface__["data"][0]


def test_nothing_goes_through_the_host(on_device, data, monkeypatch):
    x, y = on_device(data[0]), on_device(data[1])
    model = small_model()
    keys = {"batch_size": 8, "verbose": 0}
    model.fit(x, y, **keys)  # This call creates what is small and constant.
    model.evaluate(x, y, **keys)
    model.predict(x, as_tensor=True, **keys)
    model.train_on_batch(x, y)
    sharing = Sharing(x)
    no_host_copies(monkeypatch)
    model.fit(x, y, **keys)
    model.evaluate(x, y, **keys)
    model.train_on_batch(x, y)
    outputs = model.predict(sharing, as_tensor=True, **keys)
    assert outputs.shape == (SIZE, 3) and sharing.requests == 1


@pytest.mark.parametrize("dtype", ["uint8", "int64", "float16", "bfloat16", "float64", "bool"])
def test_dtypes_are_cast_on_the_device(dtype, on_device, rng):
    x = rng.integers(0, 2, (20, 4)).astype("float32")
    y = rng.integers(0, 3, 20)
    model = small_model()
    expected = model.predict(x, verbose=0)
    tensor = keras.ops.cast(on_device(x), dtype)
    actual = model.predict(tensor, verbose=0)
    np.testing.assert_array_equal(actual, expected)
    model.fit(tensor, on_device(y), verbose=0)


def test_parts_of_the_data_are_views(on_device, data):
    x, y = on_device(data[0]), on_device(data[1])
    split, whole = small_model(), small_model()
    keys = {"batch_size": 8, "verbose": 0, "shuffle": False}
    first = split.fit(x, y, validation_split=0.3, **keys).history
    second = whole.fit(
        data[0][:35], data[1][:35], validation_data=(data[0][35:], data[1][35:]), **keys
    ).history
    assert first == second


def test_data_on_both_sides_and_weights(on_device, data, rng):
    x, y = data
    weights = rng.random(SIZE).astype("float32")
    keys = {"batch_size": 8, "verbose": 0}
    expected = small_model().fit(x, y, sample_weight=weights, **keys).history
    for given in (
        (on_device(x), y, weights),
        (x, on_device(y), on_device(weights)),
        (on_device(x), on_device(y), on_device(weights)),
    ):
        history = small_model().fit(given[0], given[1], sample_weight=given[2], **keys).history
        assert history == expected
    by_class = {0: 1.0, 1: 3.0}
    expected = small_model().fit(x, y, class_weight=by_class, **keys).history
    assert small_model().fit(on_device(x), on_device(y), class_weight=by_class, **keys).history == (
        expected
    )


def test_batches_of_a_source(on_device, data):
    x, y = data
    batches = [(x[i : i + 8], y[i : i + 8]) for i in range(0, SIZE, 8)]
    keys = {"epochs": 2, "verbose": 0}

    class Batches:
        def __init__(self, wrap_x, wrap_y):
            self.wrap = wrap_x, wrap_y

        def __iter__(self):
            return ((self.wrap[0](a), self.wrap[1](b)) for a, b in batches)

        def __len__(self):
            return len(batches)

    def on_host(a):
        return a

    expected = small_model().fit(Batches(on_host, on_host), **keys).history
    for wraps in ((on_device, on_device), (on_device, on_host), (on_host, on_device)):
        model = small_model()
        assert model.fit(Batches(*wraps), **keys).history == expected
        predicted = model.predict(
            ((on_device(a),) for a, _ in batches), steps=len(batches), verbose=0, as_tensor=True
        )
        np.testing.assert_array_equal(predicted.numpy(), model.predict(x, batch_size=8, verbose=0))


def test_labels_are_checked_as_those_of_arrays(on_device, data):
    x, y = data
    wrong = y.copy()
    wrong[[1, 4]] = 7
    messages = []
    for labels in (wrong, on_device(wrong)):
        with pytest.raises(ValueError, match="class numbers from 0 to 2") as caught:
            small_model().fit(x, labels, verbose=0)
        messages.append(str(caught.value))
    assert messages[0] == messages[1]
    with pytest.raises(ValueError, match="same number of samples"):
        small_model().fit(on_device(x), on_device(y[:-1]), verbose=0)
    with pytest.raises(ValueError, match="must have an axis of samples"):
        small_model().fit(on_device(np.float32(1)), on_device(y), verbose=0)
    with pytest.raises(ValueError, match="There are no samples"):
        small_model().fit(on_device(x[:0]), on_device(y[:0]), verbose=0)


def test_what_does_not_fit_beside_it_is_streamed(on_device, data, monkeypatch):
    from kerascnn.training import memory

    x, y = data
    expected = small_model().fit(x, y, batch_size=8, verbose=0).history
    monkeypatch.setattr(memory, "SMALL_BYTES", 0)
    monkeypatch.setattr(memory, "RESIDENT_SHARE", 0.0)
    model = small_model()
    history = model.fit(on_device(x), y, batch_size=8, verbose=0).history
    # The batches have the same order, so the sums of the metrics are rounded alike.
    assert history == expected


@pytest.mark.parametrize("batch_size", [7, 32, 64])
def test_predictions_as_tensors(batch_size, device, data):
    with keras.device(device):
        model = small_model()
        expected = model.predict(data[0], batch_size=batch_size, verbose=0)
        actual = model.predict(data[0], batch_size=batch_size, verbose=0, as_tensor=True)
    assert isinstance(actual, keras.Tensor) and actual.device == device
    assert (actual.shape, actual.dtype) == (expected.shape, "float32")
    np.testing.assert_array_equal(actual.numpy(), expected)
    # The caller owns the result, which another prediction leaves unchanged.
    model.predict(data[0] * 2, batch_size=batch_size, verbose=0, as_tensor=True)
    np.testing.assert_array_equal(actual.numpy(), expected)


def test_predictions_of_several_outputs_as_tensors(device, data):
    with keras.device(device):
        inputs = keras.Input((6,))
        model = keras.Model(
            inputs, {"a": keras.layers.Dense(2)(inputs), "b": [keras.layers.Dense(1)(inputs)]}
        )
        expected = model.predict(data[0], batch_size=8, verbose=0)
        actual = model.predict(data[0], batch_size=8, verbose=0, as_tensor=True)
    assert set(actual) == {"a", "b"} and isinstance(actual["b"], list)
    np.testing.assert_array_equal(actual["a"].numpy(), expected["a"])
    np.testing.assert_array_equal(actual["b"][0].numpy(), expected["b"][0])
    seen = []
    callback = keras.callbacks.LambdaCallback(
        on_predict_batch_end=lambda batch, logs: seen.append(logs["a"])
    )
    model.predict(data[0], batch_size=8, verbose=0, as_tensor=True, callbacks=[callback])
    assert all(isinstance(part, keras.Tensor) for part in seen) and len(seen) == 7


def test_tensors_that_learn_are_read_as_data():
    torch = pytest.importorskip("torch")
    x, y = torch.randn(10, 6, requires_grad=True), torch.randint(0, 3, (10,))
    model = small_model()
    model.fit(x, y, verbose=0)
    np.testing.assert_array_equal(
        model.predict(x, verbose=0), model.predict(x.detach().numpy(), verbose=0)
    )
    # A layer cannot return gradients to the library that owns the tensor.
    with pytest.raises(BufferError, match="detach"):
        keras.layers.Dense(2)(x)


@pytest.mark.parametrize("library", ["torch", "jax"])
def test_arrays_of_other_libraries_on_the_host(library, data):
    module = pytest.importorskip(library)
    to_theirs = module.from_numpy if library == "torch" else module.numpy.asarray
    x, y = data[0], data[1].astype("int32")
    keys = {"batch_size": 8, "verbose": 0}
    with keras.device("cpu"):
        expected = small_model().fit(x, y, **keys).history
        model = small_model()
        assert model.fit(to_theirs(x), to_theirs(y), **keys).history == expected
        batches = [(to_theirs(x[i : i + 8]), to_theirs(y[i : i + 8])) for i in range(0, SIZE, 8)]
        assert small_model().fit(iter(batches), steps_per_epoch=7, shuffle=False, verbose=0).history
        np.testing.assert_array_equal(model.predict(to_theirs(x), **keys), model.predict(x, **keys))
