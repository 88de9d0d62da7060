"""Names of Keras that kerascnn lacks or that take other arguments, each with its reason.

`test_keras_names.py` fails for a name that is missing and not in this file, and for a name in this
file that kerascnn has.
"""

# reason: {namespace: names}
_MISSING = {
    "belongs to another framework": {
        "callbacks": "OrbaxCheckpoint",
        "config": "set_backend",
        "layers": "FlaxLayer JaxLayer TFSMLayer TorchModuleWrapper",
    },
    "int8 is the one mode of quantization": {
        "dtype_policies": """AWQDTypePolicy GPTQDTypePolicy Int4DTypePolicy
            QuantizedFloat8DTypePolicy""",
        "quantizers": """AWQConfig Float8QuantizationConfig GPTQConfig Int4QuantizationConfig
            abs_max_quantize_grouped_with_zero_point quantize_and_dequantize""",
    },
    "there are no complex numbers, which the eigenvalues of most matrices are": {
        "ops": "eig polar view_as_complex view_as_real",
        "ops.linalg": "eig",
        "ops.nn": "polar",
    },
    "a mark of Keras' own insides: shapes are found by recording, whatever the scope": {
        "": "SymbolicScope",
    },
}

# Constructors with an argument of their own, by the modules that have them.
_WITH_VARIANTS = {
    "resnet": "ResNet50 ResNet101 ResNet152",
    "resnet50": "ResNet50",
    "mobilenet_v2": "MobileNetV2",
    "efficientnet": " ".join(f"EfficientNetB{i}" for i in range(8)),
    "efficientnet_v2": "EfficientNetV2S EfficientNetV2M EfficientNetV2L",
    "": "MobileNetV3Small MobileNetV3Large",
}

# These names take other arguments than in Keras. name: reason
SIGNATURES = (
    {
        f"datasets.{name}.load_data": "takes a `path`, since a data set may be there already"
        for name in ("cifar10", "cifar100", "fashion_mnist")
    }
    | {
        f"{name}.image_dataset_from_directory": "may leave broken files out"
        for name in ("utils", "preprocessing")
    }
    | {
        f"applications.{module}{name}": "may be built as in torchvision and timm, by `variant`"
        for family, names in _WITH_VARIANTS.items()
        for module in ("", *(f"{m}." for m in family.split()))
        for name in names.split()
    }
    | {
        "distribution.DataParallel": "may share an optimizer's state, and round gradients",
        "KerasTensor": "is dense: no further arguments for ragged tensors",
        "Variable": "has no layout over several devices",
        "preprocessing.image.smart_resize": "takes no `backend_module`: there is one",
        "name_scope": "takes a name, and no owner of it",
    }
)


def _names(names: dict[str, str]) -> list[str]:
    return [f"{where}.{name}".lstrip(".") for where, text in names.items() for name in text.split()]


MISSING = {name: reason for reason, names in _MISSING.items() for name in _names(names)}
