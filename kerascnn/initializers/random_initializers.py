"""Initializers that draw from a distribution."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from kerascnn import random, seed_generators, serialization
from kerascnn.initializers.initializer import Initializer

# The standard deviation of a normal distribution that is cut off at two standard deviations.
_TRUNCATED_STDDEV = 0.87962566103423978


class RandomInitializer(Initializer):
    """Base of initializers with a seed: a subclass draws from `generator()`.

    Args:
        seed: An integer or None: the same values at every call; or a SeedGenerator: new values.

    Raises:
        ValueError: for another seed.

    Example:

    >>> from kerascnn import initializers
    >>> class Signs(initializers.RandomInitializer):
    ...     def draw(self, shape, dtype):
    ...         return self.generator().choice([-1, 1], shape)
    >>> sorted(set(Signs(seed=1)((50,)).numpy().tolist()))
    [-1.0, 1.0]
    """

    def __init__(self, seed: Any = None) -> None:
        self._config_seed = seed
        if seed is None:
            seed = seed_generators.make_default_seed()
        elif isinstance(seed, dict):
            seed = serialization.deserialize_object(seed, place="kerascnn.random")
        elif not isinstance(seed, (int, np.integer, random.SeedGenerator)):
            raise ValueError(
                "`seed` must be an integer, a keras.random.SeedGenerator or None. "
                f"Received: seed={seed!r}"
            )
        self.seed = seed

    def generator(self) -> np.random.Generator:
        """Returns NumPy's generator for one draw of weights."""
        seed = self.seed.next() if isinstance(self.seed, random.SeedGenerator) else int(self.seed)
        return np.random.Generator(np.random.Philox(np.random.SeedSequence(abs(seed))))

    def get_config(self) -> dict[str, Any]:
        return {"seed": serialization.serialize_object(self._config_seed)}


def _drawn_in(dtype: str) -> type[np.float32 | np.float64]:
    """Returns what numbers of a dtype are drawn in: float32 takes NumPy half the time."""
    return np.float64 if dtype == "float64" else np.float32


def _truncated_normal(
    generator: np.random.Generator, shape: tuple[int, ...], mean: float, stddev: float, dtype: str
) -> np.ndarray[Any, Any]:
    """Draws normal numbers, and draws those beyond two standard deviations from the mean again."""
    drawn = _drawn_in(dtype)
    values = generator.standard_normal(shape, drawn)
    outside = np.abs(values) > 2
    while outside.any():
        values[outside] = generator.standard_normal(int(outside.sum()), drawn)
        outside = np.abs(values) > 2
    values *= stddev
    values += mean
    return values


class RandomNormal(RandomInitializer):
    """Normally distributed values.

    Args:
        mean: Mean.
        stddev: Standard deviation.
        seed: An integer, a SeedGenerator or None.

    Example:

    >>> from kerascnn import initializers
    >>> initializers.RandomNormal(stddev=0.01, seed=1)((3, 2)).shape
    (3, 2)
    """

    def __init__(self, mean: float = 0.0, stddev: float = 0.05, seed: Any = None) -> None:
        super().__init__(seed)
        self.mean = mean
        self.stddev = stddev

    def draw(self, shape: tuple[int, ...], dtype: str) -> np.ndarray[Any, Any]:
        return self.generator().standard_normal(shape) * self.stddev + self.mean

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "mean": self.mean, "stddev": self.stddev}


class TruncatedNormal(RandomNormal):
    """Normally distributed values no further than two standard deviations from the mean.

    Args:
        mean: Mean.
        stddev: Standard deviation before the ends are cut off.
        seed: An integer, a SeedGenerator or None.

    Example:

    >>> from kerascnn import initializers
    >>> w = initializers.TruncatedNormal(stddev=0.5, seed=1)((100, 20)).numpy()
    >>> bool(abs(w).max() <= 1.0)
    True
    """

    def draw(self, shape: tuple[int, ...], dtype: str) -> np.ndarray[Any, Any]:
        return _truncated_normal(self.generator(), shape, self.mean, self.stddev, dtype)


class RandomUniform(RandomInitializer):
    """Values spread evenly between two limits.

    Args:
        minval: Lower limit.
        maxval: Upper limit.
        seed: An integer, a SeedGenerator or None.

    Example:

    >>> from kerascnn import initializers
    >>> w = initializers.RandomUniform(2.0, 3.0, seed=1)((100, 20)).numpy()
    >>> bool(2.0 <= w.min() and w.max() <= 3.0)
    True
    """

    def __init__(self, minval: float = -0.05, maxval: float = 0.05, seed: Any = None) -> None:
        super().__init__(seed)
        self.minval = minval
        self.maxval = maxval

    def draw(self, shape: tuple[int, ...], dtype: str) -> np.ndarray[Any, Any]:
        return self.generator().uniform(self.minval, self.maxval, shape)

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "minval": self.minval, "maxval": self.maxval}


def compute_fans(
    shape: Sequence[int],
    input_axes: Sequence[int] | None = None,
    output_axes: Sequence[int] | None = None,
) -> tuple[int, int]:
    """Returns how many inputs and outputs one unit of a weight has.

    Args:
        shape: A kernel's (..., inputs, outputs); leading axes count for both.
        input_axes: The axes that stand for inputs, where that is not so.
        output_axes: The axes that stand for outputs.

    Returns:
        (inputs, outputs).

    Example:

    >>> from kerascnn.initializers import compute_fans
    >>> compute_fans((3, 3, 16, 32))
    (144, 288)
    """
    if input_axes is not None and output_axes is not None:
        return (
            math.prod(shape[axis] for axis in input_axes),
            math.prod(shape[axis] for axis in output_axes),
        )
    if len(shape) < 2:
        size = int(shape[0]) if shape else 1
        return size, size
    field = math.prod(shape[:-2])
    return int(shape[-2] * field), int(shape[-1] * field)


class VarianceScaling(RandomInitializer):
    """Values whose variance is scale / n, n being the inputs, the outputs or their mean.

    Args:
        scale: A positive number.
        mode: "fan_in", "fan_out" or "fan_avg".
        distribution: "truncated_normal", "untruncated_normal" (or "normal", which is truncated),
            or "uniform".
        seed: An integer, a SeedGenerator or None.
        input_axes: See `compute_fans`.
        output_axes: See `compute_fans`.

    Raises:
        ValueError: for other values of these.

    Source: He et al., "Delving Deep into Rectifiers", 2015.

    Example:

    >>> from kerascnn import initializers
    >>> w = initializers.VarianceScaling(2.0, distribution="untruncated_normal", seed=1)((50, 400))
    >>> round(float(w.numpy().var()), 2)  # 2 / 50
    0.04
    """

    def __init__(
        self,
        scale: float = 1.0,
        mode: str = "fan_in",
        distribution: str = "truncated_normal",
        seed: Any = None,
        input_axes: Sequence[int] | None = None,
        output_axes: Sequence[int] | None = None,
    ) -> None:
        super().__init__(seed)
        if scale <= 0.0:
            raise ValueError(f"`scale` must be positive. Received: scale={scale}")
        if mode not in ("fan_in", "fan_out", "fan_avg"):
            raise ValueError(
                f"`mode` must be 'fan_in', 'fan_out' or 'fan_avg'. Received: mode={mode!r}"
            )
        distribution = str(distribution).lower()
        if distribution == "normal":
            distribution = "truncated_normal"
        if distribution not in ("uniform", "truncated_normal", "untruncated_normal"):
            raise ValueError(
                "`distribution` must be 'uniform', 'truncated_normal' or 'untruncated_normal'. "
                f"Received: distribution={distribution!r}"
            )
        self.scale = scale
        self.mode = mode
        self.distribution = distribution
        self.input_axes = input_axes
        self.output_axes = output_axes

    def draw(self, shape: tuple[int, ...], dtype: str) -> np.ndarray[Any, Any]:
        fan_in, fan_out = compute_fans(shape, self.input_axes, self.output_axes)
        fan = {"fan_in": fan_in, "fan_out": fan_out, "fan_avg": (fan_in + fan_out) / 2}[self.mode]
        variance = self.scale / max(1.0, fan)
        generator = self.generator()
        if self.distribution == "uniform":
            limit = math.sqrt(3.0 * variance)
            values = generator.random(shape, _drawn_in(dtype))
            values *= 2 * limit
            values -= limit
            return values
        stddev = math.sqrt(variance)
        if self.distribution == "truncated_normal":
            return _truncated_normal(generator, shape, 0.0, stddev / _TRUNCATED_STDDEV, dtype)
        values = generator.standard_normal(shape, _drawn_in(dtype))
        values *= stddev
        return values

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "scale": self.scale,
            "mode": self.mode,
            "distribution": self.distribution,
            "input_axes": self.input_axes,
            "output_axes": self.output_axes,
        }


class _NamedScaling(VarianceScaling):
    """A VarianceScaling with fixed scale, mode and distribution."""

    _scale = 1.0
    _mode = "fan_in"
    _distribution = "uniform"

    def __init__(
        self,
        seed: Any = None,
        input_axes: Sequence[int] | None = None,
        output_axes: Sequence[int] | None = None,
    ) -> None:
        super().__init__(self._scale, self._mode, self._distribution, seed, input_axes, output_axes)

    def get_config(self) -> dict[str, Any]:
        return {
            "seed": serialization.serialize_object(self._config_seed),
            "input_axes": self.input_axes,
            "output_axes": self.output_axes,
        }


class GlorotUniform(_NamedScaling):
    """Uniform within sqrt(6 / (inputs + outputs)), for sigmoid-like activations.

    Args:
        seed: An integer, a SeedGenerator or None.
        input_axes: See `compute_fans`.
        output_axes: See `compute_fans`.

    Source: Glorot and Bengio, "Understanding the difficulty of training deep feedforward neural
    networks", 2010.

    Example:

    >>> from kerascnn import initializers
    >>> w = initializers.GlorotUniform(seed=1)((50, 400)).numpy()
    >>> bool(abs(w).max() <= (6 / (50 + 400)) ** 0.5)
    True
    """

    _mode = "fan_avg"


class GlorotNormal(_NamedScaling):
    """Truncated normal of variance 2 / (inputs + outputs), for sigmoid-like activations.

    Args:
        seed: An integer, a SeedGenerator or None.
        input_axes: See `compute_fans`.
        output_axes: See `compute_fans`.

    Source: Glorot and Bengio, "Understanding the difficulty of training deep feedforward neural
    networks", 2010.

    Example:

    >>> from kerascnn import initializers
    >>> w = initializers.GlorotNormal(seed=1)((50, 400)).numpy()
    >>> round(float(w.std()), 3)  # (2 / (50 + 400)) ** 0.5
    0.067
    """

    _mode = "fan_avg"
    _distribution = "truncated_normal"


class HeUniform(_NamedScaling):
    """Uniform within sqrt(6 / inputs), for relu-like activations.

    Args:
        seed: An integer, a SeedGenerator or None.
        input_axes: See `compute_fans`.
        output_axes: See `compute_fans`.

    Source: He et al., "Delving Deep into Rectifiers", 2015.

    Example:

    >>> from kerascnn import initializers
    >>> w = initializers.HeUniform(seed=1)((50, 400)).numpy()
    >>> bool(abs(w).max() <= (6 / 50) ** 0.5)
    True
    """

    _scale = 2.0


class HeNormal(_NamedScaling):
    """Truncated normal of variance 2 / inputs, for relu-like activations.

    Args:
        seed: An integer, a SeedGenerator or None.
        input_axes: See `compute_fans`.
        output_axes: See `compute_fans`.

    Source: He et al., "Delving Deep into Rectifiers", 2015.

    Example:

    >>> from kerascnn import initializers
    >>> w = initializers.HeNormal(seed=1)((50, 400)).numpy()
    >>> round(float(w.std()), 1)  # (2 / 50) ** 0.5
    0.2
    """

    _scale = 2.0
    _distribution = "truncated_normal"


class LecunUniform(_NamedScaling):
    """Uniform within sqrt(3 / inputs), for selu.

    Args:
        seed: An integer, a SeedGenerator or None.
        input_axes: See `compute_fans`.
        output_axes: See `compute_fans`.

    Source: Klambauer et al., "Self-Normalizing Neural Networks", 2017.

    Example:

    >>> from kerascnn import initializers
    >>> w = initializers.LecunUniform(seed=1)((50, 400)).numpy()
    >>> bool(abs(w).max() <= (3 / 50) ** 0.5)
    True
    """


class LecunNormal(_NamedScaling):
    """Truncated normal of variance 1 / inputs, for selu.

    Args:
        seed: An integer, a SeedGenerator or None.
        input_axes: See `compute_fans`.
        output_axes: See `compute_fans`.

    Source: Klambauer et al., "Self-Normalizing Neural Networks", 2017.

    Example:

    >>> from kerascnn import initializers
    >>> w = initializers.LecunNormal(seed=1)((50, 400)).numpy()
    >>> round(float(w.std()), 2)  # (1 / 50) ** 0.5
    0.14
    """

    _distribution = "truncated_normal"


class Orthogonal(RandomInitializer):
    """A matrix with orthogonal rows or columns of length `gain`; leading axes count as rows.

    Args:
        gain: A factor.
        seed: An integer, a SeedGenerator or None.

    Raises:
        ValueError: in calls, for a shape of fewer than two axes.

    Source: Saxe et al., "Exact solutions to the nonlinear dynamics of learning in deep linear
    neural networks", 2014.

    Example:

    >>> from kerascnn import initializers
    >>> w = initializers.Orthogonal(seed=1)((2, 4)).numpy()
    >>> bool(abs(w @ w.T - [[1, 0], [0, 1]]).max() < 1e-6)
    True
    """

    def __init__(self, gain: float = 1.0, seed: Any = None) -> None:
        super().__init__(seed)
        self.gain = gain

    def draw(self, shape: tuple[int, ...], dtype: str) -> np.ndarray[Any, Any]:
        if len(shape) < 2:
            raise ValueError(
                f"Orthogonal is for weights of two axes or more. Received: shape={tuple(shape)}"
            )
        rows, columns = math.prod(shape[:-1]), shape[-1]
        normal = self.generator().standard_normal((max(rows, columns), min(rows, columns)))
        q, r = np.linalg.qr(normal)
        q = q * np.sign(np.diag(r))  # makes q unique, so that it is uniformly distributed
        return self.gain * (q if rows >= columns else q.T).reshape(shape)

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "gain": self.gain}
