"""Finds the CUDA backend where it is a package of its own, `kerascnn-cuda13`.

A build with KERASCNN_CUDA=ON has the backend beside the core. Wheels for everyone have none: the
extra `cuda13` brings it as a second package, so that a CPU needs a few megabytes only.
"""

from __future__ import annotations

from importlib.machinery import PathFinder

from kerascnn import _core

DISTRIBUTION = "kerascnn-cuda13"


def find() -> str | None:
    """Returns the folder of the package, which is not imported; None where it is not installed."""
    spec = PathFinder.find_spec(DISTRIBUTION.replace("-", "_"))
    if spec is None or not spec.submodule_search_locations:
        return None
    return next(iter(spec.submodule_search_locations))


def install() -> None:
    """Tells the core where to look when a GPU is asked for first; nothing is loaded."""
    folder = find()
    if folder is not None:
        _core.set_cuda_library_folder(folder)
