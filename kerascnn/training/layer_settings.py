"""The settings of layers when a step was compiled, which are those that the step uses.

Somebody may set another activation or rate afterwards, `layer.activation = None` say, and means the
next call of `fit` or `predict`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from kerascnn import _core
from kerascnn.layers.layer import Layer
from kerascnn.metrics.metric import Metric
from kerascnn.seed_generators import SeedGenerator
from kerascnn.variable import Variable

# Steps are compiled for these objects anyway, or never look into them.
_KINDS = (Layer, Variable, SeedGenerator, Metric, _core.Variable)


class LayerSettings:
    """Numbers, texts and functions among the attributes of layers, as they are now.

    Args:
        layers: The layers.
        left_out: Names of attributes that steps do not depend on.
    """

    def __init__(self, layers: Iterable[Any], left_out: frozenset[str]) -> None:
        self._settings, self._kept = _core.note_settings(list(layers), _KINDS, left_out)

    def is_unchanged(self) -> bool:
        return self._settings.is_unchanged()

    def changed(self) -> set[str]:
        """Returns the names of attributes that have changed in any layer."""
        return self._settings.changed()
