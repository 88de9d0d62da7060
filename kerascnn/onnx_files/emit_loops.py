"""Emitters of loops and choices, and of recurrent layers."""

from __future__ import annotations

from typing import Any

import numpy as np

from kerascnn.onnx_files.emitter import Emitter, emits
from kerascnn.recordings.recording import Call, Program


class Body:
    """The graph of a body, with what it takes from around.

    Args:
        emitter: Writes the graph around.
        program: The body.
        given: For each of its inputs a value of the graph around, or the name and shape of an input
            of the graph that is written.
    """

    def __init__(self, emitter: Emitter, program: Program, given: list[int | str]) -> None:
        self.emitter = e = emitter.inner(program)
        e._call = emitter._call
        for inner, outer in zip(program.inputs, given, strict=True):
            if inner < 0:
                continue
            if isinstance(outer, str):
                e.put(inner, outer)
                continue
            array = emitter.array(outer)
            if array is not None:
                e.take_array(inner, array)
            e.put(inner, emitter.plain(outer))
        e.run()
        e._call = emitter._call
        self.outputs = [
            e.node("Identity", [e.plain(e.program.resolve(v))]) for v in program.outputs
        ]

    def info(self, name: str, value: int) -> Any:
        """The description of an output."""
        e = self.emitter
        kind = e.file.element_type(e.dtype(value))
        return e.file.onnx.helper.make_tensor_value_info(name, kind, None)

    def graph(self, inputs: list[Any], outputs: list[str], program: Program) -> Any:
        """The graph as ONNX wants it for an attribute."""
        infos = [self.info(n, v) for n, v in zip(outputs, program.outputs, strict=False)]
        name = self.emitter.file.name("body")
        return self.emitter.file.onnx.helper.make_graph(self.emitter.nodes, name, inputs, infos)


@emits("loop")
def _loop(e: Emitter, call: Call) -> None:
    a = call.attributes
    body = a["bodies"][0]
    if a["counted"]:
        raise e.error("the number of its steps is a gradient's. Export a model without gradients.")
    carries = call.inputs[: a["carries"]]
    slices = call.inputs[a["carries"] : a["carries"] + a["slices"]]
    others = call.inputs[a["carries"] + a["slices"] :]
    stacks = len(body.outputs) - len(carries)
    extra = call.outputs[len(carries) + stacks :]
    if any(v in e.program.users for v in extra):
        raise e.error(
            "the number of steps that it made is wanted, or what it keeps for gradients. Count the "
            "steps in a value that the loop carries."
        )
    if len(a["bodies"]) == 2:
        _while(e, call, carries, others, stacks + len(slices))
        return
    rows = [e.file.name(f"row_{i}") for i in range(len(slices))]
    states = [e.file.name(f"state_{i}") for i in range(len(carries))]
    part = Body(e, body, [*states, *rows, *others])
    inputs = [
        e.file.onnx.helper.make_tensor_value_info(n, e.file.element_type(e.dtype(v)), None)
        for n, v in zip([*states, *rows], [*carries, *slices], strict=True)
    ]
    if not slices:
        _counted(e, call, carries, part, inputs)
        return
    graph = part.graph(inputs, part.outputs, body)
    back = int(a["reverse"])
    names = e.node_with(
        "Scan",
        [e.plain(v) for v in [*carries, *slices]],
        len(carries) + stacks,
        body=graph,
        num_scan_inputs=len(slices),
        scan_input_directions=[back] * len(slices),
        **({"scan_output_directions": [back] * stacks} if stacks else {}),
    )
    for value, name in zip(call.outputs, names, strict=False):
        e.put(value, name)


def _counted(e: Emitter, call: Call, carries: list[int], part: Body, states: list[Any]) -> None:
    """A loop over a number of steps that takes no rows, which a scan would count the steps by."""
    helper, types = e.file.onnx.helper, e.file.onnx.TensorProto
    body = call.attributes["bodies"][0]
    stacks = len(body.outputs) - len(carries)
    if stacks and call.attributes["reverse"]:
        raise e.error("it goes backwards without taking rows, and leaves some.")
    step, going = e.file.name("step"), e.file.name("going")
    inputs = [
        helper.make_tensor_value_info(step, types.INT64, []),
        helper.make_tensor_value_info(going, types.BOOL, []),
        *states,
    ]
    on = part.emitter.node("Identity", [going])
    graph = part.graph(inputs, part.outputs, body)
    graph.output.insert(0, helper.make_tensor_value_info(on, types.BOOL, []))
    starts = [e.scalar(call.attributes["length"]), "", *(e.plain(v) for v in carries)]
    names = e.node_with("Loop", starts, len(carries) + stacks, body=graph)
    for value, name in zip(call.outputs, names, strict=False):
        e.put(value, name)


def _while(e: Emitter, call: Call, carries: list[int], others: list[int], rows: int) -> None:
    """A loop that ends where its condition is false."""
    body, condition = call.attributes["bodies"]
    if rows:
        raise e.error("a loop with a condition takes or leaves rows.")
    kinds = [e.file.element_type(e.dtype(v)) for v in carries]
    helper = e.file.onnx.helper
    # The condition is asked before the first step, and behind each one for the next.
    begin = Body(e, condition, [*carries, *others])
    e.nodes += begin.emitter.nodes
    states = [e.file.name(f"state_{i}") for i in range(len(carries))]
    part = Body(e, body, [*states, *others])
    asked = Body(part.emitter, condition, [*part.outputs, *(_Outside(e, v) for v in others)])
    step, going = e.file.name("step"), e.file.name("going")
    inputs = [
        helper.make_tensor_value_info(step, e.file.onnx.TensorProto.INT64, []),
        helper.make_tensor_value_info(going, e.file.onnx.TensorProto.BOOL, []),
        *(helper.make_tensor_value_info(n, k, None) for n, k in zip(states, kinds, strict=True)),
    ]
    outputs = [
        helper.make_tensor_value_info(asked.outputs[0], e.file.onnx.TensorProto.BOOL, []),
        *(part.info(n, v) for n, v in zip(part.outputs, body.outputs, strict=True)),
    ]
    nodes = part.emitter.nodes + asked.emitter.nodes
    graph = helper.make_graph(nodes, e.file.name("body"), inputs, outputs)
    length = call.attributes["length"]
    limit = "" if length == -1 else e.scalar(length)
    inputs_of_loop = [limit, begin.outputs[0], *(e.plain(v) for v in carries)]
    names = e.node_with("Loop", inputs_of_loop, len(carries), body=graph)
    for value, name in zip(call.outputs, names, strict=False):
        e.put(value, name)


class _Outside(str):
    """The name of a value of a graph around, for a body within a body."""

    def __new__(cls, e: Emitter, value: int) -> _Outside:
        return super().__new__(cls, e.plain(value))


@emits("switch")
def _switch(e: Emitter, call: Call) -> None:
    bodies = call.attributes["bodies"]
    operands: list[int | str] = list(call.inputs[1:])
    index = e.plain(call.inputs[0])
    # The branches are made from the last to the first, each the alternative of the one before.
    branches = []
    for body in bodies:
        part = Body(e, body, operands)
        branches.append((part.emitter.nodes, part.outputs, part.graph([], part.outputs, body)))
    names = _chosen(e, index, 0, [graph for _, _, graph in branches], len(bodies[0].outputs))
    for value, name in zip(call.outputs, names, strict=True):
        e.put(value, name)


def _chosen(e: Emitter, index: str, place: int, graphs: list[Any], count: int) -> list[str]:
    """Names of the outputs of the branch with a number; those outside are the first and last."""
    helper = e.file.onnx.helper
    if len(graphs) == 1:
        # One branch is always taken.
        here = e.node("Equal", [index, index])
        return e.node_with("If", [here], count, then_branch=graphs[0], else_branch=graphs[0])
    otherwise = graphs[1]
    if len(graphs) > 2:
        outside = len(e.nodes)
        names = _chosen(e, index, place + 1, graphs[1:], count)
        nodes, e.nodes[outside:] = e.nodes[outside:], []
        infos = [
            helper.make_tensor_value_info(n, o.type.tensor_type.elem_type, None)
            for n, o in zip(names, graphs[0].output, strict=True)
        ]
        otherwise = helper.make_graph(nodes, e.file.name("branch"), [], infos)
    here = e.node("LessOrEqual", [index, e.number(place, "int32")])
    return e.node_with("If", [here], count, then_branch=graphs[0], else_branch=otherwise)


# ONNX has the gates of an LSTM as input, output, forget, candidate; the core as input, forget,
# candidate, output. Those of a GRU are update, reset, candidate in both.
_LSTM_GATES = (0, 3, 1, 2)
_GRU_GATES = (0, 1, 2)


def _by_gates(e: Emitter, value: int, gates: tuple[int, ...], form: str) -> str:
    """A matrix (rows, gates * units) or a vector as ONNX has it: (1, gates * units, rows)."""
    array = e.array(value)
    if array is None:
        raise e.error(
            "its weights are computed in the model. Use keras.layers.RNN with a cell, which is "
            "exported step by step."
        )
    units = array.shape[-1] // len(gates)
    order = np.concatenate([np.arange(units) + gate * units for gate in gates])
    moved = array[..., order].T[None]
    return e.constant_as(value, moved, form)


def _steps_first(e: Emitter, name: str) -> str:
    return e.node("Transpose", [name], perm=[1, 0, 2])


class _Inputs:
    """What goes into the gates: x W + b, as the core has it, taken apart again where that can be.

    ONNX multiplies by the kernel itself. Where the sums come from a product by a constant kernel,
    this one is given to ONNX; else the kernel is the identity.
    """

    def __init__(self, e: Emitter, value: int, gates: tuple[int, ...]) -> None:
        self._e = e
        self._columns = e.shape(value)[-1]
        found = self._product(value)
        if found is None:
            units = self._columns // len(gates)  # type: ignore[operator]
            order = np.concatenate([np.arange(units) + gate * units for gate in gates])
            kernel = np.eye(self._columns, dtype=e.dtype(value))[order][None]  # type: ignore[arg-type]
            self.kernel = e.file.constant(kernel, "identity")
            self.bias = None
            self.x = e.plain(value)
            return
        x, product = found
        self.kernel = _by_gates(e, product.inputs[1], gates, f"kernel of gates {gates}")
        self.bias = product.inputs[2] if len(product.inputs) > 2 else None
        self.x = e.reshaped(e.plain(x), (*e.shape(value)[:-1], e.shape(x)[-1]))

    def _product(self, value: int) -> tuple[int, Call] | None:
        """The input and the call of the product that a value comes from, through reshapes."""
        producers = self._e.program.producers
        call = producers.get(value)
        while call is not None and call.op == "reshape":
            call = producers.get(call.inputs[0])
        if call is None or call.op != "dense":
            return None
        if call.attributes["activation"] != "linear":
            return None
        if any(self._e.array(v) is None for v in call.inputs[1:]):
            return None
        if self._e.shape(call.outputs[0])[-1] != self._columns:
            return None
        return call.inputs[0], call


def _biases(e: Emitter, inputs: _Inputs, recurrent: Any, gates: tuple[int, ...], size: int) -> str:
    """The biases of inputs and states behind one another, (1, 2 * gates * units)."""
    zeros = np.zeros(size, np.dtype("float32"))
    first = zeros if inputs.bias is None else e.array(inputs.bias)
    second = zeros if recurrent is None else recurrent
    units = size // len(gates)
    order = np.concatenate([np.arange(units) + gate * units for gate in gates])
    both = np.concatenate([first[order], second[order]]).astype(first.dtype)[None]
    return e.file.constant(both, "biases")


@emits("lstm")
def _lstm(e: Emitter, call: Call) -> None:
    _refuse_parts(e, call, 3)
    x, h0, c0, kernel = call.inputs[:4]
    if call.attributes["masked"]:
        _masked(e, call, _lstm_step)
        return
    inputs = _Inputs(e, x, _LSTM_GATES)
    units = e.shape(kernel)[0]
    names = [
        _steps_first(e, inputs.x),
        inputs.kernel,
        _by_gates(e, kernel, _LSTM_GATES, "recurrent kernel"),
        _biases(e, inputs, None, _LSTM_GATES, 4 * units),  # type: ignore[operator]
        "",
        *(e.node("Unsqueeze", [e.plain(v), e.ints([0])]) for v in (h0, c0)),
    ]
    y, h, c = e.node_with("LSTM", names, 3, hidden_size=units, direction=_direction(call))
    _put_states(e, call, y, [h, c])


@emits("gru")
def _gru(e: Emitter, call: Call) -> None:
    _refuse_parts(e, call, 2)
    x, h0, kernel, bias = call.inputs[:4]
    if call.attributes["masked"]:
        _masked(e, call, _gru_step)
        return
    inputs = _Inputs(e, x, _GRU_GATES)
    units = e.shape(kernel)[0]
    recurrent = e.array(bias)
    if recurrent is None:
        raise e.error("its bias is computed in the model.")
    names = [
        _steps_first(e, inputs.x),
        inputs.kernel,
        _by_gates(e, kernel, _GRU_GATES, "recurrent kernel"),
        _biases(e, inputs, recurrent, _GRU_GATES, 3 * units),  # type: ignore[operator]
        "",
        e.node("Unsqueeze", [e.plain(h0), e.ints([0])]),
    ]
    y, h = e.node_with(
        "GRU", names, 2, hidden_size=units, direction=_direction(call), linear_before_reset=1
    )
    _put_states(e, call, y, [h])


def _refuse_parts(e: Emitter, call: Call, known: int) -> None:
    if any(v in e.program.users for v in call.outputs[known:]):
        raise e.error("its gates are wanted, which are kept for gradients only.")


def _direction(call: Call) -> str:
    return "reverse" if call.attributes["reverse"] else "forward"


def _put_states(e: Emitter, call: Call, sequence: str, states: list[str]) -> None:
    for value, name in zip(call.outputs, states, strict=False):
        if value in e.program.users:
            e.put(value, e.node("Squeeze", [name, e.ints([0])]))
    outputs = call.outputs[len(states)]
    if outputs in e.program.users:
        steps = e.node("Squeeze", [sequence, e.ints([1])])
        e.put(outputs, _steps_first(e, steps))


def _lstm_step(e: Emitter, call: Call, row: str, states: list[str]) -> list[str]:
    h, c = states
    sums = e.node("Add", [row, e.node("MatMul", [h, e.plain(call.inputs[3])])])
    i, f, candidate, o = e.node_with("Split", [sums], 4, axis=-1, num_outputs=4)
    kept = e.node("Mul", [e.node("Sigmoid", [f]), c])
    added = e.node("Mul", [e.node("Sigmoid", [i]), e.node("Tanh", [candidate])])
    c = e.node("Add", [kept, added])
    return [e.node("Mul", [e.node("Sigmoid", [o]), e.node("Tanh", [c])]), c]


def _gru_step(e: Emitter, call: Call, row: str, states: list[str]) -> list[str]:
    (h,) = states
    product = e.node("MatMul", [h, e.plain(call.inputs[2])])
    sums = e.node("Add", [product, e.plain(call.inputs[3])])
    from_x = e.node_with("Split", [row], 3, axis=-1, num_outputs=3)
    from_h = e.node_with("Split", [sums], 3, axis=-1, num_outputs=3)
    z, r = (e.node("Sigmoid", [e.node("Add", [from_x[k], from_h[k]])]) for k in range(2))
    candidate = e.node("Tanh", [e.node("Add", [from_x[2], e.node("Mul", [r, from_h[2]])])])
    apart = e.node("Sub", [h, candidate])
    return [e.node("Add", [candidate, e.node("Mul", [z, apart])])]


def _masked(e: Emitter, call: Call, step: Any) -> None:
    """A scan over the steps; where the mask is false, the states stay as they are."""
    first = call.inputs[1:3] if step is _lstm_step else call.inputs[1:2]
    kind = e.file.element_type(e.dtype(first[0]))
    helper, boolean = e.file.onnx.helper, e.file.onnx.TensorProto.BOOL
    row, counts = e.file.name("row"), e.file.name("counts")
    states = [e.file.name(f"state_{i}") for i in range(len(first))]
    sequences = [
        _steps_first(e, e.plain(call.inputs[0])),
        e.node("Transpose", [e.plain(call.inputs[4])], perm=[1, 0]),
    ]
    starts = [e.plain(v) for v in first]
    for value in call.inputs[2:4]:
        e.plain(value)  # what the body reads is written before it
    outside, e.nodes = e.nodes, []
    wide = e.node("Unsqueeze", [counts, e.ints([1])])
    after = step(e, call, row, states)
    after = [e.node("Where", [wide, a, b]) for a, b in zip(after, states, strict=True)]
    output = e.node("Identity", [after[0]])
    nodes, e.nodes = e.nodes, outside
    infos = [helper.make_tensor_value_info(n, kind, None) for n in (*states, row)]
    infos.append(helper.make_tensor_value_info(counts, boolean, None))
    results = [helper.make_tensor_value_info(n, kind, None) for n in (*after, output)]
    back = int(call.attributes["reverse"])
    *lasts, stack = e.node_with(
        "Scan",
        [*starts, *sequences],
        len(first) + 1,
        body=helper.make_graph(nodes, e.file.name("body"), infos, results),
        num_scan_inputs=2,
        scan_input_directions=[back, back],
        scan_output_directions=[back],
    )
    for value, name in zip(call.outputs, lasts, strict=False):
        e.put(value, name)
    e.put(call.outputs[len(first)], _steps_first(e, stack))
