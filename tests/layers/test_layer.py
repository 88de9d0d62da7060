"""Custom layers: weights, nesting, training, names, losses, devices."""

import numpy as np
import pytest

import kerascnn as keras
from kerascnn import _core, layers, ops
from kerascnn.tracing import Trace


class Block(layers.Layer):
    """A layer with a list of layers and a weight."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.parts = [layers.Dense(4, activation="relu"), layers.Dropout(0.5)]
        self.parts.append(layers.Dense(2))

    def build(self, input_shape):
        self.scale = self.add_weight((input_shape[-1],), "ones", name="scale")
        self.count = self.add_weight((), "zeros", dtype="int32", trainable=False, name="count")

    def call(self, inputs, training=False):
        x = inputs * self.scale
        for part in self.parts:
            x = part(x)
        if training:
            self.count.assign_add(1)
        return x


def test_weights_of_nested_layers_are_found_in_keras_order(device):
    with keras.device(device):
        block = Block(name="block")
        block(np.ones((3, 5), "float32"))
    assert [w.path.partition("/")[2] for w in block.weights] == [
        "scale",
        "count",
        f"{block.parts[0].name}/kernel",
        f"{block.parts[0].name}/bias",
        f"{block.parts[2].name}/kernel",
        f"{block.parts[2].name}/bias",
    ]
    assert len(block.trainable_weights) == 5
    assert [w.name for w in block.non_trainable_weights] == ["count"]
    assert {w.device for w in block.weights} == {device}
    assert block.count_params() == 5 + 1 + 24 + 10


def test_freezing_reaches_down_and_back(device):
    with keras.device(device):
        block = Block()
        block.build((None, 5))
        block.trainable = False
        block(np.ones((3, 5), "float32"))
    assert block.trainable_weights == []
    assert len(block.non_trainable_weights) == 6
    block.trainable = True
    assert len(block.trainable_weights) == 5
    block.parts[0].trainable = False
    assert len(block.trainable_weights) == 3
    assert [w.name for w in block.weights][:2] == ["scale", "count"]


def test_training_is_handed_down_and_state_is_assigned_when_a_step_runs(device):
    with keras.device(device):
        block = Block()
        x = np.ones((64, 5), "float32")
        block(x)
        assert block.count.numpy() == 0
        block(x, training=True)
        assert block.count.numpy() == 1
        with Trace(device) as trace:
            value = trace.graph.input("x", [64, 5], "float32")
            y = block(value, training=True)
        assert block.count.numpy() == 1
        program = _core.Program.compile(trace.graph, [y], device, allow_tf32=False)
        program.run([_core.from_numpy(x, device)], steps=3)
        _core.synchronize(device)
    assert block.count.numpy() == 4


def test_losses_belong_to_the_last_call():
    class Costly(layers.Layer):
        def call(self, inputs):
            self.add_loss(ops.sum(inputs))
            return inputs

    dense = layers.Dense(2, kernel_regularizer=keras.regularizers.L2(0.5), bias_initializer="ones")
    model = keras.Sequential([keras.Input((2,)), Costly(), dense])
    model(np.ones((3, 2), "float32"))
    model(np.ones((4, 2), "float32"))
    added, penalty = (float(x) for x in model.losses)
    assert added == 8
    assert penalty == pytest.approx(0.5 * (dense.kernel.numpy() ** 2).sum(), rel=1e-6)


def test_activity_regularizer_is_per_sample():
    layer = layers.Dense(2, activity_regularizer="l2", kernel_initializer="ones")
    layer(np.ones((4, 3), "float32"))
    assert float(layer.losses[0]) == pytest.approx(0.01 * 4 * 2 * 9 / 4)


def test_automatic_names_count_up():
    keras.utils.clear_session()
    names = [layers.Conv2D(1, 1).name, layers.Conv2D(1, 1).name, layers.ReLU().name]
    assert names == ["conv2d", "conv2d_1", "re_lu"]


def test_a_layer_stays_on_the_device_of_its_weights(cuda_device):
    with keras.device("cpu"):
        layer = layers.Dense(2)
        layer.build((None, 3))
    with keras.device(cuda_device):
        assert layer(np.ones((4, 3), "float32")).device == "cpu"


def test_output_shape_of_a_layer_that_does_not_tell():
    class Halved(layers.Layer):
        def call(self, inputs):
            return ops.concatenate([inputs[:, ::2], inputs[:, 1:2]], axis=1)

    assert Halved().compute_output_shape((None, 6, 3)) == (None, 4, 3)
    assert Halved()(keras.Input((6, 3))).shape == (None, 4, 3)
    assert Halved()(keras.Input((None, 3))).shape == (None, None, 3)


def test_several_arguments_build_by_name():
    class Pair(layers.Layer):
        def build(self, left_shape, right_shape):
            self.w = self.add_weight((left_shape[-1], right_shape[-1]), name="w")

        def call(self, left, right):
            return ops.matmul(left, self.w) * right

    pair = Pair()
    y = pair(np.ones((2, 3), "float32"), np.ones((2, 4), "float32"))
    assert y.shape == (2, 4)
    assert pair.w.shape == (3, 4)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64"])
def test_dtype_of_a_layer_is_that_of_weights_and_output(dtype, device):
    with keras.device(device):
        layer = layers.Dense(3, dtype=dtype)
        y = layer(np.ones((2, 4), "float32"))
    assert layer.kernel.dtype == dtype
    assert y.dtype == dtype


def test_keras_tensors_of_ops_become_part_of_the_model():
    x = keras.Input((4,))
    y = (x * 2.0 + 1.0)[:, :2]
    model = keras.Model(x, y)
    data = np.arange(8, dtype="float32").reshape(2, 4)
    np.testing.assert_array_equal(model(data).numpy(), (data * 2 + 1)[:, :2])


@pytest.mark.parametrize("package", ["kerascnn", "keras"])
def test_paths_and_metrics_of_a_layer_of_ones_own(package):
    module = pytest.importorskip(package)

    class Watched(module.layers.Layer):
        def __init__(self):
            super().__init__(name="watched")
            self.mean = module.metrics.Mean(name="mean_output")
            self.inner = module.layers.Dense(2, name="inner")

        def build(self, input_shape):
            self.scale = self.add_variable((1,), "ones", name="scale")
            self.inner.build(input_shape)

        def call(self, inputs):
            outputs = self.inner(inputs) * self.scale
            self.mean.update_state(outputs)
            return outputs

    layer = Watched()
    assert layer.path is None
    layer(np.ones((2, 3), "float32"))
    assert (layer.path, layer.inner.path) == ("watched", "watched/inner")
    assert layer.scale.path == "watched/scale"
    assert layer.metrics == [layer.mean] and layer.inner.metrics == []
    assert layer.metrics_variables == layer.mean.variables
    assert len(layer.variables) == 3  # Metrics have their own variables.
    assert module.layers.Flatten(name="flat").path is None


@pytest.mark.parametrize("package", ["kerascnn", "keras"])
def test_variables_are_numbers_but_no_conditions(package):
    module = pytest.importorskip(package)
    variable = module.Variable(2.56, trainable=False)
    assert (int(variable), float(variable)) == (2, float(np.float32(2.56)))
    assert (float(+variable), float(-variable)) == (float(variable), -float(variable))
    assert float(round(variable, 1)) == float(np.float32(2.6))
    assert int(module.optimizers.SGD().iterations) == 0
    with pytest.raises(TypeError, match="condition|boolean"):
        bool(variable)
