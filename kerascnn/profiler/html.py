"""A page that shows a profile: a chart of the layers, and all rows."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, Any

from kerascnn.profiler import report

if TYPE_CHECKING:
    from kerascnn.profiler.profile import Profile

# These colours can be told apart with any colour vision (Okabe and Ito, 2008).
_COLOURS = {"forward": "#0072b2", "backward": "#e69f00", "update": "#009e73"}
_SEVERAL = "#cc79a7"
_ROW, _BAR, _LABELS, _BARS = 24, 16, 330, 560  # pixels
_LONGEST_LABEL = 46

_STYLE = """
body { font: 14px/1.4 system-ui, sans-serif; margin: 2em; color: #222; }
table { border-collapse: collapse; }
th, td { padding: 2px 8px; text-align: left; border-bottom: 1px solid #ddd; }
td.number, th.number { text-align: right; font-variant-numeric: tabular-nums; }
tr:hover td { background: #f3f6fa; }
td.kernel { font: 12px ui-monospace, monospace; min-width: 18em; overflow-wrap: anywhere; }
.scroll { overflow-x: auto; }
"""

_COLUMNS = (
    ("phase", "phase", None),
    ("layer", "layer", None),
    ("op", "op", None),
    ("library", "library", None),
    ("kernel", "kernel", None),
    ("calls", "calls", lambda v: f"{v:.4g}"),
    ("time_us", "time us", lambda v: f"{v:.2f}"),
    ("busy_us", "busy us", lambda v: f"{v:.2f}"),
    ("gap_us", "gap us", lambda v: f"{v:.2f}"),
    ("flop", "MFLOP", lambda v: f"{v / 1e6:.3g}"),
    ("bytes", "MB", lambda v: f"{v / 1e6:.3g}"),
    ("compute_share", "compute", lambda v: f"{100 * v:.1f}%"),
    ("bandwidth_share", "bandwidth", lambda v: f"{100 * v:.1f}%"),
    ("memory_bytes", "memory MB", lambda v: f"{v / 1e6:.3g}"),
)


def page(profile: Profile) -> str:
    """Returns the text of the page. It contains the chart as SVG and loads nothing."""
    title = "Kernels of a training step" if profile.step_us else "Kernels"
    parts = [
        "<!doctype html>",
        f'<html lang="en"><head><meta charset="utf-8"><title>{title}</title>',
        f"<style>{_STYLE}</style></head><body>",
        f"<h1>{title}</h1>",
        "<table>",
        *(
            f"<tr><th>{escape(name)}</th><td>{escape(value)}</td></tr>"
            for name, value in report.summary(profile)
        ),
        "</table>",
        "<h2>Time of the layers</h2>",
        chart(profile.rows),
        "<h2>All kernels</h2>",
        '<div class="scroll"><table><thead><tr>',
        *(
            f"<th{'' if form is None else _NUMBER}>{escape(head)}</th>"
            for _, head, form in _COLUMNS
        ),
        "</tr></thead><tbody>",
        *map(_table_row, profile.rows),
        "</tbody></table></div></body></html>\n",
    ]
    return "\n".join(parts)


_NUMBER = ' class="number"'


def _table_row(row: dict[str, Any]) -> str:
    cells = []
    for name, _, form in _COLUMNS:
        if form is None:
            kind = ' class="kernel"' if name == "kernel" else ""
            cells.append(f"<td{kind}>{escape(str(row[name]))}</td>")
        else:
            cells.append(f"<td{_NUMBER}>{escape(form(row[name]))}</td>")
    return f"<tr>{''.join(cells)}</tr>"


def chart(rows: list[dict[str, Any]]) -> str:
    """Draws a bar for each layer, with a piece for each phase, as SVG."""
    layers: dict[str, dict[str, float]] = {}
    for row in report.grouped(rows, "layer"):
        phases = layers.setdefault(row["layer"], {})
        phases[row["phase"]] = phases.get(row["phase"], 0.0) + row["busy_us"]
    longest = max((sum(phases.values()) for phases in layers.values()), default=0.0) or 1.0
    legend = dict.fromkeys(phase for phases in layers.values() for phase in phases)
    height, width = (len(layers) + 1) * _ROW + 8, _LABELS + _BARS + 110
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        f'viewBox="0 0 {width} {height}" font-size="13" role="img">'
    ]
    left = float(_LABELS)
    for phase in legend:
        parts.append(f'<rect x="{left:.0f}" y="4" width="12" height="12" fill="{_colour(phase)}"/>')
        parts.append(f'<text x="{left + 17:.0f}" y="15">{escape(phase)}</text>')
        left += 40 + 7.5 * len(phase)
    for place, (layer, phases) in enumerate(layers.items()):
        top = (place + 1) * _ROW + 4
        label = layer or "(no layer)"
        short = label if len(label) <= _LONGEST_LABEL else label[: _LONGEST_LABEL - 1] + "\u2026"
        parts.append(
            f'<text x="{_LABELS - 8}" y="{top + 13}" text-anchor="end">{escape(short)}'
            f"<title>{escape(label)}</title></text>"
        )
        left = float(_LABELS)
        for phase, micros in phases.items():
            size = micros / longest * _BARS
            parts.append(
                f'<rect x="{left:.1f}" y="{top}" width="{size:.1f}" height="{_BAR}" '
                f'fill="{_colour(phase)}"><title>{escape(f"{label}, {phase}: {micros:.2f} us")}'
                "</title></rect>"
            )
            left += size
        total = sum(phases.values())
        parts.append(f'<text x="{left + 6:.1f}" y="{top + 13}">{total:.2f} us</text>')
    return "\n".join([*parts, "</svg>"])


def _colour(phase: str) -> str:
    return _COLOURS.get(phase, _SEVERAL)
