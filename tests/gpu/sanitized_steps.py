"""Trains, predicts and runs single operations on a GPU, for tools that check each memory access.

    python tests/gpu/sanitized_steps.py [--short] [--by-rules] [names of parts]

There are few steps, because these tools make a run a hundred times as long. --short runs even less,
for the slowest tools. --by-rules leaves out the timing of kernels, which runs dozens of candidates
many times each. With names of parts, such as train_recurrent_networks, only these run.
`test_compute_sanitizer.py` runs this under each tool of NVIDIA's compute-sanitizer, and
`test_poisoned_memory.py` in memory full of NaN.
"""

import itertools
import os
import sys
import time

import numpy as np

import kerascnn as keras
from kerascnn import layers, ops

SHORT = "--short" in sys.argv
BY_RULES = "--by-rules" in sys.argv


def each_policy(*policies):
    """Makes these policies the global one in turn, then float32 again."""
    for policy in policies:
        keras.config.set_dtype_policy(policy)
        yield policy
    keras.config.set_dtype_policy("float32")


def mnist_network(activation):
    """Its kernels are the fused ones for few channels; after gelu the separate ones run."""
    model = keras.Sequential(
        [
            keras.Input((28, 28, 1)),
            layers.Rescaling(1 / 255),
            layers.Conv2D(32, 3, padding="same", activation=activation),
            layers.MaxPooling2D(),
            layers.Conv2D(64, 3, padding="same", activation=activation),
            layers.MaxPooling2D(),
            layers.Flatten(),
            layers.Dropout(0.3),
            layers.Dense(32, activation=activation),
            layers.BatchNormalization(),
            layers.Dense(10),
        ]
    )
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile("adam", loss, metrics=["accuracy"])
    return model


def train_from_every_source(rng):
    # The last batch is smaller than the others.
    x = rng.integers(0, 256, (100 if SHORT else 150, 28, 28, 1), np.uint8)
    y = rng.integers(0, 10, len(x), np.uint8)
    for activation in ("relu",) if SHORT else ("relu", "gelu"):
        model = mnist_network(activation)
        model.fit(x, y, batch_size=64, epochs=2, verbose=0)
        print(activation, model.evaluate(x, y, verbose=0), model.predict(x, verbose=0).shape)
    on_device = ops.convert_to_tensor(x), ops.convert_to_tensor(y)
    model.fit(*on_device, batch_size=64, epochs=2, verbose=0)
    for images, labels in ((x, y), on_device):
        batches = ((images[:64], labels[:64]) for _ in range(3))
        model.fit(batches, steps_per_epoch=3, shuffle=False, verbose=0)
    return model, *on_device


def train_by_hand(model, images, labels, rng):
    loss_of = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    optimizer = keras.optimizers.Adam()

    @keras.jit
    def step(picked):
        x, y = ops.take(images, picked, axis=0), ops.take(labels, picked, axis=0)
        with keras.GradientTape() as tape:
            loss = loss_of(y, model(x, training=True))
        weights = model.trainable_variables
        optimizer.apply(tape.gradient(loss, weights), weights)
        return loss

    for _ in range(6 if SHORT else 40):
        loss = step(rng.integers(0, len(images), 64).astype("int32"))
    print("by hand", float(loss))


def train_mnist_networks(rng):
    train_by_hand(*train_from_every_source(rng), rng)


def single_operations(rng):
    a = ops.convert_to_tensor(rng.standard_normal((37, 53)).astype("float32"))
    for result in (
        ops.maximum(a, 0.3),
        ops.minimum(a, ops.transpose(ops.transpose(a))),
        ops.clip(a, -1, 1),
        ops.softplus(a),
        ops.gelu(a),
        ops.sum(a, 1),
        ops.max(a, 0),
        ops.where(a > 0, a, 1.0),
        ops.erf(a),
        ops.matmul(a, ops.transpose(a)),
        ops.softmax(a),
        ops.argsort(a),
    ):
        assert np.isfinite(result.numpy()).all()


def recurrent_model(units, masked):
    """Builds an LSTM followed by a GRU. The loss reads the last state."""
    return keras.Sequential(
        [
            keras.Input((4,), dtype="int32"),
            layers.Embedding(20, 8, mask_zero=masked),
            layers.LSTM(units, return_sequences=True),
            layers.GRU(units, return_sequences=True, go_backwards=True),
            layers.GlobalAveragePooling1D(),
            layers.Dense(3),
        ]
    )


def train_recurrent_networks(rng):
    """Runs sequences in one launch, by rows and on tensor cores, or (float64) step by step."""
    words = rng.integers(0, 20, (9, 4), np.int32)
    y = np.ones((9, 3), "float32")
    units_of = {"float32": [100], "mixed_bfloat16": [140], "float64": [20]}
    if not SHORT:
        units_of["float32"] += [40, 140, 260]
        units_of["mixed_bfloat16"] += [300]
        units_of["mixed_float16"] = [70]
    for policy in each_policy(*units_of):
        for units, masked in itertools.product(
            units_of[policy], (True,) if SHORT else (False, True)
        ):
            model = recurrent_model(units, masked)
            model.compile("sgd", "mse")
            model.fit(words, y, batch_size=9, epochs=1 if SHORT else 2, verbose=0)
            print("recurrent", policy, units, masked, model.evaluate(words, y, verbose=0))


def loops_and_choices(rng):
    """Runs loops and choices, which are conditional nodes unless KERASCNN_CUDA_BODIES is 0."""
    x = ops.convert_to_tensor(rng.standard_normal((5, 3)).astype("float32"))

    @keras.jit
    def steps(x):
        def step(carry, row):
            carry = carry + ops.tanh(row)
            return carry, carry * row

        carry, rows = ops.scan(step, ops.zeros(3), x)
        chosen = ops.cond(ops.sum(carry) > 0, lambda: carry * 2, lambda: carry - 1)
        return ops.fori_loop(0, 3, lambda i, y: y + ops.sum(rows), chosen)

    for _ in range(3):
        result = steps(x)
    limit = ops.while_loop(lambda y: ops.sum(y) < 50.0, lambda y: (y * 2,), (ops.abs(x),))
    print("loops", result.numpy(), float(ops.sum(limit[0])))


def train_with_generated_kernels(rng):
    """Trains with regions of all kinds, for which kernels are generated, at odd sizes."""
    os.environ["KERASCNN_CUDA_REGIONS"] = "2"  # this includes small regions
    x = rng.standard_normal((7, 5, 9, 3)).astype("float32")
    y = rng.integers(0, 13, 7)
    for policy in each_policy("float32", "mixed_float16", *[] if SHORT else ["mixed_bfloat16"]):
        for filters in (8,) if SHORT else (1, 8, 13):
            inputs = keras.Input((5, 9, 3))
            images = layers.BatchNormalization()(layers.Conv2D(filters, 3, padding="same")(inputs))
            more = layers.BatchNormalization()(layers.Conv2D(filters, 1)(layers.ReLU()(images)))
            images = layers.ReLU()(layers.Add()([images, more]))
            words = layers.Reshape((45, filters))(layers.GroupNormalization(1)(images))
            words = layers.LayerNormalization()(layers.Dense(11, activation="gelu")(words))
            words = layers.Dropout(0.2)(layers.Softmax()(words))
            outputs = layers.Dense(13, activation="softmax", dtype="float32")(
                layers.GlobalAveragePooling1D()(words)
            )
            model = keras.Model(inputs, outputs)
            model.compile("adam", "sparse_categorical_crossentropy")
            model.fit(x, y, batch_size=7, epochs=1 if SHORT else 2, verbose=0)
            print("generated", policy, filters, model.evaluate(x, y, verbose=0))
    del os.environ["KERASCNN_CUDA_REGIONS"]


def train_with_kernels_of_libraries(rng):
    """Trains wide layers, which use cuDNN and cuBLASLt, also with kernels chosen by timing."""
    x = rng.standard_normal((64, 16, 16, 16)).astype("float32")
    y = np.ones((64, 4), "float32")
    for policy in each_policy("float32", *[] if SHORT else ["mixed_bfloat16"]):
        for timed in (False,) if BY_RULES else (False, True):
            keras.config.set_autotune(timed)
            model = keras.Sequential(
                [
                    keras.Input((16, 16, 16)),
                    layers.Conv2D(32, 3, padding="same", activation="gelu"),
                    layers.Conv2D(64, 3, padding="same"),
                    layers.MaxPooling2D(),
                    layers.Flatten(),
                    layers.Dense(300),
                    layers.Dense(4),
                ]
            )
            model.compile("sgd", "mse")
            model.fit(x, y, batch_size=64, epochs=2, verbose=0)
            print(policy, "timed" if timed else "by rules", model.evaluate(x, y, verbose=0))


def train_a_kernel_by_warpgroups(rng):
    """Runs the gradient of a kernel of many channels, which is not cuDNN's in float32."""
    x = rng.standard_normal((64, 16, 15, 64)).astype("float32")
    model = keras.Sequential(
        [
            keras.Input((16, 15, 64)),
            layers.Conv2D(64, 3, padding="same"),
            layers.GlobalAveragePooling2D(),
        ]
    )
    model.compile("sgd", "mse")
    model.fit(x, x[:, 0, 0], batch_size=64, epochs=1 if SHORT else 2, verbose=0)
    print("by warpgroups", model.evaluate(x, x[:, 0, 0], verbose=0))


def train_few_channels_by_warpgroups(rng):
    """Runs convolutions of 64 channels with the statistics of what they give, in 16 bits.

    Nothing else is large enough for that kernel, which other convolutions are not.
    """
    x = rng.standard_normal((17, 31, 33, 64)).astype("float32")
    for policy in each_policy("mixed_bfloat16", "mixed_float16"):
        inputs = keras.Input((31, 33, 64))
        images = layers.Conv2D(72, 3, padding="same", use_bias=False)(inputs)
        images = layers.BatchNormalization()(images)
        outputs = layers.GlobalAveragePooling2D(dtype="float32")(images)
        model = keras.Model(inputs, outputs)
        model.compile("sgd", "mse")
        target = np.zeros((17, 72), "float32")
        model.fit(x, target, batch_size=17, epochs=1 if SHORT else 2, verbose=0)
        print("few channels", policy, model.evaluate(x, target, batch_size=17, verbose=0))


def train_attention_by_warpgroups(rng):
    """Runs attention of heads of 64 numbers, whose gradients have an own kernel."""
    x = rng.standard_normal((17, 131, 24)).astype("float32")
    for policy in each_policy("mixed_bfloat16", "mixed_float16"):
        words = keras.Input((131, 24))
        attended = layers.MultiHeadAttention(2, 64)(words, words)
        model = keras.Model(words, layers.GlobalAveragePooling1D(dtype="float32")(attended))
        model.compile("sgd", "mse")
        model.fit(x, x[:, 0], batch_size=17, epochs=1 if SHORT else 2, verbose=0)
        print("attention", policy, model.evaluate(x, x[:, 0], batch_size=17, verbose=0))


def train_with_kernels_of_everyday_networks(rng):
    """Runs patches as products, depthwise convolutions, pooling and attention, at odd sizes."""
    x = rng.integers(0, 256, (7, 35, 33, 3), np.uint8)
    y = rng.integers(0, 13, 7)
    for policy in each_policy(*[] if SHORT else ["float32", "mixed_float16"], "mixed_bfloat16"):
        inputs = keras.Input((35, 33, 3), dtype="uint8")
        images = layers.Rescaling(1 / 255)(inputs)
        images = layers.Conv2D(40, 7, 2, padding="same", activation="relu")(images)
        images = layers.MaxPooling2D(3, 2, padding="same")(images)
        images = layers.DepthwiseConv2D(3, padding="same", activation="relu")(images)
        images = layers.Conv2D(24, 1, activation="relu")(images)
        images = layers.DepthwiseConv2D((5, 7), padding="same")(images)
        strided = layers.DepthwiseConv2D(3, 2, padding="same")(images)
        strided = layers.AveragePooling2D(2, padding="same")(strided)
        words = layers.Reshape((81, 24))(images)
        words = layers.MultiHeadAttention(2, 16)(words, words, use_causal_mask=True)
        both = [layers.GlobalAveragePooling2D()(strided), layers.GlobalAveragePooling1D()(words)]
        outputs = layers.Dense(13, dtype="float32")(layers.Concatenate()(both))
        model = keras.Model(inputs, outputs)
        model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
        model.fit(x, y, batch_size=7, epochs=1 if SHORT else 2, verbose=0)
        print("everyday", policy, model.evaluate(x, y, verbose=0))


def predict_with_activations_in_convolutions(rng):
    """Runs 1x1 convolutions that end with an activation, with more pixels than tiles hold."""
    x = rng.random((7, 31, 33, 72), np.float32)
    for policy in each_policy("float32", "mixed_bfloat16", "mixed_float16"):
        inputs = keras.Input(x.shape[1:])
        images = layers.Conv2D(136, 1, activation="silu")(inputs)
        images = layers.Conv2D(72, 1, activation="relu6")(images)
        images = layers.Conv2D(200, 1, use_bias=False, activation="gelu")(images)
        model = keras.Model(inputs, layers.GlobalAveragePooling2D()(images))
        result = model.predict(x, batch_size=7, verbose=0)
        assert np.isfinite(result).all()
        print("activations", policy, result.shape)


def train_with_large_images(rng):
    """Runs the kernels that only take large calls: a first layer's, and those of sums of parts."""
    x = rng.integers(0, 256, (44, 64, 62, 3), np.uint8)
    y = rng.integers(0, 5, 44)
    for policy in each_policy("float32", "mixed_bfloat16" if SHORT else "mixed_float16"):
        inputs = keras.Input((64, 62, 3), dtype="uint8")
        scaled = layers.Rescaling(1 / 255)(inputs)
        images = layers.Conv2D(32, 3, activation="relu")(scaled)
        images = layers.GroupNormalization(4)(images)
        squeezed = layers.GlobalAveragePooling2D(keepdims=True)(images)
        images = layers.Multiply()([images, layers.Dense(32, activation="sigmoid")(squeezed)])
        coarse = layers.Conv2D(32, 7, 2, padding="same", activation="relu")(scaled)
        both = [layers.GlobalAveragePooling2D()(images), layers.GlobalAveragePooling2D()(coarse)]
        outputs = layers.Dense(5, dtype="float32")(layers.Concatenate()(both))
        model = keras.Model(inputs, outputs)
        model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
        model.fit(x, y, batch_size=44, epochs=1, verbose=0)
        print("large images", policy, model.evaluate(x, y, batch_size=44, verbose=0))


PARTS = [
    train_mnist_networks,
    single_operations,
    loops_and_choices,
    train_recurrent_networks,
    train_with_generated_kernels,
    train_with_kernels_of_everyday_networks,
    predict_with_activations_in_convolutions,
    train_with_large_images,
    train_a_kernel_by_warpgroups,
    train_few_channels_by_warpgroups,
    train_attention_by_warpgroups,
    train_with_kernels_of_libraries,
]

if __name__ == "__main__":
    keras.config.set_device("cuda:0")
    keras.utils.set_random_seed(1)
    rng = np.random.default_rng(0)
    names = [argument for argument in sys.argv[1:] if not argument.startswith("--")]
    if unknown := set(names) - {part.__name__ for part in PARTS}:
        sys.exit(f"no such parts: {', '.join(sorted(unknown))}")
    start = time.perf_counter()
    for part in PARTS:
        if not names or part.__name__ in names:
            part(rng)
            seconds = time.perf_counter() - start
            print(f"{seconds:.0f} s", part.__name__, file=sys.stderr, flush=True)
