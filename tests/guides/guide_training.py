"""compile, fit, evaluate and predict with custom losses and metrics, weights and callbacks."""

import warnings

import numpy as np
from guide_tools import from_history, from_logs, images, main, start_from


def vectors(samples=96):
    x, y = images(31, samples, (6, 6, 1), 4)
    return x.reshape(samples, 36), y


def get_model(keras):
    layers = keras.layers
    inputs = keras.Input(shape=(36,), name="digits")
    x = layers.Dense(16, activation="relu", name="dense_1")(inputs)
    x = layers.Dense(16, activation="relu", name="dense_2")(x)
    outputs = layers.Dense(4, activation="softmax", name="predictions")(x)
    return start_from(keras.Model(inputs=inputs, outputs=outputs))


def end_to_end(keras):
    x, y = vectors()
    model = get_model(keras)
    model.compile(
        optimizer=keras.optimizers.RMSprop(1e-3),
        loss=keras.losses.SparseCategoricalCrossentropy(),
        metrics=[keras.metrics.SparseCategoricalAccuracy()],
    )
    history = model.fit(
        x[:64],
        y[:64],
        batch_size=24,
        epochs=2,
        validation_data=(x[64:80], y[64:80]),
        shuffle=False,
        verbose=0,
    )
    loss, accuracy = model.evaluate(x[80:], y[80:], batch_size=8, verbose=0)
    return from_history("end to end", history) | {
        "end to end: test loss": loss,
        "end to end: test accuracy": accuracy,
        "end to end: predictions": model.predict(x[:3], verbose=0),
    }


def own_losses_and_metrics(keras):
    ops = keras.ops

    def squared(y_true, y_pred):
        return ops.mean(ops.square(y_true - y_pred), axis=-1)

    class Regularized(keras.losses.Loss):
        def __init__(self, factor=0.1, name="regularized"):
            super().__init__(name=name)
            self.factor = factor

        def call(self, y_true, y_pred):
            mse = ops.mean(ops.square(y_true - y_pred), axis=-1)
            return mse + self.factor * ops.mean(ops.square(0.5 - y_pred), axis=-1)

    class TruePositives(keras.metrics.Metric):
        def __init__(self, name="categorical_true_positives", **kwargs):
            super().__init__(name=name, **kwargs)
            self.true_positives = self.add_variable(shape=(), name="ctp", initializer="zeros")

        def update_state(self, y_true, y_pred, sample_weight=None):
            y_true = ops.argmax(y_true, axis=-1)
            y_pred = ops.argmax(y_pred, axis=-1)
            hits = ops.cast(ops.equal(y_true, y_pred), "float32")
            if sample_weight is not None:
                hits = hits * ops.cast(sample_weight, "float32")
            self.true_positives.assign(self.true_positives + ops.sum(hits))

        def result(self):
            return self.true_positives

        def reset_state(self):
            self.true_positives.assign(0.0)

    x, y = vectors()
    y = keras.utils.to_categorical(y, 4)
    weights = np.linspace(0.5, 1.5, 96).astype("float32")
    numbers = {}
    for name, loss in (("function", squared), ("object", Regularized())):
        model = get_model(keras)
        model.compile(
            keras.optimizers.Adam(0.005),
            loss,
            metrics=[TruePositives(), squared],
            weighted_metrics=[TruePositives(name="weighted"), "accuracy"],
        )
        history = model.fit(
            x, y, sample_weight=weights, batch_size=32, epochs=2, shuffle=False, verbose=0
        )
        numbers |= from_history(name, history)
    return numbers


def penalties_and_notes(keras):
    """Layers add losses, and a metric is an attribute of the model."""

    class Penalty(keras.layers.Layer):
        def call(self, inputs):
            self.add_loss(0.1 * keras.ops.mean(keras.ops.square(inputs)))
            return inputs

    inputs = keras.Input(shape=(36,))
    x = keras.layers.Dense(8, activation="relu", kernel_regularizer="l2")(inputs)
    x = Penalty()(x)
    model = start_from(keras.Model(inputs, keras.layers.Dense(4)(x)))
    model.compile(
        keras.optimizers.SGD(0.05, nesterov=True, momentum=0.8, clipnorm=1.0),
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    )
    x, y = vectors()
    return from_history("penalties", model.fit(x, y, epochs=2, shuffle=False, verbose=0)) | {
        "penalties: evaluated": model.evaluate(x, y, verbose=0)
    }


def weights_of_classes(keras):
    x, y = vectors()
    model = get_model(keras)
    model.compile("adam", "sparse_categorical_crossentropy", weighted_metrics=["accuracy"])
    history = model.fit(
        x, y, class_weight={0: 1.0, 1: 2.0, 2: 1.0, 3: 0.5}, epochs=2, shuffle=False, verbose=0
    )
    by_class = from_history("class weights", history)
    sample_weight = np.ones(96, "float32")
    sample_weight[y == 1] = 2.0
    history = model.fit(
        x,
        y,
        sample_weight=sample_weight,
        validation_split=0.25,
        epochs=1,
        shuffle=False,
        verbose=0,
    )
    return by_class | from_history("sample weights", history)


def several_inputs_and_outputs(keras):
    layers = keras.layers
    image_input = keras.Input(shape=(8, 8, 3), name="img_input")
    series_input = keras.Input(shape=(12, 5), name="ts_input")
    x1 = layers.GlobalMaxPooling2D()(layers.Conv2D(3, 3)(image_input))
    x2 = layers.GlobalMaxPooling1D()(layers.Conv1D(3, 3)(series_input))
    x = layers.concatenate([x1, x2])
    score = layers.Dense(1, name="score_output")(x)
    kind = layers.Dense(5, name="class_output")(x)
    model = start_from(keras.Model([image_input, series_input], [score, kind]))
    rng = np.random.default_rng(32)
    image, labels = images(33, 64, (8, 8, 3), 5)
    series = rng.standard_normal((64, 12, 5)).astype("float32")
    scores = rng.standard_normal((64, 1)).astype("float32")
    kinds = keras.utils.to_categorical(labels, 5)
    # The first output has no loss: it is only for predictions.
    model.compile("rmsprop", [None, keras.losses.CategoricalCrossentropy(from_logits=True)])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # A warning says that nothing trains the other output.
        history = model.fit(
            [image, series], [scores, kinds], batch_size=32, shuffle=False, verbose=0
        )
    numbers = from_history("one of them", history)
    by_list = {
        "loss": [
            keras.losses.MeanSquaredError(),
            keras.losses.CategoricalCrossentropy(from_logits=True),
        ],
        "metrics": [
            [keras.metrics.MeanAbsolutePercentageError(), keras.metrics.MeanAbsoluteError()],
            [keras.metrics.CategoricalAccuracy()],
        ],
    }
    by_name = {
        "loss": {
            "score_output": keras.losses.MeanSquaredError(),
            "class_output": keras.losses.CategoricalCrossentropy(from_logits=True),
        },
        "metrics": {
            "score_output": [keras.metrics.MeanAbsoluteError()],
            "class_output": [keras.metrics.CategoricalAccuracy()],
        },
        "loss_weights": {"score_output": 2.0, "class_output": 1.0},
    }
    for form, arguments in (("list", by_list), ("names", by_name)):
        model.compile(optimizer=keras.optimizers.RMSprop(1e-3), **arguments)
        data = (
            ([image, series], [scores, kinds])
            if form == "list"
            else (
                {"img_input": image, "ts_input": series},
                {"score_output": scores, "class_output": kinds},
            )
        )
        history = model.fit(*data, batch_size=32, epochs=2, shuffle=False, verbose=0)
        numbers |= from_history(f"by {form}", history)
        logs = model.evaluate(*data, batch_size=32, verbose=0, return_dict=True)
        numbers |= from_logs(f"by {form}", logs)
    predicted = model.predict([image, series], verbose=0)
    return numbers | {f"predicted {i}": value for i, value in enumerate(predicted)}


def data_by_batches(keras):
    class Batches(keras.utils.PyDataset):
        def __init__(self, x, y, size):
            super().__init__()
            self.x, self.y, self.size = x, y, size

        def __len__(self):
            return int(np.ceil(len(self.x) / self.size))

        def __getitem__(self, index):
            part = slice(index * self.size, (index + 1) * self.size)
            return self.x[part], self.y[part]

    def endless(x, y):
        while True:
            for i in range(0, 96, 32):
                yield x[i : i + 32], y[i : i + 32]

    x, y = vectors()
    model = get_model(keras)
    model.compile("adam", "sparse_categorical_crossentropy", metrics=["accuracy"])
    data = Batches(x, y, 40)
    history = model.fit(data, epochs=2, validation_data=data, shuffle=False, verbose=0)
    numbers = from_history("PyDataset", history)
    history = model.fit(endless(x, y), steps_per_epoch=2, epochs=2, shuffle=False, verbose=0)
    return numbers | from_history("generator", history)


def rates_and_callbacks(keras):
    x, y = vectors()
    schedule = keras.optimizers.schedules.ExponentialDecay(
        0.05, decay_steps=4, decay_rate=0.7, staircase=True
    )
    model = get_model(keras)
    model.compile(
        keras.optimizers.SGD(schedule), "sparse_categorical_crossentropy", metrics=["accuracy"]
    )
    history = model.fit(x, y, epochs=3, shuffle=False, verbose=0)
    numbers = from_history("schedule", history)

    model = get_model(keras)
    model.compile(
        keras.optimizers.SGD(0.1), "sparse_categorical_crossentropy", metrics=["accuracy"]
    )
    history = model.fit(
        x,
        y,
        epochs=12,
        validation_split=0.25,
        callbacks=[
            keras.callbacks.EarlyStopping(
                "val_loss", min_delta=0.02, patience=2, restore_best_weights=True
            ),
            keras.callbacks.ReduceLROnPlateau("val_loss", factor=0.5, patience=1, min_delta=0.05),
        ],
        shuffle=False,
        verbose=0,
    )
    numbers |= from_history("callbacks", history)
    numbers["callbacks: rate"] = float(keras.ops.convert_to_numpy(model.optimizer.learning_rate))
    return numbers | {"callbacks: evaluated": model.evaluate(x, y, verbose=0)[0]}


def run(keras):
    parts = (
        end_to_end,
        own_losses_and_metrics,
        penalties_and_notes,
        weights_of_classes,
        several_inputs_and_outputs,
        data_by_batches,
        rates_and_callbacks,
    )
    return {name: value for part in parts for name, value in part(keras).items()}


if __name__ == "__main__":
    main(run)
