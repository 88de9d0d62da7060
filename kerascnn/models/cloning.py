"""Making models again: from JSON, and as copies with new weights."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from kerascnn import registration, serialization, trees
from kerascnn.layers.input_layer import Input, InputLayer
from kerascnn.models.functional import Functional, takes_inputs_and_outputs
from kerascnn.models.sequential import Sequential
from kerascnn.symbolic.keras_tensor import KerasTensor
from kerascnn.symbolic.operation import OpCall


def model_from_json(json_string: str, custom_objects: Mapping[str, Any] | None = None) -> Any:
    """A model of the text that `model.to_json()` returned, here or in Keras, with new weights.

    Args:
        json_string: The text.
        custom_objects: Custom classes and functions by name.

    Returns:
        A model.

    Raises:
        ValueError: for text that is no JSON or names something unknown.

    Example:

    >>> import kerascnn as keras
    >>> model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    >>> keras.models.model_from_json(model.to_json()).count_params()
    3
    """
    with serialization.object_sharing():
        try:
            config = json.loads(json_string)
        except RecursionError as error:
            raise ValueError("The text is nested deeper than any configuration.") from error
        return serialization.deserialize_keras_object(config, custom_objects)


def clone_model(
    model: Any,
    input_tensors: Any = None,
    clone_function: Callable[[Any], Any] | None = None,
    call_function: Callable[..., Any] | None = None,
    recursive: bool = False,
    **kwargs: Any,
) -> Any:
    """A copy of a model, of new layers with new first weights.

    Args:
        model: A Sequential or functional model; others where they have a configuration.
        input_tensors: KerasTensors for the copy to begin with; by default new inputs.
        clone_function: From a layer to its copy, which may be another layer or the same one.
        call_function: `(layer, *args, **kwargs)`, in place of calling the layers of a functional
            model.
        recursive: Whether models inside the model are copied by `clone_model` too.

    Returns:
        The copy, compiled as the model is.

    Raises:
        ValueError: for a subclassed model with arguments that go by its layers, or a
            `call_function` for a Sequential model.

    Example:

    >>> import kerascnn as keras
    >>> model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    >>> copy = keras.models.clone_model(model)
    >>> copy.count_params(), copy.layers[0] is model.layers[0]
    (3, False)
    """
    cache = kwargs.pop("cache", None)
    if kwargs:
        raise ValueError(f"Unexpected keyword argument(s): {tuple(kwargs)}")
    copies: dict[int, tuple[Any, Any]] = {} if cache is None else cache
    copy = _copier(clone_function, call_function, recursive, copies)
    if isinstance(model, Sequential):
        if call_function is not None:
            raise ValueError(
                "`call_function` is for functional models: the layers of a Sequential model are "
                f"not called one by one. Received: model={model!r}"
            )
        clone = _clone_sequential(model, copy, input_tensors)
    elif isinstance(model, Functional) and (
        type(model).get_config is Functional.get_config or clone_function or input_tensors
    ):
        clone = _clone_functional(model, copy, call_function, input_tensors)
    else:
        given = {"clone_function": clone_function, "input_tensors": input_tensors}
        given["call_function"] = call_function
        wrong = [name for name, value in given.items() if value is not None]
        if wrong:
            raise ValueError(
                f"{wrong} can only be given for Sequential and functional models. Received: "
                f"model={model!r}"
            )
        config = serialization.serialize_keras_object(model)
        own = {type(model).__name__: type(model)}
        return serialization.deserialize_keras_object(config, custom_objects=own)
    if model.compiled:
        # the compiled configuration does not come from a file
        with registration.SafeModeScope(False):
            clone.compile_from_config(model.get_compile_config())
    return clone


def _copier(
    clone_function: Callable[[Any], Any] | None,
    call_function: Callable[..., Any] | None,
    recursive: bool,
    copies: dict[int, tuple[Any, Any]],
) -> Callable[[Any], Any]:
    def plain(layer: Any) -> Any:
        return type(layer).from_config(layer.get_config())

    make = clone_function or plain

    def copy(layer: Any) -> Any:
        if id(layer) not in copies:
            if recursive and isinstance(layer, (Sequential, Functional)):
                inner = None if isinstance(layer, Sequential) else call_function
                made = clone_model(layer, None, make, inner, True, cache=copies)
            else:
                made = make(layer)
            copies[id(layer)] = (layer, made)
        return copies[id(layer)][1]

    return copy


def _clone_sequential(model: Sequential, copy: Callable[[Any], Any], inputs: Any) -> Sequential:
    layers = [copy(layer) for layer in model.layers]
    first = model._stack[0] if model._stack else None
    known = first if isinstance(first, InputLayer) else None
    if inputs is not None:
        flat = list(inputs) if isinstance(inputs, (list, tuple)) else [inputs]
        if len(flat) != 1 or not isinstance(flat[0], KerasTensor):
            raise ValueError(
                "`input_tensors` of a Sequential model must be one KerasTensor. Received: "
                f"input_tensors={inputs}"
            )
        layers = [Input(tensor=flat[0], name=known.name if known else None), *layers]
    elif known is not None:
        beginning = Input(
            batch_shape=known.batch_shape,
            dtype=known.dtype,
            name=known.name,
            optional=known.optional,
        )
        layers = [beginning, *layers]
    return Sequential(layers, name=model.name, trainable=model.trainable)


def _clone_functional(
    model: Functional,
    copy: Callable[[Any], Any],
    call_function: Callable[..., Any] | None,
    inputs: Any,
) -> Any:
    if inputs is None:
        inputs = trees.map_structure(
            lambda x: Input(batch_shape=x.shape, dtype=x.dtype, name=x.name), model.input
        )
    flat = trees.flatten(inputs)
    same = trees.skeleton(inputs) == trees.skeleton(model.input) or not isinstance(
        model.input, dict
    )
    if (
        not all(isinstance(x, KerasTensor) for x in flat)
        or len(flat) != len(model.inputs)
        or not same
    ):
        raise ValueError(
            f"`input_tensors` must be KerasTensors, nested as {model.input}. Received: {inputs}"
        )

    def call(operation: Any) -> Callable[..., Any]:
        if isinstance(operation, OpCall):
            target: Any = OpCall(operation.function)
            target.name = operation.name
        else:
            target = copy(operation)
        if call_function is None:
            return target
        return lambda *args, **kwargs: call_function(target, *args, **kwargs)

    outputs = model._graph.run(flat, call)
    cls = type(model) if takes_inputs_and_outputs(type(model)) else Functional
    return cls(inputs, outputs, name=model.name)
