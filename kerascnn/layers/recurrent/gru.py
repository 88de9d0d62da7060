"""Gated recurrent units: the layer and its cell."""

from __future__ import annotations

from typing import Any

from kerascnn import ops
from kerascnn.layers.input_spec import InputSpec
from kerascnn.layers.recurrent.cell_layer import CellLayer, checked_use_cudnn, of_cell
from kerascnn.layers.recurrent.gated_cell import DenseCell, RecurrentParts


class GRUCell(DenseCell):
    """One step of gated recurrent units.

    The gates z and r and a candidate are made from input and state, each with a part of the
    kernels, the candidate of as much of the state as r lets through; the output, which is the new
    state, is z * state + (1 - z) * candidate.

    Args:
        units: Size of the state.
        activation: A name or a function for the candidate, None for none.
        recurrent_activation: The same for the gates.
        use_bias: Whether numbers are added in each gate.
        kernel_initializer: First values of the input's kernel.
        recurrent_initializer: First values of the state's kernel.
        bias_initializer: First values of the bias.
        kernel_regularizer: A penalty on the input's kernel.
        recurrent_regularizer: A penalty on the state's kernel.
        bias_regularizer: A penalty on the bias.
        kernel_constraint: A callable that the input's kernel goes through after each update.
        recurrent_constraint: The same for the state's kernel.
        bias_constraint: The same for the bias.
        dropout: In training, the share of the inputs that are set to 0.
        recurrent_dropout: The same for the state; both are the same elements in all time steps.
        reset_after: Whether the reset gate is applied after the product with the state, which then
            has a bias of its own, or before it.
        seed: An integer for a generator of this cell's own; by default the program's is used.

    Call arguments: (inputs, states, training=False), with inputs of one step, (n, inputs), and
    states, a list of one tensor (n, units).

    Output: (output (n, units), the new states)

    Raises:
        ValueError: for units that are no positive integer.

    Source: Cho et al., "Learning Phrase Representations using RNN Encoder-Decoder for Statistical
    Machine Translation", 2014.

    Example:

    >>> import kerascnn as keras
    >>> cell = keras.layers.GRUCell(4)
    >>> output, states = cell(keras.ops.ones((2, 3)), cell.get_initial_state(2))
    >>> output.shape, len(states)
    ((2, 4), 1)
    """

    gates = 3

    def __init__(
        self,
        units: int,
        activation: Any = "tanh",
        recurrent_activation: Any = "sigmoid",
        use_bias: bool = True,
        kernel_initializer: Any = "glorot_uniform",
        recurrent_initializer: Any = "orthogonal",
        bias_initializer: Any = "zeros",
        kernel_regularizer: Any = None,
        recurrent_regularizer: Any = None,
        bias_regularizer: Any = None,
        kernel_constraint: Any = None,
        recurrent_constraint: Any = None,
        bias_constraint: Any = None,
        dropout: float = 0.0,
        recurrent_dropout: float = 0.0,
        reset_after: bool = True,
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
            self.dropout_mask_count = 3
        self.reset_after = reset_after

    def _bias_shape(self) -> tuple[int, ...]:
        width = 3 * self.units
        return (2, width) if self.reset_after else (width,)

    def _input_bias(self) -> Any:
        bias = super()._input_bias()
        return bias[0] if bias is not None and self.reset_after else bias

    def _recurrent_bias(self) -> Any:
        bias = super()._input_bias()
        return bias[1] if bias is not None and self.reset_after else None

    def step(self, projected: Any, states: Any, parts: RecurrentParts) -> tuple[Any, list[Any]]:
        state = states[0]
        x_z, x_r, x_candidate = ops.split(projected, 3, axis=-1)
        if self.reset_after:
            product = self._recurrent_product(state, parts)
            if parts.bias is not None:
                product = ops.add(product, parts.bias)
            h_z, h_r, h_candidate = ops.split(product, 3, axis=-1)
        else:
            h_z, h_r = ops.split(self._recurrent_product(state, parts, 0, 2), 2, axis=-1)
        z = self.recurrent_activation(ops.add(x_z, h_z))
        r = self.recurrent_activation(ops.add(x_r, h_r))
        if self.reset_after:
            h_candidate = ops.multiply(r, h_candidate)
        else:
            h_candidate = self._recurrent_product(ops.multiply(r, state), parts, 2, 3)
        candidate = self.activation(ops.add(x_candidate, h_candidate))
        after = ops.add(ops.multiply(z, state), ops.multiply(ops.subtract(1.0, z), candidate))
        return after, [after]

    def arguments_config(self) -> dict[str, Any]:
        return {**super().arguments_config(), "reset_after": self.reset_after}


class GRU(CellLayer):
    """Gated recurrent units: `GRUCell` for each step of a sequence.

    Args:
        units: Size of the state, which is the output.
        activation: A name or a function for the candidate, None for none.
        recurrent_activation: The same for the gates.
        use_bias: Whether numbers are added in each gate.
        kernel_initializer: First values of the input's kernel.
        recurrent_initializer: First values of the state's kernel.
        bias_initializer: First values of the bias.
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
        return_state: Whether the last state is returned too.
        go_backwards: Whether it begins with the last step; outputs are in the order of computing.
        stateful: Whether a batch begins with the states that the one before ended with.
        unroll: Whether a compiled step holds a copy of the loop's body for each time step.
        reset_after: Whether the reset gate is applied after the product with the state, which then
            has a bias of its own, or before it.
        use_cudnn: "auto" and True have the whole sequence computed by one op where there is one for
            the arguments, True with an error where there is none; False never.

    Call arguments: (sequences, initial_state=None, mask=None, training=False). `initial_state` is a
    list of one tensor (n, units); the mask (n, steps) is False where a step is to be passed over.

    Input: (n, steps, inputs)

    Output: (n, units), or (n, steps, units) with `return_sequences`; with `return_state` a tuple of
    that and the state (n, units).

    Raises:
        ValueError: for units that are no positive integer, for `use_cudnn=True` where there is no
            op for the arguments, and as `RNN`.

    Source: Cho et al., "Learning Phrase Representations using RNN Encoder-Decoder for Statistical
    Machine Translation", 2014.

    Example:

    >>> import kerascnn as keras
    >>> layer = keras.layers.GRU(4, return_sequences=True, return_state=True)
    >>> [x.shape for x in layer(keras.ops.ones((2, 5, 3)))]
    [(2, 5, 4), (2, 4)]
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
        reset_after: bool = True,
        use_cudnn: Any = "auto",
        **kwargs: Any,
    ) -> None:
        cell = GRUCell(
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
            reset_after=reset_after,
            dtype=kwargs.get("dtype"),
            trainable=kwargs.get("trainable", True),
            name="gru_cell",
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
    reset_after = of_cell("reset_after")
