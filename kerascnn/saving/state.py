"""The state of a model that files keep, its paths in them, and how it is restored.

Paths are those of Keras: objects are found by going through attributes in alphabetic order, those
with a leading underscore last; the layers of Sequential and functional models come first, as
`layers`. In lists, objects go by their class with a number (`conv2d_1`), not by their automatic
names, which differ from one session to the next.
"""

from __future__ import annotations

import functools
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from kerascnn import former_names, naming
from kerascnn.layers.layer import Layer
from kerascnn.layers.state import LayerState
from kerascnn.losses import Loss
from kerascnn.metrics import Metric
from kerascnn.optimizers import Optimizer
from kerascnn.optimizers.state import OptimizerState
from kerascnn.saving.h5_file import Group
from kerascnn.system_errors import is_of_system
from kerascnn.variable import Variable

_KINDS = (Layer, Optimizer, Metric, Loss)
_SHOWN = 5


@functools.cache
def _skipped(kind: type) -> frozenset[str]:
    """Returns the attributes that an object of a kind has for its own purposes."""
    return _own_attributes(kind) - former_names.MEMBERS


def _own_attributes(kind: type) -> frozenset[str]:
    from kerascnn.models import Functional, Model, Sequential

    reference: Any
    if issubclass(kind, Model):
        reference = Model(name="reference")
        own = {"_functional", "_stack", "_graph", "operations", "inputs", "outputs"}
        names = {*dir(reference), *dir(Sequential), *dir(Functional), *own}
        return frozenset(names - {"layers", "optimizer"})
    if issubclass(kind, Layer):
        reference = Layer(name="reference")
    elif issubclass(kind, Optimizer):
        reference = Optimizer(1.0, name="reference")
    elif issubclass(kind, Metric):
        reference = Metric(name="reference")
    else:
        reference = Loss(name="reference")
    return frozenset(dir(reference))


def _base(obj: Any) -> type:
    from kerascnn.models import Model

    return next(kind for kind in (Model, *_KINDS) if isinstance(obj, kind))


def _attributes(obj: Any) -> Iterator[tuple[str, Any]]:
    from kerascnn.models import Functional, Sequential

    if isinstance(obj, (Sequential, Functional)):
        yield "layers", obj.layers
    skipped = _skipped(_base(obj))
    for name in sorted(dir(obj), key=lambda n: f"~{n}" if n.startswith("_") else n):
        if name.startswith("__") or name in skipped:
            continue
        try:
            value = getattr(obj, name)
        except Exception:  # a property without a value yet is no state
            continue
        yield name, value


def owners(root: Any, skipped: Iterable[Any] | None = None) -> Iterator[tuple[str, Any]]:
    """The root and all objects below it that may keep state, each once, with its path.

    Args:
        root: A model.
        skipped: Objects to leave out, with those that only they lead to.
    """
    yield from _walk(root, "", {id(obj) for obj in skipped or ()})


def _walk(obj: Any, path: str, seen: set[int]) -> Iterator[tuple[str, Any]]:
    if id(obj) in seen:
        return
    seen.add(id(obj))
    yield path, obj
    for name, value in _attributes(obj):
        inner = f"{path}/{name}" if path else name
        if isinstance(value, _KINDS):
            yield from _walk(value, inner, seen)
        elif isinstance(value, (list, tuple, dict)):
            yield from _walk_items(value, inner, seen, set())


def _walk_items(
    items: Any, path: str, seen: set[int], containers: set[int]
) -> Iterator[tuple[str, Any]]:
    if id(items) in containers:
        return
    containers.add(id(items))
    uses: Counter[str] = Counter()

    def numbered(name: str) -> str:
        count = uses[name]
        uses[name] += 1
        return f"{path}/{name}_{count}" if count else f"{path}/{name}"

    for item in items.values() if isinstance(items, dict) else items:
        if isinstance(item, _KINDS):
            yield from _walk(item, numbered(naming.to_snake_case(type(item).__name__)), seen)
        elif isinstance(item, (list, tuple, dict)):
            yield from _walk_items(item, numbered("container"), seen, containers)


def collect(
    root: Any, skipped: Iterable[Any] | None = None
) -> dict[str, tuple[str | None, dict[str, np.ndarray[Any, Any]]]]:
    """Returns the name and the arrays of each object below a model, by path."""
    groups: dict[str, tuple[str | None, dict[str, np.ndarray[Any, Any]]]] = {}
    for path, obj in owners(root, skipped):
        if not hasattr(obj, "save_own_variables"):
            continue
        store: dict[str, Any] = {}
        obj.save_own_variables(store)
        name = getattr(obj, "name", None)
        arrays = {key: _as_array(value) for key, value in store.items()}
        groups[path] = (name if isinstance(name, str) else None, arrays)
    return groups


def _as_array(value: Any) -> np.ndarray[Any, Any]:
    return value.numpy() if hasattr(value, "numpy") else np.asarray(value)


class Plan:
    """What loading will do; the plan is made before anything changes."""

    def __init__(self) -> None:
        self.assignments: list[tuple[Variable, Group, str]] = []
        self.layers: list[Any] = []
        self.custom: list[tuple[Any, Any]] = []
        self.problems: list[str] = []


def restore(
    root: Any,
    groups: Mapping[str, Group],
    file_name: str,
    skip_mismatch: bool = False,
    skipped: Iterable[Any] | None = None,
) -> None:
    """Puts arrays into a model, all or (on an error) none.

    Args:
        root: The model.
        groups: The arrays of a file.
        file_name: What errors call the file.
        skip_mismatch: Whether objects that the file does not fit keep what they have.
        skipped: Objects that keep what they have, whatever the file holds for them.

    Raises:
        ValueError: where the file does not fit, with the layers and shapes.
    """
    carry_out(_make_plan(root, groups, skipped), root, file_name, skip_mismatch)


def carry_out(plan: Plan, root: Any, file_name: str, skip_mismatch: bool = False) -> None:
    """Carries out a plan completely or, on an error, not at all; see `restore`."""
    shown = "; ".join(plan.problems[:_SHOWN]) + ("; ..." if plan.problems[_SHOWN:] else "")
    if plan.problems and not skip_mismatch:
        raise ValueError(
            f"The weights in {file_name} do not fit model '{root.name}', which is left as it was: "
            f"{shown}. Pass skip_mismatch=True to load those that fit."
        )
    if plan.problems:
        warnings.warn(f"What does not fit in {file_name} was left out: {shown}", stacklevel=5)
    arrays = [group[key] for _, group, key in plan.assignments]
    before = _snapshot(root) if plan.custom else []
    try:
        for (variable, _, _), array in zip(plan.assignments, arrays, strict=True):
            variable.assign(array)
        for layer in plan.layers:
            layer._after_loading()
        for obj, group in plan.custom:
            obj.load_own_variables(group)
    except Exception as error:
        for variable, value in before:
            variable.assign(value)
        if is_of_system(error):
            raise
        raise ValueError(
            f"The weights in {file_name} do not fit model '{root.name}': {error}"
        ) from error


def _snapshot(root: Any) -> list[tuple[Variable, np.ndarray[Any, Any]]]:
    optimizer = getattr(root, "optimizer", None)
    variables = [*root.variables, *([] if optimizer is None else optimizer.variables)]
    return [(variable, variable.numpy()) for variable in variables]


def _make_plan(
    root: Any, groups: Mapping[str, Group], skipped: Iterable[Any] | None = None
) -> Plan:
    plan = Plan()
    unclaimed = {path for path, group in groups.items() if len(group)}
    left_out = {id(obj) for obj in skipped or ()}
    for path, obj in owners(root) if left_out else ():
        if id(obj) in left_out:
            unclaimed = {p for p in unclaimed if p != path and not p.startswith(f"{path}/")}
    for path, obj in owners(root, skipped):
        if not hasattr(obj, "load_own_variables"):
            continue
        group = groups.get(path) or groups.get(_old_path(path)) or Group({}, f"{path}/vars")
        unclaimed -= {path, _old_path(path)}
        load = type(obj).load_own_variables
        if load is LayerState.load_own_variables:
            _plan_layer(plan, obj, group)
        elif load is OptimizerState.load_own_variables:
            _plan_optimizer(plan, obj, group)
        else:
            plan.custom.append((obj, group))
    for path in sorted(unclaimed):
        if not _may_be_left(path):
            plan.problems.append(f"the file's {path or 'root'} belongs to no layer of the model")
    return plan


def _old_path(path: str) -> str:
    """Returns the path in files of Keras 2.13."""
    return path.replace("layers", "_layer_checkpoint_dependencies")


def _may_be_left(path: str) -> bool:
    """Tells whether weights can be loaded without this state: training's, random generators'."""
    parts = path.split("/")
    return parts[0] in ("optimizer", "metrics", "_metrics", "_loss_tracker") or any(
        part.startswith("seed_generator") for part in parts
    )


def _plan_layer(plan: Plan, layer: Any, group: Group) -> None:
    own = layer._weights_in_files()
    where = f"layer '{layer.name}' ({type(layer).__name__})"
    if len(group) != len(own) or any(str(i) not in group for i in range(len(own))):
        names = [v.name for v in own]
        hint = "" if own or layer.built else "; the layer is not built yet"
        plan.problems.append(
            f"{where} has {len(own)} weights {names}, the file has {len(group)} for it{hint}"
        )
        return
    problems = [
        f"{where}, weight '{v.name}': expected shape {v.shape}, found {group.shape(str(i))}"
        for i, v in enumerate(own)
        if group.shape(str(i)) != v.shape
    ]
    plan.problems += problems
    if not problems:
        plan.assignments += [(v, group, str(i)) for i, v in enumerate(own)]
        plan.layers.append(layer)


def _plan_optimizer(plan: Plan, optimizer: Any, group: Group) -> None:
    own = optimizer._whole_state()  # of which other processes may have a part
    if 0 < len(group) <= 2 and all(group.shape(key) == () for key in group):
        # the file was saved before the first step: it has the step count and the learning rate
        own = own[: len(group)]
    if len(group) != len(own):
        if len(group):
            optimizer.load_own_variables(group)  # this only warns
        return
    problems = [
        f"optimizer '{optimizer.name}', variable '{v.path}': expected shape {v.shape}, found "
        f"{group.shape(str(i)) if str(i) in group else 'none'}"
        for i, v in enumerate(own)
        if str(i) not in group or group.shape(str(i)) != v.shape
    ]
    plan.problems += problems
    if not problems:
        here = [(i, v) for i, v in enumerate(own) if isinstance(v, Variable)]
        plan.assignments += [(v, group, str(i)) for i, v in here]
