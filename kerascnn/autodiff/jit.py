"""jit: a function of tensors and variables as a compiled program."""

from __future__ import annotations

import functools
import threading
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from kerascnn import _core, config, dtypes, tracing, trees
from kerascnn.device import current as current_device
from kerascnn.device import device as on_device
from kerascnn.distribution import replicas
from kerascnn.ops import dispatch
from kerascnn.tracing import Trace
from kerascnn.variable import Variable, current_autocast, current_scope

# From `_WARN_FROM` programs on, a function causes a warning. It keeps at most `_MOST`; then the
# oldest goes.
_WARN_FROM = 8
_MOST = 128


def jit(fun: Callable[..., Any]) -> Callable[..., Any]:
    """The same function, compiled.

    The first call with arguments of a kind (structure, shapes, dtypes and the values of everything
    that is no tensor) runs the Python code once and records it as a program, optimized as a
    training step is; later calls run the program, without Python. Variables are read and assigned
    as they are then. Everything else that the function reads from outside is as it was when the
    program was made, and what it does beside (print, append) happens then only.

    Gradients can be taken inside (GradientTape, grad) and of the result. Where several tapes or a
    persistent one record, the call runs op by op, so that gradients of gradients can be taken.

    Args:
        fun: Takes and returns tensors, nested in any way, and other values.

    Returns:
        A function of the same arguments. Its attribute `num_traces` counts the programs; many of
        them are warned about.

    Raises:
        TypeError: when called with an argument that can neither be a tensor nor be compared.

    Example:

    >>> import kerascnn as keras
    >>> scale = keras.Variable(2.0)
    >>> scaled = keras.jit(lambda x: {"scaled": x * scale})
    >>> scaled(keras.ops.ones((2,)))["scaled"].numpy().tolist(), scaled.num_traces
    ([2.0, 2.0], 1)
    """
    if not callable(fun):
        raise TypeError(f"jit compiles a function. Received: fun={fun!r}")
    return _Jitted(fun)


class _Jitted:
    def __init__(self, fun: Callable[..., Any]) -> None:
        functools.update_wrapper(self, fun, updated=())
        self._fun = fun
        self._compiled: dict[Any, _Compiled] = {}
        self._lock = threading.RLock()
        self.num_traces = 0

    def __get__(self, owner: Any, kind: Any = None) -> Any:
        return self if owner is None else functools.partial(self, owner)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        records = _core.is_recording()
        scope = current_scope()
        if tracing.current() is not None or (records and not _core.records_once()):
            return self._fun(*args, **kwargs)
        if scope is not None and scope.is_stateless:  # a program reads the variables themselves
            return self._fun(*args, **kwargs)
        leaves: list[Any] = []
        key = _key_of((args, kwargs), leaves)
        inputs = [x for x in leaves if isinstance(x, _INPUTS)]
        device = next((x.device for x in inputs if isinstance(x, _core.Tensor)), current_device())
        tracked = tuple(_is_tracked(x) for x in inputs) if records else None
        watched = _core.watched_untrained() if records else ()
        key = (key, device, tracked, frozenset(watched), config.floatx(), config.tf32())
        key = (key, current_autocast(), replicas.active())
        with self._lock:
            compiled = self._compiled.get(key)
            if compiled is None:
                compiled = self._trace(key, (args, kwargs), leaves, device, tracked, watched)
            return compiled.run(inputs)

    def _trace(
        self,
        key: Any,
        structure: Any,
        leaves: list[Any],
        device: str,
        tracked: tuple[bool, ...] | None,
        watched: Sequence[Any],
    ) -> _Compiled:
        compiled = _Compiled(self._fun, structure, leaves, device, tracked, watched)
        self.num_traces += 1
        if self.num_traces == _WARN_FROM:
            warnings.warn(
                f"jit: {getattr(self._fun, '__name__', self._fun)} has been compiled for "
                f"{self.num_traces} different kinds of arguments. Each shape, dtype and value of a "
                "Python number is one: pass numbers that change as tensors "
                "(ops.convert_to_tensor), and pad what varies in shape.",
                stacklevel=3,
            )
        self._compiled[key] = compiled
        if len(self._compiled) > _MOST:
            self._compiled.pop(next(iter(self._compiled)))
        return compiled


def _key_of(structure: Any, leaves: list[Any]) -> Any:
    """Returns what the program depends on; the leaves of the structure are appended.

    Arrays of NumPy stay arrays, which the program takes as they are; others become tensors.
    """
    if isinstance(structure, (list, tuple)):
        return type(structure), *[_key_of(item, leaves) for item in structure]
    if isinstance(structure, dict):
        items = [(key, _key_of(structure[key], leaves)) for key in sorted(structure)]
        return dict, tuple(items)
    if isinstance(structure, Variable):
        leaves.append(structure)
        return "variable", id(structure), id(structure.core)
    if isinstance(structure, _core.Tensor):
        leaves.append(structure)
        return structure.shape, structure.dtype
    if isinstance(structure, (np.ndarray, np.generic)):
        array = dispatch.to_numpy_array(structure)
        leaves.append(array)
        return array.shape, array.dtype.name
    if dispatch.is_array_like(structure):
        return _key_of(dispatch.convert(structure), leaves)
    try:
        hash(structure)
    except TypeError:
        raise TypeError(
            "jit: an argument can neither be made a tensor nor be compared with those of earlier "
            f"calls: {structure!r} of type {type(structure).__name__}. Pass tensors, arrays, "
            "variables, numbers, strings or None, nested in lists, tuples and dictionaries."
        ) from None
    leaves.append(structure)
    return type(structure), structure


class _Compiled:
    """The programs for one kind of arguments."""

    def __init__(
        self,
        fun: Callable[..., Any],
        structure: Any,
        leaves: list[Any],
        device: str,
        tracked: tuple[bool, ...] | None,
        watched: Sequence[Any],
    ) -> None:
        self.name = getattr(fun, "__name__", type(fun).__name__)
        self.device = device
        self.owners = leaves  # keeps alive the objects whose ids are in the key
        pause = _core.RecordingPause()
        with on_device(device), pause, Trace(device) as trace:
            inputs: list[Any] = []
            values = [self._input(trace, x, inputs) for x in leaves]
            for x, is_followed in zip(inputs, tracked or (), strict=False):
                if is_followed:
                    trace.whole.watch(x)
            args, kwargs = trees.pack_as(structure, values)
            results = fun(*args, **kwargs)
            flat = [dispatch.convert(y) if _is_output(y) else y for y in trees.flatten(results)]
            self.outputs = [y for y in flat if isinstance(y, _core.Value)]
            self.leaves = [_SLOT if isinstance(y, _core.Value) else y for y in flat]
            self.pattern = trees.map_structure(lambda _: None, results)
            trace.finish()
            graph, outputs = trace.graph, list(self.outputs)
            self.backward: _Backward | None = None
            if tracked is not None:
                self.backward = _Backward(trace, inputs, self.outputs, tracked, watched, device)
                graph = self.backward.forward_graph
                outputs = [graph.value(y.id) for y in self.outputs] + self.backward.kept
                self.backward.forget_trace()
        self.num_outputs = len(self.outputs)
        self.outputs = []  # these were values of the trace, which has ended
        self.program = _compile(graph, outputs, device)

    @staticmethod
    def _input(trace: Trace, leaf: Any, inputs: list[Any]) -> Any:
        if not isinstance(leaf, _INPUTS):
            return leaf
        name, dtype = f"argument_{len(inputs)}", dtypes.standardize_dtype(leaf.dtype)
        inputs.append(trace.graph.input(name, list(leaf.shape), dtype))
        return inputs[-1]

    def run(self, inputs: list[Any]) -> Any:
        for x in inputs:
            if isinstance(x, _core.Tensor) and x.device != self.device:
                raise _core.DeviceError(
                    f"jit: {self.name} runs on {self.device}, where its first argument is, but "
                    f"another one is on {x.device}; move one of them with .to('{self.device}')."
                )
        results = self.program.call(inputs)
        outputs = results[: self.num_outputs]
        if self.backward is not None:
            outputs = self.backward.record(self.name, inputs, outputs, results[self.num_outputs :])
        items = iter(outputs)
        leaves = [next(items) if x is _SLOT else x for x in self.leaves]
        return trees.pack_as(self.pattern, leaves)


_INPUTS = (_core.Tensor, np.ndarray)  # what a program has an input for
_SLOT = object()  # marks where a result of the program goes


def _is_tracked(x: Any) -> bool:
    return isinstance(x, _core.Tensor) and _core.is_tracked(x)


class _Backward:
    """The gradient of a compiled function: a program of its own, over what the forward one kept."""

    def __init__(
        self,
        trace: Trace,
        inputs: list[Any],
        outputs: list[Any],
        tracked: tuple[bool, ...],
        watched: Sequence[Any],
        device: str,
    ) -> None:
        graph: Any = trace.graph
        self.places = [i for i, is_tracked in enumerate(tracked) if is_tracked]
        # As with tapes, everything that the function read from a variable counts, even after it
        # assigned it.
        read = trace.whole.watched_variables()
        self.variables = [core for core in read if core.trainable or core in watched]
        self.outputs = [(list(y.shape), y.dtype) for y in outputs]
        num_nodes = graph.num_nodes
        self.forward_graph = graph.copy()
        sources = [*(inputs[i] for i in self.places), *self.variables]
        floating = [i for i, y in enumerate(outputs) if dispatch.dtypes.is_float(y.dtype)]
        upstream = {
            i: graph.input(f"gradient_{i}", list(outputs[i].shape), outputs[i].dtype)
            for i in floating
        }
        targets = [outputs[i] for i in floating]
        found = trace.whole.gradients(targets, [upstream[i] for i in floating], sources)
        part, given, gradients = graph.cut_from(num_nodes, found)
        # Each value is an input of the backward program: the gradient of an output, or a kept
        # value.
        numbers = {value.id: i for i, value in upstream.items()}
        self.sources: list[tuple[str, int]] = []
        self.kept: list[Any] = []
        for value in given:
            if value.id in numbers:
                self.sources.append(("gradient", numbers[value.id]))
            else:
                self.sources.append(("kept", len(self.kept)))
                self.kept.append(self.forward_graph.value(value.id))
        self.has_gradient = [value is not None for value in gradients]
        self.device = device
        wanted = [value for value in gradients if value is not None]
        self.program = _compile(part, wanted, device) if wanted else None

    def forget_trace(self) -> None:
        """Programs need no graphs once they are compiled."""
        del self.forward_graph, self.kept

    def record(self, name: str, inputs: list[Any], outputs: list[Any], kept: list[Any]) -> Any:
        sources = [*(inputs[i] for i in self.places), *self.variables]
        return _core.record_function(f"jit({name})", sources, outputs, self._gradient_of(kept))

    def _gradient_of(self, kept: list[Any]) -> Callable[[list[Any]], list[Any]]:
        def gradient(upstream: list[Any]) -> list[Any]:
            if self.program is None:
                return [None] * len(self.has_gradient)
            given = {"kept": kept, "gradient": [self._filled(i, g) for i, g in enumerate(upstream)]}
            results = iter(self.program.call([given[kind][i] for kind, i in self.sources]))
            return [next(results) if has else None for has in self.has_gradient]

        return gradient

    def _filled(self, place: int, gradient: Any) -> Any:
        shape, dtype = self.outputs[place]
        return _core.zeros(shape, dtype, self.device) if gradient is None else gradient


def _is_output(y: Any) -> bool:
    return dispatch.is_tensor(y) or dispatch.is_array_like(y)


def _compile(graph: Any, outputs: list[Any], device: str) -> Any:
    return _core.Program.compile(
        graph,
        outputs,
        device,
        allow_tf32=config.tf32(),
        is_function=True,
        autotune=config.autotune(),
    )
