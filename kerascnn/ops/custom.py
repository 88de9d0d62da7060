"""Custom ops: CUDA C++ compiled at run time, with a NumPy function or C++ for the CPU."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from kerascnn import _core, dtypes, registration, serialization, tracing
from kerascnn.ops import dispatch, shaping
from kerascnn.ops.custom_definition import (
    FLOATS,
    Definition,
    KernelSource,
    expressions_of,
    output_dtypes,
    shape_rule,
)
from kerascnn.symbolic.operation import OpCall, any_symbolic

__all__ = ["CustomOp", "KernelSource", "custom_op"]

_PACKAGE = serialization.CUSTOM_OPS


class CustomOp:
    """An op made by `custom_op`: call it on tensors, or use it as the activation of a layer.

    Args:
        name: The op's name.
        key: Under which the core keeps its kernels.
        inputs: The names of its inputs.
        dtypes_of_inputs: The dtypes that each of them may have.
        elementwise: Whether the result has the shape that the inputs broadcast to.
        gradient: A function of tensors that gives the gradients; None where a kernel does, or
            where there is none.

    Example:

    >>> import kerascnn as keras
    >>> double = keras.ops.custom_op("double_example", "2 * x", gradient="2 * dy")
    >>> isinstance(double, keras.ops.CustomOp)
    True
    >>> double([1.5]).numpy().tolist()
    [3.0]
    """

    def __init__(
        self,
        name: str,
        key: str,
        inputs: tuple[str, ...],
        dtypes_of_inputs: tuple[tuple[str, ...], ...],
        elementwise: bool,
        gradient: Callable[..., Any] | None,
    ) -> None:
        self.__name__ = self.__qualname__ = name
        self.__doc__ = f"The custom op {name} of {', '.join(inputs)}."
        self._key = key
        self._inputs = inputs
        self._dtypes = dtypes_of_inputs
        self._elementwise = elementwise
        self._gradient = gradient  # a function of tensors, unless it is a kernel
        self._attributes = {"op": key}
        self._is_plain = len(inputs) == 1 and gradient is None

    def __call__(self, *inputs: Any) -> Any:
        # In nearly all calls there is nothing to convert.
        if self._is_plain and len(inputs) == 1:
            (x,) = inputs
            is_tensor = type(x) is _core.Tensor and x.dtype in self._dtypes[0]
            if is_tensor and tracing.current() is None:
                results = dispatch.run("custom_op", inputs, self._attributes)
                return results[0] if len(results) == 1 else tuple(results)
        if any_symbolic(inputs, {}):
            return OpCall(self)(*inputs)
        if len(inputs) != len(self._inputs):
            raise ValueError(
                f"custom_op {self.__name__}: expected {len(self._inputs)} "
                f"input{'s' if len(self._inputs) > 1 else ''} ({', '.join(self._inputs)}), "
                f"received {len(inputs)}"
            )
        values = self._convert(inputs)
        return self._run(*values) if self._gradient is None else self._with_gradient(*values)

    def _run(self, *values: Any) -> Any:
        results = dispatch.apply("custom_op", values, self._attributes)
        return results[0] if len(results) == 1 else tuple(results)

    @functools.cached_property
    def _with_gradient(self) -> Callable[..., Any]:
        from kerascnn.autodiff.custom import custom_gradient

        gradient = self._gradient

        def call(*values: Any) -> Any:
            results = self._run(*values)
            outputs = results if isinstance(results, tuple) else (results,)

            def backward(*upstream: Any) -> Any:
                floating = [
                    g for g, y in zip(upstream, outputs, strict=True) if dtypes.is_float(y.dtype)
                ]
                found = gradient(*values, *outputs, *floating)  # type: ignore[misc]
                given = list(found) if isinstance(found, (list, tuple)) else [found]
                wanted = [dtypes.is_float(x.dtype) for x in values]
                if len(given) != sum(wanted):
                    raise ValueError(
                        f"custom_op {self.__name__}: the gradient function gave {len(given)} "
                        f"gradients for {sum(wanted)} floating inputs."
                    )
                return [given.pop(0) if is_floating else None for is_floating in wanted]

            return results, backward

        call.__name__ = self.__name__
        return custom_gradient(call)

    def _convert(self, inputs: tuple[Any, ...]) -> list[Any]:
        like = dispatch.first_tensor(*inputs)
        if not self._elementwise:
            return [dispatch.convert(x, like=like) for x in inputs]
        values = dispatch.operands(*inputs)
        if values[0].dtype not in self._dtypes[0] and not dtypes.is_float(values[0].dtype):
            floating = dtypes.float_result_type(values[0].dtype)
            values = [dispatch.convert(x, floating) for x in values]
        shapes = [tuple(x.shape) for x in values]
        if len(set(shapes)) > 1:
            try:
                shape = np.broadcast_shapes(*shapes)
            except ValueError:
                raise ValueError(
                    f"custom_op {self.__name__}: the inputs' shapes don't broadcast: "
                    f"{', '.join(f'{n} {s}' for n, s in zip(self._inputs, shapes, strict=True))}"
                ) from None
            # The kernel reads an input of a single element unexpanded.
            values = [
                x if s == shape or math.prod(s) == 1 else shaping.broadcast_to(x, shape)
                for x, s in zip(values, shapes, strict=True)
            ]
        return values

    def __repr__(self) -> str:
        return f"<custom op {self.__name__}({', '.join(self._inputs)})>"

    def __deepcopy__(self, memo: dict[int, Any]) -> CustomOp:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return find_custom_op, (self.__name__,)


def find_custom_op(name: str) -> CustomOp:
    """The op that was defined last under a name.

    Raises:
        ValueError: where none was.
    """
    found = registration.get_registered_object(f"{_PACKAGE}>{name}")
    if found is None:
        found = registration.get_registered_object(name)  # the op of an open custom_object_scope
    if found is None:
        raise serialization.DeserializationError(serialization.missing_custom_op(name))
    op: CustomOp = found
    return op


def custom_op(
    name: str,
    forward: str | Sequence[str] | KernelSource | None = None,
    gradient: str | Sequence[str] | KernelSource | Callable[..., Any] | None = None,
    *,
    cpu: Callable[..., Any] | KernelSource | str | None = None,
    cpu_gradient: Callable[..., Any] | KernelSource | str | None = None,
    inputs: Sequence[str] = ("x",),
    outputs: Sequence[str] = ("y",),
    output_shape: Callable[..., Any] | None = None,
    output_dtype: str | Sequence[str] | None = None,
    dtypes: Sequence[str] | Mapping[str, Sequence[str]] = FLOATS,
    increasing: bool = False,
) -> CustomOp:
    """Makes a custom op from kernels for GPUs and CPUs.

    `forward` is either an expression of one element, which is compiled for both devices, or a
    CUDA kernel. See docs/custom_ops.md.

    Args:
        name: What errors, profiles and saved models call it. An op of the same name that was
            defined before stays what it is where it is used.
        forward: An expression in C of the inputs' names (one for each output), or a kernel. None
            where there is only a CPU implementation.
        gradient: The gradients of the floating inputs, from the inputs, the outputs and the
            outputs' gradients (`dy` of an output `y`): one expression for each input, a kernel with
            one output for each floating input, or a function of tensors that returns one tensor
            for each floating input. None where the op has no gradient.
        cpu: The forward implementation on a CPU: a function of NumPy arrays that returns one array
            for each output, or C++. Not needed with expressions where there is a C++ compiler.
        cpu_gradient: The same for the gradients.
        inputs: Names of the inputs.
        outputs: Names of the outputs.
        output_shape: Takes the inputs' shapes and returns the output's, or a list of those of all
            outputs. By default all outputs have the shape of the first input. Not for expressions,
            whose inputs broadcast.
        output_dtype: The dtypes of the outputs, by default that of the first input. Not for
            expressions.
        dtypes: What every input may have, or each one by its name. Expressions take inputs of one
            dtype, converted as in `ops.add`.
        increasing: Whether the result of the expression never falls where its only input grows, as
            with most activations. Compiled models then compute it after a max-pooling that follows,
            on fewer elements.

    Returns:
        A `CustomOp`, which takes tensors and returns a tensor, or a tuple where it has several
        outputs.

    Raises:
        ValueError: where the arguments don't fit together.

    Example:

    >>> from kerascnn import ops
    >>> softsign = ops.custom_op(
    ...     "softsign_example",
    ...     forward="x / (1 + fabs(x))",
    ...     gradient="dy / ((1 + fabs(x)) * (1 + fabs(x)))",
    ... )
    >>> softsign([-1.0, 0.0, 3.0]).numpy().tolist()
    [-0.5, 0.0, 0.75]
    """
    definition = Definition(name, tuple(inputs), tuple(outputs))
    allowed = definition.allowed_dtypes(dtypes)
    expressions = expressions_of(forward)
    if expressions is not None and (output_shape is not None or output_dtype is not None):
        raise ValueError(
            f"custom_op {name}: the outputs of an expression have the inputs' broadcast shape and "
            "dtype; output_shape and output_dtype are for kernels."
        )
    if forward is None and cpu is None:
        raise ValueError(f"custom_op {name}: pass `forward`, `cpu` or both.")
    if increasing and (expressions is None or len(inputs) != 1 or len(outputs) != 1):
        raise ValueError(f"custom_op {name}: increasing=True is for one expression of one input.")
    by_tensors = callable(gradient) and not isinstance(gradient, KernelSource)
    named = output_dtypes(name, len(outputs), output_dtype)
    gradient_key = ""
    if not by_tensors and (gradient is not None or cpu_gradient is not None):
        kinds = named or ["float32"] * len(outputs)
        gradient_key = definition.define_gradient(gradient, cpu_gradient, allowed, kinds)
    rule = None
    if expressions is None:
        rule = shape_rule(name, len(outputs), output_shape, named)
    key = definition.define(
        forward,
        cpu,
        allowed=allowed,
        infer=rule,
        gradient=gradient_key,
        part="forward",
        increasing=increasing,
    )
    made = CustomOp(
        name,
        key,
        definition.inputs,
        allowed,
        expressions is not None,
        gradient if by_tensors else None,  # type: ignore[arg-type]
    )
    return registration.register_keras_serializable(_PACKAGE, name)(made)
