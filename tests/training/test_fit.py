"""fit, evaluate and predict equal a float64 NumPy model, and arguments mean what Keras says."""

import numpy as np
import pytest

import kerascnn as keras
from kerascnn import layers

from .helpers import (
    DenseReference,
    blobs,
    classifier,
    convnet,
    count_compilations,
)

# The float32 sums go over at most 20 samples of 4 features. Errors stay within a few units in the
# last place (6e-8) per step, and there are at most 40 steps.
RTOL = 2e-6


def compiled(learning_rate=0.5, **kwargs):
    model = classifier(**kwargs)
    model.compile(
        keras.optimizers.SGD(learning_rate),
        "sparse_categorical_crossentropy",
        metrics=["accuracy"],
    )
    return model


@pytest.mark.parametrize(
    ("samples", "batch_size"), [(20, 5), (20, 8), (20, 1), (1, 32), (20, 64), (20, 20), (7, 3)]
)
def test_batches_of_any_size_train_as_the_reference(samples, batch_size):
    x, y = blobs(samples)
    model = compiled()
    reference = DenseReference(model, 0.5)
    history = model.fit(x, y, batch_size=batch_size, epochs=2, shuffle=False, verbose=0)
    for epoch in range(2):
        total, right = 0.0, 0
        for start in range(0, samples, batch_size):
            batch = slice(start, start + batch_size)
            right += (reference.predictions(x[batch]).argmax(1) == y[batch]).sum()
            total += reference.step(x[batch], y[batch]) * len(y[batch])
        # The mean is over samples, not over batches, since the last batch may be smaller.
        np.testing.assert_allclose(history.history["loss"][epoch], total / samples, rtol=RTOL)
        assert history.history["accuracy"][epoch] == pytest.approx(right / samples, abs=1e-7)
    weights, bias = model.get_weights()
    np.testing.assert_allclose(weights, reference.w, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(bias, reference.b, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("batch_size", [1, 6, 20, 50])
def test_evaluate_and_predict_take_every_sample_once(batch_size):
    x, y = blobs()
    model = compiled()
    reference = DenseReference(model, 0.5)
    loss, accuracy = model.evaluate(x, y, batch_size=batch_size, verbose=0)
    np.testing.assert_allclose(loss, reference.losses(x, y).mean(), rtol=RTOL)
    assert accuracy == pytest.approx((reference.predictions(x).argmax(1) == y).mean(), abs=1e-7)
    probabilities = model.predict(x, batch_size=batch_size, verbose=0)
    np.testing.assert_allclose(probabilities, reference.predictions(x), rtol=1e-5, atol=1e-7)
    logs = model.evaluate(x, y, batch_size=batch_size, verbose=0, return_dict=True)
    assert logs == {"accuracy": accuracy, "loss": loss}


def test_history_has_keras_names_in_keras_order():
    x, y = blobs()
    history = compiled().fit(x, y, epochs=2, validation_split=0.25, verbose=0)
    assert list(history.history) == ["accuracy", "loss", "val_accuracy", "val_loss"]
    assert history.epoch == [0, 1]
    assert all(type(value) is float for values in history.history.values() for value in values)


def test_validation_split_takes_the_last_samples_unshuffled():
    x, y = blobs()
    model = compiled(learning_rate=0.0)
    reference = DenseReference(model, 0.0)
    history = model.fit(x, y, validation_split=0.25, verbose=0)
    # Training uses 20 * (1 - 0.25) = 15 samples.
    np.testing.assert_allclose(
        history.history["val_loss"][0], reference.losses(x[15:], y[15:]).mean(), rtol=RTOL
    )
    np.testing.assert_allclose(
        history.history["loss"][0], reference.losses(x[:15], y[:15]).mean(), rtol=RTOL
    )


def test_validation_data_wins_over_split_and_follows_its_frequency():
    x, y = blobs()
    model = compiled()
    history = model.fit(
        x, y, epochs=5, validation_data=(x[:6], y[:6]), validation_freq=2, verbose=0
    )
    assert len(history.history["val_loss"]) == 2
    history = model.fit(
        x, y, epochs=4, validation_data=(x[:6], y[:6]), validation_freq=[1, 4], verbose=0
    )
    assert len(history.history["val_loss"]) == 2


def test_sample_weights_scale_losses_and_leave_metrics_alone():
    x, y = blobs()
    weights = np.linspace(0.0, 3.0, 20)
    model = compiled()
    model.compile(
        keras.optimizers.SGD(0.5),
        "sparse_categorical_crossentropy",
        metrics=["accuracy"],
        weighted_metrics=[keras.metrics.SparseCategoricalAccuracy(name="weighted")],
    )
    reference = DenseReference(model, 0.5)
    right = reference.predictions(x).argmax(1) == y
    values = reference.losses(x, y) * weights
    logs = model.evaluate(x, y, sample_weight=weights, verbose=0, return_dict=True)
    np.testing.assert_allclose(logs["loss"], values.mean(), rtol=RTOL)
    assert logs["accuracy"] == pytest.approx(right.mean(), abs=1e-7)
    assert logs["weighted"] == pytest.approx((right * weights).sum() / weights.sum(), rel=1e-6)
    model.fit(x, y, sample_weight=weights, batch_size=8, shuffle=False, verbose=0)
    for start in range(0, 20, 8):
        batch = slice(start, start + 8)
        reference.step(x[batch], y[batch], weights[batch])
    np.testing.assert_allclose(model.get_weights()[0], reference.w, rtol=1e-5, atol=1e-6)


def test_class_weights_are_sample_weights_by_label():
    x, y = blobs()
    by_class, by_sample = compiled(), compiled()
    class_weight = {0: 3.0, 2: 0.5}
    by_class.fit(x, y, class_weight=class_weight, shuffle=False, verbose=0)
    weights = np.array([class_weight.get(int(label), 1.0) for label in y])
    by_sample.fit(x, y, sample_weight=weights, shuffle=False, verbose=0)
    np.testing.assert_array_equal(by_class.get_weights()[0], by_sample.get_weights()[0])


def test_class_weights_do_not_weigh_the_validation_split():
    x, y = blobs()
    model = compiled()
    history = model.fit(x, y, class_weight={0: 9.0, 1: 0.1}, validation_split=0.4, verbose=0)
    expected = model.evaluate(x[12:], y[12:], verbose=0)[0]
    np.testing.assert_allclose(history.history["val_loss"], [expected], rtol=RTOL)


def test_initial_epoch_numbers_the_epochs_on():
    x, y = blobs()
    history = compiled().fit(x, y, initial_epoch=3, epochs=5, verbose=0)
    assert history.epoch == [3, 4]


def test_steps_per_epoch_goes_on_where_the_last_epoch_ended():
    x, y = blobs()
    model = compiled(learning_rate=0.0)
    reference = DenseReference(model, 0.0)
    history = model.fit(x, y, batch_size=4, steps_per_epoch=2, epochs=2, shuffle=False, verbose=0)
    expected = [reference.losses(x[:8], y[:8]).mean(), reference.losses(x[8:16], y[8:16]).mean()]
    np.testing.assert_allclose(history.history["loss"], expected, rtol=RTOL)


def test_steps_beyond_the_data_end_the_epoch_early_with_a_warning():
    x, y = blobs()
    with pytest.warns(UserWarning, match="has only 5 of the 9 batches"):
        compiled().fit(x, y, batch_size=4, steps_per_epoch=9, verbose=0)


def test_shuffling_visits_every_sample_and_repeats_with_the_seed():
    x, y = blobs()
    seen = []
    for seed in (1, 1, 2):
        keras.utils.set_random_seed(seed)
        model = compiled(seed=3)
        history = model.fit(x, y, batch_size=4, epochs=3, verbose=0)
        seen.append((history.history["loss"], model.get_weights()[0]))
    assert seen[0][0] == seen[1][0]
    np.testing.assert_array_equal(seen[0][1], seen[1][1])
    assert (seen[0][1] != seen[2][1]).any()
    still = compiled(learning_rate=0.0)
    losses = still.fit(x, y, batch_size=3, epochs=2, verbose=0).history["loss"]
    reference = DenseReference(still, 0.0)
    np.testing.assert_allclose(losses, reference.losses(x, y).mean(), rtol=RTOL)


def test_two_runs_with_one_seed_are_bit_identical_with_dropout():
    (x, y), _ = keras.datasets.digits.load_data()
    results = []
    for _ in range(2):
        keras.utils.set_random_seed(7)
        model = convnet()
        model.compile("adam", "sparse_categorical_crossentropy", metrics=["accuracy"])
        model.fit(x[:500, ..., None], y[:500], batch_size=64, epochs=2, verbose=0)
        results.append(model.get_weights())
    for first, second in zip(*results, strict=True):
        np.testing.assert_array_equal(first, second)


def test_dropout_draws_anew_in_each_step():
    """Every step has the same batch and does not learn, so only the masks can change the loss."""
    x = np.tile(blobs(4)[0], (8, 1))
    model = keras.Sequential(
        [keras.Input((4,)), layers.Dropout(0.5), layers.Dense(3, activation="softmax")]
    )
    model.compile(keras.optimizers.SGD(0.0), "sparse_categorical_crossentropy")
    losses = []
    keep = keras.callbacks.Callback()
    keep.on_train_batch_end = lambda batch, logs=None: losses.append(logs["loss"] * (batch + 1))
    model.fit(x, np.zeros(32, int), batch_size=4, shuffle=False, callbacks=[keep], verbose=0)
    assert len(set(np.diff([0, *losses]).round(5))) > 4


def test_images_stay_uint8_and_float64_becomes_floatx():
    (x, y), _ = keras.datasets.digits.load_data()
    model = convnet()
    model.compile("sgd", "sparse_categorical_crossentropy")
    model.fit(x[:64, ..., None], y[:64], verbose=0)
    (program,) = [step.program for step in model._programs.values()]
    assert "uint8 (32, 8, 8, 1)" in program.to_string()
    doubles = compiled()
    doubles.fit(blobs()[0].astype("float64"), blobs()[1], verbose=0)
    assert all("float64" not in s.program.to_string() for s in doubles._programs.values())


def test_learning_rates_weights_and_seeds_compile_nothing_anew():
    x, y = blobs(40)
    model = compiled()
    with count_compilations() as kinds:
        model.fit(x, y, batch_size=16, class_weight={0: 2.0}, validation_split=0.2, verbose=0)
        # Training compiles whole and last batches; the 8 samples for validation are one batch.
        assert kinds == ["train", "test"]
        model.optimizer.learning_rate = 0.01
        keras.utils.set_random_seed(5)
        model.fit(x, y, batch_size=16, class_weight={1: 9.0}, validation_split=0.2, verbose=0)
        schedule = keras.callbacks.LearningRateScheduler(lambda epoch, rate: rate / 2)
        held_out = (x[32:], y[32:])
        model.fit(x[:32], y[:32], 16, 2, 0, [schedule], 0.0, held_out, sample_weight=np.ones(32))
        assert kinds == ["train", "test"]
        model.fit(x, y, batch_size=15, verbose=0)
        assert kinds == ["train", "test", "train", "train"]


def test_freezing_a_layer_takes_effect_without_a_new_compile():
    x, y = blobs()
    model = keras.Sequential(
        [
            keras.Input((4,)),
            layers.Dense(5, activation="relu"),
            layers.Dense(3, activation="softmax"),
        ]
    )
    model.compile("adam", "sparse_categorical_crossentropy")
    model.fit(x, y, verbose=0)
    model.layers[0].trainable = False
    before = model.get_weights()
    model.fit(x, y, verbose=0)
    after = model.get_weights()
    np.testing.assert_array_equal(before[0], after[0])
    assert (before[2] != after[2]).all()


def test_fit_allocates_nothing_after_its_first_epoch():
    (x, y), _ = keras.datasets.digits.load_data()
    model = convnet()
    model.compile("adam", "sparse_categorical_crossentropy", metrics=["accuracy"])
    device = model.variables[0].device
    counts = []
    watch = keras.callbacks.Callback()
    watch.on_epoch_end = lambda epoch, logs=None: counts.append(
        keras.config.memory_stats(device)["num_allocations"]
    )
    model.fit(
        x[..., None], y, batch_size=64, epochs=4, validation_split=0.2, callbacks=[watch], verbose=0
    )
    assert counts[1:] == [counts[0]] * 3


def test_a_second_fit_goes_on_from_the_first():
    x, y = blobs()
    once, twice = compiled(), compiled()
    once.fit(x, y, batch_size=5, epochs=4, shuffle=False, verbose=0)
    for _ in range(2):
        twice.fit(x, y, batch_size=5, epochs=2, shuffle=False, verbose=0)
    np.testing.assert_array_equal(once.get_weights()[0], twice.get_weights()[0])
    assert int(twice.optimizer.iterations.numpy()) == 16


def test_crossentropy_from_logits_and_one_hot_targets_agree_with_sparse_ones():
    x, y = blobs()
    sparse, logits, one_hot = compiled(), classifier(), classifier()
    logits.layers[-1].activation = keras.activations.get("linear")
    logits.compile(
        keras.optimizers.SGD(0.5), keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    )
    one_hot.compile(keras.optimizers.SGD(0.5), "categorical_crossentropy", metrics=["accuracy"])
    for model, target in ((sparse, y), (logits, y), (one_hot, np.eye(3)[y])):
        model.fit(x, target, batch_size=8, epochs=2, shuffle=False, verbose=0)
    expected = sparse.get_weights()[0]
    np.testing.assert_allclose(logits.get_weights()[0], expected, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(one_hot.get_weights()[0], expected, rtol=1e-5, atol=1e-6)


def test_nan_in_the_loss_is_warned_of_with_epoch_and_step():
    x, y = blobs()
    x[9] = np.nan
    model = compiled()
    with pytest.warns(RuntimeWarning, match=r"epoch 1, step 3 \(counted from 1\)"):
        model.fit(x, y, batch_size=4, epochs=2, shuffle=False, verbose=0)


def test_nan_in_one_pixel_goes_through_relu_and_pooling_to_the_loss():
    model = convnet()
    model.compile("sgd", "sparse_categorical_crossentropy")
    x, y = np.ones((8, 8, 8, 1), "float32"), np.arange(8) % 3
    x[5, 4, 4] = np.nan
    with pytest.warns(RuntimeWarning, match="epoch 1, step 2"):
        model.fit(x, y, batch_size=4, epochs=2, shuffle=False, verbose=0)


def test_a_diverging_model_with_relu_is_seen_at_the_step_where_it_is_lost(device):
    x, y = np.random.default_rng(3).normal(size=(64, 8, 8, 1)).astype("float32"), np.arange(64) % 3
    with keras.device(device):
        model = keras.Sequential(
            [
                keras.Input((8, 8, 1)),
                layers.Conv2D(8, 3, activation="relu"),
                layers.MaxPooling2D(),
                layers.Flatten(),
                layers.Dense(16, activation="relu"),
                layers.Dense(3, activation="softmax"),
            ]
        )
        model.compile(keras.optimizers.SGD(1e30), "sparse_categorical_crossentropy")
        stop = keras.callbacks.TerminateOnNaN()
        with pytest.warns(RuntimeWarning, match=r"The loss became NaN or infinite in epoch 1"):
            history = model.fit(
                x, y, batch_size=4, epochs=3, shuffle=False, callbacks=[stop], verbose=0
            )
        assert history.epoch == [0]
        assert not np.isfinite(history.history["loss"][0])
        assert np.isnan(model.predict(x, verbose=0)).any()


def test_compile_without_an_optimizer_means_rmsprop():
    x, y = blobs()
    model = classifier()
    model.compile(loss="sparse_categorical_crossentropy")
    history = model.fit(x, y, epochs=5, verbose=0)
    assert type(model.optimizer) is keras.optimizers.RMSprop
    assert history.history["loss"][-1] < history.history["loss"][0]


def test_a_model_without_weights_is_evaluated_and_fit_warns():
    model = keras.Sequential([keras.Input((3,)), layers.Activation("softmax")])
    model.compile("sgd", "sparse_categorical_crossentropy")
    x, y = blobs(features=3)
    assert model.evaluate(x, y, verbose=0) > 0
    with pytest.warns(UserWarning, match="any trainable weights"):
        history = model.fit(x, y, verbose=0)
    # Shuffled samples are added in another order.
    assert history.history["loss"] == pytest.approx([model.evaluate(x, y, verbose=0)], rel=1e-6)
