"""The fully connected recurrent layer and its cell."""

from __future__ import annotations

from typing import Any

from kerascnn import ops
from kerascnn.layers.input_spec import InputSpec
from kerascnn.layers.recurrent.cell_layer import CellLayer, of_cell
from kerascnn.layers.recurrent.gated_cell import DenseCell, RecurrentParts


class SimpleRNNCell(DenseCell):
    """activation(inputs @ kernel + state @ recurrent_kernel + bias), which is output and new state.

    Args:
        units: Size of the state.
        activation: A name or a function, None for none.
        use_bias: Whether a number is added to each unit's input.
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
        seed: An integer for a generator of this cell's own; by default the program's is used.

    Call arguments: (inputs, states, training=False), with inputs of one step, (n, inputs), and
    states, a list of one tensor (n, units).

    Output: (output (n, units), the new states)

    Raises:
        ValueError: for units that are no positive integer.

    Source: Elman, "Finding Structure in Time", 1990.

    Example:

    >>> import kerascnn as keras
    >>> cell = keras.layers.SimpleRNNCell(4)
    >>> output, states = cell(keras.ops.ones((2, 3)), cell.get_initial_state(2))
    >>> output.shape, len(states)
    ((2, 4), 1)
    """

    gates = 1

    def __init__(
        self,
        units: int,
        activation: Any = "tanh",
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
        seed: Any = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(
            units,
            activation=activation,
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
            recurrent_activation="linear",
            **kwargs,
        )

    def _is_dropped(self, rate: float) -> bool:
        return rate > 0

    def step(self, projected: Any, states: Any, parts: RecurrentParts) -> tuple[Any, list[Any]]:
        output = self._activated(ops.add(projected, self._recurrent_product(states[0], parts)))
        return output, [output]

    def arguments_config(self) -> dict[str, Any]:
        config = super().arguments_config()
        del config["recurrent_activation"]
        return config


class SimpleRNN(CellLayer):
    """A layer whose output is fed back: `SimpleRNNCell` for each step of a sequence.

    Args:
        units: Size of the state, which is the output.
        activation: A name or a function, None for none.
        use_bias: Whether a number is added to each unit's input.
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
        return_sequences: Whether the outputs of all steps are returned, or only the last one's.
        return_state: Whether the last state is returned too.
        go_backwards: Whether it begins with the last step; outputs are in the order of computing.
        stateful: Whether a batch begins with the states that the one before ended with.
        unroll: Whether a compiled step holds a copy of the loop's body for each time step.
        seed: An integer for a generator of this layer's own; by default the program's is used.

    Call arguments: (sequences, initial_state=None, mask=None, training=False). `initial_state` is a
    list of one tensor (n, units); the mask (n, steps) is False where a step is to be passed over.

    Input: (n, steps, inputs)

    Output: (n, units), or (n, steps, units) with `return_sequences`; with `return_state` a tuple of
    that and the state (n, units).

    Raises:
        ValueError: for units that are no positive integer, and as `RNN`.

    Source: Elman, "Finding Structure in Time", 1990.

    Example:

    >>> import kerascnn as keras
    >>> layer = keras.layers.SimpleRNN(4, return_sequences=True, return_state=True)
    >>> [x.shape for x in layer(keras.ops.ones((2, 5, 3)))]
    [(2, 5, 4), (2, 4)]
    """

    def __init__(
        self,
        units: int,
        activation: Any = "tanh",
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
        return_sequences: bool = False,
        return_state: bool = False,
        go_backwards: bool = False,
        stateful: bool = False,
        unroll: bool = False,
        seed: Any = None,
        **kwargs: Any,
    ) -> None:
        cell = SimpleRNNCell(
            units,
            activation=activation,
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
            dtype=kwargs.get("dtype"),
            trainable=kwargs.get("trainable", True),
            name="simple_rnn_cell",
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

    units = of_cell("units")

    def get_config(self) -> dict[str, Any]:
        config = super().get_config()
        if config["seed"] is None:
            del config["seed"]  # Keras' layer reads this entry, but does not write it
        return config
