"""Custom transformers, distillation and image pairs, as in Keras' code examples."""

import numpy as np
from guide_tools import from_history, main, start_from

WORDS, LENGTH, WIDTH = 30, 8, 6


def layers_of(keras):
    layers, ops = keras.layers, keras.ops

    class Encoder(layers.Layer):
        def __init__(self, **kwargs):
            super().__init__(**kwargs)
            self.attention = layers.MultiHeadAttention(num_heads=2, key_dim=WIDTH)
            self.dense_proj = keras.Sequential(
                [layers.Dense(10, activation="relu"), layers.Dense(WIDTH)]
            )
            self.layernorm_1 = layers.LayerNormalization()
            self.layernorm_2 = layers.LayerNormalization()
            self.supports_masking = True

        def call(self, inputs, mask=None):
            padding = None if mask is None else ops.cast(mask[:, None, :], dtype="int32")
            attended = self.attention(
                query=inputs, value=inputs, key=inputs, attention_mask=padding
            )
            inner = self.layernorm_1(inputs + attended)
            return self.layernorm_2(inner + self.dense_proj(inner))

    class Decoder(layers.Layer):
        def __init__(self, **kwargs):
            super().__init__(**kwargs)
            self.own = layers.MultiHeadAttention(num_heads=2, key_dim=WIDTH)
            self.other = layers.MultiHeadAttention(num_heads=2, key_dim=WIDTH)
            self.dense_proj = keras.Sequential(
                [layers.Dense(10, activation="relu"), layers.Dense(WIDTH)]
            )
            self.norms = [layers.LayerNormalization() for _ in range(3)]
            self.supports_masking = True

        def call(self, inputs, mask=None):
            inputs, encoded = inputs
            mine, theirs = (None, None) if mask is None else mask
            causal = self.causal_attention_mask(inputs)
            attended = self.own(
                query=inputs,
                value=inputs,
                key=inputs,
                attention_mask=causal,
                query_mask=mine,
            )
            first = self.norms[0](inputs + attended)
            attended = self.other(
                query=first, value=encoded, key=encoded, query_mask=mine, key_mask=theirs
            )
            second = self.norms[1](first + attended)
            return self.norms[2](second + self.dense_proj(second))

        def causal_attention_mask(self, inputs):
            shape = ops.shape(inputs)
            batch_size, length = shape[0], shape[1]
            rows, columns = ops.arange(length)[:, None], ops.arange(length)
            mask = ops.reshape(ops.cast(rows >= columns, dtype="int32"), (1, length, length))
            counts = ops.concatenate(
                [ops.expand_dims(batch_size, -1), ops.convert_to_tensor([1, 1])], axis=0
            )
            return ops.tile(mask, counts)

    class Positions(layers.Layer):
        def __init__(self, **kwargs):
            super().__init__(**kwargs)
            self.tokens = layers.Embedding(WORDS, WIDTH)
            self.places = layers.Embedding(LENGTH, WIDTH)

        def call(self, inputs):
            places = ops.arange(0, ops.shape(inputs)[-1], 1)
            return self.tokens(inputs) + self.places(places)

        def compute_mask(self, inputs, mask=None):
            return ops.not_equal(inputs, 0)

    return Encoder, Decoder, Positions


def translation(keras, numbers):
    """Translates sentences of any length, which zeros pad to one length."""
    Encoder, Decoder, Positions = layers_of(keras)
    source = keras.Input((None,), dtype="int64", name="source")
    target = keras.Input((None,), dtype="int64", name="target")
    encoded = Encoder()(Positions()(source))
    decoded = Decoder()([Positions()(target), encoded])
    outputs = keras.layers.Dense(WORDS, activation="softmax")(decoded)
    model = start_from(keras.Model({"source": source, "target": target}, outputs))
    model.compile(
        keras.optimizers.SGD(0.1), keras.losses.SparseCategoricalCrossentropy(ignore_class=0)
    )
    rng = np.random.default_rng(8)
    for length in (LENGTH, 5):
        shape = (16, length)
        words = {name: rng.integers(1, WORDS, shape) for name in ("source", "target")}
        for text in words.values():
            text[np.arange(length) >= rng.integers(2, length + 1, (16, 1))] = 0
        y = np.roll(words["target"], -1, axis=1)
        history = model.fit(words, y, batch_size=8, epochs=2, shuffle=False, verbose=0)
        numbers |= from_history(f"translation of {length}", history)
        # Scores at the padding have no meaning and are left out.
        there = words["target"][..., None] != 0
        numbers[f"translation of {length}: scores"] = there * model.predict(words, verbose=0)


def student(keras, numbers):
    """A student learns from the softened scores of a teacher."""
    ops = keras.ops

    class Distiller(keras.Model):
        def __init__(self, student, teacher):
            super().__init__()
            self.student, self.teacher = student, teacher
            self.teacher.trainable = False

        def call(self, x):
            return self.student(x)

        def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, training=True):
            soft = ops.softmax(self.teacher(x, training=False) / 3.0, axis=1)
            distance = keras.losses.KLDivergence()(soft, ops.softmax(y_pred / 3.0, axis=1))
            loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)(y, y_pred)
            return 0.2 * loss + 0.8 * 9.0 * distance

    def network(filters):
        model = keras.Sequential([keras.Input((8, 9, 1))])
        model.add(keras.layers.Conv2D(filters, 3, strides=2, padding="same"))
        model.add(keras.layers.LeakyReLU(negative_slope=0.2))
        model.add(keras.layers.Flatten())
        model.add(keras.layers.Dense(4))
        return start_from(model)

    rng = np.random.default_rng(9)
    x, y = rng.random((24, 8, 9, 1), "float32"), rng.integers(0, 4, 24)
    model = Distiller(network(3), network(6))
    model.compile(keras.optimizers.SGD(0.05), metrics=["sparse_categorical_accuracy"])
    history = model.fit(x, y, batch_size=8, epochs=2, shuffle=False, verbose=0)
    numbers |= from_history("student", history)
    numbers["student: scores"] = model.predict(x, verbose=0)


def pairs(keras, numbers):
    """One network maps both images; the distance of the results tells whether they match."""
    ops = keras.ops

    def distance(vectors):
        a, b = vectors
        squares = ops.sum(ops.square(a - b), axis=1, keepdims=True)
        return ops.sqrt(ops.maximum(squares, keras.backend.epsilon()))

    def contrastive(y_true, y_pred):
        margin = ops.square(ops.maximum(1.0 - y_pred, 0))
        return ops.mean((1 - y_true) * ops.square(y_pred) + y_true * margin)

    inner = keras.Input((10,))
    embedding = keras.Model(inner, keras.layers.Dense(4, activation="tanh")(inner))
    first, second = keras.Input((10,)), keras.Input((10,))
    apart = keras.layers.Lambda(distance, output_shape=(1,))([embedding(first), embedding(second)])
    outputs = keras.layers.Dense(1, activation="sigmoid")(apart)
    model = start_from(keras.Model([first, second], outputs))
    model.compile(keras.optimizers.RMSprop(0.01), contrastive, metrics=["accuracy"])
    rng = np.random.default_rng(10)
    x = [rng.random((24, 10), "float32") for _ in range(2)]
    y = rng.integers(0, 2, (24, 1)).astype("float32")
    history = model.fit(x, y, batch_size=8, epochs=2, shuffle=False, verbose=0)
    numbers |= from_history("pairs", history)


def run(keras):
    numbers = {}
    for part in (translation, student, pairs):
        part(keras, numbers)
    return numbers


if __name__ == "__main__":
    main(run)
