"""Small models and data that tests of training share."""

import contextlib

import numpy as np

import kerascnn as keras
from kerascnn import _core, layers
from kerascnn.training import machinery, steps


def classifier(features=4, classes=3, seed=0, **dense):
    """Returns a dense softmax classifier whose weights depend only on the seed."""
    model = keras.Sequential(
        [keras.Input((features,)), layers.Dense(classes, activation="softmax", **dense)]
    )
    rng = np.random.default_rng(seed)
    model.set_weights([rng.normal(size=w.shape) * 0.5 for w in model.get_weights()])
    return model


def convnet(size=8, classes=10, dropout=0.25):
    return keras.Sequential(
        [
            keras.Input((size, size, 1)),
            layers.Rescaling(1 / 16),
            layers.Conv2D(8, 3, padding="same", activation="relu"),
            layers.MaxPooling2D(),
            layers.Flatten(),
            layers.Dropout(dropout),
            layers.Dense(classes, activation="softmax"),
        ]
    )


def blobs(samples=20, features=4, classes=3, seed=1):
    """Returns random features and labels, as float32 and int64 arrays."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(samples, features)).astype("float32")
    return x, rng.integers(0, classes, size=samples)


def softmax(z):
    e = np.exp(z - z.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


class DenseReference:
    """Trains the classifier in float64 NumPy: SGD without momentum on (weighted) cross-entropy."""

    def __init__(self, model, learning_rate):
        self.w, self.b = (v.astype("float64") for v in model.get_weights())
        self.learning_rate = learning_rate

    def losses(self, x, y):
        probabilities = softmax(x.astype("float64") @ self.w + self.b)
        return -np.log(probabilities[np.arange(len(y)), y])

    def predictions(self, x):
        return softmax(x.astype("float64") @ self.w + self.b)

    def step(self, x, y, weights=None):
        """Does one update and returns the batch's loss before it."""
        x = x.astype("float64")
        weights = np.ones(len(y)) if weights is None else weights
        values = self.losses(x, y) * weights
        delta = self.predictions(x)
        delta[np.arange(len(y)), y] -= 1
        delta *= weights[:, None] / len(y)
        self.w -= self.learning_rate * x.T @ delta
        self.b -= self.learning_rate * delta.sum(axis=0)
        return values.mean()


@contextlib.contextmanager
def count_compilations():
    """Returns a list that gets the kind ("train", ...) of each step that is traced and compiled."""
    compiled = []
    original = steps.compile_step

    def counting(model, kind, *args):
        compiled.append(kind)
        return original(model, kind, *args)

    machinery.compile_step = counting
    try:
        yield compiled
    finally:
        machinery.compile_step = original


Upload = _core.Upload


class WatchedUpload:
    """An upload that reads the host's rows as late as possible: when somebody waits for them."""

    def __init__(self, device):
        self.upload = Upload(device)
        self.under_way = []

    def send(self, targets, sources, first, count):
        rows = slice(first, first + count)
        for source in sources:
            host = source.numpy()[rows]
            self.under_way.append((host, host.copy()))
        self.upload.send(targets, sources, first, count)

    def mark_used(self):
        self.upload.mark_used()

    def wait(self):
        for now, sent in self.under_way:
            np.testing.assert_array_equal(now, sent)
        self.under_way = []
        self.upload.wait()
