"""Normalization of weights by their largest singular value."""

from __future__ import annotations

from typing import Any

from kerascnn import initializers, ops
from kerascnn.layers.input_spec import InputSpec
from kerascnn.layers.wrapper import Wrapper
from kerascnn.variable import Variable


class SpectralNormalization(Wrapper):
    """A layer whose kernel is divided by its largest singular value in each step of training.

    The value is estimated by a power iteration that goes on from step to step.

    Args:
        layer: A layer with a `kernel` or with `embeddings`.
        power_iterations: Steps of the estimate in each step of training.

    Input: What the layer takes.

    Output: What the layer gives.

    Raises:
        ValueError: for less than one iteration, and for a layer without such a weight.

    Source: Miyato et al., "Spectral Normalization for Generative Adversarial Networks", 2018.

    Example:

    >>> import kerascnn as keras
    >>> layer = keras.layers.SpectralNormalization(keras.layers.Dense(3))
    >>> layer(keras.ops.ones((2, 4)), training=True).shape
    (2, 3)
    """

    def __init__(self, layer: Any, power_iterations: int = 1, **kwargs: Any) -> None:
        super().__init__(layer, **kwargs)
        if power_iterations <= 0:
            raise ValueError(f"`power_iterations` must be positive. Received: {power_iterations}")
        self.power_iterations = power_iterations

    def build(self, input_shape: Any) -> None:  # type: ignore[override]
        super().build(input_shape)
        self.input_spec = InputSpec(min_ndim=1, axes={-1: input_shape[-1]})
        kernel = getattr(self.layer, "kernel", None)
        kernel = getattr(self.layer, "embeddings", None) if kernel is None else kernel
        if kernel is None:
            raise ValueError(
                f"Layer '{self.name}': a {type(self.layer).__name__} has neither a `kernel` nor "
                "`embeddings` to normalize."
            )
        if not isinstance(kernel, Variable):
            raise ValueError(
                f"Layer '{self.name}': what `enable_lora` makes of a kernel cannot be normalized. "
                f"Leave out `lora_rank` of '{self.layer.name}'."
            )
        self.kernel = kernel
        self.vector_u = self.add_weight(
            name="vector_u",
            shape=(1, kernel.shape[-1]),
            initializer=initializers.TruncatedNormal(stddev=0.02),
            trainable=False,
            dtype=kernel.dtype,
        )

    def call(self, inputs: Any, training: bool = False) -> Any:
        if training:
            self._normalize()
        return ops.cast(self.layer(inputs), inputs.dtype)

    def _normalize(self) -> None:
        """Divides the kernel by its largest singular value, unless it is all 0."""
        kernel, before = self.kernel.value, self.vector_u.value
        weights = ops.reshape(kernel, (-1, kernel.shape[-1]))
        u = before
        for _ in range(self.power_iterations):
            v = ops.normalize(ops.matmul(u, ops.transpose(weights)), axis=None)
            u = ops.normalize(ops.matmul(v, weights), axis=None)
        sigma = ops.matmul(ops.matmul(v, weights), ops.transpose(u))
        empty = ops.all(ops.equal(kernel, 0.0))
        divided = ops.divide(kernel, ops.reshape(sigma, ()))
        self.vector_u.assign(ops.where(empty, before, u))
        self.kernel.assign(ops.where(empty, kernel, divided))

    def compute_output_shape(self, input_shape: Any) -> Any:
        return self.layer.compute_output_shape(input_shape)

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "power_iterations": self.power_iterations}
