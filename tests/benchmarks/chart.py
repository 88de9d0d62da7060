"""Draws results of comparisons as an SVG: a panel for each file, a line of marks for each net.

    python tests/benchmarks/chart.py tests/benchmarks/results/*.json -o docs/benchmarks.svg

A mark is the median of milliseconds per epoch on a logarithmic axis, and a thin line reaches from
the smallest to the largest value. Of PyTorch, JAX and Keras the fastest variant on each net is
drawn. The picture has no background, so it fits light and dark pages.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
from html import escape
from pathlib import Path
from typing import Any, NamedTuple

OWN = "kerascnn"
_WIDTH, _LEFT, _RIGHT = 760, 70, 24
_ROW, _HEAD, _AXIS, _GAP = 34, 48, 24, 18
# People with color blindness can tell these colors apart too, on white and on near-black.
_STYLE = """
text { font: 12px system-ui, -apple-system, "Segoe UI", sans-serif; fill: #24292f; }
.title { font-weight: 600; font-size: 13px; }
.small { font-size: 11px; fill: #57606a; }
.grid { stroke: #8c959f; stroke-opacity: .3; }
.own { fill: #0969da; stroke: #0969da; font-weight: 600; }
.torch { fill: #bc4c00; stroke: #bc4c00; }
.jax { fill: #8250df; stroke: #8250df; }
.keras { fill: #6e7781; stroke: #6e7781; }
text.own, text.torch, text.jax, text.keras { stroke: none; }
@media (prefers-color-scheme: dark) {
  text { fill: #e6edf3; }
  .small { fill: #9198a1; }
  .own { fill: #4493f8; stroke: #4493f8; }
  .torch { fill: #f0883e; stroke: #f0883e; }
  .jax { fill: #bc8cff; stroke: #bc8cff; }
  .keras { fill: #9198a1; stroke: #9198a1; }
}
"""


class Group(NamedTuple):
    """Peers that share a mark: the fastest of them is drawn for each net."""

    style: str
    prefix: str
    label: str
    mark: str


GROUPS = [
    Group("own", OWN, "kerascnn fit", "circle"),
    Group("torch", "torch", "PyTorch, own loop", "square"),
    Group("jax", "jax", "JAX, own loop", "triangle"),
    Group("keras", "keras-", "Keras fit", "diamond"),
]


class Point(NamedTuple):
    median: float
    low: float
    high: float
    peer: str


def points(document: dict[str, Any], group: Group) -> dict[str, Point]:
    """Returns the fastest peer of a group for each net."""
    found: dict[str, Point] = {}
    for row in document["rows"]:
        is_in = row["peer"] == OWN if group.style == "own" else row["peer"].startswith(group.prefix)
        if row["what"] != "fit" or not is_in or not row.get("ms"):
            continue
        values = [value for turn in row["ms"] for value in turn]
        point = Point(statistics.median(values), min(values), max(values), row["peer"])
        if row["net"] not in found or point.median < found[row["net"]].median:
            found[row["net"]] = point
    return found


class Axis:
    """A logarithmic axis between powers of ten, or halves of them, around all values."""

    def __init__(self, values: list[float]):
        self._low = math.floor(math.log10(min(values)) * 2) / 2
        self._high = max(math.ceil(math.log10(max(values)) * 2) / 2, self._low + 0.5)

    def place(self, value: float) -> float:
        share = (math.log10(value) - self._low) / (self._high - self._low)
        return _LEFT + share * (_WIDTH - _LEFT - _RIGHT)

    def ticks(self) -> list[float]:
        powers = range(math.floor(self._low), math.ceil(self._high) + 1)
        candidates = [digit * 10.0**power for power in powers for digit in (1, 3)]
        return [t for t in candidates if self._low - 1e-9 <= math.log10(t) <= self._high + 1e-9]


def number(value: float) -> str:
    return f"{value:,.0f}" if value >= 10 else f"{value:.3g}"


def mark(shape: str, style: str, x: float, y: float) -> str:
    if shape == "circle":
        return f'<circle class="{style}" cx="{x:.1f}" cy="{y:.1f}" r="6"/>'
    corners = {
        "square": [(-5, -5), (5, -5), (5, 5), (-5, 5)],
        "triangle": [(0, -6), (6, 5), (-6, 5)],
        "diamond": [(0, -6), (6, 0), (0, 6), (-6, 0)],
    }[shape]
    path = " ".join(f"{x + dx:.1f},{y + dy:.1f}" for dx, dy in corners)
    return f'<polygon class="{style}" points="{path}"/>'


def draw_row(net: str, found: dict[str, dict[str, Point]], axis: Axis, y: float) -> list[str]:
    parts = [f'<text x="{_LEFT - 14}" y="{y + 4:.0f}" text-anchor="end">{escape(net)}</text>']
    occupied: list[float] = []
    for group in GROUPS:
        point = found[group.style].get(net)
        if point is None:
            continue
        x = axis.place(point.median)
        low, high = axis.place(point.low), axis.place(point.high)
        parts.append(
            f'<line class="{group.style}" x1="{low:.1f}" x2="{high:.1f}" y1="{y}" y2="{y}"/>'
        )
        title = f"{point.peer}, net {net}: {point.median:.1f} ms"
        drawn = mark(group.mark, group.style, x, y)
        parts.append(f"<g><title>{escape(title)}</title>{drawn}</g>")
        # A number stands above its mark, or below if another number is near.
        below = any(abs(x - other) < 34 for other in occupied)
        occupied.append(x)
        parts.append(
            f'<text class="{group.style}" font-size="11" text-anchor="middle" x="{x:.1f}" '
            f'y="{y + (19 if below else -9)}">{number(point.median)}</text>'
        )
    return parts


def draw_panel(document: dict[str, Any], top: float) -> tuple[list[str], float]:
    """Returns the elements of one machine, and where the next panel may begin."""
    about = document["machine"]
    found = {group.style: points(document, group) for group in GROUPS}
    nets = [net for net in document["nets"] if any(net in of_group for of_group in found.values())]
    # Nets are in alphabetical order. Nets with another batch size than their own follow, by size.
    nets.sort(key=lambda net: (int(net.partition("@")[2] or 0), net))
    if not nets:
        raise ValueError(f"no measured epoch in the comparison of {about['date']}")
    every = [p for of_group in found.values() for p in of_group.values()]
    axis = Axis([p.low for p in every] + [p.high for p in every])
    hardware = about["hardware"].split(",")[0]
    if about["device"] == "cpu":
        hardware = f"{about['cores']} cores of {about['processor']}"
    parts = [f'<text class="title" x="12" y="{top + 16}">{escape(hardware)}</text>']
    parts.append(
        f'<text class="small" x="12" y="{top + 32}">milliseconds per epoch of '
        f"{document['samples']:,} images on a logarithmic scale, {escape(about['date'])}</text>"
    )
    first = top + _HEAD + 22
    bottom = first + _ROW * (len(nets) - 1) + 24
    for tick in axis.ticks():
        x = axis.place(tick)
        parts.append(
            f'<line class="grid" x1="{x:.1f}" x2="{x:.1f}" y1="{top + _HEAD}" y2="{bottom}"/>'
            f'<text class="small" x="{x:.1f}" y="{bottom + 14}" text-anchor="middle">'
            f"{number(tick)}</text>"
        )
    for i, net in enumerate(nets):
        parts += draw_row(net, found, axis, first + i * _ROW)
    return parts, bottom + _AXIS


def draw_legend(top: float) -> list[str]:
    parts, x = [], 20.0
    for group in GROUPS:
        parts.append(mark(group.mark, group.style, x, top))
        parts.append(f'<text x="{x + 12:.0f}" y="{top + 4:.0f}">{escape(group.label)}</text>')
        x += 40 + 7 * len(group.label)
    return parts


def draw(documents: list[dict[str, Any]]) -> str:
    body, top = draw_legend(18), 40.0
    for document in documents:
        parts, top = draw_panel(document, top)
        body += parts
        top += _GAP
    height = top - _GAP
    label = "Milliseconds per epoch of kerascnn and of its peers"
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height:.0f}" '
            f'width="{_WIDTH}" height="{height:.0f}" role="img" aria-label="{label}">',
            f"<style>{_STYLE}</style>",
            *body,
            "</svg>\n",
        ]
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("results", nargs="+", type=Path, help="files that compare.py wrote")
    parser.add_argument("-o", "--output", type=Path, required=True, help="the SVG file")
    args = parser.parse_args()
    documents = []
    for path in args.results:
        document = json.loads(path.read_text())
        if "rows" not in document:
            parser.error(f"{path} was not written by compare.py")
        documents.append(document)
    args.output.write_text(draw(documents))


if __name__ == "__main__":
    main()
