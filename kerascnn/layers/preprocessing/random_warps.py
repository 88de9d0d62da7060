"""Layers that change the perspective of images, or distort them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from kerascnn import ops, random
from kerascnn.layers.preprocessing.base import (
    INTERPOLATIONS,
    ImagePreprocessing,
    check_choice,
    factor_overlapping,
    images_in,
    per_image,
    saved_seed,
)
from kerascnn.ops.image.sampling import FILL_MODES, homography, moved_pixels
from kerascnn.utils import bounding_boxes as box_utils


class RandomPerspective(ImagePreprocessing):
    """In training, moves the corners of randomly chosen images by random parts of their sizes.

    Outside of training nothing happens.

    Args:
        factor: How likely an image is changed: a probability that is drawn for each image between
            two bounds, or between 0 and one number.
        scale: From 0 to 1: each coordinate of a corner grows or shrinks by up to half of this part
            of itself.
        interpolation: "bilinear" or "nearest".
        fill_value: What comes in from outside.
        seed: An integer for a generator of this layer's own; by default the program's is used.
        data_format: By default the configured one.

    Raises:
        ValueError: for a factor or scale out of range.
        NotImplementedError: for an unknown interpolation.

    Input: (height, width, channels), or with a batch; of any dtype.

    Output: The same shape, in the layer's dtype.

    Example:

    >>> import kerascnn as keras
    >>> layer = keras.layers.RandomPerspective(scale=0.3)
    >>> layer(keras.ops.ones((2, 8, 8, 3)), training=True).shape
    (2, 8, 8, 3)
    """

    _factor_bounds = (0, 1)

    def __init__(
        self,
        factor: Any = 1.0,
        scale: float = 1.0,
        interpolation: str = "bilinear",
        fill_value: float = 0.0,
        seed: Any = None,
        data_format: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(data_format=data_format, **kwargs)
        self._set_factor(factor)
        if not isinstance(scale, (int, float)) or scale < 0.0 or scale > 1.0:
            raise ValueError(
                "The `scale` argument should be a number in the range [0,1]. Received: "
                f"scale={scale}"
            )
        check_choice("interpolation", interpolation, INTERPOLATIONS)
        self.scale = scale
        self.interpolation = interpolation
        self.fill_value = fill_value
        self._set_seed(seed)

    def get_random_transformation(self, data: Any, training: bool = True, seed: Any = None) -> Any:
        if not training:
            return None
        images = images_in(data)
        batch, height, width = self._sizes(images)
        right, bottom = float(width - 1), float(height - 1)
        corners = np.array([[0, 0], [right, 0], [0, bottom], [right, bottom]], "float32")
        start = ops.cast(np.tile(corners, (batch, 1, 1)), self.compute_dtype)
        half = 0.5 * self.scale
        moves = self._uniform(images, (batch, 4, 2), -half, half, self.compute_dtype, seed)
        return {
            "apply_perspective": self._chosen(images, self.factor, seed),
            "start_points": start,
            "end_points": ops.add(start, ops.multiply(start, moves)),
            "input_shape": tuple(images.shape),
        }

    def _transform_images(self, images: Any, transformation: Any, interpolation: str) -> Any:
        seen = ops.image.perspective_transform(
            images,
            transformation["start_points"],
            transformation["end_points"],
            interpolation,
            self.fill_value,
            self.data_format,
        )
        return ops.where(per_image(transformation["apply_perspective"]), seen, images)

    def _transform_boxes(self, boxes: Any, transformation: Any) -> Any:
        # Boxes go the opposite way to pixels: from where things were to where they are seen.
        matrix = ops.cast(
            homography(transformation["end_points"], transformation["start_points"]), boxes.dtype
        )
        rows = [[matrix[:, i, j][:, None] for j in range(3)] for i in range(3)]

        def move(x: Any, y: Any) -> tuple[Any, Any]:
            along_x, along_y, depth = (a * x + b * y + c for a, b, c in rows)
            return along_x / depth, along_y / depth

        chosen = ops.reshape(transformation["apply_perspective"], (-1, 1, 1))
        return ops.where(chosen, box_utils.around(boxes, move), boxes)

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "factor": self.factor,
            "scale": self.scale,
            "interpolation": self.interpolation,
            "fill_value": self.fill_value,
            "seed": saved_seed(self.seed),
        }


class RandomElasticTransform(ImagePreprocessing):
    """In training, pushes the pixels of randomly chosen images around, neighbors alike.

    Outside of training nothing happens. Each image gets moves of its own; how far and over how many
    pixels they reach is drawn for the batch, as in Keras.

    Args:
        factor: How likely an image is changed: a probability that is drawn for each image between
            two bounds, or between 0 and one number.
        scale: How much is moved, from 0 to 1: two bounds between which s is drawn, or one number
            for 0 to that. Noise of standard deviation 0.05 s times the shorter side is smoothed
            over as many pixels, and multiplied by 0.1 s times the longer side.
        interpolation: "bilinear" or "nearest".
        fill_mode: What comes in from outside, as in `ops.image.affine_transform`.
        fill_value: For "constant".
        value_range: What comes out is kept in this range.
        seed: An integer for a generator of this layer's own; by default the program's is used.
        data_format: By default the configured one.

    Raises:
        ValueError: for a factor or scale out of range.
        NotImplementedError: for an unknown fill mode or interpolation.

    Input: (height, width, channels), or with a batch; of any dtype.

    Output: The same shape, in the layer's dtype.

    Source: Simard, Steinkraus and Platt, "Best Practices for Convolutional Neural Networks Applied
    to Visual Document Analysis", 2003.

    Example:

    >>> import kerascnn as keras
    >>> layer = keras.layers.RandomElasticTransform()
    >>> layer(keras.ops.ones((2, 8, 8, 3)), training=True).shape
    (2, 8, 8, 3)
    """

    _factor_bounds = (0, 1)

    def __init__(
        self,
        factor: Any = 1.0,
        scale: Any = 1.0,
        interpolation: str = "bilinear",
        fill_mode: str = "reflect",
        fill_value: float = 0.0,
        value_range: Sequence[float] = (0, 255),
        seed: Any = None,
        data_format: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(data_format=data_format, **kwargs)
        self._set_factor(factor)
        self.scale = factor_overlapping(scale, *self._factor_bounds, "scale")
        check_choice("interpolation", interpolation, INTERPOLATIONS)
        check_choice("fill_mode", fill_mode, FILL_MODES)
        self.interpolation = interpolation
        self.fill_mode = fill_mode
        self.fill_value = fill_value
        self.value_range = value_range
        self._set_seed(seed)

    def get_random_transformation(self, data: Any, training: bool = True, seed: Any = None) -> Any:
        if not training or self.scale[1] == 0 or self.factor[1] == 0:
            return None
        images = images_in(data)
        shape = (*self._sizes(images), 2)
        wide = "float64" if self.compute_dtype == "float64" else "float32"
        with self._drawing(images, seed) as generator:
            noise = random.normal(shape, dtype=wide, seed=generator)
        return {
            "apply_transform": self._chosen(images, self.factor, seed),
            "distortion_factor": self._uniform(images, (), *self.scale, wide, seed),
            "noise": noise,
        }

    def _transform_images(self, images: Any, transformation: Any, interpolation: str) -> Any:
        images = ops.convert_to_tensor(images)
        moves = self._moves(transformation)
        moved = moved_pixels(
            images, moves, interpolation, self.fill_mode, self.fill_value, self.data_format
        )
        return ops.where(per_image(transformation["apply_transform"]), moved, images)

    def _input_sizes(self, transformation: Any) -> tuple[int, int]:
        _, height, width, _ = transformation["noise"].shape
        return height, width

    def _transform_boxes(self, boxes: Any, transformation: Any) -> Any:
        if boxes.shape[1] == 0:
            return boxes
        moves = self._moves(transformation)
        _, height, width, _ = moves.shape
        # These are the places that the centers of pixels come from, in the coordinates of boxes.
        x = moves[..., 0] + (np.arange(width) + 0.5).reshape(1, 1, -1).astype(moves.dtype)
        y = moves[..., 1] + (np.arange(height) + 0.5).reshape(1, -1, 1).astype(moves.dtype)

        def seen(box: Any) -> Any:
            """Finds the boxes around the pixels that come from one box of each image, (n, 4)."""
            left, top, right, bottom = (ops.reshape(box[:, i], (-1, 1, 1)) for i in range(4))
            inside = (x >= left) & (x < right) & (y >= top) & (y < bottom)
            first_column, end_column = box_utils.extent(ops.any(inside, 1))
            first_row, end_row = box_utils.extent(ops.any(inside, 2))
            return ops.stack([first_column, first_row, end_column, end_row], -1)

        # The boxes of an image are computed one by one, since all at once would need much memory.
        moved = ops.map(seen, ops.transpose(ops.cast(boxes, moves.dtype), (1, 0, 2)))
        moved = ops.cast(ops.transpose(moved, (1, 0, 2)), boxes.dtype)
        return ops.where(ops.reshape(transformation["apply_transform"], (-1, 1, 1)), moved, boxes)

    def _moves(self, transformation: Any) -> Any:
        """Draws how far each pixel moves, (n, height, width, 2), along width and height."""
        noise, factor = transformation["noise"], transformation["distortion_factor"]
        _, height, width, _ = noise.shape
        shorter, longer = min(height, width), max(height, width)
        # The lower limit avoids a division by 0, which would occur once in 10^7 draws.
        sigma = ops.maximum(ops.multiply(factor, 0.05 * shorter), 1e-6)
        reach = int(3 * 0.05 * shorter * self.scale[1])
        places = np.arange(-reach, reach + 1).astype(noise.dtype)
        bell = ops.exp(ops.multiply(ops.square(ops.divide(places, sigma)), -0.5))
        # The window's size depends on the draw: weights beyond it are 0.
        inside = ops.less_equal(np.abs(places), ops.multiply(sigma, 3.0))
        bell = ops.where(inside, bell, 0.0)
        bell = ops.divide(bell, ops.sum(bell))
        moves = ops.multiply(noise, sigma)
        for shape in ((-1, 1, 1, 1), (1, -1, 1, 1)):
            kernel = ops.repeat(ops.reshape(bell, shape), 2, 2)
            moves = ops.depthwise_conv(moves, kernel, 1, "same", "channels_last")
        return ops.multiply(moves, ops.multiply(factor, 0.1 * longer))

    def transform_images(self, images: Any, transformation: Any, training: bool = True) -> Any:
        images = super().transform_images(images, transformation, training)
        if not training or transformation is None:
            return images
        return ops.clip(images, float(self.value_range[0]), float(self.value_range[1]))

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "factor": self.factor,
            "scale": self.scale,
            "interpolation": self.interpolation,
            "fill_mode": self.fill_mode,
            "fill_value": self.fill_value,
            "value_range": self.value_range,
            "seed": saved_seed(self.seed),
        }
