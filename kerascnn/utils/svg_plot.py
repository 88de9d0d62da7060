"""Diagrams of models as SVG, for machines without Graphviz."""

from __future__ import annotations

from xml.sax.saxutils import escape

from kerascnn.utils.diagram_layout import Arrow, Part, Rectangle, Text, lay_out
from kerascnn.utils.model_diagram import Diagram


def draw(diagram: Diagram, rankdir: str = "TB") -> str:
    """Returns the text of an SVG file; see `diagram_layout.lay_out`."""
    drawing = lay_out(diagram, rankdir)
    width, height = drawing.width, drawing.height
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height:.0f}" '
        f'viewBox="0 0 {width:.0f} {height:.0f}" font-family="Helvetica, Arial, sans-serif">',
        '<defs><marker id="head" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="7" '
        'markerHeight="7" orient="auto"><path d="M0 0L10 5L0 10z"/></marker></defs>',
        '<rect width="100%" height="100%" fill="white"/>',
    ]
    parts += [_part(part) for part in drawing.frames]
    parts += [_arrow(arrow) for arrow in drawing.arrows]
    parts += [f"<g>{''.join(_part(part) for part in box)}</g>" for box in drawing.boxes]
    return "\n".join([*parts, "</svg>\n"])


def _part(part: Part) -> str:
    return _rectangle(part) if isinstance(part, Rectangle) else _text(part)


def _rectangle(part: Rectangle) -> str:
    fill = 'fill="none" stroke-dasharray="6 4"' if part.fill is None else f'fill="{part.fill}"'
    return (
        f'<rect x="{part.left:.1f}" y="{part.top:.1f}" width="{part.width:.1f}" '
        f'height="{part.height:.1f}" {fill} stroke="black"/>'
    )


def _text(part: Text) -> str:
    weight = ' font-weight="bold"' if part.bold else ""
    anchor = "middle" if part.centered else "start"
    return (
        f'<text x="{part.x:.1f}" y="{part.y:.1f}" font-size="{part.size}" text-anchor="{anchor}" '
        f'fill="{part.color}"{weight}>{escape(part.text)}</text>'
    )


def _arrow(arrow: Arrow) -> str:
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in arrow.points)
    return (
        f'<polyline points="{path}" fill="none" stroke="black" stroke-width="2" '
        'marker-end="url(#head)"/>'
    )
