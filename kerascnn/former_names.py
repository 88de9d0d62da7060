"""The names that scripts for older versions of Keras use, and what does the same today.

Each of these names is answered with one line. None of them is there: `hasattr` says no, and a
user's class can use the name for something else.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn

_PACKAGE = "kerascnn"
_UTILS = "its functions are in keras.utils itself, such as keras.utils.to_categorical"
_LAYERS = "all layers are in keras.layers itself"
_AUGMENT = (
    "utils.image_dataset_from_directory reads images, and layers such as RandomFlip, "
    "RandomRotation, RandomZoom and Rescaling in the model change them on the device"
)
_SKLEARN = "use SKLearnClassifier and SKLearnRegressor of keras.wrappers"
_EXPORT = (
    "model.export('name.safetensors') writes weights and configuration for use elsewhere; an "
    "endpoint of an ExportArchive is a model, keras.Model(inputs, function(inputs)), which is "
    "exported and loaded without the Python class if `function` calls model.call(...)"
)
_TEXT = "keras.layers.TextVectorization turns text into numbers"
_DATA = (
    "data sets here are of images; read others with keras.utils.get_file(name, origin=url) and "
    "numpy.load, or with pandas"
)
_SEQUENTIAL_CLASSES = "use predict(x).argmax(axis=-1), or predict(x) > 0.5 for a single output"

# These are the former names of modules, below the package, and data sets that are not here.
_PLACES: dict[str, str] = {
    **{
        f"datasets.{name}": _DATA
        for name in ("boston_housing", "california_housing", "imdb", "reuters")
    },
    "engine": "Layer, Input and InputSpec are in keras and keras.layers, Model in keras.models",
    "export": _EXPORT,
    "layers.TFSMLayer": "keras.saving.load_model reads what model.export wrote, as a model",
    "layers.CuDNNGRU": "use GRU, which is one op for a whole sequence on every device",
    "layers.CuDNNLSTM": "use LSTM, which is one op for a whole sequence on every device",
    "layers.ThresholdedReLU": "use ReLU(threshold=...)",
    "layers.advanced_activations": _LAYERS,
    "layers.convolutional": _LAYERS,
    "layers.core": _LAYERS,
    "layers.embeddings": _LAYERS,
    "layers.experimental": _LAYERS,
    "layers.local": "LocallyConnected1D and 2D are no longer layers of Keras",
    "layers.normalization": _LAYERS,
    "layers.wrappers": _LAYERS,
    "objectives": "it is called keras.losses",
    "preprocessing.image.DirectoryIterator": _AUGMENT,
    "preprocessing.image.ImageDataGenerator": _AUGMENT,
    "preprocessing.image.Iterator": "a keras.utils.PyDataset gives batches",
    "preprocessing.sequence.TimeseriesGenerator": "use keras.utils.timeseries_dataset_from_array",
    "preprocessing.text": _TEXT,
    "utils.generic_utils": _UTILS,
    "utils.layer_utils": _UTILS,
    "utils.multi_gpu_model": "a model is trained on one device",
    "utils.np_utils": _UTILS,
    "utils.vis_utils": "plot_model and model_to_dot are in keras.utils itself",
    "wrappers.scikit_learn": _SKLEARN,
    "wrappers.KerasClassifier": _SKLEARN,
    "wrappers.KerasRegressor": _SKLEARN,
}
_BACKEND = {
    "batch_get_value": "call `numpy()` of each variable",
    "batch_set_value": "call `assign` of each variable",
    "cast_to_floatx": "use keras.ops.cast(x, keras.config.floatx())",
    "count_params": "use math.prod(x.shape)",
    "ctc_batch_cost": "use keras.ops.ctc_loss, or the loss keras.losses.CTC",
    "eval": "x.numpy() gives the value",
    "function": (
        "keras.Model(inputs, outputs) computes one part of a model from another, and "
        "keras.jit compiles a function"
    ),
    "get_session": "there are no sessions: calls compute at once",
    "get_value": "variable.numpy() gives the value, also of optimizer.learning_rate",
    "gradients": "use keras.GradientTape, keras.grad or keras.gradients",
    "image_dim_ordering": "it is called keras.config.image_data_format",
    "int_shape": "use x.shape",
    "learning_phase": "pass training=True or False to the call",
    "ndim": "use len(x.shape)",
    "permute_dimensions": "use keras.ops.transpose",
    "placeholder": "use keras.Input",
    "set_learning_phase": "pass training=True or False to the call",
    "set_session": "there are no sessions: calls compute at once",
    "set_value": "variable.assign(value) sets it, also optimizer.learning_rate = value",
    "switch": "use keras.ops.where, or keras.ops.cond",
    "variable": "use keras.Variable",
}
_OF_LAYERS = {
    "add_metric": "make a metric in `__init__`, and call its `update_state` in `call`",
    "add_update": "assign to variables in `call`",
    "get_input_at": "layer.input is that of the first call; keep others where they are made",
    "get_output_at": "layer.output is that of the first call; keep others where they are made",
    "get_output_shape_at": "use layer.output.shape",
    "inbound_nodes": "use layer.input and layer.output",
    "input_shape": "use layer.input.shape (of a model, model.input_shape)",
    "output_shape": "use layer.output.shape (of a model, model.output_shape)",
    "state_updates": "assign to variables in `call`",
    "updates": "assign to variables in `call`",
}
_OF_MODELS = {
    "evaluate_generator": "use evaluate, which takes generators",
    "fit_generator": "use fit, which takes generators",
    "metrics_tensors": "model.metrics has the metrics",
    "predict_classes": _SEQUENTIAL_CLASSES,
    "predict_generator": "use predict, which takes generators",
    "predict_proba": "use predict",
    "reset_states": "call `reset_state` of the recurrent layers",
    "save_to_json": "use to_json",
    "to_yaml": "use to_json",
    "validation_data": "keep what `fit` was given",
}
_OF_OPTIMIZERS = {
    "decay": "use a schedule of keras.optimizers.schedules as learning_rate",
    "get_updates": "use apply_gradients",
    "lr": "use learning_rate",
    "weights": "use variables",
}
_OF_METRICS = {"reset_states": "use reset_state"}
# These are attributes of objects, some of which may have their own attribute of that name.
MEMBERS = frozenset({*_OF_LAYERS, *_OF_MODELS, *_OF_OPTIMIZERS, *_OF_METRICS})
# These are the names of arguments in Keras 1 and 2.
_ARGUMENTS = {
    "W_constraint": "kernel_constraint",
    "W_regularizer": "kernel_regularizer",
    "b_constraint": "bias_constraint",
    "b_regularizer": "bias_regularizer",
    "bias": "use_bias",
    "border_mode": "padding",
    "dim_ordering": "data_format",
    "init": "kernel_initializer",
    "lr": "learning_rate",
    "nb_filter": "filters",
    "output_dim": "units",
    "p": "rate",
    "subsample": "strides",
}


def today(argument: str, choices: Sequence[str]) -> str | None:
    """Returns the current name of an argument, if it is one of the choices."""
    name = _ARGUMENTS.get(argument)
    return name if name in choices else None


class _Former:
    """A missing attribute whose error names the replacement."""

    def __init__(self, name: str, advice: str) -> None:
        self._name, self._advice = name, advice

    def __get__(self, obj: Any, owner: type) -> NoReturn:
        raise AttributeError(
            f"{owner.__name__!r} object has no attribute {self._name!r}: {self._advice}."
        )


def _mark(cls: type, names: Mapping[str, str]) -> None:
    for name, advice in names.items():
        if not any(name in vars(base) for base in cls.__mro__):
            setattr(cls, name, _Former(name, advice))


def module_getattr(module: str) -> Callable[[str], Any]:
    """Returns a `__getattr__` for a module of the package."""
    prefix = module.removeprefix(_PACKAGE).lstrip(".")

    def getter(name: str) -> NoReturn:
        advice = _PLACES.get(f"{prefix}.{name}" if prefix else name)
        if prefix == "backend":
            advice = _BACKEND.get(name) or _op_of(name)
        end = "" if advice is None else f": {advice}."
        # With the module Python's traceback asks for the closest name that it has.
        raise AttributeError(
            f"module {module!r} has no attribute {name!r}{end}",
            name=name,
            obj=None if advice else sys.modules[module],
        )

    return getter


def _op_of(name: str) -> str | None:
    from kerascnn import ops

    return f"use keras.ops.{name}" if name in ops.__all__ else None


class _Finder:
    """A finder that Python asks last, for modules that no other finder found."""

    @staticmethod
    def find_spec(name: str, path: Any = None, target: Any = None) -> None:
        package, _, place = name.partition(".")
        if package == _PACKAGE and place in _PLACES:
            raise ImportError(f"There is no {name}: {_PLACES[place]}.", name=name)


def install() -> None:
    """Makes imports, layers, models, optimizers and metrics answer with the current names."""
    from kerascnn.layers import Layer
    from kerascnn.metrics import Metric
    from kerascnn.models import Model
    from kerascnn.optimizers import Optimizer

    if _Finder not in sys.meta_path:
        sys.meta_path.append(_Finder)
    _mark(Layer, _OF_LAYERS)
    _mark(Model, _OF_MODELS)
    _mark(Optimizer, _OF_OPTIMIZERS)
    _mark(Metric, _OF_METRICS)
