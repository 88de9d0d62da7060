"""Sequential, functional and subclassed models, and errors in their use."""

import numpy as np
import pytest

import kerascnn as keras
from kerascnn import layers


def small():
    return keras.Sequential([keras.Input((4,)), layers.Dense(3), layers.Dense(2)])


def test_sequential_without_an_input_is_built_by_data(device):
    with keras.device(device):
        model = keras.Sequential([layers.Dense(3), layers.Dense(2)])
        assert not model.built
        assert model.weights == []
        y = model(np.ones((5, 4), "float32"))
    assert y.shape == (5, 2)
    assert y.device == device
    assert [w.shape for w in model.weights] == [(4, 3), (3,), (3, 2), (2,)]
    assert model(np.ones((1, 4), "float32")).shape == (1, 2)


def test_sequential_built_by_shape_grows_and_shrinks():
    model = keras.Sequential()
    model.add(keras.Input((4,)))
    model.add(layers.Dense(3))
    assert model.built
    assert model.output_shape == (None, 3)
    model.add(layers.Dense(2))
    assert model.output_shape == (None, 2)
    kernel = model.layers[0].kernel
    model.pop()
    assert model.output_shape == (None, 3)
    assert model.layers[0].kernel is kernel
    late = keras.Sequential([layers.Dense(3)])
    late.build((None, 7))
    assert late.layers[0].kernel.shape == (7, 3)


def test_sequential_takes_layers_only():
    with pytest.raises(ValueError, match="Only layers"):
        keras.Sequential([3])
    with pytest.raises(ValueError, match="parentheses"):
        keras.Sequential([layers.Flatten])
    with pytest.raises(ValueError, match="'twice' already"):
        keras.Sequential([layers.Dense(1, name="twice"), layers.Dense(1, name="twice")])
    with pytest.raises(ValueError, match="can only come first"):
        keras.Sequential([layers.Dense(1), keras.Input((3,))])
    with pytest.raises(ValueError, match="no layers"):
        keras.Sequential().build((None, 3))


def test_layers_that_do_not_fit_on_one_another_name_the_layer():
    with pytest.raises(ValueError, match=r"'deep'.*only \(1, 1\)"):
        keras.Sequential(
            [
                keras.Input((8, 8, 1)),
                layers.Conv2D(2, 3),
                layers.MaxPooling2D(4),
                layers.Conv2D(2, 3, name="deep"),
            ]
        )


def test_images_of_bytes_without_channels_are_taken_as_keras_takes_them(device, rng):
    with keras.device(device):
        model = keras.Sequential(
            [keras.Input((6, 6, 1)), layers.Rescaling(1 / 255), layers.Conv2D(2, 3)]
        )
        images = rng.integers(0, 256, (3, 6, 6, 1), dtype="uint8")
        expected = model(images.astype("float32")).numpy()
        np.testing.assert_array_equal(model(images).numpy(), expected)
        np.testing.assert_array_equal(model(images[..., 0]).numpy(), expected)


def test_wrong_shape_for_a_model_names_expected_and_received():
    model = keras.Sequential([keras.Input((6, 6, 1)), layers.Flatten()], name="net")
    with pytest.raises(ValueError, match=r"'net'.*shape=\(None, 6, 6, 1\), found shape=\(2, 5, 6,"):
        model(np.ones((2, 5, 6, 1), "float32"))
    with pytest.raises(ValueError, match=r"'net'.*found shape=\(2, 36\)"):
        model(np.ones((2, 36), "float32"))


def test_functional_inputs_by_list_and_by_name():
    a, b = keras.Input((2,), name="a"), keras.Input((3,), name="b")
    model = keras.Model([a, b], layers.Concatenate()([b, a]))
    x, y = np.ones((4, 2), "float32"), np.zeros((4, 3), "float32")
    expected = np.concatenate([y, x], 1)
    np.testing.assert_array_equal(model([x, y]).numpy(), expected)
    np.testing.assert_array_equal(model({"b": y, "a": x}).numpy(), expected)
    with pytest.raises(ValueError, match=r"expects 2 input\(s\)"):
        model([x])
    by_key = keras.Model({"p": a, "q": b}, {"sum": layers.Dense(1)(a), "same": b})
    outputs = by_key({"q": y, "p": x})
    assert set(outputs) == {"sum", "same"}
    np.testing.assert_array_equal(outputs["same"].numpy(), y)
    with pytest.raises(ValueError, match="'q'"):
        by_key({"p": x})


def test_a_graph_that_does_not_connect():
    a, b = keras.Input((2,), name="a"), keras.Input((2,), name="b")
    with pytest.raises(ValueError, match=r"disconnected in model 'torn'.*'plus'.*name=b"):
        keras.Model(a, layers.Add(name="plus")([a, b]), name="torn")
    with pytest.raises(ValueError, match=r"must be what keras\.Input"):
        keras.Model(np.ones(3), layers.Dense(1)(a))
    with pytest.raises(ValueError, match="more than once"):
        keras.Model([a, a], layers.Dense(1)(a))


def test_a_model_of_a_part_of_a_graph():
    x = keras.Input((4,))
    middle = layers.Dense(3)(x)
    full = keras.Model(x, layers.Dense(2)(middle))
    front, back = keras.Model(x, middle), keras.Model(middle, full.output)
    data = np.ones((5, 4), "float32")
    np.testing.assert_allclose(back(front(data)).numpy(), full(data).numpy(), rtol=1e-6)
    assert len(back.weights) == 2


def test_shared_layers_have_their_weights_once():
    shared = layers.Dense(4)
    a, b = keras.Input((4,)), keras.Input((4,))
    model = keras.Model([a, b], layers.Add()([shared(a), shared(shared(b))]))
    assert len(model.weights) == 2
    # As in Keras, `output` belongs to the first call.
    assert shared.output is shared._inbound_nodes[0].outputs


def test_a_call_for_inference_is_one_in_fit_too():
    x, norm = keras.Input((4,)), layers.BatchNormalization()
    model = keras.Model(x, layers.Dense(1)(norm(x, training=False)))
    model.compile("sgd", "mse")
    model.fit(np.arange(8.0).reshape(2, 4), np.zeros((2, 1)), verbose=0)
    assert not norm.moving_mean.numpy().any()
    assert norm.beta.numpy().any()  # The weights were trained.


def test_deep_graphs_need_no_deep_stack():
    x = y = keras.Input((2,))
    for _ in range(1500):
        y = layers.Activation("linear")(y)
    model = keras.Model(x, y)
    assert len(model.layers) == 1501


class Net(keras.Model):
    def __init__(self, units=3, **kwargs):
        super().__init__(**kwargs)
        self.hidden = layers.Dense(units, activation="relu")
        self.dropout = layers.Dropout(0.5)
        self.heads = {"a": layers.Dense(2), "b": layers.Dense(1)}

    def call(self, inputs, training=False):
        x = self.dropout(self.hidden(inputs), training=training)
        return {name: head(x) for name, head in self.heads.items()}


def test_subclassed_model_is_built_by_shape_or_by_data(device):
    with keras.device(device):
        by_shape, by_data = Net(), Net(units=5)
        by_shape.build((None, 4))
        outputs = by_data(np.ones((7, 4), "float32"))
    assert [w.shape for w in by_shape.weights] == [(4, 3), (3,), (3, 2), (2,), (3, 1), (1,)]
    assert {k: v.shape for k, v in outputs.items()} == {"a": (7, 2), "b": (7, 1)}
    assert {w.device for w in by_shape.weights} == {device}
    assert [layer.name for layer in by_data.layers] == [
        by_data.hidden.name,
        by_data.dropout.name,
        by_data.heads["a"].name,
        by_data.heads["b"].name,
    ]


def test_subclass_that_gives_inputs_and_outputs_is_functional():
    class Graph(keras.Model):
        def __init__(self, units):
            x = keras.Input((4,))
            super().__init__(x, layers.Dense(units)(x))

    model = Graph(3)
    assert isinstance(model, keras.models.Functional)
    assert model.output_shape == (None, 3)
    assert model(np.ones((2, 4), "float32")).shape == (2, 3)


def test_a_subclass_can_keep_layers_beside_its_graph():
    class Graph(keras.Model):
        def __init__(self):
            x = keras.Input((4,))
            super().__init__(x, layers.Dense(2)(x))
            self.extra = layers.Dense(5)
            self.extra.build((None, 2))

    assert [w.shape for w in Graph().weights] == [(4, 2), (2,), (2, 5), (5,)]


def test_layers_that_change_after_training_are_trained_anew(rng):
    x, y = rng.random((8, 4)), rng.random((8, 3))
    model = keras.Sequential([keras.Input((4,)), layers.Dense(3), layers.Activation("relu")])
    model.compile("sgd", "mse")
    model.fit(x, y, verbose=0)
    assert model.predict(x, verbose=0).min() >= 0
    model.pop()
    model.add(layers.Activation(lambda t: -1.0 - t * t))
    assert model.predict(x, verbose=0).max() <= -1


def test_model_without_call():
    class Empty(keras.Model):
        pass

    with pytest.raises(NotImplementedError, match="does not implement `call"):
        Empty()(np.ones((2, 2), "float32"))


def test_models_inside_models_are_layers(device):
    with keras.device(device):
        inner = small()
        x = keras.Input((4,))
        outer = keras.Model(x, layers.Dense(1)(inner(x)))
        assert outer.layers[1] is inner
        assert len(outer.weights) == 6
        inner.trainable = False
        assert len(outer.trainable_weights) == 2
        assert outer(np.ones((2, 4), "float32")).shape == (2, 1)


def test_get_layer():
    model = small()
    assert model.get_layer(index=0) is model.layers[0]
    assert model.get_layer(model.layers[1].name) is model.layers[1]
    with pytest.raises(ValueError, match="no layer named 'absent'"):
        model.get_layer("absent")
    with pytest.raises(ValueError, match="has 2 layers"):
        model.get_layer(index=2)
    with pytest.raises(ValueError, match="`name` or `index`"):
        model.get_layer()


def test_unbuilt_models_say_so():
    model = keras.Sequential([layers.Dense(2)])
    with pytest.raises(ValueError, match="do not exist yet"):
        model.count_params()
    with pytest.raises(ValueError, match="no defined output"):
        _ = model.outputs
    lines = []
    model.summary(print_fn=lines.append)
    assert "0 (unbuilt)" in lines[0]


def test_summary_of_a_subclassed_model_leaves_the_batch_open():
    class Network(keras.Model):
        def __init__(self):
            super().__init__()
            self.hidden = keras.layers.Dense(5)
            self.top = keras.layers.Dense(3, activation="softmax")

        def call(self, x):
            return self.top(self.hidden(x))

    model = Network()
    model.compile("sgd", "sparse_categorical_crossentropy")
    model.fit(np.zeros((40, 4)), np.zeros(40, int), verbose=0)
    lines = []
    model.summary(print_fn=lines.append)
    text = "\n".join(lines)
    assert "(None, 5)" in text and "(None, 3)" in text and "40," not in text


def test_summary_of_nested_models_and_ranges(capsys):
    inner = keras.Sequential([keras.Input((4,)), layers.Dense(3, name="inside")], name="inner")
    model = keras.Sequential([keras.Input((4,)), inner, layers.Dense(2, name="last")])
    model.summary(expand_nested=True, show_trainable=True)
    text = capsys.readouterr().out
    assert "inside (Dense)" in text
    assert "Trainable" in text
    model.summary(layer_range=("last", "last"))
    text = capsys.readouterr().out
    assert "last (Dense)" in text
    assert "inner" not in text
    with pytest.raises(ValueError, match="matches 'absent'"):
        model.summary(layer_range=("absent", "last"))


def test_custom_layers_in_configurations():
    class Double(layers.Layer):
        def call(self, inputs):
            return inputs * 2.0

    model = keras.Sequential([keras.Input((4,)), Double(name="double"), layers.Dense(1)])
    config = model.get_config()
    with pytest.raises(ValueError, match=r"'Double'.*custom_objects"):
        keras.Sequential.from_config(config)
    again = keras.Sequential.from_config(config, custom_objects={"Double": Double})
    again.set_weights(model.get_weights())
    x = np.ones((2, 4), "float32")
    np.testing.assert_array_equal(again(x).numpy(), model(x).numpy())
    graph = keras.Model(model.input, model.output)
    again = keras.Model.from_config(graph.get_config(), custom_objects={"Double": Double})
    assert isinstance(again, keras.models.Functional)
    assert [w.shape for w in again.weights] == [w.shape for w in graph.weights]


def test_build_names_weights_as_a_call_does():
    class Small(keras.Model):
        def __init__(self, **kwargs):
            super().__init__(**kwargs)
            self.dense = keras.layers.Dense(3, name="top")

        def call(self, x):
            return self.dense(x)

    class Large(keras.Model):
        def __init__(self, **kwargs):
            super().__init__(**kwargs)
            self.inner = Small(name="inner")

        def build(self, input_shape):
            self.inner.build(input_shape)

        def call(self, x):
            return self.inner(x)

    for make, scope in ((Small, "m"), (Large, "m/inner")):
        built, called = make(name="m"), make(name="m")
        built.build((None, 4))
        called(np.ones((1, 4), "float32"))
        assert [w.path for w in built.weights] == [w.path for w in called.weights]
        assert built.weights[0].path == f"{scope}/top/kernel"


@pytest.mark.parametrize("arguments", [{"inputs": 1}, {"outputs": 1}])
def test_a_functional_model_needs_inputs_and_outputs(arguments):
    tensor = keras.Input((4,))
    with pytest.raises(ValueError, match=f"Received: only {next(iter(arguments))}"):
        keras.Model(**dict.fromkeys(arguments, tensor))
    with pytest.raises(ValueError, match="Received: only one argument"):
        keras.Model(tensor)
