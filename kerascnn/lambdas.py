"""Functions without a name as text, for configurations that are read with `safe_mode=False`.

The text is Python's own compiled form, so it belongs to one version of Python, and reading it gives
a function that can do anything: only `kerascnn.serialization` reads it, and only outside of safe
mode.
"""

from __future__ import annotations

import base64
import marshal
import types
from typing import Any


def dump(function: Any) -> list[Any]:
    """Returns code, defaults and closed-over values in a form that JSON can hold."""
    closure = function.__closure__
    return [
        base64.encodebytes(marshal.dumps(function.__code__)).decode("ascii"),
        function.__defaults__,
        None if closure is None else [cell.cell_contents for cell in closure],
    ]


def load(config: Any) -> types.FunctionType:
    """The function of what `dump` (or Keras) wrote, seeing what users have as `keras` and `np`.

    Args:
        config: `{"value": [code, defaults, closure]}` or a dictionary with these keys.
    """
    import numpy

    import kerascnn

    if "code" in config:
        parts = (config["code"], config.get("defaults"), config.get("closure"))
    else:
        value = config["value"]
        parts = (value, None, None) if isinstance(value, str) else tuple(value)
    text, defaults, closure = parts
    code = marshal.loads(base64.decodebytes(text.encode("ascii")))
    names = {"keras": kerascnn, "kerascnn": kerascnn, "ops": kerascnn.ops, "np": numpy}
    cells = None if closure is None else tuple(types.CellType(value) for value in closure)
    return types.FunctionType(
        code,
        {"__builtins__": __builtins__, **names},
        name=code.co_name,
        argdefs=None if defaults is None else tuple(defaults),
        closure=cells,
    )
