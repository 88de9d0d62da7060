"""`keras.legacy.saving` and `keras.utils.legacy`: configurations as Keras 2 wrote them."""

import importlib

import numpy as np
import pytest

import kerascnn
from kerascnn.legacy import saving

keras = pytest.importorskip("keras")


def twice(x):
    return 2 * x


def holders(module):
    """Returns two custom classes; one holds an object of the other and a function."""

    class Scale:
        def __init__(self, factor=1.0):
            self.factor = factor

        def get_config(self):
            return {"factor": self.factor}

        @classmethod
        def from_config(cls, config):
            return cls(**config)

    class Holder(Scale):
        def __init__(self, scale, function, sizes=(1, 2), name="twice"):
            self.scale, self.function, self.sizes, self.name = scale, function, sizes, name

        def get_config(self):
            names = ("scale", "function", "sizes", "name")
            return {name: getattr(self, name) for name in names}

    return Scale, Holder


@pytest.mark.parametrize("place", ["legacy.saving", "utils.legacy"])
def test_objects_in_objects_come_back_as_in_keras(place):
    entries = []
    for package in (kerascnn, keras):
        module = package
        for part in place.split("."):
            module = getattr(module, part)
        Scale, Holder = holders(package)
        entry = module.serialize_keras_object(Holder(Scale(0.25), twice))
        entries.append(entry)
        known = {"Scale": Scale, "Holder": Holder, "twice": twice}
        held = {"Scale": Scale, "twice": twice}
        for pass_on in ({"module_objects": known}, {"module_objects": {}, "custom_objects": known}):
            made = module.deserialize_keras_object(
                module.serialize_keras_object(Holder(Scale(0.25), twice)), **pass_on
            )
            assert type(made) is Holder and type(made.scale) is Scale
            assert made.scale.factor == 0.25 and made.function is twice
            assert made.name == "twice" and tuple(made.sizes) == (1, 2)
        with pytest.raises(ValueError, match="Holder"):
            module.deserialize_keras_object(entry, held)
    assert entries[0] == entries[1]


def test_what_reading_does_to_a_configuration():
    """Reading leaves the configuration unchanged, so that it can be read again."""
    Scale, Holder = holders(kerascnn)
    entry = saving.serialize_keras_object(Holder(Scale(0.25), twice))
    before = repr(entry)
    for _ in range(2):
        saving.deserialize_keras_object(entry, {"Scale": Scale, "Holder": Holder, "twice": twice})
    assert repr(entry) == before


@pytest.mark.parametrize("name", ["L1", "L2", "L1L2", "OrthogonalRegularizer"])
def test_objects_of_the_library_are_written_as_in_keras(name):
    here = saving.serialize_keras_object(getattr(kerascnn.regularizers, name)())
    there = keras.legacy.saving.serialize_keras_object(getattr(keras.regularizers, name)())
    assert here["class_name"] == there["class_name"] and set(here["config"]) == set(there["config"])
    # kerascnn reads what Keras writes.
    made = saving.deserialize_keras_object(there, vars(kerascnn.regularizers))
    assert type(made) is getattr(kerascnn.regularizers, name)


def test_a_layer_and_what_a_sequential_of_old_was(rng):
    dense = kerascnn.layers.Dense(3, activation="relu", name="d")
    entry = saving.serialize_keras_object(dense)
    made = saving.deserialize_keras_object(entry, vars(kerascnn.layers))
    assert made.get_config() == dense.get_config()
    old = {
        "class_name": "Sequential",
        "config": [
            {"class_name": "Dense", "config": {"units": 4, "name": "first"}},
            {"class_name": "Dense", "config": {"units": 2, "activation": "relu", "name": "last"}},
        ],
    }
    model = saving.deserialize_keras_object(old, {"Sequential": kerascnn.Sequential})
    assert [layer.name for layer in model.layers] == ["first", "last"]
    assert np.asarray(model(rng.normal(size=(5, 3)).astype("float32"))).shape == (5, 2)


@pytest.mark.parametrize("module", [kerascnn.legacy.saving, keras.legacy.saving])
def test_names_and_plain_values(module):
    class Plain:
        pass

    assert module.serialize_keras_object(None) is None
    assert module.deserialize_keras_object(None) is None
    assert module.serialize_keras_object(twice) == "twice"
    assert module.deserialize_keras_object(twice) is twice
    assert module.deserialize_keras_object("twice", {"twice": len}, {"twice": twice}) is twice
    assert type(module.deserialize_keras_object("Plain", {}, {"Plain": Plain})) is Plain
    for wrong in (5, Plain()):
        with pytest.raises(ValueError):
            module.serialize_keras_object(wrong)
    for wrong in (5, {"class_name": "Plain"}, {"class_name": "Plain", "config": {}}):
        with pytest.raises(ValueError):
            module.deserialize_keras_object(wrong, {})


def test_names_of_module_objects():
    """Keras 3.15 fails here, since it looks in a dictionary that it no longer has."""
    known = {"twice": twice, "Dense": kerascnn.layers.Flatten}
    assert saving.deserialize_keras_object("twice", known) is twice
    assert type(saving.deserialize_keras_object("Dense", known)) is kerascnn.layers.Flatten
    for module_objects in (None, {}):
        with pytest.raises(ValueError, match="Unknown object: 'Plain'"):
            saving.deserialize_keras_object("Plain", module_objects)


def test_registered_names_are_used():
    @kerascnn.saving.register_keras_serializable("tests_of_legacy")
    class Kept(holders(kerascnn)[0]):
        pass

    try:
        entry = saving.serialize_keras_object(Kept(3.0))
        assert entry == {"class_name": "tests_of_legacy>Kept", "config": {"factor": 3.0}}
        assert saving.deserialize_keras_object(entry).factor == 3.0
    finally:
        del kerascnn.saving.get_custom_objects()["tests_of_legacy>Kept"]


def test_a_configuration_calls_no_function_and_runs_no_lambda():
    called = []
    with pytest.raises(ValueError, match="from_config"):
        saving.deserialize_keras_object(
            {"class_name": "run", "config": {"command": "x"}},
            {"run": lambda command: called.append(command)},
        )
    assert called == []
    entry = saving.serialize_keras_object(kerascnn.layers.Lambda(lambda x: x + 1))
    with pytest.raises(ValueError, match="lambda"):
        saving.deserialize_keras_object(entry, vars(kerascnn.layers))
    with pytest.raises(ValueError, match="Unknown layer: 'os.system'"):
        saving.deserialize_keras_object(
            {"class_name": "os.system", "config": {}}, {}, printable_module_name="layer"
        )


def test_the_modules_are_found_by_name():
    for name in ("legacy", "legacy.saving", "utils.legacy"):
        importlib.import_module(f"kerascnn.{name}")
