"""Settings of a user's program."""

from __future__ import annotations

import json
from collections.abc import ItemsView, Iterator, KeysView, ValuesView
from typing import Any

from kerascnn.serialization import did_you_mean


class Config:
    """Named values, as attributes and as items, that can be frozen and written as JSON.

    Args:
        **kwargs: The first values by name.

    Raises:
        ValueError: on a change of a frozen one.
        AttributeError: for an attribute that was not set; KeyError for such an item.

    Example:

    >>> import kerascnn as keras
    >>> config = keras.utils.Config(learning_rate=0.1)
    >>> config.epochs = 3
    >>> config["seed"] = 7
    >>> config.to_json()
    '{"learning_rate": 0.1, "epochs": 3, "seed": 7}'
    >>> config.freeze()
    >>> config.frozen
    True
    """

    def __init__(self, **kwargs: Any) -> None:
        object.__setattr__(self, "_config", dict(kwargs))
        object.__setattr__(self, "_frozen", False)

    @property
    def frozen(self) -> bool:
        """Whether changes are refused."""
        return self._frozen

    def freeze(self) -> None:
        """Refuses changes from now on."""
        object.__setattr__(self, "_frozen", True)

    def unfreeze(self) -> None:
        """Allows changes again."""
        object.__setattr__(self, "_frozen", False)

    def _check_not_frozen(self) -> None:
        if self._frozen:
            raise ValueError("This Config is frozen. Call `unfreeze()` before changing it.")

    def as_dict(self) -> dict[str, Any]:
        """A copy as a dictionary."""
        return dict(self._config)

    def to_json(self) -> str:
        """The values as JSON.

        Raises:
            TypeError: for a value that JSON does not have.
        """
        return json.dumps(self._config)

    def keys(self) -> KeysView[str]:
        """The names, in the order in which they were set."""
        return self._config.keys()

    def values(self) -> ValuesView[Any]:
        """The values, in the order of `keys`."""
        return self._config.values()

    def items(self) -> ItemsView[str, Any]:
        """(name, value) of each, in the order of `keys`."""
        return self._config.items()

    def get(self, keyname: str, value: Any = None) -> Any:
        """The value of that name, or `value` where there is none."""
        return self._config.get(keyname, value)

    def pop(self, *args: Any) -> Any:
        """Takes a value out and returns it, as `dict.pop`."""
        self._check_not_frozen()
        return self._config.pop(*args)

    def update(self, *args: Any, **kwargs: Any) -> None:
        """Sets several values, as `dict.update`."""
        self._check_not_frozen()
        self._config.update(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        # Python calls this for missing attributes; while a copy is made, `_config` may be missing
        # too.
        config = self.__dict__.get("_config", {})
        if name in config:
            return config[name]
        raise AttributeError(f"This Config has no {name!r}. {did_you_mean(name, list(config))}")

    def __setattr__(self, name: str, value: Any) -> None:
        if name in self.__dict__ or hasattr(type(self), name):
            object.__setattr__(self, name, value)
        else:
            self[name] = value

    def __getitem__(self, key: str) -> Any:
        return self._config[key]

    def __setitem__(self, key: str, item: Any) -> None:
        self._check_not_frozen()
        self._config[key] = item

    def __delitem__(self, key: str) -> None:
        self._check_not_frozen()
        del self._config[key]

    def __contains__(self, item: object) -> bool:
        return item in self._config

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(self._config))

    def __len__(self) -> int:
        return len(self._config)

    def __repr__(self) -> str:
        return f"<Config {self._config}>"
