"""Metrics in compiled steps: their state is on the device, callbacks see their results."""

import numpy as np
import pytest

import kerascnn as keras
from kerascnn import layers, metrics

ROWS, CLASSES = 22, 3  # The last of the batches of 8 is smaller.
SIZES = [8, 8, 6]

ONE_HOT = [
    metrics.CategoricalAccuracy,
    metrics.CategoricalCrossentropy,
    metrics.CategoricalHinge,
    metrics.ConcordanceCorrelation,
    metrics.CosineSimilarity,
    metrics.F1Score,
    metrics.FBetaScore,
    metrics.FalseNegatives,
    metrics.FalsePositives,
    metrics.Hinge,
    metrics.KLDivergence,
    metrics.LogCoshError,
    metrics.MeanAbsoluteError,
    metrics.MeanAbsolutePercentageError,
    metrics.MeanSquaredError,
    metrics.MeanSquaredLogarithmicError,
    metrics.PearsonCorrelation,
    metrics.Poisson,
    metrics.Precision,
    metrics.R2Score,
    metrics.Recall,
    metrics.RootMeanSquaredError,
    metrics.SquaredHinge,
    metrics.TrueNegatives,
    metrics.TruePositives,
    metrics.AUC,
    metrics.Accuracy,
    metrics.BinaryAccuracy,
    metrics.BinaryCrossentropy,
    lambda: metrics.AUC(multi_label=True, curve="PR", name="auc"),
    lambda: metrics.AUC(thresholds=[0.2, 0.4], name="auc"),
    lambda: metrics.F1Score(average="weighted"),
    lambda: metrics.FBetaScore(beta=2.0, threshold=0.4, average="micro"),
    lambda: metrics.MeanIoU(CLASSES, sparse_y_true=False, sparse_y_pred=False, name="iou"),
    lambda: metrics.OneHotIoU(CLASSES, [0, 2], name="iou"),
    lambda: metrics.OneHotMeanIoU(CLASSES, name="iou"),
    lambda: metrics.Precision(top_k=2, name="precision"),
    lambda: metrics.Precision(thresholds=[0.2, 0.4, 0.6], name="precision"),
    lambda: metrics.PrecisionAtRecall(0.5, name="at"),
    lambda: metrics.R2Score(class_aggregation=None, num_regressors=2),
    lambda: metrics.Recall(class_id=1, name="recall"),
    lambda: metrics.RecallAtPrecision(0.5, name="at"),
    lambda: metrics.SensitivityAtSpecificity(0.5, name="at"),
    lambda: metrics.SpecificityAtSensitivity(0.5, name="at"),
    lambda: metrics.TopKCategoricalAccuracy(k=2),
    lambda: metrics.TruePositives(thresholds=[0.3, 0.6], name="tp"),
]
LABELS = [
    metrics.SparseCategoricalAccuracy,
    metrics.SparseCategoricalCrossentropy,
    lambda: metrics.SparseTopKCategoricalAccuracy(k=2),
    lambda: metrics.IoU(CLASSES, [0], sparse_y_pred=False, name="iou"),
]
BINARY = [lambda: metrics.BinaryIoU(name="iou"), lambda: metrics.AUC(from_logits=True, name="auc")]
CASES = [(m, "one_hot") for m in ONE_HOT]
CASES += [(m, "labels") for m in LABELS] + [(m, "binary") for m in BINARY]


def problem(kind, rng):
    x = rng.normal(size=(ROWS, 4)).astype("float32")
    labels = rng.integers(0, CLASSES, ROWS)
    if kind == "one_hot":
        return x, np.eye(CLASSES, dtype="float32")[labels], "categorical_crossentropy"
    if kind == "labels":
        return x, labels.astype("int32"), "sparse_categorical_crossentropy"
    return x, (labels[:, None] > 0).astype("float32"), "binary_crossentropy"


def classifier(units):
    activation = "softmax" if units > 1 else "sigmoid"
    return keras.Sequential([keras.Input((4,)), layers.Dense(units, activation=activation)])


def ids(value):
    return value if isinstance(value, str) else value().name


@pytest.mark.filterwarnings("ignore:.*cut to:UserWarning")
@pytest.mark.parametrize(("make", "kind"), CASES, ids=ids)
def test_fit_gives_what_update_state_does_batch_by_batch(make, kind, rng, device):
    with keras.device(device):
        x, y, loss = problem(kind, rng)
        weights = rng.integers(1, 4, ROWS).astype("float32")
        model = classifier(1 if kind == "binary" else CLASSES)
        plain, weighted = make(), make()
        weighted.name += "_w"
        # The learning rate is 0, so every batch sees the same model, whose predictions are known.
        model.compile(keras.optimizers.SGD(0.0), loss, metrics=[plain], weighted_metrics=[weighted])
        fit = model.fit(
            x, y, sample_weight=weights, batch_size=8, epochs=2, shuffle=False, verbose=0
        ).history
        tested = model.evaluate(
            x, y, sample_weight=weights, batch_size=8, verbose=0, return_dict=True
        )
        y_pred = model.predict(x, verbose=0)
        for metric, batch_weights in ((plain, None), (weighted, weights)):
            direct = make()
            start = 0
            for size in SIZES:
                part = slice(start, start + size)
                weight = None if batch_weights is None else batch_weights[part]
                direct.update_state(y[part], y_pred[part], sample_weight=weight)
                start += size
            expected = np.asarray(direct.result())
            # The fused step may round single elements differently from predict; sums have 22 terms.
            for value in (*fit[metric.name], tested[metric.name]):
                np.testing.assert_allclose(np.asarray(value), expected, rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize("shape", [(ROWS,), (ROWS, 1)], ids=["row", "column"])
@pytest.mark.parametrize("dtype", ["uint8", "int64", "float32"])
def test_accuracy_is_one_kernel_where_the_device_has_one(dtype, shape, rng, device):
    with keras.device(device):
        x, labels, loss = problem("labels", rng)
        y = labels.reshape(shape).astype(dtype)
        model = classifier(CLASSES)
        model.compile(keras.optimizers.SGD(0.0), loss, metrics=["accuracy"])
        fit = model.fit(x, y, batch_size=8, epochs=2, shuffle=False, verbose=0).history
        programs = [step.program.to_string() for step in model._programs.values()]
        right = (np.asarray(model.predict(x, verbose=0)).argmax(1) == labels).mean()
    # The count of 22 rows is exact, and its share is rounded to float32.
    np.testing.assert_allclose(fit["accuracy"], right, rtol=1e-6)
    for program in programs:
        ops = [line.split(" (")[0] for line in program.splitlines()]
        assert ("count_matches" in ops) == (device != "cpu")
        assert ("argmax" in ops) == (device == "cpu")


def test_logs_keep_what_they_were(rng):
    x, y, loss = problem("one_hot", rng)
    model = classifier(CLASSES)
    model.compile(keras.optimizers.SGD(1.0), loss, metrics=[metrics.TruePositives([0.3, 0.4])])
    seen = []
    note = keras.callbacks.LambdaCallback(
        on_epoch_end=lambda epoch, logs: seen.append({k: np.copy(v) for k, v in logs.items()})
    )
    history = model.fit(x, y, epochs=3, batch_size=8, verbose=0, callbacks=[note]).history
    (name,) = [name for name in history if name != "loss"]
    # No later step may write into logs that were handed out; this one surely changes the counts.
    model.evaluate(np.concatenate([x, x]), np.concatenate([y, y]), verbose=0)
    assert all(isinstance(value, np.ndarray) for value in history[name])
    for value, logs in zip(history[name], seen, strict=True):
        np.testing.assert_array_equal(value, logs[name])


def test_results_of_every_kind_inside_of_a_train_step_of_ones_own(rng):
    x, y, _ = problem("one_hot", rng)

    class Own(keras.Model):
        def __init__(self):
            super().__init__()
            self.dense = layers.Dense(CLASSES, activation="softmax")
            self.seen = [
                metrics.AUC(name="auc"),
                metrics.F1Score(average="macro"),
                metrics.R2Score(num_regressors=2),
                metrics.MeanIoU(CLASSES, sparse_y_true=False, sparse_y_pred=False, name="iou"),
                metrics.RootMeanSquaredError(name="rmse"),
                metrics.PrecisionAtRecall(0.5, name="at"),
            ]

        def call(self, x):
            return self.dense(x)

        def test_step(self, data):
            x, y = data
            y_pred = self(x, training=False)
            for metric in self.seen:
                metric.update_state(y, y_pred)
            return {metric.name: metric.result() for metric in self.seen}

    model = Own()
    model.compile()
    logs = model.evaluate(x, y, batch_size=ROWS, verbose=0, return_dict=True)
    y_pred = model.predict(x, verbose=0)
    for metric in Own().seen:
        metric.update_state(y, y_pred)
        assert logs[metric.name] == pytest.approx(float(metric.result()), rel=1e-5)


class Spread(metrics.Metric):
    """Has metrics and a variable in attributes, and several results."""

    def __init__(self, name="spread"):
        super().__init__(name=name)
        self.parts = {"mean": metrics.Mean(), "both": [metrics.Sum(), metrics.Sum()]}
        self.steps = keras.Variable(0.0, trainable=False, name="steps")
        self.largest = self.add_weight(name="largest", initializer="ones")

    def update_state(self, y_true, y_pred, sample_weight=None):
        self.parts["mean"].update_state(y_pred, sample_weight=sample_weight)
        self.parts["both"][0].update_state(y_true)
        self.steps.assign_add(1)
        self.largest.assign(keras.ops.maximum(self.largest, keras.ops.max(y_pred)))

    def result(self):
        return {
            "mean": self.parts["mean"].result(),
            "sum": self.parts["both"][0].result(),
            "steps": self.steps,
            "largest": self.largest / 1,
        }


def test_metrics_made_of_metrics():
    metric = Spread()
    assert [v.name for v in metric.variables] == [
        "steps", "largest", "total", "count", "total", "total",
    ]  # fmt: skip
    model = keras.Sequential(
        [keras.Input((2,)), layers.Dense(1, kernel_initializer="ones", use_bias=False)]
    )
    model.compile(keras.optimizers.SGD(0.0), "mse", metrics=[metric])
    x = np.array([[1.0, 2.0], [3.0, 4.0], [-1.0, 0.0]], "float32")
    for _ in range(2):
        logs = model.evaluate(x, np.ones((3, 1)), batch_size=2, verbose=0, return_dict=True)
        assert {k: logs[k] for k in ("mean", "sum", "steps", "largest")} == {
            "mean": 3.0, "sum": 3.0, "steps": 2.0, "largest": 7.0,
        }  # fmt: skip
    metric.reset_state()
    # As in Keras, a reset sets all variables to 0, whatever their initial value was.
    assert all(not np.any(v.numpy()) for v in metric.variables)


def test_a_metric_without_super_init_says_so():
    class Forgot(metrics.Metric):
        def __init__(self):
            self.total = self.add_variable((), "zeros")

    with pytest.raises(RuntimeError, match=r"must call super\(\).__init__\(\)"):
        Forgot()
