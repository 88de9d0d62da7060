"""The table that `model.summary()` prints."""

from __future__ import annotations

import itertools
import re
import shutil
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from kerascnn import config, dtypes, trees
from kerascnn.layers.layer import Layer
from kerascnn.symbolic.operation import Node, Operation, history_of
from kerascnn.utils.io_utils import print_msg
from kerascnn.variable import Variable

_JUSTIFY: dict[str, Any] = {"Param #": "right", "Trainable": "center"}
_UNITS = ("B", "KB", "MB", "GB", "TB", "PB")


def readable_size(size: float) -> str:
    """Bytes with the unit that fits.

    Example:

    >>> from kerascnn.models.summary import readable_size
    >>> readable_size(32620)
    '31.86 KB'
    """
    for unit in _UNITS[:-1]:
        if size < 1024:
            return f"{size:.2f} {unit}"
        size /= 1024
    return f"{size:.2f} {_UNITS[-1]}"


def print_summary(
    model: Any,
    line_length: int | None = None,
    positions: Sequence[float] | None = None,
    print_fn: Callable[[str], None] | None = None,
    expand_nested: bool = False,
    show_trainable: bool = False,
    layer_range: Sequence[str] | None = None,
) -> None:
    """See `Model.summary`."""
    import rich.console
    import rich.table

    operations, branched = _operations(model)
    own = {id(node) for node in model._graph.nodes} if branched else None
    headers = ["Layer (type)", "Output Shape", "Param #"]
    ends = list(positions or ([0.3, 0.56, 0.74, 1.0] if branched else [0.45, 0.80, 1.0]))
    if branched:
        headers.append("Connected to")
    if show_trainable:
        headers.append("Trainable")
        ends = [end * 0.9 for end in ends] + [1.0]
    widest = (108 if branched else 88) + (12 if show_trainable else 0)
    width = line_length or min(widest, shutil.get_terminal_size().columns - 4)
    table = rich.table.Table(width=width, show_lines=True)
    # Such columns leave no room for the lines between them, which rich takes off all columns.
    for header, columns in zip(headers, _column_widths(ends, width), strict=False):
        table.add_column(header, width=columns, justify=_JUSTIFY.get(header, "left"))
    for operation in _in_range(operations, layer_range):
        for row in _rows(operation, own, show_trainable, expand_nested):
            table.add_row(*row)
    title = f'[bold]Model: "{_escape(model.name)}"[/]'
    if print_fn is None and config.is_interactive_logging_enabled():
        console = rich.console.Console(highlight=False)
        for part in (title, table, *_totals(model)):
            console.print(part)
        return
    console = rich.console.Console(highlight=False, force_terminal=False, color_system=None)
    with console.capture() as capture:
        for part in (title, table, *_totals(model)):
            console.print(part)
    (print_fn or print_msg)(capture.get())


def _column_widths(ends: Sequence[float], width: int) -> list[int]:
    """Returns the number of characters of columns that end at shares of the line."""
    places = [0, *(int(end * width) for end in ends)]
    widths = [b - a for a, b in itertools.pairwise(places)]
    if min(widths) < 4:
        raise ValueError(
            f"{width} characters are not enough for the table of a model. Give a larger "
            "`line_length`."
        )
    return widths


def _totals(model: Any) -> list[str]:
    parts = [
        ("Trainable", _size_of(model.trainable_weights)),
        ("Non-trainable", _size_of(model.non_trainable_weights)),
    ]
    optimizer = model.optimizer if getattr(model, "compiled", False) else None
    if optimizer is not None and getattr(optimizer, "built", False):
        parts.append(("Optimizer", _size_of(optimizer.variables)))
    total = tuple(sum(numbers) for numbers in zip(*(size for _, size in parts), strict=True))
    return [
        f"[bold] {name} params: [/][color(34)]{count:,}[/] ({readable_size(size)})"
        for name, (count, size) in (("Total", total), *parts)
    ]


def _size_of(variables: Sequence[Variable]) -> tuple[int, int]:
    """Returns how many elements and bytes variables have."""
    unique = {id(v): v for v in variables}.values()
    return (
        sum(v.size for v in unique),
        sum(v.size * dtypes.ITEMSIZE[v.dtype] for v in unique),
    )


def _operations(model: Any) -> tuple[list[Operation], bool]:
    """Returns what the table lists, and whether it needs a column of connections."""
    from kerascnn.models.functional import Functional

    if not isinstance(model, Functional):
        return model.layers, False
    nodes = model._graph.nodes
    per_depth = Counter(_depths(nodes).values())
    several_inputs = any(len(node.input_tensors) > 1 for node in nodes)
    per_operation = Counter(id(node.operation) for node in nodes)
    shared = any(per_operation[id(layer)] > 1 for layer in model.layers)
    return model.operations, max(per_depth.values()) > 1 or several_inputs or shared


def _depths(nodes: Sequence[Node]) -> dict[int, int]:
    """How far each call is from the outputs; calls of one operation are at least as far as the
    one before."""
    of_nodes: dict[int, int] = {}
    of_operations: dict[int, int] = {}
    present = {id(node) for node in nodes}
    for node in reversed(nodes):
        operation = id(node.operation)
        depth = max(of_nodes.get(id(node), 0), of_operations.get(operation, 0))
        of_nodes[id(node)] = of_operations[operation] = depth
        for parent in node.parent_nodes:
            if id(parent) in present:
                of_nodes[id(parent)] = max(depth + 1, of_nodes.get(id(parent), 0))
    return of_nodes


def _rows(
    operation: Any, own: set[int] | None, show_trainable: bool, expand_nested: bool, depth: int = 0
) -> list[list[str]]:
    """The line of a layer, and of the layers in it where it is a model that is to be opened.

    `own` are the calls of a model that shows connections.
    """
    title = getattr(operation, "title", type(operation).__name__)
    indent = "   " * depth + "└ " if depth else ""
    row = [
        f"{_escape(indent + operation.name)} ([color(33)]{_escape(title)}[/])",
        _output_shape(operation),
        _parameter_count(operation),
    ]
    if own is not None:
        row.append(_connections(operation, own))
    if show_trainable:
        row.append(_trainable_mark(operation))
    rows = [row]
    if expand_nested:
        for inner in getattr(operation, "layers", None) or []:
            rows += _rows(inner, own, show_trainable, True, depth + 1)
    return rows


def _escape(text: str) -> str:
    from rich.markup import escape

    return escape(text)


def _in_range(
    operations: list[Operation], layer_range: Sequence[str] | None
) -> Sequence[Operation]:
    if layer_range is None:
        return operations
    if len(layer_range) != 2 or not all(isinstance(name, str) for name in layer_range):
        raise ValueError(
            "`layer_range` must be the names of the first and the last layer to show. "
            f"Received: layer_range={layer_range}"
        )
    places = []
    for pattern in layer_range:
        matches = [i for i, op in enumerate(operations) if re.match(pattern, op.name)]
        if not matches:
            raise ValueError(
                f"No layer's name matches {pattern!r}. Layers: {[op.name for op in operations]}"
            )
        places.append(matches)
    first, last = places
    if min(first) > max(last):
        first, last = last, first
    return operations[min(first) : max(last) + 1]


def _output_shape(operation: Any) -> str:
    nodes: list[Node] = operation._inbound_nodes
    if nodes:
        shapes: Any = [_shape_text(x.shape) for x in nodes[-1].output_tensors]
    elif isinstance(operation, Layer) and operation._build_shapes:
        try:
            structure = operation.compute_output_shape(*operation._build_shapes.values())
        except (NotImplementedError, TypeError, ValueError):
            return "?"
        # The batch with which a layer was built, often the whole data set, does not belong to its
        # shape.
        shapes = trees.map_shapes(lambda s: _shape_text((None, *s[1:])), structure)
    else:
        return "?"
    flat = trees.flatten(shapes)
    return flat[0] if len(flat) == 1 else str(shapes).replace("'", "")


def _shape_text(shape: Sequence[int | None]) -> str:
    return "(" + ", ".join(f"[color({45 if n is None else 34})]{n}[/]" for n in shape) + ")"


def _parameter_count(operation: Any) -> str:
    if not isinstance(operation, Layer):
        return "[color(34)]0[/]"
    if not operation.built:
        return "[color(34)]0[/] (unbuilt)"
    return f"[color(34)]{operation.count_params():,}[/]"


def _trainable_mark(operation: Any) -> str:
    if not isinstance(operation, Layer) or not operation.weights:
        return "[bold]-[/]"
    return "[bold][color(34)]Y[/][/]" if operation.trainable else "[bold][color(9)]N[/][/]"


def _connections(operation: Any, own: set[int]) -> str:
    """Lists what the calls of an operation get: layer, number of its call, number of its output."""
    names = []
    for node in operation._inbound_nodes:
        if id(node) not in own:
            continue
        for tensor in node.input_tensors:
            source, call, output = history_of(tensor)
            names.append(f"{_escape(source.name)}[[color(34)]{call}[/]][[color(34)]{output}[/]]")
    return ", ".join(names) or "-"
