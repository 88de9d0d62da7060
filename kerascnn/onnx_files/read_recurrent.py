"""Readers of recurrent ops: they become layers."""

from __future__ import annotations

from typing import Any

import numpy as np

from kerascnn import layers, ops
from kerascnn.onnx_files.importer import Node, Value
from kerascnn.onnx_files.read_layers import reads

# Gates as the layers have them, by their places in ONNX: input, output, forget, candidate of an
# LSTM become input, forget, candidate, output; those of a GRU are update, reset, candidate in both.
_GATES = {"LSTM": (0, 2, 3, 1), "GRU": (0, 1, 2)}


def _by_gates(array: Any, gates: tuple[int, ...]) -> Any:
    """Rows of gates as columns in the layers' order."""
    parts = np.split(array, len(gates), axis=0)
    return np.concatenate([parts[i] for i in gates], axis=0).T


@reads("LSTM", "GRU")
def _recurrent(node: Node) -> list[Any]:
    x, units, gates = node.value(0), node.whole("hidden_size", 0), _GATES[node.op]
    direction = node.text("direction", "forward")
    two = direction == "bidirectional"
    kernel, recurrent = node.constant(1), node.constant(2)
    rows = len(gates) * units
    fits = kernel.ndim == 3 and recurrent.ndim == 3 and units > 0 and x.rank == 3
    if not fits or kernel.shape[1:] != (rows, x.shape[2]) or recurrent.shape[1:] != (rows, units):
        raise node.error(f"kernels of {kernel.shape} and {recurrent.shape} do not fit {x.shape}.")
    if direction not in ("forward", "reverse", "bidirectional") or len(kernel) != 1 + two:
        raise node.error(f"direction={direction!r} does not fit {len(kernel)} kernels.")
    if len(recurrent) != 1 + two:
        raise node.error(f"direction={direction!r} does not fit {len(recurrent)} kernels.")
    _refuse(node)
    states = [_first_state(node, i) for i in (5, 6) if node.op == "LSTM" or i == 5]
    bias = node.constant(3) if node.has_input(3) else np.zeros((1 + two, 2 * rows), kernel.dtype)
    if bias.shape != (1 + two, 2 * rows):
        raise node.error(f"a bias of {bias.shape} does not fit {units} units.")
    results = []
    inputs = ops.transpose(x.plain, (1, 0, 2))
    for place in range(1 + two):
        weights = [_by_gates(kernel[place], gates), _by_gates(recurrent[place], gates)]
        both = [_by_gates(half[:, None], gates)[0] for half in np.split(bias[place], 2)]
        weights.append(both[0] + both[1] if node.op == "LSTM" else np.stack(both))
        back = direction == "reverse" or place == 1
        given = [s.plain[place] for s in states if s is not None]
        results.append(_run(node, units, back, inputs, weights, given))
    sequences = ops.transpose(ops.stack([r[0] for r in results], 1), (2, 1, 0, 3))
    lasts = [ops.stack([r[i] for r in results], 0) for i in range(1, len(results[0]))]
    return [Value(plain=sequences), *(Value(plain=last) for last in lasts)]


def _run(
    node: Node, units: int, back: bool, x: Any, weights: list[Any], states: list[Any]
) -> list[Any]:
    """One direction: the states of all steps, in the order of time, and the last ones."""
    kind = layers.LSTM if node.op == "LSTM" else layers.GRU
    options = {} if node.op == "LSTM" else {"reset_after": True}
    layer = kind(
        units,
        return_sequences=True,
        return_state=True,
        go_backwards=back,
        name=node.importer.name(node.name),
        **options,
    )
    result = list(layer(x, initial_state=states or None))
    shapes = [tuple(w.shape) for w in layer.weights]
    if shapes != [w.shape for w in weights]:
        raise node.error(f"its weights do not have the shapes {shapes}.")
    node.importer.weights.append((layer, weights))
    if back:
        result[0] = ops.flip(result[0], 1)
    return result


def _refuse(node: Node) -> None:
    """Refuses what the layers do not compute."""
    usual = ["Sigmoid", "Tanh", "Tanh"] if node.op == "LSTM" else ["Sigmoid", "Tanh"]
    for name in ("activations", "activation_alpha", "activation_beta", "clip"):
        if node.has(name) and (name != "activations" or node.texts(name) not in (usual, usual * 2)):
            raise node.error(f"the attribute '{name}' is not known.")
    node.only(layout=0, input_forget=0)
    if node.op == "GRU" and node.whole("linear_before_reset", 0) != 1:
        raise node.error("linear_before_reset=0 is not known.")
    for place in (4, 7):
        if node.has_input(place):
            raise node.error(f"its input {place} (lengths or peepholes) is not known.")


def _first_state(node: Node, place: int) -> Value | None:
    """A first state, None where it is 0."""
    if not node.has_input(place):
        return None
    given = node.input(place)
    if isinstance(given, Value):
        return None if given.zero else given
    if given.any():
        raise node.error("a first state that is a constant other than 0 is not known.")
    return None
