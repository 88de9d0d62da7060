"""A step on several devices of this process, each of which computes its share of the batch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from kerascnn import _core
from kerascnn.distribution.local_replicas import LocalGroup, LocalReplica
from kerascnn.training.device_arrays import Array
from kerascnn.training.device_state import StepState
from kerascnn.training.kept_feeds import KeptFeeds
from kerascnn.training.shares import rows_to_compute
from kerascnn.training.steps import BatchSource, CompiledStep, Step

if TYPE_CHECKING:
    from kerascnn.training.machinery import StepMachinery


class ReplicatedStep(Step):
    """The steps of all devices, which run at the same time.

    Args:
        group: the devices.
        steps: one for each.
    """

    def __init__(self, group: LocalGroup, steps: Sequence[CompiledStep]):
        super().__init__(steps[0]._outputs)
        self._group = group
        self.steps = list(steps)
        self.notes_finite_loss = steps[0].notes_finite_loss
        firsts = list(dict.fromkeys(first for step in steps for first, _ in step.stand_ins))
        self._program = _core.ReplicatedProgram(
            group.core,
            [step.program for step in steps],
            firsts,
            [group.mirror(first, False) for first in firsts],
        )

    def stage(self, arrays: Sequence[Array], device: str) -> list[Any]:
        """Copies to each device its share of a batch; returns the inputs of each."""
        return [
            step.stage([array[rows_to_compute(replica, len(array))] for array in arrays], at)
            for step, replica, at in zip(
                self.steps, self._group.replicas, self._group.devices, strict=True
            )
        ]

    def run(self, inputs: list[Any], steps: int, later: bool = False) -> None:
        """Runs steps; `inputs` are those of each device."""
        while steps:
            count = steps
            for step in self.steps:
                count = step.recording.prepare(count)
            self._program.run(inputs, count)
            # What the host counts, it counts once.
            self.steps[0].recording.run_effects(count)
            steps -= count

    def release_inputs(self) -> None:
        for step in self.steps:
            step.release_inputs()

    def _tensors(self) -> list[Any]:
        return self.steps[0]._tensors()

    def outputs(self) -> Any:
        """Returns the means of the devices' results, which are numbers that a step returned."""
        of_each = [[tensor.numpy() for tensor in step._tensors()] for step in self.steps]
        return self.pack(
            [np.mean(np.stack(leaf), 0, np.float64) for leaf in zip(*of_each, strict=True)]
        )


def joined(group: LocalGroup, steps: list[Any]) -> ReplicatedStep:
    """Returns the step of all devices for those of each, the same one for the same ones."""
    first = steps[0]
    if first.of_all is None or first.of_all.steps != steps:
        first.of_all = ReplicatedStep(group, steps)
    return first.of_all


def replicated_step(
    model: StepMachinery, group: LocalGroup, kind: str, source: BatchSource, state: StepState
) -> ReplicatedStep:
    """Compiles the step of each device, or finds it.

    Args:
        model: the model.
        group: the devices.
        kind: the kind of step.
        source: the whole batches.
        state: the counters of the first device.
    """
    steps = []
    for replica, own in zip(group.replicas, states_of(model, group, state), strict=True):
        with replica.recording():
            steps.append(model._compiled_step(kind, own_source(replica, source), own))
    return joined(group, steps)


def states_of(model: StepMachinery, group: LocalGroup, state: StepState) -> list[StepState]:
    """The states of all devices, made where there are none yet.

    Args:
        model: the model.
        group: the devices.
        state: that of the first one.

    Raises:
        ValueError: where the model is on another device than the first one.
        RuntimeError: for a model whose steps Python runs.
    """
    if state.device != group.devices[0]:
        raise ValueError(
            f"The model's weights are on {state.device}, and the first of the devices that train "
            f"together is {group.devices[0]}: {', '.join(group.names)}. Name the weights' device "
            f"first, or make the model in a block `with keras.device({group.devices[0]!r}):`."
        )
    if model.run_eagerly:
        raise RuntimeError(
            "With run_eagerly=True Python runs each step, on one device. Compile the model with "
            "run_eagerly=False, or call keras.distribution.set_distribution(None)."
        )
    if [other.device for other in state.others] != group.devices[1:]:
        state.others = [StepState(device) for device in group.devices[1:]]
        for other in state.others:
            other.kept_feeds = KeptFeeds()
    for other in state.others:
        other.parts = state.parts
    return [state, *state.others]


def own_source(replica: LocalReplica, source: BatchSource) -> BatchSource:
    """Returns where one device's share of each batch comes from."""
    which = rows_to_compute(replica, source.batch_size)

    def own_rows(length: int) -> int:
        return len(range(*which.indices(length)))

    specs = tuple(((own_rows(shape[0]), *shape[1:]), dtype) for shape, dtype in source.specs)
    share = replica.share(source.batch_size)
    return source._replace(specs=specs, batch_size=own_rows(source.batch_size), share=share)
