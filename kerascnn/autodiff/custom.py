"""Gradients given by hand."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable
from typing import Any

from kerascnn import _core, tracing, trees
from kerascnn.ops import dispatch
from kerascnn.variable import Variable


def custom_gradient(f: Callable[..., Any]) -> Callable[..., Any]:
    """Lets a function define its own gradient.

    Args:
        f: Takes tensors and returns (outputs, gradient function). The gradient function is given
            one gradient for each output, by position, and returns one for each argument of `f`
            (None where there is none). It may use what `f` has computed.

    Returns:
        A function that returns the outputs. What its gradient function computes is recorded by
        outer tapes, so derivatives of higher order are those of that function.

    Raises:
        TypeError: when called, where `f` does not return a pair of outputs and a function.
        ValueError: when differentiated, where the number of gradients is not that of arguments.

    Example:

    >>> import kerascnn as keras
    >>> @keras.custom_gradient
    ... def soft_step(x):
    ...     slope = keras.ops.sigmoid(x) * (1.0 - keras.ops.sigmoid(x))
    ...     return keras.ops.cast(x > 0.0, "float32"), lambda upstream: upstream * slope
    >>> float(keras.grad(lambda x: soft_step(x))(0.0))
    0.25
    """

    @functools.wraps(f)
    def call(*args: Any, **kwargs: Any) -> Any:
        trace = tracing.current()
        if trace is None and not _core.is_recording():
            return _split(f(*args, **kwargs))[0]
        inputs = [_argument(x) for x in args]
        outputs, gradient = _split(_computed(f, inputs, kwargs))
        places = [i for i, x in enumerate(inputs) if dispatch.is_tensor(x)]
        leaves = [dispatch.convert(y) for y in trees.flatten(outputs)]

        def backward(upstream: list[Any]) -> list[Any]:
            # The function may be differentiated in the body of a loop, whose trace is not the one
            # open.
            with contextlib.nullcontext() if trace is None else tracing.resumed(trace):
                return found_from(upstream)

        def found_from(upstream: list[Any]) -> list[Any]:
            given = [_zeros(y) if g is None else g for g, y in zip(upstream, leaves, strict=True)]
            found = gradient(*given)
            found = list(found) if isinstance(found, (list, tuple)) else [found]
            if len(found) != len(inputs):
                raise ValueError(
                    f"custom_gradient: the gradient function of {_name(f)} gave {len(found)} "
                    f"gradients for {len(inputs)} arguments; it must give one for each, None where "
                    "there is none."
                )
            return [
                None if found[i] is None else dispatch.convert(found[i], inputs[i].dtype)
                for i in places
            ]

        tensors = [inputs[i] for i in places]
        if trace is None:
            results = _core.record_function(_name(f), tensors, leaves, backward)
        else:
            results = trace.graph.with_own_gradient(tensors, leaves, backward)
        return trees.pack_as(outputs, list(results))

    return call


def _computed(f: Callable[..., Any], inputs: list[Any], kwargs: dict[str, Any]) -> Any:
    """Computes the outputs. Tapes record only what the gradient function needs."""
    if tracing.current() is not None or not _core.records_once():
        return f(*inputs, **kwargs)
    # There will be no gradient, so nothing has to be kept for it.
    with _core.RecordingPause() as pause:
        result = f(*inputs, **kwargs)
    for variable in pause.reads:
        variable.value  # noqa: B018 the tape watches what was read
    return result


def _argument(x: Any) -> Any:
    if isinstance(x, Variable):
        return x.value
    return dispatch.convert(x) if dispatch.is_array_like(x) else x


def _split(result: Any) -> tuple[Any, Callable[..., Any]]:
    if not isinstance(result, tuple) or len(result) != 2 or not callable(result[1]):
        raise TypeError(
            "custom_gradient: the function must return (outputs, gradient function). Received: "
            f"{result!r}"
        )
    return result


def _zeros(like: Any) -> Any:
    from kerascnn import ops

    return ops.zeros_like(like)


def _name(f: Callable[..., Any]) -> str:
    return getattr(f, "__name__", type(f).__name__)
