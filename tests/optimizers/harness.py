"""Runs the same steps with kerascnn, at once or compiled, and with Keras."""

import numpy as np

import kerascnn as keras
from kerascnn import _core
from kerascnn.tracing import Trace

SHAPES = {"kernel": (4, 3), "bias": (3,), "scale": (), "filters": (2, 2, 2, 3), "embedding": (3, 5)}
STEPS = 20


def draw(seed, shapes=None, steps=STEPS):
    """Returns the first weights by name, and a list of gradients for each step."""
    shapes = SHAPES if shapes is None else shapes
    rng = np.random.default_rng(seed)
    weights = {n: rng.normal(size=s).astype("float32") for n, s in shapes.items()}
    gradients = [
        [rng.normal(size=s).astype("float32") for s in shapes.values()] for _ in range(steps)
    ]
    return weights, gradients


def run(optimizer, weights, gradients, device="cpu", compiled=False, constraint=None):
    """Returns the weights after all steps as arrays; the optimizer keeps its state."""
    variables = [keras.Variable(w, name=name, device_name=device) for name, w in weights.items()]
    for variable in variables:
        variable.constraint = constraint
    if not compiled:
        for of_step in gradients:
            optimizer.apply(of_step, variables)
        return [v.numpy() for v in variables]
    with keras.device(device), Trace(device) as trace:
        inputs = [
            trace.graph.input(f"gradient_{i}", list(v.shape), "float32")
            for i, v in enumerate(variables)
        ]
        optimizer.apply(inputs, variables)
    program = _core.Program.compile(trace.graph, [], device, allow_tf32=False)
    for of_step in gradients:
        program.run([_core.from_numpy(g, device) for g in of_step], 1)
    return [v.numpy() for v in variables]


def run_keras(other, optimizer, weights, gradients, constraint=None):
    """Returns what Keras computes by the same steps."""
    variables = [other.Variable(w, name=name) for name, w in weights.items()]
    for variable in variables:
        variable.constraint = constraint
    for of_step in gradients:
        optimizer.apply([other.ops.convert_to_tensor(g) for g in of_step], variables)
    return [other.ops.convert_to_numpy(v) for v in variables]
