"""Every metric equals Keras' over several batches, with and without weights."""

import inspect

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import kerascnn
from kerascnn import metrics

keras = pytest.importorskip("keras")

pytestmark = [
    pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:.*Adjusted R2:UserWarning"),
    pytest.mark.filterwarnings("ignore:.*adjusted R2:UserWarning"),
    pytest.mark.filterwarnings("ignore:More independent predictors:UserWarning"),
]

# Both add float32 in another order: up to 3 batches of 60 terms near 1.
RTOL, ATOL = 3e-5, 3e-6

CLASSES = 4


def numbers(rng, rows):
    return rng.normal(size=(rows, 3)), rng.normal(size=(rows, 3))


def columns(rng, rows):
    return rng.normal(size=(rows, 2)), rng.normal(size=(rows, 2))


def images(rng, rows):
    return rng.normal(size=(rows, 2, 5)), rng.normal(size=(rows, 2, 5))


def near(rng, rows):
    target = rng.uniform(0.5, 2, (rows, 3)) * rng.choice([-1, 1], (rows, 3))
    return target, target + rng.normal(size=(rows, 3))


def rates(rng, rows):
    return rng.poisson(2.0, (rows, 3)), rng.uniform(0.1, 4, (rows, 3))


def signs(rng, rows):
    return rng.choice([-1, 1], (rows, 3)), rng.normal(size=(rows, 3))


def scores(rng, rows, classes=CLASSES):
    values = rng.uniform(0.05, 1, (rows, classes))
    return values / values.sum(axis=-1, keepdims=True)


def one_hot(rng, rows):
    return np.eye(CLASSES)[rng.integers(0, CLASSES, rows)], scores(rng, rows)


def labels(rng, rows):
    return rng.integers(0, CLASSES, rows), scores(rng, rows)


def label_column(rng, rows):
    return rng.integers(0, CLASSES, (rows, 1)), scores(rng, rows)


def bits(rng, rows):
    """Draws binary labels with scores, some of which are exactly at a threshold."""
    y_pred = rng.choice([rng.uniform(), 0.0, 0.25, 0.5, 0.9, 1.0], rows)
    return rng.integers(0, 2, rows), np.where(rng.random(rows) < 0.6, rng.random(rows), y_pred)


def bit_columns(rng, rows):
    return rng.integers(0, 2, (rows, CLASSES)), rng.random((rows, CLASSES))


def logits(rng, rows):
    return rng.integers(0, 2, rows), 3 * rng.normal(size=rows)


def regions(rng, rows):
    return rng.integers(0, CLASSES, (rows, 5)), rng.integers(0, CLASSES, (rows, 5))


def region_scores(rng, rows):
    return np.eye(CLASSES)[rng.integers(0, CLASSES, (rows, 5))], rng.random((rows, 5, CLASSES))


def binary_regions(rng, rows):
    return rng.integers(0, 2, (rows, 5)), rng.random((rows, 5))


def equal_often(rng, rows):
    return rng.integers(0, 3, rows), rng.integers(0, 3, rows)


def ids(rng, rows):
    """Draws labels and, for each row, the classes from the best to the worst."""
    return rng.integers(0, CLASSES, rows), np.argsort(-scores(rng, rows), axis=-1)


THRESHOLDS = [
    {},
    {"thresholds": 0.3},
    {"thresholds": [0.2, 0.5, 0.9]},
    {"thresholds": [0.0, 0.5, 1.0]},
    {"thresholds": [0.0, 0.25, 0.5, 0.75, 1.0]},
]
SHARES = [(bits, t) for t in THRESHOLDS] + [
    (bit_columns, {"thresholds": 0.4}),
    (bit_columns, {"class_id": 2}),
    (one_hot, {"top_k": 2}),
    (one_hot, {"top_k": 3, "class_id": 1}),
    (one_hot, {"top_k": 2, "thresholds": [0.1, 0.3]}),
]
AT = [
    (bits, {}),
    (bits, {"num_thresholds": 1}),
    (bit_columns, {"num_thresholds": 7, "class_id": 1}),
]
AUCS = [
    (bits, {"curve": curve, "summation_method": method, "num_thresholds": 21})
    for curve in ("ROC", "PR", "PRGAIN")
    for method in ("interpolation", "majoring", "minoring")
]
AUCS += [
    (bits, {}),
    (bits, {"thresholds": [0.1, 0.4, 0.8]}),
    (bits, {"thresholds": [0.25, 0.5, 0.75], "curve": "PR"}),
    (logits, {"from_logits": True, "num_thresholds": 11}),
    (bit_columns, {"num_thresholds": 5}),
    (bit_columns, {"multi_label": True, "num_thresholds": 9}),
    (bit_columns, {"multi_label": True, "num_labels": CLASSES, "curve": "PR"}),
    (bit_columns, {"multi_label": True, "thresholds": [0.2, 0.6]}),
    (bit_columns, {"multi_label": True, "label_weights": [0.1, 2.0, 1.0, 0.5]}),
    (bit_columns, {"label_weights": [0.1, 2.0, 1.0, 0.5], "num_thresholds": 9}),
]
F_SCORES = [
    (data, {"average": average, "threshold": threshold})
    for data, threshold in ((one_hot, None), (bit_columns, 0.5))
    for average in (None, "micro", "macro", "weighted")
]
CROSSENTROPY = [{}, {"label_smoothing": 0.2}, {"from_logits": True}]
REGIONS = {"num_classes": CLASSES}

CASES = {
    "Mean": [],
    "Sum": [],
    "MeanMetricWrapper": [],
    "Accuracy": [(equal_often, {}), (regions, {})],
    "BinaryAccuracy": [(bits, {}), (bits, {"threshold": 0.25}), (bit_columns, {})],
    "CategoricalAccuracy": [(one_hot, {}), (region_scores, {})],
    "SparseCategoricalAccuracy": [(labels, {}), (label_column, {})],
    "TopKCategoricalAccuracy": [(one_hot, {"k": k}) for k in (1, 2, 4)]
    + [(region_scores, {"k": 2})],
    "SparseTopKCategoricalAccuracy": [(labels, {"k": k}) for k in (1, 3)]
    + [(label_column, {"k": 2}), (ids, {"k": 2, "from_sorted_ids": True})],
    "BinaryCrossentropy": [(bit_columns, a) for a in CROSSENTROPY],
    "CategoricalCrossentropy": [(one_hot, a) for a in CROSSENTROPY],
    "SparseCategoricalCrossentropy": [
        (labels, a) for a in ({}, {"from_logits": True}, {"ignore_class": 1})
    ],
    "KLDivergence": [(one_hot, {})],
    "Poisson": [(rates, {})],
    "MeanSquaredError": [(numbers, {}), (images, {})],
    "RootMeanSquaredError": [(numbers, {}), (images, {})],
    "MeanAbsoluteError": [(numbers, {})],
    "MeanAbsolutePercentageError": [(near, {})],
    "MeanSquaredLogarithmicError": [(rates, {})],
    "CosineSimilarity": [(numbers, {}), (images, {"axis": 1})],
    "LogCoshError": [(numbers, {})],
    "R2Score": [
        (columns, {"class_aggregation": how, "num_regressors": regressors})
        for how in (None, "uniform_average", "variance_weighted_average")
        for regressors in (0, 2)
    ]
    + [(columns, {"num_regressors": 1000})],
    "PearsonCorrelation": [(numbers, {}), (images, {"axis": 1})],
    "ConcordanceCorrelation": [(numbers, {}), (images, {"axis": 2})],
    "Hinge": [(signs, {}), (bit_columns, {})],
    "SquaredHinge": [(signs, {})],
    "CategoricalHinge": [(one_hot, {})],
    "TruePositives": [(bits, t) for t in THRESHOLDS] + [(bit_columns, {})],
    "TrueNegatives": [(bits, t) for t in THRESHOLDS],
    "FalsePositives": [(bits, t) for t in THRESHOLDS],
    "FalseNegatives": [(bits, t) for t in THRESHOLDS],
    "Precision": SHARES,
    "Recall": SHARES,
    "SensitivityAtSpecificity": [(d, {"specificity": 0.6, **a}) for d, a in AT],
    "SpecificityAtSensitivity": [(d, {"sensitivity": 0.6, **a}) for d, a in AT],
    "PrecisionAtRecall": [(d, {"recall": 0.6, **a}) for d, a in AT],
    "RecallAtPrecision": [(d, {"precision": 0.6, **a}) for d, a in AT],
    "AUC": AUCS,
    "F1Score": F_SCORES,
    "FBetaScore": [(d, {"beta": beta, **a}) for d, a in F_SCORES for beta in (0.5, 2.0)],
    "IoU": [
        (regions, {**REGIONS, "target_class_ids": [0, 2]}),
        (regions, {**REGIONS, "target_class_ids": [1], "ignore_class": 0}),
        (regions, {"num_classes": 3, "target_class_ids": [0, 1, 2], "dtype": "float32"}),
    ],
    "BinaryIoU": [
        (binary_regions, {}),
        (binary_regions, {"target_class_ids": [1], "threshold": 0.3}),
    ],
    "MeanIoU": [
        (regions, REGIONS),
        (region_scores, {**REGIONS, "sparse_y_true": False, "sparse_y_pred": False}),
        (regions, {**REGIONS, "ignore_class": 3}),
        (regions, {"num_classes": 9}),
    ],
    "OneHotIoU": [(region_scores, {**REGIONS, "target_class_ids": [1, 3]})],
    "OneHotMeanIoU": [(region_scores, REGIONS)],
}

ALL = [
    pytest.param(name, make, arguments, id=f"{name}-{place}")
    for name, cases in CASES.items()
    for place, (make, arguments) in enumerate(cases)
]

quick = settings(
    max_examples=5,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


def public(module):
    return {name for name in dir(module) if not name.startswith("_")}


def test_every_name_of_keras_is_here_with_its_signature():
    for name in sorted(public(keras.metrics)):
        wanted = inspect.signature(getattr(keras.metrics, name)).parameters
        got = inspect.signature(getattr(metrics, name)).parameters
        assert list(got) == list(wanted), name
        for parameter in wanted:
            assert got[parameter].default == wanted[parameter].default, (name, parameter)


def test_every_class_of_keras_is_compared():
    theirs = {name for name in public(keras.metrics) if name[0].isupper()}
    assert theirs - {"Metric"} == set(CASES)


def close(own, theirs, rtol=RTOL):
    if hasattr(own, "value"):  # Variables hold their value in an attribute.
        own = own.value
    expected = keras.ops.convert_to_numpy(theirs)
    np.testing.assert_allclose(np.asarray(own), expected, rtol=rtol, atol=ATOL)


def as_given(array):
    return array.astype("float32" if array.dtype.kind == "f" else "int32")


@pytest.mark.parametrize(("name", "make", "arguments"), ALL)
@quick
@given(
    seed=st.integers(0, 2**32),
    rows=st.lists(st.sampled_from([1, 2, 7, 20]), min_size=1, max_size=3),
    weighted=st.booleans(),
)
def test_results_are_those_of_keras(name, make, arguments, device, seed, rows, weighted):
    rng = np.random.default_rng(seed)
    if name in ("R2Score",):
        rows = [max(count, 7) for count in rows]  # A single row has no variance.
    theirs = getattr(keras.metrics, name)(**arguments)
    with kerascnn.device(device):
        own = getattr(metrics, name)(**arguments)
        for count in rows:
            y_true, y_pred = map(as_given, make(rng, count))
            weights = None
            if weighted:
                weights = rng.integers(0, 3, count).astype("float32")
                if "IoU" in name:
                    weights = rng.integers(0, 3, y_true.shape[:2]).astype("int32")
                elif make in (label_column, region_scores, images) and name not in ("AUC",):
                    weights = weights[:, None]
            own.update_state(y_true, y_pred, sample_weight=weights)
            theirs.update_state(y_true, y_pred, sample_weight=weights)
            close(own.result(), theirs.result())
        own.reset_state()
        y_true, y_pred = map(as_given, make(rng, 7))
        theirs.reset_state()
        theirs.update_state(y_true, y_pred)
        close(own(y_true, y_pred), theirs.result())


@pytest.mark.parametrize(("name", "make", "arguments"), ALL)
def test_configurations_are_those_of_keras(name, make, arguments):
    # The names that the libraries generate have counters, which may differ.
    arguments = {"name": "own_name", **arguments}
    own, theirs = getattr(metrics, name)(**arguments), getattr(keras.metrics, name)(**arguments)
    config, expected = own.get_config(), theirs.get_config()
    # In Keras this is a tensor, which JSON cannot hold.
    if expected.get("label_weights") is not None:
        np.testing.assert_allclose(config.pop("label_weights"), expected.pop("label_weights"))
    if name == "CosineSimilarity" and "axis" in arguments:  # Keras loses this argument.
        assert config.pop("axis") == arguments["axis"]
    assert config == expected
    again = metrics.deserialize(metrics.serialize(own))
    assert type(again) is type(own)
    assert again.get_config() == own.get_config()
    assert type(keras.metrics.deserialize(metrics.serialize(own))) is type(theirs)


@pytest.mark.parametrize("name", sorted(CASES))
def test_names_dtypes_directions_and_state(name):
    arguments = CASES[name][0][1] if CASES[name] else {}
    if name == "MeanMetricWrapper":
        own = metrics.MeanMetricWrapper(metrics.mean_squared_error)
        theirs = keras.metrics.MeanMetricWrapper(keras.metrics.mean_squared_error)
        assert own.get_config()["fn"]["config"] == theirs.get_config()["fn"]["config"]
        again = metrics.MeanMetricWrapper.from_config(own.get_config())
        assert again.get_config() == own.get_config()
        assert own._direction == theirs._direction == "down"
        return
    own, theirs = getattr(metrics, name)(**arguments), getattr(keras.metrics, name)(**arguments)
    without_number = theirs.name.rstrip("0123456789").rstrip("_")
    assert own.name.startswith(without_number)
    assert own.dtype == theirs.dtype
    assert own._direction == getattr(theirs, "_direction", None)
    described = [(v.name, v.shape, v.dtype) for v in own.variables]
    assert described == [(v.name, tuple(v.shape), v.dtype) for v in theirs.variables]


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("name", ["Mean", "Sum"])
@pytest.mark.parametrize("shape", [(), (5,), (4, 3), (2, 3, 4)])
def test_reductions_are_those_of_keras(name, shape, weighted, rng):
    own, theirs = getattr(metrics, name)(), getattr(keras.metrics, name)()
    for _ in range(2):
        values = rng.normal(size=shape).astype("float32")
        weights = rng.random(shape[:2]).astype("float32") if weighted else None
        own.update_state(values, sample_weight=weights)
        theirs.update_state(values, sample_weight=weights)
        close(own.result(), theirs.result())


ALIASES = ["bce", "BCE", "mae", "MAE", "mse", "MSE", "mape", "MAPE", "msle", "MSLE"]
NO_ARGUMENTS = sorted(
    name
    for name, cls in vars(metrics).items()
    if name in CASES
    and all(p.default is not p.empty for p in list(inspect.signature(cls).parameters.values()))
)


@pytest.mark.parametrize("identifier", [*ALIASES, *NO_ARGUMENTS])
def test_identifiers_stand_for_what_they_do_in_keras(identifier):
    own, theirs = metrics.get(identifier), keras.metrics.get(identifier)
    assert type(own).__name__ == type(theirs).__name__
    snake = kerascnn.naming.to_snake_case(identifier)
    assert type(metrics.get(snake)) is type(own)


FUNCTIONS = {
    "binary_accuracy": bits,
    "categorical_accuracy": one_hot,
    "sparse_categorical_accuracy": labels,
    "top_k_categorical_accuracy": one_hot,
    "sparse_top_k_categorical_accuracy": labels,
    "pearson_correlation": numbers,
    "concordance_correlation": numbers,
}


@pytest.mark.parametrize("name", sorted(FUNCTIONS))
def test_functions_are_those_of_keras(name, rng):
    arguments = {"k": 2} if "top_k" in name else {}
    y_true, y_pred = map(as_given, FUNCTIONS[name](rng, 9))
    close(
        getattr(metrics, name)(y_true, y_pred, **arguments),
        getattr(keras.metrics, name)(y_true, y_pred, **arguments),
    )


def test_functions_shared_with_losses_are_the_same():
    from kerascnn import losses

    for name in public(keras.metrics) & public(keras.losses) - {"get", "serialize", "deserialize"}:
        if name[0].islower():
            assert getattr(metrics, name) is getattr(losses, name)


BAD = [
    ("Precision", {"thresholds": 1.5}),
    ("Recall", {"thresholds": [0.5, -0.1]}),
    ("TruePositives", {"thresholds": [None]}),
    ("AUC", {"num_thresholds": 1}),
    ("AUC", {"curve": "roc curve"}),
    ("AUC", {"summation_method": "middle"}),
    ("AUC", {"num_labels": 3}),
    ("SensitivityAtSpecificity", {"specificity": 1.1}),
    ("SpecificityAtSensitivity", {"sensitivity": -0.1}),
    ("PrecisionAtRecall", {"recall": 0.5, "num_thresholds": 0}),
    ("RecallAtPrecision", {"precision": 2}),
    ("F1Score", {"average": "mean"}),
    ("F1Score", {"threshold": 0.0}),
    ("F1Score", {"threshold": 1}),
    ("FBetaScore", {"beta": 1}),
    ("FBetaScore", {"beta": -1.0}),
    ("R2Score", {"class_aggregation": "mean"}),
    ("R2Score", {"num_regressors": -1}),
    ("IoU", {"num_classes": 2, "target_class_ids": [2]}),
]


@pytest.mark.parametrize(("name", "arguments"), BAD)
def test_wrong_arguments_raise_what_they_do_in_keras(name, arguments):
    with pytest.raises(ValueError):
        getattr(keras.metrics, name)(**arguments)
    with pytest.raises(ValueError):
        getattr(metrics, name)(**arguments)


@pytest.mark.parametrize("name", ["F1Score", "R2Score"])
def test_wrong_shapes_raise_what_they_do_in_keras(name):
    for module in (keras.metrics, metrics):
        with pytest.raises(ValueError, match="(?i)shape"):
            getattr(module, name)().update_state(np.zeros((2, 2, 2)), np.zeros((2, 2, 2)))
    for module in (keras.metrics, metrics):
        with pytest.raises(ValueError):
            module.Precision(class_id=1).update_state(np.zeros(3), np.zeros(3))
