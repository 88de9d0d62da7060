"""Normalization by the statistics of the batch."""

from __future__ import annotations

from typing import Any

from kerascnn import constraints, dtypes, initializers, ops, regularizers
from kerascnn.layers.input_spec import InputSpec
from kerascnn.layers.layer import Layer
from kerascnn.ops import dispatch


class BatchNormalization(Layer):
    """Gives each channel mean 0 and variance 1, then a learned scale and offset.

    In training the mean and the population variance are those of the batch, and moving averages of
    them are kept: moving = moving * momentum + batch * (1 - momentum). Outside of training, and
    with `trainable = False`, the moving averages are used.

    Args:
        axis: The axis of the channels.
        momentum: Of the moving averages.
        epsilon: Added to the variance.
        center: Whether an offset beta is learned.
        scale: Whether a scale gamma is learned.
        beta_initializer: First values of beta.
        gamma_initializer: First values of gamma.
        moving_mean_initializer: First values of the moving mean.
        moving_variance_initializer: First values of the moving variance.
        beta_regularizer: A penalty on beta.
        gamma_regularizer: A penalty on gamma.
        beta_constraint: A callable that beta goes through after each update.
        gamma_constraint: A callable that gamma goes through after each update.
        renorm: Only False: renormalization is not available.
        renorm_clipping: Only None.
        renorm_momentum: Without effect, as `renorm` is False.
        synchronized: Only False: there is one device.

    Input: Any number of axes, with a known size along `axis`; any floating dtype.

    Output: As the input.

    Source: Ioffe and Szegedy, "Batch Normalization: Accelerating Deep Network Training by Reducing
    Internal Covariate Shift", 2015.

    Example:

    >>> import kerascnn as keras
    >>> layer = keras.layers.BatchNormalization()
    >>> y = layer(keras.ops.convert_to_tensor([[1.0], [3.0]]), training=True)
    >>> y.numpy().round(2).tolist()
    [[-1.0], [1.0]]
    >>> print(layer.moving_mean.numpy())
    [0.02]
    """

    def __init__(
        self,
        axis: int = -1,
        momentum: float = 0.99,
        epsilon: float = 1e-3,
        center: bool = True,
        scale: bool = True,
        beta_initializer: Any = "zeros",
        gamma_initializer: Any = "ones",
        moving_mean_initializer: Any = "zeros",
        moving_variance_initializer: Any = "ones",
        beta_regularizer: Any = None,
        gamma_regularizer: Any = None,
        beta_constraint: Any = None,
        gamma_constraint: Any = None,
        renorm: bool = False,
        renorm_clipping: dict[str, float] | None = None,
        renorm_momentum: float = 0.99,
        synchronized: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        for name, value in (("renorm", renorm), ("synchronized", synchronized)):
            if value:
                raise ValueError(f"BatchNormalization: {name}=True is not available.")
        if renorm_clipping is not None:
            raise ValueError("BatchNormalization: renorm_clipping is not available.")
        self.axis = int(axis)
        self.momentum = float(momentum)
        self.epsilon = float(epsilon)
        self.center = center
        self.scale = scale
        self.renorm_momentum = renorm_momentum
        self.beta_initializer = initializers.get(beta_initializer)
        self.gamma_initializer = initializers.get(gamma_initializer)
        self.moving_mean_initializer = initializers.get(moving_mean_initializer)
        self.moving_variance_initializer = initializers.get(moving_variance_initializer)
        self.beta_regularizer = regularizers.get(beta_regularizer)
        self.gamma_regularizer = regularizers.get(gamma_regularizer)
        self.beta_constraint = constraints.get(beta_constraint)
        self.gamma_constraint = constraints.get(gamma_constraint)

    def build(self, input_shape: Any) -> None:
        rank = len(input_shape)
        if not -rank <= self.axis < rank:
            raise ValueError(
                f"Layer '{self.name}': axis={self.axis} does not exist in an input of shape "
                f"{tuple(input_shape)}."
            )
        channels = input_shape[self.axis]
        if channels is None:
            raise ValueError(
                f"Layer '{self.name}' needs to know the size of axis {self.axis}. Received: "
                f"input_shape={tuple(input_shape)}"
            )
        self.input_spec = InputSpec(ndim=rank, axes={self.axis: channels})
        shape = (channels,)
        self.gamma = self.beta = None
        if self.scale:
            self.gamma = self.add_weight(
                name="gamma",
                shape=shape,
                initializer=self.gamma_initializer,
                regularizer=self.gamma_regularizer,
                constraint=self.gamma_constraint,
            )
        if self.center:
            self.beta = self.add_weight(
                name="beta",
                shape=shape,
                initializer=self.beta_initializer,
                regularizer=self.beta_regularizer,
                constraint=self.beta_constraint,
            )
        self.moving_mean = self.add_weight(
            name="moving_mean",
            shape=shape,
            initializer=self.moving_mean_initializer,
            trainable=False,
            autocast=False,
        )
        self.moving_variance = self.add_weight(
            name="moving_variance",
            shape=shape,
            initializer=self.moving_variance_initializer,
            trainable=False,
            autocast=False,
        )

    def call(self, inputs: Any, training: bool | None = None, mask: Any = None) -> Any:
        if mask is not None:
            raise ValueError(f"Layer '{self.name}': masks are not available.")
        # Sums of many squares need more range and digits than the 16-bit types have.
        x = ops.cast(inputs, dtypes.result_type(inputs.dtype, "float32"))
        if training and self.trainable:
            return ops.cast(self._by_batch(x), self.compute_dtype)
        outputs = ops.batch_normalization(
            x,
            self.moving_mean,
            self.moving_variance,
            self.axis,
            offset=self.beta,
            scale=self.gamma,
            epsilon=self.epsilon,
        )
        return ops.cast(outputs, self.compute_dtype)

    def _by_batch(self, inputs: Any) -> Any:
        """Normalizes by the batch, and moves the averages on."""
        rank = len(inputs.shape)
        last = self.axis % rank == rank - 1
        x = inputs if last else ops.moveaxis(inputs, self.axis, -1)
        channels = (x.shape[-1],)
        gamma = self.gamma if self.scale else ops.ones(channels, self.variable_dtype)
        beta = self.beta if self.center else ops.zeros(channels, self.variable_dtype)
        operands = [x, *(dispatch.convert(v, x.dtype, like=x) for v in (gamma, beta))]
        y, mean, variance = dispatch.apply("batch_norm", operands, {"epsilon": self.epsilon})[:3]
        for moving, batch in ((self.moving_mean, mean), (self.moving_variance, variance)):
            old = ops.multiply(moving, self.momentum)
            moving.assign(ops.add(old, ops.multiply(batch, 1.0 - self.momentum)))
        return y if last else ops.moveaxis(y, -1, self.axis)

    def compute_output_shape(self, input_shape: Any) -> Any:
        return input_shape

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "axis": self.axis,
            "momentum": self.momentum,
            "epsilon": self.epsilon,
            "center": self.center,
            "scale": self.scale,
            "beta_initializer": initializers.serialize(self.beta_initializer),
            "gamma_initializer": initializers.serialize(self.gamma_initializer),
            "moving_mean_initializer": initializers.serialize(self.moving_mean_initializer),
            "moving_variance_initializer": initializers.serialize(self.moving_variance_initializer),
            "beta_regularizer": regularizers.serialize(self.beta_regularizer),
            "gamma_regularizer": regularizers.serialize(self.gamma_regularizer),
            "beta_constraint": constraints.serialize(self.beta_constraint),
            "gamma_constraint": constraints.serialize(self.gamma_constraint),
            "synchronized": False,
            "renorm": False,
            "renorm_clipping": None,
            "renorm_momentum": self.renorm_momentum,
        }
