"""Models for the exchange of files: each function makes one in Keras (`k`) or in kerascnn.

To add one, write a function that takes the package and returns a compiled model. Decorate it with
`@model`, which takes the shapes of its inputs, what its targets are, and the layers it needs.
"""

import functools
from typing import Any, NamedTuple

import numpy as np


class Architecture(NamedTuple):
    name: str
    make: Any
    inputs: Any  # This is a shape, or a list or dictionary of shapes.
    classes: Any  # This is a number of classes, a tuple (the shape of numbers), or a dictionary.
    needs: tuple[str, ...]  # The model is skipped if one of these layers is missing.


ALL: list[Architecture] = []
SPARSE = "sparse_categorical_crossentropy"


def model(inputs, classes=3, needs=()):
    def decorator(make):
        ALL.append(Architecture(make.__name__, make, inputs, classes, needs))
        return make

    return decorator


def data(architecture, rng, samples=12):
    """Draws inputs and targets."""

    def of(structure, draw):
        if isinstance(structure, dict):
            return {key: of(value, draw) for key, value in structure.items()}
        if isinstance(structure, list):
            return [of(value, draw) for value in structure]
        return draw(structure)

    def target(kind):
        if isinstance(kind, tuple):
            return rng.normal(size=(samples, *kind)).astype("float32")
        return rng.integers(0, kind, samples)

    x = of(architecture.inputs, lambda s: rng.random((samples, *s)).astype("float32"))
    return x, of(architecture.classes, target)


@model((5,))
def perceptron(k):
    m = k.Sequential([k.Input((5,)), k.layers.Dense(4, "relu"), k.layers.Dense(3, "softmax")])
    m.compile(k.optimizers.SGD(0.1, momentum=0.9, nesterov=True), SPARSE, metrics=["accuracy"])
    return m


@model((5,))
def built_by_data(k):
    m = k.Sequential([k.layers.Dense(4, "relu", name="first"), k.layers.Dense(3)])
    m.compile("adam", k.losses.SparseCategoricalCrossentropy(from_logits=True))
    return m


@model((8, 8, 1))
def lenet(k):
    L = k.layers
    m = k.Sequential([k.Input((8, 8, 1)), L.Conv2D(4, 3, padding="same", activation="tanh")])
    m.add(L.AveragePooling2D(2))
    m.add(L.Conv2D(6, 3, strides=1, use_bias=False))
    m.add(L.Flatten())
    m.add(L.Dense(3))
    m.add(L.Softmax())
    m.compile("adam", SPARSE, weighted_metrics=["accuracy"])
    return m


@model((8, 8, 3))
def normalized(k):
    L = k.layers
    m = k.Sequential([k.Input((8, 8, 3)), L.Rescaling(2.0, offset=-1.0), L.Conv2D(4, 3)])
    m.add(L.BatchNormalization(momentum=0.8))
    m.add(L.ReLU(max_value=6.0))
    m.add(L.MaxPooling2D(2))
    m.add(L.Dropout(0.0, seed=1))
    m.add(L.GlobalAveragePooling2D())
    m.add(L.Dense(3, "softmax"))
    m.compile(k.optimizers.RMSprop(0.01, centered=True, momentum=0.5), SPARSE)
    return m


def _residual(k, x, filters):
    y = k.layers.Conv2D(filters, 3, padding="same")(x)
    y = k.layers.BatchNormalization()(y)
    y = k.layers.Activation("relu")(y)
    if x.shape[-1] != filters:
        x = k.layers.Conv2D(filters, 1, name=f"shortcut_{filters}")(x)
    return k.layers.Add()([x, y])


@model((8, 8, 3))
def resnet(k):
    x = inputs = k.Input((8, 8, 3), name="image")
    for filters in (3, 5):
        x = _residual(k, x, filters)
    x = k.layers.GlobalAveragePooling2D()(x)
    m = k.Model(inputs, k.layers.Dense(3, "softmax")(x), name="resnet")
    m.compile(k.optimizers.AdamW(0.01, weight_decay=0.01), SPARSE)
    return m


@model((8, 8, 3))
def inception(k):
    inputs = k.Input((8, 8, 3))
    branches = [k.layers.Conv2D(2, n, padding="same", activation="relu")(inputs) for n in (1, 3, 5)]
    branches.append(k.layers.Conv2D(2, 1)(k.layers.MaxPooling2D(3, 1, "same")(inputs)))
    x = k.layers.Concatenate()(branches)
    m = k.Model(inputs, k.layers.Dense(3, "softmax")(k.layers.Flatten()(x)))
    m.compile(k.optimizers.Adagrad(0.05), SPARSE)
    return m


@model((8, 8, 3))
def densenet(k):
    x = inputs = k.Input((8, 8, 3))
    for _ in range(3):
        y = k.layers.Conv2D(2, 3, padding="same", activation="elu")(x)
        x = k.layers.concatenate([x, y])
    x = k.layers.GlobalAveragePooling2D()(x)
    m = k.Model(inputs, k.layers.Dense(3, "softmax")(x))
    m.compile(k.optimizers.Nadam(0.01), SPARSE)
    return m


@model([(4,), (4,)], (1,))
def siamese(k):
    a, b = k.Input((4,), name="a"), k.Input((4,), name="b")
    tower = k.layers.Dense(3, "tanh", name="tower")
    head = k.layers.Dense(1, name="head")
    m = k.Model([a, b], head(k.layers.Concatenate()([tower(a), tower(b)])))
    m.compile(k.optimizers.Adadelta(1.0), "mse", metrics=["mae", k.metrics.RootMeanSquaredError()])
    return m


@model((8, 8, 3))
def nested(k):
    stem = k.Sequential([k.Input((8, 8, 3)), k.layers.Conv2D(3, 3), k.layers.BatchNormalization()])
    z = k.Input((6, 6, 3))
    body = k.Model(z, k.layers.Conv2D(2, 3, activation="relu")(z), name="body")
    inputs = k.Input((8, 8, 3))
    x = k.layers.Flatten()(body(stem(inputs)))
    m = k.Model(inputs, k.layers.Dense(3, "softmax")(x), name="nested")
    m.compile(k.optimizers.Adamax(0.01), SPARSE)
    return m


@model((6,))
def ends_in_a_model(k):
    z = k.Input((4,))
    head = k.Model(z, k.layers.Dense(3, "softmax")(z), name="head")
    inputs = k.Input((6,))
    m = k.Model(inputs, head(k.layers.Dense(4)(inputs)))
    m.compile("sgd", SPARSE)
    return m


@model((6,), {"kind": 3, "size": (1,)})
def two_outputs(k):
    inputs = k.Input((6,))
    x = k.layers.Dense(4, "relu")(inputs)
    outputs = {
        "kind": k.layers.Dense(3, "softmax", name="kind")(x),
        "size": k.layers.Dense(1, name="size")(x),
    }
    m = k.Model(inputs, outputs)
    m.compile(
        k.optimizers.Adam(0.01, amsgrad=True),
        {"kind": SPARSE, "size": k.losses.Huber()},
        loss_weights={"kind": 1.0, "size": 0.5},
        metrics={"kind": ["accuracy"]},
    )
    return m


@model({"left": (3,), "right": (5,)})
def dictionary_of_inputs(k):
    inputs = {"left": k.Input((3,), name="left"), "right": k.Input((5,), name="right")}
    parts = [k.layers.Dense(4)(inputs[key]) for key in ("right", "left")]
    x = k.layers.Activation("gelu")(k.layers.Add()(parts))
    m = k.Model(inputs, k.layers.Dense(3, "softmax")(x))
    m.compile(k.optimizers.Ftrl(0.05), SPARSE)
    return m


@model((6, 4))
def functions_in_the_graph(k):
    inputs = k.Input((6, 4))
    x = 2.0 * inputs - 1.0
    x = k.ops.concatenate([k.ops.mean(x, axis=1), k.ops.max(x, axis=1, keepdims=False)], axis=-1)
    x = k.ops.relu(k.layers.Dense(4)(x)) + 0.5
    m = k.Model(inputs, k.layers.Dense(3, "softmax")(x))
    m.compile(k.optimizers.Adafactor(0.05), SPARSE)
    return m


@model((6, 4))
def more_functions(k):
    inputs = k.Input((6, 4))
    x = k.ops.reshape(inputs[:, 1:3], (-1, 8))
    x = k.ops.softmax(x) - k.ops.where(x > 0.5, x, 0.0)
    a, b = k.ops.split(k.ops.squeeze(k.ops.expand_dims(x, 1), 1), 2, axis=-1)
    x = k.ops.transpose(k.ops.stack([a, b], axis=1), (0, 2, 1))
    x = k.layers.Flatten()(k.ops.clip(x, 0.0, 1.0) ** 2)
    m = k.Model(inputs, k.layers.Dense(3, "softmax")(x))
    m.compile("adam", SPARSE)
    return m


@model((8, 8, 3))
def frozen(k):
    base = k.Sequential([k.Input((8, 8, 3)), k.layers.Conv2D(4, 3), k.layers.BatchNormalization()])
    base.trainable = False
    m = k.Sequential([k.Input((8, 8, 3)), base, k.layers.Flatten(), k.layers.Dense(3, "softmax")])
    m.compile("adam", SPARSE)
    return m


@model((5,))
def scheduled(k):
    m = k.Sequential([k.Input((5,)), k.layers.Dense(4, "silu"), k.layers.Dense(3, "softmax")])
    rate = k.optimizers.schedules.CosineDecay(0.1, 20, warmup_target=0.2, warmup_steps=4)
    m.compile(k.optimizers.Adam(rate, clipnorm=0.5), SPARSE)
    return m


@model((5,))
def averaged(k):
    m = k.Sequential([k.Input((5,)), k.layers.Dense(4, "selu"), k.layers.Dense(3, "softmax")])
    optimizer = k.optimizers.SGD(
        0.1, momentum=0.5, use_ema=True, ema_momentum=0.9, ema_overwrite_frequency=2
    )
    m.compile(optimizer, SPARSE)
    return m


@model((5,))
def accumulated(k):
    m = k.Sequential([k.Input((5,)), k.layers.Dense(4, "relu"), k.layers.Dense(3, "softmax")])
    m.compile(k.optimizers.Adam(0.05, gradient_accumulation_steps=2), SPARSE)
    return m


@model((5,))
def scaled(k):
    m = k.Sequential([k.Input((5,)), k.layers.Dense(4, "relu"), k.layers.Dense(3, "softmax")])
    m.compile(k.optimizers.LossScaleOptimizer(k.optimizers.Adam(0.05), initial_scale=64.0), SPARSE)
    return m


@model((6,))
def regularized(k):
    layer = k.layers.Dense(
        4,
        activation=k.activations.softplus,
        kernel_initializer=k.initializers.RandomNormal(stddev=0.2, seed=3),
        bias_initializer=k.initializers.Constant(0.1),
        kernel_regularizer=k.regularizers.L1L2(0.01, 0.02),
        bias_regularizer="l2",
        kernel_constraint=k.constraints.MaxNorm(1.0),
        activity_regularizer=k.regularizers.L2(0.01),
    )
    m = k.Sequential([k.Input((6,)), layer, k.layers.Dense(3, "softmax")])
    m.compile(k.optimizers.Lamb(0.02), k.losses.SparseCategoricalCrossentropy())
    return m


@model((8, 8, 3))
def separable(k):
    m = k.Sequential([k.Input((8, 8, 3)), k.layers.SeparableConv2D(4, 3, depth_multiplier=2)])
    m.add(k.layers.DepthwiseConv2D(3, activation="relu6"))
    m.add(k.layers.GlobalMaxPooling2D())
    m.add(k.layers.Dense(3, "softmax"))
    m.compile("adam", SPARSE)
    return m


@model((6, 6, 2), (6, 6, 2))
def autoencoder(k):
    m = k.Sequential([k.Input((6, 6, 2)), k.layers.Conv2D(3, 3, 2, "same", activation="relu")])
    m.add(k.layers.Conv2DTranspose(2, 3, strides=2, padding="same"))
    m.compile("adam", "mean_squared_error")
    return m


@model((12, 3))
def sequences(k):
    m = k.Sequential([k.Input((12, 3)), k.layers.Conv1D(4, 3, padding="causal", dilation_rate=2)])
    m.add(k.layers.MaxPooling1D())
    m.add(k.layers.GlobalAveragePooling1D())
    m.add(k.layers.Dense(3, "softmax"))
    m.compile("adamw", SPARSE)
    return m


@model((5, 5, 5, 1))
def volumes(k):
    m = k.Sequential([k.Input((5, 5, 5, 1)), k.layers.Conv3D(2, 3, activation="relu")])
    m.add(k.layers.Flatten())
    m.add(k.layers.Dense(3, "softmax"))
    m.compile("rmsprop", SPARSE)
    return m


@model((6, 6, 4), needs=("GroupNormalization", "LayerNormalization", "UnitNormalization"))
def other_normalizations(k):
    x = inputs = k.Input((6, 6, 4))
    x = k.layers.GroupNormalization(2)(k.layers.Conv2D(4, 3)(x))
    x = k.layers.LayerNormalization()(k.layers.Conv2D(4, 3)(x))
    x = k.layers.UnitNormalization()(x)
    x = k.layers.Flatten()(x)
    m = k.Model(inputs, k.layers.Dense(3, "softmax")(x))
    m.compile("adam", SPARSE)
    return m


@model((6, 6, 4))
def shapes(k):
    x = inputs = k.Input((6, 6, 4))
    x = k.layers.ZeroPadding2D(1)(x)
    x = k.layers.Cropping2D(((1, 0), (0, 1)))(x)
    x = k.layers.UpSampling2D(2)(x)
    x = k.layers.Permute((2, 1, 3))(x)
    x = k.layers.Reshape((-1, 4))(x)
    x = k.layers.Multiply()([x, x])
    x = k.layers.Flatten()(x)
    m = k.Model(inputs, k.layers.Dense(3, "softmax")(x))
    m.compile("sgd", SPARSE)
    return m


@model((6, 8))
def attention(k):
    x = inputs = k.Input((6, 8))
    y = k.layers.MultiHeadAttention(2, 4)(x, x)
    x = k.layers.LayerNormalization()(k.layers.Add()([x, y]))
    x = k.layers.EinsumDense("abc,cd->abd", output_shape=(None, 5), bias_axes="d")(x)
    x = k.layers.GlobalAveragePooling1D()(x)
    m = k.Model(inputs, k.layers.Dense(3, "softmax")(x))
    m.compile("adam", SPARSE)
    return m


@model((4, 6, 6, 2))
def distributed_in_time(k):
    conv = k.layers.Conv2D(3, 3, name="inner")
    m = k.Sequential([k.Input((4, 6, 6, 2)), k.layers.TimeDistributed(conv)])
    m.add(k.layers.Flatten())
    m.add(k.layers.Dense(3, "softmax"))
    m.compile("adam", SPARSE)
    return m


@model((8,))
def embedded(k):
    m = k.Sequential([k.Input((8,), dtype="int32"), k.layers.Embedding(10, 4)])
    m.add(k.layers.GlobalAveragePooling1D())
    m.add(k.layers.RMSNormalization())
    m.add(k.layers.Dense(3, "softmax"))
    m.compile("rmsprop", SPARSE)
    return m


@model((6, 6, 2))
def spectral(k):
    m = k.Sequential([k.Input((6, 6, 2))])
    m.add(k.layers.SpectralNormalization(k.layers.Conv2D(3, 3, name="wrapped")))
    m.add(k.layers.Flatten())
    m.add(k.layers.Dense(3, "softmax"))
    m.compile("adam", SPARSE)
    return m


@model((8, 8, 3))
def preprocessing(k):
    L = k.layers
    m = k.Sequential([k.Input((8, 8, 3)), L.Resizing(6, 6), L.CenterCrop(5, 5)])
    m.add(L.Normalization(mean=[0.4, 0.5, 0.6], variance=[0.1, 0.2, 0.3]))
    m.add(L.Flatten())
    m.add(L.Dense(3, "softmax"))
    m.compile("adam", SPARSE)
    return m


@model((8, 8, 3))
def adapted(k):
    layer = k.layers.Normalization()
    layer.adapt(np.linspace(0, 1, 4 * 8 * 8 * 3, dtype="float32").reshape(4, 8, 8, 3))
    m = k.Sequential([k.Input((8, 8, 3)), layer, k.layers.Flatten(), k.layers.Dense(3, "softmax")])
    m.compile("adam", SPARSE)
    return m


@model((6, 6, 3))
def activation_layers(k):
    L = k.layers
    m = k.Sequential([k.Input((6, 6, 3)), L.Conv2D(4, 3), L.PReLU(shared_axes=[1, 2])])
    m.add(L.LeakyReLU(0.2))
    m.add(L.SpatialDropout2D(0.0))
    m.add(L.GaussianNoise(0.0, seed=2))
    m.add(L.AdaptiveAveragePooling2D(2))
    m.add(L.ELU())
    m.add(L.Flatten())
    m.add(L.Dense(3, "softmax"))
    m.compile(k.optimizers.Muon(0.01), SPARSE)
    return m


@model((8, 8, 3))
def xception_like(k):
    L = k.layers
    x = inputs = k.Input((8, 8, 3))
    x = L.Rescaling(1.0 / 2)(x)
    x = L.Activation("relu")(L.BatchNormalization()(L.Conv2D(4, 3, strides=2, padding="same")(x)))
    before = x
    for size in (5, 6):
        x = L.SeparableConv2D(size, 3, padding="same")(L.Activation("relu")(x))
        x = L.BatchNormalization()(x)
        x = L.MaxPooling2D(3, strides=2, padding="same")(x)
        before = L.Conv2D(size, 1, strides=2, padding="same")(before)
        x = before = L.add([x, before])
    m = k.Model(inputs, L.Dense(3)(L.Dropout(0.0)(L.GlobalAveragePooling2D()(x))))
    m.compile(k.optimizers.Adam(3e-4), k.losses.SparseCategoricalCrossentropy(from_logits=True))
    return m


@model((5,))
def several_optimizers(k):
    m = k.Sequential([k.Input((5,)), k.layers.Dense(4, name="body"), k.layers.Dense(3, "softmax")])
    choice = k.optimizers.OptimizerMap(k.optimizers.SGD(0.1, momentum=0.9))
    choice[".*body/.*"] = k.optimizers.Adam(0.01)
    m.compile(k.optimizers.MultiOptimizer(choice), SPARSE)
    return m


@functools.cache
def custom(k):
    """Returns custom classes, registered in the package that makes them."""

    @k.saving.register_keras_serializable("exchange")
    class Scale(k.layers.Layer):
        def __init__(self, offset=0.0, inner=None, **kwargs):
            super().__init__(**kwargs)
            self.offset = offset
            self.inner = inner

        def build(self, input_shape):
            self.factor = self.add_weight((input_shape[-1],), "ones", name="factor")
            if not self.inner.built:
                self.inner.build(input_shape)

        def call(self, inputs):
            return self.inner(inputs * self.factor + self.offset)

        def compute_output_shape(self, input_shape):
            return self.inner.compute_output_shape(input_shape)

        def get_config(self):
            inner = k.saving.serialize_keras_object(self.inner)
            return {**super().get_config(), "offset": self.offset, "inner": inner}

        @classmethod
        def from_config(cls, config):
            config = dict(config)
            inner = k.saving.deserialize_keras_object(config.pop("inner"))
            return cls(inner=inner, **config)

    @k.saving.register_keras_serializable("exchange")
    class Network(k.Model):
        def __init__(self, units=4, **kwargs):
            super().__init__(**kwargs)
            self.units = units
            self.blocks = [k.layers.Dense(units), [k.layers.Dense(units, "relu")]]
            self.by_name = {"last": k.layers.Dense(units)}
            self._head = k.layers.Dense(3, "softmax")

        def call(self, inputs):
            x = self.blocks[1][0](self.blocks[0](inputs))
            return self._head(self.by_name["last"](x))

        def get_config(self):
            return {**super().get_config(), "units": self.units}

    @k.saving.register_keras_serializable("exchange")
    def swish_twice(x):
        return x * k.ops.sigmoid(2.0 * x)

    return Scale, Network, swish_twice


@model((5,))
def own_layers(k):
    Scale, _, swish_twice = custom(k)
    layer = Scale(0.5, k.layers.Dense(4, activation=swish_twice))
    m = k.Sequential([k.Input((5,)), layer, k.layers.Dense(3, "softmax")])
    m.compile("adam", SPARSE)
    return m


@model((5,))
def subclassed(k):
    m = custom(k)[1](units=5)
    m.compile("adam", SPARSE)
    m.build((None, 5))
    return m


@model((6, 6, 3))
def channels_first(k):
    x = inputs = k.Input((6, 6, 3))
    x = k.layers.Conv2D(4, 3, data_format="channels_first", padding="same")(x)
    x = k.layers.BatchNormalization(axis=1)(x)
    x = k.layers.Flatten(data_format="channels_first")(x)
    m = k.Model(inputs, k.layers.Dense(3, "softmax")(x))
    m.compile("adam", SPARSE)
    return m


@model((7, 3), needs=("LSTM",))
def recurrent(k):
    layers = [
        k.layers.LSTM(4, return_sequences=True),
        k.layers.GRU(5, return_sequences=True, reset_after=False, go_backwards=True),
        k.layers.RNN([k.layers.GRUCell(4), k.layers.SimpleRNNCell(3)], return_sequences=True),
        k.layers.SimpleRNN(4, recurrent_regularizer="l2"),
    ]
    m = k.Sequential([k.Input((None, 3)), *layers, k.layers.Dense(3, "softmax")])
    m.compile("adam", SPARSE)
    return m


@model([(6, 3), (4, 2)], needs=("LSTM",))
def encoder_and_decoder(k):
    source, target = k.Input((None, 3)), k.Input((None, 2))
    _, *states = k.layers.LSTM(4, return_state=True)(source)
    x = k.layers.LSTM(4, return_sequences=True, use_cudnn=False)(target, initial_state=states)
    m = k.Model([source, target], k.layers.Dense(3, "softmax")(k.layers.GRU(5)(x)))
    m.compile(k.optimizers.RMSprop(0.01), SPARSE)
    return m


@model((3, 6, 5, 2), needs=("ConvLSTM2D",))
def moving_images(k):
    x = inputs = k.Input((3, 6, 5, 2))
    x = k.layers.ConvLSTM2D(3, 3, padding="same", return_sequences=True)(x)
    x = k.layers.TimeDistributed(k.layers.Flatten())(x)
    x = k.layers.Bidirectional(k.layers.LSTM(3, return_sequences=True))(x)
    backward = k.layers.GRU(2, go_backwards=True)
    x = k.layers.Bidirectional(k.layers.LSTM(2), merge_mode="sum", backward_layer=backward)(x)
    m = k.Model(inputs, k.layers.Dense(3, "softmax")(x))
    m.compile("adam", SPARSE)
    return m
