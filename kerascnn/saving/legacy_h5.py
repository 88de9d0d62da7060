"""HDF5 files as Keras 2 wrote them and Keras 3 still does: `model.h5` and weights in `.h5`.

The configuration of the model and of its training are attributes, as JSON; weights lie in one group
for each layer of the model, under names that an attribute lists in order. Trainable weights come
before the others. See `h5_file` for what is refused in files.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

from kerascnn import file_budget, serialization
from kerascnn.saving import archive, h5_file, legacy_config, state
from kerascnn.saving.atomic import replacing
from kerascnn.saving.h5_file import Group
from kerascnn.variable import Variable

# Keras limits an attribute to this size.
_MAX_ATTRIBUTE = 64512
_TOP = "top_level_model_weights"

Groups = Mapping[str, Group]


# Writing -----------------------------------------------------------------------------------------


def save(model: Any, path: Path, include_optimizer: bool) -> None:
    """Writes a model, by way of a file beside the target.

    Raises:
        ValueError: for something that is no model.
    """
    from kerascnn.models import Model

    if not isinstance(model, Model):
        raise ValueError(
            f"Files whose names end in '.h5' hold models. Received: {type(model).__name__} "
            f"'{model.name}', which can be saved to a '.keras' file."
        )
    entry = legacy_config.legacy_layer(serialization.serialize_keras_object(model))
    with replacing(path) as beside, h5_file.created(beside) as file:
        file.attrs["keras_version"] = archive.KERAS_VERSION
        file.attrs["backend"] = "kerascnn"
        file.attrs["model_config"] = json.dumps(entry)
        training = _training_config(model) if include_optimizer else None
        if training is not None:
            file.attrs["training_config"] = json.dumps(training)
        _write_layers(file.create_group("model_weights"), model)
        if training is not None and model.optimizer.variables:
            group = file.create_group("optimizer_weights")
            _write_arrays(
                group, model.optimizer._whole_state(), model.optimizer._values_for_files()
            )


def _training_config(model: Any) -> dict[str, Any] | None:
    if not model.compiled or model.optimizer is None:
        return None
    config = dict(model.get_compile_config())
    optimizer = config.pop("optimizer", None)
    if not isinstance(optimizer, dict):
        return None
    name = optimizer.get("registered_name") or optimizer["class_name"]
    config["optimizer_config"] = {"class_name": name, "config": optimizer["config"]}
    return config


def _write_layers(group: Any, model: Any) -> None:
    layers = list(model.layers)
    _write_texts(group, "layer_names", [layer.name for layer in layers])
    group.attrs["backend"] = "kerascnn"
    group.attrs["keras_version"] = archive.KERAS_VERSION
    for layer in sorted(layers, key=lambda layer: layer.name):
        _write_arrays(group.require_group(layer.name), _weights_in_order(layer))
    _write_arrays(group.require_group(_TOP), _top_weights(model))


def _write_arrays(
    group: Any, variables: Sequence[Any], values: Sequence[np.ndarray] | None = None
) -> None:
    """Writes arrays under the names of variables, whose values they are if none are given."""
    names: list[str] = []
    taken: set[str] = set()
    for place, variable in enumerate(variables):
        name = variable.path
        # two weights may share a name, or one may be the prefix of another
        while not name or name in taken:
            name = f"{name}_"
        parts = name.split("/")
        taken |= {"/".join(parts[: n + 1]) for n in range(len(parts))}
        names.append(name)
        array = variable.numpy() if values is None else values[place]
        dataset = group.create_dataset(name, data=array)
        if array.dtype == ml_dtypes.bfloat16:
            dataset.attrs["dtype"] = "bfloat16"
    _write_texts(group, "weight_names", names)


def _write_texts(group: Any, name: str, texts: list[str]) -> None:
    """Writes an attribute of strings, or several numbered ones if they do not fit in one."""
    values = np.asarray([text.encode() for text in texts])
    if not texts or values.nbytes <= _MAX_ATTRIBUTE:
        group.attrs[name] = values
        return
    most = _MAX_ATTRIBUTE // values.dtype.itemsize
    if most == 0:
        raise ValueError(f"The name {max(texts, key=len)[:50]!r}... is too long for an HDF5 file.")
    for number, start in enumerate(range(0, len(texts), most)):
        group.attrs[f"{name}{number}"] = values[start : start + most]


def _weights_in_order(layer: Any) -> list[Variable]:
    return [*layer.trainable_weights, *layer.non_trainable_weights]


def _top_weights(model: Any) -> list[Variable]:
    """Returns the weights that belong to the model itself and to none of its layers."""
    return list(model._own_variables())


# Reading -----------------------------------------------------------------------------------------


def load(
    path: Path, custom_objects: Mapping[str, Any] | None, compile: bool, safe_mode: bool
) -> Any:
    """Loads the model of a file; see `kerascnn.saving.load_model`."""
    name = str(path)
    with h5_file.opened_tree(name, name) as groups:
        texts = groups[""].texts("model_config")
        if not texts:
            raise ValueError(
                f"{name} holds no model (no attribute 'model_config'). Where it holds weights, "
                "make the model and use model.load_weights."
            )
        held = h5_file.held_bytes(groups)
        model = archive.model_from_text(
            texts[0], name, custom_objects, False, safe_mode, held, legacy_config.modern_model
        )
        _restore(model, _below(groups, "model_weights"), name, False)
        if compile:
            _compile(model, groups, name, custom_objects, safe_mode, held)
    return model


def _compile(
    model: Any,
    groups: Groups,
    name: str,
    custom_objects: Mapping[str, Any] | None,
    safe_mode: bool,
    held: int,
) -> None:
    texts = groups[""].texts("training_config")
    if not texts:
        return
    with (
        archive.reading(f"{name}: its training configuration", custom_objects, safe_mode),
        file_budget.weight_budget(held),  # what it names may be a layer
    ):
        config = legacy_config.modern_training(json.loads(texts[0]))
        model.compile_from_config(config)
    stored = groups.get("optimizer_weights")
    if stored is None or model.optimizer is None:
        return
    where = _places(groups, "optimizer_weights")
    own = model.optimizer._whole_state()
    shapes = [None if group is None else group.shape(key) for group, key in where]
    if shapes == [(), ()]:
        own = own[:2]  # a model that was never trained: its optimizer only had counter and rate
    if shapes != [v.shape for v in own]:
        warnings.warn(
            f"The state of optimizer '{model.optimizer.name}' was not loaded from {name}: it has "
            f"{len(own)} variables, the saved one {len(shapes)}, or their shapes differ. Training "
            "goes on with a new state.",
            stacklevel=4,
        )
        return
    arrays = [group[key] for group, key in where if group is not None]
    for variable, array in zip(own, arrays, strict=True):
        variable.assign(array)


def load_weights(model: Any, path: Path, by_name: bool, skip_mismatch: bool) -> None:
    """Loads the weights of a file into a model."""
    name = str(path)
    with h5_file.opened_tree(name, name) as groups:
        is_model = _names(groups[""], "layer_names") is None and "model_weights" in groups
        inner = _below(groups, "model_weights") if is_model else groups
        _restore(model, inner, name, skip_mismatch, by_name)


def _below(groups: Groups, path: str) -> dict[str, Group]:
    start = f"{path}/"
    inner = {p.removeprefix(start): group for p, group in groups.items() if p.startswith(start)}
    return inner | {"": groups.get(path, Group({}, path))}


def _names(group: Group, attribute: str) -> list[str] | None:
    """Reads the strings of an attribute, or of several numbered ones; None if there are neither."""
    whole = group.texts(attribute)
    if whole is not None:
        return whole
    found: list[str] = []
    number = 0
    while (part := group.texts(f"{attribute}{number}")) is not None:
        found += part
        number += 1
    return found if number else None


Place = tuple[Group | None, str]


def _places(groups: Groups, path: str) -> list[Place]:
    """Returns for each weight of a layer the group that holds it, and its key there."""
    owner = groups.get(path)
    places: list[Place] = []
    for name in (None if owner is None else _names(owner, "weight_names")) or []:
        inner, _, key = name.rpartition("/")
        group = groups.get(f"{path}/{inner}" if inner else path)
        places.append((group if group is not None and key in group else None, key))
    return places


def _restore(
    model: Any, groups: Groups, file_name: str, skip_mismatch: bool, by_name: bool = False
) -> None:
    names = _names(groups[""], "layer_names")
    if names is None:
        raise ValueError(
            f"{file_name} holds no weights in the form of .h5 files: it has no attribute "
            "'layer_names'. Weights that Keras 3 wrote go by the ending .weights.h5."
        )
    stored = {name: _places(groups, name) for name in names}
    plan = state.Plan()
    if by_name:
        for layer in model.layers:
            if layer.name in stored:
                _plan_layer(plan, layer, _weights_in_order(layer), stored[layer.name])
    else:
        layers = [layer for layer in model.layers if _weights_in_order(layer)]
        filled = [name for name in names if stored[name]]
        if len(layers) != len(filled):
            raise ValueError(
                f"The weights in {file_name} do not fit model '{model.name}': it has {len(layers)} "
                f"layers with weights, the file {len(filled)} ({', '.join(filled[:5])}...). "
                "by_name=True loads those whose names are the same."
            )
        for layer, name in zip(layers, filled, strict=True):
            _plan_layer(plan, layer, _weights_in_order(layer), stored[name])
    if _TOP in groups:
        _plan_layer(plan, model, _top_weights(model), _places(groups, _TOP))
    state.carry_out(plan, model, file_name, skip_mismatch)


def _plan_layer(
    plan: state.Plan, layer: Any, variables: list[Variable], places: list[Place]
) -> None:
    where = f"layer '{layer.name}' ({type(layer).__name__})"
    if len(places) != len(variables):
        plan.problems.append(f"{where} has {len(variables)} weights, the file has {len(places)}")
        return
    for variable, (group, key) in zip(variables, places, strict=True):
        found = None if group is None else group.shape(key)
        if group is None or found != variable.shape:
            plan.problems.append(
                f"{where}, weight '{variable.name}': expected shape {variable.shape}, found {found}"
            )
        else:
            plan.assignments.append((variable, group, key))
