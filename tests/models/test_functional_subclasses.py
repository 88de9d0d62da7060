"""Subclasses whose models are made from inputs and outputs can be made again from files."""

import numpy as np
import pytest

import kerascnn

keras = pytest.importorskip("keras")
pytest.importorskip("h5py")

PACKAGES = {"keras": keras, "kerascnn": kerascnn}


def graph(k, units=3):
    x = k.Input((5,), name="x")
    return x, k.layers.Dense(units, name="scores")(x)


def classes(k):
    """Returns subclasses and a model of each; constructors and configurations differ."""

    class Inherits(k.Model):
        pass

    class TakesAnything(k.Model):
        def __init__(self, *args, **kwargs):
            super().__init__(*args, **kwargs)

    class LikeFunctional(k.Model):
        def __init__(self, inputs, outputs, name=None, **kwargs):
            super().__init__(inputs, outputs, name=name, **kwargs)

    class BuildsItself(k.Model):
        def __init__(self, units=4, **kwargs):
            super().__init__(*graph(k, units), **kwargs)
            self.units = units

        def get_config(self):
            return {"units": self.units, "name": self.name}

    class AddsToConfig(k.Model):
        def __init__(self, units=4, **kwargs):
            x, y = graph(k, units)
            super().__init__(inputs=x, outputs=y, **kwargs)
            self.units = units

        def get_config(self):
            return {**super().get_config(), "units": self.units}

    return {
        "Inherits": (Inherits, lambda: Inherits(*graph(k))),
        "TakesAnything": (TakesAnything, lambda: TakesAnything(*graph(k))),
        "LikeFunctional": (LikeFunctional, lambda: LikeFunctional(*graph(k))),
        "BuildsItself": (BuildsItself, lambda: BuildsItself(6)),
        "AddsToConfig": (AddsToConfig, lambda: AddsToConfig(6)),
    }


NAMES = ["Inherits", "TakesAnything", "LikeFunctional", "BuildsItself", "AddsToConfig"]


@pytest.mark.parametrize("name", NAMES)
def test_configurations_have_what_those_of_keras_have(name):
    theirs, ours = (set(classes(k)[name][1]().get_config()) for k in (keras, kerascnn))
    assert ours == theirs


@pytest.mark.parametrize("name", NAMES)
def test_from_config_and_clones(name, rng):
    cls, make = classes(kerascnn)[name]
    model = make()
    x = rng.random((4, 5), dtype="float32")
    for other in (cls.from_config(model.get_config()), kerascnn.models.clone_model(model)):
        assert type(other) is cls
        assert other.layers[1] is not model.layers[1]
        other.set_weights(model.get_weights())
        np.testing.assert_array_equal(other.predict(x, verbose=0), model.predict(x, verbose=0))


@pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")
@pytest.mark.parametrize("ending", ["keras", "h5"])
@pytest.mark.parametrize("direction", [("keras", "kerascnn"), ("kerascnn", "keras")])
@pytest.mark.parametrize("name", NAMES)
def test_files(name, direction, ending, tmp_path, rng):
    writer, reader = (PACKAGES[package] for package in direction)
    model = classes(writer)[name][1]()
    model.save(tmp_path / f"m.{ending}")
    cls = classes(reader)[name][0]
    other = reader.saving.load_model(tmp_path / f"m.{ending}", custom_objects={name: cls})
    assert type(other) is cls
    x = rng.random((4, 5), dtype="float32")
    np.testing.assert_allclose(
        np.asarray(other.predict(x, verbose=0)), np.asarray(model.predict(x, verbose=0)), atol=1e-5
    )


def test_a_class_that_wants_more_is_not_made_from_a_graph_alone():
    class Wants(kerascnn.Model):
        def __init__(self, inputs, outputs, factor, **kwargs):
            super().__init__(inputs=inputs, outputs=outputs, **kwargs)
            self.factor = factor

        def get_config(self):
            return {**super().get_config(), "factor": self.factor}

    model = Wants(*graph(kerascnn), factor=2.0)
    with pytest.raises(TypeError, match="Wants"):
        Wants.from_config(model.get_config())
