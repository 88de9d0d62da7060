"""State that changes only in some steps, in a compiled step without branches."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from kerascnn import ops, tracing
from kerascnn.variable import Variable


def assign_where(
    predicate: Any,
    variables: Sequence[Variable],
    then: Callable[[], None],
    otherwise: Callable[[], None] | None = None,
) -> None:
    """Lets `then` assign to variables where a predicate holds, else `otherwise`.

    At once, only the one that applies runs. Inside a trace both are recorded and every variable
    takes the value that applies, so a step costs as much either way.

    Args:
        predicate: A bool of shape ().
        variables: All variables that either of them may assign to.
        then: Assigns to variables; what it computes must not depend on the host.
        otherwise: The same for the other case; by default nothing changes then.
    """
    if tracing.current() is None:
        if bool(np.asarray(predicate)):
            then()
        elif otherwise is not None:
            otherwise()
        return
    variables = list({id(v): v for v in variables}.values())
    before = [v.value for v in variables]
    then()
    taken = [v.value for v in variables]
    if otherwise is not None:
        for variable, value, old in zip(variables, taken, before, strict=True):
            if not _same(value, old):
                variable.assign(old)
        otherwise()
    left = [v.value for v in variables]
    if otherwise is None:
        left = before
    for variable, value, other in zip(variables, taken, left, strict=True):
        if not _same(value, other):
            variable.assign(ops.where(predicate, value, other))


def _same(a: Any, b: Any) -> bool:
    return a is b or a.id == b.id
