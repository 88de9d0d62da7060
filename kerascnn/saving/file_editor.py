"""Shows the contents of a file of weights, compares them with a model, and changes them."""

from __future__ import annotations

import io
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from kerascnn.saving.h5_file import Group
    from kerascnn.saving.members import Members

Tree = dict[str, Any]  # arrays and subtrees by their names
Edit = Callable[[Tree, str], None]


class KerasFileEditor:
    """Shows what a file holds, compares that with a model, and changes and saves it.

    Objects are named by their path, as `layers/dense_1`, or by the last part of it where that is
    the only one; their weights are "0", "1", ...

    Args:
        filepath: Ends in ".keras" or ".weights.h5".

    Raises:
        ValueError: for another ending, or a file that is damaged or holds what it should not.
        FileNotFoundError: where there is no such file.

    Example:

    >>> import os, tempfile
    >>> import kerascnn as keras
    >>> model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    >>> path = os.path.join(tempfile.mkdtemp(), "model.weights.h5")
    >>> model.save_weights(path)
    >>> editor = keras.saving.KerasFileEditor(path)  # doctest: +ELLIPSIS
    Keras model file ...
    >>> editor.delete_weight("dense", "1")
    >>> list(editor.weights_dict["layers"]["dense"])
    ['0']
    """

    def __init__(self, filepath: str | os.PathLike[str]) -> None:
        from rich.console import Console

        from kerascnn.saving import archive, h5_file, members

        self.filepath = os.fspath(filepath)
        self.metadata: dict[str, Any] | None = None
        self.config: dict[str, Any] | None = None
        self.model: Any = None
        self.console = Console(highlight=False, soft_wrap=True)
        path = Path(self.filepath)
        if not path.name.endswith((".keras", ".weights.h5")):
            raise ValueError(
                "The name of a file that can be edited ends in '.keras' or '.weights.h5'. "
                f"Received: filepath={self.filepath}"
            )
        if not path.is_file():
            raise FileNotFoundError(f"File not found: filepath={path}")
        source: Any = str(path)
        if path.name.endswith(".keras"):
            with members.opened(path, str(path)) as files:
                self.config = _json_of(files, archive.CONFIG, path)
                self.metadata = _json_of(files, archive.METADATA, path)
                source = io.BytesIO(files.read(archive.WEIGHTS))
        with h5_file.opened_tree(source, str(path)) as groups:
            self.weights_dict, self.object_metadata = _read(groups)
        self.console.print(f"Keras model file '{self.filepath}'")
        if self.metadata is not None:
            version, date = (self.metadata.get(key) for key in ("keras_version", "date_saved"))
            self.console.print(f"Saved with Keras {version} - date: {date}")

    # Looking ----------------------------------------------------------------------------------

    def summary(self) -> None:
        """Prints the objects of the file and the shapes of their weights."""
        self.console.print("Weights structure")
        for line in self._lines(self.weights_dict, "", ""):
            self.console.print(line, markup=False)

    def _lines(self, tree: Tree, indent: str, path: str) -> Iterator[str]:
        for place, (name, value) in enumerate(tree.items()):
            is_last = place == len(tree) - 1
            inner = f"{path}/{name}" if path else name
            branch = "└─ " if is_last else "├─ "
            if isinstance(value, dict):
                own = self.object_metadata.get(inner, {}).get("name")
                yield f"{indent}{branch}{name}" + (f" ('{own}')" if own else "")
                yield from self._lines(value, indent + ("    " if is_last else "│   "), inner)
            else:
                array = np.asarray(value)
                yield f"{indent}{branch}{name}: shape={array.shape}, dtype={array.dtype}"

    def compare(self, reference_model: Any) -> dict[str, Any]:
        """Prints in what the file and a model differ.

        Args:
            reference_model: A model that is built.

        Returns:
            "status" ("success" or "error"), "error_count" and "match_count".
        """
        from kerascnn.saving import state

        self.console.print("Running comparison")
        collected = state.collect(reference_model)
        wanted = {path: arrays for path, (_, arrays) in collected.items() if arrays}
        found = {path: arrays for path, arrays in _objects(self.weights_dict) if arrays}
        errors, matches = [], 0
        for path in sorted(wanted.keys() | found.keys()):
            theirs, own = wanted.get(path), found.get(path)
            if theirs is None or own is None:
                errors.append(_missing(f"Object {path}", own is None))
                continue
            for key in sorted(theirs.keys() | own.keys()):
                one, other = theirs.get(key), own.get(key)
                if one is None or other is None:
                    errors.append(_missing(f"Weight {path}/{key}", other is None))
                elif np.shape(one) != np.shape(other):
                    errors.append(
                        f"Weight shape mismatch for {path}/{key}: {np.shape(one)} in reference "
                        f"model, {np.shape(other)} in saved file"
                    )
                else:
                    matches += 1
        for error in errors:
            self.console.print(f"...{error}", markup=False)
        if errors:
            self.console.print(f"Found {len(errors)} errors: saved file is not compatible")
        else:
            self.console.print(f"Comparison successful: found {matches} matching weights")
        status = "error" if errors else "success"
        return {"status": status, "error_count": len(errors), "match_count": matches}

    # Changing ---------------------------------------------------------------------------------

    def rename_object(self, object_name: str, new_name: str) -> None:
        """Gives an object another name, in the same place.

        Args:
            object_name: Its name or path.
            new_name: A name, no path.

        Raises:
            ValueError: where there is no such object or several, or `new_name` is taken.
        """
        if not _is_name(new_name):
            raise ValueError(f"A name is no path. Received: new_name={new_name!r}")

        def rename(tree: Tree, name: str) -> None:
            if new_name in tree:
                raise ValueError(f"There is an object {new_name!r} beside {object_name!r} already.")
            items = [(new_name if key == name else key, value) for key, value in tree.items()]
            tree.clear()
            tree.update(items)

        self._edit(object_name, rename)

    def delete_object(self, object_name: str) -> None:
        """Takes an object out, with those below it.

        Args:
            object_name: Its name or path.

        Raises:
            ValueError: where there is no such object or several.
        """
        self._edit(object_name, lambda tree, name: tree.pop(name))

    def add_object(self, object_path: str, weights: dict[str, Any]) -> None:
        """Puts an object in.

        Args:
            object_path: Its path; what is above it has to be there.
            weights: Arrays by their names, "0", "1", ...

        Raises:
            ValueError: for a path that is not there, or `weights` that are no dictionary.
        """
        above, _, name = object_path.rpartition("/")
        tree = self.weights_dict
        for part in above.split("/") if above else ():
            if not isinstance(tree.get(part), dict):
                raise ValueError(f"There is no path '{above}' in the file.")
            tree = tree[part]
        if not _is_name(name):
            raise ValueError(f"An object needs a name. Received: object_path={object_path!r}")
        tree[name] = _checked(weights)

    def delete_weight(self, object_name: str, weight_name: str) -> None:
        """Takes one weight of an object out.

        Args:
            object_name: The object's name or path.
            weight_name: The weight's name, as "0".

        Raises:
            ValueError: where there is none.
        """

        def delete(tree: Tree, name: str) -> None:
            own = _own(tree[name])
            if weight_name not in own:
                raise ValueError(
                    f"{object_name!r} has no weight {weight_name!r}. Its weights are {list(own)}."
                )
            del tree[name][weight_name]

        self._edit(object_name, delete)

    def add_weights(self, object_name: str, weights: dict[str, Any]) -> None:
        """Puts weights into an object, in the place of others of their names if there are any.

        Args:
            object_name: The object's name or path.
            weights: Arrays by their names, "0", "1", ...

        Raises:
            ValueError: where there is no such object or several.
        """
        values = _checked(weights)
        self._edit(object_name, lambda tree, name: tree[name].update(values))

    def _edit(self, name: str, edit: Edit) -> None:
        places = list(_places(self.weights_dict, name))
        if not places:
            raise ValueError(
                f"There is no object {name!r} in the file. `summary()` shows those that there are."
            )
        if len(places) > 1:
            raise ValueError(f"There are {len(places)} objects {name!r}: name one by its path.")
        edit(*places[0])

    # Saving -----------------------------------------------------------------------------------

    def save(self, filepath: str | os.PathLike[str]) -> None:
        """Writes the weights as they are now.

        Args:
            filepath: Ends in ".weights.h5".

        Raises:
            ValueError: for another ending.
        """
        from kerascnn.saving import h5_file
        from kerascnn.saving.atomic import replacing

        path = Path(filepath)
        if not path.name.endswith(".weights.h5"):
            raise ValueError(
                "Weights are saved to a file whose name ends in '.weights.h5'. Received: "
                f"filepath={filepath}"
            )
        groups = {
            place: (self.object_metadata.get(place, {}).get("name"), arrays)
            for place, arrays in _objects(self.weights_dict)
        }
        with replacing(path) as beside:
            h5_file.write(str(beside), groups)

    def resave_weights(self, filepath: str | os.PathLike[str]) -> None:
        """The same as `save`."""
        self.save(filepath)


def _missing(what: str, from_file: bool) -> str:
    sides = ("reference model", "saved file")
    present, missing = sides if from_file else sides[::-1]
    return f"{what} present in {present}, missing from {missing}"


def _json_of(files: Members, name: str, path: Path) -> Any:
    try:
        return json.loads(files.read(name))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path}: {name} is damaged ({error}).") from error


def _read(groups: dict[str, Group]) -> tuple[Tree, dict[str, dict[str, str]]]:
    """Returns the arrays as a tree, and the attributes of each group."""
    root: Tree = {}
    said: dict[str, dict[str, str]] = {}
    for path in sorted(groups):
        group, tree = groups[path], root
        owner = path[:-4].rstrip("/") if path.split("/")[-1] == "vars" else path
        for part in owner.split("/") if owner else ():
            tree = tree.setdefault(part, {})
            if not isinstance(tree, dict):
                raise ValueError(f"{path} has weights and objects of the same names.")
        if tree.keys() & set(group):
            raise ValueError(f"{path} has weights and objects of the same names.")
        tree.update({key: group[key] for key in group})
        names = group.texts("name")
        if names:
            said[owner] = {"name": names[0]}
    return root, said


def _objects(tree: Tree, path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """Yields each object's path and its own arrays."""
    yield path, _own(tree)
    for name, value in tree.items():
        if isinstance(value, dict):
            yield from _objects(value, f"{path}/{name}" if path else name)


def _places(tree: Tree, name: str, path: str = "") -> Iterator[tuple[Tree, str]]:
    """Finds the objects of a name or path: in which tree, under which name."""
    for key, value in tree.items():
        inner = f"{path}/{key}" if path else key
        if not isinstance(value, dict):
            continue
        if inner == name or ("/" not in name and key == name):
            yield tree, key
        yield from _places(value, name, inner)


def _own(tree: Tree) -> dict[str, Any]:
    return {name: value for name, value in tree.items() if not isinstance(value, dict)}


def _is_name(name: str) -> bool:
    return name not in ("", ".", "..") and "/" not in name


def _checked(weights: Any) -> dict[str, Any]:
    if not isinstance(weights, dict):
        raise ValueError(
            "Weights are a dictionary of arrays by their names ('0', '1', ...). Received: "
            f"{type(weights).__name__}"
        )
    return {str(key): np.asarray(value) for key, value in weights.items()}
