"""Names of older versions of Keras lead to what does the same today."""

import importlib
import sys

import numpy as np
import pytest

import kerascnn as keras
from kerascnn import former_names, layers


def test_methods_and_attributes():
    model = keras.Sequential([keras.Input((3,)), layers.Dense(2)])
    layer, optimizer = model.layers[0], keras.optimizers.SGD(0.1)
    for owner, name, advice in (
        (model, "fit_generator", "use fit, which takes generators"),
        (model, "evaluate_generator", "use evaluate"),
        (model, "reset_states", "reset_state"),
        (model, "predict_generator", "use predict"),
        (model, "predict_classes", r"argmax\(axis=-1\)"),
        (model, "predict_proba", "use predict"),
        (model, "add_metric", "update_state"),
        (layer, "output_shape", "layer.output.shape"),
        (layer, "input_shape", "layer.input.shape"),
        (optimizer, "lr", "use learning_rate"),
        (keras.metrics.Mean(), "reset_states", "use reset_state"),
    ):
        assert not hasattr(owner, name)
        with pytest.raises(AttributeError, match=f"no attribute '{name}': .*{advice}") as caught:
            getattr(owner, name)
        assert "\n" not in str(caught.value)
    assert model.output_shape == (None, 2)
    assert layer.output.shape == (None, 2)


def test_a_class_of_ones_own_can_use_the_names():
    class Own(layers.Layer):
        def __init__(self):
            super().__init__()
            self.output_shape = (3,)

        def add_metric(self):
            return 7

    assert Own().output_shape == (3,)
    assert Own().add_metric() == 7


def test_layers_under_such_a_name_are_saved(tmp_path):
    pytest.importorskip("h5py")

    class Own(keras.Model):
        def __init__(self):
            super().__init__()
            self.updates = layers.Dense(2)

        def call(self, x):
            return self.updates(x)

    model, other = Own(), Own()
    for m in (model, other):
        m.build((None, 3))
    model.save_weights(tmp_path / "m.weights.h5")
    other.load_weights(tmp_path / "m.weights.h5")
    np.testing.assert_array_equal(other.get_weights()[0], model.get_weights()[0])


@pytest.mark.parametrize(
    ("code", "advice"),
    [
        ("from kerascnn.preprocessing.image import ImageDataGenerator", "RandomFlip"),
        ("from kerascnn.utils import np_utils", "keras.utils.to_categorical"),
        ("from kerascnn.utils.np_utils import to_categorical", "keras.utils.to_categorical"),
        ("import kerascnn.utils.np_utils", "keras.utils.to_categorical"),
        ("import kerascnn.engine.topology", "keras.layers"),
        ("from kerascnn.engine import Layer", "keras.layers"),
        ("from kerascnn.wrappers.scikit_learn import KerasClassifier", "SKLearnClassifier"),
        ("from kerascnn.layers.convolutional import Conv2D", "keras.layers itself"),
        ("from kerascnn.export import ExportArchive", "model.export"),
    ],
)
def test_imports(code, advice):
    with pytest.raises(ImportError, match=advice) as caught:
        exec(code)
    assert "\n" not in str(caught.value)


def test_an_endpoint_is_a_model_that_needs_no_class(tmp_path, rng):
    class Own(keras.Model):
        def __init__(self):
            super().__init__()
            self.last = keras.layers.Dense(3)

        def call(self, x):
            return self.last(x)

    model, x = Own(), rng.normal(size=(5, 2)).astype("float32")
    model(x)

    def serve(images):
        scores = model.call(images / 255.0)
        return {"label": keras.ops.argmax(scores, -1), "share": keras.ops.softmax(scores)}

    inputs = keras.Input((2,))
    keras.Model(inputs, serve(inputs)).export(tmp_path / "serve.safetensors")
    loaded = keras.saving.load_model(tmp_path / "serve.safetensors")
    for name, expected in serve(keras.ops.convert_to_tensor(x)).items():
        np.testing.assert_allclose(loaded(x)[name].numpy(), expected.numpy(), rtol=1e-6)


@pytest.mark.parametrize(
    ("name", "advice"),
    [
        ("datasets.imdb", "of images; read others with keras.utils.get_file"),
        ("export", r"keras.Model\(inputs, function"),
        ("layers.TFSMLayer", "load_model"),
        ("layers.CuDNNLSTM", "use LSTM"),
        ("layers.ThresholdedReLU", "threshold"),
        ("preprocessing.sequence.TimeseriesGenerator", "timeseries_dataset_from_array"),
        ("backend.int_shape", "x.shape"),
        ("backend.ctc_batch_cost", "keras.ops.ctc_loss"),
        ("backend.permute_dimensions", "keras.ops.transpose"),
        ("backend.function", "keras.Model"),
        ("backend.get_value", "numpy"),
        ("backend.set_value", "assign"),
        ("backend.placeholder", "keras.Input"),
        ("backend.square", "keras.ops.square"),
        ("backend.concatenate", "keras.ops.concatenate"),
        ("utils.np_utils", "to_categorical"),
        ("preprocessing.image.ImageDataGenerator", "RandomFlip"),
        ("preprocessing.text", "TextVectorization"),
        ("engine", "keras.layers"),
    ],
)
def test_attributes_of_modules(name, advice):
    where, _, last = f"kerascnn.{name}".rpartition(".")
    module = importlib.import_module(where)
    assert not hasattr(module, last)
    with pytest.raises(AttributeError, match=advice):
        getattr(module, last)
    with pytest.raises(AttributeError, match=r"has no attribute 'nothing'$"):
        _ = module.nothing


def test_arguments_are_told_by_their_names_of_today():
    for make, name in (
        (lambda: keras.optimizers.SGD(lr=0.1), "learning_rate"),
        (lambda: keras.optimizers.Adam(lr=0.1), "learning_rate"),
        (lambda: layers.Dense(2, init="uniform"), "kernel_initializer"),
        (lambda: layers.Conv2D(2, 3, border_mode="same"), "padding"),
        (lambda: layers.Conv2D(2, 3, subsample=2), "strides"),
    ):
        with pytest.raises(ValueError, match=f"It is called '{name}'"):
            make()
    with pytest.warns(UserWarning, match=r"keras\.optimizers\.schedules"):
        keras.optimizers.SGD(0.1, decay=1e-4)


def test_what_is_called_former_is_not_there():
    for place in former_names._PLACES:
        where, _, last = f"kerascnn.{place}".rpartition(".")
        if where in sys.modules:
            assert not hasattr(sys.modules[where], last), place
    assert not set(former_names._BACKEND) & set(keras.backend.__all__)


@pytest.mark.parametrize(("name", "closest"), [("layers.Dence", "Dense"), ("layer", "layers")])
def test_the_traceback_names_the_closest_name(name, closest):
    """Python looks for it in the module that the error has."""
    module = importlib.import_module(f"kerascnn.{name}".rpartition(".")[0])
    with pytest.raises(AttributeError) as error:
        getattr(module, name.rpartition(".")[2])
    assert error.value.obj is module
    assert closest in dir(module)


def test_advice_stands_alone():
    with pytest.raises(AttributeError, match=r"use keras\.Variable") as error:
        keras.backend.variable  # noqa: B018
    assert error.value.obj is None
