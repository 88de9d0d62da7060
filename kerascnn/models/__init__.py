"""Models: Sequential, functional and subclassed."""

from kerascnn.models.cloning import clone_model, model_from_json
from kerascnn.models.functional import Functional
from kerascnn.models.model import Model
from kerascnn.models.onnx_models import from_onnx
from kerascnn.models.sequential import Sequential
from kerascnn.saving.api import load_model, save_model

__all__ = [
    "Functional",
    "Model",
    "Sequential",
    "clone_model",
    "from_onnx",
    "load_model",
    "model_from_json",
    "save_model",
]
