"""Images in files and as arrays."""

from kerascnn import former_names
from kerascnn.utils.image_utils import (
    array_to_img,
    img_to_array,
    load_img,
    save_img,
    smart_resize,
)

__all__ = ["array_to_img", "img_to_array", "load_img", "save_img", "smart_resize"]

# These names existed in older versions.
__getattr__ = former_names.module_getattr(__name__)
