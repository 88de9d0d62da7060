"""kerascnn has every class and function of the installed Keras, with the same arguments."""

import pytest

import kerascnn

from . import keras_exceptions as exceptions
from . import keras_names

keras = pytest.importorskip("keras")

THERE = keras_names.names_in("keras")
ABSENT = exceptions.MISSING


@pytest.mark.parametrize("name", [name for name in THERE if name not in ABSENT])
def test_it_is_here_with_keras_arguments(name):
    here = keras_names.here(name)
    assert here is not None, f"kerascnn.{name} is missing, and not in keras_exceptions.py"
    if name in exceptions.SIGNATURES:
        return
    assert keras_names.arguments(here) == keras_names.arguments(THERE[name])


@pytest.mark.parametrize("name", ABSENT)
def test_an_exception_is_one(name):
    assert name in THERE, f"keras.{name} does not exist: take it out of keras_exceptions.py"
    assert keras_names.here(name) is None, (
        f"kerascnn.{name} exists: take it out of keras_exceptions.py"
    )


@pytest.mark.parametrize("name", exceptions.SIGNATURES)
def test_an_exception_of_arguments_is_one(name):
    here, there = keras_names.here(name), THERE[name]
    assert keras_names.arguments(here) != keras_names.arguments(there), (
        f"kerascnn.{name} has Keras' arguments: take it out of keras_exceptions.py"
    )
    # It may take more arguments than Keras, as long as every call of Keras works.
    optional = [a for a in keras_names.arguments(here) if a not in keras_names.arguments(there)]
    assert all(default != "(none)" for _, _, default in optional)


def test_each_exception_is_named_once():
    assert not set(exceptions.SIGNATURES) & set(ABSENT)


def test_the_namespaces_themselves():
    names = {n for n in keras_names.NAMESPACES if n and "." not in n}
    assert all(hasattr(keras, name) for name in names)
    assert all(hasattr(kerascnn, name) for name in names)
    # Keras 3.15 has this many, so an empty listing can't pass for a full one.
    assert len(THERE) > 900
