"""Functions that compute gradients of functions."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from kerascnn import ops, trees
from kerascnn.autodiff.tape import GradientTape
from kerascnn.ops import dispatch
from kerascnn.variable import Variable

Argnums = int | Sequence[int]


def value_and_grad(
    fun: Callable[..., Any], argnums: Argnums = 0, has_aux: bool = False
) -> Callable[..., Any]:
    """A function that gives the result of `fun` and its gradient by some of its arguments.

    Args:
        fun: Takes (nested) tensors, variables and whatever else, and returns a floating scalar.
        argnums: Which arguments, by position, to take the gradient by: a number, or several.
        has_aux: Whether `fun` returns (scalar, anything else); the result is then as well.

    Returns:
        A function of the same arguments that returns (value, gradient). The gradient has the
        structure of the argument, with zeros where the result does not depend on it; a tuple of
        these for several `argnums`.

    Raises:
        TypeError: when called, for an argument that is not floating or a result that is no tensor.
        ValueError: when called, for a result that is no scalar.

    Example:

    >>> import kerascnn as keras
    >>> square = keras.value_and_grad(lambda x: keras.ops.sum(x * x))
    >>> value, slope = square(keras.ops.convert_to_tensor([1.0, 2.0]))
    >>> float(value), slope.numpy().tolist()
    (5.0, [2.0, 4.0])
    """
    if not callable(fun):
        raise TypeError(f"A gradient is taken of a function. Received: fun={fun!r}")
    places = (argnums,) if isinstance(argnums, int) else tuple(argnums)

    @functools.wraps(fun)
    def call(*args: Any, **kwargs: Any) -> Any:
        for place in places:
            if not -len(args) <= place < len(args):
                raise ValueError(
                    f"argnums={argnums!r} names an argument that the call does not have: it has "
                    f"{len(args)} by position."
                )
        arguments = list(args)
        with GradientTape(watch_accessed_variables=False) as tape:
            for place in places:
                arguments[place] = trees.map_structure(_own, args[place])
            inputs = [arguments[place] for place in places]
            tape.watch(inputs)
            result = fun(*arguments, **kwargs)
        value, aux = _parts(result, has_aux)
        gradients = tape.gradient(value, inputs, unconnected_gradients="zero")
        found = gradients[0] if isinstance(argnums, int) else tuple(gradients)
        return ((value, aux) if has_aux else value), found

    return call


def grad(
    fun: Callable[..., Any], argnums: Argnums = 0, has_aux: bool = False
) -> Callable[..., Any]:
    """A function that computes the gradient of a function; see `value_and_grad`.

    Args:
        fun: See `value_and_grad`, as for the others.
        argnums: See there.
        has_aux: See there.

    Returns:
        A function of the arguments of `fun` that returns the gradient, or with `has_aux`
        (gradient, what `fun` returned beside the scalar).

    Example:

    >>> import kerascnn as keras
    >>> cube = lambda x: x * x * x
    >>> float(keras.grad(cube)(2.0)), float(keras.grad(keras.grad(cube))(2.0))
    (12.0, 12.0)
    """
    both = value_and_grad(fun, argnums, has_aux)

    @functools.wraps(fun)
    def call(*args: Any, **kwargs: Any) -> Any:
        value, gradient = both(*args, **kwargs)
        return (gradient, value[1]) if has_aux else gradient

    return call


def jvp(
    fun: Callable[..., Any], primals: Sequence[Any], tangents: Sequence[Any], has_aux: bool = False
) -> Any:
    """See `ops.jvp`.

    The gradient of u * fun(primals) is linear in the weights u. Its own gradient by u, weighted by
    `tangents`, is what is wanted, whatever u is.
    """
    for name, given in (("primals", primals), ("tangents", tangents)):
        if not isinstance(given, (tuple, list)):
            raise TypeError(
                f"jvp: `{name}` must be a tuple or a list, one entry for each argument of the "
                f"function. Received: {given!r} of type {type(given).__name__}"
            )
    inputs = trees.map_structure(_own, tuple(primals))
    directions = trees.map_structure(
        lambda x, t: dispatch.convert(t, x.dtype), inputs, tuple(tangents)
    )
    with GradientTape(watch_accessed_variables=False) as outer:
        with GradientTape(watch_accessed_variables=False) as inner:
            inner.watch(inputs)
            result = fun(*inputs)
            value, aux = result if has_aux else (result, None)
            value = trees.map_structure(dispatch.convert, value)
        weights = trees.map_structure(ops.zeros_like, value)
        outer.watch(weights)
        gradients = inner.gradient(value, inputs, weights, unconnected_gradients="zero")
    along = outer.gradient(gradients, weights, directions, unconnected_gradients="zero")
    return (value, along, aux) if has_aux else (value, along)


def _own(x: Any) -> Any:
    """The argument as a tensor that nothing outside of the function has.

    The gradient is by what the function is given: where it also uses the same tensor as a global
    one, that counts as a constant.
    """
    if isinstance(x, Variable):
        return x
    tensor = dispatch.convert(x)
    if not dispatch.dtypes.is_float(tensor.dtype):
        raise TypeError(
            f"A gradient is taken by floating arguments only, and this one is {tensor.dtype} of "
            f"shape {tuple(tensor.shape)}; cast it, or leave it out of `argnums`."
        )
    return ops.reshape(tensor, tuple(tensor.shape)) if dispatch.is_tensor(x) else tensor


def _parts(result: Any, has_aux: bool) -> tuple[Any, Any]:
    aux = None
    if has_aux:
        if not isinstance(result, (tuple, list)) or len(result) != 2:
            raise ValueError(
                "With has_aux=True the function must return (scalar, anything else). Received: "
                f"{result!r}"
            )
        result, aux = result
    if not dispatch.is_tensor(result):
        raise TypeError(
            "A gradient is taken of a function that returns a tensor. Received: "
            f"{result!r} of type {type(result).__name__}"
        )
    if tuple(result.shape) != ():
        raise ValueError(
            "A gradient is taken of a scalar: use ops.mean or ops.sum, or GradientTape.jacobian. "
            f"The function returned a tensor of shape {tuple(result.shape)}."
        )
    return result, aux
