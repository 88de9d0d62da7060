"""Feeds of data that is used once, kept for the next call with data of the same form.

Most of what a call of predict or evaluate does before its first step depends on the model and on
the form of the data only. Where neither has changed, the feed of an earlier call goes on with the
new data.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from kerascnn import _core, config
from kerascnn.distribution import replicas
from kerascnn.dtype_policies import DTypePolicy, DTypePolicyMap
from kerascnn.layers.layer import Layer
from kerascnn.metrics.metric import Metric
from kerascnn.seed_generators import SeedGenerator
from kerascnn.training.data import ArrayData
from kerascnn.training.feed import Feed
from kerascnn.training.layer_settings import LayerSettings
from kerascnn.training.steps import PREDICT
from kerascnn.variable import Variable

if TYPE_CHECKING:
    from kerascnn.training.machinery import StepMachinery

# Compiled steps depend on these, besides data and settings: layers, their parts, and policies.
_KINDS = (Layer, Variable, SeedGenerator, Metric, DTypePolicy, _core.Variable)
# Runs change these by themselves.
OF_RUNS = frozenset(
    {
        "_keeps_metrics",
        "_metrics_found",
        "_programs",
        "_state",
        "_training",
        "_turns",
        "history",
        "stop_evaluating",
        "stop_predicting",
        "stop_training",
    }
)
_MAX_FEEDS = 4


class _Circumstances(NamedTuple):
    """The circumstances under which a feed was made."""

    form: tuple
    programs: Any  # the dictionary with its steps; another one replaces it when they become invalid
    settings: tuple
    metrics: list[Any] | None  # those that the model finds itself
    watch: Any
    watched: list[Any]
    told: LayerSettings

    def hold_for(self, model: StepMachinery) -> bool:
        """Tells whether nothing has changed."""
        is_same = self.programs is model._programs and self.settings == _settings(model)
        return is_same and self.watch.is_unchanged() and self.told.is_unchanged()


class KeptFeeds:
    """The unused feeds of a model, by the form of their data."""

    def __init__(self) -> None:
        self._feeds: dict[tuple, Feed] = {}

    def __len__(self) -> int:
        return len(self._feeds)

    def take(self, model: StepMachinery, form: tuple) -> Feed | None:
        """Returns a feed for data of this form, if nothing has changed since it was made."""
        feed = self._feeds.pop(form, None)
        return feed if feed is not None and feed.circumstances.hold_for(model) else None

    def note(self, model: StepMachinery, form: tuple, feed: Feed) -> None:
        """Notes the circumstances of a feed whose steps were all compiled already."""
        layers = model._state.parts.layers
        if not feed.can_begin_again or not all(map(_is_seen_through, layers)):
            return
        left_out = OF_RUNS.union(*(layer._not_owned for layer in layers))
        metrics = [] if form[0] == PREDICT else list(model.metrics)
        owners = [*layers, *(model._all_metrics() if metrics else [])]
        watch, watched = _core.watch(owners, _KINDS, left_out)
        feed.circumstances = _Circumstances(
            form,
            model._programs,
            _settings(model),
            # A subclass that overrides `metrics` will add its own again.
            model._metrics_found if metrics else metrics,
            watch,
            watched,
            LayerSettings(layers, model._set_by_steps()),
        )

    def put_back(self, feed: Any) -> None:
        """Takes back a feed that was closed after a run without errors."""
        circumstances = getattr(feed, "circumstances", None)
        if circumstances is None:
            return
        feed.forget_data()
        self._feeds[circumstances.form] = feed
        if len(self._feeds) > _MAX_FEEDS:
            self._feeds.pop(next(iter(self._feeds)))

    def clear(self) -> None:
        """Forgets all feeds, since their programs are given up."""
        self._feeds.clear()


def form_of(kind: str, data: ArrayData, batch_size: int) -> tuple | None:
    """Returns the key of feeds, or `None` for data that is nested or has weights."""
    x, y = data.x, data.y
    if data.sample_weight is not None or type(x) is not np.ndarray:
        return None
    if y is None:
        return kind, batch_size, x.shape, x.dtype
    if type(y) is not np.ndarray:
        return None
    return kind, batch_size, x.shape, x.dtype, y.shape, y.dtype, x is y


def _settings(model: StepMachinery) -> tuple:
    settings = config.tf32(), config.floatx(), config.epsilon(), model.run_eagerly
    return (*settings, replicas.active(), replicas.reduce_dtype())


def _is_seen_through(layer: Layer) -> bool:
    """Tells whether its attributes contain all that a step depends on."""
    is_map = isinstance(layer._dtype_policy, DTypePolicyMap)
    return layer._has_usual_variables() and not is_map
