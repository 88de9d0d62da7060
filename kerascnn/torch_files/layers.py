"""How the weights of a layer come from the tensors of a module of PyTorch.

PyTorch has kernels as (out, in, height, width) and matrices as (out, in); here they are
(height, width, in, out) and (in, out). Names differ as well: one table has both.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from kerascnn import layers
from kerascnn.layers.base_convolution import BaseConvolution
from kerascnn.layers.convolution_transpose import BaseConvTranspose
from kerascnn.layers.depthwise_convolution import BaseDepthwiseConv
from kerascnn.layers.separable_convolution import BaseSeparableConv
from kerascnn.torch_files.reading import Arrays
from kerascnn.variable import Variable

Array = np.ndarray[Any, Any]
# Layers between a Flatten and a dense layer that leave each number where it is.
_IN_PLACE = (layers.Dropout, layers.Activation, layers.ReLU, layers.LeakyReLU, layers.Identity)


class Mismatch(ValueError):
    """A module does not have what a layer needs; the message says what."""


class Taken(NamedTuple):
    """A weight, what it becomes, and the names of the tensors that this was."""

    variable: Variable
    array: Array
    names: tuple[str, ...]


def units(model: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """The layers whose weights are taken as a whole, with their paths below the model."""
    yield from _units(model, path, set())


def _units(layer: Any, path: str, seen: set[int]) -> Iterator[tuple[str, Any]]:
    for inner in layer._sublayers():
        if id(inner) in seen:
            continue
        seen.add(id(inner))
        name = f"{path}/{inner.name}" if path else inner.name
        if isinstance(inner, (layers.MultiHeadAttention, layers.LSTM, layers.GRU)):
            yield name, inner
        elif inner._weights_in_files():
            yield name, inner
            yield from _units(inner, name, seen)
        else:
            yield from _units(inner, name, seen)


def from_module(layer: Any, tensors: Arrays, module: str) -> list[Taken]:
    """What a layer's weights become.

    Args:
        layer: A layer that is built.
        tensors: Those of a file.
        module: The name of the module, with which the names of its tensors begin.

    Raises:
        Mismatch: where the module lacks a tensor, and for layers that PyTorch has not.
    """
    start = f"{module}." if module else ""
    for kinds, read in _WHOLE:
        if isinstance(layer, kinds):
            return read(layer, tensors, start)
    rules = next((rules for kinds, rules in _RULES if isinstance(layer, kinds)), None)
    if rules is None or isinstance(layer, BaseSeparableConv):
        raise Mismatch(
            f"for a {type(layer).__name__} give the names of its tensors, one for each weight"
        )
    taken = []
    for variable in layer._weights_in_files():
        if variable.name not in rules:
            raise Mismatch(f"its weight '{variable.name}' is none that PyTorch has")
        suffix, change = rules[variable.name]
        array = change(layer, _found(tensors, start + suffix))
        taken.append(_checked(variable, array, (start + suffix,), tensors))
    return taken


def from_tensors(layer: Any, tensors: Arrays, names: Sequence[str]) -> list[Taken]:
    """What a layer's weights become where each is a tensor as it is, but for axes of 1."""
    variables = layer.weights
    if len(names) != len(variables):
        raise Mismatch(f"it has {len(variables)} weights, but {len(names)} tensors are named")
    taken = []
    for variable, name in zip(variables, names, strict=True):
        array = _found(tensors, name)
        if [n for n in array.shape if n > 1] == [n for n in variable.shape if n > 1]:
            array = array.reshape(variable.shape)
        taken.append(_checked(variable, array, (name,), tensors))
    return taken


def _found(tensors: Arrays, name: str) -> Array:
    if name not in tensors:
        raise Mismatch(f"the file has no '{name}'")
    return tensors[name]


def _checked(variable: Variable, array: Array, names: tuple[str, ...], tensors: Arrays) -> Taken:
    shapes = [tensors[name].shape for name in names]
    if array.shape != tuple(variable.shape):
        raise Mismatch(
            f"its weight '{variable.name}' of shape {tuple(variable.shape)} can't be made of "
            f"{', '.join(f'{n} {s}' for n, s in zip(names, shapes, strict=True))}"
        )
    if array.dtype.kind in "iub" and variable.dtype.startswith(("float", "bfloat")):
        raise Mismatch(f"its weight '{variable.name}' is no {array.dtype.name}, as {names[0]} is")
    return Taken(variable, array, names)


# One tensor for each weight -------------------------------------------------------------------


def _same(_: Any, array: Array) -> Array:
    return array


def _kernel(layer: Any, array: Array) -> Array:
    """A kernel of a convolution; a matrix is one of a window of one pixel."""
    rank = len(layer.kernel_size)
    array = array.reshape(array.shape + (1,) * (rank + 2 - array.ndim))
    return array.transpose(*range(2, rank + 2), 1, 0)


def _depthwise_kernel(layer: Any, array: Array) -> Array:
    """PyTorch has the kernels of a channel after each other along the first axis."""
    rank, multiplier = len(layer.kernel_size), layer.depth_multiplier
    if array.ndim != rank + 2 or array.shape[1] != 1 or array.shape[0] % multiplier:
        return array
    array = array[:, 0].reshape(-1, multiplier, *array.shape[2:])
    return array.transpose(*range(2, rank + 2), 0, 1)


def _matrix(layer: Any, array: Array) -> Array:
    """The matrix of a dense layer, also from a convolution with one pixel, or all, as window."""
    shape = _flattened(layer)
    rows = array.shape[0] if array.ndim else 0
    if shape is not None and array.ndim > 1 and array.size == rows * int(np.prod(shape)):
        # PyTorch flattens channels first.
        *sides, channels = shape
        array = array.reshape(rows, channels, *sides)
        return array.transpose(*range(2, array.ndim), 1, 0).reshape(-1, rows)
    if array.ndim > 2 and array.size == rows * array.shape[1]:
        array = array.reshape(array.shape[:2])
    return array.transpose() if array.ndim == 2 else array


def _slopes(layer: Any, array: Array) -> Array:
    """The slopes of a PReLU: in PyTorch one for all, or one for each channel."""
    shape = tuple(layer.alpha.shape)
    is_of_channels = array.ndim == 1 and array.shape[0] in (1, shape[-1])
    return np.broadcast_to(array, shape) if is_of_channels else array


def _flattened(layer: Any) -> tuple[int, ...] | None:
    """Returns the shape of one map that a dense layer gets flattened, channels last, else None."""
    try:
        tensor = layer.input
    except (AttributeError, ValueError):
        return None  # a layer of a class of one's own is called in code, which says nothing
    for _ in range(10):
        history = getattr(tensor, "_keras_history", None)
        if history is None:
            return None
        operation = history.operation
        if isinstance(operation, layers.Flatten):
            shape = tuple(operation.input.shape[1:])
            last = operation.data_format == "channels_last"
            return shape if last and len(shape) > 1 and None not in shape else None
        if not isinstance(operation, _IN_PLACE):
            return None
        tensor = operation.input
    return None


_Rules = dict[str, tuple[str, Callable[[Any, Array], Array]]]
_AFFINE: _Rules = {"gamma": ("weight", _same), "beta": ("bias", _same)}
_MOVING: _Rules = {
    "moving_mean": ("running_mean", _same),
    "moving_variance": ("running_var", _same),
}
_BIAS: _Rules = {"bias": ("bias", _same)}
# By kinds of layers: of what tensor each weight is made, and how. The first that fits is taken.
_RULES: tuple[tuple[Any, _Rules], ...] = (
    (layers.Dense, {"kernel": ("weight", _matrix), **_BIAS}),
    (BaseDepthwiseConv, {"kernel": ("weight", _depthwise_kernel), **_BIAS}),
    ((BaseConvolution, BaseConvTranspose), {"kernel": ("weight", _kernel), **_BIAS}),
    (layers.BatchNormalization, {**_AFFINE, **_MOVING}),
    ((layers.LayerNormalization, layers.GroupNormalization), _AFFINE),
    (layers.RMSNormalization, {"scale": ("weight", _same)}),
    (layers.Embedding, {"embeddings": ("weight", _same)}),
    (layers.PReLU, {"alpha": ("weight", _slopes)}),
)


# Several weights from one tensor --------------------------------------------------------------


def _attention(layer: Any, tensors: Arrays, start: str) -> list[Taken]:
    """Attention of PyTorch or of timm: queries, keys and values are made by one matrix."""
    inner, outer = (
        ("in_proj_", "out_proj.") if f"{start}in_proj_weight" in tensors else ("qkv.", "proj.")
    )
    query, key, value, output = (
        layer.query_dense,
        layer.key_dense,
        layer.value_dense,
        layer.output_dense,
    )
    taken = []
    for index, dense in enumerate((query, key, value)):
        for variable in dense.weights:
            name = f"{start}{inner}{'weight' if variable.name == 'kernel' else 'bias'}"
            array = _found(tensors, name)
            size = int(np.prod(variable.shape[-2:]))
            part = array[index * size : (index + 1) * size] if len(array) == 3 * size else array
            if part is not array:
                part = np.moveaxis(part, 0, -1).reshape(*part.shape[1:], *variable.shape[-2:])
            taken.append(_checked(variable, part, (name,), tensors))
    for variable in output.weights:
        name = f"{start}{outer}{'weight' if variable.name == 'kernel' else 'bias'}"
        array = _found(tensors, name)
        if array.size == int(np.prod(variable.shape)):
            array = array.transpose().reshape(variable.shape)
        taken.append(_checked(variable, array, (name,), tensors))
    return taken


def _lstm(layer: Any, tensors: Arrays, start: str) -> list[Taken]:
    """One layer of `torch.nn.LSTM`, whose gates have the same order and a bias for each product."""
    return _recurrent(layer, tensors, start, lambda a: a, lambda a, b: a + b)


def _gru(layer: Any, tensors: Arrays, start: str) -> list[Taken]:
    """One layer of `torch.nn.GRU`, which has its first two gates in the other order."""
    if not layer.cell.reset_after:
        raise Mismatch("a GRU of PyTorch has reset_after=True")

    def ordered(array: Array) -> Array:
        reset, update, new = np.split(array, 3)
        return np.concatenate([update, reset, new])

    return _recurrent(layer, tensors, start, ordered, lambda a, b: np.stack([a, b]))


def _recurrent(
    layer: Any,
    tensors: Arrays,
    start: str,
    ordered: Callable[[Array], Array],
    joined: Callable[[Array, Array], Array],
) -> list[Taken]:
    taken = []
    for variable in layer.cell.weights:
        parts = {"kernel": ["weight_ih"], "recurrent_kernel": ["weight_hh"]}
        names = tuple(
            f"{start}{part}_l0" for part in parts.get(variable.name, ["bias_ih", "bias_hh"])
        )
        arrays = [_found(tensors, name) for name in names]
        if any(array.shape[:1] != (variable.shape[-1],) for array in arrays):
            array = arrays[0]
        elif len(arrays) == 1:
            array = ordered(arrays[0]).transpose()
        else:
            array = joined(*(ordered(array) for array in arrays))
        taken.append(_checked(variable, array, names, tensors))
    return taken


_WHOLE = (
    (layers.MultiHeadAttention, _attention),
    (layers.LSTM, _lstm),
    (layers.GRU, _gru),
)
