"""How masks go through the calls of layers."""

from __future__ import annotations

import warnings
from typing import Any

from kerascnn import masks, trees
from kerascnn.layers.call_arguments import (
    NO_TENSORS,
    call_parameters,
    holds_tensors,
    mask_parameters,
)
from kerascnn.ops import dispatch


class LayerMasks:
    """Masks on their way through a layer: those that `call` asks for, and those of its outputs."""

    # This tells whether masks pass. None means that the class decides it by `compute_mask`.
    _supports_masking: bool | None = None
    # If true, inner layers warn about a lost mask.
    _leaves_masks_to_layers = False
    # If true, what its calls fill in is noted in graphs for all calls, as in Keras.
    _notes_all_calls = False

    name: str
    call: Any

    @property
    def supports_masking(self) -> bool:
        """Whether outputs get masks, as `compute_mask` says.

        By default that is so where a class overrides `compute_mask`. Set to True in a layer that
        does not, it makes the mask of the inputs that of the outputs.
        """
        if self._supports_masking is None:
            return type(self).compute_mask is not LayerMasks.compute_mask
        return self._supports_masking

    @supports_masking.setter
    def supports_masking(self, value: bool) -> None:
        self._supports_masking = value

    def compute_mask(self, inputs: Any, previous_mask: Any) -> Any:
        """The mask of the outputs, None for none; subclasses override it.

        Args:
            inputs: The first argument of the call.
            previous_mask: The mask that the call was given, else that of `inputs` (nested as they
                are), None for none.
        """
        return previous_mask

    def _fill_in_masks(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        """`kwargs` with the masks that `call` asks for and was not given.

        A call on tensors in one argument gets their mask as `mask`, one on tensors in several that
        of each argument as `<argument>_mask`.
        """
        wanted = mask_parameters(type(self).call)
        if not wanted:
            return kwargs
        if len(args) == 1 and kwargs.keys() <= NO_TENSORS and dispatch.is_tensor(args[0]):
            # this is the usual call and has a fast path
            mask = args[0]._keras_mask if "mask" in wanted else None
            return kwargs if mask is None else {**kwargs, "mask": mask}
        by_position = dict(zip(call_parameters(type(self).call), args, strict=False))
        given = {**by_position, **kwargs}
        tensors = {name: value for name, value in given.items() if holds_tensors(value)}
        several = len(tensors) > 1
        filled = dict(kwargs)
        for name, value in tensors.items():
            parameter = f"{name}_mask" if several else "mask"
            if parameter in wanted and given.get(parameter) is None:
                mask = masks.mask_of(value)
                if mask is not None and parameter not in by_position:
                    filled[parameter] = mask
        return filled

    def _hand_on_mask(self, inputs: Any, outputs: Any, previous_mask: Any) -> None:
        """Sets the masks of outputs that got none in the call."""
        by_default = type(self).compute_mask is LayerMasks.compute_mask
        if by_default and not masks.any_mask(previous_mask):
            return
        if not self.supports_masking:
            if masks.any_mask(previous_mask) and not self._leaves_masks_to_layers:
                self._warn_of_lost_mask(outputs)
            return
        flat = trees.flatten(outputs)
        if all(masks.mask_of(x) is not None for x in flat):
            return
        computed = self.compute_mask(inputs, previous_mask)
        if computed is None:
            return
        # The lists may differ in length: a layer of two outputs can have a mask for the first one
        # only.
        for x, mask in zip(flat, trees.flatten(computed), strict=False):
            if mask is not None and masks.mask_of(x) is None:
                masks.set_mask(x, mask)

    def _warn_of_lost_mask(self, outputs: Any) -> None:
        if masks.any_mask(masks.mask_of(outputs)):
            return
        warnings.warn(
            f"Layer '{self.name}' (of type {type(self).__name__}) was called on an input with a "
            "mask, but does not support masks: its output has none, and later layers will count "
            "every step. Set `supports_masking = True` in a layer whose output the same mask "
            "holds for, or override `compute_mask`.",
            stacklevel=4,
        )
