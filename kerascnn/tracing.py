"""Recording what `kerascnn.ops` are asked for, in place of doing it.

Inside `with Trace() as trace:` every op call becomes a node of `trace.graph`; variables are read
and assigned through the graph. What is recorded is compiled by `kerascnn._core.Program`.
"""

from __future__ import annotations

import contextlib
import contextvars
from collections.abc import Iterator
from types import TracebackType
from typing import TYPE_CHECKING, Any

from kerascnn import _core, dtypes
from kerascnn.device import current as current_device
from kerascnn.trace_tape import TraceTape

if TYPE_CHECKING:
    from kerascnn.variable import Variable

_current: contextvars.ContextVar[Trace | None] = contextvars.ContextVar("trace", default=None)

# This numbers the draws of a step that runs eagerly, batch by batch.
_step_streams: contextvars.ContextVar[Streams | None] = contextvars.ContextVar(
    "step_streams", default=None
)

_NOTHING: contextlib.AbstractContextManager[None] = contextlib.nullcontext()


class Streams:
    """Numbers the draws of one step: its generators stand still, and each draw has a stream.

    A step that is traced and one that runs at once so draw the same numbers.
    """

    def __init__(self) -> None:
        self._streams: dict[int, tuple[Variable, int]] = {}

    @contextlib.contextmanager
    def drawing_from(self, streams: dict[int, tuple[Variable, int]]) -> Iterator[None]:
        """A block whose draws get the numbers that began with `streams` before."""
        after, self._streams = self._streams, dict(streams)
        try:
            yield
        finally:
            self._streams = after

    def streams(self) -> dict[int, tuple[Variable, int]]:
        """Returns how many streams of each generator are taken."""
        return dict(self._streams)

    def next_stream(self, state: Variable) -> int:
        """Returns a stream number of this generator that no other draw of the step has."""
        stream = self._streams.get(id(state), (state, 0))[1]
        self._streams[id(state)] = (state, stream + 1)
        return stream


class Trace(Streams):
    """A graph that records, and the state of the random numbers drawn in it.

    Args:
        device_name: Where the program will run, by default the current device. Random generators
            keep their state there.
        scratch: Whether this is only to learn shapes, and never compiled.

    Example:

    >>> from kerascnn import ops, _core
    >>> from kerascnn.tracing import Trace
    >>> with Trace("cpu") as trace:
    ...     x = trace.graph.input("x", [2], "float32")
    ...     y = ops.exp(x) + 1.0
    >>> program = _core.Program.compile(trace.graph, [y], "cpu")
    >>> program.run([ops.zeros((2,))])
    >>> program.outputs()[0].numpy()
    array([2., 2.], dtype=float32)
    """

    def __init__(self, device_name: str | None = None, scratch: bool = False) -> None:
        super().__init__()
        self.graph: Any = _core.Graph()
        self.device = current_device() if device_name is None else device_name
        self.scratch = scratch
        self._tokens: list[contextvars.Token[Trace | None]] = []
        self._constants: dict[int, tuple[Any, Any]] = {}
        self._outer: Trace | None = None
        self._bodies: list[Any] = []  # the graphs of inner traces
        # Values that softmax and sigmoid gave, by their numbers: no logits, as losses may be told.
        self.probabilities: dict[int, str] = {}
        self._sources: dict[Any, Any] = {}  # in a body: what gradients by each variable reach
        # In a body, these are the losses that layers add: the layer's list, and what it contains.
        self.losses: list[tuple[list[Any], Any]] = []
        self.tapes: list[TraceTape] = []  # the tapes that record, in the order in which they began
        # This tape records the whole step, for gradients that need no user's tape.
        self.whole = TraceTape(self, persistent=True, watches=_is_floating)
        self.whole.start()

    def keep_origin(self, value: Any, converted: Any) -> None:
        """Lets a value be known as what softmax or sigmoid gave after a cast as well."""
        if isinstance(value, _core.Value) and value.id in self.probabilities:
            self.probabilities[converted.id] = self.probabilities[value.id]

    @contextlib.contextmanager
    def inside(self) -> Iterator[Trace]:
        """A block that is recorded in a graph of its own, as the body of a loop or a branch.

        It may read the values and variables of this trace. Draws in it have stream numbers that
        nothing else has, and move their generators on at its end: run again with the state that it
        leaves, it draws other numbers.
        """
        trace = Trace(self.device, self.scratch)
        trace.graph = _core.Graph(self.graph)
        trace._outer = self
        trace._streams = dict(self._streams)
        with trace:
            yield trace

    def read(self, variable: Variable) -> Any:
        """Reads a variable at this point of the trace, as a new value that tapes know."""
        core = variable.core
        value = self.graph.reading(core) if self._outer is None else self._read_in_body(variable)
        for tape in self.tapes:
            tape.note(core, value)
        return value

    def _read_in_body(self, variable: Variable) -> Any:
        """Returns what the body is given, or what it has assigned.

        The gradient of either goes to the reading around the node, and not through an assignment,
        this step's or an earlier one's.
        """
        core = variable.core
        if core not in self._sources:
            outer: Any = self._outer
            with resumed(outer):
                before = variable._stored()
            if isinstance(before, _core.Tensor):
                before = outer.constant(before)
            before = outer.graph.inside(before)
            if not self.graph.knows(core):
                self.graph.bind(core, before.id)
            self._sources[core] = self.graph.inside(before)
        return self.leads_to(self._sources[core], self.graph.read(core))

    def leads_to(self, source: Any, value: Any) -> Any:
        """Returns a new value equal to this one, with the gradient of `source`."""
        if not dtypes.is_float(value.dtype):
            return value
        return self.graph.with_own_gradient([source], [value], _as_it_is)[0]

    @property
    def is_body(self) -> bool:
        """Tells whether this is the trace of a loop's body or of a branch."""
        return self._outer is not None

    def is_body_of(self, outer: Trace | None) -> bool:
        """Tells whether it is a body in that trace, or in a body there."""
        return self._outer is not None and (self._outer is outer or self._outer.is_body_of(outer))

    def constant(self, tensor: Any) -> Any:
        """Returns a tensor as a value of the graph, the same value for the same tensor."""
        known = self._constants.get(id(tensor))
        if known is None:
            known = self._constants[id(tensor)] = (tensor, self.graph.constant(tensor))
        return known[1]

    def draw(self, state: Variable) -> tuple[Any, int]:
        """Returns the value of a generator's state, and a stream number that is new here."""
        return state._stored(), self.next_stream(state)

    def __enter__(self) -> Trace:
        self._tokens.append(_current.set(self))
        _core.enter_scope()  # from here on, operators of tensors look for a trace
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        _current.reset(self._tokens.pop())
        _core.leave_scope()
        self._constants.clear()
        if self._outer is not None:
            # Until the outermost trace ends, gradients may go through a body.
            self._outer._bodies += [self.graph, *self._bodies]
            if kind is None:
                self._finish_body(self._outer)
            return
        for graph in (self.graph, *self._bodies):
            graph.forget_own_gradients()
        if kind is None:
            self.finish()
        self.tapes.clear()
        del self.whole  # the tape holds the trace

    def _finish_body(self, outer: Trace) -> None:
        with resumed(self):
            for key, (state, stream) in self._streams.items():
                if outer._streams.get(key, (state, 0))[1] != stream:
                    self.graph.assign(state.core, self._advanced(state))
        outer._streams.update(self._streams)

    def _advanced(self, state: Variable) -> Any:
        self.read(state)
        before = self.graph.read(state.core)
        return _dispatch().record(self.graph, "random_advance", [before], {"amount": 1})[0]

    def finish(self) -> None:
        """Moves the generators on: nothing is drawn in this trace any more.

        One step of the program, one step of each generator: the next replay draws fresh numbers.
        """
        self.graph.push_scope("random numbers")
        for state, _ in self._streams.values():
            self.graph.assign(state.core, self._advanced(state))
        self.graph.pop_scope()
        self._streams.clear()


def _dispatch() -> Any:
    from kerascnn.ops import dispatch  # this module imports `tracing`

    return dispatch


def _as_it_is(gradients: list[Any]) -> list[Any]:
    return gradients


def _is_floating(variable: Any) -> bool:
    return dtypes.is_float(variable.dtype)


def current() -> Trace | None:
    """Returns the innermost trace that is recording, or None."""
    return _current.get()


def current_streams() -> Streams | None:
    """Returns what numbers the draws of the step that is recorded or run, or None."""
    return _current.get() or _step_streams.get()


@contextlib.contextmanager
def numbering(streams: Streams, moves_on: bool = True) -> Iterator[None]:
    """A block that runs at once and draws like a recorded step; then its generators advance."""
    token = _step_streams.set(streams)
    try:
        yield
    finally:
        _step_streams.reset(token)
    for state, _ in streams.streams().values() if moves_on else ():
        after = _dispatch().run("random_advance", [state.core.value], {"amount": 1})[0]
        state.core.assign(after)


@contextlib.contextmanager
def resumed(trace: Trace) -> Iterator[None]:
    """A block that is recorded in this trace, whatever else is open: an outer one, or an inner one
    whose gradient is taken.
    """
    token = _current.set(trace)
    _core.enter_scope()
    try:
        yield
    finally:
        _core.leave_scope()
        _current.reset(token)


@contextlib.contextmanager
def suspended() -> Iterator[None]:
    """A block in which ops compute at once though a trace is open, as when weights are made."""
    token = _current.set(None)
    try:
        yield
    finally:
        _current.reset(token)


@contextlib.contextmanager
def scope(name: str, phase: str | None = None) -> Iterator[None]:
    """Names the layer that ops belong to from here on, for errors and profiles.

    Args:
        name: The layer, inside of those whose blocks are open.
        phase: The part of a training step, "forward" or "update"; by default that around.
    """
    trace = _current.get()
    if trace is not None:
        graph = trace.graph
        before = graph.phase
        graph.push_scope(name)
        if phase is not None:
            graph.phase = phase
        try:
            yield
        finally:
            graph.phase = before
            graph.pop_scope()
    elif _core.is_profiling():
        _core.push_eager_scope(name, phase)
        try:
            yield
        finally:
            _core.pop_eager_scope()
    else:
        yield


def part(name: str) -> contextlib.AbstractContextManager[None]:
    """Does what `scope` does for a part that is not a layer, such as the loss."""
    trace = _current.get()
    if trace is None:
        leaves_out = not _core.is_profiling() or _core.in_eager_scope()
    else:
        leaves_out = trace.graph.in_scope
    return _NOTHING if leaves_out else scope(name)


def known_value(value: Any) -> Any:
    """The array that a recorded value always is, being made of constants only; else None.

    So sizes can be put together by functions of `ops`, as in `ops.tile(x, ops.stack([n, 1]))`.
    """
    trace = current()
    if trace is None or value.graph is not trace.graph:
        return None
    part, given, outputs = trace.graph.cut_from(0, [value])
    if given or part.states or outputs[0] is None:
        return None
    program = _core.Program.compile(part, outputs, trace.device, repeats=False)
    with suspended():
        program.run([])
        return program.outputs()[0].numpy()
