"""Diagrams of models as PNG and other images, by Pillow, for machines without Graphviz."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from kerascnn.utils.diagram_layout import Arrow, Drawing, Part, Rectangle, lay_out
from kerascnn.utils.model_diagram import Diagram

# At 72 dots per inch, a unit of the layout is a pixel.
_DPI = 72
_MAX_PIXELS = 100_000_000
_DASH, _HOLE = 6, 4
_HEAD = 12


def can_draw(ending: str) -> bool:
    """Tells whether Pillow is installed and writes files with an ending such as ".png"."""
    try:
        from PIL import Image, features
    except ImportError:
        return False
    return bool(features.check("freetype2")) and ending.lower() in Image.registered_extensions()


def draw(diagram: Diagram, path: Path, rankdir: str, dpi: int) -> None:
    """Writes an image; see `diagram_layout.lay_out`.

    An image of more than 100 million pixels has fewer dots per inch than asked for.
    """
    from PIL import Image, ImageDraw

    drawing = lay_out(diagram, rankdir)
    most = math.sqrt(_MAX_PIXELS / (drawing.width * drawing.height))
    scale = min(dpi / _DPI, most)
    size = (math.ceil(drawing.width * scale), math.ceil(drawing.height * scale))
    image = Image.new("RGB", size, "white")
    _Pen(ImageDraw.Draw(image), scale).draw(drawing)
    image.save(path, dpi=(scale * _DPI, scale * _DPI))


class _Pen:
    """Draws in units of the layout.

    Args:
        canvas: Pillow's.
        scale: pixels for each unit.
    """

    def __init__(self, canvas: Any, scale: float) -> None:
        self._canvas, self._scale = canvas, scale

    def draw(self, drawing: Drawing) -> None:
        for part in drawing.frames:
            self._part(part)
        for arrow in drawing.arrows:
            self._arrow(arrow)
        for box in drawing.boxes:
            for part in box:
                self._part(part)

    def _line(self, points: list[tuple[float, float]], width: float) -> None:
        scaled = [(x * self._scale, y * self._scale) for x, y in points]
        self._canvas.line(scaled, "black", max(1, round(width * self._scale)))

    def _part(self, part: Part) -> None:
        scale = self._scale
        if not isinstance(part, Rectangle):
            self._text(part)
        elif part.fill is None:
            right, bottom = part.left + part.width, part.top + part.height
            for y in (part.top, bottom):
                self._dashes((part.left, y), part.width, (1, 0))
            for x in (part.left, right):
                self._dashes((x, part.top), part.height, (0, 1))
        else:
            corners = (part.left, part.top, part.left + part.width, part.top + part.height)
            place = [n * scale for n in corners]
            self._canvas.rectangle(place, part.fill, "black", max(1, round(scale)))

    def _dashes(
        self, start: tuple[float, float], length: float, direction: tuple[int, int]
    ) -> None:
        (x, y), (dx, dy) = start, direction
        for begin in range(0, int(length), _DASH + _HOLE):
            end = min(begin + _DASH, length)
            self._line([(x + dx * begin, y + dy * begin), (x + dx * end, y + dy * end)], 1)

    def _text(self, part: Any) -> None:
        from PIL import ImageFont

        font = ImageFont.load_default(part.size * self._scale)
        stroke = round(part.size * self._scale / 40) if part.bold else 0
        place = (part.x * self._scale, part.y * self._scale)
        anchor = "ms" if part.centered else "ls"
        self._canvas.text(
            place, part.text, part.color, font=font, anchor=anchor, stroke_width=stroke
        )

    def _arrow(self, arrow: Arrow) -> None:
        self._line(arrow.points, 2)
        (x, y) = arrow.points[-1]
        before = next((p for p in reversed(arrow.points[:-1]) if p != (x, y)), (x, y - 1))
        angle = math.atan2(y - before[1], x - before[0])
        sides = [(angle + math.pi + turn) for turn in (-0.46, 0.46)]
        head = [(x, y), *((x + _HEAD * math.cos(a), y + _HEAD * math.sin(a)) for a in sides)]
        self._canvas.polygon([(a * self._scale, b * self._scale) for a, b in head], "black")
