"""A custom op that several tests use, defined by one line."""

import pytest

from kerascnn import ops

from .helpers import SOFTSIGN


@pytest.fixture(scope="module")
def softsign():
    return ops.custom_op("softsign_of_tests", **SOFTSIGN)


@pytest.fixture
def batches(rng):
    return rng.standard_normal((70, 8, 8, 1)).astype("float32"), rng.integers(0, 3, 70)
