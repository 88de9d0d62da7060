"""A layer for each step of a sequence."""

from __future__ import annotations

from typing import Any

from kerascnn import ops, trees
from kerascnn.layers.call_arguments import call_parameters
from kerascnn.layers.samplewise import is_samplewise
from kerascnn.layers.wrapper import Wrapper


class TimeDistributed(Wrapper):
    """Applies a layer to each step of a sequence, with the same weights.

    Steps come one after the other, as in a loop: a `BatchNormalization` inside has the statistics
    of each step by itself, and a `Dropout` drops others in each. A compiled step has the layer once
    (`ops.scan`), however long sequences are. Layers of this library that compute each sample by
    itself, such as `Dense`, `Conv2D` or a `Sequential` of them, take all steps as one batch.

    Args:
        layer: The layer for one step.

    Input: (n, steps, ...). By keyword a `mask` (n, steps, ...), by default the input's, of which
    the layer gets that of its step, where its `call` has a `mask`.

    Output: (n, steps, what the layer makes of the rest)

    Raises:
        ValueError: for anything but a layer, for inputs of less than 3 axes, and for a mask of
            another batch or number of steps.

    Example:

    >>> import kerascnn as keras
    >>> layer = keras.layers.TimeDistributed(keras.layers.Conv2D(8, 3))
    >>> layer(keras.ops.ones((2, 5, 8, 8, 1))).shape
    (2, 5, 6, 6, 8)
    """

    _supports_masking = True

    def _step_shape(self, input_shape: Any) -> tuple[int | None, ...]:
        if not isinstance(input_shape, (list, tuple)) or len(input_shape) < 3:
            raise ValueError(
                f"Layer '{self.name}' (TimeDistributed) needs inputs of at least 3 axes: the "
                f"batch, the steps, and those of one step. Received: input_shape={input_shape}"
            )
        return (input_shape[0], *input_shape[2:])

    def build(self, input_shape: Any) -> None:  # type: ignore[override]
        super().build(self._step_shape(input_shape))

    def call(self, inputs: Any, training: bool | None = None, mask: Any = None) -> Any:
        parameters = call_parameters(type(self.layer).call)
        kwargs = {"training": training} if "training" in parameters else {}
        if mask is not None:
            self._check_mask(tuple(mask.shape), tuple(inputs.shape))
        if inputs.shape[1] == 0:
            raise ValueError(
                f"Layer '{self.name}' (TimeDistributed) needs at least one step. Received: "
                f"inputs.shape={tuple(inputs.shape)}"
            )
        given = (inputs, mask if "mask" in parameters else None)
        if is_samplewise(self.layer):
            return self._all_at_once(given, kwargs)
        return self._step_by_step(given, kwargs)

    def _all_at_once(self, given: tuple[Any, Any], kwargs: dict[str, Any]) -> Any:
        batch, steps = given[0].shape[:2]
        inputs, mask = _each(lambda x: ops.reshape(x, (batch * steps, *x.shape[2:])), given)
        outputs = self.layer._run_call(inputs, **_with_mask(kwargs, mask))
        return _each(lambda y: ops.reshape(y, (batch, steps, *y.shape[1:])), outputs)

    def _step_by_step(self, given: tuple[Any, Any], kwargs: dict[str, Any]) -> Any:
        inputs, mask = _each(lambda x: ops.swapaxes(x, 0, 1), given)
        rows = (inputs,) if mask is None else (inputs, mask)

        def step(_: Any, row: tuple[Any, ...]) -> Any:
            own = row[1] if len(row) > 1 else None
            return (), self.layer._run_call(row[0], **_with_mask(kwargs, own))

        outputs = ops.scan(step, (), rows)[1]
        return _each(lambda y: ops.swapaxes(y, 0, 1), outputs)

    def _check_mask(self, mask_shape: tuple[int, ...], input_shape: tuple[int, ...]) -> None:
        if mask_shape[:2] != input_shape[:2]:
            raise ValueError(
                f"Layer '{self.name}' (TimeDistributed): the first two sizes of the mask, the "
                f"batch and the steps, must be those of the input. Received: mask.shape="
                f"{mask_shape}, inputs.shape={input_shape}"
            )

    def compute_output_shape(self, input_shape: Any) -> Any:
        inner = self.layer.compute_output_shape(self._step_shape(input_shape))
        return (inner[0], input_shape[1], *inner[1:])


def _each(function: Any, structure: Any) -> Any:
    return trees.map_structure(lambda x: None if x is None else function(x), structure)


def _with_mask(kwargs: dict[str, Any], mask: Any) -> dict[str, Any]:
    return kwargs if mask is None else {**kwargs, "mask": mask}
