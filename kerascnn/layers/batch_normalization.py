"""Normalization by the statistics of the batch."""

from __future__ import annotations

import math
from typing import Any

from kerascnn import config, constraints, dtypes, initializers, ops, regularizers
from kerascnn.distribution import replicas
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
        renorm: Whether, in training, the batch's statistics are corrected towards moving averages
            of their own, so that small batches behave as in inference.
        renorm_clipping: Limits of that correction: "rmin" and "rmax" of the factor, "dmax" of the
            offset.
        renorm_momentum: Of the averages that it goes by.
        synchronized: Whether, where several processes train one model, the statistics are those of
            the whole batch, as on one device, for two messages in each pass through the layer.
            Otherwise each process normalizes by its share of the batch, and the moving averages are
            those of the processes' statistics.

    Input: Any number of axes, with a known size along `axis`; any floating dtype. By keyword
    a `mask`, true for what the statistics of a batch are taken of, of the sizes of all axes but the
    last; by default the input's.

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

    _supports_masking = True

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
        self.synchronized = bool(synchronized)
        self.axis = int(axis)
        self.momentum = float(momentum)
        self.epsilon = float(epsilon)
        self.center = center
        self.scale = scale
        self.renorm = renorm
        self.renorm_clipping = _checked_clipping(renorm_clipping) if renorm else renorm_clipping
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
                autocast=False,
            )
        if self.center:
            self.beta = self.add_weight(
                name="beta",
                shape=shape,
                initializer=self.beta_initializer,
                regularizer=self.beta_regularizer,
                constraint=self.beta_constraint,
                autocast=False,
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
        if self.renorm:
            self._build_renorm(shape)

    def _build_renorm(self, shape: tuple[int, ...]) -> None:
        """Makes the averages by which the statistics are corrected."""

        def average(name: str, initializer: Any) -> Any:
            return self.add_weight(
                name=name,
                shape=shape,
                initializer=initializer,
                trainable=False,
                autocast=False,
            )

        self.moving_stddev = average("moving_stddev", self._first_stddev)
        self.renorm_mean = average("renorm_mean", self.moving_mean_initializer)
        self.renorm_stddev = average("renorm_stddev", self._first_stddev)

    def _first_stddev(self, shape: Any, dtype: Any = None) -> Any:
        return ops.sqrt(self.moving_variance_initializer(shape, dtype=dtype))

    def call(self, inputs: Any, training: bool | None = None, mask: Any = None) -> Any:
        if mask is not None and len(mask.shape) != len(inputs.shape) - 1:
            raise ValueError(
                f"Layer '{self.name}' (BatchNormalization): a mask has one axis less than the "
                f"inputs. Received: mask.shape={tuple(mask.shape)}, "
                f"inputs.shape={tuple(inputs.shape)}"
            )
        # Sums of many squares need a larger range and more digits than 16-bit types have.
        x = ops.cast(inputs, dtypes.result_type(inputs.dtype, "float32"))
        if training and self.trainable:
            return ops.cast(self._by_batch(x, mask), self.compute_dtype)
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

    def _by_batch(self, inputs: Any, mask: Any) -> Any:
        """Normalizes by the elements of the batch that count, and updates the moving averages."""
        rank = len(inputs.shape)
        last = self.axis % rank == rank - 1
        x = inputs if last else ops.moveaxis(inputs, self.axis, -1)
        channels = (x.shape[-1],)
        gamma = self.gamma if self.scale else ops.ones(channels, self.variable_dtype)
        beta = self.beta if self.center else ops.zeros(channels, self.variable_dtype)
        operands = [x, *(dispatch.convert(v, x.dtype, like=x) for v in (gamma, beta))]
        if mask is not None:
            # A mask has all axes but the last, even if another axis has the channels.
            mask = ops.broadcast_to(ops.expand_dims(ops.cast(mask, "bool"), -1), inputs.shape)
            mask = mask if last else ops.moveaxis(mask, self.axis, -1)
        if self.renorm:
            y = self._renormalized(operands, mask)
        else:
            y, *moments = self._normalized(operands, mask)
            mean, variance = self._of_all(moments)
            _move(self.moving_mean, mean, self.momentum)
            _move(self.moving_variance, variance, self.momentum)
        return y if last else ops.moveaxis(y, -1, self.axis)

    def _normalized(self, operands: list[Any], mask: Any) -> tuple[Any, Any, Any]:
        """Normalizes by the batch, scales and moves; also returns the batch's mean and variance."""
        if self.synchronized and replicas.active() is not None:
            return self._normalized_together(operands, mask)
        if mask is None:
            results = dispatch.apply("batch_norm", operands, {"epsilon": self.epsilon})
            return results[0], results[1], results[2]
        x, gamma, beta = operands
        axes = list(range(len(x.shape) - 1))
        # As in Keras, the count is slightly enlarged, so that a batch in which nothing counts gives
        # no NaN.
        count = ops.add(ops.sum(ops.cast(mask, x.dtype), axes), config.epsilon())
        mean = ops.divide(ops.sum(ops.where(mask, x, 0), axes), count)
        centered = ops.subtract(x, mean)
        squares = ops.where(mask, ops.square(centered), 0)
        variance = ops.divide(ops.sum(squares, axes), count)
        factor = ops.multiply(gamma, ops.rsqrt(ops.add(variance, self.epsilon)))
        return ops.add(ops.multiply(centered, factor), beta), mean, variance

    def _normalized_together(self, operands: list[Any], mask: Any) -> tuple[Any, Any, Any]:
        """Does the same by the batches of all processes."""
        x, gamma, beta = operands
        axes = list(range(len(x.shape) - 1))
        if mask is None:
            count = ops.full(gamma.shape, math.prod(x.shape[:-1]), x.dtype)
        else:
            count = ops.sum(ops.cast(mask, x.dtype), axes)
        counted = x if mask is None else ops.where(mask, x, 0)
        total, count = replicas.summed([ops.sum(counted, axes), count])
        if mask is not None:
            count = ops.add(count, config.epsilon())
        mean = ops.divide(total, count)
        centered = ops.subtract(x, mean)
        squares = ops.square(centered)
        squares = squares if mask is None else ops.where(mask, squares, 0)
        variance = ops.divide(replicas.summed([ops.sum(squares, axes)])[0], count)
        factor = ops.multiply(gamma, ops.rsqrt(ops.add(variance, self.epsilon)))
        return ops.add(ops.multiply(centered, factor), beta), mean, variance

    def _of_all(self, moments: list[Any]) -> list[Any]:
        """Returns the mean of the processes' statistics, so that all keep the same averages."""
        return moments if self.synchronized else replicas.averaged(moments)

    def _renormalized(self, operands: list[Any], mask: Any) -> Any:
        """Normalizes by the batch, then corrects the result towards the moving averages."""
        x, gamma, beta = operands
        plain = [x, ops.ones_like(gamma), ops.zeros_like(beta)]
        y, *moments = self._normalized(plain, mask)
        mean, variance = (ops.stop_gradient(v) for v in moments)
        stddev = ops.sqrt(ops.add(variance, self.epsilon))
        usual = ops.maximum(ops.cast(self.renorm_stddev, x.dtype), self.epsilon**0.5)
        factor = ops.divide(stddev, usual)
        offset = ops.divide(ops.subtract(mean, ops.cast(self.renorm_mean, x.dtype)), usual)
        limits = self.renorm_clipping or {}
        if limits.get("rmin") is not None:
            factor = ops.maximum(factor, limits["rmin"])
        if limits.get("rmax") is not None:
            factor = ops.minimum(factor, limits["rmax"])
        if limits.get("dmax") is not None:
            offset = ops.clip(offset, -limits["dmax"], limits["dmax"])
        # The correction is a constant for gradients, as in the paper.
        factor, offset = ops.stop_gradient(factor), ops.stop_gradient(offset)
        mean, stddev = self._of_all([mean, stddev])
        _move(self.renorm_mean, mean, self.renorm_momentum)
        _move(self.renorm_stddev, stddev, self.renorm_momentum)
        _move(self.moving_mean, mean, self.momentum)
        moved = _move(self.moving_stddev, stddev, self.momentum)
        self.moving_variance.assign(ops.relu(ops.subtract(ops.square(moved), self.epsilon)))
        scale = ops.multiply(factor, gamma)
        return ops.add(ops.multiply(y, scale), ops.add(ops.multiply(offset, gamma), beta))

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
            "synchronized": self.synchronized,
            "renorm": self.renorm,
            "renorm_clipping": self.renorm_clipping,
            "renorm_momentum": self.renorm_momentum,
        }


def _move(average: Any, value: Any, momentum: float) -> Any:
    """Updates a moving average and returns its new value."""
    old = ops.multiply(average, momentum)
    new = ops.add(old, ops.multiply(value, 1.0 - momentum))
    average.assign(new)
    return new


def _checked_clipping(limits: dict[str, float] | None) -> dict[str, float]:
    limits = limits or {}
    wrong = sorted(set(limits) - {"rmin", "rmax", "dmax"})
    if wrong:
        raise ValueError(
            f"`renorm_clipping` has the keys rmin, rmax and dmax. Received: {wrong} in {limits}"
        )
    rmin, rmax, dmax = (limits.get(key) for key in ("rmin", "rmax", "dmax"))
    if rmin is not None and rmax is not None and rmax < rmin:
        raise ValueError(f"`renorm_clipping` needs rmin <= rmax. Received: {limits}")
    if dmax is not None and dmax < 0:
        raise ValueError(f"`renorm_clipping` needs dmax >= 0. Received: {limits}")
    return limits
