"""Batches for compiled steps: data on the device, the order of each pass, a short last batch."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from kerascnn.distribution import replicas
from kerascnn.tracebacks import warn
from kerascnn.training import memory
from kerascnn.training.chunks import Chunks
from kerascnn.training.data import ArrayData
from kerascnn.training.device_arrays import tensor_of
from kerascnn.training.device_state import StagedTensor, StepState
from kerascnn.training.output_buffers import OutputBuffers
from kerascnn.training.pieces import Layout, Pieces, Places
from kerascnn.training.shares import cut, form_of_arrays
from kerascnn.training.steps import PREDICT, BatchSource, Step, describe_source

if TYPE_CHECKING:
    from kerascnn.training.machinery import StepMachinery


_MAX_FREE_PLACES = 2


class Segment(NamedTuple):
    """Steps of one program over data that is on the device after `load`."""

    step: Step
    inputs: list[Any]
    num_steps: int
    load: Callable[[], None]
    # This is the state's counter at the first step, or None for a single step, which does not read
    # it.
    start: int | None
    release: Callable[[], None] = lambda: None  # called when its steps are enqueued


class Feed:
    """The batches of one data set for one kind of step.

    Making a feed traces and compiles its steps, for whole batches and for the last, shorter one;
    only then does data go to the device: all at once where it fits, else in chunks of batches, each
    while the device works on the one before.

    Args:
        model: the model.
        kind: `"train"`, `"test"` or `"predict"`.
        data: the arrays.
        batch_size: samples per step, of all processes together where several train.
        state: the counters that steps read and write.
        generator: draws the order of each pass; `None` keeps the order of the data.
        once: whether there will be one pass, so that nothing has to stay on the device.
        pieces: the data, where it is on its way already.
    """

    # What its places are drawn of is a generator's state, which is always known.
    keeps_places = True

    def __init__(
        self,
        model: StepMachinery,
        kind: str,
        data: ArrayData,
        batch_size: int,
        state: StepState,
        generator: np.random.Generator | None = None,
        once: bool = False,
        pieces: Pieces | None = None,
    ):
        data.settle(state.device)
        self._pass = cut(kind, data.num_samples, batch_size)
        layout = pieces.layout if pieces else layout_of_pieces(data, batch_size, state.device, once)
        # Asking for the free memory takes longer than many predictions.
        fits = layout is not None or memory.fits_on_device(data.host_bytes, state.device)
        if data.is_on_device and not fits:
            data.settle("cpu")  # the data is streamed with what cannot be on the device
        self.circumstances: Any = None  # the circumstances under which it may be kept
        self._data: Any = data
        self._arrays = data.unique_arrays()
        self._batch_size = batch_size = self._pass.batch_size
        self._state = state
        self._name = object()  # names it as a reader of the state's counter
        self._generator = generator
        self._next_order: np.ndarray | None = None
        self._before_next: dict[str, Any] = {}  # the generator's state when that was drawn
        self._before_pass: dict[str, Any] = {}  # the same for the order of the current pass
        self._full, self._rest = self._pass.full, self._pass.rest
        self.num_batches = self._pass.num_batches
        device = state.device
        self._layout = layout
        self._pieces = pieces
        self.is_resident = layout is None and fits
        if layout is not None:
            self._chunk = layout.half
        elif self.is_resident:
            self._chunk = self._full
        else:
            per_batch = max(1, sum(a[:1].nbytes for a in self._arrays) * batch_size)
            self._chunk = memory.chunk_batches(per_batch, max(1, self._full), device)
        self._compile(model, kind)
        self._upload()
        self._segments: Iterator[Segment] = iter(())
        self._segment: Segment | None = None
        self._ahead: Segment | None = None  # the next segment, if it was loaded ahead of time
        self._done = 0  # steps of the current segment
        self._left = 0  # steps left in the current pass

    def _compile(self, model: StepMachinery, kind: str) -> None:
        self._collects = kind == PREDICT
        rows = self._chunk * self._batch_size * (1 if self.is_resident else 2)
        self._main: Step | None = None
        self._tail: Step | None = None
        if self._full:
            self._main = model._compiled_step(
                kind, self._source(self._batch_size, rows, True), self._state
            )
        if self._rest:
            self._tail = model._compiled_step(
                kind, self._source(self._rest, self._rest, False), self._state
            )

    def _source(self, batch_size: int, rows: int, counts: bool) -> BatchSource:
        length = None if self.is_resident else 2 * self._chunk * self._batch_size
        # Lengths are rounded up to a power of two, so that other data uses the same program.
        collects = 1 << (self._full - 1).bit_length() if counts and self._collects else 0
        share = self._pass.share if counts else self._pass.rest_share
        return describe_source(
            self._data.packed, self._arrays, batch_size, rows, counts, length, collects, share
        )

    @property
    def steps(self) -> list[Any]:
        """Returns the steps for whole batches and for the last, shorter one, as far as needed."""
        return [step for step in (self._main, self._tail) if step is not None]

    @property
    def output_buffers(self) -> OutputBuffers | None:
        """Returns the buffers for outputs of whole batches, if the steps use some."""
        return None if self._main is None else self._main.buffers

    @property
    def can_begin_again(self) -> bool:
        """Tells whether it can take other data of the same form; chunks, which are rare, cannot."""
        return self.is_resident or self._layout is not None

    def begin_again(self, data: ArrayData) -> None:
        """Starts again with other data of the same form, after `close`."""
        self._data = data
        self._arrays = data.unique_arrays()
        self._upload()

    def form_for_peers(self) -> str:
        """Returns what is the same in all processes that train on these arrays."""
        return form_of_arrays(self._arrays, self._pass.total)

    def length_for_peers(self, steps: int | None) -> int:
        """Returns how many batches an epoch has, which is the same in all processes."""
        return steps or self.num_batches

    def forget_data(self) -> None:
        """Forgets the arrays, which belong to their owner."""
        self._data = None
        self._arrays = []

    @property
    def _picks_rows(self) -> bool:
        """Tells whether a pass takes other rows than all of them in their order."""
        return self._generator is not None or self._pass.processes is not None

    def _upload(self) -> None:
        state, rows = self._state, self._chunk * self._batch_size
        self._chunks: Chunks | None = None
        # These are the rows of each pass, if it picks some and all data is on the device.
        self._orders: list[StagedTensor] = []
        if not self.is_resident:
            self._order = state.in_order(0, 2 * rows)
        if self._layout is not None:
            self._upload_pieces(self._layout)
            return
        if not self.is_resident:
            self._chunks = Chunks(self._arrays, rows, state.device)
            self._tensors = self._chunks.tensors
            # The last batch comes after the last whole chunk, into the other place.
            place = -(-self._full // self._chunk) % 2
            self._tail_order = state.in_order(place * rows, self._rest)
            return
        self._tensors = [tensor_of(array, state.device) for array in self._arrays]
        if not self._picks_rows:
            self._order = state.in_order(0, rows)
            self._tail_order = state.in_order(rows, self._rest)
            return
        self._orders = [
            StagedTensor("order", (count,), "int32", state.device) for count in (rows, self._rest)
        ]
        self._order, self._tail_order = (order.tensor for order in self._orders)

    def _upload_pieces(self, layout: Layout) -> None:
        if self._pieces is None:
            places = self._state.free_places.pop(Places.key_for(self._arrays, layout), None)
            if places is None:
                places = Places(self._arrays, layout, self._state.device)
            self._pieces = Pieces(self._data, layout, places)
        self._tensors = self._pieces.places.tensors
        place = self._full % layout.places
        self._tail_order = self._state.in_order(place * self._batch_size, self._rest)

    @property
    def step_seconds(self) -> float | None:
        """Returns the time of a step of a whole batch if it is known; later runs use it too."""
        return None if self._main is None else self._main.seconds

    @step_seconds.setter
    def step_seconds(self, value: float | None) -> None:
        if self._main is not None:
            self._main.seconds = value

    # One pass over the data --------------------------------------------------------------------

    def reset(self) -> None:
        """Makes the next epoch begin a new pass."""
        self._left = 0

    def begin_epoch(self, steps: int | None) -> float:
        """Begins an epoch of a whole pass, or of `steps` batches from where the last one ended.

        Returns the most batches that it can have.
        """
        if self.begin_own_epoch(steps) < (steps or 0):
            warn(
                f"The data has only {self._left} of the {steps} batches that were asked for: the "
                "epoch ends early."
            )
        return steps or self.num_batches

    def begin_own_epoch(self, steps: int | None) -> int:
        """Does the same without a warning; returns how many batches the pass has left."""
        if steps is None or self._left == 0:
            self._begin_pass()
        return self._left

    def has_next(self) -> bool:
        """Tells whether the pass has another batch."""
        return self._left > 0

    def end_epoch(self) -> None:
        """Does nothing: the next epoch knows where this one ended."""

    def close(self) -> None:
        """Ends the pass. The data on the device then goes with the feed, at once.

        Segments know the feed that they are of: without this the memory would wait for Python's
        search for such circles, and the next feed be at another address, for which a GPU has to
        capture its graph anew.
        """
        self._segments = iter(())
        self._segment = self._ahead = None
        self._left = 0
        for step in (self._main, self._tail):
            if step is not None:
                step.release_inputs()
        self._tensors = []
        self._orders = []
        self._order = self._tail_order = None
        if self._pieces is not None:
            self._pieces.close()
            # There is one for each kind of data that alternates; the next feed takes them.
            free, places = self._state.free_places, self._pieces.places
            free[places.key] = places
            if len(free) > _MAX_FREE_PLACES:
                free.pop(next(iter(free)))
            self._pieces = None

    def _begin_pass(self) -> None:
        """Makes the next step the first of a pass in a new order."""
        order = self._pass.own_rows(self._take_order(), self._data.num_samples)
        if self._pieces is not None:
            self._segments = self._segments_of_pieces(self._pieces)
        elif self.is_resident:
            self._segments = self._resident_segments(order)
        else:
            self._segments = self._streamed_segments(order)
        self._segment = self._ahead = None
        self._left = self.num_batches

    def plan_ahead(self) -> None:
        """Loads the next chunk and draws the next order while a GPU runs steps."""
        if self._chunks is not None and self._ahead is None:
            self._ahead = self._load_next()
        if self._generator is not None and self._next_order is None:
            self._before_next = dict(self._generator.bit_generator.state)
            self._next_order = self._draw_order(self._generator)

    def _take_order(self) -> np.ndarray | None:
        if self._generator is None:
            return None
        order, self._next_order = self._next_order, None
        if order is None:
            self._before_pass = dict(self._generator.bit_generator.state)
            return self._draw_order(self._generator)
        self._before_pass = self._before_next
        return order

    def _draw_order(self, generator: np.random.Generator) -> np.ndarray:
        return generator.permutation(self._data.num_samples).astype(np.int32)

    # Where it is -------------------------------------------------------------------------------

    @property
    def position(self) -> dict[str, Any]:
        """Where the data is: batches left in a pass, and what its order (or the next) is drawn of.

        `go_to` brings another feed of the same data there.
        """
        if self._left:
            order = self._before_pass
        elif self._next_order is not None:
            order = self._before_next
        else:
            order = {} if self._generator is None else dict(self._generator.bit_generator.state)
        return {"left": self._left, "num_batches": self.num_batches, "order": order}

    def go_to(self, position: dict[str, Any], batches: int) -> None:
        """Goes where another feed of the same data was.

        Args:
            position: what its `position` was.
            batches: is not used: how many batches of the epoch were taken.

        Raises:
            ValueError: for data of another length, or shuffled where they were not.
        """
        left, num_batches = int(position["left"]), int(position["num_batches"])
        if bool(position["order"]) != (self._generator is not None):
            raise ValueError("`shuffle` was another in the training that was interrupted")
        if (left and num_batches != self.num_batches) or not 0 <= left <= num_batches:
            raise ValueError(
                f"the training data had {num_batches} batches, and now have {self.num_batches}"
            )
        if self._generator is not None:
            self._generator.bit_generator.state = position["order"]
        self._next_order = None
        self._segment = self._ahead = None
        self._left = 0
        if left:
            self._begin_pass()
            self._skip(num_batches - left)

    def _skip(self, batches: int) -> None:
        """Leaves out the first batches of a pass that has begun."""
        self._left -= batches
        while batches:
            segment = next(self._segments)
            if batches < segment.num_steps:
                segment.load()
                self._segment, self._done = segment, batches
                return
            batches -= segment.num_steps

    # Steps -------------------------------------------------------------------------------------

    def run(self, limit: int, later: bool = False) -> tuple[Step, int]:
        """Up to `limit` steps with one program; which program, and how many there were.

        With `later` they may be started together with those of further calls.
        """
        segment, count = self.begin_run(limit)
        segment.step.run(segment.inputs, count, later)
        self.end_run(segment, count)
        return segment.step, count

    def begin_run(self, limit: int) -> tuple[Segment, int]:
        """Prepares up to `limit` steps; of which segment they are, and how many."""
        if self._segment is None:
            self._segment, self._ahead = self._ahead or self._load_next(), None
            assert self._segment is not None
            self._done = 0
        segment = self._segment
        if segment.start is not None:
            self._state.depart(self._name, segment.start + self._done)
        return segment, min(limit, segment.num_steps - self._done)

    def end_run(self, segment: Segment, count: int) -> None:
        """Notes that so many steps of the segment were enqueued."""
        self._done += count
        if segment.start is not None:
            self._state.arrive(self._name, segment.start + self._done)
        self._left -= count
        if self._done == segment.num_steps:
            segment.release()
            self._segment = None

    def _load_next(self) -> Segment | None:
        segment = next(self._segments, None)
        if segment is not None:
            segment.load()
        return segment

    def _resident_segments(self, order: np.ndarray | None) -> Iterator[Segment]:
        split = self._full * self._batch_size

        def load_main() -> None:
            if order is not None:
                self._orders[0].write(order[:split])

        def load_tail() -> None:
            if order is not None:
                self._orders[1].write(order[split:])

        if self._main is not None:
            inputs = [*self._tensors, self._order]
            yield Segment(self._main, inputs, self._full, load_main, start=0)
        if self._tail is not None:
            inputs = [*self._tensors, self._tail_order]
            yield Segment(self._tail, inputs, 1, load_tail, start=None)

    def _streamed_segments(self, order: np.ndarray | None) -> Iterator[Segment]:
        chunks, size = self._chunks, self._batch_size
        assert chunks is not None
        for place in range(2):
            chunks.release(place)  # the previous pass may have stopped in the middle

        def segment(step: Step, index: int, first: int, count: int) -> Segment:
            start, stop = first * size, min((first + count) * size, self._pass.num_rows)
            which = slice(start, stop) if order is None else order[start:stop]
            is_tail = step is self._tail
            return Segment(
                step,
                [*self._tensors, self._tail_order if is_tail else self._order],
                count,
                lambda: chunks.load(index % 2, self._arrays, which),
                None if is_tail else index % 2 * self._chunk,
                lambda: chunks.release(index % 2),
            )

        index = 0
        for first in range(0, self._full, self._chunk):
            assert self._main is not None
            yield segment(self._main, index, first, min(self._chunk, self._full - first))
            index += 1
        if self._tail is not None:
            yield segment(self._tail, index, self._full, 1)

    def _segments_of_pieces(self, pieces: Pieces) -> Iterator[Segment]:
        main, tail = [*self._tensors, self._order], [*self._tensors, self._tail_order]
        for piece in pieces:
            if piece.length:
                assert self._main is not None
                step, inputs, start = self._main, main, piece.place
            else:
                assert self._tail is not None
                step, inputs, start = self._tail, tail, None
            yield Segment(step, inputs, piece.length or 1, pieces.arrive, start, pieces.release)


def layout_of_pieces(data: ArrayData, batch_size: int, device: str, once: bool) -> Layout | None:
    """Returns how data goes to the device in pieces, or `None` if it does not."""
    if not once or data.is_on_device or replicas.active() is not None:
        return None
    per_batch = max(1, sum(a[:1].nbytes for a in data.unique_arrays()) * batch_size)
    if not memory.worth_pieces(data.host_bytes, per_batch, device):
        return None
    return Layout.of(data, batch_size)


def pieces_on_their_way(data: ArrayData, batch_size: int, state: StepState) -> Pieces | None:
    """Starts copying data that is used once, if an earlier feed left places for it."""
    layout = layout_of_pieces(data, batch_size, state.device, True)
    if layout is None:
        return None
    places = state.free_places.pop(Places.key_for(data.unique_arrays(), layout), None)
    return None if places is None else Pieces(data, layout, places)
