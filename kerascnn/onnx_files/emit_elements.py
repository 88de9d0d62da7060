"""Emitters of ops on single elements, which keep the layout of what they take."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from kerascnn.onnx_files.emitter import FIRST, PLAIN, REFUSED, Emitter, dtype_here, emits
from kerascnn.recordings.recording import Call

# What one node of ONNX computes: the op, and its attributes from those of the call.
_NODES: dict[str, str] = {
    "add": "Add",
    "subtract": "Sub",
    "multiply": "Mul",
    "divide": "Div",
    "power": "Pow",
    "maximum": "Max",
    "minimum": "Min",
    "less": "Less",
    "less_equal": "LessOrEqual",
    "greater": "Greater",
    "greater_equal": "GreaterOrEqual",
    "equal": "Equal",
    "negative": "Neg",
    "absolute": "Abs",
    "sign": "Sign",
    "reciprocal": "Reciprocal",
    "sqrt": "Sqrt",
    "exp": "Exp",
    "log": "Log",
    "floor": "Floor",
    "ceil": "Ceil",
    "round": "Round",
    "sigmoid": "Sigmoid",
    "tanh": "Tanh",
    "softplus": "Softplus",
    "relu": "Relu",
    "sin": "Sin",
    "cos": "Cos",
    "tan": "Tan",
    "arcsin": "Asin",
    "arccos": "Acos",
    "arctan": "Atan",
    "sinh": "Sinh",
    "cosh": "Cosh",
    "arcsinh": "Asinh",
    "arccosh": "Acosh",
    "arctanh": "Atanh",
    "erf": "Erf",
    "bitwise_and": "BitwiseAnd",
    "bitwise_or": "BitwiseOr",
    "bitwise_xor": "BitwiseXor",
}
_COMPARISONS = ("less", "less_equal", "greater", "greater_equal", "equal", "not_equal")
_LOGIC = {"logical_and": "And", "logical_or": "Or"}

REFUSED["erfinv"] = "ONNX has no inverse of erf. Compute it outside of the model."
for _name in ("left_shift", "right_shift"):
    REFUSED[_name] = (
        "ONNX shifts unsigned numbers only. Multiply or divide by a power of two instead."
    )


class Operands:
    """Takes the operands of a call in one layout, and puts the result in the same.

    Args:
        emitter: Writes the graph.
        call: A call whose output has the shape that its inputs broadcast to.
    """

    def __init__(self, emitter: Emitter, call: Call) -> None:
        self._emitter, self._output = emitter, call.outputs[0]
        rank = emitter.rank(self._output)
        whole = [v for v in call.inputs if emitter.array(v) is None and emitter.rank(v) == rank]
        first = sum(FIRST in emitter.forms(v) and PLAIN not in emitter.forms(v) for v in whole)
        plain = sum(FIRST not in emitter.forms(v) for v in whole)
        self.layout = FIRST if rank > 2 and first > 0 and first >= plain else PLAIN
        if self.layout is FIRST:
            self.names = [emitter.first(v, rank) for v in call.inputs]
        else:
            self.names = [emitter.plain(v) for v in call.inputs]

    def put(self, name: str) -> None:
        """Notes the result."""
        self._emitter.put(self._output, name, self.layout)


Formula = Callable[[Emitter, Call, list[str]], str]
_FORMULAS: dict[str, Formula] = {}


def _formula(*ops: str) -> Callable[[Formula], Formula]:
    def register(function: Formula) -> Formula:
        for op in ops:
            _FORMULAS[op] = function

            @emits(op)
            def emit(e: Emitter, call: Call) -> None:
                operands = Operands(e, call)
                operands.put(_FORMULAS[call.op](e, call, operands.names))

        return function

    return register


def _node(e: Emitter, call: Call, names: list[str]) -> str:
    dtype = e.dtype(call.inputs[0])
    if call.op in _COMPARISONS and dtype in ("bool", "int8", "int16", "uint8"):
        # Runtimes compare the usual numbers only.
        names = [e.node("Cast", [n], to=e.file.element_type("int32")) for n in names]
    return e.node(_NODES[call.op], names)


_formula(*_NODES)(_node)


@_formula("not_equal")
def _not_equal(e: Emitter, call: Call, names: list[str]) -> str:
    return e.node("Not", [_node(e, call._replace(op="equal"), names)])


def truth(e: Emitter, value: int, name: str) -> str:
    """The name of a condition as booleans."""
    if e.dtype(value) == "bool":
        return name
    return e.node("Cast", [name], to=e.file.element_type("bool"))


@_formula("logical_and", "logical_or")
def _logic(e: Emitter, call: Call, names: list[str]) -> str:
    both = [truth(e, v, n) for v, n in zip(call.inputs, names, strict=True)]
    return e.node(_LOGIC[call.op], both)


@_formula("logical_not")
def _logical_not(e: Emitter, call: Call, names: list[str]) -> str:
    return e.node("Not", [truth(e, call.inputs[0], names[0])])


@_formula("where")
def _where(e: Emitter, call: Call, names: list[str]) -> str:
    return e.node("Where", [truth(e, call.inputs[0], names[0]), *names[1:]])


@_formula("cast")
def _cast(e: Emitter, call: Call, names: list[str]) -> str:
    target = dtype_here(call.attributes["dtype"])
    if target == e.dtype(call.inputs[0]):
        return names[0]
    return e.node("Cast", names, to=e.file.element_type(target))


@_formula("square")
def _square(e: Emitter, _: Call, names: list[str]) -> str:
    return e.node("Mul", names * 2)


@_formula("rsqrt")
def _rsqrt(e: Emitter, _: Call, names: list[str]) -> str:
    return e.node("Reciprocal", [e.node("Sqrt", names)])


def _with_number(e: Emitter, op: str, a: str, b: float, call: Call) -> str:
    return e.node(op, [a, e.number(b, e.dtype(call.inputs[0]))])


@_formula("log1p")
def _log1p(e: Emitter, call: Call, names: list[str]) -> str:
    """log(u) x / (u - 1) with u = 1 + x, which is as exact as log1p is, and x where u is 1.

    Source: W. Kahan, in: N. Higham, Accuracy and Stability of Numerical Algorithms, problem 1.5.
    """
    u = _with_number(e, "Add", names[0], 1.0, call)
    rest = _with_number(e, "Sub", u, 1.0, call)
    tiny = e.node("Equal", [rest, e.number(0.0, e.dtype(call.inputs[0]))])
    one = e.number(1.0, e.dtype(call.inputs[0]))
    share = e.node("Div", [names[0], e.node("Where", [tiny, one, rest])])
    # At infinity the quotient is no number.
    far = e.node("IsInf", [u])
    scaled = e.node("Where", [far, u, e.node("Mul", [e.node("Log", [u]), share])])
    return e.node("Where", [tiny, names[0], scaled])


@_formula("expm1")
def _expm1(e: Emitter, call: Call, names: list[str]) -> str:
    """2 sinh(x / 2) exp(x / 2), which loses nothing near 0."""
    half = _with_number(e, "Mul", names[0], 0.5, call)
    twice = _with_number(e, "Mul", e.node("Sinh", [half]), 2.0, call)
    return e.node("Mul", [twice, e.node("Exp", [half])])


@_formula("erfc")
def _erfc(e: Emitter, call: Call, names: list[str]) -> str:
    return e.node("Sub", [e.number(1.0, e.dtype(call.inputs[0])), e.node("Erf", names)])


@_formula("isfinite")
def _isfinite(e: Emitter, call: Call, names: list[str]) -> str:
    if np.dtype(e.dtype(call.inputs[0])).kind != "f":
        return e.node("Equal", [names[0], names[0]])
    zero = e.number(0.0, e.dtype(call.inputs[0]))
    # The product is 0, but for infinities and what is no number.
    return e.node("Equal", [e.node("Mul", [names[0], zero]), zero])


@_formula("clip")
def _clip(e: Emitter, call: Call, names: list[str]) -> str:
    dtype = e.dtype(call.inputs[0])
    limits = []
    for key in ("min", "max"):
        limit = call.attributes[key]
        if np.dtype(dtype).kind != "f":
            info = np.iinfo(dtype)
            rounded = math.inf if limit == math.inf else limit
            limit = int(min(max(rounded, info.min), info.max))
        limits.append(e.number(limit, dtype))
    # Max and Min take every dtype that numbers may have here.
    return e.node("Min", [e.node("Max", [names[0], limits[0]]), limits[1]])


@_formula("leaky_relu")
def _leaky_relu(e: Emitter, call: Call, names: list[str]) -> str:
    return e.node("LeakyRelu", names, alpha=float(call.attributes["negative_slope"]))


@_formula("elu")
def _elu(e: Emitter, call: Call, names: list[str]) -> str:
    return e.node("Elu", names, alpha=float(call.attributes["alpha"]))


@_formula("clipped_relu")
def _clipped_relu(e: Emitter, call: Call, names: list[str]) -> str:
    dtype = e.dtype(call.inputs[0])
    limits = [e.number(0.0, dtype), e.number(call.attributes["max_value"], dtype)]
    return e.node("Clip", [names[0], *limits])


@_formula("silu")
def _silu(e: Emitter, _: Call, names: list[str]) -> str:
    return e.node("Mul", [names[0], e.node("Sigmoid", names)])


@_formula("gelu")
def _gelu(e: Emitter, call: Call, names: list[str]) -> str:
    x = names[0]
    if call.attributes["approximate"]:
        cube = e.node("Mul", [x, e.node("Mul", [x, x])])
        inner = e.node("Add", [x, _with_number(e, "Mul", cube, 0.044715, call)])
        inner = _with_number(e, "Mul", inner, math.sqrt(2 / math.pi), call)
        share = e.node("Tanh", [inner])
    else:
        share = e.node("Erf", [_with_number(e, "Mul", x, math.sqrt(0.5), call)])
    half = _with_number(e, "Mul", x, 0.5, call)
    return e.node("Mul", [half, _with_number(e, "Add", share, 1.0, call)])


def _rest(e: Emitter, call: Call, names: list[str]) -> list[str]:
    """What a division leaves over, and whether its sign is not the divisor's."""
    rest = e.node("Mod", names, fmod=1)
    zero = e.number(0.0, e.dtype(call.inputs[0]))
    signs = [e.node("Less", [n, zero]) for n in (rest, names[1])]
    some = e.node("Not", [e.node("Equal", [rest, zero])])
    return [rest, e.node("And", [some, e.node("Xor", signs)])]


@_formula("mod")
def _mod(e: Emitter, call: Call, names: list[str]) -> str:
    if np.dtype(e.dtype(call.inputs[0])).kind != "f":
        return e.node("Mod", [names[0], _divisor(e, call, names[1])])
    rest, other = _rest(e, call, names)
    return e.node("Where", [other, e.node("Add", [rest, names[1]]), rest])


def _divisor(e: Emitter, call: Call, name: str) -> str:
    """An integer divisor with 1 for what processors trap at: 0, and -1 of the smallest number."""
    dtype = e.dtype(call.inputs[0])
    one = e.number(1, dtype)
    for trap in (0, -1) if np.dtype(dtype).kind == "i" else (0,):
        name = e.node("Where", [e.node("Equal", [name, e.number(trap, dtype)]), one, name])
    return name


@_formula("floor_divide")
def _floor_divide(e: Emitter, call: Call, names: list[str]) -> str:
    a, b = names
    dtype = e.dtype(call.inputs[0])
    if np.dtype(dtype).kind == "f":
        over, other = _rest(e, call, names)
        quotient = e.node("Div", [e.node("Sub", [a, over]), b])
        less = e.node("Sub", [quotient, e.number(1.0, dtype)])
        whole = e.node("Round", [e.node("Where", [other, less, quotient])])
        # A division by 0 leaves nothing over that is a number.
        by_zero = e.node("Equal", [b, e.number(0.0, dtype)])
        return e.node("Where", [by_zero, e.node("Div", [a, b]), whole])
    rest = e.node("Sub", [a, _mod(e, call, names)])
    quotient = e.node("Div", [rest, _divisor(e, call, b)])
    zero = e.number(0, dtype)
    quotient = e.node("Where", [e.node("Equal", [b, zero]), zero, quotient])
    if np.dtype(dtype).kind == "u":
        return quotient
    minus = e.node("Equal", [b, e.number(-1, dtype)])
    return e.node("Where", [minus, e.node("Sub", [zero, a]), quotient])


@_formula("arctan2")
def _arctan2(e: Emitter, call: Call, names: list[str]) -> str:
    y, x = names
    dtype = e.dtype(call.inputs[0])
    zero, pi, minus_pi = (e.number(n, dtype) for n in (0.0, math.pi, -math.pi))
    angle = e.node("Atan", [e.node("Div", [y, x])])  # a quotient by 0 is infinite, which is right
    turn = e.node("Where", [e.node("Less", [y, zero]), minus_pi, pi])
    turn = e.node("Where", [e.node("Less", [x, zero]), turn, zero])
    turned = e.node("Add", [angle, turn])
    none = e.node("And", [e.node("Equal", [y, zero]), e.node("GreaterOrEqual", [x, zero])])
    return e.node("Where", [none, y, turned])


def activate(e: Emitter, call: Call, value: int, name: str, layout: str) -> str:
    """The activation that a product or a convolution ends with."""
    kind = call.attributes.get("activation", "linear")
    if kind == "linear":
        return name
    parameters = {"leaky_relu": "negative_slope", "clipped_relu": "max_value", "elu": "alpha"}
    key = parameters.get(kind, "approximate")
    attributes: dict[str, Any] = {key: call.attributes["activation_alpha"]}
    made = Call(kind, attributes, [value], [value], call.layer)
    return _FORMULAS[kind](e, made, [name])


def passes_on(e: Emitter, call: Call) -> None:
    """For ops whose output is their input."""
    for layout, name in e.forms(call.inputs[0]).items():
        e.put(call.outputs[0], name, layout)
    if not e.forms(call.outputs[0]):
        e.put(call.outputs[0], e.plain(call.inputs[0]))


emits("stop_gradient", "barrier")(passes_on)
