"""A fully connected layer over axes of one's choice."""

from __future__ import annotations

import itertools
import math
import re
import string
from collections.abc import Sequence
from typing import Any, NamedTuple

from kerascnn import activations, constraints, initializers, ops, quantizers, regularizers
from kerascnn.layers.input_spec import InputSpec
from kerascnn.layers.integer_weights import IntegerWeights

_EQUATION = re.compile(r"(\.\.\.)?([a-zA-Z]+)(\.\.\.)?,([a-zA-Z]+)->(\.\.\.)?([a-zA-Z]+)(\.\.\.)?")


class _Shapes(NamedTuple):
    """The shapes that an equation and the shape of an input determine."""

    kernel: tuple[int | None, ...]
    bias: tuple[int | None, ...] | None
    output: tuple[int | None, ...]
    input_axes: list[int]  # the axes of the kernel that are summed over
    output_axes: list[int]


class _Terms(NamedTuple):
    inputs: str
    kernel: str
    output: str


def _with_axes_of(wanted: str, scale: Any, term: str) -> Any:
    """Transposes a scale with axes `term` to the axes of `wanted`; other axes get size 1."""
    shared = [c for c in wanted if c in term]
    gone = [c for c in term if c not in wanted]
    sizes = dict(zip(term, scale.shape, strict=True))
    moved = ops.transpose(scale, [term.index(c) for c in (*shared, *gone)])
    return ops.reshape(moved, [sizes.get(c, 1) for c in wanted])


def _with_bias(x: Any, bias: Any) -> Any:
    """Reshapes to a matrix if the bias has all of its columns: then one kernel is enough."""
    shape, of_bias = tuple(x.shape), tuple(bias.shape)
    if not all(shape[1:]) or shape[-len(of_bias) :] != of_bias:
        return ops.add(x, bias)
    columns = math.prod(of_bias)
    x = ops.add(ops.reshape(x, (-1, columns)), ops.reshape(bias, (columns,)))
    return ops.reshape(x, (-1, *shape[1:]))


class EinsumDense(IntegerWeights):
    """activation(einsum(equation, inputs, kernel) + bias).

    Args:
        equation: Letters of the input's axes, of the kernel's and of the output's, as
            "abc,cd->abd"; `...` before or after the letters of both input and output stands for
            further axes.
        output_shape: Sizes of the output's axes without the batch (and without those of `...`),
            None for those that the input has too; an integer for one.
        activation: A name or a function, None for none.
        bias_axes: Letters of the output's axes that the bias has, None for no bias.
        kernel_initializer: First values of the kernel.
        bias_initializer: First values of the bias.
        kernel_regularizer: A penalty on the kernel.
        bias_regularizer: A penalty on the bias.
        kernel_constraint: A callable that the kernel goes through after each update.
        bias_constraint: A callable that the bias goes through after each update.
        lora_rank: Rank of an adaptation that is trained in the kernel's place, None for none; see
            `enable_lora`.
        lora_alpha: The adaptation is scaled by lora_alpha / lora_rank; by default `lora_rank`.
        gptq_unpacked_column_size: Only None: kernels of 4 bits are not available.
        quantization_config: How the layer becomes int8 where `dtype` asks for that, such as
            "int8_from_float32": a `keras.quantizers.Int8QuantizationConfig`. See `quantize`.

    Input: as the equation says; any floating dtype.

    Output: as the equation says.

    Raises:
        ValueError: for an equation of another form, shapes that do not fit it, a rank that is no
            positive integer, and a `quantization_config` that is none.

    Example:

    >>> import kerascnn as keras
    >>> layer = keras.layers.EinsumDense("abc,cd->abd", output_shape=(None, 64), bias_axes="d")
    >>> layer(keras.ops.ones((2, 32, 128))).shape
    (2, 32, 64)
    """

    _is_quantizable = True
    lora_kernel_a: Any

    def __init__(
        self,
        equation: str,
        output_shape: int | Sequence[int | None],
        activation: Any = None,
        bias_axes: str | None = None,
        kernel_initializer: Any = "glorot_uniform",
        bias_initializer: Any = "zeros",
        kernel_regularizer: Any = None,
        bias_regularizer: Any = None,
        kernel_constraint: Any = None,
        bias_constraint: Any = None,
        lora_rank: int | None = None,
        lora_alpha: float | None = None,
        gptq_unpacked_column_size: int | None = None,
        quantization_config: Any = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        if gptq_unpacked_column_size is not None:
            raise ValueError(
                'EinsumDense: gptq_unpacked_column_size must be None; quantize("int8") is what is '
                f"available. Received: gptq_unpacked_column_size={gptq_unpacked_column_size!r}"
            )
        self._init_quantization(quantization_config)
        self.equation = equation
        single = isinstance(output_shape, int)
        self.partial_output_shape = (output_shape,) if single else tuple(output_shape)  # type: ignore[arg-type]
        self.bias_axes = bias_axes
        self.activation = activations.get(activation)
        self.kernel_initializer = initializers.get(kernel_initializer)
        self.bias_initializer = initializers.get(bias_initializer)
        self.kernel_regularizer = regularizers.get(kernel_regularizer)
        self.bias_regularizer = regularizers.get(bias_regularizer)
        self.kernel_constraint = constraints.get(kernel_constraint)
        self.bias_constraint = constraints.get(bias_constraint)
        self._init_adaptation(lora_rank, lora_alpha)

    def build(self, input_shape: Any) -> None:
        shapes = self._shapes(input_shape)
        self.input_spec = InputSpec(ndim=len(input_shape))
        self._build_weight(shapes.kernel, self._of_axes(shapes))  # type: ignore[arg-type]
        self.bias = None
        if shapes.bias is not None:
            self.bias = self.add_weight(
                name="bias",
                shape=shapes.bias,  # type: ignore[arg-type]
                initializer=self.bias_initializer,
                regularizer=self.bias_regularizer,
                constraint=self.bias_constraint,
            )
        self._adapt_as_asked()

    @property
    def kernel(self) -> Any:
        """The kernel, of the shape that the equation gives it; with `enable_lora`, adapted."""
        return self._adapted_value()

    def _of_axes(self, shapes: _Shapes) -> Any:
        """Tells the kernel's initializer which axes are summed over, if it scales by them."""
        given = self.kernel_initializer
        scales = isinstance(given, initializers.VarianceScaling)
        if not scales or (given.input_axes is not None and given.output_axes is not None):
            return given
        axes = {"input_axes": shapes.input_axes, "output_axes": shapes.output_axes}
        return type(given).from_config({**given.get_config(), "seed": given.seed, **axes})

    def call(self, inputs: Any, training: bool | None = None) -> Any:
        x = ops.einsum(self.equation, inputs, self.kernel)
        if self.bias is not None:
            x = _with_bias(x, self.bias)
        return self._activated(x)

    def _int8_call(self, inputs: Any, training: bool | None = None) -> Any:
        x = self._integer_product(inputs)
        if self.lora_enabled:
            x = self._add_adaptation(x, inputs)
        if self.bias is not None:
            x = ops.add(x, self.bias)
        return self._activated(x)

    def _add_adaptation(self, x: Any, inputs: Any) -> Any:
        terms = self._terms()
        if terms.kernel[-1] == terms.output[-1]:
            return self._with_adaptation(x, self._multiply(inputs, self.lora_kernel_a))
        # The shared axis of the factors is not the last axis of the product.
        delta = ops.multiply(ops.matmul(*self._factors()), self._scale())
        added = self._multiply(inputs, ops.cast(delta, self.compute_dtype))
        return ops.cast(ops.add(x, added), self.compute_dtype)

    def _terms(self) -> _Terms:
        """Returns the letters of all axes of the input, the kernel and the output."""
        match = _EQUATION.fullmatch(self.equation.replace(" ", ""))
        assert match is not None and self.input_spec is not None
        before, inputs, after, kernel, _, outputs, _ = match.groups()
        free = (c for c in string.ascii_letters if c not in inputs + kernel + outputs)
        unnamed = "".join(itertools.islice(free, self.input_spec.ndim - len(inputs)))
        left, right = (unnamed if before else "", unnamed if after else "")
        return _Terms(f"{left}{inputs}{right}", kernel, f"{left}{outputs}{right}")

    def _summed_axes(self) -> tuple[int, ...]:
        terms = self._terms()
        return tuple(i for i, c in enumerate(terms.kernel) if c not in terms.output)

    def _inputs_summed(self) -> tuple[int, ...]:
        terms = self._terms()
        return tuple(i for i, c in enumerate(terms.inputs) if c not in terms.output)

    def _kept_scale(self, part: Any, scale: Any) -> Any:
        terms = self._terms()
        return _with_axes_of(terms.output, scale, terms.kernel)

    def _scale_of_weight(self, scale: Any) -> Any:
        terms = self._terms()
        return _with_axes_of(terms.kernel, scale, terms.output)

    def _scale_of_inputs(self, scale: Any) -> Any:
        terms = self._terms()
        return _with_axes_of(terms.output, scale, terms.inputs)

    def _multiply(self, inputs: Any, kernel: Any) -> Any:
        return ops.einsum(self.equation, inputs, kernel)

    def _multiply_back(self, gradient: Any, kernel: Any) -> Any:
        terms = self._terms()
        return ops.einsum(f"{terms.output},{terms.kernel}->{terms.inputs}", gradient, kernel)

    def compute_output_shape(self, input_shape: Any) -> Any:
        return self._shapes(input_shape).output

    def _shapes(self, input_shape: Sequence[int | None]) -> _Shapes:
        match = _EQUATION.fullmatch(self.equation.replace(" ", ""))
        before, inputs, after, kernel, left, outputs, right = match.groups() if match else [""] * 7
        if not match or (before, after) != (left, right) or (before and after):
            raise ValueError(
                f"Layer '{self.name}': an equation is like 'ab,bc->ac', '...ab,bc->...ac' or "
                f"'ab...,bc->ac...'. Received: equation={self.equation!r}"
            )
        unnamed = len(input_shape) - len(inputs)
        if unnamed < 0 or (unnamed and not (before or after)):
            raise ValueError(
                f"Layer '{self.name}': equation={self.equation!r} does not fit an input of shape "
                f"{tuple(input_shape)}."
            )
        first = unnamed if before else 0
        sizes = dict(zip(inputs, input_shape[first : first + len(inputs)], strict=True))
        given = self._output_sizes(input_shape, unnamed, bool(before))
        if len(given) != len(outputs) + unnamed:
            raise ValueError(
                f"Layer '{self.name}': output_shape={self.partial_output_shape} does not fit "
                f"equation={self.equation!r}."
            )
        result = dict(zip(outputs, given[first : first + len(outputs)], strict=True))
        for letter in outputs:
            if letter not in inputs + kernel:
                raise ValueError(
                    f"Layer '{self.name}': {letter!r} of the output is neither in the input nor "
                    f"in the kernel of equation={self.equation!r}."
                )
            if letter not in sizes:
                continue
            if result[letter] is None:
                result[letter] = sizes[letter]
            elif sizes[letter] != result[letter]:
                raise ValueError(
                    f"Layer '{self.name}': {letter!r} of equation={self.equation!r} has size "
                    f"{sizes[letter]} in the input and {result[letter]} in the output."
                )
        for letter in kernel:
            if letter not in inputs + outputs:
                raise ValueError(
                    f"Layer '{self.name}': {letter!r} of the kernel is neither in the input nor "
                    f"in the output of equation={self.equation!r}."
                )
        shape = tuple(result[c] if c in outputs else sizes[c] for c in kernel)
        input_axes = [i for i, c in enumerate(kernel) if c not in outputs]
        output_axes = [i for i, c in enumerate(kernel) if c in outputs]
        named = [result[c] for c in outputs]
        output = (*given[:first], *named, *given[first + len(outputs) :])
        bias = self._bias_shape(outputs, result, unnamed if after else 0)
        return _Shapes(shape, bias, output, input_axes, output_axes)

    def _output_sizes(
        self, input_shape: Sequence[int | None], unnamed: int, left: bool
    ) -> list[int | None]:
        """Returns the sizes of all axes of the output, if they are given."""
        rest = [*self.partial_output_shape]
        if left:  # an ellipsis includes the batch
            return [*input_shape[: max(unnamed, 1)], *rest]
        further = input_shape[len(input_shape) - unnamed :] if unnamed else []
        return [input_shape[0], *rest, *further]

    def _bias_shape(
        self, outputs: str, sizes: dict[str, int | None], further: int
    ) -> tuple[int | None, ...] | None:
        if self.bias_axes is None:
            return None
        for letter in self.bias_axes:
            if letter not in outputs:
                raise ValueError(
                    f"Layer '{self.name}': {letter!r} of bias_axes={self.bias_axes!r} is not in "
                    f"the output of equation={self.equation!r}."
                )
        first = min(outputs.index(letter) for letter in self.bias_axes)
        named = (sizes[c] if c in self.bias_axes else 1 for c in outputs[first:])
        return (*named, *(1 for _ in range(further)))

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "output_shape": self.partial_output_shape,
            "equation": self.equation,
            "activation": activations.serialize(self.activation),
            "bias_axes": self.bias_axes,
            "kernel_initializer": initializers.serialize(self.kernel_initializer),
            "bias_initializer": initializers.serialize(self.bias_initializer),
            "kernel_regularizer": regularizers.serialize(self.kernel_regularizer),
            "bias_regularizer": regularizers.serialize(self.bias_regularizer),
            "activity_regularizer": regularizers.serialize(self.activity_regularizer),
            "kernel_constraint": constraints.serialize(self.kernel_constraint),
            "bias_constraint": constraints.serialize(self.bias_constraint),
            "quantization_config": quantizers.serialize(self.quantization_config),
        }
