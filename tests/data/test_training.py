"""Models train, evaluate and adapt on data sets as they do on the arrays in them."""

import numpy as np
import pytest

import kerascnn as keras
from kerascnn.data import AUTOTUNE, Dataset


@pytest.fixture
def data(rng):
    x = rng.normal(size=(22, 3)).astype("float32")
    return x, (x.sum(1, keepdims=True) * 0.5).astype("float32")


def model_of(start=None):
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])
    model.compile(keras.optimizers.SGD(0.05), "mse")
    if start is not None:
        model.set_weights(start)
    return model


@pytest.mark.parametrize("by_threads", [False, True])
def test_the_same_as_with_arrays(data, device, by_threads):
    with keras.device(device):
        reference = model_of()
        start = reference.get_weights()
        options = {"batch_size": 5, "shuffle": False, "epochs": 3, "verbose": 0}
        expected = reference.fit(*data, validation_data=data, **options).history
        dataset = Dataset.from_tensor_slices(data).batch(5)
        if by_threads:
            dataset = dataset.map(lambda x, y: (x, y), num_parallel_calls=2).prefetch(AUTOTUNE)
        model = model_of(start)
        found = model.fit(dataset, validation_data=dataset, epochs=3, verbose=0).history
        # The same kernels run on the same batches, but sums over an epoch may run in another
        # program.
        for name, values in expected.items():
            np.testing.assert_allclose(found[name], values, rtol=1e-5)
        np.testing.assert_allclose(
            model.evaluate(dataset, verbose=0), reference.evaluate(*data, verbose=0), rtol=1e-5
        )
        only_x = dataset.map(lambda x, y: x)
        np.testing.assert_allclose(
            model.predict(only_x, verbose=0), reference.predict(data[0], verbose=0), rtol=1e-5
        )


def test_layers_in_map(data, device):
    x, y = data
    with keras.device(device):
        layer = keras.layers.Normalization()
        layer.adapt(Dataset.from_tensor_slices((x, y)).batch(4))
        np.testing.assert_allclose(layer.mean.numpy()[0], x.mean(0), atol=1e-6)
        dataset = Dataset.from_tensor_slices((x, y)).batch(4)
        mapped = dataset.map(lambda a, b: (layer(a), b)).cache().shuffle(10).prefetch(AUTOTUNE)
        found = np.concatenate([a for a, _ in mapped.as_numpy_iterator()])
        expected = (x - x.mean(0)) / x.std(0)
        np.testing.assert_allclose(np.sort(found, 0), np.sort(expected, 0), atol=1e-5)
        history = model_of().fit(mapped, epochs=2, verbose=0)
        assert np.isfinite(history.history["loss"]).all()


def test_each_epoch_has_another_order(data):
    seen = []

    def note(x, y):
        seen.append(float(x[0, 0]))
        return x, y

    dataset = Dataset.from_tensor_slices(data).shuffle(22, seed=1).batch(22).map(note)
    model_of().fit(dataset, epochs=3, verbose=0)
    assert len(set(seen)) > 1


def test_without_an_end(data):
    dataset = Dataset.from_tensor_slices(data).batch(5).repeat()
    model = model_of()
    with pytest.raises(ValueError, match="steps_per_epoch"):
        model.fit(dataset, verbose=0)
    with pytest.raises(ValueError, match="`steps`"):
        model.predict(dataset.map(lambda x, y: x), verbose=0)
    with pytest.raises(ValueError, match="validation_steps"):
        model.fit(*data, validation_data=dataset, verbose=0)
    history = model.fit(dataset, steps_per_epoch=7, epochs=2, verbose=0)
    assert len(history.history["loss"]) == 2


def test_of_unknown_length(data):
    x, y = data
    dataset = Dataset.from_generator(lambda: ((a, b) for a, b in zip(x, y, strict=True))).batch(5)
    assert model_of().predict(dataset.map(lambda a, b: a), verbose=0).shape == (22, 1)
    model_of().fit(dataset, epochs=2, verbose=0)


def test_split_of_a_data_set(data):
    x, y = data
    dataset = Dataset.from_tensor_slices((x, y)).shuffle(22, seed=2)
    left, right = keras.utils.split_dataset(dataset, left_size=0.5)
    both = np.concatenate([np.stack([a for a, _ in part]) for part in (left, right)])
    np.testing.assert_array_equal(np.sort(both, 0), np.sort(x, 0))
    assert [len(b) for _, b in left.batch(4).take(2)] == [4, 4]
