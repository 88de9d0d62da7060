"""Steps with gradients of gradients have the losses and weights of Keras on PyTorch.

The first is from Keras' guide to debugging; the others penalize the gradient or use a
Hessian-vector product. The network has the layers of a small image classifier.
"""

import numpy as np
import pytest

import kerascnn

pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")

STEPS, BATCH, SHAPE, CLASSES = 5, 7, (9, 8, 2), 5
# The networks are float64. The rate is float32 in both libraries; five steps carry on its rounding
# of 6e-8.
CLOSE = {"rtol": 1e-5, "atol": 1e-6}

# Each head has the activation of the last layer and the loss, which decides how labels are coded.
HEADS = {
    "sparse": ("softmax", lambda k: k.losses.SparseCategoricalCrossentropy(dtype="float64")),
    "sparse_logits": (
        None,
        lambda k: k.losses.SparseCategoricalCrossentropy(from_logits=True, dtype="float64"),
    ),
    "categorical": ("softmax", lambda k: k.losses.CategoricalCrossentropy(dtype="float64")),
    "categorical_logits": (
        None,
        lambda k: k.losses.CategoricalCrossentropy(from_logits=True, dtype="float64"),
    ),
    "binary": ("sigmoid", lambda k: k.losses.BinaryCrossentropy(dtype="float64")),
    "binary_logits": (
        None,
        lambda k: k.losses.BinaryCrossentropy(from_logits=True, dtype="float64"),
    ),
}


def without_none(k, found, weights):
    """Replaces missing gradients by 0: no output depends on these weights."""
    pairs = zip(found, weights, strict=True)
    return [k.ops.zeros_like(weight) if g is None else g for g, weight in pairs]


class Autograd:
    """Takes gradients in Keras on PyTorch."""

    def gradients(self, k, compute, weights):
        import torch

        value = compute()
        found = torch.autograd.grad(
            value, [v.value for v in weights], create_graph=True, allow_unused=True
        )
        return value, without_none(k, found, weights)

    def apply(self, optimizer, found, weights):
        import torch

        with torch.no_grad():
            optimizer.apply([g.detach() for g in found], weights)


class Tapes:
    def gradients(self, k, compute, weights):
        with k.GradientTape() as tape:
            value = compute()
        found = tape.gradient(value, weights)
        return value, without_none(k, found, weights)

    def apply(self, optimizer, found, weights):
        optimizer.apply(found, weights)


def of_the_guide(k, way, loss_of, weights):
    """Returns half of the gradient plus half of the gradient of its sum."""
    kept = {}

    def total():
        kept["loss"], kept["first"] = way.gradients(k, loss_of, weights)
        return sum(k.ops.sum(g) for g in kept["first"])

    _, second = way.gradients(k, total, weights)
    return kept["loss"], [0.5 * a + 0.5 * b for a, b in zip(second, kept["first"], strict=True)]


def gradient_penalty(k, way, loss_of, weights):
    def penalized():
        loss, first = way.gradients(k, loss_of, weights)
        return loss + 0.3 * k.ops.sqrt(sum(k.ops.sum(k.ops.square(g)) for g in first))

    return way.gradients(k, penalized, weights)


def hessian_vector_product(k, way, loss_of, weights):
    """Returns the gradient minus 0.05 times the product of the Hessian and the gradient."""
    kept = {}

    def along():
        kept["loss"], kept["first"] = way.gradients(k, loss_of, weights)
        given = [k.ops.stop_gradient(g) for g in kept["first"]]
        return sum(k.ops.sum(a * b) for a, b in zip(kept["first"], given, strict=True))

    _, product = way.gradients(k, along, weights)
    return kept["loss"], [a - 0.05 * b for a, b in zip(kept["first"], product, strict=True)]


STEPS_OF = {
    "guide": of_the_guide,
    "penalty": gradient_penalty,
    "hessian": hessian_vector_product,
}


def network(k, head):
    layers, kind = k.layers, {"dtype": "float64"}
    return k.Sequential(
        [
            k.Input(SHAPE, **kind),
            layers.Conv2D(4, 3, padding="same", use_bias=False, **kind),
            layers.BatchNormalization(**kind),
            layers.Activation("tanh", **kind),
            layers.MaxPooling2D(2, **kind),
            layers.Conv2D(3, (2, 3), activation="relu", **kind),
            layers.MaxPooling2D((3, 2), strides=1, padding="same", **kind),
            layers.Flatten(**kind),
            layers.Dense(CLASSES, activation=HEADS[head][0], **kind),
        ]
    )


def batches(head, rng):
    data = []
    for _ in range(STEPS):
        labels = rng.integers(0, CLASSES, BATCH)
        is_sparse = head.startswith("sparse")
        targets = labels.astype("int32") if is_sparse else np.eye(CLASSES)[labels]
        # Models take batches as float32, so the numbers are exact in float32.
        x = rng.normal(size=(BATCH, *SHAPE)).astype("float32").astype("float64")
        data.append((x, targets))
    return data


def loop(k, kind, way, head, weights, data, wrap=lambda f: f):
    """Runs a custom loop; returns its losses and the final weights."""
    net = network(k, head)
    net.set_weights(weights)
    optimizer = k.optimizers.SGD(0.05)
    optimizer.build(net.trainable_variables)
    loss_fn = HEADS[head][1](k)

    def step(x, y):
        variables = net.trainable_variables
        loss, found = STEPS_OF[kind](k, way, lambda: loss_fn(y, net(x, training=True)), variables)
        way.apply(optimizer, found, variables)
        return loss

    step = wrap(step)
    losses = [
        float(k.ops.convert_to_numpy(step(*map(k.ops.convert_to_tensor, batch)))) for batch in data
    ]
    return losses, net.get_weights()


def by_train_step(kind, head, weights, data, eagerly):
    net = network(kerascnn, head)
    net.set_weights(weights)

    class Own(kerascnn.Model):
        def __init__(self):
            super().__init__()
            self.net = net

        def train_step(self, data):
            x, y = data[:2]
            variables = self.net.trainable_variables

            def loss_of():
                return self.compute_loss(y=y, y_pred=self.net(x, training=True))

            loss, found = STEPS_OF[kind](kerascnn, Tapes(), loss_of, variables)
            self.optimizer.apply(found, variables)
            return {"loss": loss}

    model = Own()
    model.compile(kerascnn.optimizers.SGD(0.05), HEADS[head][1](kerascnn), run_eagerly=eagerly)
    losses = [float(model.train_on_batch(*batch, return_dict=True)["loss"]) for batch in data]
    return losses, net.get_weights()


def check(found, expected, what):
    np.testing.assert_allclose(found[0], expected[0], err_msg=f"losses {what}", **CLOSE)
    for i, (a, b) in enumerate(zip(found[1], expected[1], strict=True)):
        np.testing.assert_allclose(a, b, err_msg=f"weights {i} {what}", **CLOSE)


@pytest.mark.parametrize("kind", STEPS_OF)
@pytest.mark.parametrize("head", HEADS)
def test_steps_are_those_of_keras(kind, head, device, rng):
    keras = pytest.importorskip("keras")
    data = batches(head, rng)
    weights = network(keras, head).get_weights()
    expected = loop(keras, kind, Autograd(), head, weights, data)
    assert np.ptp(expected[0]) > 1e-3  # The loss does change.
    with kerascnn.device(device):
        check(loop(kerascnn, kind, Tapes(), head, weights, data), expected, "at once")
        jitted = loop(kerascnn, kind, Tapes(), head, weights, data, kerascnn.jit)
        check(jitted, expected, "in a jitted step")
        check(by_train_step(kind, head, weights, data, False), expected, "in a compiled step")
        check(by_train_step(kind, head, weights, data, True), expected, "in run_eagerly")
