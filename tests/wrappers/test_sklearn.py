"""scikit-learn's own checks of estimators, and tests of what they leave out."""

import numpy as np
import pytest

import kerascnn as keras
from kerascnn import layers

sklearn = pytest.importorskip("sklearn")
from sklearn.model_selection import GridSearchCV  # noqa: E402
from sklearn.pipeline import make_pipeline  # noqa: E402
from sklearn.preprocessing import StandardScaler  # noqa: E402
from sklearn.utils.estimator_checks import parametrize_with_checks  # noqa: E402

from kerascnn.wrappers import (  # noqa: E402
    SKLearnClassifier,
    SKLearnRegressor,
    SKLearnTransformer,
)


def perceptron(X, y, loss="mse", activation=None, hidden=(10,)):
    """Returns a model that ends with the same weights after a second training, as checks assume."""
    keras.utils.set_random_seed(7)
    outputs = y.shape[1] if y.ndim > 1 else 1
    model = keras.Sequential([keras.Input((X.shape[1],))])
    for units in hidden:
        model.add(layers.Dense(units, "relu"))
    model.add(layers.Dense(outputs, activation))
    model.compile("rmsprop", loss)
    return model


class Perceptron:
    """Makes the same model; unlike a function's, its name in a test has no address that changes."""

    def __call__(self, X, y, **kwargs):
        return perceptron(X, y, **kwargs)

    def __repr__(self):
        return "perceptron"


CLASSIFYING = {"loss": "categorical_crossentropy", "activation": "softmax", "hidden": [20, 20, 20]}
EXPECTED = {
    "SKLearnClassifier": {
        "check_classifiers_one_label_sample_weights": "weights of 0 are no samples that are gone",
        "check_classifiers_classes": "a few samples do not train it to tell all classes",
        "check_classifiers_train": "what the model returns may be probabilities or logits",
    },
}


@parametrize_with_checks(
    [
        SKLearnClassifier(Perceptron(), False, CLASSIFYING, {"epochs": 5, "verbose": 0}),
        SKLearnRegressor(Perceptron(), fit_kwargs={"verbose": 0}),
        SKLearnTransformer(Perceptron(), fit_kwargs={"verbose": 0}),
    ],
    expected_failed_checks=lambda estimator: EXPECTED.get(type(estimator).__name__, {}),
    xfail_strict=False,
)
@pytest.mark.filterwarnings("ignore")
def test_the_checks_of_scikit_learn(estimator, check):
    check(estimator)


def blobs(rng, samples=60):
    y = rng.integers(0, 3, samples)
    return rng.normal(size=(samples, 2)) + 6 * np.eye(3)[y][:, :2], y


def test_classes_by_their_labels(rng):
    X, y = blobs(rng)
    names = np.array(["ant", "bee", "cow"])[y]
    classifier = SKLearnClassifier(perceptron, False, CLASSIFYING, {"verbose": 0})
    classifier.fit(X, names, epochs=40, batch_size=8)
    assert list(classifier.classes_) == ["ant", "bee", "cow"]
    assert classifier.score(X, names) > 0.8  # The blobs are six deviations apart.
    scores = classifier.decision_function(X)
    np.testing.assert_array_equal(classifier.classes_[scores.argmax(-1)], classifier.predict(X))
    assert len(classifier.epoch_) == 40
    assert classifier.fit_kwargs == {"verbose": 0}


def test_numbers_and_features_are_what_the_model_returns(rng):
    X, y = rng.normal(size=(20, 3)), rng.normal(size=20)
    for cls in (SKLearnRegressor, SKLearnTransformer):
        wrapper = cls(perceptron, fit_kwargs={"verbose": 0}).fit(X, y)
        want = wrapper.model_.predict(X, verbose=0)
        np.testing.assert_array_equal(wrapper.predict(X), want[:, 0])
    np.testing.assert_array_equal(wrapper.transform(X), want)


def test_models_are_copied_or_go_on(rng):
    X, y = rng.normal(size=(20, 3)), rng.normal(size=20)
    model = perceptron(X, y)
    before = model.get_weights()
    once = SKLearnRegressor(model, fit_kwargs={"verbose": 0}).fit(X, y)
    assert once.model_ is not model
    np.testing.assert_array_equal(model.get_weights()[0], before[0])
    warm = SKLearnRegressor(model, warm_start=True, fit_kwargs={"verbose": 0}).fit(X, y)
    assert warm.model_ is model
    assert (model.get_weights()[0] != before[0]).any()
    made = SKLearnRegressor(perceptron, warm_start=True, fit_kwargs={"verbose": 0}).fit(X, y)
    first = made.model_
    assert made.fit(X, y).model_ is first
    clone = sklearn.base.clone(once)
    assert clone.model is not model and clone.fit_kwargs == {"verbose": 0}
    model.compiled = False
    with pytest.raises(RuntimeError, match="compiled"):
        SKLearnRegressor(model).fit(X, y)


@pytest.mark.filterwarnings("ignore")
def test_in_pipelines_and_searches(rng):
    X, y = blobs(rng, 30)
    steps = make_pipeline(
        StandardScaler(), SKLearnClassifier(perceptron, False, CLASSIFYING, {"verbose": 0})
    )
    search = GridSearchCV(steps, {"sklearnclassifier__fit_kwargs": [{"verbose": 0}]}, cv=2)
    search.fit(X, y)
    assert search.predict(X).shape == y.shape
    with pytest.raises(RuntimeError, match="routed"):
        SKLearnRegressor(perceptron).set_fit_request(sample_weight=True)


def test_without_scikit_learn(monkeypatch):
    import sys

    monkeypatch.delitem(sys.modules, "kerascnn.wrappers.sklearn_wrapper")
    monkeypatch.delattr(keras.wrappers, "sklearn_wrapper")
    monkeypatch.setitem(sys.modules, "sklearn", None)
    with pytest.raises(ImportError, match="pip install scikit-learn"):
        _ = keras.wrappers.SKLearnClassifier
