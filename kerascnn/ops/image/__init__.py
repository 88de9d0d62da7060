"""Functions of images, under the names of `keras.ops.image`.

Images are (height, width, channels) or (n, height, width, channels); with "channels_first" the
channels come before the height.
"""

from kerascnn.ops.image.borders import crop_images, crop_to_window, pad_images
from kerascnn.ops.image.colors import hsv_to_rgb, rgb_to_grayscale, rgb_to_hsv
from kerascnn.ops.image.common import spatial_axes
from kerascnn.ops.image.filters import gaussian_blur, sobel_edges, ssim
from kerascnn.ops.image.patches import extract_patches, extract_patches_3d
from kerascnn.ops.image.resizing import resize, scale_and_translate, smart_resize
from kerascnn.ops.image.sampling import (
    AFFINE_INTERPOLATIONS,
    FILL_MODES,
    affine_transform,
    elastic_transform,
    map_coordinates,
    perspective_transform,
)

__all__ = [
    "AFFINE_INTERPOLATIONS",
    "FILL_MODES",
    "affine_transform",
    "crop_images",
    "crop_to_window",
    "elastic_transform",
    "extract_patches",
    "extract_patches_3d",
    "gaussian_blur",
    "hsv_to_rgb",
    "map_coordinates",
    "pad_images",
    "perspective_transform",
    "resize",
    "rgb_to_grayscale",
    "rgb_to_hsv",
    "scale_and_translate",
    "smart_resize",
    "sobel_edges",
    "spatial_axes",
    "ssim",
]
