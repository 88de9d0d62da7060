"""Where random generators are that a training draws from and that belong to no model."""

from __future__ import annotations

import random as python_random
import sys
from typing import Any

import numpy as np

from kerascnn import seed_generators


def take() -> dict[str, Any]:
    """Returns the places of Python's, NumPy's, kerascnn's and, if it is there, PyTorch's generator.

    Data sets draw their orders from them, and users their samples.
    """
    version, numbers, gauss = python_random.getstate()
    kind, key, at, has_gauss, cached = np.random.get_state()  # noqa: NPY002
    places: dict[str, Any] = {
        "python": [version, np.array(numbers, np.int64), gauss],
        "numpy": [kind, np.asarray(key).astype(np.int64), at, has_gauss, cached],
        "draws": seed_generators.global_places(),
    }
    torch = sys.modules.get("torch")
    if torch is not None:
        places["torch"] = torch.get_rng_state().numpy().copy()
    return places


def restore(places: dict[str, Any]) -> None:
    """Makes the generators go on where `take` found them.

    Raises:
        ValueError, TypeError, KeyError: for what `take` did not return.
    """
    version, numbers, gauss = places["python"]
    python_random.setstate((version, tuple(int(n) for n in numbers), gauss))
    kind, key, at, has_gauss, cached = places["numpy"]
    np.random.set_state((kind, np.asarray(key, np.uint32), at, has_gauss, cached))  # noqa: NPY002
    seed_generators.restore_global_places(places["draws"])
    torch = sys.modules.get("torch")
    if torch is not None and "torch" in places:
        torch.set_rng_state(torch.from_numpy(np.array(places["torch"], np.uint8)))
