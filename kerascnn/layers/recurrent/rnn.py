"""RNN: a cell, applied to the steps of a sequence one after another."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator
from typing import Any

from kerascnn import dtypes, file_budget, ops, serialization, tracing, trees
from kerascnn.layers.call_arguments import call_parameters
from kerascnn.layers.layer import Layer
from kerascnn.layers.recurrent import fused
from kerascnn.layers.recurrent.dropout_rnn_cell import DropoutRNNCell
from kerascnn.layers.recurrent.gated_cell import DenseCell, GatedCell, RecurrentParts
from kerascnn.layers.recurrent.stacked_rnn_cells import StackedRNNCells, apply_cell, check_cell
from kerascnn.layers.state import LayerState
from kerascnn.ops.recurrence import checked_mask, rnn
from kerascnn.symbolic.keras_tensor import KerasTensor
from kerascnn.variable import Variable


class RNN(Layer):
    """Applies a cell to each step of a sequence, with the state that the step before left.

    A cell has `call(inputs, states)`, which returns the output of a step and the new states, and
    `state_size`: an integer or a list of them, a size for each state. It can have `output_size`,
    by default the first state's, and `get_initial_state(batch_size=None)`, by default zeros.

    Args:
        cell: A cell, or a list of cells that are applied one after another in each step.
        return_sequences: Whether the outputs of all steps are returned, or only the last one's.
        return_state: Whether the last states are returned too.
        go_backwards: Whether it begins with the last step; outputs are in the order of computing.
        stateful: Whether a batch begins with the states that the one before ended with, sample by
            sample. The batch size has to be fixed then, `Input(batch_shape=...)`.
        unroll: Whether a compiled step holds a copy of the loop's body for each time step.
        zero_output_for_mask: Whether outputs of masked steps are zeros; by default they are those
            of the step before.

    Call arguments: (sequences, initial_state=None, mask=None, training=False). `initial_state` is a
    list of tensors; the mask (n, steps) is False where a step is to be passed over.

    Input: (n, steps, ...)

    Output: (n, units), or (n, steps, units) with `return_sequences`; with `return_state` a tuple of
    that and the states.

    Raises:
        ValueError: for a cell without `call` or `state_size`; when built, for a stateful layer
            without a batch size; when called, for another batch size than that, for sequences
            without steps, and for a mask that has other ones.

    Example:

    >>> import kerascnn as keras
    >>> cells = [keras.layers.LSTMCell(4), keras.layers.GRUCell(3)]
    >>> keras.layers.RNN(cells, return_sequences=True)(keras.ops.ones((2, 5, 8))).shape
    (2, 5, 3)
    """

    # The states of a stateful layer do not count as weights: files and `get_weights` leave them
    # out.
    _not_owned = (*LayerState._not_owned, "states")

    def __init__(
        self,
        cell: Any,
        return_sequences: bool = False,
        return_state: bool = False,
        go_backwards: bool = False,
        stateful: bool = False,
        unroll: bool = False,
        zero_output_for_mask: bool = False,
        **kwargs: Any,
    ) -> None:
        if isinstance(cell, (list, tuple)):
            cell = StackedRNNCells(cell)
        check_cell(cell)
        super().__init__(**kwargs)
        self.zero_output_for_mask = zero_output_for_mask
        self.cell = cell
        self.return_sequences = return_sequences
        self.return_state = return_state
        self.go_backwards = go_backwards
        self.stateful = stateful
        self.unroll = unroll
        self.states: list[Any] | None = None
        size = cell.state_size
        if size is None or not isinstance(size, (list, tuple, int)):
            raise ValueError(
                "`state_size` of a recurrent cell must be an integer, or a list of integers, one "
                f"for each state. Received: state_size={size!r}"
            )
        self.single_state = isinstance(size, int)
        self.state_size = [size] if isinstance(size, int) else list(size)

    # Shapes --------------------------------------------------------------------------------------

    def compute_output_shape(self, sequences_shape: Any, initial_state_shape: Any = None) -> Any:
        batch, steps = sequences_shape[0], sequences_shape[1]
        size = getattr(self.cell, "output_size", None)
        size = self.state_size[0] if size is None else size
        if not isinstance(size, int):
            raise ValueError(
                f"`output_size` of a recurrent cell must be an integer. Received: {size!r}"
            )
        output = (batch, steps, size) if self.return_sequences else (batch, size)
        if not self.return_state:
            return output
        states = [
            (batch, size) if isinstance(size, int) else [(batch, part) for part in size]
            for size in self.state_size
        ]
        return (output, *states)

    def compute_output_spec(
        self, sequences: Any, initial_state: Any = None, mask: Any = None, training: Any = False
    ) -> Any:
        if self.unroll and sequences.shape[1] is None:
            raise ValueError(
                f"Layer '{self.name}' cannot unroll a sequence of unknown length. Give the number "
                "of time steps in the shape of keras.Input, or leave unroll=True out."
            )
        shapes = self.compute_output_shape(tuple(sequences.shape))
        return trees.map_shapes(lambda shape: KerasTensor(shape, self.compute_dtype), shapes)

    def compute_mask(self, _: Any, mask: Any) -> Any:
        """The mask of the output; states have none."""
        mask = trees.flatten(mask)[0]
        output = mask if self.return_sequences else None
        return [output, *[None] * len(self.state_size)] if self.return_state else output

    # States --------------------------------------------------------------------------------------

    def build(self, sequences_shape: Any, initial_state_shape: Any = None) -> None:
        step_shape = (sequences_shape[0], *sequences_shape[2:])
        if isinstance(self.cell, Layer) and not self.cell.built:
            self.cell.build(step_shape)
            self.cell.built = True
        if not self.stateful:
            return
        if self.states is not None:
            self.reset_state()
            return
        if sequences_shape[0] is None:
            raise ValueError(
                f"Layer '{self.name}' is stateful and needs to know the batch size, as in "
                f"keras.Input(batch_shape=...). Received: sequence.shape={tuple(sequences_shape)}"
            )
        self._create_state_variables(sequences_shape[0])

    def _create_state_variables(self, batch_size: int) -> None:
        def variable(value: Any) -> Variable:
            return Variable(value, dtype=self.variable_dtype, trainable=False, name="rnn_state")

        sizes = [n for n in trees.flatten(self.state_size) if isinstance(n, int)]
        # the images of ConvLSTM have so many places
        places = math.prod(n or 1 for n in getattr(self.cell, "_state_sizes", ()))
        size = batch_size * sum(sizes) * places * dtypes.ITEMSIZE[self.variable_dtype]
        file_budget.charge_weight(size, self.name)
        self.states = trees.map_structure(variable, self.get_initial_state(batch_size))

    def get_initial_state(self, batch_size: int) -> list[Any]:
        """The states before the first step, by default those that the cell says."""
        initial = getattr(self.cell, "get_initial_state", None)
        if initial is None:
            dtype = self._cell_dtype()
            return [ops.zeros((batch_size, size), dtype=dtype) for size in self.state_size]
        states = initial(batch_size=batch_size)
        return list(states) if isinstance(states, (list, tuple)) else [states]

    def reset_state(self) -> None:
        """Sets the states of a stateful layer to zeros."""
        for variable in trees.flatten(self.states) if self.states is not None else []:
            variable.assign(ops.zeros(variable.shape, dtype=variable.dtype))

    def reset_states(self) -> None:
        """The same as `reset_state`."""
        self.reset_state()

    def _cell_dtype(self) -> str:
        return str(getattr(self.cell, "compute_dtype", self.compute_dtype))

    def _first_states(self, sequences: Any, initial_state: Any) -> list[Any]:
        """Returns the initial states of a call in the cell's compute dtype."""
        batch = sequences.shape[0]
        if self.stateful:
            kept = trees.flatten(self.states)[0].shape[0]
            if kept != batch:
                raise ValueError(
                    f"Layer '{self.name}' is stateful: its batches have the size of its states.\n"
                    f"- Expected batch size: {kept}\n- Received batch size: {batch}"
                )
        are_zeros = initial_state is None and not self.stateful and self._begins_with_zeros()
        if initial_state is None:
            initial_state = self._kept_states() if self.stateful else self.get_initial_state(batch)
        if not isinstance(initial_state, (list, tuple)):
            initial_state = [initial_state]
        dtype = self._cell_dtype()
        states = trees.map_structure(
            lambda x: ops.convert_to_tensor(x, dtype=dtype), list(initial_state)
        )
        if len(states) != len(self.state_size):
            raise ValueError(
                f"Layer '{self.name}' has {len(self.state_size)} states. Received an "
                f"`initial_state` of {len(states)}."
            )
        return fused.ZeroStates(states) if are_zeros else states

    def _begins_with_zeros(self) -> bool:
        """Tells whether both the layer's and the cell's `get_initial_state` give zeros."""
        return (
            type(self).get_initial_state is RNN.get_initial_state
            and getattr(type(self.cell), "get_initial_state", None) is DenseCell.get_initial_state
        )

    def _kept_states(self) -> Any:
        """Returns the variables' values; the variables move to the weights' device if needed."""
        trace, weight = tracing.current(), self._first_weight()
        device = trace.device if trace is not None else getattr(weight, "device", None)
        for variable in trees.flatten(self.states):
            if device is not None and variable.device != device and not _is_scratch(trace):
                variable.move_to(device)
        # In an eager call, a gradient needs the values that the end of the call overwrites.
        return trees.map_structure(ops.copy if trace is None else lambda v: v.value, self.states)

    # The computation -----------------------------------------------------------------------------

    def call(
        self, sequences: Any, initial_state: Any = None, mask: Any = None, training: Any = False
    ) -> Any:
        if sequences.shape[1] == 0:
            raise ValueError(
                f"Layer '{self.name}' needs sequences of at least one time step. Received: "
                f"sequences.shape={tuple(sequences.shape)}"
            )
        states = self._first_states(sequences, initial_state)
        mask = trees.flatten(mask)[0]
        mask = None if mask is None else checked_mask(mask, sequences.shape[1])
        with self._one_draw_of_masks():
            last, outputs, states = self.inner_loop(sequences, states, mask, training)
        if self.stateful:
            pairs = zip(trees.flatten(self.states), trees.flatten(states), strict=True)
            for variable, state in pairs:
                variable.assign(state)
        output = ops.cast(outputs if self.return_sequences else last, self.compute_dtype)
        if not self.return_state:
            return output
        return (output, *trees.map_structure(lambda x: ops.cast(x, self.compute_dtype), states))

    def inner_loop(
        self, sequences: Any, initial_state: Any, mask: Any, training: Any = False
    ) -> tuple[Any, Any, Any]:
        """(last output, all outputs or None, last states); layers with a loop of their own
        override it.
        """
        if _can_project(self.cell):
            return self._projected_loop(sequences, initial_state, mask, training)
        kwargs = {}
        if isinstance(self.cell, Layer) and "training" in call_parameters(type(self.cell).call):
            kwargs["training"] = training

        def step(inputs: Any, states: Any) -> tuple[Any, Any]:
            return apply_cell(self.cell, inputs, states, **kwargs)

        cells = _dropout_cells(self.cell)
        if training and cells:
            # The masks are drawn before the loop, whose body must be the same for all steps.
            step(sequences[:, 0], initial_state)
            for cell in cells:
                cell.hold_dropout_masks(True)
        return self._loop(step, sequences, initial_state, mask)

    def _loop(self, step: Any, sequences: Any, states: Any, mask: Any) -> tuple[Any, Any, Any]:
        return rnn(
            step,
            sequences,
            list(states),
            go_backwards=self.go_backwards,
            mask=mask,
            unroll=self.unroll,
            zero_output_for_mask=self.zero_output_for_mask,
            return_all_outputs=self.return_sequences,
        )

    def _projected_loop(
        self, sequences: Any, states: Any, mask: Any, training: Any
    ) -> tuple[Any, Any, Any]:
        """Applies the kernel to all time steps at once, so that only the state's part is a loop."""
        cell = self.cell
        with tracing.scope(cell.name), cell._reading_weights():
            if dtypes.is_float(sequences.dtype):
                sequences = ops.cast(sequences, cell.compute_dtype)
            projected = cell.project(sequences, cell.input_masks(sequences[:, 0], training))
            parts = cell.recurrent_parts(cell.recurrent_masks(states[0], training))

            op = self._sequence_op(parts, mask)
            if op is not None:
                flags = (self.go_backwards, self.zero_output_for_mask)
                return fused.run(op, projected, states, parts, mask, *flags)

            def step(inputs: Any, states: Any) -> tuple[Any, Any]:
                return cell.step(inputs, states, parts)

            return self._loop(step, projected, states, mask)

    def _sequence_op(self, parts: RecurrentParts, mask: Any) -> fused.SequenceOp | None:
        """Returns the op that computes the whole sequence, or None for a loop."""
        wanted = getattr(self, "use_cudnn", "auto")
        found = fused.find(self.cell, parts, mask, self.unroll) if wanted else None
        if found is None and wanted is True:
            raise ValueError(
                f"Layer '{self.name}': use_cudnn=True, but there is no op that computes whole "
                "sequences for its arguments. It needs activation='tanh', recurrent_activation="
                "'sigmoid', no recurrent dropout, unroll=False, masks (n, steps) and, for a "
                "GRU, reset_after=True. Use use_cudnn='auto' to have a loop in all other cases."
            )
        return found

    @contextlib.contextmanager
    def _one_draw_of_masks(self) -> Iterator[None]:
        """A block with its own dropout masks."""
        cells = _dropout_cells(self.cell)
        for cell in cells:
            _forget_masks(cell)
        try:
            yield
        finally:
            for cell in cells:
                _forget_masks(cell)

    # Configuration -------------------------------------------------------------------------------

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "return_sequences": self.return_sequences,
            "return_state": self.return_state,
            "go_backwards": self.go_backwards,
            "stateful": self.stateful,
            "unroll": self.unroll,
            "zero_output_for_mask": self.zero_output_for_mask,
            "cell": serialization.serialize_object(self.cell),
        }

    @classmethod
    def from_config(
        cls, config: dict[str, Any], custom_objects: dict[str, Any] | None = None
    ) -> Any:
        config = dict(config)
        cell = config.pop("cell")
        if isinstance(cell, dict):
            cell = serialization.deserialize_object(cell, custom_objects, "kerascnn.layers")
        return cls(cell, **config)


def _is_scratch(trace: tracing.Trace | None) -> bool:
    return trace is not None and trace.scratch


def _can_project(cell: Any) -> bool:
    """Tells whether a cell's call consists of the two parts that the loop can be divided into."""
    return (
        isinstance(cell, GatedCell)
        and type(cell).call is GatedCell.call
        and cell.activity_regularizer is None
    )


def _dropout_cells(cell: Any) -> list[DropoutRNNCell]:
    """Finds the cells with dropout among a cell and its parts."""
    if isinstance(cell, StackedRNNCells):
        return [inner for part in cell.cells for inner in _dropout_cells(part)]
    return [cell] if isinstance(cell, DropoutRNNCell) else []


def _forget_masks(cell: DropoutRNNCell) -> None:
    cell.hold_dropout_masks(False)
    cell.reset_dropout_mask()
    cell.reset_recurrent_dropout_mask()
