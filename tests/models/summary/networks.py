"""Models of all kinds, made by Keras or kerascnn, for tables and plots."""


def restart_names(k):
    """Makes the library number its generated names from the start again."""
    if k.__name__ == "keras":
        from keras.src.utils.naming import reset_uids

        reset_uids()
    else:
        k.utils.clear_session(free_memory=False)


def chain(k):
    layers = k.layers
    return k.Sequential(
        [
            k.Input((8, 8, 3)),
            layers.Conv2D(4, 3, name="first"),
            layers.BatchNormalization(name="norm"),
            layers.Flatten(name="flat"),
            layers.Dense(1000, name="a_layer_with_a_very_long_name_that_needs_more_than_one_line"),
        ],
        name="chain",
    )


def unbuilt(k):
    return k.Sequential([k.layers.Dense(3, name="dense"), k.layers.ReLU(name="relu")], name="open")


def line(k):
    x = k.Input((6,), name="in")
    return k.Model(x, k.layers.Dense(2, name="out")(k.layers.Dense(4, name="mid")(x)), name="line")


def branches(k):
    a, b = k.Input((4,), name="a"), k.Input((6,), name="b")
    x = k.layers.Concatenate(name="join")([k.layers.Dense(3, name="left")(a), b])
    shared = k.layers.Dense(9, name="shared")
    y = k.layers.Add(name="add")([shared(x), shared(x)])
    return k.Model([a, b], [y, k.layers.ReLU(name="relu")(x)], name="branches")


def twice(k):
    x = k.Input((4,), name="x")
    layer = k.layers.Dense(4, name="again")
    return k.Model(x, layer(layer(x)), name="twice")


def same_tensor(k):
    x = k.Input((4,), name="x")
    return k.Model(x, k.layers.Add(name="double")([x, x]), name="same")


def nested(k):
    inner = chain(k)
    y = k.Input((8, 8, 3), name="y")
    middle = k.Model(y, inner(y), name="middle")
    x = k.Input((8, 8, 3), name="x")
    h = k.layers.Dense(2, name="[head]")(middle(x))
    return k.Model(x, {"b": h, "a": k.layers.ReLU(name="relu")(h)}, name="outer")


def several_outputs(k):
    x = k.Input((4,), name="x")
    inner = k.Model(x, [k.layers.Dense(2, name="p")(x), k.layers.Dense(3, name="q")(x)], name="two")
    z = k.Input((4,), name="z")
    p, q = inner(z)
    other = k.Model(x, {"r": k.layers.Dense(2, name="r")(x), "s": x}, name="named")
    return k.Model(z, [p, q, other(z)["r"]], name="several")


def operators(k):
    x = k.Input((4,), name="x")
    h = k.layers.Dense(4, name="h")(x)
    return k.Model(x, k.ops.relu(h) + x, name="operators")


NETWORKS = (
    chain,
    unbuilt,
    line,
    branches,
    twice,
    same_tensor,
    nested,
    several_outputs,
    operators,
)
