"""The table that `model.summary()` prints."""

from __future__ import annotations

import itertools
import re
import shutil
from collections.abc import Callable, Sequence
from typing import Any

from kerascnn import dtypes, trees
from kerascnn.layers.layer import Layer
from kerascnn.symbolic.operation import Node, Operation, history_of, node_of
from kerascnn.variable import Variable

_JUSTIFY: dict[str, Any] = {"Param #": "right", "Trainable": "center"}
_UNITS = ("B", "KB", "MB", "GB", "TB")


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


def parameters_line(variables: Sequence[Variable]) -> tuple[int, str]:
    """How many elements weights have, and that with their bytes as text."""
    count = sum(v.size for v in variables)
    size = sum(v.size * dtypes.ITEMSIZE[v.dtype] for v in variables)
    return count, f"{count:,} ({readable_size(size)})"


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

    branched = _is_branched(model)
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
    # These leave no room for the lines between the columns; rich takes that off all of them.
    for header, columns in zip(headers, _column_widths(ends, width), strict=True):
        table.add_column(header, width=columns, justify=_JUSTIFY.get(header, "left"))
    for row in _rows(model, branched, show_trainable, expand_nested, layer_range):
        table.add_row(*row)

    console = rich.console.Console(width=width, highlight=False, record=print_fn is not None)
    with console.capture() as capture:
        console.print(f'[bold]Model: "{rich.markup.escape(model.name)}"[/]')
        console.print(table)
        for line in _totals(model):
            console.print(line)
    text = capture.get()
    if print_fn is not None:
        print_fn(re.sub(r"\x1b\[[0-9;]*m", "", text))
    else:
        rich.console.Console().file.write(text)


def _column_widths(ends: Sequence[float], width: int) -> list[int]:
    """Characters of each column that ends at a share of the line (or, above 1, at a character)."""
    places = [0, *(int(end * width if end <= 1 else end) for end in ends)]
    widths = [b - a for a, b in itertools.pairwise(places)]
    if min(widths) < 4:
        raise ValueError(
            f"{width} characters are not enough for the table of a model. Give a larger "
            "`line_length`."
        )
    return widths


def _totals(model: Any) -> list[str]:
    _, text = parameters_line(model.weights)
    lines = [f" [bold]Total params:[/] {text}"]
    lines.append(f" [bold]Trainable params:[/] {parameters_line(model.trainable_weights)[1]}")
    frozen = parameters_line(model.non_trainable_weights)[1]
    lines.append(f" [bold]Non-trainable params:[/] {frozen}")
    optimizer = getattr(model, "optimizer", None)
    if optimizer is not None and getattr(optimizer, "built", False):
        count, state = parameters_line(optimizer.variables)
        if count:
            lines[0] = (
                f" [bold]Total params:[/] "
                f"{parameters_line([*model.weights, *optimizer.variables])[1]}"
            )
            lines.append(f" [bold]Optimizer params:[/] {state}")
    return lines


def _operations(model: Any) -> list[Operation]:
    from kerascnn.models.functional import Functional

    return model.operations if isinstance(model, Functional) else model.layers


def _is_branched(model: Any) -> bool:
    """Whether the calls are no plain chain, so that a column must say what feeds what."""
    from kerascnn.models.functional import Functional

    if not isinstance(model, Functional):
        return False
    nodes = [node for node in model._graph.nodes if not node.is_input]
    per_operation = [node.operation for node in nodes]
    shared = len({id(op) for op in per_operation}) != len(per_operation)
    several = any(len(node.parent_nodes) > 1 for node in nodes)
    parents = [id(parent) for node in nodes for parent in node.parent_nodes]
    return shared or several or len(parents) != len(set(parents)) or len(model.inputs) > 1


def _rows(
    model: Any,
    branched: bool,
    show_trainable: bool,
    expand_nested: bool,
    layer_range: Sequence[str] | None,
    depth: int = 0,
) -> list[list[str]]:
    operations = _operations(model)
    if layer_range is not None:
        operations = _in_range(operations, layer_range)
    own = {id(node) for node in model._graph.nodes} if branched else set()
    rows = []
    for operation in operations:
        title = getattr(operation, "title", type(operation).__name__)
        indent = "   " * depth + ("└ " if depth else "")
        row = [
            f"{indent}{_escape(operation.name)} ([color(33)]{_escape(title)}[/])",
            _output_shape(operation),
            _parameter_count(operation),
        ]
        if branched:
            row.append(_connections(operation, own))
        if show_trainable:
            row.append(_trainable_mark(operation))
        rows.append(row)
        nested = [x for x in (operation,) if expand_nested and _is_model(x)]
        for inner in nested:
            inner_rows = _rows(inner, False, show_trainable, True, None, depth + 1)
            for inner_row in inner_rows:
                if branched:
                    inner_row.insert(3, "-")
            rows += inner_rows
    return rows


def _is_model(operation: Any) -> bool:
    from kerascnn.models.model import Model

    return isinstance(operation, Model)


def _escape(text: str) -> str:
    from rich.markup import escape

    return escape(text)


def _in_range(operations: list[Operation], layer_range: Sequence[str]) -> list[Operation]:
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
    first, last = min(places[0]), max(places[1])
    return operations[min(first, last) : max(first, last) + 1]


def _output_shape(operation: Any) -> str:
    nodes: list[Node] = operation._inbound_nodes
    if nodes:
        shapes = [x.shape for x in nodes[-1].output_tensors]
    elif isinstance(operation, Layer) and operation._build_shapes:
        try:
            structure = operation.compute_output_shape(*operation._build_shapes.values())
        except (NotImplementedError, TypeError, ValueError):
            return "?"
        # The batch that a layer was built with is no property of it: often the whole data set.
        shapes = [(None, *shape[1:]) for shape in trees.flatten_shapes(structure)]
    else:
        return "?"
    texts = [
        "(" + ", ".join(f"[color({45 if n is None else 34})]{n}[/]" for n in s) + ")"
        for s in shapes
    ]
    return texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]".replace("[(", "\\[(", 1)


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
    names = []
    for node in operation._inbound_nodes:
        if id(node) not in own:
            continue
        for tensor in node.input_tensors:
            source, node_index, tensor_index = history_of(tensor)
            calls = [n for n in source._inbound_nodes if id(n) in own]
            place = node_of(tensor)
            index = next((i for i, n in enumerate(calls) if n is place), node_index)
            names.append(f"{_escape(source.name)}\\[{index}]\\[{tensor_index}]")
    return ", ".join(names) if names else "-"
