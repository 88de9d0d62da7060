"""Long short-term memory: the layer and its cell."""

from __future__ import annotations

from typing import Any

from kerascnn import initializers, ops
from kerascnn.layers.input_spec import InputSpec
from kerascnn.layers.recurrent.cell_layer import CellLayer, checked_use_cudnn, of_cell
from kerascnn.layers.recurrent.gated_cell import DenseCell, RecurrentParts


class LSTMCell(DenseCell):
    """One step of long short-term memory.

    Gates i, f, o and a candidate g are made from input and state, each with a part of the kernels;
    then carry = f * carry + i * g, and output = o * activation(carry).

    Args:
        units: Size of the state.
        activation: A name or a function for the candidate and the output, None for none.
        recurrent_activation: The same for the gates.
        use_bias: Whether numbers are added in each gate.
        kernel_initializer: First values of the input's kernel.
        recurrent_initializer: First values of the state's kernel.
        bias_initializer: First values of the bias.
        unit_forget_bias: Whether the bias of the forget gate begins at 1.
        kernel_regularizer: A penalty on the input's kernel.
        recurrent_regularizer: A penalty on the state's kernel.
        bias_regularizer: A penalty on the bias.
        kernel_constraint: A callable that the input's kernel goes through after each update.
        recurrent_constraint: The same for the state's kernel.
        bias_constraint: The same for the bias.
        dropout: In training, the share of the inputs that are set to 0.
        recurrent_dropout: The same for the state; both are the same elements in all time steps.
        seed: An integer for a generator of this cell's own; by default the program's is used.

    Call arguments: (inputs, states, training=False), with inputs of one step, (n, inputs), and
    states, a list of two tensors (n, units): the last output and the carry.

    Output: (output (n, units), the new states)

    Raises:
        ValueError: for units that are no positive integer.

    Source: Hochreiter and Schmidhuber, "Long Short-Term Memory", 1997.

    Example:

    >>> import kerascnn as keras
    >>> cell = keras.layers.LSTMCell(4)
    >>> output, states = cell(keras.ops.ones((2, 3)), cell.get_initial_state(2))
    >>> output.shape, len(states)
    ((2, 4), 2)
    """

    gates = 4

    def __init__(
        self,
        units: int,
        activation: Any = "tanh",
        recurrent_activation: Any = "sigmoid",
        use_bias: bool = True,
        kernel_initializer: Any = "glorot_uniform",
        recurrent_initializer: Any = "orthogonal",
        bias_initializer: Any = "zeros",
        unit_forget_bias: bool = True,
        kernel_regularizer: Any = None,
        recurrent_regularizer: Any = None,
        bias_regularizer: Any = None,
        kernel_constraint: Any = None,
        recurrent_constraint: Any = None,
        bias_constraint: Any = None,
        dropout: float = 0.0,
        recurrent_dropout: float = 0.0,
        seed: Any = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(
            units,
            activation=activation,
            recurrent_activation=recurrent_activation,
            use_bias=use_bias,
            kernel_initializer=kernel_initializer,
            recurrent_initializer=recurrent_initializer,
            bias_initializer=bias_initializer,
            kernel_regularizer=kernel_regularizer,
            recurrent_regularizer=recurrent_regularizer,
            bias_regularizer=bias_regularizer,
            kernel_constraint=kernel_constraint,
            recurrent_constraint=recurrent_constraint,
            bias_constraint=bias_constraint,
            dropout=dropout,
            recurrent_dropout=recurrent_dropout,
            seed=seed,
            **kwargs,
        )
        if self.implementation == 1:
            self.dropout_mask_count = 4
        self.unit_forget_bias = unit_forget_bias
        self.state_size = [self.units, self.units]

    def _first_bias(self) -> Any:
        return forget_bias(self.bias_initializer, self.units, self.unit_forget_bias)

    def step(self, projected: Any, states: Any, parts: RecurrentParts) -> tuple[Any, list[Any]]:
        return lstm_step(self, projected, states, parts)

    def arguments_config(self) -> dict[str, Any]:
        return {**super().arguments_config(), "unit_forget_bias": self.unit_forget_bias}


def forget_bias(initializer: Any, units: int, begins_at_one: bool) -> Any:
    """Returns the initializer of the gates' bias, in which the forget gate's part can be 1."""
    if not begins_at_one:
        return initializer

    def initialize(shape: Any, dtype: Any = None) -> Any:
        parts = [
            initializer((units,), dtype=dtype),
            initializers.Ones()((units,), dtype=dtype),
            initializer((2 * units,), dtype=dtype),
        ]
        return ops.concatenate(parts)

    return initialize


def lstm_step(
    cell: Any, projected: Any, states: Any, parts: RecurrentParts
) -> tuple[Any, list[Any]]:
    """Computes a step with the gates i, f, g, o, whatever the kernels do."""
    hidden, carry = states
    gates = ops.add(projected, cell._recurrent_product(hidden, parts))
    i, f, g, o = ops.split(gates, 4, axis=cell._gate_axis)
    kept = ops.multiply(cell.recurrent_activation(f), carry)
    carry = ops.add(kept, ops.multiply(cell.recurrent_activation(i), cell.activation(g)))
    hidden = ops.multiply(cell.recurrent_activation(o), cell.activation(carry))
    return hidden, [hidden, carry]


class LSTM(CellLayer):
    """Long short-term memory: `LSTMCell` for each step of a sequence.

    Args:
        units: Size of the state, which is the output.
        activation: A name or a function for the candidate and the output, None for none.
        recurrent_activation: The same for the gates.
        use_bias: Whether numbers are added in each gate.
        kernel_initializer: First values of the input's kernel.
        recurrent_initializer: First values of the state's kernel.
        bias_initializer: First values of the bias.
        unit_forget_bias: Whether the bias of the forget gate begins at 1.
        kernel_regularizer: A penalty on the input's kernel.
        recurrent_regularizer: A penalty on the state's kernel.
        bias_regularizer: A penalty on the bias.
        activity_regularizer: A penalty on the output.
        kernel_constraint: A callable that the input's kernel goes through after each update.
        recurrent_constraint: The same for the state's kernel.
        bias_constraint: The same for the bias.
        dropout: In training, the share of the inputs that are set to 0.
        recurrent_dropout: The same for the state; both are the same elements in all time steps.
        seed: An integer for a generator of this layer's own; by default the program's is used.
        return_sequences: Whether the outputs of all steps are returned, or only the last one's.
        return_state: Whether the last output and the carry are returned too.
        go_backwards: Whether it begins with the last step; outputs are in the order of computing.
        stateful: Whether a batch begins with the states that the one before ended with.
        unroll: Whether a compiled step holds a copy of the loop's body for each time step.
        use_cudnn: "auto" and True have the whole sequence computed by one op where there is one for
            the arguments, True with an error where there is none; False never.

    Call arguments: (sequences, initial_state=None, mask=None, training=False). `initial_state` is a
    list of two tensors (n, units), output and carry; the mask (n, steps) is False where a step is
    to be passed over.

    Input: (n, steps, inputs)

    Output: (n, units), or (n, steps, units) with `return_sequences`; with `return_state` a tuple of
    that and the last output and carry, (n, units) each.

    Raises:
        ValueError: for units that are no positive integer, for `use_cudnn=True` where there is no
            op for the arguments, and as `RNN`.

    Source: Hochreiter and Schmidhuber, "Long Short-Term Memory", 1997.

    Example:

    >>> import kerascnn as keras
    >>> layer = keras.layers.LSTM(4, return_sequences=True, return_state=True)
    >>> [x.shape for x in layer(keras.ops.ones((2, 5, 3)))]
    [(2, 5, 4), (2, 4), (2, 4)]
    """

    def __init__(
        self,
        units: int,
        activation: Any = "tanh",
        recurrent_activation: Any = "sigmoid",
        use_bias: bool = True,
        kernel_initializer: Any = "glorot_uniform",
        recurrent_initializer: Any = "orthogonal",
        bias_initializer: Any = "zeros",
        unit_forget_bias: bool = True,
        kernel_regularizer: Any = None,
        recurrent_regularizer: Any = None,
        bias_regularizer: Any = None,
        activity_regularizer: Any = None,
        kernel_constraint: Any = None,
        recurrent_constraint: Any = None,
        bias_constraint: Any = None,
        dropout: float = 0.0,
        recurrent_dropout: float = 0.0,
        seed: Any = None,
        return_sequences: bool = False,
        return_state: bool = False,
        go_backwards: bool = False,
        stateful: bool = False,
        unroll: bool = False,
        use_cudnn: Any = "auto",
        **kwargs: Any,
    ) -> None:
        cell = LSTMCell(
            units,
            activation=activation,
            recurrent_activation=recurrent_activation,
            use_bias=use_bias,
            kernel_initializer=kernel_initializer,
            recurrent_initializer=recurrent_initializer,
            bias_initializer=bias_initializer,
            kernel_regularizer=kernel_regularizer,
            recurrent_regularizer=recurrent_regularizer,
            bias_regularizer=bias_regularizer,
            kernel_constraint=kernel_constraint,
            recurrent_constraint=recurrent_constraint,
            bias_constraint=bias_constraint,
            dropout=dropout,
            recurrent_dropout=recurrent_dropout,
            seed=seed,
            unit_forget_bias=unit_forget_bias,
            dtype=kwargs.get("dtype"),
            trainable=kwargs.get("trainable", True),
            name="lstm_cell",
            implementation=kwargs.pop("implementation", 2),
        )
        super().__init__(
            cell,
            return_sequences=return_sequences,
            return_state=return_state,
            go_backwards=go_backwards,
            stateful=stateful,
            unroll=unroll,
            activity_regularizer=activity_regularizer,
            **kwargs,
        )
        self.input_spec = InputSpec(ndim=3)
        self.use_cudnn = checked_use_cudnn(use_cudnn)

    units = of_cell("units")
    recurrent_activation = of_cell("recurrent_activation")
    unit_forget_bias = of_cell("unit_forget_bias")
