"""What a layer owns: variables, layers and penalties, found among its attributes."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, TypeVar

import numpy as np

from kerascnn import file_budget, initializers
from kerascnn.attributes import attributes_of
from kerascnn.device import device as on_device
from kerascnn.seed_generators import SeedGenerator
from kerascnn.symbolic import inference
from kerascnn.variable import Variable, note_loss

T = TypeVar("T")


def unique(objects: Iterable[T]) -> list[T]:
    """Returns the objects in their order, each once."""
    return list({id(x): x for x in objects}.values())


def _made_frozen(variable: Variable) -> bool:
    return not variable.made_trainable


class Parts(NamedTuple):
    """The parts of a layer and of those below it, as `_flatten_layers` and others find them."""

    layers: list[Any]
    weights: list[Variable]
    variables: list[Variable]
    metrics: list[tuple[Any, list[Any]]]  # pairs of a layer and its own metrics


class LayerState:
    """The part of `Layer` that knows its variables."""

    name: str
    variable_dtype: str
    # These attributes only refer to layers and variables that other objects own.
    _not_owned: tuple[str, ...] = (
        "_inbound_nodes",
        "_outbound_nodes",
        "_losses",
        "optimizer",
        "_metrics_found",
        "_compile_arguments",
    )

    def _init_state(self, trainable: bool) -> None:
        self._added: list[Variable] = []
        self._losses: list[Any] = []
        self._trainable = bool(trainable)

    def _owned(self, kind: Any) -> list[Any]:
        """Returns the attributes of one kind, in the order in which they were set."""
        return attributes_of(self, kind, self._not_owned)

    def _sublayers(self, owned: list[Any] | None = None) -> list[Any]:
        """Returns the layers right below this one; `owned` saves searching the attributes."""
        from kerascnn.layers.layer import Layer

        owned = self._owned(Layer) if owned is None else owned
        return [layer for layer in owned if layer is not self]

    def _flatten_layers(self, include_self: bool = True, recursive: bool = True) -> list[Any]:
        """This layer and all below it, each once, outer before inner.

        Args:
            include_self: Whether this layer is the first of them.
            recursive: Whether layers below those right below this one are among them.
        """
        if not recursive:
            return unique([self] * include_self + self._sublayers())
        found: dict[int, Any] = {}
        stack: list[Any] = [self]
        while stack:
            layer = stack.pop()
            if id(layer) in found:
                continue
            found[id(layer)] = layer
            stack.extend(reversed(layer._sublayers()))
        layers = list(found.values())
        return layers if include_self else layers[1:]

    def _find_parts(self) -> Parts:
        """Collects layers, weights, variables and metrics in one pass over all attributes."""
        from kerascnn.layers.layer import Layer
        from kerascnn.metrics.metric import Metric

        found: dict[int, Any] = {}
        weights: list[Variable] = []
        variables: list[Variable] = []
        metrics: list[tuple[Any, list[Any]]] = []
        is_usual = True
        stack: list[Any] = [self]
        while stack:
            layer = stack.pop()
            if id(layer) in found:
                continue
            found[id(layer)] = layer
            is_usual = is_usual and layer._has_usual_variables()
            owned = layer._owned((Layer, Variable, SeedGenerator, Metric))
            metrics.append((layer, [x for x in owned if isinstance(x, Metric)]))
            own = [x for x in owned if isinstance(x, Variable)]
            if len(own) > 1:
                own.sort(key=_made_frozen)
            weights += own
            variables += own
            variables += [x.state for x in owned if isinstance(x, SeedGenerator)]
            stack.extend(reversed(layer._sublayers([x for x in owned if isinstance(x, Layer)])))
        if not is_usual:
            return Parts(list(found.values()), self.weights, self.variables, metrics)
        return Parts(list(found.values()), unique(weights), unique(variables), metrics)

    @classmethod
    def _has_usual_variables(cls) -> bool:
        """Tells whether no user's class overrides what the variables are."""
        return cls.weights is LayerState.weights and cls.variables is LayerState.variables

    def _own_variables(self) -> list[Variable]:
        """Returns own weights; those made as trainable come first, even if frozen now."""
        found = self._owned(Variable)
        return sorted(found, key=lambda v: not v.made_trainable)

    def add_weight(
        self,
        shape: Sequence[int] | int | None = None,
        initializer: Any = None,
        dtype: Any = None,
        *,
        trainable: bool = True,
        autocast: bool = True,
        regularizer: Any = None,
        constraint: Any = None,
        aggregation: str = "none",
        overwrite_with_gradient: bool = False,
        name: str | None = None,
    ) -> Variable:
        """Makes a weight that belongs to this layer.

        Args:
            shape: By default ().
            initializer: By default "glorot_uniform" for floating weights, else "zeros".
            dtype: By default the layer's.
            trainable: Whether training changes it.
            autocast: Kept for Keras' signature.
            regularizer: A penalty, see `kerascnn.regularizers`.
            constraint: A callable that the weight goes through after each update.
            aggregation: Kept for Keras' signature.
            overwrite_with_gradient: Only False.
            name: By default variable, variable_1, ...

        Returns:
            The weight. Another name for this method is `add_variable`.

        Raises:
            ValueError: for a size that is not known, a name in place of the shape, and in the
                `call` of a layer that is built: each call would make another weight.
            RuntimeError: before `super().__init__()`.

        Example:

        >>> import kerascnn as keras
        >>> class Scale(keras.layers.Layer):
        ...     def build(self, input_shape):
        ...         self.scale = self.add_weight(input_shape[-1:], "ones", name="scale")
        ...     def call(self, inputs):
        ...         return inputs * self.scale
        >>> layer = Scale()
        >>> layer(keras.ops.ones((2, 3))).shape, [(w.name, w.shape) for w in layer.weights]
        ((2, 3), [('scale', (3,))])
        """
        from kerascnn import constraints, dtypes, regularizers

        self._check_initialized()
        self._check_may_grow()
        if overwrite_with_gradient:
            raise ValueError("overwrite_with_gradient=True is not available.")
        if isinstance(shape, str):  # Keras 2 took a name here
            raise ValueError(
                f"`name` goes by keyword: add_weight(shape=..., name={shape!r}). "
                f"Received: add_weight({shape!r}, ...)"
            )
        sizes = (shape,) if isinstance(shape, int) else tuple(() if shape is None else shape)
        if any(n is None for n in sizes):
            raise ValueError(
                f"A weight of layer '{self.name}' was to have shape {sizes}, with a size that is "
                "not known. Give that size in the shape of keras.Input, or build the layer on it."
            )
        wanted = self.variable_dtype if dtype is None else dtypes.standardize_dtype(dtype)
        if initializer is None:
            initializer = "glorot_uniform" if dtypes.is_float(wanted) else "zeros"
        file_budget.charge_weight(math.prod(sizes) * dtypes.ITEMSIZE[wanted], self.name)
        with self._variable_scope():
            variable = Variable(
                initializers.get(initializer),
                shape=sizes,
                dtype=wanted,
                trainable=trainable,
                autocast=autocast,
                aggregation=aggregation,
                name=name,
            )
        variable.regularizer = regularizers.get(regularizer)
        variable.constraint = constraints.get(constraint)
        self._added.append(variable)
        return variable

    def add_variable(self, *args: Any, **kwargs: Any) -> Variable:
        """The same as `add_weight`."""
        return self.add_weight(*args, **kwargs)

    def _check_may_grow(self) -> None:
        """Checks that a weight that is made now is made only once."""

    def _variable_scope(self) -> contextlib.AbstractContextManager[None]:
        """A block whose variables have the layer's name in their paths."""
        return contextlib.nullcontext()

    def _check_initialized(self) -> None:
        if "_added" not in self.__dict__:
            raise RuntimeError(
                f"`super().__init__()` was not called in the `__init__` of {type(self).__name__}. "
                "Call it there first."
            )

    @property
    def trainable(self) -> bool:
        """Whether training changes this layer; setting it sets all layers below too."""
        return self._trainable

    @trainable.setter
    def trainable(self, value: bool) -> None:
        value = bool(value)
        for layer in self._flatten_layers():
            layer._trainable = value
            for variable in layer._own_variables():
                if variable.made_trainable:
                    variable.trainable = value

    @property
    def weights(self) -> list[Variable]:
        """The weights of this layer and those below; no states of random generators."""
        parts = [self._own_variables(), *(layer.weights for layer in self._sublayers())]
        return unique(v for part in parts for v in part)

    def _first_weight(self) -> Variable | None:
        """Returns the first of `weights` without collecting all of them."""
        own = self._own_variables()
        if own:
            return own[0]
        below = (layer._first_weight() for layer in self._sublayers())
        return next((weight for weight in below if weight is not None), None)

    @property
    def variables(self) -> list[Variable]:
        """All that this layer and those below keep: weights and states of random generators."""
        owned = self._owned((Variable, SeedGenerator))
        own = [x for x in owned if isinstance(x, Variable)]
        own.sort(key=lambda v: not v.made_trainable)
        seeds = [x.state for x in owned if not isinstance(x, Variable)]
        parts = [own, seeds, *(layer.variables for layer in self._sublayers())]
        return unique(v for part in parts for v in part)

    @property
    def metrics(self) -> list[Any]:
        """The metrics among the attributes of this layer and of those below it."""
        from kerascnn.metrics.metric import Metric

        return unique(metric for layer in self._flatten_layers() for metric in layer._owned(Metric))

    @property
    def metrics_variables(self) -> list[Variable]:
        """The states of all metrics."""
        return [variable for metric in self.metrics for variable in metric.variables]

    @property
    def trainable_weights(self) -> list[Variable]:
        """The weights that training changes."""
        return [v for v in self.weights if v.trainable] if self.trainable else []

    @property
    def non_trainable_weights(self) -> list[Variable]:
        """The weights that training leaves to the layers themselves."""
        return [v for v in self.weights if not v.trainable] if self.trainable else self.weights

    @property
    def trainable_variables(self) -> list[Variable]:
        """The variables that training changes."""
        return [v for v in self.variables if v.trainable] if self.trainable else []

    @property
    def non_trainable_variables(self) -> list[Variable]:
        """The variables that training leaves to the layers themselves."""
        return [v for v in self.variables if not v.trainable] if self.trainable else self.variables

    def get_weights(self) -> list[np.ndarray[Any, Any]]:
        """Copies of all weights, in the order of `weights`."""
        return [v.numpy() for v in self.weights]

    def set_weights(self, weights: Sequence[Any]) -> None:
        """Gives all weights new values, in the order of `weights`; all or, on an error, none.

        Raises:
            ValueError: for a list of another length, or an array of another shape.
        """
        own = self.weights
        if len(weights) != len(own):
            raise ValueError(
                f"`set_weights` of layer '{self.name}' got a list of {len(weights)} arrays, but "
                f"the layer has {len(own)} weights"
                f"{'' if own else ' (it may not be built yet: call it on data first)'}."
            )
        arrays = [np.asarray(value) for value in weights]
        for variable, array in zip(own, arrays, strict=True):
            if tuple(array.shape) != variable.shape:
                raise ValueError(
                    f"`set_weights` of layer '{self.name}': the weight '{variable.path}' has shape "
                    f"{variable.shape}, but the array given for it has shape {tuple(array.shape)}."
                )
        for variable, array in zip(own, arrays, strict=True):
            variable.assign(array)

    def save_own_variables(self, store: Any) -> None:
        """Puts the layer's own weights into a mapping, under "0", "1", ...; not those below it.

        A layer that overrides it keeps in files what it puts there.
        """
        for index, variable in enumerate(self._weights_in_files()):
            store[str(index)] = variable.numpy()

    def load_own_variables(self, store: Any) -> None:
        """Takes the layer's own weights from a mapping that `save_own_variables` filled.

        Raises:
            ValueError: where it has another number of them, or one of another shape.
        """
        own = self._weights_in_files()
        if len(store.keys()) != len(own):
            raise ValueError(
                f"Layer '{self.name}' has {len(own)} weights {[v.name for v in own]}, but "
                f"{len(store.keys())} were saved for it."
            )
        for index, variable in enumerate(own):
            variable.assign(np.asarray(store[str(index)]))
        self._after_loading()

    def _weights_in_files(self) -> list[Variable]:
        """Returns the layer's own weights that Keras' files contain, in their order."""
        return self._own_variables()

    def _after_loading(self) -> None:
        """Runs after `_weights_in_files` got their values from a file."""

    def count_params(self) -> int:
        """The number of elements of all weights.

        Raises:
            ValueError: for a layer that is not built.
        """
        if not getattr(self, "built", True):
            raise ValueError(
                f"The weights of layer '{self.name}' do not exist yet. Call it on data, or call "
                "`build(input_shape)`."
            )
        return sum(v.size for v in self.weights)

    def add_loss(self, loss: Any) -> None:
        """Adds a scalar (or a list of them) to the loss; inside `call`, for that call only.

        Args:
            loss: A scalar tensor, or a list of them.

        Example:

        >>> import kerascnn as keras
        >>> class Quiet(keras.layers.Layer):
        ...     def call(self, inputs):
        ...         self.add_loss(0.1 * keras.ops.mean(keras.ops.square(inputs)))
        ...         return inputs
        >>> layer = Quiet()
        >>> y = layer(keras.ops.ones((2, 3)))
        >>> [round(float(loss), 3) for loss in layer.losses]
        [0.1]
        """
        if inference.only_learns_shapes():  # without values there is no loss
            return
        for x in loss if isinstance(loss, (list, tuple)) else [loss]:
            self._losses.append(x)
            note_loss(self._losses)

    @property
    def losses(self) -> list[Any]:
        """Scalars added in the last call here and below, and the penalties on weights."""
        layers = self._flatten_layers()
        scalars = [loss for layer in layers for loss in layer._losses]
        for variable in self.trainable_weights:
            if variable.regularizer is not None:
                # new tensors of a penalty are on the device of its weight
                with on_device(variable.device):
                    scalars.append(variable.regularizer(variable))
        return scalars

    def _clear_losses(self) -> None:
        for layer in self._flatten_layers():
            layer._losses.clear()
