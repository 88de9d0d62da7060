"""Sequences: stacked recurrent layers, states between layers and batches, custom cells."""

import numpy as np
from guide_tools import from_history, main, start_from


def lines(samples, steps, features, seed):
    """Returns noisy lines, and whether they rise."""
    rng = np.random.default_rng(seed)
    slope = rng.choice([-1.0, 1.0], (samples, 1, 1))
    x = slope * np.linspace(-1, 1, steps)[None, :, None] + 0.3 * rng.standard_normal(
        (samples, steps, features)
    )
    return x.astype("float32"), (slope[:, 0, 0] > 0).astype("int32")


def train(keras, name, model, x, y, numbers):
    model.compile(
        keras.optimizers.SGD(0.1),
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
    )
    history = model.fit(x, y, batch_size=8, epochs=2, shuffle=False, verbose=0)
    numbers |= from_history(name, history)
    numbers[f"{name}: scores"] = model.predict(x[:5], verbose=0)


def words(keras, numbers):
    """Reads texts as sequences of words and skips the zeros that pad them."""
    rng = np.random.default_rng(3)
    x = rng.integers(1, 30, (24, 9)) * (np.arange(9) < rng.integers(2, 10, (24, 1)))
    y = (x[:, 0] > 15).astype("int32")
    model = keras.Sequential()
    model.add(keras.layers.Embedding(input_dim=30, output_dim=6, mask_zero=True))
    model.add(keras.layers.GRU(8, return_sequences=True))
    model.add(keras.layers.SimpleRNN(7))
    model.add(keras.layers.Dense(2))
    model.build((None, 9))
    train(keras, "words", start_from(model), x.astype("int32"), y, numbers)


def both_ways(keras, numbers):
    x, y = lines(24, 6, 3, seed=5)
    model = keras.Sequential([keras.Input((6, 3))])
    model.add(keras.layers.Bidirectional(keras.layers.LSTM(5, return_sequences=True)))
    model.add(keras.layers.Bidirectional(keras.layers.LSTM(4), merge_mode="ave"))
    model.add(keras.layers.Dense(2))
    train(keras, "both ways", start_from(model), x, y, numbers)


def translation(keras, numbers):
    """The decoder starts from the final state of the encoder."""
    source = keras.Input((None,), dtype="int32")
    embedded = keras.layers.Embedding(20, 5)(source)
    output, state_h, state_c = keras.layers.LSTM(6, return_state=True, name="encoder")(embedded)
    target = keras.Input((None,), dtype="int32")
    embedded = keras.layers.Embedding(25, 4)(target)
    decoded = keras.layers.LSTM(6, name="decoder")(embedded, initial_state=[state_h, state_c])
    joined = keras.layers.Concatenate()([output, decoded])
    model = start_from(keras.Model([source, target], keras.layers.Dense(3)(joined)))
    rng = np.random.default_rng(7)
    x = [rng.integers(0, 20, (16, 5)).astype("int32"), rng.integers(0, 25, (16, 7)).astype("int32")]
    y = rng.integers(0, 3, 16)
    model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    numbers |= from_history("translation", model.fit(x, y, epochs=2, shuffle=False, verbose=0))


def long_sequences(keras, numbers):
    """A layer keeps its state between pieces of a sequence, and hands it to another layer."""
    paragraphs = [np.full((4, 3, 2), 0.1 * i, "float32") for i in range(1, 4)]
    layer = keras.layers.LSTM(5, stateful=True)
    layer.build((4, 3, 2))
    start_from(layer)
    for i, paragraph in enumerate(paragraphs):
        numbers[f"piece {i}"] = np.asarray(keras.ops.convert_to_numpy(layer(paragraph)))
    other = keras.layers.LSTM(5)
    other.build((4, 3, 2))
    other.set_weights(layer.get_weights())
    states = [keras.ops.convert_to_tensor(v) for v in layer.states]
    output = other(paragraphs[0], initial_state=states)
    numbers["handed on"] = keras.ops.convert_to_numpy(output)
    layer.reset_state()
    numbers["from the beginning"] = keras.ops.convert_to_numpy(layer(paragraphs[0]))


def own_cell(keras, numbers):
    """Runs a custom cell alone and stacked with a built-in one."""
    ops = keras.ops

    class MinimalCell(keras.layers.Layer):
        def __init__(self, units, **kwargs):
            super().__init__(**kwargs)
            self.units = units
            self.state_size = units

        def build(self, input_shape):
            self.kernel = self.add_weight(
                shape=(input_shape[-1], self.units), initializer="uniform", name="kernel"
            )
            self.recurrent_kernel = self.add_weight(
                shape=(self.units, self.units), initializer="uniform", name="recurrent_kernel"
            )

        def call(self, inputs, states):
            projected = ops.matmul(inputs, self.kernel)
            output = ops.tanh(projected + ops.matmul(states[0], self.recurrent_kernel))
            return output, [output]

    x, y = lines(24, 5, 2, seed=9)
    for name, cell in (
        ("own cell", lambda: MinimalCell(6)),
        ("own cell below", lambda: [MinimalCell(6), keras.layers.GRUCell(5)]),
    ):
        inputs = keras.Input((None, 2))
        model = keras.Model(inputs, keras.layers.Dense(2)(keras.layers.RNN(cell())(inputs)))
        train(keras, name, start_from(model), x, y, numbers)


def run(keras):
    numbers = {}
    words(keras, numbers)
    both_ways(keras, numbers)
    translation(keras, numbers)
    long_sequences(keras, numbers)
    own_cell(keras, numbers)
    return numbers


if __name__ == "__main__":
    main(run)
