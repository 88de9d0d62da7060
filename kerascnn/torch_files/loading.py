"""Loads tensors of PyTorch into models: which module's tensors which layer takes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kerascnn.torch_files import layers as torch_layers
from kerascnn.torch_files.reading import Arrays, PathLike, read_torch_weights

if TYPE_CHECKING:
    from kerascnn.saving.state import Plan

# For a layer: the name of a module, the names of tensors for each weight, or None to leave it.
Place = str | Sequence[str] | None
Names = Mapping[str, Place] | Callable[[str], Place] | None
# How many batches a BatchNorm has seen, which is of use with momentum=None alone.
_LEFT = ("num_batches_tracked",)
_SHOWN = 12


def load_torch_weights(
    model: Any,
    filepath: PathLike,
    names: Names = None,
    key: str | None = None,
    skip_mismatch: bool = False,
) -> None:
    """Loads weights of PyTorch's files into a model; on an error nothing is changed.

    Kernels are transposed to (height, width, in, out) and (in, out), the rows of a dense layer
    behind a `Flatten` go to the order with the channels last, and queries, keys and values of an
    attention are taken apart. All tensors of the file have to be used, but for those of layers that
    get None.

    Args:
        model: A model that is built.
        filepath: A file that `read_torch_weights` reads.
        names: For each layer that has weights, by its name or by its path below the model
            ("block/conv"), the name of the module in PyTorch ("layer1.0.conv1"); or a sequence of
            names of tensors, one for each weight, that are taken as they are; or None, for a layer
            that keeps what it has. A dictionary, or a function from path to name. Without it, the
            layers of a `Sequential` model are taken in the order of the file's modules.
        key: Which dictionary of tensors in the file; see `read_torch_weights`.
        skip_mismatch: Whether layers that the file does not fit keep what they have, and tensors
            that nothing takes are left; each is warned about.

    Raises:
        ValueError: for weights that don't fit, naming layers, tensors and shapes; for a model that
            is not built; and for files as `read_torch_weights` says.
        FileNotFoundError: where there is no such file.

    Example:

    >>> import pathlib, tempfile
    >>> import numpy as np
    >>> import kerascnn as keras
    >>> from kerascnn.models import weights_file
    >>> path = pathlib.Path(tempfile.mkdtemp(), "linear.safetensors")  # what PyTorch would write
    >>> tensors = {"head.weight": np.ones((3, 2), "float32"), "head.bias": np.zeros(3, "float32")}
    >>> weights_file.write(path, tensors)
    >>> model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(3, name="scores")])
    >>> keras.saving.load_torch_weights(model, path, names={"scores": "head"})
    >>> model.predict(np.ones((1, 2)), verbose=0).tolist()
    [[2.0, 2.0, 2.0]]
    """
    if not model.built:
        raise ValueError(
            f"Model '{model.name}' has no weights yet to load {filepath} into. Call it on data (or "
            "build(input_shape)) first."
        )
    load_tensors(model, read_torch_weights(filepath, key), Path(filepath), names, skip_mismatch)


def load_tensors(
    model: Any,
    tensors: Arrays,
    path: Path,
    names: Names,
    skip_mismatch: bool = False,
    spare: Sequence[str] = (),
) -> None:
    """Does what `load_torch_weights` says, with tensors that were read.

    Args:
        model: A model that is built.
        tensors: Arrays by name.
        path: What errors call the file.
        names: See `load_torch_weights`.
        skip_mismatch: See there.
        spare: Names, or beginnings of names, of tensors that may be left.
    """
    from kerascnn.saving.state import Plan, carry_out

    tensors = without_wrappers(tensors)
    units = list(torch_layers.units(model))
    plan = Plan()
    if names is None:
        places = _in_order(model, units, tensors, path)
    else:
        places = _by_name(units, names, plan)
    used: set[str] = set()
    for (layer_path, layer), place in zip(units, places, strict=True):
        if place is None:
            continue
        try:
            if isinstance(place, str):
                taken = torch_layers.from_module(layer, tensors, place)
            else:
                taken = torch_layers.from_tensors(layer, tensors, place)
        except torch_layers.Mismatch as error:
            plan.problems.append(f"layer '{layer_path}' ({type(layer).__name__}): {error}")
            continue
        for variable, array, sources in taken:
            plan.assignments.append((variable, {"0": array}, "0"))  # type: ignore[arg-type]
            used.update(sources)
        plan.layers.append(layer)
    left = [n for n in tensors if n not in used and not n.endswith(_LEFT)]
    plan.problems += [
        f"the file's '{name}' {tensors[name].shape} belongs to no layer"
        for name in left
        if not name.startswith(tuple(spare))
    ]
    carry_out(plan, model, str(path), skip_mismatch)


def without_wrappers(tensors: Arrays) -> Arrays:
    """Drops what DistributedDataParallel and torch.compile put before all names."""
    for start in ("module.", "_orig_mod.", "module."):
        if tensors and all(name.startswith(start) for name in tensors):
            tensors = {name.removeprefix(start): array for name, array in tensors.items()}
    return tensors


def _by_name(units: list[tuple[str, Any]], names: Any, plan: Plan) -> list[Place]:
    """Returns the place of each layer, None for those that are left."""
    if callable(names):
        return [names(layer_path) for layer_path, _ in units]
    known = {name for layer_path, layer in units for name in (layer_path, layer.name)}
    wrong = sorted(set(names) - known)
    if wrong:
        raise ValueError(
            f"`names` has {wrong[:_SHOWN]}, which are no layers with weights of the model. "
            f"It has {[layer_path for layer_path, _ in units][:_SHOWN]}"
        )
    places: list[Place] = []
    for layer_path, layer in units:
        if layer_path not in names and layer.name not in names:
            plan.problems.append(f"`names` has no module for layer '{layer_path}' (None leaves it)")
        places.append(names.get(layer_path, names.get(layer.name)))
    return places


def _in_order(model: Any, units: list[tuple[str, Any]], tensors: Arrays, path: Path) -> list[Place]:
    """Returns the file's modules in their order, for a model whose layers have one."""
    modules = list(dict.fromkeys(n.rpartition(".")[0] for n in tensors if not n.endswith(_LEFT)))
    paths = [layer_path for layer_path, _ in units]
    if not _is_row(model):
        raise ValueError(
            f"Model '{model.name}' is no Sequential model, so that the order of its layers says "
            f"nothing about {path}. Pass names={{layer: module}}, for the layers "
            f"{_listed(paths)} and the modules {_listed(modules)}."
        )
    if len(modules) != len(units):
        raise ValueError(
            f"The weights in {path} do not fit model '{model.name}': it has {len(units)} layers "
            f"with weights, {_listed(paths)}, the file has {len(modules)} modules, "
            f"{_listed(modules)}. Pass names={{layer: module}} to say which belong together."
        )
    return list(modules)


def _is_row(model: Any) -> bool:
    """Tells whether a model is layers one after the other, in models of that kind or directly."""
    from kerascnn.models import Model, Sequential

    if not isinstance(model, Sequential):
        return False
    return all(_is_row(layer) for layer in model.layers if isinstance(layer, Model))


def _listed(names: list[str]) -> str:
    return ", ".join(names[:_SHOWN]) + (", ..." if len(names) > _SHOWN else "")
