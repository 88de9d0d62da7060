"""Batches for compiled steps from sources that give batches one by one."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

from kerascnn.distribution import replicas
from kerascnn.distribution.replicas import Share
from kerascnn.tracebacks import warn
from kerascnn.training import random_places
from kerascnn.training.batch_forms import BatchForm, form_of, look_at
from kerascnn.training.data import ArrayData
from kerascnn.training.device_arrays import Array
from kerascnn.training.routes import make_route
from kerascnn.training.shares import OwnBatches, own_part, rows_to_compute
from kerascnn.training.steps import PREDICT, Step, describe_source
from kerascnn.training.streams import BatchStream

if TYPE_CHECKING:
    from kerascnn.training.machinery import StepMachinery

# So many signatures have their route at hand, without asking the model: whole and last batches, and
# others.
_MAX_ROUTES = 4


class BatchFeed:
    """The batches of one stream for one kind of step; has the methods of `Feed`.

    A batch of a new shape or dtype is checked in full and makes the model trace and compile its
    step once more; those that look like it take a short way. See `routes.py` for how they get to
    the device.

    Args:
        model: the model.
        kind: `"train"`, `"test"` or `"predict"`.
        stream: the batches.

    Raises:
        ValueError: where the model is not built yet and there is no batch to build it with.
    """

    # The time of a step depends on the source, which differs in each call.
    step_seconds: float | None = None
    # Whether `position` will be asked for. Noting where each pass begins takes a while.
    keeps_places = False

    def __init__(self, model: StepMachinery, kind: str, stream: BatchStream):
        self._model = model
        self._kind = kind
        self._stream = stream
        # A user's step may take labelled and unlabelled samples side by side.
        self._one_length = not model._has_own_step(kind)
        self._routes: dict[Any, Any] = {}  # by the signature of the step
        self._forms: dict[Any, BatchForm] = {}  # by the look of a batch; they lead to routes
        self._route: Any = None  # the route of the last batch
        self._iterator: Iterator[Any] | None = None
        self._next: Any = None
        self._has_next = False
        self._seen = 0  # batches of the current pass
        self._allowed = 0.0  # batches that the epoch may still have
        self._asked: int | None = None
        self._before_pass: dict[str, Any] = {}  # where generators and the source were
        # Where several processes train, each takes its share of each batch, or brings its own.
        self._processes = None if kind == PREDICT else replicas.active()
        self._gives_sizes = False  # true if the pass makes the own rows of each batch only
        self._meeting: Any = None  # where processes with batches of their own agree on each
        self.num_batches = stream.num_batches
        if self.num_batches == 0:
            raise ValueError(f"There are no batches: the {stream.name} has length 0.")
        if self._processes is not None and not self._processes.shares_sources:
            self._meeting = OwnBatches(self._processes, stream.name)
        if model._is_built(kind):
            self._state = model._prepare(kind, None)
        else:
            self._build()

    def _build(self) -> None:
        """Makes what the model lacks from the first batch; then the pass starts again."""
        if self._kind != PREDICT:
            self._stream.on_epoch_begin()
        self._iterator = self._stream.begin()
        try:
            data = self._stream.read(next(self._iterator), self._one_length)
        except StopIteration:
            raise ValueError(f"There are no batches: the {self._stream.name} is empty.") from None
        finally:
            self.close()
        self._state = self._model._prepare(self._kind, data)
        if self._meeting is not None:
            self._route_for(data, self._meeting.expected_share(data))
        else:
            self._route_for(*own_part(self._kind, data))

    @property
    def output_buffers(self) -> None:
        """Returns None: batches of a stream are predicted one by one."""
        return None

    def form_for_peers(self) -> str:
        """Returns what is the same in all processes that train on batches of such sources."""
        return self._stream.name

    def length_for_peers(self, steps: int | None) -> int | None:
        """Returns how many batches an epoch has, as far as that is the same in all processes."""
        return steps or (self.num_batches if self._meeting is None else None)

    # One epoch ---------------------------------------------------------------------------------

    def reset(self) -> None:
        """Makes the next epoch begin a new pass."""
        self.close()
        self.num_batches = self._stream.num_batches
        self._seen = 0
        self._stream.on_epoch_end()

    def begin_epoch(self, steps: int | None) -> float:
        """Begins an epoch of a whole pass or of `steps` batches; returns the most it can have."""
        self._stream.on_epoch_begin()
        self._asked = steps
        if self._iterator is None or steps is None:
            self._begin_pass()
        self._allowed = steps or self.num_batches or math.inf
        if self._meeting is not None:
            self._meeting.begin_epoch()
            return steps or math.inf  # others may have more batches
        return self._allowed

    def _begin_pass(self, first: int = 0) -> None:
        self.close()
        if self.keeps_places:
            self._before_pass = self._places()
        own = None
        if self._processes is not None and self._meeting is None:
            own = self._stream.begin_own(partial(rows_to_compute, self._processes), first)
        self._gives_sizes = own is not None
        self._iterator = self._stream.begin(first) if own is None else own
        self._seen = first

    def _places(self) -> dict[str, Any]:
        return {"random": random_places.take(), "orders": self._stream.orders()}

    @property
    def position(self) -> dict[str, Any]:
        """Where the data is: the batches of a pass so far, and what it began with.

        `go_to` brings another feed of the same source there.
        """
        is_in_pass = self._iterator is not None
        return {
            "seen": self._seen if is_in_pass else None,
            "num_batches": self.num_batches,
            "before_pass": self._before_pass if is_in_pass else self._places(),
            "source": self._stream.state_dict(),
        }

    def go_to(self, position: dict[str, Any], batches: int) -> None:
        """Goes where another feed of the same source was: batches of its pass are left out.

        Args:
            position: what its `position` was.
            batches: how many batches of the epoch were taken.
        """
        self.close()
        if self._stream.num_batches is None:
            self.num_batches = position["num_batches"]
        random_places.restore(position["before_pass"]["random"])
        self._stream.restore_orders(position["before_pass"]["orders"])
        self._stream.load_state_dict(position["source"])
        if position["seen"] is not None:
            self._begin_pass(int(position["seen"]))
        self._allowed = (self._asked or self.num_batches or math.inf) - batches

    def has_next(self) -> bool:
        """Tells whether the epoch has another batch, and fetches it."""
        if self._has_next:
            return True
        if self._meeting is not None:
            self._has_next = self._meeting.has_next(self._read_next)
            return self._has_next
        return self._fetch()

    def _read_next(self) -> ArrayData | None:
        """Returns the next batch of this process, read and checked, or None at the end."""
        if not self._fetch():
            return None
        batch, self._next = self._next, None
        return self._checked(batch)

    def _fetch(self) -> bool:
        if self._allowed <= 0 or self._iterator is None:
            return False
        if self.num_batches and self._seen >= self.num_batches:
            if self._asked:
                self._warn()
            self._allowed = 0
            return False
        try:
            self._next = next(self._iterator)
        except StopIteration:
            self._end_of_data()
            return False
        self._has_next = True
        self._seen += 1
        self._allowed -= 1
        return True

    def _end_of_data(self) -> None:
        """Handles the end of the source, which is expected once if its length was unknown."""
        expected = self.num_batches is None and self._asked is None
        if self.num_batches is None:
            self.num_batches = self._seen
        if not expected:
            self._warn()
        self.close()
        self._allowed = 0
        self._stream.on_epoch_end()

    def _warn(self) -> None:
        warn(
            f"Your input ran out of data; the epoch ends early, after {self._seen} batches of the "
            f"{self._stream.name}. It must give at least `steps_per_epoch * epochs` batches, or "
            "be something that can be iterated over again."
        )

    def end_epoch(self) -> None:
        """Runs after the last batch of an epoch that was not stopped."""
        if self._iterator is None:
            return
        if self.num_batches and self._seen >= self.num_batches:
            # As in Keras, this happens here rather than when it is needed: a DataLoader draws its
            # seed now.
            self._begin_pass()
        self._stream.on_epoch_end()

    def close(self) -> None:
        """Ends the pass, and with it the workers that prepare its batches."""
        iterator, self._iterator = self._iterator, None
        self._next, self._has_next = None, False
        # A generator that the user passed stays open, since its owner may continue with it.
        close = getattr(iterator, "close", None)
        if close is not None and not self._stream.runs_once:
            close()

    # Steps -------------------------------------------------------------------------------------

    def run(self, limit: int, later: bool = False) -> tuple[Step | None, int]:
        """Up to `limit` steps; the program of the last one, and how many there were.

        They are enqueued with their data, with `later` or without. Where the source fails, the
        steps of the batches before are enqueued all the same.
        """
        count = 0
        try:
            while count < limit and self.has_next():
                self._put()
                count += 1
        finally:
            if self._route is not None:
                self._route.flush()
        return (self._route.step if count and self._route is not None else None), count

    def plan_ahead(self) -> None:
        """Does nothing: the next batch is fetched only when it is needed."""

    def _put(self) -> None:
        """Passes the fetched batch on to the route for its form."""
        batch, self._next, self._has_next = self._next, None, False
        seen = form = None
        if self._processes is None and self._stream.class_weight is None:
            try:
                seen = look_at(self._stream.parts_of(batch))
            except (ValueError, TypeError) as error:
                raise self._named(error) from error
            form = None if seen is None else self._forms.get(seen[1])
        arrays: Any = None if seen is None or form is None else form.arrays_of(seen[0])
        if form is None or arrays is None:
            route, arrays = self._read(batch, seen)
        else:
            route = form.route
        if route is not self._route:
            if self._route is not None:
                self._route.flush()
            self._route = route
        route.put(arrays)

    def _read(self, batch: Any, seen: Any) -> tuple[Any, list[Array]]:
        """Checks a batch completely; returns its route and its arrays."""
        if self._meeting is not None:
            data, share = self._meeting.take()
        elif self._gives_sizes and self._processes is not None:
            rows, total = batch
            data, share = self._checked(rows), self._processes.share(total)
        else:
            data, share = own_part(self._kind, self._checked(batch))
        route = self._route_for(data, share)
        if seen is not None and seen[1] not in self._forms:
            limits = self._model._label_limits(data) if self._kind != PREDICT else {}
            form = form_of(seen[0], data, limits, route)
            if form is not None:
                self._forms[seen[1]] = form
        return route, data.unique_arrays()

    def _checked(self, batch: Any) -> ArrayData:
        try:
            data = self._stream.read(batch, self._one_length)
            if self._kind != PREDICT:
                self._model._check_labels(data)
        except (ValueError, TypeError) as error:
            raise self._named(error) from error
        return data

    def _named(self, error: Exception) -> Exception:
        """Names the batch in an error about it."""
        kind = TypeError if isinstance(error, TypeError) else ValueError
        return kind(f"Batch {self._seen - 1} of the {self._stream.name}: {error}")

    def _route_for(self, data: ArrayData, share: Share | None) -> Any:
        data.settle(self._state.device)
        source = describe_source(
            data.packed, data.unique_arrays(), data.num_samples, None, counts=False, share=share
        )
        key = source.key, data.is_on_device
        route = self._routes.get(key)
        if route is None:
            # Waiting batches go first, since making a step takes time, and memory if the ring
            # grows.
            self._state.flush()
            route = make_route(self._model, self._kind, source, self._state, data.is_on_device)
            if len(self._routes) >= _MAX_ROUTES:
                oldest = self._routes.pop(next(iter(self._routes)))
                self._forms = {k: f for k, f in self._forms.items() if f.route is not oldest}
            self._routes[key] = route
            if self._kind != PREDICT:
                self._model._check_labels(data)
        return route
