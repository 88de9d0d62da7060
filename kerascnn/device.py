"""Where tensors live and programs run.

The choice, in this order: the innermost `with kerascnn.device(...)` block, `config.set_device`,
the environment variable `KERASCNN_DEVICE`, the first usable GPU, the CPU. Nothing asks a driver
before the first tensor or weight is made. A device that was asked for and cannot be used is an
error; only the automatic choice looks further.
"""

from __future__ import annotations

import contextvars
import os
import re
from types import TracebackType

from kerascnn import _core

_PATTERN = re.compile(r"(cpu|gpu|cuda)(?::(\d+))?")

_stack: contextvars.ContextVar[tuple[str, ...]] = contextvars.ContextVar("devices", default=())
_default: str | None = None
_automatic: str | None = None
_checked: set[str] = set()


def canonical_name(name: str) -> str:
    """ "cpu" or "cuda:<index>" for any accepted spelling.

    Raises:
        ValueError: for a name that is none.

    Example:

    >>> from kerascnn.device import canonical_name
    >>> canonical_name("gpu"), canonical_name("cuda:1"), canonical_name("CPU:0")
    ('cuda:0', 'cuda:1', 'cpu')
    """
    match = _PATTERN.fullmatch(name.lower()) if isinstance(name, str) else None
    if match is None or (match[1] == "cpu" and match[2] not in (None, "0")):
        raise ValueError(
            f"{name!r} is not the name of a device. Use 'cpu', 'gpu', or one of several GPUs as "
            "'gpu:0', 'gpu:1' (or 'cuda:0', 'cuda:1')."
        )
    return "cpu" if match[1] == "cpu" else f"cuda:{int(match[2] or 0)}"


def _require(name: str) -> str:
    """Raises DeviceError with the reason if a device cannot be used."""
    if name == "cpu" or name in _checked:
        return name
    devices = {entry[0]: (entry[1], entry[2]) for entry in _core.list_devices()}
    usable, description = devices.get(name, (False, ""))
    if not usable:
        if not description:
            others = [text for other, (_, text) in devices.items() if other.startswith("cuda")]
            description = others[0] if others else "no NVIDIA GPU was found"
            if any(ok for other, (ok, _) in devices.items() if other.startswith("cuda")):
                description = "there is no GPU with this number"
        available = ", ".join(other for other, (ok, _) in devices.items() if ok)
        raise _core.DeviceError(
            f"The device {name!r} was asked for but cannot be used: {description}. "
            f"Usable here: {available}. kerascnn.show_versions() tells what was looked for."
        )
    _checked.add(name)
    return name


def set_default(name: str | None) -> None:
    """See `kerascnn.config.set_device`."""
    global _default
    _default = None if name is None else _require(canonical_name(name))


def current() -> str:
    """The device where new tensors and weights go, "cpu" or "cuda:<index>"."""
    global _automatic
    stack = _stack.get()
    if stack:
        return stack[-1]
    if _default is not None:
        return _default
    asked = os.environ.get("KERASCNN_DEVICE")
    if asked:
        return _require(canonical_name(asked))
    if _automatic is None:
        usable = [name for name, ok, _ in _core.list_devices() if ok and name != "cpu"]
        _automatic = usable[0] if usable else "cpu"
    return _automatic


def is_chosen() -> bool:
    """Tells whether somebody has named the current device, not only its kind."""
    named = os.environ.get("KERASCNN_DEVICE", "")
    return bool(_stack.get()) or _default is not None or ":" in named


class device:
    """A block whose new tensors and weights live on one device.

    Args:
        device_name: "cpu", "gpu", "gpu:1", "cuda:0" and the like.

    Raises:
        ValueError: for a name that is none.
        RuntimeError: for a device that cannot be used, with the reason.

    Example:

    >>> import kerascnn as keras
    >>> with keras.device("cpu"):
    ...     x = keras.ops.ones((2, 3))
    >>> x.device
    'cpu'
    """

    def __init__(self, device_name: str) -> None:
        self.name = _require(canonical_name(device_name))
        self._tokens: list[contextvars.Token[tuple[str, ...]]] = []

    def __enter__(self) -> device:
        self._tokens.append(_stack.set((*_stack.get(), self.name)))
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        _stack.reset(self._tokens.pop())
