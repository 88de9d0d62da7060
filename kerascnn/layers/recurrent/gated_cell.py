"""The base of the cells of SimpleRNN, LSTM, GRU and the convolutional LSTM."""

from __future__ import annotations

from typing import Any, NamedTuple

from kerascnn import activations, constraints, initializers, ops, regularizers
from kerascnn.layers.arguments import make_generator, positive_integer
from kerascnn.layers.layer import Layer
from kerascnn.layers.recurrent.dropout_rnn_cell import DropoutRNNCell


class RecurrentParts(NamedTuple):
    """What a step needs besides its input and the states; it is the same for all steps."""

    kernel: Any
    bias: Any  # the bias of the recurrent product, or None
    masks: Any  # the dropout masks: None, a tensor, or one for each gate


class GatedCell(DropoutRNNCell, Layer):
    """A cell with a kernel for the input and one for the state, several gates side by side.

    A call consists of two parts: `project`, which applies the kernel to the input and which a layer
    can do for all time steps at once, and `step`, which has to wait for the state.
    """

    gates: int
    units: int
    # This is the axis of the gates in the results of the kernels, counted from the end, so that it
    # is the same with and without time steps.
    _gate_axis = -1

    def _init_cell(
        self,
        activation: Any,
        recurrent_activation: Any,
        use_bias: bool,
        kernel_initializer: Any,
        recurrent_initializer: Any,
        bias_initializer: Any,
        kernel_regularizer: Any,
        recurrent_regularizer: Any,
        bias_regularizer: Any,
        kernel_constraint: Any,
        recurrent_constraint: Any,
        bias_constraint: Any,
        dropout: float,
        recurrent_dropout: float,
        seed: Any,
    ) -> None:
        self.activation = activations.get(activation)
        self.recurrent_activation = activations.get(recurrent_activation)
        self.use_bias = use_bias
        self.kernel_initializer = initializers.get(kernel_initializer)
        self.recurrent_initializer = initializers.get(recurrent_initializer)
        self.bias_initializer = initializers.get(bias_initializer)
        self.kernel_regularizer = regularizers.get(kernel_regularizer)
        self.recurrent_regularizer = regularizers.get(recurrent_regularizer)
        self.bias_regularizer = regularizers.get(bias_regularizer)
        self.kernel_constraint = constraints.get(kernel_constraint)
        self.recurrent_constraint = constraints.get(recurrent_constraint)
        self.bias_constraint = constraints.get(bias_constraint)
        self.dropout = min(1.0, max(0.0, dropout))
        self.recurrent_dropout = min(1.0, max(0.0, recurrent_dropout))
        self.seed = seed
        draws = self.dropout > 0 or self.recurrent_dropout > 0
        self.seed_generator = make_generator(seed) if draws else None

    # Weights -------------------------------------------------------------------------------------

    def _add_weights(self, kernel: Any, recurrent_kernel: Any, bias: Any) -> None:
        """Makes weights of the given shapes."""
        self.kernel = self.add_weight(
            name="kernel",
            shape=kernel,
            initializer=self.kernel_initializer,
            regularizer=self.kernel_regularizer,
            constraint=self.kernel_constraint,
        )
        self.recurrent_kernel = self.add_weight(
            name="recurrent_kernel",
            shape=recurrent_kernel,
            initializer=self.recurrent_initializer,
            regularizer=self.recurrent_regularizer,
            constraint=self.recurrent_constraint,
        )
        self.bias = None
        if self.use_bias:
            self.bias = self.add_weight(
                name="bias",
                shape=bias,
                initializer=self._first_bias(),
                regularizer=self.bias_regularizer,
                constraint=self.bias_constraint,
            )

    def _first_bias(self) -> Any:
        return self.bias_initializer

    # Dropout -------------------------------------------------------------------------------------

    def _is_dropped(self, rate: float) -> bool:
        """Tells whether a rate has an effect. As in Keras, 1 has none: it would drop everything."""
        return 0.0 < rate < 1.0

    def input_masks(self, step_input: Any, training: Any) -> Any:
        """Draws the masks for inputs, or returns None outside training and without dropout."""
        drops = training and self._is_dropped(self.dropout)
        return self.get_dropout_mask(step_input) if drops else None

    def recurrent_masks(self, state: Any, training: Any) -> Any:
        """Draws the masks for the state, or returns None outside training and without dropout."""
        drops = training and self._is_dropped(self.recurrent_dropout)
        return self.get_recurrent_dropout_mask(state) if drops else None

    # The two parts of a step ---------------------------------------------------------------------

    def call(self, inputs: Any, states: Any, training: Any = False) -> Any:
        is_nested = isinstance(states, (list, tuple))
        state = states[0] if is_nested else states
        projected = self.project(inputs, self.input_masks(inputs, training))
        parts = self.recurrent_parts(self.recurrent_masks(state, training))
        output, after = self.step(projected, states if is_nested else [states], parts)
        return output, (after if is_nested else after[0])

    def project(self, inputs: Any, masks: Any = None) -> Any:
        """The kernel's products with inputs of one step, or of (batch, steps, ...).

        Args:
            inputs: Inputs.
            masks: What `input_masks` gave for the inputs of one step.
        """
        kernel, bias = self._input_kernel(), self._input_bias()
        if masks is None:
            return self._apply_kernel(inputs, kernel, bias)
        if not isinstance(masks, list):
            return self._apply_kernel(inputs * _for_steps(masks, inputs), kernel, bias)
        kernels = ops.split(kernel, self.gates, axis=-1)
        biases = [None] * self.gates if bias is None else ops.split(bias, self.gates, axis=-1)
        products = [
            self._apply_kernel(inputs * _for_steps(m, inputs), k, b)
            for m, k, b in zip(masks, kernels, biases, strict=True)
        ]
        return ops.concatenate(products, axis=self._gate_axis)

    def recurrent_parts(self, masks: Any = None) -> RecurrentParts:
        """Returns what `step` needs; `masks` are those of `recurrent_masks`."""
        kernel = ops.convert_to_tensor(self.recurrent_kernel)
        return RecurrentParts(kernel, self._recurrent_bias(), masks)

    def step(self, projected: Any, states: Any, parts: RecurrentParts) -> tuple[Any, list[Any]]:
        """The output and the new states.

        Args:
            projected: What `project` gave, for one step.
            states: A list of tensors.
            parts: What `recurrent_parts` gave.
        """
        raise NotImplementedError

    def _input_kernel(self) -> Any:
        return ops.convert_to_tensor(self.kernel)

    def _input_bias(self) -> Any:
        return None if self.bias is None else ops.convert_to_tensor(self.bias)

    def _recurrent_bias(self) -> Any:
        return None

    def _apply_kernel(self, inputs: Any, kernel: Any, bias: Any) -> Any:
        return ops.dense(inputs, kernel, bias)

    def _apply_recurrent_kernel(self, state: Any, kernel: Any) -> Any:
        return ops.matmul(state, kernel)

    def _recurrent_product(
        self, state: Any, parts: RecurrentParts, first: int = 0, last: int | None = None
    ) -> Any:
        """Multiplies the state by the recurrent kernel, for the gates from `first` to `last`."""
        last = self.gates if last is None else last
        kernel, width = parts.kernel, self.units
        if parts.masks is None or not isinstance(parts.masks, list):
            if last - first < self.gates:
                kernel = kernel[..., first * width : last * width]
            state = state if parts.masks is None else state * parts.masks
            return self._apply_recurrent_kernel(state, kernel)
        products = [
            self._apply_recurrent_kernel(
                state * parts.masks[gate], kernel[..., gate * width : (gate + 1) * width]
            )
            for gate in range(first, last)
        ]
        return products[0] if len(products) == 1 else ops.concatenate(products, self._gate_axis)

    # Configuration -------------------------------------------------------------------------------

    def arguments_config(self) -> dict[str, Any]:
        """Returns the arguments that a cell and its layer share, as plain values."""
        config: dict[str, Any] = {
            "activation": activations.serialize(self.activation),
            "recurrent_activation": activations.serialize(self.recurrent_activation),
            "use_bias": self.use_bias,
        }
        for kind, module in (
            ("initializer", initializers),
            ("regularizer", regularizers),
            ("constraint", constraints),
        ):
            for part in ("kernel", "recurrent", "bias"):
                config[f"{part}_{kind}"] = module.serialize(getattr(self, f"{part}_{kind}"))
        return {
            **config,
            "dropout": self.dropout,
            "recurrent_dropout": self.recurrent_dropout,
            "seed": self.seed if isinstance(self.seed, int) else None,
        }

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), **self.arguments_config()}


class DenseCell(GatedCell):
    """A cell whose kernels are matrices."""

    def __init__(self, units: int, implementation: int = 2, **kwargs: Any) -> None:
        arguments = {name: kwargs.pop(name) for name in _CELL_ARGUMENTS}
        super().__init__(**kwargs)
        self.units = positive_integer(units, "units")
        self._init_cell(**arguments)
        self.implementation = 1 if self.recurrent_dropout else implementation
        self.state_size: Any = self.units
        self.output_size = self.units

    def build(self, input_shape: Any) -> None:
        inputs = input_shape[-1]
        if inputs is None:
            raise ValueError(
                f"Cell '{self.name}' needs to know the size of its input's last axis. Received: "
                f"input_shape={tuple(input_shape)}"
            )
        width = self.gates * self.units
        self._add_weights((inputs, width), (self.units, width), self._bias_shape())

    def _bias_shape(self) -> tuple[int, ...]:
        return (self.gates * self.units,)

    def get_initial_state(self, batch_size: Any = None) -> list[Any]:
        """Zeros of shape (batch_size, units), a tensor for each state."""
        sizes = self.state_size if isinstance(self.state_size, list) else [self.state_size]
        return [ops.zeros((batch_size, size), dtype=self.compute_dtype) for size in sizes]

    def arguments_config(self) -> dict[str, Any]:
        return {"units": self.units, **super().arguments_config()}


_CELL_ARGUMENTS = (
    "activation",
    "recurrent_activation",
    "use_bias",
    "kernel_initializer",
    "recurrent_initializer",
    "bias_initializer",
    "kernel_regularizer",
    "recurrent_regularizer",
    "bias_regularizer",
    "kernel_constraint",
    "recurrent_constraint",
    "bias_constraint",
    "dropout",
    "recurrent_dropout",
    "seed",
)


def _for_steps(mask: Any, inputs: Any) -> Any:
    """Expands a mask of one step for inputs that may have an axis of steps after the batch."""
    return ops.expand_dims(mask, 1) if len(inputs.shape) > len(mask.shape) else mask
