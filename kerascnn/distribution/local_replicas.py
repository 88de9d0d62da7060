"""Several devices of this process that train one model.

To a step each device looks like a process: the step is recorded and compiled once for each, with
its share of the batch and its random streams, and sums over all. Weights and all other state are
those of the first device, which Python, files and callbacks see. For each variable that a step
uses there is another one on each other device (`_core.Mirror`): it follows what is assigned to the
first, and the steps themselves keep them alike. Only programs run at the same time, by threads of
the core (core/graph/replicas.h); Python works for one device after the other.
"""

from __future__ import annotations

import contextlib
import os
import weakref
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

import numpy as np

from kerascnn import _core
from kerascnn.device import canonical_name
from kerascnn.distribution import replicas
from kerascnn.distribution.replicas import Replicas

if TYPE_CHECKING:
    from kerascnn.variable import Variable


class _Place(NamedTuple):
    """What `Replicas` asks of an engine that it needs for nothing else."""

    rank: int
    size: int


class LocalReplica(Replicas):
    """One of the devices, as the recording of its step sees them all."""

    def __init__(self, group: LocalGroup, rank: int):
        super().__init__(_Place(rank, group.size))
        self.group = group
        self.device = group.devices[rank]

    @contextlib.contextmanager
    def recording(self) -> Iterator[None]:
        """A block that records and plans what this device computes."""
        with replicas.as_replica(self), _core.AsReplica(self.group.core, self.rank):
            yield

    def stand_ins(self, graph: Any, own: Any, metrics: Iterable[Any]) -> list[tuple[Any, Any]]:
        """Returns the variables of the first device in a recorded step, and this device's.

        Args:
            graph: the step.
            own: variables of the core that are this device's already.
            metrics: the model's, of whose variables the devices may have parts of a sum.
        """
        if self.rank == 0:
            return []
        adding_up = {
            variable.core
            for metric in metrics
            for variable in metric._unsettled()
            if variable.aggregation == "sum"
        }
        return [
            (core, self.group.mirror(core, core in adding_up).others[self.rank - 1])
            for core in graph.states
            if core not in own
        ]


class LocalGroup:
    """The devices of a distribution in one process.

    Args:
        devices: their names in the core; the first one has the weights that Python sees.
        names: what users call them.

    Raises:
        RuntimeError: for several GPUs without NCCL, or where it can't connect them.
    """

    def __init__(self, devices: Sequence[str], names: Sequence[str]):
        self.devices = list(devices)
        self.names = list(names)
        self.size = len(self.devices)
        if self.devices[0] != "cpu":
            _connect(tuple(self.devices))
        self.core = _core.Replicas(self.devices, self.names)
        self.replicas = [LocalReplica(self, rank) for rank in range(self.size)]
        self._mirrors: weakref.WeakKeyDictionary[Any, Any] = weakref.WeakKeyDictionary()

    # State -------------------------------------------------------------------------------------

    def mirror(self, core: Any, adds_up: bool) -> Any:
        """Returns what stands on the other devices for a variable of the core."""
        found = self._mirrors.get(core)
        if found is None:
            others = []
            for device in self.devices[1:]:
                other = _core.Variable(core.name, core.value.to(device))
                other.trainable = core.trainable
                others.append(other)
            found = self._mirrors[core] = _core.Mirror(others, adds_up)
        return found

    def known_mirror(self, core: Any) -> Any:
        """Returns the same where there is one, up to date, else None."""
        found = self._mirrors.get(core)
        if found is not None:
            found.refresh(core)
        return found

    def refresh(self, stand_ins: Iterable[tuple[Any, Any]]) -> None:
        """Brings the variables of other devices up to date; see `LocalReplica.stand_ins`."""
        for core, _ in stand_ins:
            self.known_mirror(core)

    def values(self, core: Any) -> list[np.ndarray]:
        """Returns what the devices hold, or the first one's value where the others have none."""
        mirror = self.known_mirror(core)
        others = [] if mirror is None else mirror.others
        return [np.array(one.value.numpy()) for one in (core, *others)]

    @contextlib.contextmanager
    def whole_metrics(self, variables: Sequence[Variable]) -> Iterator[None]:
        """A block in which variables of metrics have what all devices have counted."""
        own = []
        for variable in variables:
            values = self.values(variable.core)
            own.append(values[0])
            if len(values) > 1 and variable.aggregation in ("sum", "mean"):
                self._assign_settled(variable, replicas.combined(values, variable.aggregation))
        try:
            yield
        finally:
            for variable, value in zip(variables, own, strict=True):
                self._assign_settled(variable, value)

    def _assign_settled(self, variable: Variable, value: np.ndarray) -> None:
        """Assigns to the first device alone."""
        mirror = self.known_mirror(variable.core)
        variable.assign(value)
        if mirror is not None:
            mirror.settle(variable.core)

    def assign_each(self, variable: Variable, values: Sequence[np.ndarray]) -> None:
        """Gives each device its own value of a metric's variable."""
        mirror = self.mirror(variable.core, variable.aggregation == "sum")
        variable.assign(values[0])
        for other, value in zip(mirror.others, values[1:], strict=True):
            other.assign(_core.from_numpy(np.asarray(value), other.device))
        mirror.settle(variable.core)

    def refuse(self) -> NoReturn:
        """Raises for an optimizer's update that is not part of a step on all devices."""
        raise RuntimeError(
            f"Several devices of one process, {', '.join(self.names)}, train together in compiled "
            "steps: by fit(), train_on_batch() and a `train_step` of your own. In other code they "
            "would not get the same weights. For a loop of your own start one process for each "
            "device with a launcher, or call keras.distribution.set_distribution(None)."
        )


# Distributions over the same devices take turns, and share what stands on them.
_groups: weakref.WeakValueDictionary[tuple[str, ...], LocalGroup] = weakref.WeakValueDictionary()


def group_of(names: Sequence[str]) -> LocalGroup:
    """The group of some devices, the same one while somebody has it.

    Args:
        names: the devices as `list_devices` calls them; the first has the weights of models.

    Raises:
        RuntimeError: see `LocalGroup`.
    """
    found = _groups.get(tuple(names))
    if found is None:
        devices = ["cpu" if name.startswith("cpu") else canonical_name(name) for name in names]
        found = _groups[tuple(names)] = LocalGroup(devices, names)
    return found


# The GPUs that are connected now. They stay so when the distribution changes.
_connected: tuple[str, ...] = ()


def _connect(devices: tuple[str, ...]) -> None:
    """Connects GPUs of this process by NCCL, which all of them have to ask for together."""
    global _connected
    if devices == _connected:
        return
    from concurrent.futures import ThreadPoolExecutor

    from kerascnn.distribution import nccl, processes

    for name, value in nccl.SETTINGS.items():
        os.environ.setdefault(name, value)
    _core.open_nccl(nccl.find_library())
    nccl_id, patience = _core.make_nccl_id(), processes.patience() * nccl.START

    def join(rank: int) -> None:
        index = int(devices[rank].partition(":")[2])
        _core.join_nccl(index, nccl_id, rank, len(devices), patience)

    _connected = ()
    with ThreadPoolExecutor(len(devices)) as threads:
        for joined in [threads.submit(join, rank) for rank in range(len(devices))]:
            joined.result()
    _connected = devices
