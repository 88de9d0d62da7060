"""How a model is trained on several devices: each has all weights and a share of each batch."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator, Sequence
from typing import Any, NoReturn

from kerascnn import dtypes
from kerascnn.device import current as current_device
from kerascnn.device import is_chosen
from kerascnn.distribution import processes, replicas
from kerascnn.distribution.device_mesh import DeviceMesh, list_devices
from kerascnn.distribution.launch import find_world

_distribution: DataParallel | None = None


class DataParallel:
    """Each device has all weights and computes a share of each batch.

    The devices are those of several processes, one each, or several of one process. With it set,
    `fit`, `evaluate` and `train_on_batch` take batches of which each device computes its share, and
    losses, metrics, gradients and weights are those of one device on the whole batches, to
    rounding; see `docs/distribution.md`. With one device nothing changes.

    Args:
        device_mesh: a `DeviceMesh` with one axis, in place of `devices`.
        devices: names of devices, by default `list_devices()`: those of all processes, or all of
            this one; where a device was chosen (`keras.config.set_device`, `keras.device`,
            `KERASCNN_DEVICE=gpu:1`), that one. Of one process, the first has the weights of models.
        auto_shard_dataset: whether all processes have the same data, of which each takes its share.
            Otherwise generators, `PyDataset`s and other sources of batches give each process its
            own samples. Arrays are always the same in all processes.
        shard_optimizer_state: whether each process has the optimizer's state of its own part of the
            weights only (ZeRO's first stage), which it updates for all. Weights end with the same
            values; files of models are written by all processes together.
        reduce_dtype: the dtype in which gradients go to other devices and are averaged:
            `"float32"`, `"bfloat16"`, `"float16"` or `"float64"`; None for that of the weights.
            `"bfloat16"` halves the bytes of weights in float32. With the policy `mixed_bfloat16`
            gradients of kernels have its values already, so that only their average is rounded.
            `"float16"` ends at 65,504, and what is larger becomes infinite: use it with a
            `LossScaleOptimizer`, as `mixed_float16` does, which leaves such a step out. The term
            is that of PyTorch's FSDP.

    Raises:
        ValueError: for `device_mesh` together with `devices`, a device listed twice or not there,
            CPUs together with GPUs, devices that are not those of all processes,
            `shard_optimizer_state` with several devices in one process, and a `reduce_dtype` that
            is not one of these.
        RuntimeError: where a launcher has started several processes and `initialize()` was not
            called, and where this one computes on another device than it joined the others with.

    >>> keras.distribution.initialize()
    >>> keras.distribution.set_distribution(keras.distribution.DataParallel(devices=["cpu:0"]))
    >>> keras.distribution.distribution().num_processes
    1
    >>> keras.distribution.set_distribution(None)
    """

    def __init__(
        self,
        device_mesh: DeviceMesh | None = None,
        devices: Sequence[str] | None = None,
        auto_shard_dataset: bool = True,
        shard_optimizer_state: bool = False,
        reduce_dtype: Any = None,
    ):
        if processes.world() is None and (started := find_world()).size > 1:
            raise RuntimeError(
                f"{started.launcher} has started {started.size} processes that don't know one "
                "another yet: call keras.distribution.initialize() first."
            )
        if device_mesh is not None and devices is not None:
            raise ValueError(
                "DataParallel takes `device_mesh` or `devices`, not both. Received: "
                f"device_mesh={device_mesh}, devices={list(devices)}"
            )
        if device_mesh is None:
            names = list(devices) if devices is not None else _default_devices()
            device_mesh = DeviceMesh((len(names),), ["batch"], names)
        elif not isinstance(device_mesh, DeviceMesh):
            raise ValueError(f"`device_mesh` must be a DeviceMesh. Received: {device_mesh!r}")
        if len(device_mesh.shape) > 1:
            warnings.warn(
                "DataParallel expects a mesh with one axis; all of its devices share each batch. "
                f"Received: {device_mesh}",
                stacklevel=2,
            )
        _check_devices([str(name) for name in device_mesh.devices.reshape(-1)])
        self._device_mesh = device_mesh
        self.auto_shard_dataset = bool(auto_shard_dataset)
        self._devices_together: Any = None
        self.shard_optimizer_state = bool(shard_optimizer_state)
        self.reduce_dtype = None if reduce_dtype is None else _floating_dtype(reduce_dtype)
        if self.shard_optimizer_state and self.num_model_replicas > processes.num_processes():
            raise ValueError(
                "shard_optimizer_state=True is for several processes. The devices of this one, "
                f"{self.num_model_replicas}, have all state each. Start one process for each "
                f"(torchrun --nproc-per-node {self.num_model_replicas} ...), or leave it False."
            )

    @property
    def device_mesh(self) -> DeviceMesh:
        """The devices."""
        return self._device_mesh

    @property
    def batch_dim_name(self) -> str:
        """The name of the mesh's axis along which batches are shared."""
        return self._device_mesh.axis_names[0]

    @property
    def num_processes(self) -> int:
        """How many processes train together."""
        return processes.num_processes()

    @property
    def num_model_replicas(self) -> int:
        """How many copies of the weights there are: one on each device."""
        return int(self._device_mesh.devices.size)

    @property
    def data_shard_id(self) -> int:
        """Which share of each batch this process takes, from 0."""
        return processes.process_id()

    def _group(self) -> Any:
        """Returns the devices of this process that train together, None for one."""
        names = _plain([str(name) for name in self._device_mesh.devices.reshape(-1)])
        if len(names) == 1:
            return None
        if self._devices_together is None:
            from kerascnn.distribution.local_replicas import group_of

            self._devices_together = group_of(names)
        return self._devices_together

    @contextlib.contextmanager
    def scope(self) -> Iterator[None]:
        """A block in which this is the distribution."""
        before = distribution()
        set_distribution(self)
        try:
            yield
        finally:
            set_distribution(before)

    def __repr__(self) -> str:
        return f"<DataParallel device_mesh={self.device_mesh}>"


def _floating_dtype(dtype: Any) -> str:
    with contextlib.suppress(ValueError, TypeError):
        name = dtypes.standardize_dtype(dtype)
        if dtypes.is_float(name):
            return name
    raise ValueError(
        "DataParallel averages gradients in a floating dtype: `reduce_dtype` must be 'float32', "
        f"'bfloat16', 'float16', 'float64', or None for the weights' own. Received: {dtype!r}"
    )


def _default_devices() -> list[str]:
    if processes.num_processes() > 1:
        return list_devices(processes.device_kind())
    current = current_device()
    if current == "cpu":
        return list_devices("cpu")
    return [current.replace("cuda", "gpu")] if is_chosen() else list_devices("gpu")


def _check_devices(names: list[str]) -> None:
    size = processes.num_processes()
    if size > 1:
        expected_device = getattr(processes.engine(), "device", "cpu")
        if current_device() != expected_device:
            raise RuntimeError(
                f"There are {size} processes, and this one has joined the others for training on "
                f"{expected_device}, but computes on {current_device()} now. Choose the device "
                "before keras.distribution.initialize(): by keras.config.set_device(), or "
                "KERASCNN_DEVICE=cpu or gpu."
            )
        expected = list_devices(processes.device_kind())
        if sorted(names) != sorted(expected):
            raise ValueError(
                f"{size} processes train together, one on each of {expected}: a distribution has "
                f"all of these and no other. Received: {names}"
            )
        return
    kinds = {"cpu" if name.startswith("cpu") else "gpu" for name in _plain(names)}
    if len(kinds) > 1:
        raise ValueError(
            "The devices that train together are CPUs or GPUs, because each computes the same. "
            f"Received: {names}"
        )
    known = list_devices(kinds.pop())
    for name, plain in zip(names, _plain(names), strict=True):
        if plain not in known:
            more = " KERASCNN_CPU_DEVICES=2 lets the CPU count as two." if "cpu" in plain else ""
            raise ValueError(
                f"There is no device {name!r}; there are {known or 'none of its kind'}.{more}"
            )
    if len(set(_plain(names))) < len(names):
        raise ValueError(f"A device can't be listed twice. Received: {names}")


def _plain(names: Sequence[str]) -> list[str]:
    """Returns the names as `list_devices` gives them."""
    lower = [name.lower().replace("cuda", "gpu") for name in names]
    return [name if ":" in name else f"{name}:0" for name in lower]


def set_distribution(value: Any) -> None:
    """Makes all training from now on use a distribution, or none.

    Args:
        value: a `DataParallel`, or None.

    Raises:
        TypeError: for anything else.
        RuntimeError: for several GPUs of this process, without NCCL or where it can't connect them.

    >>> keras.distribution.set_distribution(None)
    """
    global _distribution
    if value is not None and not isinstance(value, DataParallel):
        raise TypeError(
            "set_distribution() takes a keras.distribution.DataParallel, or None. Received: "
            f"{value!r} of type {type(value).__name__}"
        )
    if value is None:
        replicas.activate(None)
    elif processes.engine() is not None:
        together = replicas.Replicas(
            processes.engine(), value.auto_shard_dataset, value.shard_optimizer_state
        )
        replicas.activate(together, reduce_dtype=value.reduce_dtype)
    else:
        replicas.activate(None, value._group(), value.reduce_dtype)
    _distribution = value


def distribution() -> DataParallel | None:
    """The distribution that was set.

    Returns:
        A `DataParallel`, or None.

    >>> print(keras.distribution.distribution())
    None
    """
    return _distribution


def _refuse(name: str) -> NoReturn:
    raise NotImplementedError(
        f"keras.distribution.{name} is not available: kerascnn puts all weights on each device. "
        "Use keras.distribution.DataParallel()."
    )


class ModelParallel:
    """Not available: models of which each device has a part.

    Args:
        layout_map: where the parts of each weight would be.
        batch_dim_name: the axis of the devices along which batches would be shared.
        auto_shard_dataset: see `DataParallel`.

    Raises:
        NotImplementedError: always; use `DataParallel`.

    >>> keras.distribution.ModelParallel()  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    NotImplementedError: keras.distribution.ModelParallel is not available...
    """

    def __init__(
        self,
        *,
        layout_map: Any = None,
        batch_dim_name: str | None = None,
        auto_shard_dataset: bool = True,
        **kwargs: Any,
    ):
        _refuse("ModelParallel")


class LayoutMap:
    """Not available: where the parts of each weight are.

    Args:
        device_mesh: the devices.

    Raises:
        NotImplementedError: always; use `DataParallel`.

    >>> keras.distribution.LayoutMap(None)  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    NotImplementedError: keras.distribution.LayoutMap is not available...
    """

    def __init__(self, device_mesh: Any):
        _refuse("LayoutMap")


class TensorLayout:
    """Not available: how the axes of a tensor are spread over devices.

    Args:
        axes: names of the mesh's axes, one for each axis of the tensor.
        device_mesh: the devices.

    Raises:
        NotImplementedError: always; use `DataParallel`.

    >>> keras.distribution.TensorLayout(["batch"])  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    NotImplementedError: keras.distribution.TensorLayout is not available...
    """

    def __init__(self, axes: Any, device_mesh: Any = None):
        _refuse("TensorLayout")


def distribute_tensor(tensor: Any, layout: Any) -> Any:
    """Not available: a tensor of which each device has a part.

    Args:
        tensor: a tensor.
        layout: where its parts would be.

    Returns:
        Nothing: it raises.

    Raises:
        NotImplementedError: always; use `DataParallel`.

    >>> keras.distribution.distribute_tensor(None, None)  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    NotImplementedError: keras.distribution.distribute_tensor is not available...
    """
    _refuse("distribute_tensor")
