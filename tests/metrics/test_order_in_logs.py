"""Where the entries of metrics that return dictionaries or arrays stand in logs, beside Keras."""

import re

import numpy as np
import pytest

import kerascnn

keras = pytest.importorskip("keras")
# Keras converts PyTorch tensors in a way that NumPy 2 warns about.
pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")


def pair_of(module, name):
    """Returns a metric with two results, whose names are not in order."""

    class Pair(module.metrics.Metric):
        def __init__(self):
            super().__init__(name=name)
            self.total = self.add_weight(shape=(), initializer="zeros", name="total")

        def update_state(self, y_true, y_pred, sample_weight=None):
            self.total.assign_add(module.ops.mean(y_pred))

        def result(self):
            return {f"{name}_z": self.total, f"{name}_a": self.total * 2.0}

    return Pair()


def network(module, outputs):
    inputs = module.Input((4,))
    heads = {name: module.layers.Dense(3, name=name)(inputs) for name in outputs}
    return module.Model(inputs, heads if len(heads) > 1 else heads[outputs[0]])


CASES = {
    "one output": (
        ["out"],
        lambda m: {"loss": "mse", "metrics": [pair_of(m, "pair"), "mae", "accuracy"]},
    ),
    "two of them": (
        ["out"],
        lambda m: {"loss": "mse", "metrics": [pair_of(m, "q"), pair_of(m, "b"), "mae"]},
    ),
    "two outputs": (
        ["z", "b"],
        lambda m: {
            "loss": {"z": "mse", "b": "mae"},
            "metrics": {"b": [pair_of(m, "pair"), "mse"], "z": ["mae", pair_of(m, "late")]},
        },
    ),
    "weighted": (
        ["out"],
        lambda m: {"loss": "mse", "metrics": ["mae"], "weighted_metrics": [pair_of(m, "pair")]},
    ),
}


def orders(module, names, arguments, x, y):
    """Returns the names in all logs, in their order."""
    seen = []

    class Note(module.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            seen.append(("batch", list(logs)))

        def on_epoch_end(self, epoch, logs=None):
            seen.append(("epoch", list(logs)))

        def on_test_end(self, logs=None):
            seen.append(("test", list(logs)))

    model = network(module, names)
    model.compile("sgd", **arguments(module))
    targets = dict.fromkeys(names, y) if len(names) > 1 else y
    options = {"validation_data": (x, targets), "batch_size": 4, "verbose": 0}
    history = model.fit(x, targets, epochs=2, callbacks=[Note()], **options)
    seen.append(("history", list(history.history)))
    seen.append(("evaluate", list(model.evaluate(x, targets, verbose=0, return_dict=True))))
    for method in ("train_on_batch", "test_on_batch"):
        seen.append((method, list(getattr(model, method)(x, targets, return_dict=True))))
    return seen


@pytest.mark.parametrize("name", CASES)
def test_dictionaries_of_metrics(name, rng):
    names, arguments = CASES[name]
    x, y = rng.normal(size=(8, 4)).astype("float32"), rng.normal(size=(8, 3)).astype("float32")
    found = orders(kerascnn, names, arguments, x, y)
    assert found == orders(keras, names, arguments, x, y)
    assert any("pair_z" in keys for _, keys in found) or name == "two of them"


@pytest.mark.parametrize("verbose", [1, 2])
def test_the_mean_of_an_array_is_shown(verbose, rng, capsys):
    x = rng.normal(size=(8, 4)).astype("float32")
    y = np.eye(3, dtype="float32")[[0, 1, 2, 0, 1, 2, 0, 1]]
    model = network(kerascnn, ["out"])
    model.compile("sgd", "mse", metrics=[kerascnn.metrics.F1Score()])
    history = model.fit(x, y, epochs=1, verbose=verbose, validation_data=(x, y)).history
    printed = capsys.readouterr().out
    assert " - val_f1_score: " in printed
    shown = re.findall(r" - f1_score: ([0-9.e+-]+)", printed)[-1]
    assert history["f1_score"][0].shape == (3,)
    assert float(shown) == pytest.approx(history["f1_score"][0].mean(), abs=1e-4)


def test_a_model_that_adds_to_its_metrics(rng):
    """`metrics` of a subclass may list a metric that the model finds by itself as well."""

    class Own(kerascnn.Model):
        def __init__(self):
            super().__init__()
            self.dense = kerascnn.layers.Dense(3)
            self.mean = kerascnn.metrics.Mean(name="mean")

        def call(self, x):
            return self.dense(x)

        @property
        def metrics(self):
            return [self.mean, *super().metrics]

    model = Own()
    model.compile("sgd", "mse", metrics=["mae"])
    x, y = rng.normal(size=(8, 4)).astype("float32"), rng.normal(size=(8, 3)).astype("float32")
    lengths = [len(model.evaluate(x, y, verbose=0)) for _ in range(4)]
    assert lengths == [4] * 4  # the mean, the loss, the error, and the mean again, as in Keras


def test_functions_are_named_as_in_keras():
    def functions(module):
        def MeanOutput(y_true, y_pred):
            return module.ops.mean(y_pred)

        return [MeanOutput, lambda y, p: module.ops.max(p), lambda y, p: module.ops.min(p)]

    x, y = np.ones((4, 4), "float32"), np.ones((4, 3), "float32")
    names = []
    for module in (kerascnn, keras):
        model = network(module, ["out"])
        model.compile("sgd", "mse", metrics=functions(module))
        names.append(list(model.fit(x, y, verbose=0).history))
    assert names[0] == names[1] == ["lambda", "lambda_1", "loss", "mean_output"]
