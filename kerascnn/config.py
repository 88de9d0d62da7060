"""Settings of the whole program, and what the devices have to say.

Example:

>>> import kerascnn as keras
>>> keras.config.floatx(), keras.config.epsilon(), keras.config.image_data_format()
('float32', 1e-07, 'channels_last')
"""

from __future__ import annotations

import os
from typing import Any

from kerascnn.registration import enable_unsafe_deserialization as enable_unsafe_deserialization

_FLOATX_CHOICES = ("float16", "bfloat16", "float32", "float64")
_DATA_FORMATS = ("channels_last", "channels_first")


def _limit_of(variable: str) -> int | None:
    """Returns the number in an environment variable, or None if it is not set."""
    text = os.environ.get(variable)
    return int(text) if text else None


_settings: dict[str, Any] = {
    "floatx": "float32",
    "epsilon": 1e-7,
    "image_data_format": "channels_last",
    "interactive_logging": True,
    "traceback_filtering": True,
    "flash_attention": None,
    "max_epochs": _limit_of("KERAS_MAX_EPOCHS"),
    "max_steps_per_epoch": _limit_of("KERAS_MAX_STEPS_PER_EPOCH"),
    "tf32": os.environ.get("KERASCNN_TF32", "1") != "0",
    "autotune": os.environ.get("KERASCNN_AUTOTUNE", "0") not in ("", "0"),
}


def floatx() -> str:
    """The default floating type of weights and results, "float32" unless it was set.

    Returns:
        The name of a dtype.

    Example:

    >>> import kerascnn as keras
    >>> keras.config.floatx()
    'float32'
    """
    return _settings["floatx"]


def set_floatx(value: str) -> None:
    """Sets the default floating type of weights and results that are made from now on.

    Args:
        value: "float16", "bfloat16", "float32" or "float64".

    Raises:
        ValueError: for another name.

    Example:

    >>> import kerascnn as keras
    >>> keras.config.set_floatx("float64")
    >>> keras.config.floatx()
    'float64'
    >>> keras.config.set_floatx("float32")
    """
    if value not in _FLOATX_CHOICES:
        raise ValueError(
            f"floatx must be one of {', '.join(_FLOATX_CHOICES)}. Received: {value!r}."
        )
    _settings["floatx"] = str(value)


def epsilon() -> float:
    """The small number that keeps logarithms and divisions finite, 1e-7 unless it was set.

    Returns:
        A positive number.

    Example:

    >>> import kerascnn as keras
    >>> keras.config.epsilon()
    1e-07
    """
    return _settings["epsilon"]


def set_epsilon(value: float) -> None:
    """Sets the small number that keeps logarithms and divisions finite.

    Args:
        value: A positive number.

    Example:

    >>> import kerascnn as keras
    >>> keras.config.set_epsilon(0.001)
    >>> keras.config.epsilon()
    0.001
    >>> keras.config.set_epsilon(1e-07)
    """
    _settings["epsilon"] = float(value)


def image_data_format() -> str:
    """Returns where images have their channels: "channels_last" unless it was set.

    Returns:
        "channels_last" or "channels_first".

    Example:

    >>> import kerascnn as keras
    >>> keras.config.image_data_format()
    'channels_last'
    """
    return _settings["image_data_format"]


def set_image_data_format(data_format: str) -> None:
    """Sets the default of the argument `data_format` of layers and ops.

    Args:
        data_format: "channels_last" or "channels_first".

    Raises:
        ValueError: for anything else.

    Example:

    >>> import kerascnn as keras
    >>> keras.config.set_image_data_format("channels_first")
    >>> keras.config.image_data_format()
    'channels_first'
    >>> keras.config.set_image_data_format("channels_last")
    """
    _settings["image_data_format"] = standardize_data_format(data_format)


def standardize_data_format(data_format: str | None) -> str:
    """The data format in lower case; None stands for `image_data_format()`.

    Args:
        data_format: "channels_last", "channels_first" or None.

    Returns:
        "channels_last" or "channels_first".

    Raises:
        ValueError: for anything else.

    Example:

    >>> import kerascnn as keras
    >>> keras.config.standardize_data_format("Channels_First")
    'channels_first'
    """
    if data_format is None:
        return image_data_format()
    name = str(data_format).lower()
    if name not in _DATA_FORMATS:
        raise ValueError(
            "data_format must be 'channels_last' or 'channels_first'. "
            f"Received: data_format={data_format!r}."
        )
    return name


def backend() -> str:
    """The name of what computes, the current device: "cpu" or "cuda:0".

    Returns:
        Not the name of a framework, as in Keras: there is one.

    Example:

    >>> import kerascnn as keras
    >>> with keras.device("cpu"):
    ...     keras.config.backend()
    'cpu'
    """
    return get_device()


def dtype_policy() -> Any:
    """The policy of layers that are given none; see `dtype_policies.dtype_policy`.

    Returns:
        A `DTypePolicy`.

    Example:

    >>> import kerascnn as keras
    >>> keras.config.dtype_policy().name
    'float32'
    """
    from kerascnn import dtype_policies

    return dtype_policies.dtype_policy()


def set_dtype_policy(policy: Any) -> None:
    """Sets the policy of layers that are given none; see `dtype_policies.set_dtype_policy`.

    Args:
        policy: A policy or its name.

    Example:

    >>> import kerascnn as keras
    >>> keras.config.set_dtype_policy("mixed_bfloat16")
    >>> keras.layers.Dense(2).compute_dtype
    'bfloat16'
    >>> keras.config.set_dtype_policy("float32")
    """
    from kerascnn import dtype_policies

    dtype_policies.set_dtype_policy(policy)


def enable_interactive_logging() -> None:
    """Shows messages and progress on standard output, as they are from the start.

    Example:

    >>> import kerascnn as keras
    >>> keras.config.disable_interactive_logging()
    >>> keras.config.is_interactive_logging_enabled()
    False
    >>> keras.config.enable_interactive_logging()
    >>> keras.config.is_interactive_logging_enabled()
    True
    """
    _settings["interactive_logging"] = True


def disable_interactive_logging() -> None:
    """Sends messages and progress to the logger "kerascnn" of Python's `logging`, as INFO.

    Example:

    >>> import kerascnn as keras
    >>> keras.config.disable_interactive_logging()
    >>> keras.config.is_interactive_logging_enabled()
    False
    >>> keras.config.enable_interactive_logging()
    >>> keras.config.is_interactive_logging_enabled()
    True
    """
    _settings["interactive_logging"] = False


def is_interactive_logging_enabled() -> bool:
    """Tells whether messages and progress go to standard output.

    Returns:
        True unless `disable_interactive_logging` was called last.

    Example:

    >>> import kerascnn as keras
    >>> keras.config.is_interactive_logging_enabled()
    True
    """
    return _settings["interactive_logging"]


def enable_traceback_filtering() -> None:
    """Leaves the library's own frames out of the tracebacks of errors, as from the start.

    Example:

    >>> import kerascnn as keras
    >>> keras.config.disable_traceback_filtering()
    >>> keras.config.is_traceback_filtering_enabled()
    False
    >>> keras.config.enable_traceback_filtering()
    >>> keras.config.is_traceback_filtering_enabled()
    True
    """
    _settings["traceback_filtering"] = True


def disable_traceback_filtering() -> None:
    """Shows all frames in the tracebacks of errors.

    Example:

    >>> import kerascnn as keras
    >>> keras.config.disable_traceback_filtering()
    >>> keras.config.is_traceback_filtering_enabled()
    False
    >>> keras.config.enable_traceback_filtering()
    >>> keras.config.is_traceback_filtering_enabled()
    True
    """
    _settings["traceback_filtering"] = False


def is_traceback_filtering_enabled() -> bool:
    """Tells whether the library's own frames are left out of the tracebacks of errors.

    Returns:
        True unless `disable_traceback_filtering` was called last.

    Example:

    >>> import kerascnn as keras
    >>> keras.config.is_traceback_filtering_enabled()
    True
    """
    return _settings["traceback_filtering"]


def enable_flash_attention() -> None:
    """Accepted for compatibility: attention is computed in one way, with the same results.

    Example:

    >>> import kerascnn as keras
    >>> keras.config.enable_flash_attention()
    >>> keras.config.is_flash_attention_enabled()
    True
    >>> keras.config.disable_flash_attention()
    >>> keras.config.is_flash_attention_enabled()
    False
    """
    _settings["flash_attention"] = True


def disable_flash_attention() -> None:
    """Accepted for compatibility; see `enable_flash_attention`.

    Example:

    >>> import kerascnn as keras
    >>> keras.config.enable_flash_attention()
    >>> keras.config.is_flash_attention_enabled()
    True
    >>> keras.config.disable_flash_attention()
    >>> keras.config.is_flash_attention_enabled()
    False
    """
    _settings["flash_attention"] = False


def is_flash_attention_enabled() -> bool | None:
    """Returns what was set last, or None; the setting has no effect.

    Returns:
        True, False or None.

    Example:

    >>> import kerascnn as keras
    >>> keras.config.enable_flash_attention()
    >>> keras.config.is_flash_attention_enabled()
    True
    >>> keras.config.disable_flash_attention()
    >>> keras.config.is_flash_attention_enabled()
    False
    """
    return _settings["flash_attention"]


def is_nnx_enabled() -> bool:
    """False: NNX belongs to Keras' JAX backend.

    Returns:
        False.

    Example:

    >>> import kerascnn as keras
    >>> keras.config.is_nnx_enabled()
    False
    """
    return False


def max_epochs() -> int | None:
    """Returns how many epochs `fit` trains at most, None without a limit.

    Set by `set_max_epochs` or the environment variable `KERAS_MAX_EPOCHS`, so that a script can be
    tried out without a change.

    Returns:
        A number of epochs, or None.

    Example:

    >>> import kerascnn as keras
    >>> keras.config.set_max_epochs(2)
    >>> keras.config.max_epochs()
    2
    >>> keras.config.set_max_epochs(None)
    """
    return _settings["max_epochs"]


def set_max_epochs(max_epochs: int | None) -> None:
    """Limits how many epochs `fit` trains.

    Args:
        max_epochs: The largest number; None takes the limit away.

    Example:

    >>> import kerascnn as keras
    >>> keras.config.set_max_epochs(2)
    >>> keras.config.max_epochs()
    2
    >>> keras.config.set_max_epochs(None)
    """
    _settings["max_epochs"] = max_epochs


def max_steps_per_epoch() -> int | None:
    """How many batches an epoch, an evaluation or a prediction has at most, None without a limit.

    Set by `set_max_steps_per_epoch` or the environment variable `KERAS_MAX_STEPS_PER_EPOCH`.

    Returns:
        A number of batches, or None.

    Example:

    >>> import kerascnn as keras
    >>> keras.config.set_max_steps_per_epoch(10)
    >>> keras.config.max_steps_per_epoch()
    10
    >>> keras.config.set_max_steps_per_epoch(None)
    """
    return _settings["max_steps_per_epoch"]


def set_max_steps_per_epoch(max_steps_per_epoch: int | None) -> None:
    """Limits the batches of an epoch, an evaluation and a prediction.

    Args:
        max_steps_per_epoch: The largest number; None takes the limit away.

    Example:

    >>> import kerascnn as keras
    >>> keras.config.set_max_steps_per_epoch(10)
    >>> keras.config.max_steps_per_epoch()
    10
    >>> keras.config.set_max_steps_per_epoch(None)
    """
    _settings["max_steps_per_epoch"] = max_steps_per_epoch


def tf32() -> bool:
    """Whether float32 convolutions, products and recurrent layers on NVIDIA GPUs may use TF32.

    True unless `set_tf32(False)` was called or the environment had `KERASCNN_TF32=0` at the import.

    Returns:
        True or False.

    Example:

    >>> import kerascnn as keras
    >>> before = keras.config.tf32()
    >>> keras.config.set_tf32(False)
    >>> keras.config.tf32()
    False
    >>> keras.config.set_tf32(before)
    """
    return _settings["tf32"]


def set_tf32(allowed: bool) -> None:
    """Allows or forbids TF32 from now on; programs that are compiled already stay as they are.

    Args:
        allowed: Whether `tf32` holds.

    Example:

    >>> import kerascnn as keras
    >>> before = keras.config.tf32()
    >>> keras.config.set_tf32(False)
    >>> keras.config.tf32()
    False
    >>> keras.config.set_tf32(before)
    """
    _settings["tf32"] = bool(allowed)
    _core().set_allow_tf32(bool(allowed))


def autotune() -> bool:
    """Tells whether programs for NVIDIA GPUs choose kernels by timing them.

    False unless `set_autotune(True)` was called or the environment had `KERASCNN_AUTOTUNE=1` at the
    import.

    Returns:
        True or False.

    Example:

    >>> import kerascnn as keras
    >>> before = keras.config.autotune()
    >>> keras.config.set_autotune(True)
    >>> keras.config.autotune()
    True
    >>> keras.config.set_autotune(before)
    """
    return _settings["autotune"]


def set_autotune(allowed: bool) -> None:
    """Lets programs that are compiled from now on choose kernels by timing them, or not.

    Of large convolutions and matrix products on a GPU, several algorithms of cuDNN and cuBLASLt and
    own kernels are timed when a program is compiled. The fastest is kept on disk, below
    `KERASCNN_HOME`, for this GPU and these versions; `profiler.kernel_choices` shows it. What does
    not compute the same as the usual kernel is left out, but kernels differ in the last bits of
    their results, and two machines of a kind may find different ones: training is the same to the
    bit only on the machine that has the files.

    Args:
        allowed: False, the default, takes what rules and the libraries' heuristics choose: the same
            for all machines of a kind.

    Example:

    >>> import kerascnn as keras
    >>> keras.config.set_autotune(True)
    >>> keras.config.autotune()
    True
    >>> keras.config.set_autotune(False)
    """
    _settings["autotune"] = bool(allowed)


def set_device(name: str | None) -> None:
    """Makes a device the default: what is made from now on goes there.

    Args:
        name: "cpu", "gpu", "gpu:1" or "cuda:0"; None goes back to the automatic choice.

    Raises:
        ValueError: for a name that is none.
        RuntimeError: for a device that cannot be used, with the reason.

    Example:

    >>> import kerascnn as keras
    >>> keras.config.set_device("cpu")
    >>> keras.config.set_device(None)
    """
    from kerascnn.device import set_default

    set_default(name)


def get_device() -> str:
    """The device where new weights and tensors go.

    Returns:
        Its name, such as "cpu" or "cuda:0".

    Example:

    >>> import kerascnn as keras
    >>> with keras.device("cpu"):
    ...     keras.config.get_device()
    'cpu'
    """
    from kerascnn.device import current

    return current()


def list_devices() -> list[tuple[str, bool, str]]:
    """All devices of this machine, usable or not.

    Returns:
        (name, usable, description) of each; the description says why one is not usable.

    Example:

    >>> import kerascnn as keras
    >>> keras.config.list_devices()[0][:2]
    ('cpu', True)
    """
    from kerascnn import _core

    return [(name, bool(usable), text) for name, usable, text in _core.list_devices()]


def memory_stats(device: str | None = None) -> dict[str, int]:
    """Bytes `allocated`, `cached` and at `peak`, and `num_allocations`, on a device.

    Args:
        device: By default the current device.

    Returns:
        A dictionary of these numbers, and perhaps others.

    Example:

    >>> import kerascnn as keras
    >>> stats = keras.config.memory_stats("cpu")
    >>> stats["peak"] >= stats["allocated"] >= 0
    True
    """
    return dict(_core().memory_stats(_resolve(device)))


def reset_peak_memory(device: str | None = None) -> None:
    """Makes the peak of `memory_stats` what is allocated now.

    Args:
        device: By default the current device.

    Example:

    >>> import kerascnn as keras
    >>> with keras.device("cpu"):
    ...     x = keras.ops.ones((1000,))
    >>> keras.config.reset_peak_memory("cpu")
    >>> keras.config.memory_stats("cpu")["peak"] >= 4 * 1000  # x is still there
    True
    """
    _core().reset_peak_memory(_resolve(device))


def release_cached_memory(device: str | None = None) -> None:
    """Gives the memory that the allocator keeps for reuse back to the system.

    Args:
        device: By default the current device.

    Example:

    >>> import kerascnn as keras
    >>> keras.config.release_cached_memory("cpu")
    """
    _core().release_cached(_resolve(device))


def launch_stats(device: str | None = None) -> dict[str, int]:
    """Counters of the work that was handed to a device since the program began.

    Args:
        device: By default the current device.

    Returns:
        A dictionary of numbers.

    Example:

    >>> import kerascnn as keras
    >>> all(count >= 0 for count in keras.config.launch_stats("cpu").values())
    True
    """
    return dict(_core().launch_stats(_resolve(device)))


def synchronize(device: str | None = None) -> None:
    """Waits until a device has done all it was given, which timing its work needs.

    Args:
        device: By default the current device.

    Example:

    >>> import kerascnn as keras
    >>> keras.config.synchronize("cpu")
    """
    _core().synchronize(_resolve(device))


def _core() -> Any:
    from kerascnn import _core

    return _core


def _resolve(name: str | None) -> str:
    from kerascnn.device import canonical_name, current

    return current() if name is None else canonical_name(name)
