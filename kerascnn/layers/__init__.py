"""Layers, under the names of Keras."""

from __future__ import annotations

from typing import Any

from kerascnn import former_names, serialization
from kerascnn.layers.activation import ELU, Activation, LeakyReLU, PReLU, ReLU, Softmax
from kerascnn.layers.activity_regularization import ActivityRegularization
from kerascnn.layers.adaptive_pooling import (
    AdaptiveAveragePooling1D,
    AdaptiveAveragePooling2D,
    AdaptiveAveragePooling3D,
    AdaptiveMaxPooling1D,
    AdaptiveMaxPooling2D,
    AdaptiveMaxPooling3D,
)
from kerascnn.layers.attention import AdditiveAttention, Attention
from kerascnn.layers.batch_normalization import BatchNormalization
from kerascnn.layers.category_encoding import CategoryEncoding
from kerascnn.layers.convolution import Conv1D, Conv2D, Conv3D
from kerascnn.layers.convolution_transpose import Conv1DTranspose, Conv2DTranspose, Conv3DTranspose
from kerascnn.layers.cropping import Cropping1D, Cropping2D, Cropping3D
from kerascnn.layers.dense import Dense
from kerascnn.layers.depthwise_convolution import DepthwiseConv1D, DepthwiseConv2D
from kerascnn.layers.dot_product import Dot, dot
from kerascnn.layers.dropout import Dropout
from kerascnn.layers.einsum_dense import EinsumDense
from kerascnn.layers.embedding import Embedding
from kerascnn.layers.flatten import Flatten
from kerascnn.layers.global_pooling import (
    GlobalAveragePooling1D,
    GlobalAveragePooling2D,
    GlobalAveragePooling3D,
    GlobalMaxPooling1D,
    GlobalMaxPooling2D,
    GlobalMaxPooling3D,
)
from kerascnn.layers.group_normalization import GroupNormalization
from kerascnn.layers.grouped_query_attention import GroupedQueryAttention as GroupQueryAttention
from kerascnn.layers.identity import Identity
from kerascnn.layers.input_layer import Input, InputLayer
from kerascnn.layers.input_spec import InputSpec
from kerascnn.layers.lambda_layer import Lambda
from kerascnn.layers.layer import Layer
from kerascnn.layers.layer_normalization import LayerNormalization
from kerascnn.layers.masking import Masking
from kerascnn.layers.merge import (
    Add,
    Average,
    Concatenate,
    Maximum,
    Minimum,
    Multiply,
    Subtract,
    add,
    average,
    concatenate,
    maximum,
    minimum,
    multiply,
    subtract,
)
from kerascnn.layers.multi_head_attention import MultiHeadAttention
from kerascnn.layers.noise import AlphaDropout, GaussianDropout, GaussianNoise
from kerascnn.layers.permute import Permute, RepeatVector
from kerascnn.layers.pooling import (
    AveragePooling1D,
    AveragePooling2D,
    AveragePooling3D,
    MaxPooling1D,
    MaxPooling2D,
    MaxPooling3D,
)
from kerascnn.layers.preprocessing.discretization import Discretization
from kerascnn.layers.preprocessing.hashing import HashedCrossing, Hashing
from kerascnn.layers.preprocessing.histograms import (
    AutoContrast,
    ContrastLimitedAdaptiveHistogramEqualization,
    Equalization,
)
from kerascnn.layers.preprocessing.lookups import IntegerLookup, StringLookup
from kerascnn.layers.preprocessing.max_num_bounding_boxes import MaxNumBoundingBoxes
from kerascnn.layers.preprocessing.mel_spectrogram import MelSpectrogram
from kerascnn.layers.preprocessing.mixing import CutMix, MixUp
from kerascnn.layers.preprocessing.normalization import Normalization
from kerascnn.layers.preprocessing.pipeline import Pipeline
from kerascnn.layers.preprocessing.policies import AugMix, RandAugment
from kerascnn.layers.preprocessing.random_affine import (
    RandomRotation,
    RandomShear,
    RandomTranslation,
    RandomZoom,
)
from kerascnn.layers.preprocessing.random_color import (
    RandomBrightness,
    RandomColorDegeneration,
    RandomContrast,
    RandomGrayscale,
    RandomInvert,
)
from kerascnn.layers.preprocessing.random_crop import RandomCrop, RandomFlip
from kerascnn.layers.preprocessing.random_erasing import RandomErasing
from kerascnn.layers.preprocessing.random_filters import RandomGaussianBlur, RandomSharpness
from kerascnn.layers.preprocessing.random_hue import (
    RandomColorJitter,
    RandomHue,
    RandomSaturation,
)
from kerascnn.layers.preprocessing.random_warps import RandomElasticTransform, RandomPerspective
from kerascnn.layers.preprocessing.rescaling import Rescaling
from kerascnn.layers.preprocessing.resizing import CenterCrop, Resizing
from kerascnn.layers.preprocessing.stft_spectrogram import STFTSpectrogram
from kerascnn.layers.preprocessing.text_vectorization import TextVectorization
from kerascnn.layers.preprocessing.tones import RandomPosterization, Solarization
from kerascnn.layers.recurrent.bidirectional import Bidirectional
from kerascnn.layers.recurrent.conv_lstm import ConvLSTM1D, ConvLSTM2D, ConvLSTM3D
from kerascnn.layers.recurrent.gru import GRU, GRUCell
from kerascnn.layers.recurrent.lstm import LSTM, LSTMCell
from kerascnn.layers.recurrent.rnn import RNN
from kerascnn.layers.recurrent.simple_rnn import SimpleRNN, SimpleRNNCell
from kerascnn.layers.recurrent.stacked_rnn_cells import StackedRNNCells
from kerascnn.layers.reshape import Reshape
from kerascnn.layers.reversible_embedding import ReversibleEmbedding
from kerascnn.layers.rms_normalization import RMSNormalization, UnitNormalization
from kerascnn.layers.separable_convolution import SeparableConv1D, SeparableConv2D
from kerascnn.layers.spatial_dropout import SpatialDropout1D, SpatialDropout2D, SpatialDropout3D
from kerascnn.layers.spectral_normalization import SpectralNormalization
from kerascnn.layers.time_distributed import TimeDistributed
from kerascnn.layers.up_sampling import UpSampling1D, UpSampling2D, UpSampling3D
from kerascnn.layers.wrapper import Wrapper
from kerascnn.layers.zero_padding import ZeroPadding1D, ZeroPadding2D, ZeroPadding3D

# The other names that Keras has for the same classes.
AvgPool1D = AveragePooling1D
AvgPool2D = AveragePooling2D
AvgPool3D = AveragePooling3D
Convolution1D = Conv1D
Convolution1DTranspose = Conv1DTranspose
Convolution2D = Conv2D
Convolution2DTranspose = Conv2DTranspose
Convolution3D = Conv3D
Convolution3DTranspose = Conv3DTranspose
GlobalAvgPool1D = GlobalAveragePooling1D
GlobalAvgPool2D = GlobalAveragePooling2D
GlobalAvgPool3D = GlobalAveragePooling3D
GlobalMaxPool1D = GlobalMaxPooling1D
GlobalMaxPool2D = GlobalMaxPooling2D
GlobalMaxPool3D = GlobalMaxPooling3D
MaxPool1D = MaxPooling1D
MaxPool2D = MaxPooling2D
MaxPool3D = MaxPooling3D
SeparableConvolution1D = SeparableConv1D
SeparableConvolution2D = SeparableConv2D


def serialize(layer: Layer) -> Any:
    """The configuration of a layer, with its class.

    Args:
        layer: A layer.

    Returns:
        A dictionary, which `deserialize` makes a layer of.

    Example:

    >>> from kerascnn import layers
    >>> layers.serialize(layers.Dense(4))["class_name"]
    'Dense'
    """
    return serialization.serialize_object(layer)


def deserialize(config: Any, custom_objects: dict[str, Any] | None = None) -> Any:
    """The layer that a configuration with its class describes, with new weights.

    Args:
        config: What `serialize` returned.
        custom_objects: Classes and functions of your own by name.

    Returns:
        A layer.

    Raises:
        ValueError: for a class that is not known.

    Example:

    >>> from kerascnn import layers
    >>> layers.deserialize(layers.serialize(layers.Dense(4))).units
    4
    """
    return serialization.deserialize_object(config, custom_objects, "kerascnn.layers")


__all__ = [
    "ELU",
    "GRU",
    "LSTM",
    "RNN",
    "Activation",
    "ActivityRegularization",
    "AdaptiveAveragePooling1D",
    "AdaptiveAveragePooling2D",
    "AdaptiveAveragePooling3D",
    "AdaptiveMaxPooling1D",
    "AdaptiveMaxPooling2D",
    "AdaptiveMaxPooling3D",
    "Add",
    "AdditiveAttention",
    "AlphaDropout",
    "Attention",
    "AugMix",
    "AutoContrast",
    "Average",
    "AveragePooling1D",
    "AveragePooling2D",
    "AveragePooling3D",
    "AvgPool1D",
    "AvgPool2D",
    "AvgPool3D",
    "BatchNormalization",
    "Bidirectional",
    "CategoryEncoding",
    "CenterCrop",
    "Concatenate",
    "ContrastLimitedAdaptiveHistogramEqualization",
    "Conv1D",
    "Conv1DTranspose",
    "Conv2D",
    "Conv2DTranspose",
    "Conv3D",
    "Conv3DTranspose",
    "ConvLSTM1D",
    "ConvLSTM2D",
    "ConvLSTM3D",
    "Convolution1D",
    "Convolution1DTranspose",
    "Convolution2D",
    "Convolution2DTranspose",
    "Convolution3D",
    "Convolution3DTranspose",
    "Cropping1D",
    "Cropping2D",
    "Cropping3D",
    "CutMix",
    "Dense",
    "DepthwiseConv1D",
    "DepthwiseConv2D",
    "Discretization",
    "Dot",
    "Dropout",
    "EinsumDense",
    "Embedding",
    "Equalization",
    "Flatten",
    "GRUCell",
    "GaussianDropout",
    "GaussianNoise",
    "GlobalAveragePooling1D",
    "GlobalAveragePooling2D",
    "GlobalAveragePooling3D",
    "GlobalAvgPool1D",
    "GlobalAvgPool2D",
    "GlobalAvgPool3D",
    "GlobalMaxPool1D",
    "GlobalMaxPool2D",
    "GlobalMaxPool3D",
    "GlobalMaxPooling1D",
    "GlobalMaxPooling2D",
    "GlobalMaxPooling3D",
    "GroupNormalization",
    "GroupQueryAttention",
    "HashedCrossing",
    "Hashing",
    "Identity",
    "Input",
    "InputLayer",
    "InputSpec",
    "IntegerLookup",
    "LSTMCell",
    "Lambda",
    "Layer",
    "LayerNormalization",
    "LeakyReLU",
    "Masking",
    "MaxNumBoundingBoxes",
    "MaxPool1D",
    "MaxPool2D",
    "MaxPool3D",
    "MaxPooling1D",
    "MaxPooling2D",
    "MaxPooling3D",
    "Maximum",
    "MelSpectrogram",
    "Minimum",
    "MixUp",
    "MultiHeadAttention",
    "Multiply",
    "Normalization",
    "PReLU",
    "Permute",
    "Pipeline",
    "RMSNormalization",
    "RandAugment",
    "RandomBrightness",
    "RandomColorDegeneration",
    "RandomColorJitter",
    "RandomContrast",
    "RandomCrop",
    "RandomElasticTransform",
    "RandomErasing",
    "RandomFlip",
    "RandomGaussianBlur",
    "RandomGrayscale",
    "RandomHue",
    "RandomInvert",
    "RandomPerspective",
    "RandomPosterization",
    "RandomRotation",
    "RandomSaturation",
    "RandomSharpness",
    "RandomShear",
    "RandomTranslation",
    "RandomZoom",
    "ReLU",
    "RepeatVector",
    "Rescaling",
    "Reshape",
    "Resizing",
    "ReversibleEmbedding",
    "STFTSpectrogram",
    "SeparableConv1D",
    "SeparableConv2D",
    "SeparableConvolution1D",
    "SeparableConvolution2D",
    "SimpleRNN",
    "SimpleRNNCell",
    "Softmax",
    "Solarization",
    "SpatialDropout1D",
    "SpatialDropout2D",
    "SpatialDropout3D",
    "SpectralNormalization",
    "StackedRNNCells",
    "StringLookup",
    "Subtract",
    "TextVectorization",
    "TimeDistributed",
    "UnitNormalization",
    "UpSampling1D",
    "UpSampling2D",
    "UpSampling3D",
    "Wrapper",
    "ZeroPadding1D",
    "ZeroPadding2D",
    "ZeroPadding3D",
    "add",
    "average",
    "concatenate",
    "deserialize",
    "dot",
    "maximum",
    "minimum",
    "multiply",
    "serialize",
    "subtract",
]

# These had other names before.
__getattr__ = former_names.module_getattr(__name__)
