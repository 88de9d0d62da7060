"""Models as ONNX files: `model.export(path, format="onnx")`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from kerascnn import trees
from kerascnn.onnx_files import (  # noqa: F401, these register emitters
    emit_elements,
    emit_loops,
    emit_products,
    emit_shapes,
    emit_windows,
)
from kerascnn.onnx_files.emitter import Emitter, File
from kerascnn.onnx_files.needed import require_onnx
from kerascnn.recordings.recording import ExportError, Recording, record
from kerascnn.recordings.signatures import (
    check_built,
    check_on_device,
    check_stateless,
    signature,
)
from kerascnn.recordings.sizes import Shape, Size
from kerascnn.saving.atomic import replacing

OPSETS = (18, 23)  # what is known of: the first and the last one
_DEFAULT_OPSET = 18
# The version of the form of files that belongs to opset 18, which all runtimes with it read.
_FORM = 10
# Files of Protocol Buffers end at 2 GiB; larger models keep their weights in a file beside them.
_LARGEST = (1 << 31) - (1 << 20)


def export(model: Any, path: Path, input_signature: Any = None, opset_version: int | None = None):
    """Writes a model's forward pass as an ONNX file.

    Raises:
        ImportError: without the package `onnx`.
        ExportError: for what ONNX can't express, and variables that a prediction changes.
        ValueError: for a model that is not built, and another opset.
    """
    require_onnx()
    opset = _DEFAULT_OPSET if opset_version is None else opset_version
    if not isinstance(opset, int) or not OPSETS[0] <= opset <= OPSETS[1]:
        raise ValueError(
            f"`opset_version` must be a whole number from {OPSETS[0]} to {OPSETS[1]}. Received: "
            f"opset_version={opset_version!r}"
        )
    check_built(model)
    inputs = signature(model, input_signature)
    check_on_device(model, trees.flatten(inputs))
    recording = record(model, inputs)
    proto = to_proto(recording, model.name, opset)
    check_stateless(model, recording.program)  # emitters say more of random numbers
    _write(proto, path)


def to_proto(recording: Recording, name: str, opset: int) -> Any:
    """The file of a recorded model, as the package `onnx` has it in memory."""
    file = File()
    helper = file.onnx.helper
    program = recording.program
    places: dict[str, tuple[str, int]] = {}
    infos = []
    emitter = Emitter(file, program, places)
    for value, (given, axes) in zip(program.inputs, recording.inputs, strict=True):
        own = file.name(given.name)
        emitter.put(value, own)
        infos.append(helper.make_tensor_value_info(own, file.element_type(given.dtype), list(axes)))
        for axis, size in enumerate(axes):
            if isinstance(size, str):
                places.setdefault(size, (own, axis))
    names = [file.name(n) for n in recording.output_names]  # before those of nodes
    emitter.run()
    outputs = []
    for wanted, value in zip(names, program.outputs, strict=True):
        value = program.resolve(value)
        node = helper.make_node("Identity", [emitter.plain(value)], [wanted], name=wanted)
        emitter.nodes.append(node)
        kind = file.element_type(emitter.dtype(value))
        outputs.append(helper.make_tensor_value_info(wanted, kind, _sizes(emitter.shape(value))))
    nodes, used = _needed([*file.sizes, *emitter.nodes], names)
    constants = [each for each in file.initializers if each.name in used]
    graph = helper.make_graph(nodes, name, infos, outputs, initializer=constants)
    proto = helper.make_model(
        graph,
        opset_imports=[helper.make_opsetid("", opset)],
        producer_name="kerascnn",
        ir_version=_FORM,
    )
    return proto


def _needed(nodes: list[Any], outputs: list[str]) -> tuple[list[Any], set[str]]:
    """The nodes that the outputs need, and the names of all values that they read."""
    used = set(outputs)
    kept = []
    for node in reversed(nodes):
        if used.intersection(node.output):
            kept.append(node)
            used.update(_read(node))
    return kept[::-1], used


def _read(node: Any) -> set[str]:
    """The names that a node reads, and those that the graphs in it read."""
    names = set(node.input)
    for attribute in node.attribute:
        if attribute.HasField("g"):
            names.update(name for inner in attribute.g.node for name in _read(inner))
            names.update(output.name for output in attribute.g.output)
    return names


def _sizes(shape: Shape) -> list[int | str | None]:
    return [n.name() if isinstance(n, Size) else n for n in shape]


def _write(proto: Any, path: Path) -> None:
    """Writes the file; one that is there is replaced at the end."""
    import onnx

    if proto.ByteSize() <= _LARGEST:
        onnx.checker.check_model(proto)
    else:  # the checker reads files, which have an end too
        location = f"{path.name}.data"
        onnx.external_data_helper.convert_model_to_external_data(
            proto, location=location, size_threshold=1024
        )
        with replacing(path.with_name(location)) as beside:
            _write_data(proto, beside)
    with replacing(path) as target:
        target.write_bytes(proto.SerializeToString())


def _write_data(proto: Any, path: Path) -> None:
    """Moves the bytes of the larger tensors to a file, where they begin at multiples of 4096."""
    with open(path, "wb") as file:
        for tensor in proto.graph.initializer:
            if tensor.data_location != tensor.EXTERNAL:
                continue
            file.seek(-(-file.tell() // 4096) * 4096)
            places = {"offset": file.tell(), "length": len(tensor.raw_data)}
            file.write(tensor.raw_data)
            tensor.ClearField("raw_data")
            for key, value in places.items():
                entry = tensor.external_data.add()
                entry.key, entry.value = key, str(value)


__all__ = ["ExportError", "export"]
