"""What tests draw without a seed depends on KERASCNN_TEST_SEED and their names alone."""

import random

import numpy as np
import pytest

import kerascnn

keras = pytest.importorskip("keras")
# Keras converts PyTorch tensors in a way that NumPy 2 warns about.
pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")


def drawn():
    """Returns numbers from all that draws without a seed."""
    numbers = [random.random(), np.random.random()]  # noqa: NPY002
    for module in (kerascnn, keras):
        layer = module.layers.Dense(4)
        layer.build((None, 5))
        numbers += layer.get_weights()[0].ravel().tolist()
        numbers += np.asarray(module.random.normal((3,))).tolist()
        dropped = module.layers.Dropout(0.5)(np.ones(64, "float32"), training=True)
        numbers += np.asarray(dropped).tolist()
    return numbers


@pytest.fixture(scope="module")
def of_module(request):
    return request.node.nodeid, drawn()


@pytest.mark.parametrize("number", [0, 1])
def test_a_test_is_seeded_by_its_name(number, start_anew, request):
    first = drawn()
    start_anew(request.node.nodeid)
    assert drawn() == first
    start_anew(request.node.nodeid + "x")
    assert drawn()[2:22] != first[2:22]


def test_fixtures_of_a_module_are_seeded_by_their_names(of_module, start_anew):
    name, numbers = of_module[0] + " of_module 0", of_module[1]
    start_anew(name)
    assert drawn() == numbers
    # A seed that a test sets counts no longer after it.
    keras.utils.set_random_seed(5)
    kerascnn.utils.set_random_seed(5)
    start_anew(name)
    assert drawn() == numbers
