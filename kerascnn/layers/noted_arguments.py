"""Which arguments of a layer's call a functional model's graph keeps, and which its files have."""

from __future__ import annotations

from typing import Any

from kerascnn import masks
from kerascnn.layers.call_arguments import call_parameters, holds_tensors, mask_parameters
from kerascnn.symbolic.keras_tensor import KerasTensor


def noted_arguments(
    layer: Any, args: tuple[Any, ...], given: dict[str, Any], filled: dict[str, Any]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The keyword arguments of a call on KerasTensors as the graph and as files have them.

    Keras notes what it fills in where the call is on one tensor of the layer's own dtype and no
    more, because it copies the arguments only where it has something to convert. Masks become part
    of the graph then: they are computed from the model's inputs, whatever becomes of the tensors'
    masks on the way; else they come with the tensors.

    Args:
        layer: What was called.
        args: The positional arguments, as the caller gave them.
        given: The keyword arguments, as the caller gave them.
        filled: The keyword arguments that `call` gets, with all that was filled in.

    Returns:
        Those that the graph calls the layer with, without what each of its calls decides, as
        `training`; and those that are written.
    """
    # Calls of the model decide the default of `training`, so None is not kept.
    kept = {k: v for k, v in given.items() if k != "training" or v is not None}
    if not (layer._notes_all_calls or _is_single(layer, args, given)):
        return kept, given
    parameters = call_parameters(type(layer).call)
    context = ("training", *layer._context_arguments)
    written = {k: v for k, v in given.items() if k in parameters or k not in context}
    for name in context:
        value = filled.get(name)
        if name in parameters and value is None and written.get(name) is None:
            value = parameters[name].default
        if name in parameters and value is not None and value is not parameters[name].empty:
            written[name] = value
    for name, mask in _filled_masks(layer, args, given).items():
        written[name] = mask
        if masks.any_mask(mask):
            kept[name] = mask
    return kept, written


def _is_single(layer: Any, args: tuple[Any, ...], given: dict[str, Any]) -> bool:
    """Tells whether a call is on one tensor, which needs no cast, and nothing else."""
    single = len(args) == 1 and not given and isinstance(args[0], KerasTensor)
    return single and args[0].dtype == layer.input_dtype


def _filled_masks(layer: Any, args: tuple[Any, ...], given: dict[str, Any]) -> dict[str, Any]:
    """Returns the masks, or None, that the layer filled in for arguments that were not given."""
    parameters = call_parameters(type(layer).call)
    wanted = mask_parameters(type(layer).call)
    arguments = {**dict(zip(parameters, args, strict=False)), **given}
    tensors = {name: value for name, value in arguments.items() if holds_tensors(value)}
    several = len(tensors) > 1
    found = {}
    for name, value in tensors.items():
        parameter = f"{name}_mask" if several else "mask"
        if parameter in wanted and arguments.get(parameter) is None:
            found[parameter] = masks.mask_of(value)
    return found
