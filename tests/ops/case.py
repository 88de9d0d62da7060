"""A row of the op tests, and generators for its inputs."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

Array = np.ndarray
Attributes = dict[str, Any]
Call = tuple[list[Array], Attributes]
Rng = np.random.Generator

FLOATS = ("float64", "float32", "float16", "bfloat16")
INTEGERS = ("int32", "int64", "int16", "int8", "uint8")

# These are relative errors of norms. float32: the project's bar for every op. float64: about 1e4
# roundings. 16-bit types: inputs are exact and arithmetic is in float32, so only the result is
# rounded: by 2^-11 for float16 (11 significant bits) and 2^-8 for bfloat16 (8 bits), doubled here.
TOLERANCE = {"float64": 1e-12, "float32": 1e-5, "float16": 2.0**-10, "bfloat16": 2.0**-7}


@dataclass(frozen=True)
class Case:
    """One call of an op, with fresh random inputs each time.

    `make(rng, dtype)` returns the inputs and the attributes. Its float64 arrays are converted to
    the tested dtype; arrays of other dtypes are passed as they are.
    """

    op: str
    id: str
    make: Callable[[Rng, str], Call]
    dtypes: tuple[str, ...] = FLOATS
    # This says whether gradients are checked. Inputs must not lie within 0.01 of a kink then.
    gradient: bool = True
    # The test's loss uses these outputs; None stands for all floating ones.
    loss_outputs: tuple[int, ...] | None = None
    # Floating outputs have this dtype instead of the tested one.
    result_dtype: str | None = None
    # These dtypes have another tolerance than TOLERANCE, and `reason` says why.
    tolerance: dict[str, float] = field(default_factory=dict)
    reason: str = ""
    # Errors are compared with at least this norm, for results of terms that may cancel.
    least_norm: float = 0.0
    # A dimension is above 65,535, and kernels may put it into a grid: only float32, only forward.
    large: bool = False

    def __str__(self) -> str:
        return f"{self.op}-{self.id}"


@dataclass(frozen=True)
class Bad:
    """A call that must fail, with the exception and a part of its message."""

    op: str
    inputs: list[Array]
    attributes: Attributes
    error: type[Exception]
    message: str

    def __str__(self) -> str:
        return f"{self.op}-{self.message[:40].strip().replace(' ', '_')}"


def row(op: str, id: str, make: Callable[..., Call], **options: Any) -> Case:
    """Makes a case for floating dtypes; `make` may leave out the dtype."""
    takes_dtype = "dtype" in inspect.signature(make).parameters
    return Case(op, id, make if takes_dtype else lambda rng, dtype: make(rng), **options)


def large(op: str, make: Callable[..., Call], id: str = "large") -> Case:
    return row(op, id, make, dtypes=("float32",), gradient=False, large=True)


def fixed(inputs: list[Array], attributes: Attributes | None = None) -> Callable[[Rng], Call]:
    """Makes the same call each time."""
    return lambda rng: (inputs, attributes or {})


def zeros(*shape: int, dtype: str = "float32") -> Array:
    return np.zeros(shape, dtype)


def normal(rng: Rng, *shape: int) -> Array:
    return rng.standard_normal(shape)


def positive(rng: Rng, *shape: int) -> Array:
    return rng.uniform(0.2, 3.0, shape)


def away_from(rng: Rng, points: tuple[float, ...], *shape: int) -> Array:
    """Returns normal numbers, none within 0.05 of a point where the op has a kink."""
    x = rng.standard_normal(shape)
    for point in points:
        near = np.abs(x - point) < 0.05
        x = np.where(near, point + np.where(x >= point, 0.1, -0.1), x)
    return x


def distinct(rng: Rng, *shape: int) -> Array:
    """Returns numbers at least 0.1 apart, so that a small step changes no maximum."""
    size = int(np.prod(shape))
    return (rng.permutation(size) - size / 2).reshape(shape) * 0.1


def few_values(rng: Rng, *shape: int) -> Array:
    """Returns small integers, so that many are equal."""
    return rng.integers(-2, 3, shape).astype(np.float64)


def limits(rng: Rng, dtype: str, *shape: int) -> Array:
    """Returns integers from the whole range of the dtype."""
    info = np.iinfo(dtype)
    return rng.integers(info.min, info.max, shape, dtype=dtype, endpoint=True)


def integers(rng: Rng, dtype: str, *shape: int, low: int | None = None, high: int = 10) -> Array:
    lowest = 0 if dtype.startswith("u") else -high
    return rng.integers(lowest if low is None else low, high, shape).astype(dtype)
