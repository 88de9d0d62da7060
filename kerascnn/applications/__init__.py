"""Architectures for images, with names and numbers of Keras: their published weights fit."""

from kerascnn.applications import (
    convnext,
    densenet,
    efficientnet,
    efficientnet_v2,
    imagenet_utils,
    inception_resnet_v2,
    inception_v3,
    mobilenet,
    mobilenet_v2,
    mobilenet_v3,
    nasnet,
    resnet,
    resnet50,
    resnet_v2,
    vgg16,
    vgg19,
    vit,
    wide_resnet,
    xception,
)
from kerascnn.applications.convnext import (
    ConvNeXtBase,
    ConvNeXtLarge,
    ConvNeXtSmall,
    ConvNeXtTiny,
    ConvNeXtXLarge,
)
from kerascnn.applications.densenet import DenseNet121, DenseNet169, DenseNet201
from kerascnn.applications.efficientnet import (
    EfficientNetB0,
    EfficientNetB1,
    EfficientNetB2,
    EfficientNetB3,
    EfficientNetB4,
    EfficientNetB5,
    EfficientNetB6,
    EfficientNetB7,
)
from kerascnn.applications.efficientnet_v2 import (
    EfficientNetV2B0,
    EfficientNetV2B1,
    EfficientNetV2B2,
    EfficientNetV2B3,
    EfficientNetV2L,
    EfficientNetV2M,
    EfficientNetV2S,
)
from kerascnn.applications.inception_resnet_v2 import InceptionResNetV2
from kerascnn.applications.inception_v3 import InceptionV3
from kerascnn.applications.mobilenet import MobileNet
from kerascnn.applications.mobilenet_v2 import MobileNetV2
from kerascnn.applications.mobilenet_v3 import MobileNetV3Large, MobileNetV3Small
from kerascnn.applications.nasnet import NASNetLarge, NASNetMobile
from kerascnn.applications.resnet import ResNet18, ResNet34, ResNet50, ResNet101, ResNet152
from kerascnn.applications.resnet_v2 import ResNet50V2, ResNet101V2, ResNet152V2
from kerascnn.applications.vgg16 import VGG16
from kerascnn.applications.vgg19 import VGG19
from kerascnn.applications.vit import ViTB16, ViTL16, ViTS16, ViTTi16
from kerascnn.applications.wide_resnet import WideResNet28_10
from kerascnn.applications.xception import Xception

__all__ = [
    "VGG16",
    "VGG19",
    "ConvNeXtBase",
    "ConvNeXtLarge",
    "ConvNeXtSmall",
    "ConvNeXtTiny",
    "ConvNeXtXLarge",
    "DenseNet121",
    "DenseNet169",
    "DenseNet201",
    "EfficientNetB0",
    "EfficientNetB1",
    "EfficientNetB2",
    "EfficientNetB3",
    "EfficientNetB4",
    "EfficientNetB5",
    "EfficientNetB6",
    "EfficientNetB7",
    "EfficientNetV2B0",
    "EfficientNetV2B1",
    "EfficientNetV2B2",
    "EfficientNetV2B3",
    "EfficientNetV2L",
    "EfficientNetV2M",
    "EfficientNetV2S",
    "InceptionResNetV2",
    "InceptionV3",
    "MobileNet",
    "MobileNetV2",
    "MobileNetV3Large",
    "MobileNetV3Small",
    "NASNetLarge",
    "NASNetMobile",
    "ResNet18",
    "ResNet34",
    "ResNet50",
    "ResNet50V2",
    "ResNet101",
    "ResNet101V2",
    "ResNet152",
    "ResNet152V2",
    "ViTB16",
    "ViTL16",
    "ViTS16",
    "ViTTi16",
    "WideResNet28_10",
    "Xception",
    "convnext",
    "densenet",
    "efficientnet",
    "efficientnet_v2",
    "imagenet_utils",
    "inception_resnet_v2",
    "inception_v3",
    "mobilenet",
    "mobilenet_v2",
    "mobilenet_v3",
    "nasnet",
    "resnet",
    "resnet50",
    "resnet_v2",
    "vgg16",
    "vgg19",
    "vit",
    "wide_resnet",
    "xception",
]
