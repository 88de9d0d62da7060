"""Files that layers keep beside their weights: what `save_assets` writes and `load_assets` reads.

Each object that has these methods gets a folder of its own, by its path in the model, as in Keras.
"""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from kerascnn.saving import state
from kerascnn.saving.members import Members

_PLACE = "assets"


@contextlib.contextmanager
def written(model: Any) -> Iterator[dict[str, Path]]:
    """The files that the objects of a model wrote, by their names in the archive.

    They are there while the block runs.

    Raises:
        ValueError: for something that is no plain file.
    """
    owners = [(path, obj) for path, obj in state.owners(model) if hasattr(obj, "save_assets")]
    if not owners:
        yield {}
        return
    with tempfile.TemporaryDirectory(prefix="kerascnn-") as name:
        root = Path(name)
        for path, obj in owners:
            folder = root / path
            folder.mkdir(parents=True, exist_ok=True)
            obj.save_assets(str(folder))
        files = {}
        for file in sorted(root.rglob("*")):
            if file.is_symlink() or not (file.is_file() or file.is_dir()):
                raise ValueError(
                    "`save_assets` may write plain files. Received: "
                    f"{file.relative_to(root).as_posix()}"
                )
            if file.is_file():
                files[f"{_PLACE}/{file.relative_to(root).as_posix()}"] = file
        yield files


def load(model: Any, members: Members, where: str) -> None:
    """Gives the objects of a model the files that were written for them.

    Objects for which there is none are left alone.

    Raises:
        ValueError: where an object cannot read its files.
    """
    names = [name for name in members.names() if name.startswith(f"{_PLACE}/")]
    owners = [(path, obj) for path, obj in state.owners(model) if hasattr(obj, "load_assets")]
    if not names or not owners:
        return
    with tempfile.TemporaryDirectory(prefix="kerascnn-") as temporary:
        root = Path(temporary)
        for name in names:
            target = root / name
            target.parent.mkdir(parents=True, exist_ok=True)
            members.copy(name, target)
        for path, obj in owners:
            folder = root / _PLACE / path
            if not folder.is_dir():
                continue
            try:
                obj.load_assets(str(folder))
            except Exception as error:
                raise ValueError(
                    f"{where}: {type(obj).__name__} '{getattr(obj, 'name', path)}' cannot load its "
                    f"assets ({type(error).__name__}: {error})."
                ) from error
