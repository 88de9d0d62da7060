"""Reports what is installed, what was found, and how to get the rest."""

from __future__ import annotations

import platform
import sys
from typing import Any

from kerascnn import _core, cuda_package

__version__: str = str(_core.build_info()["version"])

_REMEDY = (
    "To train on an NVIDIA GPU, install the driver (CUDA 13 or later), and kerascnn with CUDA: "
    'KERASCNN_CUDA=ON pip install ".[cuda13]" in the folder of its sources, or pip install '
    '"kerascnn[cuda13]" once it is released (docs/install.md). '
    "On the CPU everything works without them."
)
_REMEDY_WITH_BACKEND = (
    "The CUDA backend is installed. To train on an NVIDIA GPU it needs the driver (CUDA 13 or "
    "later). On the CPU everything works without it."
)


def collect() -> dict[str, Any]:
    """Returns versions, build settings and devices as plain values."""
    import importlib.metadata

    devices = [
        {"name": name, "usable": bool(usable), "description": description}
        for name, usable, description in _core.list_devices()
    ]
    build = dict(_core.build_info())
    names = ["numpy", "ml_dtypes", "rich", "h5py"]
    if cuda_package.find() is not None:
        names.append(cuda_package.DISTRIBUTION)
        build.pop("cuda_missing_reason", None)  # The backend is there, in a package of its own.
    packages = {}
    for name in names:
        try:
            packages[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            packages[name] = "not installed"
    return {
        "kerascnn": __version__,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "packages": packages,
        "build": build,
        "devices": devices,
        "kernels": {"compiler": _core.nvrtc_state(), **_core.compiled_kernels()},
    }


def version() -> str:
    """The version of kerascnn, as `__version__`.

    Returns:
        Such as "0.1.0".

    Example:

    >>> import kerascnn as keras
    >>> keras.version() == keras.__version__
    True
    """
    return __version__


def show_versions(file: Any = None) -> None:
    """Prints versions, devices and libraries; for what is missing, the reason and the remedy.

    Args:
        file: Where to, by default standard output.

    Example:

    >>> import kerascnn as keras
    >>> import io
    >>> report = io.StringIO()
    >>> keras.show_versions(report)
    >>> [line for line in report.getvalue().splitlines() if line in ("Build", "Devices")]
    ['Build', 'Devices']
    """
    found = collect()
    lines = [
        f"kerascnn     {found['kerascnn']}",
        f"Python       {found['python']} on {found['platform']}",
        *(f"{name:<12} {version}" for name, version in found["packages"].items()),
        "",
        "Build",
        *(f"  {name}: {value}" for name, value in found["build"].items() if value),
        "",
        "Devices",
    ]
    for entry in found["devices"]:
        state = "usable" if entry["usable"] else "not usable"
        lines.append(f"  {entry['name']}: {state}. {entry['description']}")
    gpus = [entry for entry in found["devices"] if entry["name"] != "cpu" and entry["usable"]]
    cuda = getattr(_core, "cuda_versions", None)
    if gpus and cuda is not None:
        lines.append(f"  CUDA libraries: {cuda()}")
    if not gpus:
        if len(found["devices"]) == 1:
            lines.append("  cuda: not usable. This build found no CUDA library or no NVIDIA GPU.")
        has_backend = not found["build"].get("cuda_missing_reason")
        lines.append(f"  {_REMEDY_WITH_BACKEND if has_backend else _REMEDY}")
    lines += ["", "Kernels that are compiled for a GPU while a program runs", *_kernel_lines(found)]
    print("\n".join(lines), file=file or sys.stdout)


def _kernel_lines(found: dict[str, Any]) -> list[str]:
    kernels = found["kernels"]
    lines = [f"  compiler: {kernels['compiler']}"]
    if kernels["folder"] and kernels["max_bytes"]:
        count = kernels["num_kernels"]
        lines.append(
            f"  kept in {kernels['folder']}: {count} {'kernel' if count == 1 else 'kernels'}, "
            f"{kernels['bytes'] / 2**20:.1f} of at most {kernels['max_bytes'] / 2**20:.0f} MiB"
        )
    if kernels["problem"]:
        lines.append(f"  not kept for the next process: {kernels['problem']}")
    return lines
