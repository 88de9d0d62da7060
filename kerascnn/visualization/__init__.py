"""Images with their labels, boxes and masks, drawn for people."""

from kerascnn.visualization.drawing import draw_bounding_boxes, draw_segmentation_masks
from kerascnn.visualization.galleries import (
    plot_bounding_box_gallery,
    plot_image_gallery,
    plot_segmentation_mask_gallery,
)

__all__ = [
    "draw_bounding_boxes",
    "draw_segmentation_masks",
    "plot_bounding_box_gallery",
    "plot_image_gallery",
    "plot_segmentation_mask_gallery",
]
