"""Checks the definitions of custom ops and hands them to the core."""

from __future__ import annotations

import atexit
import functools
import math
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from kerascnn import _core, dtypes
from kerascnn.ops import custom_source

Shape = tuple[int, ...]
Source = tuple[str, str, str, object]  # text, function, label, launch
Specs = list[tuple[str, Shape]]  # dtypes and shapes, in the form that the core uses

FLOATS = ("float16", "bfloat16", "float32", "float64")
# In the sources, x_t is the type of an element of x, so these names are reserved.
_RESERVED = frozenset(
    ["real", "size", "ssize", "ptrdiff", "wchar", "time", "clock", "off"]
    + [f"{kind}{bits}" for kind in ("int", "uint") for bits in (8, 16, 32, 64)]
)


@dataclass(frozen=True)
class KernelSource:
    """Source code of a kernel, and how it is launched.

    The kernel's arguments are pointers to the inputs, pointers to the outputs, and the integers
    that `sizes` gives. All tensors are contiguous. In the source, `x_t` is the element type of the
    input or output `x`; float16 and bfloat16 are types that convert to and from float.

    Args:
        source: CUDA C++ with a `__global__` function, or for a CPU C++ with a function that returns
            nothing.
        name: The function, where the source has several, or an instance of a template:
            `"scale<x_t>"`.
        sizes: Integers for the kernel, from the inputs' shapes, by default the number of elements
            of the first output.
        elements: How many threads have work, from the inputs' shapes, by default one for each
            element of the first output. There are as many blocks as that takes; the last one has
            threads beyond, so the kernel compares its index with a size.
        threads: The threads of a block, or up to three numbers for its axes.
        grid: The blocks in place of `elements`: a number or up to three, from the inputs' shapes.
        shared_memory: Bytes of dynamic shared memory, or a function of the inputs' shapes.

    A CPU uses `source`, `name` and `sizes` alone.

    Example:

    >>> from kerascnn import ops
    >>> kernel = ops.KernelSource(
    ...     '''
    ...     __global__ void row_sums(const x_t* x, y_t* y, int64_t rows, int64_t columns) {
    ...       const int64_t row = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
    ...       if (row >= rows) return;
    ...       float sum = 0;
    ...       for (int64_t i = 0; i < columns; ++i) sum += float(x[row * columns + i]);
    ...       y[row] = sum;
    ...     }
    ...     ''',
    ...     sizes=lambda x: x,
    ... )
    """

    source: str
    name: str | None = None
    sizes: Callable[..., Sequence[int]] | None = None
    elements: Callable[..., int] | None = None
    threads: int | Sequence[int] = 256
    grid: Callable[..., int | Sequence[int]] | None = None
    shared_memory: int | Callable[..., int] = 0

    def launch(self, inputs: Specs, outputs: Specs) -> tuple[Any, Any, int, list[int]]:
        """Grid, block, bytes of shared memory and sizes for these inputs and outputs."""
        shapes = [shape for _, shape in inputs]
        count = math.prod(outputs[0][1])
        block = _three_axes(self.threads, "threads")
        if self.grid is not None:
            grid = _three_axes(self.grid(*shapes), "grid")
        else:
            elements = count if self.elements is None else int(self.elements(*shapes))
            grid = (-(-elements // math.prod(block)), 1, 1)
        shared = self.shared_memory
        sizes = [count] if self.sizes is None else [int(size) for size in self.sizes(*shapes)]
        return grid, block, int(shared(*shapes) if callable(shared) else shared), sizes


def _three_axes(value: Any, what: str) -> tuple[int, int, int]:
    numbers = [int(value)] if isinstance(value, (int, np.integer)) else [int(n) for n in value]
    if not 1 <= len(numbers) <= 3 or any(n < 0 for n in numbers):
        raise ValueError(f"{what} of a kernel must be one to three numbers. Received: {value!r}")
    return tuple([*numbers, 1, 1][:3])  # type: ignore[return-value]


class Definition:
    """The common part of the forward op and the op of its gradients."""

    def __init__(self, name: str, inputs: tuple[str, ...], outputs: tuple[str, ...]) -> None:
        if not isinstance(name, str) or not name.isidentifier():
            raise ValueError(f"custom_op: the name must be an identifier. Received: {name!r}")
        names = (*inputs, *outputs)
        if not inputs or not outputs or len(set(names)) < len(names):
            raise ValueError(
                f"custom_op {name}: inputs and outputs need names that differ. "
                f"Received: inputs={inputs}, outputs={outputs}"
            )
        for part in names:
            if not part.isidentifier() or not part.isascii() or part in _RESERVED:
                raise ValueError(
                    f"custom_op {name}: {part!r} can't be the name of an input or output: "
                    "it must be an identifier of C, and not one of "
                    f"{', '.join(sorted(_RESERVED))}."
                )
        self.name = name
        self.inputs = inputs
        self.outputs = outputs

    def allowed_dtypes(
        self, given: Sequence[str] | Mapping[str, Sequence[str]]
    ) -> tuple[tuple[str, ...], ...]:
        if isinstance(given, str):
            given = (given,)
        if not isinstance(given, Mapping):
            given = dict.fromkeys(self.inputs, given)
        unknown = set(given) - set(self.inputs)
        if unknown:
            raise ValueError(
                f"custom_op {self.name}: dtypes are given for {sorted(unknown)}, which are not "
                f"among the inputs {list(self.inputs)}."
            )
        return tuple(
            tuple(dtypes.standardize_dtype(d) for d in _listed(given.get(n, FLOATS)))
            for n in self.inputs
        )

    def define_gradient(
        self,
        gradient: Any,
        cpu_gradient: Any,
        allowed: tuple[tuple[str, ...], ...],
        output_dtypes: Sequence[str],
    ) -> str:
        """Defines the op that computes gradients, and returns its key."""
        kinds = zip(self.inputs, allowed, strict=True)
        gradients = tuple(f"d{n}" for n, kind in kinds if any(dtypes.is_float(d) for d in kind))
        upstream = tuple(
            f"d{n}"
            for n, dtype in zip(self.outputs, output_dtypes, strict=True)
            if dtypes.is_float(dtype)
        )
        given = (*self.outputs, *upstream)
        backward = Definition(self.name, (*self.inputs, *given), gradients)
        return backward.define(
            gradient,
            cpu_gradient,
            allowed=(*allowed, *([dtypes.ALL] * len(given))),
            num_differentiated=len(self.inputs),
            part="gradient",
        )

    def define(
        self,
        code: Any,
        cpu: Any,
        *,
        allowed: tuple[tuple[str, ...], ...],
        part: str,
        infer: Callable[[Specs], Specs] | None = None,
        gradient: str = "",
        num_differentiated: int = 0,
        increasing: bool = False,
    ) -> str:
        """Defines one op in the core and returns its key."""
        is_elementwise = expressions_of(code) is not None
        cuda, cpp = self._sources(code, part)
        run = None
        if isinstance(cpu, (str, KernelSource)):
            if is_elementwise:
                raise ValueError(
                    f"custom_op {self.name}: an expression is compiled for the CPU too; pass a "
                    "NumPy function as cpu, or nothing."
                )
            if isinstance(cpu, str):
                cpu = KernelSource(cpu, sizes=code.sizes if code is not None else None)
            label = f"{self.name} {part} on the CPU"
            cpp = (cpu.source, self._function(cpu, "cpu", False), label, cpu.launch)
        elif callable(cpu):
            run = _caller(self.name, cpu)
        elif cpu is not None:
            raise TypeError(
                f"custom_op {self.name}: the CPU implementation must be a function of NumPy "
                f"arrays, C++ source or a KernelSource. Received: {cpu!r}"
            )
        _forget_at_exit()
        return _core.define_op(
            self.name,
            self.inputs,
            self.outputs,
            allowed,
            is_elementwise,
            0 if is_elementwise else num_differentiated,
            cuda,
            cpp,
            infer,
            run,
            gradient,
            increasing,
        )

    def _sources(self, code: Any, part: str) -> tuple[Source | None, Source | None]:
        """Returns what is compiled for a GPU and for the CPU, from an expression or a kernel."""
        label = f"{self.name} {part}"
        expressions = expressions_of(code)
        if expressions is not None:
            named = self._labelled(expressions, label)
            function = f"{self.name}_{part}"  # profilers show this name
            cuda = custom_source.cuda_elements(function, self.inputs, self.outputs, named)
            cpp = custom_source.cpp_elements(function, self.inputs, self.outputs, named)
            return (cuda, function, self.name, None), (cpp, function, self.name, None)
        if code is None:
            return None, None
        if not isinstance(code, KernelSource):
            raise TypeError(
                f"custom_op {self.name}: {part} must be an expression, a KernelSource or None. "
                f"Received: {code!r}"
            )
        return (code.source, self._function(code, part, True), label, code.launch), None

    def _labelled(self, expressions: tuple[str, ...], label: str) -> list[tuple[str, str]]:
        if len(expressions) != len(self.outputs):
            raise ValueError(
                f"custom_op {self.name}: {len(expressions)} expressions were given for "
                f"{len(self.outputs)} results ({', '.join(self.outputs)}); each needs one."
            )
        if len(expressions) == 1:
            return [(label, expressions[0])]
        return [(f"{label} {n}", e) for n, e in zip(self.outputs, expressions, strict=True)]

    def _function(self, code: KernelSource, part: str, cuda: bool) -> str:
        if code.name is not None:
            return code.name
        found = custom_source.kernel_names(code.source, cuda)
        if len(found) != 1:
            kind = "__global__ functions" if cuda else "functions that return nothing"
            raise ValueError(
                f"custom_op {self.name}: the {part} source has {len(found)} {kind} "
                f"({', '.join(found) or 'none'}); say which one is called with "
                "KernelSource(..., name=...)."
            )
        return found[0]


def expressions_of(code: Any) -> tuple[str, ...] | None:
    """Returns the expressions of an elementwise kernel, or None for anything else."""
    if isinstance(code, str):
        return (code,)
    if isinstance(code, (list, tuple)) and code and all(isinstance(part, str) for part in code):
        return tuple(code)
    return None


def _listed(value: Any) -> Sequence[Any]:
    return (value,) if isinstance(value, str) else value


def output_dtypes(name: str, count: int, given: str | Sequence[str] | None) -> list[str] | None:
    """Returns the dtypes of all outputs, or None if they are that of the first input."""
    if given is None:
        return None
    named = [dtypes.standardize_dtype(d) for d in _listed(given)]
    if len(named) not in (1, count):
        raise ValueError(
            f"custom_op {name}: output_dtype names {len(named)} dtypes for {count} outputs."
        )
    return named * (count if len(named) == 1 else 1)


def shape_rule(
    name: str, count: int, output_shape: Callable[..., Any] | None, named: list[str] | None
) -> Callable[[Specs], Specs]:
    """Computes the outputs' dtypes and shapes from the inputs' in the form that the core needs."""

    def rule(inputs: Specs) -> Specs:
        shapes = [inputs[0][1]] * count
        if output_shape is not None:
            given = output_shape(*(shape for _, shape in inputs))
            shapes = [given] if count == 1 and not _is_nested(given) else list(given)
        checked = [_checked_shape(name, shape) for shape in shapes]
        # The core compares the number of dtypes with the number of names.
        return list(zip(named or [inputs[0][0]] * len(checked), checked, strict=False))

    return rule


def _is_nested(shape: Any) -> bool:
    return isinstance(shape, (list, tuple)) and any(isinstance(n, (list, tuple)) for n in shape)


def _checked_shape(name: str, shape: Any) -> Shape:
    try:
        sizes = tuple(operator.index(n) for n in shape)
    except TypeError:
        sizes = (-1,)
    if any(n < 0 for n in sizes):
        raise ValueError(
            f"custom_op {name}: output_shape must return the output's shape, or a list of shapes. "
            f"It returned {shape!r}."
        )
    return sizes


def _caller(name: str, function: Callable[..., Any]) -> Callable[[list[Any], Specs], list[Any]]:
    """Wraps a function of NumPy arrays for the core: it gets tensors, and results are checked."""

    def call(tensors: list[Any], outputs: Specs) -> list[Any]:
        found = function(*(tensor.numpy() for tensor in tensors))
        arrays = list(found) if isinstance(found, (list, tuple)) else [found]
        if len(arrays) != len(outputs):
            raise ValueError(
                f"custom_op {name}: the CPU function returned {len(arrays)} arrays for "
                f"{len(outputs)} outputs."
            )
        results = []
        for array, (dtype, shape) in zip(arrays, outputs, strict=True):
            array = np.asarray(array)
            if array.shape != tuple(shape):
                raise ValueError(
                    f"custom_op {name}: the CPU function returned an array of shape {array.shape}, "
                    f"expected {tuple(shape)}."
                )
            if array.dtype.kind not in "biufV":
                raise TypeError(
                    f"custom_op {name}: the CPU function returned an array of {array.dtype}, "
                    f"expected {dtype}."
                )
            wanted = dtypes.numpy_dtype(dtype)
            results.append(
                _core.from_numpy(np.ascontiguousarray(array, wanted).reshape(shape), "cpu")
            )
        return results

    return call


@functools.cache
def _forget_at_exit() -> None:
    """Deletes the functions in the core's definitions, which outlive Python."""
    atexit.register(_core.forget_op_functions)
