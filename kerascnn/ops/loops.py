"""Loops and choices as nodes of a traced step, which own the graphs of their bodies.

A body is traced in a trace inside of the one that records the step. What it reads of the step,
values and variables, becomes its inputs. A variable that it assigns is carried from step to step
like what the caller carries, and so is the state of a generator that it draws from. Losses that
layers add in it (`add_loss`) are results of the node: of a loop, the sum over its steps.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any

from kerascnn import _core, dtypes, tracing, trees
from kerascnn.ops import dispatch
from kerascnn.tracing import Trace
from kerascnn.variable import note_loss, variable_of

# This is the number of an outer value, and how it is read.
_Read = tuple[int, str]


class _Body:
    """A function of values traced as a body.

    Args:
        outer: The trace that records the node.
        function: Takes a list of values and returns a nested result; None in it stays None.
        like: Values that the arguments have the shapes and dtypes of.
    """

    def __init__(
        self, outer: Trace, function: Callable[[list[Any]], Any], like: Sequence[tuple[Any, str]]
    ) -> None:
        with outer.inside() as trace:
            self.trace = trace
            self.graph = trace.graph
            self.arguments = [
                self.graph.input(f"argument_{i}", list(shape), dtype)
                for i, (shape, dtype) in enumerate(like)
            ]
            self.result = function(list(self.arguments))
            # Values of the surrounding trace may be results too.
            self.values = [self._own(y) for y in _present(self.result)]
            self.losses = [
                (held, x, self._own(x)) for held, x in trace.losses if _place(held, x) is not None
            ]

    def _own(self, value: Any) -> Any:
        return self.graph.inside(dispatch.convert(value))

    def discard(self) -> None:
        """Undoes the effects of the recording on layers, since it is recorded again."""
        for held, x, _ in self.losses:
            del held[_place(held, x)]

    def packed(self, values: Sequence[Any]) -> Any:
        """Returns the result with these values in place of its own."""
        items = iter(values)
        return trees.map_structure(lambda y: None if y is None else next(items), self.result)

    def cast(self, place: int, dtype: str) -> None:
        """Gives a value of the result another dtype."""
        with tracing.resumed(self.trace):
            self.values[place] = dispatch.convert(self.values[place], dtype)

    def assigned(self) -> list[tuple[Any, int]]:
        """Returns the variables that it assigns, and the numbers of their values before."""
        return [(core, out) for core, out, first, last in self._states() if first.id != last.id]

    def first(self, core: Any) -> Any:
        """Returns the input for a variable, or None if it neither reads nor assigns it."""
        return next((first for own, _, first, _ in self._states() if own is core), None)

    def last(self, core: Any) -> Any:
        """Returns a variable's value at the end."""
        return next(last for own, _, _, last in self._states() if own is core)

    def reads(self, carried: Sequence[Any]) -> dict[_Read, Any]:
        """What it reads besides its arguments and the variables `carried`, and the inputs that
        stand for that.
        """
        found: dict[_Read, Any] = {(out, "value"): first for out, first in self.graph.captured}
        for core, out, first, _ in self._states():
            if not any(core is other for other in carried):
                found[out, "variable"] = first
        return found

    def _states(self) -> list[Any]:
        return list(self.graph.bound_states)


def _place(held: list[Any], x: Any) -> Any:
    """Returns the index of a loss in the list of a layer, or None if it was cleared."""
    return next((i for i, other in enumerate(held) if other is x), None)


def _hand_on(losses: Sequence[tuple[list[Any], Any, Any]], values: Sequence[Any]) -> None:
    """Replaces the losses of bodies by other losses."""
    for (held, x, _), value in zip(losses, values, strict=True):
        del held[_place(held, x)]
        held.append(value)
        note_loss(held)


def _present(structure: Any) -> list[Any]:
    return [y for y in trees.flatten(structure) if y is not None]


def _kinds(values: Sequence[Any]) -> list[tuple[Any, str]]:
    return [(tuple(x.shape), x.dtype) for x in values]


def is_traced() -> bool:
    """Tells whether loops and choices here become nodes.

    For a GPU they do unless KERASCNN_CUDA_BODIES is 0.
    """
    trace = tracing.current()
    if trace is None:
        return False
    return not trace.device.startswith("cuda") or os.environ.get("KERASCNN_CUDA_BODIES") != "0"


def scan(f: Callable[..., Any], init: Any, xs: Any, length: int, reverse: bool) -> tuple[Any, Any]:
    """Records `ops.scan` of at least one step as a node."""
    from kerascnn.ops import creation

    slices = [] if xs is None else trees.flatten(xs)
    rows = [(tuple(x.shape)[1:], x.dtype) for x in slices]

    def step(values: list[Any]) -> tuple[Any, Any]:
        carry = trees.pack_as(init, values[: len(values) - len(rows)])
        x = None if xs is None else trees.pack_as(xs, values[len(values) - len(rows) :])
        carry, y = f(carry, x)
        return carry, trees.map_structure(creation.zeros_like, carry) if y is None else y

    carries, body = _traced_step("scan", step, trees.flatten(init), rows)
    outputs = _loop(body, None, carries, slices, length, reverse)
    return body.packed(outputs)


def while_loop(
    cond: Callable[..., Any], body: Callable[..., Any], values: tuple[Any, ...], most: int | None
) -> tuple[Any, ...]:
    """Records `ops.while_loop` as a node."""

    def step(flat: list[Any]) -> Any:
        after = body(*trees.pack_as(values, flat))
        return tuple(after) if isinstance(after, (tuple, list)) else (after,)

    def goes_on(flat: list[Any]) -> Any:
        from kerascnn.ops import shaping

        return shaping.reshape(dispatch.convert(cond(*trees.pack_as(values, flat)), "bool"), ())

    carries, traced = _traced_step("while_loop", step, trees.flatten(values), [])
    condition = _Body(_outer(), goes_on, _kinds(carries))
    if condition.assigned():
        raise ValueError(
            "while_loop: the condition assigns variables or draws random numbers; let the body do "
            "that and carry what the condition needs."
        )
    outputs = _loop(traced, condition, carries, [], -1 if most is None else int(most), False)
    return tuple(trees.pack_as(values, outputs))


def switch(index: Any, branches: Sequence[Callable[[], Any]], name: str = "switch") -> Any:
    """Records `ops.switch` and `ops.cond` as a node; `index` is a scalar."""
    outer = _outer()
    traced = [_Body(outer, _of_nothing(branch), []) for branch in branches]
    _match(name, traced)
    cores = _unique([core for body in traced for core, _ in body.assigned()])
    others = list(dict.fromkeys(read for body in traced for read in body.reads(cores)))
    # A variable that one branch assigns has a value in all branches.
    for body in traced:
        with tracing.resumed(body.trace):
            for core in cores:
                _read(core)
    firsts = [_read(core) for core in cores]
    losses = [loss for body in traced for loss in body.losses]
    bodies = []
    for body in traced:
        known = body.reads(cores)
        inputs = [*(body.first(core) for core in cores), *map(known.get, others)]
        outputs = [*body.values, *(body.last(core) for core in cores)]
        outputs += [
            own if own.graph is body.graph else body.graph.full(list(own.shape), own.dtype, 0.0)
            for _, _, own in losses
        ]
        bodies.append(_core.Body(body.graph, inputs, outputs))
    operands = [dispatch.convert(index, "int32"), *firsts]
    operands += [outer.graph.value(out) for out, _ in others]
    outputs = dispatch.record(outer.graph, "switch", operands, {"bodies": bodies})
    count = len(traced[0].values)
    _assign(cores, outputs[count : count + len(cores)])
    _hand_on(losses, outputs[count + len(cores) :])
    return traced[0].packed(outputs)


def _of_nothing(branch: Callable[[], Any]) -> Callable[[list[Any]], Any]:
    return lambda _: branch()


def _outer() -> Trace:
    trace = tracing.current()
    assert trace is not None  # the caller has checked is_traced()
    return trace


def _unique(cores: list[Any]) -> list[Any]:
    return list({id(core): core for core in cores}.values())


def _read(core: Any) -> Any:
    variable = variable_of(core)
    return _outer().graph.read(core) if variable is None else variable._stored()


def _assign(cores: Sequence[Any], values: Sequence[Any]) -> None:
    for core, value in zip(cores, values, strict=False):
        variable = variable_of(core)
        if variable is None:
            _outer().graph.assign(core, value)
        else:
            variable.assign(value)


def _traced_step(
    name: str, step: Callable[[list[Any]], Any], init: list[Any], rows: list[tuple[Any, str]]
) -> tuple[list[Any], _Body]:
    """Traces a step whose carries keep their dtypes: the initial ones are cast to its results'."""
    carries = [dispatch.convert(x) for x in init]
    while True:
        body = _Body(_outer(), step, [*_kinds(carries), *rows])
        if len(body.values) < len(carries):
            raise ValueError(
                f"{name}: the function must return as many carries as it takes: {len(carries)}. "
                f"Received: {body.result!r}"
            )
        wanted = []
        for i, (before, after) in enumerate(zip(carries, body.values, strict=False)):
            if tuple(before.shape) != tuple(after.shape):
                raise ValueError(
                    f"{name}: value {i} that is carried from step to step begins with the shape "
                    f"{tuple(before.shape)}, and a step makes it {tuple(after.shape)}. In a "
                    "compiled function it keeps its shape: begin with one of the shape that it "
                    "will have, for example by ops.broadcast_to."
                )
            wanted.append(dtypes.result_type(before.dtype, after.dtype))
        if wanted == [x.dtype for x in carries]:
            for i, dtype in enumerate(wanted):
                body.cast(i, dtype)
            return carries, body
        body.discard()
        carries = [dispatch.convert(x, dtype) for x, dtype in zip(carries, wanted, strict=True)]


def _loop(
    body: _Body,
    condition: _Body | None,
    carries: list[Any],
    slices: list[Any],
    length: int,
    reverse: bool,
) -> list[Any]:
    """Records the node, and returns the last carries and the stacks."""
    from kerascnn.ops import reduction

    if body.losses and length < 0:
        raise ValueError(
            "while_loop: layers add losses in the body (`add_loss`, an `activity_regularizer`), "
            "for which the number of steps must be limited: give it by `maximum_iterations`."
        )
    outer = _outer()
    assigned = body.assigned()
    cores = [core for core, _ in assigned]
    count = len(carries)
    bodies = [body] if condition is None else [body, condition]
    known = [each.reads(cores) for each in bodies]
    others = list(dict.fromkeys(read for reads in known for read in reads))
    inputs = [*carries, *(outer.graph.value(out) for _, out in assigned), *slices]
    inputs += [outer.graph.value(out) for out, _ in others]
    made = []
    for each, reads in zip(bodies, known, strict=True):
        given = [*each.arguments[:count], *(each.first(core) for core in cores)]
        given += [*each.arguments[count:], *map(reads.get, others)]
        results = each.values
        if each is body:
            lasts = [body.last(core) for core in cores]
            results = [*body.values[:count], *lasts, *body.values[count:]]
            results += [x for _, _, x in body.losses]
        made.append(_core.Body(each.graph, given, results))
    attributes = {
        "bodies": made,
        "length": length,
        "reverse": reverse,
        "counted": False,
        "carries": count + len(cores),
        "slices": len(slices),
    }
    outputs = dispatch.record(outer.graph, "loop", inputs, attributes)
    stacks = count + len(cores)
    _assign(cores, outputs[count:stacks])
    added = outputs[stacks + len(body.values) - count :]
    _hand_on(body.losses, [reduction.sum(rows) for rows in added[: len(body.losses)]])
    return [*outputs[:count], *outputs[stacks:]]


def _match(name: str, branches: list[_Body]) -> None:
    """Gives the results of all branches common dtypes."""
    first = branches[0]
    for body in branches[1:]:
        same = trees.map_structure(lambda _: None, body.result)
        if same != trees.map_structure(lambda _: None, first.result) or len(body.values) != len(
            first.values
        ):
            raise ValueError(
                f"{name}: all branches must return the same structure. Received: "
                f"{first.result!r} and {body.result!r}"
            )
    for place in range(len(first.values)):
        common = dtypes.result_type(*(body.values[place].dtype for body in branches))
        for body in branches:
            body.cast(place, common)
