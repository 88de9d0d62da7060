"""Events in the JSON form that Perfetto and Chrome's about:tracing read.

Format: "Trace Event Format", Google, 2016 (complete events and metadata events).
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from kerascnn.profiler.events import without_prefix

if TYPE_CHECKING:
    from kerascnn.profiler.profile import Profile


def trace(profile: Profile) -> str:
    """Returns the text of a file with a process for each device and a track for each stream."""
    recording, prefix = profile.recording, profile._prefix
    devices = {device: number for number, device in enumerate(recording.devices())}
    events: list[dict[str, Any]] = [
        {"name": "process_name", "ph": "M", "pid": number, "args": {"name": device}}
        for device, number in devices.items()
    ]
    tracks: dict[tuple[int, int], None] = {}
    for call, kernel, track, start, end in recording.events.tolist():
        info = recording.calls[call]
        process = devices[info["device"]]
        tracks[process, track] = None
        events.append(
            {
                "name": recording.name(call, kernel),
                "cat": info["phase"],
                "ph": "X",
                "ts": start * 1e-3,
                "dur": (end - start) * 1e-3,
                "pid": process,
                "tid": track,
                "args": {
                    "layer": without_prefix(info["layer"], prefix),
                    "phase": info["phase"],
                    "op": info["op"],
                    "planned": info["kernel"],
                    "flop": info["flop"],
                    "bytes": info["bytes"],
                },
            }
        )
    names = {number: device for device, number in devices.items()}
    for process, track in tracks:
        what = "thread" if names[process] == "cpu" else "stream"
        name = {"name": f"{what} {track}"}
        events.append(
            {"name": "thread_name", "ph": "M", "pid": process, "tid": track, "args": name}
        )
    return json.dumps({"traceEvents": events, "displayTimeUnit": "ns"})
