"""The constructors by family, and networks of Keras with weights that make a comparison strict."""

import numpy as np

import kerascnn

# The smallest of each family first.
FAMILIES = {
    "vgg16": "VGG16",
    "vgg19": "VGG19",
    "resnet": "ResNet50 ResNet101 ResNet152",
    "resnet_v2": "ResNet50V2 ResNet101V2 ResNet152V2",
    "inception_v3": "InceptionV3",
    "inception_resnet_v2": "InceptionResNetV2",
    "xception": "Xception",
    "mobilenet": "MobileNet",
    "mobilenet_v2": "MobileNetV2",
    "mobilenet_v3": "MobileNetV3Small MobileNetV3Large",
    "densenet": "DenseNet121 DenseNet169 DenseNet201",
    "nasnet": "NASNetMobile NASNetLarge",
    "efficientnet": " ".join(f"EfficientNetB{i}" for i in range(8)),
    "efficientnet_v2": " ".join(f"EfficientNetV2{i}" for i in ("B0", "B1", "B2", "B3", *"SML")),
    "convnext": " ".join(f"ConvNeXt{i}" for i in ["Tiny", "Small", "Base", "Large", "XLarge"]),
}
# Those that Keras lacks.
OWN = {
    "resnet": "ResNet18 ResNet34",
    "wide_resnet": "WideResNet28_10",
    "vit": "ViTTi16 ViTS16 ViTB16 ViTL16",
}
OF_KERAS = [name for names in FAMILIES.values() for name in names.split()]
ALL = OF_KERAS + [name for names in OWN.values() for name in names.split()]
# VGG19 is made by the function that makes VGG16. The other two take a quarter of the time of all.
LEFT_TO_THOROUGH = ("VGG19", "InceptionResNetV2", "NASNetMobile")
SMALLEST = [
    first for names in FAMILIES.values() if (first := names.split()[0]) not in LEFT_TO_THOROUGH
]
MODULES = {
    name: module
    for families in (FAMILIES, OWN)
    for module, names in families.items()
    for name in names.split()
}
# Below these sizes the networks refuse images; ViT's are multiples of 16.
SMALL_IMAGE = {"inception_v3": (75, 77, 3), "inception_resnet_v2": (75, 77, 3)}


def small_image(name):
    """The shape of an image that is cheap, has two odd sides, and is large enough."""
    module = MODULES[name]
    if module == "vit":
        return (48, 32, 3)
    return SMALL_IMAGE.get(module, (71, 73, 3) if module == "xception" else (33, 35, 3))


def here(name, **arguments):
    kerascnn.utils.clear_session()
    return getattr(kerascnn.applications, name)(**{"weights": None} | arguments)


def there(keras, name, **arguments):
    """The network of Keras, also the one that its constructor refuses on PyTorch."""
    keras.utils.clear_session()
    arguments = {"weights": None} | arguments
    if name == "NASNetMobile":
        from keras.src.applications.nasnet import NASNet

        return NASNet(
            penultimate_filters=1056,
            num_blocks=4,
            stem_block_filters=32,
            skip_reduction=False,
            filter_multiplier=2,
            default_size=224,
            name="nasnet_mobile",
            **arguments,
        )
    return getattr(keras.applications, name)(**arguments)


def randomize(model, rng):
    """Gives vectors other values than ones and zeros, which would hide a lost or swapped one.

    They keep the maps small: gates of large maps are steps, behind which roundings decide.
    """
    for variable in model.weights:
        shape = tuple(variable.shape)
        if len(shape) != 1:
            continue
        last = variable.path.rpartition("/")[2]
        is_variance = last in ("moving_variance", "variance")  # the latter is of Normalization
        low, high = (0.7, 1.5) if is_variance else (0.2, 0.8) if last == "gamma" else (-0.1, 0.1)
        variable.assign(rng.uniform(low, high, shape).astype("float32"))


def images(shape, rng, count=2):
    return rng.uniform(0, 255, (count, *shape)).astype("float32")


def prepared(name, x):
    """Pixels as the network takes them."""
    module = getattr(kerascnn.applications, MODULES[name])
    return module.preprocess_input(x)


def with_weights(model):
    """The layers that have weights, with the shapes of these, in the model's order."""
    return [
        (layer.name, [tuple(weight.shape) for weight in layer.weights])
        for layer in model.layers
        if layer.weights
    ]


def distance(a, b):
    """The largest difference, over the largest value."""
    a, b = np.asarray(a), np.asarray(b)
    assert a.shape == b.shape
    return np.abs(a - b).max() / np.abs(b).max()
