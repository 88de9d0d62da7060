"""A function as a layer."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from kerascnn import lambdas, registration, serialization, trees
from kerascnn.layers.layer import Layer


class Lambda(Layer):
    """Calls a function of `kerascnn.ops` on its input.

    Weights that the function uses are not tracked: a layer with weights is a subclass of `Layer`.
    A lambda is saved as compiled code, which can do anything when it is read again; that needs
    `safe_mode=False`. A function with a name that is registered, or passed as `custom_objects`,
    needs nothing.

    Args:
        function: Takes the input (and `mask`, `training` and `arguments`, where it names them).
        output_shape: Shape of one sample's result, or a function from the input's shape to the
            output's; by default it is found by calling the function.
        mask: The output's mask: a function of the input and its mask, or a tensor. Without it the
            output has none.
        arguments: Further arguments of the function by name.

    Example:

    >>> import kerascnn as keras
    >>> keras.layers.Lambda(lambda x: x ** 2)(keras.ops.full((1, 2), 3.0)).numpy().tolist()
    [[9.0, 9.0]]
    """

    def __init__(
        self,
        function: Callable[..., Any],
        output_shape: Any = None,
        mask: Any = None,
        arguments: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        if not callable(function):
            raise ValueError(
                "Lambda takes a function of a tensor, such as lambda x: x * 2. Received: "
                f"function={function!r}"
            )
        super().__init__(**kwargs)
        self.supports_masking = mask is not None
        self.mask = mask
        self.arguments = arguments or {}
        self.function = function
        self._output_shape = output_shape
        names = inspect.getfullargspec(function).args
        self._takes_training = "training" in names
        self._takes_mask = "mask" in names

    def call(self, inputs: Any, mask: Any = None, training: bool | None = None) -> Any:
        kwargs = dict(self.arguments)
        if self._takes_mask:
            kwargs["mask"] = mask
        if self._takes_training:
            kwargs["training"] = training
        return self.function(inputs, **kwargs)

    def compute_mask(self, inputs: Any, mask: Any = None) -> Any:
        return self.mask(inputs, mask) if callable(self.mask) else self.mask

    def compute_output_shape(self, input_shape: Any) -> Any:
        if self._output_shape is None:
            try:
                return super().compute_output_shape(input_shape)
            except Exception as error:
                raise NotImplementedError(
                    f"Layer '{self.name}' (Lambda): the shape of the output could not be found by "
                    f"calling the function; pass `output_shape`. ({error})"
                ) from error
        if callable(self._output_shape):
            return self._output_shape(input_shape)
        batch = trees.flatten(input_shape)[0]
        return trees.map_shapes(lambda shape: (batch, *shape), self._output_shape)

    def compute_output_spec(self, *args: Any, **kwargs: Any) -> Any:
        if self._output_shape is not None:
            return super().compute_output_spec(*args, **kwargs)
        from kerascnn.symbolic import inference

        return inference.infer(self.call, args, kwargs, may_compute=True)

    def get_config(self) -> dict[str, Any]:
        config = {**super().get_config(), "function": _config_of(self.function)}
        if self._output_shape is not None:
            shape = self._output_shape
            config["output_shape"] = _config_of(shape) if callable(shape) else shape
        if self.mask is not None:
            own = _config_of(self.mask) if callable(self.mask) else None
            config["mask"] = serialization.serialize_object(self.mask) if own is None else own
        return {**config, "arguments": serialization.serialize_object(self.arguments)}

    @classmethod
    def from_config(
        cls,
        config: dict[str, Any],
        custom_objects: dict[str, Any] | None = None,
        safe_mode: bool | None = None,
    ) -> Any:
        """A layer of a configuration that `get_config` gave.

        Args:
            config: What `get_config` gave, here or in Keras.
            custom_objects: Custom functions by name.
            safe_mode: Whether lambdas are refused; by default as in the reading around it, and
                outside of any, yes.

        Raises:
            ValueError: for a lambda in safe mode.
        """
        around = registration.in_safe_mode()
        safe = safe_mode if safe_mode is not None else around is not False
        config = dict(config)
        with registration.SafeModeScope(safe):
            for name in ("function", "output_shape", "mask", "arguments"):
                if name in config:
                    config[name] = serialization.deserialize_object(config[name], custom_objects)
        shape = config.get("output_shape")
        if isinstance(shape, list) and all(n is None or isinstance(n, int) for n in shape):
            config["output_shape"] = tuple(shape)
        return cls(**config)


def _config_of(function: Any) -> Any:
    if getattr(function, "__name__", None) == "<lambda>":
        code, defaults, closure = lambdas.dump(function)
        config = {"code": code, "defaults": defaults, "closure": closure}
        return {"class_name": "__lambda__", "config": config}
    return serialization.serialize_object(function)
