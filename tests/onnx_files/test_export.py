"""`model.export(format="onnx")`: what models it takes, names, open axes, dtypes, and refusals."""

import subprocess
import sys

import numpy as np
import onnx
import pytest

import kerascnn as keras
from kerascnn import layers, ops

from .running import difference, ops_in, run


def exported(model, tmp_path, inputs, **options):
    """Exports, compares with the model, and returns the largest difference."""
    path = tmp_path / "model.onnx"
    model.export(path, **options)
    given = keras.tree.flatten(inputs)
    expected = keras.tree.flatten(model(inputs, training=False))
    found = run(path, given)
    assert len(found) == len(expected)
    return max(
        difference(actual, np.asarray(wanted))
        for actual, wanted in zip(found, expected, strict=True)
    )


def floats(*shape):
    return np.random.default_rng(len(shape)).uniform(-1, 1, shape).astype("float32")


def test_several_inputs_and_outputs_and_shared_layers(tmp_path):
    left, right = keras.Input((4,), name="left"), keras.Input((4,), name="right")
    dense = layers.Dense(3)
    a, b = dense(left), dense(right)
    model = keras.Model([left, right], [a, layers.Add()([a, b]), left])
    assert exported(model, tmp_path, [floats(5, 4), floats(5, 4)]) < 1e-5
    file = onnx.load(tmp_path / "model.onnx")
    assert [x.name for x in file.graph.input] == ["left", "right"]
    assert [len(x.dims) for x in file.graph.initializer].count(2) == 1  # the kernel is there once


def test_dictionaries_have_their_names(tmp_path):
    left, right = keras.Input((4,), name="left"), keras.Input((4,), name="right")
    model = keras.Model(
        {"left": left, "right": right}, {"sum": left + right, "dense": layers.Dense(2)(left)}
    )
    assert exported(model, tmp_path, {"left": floats(3, 4), "right": floats(3, 4)}) < 1e-5
    file = onnx.load(tmp_path / "model.onnx")
    assert [x.name for x in file.graph.output] == ["dense", "sum"]
    assert file.graph.output[0].type.tensor_type.shape.dim[0].dim_param == "batch"


def test_nested_and_subclassed_models_and_layers_of_ops(tmp_path):
    class Scaled(layers.Layer):
        def build(self, input_shape):
            self.scale = self.add_weight(shape=input_shape[-1:], initializer="random_normal")

        def call(self, x):
            return ops.log1p(ops.abs(x)) * self.scale + ops.mean(x, axis=(1, 2), keepdims=True)

    class Outer(keras.Model):
        def __init__(self):
            super().__init__()
            self.inner = keras.Sequential([layers.Conv2D(4, 3), layers.BatchNormalization()])
            self.scaled = Scaled()

        def call(self, x, training=None):
            return self.scaled(self.inner(x, training=training))

    model = Outer()
    model(floats(2, 8, 7, 3))
    assert exported(model, tmp_path, floats(3, 8, 7, 3)) < 1e-5
    # The mean over the image and its sum follow the layout: only both ends are transposed.
    assert ops_in(tmp_path / "model.onnx")["Transpose"] == 2


def test_open_axes_of_images_and_sequences(tmp_path):
    model = keras.Sequential(
        [
            keras.Input((None, None, 3)),
            layers.Conv2D(4, 3, strides=2, padding="same", activation="relu"),
            layers.UpSampling2D(2),
            layers.Conv2DTranspose(3, 3, strides=2, padding="same"),
            layers.GlobalAveragePooling2D(),
        ]
    )
    for shape in ((2, 9, 12, 3), (1, 16, 7, 3)):
        assert exported(model, tmp_path, floats(*shape)) < 1e-5
    x, memory = keras.Input((None, 6)), keras.Input((None, 6))
    y = layers.MultiHeadAttention(2, 3)(x, x, use_causal_mask=True)
    y = layers.Bidirectional(layers.LSTM(4, return_sequences=True))(y)
    y = layers.MultiHeadAttention(2, 3)(y, memory)
    model = keras.Model([x, memory], layers.GRU(3)(y))
    for n, m in ((5, 8), (9, 2)):
        assert exported(model, tmp_path, [floats(2, n, 6), floats(2, m, 6)]) < 1e-5


def test_resized_images_are_read_back(tmp_path):
    resized = [
        layers.UpSampling2D(2, interpolation="bilinear"),
        layers.UpSampling2D((2, 3), interpolation="bicubic"),
        layers.Resizing(5, 6, "bicubic"),
        layers.Resizing(4, 9, "nearest"),
        layers.Resizing(20, 3, "lanczos3"),
        layers.Resizing(3, 4, "bilinear", antialias=True),
    ]
    for layer in resized:
        model = keras.Sequential([keras.Input((8, 11, 3)), layer])
        x = floats(2, 8, 11, 3)
        assert exported(model, tmp_path, x) < 1e-5
        again = keras.models.from_onnx(tmp_path / "model.onnx")
        # As in other models that are read, channels come first.
        found = again.predict(x, verbose=0)
        assert difference(found, model.predict(x, verbose=0)) < 1e-5


def test_open_axes_of_resized_images(tmp_path):
    for method in ("bilinear", "bicubic"):
        layer = layers.UpSampling2D(2, interpolation=method)
        open_model = keras.Sequential([keras.Input((None, None, 3)), layer, layers.Conv2D(2, 3)])
        for shape in ((2, 9, 12, 3), (1, 5, 7, 3)):
            assert exported(open_model, tmp_path, floats(*shape)) < 1e-5
        one_size = keras.Sequential(
            [keras.Input((None, None, 3)), layers.Resizing(6, 7, interpolation=method)]
        )
        # ONNX Runtime 1.32 takes no smaller sizes with a cubic.
        for shape in ((2, 9, 12, 3), (1, 5, 7, 3))[method == "bicubic" :]:
            assert exported(one_size, tmp_path, floats(*shape)) < 1e-5
    model = keras.Sequential([keras.Input((None, 8, 3)), layers.Resizing(6, 7, "lanczos3")])
    with pytest.raises(ValueError, match="resizes an open axis with interpolation='lanczos3'"):
        model.export(tmp_path / "model.onnx")


def test_channels_first_needs_no_transpose(tmp_path):
    options = {"data_format": "channels_first"}
    model = keras.Sequential(
        [
            keras.Input((3, 9, 9)),
            layers.Conv2D(4, 3, **options),
            layers.BatchNormalization(axis=1),
            layers.MaxPooling2D(**options),
            layers.ReLU(),
            layers.Conv2D(4, 3, **options),
        ]
    )
    assert exported(model, tmp_path, floats(2, 3, 9, 9)) < 1e-5
    assert ops_in(tmp_path / "model.onnx")["Transpose"] == 0


def test_loops_and_choices(tmp_path):
    class Steps(layers.Layer):
        def call(self, x):
            _, grown = ops.while_loop(
                lambda i, y: ops.sum(y) < 100.0,
                lambda i, y: (i + 1, y * 2 + 1),
                (ops.zeros((), "int32"), ops.abs(x)),
            )
            chosen = ops.switch(
                ops.cast(ops.sum(x), "int32"), [lambda v: v, lambda v: v + 1, lambda v: v * 7], x
            )
            turned = ops.fori_loop(0, 5, lambda i, v: v * 0.5 + ops.cast(i, "float32"), x)
            last, _ = ops.scan(lambda c, r: (c + r, c * 2), ops.zeros(4), ops.ones((3, 4)))
            return grown + chosen + turned + ops.cond(ops.max(x) > 0, lambda: x, lambda: -x) + last

    x = keras.Input((4,))
    model = keras.Model(x, Steps()(x))
    for values in (floats(2, 4), -floats(2, 4), floats(1, 4) + 2):
        assert exported(model, tmp_path, values) < 1e-5


def test_masks_embeddings_and_int8(tmp_path):
    words = keras.Sequential(
        [
            keras.Input((None,), dtype="int32"),
            layers.Embedding(9, 4, mask_zero=True),
            layers.LSTM(3, return_sequences=True),
            layers.GRU(3),
        ]
    )
    numbers = np.array([[1, 0, 3, 0], [0, 0, 8, 8]], "int32")
    assert exported(words, tmp_path, numbers) < 1e-5
    dense = keras.Sequential([keras.Input((8,)), layers.Dense(6, "relu"), layers.Dense(3)])
    dense.quantize("int8")
    assert exported(dense, tmp_path, floats(5, 8)) < 1e-5
    assert ops_in(tmp_path / "model.onnx")["MatMulInteger"] == 2


@pytest.mark.parametrize(
    ("policy", "tolerance"),
    [("mixed_float16", 2e-3), ("float16", 5e-3), ("mixed_bfloat16", 2e-2)],
)
def test_mixed_precision(policy, tolerance, tmp_path):
    """Float16 stays what it is; bfloat16 becomes float32, which is nearer to the exact result."""
    model = keras.Sequential(
        [
            keras.Input((9, 9, 3), dtype="float32"),
            layers.Conv2D(8, 3, activation="relu", dtype=policy),
            layers.MaxPooling2D(dtype=policy),
            layers.Flatten(dtype=policy),
            layers.Dense(5, dtype=policy),
            layers.LayerNormalization(dtype=policy),
            layers.Softmax(dtype="float32"),
        ]
    )
    assert exported(model, tmp_path, floats(3, 9, 9, 3)) < tolerance
    kinds = {t.data_type for t in onnx.load(tmp_path / "model.onnx").graph.initializer}
    assert (onnx.TensorProto.FLOAT16 in kinds) == ("float16" in policy and "bfloat" not in policy)


def test_a_signature_gives_sizes_and_names(tmp_path):
    class Net(keras.Model):
        def __init__(self):
            super().__init__()
            self.dense = layers.Dense(2)

        def call(self, inputs):
            return self.dense(inputs["a"]) + inputs["b"]

    model = Net()
    arrays = {"a": floats(3, 4), "b": floats(3, 2)}
    model(arrays)
    signature = {
        "a": keras.InputSpec(shape=(3, 4), dtype="float32"),
        "b": keras.InputSpec(shape=(3, 2), dtype="float32"),
    }
    assert exported(model, tmp_path, arrays, input_signature=[signature]) < 1e-5
    sizes = onnx.load(tmp_path / "model.onnx").graph.input[0].type.tensor_type.shape.dim
    assert [d.dim_value for d in sizes] == [3, 4]


def test_weights_beside_a_file_that_would_be_too_large(tmp_path, monkeypatch):
    monkeypatch.setattr("kerascnn.onnx_files.writing._LARGEST", 1000)
    model = keras.Sequential([keras.Input((30,)), layers.Dense(40), layers.Dense(20)])
    assert exported(model, tmp_path, floats(2, 30)) < 1e-5
    assert sorted(p.name for p in tmp_path.iterdir()) == ["model.onnx", "model.onnx.data"]
    assert (tmp_path / "model.onnx").stat().st_size < 2000
    again = keras.models.from_onnx(tmp_path / "model.onnx")
    x = floats(2, 30)
    assert difference(again.predict(x, verbose=0), model.predict(x, verbose=0)) < 1e-6


@pytest.mark.parametrize("opset", [18, 21, 23])
def test_opsets(opset, tmp_path):
    model = keras.Sequential(
        [keras.Input((6, 6, 1)), layers.Conv2D(2, 3, activation="gelu"), layers.Flatten()]
    )
    assert exported(model, tmp_path, floats(2, 6, 6, 1), opset_version=opset) < 1e-5
    assert onnx.load(tmp_path / "model.onnx").opset_import[0].version == opset


# What is refused ----------------------------------------------------------------------------------


def refused(model, tmp_path, match, **options):
    with pytest.raises(ValueError, match=match):
        model.export(tmp_path / "x.onnx", **options)
    assert not (tmp_path / "x.onnx").exists()


class Function(layers.Layer):
    """A layer of one function."""

    def __init__(self, function, **arguments):
        super().__init__(**arguments)
        self.function = function

    def call(self, x):
        return self.function(x)


@pytest.mark.parametrize(
    ("function", "text"),
    [
        (lambda x: x + keras.random.normal((4,)), r"'random_normal' of layer 'm/odd'.* an input"),
        (ops.erfinv, "'erfinv' of layer 'm/odd' can't be exported: ONNX has no inverse"),
        (lambda x: ops.rfft(x)[0], "'rfft' of layer 'm/odd'"),
    ],
)
def test_the_layer_and_the_op_are_named(function, text, tmp_path):
    x = keras.Input((4,))
    model = keras.Model(x, Function(function, name="odd")(x), name="m")
    refused(model, tmp_path, text)


class Counting(layers.Layer):
    """Counts its calls: with `training_only` those of training."""

    def __init__(self, training_only, **arguments):
        super().__init__(**arguments)
        self.training_only = training_only

    def build(self, input_shape):
        self.count = self.add_weight(shape=(), initializer="ones", trainable=False, name="count")

    def call(self, x, training=False):
        if training or not self.training_only:
            self.count.assign(self.count + 1.0)
        return x * self.count


def test_what_a_prediction_changes_is_refused(tmp_path):
    """A file has no state: each of its predictions would be the first one."""
    counting = keras.Sequential([keras.Input((3,)), Counting(False, name="counting")])
    refused(counting, tmp_path, r"a prediction changes .*counting/count\. .*`training` is true")
    stateful = keras.Sequential([keras.Input((4, 3), batch_size=2), layers.GRU(2, stateful=True)])
    refused(stateful, tmp_path, "a prediction changes .*/rnn_state.*leave out `stateful`")
    fixed = keras.Sequential([keras.Input((3,)), Counting(True)])
    assert exported(fixed, tmp_path, floats(2, 3)) == 0.0


def test_what_depends_on_an_open_size(tmp_path):
    x = keras.Input((None, 2))
    table = np.random.default_rng(0).normal(size=(300, 2)).astype("float32")
    model = keras.Model(x, Function(lambda v: v + table[: v.shape[1]], name="odd")(x))
    refused(model, tmp_path, "values depend on the size of an open axis")
    given = keras.Model(
        x, [x * 2.0, Function(lambda v: ops.convert_to_tensor(table[: v.shape[1]]))(x)]
    )
    refused(given, tmp_path, "An output of the model can't be exported: it takes a constant")
    fixed = [keras.InputSpec(shape=(None, 5, 2))]
    assert exported(model, tmp_path, floats(2, 5, 2), input_signature=fixed) < 1e-5


def test_text_and_arguments(tmp_path):
    text = keras.Sequential(
        [keras.Input((1,), dtype="string"), layers.StringLookup(vocabulary=["a"]), layers.Dense(2)]
    )
    refused(text, tmp_path, "works on the host")
    model = keras.Sequential([keras.Input((2,)), layers.Dense(1)])
    refused(model, tmp_path, "whole number from 18 to", opset_version=17)
    refused(model, tmp_path, "no argument simplify", simplify=True)
    refused(model, tmp_path, "ends in '.safetensors'", format="safetensors")
    refused(model, tmp_path, "'onnx' or 'safetensors'", format="tf_saved_model")
    refused(keras.Sequential([layers.Dense(1)]), tmp_path, "has no weights yet")


def test_a_missing_package_is_said(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "onnx", None)
    model = keras.Sequential([keras.Input((2,)), layers.Dense(1)])
    with pytest.raises(ImportError, match=r"pip install 'kerascnn\[onnx\]'"):
        model.export(tmp_path / "x.onnx")


def test_nothing_of_onnx_is_imported_before():
    code = (
        "import sys, kerascnn; kerascnn.models.from_onnx; m = sys.modules; "
        "assert 'onnx' not in m and not any(n.startswith('kerascnn.onnx_files') for n in m)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
