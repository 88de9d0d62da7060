"""One step of training, testing or prediction: traced from the model's code, and compiled."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from kerascnn import _core, config, tracing, trees
from kerascnn.device import device as on_device
from kerascnn.distribution import replicas
from kerascnn.distribution.replicas import Share
from kerascnn.metrics.recording import StepRecording, record_step
from kerascnn.ops import dispatch
from kerascnn.optimizers.due_updates import Case, DueUpdates, StepCounts
from kerascnn.tracing import Trace
from kerascnn.training.device_arrays import Array
from kerascnn.training.device_state import StagedTensor, StepState
from kerascnn.training.frozen import PythonState
from kerascnn.training.output_buffers import OutputBuffers, buffers_for, copies_of

if TYPE_CHECKING:
    from kerascnn.training.machinery import StepMachinery

TRAIN, TEST, PREDICT = "train", "test", "predict"


class BatchSource(NamedTuple):
    """Where a step's batches come from: whole arrays on the device, and how to pick from them.

    `rows` is the length of the order that batches are gathered by, and `counts` whether the step is
    one of several that a counter on the device walks through. Without an order (`rows` is None) the
    arrays are the batch. `collects` says of how many steps the outputs stay on the device for the
    host to take them at once, where they can; 0 where it takes those of each step. Where several
    processes train, `share` is the part of the whole batch that the step computes.
    """

    # the step's arguments, with an index into `specs` or None in place of each array
    structure: Any
    specs: tuple[tuple[tuple[int, ...], str], ...]  # (shape, dtype) of each array
    batch_size: int
    rows: int | None
    counts: bool
    collects: int = 0
    share: Share | None = None

    @property
    def key(self) -> tuple:
        return repr(self.structure), *self[1:]

    def with_batch_size(self, batch_size: int) -> BatchSource:
        """Returns the same source for another batch size, to plan its memory."""
        if self.share is not None:
            total = batch_size * self.share.processes
            self = self._replace(share=Share(batch_size, total, self.share.processes))
        if self.rows is not None:
            return self._replace(batch_size=batch_size)
        specs = tuple(((batch_size, *shape[1:]), dtype) for shape, dtype in self.specs)
        return self._replace(batch_size=batch_size, specs=specs)


def describe_source(
    structure: Any,
    arrays: Sequence[Array],
    batch_size: int,
    rows: int | None,
    counts: bool,
    length: int | None = None,
    collects: int = 0,
    share: Share | None = None,
) -> BatchSource:
    """Returns the source for `arrays`, with `length` rows if not all are on the device at once."""
    places = {id(array): place for place, array in enumerate(arrays)}
    indexed = trees.map_structure(
        lambda leaf: None if leaf is None else places[id(leaf)], structure
    )
    specs = tuple(
        ((len(a) if length is None else length, *a.shape[1:]), a.dtype.name) for a in arrays
    )
    return BatchSource(indexed, specs, batch_size, rows, counts, collects, share)


class Step:
    """Runs batches and knows the form of its outputs: a compiled step, or Python (`EagerStep`)."""

    runs_at_once = False  # true if Python runs each step
    notes_finite_loss = False  # true if steps count until the loss becomes NaN or infinite
    buffers: OutputBuffers | None = None  # the buffers for its outputs, or None

    def __init__(self, outputs: Any = None):
        self._outputs = outputs  # the structure of the step's result
        self._staged: list[StagedTensor] | None = None
        self.owners: Any = None  # the objects that the signature names
        self.told: Any = None  # the LayerSettings at the time of the trace
        self.seconds: float | None = None  # the measured time of a step

    def stage(self, arrays: Sequence[Array], device: str) -> list[Any]:
        """Copies a batch to the step's places on the device; returns its inputs."""
        if self._staged is None:
            self._staged = [
                StagedTensor("batch", array.shape, array.dtype.name, device) for array in arrays
            ]
        elif device != "cpu":
            # The previous step may still be reading these places.
            _core.synchronize(device)
        for staged, array in zip(self._staged, arrays, strict=True):
            staged.write(array)
        return [staged.tensor for staged in self._staged]

    def run(self, inputs: list[Any], steps: int, later: bool = False) -> None:
        """Runs steps; with `later`, they may start together with those of further calls."""
        raise NotImplementedError

    def release_inputs(self) -> None:
        """Releases the data of the last run, so that others may use its memory."""
        raise NotImplementedError

    def _tensors(self) -> list[Any]:
        """Returns the leaves of the last step's result."""
        raise NotImplementedError

    def outputs(self) -> Any:
        """Returns the last step's result as NumPy arrays, which the next run overwrites."""
        return self.pack([tensor.numpy() for tensor in self._tensors()])

    def copies_of_outputs(self, as_tensor: bool = False) -> list[Any]:
        """Returns copies of the leaves of the last step's result, as arrays or tensors."""
        return copies_of(self._tensors(), as_tensor)

    def pack(self, leaves: list[Any]) -> Any:
        """Nests arrays as the step's result."""
        return trees.pack_as(self._outputs, leaves)

    @property
    def has_outputs(self) -> bool:
        return bool(trees.flatten(self._outputs))


class CompiledStep(Step):
    """A program, and the work on the host that goes with it."""

    def __init__(
        self,
        program: Any,
        recording: StepRecording,
        outputs: Any,
        buffers: OutputBuffers | None = None,
    ):
        super().__init__(outputs)
        self.program = program
        self.recording = recording
        # On one of several devices of this process: variables of the first, and this one's. The
        # first device's step also knows that of all.
        self.stand_ins: list[tuple[Any, Any]] = []
        self.of_all: Any = None
        self.buffers = buffers
        self.notes_finite_loss = recording.notes_finite_loss

    def run(self, inputs: list[Any], steps: int, later: bool = False) -> None:
        while steps:
            count = self.recording.prepare(steps)
            self.program.run(inputs, count, later)
            self.recording.run_effects(count)
            steps -= count

    def prepare_alike(self) -> None:
        """Prepares the host for runs of `program` alone, whose steps are all like the next one."""
        self.recording.prepare_alike()

    def release_inputs(self) -> None:
        self.program.release_inputs()

    def _tensors(self) -> list[Any]:
        return list(self.program.outputs())


class AccumulatingStep(CompiledStep):
    """A step of several processes whose updates are not due each time: a program for each case.

    Args:
        calls: the optimizers that gather, in the order of their updates in the step.
        steps: the program of each case, as `DueUpdates` finds them.
    """

    def __init__(self, calls: list[Any], steps: dict[Case, CompiledStep]):
        largest = next(iter(steps.values()))
        super().__init__(largest.program, largest.recording, largest._outputs)
        self._counts = StepCounts(calls)
        self._steps = steps
        self._last: CompiledStep = largest

    def run(self, inputs: list[Any], steps: int, later: bool = False) -> None:
        while steps:
            case, count = self._counts.next_case(steps)
            self._last = self._steps[case]
            self._last.run(inputs, count, later)
            self._counts.took(count)
            steps -= count

    def release_inputs(self) -> None:
        for step in self._steps.values():
            step.release_inputs()

    def _tensors(self) -> list[Any]:
        return self._last._tensors()


def compile_step(
    model: StepMachinery,
    kind: str,
    source: BatchSource,
    state: StepState,
    allocates: bool = True,
) -> CompiledStep:
    """Traces `model`'s step of this kind for batches from `source` and compiles it.

    Without `allocates` its first run allocates the memory of intermediate results, and of the cases
    of an `AccumulatingStep` there is the largest only.
    """
    updates = DueUpdates()
    step = _compile_case(model, kind, source, state, allocates, updates)
    if not updates.calls or not allocates:
        return step
    steps = {updates.case: step}
    for other in updates.other_cases():
        step = _compile_case(model, kind, source, state, allocates, other)
        if other.calls != updates.calls:
            raise RuntimeError(
                f"{type(model).__name__}.{kind}_step was recorded twice, and updated weights "
                f"{len(updates.calls)} times and then {len(other.calls)} times. With "
                "gradient_accumulation_steps a step of several processes is recorded for each "
                "case, and has to apply the same optimizers each time."
            )
        steps[other.case] = step
    return AccumulatingStep(updates.calls, steps)


def _compile_case(
    model: StepMachinery,
    kind: str,
    source: BatchSource,
    state: StepState,
    allocates: bool,
    updates: DueUpdates,
) -> CompiledStep:
    """Traces and compiles a step in which these updates are due."""
    recording = StepRecording(results_on_device=model._returns_own_logs(kind))
    replica = replicas.local_replica()
    # What a step makes is on the first device, whichever of several it is recorded for.
    device = state.device if replica is None else replica.group.devices[0]
    if replica is None and replicas.active() is not None:
        recording.due_updates = updates
    with (
        on_device(device),
        Trace(device) as trace,
        record_step(recording),
        replicas.sharing(source.share),
    ):
        recording.trace = trace
        with tracing.scope("data"):
            batch = _gather_batch(trace, source, state)
        step = {TRAIN: model.train_step, TEST: model.test_step, PREDICT: model.predict_step}[kind]
        with PythonState(model) as before, keeping_metrics(model, source.share):
            results = checked_results(model, kind, step(batch))
        before.warn_of_changes(state.warned_of, f"{kind}_step")
        if source.counts:
            with tracing.scope("data"):
                counter = trace.graph.read(state.step.core)
                one = trace.graph.full([], "int64", 1)
                trace.graph.assign(state.step.core, dispatch.apply_one("add", [counter, one]))
        leaves = [dispatch.convert(leaf) for leaf in trees.flatten(results)]
        buffers = None
        if source.collects:
            buffers = buffers_for(leaves, source.batch_size, source.collects, state.device)
        if buffers is not None:
            with tracing.scope("outputs"):
                buffers.put(trace, leaves)
    model._clear_losses()  # these are values of a trace that has ended
    recording.trace = recording.due_updates = None
    stand_ins: list[tuple[Any, Any]] = []
    if replica is not None:
        own = [state.step.core, *([] if buffers is None else buffers.variables)]
        stand_ins = replica.stand_ins(trace.graph, own, model._all_metrics())
    program = _core.Program.compile(
        trace.graph,
        leaves,
        state.device,
        allow_tf32=config.tf32(),
        repeats=source.counts,
        autotune=config.autotune(),
        arena=state.arena,
        allocates=allocates,
        stand_ins=stand_ins,
    )
    step = CompiledStep(program, recording, results_structure(results), buffers)
    step.stand_ins = stand_ins
    return step


@contextlib.contextmanager
def keeping_metrics(model: Any, share: Share | None) -> Iterator[None]:
    """A block that leaves metrics as they are where the step's samples are not its own.

    Means of losses count: what layers add to the loss belongs to all processes.
    """
    if share is None or not share.is_empty:
        yield
        return
    losses = model._loss_metrics()
    kept = [m for m in model._all_metrics() if all(m is not loss for loss in losses)]
    variables = [variable for metric in kept for variable in metric._unsettled()]
    values = [
        value.copy() if isinstance(value, _core.Tensor) else value
        for value in (variable.value for variable in variables)
    ]
    yield
    for variable, value in zip(variables, values, strict=True):
        variable.assign(value)


def checked_results(model: Any, kind: str, results: Any) -> Any:
    """Checks that a step returned something."""
    if results is None:
        example = "the outputs" if kind == PREDICT else "logs, such as self.get_metrics_result()"
        raise TypeError(
            f"{type(model).__name__}.{kind}_step returned None. It must return {example}."
        )
    return results


def results_structure(results: Any) -> Any:
    """Returns the form of a step's result without its values, which must not outlive the trace."""
    return trees.map_structure(lambda _: 0, results)


def _gather_batch(trace: Trace, source: BatchSource, state: StepState) -> Any:
    inputs = [
        trace.graph.input(f"data_{place}", list(shape), dtype)
        for place, (shape, dtype) in enumerate(source.specs)
    ]
    if source.rows is not None:
        order = trace.graph.input("order", [source.rows], "int32")
        if source.counts:
            step = trace.graph.read(state.step.core)
        else:
            step = trace.graph.full([], "int64", 0)
        attributes = {"batch_size": source.batch_size}
        inputs = [
            dispatch.apply_one("take_batch", [array, order, step], attributes) for array in inputs
        ]
    return trees.map_structure(
        lambda place: None if place is None else inputs[place], source.structure
    )
