"""Training programs give the same bits in every order that their dependencies allow."""

import numpy as np
import pytest

import kerascnn as keras

SEEDS = range(1, 9)


def convolutional():
    image = keras.Input((9, 8, 2))
    x = keras.layers.Conv2D(3, 3, kernel_regularizer="l2", use_bias=False)(image)
    x = keras.layers.BatchNormalization(gamma_regularizer="l1")(x)
    x = keras.layers.ReLU()(x)
    x = keras.layers.Conv2D(4, 3, padding="same", activation="relu")(x)
    x = keras.layers.MaxPooling2D()(x)
    x = keras.layers.Dropout(0.3)(x)
    x = keras.layers.Flatten()(x)
    x = keras.layers.Dense(
        6,
        activation="tanh",
        activity_regularizer="l2",
        kernel_regularizer=keras.regularizers.OrthogonalRegularizer(0.1),
    )(x)
    model = keras.Model(image, keras.layers.Dense(3, activation="softmax")(x))
    model.compile(
        keras.optimizers.Adam(0.01),
        "sparse_categorical_crossentropy",
        metrics=["accuracy", keras.metrics.SparseTopKCategoricalAccuracy(2)],
    )
    return model


def branched():
    """Has branches, a constraint, an average of the weights, and metrics with state."""
    image = keras.Input((9, 8, 2))
    left = keras.layers.AveragePooling2D(2)(image)
    left = keras.layers.LayerNormalization()(keras.layers.Flatten()(left))
    right = keras.layers.SeparableConv2D(3, 3, strides=2)(image)
    right = keras.layers.GaussianNoise(0.1)(keras.layers.Flatten()(right))
    x = keras.layers.Concatenate()([left, right])
    x = keras.layers.Dense(5, activation="relu", kernel_constraint="max_norm")(x)
    model = keras.Model(image, keras.layers.Dense(1)(keras.layers.Dropout(0.5)(x)))
    model.compile(
        keras.optimizers.SGD(0.01, momentum=0.9, clipnorm=1.0, use_ema=True, ema_momentum=0.9),
        "mse",
        metrics=["mae", keras.metrics.RootMeanSquaredError(), keras.metrics.R2Score()],
        weighted_metrics=["mse"],
    )
    return model


def trained(make, device):
    """Returns logs, weights and the optimizer's state after training with fixed seeds."""
    keras.utils.set_random_seed(5)
    inputs = np.random.default_rng(5)
    x = inputs.normal(size=(44, 9, 8, 2)).astype("float32")
    y = inputs.integers(0, 3, (44, 1)).astype("float32")
    weights = inputs.uniform(0.5, 1.5, 44).astype("float32")
    with keras.device(device):
        model = make()
    # The last batch is smaller and runs a program of its own over the same state.
    history = model.fit(
        x, y, batch_size=8, epochs=2, sample_weight=weights, validation_data=(x, y), verbose=0
    )
    state = [np.asarray(variable) for variable in (*model.variables, *model.optimizer.variables)]
    return history.history, state


@pytest.mark.parametrize("make", [convolutional, branched])
def test_training_is_the_same_in_every_allowed_order(make, device, monkeypatch):
    expected_logs, expected = trained(make, device)
    assert all(np.isfinite(values).all() for values in expected_logs.values())
    for seed in SEEDS:
        monkeypatch.setenv("KERASCNN_SHUFFLE_KERNELS", str(seed))
        logs, state = trained(make, device)
        assert logs == expected_logs, seed
        for received, variable in zip(state, expected, strict=True):
            np.testing.assert_array_equal(received, variable, err_msg=str(seed))


def test_nonsense_as_a_seed_is_refused(monkeypatch):
    monkeypatch.setenv("KERASCNN_SHUFFLE_KERNELS", "often")
    with pytest.raises(ValueError, match="KERASCNN_SHUFFLE_KERNELS"):
        trained(convolutional, "cpu")
