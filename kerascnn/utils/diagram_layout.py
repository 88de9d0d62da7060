"""Where the boxes and arrows of a diagram go, for machines without Graphviz.

Boxes lie in rows by their distance from the inputs; within a row each lies near the mean of what it
takes (Sugiyama, Tagawa and Toda, 1981, "Methods for Visual Understanding of Hierarchical System
Structures"). Arrows are bent in the gaps between rows.
"""

from __future__ import annotations

from collections import defaultdict
from typing import NamedTuple

from kerascnn.utils.model_diagram import Box, Diagram

TITLE, TEXT = 16, 14  # sizes of letters
_LETTER = 0.6  # mean width of a letter, relative to its size
_LINE = 34  # height of a line in a box
_GAP = 46  # space between rows; half of it is between neighbours
_MARGIN = 24

_Place = tuple[float, float, float, float]  # left, top, width, height


class Rectangle(NamedTuple):
    """A rectangle; without a fill it is a dashed frame."""

    left: float
    top: float
    width: float
    height: float
    fill: str | None


class Text(NamedTuple):
    """A line of text at its baseline."""

    x: float
    y: float
    text: str
    size: int
    color: str
    bold: bool = False
    centered: bool = True


class Arrow(NamedTuple):
    """A line with a head at its last point."""

    points: list[tuple[float, float]]


Part = Rectangle | Text


class Drawing(NamedTuple):
    """The shapes to draw, in this order."""

    width: float
    height: float
    frames: list[Part]
    arrows: list[Arrow]
    boxes: list[list[Part]]


def lay_out(diagram: Diagram, rankdir: str = "TB") -> Drawing:
    """Computes where everything goes.

    Args:
        diagram: what to draw.
        rankdir: "TB" for rows from top to bottom, "LR" for columns from left to right, "BT" and
            "RL" for the other way round.
    """
    boxes = {box.key: box for box in diagram.boxes()}
    edges = [(a, b) for a, b in dict.fromkeys(diagram.all_edges()) if a in boxes and b in boxes]
    rows = _rows(list(boxes), edges)
    if rankdir in ("BT", "RL"):
        rows.reverse()
    sideways = rankdir in ("LR", "RL")
    places = _place(rows, boxes, sideways)
    groups = _groups(diagram, places)
    width = max(p[0] + p[2] for p in [*places.values(), *groups.values()]) + _MARGIN
    height = max(p[1] + p[3] for p in [*places.values(), *groups.values()]) + _MARGIN
    frames: list[Part] = []
    for name, (left, top, w, h) in groups.items():
        frames.append(Rectangle(left, top, w, h, None))
        frames.append(Text(left + 6, top + 15, name[1], TEXT, "black", centered=False))
    return Drawing(
        width,
        height,
        frames,
        [_arrow(places[a], places[b], sideways) for a, b in edges],
        [_box(boxes[key], place) for key, place in places.items()],
    )


def _rows(keys: list[str], edges: list[tuple[str, str]]) -> list[list[str]]:
    """The boxes by their longest way from an input, each row in its order from left to right.

    Arrows back, to a layer that is called once more, have no say in this.
    """
    order = {key: i for i, key in enumerate(keys)}
    edges = [(a, b) for a, b in edges if order[a] < order[b]]
    parents: dict[str, list[str]] = defaultdict(list)
    children: dict[str, list[str]] = defaultdict(list)
    for a, b in edges:
        parents[b].append(a)
        children[a].append(b)
    level = dict.fromkeys(keys, 0)
    missing = {key: len(parents[key]) for key in keys}
    ready = [key for key in keys if not missing[key]]
    for key in ready:  # the list grows during the loop
        for child in children[key]:
            level[child] = max(level[child], level[key] + 1)
            missing[child] -= 1
            if not missing[child]:
                ready.append(child)
    rows: list[list[str]] = [[] for _ in range(max(level.values()) + 1)]
    for key in keys:
        rows[level[key]].append(key)
    place: dict[str, float] = {}
    for row in rows:
        means = {k: sum(place[p] for p in parents[k]) / len(parents[k]) for k in row if parents[k]}
        row.sort(key=lambda key: means.get(key, 0.0))
        place.update({key: i - (len(row) - 1) / 2 for i, key in enumerate(row)})
    return rows


def _size(box: Box) -> tuple[float, float]:
    cells = sum(_cell_width(cell.text + cell.bold) for cell in box.cells)
    width = max(len(_title(box)) * TITLE * _LETTER + 28, cells)
    if box.activation is not None:
        width = max(width, _cell_width(f"Activation: {box.activation}"))
    return width, _LINE * (1 + (box.activation is not None) + bool(box.cells))


def _cell_width(text: str) -> float:
    return len(text) * TEXT * _LETTER + 24


def _title(box: Box) -> str:
    return box.kind if box.name is None else f"{box.name} ({box.kind})"


def _place(rows: list[list[str]], boxes: dict[str, Box], sideways: bool) -> dict[str, _Place]:
    """Computes the place of each box; rows are centered."""
    sizes = {key: _size(box) for key, box in boxes.items()}
    along = 1 if sideways else 0  # the direction of a row
    lengths = [sum(sizes[k][along] for k in row) + _GAP / 2 * (len(row) - 1) for row in rows]
    places = {}
    depth = float(_MARGIN)
    for row, length in zip(rows, lengths, strict=True):
        thickness = max(sizes[key][1 - along] for key in row)
        position = _MARGIN + (max(lengths) - length) / 2
        for key in row:
            width, height = sizes[key]
            across = depth + (thickness - sizes[key][1 - along]) / 2
            left, top = (across, position) if sideways else (position, across)
            places[key] = (left, top, width, height)
            position += sizes[key][along] + _GAP / 2
        depth += thickness + _GAP
    return places


def _groups(diagram: Diagram, places: dict[str, _Place]) -> dict[tuple[int, str], _Place]:
    """Computes frames around the boxes of expanded models, with names; outer ones first."""
    frames: dict[tuple[int, str], _Place] = {}

    def visit(part: Diagram, depth: int) -> None:
        for inner in part.parts:
            if not isinstance(inner, Diagram):
                continue
            inside = [places[box.key] for box in inner.boxes()]
            room = max(20 - 5 * depth, 5)  # leaves space between nested frames
            left, top = min(p[0] for p in inside) - room, min(p[1] for p in inside) - room
            right = max(p[0] + p[2] for p in inside) + room
            bottom = max(p[1] + p[3] for p in inside) + room
            frames[(len(frames), inner.name)] = (left, top, right - left, bottom - top)
            visit(inner, depth + 1)

    visit(diagram, 0)
    return frames


def _arrow(a: _Place, b: _Place, sideways: bool) -> Arrow:
    """Draws an arrow from the middle of a box's side to the facing side of another box."""
    (ax, ay, aw, ah), (bx, by, bw, bh) = a, b
    if a == b:  # this layer takes its own output
        right, upper, lower = ax + aw, ay + ah / 3, ay + ah * 2 / 3
        out = right + _GAP / 5
        points = [(right, upper), (out, upper), (out, lower), (right, lower)]
    elif sideways:
        forward = ax < bx
        start = (ax + (aw if forward else 0), ay + ah / 2)
        end = (bx + (0 if forward else bw), by + bh / 2)
        bend = (end[0] - _GAP / 2) if forward else (end[0] + _GAP / 2)
        points = [start, (bend, start[1]), (bend, end[1]), end]
    else:
        forward = ay < by
        start = (ax + aw / 2, ay + (ah if forward else 0))
        end = (bx + bw / 2, by + (0 if forward else bh))
        bend = (end[1] - _GAP / 2) if forward else (end[1] + _GAP / 2)
        points = [start, (start[0], bend), (end[0], bend), end]
    return Arrow(points)


def _box(box: Box, place: _Place) -> list[Part]:
    left, top, width, height = place
    parts: list[Part] = [Rectangle(left, top, width, height, "black")]
    parts.append(Text(left + width / 2, top + 22, _title(box), TITLE, "white", bold=True))
    top += _LINE
    if box.activation is not None:
        parts += _field(left, top, width, f"Activation: {box.activation}", "white", "black")
        top += _LINE
    spare = width - sum(_cell_width(cell.text + cell.bold) for cell in box.cells)
    for cell in box.cells:
        text = cell.text + cell.bold
        cell_width = _cell_width(text) + spare / len(box.cells)
        parts += _field(left, top, cell_width, text, cell.background, cell.color or "black")
        left += cell_width
    return parts


def _field(
    left: float, top: float, width: float, text: str, background: str, color: str
) -> list[Part]:
    middle = left + width / 2
    return [
        Rectangle(left, top, width, _LINE, background),
        Text(middle, top + 22, text, TEXT, color),
    ]
