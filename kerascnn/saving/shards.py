"""Weights in several HDF5 files of limited size, and the JSON file that lists them, as in Keras."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from kerascnn.saving import h5_file, members
from kerascnn.saving.atomic import replacing
from kerascnn.saving.h5_file import Group
from kerascnn.system_errors import is_of_system, naming_file

_MAX_LIST = 64 << 20
Objects = Mapping[str, tuple[str | None, Mapping[str, np.ndarray[Any, Any]]]]


def save(path: Path, objects: Objects, max_shard_size: float) -> None:
    """Writes objects' arrays.

    Args:
        path: Of the JSON file; the others are beside it.
        objects: For each object's path its name and its arrays.
        max_shard_size: In GiB.

    Raises:
        ValueError: for an array that is larger than that.
    """
    shards, places, total = _divide(objects, float(max_shard_size) * 1024**3, max_shard_size)
    base = path.name.removesuffix(".json").removesuffix(".weights")
    names = [f"{base}_{index:05}.weights.h5" for index in range(len(shards))]
    listing = {
        "metadata": {"total_size": total},
        "weight_map": {
            f"/{owner}/vars" if owner else "/vars": (
                names[where[0]] if len(where) == 1 else [names[i] for i in where]
            )
            for owner, where in places.items()
        },
    }
    with contextlib.ExitStack() as stack:
        text = stack.enter_context(replacing(path))
        for name, shard in zip(names, shards, strict=True):
            h5_file.write(str(stack.enter_context(replacing(path.with_name(name)))), shard)
        text.write_text(json.dumps(listing, indent=4))


def _divide(
    objects: Objects, most: float, limit: float
) -> tuple[list[dict[str, Any]], dict[str, list[int]], int]:
    """Returns what goes into each file, the files of each object, and the total size."""
    shards: list[dict[str, Any]] = [{}]
    places: dict[str, list[int]] = {}
    total, filled = 0, 0
    for owner, (name, arrays) in objects.items():
        shards[-1][owner] = (name, {})
        for key, value in arrays.items():
            array = np.asarray(value)
            if array.nbytes > most:
                raise ValueError(
                    f"The array {owner}/{key} has {array.nbytes} bytes, more than fit into one "
                    f"file. Received: max_shard_size={limit} (in GiB)"
                )
            total += array.nbytes
            filled += array.nbytes
            if filled > most:
                shards.append({})
                filled = array.nbytes
            shards[-1].setdefault(owner, (name, {}))[1][key] = array
            where = places.setdefault(owner, [])
            if len(shards) - 1 not in where:
                where.append(len(shards) - 1)
    return shards, places, total


@contextlib.contextmanager
def opened(path: Path) -> Iterator[dict[str, Group]]:
    """The objects' arrays, by path, while the block runs.

    Raises:
        ValueError: for a list that is damaged, that names other than files beside it, or files
            that hold what they should not.
    """
    weight_map = _read_list(path)
    with contextlib.ExitStack() as stack:
        files = {
            name: stack.enter_context(h5_file.opened(str(path.with_name(name)), name))
            for name in dict.fromkeys(name for names in weight_map.values() for name in names)
        }
        groups: dict[str, Group] = {}
        for owner, names in weight_map.items():
            parts = [files[name][owner] for name in names if owner in files[name]]
            if len(parts) != len(names):
                raise ValueError(f"{path}: the files {names} do not all hold {owner!r}.")
            groups[owner] = Group.joined(parts, f"{path}: {owner}")
        yield groups


def _read_list(path: Path) -> dict[str, list[str]]:
    if path.stat().st_size > _MAX_LIST:
        raise ValueError(f"{path} is larger than any list of weights.")
    try:
        with naming_file(path):
            weight_map = json.loads(path.read_text(encoding="utf-8"))["weight_map"]
        found = {
            owner.removesuffix("vars").strip("/"): [names] if isinstance(names, str) else names
            for owner, names in weight_map.items()
        }
    except Exception as error:
        if is_of_system(error):
            raise
        raise ValueError(
            f"{path} is no list of weights, or is damaged ({type(error).__name__}: {error})."
        ) from error
    for names in found.values():
        for name in names if isinstance(names, list) else [names]:
            _check_name(path, name)
    return found


def _check_name(path: Path, name: Any) -> None:
    is_plain = isinstance(name, str) and "/" not in name and members.is_inside(name)
    if not is_plain or "\\" in name or not name.endswith(".h5"):
        raise ValueError(f"{path} names the file {name!r}; only .h5 files beside it are allowed.")
    beside = path.with_name(name)
    if beside.is_symlink():
        raise ValueError(f"{beside} is a link; not allowed among files of weights.")
    if not beside.is_file():
        raise ValueError(f"{path} names the file {name!r}, which is not beside it.")
