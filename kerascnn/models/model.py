"""Model: layers that train together."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

from kerascnn import naming, trees
from kerascnn.layers.layer import Layer
from kerascnn.models.host_stage import Staged
from kerascnn.models.state_tree import StateTree
from kerascnn.saving.model_saving import ModelSaving
from kerascnn.symbolic import inference
from kerascnn.symbolic.keras_tensor import KerasTensor
from kerascnn.training.trainer import Trainer


class Model(ModelSaving, StateTree, Trainer, Layer):
    """A network with `compile`, `fit`, `evaluate` and `predict`.

    There are two ways to make one: from inputs and outputs, `Model(inputs, outputs)`, or as a
    subclass that makes layers in `__init__` and implements `call(inputs, training=...)`.

    Args:
        inputs: A keras.Input, or a list or dictionary of them.
        outputs: What was computed from them by calling layers.
        name: By default functional, or the name of the subclass, with a number.

    Raises:
        ValueError: where the outputs do not come from the inputs.

    Example:

    >>> import kerascnn as keras
    >>> x = keras.Input((8,))
    >>> hidden = keras.layers.Dense(4, activation="relu")(x)
    >>> model = keras.Model(x, keras.layers.Dense(1)(hidden))
    >>> model(keras.ops.ones((2, 8))).shape
    (2, 1)
    """

    _takes_text = True
    _grows_in_calls = True

    _more_arguments = ("inputs", "outputs", *Layer._more_arguments)

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        if cls is Model and _is_functional_call(args, kwargs):
            from kerascnn.models.functional import Functional

            return Functional.__new__(Functional, *args, **kwargs)
        return super().__new__(cls, *args, **kwargs)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        Trainer.__init__(self)
        from kerascnn.models import functional

        if _is_functional_call(args, kwargs):
            # A subclass that makes a graph in its __init__ becomes a functional model.
            functional.make_functional(self)
            functional.Functional.__init__(cast(functional.Functional, self), *args, **kwargs)
        elif type(self) is Model and (args or "inputs" in kwargs or "outputs" in kwargs):
            given = ", ".join(kwargs) or "one argument"
            raise ValueError(
                "A functional model is made of `inputs` and `outputs`, "
                f"keras.Model(inputs, outputs). Received: only {given}"
            )
        else:
            Layer.__init__(self, *args, **kwargs)

    def call(self, *args: Any, **kwargs: Any) -> Any:
        """The computation; subclasses override it."""
        raise NotImplementedError(
            f"The model {type(self).__name__} does not implement `call(inputs, training=...)`."
        )

    @property
    def layers(self) -> list[Layer]:
        """The layers right below this model."""
        return [layer for layer in self._sublayers() if isinstance(layer, Layer)]

    def get_layer(self, name: str | None = None, index: int | None = None) -> Layer:
        """A layer by its name or its place in `layers`.

        Args:
            name: The layer's name.
            index: Its place; a negative one counts from the end.

        Returns:
            The layer.

        Raises:
            ValueError: where there is none, or not exactly one of the arguments is given.

        Example:

        >>> import kerascnn as keras
        >>> model = keras.Sequential([keras.Input((8,)), keras.layers.Dense(4, name="hidden")])
        >>> model.get_layer("hidden") is model.get_layer(index=0)
        True
        """
        if (name is None) == (index is None):
            raise ValueError(f"Give `name` or `index`. Received: name={name!r}, index={index!r}")
        layers = self.layers
        if index is not None:
            if not -len(layers) <= index < len(layers):
                raise ValueError(
                    f"Model '{self.name}' has {len(layers)} layers. Received: index={index}"
                )
            return layers[index]
        for layer in layers:
            if layer.name == name:
                return layer
        raise ValueError(
            f"Model '{self.name}' has no layer named {name!r}. Its layers are "
            f"{[layer.name for layer in layers]}."
        )

    def build(self, input_shape: Any = None) -> None:
        """Makes all weights, for inputs of a shape with the batch (None for any size).

        Args:
            input_shape: A shape; a list or dictionary of shapes for several inputs.

        Raises:
            ValueError: where `call` cannot be run on tensors of this shape.
        """
        if self._in_call:  # the call that runs now builds the layers
            return
        if input_shape is None or not self._overrides_call():
            self.built = False
            return
        specs = trees.map_shapes(lambda s: KerasTensor(s, self.compute_dtype), input_shape)
        # The call opens the scope of the model's name, which is open here already.
        with naming.absolute_scope(naming.current_scopes()[:-1]):
            self.build_on(specs, may_compute=True)

    def build_on(self, inputs: Any, may_compute: bool = False) -> None:
        """Makes all weights by recording a call, without computing it.

        Args:
            inputs: Something with `shape` and `dtype` for each input, such as the data itself.
            may_compute: Whether a `call` that asks for values is run on ones.

        Raises:
            ValueError: where `call` cannot be run on such inputs.

        Example:

        >>> import kerascnn as keras
        >>> class Model(keras.Model):
        ...     def __init__(self):
        ...         super().__init__()
        ...         self.dense = keras.layers.Dense(4)
        ...
        ...     def call(self, inputs):
        ...         return self.dense(inputs)
        >>> model = Model()
        >>> model.build_on(keras.ops.ones((2, 8)))
        >>> [weight.shape for weight in model.weights]
        [(8, 4), (4,)]
        """
        if all(layer.built for layer in self._flatten_layers()):
            return

        def spec(x: Any) -> Any:
            return KerasTensor([2 if n is None else int(n) for n in x.shape], str(x.dtype))

        specs = trees.map_structure(spec, inputs)
        inference.infer(self, (specs,), {"training": False}, may_compute)

    def _check_inputs(self, inputs: Any) -> None:
        if not isinstance(inputs, Staged):
            super()._check_inputs(inputs)

    def _overrides_call(self) -> bool:
        return type(self).call is not Model.call

    def summary(
        self,
        line_length: int | None = None,
        positions: list[float] | None = None,
        print_fn: Callable[[str], None] | None = None,
        expand_nested: bool = False,
        show_trainable: bool = False,
        layer_range: list[str] | tuple[str, str] | None = None,
    ) -> None:
        """Prints the layers, their output shapes and their numbers of weights.

        Args:
            line_length: Width of the table.
            positions: Where its columns end, as shares of the width or as characters.
            print_fn: Takes the text in place of standard output.
            expand_nested: Whether models inside the model show their layers.
            show_trainable: Whether a column tells which layers are trained.
            layer_range: Names (or regular expressions) of the first and the last layer to show.

        Example:

        >>> import kerascnn as keras
        >>> model = keras.Sequential([keras.Input((8,)), keras.layers.Dense(4, name="head")])
        >>> lines = []
        >>> model.summary(print_fn=lines.append)
        >>> "Total params: 36" in "".join(lines)
        True
        """
        from kerascnn.models.summary import print_summary

        print_summary(
            self,
            line_length=line_length,
            positions=positions,
            print_fn=print_fn,
            expand_nested=expand_nested,
            show_trainable=show_trainable,
            layer_range=layer_range,
        )

    def quantize(  # type: ignore[override]
        self, mode: Any = None, config: Any = None, filters: Any = None, **kwargs: Any
    ) -> None:
        """Makes the kernels of `Dense` and `EinsumDense` layers and embeddings int8, for inference.

        Weights take a quarter of their memory then, and products are formed in integers: inputs
        are quantized as they come, with a scale for each row. Other layers stay as they are, with
        a warning. Kernels that are int8 are not trained.

        Args:
            mode: "int8".
            config: A `keras.quantizers.Int8QuantizationConfig`, in place of `mode` or beside it.
            filters: Which layers: a regular expression that is searched for in their names, a list
                of such, or a function of a layer; None for all.
            **kwargs: `type_check`; with False, layers of subclasses too, whose `call` will not run.

        Raises:
            ValueError: for another mode, filters of another type, a layer that is not built, one
                that is quantized already, and one that computes in float16.

        Example:

        >>> import kerascnn as keras
        >>> model = keras.Sequential([keras.Input((8,)), keras.layers.Dense(4)])
        >>> model.quantize("int8")
        >>> [(weight.name, weight.dtype) for weight in model.weights]
        [('bias', 'float32'), ('kernel', 'int8'), ('kernel_scale', 'float32')]
        """
        from kerascnn.models.quantizing import quantize_layers

        quantize_layers(self, mode, config, filters, **kwargs)

    @classmethod
    def from_config(cls, config: dict[str, Any], custom_objects: Any = None) -> Any:
        """A model of a configuration that `get_config` gave, with new weights.

        Args:
            config: Of a functional model, or the arguments of a subclass.
            custom_objects: Custom classes by name.
        """
        from kerascnn.models import functional, functional_config

        if "output_layers" in config and functional.takes_inputs_and_outputs(cls):
            # A class gets Functional as a base when its first model is made.
            made = functional.Functional if cls is Model else cls
            return functional_config.to_model(made, config, custom_objects)
        return super().from_config(config)


def _is_functional_call(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Tells whether these are `(inputs, outputs)`, positional or by name."""
    return (
        len(args) >= 2
        or (len(args) == 1 and "outputs" in kwargs)
        or ("inputs" in kwargs and "outputs" in kwargs)
    )
