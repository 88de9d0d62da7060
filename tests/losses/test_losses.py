"""Losses equal float64 NumPy, and Keras where it is installed."""

import numpy as np
import pytest

import kerascnn as keras
from kerascnn import layers, losses

EPSILON = 1e-7
# A loss has a division, a logarithm and sums over 5 classes and 12 samples in float32.
RTOL = 2e-6


def data(seed=0, shape=(12, 5)):
    rng = np.random.default_rng(seed)
    logits = rng.normal(size=shape) * 2
    labels = rng.integers(0, shape[-1], shape[:-1])
    weights = rng.random(shape[:-1])
    return logits, labels, weights


def softmax(z):
    e = np.exp(z - z.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def log_of(p):
    p = p / p.sum(axis=-1, keepdims=True)
    return np.log(np.clip(p, EPSILON, 1 - EPSILON))


def reference(name, logits, labels, from_logits, smoothing):
    """Returns the value for each sample in float64."""
    classes = logits.shape[-1]
    one_hot = np.eye(classes)[labels]
    if name == "binary":
        target = one_hot * (1 - smoothing) + 0.5 * smoothing
        p = np.clip(1 / (1 + np.exp(-logits)), EPSILON, 1 - EPSILON)
        return -(target * np.log(p) + (1 - target) * np.log(1 - p)).mean(axis=-1)
    target = one_hot * (1 - smoothing) + smoothing / classes
    log = np.log(softmax(logits)) if from_logits else log_of(softmax(logits))
    return -(target * log).sum(axis=-1)


def predictions(name, logits, from_logits):
    if from_logits:
        return logits
    return 1 / (1 + np.exp(-logits)) if name == "binary" else softmax(logits)


def make(name, **kwargs):
    return {
        "binary": losses.BinaryCrossentropy,
        "categorical": losses.CategoricalCrossentropy,
        "sparse": losses.SparseCategoricalCrossentropy,
    }[name](**kwargs)


CASES = [
    ("binary", False, 0.0),
    ("binary", True, 0.0),
    ("binary", True, 0.2),
    ("categorical", False, 0.0),
    ("categorical", True, 0.1),
    ("categorical", False, 0.3),
    ("sparse", False, 0.0),
    ("sparse", True, 0.0),
]


@pytest.mark.parametrize("shape", [(12, 5), (4, 3, 5)])
@pytest.mark.parametrize(("name", "from_logits", "smoothing"), CASES)
def test_crossentropies_with_each_reduction(name, from_logits, smoothing, shape):
    logits, labels, weights = data(shape=shape)
    values = reference(name, logits, labels, from_logits, smoothing)
    y_pred = predictions(name, logits, from_logits).astype("float32")
    y_true = labels if name == "sparse" else np.eye(5)[labels]
    kwargs = {"from_logits": from_logits}
    if name != "sparse":
        kwargs["label_smoothing"] = smoothing
    expected = {
        "none": values * weights,
        None: values * weights,
        "sum": (values * weights).sum(),
        "mean": (values * weights).mean(),
        "sum_over_batch_size": (values * weights).mean(),
        "mean_with_sample_weight": (values * weights).sum() / weights.sum(),
    }
    for reduction, value in expected.items():
        loss = make(name, reduction=reduction, **kwargs)
        np.testing.assert_allclose(
            np.asarray(loss(y_true, y_pred, weights)), value, rtol=RTOL, err_msg=str(reduction)
        )
    unweighted = make(name, **kwargs)(y_true, y_pred)
    np.testing.assert_allclose(np.asarray(unweighted), values.mean(), rtol=RTOL)


def test_mean_squared_error():
    rng = np.random.default_rng(1)
    a, b = rng.normal(size=(2, 6, 4))
    loss = losses.MeanSquaredError()(a, b)
    np.testing.assert_allclose(np.asarray(loss), np.square(a - b).mean(), rtol=RTOL)
    per_sample = losses.mean_squared_error(a.astype("float32"), b.astype("float32"))
    np.testing.assert_allclose(per_sample.numpy(), np.square(a - b).mean(axis=1), rtol=RTOL)


def test_targets_without_their_last_axis_of_one_are_given_it():
    prediction = np.array([[1.0], [2.0], [4.0]])
    loss = losses.MeanSquaredError()
    assert float(loss(np.array([1.0, 0.0, 1.0]), prediction)) == pytest.approx(13 / 3, rel=RTOL)
    binary = losses.BinaryCrossentropy()
    assert float(binary(np.array([1, 1, 1]), prediction / 8)) == pytest.approx(
        -np.log(prediction / 8).mean(), rel=RTOL
    )


def test_labels_with_a_last_axis_of_one():
    logits, labels, _ = data()
    loss = losses.SparseCategoricalCrossentropy()
    flat = float(loss(labels, softmax(logits)))
    assert float(loss(labels[:, None], softmax(logits))) == flat
    assert float(loss(labels.astype("uint8"), softmax(logits))) == flat
    assert float(loss(labels.astype("float32"), softmax(logits))) == flat


def test_probabilities_of_zero_and_one_stay_finite():
    y_pred = np.array([[0.0, 1.0], [1.0, 0.0]])
    sparse = losses.SparseCategoricalCrossentropy(reduction="none")([0, 0], y_pred).numpy()
    np.testing.assert_allclose(sparse, [-np.log(EPSILON), EPSILON], rtol=0.2)
    assert np.isfinite(losses.binary_crossentropy([[0.0, 1.0]], [[1.0, 0.0]]).numpy()).all()


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("function", ["binary_crossentropy", "binary_focal_crossentropy"])
def test_16_bit_probabilities_of_zero_and_one_stay_finite(function, dtype, device):
    """The epsilon that is kept from 1 is none in 16 bits."""
    with keras.device(device):
        y_true = keras.ops.convert_to_tensor([[1.0], [0.0], [0.0], [1.0]], dtype)
        y_pred = keras.ops.convert_to_tensor([[1.0], [0.0], [1.0], [0.0]], dtype)
        with keras.GradientTape() as tape:
            tape.watch(y_pred)
            values = getattr(losses, function)(y_true, y_pred)
        assert str(values.dtype) == dtype
        # The logarithm of 1e-7, the distance that float32 has from 1, rounded to 8 bits.
        wanted = np.array([0, 0, -np.log(EPSILON), -np.log(EPSILON)])
        found = keras.ops.cast(values, "float32").numpy()
        # 1 - 1e-7 is off by up to 2^-25 in float32, which is 0.3 of 1e-7.
        np.testing.assert_allclose(found, wanted, rtol=0.3 / 16 + 2.0**-8, atol=2e-7)
        gradient = keras.ops.cast(tape.gradient(values, y_pred), "float32").numpy()
        assert np.isfinite(gradient).all()


def test_a_metric_of_16_bit_probabilities_is_that_of_the_loss():
    for policy in ("mixed_float16", "mixed_bfloat16"):
        model = keras.Sequential(
            [
                keras.Input((1,)),
                layers.Dense(1, "sigmoid", kernel_initializer="ones", dtype=policy),
            ]
        )
        model.compile("sgd", "binary_crossentropy", metrics=["binary_crossentropy"])
        loss, metric = model.evaluate(
            np.array([[9.0], [-9], [1]]), np.array([[1], [0], [1]]), verbose=0
        )
        # The metric has the same predictions, and its values are rounded to 8 bits.
        np.testing.assert_allclose(metric, loss, rtol=2.0**-8)


def test_ignored_classes_are_no_samples():
    logits, labels, weights = data()
    labels[::3] = -1
    kept = labels >= 0
    values = reference("sparse", logits, np.maximum(labels, 0), True, 0.0)[kept]

    def loss(reduction, sample_weight=None):
        cls = losses.SparseCategoricalCrossentropy(
            from_logits=True, ignore_class=-1, reduction=reduction
        )
        return cls(labels, logits, sample_weight)

    assert float(loss("mean")) == pytest.approx(values.mean(), rel=RTOL)
    weighted = values * weights[kept]
    assert float(loss("mean", weights)) == pytest.approx(weighted.mean(), rel=RTOL)
    assert float(loss("sum", weights)) == pytest.approx(weighted.sum(), rel=RTOL)
    assert float(loss("mean_with_sample_weight", weights)) == pytest.approx(
        weighted.sum() / weights[kept].sum(), rel=RTOL
    )
    np.testing.assert_array_equal(loss("none").numpy()[~kept], 0)
    labels[:] = -1
    assert float(loss("mean")) == 0.0


def test_all_weights_zero_give_zero():
    logits, labels, _ = data()
    loss = losses.SparseCategoricalCrossentropy(reduction="mean_with_sample_weight")
    assert float(loss(labels, softmax(logits), np.zeros(12))) == 0


@pytest.mark.parametrize(
    ("identifier", "name"),
    [
        ("mse", "mean_squared_error"),
        ("MSE", "mean_squared_error"),
        ("bce", "binary_crossentropy"),
        ("sparse_categorical_crossentropy", "sparse_categorical_crossentropy"),
        ("CategoricalCrossentropy", "categorical_crossentropy"),
        (losses.MeanSquaredError, "mean_squared_error"),
        ({"class_name": "MeanSquaredError", "config": {"name": "own"}}, "own"),
    ],
)
def test_get_by_name(identifier, name):
    loss = losses.get(identifier)
    assert (loss.name if isinstance(loss, losses.Loss) else loss.__name__) == name


def test_get_knows_what_it_does_not_know():
    assert losses.get(None) is None
    for identifier in ("nothing", 3, {"class_name": "Nothing"}):
        with pytest.raises(ValueError, match="Could not interpret loss identifier"):
            losses.get(identifier)


def test_own_objects_in_configurations():
    def distance(y_true, y_pred, power=1):
        return keras.ops.mean(keras.ops.abs(y_true - y_pred) ** power, axis=-1)

    class Own(losses.Loss):
        def call(self, y_true, y_pred):
            return distance(y_true, y_pred)

    config = losses.serialize(Own(name="own"))
    assert losses.deserialize(config, {"Own": Own}).name == "own"
    assert losses.deserialize("distance", {"distance": distance}) is distance
    with pytest.raises(ValueError, match="custom_objects"):
        losses.deserialize(config)
    wrapper = losses.LossFunctionWrapper(distance, power=3)
    assert wrapper.get_config()["fn"]["config"] == "distance"
    known = losses.LossFunctionWrapper(losses.huber, delta=3.0, name="h")
    again = losses.LossFunctionWrapper.from_config(known.get_config())
    assert again.fn is losses.huber
    assert again.get_config() == known.get_config()


def test_unknown_names_are_answered_with_those_that_come_close():
    with pytest.raises(ValueError, match=r"'hubber'.*Did you mean 'huber'"):
        losses.get("hubber")
    with pytest.raises(ValueError, match="between 0 and 1"):
        losses.CategoricalGeneralizedCrossEntropy(q=1)
    with pytest.raises(ValueError, match="dtype"):
        losses.Huber(dtype="float33")


def test_a_circle_loss_without_pairs_is_zero_and_has_no_nan_in_its_gradient():
    y_pred = np.eye(3, dtype="float32")
    assert float(losses.Circle()(np.array([0, 1, 2]), y_pred)) == 0.0
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2)])
    model.compile("sgd", losses.Circle())
    model.fit(y_pred, np.array([0, 1, 2]), verbose=0)
    assert all(np.isfinite(w).all() for w in model.get_weights())


def test_no_values_have_the_loss_zero():
    empty = np.zeros((0, 2, 3), "float32")
    assert float(losses.MeanAbsoluteError()(empty, empty)) == 0.0


def test_wrong_arguments():
    with pytest.raises(ValueError, match=r"`reduction`.*'average'"):
        losses.MeanSquaredError(reduction="average")
    with pytest.raises(ValueError, match="same shape"):
        losses.categorical_crossentropy(np.zeros((2, 3)), np.ones((2, 4)))
    with pytest.raises(ValueError, match="shape"):
        losses.sparse_categorical_crossentropy(np.zeros((2, 3), int), np.ones((2, 3)))
    with pytest.raises(ValueError, match="axis"):
        losses.sparse_categorical_crossentropy([0], np.ones((1, 3)), axis=True)
    with pytest.warns(SyntaxWarning, match="binary_crossentropy"):
        losses.categorical_crossentropy(np.ones((2, 1)), np.ones((2, 1)))


def test_a_loss_of_ones_own():
    class OwnDistance(losses.Loss):
        def call(self, y_true, y_pred):
            return keras.ops.mean(keras.ops.abs(y_true - y_pred), axis=-1)

    loss = OwnDistance()
    assert loss.name == "own_distance"  # no op has the name of this class
    assert float(loss(np.zeros((2, 2)), np.array([[1, 3], [2, 2]]))) == 2
    with pytest.raises(NotImplementedError, match="must implement call"):
        losses.Loss()(np.zeros(2), np.zeros(2))


def test_configs_make_equal_losses():
    loss = losses.CategoricalCrossentropy(from_logits=True, label_smoothing=0.1, reduction="sum")
    other = losses.CategoricalCrossentropy.from_config(loss.get_config())
    logits, labels, _ = data()
    target = np.eye(5)[labels]
    assert float(loss(target, logits)) == float(other(target, logits))


@pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")
@pytest.mark.parametrize(("name", "from_logits", "smoothing"), CASES)
def test_losses_are_those_of_keras(name, from_logits, smoothing):
    other = pytest.importorskip("keras")
    logits, labels, weights = data(seed=3)
    y_pred = predictions(name, logits, from_logits).astype("float32")
    y_true = labels if name == "sparse" else np.eye(5, dtype="float32")[labels]
    kwargs = {"from_logits": from_logits}
    if name != "sparse":
        kwargs["label_smoothing"] = smoothing
    own = make(name, **kwargs)
    theirs = getattr(other.losses, type(own).__name__)(**kwargs)
    expected = float(theirs(y_true, y_pred, sample_weight=weights.astype("float32")))
    assert float(own(y_true, y_pred, weights)) == pytest.approx(expected, rel=RTOL)
