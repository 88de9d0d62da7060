"""Layers that give images one size."""

from __future__ import annotations

from typing import Any

import numpy as np

from kerascnn import dtypes, ops
from kerascnn.layers.preprocessing.base import ImagePreprocessing
from kerascnn.ops import image as image_ops
from kerascnn.ops import resampling
from kerascnn.utils import bounding_boxes as box_utils


class Resizing(ImagePreprocessing):
    """Resizes images, in training and outside it.

    Args:
        height: Of the output.
        width: Of the output.
        interpolation: "bilinear", "nearest", "bicubic", "lanczos3" or "lanczos5".
        crop_to_aspect_ratio: Whether to take the largest centered part that has the output's
            proportions, in place of distorting the image.
        pad_to_aspect_ratio: Whether to add borders up to the output's proportions.
        fill_mode: Only "constant".
        fill_value: What these borders hold.
        antialias: Whether the window grows where the image shrinks (not for "nearest").
        data_format: By default the configured one.

    Raises:
        ValueError: for an unknown interpolation, or both crop and pad.

    Input: (height, width, channels), or with a batch; of any dtype.

    Output: The same with the new height and width; integers stay integers, rounded.

    Example:

    >>> import kerascnn as keras
    >>> keras.layers.Resizing(8, 6)(keras.ops.ones((2, 4, 4, 3))).shape
    (2, 8, 6, 3)
    """

    def __init__(
        self,
        height: int,
        width: int,
        interpolation: str = "bilinear",
        crop_to_aspect_ratio: bool = False,
        pad_to_aspect_ratio: bool = False,
        fill_mode: str = "constant",
        fill_value: float = 0.0,
        antialias: bool = False,
        data_format: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(data_format=data_format, **kwargs)
        if interpolation not in resampling.METHODS:
            raise ValueError(
                "Invalid value for argument `interpolation`. Expected of one "
                f"{resampling.METHODS}. Received: interpolation={interpolation}"
            )
        if crop_to_aspect_ratio and pad_to_aspect_ratio:
            raise ValueError(
                "Only one of `pad_to_aspect_ratio` & `crop_to_aspect_ratio` can be `True`."
            )
        self.height = height
        self.width = width
        self.interpolation = interpolation
        self.crop_to_aspect_ratio = crop_to_aspect_ratio
        self.pad_to_aspect_ratio = pad_to_aspect_ratio
        self.fill_mode = fill_mode
        self.fill_value = fill_value
        self.antialias = bool(antialias)

    def get_random_transformation(self, data: Any, training: bool = True, seed: Any = None) -> Any:
        images = data["images"] if isinstance(data, dict) else data
        return self._sizes(images)[1:]

    def _transform_images(self, images: Any, transformation: Any, interpolation: str) -> Any:
        return image_ops.resize(
            images,
            (self.height, self.width),
            interpolation,
            antialias=self.antialias,
            crop_to_aspect_ratio=self.crop_to_aspect_ratio,
            pad_to_aspect_ratio=self.pad_to_aspect_ratio,
            fill_mode=self.fill_mode,
            fill_value=self.fill_value,
            data_format=self.data_format,
        )

    def transform_images(
        self, images: Any, transformation: Any = None, training: bool = True
    ) -> Any:
        return self._transform_images(images, transformation, self.interpolation)

    def _input_sizes(self, transformation: Any) -> tuple[int, int]:
        return tuple(transformation)

    def _output_sizes(self, transformation: Any) -> tuple[int, int]:
        return self.height, self.width

    def transform_bounding_boxes(
        self, bounding_boxes: Any, transformation: Any, training: bool = True
    ) -> Any:
        """As for other layers, in training and outside of it; boxes of only -1 become 0."""
        boxes = ops.convert_to_tensor(bounding_boxes["boxes"])
        found = super().transform_bounding_boxes(bounding_boxes, transformation, training=True)
        empty = ops.logical_or(ops.all(boxes == -1, -1), ops.all(boxes == 0, -1))
        found["boxes"] = ops.where(ops.expand_dims(empty, -1), 0.0, found["boxes"])
        return found

    def _transform_boxes(self, boxes: Any, transformation: Any) -> Any:
        height, width = transformation
        top, left = 0, 0
        if self.crop_to_aspect_ratio:
            top, left, height, width = resampling.crop_box(height, width, self.height, self.width)
        elif self.pad_to_aspect_ratio:
            above, beside = resampling.pad_margins(height, width, self.height, self.width)
            padded = int(float(width * self.height) / self.width)
            width = max(width, int(float(height * self.width) / self.height))
            height, top, left = max(height, padded), -above, -beside
        scale = [self.width / width, self.height / height] * 2
        moved = box_utils.pad(boxes, -top, -left)
        return ops.multiply(moved, np.array(scale, str(boxes.dtype)))

    def transform_segmentation_masks(
        self, segmentation_masks: Any, transformation: Any = None, training: bool = True
    ) -> Any:
        return self._transform_images(segmentation_masks, transformation, "nearest")

    def _output_dtype(self, dtype: str) -> str:
        return self.compute_dtype if dtypes.is_float(dtype) else dtype

    def compute_output_shape(self, input_shape: Any) -> Any:
        return self._shape_with_sizes(input_shape, self.height, self.width)

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "height": self.height,
            "width": self.width,
            "interpolation": self.interpolation,
            "crop_to_aspect_ratio": self.crop_to_aspect_ratio,
            "pad_to_aspect_ratio": self.pad_to_aspect_ratio,
            "fill_mode": self.fill_mode,
            "fill_value": self.fill_value,
            "antialias": self.antialias,
        }


class CenterCrop(ImagePreprocessing):
    """Crops images to their middle, in training and outside it.

    An image that is smaller than the target is resized so that its largest centered part with the
    target's proportions fills it.

    Args:
        height: Of the output.
        width: Of the output.
        data_format: By default the configured one.

    Input: (height, width, channels), or with a batch; of any dtype.

    Output: The same with the new height and width, in the layer's dtype.

    Example:

    >>> import kerascnn as keras
    >>> image = keras.ops.reshape(keras.ops.arange(16.0), (4, 4, 1))
    >>> keras.layers.CenterCrop(2, 2)(image).numpy().ravel().tolist()
    [5.0, 6.0, 9.0, 10.0]
    """

    def __init__(
        self, height: int, width: int, data_format: str | None = None, **kwargs: Any
    ) -> None:
        super().__init__(data_format=data_format, **kwargs)
        self.height = height
        self.width = width

    def get_random_transformation(self, data: Any, training: bool = True, seed: Any = None) -> Any:
        images = data["images"] if isinstance(data, dict) else data
        return {"input_shape": tuple(images.shape)}

    def transform_images(
        self, images: Any, transformation: Any = None, training: bool = True
    ) -> Any:
        images = ops.cast(images, self.compute_dtype)
        _, height, width = self._sizes(images)
        top, left = (height - self.height) // 2, (width - self.width) // 2
        if height >= self.height and width >= self.width:
            return image_ops.crop_to_window(
                images, top, left, self.height, self.width, self.data_format
            )
        return image_ops.smart_resize(
            images, (self.height, self.width), "bilinear", self.data_format
        )

    def _output_sizes(self, transformation: Any) -> tuple[int, int]:
        return self.height, self.width

    def transform_bounding_boxes(
        self, bounding_boxes: Any, transformation: Any, training: bool = True
    ) -> Any:
        """As for other layers, in training and outside of it."""
        return super().transform_bounding_boxes(bounding_boxes, transformation, training=True)

    def _transform_boxes(self, boxes: Any, transformation: Any) -> Any:
        height, width = self._input_sizes(transformation)
        top, left = (height - self.height) // 2, (width - self.width) // 2
        kept = self.height, self.width
        if height < self.height or width < self.width:
            top, left, *rest = resampling.crop_box(height, width, *kept)
            kept = rest[0], rest[1]
        part = box_utils.crop(boxes, top, left, *kept)
        scale = [self.width / kept[1], self.height / kept[0]] * 2
        return ops.multiply(part, np.array(scale, str(boxes.dtype)))

    def transform_segmentation_masks(
        self, segmentation_masks: Any, transformation: Any = None, training: bool = True
    ) -> Any:
        return self.transform_images(segmentation_masks, transformation, training)

    def compute_output_shape(self, input_shape: Any) -> Any:
        return self._shape_with_sizes(input_shape, self.height, self.width)

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "height": self.height, "width": self.width}
