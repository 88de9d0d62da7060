"""What configurations say of the calls of layers equals what Keras writes, and comes back so."""

import json

import numpy as np
import pytest

import kerascnn

keras = pytest.importorskip("keras")
pytestmark = [
    pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:Layer 'masking.*mask:UserWarning"),
]


def empty_masks(k):
    x = k.Input((4, 3))
    return k.Model(x, k.layers.GRU(2)(k.layers.Softmax()(k.layers.Dropout(0.5)(x))))


def other_dtypes(k):
    """Calls that cast their input note neither masks nor the default of `training`."""
    x = k.Input((4, 3), dtype="int32")
    y = k.layers.Softmax()(x)
    y = k.layers.Dropout(0.5, dtype="mixed_bfloat16")(y)
    return k.Model(x, k.layers.Softmax(dtype="float64")(y))


def mixed_precision(k):
    x = k.Input((8, 8, 1))
    y = k.layers.Conv2D(2, 3, dtype="mixed_float16")(x)
    y = k.layers.Flatten(dtype="mixed_float16")(y)
    return k.Model(x, k.layers.Dense(3)(y))


def masks_on_their_way(k):
    x = k.Input((4,), dtype="int32")
    y = k.layers.Embedding(5, 3, mask_zero=True)(x)
    y = k.layers.LSTM(3, return_sequences=True)(y)
    y = k.layers.Dropout(0.5)(k.layers.LSTM(3, return_sequences=True)(y, mask=None))
    y = k.layers.Bidirectional(k.layers.GRU(3))(k.layers.BatchNormalization()(y))
    return k.Model(x, y)


def keywords(k):
    x = k.Input((4, 3))
    y = k.layers.BatchNormalization()(x, training=False)
    y = k.layers.Dropout(0.5)(k.layers.BatchNormalization()(inputs=y), training=None)
    y = k.layers.GRU(3)(y, mask=None)
    return k.Model(x, k.layers.Dense(2)(y, training=True))


def several_tensors(k):
    x = k.Input((5, 3))
    y = k.layers.Attention()([x, x])
    y = k.layers.MultiHeadAttention(1, 3, dtype="bfloat16")(y, value=x)
    y, *states = k.layers.LSTM(3, return_state=True, return_sequences=True)(y)
    return k.Model(x, k.layers.LSTM(3)(y, initial_state=states))


def masks_behind_attention(k):
    """Attention hands on the mask of its queries as a tensor that it makes of it."""
    x = k.Input((5,), dtype="int32")
    y = k.layers.Embedding(9, 3, mask_zero=True)(x)
    y = k.layers.AdditiveAttention()([y, y])
    y = k.layers.Attention()([y, y, y])
    y = k.layers.MultiHeadAttention(2, 1)(y, y)
    return k.Model(x, k.layers.LSTM(2)(k.layers.Attention()([y, k.ops.tanh(y)])))


def converted_tensors(k):
    x = k.Input((5,))
    y = k.ops.convert_to_tensor(k.ops.convert_to_tensor(x), "int32")
    return k.Model(x, k.ops.convert_to_tensor(y, dtype="float16", sparse=False))


def inner_models(k):
    a, b = k.Input((3,), name="a"), k.Input((3,), name="b")
    listed = k.Model([a, b], k.layers.Add()([a, b]))
    named = k.Model({"a": a, "b": b}, k.layers.Dropout(0.5)(k.layers.Add()([a, b])))
    x = k.Input((3,))
    y = k.layers.Dense(3)(listed([x, x]))
    return k.Model(x, named({"a": named({"a": x, "b": y}, training=False), "b": y}))


def preprocessing(k):
    """Shapes in `build_config`, also of layers that build nothing."""
    x = k.Input((8, 8, 3), dtype="uint8")
    y = k.layers.RandomCrop(6, 6, seed=1)(k.layers.RandomFlip(seed=1)(x))
    y = k.layers.CenterCrop(4, 4)(k.layers.RandomContrast(0.1, seed=1)(y))
    y = k.layers.Pipeline([k.layers.RandomFlip(seed=1)])(k.layers.Resizing(6, 6)(y))
    return k.Model(x, k.layers.AdaptiveMaxPooling2D(2)(y))


def categories(k):
    x = k.Input((3,))
    bins = k.layers.Discretization(bin_boundaries=[0.1, 0.5])(x)
    return k.Model(x, k.layers.CategoryEncoding(4)(bins))


def shared_with_another_model(k):
    """The first call of the layer, whose shape it was built on, is not in the model."""
    x = k.Input((7, 2))
    shared = k.layers.Dense(2)
    shared(x)
    y = k.layers.Reshape((14, 1))(k.layers.Flatten()(x))
    return k.Model(x, shared(k.layers.Concatenate()([y, y])))


def own_arguments(k):
    class Own(k.layers.Layer):
        def __init__(self, **kwargs):
            super().__init__(**kwargs)
            self._register_call_context_args("mode")

        def call(self, a, b=None, mode="x", training=True, mask=None, b_mask=None):
            return a

        def get_config(self):
            return super().get_config()

    x = k.Input((5, 3))
    y = Own(name="third")(Own(name="second")(Own(name="first")(x), mode="z"), b=x)
    return k.Model(x, k.layers.Flatten()(y, training=True))


CASES = (
    *(empty_masks, other_dtypes, mixed_precision, masks_on_their_way, keywords, several_tensors),
    *(masks_behind_attention, converted_tensors, inner_models, preprocessing, categories),
    *(shared_with_another_model, own_arguments),
)


def plain(text):
    """A configuration without what names the library, and shapes that only the inference draws."""

    def strip(value):
        if isinstance(value, dict):
            left_out = {"keras_version", "backend"}
            if value.get("class_name") == "Pipeline":
                value["config"]["layers"][0].pop("build_config")  # with a batch of 2 or of 83
            return {key: strip(item) for key, item in value.items() if key not in left_out}
        return [strip(item) for item in value] if isinstance(value, list) else value

    return strip(json.loads(text))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_calls_are_written_as_by_keras(case):
    keras.src.utils.naming.reset_uids()  # generated names start from the beginning
    kerascnn.naming.reset()
    text = case(keras).to_json()
    made = case(kerascnn)
    assert plain(made.to_json()) == plain(text)
    if case is own_arguments:
        return  # nothing can read it without the class
    loaded = kerascnn.models.model_from_json(text)
    assert plain(loaded.to_json()) == plain(text)
    assert [x.dtype for x in loaded.outputs] == [x.dtype for x in made.outputs]


def test_layers_that_train_by_default_do_not_in_predictions_of_loaded_models():
    """`training=True` is in the file only because it is the default of `RandomFlip`."""
    x = keras.Input((8, 8, 3))
    text = keras.Model(x, keras.layers.RandomFlip(seed=1)(x)).to_json()
    assert '"training": true' in text
    model = kerascnn.models.model_from_json(text)
    images = np.random.default_rng(1).random((4, 8, 8, 3), "float32")
    np.testing.assert_array_equal(model.predict(images, verbose=0), images)
    drawn = [np.asarray(model(images, training=True)) for _ in range(8)]
    assert any(np.any(x != images) for x in drawn)


def test_a_cast_is_part_of_the_call():
    """The graph has no operation for it, and the numbers are those of one."""
    x = kerascnn.Input((4,))
    layer = kerascnn.layers.Dense(3, dtype="mixed_bfloat16")
    model = kerascnn.Model(x, layer(x))
    assert [operation.name for operation in model.operations] == [x.name, layer.name]
    outer_input = kerascnn.Input((4,))
    outer = kerascnn.Model(outer_input, model(outer_input))
    assert outer.outputs[0].dtype == model.outputs[0].dtype == "bfloat16"
    data = np.random.default_rng(2).random((2, 4), "float32")
    expected = np.asarray(layer(data), "float32")
    for each in (model, outer):
        result = each.predict(data, verbose=0)
        assert result.dtype == expected.dtype or str(result.dtype) == "bfloat16"
        np.testing.assert_array_equal(np.asarray(result, "float32"), expected)
