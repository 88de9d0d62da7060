"""Reading images, text and series, under the names that Keras also has for it."""

from kerascnn import former_names
from kerascnn.preprocessing import image, sequence
from kerascnn.utils.image_dataset import image_dataset_from_directory
from kerascnn.utils.sequence_utils import timeseries_dataset_from_array
from kerascnn.utils.text_dataset import text_dataset_from_directory

__all__ = [
    "image",
    "image_dataset_from_directory",
    "sequence",
    "text_dataset_from_directory",
    "timeseries_dataset_from_array",
]

# These names existed in older versions.
__getattr__ = former_names.module_getattr(__name__)
