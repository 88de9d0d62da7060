"""Hessian-vector products of layers, by inputs and weights, equal PyTorch's double backward.

The function is the weighted sum of the squares of a layer's outputs, so that a linear layer has
second derivatives too. They are also compared with differences of first derivatives.
"""

import numpy as np
import pytest

import kerascnn
from kerascnn import ops

from .comparing import make_pair, relative_error

pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")

IMAGE, SEQUENCE, VOLUME = (2, 7, 6, 3), (3, 8, 4), (2, 5, 4, 6, 2)

# Each row has the name of a layer, its arguments, and the shapes of its inputs. Activations of what
# layers compute have no jumps in their second derivatives: what is computed may be anywhere.
LAYERS = [
    ("Dense", {"units": 4, "activation": "tanh"}, [(5, 6)]),
    ("EinsumDense", {"equation": "abc,cd->abd", "output_shape": (None, 3)}, [(2, 5, 4)]),
    ("Conv1D", {"filters": 3, "kernel_size": 3, "activation": "silu"}, [SEQUENCE]),
    ("Conv2D", {"filters": 4, "kernel_size": (2, 3), "strides": 2, "activation": "mish"}, [IMAGE]),
    ("Conv2D", {"filters": 4, "kernel_size": 3, "dilation_rate": 2, "padding": "same"}, [IMAGE]),
    ("Conv3D", {"filters": 2, "kernel_size": 2, "activation": "softplus"}, [VOLUME]),
    ("DepthwiseConv2D", {"kernel_size": 3, "depth_multiplier": 2}, [IMAGE]),
    ("SeparableConv2D", {"filters": 3, "kernel_size": 3, "activation": "gelu"}, [IMAGE]),
    ("Conv2DTranspose", {"filters": 2, "kernel_size": 3, "strides": 2}, [IMAGE]),
    ("MaxPooling1D", {"pool_size": 3, "strides": 2}, [SEQUENCE]),
    ("MaxPooling2D", {"pool_size": 2}, [IMAGE]),
    ("MaxPooling2D", {"pool_size": (3, 2), "strides": (1, 2), "padding": "same"}, [IMAGE]),
    ("MaxPooling2D", {"pool_size": 2, "data_format": "channels_first"}, [(2, 3, 5, 6)]),
    ("MaxPooling3D", {"pool_size": 2, "strides": 1}, [VOLUME]),
    ("AveragePooling2D", {"pool_size": (3, 2), "strides": 2}, [IMAGE]),
    ("AveragePooling3D", {"pool_size": 2}, [VOLUME]),
    ("GlobalMaxPooling1D", {}, [SEQUENCE]),
    ("GlobalMaxPooling2D", {"keepdims": True}, [IMAGE]),
    ("GlobalAveragePooling2D", {}, [IMAGE]),
    ("BatchNormalization", {}, [IMAGE]),
    ("BatchNormalization", {"axis": 1, "scale": False}, [(6, 3, 4)]),
    ("BatchNormalization", {"center": False, "epsilon": 0.5}, [(9, 5)]),
    ("LayerNormalization", {}, [(3, 5, 4)]),
    ("LayerNormalization", {"axis": [1, 2]}, [(3, 5, 4)]),
    ("GroupNormalization", {"groups": 2}, [(2, 5, 4)]),
    ("RMSNormalization", {}, [(3, 6)]),
    ("UnitNormalization", {}, [(3, 6)]),
    ("UpSampling2D", {"size": (2, 3)}, [(2, 3, 4, 2)]),
    ("UpSampling2D", {"size": 2, "interpolation": "bilinear"}, [(2, 3, 4, 2)]),
    ("ZeroPadding2D", {"padding": ((1, 0), (2, 1))}, [IMAGE]),
    ("Cropping2D", {"cropping": 1}, [IMAGE]),
    ("Softmax", {}, [(4, 6)]),
    ("PReLU", {}, [(4, 6)]),
    ("LeakyReLU", {"negative_slope": 0.2}, [(4, 6)]),
    ("ReLU", {"max_value": 0.5, "negative_slope": 0.1}, [(4, 6)]),
    ("Multiply", {}, [(4, 6), (4, 6)]),
    ("Maximum", {}, [(4, 6), (4, 6)]),
    ("Concatenate", {}, [(4, 3), (4, 6)]),
    ("Dot", {"axes": 1, "normalize": True}, [(4, 6), (4, 6)]),
    ("Attention", {}, [(2, 3, 4), (2, 5, 4)]),
    ("SimpleRNN", {"units": 3, "return_sequences": True}, [SEQUENCE]),
    ("GRU", {"units": 3, "use_cudnn": False}, [SEQUENCE]),
    ("LSTM", {"units": 3, "unroll": True}, [SEQUENCE]),
]
ACTIVATIONS = [
    *("relu", "leaky_relu", "relu6", "elu", "selu", "celu", "gelu", "silu", "mish", "softplus"),
    *("softsign", "sigmoid", "hard_silu", "hard_tanh", "tanh", "tanh_shrink", "exponential"),
    *("log_sigmoid", "log_softmax", "softmax", "glu", "squareplus", "sparse_plus"),
]
LAYERS += [("Activation", {"activation": name}, [(5, 6)]) for name in ACTIVATIONS]


def draw_inputs(shapes, rng):
    """Draws different values away from 0 and 1, where slopes of activations jump."""
    sizes = [int(np.prod(shape)) for shape in shapes]
    values = rng.permutation(np.linspace(0.05, 0.97, sum(sizes)))
    parts = np.split(values, np.cumsum(sizes)[:-1])
    pairs = zip(parts, shapes, strict=True)
    return [part.reshape(shape) * rng.choice([-1, 1], shape) for part, shape in pairs]


def name_of(case):
    name, arguments, shapes = case
    given = "_".join(f"{key}={value}" for key, value in arguments.items())
    return f"{name}-{given}-{len(shapes[0])}d".replace(" ", "")


def by_autograd(layer, inputs, direction, along):
    """Returns gradients, and the gradients of their product with `along`, by inputs and weights."""
    import torch

    tensors = [torch.tensor(x, requires_grad=True) for x in inputs]
    y = layer(tensors if len(tensors) > 1 else tensors[0], training=True)
    loss = (torch.square(y) * torch.tensor(direction)).sum()
    sources = [*tensors, *(v.value for v in layer.trainable_weights)]
    first = torch.autograd.grad(loss, sources, create_graph=True)
    slope = sum((g * torch.tensor(v)).sum() for g, v in zip(first, along, strict=True))
    second = torch.autograd.grad(slope, sources, allow_unused=True)
    second = [torch.zeros_like(s) if g is None else g for g, s in zip(second, sources, strict=True)]
    return [[g.detach().numpy() for g in gradients] for gradients in (first, second)]


def by_tapes(layer, direction, along):
    """Returns a function of the inputs that does the same here."""

    def run(*inputs):
        sources = [*inputs, *layer.trainable_weights]
        with kerascnn.GradientTape() as outer:
            outer.watch(inputs)
            with kerascnn.GradientTape() as inner:
                inner.watch(inputs)
                y = layer(list(inputs) if len(inputs) > 1 else inputs[0], training=True)
                loss = ops.sum(ops.square(y) * direction)
            first = inner.gradient(loss, sources)
            slope = sum(ops.sum(g * v) for g, v in zip(first, along, strict=True))
        second = outer.gradient(slope, sources)
        pairs = zip(second, sources, strict=True)
        return first, [ops.zeros_like(s) if g is None else g for g, s in pairs]

    return run


def differences(layer, run, inputs, moved):
    """Computes the change of the first derivative along `moved` from four first derivatives."""
    weights = [np.array(w) for w in layer.trainable_weights]
    count, step = len(inputs), 1e-4

    def at(t):
        for weight, value, move in zip(
            layer.trainable_weights, weights, moved[count:], strict=True
        ):
            weight.assign(value + t * move)
        pairs = zip(inputs, moved[:count], strict=True)
        found, _ = run(*(ops.convert_to_tensor(x + t * move) for x, move in pairs))
        return [g.numpy() for g in found]

    points = {t: at(t * step) for t in (-2, -1, 1, 2)}
    at(0.0)
    return [
        (8 * (b - a) - (d - c)) / (12 * step)
        for a, b, c, d in zip(points[-1], points[1], points[-2], points[2], strict=True)
    ]


@pytest.mark.parametrize("case", LAYERS, ids=name_of)
def test_hessian_vector_products(case, device, rng):
    name, arguments, shapes = case
    inputs = draw_inputs(shapes, rng)
    with kerascnn.device(device):
        here, there = make_pair(name, {**arguments, "dtype": "float64"}, inputs, rng)
        output = here(inputs if len(inputs) > 1 else inputs[0])
        direction = rng.uniform(0.5, 1.5, output.shape)
        sources = [*inputs, *(np.array(w) for w in here.trainable_weights)]
        along = [rng.standard_normal(s.shape) for s in sources]
        run = by_tapes(here, direction, [ops.convert_to_tensor(v) for v in along])
        tensors = [ops.convert_to_tensor(x) for x in inputs]
        expected = by_autograd(there, inputs, direction, along)
        for way, call in (("at once", run), ("compiled", kerascnn.jit(run))):
            for order, actual, wanted in zip((1, 2), call(*tensors), expected, strict=True):
                for i, (a, w) in enumerate(zip(actual, wanted, strict=True)):
                    # All is float64, but Keras on PyTorch rounds means and constants to float32,
                    # and second derivatives of standard deviations divide by their third power.
                    assert relative_error(a.numpy(), w) < 2e-5, f"{way}, order {order}, source {i}"
        numerical = differences(here, run, inputs, along)
        for i, (a, w) in enumerate(zip(run(*tensors)[1], numerical, strict=True)):
            # The second derivative is symmetric, so the product with `along` is the change along
            # it. The gradient's error of 1e-16, divided by the step of 1e-4, is about 1e-11 of its
            # largest term.
            assert relative_error(a.numpy(), w) < 1e-6, f"numerically, source {i}"


def test_embedding(device, rng):
    """The derivatives are by the rows that are read, one of them twice, not by the integers."""
    numbers = np.array([[1, 4, 1], [0, 2, 4]])
    table, along = rng.standard_normal((2, 6, 3))
    direction = rng.uniform(0.5, 1.5, (2, 3, 3))
    # This is the second derivative of sum(direction * y^3), added up for each row that was read.
    expected = np.zeros((6, 3))
    np.add.at(expected, numbers, 6 * direction * table[numbers] * along[numbers])
    with kerascnn.device(device):
        layer = kerascnn.layers.Embedding(6, 3, dtype="float64")
        layer.build()
        layer.set_weights([table])

        def run(numbers):
            with kerascnn.GradientTape() as outer:
                with kerascnn.GradientTape() as inner:
                    loss = ops.sum(layer(numbers) ** 3 * direction)
                slope = ops.sum(inner.gradient(loss, layer.embeddings) * along)
            return outer.gradient(slope, layer.embeddings)

        for call in (run, kerascnn.jit(run)):
            found = call(ops.convert_to_tensor(numbers))
            np.testing.assert_allclose(found.numpy(), expected, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("name", ["LSTM", "GRU"])
def test_a_fused_layer_says_how_to_get_second_derivatives(name, device, rng):
    with kerascnn.device(device):
        x = ops.convert_to_tensor(rng.standard_normal((2, 4, 3)).astype("float32"))
        layer = getattr(kerascnn.layers, name)(5)
        with kerascnn.GradientTape() as outer:
            outer.watch(x)
            with kerascnn.GradientTape() as inner:
                inner.watch(x)
                loss = ops.sum(layer(x))
            first = ops.sum(inner.gradient(loss, x))
        with pytest.raises(ValueError, match="not differentiable: .*unroll=True"):
            outer.gradient(first, x)
