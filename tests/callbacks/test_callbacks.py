"""Each hook is called when Keras calls it, and the callbacks that ship do what they promise."""

import numpy as np
import pytest

import kerascnn as keras
from kerascnn import callbacks, layers


def model_and_data(learning_rate=0.1, samples=12):
    model = keras.Sequential(
        [keras.Input((2,)), layers.Dense(1, use_bias=False, kernel_initializer="zeros")]
    )
    model.compile(keras.optimizers.SGD(learning_rate), "mse")
    x = np.random.default_rng(0).normal(size=(samples, 2)).astype("float32")
    return model, x, (x @ [[1.0], [2.0]]).astype("float32")


class Recorder(callbacks.Callback):
    """Notes the hooks that were called."""

    def __init__(self, batches):
        super().__init__()
        self.calls = []
        kinds = ["train", "test", "predict"]
        ends = [f"on_{kind}_{when}" for kind in kinds for when in ("begin", "end")]
        hooks = [*ends, "on_epoch_begin", "on_epoch_end"]
        if batches:
            hooks += [f"on_{kind}_batch_{when}" for kind in kinds for when in ("begin", "end")]
        for hook in hooks:
            setattr(self, hook, lambda *args, _hook=hook, **kwargs: self.calls.append(_hook))


@pytest.mark.parametrize("batches", [False, True])
def test_hooks_are_called_in_order(batches):
    model, x, y = model_and_data()
    recorder = Recorder(batches)
    model.fit(
        x, y, batch_size=6, validation_data=(x, y), validation_batch_size=12,
        callbacks=[recorder], verbose=0,
    )  # fmt: skip
    train = ["on_train_batch_begin", "on_train_batch_end"] * 2 if batches else []
    test = ["on_test_batch_begin", "on_test_batch_end"] if batches else []
    assert recorder.calls == [
        "on_train_begin",
        "on_epoch_begin",
        *train,
        "on_test_begin",
        *test,
        "on_test_end",
        "on_epoch_end",
        "on_train_end",
    ]
    recorder.calls.clear()
    model.evaluate(x, y, callbacks=[recorder], verbose=0)
    assert recorder.calls == ["on_test_begin", *test, "on_test_end"]
    recorder.calls.clear()
    model.predict(x, callbacks=[recorder], verbose=0)
    predict = ["on_predict_batch_begin", "on_predict_batch_end"] if batches else []
    assert recorder.calls == ["on_predict_begin", *predict, "on_predict_end"]


def test_older_names_of_batch_hooks_are_called():
    model, x, y = model_and_data()
    seen = []

    class Old(callbacks.Callback):
        def on_batch_end(self, batch, logs=None):
            seen.append((batch, logs["loss"]))

    history = model.fit(x, y, batch_size=5, callbacks=[Old()], verbose=0)
    assert [batch for batch, _ in seen] == [0, 1, 2]
    assert seen[-1][1] == history.history["loss"][0]


def test_logs_of_batches_are_the_means_so_far():
    model, x, y = model_and_data(learning_rate=0.0)
    losses = []

    class Batches(callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            losses.append(dict(logs))
            assert logs.get("nothing") is None
            assert list(logs) == ["loss"]

    model.fit(x, y, batch_size=4, shuffle=False, callbacks=[Batches()], verbose=0)
    expected = [np.square(y[: 4 * n]).mean() for n in (1, 2, 3)]
    # The loss is a float32 sum over 12 samples.
    np.testing.assert_allclose([log["loss"] for log in losses], expected, rtol=2e-6)


def test_step_by_step_training_gives_the_same_weights():
    weights = []
    for callback in ([], [Recorder(True)]):
        model, x, y = model_and_data()
        model.fit(x, y, batch_size=5, epochs=3, shuffle=False, callbacks=callback, verbose=0)
        weights.append(model.get_weights()[0])
    np.testing.assert_array_equal(*weights)


def test_stop_training_in_a_batch_hook_ends_the_epoch():
    model, x, y = model_and_data()

    class Stop(callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            self.model.stop_training = batch == 1

    history = model.fit(x, y, batch_size=1, epochs=5, callbacks=[Stop()], verbose=0)
    assert history.epoch == [0]
    assert int(model.optimizer.iterations.numpy()) == 2


def test_callbacks_see_model_and_params():
    model, x, y = model_and_data()
    watcher = callbacks.Callback()
    model.fit(x, y, batch_size=5, epochs=2, callbacks=watcher, verbose=0)
    assert watcher.model is model
    assert watcher.params == {"verbose": 0, "epochs": 2, "steps": 3}


def test_an_error_in_a_callback_leaves_the_model_usable():
    model, x, y = model_and_data()

    class Fail(callbacks.Callback):
        def on_epoch_end(self, epoch, logs=None):
            raise OSError("no space")

    with pytest.raises(OSError, match="no space"):
        model.fit(x, y, callbacks=[Fail()], verbose=0)
    assert (model.get_weights()[0] != 0).all()
    model.fit(x, y, verbose=0)


def test_early_stopping_waits_and_restores_the_best_weights(capsys):
    model, x, y = model_and_data()
    best = []

    class Worsen(callbacks.Callback):
        """Makes the third and all later epochs worse than the second."""

        def on_epoch_end(self, epoch, logs=None):
            if epoch == 1:
                best.append(self.model.get_weights()[0])
            if epoch >= 1:
                self.model.set_weights([np.full((2, 1), 10.0 + epoch)])

    stop = callbacks.EarlyStopping(
        monitor="val_loss", patience=2, restore_best_weights=True, verbose=1
    )
    history = model.fit(
        x, y, epochs=10, validation_data=(x, y), callbacks=[stop, Worsen()], verbose=0
    )
    assert history.epoch == [0, 1, 2, 3]
    assert (stop.stopped_epoch, stop.best_epoch) == (3, 1)
    np.testing.assert_array_equal(model.get_weights()[0], best[0])
    assert "Epoch 4: early stopping" in capsys.readouterr().out


def test_early_stopping_knows_the_direction_of_metrics():
    model, x, y = model_and_data()
    model.compile("sgd", "mse", metrics=[keras.metrics.BinaryAccuracy(name="hits")])
    stop = callbacks.EarlyStopping(monitor="hits")
    model.fit(x, y, callbacks=[stop], verbose=0)
    assert stop.monitor_op(2, 1)
    unknown = callbacks.EarlyStopping(monitor="learning_speed")
    with pytest.raises(ValueError, match=r"learning_speed.*mode='max'"):
        model.fit(x, y, callbacks=[unknown], verbose=0)


def test_early_stopping_warns_of_names_that_are_not_there():
    model, x, y = model_and_data()
    with pytest.warns(UserWarning, match="'val_loss', which is not in the logs.*loss"):
        model.fit(x, y, callbacks=[callbacks.EarlyStopping()], verbose=0)


def test_early_stopping_with_a_baseline_and_a_late_start():
    model, x, y = model_and_data(learning_rate=0.0)
    # Without shuffling, every epoch adds the same numbers in the same order, so the losses are
    # equal.
    stop = callbacks.EarlyStopping(monitor="loss", baseline=0.0, patience=3)
    history = model.fit(x, y, epochs=9, shuffle=False, callbacks=[stop], verbose=0)
    assert len(history.epoch) == 3
    late = callbacks.EarlyStopping(monitor="loss", start_from_epoch=4)
    history = model.fit(x, y, epochs=9, shuffle=False, callbacks=[late], verbose=0)
    assert len(history.epoch) == 6


def test_the_scheduler_sets_the_rate_of_each_epoch_and_logs_it():
    model, x, y = model_and_data(learning_rate=0.5)
    schedule = callbacks.LearningRateScheduler(lambda epoch, rate: rate * 0.5 if epoch else rate)
    history = model.fit(x, y, epochs=3, callbacks=[schedule], verbose=0)
    assert history.history["learning_rate"] == [0.5, 0.25, 0.125]
    assert list(history.history) == ["loss", "learning_rate"]
    by_epoch = callbacks.LearningRateScheduler(lambda epoch: 0.1)
    model.fit(x, y, callbacks=[by_epoch], verbose=0)
    assert float(model.optimizer.learning_rate.numpy()) == pytest.approx(0.1)
    with pytest.raises(ValueError, match=r"return a float.*None"):
        bad = callbacks.LearningRateScheduler(lambda epoch, rate: None)
        model.fit(x, y, callbacks=[bad], verbose=0)


def nan_in_batch_two():
    model, x, y = model_and_data()
    x[9] = np.inf
    return model, x, y


def test_terminate_on_nan_stops_and_keeps_the_number_of_the_batch(capsys):
    model, x, y = nan_in_batch_two()
    stop = callbacks.TerminateOnNaN()
    with pytest.warns(RuntimeWarning, match="epoch 1, step 3"):
        history = model.fit(
            x, y, batch_size=4, epochs=5, shuffle=False, callbacks=[stop], verbose=0
        )
    assert history.epoch == [0]
    assert capsys.readouterr().out == "Batch 2: Invalid loss, terminating training\n"


def test_terminate_on_nan_can_raise():
    model, x, y = nan_in_batch_two()
    stop = callbacks.TerminateOnNaN(raise_error=True)
    with (
        pytest.warns(RuntimeWarning),
        pytest.raises(RuntimeError, match="at batch 2"),
    ):
        model.fit(x, y, batch_size=4, shuffle=False, callbacks=[stop], verbose=0)


class Saves:
    """Replaces `save_weights` of a model and notes the paths that it is called with."""

    def __init__(self, model):
        self.paths = []
        model.save_weights = lambda path, overwrite: self.paths.append(path)


def test_checkpoints_are_named_by_epoch_and_logs(tmp_path):
    model, x, y = model_and_data(learning_rate=0.0)
    saves = Saves(model)
    checkpoint = callbacks.ModelCheckpoint(
        tmp_path / "new" / "{epoch:02d}-{loss:.3f}.weights.safetensors", save_weights_only=True
    )
    model.fit(x, y, epochs=2, callbacks=[checkpoint], verbose=0)
    loss = np.square(y).mean()
    folder = tmp_path / "new"
    assert saves.paths == [f"{folder}/0{n}-{loss:.3f}.weights.safetensors" for n in (1, 2)]
    assert folder.is_dir()


def test_checkpoints_of_the_best_only():
    model, x, y = model_and_data()
    saves = Saves(model)
    best = callbacks.ModelCheckpoint(
        "{epoch}.weights.safetensors", monitor="loss", save_best_only=True, save_weights_only=True
    )

    class Worsen(callbacks.Callback):
        def on_epoch_begin(self, epoch, logs=None):
            if epoch == 2:
                self.model.set_weights([np.full((2, 1), 100.0)])
                self.model.optimizer.learning_rate = 1e-6

    model.fit(x, y, epochs=5, callbacks=[Worsen(), best], verbose=0)
    assert saves.paths == ["1.weights.safetensors", "2.weights.safetensors"]


def test_checkpoints_every_few_batches():
    model, x, y = model_and_data()
    saves = Saves(model)
    every = callbacks.ModelCheckpoint(
        "{epoch}-{batch}.weights.safetensors", save_freq=3, save_weights_only=True
    )
    model.fit(x, y, batch_size=3, epochs=2, callbacks=[every], verbose=0)
    assert saves.paths == ["1-3.weights.safetensors", "2-2.weights.safetensors"]


def test_checkpoints_can_be_loaded_again(tmp_path):
    model, x, y = model_and_data()
    path = tmp_path / "w.weights.safetensors"
    model.fit(x, y, callbacks=[callbacks.ModelCheckpoint(path, save_weights_only=True)], verbose=0)
    other = model_and_data()[0]
    other.load_weights(path)
    np.testing.assert_array_equal(other.get_weights()[0], model.get_weights()[0])


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        ({"filepath": "w.h5", "save_weights_only": True}, r"\.safetensors"),
        ({"filepath": "w.txt"}, r"\.keras"),
        ({"filepath": "w.keras", "save_freq": "batch"}, "save_freq"),
    ],
)
def test_checkpoints_with_wrong_arguments(arguments, part):
    with pytest.raises(ValueError, match=part):
        callbacks.ModelCheckpoint(**arguments)


def test_checkpoint_names_with_unknown_fields():
    model, x, y = model_and_data()
    wrong = callbacks.ModelCheckpoint("{accuracy}.safetensors", save_weights_only=True)
    with pytest.raises(KeyError, match=r"accuracy.*epoch, loss"):
        model.fit(x, y, callbacks=[wrong], verbose=0)


def test_checkpoints_of_whole_models_fail_before_training():
    model, x, y = model_and_data()
    if hasattr(model, "save"):
        pytest.skip("whole models can be saved")
    with pytest.raises(ValueError, match="save_weights_only=True"):
        model.fit(x, y, callbacks=[callbacks.ModelCheckpoint("w.keras")], verbose=0)
    assert int(model.optimizer.iterations.numpy()) == 0
