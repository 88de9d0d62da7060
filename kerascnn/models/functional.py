"""Models made from their inputs and outputs."""

from __future__ import annotations

import functools
import inspect
import warnings
from typing import Any

from kerascnn import masks, trees
from kerascnn.device import device as on_device
from kerascnn.layers.input_layer import Input
from kerascnn.layers.input_spec import InputSpec
from kerascnn.layers.layer import Layer
from kerascnn.layers.state import unique
from kerascnn.layers.text import as_text, is_text
from kerascnn.models.host_stage import (
    HostEnd,
    HostStage,
    Staged,
    host_end,
    runs_on_host,
    with_layers_inside,
)
from kerascnn.models.model import Model
from kerascnn.ops import dispatch
from kerascnn.symbolic import auto_config
from kerascnn.symbolic.graph import OperationGraph
from kerascnn.symbolic.keras_tensor import KerasTensor
from kerascnn.symbolic.operation import Operation, history_of, node_of


class Functional(Model):
    """What `Model(inputs, outputs)` makes; see `Model`.

    Args:
        inputs: A keras.Input, or a list or dictionary of them.
        outputs: What was computed from them by calling layers and functions of `keras.ops`, nested
            in any way.
        name: By default functional, functional_1, ...
        kwargs: `trainable`, whether training changes its weights.

    Raises:
        ValueError: where the outputs do not come from the inputs.

    Example:

    >>> import kerascnn as keras
    >>> left, right = keras.Input((3,), name="left"), keras.Input((3,), name="right")
    >>> model = keras.Model([left, right], {"sum": left + right})
    >>> model.input_names, model.output_shape
    (['left', 'right'], (None, 3))
    """

    _leaves_masks_to_layers = True
    _notes_all_calls = True

    _not_owned = (*Model._not_owned, "_host_stage", "_end_on_host", "_calls_inside")

    def __init__(self, inputs: Any, outputs: Any, name: str | None = None, **kwargs: Any) -> None:
        trainable = kwargs.pop("trainable", True)
        Layer.__init__(self, name=name, **kwargs)
        # Keras returns dictionaries of outputs in the order of their keys.
        outputs = trees.sort_keys(outputs)
        self._graph = self._from_inputs(OperationGraph(inputs, outputs, self.name))
        self.built = True
        self.input_spec = self._make_input_spec()
        if not trainable:
            self.trainable = False

    def _from_inputs(self, graph: OperationGraph) -> OperationGraph:
        """Repeats the calls on new inputs, if a model begins inside another one."""
        inner = [x for x in graph.input_tensors if not node_of(x).is_input]
        if not inner:
            return graph
        fresh = [
            Input(batch_shape=x.shape, dtype=x.dtype) if any(x is y for y in inner) else x
            for x in graph.input_tensors
        ]
        outputs = graph.run(fresh, lambda operation: operation)
        return OperationGraph(trees.pack_as(graph.inputs, fresh), outputs, self.name)

    @property
    def operations(self) -> list[Operation]:
        """Layers and functions of `kerascnn.ops`, from the inputs to the outputs."""
        return list(self._graph.operations)

    def _sublayers(self, owned: list[Layer] | None = None) -> list[Layer]:
        inside = [op for op in self._graph.operations if isinstance(op, Layer)]
        # A subclass can hold more layers than its graph, for its own train_step.
        return unique([*inside, *super()._sublayers(owned)])

    @property
    def inputs(self) -> list[KerasTensor]:
        """The KerasTensors that data comes in at."""
        return self._graph.input_tensors

    @property
    def outputs(self) -> list[KerasTensor]:
        """The KerasTensors that results come out of."""
        return self._graph.output_tensors

    @property
    def input(self) -> Any:
        """The KerasTensors that data comes in at, nested as the model was given them."""
        return self._graph.inputs

    @property
    def output(self) -> Any:
        """The KerasTensors that results come out of, nested as the model was given them."""
        return self._graph.outputs

    @property
    def input_shape(self) -> Any:
        """The input's shape; a list of them for several, in the order of their names if any."""
        shapes = [x.shape for x in self.inputs]
        return shapes[0] if len(shapes) == 1 else shapes

    @property
    def output_shape(self) -> Any:
        """The output's shape; a list of them for several, in the order of their names if any."""
        shapes = [x.shape for x in self.outputs]
        return shapes[0] if len(shapes) == 1 else shapes

    @property
    def input_names(self) -> list[str]:
        """The names of the inputs' layers."""
        return [history_of(x).operation.name for x in self.inputs]

    @property
    def output_names(self) -> list[str]:
        """The names of the layers that the outputs come out of."""
        return [history_of(x).operation.name for x in self.outputs]

    def _make_input_spec(self) -> Any:
        def spec(x: KerasTensor, name: str | None) -> InputSpec:
            shape = (None, *x.shape[1:]) if x.shape else ()
            optional = getattr(history_of(x).operation, "optional", False)
            return InputSpec(
                shape=shape, allow_last_axis_squeeze=True, name=name, optional=optional
            )

        structure = self._graph.inputs
        if isinstance(structure, dict):
            if any(not isinstance(x, KerasTensor) for x in structure.values()):
                return None  # `_standardize` raises an error that says what does not fit
            return [spec(structure[key], key) for key in sorted(structure)]
        if isinstance(structure, (list, tuple)):
            return [spec(x, x.name) for x in trees.flatten(structure)]
        return [spec(structure, structure.name)]

    def build(self, input_shape: Any = None) -> None:
        """Does nothing: the layers were built when they were called on the inputs."""

    def call(self, inputs: Any, training: bool | None = None, mask: Any = None) -> Any:
        if isinstance(inputs, Staged):
            assert self._host_stage is not None
            return _alone(self._host_stage.rest.compute(inputs))
        values = self._standardize(inputs)
        self._warn_of_other_structure(inputs)
        if mask is not None:
            for x, own in zip(values, self._flatten_inputs(mask), strict=True):
                if own is not None:
                    masks.set_mask(x, own)
        return _alone(self._graph.compute(values))

    def compute_output_spec(self, inputs: Any, **kwargs: Any) -> Any:
        values = self._standardize(inputs)
        return self._graph.run(values, lambda operation: operation.compute_output_spec)

    def compute_output_shape(self, input_shape: Any) -> Any:
        shapes = [input_shape] if trees.is_shape(input_shape) else trees.flatten_shapes(input_shape)
        values = [KerasTensor(shape, x.dtype) for shape, x in zip(shapes, self.inputs, strict=True)]
        outputs = self._graph.run(values, lambda operation: operation.compute_output_spec)
        return trees.map_structure(lambda x: x.shape, outputs)

    def _flatten_inputs(self, inputs: Any) -> list[Any]:
        """Returns what is given (or what is nested as it is) in the order of the model's inputs.

        Raises:
            ValueError: where it cannot be told which input is which.
        """
        structure = self._graph.inputs
        if isinstance(structure, dict):
            if not isinstance(inputs, dict) and list(structure) != sorted(structure):
                raise ValueError(
                    f"Model '{self.name}' has inputs of the names {list(structure)}: it takes a "
                    f"dictionary. Received: {type(inputs).__name__}"
                )
            missing = [key for key in structure if isinstance(inputs, dict) and key not in inputs]
            if missing:
                raise ValueError(
                    f"Model '{self.name}' got no data for its inputs {missing}. Received a "
                    f"dictionary with the keys {list(inputs)}"
                )
            if isinstance(inputs, dict):
                inputs = [inputs[key] for key in sorted(structure)]
        elif isinstance(inputs, dict):
            names = self.input_names
            if set(names) <= set(inputs):
                inputs = [inputs[name] for name in names]
            elif len(names) > 1:
                raise ValueError(
                    f"Model '{self.name}' has the inputs {names}. Received a dictionary with the "
                    f"keys {list(inputs)}"
                )
        return trees.flatten(inputs)

    def _warn_of_other_structure(self, inputs: Any) -> None:
        """Warns if the given structure leaves open which input is which."""
        structure = self._graph.inputs
        if isinstance(inputs, dict) and not isinstance(structure, dict):
            return  # the names of the inputs decide
        given, wanted = trees.skeleton(inputs), trees.skeleton(structure)
        alone = (None, (None,))
        if given == wanted or (given in alone and wanted in alone):
            return
        names = trees.map_structure(lambda x: x.name, structure)
        shapes = trees.map_structure(lambda x: None if x is None else tuple(x.shape), inputs)
        warnings.warn(
            f"The structure of `inputs` doesn't match the expected structure of model "
            f"'{self.name}'.\nExpected: {names}\nReceived: shapes {shapes}",
            stacklevel=2,
        )

    def _standardize(self, inputs: Any) -> list[Any]:
        """Returns a value for each input, in its order, with its dtype and number of axes."""
        flat = self._flatten_inputs(inputs)
        if len(flat) != len(self.inputs):
            way_out = (
                " A list is read as one array for each input: for a batch of text pass np.array(x)."
                if all(isinstance(x, (str, bytes)) for x in flat)
                else ""
            )
            raise ValueError(
                f"Model '{self.name}' has {len(self.inputs)} inputs {self.input_names}. "
                f"Received: {len(flat)}.{way_out}"
            )
        pairs = zip(flat, self.inputs, strict=True)
        return [masks.copy_mask(x, self._standardize_one(x, ref)) for x, ref in pairs]

    def _standardize_one(self, x: Any, reference: KerasTensor) -> Any:
        from kerascnn import ops

        if x is None:
            return None
        if reference.dtype == "string" and not isinstance(x, KerasTensor):
            return _text_for(x, reference, self.name)
        rank, wanted = len(x.shape), len(reference.shape)
        if rank == wanted + 1 and x.shape[-1] == 1:
            x = ops.squeeze(x, -1)
        elif rank == wanted - 1 and reference.shape[-1] == 1:
            x = ops.expand_dims(x, -1)
        elif rank != wanted:
            raise ValueError(
                f"Model '{self.name}': its input '{reference.name}' has shape {reference.shape}. "
                f"Received: shape={tuple(x.shape)}"
            )
        if isinstance(x, KerasTensor):
            return x if x.dtype == reference.dtype else ops.cast(x, reference.dtype)
        return dispatch.convert(x, reference.dtype)

    def _convert_inputs(
        self, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        # `_standardize` casts inputs to what keras.Input was told, not to the model's dtype.
        autocast, self.autocast = self.autocast, False
        try:
            return super()._convert_inputs(args, kwargs)
        finally:
            self.autocast = autocast

    @functools.cached_property
    def _host_stage(self) -> HostStage | None:
        """Returns the part of this model that runs before the compiled step, or None."""
        if not any(runs_on_host(operation) for operation in self._graph.operations):
            return None
        return HostStage(self._calls_inside, self.name)

    @functools.cached_property
    def _calls_inside(self) -> OperationGraph:
        return with_layers_inside(self._graph, self.name)

    def _host_preparation(self) -> Any:
        stage = self._host_stage
        if stage is None:
            return None

        def prepare(inputs: Any) -> Staged:
            with on_device("cpu"):
                return stage(self._standardize(inputs))

        return prepare

    @functools.cached_property
    def _end_on_host(self) -> HostEnd | None:
        return host_end(self._calls_inside, self.name)

    def _host_end(self) -> HostEnd | None:
        return self._end_on_host

    def get_build_config(self) -> dict[str, Any]:
        """Returns the shapes of the inputs, as Keras does."""
        return {"input_shape": None}

    @auto_config.default
    def get_config(self) -> dict[str, Any]:
        from kerascnn.models import functional_config

        if not takes_inputs_and_outputs(type(self)):
            return Model.get_config(self)
        return functional_config.from_model(self)

    @classmethod
    def from_config(cls, config: dict[str, Any], custom_objects: Any = None) -> Any:
        """A model of a configuration that `get_config` gave, with new weights."""
        from kerascnn.models import functional_config

        is_graph = "layers" in config and "output_layers" in config
        if not (is_graph and takes_inputs_and_outputs(cls)):
            return super().from_config(config)
        return functional_config.to_model(cls, config, custom_objects)


def _alone(outputs: Any) -> Any:
    """Returns the only output of a list of one: as in Keras, models return it without the list."""
    return outputs[0] if isinstance(outputs, (list, tuple)) and len(outputs) == 1 else outputs


def _text_for(x: Any, reference: KerasTensor, name: str) -> Any:
    """Gives text as many axes as an input has."""
    if not is_text(x):
        raise ValueError(
            f"Model '{name}': its input '{reference.name}' takes text. Received: "
            f"{type(x).__name__} of dtype {getattr(x, 'dtype', None)}"
        )
    text = as_text(x)
    rank, wanted = text.ndim, len(reference.shape)
    if rank == wanted - 1 and reference.shape[-1] == 1:
        return text[..., None]
    if rank == wanted + 1 and text.shape[-1] == 1:
        return text[..., 0]
    if rank != wanted:
        raise ValueError(
            f"Model '{name}': its input '{reference.name}' has shape {reference.shape}. "
            f"Received: shape={text.shape}"
        )
    return text


def takes_inputs_and_outputs(cls: type) -> bool:
    """Tells whether a class has Functional's constructor, so that a graph is all it needs."""
    initializer = cls.__init__  # type: ignore[misc]
    if initializer in (Functional.__init__, Model.__init__):
        return True
    spec = inspect.getfullargspec(initializer)
    own = inspect.getfullargspec(Functional.__init__).args
    return spec.args[1:] == own[1:] or (spec.varargs is not None and spec.varkw is not None)


def make_functional(model: Model) -> None:
    """Puts Functional under the class of a model whose `__init__` was given inputs and outputs."""
    cls = type(model)
    if isinstance(model, Functional):
        return

    def rebased(base: type) -> type:
        if base is Model:
            return Functional
        if not issubclass(base, Model):
            return base
        if not issubclass(base, Functional):
            base.__bases__ = tuple(rebased(b) for b in base.__bases__)
        return base

    cls.__bases__ = tuple(rebased(base) for base in cls.__bases__)
