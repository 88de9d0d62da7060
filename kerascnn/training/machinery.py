"""How compile, fit and similar methods reach compiled steps: devices, caches, feeds, logs."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from kerascnn import _core, config
from kerascnn.callbacks.callback_list import CallbackList
from kerascnn.device import current as current_device
from kerascnn.device import device as on_device
from kerascnn.distribution import replicas
from kerascnn.training import memory
from kerascnn.training.arguments import Running, standardize_verbosity
from kerascnn.training.batch_feed import BatchFeed
from kerascnn.training.checks import check_labels, label_limits
from kerascnn.training.compile_utils import CompileLoss, CompileMetrics
from kerascnn.training.data import ArrayData
from kerascnn.training.device_state import StepState, device_of, move_to
from kerascnn.training.eager import EagerStep
from kerascnn.training.feed import Feed, pieces_on_their_way
from kerascnn.training.kept_feeds import OF_RUNS, KeptFeeds, form_of
from kerascnn.training.layer_settings import LayerSettings
from kerascnn.training.logs import flat_logs, host_results
from kerascnn.training.loops import step_logs
from kerascnn.training.shares import own_part
from kerascnn.training.steps import (
    PREDICT,
    TEST,
    TRAIN,
    BatchSource,
    Step,
    compile_step,
    describe_source,
)
from kerascnn.training.streams import BatchStream

# A model keeps so many programs, each with its memory. A fit has four (whole and last batches,
# training and validation), and a second batch size should not push them out.
_MAX_PROGRAMS = 16
_WHAT = {TRAIN: "training", TEST: "evaluation", PREDICT: "prediction"}


class StepMachinery:
    """The base of `Trainer`: moves state to the device, compiles each step once, feeds steps."""

    optimizer: Any = None
    _training: Any = None  # the Training that runs
    stop_training = False
    stop_evaluating = False
    stop_predicting = False
    compiled = False
    run_eagerly = False
    _compile_loss: CompileLoss | None = None
    _compile_metrics: CompileMetrics | None = None
    _loss_tracker: Any = None
    _state: Any = None  # a StepState, once a step was compiled
    _programs: Any = None  # compiled steps by signature
    _metrics_found: list | None = None
    _keeps_metrics = False
    _set_in_calls: frozenset[str] = frozenset()  # attributes of layers that tracing changes

    if TYPE_CHECKING:
        # The layer that this is mixed into has these attributes.
        def __getattr__(self, name: str) -> Any: ...

        def __call__(self, *args: Any, **kwargs: Any) -> Any: ...

    def _host_preparation(self) -> Callable[[Any], Any] | None:
        """Returns what the host does with inputs before a step gets them; see `host_stage`."""
        return None

    def _host_end(self) -> Any:
        """Returns what `predict` does on the host after its steps, or None; see `host_stage`."""
        return None

    def _prepared(self, x: Any) -> Any:
        prepare = self._host_preparation()
        return x if prepare is None else prepare(x)

    def _found_metrics(self, find: Callable[[], list]) -> list:
        """Returns what `find` finds; while steps run, it searches the layers only once."""
        if self._metrics_found is not None:
            return list(self._metrics_found)
        found = find()
        if self._keeps_metrics:
            self._metrics_found = list(found)
        return found

    def _forget_metrics(self) -> None:
        self._metrics_found = None

    def _forget_steps(self) -> None:
        """Gives up all compiled steps, and the weights that they hold."""
        if self._programs is not None:
            self._programs = {}
        if self._state is not None:
            self._state.parts = None
            self._state.kept_feeds = KeptFeeds()

    def _all_metrics(self) -> list:
        """All metrics, those of `compile` one by one."""
        return [
            metric
            for item in self.metrics
            for metric in (item.metrics if isinstance(item, CompileMetrics) else [item])
        ]

    def _loss_metrics(self) -> list:
        """Returns the means of the losses: of the whole one, and of each output's."""
        of_outputs = [] if self._compile_loss is None else self._compile_loss.metrics
        return [self._loss_tracker, *of_outputs]

    def _metric_logs(self, of_all: bool = True) -> dict[str, Any]:
        """Returns the results of all metrics, with `of_all` those of all processes."""
        several = replicas.active() or replicas.local_group()
        with replicas.whole_metrics(self._all_metrics() if of_all and several else []):
            return host_results(self.metrics)

    def _device(self) -> str:
        return device_of(self.weights, current_device())

    def _is_built(self, kind: str) -> bool:
        """Tells whether weights, losses and metrics can be made without data."""
        parts = [] if kind == PREDICT else [self._compile_loss, self._compile_metrics]
        return all(part.built for part in parts if part is not None) and all(
            layer.built for layer in self._flatten_layers()
        )

    def _prepare(self, kind: str, data: ArrayData | None) -> StepState:
        """Returns the state for steps on the weights' device, and moves all other state there."""
        if self._state is not None:
            self._state.flush()  # if a source calls this, its batches so far go first
        # Weights come first, since a step's signature names them. A model with its own train_step
        # and no call builds what it needs while it is traced.
        parts = self._find_parts()
        is_built = all(layer.built for layer in parts.layers)
        if data is not None and not is_built and not self.run_eagerly:
            # A user's step may call layers on something other than its data.
            expected = Exception if self._has_own_step(kind) else NotImplementedError
            with contextlib.suppress(expected), on_device(self._device()):
                self.build_on(data.x)
            self._forget_metrics()
            parts = self._find_parts()
        device = device_of(parts.weights, current_device())
        stale = self._programs is None
        if self._state is None or self._state.device != device:
            self._state = StepState(device)
            self._state.kept_feeds = KeptFeeds()
            stale = True
        self._state.parts = parts
        followers = []
        if kind != PREDICT:
            followers = [
                variable for metric in self._all_metrics() for variable in metric._unsettled()
            ]
        known = {id(variable) for variable in parts.weights}
        followers += [variable for variable in parts.variables if id(variable) not in known]
        if move_to(followers, device) or stale:
            self._programs = {}
        return self._state

    def _compiled_step(self, kind: str, source: BatchSource, state: StepState) -> Step:
        """Returns the step from the cache, or traces and compiles it once for each signature."""
        group = replicas.local_group()
        if group is not None and kind != PREDICT:
            from kerascnn.training.replicated_step import replicated_step

            return replicated_step(self, group, kind, source, state)
        parts = state.parts or self._find_parts()
        variables, layers = parts.variables, parts.layers
        key = (
            kind,
            source.key,
            state.device,
            tuple((id(variable), variable.trainable) for variable in variables),
            tuple(
                (id(layer), layer.trainable, layer.dtype_policy.name, layer._trace_key)
                for layer in layers
            ),
            (config.tf32(), config.floatx(), config.epsilon(), self.run_eagerly),
            self.optimizer.trace_key if kind == TRAIN and self.optimizer is not None else None,
            (replicas.local_replica(), replicas.reduce_dtype()),
        )
        programs = self._programs
        step = programs.pop(key, None)
        if step is None or not step.told.is_unchanged():
            step = self._compile_noting_settings(kind, source, state, layers)
            # A first trace may make some of these.
            self._forget_metrics()
            state.parts = None
            # The step keeps them alive, so that their ids in the key stay valid; a first trace may
            # build more.
            step.owners = (variables, layers)
            replica = replicas.local_replica()
            if len(programs) >= _MAX_PROGRAMS * (1 if replica is None else replica.size):
                programs.pop(next(iter(programs)))
                state.kept_feeds.clear()
        programs[key] = step
        return step

    def _compile_noting_settings(
        self, kind: str, source: BatchSource, state: StepState, layers: list
    ) -> Step:
        """Makes a step that knows the layers' settings when it was traced."""
        before = LayerSettings(layers, self._set_by_steps())
        is_first = not all(layer.built for layer in layers)
        step = self._compile_step(kind, source, state)
        if not is_first:
            # A `call` may count its calls: no step depends on what each trace sets anew.
            self._set_in_calls |= before.changed()
        step.told = LayerSettings(self._flatten_layers(), self._set_by_steps())
        return step

    def _set_by_steps(self) -> frozenset[str]:
        """Returns the names of attributes of layers that runs set themselves."""
        return OF_RUNS | self._set_in_calls

    def _compile_step(self, kind: str, source: BatchSource, state: StepState) -> Step:
        if self.run_eagerly:
            return EagerStep(self, kind, source, state)
        try:
            return compile_step(self, kind, source, state)
        except _core.OutOfMemoryError as error:
            failure = error
        # Programs for other batch sizes hold memory that this one may need.
        self._programs.clear()
        state.kept_feeds.clear()
        _core.release_cached(state.device)
        try:
            return compile_step(self, kind, source, state)
        except _core.OutOfMemoryError as error:
            failure = error
        raise memory.explain(
            failure,
            _WHAT[kind],
            source.batch_size,
            state.device,
            lambda size: compile_step(self, kind, source.with_batch_size(size), state, False),
        ) from None

    def _feed(
        self,
        kind: str,
        data: ArrayData | BatchStream,
        batch_size: int,
        generator: np.random.Generator | None = None,
        once: bool = False,
    ) -> Any:
        group = replicas.local_group() if kind != PREDICT else None
        with self._finding_parts_once():
            if isinstance(data, BatchStream):
                return BatchFeed(self, kind, data)
            if group is not None:
                from kerascnn.training.replicated_feed import ReplicatedFeed

                state = self._prepare(kind, data)
                feed: Any = ReplicatedFeed(
                    self, group, kind, data, batch_size, state, generator, once
                )
            elif once:
                feed = self._feed_for_once(kind, data, batch_size)
            else:
                feed = Feed(self, kind, data, batch_size, self._prepare(kind, data), generator)
        if kind != PREDICT:
            self._check_labels(data)
        return feed

    def _feed_for_once(self, kind: str, data: ArrayData, batch_size: int) -> Feed:
        """Returns the feed of an earlier call with new data, or a new feed."""
        before, pieces = self._state, None
        form = form_of(kind, data, batch_size)
        if before is not None:
            feed = None if form is None else before.kept_feeds.take(self, form)
            if feed is not None:
                before.flush()  # if a source calls this, its batches so far go first
                feed.begin_again(data)
                known = feed.circumstances.metrics
                if self._keeps_metrics and self._metrics_found is None and known is not None:
                    self._metrics_found = list(known)
                return feed
            pieces = pieces_on_their_way(data, batch_size, before)
        try:
            state = self._prepare(kind, data)
            if pieces is not None and state is not before:  # the model has moved
                pieces.close()
                pieces = None
            feed = Feed(self, kind, data, batch_size, state, None, True, pieces)
        except BaseException:
            if pieces is not None:
                pieces.close()
            raise
        if form is not None and state.parts is not None:  # otherwise a step was compiled
            state.kept_feeds.note(self, form, feed)
        return feed

    def _check_labels(self, data: ArrayData) -> None:
        self._check_targets(data.y)

    def _check_targets(self, y: Any) -> None:
        loss = self._compile_loss
        if loss is not None and loss.built:
            check_labels(loss, y, loss.output_shapes)

    def _label_limits(self, data: ArrayData) -> dict[int, int | None]:
        loss = self._compile_loss
        shapes = None if loss is None else loss.output_shapes
        return label_limits(loss, data.y, shapes)

    @contextlib.contextmanager
    def _finding_parts_once(self) -> Iterator[None]:
        """A block in which only compiling a step may change the model."""
        try:
            yield
        finally:
            if self._state is not None:
                self._state.parts = None

    def _run_step(self, kind: str, data: ArrayData) -> Step:
        with self._finding_parts_once():
            state = self._prepare(kind, data)
            data, share = own_part(kind, data)
            data.settle(state.device)
            arrays = data.unique_arrays()
            source = describe_source(
                data.structure, arrays, data.num_samples, None, False, share=share
            )
            step = self._compiled_step(kind, source, state)
        if kind != PREDICT:
            self._check_labels(data)
        step.run(step.stage(arrays, state.device), 1)
        return step

    def _run_on_batch(self, kind: str, data: ArrayData, class_weight: dict | None = None) -> dict:
        if class_weight is not None:
            data.weigh_classes(class_weight)
        self.reset_metrics()
        step = self._run_step(kind, data)
        return flat_logs(step_logs(self, step, of_epoch=False))

    def _callback_list(
        self,
        callbacks: Any,
        verbose: Any,
        epochs: int,
        steps: int | None,
        add_history: bool = False,
    ) -> CallbackList:
        verbose = standardize_verbosity(verbose)
        if isinstance(callbacks, CallbackList):
            return callbacks
        return CallbackList(
            callbacks,
            add_history=add_history,
            add_progbar=verbose != 0,
            model=self,
            verbose=verbose,
            epochs=epochs,
            steps=steps,
        )

    @contextlib.contextmanager
    def _finding_metrics_once(self) -> Iterator[None]:
        """A block in which only compiling a step may add metrics."""
        is_inner = self._keeps_metrics  # true in a callback that evaluates, for example
        self._keeps_metrics = True
        try:
            yield
        finally:
            if not is_inner:
                self._keeps_metrics = False
                self._forget_metrics()

    def _running(self, callbacks: CallbackList, *feeds: Any) -> Running:
        return Running(self, callbacks, feeds)

    def _assert_compile_called(self, method: str) -> None:
        if not self.compiled:
            raise ValueError(
                f"You must call `compile()` before `{method}()`. For a classifier with integer "
                "labels: model.compile(optimizer='adam', loss='sparse_categorical_crossentropy', "
                "metrics=['accuracy'])"
            )
        end = None if self._has_own_step(TRAIN) else self._host_end()
        if end is not None:
            raise ValueError(
                f"Model '{self.name}': '{end.layer_name}' works on the host, and behind it or "
                f"behind layers that learn there is nothing that `{method}()` could take a loss "
                "of. Train a model that ends before it, keras.Model(inputs, what it is called "
                "on): the layers are the same ones, and `predict` of this model uses what they "
                "have learned."
            )

    def _flatten_metrics_in_order(self, logs: dict[str, Any]) -> Any:
        """Returns the values of `logs`: those of `metrics` first; a single value without a list."""
        names = [metric.name for metric in self._all_metrics()]
        results = [logs[name] for name in names if name in logs]
        results += [logs[name] for name in sorted(logs) if name not in names]
        return results[0] if len(results) == 1 else results
