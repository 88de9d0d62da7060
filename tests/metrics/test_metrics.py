"""Metrics: what they count, how weights count, and how compiled steps keep their state."""

import numpy as np
import pytest

import kerascnn as keras
from kerascnn import layers, metrics


def test_mean_and_sum_over_several_updates():
    mean, total = metrics.Mean(), metrics.Sum()
    for values in ([1.0, 2.0], [6.0]):
        mean.update_state(values)
        total.update_state(values)
    assert float(mean.result()) == 3.0
    assert float(total.result()) == 9.0
    assert float(mean.count.numpy()) == 3.0
    for metric in (mean, total):
        metric.reset_state()
        assert float(metric.result()) == 0.0
    assert float(mean(4.0)) == 4.0


def test_mean_with_weights():
    mean = metrics.Mean()
    mean.update_state([1.0, 3.0], sample_weight=[1.0, 0.0])
    mean.update_state(5.0, sample_weight=3)
    assert float(mean.result()) == pytest.approx((1 + 15) / 4)
    # There is one weight for each sample. A sample's values are averaged first.
    mean.reset_state()
    mean.update_state([[1.0, 3.0], [5.0, 7.0]], sample_weight=[1.0, 2.0])
    assert float(mean.result()) == pytest.approx((2 * 1 + 6 * 2) / 3)


def test_mean_of_nothing_is_zero():
    mean = metrics.Mean()
    assert float(mean.result()) == 0.0
    mean.update_state([1.0], sample_weight=[0.0])
    assert float(mean.result()) == 0.0


LABELS = np.array([2, 0, 1, 1])
SCORES = np.array([[0.1, 0.2, 0.7], [0.3, 0.6, 0.1], [0.2, 0.5, 0.3], [0.4, 0.35, 0.25]])
WEIGHTS = np.array([1.0, 2.0, 3.0, 4.0])


@pytest.mark.parametrize("dtype", ["int32", "int64", "uint8", "float32"])
def test_sparse_categorical_accuracy(dtype):
    metric = metrics.SparseCategoricalAccuracy()
    metric.update_state(LABELS.astype(dtype), SCORES)
    assert float(metric.result()) == 0.5
    metric.reset_state()
    metric.update_state(LABELS.astype(dtype)[:, None], SCORES, sample_weight=WEIGHTS)
    assert float(metric.result()) == pytest.approx(0.4)


def test_fractions_are_no_labels():
    metric = metrics.SparseCategoricalAccuracy()
    metric.update_state(LABELS + 0.5, SCORES)
    assert float(metric.result()) == 0.0


def test_the_first_of_equal_scores_wins():
    metric = metrics.SparseCategoricalAccuracy()
    metric.update_state([0, 1], [[0.5, 0.5], [0.5, 0.5]])
    assert float(metric.result()) == 0.5


def test_categorical_binary_and_plain_accuracy():
    one_hot = metrics.CategoricalAccuracy()
    one_hot.update_state(np.eye(3)[LABELS], SCORES)
    assert float(one_hot.result()) == 0.5
    binary = metrics.BinaryAccuracy(threshold=0.3)
    binary.update_state(np.array([[1.0], [0.0], [1.0]]), np.array([[0.31], [0.3], [0.2]]))
    assert float(binary.result()) == pytest.approx(2 / 3)
    plain = metrics.Accuracy()
    plain.update_state(np.array([1, 2, 3]), np.array([[1], [2], [4]]))
    assert float(plain.result()) == pytest.approx(2 / 3)


def test_losses_as_metrics_average_over_batches_of_any_size():
    metric = metrics.SparseCategoricalCrossentropy()
    for part in (slice(0, 3), slice(3, 4)):
        metric.update_state(LABELS[part], SCORES[part].astype("float32"))
    expected = -np.log(SCORES[np.arange(4), LABELS]).mean()
    assert float(metric.result()) == pytest.approx(expected, rel=1e-6)
    assert metric._direction == "down"


@pytest.mark.parametrize(
    ("identifier", "cls"),
    [
        ("mse", metrics.MeanSquaredError),
        ("sparse_categorical_accuracy", metrics.SparseCategoricalAccuracy),
        ("BinaryAccuracy", metrics.BinaryAccuracy),
        (metrics.Mean, metrics.Mean),
        ({"class_name": "Sum", "config": {"name": "all"}}, metrics.Sum),
    ],
)
def test_get_by_name(identifier, cls):
    assert type(metrics.get(identifier)) is cls


def test_get_knows_what_it_does_not_know():
    assert metrics.get(None) is None
    with pytest.raises(ValueError, match="Could not interpret metric identifier: 'acuracy'"):
        metrics.get("acuracy")


@pytest.mark.parametrize(
    ("units", "target", "cls", "right"),
    [
        (1, np.array([1, 0, 0, 1]), metrics.BinaryAccuracy, "b"),
        (3, np.array([2, 0, 0, 1]), metrics.SparseCategoricalAccuracy, "s"),
        (3, np.array([[2], [0], [0], [1]]), metrics.SparseCategoricalAccuracy, "s"),
        (3, np.eye(3)[[2, 0, 0, 1]], metrics.CategoricalAccuracy, "c"),
    ],
)
@pytest.mark.parametrize("name", ["accuracy", "acc"])
def test_accuracy_goes_by_the_shapes(units, target, cls, right, name):
    model = keras.Sequential([keras.Input((2,)), layers.Dense(units, activation="sigmoid")])
    model.compile("sgd", "crossentropy", metrics=[name])
    logs = model.evaluate(np.ones((4, 2)), target, verbose=0, return_dict=True)
    assert list(logs) == [name, "loss"] if name == "accuracy" else ["acc", "loss"]
    (metric,) = model._compile_metrics.metrics
    assert type(metric) is cls
    expected = {"b": "Binary", "s": "SparseCategorical", "c": "Categorical"}[right]
    assert type(model._compile_loss.losses[0].loss).__name__ == "LossFunctionWrapper"
    assert expected in type(metric).__name__


class Largest(metrics.Metric):
    """Has a state that is neither a mean nor reset to zero."""

    def __init__(self, name="largest"):
        super().__init__(name=name)
        self.value = self.add_variable((), keras.initializers.Constant(-5.0), name="value")

    def update_state(self, y_true, y_pred, sample_weight=None):
        self.value.assign(keras.ops.maximum(self.value.value, keras.ops.max(y_pred)))

    def result(self):
        return self.value.value


def test_metrics_and_functions_of_ones_own_in_fit():
    def shortfall(y_true, y_pred):
        return keras.ops.mean(y_true - y_pred, axis=-1)

    model = keras.Sequential(
        [keras.Input((2,)), layers.Dense(1, kernel_initializer="ones", use_bias=False)]
    )
    model.compile(keras.optimizers.SGD(0.0), "mse", metrics=[Largest(), shortfall])
    x = np.array([[1.0, 2.0], [3.0, 4.0], [-1.0, 0.0]])
    history = model.fit(x, np.full((3, 1), 10.0), batch_size=2, epochs=2, verbose=0).history
    assert history["largest"] == [7.0, 7.0]
    np.testing.assert_allclose(history["shortfall"], [7.0, 7.0], rtol=1e-6)
    # Each evaluation starts from the initial value again.
    assert model.evaluate(-x, np.zeros((3, 1)), verbose=0, return_dict=True)["largest"] == 1.0


def test_a_metric_that_was_made_on_another_device_follows_the_model():
    with keras.device("cpu"):
        model = keras.Sequential([keras.Input((2,)), layers.Dense(1)])
        metric = metrics.Mean(name="m")
    assert metric.total.device == model.variables[0].device == "cpu"


def test_equal_names_are_told_apart():
    model = keras.Sequential([keras.Input((2,)), layers.Dense(1)])
    model.compile(
        "sgd", "mse", metrics=["mse", metrics.MeanSquaredError(name="mse")],
        weighted_metrics=["mse"],
    )  # fmt: skip
    logs = model.evaluate(np.ones((4, 2)), np.zeros(4), verbose=0, return_dict=True)
    assert list(logs) == ["loss", "mse", "mse_1", "weighted_mse"]


def test_configs_make_equal_metrics():
    metric = metrics.BinaryAccuracy(name="b", threshold=0.7)
    other = metrics.BinaryAccuracy.from_config(metric.get_config())
    assert (other.name, other.threshold, other.dtype) == ("b", 0.7, "float32")


def test_iou_of_no_classes():
    with pytest.raises(ValueError, match="at least one class.*num_classes=0"):
        metrics.MeanIoU(0)


@pytest.mark.parametrize("loss", ["mse", "binary_crossentropy", "hinge"])
def test_iou_counts_the_same_in_compiled_steps(loss, device):
    """Labels are read as numbers by the loss, and as classes by the metric."""
    y = np.array([[0, 0, 1, 1, 1, 1]], "float32")
    predictions = np.array([[0, 1, 0, 0, 1, 1]], "float32")
    with keras.device(device):
        inputs = keras.Input((6,))
        model = keras.Model(inputs, layers.Identity()(inputs))
        metric = metrics.MeanIoU(2)
        model.compile(loss=loss, metrics=[metric])
        model.evaluate(predictions, y, verbose=0)
        np.testing.assert_array_equal(metric.total_cm, [[1, 1], [2, 2]])


def test_means_in_compiled_functions(device, rng):
    """A program keeps its counts on the device; they move there when a program first reads them."""
    values = rng.standard_normal((6, 4)).astype("float32")
    with keras.device(device):
        metric = keras.metrics.Mean()
        update = keras.jit(lambda x: metric.update_state(x))
        read, reset = keras.jit(lambda: metric.result()), keras.jit(lambda: metric.reset_state())

        def check(seen):
            mean = np.mean(np.concatenate(seen))
            # A mean has two sums of up to 24 float32 numbers.
            np.testing.assert_allclose(float(metric.result()), mean, rtol=1e-5, atol=1e-6)
            np.testing.assert_allclose(float(read()), mean, rtol=1e-5, atol=1e-6)

        update(values[0])
        update(values[1])
        check(values[:2])
        metric.update_state(values[2])
        check(values[:3])
        metric.update_state(values[3])
        update(values[4])
        assert float(metric.variables[1].value) == 20
        check(values[:5])
        metric.update_state(values[5])
        reset()
        metric.update_state(values[5])
        check(values[5:])
