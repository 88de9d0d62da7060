"""Shared and nested models, named inputs and outputs, clones and flags work as in Keras.

The same lines run with both libraries. They return plain values, which must be equal, and numbers,
which must be equal up to rounding.
"""

import warnings

import numpy as np
import pytest

import kerascnn

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # Other packages may warn on import.
    keras = pytest.importorskip("keras")

# Keras converts PyTorch tensors in a way that NumPy 2 warns about.
pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")


def numbered(model):
    """Gives weights values that depend only on place and shape; those of vectors are positive."""
    values = []
    for i, value in enumerate(model.get_weights()):
        shape = np.shape(value)
        wave = np.cos(1.0 + i + np.arange(np.prod(shape))).reshape(shape)
        values.append((wave if len(shape) > 1 else 1 + wave / 2).astype("float32"))
    model.set_weights(values)
    return model


def waves(*shape):
    return np.sin(np.arange(np.prod(shape))).reshape(shape).astype("float32")


def kinds(*layers):
    """Returns how many weights each layer has, and how many of them are trained."""
    return [(len(x.weights), len(x.trainable_weights), len(x.trainable_variables)) for x in layers]


def shared_layers(k):
    a, b = k.Input((4,), name="a"), k.Input((4,), name="b")
    dense = k.layers.Dense(3, name="shared")
    first, second = dense(a), dense(b)
    model = k.Model([a, b], [first, k.layers.add([first, dense(k.layers.Dense(4)(second))])])
    numbered(model)
    yield [layer.name for layer in model.layers if "dense" not in layer.name]
    yield dense.output is first, dense.input is a, kinds(model, dense)
    yield model.predict([waves(3, 4), -waves(3, 4)], verbose=0)
    dense.trainable = False
    yield kinds(model, dense)


def models_in_models(k):
    inner = k.Sequential([k.Input((4,)), k.layers.Dense(3, name="d")], name="inner")
    middle_in = k.Input((4,))
    middle = k.Model(middle_in, k.layers.BatchNormalization(name="n")(inner(middle_in)), name="mid")
    x = k.Input((4,), name="x")
    outer = k.Model(x, k.layers.Dense(2, name="top")(middle(x)), name="outer")
    numbered(outer)
    yield [w.path for w in outer.weights], [layer.name for layer in outer.layers[1:]]
    yield outer.get_layer("mid").get_layer("inner").get_layer("d").units
    yield outer.get_layer("mid") is middle, outer.get_layer(index=-1).name
    yield outer.predict(waves(5, 4), verbose=0)
    flags = []
    for part, value in ((inner, False), (middle, False), (inner, True), (outer, True)):
        part.trainable = value
        flags.append((kinds(outer, middle, inner), [m.trainable for m in (outer, middle, inner)]))
    yield flags
    stacked = k.Sequential([middle, k.layers.Dense(1)])
    yield stacked.built, stacked.input_shape, stacked.output_shape
    numbered(stacked)
    yield stacked.predict(waves(5, 4), verbose=0)


def outputs_by_name(k):
    image, facts = k.Input((4, 4, 1), name="image"), k.Input((3,), name="facts")
    x = k.layers.Concatenate()([k.layers.Flatten()(image), facts])
    outputs = {"kind": k.layers.Dense(3, name="kind_scores")(x), "age": k.layers.Dense(1)(x)}
    model = numbered(k.Model({"image": image, "facts": facts}, outputs))
    data = {"image": waves(6, 4, 4, 1), "facts": waves(6, 3)}
    yield model.input_shape, model.output_shape, sorted(model.input), sorted(model.output)
    predicted = model.predict(data, batch_size=4, verbose=0)
    yield sorted(predicted)
    yield predicted["kind"], predicted["age"]
    model.compile(
        k.optimizers.SGD(0.01),
        loss={"kind": "sparse_categorical_crossentropy", "age": "mse"},
        metrics={"age": ["mae", "mse"]},
        loss_weights={"kind": 0.5, "age": 2.0},
    )
    targets = {"kind": np.array([0, 1, 2, 0, 1, 2]), "age": waves(6, 1)}
    history = model.fit(data, targets, batch_size=4, epochs=2, shuffle=False, verbose=0).history
    yield list(history)
    yield [np.array(values) for values in history.values()]
    yield sorted(model.evaluate(data, targets, verbose=0, return_dict=True))


def lists_and_names(k):
    a, b = k.Input((2,), name="a"), k.Input((3,), name="b")
    model = numbered(k.Model([a, b], k.layers.Dense(2)(k.layers.concatenate([a, b]))))
    x, y = waves(4, 2), waves(4, 3)
    yield model.predict([x, y], verbose=0), model.predict({"b": y, "a": x}, verbose=0)
    model.compile("sgd", "mse")
    yield [
        np.array(model.evaluate(given, waves(4, 2), verbose=0))
        for given in ([x, y], (x, y), {"a": x, "b": y})
    ]
    yield [tensor.name for tensor in model.inputs]


def clones(k):
    a = k.Input((4,), name="a")
    shared = k.layers.Dense(4, activation="relu", name="shared")
    part = k.Sequential([k.Input((4,)), k.layers.Dense(2, name="p")], name="part")
    model = numbered(k.Model(a, part(shared(shared(a))), name="model"))
    shared.trainable = False
    clone = k.models.clone_model(model)
    yield clone.name, [layer.name for layer in clone.layers[1:]], kinds(clone)
    yield clone.get_layer("shared") is not shared, clone.get_layer("shared").trainable
    clone.set_weights(model.get_weights())
    yield clone.predict(waves(3, 4), verbose=0), model.predict(waves(3, 4), verbose=0)

    def wider(layer):
        config = layer.get_config()
        if config.get("name") == "p":
            config["units"] = 5
        return type(layer).from_config(config)

    yield k.models.clone_model(part, clone_function=wider).output_shape
    yield k.models.clone_model(model, input_tensors=k.Input((4,), name="other")).input_shape


def flags(k):
    norm = k.layers.BatchNormalization()
    flat = k.layers.Flatten()
    model = k.Sequential([k.Input((4,)), k.layers.Dense(3), norm, flat, k.layers.Dense(1)])
    numbered(model)
    yield kinds(model, norm, flat)
    before = norm.get_weights()
    norm.trainable = False
    norm(waves(8, 3), training=True)  # A frozen layer keeps its statistics.
    yield [np.array_equal(a, b) for a, b in zip(norm.get_weights(), before, strict=True)]
    model.compile("sgd", "mse")
    model.fit(waves(8, 4), waves(8, 1), shuffle=False, verbose=0)
    yield [np.array_equal(a, b) for a, b in zip(norm.get_weights(), before, strict=True)]
    yield model.get_weights()
    model.trainable = False
    yield kinds(model, norm), [layer.trainable for layer in model.layers]
    model.layers[0].trainable = True
    yield kinds(model, model.layers[0])
    model.layers[0].kernel.trainable = False
    yield kinds(model, model.layers[0]), [w.trainable for w in model.weights]
    yield model.count_params(), len(model.non_trainable_weights), len(model.non_trainable_variables)


def subclassed(k):
    class Block(k.layers.Layer):
        def __init__(self, units, **kwargs):
            super().__init__(**kwargs)
            self.parts = [k.layers.Dense(units, name=f"part_{i}") for i in range(2)]
            self.by_name = {"norm": k.layers.LayerNormalization(name="norm")}

        def call(self, x):
            for part in self.parts:
                x = part(x)
            return self.by_name["norm"](x)

    class Net(k.Model):
        def __init__(self):
            super().__init__(name="net")
            self.block = Block(4, name="block")
            self.head = k.layers.Dense(2, name="head")

        def call(self, inputs, training=False):
            x = self.head(self.block(inputs["x"]))
            return x * 2.0 if training else x

    net = Net()
    yield net.built, net.weights
    data = {"x": waves(4, 3)}
    net(data)
    numbered(net)
    yield [w.path for w in net.weights], [layer.name for layer in net.layers]
    yield net.predict(data, verbose=0)
    net.block.trainable = False
    net.compile(k.optimizers.SGD(0.1), "mse", metrics=["mae"])
    yield kinds(net)
    history = net.fit(data, waves(4, 2), epochs=2, shuffle=False, verbose=0).history
    yield [np.array(values) for values in history.values()], list(history)
    x = k.Input((3,))
    functional = k.Model(x, net({"x": x}))
    yield functional.predict(data["x"], verbose=0)


CASES = (
    shared_layers,
    models_in_models,
    outputs_by_name,
    lists_and_names,
    clones,
    flags,
    subclassed,
)


def compare(actual, expected, place):
    if isinstance(expected, np.ndarray):
        # There are a few layers and up to two steps of training, each exact to a few roundings.
        np.testing.assert_allclose(
            actual, expected, rtol=1e-5, atol=1e-5 * np.abs(expected).max(), err_msg=place
        )
    elif isinstance(expected, (list, tuple)):
        assert len(actual) == len(expected), (place, actual, expected)
        for a, e in zip(actual, expected, strict=True):
            compare(a, e, place)
    elif isinstance(expected, dict):
        assert sorted(actual) == sorted(expected), place
        for key in expected:
            compare(actual[key], expected[key], place)
    else:
        assert actual == expected, place


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_models_are_put_together_as_in_keras(case, device):
    for library in (keras, kerascnn):
        library.utils.clear_session()  # Both libraries count generated names from the start.
    expected = list(case(keras))
    with kerascnn.device(device):
        actual = list(case(kerascnn))
    assert len(actual) == len(expected)
    for i, (a, e) in enumerate(zip(actual, expected, strict=True)):
        compare(a, e, f"{case.__name__}, {i}: {a} and {e}")


def test_dictionaries_of_outputs_are_in_the_order_of_keras():
    """A functional model sorts its outermost keys; a subclass keeps the order of its `call`."""

    def orders(library):
        inputs = library.Input((4,))
        outputs = {
            "b": library.layers.Dense(2)(inputs),
            "a": [library.layers.Dense(3)(inputs), {"z": inputs * 2.0, "y": inputs}],
        }
        functional = library.Model(inputs, outputs)

        class Own(library.Model):
            def call(self, x):
                return {"b": x, "a": {"z": x, "y": x}}

        x = np.ones((2, 4), "float32")
        for model in (functional, library.models.clone_model(functional), Own()):
            for result in (model(x), model.predict(x, verbose=0), model.predict_on_batch(x)):
                inner = result["a"]
                yield list(result), list(inner[1] if isinstance(inner, list) else inner)

    assert list(orders(kerascnn)) == list(orders(keras))


def test_states_of_generators_are_variables_that_are_not_trained():
    """Layers with a seed have such states; the others use the program's global generator."""

    def described(library):
        library.utils.clear_session()
        model = library.Sequential(
            [
                library.Input((4,)),
                library.layers.Dense(3, name="dense"),
                library.layers.Dropout(0.1, seed=1),
                library.layers.GaussianNoise(0.1, seed=2),
            ],
            name="model",
        )
        kinds = ("variables", "weights", "non_trainable_variables", "non_trainable_weights")
        lists = [[v.path for v in getattr(model, kind)] for kind in (*kinds, "trainable_variables")]
        return [*lists, model.count_params()]

    assert described(kerascnn) == described(keras)
