"""Layers that move, rotate, zoom and shear images at random."""

from __future__ import annotations

import math
import types
from typing import Any

from kerascnn import ops
from kerascnn.layers.preprocessing.base import (
    FILL_MODES,
    INTERPOLATIONS,
    ImagePreprocessing,
    check_choice,
    factor_range,
    images_in,
    saved_seed,
)
from kerascnn.ops.image.sampling import affine_pixels
from kerascnn.utils import bounding_boxes as box_utils


class RandomAffine(ImagePreprocessing):
    """The base of these layers: a matrix for each image says where pixels come from."""

    def _set_sampling(
        self, fill_mode: str, interpolation: str, fill_value: float, seed: Any
    ) -> None:
        check_choice("fill_mode", fill_mode, FILL_MODES)
        check_choice("interpolation", interpolation, INTERPOLATIONS)
        self.fill_mode = fill_mode
        self.interpolation = interpolation
        self.fill_value = fill_value
        self._set_seed(seed)

    def parts(self, images: Any, transformation: Any) -> tuple[Any, ...]:
        """Returns a0 to b2 of `ops.image.affine_transform`, (n, 1) or the same for all."""
        raise NotImplementedError

    def _transform_boxes(self, boxes: Any, transformation: Any) -> Any:
        height, width = self._input_sizes(transformation)
        channels_last = self.data_format == "channels_last"
        shape = (1, height, width, 1) if channels_last else (1, 1, height, width)
        parts = self.parts(types.SimpleNamespace(shape=shape), transformation)
        # The parts say where a pixel comes from; boxes go the opposite way.
        a0, a1, a2, b0, b1, b2 = (ops.cast(part, boxes.dtype) for part in parts)
        determinant = ops.subtract(ops.multiply(a0, b1), ops.multiply(a1, b0))

        def move(x: Any, y: Any) -> tuple[Any, Any]:
            x, y = ops.subtract(x, a2), ops.subtract(y, b2)
            column = ops.subtract(ops.multiply(b1, x), ops.multiply(a1, y))
            row = ops.subtract(ops.multiply(a0, y), ops.multiply(b0, x))
            return ops.divide(column, determinant), ops.divide(row, determinant)

        return box_utils.around(boxes, move)

    def _transform_images(self, images: Any, transformation: Any, interpolation: str) -> Any:
        return affine_pixels(
            ops.convert_to_tensor(images),
            self.parts(images, transformation),
            interpolation,
            self.fill_mode,
            self.fill_value,
            self.data_format,
        )

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "fill_mode": self.fill_mode,
            "interpolation": self.interpolation,
            "seed": saved_seed(self.seed),
            "fill_value": self.fill_value,
        }


class _RandomHeightAndWidth(RandomAffine):
    """Has a factor for each direction; some layers do not require `width_factor`."""

    _range = "[-1.0, 1.0]"
    _open_below = False

    def _set_factors(self, height_factor: Any, width_factor: Any) -> None:
        self.height_factor = height_factor
        self.height_lower, self.height_upper = self._bounds("height_factor", height_factor)
        self.width_factor = width_factor
        if width_factor is not None:
            self.width_lower, self.width_upper = self._bounds("width_factor", width_factor)

    def _bounds(self, name: str, factor: Any) -> tuple[float, float]:
        message = (
            f"The `{name}` argument should be a number (or a list of two numbers) in the range "
            f"{self._range}. Received: {name}={factor}"
        )
        return factor_range(factor, -1.0, 1.0, message, self._open_below)

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "height_factor": self.height_factor,
            "width_factor": self.width_factor,
        }


class RandomTranslation(_RandomHeightAndWidth):
    """In training, moves each image by a random part of its size; outside of it nothing happens.

    Args:
        height_factor: A number f for up to f of the height up or down, or two bounds; positive is
            down. From -1 to 1.
        width_factor: The same for the width; positive is to the right.
        fill_mode: What comes in from outside: the image mirrored with its border repeated
            ("reflect"), the image again ("wrap"), "constant", or the "nearest" pixel.
        interpolation: "bilinear" or "nearest".
        seed: An integer for a generator of this layer's own; by default the program's is used.
        fill_value: For "constant".
        data_format: By default the configured one.

    Raises:
        ValueError: for factors out of range.
        NotImplementedError: for an unknown fill mode or interpolation.

    Input: (height, width, channels), or with a batch; of any dtype.

    Output: The same shape, in the layer's dtype.

    Example:

    >>> import kerascnn as keras
    >>> image = keras.ops.reshape(keras.ops.arange(4.0), (1, 4, 1))
    >>> layer = keras.layers.RandomTranslation(0.0, (0.25, 0.25), fill_mode="constant")
    >>> layer(image, training=True).numpy().ravel().tolist()
    [0.0, 0.0, 1.0, 2.0]
    """

    def __init__(
        self,
        height_factor: Any,
        width_factor: Any,
        fill_mode: str = "reflect",
        interpolation: str = "bilinear",
        seed: Any = None,
        fill_value: float = 0.0,
        data_format: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(data_format=data_format, **kwargs)
        if width_factor is None:
            self._bounds("width_factor", width_factor)
        self._set_factors(height_factor, width_factor)
        self._set_sampling(fill_mode, interpolation, fill_value, seed)

    def get_random_transformation(self, data: Any, training: bool = True, seed: Any = None) -> Any:
        if not training:
            return None
        images = images_in(data)
        batch, height, width = self._sizes(images)
        down = self._uniform(images, (batch, 1), self.height_lower, self.height_upper, seed=seed)
        right = self._uniform(images, (batch, 1), self.width_lower, self.width_upper, seed=seed)
        moves = [ops.multiply(right, float(width)), ops.multiply(down, float(height))]
        translations = ops.cast(ops.concatenate(moves, 1), "float32")
        return {"translations": translations, "input_shape": tuple(images.shape)}

    def parts(self, images: Any, transformation: Any) -> tuple[Any, ...]:
        moves = ops.negative(transformation["translations"])
        right, down = ops.split(moves, 2, 1)
        return 1.0, 0.0, right, 0.0, 1.0, down


class RandomZoom(_RandomHeightAndWidth):
    """In training, zooms each image out of or into its middle; outside of it nothing happens.

    Args:
        height_factor: A number f for up to f out or in, or two bounds; positive zooms out (0.2:
            the image gets 1 / 1.2 of its height), negative in. Above -1, up to 1.
        width_factor: The same for the width; by default as drawn for the height, which keeps the
            proportions.
        fill_mode: What comes in from outside: the image mirrored with its border repeated
            ("reflect"), the image again ("wrap"), "constant", or the "nearest" pixel.
        interpolation: "bilinear" or "nearest".
        seed: An integer for a generator of this layer's own; by default the program's is used.
        fill_value: For "constant".
        data_format: By default the configured one.

    Raises:
        ValueError: for factors out of range.
        NotImplementedError: for an unknown fill mode or interpolation.

    Input: (height, width, channels), or with a batch; of any dtype.

    Output: The same shape, in the layer's dtype.

    Example:

    >>> import kerascnn as keras
    >>> keras.layers.RandomZoom(0.2)(keras.ops.ones((2, 8, 8, 3)), training=True).shape
    (2, 8, 8, 3)
    """

    _range = "(-1.0, 1.0]"
    _open_below = True

    def __init__(
        self,
        height_factor: Any,
        width_factor: Any = None,
        fill_mode: str = "reflect",
        interpolation: str = "bilinear",
        seed: Any = None,
        fill_value: float = 0.0,
        data_format: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(data_format=data_format, **kwargs)
        self._set_factors(height_factor, width_factor)
        self._set_sampling(fill_mode, interpolation, fill_value, seed)

    def get_random_transformation(self, data: Any, training: bool = True, seed: Any = None) -> Any:
        if not training:
            return None
        images = images_in(data)
        shape = (self._sizes(images)[0], 1)
        low, high = 1.0 + self.height_lower, 1.0 + self.height_upper
        height_zoom = width_zoom = self._uniform(images, shape, low, high, seed=seed)
        if self.width_factor is not None:
            low, high = 1.0 + self.width_lower, 1.0 + self.width_upper
            width_zoom = self._uniform(images, shape, low, high, seed=seed)
        return {
            "height_zoom": height_zoom,
            "width_zoom": width_zoom,
            "input_shape": tuple(images.shape),
        }

    def parts(self, images: Any, transformation: Any) -> tuple[Any, ...]:
        _, height, width = self._sizes(images)
        zoom_x = ops.cast(transformation["width_zoom"], "float32")
        zoom_y = ops.cast(transformation["height_zoom"], "float32")
        # The middle of the image stays where it is.
        shift_x = ops.multiply(ops.subtract(1.0, zoom_x), (width - 1) / 2)
        shift_y = ops.multiply(ops.subtract(1.0, zoom_y), (height - 1) / 2)
        return zoom_x, 0.0, shift_x, 0.0, zoom_y, shift_y


class RandomRotation(RandomAffine):
    """In training, turns each image around its middle; outside of it nothing happens.

    Args:
        factor: A number f for up to f of a full turn in both directions, or two bounds; positive
            turns counter-clockwise. From -1 to 1.
        fill_mode: What comes in from outside: the image mirrored with its border repeated
            ("reflect"), the image again ("wrap"), "constant", or the "nearest" pixel.
        interpolation: "bilinear" or "nearest".
        seed: An integer for a generator of this layer's own; by default the program's is used.
        fill_value: For "constant".
        data_format: By default the configured one.

    Raises:
        ValueError: for a factor out of range.
        NotImplementedError: for an unknown fill mode or interpolation.

    Input: (height, width, channels), or with a batch; of any dtype.

    Output: The same shape, in the layer's dtype.

    Example:

    >>> import kerascnn as keras
    >>> image = keras.ops.reshape(keras.ops.arange(4.0), (2, 2, 1))
    >>> layer = keras.layers.RandomRotation((0.25, 0.25))
    >>> layer(image, training=True).numpy().round(4).ravel().tolist()
    [1.0, 3.0, 0.0, 2.0]
    """

    def __init__(
        self,
        factor: Any,
        fill_mode: str = "reflect",
        interpolation: str = "bilinear",
        seed: Any = None,
        fill_value: float = 0.0,
        data_format: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(data_format=data_format, **kwargs)
        self._set_factor(factor)
        self._set_sampling(fill_mode, interpolation, fill_value, seed)

    def get_random_transformation(self, data: Any, training: bool = True, seed: Any = None) -> Any:
        if not training:
            return None
        images = images_in(data)
        batch, height, width = self._sizes(images)
        low, high = self.factor[0] * 360.0, self.factor[1] * 360.0
        angle = self._uniform(images, (batch,), low, high, seed=seed)
        parts = _rotation(angle, height, width)
        zero = ops.zeros_like(parts[0])
        matrix = ops.concatenate([*parts, zero, zero], 1)
        return {
            "angle": angle,
            "rotation_matrix": ops.squeeze(matrix, 0) if len(images.shape) == 3 else matrix,
            "image_height": height,
            "image_width": width,
            "batch_size": batch,
        }

    def parts(self, images: Any, transformation: Any) -> tuple[Any, ...]:
        # This does not use the matrix, whose columns would be joined and split again.
        _, height, width = self._sizes(images)
        return _rotation(transformation["angle"], height, width)

    def _input_sizes(self, transformation: Any) -> tuple[int, int]:
        return transformation["image_height"], transformation["image_width"]

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "factor": self.factor}


class RandomShear(RandomAffine):
    """In training, slants each image by a random amount; outside of it nothing happens.

    Args:
        x_factor: How many pixels to the side a row moves for each row below the first one: a number
            f for up to f in both directions, or two bounds for both directions. From 0 to 1.
        y_factor: The same for columns.
        interpolation: "bilinear" or "nearest".
        fill_mode: What comes in from outside: the image mirrored with its border repeated
            ("reflect"), the image again ("wrap"), "constant", or the "nearest" pixel.
        fill_value: For "constant".
        data_format: By default the configured one.
        seed: An integer for a generator of this layer's own; by default the program's is used.

    Raises:
        ValueError: for factors out of range.
        NotImplementedError: for an unknown fill mode or interpolation.

    Input: (height, width, channels), or with a batch; of any dtype.

    Output: The same shape, in the layer's dtype.

    Example:

    >>> import kerascnn as keras
    >>> layer = keras.layers.RandomShear(0.2, 0.2)
    >>> layer(keras.ops.ones((2, 8, 8, 3)), training=True).shape
    (2, 8, 8, 3)
    """

    def __init__(
        self,
        x_factor: Any = 0.0,
        y_factor: Any = 0.0,
        interpolation: str = "bilinear",
        fill_mode: str = "reflect",
        fill_value: float = 0.0,
        data_format: str | None = None,
        seed: Any = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(data_format=data_format, **kwargs)
        self.x_factor = _shear_bounds("x_factor", x_factor)
        self.y_factor = _shear_bounds("y_factor", y_factor)
        self._set_sampling(fill_mode, interpolation, fill_value, seed)

    def get_random_transformation(self, data: Any, training: bool = True, seed: Any = None) -> Any:
        if not training:
            return None
        images = images_in(data)
        shape = (self._sizes(images)[0], 1)
        dtype = self.compute_dtype
        backward = ops.greater(self._uniform(images, shape, dtype=dtype, seed=seed), 0.5)
        factors = [
            self._uniform(images, shape, *factor, dtype, seed)
            for factor in (self.x_factor, self.y_factor)
        ]
        shear = ops.concatenate(factors, 1)
        return {
            "shear_factor": ops.where(backward, ops.negative(shear), shear),
            "input_shape": tuple(images.shape),
        }

    def parts(self, images: Any, transformation: Any) -> tuple[Any, ...]:
        along_x, along_y = ops.split(ops.cast(transformation["shear_factor"], "float32"), 2, 1)
        return 1.0, along_x, 0.0, along_y, 1.0, 0.0

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "x_factor": self.x_factor, "y_factor": self.y_factor}


def _shear_bounds(name: str, factor: Any) -> tuple[float, float]:
    """Returns the bounds of a factor; in a pair, as in a configuration, they may be negative."""
    message = (
        "The `factor` argument should be a number (or a list of two numbers) in the range "
        f"[0, 1.0]. Received: {name}={factor}"
    )
    lowest = -1.0 if isinstance(factor, (tuple, list)) else 0.0
    return factor_range(factor, lowest, 1.0, message)


def _rotation(angle: Any, height: int, width: int) -> tuple[Any, ...]:
    """Returns the numbers a0 to b2 that rotate images by angles in degrees, (n, 1)."""
    cosine, sine = (ops.reshape(part, (-1, 1)) for part in _cosine_and_sine(angle))
    center_x, center_y = (width - 1) / 2, (height - 1) / 2
    from_x = ops.add(
        ops.subtract(center_x, ops.multiply(cosine, center_x)), ops.multiply(sine, center_y)
    )
    from_y = ops.subtract(
        ops.subtract(center_y, ops.multiply(sine, center_x)), ops.multiply(cosine, center_y)
    )
    return cosine, ops.negative(sine), from_x, sine, cosine, from_y


def _cosine_and_sine(degrees: Any) -> tuple[Any, Any]:
    """Computes them for angles in degrees; multiples of 90 are exact."""
    quarters = ops.floor(ops.add(ops.multiply(degrees, 1 / 90), 0.5))
    rest = ops.multiply(
        ops.subtract(degrees, ops.multiply(quarters, 90.0)), math.pi / 180
    )  # from -pi/4 to pi/4, where the series is exact to float32
    square = ops.square(rest)
    cosine = _power_series(square, [1 / math.factorial(2 * i) for i in range(6)])
    sine = _power_series(square, [1 / math.factorial(2 * i + 1) for i in range(6)])
    sine = ops.multiply(sine, rest)
    turned = ops.mod(quarters, 2.0)  # 1 if cosine and sine swap
    negative = ops.greater_equal(ops.mod(quarters, 4.0), 2.0)
    sign = ops.where(negative, -1.0, 1.0)
    is_turned = ops.equal(turned, 1.0)
    return (
        ops.multiply(sign, ops.where(is_turned, ops.negative(sine), cosine)),
        ops.multiply(sign, ops.where(is_turned, cosine, sine)),
    )


def _power_series(square: Any, coefficients: list[float]) -> Any:
    """Computes c0 - c1 s + c2 s^2 - ... by Horner's rule."""
    result = ops.full_like(square, coefficients[-1])
    for coefficient in reversed(coefficients[:-1]):
        result = ops.subtract(coefficient, ops.multiply(result, square))
    return result
