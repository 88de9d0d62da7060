"""A second compile keeps the settings that Keras keeps."""

import numpy as np
import pytest

import kerascnn

keras = pytest.importorskip("keras")

pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")

X = np.random.default_rng(3).normal(size=(12, 4)).astype("float32")
Y = np.random.default_rng(4).normal(size=(12, 2)).astype("float32")

AGAIN = {
    "without metrics": {"loss": "mae"},
    "without a loss": {"metrics": ["mse"]},
    "without either": {},
    "with no metrics": {"loss": "mae", "metrics": []},
    "with weighted metrics only": {"weighted_metrics": ["mse"]},
    "with weights of a loss only": {"loss_weights": 2.0},
}


@pytest.mark.parametrize("arguments", AGAIN.values(), ids=AGAIN)
@pytest.mark.parametrize("trained", [False, True])
def test_what_is_left_out_stays(arguments, trained):
    results, weights = [], None
    for library in (keras, kerascnn):
        model = library.Sequential([library.Input((4,)), library.layers.Dense(2)])
        weights = weights or [np.asarray(w.numpy()) for w in model.weights]
        model.set_weights(weights)
        model.compile(library.optimizers.SGD(0.1), "mse", metrics=["mae"])
        if trained:
            model.fit(X, Y, batch_size=5, shuffle=False, verbose=0)
        model.compile(library.optimizers.SGD(0.05), **arguments)
        history = model.fit(X, Y, batch_size=5, epochs=2, shuffle=False, verbose=0).history
        evaluated = model.evaluate(X, Y, batch_size=5, verbose=0, return_dict=True)
        results.append((history, evaluated, [metric.name for metric in model.metrics], model.loss))
    (theirs, their_values, *their_names), (ours, our_values, *our_names) = results
    assert our_names == their_names
    assert list(ours) == list(theirs)
    for name in theirs:
        # The tolerance covers nine float32 steps.
        np.testing.assert_allclose(ours[name], theirs[name], rtol=1e-4)
    assert our_values == pytest.approx(their_values, rel=1e-4)


def test_a_saved_model_has_what_stayed(tmp_path):
    pytest.importorskip("h5py")
    model = kerascnn.Sequential([kerascnn.Input((4,)), kerascnn.layers.Dense(2)])
    model.compile("sgd", "mse", metrics=["mae"])
    model.compile("adam")
    model.save(tmp_path / "m.keras")
    other = kerascnn.saving.load_model(tmp_path / "m.keras")
    assert list(other.evaluate(X, Y, verbose=0, return_dict=True)) == ["loss", "mae"]


def test_the_states_of_all_metrics():
    shown = []
    for library in (keras, kerascnn):
        model = library.Sequential([library.Input((4,)), library.layers.Dense(2)])
        model.compile("sgd", "mse", metrics=[library.metrics.MeanSquaredError(name="m")])
        model.fit(X, Y, verbose=0)
        shown.append([v.path for v in model.metrics_variables])
    assert shown[0] == shown[1]
