"""Plots of models, made by Graphviz if it is installed, otherwise drawn here."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from kerascnn.utils.model_diagram import Box, Diagram, Style, describe


def model_to_dot(
    model: Any,
    show_shapes: bool = False,
    show_dtype: bool = False,
    show_layer_names: bool = True,
    rankdir: str = "TB",
    expand_nested: bool = False,
    dpi: int = 200,
    subgraph: bool = False,
    show_layer_activations: bool = False,
    show_trainable: bool = False,
    splines: str = "ortho",
    **kwargs: Any,
) -> Any:
    """A model as a graph of the package pydot.

    Args:
        model: A model that is built.
        show_shapes: Whether boxes tell the shapes of inputs and outputs.
        show_dtype: Whether boxes tell the dtype of outputs.
        show_layer_names: Whether boxes tell the layers' names.
        rankdir: "TB" from top to bottom, "LR" from left to right.
        expand_nested: Whether models within the model are opened.
        dpi: Dots per inch of an image.
        subgraph: Whether to return a `pydot.Cluster`, for a model within a model.
        show_layer_activations: Whether boxes tell the activations of layers that have one.
        show_trainable: Whether boxes tell if weights are trained.
        splines: How arrows run: "ortho", "curved", "polyline", "spline" or "line".

    Returns:
        A `pydot.Dot`, or a `pydot.Cluster`.

    Raises:
        ValueError: for a model that is not built, or unknown arguments.
        ImportError: where pydot is not installed; `plot_model` does without.

    Example:

    >>> import kerascnn as keras
    >>> model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(2)])
    >>> try:
    ...     kind = type(keras.utils.model_to_dot(model)).__name__
    ... except ImportError:  # without pydot
    ...     kind = "Dot"
    >>> kind
    'Dot'
    """
    _check(model, kwargs)
    try:
        import pydot
    except ImportError as error:
        raise ImportError(
            "model_to_dot needs the package pydot: pip install pydot. plot_model draws files "
            "without it."
        ) from error
    style = Style(
        show_shapes,
        show_dtype,
        show_layer_names,
        expand_nested,
        show_layer_activations,
        show_trainable,
    )
    diagram = describe(model, style)
    if subgraph:
        return _fill(_cluster(pydot, diagram.name), diagram, pydot, style)
    dot = pydot.Dot()
    for option, value in (
        ("rankdir", rankdir),
        ("concentrate", True),
        ("dpi", dpi),
        ("splines", splines),
    ):
        dot.set(option, value)
    dot.set_node_defaults(shape="record")
    return _fill(dot, diagram, pydot, style)


def plot_model(
    model: Any,
    to_file: str | os.PathLike[str] = "model.png",
    show_shapes: bool = False,
    show_dtype: bool = False,
    show_layer_names: bool = False,
    rankdir: str = "TB",
    expand_nested: bool = False,
    dpi: int = 200,
    show_layer_activations: bool = False,
    show_trainable: bool = False,
    splines: str = "ortho",
    **kwargs: Any,
) -> Any:
    """Draws a model into a file.

    With pydot and Graphviz installed the file is of any kind that Graphviz writes. Without them it
    can be SVG, or with the package Pillow PNG, JPEG and what else Pillow writes.

    Args:
        model: A model that is built.
        to_file: The file; its ending says what kind it is, PNG if it has none.
        show_shapes: See `model_to_dot`, as for the others.
        show_dtype: See `model_to_dot`.
        show_layer_names: See `model_to_dot`.
        rankdir: See `model_to_dot`.
        expand_nested: See `model_to_dot`.
        dpi: See `model_to_dot`.
        show_layer_activations: See `model_to_dot`.
        show_trainable: See `model_to_dot`.
        splines: See `model_to_dot`.

    Returns:
        An image for notebooks where IPython is installed, else None.

    Raises:
        ValueError: for a model that is not built, or unknown arguments.
        ImportError: for a kind of file that needs a package or program that is not there.

    Example:

    >>> import kerascnn as keras, pathlib, tempfile
    >>> model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(2)])
    >>> path = pathlib.Path(tempfile.mkdtemp(), "model.svg")
    >>> _ = keras.utils.plot_model(model, path, show_shapes=True)
    >>> "(None, 4)" in path.read_text()
    True
    """
    _check(model, kwargs)
    path = Path(to_file)
    style = Style(
        show_shapes,
        show_dtype,
        show_layer_names,
        expand_nested,
        show_layer_activations,
        show_trainable,
    )
    if has_graphviz():
        dot = model_to_dot(
            model,
            rankdir=rankdir,
            dpi=dpi,
            splines=splines,
            **style._asdict(),
        )
        dot.write(str(path), format=path.suffix[1:] or "png")
        return _notebook_image(path)
    from kerascnn.utils import image_plot, svg_plot

    diagram, ending = describe(model, style), path.suffix.lower() or ".png"
    if ending == ".svg":
        path.write_text(svg_plot.draw(diagram, rankdir), encoding="utf-8")
    elif image_plot.can_draw(ending):
        image_plot.draw(diagram, path, rankdir, dpi)
    else:
        raise ImportError(
            f"A plot as {ending} needs the package Pillow, for kinds of files that it writes (pip "
            "install pillow), or the package pydot and the program dot of Graphviz. An .svg file "
            f"needs none of them. Received: to_file={str(to_file)!r}"
        )
    return _notebook_image(path)


def has_graphviz() -> bool:
    """Tells whether pydot and Graphviz are installed and work."""
    try:
        import pydot
    except ImportError:
        return False
    try:
        pydot.Dot.create(pydot.Dot())
    except (OSError, pydot.PydotException):
        return False
    return True


def _check(model: Any, kwargs: dict[str, Any]) -> None:
    if not model.built:
        raise ValueError(
            f"Model '{model.name}' is not built, so there is nothing to plot. Call it on a batch "
            "of data, or build(input_shape)."
        )
    if kwargs.pop("layer_range", None) is not None:
        raise ValueError("A plot shows all layers: `layer_range` is not available.")
    if kwargs:
        raise ValueError(f"Unknown arguments: {', '.join(kwargs)}")


def _cluster(pydot: Any, name: str) -> Any:
    cluster = pydot.Cluster(style="dashed", graph_name=name)
    cluster.set("label", name)
    cluster.set("labeljust", "l")
    return cluster


def _fill(dot: Any, diagram: Diagram, pydot: Any, style: Style) -> Any:
    for part in diagram.parts:
        if isinstance(part, Diagram):
            dot.add_subgraph(_fill(_cluster(pydot, part.name), part, pydot, style))
            continue
        node = pydot.Node(part.key, label=_label(part, style))
        for option, value in (("fontname", "Helvetica"), ("border", "0"), ("margin", "0")):
            node.set(option, value)
        dot.add_node(node)
    for source, target in diagram.edges:
        edge = pydot.Edge(source, target)
        edge.set("penwidth", "2")
        dot.add_edge(edge)
    return dot


def _label(box: Box, style: Style) -> str:
    """Returns a box in Graphviz' HTML-like language."""
    columns = max(1, style.show_dtype + style.show_trainable + 2 * style.show_shapes)
    title = f"<b>{box.kind}</b>" if box.name is None else f"<b>{box.name}</b> ({box.kind})"
    rows = [
        f'<tr><td colspan="{columns}" bgcolor="black"><font point-size="16" color="white">{title}'
        "</font></td></tr>"
    ]
    if box.activation is not None:
        rows.append(
            f'<tr><td bgcolor="white" colspan="{columns}"><font point-size="14">Activation: '
            f"<b>{box.activation}</b></font></td></tr>"
        )
    if box.cells:
        fields = []
        for cell in box.cells:
            color = f' color="{cell.color}"' if cell.color else ""
            fields.append(
                f'<td bgcolor="{cell.background}"><font point-size="14"{color}>{cell.text}'
                f"<b>{cell.bold}</b></font></td>"
            )
        rows.append(f"<tr>{''.join(fields)}</tr>")
    table = '<table border="0" cellborder="1" bgcolor="black" cellpadding="10">'
    return f"<{table}{''.join(rows)}</table>>"


def _notebook_image(path: Path) -> Any:
    try:
        from IPython import display
    except ImportError:
        return None
    if path.suffix == ".pdf":
        return None
    return (display.SVG if path.suffix == ".svg" else display.Image)(filename=str(path))
