"""Initializers have Keras' distributions, seeds and configurations."""

import inspect

import numpy as np
import pytest

import kerascnn as keras
from kerascnn import initializers

other = pytest.importorskip("keras")
pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")

CLASSES = [
    name
    for name in initializers.__all__
    if name[0].isupper() and name not in ("Initializer", "RandomInitializer")
]
ARGUMENTS = {
    "RandomNormal": [{}, {"mean": 1.0, "stddev": 0.3}],
    "TruncatedNormal": [{}, {"mean": 1.0, "stddev": 0.3}],
    "RandomUniform": [{}, {"minval": 0.5, "maxval": 2.0}],
    "VarianceScaling": [
        {"scale": 2.0, "mode": mode, "distribution": distribution}
        for mode in ("fan_in", "fan_out", "fan_avg")
        for distribution in ("uniform", "normal", "untruncated_normal")
    ],
    "Orthogonal": [{}, {"gain": 2.0}],
} | {f"{a}{b}": [{}] for a in ("Glorot", "He", "Lecun") for b in ("Normal", "Uniform")}


def values(initializer, shape):
    return other.ops.convert_to_numpy(initializer(shape))


@pytest.mark.parametrize(
    ("name", "arguments"), [(n, a) for n, all_ in ARGUMENTS.items() for a in all_]
)
def test_distributions_are_those_of_keras(name, arguments):
    shape = (5, 5, 40, 100)  # The shape has 100,000 values.
    own = getattr(initializers, name)(**arguments, seed=3)(shape).numpy().ravel()
    theirs = values(getattr(other.initializers, name)(**arguments, seed=3), shape).ravel()
    spread = float(theirs.std())
    # The standard error of a quantile p of n draws is sqrt(p (1 - p) / n) / density. It is greatest
    # at 0.02 of a normal distribution: 0.009 of the spread. 0.055 is 4.3 times the error of a
    # difference of two quantiles. Both seeds are fixed.
    for p in (0.02, 0.1, 0.25, 0.5, 0.75, 0.9, 0.98):
        assert np.quantile(own, p) == pytest.approx(np.quantile(theirs, p), abs=0.055 * spread)
    assert own.std() == pytest.approx(spread, rel=0.02)
    if (
        name not in ("RandomNormal", "Orthogonal")
        and "untruncated_normal" not in arguments.values()
    ):
        # Bounded distributions have the same bounds as Keras'.
        assert own.max() == pytest.approx(theirs.max(), abs=0.02 * spread)
        assert own.min() == pytest.approx(theirs.min(), abs=0.02 * spread)


@pytest.mark.parametrize("shape", [(4, 6), (6, 4), (5, 5), (2, 3, 4), (3, 3, 2, 40)])
def test_orthogonal(shape):
    w = initializers.Orthogonal(gain=1.5, seed=1)(shape).numpy()
    flat = w.reshape(-1, shape[-1]) / 1.5
    product = flat @ flat.T if flat.shape[0] <= flat.shape[1] else flat.T @ flat
    # The values are float64, rounded to float32.
    np.testing.assert_allclose(product, np.eye(len(product)), atol=1e-6)


@pytest.mark.parametrize("name", list(ARGUMENTS))
def test_seeds(name):
    cls = getattr(initializers, name)
    fixed = cls(seed=5)
    np.testing.assert_array_equal(fixed((3, 4)).numpy(), fixed((3, 4)).numpy())
    np.testing.assert_array_equal(fixed((3, 4)).numpy(), cls(seed=5)((3, 4)).numpy())
    assert (fixed((3, 4)).numpy() != cls(seed=6)((3, 4)).numpy()).any()
    moving = cls(seed=keras.random.SeedGenerator(5))
    assert (moving((3, 4)).numpy() != moving((3, 4)).numpy()).any()
    keras.utils.set_random_seed(1)
    first = cls()((3, 4)).numpy()
    keras.utils.set_random_seed(1)
    np.testing.assert_array_equal(first, cls()((3, 4)).numpy())
    with pytest.raises(ValueError, match="seed"):
        cls(seed="five")


@pytest.mark.parametrize("side", ["real", "imag"])
@pytest.mark.parametrize("scaling", [None, "density", "spectrum"])
@pytest.mark.parametrize("window", [None, "values"])
def test_stft(side, scaling, window):
    window = None if window is None else np.hanning(8).astype("float32")
    own = initializers.STFT(side, window, scaling)((8, 1, 5)).numpy()
    theirs = values(other.initializers.STFT(side, window, scaling), (8, 1, 5))
    np.testing.assert_allclose(own, theirs, atol=2e-6)  # Keras computes angles up to 44 in float32.


def test_named_windows_of_stft():
    named = initializers.STFT("real", "hamming")((8, 1, 5)).numpy()
    given = initializers.STFT("real", np.hamming(8))((8, 1, 5)).numpy()
    np.testing.assert_array_equal(named, given)
    periodic = initializers.STFT("real", "hann", None, periodic=True)((8, 1, 5)).numpy()
    np.testing.assert_allclose(
        periodic[:, 0, 0], 0.5 - 0.5 * np.cos(np.arange(8) * np.pi / 4), atol=1e-7
    )


@pytest.mark.parametrize("shape", [(3, 3), (2, 4), (4, 2)])
def test_identity_and_constants(shape):
    for name, arguments in (("Identity", {"gain": 2.0}), ("Constant", {"value": 3.0})):
        own = getattr(initializers, name)(**arguments)(shape).numpy()
        theirs = values(getattr(other.initializers, name)(**arguments), shape)
        np.testing.assert_array_equal(own, theirs)


@pytest.mark.parametrize("name", CLASSES)
def test_configurations_and_signatures_are_those_of_keras(name):
    own, theirs = getattr(initializers, name), getattr(other.initializers, name)
    mine, expected = (inspect.signature(cls.__init__).parameters for cls in (own, theirs))
    defaults = {key: p.default for key, p in mine.items() if p.kind != p.VAR_POSITIONAL}
    assert {k: v for k, v in defaults.items() if k != "kwargs"} == {
        k: p.default for k, p in expected.items() if k not in ("args", "kwargs")
    }
    if name.startswith("STFT"):
        arguments = {"window": None}  # Keras needs SciPy for windows that are given by name.
    else:
        arguments = {"seed": 3} if "seed" in expected else {}
    a, b = own(**arguments), theirs(**arguments)
    expected_config = other.initializers.serialize(b)
    if name.startswith("Identity"):
        expected_config["config"] = {"gain": 1.0}  # Keras leaves the gain out of the configuration.
    assert initializers.serialize(a) == expected_config
    again = initializers.deserialize(other.initializers.serialize(b))
    assert again.get_config() == a.get_config()
    assert type(a.clone()) is type(a)


@pytest.mark.parametrize("name", sorted(n for n in dir(other.initializers) if n[0] != "_"))
def test_every_name_of_keras(name):
    assert hasattr(initializers, name)
    if name.islower() and name not in ("get", "serialize", "deserialize"):
        assert isinstance(initializers.get(name), initializers.Initializer)


@pytest.mark.parametrize(
    ("make", "part"),
    [
        (lambda: initializers.Orthogonal()((3,)), "two axes"),
        (lambda: initializers.Identity()((3, 3, 3)), "matrices"),
        (lambda: initializers.STFT("left"), "side='left'"),
        (lambda: initializers.STFT(scaling="loud"), "scaling='loud'"),
        (lambda: initializers.STFT(window="gauss"), "window='gauss'"),
        (lambda: initializers.STFT(window=np.ones(3))((4, 1, 3)), "(4,)"),
        (lambda: initializers.VarianceScaling(0.0), "scale"),
        (lambda: initializers.VarianceScaling(mode="fan"), "mode"),
        (lambda: initializers.VarianceScaling(distribution="flat"), "distribution"),
        (lambda: initializers.get("orthogonl"), "Did you mean 'orthogonal'"),
        (lambda: initializers.get(7), "7"),
    ],
)
def test_wrong_arguments(make, part):
    import re

    with pytest.raises(ValueError, match=re.escape(part)):
        make()


def test_an_initializer_of_ones_own():
    class Ramp(initializers.Initializer):
        def __call__(self, shape, dtype=None):
            return np.arange(np.prod(shape), dtype="float32").reshape(shape)

    layer = keras.layers.Dense(2, kernel_initializer=Ramp())
    layer.build((None, 3))
    np.testing.assert_array_equal(layer.kernel.numpy().ravel(), np.arange(6))
