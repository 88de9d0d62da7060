"""Long short-term memory whose kernels are convolutions, for sequences of images and the like."""

from __future__ import annotations

from typing import Any

from kerascnn import config, ops
from kerascnn.layers.arguments import (
    image_shape,
    positive_integer,
    spatial_sizes,
    standardize_padding,
    standardize_tuple,
    window_output_sizes,
)
from kerascnn.layers.input_spec import InputSpec
from kerascnn.layers.recurrent.cell_layer import CellLayer, of_cell
from kerascnn.layers.recurrent.gated_cell import GatedCell, RecurrentParts
from kerascnn.layers.recurrent.lstm import forget_bias, lstm_step


class ConvLSTMCell(GatedCell):
    """One step of long short-term memory with convolutions in the place of products.

    The convolution of the input has the given window, steps and padding; that of the state has the
    same window, and keeps the size. The arguments are those of `ConvLSTM2D`.

    Args:
        rank: Number of spatial axes, 1 to 3.

    Call arguments: (inputs, states, training=False), with inputs of one step, and states, a list of
    the last output and the carry.

    Raises:
        ValueError: for arguments out of range; when built, for inputs whose size is not known.
    """

    gates = 4
    dropout_mask_count = 4

    def __init__(
        self,
        rank: int,
        filters: int,
        kernel_size: Any,
        strides: Any = 1,
        padding: str = "valid",
        data_format: str | None = None,
        dilation_rate: Any = 1,
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
        super().__init__(**kwargs)
        if rank not in (1, 2, 3):
            raise ValueError(f"Convolutions have 1 to 3 spatial axes. Received: rank={rank}")
        self.rank = rank
        self.units = self.filters = positive_integer(filters, "filters")
        self.kernel_size = standardize_tuple(kernel_size, rank, "kernel_size")
        self.strides = standardize_tuple(strides, rank, "strides")
        self.padding = standardize_padding(padding)
        self.data_format = config.standardize_data_format(data_format)
        self.dilation_rate = standardize_tuple(dilation_rate, rank, "dilation_rate")
        if max(self.strides) > 1 and max(self.dilation_rate) > 1:
            raise ValueError(
                "`strides` and `dilation_rate` cannot both be above 1. Received: "
                f"strides={self.strides}, dilation_rate={self.dilation_rate}"
            )
        self._gate_axis = -1 if self.data_format == "channels_last" else -(rank + 1)
        self._init_cell(
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
        )
        self.unit_forget_bias = unit_forget_bias
        self.state_size = [filters, filters]  # these are the numbers of channels
        self._state_sizes: tuple[Any, ...] = ()

    def build(self, inputs_shape: Any, states_shape: Any = None) -> None:
        sizes, channels = spatial_sizes(inputs_shape, self.data_format, self.rank)
        if None in sizes or channels is None:
            raise ValueError(
                f"Cell '{self.name}' needs to know the size and the channels of its input, in "
                f"which its states begin. Received: input_shape={tuple(inputs_shape)}"
            )
        self.input_spec = InputSpec(shape=(None, *inputs_shape[1:]))
        self._state_sizes = self._output_sizes(sizes)
        width = 4 * self.filters
        self._add_weights(
            (*self.kernel_size, channels, width),
            (*self.kernel_size, self.filters, width),
            (width,),
        )

    def _first_bias(self) -> Any:
        return forget_bias(self.bias_initializer, self.filters, self.unit_forget_bias)

    def _output_sizes(self, sizes: Any) -> tuple[Any, ...]:
        return window_output_sizes(
            self, sizes, self.kernel_size, self.strides, self.padding, self.dilation_rate
        )

    def compute_output_shape(self, inputs_shape: Any, states_shape: Any = None) -> Any:
        sizes, _ = spatial_sizes(inputs_shape, self.data_format, self.rank)
        shape = image_shape(
            inputs_shape[0], self._output_sizes(sizes), self.filters, self.data_format
        )
        return shape, [shape, shape]

    def get_initial_state(self, batch_size: Any = None) -> list[Any]:
        """Two tensors of zeros, as large as the output of one step."""
        shape = image_shape(batch_size, self._state_sizes, self.filters, self.data_format)
        return [ops.zeros(shape, dtype=self.compute_dtype) for _ in range(2)]  # type: ignore[arg-type]

    def step(self, projected: Any, states: Any, parts: RecurrentParts) -> tuple[Any, list[Any]]:
        return lstm_step(self, projected, states, parts)

    def _apply_kernel(self, inputs: Any, kernel: Any, bias: Any) -> Any:
        shape = tuple(inputs.shape)
        has_steps = len(shape) == self.rank + 3
        if has_steps:  # the steps are handled like samples
            inputs = ops.reshape(inputs, (shape[0] * shape[1], *shape[2:]))
        outputs = ops.conv_bias(
            inputs, kernel, bias, self.strides, self.padding, self.data_format, self.dilation_rate
        )
        return ops.reshape(outputs, (*shape[:2], *outputs.shape[1:])) if has_steps else outputs

    def _apply_recurrent_kernel(self, state: Any, kernel: Any) -> Any:
        return ops.conv(state, kernel, 1, "same", self.data_format)

    def arguments_config(self) -> dict[str, Any]:
        return {
            "filters": self.filters,
            "kernel_size": self.kernel_size,
            "strides": self.strides,
            "padding": self.padding,
            "data_format": self.data_format,
            "dilation_rate": self.dilation_rate,
            **super().arguments_config(),
            "unit_forget_bias": self.unit_forget_bias,
        }

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "rank": self.rank}


class ConvLSTM(CellLayer):
    """A layer with a `ConvLSTMCell` for `rank` spatial axes."""

    rank: int

    def __init__(
        self,
        filters: int,
        kernel_size: Any,
        strides: Any = 1,
        padding: str = "valid",
        data_format: str | None = None,
        dilation_rate: Any = 1,
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
        **kwargs: Any,
    ) -> None:
        cell = ConvLSTMCell(
            rank=self.rank,
            filters=filters,
            kernel_size=kernel_size,
            strides=strides,
            padding=padding,
            data_format=data_format,
            dilation_rate=dilation_rate,
            activation=activation,
            recurrent_activation=recurrent_activation,
            use_bias=use_bias,
            kernel_initializer=kernel_initializer,
            recurrent_initializer=recurrent_initializer,
            bias_initializer=bias_initializer,
            unit_forget_bias=unit_forget_bias,
            kernel_regularizer=kernel_regularizer,
            recurrent_regularizer=recurrent_regularizer,
            bias_regularizer=bias_regularizer,
            kernel_constraint=kernel_constraint,
            recurrent_constraint=recurrent_constraint,
            bias_constraint=bias_constraint,
            dropout=dropout,
            recurrent_dropout=recurrent_dropout,
            seed=seed,
            name="conv_lstm_cell",
            dtype=kwargs.get("dtype"),
        )
        super().__init__(
            cell,
            return_sequences=return_sequences,
            return_state=return_state,
            go_backwards=go_backwards,
            stateful=stateful,
            activity_regularizer=activity_regularizer,
            **kwargs,
        )
        self.input_spec = InputSpec(ndim=self.rank + 3)

    filters = of_cell("filters")
    kernel_size = of_cell("kernel_size")
    strides = of_cell("strides")
    padding = of_cell("padding")
    data_format = of_cell("data_format")
    dilation_rate = of_cell("dilation_rate")
    recurrent_activation = of_cell("recurrent_activation")
    unit_forget_bias = of_cell("unit_forget_bias")

    def compute_output_shape(self, sequences_shape: Any, initial_state_shape: Any = None) -> Any:
        batch, steps, *image = sequences_shape
        state, _ = self.cell.compute_output_shape((batch, *image))
        output = (batch, steps, *state[1:]) if self.return_sequences else state
        return (output, state, state) if self.return_state else output


_DOC = """Long short-term memory over sequences of {what}, with convolutions as kernels.

    Args:
        filters: Number of channels of the output and the states.
        kernel_size: An integer, or one for each spatial axis: the windows of input and state.
        strides: Steps of the window over the input; that over the state has steps of 1.
        padding: "valid" or "same", for the input.
        data_format: "channels_last" or "channels_first", by default `config.image_data_format()`.
        dilation_rate: Steps between the elements of the window over the input.
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

    Input: {inputs}

    Output: {output}, with `return_sequences` (n, steps, ...); with `return_state` a tuple of that,
    the last output and the carry.

    Raises:
        ValueError: for arguments out of range; when built, for inputs whose size is not known.

    Source: Shi et al., "Convolutional LSTM Network: A Machine Learning Approach for Precipitation
    Nowcasting", 2015; without connections from the carry to the gates.

    Example:

    >>> import kerascnn as keras
    >>> keras.layers.{name}(4, 3, padding="same")(keras.ops.ones({shape})).shape
    {result}
    """


class ConvLSTM1D(ConvLSTM):
    __doc__ = _DOC.format(
        name="ConvLSTM1D",
        what="sequences",
        inputs="(n, steps, length, channels), or (n, steps, channels, length)",
        output="(n, new length, filters), or (n, filters, new length)",
        shape="(2, 5, 8, 1)",
        result="(2, 8, 4)",
    )
    rank = 1


class ConvLSTM2D(ConvLSTM):
    __doc__ = _DOC.format(
        name="ConvLSTM2D",
        what="images",
        inputs="(n, steps, height, width, channels), or (n, steps, channels, height, width)",
        output="(n, new height, new width, filters), or (n, filters, new height, new width)",
        shape="(2, 5, 8, 6, 1)",
        result="(2, 8, 6, 4)",
    )
    rank = 2


class ConvLSTM3D(ConvLSTM):
    __doc__ = _DOC.format(
        name="ConvLSTM3D",
        what="volumes",
        inputs="(n, steps, depth, height, width, channels), or with the channels after the steps",
        output="(n, new depth, new height, new width, filters), or with the filters first",
        shape="(2, 5, 4, 4, 4, 1)",
        result="(2, 4, 4, 4, 4)",
    )
    rank = 3
