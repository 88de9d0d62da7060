"""A layer that gives each image the same number of boxes."""

from __future__ import annotations

from typing import Any

from kerascnn import ops
from kerascnn.layers.preprocessing.base import ImagePreprocessing


class MaxNumBoundingBoxes(ImagePreprocessing):
    """Cuts or fills up the boxes of each image to one number of them.

    Args:
        max_number: How many boxes each image has afterwards.
        fill_value: What boxes and labels hold that stand for none.

    Input: {"images": ..., "bounding_boxes": {"boxes": (n, k, 4), "labels": (n, k)}}

    Output: The same with `max_number` in place of k.

    Example:

    >>> import kerascnn as keras
    >>> boxes = {"boxes": keras.ops.ones((1, 2, 4)), "labels": keras.ops.ones((1, 2), "int32")}
    >>> data = {"images": keras.ops.ones((1, 8, 8, 3)), "bounding_boxes": boxes}
    >>> keras.layers.MaxNumBoundingBoxes(3)(data)["bounding_boxes"]["labels"].numpy().tolist()
    [[1, 1, -1]]
    """

    _needs_format = False

    def __init__(self, max_number: int, fill_value: int = -1, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.max_number = int(max_number)
        self.fill_value = int(fill_value)

    def transform_images(
        self, images: Any, transformation: Any = None, training: bool = True
    ) -> Any:
        return images

    def transform_segmentation_masks(
        self, segmentation_masks: Any, transformation: Any = None, training: bool = True
    ) -> Any:
        return segmentation_masks

    def transform_bounding_boxes(
        self, bounding_boxes: Any, transformation: Any = None, training: bool = True
    ) -> Any:
        result = dict(bounding_boxes)
        for key in ("boxes", "labels"):
            kept = bounding_boxes[key][:, : self.max_number]
            missing = self.max_number - kept.shape[1]
            margins = [(0, 0), (0, missing), *[(0, 0)] * (len(kept.shape) - 2)]
            result[key] = ops.pad(kept, margins, constant_values=self.fill_value)
        return result

    def _output_dtype(self, dtype: str) -> str:
        return dtype

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "max_number": self.max_number,
            "fill_value": self.fill_value,
        }
