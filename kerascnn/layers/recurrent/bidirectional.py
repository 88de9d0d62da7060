"""A layer that reads a sequence from both ends."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

from kerascnn import ops, serialization, trees
from kerascnn.layers.call_arguments import call_parameters
from kerascnn.layers.layer import Layer
from kerascnn.symbolic.keras_tensor import KerasTensor

_MODES = ("sum", "mul", "ave", "concat", None)


class Bidirectional(Layer):
    """Applies a recurrent layer to a sequence forwards, and another one backwards.

    Args:
        layer: An `RNN`, `LSTM`, ..., or a custom layer with `go_backwards`,
            `return_sequences`, `return_state` and `stateful`. A layer with its configuration, and
            weights of its own, goes forwards. Outputs of masked steps are zeros with
            `return_sequences`.
        merge_mode: "concat", "sum", "mul" or "ave" (the mean) of both outputs; None for a tuple.
        weights: Arrays that the weights begin with, those of the forward layer first.
        backward_layer: What goes backwards; by default a layer like `layer`.

    Call arguments: (sequences, initial_state=None, mask=None, training=None). The first half of
    `initial_state` is for the forward layer.

    Input: (n, steps, ...)

    Output: (n, 2 * units), or (n, steps, 2 * units) with `return_sequences`, in the order of the
    sequence; with `return_state` a tuple of that and the states of both layers.

    Raises:
        ValueError: for anything but layers, an unknown mode, and two layers of the same direction
            or that return different things; when called, for an odd number of states.

    Source: Schuster and Paliwal, "Bidirectional Recurrent Neural Networks", 1997.

    Example:

    >>> import kerascnn as keras
    >>> layer = keras.layers.Bidirectional(keras.layers.LSTM(4, return_sequences=True))
    >>> layer(keras.ops.ones((2, 5, 3))).shape
    (2, 5, 8)
    """

    def __init__(
        self,
        layer: Any,
        merge_mode: str | None = "concat",
        weights: Sequence[Any] | None = None,
        backward_layer: Any = None,
        **kwargs: Any,
    ) -> None:
        for name, value in (("layer", layer), ("backward_layer", backward_layer)):
            if not isinstance(value, Layer) and (name == "layer" or value is not None):
                raise ValueError(f"Bidirectional goes around layers. Received: {name}={value!r}")
            if value is not None and not hasattr(value, "go_backwards"):
                raise ValueError(
                    "Bidirectional goes around a recurrent layer, such as LSTM, which can go "
                    f"backwards. Received: {name}={value!r}"
                )
        if merge_mode not in _MODES:
            raise ValueError(
                f"`merge_mode` must be one of {_MODES}. Received: merge_mode={merge_mode!r}"
            )
        super().__init__(**kwargs)
        self.forward_layer = _copy_of(layer, "forward_")
        if backward_layer is None:
            self.backward_layer = _copy_of(layer, "backward_", go_backwards=True)
        else:
            self.backward_layer = backward_layer
        for inner in (self.forward_layer, self.backward_layer):
            if hasattr(layer, "use_cudnn"):  # configurations do not contain it
                inner.use_cudnn = layer.use_cudnn
            if hasattr(inner, "zero_output_for_mask"):
                inner.zero_output_for_mask = layer.return_sequences
        self._check_layers()
        self.merge_mode = merge_mode
        self.stateful = layer.stateful
        self.return_sequences = layer.return_sequences
        self.return_state = layer.return_state
        self.input_spec = layer.input_spec
        self._first_weights = weights

    def _check_layers(self) -> None:
        forward, backward = self.forward_layer, self.backward_layer
        if forward.go_backwards == backward.go_backwards:
            raise ValueError(
                "One layer of Bidirectional goes forwards and one backwards. Received: "
                f"go_backwards={forward.go_backwards} in both."
            )
        for name in ("stateful", "return_sequences", "return_state"):
            values = getattr(forward, name), getattr(backward, name)
            if values[0] != values[1]:
                raise ValueError(
                    f"The layers of Bidirectional need the same `{name}`. Received: {values[0]} "
                    f"for the forward layer, {values[1]} for the backward layer."
                )

    # Shapes --------------------------------------------------------------------------------------

    def compute_output_shape(self, sequences_shape: Any, initial_state_shape: Any = None) -> Any:
        output = self.forward_layer.compute_output_shape(sequences_shape)
        states: tuple[Any, ...] = ()
        if self.return_state:
            output, states = output[0], tuple(output[1:])
        if self.merge_mode is None:
            outputs: tuple[Any, ...] = (tuple(output), tuple(output))
        elif self.merge_mode == "concat":
            outputs = ((*output[:-1], 2 * output[-1]),)
        else:
            outputs = (tuple(output),)
        if self.return_state:
            return (*outputs, *states, *states)
        return outputs if self.merge_mode is None else outputs[0]

    def compute_output_spec(
        self, sequences: Any, initial_state: Any = None, mask: Any = None, training: Any = None
    ) -> Any:
        shapes = self.compute_output_shape(tuple(sequences.shape))
        return trees.map_shapes(lambda shape: KerasTensor(shape, self.compute_dtype), shapes)

    def compute_mask(self, _: Any, mask: Any) -> Any:
        """The mask of the output, or of each of two; states have none."""
        mask = trees.flatten(mask)[0] if self.return_sequences else None
        return (mask, mask) if self.merge_mode is None else mask

    # States --------------------------------------------------------------------------------------

    def build(self, sequences_shape: Any, initial_state_shape: Any = None) -> None:
        layers = (self.forward_layer, self.backward_layer)
        for layer in layers:
            if not layer.built:
                layer.build(sequences_shape)
                layer.built = True
        if self._first_weights is not None:
            self.set_weights(self._first_weights)
            self._first_weights = None

    @property
    def states(self) -> tuple[Any, ...] | None:
        """The states of both layers where they are stateful and built."""
        forward, backward = self.forward_layer.states, self.backward_layer.states
        return (*forward, *backward) if forward and backward else None

    def reset_state(self) -> None:
        """Sets the states of stateful layers to zeros.

        Raises:
            AttributeError: for a layer that is not stateful.
        """
        if not self.stateful:
            raise AttributeError(f"Layer '{self.name}' is not stateful: it has no state to reset.")
        self.forward_layer.reset_state()
        self.backward_layer.reset_state()

    def reset_states(self) -> None:
        """The same as `reset_state`."""
        self.reset_state()

    # The computation -----------------------------------------------------------------------------

    def call(
        self, sequences: Any, initial_state: Any = None, mask: Any = None, training: Any = None
    ) -> Any:
        halves: tuple[Any, Any] = (None, None)
        if initial_state is not None:
            count = len(initial_state)
            if count % 2:
                raise ValueError(
                    f"Layer '{self.name}': the first half of `initial_state` is for the forward "
                    f"layer. Received an odd number of states: {count}"
                )
            halves = (initial_state[: count // 2], initial_state[count // 2 :])
        known = call_parameters(type(self.forward_layer).call)
        kwargs = {"training": training, "mask": mask}
        kwargs = {name: value for name, value in kwargs.items() if name in known}
        forward = self.forward_layer(sequences, initial_state=halves[0], **kwargs)
        backward = self.backward_layer(sequences, initial_state=halves[1], **kwargs)
        states: tuple[Any, ...] = ()
        if self.return_state:
            states = (*forward[1:], *backward[1:])
            forward, backward = forward[0], backward[0]
        forward, backward = (ops.cast(y, self.compute_dtype) for y in (forward, backward))
        if self.return_sequences:
            backward = ops.flip(backward, axis=1)
        if self.merge_mode is None:
            return (forward, backward, *states)
        output = self._merge(forward, backward)
        return (output, *states) if self.return_state else output

    def _merge(self, forward: Any, backward: Any) -> Any:
        if self.merge_mode == "concat":
            return ops.concatenate([forward, backward], axis=-1)
        if self.merge_mode == "mul":
            return ops.multiply(forward, backward)
        total = ops.add(forward, backward)
        return total if self.merge_mode == "sum" else ops.multiply(total, 0.5)

    # Configuration -------------------------------------------------------------------------------

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "merge_mode": self.merge_mode,
            "layer": serialization.serialize_object(self.forward_layer),
            "backward_layer": serialization.serialize_object(self.backward_layer),
        }

    @classmethod
    def from_config(
        cls, config: dict[str, Any], custom_objects: dict[str, Any] | None = None
    ) -> Any:
        config = copy.deepcopy(config)
        for name in ("layer", "backward_layer"):
            if isinstance(config.get(name), dict):
                config[name] = serialization.deserialize_object(
                    config[name], custom_objects, "kerascnn.layers"
                )
        return cls(**config)


def _copy_of(layer: Layer, prefix: str, **changes: Any) -> Any:
    """Makes a layer with the same configuration and a prefix before its name."""
    config = serialization.serialize_object(layer)
    config["config"] = {
        **config["config"],
        **changes,
        "name": f"{prefix}{layer.name.removeprefix(prefix)}",
    }
    # In a model that is being saved, this marks a layer that occurs twice. It does not apply to the
    # copy.
    config.pop("shared_object_id", None)
    return serialization.deserialize_object(config, place="kerascnn.layers")
