"""ResNet-50 by the name of a module that Keras has beside `resnet`."""

from kerascnn.applications.resnet import ResNet50, decode_predictions, preprocess_input

__all__ = ["ResNet50", "decode_predictions", "preprocess_input"]
