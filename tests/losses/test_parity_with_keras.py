"""Every loss has Keras' values, weights, reductions, gradients and configurations."""

import inspect

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import kerascnn
from kerascnn import _core, losses
from kerascnn.tracing import Trace

keras = pytest.importorskip("keras")
torch = pytest.importorskip("torch")

pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")

# Both compute in float32, in another order. Values differ by a few units in the last place of the
# largest term: there are sums of up to 60 terms, and one logarithm or power for each.
RTOL, ATOL = 2e-5, 2e-6
# The slopes of logarithms and powers of probabilities down to 0.01 magnify the rounding.
GRADIENT_RTOL, GRADIENT_ATOL = 1e-4, 1e-5

# These are public in Keras, but missing in the list where `get` and `deserialize` look names up.
UNKNOWN_TO_GET = {
    "CategoricalGeneralizedCrossEntropy",
    "categorical_generalized_cross_entropy",
}

SHAPES = [(1, 1), (7, 3), (4, 5), (2, 3, 4), (3, 1, 2, 5)]
REDUCTIONS = ["sum_over_batch_size", "mean", "sum", "mean_with_sample_weight", "none", None]


def numbers(rng, shape):
    return rng.normal(size=shape), rng.normal(size=shape)


def near(rng, shape):
    """Draws targets away from 0, since relative errors divide by them."""
    target = rng.uniform(0.5, 2, shape) * rng.choice([-1, 1], shape)
    return target, target + rng.normal(size=shape)


def rates(rng, shape):
    return rng.poisson(2.0, shape), rng.uniform(0.1, 4, shape)


def signs(rng, shape):
    return rng.choice([-1, 1], shape), rng.normal(size=shape)


def probabilities(rng, shape):
    return rng.uniform(0.01, 0.99, shape), rng.uniform(0.01, 0.99, shape)


def bits(rng, shape):
    return rng.integers(0, 2, shape), rng.uniform(0.01, 0.99, shape)


def classes(rng, shape):
    y_pred = rng.uniform(0.05, 1, shape)
    one_hot = np.eye(shape[-1])[rng.integers(0, shape[-1], shape[:-1])]
    return one_hot, y_pred / y_pred.sum(axis=-1, keepdims=True)


def labels(rng, shape):
    one_hot, y_pred = classes(rng, shape)
    return one_hot.argmax(axis=-1), y_pred


def embeddings(rng, shape):
    count, size = 8, max(shape[-1], 2)
    y_pred = rng.normal(size=(count, size))
    return rng.integers(0, 3, count), y_pred / np.linalg.norm(y_pred, axis=-1, keepdims=True)


def sequences(rng, shape):
    """Draws up to 3 labels for 6 or more frames, which are enough; some samples have no labels."""
    count, frames = shape[0], 5 + shape[-1]
    y_true = rng.integers(1, 5, (count, 3)) * (np.arange(3) < rng.integers(0, 4, (count, 1)))
    return y_true, rng.normal(size=(count, frames, 5))


AXES = {"axis": st.sampled_from([-1, 1])}
LOGITS = {"from_logits": st.booleans()}
SMOOTHING = {"label_smoothing": st.sampled_from([0.0, 0.1, 0.5])}
SUMS = {"axis": st.sampled_from([None, -1, (0, 1), [1]])}
GAMMA = {"gamma": st.sampled_from([0.5, 1.0, 2.0, 3.5])}

# Each entry is class: (inputs, arguments).
CASES = {
    "CTC": (sequences, {}),
    "MeanSquaredError": (numbers, {}),
    "MeanAbsoluteError": (numbers, {}),
    "MeanAbsolutePercentageError": (near, {}),
    "MeanSquaredLogarithmicError": (rates, {}),
    "CosineSimilarity": (numbers, AXES),
    "Huber": (numbers, {"delta": st.sampled_from([0.3, 1.0, 2.0])}),
    "LogCosh": (numbers, {}),
    "Hinge": (signs, {}),
    "SquaredHinge": (bits, {}),
    "CategoricalHinge": (classes, {}),
    "KLDivergence": (classes, {}),
    "Poisson": (rates, {}),
    "BinaryCrossentropy": (bits, LOGITS | SMOOTHING),
    "BinaryFocalCrossentropy": (
        bits,
        LOGITS
        | SMOOTHING
        | GAMMA
        | {"apply_class_balancing": st.booleans(), "alpha": st.sampled_from([0.25, 0.7])},
    ),
    "CategoricalCrossentropy": (classes, LOGITS | SMOOTHING),
    "CategoricalFocalCrossentropy": (
        classes,
        LOGITS | SMOOTHING | GAMMA | {"alpha": st.sampled_from([0.25, 1.0])},
    ),
    "SparseCategoricalCrossentropy": (
        labels,
        LOGITS | {"ignore_class": st.sampled_from([None, 0, 1])},
    ),
    "CategoricalGeneralizedCrossEntropy": (labels, {"q": st.sampled_from([0.2, 0.5, 0.9])}),
    "Dice": (probabilities, SUMS),
    "Tversky": (
        probabilities,
        SUMS | {"alpha": st.sampled_from([0.3, 0.5]), "beta": st.sampled_from([0.5, 0.7])},
    ),
    "Circle": (
        embeddings,
        {
            "gamma": st.sampled_from([1.0, 8.0]),
            "margin": st.sampled_from([0.1, 0.4]),
            "remove_diagonal": st.booleans(),
        },
    ),
}

quick = settings(
    max_examples=12,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


def public(module):
    return {name for name in dir(module) if not name.startswith("_")}


def test_every_name_of_keras_is_here_with_its_signature():
    for name in sorted(public(keras.losses)):
        theirs, own = getattr(keras.losses, name), getattr(losses, name)
        wanted = inspect.signature(theirs).parameters
        got = inspect.signature(own).parameters
        assert list(got) == list(wanted), name
        for parameter in wanted:
            assert got[parameter].default == wanted[parameter].default, (name, parameter)


def test_every_class_of_keras_is_compared():
    theirs = {name for name in public(keras.losses) if name[0].isupper()}
    assert theirs - {"Loss"} == set(CASES)


def drawn(data, name, shapes=SHAPES):
    """Draws inputs in float32 (labels in int32), weights or None, and the loss's arguments."""
    make, strategies = CASES[name]
    arguments = {key: data.draw(strategy, label=key) for key, strategy in strategies.items()}
    shape = data.draw(st.sampled_from(shapes), label="shape")
    if shape[-1] == 1 and make in (classes, labels):
        shape = (*shape[:-1], 2)  # With one class there is no choice, and Keras warns.
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32), label="seed"))
    y_true, y_pred = make(rng, shape)
    if arguments.get("from_logits"):
        y_pred = 6 * y_pred - 3
    y_true = y_true.astype("float32" if y_true.dtype.kind == "f" else "int32")
    weights = None
    if data.draw(st.booleans(), label="weighted") and arguments.get("axis", -1) in (-1,):
        weights = rng.integers(0, 3, y_true.shape[:1]).astype("float32")
        extra = y_true.ndim - (1 if make in (labels, embeddings) else 2)
        weights = weights.reshape(-1, *[1] * max(extra, 0))
        # Keras' PyTorch backend does not broadcast masks.
        if arguments.get("ignore_class") is not None:
            weights = np.broadcast_to(weights, y_true.shape).copy()
    return y_true, y_pred.astype("float32"), weights, arguments


@pytest.mark.parametrize("name", sorted(CASES))
@quick
@given(data=st.data())
def test_values_are_those_of_keras(name, device, data):
    y_true, y_pred, weights, arguments = drawn(data, name)
    reduction = data.draw(st.sampled_from(REDUCTIONS), label="reduction")
    theirs = getattr(keras.losses, name)(reduction=reduction, **arguments)
    expected = keras.ops.convert_to_numpy(theirs(y_true, y_pred, sample_weight=weights))
    with kerascnn.device(device):
        own = getattr(losses, name)(reduction=reduction, **arguments)
        value = own(y_true, y_pred, sample_weight=weights).numpy()
    np.testing.assert_allclose(value, expected, rtol=RTOL, atol=ATOL)


@pytest.mark.parametrize("name", sorted(CASES))
@settings(quick, max_examples=6)
@given(data=st.data())
def test_gradients_are_those_of_keras(name, data):
    # PyTorch has no gradient for this loss on probabilities with several axes.
    shapes = SHAPES[:3] if name == "SparseCategoricalCrossentropy" else SHAPES
    y_true, y_pred, weights, arguments = drawn(data, name, shapes)
    if name == "Circle":
        # In Keras, a row without positives or negatives has a NaN gradient, so every class occurs
        # twice.
        y_true = np.array([0, 0, 1, 1, 2, 2, 0, 1], "int32")
    leaf = torch.tensor(y_pred, requires_grad=True)
    theirs = getattr(keras.losses, name)(**arguments)
    theirs(torch.tensor(y_true), leaf, sample_weight=weights).backward()
    own = getattr(losses, name)(**arguments)
    with Trace("cpu") as trace:
        x = trace.graph.input("y_pred", list(y_pred.shape), "float32")
        loss = own(y_true, x, sample_weight=weights)
        (gradient,) = trace.graph.gradients(loss, [x])
    program = _core.Program.compile(trace.graph, [gradient], "cpu")
    program.run([_core.from_numpy(y_pred, "cpu")])
    np.testing.assert_allclose(
        program.outputs()[0].numpy(),
        leaf.grad.numpy(),
        rtol=GRADIENT_RTOL,
        atol=GRADIENT_ATOL,
    )


FUNCTIONS = sorted(
    name for name in public(keras.losses) - {"get", "serialize", "deserialize"} if name[0].islower()
)


def inputs_of_function(name):
    by_function = {getattr(losses, cls)().fn.__name__: make for cls, (make, _) in CASES.items()}
    return by_function[name]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_are_those_of_keras(name, rng):
    y_true, y_pred = inputs_of_function(name)(rng, (6, 4))
    y_true = y_true.astype("float32" if y_true.dtype.kind == "f" else "int32")
    arguments = {"q": 0.5} if name == "categorical_generalized_cross_entropy" else {}
    y_pred = y_pred.astype("float32")
    theirs = keras.ops.convert_to_tensor(y_pred), keras.ops.convert_to_tensor(y_true)
    expected = getattr(keras.losses, name)(theirs[1], theirs[0], **arguments)
    value = getattr(losses, name)(y_true, y_pred, **arguments)
    assert value.dtype == "float32"
    np.testing.assert_allclose(
        value.numpy(), keras.ops.convert_to_numpy(expected), rtol=RTOL, atol=ATOL
    )


def test_circle_with_references(rng):
    y_true, y_pred = embeddings(rng, (8, 4))
    ref_labels, ref_embeddings = embeddings(rng, (8, 4))
    arguments = {"ref_labels": ref_labels, "remove_diagonal": False, "gamma": 4.0}
    references = ref_embeddings.astype("float32")
    value = losses.circle(y_true, y_pred.astype("float32"), ref_embeddings=references, **arguments)
    expected = keras.losses.circle(
        y_true, y_pred.astype("float32"), ref_embeddings=references, **arguments
    )
    np.testing.assert_allclose(
        value.numpy(), keras.ops.convert_to_numpy(expected), rtol=RTOL, atol=ATOL
    )


@pytest.mark.parametrize("name", sorted(CASES))
@settings(quick, max_examples=8)
@given(data=st.data())
def test_configurations_are_those_of_keras(name, data):
    arguments = {key: data.draw(strategy) for key, strategy in CASES[name][1].items()}
    arguments["reduction"] = data.draw(st.sampled_from(REDUCTIONS))
    if data.draw(st.booleans()):
        arguments["name"] = "own_name"
    own = getattr(losses, name)(**arguments)
    theirs = getattr(keras.losses, name)(**arguments)
    # Keras leaves these arguments out of the configuration; here they are in it if not the default.
    beyond = {"Huber": "delta", "CosineSimilarity": "axis"}
    config = own.get_config()
    if beyond.get(name) in config:
        assert config.pop(beyond[name]) == arguments[beyond[name]]
    assert config == theirs.get_config()
    again = losses.deserialize(losses.serialize(own))
    assert type(again) is type(own)
    assert again.get_config() == own.get_config()
    if name in UNKNOWN_TO_GET:
        return
    # Keras reads what is written here, and the reverse.
    assert type(keras.losses.deserialize(losses.serialize(own))) is type(theirs)
    assert losses.deserialize(keras.losses.serialize(theirs)).get_config()["name"] == theirs.name


@pytest.mark.parametrize("name", sorted(CASES))
def test_names_and_dtypes(name):
    own, theirs = getattr(losses, name)(), getattr(keras.losses, name)()
    assert (own.name, own.dtype, own.reduction) == (theirs.name, theirs.dtype, theirs.reduction)
    assert getattr(losses, name)(dtype="float64").dtype == "float64"


ALIASES = ["bce", "BCE", "kld", "KLD", "mae", "MAE", "mse", "MSE", "mape", "MAPE", "msle", "MSLE"]


@pytest.mark.parametrize("identifier", sorted({*ALIASES, *FUNCTIONS, *CASES} - UNKNOWN_TO_GET))
def test_identifiers_stand_for_what_they_do_in_keras(identifier):
    own, theirs = losses.get(identifier), keras.losses.get(identifier)
    if isinstance(own, losses.Loss):
        assert type(own).__name__ == type(theirs).__name__
    else:
        assert own.__name__ == theirs.__name__


def test_float64_is_computed_in_float64(rng):
    y_true, y_pred = rng.normal(size=(2, 5, 3))
    value = losses.LogCosh(dtype="float64")(y_true, y_pred)
    assert value.dtype == "float64"
    # There are 15 terms in float64; float32 would be off by 1e-7.
    np.testing.assert_allclose(value.numpy(), np.log(np.cosh(y_pred - y_true)).mean(), rtol=1e-14)
