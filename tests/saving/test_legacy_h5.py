"""HDF5 files in the format of Keras 2, which the tests write as its versions did."""

import contextlib
import json

import numpy as np
import pytest

import kerascnn as keras
from kerascnn import layers, saving

h5py = pytest.importorskip("h5py")


def write(path, config, weights, training=None, state=None):
    """A file as Keras 2 wrote it.

    Args:
        config: `model_config`.
        weights: for each layer its arrays by name.
        training: `training_config`.
        state: the arrays of the optimizer by name.
    """

    def arrays(group, values):
        group.attrs["weight_names"] = np.array([n.encode() for n in values])
        for name, value in values.items():
            group[name] = value

    with h5py.File(path, "w") as file:
        file.attrs["keras_version"] = b"2.9.0"
        file.attrs["backend"] = b"tensorflow"
        if config is not None:
            file.attrs["model_config"] = json.dumps(config).encode()
        if training is not None:
            file.attrs["training_config"] = json.dumps(training).encode()
        inner = file if config is None else file.create_group("model_weights")
        inner.attrs["layer_names"] = np.array([n.encode() for n in weights])
        for name, values in weights.items():
            arrays(inner.create_group(name), values)
        if state is not None:
            arrays(file.create_group("optimizer_weights"), state)
    return path


def initializer(name, **config):
    return {"class_name": name, "config": config}


def dense(name, units, activation="linear", **more):
    config = {
        "name": name,
        "trainable": True,
        "dtype": "float32",
        "units": units,
        "activation": activation,
        "use_bias": True,
        "kernel_initializer": initializer(
            "VarianceScaling", scale=1.0, mode="fan_avg", distribution="uniform", seed=None
        ),
        "bias_initializer": initializer("Zeros", dtype="float32"),
        "kernel_regularizer": initializer("L1L2", l1=0.0, l2=0.01),
        "bias_regularizer": None,
        "activity_regularizer": None,
        "kernel_constraint": None,
        "bias_constraint": None,
        **more,
    }
    return {"class_name": "Dense", "config": config}


def depthwise(name):
    config = {
        "name": name,
        "trainable": True,
        "dtype": {"class_name": "Policy", "config": {"name": "float32"}},
        "kernel_size": [3, 3],
        "strides": [1, 1],
        "padding": "valid",
        "data_format": "channels_last",
        "dilation_rate": [1, 1],
        "groups": 1,
        "activation": "linear",
        "use_bias": False,
        "bias_initializer": initializer("Zeros"),
        "depth_multiplier": 1,
        "depthwise_initializer": initializer("GlorotUniform", seed=None, dtype="float32"),
    }
    return {"class_name": "DepthwiseConv2D", "config": config}


def batch_normalization(name):
    config = {"name": name, "trainable": True, "dtype": "float32", "axis": [3], "momentum": 0.9}
    config |= {"epsilon": 0.01, "center": True, "scale": True, "fused": True}
    return {"class_name": "BatchNormalization", "config": config | {"virtual_batch_size": None}}


def pair(rng, name, rows, units):
    kernel = rng.normal(size=(rows, units)).astype("float32")
    return {f"{name}/kernel:0": kernel, f"{name}/bias:0": rng.normal(size=units).astype("float32")}


@pytest.mark.parametrize("is_list", [True, False], ids=["before 2.2.3", "after"])
def test_a_stack_whose_first_layer_knows_the_shape(is_list, tmp_path, rng):
    entries = [
        depthwise("mobile"),
        batch_normalization("norm"),
        {"class_name": "Flatten", "config": {"name": "flat", "trainable": True}},
        dense("scores", 3, "softmax"),
    ]
    entries[0]["config"]["batch_input_shape"] = [None, 5, 4, 2]
    inner = entries if is_list else {"name": "net", "layers": entries}
    kernel = rng.normal(size=(3, 3, 2, 1)).astype("float32")
    statistics = {
        f"norm/{name}:0": rng.random(2).astype("float32") + 0.5
        for name in ("gamma", "beta", "moving_mean", "moving_variance")
    }
    weights = {
        "mobile": {"mobile/depthwise_kernel:0": kernel},
        "norm": statistics,
        "flat": {},
        "scores": pair(rng, "scores", 12, 3),
    }
    path = write(tmp_path / "m.h5", {"class_name": "Sequential", "config": inner}, weights)
    model = saving.load_model(path)
    assert model.input_shape == (None, 5, 4, 2)
    assert not model.compiled
    x = rng.normal(size=(6, 5, 4, 2)).astype("float32")
    # The reference is float64 NumPy: a depthwise correlation, normalization, a product, a softmax.
    windows = np.lib.stride_tricks.sliding_window_view(x.astype("float64"), (3, 3), (1, 2))
    y = np.einsum("nhwcij,ijc->nhwc", windows, kernel[..., 0])
    gamma, beta, mean, variance = statistics.values()
    y = (y - mean) / np.sqrt(variance + 0.01) * gamma + beta
    kernel, bias = weights["scores"].values()
    y = np.exp(y.reshape(6, -1) @ kernel + bias)
    want = y / y.sum(-1, keepdims=True)
    # The results are float32 sums of a dozen terms, after a softmax.
    np.testing.assert_allclose(model.predict(x, verbose=0), want, atol=1e-5)


def graph(rng):
    """Returns a model that calls another one twice, in the format of Keras 2, and its weights."""
    inner = {
        "name": "twin",
        "layers": [
            {
                "name": "inner_in",
                "class_name": "InputLayer",
                "config": {
                    "batch_input_shape": [None, 4],
                    "dtype": "float32",
                    "sparse": False,
                    "ragged": False,
                    "name": "inner_in",
                },
                "inbound_nodes": [],
            },
            {
                **dense("hidden", 5, "tanh"),
                "name": "hidden",
                "inbound_nodes": [[["inner_in", 0, 0, {}]]],
            },
        ],
        "input_layers": [["inner_in", 0, 0]],
        "output_layers": [["hidden", 0, 0]],
    }

    def entry(layer, *nodes):
        return {**layer, "name": layer["config"]["name"], "inbound_nodes": list(nodes)}

    def beginning(name):
        config = {"batch_input_shape": [None, 4], "dtype": "float32", "name": name}
        return entry({"class_name": "InputLayer", "config": config})

    twin = {"class_name": "Model", "config": inner, "name": "twin"}
    twin["inbound_nodes"] = [[["left", 0, 0, {}]], [["right", 0, 0, {}]]]
    subtract = {"class_name": "Subtract", "config": {"name": "minus", "trainable": True}}
    dropout = {
        "class_name": "Dropout",
        "config": {"name": "drop", "rate": 0.5, "noise_shape": None},
    }
    config = {
        "name": "siamese",
        "layers": [
            beginning("left"),
            beginning("right"),
            twin,
            entry(subtract, [["twin", 1, 0, {}], ["twin", 2, 0, {}]]),
            entry(dropout, [["minus", 0, 0, {"training": False}]]),
            entry(dense("scores", 2), [["drop", 0, 0, {}]]),
        ],
        "input_layers": [["left", 0, 0], ["right", 0, 0]],
        "output_layers": [["scores", 0, 0], ["twin", 1, 0]],
    }
    weights = {"left": {}, "right": {}, "twin": pair(rng, "hidden", 4, 5), "minus": {}, "drop": {}}
    return {"class_name": "Model", "config": config}, weights | {
        "scores": pair(rng, "scores", 5, 2)
    }


def test_a_graph_with_a_model_that_is_called_twice(tmp_path, rng):
    config, weights = graph(rng)
    model = saving.load_model(write(tmp_path / "m.hdf5", config, weights))
    left, right = rng.normal(size=(2, 7, 4)).astype("float32")
    kernel, bias = weights["twin"].values()
    one, two = (np.tanh(x.astype("float64") @ kernel + bias) for x in (left, right))
    kernel, bias = weights["scores"].values()
    scores, hidden = model.predict([left, right], verbose=0)
    np.testing.assert_allclose(hidden, one, atol=1e-5)
    np.testing.assert_allclose(scores, (one - two) @ kernel + bias, atol=1e-5)


def stack(rng, **training):
    entries = [dense("first", 4, "relu"), dense("second", 3)]
    entries[0]["config"]["batch_input_shape"] = [None, 2]
    config = {"class_name": "Sequential", "config": {"name": "net", "layers": entries}}
    weights = {"first": pair(rng, "first", 2, 4), "second": pair(rng, "second", 4, 3)}
    return config, weights


def test_how_it_was_trained(tmp_path, rng):
    wrapper = {"name": "accuracy", "dtype": "float32", "fn": "sparse_categorical_accuracy"}
    training = {
        "loss": {
            "class_name": "SparseCategoricalCrossentropy",
            "config": {"reduction": "auto", "name": "loss", "from_logits": True},
        },
        "metrics": [[{"class_name": "MeanMetricWrapper", "config": wrapper}]],
        "weighted_metrics": None,
        "loss_weights": None,
        "sample_weight_mode": None,
        "optimizer_config": {
            "class_name": "SGD",
            "config": {"name": "SGD", "lr": 0.5, "decay": 0.25, "momentum": 0.0, "nesterov": False},
        },
    }
    path = write(tmp_path / "m.h5", *stack(rng), training, {"SGD/iter:0": np.int64(7)})
    model = saving.load_model(path)
    assert model.loss.get_config()["from_logits"] is True
    # Each float32 operation rounds once.
    assert float(model.optimizer.learning_rate) == pytest.approx(0.5 / (1 + 0.25 * 7), rel=1e-6)
    assert int(model.optimizer.iterations.numpy()) == 7
    logs = model.evaluate(np.ones((3, 2), "float32"), np.arange(3), verbose=0, return_dict=True)
    assert set(logs) == {"loss", "accuracy"}
    assert not saving.load_model(path, compile=False).compiled


@pytest.mark.parametrize("name", ["Adam", "Custom>Adam"])
def test_names_and_state_of_optimizers(name, tmp_path, rng):
    schedule = {"initial_learning_rate": 0.1, "decay_steps": 10, "decay_rate": 0.5}
    config = {
        "name": "Adam",
        "learning_rate": {"class_name": "ExponentialDecay", "config": schedule},
        "weight_decay": None,
        "jit_compile": False,
        "is_legacy_optimizer": False,
        "epsilon": None,
    }
    training = {"loss": "mse", "metrics": ["mae"], "loss_weights": None}
    training["optimizer_config"] = {"class_name": name, "config": config}
    state = {f"Adam/{i}:0": np.zeros(3, "float32") for i in range(4)}
    path = write(tmp_path / "m.h5", *stack(rng), training, state)
    with pytest.warns(UserWarning, match="the saved one 4"):
        model = saving.load_model(path)
    assert type(model.optimizer) is keras.optimizers.Adam
    assert float(model.optimizer.learning_rate) == np.float32(0.1)
    training["optimizer_config"]["class_name"] = "Unheard"
    with pytest.raises(ValueError, match="Unheard"):
        saving.load_model(write(path, *stack(rng), training))


def fresh():
    first = layers.Dense(4, "relu", name="first")
    return keras.Sequential([keras.Input((2,)), first, layers.Dense(3, name="second")])


def test_weights_in_their_order_and_by_name(tmp_path, rng):
    _, weights = stack(rng)
    path = write(tmp_path / "w.h5", None, weights)
    model = fresh()
    model.load_weights(path)
    for layer in model.layers:
        for want, got in zip(weights[layer.name].values(), layer.get_weights(), strict=True):
            np.testing.assert_array_equal(got, want)
    # This model has other layers, one of which is in the file.
    second = layers.Dense(3, name="second")
    other = keras.Sequential([keras.Input((4,)), second, layers.Dense(9, name="head")])
    head = other.layers[1].get_weights()
    other.load_weights(path, by_name=True)
    np.testing.assert_array_equal(second.kernel.numpy(), weights["second"]["second/kernel:0"])
    np.testing.assert_array_equal(other.layers[1].kernel.numpy(), head[0])
    with pytest.raises(
        ValueError, match=r"'second' \(Dense\), weight 'kernel': expected .*\(4, 3\)"
    ):
        other.load_weights(path)


def test_weights_that_do_not_fit_change_nothing(tmp_path, rng):
    _, weights = stack(rng)
    weights["second"]["second/kernel:0"] = np.zeros((4, 5), "float32")
    path = write(tmp_path / "w.h5", None, weights)
    model = fresh()
    before = model.get_weights()
    for by_name in (False, True):
        with pytest.raises(ValueError, match=r"expected shape \(4, 3\), found \(4, 5\)"):
            model.load_weights(path, by_name=by_name)
    for a, b in zip(before, model.get_weights(), strict=True):
        np.testing.assert_array_equal(a, b)
    with pytest.warns(UserWarning, match=r"found \(4, 5\)"):
        model.load_weights(path, skip_mismatch=True)
    np.testing.assert_array_equal(model.get_weights()[0], weights["first"]["first/kernel:0"])
    np.testing.assert_array_equal(model.get_weights()[2], before[2])
    more = keras.Sequential([keras.Input((2,)), layers.Dense(4)])
    with pytest.raises(ValueError, match="1 layers with weights, the file 2"):
        more.load_weights(path)
    for name in ("m.weights.h5", "m.keras"):
        with pytest.raises(ValueError, match="by_name"):
            model.load_weights(tmp_path / name, by_name=True)
    with pytest.raises(ValueError, match="holds no model"):
        saving.load_model(path)


def test_names_that_need_several_attributes(tmp_path, rng):
    names = [f"a_layer_with_a_rather_long_name_{i:04}" for i in range(1800)]
    model = keras.Sequential([keras.Input((1,))])
    for name in names:
        model.add(layers.Dense(1, use_bias=False, name=name), rebuild=False)
    model.build((None, 1))
    model.set_weights([rng.random((1, 1), dtype="float32") for _ in names])
    model.save(tmp_path / "m.h5")
    with h5py.File(tmp_path / "m.h5") as file:
        assert "layer_names1" in file["model_weights"].attrs
        assert "layer_names" not in file["model_weights"].attrs
    before = model.get_weights()
    model.set_weights([w * 0 for w in before])
    model.load_weights(tmp_path / "m.h5", by_name=True)
    for a, b in zip(before, model.get_weights(), strict=True):
        np.testing.assert_array_equal(a, b)


def test_weights_of_one_name_and_of_the_model_itself(tmp_path):
    class Own(layers.Layer):
        def build(self, shape):
            self.one = self.add_weight((2,), initializer="ones", name="scale")
            self.two = self.add_weight((2,), initializer="zeros", name="scale")

        def call(self, x):
            return x * self.one + self.two

    def make():
        x = keras.Input((2,))
        return keras.Model(x, Own(name="own")(x))

    model, other = make(), make()
    model.set_weights([np.array([2.0, 3.0]), np.array([4.0, 5.0])])
    model.save(tmp_path / "m.h5")
    other.load_weights(tmp_path / "m.h5")
    for a, b in zip(model.get_weights(), other.get_weights(), strict=True):
        np.testing.assert_array_equal(a, b)


# Files that are made to do harm ------------------------------------------------------------------


def _external(file, tmp_path):
    del file["model_weights/first/first/kernel:0"]
    file["model_weights/first/first/kernel:0"] = h5py.ExternalLink("other.h5", "/x")


def _soft(file, tmp_path):
    del file["model_weights/second"]
    file["model_weights/second"] = h5py.SoftLink("/model_weights/first")


def _virtual(file, tmp_path):
    del file["model_weights/first/first/kernel:0"]
    layout = h5py.VirtualLayout((2, 4), "float32")
    layout[:] = h5py.VirtualSource(str(tmp_path / "other.h5"), "x", shape=(2, 4))
    file.create_virtual_dataset("model_weights/first/first/kernel:0", layout)


def _enormous(file, tmp_path):
    del file["model_weights/first/first/kernel:0"]
    group = file["model_weights/first/first"]
    group.create_dataset("kernel:0", (1 << 40, 4), "float32", chunks=(1024, 4))


def _names_out_of_the_group(file, tmp_path):
    file["model_weights/first"].attrs["weight_names"] = [b"../../second/kernel:0", b"first/bias:0"]


def _names_that_are_no_text(file, tmp_path):
    file["model_weights"].attrs["layer_names"] = np.arange(3)


def _references_for_names(file, tmp_path):
    group = file["model_weights"]
    group.attrs.create("layer_names", [group.ref], dtype=h5py.ref_dtype)


@pytest.mark.parametrize(
    ("change", "match"),
    [
        (_external, r"link \(ExternalLink\)"),
        (_soft, r"link \(SoftLink\)"),
        (_virtual, "outside of the file"),
        (_enormous, "claims"),
        (_names_out_of_the_group, "weight 'kernel': expected shape .* found None"),
        (_names_that_are_no_text, "no text"),
        (_references_for_names, "no text"),
    ],
)
def test_h5_that_is_more_than_arrays_is_refused(change, match, tmp_path, rng):
    path = write(tmp_path / "m.h5", *stack(rng))
    with h5py.File(path, "a") as file:
        change(file, tmp_path)
    with pytest.raises(ValueError, match=match):
        saving.load_model(path)
    model = fresh()
    before = model.get_weights()
    with pytest.raises(ValueError, match=match):
        model.load_weights(path)
    for a, b in zip(before, model.get_weights(), strict=True):
        np.testing.assert_array_equal(a, b)


def _lambda(form):
    code = ["4wEAAAAAAAAA", None, None]
    function = code if form == "list" else {"class_name": "__lambda__", "config": {"value": code}}
    config = {"name": "evil", "function": function, "function_type": "lambda", "arguments": {}}
    return {"class_name": "Lambda", "config": config}


@pytest.mark.parametrize(
    "entry",
    [
        _lambda("list"),
        _lambda("dictionary"),
        {"class_name": "TFSMLayer", "config": {"filepath": "evil"}},
        {"class_name": "system", "module": "os", "config": {"command": "touch evil"}},
        {"class_name": "eval", "config": {"source": "1"}},
        {"class_name": "TFOpLambda", "config": {"function": "raw_ops.WriteFile", "name": "x"}},
        dense("wide", 1 << 40),
        {"class_name": "Dense", "config": 7},
        {"class_name": "Dense"},
        7,
    ],
)
def test_configurations_in_h5_make_models_or_errors(entry, tmp_path, rng):
    config, weights = stack(rng)
    config["config"]["layers"].append(entry)
    with pytest.raises(ValueError, match="."):
        saving.load_model(write(tmp_path / "m.h5", config, weights))
    assert not list(tmp_path.glob("**/evil"))


def _deep(depth):
    value = {"class_name": "Sequential", "config": []}
    for _ in range(depth):
        value = {"class_name": "Sequential", "config": {"name": "x", "layers": [value]}}
    return value


@pytest.mark.parametrize("config", [[], {}, 3, {"class_name": "Model", "config": {}}, _deep(200)])
def test_what_is_no_configuration(config, tmp_path, rng):
    with pytest.raises(ValueError, match="configuration"):
        saving.load_model(write(tmp_path / "m.h5", config, stack(rng)[1]))


def test_damaged_files_never_crash_or_half_load(tmp_path, rng):
    good = write(tmp_path / "good.h5", *stack(rng)).read_bytes()
    model = fresh()
    path = tmp_path / "bad.h5"
    for _ in range(120):
        bad = bytearray(good)
        if rng.random() < 0.3:
            bad = bad[: rng.integers(len(bad))]
        else:
            for place in rng.integers(0, len(bad), rng.choice([1, 2, 8, 64])):
                bad[place] = rng.integers(256)
        path.write_bytes(bad)
        before = model.get_weights()
        try:
            model.load_weights(path)
        except ValueError:
            for a, b in zip(before, model.get_weights(), strict=True):
                np.testing.assert_array_equal(a, b)
        with contextlib.suppress(ValueError):
            saving.load_model(path)


def test_layers_whose_class_has_another_name(tmp_path, rng):
    """Keras writes the name of the class into `.h5`, not the public one."""
    x = keras.Input((4, 6))
    model = keras.Model(x, layers.GroupQueryAttention(2, 2, 1)(x, x))
    model.save(tmp_path / "x.h5")
    with h5py.File(tmp_path / "x.h5", "r+") as file:
        text = file.attrs["model_config"]
        file.attrs["model_config"] = text.replace('"GroupQuery', '"GroupedQuery')
        assert file.attrs["model_config"] != text
    values = rng.random((3, 4, 6), "float32")
    again = saving.load_model(tmp_path / "x.h5")
    np.testing.assert_array_equal(again.predict(values), model.predict(values))


def test_a_model_that_was_never_trained_loads_without_a_warning(tmp_path, recwarn):
    model = fresh()
    model.compile(keras.optimizers.Adam(0.25), "mse")
    model.save(tmp_path / "m.h5")
    loaded = saving.load_model(tmp_path / "m.h5")
    assert not [w for w in recwarn if "optimizer" in str(w.message)]
    assert float(loaded.optimizer.learning_rate) == 0.25
    x, y = np.ones((4, 2), "float32"), np.ones((4, 3), "float32")
    assert loaded.fit(x, y, verbose=0).history == model.fit(x, y, verbose=0).history
