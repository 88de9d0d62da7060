"""Models: Sequential, functional and subclassed."""

from kerascnn.models.functional import Functional
from kerascnn.models.model import Model
from kerascnn.models.sequential import Sequential

__all__ = ["Functional", "Model", "Sequential"]
