"""Hessian-vector products of losses equal those of Keras on PyTorch, eager and compiled."""

import functools
import warnings

import numpy as np
import pytest

import kerascnn
from kerascnn import ops

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # Other packages may warn on import.
    keras = pytest.importorskip("keras")

pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")

ROWS, CLASSES = 6, 7


def softmax(x):
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def one_hot(rng):
    return np.eye(CLASSES)[rng.integers(0, CLASSES, ROWS)]


def labels(rng):
    return rng.integers(0, CLASSES, ROWS).astype("int32")


def shares(rng):
    return softmax(rng.normal(size=(ROWS, CLASSES)))


def reals(rng):
    return rng.normal(size=(ROWS, CLASSES))


def signs(rng):
    return rng.choice([-1.0, 1.0], (ROWS, CLASSES))


def bits(rng):
    return rng.choice([0.0, 1.0], (ROWS, CLASSES))


def positive(rng):
    return rng.uniform(0.2, 2.0, (ROWS, CLASSES))


def unnormalized(rng):
    """Draws rows that do not add up to 1; cross-entropies divide them by their sums."""
    return rng.uniform(0.2, 2.0, (ROWS, CLASSES))


def inside(rng):
    return rng.uniform(0.05, 0.95, (ROWS, CLASSES))


# Each row has the name of a loss, its arguments, targets and predictions.
LOSSES = [
    ("SparseCategoricalCrossentropy", {}, labels, shares),
    ("SparseCategoricalCrossentropy", {}, labels, unnormalized),
    ("SparseCategoricalCrossentropy", {"from_logits": True}, labels, reals),
    ("SparseCategoricalCrossentropy", {"ignore_class": 2}, labels, shares),
    ("CategoricalCrossentropy", {}, one_hot, shares),
    ("CategoricalCrossentropy", {"label_smoothing": 0.1}, shares, unnormalized),
    ("CategoricalCrossentropy", {"from_logits": True}, shares, reals),
    ("CategoricalFocalCrossentropy", {}, one_hot, shares),
    ("CategoricalFocalCrossentropy", {"from_logits": True}, one_hot, reals),
    ("CategoricalGeneralizedCrossEntropy", {}, labels, shares),
    ("BinaryCrossentropy", {}, bits, inside),
    ("BinaryCrossentropy", {"from_logits": True, "label_smoothing": 0.2}, bits, reals),
    ("BinaryFocalCrossentropy", {"apply_class_balancing": True}, bits, inside),
    ("BinaryFocalCrossentropy", {"from_logits": True}, bits, reals),
    ("KLDivergence", {}, shares, shares),
    ("Poisson", {}, positive, positive),
    ("MeanSquaredError", {}, reals, reals),
    ("MeanSquaredLogarithmicError", {}, positive, positive),
    ("LogCosh", {}, reals, reals),
    ("Huber", {}, reals, reals),
    ("SquaredHinge", {}, signs, reals),
    ("CosineSimilarity", {}, reals, reals),
    ("Dice", {}, bits, inside),
    ("Tversky", {"alpha": 0.3, "beta": 0.7}, bits, inside),
]
IDS = [
    "-".join([name, *arguments, predictions.__name__]) for name, arguments, _, predictions in LOSSES
]


def by_autograd(loss_fn, y, p, direction):
    import torch

    p = torch.tensor(p, requires_grad=True)
    loss = loss_fn(torch.tensor(y), p)
    (first,) = torch.autograd.grad(loss, p, create_graph=True)
    (second,) = torch.autograd.grad((first * torch.tensor(direction)).sum(), p)
    return first.detach().numpy(), second.numpy()


def by_tapes(loss_fn, y, p, direction):
    with kerascnn.GradientTape() as outer:
        outer.watch(p)
        with kerascnn.GradientTape() as inner:
            inner.watch(p)
            loss = loss_fn(y, p)
        first = inner.gradient(loss, p)
        slope = ops.sum(first * direction)
    return first, outer.gradient(slope, p)


@pytest.mark.parametrize("case", LOSSES, ids=IDS)
def test_hessian_vector_products_are_those_of_pytorch(case, device, rng):
    name, arguments, targets, predictions = case
    y, p, direction = targets(rng), predictions(rng), rng.normal(size=(ROWS, CLASSES))
    arguments = {**arguments, "dtype": "float64"}
    theirs = getattr(keras.losses, name)(**arguments)
    expected = by_autograd(theirs, y, p, direction)
    with kerascnn.device(device):
        loss_fn = getattr(kerascnn.losses, name)(**arguments)
        tensors = [ops.convert_to_tensor(v) for v in (y, p, direction)]
        ways = {
            "at once": functools.partial(by_tapes, loss_fn),
            "compiled": kerascnn.jit(functools.partial(by_tapes, loss_fn)),
            "a compiled loss": functools.partial(by_tapes, kerascnn.jit(loss_fn)),
        }
        for way, call in ways.items():
            for order, actual, wanted in zip((1, 2), call(*tensors), expected, strict=True):
                # All is float64, but in Keras on PyTorch the gradient of a mean has a float32
                # factor, which rounds at 6e-8. A loss has up to two means.
                error = np.linalg.norm(actual.numpy() - wanted) / np.linalg.norm(wanted)
                assert error < 3e-7, f"{way}, order {order}"
