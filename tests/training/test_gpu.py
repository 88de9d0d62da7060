"""Training on a GPU: few launches, the numbers of the CPU, models that stay where they are."""

import numpy as np
import pytest

import kerascnn as keras

from .helpers import blobs, classifier, convnet


def digits(samples=1500):
    (x, y), _ = keras.datasets.digits.load_data()
    return x[:samples, ..., None], y[:samples]


def compiled(model):
    model.compile("adam", "sparse_categorical_crossentropy", metrics=["accuracy"])
    return model


def test_launches_of_an_epoch_do_not_grow_with_its_steps(cuda_device):
    """Once the time of a step is known, an epoch is one launch and its last batch another."""
    x, y = digits()
    counters = ("kernel_launches", "graph_launches")
    totals = []
    watch = keras.callbacks.Callback()
    watch.on_epoch_end = lambda epoch, logs=None: totals.append(
        sum(keras.config.launch_stats(cuda_device)[k] for k in counters)
    )
    for batch_size in (128, 8):
        with keras.device(cuda_device):
            model = compiled(convnet())
        model.fit(x, y, batch_size=batch_size, epochs=4, callbacks=[watch], verbose=0)
    per_epoch = np.diff(totals)[[1, 2, 5, 6]]
    assert per_epoch.max() <= 10
    assert len(set(per_epoch)) == 1


def test_first_losses_are_those_of_the_cpu(cuda_device):
    x, y = digits(640)
    losses = {}
    for device in ("cpu", cuda_device):
        keras.utils.set_random_seed(1)
        with keras.device(device):
            model = compiled(convnet(dropout=0.0))
        assert {v.device for v in model.variables} == {device}
        losses[device] = [
            model.train_on_batch(x[start : start + 64], y[start : start + 64])[0]
            for start in range(0, 640, 64)
        ]
    # TF32 is off in tests; ten steps of Adam carry on the rounding of float32.
    np.testing.assert_allclose(losses[cuda_device], losses["cpu"], rtol=2e-5)


def test_dropout_draws_the_masks_of_the_cpu(cuda_device):
    """Both devices have one generator: with equal seeds, training stays together."""
    x, y = digits(256)
    weights = []
    for device in ("cpu", cuda_device):
        keras.utils.set_random_seed(3)
        with keras.device(device):
            model = compiled(convnet(dropout=0.5))
        keras.utils.set_random_seed(3)
        model.fit(x, y, batch_size=32, epochs=1, verbose=0)
        weights.append(model.get_weights()[-2])
    # Other masks would change the weights by the learning rate, 1e-3, per step.
    np.testing.assert_allclose(*weights, atol=2e-4)


def test_a_model_on_the_cpu_trains_there_while_the_default_is_a_gpu(cuda_device):
    metric = None
    with keras.device(cuda_device):
        metric = keras.metrics.SparseCategoricalAccuracy()
    with keras.device("cpu"):
        model = classifier()
    with keras.device(cuda_device):
        model.compile("adam", "sparse_categorical_crossentropy", metrics=[metric])
        before = keras.config.launch_stats(cuda_device)
        model.fit(*blobs(), epochs=2, verbose=0)
        assert keras.config.launch_stats(cuda_device) == before
    assert metric.total.device == model.optimizer.learning_rate.device == "cpu"


def test_batches_that_do_not_fit_say_which_would(cuda_device):
    with keras.device(cuda_device):
        model = keras.Sequential(
            [
                keras.Input((1,)),
                keras.layers.Dense(100_000, activation="relu"),
                keras.layers.Dense(1),
            ]
        )
    model.compile("sgd", "mse")
    x = np.zeros((1_000_000, 1), "float32")
    with pytest.raises(MemoryError, match=r"batch_size of up to about \d+ fits") as caught:
        model.fit(x, x, batch_size=1_000_000, verbose=0)
    fitting = caught.value.fitting_batch_size
    model.fit(x[:fitting], x[:fitting], batch_size=fitting, verbose=0)
