"""Custom callbacks: which hook is called when, with which logs, and what it can change."""

import zlib

import numpy as np
from guide_tools import from_history, main, start_from


def get_model(keras):
    model = keras.Sequential([keras.Input((12,)), keras.layers.Dense(1)])
    start_from(model)
    model.compile(keras.optimizers.RMSprop(0.05), "mean_squared_error", metrics=["mae"])
    return model


def data():
    rng = np.random.default_rng(61)
    x = rng.standard_normal((64, 12)).astype("float32")
    return x, (x @ rng.standard_normal((12, 1))).astype("float32")


def order_of_hooks(keras):
    seen = []

    class Recorder(keras.callbacks.Callback):
        pass

    def hook(name, with_place):
        def place_and_logs(self, place, logs=None):
            seen.append(f"{name} {place} {sorted(logs or {})}")

        def logs_only(self, logs=None):
            seen.append(f"{name} {sorted(logs or {})}")

        return place_and_logs if with_place else logs_only

    for kind in ("train", "test", "predict"):
        for moment in ("begin", "end"):
            setattr(Recorder, f"on_{kind}_{moment}", hook(f"{kind} {moment}", False))
            setattr(Recorder, f"on_{kind}_batch_{moment}", hook(f"{kind} batch {moment}", True))
    for moment in ("begin", "end"):
        setattr(Recorder, f"on_epoch_{moment}", hook(f"epoch {moment}", True))

    x, y = data()
    model = get_model(keras)
    recorder = Recorder()
    options = {"batch_size": 32, "verbose": 0, "callbacks": [recorder]}
    model.fit(x, y, epochs=2, validation_split=0.5, shuffle=False, **options)
    model.evaluate(x, y, **options)
    model.predict(x, **options)
    assert recorder.model is model
    # The numbers stand for the texts, in their order.
    return {f"{i} {text}": zlib.crc32(text.encode()) for i, text in enumerate(seen)}


def logs_of_batches(keras):
    losses = []

    class LossAndErrorPrinting(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            losses.append(("train", batch, logs["loss"], logs["mae"]))

        def on_test_batch_end(self, batch, logs=None):
            losses.append(("test", batch, logs["loss"], logs["mae"]))

        def on_epoch_end(self, epoch, logs=None):
            losses.append(("epoch", epoch, logs["loss"], logs["mae"]))

    x, y = data()
    model = get_model(keras)
    callbacks = [LossAndErrorPrinting()]
    model.fit(x, y, batch_size=16, epochs=2, shuffle=False, verbose=0, callbacks=callbacks)
    model.evaluate(x, y, batch_size=32, verbose=0, callbacks=callbacks)
    return {
        f"{i} {kind} {place}": np.array([float(loss), float(mae)])
        for i, (kind, place, loss, mae) in enumerate(losses)
    }


def stopping_at_a_minimum(keras):
    class EarlyStoppingAtMinLoss(keras.callbacks.Callback):
        def __init__(self, patience=0):
            super().__init__()
            self.patience = patience
            self.best_weights = None

        def on_train_begin(self, logs=None):
            self.wait, self.stopped_epoch, self.best = 0, 0, np.inf

        def on_epoch_end(self, epoch, logs=None):
            current = logs.get("loss")
            if np.less(current, self.best):
                self.best, self.wait = current, 0
                self.best_weights = self.model.get_weights()
            else:
                self.wait += 1
                if self.wait >= self.patience:
                    self.stopped_epoch = epoch
                    self.model.stop_training = True
                    self.model.set_weights(self.best_weights)

    x, y = data()
    model = get_model(keras)
    model.optimizer.learning_rate = 1.2  # The rate is so high that the loss sometimes grows.
    stopper = EarlyStoppingAtMinLoss(patience=1)
    history = model.fit(
        x, y, batch_size=16, epochs=30, shuffle=False, verbose=0, callbacks=[stopper]
    )
    return from_history("stopped", history) | {
        "stopped: epoch": stopper.stopped_epoch,
        "stopped: evaluated": np.array(model.evaluate(x, y, verbose=0)),
    }


def changing_the_rate(keras):
    class CustomLearningRateScheduler(keras.callbacks.Callback):
        def __init__(self, schedule):
            super().__init__()
            self.schedule = schedule
            self.rates = []

        def on_epoch_begin(self, epoch, logs=None):
            lr = float(keras.ops.convert_to_numpy(self.model.optimizer.learning_rate))
            self.model.optimizer.learning_rate = self.schedule(epoch, lr)
            self.rates.append(float(keras.ops.convert_to_numpy(self.model.optimizer.learning_rate)))

    steps = {1: 0.05, 3: 0.01, 5: 0.001}
    x, y = data()
    model = get_model(keras)
    scheduler = CustomLearningRateScheduler(lambda epoch, lr: steps.get(epoch, lr))
    history = model.fit(x, y, epochs=6, shuffle=False, verbose=0, callbacks=[scheduler])
    numbers = from_history("rates", history) | {"rates": np.array(scheduler.rates)}

    class Halving(keras.callbacks.Callback):
        """Changes the rate before every batch of an epoch."""

        def on_train_batch_begin(self, batch, logs=None):
            self.model.optimizer.learning_rate = 0.1 / 2**batch

    model = get_model(keras)
    history = model.fit(
        x, y, batch_size=16, epochs=2, shuffle=False, verbose=0, callbacks=[Halving()]
    )
    numbers |= from_history("halved", history)

    model = get_model(keras)
    by_function = [
        keras.callbacks.LearningRateScheduler(lambda epoch, lr: lr * 0.5),
        keras.callbacks.LambdaCallback(on_epoch_end=lambda epoch, logs: logs.update(own=epoch)),
    ]
    history = model.fit(x, y, epochs=3, shuffle=False, verbose=0, callbacks=by_function)
    return numbers | from_history("by function", history)


def run(keras):
    parts = (order_of_hooks, logs_of_batches, stopping_at_a_minimum, changing_the_rate)
    return {name: value for part in parts for name, value in part(keras).items()}


if __name__ == "__main__":
    main(run)
