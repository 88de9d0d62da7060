"""The same lines make the same model in both: weights, outputs, tables, configurations."""

import json
import warnings

import numpy as np
import pytest

import kerascnn

from .networks import NETWORKS, input_shapes

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # Other packages may warn on import.
    keras = pytest.importorskip("keras")

# Keras converts PyTorch tensors in a way that NumPy 2 warns about.
pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")
each_network = pytest.mark.parametrize("make", NETWORKS, ids=lambda f: f.__name__)


@each_network
def test_weights_have_the_order_names_and_shapes_of_keras(make):
    here, there = make(kerascnn), make(keras)
    own = [(w.path, w.shape, w.trainable) for w in here.weights]
    assert own == [(w.path, tuple(w.shape), w.trainable) for w in there.weights]
    for kind in ("trainable_weights", "non_trainable_weights"):
        assert [w.path for w in getattr(here, kind)] == [w.path for w in getattr(there, kind)]
    assert [layer.name for layer in here.layers] == [layer.name for layer in there.layers]
    assert here.count_params() == there.count_params()


@each_network
@pytest.mark.parametrize("training", [False, True])
def test_outputs_with_the_weights_of_keras(make, training, device, rng):
    if training and make.__name__ == "chain":
        training = False  # The libraries draw different numbers for its dropout.
    with kerascnn.device(device):
        here, there = make(kerascnn), make(keras)
        here.set_weights(there.get_weights())
        inputs = [rng.standard_normal((4, *s[1:])).astype("float32") for s in input_shapes(here)]
        given = inputs if len(inputs) > 1 else inputs[0]
        actual, expected = here(given, training=training), there(given, training=training)
    actual = actual if isinstance(actual, list) else [actual]
    expected = expected if isinstance(expected, list) else [expected]
    assert len(actual) == len(expected)
    for a, e in zip(actual, expected, strict=True):
        # There are a few float32 layers, each exact to a few roundings of its largest value.
        e = keras.ops.convert_to_numpy(e)
        np.testing.assert_allclose(a.numpy(), e, rtol=1e-5, atol=1e-5 * np.abs(e).max())


@each_network
def test_configuration_is_that_of_keras(make):
    here, there = make(kerascnn), make(keras)
    own, other = (json.loads(json.dumps(m.get_config())) for m in (here, there))
    assert comparable(own) == comparable(other)
    again = type(here).from_config(here.get_config())
    assert json.loads(json.dumps(again.get_config())) == own
    assert [w.shape for w in again.weights] == [w.shape for w in here.weights]
    inputs = [np.ones((2, *s[1:]), "float32") for s in input_shapes(here)]
    given = inputs if len(inputs) > 1 else inputs[0]
    again.set_weights(here.get_weights())
    for a, b in zip(listed(again(given)), listed(here(given)), strict=True):
        np.testing.assert_array_equal(a.numpy(), b.numpy())


def listed(outputs):
    return outputs if isinstance(outputs, list) else [outputs]


def comparable(config):
    """Leaves out what only Keras notes: empty masks, and the `compile` of nested models."""
    if isinstance(config, dict):
        left_out = {"compile_config"} | ({"mask"} if config.get("mask", 0) is None else set())
        return {k: comparable(v) for k, v in config.items() if k not in left_out}
    return [comparable(v) for v in config] if isinstance(config, list) else config


@each_network
@pytest.mark.parametrize(
    ("columns", "options"),
    [(80, {}), (150, {}), (130, {"show_trainable": True}), (100, {"expand_nested": True})],
)
def test_summary_is_the_table_of_keras(make, columns, options, monkeypatch):
    monkeypatch.setenv("COLUMNS", str(columns))
    texts = []
    for model in (make(kerascnn), make(keras)):
        lines: list[str] = []
        model.summary(print_fn=lambda text, lines=lines, **_: lines.append(text), **options)
        texts.append(lines_of("\n".join(lines)))
    assert texts[0] == texts[1]


def lines_of(text):
    return [line.rstrip() for line in text.splitlines() if line.strip()]


def test_initial_values_have_the_distribution_of_keras(rng):
    """The default kernel has the same range and spread; biases are zero."""
    for make in (lambda k: k.layers.Conv2D(64, 3), lambda k: k.layers.Dense(300)):
        kernels = []
        for library in (kerascnn, keras):
            layer = make(library)
            layer.build((None, 8, 8, 32) if "conv" in layer.name else (None, 200))
            kernel, bias = (np.asarray(w) for w in layer.get_weights())
            assert not bias.any()
            kernels.append(kernel)
        here, there = kernels
        limit = np.sqrt(6 / (9 * 32 + 9 * 64) if here.ndim == 4 else 6 / 500)
        # The limit itself is rounded to float32 by either library.
        assert np.abs(here).max() <= limit * (1 + 2.0**-23)
        assert np.abs(there).max() <= limit * (1 + 2.0**-23)
        # The spread of n uniform numbers has a relative error of about 1 / sqrt(n).
        assert here.std() == pytest.approx(limit / np.sqrt(3), rel=4 / np.sqrt(here.size))
        assert abs(here.mean()) < 6 * limit / np.sqrt(3 * here.size)
