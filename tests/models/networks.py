"""Networks that Keras and kerascnn make alike."""


def chain(keras):
    layers = keras.layers
    return keras.Sequential(
        [
            keras.Input((12, 12, 1), name="image"),
            layers.Rescaling(1 / 255, name="scale"),
            layers.Conv2D(4, 3, activation="relu", name="conv"),
            layers.MaxPooling2D(name="pool"),
            layers.BatchNormalization(name="norm"),
            layers.Flatten(name="flat"),
            layers.Dropout(0.5, name="drop"),
            layers.Dense(10, activation="softmax", name="scores"),
        ],
        name="chain",
    )


def residual(keras):
    layers = keras.layers
    x = keras.Input((8, 8, 3), name="image")
    y = layers.Conv2D(6, 3, padding="same", name="entry")(x)
    for i in range(2):
        branch = layers.BatchNormalization(name=f"norm_{i}")(y)
        branch = layers.Conv2D(6, 3, padding="same", use_bias=False, name=f"conv_{i}")(branch)
        branch = layers.ReLU(name=f"relu_{i}")(branch)
        y = layers.Add(name=f"add_{i}")([y, branch])
    y = layers.GlobalAveragePooling2D(name="mean")(y)
    return keras.Model(x, layers.Dense(3, name="scores")(y), name="residual")


def several(keras):
    """Returns a model with two inputs, a shared layer and two outputs."""
    layers = keras.layers
    left, right = keras.Input((5,), name="left"), keras.Input((5,), name="right")
    late = layers.Dense(3, name="late")
    shared = layers.Dense(4, activation="tanh", name="shared")
    a, b = shared(left), shared(right)
    joined = layers.Concatenate(name="joined")([a, b])
    first = layers.Dense(2, name="first")(joined)
    return keras.Model([left, right], [first, late(b)], name="several")


def nested(keras):
    layers = keras.layers
    inner = keras.Sequential(
        [keras.Input((6,), name="inner_in"), layers.Dense(4, name="inner_dense")], name="inner"
    )
    x = keras.Input((6,), name="x")
    return keras.Model(x, layers.Dense(2, name="outer")(inner(x)), name="nested")


NETWORKS = (chain, residual, several, nested)


def input_shapes(model):
    shapes = model.input_shape
    return shapes if isinstance(shapes, list) else [shapes]
