"""Layer: weights and a computation. Everything that models are made of is one."""

from __future__ import annotations

import contextlib
import functools
import inspect
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from kerascnn import _core, dtype_policies, dtypes, masks, naming, regularizers, tracing, trees
from kerascnn import serialization as _serialization
from kerascnn.autodiff import remat_scope
from kerascnn.device import current as current_device
from kerascnn.device import device as on_device
from kerascnn.layers.call_arguments import NO_TENSORS, call_parameters, shown
from kerascnn.layers.call_context import CallContext, ContextArguments
from kerascnn.layers.call_context import context as _context
from kerascnn.layers.input_spec import assert_input_compatibility
from kerascnn.layers.layer_masks import LayerMasks
from kerascnn.layers.noted_arguments import noted_arguments
from kerascnn.layers.quantization import Quantization
from kerascnn.layers.state import LayerState
from kerascnn.layers.text import is_text
from kerascnn.ops import dispatch
from kerascnn.stateless import StatelessLayer
from kerascnn.symbolic import auto_config, inference
from kerascnn.symbolic.keras_tensor import KerasTensor
from kerascnn.symbolic.operation import Node, Operation, any_symbolic
from kerascnn.tracebacks import filtered
from kerascnn.variable import autocast_scope, current_autocast

# An error gets a line with this beginning once, from the innermost layer that it passes.
_CALLED_IN = "\nIn the call of layer "


class Layer(Operation, LayerState, StatelessLayer, LayerMasks, Quantization, ContextArguments):
    """Base of all layers and models.

    A custom layer implements `call(inputs, training=...)` with `kerascnn.ops` and, where it
    has weights, `build(input_shape)` with `add_weight`. Layers and variables among its attributes
    belong to it.

    Args:
        activity_regularizer: A penalty on the outputs, per sample.
        trainable: Whether training changes its weights.
        dtype: What it computes in and keeps its weights in: a dtype or a `DTypePolicy`, by default
            `config.dtype_policy()`.
        autocast: Whether floating inputs are cast to what it computes in.
        name: By default the class name with a number: dense, dense_1, ...

    Example:

    >>> import kerascnn as keras
    >>> class Scale(keras.Layer):
    ...     def build(self, input_shape):
    ...         self.factor = self.add_weight((input_shape[-1],), "ones", name="factor")
    ...
    ...     def call(self, inputs):
    ...         return inputs * self.factor
    >>> Scale()(keras.ops.ones((2, 3))).shape
    (2, 3)
    """

    # If true, `call` takes NumPy arrays, also of text, and no tensors; see `HostLayer`.
    runs_on_host: bool = False
    # Arguments of the constructor that its signature has not.
    _more_arguments: tuple[str, ...] = ("name", "dtype", "trainable")
    # If true, the first call makes the layer's weights and parts.
    _grows_in_calls = False
    # If true, `call` gets text unchanged; models pass it on to such layers.
    _takes_text = False
    _takes_numbers = False  # whether a first argument of numbers in lists is an array
    # A trace depends on this, besides weights, settings and constants.
    _trace_key: Any = None

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "build" in cls.__dict__:
            cls.build = _wrap_build(cls.__dict__["build"])  # type: ignore[method-assign]

    def __init__(
        self,
        *,
        activity_regularizer: Any = None,
        trainable: bool = True,
        dtype: Any = None,
        autocast: bool = True,
        name: str | None = None,
        **kwargs: Any,
    ) -> None:
        input_shape = kwargs.pop("input_shape", None)
        input_dim = kwargs.pop("input_dim", None)
        if kwargs:
            known = [*inspect.signature(type(self).__init__).parameters, *self._more_arguments]
            names = [k for k in dict.fromkeys(known) if k not in ("self", "args", "kwargs")]
            raise ValueError(
                f"{type(self).__name__} does not have the argument(s) {sorted(kwargs)}. "
                f"{_serialization.did_you_mean(next(iter(kwargs)), names)}"
            )
        if not isinstance(trainable, bool):
            raise ValueError(
                f"{type(self).__name__}: `trainable` must be True or False. Received: "
                f"trainable={trainable!r} (of type {type(trainable)})"
            )
        Operation.__init__(self, name)
        self._init_state(trainable)
        self._dtype_policy = dtype_policies.get(dtype)
        self.autocast = autocast
        self.activity_regularizer = regularizers.get(activity_regularizer)
        self.input_spec: Any = None
        self.built = False
        self._path: str | None = None
        self._build_shapes: dict[str, Any] | None = None
        self._in_call = False
        self._building = False
        self._remat_scope = remat_scope.current_scope()
        # In Keras 2 the first layer got the shape of the model's input by these arguments.
        if input_dim is not None and input_shape is None:
            input_shape = (input_dim,)
        self._input_shape_argument = None if input_shape is None else tuple(input_shape)

    @property
    def path(self) -> str | None:
        """The names of the layers around it and its own, as `model/block/dense`; None until built.

        It begins the paths of the layer's weights, and is what a `DTypePolicyMap` looks up.
        """
        return self._path

    @property
    def dtype_policy(self) -> dtype_policies.DTypePolicy:
        """What this layer computes in and keeps its weights in."""
        policy = self._dtype_policy
        if isinstance(policy, dtype_policies.DTypePolicyMap):
            return policy[self.path or self.name]
        return policy

    @dtype_policy.setter
    def dtype_policy(self, value: Any) -> None:
        self._take_policy(dtype_policies.get(value))

    @property
    def compute_dtype(self) -> str:
        """What this layer computes in."""
        return self.dtype_policy.compute_dtype

    @property
    def variable_dtype(self) -> str:  # type: ignore[override]
        """What this layer keeps its weights in."""
        return self.dtype_policy.variable_dtype

    @property
    def dtype(self) -> str:
        """The same as `variable_dtype`."""
        return self.dtype_policy.variable_dtype

    @property
    def input_dtype(self) -> str:
        """What floating inputs are cast to: the same as `compute_dtype`."""
        return self.dtype_policy.compute_dtype

    def build(self, input_shape: Any) -> None:
        """Makes the weights; subclasses override it.

        Args:
            input_shape: Shape of the first argument of `call`; or name the arguments
                `<argument>_shape` to get the shapes of several.
        """
        with _build_scope(self):
            self._path = naming.current_path()
        self._build_shapes = {"input_shape": input_shape}
        self.built = True

    def _build_at_init(self) -> None:
        """For the end of an `__init__`: the layer is built, unless a subclass overrides `build`."""
        if type(self).build is Layer.build:
            self.built = True

    def _check_may_grow(self) -> None:
        if self._in_call and self.built and not self._building and not self._grows_in_calls:
            raise ValueError(
                f"The layer '{self.name}' is built, so that its `call` cannot make another weight: "
                "it would make one in each call. Make weights in `__init__` or `build`."
            )

    def _variable_scope(self) -> contextlib.AbstractContextManager[None]:
        inside = self._in_call or naming.current_scopes()[-1:] == (self.name,)
        return contextlib.nullcontext() if inside else naming.name_scope(self.name)

    def call(self, *args: Any, **kwargs: Any) -> Any:
        """The computation; subclasses override it."""
        raise NotImplementedError(f"The layer {type(self).__name__} does not implement `call`.")

    def compute_output_shape(self, *args: Any, **kwargs: Any) -> Any:
        """The shape of the output for inputs of a shape (sizes can be None)."""
        shapes = (*args, *kwargs.values())
        inputs = trees.map_shapes(lambda s: KerasTensor(s, self.compute_dtype), shapes)
        outputs = inference.infer(self.call, tuple(inputs), {}, may_compute=True)
        return trees.map_structure(lambda x: x.shape, outputs)

    def compute_output_spec(self, *args: Any, **kwargs: Any) -> Any:
        """KerasTensors of the output's shape and dtype, for inputs as KerasTensors."""
        overridden = type(self).compute_output_shape is not Layer.compute_output_shape
        tensors = [a for a in args if any_symbolic((a,), {})]
        # Shapes do not depend on masks.
        others = {k: v for k, v in kwargs.items() if k != "mask" and not k.endswith("_mask")}
        text = any(map(inference.is_symbolic_text, trees.leaves((args, others))))
        if text and any(layer.runs_on_host for layer in self._flatten_layers()):
            return self.call(*args, **kwargs)  # the layers inside infer their own shapes
        if not overridden or any_symbolic((), others) or len(tensors) != 1:
            return inference.infer(self.call, args, kwargs, may_compute=True)
        shape = self.compute_output_shape(trees.map_structure(lambda x: x.shape, tensors[0]))
        return trees.map_shapes(lambda s: KerasTensor(s, self.compute_dtype), shape)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Builds the layer where that is still to do, and computes (or records) its output.

        Raises:
            ValueError: for inputs that are no tensors or do not fit `input_spec`.
        """
        self._check_initialized()
        received = args, kwargs
        with self._home():
            args, kwargs = self._convert_inputs(args, kwargs)
            first = args[0] if args else self._first_argument(kwargs)
            self._check_inputs(first)
            context = _context.get()
            kwargs, training = self._resolve_training(args, kwargs, context)
            parameters = call_parameters(type(self).call)
            kwargs, handed_on = self._take_context_arguments(kwargs, context, parameters)
            if context is None:
                self._clear_losses()
            token = _context.set(CallContext(training, handed_on))
            self._in_call, was_in_call, self._was_called = True, self._in_call, True
            try:
                with naming.name_scope(self.name), tracing.scope(self.name):
                    self._maybe_build(args, kwargs)
                    kwargs = self._fill_in_masks(args, kwargs)
                    mask = kwargs.get("mask")
                    # This must come before the call, which can remove masks from its inputs.
                    mask = masks.mask_of(first) if mask is None else mask
                    with self._reading_weights():
                        if any_symbolic(args, kwargs):
                            outputs = self._symbolic_call(args, kwargs, received)
                        else:
                            outputs = self._eager_call(args, kwargs)
                    self._hand_on_mask(first, outputs, mask)
                    return outputs
            except Exception as error:
                if context is not None:
                    raise
                raise error.with_traceback(filtered(error.__traceback__))  # noqa: B904
            finally:
                self._in_call = was_in_call
                _context.reset(token)

    def _first_argument(self, kwargs: dict[str, Any]) -> Any:
        """Returns what a call by keywords alone gave for the first parameter of `call`."""
        name = next(iter(call_parameters(type(self).call)), "")
        return kwargs.get(name, next(iter(kwargs.values()), None))

    def _eager_call(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if self._remat_scope is None:
            outputs = self._checked_call(args, kwargs)
        else:
            outputs = self._remat_scope.compute(self, args, kwargs)
        self._penalize(outputs)
        return outputs

    def _home(self) -> contextlib.AbstractContextManager[Any]:
        """Returns the device of the weights, where an outermost call creates its other tensors."""
        if _context.get() is not None or tracing.current() is not None:
            return contextlib.nullcontext()
        weight = self._first_weight()
        if weight is None or weight.device == current_device():
            return contextlib.nullcontext()
        return on_device(weight.device)

    def _reading_weights(self) -> contextlib.AbstractContextManager[Any]:
        """A block in which weights are read in the compute dtype."""
        policy, around = self.dtype_policy, current_autocast()
        if around is None and policy.compute_dtype == policy.variable_dtype:
            return contextlib.nullcontext()
        casts = self.autocast and dtypes.is_float(policy.compute_dtype)
        return autocast_scope(policy.compute_dtype if casts else None)

    def _convert_inputs(
        self, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Converts arrays to tensors, and floating ones to the layer's dtype."""
        if len(args) == 1 and kwargs.keys() <= NO_TENSORS and self._is_ready(args[0]):
            return args, kwargs
        if self._takes_numbers and args and _are_numbers(args[0]):
            args = (np.asarray(args[0]), *args[1:])

        def convert(x: Any) -> Any:
            if isinstance(x, KerasTensor):
                from kerascnn import ops

                cast = self.autocast and dtypes.is_float(x.dtype) and x.dtype != self.compute_dtype
                return masks.copy_mask(x, ops.cast(x, self.compute_dtype)) if cast else x
            if not dispatch.is_tensor(x):
                if not dispatch.is_array_like(x):
                    return x
                if is_text(x) and self._hands_on_text():
                    return np.asarray(x)  # a table of pandas has no dtype
                x = dispatch.convert(x)
            cast = self.autocast and dtypes.is_float(x.dtype)
            return masks.copy_mask(x, dispatch.convert(x, self.compute_dtype)) if cast else x

        args = trees.map_structure(convert, args)
        kwargs = trees.map_structure(convert, kwargs)
        for x in trees.leaves(args):
            if x is not None and not isinstance(x, KerasTensor) and not dispatch.is_tensor(x):
                if is_text(x) and self._hands_on_text():
                    continue
                raise ValueError(
                    f"The layer '{self.name}' must be called on tensors or arrays; anything else "
                    f"goes by keyword. Received: {x!r} (of type {type(x)}) in {shown(args)}"
                )
        return args, kwargs

    def _hands_on_text(self) -> bool:
        """Tells whether `call` gets text unchanged, for a layer inside."""
        return self._takes_text or any(layer.runs_on_host for layer in self._flatten_layers())

    def _check_inputs(self, inputs: Any) -> None:
        assert_input_compatibility(self.input_spec, inputs, self.name)

    def _is_ready(self, inputs: Any) -> bool:
        """Whether inputs are tensors (or a list of them) of this layer's dtype, as they mostly are.

        It saves small layers that run at once a tenth of their time.
        """
        dtype = self.compute_dtype
        kind = _core.Tensor if tracing.current() is None else _core.Value
        tensors = inputs if type(inputs) is list else (inputs,)
        return all(type(x) is kind and x.dtype == dtype for x in tensors)

    def _resolve_training(
        self, args: tuple[Any, ...], kwargs: dict[str, Any], context: CallContext | None
    ) -> tuple[dict[str, Any], bool | None]:
        """Returns `training` as given, else that of the call around this one, else the default."""
        parameters = call_parameters(type(self).call)
        takes = "training" in parameters
        training = kwargs.get("training")
        if training is None and context is not None:
            training = context.training
        if training is None and takes:
            default = parameters["training"].default
            training = None if default is inspect.Parameter.empty else default
        if training is not None and not dispatch.is_tensor(training):
            training = bool(training)
        kwargs = {k: v for k, v in kwargs.items() if k != "training"}
        if takes and training is not None:
            kwargs["training"] = training
        return kwargs, training

    def _maybe_build(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if self.built:
            return
        names = list(call_parameters(type(self).call))
        shapes: dict[str, Any] = {}
        for name, value in [*zip(names, args, strict=False), *kwargs.items()]:
            leaves = trees.flatten(value)
            if leaves and all(hasattr(x, "shape") for x in leaves):
                shapes[f"{name}_shape"] = trees.map_structure(lambda x: tuple(x.shape), value)
        wanted = list(inspect.signature(self.build).parameters)
        if not wanted:
            self.build()  # type: ignore[call-arg]
        elif any(name in shapes for name in wanted) and len(wanted) > 1:
            self.build(**{name: shapes[name] for name in wanted if name in shapes})
        else:
            self.build(next(iter(shapes.values()), None))

    def _symbolic_call(
        self,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        received: tuple[tuple[Any, ...], dict[str, Any]],
    ) -> Any:
        try:
            found = self.compute_output_spec(*args, **kwargs)
        except (ValueError, TypeError) as error:
            self._name_in(error, args, kwargs)
            raise
        for x in trees.leaves(found):
            if not isinstance(x, KerasTensor):
                raise ValueError(
                    f"Layer '{self.name}' ({type(self).__name__}) must return tensors from `call`. "
                    f"Received: {x!r}" + (". Is there a `return`?" if x is None else "")
                )
        # A tensor that is only passed through becomes a new one that comes from this layer.
        outputs = trees.map_structure(
            lambda x: KerasTensor(x.shape, x.dtype) if x._keras_history is not None else x, found
        )
        # A model's graph has the arguments before they are cast, as in Keras: each call casts them.
        kept, written = noted_arguments(self, *received, kwargs)
        Node(self, received[0], kept, outputs, written)
        return outputs

    def _checked_call(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Runs `call`; errors say which layer it was and what it was called on."""
        try:
            return self._run_call(*args, **kwargs)
        except (ValueError, TypeError) as error:
            self._name_in(error, args, kwargs)
            raise

    def _name_in(self, error: Exception, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Lets an error say which layer it was and what it was called on, if it doesn't yet."""
        text = str(error.args[0]) if len(error.args) == 1 else None
        if text is not None and _CALLED_IN not in text:
            where = f"'{self.name}' ({type(self).__name__})"
            error.args = (f"{text}{_CALLED_IN}{where} on {shown((args, kwargs))}",)

    def _penalize(self, outputs: Any) -> None:
        if self.activity_regularizer is None:
            return
        for x in trees.leaves(outputs):
            loss = self.activity_regularizer(x)
            self.add_loss(loss / max(x.shape[0], 1) if x.shape else loss)

    def _activated(self, outputs: Any) -> Any:
        """Applies the attribute `activation`, unless somebody has removed it."""
        activation = self.activation  # type: ignore[attr-defined]
        return outputs if activation is None else activation(outputs)

    @auto_config.default
    def get_config(self) -> dict[str, Any]:
        """The arguments that make another layer like this one, as plain values.

        A custom class that does not override it gets the arguments that it was made with.

        Raises:
            NotImplementedError: where these are no plain values.
        """
        config = {
            "name": self.name,
            "trainable": self.trainable,
            "dtype": _serialization.serialize_object(self._dtype_policy),
        }
        if self.activity_regularizer is not None:
            config["activity_regularizer"] = regularizers.serialize(self.activity_regularizer)
        return auto_config.add_arguments(self, config)

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Any:
        """A layer of a configuration that `get_config` gave."""
        try:
            return cls(**config)
        except TypeError as error:
            raise TypeError(
                f"{cls.__name__} cannot be made from the configuration {config}. A class with "
                f"arguments of its own needs a `get_config` that returns them. ({error})"
            ) from error

    def get_build_config(self) -> dict[str, Any] | None:
        """The shapes that this layer was built on."""
        if self._build_shapes is None:
            return None
        if len(self._build_shapes) == 1:
            return {"input_shape": next(iter(self._build_shapes.values()))}
        return {"shapes_dict": dict(self._build_shapes)}

    def build_from_config(self, config: dict[str, Any]) -> None:
        """Builds on shapes that `get_build_config` gave."""
        if "input_shape" in config:
            shape = config["input_shape"]
            self.build(None if shape is None else trees.map_shapes(tuple, shape))
        elif "shapes_dict" in config:
            self.build(**config["shapes_dict"])

    def __repr__(self) -> str:
        return f"<{type(self).__name__} name={self.name}, built={getattr(self, 'built', False)}>"


def _wrap_build(build: Callable[..., None]) -> Callable[..., None]:
    """Wraps `build`: weights are made at once under the layer's name; the layer is built then."""

    @functools.wraps(build)
    def wrapper(self: Layer, *args: Any, **kwargs: Any) -> None:
        self._check_initialized()
        if self._building:  # this is the call of super().build(...)
            return build(self, *args, **kwargs)
        names = list(inspect.signature(build).parameters)[1:]
        self._building = True
        # this comes first, so that a `build` without enough information can undo it
        self.built = True
        try:
            with tracing.suspended(), autocast_scope(None), _build_scope(self):
                self._path = naming.current_path()
                build(self, *args, **kwargs)
        except BaseException:
            self.built = False
            raise
        finally:
            self._building = False
        self._build_shapes = {**dict(zip(names, args, strict=False)), **kwargs}
        if not self._trainable:
            self.trainable = False  # applies the flag to weights that were made after it was set
        return None

    return wrapper


def _are_numbers(x: Any) -> bool:
    """Tells whether this is a number, or nothing but numbers in lists."""
    leaves = trees.flatten(x)
    return bool(leaves) and all(isinstance(leaf, (bool, int, float)) for leaf in leaves)


@contextlib.contextmanager
def _build_scope(layer: Layer) -> Iterator[None]:
    if layer._in_call:
        yield
        return
    with naming.name_scope(layer.name):
        yield
