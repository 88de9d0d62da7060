"""ONNX files as models: `kerascnn.models.from_onnx`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np

from kerascnn.layers import Input
from kerascnn.models.functional import Functional
from kerascnn.onnx_files import folding, read_images, read_ops, read_recurrent, tensors  # noqa: F401
from kerascnn.onnx_files.importer import ImportedError, Importer, Node, Value
from kerascnn.onnx_files.read_layers import READERS
from kerascnn.symbolic.operation import node_of

OPSETS = (13, 23)
_MOST_NODES = 100_000


def supported_ops() -> list[str]:
    """The names of the ops that are read."""
    return sorted({*READERS, *folding.FOLDERS})


def read(path: str | os.PathLike[str]) -> Any:
    """See `kerascnn.models.from_onnx`."""
    path = Path(path)
    proto = tensors.load(path)
    try:
        return _to_model(proto, path.parent, path.stat().st_size)
    except (ImportedError, MemoryError, RecursionError):
        raise
    except (ValueError, TypeError) as error:
        raise ImportedError(f"{path} can't be read as a model: {error}") from error


def _opset(proto: Any) -> int:
    domains = {entry.domain: entry.version for entry in proto.opset_import}
    version = domains.get("", domains.get("ai.onnx"))
    if version is None or not OPSETS[0] <= version <= OPSETS[1]:
        raise ImportedError(
            f"The file is of opset {version}; those from {OPSETS[0]} to {OPSETS[1]} are read. "
            "onnx.version_converter brings it to another one."
        )
    return int(version)


def _to_model(proto: Any, folder: Path, size: int) -> Any:
    graph = proto.graph
    if len(graph.node) > _MOST_NODES:
        raise ImportedError(f"The graph has {len(graph.node)} nodes, more than {_MOST_NODES}.")
    importer = Importer(graph, _opset(proto), folder, size)
    _check_ops(proto)
    initializers = {tensor.name for tensor in graph.initializer}
    inputs = importer.inputs
    for info in graph.input:
        if info.name in initializers:
            continue  # older files list their weights among the inputs
        inputs.append(_input(importer, info))
        importer.values[info.name] = Value(plain=inputs[-1])
    if not inputs:
        raise ImportedError("The graph has no input that is no constant.")
    for node_proto in graph.node:
        _read_node(Node(node_proto, importer))
    outputs = [_output(importer, info.name) for info in graph.output]
    if not outputs:
        raise ImportedError("The graph has no output.")
    name = importer.name(graph.name or "model")
    model = Functional(_alone(inputs), _alone(outputs), name=name)
    for layer, arrays in importer.weights:
        for variable, array in zip(layer.weights, arrays, strict=True):
            variable.assign(np.ascontiguousarray(array).astype(variable.dtype))
    return model


def _alone(values: list[Any]) -> Any:
    return values[0] if len(values) == 1 else values


def _check_ops(proto: Any) -> None:
    """Raises ImportedError that names all ops of a graph that are not known."""
    unknown: dict[str, str] = {}
    for node in proto.graph.node:
        known = node.op_type in READERS or node.op_type in folding.FOLDERS
        if node.domain not in ("", "ai.onnx") or not known:
            name = f"{node.domain}.{node.op_type}" if node.domain else node.op_type
            unknown.setdefault(name[:100], node.name[:100])
    if unknown:
        listed = ", ".join(f"{op} (node '{name}')" for op, name in list(unknown.items())[:20])
        raise ImportedError(
            f"The graph has ops that are not read: {listed}. "
            f"Known are {', '.join(supported_ops())}."
        )


def _input(importer: Importer, info: Any) -> Any:
    kind = info.type.tensor_type
    what = f"The input '{info.name[:200]}'"
    dtype = tensors.dtype_of(kind.elem_type, what)
    sizes: list[int | None] = []
    for axis, dim in enumerate(kind.shape.dim):
        known = dim.HasField("dim_value") and dim.dim_value > 0
        sizes.append(int(dim.dim_value) if known else None)
        if axis == 0 and not known:
            sizes[0] = None
        if known and dim.dim_value > 1 << 31:
            raise ImportedError(f"{what} has {dim.dim_value} elements along axis {axis}.")
    if not kind.HasField("shape") or not sizes or len(sizes) > 32:
        raise ImportedError(f"{what} has no shape with a batch.")
    return Input(batch_shape=sizes, dtype=dtype, name=importer.name(info.name))


def _read_node(node: Node) -> None:
    importer = node.importer
    try:
        found = folding.fold(node)
        results = None if found is None else [found]
        if results is None:
            results = READERS[node.op](node) if node.op in READERS else None
    except ImportedError:
        raise
    except (ValueError, TypeError, LookupError, ArithmeticError) as error:
        raise node.error(str(error)) from error
    if results is None:
        raise node.error("it is known for constants only.")
    for name, result in zip(node.outputs, results, strict=False):
        if name:
            importer.values[name] = result
    for name in node.outputs[len(results) :]:
        if name and importer.users.get(name):
            raise node.error(f"its output '{name[:200]}' is not known.")
    for name in node.inputs:
        importer.free(name)


def _output(importer: Importer, name: str) -> Any:
    value = importer.values.get(name)
    if not isinstance(value, Value):
        what = "is a constant" if isinstance(value, np.ndarray) else "is nowhere computed"
        raise ImportedError(f"The output '{name[:200]}' {what}.")
    try:
        node_of(value.plain)
    except (AttributeError, KeyError, ValueError):
        raise ImportedError(f"The output '{name[:200]}' does not depend on an input.") from None
    return value.plain
