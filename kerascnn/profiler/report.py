"""Tables for terminals."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.table import Table

    from kerascnn.profiler.profile import Profile

_NO_KERNEL = "no kernel ran while this was recorded"
_WIDTH = 160  # characters, if the output is not a terminal
_LEAST_WIDTHS = {"phase": 8, "layer": 8, "op": 8, "library": 8, "kernel": 12}


def table(profile: Profile, by: str = "kernel") -> Table:
    from rich.table import Table
    from rich.text import Text

    rows = grouped(profile.rows, by)
    result = Table(
        title=_title(profile),
        caption=_caption(profile),
        title_justify="left",
        caption_justify="left",
    )
    names = {"kernel": ("phase", "layer", "op", "library", "kernel"), "layer": ("phase", "layer")}
    texts = names.get(by, ("phase",))
    for name in texts:
        result.add_column(name, overflow="fold", min_width=_LEAST_WIDTHS[name])
    for name in ("calls", "time us", "share", "gap us", "MFLOP", "MB", "compute", "bandwidth"):
        result.add_column(name, justify="right", no_wrap=True, min_width=len(name))
    total = sum(row["busy_us"] for row in rows) or 1.0
    for row in rows:
        cells = [str(row[name]) for name in texts]
        cells += [
            f"{row['calls']:.4g}",
            f"{row['time_us']:.2f}",
            _percent(row["busy_us"] / total),
            f"{row['gap_us']:.2f}",
            f"{row['flop'] / 1e6:.3g}",
            f"{row['bytes'] / 1e6:.3g}",
            _percent(row["compute_share"]),
            _percent(row["bandwidth_share"]),
        ]
        result.add_row(*map(Text, cells))
    return result


def grouped(rows: list[dict[str, Any]], by: str) -> list[dict[str, Any]]:
    """Adds up similar rows; the shares that they achieved are weighted by time."""
    keys = {"kernel": None, "layer": ("phase", "layer"), "phase": ("phase",)}
    if by not in keys:
        raise ValueError(f'by must be "kernel", "layer" or "phase", received {by!r}')
    names = keys[by]
    if names is None:
        return rows
    groups: dict[tuple, dict[str, Any]] = {}
    sums = ("calls", "time_us", "busy_us", "gap_us", "flop", "bytes")
    shares = ("compute_share", "bandwidth_share")
    for row in rows:
        key = tuple(row[name] for name in names)
        empty = {name: row[name] for name in names} | dict.fromkeys((*sums, *shares), 0.0)
        group = groups.setdefault(key, empty)
        for name in sums:
            group[name] += row[name]
        for name in shares:
            group[name] += row[name] * row["busy_us"]
    for group in groups.values():
        for name in shares:
            group[name] /= group["busy_us"] or 1.0
    return list(groups.values())


def summary(profile: Profile) -> list[tuple[str, str]]:
    """Returns what holds for the whole profile."""
    steps = "1 step" if profile.steps == 1 else f"{profile.steps} steps"
    lines = [("kernels", f"{len(profile.recording.events)} in {steps}")]
    lines.append(("device busy", f"{profile.busy_us:.2f} us a step"))
    lines.append(("gaps between kernels", f"{profile.gap_us:.2f} us a step"))
    if profile.step_us is not None:
        share = profile.busy_us / profile.step_us
        lines.append(
            ("step without profiler", f"{profile.step_us:.2f} us; busy is {_percent(share)} of it")
        )
    for name, size in profile.memory.items():
        lines.append((f"memory, {name}", f"{size / 2**20:.2f} MiB"))
    return lines


def text(profile: Profile) -> str:
    """Returns the table as text, as wide as the terminal."""
    from rich.console import Console

    console = Console(highlight=False)
    if not console.is_terminal:
        console = Console(highlight=False, width=_WIDTH)
    with console.capture() as capture:
        console.print(table(profile))
    lines = capture.get().splitlines()
    return "\n".join(line.rstrip() for line in lines)


def _title(profile: Profile) -> str:
    devices = ", ".join(profile.recording.devices()) or "nothing"
    return (
        f"Kernels of a training step on {devices}" if profile.step_us else f"Kernels on {devices}"
    )


def _caption(profile: Profile) -> str:
    if not profile.rows:
        return _NO_KERNEL
    return "\n".join(f"{name}: {value}" for name, value in summary(profile))


def _percent(share: float) -> str:
    return f"{100 * share:.1f}%"
