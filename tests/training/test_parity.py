"""The first 20 losses of the four reference networks are as exact as Keras' own.

Both start from the same weights and see the same batches, on a CPU. Network D has no dropout here,
since the two libraries draw different random numbers.

Exact equality is no fair measure: rounding sometimes decides which of two nearly equal numbers is
the maximum of a pooling window, or whether a relu is open. Later steps enlarge such a flip. So the
same training also runs in float64, and kerascnn may not be further from it than Keras is.

Measured with AVX-512, Keras 3.15 and PyTorch 2.13, the largest relative differences of the 20
losses from float64 are, for kerascnn and then Keras: A 5e-8 and 8e-8, B 6e-8 and 1e-7, C 3e-6 and
3e-6, D 4e-7 and 4e-5 (Keras takes the powers of Adam's betas in float32).
"""

import numpy as np
import pytest

import kerascnn

# Keras 3.15's variables do not take NumPy 2's `copy` argument, so NumPy warns.
pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")

STEPS = 20
BATCH_SIZES = {"A": 64, "B": 64, "C": 64, "D": 128}
# A loss has two float32 roundings (6e-8 each): its own, and that of the sum it is read from.
ROUNDING = 2.5e-7
# Flips hit either library by chance, and a few more of them are no fault.
CHANCE = 4


def network(keras, name):
    layers = keras.layers
    relu = {"activation": "relu"}
    bodies = {
        "A": lambda: [
            layers.Conv2D(16, 3, padding="same", use_bias=False, **relu),
            layers.MaxPooling2D(),
            layers.Flatten(),
            layers.Dense(10, use_bias=False, activation="softmax"),
        ],
        "B": lambda: [
            layers.Conv2D(6, 5, **relu),
            layers.MaxPooling2D(),
            layers.Conv2D(16, 5, **relu),
            layers.MaxPooling2D(),
            layers.Flatten(),
            layers.Dense(120, **relu),
            layers.Dense(10, activation="softmax"),
        ],
        "C": lambda: [
            layers.Conv2D(32, 3, padding="same", **relu),
            layers.MaxPooling2D(),
            layers.Conv2D(64, 3, padding="same", **relu),
            layers.MaxPooling2D(),
            layers.Flatten(),
            layers.Dense(128, **relu),
            layers.Dense(10, activation="softmax"),
        ],
        "D": lambda: [
            layers.Conv2D(32, 3, **relu),
            layers.MaxPooling2D(),
            layers.Conv2D(64, 3, **relu),
            layers.MaxPooling2D(),
            layers.Flatten(),
            layers.Dropout(0.0),
            layers.Dense(10, activation="softmax"),
        ],
    }
    images = [keras.Input((28, 28, 1)), layers.Rescaling(1 / 255)]
    model = keras.Sequential([*images, *bodies[name]()])
    optimizer = keras.optimizers.Adam(1e-3) if name == "D" else keras.optimizers.SGD(0.01)
    model.compile(optimizer, "sparse_categorical_crossentropy", metrics=["accuracy"])
    return model


def batches(size):
    """Yields the shipped 8x8 digits, enlarged to 24x24, as uint8 images of 28x28 with noise.

    Without noise, equal neighbouring patches would make pooling windows whose maxima differ only by
    rounding, so that flips would be everywhere.
    """
    (x, y), _ = kerascnn.datasets.digits.load_data()
    rng = np.random.default_rng(11)
    x = np.kron(x * 12, np.ones((1, 3, 3)))
    x = np.pad(x, ((0, 0), (2, 2), (2, 2)))[..., None]
    x = (x + rng.integers(0, 64, x.shape)).astype("uint8")
    order = rng.permutation(len(x))
    for step in range(STEPS):
        pick = np.take(order, range(step * size, (step + 1) * size), mode="wrap")
        yield x[pick], y[pick]


class Float64Network:
    """Trains a network in float64 with PyTorch's functions and its gradients."""

    def __init__(self, name, model):
        import torch

        self.torch = torch
        self.layers = model.layers
        self.weights = [torch.tensor(w, dtype=torch.float64) for w in model.get_weights()]
        self.adam = name == "D"
        self.moments = [(torch.zeros_like(w), torch.zeros_like(w)) for w in self.weights]
        self.steps = 0
        for weight in self.weights:
            weight.requires_grad_()

    def logits(self, x):
        functional = self.torch.nn.functional
        x = self.torch.tensor(x, dtype=self.torch.float64).permute(0, 3, 1, 2) / 255
        weights = iter(self.weights)
        for layer in self.layers:
            kind = type(layer).__name__
            if kind == "Conv2D":
                padding = "same" if layer.padding == "same" else 0
                kernel = next(weights).permute(3, 2, 0, 1)
                bias = next(weights) if layer.use_bias else None
                x = functional.relu(functional.conv2d(x, kernel, bias, padding=padding))
            elif kind == "MaxPooling2D":
                x = functional.max_pool2d(x, 2)
            elif kind == "Flatten":
                x = x.permute(0, 2, 3, 1).flatten(1)
            elif kind == "Dense":
                x = x @ next(weights)
                x = x + next(weights) if layer.use_bias else x
                x = x if layer is self.layers[-1] else functional.relu(x)
        return x

    def train_on_batch(self, x, y):
        torch = self.torch
        loss = torch.nn.functional.cross_entropy(self.logits(x), torch.tensor(y).long())
        gradients = torch.autograd.grad(loss, self.weights)
        self.steps += 1
        with torch.no_grad():
            for weight, gradient, (m, v) in zip(self.weights, gradients, self.moments, strict=True):
                if self.adam:
                    m += (gradient - m) * 0.1
                    v += (gradient**2 - v) * 0.001
                    alpha = 1e-3 * (1 - 0.999**self.steps) ** 0.5 / (1 - 0.9**self.steps)
                    weight -= alpha * m / (v**0.5 + 1e-7)
                else:
                    weight -= 0.01 * gradient
        return float(loss.detach())


def losses_and_accuracies(model, size):
    """Computes losses from the sums behind the means, since Keras returns float32."""
    results = []
    for x, y in batches(size):
        accuracy = model.train_on_batch(x, y)[1]
        tracker = model._loss_tracker
        results.append((tracker.total.numpy().astype("float64") / size, float(accuracy)))
    return np.array(results).T


@pytest.mark.parametrize("name", sorted(BATCH_SIZES))
def test_the_first_losses_are_as_near_to_float64_as_those_of_keras(name):
    pytest.importorskip("torch")
    keras = pytest.importorskip("keras")
    keras.utils.set_random_seed(4)
    with kerascnn.device("cpu"):
        ours = network(kerascnn, name)
    theirs = network(keras, name)
    ours.set_weights(theirs.get_weights())
    size = BATCH_SIZES[name]
    exact = Float64Network(name, ours)
    expected = np.array([exact.train_on_batch(x, y) for x, y in batches(size)])
    own, own_accuracies = losses_and_accuracies(ours, size)
    keras_own, accuracies = losses_and_accuracies(theirs, size)
    np.testing.assert_allclose(own_accuracies, accuracies, atol=1e-6)
    distance = np.abs(own / expected - 1).max()
    keras_distance = np.abs(keras_own / expected - 1).max()
    print(f"{name}: from float64 {distance:.1e}, Keras {keras_distance:.1e}")
    assert distance < max(ROUNDING, CHANCE * keras_distance)
    # The first losses come before a flip can have an effect.
    np.testing.assert_allclose(own[:2], expected[:2], rtol=ROUNDING)
    assert np.ptp(expected) > 1e-3


def test_a_fit_of_many_steps_ends_at_the_weights_of_keras():
    """Training has momentum, validation and a short last batch, on data that is not shuffled."""
    keras = pytest.importorskip("keras")
    (x, y), _ = kerascnn.datasets.digits.load_data()
    x, y = (x[:500] / 16.0).reshape(500, 64), y[:500]
    models = []
    for library in (kerascnn, keras):
        model = library.Sequential(
            [
                library.Input((64,)),
                library.layers.Dense(32, activation="relu"),
                library.layers.Dense(10, activation="softmax"),
            ]
        )
        sgd = library.optimizers.SGD(0.1, momentum=0.9, nesterov=True)
        model.compile(sgd, "sparse_categorical_crossentropy", metrics=["accuracy"])
        models.append(model)
    ours, theirs = models
    ours.set_weights(theirs.get_weights())
    options = {"batch_size": 64, "epochs": 3, "shuffle": False, "verbose": 0}
    own = ours.fit(x, y, validation_split=0.1, **options).history
    expected = theirs.fit(x, y, validation_split=0.1, **options).history
    assert list(own) == list(expected)
    for name in own:
        # There are 24 float32 steps, each of which carries on earlier rounding.
        np.testing.assert_allclose(own[name], expected[name], rtol=2e-5, err_msg=name)
    for a, b in zip(ours.get_weights(), theirs.get_weights(), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=2e-6)
