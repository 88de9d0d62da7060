"""What a layer expects of its inputs, and the check that says what is wrong."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from kerascnn import dtypes, trees


class InputSpec:
    """Expectations of one input; what is None is not checked.

    Args:
        dtype: Element type.
        shape: Sizes, None for any.
        ndim: Number of axes.
        max_ndim: At most so many axes.
        min_ndim: At least so many axes.
        axes: Sizes of single axes, as {axis: size}.
        allow_last_axis_squeeze: Whether a last axis of size 1 may be missing or too many.
        name: Key of this input where inputs come as a dictionary.
        optional: Whether None may come.

    Raises:
        TypeError: where `axes` is no dictionary with integer keys.
        ValueError: where it names an axis beyond `ndim`.

    Example:

    >>> from kerascnn.layers import InputSpec
    >>> InputSpec(ndim=4, axes={-1: 3})
    InputSpec(ndim=4, axes={-1: 3})
    """

    def __init__(
        self,
        dtype: Any = None,
        shape: Sequence[int | None] | None = None,
        ndim: int | None = None,
        max_ndim: int | None = None,
        min_ndim: int | None = None,
        axes: dict[int, int | None] | None = None,
        allow_last_axis_squeeze: bool = False,
        name: str | None = None,
        optional: bool = False,
    ) -> None:
        self.dtype = None if dtype is None else dtypes.standardize_dtype(dtype)
        self.shape = None if shape is None else tuple(shape)
        self.ndim = ndim if shape is None else len(shape)
        self.max_ndim = max_ndim
        self.min_ndim = min_ndim
        self.name = name
        self.optional = optional
        self.allow_last_axis_squeeze = allow_last_axis_squeeze
        try:
            self.axes = {int(axis): size for axis, size in (axes or {}).items()}
        except (AttributeError, TypeError, ValueError):
            raise TypeError(
                f"`axes` must be a dictionary with integer keys. Received: axes={axes!r}"
            ) from None
        limit = self.ndim if self.ndim is not None else self.max_ndim
        if self.axes and limit is not None and max(self.axes) > limit - 1:
            raise ValueError(
                f"`axes` names axis {max(self.axes)}, but there are {limit} axes, 0 to {limit - 1}."
            )

    def __repr__(self) -> str:
        names = ("dtype", "shape", "ndim", "max_ndim", "min_ndim", "axes")
        known = {name: getattr(self, name) for name in names}
        return f"InputSpec({', '.join(f'{k}={v}' for k, v in known.items() if v)})"

    def get_config(self) -> dict[str, Any]:
        """The arguments that make another one like it; values of JSON.

        Returns:
            A dictionary, which `from_config` takes.
        """
        names = ("dtype", "shape", "ndim", "max_ndim", "min_ndim", "axes", "optional")
        return {name: getattr(self, name) for name in names}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> InputSpec:
        """Makes one of what `get_config` returned.

        Args:
            config: The dictionary.
        """
        return cls(**config)


def assert_input_compatibility(input_spec: Any, inputs: Any, layer_name: str) -> None:
    """Raises ValueError naming the layer, what it expects and what came, where inputs don't fit.

    Args:
        input_spec: An InputSpec or a structure of them; None for anything.
        inputs: A tensor or a structure of tensors.
        layer_name: For the message.
    """
    if not input_spec:
        return
    specs = trees.flatten(input_spec)
    names = [spec.name if spec is not None else None for spec in specs]
    if isinstance(inputs, dict) and all(names):
        missing = [name for name in names if name not in inputs]
        if missing:
            raise ValueError(
                f"Layer '{layer_name}' got no data for its input '{missing[0]}'. Expected a "
                f"dictionary with the keys {names}. Received keys: {list(inputs)}"
            )
        inputs = [inputs[name] for name in names]
    flat = trees.flatten(inputs)
    if len(flat) != len(specs):
        raise ValueError(
            f"Layer '{layer_name}' expects {len(specs)} input(s)"
            f"{f' named {names}' if all(names) else ''}, but received {len(flat)}: "
            f"{[tuple(x.shape) if hasattr(x, 'shape') else x for x in flat]}"
            + (". Pass a list in that order, or a dictionary by these names" if all(names) else "")
        )
    for index, (x, spec) in enumerate(zip(flat, specs, strict=True)):
        if spec is None or (x is None and spec.optional):
            continue
        if not hasattr(x, "shape"):
            raise ValueError(
                f"Layer '{layer_name}' must be called on tensors. Received: {x!r} "
                f"(of type {type(x)})"
            )
        problem, hint = _problem(spec, tuple(x.shape), x.dtype)
        if problem:
            raise ValueError(
                f"Input {index} of layer '{layer_name}'"
                f"{f' (named {spec.name!r})' if spec.name else ''} is incompatible with the layer: "
                f"{problem}{_order_hint(specs, index, tuple(x.shape)) or hint}"
            )


def _problem(spec: InputSpec, shape: tuple[int | None, ...], dtype: Any) -> tuple[str, str]:
    """Describes what is wrong with an input, and the way out; "" where there is none."""
    ndim = len(shape)
    received = f"Received an input of shape {shape}."
    if spec.ndim is not None and ndim != spec.ndim and not spec.allow_last_axis_squeeze:
        problem = f"expected ndim={spec.ndim}, found ndim={ndim}. {received}"
        return problem, _rank_hint(spec, ndim)
    if spec.max_ndim is not None and ndim > spec.max_ndim:
        return f"expected max_ndim={spec.max_ndim}, found ndim={ndim}. {received}", ""
    if spec.min_ndim is not None and ndim < spec.min_ndim:
        problem = f"expected min_ndim={spec.min_ndim}, found ndim={ndim}. {received}"
        return problem, _rank_hint(spec, ndim)
    if spec.dtype is not None and dtypes.standardize_dtype(dtype) != spec.dtype:
        return f"expected dtype={spec.dtype}, found dtype={dtype}.", ""
    for axis, size in spec.axes.items():
        if size is not None and shape[axis] not in (size, None):
            return f"expected axis {axis} to have size {size}, found {shape[axis]}. {received}", ""
    if spec.shape is not None:
        wanted, given = spec.shape, shape
        if spec.allow_last_axis_squeeze:
            more = len(wanted) - len(given)
            wanted = wanted[:-1] if more == 1 and wanted[-1] == 1 else wanted
            given = given[:-1] if more == -1 and given[-1] == 1 else given
        if not _fits(wanted, given):
            problem = f"expected shape={spec.shape}, found shape={shape}."
            return problem, _shape_hint(spec.shape, shape)
    return "", ""


def _order_hint(specs: list[Any], index: int, shape: tuple[int | None, ...]) -> str:
    """Says that an input is of another one's shape, if there is one."""
    names = [spec.name for spec in specs if spec is not None]
    for spec in specs[:index] + specs[index + 1 :]:
        if spec is not None and spec.shape is not None and spec.name and _fits(spec.shape, shape):
            return f" It is of the shape of {spec.name!r}: the order is {names}."
    return ""


def _rank_hint(spec: InputSpec, ndim: int) -> str:
    needed = spec.ndim if spec.ndim is not None else spec.min_ndim
    if needed is not None and needed == ndim + 1:
        missing = "the axis of the batch (x[None]) or that of the channels (x[..., None])"
        return f" If {missing} is missing, add it." if needed == 4 else ""
    return ""


def _shape_hint(wanted: tuple[int | None, ...], given: tuple[int | None, ...]) -> str:
    """A way out for what is usually wrong with images and batches of them, "" for other shapes."""
    if len(given) == len(wanted) - 1 and _fits(wanted[1:], given):
        return " If that is one sample, give it the axis of the batch: x[None]."
    if len(given) == len(wanted) - 2 and wanted[-1] == 1 and _fits(wanted[1:-1], given):
        return " If that is one gray image, add the axes of batch and channels: x[None, ..., None]."
    sizes = wanted[1:]
    if len(given) == 2 and None not in sizes and math.prod(sizes) == given[1]:  # type: ignore[arg-type]
        return f" Flat samples get that shape by x.reshape({', '.join(map(str, (-1, *sizes)))})."
    if len(wanted) != len(given):
        return ""
    if len(wanted) != 4 or wanted[3] not in (1, 3):
        return _open_sizes_hint(wanted, given)
    if given[1] == wanted[3] != given[3] and _fits(wanted[1:3], given[2:]):
        return " The channels come last: np.moveaxis(x, 1, -1)."
    if not _fits(wanted[3:], given[3:]):
        if {wanted[3], given[3]} != {1, 3} or not _fits(wanted[1:3], given[1:3]):
            return _open_sizes_hint(wanted, given)
        return (
            " Colors become gray by x.mean(axis=-1, keepdims=True)."
            if wanted[3] == 1
            else " Gray images get three channels by np.repeat(x, 3, axis=-1)."
        )
    if None in sizes:
        return _open_sizes_hint(wanted, given)
    return (
        f" Resize the images: keras.ops.image.resize(x, ({sizes[0]}, {sizes[1]})). A model for "
        f"images of any size begins with keras.Input((None, None, {sizes[2]}))."
    )


def _open_sizes_hint(wanted: tuple[int | None, ...], given: tuple[int | None, ...]) -> str:
    """Which keras.Input would take a shape with as many axes."""
    if not _fits(wanted[:1], given[:1]) or len(wanted) < 2:
        return ""
    if not _fits(wanted[-1:], given[-1:]):
        return f" A model for such data begins with keras.Input({given[1:]})."
    sizes = tuple(w if _fits((w,), (g,)) else None for w, g in zip(wanted, given, strict=True))
    return f" A model for any such size begins with keras.Input({sizes[1:]})."


def _fits(wanted: tuple[int | None, ...], given: tuple[int | None, ...]) -> bool:
    return len(wanted) == len(given) and all(
        a is None or b is None or a == b for a, b in zip(wanted, given, strict=True)
    )
