"""Reading images, under the names that Keras also has for it."""

from kerascnn.preprocessing import image
from kerascnn.utils.image_dataset import image_dataset_from_directory

__all__ = ["image", "image_dataset_from_directory"]
