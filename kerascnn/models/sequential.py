"""A stack of layers."""

from __future__ import annotations

from typing import Any

import numpy as np

from kerascnn import serialization, trees
from kerascnn.layers.input_layer import InputLayer
from kerascnn.layers.layer import Layer
from kerascnn.models.functional import Functional
from kerascnn.models.host_stage import runs_on_host
from kerascnn.models.model import Model
from kerascnn.symbolic.keras_tensor import KerasTensor


class _NotBuiltError(AttributeError, ValueError):
    """Some attributes exist only for models that know their input; `hasattr` must say so."""


class Sequential(Model):
    """Layers one after the other, each with one input and one output.

    With a `keras.Input` at the front the weights are made at once; without one, when data comes
    or `build(input_shape)` is called.

    Args:
        layers: Layers, a keras.Input first if there is one.
        trainable: Whether training changes its weights.
        name: By default sequential, sequential_1, ...

    Raises:
        ValueError: for things that are no layers, and names that occur twice.

    Example:

    >>> import kerascnn as keras
    >>> model = keras.Sequential([keras.Input((8,)), keras.layers.Dense(1)])
    >>> model(keras.ops.ones((2, 8))).shape
    (2, 1)
    """

    _leaves_masks_to_layers = True
    _not_owned = (*Model._not_owned, "_functional")

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        return object.__new__(cls)

    def __init__(self, layers: Any = None, trainable: bool = True, name: str | None = None) -> None:
        if isinstance(trainable, Layer):
            raise ValueError(
                "Sequential takes its layers as a list, Sequential([layer, ...]). Received: "
                f"{layers!r}, {trainable!r}"
            )
        Model.__init__(self, trainable=trainable, name=name)
        self._functional: Functional | None = None
        self._built_on: Any = None  # shapes, nested like the inputs
        self._made_input = False  # true if data made it, so that other data may have other shapes
        self._stack: list[Layer] = []
        if layers is not None:
            for layer in layers if isinstance(layers, (list, tuple)) else [layers]:
                self.add(layer, rebuild=False)
            self._rebuild()

    def add(self, layer: Any, rebuild: bool = True) -> None:
        """Puts a layer on top.

        Args:
            layer: A layer, or a keras.Input as the first.
            rebuild: Whether to make weights right away where that is possible.

        Raises:
            ValueError: for things that are no layers, and names that occur twice.

        Example:

        >>> import kerascnn as keras
        >>> model = keras.Sequential()
        >>> model.add(keras.Input((8,)))
        >>> model.add(keras.layers.Dense(4))
        >>> model.output_shape
        (None, 4)
        """
        if isinstance(layer, KerasTensor) and layer._keras_history is not None:
            layer = layer._keras_history.operation
        if not isinstance(layer, Layer):
            raise ValueError(
                "Only layers (instances of keras.Layer) and a keras.Input can be in a Sequential "
                f"model. Received: {layer!r} (of type {type(layer)})"
                + ("; write it with parentheses." if isinstance(layer, type) else "")
            )
        if isinstance(layer, InputLayer) and self._stack:
            raise ValueError(
                f"Sequential model '{self.name}' already begins with '{self._stack[0].name}': a "
                f"keras.Input ('{layer.name}') can only come first."
            )
        if any(layer.name == other.name for other in self._stack):
            raise ValueError(
                f"Model '{self.name}' has a layer named '{layer.name}' already. Give each layer a "
                "`name` of its own."
            )
        first_shape = getattr(layer, "_input_shape_argument", None)
        if not self._stack and first_shape is not None:
            self._stack.append(InputLayer(shape=first_shape))
        self._stack.append(layer)
        if rebuild:
            self._rebuild()
        else:
            self._forget_graph()

    def pop(self, rebuild: bool = True) -> Layer:
        """Takes the top layer off.

        Args:
            rebuild: Whether the model is to be ready for use at once.

        Returns:
            The layer, with its weights.

        Raises:
            IndexError: where there is none.

        Example:

        >>> import kerascnn as keras
        >>> layers = [keras.Input((8,)), keras.layers.Dense(4), keras.layers.Dense(2, name="head")]
        >>> model = keras.Sequential(layers)
        >>> model.pop().name, model.output_shape
        ('head', (None, 4))
        """
        layer = self._stack.pop()
        if rebuild:
            self._rebuild()
        else:
            self._forget_graph()
        return layer

    def _forget_graph(self) -> None:
        self._functional = None
        self._programs = None  # the programs belong to the old layers
        self.built = False

    def _rebuild(self) -> None:
        self._forget_graph()
        if len(self._stack) < 2:
            return
        first = self._stack[0]
        if isinstance(first, InputLayer):
            self.build(first.batch_shape)
        elif isinstance(first, (Functional, Sequential)) and first.built and len(first.inputs) == 1:
            self.build(first.input_shape)

    def build(self, input_shape: Any = None) -> None:
        """Makes all weights, for inputs of a shape with the batch (None for any size).

        Raises:
            ValueError: without layers, or where the layers do not fit on one another.
        """
        if input_shape is None:
            self.built = False
            return
        if not self._stack:
            raise ValueError(f"Sequential model '{self.name}' cannot be built: it has no layers.")
        if not trees.is_shape(input_shape):  # nested inputs have no single keras.Input
            dtype = self._stack[0].compute_dtype
            inputs = trees.map_shapes(
                lambda shape: InputLayer(batch_shape=(None, *shape[1:]), dtype=dtype).output,
                input_shape,
            )
        else:
            known = self._stack[0].batch_shape if isinstance(self._stack[0], InputLayer) else None
            if known is not None and not _agree(known, input_shape):
                raise ValueError(
                    f"Sequential model '{self.name}' is for inputs of shape {tuple(known)}, and "
                    f"cannot be built for others. Received: input_shape={tuple(input_shape)}"
                )
            if known is None:
                shape = (None, *tuple(input_shape)[1:])
                first = InputLayer(batch_shape=shape, dtype=self._stack[0].compute_dtype)
                self._stack.insert(0, first)
                self._made_input = True
            inputs = self._stack[0].output
        try:
            x = inputs
            for layer in self.layers:
                x = layer(x)
        except NotImplementedError:  # the shapes of a user's layer cannot be inferred
            return
        self._built_on = trees.map_structure(lambda tensor: tensor.shape, inputs)
        functional = object.__new__(Functional)
        Functional.__init__(functional, inputs, x, name=self.name)
        self._functional = functional
        self.input_spec = functional.input_spec
        self.built = True

    def call(self, inputs: Any, training: bool | None = None, mask: Any = None) -> Any:
        if self._functional is None:
            if not self._stack:
                raise ValueError(f"Sequential model '{self.name}' has no layers to call.")
            for layer in self.layers:
                inputs = layer(inputs)
            return inputs
        return self._functional.call(inputs, training=training, mask=mask)

    def _maybe_build(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if self._functional is None:
            inputs = args[0] if args else next(iter(kwargs.values()), None)
            self.build(trees.map_structure(lambda x: tuple(x.shape), inputs))

    def _check_inputs(self, inputs: Any) -> None:
        self._widen(inputs)
        super()._check_inputs(inputs)

    def _widen(self, inputs: Any) -> None:
        """Leaves lengths and sizes open that differ from those of the data it was built on.

        The shape of the first data is none that all have to have, where the layers fit others:
        sequences of any length, say. A size of features stays what it is.
        """
        known, shape = self._built_on, tuple(getattr(inputs, "shape", ()))
        if not self._made_input or self._functional is None or len(shape) != len(known):
            return
        inner = [k if k == n else None for k, n in zip(known[1:-1], shape[1:-1], strict=True)]
        wide = (*known[:1], *inner, *known[-1:])
        if len(shape) < 3 or wide == known:
            return
        stack, dtype = self._stack, self._stack[0].compute_dtype
        try:
            x = InputLayer(batch_shape=(None, *shape[1:]), dtype=dtype).output
            for layer in stack[1:]:
                x = layer(x)
            self._stack = stack[1:]
            self.build(wide)
        except ValueError:  # the layers need the old sizes, as the caller's error will say
            self._stack = stack

    def _host_preparation(self) -> Any:
        if not any(runs_on_host(layer) for layer in self._stack):
            return None

        def prepare(inputs: Any) -> Any:
            if self._functional is None:
                self.build(np.shape(inputs))
            prepared = self._graph_of("input")._host_preparation()
            return inputs if prepared is None else prepared(inputs)

        return prepare

    def _host_end(self) -> Any:
        if self._functional is None or not any(runs_on_host(layer) for layer in self._stack):
            return None
        return self._functional._host_end()

    def _convert_inputs(
        self, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        autocast, self.autocast = self.autocast, False
        try:
            return super()._convert_inputs(args, kwargs)
        finally:
            self.autocast = autocast

    def compute_output_spec(self, inputs: Any, **kwargs: Any) -> Any:
        if self._functional is not None:
            return self._functional.compute_output_spec(inputs)
        return super().compute_output_spec(inputs, **kwargs)

    def compute_output_shape(self, input_shape: Any) -> Any:
        if self._functional is not None:
            return self._functional.compute_output_shape(input_shape)
        for layer in self._stack:
            if not isinstance(layer, InputLayer):
                input_shape = layer.compute_output_shape(input_shape)
        return input_shape

    def _sublayers(self, owned: list[Layer] | None = None) -> list[Layer]:
        return list(self._stack)

    @property
    def layers(self) -> list[Layer]:
        """The layers, without the input."""
        return [layer for layer in self._stack if not isinstance(layer, InputLayer)]

    def _graph_of(self, what: str) -> Functional:
        if self._functional is None:
            raise _NotBuiltError(
                f"Sequential model '{self.name}' has no defined {what} yet: begin it with a "
                "keras.Input, or call it on data first."
            )
        return self._functional

    @property
    def inputs(self) -> list[KerasTensor]:
        """The KerasTensor that data comes in at, as a list."""
        return self._graph_of("input").inputs

    @property
    def outputs(self) -> list[KerasTensor]:
        """The KerasTensor that results come out of, as a list."""
        return self._graph_of("output").outputs

    @property
    def input(self) -> Any:
        """The KerasTensor that data comes in at, or the structure of them."""
        return self._graph_of("input").input

    @property
    def output(self) -> Any:
        """The KerasTensor that results come out of, or the structure of them."""
        return self._graph_of("output").output

    @property
    def input_shape(self) -> Any:
        """Shape of the input, with the batch."""
        return self._graph_of("input shape").input_shape

    @property
    def output_shape(self) -> Any:
        """Shape of the output, with the batch."""
        return self._graph_of("output shape").output_shape

    def get_config(self) -> dict[str, Any]:
        config = super().get_config()
        config["layers"] = [serialization.serialize_keras_object(layer) for layer in self._stack]
        if self._functional is not None:
            config["build_input_shape"] = self._built_on
        return config

    @classmethod
    def from_config(cls, config: dict[str, Any], custom_objects: Any = None) -> Any:
        """A model of a configuration that `get_config` gave, with new weights."""
        model = cls(name=config.get("name"))
        for entry in config["layers"]:
            layer = serialization.deserialize_object(entry, custom_objects, "kerascnn.layers")
            model.add(layer, rebuild=False)
        model._rebuild()
        shape = config.get("build_input_shape")
        if model._functional is None and shape:
            model.build(trees.map_shapes(tuple, shape))
        if config.get("trainable") is False:
            model.trainable = False
        return model


def _agree(known: Any, given: Any) -> bool:
    """Tells whether two shapes fit one input, whatever the size of the batch."""
    pairs = zip(tuple(known)[1:], tuple(given)[1:], strict=False)
    return len(known) == len(given) and all(a is None or b is None or a == b for a, b in pairs)
