"""GradientTape: records what is computed, and takes gradients of it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from types import TracebackType
from typing import Any

from kerascnn import _core, dtypes, ops, tracing, trees
from kerascnn.ops import dispatch
from kerascnn.trace_tape import TraceTape
from kerascnn.variable import Variable, variable_of


class GradientTape:
    """Records calls of ops, to take gradients through them.

    In its block, what is computed from watched tensors and variables is recorded; trainable
    variables are watched when they are read. Blocks nest: an outer tape records the gradients that
    an inner one takes, which gives derivatives of higher order. In a function that is being
    compiled (`jit`, a `train_step`) it means the same.

    Args:
        persistent: Whether gradients can be taken more than once. What was recorded is then kept as
            long as the results are.
        watch_accessed_variables: Whether trainable variables are watched when they are read.

    Example:

    >>> import kerascnn as keras
    >>> x = keras.ops.convert_to_tensor(3.0)
    >>> with keras.GradientTape() as outer:
    ...     outer.watch(x)
    ...     with keras.GradientTape() as tape:
    ...         tape.watch(x)
    ...         y = x * x * x
    ...     slope = tape.gradient(y, x)
    >>> float(slope), float(outer.gradient(slope, x))
    (27.0, 18.0)
    """

    def __init__(self, persistent: bool = False, watch_accessed_variables: bool = True) -> None:
        self._persistent = bool(persistent)
        self._watches_variables = bool(watch_accessed_variables)
        self._entered = False
        self._tape: Any = self._tape_for(None)

    def _tape_for(self, trace: Any) -> Any:
        """Returns what records: a tape for a trace, or one for calls that run at once."""
        if trace is None:
            return _core.Tape(self._persistent, self._watches_variables)
        return TraceTape(trace, self._persistent, self._watches)

    def _watches(self, variable: Any) -> bool:
        return self._watches_variables and variable.trainable and dtypes.is_float(variable.dtype)

    def __enter__(self) -> GradientTape:
        if self._entered:
            raise ValueError(
                "GradientTape: the tape is in use: its block has begun already. Make one tape for "
                "each block."
            )
        self._entered = True
        trace = tracing.current()
        if trace is not getattr(self._tape, "trace", None):
            self._tape = self._tape_for(trace)
        self._tape.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._entered = False
        self._tape.stop()

    def watch(self, tensor: Any) -> None:
        """Records what is computed from a tensor, a variable, or nested ones.

        Args:
            tensor: Floating tensors or variables, nested in any way. Trainable variables are
                watched by themselves when they are read.

        Raises:
            TypeError: for what is not floating, or no tensor.
            ValueError: outside of the tape's block.

        Example:

        >>> import kerascnn as keras
        >>> x = keras.ops.convert_to_tensor(3.0)
        >>> with keras.GradientTape() as tape:
        ...     tape.watch(x)
        ...     y = x * x
        >>> float(tape.gradient(y, x))
        6.0
        """
        for x in trees.leaves(tensor):
            if isinstance(x, Variable):
                self._tape.watch(x.core)
            elif dispatch.is_tensor(x):
                self._tape.watch(dispatch.convert(x))
            else:
                raise TypeError(
                    "watch: only tensors and variables can be watched; make a tensor of the data "
                    f"first (ops.convert_to_tensor). Received: {x!r} of type {type(x).__name__}"
                )

    @contextlib.contextmanager
    def stop_recording(self) -> Iterator[None]:
        """A block in which this tape does not record."""
        if not self._tape.is_recording:
            raise ValueError("stop_recording: the tape does not record; its block has ended.")
        self._tape.pause()
        try:
            yield
        finally:
            self._tape.resume()

    def reset(self) -> None:
        """Forgets everything: as if the block began anew."""
        self._tape.reset()

    def watched_variables(self) -> tuple[Variable, ...]:
        """The variables that were watched, in the order in which they were first read."""
        found = [variable_of(core) for core in self._tape.watched_variables()]
        return tuple(variable for variable in found if variable is not None)

    def gradient(
        self,
        target: Any,
        sources: Any,
        output_gradients: Any = None,
        unconnected_gradients: str = "none",
    ) -> Any:
        """d target / d source, summed over all elements of the targets.

        Args:
            target: A floating tensor, or nested ones.
            sources: Tensors that were watched or computed while the tape recorded, and variables,
                nested in any way.
            output_gradients: What each target's elements are weighted by, of the targets' structure
                and shapes; ones by default.
            unconnected_gradients: "none" or "zero": what a source gets that no target depends on.

        Returns:
            A gradient for each source, in the structure of `sources`; None (or zeros) where a
            target does not depend on it.

        Raises:
            ValueError: for a tape that is not persistent and has been used, where the way leads
                through an op without a gradient, or where what a gradient needs was overwritten.
            TypeError: for a target that is not floating.

        Example:

        >>> import kerascnn as keras
        >>> weight = keras.Variable([1.0, 2.0])
        >>> with keras.GradientTape() as tape:
        ...     loss = keras.ops.sum(weight * weight)
        >>> tape.gradient(loss, weight).numpy()
        array([2., 4.], dtype=float32)
        """
        if unconnected_gradients not in ("none", "zero"):
            raise ValueError(
                "`unconnected_gradients` must be 'none' or 'zero'. Received: "
                f"unconnected_gradients={unconnected_gradients!r}"
            )
        targets = [_target(x) for x in trees.flatten(target)]
        weights = trees.flatten(output_gradients)
        if output_gradients is None:
            weights = [None] * len(targets)
        if len(weights) != len(targets):
            raise ValueError(
                f"`output_gradients` has {len(weights)} tensors for {len(targets)} targets."
            )
        flat = trees.flatten(sources)
        found = self._gradients(targets, weights, flat)
        if unconnected_gradients == "zero":
            found = [
                ops.zeros_like(_readable(source)) if gradient is None else gradient
                for source, gradient in zip(flat, found, strict=True)
            ]
        return trees.pack_as(sources, found)

    def jacobian(self, target: Any, sources: Any, unconnected_gradients: str = "none") -> Any:
        """The derivative of each element of a target: target.shape + source.shape for each source.

        Takes one gradient for each element, so the tape must be persistent.

        Example:

        >>> x = keras.ops.convert_to_tensor([1.0, 2.0])
        >>> with keras.GradientTape(persistent=True) as tape:
        ...     tape.watch(x)
        ...     y = x * x
        >>> tape.jacobian(y, x).numpy().tolist()
        [[2.0, 0.0], [0.0, 4.0]]
        """
        if not self._persistent:
            raise ValueError(
                "jacobian takes one gradient for each element of the target: use "
                "GradientTape(persistent=True)."
            )
        shape = tuple(target.shape)
        size = 1
        for extent in shape:
            size *= extent
        unit = ops.eye(size, dtype=target.dtype)
        rows = [
            trees.flatten(
                self.gradient(target, sources, ops.reshape(unit[i], shape), unconnected_gradients)
            )
            for i in range(size)
        ]
        results: list[Any] = []
        for place, source in enumerate(trees.flatten(sources)):
            column = [row[place] for row in rows]
            if any(part is None for part in column):
                results.append(None)
            else:
                results.append(ops.reshape(ops.stack(column), (*shape, *source.shape)))
        return trees.pack_as(sources, results)

    def _gradients(self, targets: list[Any], weights: list[Any], sources: list[Any]) -> list[Any]:
        for source in sources:
            _check_source(source)
        trace = tracing.current()
        if trace is not getattr(self._tape, "trace", None):
            raise ValueError(
                "gradient: the tape recorded a function that was being compiled, and it has ended; "
                "take gradients inside of it."
                if trace is None
                else "gradient: the tape's block began outside of the function that is being "
                "compiled; begin it inside, or take the gradient where the block is."
            )
        for x in targets:
            if trace is None and isinstance(x, _core.Value):
                raise ValueError(
                    "gradient: the target is a symbolic value of a trace that has ended; take "
                    "gradients inside of the compiled function."
                )
        weights = [
            None if w is None else dispatch.convert(w, t.dtype, like=t)
            for w, t in zip(weights, targets, strict=True)
        ]
        flat = [x.core if isinstance(x, Variable) else dispatch.convert(x) for x in sources]
        return list(self._tape.gradients([dispatch.convert(x) for x in targets], weights, flat))


def _target(x: Any) -> Any:
    if isinstance(x, Variable):
        return x.value
    if not dispatch.is_tensor(x):
        raise TypeError(
            "gradient: a target must be a tensor that was computed while the tape recorded. "
            f"Received: {x!r} of type {type(x).__name__}"
        )
    return x


def _check_source(x: Any) -> None:
    if not isinstance(x, Variable) and not dispatch.is_tensor(x):
        raise TypeError(
            "gradient: a source must be a tensor or a variable. Received: "
            f"{x!r} of type {type(x).__name__}"
        )
    if dispatch.dtypes.is_float(x.dtype):
        return
    raise TypeError(
        f"gradient: a source is {x.dtype} of shape {tuple(x.shape)}, and gradients are taken by "
        "floating tensors only; cast it before it is used."
    )


def _readable(source: Any) -> Any:
    return source.value if isinstance(source, Variable) else source
