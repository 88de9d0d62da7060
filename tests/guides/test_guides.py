"""The guides, which follow Keras' own, give the same numbers with either library.

A guide starts from the same weights and sees the same batches in the same order with both. Random
layers are switched off or have ranges of one value. Losses, metrics, predictions and the names of
logs are compared.
"""

import functools
import importlib
import warnings

import numpy as np
import pytest

import kerascnn

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # Other packages may warn on import.
    keras = pytest.importorskip("keras")

# Keras converts PyTorch tensors in a way that NumPy 2 warns about.
pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")

GUIDES = (
    "sequential",
    "functional",
    "training",
    "new_layers",
    "callbacks",
    "train_step",
    "debugging_tips",
    "transfer_learning",
    "image_classification",
    "mnist_convnet",
    "recurrent",
    "attention",
    "generative",
)


@functools.cache
def by_keras(guide):
    return importlib.import_module(f"guide_{guide}").run(keras)


# The two round differently (6e-8 for each operation), and every step of training enlarges that.
# Keras also takes the powers of Adam's betas in float32, which makes 7e-6 of an update. Measured on
# a CPU, logs differ by 4e-6 and other results by 1e-5, and by ten times more where rounding decides
# which of two values is the maximum.
LOGS, ARRAYS = 5e-5, 2e-4


def difference(actual, expected):
    """Returns the largest difference relative to the largest expected value (at least 1e-3)."""
    actual, expected = (np.asarray(value, "float64") for value in (actual, expected))
    assert actual.shape == expected.shape
    return np.abs(actual - expected).max() / max(np.abs(expected).max(), 1e-3)


@pytest.mark.parametrize("guide", GUIDES)
def test_a_guide_ends_with_the_numbers_of_keras(guide, device):
    expected = by_keras(guide)
    with kerascnn.device(device):
        actual = importlib.import_module(f"guide_{guide}").run(kerascnn)
    assert list(actual) == list(expected)
    wrong = {
        name: (actual[name], value)
        for name, value in expected.items()
        if not difference(actual[name], value) < (ARRAYS if np.ndim(value) else LOGS)
    }
    assert not wrong
