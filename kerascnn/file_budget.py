"""What a file may take beside what it holds, while a model is made of its configuration.

A configuration of some kB can ask for weights, tables and lists of any size. Layers, metrics and
ops that make such things ask here first; where no file is read, or a trusted one, they get all.
"""

from __future__ import annotations

import contextlib
import contextvars
from collections.abc import Iterator

from kerascnn import registration

# Layers may have weights that no file holds, of a megabyte; metrics count in what is not saved.
_OF_LAYERS, _OF_METRICS = 1 << 20, 16 << 20
# Ops number the places of an axis on the host while a model is made, 8 bytes each.
_OF_POSITIONS = 32 << 20

_budget: contextvars.ContextVar[dict[str, int] | None] = contextvars.ContextVar(
    "budget", default=None
)


@contextlib.contextmanager
def weight_budget(held: int) -> Iterator[None]:
    """In this block, a file is read, which cannot take memory for weights that it does not hold.

    Layers can make weights of twice `held` bytes together and a megabyte, metrics state of 16, ops
    constants of 16. What ops number place by place is 32 megabytes at a time, or `held`.
    There is no such limit where files are trusted, which `safe_mode=False` says.

    Args:
        held: How many bytes of arrays the file holds.
    """
    limits = {"layer": 2 * held + _OF_LAYERS, "metric": _OF_METRICS, "op": _OF_METRICS}
    limits["positions"] = max(_OF_POSITIONS, held)
    token = _budget.set(None if registration.in_safe_mode() is False else limits)
    try:
        yield
    finally:
        _budget.reset(token)


def charge_weight(nbytes: int, name: str, kind: str = "layer") -> None:
    """Takes a weight off the budget, where there is one.

    Args:
        nbytes: Its size.
        name: Of the object that makes it.
        kind: What that is, "layer", "metric" or "op".

    Raises:
        ValueError: where it is more than what is left.
    """
    left = _budget.get()
    if left is None:
        return
    if nbytes > left[kind]:
        raise ValueError(
            f"The configuration asks for weights of {nbytes} bytes in {kind} '{name}', more than "
            "the file holds. The file is damaged or was made to fill memory. Where you trust its "
            "source, pass safe_mode=False."
        )
    left[kind] -= nbytes


def check_positions(count: int, name: str) -> None:
    """Refuses a list of positions that is too long for the file that is read, where one is.

    Args:
        count: How many positions there are.
        name: Of what lists them, for the error.

    Raises:
        ValueError: for more than the file may take.
    """
    left = _budget.get()
    if left is not None and 8 * count > left["positions"]:
        raise ValueError(
            f"The configuration has {count} places in {name}, which would be listed one by one. "
            f"Files of this size may have {left['positions'] // 8}. The file is damaged or was "
            "made to fill memory. Where you trust its source, pass safe_mode=False."
        )
