"""Configurations equal Keras' word for word; copies, JSON and custom objects."""

import json

import numpy as np
import pytest

import kerascnn
from kerascnn import layers, models, saving

from .architectures import data
from .test_exchange import architectures

keras = pytest.importorskip("keras")
pytestmark = [
    pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:`build\\(\\)` was called on layer:UserWarning"),
]
COPIED = ("resnet", "siamese", "nested", "two_outputs", "functions_in_the_graph", "own_layers")


def comparable(part):
    """Removes what may differ from Keras.

    kerascnn knows a size of EinsumDense's output that Keras does not. Keras on PyTorch gives its
    optimizers another module than on other backends.
    """
    if isinstance(part, dict):
        part = {key: comparable(value) for key, value in part.items()}
        if part.get("class_name") == "__keras_tensor__":
            part["config"].pop("shape")
        if str(part.get("module")).startswith("keras.src.backend.torch.optimizers"):
            part |= {"module": "keras.optimizers", "registered_name": None}
        return part
    return [comparable(item) for item in part] if isinstance(part, list) else part


@pytest.mark.parametrize("architecture", architectures(), ids=lambda a: a.name)
def test_configurations_are_those_of_keras(architecture):
    texts = []
    keras.src.utils.naming.reset_uids()  # Generated names start from the beginning.
    kerascnn.naming.reset()
    for package in (keras, kerascnn):
        texts.append(architecture.make(package).to_json())
    want, got = (comparable(json.loads(text)) for text in texts)
    assert got == want


@pytest.mark.parametrize("name", COPIED)
def test_json_and_clones(name, rng):
    architecture = next(a for a in architectures() if a.name == name)
    x, _ = data(architecture, rng, samples=2)
    model = architecture.make(kerascnn)
    model.predict(x, verbose=0)
    text = model.to_json()
    again = models.model_from_json(text)
    clone = models.clone_model(model)
    for other in (again, clone):
        other.predict(x, verbose=0)
        assert other.compiled
        assert comparable(json.loads(other.to_json())) == comparable(json.loads(text))
        assert not {id(v) for v in other.weights} & {id(v) for v in model.weights}
        other.set_weights(model.get_weights())
        pairs = zip(
            *(kerascnn.trees.flatten(m.predict(x, verbose=0)) for m in (model, other)), strict=True
        )
        for a, b in pairs:
            np.testing.assert_array_equal(a, b)


def test_training_of_each_call_decides_in_models_of_files(tmp_path):
    """Keras writes training=False for layers with that default; files must not make it stick."""
    x = np.ones((64, 8), "float32")
    for package in (keras, kerascnn):
        inputs = package.Input((8,))
        norm = package.layers.BatchNormalization(name="frozen")(inputs, training=False)
        package.Model(inputs, package.layers.Dropout(0.5)(norm)).save(tmp_path / "m.keras")
        model = models.load_model(tmp_path / "m.keras")
        dropped = float((model(x, training=True).numpy() == 0).mean())
        # The expected share of 512 elements is 0.5; the bounds are nine standard deviations away.
        assert 0.3 < dropped < 0.7
        assert not (model(x, training=False).numpy() == 0).any()
        assert not model.get_layer("frozen").moving_mean.numpy().any()


def test_clone_function_call_function_and_inputs():
    inputs = kerascnn.Input((4,), name="x")
    model = kerascnn.Model(inputs, layers.Dense(2)(layers.Dense(3)(inputs)))

    def wider(layer):
        config = layer.get_config()
        config["units"] *= 2
        return type(layer).from_config(config)

    assert models.clone_model(model, clone_function=wider).output_shape == (None, 4)

    def noisy(layer, *args, **kwargs):
        return layers.Dropout(0.5)(layer(*args, **kwargs))

    same = models.clone_model(model, clone_function=lambda layer: layer, call_function=noisy)
    assert [type(layer).__name__ for layer in same.layers[1:]] == ["Dense", "Dropout"] * 2
    assert same.weights[0] is model.weights[0]
    other = kerascnn.Input((4,), batch_size=7)
    assert models.clone_model(model, input_tensors=other).output_shape == (7, 2)
    with pytest.raises(ValueError, match="call_function"):
        models.clone_model(kerascnn.Sequential([layers.Dense(1)]), call_function=noisy)
    with pytest.raises(ValueError, match="KerasTensor"):
        models.clone_model(model, input_tensors=np.ones(3))
    with pytest.raises(ValueError, match="Unexpected keyword"):
        models.clone_model(model, inputs=1)


def test_recursive_clones_keep_what_is_shared():
    inner = kerascnn.Sequential([kerascnn.Input((3,)), layers.Dense(3)])
    inputs = kerascnn.Input((3,))
    model = kerascnn.Model(inputs, inner(inner(inputs)))
    copied = []

    def note(layer):
        copied.append(layer.name)
        return type(layer).from_config(layer.get_config())

    clone = models.clone_model(model, clone_function=note, recursive=True)
    assert copied == [inner.layers[0].name]
    assert len(clone.weights) == 2
    assert clone.weights[0] is not model.weights[0]


def test_a_layer_in_two_models_stays_one(tmp_path):
    shared = layers.Dense(3, name="shared")
    ends = []
    for name in ("one", "two"):
        z = kerascnn.Input((3,))
        ends.append(kerascnn.Model(z, shared(z), name=name))
    inputs = kerascnn.Input((3,))
    model = kerascnn.Model(inputs, ends[1](ends[0](inputs)))
    model.save(tmp_path / "m.keras")
    again = models.load_model(tmp_path / "m.keras")
    assert len(again.weights) == 2
    x = np.ones((2, 3), "float32")
    np.testing.assert_array_equal(again.predict(x, verbose=0), model.predict(x, verbose=0))


VALUES = [
    None,
    3,
    "text",
    (1, (2, 3)),
    [1.5, None],
    {"a": (1,)},
    b"bytes",
    slice(1, None, 2),
    Ellipsis,
    np.arange(3),
    np.float32(2.5),
]


@pytest.mark.parametrize("value", VALUES, ids=repr)
def test_values_as_in_keras(value):
    config = saving.serialize_keras_object(value)
    assert config == keras.saving.serialize_keras_object(value)
    got = saving.deserialize_keras_object(config)
    want = keras.saving.deserialize_keras_object(config)
    np.testing.assert_equal(got, want)


def test_functions_and_registered_names_as_in_keras():
    def plain(x):
        return x

    registered = {}
    for package in (keras, kerascnn):

        @package.saving.register_keras_serializable("tests", "renamed")
        def own(x):
            return x

        registered[package] = own
        assert package.saving.get_registered_name(own) == "tests>renamed"
        assert package.saving.get_registered_object("tests>renamed") is own
        assert package.saving.get_registered_object("nothing") is None
        assert "tests>renamed" in package.utils.get_custom_objects()
    for function in (plain, registered):
        configs = [
            package.saving.serialize_keras_object(
                function[package] if isinstance(function, dict) else function
            )
            for package in (keras, kerascnn)
        ]
        assert configs[0] == configs[1]
    loss = saving.serialize_keras_object(kerascnn.losses.mean_squared_error)
    assert loss == keras.saving.serialize_keras_object(keras.losses.mean_squared_error)
    assert saving.deserialize_keras_object(loss) is kerascnn.losses.mean_squared_error
    config = saving.serialize_keras_object(plain)
    with pytest.raises(ValueError, match="function 'plain' is not known"):
        saving.deserialize_keras_object(config)
    assert saving.deserialize_keras_object(config, {"plain": plain}) is plain
    with saving.custom_object_scope({"plain": plain}):
        assert saving.deserialize_keras_object(config) is plain
        assert saving.get_registered_object("plain") is plain
    with pytest.raises(ValueError, match="get_config"):
        saving.register_keras_serializable()(type("NoConfig", (), {}))


def test_unknown_classes_are_a_type_error_too():
    """Keras raises a TypeError; kerascnn raises a ValueError that is also a TypeError."""

    class Mine(layers.Layer):
        pass

    config = saving.serialize_keras_object(Mine())
    with pytest.raises(TypeError, match="register_keras_serializable"):
        saving.deserialize_keras_object(config)
    with pytest.raises(ValueError, match="custom_objects"):
        saving.deserialize_keras_object(config)
    assert type(saving.deserialize_keras_object(config, {"Mine": Mine})) is Mine


def test_objects_with_fewer_pieces():
    known = {"mean": np.mean, "Dense": layers.Dense}
    assert saving.deserialize_keras_object("mean", module_objects=known) is np.mean
    made = saving.deserialize_keras_object(
        {"class_name": "Dense", "config": {"units": 2}}, module_objects=known
    )
    assert made.units == 2
    with pytest.raises(TypeError, match="no `get_config`"):
        saving.serialize_keras_object(object())


def test_lambdas_need_unsafe_mode():
    def one_more(x):
        return x + 1

    one_more.__name__ = "<lambda>"
    with pytest.warns(UserWarning, match="lambda"):
        config = saving.serialize_keras_object(one_more)
    config = json.loads(json.dumps(config))
    with pytest.raises(ValueError, match="safe_mode=False"):
        saving.deserialize_keras_object(config)
    assert saving.deserialize_keras_object(config, safe_mode=False)(2) == 3
    assert keras.saving.deserialize_keras_object(
        {"class_name": "__lambda__", "config": {"value": config["config"]["value"]}},
        safe_mode=False,
    )


@pytest.mark.parametrize(
    ("config", "part"),
    [
        ({"module": "keras.layers", "class_name": "Dens", "config": {}}, "Did you mean 'Dense'"),
        ({"class_name": "function", "config": "rleu"}, "Did you mean 'relu'"),
    ],
)
def test_unknown_names_are_answered_with_known_ones(config, part):
    with pytest.raises(ValueError, match=part):
        saving.deserialize_keras_object(config)
