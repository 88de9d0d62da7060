"""Random layers with random arguments, as dictionaries that JSON can hold.

A layer is drawn for the shape that it is given. Most arguments are legal there; some are not, so
that what is refused is compared too.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

Config = dict[str, Any]
Shape = tuple[Any, ...]

ACTIVATIONS = (
    *("linear", "relu", "sigmoid", "tanh", "softmax", "softplus", "softsign", "elu", "selu"),
    *("gelu", "silu", "exponential", "hard_sigmoid", "leaky_relu", "mish", "log_softmax", "relu6"),
    *("celu", "hard_silu", "hard_tanh", "log_sigmoid", None),
)
_SMOOTH = ("tanh", "sigmoid", "softplus", "silu", None)


def _activation(rng: Random) -> Any:
    return rng.choice(ACTIVATIONS)


def _regularizer(rng: Random) -> Any:
    return rng.choice([None, None, "l2", "l1"])


def _kernels(rng: Random, shape: Shape, most: int = 3) -> Config:
    """Sizes, strides, dilation and padding for the axes between batch and channels."""
    rank = len(shape) - 2
    config: Config = {
        "kernel_size": rng.choice(
            [rng.randint(1, most), [rng.randint(1, most) for _ in range(rank)]]
        )
    }
    kind = rng.randrange(4)
    if kind == 0:
        config["strides"] = rng.choice([1, 2, 3])
    elif kind == 1:
        config["dilation_rate"] = rng.choice([1, 2, 3])
    config["padding"] = rng.choice(["valid", "same"])
    return config


def _weights(rng: Random) -> Config:
    config: Config = {"use_bias": rng.random() < 0.7, "activation": _activation(rng)}
    if rng.random() < 0.2:
        config["kernel_regularizer"] = _regularizer(rng)
    if rng.random() < 0.1:
        config["activity_regularizer"] = "l2"
    if rng.random() < 0.15:
        config["kernel_constraint"] = rng.choice(["max_norm", "non_neg", "unit_norm"])
    return config


def _dense(rng: Random, _: Shape) -> Config:
    return {"units": rng.randint(1, 6), **_weights(rng)}


def _conv(rng: Random, shape: Shape) -> Config:
    config = {"filters": rng.randint(1, 4), **_kernels(rng, shape), **_weights(rng)}
    channels = shape[-1]
    if rng.random() < 0.25 and isinstance(channels, int) and channels > 1:
        groups = rng.choice([n for n in range(1, channels + 1) if channels % n == 0])
        config.update(groups=groups, filters=groups * rng.randint(1, 2))
    if len(shape) == 3 and rng.random() < 0.3:
        config["padding"] = "causal"
    return config


def _transposed(rng: Random, shape: Shape) -> Config:
    return {"filters": rng.randint(1, 4), **_kernels(rng, shape), **_weights(rng)}


def _depthwise(rng: Random, shape: Shape) -> Config:
    kernels, weights = _kernels(rng, shape), _weights(rng)
    if isinstance(kernels.get("strides"), list):
        kernels["strides"] = 1
    for key in ("kernel_regularizer", "kernel_constraint"):
        if key in weights:
            weights[f"depthwise_{key[7:]}"] = weights.pop(key)
    return {"depth_multiplier": rng.randint(1, 2), **kernels, **weights}


def _separable(rng: Random, shape: Shape) -> Config:
    config = _depthwise(rng, shape)
    return {"filters": rng.randint(1, 4), **config}


def _pool(rng: Random, shape: Shape) -> Config:
    rank = len(shape) - 2
    size = rng.choice([1, 2, 3, [rng.randint(1, 3) for _ in range(rank)]])
    config: Config = {"pool_size": size}
    if rng.random() < 0.5:
        config["strides"] = rng.choice([1, 2, 3])
    # Keras on PyTorch repeats the border in "same" means; see docs/differences/models_and_layers.md
    return config


def _max_pool(rng: Random, shape: Shape) -> Config:
    return {**_pool(rng, shape), "padding": rng.choice(["valid", "same"])}


def _global(rng: Random, _: Shape) -> Config:
    return {"keepdims": rng.random() < 0.3}


def _axis(rng: Random, shape: Shape) -> int:
    return rng.choice([-1, -1, len(shape) - 1, rng.randrange(1, len(shape))])


def _batch_norm(rng: Random, shape: Shape) -> Config:
    return {
        "axis": _axis(rng, shape),
        "momentum": rng.choice([0.99, 0.5, 0.0]),
        "epsilon": rng.choice([1e-3, 1e-2, 0.1]),
        "center": rng.random() < 0.8,
        "scale": rng.random() < 0.8,
    }


def _layer_norm(rng: Random, _: Shape) -> Config:
    # other axes: see docs/differences/models_and_layers.md
    return {
        "epsilon": rng.choice([1e-3, 0.1]),
        "center": rng.random() < 0.8,
        "scale": rng.random() < 0.8,
    }


def _group_norm(rng: Random, shape: Shape) -> Config:
    channels = shape[-1] or 1
    divisors = [n for n in range(1, channels + 1) if channels % n == 0]
    return {"groups": rng.choice([*divisors, -1]), "epsilon": 0.1, "center": rng.random() < 0.8}


def _recurrent(rng: Random, _: Shape) -> Config:
    config = {
        "units": rng.randint(1, 4),
        "return_sequences": rng.random() < 0.5,
        "go_backwards": rng.random() < 0.3,
        "use_bias": rng.random() < 0.8,
        "activation": rng.choice(_SMOOTH),
    }
    if rng.random() < 0.2:
        config["unroll"] = True
    return config


def _gated(rng: Random, shape: Shape) -> Config:
    return {**_recurrent(rng, shape), "recurrent_activation": rng.choice(["sigmoid", "tanh"])}


def _gru(rng: Random, shape: Shape) -> Config:
    return {**_gated(rng, shape), "reset_after": rng.random() < 0.5}


def _lstm(rng: Random, shape: Shape) -> Config:
    return {**_gated(rng, shape), "unit_forget_bias": rng.random() < 0.5}


def _inner(rng: Random, shape: Shape, names: list[str]) -> Config:
    """A serialized layer for a wrapper; `build` makes an object of it in either library."""
    name = rng.choice(names)
    return {"class": name, "config": {**LAYERS[name].draw(rng, shape), "name": "inner"}}


def _bidirectional(rng: Random, shape: Shape) -> Config:
    return {
        "layer": _inner(rng, shape, ["SimpleRNN", "GRU", "LSTM"]),
        "merge_mode": rng.choice(["concat", "sum", "mul", "ave"]),
    }


def _distributed(rng: Random, shape: Shape) -> Config:
    return {"layer": _inner(rng, (shape[0], *shape[2:]), ["Dense", "LayerNormalization"])}


def _attention(rng: Random, _: Shape) -> Config:
    return {
        "num_heads": rng.randint(1, 3),
        "key_dim": rng.randint(1, 3),
        "value_dim": rng.choice([None, 2]),
        "output_shape": rng.choice([None, 3]),
        "use_bias": rng.random() < 0.7,
    }


def _grouped_attention(rng: Random, _: Shape) -> Config:
    heads = rng.randint(1, 2)
    return {
        "head_dim": rng.randint(1, 4),
        "num_key_value_heads": heads,
        "num_query_heads": heads * rng.randint(1, 2),
    }


def _einsum(rng: Random, shape: Shape) -> Config:
    if len(shape) == 2:
        return {"equation": "ab,bc->ac", "output_shape": rng.randint(1, 4), "bias_axes": "c"}
    # Sizes that are left open: see docs/differences/models_and_layers.md
    units = rng.randint(1, 4)
    if rng.random() < 0.5:
        return {"equation": "abc,cd->abd", "output_shape": [shape[1], units], "bias_axes": "d"}
    return {"equation": "abc,bd->adc", "output_shape": [units, shape[2]]}


def _reshape(rng: Random, shape: Shape) -> Config:
    count = 1
    for n in shape[1:]:
        count *= n
    first = rng.choice([n for n in range(1, count + 1) if count % n == 0])
    return {
        "target_shape": rng.choice(
            [[-1], [first, -1], [-1, first], [first, count // first], [count, 1, 1], [-1, 5]]
        )
    }


def _permute(rng: Random, shape: Shape) -> Config:
    dims = list(range(1, len(shape)))
    rng.shuffle(dims)
    return {"dims": dims}


def _amounts(rng: Random, rank: int, most: int) -> Any:
    return rng.choice(
        [
            rng.randint(0, most),
            [rng.randint(0, most) for _ in range(rank)],
            [[rng.randint(0, most), rng.randint(0, most)] for _ in range(rank)],
        ]
    )


def _cropping(rng: Random, shape: Shape) -> Config:
    rank = len(shape) - 2
    return {
        "cropping": [rng.randint(0, 2) for _ in range(2)] if rank == 1 else _amounts(rng, rank, 1)
    }


def _zero_padding(rng: Random, shape: Shape) -> Config:
    rank = len(shape) - 2
    return {
        "padding": [rng.randint(0, 2) for _ in range(2)] if rank == 1 else _amounts(rng, rank, 2)
    }


def _upsampling(rng: Random, shape: Shape) -> Config:
    rank = len(shape) - 2
    config: Config = {"size": rng.randint(1, 3)}
    if rank == 2 and rng.random() < 0.5:
        config["size"] = [rng.randint(1, 3), rng.randint(1, 3)]
    return config


def _relu(rng: Random, _: Shape) -> Config:
    return {
        "max_value": rng.choice([None, 0.5, 2.0]),
        "negative_slope": rng.choice([0.0, 0.2]),
        "threshold": rng.choice([0.0, 0.3]),
    }


def _prelu(rng: Random, shape: Shape) -> Config:
    axes = list(range(1, len(shape) - 1))
    return {"shared_axes": rng.choice([None, axes or None, axes[:1] or None])}


def _fixed(*choices: Config) -> Callable[[Random, Shape], Config]:
    return lambda rng, _: dict(rng.choice(choices))


class Kind:
    """How layers of one class are drawn.

    Attributes:
        draw: Makes the arguments of a layer for an input of a shape.
        ranks: How many axes its inputs have, that of the batch included.
        weight: How often the class is drawn, 1 unless it is given.
    """

    def __init__(
        self, draw: Callable[[Random, Shape], Config], ranks: tuple[int, ...], weight: int = 1
    ) -> None:
        self.draw, self.ranks, self.weight = draw, ranks, weight


ANY = (2, 3, 4, 5)
LAYERS: dict[str, Kind] = {
    "Dense": Kind(_dense, ANY, 4),
    "EinsumDense": Kind(_einsum, (2, 3)),
    "Conv1D": Kind(_conv, (3,), 3),
    "Conv2D": Kind(_conv, (4,), 6),
    "Conv3D": Kind(_conv, (5,), 4),
    "Conv1DTranspose": Kind(_transposed, (3,)),
    "Conv2DTranspose": Kind(_transposed, (4,), 2),
    "Conv3DTranspose": Kind(_transposed, (5,)),
    "DepthwiseConv1D": Kind(_depthwise, (3,)),
    "DepthwiseConv2D": Kind(_depthwise, (4,), 2),
    "SeparableConv1D": Kind(_separable, (3,)),
    "SeparableConv2D": Kind(_separable, (4,), 2),
    **{f"MaxPooling{n}D": Kind(_max_pool, (n + 2,), 2) for n in (1, 2, 3)},
    **{f"AveragePooling{n}D": Kind(_pool, (n + 2,)) for n in (1, 2, 3)},
    **{
        f"Global{k}Pooling{n}D": Kind(_global, (n + 2,))
        for k in ("Max", "Average")
        for n in (1, 2, 3)
    },
    "AdaptiveAveragePooling2D": Kind(_fixed({"output_size": 2}, {"output_size": [1, 3]}), (4,)),
    "AdaptiveMaxPooling1D": Kind(_fixed({"output_size": 2}), (3,)),
    "BatchNormalization": Kind(_batch_norm, ANY, 2),
    "LayerNormalization": Kind(_layer_norm, ANY),
    "RMSNormalization": Kind(_fixed({"epsilon": 0.01}), ANY),
    "GroupNormalization": Kind(_group_norm, (3, 4, 5)),
    "UnitNormalization": Kind(_fixed({}, {"axis": -1}), ANY),
    "SimpleRNN": Kind(_recurrent, (3,)),
    "GRU": Kind(_gru, (3,)),
    "LSTM": Kind(_lstm, (3,)),
    "Bidirectional": Kind(_bidirectional, (3,)),
    "TimeDistributed": Kind(_distributed, (3, 4)),
    "Flatten": Kind(_fixed({}), ANY),
    "Reshape": Kind(_reshape, ANY),
    "Permute": Kind(_permute, (3, 4, 5)),
    "RepeatVector": Kind(_fixed({"n": 1}, {"n": 3}), (2,)),
    **{f"Cropping{n}D": Kind(_cropping, (n + 2,)) for n in (1, 2, 3)},
    **{f"ZeroPadding{n}D": Kind(_zero_padding, (n + 2,)) for n in (1, 2, 3)},
    **{f"UpSampling{n}D": Kind(_upsampling, (n + 2,)) for n in (1, 2, 3)},
    "Activation": Kind(lambda rng, _: {"activation": rng.choice(ACTIVATIONS[:-1])}, ANY, 2),
    "ReLU": Kind(_relu, ANY),
    "LeakyReLU": Kind(_fixed({}, {"negative_slope": 0.1}), ANY),
    "ELU": Kind(_fixed({}, {"alpha": 0.5}), ANY),
    "PReLU": Kind(_prelu, ANY),
    "Softmax": Kind(_fixed({}, {"axis": -1}, {"axis": 1}), ANY),
    "Rescaling": Kind(_fixed({"scale": 0.5, "offset": -0.1}), ANY),
    "Masking": Kind(_fixed({}), (3,)),
    "Dropout": Kind(_fixed({"rate": 0.0}), ANY),
    "ActivityRegularization": Kind(_fixed({"l1": 0.01}, {"l2": 0.02}), ANY),
}
# These take several tensors: of one shape, or whatever their name says.
MERGES = ("Add", "Subtract", "Multiply", "Average", "Maximum", "Minimum", "Concatenate", "Dot")
SELF_ATTENTION: dict[str, Callable[[Random, Shape], Config]] = {
    "MultiHeadAttention": _attention,
    "GroupQueryAttention": _grouped_attention,
    "Attention": _fixed({}, {"use_scale": True}, {"score_mode": "concat"}),
    "AdditiveAttention": _fixed({}, {"use_scale": False}),
}


def draw_layer(rng: Random, shape: Shape) -> Config:
    """A class with arguments for an input of this shape."""
    names = [name for name, kind in LAYERS.items() if len(shape) in kind.ranks]
    if rng.random() < 0.03:
        # Most refuse it; adaptive pooling takes any rank in Keras.
        names = [name for name in LAYERS if not name.startswith("Adaptive")]
    (name,) = rng.choices(names, [LAYERS[n].weight for n in names])
    return {"class": name, "config": LAYERS[name].draw(rng, shape)}
