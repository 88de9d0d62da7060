"""Random numbers of several distributions, drawn on the device by a counter-based generator.

The generator is Philox 4x32-10; `kerascnn.seed_generators` has its states and seeds.
Source: Salmon et al., "Parallel Random Numbers: As Easy as 1, 2, 3", 2011.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from typing import Any

import numpy as np

from kerascnn import dtypes
from kerascnn.ops import dispatch, element_functions, elementwise, reduction, shaping, sorting
from kerascnn.seed_generators import Seed, SeedGenerator, draw, split_seed
from kerascnn.symbolic.operation import op

__all__ = [
    "SeedGenerator",
    "beta",
    "binomial",
    "categorical",
    "dropout",
    "gamma",
    "normal",
    "randint",
    "shuffle",
    "truncated_normal",
    "uniform",
]


def _sizes(shape: Sequence[int]) -> list[int]:
    return [int(n) for n in shape]


def _floating(dtype: Any) -> str:
    name = dtypes.standardize_dtype(dtype)
    if not dtypes.is_float(name):
        raise ValueError(f"Random numbers of this kind are floating. Received: dtype={name}")
    return name


def uniform(
    shape: Sequence[int],
    minval: float = 0.0,
    maxval: float = 1.0,
    dtype: Any = None,
    seed: Seed = None,
) -> Any:
    """Numbers spread evenly over [minval, maxval).

    Args:
        shape: Shape of the result.
        minval: Lower limit.
        maxval: Upper limit.
        dtype: A floating type, by default `floatx`; integers are drawn as by `randint`.
        seed: An integer, a SeedGenerator, or None.

    Returns:
        A tensor of shape `shape` and `dtype`.

    Raises:
        ValueError: for bool, and a seed of another type.

    Example:

    >>> import kerascnn as keras
    >>> keras.random.uniform((2, 3), seed=1).shape
    (2, 3)
    """
    name = dtypes.standardize_dtype(dtype)
    if dtypes.is_integer(name):
        return randint(shape, int(minval), int(maxval), name, seed)
    attributes = {
        "shape": _sizes(shape),
        "dtype": _floating(name),
        "minval": float(minval),
        "maxval": float(maxval),
    }
    return draw("random_uniform", [], attributes, seed)


def normal(
    shape: Sequence[int],
    mean: float = 0.0,
    stddev: float = 1.0,
    dtype: Any = None,
    seed: Seed = None,
) -> Any:
    """Normally distributed numbers.

    Args:
        shape: Shape of the result.
        mean: Mean.
        stddev: Standard deviation.
        dtype: A floating type, by default `floatx`.
        seed: An integer, a SeedGenerator, or None. The same integer gives the same numbers each
            time.

    Returns:
        A tensor of shape `shape` and `dtype`.

    Raises:
        ValueError: for a dtype that is not floating, and a seed of another type.

    Source: Box and Muller, "A Note on the Generation of Random Normal Deviates", 1958.

    Example:

    >>> import kerascnn as keras
    >>> x = keras.random.normal((1000,), mean=5.0, stddev=0.5, seed=1)
    >>> x.shape, round(float(keras.ops.mean(x)), 1)
    ((1000,), 5.0)
    """
    attributes = {
        "shape": _sizes(shape),
        "dtype": _floating(dtype),
        "mean": float(mean),
        "stddev": float(stddev),
    }
    return draw("random_normal", [], attributes, seed)


def randint(
    shape: Sequence[int], minval: int, maxval: int, dtype: Any = "int32", seed: Seed = None
) -> Any:
    """Integers from minval to maxval - 1, all equally likely.

    Args:
        shape: Shape of the result.
        minval: The smallest number, whole; a float such as 0.0 will do.
        maxval: The number after the largest one, whole as well.
        dtype: An integer type.
        seed: An integer, a SeedGenerator, or None.

    Returns:
        A tensor of shape `shape` and `dtype`.

    Raises:
        ValueError: where there is no such number, for bounds that are not whole, a dtype that is
            not an integer, and a seed of another type.

    Example:

    >>> import kerascnn as keras
    >>> dice = keras.random.randint((100,), 1, 7, seed=1)
    >>> dice.dtype, int(keras.ops.min(dice)), int(keras.ops.max(dice))
    ('int32', 1, 6)
    """
    name = dtypes.standardize_dtype(dtype)
    minval, maxval = _whole("minval", minval), _whole("maxval", maxval)
    if not dtypes.is_integer(name) or minval >= maxval:
        raise ValueError(
            f"randint needs an integer dtype and minval < maxval. Received: minval={minval}, "
            f"maxval={maxval}, dtype={name}"
        )
    draws = uniform(shape, 0.0, float(maxval - minval), "float64", seed)
    return elementwise.add(dispatch.convert(draws, name), minval)


def _whole(name: str, bound: Any) -> int:
    try:
        return operator.index(bound)
    except TypeError:
        number = float(bound) if hasattr(bound, "__float__") else math.nan
    if not number.is_integer():
        raise ValueError(f"randint needs whole numbers as bounds. Received: {name}={bound!r}")
    return int(number)


@op
def dropout(
    inputs: Any, rate: float, noise_shape: Sequence[int | None] | None = None, seed: Seed = None
) -> Any:
    """Sets elements to 0 with probability `rate`, and divides the others by 1 - rate.

    Args:
        inputs: Tensor of any shape; integers become `floatx`.
        rate: 0 and less leaves all elements, 1 and more none.
        noise_shape: Where it has a 1, the elements along that axis share their fate; None keeps
            the input's size.
        seed: An integer, a SeedGenerator, or None.

    Returns:
        A tensor of the shape and dtype of `inputs`.

    Raises:
        ValueError: for a seed of another type.

    Source: Srivastava et al., "Dropout: A Simple Way to Prevent Neural Networks from Overfitting",
    2014.

    Example:

    >>> import kerascnn as keras
    >>> x = keras.random.dropout(keras.ops.ones((4, 50)), 0.75, seed=1)
    >>> sorted(set(x.numpy().ravel().tolist()))
    [0.0, 4.0]
    >>> rows = keras.random.dropout(keras.ops.ones((4, 50)), 0.5, noise_shape=(None, 1), seed=1)
    >>> bool(keras.ops.all(rows == rows[:, :1]))
    True
    """
    x = dispatch.convert_floating(inputs)
    if rate <= 0:
        return x
    if rate >= 1:
        return elementwise.multiply(x, 0.0)
    if noise_shape is None:
        return draw("dropout", [x], {"rate": float(rate)}, seed)
    sizes = [n if m is None else int(m) for n, m in zip(x.shape, noise_shape, strict=True)]
    keep = 1.0 - float(rate)
    attributes = {"shape": sizes, "dtype": x.dtype, "p": keep}
    mask = draw("random_bernoulli", [], attributes, seed)
    return elementwise.multiply(x, elementwise.multiply(mask, 1.0 / keep))


def truncated_normal(
    shape: Sequence[int],
    mean: float = 0.0,
    stddev: float = 1.0,
    dtype: Any = None,
    seed: Seed = None,
) -> Any:
    """Normally distributed numbers within two standard deviations of the mean.

    Each is the point below which an evenly drawn share of the cut bell lies.

    Args:
        shape: Shape of the result.
        mean: Mean.
        stddev: Standard deviation of the bell before it is cut.
        dtype: A floating type, by default `floatx`.
        seed: An integer, a SeedGenerator, or None.

    Returns:
        A tensor of shape `shape` and `dtype`.

    Raises:
        ValueError: for a dtype that is not floating, and a seed of another type.

    Example:

    >>> import kerascnn as keras
    >>> x = keras.random.truncated_normal((1000,), seed=1)
    >>> bool(keras.ops.max(keras.ops.abs(x)) <= 2.0)
    True
    """
    name = _floating(dtype)
    work = "float32" if name in ("float16", "bfloat16") else name
    # erf(sqrt(2)) is the share of a normal distribution within two standard deviations.
    edge = math.erf(math.sqrt(2.0))
    share = uniform(shape, -edge, edge, work, seed)
    point = elementwise.clip(
        elementwise.multiply(element_functions.erfinv(share), math.sqrt(2.0)), -2, 2
    )
    result = elementwise.add(elementwise.multiply(point, float(stddev)), float(mean))
    return dispatch.convert(result, name)


@op
def categorical(logits: Any, num_samples: int, dtype: Any = "int32", seed: Seed = None) -> Any:
    """Classes drawn by their probabilities.

    The class of the largest logit plus Gumbel noise is one of that distribution.

    Args:
        logits: (batch, classes), logarithms of probabilities up to a constant for each row.
        num_samples: How many draws for each row.
        dtype: An integer type.
        seed: An integer, a SeedGenerator, or None.

    Returns:
        (batch, num_samples) in `dtype`.

    Raises:
        ValueError: for another number of axes, and a seed of another type.

    Source: Maddison et al., "A* Sampling", 2014.

    Example:

    >>> import kerascnn as keras
    >>> logits = keras.ops.log([[0.5, 0.5, 0.0]])
    >>> classes = keras.random.categorical(logits, 100, seed=1)
    >>> classes.shape, sorted(set(classes.numpy().ravel().tolist()))
    ((1, 100), [0, 1])
    """
    logits = dispatch.convert_floating(logits)
    if len(logits.shape) != 2:
        raise ValueError(
            f"categorical: logits are (batch, classes). Received: shape={tuple(logits.shape)}"
        )
    rows, classes = logits.shape
    draws = uniform((rows, int(num_samples), classes), dtype="float32", seed=seed)
    # Numbers are in (0, 1): the logarithm of 0 would always win or always lose.
    draws = elementwise.clip(draws, 2.0**-26, 1.0 - 2.0**-24)
    noise = elementwise.negative(elementwise.log(elementwise.negative(elementwise.log(draws))))
    scores = elementwise.add(shaping.expand_dims(logits, 1), noise)
    return dispatch.convert(reduction.argmax(scores, -1), dtypes.standardize_dtype(dtype))


@op
def shuffle(x: Any, axis: int = 0, seed: Seed = None) -> Any:
    """The slices along an axis in random order.

    Args:
        x: Tensor of any dtype with at least one axis.
        axis: Along which slices change places; a negative one counts from the end.
        seed: An integer, a SeedGenerator, or None.

    Returns:
        A tensor of the shape and dtype of `x`.

    Raises:
        ValueError: for a seed of another type.

    Example:

    >>> import kerascnn as keras
    >>> x = keras.random.shuffle(keras.ops.arange(5), seed=1)
    >>> sorted(x.numpy().tolist())
    [0, 1, 2, 3, 4]
    """
    x = dispatch.convert(x)
    length = x.shape[axis]
    # float64 draws are hardly ever equal, and equal ones keep their order.
    keys = uniform((length,), dtype="float64", seed=seed)
    return shaping.take(x, sorting.argsort(keys), axis)


def gamma(shape: Sequence[int], alpha: Any, dtype: Any = None, seed: Seed = None) -> Any:
    """Gamma distributed numbers of scale 1.

    Args:
        shape: Shape of the result.
        alpha: The distribution's shape, above 0: a number or a tensor that broadcasts to `shape`.
        dtype: A floating type, by default `floatx`.
        seed: An integer, a SeedGenerator, or None.

    Returns:
        A tensor of shape `shape` and `dtype`.

    Raises:
        ValueError: for a dtype that is not floating, and a seed of another type.

    Source: Marsaglia and Tsang, "A Simple Method for Generating Gamma Variables", 2000.

    Example:

    >>> import kerascnn as keras
    >>> x = keras.random.gamma((2, 1000), [[1.0], [5.0]], seed=1)
    >>> keras.ops.mean(x, axis=1).numpy().round().tolist()  # the mean is alpha
    [1.0, 5.0]
    """
    return _gamma(alpha, shape, dtype, seed)


@op
def _gamma(alpha: Any, shape: Sequence[int], dtype: Any, seed: Seed) -> Any:
    name = _floating(dtype)
    work = "float32" if name in ("float16", "bfloat16") else name
    large, share, exponent = _gamma_factors(alpha, shape, work, seed)
    return dispatch.convert(elementwise.multiply(large, elementwise.power(share, exponent)), name)


def _gamma_factors(alpha: Any, shape: Sequence[int], work: str, seed: Seed) -> tuple[Any, Any, Any]:
    """Gamma distributed numbers as x u^e, the second factor being 1 from alpha = 1 on.

    Below 1 they are those of alpha + 1 times u^(1 / alpha), which may be too small for a number.
    """
    alpha = dispatch.convert(alpha, work)
    sizes = _sizes(shape)
    is_small = elementwise.less(alpha, 1.0)
    d = elementwise.subtract(
        elementwise.where(is_small, elementwise.add(alpha, 1.0), alpha), 1.0 / 3.0
    )
    c = elementwise.reciprocal(elementwise.sqrt(elementwise.multiply(d, 9.0)))
    # More than 95 of 100 tries are accepted. After eight, one element in 10^10 is left without one.
    tries = [_GAMMA_TRIES, *sizes]
    generator = split_seed(seed, 3)
    x = normal(tries, dtype=work, seed=generator[0])
    u = elementwise.maximum(uniform(tries, dtype=work, seed=generator[1]), 1e-30)
    root = elementwise.add(elementwise.multiply(c, x), 1.0)
    v = elementwise.power(root, 3)
    is_positive = elementwise.greater(root, 0.0)
    log_v = elementwise.log(elementwise.where(is_positive, v, 1.0))
    bound = elementwise.add(
        elementwise.multiply(elementwise.square(x), 0.5),
        elementwise.multiply(d, elementwise.add(elementwise.subtract(1.0, v), log_v)),
    )
    taken = elementwise.logical_and(is_positive, elementwise.less(elementwise.log(u), bound))
    first = reduction.argmax(dispatch.convert(taken, "int32"), 0)
    chosen = shaping.expand_dims(first, 0)
    v = shaping.squeeze(sorting.take_along_axis(elementwise.maximum(v, 0.0), chosen, 0), 0)
    share = elementwise.maximum(uniform(sizes, dtype=work, seed=generator[2]), 1e-30)
    exponent = elementwise.reciprocal(elementwise.where(is_small, alpha, 1.0))
    return (
        elementwise.multiply(d, v),
        elementwise.where(is_small, share, 1.0),
        exponent,
    )


_GAMMA_TRIES = 8


def beta(shape: Sequence[int], alpha: Any, beta: Any, dtype: Any = None, seed: Seed = None) -> Any:
    """Beta distributed numbers, from 0 to 1: shares of two gamma distributed numbers.

    Args:
        shape: Shape of the result.
        alpha: First parameter, above 0: a number or a tensor that broadcasts to `shape`.
        beta: Second parameter, likewise.
        dtype: A floating type, by default `floatx`.
        seed: An integer, a SeedGenerator, or None.

    Returns:
        A tensor of shape `shape` and `dtype`.

    Raises:
        ValueError: for a dtype that is not floating, and a seed of another type.

    Source:
    https://en.wikipedia.org/wiki/Beta_distribution#Generating_beta-distributed_random_variates

    Example:

    >>> import kerascnn as keras
    >>> x = keras.random.beta((1000,), 2.0, 2.0, seed=1)
    >>> bool(keras.ops.all((x >= 0.0) & (x <= 1.0))), round(float(keras.ops.mean(x)), 1)
    (True, 0.5)
    """
    return _beta(alpha, beta, shape, dtype, seed)


@op
def _beta(alpha: Any, beta: Any, shape: Sequence[int], dtype: Any, seed: Seed) -> Any:
    name = _floating(dtype)
    work = "float32" if name in ("float16", "bfloat16") else name
    logs = []
    for parameter, own_seed in zip((alpha, beta), split_seed(seed, 2), strict=True):
        large, share, exponent = _gamma_factors(parameter, shape, work, own_seed)
        tail = elementwise.multiply(elementwise.log(share), exponent)
        logs.append(elementwise.add(elementwise.log(elementwise.maximum(large, 1e-30)), tail))
    # a / (a + b) is computed by logarithms, since small parameters can make both underflow.
    ratio = elementwise.exp(elementwise.subtract(logs[1], logs[0]))
    return dispatch.convert(elementwise.reciprocal(elementwise.add(ratio, 1.0)), name)


def binomial(
    shape: Sequence[int], counts: Any, probabilities: Any, dtype: Any = None, seed: Seed = None
) -> Any:
    """Returns how many of `counts` trials succeed.

    All trials are drawn, which takes memory for the largest count times the size of the result.

    Args:
        shape: Shape of the result.
        counts: Numbers of trials, known when this is called; they broadcast to `shape`.
        probabilities: That a trial succeeds: a number or a tensor that broadcasts to `shape`.
        dtype: A floating type, by default `floatx`.
        seed: An integer, a SeedGenerator, or None.

    Returns:
        A tensor of shape `shape` and `dtype`, of whole numbers from 0 to `counts`.

    Raises:
        ValueError: for counts that are known only in the step, a dtype that is not floating, and a
            seed of another type.

    Example:

    >>> import kerascnn as keras
    >>> keras.random.binomial((3,), 5, [0.0, 1.0, 1.0], seed=1).numpy().tolist()
    [0.0, 5.0, 5.0]
    """
    name = _floating(dtype)
    if hasattr(counts, "shape") and not hasattr(counts, "__array__"):
        raise ValueError(f"binomial: counts must be known numbers. Received: {counts!r}")
    known = np.asarray(counts)
    most = int(known.max(initial=0))
    draws = uniform([max(most, 1), *_sizes(shape)], dtype="float32", seed=seed)
    trial = np.arange(max(most, 1)).reshape([-1] + [1] * len(_sizes(shape)))
    hits = elementwise.logical_and(
        elementwise.less(draws, dispatch.convert(probabilities, "float32")),
        elementwise.less(trial.astype("float32"), known.astype("float32")),
    )
    return dispatch.convert(reduction.sum(dispatch.convert(hits, "int32"), 0), name)
