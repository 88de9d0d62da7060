"""Bodies of regions for tests: those of training steps, and unusual ones.

Each function records a graph with a Tracer, and returns it with the region's kind, domain, columns
and outputs.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import ml_dtypes
import numpy as np

from kerascnn import _core


@dataclass
class Traced:
    """A graph whose nodes belong to one region."""

    kind: str
    domain: tuple
    columns: int
    outer: int = 1
    graph: _core.Graph = field(default_factory=_core.Graph)
    inputs: list = field(default_factory=list)
    specs: list = field(default_factory=list)
    outputs: list = field(default_factory=list)
    outputs_specs: list = field(default_factory=list)

    def input(self, shape, dtype="float32"):
        value = self.graph.input(f"x{len(self.inputs)}", list(shape), dtype)
        self.inputs.append(value)
        self.specs.append((tuple(shape), dtype))
        return value

    def scalar(self, value, dtype="float32"):
        return self.graph.full([], dtype, value)

    def __call__(self, op, *inputs, **attributes):
        results = self.graph.apply(op, list(inputs), attributes)
        return results[0] if len(results) == 1 else results

    def cast(self, value, dtype):
        return self("cast", value, dtype=dtype)

    def body(self):
        return _core.Body(self.graph, self.inputs, self.outputs)

    def source(self, max_width=8):
        return _core.region_source(
            self.body(), self.kind, list(self.domain), self.columns, max_width, self.outer
        )


def traced(kind, domain, axes=1):
    if kind == "rows":
        columns = math.prod(domain[len(domain) - axes :])
    else:
        columns = domain[-1] if domain else 1
    return Traced(kind, tuple(domain), columns)


def normalized(domain=(4, 5, 7, 24), dtype="bfloat16", residual=True):
    """Normalizes with known statistics, adds a residual and applies relu, in mixed precision."""
    t = traced("map", domain)
    c = domain[-1:]
    x = t.cast(t.input(domain, dtype), "float32")
    mean, scale, beta = t.input(c), t.input(c), t.input(c)
    y = t("add", t("multiply", t("subtract", x, mean), scale), beta)
    y = t.cast(y, dtype)
    if residual:
        y = t("add", y, t.input(domain, dtype))
    t.outputs = [t("relu", y)]
    return t


def every_reading(domain=(3, 5, 2, 8), dtype="float32"):
    t = traced("map", domain)
    x = t.input(domain, dtype)
    for axis_shape in ((), domain[-1:], (*domain[:-1], 1), (domain[0], 1, 1, domain[-1])):
        x = t("add", t("multiply", x, t.scalar(0.5, dtype)), t.input(axis_shape, dtype))
    squeeze = t.input((1, domain[1], 1, domain[-1]), dtype)
    t.outputs = [t("maximum", x, squeeze), x]
    return t


def factors(domain=(3, 5, 2, 8), dtype="float32"):
    """Computes for each element what depends on its column alone."""
    t = traced("map", domain)
    x = t.input(domain, dtype)
    total, inverse = (
        t("broadcast_to", t.input(domain[-1:], dtype), shape=list(domain)) for _ in range(2)
    )
    share = t("multiply", total, t.scalar(0.125, dtype))
    t.outputs = [t("multiply", t("subtract", x, share), t("multiply", inverse, inverse))]
    return t


def numbers(domain=(7, 9)):
    """Combines integers, comparisons and choices in several dtypes."""
    t = traced("map", domain)
    a, b = t.input(domain, "int32"), t.input(domain, "int32")
    small, mask = t.input(domain, "uint8"), t.input(domain, "bool")
    wide = t.input(domain, "float64")
    total = t("add", t("multiply", a, b), t.cast(small, "int32"))
    chosen = t("where", t("logical_and", mask, t("less", a, b)), total, t("floor_divide", a, b))
    t.outputs = [
        chosen,
        t("equal", a, b),
        t.cast(t("multiply", wide, t.cast(a, "float64")), "int8"),
        t.cast(total, "float16"),
        t.cast(wide, "bool"),
    ]
    return t


def activation_gradient(domain=(6, 33), dtype="float16"):
    t = traced("map", domain)
    g, y = t.input(domain, dtype), t.input(domain, dtype)
    scaled = t("clip", t("multiply", g, t.scalar(3.0, dtype)), min=-2.5, max=2.5)
    t.outputs = [t("relu_grad", scaled, y), t("leaky_relu_grad", scaled, y, negative_slope=0.1)]
    return t


def activations(domain=(11, 13), dtype="float32"):
    t = traced("map", domain)
    x, g = t.input(domain, dtype), t.input(domain, dtype)
    y = t("silu", t("gelu", x, approximate=True))
    y = t("tanh_grad", t("gelu_grad", g, y, approximate=True), t("tanh", y))
    y = t("add", t("multiply", t("sigmoid", y), t("elu", x, alpha=0.7)), t("softplus", g))
    t.outputs = [t("silu_grad", g, y), t("sigmoid_grad", y, t("gelu", y, approximate=False))]
    return t


def constant_domain(domain=()):
    t = traced("map", domain)
    x = t.input(domain)
    t.outputs = [t("square", t("add", x, t.scalar(1.5)))]
    return t


def batch_norm_gradient(domain=(4, 9, 16), dtype="bfloat16"):
    """Computes the sums of batch normalization's gradient, and the gradient for later nodes."""
    t = traced("columns", domain)
    c = domain[-1:]
    g = t("relu_grad", t.input(domain, dtype), t.input(domain, dtype))
    x = t.cast(t.input(domain, dtype), "float32")
    mean, inverse = t.input(c), t.input(c)
    z = t("multiply", t("subtract", x, mean), inverse)
    gy = t.cast(g, "float32")
    axes = list(range(len(domain) - 1))
    t.outputs = [
        g,
        t("reduce_sum", gy, axes=axes, keepdims=False),
        t("reduce_sum", t("multiply", gy, z), axes=axes, keepdims=False),
        t("reduce_mean", gy, axes=axes, keepdims=True),
    ]
    return t


def column_sums(domain=(40, 3), dtype="float32"):
    t = traced("columns", domain)
    x = t.input(domain, dtype)
    axes = list(range(len(domain) - 1))
    t.outputs = [t("reduce_sum", x, axes=axes, keepdims=False)]
    return t


def sums_of_parts(domain=(3, 40, 10), dtype="bfloat16", first=1, last=1):
    """Sums over axes in the middle, from `first` on and all but `last`, of what they are fed by.

    A sum of the squeeze of squeeze-and-excitation, its gradient, and one of group normalization.
    """
    t = traced("columns", domain)
    t.columns = math.prod(domain[len(domain) - last :])
    t.outer = math.prod(domain[:first])
    axes = list(range(first, len(domain) - last))
    of_part = (*domain[:first], *[1] * len(axes), *domain[len(domain) - last :])
    g, x = t.input(domain, dtype), t.cast(t.input(domain, dtype), "float32")
    y = t("relu", t("subtract", x, t.input(of_part)))
    y = t("add", t("multiply", y, t.input(domain[-1:])), t.input((*domain[:-1], 1)))
    t.outputs = [
        t("reduce_mean", t("multiply", y, t.cast(g, "float32")), axes=axes, keepdims=True),
        t.cast(y, dtype),
        t("reduce_sum", g, axes=axes, keepdims=False),
    ]
    return t


def moments_of_parts(domain=(3, 40, 10), dtype="float16", outer_axes=1):
    t = traced("columns", domain)
    t.outer = math.prod(domain[:outer_axes])
    x = t.cast(t.input(domain, dtype), "float64" if dtype == "float64" else "float32")
    t.outputs = list(t("column_moments", x, outer_axes=outer_axes))
    return t


def normalized_parts(domain=(3, 520, 16), dtype="bfloat16"):
    """Group normalization with known statistics: a scale and a shift for channels of samples."""
    t = traced("map", domain)
    of_part = (domain[0], *[1] * (len(domain) - 2), domain[-1])
    origin, scale, shift = t.input(of_part), t.input(of_part), t.input(of_part)
    x = t.cast(t.input(domain, dtype), "float32")
    y = t("add", t("multiply", t("subtract", x, origin), scale), shift)
    y = t("multiply", t("add", y, t.input((*domain[:-1], 1))), t.input(domain[-1:]))
    t.outputs = [t("relu", t.cast(y, dtype))]
    return t


def dropped(domain=(4, 5, 7, 24), dtype="bfloat16", kind="map", rate=0.3):
    """Drops twice from one state and once from another stream, with other ops between."""
    t = traced(kind, domain)
    state = t.input((2,), "int64")
    x = t("leaky_relu", t.input(domain, dtype), negative_slope=0.1)
    y = t("dropout", x, state, rate=rate, stream=3)
    z = t("dropout", t("multiply", y, t.input(domain, dtype)), state, rate=rate, stream=7)
    if kind == "rows":
        z = t("subtract", z, t("reduce_max", z, axes=[len(domain) - 1], keepdims=True))
    again = t("dropout", t("add", z, x), state, rate=rate, stream=3)
    t.outputs = [again, y]
    if kind == "columns":
        axes = list(range(len(domain) - 1))
        t.outputs.append(t("reduce_sum", again, axes=axes, keepdims=False))
    return t


def moments(domain=(300, 8), dtype="float16"):
    t = traced("columns", domain)
    x = t.cast(t.input(domain, dtype), "float64" if dtype == "float64" else "float32")
    t.outputs = list(t("column_moments", x))
    return t


def layer_norm(domain=(5, 6, 48), dtype="bfloat16", axes=1):
    t = traced("rows", domain, axes)
    over = list(range(len(domain) - axes, len(domain)))
    x = t.cast(t.input(domain, dtype), "float32")
    mean = t("reduce_mean", x, axes=over, keepdims=True)
    centered = t("subtract", x, mean)
    variance = t("reduce_mean", t("square", centered), axes=over, keepdims=True)
    inverse = t("rsqrt", t("add", variance, t.scalar(1e-3)))
    y = t("multiply", t("multiply", centered, inverse), t.input(domain[len(domain) - axes :]))
    y = t.cast(t("add", y, t.input(domain[-1:])), dtype)
    t.outputs = [y, mean, t("reshape", inverse, shape=list(domain[: len(domain) - axes]))]
    return t


def broadcast_rows(domain=(5, 6, 10), dtype="float32"):
    """Gives each element of a row what the row has once: a sum, and what follows from it."""
    t = traced("rows", domain)
    total = t("reduce_sum", t.input(domain, dtype), axes=[len(domain) - 1], keepdims=True)
    outputs = (total, t("tanh", total))
    broadcast = [t("broadcast_to", each, shape=list(domain)) for each in outputs]
    # The gradient of a mean: what rows have is divided by a number of elements.
    t.outputs = [*broadcast, t("multiply", broadcast[1], t.scalar(0.375, dtype)), total]
    return t


def layer_norm_gradient(domain=(12, 48), dtype="bfloat16"):
    """Computes layer normalization's gradient, which reads a mean and a deviation for each row."""
    t = traced("rows", domain)
    rows = domain[:-1]
    g = t.cast(t.input(domain, dtype), "float32")
    x = t.cast(t.input(domain, dtype), "float32")
    mean, inverse = t.input((*rows, 1)), t.input(rows)
    inverse = t("reshape", inverse, shape=[*rows, 1])
    z = t("multiply", t("subtract", x, mean), inverse)
    g = t("multiply", g, t.input(domain[-1:]))
    last = {"axes": [len(domain) - 1], "keepdims": True}
    a = t("reduce_mean", g, **last)
    b = t("reduce_mean", t("multiply", g, z), **last)
    gx = t("multiply", inverse, t("subtract", t("subtract", g, a), t("multiply", z, b)))
    t.outputs = [t.cast(gx, dtype)]
    return t


def softmax(domain=(9, 37), dtype="float32", masked=False):
    t = traced("rows", domain)
    x = t.input(domain, dtype)
    if masked:
        keep = t.input((domain[0], *[1] * (len(domain) - 2), domain[-1]), "bool")
        x = t("where", keep, x, t.scalar(-1e4, dtype))
    last = {"axes": [len(domain) - 1], "keepdims": True}
    e = t("exp", t("subtract", x, t("reduce_max", x, **last)))
    t.outputs = [t("divide", e, t("reduce_sum", e, **last))]
    return t


def attention_softmax(domain=(2, 3, 7, 196), dtype="bfloat16", rate=0.0):
    """Applies softmax in 16 bits to scaled and masked scores, and dropout if `rate` > 0."""
    t = traced("rows", domain)
    last = {"axes": [len(domain) - 1], "keepdims": True}
    x = t("multiply", t.input(domain, dtype), t.scalar(0.125, dtype))
    keep = t.input((domain[0], *[1] * (len(domain) - 2), domain[-1]), "bool")
    x = t.cast(t("where", keep, x, t.scalar(-3e4, dtype)), "float32")
    e = t("exp", t("subtract", x, t("reduce_max", x, **last)))
    y = t("multiply", e, t("reciprocal", t("reduce_sum", e, **last)))
    t.outputs = [t.cast(y, dtype)]
    if rate > 0.0:
        t.outputs.append(t("dropout", t.outputs[0], t.input((2,), "int64"), rate=rate, stream=3))
    return t


def attention_softmax_gradient(domain=(2, 3, 7, 196), dtype="bfloat16"):
    t = traced("rows", domain)
    g, y = (t.cast(t.input(domain, dtype), "float32") for _ in range(2))
    total = t("reduce_sum", t("multiply", g, y), axes=[len(domain) - 1], keepdims=True)
    t.outputs = [t.cast(t("multiply", y, t("subtract", g, total)), dtype)]
    return t


def transposed(domain=(2, 5, 3, 24), dtype="bfloat16", kind="map"):
    """Heads of attention, (b, h, t, d), read in the order (b, t, h, d)."""
    b, time, heads, d = domain
    t = traced(kind, domain)
    x = t("transpose", t.input((b, heads, time, d), dtype), permutation=[0, 2, 1, 3])
    y = t("add", t("multiply", x, t.scalar(0.125, dtype)), t.input(domain, dtype))
    if kind == "rows":
        y = t("subtract", y, t("reduce_max", y, axes=[3], keepdims=True))
    t.outputs = [t("maximum", y, t.input(domain[-1:], dtype)), x]
    return t


def transposed_sums(domain=(2, 65, 3, 24), dtype="bfloat16", stored=True):
    """Sums over batch and time of the same, with heads and their elements as one axis."""
    b, time, heads, d = domain
    t = traced("columns", (b * time, heads * d))
    x = t("transpose", t.input((b, heads, time, d), dtype), permutation=[0, 2, 1, 3])
    x = t("reshape", x, shape=list(t.domain))
    y = t("multiply", x, t.scalar(0.125, dtype))
    t.outputs = [t("reduce_sum", y, axes=[0], keepdims=True)]
    if stored:
        t.outputs += [y, x]
    return t


def integer_rows(domain=(6, 45)):
    t = traced("rows", domain)
    x = t.input(domain, "int32")
    last = {"axes": [len(domain) - 1], "keepdims": False}
    low, high = t("reduce_min", x, **last), t("reduce_max", x, **last)
    t.outputs = [t("subtract", high, low), t("reduce_sum", t("multiply", x, x), **last)]
    return t


def arrays(t, rng):
    """Draws values for the inputs."""
    result = []
    for shape, dtype in t.specs:
        if dtype == "bool":
            result.append(rng.integers(0, 2, shape).astype(bool))
        elif "int" in dtype:
            result.append(rng.integers(0 if dtype == "uint8" else -50, 100, shape).astype(dtype))
        else:
            kept = ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype
            result.append(np.asarray(rng.standard_normal(shape) + 0.25).astype(kept))
    return result
