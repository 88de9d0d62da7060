"""Parts of images at random places, and images turned over."""

from __future__ import annotations

from typing import Any

import numpy as np

from kerascnn import ops, seed_generators
from kerascnn.layers.preprocessing.base import ImagePreprocessing, images_in, saved_seed
from kerascnn.ops import dispatch, resampling
from kerascnn.ops import image as image_ops
from kerascnn.utils import bounding_boxes as box_utils

HORIZONTAL = "horizontal"
VERTICAL = "vertical"
HORIZONTAL_AND_VERTICAL = "horizontal_and_vertical"


class RandomFlip(ImagePreprocessing):
    """In training, turns about half of the images over; outside of it nothing happens.

    Args:
        mode: "horizontal" (left and right change places), "vertical" (top and bottom), or
            "horizontal_and_vertical" (both at once).
        seed: An integer for a generator of this layer's own; by default the program's is used.
        data_format: By default the configured one.

    Raises:
        ValueError: for another mode.

    Input: (height, width, channels), or with a batch; of any dtype.

    Output: The same shape, in the layer's dtype.

    Example:

    >>> import kerascnn as keras
    >>> image = keras.ops.reshape(keras.ops.arange(4.0), (2, 2, 1))
    >>> layer = keras.layers.RandomFlip("horizontal", seed=1)
    >>> layer(image, training=False).numpy().ravel().tolist()
    [0.0, 1.0, 2.0, 3.0]
    """

    _notes_all_calls = True

    def __init__(
        self,
        mode: str = HORIZONTAL_AND_VERTICAL,
        seed: Any = None,
        data_format: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(data_format=data_format, **kwargs)
        if mode not in (HORIZONTAL, VERTICAL, HORIZONTAL_AND_VERTICAL):
            raise ValueError(
                f"`mode` must be '{HORIZONTAL}', '{VERTICAL}' or '{HORIZONTAL_AND_VERTICAL}'. "
                f"Received: mode={mode!r}"
            )
        self.mode = mode
        self._set_seed(seed)

    def get_random_transformation(self, data: Any, training: bool = True, seed: Any = None) -> Any:
        if not training:
            return None
        images = images_in(data)
        shape = tuple(images.shape)
        draws = self._uniform(images, (*shape[: len(shape) - 3], 1, 1, 1), seed=seed)
        return {"flips": ops.less_equal(draws, 0.5), "input_shape": shape}

    def _transform_images(self, images: Any, transformation: Any, interpolation: str) -> Any:
        flips = transformation["flips"]
        axes = []
        if self.mode != VERTICAL:
            axes.append(self.width_axis)
        if self.mode != HORIZONTAL:
            axes.append(self.height_axis)
        flipped = ops.flip(images, [len(images.shape) + axis for axis in axes])
        return ops.where(flips, flipped, images)

    def transform_segmentation_masks(
        self, segmentation_masks: Any, transformation: Any, training: bool = True
    ) -> Any:
        return self.transform_images(segmentation_masks, transformation, training)

    def _transform_boxes(self, boxes: Any, transformation: Any) -> Any:
        height, width = self._input_sizes(transformation)
        left, top, right, bottom = ops.split(boxes, 4, -1)
        if self.mode != VERTICAL:
            left, right = ops.subtract(width, right), ops.subtract(width, left)
        if self.mode != HORIZONTAL:
            top, bottom = ops.subtract(height, bottom), ops.subtract(height, top)
        flipped = ops.concatenate([left, top, right, bottom], -1)
        return ops.where(ops.reshape(transformation["flips"], (-1, 1, 1)), flipped, boxes)

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "seed": saved_seed(self.seed), "mode": self.mode}


class RandomCrop(ImagePreprocessing):
    """In training, crops a part at a random place, which is the same for the whole batch.

    An image that is not larger than the part, in either direction, is resized to it. Outside of
    training the images pass as they are, in Keras too: resize or crop them before.

    Args:
        height: Of the part.
        width: Of the part.
        seed: An integer for a generator of this layer's own; by default one is drawn.
        data_format: By default the configured one.

    Input: (height, width, channels), or with a batch; of any dtype and known sizes.

    Output: The same with the new height and width, in the layer's dtype.

    Example:

    >>> import kerascnn as keras
    >>> keras.layers.RandomCrop(24, 24)(keras.ops.ones((2, 28, 28, 1)), training=True).shape
    (2, 24, 24, 1)
    """

    _notes_all_calls = True

    def __init__(
        self,
        height: int,
        width: int,
        seed: Any = None,
        data_format: str | None = None,
        name: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(name=name, data_format=data_format, **kwargs)
        self.height = height
        self.width = width
        self._set_seed(seed if seed is not None else seed_generators.make_default_seed())

    def get_random_transformation(self, data: Any, training: bool = True, seed: Any = None) -> Any:
        images = images_in(data)
        _, height, width = self._sizes(images)
        if height is None or width is None:
            raise ValueError(
                "RandomCrop requires the input to have a fully defined height and width. "
                f"Received: images.shape={tuple(images.shape)}"
            )
        if training and height > self.height and width > self.width:
            rows = self._uniform(images, (), 0.0, float(height - self.height + 1), seed=seed)
            columns = self._uniform(images, (), 0.0, float(width - self.width + 1), seed=seed)
            place = (ops.cast(rows, "int32"), ops.cast(columns, "int32"))
        else:
            place = resampling.crop_box(height, width, self.height, self.width)[:2]
        return _Place(place, (height, width))

    def _input_sizes(self, transformation: Any) -> Any:
        return getattr(transformation, "sizes", None) or (None, None)

    def _output_sizes(self, transformation: Any) -> tuple[int, int]:
        return self.height, self.width

    def _transform_boxes(self, boxes: Any, transformation: Any) -> Any:
        # If the image is smaller than the requested part, so is the part, which is then resized.
        wanted = (self.height, self.width)
        sizes = self._input_sizes(transformation)
        kept = [
            most if size is None or dispatch.is_tensor(start) else min(size - start, most)
            for start, size, most in zip(transformation, sizes, wanted, strict=True)
        ]
        top, left = (ops.cast(start, boxes.dtype) for start in transformation)
        part = box_utils.crop(boxes, top, left, kept[0], kept[1])
        scale = (self.width / kept[1], self.height / kept[0])
        return ops.multiply(part, np.array([*scale, *scale], str(boxes.dtype)))

    def transform_images(self, images: Any, transformation: Any, training: bool = True) -> Any:
        images = ops.cast(images, self.compute_dtype)
        if not training:
            return images
        sizes = (self.height, self.width)
        axes = (self.height_axis, self.width_axis)
        for start, size, axis in zip(transformation, sizes, axes, strict=True):
            images = _part(images, start, size, len(images.shape) + axis)
        if self._sizes(images)[1:] != sizes:
            images = image_ops.resize(images, sizes, data_format=self.data_format)
        return images

    def transform_segmentation_masks(
        self, segmentation_masks: Any, transformation: Any, training: bool = True
    ) -> Any:
        return self.transform_images(segmentation_masks, transformation, training)

    def compute_output_shape(self, input_shape: Any) -> Any:
        return self._shape_with_sizes(input_shape, self.height, self.width)

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "height": self.height,
            "width": self.width,
            "seed": saved_seed(self.seed),
        }


class _Place(tuple[Any, Any]):
    """The row and the column where a part begins, for images of given sizes (None if unknown)."""

    sizes: tuple[int, int] | None

    def __new__(cls, place: Any, sizes: tuple[int, int] | None = None) -> _Place:
        made = super().__new__(cls, place)
        made.sizes = sizes
        return made


def _part(x: Any, start: Any, size: int, axis: int) -> Any:
    """Takes so many elements along an axis, from a start that only the device may know."""
    if dispatch.is_tensor(start):
        places = dispatch.convert(np.arange(size, dtype="int32"), like=x)
        indices = ops.add(places, start)
        return dispatch.apply_one("gather", [x, indices], {"axis": axis})
    key = [slice(None)] * len(x.shape)
    key[axis] = slice(int(start), int(start) + size)
    return ops.get_item(x, tuple(key))
